//! What is derived from the log and follows it: the table of threads and the search index.

pub(crate) mod search;
pub(crate) mod threads;
