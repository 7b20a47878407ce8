//! The tree of the branches of a thread. Straight runs of one branch are one line.

use std::collections::HashMap;

use annals::history::{Snapshot, Thread};
use annals::store::StoreError;
use annals::store::operation::BranchRecord;
use annals_view::words::{ago, count, shortened};

use crate::address::{encode, thread_text};
use crate::html::Html;
use crate::limits::BRANCHES_MAX;

/// Levels of indentation.
const DEPTH: usize = 8;

/// A branch as a line of the tree.
pub(super) struct BranchLine {
    pub(super) record: BranchRecord,
    depth: usize,
    pub(super) names: Vec<String>,
    is_current: bool,
}

/// The tree of a thread.
pub(super) struct BranchTree {
    pub(super) lines: Vec<BranchLine>,
    /// The number of branches, those that are not shown included.
    pub(super) count: usize,
    /// The checkpoints of all branches.
    pub(super) checkpoints: u64,
    names: HashMap<u64, Vec<String>>,
}

impl BranchTree {
    /// Reads the branches of a thread: some indexed reads for each.
    pub(super) fn read(thread: &Thread) -> Result<Self, StoreError> {
        let mut records = thread.branch_records()?;
        let count = records.len();
        let checkpoints = records.iter().map(len).sum();
        records.truncate(BRANCHES_MAX);
        let mut names: HashMap<u64, Vec<String>> = HashMap::new();
        let mut current = None;
        if thread.namespace().is_root() {
            for branch in thread.branches()? {
                let id = branch.last.record().branch;
                names.entry(id).or_default().extend(branch.name.clone());
                current = if branch.is_current { Some(id) } else { current };
            }
        }
        let lines = ordered(records)
            .into_iter()
            .map(|(record, depth)| {
                let id = record.last.branch;
                let names = names.get(&id).cloned().unwrap_or_default();
                BranchLine { depth, names, is_current: current == Some(id), record }
            })
            .collect();
        Ok(Self { lines, count, checkpoints, names })
    }

    /// Returns the name of a branch.
    pub(super) fn name(&self, branch: u64) -> Option<&str> {
        self.names.get(&branch)?.first().map(String::as_str)
    }

    /// Adds the tree; `at` is the point that is shown.
    pub(super) fn add_to(&self, html: &mut Html, thread: &Thread, at: &Snapshot) {
        let quoted = thread_text(thread.id().as_str());
        html.open("ol", &[("class", "branches")]);
        for line in &self.lines {
            let last = &line.record.last;
            let own = at.record().branch == last.branch;
            let class = format!("d{}{}", line.depth.min(DEPTH), if own { " strong" } else { "" });
            html.open("li", &[("class", &class)]);
            html.classed("span", "mark", if line.is_current { "@" } else { "o" }).literal(" ");
            let address = format!("/t/{}", encode(&format!("{quoted}@{}", last.point.checkpoint)));
            let name = line.names.first().map_or_else(|| format!("step {}", last.step), |name| shortened(name, 40));
            html.link(&address, &name).literal(" ");
            html.classed("span", "dim", &ago(thread.store().now(), last.created_at));
            for name in line.names.iter().skip(1).take(4) {
                html.literal(" ").classed("span", "tag", &shortened(name, 40));
            }
            html.literal("<br>").classed("span", "fold", "~").literal(" ");
            let len = len(&line.record);
            html.classed("span", "dim", &format!("({})", count(len, "step")));
            if line.record.leaves.is_some() {
                let from = format!("/t/{}", encode(&format!("{quoted}@{}~{len}", last.point.checkpoint)));
                html.literal(" ").link(&from, "fork point").literal(" ");
                let range = format!("{quoted}@{}~{len}..@{}", last.point.checkpoint, last.point.checkpoint);
                html.link(&format!("/diff/{}", encode(&range)), "diff");
            }
            html.close("li");
        }
        html.close("ol");
        if self.count > self.lines.len() {
            html.classed("p", "dim", &format!("{} more", count((self.count - self.lines.len()) as u64, "branch")));
        }
    }
}

/// Returns the number of checkpoints of a branch.
pub(super) fn len(branch: &BranchRecord) -> u64 {
    (branch.last.ordinal + 1).saturating_sub(branch.leaves.map_or(0, |(_, upto)| upto + 1))
}

/// Brings branches in the order of the tree, a branch before those that leave it, each with its depth.
fn ordered(records: Vec<BranchRecord>) -> Vec<(BranchRecord, usize)> {
    let known: HashMap<u64, usize> = records.iter().enumerate().map(|(at, record)| (record.last.branch, at)).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut stack = Vec::new();
    for (at, record) in records.iter().enumerate() {
        match record.leaves.and_then(|(parent, _)| known.get(&parent)).filter(|parent| **parent != at) {
            Some(parent) => children.entry(*parent).or_default().push(at),
            None => stack.push((at, 0)),
        }
    }
    stack.reverse();
    let mut order = Vec::with_capacity(records.len());
    while let Some((at, depth)) = stack.pop() {
        order.push((at, depth));
        let below = children.remove(&at).unwrap_or_default();
        stack.extend(below.into_iter().rev().map(|child| (child, depth + 1)));
    }
    debug_assert!(order.len() <= records.len(), "a branch is on one line");
    let mut records: Vec<Option<BranchRecord>> = records.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(at, depth)| Some((records[at].take()?, depth))).collect()
}
