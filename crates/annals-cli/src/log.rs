//! `annals log`: the history of a thread, newest first, with the tree of forks at the left. With a filter, a list. An
//! input and the start of its graph are one row.
//!
//! JSON: `{"schema": 1, "thread", "head", "checkpoints": [{"checkpoint", "short", "parent", "forked_from", "branch",
//! "ordinal", "step", "source", "created_at", "run", "metadata", "ran": [..], "next": [..], "changed": [{"channel",
//! "added"?, "edited"?}], "status", "partial", "questions": [..], "started"?: [{"thread", "kind", "call"}]}], "more":
//! bool, "parent_thread"?: {"thread", "kind", "call"}}`. `started` are the threads of helpers; `status` is null but at
//! the ends of branches; `partial` is `{"channel", "words", "updated"}` of a message that is streamed there or was cut
//! off, or null. `forked_from` is `{"thread", "checkpoint"}` or null; `questions` are the values of open interrupts at
//! the ends of branches.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, Namespace, Timestamp};
use annals::history::{Snapshot, Thread, short_ids};
use annals::store::{Source, Store};
use annals_graph::graph::START;
use annals_runs::ThreadRuns as _;
use annals_view::{LinkedThread, ListedCheckpoint, link_document, linked_threads};
use serde_json::json;

use crate::args;
use crate::changed;
use crate::errors::CommandFailure;
use crate::output::{self, ColumnWidths, Printer, columns, cut, escape, grouped};
use crate::pickaxe;
use crate::point::thread;
use crate::tree::{LogTree, TreeRow};
use crate::words::{self, Waits, metadata};

/// Checkpoints that are read before they are printed.
const PAGE: usize = 50;

/// The cells of the changes of a row.
const CHANGES_CELLS: usize = 90;

/// A checkpoint of the log.
struct LogRow {
    listed: ListedCheckpoint,
    /// The checkpoint to which a lane of the tree leads.
    above: Option<CheckpointId>,
    /// True if the row stands for the input before it as well.
    is_input: bool,
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
    let (limit, is_json) = (args.list.most(), out.is_json());
    let mut text = LogText::new(&thread, form)?;
    let head = text.head;
    let (parent, mut started) = (thread.parent_link()?, started(&thread)?);
    if let Some(parent) = parent.as_ref().filter(|_| !is_json) {
        out.line(out.dim(&format!("{} of {}", parent.kind.as_str(), escape(&parent.thread))))?;
    }
    let (mut documents, mut count, mut more) = (Vec::new(), 0, false);
    // A page is printed before the next one is read: a reader such as `head` may end the command after it.
    let mut print = |mut page: LogPage| {
        (count, more) = (count + page.rows.len(), page.more);
        for row in &mut page.rows {
            row.listed.started = started.remove(&row.at().id()).unwrap_or_default();
        }
        let checkpoints = page.rows.iter().map(|row| row.listed.document());
        if !out.is_json() {
            text.print(&page, out)?;
        } else if out.is_lines() {
            out.json(&json!({ "schema": 1, "checkpoints": checkpoints.collect::<Vec<_>>() }))?;
        } else {
            documents.extend(checkpoints);
        }
        Ok(out.flush()?)
    };
    match filter.is_empty() {
        true => history(&thread, head, limit, !is_json, &mut print)?,
        // The lane of a row leads to the next row that passes, which may be on any page.
        false => filter.history(&thread, limit, if form.graph { usize::MAX } else { PAGE }, &mut print)?,
    }
    if !is_json && count == 0 {
        output::note("no checkpoint passes the filter");
    }
    if is_json && !out.is_lines() {
        let head = head.map(|head| head.to_string());
        let id = thread.id().as_str();
        let mut document = json!({ "schema": 1, "thread": id, "head": head, "checkpoints": documents, "more": more });
        if let Some(parent) = &parent {
            document["parent_thread"] = link_document(parent);
        }
        out.json(&document)?;
    }
    Ok(u8::from(count == 0))
}

/// Returns the threads of the helpers of a thread, by the checkpoints of its head's lineage that started them.
fn started(thread: &Thread) -> Result<HashMap<CheckpointId, Vec<LinkedThread>>, CommandFailure> {
    let mut started: HashMap<CheckpointId, Vec<LinkedThread>> = HashMap::new();
    if let Some(head) = thread.head()? {
        for linked in linked_threads(&head, usize::MAX, usize::MAX)? {
            started.entry(linked.started_by.unwrap_or(head.id())).or_default().push(linked);
        }
    }
    Ok(started)
}

