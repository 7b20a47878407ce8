//! Lists the queue of a graph: the threads whose tasks are due, by priority, then the oldest activity first.
//!
//! Each priority has a facet, whose rows are in the order of the last activity. Threads with checkpoints after the mark
//! follow those of the table: their activity is newer. *Absent:* leases, which a worker reads.

use super::row::{damaged_facet, queue_facet};
use super::{info, mark, sql, verify_facet};
use crate::base::limits::PRIORITY_MAX;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::read::head;
use crate::store::sqlite::view::ReadView;
use crate::store::threads::{ThreadCursor, ThreadInfo, ThreadPage, ThreadQuery};
use rusqlite::{Row, params};
use std::collections::HashSet;

/// A thread with a checkpoint after the mark.
struct TailThread {
    thread: i64,
    newest: i64,
    /// True if its newest checkpoint states a priority, or might.
    is_ranked: bool,
}

/// Offers the threads of the queue to a page.
pub(super) fn list(view: ReadView<'_>, query: &ThreadQuery, page: &mut ThreadPage<'_>) -> Res<()> {
    let Some(graph) = query.graph.as_deref() else { return Ok(()) };
    let (tail, ids) = tail(view)?;
    each_of(view, damaged_facet(view.keys), 0, &ids, &mut |_| Ok(true))?;
    let mut ranked: Vec<ThreadInfo> = Vec::new();
    for thread in tail.iter().filter(|thread| thread.is_ranked) {
        ranked.push(info(view, thread.thread, thread.newest)?);
    }
    for priority in (0..=PRIORITY_MAX).rev() {
        let after = match query.after.as_ref().map(ThreadCursor::queue_place) {
            Some((place, _)) if place > PRIORITY_MAX - priority => continue,
            Some((place, seq)) if place == PRIORITY_MAX - priority => i64::try_from(seq).unwrap_or(i64::MAX),
            _ => 0,
        };
        let facet = queue_facet(view.keys, query, graph, priority);
        if !each_of(view, facet, after, &ids, &mut |info| Ok(page.offer(info)))? {
            return Ok(());
        }
        let mut newer: Vec<ThreadInfo> = ranked.extract_if(.., |info| info.priority() == priority).collect();
        if priority == 0 {
            // The threads without a priority are read when all others are in the page.
            let plain = tail.iter().filter(|thread| !thread.is_ranked);
            newer.extend(plain.map(|thread| info(view, thread.thread, thread.newest)).collect::<Res<Vec<_>>>()?);
            newer.sort_by_key(ThreadInfo::seq);
        }
        if !newer.into_iter().all(|info| page.offer(info)) {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the threads with checkpoints after the mark, the oldest activity first, and their numbers.
fn tail(view: ReadView<'_>) -> Res<(Vec<TailThread>, HashSet<i64>)> {
    let (mut threads, mut ids) = (Vec::new(), HashSet::new());
    let mut statement = view.conn.prepare_cached(sql::TAIL_RANKED)?;
    let mut rows = statement.query(params![mark(view)?, format!("\"{}\"", ThreadInfo::PRIORITY)])?;
    while let Some(row) = rows.next()? {
        let (newest, thread, is_ranked) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if ids.insert(thread) && !has_ended(view, row)? {
            threads.push(TailThread { thread, newest, is_ranked });
        }
    }
    threads.reverse();
    Ok((threads, ids))
}

/// Returns whether the newest checkpoint of a thread is its head and has no tasks. Runs that have ended since the mark
/// are not read: a worker whose queue is short would read them at each claim.
fn has_ended(view: ReadView<'_>, row: &Row<'_>) -> Res<bool> {
    let Some(id) = row.get::<_, Option<[u8; 16]>>(3)? else { return Ok(false) };
    Ok(head::head(view.conn, view.keys, row.get(4)?)?.is_some_and(|head| *head.as_bytes() == id))
}

/// Visits the threads with a facet, the oldest activity first, but for those of the tail. Returns whether the visit
/// goes on.
fn each_of(
    view: ReadView<'_>,
    facet: i64,
    after: i64,
    tail: &HashSet<i64>,
    visit: &mut dyn FnMut(ThreadInfo) -> Res<bool>,
) -> Res<bool> {
    let mut statement = view.conn.prepare_cached(sql::FACET_OLDEST)?;
    let mut rows = statement.query(params![facet, after])?;
    while let Some(row) = rows.next()? {
        let (newest, thread): (i64, i64) = (row.get(0)?, row.get(1)?);
        if tail.contains(&thread) {
            continue;
        }
        verify_facet(view, facet, thread, newest)?;
        if !visit(info(view, thread, newest)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}
