//! The superstep that made a checkpoint: its tasks on one scale of time, each opening into its writes, attempts and
//! error; beside them the channels that changed.
//!
//! A bar shows what has times in the log: called tasks, attempts that failed and were followed by another one, the only
//! task of a superstep, and the tasks of a run that recorded their ends. Another one of several tasks has no bar.

use annals::base::{Timestamp, Value};
use annals::history::Snapshot;
use annals::store::Source;
use annals::store::record::{TaskKind, WriteRecord, is_control};
use annals_runs::{SnapshotRuns, SpecialWrite, StepInfo, StepState};
use annals_view::ChangedChannel;
use annals_view::words::{brief, count, made, metadata, place, shortened, size, span, stored_parent};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::tree::BranchTree;
use super::{Screen, Shown, pane};
use crate::address::{self, point_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{CHANGED_ITEMS_MAX, OPEN_TASKS_MAX, PANE_NODES_MAX, STEP_BYTES_MAX, STEP_TASKS_MAX, WRITES_MAX};
use crate::plot;
use crate::values::{interrupt, kind};

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
    let changed = annals_view::changes(at, parent.as_ref(), CHANGED_ITEMS_MAX)?;
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
        document["changed"] = changed.iter().map(ChangedChannel::document).collect();
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
    html.open("div", &[("class", "cols")]).open("section", &[("aria-label", "Tasks")]);
    let made = shortened(&made(at, parent.as_ref()), 80);
    html.open("div", &[("class", "section")]).open("h2", &[]).text(&format!("Step {}: ", at.step()));
    html.isolated(&made).close("h2");
    if let Some(parent) = &parent {
        html.open("p", &[("class", "end facts")]).open("span", &[]).text("input: ");
        html.link(&address::point(parent), &format!("step {}", parent.step())).close("span").open("span", &[]);
        html.link(&address::diff(&point_text(parent), &point_text(at)), "what changed").close("span").close("p");
    }
    html.close("div");
    if let Some(parent) = &parent {
        let steps = parent.steps(ended_by(at))?;
        let within = (parent.created_at(), at.created_at());
        TaskList { of: parent, steps: &steps, writes: &before, within, is_past: true }.add_to(screen, &mut html)?;
    } else {
        html.classed("p", "dim", "The first checkpoint of its thread has no input.");
    }
    if !at.record().tasks.is_empty() {
        html.open("div", &[("class", "section")]).element("h2", &[], "Due after it").close("div");
        let steps = at.steps(None)?;
        let within = (at.created_at(), at.store().now());
        TaskList { of: at, steps: &steps, writes: &pending, within, is_past: false }.add_to(screen, &mut html)?;
    }
    html.close("section").open("aside", &[("class", "rail"), ("aria-label", "Changes")]);
    changes(screen, &mut html, at, &changed);
    html.close("aside").close("div");
    Ok(View::new(format!("{} step {}", name(&info), at.step()), html).live(thread.id().as_str()).into())
}

/// Adds the channels that changed, and the metadata.
fn changes(screen: &Screen<'_>, html: &mut Html, at: &Snapshot, changed: &[ChangedChannel]) {
    html.open("div", &[("class", "state")]).open("header", &[]).element("h2", &[], "Changed");
    html.time("dim small", at.store().now(), at.created_at()).close("header");
    let shown: Vec<_> = changed.iter().filter(|step| shows_internal(screen) || !is_internal(&step.channel)).collect();
    if shown.is_empty() {
        html.classed("p", "chan dim", "no channel");
    }
    for step in shown {
        html.open("div", &[("class", "chan")]).open("p", &[]);
        let address = address::state(&address::point(at), [&*step.channel]);
        html.element("a", &[("href", &address), ("class", "strong"), ("dir", "auto")], &shortened(&step.channel, 60));
        // The text of a value that is stored whole is the name alone.
        let change = Some(step.text()).filter(|text| *text != *step.channel).unwrap_or_default();
        html.classed("span", "dim cut", &change).classed("span", "by", &size(step.bytes)).close("p").close("div");
    }
    let metadata = Value::from(metadata(at));
    if metadata.as_map().is_some_and(|map| !map.is_empty()) {
        html.open("details", &[("class", "chan")]).open("summary", &[]).classed("span", "strong", "metadata");
        html.classed("span", "dim", &kind(&metadata)).close("summary");
        pane::tree(html, &metadata, &mut PANE_NODES_MAX.clone(), 0);
        html.close("details");
    }
    internal_link(screen, html, at);
    html.close("div");
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
    html.within("p", &[("class", "chan dim small")], |html| _ = html.link(&address, text));
}

