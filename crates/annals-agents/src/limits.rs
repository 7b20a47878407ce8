//! The limits of agents.

/// The depth at which a sample of a schema that contains itself ends.
pub(crate) const SAMPLE_DEPTH_MAX: usize = 16;

/// The number of histories that an agent caches between runs.
pub(crate) const HISTORIES_CACHED_MAX: usize = 16;

/// The number of messages of all histories that an agent caches between runs.
pub(crate) const HISTORY_MESSAGES_CACHED_MAX: usize = 20_000;
