//! Workers: the runs of a file that wait for nothing are claimed and run, in any number of processes.
//!
//! A worker claims as many runs as it has threads to spare, in one call of the store, and sleeps until the log changes,
//! a timer is due, or a lease may have expired. *Absent:* which runs are due, and in which order, which the store
//! decides; decisions about a run, which are those of its graph.
//!
//! Invariant: a worker runs a thread under a lease of its own, so that two workers never run one thread at the same
//! time.

use annals::store::log::{ClaimQuery, ClaimedRun, Claims, LogExt};
use annals_runs::{SpecialWrite, ThreadRuns};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::limits::LEASE_DEFAULT;
use crate::base::{Namespace, Timestamp};
use crate::drive::io::pool::on_node_thread;
use crate::drive::io::runtime::CallerRuntime;
use crate::drive::run::events::{Listener, RunEvent, RunEventKind, both, tell};
use crate::drive::run::input::Input;
use crate::elapsed::ElapsedTime;
use crate::error::{Error, ErrorKind};
use crate::exec::{RunError, special};
use crate::graph::{CompiledGraph, START};
use crate::history::{Thread, ThreadInfo, ThreadQuery};
use crate::limits::{RECOVERIES_DEFAULT, WORKER_ASK, WORKER_POLL};
use crate::store::batch::{Batch, NewWrites};
use crate::store::lease::{LeaseGroup, NewLease, validate_lease};
use crate::store::log::LogWatch;
use crate::store::{Source, StatusKind, Store, StoreError, WriteMark};
use crate::task::RunControl;

use super::claims::{WorkerClaims, WorkerRun};
use super::lease::{Claimed, HeldLease, held};
use super::looks::Looks;
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
    duration: Duration,
    held: HeldLease,
    groups: &'a [LeaseGroup],
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

