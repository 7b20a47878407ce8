//! Reads of the log. *Absent:* the statements of commits.

pub(crate) mod counts;
pub(crate) mod points;
pub(crate) mod records;
pub(crate) mod sql;
pub(crate) mod state;
pub(crate) mod threads;
