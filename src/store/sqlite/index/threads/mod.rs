//! Listings of threads, and the table by which they are found.
//!
//! The table follows the log: its mark names the last checkpoint that it follows, and a commit that leaves too many
//! after it follows the next ones in its own transaction. So a commit pays for the table once in many. A listing by
//! activity begins with the threads that have newer checkpoints, which it finds by a scan of the rest of the log, and
//! goes on in the table. The facts and the status in a listing are derived from the log; the table leads to the
//! threads, and counts their messages, tokens and costs. *Absent:* the filters, which [`ThreadPage`] applies to the
//! facts of each thread.
//!
//! Invariant: if the newest checkpoint of the root namespace of a thread is not above the mark, its row in the table
//! follows from the log. Operations and writes without a checkpoint renew the row. The row of any thread counts the
//! tokens and the costs of its checkpoints up to the mark.

mod check;
mod counts;
mod queue;
mod row;
mod rows;
mod sql;
pub(crate) mod unfollowed;

pub(crate) use self::counts::has_older_tokens;
use self::counts::{counted, usage_of_checkpoint, usage_of_thread};
pub(crate) use self::queue::QueueTail;
pub(crate) use self::row::undamaged;
use self::row::{StateRow, damaged_facet, facet_of, hide};
pub(crate) use self::rows::rows;
use crate::base::{Namespace, ThreadId};
use crate::limits::{THREADS_FOLLOWED_MAX, THREADS_TAIL_MAX};
use crate::store::batch::NewWrites;
use crate::store::counts::ThreadCounts;
use crate::store::record::{CheckpointRecord, CheckpointRef};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::index::projection::Projection;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::head;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use crate::store::status::{PARTIAL, StatusKind};
use crate::store::threads::{ThreadInfo, ThreadOrder, ThreadPage, ThreadQuery};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashSet};

/// The number of the row that holds the mark.
const MARK: i64 = 0;

/// The table of threads.
#[derive(Debug)]
pub(crate) struct ThreadStates;

impl Projection for ThreadStates {
    fn behind(&self, conn: &Connection, caches: &mut Caches) -> Res<u64> {
        let mark = marked(conn, caches)?;
        let behind: i64 = conn.one(sql::BEHIND, [mark])?;
        Ok(behind.unsigned_abs())
    }

    fn follow(&self, conn: &Connection, caches: &mut Caches) -> Res<()> {
        follow(conn, caches)
    }

    fn follow_bytes(&self) -> usize {
        // The rows of a thread and of its facets.
        256 * THREADS_FOLLOWED_MAX as usize
    }

    fn clear(&self, conn: &Connection, caches: &mut Caches) -> Res<()> {
        conn.execute_batch(sql::CLEAR)?;
        set_mark(conn, caches, 0)
    }

    fn prune(&self, conn: &Connection, caches: &Caches, thread: &ThreadId) -> Res<()> {
        uncount(conn, caches, thread)
    }

    fn recount(&self, conn: &Connection, caches: &mut Caches, thread: &ThreadId) -> Res<()> {
        count(conn, caches, thread)
    }

    fn hide(&self, conn: &Connection, caches: &Caches, thread: i64) -> Res<()> {
        hide(conn, &caches.keys, thread)
    }
}

/// Counts the tokens and the costs of a thread whose row has no counts.
fn count(conn: &Connection, caches: &mut Caches, thread: &ThreadId) -> Res<()> {
    let mark = marked(conn, caches)?;
    let view = caches.view(conn);
    let Some(thread) = neighbors::thread_number(conn, thread)? else { return Ok(()) };
    let Some(Some(mut row)) = undamaged(StateRow::read(conn, view.keys, thread))? else { return Ok(()) };
    if row.counts.is_none() {
        row.counts = undamaged(usage_of_thread(view, thread, mark))?;
        if let Some(counts) = &mut row.counts
            && let Some(info) = undamaged(info(view, thread, row.newest))?
        {
            counts.messages = undamaged(counts::messages(view, &info, None))?.unwrap_or(0);
        }
        row.put(conn, view.keys)?;
    }
    Ok(())
}

