//! `annals show`: the state at a point, and the node that wrote each channel.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "parent", "step", "source", "created_at", "run", "metadata", "status",
//! "next": [..], "tasks": [{"id", "node"}], "questions": [{"task", "value"}], "partials": [{"channel", "started",
//! "updated", "message"}], "values": {channel: value}, "written_by": {channel: {"node", "back", "ordinal", "version"}},
//! "writes"?: [{"task", "index", "channel", "value"}], "input"?, "result"?, "parent_thread"?: {"thread", "kind",
//! "call"}, "started"?: [{"thread", "kind", "call"}]}`. With PATH: `{"schema": 1, "thread",
//! "checkpoint", "channel", "path", "value", "written_by"}`; with `--messages`: `{"schema": 1, "thread", "checkpoint",
//! "channel", "messages": [..], "folded": {"from", "to", "summary": [..]} | null, "partials": [..]}`. `back` is the
//! number of checkpoints between the write and the point: `POINT~back`. Values are whole.

use std::collections::HashMap;
use std::sync::Arc;

use annals::base::Value;
use annals::history::{Blame, FoldedMessages, Snapshot};
use annals::store::record::ChannelValue;
use annals::store::{ItemRange, Source, Store};
use annals_runs::{SnapshotRuns, ThreadLink, ThreadRuns as _, ThreadStatus};
use annals_view::{LinkedThread, folded_document, folded_messages, link_document, linked_threads};
use serde_json::{Map, Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape, safe_lines};
use crate::path::ValuePath;
use crate::point::resolve;
use crate::words::{self, Waits, brief, item, message};

/// The number of last items of a list that are shown among the other channels.
const ITEMS_SHOWN: usize = 3;
/// The number of characters that are shown of half an answer.
const PARTIAL_CHARS: usize = 2_000;

pub(crate) fn run(args: &args::ShowArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let at = resolve(store, &args.point)?;
    if let Some(n) = args.messages {
        return messages(&at, n, out);
    }
    if let Some(path) = &args.path {
        return part(&at, path, out);
    }
    if out.is_json() {
        document(&at, args.writes, out)?
    } else {
        text(&at, args.writes, out)?
    }
    Ok(0)
}

/// Returns the last write of each channel.
fn written(at: &Snapshot) -> Result<HashMap<Arc<str>, Blame>, CommandFailure> {
    Ok(at.blames()?.into_iter().collect())
}

fn blame_json(at: &Snapshot, blame: &Blame) -> Json {
    let back = at.record().ordinal.saturating_sub(blame.ordinal);
    json!({ "node": blame.node, "back": back, "ordinal": blame.ordinal, "version": blame.version })
}

fn part(at: &Snapshot, text: &str, out: &mut Printer) -> Result<u8, CommandFailure> {
    let path = ValuePath::read(at, text)?;
    let Some(value) = path.value(at)? else {
        return Err(CommandFailure::not_found("path_not_found", format!("{text} names no value at this point")));
    };
    if out.is_json() {
        let channel = at.blame(&path.channel);
        let blame = match &path.item {
            Some(id) => channel.item(id)?,
            None => channel.path(&path.pointer())?,
        };
        let mut document = words::place(at);
        document["channel"] = json!(path.channel);
        document["path"] = json!(text);
        document["value"] = value.to_json();
        document["written_by"] = json!(blame.map(|blame| blame_json(at, &blame)));
        out.json(&words::with_schema(document))?;
        return Ok(0);
    }
    match &value {
        Value::Str(text) => {
            for line in safe_lines(text) {
                out.line(line)?;
            }
        }
        value => out.json(&value.to_json())?,
    }
    Ok(0)
}

