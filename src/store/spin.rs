//! Bounded spin before parking: a thread waits for a result of another thread that is due within microseconds.

use std::time::Duration;

use crate::base::time::Stopwatch;

/// The spin before a thread parks: about one fsync of a fast disk. Parking and waking cost both sides together some
/// 40 us; where an fsync takes milliseconds, spinning first costs a few percent of one CPU.
pub(super) const SPIN_BEFORE_PARK: Duration = Duration::from_micros(150);

/// Spins until `is_ready` returns `true` or `timeout` is over, and yields to other threads in between. The result is
/// not reported: the caller checks again under its lock, and parks.
pub(super) fn spin_until(timeout: Duration, is_ready: impl Fn() -> bool) {
    let start = Stopwatch::start();
    while !is_ready() && start.elapsed() < timeout {
        std::thread::yield_now();
    }
}