/// Takes the counts of a thread out of its row, of which checkpoints are pruned: until they are counted anew, a listing
/// counts them.
fn uncount(conn: &Connection, caches: &Caches, thread: &ThreadId) -> Res<()> {
    let Some(thread) = neighbors::thread_number(conn, thread)? else { return Ok(()) };
    match undamaged(StateRow::read(conn, &caches.keys, thread))?.flatten() {
        Some(row) if row.counts.is_some() => StateRow { counts: None, ..row }.put(conn, &caches.keys),
        _ => Ok(()),
    }
}

/// Returns the mark that a file holds.
fn mark(view: ReadView<'_>) -> Res<i64> {
    Ok(StateRow::read(view.conn, view.keys, MARK)?.map_or(0, |row| row.newest))
}

/// Returns the mark, as the open transaction sees it.
fn marked(conn: &Connection, caches: &mut Caches) -> Res<i64> {
    match caches.followed {
        Some(mark) => Ok(mark),
        // A mark that is damaged counts as the beginning of the log: all threads are followed anew.
        None => {
            let mark = undamaged(mark(caches.view(conn)))?.unwrap_or(0);
            caches.followed = Some(mark);
            Ok(mark)
        }
    }
}

fn set_mark(conn: &Connection, caches: &mut Caches, mark: i64) -> Res<()> {
    let row = StateRow { thread: MARK, newest: mark, status: None, facets: Vec::new(), counts: None };
    row.put(conn, &caches.keys)?;
    caches.followed = Some(mark);
    Ok(())
}

/// Follows the log after a batch of which the last checkpoint is `last`, if too many checkpoints are not followed.
pub(crate) fn after_checkpoints(conn: &Connection, caches: &mut Caches, last: i64) -> Res<()> {
    if last.saturating_sub(marked(conn, caches)?) < THREADS_TAIL_MAX {
        return Ok(());
    }
    // Damage of the table must not refuse this batch, and is met once in as many checkpoints. A check reports it.
    let followed = follow(conn, caches);
    if undamaged(followed)?.is_none() {
        caches.followed = Some(last);
    }
    Ok(())
}

/// Renews the row of a thread that changed without a checkpoint of its root namespace, whose newest is `newest`.
pub(crate) fn after_change(conn: &Connection, caches: &mut Caches, namespace: i64, newest: i64) -> Res<()> {
    let mark = marked(conn, caches)?;
    if newest > mark {
        return Ok(());
    }
    debug_assert!(newest > 0, "a thread has a checkpoint");
    let thread = conn.one(log_sql::NAMESPACE_THREAD, [namespace])?;
    undamaged(renew(caches.view(conn), mark, thread, newest)).map(|_| ())
}

/// Renews the row of the thread of the batch after writes of its tasks, given its newest checkpoint. Its status is
/// derived again only if these writes may change it: a superstep of many tasks is many batches.
pub(crate) fn after_writes(conn: &Connection, caches: &mut Caches, newest: i64, writes: &[NewWrites]) -> Res<()> {
    let mark = marked(conn, caches)?;
    if newest > mark {
        return Ok(());
    }
    let thread = caches.thread;
    let row = undamaged(StateRow::read(conn, &caches.keys, thread))?.flatten();
    let has_partial = row.as_ref().is_some_and(|row| row.is_partial(&caches.keys));
    let of_number = |number: i64| usize::try_from(number).ok().and_then(|number| StatusKind::ALL.get(number));
    match row.and_then(|row| row.status).and_then(of_number) {
        Some(status) if status.remains(writes) && !changes_partial(writes, has_partial) => Ok(()),
        _ => undamaged(renew(caches.view(conn), mark, thread, newest)).map(|_| ()),
    }
}

/// Returns whether writes set or clear a partial message, or may end the task of the one that there is.
fn changes_partial(writes: &[NewWrites], has_partial: bool) -> bool {
    let mut all = writes.iter().flat_map(|task| &task.writes);
    all.any(|write| write.index == PARTIAL.1 || has_partial && write.index >= 0)
}

