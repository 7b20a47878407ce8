//! A backend that records the calls which change the store: each with its begin and, once it is acknowledged, its end.
//!
//! The log of the disk thus knows the batches that a power cut may take, and the batches can be repeated on the model
//! in memory.

use std::path::Path;
use std::sync::Arc;

use annals::base::{Encoded, Namespace, ThreadId, Timestamp};
use annals::store::batch::Batch;
use annals::store::log::{
    CacheChange, Capabilities, CheckpointQuery, CommitHandle, Erase, Erasure, FileStore, KvChange, KvNamespace,
    KvRecord, KvVector, Layer, Log as _, LogExt as _, PruneSpan, PruneTarget, Prunes, SideTables, UnprunablePlaces,
};
use annals::store::stats::{Compaction, StoreStats};
use annals::store::{CacheKey, CheckpointRef, Key, OpenOptions, Pruned, SqliteBackend, StoreError};
use parking_lot::{Condvar, Mutex};

use crate::log::{DiskLog, DiskOp};

/// Checkpoints that one call prunes: fewer than a transaction of the store takes.
const PRUNED_AT_ONCE: u64 = 2;

/// A call that changes the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreCall {
    Commit(Box<Batch>),
    Delete(Vec<ThreadId>),
    Kv(Vec<KvChange>),
    /// Some checkpoints of a thread, which one transaction prunes.
    Prune(CheckpointRef),
    PruneNamespaces(ThreadId, Vec<(Namespace, annals::base::CheckpointId)>),
    /// A transaction on the tables of the application.
    Ledger(LedgerEntry),
    Upkeep(FileUpkeep),
}

/// A row of the application's table, and the batch that is committed with it.
#[derive(Clone, Debug)]
pub(crate) struct LedgerEntry {
    pub(crate) actor: String,
    pub(crate) number: i64,
    pub(crate) text: String,
    /// True if the transaction also empties the text of the row before.
    pub(crate) clears: bool,
    pub(crate) batch: Option<Box<Batch>>,
}

/// Work on the file that changes nothing that the store shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUpkeep {
    Compact,
    Reclaim,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreCallOutcome {
    /// It has not ended.
    Open,
    /// It was acknowledged.
    Acknowledged,
    /// The error says that nothing was written.
    Refused(String),
    /// The error says that it may have been written.
    Unknown(String),
}

/// The calls of one process, in the order of their begins.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) log: Arc<DiskLog>,
    process: u8,
    /// True if submitted batches are waited for at once, so that their outcomes are known.
    waits: bool,
    jobs: Mutex<Vec<(StoreCall, StoreCallOutcome)>>,
    submitted: Mutex<Vec<(u32, CommitHandle)>>,
    /// Number of proxies whose files are open.
    open: Mutex<usize>,
    closed: Condvar,
}

impl Calls {
    /// Starts without a call.
    pub(crate) fn new(log: Arc<DiskLog>, process: u8, waits: bool) -> Arc<Self> {
        Arc::new(Self {
            log,
            process,
            waits,
            jobs: Mutex::default(),
            submitted: Mutex::default(),
            open: Mutex::new(0),
            closed: Condvar::new(),
        })
    }

    /// Returns the calls with their outcomes.
    pub(crate) fn take(&self) -> Vec<(StoreCall, StoreCallOutcome)> {
        self.settle();
        std::mem::take(&mut *self.jobs.lock())
    }

    /// Returns the number of calls whose outcome is unknown.
    pub(crate) fn unknown(&self) -> usize {
        self.jobs.lock().iter().filter(|(_, outcome)| matches!(outcome, StoreCallOutcome::Unknown(_))).count()
    }

    /// Waits until every proxy has closed its file.
    pub(crate) fn wait_until_closed(&self) {
        let mut open = self.open.lock();
        while *open > 0 {
            self.closed.wait(&mut open);
        }
    }

    fn begin(&self, job: StoreCall) -> u32 {
        self.settle();
        self.log.record(|ops| {
            let mut jobs = self.jobs.lock();
            let fact = jobs.len() as u32;
            jobs.push((job, StoreCallOutcome::Open));
            ops.push(DiskOp::Begin { process: self.process, fact });
            fact
        })
    }

