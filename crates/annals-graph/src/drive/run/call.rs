//! Running the tasks that nodes call: on the thread of the caller, beside it, or polled with its run.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Waiting, Poll, Wake, Waker};

use parking_lot::{Mutex, MutexGuard};

use crate::base::{Clock, Encoded, IdSource, Map, SystemClock, Value};
use crate::drive::io::feed::{Notice, is_polled};
use crate::drive::io::nonblocking::block_on;
use crate::drive::io::pool::{Pool, in_task, run_here};
use crate::error::Error;
use crate::exec::{
    CallEnd, CallJob, CallLeft, DebugPart, DebugPayload, Event, EventKind, NodeUpdate, RunError, TaskEnd,
    attempt_write, attempts_write, call_end, call_entry, call_failed, call_messages, call_result, call_start,
    close_call, known_call, next_attempt, open_call, overdue, shown_result, sleeps_before, still_asleep,
    versions_write,
};
use crate::graph::NodeResult;
use crate::state::WritesView;
use crate::store::Store;
use crate::store::batch::{Batch, NewWrites};
use crate::task::{Call, CallOutcome, CallValue, CallWork, Called, Context, FunctionResult, Host, Signal, stops};

use super::attempt::{LeavesCalls, WaitResult, wait_for, watch};
use super::builder::Durability;
use super::cache::{look_up, look_up_async};
use super::events::RunEventKind;
use super::host::RunHost;

/// A call that was started.
pub(in crate::drive) struct Running {
    host: Arc<RunHost>,
    state: Mutex<CallState>,
    /// The future of the call. It is polled by its caller and, if the call may run beside it, by the outermost driver.
    future: Mutex<Option<CallFuture>>,
    waiting: Arc<WaitingForCall>,
    /// True if the attempt that made the call was stopped.
    left: AtomicBool,
}

type CallFuture = Pin<Box<dyn Future<Output = CallOutcome> + Send>>;

enum CallState {
    /// The call has not begun.
    Due(Box<CallJob>),
    Begun,
    Ended(Option<CallOutcome>),
}

/// The wakers of the tasks that wait for a call or poll it.
#[derive(Default)]
struct WaitingForCall {
    wakers: Mutex<Vec<Waker>>,
    /// True if a poll found the future locked by another poll.
    missed: AtomicBool,
}

