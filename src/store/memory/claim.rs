//! The rows of a claim, in a version of the log.

use super::stored::MemoryLog;
use super::{commit, read, threads};
use crate::base::{ThreadId, Timestamp};
use crate::store::backend::{ClaimRows, Claimable};
use crate::store::batch::Batch;
use crate::store::lease::{LeaseRecord, NewLease};
use crate::store::log::{ClaimQuery, TimerQuery};
use crate::store::record::TimerRecord;
use crate::store::{StoreError, ThreadInfo, ThreadQuery};

pub(super) struct ClaimedRows<'l>(pub(super) &'l mut MemoryLog);

impl ClaimedRows<'_> {
    fn lease(&self, thread: &ThreadId) -> Option<LeaseRecord> {
        self.0.threads.get(thread)?.lease.clone()
    }

    fn with_lease(&self, info: ThreadInfo) -> Claimable {
        let lease = self.lease(info.id());
        (info, lease)
    }
}

impl ClaimRows for ClaimedRows<'_> {
    type Error = StoreError;

    fn queued(&mut self, query: &ThreadQuery, _: &ClaimQuery) -> Result<Vec<Claimable>, StoreError> {
        Ok(threads::list(self.0, query)?.into_iter().map(|info| self.with_lease(info)).collect())
    }

    fn thread(&mut self, thread: &ThreadId) -> Result<Option<Claimable>, StoreError> {
        let info = self.0.threads.get(thread).and_then(|thread| threads::info(thread)).transpose()?;
        Ok(info.map(|info| self.with_lease(info)))
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        Ok(read::timers(self.0, &TimerQuery::Due(due_by, limit)))
    }

    fn take(&mut self, thread: &ThreadId, lease: &NewLease) -> Result<Result<LeaseRecord, StoreError>, StoreError> {
        let taken = commit::commit(self.0, &Batch::of_lease(thread.clone(), lease.clone()));
        let missing = || StoreError::ThreadNotFound { id: thread.clone() };
        Ok(taken.and_then(|()| self.lease(thread).ok_or_else(missing)))
    }
}
