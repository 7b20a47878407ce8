//! The superstep that made a checkpoint: its tasks with their writes, attempts and errors, and the changed channels.
//!
//! The waterfall shows what has times in the log: called tasks, attempts that failed and were followed by another one,
//! the only task of a superstep, and the tasks of a run that recorded their ends. Another one of several tasks has no
//! bar.

use annals::base::{TaskId, Timestamp, Value};
use annals::history::Snapshot;
use annals::store::Source;
use annals::store::record::{TaskKind, TaskRecord, WriteRecord, is_control};
use annals_runs::{SnapshotRuns, SpecialWrite, StepInfo};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address::{self, point_text};
use crate::changed::{ChannelStep, changed};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{BARS_MAX, WRITES_MAX};
use crate::plot::{self, LanePart};
use crate::words::{ago, brief, made, metadata, place, shortened, span, stored_parent};

/// Checkpoints of a lineage that a search for a step reads.
const SEARCHED: usize = 1_000;

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot, number: Option<&str>) -> Result<Shown, Refusal> {
    let found = match number {
        Some(number) => {
            let number = number.parse().map_err(|_| Refusal::usage(format!("{number} is not the number of a step")))?;
            with_step(screen, at, number)?
        }
        None => at.clone(),
    };
    let (at, parent) = (&found, stored_parent(&found)?);
    let changed = changed(at, parent.as_ref())?;
    let before = match &parent {
        Some(parent) => parent.writes()?,
        None => Vec::new(),
    };
    let pending = if at.record().tasks.is_empty() { Vec::new() } else { at.writes()? };
    if screen.json {
        let mut document = place(at);
        document["schema"] = json!(1);
        document["step"] = json!(at.step());
        document["source"] = json!(at.source().as_str());
        document["parent"] = parent.as_ref().map_or(Json::Null, place);
        document["changed"] = changed.iter().map(ChannelStep::json).collect();
        document["tasks"] = tasks_document(parent.as_ref(), &before)?;
        document["due"] = tasks_document(Some(at), &pending)?;
        let steps = match &parent {
            Some(parent) => parent.steps(ended_by(at))?,
            None => Vec::new(),
        };
        document["lanes"] = lanes(&steps).iter().map(|(step, spans)| lane_document(step, spans)).collect();
        return Ok(Shown::Json(document));
    }
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let (info, tree) = (thread.info()?, BranchTree::read(&thread)?);
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "step");
    html.element("h2", &[], &format!("step {}: {}", at.step(), made(at, parent.as_ref())));
    if let Some(parent) = &parent {
        html.within("p", &[], |html| {
            html.text("input: the state at ").link(&address::point(parent), &format!("step {}", parent.step()));
            html.text(&format!(" · {} · ", ago(at.store().now(), at.created_at())));
            html.link(&address::diff(&point_text(parent), &point_text(at)), "difference");
        });
        waterfall(&mut html, &parent.steps(ended_by(at))?, (parent.created_at(), at.created_at()));
        tasks(screen, &mut html, parent, &before, true)?;
    }
    html.element("h2", &[], "changed");
    html.open("ul", &[]);
    for step in changed.iter().filter(|step| shows_internal(screen) || !is_internal(&step.channel)) {
        html.open("li", &[]);
        html.link(&address::state(&address::point(at), [&*step.channel]), &shortened(&step.channel, 80));
        // The text of a value that is stored whole is the name alone.
        let change = Some(step.text()).filter(|text| *text != *step.channel).unwrap_or_default();
        html.text(&format!(" {change} · {}", crate::words::size(step.bytes))).close("li");
    }
    html.close("ul");
    if !at.record().tasks.is_empty() {
        html.element("h2", &[], "due after it");
        waterfall(&mut html, &at.steps(None)?, (at.created_at(), at.store().now()));
        tasks(screen, &mut html, at, &pending, false)?;
    }
    internal_link(screen, &mut html, at);
    html.element("h2", &[], "metadata");
    let metadata = Value::from(metadata(at));
    crate::values::ValueTree::add_without_links(&mut html, &metadata);
    Ok(View::new(format!("{} step {}", name(&info), at.step()), html).live(thread.id().as_str()).into())
}

