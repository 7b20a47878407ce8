//! Commit chains: commits in an order, each of which is stored only if all before it are.
//!
//! An executor that submits commits without waiting for them needs one chain for each run. *Absent:* the content of the
//! commits.

use crate::base::debug_fields;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

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
/// use annals::store::{Source, Store, StoreError};
/// use annals::store::batch::{Batch, NewCheckpoint, Parent};
/// use annals::store::log::CommitChain;
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
/// let (first, second) = (store.submit(chain.append(first)), store.submit(chain.append(second)));
/// first.wait()?;
/// second.wait()?;
/// assert!(chain.failure().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CommitChain(Arc<ChainState>);

#[derive(Default)]
struct ChainState {
    failed: AtomicBool,
    /// The first error.
    error: Mutex<Option<StoreError>>,
    /// The listener of a chain whose commits wait for locks.
    on_lock_wait: Option<LockListener>,
    lock_wait: Mutex<ChainWait>,
}

/// The wait of a chain for a lock.
#[derive(Default)]
enum ChainWait {
    #[default]
    Over,
    /// The error of its first wait has not been reported yet.
    Begun(StoreError),
    Reported,
}

type LockListener = Arc<dyn Fn(&StoreError) + Send + Sync>;

debug_fields!(ChainState { error });

impl CommitChain {
    /// Begins an empty chain.
    pub fn begin() -> Self {
        Self::default()
    }

    /// Begins an empty chain whose commits wait for a lock of another program. One that finds the write lock taken for
    /// [`OpenOptions::busy_timeout_ms`](super::OpenOptions::busy_timeout_ms) keeps its place and waits again, twelve
    /// times at most ([`RUN_LOCK_WAITS_MAX`](crate::base::limits::RUN_LOCK_WAITS_MAX)); only then it is refused with
    /// [`StoreError::Busy`]. A commit of another chain is refused after the first wait.
    ///
    /// `on_lock_wait` gets the error of the first wait. It is called on a thread that waits for a commit of the chain,
    /// and again only after a commit of the chain was stored.
    ///
    /// # Example
    /// ```
    /// use annals::base::{Namespace, ThreadId};
    /// use annals::store::{OpenOptions, Source, Store, StoreError};
    /// use annals::store::batch::{Batch, NewCheckpoint};
    /// use annals::store::log::CommitChain;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("trips.db");
    /// let store = Store::open_with(&path, OpenOptions::new().busy_timeout_ms(500))?;
    /// let browser = annals::rusqlite::Connection::open(&path)?;
    /// browser.execute_batch("BEGIN IMMEDIATE")?;
    /// let browser = std::sync::Mutex::new(browser);
    ///
    /// let mut batch = Batch::new(ThreadId::new("trip")?, Namespace::root(), None);
    /// let first = NewCheckpoint::new(store.mint_checkpoint(0, None), None, 0, Source::Update, store.now());
    /// batch.checkpoints.push(first);
    /// assert!(matches!(store.commit(&batch), Err(StoreError::Busy { waited_ms: 500, .. })));
    ///
    /// // The other program ends once the wait is known.
    /// let chain = CommitChain::begin_with_lock_wait(move |_| browser.lock().unwrap().execute_batch("ROLLBACK").unwrap());
    /// store.commit(&chain.append(batch))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_with_lock_wait(on_lock_wait: impl Fn(&StoreError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(ChainState { on_lock_wait: Some(Arc::new(on_lock_wait)), ..ChainState::default() }))
    }

    /// Begins an empty chain that waits for locks as this one does, with the same listener.
    pub fn begin_another(&self) -> Self {
        Self(Arc::new(ChainState { on_lock_wait: self.0.on_lock_wait.clone(), ..ChainState::default() }))
    }

    /// Returns whether the commits of the chain wait for locks. A backend retains the place of such a commit when it
    /// finds a lock taken.
    pub(crate) fn waits_for_locks(&self) -> bool {
        self.0.on_lock_wait.is_some()
    }

    /// Notes that a commit of the chain waits for a lock, with the error of the wait. A backend calls this.
    pub fn note_lock_wait(&self, busy: &StoreError) {
        let mut wait = self.0.lock_wait.lock();
        if matches!(*wait, ChainWait::Over) {
            *wait = ChainWait::Begun(repeated(busy));
        }
    }

    /// Notes that a commit of the chain was stored, which ends a lock wait. A backend calls this.
    pub(crate) fn note_stored(&self) {
        if self.waits_for_locks() {
            *self.0.lock_wait.lock() = ChainWait::Over;
        }
    }

    /// Calls the listener, if a lock wait has begun that was not reported. A caller that waits for a commit does so,
    /// never the thread that writes: the listener may use the store.
    pub fn report_lock_wait(&self) {
        let Some(listener) = &self.0.on_lock_wait else { return };
        let mut wait = self.0.lock_wait.lock();
        if !matches!(*wait, ChainWait::Begun(_)) {
            return;
        }
        let begun = std::mem::replace(&mut *wait, ChainWait::Reported);
        drop(wait);
        if let ChainWait::Begun(busy) = begun {
            listener(&busy);
        }
    }

    /// Appends a batch to the chain without handing it to a backend; a batch belongs to one chain at most.
    pub fn append(&self, mut batch: Batch) -> Batch {
        batch.chain = Some(self.clone());
        batch
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
