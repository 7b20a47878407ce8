//! How long an attempt may take: its deadlines, as data. A driver waits for them, and asks here what they mean.

use std::fmt;
use std::time::Duration;

use crate::graph::{Context, TimeoutPolicy, Work};

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

/// Begins an attempt with limits.
///
/// # Errors
/// [`RunError::NoTimer`] if nothing waits for a moment, [`RunError::BadTimeout`] if no time is given.
pub(crate) fn begin_limited(context: &Context, now: Duration, has_timer: bool) -> Result<(), RunError> {
    let node = || context.node().to_owned();
    if context.life().limits().is_some_and(TimeoutPolicy::is_zero) {
        return Err(RunError::BadTimeout { node: node() });
    }
    if !has_timer {
        return Err(RunError::NoTimer { node: node() });
    }
    context.life().begin(now);
    Ok(())
}

/// Returns when an attempt has to be looked at, `None` if it may take as long as it likes.
pub(crate) fn poll_timeout(context: &Context) -> Option<Duration> {
    deadlines(context).map(|(at, _)| at).min()
}

/// Returns why an attempt is over, if it took too long. What it still does is then dropped.
pub(crate) fn handle_timeout(context: &Context, now: Duration) -> Option<RunError> {
    let (_, kind) = deadlines(context).filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at)?;
    let life = context.life();
    life.end();
    let elapsed = now.saturating_sub(life.began().unwrap_or(now));
    let limits = life.limits().copied().unwrap_or_default();
    let ms = |limit: Option<Duration>| limit.map(millis);
    Some(RunError::NodeTimeout {
        node: context.node().to_owned(),
        kind,
        after_ms: millis(elapsed),
        run_timeout_ms: ms(limits.run_timeout),
        idle_timeout_ms: ms(limits.idle_timeout),
    })
}

/// Returns the deadlines of an attempt, if it has begun.
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
