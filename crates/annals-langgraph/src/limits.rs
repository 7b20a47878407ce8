//! Every maximum of the crate.

use std::time::Duration;

/// The time for which writes wait for the put that takes them along.
pub(crate) const WRITES_LINGER: Duration = Duration::from_millis(10);

/// Namespaces of which a state is cached; past it the cache is emptied.
pub(crate) const CACHED_MAX: usize = 256;

/// Checkpoints of a namespace of which the saver knows that it handed them out as the newest.
pub(crate) const HANDED_OUT_MAX: usize = 16;

/// Bytes of the messages that are cached in the form of LangGraph's serializer; past it the cache is emptied.
pub(crate) const MESSAGE_CACHE_BYTES_MAX: usize = 32 << 20;

/// Bytes of the tag of a value.
pub(crate) const TAG_BYTES_MAX: usize = 255;