/// Prints the checkpoints whose changes make a text appear or disappear, each with its changes below. Those of the
/// thread that this one was forked from are in no history of it: their changes are listed after the others.
fn of_text(thread: &Thread, text: &str, args: &args::LogArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let changes = pickaxe::find(thread, text, args)?;
    // The changes have passed the filter of the arguments.
    let only = Some(changes.iter().map(|change| change.blame.point.checkpoint).collect());
    let filter = LogFilter { node: None, channel: None, since: None, only };
    let limit = args.list.most();
    let mut page = LogPage { rows: Vec::new(), more: false };
    if !changes.is_empty() {
        filter.history(thread, limit, usize::MAX, &mut |found| {
            page = found;
            Ok(())
        })?;
    }
    let mut elsewhere = Vec::new();
    for change in changes {
        match page.rows.iter_mut().find(|row| *row.at().point() == change.blame.point) {
            Some(row) => row.found.push(pickaxe::line(&change, out)),
            None => elsewhere.push(change),
        }
    }
    let form = LogForm { oneline: args.oneline, stat: args.stat, graph: args.graph };
    LogText::new(thread, form)?.print(&page, out)?;
    if !page.more {
        let left = limit.saturating_sub(page.rows.len());
        let is_cut = elsewhere.len() > left;
        elsewhere.truncate(left);
        pickaxe::list(thread, &elsewhere, args.oneline, out)?;
        if is_cut {
            out.line(out.dim("(older ones: -n 0 shows all)"))?;
        }
    }
    let is_empty = page.rows.is_empty() && elsewhere.is_empty();
    if is_empty {
        output::note(pickaxe::NO_CHANGE);
    }
    Ok(u8::from(is_empty))
}

/// Prints the log of a thread for people.
pub(crate) fn print(thread: &Thread, limit: usize, oneline: bool, out: &mut Printer) -> Result<(), CommandFailure> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let mut text = LogText::new(thread, LogForm { oneline, stat: false, graph: true })?;
    history(thread, text.head, limit, true, &mut |page| text.print(&page, out))
}

/// Rows that are printed together.
struct LogPage {
    rows: Vec<LogRow>,
    /// True if older checkpoints are left out after this page.
    more: bool,
}

/// The function that prints a page.
type PrintPage<'a> = &'a mut dyn FnMut(LogPage) -> Result<(), CommandFailure>;

/// A checkpoint of the history with what those after it say.
struct HistoryEntry {
    snapshot: Snapshot,
    /// True if the row of its child stands for it as well.
    is_folded: bool,
    /// True if no checkpoint of the thread has it as parent.
    is_end: bool,
}

/// The history of a thread, newest first, as it is read.
struct HistoryReader<'a> {
    thread: &'a Thread,
    head: Option<CheckpointId>,
    /// True if an input and the start of its graph are one row.
    folds: bool,
    /// True if the thread has no checkpoints but those of its history.
    only_root: bool,
    /// The children of checkpoints that have not come yet.
    children: HashMap<CheckpointId, Vec<Source>>,
    /// The last checkpoint of the page before.
    last: Option<CheckpointId>,
}

/// Prints the newest checkpoints of a thread, page by page. With `folds` an input and the start of its graph are one
/// row.
fn history(
    thread: &Thread,
    head: Option<CheckpointId>,
    limit: usize,
    folds: bool,
    print: PrintPage<'_>,
) -> Result<(), CommandFailure> {
    let mut reader = HistoryReader {
        thread,
        head,
        folds,
        only_root: thread.namespaces()?.iter().all(Namespace::is_root),
        children: HashMap::new(),
        last: None,
    };
    let mut history = thread.history()?;
    let (mut next, mut count) = (history.next().transpose()?, 0);
    while next.is_some() {
        let mut page: Vec<HistoryEntry> = Vec::new();
        // The inputs for which rows of the page may stand as well, once it is full, and the entries that were asked.
        let (mut rows, mut inputs, mut asked) = (0, HashSet::new(), 0);
        while let Some(snapshot) = next.take() {
            let entry = reader.entry(snapshot);
            if rows >= PAGE && folds {
                for entry in &page[asked..] {
                    inputs.extend(reader.input(entry, &page)?);
                }
                asked = page.len();
            }
            if !entry.is_folded && (count + rows == limit || rows >= PAGE && inputs.is_empty()) {
                next = Some(entry.snapshot);
                break;
            }
            rows += usize::from(!entry.is_folded);
            inputs.remove(&entry.snapshot.id());
            reader.pass(&entry.snapshot);
            page.push(entry);
            next = history.next().transpose()?;
        }
        count += rows;
        let more = next.is_some() && count == limit;
        print(LogPage { rows: reader.rows(page, next.as_ref().map(Snapshot::id))?, more })?;
        if more {
            break;
        }
    }
    debug_assert!(count <= limit, "a log has an end");
    Ok(())
}

