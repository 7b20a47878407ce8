//! Lets a projection follow the log, step by step, as jobs of the writer role. *Absent:* the steps
//! ([`projection`](super::projection)).

use super::projection::{Projection, ProjectionJob, ProjectionStep};
use crate::limits::FOLLOW_INTERVAL;
use crate::store::error::StoreError;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::role::SqliteWriter;

/// Does one step. Returns the number of checkpoints after the mark then.
pub(crate) fn step(
    writer: &SqliteWriter,
    of: &'static dyn Projection,
    step: ProjectionStep,
) -> Result<u64, StoreError> {
    let job = ProjectionJob::new(of, step);
    writer.commit(JobRef::Projection(&job))?;
    Ok(job.behind())
}

/// Follows the log to its end, with a pause after each step, so that other writers get the lock.
pub(crate) fn to_end(writer: &SqliteWriter, of: &'static dyn Projection) -> Result<(), StoreError> {
    while step(writer, of, ProjectionStep::Follow)? > 0 {
        std::thread::sleep(FOLLOW_INTERVAL);
    }
    Ok(())
}

/// Makes a projection anew.
pub(crate) fn anew(writer: &SqliteWriter, of: &'static dyn Projection) -> Result<(), StoreError> {
    match step(writer, of, ProjectionStep::Clear)? {
        0 => Ok(()),
        _ => to_end(writer, of),
    }
}
