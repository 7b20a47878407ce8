//! Makes the table of threads anew, and counts a thread anew. *Absent:* the steps, which the writer does.

use super::job::{ThreadsJob, ThreadsStep};
use crate::base::ThreadId;
use crate::store::error::StoreError;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::role::SqliteWriter;
use std::sync::Arc;

/// Makes the table anew.
pub(crate) fn rebuild(writer: &SqliteWriter) -> Result<(), StoreError> {
    let mut step = ThreadsStep::Clear;
    loop {
        let job = ThreadsJob { step, thread: None, behind: Arc::default() };
        writer.commit(JobRef::Threads(&job))?;
        if *job.behind.lock() == 0 {
            return Ok(());
        }
        step = ThreadsStep::Follow;
    }
}

/// Counts the tokens and the costs of a thread after a pruning.
pub(crate) fn recount(writer: &SqliteWriter, thread: &ThreadId) -> Result<(), StoreError> {
    let job = ThreadsJob { step: ThreadsStep::Count, thread: Some(thread.clone()), behind: Arc::default() };
    writer.commit(JobRef::Threads(&job))
}
