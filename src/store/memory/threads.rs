//! Listings of threads: each is derived from its namespace when it is listed.

use std::collections::HashSet;

use super::operation;
use super::read;
use super::stored::{Changed, ChangedOp, ChangedValue, MemoryLog, StoredThread};
use crate::base::{Namespace, ThreadId};
use crate::store::batch::Payload;
use crate::store::log::{ThreadParts, ThreadRow, ThreadRows};
use crate::store::record::{CheckpointRef, ThreadRecord};
use crate::store::{StoreError, ThreadCounts, ThreadInfo, ThreadOrder, ThreadPage, ThreadQuery};

/// Returns the page of a listing.
/// Returns the rows of a query with the parts that are wanted.
pub(super) fn rows(log: &MemoryLog, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
    let with_parts = |id: &ThreadId, mut row: ThreadRow| {
        let thread = log.threads.get(id);
        if parts.info && row.info.is_none() {
            row.info = thread.and_then(info).transpose()?;
        }
        row.size = if parts.size { read::thread_size(log, id) } else { row.size };
        row.fields = thread.filter(|_| parts.fields).map(operation::fields).unwrap_or_default();
        row.lease = thread.filter(|_| parts.lease).and_then(|thread| thread.lease.clone());
        row.namespaces =
            thread.filter(|_| parts.namespaces).map_or_else(Vec::new, |of| of.spaces.keys().cloned().collect());
        row.forks = if parts.forks { read::forks(log, id) } else { Vec::new() };
        row.forked_from = thread.filter(|_| parts.forked_from).and_then(|of| forked_from(id, of));
        row.branches = parts.branches.map_or_else(Vec::new, |namespace| operation::branches(log, id, namespace));
        Ok(row)
    };
    match of {
        ThreadRows::Ids(ids) => ids.iter().map(|id| with_parts(id, ThreadRow::default())).collect(),
        ThreadRows::After(after, limit) => {
            let of_record = |record: ThreadRecord| {
                let id = record.id.clone();
                let mut row = ThreadRow::default();
                row.record = Some(record);
                with_parts(&id, row)
            };
            read::threads(log, *after, *limit).into_iter().map(of_record).collect()
        }
        ThreadRows::Listed(query) => {
            let of_info = |info: ThreadInfo| {
                let id = info.id().clone();
                let mut row = ThreadRow::default();
                row.info = Some(info);
                with_parts(&id, row)
            };
            list(log, query)?.into_iter().map(of_info).collect()
        }
    }
}

/// Returns the checkpoint of another thread from which a thread was forked.
fn forked_from(id: &ThreadId, thread: &StoredThread) -> Option<CheckpointRef> {
    let (_, first) = thread.spaces.get(&Namespace::root())?.checkpoints.walk_up(None).next()?;
    first.record.forked_from.clone().filter(|from| from.thread != *id)
}

fn list(log: &MemoryLog, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
    let mut all = log.threads.values().filter_map(uncounted).collect::<Result<Vec<_>, _>>()?;
    match query.order {
        ThreadOrder::Activity => all.sort_by_key(|info| std::cmp::Reverse(info.seq())),
        ThreadOrder::Queue => all.sort_by_key(ThreadInfo::queue_place),
        ThreadOrder::Id => {}
    }
    let mut page = ThreadPage::new(query);
    let after = |info: &ThreadInfo| match (&query.after, query.order) {
        (Some((_, seq)), ThreadOrder::Activity) => info.seq() < *seq,
        (Some((id, _)), ThreadOrder::Id) => info.id() > id,
        (Some(_), ThreadOrder::Queue) => query.queue_after().is_none_or(|after| info.queue_place() > after),
        (None, _) => true,
    };
    for info in all.into_iter().filter(after) {
        if !page.offer(info) {
            break;
        }
    }
    let counted = |info: ThreadInfo| {
        let counts = log.threads.get(info.id()).map(counts);
        info.with_counts(counts)
    };
    Ok(page.into_threads().into_iter().map(counted).collect())
}

/// Returns a thread as a list shows it; `None` if it has no head.
fn info(thread: &StoredThread) -> Option<Result<ThreadInfo, StoreError>> {
    uncounted(thread).map(|info| Ok(info?.with_counts(Some(counts(thread)))))
}

fn uncounted(thread: &StoredThread) -> Option<Result<ThreadInfo, StoreError>> {
    let space = thread.spaces.get(&Namespace::root())?;
    let (_, newest) = space.checkpoints.last()?;
    let head = space.head()?.record.clone();
    let writes = read::writes(space, &head.point.checkpoint);
    Some(ThreadInfo::new(head, newest.record.seq, newest.record.created_at, operation::fields(thread), &writes))
}

/// Counts the messages at the head of a thread, and sums the tokens and the costs of its checkpoints.
fn counts(thread: &StoredThread) -> ThreadCounts {
    let mut sum = ThreadCounts::default();
    for (namespace, space) in &thread.spaces {
        // The positions of each branch at which an item with tokens was put.
        let mut counted = HashSet::new();
        for (_, stored) in space.checkpoints.walk_up(None) {
            let stated = ThreadCounts::stated(stored.record.metadata.as_deref());
            if let Some(stated) = stated {
                sum.add_usage(stated);
            }
            for (channel, position, payload) in stored.delta.changes.iter().flat_map(puts) {
                let tokens = payload.index.as_deref();
                let tokens = tokens.and_then(|index| ThreadCounts::of_tokens(index.input_tokens, index.output_tokens));
                if let Some(tokens) = tokens
                    && counted.insert((stored.record.branch, channel, position))
                    && stated.is_none()
                    && !stored.record.pruned
                    && namespace.is_root()
                {
                    sum.add_usage(tokens);
                }
            }
        }
    }
    let root = thread.spaces.get(&Namespace::root());
    let head = root.and_then(|root| root.head());
    for (_, channel) in head.iter().flat_map(|head| head.state.channels.walk_up(None)) {
        let items = channel.value.items().map(|list| &list.positions);
        let last = items.and_then(|items| items.last()).and_then(|(_, item)| item.payload.index.as_deref());
        if last.is_some_and(|index| index.kind.is_some()) {
            sum.messages += items.map_or(0, |items| items.len() as u64);
        }
    }
    sum
}

/// Returns the items that a change puts.
fn puts(change: &Changed) -> impl Iterator<Item = (&str, u64, &Payload)> {
    let items = match &change.value {
        ChangedValue::Items(items) => items.as_slice(),
        ChangedValue::Empty | ChangedValue::Value(_) => &[],
    };
    items.iter().filter_map(|item| match &item.op {
        ChangedOp::Put(payload) => Some((&*change.channel, item.position, &**payload)),
        _ => None,
    })
}