/// Returns the checkpoint of a lineage that has a step.
fn with_step(screen: &Screen<'_>, at: &Snapshot, step: i64) -> Result<Snapshot, Refusal> {
    let absent = || Refusal::not_found(format!("the lineage of this point has no step {step} within reach"));
    let back = u64::try_from(at.step().saturating_sub(step)).map_err(|_| absent())?;
    // Most lineages have a checkpoint for each step.
    if let Some(ordinal) = at.record().ordinal.checked_sub(back)
        && let Some(found) = at.ancestors(&[ordinal])?.pop().flatten()
        && found.step() == step
    {
        let thread = address::thread_text(found.point().thread.as_str());
        return screen.point(&format!("{thread}@{}", found.id()));
    }
    for found in at.lineage().take(SEARCHED) {
        let found = found?;
        if found.step() == step {
            return Ok(found);
        }
    }
    Err(absent())
}

/// The state of a task, as its writes tell it.
fn state(task: TaskId, writes: &[WriteRecord], is_past: bool) -> &'static str {
    let has = |wanted: fn(i32) -> bool| writes.iter().any(|write| write.task == task && wanted(write.index));
    if is_past || has(|index| index >= 0) {
        "done"
    } else if has(|index| index == -1) {
        "failed"
    } else if has(|index| index == -3) {
        "interrupted"
    } else {
        "due"
    }
}

/// A span of time of a step: an attempt that failed, a call, or the whole step.
pub(super) struct StepSpan {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) has_failed: bool,
}

/// Returns a checkpoint if it ended a superstep: an update does not.
fn ended_by(at: &Snapshot) -> Option<&Snapshot> {
    Some(at).filter(|at| at.source() == Source::Loop)
}

/// Returns the steps of a superstep, each with its spans.
pub(super) fn lanes(steps: &[StepInfo]) -> Vec<(&StepInfo, Vec<StepSpan>)> {
    let is_single = steps.iter().filter(|step| !step.is_call).count() == 1;
    steps.iter().map(|step| (step, spans(step, step.has_own_end || is_single))).collect()
}

/// Returns the spans of a step that the log tells. `has_own_end` says whether the end of the step is its own.
fn spans(step: &StepInfo, has_own_end: bool) -> Vec<StepSpan> {
    let mut spans = Vec::new();
    for attempt in &step.attempts {
        if let (Some(from), Some(to)) = (attempt.started_at, attempt.ended_at) {
            spans.push(StepSpan { from, to, has_failed: attempt.error.is_some() });
        }
    }
    // The superstep of a single task ends with it.
    if let Some(to) = step.ended_at.filter(|_| has_own_end) {
        let has_failed = step.state.as_str() == "failed";
        spans.retain(|attempt| attempt.to <= to);
        let from = spans.last().map_or(step.started_at, |last| last.to);
        spans.push(StepSpan { from, to, has_failed });
    }
    spans
}

/// Adds a lane for each step, on the scale of its superstep. Without any span nothing is added.
fn waterfall(html: &mut Html, steps: &[StepInfo], (from, to): (Timestamp, Timestamp)) {
    let mut lanes = lanes(steps);
    lanes.truncate(BARS_MAX);
    if lanes.iter().all(|(_, spans)| spans.is_empty()) {
        return;
    }
    let ends = lanes.iter().flat_map(|(_, spans)| spans).map(|span| span.to);
    let to = ends.fold(to, Timestamp::max);
    let scale = to.as_micros().saturating_sub(from.as_micros()).max(1) as f64;
    let at = |time: Timestamp| time.as_micros().saturating_sub(from.as_micros()) as f64 / scale;
    html.open("figure", &[]).element("figcaption", &[], &format!("times of the tasks, within {}", span(scale as i64)));
    html.open("table", &[("class", "waterfall")]);
    for (step, spans) in &lanes {
        html.open("tr", &[]).open("th", &[("scope", "row")]);
        html.literal(if step.is_call { "\u{2514} " } else { "" }).isolated(&shortened(&step.name, 40)).close("th");
        let micros: i64 =
            spans.iter().map(|span| span.to.as_micros().saturating_sub(span.from.as_micros()).max(0)).sum();
        let failed = spans.iter().filter(|span| span.has_failed).count();
        let parts: Vec<LanePart> = spans
            .iter()
            .map(|span| LanePart {
                from: at(span.from),
                to: at(span.to),
                class: if span.has_failed { "failed" } else { "ran" },
            })
            .collect();
        let shown = match (spans.is_empty(), failed) {
            (true, _) => String::new(),
            (false, 0) => span(micros),
            (false, 1) => format!("{}, 1 attempt failed", span(micros)),
            (false, failed) => format!("{}, {failed} attempts failed", span(micros)),
        };
        html.open("td", &[("class", "fall")]);
        if !parts.is_empty() {
            plot::lane(html, &parts, &shown);
        }
        html.close("td").classed("td", "number", &shown).close("tr");
    }
    html.close("table").close("figure");
    if steps.len() > BARS_MAX {
        html.classed("p", "dim", &format!("{} more", steps.len() - BARS_MAX));
    }
}

