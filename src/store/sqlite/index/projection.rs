//! A table that is derived from the log and follows it: its mark, its steps, and what a pruning and an erasure do to
//! it.
//!
//! The mark of a projection names the last checkpoint that it holds. A step holds the next ones, as many as one
//! transaction may, and is a job of the writer role. A reader finds the checkpoints after the mark, the tail, in the
//! log itself. *Absent:* the rows, and their checks, which derive them anew.

use crate::base::ThreadId;
use crate::store::sqlite::commit::caches::{self, Caches};
use crate::store::sqlite::fault::Res;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::fmt::Debug;
use std::sync::Arc;

/// A table that follows the log. All calls are made in the transaction that is open.
pub(crate) trait Projection: Debug + Sync {
    /// Makes the tables of the projection, if a file may be without them. `unsealed` allows those of an encrypted file
    /// to hold parts of its texts.
    fn make(&self, _conn: &Connection, _caches: &Caches, _unsealed: bool) -> Res<()> {
        Ok(())
    }

    /// Removes the tables of the projection, if a file may be without them.
    fn remove(&self, _conn: &Connection) -> Res<()> {
        Ok(())
    }

    /// Returns the number of checkpoints after the mark; 0 if the file is without the projection.
    fn behind(&self, conn: &Connection, caches: &mut Caches) -> Res<u64>;

    /// Follows the next checkpoints.
    fn follow(&self, conn: &Connection, caches: &mut Caches) -> Res<()>;

    /// Returns the bytes that a step of [`follow`](Self::follow) writes, about.
    fn follow_bytes(&self) -> usize;

    /// Empties the projection, which then begins with the first checkpoint.
    fn clear(&self, conn: &Connection, caches: &mut Caches) -> Res<()>;

    /// Takes out what is derived from checkpoints of a thread that are about to be pruned.
    fn prune(&self, conn: &Connection, caches: &Caches, thread: &ThreadId) -> Res<()>;

    /// Derives anew, after a pruning, what [`prune`](Self::prune) took out of the part before the mark.
    fn recount(&self, _conn: &Connection, _caches: &mut Caches, _thread: &ThreadId) -> Res<()> {
        Ok(())
    }

    /// Hides a thread that is about to be deleted, of this number.
    fn hide(&self, conn: &Connection, caches: &Caches, thread: i64) -> Res<()>;

    /// Deletes the rest of a hidden thread, whose rows of the log are all stored yet, at a cost of at most `left`.
    /// Returns whether nothing is left.
    fn erase(&self, _conn: &Connection, _caches: &Caches, _thread: i64, _left: &mut usize) -> Res<bool> {
        Ok(true)
    }
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProjectionStep {
    Make { unsealed: bool },
    Remove,
    Clear,
    Follow,
    Recount(ThreadId),
}

/// A step of a projection: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct ProjectionJob {
    of: &'static dyn Projection,
    step: ProjectionStep,
    /// The checkpoints after the mark once the step is done.
    behind: Arc<Mutex<u64>>,
}

impl ProjectionJob {
    pub(crate) fn new(of: &'static dyn Projection, step: ProjectionStep) -> Self {
        Self { of, step, behind: Arc::default() }
    }

    /// Does the step.
    pub(crate) fn write(&self, conn: &Connection, caches: &mut Caches) -> Res<()> {
        caches::refresh(conn, caches)?;
        match &self.step {
            ProjectionStep::Make { unsealed } => self.of.make(conn, caches, *unsealed)?,
            ProjectionStep::Remove => self.of.remove(conn)?,
            ProjectionStep::Clear => self.of.clear(conn, caches)?,
            ProjectionStep::Follow => self.of.follow(conn, caches)?,
            ProjectionStep::Recount(thread) => self.of.recount(conn, caches, thread)?,
        }
        *self.behind.lock() = self.of.behind(conn, caches)?;
        Ok(())
    }

    /// Returns the number of checkpoints after the mark once the step is done.
    pub(crate) fn behind(&self) -> u64 {
        *self.behind.lock()
    }

    /// Returns the bytes that it writes, about.
    pub(crate) fn bytes(&self) -> usize {
        if self.step == ProjectionStep::Follow { self.of.follow_bytes() } else { 0 }
    }
}
