//! `annals rewind`, `undo`, `redo`, `operations`, `branch` and `switch`: the head of a thread, its branches, and the
//! log of what changed them. Nothing is deleted by any of them.
//!
//! JSON of `operations`: `{"schema": 1, "thread", "operations": [{"operation", "at", "actor", "changes"?: [{"field",
//! "before", "after"}], "checkpoints"?, "first"?, "last"?, "run"?}], "more": bool}`; of `branch`: `{"schema": 1,
//! "thread", "branches": [{"name", "checkpoint", "short", "current", "abandoned", "step", "created_at"}], "more":
//! bool}`; of the others: `{"schema": 1, "thread", "operation": {..} | null, "head": checkpoint | null}`.

use annals::history::{Operation, Snapshot, Thread, ThreadBranch};
use annals::store::Store;
use annals::store::operation::{OperationChange, OperationField, OperationValue};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, count, escape};
use crate::point::{resolve, thread};
use crate::words;

/// Moves the head of a thread to a point.
pub(crate) fn rewind(args: &args::RewindArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let at = resolve(store, &args.point)?;
    let thread = store.thread(at.point().thread.as_str())?;
    let before = head(&thread)?;
    thread.rewind_to(&at)?;
    report(&thread, &before, "annals undo moves the head back", out)
}

/// Undoes the newest operation of a thread.
pub(crate) fn undo(args: &args::ThreadArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let undone = thread.undo()?;
    reverted(&thread, undone.as_ref(), "undone", out)
}

/// Makes the operation again that was undone last.
pub(crate) fn redo(args: &args::ThreadArg, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let redone = thread.redo()?;
    reverted(&thread, redone.as_ref(), "done again", out)
}

/// Moves the head of a thread to another branch.
pub(crate) fn switch(args: &args::SwitchArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let before = head(&thread)?;
    thread.switch(&thread.branch(&args.branch)?)?;
    report(&thread, &before, "annals undo switches back", out)
}

/// Lists the branches of a thread, names one, or removes a name.
pub(crate) fn branch(args: &args::BranchArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    match (&args.name, &args.at) {
        (None, _) => {}
        (Some(name), _) if args.remove => thread.remove_branch_name(name)?,
        (Some(name), Some(point)) => thread.name_branch_at(name, &thread.at(point)?)?,
        (Some(name), None) => thread.name_branch(name)?,
    }
    let mut branches = if args.all { thread.all_branches()? } else { thread.branches()? };
    let more = branches.len() > args.most();
    branches.truncate(args.most());
    if out.is_json() {
        let branches = branches.iter().map(branch_json).collect::<Result<Vec<_>, _>>()?;
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "branches": branches, "more": more }))?;
        return Ok(0);
    }
    let mut rows = Vec::with_capacity(branches.len());
    for branch in &branches {
        let last = &branch.last;
        let name = match branch.name.as_deref() {
            Some(name) => escape(name).into_owned(),
            None if branch.is_abandoned() => "(abandoned)".to_owned(),
            None => "(no name)".to_owned(),
        };
        let mark = if branch.is_current { "*" } else { " " };
        let age = output::ago(store.now(), last.created_at());
        rows.push(vec![mark.to_owned(), name, last.short_id()?, format!("step {}", last.step()), age]);
    }
    for line in columns(&rows) {
        out.row(line)?;
    }
    if more {
        out.line(out.dim("(more: -n 0 shows all)"))?;
    }
    Ok(0)
}

fn branch_json(branch: &ThreadBranch) -> Result<Json, CommandFailure> {
    let last = &branch.last;
    Ok(json!({
        "name": branch.name.as_deref(),
        "checkpoint": last.id().to_string(),
        "short": last.short_id()?,
        "current": branch.is_current,
        "abandoned": branch.is_abandoned(),
        "step": last.step(),
        "created_at": last.created_at().to_string(),
    }))
}

/// Lists the operations of a thread, newest first.
pub(crate) fn operations(args: &args::ThreadListArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    let limit = args.most();
    let mut all: Vec<Operation> = thread.operations()?.take(limit.saturating_add(1)).collect::<Result<_, _>>()?;
    let more = all.len() > limit;
    all.truncate(limit);
    if out.is_json() {
        let operations: Vec<Json> = all.iter().map(operation_json).collect();
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "operations": operations, "more": more }))?;
        return Ok(0);
    }
    let mut rows = Vec::with_capacity(all.len());
    for operation in &all {
        let actor = escape(operation.actor().unwrap_or_default()).into_owned();
        let age = output::ago(store.now(), operation.at());
        rows.push(vec![operation.name().to_owned(), age, actor, text(&thread, operation)?]);
    }
    for line in columns(&rows) {
        out.row(line)?;
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    Ok(0)
}

