//! `annals tree` and `annals copy`: the branches of a thread with the threads that were forked from it or that its
//! agent started, and copies of a thread.
//!
//! JSON of `tree`: `{"schema": 1, "threads": [{"thread", "depth", "forked_from", "parent", "head", "step", "status",
//! "branches": [{"name", "checkpoint", "current", "abandoned", "step"}]}], "more"}`: a thread comes before its forks
//! and before the threads of its helpers, which are one deeper; `parent` is the link of these. JSON of `copy`:
//! `{"schema": 1, "thread", "checkpoint", "copied_from"}`.

use std::collections::HashSet;

use annals::history::{Snapshot, Thread, ThreadBranch};
use annals::store::{CheckpointRef, Store, StoreError};
use annals_runs::{ThreadLink, ThreadRuns as _};
use annals_view::link_document;
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::point::thread;
use crate::words::Waits;

/// A thread of a tree.
struct TreeThread {
    depth: usize,
    thread: Thread,
    head: Snapshot,
    forked_from: Option<CheckpointRef>,
    /// The link by which it stands below another one.
    link: Option<ThreadLink>,
    branches: Vec<ThreadBranch>,
}

pub(crate) fn tree(args: &args::TreeArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let root = thread(store, &args.list.thread)?;
    let (mut rows, mut more) = (Vec::new(), false);
    let (mut open, mut seen) = (vec![(0, root, None)], HashSet::new());
    while let Some((depth, thread, link)) = open.pop() {
        if !seen.insert(thread.id().clone()) {
            continue;
        }
        more = rows.len() == args.list.most();
        if more {
            break;
        }
        let Some(head) = thread.head()? else { continue };
        let forks = thread.forks()?;
        // The one that was linked first is shown first.
        for mut link in thread.linked_threads()?.into_iter().rev() {
            match store.thread(&link.thread) {
                Ok(below) => {
                    link.thread = thread.id().as_str().to_owned();
                    open.push((depth + 1, below, Some(link)));
                }
                // Its id is none of this version.
                Err(StoreError::Id(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for fork in forks.iter().rev() {
            open.push((depth + 1, store.thread(fork.as_str())?, None));
        }
        let branches = if args.all { thread.all_branches()? } else { thread.branches()? };
        rows.push(TreeThread { depth, head, forked_from: thread.forked_from()?, link, branches, thread });
    }
    if out.is_json() {
        let threads = rows.iter().map(TreeThread::document).collect::<Result<Vec<_>, _>>()?;
        out.json(&json!({ "schema": 1, "threads": threads, "more": more }))?;
        return Ok(0);
    }
    for row in &rows {
        row.print(store, out)?;
    }
    if more {
        out.line(out.dim("(more threads: -n 0 shows all)"))?;
    }
    Ok(0)
}

impl TreeThread {
    fn document(&self) -> Result<Json, CommandFailure> {
        let from = self.forked_from.as_ref();
        let from =
            from.map(|from| json!({ "thread": from.thread.as_str(), "checkpoint": from.checkpoint.to_string() }));
        let branches = self.branches.iter().map(|branch| {
            json!({
                "name": branch.name.as_deref(),
                "checkpoint": branch.last.id().to_string(),
                "current": branch.is_current,
                "abandoned": branch.is_abandoned(),
                "step": branch.last.step(),
            })
        });
        Ok(json!({
            "thread": self.thread.id().as_str(),
            "depth": self.depth,
            "forked_from": from,
            "parent": self.link.as_ref().map(link_document),
            "head": self.head.id().to_string(),
            "step": self.head.step(),
            "status": Waits::of(&self.head)?.status.as_str(),
            "branches": branches.collect::<Vec<_>>(),
        }))
    }

    fn print(&self, store: &Store, out: &mut Printer) -> Result<(), CommandFailure> {
        // A chain of forks does not push its end off the terminal.
        let indent = "  ".repeat(self.depth.min(20));
        let name = escape(self.thread.id().as_str()).into_owned();
        let age = output::ago(store.now(), self.head.created_at());
        let from = match &self.forked_from {
            Some(from) if self.depth > 0 => {
                let at = store.thread(from.thread.as_str())?.at(from.checkpoint)?;
                format!("  from step {}", at.step())
            }
            _ => match &self.link {
                Some(link) => match &link.call {
                    Some(call) => format!("  {}, call {}", link.kind.as_str(), escape(call)),
                    None => format!("  {}", link.kind.as_str()),
                },
                None => String::new(),
            },
        };
        let state = Waits::of(&self.head)?.text(60);
        out.row(format!("{indent}{}  step {}  {age}  {state}{from}", out.bold(&name), self.head.step()))?;
        // The only branch of a thread is the thread.
        for branch in self.branches.iter().filter(|_| self.branches.len() > 1) {
            let last = &branch.last;
            let name = match branch.name.as_deref() {
                Some(name) => escape(name).into_owned(),
                None if branch.is_abandoned() => "(abandoned)".to_owned(),
                None => "(no name)".to_owned(),
            };
            let mark = if branch.is_current { '*' } else { '-' };
            let id = out.id(&last.short_id()?);
            out.row(format!("{indent}  {mark} {name}  {id}  step {}", last.step()))?;
        }
        Ok(())
    }
}
