//! `annals threads`: the threads of the store, the last active first.
//!
//! JSON: `{"schema": 1, "threads": [{"thread", "title", "first_words", "project", "labels": [..], "archived", "pinned",
//! "paused", "graph", "last_activity", "messages", "input_tokens", "output_tokens", "cost_usd", "checkpoints",
//! "branches", "head", "step", "status": "done" | "running" | "interrupted" | "failed" | "sleeping" | "cancelled" |
//! "stuck", "error", "wake_at", "partial", "next": [..], "questions": [..], "parent": {"thread", "kind", "call"}}],
//! "more": bool}`. `error` is the message of a failure, or the reason of a cancellation. `partial` is `{"channel",
//! "words", "updated"}` of a message that is streamed or was cut off, or null. `checkpoints` and `branches` are null
//! without `--count`: the count of a thread costs as much as it has checkpoints. `first_words` are those of a thread
//! without a title.

use annals::history::{Snapshot, ThreadInfo};
use annals::store::Store;
use annals_runs::{ThreadLink, ThreadRuns as _};
use annals_view::{ListedThread, link_document};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, ColumnWidths, Printer, cut, escape};
use crate::words::Waits;

/// Threads that are read before they are printed.
const PAGE: usize = 50;

/// A thread with what its row shows.
struct Row {
    listed: ListedThread,
    head: Snapshot,
    waits: Waits,
    /// The link to the thread whose agent started it, or whose fork it is.
    parent: Option<ThreadLink>,
}

pub(crate) fn run(args: &args::ThreadsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let (mut last, mut listed, mut more) = (None::<ThreadInfo>, 0, false);
    let (mut documents, mut table) = (Vec::new(), ThreadTable::default());
    // A page is printed before the next one is read: a reader such as `head` may end the command after it.
    while !more {
        let rest = (limit - listed).saturating_add(1);
        let query = args.filter.query(store).limit(rest.min(PAGE));
        let mut page = store.threads_with(last.as_ref().map_or(query.clone(), |last| query.after(last)))?;
        let Some(end) = page.last() else { break };
        last = Some(end.clone());
        more = page.len() == rest;
        let is_last = more || page.len() < rest.min(PAGE);
        page.truncate(limit - listed);
        listed += page.len();
        let rows = page.into_iter().map(|info| Row::of(info, store, args.count)).collect::<Result<Vec<_>, _>>()?;
        if out.is_lines() {
            out.json(&json!({ "schema": 1, "threads": rows.iter().map(Row::document).collect::<Vec<_>>() }))?;
        } else if out.is_json() {
            documents.extend(rows.iter().map(Row::document));
        } else {
            table.print(store, &rows, args.count, is_last, out)?;
        }
        out.flush()?;
    }
    debug_assert!(listed <= limit, "the limit holds");
    if out.is_json() {
        if !out.is_lines() {
            out.json(&json!({ "schema": 1, "threads": documents, "more": more }))?;
        }
        return Ok(u8::from(listed == 0));
    }
    if more {
        output::note("more: --limit 0 lists all");
    }
    if listed == 0 {
        output::note("no thread is listed");
    }
    Ok(u8::from(listed == 0))
}

/// The table of the threads, of which pages are printed one after the other.
#[derive(Default)]
struct ThreadTable {
    widths: ColumnWidths,
    is_begun: bool,
    has_titles: bool,
    has_parents: bool,
}

impl ThreadTable {
    /// Prints a page; the first one below the titles of the columns. `is_last` says that no other one follows.
    fn print(
        &mut self,
        store: &Store,
        rows: &[Row],
        has_counts: bool,
        is_last: bool,
        out: &mut Printer,
    ) -> Result<(), CommandFailure> {
        let mut cells = Vec::with_capacity(rows.len() + 1);
        if !self.is_begun {
            let counts: &[&str] = if has_counts { &["CHECKPOINTS", "BRANCHES"] } else { &[] };
            self.has_parents = rows.iter().any(|row| row.parent.is_some());
            let parents: &[&str] = if self.has_parents { &["PARENT"] } else { &[] };
            let titles = [&["THREAD"], counts, &["HEAD", "STEP", "ACTIVE", "STATE"], parents, &["TITLE"]].concat();
            cells.push(titles.into_iter().map(String::from).collect::<Vec<_>>());
            // The pages after this one may have titles.
            self.has_titles = !is_last || rows.iter().any(|row| row.listed.words().is_some());
        }
        for row in rows {
            let mut line = vec![cut(&escape(row.listed.info.id().as_str()), out.id_cells()).into_owned()];
            line.extend(
                row.listed.size.iter().flat_map(|size| [size.checkpoints.to_string(), size.branches.to_string()]),
            );
            line.extend([
                row.head.short_id()?,
                row.head.step().to_string(),
                output::ago(store.now(), row.listed.info.updated_at),
                row.waits.text(60) + if row.listed.info.facts.is_paused { ", paused" } else { "" },
            ]);
            if self.has_parents {
                let parent = row.parent.as_ref().map_or("", |parent| &parent.thread);
                line.push(cut(&escape(parent), 40).into_owned());
            }
            line.push(cut(&escape(row.listed.words().unwrap_or_default()), 40).into_owned());
            cells.push(line);
        }
        if !self.has_titles {
            cells.iter_mut().for_each(|row| _ = row.pop());
        }
        for line in self.widths.lay(&cells) {
            out.row(if self.is_begun { line } else { out.dim(&line) })?;
            self.is_begun = true;
        }
        Ok(())
    }
}

impl Row {
    fn of(info: ThreadInfo, store: &Store, has_counts: bool) -> Result<Self, CommandFailure> {
        let thread = store.thread(info.id().as_str())?;
        let (head, parent) = (thread.at(info.head())?, thread.parent_link()?);
        let listed = ListedThread::read(store, info, has_counts)?;
        let waits = Waits::new(listed.status(), listed.info.partial.clone(), &head);
        Ok(Self { listed, head, waits, parent })
    }

    fn document(&self) -> Json {
        let mut document = self.listed.document();
        document["parent"] = json!(self.parent.as_ref().map(link_document));
        document
    }
}
