//! The lease of a thread, for a program with a loop of its own.

use std::time::Duration;

use crate::store::StoreError;
use crate::store::batch::Batch;
use crate::store::lease::{LeaseRecord, NewLease, validate_lease};
use crate::store::log::{CommitHandle, LogExt};

use crate::history::thread::Thread;

/// The claim of a program to a thread. While it lives, runs with a lease and other claims are refused with
/// [`StoreError::Leased`]. It is released when it is dropped.
///
/// A lease keeps others from starting; it does not protect the log by itself: a program that was stopped for longer
/// than its lease finds another owner when it continues. So the batches of a program are [fenced](Lease::fence), and
/// the store refuses those of an owner that lost its lease. Writes that name no lease, such as [`Thread::update`], are
/// allowed at any time: like an edit from outside they move the head, and a run in progress then gets a
/// [conflict](StoreError::Conflict).
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals::prelude::*;
/// use annals::store::StoreError;
///
/// #[derive(State, Clone, Default)]
/// struct Note { text: String }
///
/// # fn main() -> annals::Result<()> {
/// let thread = Store::memory().thread("order-17")?;
/// thread.update(Note::update().text("new"))?;
/// let lease = thread.lease(Duration::from_secs(30))?;
/// assert_eq!(lease.record().epoch, 1);
/// let refused = thread.lease(Duration::from_secs(30)).unwrap_err();
/// assert!(matches!(refused, StoreError::Leased { until, .. } if Some(until) == lease.record().expires_at));
///
/// lease.release()?;
/// assert_eq!(thread.lease(Duration::from_secs(30))?.record().epoch, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lease {
    thread: Thread,
    record: LeaseRecord,
    is_released: bool,
}

impl Thread {
    /// Claims the thread for a duration, in a transaction of its own.
    ///
    /// # Errors
    /// [`StoreError::Leased`] while another owner has it; [`StoreError::ThreadNotFound`] if it has no checkpoint;
    /// [`StoreError::Invalid`] for a duration below 10 ms or above 30 days; and as
    /// [`Log::submit`](crate::store::log::Log::submit).
    pub fn lease(&self, duration: Duration) -> Result<Lease, StoreError> {
        validate_lease(duration)?;
        let store = self.store();
        let (owner, now) = (store.mint_owner(), store.now());
        let expires_at = now.saturating_add(duration);
        store.commit(&Batch::of_lease(self.id().clone(), NewLease::claim(owner.clone(), now, expires_at)))?;
        // Another owner that has claimed the thread since has a later epoch.
        let own = self.last_lease()?.filter(|lease| lease.owner == owner);
        let record = own.unwrap_or_else(|| LeaseRecord::new(owner, 0, Some(expires_at), 0));
        Ok(Lease { thread: self.clone(), record, is_released: false })
    }

    /// Returns the last lease of the thread, which may have expired or be released; `None` if it never had one.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn last_lease(&self) -> Result<Option<LeaseRecord>, StoreError> {
        self.store().backend().lease(self.id())
    }

    /// Ends the lease with this epoch, though its owner may live: from then on the commits of the owner are refused.
    /// For people who know that the owner is gone before its lease expires. Returns whether there was such a lease to
    /// end.
    ///
    /// # Errors
    /// As [`Thread::lease`].
    pub fn break_lease(&self, epoch: u64) -> Result<bool, StoreError> {
        let is_held = |lease: &LeaseRecord| lease.epoch == epoch && lease.expires_at.is_some();
        if !self.last_lease()?.as_ref().is_some_and(is_held) {
            return Ok(false);
        }
        let store = self.store();
        let lease = NewLease::break_of(store.mint_owner(), store.now(), epoch);
        store.commit(&Batch::of_lease(self.id().clone(), lease))?;
        Ok(true)
    }
}

impl Lease {
    /// Returns the record: the owner, the timestamp at which the lease expires, and the epoch, which is the number of
    /// the claim. A later claim of the thread has a greater epoch, so a service that is told it can refuse an owner
    /// that lost its lease.
    pub fn record(&self) -> &LeaseRecord {
        &self.record
    }

    /// Prolongs the lease: it expires after `duration` from now on.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another owner has claimed the thread; else as [`Thread::lease`].
    pub fn renew(&mut self, duration: Duration) -> Result<(), StoreError> {
        validate_lease(duration)?;
        let store = self.thread.store();
        let expires_at = store.now().saturating_add(duration);
        let lease = NewLease::renew(self.record.owner.clone(), expires_at);
        store.commit(&Batch::of_lease(self.thread.id().clone(), lease))?;
        self.record.expires_at = Some(expires_at);
        Ok(())
    }

    /// Returns the batch as one that is refused with [`StoreError::LeaseLost`] if the lease was lost.
    pub fn fence(&self, mut batch: Batch) -> Batch {
        batch.lease = Some(NewLease::hold(self.record.owner.clone()));
        batch
    }

    /// Releases the lease, and returns when that is stored.
    ///
    /// # Errors
    /// As [`Lease::renew`].
    pub fn release(mut self) -> Result<(), StoreError> {
        self.submit_release().wait()
    }

    fn submit_release(&mut self) -> CommitHandle {
        self.is_released = true;
        let lease = NewLease::release(self.record.owner.clone());
        self.thread.store().submit(Batch::of_lease(self.thread.id().clone(), lease))
    }
}

/// Releases the lease in the background.
impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            let handle = self.submit_release();
            self.thread.store().abandon_commits([handle]);
        }
    }
}
