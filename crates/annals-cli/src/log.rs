//! `annals log`: the history of a thread, newest first, with the tree of forks at the left. With a filter, a list. An
//! input and the start of its graph are one row.
//!
//! JSON: `{"schema": 1, "thread", "head", "checkpoints": [{"checkpoint", "short", "parent", "forked_from", "branch",
//! "ordinal", "step", "source", "created_at", "run", "metadata", "ran": [..], "next": [..], "changed": [{"channel",
//! "added"?, "edited"?}], "status", "questions": [..]}], "more": bool}`. `status` is null but at the ends of branches.
//! `forked_from` is `{"thread", "checkpoint"}` or null; `questions` are the values of open interrupts at the ends of
//! branches.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, Namespace, Timestamp, Value};
use annals::history::{Snapshot, Thread, ThreadStatus, short_ids};
use annals::store::{Source, Store};
use annals_graph::graph::START;
use serde_json::{Value as Json, json};

use crate::args;
use crate::changed::{ChannelChange, changed, text};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape, grouped};
use crate::pickaxe;
use crate::point::thread;
use crate::tree;
use crate::words::{self, Waits, metadata, tally};

/// The cells of the changes of a row.
const CHANGES_CELLS: usize = 90;

/// A checkpoint of the log.
struct LogRow {
    snapshot: Snapshot,
    /// The checkpoint to which a lane of the tree leads.
    above: Option<CheckpointId>,
    short: String,
    ran: Vec<String>,
    /// True if the row stands for the input before it as well.
    is_input: bool,
    changed: Vec<ChannelChange>,
    /// The state of its thread, if it is the end of a branch.
    waits: Option<Waits>,
    /// The changes of the text of `-S`, as lines.
    found: Vec<String>,
}

/// The form of the rows.
#[derive(Clone, Copy, Debug)]
struct LogForm {
    oneline: bool,
    stat: bool,
    graph: bool,
}

pub(crate) fn run(args: &args::LogArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.list.thread)?;
    match &args.text {
        Some(text) if !out.is_json() && (args.graph || args.stat) => return of_text(&thread, text, args, out),
        Some(text) => return pickaxe::run(&thread, text, args, out),
        None => {}
    }
    let filter = LogFilter::of(args, store);
    let form = LogForm { oneline: args.oneline, stat: args.stat, graph: args.graph || filter.is_empty() };
    let limit = args.list.most();
    let (rows, more) =
        if filter.is_empty() { rows(&thread, limit, !out.is_json())? } else { filter.rows(&thread, limit)? };
    if !out.is_json() {
        match form.graph {
            true => draw(&thread, &rows, more, form, out)?,
            false => list(&rows, more, form, out)?,
        }
        if rows.is_empty() {
            output::note("no checkpoint passes the filter");
        }
        return Ok(u8::from(rows.is_empty()));
    }
    let checkpoints: Vec<Json> = rows.iter().map(document).collect();
    let head = thread.head()?.map(|head| head.id().to_string());
    let thread = thread.id().as_str();
    out.json(&json!({ "schema": 1, "thread": thread, "head": head, "checkpoints": checkpoints, "more": more }))?;
    Ok(u8::from(rows.is_empty()))
}

/// Prints the checkpoints whose changes make a text appear or disappear, each with its changes below. Those of the
/// thread that this one was forked from are in no history of it: their changes are listed after the others.
fn of_text(thread: &Thread, text: &str, args: &args::LogArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let changes = pickaxe::find(thread, text, args)?;
    // The changes have passed the filter of the arguments.
    let only = Some(changes.iter().map(|change| change.blame.point.checkpoint).collect());
    let filter = LogFilter { node: None, channel: None, since: None, only };
    let limit = args.list.most();
    let (mut rows, more) = if changes.is_empty() { (Vec::new(), false) } else { filter.rows(thread, limit)? };
    let mut elsewhere = Vec::new();
    for change in changes {
        match rows.iter_mut().find(|row| *row.snapshot.point() == change.blame.point) {
            Some(row) => row.found.push(pickaxe::line(&change, out)),
            None => elsewhere.push(change),
        }
    }
    let form = LogForm { oneline: args.oneline, stat: args.stat, graph: args.graph };
    match form.graph {
        true => draw(thread, &rows, more, form, out)?,
        false => list(&rows, more, form, out)?,
    }
    if !more {
        let left = limit.saturating_sub(rows.len());
        let is_cut = elsewhere.len() > left;
        elsewhere.truncate(left);
        pickaxe::list(thread, &elsewhere, args.oneline, out)?;
        if is_cut {
            out.line(out.dim("(older ones: -n 0 shows all)"))?;
        }
    }
    let is_empty = rows.is_empty() && elsewhere.is_empty();
    if is_empty {
        output::note(pickaxe::NO_CHANGE);
    }
    Ok(u8::from(is_empty))
}

