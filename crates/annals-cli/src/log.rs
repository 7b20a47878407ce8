//! `annals log`: the history of a thread, newest first, with the tree of forks at the left. With a filter, a list.
//!
//! JSON: `{"schema": 1, "thread", "head", "checkpoints": [{"checkpoint", "short", "parent", "forked_from", "branch",
//! "ordinal", "step", "source", "created_at", "run", "metadata", "ran": [..], "next": [..], "changed": [{"channel",
//! "added"?, "edited"?}], "status", "questions": [..]}], "more": bool}`. `status` is null but at the ends of branches. `forked_from` is `{"thread", "checkpoint"}` or null;
//! `questions` are the values of open interrupts at the ends of branches.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, Namespace, Timestamp, Value};
use annals::history::{Snapshot, Thread, ThreadStatus, short_ids};
use annals::store::{Source, Store};
use serde_json::{Value as Json, json};

use crate::args;
use crate::changed::{ChannelChange, changed, text};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape};
use crate::pickaxe;
use crate::point::thread;
use crate::tree;
use crate::words::{self, Waits, metadata, tally};

/// A checkpoint of the log.
struct LogRow {
    snapshot: Snapshot,
    short: String,
    ran: Vec<String>,
    changed: Vec<ChannelChange>,
    /// The state of its thread, if it is the end of a branch.
    waits: Option<Waits>,
}

pub(crate) fn run(args: &args::LogArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.list.thread)?;
    if let Some(text) = &args.text {
        return pickaxe::run(&thread, text, args.list.limit, out);
    }
    let filter = LogFilter::of(args, store);
    let (rows, more) =
        if filter.is_empty() { rows(&thread, args.list.limit)? } else { filter.rows(&thread, args.list.limit)? };
    if !out.is_json() {
        match filter.is_empty() {
            true => draw(&thread, &rows, more, args.oneline, out)?,
            false => list(&rows, more, args.oneline, out)?,
        }
        return Ok(u8::from(rows.is_empty()));
    }
    let checkpoints: Vec<Json> = rows.iter().map(document).collect();
    let head = thread.head()?.map(|head| head.id().to_string());
    let thread = thread.id().as_str();
    out.json(&json!({ "schema": 1, "thread": thread, "head": head, "checkpoints": checkpoints, "more": more }))?;
    Ok(u8::from(rows.is_empty()))
}

/// Prints the log of a thread for people.
pub(crate) fn print(thread: &Thread, limit: usize, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let (rows, more) = rows(thread, limit)?;
    draw(thread, &rows, more, oneline, out)
}

/// Reads the newest checkpoints; the flag says whether older ones exist.
fn rows(thread: &Thread, limit: usize) -> Result<(Vec<LogRow>, bool), CommandFailure> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    // One more than is shown: the short id of the last row must differ from it.
    let mut all: Vec<Snapshot> = thread.history()?.take(limit.saturating_add(1)).collect::<Result<_, _>>()?;
    let ids: Vec<CheckpointId> = all.iter().map(Snapshot::id).collect();
    let more = all.len() > limit;
    all.truncate(limit);
    let only_root = thread.store().backend().namespaces(thread.id())?.iter().all(Namespace::is_root);
    let shorts = if only_root {
        short_ids(&ids, thread.store().now())
    } else {
        all.iter().map(Snapshot::short_id).collect::<Result<_, _>>()?
    };
    let parents: HashSet<CheckpointId> = all.iter().filter_map(|snapshot| snapshot.record().parent).collect();
    // Most parents are in the list already.
    let known: HashMap<CheckpointId, Snapshot> = all.iter().map(|snapshot| (snapshot.id(), snapshot.clone())).collect();
    let mut rows = Vec::with_capacity(all.len());
    for (snapshot, short) in all.into_iter().zip(shorts) {
        let is_end = !parents.contains(&snapshot.id());
        let parent = match snapshot.record().parent.and_then(|parent| known.get(&parent)) {
            Some(parent) => Some(parent.clone()),
            None => words::stored_parent(&snapshot)?,
        };
        rows.push(LogRow::of(snapshot, parent.as_ref(), short, is_end)?);
    }
    Ok((rows, more))
}

/// The checkpoints that are shown.
struct LogFilter<'a> {
    node: Option<&'a str>,
    channel: Option<&'a str>,
    since: Option<Timestamp>,
}

impl<'a> LogFilter<'a> {
    fn of(args: &'a args::LogArgs, store: &Store) -> Self {
        let since = args.since.map(|since| since.at(store.now()));
        Self { node: args.node.as_deref(), channel: args.channel.as_deref(), since }
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.channel.is_none() && self.since.is_none()
    }