/// Returns the changes of an operation on one line.
fn text(thread: &Thread, operation: &Operation) -> Result<String, CommandFailure> {
    match operation {
        Operation::Commits(group) => {
            let last = thread.at(group.last)?.short_id()?;
            Ok(format!("{} to {last}", count(group.checkpoints, "checkpoint")))
        }
        Operation::Stored(record) => {
            let own = |change: &&OperationChange| change.thread == *thread.id() && change.namespace.is_root();
            let mut changes = Vec::new();
            for change in record.changes.iter().filter(own) {
                let [before, after] = [&change.before, &change.after].map(|value| value_text(thread, value.as_ref()));
                changes.push(format!("{}: {} -> {}", escape(&change.field.to_string()), before?, after?));
            }
            Ok(changes.join(", "))
        }
        _ => Ok(String::new()),
    }
}

fn value_text(thread: &Thread, value: Option<&OperationValue>) -> Result<String, CommandFailure> {
    Ok(match value {
        None => "none".to_owned(),
        Some(OperationValue::Checkpoint(id)) => thread.at(id)?.short_id()?,
        Some(OperationValue::Text(text)) => output::cut(&escape(text), 60).into_owned(),
        Some(_) => "?".to_owned(),
    })
}

fn operation_json(operation: &Operation) -> Json {
    let mut document = json!({
        "operation": operation.name(),
        "at": operation.at().to_string(),
        "actor": operation.actor(),
    });
    let value = |value: &Option<OperationValue>| match value {
        Some(OperationValue::Checkpoint(id)) => json!(id.to_string()),
        Some(OperationValue::Text(text)) => json!(text),
        _ => Json::Null,
    };
    match operation {
        Operation::Commits(group) => {
            document["checkpoints"] = json!(group.checkpoints);
            document["first"] = json!(group.first.to_string());
            document["last"] = json!(group.last.to_string());
            document["run"] = json!(group.run.map(|run| run.to_string()));
        }
        Operation::Stored(record) => {
            let change = |change: &OperationChange| {
                json!({
                    "thread": change.thread.as_str(),
                    "namespace": change.namespace.as_str(),
                    "field": change.field.to_string(),
                    "before": value(&change.before),
                    "after": value(&change.after),
                })
            };
            document["changes"] = record.changes.iter().map(change).collect();
        }
        _ => {}
    }
    document
}

fn head(thread: &Thread) -> Result<Option<Snapshot>, CommandFailure> {
    Ok(thread.head()?)
}

/// Prints the end of a move of the head, and the way back.
fn report(thread: &Thread, before: &Option<Snapshot>, hint: &str, out: &mut Printer) -> Result<u8, CommandFailure> {
    let moved = head(thread)? != *before;
    let operation = match moved {
        true => thread.operations()?.next().transpose()?,
        false => None,
    };
    print(thread, operation.as_ref(), if moved { hint } else { "the head is there already" }, out)?;
    Ok(0)
}

fn reverted(
    thread: &Thread,
    operation: Option<&Operation>,
    verb: &str,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let facts = operation.map(|operation| facts_now(thread, operation)).unwrap_or_default();
    let note = match operation {
        Some(operation) if !facts.is_empty() => format!("{} {verb}; the head stays", operation.name()),
        Some(operation) => format!("{} {verb}", operation.name()),
        None => "nothing to do: the thread has no such operation".to_owned(),
    };
    if !facts.is_empty() && !out.is_json() {
        out.line(format!("{}  {}", escape(thread.id().as_str()), facts.join(", ")))?;
        out.flush()?;
        output::note(note);
        return Ok(0);
    }
    print(thread, operation, &note, out)?;
    Ok(u8::from(operation.is_none()))
}

/// Returns the facts that a stored operation changed, as they are now; none if it moved the head or a branch.
fn facts_now(thread: &Thread, operation: &Operation) -> Vec<String> {
    let Operation::Stored(record) = operation else { return Vec::new() };
    let is_fact = |change: &OperationChange| matches!(change.field, OperationField::Fact(_));
    if !record.changes.iter().all(is_fact) {
        return Vec::new();
    }
    let fields = thread.fields().unwrap_or_default();
    let own = record.changes.iter().filter(|change| change.thread == *thread.id());
    let now = own.map(|change| {
        let value = fields.iter().find(|(field, _)| *field == change.field).map(|(_, value)| value);
        let value = match value {
            Some(OperationValue::Text(text)) => output::cut(&escape(text), 60).into_owned(),
            _ => "none".to_owned(),
        };
        let name = match &change.field {
            OperationField::Fact(name) => name.clone(),
            field => field.to_string(),
        };
        format!("{}: {value}", escape(&name))
    });
    now.collect()
}

fn print(thread: &Thread, operation: Option<&Operation>, note: &str, out: &mut Printer) -> Result<(), CommandFailure> {
    let head = head(thread)?;
    if out.is_json() {
        let operation = operation.map(operation_json);
        let head = head.map(|head| head.id().to_string());
        let thread = thread.id().as_str();
        out.json(&json!({ "schema": 1, "thread": thread, "operation": operation, "head": head }))?;
        return Ok(());
    }
    if let Some(head) = &head {
        let name = escape(thread.id().as_str()).into_owned();
        let age = output::ago(thread.store().now(), head.created_at());
        let state = words::Waits::of(head)?.text(60);
        out.line(format!("{}@{}  step {}  {age}  {state}", name, out.id(&head.short_id()?), head.step()))?;
    }
    out.flush()?;
    output::note(note);
    Ok(())
}
