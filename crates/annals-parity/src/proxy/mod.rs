//! A recording proxy: an implementation of [`Log`] outside the engine and the executor, on their public API alone.
//!
//! The proxy forwards every call to a backend and records it: the batches with their outcomes, the reads with the
//! number of rows they returned. It can also fail a commit, before or after the backend has written it. [`scenarios`]
//! runs the scenarios of the reference on it, [`cases`] counts commits and reads.

mod cases;
mod scenarios;

use std::sync::{Arc, Mutex};

use annals::base::{CheckpointId, ThreadId};
use annals::store::batch::Batch;
use annals::store::log::{
    Capabilities, CommitHandle, Erase, Erasure, HeadParts, Layer, Log, NamespaceRef, RecordQuery, StateQuery,
    ThreadParts, ThreadRow, ThreadRows, TimerQuery, VisitState,
};
use annals::store::record::{CheckpointRecord, StatePart, StoredHead, TimerRecord, WriteRecord};
use annals::store::{CheckpointRef, MemoryBackend, OpenOptions, SqliteBackend, StoreError};
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
    /// The method of [`Log`].
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
    inner: Arc<dyn Log>,
    recorded: Mutex<Recorded>,
    /// The folder of the file, if there is one.
    _folder: Option<TempDir>,
}

impl RecordingProxy {
    /// Makes a store on a proxy around a new backend.
    fn store(place: ProxiedBackend) -> (Arc<Self>, Store) {
        let folder = (place == ProxiedBackend::File).then(|| tempfile::tempdir().unwrap());
        let inner: Arc<dyn Log> = match &folder {
            Some(folder) => {
                Arc::new(SqliteBackend::open(&folder.path().join("store.annals"), &OpenOptions::new()).unwrap())
            }
            None => Arc::new(MemoryBackend::new()),
        };
        let proxy = Arc::new(Self { inner, recorded: Mutex::default(), _folder: folder });
        let store = Store::with_backend(Arc::clone(&proxy) as Arc<dyn Log>, OpenOptions::new());
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
    fn note_read<T>(
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

impl Layer for RecordingProxy {
    fn below(&self) -> &dyn Log {
        &*self.inner
    }

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

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        let name = match (parts.record, parts.writes) {
            (true, _) => "head",
            (_, true) => "head_with_writes",
            _ => "head_id",
        };
        let rows = |heads: &Vec<Option<StoredHead>>| heads.iter().flatten().map(|head| 1 + head.writes.len()).sum();
        self.note_read(name, None, self.inner.heads(of, parts), rows)
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        let (name, at) = match query {
            RecordQuery::At(points) => ("checkpoint", points.first().map(|at| at.checkpoint)),
            RecordQuery::Page(_) => ("checkpoints", None),
            RecordQuery::Prefix { .. } => ("checkpoints_by_prefix", None),
            RecordQuery::Ordinals { at, .. } => ("ancestors", Some(at.checkpoint)),
            RecordQuery::LastOfRun(..) => ("last_of_run", None),
        };
        self.note_read(name, at, self.inner.records(query), |found| found.iter().flatten().count())
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        let name = match query {
            StateQuery::Record => "state",
            StateQuery::All => "read_state",
            StateQuery::Ends(_) => "read_ends",
            StateQuery::Items(..) => "items",
            StateQuery::Item(..) => "find_item",
            StateQuery::Len(_) => "list_len",
            StateQuery::Reference(_) => "list_reference",
        };
        let mut rows = 0;
        let result = self.inner.read(at, query, &mut |part| {
            rows += match &part {
                StatePart::Record(state) if name == "state" => state.channels.len(),
                StatePart::Item(_) | StatePart::Reference(_) => 1,
                _ => 0,
            };
            visit(part)
        });
        self.note_read(name, Some(at.checkpoint), result, |()| rows)
    }

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        let first = at.first().map(|at| at.checkpoint);
        self.note_read("writes", first, self.inner.writes_of(at, bytes), |found| found.iter().map(Vec::len).sum())
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        let name = match (of, parts.namespaces, parts.lease) {
            (ThreadRows::After(..), ..) => "threads",
            (ThreadRows::Listed(_), ..) => "list_threads",
            (_, true, _) => "namespaces",
            (_, _, true) => "lease",
            _ => "thread",
        };
        self.note_read(name, None, self.inner.thread_rows(of, parts), Vec::len)
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        let name = if matches!(query, TimerQuery::Due(..)) { "timers" } else { "timers_of" };
        self.note_read(name, None, self.inner.timer_rows(query), Vec::len)
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        if let Erase::Threads(threads) = what {
            let mut recorded = self.recorded.lock().unwrap();
            let before = recorded.commits.len();
            recorded.deleted.extend(threads.iter().map(|thread| (before, thread.clone())));
        }
        self.inner.erase(what)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let mut parts = self.inner.capabilities();
        // A claim is made of commits, which are recorded.
        parts.queues = None;
        parts
    }
}
