//! The limits of this backend.

use std::time::Duration;

/// Connections that reads share.
pub(crate) const READ_CONNECTIONS: usize = 2;
/// Connections that commits share: the server writes one group while it syncs another one.
pub(crate) const WRITE_CONNECTIONS: usize = 2;
/// Calls on a connection after which the server plans its statements anew for the first time: a power of two.
pub(crate) const PLANS_KEPT_MIN: u64 = 16;
/// Attempts of a read or a commit that fails for a reason that passes.
pub(crate) const ATTEMPTS_MAX: u32 = 8;
/// The pause before the second attempt; each further one is twice as long.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(10);
/// Plans of a batch, each on what faster writers left.
pub(crate) const PLANS_MAX: u32 = 64;
/// Batches of one transaction.
pub(crate) const GROUP_MAX: usize = 64;
/// Batches that are written in one transaction although another connection is free.
pub(crate) const GROUP_SHARE_MIN: usize = 16;
/// Threads of which the writer caches what it compares.
pub(crate) const KNOWN_THREADS_MAX: usize = 16_384;
/// Bytes of stored writes of all heads that are cached.
pub(crate) const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Bytes of stored writes of a head that are cached.
pub(crate) const KNOWN_WRITES_BYTES_MAX: usize = 1 << 20;
/// A branch stores an index snapshot every so many ordinals.
pub(crate) const SNAPSHOT_INTERVAL: i64 = 64;
/// Rows of a lineage that a walk over its versions reads at once.
pub(crate) const VERSIONS_PAGE_ROWS: i64 = 256;
/// Threads of a listing that are read at once.
pub(crate) const LISTING_PAGE_ROWS: i64 = 256;
/// Entries of the key-value memory that a walk reads at once.
pub(crate) const KV_PAGE_ROWS: i64 = 512;
/// The shortest pause between two notifications of other processes.
pub(crate) const NOTIFY_INTERVAL: Duration = Duration::from_millis(10);
/// The pause before a listener connects again.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two looks of a follower at the log, where no notification comes.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Checkpoints that a search reads at once.
pub(crate) const SEARCH_PAGE_ROWS: i64 = 1_024;
/// Checkpoints that are indexed at once.
pub(crate) const INDEX_PAGE_ROWS: i64 = 512;
/// Checkpoints that a search compares without the index; more are indexed first.
pub(crate) const INDEX_BEHIND_MAX: i64 = 256;
/// Pages that one search indexes.
pub(crate) const INDEX_PAGES_MAX: u32 = 8;
/// Pauses of an indexing for commits that have not ended, each twice as long.
pub(crate) const INDEX_WAITS_MAX: u32 = 9;
/// How far before its position a follower begins on a server on which a dump was restored, in microseconds: longer than
/// a commit takes.
pub(crate) const RESTORE_OVERLAP_MICROS: i64 = 60_000_000;
/// Partitions of a table.
pub(crate) const PARTITIONS_MAX: u32 = 1_024;
