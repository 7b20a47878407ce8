//! The writer role: a caller that finds it free is the leader, and writes the waiting jobs along in one transaction.
//!
//! Committing callers have no writer thread: handing a batch over costs as much as writing it. Submitted batches have a
//! background thread, which waits for the role like a caller. A leader that ends hands the role to a caller that came
//! meanwhile. A job of a chain that waits for locks keeps its place in the queue while another process holds the lock.
//! The background thread has the role then, because callers report the lock wait, and a listener may commit.

use super::group::{Core, Transacted, TransactionRun, Verdict, WalCopy};
use super::job::{Job, JobRef};
use super::wal_copier::Wal;
use crate::base::limits::{GROUP_BATCHES_MAX, RUN_LOCK_WAITS_MAX};
use crate::base::{self, Namespace};
use crate::limits::{GROUP_LINGER, LEADER_GROUPS_MAX, SUBMIT_LINGER};
use crate::store::backend::CommitSettler;
use crate::store::batch::CommitChain;
use crate::store::error::StoreError;
use crate::store::log::CommitHandle;
use crate::store::record::StoredHead;
use crate::store::spin::spin_until;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::place::FilePlace;
use crate::store::stats::CommitStats;
use crate::store::watch::LogSignal;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ThreadId};

/// The writer of a file.
#[derive(Debug)]
pub(crate) struct SqliteWriter {
    shared: Arc<WriterShared>,
    wal: Wal,
}

#[derive(Debug)]
struct WriterShared {
    core: Arc<Mutex<Core>>,
    background: Mutex<Option<JoinHandle<()>>>,
    queue: Mutex<BatchQueue>,
    /// The background thread waits here for its turn.
    turn: Condvar,
    stats: Mutex<CommitStats>,
    /// Notified by each group with a batch of the log.
    signal: Arc<LogSignal>,
    /// True while the function of a transaction runs.
    transacts: AtomicBool,
    /// The thread on which it runs: a write of that thread would wait for itself.
    transacting: Mutex<Option<ThreadId>>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    waiting: VecDeque<Waiting>,
    /// True if a thread has the role, or was given it. If not, the queue is empty.
    led: bool,
    /// True if the role was given to the background thread.
    background_leads: bool,
    /// The reason that the handle accepts no more jobs.
    closed: Option<String>,
    closing: bool,
}

#[derive(Debug)]
struct Waiting {
    job: Job,
    end: WaitingEnd,
    /// The number of waits for a lock that it has outwaited.
    waits: u32,
}

#[derive(Debug)]
enum WaitingEnd {
    Caller(Arc<Slot>),
    CommitHandle(CommitSettler),
}

/// The end of a group that was led.
#[derive(Debug)]
struct LedGroup {
    /// The end of the job of the leader.
    own: Option<OwnEnd>,
    /// The reason for which the handle ended.
    closed: Option<String>,
    /// The other callers that were told.
    told: usize,
    /// False if the transaction did not begin.
    has_begun: bool,
}

/// The end of the job of a leader.
#[derive(Debug)]
enum OwnEnd {
    Done(Result<(), StoreError>),
    /// It waits for a lock in the queue.
    Waits(Arc<Slot>),
}

/// The place at which a caller waits for its outcome or for the role.
#[derive(Debug, Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    news: Option<News>,
    waits_for_lock: bool,
}

#[derive(Debug)]
enum News {
    Lead,
    Done(Result<(), StoreError>),
    /// The job waits for a lock.
    LockWait,
}

impl Slot {
    fn tell(&self, news: News) {
        let mut state = self.state.lock();
        match news {
            News::LockWait => state.waits_for_lock = true,
            news => state.news = Some(news),
        }
        self.changed.notify_one();
    }

