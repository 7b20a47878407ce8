//! Analytics of the newest checkpoints: cost, tokens, durations and bytes over time, by day, node, model and thread.
//!
//! The checkpoints are read in the order of the log from a position near its end, so the cost is that of the
//! checkpoints that are counted, however long the log is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use annals::base::{CheckpointId, Timestamp};
use annals::history::{HistoryFilter, Snapshot};
use annals::store::Source;
use annals::store::record::CheckpointRecord;
use annals_view::changes_of_all;
use annals_view::words::{cost, count, date, grouped, rounded, shortened, size, span};
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address::encode;
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{
    CHANGED_ITEMS_MAX, RANKED_MAX, STATS_CHECKPOINTS_MAX, STATS_MODELS_MAX, STATS_OF_THREAD_MAX, STATS_PERIODS_MAX,
};
use crate::plot::{Bar, Range, TimePlot, bars, ranges};

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
    /// The cost by the model.
    costs: BTreeMap<String, f64>,
}

/// The periods of a plot over time, in microseconds, with their names.
const PERIODS: [(i64, &str); 11] = [
    (1_000_000, "by second"),
    (10_000_000, "by 10 seconds"),
    (60_000_000, "by minute"),
    (600_000_000, "by 10 minutes"),
    (3_600_000_000, "by hour"),
    (21_600_000_000, "by 6 hours"),
    (86_400_000_000, "by day"),
    (604_800_000_000, "by week"),
    (2_419_200_000_000, "by 4 weeks"),
    (31_536_000_000_000, "by 365 days"),
    (i64::MAX, "in all"),
];

/// The sizes of the parts of a period.
type FigureParts<'a> = &'a dyn Fn(&Figures) -> Vec<f64>;

/// The titles of the plot whose periods are spans, and of that of bytes.
const TIME_OF_STEP: &str = "Time of a step";
const SIZE: &str = "Size";

/// The figures of equal periods, from that of the oldest checkpoint to that of the newest one.
struct Periods {
    name: &'static str,
    all: Vec<(String, Figures)>,
}

/// The model of a call that names none.
const NOT_STATED: &str = "(not stated)";

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
    let (figures, periods) = figures(&snapshots)?;
    if screen.json {
        let groups: serde_json::Map<String, Json> =
            groups.map(|(name, _)| ((*name).to_owned(), figures[name].iter().map(document).collect())).collect();
        return Ok(Shown::Json(json!({ "schema": 1, "checkpoints": snapshots.len(), "by": groups })));
    }
    let mut html = Html::new();
    head(screen, &mut html, wanted, &snapshots);
    tabs(screen, &mut html, by.as_deref());
    match &by {
        None => {
            sums(&mut html, figures["day"].values());
            html.open("div", &[("class", "plots")]);
            periods.add_to(&mut html);
            overview(&mut html, &figures);
            html.close("div");
        }
        Some(_) => {
            html.open("div", &[("class", "plots")]);
            groups.for_each(|(name, title)| group(&mut html, name, title, &figures[name]));
            html.close("div");
        }
    }
    Ok(View::new("stats", html).into())
}

/// Returns the address of the screen with a number of checkpoints and a group.
fn address_of(screen: &Screen<'_>, last: Option<u64>, by: Option<&str>) -> String {
    let last = last.map(|last| last.to_string()).or_else(|| screen.query.get("last").map(ToOwned::to_owned));
    let thread = screen.query.get("thread").map(ToOwned::to_owned);
    let pairs = [("last", last), ("thread", thread), ("by", by.map(ToOwned::to_owned))];
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(&value?))));
    let pairs = pairs.collect::<Vec<_>>().join("&");
    if pairs.is_empty() { "/stats".to_owned() } else { format!("/stats?{pairs}") }
}

