//! Commits: batches and operations are planned on what is known of their threads, and written in groups.

mod checkpoint;
pub(crate) mod known;
pub(crate) mod plan;
mod planned;
pub(crate) mod sql;
pub(crate) mod writer;
