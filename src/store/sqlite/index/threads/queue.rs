//! Lists the queue of a graph: the threads whose tasks are due, by priority, then the oldest activity first.
//!
//! Each priority has a facet, whose rows are in the order of the last activity. Threads with checkpoints after the mark
//! follow those of the table: their activity is newer. *Absent:* leases, which a worker reads.

use super::row::{damaged_facet, queue_facet};
use super::{info, mark, sql, verify_facet};
use crate::base::limits::PRIORITY_MAX;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::head;
use crate::store::sqlite::view::ReadView;
use crate::store::threads::{ThreadCursor, ThreadInfo, ThreadPage, ThreadQuery};
use rusqlite::params;
use std::collections::HashSet;

/// A checkpoint after the mark, of a root namespace.
#[derive(Clone, Copy, Debug)]
struct TailRow {
    thread: i64,
    seq: i64,
    /// True if it states a priority, or might.
    is_ranked: bool,
    /// Its id and its namespace if it has no tasks.
    end: Option<([u8; 16], i64)>,
}

/// The checkpoints after the mark. The writer retains those of the last claim, so that the next one reads what was
/// added since: a worker claims once for some checkpoints, and up to 128 are after the mark.
#[derive(Debug, Default)]
pub(crate) struct QueueTail {
    /// In the order of the log.
    rows: Vec<TailRow>,
    mark: i64,
}

impl QueueTail {
    /// Reads the checkpoints that were added.
    pub(crate) fn follow(&mut self, view: ReadView<'_>) -> Res<()> {
        let mark = mark(view)?;
        if mark < self.mark {
            self.rows.clear();
        }
        self.mark = mark;
        self.rows.retain(|row| row.seq > mark);
        let last = self.rows.last().map_or(mark, |row| row.seq);
        type Columns = (i64, i64, bool, Option<[u8; 16]>, i64);
        let added: Vec<Columns> =
            view.conn.all(sql::TAIL_RANKED, params![last, format!("\"{}\"", ThreadInfo::PRIORITY)])?;
        self.rows.extend(added.into_iter().map(|(seq, thread, is_ranked, id, namespace)| TailRow {
            seq,
            thread,
            is_ranked,
            end: id.map(|id| (id, namespace)),
        }));
        Ok(())
    }

    /// Returns the newest row of each thread, the oldest activity first, and the numbers of the threads.
    fn threads(&self) -> (Vec<TailRow>, HashSet<i64>) {
        let mut ids = HashSet::new();
        let mut threads: Vec<TailRow> = self.rows.iter().rev().filter(|row| ids.insert(row.thread)).copied().collect();
        threads.reverse();
        (threads, ids)
    }
}

/// Offers the threads of the queue to a page, but for those that `admits` does not let pass.
pub(super) fn list(
    view: ReadView<'_>,
    query: &ThreadQuery,
    tail: &QueueTail,
    admits: &mut dyn FnMut(i64) -> Res<bool>,
    page: &mut ThreadPage<'_>,
) -> Res<()> {
    let Some(graph) = query.graph.as_deref() else { return Ok(()) };
    let (tail, ids) = tail.threads();
    each_of(view, damaged_facet(view.keys), 0, &ids, &mut |_| Ok(true), &mut |_| Ok(true))?;
    let mut ranked: Vec<ThreadInfo> = Vec::new();
    for row in tail.iter().filter(|row| row.is_ranked) {
        if admits(row.thread)? {
            ranked.extend(unended(view, row)?);
        }
    }
    for priority in (0..=PRIORITY_MAX).rev() {
        let after = match query.after.as_ref().map(ThreadCursor::queue_place) {
            Some((place, _)) if place > PRIORITY_MAX - priority => continue,
            Some((place, seq)) if place == PRIORITY_MAX - priority => i64::try_from(seq).unwrap_or(i64::MAX),
            _ => 0,
        };
        let facet = queue_facet(view.keys, query, graph, priority);
        if !each_of(view, facet, after, &ids, admits, &mut |info| Ok(page.offer(info)))? {
            return Ok(());
        }
        let mut newer: Vec<ThreadInfo> = ranked.extract_if(.., |info| info.priority == priority).collect();
        if priority == 0 {
            // The threads without a priority are read when all others are in the page.
            for row in tail.iter().filter(|row| !row.is_ranked) {
                if admits(row.thread)? {
                    newer.extend(unended(view, row)?);
                }
            }
            newer.sort_by_key(|info| info.seq);
        }
        if !newer.into_iter().all(|info| page.offer(info)) {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a thread, unless its newest checkpoint is its head and has no tasks: a worker whose queue is short would read
/// the runs that have ended since the mark at each claim.
fn unended(view: ReadView<'_>, row: &TailRow) -> Res<Option<ThreadInfo>> {
    if let Some((id, namespace)) = row.end
        && head::head(view.conn, view.keys, namespace)?.is_some_and(|head| *head.as_bytes() == id)
    {
        return Ok(None);
    }
    info(view, row.thread, row.seq).map(Some)
}

/// Visits the threads with a facet, the oldest activity first, but for those of the tail and those that `admits` does
/// not let pass. Returns whether the visit goes on.
fn each_of(
    view: ReadView<'_>,
    facet: i64,
    after: i64,
    tail: &HashSet<i64>,
    admits: &mut dyn FnMut(i64) -> Res<bool>,
    visit: &mut dyn FnMut(ThreadInfo) -> Res<bool>,
) -> Res<bool> {
    view.conn.each_while(sql::FACET_OLDEST, [facet, after], |row| {
        let (newest, thread): (i64, i64) = FromColumns::read(row, 0)?;
        if tail.contains(&thread) || !admits(thread)? {
            return Ok(true);
        }
        verify_facet(view, facet, thread, newest)?;
        visit(info(view, thread, newest)?)
    })
}