/// The checkpoints of a thread that the table follows in one step.
#[derive(Default)]
struct FollowedThread {
    seqs: Vec<i64>,
    /// The root namespace and its last checkpoint among them.
    root: Option<(i64, i64)>,
}

/// Follows the next checkpoints, as many as one transaction may.
fn follow(conn: &Connection, caches: &mut Caches) -> Res<()> {
    let stored = undamaged(mark(caches.view(conn)))?.unwrap_or(0);
    let mut mark = stored;
    let mut threads: BTreeMap<i64, FollowedThread> = BTreeMap::new();
    let mut owners: BTreeMap<i64, Option<(i64, bool)>> = BTreeMap::new();
    for (seq, namespace) in next(conn, caches, stored)? {
        // A table that goes back would never come to the end of the log.
        if seq <= mark {
            return Err(corrupt(format!("checkpoint {seq}"), "the log gives it out of order"));
        }
        mark = seq;
        let owner = match owners.get(&namespace) {
            Some(owner) => *owner,
            None => *owners.entry(namespace).or_insert(conn.first(sql::THREAD_OF, [namespace])?),
        };
        let Some((thread, is_root)) = owner else { continue };
        let followed = threads.entry(thread).or_default();
        followed.seqs.push(mark);
        if is_root {
            followed.root = Some((namespace, mark));
        }
    }
    for (thread, followed) in threads {
        follow_thread(caches, conn, mark, thread, &followed)?;
    }
    caches.unfollowed.followed(mark);
    set_mark(conn, caches, mark)
}

/// Returns the next checkpoints after the mark, as many as one transaction may follow, each with its namespace. Those
/// that this handle has written are known.
fn next(conn: &Connection, caches: &Caches, mark: i64) -> Res<Vec<(i64, i64)>> {
    let scan = || conn.all(sql::NEXT, [mark, THREADS_FOLLOWED_MAX]);
    let last = caches.next_seq.map(|next| (next - 1).min(mark.saturating_add(THREADS_FOLLOWED_MAX)));
    match last.and_then(|last| caches.unfollowed.all_between(mark, last)) {
        Some(known) => {
            debug_assert!(scan().map_or(true, |read| read == known), "the checkpoints that were noted");
            Ok(known)
        }
        None => scan(),
    }
}

/// Adds the tokens and the costs of the next checkpoints to the row of their thread, and renews it if the newest one is
/// among them.
fn follow_thread(caches: &Caches, conn: &Connection, mark: i64, thread: i64, followed: &FollowedThread) -> Res<()> {
    let view = caches.view(conn);
    let usage_of = |seq: i64| match caches.unfollowed.usage(seq) {
        Some(usage) => {
            debug_assert!(usage_of_checkpoint(view, seq).map_or(true, |read| read == usage), "checkpoint {seq}");
            Ok(usage)
        }
        None => usage_of_checkpoint(view, seq),
    };
    let row = undamaged(StateRow::read(view.conn, view.keys, thread))?.flatten();
    let usage = match &row {
        Some(row) => match row.counts {
            Some(mut counts) => {
                let mut add = || {
                    followed.seqs.iter().try_for_each(|seq| {
                        counts.add_usage(usage_of(*seq)?);
                        Ok(())
                    })
                };
                undamaged(add())?.map(|()| counts)
            }
            None => None,
        },
        None => undamaged(usage_of_thread(view, thread, mark))?,
    };
    let newest = match followed.root {
        Some((namespace, _)) => head::newest(view.conn, namespace)?.map(|(newest, _)| newest),
        None => None,
    };
    match (followed.root, row) {
        (Some((_, seq)), _) if newest == Some(seq) => {
            derived(view, thread, seq, usage, Some(caches))?.put(view.conn, view.keys)
        }
        // A thread with newer checkpoints is followed with these. Its row counts those up to the mark.
        (_, Some(row)) => StateRow { counts: usage, ..row }.put(view.conn, view.keys),
        (Some((_, seq)), None) => {
            let row = StateRow { thread, newest: seq, status: None, facets: Vec::new(), counts: usage };
            row.put(view.conn, view.keys)
        }
        // A thread is listed from the first checkpoint of its root namespace on.
        (None, None) => Ok(()),
    }
}

