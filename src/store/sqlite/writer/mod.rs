//! The writer role, its jobs, the transaction of a group, and the copy of the write-ahead log.
//!
//! Invariant: only the leader of a group holds the connection that writes. *Absent:* the rows of a batch.

pub(crate) mod background;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod role;
pub(crate) mod transaction;
pub(crate) mod wal_copier;