fn messages(at: &Snapshot, n: usize, out: &mut Printer) -> Result<u8, CommandFailure> {
    let channel = words::message_channel(at)?;
    let folded = folded_messages(at, &channel)?;
    let mut items: Vec<(u64, Json)> = Vec::new();
    at.visit_items(&channel, ItemRange::Tail(n), |row| {
        items.push((row.position, row.to_value()?.to_json()));
        Ok(())
    })?;
    let halves = at.partials()?.into_iter().filter(|half| *half.channel == *channel);
    let halves: Vec<Json> = halves.map(|half| Value::Map(half.message.to_map()).to_json()).collect();
    if out.is_json() {
        let mut document = words::place(at);
        document["channel"] = json!(&*channel);
        document["messages"] = items.into_iter().map(|(_, item)| item).collect();
        document["folded"] = folded.map_or(Json::Null, |folded| folded_document(&folded));
        document["partials"] = Json::Array(halves);
        out.json(&words::with_schema(document))?;
        return Ok(0);
    }
    let mut after = folded.as_ref().filter(|folded| items.iter().any(|(position, _)| folded.holds(*position)));
    for (position, item) in &items {
        if let Some(folded) = after.take_if(|folded| folded.positions().end <= *position) {
            summary(folded, out)?;
        }
        let mark = match folded.as_ref().is_some_and(|folded| folded.holds(*position)) {
            true => format!(" {}", out.dim("(folded)")),
            false => String::new(),
        };
        out.line(format!("{}{mark}", message(item, 2_000)))?;
    }
    if let Some(folded) = after.filter(|folded| items.last().is_some_and(|(position, _)| folded.holds(*position))) {
        summary(folded, out)?;
    }
    for half in &halves {
        out.line(format!("{} {}", message(half, PARTIAL_CHARS), out.open("(half an answer)")))?;
    }
    Ok(0)
}

/// Writes what a model sees in place of folded messages.
fn summary(folded: &FoldedMessages, out: &mut Printer) -> Result<(), CommandFailure> {
    for item in &folded.summary {
        let said = message(&Value::Map(item.to_map()).to_json(), 2_000);
        out.line(format!("{said} {}", out.dim("(the summary that the model sees)")))?;
    }
    Ok(())
}

fn text(at: &Snapshot, writes: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let record = at.record();
    let when = output::ago(at.store().now(), at.created_at());
    out.line(format!("{}@{}", out.bold(&escape(record.point.thread.as_str())), out.id(&at.id().to_string())))?;
    out.line(format!("  made    {} ({}), {} ({when})", words::step(at), at.source(), at.created_at()))?;
    if let Some(parent) = words::stored_parent(at)? {
        let thread = &parent.point().thread;
        let origin =
            if *thread == record.point.thread { String::new() } else { format!("{}@", escape(thread.as_str())) };
        out.line(format!("  parent  {origin}{}", out.id(&parent.short_id()?)))?;
    }
    let (thread, started) = links(at)?;
    if let Some(link) = thread {
        let call = link.call.map(|call| format!(", call {}", escape(&call))).unwrap_or_default();
        out.line(format!("  {:<7} of {}{call}", link.kind.as_str(), escape(&link.thread)))?;
    }
    for LinkedThread { link, listed, .. } in &started {
        let words = listed.words().map(|words| format!("  {}", cut(&escape(words), 60))).unwrap_or_default();
        out.line(format!("  started {}{words}", escape(&link.thread)))?;
    }
    let waits = Waits::of(at)?;
    let state = match &waits.status {
        ThreadStatus::Done if waits.is_done() => "no task is due".to_owned(),
        ThreadStatus::Done => format!("no task is due, {}", out.open(&waits.text(200))),
        ThreadStatus::Failed(_) | ThreadStatus::Stuck(_) => out.removed(&waits.text(200)),
        _ => out.open(&waits.text(200)),
    };
    out.line(format!("  next    {state}"))?;
    let (input, result) = entry(at)?;
    for (title, value) in [("input", input), ("result", result)] {
        if let Some(value) = value {
            out.line(format!("  {title:<7} {}", brief(&value.to_json())))?;
        }
    }
    for partial in at.partials()? {
        let age = output::ago(at.store().now(), partial.updated);
        let said = message(&Value::Map(partial.message.to_map()).to_json(), PARTIAL_CHARS);
        out.line(format!("  half    {} ({age}): {said}", escape(&partial.channel)))?;
    }
    out.line("")?;
    values(at, out)?;
    if writes {
        out.line("")?;
        out.line(out.dim("writes of its tasks"))?;
        let nodes: HashMap<_, _> = record.tasks.iter().map(|task| (task.id, &*task.name)).collect();
        let mut rows = Vec::new();
        for write in at.writes()? {
            let node = nodes.get(&write.task).copied().unwrap_or("(run)");
            let value = brief(&write.to_value()?.to_json());
            rows.push(vec![words::node(node), escape(&write.channel).into_owned(), value]);
        }
        for line in columns(&rows) {
            out.line(format!("  {line}"))?;
        }
        if rows.is_empty() {
            out.line("  none")?;
        }
    }
    Ok(())
}

