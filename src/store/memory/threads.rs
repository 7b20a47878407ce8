//! Threads with their parts: each is derived from its checkpoints when it is read.

use std::collections::HashSet;

use super::stored::{MemoryLog, StoredThread};
use crate::base::{Namespace, ThreadId};
use crate::store::backend::ThreadPage;
use crate::store::log::{ThreadParts, ThreadRow, ThreadRows};
use crate::store::operation::BranchRecord;
use crate::store::record::{CheckpointRecord, CheckpointRef, ThreadRecord, ThreadSize};
use crate::store::{StoreError, ThreadCounts, ThreadInfo, ThreadOrder, ThreadQuery};

/// Returns the rows of a query with the parts that are wanted.
pub(super) fn rows(log: &MemoryLog, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
    match of {
        ThreadRows::Ids(ids) => ids.iter().map(|id| row(log, id, parts)).collect(),
        ThreadRows::After(after, limit) => {
            let records = log.threads.from(*after).filter(|(id, _)| Some(id) != *after).filter_map(|(id, thread)| {
                let head = CheckpointRecord::clone(&thread.root()?.head()?.record);
                Some(ThreadRecord::new(id.clone(), thread.created_at, head))
            });
            let with_parts = |record: ThreadRecord| {
                let mut row = row(log, &record.id, parts)?;
                row.record = Some(record);
                Ok(row)
            };
            records.take(*limit).map(with_parts).collect()
        }
        ThreadRows::Listed(query) => {
            let mut parts = parts;
            parts.info = true;
            list(log, query)?.into_iter().map(|info| row(log, info.id(), parts)).collect()
        }
    }
}

fn row(log: &MemoryLog, id: &ThreadId, parts: ThreadParts<'_>) -> Result<ThreadRow, StoreError> {
    let mut row = ThreadRow::default();
    let Some(thread) = log.threads.get(id) else {
        row.forks = if parts.forks { forks(log, id) } else { Vec::new() };
        return Ok(row);
    };
    if parts.info {
        row.info = info(thread).transpose()?.map(|info| info.with_counts(Some(counts(thread))));
    }
    if parts.size {
        let all = || thread.spaces.iter().flat_map(|(_, space)| space.all());
        let branches: HashSet<u64> = all().map(|stored| stored.record.branch).collect();
        let kept = all().filter(|stored| !stored.record.pruned);
        row.size = ThreadSize::new(kept.count() as u64, branches.len() as u64);
    }
    (row.fields, row.lease) = (thread.fields.clone().into_iter().collect(), thread.lease.clone());
    if parts.namespaces {
        row.namespaces = thread.spaces.iter().map(|(namespace, _)| namespace.clone()).collect();
    }
    if parts.forks {
        row.forks = forks(log, id);
    }
    let first = thread.root().and_then(|root| root.all().next());
    row.forked_from = first.and_then(|first| first.record.forked_from.clone()).filter(|from| from.thread != *id);
    row.branches = parts.branches.map_or_else(Vec::new, |namespace| branches(log, id, namespace));
    Ok(row)
}

/// Returns the threads that were forked from a thread, the first fork first.
fn forks(log: &MemoryLog, thread: &ThreadId) -> Vec<ThreadId> {
    let is_fork = |at: &CheckpointRef| at.thread == *thread;
    let mut found: Vec<(u64, &ThreadId)> = Vec::new();
    for (id, _, space) in log.spaces(None).filter(|(id, ..)| *id != thread) {
        let records = space.all().map(|stored| &stored.record);
        found.extend(records.filter(|of| of.forked_from.as_ref().is_some_and(is_fork)).map(|of| (of.seq, id)));
    }
    found.sort_unstable();
    let mut seen = HashSet::new();
    found.into_iter().filter(|(_, id)| seen.insert(*id)).map(|(_, id)| id.clone()).collect()
}

/// Returns the branches of a namespace, the newest first.
fn branches(log: &MemoryLog, thread: &ThreadId, namespace: &Namespace) -> Vec<BranchRecord> {
    let mut found: Vec<BranchRecord> = Vec::new();
    for stored in log.space(thread, namespace).into_iter().flat_map(|space| space.all().rev()) {
        let leaves = log.parent(&stored.record).map(|parent| parent.place());
        match found.last_mut() {
            Some(last) if last.last.branch == stored.record.branch => last.leaves = leaves,
            _ => found.push(BranchRecord::new(CheckpointRecord::clone(&stored.record), leaves)),
        }
    }
    found
}

/// Returns the page of a listing, without counts.
pub(super) fn list(log: &MemoryLog, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
    let mut all = log.threads.iter().filter_map(|(_, thread)| info(thread)).collect::<Result<Vec<_>, _>>()?;
    match query.order {
        ThreadOrder::Activity => all.sort_by_key(|info| std::cmp::Reverse(info.seq())),
        ThreadOrder::Queue => all.sort_by_key(ThreadInfo::queue_place),
        ThreadOrder::Id => {}
    }
    let mut page = ThreadPage::new(query);
    all.into_iter().all(|info| page.offer(info));
    Ok(page.into_threads())
}

/// Returns a thread as a list shows it, without counts; `None` if it has no head.
pub(super) fn info(thread: &StoredThread) -> Option<Result<ThreadInfo, StoreError>> {
    let root = thread.root()?;
    let (newest, head) = (&root.newest()?.record, root.head()?);
    let (record, fields) = (CheckpointRecord::clone(&head.record), thread.fields.clone().into_iter().collect());
    Some(ThreadInfo::new(record, newest.seq, newest.created_at, fields, &head.sorted_writes()))
}

/// Counts the messages at the head of a thread, and sums the tokens and the costs of its checkpoints.
fn counts(thread: &StoredThread) -> ThreadCounts {
    let mut sum = ThreadCounts::default();
    for (namespace, space) in thread.spaces.iter() {
        // The positions of each branch at which an item with tokens was put.
        let mut counted = HashSet::new();
        for stored in space.all() {
            let stated = ThreadCounts::stated(stored.record.metadata.as_deref());
            stated.into_iter().for_each(|stated| sum.add_usage(stated));
            for put in stored.puts().filter(|put| namespace.is_root() && put.position.is_some()) {
                let tokens = put.payload.index.as_ref();
                let tokens = tokens.and_then(|index| ThreadCounts::of_tokens(index.input_tokens, index.output_tokens));
                if let Some(tokens) = tokens
                    && counted.insert((stored.record.branch, put.channel, put.position))
                    && stated.is_none()
                    && !stored.record.pruned
                {
                    sum.add_usage(tokens);
                }
            }
        }
    }
    let head = thread.root().and_then(|root| root.head());
    for list in head.iter().flat_map(|head| head.state.channels.iter()).filter_map(|(_, of)| of.value.items()) {
        let last = list.positions.last().and_then(|(_, item)| item.payload.get().index.as_deref());
        if last.is_some_and(|index| index.kind.is_some()) {
            sum.messages += list.positions.len() as u64;
        }
    }
    sum
}
