//! Short ids: beginnings of checkpoint ids that stay unique.
//!
//! An id begins with its time, so that a beginning stands for a span of time: nine digits for 1.7 s, ten for 0.1 s,
//! twelve for 0.4 ms. Ids only go up, so none is minted in a span that is over. A short id is the shortest beginning
//! that fits one checkpoint and whose span is over: no checkpoint that is made later makes it ambiguous.

use crate::base::{CheckpointId, Timestamp};
use crate::store::StoreError;
use crate::store::log::LogReads;

use crate::history::read::snapshot::Snapshot;

/// The fewest digits of a short id.
const DIGITS_MIN: usize = 4;
/// The digits of an id, without hyphens.
const DIGITS: usize = 32;
/// The digits with the time of an id, its version among them. The next id has another time.
const TIME_DIGITS: usize = 16;

/// Returns the digits of an id without hyphens.
fn digits(id: CheckpointId) -> String {
    id.to_string().replace('-', "")
}

/// Returns the fewest digits of an id whose span of time is over.
fn settled(id: CheckpointId, now: Timestamp) -> usize {
    let bits = u128::from_be_bytes(*id.as_bytes());
    let is_over = |length: &usize| {
        let last = CheckpointId::from_bytes((bits | (u128::MAX >> (4 * length))).to_be_bytes());
        last.ticks() < CheckpointId::first_at(now).ticks()
    };
    (DIGITS_MIN..TIME_DIGITS).find(is_over).unwrap_or(TIME_DIGITS)
}

/// Returns the short ids of the checkpoints of one namespace, sorted either way and complete from the first to the
/// last of them. `now` is the present time. A thread with subgraphs has further ids: use [`Snapshot::short_id`]
/// there.
pub fn short_ids(ids: &[CheckpointId], now: Timestamp) -> Vec<String> {
    debug_assert!(ids.is_sorted() || ids.iter().rev().is_sorted(), "neighbours in the list are neighbours in time");
    let all: Vec<String> = ids.iter().map(|id| digits(*id)).collect();
    let newest = ids.iter().max();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let length = |at: usize| {
        let before = at.checked_sub(1).map_or(0, |before| shared(&all[before], &all[at]));
        let after = all.get(at + 1).map_or(0, |after| shared(after, &all[at]));
        // A newer id ends the spans of those before it.
        let least = if newest == Some(&ids[at]) { settled(ids[at], now) } else { DIGITS_MIN };
        (before.max(after) + 1).clamp(least, DIGITS)
    };
    let short: Vec<String> = (0..all.len()).map(|at| all[at][..length(at)].to_owned()).collect();
    debug_assert_eq!(short.len(), ids.len(), "an id has a short one");
    short
}

impl Snapshot {
    /// Returns a short id: the shortest beginning of the id that no other checkpoint of the thread shares, and that no
    /// later one will. It has at least four digits; hyphens are left out.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Plan { city: String }
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// thread.update(Plan::update().city("Bern"))?;
    /// let first = thread.at("@")?;
    /// let short = first.short_id()?;
    /// for city in ["Oslo", "Rome"] {
    ///     thread.update(Plan::update().city(city))?;
    /// }
    /// assert_eq!(thread.at(short)?, first);
    /// # Ok(())
    /// # }
    /// ```
    pub fn short_id(&self) -> Result<String, StoreError> {
        let digits = digits(self.id());
        let is_unique = |length: usize| -> Result<bool, StoreError> {
            let found = self.store().backend().checkpoints_by_prefix(&self.point().thread, &digits[..length], 2)?;
            Ok(found.len() < 2)
        };
        let (mut low, mut high) = (settled(self.id(), self.store().now()), DIGITS);
        // Most spans of time have one checkpoint of the thread. Any longer beginning of a unique one is unique, so the
        // shortest is found by halving.
        if is_unique(low)? {
            high = low
        } else {
            low += 1
        }
        while low < high {
            let middle = (low + high) / 2;
            if is_unique(middle)? { high = middle } else { low = middle + 1 }
        }
        debug_assert!((DIGITS_MIN..=DIGITS).contains(&low));
        Ok(digits[..low].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::IdSource;

    #[test]
    fn a_span_of_time_is_over_when_no_id_of_it_can_be_minted() {
        let made = Timestamp::from_micros(1_795_223_817_123_456);
        let id = IdSource::from_seed(1).checkpoint(made, 0, None);
        let after = |us: i64| settled(id, Timestamp::from_micros(made.as_micros() + us));
        let digits: Vec<usize> = [0, 500, 10_000, 1_000_000, 60_000_000, 86_400_000_000].map(after).into();
        assert_eq!(digits, [16, 12, 10, 9, 8, 5]);
        assert_eq!(after(-1), TIME_DIGITS, "the clock stepped back");
    }
}
