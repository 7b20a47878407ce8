//! How long a superstep may take, and which of its nodes took longer. *Absent:* clocks; moments are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A moment that has not come.
const NEVER: u64 = u64::MAX;

/// The time of one superstep, which its tasks share. It begins when the first of them does.
pub(crate) struct StepTime {
    step: i64,
    limit: Duration,
    began_us: AtomicU64,
    /// The nodes that had not ended when it was over.
    late: Mutex<Vec<Arc<str>>>,
}

/// There was no more time for a superstep.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there was no more time")]
pub struct OutOfTime(());

impl StepTime {
    pub(crate) fn new(step: i64, limit: Duration) -> Self {
        Self { step, limit, began_us: AtomicU64::new(NEVER), late: Mutex::default() }
    }

    pub(crate) fn step(&self) -> i64 {
        self.step
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Notes that one of its tasks begins.
    pub(super) fn begin(&self, now: Duration) {
        let now = u64::try_from(now.as_micros()).unwrap_or(NEVER - 1);
        _ = self.began_us.compare_exchange(NEVER, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns when it is over, `None` if it has not begun.
    pub(super) fn end(&self) -> Option<Duration> {
        let began = self.began_us.load(Ordering::Relaxed);
        (began != NEVER).then(|| Duration::from_micros(began).saturating_add(self.limit))
    }

    /// Notes that a node has not ended in time.
    pub(super) fn note(&self, node: &Arc<str>) {
        let mut late = self.late.lock();
        if !late.contains(node) {
            late.push(Arc::clone(node));
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        !self.late.lock().is_empty()
    }

    /// Returns the nodes that had not ended in time, by name.
    pub(crate) fn late(&self) -> Vec<String> {
        let mut late: Vec<String> = self.late.lock().iter().map(|node| node.to_string()).collect();
        late.sort();
        late
    }

    /// Returns what it says of itself.
    pub(crate) fn source(&self) -> OutOfTime {
        OutOfTime(())
    }
}
