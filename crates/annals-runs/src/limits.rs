//! Every maximum of the crate.

/// Threads below one that are listed.
pub(crate) const LINKS_MAX: usize = 1_000;
