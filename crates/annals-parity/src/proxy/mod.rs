//! A recording proxy: an implementation of [`Backend`] outside the engine and the executor, on their public API alone.
//!
//! The proxy forwards every call to a backend and records it: the batches with their outcomes, the reads with the
//! number of rows they returned. It can also fail a commit, before or after the backend has written it. [`scenarios`]
//! runs the scenarios of the reference on it, [`cases`] counts commits and reads.

mod cases;
mod scenarios;

use std::sync::{Arc, Mutex};

use annals::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use annals::store::backend::Erasure;
use annals::store::{
    Backend, Batch, Beside, BranchRecord, CheckReport, CheckpointQuery, CheckpointRecord, CheckpointRef, CommitHandle,
    ItemRange, ItemRow, LeaseRecord, ListRef, MemoryBackend, NewOperation, OpenOptions, OperationField, OperationQuery,
    OperationRecord, OperationValue, SearchPage, SearchQuery, SqliteBackend, StatePart, StateRecord, StoreError,
    StoredHead, ThreadInfo, ThreadQuery, ThreadRecord, ThreadSize, TimerRecord, WriteRecord,
};
use annals_graph::prelude::Store;
use tempfile::TempDir;

/// A backend under the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxiedBackend {
    Memory,
    File,
}

/// A batch that the executor has handed over.
#[derive(Clone, Debug)]
struct Committed {
    batch: Batch,
    /// True if the batch was submitted to the background writer.
    submitted: bool,
    /// The outcome; `None` while the call has not returned.
    outcome: Option<CommitHandle>,
}

/// A read of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReadCall {
    /// The method of [`Backend`].
    of: &'static str,
    /// The checkpoint that was named, if one was.
    at: Option<CheckpointId>,
    /// The number of records, rows or ids that it returned.
    rows: usize,
}

/// A failure of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitFault {
    /// The batch is not written.
    Before,
    /// The batch is written, and its outcome is reported as unknown.
    After,
}

#[derive(Debug, Default)]
struct Recorded {
    commits: Vec<Committed>,
    reads: Vec<ReadCall>,
    /// The threads that were deleted, each with the number of commits before it.
    deleted: Vec<(usize, ThreadId)>,
    /// The failure of a commit, and the number of commits before it.
    fault: Option<(usize, CommitFault)>,
    /// The batch that was submitted last.
    last: Option<CommitHandle>,
}

/// A backend that records the calls it forwards.
#[derive(Debug)]
struct RecordingProxy {
    inner: Arc<dyn Backend>,
    recorded: Mutex<Recorded>,
    /// The folder of the file, if there is one.
    _folder: Option<TempDir>,
}

impl RecordingProxy {
    /// Makes a store on a proxy around a new backend.
    fn store(place: ProxiedBackend) -> (Arc<Self>, Store) {
        let folder = (place == ProxiedBackend::File).then(|| tempfile::tempdir().unwrap());
        let inner: Arc<dyn Backend> = match &folder {
            Some(folder) => {
                Arc::new(SqliteBackend::open(&folder.path().join("store.annals"), &OpenOptions::new()).unwrap())
            }
            None => Arc::new(MemoryBackend::new()),
        };
        let proxy = Arc::new(Self { inner, recorded: Mutex::default(), _folder: folder });
        let store = Store::with_backend(Arc::clone(&proxy) as Arc<dyn Backend>, OpenOptions::new());
        (proxy, store)
    }

    /// Takes the batches that were committed since the last call.
    fn commits(&self) -> Vec<Committed> {
        std::mem::take(&mut self.recorded.lock().unwrap().commits)
    }

    /// Takes the batches since the last call, as the steps of their checkpoints.
    fn steps(&self) -> Vec<String> {
        self.commits().iter().map(|committed| cases::shown(&committed.batch)).collect()
    }

