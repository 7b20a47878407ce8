//! One attempt of a task: within its limits, and until its run is cancelled.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Waiting, Poll};
use std::time::Duration;

use crate::drive::io::nonblocking::block_on;
use crate::drive::io::timer::{PoolTimer, Sleep, Timer};
use crate::exec::{
    Closing, PathResult, RunError, TaskJob, TaskOutcome, begin, begin_limited, close, close_panicked, close_stopped,
    handle_timeout, overdue, poll_timeout,
};
use crate::graph::{NodeInput, PathFuture, RunNode, StartNode, Work};
use crate::task::{CancelWait, Context, Host};

use super::host::RunHost;
use super::subgraph::host_of;

/// The result of waiting for a node or a called task.
pub(super) enum WaitResult<T> {
    Returned(T),
    Panicked(Box<dyn Any + Send>),
    /// It took too long, or cannot be held to its limits.
    Stopped(RunError),
    Cancelled(String),
}

/// Waits for a deadline, by a clock that may be another than that of the timer.
struct Alarm {
    timer: Arc<dyn Timer>,
    sleep: Option<Sleep>,
}

impl Alarm {
    fn new(timer: Arc<dyn Timer>) -> Self {
        Self { timer, sleep: None }
    }

    fn poll(&mut self, at: Duration, host: &RunHost, waiting: &mut Waiting<'_>) -> Poll<()> {
        let now = host.elapsed();
        if now >= at {
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| self.timer.sleep(at - now));
        if sleep.as_mut().poll(waiting).is_ready() {
            // The deadline has moved on, or the clocks differ: look again.
            self.sleep = None;
            waiting.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A node or a called task that is waited for.
struct Watched<'a, F> {
    work: Pin<&'a mut F>,
    context: &'a Context,
    host: &'a RunHost,
    alarm: Option<Alarm>,
    /// `None` if it sees to it itself that it ends: a graph.
    cancel: Option<CancelWait>,
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = WaitResult<F::Output>;

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<Self::Output> {
        let Self { work, context, host, alarm, cancel } = &mut *self;
        let control = context.control();
        if let Some(reason) = control.cancel_reason().filter(|_| cancel.is_some()) {
            return Poll::Ready(WaitResult::Cancelled(reason));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if let Poll::Ready(result) = work.as_mut().poll(waiting) {
                return Poll::Ready(WaitResult::Returned(result));
            }
            if let (Some(at), Some(alarm)) = (poll_timeout(context), alarm)
                && alarm.poll(at, host, waiting).is_ready()
                && let Some(error) = handle_timeout(context, host.elapsed())
            {
                return Poll::Ready(WaitResult::Stopped(error));
            }
            Poll::Pending
        }));
        let ended = match polled {
            Ok(Poll::Ready(ended)) => ended,
            Err(panic) => WaitResult::Panicked(panic),
            Ok(Poll::Pending) => {
                let cancelled = cancel.as_mut().is_some_and(|cancel| cancel.wake(control, waiting.waker()));
                match control.cancel_reason().filter(|_| cancelled) {
                    Some(reason) => WaitResult::Cancelled(reason),
                    None => return Poll::Pending,
                }
            }
        };
        Poll::Ready(ended)
    }
}

/// Waits for a node or a called task, and for the tasks that it starts, within its limits and until its run is
/// cancelled. On a timeout or a cancellation a graph ends by itself; other work is dropped.
pub(super) async fn watch<F: Future>(
    work: F,
    context: &Context,
    host: &RunHost,
    is_graph: bool,
) -> WaitResult<F::Output> {
    let mut alarm = None;
    if context.life().is_limited() {
        let timer = host.timer();
        if let Err(error) = begin_limited(context, host.elapsed(), timer.is_some()) {
            return WaitResult::Stopped(error);
        }
        alarm = timer.map(Alarm::new);
    }
    let cancel = (!is_graph).then(CancelWait::default);
    let work = async {
        let mut work = pin!(work);
        let ended = poll_fn(|waiting| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(waiting))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        });
        let ended = ended.await;
        context.calls_ended().await;
        ended
    };
    match (Watched { work: pin!(work), context, host, alarm, cancel }).await {
        WaitResult::Returned(Ok(ended)) => WaitResult::Returned(ended),
        WaitResult::Returned(Err(panic)) | WaitResult::Panicked(panic) => WaitResult::Panicked(panic),
        WaitResult::Stopped(error) => WaitResult::Stopped(error),
        WaitResult::Cancelled(reason) => WaitResult::Cancelled(reason),
    }
}

/// Forgets the tasks that an attempt has started when it is dropped: they hold its context, which holds them.
pub(super) struct LeavesCalls(pub(super) Context);

impl Drop for LeavesCalls {
    fn drop(&mut self) {
        self.0.leave_calls();
    }
}

/// Runs a node that waits without blocking, after the pause that its job asks for.
pub(in crate::drive) async fn attempt(
    job: &TaskJob,
    input: NodeInput,
    start: &StartNode,
    host: &RunHost,
) -> TaskOutcome {
    let is_graph = job.node.is_some_and(|node| matches!(job.graph().nodes[node].body.work, Work::Either(..)));
    if let Some(reason) = job.context.control().cancel_reason().filter(|_| !is_graph) {
        return TaskOutcome::Cancelled { reason, ran: false };
    }
    let _leaves = LeavesCalls(job.context.clone());
    let node = async { start(input, job.context.clone()).await };
    let ended = watch(node, &job.context, host, is_graph).await;
    match ended {
        WaitResult::Returned(output) => closed(job, close(job, output)).await,
        WaitResult::Panicked(panic) => close_panicked(job, &*panic),
        WaitResult::Stopped(error) => close_stopped(job, error),
        WaitResult::Cancelled(reason) => {
            job.context.life().end();
            TaskOutcome::Cancelled { reason, ran: true }
        }
    }
}

