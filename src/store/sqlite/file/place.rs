//! A file that was identified, and how it is opened. *Absent:* its connections ([`open`](super::open)).

use super::paths::opening;
use super::system::{FileId, Stamp};
use super::wal_mark::MarkState;
use super::{lock, system};
use crate::store::error::StoreError;
use crate::store::options::Synchronous;
use crate::store::sqlite::fault::{Fault, is_busy};
use crate::store::sqlite::keys::Keys;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that was identified, and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct FilePlace {
    /// Its absolute path without symbolic links.
    pub(crate) path: PathBuf,
    /// The wait for other processes, in milliseconds.
    pub(crate) busy_ms: u64,
    pub(crate) synchronous: Synchronous,
    pub(crate) full_fsync: bool,
    /// The limit of the WAL.
    pub(crate) wal_limit_bytes: u64,
    pub(crate) id: Option<FileId>,
    /// The description of a log that the file lacks.
    pub(crate) missing_wal: Option<String>,
    /// The keys of the file.
    pub(crate) keys: Arc<Keys>,
}

impl FilePlace {
    /// Returns the stamp of the file at the path.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        fs::metadata(&self.path).ok().map(|meta| Stamp::of(&meta))
    }

    /// Returns whether the file at the path is still the one that was opened.
    pub(crate) fn is_in_place(&self) -> bool {
        self.id.is_none() || fs::metadata(&self.path).is_ok_and(|meta| self.has_id(&meta))
    }

    /// Returns whether this is the file that was opened.
    pub(crate) fn has_id(&self, meta: &fs::Metadata) -> bool {
        self.id.is_none() || system::id(meta) == self.id
    }

    /// Returns the state of the mark with which a log of this handle begins.
    pub(crate) fn open_state(&self) -> MarkState {
        match self.synchronous {
            Synchronous::Full => MarkState::Synced,
            Synchronous::Normal => MarkState::Unsynced,
        }
    }

    /// Returns the error of a lock that was not free in time.
    pub(crate) fn busy(&self) -> StoreError {
        StoreError::Busy { waited_ms: self.busy_ms, holder: lock::holder(&self.path) }
    }
}

/// Returns the error of something that failed while opening; of a lock that was not free in time, with its holder.
pub(crate) fn opening_place(place: &FilePlace, fault: Fault) -> StoreError {
    match fault {
        Fault::Sql(error) if is_busy(&error) => place.busy(),
        fault => opening(&place.path, fault),
    }
}
