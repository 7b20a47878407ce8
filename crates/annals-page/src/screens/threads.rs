//! The screen of all threads, the last active first.

use annals::base::{CheckpointId, Timestamp, Value};
use annals::history::{HistoryFilter, Snapshot, ThreadInfo, short_ids};
use annals::store::record::ThreadSize;
use annals::store::{StatusKind, ThreadCursor, ThreadQuery};
use annals_runs::{ThreadRuns, ThreadStatus, status_name, status_named};
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address::{self, encode};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{ACTIVITY_MAX, THREADS_MAX};
use crate::plot;
use crate::words::{ago, cost, grouped, partial_json, rounded, shortened, status_text, tally};

/// Bars of a sparkline.
const SPARKS: usize = 12;

/// The statuses, in the order in which a filter shows them.
const STATUSES: [StatusKind; 7] = [
    StatusKind::Interrupted,
    StatusKind::Failed,
    StatusKind::GivenUp,
    StatusKind::Running,
    StatusKind::Sleeping,
    StatusKind::Done,
    StatusKind::Cancelled,
];

/// A thread with what its row shows.
struct ThreadEntry {
    info: ThreadInfo,
    /// The size, which is counted for the JSON alone: it costs a visit of every checkpoint.
    size: Option<ThreadSize>,
    /// The timestamps of the newest checkpoints.
    times: Vec<Timestamp>,
    short: String,
    /// The first words of a thread without a title.
    first_words: Option<String>,
}

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let mut infos = screen.store.threads_with(query(screen)?.limit(THREADS_MAX + 1))?;
    let more = infos.len() > THREADS_MAX;
    infos.truncate(THREADS_MAX);
    let rows = infos.into_iter().map(|info| row(screen, info)).collect::<Result<Vec<_>, _>>()?;
    if screen.json {
        let threads: Vec<Json> = rows.iter().map(document).collect();
        return Ok(Shown::Json(json!({ "schema": 1, "threads": threads, "more": more })));
    }
    let mut html = Html::new();
    html.element("h1", &[], "Threads");
    facets(screen, &mut html);
    table(screen, &rows, &mut html);
    if let (true, Some(last)) = (more, rows.last()) {
        let after = format!("after={}", encode(&last.info.cursor().to_string()));
        let kept = screen.query.pairs().filter(|pair| !pair.starts_with("after="));
        let query: Vec<String> = kept.chain([after]).collect();
        html.within("p", &[("class", "next")], |html| {
            _ = html.link(&format!("/?{}", query.join("&")), "older threads")
        });
    }
    Ok(View::new("threads", html).live("").into())
}

fn query(screen: &Screen<'_>) -> Result<ThreadQuery, Refusal> {
    let fields = &screen.query;
    let mut query = ThreadQuery::new().archived(fields.get("archived").is_some());
    for (name, field) in [("project", &mut query.project), ("label", &mut query.label), ("graph", &mut query.graph)] {
        *field = fields.get(name).map(ToOwned::to_owned);
    }
    if let Some(text) = fields.get("title") {
        query = query.title_contains(text);
    }
    if let Some(name) = fields.get("status") {
        let names = || STATUSES.map(status_name).join(", ");
        query.status = status_named(name);
        if query.status.is_none() {
            return Err(Refusal::usage(format!("{name} is not a status: {}", names())));
        }
    }
    if let Some(text) = fields.get("since") {
        let wrong = |_| Refusal::usage(format!("{} is not a date or a timestamp", shortened(text, 40)));
        query = query.since(text.parse::<Timestamp>().map_err(wrong)?);
    }
    if let Some(after) = fields.get("after") {
        let wrong = |_| Refusal::usage("after is not the cursor of a listing");
        query.after = Some(after.parse::<ThreadCursor>().map_err(wrong)?);
    }
    Ok(query)
}