    fn wait(&self) -> News {
        let mut state = self.state.lock();
        loop {
            if let Some(news) = state.news.take() {
                return news;
            }
            if std::mem::take(&mut state.waits_for_lock) {
                return News::LockWait;
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Waiting {
    /// Returns the job after a further wait for a lock, of which a caller reports the first one.
    fn after_lock_wait(mut self) -> Self {
        self.waits += 1;
        match (&self.end, self.job.as_ref().chain()) {
            (WaitingEnd::Caller(slot), _) => slot.tell(News::LockWait),
            (WaitingEnd::CommitHandle(settle), Some(chain)) => settle.note_lock_wait(chain.clone()),
            (WaitingEnd::CommitHandle(_), None) => {}
        }
        self
    }
}

impl SqliteWriter {
    /// Makes the writer of an open file.
    pub(crate) fn new(place: &FilePlace, conn: Connection) -> Res<Self> {
        let core = Arc::new(Mutex::new(Core::new(conn, place.clone())?));
        let shared = WriterShared {
            core: Arc::clone(&core),
            background: Mutex::default(),
            queue: Mutex::default(),
            turn: Condvar::new(),
            stats: Mutex::default(),
            signal: Arc::default(),
            transacts: AtomicBool::new(false),
            transacting: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), wal: Wal::new(place.clone(), core) })
    }

    /// Writes a job and returns when it is durable.
    pub(crate) fn commit(&self, job: JobRef<'_>) -> Result<(), StoreError> {
        job.validate()?;
        self.shared.refuse_within()?;
        let mut copy: Option<Job> = None;
        let slot = loop {
            let mut queue = self.shared.queue.lock();
            if let Some(reason) = &queue.closed {
                return Err(StoreError::HandleClosed { reason: reason.clone() });
            }
            if !queue.led {
                queue.led = true;
                drop(queue);
                match self.shared.lead(Some(job), &self.wal) {
                    Some(OwnEnd::Waits(slot)) => break slot,
                    Some(OwnEnd::Done(outcome)) => return outcome,
                    None => return Ok(()),
                }
            }
            match copy.take() {
                // A leader on another thread needs a job of its own; it is copied outside the lock.
                None => {
                    drop(queue);
                    copy = Some(job.to_job());
                }
                Some(job) => {
                    let slot = Arc::new(Slot::default());
                    queue.waiting.push_back(Waiting { job, end: WaitingEnd::Caller(Arc::clone(&slot)), waits: 0 });
                    break slot;
                }
            }
        };
        loop {
            match slot.wait() {
                News::Done(outcome) => return outcome,
                News::Lead => _ = self.shared.lead(None, &self.wal),
                News::LockWait => job.chain().into_iter().for_each(CommitChain::report_lock_wait),
            }
        }
    }

    /// Runs a function in a transaction of its own, and commits the batch that it returns along with its statements.
    pub(crate) fn transact(&self, run: TransactionRun<'_>) -> Result<(), StoreError> {
        self.shared.refuse_within()?;
        if let Some(reason) = &self.shared.queue.lock().closed {
            return Err(StoreError::HandleClosed { reason: reason.clone() });
        }
        let Transacted { outcome, has_batch, closed } = self.shared.transact(run, &self.wal);
        if closed.is_some() {
            self.shared.queue.lock().closed = closed;
        }
        if has_batch {
            self.shared.signal.notify();
        }
        // Nothing of it was stored, and the write lock is free.
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Hands a job to the background thread.
    pub(crate) fn submit(&self, job: Job) -> CommitHandle {
        if let Err(error) = job.as_ref().validate().and_then(|()| self.shared.refuse_within()) {
            return CommitHandle::settled(Err(error));
        }
        if self.shared.start_background(&self.wal).is_err() {
            // Without a thread, the caller writes the batch.
            return CommitHandle::settled(self.commit(job.as_ref()));
        }
        let (handle, settle) = CommitHandle::open();
        let mut queue = self.shared.queue.lock();
        if let Some(reason) = queue.closed.clone() {
            settle.settle(Err(StoreError::HandleClosed { reason }));
            return handle;
        }
        queue.waiting.push_back(Waiting { job, end: WaitingEnd::CommitHandle(settle), waits: 0 });
        if !queue.led {
            queue.led = true;
            queue.background_leads = true;
            self.shared.turn.notify_one();
        }
        handle
    }

    /// Takes the role from the background thread, if that was given it and has not woken yet.
    pub(crate) fn write_submitted(&self) {
        if self.shared.refuse_within().is_err() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        if std::mem::take(&mut queue.background_leads) {
            drop(queue);
            _ = self.shared.lead(None, &self.wal);
        }
    }

    /// Calls `read` with the connection that writes; `None` if a thread uses it, or if it has written nothing yet.
    pub(crate) fn read_if_idle<T>(&self, read: impl FnOnce(&Connection) -> T) -> Option<T> {
        let core = self.shared.core.try_lock()?;
        core.has_written().then(|| read(core.conn()))
    }

    /// Returns the head of a namespace without reading it, if it is known; `None` also while a thread commits.
    pub(crate) fn bare_head(&self, thread: &base::ThreadId, namespace: &Namespace) -> Option<StoredHead> {
        self.shared.core.try_lock()?.bare_head(thread, namespace)
    }

    /// Returns the counts of commits and transactions so far.
    pub(crate) fn stats(&self) -> CommitStats {
        *self.shared.stats.lock()
    }

    /// Returns the signal of commits through this writer.
    pub(crate) fn signal(&self) -> Arc<LogSignal> {
        Arc::clone(&self.shared.signal)
    }

    /// Copies the whole WAL into the file and empties it, without a wait.
    pub(crate) fn checkpoint_wal(&self) -> Result<(), StoreError> {
        self.wal.truncate()
    }

    /// Returns how much of the WAL is copied.
    pub(crate) fn wal_progress(&self) -> Result<WalCopy, StoreError> {
        self.wal.progress().map_err(Fault::into_read)
    }

    /// Copies the log once, as the background does.
    #[cfg(test)]
    pub(crate) fn copy_once(&self) {
        self.wal.copy_once();
    }

    /// Plants faults for the next commits.
    #[cfg(test)]
    pub(crate) fn plant(&self, faults: &[super::group::PlantedFault]) {
        self.shared.core.lock().plant(faults);
    }

    /// Writes jobs as one group.
    #[cfg(test)]
    pub(crate) fn write_as_group(&self, jobs: &[JobRef<'_>]) -> Vec<Result<(), StoreError>> {
        let mut core = self.shared.core.lock();
        match core.begin() {
            Ok(()) => core.run(jobs).outcomes.into(),
            Err(fault) => core.refuse(fault, jobs.len()).outcomes.into(),
        }
    }

    /// Sets how long a transaction may last.
    #[cfg(test)]
    pub(crate) fn set_transaction_max(&self, limit: std::time::Duration) {
        self.shared.core.lock().set_transaction_max(limit);
    }

    /// Calls a hook at the steps of SQLite's machine on the connection that writes.
    #[cfg(test)]
    pub(crate) fn on_steps(&self, hook: impl FnMut() + Send + 'static) {
        self.shared.core.lock().on_steps(hook);
    }

    /// Plants an error of the WAL checkpointer.
    #[cfg(test)]
    pub(crate) fn fail_to_copy(&self, error: &str) {
        self.wal.fail_to_copy(error);
    }

    /// Returns the last error of the background that no caller was told of.
    pub(crate) fn hidden_error(&self) -> Option<String> {
        self.wal.error()
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.turn.notify_all();
        let background = self.shared.background.lock().take();
        // A thread that panicked has settled its handles by dropping them.
        _ = background.map(JoinHandle::join);
        self.wal.close();
    }
}

impl WriterShared {
    /// Refuses a write from within the function of a transaction.
    fn refuse_within(&self) -> Result<(), StoreError> {
        if !self.transacts.load(Ordering::Relaxed) || *self.transacting.lock() != Some(std::thread::current().id()) {
            return Ok(());
        }
        let reason = "the store is written to within the function of a transaction on it".into();
        Err(StoreError::Invalid { field: "transaction", reason })
    }

    /// Runs a transaction on the connection that writes; those who commit wait for it.
    fn transact(&self, run: TransactionRun<'_>, wal: &Wal) -> Transacted {
        let mut core = self.core.lock();
        let transacted = match core.check_wal().and_then(|()| core.begin()) {
            Ok(()) => {
                *self.transacting.lock() = Some(std::thread::current().id());
                self.transacts.store(true, Ordering::Relaxed);
                let transacted = core.transact(run);
                self.transacts.store(false, Ordering::Relaxed);
                *self.transacting.lock() = None;
                transacted
            }
            Err(fault) => {
                if matches!(fault, Fault::Store(StoreError::WalLimit { .. })) {
                    wal.copy_soon();
                }
                let mut refused = core.refuse(fault, 1).outcomes;
                Transacted { outcome: Ok(refused.pop_front().unwrap_or(Ok(()))), has_batch: false, closed: None }
            }
        };
        wal.grown_by(core.frames_since_checkpoint());
        drop(core);
        if matches!(transacted.outcome, Ok(Ok(()))) {
            let mut stats = self.stats.lock();
            stats.commits += 1;
            stats.transactions += 1;
            stats.last_group = 1;
        }
        transacted
    }

    fn start_background(self: &Arc<Self>, wal: &Wal) -> std::io::Result<()> {
        let mut background = self.background.lock();
        if background.is_none() {
            let (shared, wal) = (Arc::clone(self), wal.clone());
            let thread = std::thread::Builder::new().name("annals-writer".into());
            *background = Some(thread.spawn(move || shared.run_background(&wal))?);
        }
        Ok(())
    }

    fn run_background(self: &Arc<Self>, wal: &Wal) {
        loop {
            let mut queue = self.queue.lock();
            while !queue.background_leads {
                if queue.closing && queue.waiting.is_empty() {
                    return;
                }
                self.turn.wait(&mut queue);
            }
            drop(queue);
            // No caller waits for these batches yet: the next submitted one may share their fsync.
            spin_until(SUBMIT_LINGER, || self.is_pressed());
            // A waiting caller may have taken the role meanwhile.
            if std::mem::take(&mut self.queue.lock().background_leads) {
                _ = self.lead(None, wal);
            }
        }
    }

    /// Returns whether the background thread must write at once: a caller waits, or the writer closes.
    fn is_pressed(&self) -> bool {
        let queue = self.queue.lock();
        let pressed = |waiting: &Waiting| match &waiting.end {
            WaitingEnd::Caller(_) => true,
            WaitingEnd::CommitHandle(settle) => settle.is_awaited(),
        };
        !queue.background_leads || queue.closing || queue.waiting.iter().any(pressed)
    }

    /// Leads: writes the leader's own job and those that wait in one transaction, and then, a few times at most, what
    /// has come meanwhile. Waking another leader would cost as much as a commit, without work in the meantime. Returns
    /// the end of the own job.
    fn lead(self: &Arc<Self>, own: Option<JobRef<'_>>, wal: &Wal) -> Option<OwnEnd> {
        let (mut next, mut end) = (own, None);
        for round in 1.. {
            let LedGroup { own, closed, told, has_begun } = self.lead_once(next.take(), wal);
            end = end.or(own);
            // A leader that was refused has waited its limit; with the next group it would wait once more.
            let is_last = round == LEADER_GROUPS_MAX || !has_begun || closed.is_some();
            if !is_last && told > 0 {
                spin_until(GROUP_LINGER, || self.queue.lock().waiting.len() >= told);
            }
            if is_last || self.queue.lock().waiting.is_empty() {
                self.hand_over(closed);
                break;
            }
        }
        end
    }

    /// Writes one group and tells everybody in it.
    fn lead_once(self: &Arc<Self>, own: Option<JobRef<'_>>, wal: &Wal) -> LedGroup {
        let mut core = self.core.lock();
        // Jobs that come while this waits for the write lock are taken along.
        let begun = core.check_wal().and_then(|()| core.begin());
        let has_begun = begun.is_ok();
        if matches!(begun, Err(Fault::Store(StoreError::WalLimit { .. }))) {
            wal.copy_soon();
        }
        let waiting = self.take_along(GROUP_BATCHES_MAX - usize::from(own.is_some()));
        let jobs: Vec<JobRef<'_>> = own.into_iter().chain(waiting.iter().map(|waiting| waiting.job.as_ref())).collect();
        let verdict = match begun {
            // A panic must not leave the role taken: everybody would wait for ever.
            Ok(()) => catch_unwind(AssertUnwindSafe(|| core.run(&jobs)))
                .unwrap_or_else(|panic| core.panicked(&crate::base::internal::panic_text(&*panic), jobs.len())),
            Err(fault) => core.refuse(fault, jobs.len()),
        };
        wal.grown_by(core.frames_since_checkpoint());
        drop(core);
        self.count(&verdict, jobs.len());
        if jobs.iter().zip(&verdict.outcomes).any(|(job, outcome)| outcome.is_ok() && matches!(job, JobRef::Log(_))) {
            self.signal.notify();
        }
        let Verdict { mut outcomes, closed } = verdict;
        debug_assert_eq!(outcomes.len(), jobs.len(), "each job of a group has an outcome");
        let own_outcome = own.map(|_| outcomes.pop_front().unwrap_or(Ok(())));
        let (mut retained, mut ended) = (VecDeque::new(), Vec::new());
        let own = own.zip(own_outcome).map(|(job, mut outcome)| {
            if !self.outwaits(job, &mut outcome, 0, wal) {
                return OwnEnd::Done(outcome);
            }
            let slot = Arc::new(Slot::default());
            let end = WaitingEnd::Caller(Arc::clone(&slot));
            retained.push_back(Waiting { job: job.to_job(), end, waits: 0 }.after_lock_wait());
            OwnEnd::Waits(slot)
        });
        for (waiting, mut outcome) in waiting.into_iter().zip(outcomes) {
            match self.outwaits(waiting.job.as_ref(), &mut outcome, waiting.waits, wal) {
                true => retained.push_back(waiting.after_lock_wait()),
                false => ended.push((waiting.end, outcome)),
            }
        }
        self.put_back(retained);
        let mut told = 0;
        for (end, outcome) in ended {
            match end {
                WaitingEnd::Caller(slot) => {
                    told += 1;
                    slot.tell(News::Done(outcome));
                }
                WaitingEnd::CommitHandle(settle) => settle.settle(outcome),
            }
        }
        LedGroup { own, closed, told, has_begun }
    }

    /// Returns whether a job waits for the lock that it found taken; else notes its outcome in its chain.
    fn outwaits(
        self: &Arc<Self>,
        job: JobRef<'_>,
        outcome: &mut Result<(), StoreError>,
        waits: u32,
        wal: &Wal,
    ) -> bool {
        let Some(chain) = job.chain() else { return false };
        let Err(error) = outcome else {
            chain.note_stored();
            return false;
        };
        if matches!(error, StoreError::Busy { .. }) && chain.waits_for_locks() && !chain.has_ended() {
            let may_wait = waits + 1 < RUN_LOCK_WAITS_MAX && !self.queue.lock().closing;
            if may_wait && self.start_background(wal).is_ok() {
                chain.note_lock_wait(error);
                return true;
            }
        }
        if let StoreError::Busy { waited_ms, .. } = error {
            *waited_ms = waited_ms.saturating_mul(u64::from(waits + 1));
        }
        chain.end(error);
        false
    }

    /// Puts jobs back to the front of the queue, in their order.
    fn put_back(&self, jobs: VecDeque<Waiting>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        for waiting in jobs.into_iter().rev() {
            queue.waiting.push_front(waiting);
        }
    }

    fn take_along(&self, count: usize) -> Vec<Waiting> {
        let mut queue = self.queue.lock();
        let count = count.min(queue.waiting.len());
        queue.waiting.drain(..count).collect()
    }

    /// Gives the role to a caller that waits, unless it has a lock wait to report, else to the background thread, else
    /// frees it.
    fn hand_over(&self, closed: Option<String>) {
        let mut queue = self.queue.lock();
        debug_assert!(queue.led);
        if closed.is_some() {
            queue.closed = closed;
        }
        let caller = queue.waiting.iter().find_map(|waiting| match &waiting.end {
            WaitingEnd::Caller(slot) if waiting.waits == 0 => Some(slot),
            WaitingEnd::Caller(_) | WaitingEnd::CommitHandle(_) => None,
        });
        if let Some(slot) = caller {
            slot.tell(News::Lead);
        } else if queue.waiting.is_empty() {
            queue.led = false;
            if queue.closing {
                self.turn.notify_all();
            }
        } else {
            queue.background_leads = true;
            self.turn.notify_one();
        }
    }

    fn count(&self, verdict: &Verdict, batches: usize) {
        let commits = verdict.outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
        if commits > 0 {
            let mut stats = self.stats.lock();
            stats.commits += commits;
            stats.transactions += 1;
            stats.last_group = batches as u64;
        }
    }
}

#[cfg(test)]
mod tests;
