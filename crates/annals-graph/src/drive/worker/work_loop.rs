//! Workers: the runs of a file that wait for nothing are found, claimed and run, in any number of processes.
//!
//! A worker reads the first runs of its queues, and again when they run low or when a lease may have expired. In
//! between it follows the log: a checkpoint with due tasks names its thread, and a timer its task. *Absent:* decisions
//! about a run, which are those of its graph.
//!
//! Invariant: a worker runs a thread under a lease of its own, so that two workers never run one thread at the same
//! time.

use annals::store::log::{LogExt, LogPosition, ThreadParts, ThreadRow, ThreadRows};
use annals_runs::{SpecialWrite, ThreadRuns, ThreadStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::limits::{LEASE_DEFAULT, RECOVERIES_DEFAULT, SCHEDULE_LOOK, WORKER_PAGE_ROWS, WORKER_POLL};
use crate::base::{Namespace, ThreadId, Timestamp};
use crate::drive::io::pool::on_node_thread;
use crate::drive::io::runtime::CallerRuntime;
use crate::drive::run::events::{Listener, RunEvent, RunEventKind, both, tell};
use crate::drive::run::input::Input;
use crate::elapsed::ElapsedTime;
use crate::error::Error;
use crate::exec::{RunError, special};
use crate::graph::{CompiledGraph, START};
use crate::history::{Thread, ThreadInfo, ThreadQuery};
use crate::limits::{WORKER_ASK, WORKER_IDLE};
use crate::store::batch::{Batch, NewWrites};
use crate::store::lease::{LeaseGroup, NewLease, validate_lease};
use crate::store::log::LogWatch;
use crate::store::operation::OperationQuery;
use crate::store::{Source, StatusKind, Store, StoreError, WriteMark};
use crate::task::RunControl;

use super::agenda::{Agenda, DueRun};
use super::queue::QueueLimit;
use super::wakeup::{SeenSignals, Wakeup};

/// A graph of a worker, without the type of its state.
#[derive(Clone)]
struct WorkedGraph {
    /// Continues the run of a thread with a lease.
    run: Arc<dyn Fn(&Thread, &RunClaim<'_>) -> Result<(), Error> + Send + Sync>,
    /// True if the graph takes the argument of a function as its input.
    takes_argument: bool,
    /// An async node of the graph or of a subgraph, if there is one.
    async_node: Option<String>,
    limits: Vec<QueueLimit>,
}

/// The claim of a worker to a run.
struct RunClaim<'a> {
    lease: Duration,
    groups: Vec<LeaseGroup>,
    epoch: u64,
    /// The metadata of the run so far.
    metadata: Option<String>,
    listener: Option<&'a Listener>,
    control: &'a RunControl,
}

/// A loop that continues the runs of a file that are due: runs that were [enqueued](CompiledGraph::enqueue), runs that
/// a process left when it died, and tasks whose sleep has ended. Any number of workers in any number of processes may
/// work on one file. A thread belongs to the graph whose name is in the metadata of its head, where each run of a named
/// graph writes it.
///
/// A run that fails is left as it is, with the status `failed`. A run whose process dies is continued; after
/// [`Worker::max_recoveries`] such continuations without an end it gets the status `stuck`, so that it does
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
    graphs: BTreeMap<String, WorkedGraph>,
    limits: Vec<QueueLimit>,
    concurrency: usize,
    max_recoveries: u64,
    lease: Duration,
    needs_no_runtime: bool,
    listener: Option<Listener>,
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

/// The end of the log that a worker has read.
struct Followed {
    position: LogPosition,
    /// The number of the newest operation.
    operations: u64,
    /// The count of the signal of the log before the last read; `None` if the log may have changed without it.
    signals: Option<u64>,
}

/// The parts of a worker that its threads share.
struct SharedWork<'a> {
    agenda: &'a Mutex<Agenda>,
    counts: &'a WorkerCounts,
    control: &'a RunControl,
    wakeup: &'a Wakeup,
}

impl SharedWork<'_> {
    fn stops(&self) -> bool {
        self.control.drain_reason().is_some() || self.control.cancel_reason().is_some()
    }
}