fn head(screen: &Screen<'_>, html: &mut Html, wanted: u64, snapshots: &[Snapshot]) {
    html.open("div", &[("class", "head")]).element("h1", &[], "Stats").open("aside", &[("class", "pick")]);
    for choice in CHOICES {
        let href = address_of(screen, Some(choice), screen.query.get("by"));
        let mut attributes = vec![("class", "btn bare"), ("href", href.as_str())];
        attributes.extend((choice == wanted).then_some(("aria-current", "true")));
        html.element("a", &attributes, &grouped(choice));
    }
    html.close("aside").open("p", &[("class", "facts")]);
    html.element("span", &[], &format!("the newest {}", count(snapshots.len() as u64, "checkpoint")));
    if let Some((first, last)) = snapshots.first().zip(snapshots.last()) {
        let [first, last] = [first, last].map(|at| date(at.created_at()));
        html.element("span", &[], &if first == last { last } else { format!("{first} to {last}") });
    }
    if let Some(thread) = screen.query.get("thread") {
        html.open("span", &[]).text("of the thread ");
        html.link(&crate::address::thread(thread), &shortened(thread, 60)).close("span");
    }
    html.close("p").close("div");
}

/// Adds the links between the groups.
fn tabs(screen: &Screen<'_>, html: &mut Html, by: Option<&[&str]>) {
    html.open("nav", &[("class", "tabs"), ("aria-label", "Grouped by")]);
    let shown = [(None, "Overview")].into_iter().chain(GROUPS.map(|(name, title)| (Some(name), title)));
    for (name, title) in shown {
        let href = address_of(screen, None, name);
        let is_current = match name {
            Some(name) => by.is_some_and(|by| by.contains(&name)),
            None => by.is_none(),
        };
        let mut attributes = vec![("href", href.as_str())];
        attributes.extend(is_current.then_some(("aria-current", "page")));
        html.element("a", &attributes, title).literal(" ");
    }
    html.close("nav");
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

/// The figures of each group, by their names.
type GroupedFigures = HashMap<&'static str, BTreeMap<String, Figures>>;

/// Adds up the figures of checkpoints, by each group and by period.
fn figures(snapshots: &[Snapshot]) -> Result<(GroupedFigures, Periods), Refusal> {
    let by_id: HashMap<CheckpointId, &CheckpointRecord> = snapshots.iter().map(|at| (at.id(), at.record())).collect();
    let mut all: GroupedFigures = GROUPS.iter().map(|(name, _)| (*name, BTreeMap::new())).collect();
    let (mut periods, begin, period) = Periods::of(snapshots);
    // The bytes of subgraphs are counted as well; their records are in the log like others.
    let changes = changes_of_all(snapshots, CHANGED_ITEMS_MAX)?;
    for (record, changes) in snapshots.iter().map(Snapshot::record).zip(changes) {
        let parent = record.parent.and_then(|id| by_id.get(&id)).filter(|_| record.source == Source::Loop);
        let micros =
            parent.map(|parent| record.created_at.as_micros().saturating_sub(parent.created_at.as_micros()).max(0));
        let nodes: Vec<Arc<str>> =
            parent.map(|parent| parent.tasks.iter().map(|task| Arc::clone(&task.name)).collect()).unwrap_or_default();
        let node = nodes
            .first()
            .map_or_else(|| format!("({})", record.source.as_str()), |name| annals_view::words::tally([&**name]));
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
            let model = call.model.clone().unwrap_or_else(|| NOT_STATED.into());
            *one.costs.entry(model).or_default() += call.cost_usd;
            models.extend(call.model.clone());
        }
        let day: String = record.created_at.to_string().chars().take(10).collect();
        let at = record.created_at.as_micros().div_euclid(period).saturating_sub(begin);
        if let Some((_, figures)) = usize::try_from(at).ok().and_then(|at| periods.all.get_mut(at)) {
            figures.add(&one);
        }
        let mut add = |group: &'static str, name: String| {
            if let Some(group) = all.get_mut(group) {
                group.entry(name).or_default().add(&one);
            }
        };
        add("day", day);
        add("node", node);
        add("thread", record.point.thread.to_string());
        if one.calls > 0 {
            add("model", models.first().cloned().unwrap_or_else(|| NOT_STATED.into()));
        }
    }
    debug_assert!(all["day"].values().map(|figures| figures.steps).sum::<u64>() == snapshots.len() as u64);
    Ok((all, periods))
}