    fn end(&self, fact: u32, result: Result<(), &StoreError>) {
        self.close(
            fact,
            match result {
                Ok(()) => StoreCallOutcome::Acknowledged,
                Err(error @ (StoreError::OutcomeUnknown { .. } | StoreError::FileReplaced { .. })) => {
                    StoreCallOutcome::Unknown(error.to_string())
                }
                Err(error) => StoreCallOutcome::Refused(error.to_string()),
            },
        );
    }

    fn close(&self, fact: u32, outcome: StoreCallOutcome) {
        self.log.record(|ops| {
            let process = self.process;
            let acknowledged = outcome == StoreCallOutcome::Acknowledged;
            ops.push(if acknowledged { DiskOp::Ack { process, fact } } else { DiskOp::Fail { process, fact } });
            self.jobs.lock()[fact as usize].1 = outcome;
        });
    }

    fn make<T>(&self, job: StoreCall, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let fact = self.begin(job);
        let result = call();
        self.end(fact, result.as_ref().map(|_| ()));
        result
    }

    /// Makes a call that consists of parts, in their order. After a cut, or an error, the first of them may be done.
    fn make_in_parts<T>(
        &self,
        jobs: Vec<StoreCall>,
        call: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let facts: Vec<u32> = jobs.into_iter().map(|job| self.begin(job)).collect();
        let result = call();
        let unknown = |error: &StoreError| StoreCallOutcome::Unknown(error.to_string());
        let outcome = result.as_ref().map_or_else(unknown, |_| StoreCallOutcome::Acknowledged);
        facts.into_iter().for_each(|fact| self.close(fact, outcome.clone()));
        result
    }

    /// Acknowledges the submitted batches that have settled. Without faults none of them fails.
    fn settle(&self) {
        let mut settled = Vec::new();
        self.submitted.lock().retain(|(fact, handle)| {
            let done = handle.is_settled();
            settled.extend(done.then_some(*fact));
            !done
        });
        settled.into_iter().for_each(|fact| self.end(fact, Ok(())));
    }
}

/// The proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    // Fields drop in order: the count falls when the file is closed.
    inner: SqliteBackend,
    calls: Counted,
}

/// The calls of a proxy that is open.
#[derive(Debug)]
struct Counted(Arc<Calls>);

impl std::ops::Deref for Counted {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.open.lock() -= 1;
        self.0.closed.notify_all();
    }
}

impl Proxy {
    /// Opens the file and records the calls in `calls`.
    pub(crate) fn open(path: &Path, options: &OpenOptions, calls: &Arc<Calls>) -> Result<Arc<Self>, StoreError> {
        let inner = SqliteBackend::open(path, options)?;
        *calls.open.lock() += 1;
        Ok(Arc::new(Self { inner, calls: Counted(Arc::clone(calls)) }))
    }

    /// Runs a transaction of the application.
    pub(crate) fn account<T>(
        &self,
        entry: LedgerEntry,
        call: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.calls.make(StoreCall::Ledger(entry), call)
    }

    /// Returns the checkpoints of a span that are not pruned, oldest first.
    fn points(&self, thread: &ThreadId, span: &PruneSpan) -> Result<Vec<CheckpointRef>, StoreError> {
        let mut found = Vec::new();
        for namespace in self.inner.namespaces(thread)? {
            let records = self.inner.checkpoints(&CheckpointQuery::new(thread.clone(), namespace))?;
            found.extend(records.into_iter().filter(|record| span.contains(record.branch, record.ordinal)));
        }
        found.sort_by_key(|record| record.ordinal);
        Ok(found.into_iter().map(|record| record.point).collect())
    }

    /// Copies the WAL into the file.
    pub(crate) fn checkpoint_wal(&self) -> Result<(), StoreError> {
        self.inner.checkpoint_wal()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.flush();
        self.calls.submitted.lock().iter().for_each(|(_, handle)| handle.wait_until_settled());
        self.calls.settle();
    }
}

