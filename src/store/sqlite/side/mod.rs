//! The tables beside the log: key-value memory, cache, leases and timers.
//!
//! Their rows are put in place and removed. *Absent:* the log.

pub(crate) mod cache;
pub(crate) mod kv;
pub(crate) mod lease;
pub(crate) mod reads;
pub(crate) mod timer;
