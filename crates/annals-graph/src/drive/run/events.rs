//! Events of runs, for logs and metrics: one event for each begin, failed attempt, lock wait, wait and end.
//!
//! An event goes to the listener of the run and of its worker and, without the values of interrupts and the texts of
//! errors, into the span of the run (feature `tracing`). Invariant: a run that began ends, also one that is dropped.
//! *Absent:* the parts of a stream, which tell of nodes and their writes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::{Clock, RunId, SystemClock, TaskId, ThreadId, Timestamp};
use crate::exec::{RunError, RunStart, Status};
use crate::history::Thread;
use crate::task::Interrupt;

/// A function that is told what happens to runs.
pub(in crate::drive) type Listener = Arc<dyn Fn(&RunEvent) + Send + Sync>;

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunEvent {
    /// The thread; `None` of a run without a store.
    pub thread: Option<ThreadId>,
    /// The name of the graph.
    pub graph: Arc<str>,
    /// The id of the run; the same in each process that continues a run with an idempotency key, and zero without a
    /// store.
    pub run: RunId,
    /// The time at which it happened, by the clock of the store.
    pub at: Timestamp,
    /// The kind of the event.
    pub kind: RunEventKind,
}

/// The kind of an event of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunEventKind {
    /// It began with an input.
    Started,
    /// It began where an earlier run had stopped: after a failure, a crash, a drain or a cancellation.
    Continued,
    /// It began with a resume value for an interrupt.
    Resumed,
    /// It began without an input where the tasks of an earlier run slept.
    Woken,
    /// An attempt of a node or of a called task failed.
    AttemptFailed {
        /// The node or the task.
        node: Arc<str>,
        /// The id of the task.
        task: TaskId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The message of the error.
        error: Arc<str>,
    },
    /// A commit of it waits for the lock of the file, which another program holds, for twelve times
    /// [`busy_timeout_ms`](annals::store::OpenOptions::busy_timeout_ms) at most. No step that has ended runs again
    /// meanwhile. The event is told once until a commit is stored.
    LockWait {
        /// The time since which it waits.
        since: Timestamp,
        /// The id of the process that holds the lock, if the operating system told it (Linux).
        holder: Option<u32>,
    },
    /// It has ended for now: its tasks wait for resume values, sleep, or stand at a breakpoint.
    Waiting {
        /// The open interrupts with their values, those of sleeping tasks included.
        interrupts: Vec<Interrupt>,
        /// The time at which the first sleeping task goes on.
        wake_at: Option<Timestamp>,
    },
    /// It has ended.
    Ended {
        /// The outcome.
        outcome: RunEnd,
        /// The message of the error of a run that failed.
        error: Option<Arc<str>>,
    },
    /// A worker does not continue it any more: [`ThreadStatus::Stuck`](annals_runs::ThreadStatus::Stuck).
    Stuck {
        /// The reason.
        error: Arc<str>,
    },
}

/// Shows a line for a log: `2026-11-28T14:03:22Z thread order-0 graph order: failed: the message`. Values of interrupts
/// are left out.
impl fmt::Display for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        if let Some(thread) = &self.thread {
            write!(f, "thread {thread} ")?;
        }
        write!(f, "graph {}: {}", self.graph, self.kind)
    }
}

impl fmt::Display for RunEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttemptFailed { node, attempt, error, .. } => {
                write!(f, "attempt {attempt} of {node} failed: {error}")
            }
            Self::LockWait { since, holder } => {
                let holder = holder.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"));
                write!(f, "waiting for the lock of the store since {since}: {holder} holds it")
            }
            Self::Waiting { wake_at: Some(at), .. } => write!(f, "waiting until {at}"),
            Self::Waiting { interrupts, .. } => write!(f, "waiting at {} interrupts", interrupts.len()),
            Self::Ended { error: Some(error), .. } | Self::Stuck { error } => write!(f, "{}: {error}", self.as_str()),
            _ => f.write_str(self.as_str()),
        }
    }
}

