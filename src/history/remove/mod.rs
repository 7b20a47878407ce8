//! Removals: the trash, pruned checkpoints, and the checkpoints of runs.
//!
//! *Absent:* the reclaim of space, which is the backend's.

pub(crate) mod delete_runs;
pub(crate) mod prune;
pub(crate) mod prune_candidates;
pub(crate) mod trash;
