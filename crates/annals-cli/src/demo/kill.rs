//! A store that ends the process at a chosen commit, as a crash would.
//!
//! It wraps the real backend, so the place is exact: the commit is on the disk, and the next one has not begun.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use annals::store::{
    Backend, Batch, Beside, BranchRecord, CheckReport, CheckpointQuery, CheckpointRecord, CheckpointRef, CommitHandle,
    Erasure, ItemRange, ItemRow, LeaseRecord, ListRef, NewOperation, OpenOptions, OperationField, OperationQuery,
    OperationRecord, OperationValue, SearchPage, SearchQuery, Source, StateRecord, Store, StoreError, StoredHead,
    ThreadInfo, ThreadQuery, ThreadRecord, ThreadSize, TimerRecord, WriteRecord,
};

use crate::output::note;

type StoreResult<T> = Result<T, StoreError>;

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
    backend: Arc<dyn Backend>,
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

impl Backend for Killer {
    fn commit(&self, batch: &Batch) -> StoreResult<()> {
        self.backend.commit(batch)?;
        self.count(batch);
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(self.commit(&batch))
    }

    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> StoreResult<Option<CheckpointRecord>> {
        self.backend.head(thread, namespace)
    }

    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> StoreResult<Option<CheckpointId>> {
        self.backend.head_id(thread, namespace)
    }

    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> StoreResult<Option<StoredHead>> {
        self.backend.head_with_writes(thread, namespace)
    }

    fn checkpoint(&self, at: &CheckpointRef) -> StoreResult<Option<CheckpointRecord>> {
        self.backend.checkpoint(at)
    }

    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> StoreResult<Vec<CheckpointRecord>> {
        self.backend.checkpoints_by_prefix(thread, prefix, limit)
    }

    fn checkpoints(&self, query: &CheckpointQuery) -> StoreResult<Vec<CheckpointRecord>> {
        self.backend.checkpoints(query)
    }

    fn state(&self, at: &CheckpointRef) -> StoreResult<StateRecord> {
        self.backend.state(at)
    }

    fn items(
        &self,
        at: &CheckpointRef,
        channel: &str,
        range: ItemRange,
        visit: &mut dyn FnMut(ItemRow<'_>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        self.backend.items(at, channel, range, visit)
    }

    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> StoreResult<Option<ListRef>> {
        self.backend.list_reference(at, channel)
    }

    fn writes(&self, at: &CheckpointRef) -> StoreResult<Vec<WriteRecord>> {
        self.backend.writes(at)
    }

    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> StoreResult<Vec<ThreadRecord>> {
        self.backend.threads(after, limit)
    }

    fn thread_size(&self, thread: &ThreadId) -> StoreResult<ThreadSize> {
        self.backend.thread_size(thread)
    }

    fn namespaces(&self, thread: &ThreadId) -> StoreResult<Vec<Namespace>> {
        self.backend.namespaces(thread)
    }

    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> StoreResult<Option<CheckpointRecord>> {
        self.backend.last_of_run(thread, namespace, run)
    }

    fn search(&self, query: &SearchQuery) -> StoreResult<SearchPage> {
        self.backend.search(query)
    }

    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> StoreResult<Vec<TimerRecord>> {
        self.backend.timers(due_by, limit)
    }

    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> StoreResult<Vec<TimerRecord>> {
        self.backend.timers_of(thread, namespace)
    }

    fn lease(&self, thread: &ThreadId) -> StoreResult<Option<LeaseRecord>> {
        self.backend.lease(thread)
    }

    fn operate(&self, operation: &NewOperation) -> StoreResult<u64> {
        self.backend.operate(operation)
    }

    fn operations(&self, query: &OperationQuery) -> StoreResult<Vec<OperationRecord>> {
        self.backend.operations(query)
    }

    fn fields(&self, thread: &ThreadId) -> StoreResult<Vec<(OperationField, OperationValue)>> {
        self.backend.fields(thread)
    }

    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> StoreResult<Vec<BranchRecord>> {
        self.backend.branches(thread, namespace)
    }

    fn list_threads(&self, query: &ThreadQuery) -> StoreResult<Vec<ThreadInfo>> {
        self.backend.list_threads(query)
    }

    fn thread_info(&self, thread: &ThreadId) -> StoreResult<Option<ThreadInfo>> {
        self.backend.thread_info(thread)
    }

    fn rebuild_threads(&self) -> StoreResult<()> {
        self.backend.rebuild_threads()
    }

    fn forks(&self, thread: &ThreadId) -> StoreResult<Vec<ThreadId>> {
        self.backend.forks(thread)
    }

    fn forked_from(&self, thread: &ThreadId) -> StoreResult<Option<CheckpointRef>> {
        self.backend.forked_from(thread)
    }

    fn delete_threads(&self, threads: &[ThreadId]) -> StoreResult<Erasure> {
        self.backend.delete_threads(threads)
    }

    fn erase_trash(&self, now: Timestamp) -> StoreResult<Erasure> {
        self.backend.erase_trash(now)
    }

    fn reclaim(&self) -> StoreResult<Erasure> {
        self.backend.reclaim()
    }

    fn beside(&self) -> &dyn Beside {
        self.backend.beside()
    }

    fn check(&self) -> StoreResult<CheckReport> {
        self.backend.check()
    }
}
