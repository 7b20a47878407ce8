//! The marks of special writes: the statements of their writers about the status of a thread.
//!
//! *Absent:* the status that follows from the marks of a head ([`marked`](super::marked)).

use crate::base::Timestamp;

/// The statement of the writer of a special write about the status of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteMark {
    /// The task failed.
    Failed,
    /// The task failed, and its run was given up: no worker continues it.
    GivenUp,
    /// The task waits for a value from outside.
    Waits,
    /// The task sleeps until a timestamp.
    WakesAt(Timestamp),
    /// The task waits for a value from outside, and goes on without one at a timestamp.
    WaitsUntil(Timestamp),
}

/// The number of a mark that waits until 1970-01-01T00:00:00Z; a later timestamp has a smaller one.
const WAITS_UNTIL: i64 = -16;

impl WriteMark {
    /// Returns the mark of a task that waits for several things: for each the timestamp at which it goes on without a
    /// value, if it has one. `None` if it waits for nothing. A timestamp before 1970 counts as 1970, which has passed
    /// as well.
    ///
    /// # Example
    /// ```
    /// use annals::base::Timestamp;
    /// use annals::store::WriteMark;
    ///
    /// let [soon, late] = [5, 9].map(Timestamp::from_micros);
    /// assert_eq!(WriteMark::waiting([Some(late), Some(soon)]), Some(WriteMark::WakesAt(soon)));
    /// assert_eq!(WriteMark::waiting([None, Some(late)]), Some(WriteMark::WaitsUntil(late)));
    /// assert_eq!(WriteMark::waiting([None]), Some(WriteMark::Waits));
    /// assert_eq!(WriteMark::waiting([]), None);
    /// ```
    pub fn waiting(wake_at: impl IntoIterator<Item = Option<Timestamp>>) -> Option<Self> {
        let (mut waits, mut first) = (false, None::<Timestamp>);
        for at in wake_at {
            match at.map(|at| at.max(Timestamp::from_micros(0))) {
                Some(at) => first = Some(first.map_or(at, |first| first.min(at))),
                None => waits = true,
            }
        }
        match (waits, first) {
            (false, None) => None,
            (true, None) => Some(Self::Waits),
            (false, Some(at)) => Some(Self::WakesAt(at)),
            (true, Some(at)) => Some(Self::WaitsUntil(at)),
        }
    }

    /// Returns the timestamp at which the task goes on by itself.
    pub fn wake_at(self) -> Option<Timestamp> {
        match self {
            Self::WakesAt(at) | Self::WaitsUntil(at) => Some(at),
            Self::Failed | Self::GivenUp | Self::Waits => None,
        }
    }

    /// Returns the number by which a backend stores it: the microseconds of a timestamp at which the task wakes, and a
    /// number below zero for the others.
    pub fn number(self) -> i64 {
        match self {
            Self::Failed => -1,
            Self::GivenUp => -2,
            Self::Waits => -3,
            Self::WakesAt(at) => at.as_micros(),
            Self::WaitsUntil(at) => WAITS_UNTIL.saturating_sub(at.as_micros()),
        }
    }

    /// Returns the mark with a number; `None` if no mark has it.
    pub fn of_number(number: i64) -> Option<Self> {
        match number {
            -1 => Some(Self::Failed),
            -2 => Some(Self::GivenUp),
            -3 => Some(Self::Waits),
            0.. => Some(Self::WakesAt(Timestamp::from_micros(number))),
            ..=WAITS_UNTIL => Some(Self::WaitsUntil(Timestamp::from_micros(WAITS_UNTIL.saturating_sub(number)))),
            _ => None,
        }
    }

    /// Returns whether a backend can store it: its timestamp is not before 1970.
    pub(super) fn is_stored(self) -> bool {
        Self::of_number(self.number()) == Some(self)
    }

    pub(super) fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::GivenUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_from_its_number() {
        let at = |micros| Timestamp::from_micros(micros);
        let marks = [WriteMark::Failed, WriteMark::GivenUp, WriteMark::Waits];
        let timed = [0, 1, 1_700_000_000_000_000].map(at);
        let timed = timed.into_iter().flat_map(|at| [WriteMark::WakesAt(at), WriteMark::WaitsUntil(at)]);
        for mark in marks.into_iter().chain(timed) {
            assert_eq!(WriteMark::of_number(mark.number()), Some(mark));
            assert!(mark.is_stored());
        }
        for number in WAITS_UNTIL + 1..-3 {
            assert_eq!(WriteMark::of_number(number), None);
        }
        for early in [WriteMark::WakesAt(at(-1)), WriteMark::WaitsUntil(at(-1)), WriteMark::WakesAt(at(i64::MIN))] {
            assert!(!early.is_stored(), "{early:?}");
        }
        assert_eq!(WriteMark::waiting([Some(at(-5))]), Some(WriteMark::WakesAt(at(0))));
    }
}
