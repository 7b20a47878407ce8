//! The times at which a worker looks at its queues and its schedules. *Absent:* waiting, and what a look finds.

use std::time::Duration;

use crate::base::Timestamp;
use crate::elapsed::ElapsedTime;
use crate::limits::{SCHEDULE_LOOK, WORKER_ASK, WORKER_IDLE, WORKER_POLL};

use super::claims::ClaimProgress;

/// The times of the next looks. Durations are those of its clock.
pub(super) struct Looks {
    clock: ElapsedTime,
    /// True if the log may have changed since the last look.
    has_changed: bool,
    /// The count of the signal of the log before the last look.
    seen: u64,
    looked_at: Duration,
    /// The time at which the leases of other workers may have expired.
    scan_at: Duration,
    scans_every: Duration,
    /// The time of the next look for runs that a limit has refused.
    ask_at: Option<Duration>,
    /// The first timestamp at which another run may be due.
    next_at: Option<Timestamp>,
    fire_at: Duration,
    /// The next due time of a schedule.
    fires_next: Option<Timestamp>,
}

impl Looks {
    /// Begins with a look at everything.
    pub(super) fn new(scans_every: Duration) -> Self {
        Self {
            clock: ElapsedTime::start(),
            has_changed: true,
            seen: 0,
            looked_at: Duration::ZERO,
            scan_at: Duration::ZERO,
            scans_every,
            ask_at: None,
            next_at: None,
            fire_at: Duration::ZERO,
            fires_next: None,
        }
    }

    /// Notes that the log may have changed.
    pub(super) fn note_change(&mut self) {
        self.has_changed = true;
    }

    /// Returns whether a look at the queues is due: the log has changed, or a time has passed. `seen` is the count of
    /// the signal of the log.
    pub(super) fn are_due(&mut self, seen: u64, now: Timestamp) -> bool {
        let clock = self.clock.elapsed();
        let has_changed = std::mem::take(&mut self.has_changed) || self.seen != seen;
        let is_scanned = clock >= self.scan_at;
        let is_due = has_changed
            || is_scanned
            || self.ask_at.is_some_and(|at| at <= clock)
            || self.next_at.is_some_and(|at| at <= now);
        if is_due {
            (self.seen, self.looked_at, self.ask_at, self.next_at) = (seen, clock, None, None);
        }
        if is_scanned {
            self.scan_at = clock + self.scans_every;
        }
        is_due
    }

    /// Sets the next looks after a claim.
    pub(super) fn claimed(&mut self, progress: &ClaimProgress) {
        self.next_at = progress.next_at;
        self.ask_at = progress.is_refused.then(|| self.ask_at.unwrap_or(self.clock.elapsed() + WORKER_ASK));
    }

    /// Returns whether a look at the schedules is due.
    pub(super) fn fire_is_due(&self, now: Timestamp) -> bool {
        self.clock.elapsed() >= self.fire_at || self.fires_next.is_some_and(|at| at <= now)
    }

    /// Notes a look at the schedules, and their next due time.
    pub(super) fn fired(&mut self, next: Option<Timestamp>) {
        (self.fire_at, self.fires_next) = (self.clock.elapsed() + SCHEDULE_LOOK, next);
    }

    /// Returns the duration to the next look.
    pub(super) fn next_in(&self, now: Timestamp) -> Duration {
        let at = |at: Timestamp| at.as_micros().saturating_sub(now.as_micros());
        let due = self.next_at.into_iter().chain(self.fires_next).map(at).map(|us| u64::try_from(us).unwrap_or(0));
        let clock = self.clock.elapsed();
        let times = [self.scan_at, self.fire_at].into_iter().chain(self.ask_at).map(|at| at.saturating_sub(clock));
        times.chain(due.map(Duration::from_micros)).fold(WORKER_IDLE, Duration::min)
    }

    /// Returns the time for which commits are gathered before the next look.
    pub(super) fn linger(&self, now: Timestamp) -> Duration {
        (self.looked_at + WORKER_POLL).saturating_sub(self.clock.elapsed()).min(self.next_in(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn progress(is_refused: bool, next_at: Option<Timestamp>) -> ClaimProgress {
        ClaimProgress { busy: 0, has_more: false, is_refused, next_at }
    }

    #[test]
    fn a_look_is_due_after_a_change_and_at_a_timestamp() {
        let mut looks = Looks::new(Duration::from_secs(3_600));
        assert!(looks.are_due(0, at(0)), "the first one");
        assert!(!looks.are_due(0, at(0)));
        assert!(looks.are_due(1, at(0)), "the signal has counted");
        looks.note_change();
        assert!(looks.are_due(1, at(0)), "another handle has changed the log");
        looks.claimed(&progress(false, Some(at(9))));
        assert!(!looks.are_due(1, at(8)) && looks.are_due(1, at(9)) && !looks.are_due(1, at(9)));
    }

    #[test]
    fn the_next_look_is_the_first_of_all_times() {
        let mut looks = Looks::new(Duration::from_secs(3_600));
        assert!(looks.fire_is_due(at(0)) && looks.are_due(0, at(0)));
        // The test may stand still for longer than the time to the next look at the schedules.
        let fired = |looks: &mut Looks, next| {
            looks.fired(next);
            assert!(looks.fire_at >= SCHEDULE_LOOK);
            looks.fire_at = looks.scan_at;
        };
        fired(&mut looks, Some(at(7)));
        assert!(!looks.fire_is_due(at(6)) && looks.fire_is_due(at(7)));
        assert_eq!(looks.next_in(at(8)), Duration::ZERO, "a schedule is due");
        fired(&mut looks, None);
        assert!(looks.next_in(at(0)) > WORKER_ASK);
        looks.claimed(&progress(true, None));
        assert!(looks.next_in(at(0)) <= WORKER_ASK, "a limit refuses a run");
        looks.claimed(&progress(false, Some(at(5))));
        assert_eq!(looks.next_in(Timestamp::from_micros(4_999_990)), Duration::from_micros(10));
    }
}
