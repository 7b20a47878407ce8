//! Threads with their parts: each is derived from its checkpoints when it is read.

use super::stored::*;
use crate::store::backend::ThreadPage;
use crate::store::{ThreadCounts, ThreadInfo, ThreadOrder, ThreadQuery};

/// Returns the rows of a query with the parts that are wanted.
pub(super) fn rows(log: &MemoryLog, of: &ThreadRows<'_>, mut parts: ThreadParts<'_>) -> MemoryResult<Vec<ThreadRow>> {
    match of {
        ThreadRows::Ids(ids) => ids.iter().map(|id| row(log, id, parts)).collect(),
        ThreadRows::After(after, limit) => {
            let is_listed = |thread: &StoredThread| thread.root().is_some_and(|root| root.head().is_some());
            let found = log.threads.from(*after).filter(|(id, thread)| Some(id) != *after && is_listed(thread));
            found.take(*limit).map(|(id, _)| row(log, id, parts)).collect()
        }
        ThreadRows::Listed(query) => {
            parts.info = true;
            list(log, query)?.iter().map(|info| row(log, info.id(), parts)).collect()
        }
    }
}

fn row(log: &MemoryLog, id: &ThreadId, parts: ThreadParts<'_>) -> MemoryResult<ThreadRow> {
    let mut row = ThreadRow::default();
    if parts.forks {
        row.forks = forks(log).remove(id).into_iter().flatten().cloned().collect();
    }
    let Some(thread) = log.threads.get(id) else { return Ok(row) };
    let head = thread.root().and_then(|root| root.head());
    row.record = head.map(|head| ThreadRecord::new(id.clone(), thread.created_at, head.record.clone()));
    if parts.info {
        row.info = info(thread).transpose()?;
        row.info.iter_mut().for_each(|info| info.counts = Some(counts(thread)));
    }
    if parts.size {
        let branches: HashSet<u64> = log.all(Some(id)).map(|stored| stored.record.branch).collect();
        let kept = log.all(Some(id)).filter(|stored| !stored.record.pruned).count();
        row.size = ThreadSize::new(kept as u64, branches.len() as u64);
    }
    (row.fields, row.lease) = (thread.fields.clone().into_iter().collect(), thread.lease.clone());
    if parts.namespaces {
        row.namespaces = thread.spaces.iter().map(|(namespace, _)| namespace.clone()).collect();
    }
    let first = thread.root().and_then(|root| root.all().next());
    row.forked_from = first.and_then(|first| first.record.forked_from.clone()).filter(|from| from.thread != *id);
    Ok(row)
}

/// Returns the forks of each thread, the first fork first.
pub(super) fn forks(log: &MemoryLog) -> BTreeMap<&ThreadId, Vec<&ThreadId>> {
    let records = log.all(None).map(|stored| &stored.record);
    let fork = records.filter_map(|of| Some((of.seq, &of.forked_from.as_ref()?.thread, &of.point.thread)));
    let mut found: Vec<_> = fork.filter(|(_, of, fork)| of != fork).collect();
    found.sort_unstable();
    let (mut all, mut seen) = (BTreeMap::<_, Vec<_>>::new(), HashSet::new());
    for (_, of, fork) in found.into_iter().filter(|(_, of, fork)| seen.insert((*of, *fork))) {
        all.entry(of).or_default().push(fork);
    }
    all
}

/// Returns the page of a listing, without counts.
pub(super) fn list(log: &MemoryLog, query: &ThreadQuery) -> MemoryResult<Vec<ThreadInfo>> {
    let mut all = log.threads.iter().filter_map(|(_, thread)| info(thread)).collect::<Result<Vec<_>, _>>()?;
    match query.order {
        ThreadOrder::Activity => all.sort_by_key(|info| std::cmp::Reverse(info.seq)),
        ThreadOrder::Queue => all.sort_by_key(ThreadInfo::queue_place),
        ThreadOrder::Id => {}
    }
    let mut page = ThreadPage::new(query);
    all.into_iter().all(|info| page.offer(info));
    Ok(page.into_threads())
}

/// Returns a thread as a list shows it, without counts; `None` if it has no head.
pub(super) fn info(thread: &StoredThread) -> Option<MemoryResult<ThreadInfo>> {
    let root = thread.root()?;
    let (newest, head) = (&root.all().next_back()?.record, root.head()?);
    let fields = thread.fields.clone().into_iter().collect();
    Some(ThreadInfo::new(head.record.clone(), newest.seq, newest.created_at, fields, &head.sorted_writes()))
}

/// Counts the messages at the head of a thread, and sums the tokens and the costs of its checkpoints.
fn counts(thread: &StoredThread) -> ThreadCounts {
    let mut sum = ThreadCounts::default();
    for stored in thread.spaces.iter().flat_map(|(_, space)| space.all()) {
        ThreadCounts::stated(stored.record.metadata.as_deref()).into_iter().for_each(|stated| sum.add_usage(stated));
    }
    // The positions of each branch at which an item with tokens was put.
    let (root, mut counted) = (thread.root(), HashSet::new());
    for (root, stored) in root.into_iter().flat_map(|root| root.all().map(move |stored| (root, stored))) {
        let counts = !stored.record.pruned && ThreadCounts::stated(stored.record.metadata.as_deref()).is_none();
        for (channel, position, _, payload) in root.puts(stored).filter(|(_, position, ..)| position.is_some()) {
            let tokens = payload.index.as_ref();
            let tokens = tokens.and_then(|index| ThreadCounts::of_tokens(index.input_tokens, index.output_tokens));
            let is_new = tokens.is_some() && counted.insert((stored.record.branch, channel, position));
            tokens.filter(|_| is_new && counts).into_iter().for_each(|tokens| sum.add_usage(tokens));
        }
    }
    let lists = root.and_then(|root| root.head()).into_iter().flat_map(|head| head.channels());
    for list in lists.filter_map(|channel| channel.list.as_ref()) {
        let last = list.positions.last().and_then(|(_, item)| item.payload.index.as_deref());
        sum.messages += last.filter(|index| index.kind.is_some()).map_or(0, |_| list.positions.len() as u64);
    }
    sum
}
