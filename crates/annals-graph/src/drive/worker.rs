//! Workers: the runs of a file that wait for nothing are found, claimed and run, in any number of processes.
//!
//! A worker looks through the threads with due tasks once, and again when a lease may have expired. In between it follows the
//! log: a checkpoint with due tasks names its thread, and a timer its task. *Absent:* decisions about a run, which
//! are those of its graph, and priorities.
//!
//! Invariant: a worker runs a thread under a lease of its own, so that two workers never run one thread at the same time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::internal::Stopwatch;
use crate::base::limits::{LEASE_DEFAULT, RECOVERIES_DEFAULT, WORKER_IDLE, WORKER_PAGE_ROWS};
use crate::base::{Namespace, ThreadId};
use crate::error::Error;
use crate::exec::{ERROR, special};
use crate::graph::CompiledGraph;
use crate::history::{Thread, ThreadInfo, ThreadQuery, ThreadStatus};
use crate::store::{Batch, LogWatch, NewLease, NewWrites, OperationQuery, Store, StoreError, validate_lease};
use crate::task::RunControl;

use super::outcome::Outcome;
use super::run::{Input, IntoInput};

/// Continues the run of a thread with a lease.
type Continue = Arc<dyn Fn(&Thread, Duration, &RunControl) -> Result<(), Error> + Send + Sync>;

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Stores an input without running anything: a [`Worker`] with this graph runs it. The graph has a
    /// [name](crate::graph::StateGraph::name).
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`]; [`StoreError::Leased`] while a run with a lease is on the thread.
    pub fn enqueue<M>(&self, thread: &Thread, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        let nodes: Vec<String> = self.nodes().map(str::to_owned).collect();
        self.run(thread).interrupt_before(nodes).invoke(input)
    }
}

/// A loop that continues the runs of a file that are due: runs that were [enqueued](CompiledGraph::enqueue), runs that a process left when it died, and
/// tasks whose sleep has ended. Any number of workers in any number of processes may work on one file. A thread belongs to the
/// graph whose name is in the metadata of its head, where each run of a named graph writes it.
///
/// A run that fails is left as it is, with the status `failed`. A run whose process dies is continued; after
/// [`Worker::max_recoveries`] such continuations without an end it gets the status `failed` with a message that begins with `stuck`, so that it does
/// not end its workers for ever. A person continues it with [`Input::Continue`].
///
/// # Example
/// ```
/// use annals_graph::graph::Entrypoint;
/// use annals_graph::prelude::*;
/// use annals_graph::task::Task;
/// use annals_graph::Worker;
///
/// # fn main() -> Result<()> {
/// let charge = Task::new("charge", |order: i64| Ok(format!("receipt {order}")));
/// let book = Entrypoint::new("book", move |order: i64, context: &Context| charge.call(context, order)).compile()?;
/// let store = Store::memory();
/// book.enqueue(&store.thread("order-17")?, 17)?;
///
/// let report = Worker::new(&store).register(&book).concurrency(8).run_until_idle()?;
/// assert_eq!(report.continued, 1);
/// assert_eq!(book.get_state(&store.thread("order-17")?)?.values.value().map(String::as_str), Some("receipt 17"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Worker {
    store: Store,
    graphs: BTreeMap<String, Continue>,
    concurrency: usize,
    max_recoveries: u64,
    lease: Duration,
}

/// The work that a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The number of runs that it continued to an end, an interrupt or a sleep.
    pub continued: u64,
    /// The number of runs that it continued and that failed.
    pub failed: u64,
    /// The number of runs that it marked as stuck.
    pub stuck: u64,
}

/// The counts of a report, from several threads.
#[derive(Default)]
struct WorkerCounts {
    continued: AtomicU64,
    failed: AtomicU64,
    stuck: AtomicU64,
}

/// The threads that a worker knows to be due.
#[derive(Default)]
struct Agenda {
    due: VecDeque<ThreadId>,
    queued: HashSet<ThreadId>,
    running: HashSet<ThreadId>,
    /// The number of failures of a thread that left its run as it was.
    failures: HashMap<ThreadId, u64>,
    /// The first error of the store, which ends the worker.
    error: Option<Error>,
}

impl Agenda {
    fn add(&mut self, thread: ThreadId) {
        if !self.running.contains(&thread) && self.queued.insert(thread.clone()) {
            self.due.push_back(thread);
        }
    }
}

