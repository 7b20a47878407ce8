//! A store that ends the process at a chosen commit, as a crash would.
//!
//! It wraps the real backend, so the place is exact: the commit is on the disk, and the next one has not begun.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::store::batch::Batch;
use annals::store::log::{CommitHandle, Layer, Log};
use annals::store::{OpenOptions, Source, Store, StoreError};

use crate::output::note;

/// The commit after which the process ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillAfter {
    /// End after this number of committed supersteps.
    pub(crate) supersteps: Option<u64>,
    /// End after this number of commits, those of single tasks and of inputs included.
    pub(crate) commits: Option<u64>,
    /// The last message on stderr.
    pub(crate) farewell: String,
}

impl KillAfter {
    /// Wraps the backend of a store if a number is given; returns the store unchanged if not.
    pub(crate) fn guard(self, store: Store, options: OpenOptions) -> Store {
        if self.supersteps.is_none() && self.commits.is_none() {
            return store;
        }
        let backend = Arc::clone(store.backend());
        let (supersteps, commits) = (AtomicU64::new(0), AtomicU64::new(0));
        Store::with_backend(Arc::new(Killer { backend, plan: self, supersteps, commits }), options)
    }
}

struct Killer {
    backend: Arc<dyn Log>,
    plan: KillAfter,
    supersteps: AtomicU64,
    commits: AtomicU64,
}

impl Killer {
    fn count(&self, batch: &Batch) {
        let made = batch.checkpoints.iter().filter(|checkpoint| checkpoint.source == Source::Loop).count() as u64;
        let supersteps = self.supersteps.fetch_add(made, Ordering::SeqCst) + made;
        let commits = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        let enough = |plan: Option<u64>, n| plan.is_some_and(|plan| n >= plan);
        if (made > 0 && enough(self.plan.supersteps, supersteps)) || enough(self.plan.commits, commits) {
            note(format!("killed after {supersteps} committed supersteps: {}", self.plan.farewell));
            std::process::abort();
        }
    }
}

impl fmt::Debug for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Killer").field("backend", &self.backend).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Layer for Killer {
    fn below(&self) -> &dyn Log {
        &*self.backend
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.backend.commit(batch)?;
        self.count(batch);
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(Layer::commit(self, &batch))
    }
}
