//! Analytics of the newest checkpoints: tokens, cost, durations and bytes, by day, node, model and thread.
//!
//! The checkpoints are read in the order of the log from a position near its end, so the cost is that of the
//! checkpoints that are counted, however long the log is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use annals::base::CheckpointId;
use annals::history::{HistoryFilter, Snapshot};
use annals::store::Source;
use annals::store::record::CheckpointRecord;
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address::encode;
use crate::changed::changed_by;
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{STATS_CHECKPOINTS_MAX, STATS_OF_THREAD_MAX};
use crate::plot::{Bar, bars};
use crate::words::{cost, count, grouped, rounded, shortened, size, span};

/// Checkpoints that are counted unless the address says otherwise.
const COUNTED: u64 = 300;
/// Other numbers of checkpoints that the screen offers.
const CHOICES: [u64; 3] = [300, 5_000, 50_000];

/// A model call that metadata states.
struct CountedCall {
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
}

/// The figures of the checkpoints that have a name in common.
#[derive(Default)]
struct Figures {
    steps: u64,
    calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
    bytes: u64,
    micros: Vec<i64>,
}

/// The names by which figures are added up, with their title.
const GROUPS: [(&str, &str); 4] =
    [("day", "by day"), ("node", "by node"), ("model", "by model"), ("thread", "by thread")];

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let wanted = screen.query.number("last").unwrap_or(COUNTED);
    if wanted == 0 || wanted > STATS_CHECKPOINTS_MAX {
        return Err(Refusal::usage(format!("last is not from 1 to {STATS_CHECKPOINTS_MAX}")));
    }
    let by = screen.query.get("by").map(|by| by.split(',').map(str::trim).collect::<Vec<_>>());
    if let Some(unknown) = by.iter().flatten().find(|name| !GROUPS.iter().any(|(known, _)| known == *name)) {
        return Err(Refusal::usage(format!("{unknown} is not one of day, node, model and thread")));
    }
    let groups = GROUPS.iter().filter(|(name, _)| by.as_ref().is_none_or(|by| by.contains(name)));
    let snapshots = newest(screen, wanted)?;
    let figures = figures(&snapshots)?;
    if screen.json {
        let groups: serde_json::Map<String, Json> =
            groups.map(|(name, _)| ((*name).to_owned(), figures[name].iter().map(document).collect())).collect();
        return Ok(Shown::Json(json!({ "schema": 1, "checkpoints": snapshots.len(), "by": groups })));
    }
    let mut html = Html::new();
    html.open("div", &[("class", "head")]).element("h1", &[], "Stats");
    let thread = screen.query.get("thread");
    html.open("aside", &[("class", "pick")]);
    for choice in CHOICES {
        let of = thread.map(|thread| format!("&thread={}", encode(thread))).unwrap_or_default();
        let href = format!("/stats?last={choice}{of}");
        let mut attributes = vec![("class", "btn bare"), ("href", href.as_str())];
        attributes.extend((choice == wanted).then_some(("aria-current", "true")));
        html.element("a", &attributes, &grouped(choice));
    }
    html.close("aside").open("p", &[("class", "facts")]);
    html.element("span", &[], &format!("of the newest {}", count(snapshots.len() as u64, "checkpoint")));
    if let Some(thread) = thread {
        html.open("span", &[]).text("of the thread ");
        html.link(&crate::address::thread(thread), &shortened(thread, 60)).close("span");
    }
    html.close("p").close("div");
    sums(&mut html, figures["day"].values());
    html.open("div", &[("class", "plots")]);
    for (name, title) in groups {
        group(&mut html, name, title, &figures[name]);
    }
    html.close("div");
    Ok(View::new("stats", html).into())
}

/// Reads the newest checkpoints of the store or of a thread, oldest first.
fn newest(screen: &Screen<'_>, wanted: u64) -> Result<Vec<Snapshot>, Refusal> {
    let limit = usize::try_from(wanted).unwrap_or(usize::MAX);
    if let Some(id) = screen.query.get("thread") {
        let newest = HistoryFilter::new().limit(limit.min(STATS_OF_THREAD_MAX));
        let mut snapshots = screen.store.thread(id)?.history_with(newest)?.collect::<Result<Vec<_>, _>>()?;
        snapshots.reverse();
        return Ok(snapshots);
    }
    Ok(screen.store.changes_after(&screen.store.position(wanted)?, limit)?.0)
}

