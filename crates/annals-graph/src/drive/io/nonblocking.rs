//! The asynchronous driver: the machine in a future, which runs on any executor.
//!
//! Asynchronous nodes are polled by that future, the others run on threads, so that none stalls another. Commits go to
//! the background writer and are awaited.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Waiting, Poll, Wake, Waker};

use parking_lot::Mutex;

use crate::drive::run::active_run::ActiveRun;
use crate::drive::run::attempt::{attempt, attempt_begun, attempt_here, closed, wait_before};
use crate::drive::run::cache::look_up_async;
use crate::drive::run::call::Running;
use crate::drive::run::commits::PendingCommits;
use crate::error::Error;
use crate::exec::{Closing, Effect, Event, Machine, Opened, Status, TaskJob, TaskOutcome, open};
use crate::graph::{NodeInput, Work};
use crate::store::Store;
use crate::store::batch::Batch;
use crate::task::Called;

use super::feed::{FeedReader, Notice, while_polled};
use super::pool::{Pool, in_task, on_node_thread, run_here};
use super::timer::Parked;

/// A run in a future.
pub(in crate::drive) struct AsyncDriver {
    run: ActiveRun,
    commits: PendingCommits,
    due: VecDeque<Box<TaskJob>>,
    running: usize,
    polled: Vec<Polled>,
    /// The called tasks that are polled.
    called: Vec<(Arc<Running>, Arc<TaskWaker>)>,
    woken: Arc<Woken>,
    feed: FeedReader,
    /// The error that ends the run, held until the events before it are returned.
    failed: Option<Error>,
}

/// A task that is polled.
struct Polled {
    slot: usize,
    future: Pin<Box<dyn Future<Output = TaskOutcome> + Send>>,
    waker: Arc<TaskWaker>,
}

/// The waker of the task that polls the driver.
#[derive(Default)]
struct Woken(Mutex<Option<Waker>>);