/// Returns whether the address asks for internal channels.
fn shows_internal(screen: &Screen<'_>) -> bool {
    screen.query.get("internal").is_some()
}

/// The tasks of a superstep and the calls made in it.
struct TaskList<'a> {
    /// The checkpoint at which the tasks were due.
    of: &'a Snapshot,
    steps: &'a [StepInfo],
    writes: &'a [WriteRecord],
    within: (Timestamp, Timestamp),
    is_past: bool,
}

impl TaskList<'_> {
    /// Adds a row for each task and then for each call: what failed first, then in their order.
    fn add_to(&self, screen: &Screen<'_>, html: &mut Html) -> Result<(), Refusal> {
        let mut lanes = lanes(self.steps);
        // A call stands below its task.
        lanes.sort_by_key(|(step, _)| (step.is_call, step.error_text().is_empty()));
        let (from, to) = self.within;
        let has_bars = lanes.iter().any(|(_, spans)| !spans.is_empty());
        let to = lanes.iter().flat_map(|(_, spans)| spans).map(|span| span.to).fold(to, Timestamp::max);
        let scale = to.as_micros().saturating_sub(from.as_micros()).max(1);
        html.open("ol", &[("class", "tasks")]);
        if has_bars {
            html.open("li", &[("class", "colrow dim small"), ("aria-hidden", "true")]);
            html.text(&format!("times within {}", span(scale))).close("li");
        }
        let is_open = lanes.len() <= OPEN_TASKS_MAX;
        for (step, spans) in lanes.iter().take(STEP_TASKS_MAX) {
            self.task(screen, html, step, spans, scale, is_open)?;
        }
        html.close("ol");
        if lanes.len() > STEP_TASKS_MAX {
            html.classed("p", "dim", &format!("{} more", lanes.len() - STEP_TASKS_MAX));
        }
        Ok(())
    }

    fn task(
        &self,
        screen: &Screen<'_>,
        html: &mut Html,
        step: &StepInfo,
        spans: &[StepSpan],
        scale: i64,
        is_open: bool,
    ) -> Result<(), Refusal> {
        let error = Some(step.error_text()).filter(|error| !error.is_empty());
        html.open("li", &[("class", if step.is_call { "call-of" } else { "" }), ("data-row", "")]);
        html.open("details", if is_open || error.is_some() { &[("open", "")] } else { &[] }).open("summary", &[]);
        html.open("span", &[("class", "what cut")]).open("b", &[]).isolated(&shortened(&step.name, 60)).close("b");
        let state = match step.state {
            // The log does not tell a task that runs from one that is due.
            StepState::Running => "due",
            state => state.as_str(),
        };
        let class = match step.state {
            StepState::Failed => "failed",
            StepState::Interrupted => "waits",
            _ => "dim",
        };
        html.text(" ").classed("span", class, state);
        let failed = spans.iter().filter(|span| span.has_failed).count() as u64;
        if failed > 0 {
            html.text(", ").classed("span", "failed", &format!("{} failed", count(failed, "attempt")));
        }
        html.close("span");
        self.bar(html, spans, scale);
        html.close("summary");
        // A screen has a limit of bytes. Its rows are short; the values past the limit are in its JSON.
        if html.len() < STEP_BYTES_MAX {
            self.content(screen, html, step, error)?;
        }
        html.close("details").close("li");
        Ok(())
    }

    fn bar(&self, html: &mut Html, spans: &[StepSpan], scale: i64) {
        let micros = |span: &StepSpan| span.to.as_micros().saturating_sub(span.from.as_micros()).max(0);
        if spans.is_empty() {
            html.literal("<span></span><span class=\"num\"></span>");
            return;
        }
        html.open("svg", &[("class", "bar"), ("aria-hidden", "true")]);
        let begin = self.within.0.as_micros();
        let part = |time: Timestamp| time.as_micros().saturating_sub(begin) as f64 / scale as f64;
        for span in spans.iter().take(WRITES_MAX) {
            plot::bar_part(html, if span.has_failed { "bad" } else { "slow" }, part(span.from), part(span.to));
        }
        html.close("svg").classed("span", "num", &span(spans.iter().map(micros).sum()));
    }

    /// Adds the error, the writes and the result of a task.
    fn content(
        &self,
        screen: &Screen<'_>,
        html: &mut Html,
        step: &StepInfo,
        error: Option<&str>,
    ) -> Result<(), Refusal> {
        let task = self.of.record().tasks.iter().find(|task| task.id == step.task);
        if let Some(error) = error.filter(|_| self.is_past || step.is_call) {
            html.element("pre", &[("class", "error"), ("dir", "auto")], &shortened(error, 4_000));
        }
        if step.is_call {
            if let Some(result) = &step.result {
                write(html, "result", result, false);
            }
        } else {
            let is_shown = |write: &&WriteRecord| shows_internal(screen) || !is_internal(&write.channel);
            let own: Vec<&WriteRecord> =
                self.writes.iter().filter(|write| write.task == step.task).filter(is_shown).collect();
            for of in own.iter().take(WRITES_MAX) {
                write(html, &of.channel, &of.to_value()?, of.index == SpecialWrite::Error.index());
            }
            if own.len() > WRITES_MAX {
                html.classed("p", "dim", &format!("{} more", own.len() - WRITES_MAX));
            }
            if own.is_empty() {
                html.classed("p", "chan dim", "no write");
            }
        }
        html.open("p", &[("class", "facts")]);
        html.within("span", &[], |html| _ = html.text("task ").classed("span", "id", &step.task.to_string()));
        if let Some(TaskKind::Push { index }) = task.map(|task| &task.kind) {
            html.element("span", &[], &format!("send {index}"));
        }
        if step.attempts.len() > 1 {
            html.element("span", &[], &count(step.attempts.len() as u64, "attempt"));
        }
        html.close("p");
        Ok(())
    }
}

