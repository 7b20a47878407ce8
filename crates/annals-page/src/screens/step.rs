//! The superstep that made a checkpoint: its tasks with their writes, attempts and errors, and the changed channels.

use annals::base::{TaskId, Value};
use annals::history::Snapshot;
use annals::store::{TaskKind, TaskRecord, WriteRecord};
use serde_json::{Value as Json, json};

use super::thread::{heading, name, tabs};
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address::{self, point_text};
use crate::changed::{ChannelStep, changed};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::WRITES_MAX;
use crate::plot;
use crate::words::{ago, brief, made, metadata, place, shortened, span, stored_parent};

/// Checkpoints of a lineage that a search for a step reads.
const SEARCHED: usize = 1_000;
/// The position of the write that holds the attempt of a task.
const ATTEMPT: i32 = -8;

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
        return Ok(Shown::Json(document));
    }
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let (info, tree) = (thread.info()?, BranchTree::read(&thread)?);
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "step");
    html.element("h2", &[], &format!("step {}: {}", at.step(), made(at, parent.as_ref())));
    let mut micros = None;
    if let Some(parent) = &parent {
        micros = Some(at.created_at().as_micros().saturating_sub(parent.created_at().as_micros()).max(0));
        html.within("p", &[], |html| {
            html.text("input: the state at ").link(&address::point(parent), &format!("step {}", parent.step()));
            html.text(&format!(" · {} · ", ago(at.store().now(), at.created_at())));
            html.link(&address::diff(&point_text(parent), &point_text(at)), "difference");
        });
        tasks(&mut html, parent, &before, micros)?;
    }
    html.element("h2", &[], "changed");
    html.open("ul", &[]);
    for step in &changed {
        html.open("li", &[("dir", "auto")]);
        html.link(&address::state(&address::point(at), [&*step.channel]), &shortened(&step.channel, 80));
        html.text(&format!(" {} · {}", step.text(), crate::words::size(step.bytes))).close("li");
    }
    html.close("ul");
    if !at.record().tasks.is_empty() {
        html.element("h2", &[], "due after it");
        tasks(&mut html, at, &pending, None)?;
    }
    html.element("h2", &[], "metadata");
    let metadata = Value::from(metadata(at));
    crate::values::ValueTree::add_to(&mut html, &metadata, &format!("{}/state", address::point(at)));
    debug_assert!(micros.is_none() == parent.is_none());
    Ok(View::new(format!("{} step {}", name(&info), at.step()), html).live(thread.id().as_str()).into())
}

/// Returns the checkpoint of a lineage that has a step.
fn with_step(screen: &Screen<'_>, at: &Snapshot, step: i64) -> Result<Snapshot, Refusal> {
    let absent = || Refusal::not_found(format!("the lineage of this point has no step {step} within reach"));
    let back = u64::try_from(at.step().saturating_sub(step)).map_err(|_| absent())?;
    // Most lineages have a checkpoint for each step.
    if let Some(ordinal) = at.record().ordinal.checked_sub(back)
        && let [Some(record)] = &at.store().backend().ancestors(at.point(), &[ordinal])?[..]
        && record.step == step
    {
        return screen.point(&format!(
            "{}@{}",
            address::thread_text(record.point.thread.as_str()),
            record.point.checkpoint
        ));
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

/// Returns the number of the attempt of each task of a checkpoint that stored one, counted from 1.
pub(super) fn attempts(at: &Snapshot) -> Result<Vec<(String, i64)>, Refusal> {
    let mut found = Vec::new();
    let writes = at.writes()?;
    for task in &at.record().tasks {
        let stored = writes.iter().find(|write| write.task == task.id && write.index == ATTEMPT);
        if let Some(write) = stored {
            let number = write.to_value()?.as_list().and_then(|parts| parts.first()?.as_int()).unwrap_or(0);
            found.push((task.name.to_string(), number.saturating_add(1)));
        }
    }
    Ok(found)
}

/// Adds the tasks of a checkpoint as lanes, each with its writes.
fn tasks(html: &mut Html, of: &Snapshot, writes: &[WriteRecord], micros: Option<i64>) -> Result<(), Refusal> {
    html.open("div", &[("class", "lanes")]);
    for task in &of.record().tasks {
        let state = state(task.id, writes, micros.is_some());
        let class = if state == "failed" { "error" } else { state };
        html.open("div", &[("class", "lane")]).open("h3", &[("dir", "auto")]);
        html.text(&shortened(&task.name, 60)).literal(" ").classed("span", class, state);
        if let TaskKind::Push { index } = &task.kind {
            html.literal(" ").classed("span", "dim", &format!("send {index}"));
        }
        html.close("h3");
        if let Some(micros) = micros {
            // The log stores when a superstep ended, not when each of its tasks did.
            plot::share(html, 1.0, &span(micros));
            html.literal(" ").classed("span", "dim", &format!("within {}", span(micros)));
        }
        task_writes(html, task, writes)?;
        html.classed("p", "dim", &format!("task {}", task.id)).close("div");
    }
    html.close("div");
    Ok(())
}

fn task_writes(html: &mut Html, task: &TaskRecord, writes: &[WriteRecord]) -> Result<(), Refusal> {
    let own: Vec<&WriteRecord> = writes.iter().filter(|write| write.task == task.id).collect();
    html.open("table", &[("class", "rows")]).open("tbody", &[]);
    for write in own.iter().take(WRITES_MAX) {
        let value = write.to_value()?;
        let class = if write.index == -1 { "error" } else { "" };
        html.open("tr", &[]).element("th", &[("scope", "row"), ("dir", "auto")], &shortened(&write.channel, 60));
        html.open("td", &[("class", class), ("dir", "auto")]);
        match &value {
            Value::Str(text) if write.index == -1 => _ = html.element("pre", &[], &shortened(text, 4_000)),
            Value::List(items) => {
                for item in items.iter().take(8) {
                    html.text(&super::state::line(item)).literal("<br>");
                }
            }
            value => _ = html.text(&brief(value)),
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
