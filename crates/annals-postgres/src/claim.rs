//! Claims of queued runs.
//!
//! The candidates are read in the order of their queue, and each is claimed by a commit that compares its thread with
//! what was read. *Absent:* a claim in one round trip.

use std::collections::HashMap;

use annals::base::{ThreadId, Timestamp};
use annals::store::backend::{ClaimRows, Claimable, claim_runs};
use annals::store::batch::Batch;
use annals::store::lease::{LeaseRecord, NewLease};
use annals::store::log::{ClaimQuery, Claims, Log, LogExt, Queues, TimerQuery};
use annals::store::record::TimerRecord;
use annals::store::{StoreError, ThreadQuery};

use crate::PostgresBackend;
use crate::read::threads::{ClaimedState, claimable, listed};

impl Queues for PostgresBackend {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        query.validate()?;
        claim_runs(query, usize::MAX, &mut ClaimedThreads { backend: self, changes: HashMap::new() })
    }
}

/// The threads of a claim.
struct ClaimedThreads<'b> {
    backend: &'b PostgresBackend,
    /// The number of changes at which each thread was read.
    changes: HashMap<ThreadId, i64>,
}

impl ClaimedThreads<'_> {
    fn note(&mut self, (info, lease, change): ClaimedState) -> Claimable {
        self.changes.insert(info.id().clone(), change);
        (info, lease)
    }
}

impl ClaimRows for ClaimedThreads<'_> {
    type Error = StoreError;

    fn queued(&mut self, query: &ThreadQuery, _: &ClaimQuery) -> Result<Vec<Claimable>, StoreError> {
        let found = listed(self.backend, query)?;
        Ok(found.into_iter().map(|of| self.note(of)).collect())
    }

    fn thread(&mut self, thread: &ThreadId) -> Result<Option<Claimable>, StoreError> {
        let found = claimable(self.backend, &[thread])?;
        Ok(found.into_iter().map(|of| self.note(of)).next())
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.backend.timer_rows(&TimerQuery::Due(due_by, limit))
    }

    fn take(&mut self, thread: &ThreadId, lease: &NewLease) -> Result<Result<LeaseRecord, StoreError>, StoreError> {
        let batch = Batch::of_lease(thread.clone(), lease.clone());
        match self.backend.commit_at(batch, self.changes.get(thread).copied()) {
            Ok(()) => {
                let missing = || StoreError::ThreadNotFound { id: thread.clone() };
                Ok(self.backend.lease(thread)?.ok_or_else(missing))
            }
            Err(
                refused @ (StoreError::LeaseLimit { .. }
                | StoreError::Leased { .. }
                | StoreError::ThreadNotFound { .. }
                | StoreError::FieldConflict { .. }),
            ) => Ok(Err(refused)),
            Err(error) => Err(error),
        }
    }
}
