//! A commit: the rows of a batch and of an operation.
//!
//! Invariant: a commit erases nothing but the value of a special write that it replaces. *Absent:* the transaction,
//! which the writer begins and ends.

pub(crate) mod batch;
pub(crate) mod caches;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod heads;
pub(crate) mod ids;
pub(crate) mod leases;
pub(crate) mod operation;
pub(crate) mod payloads;
pub(crate) mod places;
pub(crate) mod references;
pub(crate) mod replaced;
pub(crate) mod writes;