/// The parts of a worker that its threads share.
struct SharedWork<'a> {
    claims: &'a WorkerClaims,
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
            let mut run = graph.run(thread).lease(claim.duration).control(&claim.control.for_one_run());
            run.settings.held_lease = Some(Arc::clone(&claim.held));
            run.settings.lease_groups = claim.groups.to_vec();
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
        let mut signals = self.store.backend().follow()?.watch()?.every(WORKER_POLL).backing_off_to(WORKER_ASK);
        for status in [StatusKind::Sleeping, StatusKind::Interrupted] {
            self.deliver(&ThreadQuery::new().status(status))?;
        }
        let (claims, counts) = (WorkerClaims::new(self.concurrency), WorkerCounts::default());
        let runtime = CallerRuntime::here();
        self.verify_runtime(&runtime)?;
        let wakeup = Wakeup::of(&signals, control);
        let shared = SharedWork { claims: &claims, counts: &counts, control, wakeup: &wakeup };
        std::thread::scope(|scope| {
            let begin = |run: WorkerRun| {
                let (shared, runtime) = (&shared, &runtime);
                scope.spawn(move || runtime.enter(|| self.run_all(run, shared)));
            };
            let ended = self.claim_until_done(&shared, &mut signals, ends_idle, begin);
            claims.close();
            ended
        })?;
        // Runs that failed, or did not begin, release their leases in the background.
        self.store.flush_abandoned();
        Ok(WorkerReport {
            continued: counts.continued.into_inner(),
            failed: counts.failed.into_inner(),
            stuck: counts.stuck.into_inner(),
        })
    }

    /// Claims runs for the threads that are free and begins them, until it is asked to stop or nothing is due.
    fn claim_until_done(
        &self,
        shared: &SharedWork<'_>,
        signals: &mut LogWatch,
        ends_idle: bool,
        begin: impl Fn(WorkerRun),
    ) -> Result<(), Error> {
        let mut looks = Looks::new(self.lease / 3);
        loop {
            let seen = shared.wakeup.seen();
            if looks.fire_is_due(self.store.now()) {
                looks.fired(self.fire()?);
            }
            if looks.are_due(seen.log, self.store.now()) {
                shared.claims.look_again();
            }
            if !shared.stops() {
                shared.claims.take(|count| self.claim(count)).into_iter().for_each(&begin);
            }
            if let Some(error) = shared.claims.take_error() {
                return Err(error);
            }
            let progress = shared.claims.progress();
            let is_done = !progress.has_more && !progress.is_refused;
            if progress.busy == 0 && (ends_idle && is_done || shared.stops()) {
                return Ok(());
            }
            let next_in = looks.next_in(self.store.now());
            if progress.busy >= self.concurrency {
                shared.wakeup.wait_for_room(seen, next_in);
                looks.note_change();
            } else if !progress.has_more || shared.stops() {
                looks.claimed(&progress);
                if wait(signals, seen, looks.next_in(self.store.now()))? {
                    shared.wakeup.linger(seen, looks.linger(self.store.now()));
                    looks.note_change();
                }
            }
        }
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

    /// Claims runs, at most `count`.
    fn claim(&self, count: usize) -> Result<(Claims, Vec<WorkerRun>), StoreError> {
        self.store.flush_abandoned();
        let (now, owners) = (self.store.now(), (0..count).map(|_| self.store.mint_owner()));
        let mut query = ClaimQuery::new(owners, now, now.saturating_add(self.lease));
        for (name, graph) in &self.graphs {
            query = query.queue(name, graph.limits.iter().flat_map(QueueLimit::groups));
        }
        let mut claims = match self.store.backend().claim(&query) {
            // Another process has the lock: the runs stay due.
            Err(StoreError::Busy { .. }) => {
                let mut none = Claims::default();
                none.is_refused = true;
                none
            }
            claims => claims?,
        };
        let mut runs = Vec::new();
        for claimed in std::mem::take(&mut claims.runs) {
            let thread = self.store.thread(claimed.info.id())?;
            let lease = held(thread, claimed.lease.owner.clone(), self.lease);
            runs.push(WorkerRun { claimed, lease });
        }
        Ok((claims, runs))
    }

    /// Gives signals to the threads of a query: those whose sender or run has died before it gave them.
    fn deliver(&self, query: &ThreadQuery) -> Result<(), StoreError> {
        self.store.for_each_thread(query.clone(), deliver_to).map(|_| ())
    }

    /// Continues the run of a thread, unless it is stuck, and then one that is due after the other.
    fn run_all(&self, first: WorkerRun, shared: &SharedWork<'_>) {
        let mut next = Some(first);
        while let Some(run) = next.take() {
            let ended = if shared.stops() { Ok(()) } else { self.continue_run(&run, shared) };
            // A run that failed, or did not begin, releases its lease in the background: from then on the thread can be
            // claimed again.
            drop(run);
            self.store.flush_abandoned();
            shared.claims.end(ended);
            if shared.stops() {
                shared.claims.free();
            } else {
                next = shared.claims.take_next(|count| self.claim(count));
            }
        }
        shared.wakeup.notify();
    }

    /// Continues a run that was claimed.
    fn continue_run(&self, run: &WorkerRun, shared: &SharedWork<'_>) -> Result<(), Error> {
        let SharedWork { claims, counts, control, .. } = *shared;
        let ClaimedRun { info, lease, groups, .. } = &run.claimed;
        let thread = self.store.thread(info.id())?;
        let Some(graph) = info.graph.as_deref().and_then(|name| self.graphs.get(name)) else { return Ok(()) };
        let (failures, failure) = claims.failures(info.id());
        let ends = if lease.recoveries > self.max_recoveries || failures > self.max_recoveries {
            let attempts = lease.recoveries.max(failures);
            let why = if failure.is_empty() { failure } else { format!(": {failure}") };
            Some(format!("the run was continued {attempts} times and did not end{why}"))
        } else {
            graph.misfit(info)
        };
        if let Some(message) = ends {
            if self.mark_stuck(&thread, run, &message)? {
                counts.stuck.fetch_add(1, Ordering::Relaxed);
                self.report_stuck(info, message);
            }
            // A retry from outside counts anew.
            claims.forget_failures(info.id());
            return Ok(());
        }
        let (metadata, listener, held) = (metadata_of(info), self.listener.as_ref(), Arc::clone(&run.lease));
        match (graph.run)(&thread, &RunClaim { duration: self.lease, held, groups, metadata, listener, control }) {
            Ok(()) => {
                claims.forget_failures(info.id());
                counts.continued.fetch_add(1, Ordering::Relaxed);
            }
            // Somebody has edited the thread, or claimed it after a receive: it is claimed again if it is due.
            Err(error) if is_left_to_others(&error) => {}
            Err(error) => {
                claims.note_failure(info.id(), error.to_string());
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn report_stuck(&self, info: &ThreadInfo, message: String) {
        let Some(listener) = &self.listener else { return };
        let kind = RunEventKind::Stuck { error: message.into() };
        let (graph, run) = (info.graph.as_deref().unwrap_or_default().into(), info.record.run.unwrap_or_default());
        tell(listener, &RunEvent { thread: Some(info.id().clone()), graph, run, at: self.store.now(), kind });
    }

    /// Stores an error with the first task that is due, as one with which the run is given up. Returns `false` if
    /// another worker has claimed the thread meanwhile, or the head has moved.
    fn mark_stuck(&self, thread: &Thread, run: &WorkerRun, message: &str) -> Result<bool, Error> {
        let Some(head) = thread.head()? else { return Ok(false) };
        let record = head.record();
        let Some(task) = record.tasks.first() else { return Ok(false) };
        let writes = NewWrites::new(record.point.checkpoint, task.id, task.path())
            .with(vec![special(SpecialWrite::Error, message).with_mark(Some(WriteMark::GivenUp))]);
        let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(record.point.checkpoint));
        batch.writes = vec![writes];
        // The next recoveries are counted from here.
        batch.lease = Some(NewLease::release(run.claimed.lease.owner.clone()));
        match self.store.commit(&batch) {
            Ok(()) => {
                run.lease.lock().as_mut().and_then(Claimed::take);
                Ok(true)
            }
            Err(StoreError::LeaseLost { .. } | StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl WorkedGraph {
    /// Returns the reason for which the graph cannot take the input that was enqueued for it: an argument and an update
    /// are stored under tasks of different names.
    fn misfit(&self, info: &ThreadInfo) -> Option<String> {
        let record = &info.record;
        let task = record.tasks.first().filter(|_| record.source == Source::Input)?;
        match (self.takes_argument, &*task.name == START) {
            (true, true) => Some("the graph is an entrypoint: enqueue its argument, not an update".into()),
            (false, false) if info.graph.as_deref() == Some(&*task.name) && record.tasks.len() == 1 => {
                Some("the graph is not an entrypoint: enqueue an update of its channels, not an argument".into())
            }
            _ => None,
        }
    }
}

/// Returns the metadata that a run gives to its further checkpoints: those of its last one. Those of an edit are its
/// own.
fn metadata_of(info: &ThreadInfo) -> Option<String> {
    let record = &info.record;
    record.metadata.clone().filter(|_| matches!(record.source, Source::Input | Source::Loop))
}

/// Waits for a change of the log, the end of a run, or a request to stop, at most for a time. Returns whether there was
/// one.
fn wait(signals: &mut LogWatch, seen: SeenSignals, longest: Duration) -> Result<bool, StoreError> {
    let since = ElapsedTime::start();
    while let Some(left) = longest.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
        if signals.wait(seen.log, left)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether an error says that the run is left to others, or is claimed again later.
fn is_left_to_others(error: &Error) -> bool {
    let is_refused = matches!(error.as_store(), Some(StoreError::LeaseLimit { .. }));
    error.kind() == ErrorKind::Busy || error.is_conflict() || is_refused
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
