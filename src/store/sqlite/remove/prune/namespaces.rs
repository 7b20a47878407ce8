//! Namespaces that are pruned as a whole: those of subgraphs whose tasks do not run again.
//!
//! The row of such a namespace gets the number of a thread that does not exist, and this thread a tombstone. From this
//! commit on no read finds the namespace, and the erasure of deleted threads reclaims its rows. *Absent:* which
//! namespaces go, but for those on which something rests.
//!
//! Invariant: no row that stays refers to a checkpoint of a namespace that goes.

use super::{sql, unprunable};
use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::counts::pruned_metadata;
use crate::store::prune::Pruned;
use crate::store::sqlite::commit::caches;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::commit::ids::Table;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::index::PROJECTIONS;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::head;
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::source::is_pruned_column;
use crate::store::sqlite::side::timer;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::tables::{Bare, Checked, TableRow, checkpoint, namespace, tombstone};
use crate::store::sqlite::view::ReadView;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The namespaces of a thread that are to go, each with its newest checkpoint as it was when that was decided.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceRemoval {
    pub(crate) thread: ThreadId,
    pub(crate) namespaces: Vec<(Namespace, CheckpointId)>,
    /// The report.
    pub(crate) pruned: Arc<Mutex<Pruned>>,
}

/// Takes namespaces out of their thread, in the transaction that is open.
pub(crate) fn detach(conn: &Connection, caches: &mut Caches, removal: &NamespaceRemoval) -> Res<()> {
    caches::refresh(conn, caches)?;
    let found = removable(caches.view(conn), &removal.thread, &removal.namespaces)?;
    if found.is_empty() {
        return Ok(());
    }
    let pruned = sum_of(caches.view(conn), &found)?;
    PROJECTIONS.iter().try_for_each(|projection| projection.prune(conn, caches, &removal.thread))?;
    conn.run(log_sql::HIGH_WATER_RAISE, [])?;
    conn.run(log_sql::ERASE_BEGIN, [])?;
    let number = caches.ids.next(conn, Table::Thread)?;
    // No row of `thread` has the number, so it counts as used by this alone.
    conn.run(sql::THREAD_USED, [number])?;
    tombstone::Row { thread: number, state: 0 }.insert(conn)?;
    for (id, path) in &found {
        timer::delete_all(conn, *id)?;
        conn.run(namespace::Row::DELETE, [id])?;
        namespace::Row { id: *id, thread: number, path: path.as_str() }.insert(conn)?;
    }
    conn.run(log_sql::ERASE_END, [])?;
    caches.erased();
    PROJECTIONS.iter().try_for_each(|projection| projection.recount(conn, caches, &removal.thread))?;
    *removal.pruned.lock() = pruned;
    Ok(())
}

/// Returns the numbers of the namespaces that still end with the given checkpoints, and on which nothing rests but one
/// another.
fn removable(
    view: ReadView<'_>,
    thread: &ThreadId,
    namespaces: &[(Namespace, CheckpointId)],
) -> Res<Vec<(i64, Namespace)>> {
    let mut found = BTreeMap::new();
    for (path, newest) in namespaces.iter().filter(|(path, _)| !path.is_root()) {
        let Some(id) = view.namespace(thread, path)? else { continue };
        if head::newest(view.conn, id)?.is_some_and(|(_, stored)| stored == *newest) {
            found.insert(id, path.clone());
        }
    }
    let mut found: Vec<(i64, Namespace)> = found.into_iter().collect();
    loop {
        let paths: Vec<Namespace> = found.iter().map(|(_, path)| path.clone()).collect();
        let held: BTreeSet<i64> = unprunable(view, thread, &paths)?.into_iter().map(|(branch, _)| branch).collect();
        let before = found.len();
        for branch in held {
            let namespace: Option<i64> = view.conn.first(sql::BRANCH_NAMESPACE, [branch])?;
            found.retain(|(id, _)| Some(*id) != namespace);
        }
        if found.len() == before {
            return Ok(found);
        }
    }
}

/// Returns whether a namespace stays whatever a plan says: the thread begins with it, an operation names it, it begins
/// with a checkpoint of another namespace, or one of its checkpoints states what model calls used.
pub(super) fn is_needed(view: ReadView<'_>, thread: i64, id: i64) -> Res<bool> {
    let conn = view.conn;
    if conn.one(sql::IS_NEEDED, [thread, id])? {
        return Ok(true);
    }
    let goes_on = conn.each_while(sql::METADATA, [id], |row| {
        let row = checkpoint::Row::read(row, 0)?;
        let metadata = sealed::metadata(conn, view.keys, &row.id, row.metadata, &|| row.place())?;
        Ok(!is_pruned_column(row.source) && pruned_metadata(metadata.as_deref()).is_none())
    })?;
    Ok(!goes_on)
}

/// Returns the report of a removal of namespaces.
fn sum_of(view: ReadView<'_>, namespaces: &[(i64, Namespace)]) -> Res<Pruned> {
    let mut sum = Pruned::default();
    for (id, _) in namespaces {
        let (checkpoints, values, bytes): (i64, i64, i64) = view.conn.one(sql::SUMS_OF_NAMESPACE, [id])?;
        let [checkpoints, values, bytes] = [checkpoints, values, bytes].map(i64::unsigned_abs);
        sum.add(Pruned { checkpoints, values, bytes });
    }
    Ok(sum)
}

/// Returns the expected report of a removal of namespaces.
pub(crate) fn estimate(view: ReadView<'_>, thread: &ThreadId, namespaces: &[(Namespace, CheckpointId)]) -> Res<Pruned> {
    let found = removable(view, thread, namespaces)?;
    sum_of(view, &found)
}

/// Returns the numbers of namespaces of a thread.
pub(super) fn numbers(view: ReadView<'_>, thread: &ThreadId, paths: &[Namespace]) -> Res<BTreeSet<i64>> {
    let mut found = BTreeSet::new();
    for path in paths.iter().filter(|path| !path.is_root()) {
        found.extend(view.namespace(thread, path)?);
    }
    Ok(found)
}
