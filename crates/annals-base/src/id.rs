//! Ids: their bytes, their text, and the source that mints them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use super::internal::hash::ChecksumBuilder;
use super::limits::{ID_TICKS_MAX, THREAD_ID_BYTES_MAX};
use super::time::Timestamp;

/// An id that is not valid, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {reason}")]
#[non_exhaustive]
pub struct IdError {
    /// Which kind of id: `thread id`, `checkpoint id`, ...
    pub what: &'static str,
    /// The refused text, cut to 64 characters.
    pub text: String,
    /// The reason for the refusal.
    pub reason: String,
}

impl IdError {
    /// Creates the error. Of `text` the first 64 characters are shown.
    pub fn new(what: &'static str, text: &str, reason: impl Into<String>) -> Self {
        Self { what, text: text.chars().take(64).collect(), reason: reason.into() }
    }
}

/// The id of a thread: any text of 1 to 1,024 bytes without a NUL, chosen by the caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// Checks and keeps a text as a thread id.
    ///
    /// # Errors
    /// [`IdError`] if it is empty, longer than [`THREAD_ID_BYTES_MAX`] bytes, or holds a NUL.
    pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
        let text = text.as_ref();
        let reason = if text.is_empty() {
            "it is empty".to_string()
        } else if text.len() > THREAD_ID_BYTES_MAX {
            format!("it has {} bytes, the limit is {THREAD_ID_BYTES_MAX}", text.len())
        } else if text.contains('\0') {
            "it holds a NUL character".to_string()
        } else {
            return Ok(Self(text.into()));
        };
        Err(IdError::new("thread id", text, reason))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ThreadId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Makes the id from its 16 bytes, most significant first.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Returns the 16 bytes, most significant first. Their order is the order of the text.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&Uuid::from_bytes(self.0).hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::try_parse(text)
                    .map(|uuid| Self(uuid.into_bytes()))
                    .map_err(|e| IdError::new($what, text, e.to_string()))
            }
        }
    };
}

uuid_id! {
    /// The id of a checkpoint: a UUIDv6, so that the greatest id of a namespace, as text, is its newest checkpoint.
    ///
    /// The node part is random and the clock sequence holds the step, as LangGraph has it.
    CheckpointId, "checkpoint id"
}
uuid_id! {
    /// The id of a task: derived from checkpoint, namespace, step and node, so that a resumed step finds its writes.
    TaskId, "task id"
}
uuid_id! {
    /// The id of a run: one call of `invoke` or `stream`.
    RunId, "run id"
}

impl RunId {
    /// Returns the id of the run on a thread that has an idempotency key: a UUID of version 8, made of both.
    pub fn from_key(thread: &ThreadId, key: &str) -> Self {
        let mut bytes = ChecksumBuilder::new().bytes(thread.as_str().as_bytes()).bytes(key.as_bytes()).finish();
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = Self(bytes);
        debug_assert!(id.is_of_key(), "the version tells that it was made of a key");
        id
    }

    /// Returns whether it was made of an idempotency key.
    pub const fn is_of_key(&self) -> bool {
        self.0[6] >> 4 == 8
    }
}

/// The id under which the writes of no task are stored (a command given as input).
pub const NULL_TASK: TaskId = TaskId::from_bytes([0; 16]);

impl CheckpointId {
    /// Returns the 60-bit timestamp of the id: 100 ns since 1582-10-15.
    pub fn ticks(&self) -> u64 {
        let high = u64::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5], 0, 0]) >> 16;
        (high << 12) | (u64::from(self.0[6] & 0x0f) << 8) | u64::from(self.0[7])
    }

    /// Returns the least id that can be minted at a timestamp: a bound in searches by time.
    pub fn first_at(at: Timestamp) -> Self {
        Self::from_parts(ticks_at(at), 0, 0)
    }

    /// Returns the id with the same step and the same random part whose time directly follows that of another id.
    ///
    /// # Example
    /// ```
    /// use annals_base::{IdSource, Timestamp};
    ///
    /// let mut ids = IdSource::new();
    /// let early = ids.checkpoint(Timestamp::from_micros(0), 3, None);
    /// let late = ids.checkpoint(Timestamp::from_micros(1), 3, None);
    /// assert!(early < late && early.after(&late) > late);
    /// ```
    pub fn after(&self, other: &Self) -> Self {
        let mut bytes = Self::from_parts(other.ticks().saturating_add(1).min(ID_TICKS_MAX), 0, 0).0;
        bytes[8..].copy_from_slice(&self.0[8..]);
        Self(bytes)
    }

    fn from_parts(ticks: u64, step: i64, node: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&(ticks >> 12 << 16).to_be_bytes()[..6]);
        bytes[6..8].copy_from_slice(&(0x6000 | (ticks & 0x0fff) as u16).to_be_bytes());
        bytes[8..10].copy_from_slice(&(0x8000 | (step & 0x3fff) as u16).to_be_bytes());
        bytes[10..].copy_from_slice(&node.to_be_bytes()[2..]);
        let id = Self(bytes);
        debug_assert_eq!(id.ticks(), ticks & ID_TICKS_MAX, "the time is read as it was written");
        id
    }
}

