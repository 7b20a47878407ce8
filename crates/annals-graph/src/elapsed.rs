//! Measures how long something takes, for bounds on waiting. *Absent:* anything that is stored.

use annals::base::{Clock, SystemClock};
use std::time::Duration;

/// The time since a start, by the clock of the system that does not step back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElapsedTime(Duration);

impl ElapsedTime {
    /// Starts to measure.
    pub(crate) fn start() -> Self {
        Self(SystemClock.elapsed())
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        let now = SystemClock.elapsed();
        debug_assert!(now >= self.0, "the clock does not step back");
        now.saturating_sub(self.0)
    }
}
