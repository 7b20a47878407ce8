//! Pruning: checkpoints lose what no kept checkpoint shows.
//!
//! A pruned checkpoint retains its row of `checkpoint`, with its place, its time and its checksum, and its source is
//! negative. So ordinals, parents and the chain of checksums stay, and every ordinal of a branch has a row of
//! `version`. A slice prunes the next checkpoints of a branch in one transaction, the oldest first; the state before
//! the next checkpoint decides which of their rows stay. *Absent:* which checkpoints go, but for those that others rest
//! on.
//!
//! Invariant: after each slice the rows that a checkpoint shows which is not pruned are as they were before.

mod gone;
mod namespaces;
mod slice;
mod sql;

pub(crate) use namespaces::{NamespaceRemoval, detach, estimate as estimate_namespaces};

use crate::base::{Namespace, ThreadId};
use crate::limits::{PRUNE_CHECKPOINTS_MAX, PRUNE_ESTIMATED_MAX};
use crate::store::prune::{PruneSpan, Pruned};
use crate::store::sqlite::commit::caches;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::{Res, corrupt, invalid};
use crate::store::sqlite::index::PROJECTIONS;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::head;
use crate::store::sqlite::read::lineage;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::unpack_reference;
use crate::store::sqlite::rows::source::{is_pruned_column, pruned_below};
use crate::store::sqlite::rows::version;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use parking_lot::Mutex;
use rusqlite::Connection;
use slice::PruneSlice;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A slice of a pruning: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct PruneJob {
    pub(crate) thread: ThreadId,
    /// The checkpoints that are left.
    pub(crate) span: PruneSpan,
    pub(crate) state: Arc<Mutex<PruneState>>,
}

/// The state that the slices of one call share.
#[derive(Debug, Default)]
pub(crate) struct PruneState {
    /// The checkpoints that cannot be pruned, as of a mark.
    held: Option<(PruneMark, BTreeSet<(i64, i64)>)>,
    /// The first ordinal after the slice; `None` if no checkpoint of the span is left.
    next: Option<u64>,
    /// The report of the slice.
    pruned: Pruned,
}

impl PruneState {
    /// Returns the figures of the last slice, and the first ordinal after it if checkpoints of the span are left.
    pub(crate) fn taken(&mut self) -> (Pruned, Option<u64>) {
        (std::mem::take(&mut self.pruned), self.next.take())
    }
}

/// The greatest ids of checkpoints, branches and operations: while they stay, no checkpoint becomes one that cannot be
/// pruned.
type PruneMark = (i64, i64, i64);

fn mark(conn: &Connection) -> Res<PruneMark> {
    conn.one(sql::MARK, [])
}

/// Prunes the next checkpoints of a span in the transaction that is open.
pub(crate) fn step(conn: &Connection, caches: &mut Caches, job: &PruneJob) -> Res<()> {
    caches::refresh(conn, caches)?;
    let mut state = job.state.lock();
    (state.next, state.pruned) = (None, Pruned::default());
    let view = caches.view(conn);
    let Some((branch, first, last)) = place(view, &job.thread, &job.span)? else { return Ok(()) };
    let mark = mark(conn)?;
    if state.held.as_ref().is_none_or(|(of, _)| *of != mark) {
        state.held = Some((mark, unprunable(view, &job.thread, &[])?));
    }
    let held = state.held.as_ref().map(|(_, held)| held);
    let stays = |ordinal: i64| held.is_some_and(|held| held.contains(&(branch, ordinal)));
    let slice = PruneSlice::next(view, (branch, first, last), PRUNE_CHECKPOINTS_MAX, &stays)?;
    let Some(slice) = slice else { return Ok(()) };
    PROJECTIONS.iter().try_for_each(|projection| projection.prune(conn, caches, &job.thread))?;
    let next = slice.last + 1;
    let pruned = slice.prune()?;
    (state.pruned, state.next) = (pruned, u64::try_from(next).ok().filter(|_| next <= last));
    caches.erased();
    Ok(())
}

/// Returns the branch of a span and the ordinals on it; `None` if the thread does not exist, or nothing can be pruned.
fn place(view: ReadView<'_>, thread: &ThreadId, span: &PruneSpan) -> Res<Option<(i64, i64, i64)>> {
    let Some(thread) = neighbors::thread_number(view.conn, thread)? else { return Ok(None) };
    let branch = i64::try_from(span.branch).unwrap_or(i64::MAX);
    if view.conn.first(log_sql::BRANCH_THREAD, [branch])? != Some(thread) {
        return Err(invalid("prune.branch", format!("{branch} is not a branch of the thread")));
    }
    let end = last_ordinal(view.conn, branch)?;
    let start = lineage::branch(view.conn, branch)?.upto.map_or(0, |upto| upto.saturating_add(1));
    let number = |ordinal: u64| i64::try_from(ordinal).unwrap_or(i64::MAX);
    // The last checkpoint of a branch stays.
    Ok(Some((branch, number(span.first).max(start), number(span.last).min(end.saturating_sub(1)))))
}

