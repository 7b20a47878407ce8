//! The limits of agents.

/// The depth at which a sample of a schema that contains itself ends.
pub(crate) const SAMPLE_DEPTH_MAX: usize = 16;