/// Prints the log of a thread for people.
pub(crate) fn print(thread: &Thread, limit: usize, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let (rows, more) = rows(thread, limit, true)?;
    draw(thread, &rows, more, LogForm { oneline, stat: false, graph: true }, out)
}

/// The newest checkpoints of a thread.
struct NewestCheckpoints {
    /// The checkpoints, and one more if older ones exist: the short id of the last row must differ from it.
    all: Vec<Snapshot>,
    more: bool,
    /// The inputs that the rows of their starts stand for.
    folded: HashSet<CheckpointId>,
}

impl NewestCheckpoints {
    /// Reads checkpoints until `limit` of them have a row. With `folds` an input and the start of its graph are one
    /// row.
    fn read(thread: &Thread, limit: usize, folds: bool) -> Result<Self, CommandFailure> {
        let head = thread.head()?.map(|head| head.id());
        let mut read = Self { all: Vec::new(), more: false, folded: HashSet::new() };
        let mut children: HashMap<CheckpointId, Vec<Source>> = HashMap::new();
        let mut rows = 0;
        for snapshot in thread.history()? {
            let snapshot = snapshot?;
            let record = snapshot.record();
            if let Some(parent) = record.parent {
                children.entry(parent).or_default().push(record.source);
            }
            let starts = children.get(&snapshot.id()).is_some_and(|sources| sources[..] == [Source::Loop])
                && snapshot.source() == Source::Input
                && record.forked_from.is_none()
                && snapshot.next().all(|node| node == START);
            if folds && starts && Some(snapshot.id()) != head {
                read.folded.insert(snapshot.id());
            } else if rows == limit {
                read.more = true;
            } else {
                rows += 1;
            }
            read.all.push(snapshot);
            if read.more {
                break;
            }
        }
        debug_assert!(rows <= limit, "a log has an end");
        Ok(read)
    }
}

/// Reads the newest checkpoints; the flag says whether older ones exist.
fn rows(thread: &Thread, limit: usize, folds: bool) -> Result<(Vec<LogRow>, bool), CommandFailure> {
    let NewestCheckpoints { mut all, more, folded } = NewestCheckpoints::read(thread, limit, folds)?;
    let ids: Vec<CheckpointId> = all.iter().map(Snapshot::id).collect();
    if more {
        all.pop();
    }
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
    for (snapshot, short) in all.into_iter().zip(shorts).filter(|(snapshot, _)| !folded.contains(&snapshot.id())) {
        let is_end = !parents.contains(&snapshot.id());
        let parent = match snapshot.record().parent.and_then(|parent| known.get(&parent)) {
            Some(parent) => Some(parent.clone()),
            None => words::stored_parent(&snapshot)?,
        };
        let mut row = LogRow::of(snapshot, parent.as_ref(), short, is_end)?;
        if let Some(input) = parent.filter(|parent| folded.contains(&parent.id())) {
            (row.is_input, row.above) = (true, input.record().parent);
        }
        rows.push(row);
    }
    Ok((rows, more))
}

/// The checkpoints that are shown.
struct LogFilter<'a> {
    node: Option<&'a str>,
    channel: Option<&'a str>,
    since: Option<Timestamp>,
    /// Some checkpoints of the thread.
    only: Option<HashSet<CheckpointId>>,
}

impl<'a> LogFilter<'a> {
    fn of(args: &'a args::LogArgs, store: &Store) -> Self {
        let since = args.since.map(|since| since.at(store.now()));
        Self { node: args.node.as_deref(), channel: args.channel.as_deref(), since, only: None }
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.channel.is_none() && self.since.is_none()
    }

    /// Reads the newest checkpoints that pass; the flag says whether others do. The lane of a row leads to the next row
    /// of its lineage.
    fn rows(&self, thread: &Thread, limit: usize) -> Result<(Vec<LogRow>, bool), CommandFailure> {
        let mut rows: Vec<LogRow> = Vec::new();
        // The rows whose lanes lead to a checkpoint, until one of them is shown.
        let mut open: HashMap<CheckpointId, Vec<usize>> = HashMap::new();
        for snapshot in thread.history()? {
            let snapshot = snapshot?;
            let below = open.remove(&snapshot.id()).unwrap_or_default();
            let above = snapshot.record().parent;
            let parent = words::stored_parent(&snapshot)?;
            if !self.passes(&snapshot, parent.as_ref())? {
                below.iter().for_each(|row| rows[*row].above = above);
                above.into_iter().for_each(|above| open.entry(above).or_default().extend(&below));
                continue;
            }
            if rows.len() == limit {
                return Ok((rows, true));
            }
            above.into_iter().for_each(|above| open.entry(above).or_default().push(rows.len()));
            let short = snapshot.short_id()?;
            rows.push(LogRow::of(snapshot, parent.as_ref(), short, false)?);
        }
        Ok((rows, false))
    }

