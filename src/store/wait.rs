//! How a thread waits for what another will have done in a moment.

use std::time::Duration;

use crate::base::time::Stopwatch;

/// How long a thread looks before it sleeps: about one fsync of a fast disk. To fall asleep and to be woken costs both
/// sides together some 40 us; where an fsync takes milliseconds, to look first costs a few percent of one CPU.
pub(super) const LOOKS_FOR: Duration = Duration::from_micros(150);

/// Looks for `time` at most whether something is so, and lets other threads run between the looks. It is a courtesy:
/// afterwards the caller looks again under its lock, and sleeps.
pub(super) fn soon(time: Duration, so: impl Fn() -> bool) {
    let start = Stopwatch::start();
    while !so() && start.elapsed() < time {
        std::thread::yield_now();
    }
}