fn last_ordinal(conn: &Connection, branch: i64) -> Res<i64> {
    let last: Option<i64> = conn.one(sql::LAST_ORDINAL, [branch])?;
    last.ok_or_else(|| corrupt(format!("branch {branch}"), "the rows of its checkpoints are missing"))
}

/// Returns the places of the checkpoints of a thread that cannot be pruned once the namespaces `without` are gone; of
/// these, the places on which something else rests, or which stay for another reason.
pub(crate) fn unprunable(view: ReadView<'_>, thread: &ThreadId, without: &[Namespace]) -> Res<BTreeSet<(i64, i64)>> {
    let conn = view.conn;
    let without = namespaces::numbers(view, thread, without)?;
    let Some(thread) = neighbors::thread_number(conn, thread)? else { return Ok(BTreeSet::new()) };
    let mut needed = BTreeSet::new();
    for namespace in &without {
        if namespaces::is_needed(view, thread, *namespace)? {
            needed.insert(*namespace);
        }
    }
    let mut found: BTreeSet<(i64, i64)> = conn.all(sql::FORKED_PLACES, [thread])?;
    let (mut namespaces, mut targets) = (BTreeSet::new(), BTreeSet::new());
    type Branch = (i64, Option<i64>, Option<i64>, i64);
    for (branch, parent, upto, namespace) in conn.all::<Branch, Vec<_>>(sql::BRANCHES_OF_THREAD, [thread])? {
        if needed.contains(&namespace) {
            found.insert((branch, last_ordinal(conn, branch)?));
        }
        if without.contains(&namespace) {
            continue;
        }
        found.extend(parent.zip(upto));
        let last = last_ordinal(conn, branch)?;
        found.insert((branch, last));
        namespaces.insert(namespace);
        for key in lineage::newest(view, branch, last)?.into_values().filter(|row| is_channel(row.kind)) {
            let channel = view.names.text(conn, Kind::Channel, key.key)?;
            let Some(list) = view.names.find(conn, Kind::List, &channel)? else { continue };
            for packed in conn.all::<Vec<u8>, Vec<_>>(sql::REFERENCES, [branch, list])? {
                let wrong =
                    || corrupt(format!("item (branch {branch}, channel {list})"), "a reference cannot be decoded");
                targets.insert(unpack_reference(&packed).ok_or_else(wrong)?.0);
            }
        }
    }
    for namespace in namespaces {
        if let Some((newest, _)) = head::newest(conn, namespace)? {
            targets.extend(head::moved(conn, view.keys, namespace, newest)?.flatten());
        }
        targets.extend(view.named_branches(namespace)?);
    }
    for seq in targets {
        found.extend(conn.first::<(i64, i64)>(log_sql::PLACE_OF_SEQ, [seq])?);
    }
    Ok(found)
}

fn is_channel(kind: i64) -> bool {
    matches!(kind, version::EMPTY | version::VALUE | version::LIST)
}

/// Estimates the report of a pruning.
pub(crate) fn estimate(view: ReadView<'_>, thread: &ThreadId, spans: &[PruneSpan]) -> Res<Pruned> {
    let held = unprunable(view, thread, &[])?;
    let mut sum = Pruned::default();
    for span in spans {
        let Some((branch, mut first, last)) = place(view, thread, span)? else { continue };
        let stays = |ordinal: i64| held.contains(&(branch, ordinal));
        while let Some(mut slice) = PruneSlice::next(view, (branch, first, last), PRUNE_ESTIMATED_MAX, &stays)? {
            first = slice.last + 1;
            // The next checkpoint that stays decides, however many slices there will be.
            let kept = held.range((branch, first)..).next().filter(|(of, ordinal)| *of == branch && *ordinal <= last);
            let kept = kept.map_or(last + 1, |(_, ordinal)| *ordinal);
            slice.top = slice.top.max(kept);
            sum.add(slice.estimate()?);
        }
    }
    Ok(sum)
}

/// Returns whether the checkpoint at a place was pruned, and how many before it, as it knows of.
fn pruned_at(conn: &Connection, branch: i64, ordinal: i64) -> Res<Option<i64>> {
    let seq = seq_at(conn, branch, ordinal)?;
    let found: Option<(i64, Option<Vec<u8>>)> = conn.first(sql::SOURCE_AND_PARENTS, [seq])?;
    let found = found.filter(|(source, _)| is_pruned_column(*source));
    Ok(found.map(|(_, parents)| pruned_below(parents.as_deref())))
}

/// Returns the `seq` of the checkpoint at a place.
fn seq_at(conn: &Connection, branch: i64, ordinal: i64) -> Res<i64> {
    let seq = conn.first(sql::SEQ_AT_PLACE, [branch, ordinal])?;
    seq.ok_or_else(|| {
        corrupt(format!("version (branch {branch}, ordinal {ordinal})"), "the rows of the checkpoint are missing")
    })
}
