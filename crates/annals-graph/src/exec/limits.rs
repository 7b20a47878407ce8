//! How long an attempt may take: its deadlines, as data. A driver waits for them, and asks here what they mean.

use std::fmt;
use std::time::Duration;

use crate::graph::{Context, OutOfTime, StepTime, TimeoutPolicy, Work};

use super::error::RunError;
use super::task::TaskJob;

/// Which limit an attempt did not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutKind {
    /// That of the whole attempt.
    Run,
    /// That of the time without a sign of life.
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
/// [`RunError::NoTimer`] if nothing waits for a moment, [`RunError::BadTimeout`] if no time is given, and
/// [`RunError::StepTimeout`] if that of the superstep is over.
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
/// [`RunError::StepTimeout`] if its time is over.
pub(crate) fn begin(context: &Context, now: Duration) -> Result<(), RunError> {
    context.life().begin(now);
    overdue(context, now).map_or(Ok(()), Err)
}

/// Returns what is wrong if the superstep of an attempt, or one around it, has no more time: it was to have ended.
pub(crate) fn overdue(context: &Context, now: Duration) -> Option<RunError> {
    context.life().overdue(&context.parts().node, now).map(|within| step_timeout(within))
}

/// Returns the error of a superstep that took too long.
pub(super) fn step_timeout(within: &StepTime) -> RunError {
    let (step, nodes) = (within.step(), within.late());
    RunError::StepTimeout { step, limit_ms: millis(within.limit()), nodes, source: within.source() }
}

/// Whether an error is that of a superstep that took too long, this one or one inside.
pub(super) fn is_step_timeout(error: &RunError) -> bool {
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    causes.any(|cause| cause.is::<OutOfTime>())
}

/// Returns when an attempt has to be looked at, `None` if it may take as long as it likes.
pub(crate) fn poll_timeout(context: &Context) -> Option<Duration> {
    let own = deadlines(context).map(|(at, _)| at);
    own.chain(context.life().step_end()).min()
}

/// Returns why an attempt is over, if it took too long. What it still does is then dropped.
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
    /// Refuses limits that nobody can hold the node to.
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
