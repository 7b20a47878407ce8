//! One attempt of a task: within its limits, and until its run is cancelled.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Waiting, Poll};
use std::time::Duration;

use crate::exec::{RunError, TaskJob, TaskOutcome, close, close_panicked, close_stopped};
use crate::graph::{CancelWait, Context, Host, NodeInput, RunNode, StartNode, Work};

use super::host::RunHost;
use super::timer::{PoolTimer, Sleep, Timer};

/// What came of waiting for a node.
enum Ended<T> {
    Returned(T),
    Panicked(Box<dyn Any + Send>),
    TookTooLong(RunError),
    Cancelled(String),
}

/// Waits for a moment, by a clock that may be another than that of the timer.
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

/// A node that is waited for.
struct Watched<'a, F> {
    node: Pin<&'a mut F>,
    job: &'a TaskJob,
    host: &'a RunHost,
    alarm: Option<Alarm>,
    /// `None` if the node itself sees to it that it ends: a graph.
    cancel: Option<CancelWait>,
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<Self::Output> {
        let Self { node, job, host, alarm, cancel } = &mut *self;
        let control = job.context.control();
        if let Some(reason) = control.cancel_reason().filter(|_| cancel.is_some()) {
            return Poll::Ready(Ended::Cancelled(reason));
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if let Poll::Ready(result) = node.as_mut().poll(waiting) {
                return Poll::Ready(Ended::Returned(result));
            }
            if let (Some(at), Some(alarm)) = (job.poll_timeout(), alarm)
                && alarm.poll(at, host, waiting).is_ready()
                && let Some(error) = job.handle_timeout(host.elapsed())
            {
                return Poll::Ready(Ended::TookTooLong(error));
            }
            Poll::Pending
        }));
        let ended = match polled {
            Ok(Poll::Ready(ended)) => ended,
            Err(panic) => Ended::Panicked(panic),
            Ok(Poll::Pending) => {
                let cancelled = cancel.as_mut().is_some_and(|cancel| cancel.wake(control, waiting.waker()));
                match control.cancel_reason().filter(|_| cancelled) {
                    Some(reason) => Ended::Cancelled(reason),
                    None => return Poll::Pending,
                }
            }
        };
        Poll::Ready(ended)
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
pub(super) async fn attempt(
    job: &TaskJob,
    input: NodeInput,
    start: &StartNode,
    host: &RunHost,
    timer: Option<Arc<dyn Timer>>,
) -> TaskOutcome {
    let limited = job.context.life().limits().is_some();
    if limited && timer.is_none() {
        let error = RunError::NoTimer { node: job.context.node().to_owned() };
        return close_stopped(job, error);
    }
    let is_graph = job.node.is_some_and(|node| matches!(job.graph.nodes[node].body.work, Work::Either(..)));
    if let Some(reason) = job.context.control().cancel_reason().filter(|_| !is_graph) {
        return TaskOutcome::Cancelled { reason, ran: false };
    }
    if limited {
        job.begin(host.elapsed());
    }
    let _leaves = LeavesCalls(job.context.clone());
    let ended = {
        let node = async { start(input, job.context.clone()).await };
        let alarm = timer.filter(|_| limited).map(Alarm::new);
        let cancel = (!is_graph).then(CancelWait::default);
        Watched { node: pin!(node), job, host, alarm, cancel }.await
        // Here the node is dropped.
    };
    if matches!(ended, Ended::Returned(_) | Ended::Panicked(_)) {
        job.context.calls_ended().await;
    }
    match ended {
        Ended::Returned(output) => close(job, output),
        Ended::Panicked(panic) => close_panicked(job, &*panic),
        Ended::TookTooLong(error) => close_stopped(job, error),
        Ended::Cancelled(reason) => {
            job.context.life().end();
            TaskOutcome::Cancelled { reason, ran: true }
        }
    }
}

/// Runs a node on this thread, unless its run is cancelled.
pub(super) fn attempt_here(job: &TaskJob, input: NodeInput, run: &RunNode) -> TaskOutcome {
    if let Some(reason) = job.context.control().cancel_reason() {
        return TaskOutcome::Cancelled { reason, ran: false };
    }
    match catch_unwind(AssertUnwindSafe(|| run(input, &job.context))) {
        Ok(output) => close(job, output),
        Err(panic) => close_panicked(job, &*panic),
    }
}

/// Waits before another attempt. Returns what became of the task, if its run was cancelled meanwhile.
pub(super) async fn wait_before(
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

/// Awaits a part of a task, unless its run is cancelled: then it says why.
pub(super) async fn unless_cancelled<F: Future>(context: &Context, mut part: Pin<&mut F>) -> Result<F::Output, String> {
    let (control, mut cancel) = (context.control(), CancelWait::default());
    poll_fn(|waiting| {
        if let Some(reason) = control.cancel_reason() {
            return Poll::Ready(Err(reason));
        }
        if let Poll::Ready(result) = part.as_mut().poll(waiting) {
            return Poll::Ready(Ok(result));
        }
        match cancel.wake(control, waiting.waker()) {
            true => Poll::Ready(Err(control.cancel_reason().unwrap_or_default())),
            false => Poll::Pending,
        }
    })
    .await
}
