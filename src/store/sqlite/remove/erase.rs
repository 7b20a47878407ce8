//! Erasing: threads with everything in them.
//!
//! A deleted thread is hidden by one small commit: its row of `thread`, at which every read begins, goes, and a row of
//! `tombstone` comes. Its other rows are reclaimed in slices, each a transaction with a bounded number of rows. The
//! rows that are left are the cursor, so a slice continues wherever the one before ended, in whichever process. While
//! the table `tombstone` holds a row for thread 0, the triggers let rows of the log go; that row comes and goes in one
//! transaction.
//!
//! Invariants: a deleted row's id is not given out again (`high_water`), so a row that is reclaimed refers to its own
//! payload or to none; a payload that a fork took over from a write of its source stays with the source. *Absent:* the
//! order of the slices in time ([`eraser`](super::eraser)), and the tables beside the log.

use super::prune::{self, NamespaceRemoval};
use crate::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX};
use crate::base::{ThreadId, Timestamp};
use crate::limits::{RECLAIM_COST_MAX, RECLAIM_ROW_BYTES};
use crate::store::error::StoreError;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::commit::operation::forks;
use crate::store::sqlite::commit::replaced::payload;
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::index::PROJECTIONS;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::side::{lease, timer};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{
    Bare, TableRow, branch, checkpoint, item, name_user, namespace, operation_change, thread, tombstone, version, write,
};
use crate::store::sqlite::verify::neighbors;
use crate::store::trash::{deletable, delete_unforked};
use parking_lot::Mutex;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A step of an erasure: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct EraseJob {
    pub(crate) step: EraseStep,
    /// The tombstones after the step.
    pub(crate) left: Arc<Mutex<Tombstones>>,
}

/// The work of a step of an erasure.
#[derive(Clone, Debug)]
pub(crate) enum EraseStep {
    /// Hides threads, and reclaims the rows of a slice.
    Hide(Vec<ThreadId>),
    /// Hides threads, which changes a few pages.
    HideAlone(Vec<ThreadId>),
    /// Hides the threads whose time in the trash has ended at a timestamp: all of them, or those among some.
    HideTrash(Timestamp, Option<Vec<ThreadId>>),
    /// Takes namespaces out of their thread, so that their rows are reclaimed.
    Detach(NamespaceRemoval),
    /// Reclaims the rows of a slice.
    Reclaim,
    /// Forgets threads without rows, once the log beside the file has been emptied.
    Forget(Vec<i64>),
}

/// The numbers of deleted threads that are not erased yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tombstones {
    /// Those with rows in the file.
    pub(crate) stored: Vec<i64>,
    /// Those of which only the log beside the file may hold bytes.
    pub(crate) logged: Vec<i64>,
}

impl Tombstones {
    /// Returns the number of threads.
    pub(crate) fn len(&self) -> usize {
        self.stored.len() + self.logged.len()
    }
}

/// Does a step in the transaction that is open.
pub(crate) fn step(conn: &Connection, caches: &mut Caches, job: &EraseJob) -> Res<()> {
    match &job.step {
        EraseStep::Hide(threads) => {
            hide(conn, caches, threads)?;
            reclaim(conn, caches)?;
        }
        EraseStep::HideAlone(threads) => hide(conn, caches, threads)?,
        EraseStep::HideTrash(now, threads) => hide_trash(conn, caches, *now, threads.as_deref())?,
        EraseStep::Detach(removal) => prune::detach(conn, caches, removal)?,
        EraseStep::Reclaim => reclaim(conn, caches)?,
        EraseStep::Forget(threads) => {
            threads.iter().try_for_each(|thread| conn.run(sql::TOMBSTONE_DELETE, [thread]).map(|_| ()))?;
        }
    }
    *job.left.lock() = tombstones(conn)?;
    Ok(())
}

/// Returns the deleted threads that are not erased yet.
pub(crate) fn tombstones(conn: &Connection) -> Res<Tombstones> {
    let mut found = Tombstones::default();
    conn.each(tombstone::Row::SELECT, [], |row| {
        let tombstone::Row { thread, state } = tombstone::Row::read(row, 0)?;
        let list = if state == 0 { &mut found.stored } else { &mut found.logged };
        list.push(thread);
        Ok(())
    })?;
    Ok(found)
}

