//! The liveness of an attempt: its abandoned flag, its deadlines and its last sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::graph::{RefreshOn, TimeoutPolicy};

use super::context::Context;
use super::control::Cancelled;
use super::step_time::StepTime;

/// The timestamp of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// The liveness of one attempt of a task. Timestamps are those of the clock of its run, see
/// [`Clock::elapsed`](crate::base::Clock::elapsed).
pub(crate) struct Life {
    /// The parent task: the caller, or the task that contains the graph.
    above: Option<Context>,
    /// True once the run of its graph is abandoned.
    run_over: Arc<AtomicBool>,
    over: AtomicBool,
    limits: Option<TimeoutPolicy>,
    /// The deadline of its superstep, if it has one.
    within: Option<Arc<StepTime>>,
    /// True if the superstep of this task, or of a parent task, has a deadline.
    timed: bool,
    /// True if this task, or a parent task, has an idle timeout.
    counts: bool,
    /// True for a called task.
    called: bool,
    began_us: AtomicU64,
    seen_us: AtomicU64,
}

impl Life {
    pub(crate) fn new(
        above: Option<Context>,
        run_over: Arc<AtomicBool>,
        limits: Option<TimeoutPolicy>,
        within: Option<Arc<StepTime>>,
    ) -> Self {
        let timed = within.is_some() || above.as_ref().is_some_and(|above| above.life().timed);
        let idle = limits.is_some_and(|limits| limits.idle_timeout.is_some());
        let counts = idle || above.as_ref().is_some_and(|above| above.life().counts);
        let (began_us, seen_us) = (AtomicU64::new(NEVER), AtomicU64::new(0));
        let over = AtomicBool::new(false);
        Self { above, run_over, over, limits, within, timed, counts, called: false, began_us, seen_us }
    }

    /// Returns the liveness of a call of the task of `caller`.
    pub(crate) fn called(caller: &Context, limits: Option<TimeoutPolicy>) -> Self {
        let run_over = Arc::clone(&caller.life().run_over);
        Self { called: true, ..Self::new(Some(caller.clone()), run_over, limits, None) }
    }

    /// Returns the liveness of another attempt.
    pub(crate) fn again(&self) -> Self {
        let run_over = Arc::clone(&self.run_over);
        Self { called: self.called, ..Self::new(self.above.clone(), run_over, self.limits, self.within.clone()) }
    }

    /// Returns the parent task.
    pub(crate) fn above(&self) -> Option<&Context> {
        self.above.as_ref()
    }

    pub(crate) fn limits(&self) -> Option<&TimeoutPolicy> {
        self.limits.as_ref()
    }

    /// Returns whether the superstep of this task, or of a parent task, has a deadline.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns whether the attempt has any limit of time.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.is_some() || self.timed
    }

    /// Returns the earliest deadline of its superstep and of those of its parent tasks.
    pub(crate) fn step_end(&self) -> Option<Duration> {
        let above = self.above.as_ref().filter(|_| self.timed).and_then(|above| above.life().step_end());
        let own = self.within.as_ref().and_then(|within| within.end());
        own.into_iter().chain(above).min()
    }

    /// Returns the superstep whose deadline has passed, of this task or of a parent task, and notes `node` as late in
    /// each such superstep.
    pub(crate) fn overdue(&self, node: &Arc<str>, now: Duration) -> Option<&Arc<StepTime>> {
        if !self.timed {
            return None;
        }
        let own = self.within.as_ref().filter(|within| within.end().is_some_and(|end| end <= now));
        own.inspect(|within| within.note(node));
        let above = self.above.as_ref().and_then(|above| above.life().overdue(&above.parts().node, now));
        own.or(above)
    }

    /// Returns the superstep whose deadline this task, or a parent task, missed.
    pub(crate) fn late(&self) -> Option<&Arc<StepTime>> {
        let own = self.within.as_ref().filter(|within| within.is_late());
        own.or_else(|| self.above.as_ref().filter(|_| self.timed)?.life().late())
    }

    /// Notes the start of the attempt.
    pub(crate) fn begin(&self, now: Duration) {
        self.within.iter().for_each(|within| within.begin(now));
        self.seen_us.store(micros(now), Ordering::Relaxed);
        self.began_us.store(micros(now), Ordering::Relaxed);
    }

    /// Returns the start of the attempt, `None` before it.
    pub(crate) fn began(&self) -> Option<Duration> {
        let began = self.began_us.load(Ordering::Relaxed);
        (began != NEVER).then(|| Duration::from_micros(began))
    }

    /// Returns the time of the last sign of life.
    pub(crate) fn seen(&self) -> Duration {
        Duration::from_micros(self.seen_us.load(Ordering::Relaxed))
    }

    /// Marks the attempt as abandoned: its later effects are dropped.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Returns whether the attempt is abandoned.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
            || self.run_over.load(Ordering::Acquire)
            || self.above.as_ref().is_some_and(|above| above.life().is_over())
    }

    /// Notes a sign of life of this task and of its parent tasks. The heartbeat of a called task does not count for
    /// its caller.
    fn see(&self, now: Duration, heartbeat: bool) {
        let refresh_on = self.limits.map_or(RefreshOn::Auto, |limits| limits.refresh_on);
        if heartbeat || refresh_on == RefreshOn::Auto {
            self.seen_us.fetch_max(micros(now), Ordering::Relaxed);
        }
        let counts_above = |above: &&Life| above.counts && !(heartbeat && self.called);
        if let Some(above) = self.above.as_ref().map(Context::life).filter(counts_above) {
            above.see(now, heartbeat);
        }
    }
}