/// Returns the link of the thread to its parent, and the threads of helpers that a checkpoint started.
fn links(at: &Snapshot) -> Result<(Option<ThreadLink>, Vec<LinkedThread>), CommandFailure> {
    let parent = at.store().thread(at.point().thread.as_str())?.parent_link()?;
    let mut started = linked_threads(at, usize::MAX, usize::MAX)?;
    started.retain(|linked| linked.started_by == Some(at.id()));
    Ok((parent, started))
}

/// Returns the input and the result of a run of an entrypoint, as far as the point shows them.
fn entry(at: &Snapshot) -> Result<(Option<Value>, Option<Value>), CommandFailure> {
    let result = at.result()?;
    let shows_input = at.source() == Source::Input || result.is_some();
    let input = if shows_input { at.input()? } else { None };
    Ok((input, result))
}

fn values(at: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    let (written, known) = (written(at)?, at.channels()?);
    let state = at.state_record()?;
    let mut rows = vec![["CHANNEL", "WRITTEN BY", "VALUE"].map(String::from).to_vec()];
    for record in state.channels.iter().filter(|record| known.contains(&record.channel)) {
        let by = written.get(&record.channel).map(|blame| {
            let back = at.record().ordinal.saturating_sub(blame.ordinal);
            format!("{} ~{back}", words::node(blame.node.as_deref().unwrap_or("(edited)")))
        });
        let by = by.unwrap_or_default();
        let name = escape(&record.channel).into_owned();
        if record.value != ChannelValue::Items {
            let value = at.get(&record.channel)?.unwrap_or_default();
            rows.push(vec![name, by, brief(&value.to_json())]);
            continue;
        }
        let n = at.len(&record.channel)? as usize;
        let tail = at.tail(&record.channel, ITEMS_SHOWN)?;
        rows.push(vec![name, by, output::count(n, "item") + if n > tail.len() { ", the last:" } else { ":" }]);
        rows.extend(tail.iter().map(|last| vec![String::new(), String::new(), item(&last.to_json())]));
    }
    for (at, line) in columns(&rows).iter().enumerate() {
        out.line(if at == 0 { out.dim(line) } else { line.clone() })?;
    }
    Ok(())
}

fn document(at: &Snapshot, writes: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let record = at.record();
    let by: Map<String, Json> =
        at.blames()?.iter().map(|(channel, blame)| (channel.to_string(), blame_json(at, blame))).collect();
    let tasks = record.tasks.iter().map(|task| json!({ "id": task.id.to_string(), "node": &*task.name }));
    let interrupts = at.interrupts()?;
    let interrupts =
        interrupts.iter().map(|(task, value)| json!({ "task": task.to_string(), "value": value.to_json() }));
    let parent = words::stored_parent(at)?.as_ref().map(words::place);
    let partials = at.partials()?;
    let partials = partials.iter().map(|partial| {
        json!({
            "channel": partial.channel,
            "started": partial.started.to_string(),
            "updated": partial.updated.to_string(),
            "message": Value::Map(partial.message.to_map()).to_json(),
        })
    });
    let mut document = json!({
        "schema": 1,
        "thread": record.point.thread.as_str(),
        "checkpoint": at.id().to_string(),
        "parent": parent,
        "step": at.step(),
        "source": at.source().as_str(),
        "created_at": at.created_at().to_string(),
        "status": Waits::of(at)?.status.as_str(),
        "next": at.next().collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
        "questions": interrupts.collect::<Vec<_>>(),
        "partials": partials.collect::<Vec<_>>(),
        "values": Value::Map(at.values()?).to_json(),
        "written_by": by,
    });
    words::add_origin(&mut document, at);
    if writes {
        let mut all = Vec::new();
        for write in at.writes()? {
            let value = write.to_value()?.to_json();
            let (task, channel) = (write.task.to_string(), &*write.channel);
            all.push(json!({ "task": task, "index": write.index, "channel": channel, "value": value }));
        }
        document["writes"] = Json::Array(all);
    }
    let (thread, started) = links(at)?;
    if let Some(link) = thread {
        document["parent_thread"] = link_document(&link);
    }
    if !started.is_empty() {
        document["started"] = started.iter().map(LinkedThread::document).collect();
    }
    let (input, result) = entry(at)?;
    for (title, value) in [("input", input), ("result", result)] {
        if let Some(value) = value {
            document[title] = value.to_json();
        }
    }
    out.json(&document)?;
    Ok(())
}
