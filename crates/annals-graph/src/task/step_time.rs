//! The deadline of a superstep, and the nodes that missed it. *Absent:* clocks; the time is an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The timestamp of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// The deadline of one superstep, which its tasks share. It counts from the start of the first task.
pub(crate) struct StepTime {
    step: i64,
    limit: Duration,
    began_us: AtomicU64,
    /// The nodes that missed the deadline.
    late: Mutex<Vec<Arc<str>>>,
}

/// A superstep exceeded its time limit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the superstep exceeded its time limit")]
pub struct TimedOut(());

impl StepTime {
    pub(crate) fn new(step: i64, limit: Duration) -> Self {
        debug_assert!(!limit.is_zero(), "a limit of zero is none");
        Self { step, limit, began_us: AtomicU64::new(NEVER), late: Mutex::default() }
    }

    pub(crate) fn step(&self) -> i64 {
        self.step
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Notes the start of one of its tasks.
    pub(super) fn begin(&self, now: Duration) {
        let now = u64::try_from(now.as_micros()).unwrap_or(NEVER - 1);
        _ = self.began_us.compare_exchange(NEVER, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the deadline, `None` before the first start.
    pub(super) fn end(&self) -> Option<Duration> {
        let began = self.began_us.load(Ordering::Relaxed);
        (began != NEVER).then(|| Duration::from_micros(began).saturating_add(self.limit))
    }

    /// Notes a node that missed the deadline.
    pub(super) fn note(&self, node: &Arc<str>) {
        let mut late = self.late.lock();
        if !late.contains(node) {
            late.push(Arc::clone(node));
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        !self.late.lock().is_empty()
    }

    /// Returns the nodes that missed the deadline, by name.
    pub(crate) fn late(&self) -> Vec<String> {
        let mut late: Vec<String> = self.late.lock().iter().map(|node| node.to_string()).collect();
        late.sort();
        debug_assert!(late.windows(2).all(|pair| pair[0] != pair[1]), "a node is late once");
        late
    }

    /// Returns the source of the error of the superstep.
    pub(crate) fn source(&self) -> TimedOut {
        TimedOut(())
    }
}