fn row(screen: &Screen<'_>, info: ThreadInfo) -> Result<ThreadEntry, Refusal> {
    let thread = screen.store.thread(info.id())?;
    let newest = thread.history_with(HistoryFilter::new().limit(ACTIVITY_MAX))?.collect::<Result<Vec<_>, _>>()?;
    let size = if screen.json { Some(thread.size()?) } else { None };
    let ids: Vec<CheckpointId> = newest.iter().map(Snapshot::id).collect();
    let shorts = short_ids(&ids, screen.store.now());
    let at = ids.iter().position(|id| *id == info.head());
    let short = at.map_or_else(|| info.head().to_string(), |at| shorts[at].clone());
    let times = newest.iter().map(Snapshot::created_at).collect();
    // A damaged message does not end a listing.
    let words = || thread.at(info.head())?.first_words();
    let first_words = if info.title().is_none() { words().unwrap_or_default() } else { None };
    Ok(ThreadEntry { info, size, times, short, first_words })
}

fn facets(screen: &Screen<'_>, html: &mut Html) {
    html.within("form", &[("action", "/"), ("class", "facets")], |html| {
        for (name, label) in [("title", "title"), ("project", "project"), ("label", "label"), ("graph", "graph")] {
            html.within("label", &[], |html| {
                html.text(label).literal(" ");
                let value = screen.query.get(name).unwrap_or_default();
                html.open("input", &[("name", name), ("value", value), ("size", "12")]);
            });
        }
        html.within("label", &[], |html| {
            html.literal("status ").open("select", &[("name", "status")]);
            html.element("option", &[("value", "")], "any");
            for status in STATUSES.map(status_name) {
                let mut attributes = vec![("value", status)];
                attributes.extend((screen.query.get("status") == Some(status)).then_some(("selected", "")));
                html.element("option", &attributes, status);
            }
            html.close("select");
        });
        html.within("label", &[], |html| {
            let since = screen.query.get("since").unwrap_or_default();
            // The input of a browser for dates does not take a time.
            let kind = if since.contains(':') { "text" } else { "date" };
            html.literal("active since ").open("input", &[("type", kind), ("name", "since"), ("value", since)]);
        });
        html.within("label", &[], |html| {
            let mut attributes = vec![("type", "checkbox"), ("name", "archived"), ("value", "1")];
            attributes.extend(screen.query.get("archived").map(|_| ("checked", "")));
            html.open("input", &attributes).text(" archived");
        });
        html.element("button", &[], "filter");
    });
}

fn table(screen: &Screen<'_>, rows: &[ThreadEntry], html: &mut Html) {
    if rows.is_empty() {
        html.classed("p", "dim", "no thread passes the filter");
        return;
    }
    let now = screen.store.now();
    html.open("table", &[("class", "rows")]).open("thead", &[]).open("tr", &[]);
    for title in ["thread", "state", "activity", "active", "steps", "tokens", "cost", "head"] {
        html.element("th", &[("scope", "col")], title);
    }
    html.close("tr").close("thead").open("tbody", &[]);
    for row in rows {
        let id = row.info.id().as_str();
        html.open("tr", &[("data-row", "")]).open("td", &[]);
        let title = row.info.title().or(row.first_words.as_deref());
        html.link(&address::thread(id), &shortened(title.unwrap_or(id), 80));
        let facts = row.info.facts();
        if facts.is_paused {
            html.literal(" ").classed("span", "tag", "paused");
        }
        if let Some(partial) = row.info.partial() {
            html.literal(" ").classed("span", "tag", &partial.to_string());
        }
        if title.is_some() {
            html.literal(" ").classed("span", "dim", &shortened(id, 40));
        }
        if let Some(project) = &facts.project {
            html.literal(" ").within(
                "a",
                &[("class", "tag"), ("href", &format!("/?project={}", encode(project)))],
                |html| {
                    html.text(&shortened(project, 40));
                },
            );
        }
        for label in facts.labels.iter().take(8) {
            html.literal(" ").within(
                "a",
                &[("class", "tag"), ("href", &format!("/?label={}", encode(label)))],
                |html| {
                    html.text(&shortened(label, 40));
                },
            );
        }
        html.close("td");
        let due = tally(row.info.record().tasks.iter().map(|task| &*task.name));
        let status = ThreadStatus::of(&row.info);
        let class =
            if matches!(status, ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)) { "error" } else { status.as_str() };
        html.classed("td", class, &shortened(&status_text(&status, &due), 60));
        html.within("td", &[], |html| {
            plot::sparkline(
                html,
                &sparks(&row.times),
                &format!("the newest {} checkpoints over time", row.times.len()),
            );
        });
        let updated_at = row.info.updated_at();
        html.element("td", &[("class", "when"), ("title", &updated_at.to_string())], &ago(now, updated_at));
        html.classed("td", "number", &grouped(row.info.record().ordinal + 1));
        let counts = row.info.counts().copied().unwrap_or_default();
        let (tokens, dollars) = (counts.input_tokens.saturating_add(counts.output_tokens), counts.cost_usd());
        html.classed("td", "number", &if tokens > 0 { rounded(tokens) } else { String::new() });
        html.classed("td", "number", &if dollars > 0.0 { cost(dollars) } else { String::new() });
        html.classed("td", "id", &row.short);
        html.close("tr");
    }
    html.close("tbody").close("table");
}

