//! Bounded spin before parking: a thread waits for a result of another thread that is due within microseconds.

use std::time::Duration;

use crate::base::internal::Stopwatch;

/// Spins until `is_ready` returns `true` or `timeout` is over, and yields to other threads in between. The result is
/// not reported: the caller checks again under its lock, and parks.
pub(super) fn spin_until(timeout: Duration, is_ready: impl Fn() -> bool) {
    let start = Stopwatch::start();
    while !is_ready() && start.elapsed() < timeout {
        std::thread::yield_now();
    }
}
