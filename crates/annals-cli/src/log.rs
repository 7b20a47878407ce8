//! `annals log`: the history of a thread, newest first, with the tree of forks at the left.
//!
//! JSON: `{"schema": 1, "thread", "head", "checkpoints": [{"checkpoint", "short", "parent", "forked_from", "branch",
//! "ordinal", "step", "source", "created_at", "run", "metadata", "ran": [..], "next": [..], "changed": [{"channel",
//! "added"?, "edited"?}], "questions": [..]}], "more": bool}`. `forked_from` is `{"thread", "checkpoint"}` or null;
//! `questions` are the values of open interrupts at the ends of branches.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, Namespace, Value};
use annals::history::{Snapshot, Thread, short_ids};
use annals::store::{Source, Store};
use serde_json::{Value as Json, json};

use crate::args;
use crate::changed::{ChannelChange, changed, text};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape};
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
    let thread = thread(store, &args.thread)?;
    let (rows, more) = rows(&thread, args.limit)?;
    if !out.is_json() {
        draw(&rows, more, args.oneline, out)?;
        return Ok(0);
    }
    let checkpoints: Vec<Json> = rows.iter().map(document).collect();
    let head = rows.first().map(|row| row.snapshot.id().to_string());
    let thread = thread.id().as_str();
    out.json(&json!({ "schema": 1, "thread": thread, "head": head, "checkpoints": checkpoints, "more": more }))?;
    Ok(0)
}

/// Prints the log of a thread for people.
pub(crate) fn print(thread: &Thread, limit: usize, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let (rows, more) = rows(thread, limit)?;
    draw(&rows, more, oneline, out)
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
            None => snapshot.parent()?,
        };
        rows.push(LogRow {
            ran: words::ran(&snapshot, parent.as_ref()),
            changed: changed(&snapshot, parent.as_ref())?,
            waits: if is_end { Some(Waits::of(&snapshot)?) } else { None },
            snapshot,
            short,
        });
    }
    Ok((rows, more))
}

fn draw(rows: &[LogRow], more: bool, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(oneline)).collect();
    let mut drawn = Vec::with_capacity(rows.len());
    for (at, (row, line)) in rows.iter().zip(columns(&cells)).enumerate() {
        // Painted after the columns are laid, or the colour would count as width.
        let mut lines = vec![line.replacen(&row.short, &out.id(&row.short), 1)];
        lines.extend(row.extras(oneline)?.iter().map(|extra| format!("   {}", out.open(extra))));
        let mark = if at == 0 { '@' } else { 'o' };
        drawn.push(tree::TreeRow { id: row.snapshot.id(), parent: row.snapshot.record().parent, mark, lines });
    }
    let older = more.then(|| out.dim("(older ones: -n 0 shows all)"));
    for line in tree::draw(&drawn, older.as_deref()) {
        out.line(line)?;
    }
    Ok(())
}

impl LogRow {
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
            let parent = self.snapshot.parent()?;
            let id =
                parent.as_ref().map(Snapshot::short_id).transpose()?.unwrap_or_else(|| from.checkpoint.to_string());
            extras.push(format!("forked from {}@{id}", escape(from.thread.as_str())));
        }
        if let Some(waits @ (Waits::Due(_) | Waits::Interrupted(_))) = &self.waits {
            extras.push(waits.text(90));
        }
        Ok(extras)
    }
}

fn document(row: &LogRow) -> Json {
    let record = row.snapshot.record();
    let interrupts: &[Value] = if let Some(Waits::Interrupted(interrupts)) = &row.waits { interrupts } else { &[] };
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
        "questions": interrupts.iter().map(Value::to_json).collect::<Vec<_>>(),
    })
}
