//! Signals that the log has changed, for its followers.
//!
//! A commit of this process wakes a follower at once ([`LogSignal`]); one of another process, or of another handle, is
//! noticed by a look at a counter that every commit changes ([`LogProbe`]). Where the system announces such commits,
//! a hint begins a row of looks with growing pauses; elsewhere the looks are regular. A signal may come without a new
//! checkpoint.
//! *Absent:* what changed; a follower reads the log after the last position that it has seen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::StoreError;
use crate::limits::{WATCH_HINTED, WATCH_IDLE, WATCH_INTERVAL, WATCH_UNHINTED_MAX};

/// The signals of a backend's log, for one follower.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogWatch {
    /// Notified by each commit through this backend.
    pub signal: Arc<LogSignal>,
    /// Tells of commits through other handles, in this process or another one; `None` if there cannot be any.
    pub probe: Option<Box<dyn LogProbe>>,
    /// The longest pause between two looks at the probe, where no hints come. Default: 20 ms.
    pub interval: Duration,
    /// The present pause, and the longest one.
    pause: Duration,
    longest: Duration,
    hints: Option<Hints>,
}

/// The hints of a follower, and the looks that follow them.
#[derive(Debug)]
struct Hints {
    is_live: Arc<AtomicBool>,
    /// The count of hints at the last look.
    seen: u64,
    /// The pause before the next look.
    pause: Duration,
    /// The number of changes, one after another, that no hint announced.
    unannounced: u32,
}

impl Hints {
    /// Sets the next pause after a look. Too many changes without a hint end the use of hints: a file system of a
    /// network, for example, does not announce what other machines write.
    fn note(&mut self, seen: u64, has_changed: bool, paused: bool) {
        let is_hinted = std::mem::replace(&mut self.seen, seen) != seen;
        if is_hinted {
            self.unannounced = 0;
        } else if has_changed && self.pause == WATCH_IDLE {
            self.unannounced += 1;
            if self.unannounced == WATCH_UNHINTED_MAX {
                self.is_live.store(false, Ordering::Relaxed);
            }
        }
        if is_hinted || has_changed {
            self.pause = WATCH_HINTED;
        } else if paused {
            self.pause = (self.pause * 2).min(WATCH_IDLE);
        }
    }
}

impl LogWatch {
    /// Makes the signals of a backend.
    pub fn new(signal: Arc<LogSignal>, probe: Option<Box<dyn LogProbe>>) -> Self {
        let (interval, pause, longest) = (WATCH_INTERVAL, WATCH_INTERVAL, WATCH_INTERVAL);
        Self { signal, probe, interval, pause, longest, hints: None }
    }

