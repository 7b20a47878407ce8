//! Steps of the table of threads: jobs of the writer role. *Absent:* the rows of the table.

use super::{count, follow, marked, set_mark, sql};
use crate::base::ThreadId;
use crate::store::sqlite::commit::caches;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::Res;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;

/// A step of the table: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct ThreadsJob {
    pub(crate) step: ThreadsStep,
    /// The thread that a step is about.
    pub(crate) thread: Option<ThreadId>,
    /// The checkpoints that the table does not follow after the step.
    pub(crate) behind: Arc<Mutex<u64>>,
}

/// The work of a step of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadsStep {
    /// Empties the table, which then begins with the first checkpoint.
    Clear,
    /// Follows the next checkpoints.
    Follow,
    /// Counts the tokens and the costs of a thread anew.
    Count,
}

/// Does a step in the transaction that is open.
pub(crate) fn step(conn: &Connection, caches: &mut Caches, job: &ThreadsJob) -> Res<()> {
    caches::refresh(conn, caches)?;
    match job.step {
        ThreadsStep::Clear => {
            conn.execute_batch(sql::CLEAR)?;
            set_mark(conn, caches, 0)?;
        }
        ThreadsStep::Follow => follow(conn, caches)?,
        ThreadsStep::Count => count(conn, caches, job.thread.as_ref())?,
    }
    let mark = marked(conn, caches)?;
    let behind: i64 = conn.prepare_cached(sql::BEHIND)?.query_row([mark], |row| row.get(0))?;
    *job.behind.lock() = behind.unsigned_abs();
    Ok(())
}
