//! The report of a check: findings, each with the invariant of the format that does not hold.
//!
//! *Absent:* the check itself, which each backend does for its own rows.

use super::error::StoreError;
use crate::base::{CheckpointId, variants};
use std::fmt;
use std::str::FromStr;

variants! {
    /// An invariant of the file format, by its number in `docs/format.md`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Invariant {
        /// I1: the file is a sound SQLite database.
        Pages => "The file is a sound SQLite database.",
        /// I2: the schema is that of the format.
        Schema => "The tables, indexes, triggers and views of the store are those of its format.",
        /// I3: a blob has the hash of its content.
        Blobs => "A blob has the hash of its content.",
        /// I4: a payload matches its check.
        Payloads => "A payload matches its check.",
        /// I5: a branch leaves an older one.
        Branches => "A branch leaves an older branch, and its depth and its fork follow from that one.",
        /// I6: ids of a namespace ascend.
        Ids => "The ids of the checkpoints of a namespace ascend with `seq`.",
        /// I7: a checkpoint follows its parent.
        Parents => "A checkpoint exists, and follows its parent in branch and ordinal.",
        /// I8: the rows of a checkpoint match the format.
        Rows => "A row of `version` or `item` belongs to a checkpoint and matches the format, and what it refers to exists.",
        /// I9: an index snapshot names the newest rows.
        IndexSnapshots => "An index snapshot names the newest row of each key of its lineage.",
        /// I10: the end of a list follows from its items.
        ListEnds => "The end of a list follows from its items.",
        /// I11: a list references an older one of its thread.
        References => "A list references a list of an older checkpoint of the same thread.",
        /// I12: a checkpoint has the checksum of its content.
        Checkpoints => "A checkpoint has the checksum of its content.",
        /// I13: a checksum covers every stored write.
        Writes => "The checksum of its run, or of the checkpoint that consumed it, covers each stored write.",
        /// I14: a thread is as old as its first checkpoint.
        ThreadTimes => "A thread has the timestamp of its first checkpoint.",
        /// I15: a timer matches its check, and a task that sleeps has one.
        Timers => "A timer matches its check, and a task that sleeps at the head of a thread has one.",
        /// I16: entries of the key-value memory and of the cache match their checks.
        Entries => "An entry of the key-value memory or of the cache, its vectors and its lifetime match their checks.",
        /// I17: every row belongs to another one.
        Ownership => "Each row belongs to a row that exists, or to a deleted thread that is not erased yet.",
        /// I18: the write-ahead log is whole.
        Log => "The frames of more than one transaction never follow a broken frame of the write-ahead log.",
        /// I19: the write-ahead log can be copied into the file.
        Copying => "The write-ahead log can be copied into the file.",
        /// I20: a row matches its check.
        RowChecks => "A row of the log matches its check.",
        /// I21: the keys are those of the file.
        Keys => "The rows of `store_key` hold the keys of the file.",
        /// I22: an operation matches its check, and names existing rows.
        Operations => "An operation matches its check, and names existing rows.",
        /// I23: the search index holds the texts of the log.
        SearchIndex => "The search index gives each entry below `search_state.next` for each of its grams.",
        /// I24: the table of threads follows from the log.
        Threads => "The row of each thread that the mark of `thread_state` covers follows from the log, and its facets from the row.",
        /// I25: a lease matches its check.
        Leases => "A lease matches its check.",
        /// I26: the file has one mark of its log.
        LogMark => "The mark of the log is one row, which matches its check.",
    }
    /// Returns the sentence of `docs/format.md`.
    pub fn text -> &'static str
}

impl Invariant {
    /// Returns the number, from 1 on.
    pub(crate) fn number(self) -> u32 {
        self as u32 + 1
    }
}

/// Shows the number: `I7`.
impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I{}", self.number())
    }
}

/// A finding of a check: a place at which an invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The invariant.
    pub invariant: Invariant,
    /// The place: a row or a file.
    pub place: String,
    /// The reason that it does not hold.
    pub reason: String,
}

impl Finding {
    /// Makes a finding. A backend reports at most 100.
    pub fn new(invariant: Invariant, place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { invariant, place: place.into(), reason: reason.into() }
    }
}

/// Shows number, place and reason: `I12 checkpoint 3: its checksum does not match`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.invariant, self.place, self.reason)
    }
}

/// A point of the log up to which a check verified it. As a text it has six numbers: `1-50-2-80-9-3f1c...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckedUpTo {
    /// The greatest ids.
    pub(super) checkpoint: i64,
    pub(super) branch: i64,
    pub(super) payload: i64,
    pub(super) blob: i64,
    /// The beginning of the checksum of that checkpoint, 0 without one.
    pub(super) checksum: u64,
}

