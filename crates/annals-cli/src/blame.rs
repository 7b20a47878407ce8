//! `annals blame`: the checkpoint, the step and the node that wrote each channel, each item of a list, or one value.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "path"?, "written": [{"channel", "position"?, "id"?, "value"?, "by":
//! {"thread", "checkpoint", "short", "ordinal", "back", "step", "source", "created_at", "node", "task"}}]}`. `back` is
//! the number of checkpoints between the write and the point.

use std::collections::HashMap;

use annals::history::{Blame, Snapshot};
use annals::store::{CheckpointRef, ItemRange, Store};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, escape};
use crate::path::ValuePath;
use crate::point::resolve;
use crate::words::{self, brief, item};

/// A written value.
struct BlamedValue {
    channel: String,
    position: Option<u64>,
    id: Option<String>,
    /// The value, shown for items and parts.
    value: Option<Json>,
    blame: Blame,
}

pub(crate) fn run(args: &args::BlameArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let at = resolve(store, &args.point)?;
    let written = match &args.path {
        None => channels(&at)?,
        Some(text) => {
            let path = ValuePath::read(&at, text)?;
            let limit = if args.limit == 0 { usize::MAX } else { args.limit };
            match path.is_channel() && at.len(&path.channel)? > 0 {
                true => items(&at, &path.channel, limit)?,
                false => vec![part(&at, &path, text)?],
            }
        }
    };
    let mut shorts = ShortIds::of(&at);
    if !out.is_json() {
        print(&at, &written, &mut shorts, out)?;
        return Ok(0);
    }
    let mut documents = Vec::with_capacity(written.len());
    for written in &written {
        documents.push(json!({
            "channel": written.channel,
            "position": written.position,
            "id": written.id,
            "value": written.value,
            "by": blame_json(&at, &written.blame, &mut shorts)?,
        }));
    }
    let mut document = words::place(&at);
    document["path"] = json!(args.path);
    document["written"] = Json::Array(documents);
    out.json(&words::with_schema(document))?;
    Ok(0)
}

fn channels(at: &Snapshot) -> Result<Vec<BlamedValue>, CommandFailure> {
    let known = at.channels()?;
    let blames = at.blames()?.into_iter().filter(|(channel, _)| known.contains(channel));
    let written = |(channel, blame): (std::sync::Arc<str>, Blame)| BlamedValue {
        channel: channel.to_string(),
        position: None,
        id: None,
        value: None,
        blame,
    };
    Ok(blames.map(written).collect())
}

/// Returns the writers of the last items of a list.
fn items(at: &Snapshot, channel: &str, limit: usize) -> Result<Vec<BlamedValue>, CommandFailure> {
    let mut places = Vec::new();
    at.visit_items(channel, ItemRange::Tail(limit), |row| {
        places.push((row.position, row.payload.index.and_then(|index| index.id.map(str::to_owned))));
        Ok(())
    })?;
    let values = at.tail(channel, limit)?;
    debug_assert_eq!(places.len(), values.len(), "one read finds the items of the other");
    let mut all = Vec::with_capacity(places.len());
    for ((position, id), value) in places.into_iter().zip(values) {
        let Some(blame) = at.blame(channel).position(position)? else { continue };
        let (channel, value) = (channel.to_owned(), Some(value.to_json()));
        all.push(BlamedValue { channel, position: Some(position), id, value, blame });
    }
    Ok(all)
}

fn part(at: &Snapshot, path: &ValuePath, text: &str) -> Result<BlamedValue, CommandFailure> {
    let channel = at.blame(&path.channel);
    let blame = match &path.item {
        Some(id) => channel.item(id)?,
        None if path.members.is_empty() => channel.value()?,
        None => channel.path(&path.pointer())?,
    };
    let value = path.value(at)?.map(|value| value.to_json());
    match blame.zip(value) {
        Some((blame, value)) => {
            let (channel, id) = (path.channel.clone(), path.item.clone());
            Ok(BlamedValue { channel, position: None, id, value: Some(value), blame })
        }
        None => Err(CommandFailure::not_found("path_not_found", format!("{text} names no value at this point"))),
    }
}

fn print(at: &Snapshot, all: &[BlamedValue], shorts: &mut ShortIds, out: &mut Printer) -> Result<(), CommandFailure> {
    let now = at.store().now();
    let mut rows = Vec::with_capacity(all.len());
    for written in all {
        let place = match (written.position, &written.value) {
            (Some(position), _) => position.to_string(),
            (None, _) => escape(&written.channel).into_owned(),
        };
        rows.push(vec![
            shorts.of_point(&written.blame.point)?,
            format!("step {}", written.blame.step),
            node(&written.blame),
            output::ago(now, written.blame.created_at),
            place,
            written.value.as_ref().map(if written.position.is_some() { item } else { brief }).unwrap_or_default(),
        ]);
    }
    for (row, line) in rows.iter().zip(columns(&rows)) {
        out.row(line.replacen(&row[0], &out.id(&row[0]), 1))?;
    }
    Ok(())
}

/// Returns the node of a write, or its cause if it was not a node.
pub(crate) fn node(blame: &Blame) -> String {
    match &blame.node {
        Some(node) => words::node(node),
        None => format!("({})", blame.source),
    }
}

/// Returns a write as JSON.
pub(crate) fn blame_json(at: &Snapshot, blame: &Blame, shorts: &mut ShortIds) -> Result<Json, CommandFailure> {
    Ok(json!({
        "thread": blame.point.thread.as_str(),
        "checkpoint": blame.point.checkpoint.to_string(),
        "short": shorts.of_point(&blame.point)?,
        "ordinal": blame.ordinal,
        "back": at.record().ordinal.saturating_sub(blame.ordinal),
        "step": blame.step,
        "source": blame.source.as_str(),
        "created_at": blame.created_at.to_string(),
        "node": blame.node,
        "task": blame.task.map(|task| task.to_string()),
    }))
}

/// The short ids of checkpoints, each looked up once.
pub(crate) struct ShortIds {
    at: Snapshot,
    known: HashMap<CheckpointRef, String>,
}

impl ShortIds {
    pub(crate) fn of(at: &Snapshot) -> Self {
        Self { at: at.clone(), known: HashMap::new() }
    }

    /// Returns the short id of a checkpoint, with its thread if that is another one.
    pub(crate) fn of_point(&mut self, point: &CheckpointRef) -> Result<String, CommandFailure> {
        if let Some(short) = self.known.get(point) {
            return Ok(short.clone());
        }
        let thread = self.at.store().thread(point.thread.as_str())?.with_namespace(point.namespace.clone());
        let short = thread.at(point.checkpoint)?.short_id()?;
        let short = match point.thread == self.at.point().thread {
            true => short,
            false => format!("{}@{short}", escape(point.thread.as_str())),
        };
        self.known.insert(point.clone(), short.clone());
        Ok(short)
    }
}