    /// Takes the reads since the last call.
    fn reads(&self) -> Vec<ReadCall> {
        std::mem::take(&mut self.recorded.lock().unwrap().reads)
    }

    /// Takes the reads since the last call, by their methods.
    fn names(&self) -> Vec<&'static str> {
        self.reads().iter().map(|read| read.of).collect()
    }

    /// Drops the records so far.
    fn forget(&self) {
        *self.recorded.lock().unwrap() = Recorded::default();
    }

    /// Fails the commit after the next `before` ones.
    fn fail(&self, before: usize, fault: CommitFault) {
        self.recorded.lock().unwrap().fault = Some((before, fault));
    }

    /// Records a batch, and what `write` makes of it unless it meets a failure.
    fn record(&self, batch: Batch, submitted: bool, write: impl FnOnce(Batch) -> CommitHandle) -> CommitHandle {
        let mut recorded = self.recorded.lock().unwrap();
        let at = recorded.commits.len();
        recorded.commits.push(Committed { batch: batch.clone(), submitted, outcome: None });
        let met = recorded.fault.take();
        recorded.fault = met.filter(|(before, _)| *before > 0).map(|(before, fault)| (before - 1, fault));
        drop(recorded);
        let outcome = match met {
            Some((0, fault)) => CommitHandle::settled(self.failed(&batch, fault)),
            _ => write(batch),
        };
        // A test may have taken the records meanwhile.
        if let Some(committed) = self.recorded.lock().unwrap().commits.get_mut(at) {
            committed.outcome = Some(outcome.clone());
        }
        outcome
    }

    /// Fails a batch, after those that were submitted before it.
    fn failed(&self, batch: &Batch, fault: CommitFault) -> Result<(), StoreError> {
        let last = self.recorded.lock().unwrap().last.take();
        last.iter().for_each(CommitHandle::wait_until_settled);
        batch.write_in_chain(|| match fault {
            CommitFault::Before => Err(StoreError::Busy { waited_ms: 7, holder: None }),
            CommitFault::After => {
                let mut alone = batch.clone();
                alone.chain = None;
                self.inner.commit(&alone)?;
                Err(StoreError::OutcomeUnknown { reason: "the proxy does not say".into() })
            }
        })
    }

    /// Records a read.
    fn read<T>(
        &self,
        of: &'static str,
        at: Option<CheckpointId>,
        result: Result<T, StoreError>,
        rows: impl FnOnce(&T) -> usize,
    ) -> Result<T, StoreError> {
        let rows = result.as_ref().map_or(0, rows);
        self.recorded.lock().unwrap().reads.push(ReadCall { of, at, rows });
        result
    }
}