    /// Reads the newest checkpoints that pass; the flag says whether others do.
    fn rows(&self, thread: &Thread, limit: usize) -> Result<(Vec<LogRow>, bool), CommandFailure> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut rows = Vec::new();
        for snapshot in thread.history()? {
            let snapshot = snapshot?;
            // Imported checkpoints are in the order of the import, not of their timestamps.
            if self.since.is_some_and(|since| snapshot.created_at() < since) {
                continue;
            }
            let parent = words::stored_parent(&snapshot)?;
            let ran = words::ran(&snapshot, parent.as_ref());
            let has_channel = |channel: &str| {
                let updated = thread.store().backend().state(snapshot.point())?.updated;
                Ok::<_, CommandFailure>(updated.iter().any(|name| &**name == channel))
            };
            let passes = self.node.is_none_or(|node| ran.iter().any(|name| name == node))
                && self.channel.map_or(Ok(true), has_channel)?;
            if passes && rows.len() == limit {
                return Ok((rows, true));
            }
            if passes {
                let short = snapshot.short_id()?;
                rows.push(LogRow::of(snapshot, parent.as_ref(), short, false)?);
            }
        }
        Ok((rows, false))
    }
}

/// Prints rows without the tree, as checkpoints between them are not shown.
fn list(rows: &[LogRow], more: bool, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(oneline)).collect();
    for (row, line) in rows.iter().zip(columns(&cells)) {
        out.line(line.replacen(&row.short, &out.id(&row.short), 1))?;
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    if rows.is_empty() {
        output::note("no checkpoint passes the filter");
    }
    Ok(())
}

fn draw(thread: &Thread, rows: &[LogRow], more: bool, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let head = thread.head()?.map(|head| head.id());
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(oneline)).collect();
    let mut drawn = Vec::with_capacity(rows.len());
    for (row, line) in rows.iter().zip(columns(&cells)) {
        // Painted after the columns are laid, or the colour would count as width.
        let mut lines = vec![line.replacen(&row.short, &out.id(&row.short), 1)];
        lines.extend(row.extras(oneline)?.iter().map(|extra| format!("   {}", out.open(extra))));
        let mark = if Some(row.snapshot.id()) == head { '@' } else { 'o' };
        drawn.push(tree::TreeRow { id: row.snapshot.id(), parent: row.snapshot.record().parent, mark, lines });
    }
    let older = more.then(|| out.dim("(older ones: -n 0 shows all)"));
    for line in tree::draw(&drawn, older.as_deref()) {
        out.line(line)?;
    }
    Ok(())
}

impl LogRow {
    fn of(snapshot: Snapshot, parent: Option<&Snapshot>, short: String, is_end: bool) -> Result<Self, CommandFailure> {
        Ok(Self {
            ran: words::ran(&snapshot, parent),
            changed: changed(&snapshot, parent)?,
            waits: if is_end { Some(Waits::of(&snapshot)?) } else { None },
            snapshot,
            short,
        })
    }

    fn cells(&self, oneline: bool) -> Vec<String> {
        let step = format!("step {}", self.snapshot.step());
        let made = self.made();
        let changes = cut(&text(&self.changed), 60).into_owned();
        if oneline {
            return vec![self.short.clone(), step, made, changes];
        }
        let age = output::ago(self.snapshot.store().now(), self.snapshot.created_at());
        let source = self.snapshot.source().to_string();
        vec![self.short.clone(), step, source, made, age, changes]
    }

    /// Returns the cause of the checkpoint: its nodes, or its source.
    fn made(&self) -> String {
        match self.snapshot.source() {
            Source::Loop => tally(self.ran.iter().map(String::as_str)),
            Source::Input => "(input)".into(),
            Source::Update => "(edited)".into(),
            Source::Fork => "(fork)".into(),
        }
    }

    /// Returns the lines below the first: the source of a fork, and the state of an open branch.
    fn extras(&self, oneline: bool) -> Result<Vec<String>, CommandFailure> {
        let mut extras = Vec::new();
        if let (Some(from), false) = (&self.snapshot.record().forked_from, oneline) {
            let parent = words::stored_parent(&self.snapshot)?;
            let id =
                parent.as_ref().map(Snapshot::short_id).transpose()?.unwrap_or_else(|| from.checkpoint.to_string());
            extras.push(format!("forked from {}@{id}", escape(from.thread.as_str())));
        }
        if let Some(waits) = self.waits.as_ref().filter(|waits| waits.status != ThreadStatus::Done) {
            extras.push(waits.text(90));
        }
        Ok(extras)
    }
}

fn document(row: &LogRow) -> Json {
    let record = row.snapshot.record();
    let interrupts = row.waits.as_ref().map_or(&[][..], Waits::interrupts);
    let from = record.forked_from.as_ref();
    json!({
        "checkpoint": row.snapshot.id().to_string(),
        "short": row.short,
        "parent": record.parent.map(|parent| parent.to_string()),
        "forked_from": from.map(|from| json!({
            "thread": from.thread.as_str(),
            "checkpoint": from.checkpoint.to_string(),
        })),
        "branch": record.branch,
        "ordinal": record.ordinal,
        "step": record.step,
        "source": record.source.as_str(),
        "created_at": record.created_at.to_string(),
        "run": record.run.map(|run| run.to_string()),
        "metadata": metadata(&row.snapshot),
        "ran": row.ran,
        "next": row.snapshot.next().collect::<Vec<_>>(),
        "changed": row.changed.iter().map(ChannelChange::json).collect::<Vec<_>>(),
        "status": row.waits.as_ref().map(|waits| waits.status.as_str()),
        "questions": interrupts.iter().map(Value::to_json).collect::<Vec<_>>(),
    })
}
