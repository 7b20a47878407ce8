//! Whether somebody still waits for a task, and when it last gave a sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::context::Context;
use super::control::Cancelled;
use super::policy::{RefreshOn, TimeoutPolicy};
use super::step_time::StepTime;

/// A moment that has not come.
const NEVER: u64 = u64::MAX;

/// The life of one attempt of a task. Moments are counted by the clock of its run, see
/// [`Clock::elapsed`](crate::base::Clock::elapsed).
pub(crate) struct Life {
    /// The task around it: the one that called it, or that its graph runs in.
    above: Option<Context>,
    /// Whether nobody waits for the tasks of its graph any more.
    run_over: Arc<AtomicBool>,
    over: AtomicBool,
    limits: Option<TimeoutPolicy>,
    /// The time of its superstep, if that is limited.
    within: Option<Arc<StepTime>>,
    /// Whether that of a superstep is limited, here or above.
    timed: bool,
    /// Whether a sign of life counts, here or above.
    counts: bool,
    /// Whether it is that of a called task.
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

    /// Makes the life of a call of the task of `caller`.
    pub(crate) fn called(caller: &Context, limits: Option<TimeoutPolicy>) -> Self {
        let run_over = Arc::clone(&caller.life().run_over);
        Self { called: true, ..Self::new(Some(caller.clone()), run_over, limits, None) }
    }

    /// Makes the life of another attempt.
    pub(crate) fn again(&self) -> Self {
        let run_over = Arc::clone(&self.run_over);
        Self { called: self.called, ..Self::new(self.above.clone(), run_over, self.limits, self.within.clone()) }
    }

    /// Returns the task around it.
    pub(crate) fn above(&self) -> Option<&Context> {
        self.above.as_ref()
    }

    pub(crate) fn limits(&self) -> Option<&TimeoutPolicy> {
        self.limits.as_ref()
    }

    /// Whether the time of its superstep is limited, or of one around it.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Whether anything limits the attempt.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.is_some() || self.timed
    }

    /// Returns when the time of its superstep is over, or of one around it.
    pub(crate) fn step_end(&self) -> Option<Duration> {
        let above = self.above.as_ref().filter(|_| self.timed).and_then(|above| above.life().step_end());
        let own = self.within.as_ref().and_then(|within| within.end());
        own.into_iter().chain(above).min()
    }

    /// Notes that the attempt of `node` has not ended in the time of its superstep, if that is so, and likewise of those
    /// around it. Returns one of them.
    pub(crate) fn overdue(&self, node: &Arc<str>, now: Duration) -> Option<&Arc<StepTime>> {
        if !self.timed {
            return None;
        }
        let own = self.within.as_ref().filter(|within| within.end().is_some_and(|end| end <= now));
        own.inspect(|within| within.note(node));
        let above = self.above.as_ref().and_then(|above| above.life().overdue(&above.parts().node, now));
        own.or(above)
    }

    /// Returns the superstep that it, or what is above it, had not ended in.
    pub(crate) fn late(&self) -> Option<&Arc<StepTime>> {
        let own = self.within.as_ref().filter(|within| within.is_late());
        own.or_else(|| self.above.as_ref().filter(|_| self.timed)?.life().late())
    }

    /// Notes that the attempt begins.
    pub(crate) fn begin(&self, now: Duration) {
        self.within.iter().for_each(|within| within.begin(now));
        self.seen_us.store(micros(now), Ordering::Relaxed);
        self.began_us.store(micros(now), Ordering::Relaxed);
    }

    /// Returns when the attempt began, `None` if it has not.
    pub(crate) fn began(&self) -> Option<Duration> {
        let began = self.began_us.load(Ordering::Relaxed);
        (began != NEVER).then(|| Duration::from_micros(began))
    }

    /// Returns when it last gave a sign of life.
    pub(crate) fn seen(&self) -> Duration {
        Duration::from_micros(self.seen_us.load(Ordering::Relaxed))
    }

    /// Notes that nobody waits for the attempt any more: what it still does is dropped.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Returns whether nobody waits for the attempt any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
            || self.run_over.load(Ordering::Acquire)
            || self.above.as_ref().is_some_and(|above| above.life().is_over())
    }

    /// Notes a sign of life, here and above. The heartbeat of a called task is not one of its caller.
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
    /// Returns this task and those that it runs in, innermost first.
    pub(crate) fn with_callers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |context| context.life().above.as_ref())
    }

    /// Says that the node is alive: its idle timeout, and those of the nodes around it, begin anew; in a called task that
    /// of the task, not that of its caller. Without one it does nothing. What a node shows, asks or calls says so too,
    /// unless its policy is [`RefreshOn::Heartbeat`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
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

    /// Notes that something can be seen of the task.
    pub(crate) fn progress(&self) {
        self.see(false);
    }

    fn see(&self, heartbeat: bool) {
        if self.life().counts {
            self.life().see(self.scope().host.elapsed(), heartbeat);
        }
    }

    /// Returns whether nobody waits for this attempt any more, so that a node which runs on a thread had better end: the
    /// run was cancelled or dropped, a node around it took too long, or its superstep did. What it returns is kept if the
    /// run was cancelled or its superstep has no more time, and dropped otherwise.
    pub fn is_cancelled(&self) -> bool {
        let late = || self.life().step_end().is_some_and(|end| end <= self.scope().host.elapsed());
        self.control().is_cancelled() || self.life().is_over() || (self.life().timed && late())
    }

    /// Fails if [`is_cancelled`](Self::is_cancelled) says so, to be passed on with `?`.
    ///
    /// # Errors
    /// [`Cancelled`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
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
