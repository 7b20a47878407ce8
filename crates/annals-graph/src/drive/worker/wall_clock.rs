//! The due times of a cron expression on the wall clock of a time zone, which jumps twice a year.
//!
//! The expression is evaluated on local times alone, as if they were in UTC; then each local time gets the timestamps
//! that the policy says. Invariant: the next due time is the first timestamp of all local times, also where local times
//! are out of order. *Absent:* schedules and their runs.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The hours around a timestamp in which a change of the clocks can disorder local times: more than any change.
const NEAR_HOURS: i64 = 26;

/// The policy for the local times that a change of the clocks leaves out or repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ClockChanges {
    /// Each local time runs once. One that is left out runs as much later as the clocks were set forward: at 03:30 in
    /// place of 02:30. One that is repeated runs the first time. A schedule whose hour is `*` runs at the same minutes
    /// of each hour that passes, so it runs in both.
    #[default]
    Once,
    /// A local time runs whenever a clock on the wall shows it: one that is left out does not run, and one that is
    /// repeated runs twice.
    AsShown,
}

/// A cron expression in a time zone.
#[derive(Clone)]
pub(super) struct WallClock {
    /// The local times, in UTC.
    times: Crontab,
    zone: TimeZone,
    changes: ClockChanges,
    /// True if each hour of the day matches.
    is_hourly: bool,
}

impl WallClock {
    /// Makes the due times of an expression of five fields.
    ///
    /// # Errors
    /// The message for an expression that does not follow the grammar, or for an unknown zone.
    pub(super) fn new(cron: &str, zone: &str, changes: ClockChanges) -> Result<Self, String> {
        let zone = TimeZone::get(zone).map_err(|error| error.to_string())?;
        let times = cronexpr::parse_crontab(&format!("{} UTC", cron.trim())).map_err(|error| error.to_string())?;
        let is_hourly = cron.split_whitespace().nth(1).is_some_and(|hour| hour == "*" || hour == "*/1");
        Ok(Self { times, zone, changes, is_hourly })
    }

    /// Returns the first due time after a timestamp, both in microseconds; `None` if there is none within four years.
    pub(super) fn next_after(&self, micros: i64) -> Option<i64> {
        let after = Timestamp::from_microsecond(micros).ok()?;
        let mut disorder = self.disorder_near(after);
        let mut from = self.local(after).checked_sub(disorder).ok()?;
        let mut best: Option<Timestamp> = None;
        while let Some(local) = self.local_time_after(from) {
            from = local;
            if let Some(at) = self.timestamps_of(local).into_iter().flatten().filter(|at| *at > after).min()
                && best.is_none_or(|best| at < best)
            {
                disorder = disorder.max(self.disorder_near(at));
                best = Some(at);
            }
            // Later local times have no timestamp before it.
            if best.is_some_and(|best| self.local(best).checked_add(disorder).is_ok_and(|last| local >= last)) {
                break;
            }
        }
        best.map(|best| best.as_microsecond())
    }

    fn local(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    /// Returns the first local time of the expression after another one.
    fn local_time_after(&self, after: DateTime) -> Option<DateTime> {
        let after = TimeZone::UTC.to_timestamp(after).ok()?;
        Some(self.times.find_next(MakeTimestamp(after)).ok()?.datetime())
    }

    /// Returns the timestamps at which a local time runs.
    fn timestamps_of(&self, local: DateTime) -> [Option<Timestamp>; 2] {
        let found = self.zone.to_ambiguous_timestamp(local);
        let both = || [found.earlier().ok(), found.later().ok()];
        let is_left_out = matches!(found.offset(), AmbiguousOffset::Gap { .. });
        let is_repeated = matches!(found.offset(), AmbiguousOffset::Fold { .. });
        match self.changes {
            ClockChanges::AsShown if is_left_out => [None, None],
            ClockChanges::AsShown if is_repeated => both(),
            ClockChanges::Once if is_repeated && self.is_hourly => both(),
            _ => [found.compatible().ok(), None],
        }
    }

    /// Returns by how much a change of the clocks disorders the local times near a timestamp.
    fn disorder_near(&self, at: Timestamp) -> SignedDuration {
        let near = SignedDuration::from_hours(NEAR_HOURS);
        let (Ok(first), Ok(last)) = (at.checked_sub(near), at.checked_add(near)) else { return SignedDuration::ZERO };
        let changes = self.zone.following(first).take_while(|change| change.timestamp() <= last);
        let sizes = changes.map(|change| {
            let before = change.timestamp().checked_sub(SignedDuration::from_nanos(1));
            let before = before.map_or(change.offset(), |before| self.zone.to_offset(before));
            SignedDuration::from_secs((i64::from(change.offset().seconds()) - i64::from(before.seconds())).abs())
        });
        sizes.max().unwrap_or(SignedDuration::ZERO)
    }
}