/// Counts timestamps, newest first, in equal spans from the oldest to the newest.
fn sparks(times: &[Timestamp]) -> [usize; SPARKS] {
    let mut counts = [0; SPARKS];
    let bounds = times.iter().map(|at| at.as_micros());
    let (Some(first), Some(last)) = (bounds.clone().min(), bounds.max()) else { return counts };
    let width = last.saturating_sub(first).max(1) as i128;
    for at in times {
        let place = (at.as_micros().saturating_sub(first)) as i128 * (SPARKS as i128 - 1) / width;
        counts[usize::try_from(place).unwrap_or(0).min(SPARKS - 1)] += 1;
    }
    debug_assert_eq!(counts.iter().sum::<usize>(), times.len(), "every timestamp counts once");
    counts
}

/// Returns the document of a thread, as `annals threads --json` has it.
fn document(row: &ThreadEntry) -> Json {
    let (facts, status, counts) = (row.info.facts(), ThreadStatus::of(&row.info), row.info.counts());
    let (error, wake_at) = match &status {
        ThreadStatus::Failed(error) | ThreadStatus::Stuck(error) => (Some(error.clone()), None),
        ThreadStatus::Cancelled(reason) => (reason.clone(), None),
        ThreadStatus::Sleeping(until) => (None, Some(until.to_string())),
        _ => (None, None),
    };
    let open: &[Value] = if let ThreadStatus::Interrupted(values) = &status { values } else { &[] };
    json!({
        "thread": row.info.id().as_str(),
        "title": facts.title,
        "first_words": row.first_words,
        "project": facts.project,
        "labels": facts.labels,
        "archived": facts.is_archived,
        "pinned": facts.is_pinned,
        "paused": facts.is_paused,
        "graph": row.info.graph(),
        "last_activity": row.info.updated_at().to_string(),
        "messages": counts.map(|counts| counts.messages),
        "input_tokens": counts.map(|counts| counts.input_tokens),
        "output_tokens": counts.map(|counts| counts.output_tokens),
        "cost_usd": counts.map(|counts| counts.cost_usd()),
        "checkpoints": row.size.map(|size| size.checkpoints),
        "branches": row.size.map(|size| size.branches),
        "head": row.info.head().to_string(),
        "step": row.info.record().step,
        "status": status.as_str(),
        "error": error,
        "wake_at": wake_at,
        "partial": partial_json(row.info.partial()),
        "next": row.info.record().tasks.iter().map(|task| &*task.name).collect::<Vec<_>>(),
        "questions": open.iter().map(Value::to_json).collect::<Vec<_>>(),
    })
}

/// Returns the head of a listed thread.
pub(super) fn head(screen: &Screen<'_>, info: &ThreadInfo) -> Result<Snapshot, Refusal> {
    Ok(screen.store.thread(info.id().as_str())?.at(info.head())?)
}
