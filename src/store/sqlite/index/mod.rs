//! Tables that are derived from the log and follow it: the table of threads and the search index.

pub(crate) mod search;
pub(crate) mod threads;
