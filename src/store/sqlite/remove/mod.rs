//! Removals: deleted threads, replaced values and pruned checkpoints.
//!
//! *Absent:* the guard of the log, which the triggers of the file are.

pub(crate) mod erase;
pub(crate) mod eraser;
pub(crate) mod prune;
