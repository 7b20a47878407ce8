//! The file and its neighbours: identified, opened, locked, compared with its write-ahead log, backed up and restored.
//!
//! Invariant: SQLite touches a file only after it was identified here. *Absent:* rows of the log.

pub(crate) mod backup;
pub(crate) mod format;
pub(crate) mod guard;
pub(crate) mod inspect;
pub(crate) mod lock;
pub(crate) mod lock_queue;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod place;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod schema;
pub(crate) mod system;
pub(crate) mod table_group;
#[cfg(target_os = "linux")]
pub(crate) mod wal_events;
pub(crate) mod wal_heads;
pub(crate) mod wal_link;
pub(crate) mod wal_mark;
pub(crate) mod wal_tail;
