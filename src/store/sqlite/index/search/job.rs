//! Steps of the search index: jobs of the writer role. *Absent:* the grams.

use super::index::{IndexState, add_entries, enable};
use super::sql;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::Res;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;

/// A step of the index: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct IndexJob {
    pub(crate) step: IndexStep,
    /// The entries' checkpoints that are not indexed after the step.
    pub(crate) behind: Arc<Mutex<u64>>,
}

/// The work of a step of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexStep {
    /// Makes the index, if there is none.
    Enable { unsealed: bool },
    /// Adds the next entries, as many as one transaction may.
    Advance,
    /// Removes the index.
    Disable,
}

/// Does a step in the transaction that is open.
pub(crate) fn step(conn: &Connection, caches: &Caches, job: &IndexJob) -> Res<()> {
    let state = IndexState::read(conn)?;
    match (job.step, state) {
        (IndexStep::Enable { unsealed }, None) => enable(conn, caches, unsealed)?,
        (IndexStep::Disable, Some(_)) => conn.execute_batch(sql::DROP)?,
        (IndexStep::Advance, Some(state)) => *job.behind.lock() = add_entries(conn, caches, state)?,
        (IndexStep::Enable { .. }, Some(_)) | (IndexStep::Disable | IndexStep::Advance, None) => {}
    }
    Ok(())
}