/// Hides threads, unless one that stays was forked off one of them. Nothing is written before that is known.
fn hide(conn: &Connection, caches: &mut Caches, threads: &[ThreadId]) -> Res<()> {
    let mut found: BTreeMap<&ThreadId, i64> = BTreeMap::new();
    for thread in threads {
        found.extend(neighbors::thread_number(conn, thread)?.map(|number| (thread, number)));
    }
    if found.is_empty() {
        return Ok(());
    }
    let numbers: HashSet<i64> = found.values().copied().collect();
    found.iter().try_for_each(|(thread, number)| refuse_forked(conn, thread, *number, &numbers))?;
    conn.run(sql::HIGH_WATER_RAISE, [])?;
    conn.run(sql::ERASE_BEGIN, [])?;
    for number in found.values() {
        tombstone::Row { thread: *number, state: 0 }.insert(conn)?;
        conn.run(thread::Row::DELETE, [number])?;
        PROJECTIONS.iter().try_for_each(|projection| projection.hide(conn, caches, *number))?;
        lease::hide(conn, *number)?;
    }
    conn.run(sql::ERASE_END, [])?;
    caches.erased();
    Ok(())
}

/// Hides the threads whose time in the trash has ended, without those from which others were forked that stay: all of
/// them, or those among `threads`.
fn hide_trash(conn: &Connection, caches: &mut Caches, now: Timestamp, threads: Option<&[ThreadId]>) -> Res<()> {
    let view = caches.view(conn);
    let due: Vec<ThreadId> = match threads {
        None => view.trash()?.into_iter().filter(|(_, until)| *until <= now).map(|(thread, _)| thread).collect(),
        Some(threads) => {
            let mut due = Vec::with_capacity(threads.len());
            for thread in threads {
                if view.trashed(thread)?.is_some_and(|until| until <= now) {
                    due.push(thread.clone());
                }
            }
            due
        }
    };
    let due = deletable(due, DELETED_THREADS_MAX, |thread| view.forks(thread))?;
    delete_unforked(due, |threads| hide(conn, caches, threads), forked_off).map(|_| ())
}

/// Returns the thread that was not hidden because another one was forked from it.
fn forked_off(fault: &Fault) -> Option<&ThreadId> {
    match fault {
        Fault::Store(error) => error.forked_off(),
        _ => None,
    }
}

/// Refuses to delete a thread from which others were forked that stay. Names the first of them.
fn refuse_forked(conn: &Connection, thread: &ThreadId, number: i64, deleted: &HashSet<i64>) -> Res<()> {
    let forks = forks(conn, number)?.into_iter().filter(|(fork, _)| !deleted.contains(fork));
    let mut forks: Vec<ThreadId> = forks.map(|(_, fork)| fork).collect();
    let more = forks.len() > FORKS_SHOWN_MAX;
    forks.truncate(FORKS_SHOWN_MAX);
    if forks.is_empty() { Ok(()) } else { Err(StoreError::ForkedOff { thread: thread.clone(), forks, more }.into()) }
}

/// Reclaims rows of deleted threads, as many as one transaction may.
fn reclaim(conn: &Connection, caches: &mut Caches) -> Res<()> {
    let next = || -> Res<Option<i64>> { conn.first(sql::TOMBSTONE_NEXT, []) };
    let Some(first) = next()? else {
        let stored: Option<i64> = conn.first(sql::TOMBSTONE_STORED, [])?;
        return stored
            .map_or(Ok(()), |thread| Err(corrupt(format!("tombstone {thread}"), "its thread is not deleted")));
    };
    conn.run(sql::ERASE_BEGIN, [])?;
    let mut slice = Slice { conn, left: RECLAIM_COST_MAX };
    let mut thread = Some(first);
    while let Some(number) = thread.filter(|_| slice.left > 0) {
        slice.thread(number, caches)?;
        thread = next()?;
    }
    conn.run(sql::ERASE_END, [])?;
    Ok(())
}

/// The rows that one transaction reclaims.
struct Slice<'c> {
    conn: &'c Connection,
    /// The cost that is left: each row costs one, and one more for every [`RECLAIM_ROW_BYTES`] of a value.
    left: usize,
}

impl<'c> Slice<'c> {
    /// Returns the number of rows that may still be reclaimed.
    fn limit(&self) -> i64 {
        i64::try_from(self.left).unwrap_or(i64::MAX)
    }

    fn spend(&mut self, cost: usize) {
        self.left = self.left.saturating_sub(cost);
    }

