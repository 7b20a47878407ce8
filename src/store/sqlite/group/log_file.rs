//! The log of the writer: whether it begins with a mark, and whether it and the files beside it are still in place.
//!
//! A log begins with a mark of its own ([`wal_mark`](super::super::wal_mark)), and the file is told of it before the
//! first commit is acknowledged: a file whose log was removed says so at the next open. *Absent:* the comparison at an
//! open ([`wal_link`]).

use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::lock::LockWait;
use crate::store::sqlite::open::{FilePlace, beside};
use crate::store::sqlite::sql;
use crate::store::sqlite::system::{self, FileId};
use crate::store::sqlite::wal_link::{self, LogLink};
use rusqlite::Connection;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The place of the salts in the header of a log.
const SALTS_AT: u64 = 16;

/// The knowledge of the writer about its log.
#[derive(Debug, Default)]
pub(super) struct LogFile {
    /// A descriptor of the log. SQLite locks no byte of this file, so closing it drops no lock.
    file: Option<File>,
    id: Option<FileId>,
    /// The identity of the shared memory.
    shared: Option<FileId>,
    /// The salts of the log that is known to begin with a mark.
    salts: Option<[u8; 8]>,
    /// The bytes of that log at the end of the last commit.
    bytes: u64,
    /// The bytes of the file.
    file_bytes: u64,
    /// The number of the commits of others when the last transaction replaced the mark alone; `None` since a commit.
    ended: Option<i64>,
    /// True if the next transaction may begin the log anew, and holds a mark for that case.
    pub(super) may_begin: bool,
}

/// The state of the log before a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogBegin {
    /// The log begins with a mark.
    Marked,
    /// The log is empty as far as the file system tells.
    Empty,
    /// The log was begun by another program.
    Unmarked,
}

impl LogFile {
    /// Notes the files as they are now, which belong to a store that was verified.
    pub(super) fn note(&mut self, place: &FilePlace) {
        *self = Self { may_begin: true, file_bytes: length(&place.path), ..Self::default() };
        let log = beside(&place.path, "-wal");
        self.file = system::open_to_read(&log).ok();
        self.id = self.file.as_ref().and_then(|file| file.metadata().ok()).and_then(|meta| system::id(&meta));
        self.shared = id_of(&beside(&place.path, "-shm"));
    }

    /// Looks at the log before a transaction, under the write lock.
    pub(super) fn look(&mut self, place: &FilePlace) -> Res<LogBegin> {
        let path = beside(&place.path, "-wal");
        let meta = fs::symlink_metadata(&path).ok();
        let id = meta.as_ref().and_then(system::id);
        if meta.is_none() || id != self.id {
            return Err(replaced(place, "its write-ahead log was removed or replaced"));
        }
        if id_of(&beside(&place.path, "-shm")) != self.shared {
            return Err(replaced(place, "its shared memory (-shm) was removed or replaced"));
        }
        let bytes = meta.map_or(0, |meta| meta.len());
        let salts = self.read_salts().map_err(|error| unread(&path, &error))?;
        let Some(salts) = salts else {
            self.salts = None;
            return Ok(LogBegin::Empty);
        };
        if Some(salts) == self.salts {
            if bytes < self.bytes {
                return Err(replaced(place, "its write-ahead log was cut short"));
            }
            return Ok(LogBegin::Marked);
        }
        if salts == [0; 8] {
            return Err(replaced(place, "its write-ahead log was emptied"));
        }
        // Another process has begun a new log.
        (self.salts, self.bytes) = (None, bytes);
        self.verify_pair(place)?;
        if !wal_link::begins_with_mark(&place.path).map_err(|error| unread(&path, &error))? {
            return Ok(LogBegin::Unmarked);
        }
        self.salts = Some(salts);
        Ok(LogBegin::Marked)
    }

    /// Notes that a transaction with a mark was committed.
    pub(super) fn note_mark(&mut self) {
        self.salts = self.read_salts().ok().flatten();
    }

    /// Notes that the last transaction of the log replaced the mark alone.
    pub(super) fn note_end(&mut self, conn: &Connection) -> Res<()> {
        self.ended = Some(data_version(conn)?);
        Ok(())
    }

    /// Returns whether the log is empty, or ends with a mark after which no connection has committed.
    pub(super) fn is_ended(&self, conn: &Connection) -> Res<bool> {
        let is_empty = self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.len() == 0));
        Ok(is_empty || self.ended.is_some() && self.ended == Some(data_version(conn)?))
    }

    /// Notes how long the log is after a commit.
    pub(super) fn note_commit(&mut self) {
        self.ended = None;
        self.bytes = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
    }

    /// Notes that the log was emptied.
    pub(super) fn note_empty(&mut self) {
        (self.salts, self.bytes) = (None, 0);
    }

    /// Returns why a commit may not be in the file at the path, if so.
    pub(super) fn displaced(&mut self, place: &FilePlace) -> Option<String> {
        let Ok(meta) = fs::metadata(&place.path) else { return Some("it was removed".into()) };
        if !place.has_id(&meta) {
            return Some("it was replaced by another file".into());
        }
        let before = std::mem::replace(&mut self.file_bytes, meta.len());
        if meta.len() >= before {
            return None;
        }
        // A compaction makes the file shorter as well, and another process may be copying it: it ends.
        let mut wait = LockWait::new(Duration::from_millis(place.busy_ms));
        loop {
            let now = length(&place.path);
            let is_other = |fault: Fault| matches!(fault, Fault::Store(StoreError::FileReplaced { .. }));
            self.file_bytes = now;
            if !wal_link::lacks_pages(&place.path, now) && !self.verify_pair(place).is_err_and(is_other) {
                return None;
            }
            if !wait.pause() {
                return Some(format!("it was cut short from {before} to {now} bytes"));
            }
        }
    }

    /// Verifies, before the log is copied, that it still continues the file.
    pub(super) fn verify_pair(&self, place: &FilePlace) -> Res<()> {
        match wal_link::compare(&place.path, false).map_err(|error| unread(&place.path, &error))? {
            LogLink::Sound => Ok(()),
            LogLink::Missing(found) | LogLink::Cut(found) | LogLink::Foreign(found) => Err(replaced(place, &found)),
        }
    }

    fn read_salts(&self) -> io::Result<Option<[u8; 8]>> {
        let Some(file) = &self.file else { return Ok(None) };
        let mut salts = [0; 8];
        match system::read_at(file, &mut salts, SALTS_AT) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(salts)),
        }
    }
}

/// Returns the number that changes with each commit of another connection.
fn data_version(conn: &Connection) -> Res<i64> {
    Ok(conn.prepare_cached(sql::DATA_VERSION)?.query_row([], |row| row.get(0))?)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn id_of(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().and_then(|meta| system::id(&meta))
}

/// Returns the error of a file that is not the one that was opened.
pub(super) fn replaced(place: &FilePlace, found: &str) -> Fault {
    StoreError::FileReplaced { path: place.path.clone(), found: found.to_owned() }.into()
}

fn unread(path: &Path, error: &io::Error) -> Fault {
    StoreError::Read { reason: format!("{}: {error}", path.display()), source: None }.into()
}
