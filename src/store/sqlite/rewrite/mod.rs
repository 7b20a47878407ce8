//! Files that are written anew: made, compacted and recovered.
//!
//! *Absent:* backups, which are copies ([`file`](super::file)).

pub(crate) mod compact;
pub(crate) mod compact_step;
pub(crate) mod opening;
pub(crate) mod recover;
pub(crate) mod replay;