impl HistoryReader<'_> {
    fn entry(&self, snapshot: Snapshot) -> HistoryEntry {
        let children = self.children.get(&snapshot.id()).map_or(&[][..], Vec::as_slice);
        let is_folded = self.folds && children == [Source::Loop] && self.is_input(&snapshot);
        HistoryEntry { is_folded, is_end: children.is_empty(), snapshot }
    }

    /// Returns whether the row of a child may stand for a checkpoint as well.
    fn is_input(&self, snapshot: &Snapshot) -> bool {
        snapshot.source() == Source::Input
            && snapshot.record().forked_from.is_none()
            && snapshot.next().all(|node| node == START)
            && Some(snapshot.id()) != self.head
    }

    /// Returns the input for which the row of an entry may stand as well, unless it is on the page.
    fn input(&self, entry: &HistoryEntry, page: &[HistoryEntry]) -> Result<Option<CheckpointId>, CommandFailure> {
        let parent = entry.snapshot.record().parent;
        let has_come = |parent| page.iter().any(|entry| Some(entry.snapshot.id()) == parent);
        if entry.snapshot.source() != Source::Loop || has_come(parent) {
            return Ok(None);
        }
        let parent = words::stored_parent(&entry.snapshot)?;
        Ok(parent.filter(|parent| self.is_input(parent)).map(|parent| parent.id()))
    }

    fn pass(&mut self, snapshot: &Snapshot) {
        self.children.remove(&snapshot.id());
        if let Some(parent) = snapshot.record().parent {
            self.children.entry(parent).or_default().push(snapshot.source());
        }
    }

    /// Returns the rows of a page. `next` is the checkpoint after it.
    fn rows(&mut self, page: Vec<HistoryEntry>, next: Option<CheckpointId>) -> Result<Vec<LogRow>, CommandFailure> {
        let store = self.thread.store();
        let shorts = if self.only_root {
            // The short ids at the ends of the page differ from the ids beside them.
            let ids = page.iter().map(|entry| entry.snapshot.id());
            let ids: Vec<CheckpointId> = self.last.into_iter().chain(ids).chain(next).collect();
            short_ids(&ids, store.now()).split_off(usize::from(self.last.is_some()))
        } else {
            page.iter().map(|entry| entry.snapshot.short_id()).collect::<Result<_, _>>()?
        };
        self.last = page.last().map(|entry| entry.snapshot.id()).or(self.last);
        // Most parents are on the page already.
        let known: HashMap<CheckpointId, (Snapshot, bool)> =
            page.iter().map(|entry| (entry.snapshot.id(), (entry.snapshot.clone(), entry.is_folded))).collect();
        let mut rows = Vec::with_capacity(page.len());
        for (entry, short) in page.into_iter().zip(shorts).filter(|(entry, _)| !entry.is_folded) {
            let (parent, is_input) = match entry.snapshot.record().parent.and_then(|parent| known.get(&parent)) {
                Some((parent, is_folded)) => (Some(parent.clone()), *is_folded),
                None => (words::stored_parent(&entry.snapshot)?, false),
            };
            let mut row = LogRow::of(entry.snapshot, parent.clone(), short, entry.is_end)?;
            if let Some(input) = parent.filter(|_| is_input) {
                (row.is_input, row.above) = (true, input.record().parent);
            }
            rows.push(row);
        }
        Ok(rows)
    }
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

    /// Prints the newest checkpoints that pass, in pages of so many rows. The lane of a row leads to the next row of
    /// its lineage on its page.
    fn history(&self, thread: &Thread, limit: usize, page: usize, print: PrintPage<'_>) -> Result<(), CommandFailure> {
        let (mut rows, mut printed): (Vec<LogRow>, usize) = (Vec::new(), 0);
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
            if printed + rows.len() == limit {
                return print(LogPage { rows, more: true });
            }
            if rows.len() == page {
                printed += page;
                open.clear();
                print(LogPage { rows: std::mem::take(&mut rows), more: false })?;
            }
            above.into_iter().for_each(|above| open.entry(above).or_default().push(rows.len()));
            let short = snapshot.short_id()?;
            rows.push(LogRow::of(snapshot, parent, short, false)?);
        }
        print(LogPage { rows, more: false })
    }

    fn passes(&self, snapshot: &Snapshot, parent: Option<&Snapshot>) -> Result<bool, CommandFailure> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&snapshot.id())) {
            return Ok(false);
        }
        // Imported checkpoints are in the order of the import, not of their timestamps.
        if self.since.is_some_and(|since| snapshot.created_at() < since) {
            return Ok(false);
        }
        if self.node.is_some_and(|node| !words::ran(snapshot, parent).contains(&node)) {
            return Ok(false);
        }
        let Some(channel) = self.channel else { return Ok(true) };
        let updated = snapshot.state_record()?.updated;
        Ok(updated.iter().any(|name| &**name == channel))
    }
}