/// Returns the model calls that the metadata of a checkpoint states.
fn stated(record: &CheckpointRecord) -> Vec<CountedCall> {
    let Some(text) = record.metadata.as_deref().filter(|text| text.contains("\"usage\"")) else { return Vec::new() };
    let metadata: Json = serde_json::from_str(text).unwrap_or_default();
    let calls = match metadata.get("usage") {
        Some(Json::Array(calls)) => calls.clone(),
        Some(call @ Json::Object(_)) => vec![call.clone()],
        _ => Vec::new(),
    };
    let number = |call: &Json, name: &str| call.get(name).and_then(Json::as_u64).unwrap_or(0);
    let call = |call: &Json| CountedCall {
        model: call.get("model").and_then(Json::as_str).map(ToOwned::to_owned),
        input_tokens: number(call, "input_tokens"),
        output_tokens: number(call, "output_tokens"),
        cost_usd: call.get("cost_usd").and_then(Json::as_f64).unwrap_or(0.0),
    };
    calls.iter().filter(|call| call.is_object()).map(call).collect()
}

/// Adds up the figures of checkpoints, by each group.
fn figures(snapshots: &[Snapshot]) -> Result<HashMap<&'static str, BTreeMap<String, Figures>>, Refusal> {
    let by_id: HashMap<CheckpointId, &CheckpointRecord> = snapshots.iter().map(|at| (at.id(), at.record())).collect();
    let mut all: HashMap<&'static str, BTreeMap<String, Figures>> =
        GROUPS.iter().map(|(name, _)| (*name, BTreeMap::new())).collect();
    // The bytes of subgraphs are counted as well; their records are in the log like others.
    let changes = changed_by(snapshots)?;
    for (record, changes) in snapshots.iter().map(Snapshot::record).zip(changes) {
        let parent = record.parent.and_then(|id| by_id.get(&id)).filter(|_| record.source == Source::Loop);
        let micros =
            parent.map(|parent| record.created_at.as_micros().saturating_sub(parent.created_at.as_micros()).max(0));
        let nodes: Vec<Arc<str>> =
            parent.map(|parent| parent.tasks.iter().map(|task| Arc::clone(&task.name)).collect()).unwrap_or_default();
        let node = nodes
            .first()
            .map_or_else(|| format!("({})", record.source.as_str()), |name| crate::words::tally([&**name]));
        let mut one = Figures { steps: 1, micros: micros.into_iter().collect(), ..Figures::default() };
        let calls = stated(record);
        for step in changes {
            one.bytes += step.bytes;
            let is_call = calls.is_empty() && step.tokens != (0, 0);
            one.calls += u64::from(is_call);
            one.input_tokens += if is_call { step.tokens.0 } else { 0 };
            one.output_tokens += if is_call { step.tokens.1 } else { 0 };
        }
        let mut models = Vec::new();
        for call in &calls {
            one.calls += 1;
            one.input_tokens = one.input_tokens.saturating_add(call.input_tokens);
            one.output_tokens = one.output_tokens.saturating_add(call.output_tokens);
            one.cost_usd += call.cost_usd;
            models.extend(call.model.clone());
        }
        let day: String = record.created_at.to_string().chars().take(10).collect();
        let mut add = |group: &'static str, name: String| {
            if let Some(group) = all.get_mut(group) {
                group.entry(name).or_default().add(&one);
            }
        };
        add("day", day);
        add("node", node);
        add("thread", record.point.thread.to_string());
        if one.calls > 0 {
            add("model", models.first().cloned().unwrap_or_else(|| "(not stated)".into()));
        }
    }
    debug_assert!(all["day"].values().map(|figures| figures.steps).sum::<u64>() == snapshots.len() as u64);
    Ok(all)
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.calls += other.calls;
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd += other.cost_usd;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.micros.extend(&other.micros);
    }

    /// Returns the duration that a share of the steps does not exceed.
    fn percentile(&self, share: f64) -> Option<i64> {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let at = (sorted.len().checked_sub(1)? as f64 * share).round() as usize;
        sorted.get(at).copied()
    }
}