impl Layer for Proxy {
    fn below(&self) -> &dyn annals::store::log::Log {
        &self.inner
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.calls.make(StoreCall::Commit(Box::new(batch.clone())), || self.inner.commit(batch))
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        let fact = self.calls.begin(StoreCall::Commit(Box::new(batch.clone())));
        let handle = self.inner.submit(batch);
        if self.calls.waits {
            self.inner.flush();
            let result = handle.wait();
            self.calls.end(fact, result.as_ref().copied());
            return CommitHandle::settled(result);
        }
        self.calls.submitted.lock().push((fact, handle.clone()));
        handle
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        match what {
            Erase::Threads(threads) => self.calls.make(StoreCall::Delete(threads.to_vec()), || self.inner.erase(what)),
            Erase::Trash(_) => self.inner.erase(what),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let mut parts = self.inner.capabilities();
        (parts.prunes, parts.file, parts.side_tables) = (Some(self as _), Some(self as _), Some(self as _));
        // A claim is made of commits, which are recorded.
        parts.queues = None;
        parts
    }
}

/// Implements a capability: the calls whose signatures alone are given go to the file.
macro_rules! forwards {
    ($of:ident { $(fn $call:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* } $($own:tt)*) => {
        impl $of for Proxy {
            $(
                fn $call(&self, $($arg: $type),*) -> $answer {
                    $of::$call(&self.inner, $($arg),*)
                }
            )*

            $($own)*
        }
    };
}

type ProxyResult<T> = Result<T, StoreError>;

forwards! { Prunes {
        fn unprunable(thread: &ThreadId, without: &[Namespace]) -> ProxyResult<UnprunablePlaces>;
        fn estimate(thread: &ThreadId, what: PruneTarget<'_>) -> ProxyResult<Pruned>;
    }

    /// Prunes a few checkpoints with each call: in one transaction, or if that takes long in one for each of them.
    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        let spans = match what {
            PruneTarget::Spans(spans) => spans,
            PruneTarget::Namespaces(namespaces) => {
                let job = StoreCall::PruneNamespaces(thread.clone(), namespaces.to_vec());
                return self.calls.make_in_parts(vec![job], || Prunes::prune(&self.inner, thread, what));
            }
        };
        let mut sum = Pruned::default();
        for span in spans {
            let mut first = span.first;
            while first <= span.last {
                let part = PruneSpan::new(span.branch, first, span.last.min(first + PRUNED_AT_ONCE - 1));
                let jobs = self.points(thread, &part)?.into_iter().map(StoreCall::Prune).collect();
                let prune = || Prunes::prune(&self.inner, thread, PruneTarget::Spans(&[part]));
                sum.add(self.calls.make_in_parts(jobs, prune)?);
                first = part.last + 1;
            }
        }
        Ok(sum)
    }
}

forwards! { FileStore {
        fn stats() -> ProxyResult<StoreStats>;
        fn backup(to: &Path) -> ProxyResult<()>;
        fn rebuild_threads() -> ProxyResult<()>;
        fn change_key(key: &Key) -> ProxyResult<()>;
        fn rotate_data_key() -> ProxyResult<()>;
        fn missing_wal() -> Option<String>;
    }

    fn compact(&self) -> Result<Compaction, StoreError> {
        self.calls.make(StoreCall::Upkeep(FileUpkeep::Compact), || FileStore::compact(&self.inner))
    }

    fn reclaim(&self) -> Result<Erasure, StoreError> {
        self.calls.make(StoreCall::Upkeep(FileUpkeep::Reclaim), || FileStore::reclaim(&self.inner))
    }
}

type ProxyVisit<'v, T> = &'v mut dyn FnMut(&T) -> ProxyResult<bool>;
type ProxyVisitIndexed<'v> = &'v mut dyn FnMut(&KvRecord, &[KvVector]) -> ProxyResult<bool>;

forwards! { SideTables {
        fn kv_entry(namespace: &KvNamespace, key: &str, now: Timestamp) -> ProxyResult<Option<KvRecord>>;
        fn kv_entries(under: Option<&KvNamespace>, now: Timestamp, visit: ProxyVisit<'_, KvRecord>) -> ProxyResult<()>;
        fn kv_indexed(under: Option<&KvNamespace>, now: Timestamp, visit: ProxyVisitIndexed<'_>) -> ProxyResult<()>;
        fn kv_expired(now: Timestamp, limit: usize) -> ProxyResult<Vec<(KvNamespace, String)>>;
        fn kv_namespaces(under: Option<&KvNamespace>, now: Timestamp) -> ProxyResult<Vec<KvNamespace>>;
        fn cached(keys: &[CacheKey], now: Timestamp) -> ProxyResult<Vec<Option<Encoded>>>;
        fn submit_cache(changes: Vec<CacheChange>) -> CommitHandle;
    }

    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        self.calls.make(StoreCall::Kv(changes.to_vec()), || SideTables::commit_kv(&self.inner, changes))
    }
}
