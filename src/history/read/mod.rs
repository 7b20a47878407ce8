//! Reads of one state: its values, messages and texts, decoded on demand.
//!
//! *Absent:* the comparison of two states ([`compare`](super::compare)).

pub(crate) mod carried;
pub(crate) mod damaged;
pub(crate) mod entries;
pub(crate) mod folded;
pub(crate) mod messages;
pub(crate) mod oldest_first;
pub(crate) mod points;
pub(crate) mod search;
pub(crate) mod snapshot;
pub(crate) mod usage;