impl Worker {
    /// Makes a worker without a graph, which runs one thread at a time.
    pub fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            graphs: BTreeMap::new(),
            limits: Vec::new(),
            concurrency: 1,
            max_recoveries: RECOVERIES_DEFAULT,
            lease: LEASE_DEFAULT,
            needs_no_runtime: false,
            listener: None,
        }
    }

    /// Adds a graph, whose threads are found by its name. A second graph with the name replaces the first.
    #[must_use]
    pub fn register<S: Clone + Send + Sync + 'static>(mut self, graph: &CompiledGraph<S>) -> Self {
        let (name, takes_argument, graph) = (graph.name().to_owned(), graph.graph.entry, graph.clone());
        let async_node = graph.graph.async_node();
        let run = Arc::new(move |thread: &Thread, claim: &RunClaim<'_>| {
            let mut run = graph.run(thread).lease(claim.lease).control(&claim.control.for_one_run());
            run.settings.lease_groups.clone_from(&claim.groups);
            run.settings.expected_epoch = Some(claim.epoch);
            run.settings.listener = both(run.settings.listener.take(), claim.listener);
            if claim.metadata.is_some() {
                run.settings.metadata.clone_from(&claim.metadata);
            }
            run.invoke(Input::Continue).map(|_| ())
        });
        let limits = self.limits.iter().filter(|limit| limit.graph() == name).cloned().collect();
        self.graphs.insert(name, WorkedGraph { run, takes_argument, async_node, limits });
        self
    }

    /// Adds limits for the queue of a graph, see [`QueueLimit`]. Several limits of one queue all hold.
    #[must_use]
    pub fn queue(mut self, limit: QueueLimit) -> Self {
        if let Some(graph) = self.graphs.get_mut(limit.graph()) {
            graph.limits.push(limit.clone());
        }
        self.limits.push(limit);
        self
    }

    /// Sets how many threads are run at the same time. Default: 1.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Sets how often a run is continued after its process died, or after it failed without a stored error, before it
    /// counts as stuck. Default: 10.
    #[must_use]
    pub fn max_recoveries(mut self, recoveries: u64) -> Self {
        self.max_recoveries = recoveries;
        self
    }

    /// Sets the duration of the leases, see [`Run::lease`](crate::Run::lease). A run whose process died on another
    /// machine is continued after it, at the next look. Default: 30 s.
    #[must_use]
    pub fn lease(mut self, duration: Duration) -> Self {
        self.lease = duration;
        self
    }

    /// Says that the async nodes of its graphs need no runtime of Tokio, such as those that await another executor's
    /// timers. With the feature `tokio` a worker whose graphs have an async node and which is started outside a runtime
    /// is refused ([`RunError::NoRuntime`]) unless this was said.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::Worker;
    ///
    /// # fn main() -> Result<()> {
    /// let next = Entrypoint::new("next", async |n: i64, _: Context| Ok(std::future::ready(n + 1).await)).compile()?;
    /// let store = Store::memory();
    /// next.enqueue(&store.thread("t")?, 1)?;
    /// let report = Worker::new(&store).register(&next).without_runtime().run_until_idle()?;
    /// assert_eq!(report.continued, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn without_runtime(mut self) -> Self {
        self.needs_no_runtime = true;
        self
    }

    /// Calls `listener` for each [`RunEvent`] of the runs that the worker continues, and of those that it marks as
    /// stuck. The listener of a graph ([`Run::on_event`](crate::Run::on_event)) is called as well, before it.
    ///
    /// # Example
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::{RunEventKind, Worker};
    ///
    /// # fn main() -> Result<()> {
    /// let ask = Entrypoint::new("ask", |_: i64, ctx: &Context| Ok(ctx.interrupt("how many?")?.as_int())).compile()?;
    /// let store = Store::memory();
    /// ask.enqueue(&store.thread("order-17")?, 17)?;
    /// let questions = Arc::new(Mutex::new(Vec::new()));
    /// let log = Arc::clone(&questions);
    /// let worker = Worker::new(&store).register(&ask).on_event(move |event| {
    ///     if let RunEventKind::Waiting { interrupts, .. } = &event.kind {
    ///         log.lock().unwrap().extend(interrupts.iter().map(|interrupt| interrupt.value.clone()));
    ///     }
    /// });
    /// worker.run_until_idle()?;
    /// assert_eq!(*questions.lock().unwrap(), [Value::from("how many?")]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(&RunEvent) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Works until `control` asks it to stop: with [`RunControl::request_drain`] each run ends with its superstep, with
    /// [`RunControl::cancel`] at once. When it returns, the leases of all its runs are released.
    ///
    /// Its tasks run in the runtime of Tokio that this thread is in (feature `tokio`): a thread of its own enters one
    /// with `let _inside = runtime.enter();`.
    ///
    /// # Errors
    /// The errors of the store while it looks for work. Runs that have begun end before. [`RunError::NoRuntime`] before
    /// the first claim, if a graph has an async node and this thread is outside a runtime of Tokio
    /// ([`Worker::without_runtime`]).
    pub fn run_until(&self, control: &RunControl) -> Result<WorkerReport, Error> {
        self.work(control, false)
    }

    /// Works until `shutdown` is ready, without blocking the executor that it is polled by; then it drains, and returns
    /// when its runs have ended their supersteps. A dropped future drains as well, in the background.
    ///
    /// With the feature `tokio`, and polled in a runtime of Tokio, its tasks run in that runtime: they can await its
    /// timers and sockets and spawn on it. They run on threads of their own, which do not keep the threads of the
    /// runtime busy.
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    /// use annals_graph::Worker;
    ///
    /// # fn main() -> Result<()> {
    /// let shutdown = async { /* a signal of the operating system */ };
    /// let report = annals_graph::block_on(Worker::new(&Store::memory()).arun_until(shutdown))?;
    /// assert_eq!(report.continued, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn arun_until(&self, shutdown: impl Future<Output = ()>) -> Result<WorkerReport, Error> {
        /// Drains the worker of a future that is dropped.
        struct DrainOnDrop(RunControl);
        impl Drop for DrainOnDrop {
            fn drop(&mut self) {
                self.0.request_drain("shutdown");
            }
        }
        let (worker, control) = (self.clone(), RunControl::new());
        let drains = DrainOnDrop(control.clone());
        let (mut work, mut shutdown) = (pin!(on_node_thread(move || worker.run_until(&control))), pin!(shutdown));
        poll_fn(move |context| {
            if drains.0.drain_reason().is_none() && shutdown.as_mut().poll(context).is_ready() {
                drains.0.request_drain("shutdown");
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Works until nothing is due: sleeping tasks and runs of other workers are not waited for.
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    pub fn run_until_idle(&self) -> Result<WorkerReport, Error> {
        self.work(&RunControl::new(), true)
    }

    /// Works until nothing is due, as [`Worker::run_until_idle`], or until `control` asks it to stop, as
    /// [`Worker::run_until`].
    ///
    /// # Errors
    /// As [`Worker::run_until`].
    pub fn run_until_idle_or(&self, control: &RunControl) -> Result<WorkerReport, Error> {
        self.work(control, true)
    }

    fn work(&self, control: &RunControl, ends_idle: bool) -> Result<WorkerReport, Error> {
        validate_lease(self.lease)?;
        let mut signals = self.store.backend().watch_log()?.every(WORKER_POLL);
        let (position, operations) = (self.store.backend().position(0)?, self.last_operation()?);
        let mut followed = Followed { position, operations, signals: None };
        for status in [StatusKind::Sleeping, StatusKind::Interrupted] {
            self.deliver(&ThreadQuery::new().status(status))?;
        }
        let (agenda, counts, clock) = (Mutex::new(Agenda::default()), WorkerCounts::default(), ElapsedTime::start());
        let (mut scan_at, mut ask_at, mut fire_at) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut fires_next: Option<Timestamp> = None;
        let runtime = CallerRuntime::here();
        self.verify_runtime(&runtime)?;
        let wakeup = Wakeup::of(&signals, control);
        let shared = SharedWork { agenda: &agenda, counts: &counts, control, wakeup: &wakeup };
        std::thread::scope(|scope| {
            loop {
                let seen = wakeup.seen();
                if clock.elapsed() >= scan_at {
                    agenda.lock().has_more = true;
                    scan_at = clock.elapsed() + self.lease / 3;
                }
                if clock.elapsed() >= fire_at || fires_next.is_some_and(|at| at <= self.store.now()) {
                    fires_next = self.fire()?;
                    fire_at = clock.elapsed() + SCHEDULE_LOOK;
                }
                let wakes_next = self.find(&agenda, &mut followed, seen)?;
                let mut list = agenda.lock();
                if let Some(error) = list.error.take() {
                    return Err(error);
                }
                if clock.elapsed() >= ask_at {
                    list.ask_again();
                    ask_at = clock.elapsed() + WORKER_ASK;
                }
                while list.running() < self.concurrency
                    && !shared.stops()
                    && let Some(due) = list.take()
                {
                    let (shared, runtime) = (&shared, &runtime);
                    scope.spawn(move || runtime.enter(|| self.run_all(due, shared)));
                }
                let (is_idle, is_empty) = (list.running() == 0, list.len() == 0 && !list.has_more);
                let next_at = list.allowed_at().into_iter().chain(fires_next).chain(wakes_next);
                let next_at = next_at.filter(|at| *at > self.store.now()).min();
                let (is_full, is_refused) = (list.running() >= self.concurrency, list.is_refused());
                drop(list);
                if is_idle && (ends_idle && is_empty || shared.stops()) {
                    return Ok(());
                }
                // A run of another process that ends makes room, and the last one to be refused may have missed it.
                let look_at = if is_refused { scan_at.min(ask_at) } else { scan_at };
                let left = look_at.saturating_sub(clock.elapsed());
                if is_full {
                    wakeup.linger(seen);
                }
                if self.wait(&mut signals, seen, left, next_at)? {
                    followed.signals = None;
                }
            }
        })?;
        // Runs that failed release their leases in the background.
        self.store.flush_abandoned();
        Ok(WorkerReport {
            continued: counts.continued.into_inner(),
            failed: counts.failed.into_inner(),
            stuck: counts.stuck.into_inner(),
        })
    }

    /// Verifies that there is a runtime of Tokio for the async nodes of its graphs, unless they need none.
    ///
    /// # Errors
    /// [`RunError::NoRuntime`].
    fn verify_runtime(&self, runtime: &CallerRuntime) -> Result<(), RunError> {
        if cfg!(not(feature = "tokio")) || runtime.is_known() || self.needs_no_runtime {
            return Ok(());
        }
        match self.graphs.iter().find_map(|(name, graph)| Some((name, graph.async_node.clone()?))) {
            Some((graph, node)) => Err(RunError::NoRuntime { graph: graph.clone(), node }),
            None => Ok(()),
        }
    }

    /// Enqueues the runs of schedules that are due. Returns the next due time.
    #[cfg(feature = "schedules")]
    fn fire(&self) -> Result<Option<Timestamp>, StoreError> {
        super::schedule::Schedules::of(&self.store).fire(|graph| self.graphs.contains_key(graph))
    }

    #[cfg(not(feature = "schedules"))]
    fn fire(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    /// Waits for a commit, the end of a run, a request to stop, the timestamp `next_at` of a timer, a rate or a
    /// schedule, or the next look at the queues. Returns whether the log may have changed.
    fn wait(
        &self,
        signals: &mut LogWatch,
        seen: SeenSignals,
        left: Duration,
        next_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let now = self.store.now();
        let due_in = next_at.filter(|at| *at > now).map_or(i64::MAX, |at| at.as_micros() - now.as_micros());
        let due_in = Duration::from_micros(u64::try_from(due_in).unwrap_or(u64::MAX));
        let (since, longest) = (ElapsedTime::start(), left.min(due_in).min(WORKER_IDLE));
        while let Some(left) = longest.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            if signals.wait(seen.log, left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the first runs of the queues of its graphs, if it knows too few.
    fn refill(&self, agenda: &Mutex<Agenda>) -> Result<(), StoreError> {
        if !agenda.lock().has_more || agenda.lock().len() >= self.concurrency {
            return Ok(());
        }
        agenda.lock().has_more = false;
        for graph in self.graphs.keys() {
            let mut query = ThreadQuery::new().queue(graph).limit(WORKER_PAGE_ROWS);
            loop {
                self.store.flush_abandoned();
                let page = self.store.backend().thread_rows(&ThreadRows::Listed(&query), info_and_lease())?;
                let is_last = page.len() < WORKER_PAGE_ROWS;
                let added = page.iter().filter(|row| self.offer(agenda, row, false)).count();
                // The runs that others have claimed, or that a limit refuses, are passed over.
                match page.last().and_then(|row| row.info.as_ref()).filter(|_| !is_last) {
                    Some(last) if added == 0 => query = query.after(last),
                    last => {
                        agenda.lock().has_more |= last.is_some();
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds the runs that are due. Returns the timestamp of the first timer that has not passed.
    fn find(
        &self,
        agenda: &Mutex<Agenda>,
        followed: &mut Followed,
        seen: SeenSignals,
    ) -> Result<Option<Timestamp>, StoreError> {
        if followed.signals.replace(seen.log) != Some(seen.log) {
            self.follow(agenda, &mut followed.position)?;
            self.follow_operations(agenda, &mut followed.operations)?;
        }
        let wakes_next = self.wake(agenda)?;
        self.refill(agenda)?;
        Ok(wakes_next)
    }

    /// Finds the threads with new checkpoints whose tasks are due.
    fn follow(&self, agenda: &Mutex<Agenda>, position: &mut LogPosition) -> Result<(), StoreError> {
        let mut is_first = true;
        loop {
            let page = self.store.backend().changes_after(position, None, WORKER_PAGE_ROWS)?;
            *position = page.position;
            let records: Vec<_> = page.records.into_iter().map(|(_, record)| record).collect();
            for record in records.iter().filter(|record| annals_runs::is_mailbox(&record.point.namespace)) {
                deliver_to(&self.store.thread(&record.point.thread)?)?;
            }
            if is_first {
                let roots =
                    records.iter().filter(|record| record.point.namespace.is_root() && !record.tasks.is_empty());
                self.look(agenda, roots.map(|record| &record.point.thread), false)?;
            } else {
                // The queues hold the others, in their order.
                agenda.lock().has_more = true;
            }
            if records.len() < WORKER_PAGE_ROWS {
                return Ok(());
            }
            is_first = false;
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
            self.look(agenda, changes.map(|change| &change.thread), false)?;
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

    /// Finds the threads whose sleeping tasks can go on, and those with a task that was made due from outside. Returns
    /// the timestamp of the first timer that has not passed.
    fn wake(&self, agenda: &Mutex<Agenda>) -> Result<Option<Timestamp>, StoreError> {
        let (now, backend) = (self.store.now(), self.store.backend());
        let first = backend.timers(None, 1)?.first().map(|timer| timer.wake_at);
        if first.is_none_or(|wake_at| wake_at > now) {
            return Ok(first);
        }
        if agenda.lock().len() <= WORKER_PAGE_ROWS {
            let due = backend.timers(Some(now), WORKER_PAGE_ROWS)?;
            let added = self.look(agenda, due.iter().map(|timer| &timer.point.thread), true)?;
            if added == 0 && due.len() == WORKER_PAGE_ROWS {
                // Those at the front belong to other graphs.
                let all = self.store.timers(Some(now))?;
                self.look(agenda, all.iter().skip(due.len()).map(|timer| &timer.point.thread), true)?;
            }
        }
        // A timer that has passed and is still there belongs to others, or runs.
        let next = backend.timers(None, WORKER_PAGE_ROWS)?;
        Ok(next.iter().map(|timer| timer.wake_at).find(|wake_at| *wake_at > now))
    }

    /// Adds those of some threads that are due, read at once. Those that it knows are passed over. Returns the number
    /// of those that were added.
    fn look<'t>(
        &self,
        agenda: &Mutex<Agenda>,
        threads: impl Iterator<Item = &'t ThreadId>,
        woken: bool,
    ) -> Result<usize, StoreError> {
        let unknown: BTreeSet<&ThreadId> = {
            let agenda = agenda.lock();
            threads.filter(|thread| !agenda.knows(thread)).collect()
        };
        let unknown: Vec<&ThreadId> = unknown.into_iter().collect();
        let mut added = 0;
        for page in unknown.chunks(WORKER_PAGE_ROWS) {
            let rows = self.store.backend().thread_rows(&ThreadRows::Ids(page), info_and_lease())?;
            added += rows.iter().filter(|row| self.offer(agenda, row, woken)).count();
        }
        Ok(added)
    }

    /// Adds a thread that is due, belongs to one of the graphs, and has no live lease. `woken` tells that one of its
    /// timers has passed. Returns whether it was added.
    fn offer(&self, agenda: &Mutex<Agenda>, row: &ThreadRow, woken: bool) -> bool {
        let Some((info, graph)) = row.info.as_ref().and_then(|info| Some((info, self.due(info, woken)?))) else {
            return false;
        };
        let now = self.store.now();
        !row.lease.as_ref().is_some_and(|lease| lease.is_live(now))
            && agenda.lock().add(DueRun::of(info, graph.groups(info)))
    }

    /// Returns the graph of a thread that is due and not paused.
    fn due(&self, info: &ThreadInfo, woken: bool) -> Option<&WorkedGraph> {
        let is_due = match ThreadStatus::of(info) {
            ThreadStatus::Running => true,
            ThreadStatus::Sleeping(until) => woken || until <= self.store.now(),
            // One of several interrupts has a resume value from outside.
            ThreadStatus::Interrupted(_) => woken,
            _ => false,
        };
        let is_due = is_due && !info.facts().is_paused;
        info.graph().filter(|_| is_due).and_then(|name| self.graphs.get(name))
    }

    /// Continues the run of a thread, unless it is stuck, and then one that is due after the other.
    fn run_all(&self, first: DueRun, shared: &SharedWork<'_>) {
        let mut next = Some(first);
        while let Some(due) = next.take() {
            let ended = self.continue_run(&due, shared);
            let mut agenda = shared.agenda.lock();
            match ended {
                Ok(None) => {
                    agenda.end(&due.thread);
                    // A run that failed stays due without a commit that tells of it.
                    agenda.has_more |= agenda.failures.contains_key(&due.thread);
                }
                Ok(Some((group, until))) => agenda.refuse(due, group, until),
                Err(error) => {
                    agenda.end(&due.thread);
                    agenda.error.get_or_insert(error);
                }
            }
            if agenda.error.is_none() && !shared.stops() {
                next = agenda.take();
            }
            // A run that ended without a commit also makes room for another one, and a short agenda is refilled.
            if next.is_none() || agenda.len() < self.concurrency {
                drop(agenda);
                shared.wakeup.notify();
            }
        }
    }

    /// Continues a run. Returns the group whose limit has refused the claim, if one did.
    fn continue_run(
        &self,
        due: &DueRun,
        shared: &SharedWork<'_>,
    ) -> Result<Option<(String, Option<Timestamp>)>, Error> {
        let SharedWork { agenda, counts, control, .. } = *shared;
        let id = &due.thread;
        let thread = self.store.thread(id)?;
        // From one snapshot: a run that another worker has claimed since, or holds, is left to it.
        let row = self.store.backend().thread_rows(&ThreadRows::Ids(&[id]), info_and_lease())?.pop();
        let ThreadRow { info: Some(info), lease, .. } = row.unwrap_or_default() else { return Ok(None) };
        if lease.as_ref().is_some_and(|lease| lease.is_live(self.store.now())) {
            return Ok(None);
        }
        let woken = match ThreadStatus::of(&info) {
            ThreadStatus::Interrupted(_) => self.is_woken(&thread)?,
            ThreadStatus::Sleeping(until) if until > self.store.now() => self.is_woken(&thread)?,
            _ => false,
        };
        let Some(graph) = self.due(&info, woken) else { return Ok(None) };
        let (failures, failure) = agenda.lock().failures.get(id).cloned().unwrap_or_default();
        let unreleased = lease.as_ref().filter(|lease| lease.expires_at.is_some());
        let recoveries = unreleased.map_or(0, |lease| lease.recoveries + 1);
        let ends = if recoveries > self.max_recoveries || failures > self.max_recoveries {
            let attempts = recoveries.max(failures);
            let why = if failure.is_empty() { failure } else { format!(": {failure}") };
            Some(format!("the run was continued {attempts} times and did not end{why}"))
        } else {
            graph.misfit(&info)
        };
        if let Some(message) = ends {
            if self.mark_stuck(&thread, &message)? {
                counts.stuck.fetch_add(1, Ordering::Relaxed);
                self.report_stuck(&info, message);
            }
            // A retry from outside counts anew.
            agenda.lock().failures.remove(id);
            return Ok(None);
        }
        let (epoch, groups) = (lease.map_or(0, |lease| lease.epoch) + 1, due.groups.clone());
        let (metadata, listener) = (metadata_of(&info), self.listener.as_ref());
        let claim = RunClaim { lease: self.lease, groups, epoch, metadata, listener, control };
        let ended = (graph.run)(&thread, &claim);
        // A run that failed releases its lease in the background: from then on the thread can be claimed again.
        self.store.flush_abandoned();
        match ended {
            Ok(()) => {
                agenda.lock().failures.remove(id);
                counts.continued.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => match error.as_store() {
                Some(StoreError::LeaseLimit { group, until }) => return Ok(Some((group.clone(), *until))),
                // Another worker was faster, or somebody has edited the thread.
                _ if error.is_busy() || error.is_conflict() => {}
                _ => {
                    let mut agenda = agenda.lock();
                    let (count, last) = agenda.failures.entry(id.clone()).or_default();
                    (*count, *last) = (*count + 1, error.to_string());
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                }
            },
        }
        Ok(None)
    }

    fn report_stuck(&self, info: &ThreadInfo, message: String) {
        let Some(listener) = &self.listener else { return };
        let kind = RunEventKind::Stuck { error: message.into() };
        let (graph, run) = (info.graph().unwrap_or_default().into(), info.record().run.unwrap_or_default());
        tell(listener, &RunEvent { thread: Some(info.id().clone()), graph, run, at: self.store.now(), kind });
    }

    /// Returns whether a timer of the thread has passed.
    fn is_woken(&self, thread: &Thread) -> Result<bool, StoreError> {
        let first = thread.timers()?.into_iter().next();
        Ok(first.is_some_and(|timer| timer.wake_at <= self.store.now()))
    }

    /// Stores an error with the first task that is due, as one with which the run is given up. Returns `false` if
    /// another worker has claimed the thread meanwhile, or the head has moved.
    fn mark_stuck(&self, thread: &Thread, message: &str) -> Result<bool, Error> {
        let Some(head) = thread.head()? else { return Ok(false) };
        let record = head.record();
        let Some(task) = record.tasks.first() else { return Ok(false) };
        let writes = NewWrites::new(record.point.checkpoint, task.id, task.path())
            .with(vec![special(SpecialWrite::Error, message).with_mark(Some(WriteMark::GivenUp))]);
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(record.point.checkpoint));
        batch.writes = vec![writes];
        let (owner, now) = (self.store.mint_owner(), self.store.now());
        batch.lease = Some(match thread.last_lease()? {
            // The next recoveries are counted from here.
            Some(lease) if !lease.is_live(now) => NewLease::break_of(owner, now, lease.epoch),
            _ => NewLease::require_unclaimed(owner, now),
        });
        match self.store.commit(&batch) {
            Ok(()) => Ok(true),
            Err(StoreError::Leased { .. } | StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl WorkedGraph {
    /// Returns the groups of leases in which a run counts.
    fn groups(&self, info: &ThreadInfo) -> Vec<LeaseGroup> {
        if self.limits.is_empty() {
            return Vec::new();
        }
        let metadata = info.record().metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let metadata = metadata.unwrap_or(serde_json::Value::Null);
        self.limits.iter().flat_map(|limit| limit.groups(&metadata)).collect()
    }

    /// Returns the reason for which the graph cannot take the input that was enqueued for it: an argument and an update
    /// are stored under tasks of different names.
    fn misfit(&self, info: &ThreadInfo) -> Option<String> {
        let record = info.record();
        let task = record.tasks.first().filter(|_| record.source == Source::Input)?;
        match (self.takes_argument, &*task.name == START) {
            (true, true) => Some("the graph is an entrypoint: enqueue its argument, not an update".into()),
            (false, false) if info.graph() == Some(&*task.name) && record.tasks.len() == 1 => {
                Some("the graph is not an entrypoint: enqueue an update of its channels, not an argument".into())
            }
            _ => None,
        }
    }
}

/// Returns the metadata that a run gives to its further checkpoints: those of its last one. Those of an edit are its
/// own.
fn metadata_of(info: &ThreadInfo) -> Option<String> {
    let record = info.record();
    record.metadata.clone().filter(|_| matches!(record.source, Source::Input | Source::Loop))
}

/// The parts of a thread that tell whether it is due.
fn info_and_lease() -> ThreadParts<'static> {
    let mut parts = ThreadParts::default();
    (parts.info, parts.lease) = (true, true);
    parts
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
