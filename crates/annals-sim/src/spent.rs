//! The time that a thread was on a processor, so that a busy machine is not mistaken for a slow call.

use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

/// A time to measure from. A system that does not tell the time on a processor counts all time.
pub(crate) struct Spent {
    wall: Duration,
    on_cpu: Option<Duration>,
}

impl Spent {
    pub(crate) fn now() -> Self {
        let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let on_cpu = on_cpu.and_then(|stat| stat.split_whitespace().next()?.parse().ok()).map(Duration::from_nanos);
        Self { wall: SystemClock.elapsed(), on_cpu }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let now = Self::now();
        match (self.on_cpu, now.on_cpu) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            _ => now.wall.saturating_sub(self.wall),
        }
    }
}
