//! Time as an argument: the only file of the library that reads a clock.

use std::fmt;
use std::time::Duration;

/// A moment: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the moment `us` microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(us: i64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the moment `duration` later; saturates.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// ISO 8601 in UTC with microseconds: `2026-11-21T01:16:57.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, us) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
        // Civil date from days since the epoch; years are counted from 1 March so that the leap day comes last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
    }
}

/// A source of time. The engine takes one wherever it needs the time, so that tests decide what time it is.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present moment. It may step back; nothing in the store is ordered by it.
    fn now(&self) -> Timestamp;

    /// Returns how long it is since some moment that stays the same as long as the clock lives. It does not step back;
    /// limits on how long something may take are counted by it. Default: since 1970, by [`now`](Self::now).
    fn elapsed(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.now().as_micros()).unwrap_or(0))
    }
}

/// A clock that stands still.
impl Clock for Timestamp {
    fn now(&self) -> Timestamp {
        *self
    }
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().saturating_add(since)
    }

    fn elapsed(&self) -> Duration {
        static START: std::sync::OnceLock<Stopwatch> = std::sync::OnceLock::new();
        START.get_or_init(Stopwatch::start).elapsed()
    }
}

/// Measures how long something takes, for bounds on waiting; nothing that is stored depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts to measure.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_moment_is_shown_in_iso_8601() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_795_223_817_000_000, "2026-11-21T01:16:57.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Timestamp::from_micros(us).to_string(), text);
        }
    }
}