/// The rows of a log for people, of which pages are printed one after the other.
struct LogText {
    form: LogForm,
    head: Option<CheckpointId>,
    widths: ColumnWidths,
    tree: LogTree<CheckpointId>,
}

impl LogText {
    fn new(thread: &Thread, form: LogForm) -> Result<Self, CommandFailure> {
        let head = thread.head()?.map(|head| head.id());
        Ok(Self { form, head, widths: ColumnWidths::default(), tree: LogTree::new() })
    }

    fn print(&mut self, page: &LogPage, out: &mut Printer) -> Result<(), CommandFailure> {
        let cells: Vec<Vec<String>> = page.rows.iter().map(|row| row.cells(self.form.oneline)).collect();
        let lines = self.widths.lay(&cells);
        // Painted after the columns are laid, or the colour would count as width.
        let rows = page
            .rows
            .iter()
            .zip(lines)
            .map(|(row, line)| (row, line.replacen(&row.listed.short, &out.id(&row.listed.short), 1)));
        let older = out.dim("(older ones: -n 0 shows all)");
        if !self.form.graph {
            // Without the tree, as checkpoints between the rows are not shown.
            for (row, line) in rows.collect::<Vec<_>>() {
                out.row(line)?;
                for line in row.found_lines().chain(row.stats(self.form, out)) {
                    out.row(line)?;
                }
            }
            return if page.more { Ok(out.line(older)?) } else { Ok(()) };
        }
        let mut drawn = Vec::with_capacity(page.rows.len());
        for (row, line) in rows {
            let mut lines = vec![line];
            lines.extend(row.extras(self.form.oneline)?.iter().map(|extra| format!("   {}", out.open(extra))));
            lines.extend(row.found_lines());
            lines.extend(row.stats(self.form, out));
            let mark = if Some(row.at().id()) == self.head { '@' } else { 'o' };
            drawn.push(TreeRow { id: row.at().id(), parent: row.above, mark, lines });
        }
        let mut lines = self.tree.page(&drawn);
        if page.more {
            lines.extend(self.tree.end(&older));
        }
        for line in lines {
            out.row(line)?;
        }
        Ok(())
    }
}

impl LogRow {
    fn of(snapshot: Snapshot, parent: Option<Snapshot>, short: String, is_end: bool) -> Result<Self, CommandFailure> {
        let above = snapshot.record().parent;
        let listed = ListedCheckpoint::read(snapshot, parent, short, is_end, u64::MAX)?;
        Ok(Self { listed, above, is_input: false, found: Vec::new() })
    }

    fn at(&self) -> &Snapshot {
        &self.listed.at
    }

    fn cells(&self, oneline: bool) -> Vec<String> {
        let step = words::step(self.at());
        let made = self.made();
        let changes = cut(&changed::text(&self.listed.changed), CHANGES_CELLS).into_owned();
        if oneline {
            return vec![self.listed.short.clone(), step, made, changes];
        }
        let age = output::ago(self.at().store().now(), self.at().created_at());
        let source = if self.is_input { Source::Input } else { self.at().source() };
        vec![self.listed.short.clone(), step, source.to_string(), made, age, changes]
    }

    /// Returns the cause of the checkpoint: its nodes, or its source.
    fn made(&self) -> String {
        if self.is_input { "(input)".into() } else { escape(&self.listed.made()).into_owned() }
    }

    /// Returns the lines below the first: the source of a fork, and the state of an open branch.
    fn extras(&self, oneline: bool) -> Result<Vec<String>, CommandFailure> {
        let mut extras = Vec::new();
        if let (Some(from), false) = (&self.at().record().forked_from, oneline) {
            let parent = words::stored_parent(self.at())?;
            let id =
                parent.as_ref().map(Snapshot::short_id).transpose()?.unwrap_or_else(|| from.checkpoint.to_string());
            extras.push(format!("forked from {}@{id}", escape(from.thread.as_str())));
        }
        let status = self.listed.status.clone();
        let waits = status.map(|status| Waits::new(status, self.listed.partial.clone(), self.at()));
        if let Some(waits) = waits.filter(|waits| !waits.is_done()) {
            extras.push(waits.text(90));
        }
        for started in &self.listed.started {
            let words = started.listed.words().map(|words| format!("  {}", cut(&escape(words), 60)));
            let (kind, thread) = (started.link.kind.as_str(), escape(&started.link.thread));
            extras.push(format!("{kind} {thread}{}", words.unwrap_or_default()));
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
        let mut cells: Vec<Vec<String>> =
            self.listed.changed.iter().map(|change| changed::stat(change).to_vec()).collect();
        let usage = metadata(self.at())["usage"].take();
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