/// The outcome of a run that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunEnd {
    /// It came to its end.
    Done,
    /// A node failed, or its superstep could not be applied.
    Failed,
    /// It was asked to stop, and can be continued.
    Drained,
    /// It was cancelled.
    Cancelled,
    /// It was dropped, or a commit of it was refused.
    Stopped,
}

impl RunEventKind {
    /// Returns the name of the event: `started`, `continued`, `resumed`, `woken`, `attempt_failed`, `lock_wait`,
    /// `waiting`, `done`, `failed`, `drained`, `cancelled`, `stopped` or `stuck`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Continued => "continued",
            Self::Resumed => "resumed",
            Self::Woken => "woken",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::LockWait { .. } => "lock_wait",
            Self::Waiting { .. } => "waiting",
            Self::Ended { outcome: RunEnd::Done, .. } => "done",
            Self::Ended { outcome: RunEnd::Failed, .. } => "failed",
            Self::Ended { outcome: RunEnd::Drained, .. } => "drained",
            Self::Ended { outcome: RunEnd::Cancelled, .. } => "cancelled",
            Self::Ended { outcome: RunEnd::Stopped, .. } => "stopped",
            Self::Stuck { .. } => "stuck",
        }
    }
}

/// Calls a listener. One that panics is not told so, and the run goes on.
pub(in crate::drive) fn tell(listener: &Listener, event: &RunEvent) {
    _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
}

/// Returns a listener that calls both.
pub(in crate::drive) fn both(first: Option<Listener>, second: Option<&Listener>) -> Option<Listener> {
    match (first, second.cloned()) {
        (Some(first), Some(second)) => Some(Arc::new(move |event| {
            tell(&first, event);
            second(event);
        })),
        (first, second) => first.or(second),
    }
}

