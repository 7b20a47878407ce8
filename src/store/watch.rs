//! Signals that the log has changed, for its followers.
//!
//! A commit of this process wakes a follower at once ([`LogSignal`]); one of another process, or of another handle, is
//! noticed by a look at a counter that every commit changes ([`LogProbe`]). A signal may come without a new checkpoint.
//! *Absent:* what changed; a follower reads the log after the last position that it has seen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::StoreError;
use crate::base::limits::WATCH_INTERVAL;

/// The signals of a backend's log, for one follower.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogWatch {
    /// Notified by each commit through this backend.
    pub signal: Arc<LogSignal>,
    /// Tells of commits through other handles, in this process or another one; `None` if there cannot be any.
    pub probe: Option<Box<dyn LogProbe>>,
    /// The longest pause between two looks at the probe. Default: 20 ms.
    pub interval: Duration,
}

impl LogWatch {
    /// Makes the signals of a backend.
    pub fn new(signal: Arc<LogSignal>, probe: Option<Box<dyn LogProbe>>) -> Self {
        Self { signal, probe, interval: WATCH_INTERVAL }
    }

    /// Sets the longest pause between two looks at the probe. A look costs some microseconds.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Waits until the count of the signal is not `seen`, or until another handle has changed the log: at most for a
    /// time, and at most until the next look at the probe. Returns whether the log may have changed.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    pub fn wait(&mut self, seen: u64, timeout: Duration) -> Result<bool, StoreError> {
        let Some(probe) = &mut self.probe else { return Ok(self.signal.wait(seen, timeout)) };
        Ok(self.signal.wait(seen, timeout.min(self.interval)) || probe.has_changed()?)
    }
}

/// Tells if a log was changed by any handle.
pub trait LogProbe: Send + fmt::Debug {
    /// Returns whether the log may have changed since the last call, or since the probe was made. A call costs
    /// microseconds, and does not read the log.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn has_changed(&mut self) -> Result<bool, StoreError>;
}

/// A count of commits that threads wait for.
#[derive(Debug, Default)]
pub struct LogSignal {
    count: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl LogSignal {
    /// Counts a commit and wakes those who wait. Without any, it costs an atomic addition.
    pub fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // A thread between its look at the count and its park holds the lock.
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }

    /// Returns the count.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until the count is not `seen`, at most for a time, and returns whether it is not.
    pub fn wait(&self, seen: u64, timeout: Duration) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut lock = self.lock.lock();
        while self.count() == seen && !self.changed.wait_for(&mut lock, timeout).timed_out() {}
        drop(lock);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.count() != seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_the_wait_is_not_missed() {
        let signal = LogSignal::default();
        let seen = signal.count();
        signal.notify();
        assert!(signal.wait(seen, Duration::from_secs(300)));
        assert!(!signal.wait(signal.count(), Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let (signal, seen) = (&signal, signal.count());
            let waiter = scope.spawn(move || signal.wait(seen, Duration::from_secs(300)));
            signal.notify();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(signal.waiting.load(Ordering::SeqCst), 0);
    }

    /// Counts the looks; nothing has changed at any of them.
    #[derive(Debug)]
    struct CountedLooks(Arc<AtomicU64>);

    impl LogProbe for CountedLooks {
        fn has_changed(&mut self) -> Result<bool, StoreError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(false)
        }
    }

    #[test]
    fn a_wait_ends_with_the_next_look_at_the_probe() {
        const {
            assert!(
                WATCH_INTERVAL.as_millis() <= 20,
                "a follower is told of another process within a tenth of a second"
            )
        };
        let (signal, looks) = (Arc::new(LogSignal::default()), Arc::new(AtomicU64::new(0)));
        let mut watch = LogWatch::new(Arc::clone(&signal), Some(Box::new(CountedLooks(Arc::clone(&looks)))));
        for count in 1..=3 {
            // A caller that may wait for ever.
            assert!(!watch.wait(signal.count(), Duration::MAX).unwrap());
            assert_eq!(looks.load(Ordering::SeqCst), count);
        }
        let seen = signal.count();
        signal.notify();
        assert!(watch.wait(seen, Duration::MAX).unwrap());
        assert_eq!(looks.load(Ordering::SeqCst), 3, "a commit of this process needs no look");
    }
}