/// Runs a node on this thread, unless its run is cancelled.
pub(in crate::drive) fn attempt_begun(job: &TaskJob, input: NodeInput, run: &RunNode) -> Closing {
    if let Some(reason) = job.context.control().cancel_reason() {
        return Closing::Ended(TaskOutcome::Cancelled { reason, ran: false });
    }
    let timed = job.context.life().is_timed();
    if timed && let Err(error) = begin(&job.context, job.context.scope().host.elapsed()) {
        return Closing::Ended(close_stopped(job, error));
    }
    match catch_unwind(AssertUnwindSafe(|| run(input, &job.context))) {
        Ok(output) => close(job, output),
        Err(panic) => Closing::Ended(close_panicked(job, &*panic)),
    }
}

/// Runs a node, and what follows it, on this thread.
pub(in crate::drive) fn attempt_here(job: &TaskJob, input: NodeInput, run: &RunNode) -> TaskOutcome {
    match attempt_begun(job, input, run) {
        Closing::Ended(outcome) => judged(job, outcome),
        closing => block_on(closed(job, closing)),
    }
}

/// Awaits the conditional edges of a task whose node has ended.
pub(in crate::drive) async fn closed(job: &TaskJob, closing: Closing) -> TaskOutcome {
    judged(job, paths_taken(job, closing).await)
}

async fn paths_taken(job: &TaskJob, mut closing: Closing) -> TaskOutcome {
    loop {
        let wait = match closing {
            Closing::Ended(outcome) => return outcome,
            Closing::Path(wait) => wait,
        };
        let life = job.context.life();
        // Behind an input no node has begun before its path.
        if life.is_timed()
            && life.began().is_none()
            && let Err(error) = begin(&job.context, job.context.scope().host.elapsed())
        {
            return close_stopped(job, error);
        }
        let (control, mut cancel) = (job.context.control(), CancelWait::default());
        let mut path = pin!(caught(wait.path));
        let timed = host_of(&job.context).zip(life.step_end());
        let mut timed = timed.map(|(host, end)| {
            let timer = host.timer().unwrap_or_else(|| Arc::new(PoolTimer));
            (Alarm::new(timer), host, end)
        });
        let returned = poll_fn(|waiting| {
            if control.cancel_reason().is_none()
                && let Poll::Ready(result) = path.as_mut().poll(waiting)
            {
                return Poll::Ready(Ok(result));
            }
            if let Some((alarm, host, end)) = &mut timed
                && alarm.poll(*end, host, waiting).is_ready()
                && let Some(error) = handle_timeout(&job.context, host.elapsed())
            {
                return Poll::Ready(Err(close_stopped(job, error)));
            }
            match cancel.wake(control, waiting.waker()) {
                true => {
                    job.context.life().end();
                    let reason = control.cancel_reason().unwrap_or_default();
                    Poll::Ready(Err(TaskOutcome::Cancelled { reason, ran: true }))
                }
                false => Poll::Pending,
            }
        });
        closing = match returned.await {
            Ok(result) => wait.open.handle_returned(job, result),
            Err(ended) => return ended,
        };
    }
}

/// Awaits a path, also one that panics.
async fn caught(mut path: PathFuture) -> PathResult {
    poll_fn(|waiting| match catch_unwind(AssertUnwindSafe(|| path.as_mut().poll(waiting))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// Waits for a path on this thread.
pub(super) fn path_here(path: PathFuture) -> PathResult {
    block_on(caught(path))
}

/// Notes a task as late if it has ended after the deadline of its superstep. Its writes are retained.
fn judged(job: &TaskJob, outcome: TaskOutcome) -> TaskOutcome {
    if job.context.life().is_timed() {
        overdue(&job.context, job.context.scope().host.elapsed());
    }
    outcome
}

/// Waits before another attempt. Returns what became of the task, if its run was cancelled meanwhile.
pub(in crate::drive) async fn wait_before(
    job: &TaskJob,
    host: &RunHost,
    timer: Option<Arc<dyn Timer>>,
) -> Result<(), TaskOutcome> {
    if job.after.is_zero() {
        return Ok(());
    }
    match wait_for(job.after, &job.context, host, timer).await {
        Some(reason) => Err(TaskOutcome::Cancelled { reason, ran: false }),
        None => Ok(()),
    }
}

/// Waits as long. Returns why the run was cancelled, if it was meanwhile.
pub(super) async fn wait_for(
    pause: Duration,
    context: &Context,
    host: &RunHost,
    timer: Option<Arc<dyn Timer>>,
) -> Option<String> {
    let at = host.elapsed().saturating_add(pause);
    // The pause ends with the superstep at the latest: the next attempt finds that the deadline has passed.
    let at = context.life().step_end().map_or(at, |end| end.min(at));
    let mut alarm = Alarm::new(timer.unwrap_or_else(|| Arc::new(PoolTimer)));
    let mut cancel = CancelWait::default();
    let control = context.control();
    let waited = poll_fn(|waiting| {
        if alarm.poll(at, host, waiting).is_ready() {
            return Poll::Ready(None);
        }
        if cancel.wake(control, waiting.waker()) { Poll::Ready(control.cancel_reason()) } else { Poll::Pending }
    });
    waited.await
}