impl Backend for RecordingProxy {
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.record(batch.clone(), false, |batch| CommitHandle::settled(self.inner.commit(&batch))).wait()
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        self.record(batch, true, |batch| {
            let handle = self.inner.submit(batch);
            self.recorded.lock().unwrap().last = Some(handle.clone());
            handle
        })
    }

    fn write_submitted(&self) {
        self.inner.write_submitted();
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointRecord>, StoreError> {
        self.read("head", None, self.inner.head(thread, namespace), |found| usize::from(found.is_some()))
    }

    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>, StoreError> {
        self.read("head_id", None, self.inner.head_id(thread, namespace), |found| usize::from(found.is_some()))
    }

    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<StoredHead>, StoreError> {
        let found = self.inner.head_with_writes(thread, namespace);
        self.read("head_with_writes", None, found, |found| found.as_ref().map_or(0, |head| 1 + head.writes.len()))
    }

    fn checkpoint(&self, at: &CheckpointRef) -> Result<Option<CheckpointRecord>, StoreError> {
        let found = self.inner.checkpoint(at);
        self.read("checkpoint", Some(at.checkpoint), found, |found| usize::from(found.is_some()))
    }

    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.read("checkpoints_by_prefix", None, self.inner.checkpoints_by_prefix(thread, prefix, limit), Vec::len)
    }

    fn checkpoints(&self, query: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError> {
        self.read("checkpoints", None, self.inner.checkpoints(query), Vec::len)
    }

    fn state(&self, at: &CheckpointRef) -> Result<StateRecord, StoreError> {
        self.read("state", Some(at.checkpoint), self.inner.state(at), |state| state.channels.len())
    }

    fn read_state(
        &self,
        at: &CheckpointRef,
        visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = 0;
        let result = self.inner.read_state(at, &mut |part| {
            rows += usize::from(matches!(part, StatePart::Item(_)));
            visit(part)
        });
        self.read("read_state", Some(at.checkpoint), result, |()| rows)
    }

    fn ancestors(&self, at: &CheckpointRef, ordinals: &[u64]) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.read("ancestors", Some(at.checkpoint), self.inner.ancestors(at, ordinals), Vec::len)
    }

    fn items(
        &self,
        at: &CheckpointRef,
        channel: &str,
        range: ItemRange,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = 0;
        let result = self.inner.items(at, channel, range, &mut |row| {
            rows += 1;
            visit(row)
        });
        self.read("items", Some(at.checkpoint), result, |()| rows)
    }

    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> Result<Option<ListRef>, StoreError> {
        let found = self.inner.list_reference(at, channel);
        self.read("list_reference", Some(at.checkpoint), found, |found| usize::from(found.is_some()))
    }

    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        self.read("writes", Some(at.checkpoint), self.inner.writes(at), Vec::len)
    }

    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        self.read("threads", None, self.inner.threads(after, limit), Vec::len)
    }

    fn thread_size(&self, thread: &ThreadId) -> Result<ThreadSize, StoreError> {
        self.inner.thread_size(thread)
    }

    fn namespaces(&self, thread: &ThreadId) -> Result<Vec<Namespace>, StoreError> {
        self.read("namespaces", None, self.inner.namespaces(thread), Vec::len)
    }

    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let found = self.inner.last_of_run(thread, namespace, run);
        self.read("last_of_run", None, found, |found| usize::from(found.is_some()))
    }

    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        self.read("search", None, self.inner.search(query), |page| page.hits.len())
    }

    fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        self.read("lease", None, self.inner.lease(thread), |lease| usize::from(lease.is_some()))
    }

    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.read("timers", None, self.inner.timers(due_by, limit), Vec::len)
    }

    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<TimerRecord>, StoreError> {
        self.read("timers_of", None, self.inner.timers_of(thread, namespace), Vec::len)
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        self.inner.operate(operation)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        self.inner.operations(query)
    }

    fn fields(&self, thread: &ThreadId) -> Result<Vec<(OperationField, OperationValue)>, StoreError> {
        self.inner.fields(thread)
    }

    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<BranchRecord>, StoreError> {
        self.inner.branches(thread, namespace)
    }

    fn list_threads(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        self.inner.list_threads(query)
    }

    fn thread_info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        self.inner.thread_info(thread)
    }

    fn rebuild_threads(&self) -> Result<(), StoreError> {
        self.inner.rebuild_threads()
    }

    fn forks(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        self.inner.forks(thread)
    }

    fn forked_from(&self, thread: &ThreadId) -> Result<Option<CheckpointRef>, StoreError> {
        self.inner.forked_from(thread)
    }

    fn delete_threads(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        {
            let mut recorded = self.recorded.lock().unwrap();
            let before = recorded.commits.len();
            recorded.deleted.extend(threads.iter().map(|thread| (before, thread.clone())));
        }
        self.inner.delete_threads(threads)
    }

    fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        self.inner.erase_trash(now)
    }

    fn reclaim(&self) -> Result<Erasure, StoreError> {
        self.inner.reclaim()
    }

    fn beside(&self) -> &dyn Beside {
        self.inner.beside()
    }

    fn check(&self) -> Result<CheckReport, StoreError> {
        self.inner.check()
    }
}
