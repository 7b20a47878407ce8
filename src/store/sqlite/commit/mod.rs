//! A commit: the rows of a batch and of an operation.
//!
//! Invariant: a commit erases nothing. *Absent:* the transaction, which the writer begins and ends.

pub(crate) mod batch;
pub(crate) mod caches;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod ids;
pub(crate) mod operation;
pub(crate) mod places;
pub(crate) mod writes;