    /// Trusts the hints of the signal as long as `is_live` is true: between them, looks are rare.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn hinted_while(mut self, is_live: Arc<AtomicBool>) -> Self {
        let seen = self.signal.hints();
        self.hints = Some(Hints { is_live, seen, pause: WATCH_HINTED, unannounced: 0 });
        self
    }

    /// Sets the longest pause between two looks at the probe, where no hints come. A look costs some microseconds.
    pub fn every(mut self, interval: Duration) -> Self {
        (self.interval, self.pause, self.longest) = (interval, interval, interval);
        self
    }

    /// Lets the pauses grow up to `longest` while nothing changes, each twice as long as the one before.
    pub fn backing_off_to(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Waits until the count of the signal is not `seen`, or until another handle has changed the log: at most for a
    /// time, and at most until the next look at the probe. Returns whether the log may have changed.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    pub fn wait(&mut self, seen: u64, timeout: Duration) -> Result<bool, StoreError> {
        let Some(probe) = &mut self.probe else { return Ok(self.signal.wait(seen, timeout)) };
        let Some(hints) = self.hints.as_mut().filter(|hints| hints.is_live.load(Ordering::Relaxed)) else {
            let has_changed = self.signal.wait(seen, timeout.min(self.pause)) || probe.has_changed()?;
            self.pause = if has_changed { self.interval } else { (2 * self.pause).min(self.longest) };
            return Ok(has_changed);
        };
        self.signal
            .wait_while(timeout.min(hints.pause), |signal| signal.count() == seen && signal.hints() == hints.seen);
        // A hint after this begins another row of looks.
        let count = self.signal.hints();
        if self.signal.count() != seen {
            // A commit of this process gives hints as well, and needs no look.
            (hints.seen, hints.pause) = (count, WATCH_HINTED);
            return Ok(true);
        }
        let has_changed = probe.has_changed()?;
        hints.note(count, has_changed, timeout >= hints.pause);
        Ok(has_changed)
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
    /// The count of announcements that another handle is about to commit.
    hints: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl LogSignal {
    /// Counts a commit and wakes those who wait. Without any, it costs an atomic addition.
    pub fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Tells the followers that wait to look at their probes from now on: another handle may be about to commit.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn hint(&self) {
        self.hints.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Returns the count of hints.
    pub(crate) fn hints(&self) -> u64 {
        self.hints.load(Ordering::SeqCst)
    }

    fn wake(&self) {
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
        self.wait_while(timeout, |signal| signal.count() == seen);
        self.count() != seen
    }

    fn wait_while(&self, timeout: Duration, holds: impl Fn(&Self) -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.changed.wait_while_for(&mut self.lock.lock(), |()| holds(self), timeout);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
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

    #[test]
    fn pauses_without_hints_grow_while_nothing_changes() {
        let (signal, looks) = (Arc::new(LogSignal::default()), Arc::new(AtomicU64::new(0)));
        let watch = LogWatch::new(Arc::clone(&signal), Some(Box::new(CountedLooks(looks))));
        let ms = Duration::from_millis;
        let mut watch = watch.every(ms(1)).backing_off_to(ms(4));
        for pause in [1, 2, 4, 4] {
            assert_eq!(watch.pause, ms(pause));
            assert!(!watch.wait(signal.count(), Duration::MAX).unwrap());
        }
        let seen = signal.count();
        signal.notify();
        assert!(watch.wait(seen, Duration::MAX).unwrap());
        assert_eq!(watch.pause, ms(1));
    }

    #[test]
    fn a_hint_ends_a_wait_with_a_look_and_a_commit_of_this_process_needs_none() {
        let (signal, looks) = (Arc::new(LogSignal::default()), Arc::new(AtomicU64::new(0)));
        let probe = Box::new(CountedLooks(Arc::clone(&looks)));
        let mut watch = LogWatch::new(Arc::clone(&signal), Some(probe)).hinted_while(Arc::new(AtomicBool::new(true)));
        let (pause, mut hinted) = (|watch: &LogWatch| watch.hints.as_ref().unwrap().pause, Duration::ZERO);
        while pause(&watch) < WATCH_IDLE {
            assert!(pause(&watch) > hinted, "each pause is longer than the one before");
            hinted = pause(&watch);
            watch.wait(signal.count(), hinted).unwrap();
        }
        let before = looks.load(Ordering::SeqCst);
        signal.hint();
        assert!(!watch.wait(signal.count(), Duration::MAX).unwrap());
        assert_eq!((looks.load(Ordering::SeqCst), pause(&watch)), (before + 1, WATCH_HINTED));
        let seen = signal.count();
        signal.hint();
        signal.notify();
        assert!(watch.wait(seen, Duration::MAX).unwrap());
        assert_eq!(looks.load(Ordering::SeqCst), before + 1);
    }

    #[test]
    fn changes_without_a_hint_end_the_use_of_hints() {
        let is_live = Arc::new(AtomicBool::new(true));
        let idle = || Hints { is_live: Arc::clone(&is_live), seen: 0, pause: WATCH_IDLE, unannounced: 0 };
        let mut hints = idle();
        hints.note(0, true, true);
        assert_eq!((hints.pause, hints.unannounced), (WATCH_HINTED, 1));
        hints.note(0, true, true);
        assert_eq!(hints.unannounced, 1, "a change soon after another one may have its hint");
        hints.pause = WATCH_IDLE;
        hints.note(1, false, true);
        assert_eq!(hints.unannounced, 0);
        for _ in 0..WATCH_UNHINTED_MAX {
            assert!(is_live.load(Ordering::Relaxed));
            hints.pause = WATCH_IDLE;
            hints.note(1, true, true);
        }
        assert!(!is_live.load(Ordering::Relaxed));
    }
}