impl WaitingForCall {
    fn register(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl Wake for WaitingForCall {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Starts a call.
pub(super) fn start(host: Arc<RunHost>, context: &Context, call: Call) -> Arc<dyn Called> {
    let mut job = Box::new(open_call(context, call, host.now()));
    context.progress();
    host.show_start(&job);
    let make = |state, future| {
        let (state, future, left) = (Mutex::new(state), Mutex::new(future), AtomicBool::new(false));
        Arc::new(Running { host: Arc::clone(&host), state, future, waiting: Arc::default(), left })
    };
    if let Some(changed) = job.changed.take() {
        return make(CallState::Ended(Some(CallOutcome::Failed(changed.into()))), None);
    }
    if let Some(stored) = job.stored.take() {
        return make(CallState::Ended(Some(CallOutcome::Done(CallValue::Stored(stored)))), None);
    }
    if let Some(outcome) = still_asleep(&mut job).or_else(|| stopped(context)) {
        return make(CallState::Ended(Some(outcome)), None);
    }
    if let Err(error) = host.note_attempt(context) {
        return make(CallState::Ended(Some(CallOutcome::Failed(error.into()))), None);
    }
    // The caller of a call that is stored with it only waits for it.
    let beside = if job.call.is_stored_with_caller { None } else { host.admit_call() };
    let is_beside = beside.is_some();
    if host.polls.load(Ordering::Relaxed) && matches!(job.call.work, CallWork::Async(_)) {
        let inner = Arc::clone(&host);
        let running = make(
            CallState::Begun,
            Some(Box::pin(async move {
                let _beside = beside;
                inner.outcome(*job, false).await
            })),
        );
        if is_beside {
            host.feed.push(Notice::Called(Arc::clone(&running)));
        }
        return running;
    }
    let running = make(CallState::Due(job), None);
    if let Some(place) = beside {
        let beside = Arc::clone(&running);
        Pool::shared().spawn(Box::new(move || {
            beside.run();
            drop(place);
        }));
    } else if host.inline && (in_task() || !is_polled()) {
        running.run();
    }
    // Else the waiting caller runs it.
    running
}

/// Returns the outcome of a call that is not run any more.
fn stopped(context: &Context) -> Option<CallOutcome> {
    if context.life().is_timed()
        && let Some(error) = overdue(context, context.scope().host.elapsed())
    {
        return Some(CallOutcome::Failed(error.into()));
    }
    let reason = context.control().cancel_reason();
    reason.map(|reason| CallOutcome::Stopped(Signal::Cancelled(reason))).or_else(|| context.is_cancelled().then(left))
}

/// Returns the outcome of an abandoned call.
fn left() -> CallOutcome {
    CallOutcome::Stopped(Signal::Cancelled("its caller is abandoned".to_owned()))
}

impl Running {
    /// Runs the call, if it has not begun. A caller therefore never waits for a free thread.
    fn run(&self) {
        if let Some(job) = self.begin() {
            self.run_job(job);
        }
    }

    /// Takes the job of the call, if the call has not begun.
    fn begin(&self) -> Option<Box<CallJob>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, CallState::Begun) {
            CallState::Due(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    fn run_job(&self, job: Box<CallJob>) {
        let outcome = {
            let mut running = pin!(self.host.outcome(*job, true));
            let until_left = poll_fn(|waiting| {
                self.waiting.register(waiting.waker());
                match running.as_mut().poll(waiting) {
                    Poll::Pending if self.left.load(Ordering::SeqCst) => Poll::Ready(left()),
                    polled => polled,
                }
            });
            run_here(|| block_on(until_left))
        };
        self.end(outcome);
    }

    fn end(&self, outcome: CallOutcome) {
        *self.state.lock() = CallState::Ended(Some(outcome));
        Arc::clone(&self.waiting).wake();
    }

    /// Polls a call that has begun: its future, if it has one and no other thread polls it.
    fn poll_begun(&self, waiting: &mut Waiting<'_>) -> Poll<()> {
        self.waiting.register(waiting.waker());
        let slot = self.future.try_lock().or_else(|| {
            self.waiting.missed.store(true, Ordering::SeqCst);
            self.future.try_lock()
        });
        if let Some(mut slot) = slot {
            let waker = Waker::from(Arc::clone(&self.waiting));
            let polled = slot.as_mut().map(|future| future.as_mut().poll(&mut Waiting::from_waker(&waker)));
            if let Some(Poll::Ready(outcome)) = polled {
                *slot = None;
                self.end(outcome);
            }
            self.drop_if_left(slot);
            if self.waiting.missed.swap(false, Ordering::SeqCst) {
                waker.wake();
            }
        }
        if self.has_ended() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Drops the future of the call if the call is abandoned.
    fn drop_if_left(&self, mut slot: MutexGuard<'_, Option<CallFuture>>) {
        if self.left.load(Ordering::SeqCst) && slot.take().is_some() {
            self.end(left());
        }
    }
}

/// The place of a call that runs beside its caller.
struct CallPlace(Arc<RunHost>);

impl Drop for CallPlace {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Called for Running {
    fn finish(&self) {
        self.run();
        if !self.has_ended() {
            self.host.feed.while_waiting(|| block_on(poll_fn(|waiting| self.poll_begun(waiting))));
        }
    }

    fn poll_end(self: Arc<Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        match self.begin() {
            Some(job) if matches!(job.call.work, CallWork::Async(_)) => {
                // It is polled with its caller, so that it ends with it.
                let host = Arc::clone(&self.host);
                *self.future.lock() = Some(Box::pin(async move { host.outcome(*job, false).await }));
            }
            Some(job) if in_task() => self.run_job(job),
            Some(job) => {
                // It takes the place of its caller, who waits.
                let beside = Arc::clone(&self);
                Pool::shared().spawn(Box::new(move || beside.run_job(job)));
            }
            None => {}
        }
        self.poll_begun(waiting)
    }

    fn has_ended(&self) -> bool {
        matches!(*self.state.lock(), CallState::Ended(_))
    }

    fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
        if let Some(slot) = self.future.try_lock() {
            self.drop_if_left(slot);
        }
        // If the future is locked, the thread that polls it drops it.
        Arc::clone(&self.waiting).wake();
    }

    fn take(&self) -> CallOutcome {
        match &mut *self.state.lock() {
            CallState::Ended(outcome) => match outcome.take() {
                Some(outcome) => outcome,
                None => unreachable!("there is one handle, and it waits once"),
            },
            _ => unreachable!("the call has ended"),
        }
    }
}

impl RunHost {
    /// Runs a call to its end. If it `blocks`, this is one poll.
    async fn outcome(&self, mut job: CallJob, blocks: bool) -> CallOutcome {
        if let Some(outcome) = stopped(job.caller()) {
            return outcome;
        }
        let records = job.context.checkpoint().is_some();
        let shows = self.shows_calls(&job.context);
        let entry = job.context.scope().cache.clone().and_then(|cache| Some((cache, call_entry(&job)?)));
        if let Some((cache, entry)) = &entry {
            let keys = vec![entry.key.clone(), entry.beside().key];
            let found = if blocks { look_up(cache, &keys) } else { look_up_async(cache, keys).await };
            if let Some((end, kept)) = known_call(&job, found, self.now()) {
                let outcome = self.settle(&job, end, blocks).await;
                if shows && matches!(outcome, CallOutcome::Done(_)) {
                    self.show_update(&job, WritesView::returned(Some(shown_result(&kept)), Vec::new()), true);
                }
                return outcome;
            }
        }
        // The call rests on the results before it.
        if let Err(error) = self.wait_for_submitted(blocks).await {
            return CallOutcome::Failed(error.into());
        }
        let keep = records || shows || entry.is_some() || job.is_remembered();
        let result = match self.attempts(&mut job, keep, blocks).await {
            Ok(result) => result,
            Err(stopped) => return stopped,
        };
        job.context.progress();
        let returned = result.as_ref().ok().filter(|_| shows || entry.is_some());
        let stored = returned.and_then(|returned| returned.stored.clone());
        let end = close_call(&mut job, result, self.now());
        let shown = end.wrote.as_ref().filter(|_| shows).map_or_else(Vec::new, |wrote| wrote.shown(&job));
        let beside = end.wrote.as_ref().filter(|_| entry.is_some()).and_then(|wrote| wrote.kept(&job));
        let outcome = self.settle(&job, end, blocks).await;
        if let (CallOutcome::Done(_), Some((cache, entry)), Some(stored)) = (&outcome, entry, &stored) {
            let value = Encoded { codec: stored.codec, bytes: stored.data.clone() };
            // The write is not awaited.
            if let Some(beside) = beside {
                let entry = entry.beside();
                drop(cache.put(entry.key, beside, entry.lifetime));
            }
            drop(cache.put(entry.key, value, entry.lifetime));
        }
        match (&outcome, stored) {
            (CallOutcome::Done(_), Some(stored)) if shows => self.show_done(&job, shown_result(&stored), shown),
            (CallOutcome::Failed(error), _) if shows => {
                let wrote = WritesView::returned(None, shown);
                self.show_end(&job, call_end(&job, wrote, Some(call_failed(&job, error))));
            }
            _ => {}
        }
        outcome
    }

    /// Stores the end of a call, and leaves its writes to the run of its graph, unless the caller is abandoned.
    async fn settle(&self, job: &CallJob, end: CallEnd, blocks: bool) -> CallOutcome {
        if job.caller().life().is_over() {
            return end.outcome;
        }
        let stored = match end.stored {
            Some(writes) if job.call.is_stored_with_caller => {
                let namespace = job.context.graph_namespace().clone();
                self.session.lock().leave_call(namespace, CallLeft::Unsaved(writes));
                None
            }
            stored => stored,
        };
        if let Err(error) = self.record(&job.context, stored, blocks).await {
            return CallOutcome::Failed(error.into());
        }
        if let (Some(ended), Some(known)) = (end.ended, &job.caller().calls().ended) {
            known.put(ended);
        }
        if let Some(wrote) = end.wrote {
            let namespace = job.context.graph_namespace().clone();
            self.session.lock().leave_call(namespace, CallLeft::Wrote(wrote));
        }
        end.outcome
    }

    /// Runs a call until it need not be tried again, or its run is cancelled.
    async fn attempts(
        &self,
        job: &mut CallJob,
        keep: bool,
        blocks: bool,
    ) -> Result<NodeResult<FunctionResult>, CallOutcome> {
        loop {
            let leaves = LeavesCalls(job.context.clone());
            let result = match &job.call.work {
                CallWork::Blocking(run) => catch_unwind(AssertUnwindSafe(|| run(&job.context, keep))),
                CallWork::Async(start) => {
                    let work = async { start(job.context.clone(), keep).await };
                    match watch(work, &job.context, self, false).await {
                        WaitResult::Returned(result) => Ok(result),
                        WaitResult::Panicked(panic) => Err(panic),
                        WaitResult::Stopped(error) => {
                            job.context.leave_calls();
                            Ok(Err(error.into()))
                        }
                        WaitResult::Cancelled(reason) => return Err(CallOutcome::Stopped(Signal::Cancelled(reason))),
                    }
                }
            };
            let result = call_result(job, result);
            if blocks {
                job.context.finish_calls()
            } else {
                job.context.calls_ended().await
            }
            drop(leaves);
            let chance = || self.random() as f64 / u64::MAX as f64;
            let goes_on = stopped(job.caller()).is_none();
            let failed = result.as_ref().err().filter(|_| goes_on);
            if let (Some(events), Err(error)) = (&self.events, &result)
                && !stops(error)
            {
                let (node, task) = (job.context.node().into(), job.context.task());
                let (attempt, error) = (job.context.attempt(), error.to_string().into());
                events.report(RunEventKind::AttemptFailed { node, task, attempt, error });
            }
            let now = self.now();
            let Some(after) = failed.and_then(|error| next_attempt(job, error, now, chance)) else {
                return Ok(result);
            };
            if self.durability != Durability::Exit {
                if let Some(asleep) = sleeps_before(job, after, now) {
                    return Ok(Err(asleep));
                }
                let writes = attempts_write(job);
                if let Err(error) = self.note(&job.context, writes) {
                    return Ok(Err(error.into()));
                }
            }
            // A run that is cancelled meanwhile stops the next attempt before it begins.
            let waits = wait_for(after, &job.context, self, self.timer());
            _ = if blocks { block_on(waits) } else { waits.await };
            if let Some(outcome) = stopped(job.caller()) {
                return Err(outcome);
            }
        }
    }

    fn random(&self) -> u64 {
        self.thread.as_ref().map_or_else(|| IdSource::new().random(), |thread| thread.store().mint_seed())
    }
}

/// Stream events of calls.
impl RunHost {
    fn shows_calls(&self, context: &Context) -> bool {
        self.wants.show_calls() && self.shows(context.graph_namespace())
    }

    fn show_call(&self, job: &CallJob, kind: EventKind) {
        self.forward(Event { namespace: job.context.graph_namespace().clone(), kind });
    }

    fn debug_call(&self, job: &CallJob, payload: DebugPayload) {
        let part = DebugPart { step: job.context.step(), timestamp: SystemClock.now(), payload };
        self.show_call(job, EventKind::Debug(Box::new(part)));
    }

    fn show_start(&self, job: &CallJob) {
        if !self.shows_calls(&job.context) {
            return;
        }
        if self.wants.tasks {
            self.show_call(job, EventKind::TaskStart(call_start(job)));
        }
        if self.wants.debug {
            self.debug_call(job, DebugPayload::TaskStart(call_start(job)));
        }
    }

    fn show_done(&self, job: &CallJob, result: Value, wrote: Vec<(Arc<str>, Value)>) {
        if self.wants.messages {
            for part in call_messages(job, &result) {
                self.show_call(job, EventKind::Message(Box::new(part)));
            }
        }
        let writes = WritesView::returned(Some(result), wrote);
        self.show_update(job, writes.clone(), false);
        self.show_end(job, call_end(job, writes, None));
    }

    fn show_update(&self, job: &CallJob, writes: WritesView, cached: bool) {
        if self.wants.updates {
            let node = job.context.node().into();
            self.show_call(job, EventKind::Updates(NodeUpdate { node, writes, cached }));
        }
    }

    fn show_end(&self, job: &CallJob, end: TaskEnd) {
        if self.wants.tasks {
            self.show_call(job, EventKind::TaskEnd(end.clone()));
        }
        if self.wants.debug {
            self.debug_call(job, DebugPayload::TaskEnd(end));
        }
    }
}

impl RunHost {
    /// Takes a place for a call beside its caller, if fewer tasks run than may.
    fn admit_call(self: &Arc<Self>) -> Option<CallPlace> {
        if self.inline {
            return None;
        }
        let free = self.calling.fetch_add(1, Ordering::Relaxed) < self.concurrency_max - 1;
        // Without one it is given back at once.
        Some(CallPlace(Arc::clone(self))).filter(|_| free)
    }

    /// Stores what became of a call, as durably as the run stores a superstep, on the head that its graph stands at.
    async fn record(&self, context: &Context, writes: Option<NewWrites>, blocks: bool) -> Result<(), Error> {
        let Some(writes) = writes else { return Ok(()) };
        let Some(batch) = self.writes_of(context, writes) else { return Ok(()) };
        // It counts only with what its subgraphs have stored.
        let Some(batch) = self.session.lock().commit(batch, None) else { return Ok(()) };
        let store = self.thread.as_ref().ok_or(RunError::NoStore)?.store();
        match (self.is_sync(), blocks) {
            (true, true) => store.commit(&batch)?,
            (true, false) => {
                let handle = self.commits.lock().submit(store, batch);
                handle.await?;
            }
            (false, _) => {
                self.submit(store, batch)?;
                let excess = self.commits.lock().take_excess();
                for handle in excess {
                    if blocks { handle.wait()? } else { handle.await? }
                }
            }
        }
        Ok(())
    }

    /// Stores the attempt number of a task that calls others, if it must be persisted. The commit is awaited where the
    /// first of the calls runs.
    fn note_attempt(&self, caller: &Context) -> Result<(), Error> {
        self.note(caller, attempt_write(caller))
    }

    /// Stores the versions of parts of the program that a task began with.
    pub(super) fn note_versions(&self, context: &Context, versions: Map) -> Result<(), Error> {
        if context.life().is_over() {
            return Ok(());
        }
        self.note(context, versions_write(context, versions))
    }

    /// Hands special writes of a task to the background writer, as a commit of the run.
    fn note(&self, context: &Context, writes: Option<NewWrites>) -> Result<(), Error> {
        let Some(writes) = writes else { return Ok(()) };
        let Some(batch) = self.writes_of(context, writes) else { return Ok(()) };
        let Some(batch) = self.session.lock().append(batch) else { return Ok(()) };
        self.submit(self.thread.as_ref().ok_or(RunError::NoStore)?.store(), batch)
    }

    /// Returns the batch that stores the writes of a task on the head of its graph. Returns `None` if the run stores
    /// nothing before it ends: the machine of the graph stores the writes, should the run end before its superstep.
    pub(super) fn writes_of(&self, context: &Context, writes: NewWrites) -> Option<Batch> {
        let namespace = context.graph_namespace().clone();
        if self.durability == Durability::Exit {
            self.session.lock().leave_call(namespace, CallLeft::Unsaved(writes));
            return None;
        }
        let mut batch = Batch::new(context.thread()?.clone(), namespace, context.calls().head);
        batch.writes = vec![writes];
        self.session.lock().rename(&mut batch);
        Some(batch)
    }

    /// Hands a batch to the background writer.
    ///
    /// # Errors
    /// That of an earlier batch.
    fn submit(&self, store: &Store, batch: Batch) -> Result<(), Error> {
        let settled = self.commits.lock().submit_inside(store, batch);
        settled.iter().try_for_each(|handle| Ok(handle.wait()?))
    }
}