fn micros(moment: Duration) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(NEVER - 1)
}

impl Context {
    /// Returns this task and its parent tasks, innermost first.
    pub(crate) fn with_callers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |context| context.life().above.as_ref())
    }

    /// Signals that the node is alive: its idle timeout and those of its parent tasks start anew; the heartbeat of a
    /// called task restarts its own timeout, not that of its caller. It does nothing without an idle timeout. Streamed
    /// parts, interrupts and calls are signs of life too, unless the policy is [`RefreshOn::Heartbeat`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::TimeoutPolicy;
    /// use annals_graph::prelude::*;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Copy { #[channel(last)] parts: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let copy = |_: Arc<Copy>, ctx: Context| async move {
    ///     for _part in 0..10 {
    ///         // Some work that may wait, and then:
    ///         ctx.heartbeat();
    ///     }
    ///     Ok(Copy::update().parts(10))
    /// };
    /// let limits = TimeoutPolicy::new().idle_timeout(Duration::from_secs(5));
    /// let graph = StateGraph::<Copy>::new()
    ///     .node_with("copy", copy, NodeOptions::new().timeout(limits))
    ///     .edge(START, "copy")
    ///     .compile()?;
    /// assert_eq!(graph.invoke((), Copy::update())?.state().parts, 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn heartbeat(&self) {
        self.see(true);
    }

    /// Notes a sign of life: a streamed part, an interrupt or a call.
    pub(crate) fn progress(&self) {
        self.see(false);
    }

    fn see(&self, heartbeat: bool) {
        if self.life().counts {
            self.life().see(self.scope().host.elapsed(), heartbeat);
        }
    }

    /// Returns whether this attempt is abandoned, so that a node on a thread should return soon: the run was cancelled
    /// or dropped, or a parent task or the superstep exceeded its time limit. The output of the node is stored if the
    /// run was cancelled or the superstep exceeded its limit, and dropped otherwise.
    pub fn is_cancelled(&self) -> bool {
        let late = || self.life().step_end().is_some_and(|end| end <= self.scope().host.elapsed());
        self.control().is_cancelled() || self.life().is_over() || (self.life().timed && late())
    }

    /// Returns an error if [`is_cancelled`](Self::is_cancelled) is true, to be passed on with `?`.
    ///
    /// # Errors
    /// [`Cancelled`] if the attempt is abandoned.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Sum { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Sum>::new()
    ///     .node("add", |_: &Sum, ctx: &Context| {
    ///         let mut n = 0;
    ///         for i in 0..1_000 {
    ///             ctx.check_cancelled()?;
    ///             n += i;
    ///         }
    ///         Ok(Sum::update().n(n))
    ///     })
    ///     .edge(START, "add")
    ///     .compile()?;
    /// assert_eq!(graph.invoke((), Sum::update())?.state().n, 499_500);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled::new()) } else { Ok(()) }
    }
}
