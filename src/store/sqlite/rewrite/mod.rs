//! Files that are written anew: compaction, migration and recovery.
//!
//! *Absent:* backups, which are copies ([`file`](super::file)).

pub(crate) mod compact;
pub(crate) mod migrate;
pub(crate) mod recover;
pub(crate) mod replay;