fn lane_document(step: &StepInfo, spans: &[StepSpan]) -> Json {
    let spans: Vec<Json> = spans
        .iter()
        .map(|span| json!({ "from": span.from.to_string(), "to": span.to.to_string(), "failed": span.has_failed }))
        .collect();
    let (task, state) = (step.task.to_string(), step.state.as_str());
    json!({ "task": task, "node": &*step.name, "call": step.is_call, "state": state, "spans": spans })
}

/// Returns whether a channel is one of the executor: a trigger, or a value beside the state. Errors, interrupts and
/// results are those of the user.
fn is_internal(channel: &str) -> bool {
    let shown = [SpecialWrite::Error, SpecialWrite::Interrupt].map(SpecialWrite::channel);
    let is_of_user = shown.contains(&channel) || ["__return__", "__end__"].contains(&channel);
    is_control(channel) && !is_of_user
}

/// Adds a link to the screen with the internal channels, or without them.
fn internal_link(screen: &Screen<'_>, html: &mut Html, at: &Snapshot) {
    let (query, text) = match shows_internal(screen) {
        true => ("", "without the internal channels"),
        false => ("?internal=1", "with the internal channels"),
    };
    let address = format!("{}/step{query}", address::point(at));
    html.within("p", &[("class", "dim")], |html| _ = html.link(&address, text));
}

/// Returns whether the address asks for internal channels.
fn shows_internal(screen: &Screen<'_>) -> bool {
    screen.query.get("internal").is_some()
}

/// Adds the tasks of a checkpoint as lanes, each with its writes.
fn tasks(
    screen: &Screen<'_>,
    html: &mut Html,
    of: &Snapshot,
    writes: &[WriteRecord],
    is_past: bool,
) -> Result<(), Refusal> {
    html.open("div", &[("class", "tasks")]);
    for task in &of.record().tasks {
        let state = state(task.id, writes, is_past);
        let class = if state == "failed" { "error" } else { state };
        html.open("div", &[("class", "lane")]).open("h3", &[]);
        html.isolated(&shortened(&task.name, 60)).literal(" ").classed("span", class, state);
        if let TaskKind::Push { index } = &task.kind {
            html.literal(" ").classed("span", "dim", &format!("send {index}"));
        }
        html.close("h3");
        task_writes(screen, html, task, writes)?;
        html.classed("p", "dim", &format!("task {}", task.id)).close("div");
    }
    html.close("div");
    Ok(())
}

fn task_writes(screen: &Screen<'_>, html: &mut Html, task: &TaskRecord, writes: &[WriteRecord]) -> Result<(), Refusal> {
    let is_shown = |write: &&WriteRecord| shows_internal(screen) || !is_internal(&write.channel);
    let own: Vec<&WriteRecord> = writes.iter().filter(|write| write.task == task.id).filter(is_shown).collect();
    html.open("table", &[("class", "rows")]).open("tbody", &[]);
    for write in own.iter().take(WRITES_MAX) {
        let value = write.to_value()?;
        let class = if write.index == -1 { "error" } else { "" };
        html.open("tr", &[]).element("th", &[("scope", "row"), ("dir", "auto")], &shortened(&write.channel, 60));
        html.open("td", &[("class", class)]);
        match &value {
            Value::Str(text) if write.index == -1 => {
                _ = html.element("pre", &[("dir", "auto")], &shortened(text, 4_000))
            }
            Value::List(items) => {
                for item in items.iter().take(8) {
                    html.isolated(&super::state::line(item)).literal("<br>");
                }
            }
            value => _ = html.isolated(&brief(value)),
        }
        html.close("td").close("tr");
    }
    html.close("tbody").close("table");
    if own.len() > WRITES_MAX {
        html.classed("p", "dim", &format!("{} more", own.len() - WRITES_MAX));
    }
    Ok(())
}

fn tasks_document(of: Option<&Snapshot>, writes: &[WriteRecord]) -> Result<Json, Refusal> {
    let mut documents = Vec::new();
    for task in of.iter().flat_map(|of| of.record().tasks.iter()) {
        let mut all = Vec::new();
        for write in writes.iter().filter(|write| write.task == task.id).take(WRITES_MAX) {
            let value = write.to_value()?.to_json();
            all.push(json!({ "index": write.index, "channel": &*write.channel, "value": value }));
        }
        documents.push(json!({ "id": task.id.to_string(), "node": &*task.name, "writes": all }));
    }
    Ok(Json::Array(documents))
}