/// The reporter of a run. It reports the end of a run that was dropped.
pub(super) struct RunEvents {
    listener: Option<Listener>,
    thread: Option<Thread>,
    graph: Arc<str>,
    run: RunId,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl RunEvents {
    /// Makes the reporter of a run; `None` if nothing listens.
    pub(super) fn new(listener: Option<&Listener>, thread: Option<&Thread>, graph: &str, run: RunId) -> Option<Self> {
        #[cfg(feature = "tracing")]
        let span = tracing::info_span!(
            target: "annals", "run", thread = ?thread.map(Thread::id), graph, run = %run, outcome = tracing::field::Empty,
            // The names of OpenTelemetry's conventions for generative AI; `otel.name` is the name of the exported span.
            otel.name = format_args!("invoke_workflow {graph}"),
            gen_ai.operation.name = "invoke_workflow",
            gen_ai.workflow.name = graph,
            gen_ai.conversation.id = thread.map(|thread| thread.id().as_str()),
        );
        #[cfg(feature = "tracing")]
        let is_traced = !span.is_disabled();
        #[cfg(not(feature = "tracing"))]
        let is_traced = false;
        (listener.is_some() || is_traced).then(|| Self {
            listener: listener.cloned(),
            thread: thread.cloned(),
            graph: graph.into(),
            run,
            #[cfg(feature = "tracing")]
            span,
        })
    }

    /// Reports an event.
    pub(super) fn report(&self, kind: RunEventKind) {
        #[cfg(feature = "tracing")]
        self.trace(&kind);
        let Some(listener) = &self.listener else { return };
        let at = self.thread.as_ref().map_or_else(|| SystemClock.now(), |thread| thread.store().now());
        let thread = self.thread.as_ref().map(|thread| thread.id().clone());
        let event = RunEvent { thread, graph: Arc::clone(&self.graph), run: self.run, at, kind };
        tell(listener, &event);
    }

    /// Reports that a commit waits for the lock of the file, and for how long it has waited.
    pub(super) fn report_lock_wait(&self, waited_ms: u64, holder: Option<u32>) {
        let now = self.thread.as_ref().map_or_else(|| SystemClock.now(), |thread| thread.store().now());
        let waited_us = i64::try_from(waited_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let since = Timestamp::from_micros(now.as_micros().saturating_sub(waited_us));
        self.report(RunEventKind::LockWait { since, holder });
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, kind: &RunEventKind) {
        let event = kind.as_str();
        match kind {
            RunEventKind::AttemptFailed { node, task, attempt, .. } => {
                tracing::info!(target: "annals", parent: &self.span, event, node = %node, task = %task, attempt);
            }
            RunEventKind::Waiting { interrupts, wake_at } => {
                self.span.record("outcome", event);
                let (interrupts, wake_at) = (interrupts.len(), wake_at.map(|at| at.to_string()));
                tracing::info!(target: "annals", parent: &self.span, event, interrupts, wake_at);
            }
            RunEventKind::Ended { .. } => {
                self.span.record("outcome", event);
                tracing::info!(target: "annals", parent: &self.span, event);
            }
            _ => tracing::info!(target: "annals", parent: &self.span, event),
        }
    }
}

/// Drop guard: reports the end of a run.
pub(super) struct EndReport(Option<Arc<RunEvents>>);

impl EndReport {
    /// Reports the begin of a run, and makes the guard of its end.
    pub(super) fn begin(events: Option<Arc<RunEvents>>, kind: Option<RunEventKind>) -> Self {
        let events = events.filter(|_| kind.is_some());
        if let (Some(events), Some(kind)) = (&events, kind) {
            events.report(kind);
        }
        Self(events)
    }

    /// Makes a guard that reports nothing.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Reports the end of a run whose commits are stored.
    pub(super) fn ended(&mut self, status: &Status) {
        let Some(events) = self.0.take() else { return };
        let (outcome, error) = match status {
            Status::Interrupted(open) => {
                let wake_at = open.iter().filter_map(|interrupt| interrupt.wake_at).min();
                return events.report(RunEventKind::Waiting { interrupts: open.clone(), wake_at });
            }
            Status::Done => (RunEnd::Done, None),
            Status::Drained(_) => (RunEnd::Drained, None),
            Status::Cancelled(_) => (RunEnd::Cancelled, None),
            Status::Failed(error) => (RunEnd::Failed, Some(error.to_string().into())),
            Status::Left(_) => (RunEnd::Failed, Some(RunError::NoParentGraph.to_string().into())),
            Status::Running => (RunEnd::Stopped, None),
        };
        events.report(RunEventKind::Ended { outcome, error });
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if let Some(events) = self.0.take() {
            events.report(RunEventKind::Ended { outcome: RunEnd::Stopped, error: None });
        }
    }
}

/// Returns how a run begins, `None` if it only shows the outcome of an earlier one. `is_asleep` says whether its head
/// sleeps.
pub(super) fn begin_kind(start: &RunStart, is_asleep: bool) -> Option<RunEventKind> {
    match start {
        RunStart::Input(_) | RunStart::Inside { .. } => Some(RunEventKind::Started),
        RunStart::Command(command) if command.resume.is_some() => Some(RunEventKind::Resumed),
        RunStart::Repeat(Some(_)) => Some(RunEventKind::Resumed),
        RunStart::Command(_) | RunStart::Continue | RunStart::Repeat(None) if is_asleep => Some(RunEventKind::Woken),
        RunStart::Command(_) | RunStart::Continue | RunStart::Repeat(None) => Some(RunEventKind::Continued),
        RunStart::Show => None,
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEvents").field("graph", &self.graph).field("run", &self.run).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_of_a_log() {
        let event = |kind| RunEvent {
            thread: ThreadId::new("order-0").ok(),
            graph: "order".into(),
            run: RunId::from_bytes([0; 16]),
            at: Timestamp::from_micros(1_795_884_420_006_191),
            kind,
        };
        let failed = RunEventKind::Ended { outcome: RunEnd::Failed, error: Some("no stock".into()) };
        let line = event(failed).to_string();
        assert_eq!(line, "2026-11-28T16:47:00.006191Z thread order-0 graph order: failed: no stock");
        let sleeps = RunEventKind::Waiting { interrupts: Vec::new(), wake_at: Some(Timestamp::from_micros(0)) };
        assert!(event(sleeps).to_string().ends_with("waiting until 1970-01-01T00:00:00.000000Z"));
        let alone = RunEvent { thread: None, ..event(RunEventKind::Started) };
        assert!(alone.to_string().ends_with("Z graph order: started"));
    }
}