impl fmt::Display for CheckedUpTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checkpoint, branch, payload, blob, checksum } = self;
        write!(f, "1-{checkpoint}-{branch}-{payload}-{blob}-{checksum:016x}")
    }
}

/// Reads the text of a point.
impl FromStr for CheckedUpTo {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let read = || {
            let mut parts = text.split('-');
            let mut id = || parts.next()?.parse::<i64>().ok().filter(|id| (0..i64::MAX).contains(id));
            let (version, checkpoint, branch, payload, blob) = (id()?, id()?, id()?, id()?, id()?);
            let checksum = parts.next().filter(|digits| digits.len() == 16)?;
            let checksum = u64::from_str_radix(checksum, 16).ok()?;
            let ends = parts.next().is_none() && version == 1;
            ends.then_some(Self { checkpoint, branch, payload, blob, checksum })
        };
        read().ok_or_else(|| StoreError::Invalid {
            field: "point of a check",
            reason: format!("{:?} is not the text of a point", text.chars().take(64).collect::<String>()),
        })
    }
}

/// The frames (changed pages) of a write-ahead log after a broken one, which are not read any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogTail {
    /// The number of the last sound frame, 0 if the first one or the header of the log is broken: the log ends there.
    pub end: u64,
    /// The number of the last frame of this log that is stored.
    pub frames: u64,
    /// Transactions that end after the last sound frame, at least 1. A commit is synced before the next one is written,
    /// so more than one are commits that had returned, unless the store was written with
    /// [`Synchronous::Normal`](super::Synchronous::Normal).
    pub commits: u64,
    /// Of each namespace the newest checkpoint in the lost frames that the store does not hold, as far as their pages
    /// are readable, at most 100.
    pub lost_heads: Vec<CheckpointId>,
}

/// Shows `the log ends at frame 3 of 9, 2 commits follow`.
impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, frames, commits, .. } = self;
        let follow = if *commits == 1 { "commit follows" } else { "commits follow" };
        write!(f, "the log ends at frame {end} of {frames}, {commits} {follow}")
    }
}

/// The report of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Threads that were checked.
    pub threads: u64,
    /// Checkpoints whose checksum was verified.
    pub checkpoints: u64,
    /// Checkpoints that were pruned: their rows were verified, and their content is not stored any more.
    pub pruned: u64,
    /// Values whose checksum was verified.
    pub values: u64,
    /// Entries of the key-value memory and of the cache whose checksum was verified.
    pub entries: u64,
    /// Deleted threads with bytes that are still in the file or in its write-ahead log.
    pub erasing: u64,
    /// The lost end of the write-ahead log; `None` if the log is whole, or if it was copied into the file and the next
    /// one was being begun. A tail of one transaction is not a problem: it
    /// may be a commit that had not returned when the power failed.
    pub log_tail: Option<LogTail>,
    /// The point at which the check ended, for [`Store::check_since`](super::Store::check_since). `None` after a
    /// problem, and for a store in memory.
    pub up_to: Option<CheckedUpTo>,
    /// Problems: the first 100 places at which an invariant does not hold.
    pub problems: Vec<Finding>,
}

impl CheckReport {
    /// Adds a finding, unless there are 100 already.
    pub fn note(&mut self, finding: Finding) {
        if self.problems.len() < crate::limits::PROBLEMS_MAX {
            self.problems.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_read_as_it_is_written() {
        let point = CheckedUpTo { checkpoint: 50, branch: 2, payload: 80, blob: 0, checksum: 0x3f };
        assert_eq!(point.to_string(), "1-50-2-80-0-000000000000003f");
        assert_eq!(point.to_string().parse::<CheckedUpTo>().unwrap(), point);
        let long = format!("1-{}-2-80-0-000000000000003f", i64::MAX);
        for bad in ["", "1", "2-50-2-80-0-000000000000003f", "1-50-2-80-0-3f", "1-50-2-80-0-000000000000003f-", &long] {
            assert!(matches!(bad.parse::<CheckedUpTo>(), Err(StoreError::Invalid { .. })), "{bad}");
        }
        assert!("1--5-2-80-0-000000000000003f".parse::<CheckedUpTo>().is_err());
    }

    #[test]
    fn the_document_lists_the_invariants() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md")).unwrap();
        let section = text.split("\n## ").find(|section| section.starts_with("Invariants\n")).unwrap();
        let listed: Vec<&str> = section.lines().filter(|line| line.starts_with("- **I")).collect();
        let known = Invariant::ALL.map(|invariant| format!("- **{invariant}** {}", invariant.text()));
        assert_eq!(listed, known);
        assert!((1..).zip(Invariant::ALL).all(|(number, invariant)| invariant.number() == number));
    }
}