/// Wakes the driver, which then polls only the tasks that were woken.
struct TaskWaker {
    ready: AtomicBool,
    driver: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        let waker = self.driver.0.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl AsyncDriver {
    /// Makes the driver of a run.
    pub(in crate::drive) fn new(run: ActiveRun) -> Self {
        let feed = if run.inside { Arc::default() } else { Arc::clone(&run.host.feed) };
        if !run.inside {
            run.host.polls.store(true, Ordering::Relaxed);
        }
        let commits = PendingCommits::new(&run);
        Self {
            run,
            commits,
            due: VecDeque::new(),
            running: 0,
            polled: Vec::new(),
            called: Vec::new(),
            woken: Arc::default(),
            feed: FeedReader(feed),
            failed: None,
        }
    }

    /// Runs until there is an event, or until the run ends (`None`) with all its batches committed. Events before a
    /// failure are returned before its error.
    pub(super) async fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            // The events of a superstep are returned after its commit is submitted.
            if self.failed.is_none() {
                self.failed = self.act().await.err();
            }
            if let Some(event) = self.run.poll_event() {
                return Ok(Some(event));
            }
            if let Some(error) = self.failed.take() {
                return self.run.end_if_cancelled_async(error).await.map(|()| None);
            }
            match self.wait().await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return self.run.end_if_cancelled_async(error).await.map(|()| None),
            }
        }
    }

    /// Runs to the end. Its events go to the outermost driver.
    pub(in crate::drive) async fn run(mut self) -> Result<Machine, Error> {
        loop {
            let acted = self.act().await;
            self.run.forward();
            let goes_on = match acted {
                Ok(()) => self.wait().await,
                Err(error) => Err(error),
            };
            match goes_on {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => self.run.end_if_cancelled_async(error).await?,
            }
            return Ok(self.run.machine);
        }
    }

    /// Runs as far as it is polled for events.
    pub(super) fn events(mut self) -> Events {
        let shown = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&shown);
        let run = Box::pin(async move {
            while let Some(event) = self.next_event().await? {
                let mut event = Some(event);
                // It goes on when the event was taken.
                poll_fn(|_| match event.take() {
                    None => Poll::Ready(()),
                    shown => {
                        *slot.lock() = shown;
                        Poll::Pending
                    }
                })
                .await;
            }
            Ok(self.run.machine)
        });
        Events { run, shown }
    }

    /// Performs the effects that the machine requests.
    async fn act(&mut self) -> Result<(), Error> {
        self.run.heed_control();
        while let Some(effect) = self.run.machine.poll_effect() {
            match effect {
                Effect::Commit(batch) => self.commit(batch).await?,
                Effect::LookUp { slots, keys } => {
                    let found = match self.run.cache() {
                        Some(cache) => look_up_async(cache, keys).await,
                        None => Vec::new(),
                    };
                    self.run.found(&slots, found);
                }
                Effect::Keep { key, value, lifetime } => self.run.keep(key, value, lifetime),
                Effect::Start(job) => {
                    self.run.host.verify_commits()?;
                    if job.context.attempt() > 1 { self.due.push_front(job) } else { self.due.push_back(job) }
                }
            }
        }
        match (&self.run.store, self.run.take_held()) {
            // It is the only commit of the run.
            (Some(store), Some(batch)) => {
                let store = store.clone();
                self.commit_awaited(&store, batch).await.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Waits for one notice. Returns whether the run goes on.
    async fn wait(&mut self) -> Result<bool, Error> {
        if self.due.is_empty() && self.running == 0 {
            let ended = !matches!(self.run.machine.status(), Status::Running);
            if ended {
                let commits = self.commits.at_end(&self.run);
                while let Some(handle) = commits.front().cloned() {
                    handle.await?;
                    commits.pop_front();
                }
                self.run.host.verify_commits()?;
                if let (Some(store), Some(batch)) = (&self.run.store, self.run.release()) {
                    // If it cannot be stored, the lease expires.
                    _ = self.commits.write(store, batch).await;
                }
                self.run.report_end();
            }
            return Ok(!ended);
        }
        while self.running < self.run.host.concurrency_max
            && let Some(job) = self.due.pop_front()
        {
            self.start(job);
        }
        let mut notice = Some(poll_fn(|waiting| self.poll_fact(waiting)).await);
        // Tasks that have ended meanwhile share the commit.
        while let Some(next) = notice {
            match next {
                Notice::Ended(slot, outcome) => {
                    self.running -= 1;
                    self.run.task_done(slot, outcome);
                }
                // It is handed out first, so that the queue stays bounded.
                Notice::Shown(event) => {
                    self.run.machine.show(event);
                    break;
                }
                Notice::Called(call) => self.poll_beside(call),
            }
            notice = self.feed.0.poll();
        }
        Ok(true)
    }

    fn start(&mut self, mut job: Box<TaskJob>) {
        self.running += 1;
        let slot = job.slot;
        match open(&mut job) {
            Opened::Ended(outcome) => self.feed.0.push(Notice::Ended(slot, outcome)),
            Opened::Path(wait) => self.poll_task(slot, async move { closed(&job, Closing::Path(wait)).await }),
            Opened::Node { node, input } => {
                let work = job.graph().nodes[node].body.work.clone();
                self.start_node(job, work, input);
            }
        }
    }

    /// Starts the node of a task.
    fn start_node(&mut self, job: Box<TaskJob>, work: Work, input: NodeInput) {
        let (slot, host) = (job.slot, Arc::clone(&self.run.host));
        match work {
            Work::Blocking(run) if job.after.is_zero() && !job.awaits_paths() => {
                let feed = Arc::clone(&self.feed.0);
                let work = move || feed.push(Notice::Ended(slot, attempt_here(&job, input, &run)));
                // A thread that runs a task does not wait for another one.
                if in_task() { run_here(work) } else { Pool::shared().spawn(Box::new(work)) }
            }
            Work::Blocking(run) => self.poll_task(slot, async move {
                if let Err(outcome) = wait_before(&job, &host, host.timer()).await {
                    return outcome;
                }
                let begun = move || {
                    let closing = attempt_begun(&job, input, &run);
                    (job, closing)
                };
                let (job, closing) = on_node_thread(begun).await;
                closed(&job, closing).await
            }),
            Work::Async(start) | Work::Either(_, start) => self.poll_task(slot, async move {
                match wait_before(&job, &host, host.timer()).await {
                    Ok(()) => attempt(&job, input, &start, &host).await,
                    Err(outcome) => outcome,
                }
            }),
        }
    }

    fn waker(&self) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { ready: AtomicBool::new(true), driver: Arc::clone(&self.woken) })
    }

    /// Polls a called task from now on, beside those of the superstep.
    fn poll_beside(&mut self, call: Arc<Running>) {
        let waker = self.waker();
        self.called.push((call, waker));
    }

    fn poll_task(&mut self, slot: usize, task: impl Future<Output = TaskOutcome> + Send + 'static) {
        let waker = self.waker();
        self.polled.push(Polled { slot, future: Box::pin(task), waker });
    }

    /// Polls the tasks that were woken until there is a notice.
    fn poll_fact(&mut self, waiting: &mut Waiting<'_>) -> Poll<Notice> {
        self.woken.0.lock().clone_from(&Some(waiting.waker().clone()));
        if let Some(notice) = self.feed.0.poll_or_wake(waiting.waker()) {
            return Poll::Ready(notice);
        }
        for at in 0..self.polled.len() {
            let task = &mut self.polled[at];
            if !task.waker.ready.swap(false, Ordering::AcqRel) {
                continue;
            }
            let waker = Waker::from(Arc::clone(&task.waker));
            let polled = while_polled(|| task.future.as_mut().poll(&mut Waiting::from_waker(&waker)));
            if let Poll::Ready(outcome) = polled {
                let slot = task.slot;
                // Tasks start in order and mostly end in order.
                self.polled.remove(at);
                // The events of the task are queued before its end.
                self.feed.0.push(Notice::Ended(slot, outcome));
            }
            // The events of the task are returned before another task is polled.
            if let Some(notice) = self.feed.0.poll() {
                waiting.waker().wake_by_ref();
                return Poll::Ready(notice);
            }
        }
        self.called.retain(|(call, woken)| {
            if !woken.ready.swap(false, Ordering::AcqRel) {
                return true;
            }
            let waker = Waker::from(Arc::clone(woken));
            while_polled(|| Arc::clone(call).poll_end(&mut Waiting::from_waker(&waker))).is_pending()
        });
        match self.feed.0.poll() {
            Some(notice) => {
                waiting.waker().wake_by_ref();
                Poll::Ready(notice)
            }
            None => Poll::Pending,
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        let Some(store) = self.run.store.clone() else { return Ok(()) };
        let goes_on = match self.run.next_commit(batch) {
            Some(batch) if self.run.host.awaits_commit() => self.commit_awaited(&store, batch).await?,
            Some(batch) => self.commits.submit_async(&store, batch).await.map(|()| true)?,
            None => true,
        };
        if goes_on {
            self.run.machine.handle_committed();
        }
        Ok(())
    }

    /// Commits a batch as [`ActiveRun::commit_awaited`], without blocking.
    async fn commit_awaited(&mut self, store: &Store, mut batch: Batch) -> Result<bool, Error> {
        let (mut attempt, retains) = (1, self.run.host.retains());
        loop {
            let mut retained = self.run.retained(&batch);
            let Err(refused) = self.commits.write(store, batch).await else { return Ok(true) };
            let is_raised = retained.as_mut().is_some_and(|again| self.run.raise(again, &refused, attempt));
            match retained {
                Some(again) if is_raised => batch = again,
                retained => {
                    let retained = retained.filter(|_| retains);
                    return self.run.branch_off_async(retained, refused).await.map(|()| false);
                }
            }
            attempt += 1;
        }
    }
}

/// A run that is polled for its events. A caller that stops polling loses no event, and can continue later.
pub(super) struct Events {
    run: Pin<Box<dyn Future<Output = Result<Machine, Error>> + Send>>,
    /// The event that it stopped at.
    shown: Arc<Mutex<Option<Event>>>,
}

impl Events {
    /// Runs until there is an event, or the run ends.
    pub(super) fn poll_next(&mut self, waiting: &mut Waiting<'_>) -> Poll<Result<ControlFlow<Machine, Event>, Error>> {
        let polled = self.run.as_mut().poll(waiting);
        match self.shown.lock().take() {
            Some(event) => Poll::Ready(Ok(ControlFlow::Continue(event))),
            None => polled.map_ok(ControlFlow::Break),
        }
    }
}

/// Wakes a thread.
struct ThreadWaker(std::thread::Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut waiting = Waiting::from_waker(&waker);
    let _parked = Parked::begin();
    loop {
        match future.as_mut().poll(&mut waiting) {
            Poll::Ready(result) => return result,
            Poll::Pending => Parked::park(),
        }
    }
}
