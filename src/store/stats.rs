//! The sizes and the health of an open store.

use std::fmt;
use std::time::Duration;

/// Counts of commits and of the transactions that wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitStats {
    /// Batches that were written.
    pub commits: u64,
    /// Transactions that wrote them.
    pub transactions: u64,
    /// Batches in the last transaction.
    pub last_group: u64,
}

/// The sizes and the health of an open store, as [`Store::stats`](super::Store::stats) returns them. Of a store in
/// memory all are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The number of the format of the file.
    pub format: i64,
    /// Bytes of a page of the file.
    pub page_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the write-ahead log beside it. They are reused when the log begins anew.
    pub wal_bytes: u64,
    /// Frames (changed pages) that the log holds.
    pub wal_frames: u64,
    /// Frames of the log that are copied into the file. A reader keeps those after its snapshot from being copied.
    pub wal_copied_frames: u64,
    /// Bytes of the log past which commits fail with [`StoreError::WalLimit`](super::StoreError::WalLimit) while a
    /// reader is in the way.
    pub wal_limit_bytes: u64,
    /// The last error of the thread that copies the log, if its attempts since have not succeeded.
    pub wal_error: Option<String>,
    /// The age of the oldest read in progress of this handle; `None` if nothing reads.
    pub oldest_reader: Option<Duration>,
    /// Deleted threads with bytes that are still in the file or in its write-ahead log.
    pub erasing: u64,
    /// Counts of the commits of this handle.
    pub commits: CommitStats,
}

/// An object of the schema that was made anew, as [`Store::repair_schema`](super::Store::repair_schema) returns it. Its
/// text is `view v_threads`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RebuiltObject {
    /// The kind: `index`, `trigger` or `view`.
    pub kind: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for RebuiltObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The result of a compaction, as [`Store::compact`](super::Store::compact) returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Pages of 4,096 bytes that the store has less. Pages that others added meanwhile are counted against it.
    pub pages: u64,
    /// Pages that are still free: others freed them meanwhile.
    pub free_pages: u64,
    /// Bytes of the file before.
    pub bytes_before: u64,
    /// Bytes of the file afterwards.
    pub bytes_after: u64,
    /// True if the write-ahead log was copied into the file, which gets shorter only then. A reader can be in the way.
    pub is_log_copied: bool,
}

impl StoreStats {
    /// Returns whether the log is past half of its limit and not copied: a warning that commits may soon be refused.
    pub fn is_wal_large(&self) -> bool {
        let frames_bytes = self.wal_frames.saturating_mul(self.page_bytes);
        self.wal_copied_frames < self.wal_frames && frames_bytes > self.wal_limit_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_past_half_of_its_limit_is_large_unless_it_is_copied() {
        let stats = |frames, copied| StoreStats {
            page_bytes: 4_096,
            wal_frames: frames,
            wal_copied_frames: copied,
            wal_limit_bytes: 8 * 4_096,
            ..StoreStats::default()
        };
        assert!(!stats(4, 0).is_wal_large());
        assert!(stats(5, 4).is_wal_large());
        assert!(!stats(500, 500).is_wal_large());
    }
}
