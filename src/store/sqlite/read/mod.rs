//! Reads of the log, each in one snapshot.
//!
//! Invariant: a read needs no writer. *Absent:* the check of a whole file.

pub(crate) mod blobs;
pub(crate) mod find_item;
pub(crate) mod head;
pub(crate) mod item_pages;
pub(crate) mod items;
pub(crate) mod lease;
pub(crate) mod lineage;
pub(crate) mod list_end;
pub(crate) mod list_reference;
pub(crate) mod list_search;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod payloads;
pub(crate) mod pool;
pub(crate) mod record;
pub(crate) mod task_writes;
pub(crate) mod version_pages;
