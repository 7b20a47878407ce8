//! Operations on a thread: branches, moved heads and undo, and their log.
//!
//! *Absent:* facts of a thread ([`facts`](super::thread::facts)).

pub(crate) mod branches;
pub(crate) mod operation;
pub(crate) mod store_operations;
pub(crate) mod undo;