/// Derives the row of a thread from the log, and writes it. It goes on with the tokens and the costs that it has.
fn renew(view: ReadView<'_>, mark: i64, thread: i64, newest: i64) -> Res<()> {
    let usage = match undamaged(StateRow::read(view.conn, view.keys, thread))?.flatten() {
        Some(row) => row.counts,
        None => undamaged(usage_of_thread(view, thread, mark))?,
    };
    derived(view, thread, newest, usage, None)?.put(view.conn, view.keys)
}

/// Derives the row of a thread from the log, but for its tokens and costs. `known` holds what the writer knows of it.
fn derived(
    view: ReadView<'_>,
    thread: i64,
    newest: i64,
    usage: Option<ThreadCounts>,
    known: Option<&Caches>,
) -> Res<StateRow> {
    let is_bare = |head: &CheckpointRef| known.is_some_and(|known| known.is_bare(head));
    let info = undamaged(info_but_writes(view, thread, newest, &is_bare))?;
    let messages = match info.as_ref().zip(usage) {
        Some((info, _)) => undamaged(counts::messages(view, info, known.map(|known| &known.places)))?,
        None => None,
    };
    let counts = usage.zip(messages).map(|(usage, messages)| ThreadCounts { messages, ..usage });
    let info = info.map(|info| ThreadInfo { counts, ..info });
    Ok(StateRow::of(view.keys, thread, newest, info.as_ref()))
}

/// Reads a thread whose newest checkpoint is known.
fn info(view: ReadView<'_>, thread: i64, newest: i64) -> Res<ThreadInfo> {
    info_but_writes(view, thread, newest, &|_| false)
}

/// Reads a thread. The writes of its head are not read if it is known to have none.
fn info_but_writes(
    view: ReadView<'_>,
    thread: i64,
    newest: i64,
    has_no_writes: &dyn Fn(&CheckpointRef) -> bool,
) -> Res<ThreadInfo> {
    let wrong = |reason: &str| corrupt(format!("thread {thread}"), reason);
    let id: Option<String> = view.conn.first(log_sql::PUBLIC_ID, [thread])?;
    let id = id.ok_or_else(|| wrong("the table of threads has it, but it does not exist"))?;
    let id = ThreadId::new(id).map_err(|_| wrong("its id does not match the format"))?;
    let head = view.head(&id, &Namespace::root())?.ok_or_else(|| wrong("it has no head"))?;
    let has_none = has_no_writes(&head.point);
    debug_assert!(!has_none || view.writes(&head.point).map_or(true, |writes| writes.is_empty()), "the head is bare");
    with_head(view, head, newest, has_none)
}

fn with_head(view: ReadView<'_>, head: CheckpointRecord, newest: i64, has_no_writes: bool) -> Res<ThreadInfo> {
    let missing = || corrupt(format!("checkpoint {newest}"), "it is missing");
    let updated_at = match head.seq as i64 == newest {
        true => head.created_at,
        false => view.by_seq(newest)?.ok_or_else(missing)?.created_at,
    };
    let fields = view.fields(&head.point.thread)?;
    // A head without tasks may have a partial message.
    let writes = if has_no_writes { Vec::new() } else { view.writes(&head.point)? };
    let seq = u64::try_from(newest).map_err(|_| corrupt(format!("checkpoint {newest}"), "its number is negative"))?;
    Ok(ThreadInfo::new(head, seq, updated_at, fields, &writes)?)
}

/// Returns a thread; `None` if it has no checkpoint in its root namespace.
pub(crate) fn of_id(view: ReadView<'_>, id: &ThreadId) -> Res<Option<ThreadInfo>> {
    let Some(info) = uncounted(view, id)? else { return Ok(None) };
    Ok(counted(view, vec![info])?.pop())
}