impl Periods {
    /// Returns empty periods that hold all checkpoints, the number of the first one since the epoch, and their length
    /// in microseconds.
    fn of(snapshots: &[Snapshot]) -> (Self, i64, i64) {
        let times = || snapshots.iter().map(|at| at.created_at().as_micros());
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let number = |unit: i64| last.div_euclid(unit).saturating_sub(first.div_euclid(unit)).saturating_add(1);
        let fits = |unit: i64| number(unit) <= STATS_PERIODS_MAX;
        let (unit, name) = PERIODS.into_iter().find(|(unit, _)| fits(*unit)).unwrap_or(PERIODS[PERIODS.len() - 1]);
        let begin = first.div_euclid(unit);
        let named = |at: i64| {
            let at = Timestamp::from_micros(begin.saturating_add(at).saturating_mul(unit));
            match unit {
                ..60_000_000 => at.to_string().chars().skip(11).take(8).collect(),
                60_000_000..86_400_000_000 => at.to_string().chars().skip(11).take(5).collect(),
                _ => date(at),
            }
        };
        let all = (0..number(unit)).map(|at| (named(at), Figures::default())).collect();
        (Self { name, all }, begin, unit)
    }

    /// Adds the plots over time; those without a figure are left out.
    fn add_to(&self, html: &mut Html) {
        let mut plot = |title: (&str, &str), keys, parts: FigureParts<'_>, shown: &dyn Fn(f64) -> String| {
            let periods = self.all.iter().map(|(name, figures)| (name.clone(), parts(figures))).collect();
            let (is_span, base) = (title.0 == TIME_OF_STEP, if title.0 == SIZE { 1_024.0 } else { 1.0 });
            TimePlot { title: title.0, note: title.1, keys, periods, shown, base, is_span }.add_to(html);
        };
        let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
        for (model, cost) in self.all.iter().flat_map(|(_, figures)| &figures.costs) {
            *costs.entry(model).or_default() += cost;
        }
        let mut models: Vec<(&str, f64)> = costs.into_iter().collect();
        models.sort_by(|a, b| b.1.total_cmp(&a.1));
        let named: Vec<&str> = models.iter().take(STATS_MODELS_MAX).map(|(model, _)| *model).collect();
        let mut keys: Vec<(&'static str, String)> =
            ["c1", "c2", "c3"].into_iter().zip(named.iter().map(|model| shortened(model, 30))).collect();
        keys.extend((models.len() > named.len()).then(|| ("c4", "others".to_owned())));
        let by_model = |figures: &Figures| {
            let of = |model: &&str| figures.costs.get(*model).copied().unwrap_or(0.0);
            let mut parts: Vec<f64> = named.iter().map(of).collect();
            let rest = figures.costs.values().sum::<f64>() - parts.iter().sum::<f64>();
            parts.push(if rest > 1e-9 { rest } else { 0.0 });
            parts
        };
        plot(("Cost", &format!("{} and model", self.name)), keys, &by_model, &cost);
        let keys = vec![("c2", "in".to_owned()), ("c1", "out".to_owned())];
        let tokens = |figures: &Figures| vec![figures.input_tokens as f64, figures.output_tokens as f64];
        plot(("Tokens", self.name), keys, &tokens, &|tokens| rounded(tokens as u64));
        let keys = vec![("c1", "half".to_owned()), ("p95", "95 % are faster".to_owned())];
        let times = |figures: &Figures| [0.5, 0.95].map(|share| figures.percentile(share).unwrap_or(0) as f64).to_vec();
        plot((TIME_OF_STEP, self.name), keys, &times, &|micros| span(micros as i64));
        let bytes = |figures: &Figures| vec![figures.bytes as f64];
        let keys = vec![("c2", String::new())];
        plot((SIZE, &format!("bytes written, {}", self.name)), keys, &bytes, &|bytes| size(bytes as u64));
    }
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
        for (model, cost) in &other.costs {
            *self.costs.entry(model.clone()).or_default() += cost;
        }
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

/// Adds the time and the bytes of the nodes, and the tokens and the cost of models and threads.
fn overview(html: &mut Html, figures: &GroupedFigures) {
    times(html, ("Time by node", "half, 95 %"), &figures["node"]);
    ranked(html, ("Size by node", "bytes written, share"), &figures["node"], &|one| one.bytes as f64, &|one| {
        size(one.bytes)
    });
    for (group, title) in [("model", "Tokens by model"), ("thread", "Tokens by thread")] {
        ranked(html, (title, "in and out, share"), &figures[group], &tokens, &|one| rounded(tokens(one) as u64));
    }
}

fn tokens(figures: &Figures) -> f64 {
    figures.input_tokens.saturating_add(figures.output_tokens) as f64
}

/// Adds the times of the steps, the longest first.
fn times(html: &mut Html, title: (&str, &str), figures: &BTreeMap<String, Figures>) {
    let mut rows: Vec<Range> = figures
        .iter()
        .filter_map(|(name, figures)| {
            let [half, most] = [figures.percentile(0.5)?, figures.percentile(0.95)?];
            let shown = [half, most].map(span);
            Some(Range { name: shortened(name, 40), half: half as f64, most: most as f64, shown })
        })
        .collect();
    rows.sort_by(|a, b| b.most.total_cmp(&a.most));
    rows.truncate(RANKED_MAX);
    if !rows.is_empty() {
        ranges(html, title, &rows);
    }
}

/// Adds the largest figures of a group, and the sum of the others.
fn ranked(
    html: &mut Html,
    title: (&str, &str),
    figures: &BTreeMap<String, Figures>,
    value: &dyn Fn(&Figures) -> f64,
    shown: &dyn Fn(&Figures) -> String,
) {
    let all: f64 = figures.values().map(value).sum();
    let share = |value: f64| format!("{:.0} %", value / all * 100.0);
    let mut rows: Vec<(&String, &Figures)> = figures.iter().filter(|(_, one)| value(one) > 0.0).collect();
    rows.sort_by(|a, b| value(b.1).total_cmp(&value(a.1)));
    let others = rows.split_off(rows.len().min(RANKED_MAX));
    let bar = |name: String, one: &Figures| Bar { name, value: value(one), shown: shown(one), note: share(value(one)) };
    let mut shown_rows: Vec<Bar> = rows.iter().map(|(name, one)| bar(shortened(name, 40), one)).collect();
    if !others.is_empty() {
        let mut sum = Figures::default();
        others.iter().for_each(|(_, one)| sum.add(one));
        shown_rows.push(bar(format!("{} others", others.len()), &sum));
    }
    if !shown_rows.is_empty() {
        bars(html, title, &shown_rows);
    }
}

/// Adds all plots of a group.
fn group(html: &mut Html, name: &str, title: &str, figures: &BTreeMap<String, Figures>) {
    html.element("h2", &[], title);
    if figures.is_empty() {
        html.classed("p", "dim", "nothing was recorded");
    }
    let is_day = name == "day";
    let mut plot = |what: &str, value: &dyn Fn(&Figures) -> f64, shown: &dyn Fn(&Figures) -> String| {
        // A row without the fact is left out.
        let mut rows: Vec<(&String, &Figures)> = figures.iter().filter(|(_, one)| value(one) > 0.0).collect();
        if !is_day {
            rows.sort_by(|a, b| value(b.1).total_cmp(&value(a.1)));
        }
        let bar = |(name, one): &(&String, &Figures)| Bar {
            name: shortened(name, 40),
            value: value(one),
            shown: shown(one),
            note: String::new(),
        };
        if !rows.is_empty() {
            bars(html, (what, ""), &rows.iter().map(bar).collect::<Vec<_>>());
        }
    };
    plot("tokens", &tokens, &|one| format!("{} in, {} out", rounded(one.input_tokens), rounded(one.output_tokens)));
    plot("cost", &|one| one.cost_usd, &|one| cost(one.cost_usd));
    plot("bytes written", &|one| one.bytes as f64, &|one| size(one.bytes));
    plot("steps", &|one| one.steps as f64, &|one| grouped(one.steps));
    times(html, ("time of a step", "half, 95 %"), figures);
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
