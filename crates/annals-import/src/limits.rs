//! Every maximum of the crate.

/// Lines in which the kind of a file is looked for.
pub(crate) const PROBED_LINES_MAX: usize = 50;

/// Bytes of the id of a message and of a thread.
pub(crate) const ID_BYTES_MAX: usize = 512;

/// Bytes of a record that was not understood; the rest of a longer one is not stored.
#[cfg(feature = "store")]
pub(crate) const RAW_BYTES_MAX: usize = 16 << 20;

/// Checkpoints of one commit.
#[cfg(feature = "store")]
pub(crate) const COMMIT_CHECKPOINTS_MAX: usize = 500;

/// Bytes of messages of one commit, unless a single turn has more.
#[cfg(feature = "store")]
pub(crate) const COMMIT_BYTES_MAX: usize = 8 << 20;

#[cfg(feature = "store")]
const _: () = assert!(ID_BYTES_MAX <= annals::base::limits::ITEM_ID_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(ID_BYTES_MAX <= annals::base::limits::THREAD_ID_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(RAW_BYTES_MAX < annals::base::limits::VALUE_BYTES_MAX);
#[cfg(feature = "store")]
const _: () = assert!(COMMIT_CHECKPOINTS_MAX <= annals::base::limits::BATCH_CHECKPOINTS_MAX);