/// Returns a thread without counts; `None` if it has no checkpoint in its root namespace.
pub(crate) fn uncounted(view: ReadView<'_>, id: &ThreadId) -> Res<Option<ThreadInfo>> {
    let root = Namespace::root();
    let Some(head) = view.head(id, &root)? else { return Ok(None) };
    let Some(namespace) = view.namespace(id, &root)? else { return Ok(None) };
    let Some((newest, _)) = head::newest(view.conn, namespace)? else { return Ok(None) };
    with_head(view, head, newest, false).map(Some)
}

/// Returns the page of a listing.
pub(crate) fn list(view: ReadView<'_>, query: &ThreadQuery) -> Res<Vec<ThreadInfo>> {
    counted(view, list_uncounted(view, query)?)
}

/// Returns the page of a queue, without counts, of the threads whose numbers `admits` lets pass. `tail` has followed
/// the log.
pub(crate) fn list_queue(
    view: ReadView<'_>,
    query: &ThreadQuery,
    tail: &QueueTail,
    admits: &mut dyn FnMut(i64) -> Res<bool>,
) -> Res<Vec<ThreadInfo>> {
    debug_assert_eq!(query.order, ThreadOrder::Queue, "the tail is that of a queue");
    let mut page = ThreadPage::new(query);
    if !page.is_full() {
        queue::list(view, query, tail, admits, &mut page)?;
    }
    Ok(page.into_threads())
}

/// Returns the page of a listing, without counts.
fn list_uncounted(view: ReadView<'_>, query: &ThreadQuery) -> Res<Vec<ThreadInfo>> {
    let mut page = ThreadPage::new(query);
    if !page.is_full() {
        match query.order {
            ThreadOrder::Activity => by_activity(view, query, &mut page)?,
            ThreadOrder::Id => by_id(view, query, &mut page)?,
            ThreadOrder::Queue => {
                let mut tail = QueueTail::default();
                tail.follow(view)?;
                queue::list(view, query, &tail, &mut |_| Ok(true), &mut page)?;
            }
        }
    }
    Ok(page.into_threads())
}

fn by_activity(view: ReadView<'_>, query: &ThreadQuery, page: &mut ThreadPage<'_>) -> Res<()> {
    let before = query.after.as_ref().map_or(i64::MAX, |after| i64::try_from(after.seq).unwrap_or(i64::MAX));
    let mark = mark(view)?;
    let mut tail = HashSet::new();
    let mut goes_on = view.conn.each_while(sql::TAIL, [mark], |row| {
        let (seq, thread): (i64, i64) = FromColumns::read(row, 0)?;
        Ok(!(tail.insert(thread) && seq < before) || page.offer(info(view, thread, seq)?))
    })?;
    for facet in [damaged_facet(view.keys), facet_of(view.keys, query)] {
        goes_on = goes_on
            && view.conn.each_while(sql::FACET, [facet, before], |row| {
                let (newest, thread): (i64, i64) = FromColumns::read(row, 0)?;
                if tail.contains(&thread) {
                    return Ok(true);
                }
                verify_facet(view, facet, thread, newest)?;
                // The error of damaged rows ends the listing.
                let info = info(view, thread, newest)?;
                Ok(facet == damaged_facet(view.keys) || page.offer(info))
            })?;
    }
    Ok(())
}

/// Verifies that an entry by which a listing finds a thread is one of its row.
fn verify_facet(view: ReadView<'_>, facet: i64, thread: i64, newest: i64) -> Res<()> {
    let stored = StateRow::read(view.conn, view.keys, thread)?;
    if stored.is_none_or(|row| row.newest != newest || !row.facets.contains(&facet)) {
        return Err(corrupt(format!("thread_facet of thread {thread}"), "it is not one of its row"));
    }
    Ok(())
}

fn by_id(view: ReadView<'_>, query: &ThreadQuery, page: &mut ThreadPage<'_>) -> Res<()> {
    let mut after = query.after.as_ref().map(|after| after.id.clone());
    loop {
        let threads = view.threads(after.as_ref(), THREADS_TAIL_MAX as usize)?;
        let Some(last) = threads.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for thread in threads {
            if let Some(info) = uncounted(view, &thread.id)?
                && !page.offer(info)
            {
                return Ok(());
            }
        }
    }
}