/// Returns the word for a channel of the executor that the user writes.
fn word(channel: &str) -> &str {
    match channel {
        "__return__" | "__end__" => "result",
        channel if channel == SpecialWrite::Error.channel() => "error",
        channel if channel == SpecialWrite::Interrupt.channel() => "asks",
        channel => channel,
    }
}

/// Adds a write: the channel and the value, of a list its first items.
fn write(html: &mut Html, channel: &str, value: &Value, is_error: bool) {
    html.open("div", &[("class", "chan")]).open("p", &[]);
    html.element("span", &[("class", "strong"), ("dir", "auto")], &shortened(word(channel), 60));
    match value {
        Value::List(items) if channel == SpecialWrite::Interrupt.channel() => {
            html.close("p").open("div", &[("class", "items")]);
            for item in items.iter().take(8) {
                html.element("p", &[("dir", "auto")], &interrupt(item.get("value").unwrap_or(item)));
            }
            html.close("div");
        }
        Value::Str(text) if is_error => {
            html.close("p");
            html.element("pre", &[("class", "error"), ("dir", "auto")], &shortened(text, 4_000));
        }
        Value::List(items) => {
            html.classed("span", "dim", &count(items.len() as u64, "item")).close("p");
            html.open("div", &[("class", "items")]);
            for item in items.iter().take(8) {
                html.element("p", &[("dir", "auto")], &super::state::line(item));
            }
            html.close("div");
        }
        Value::Map(_) => {
            html.classed("span", "dim", &kind(value)).close("p");
            pane::tree(html, value, &mut PANE_NODES_MAX.clone(), 0);
        }
        value => _ = html.element("code", &[("class", "cut"), ("dir", "auto")], &brief(value)).close("p"),
    }
    html.close("div");
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