/// Adds the six sums of all checkpoints that were counted.
fn sums<'f>(html: &mut Html, figures: impl Iterator<Item = &'f Figures>) {
    let mut sum = Figures::default();
    figures.for_each(|one| sum.add(one));
    let some = |n: u64, text: String| if n > 0 { text } else { "none".to_owned() };
    let tokens = sum.input_tokens.saturating_add(sum.output_tokens);
    let [half, most] = [0.5, 0.95].map(|share| sum.percentile(share).map(span).unwrap_or_default());
    html.open("dl", &[("class", "figures")]);
    for (name, value, note) in [
        ("cost", if sum.cost_usd > 0.0 { cost(sum.cost_usd) } else { "not stated".to_owned() }, String::new()),
        (
            "tokens",
            some(tokens, rounded(tokens)),
            some(tokens, format!("{} of them written", rounded(sum.output_tokens))),
        ),
        ("model calls", some(sum.calls, rounded(sum.calls)), String::new()),
        (
            "half of the steps under",
            if half.is_empty() { "none ran".to_owned() } else { half },
            format!("95 % under {most}"),
        ),
        ("bytes written", size(sum.bytes), String::new()),
        ("checkpoints", grouped(sum.steps), String::new()),
    ] {
        html.open("div", &[]).element("dt", &[], name).element("dd", &[], &value);
        if !note.is_empty() && !note.ends_with(' ') && note != "none" {
            html.classed("dd", "was", &note);
        }
        html.close("div");
    }
    html.close("dl");
}

fn group(html: &mut Html, name: &str, title: &str, figures: &BTreeMap<String, Figures>) {
    let mut rows: Vec<(&String, &Figures)> = figures.iter().collect();
    if name != "day" {
        rows.sort_by_key(|(_, figures)| {
            std::cmp::Reverse((figures.input_tokens + figures.output_tokens, figures.steps))
        });
    }
    html.element("h2", &[], title);
    if rows.is_empty() {
        html.classed("p", "dim", "nothing was recorded");
    }
    let plot = |html: &mut Html, what: &str, value: &dyn Fn(&Figures) -> f64, shown: &dyn Fn(&Figures) -> String| {
        if rows.iter().all(|(_, figures)| value(figures) <= 0.0) {
            return;
        }
        let bar = |(name, figures): &(&String, &Figures)| Bar {
            name: shortened(name, 40),
            value: value(figures),
            shown: shown(figures),
        };
        // A row without the fact is left out.
        let some = rows.iter().filter(|(_, figures)| value(figures) > 0.0);
        bars(html, what, &some.map(bar).collect::<Vec<_>>());
    };
    let tokens = |figures: &Figures| (figures.input_tokens + figures.output_tokens) as f64;
    plot(html, "tokens", &tokens, &|figures| {
        format!("{} in, {} out", rounded(figures.input_tokens), rounded(figures.output_tokens))
    });
    plot(html, "cost", &|figures| figures.cost_usd, &|figures| cost(figures.cost_usd));
    let durations = |figures: &Figures| match (figures.percentile(0.5), figures.percentile(0.95)) {
        (Some(half), Some(most)) => format!("p50 {}, p95 {}", span(half), span(most)),
        _ => "no duration".to_owned(),
    };
    let median = |figures: &Figures| figures.percentile(0.5).unwrap_or(0) as f64;
    plot(html, "median duration of a step", &median, &durations);
    plot(html, "bytes written", &|figures| figures.bytes as f64, &|figures| size(figures.bytes));
    plot(html, "steps", &|figures| figures.steps as f64, &|figures| grouped(figures.steps));
}

fn document((name, figures): (&String, &Figures)) -> Json {
    json!({
        "name": name,
        "steps": figures.steps,
        "calls": figures.calls,
        "input_tokens": figures.input_tokens,
        "output_tokens": figures.output_tokens,
        "cost_usd": figures.cost_usd,
        "bytes": figures.bytes,
        "p50_us": figures.percentile(0.5),
        "p95_us": figures.percentile(0.95),
    })
}
