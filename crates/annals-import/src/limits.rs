//! Every maximum of the crate.

/// Lines in which the kind of a file is looked for.
pub(crate) const PROBED_LINES_MAX: usize = 50;

/// Bytes in which the kind of a file is looked for.
pub(crate) const PROBED_BYTES_MAX: usize = RECORD_BYTES_MAX;

/// Bytes of a text that is not JSON in which the kind of a file is looked for.
pub(crate) const PROBED_TEXT_BYTES_MAX: u64 = 4_096;

/// Bytes of a line, of a document, of an item of an array, and of a value of a database. A value of the store is not
/// longer.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Capacity of the buffer that is retained from one line to the next.
pub(crate) const LINE_BUFFER_BYTES: usize = 1 << 20;

/// Values, members and items of a record of JSON.
pub(crate) const RECORD_NODES_MAX: usize = 2_000_000;

/// Bytes that a compressed file or document may yield for each byte of it, beyond the first
/// [`DECOMPRESSED_BYTES_FREE`].
pub(crate) const DECOMPRESSED_RATIO_MAX: u64 = 1_000;

/// Bytes that a compressed file may yield whatever its size.
pub(crate) const DECOMPRESSED_BYTES_FREE: u64 = 64 << 20;

/// Bytes of the window of a compressed frame, which are in memory.
pub(crate) const WINDOW_BYTES_MAX: u64 = 128 << 20;

/// Instructions that SQLite may execute for one database.
pub(crate) const DATABASE_STEPS_MAX: u64 = 4_000_000_000;

/// Instructions of SQLite between two comparisons with [`DATABASE_STEPS_MAX`].
pub(crate) const DATABASE_STEPS_BETWEEN: i32 = 100_000;

/// Bytes that the queries of a database may yield for each byte of the file, beyond the first [`DATABASE_BYTES_FREE`].
/// A value without bytes of its own counts 8.
pub(crate) const DATABASE_RATIO_MAX: u64 = 32;

/// Bytes that the queries of a database may yield whatever its size.
pub(crate) const DATABASE_BYTES_FREE: u64 = 64 << 20;

/// Milliseconds for which a query waits for a lock of the program that writes.
pub(crate) const DATABASE_WAIT_MS: u64 = 5_000;

/// Copies of a database that is written while it is copied, before it is given up.
pub(crate) const DATABASE_COPIES_MAX: usize = 5;

/// Lines of a chat among which one may be no message.
pub(crate) const OTHER_LINES_SHARE: usize = 10;

/// Bytes of the id of a message and of a thread.
pub(crate) const ID_BYTES_MAX: usize = 512;

/// Bytes of a record that was not understood; the rest of a longer one is not stored.
#[cfg(feature = "store")]
pub(crate) const RAW_BYTES_MAX: usize = 16 << 20;

/// Records of one import that were not understood and are stored; all of them are counted.
#[cfg(feature = "store")]
pub(crate) const UNKNOWN_RECORDS_MAX: usize = 100_000;

/// Levels of values inside one another in a message that is stored without a trial.
#[cfg(feature = "store")]
pub(crate) const PLAIN_DEPTH_MAX: usize = 64;

/// Values and bytes of texts in a message that is stored without a trial.
#[cfg(feature = "store")]
pub(crate) const PLAIN_SIZE_MAX: usize = 1 << 20;

/// Checkpoints of one commit.
#[cfg(feature = "store")]
pub(crate) const COMMIT_CHECKPOINTS_MAX: usize = 500;

/// Threads of one commit.
#[cfg(feature = "store")]
pub(crate) const COMMIT_THREADS_MAX: usize = annals::base::limits::GROUP_BATCHES_MAX;

/// Records that were not understood of one commit.
#[cfg(feature = "store")]
pub(crate) const COMMIT_RECORDS_MAX: usize = 256;

/// Links of threads of one commit.
#[cfg(feature = "store")]
pub(crate) const COMMIT_LINKS_MAX: usize = 256;

/// Bytes of messages of one commit, unless a single turn has more.
#[cfg(feature = "store")]
pub(crate) const COMMIT_BYTES_MAX: usize = 8 << 20;

const _: () = assert!(LINE_BUFFER_BYTES < RECORD_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(ID_BYTES_MAX <= annals::base::limits::ITEM_ID_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(ID_BYTES_MAX <= annals::base::limits::THREAD_ID_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(RAW_BYTES_MAX < annals::base::limits::VALUE_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(COMMIT_CHECKPOINTS_MAX <= annals::base::limits::BATCH_CHECKPOINTS_MAX);
#[cfg(feature = "store")]
const _: () = assert!(COMMIT_RECORDS_MAX <= annals::base::limits::KV_CHANGES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(3 * COMMIT_LINKS_MAX <= annals::base::limits::KV_CHANGES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(RECORD_BYTES_MAX <= annals::base::limits::VALUE_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(PLAIN_DEPTH_MAX + 8 < annals::base::limits::VALUE_DEPTH_MAX);
#[cfg(feature = "store")]
const _: () = assert!(PLAIN_SIZE_MAX < annals::base::limits::VALUE_NODES_MAX);
