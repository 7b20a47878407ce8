//! Deadlines of an attempt, as data. A driver waits for them, and evaluates them with the functions of this module.

use std::fmt;
use std::time::Duration;

use crate::graph::{TimeoutPolicy, Work};
use crate::task::{Context, StepTime, TimedOut};

use super::error::RunError;
use super::task::TaskJob;

/// The limit that an attempt exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutKind {
    /// The limit of the whole attempt.
    Run,
    /// The limit of the time without a heartbeat.
    Idle,
}

/// `run` and `idle`, as the field calls them.
impl fmt::Display for TimeoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Idle => "idle",
        })
    }
}

/// Begins an attempt with limits that a driver watches.
///
/// # Errors
/// [`RunError::NoTimer`] if the run has no timer, [`RunError::BadTimeout`] if a timeout is zero, and
/// [`RunError::StepTimeout`] if the deadline of the superstep has passed.
pub(crate) fn begin_limited(context: &Context, now: Duration, has_timer: bool) -> Result<(), RunError> {
    let node = || context.node().to_owned();
    if context.life().limits().is_some_and(TimeoutPolicy::is_zero) {
        return Err(RunError::BadTimeout { node: node() });
    }
    if !has_timer {
        return Err(RunError::NoTimer { node: node() });
    }
    begin(context, now)
}

/// Begins an attempt whose superstep is limited.
///
/// # Errors
/// [`RunError::StepTimeout`] if its deadline has passed.
pub(crate) fn begin(context: &Context, now: Duration) -> Result<(), RunError> {
    context.life().begin(now);
    overdue(context, now).map_or(Ok(()), Err)
}

/// Returns the error of an attempt after the deadline of its superstep, or of a superstep of a parent graph.
pub(crate) fn overdue(context: &Context, now: Duration) -> Option<RunError> {
    context.life().overdue(&context.parts().node, now).map(|within| step_timeout(within))
}

/// Returns the error of a superstep that timed out.
pub(super) fn step_timeout(within: &StepTime) -> RunError {
    let (step, nodes) = (within.step(), within.late());
    RunError::StepTimeout { step, limit_ms: millis(within.limit()), nodes, source: within.source() }
}

/// Returns whether an error is that of a superstep that timed out, in this graph or in a subgraph.
pub(super) fn is_step_timeout(error: &RunError) -> bool {
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    causes.any(|cause| cause.is::<TimedOut>())
}

/// Returns the next deadline of an attempt, `None` if its time is not limited.
pub(crate) fn poll_timeout(context: &Context) -> Option<Duration> {
    let own = deadlines(context).map(|(at, _)| at);
    own.chain(context.life().step_end()).min()
}

/// Ends an attempt that timed out, and returns its error. Its later effects are dropped.
pub(crate) fn handle_timeout(context: &Context, now: Duration) -> Option<RunError> {
    let life = context.life();
    let own = deadlines(context).filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at);
    // The superstep's comes first: another attempt would have no time.
    let error = overdue(context, now).or_else(|| Some(node_timeout(context, own?.1, now)))?;
    life.end();
    Some(error)
}

fn node_timeout(context: &Context, kind: TimeoutKind, now: Duration) -> RunError {
    let life = context.life();
    let limits = life.limits().copied().unwrap_or_default();
    RunError::NodeTimeout {
        node: context.node().to_owned(),
        kind,
        after_ms: millis(now.saturating_sub(life.began().unwrap_or(now))),
        run_timeout_ms: limits.run_timeout.map(millis),
        idle_timeout_ms: limits.idle_timeout.map(millis),
    }
}

/// Returns the deadlines of an attempt itself, if it has begun.
fn deadlines(context: &Context) -> impl Iterator<Item = (Duration, TimeoutKind)> {
    let life = context.life();
    let limits: Option<&TimeoutPolicy> = life.limits();
    let run = limits.and_then(|limits| Some((life.began()?.saturating_add(limits.run_timeout?), TimeoutKind::Run)));
    let seen = || life.began().map(|_| life.seen());
    let idle = limits.and_then(|limits| Some((seen()?.saturating_add(limits.idle_timeout?), TimeoutKind::Idle)));
    run.into_iter().chain(idle)
}

impl TaskJob {
    /// Rejects limits for a blocking node, as a driver cannot stop it.
    pub(super) fn check_limits(&self, work: &Work) -> Result<(), RunError> {
        if self.context.life().limits().is_some() && matches!(work, Work::Blocking(_)) {
            return Err(RunError::SyncTimeout { node: self.context.node().to_owned() });
        }
        Ok(())
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