impl Worker {
    /// Makes a worker without a graph, which runs one thread at a time.
    pub fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            graphs: BTreeMap::new(),
            concurrency: 1,
            max_recoveries: RECOVERIES_DEFAULT,
            lease: LEASE_DEFAULT,
        }
    }

    /// Adds a graph, whose threads are found by its name. A second graph with the name replaces the first.
    #[must_use]
    pub fn register<S: Clone + Send + Sync + 'static>(mut self, graph: &CompiledGraph<S>) -> Self {
        let (name, graph) = (graph.name().to_owned(), graph.clone());
        let run: Continue = Arc::new(move |thread, lease, control| {
            graph.run(thread).lease(lease).control(&control.for_one_run()).invoke(Input::Continue).map(|_| ())
        });
        self.graphs.insert(name, run);
        self
    }

    /// Sets how many threads are run at the same time. Default: 1.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Sets how often a run is continued after its process died, or after it failed without a stored error, before it counts as
    /// stuck. Default: 10.
    #[must_use]
    pub fn max_recoveries(mut self, recoveries: u64) -> Self {
        self.max_recoveries = recoveries;
        self
    }

    /// Sets the duration of the leases, see [`Run::lease`](crate::Run::lease). A run whose process died on another machine is
    /// continued after it, at the next look. Default: 30 s.
    #[must_use]
    pub fn lease(mut self, duration: Duration) -> Self {
        self.lease = duration;
        self
    }

    /// Works until `control` asks it to stop: with [`RunControl::request_drain`] each run ends with its superstep, with
    /// [`RunControl::cancel`] at once.
    ///
    /// # Errors
    /// The errors of the store while it looks for work. Runs that have begun end before.
    pub fn run_until(&self, control: &RunControl) -> Result<WorkerReport, Error> {
        self.work(control, false)
    }

    /// Works until nothing is due: sleeping tasks and runs of other workers are not waited for.
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    pub fn run_until_idle(&self) -> Result<WorkerReport, Error> {
        self.work(&RunControl::new(), true)
    }

    fn work(&self, control: &RunControl, ends_idle: bool) -> Result<WorkerReport, Error> {
        validate_lease(self.lease)?;
        let mut signals = self.store.backend().watch_log()?;
        let mut position = self.store.backend().last_seq()?;
        let mut operations = self.last_operation()?;
        self.deliver(&ThreadQuery::new().status(&ThreadStatus::Sleeping(self.store.now())))?;
        let (agenda, counts, clock) = (Mutex::new(Agenda::default()), WorkerCounts::default(), Stopwatch::start());
        let mut scan_at = Duration::ZERO;
        let stops = || control.drain_reason().is_some() || control.cancel_reason().is_some();
        std::thread::scope(|scope| {
            loop {
                let seen = signals.signal.count();
                if clock.elapsed() >= scan_at {
                    self.scan(&agenda)?;
                    scan_at = clock.elapsed() + self.lease / 3;
                }
                self.follow(&agenda, &mut position)?;
                self.follow_operations(&agenda, &mut operations)?;
                self.wake(&agenda)?;
                let mut list = agenda.lock();
                if let Some(error) = list.error.take() {
                    return Err(error);
                }
                while list.running.len() < self.concurrency
                    && !stops()
                    && let Some(thread) = list.due.pop_front()
                {
                    list.queued.remove(&thread);
                    list.running.insert(thread.clone());
                    let (agenda, counts) = (&agenda, &counts);
                    scope.spawn(move || self.run(&thread, agenda, counts, control));
                }
                let is_idle = list.running.is_empty();
                drop(list);
                if is_idle && (ends_idle || stops()) {
                    return Ok(());
                }
                let left = scan_at.saturating_sub(clock.elapsed());
                self.wait(&mut signals, seen, left)?;
            }
        })?;
        Ok(WorkerReport {
            continued: counts.continued.into_inner(),
            failed: counts.failed.into_inner(),
            stuck: counts.stuck.into_inner(),
        })
    }

    /// Waits for a commit, a timer, or the next look at all threads, or for a moment after which a stop is noticed.
    fn wait(&self, signals: &mut LogWatch, seen: u64, left: Duration) -> Result<(), StoreError> {
        let timer = self.store.next_timer()?.map(|timer| timer.wake_at.as_micros());
        let due_in = timer.map(|at| at.saturating_sub(self.store.now().as_micros()));
        // A timer that has passed and is still there belongs to others.
        let due_in = due_in.and_then(|us| u64::try_from(us).ok()).filter(|us| *us > 0).unwrap_or(u64::MAX);
        let (since, longest) = (Stopwatch::start(), left.min(Duration::from_micros(due_in)).min(WORKER_IDLE));
        while let Some(left) = longest.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            if signals.wait(seen, left)? {
                break;
            }
        }
        Ok(())
    }

    /// Finds the threads of its graphs with tasks that are due.
    fn scan(&self, agenda: &Mutex<Agenda>) -> Result<(), StoreError> {
        let mut query = ThreadQuery::new().status(&ThreadStatus::Running).limit(WORKER_PAGE_ROWS);
        loop {
            let page = self.store.threads_with(query.clone())?;
            page.iter().try_for_each(|info| self.offer(agenda, info, false))?;
            let Some(last) = page.last() else { return Ok(()) };
            query = query.after(last);
        }
    }

    /// Finds the threads with new checkpoints whose tasks are due.
    fn follow(&self, agenda: &Mutex<Agenda>, position: &mut u64) -> Result<(), StoreError> {
        loop {
            let records = self.store.backend().records_after(*position, None, WORKER_PAGE_ROWS)?;
            let Some(last) = records.last() else { return Ok(()) };
            *position = last.seq;
            for record in records.iter().filter(|record| Thread::is_mailbox(&record.point.namespace)) {
                deliver_to(&self.store.thread(&record.point.thread)?)?;
            }
            for record in records.iter().filter(|record| record.point.namespace.is_root() && !record.tasks.is_empty()) {
                self.look(agenda, &record.point.thread)?;
            }
        }
    }

    /// Finds the threads whose facts or heads were changed by an operation, such as the end of a pause.
    fn follow_operations(&self, agenda: &Mutex<Agenda>, last: &mut u64) -> Result<(), StoreError> {
        let newest = self.last_operation()?;
        let mut query = OperationQuery::default();
        query.limit = WORKER_PAGE_ROWS;
        while *last < newest {
            let records = self.store.backend().operations(&query)?;
            let changes = records.iter().filter(|record| record.id > *last).flat_map(|record| &record.changes);
            changes.into_iter().try_for_each(|change| self.look(agenda, &change.thread))?;
            query.before = records.last().map(|record| record.id).filter(|id| *id > *last);
            if query.before.is_none() {
                *last = newest;
            }
        }
        Ok(())
    }

    fn last_operation(&self) -> Result<u64, StoreError> {
        let mut query = OperationQuery::default();
        query.limit = 1;
        let newest = self.store.backend().operations(&query)?;
        Ok(newest.first().map_or(0, |record| record.id))
    }

    /// Gives signals to the threads of a query: those that came when no worker followed the log.
    fn deliver(&self, query: &ThreadQuery) -> Result<(), StoreError> {
        self.store.for_each_thread(query.clone(), deliver_to).map(|_| ())
    }

    /// Finds the threads whose sleeping tasks can go on, and those with a task that was made due from outside.
    fn wake(&self, agenda: &Mutex<Agenda>) -> Result<(), StoreError> {
        for timer in self.store.timers(Some(self.store.now()))? {
            if let Some(info) = self.store.backend().thread_info(&timer.point.thread)? {
                self.offer(agenda, &info, true)?;
            }
        }
        Ok(())
    }

    fn look(&self, agenda: &Mutex<Agenda>, thread: &ThreadId) -> Result<(), StoreError> {
        let info = self.store.backend().thread_info(thread)?;
        info.map_or(Ok(()), |info| self.offer(agenda, &info, false))
    }

    /// Adds a thread that is due, belongs to one of the graphs, and has no live lease. `woken` tells that one of its timers has passed.
    fn offer(&self, agenda: &Mutex<Agenda>, info: &ThreadInfo, woken: bool) -> Result<(), StoreError> {
        let (now, thread) = (self.store.now(), info.id());
        if self.due(info, woken).is_some()
            && !self.store.backend().lease(thread)?.is_some_and(|lease| lease.is_live(now))
        {
            agenda.lock().add(thread.clone());
        }
        Ok(())
    }

    /// Returns the graph of a thread that is due and not paused.
    fn due(&self, info: &ThreadInfo, woken: bool) -> Option<&Continue> {
        let is_due = match info.status() {
            ThreadStatus::Running => true,
            ThreadStatus::Sleeping(until) => woken || *until <= self.store.now(),
            // One of several interrupts has a resume value from outside.
            ThreadStatus::Interrupted(_) => woken,
            _ => false,
        };
        let is_due = is_due && !info.facts().is_paused;
        info.graph().filter(|_| is_due).and_then(|name| self.graphs.get(name))
    }

    /// Continues the run of a thread, unless it is stuck.
    fn run(&self, thread: &ThreadId, agenda: &Mutex<Agenda>, counts: &WorkerCounts, control: &RunControl) {
        let ended = self.continue_run(thread, agenda, counts, control);
        let mut agenda = agenda.lock();
        agenda.running.remove(thread);
        if let Err(error) = ended {
            agenda.error.get_or_insert(error);
        }
    }

    fn continue_run(
        &self,
        id: &ThreadId,
        agenda: &Mutex<Agenda>,
        counts: &WorkerCounts,
        control: &RunControl,
    ) -> Result<(), Error> {
        let thread = self.store.thread(id)?;
        let Some(info) = self.store.backend().thread_info(id)? else { return Ok(()) };
        let woken = match info.status() {
            ThreadStatus::Interrupted(_) => self.is_woken(id)?,
            ThreadStatus::Sleeping(until) if *until > self.store.now() => self.is_woken(id)?,
            _ => false,
        };
        let Some(run) = self.due(&info, woken) else { return Ok(()) };
        let failures = agenda.lock().failures.get(id).copied().unwrap_or(0);
        let recoveries =
            thread.last_lease()?.filter(|lease| lease.expires_at.is_some()).map_or(0, |lease| lease.recoveries + 1);
        if recoveries > self.max_recoveries || failures > self.max_recoveries {
            let attempts = recoveries.max(failures);
            counts.stuck.fetch_add(u64::from(self.mark_stuck(&thread, attempts)?), Ordering::Relaxed);
            // A retry from outside counts anew.
            agenda.lock().failures.remove(id);
            return Ok(());
        }
        match run(&thread, self.lease, control) {
            Ok(()) => {
                agenda.lock().failures.remove(id);
                counts.continued.fetch_add(1, Ordering::Relaxed);
            }
            // Another worker was faster, or somebody has edited the thread.
            Err(error) if error.is_busy() || error.is_conflict() => {}
            Err(_) => {
                *agenda.lock().failures.entry(id.clone()).or_default() += 1;
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Returns whether a timer of the thread has passed.
    fn is_woken(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let due = self.store.timers(Some(self.store.now()))?;
        Ok(due.iter().any(|timer| timer.point.thread == *thread))
    }

    /// Stores an error with the first task that is due. Returns `false` if another worker has claimed the thread meanwhile, or
    /// the head has moved.
    fn mark_stuck(&self, thread: &Thread, attempts: u64) -> Result<bool, Error> {
        let Some(head) = thread.head()? else { return Ok(false) };
        let record = head.record();
        let Some(task) = record.tasks.first() else { return Ok(false) };
        let message = format!("stuck: the run was continued {attempts} times and did not end");
        let writes = NewWrites::new(record.point.checkpoint, task.id, task.path()).with(vec![special(ERROR, &message)]);
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(record.point.checkpoint));
        batch.writes = vec![writes];
        let (owner, now) = (self.store.mint_owner(), self.store.now());
        batch.lease = Some(match thread.last_lease()? {
            // The next recoveries are counted from here.
            Some(lease) if !lease.is_live(now) => NewLease::break_of(owner, now, lease.epoch),
            _ => NewLease::free(owner, now),
        });
        match self.store.commit(&batch) {
            Ok(()) => Ok(true),
            Err(StoreError::Leased { .. } | StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Gives signals to the tasks of a thread. A thread that others change all the time, or delete, is left to them.
fn deliver_to(thread: &Thread) -> Result<bool, StoreError> {
    match thread.deliver_signals() {
        Err(StoreError::Conflict { .. } | StoreError::CheckpointNotFound { .. }) => Ok(false),
        done => done,
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graphs: Vec<_> = self.graphs.keys().collect();
        f.debug_struct("Worker")
            .field("graphs", &graphs)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