    fn thread(&mut self, thread: i64, caches: &mut Caches) -> Res<()> {
        // The rest of a projection is found by the rows of the log.
        for projection in PROJECTIONS {
            if !projection.erase(self.conn, caches, thread, &mut self.left)? {
                return Ok(());
            }
        }
        while self.left > 0 {
            match self.conn.first(sql::RECLAIM_NAMESPACE, [thread])? {
                Some(namespace) => self.namespace(namespace)?,
                None if self.names(thread, caches)? => {
                    let cleared = self.conn.run(sql::TOMBSTONE_CLEARED, [thread])?;
                    return must_find(cleared, || format!("tombstone {thread}"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Reclaims a part of a namespace: its branches with their rows, then its checkpoints with their writes, then its
    /// row.
    fn namespace(&mut self, namespace: i64) -> Res<()> {
        if let Some((branch, upto, fork)) = self.conn.first(sql::RECLAIM_BRANCH, [namespace])? {
            return self.branch(branch, upto, fork);
        }
        let checkpoints: Vec<i64> = self.conn.all(sql::RECLAIM_CHECKPOINTS, [namespace, self.limit()])?;
        if checkpoints.is_empty() {
            timer::delete_all(self.conn, namespace)?;
            self.conn.run(sql::RECLAIM_OPERATIONS, [namespace])?;
            let changes = self.conn.run(operation_change::Row::DELETE_UNDER, [namespace])?;
            self.spend(2 * changes);
            let deleted = self.conn.run(namespace::Row::DELETE, [namespace])?;
            must_find(deleted, || format!("namespace {namespace}"))?;
            self.spend(2);
        }
        for checkpoint in checkpoints {
            if self.left == 0 || !self.values::<write::Row<'_>>(checkpoint, &|_, _| false)? {
                return Ok(());
            }
            let deleted = self.conn.run(checkpoint::Row::DELETE, [checkpoint])?;
            must_find(deleted, || format!("checkpoint {checkpoint}"))?;
            self.spend(1);
        }
        Ok(())
    }

    fn branch(&mut self, branch: i64, upto: Option<i64>, fork: Option<i64>) -> Res<()> {
        // The first checkpoint of a fork may hold values of the writes of its source.
        let source = fork.map(|checkpoint| self.conn.all(sql::WRITE_PAYLOADS, [checkpoint])).transpose()?;
        let source: HashSet<i64> = source.unwrap_or_default();
        let stays = |ordinal: &Value, id: i64| {
            matches!(ordinal, Value::Integer(ordinal) if ordinal.checked_sub(1) == upto) && source.contains(&id)
        };
        if self.values::<version::Row<'_>>(branch, &|key, id| stays(&key[1], id))?
            && self.values::<item::Row<'_>>(branch, &|key, id| stays(&key[3], id))?
        {
            self.conn.run(branch::Row::DELETE, [branch])?;
            self.spend(1);
        }
        Ok(())
    }

    /// Reclaims rows with values of a branch or a checkpoint. `stays` tells of a key and a payload whether the payload
    /// is another one's. Returns whether none is left.
    fn values<'r, R: TableRow<'r>>(&mut self, of: i64, stays: &dyn Fn(&[Value], i64) -> bool) -> Res<bool> {
        let value = R::TABLE.position("value");
        let mut found = Vec::new();
        self.conn.each_while(R::UNDER, [of], |row| {
            let key = (0..R::TABLE.key_columns()).map(|column| row.get(column));
            found.push((key.collect::<rusqlite::Result<Vec<Value>>>()?, row.get_ref(value)?.as_i64().ok()));
            Ok(found.len() < self.left)
        })?;
        for (key, value) in found {
            if self.left == 0 {
                return Ok(false);
            }
            let deleted = self.conn.run(R::DELETE, params_from_iter(&key))?;
            let columns = |visit: &mut dyn FnMut(ValueRef<'_>)| key.iter().for_each(|of| visit(ValueRef::from(of)));
            must_find(deleted, || R::TABLE.place(columns))?;
            self.value(value.filter(|id| !stays(&key, *id)))?;
        }
        Ok(self.left > 0)
    }

    /// Accounts for a row, and erases its payload.
    fn value(&mut self, id: Option<i64>) -> Res<()> {
        let bytes = id.map(|id| payload(self.conn, id)).transpose()?.unwrap_or(0);
        self.spend(1 + usize::from(id.is_some()) + bytes / RECLAIM_ROW_BYTES);
        Ok(())
    }

    /// Reclaims the names that no other thread uses. Returns whether none is left.
    fn names(&mut self, thread: i64, caches: &mut Caches) -> Res<bool> {
        let names: Vec<i64> = self.conn.all(sql::RECLAIM_NAMES, [thread, self.limit()])?;
        let all = names.len() < self.left;
        let mut erased = 0;
        for name in &names {
            let deleted = self.conn.run(name_user::Row::DELETE, [thread, *name])?;
            must_find(deleted, || format!("name_user (thread {thread}, name {name})"))?;
            erased += self.conn.run(sql::NAME_DELETE, [name])?;
        }
        self.spend(1 + names.len());
        if erased > 0 {
            self.conn.run(sql::NAMES_ERASED, [])?;
            caches.names_erased();
        }
        Ok(all)
    }
}

/// Verifies that a change found the row that was read just before. In a damaged table a scan meets a row that its key
/// does not find, and each slice would meet it again.
fn must_find(rows: usize, place: impl FnOnce() -> String) -> Res<()> {
    if rows == 0 { Err(corrupt(place(), "its key does not find it")) } else { Ok(()) }
}