/// Mints ids that only go up.
///
/// A checkpoint id is greater than every id minted before and than the `after` that the caller passes (the head it
/// builds on), also when the clock steps back or another process wrote in between.
#[derive(Debug)]
pub struct IdSource {
    ticks: u64,
    rng: u64,
}

/// 100 ns intervals between 1582-10-15 and 1970-01-01.
const UUID_EPOCH_TICKS: u64 = 0x01b2_1dd2_1381_4000;

/// Returns a timestamp as 100 ns since 1582-10-15; saturates.
fn ticks_at(at: Timestamp) -> u64 {
    UUID_EPOCH_TICKS.saturating_add_signed(at.as_micros().saturating_mul(10)).min(ID_TICKS_MAX)
}

impl IdSource {
    /// Starts a source whose random parts come from `seed`. Equal seeds and times give equal ids.
    pub fn from_seed(seed: u64) -> Self {
        Self { ticks: 0, rng: seed }
    }

    /// Starts a source with a seed from the operating system.
    pub fn new() -> Self {
        Self::from_seed(Uuid::new_v4().as_u64_pair().0)
    }

    /// Returns the next 64 random bits (SplitMix64).
    pub fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Mints a checkpoint id for `step`, greater than `after` and than all earlier ones of this source.
    pub fn checkpoint(&mut self, now: Timestamp, step: i64, after: Option<&CheckpointId>) -> CheckpointId {
        let wall = ticks_at(now);
        let floor = self.ticks.max(after.map_or(0, CheckpointId::ticks)) + 1;
        self.ticks = wall.max(floor);
        CheckpointId::from_parts(self.ticks, step, self.random())
    }

    /// Mints a run id (a random UUIDv4).
    pub fn run(&mut self) -> RunId {
        RunId::from_bytes(self.uuid_v4().into_bytes())
    }

    /// Mints a random UUIDv4, as for a message without an id.
    pub fn uuid_v4(&mut self) -> Uuid {
        let (a, b) = (self.random(), self.random());
        uuid::Builder::from_random_bytes(((u128::from(a) << 64) | u128::from(b)).to_be_bytes()).into_uuid()
    }
}

impl Default for IdSource {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_ids_go_up_when_the_clock_steps_back() {
        let mut ids = IdSource::from_seed(1);
        let first = ids.checkpoint(Timestamp::from_micros(2_000_000), -1, None);
        let second = ids.checkpoint(Timestamp::from_micros(1_000_000), 0, None);
        assert!(second > first && second.to_string() > first.to_string());
        let third = IdSource::from_seed(2).checkpoint(Timestamp::from_micros(0), 1, Some(&second));
        assert!(third > second, "an id follows the head it builds on, whoever minted that");
        assert_eq!(&first.to_string()[14..15], "6", "version 6");
        assert_eq!(&first.to_string()[19..23], "bfff", "step -1 as clock sequence");
        assert_eq!(first, first.to_string().parse().unwrap());
        assert_eq!(second.ticks(), first.ticks() + 1);
    }

    #[test]
    fn the_first_id_of_a_timestamp_is_a_bound() {
        let at = Timestamp::from_micros(1_795_223_817_000_000);
        let id = IdSource::from_seed(1).checkpoint(at, -1, None);
        let next = Timestamp::from_micros(at.as_micros() + 1);
        assert!(CheckpointId::first_at(at) <= id && id < CheckpointId::first_at(next));
        assert!(CheckpointId::first_at(Timestamp::from_micros(i64::MIN)) < id);
        assert!(CheckpointId::first_at(Timestamp::from_micros(i64::MAX)) > id);
    }

    #[test]
    fn the_id_of_a_run_with_a_key_follows_from_thread_and_key() {
        let id = |thread: &str, key: &str| RunId::from_key(&ThreadId::new(thread).unwrap(), key);
        assert_eq!(id("a", "bc"), id("a", "bc"));
        assert!(id("a", "bc") != id("ab", "c") && id("a", "b") != id("a", "c"));
        assert!(id("a", "b").is_of_key() && !IdSource::from_seed(1).run().is_of_key());
        assert_eq!(&id("a", "b").to_string()[14..15], "8", "version 8");
    }

    #[test]
    fn a_bad_id_is_refused_with_its_reason() {
        assert!(ThreadId::new("").unwrap_err().to_string().contains("empty"));
        assert!(ThreadId::new("a\0b").is_err());
        assert!(ThreadId::new("x".repeat(1_025)).unwrap_err().reason.contains("1024"));
        assert!("not-a-uuid".parse::<CheckpointId>().is_err());
    }
}