    fn passes(&self, snapshot: &Snapshot, parent: Option<&Snapshot>) -> Result<bool, CommandFailure> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&snapshot.id())) {
            return Ok(false);
        }
        // Imported checkpoints are in the order of the import, not of their timestamps.
        if self.since.is_some_and(|since| snapshot.created_at() < since) {
            return Ok(false);
        }
        if self.node.is_some_and(|node| !words::ran(snapshot, parent).iter().any(|name| name == node)) {
            return Ok(false);
        }
        let Some(channel) = self.channel else { return Ok(true) };
        let updated = snapshot.store().backend().state(snapshot.point())?.updated;
        Ok(updated.iter().any(|name| &**name == channel))
    }
}

/// Prints rows without the tree, as checkpoints between them are not shown.
fn list(rows: &[LogRow], more: bool, form: LogForm, out: &mut Printer) -> Result<(), CommandFailure> {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(form.oneline)).collect();
    for (row, line) in rows.iter().zip(columns(&cells)) {
        out.row(line.replacen(&row.short, &out.id(&row.short), 1))?;
        for line in row.found_lines().chain(row.stats(form, out)) {
            out.row(line)?;
        }
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    Ok(())
}

fn draw(thread: &Thread, rows: &[LogRow], more: bool, form: LogForm, out: &mut Printer) -> Result<(), CommandFailure> {
    let head = thread.head()?.map(|head| head.id());
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(form.oneline)).collect();
    let mut drawn = Vec::with_capacity(rows.len());
    for (row, line) in rows.iter().zip(columns(&cells)) {
        // Painted after the columns are laid, or the colour would count as width.
        let mut lines = vec![line.replacen(&row.short, &out.id(&row.short), 1)];
        lines.extend(row.extras(form.oneline)?.iter().map(|extra| format!("   {}", out.open(extra))));
        lines.extend(row.found_lines());
        lines.extend(row.stats(form, out));
        let mark = if Some(row.snapshot.id()) == head { '@' } else { 'o' };
        drawn.push(tree::TreeRow { id: row.snapshot.id(), parent: row.above, mark, lines });
    }
    let older = more.then(|| out.dim("(older ones: -n 0 shows all)"));
    for line in tree::draw(&drawn, older.as_deref()) {
        out.row(line)?;
    }
    Ok(())
}

impl LogRow {
    fn of(snapshot: Snapshot, parent: Option<&Snapshot>, short: String, is_end: bool) -> Result<Self, CommandFailure> {
        Ok(Self {
            ran: words::ran(&snapshot, parent),
            changed: changed(&snapshot, parent)?,
            waits: if is_end { Some(Waits::of(&snapshot)?) } else { None },
            above: snapshot.record().parent,
            is_input: false,
            found: Vec::new(),
            snapshot,
            short,
        })
    }

    fn cells(&self, oneline: bool) -> Vec<String> {
        let step = format!("step {}", self.snapshot.step());
        let made = self.made();
        let changes = cut(&text(&self.changed), CHANGES_CELLS).into_owned();
        if oneline {
            return vec![self.short.clone(), step, made, changes];
        }
        let age = output::ago(self.snapshot.store().now(), self.snapshot.created_at());
        let source = if self.is_input { Source::Input } else { self.snapshot.source() };
        vec![self.short.clone(), step, source.to_string(), made, age, changes]
    }

    /// Returns the cause of the checkpoint: its nodes, or its source.
    fn made(&self) -> String {
        match self.snapshot.source() {
            Source::Loop if self.is_input => "(input)".into(),
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

    /// Returns the changes of the text of `-S`.
    fn found_lines(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|line| format!("   {line}"))
    }

    /// Returns the lines of `--stat`: the changed channels, and the model calls.
    fn stats(&self, form: LogForm, out: &Printer) -> Vec<String> {
        if !form.stat {
            return Vec::new();
        }
        let mut cells: Vec<Vec<String>> = self.changed.iter().map(|change| change.stat().to_vec()).collect();
        let usage = metadata(&self.snapshot)["usage"].take();
        let calls = usage.as_array().cloned().unwrap_or_else(|| vec![usage]);
        for call in calls.iter().filter(|call| call.is_object()) {
            let tokens = |name: &str| grouped(call[name].as_u64().unwrap_or(0));
            let mut text = format!("{} tokens in, {} out", tokens("input_tokens"), tokens("output_tokens"));
            if let Some(cost) = call["cost_usd"].as_f64() {
                text += &format!(", ${cost:.4}");
            }
            let model = call["model"].as_str().map_or_else(|| "model call".into(), escape);
            cells.push(vec![model.into_owned(), text]);
        }
        for row in &mut cells {
            row[1].insert_str(0, "| ");
        }
        columns(&cells).iter().map(|line| format!("   {}", out.dim(line))).collect()
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
