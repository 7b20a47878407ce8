//! Commit chains: commits in an order, each of which is stored only if all before it are.
//!
//! An executor that submits commits without waiting for them needs one chain for each run. *Absent:* the content of the
//! commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::backend::{Backend, CommitHandle};
use super::batch::Batch;
use super::error::StoreError;

/// The commits of one run, in their order.
///
/// If one commit of a chain is not stored, all later ones are refused, including those that were submitted before the
/// failure was known. So the log holds a prefix of the run, and never a later part of it without an earlier one. Clones
/// are the same chain; two chains are equal if they are the same.
///
/// # Example
/// ```
/// use annals::base::{CheckpointId, Namespace, ThreadId};
/// use annals::store::{Batch, CommitChain, NewCheckpoint, Parent, Source, Store, StoreError};
///
/// # fn main() -> Result<(), StoreError> {
/// let store = Store::memory();
/// let checkpoint = |after: Option<CheckpointId>, step| {
///     let id = store.mint_checkpoint(step, after.as_ref());
///     NewCheckpoint::new(id, after.map(Parent::Local), step, Source::Loop, store.now())
/// };
/// let thread = ThreadId::new("trip")?;
/// let chain = CommitChain::begin();
/// let mut first = Batch::new(thread.clone(), Namespace::root(), None);
/// first.checkpoints.push(checkpoint(None, 0));
/// let mut second = Batch::new(thread, Namespace::root(), first.head_after());
/// second.checkpoints.push(checkpoint(first.head_after(), 1));
///
/// // Neither call waits for the disk, and the second is stored only if the first is.
/// let (first, second) = (chain.submit(&**store.backend(), first), chain.submit(&**store.backend(), second));
/// first.wait()?;
/// second.wait()?;
/// assert!(chain.failure().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CommitChain(Arc<ChainState>);

#[derive(Debug, Default)]
struct ChainState {
    failed: AtomicBool,
    /// The first error.
    error: Mutex<Option<StoreError>>,
}

impl CommitChain {
    /// Begins an empty chain.
    pub fn begin() -> Self {
        Self::default()
    }

    /// Appends a batch to the chain without handing it to a backend; a batch belongs to one chain at most.
    pub fn append(&self, mut batch: Batch) -> Batch {
        batch.chain = Some(self.clone());
        batch
    }

    /// Appends a batch to the chain and hands it to the background writer of `backend`, without waiting for it. The
    /// handle reports the outcome: the errors of [`Backend::commit`], and the failure of an earlier commit.
    pub fn submit(&self, backend: &dyn Backend, batch: Batch) -> CommitHandle {
        backend.submit(self.append(batch))
    }

    /// Returns whether the chain has ended: every further commit of it is refused.
    pub fn has_ended(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// Ends the chain: every further commit of it is refused. A backend calls this for a batch of the chain that it did
    /// not store; an executor may call it when the run itself has failed. The first error is the one that is reported.
    pub fn end(&self, error: &StoreError) {
        let mut first = self.0.error.lock();
        first.get_or_insert_with(|| repeated(error));
        self.0.failed.store(true, Ordering::Release);
    }

    /// Returns the error that ended the chain, `None` as long as all commits are stored or pending.
    pub fn failure(&self) -> Option<StoreError> {
        self.0.error.lock().as_ref().map(repeated)
    }

    /// Returns the error for a further commit of a chain that has ended.
    pub(super) fn refusal(&self) -> StoreError {
        let earlier =
            || StoreError::Write { reason: "an earlier commit of the run was not stored".into(), source: None };
        self.failure().unwrap_or_else(earlier)
    }
}

impl PartialEq for CommitChain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Copies the error of a commit for the commits after it.
pub(super) fn repeated(error: &StoreError) -> StoreError {
    match error {
        StoreError::Busy { waited_ms, holder } => StoreError::Busy { waited_ms: *waited_ms, holder: *holder },
        StoreError::OutcomeUnknown { reason } => StoreError::OutcomeUnknown { reason: reason.clone() },
        StoreError::HandleClosed { reason } => StoreError::HandleClosed { reason: reason.clone() },
        StoreError::Conflict { thread, namespace, expected, found } => StoreError::Conflict {
            thread: thread.clone(),
            namespace: namespace.clone(),
            expected: *expected,
            found: *found,
        },
        StoreError::StaleId { thread, namespace, id, newest } => {
            StoreError::StaleId { thread: thread.clone(), namespace: namespace.clone(), id: *id, newest: *newest }
        }
        StoreError::LeaseLimit { group, until } => StoreError::LeaseLimit { group: group.clone(), until: *until },
        StoreError::Leased { thread, owner, until } => {
            StoreError::Leased { thread: thread.clone(), owner: owner.clone(), until: *until }
        }
        StoreError::LeaseLost { thread, owner } => {
            StoreError::LeaseLost { thread: thread.clone(), owner: owner.clone() }
        }
        other => StoreError::Write { reason: other.to_string(), source: None },
    }
}
