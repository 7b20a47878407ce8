//! Files that are written anew: compaction, migration and recovery; and the opening that migrates.
//!
//! *Absent:* backups, which are copies ([`file`](super::file)).

pub(crate) mod compact;
pub(crate) mod compact_step;
pub(crate) mod migrate;
pub(crate) mod opening;
pub(crate) mod recover;
pub(crate) mod replay;
