//! Readers: connections that only read, taken from a pool, each call in one snapshot.

use super::fault::{Fault, Res};
use super::names::Names;
use super::open::{self, FilePlace, beside};
use super::read::ReadView;
use super::sql;
use crate::base::limits::IDLE_READERS_MAX;
use crate::store::error::StoreError;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::fs;
use std::time::SystemTime;

/// A pool of readers of one file.
#[derive(Debug)]
pub(super) struct ReaderPool {
    place: FilePlace,
    /// True if this process has the file open for writing: a WAL exists.
    beside_writer: bool,
    idle: Mutex<Vec<PooledReader>>,
    names: Names,
}

#[derive(Debug)]
struct PooledReader {
    conn: Connection,
    /// The stamp of the file when it was opened as immutable.
    immutable: Option<Stamp>,
}

/// Size and time of a file without a WAL: they differ after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl ReaderPool {
    /// Makes a pool of readers beside a writer.
    pub(super) fn beside_writer(place: FilePlace) -> Result<Self, StoreError> {
        Self::new(place, true)
    }

    /// Makes a pool of readers of a file that this process does not write, and verifies that it is a store.
    pub(super) fn alone(place: FilePlace) -> Result<Self, StoreError> {
        Self::new(place, false)
    }

    /// The first reader is connected, and knows the schema and the usual statements, before the first question: that
    /// costs a millisecond.
    fn new(place: FilePlace, beside_writer: bool) -> Result<Self, StoreError> {
        let pool = Self { place, beside_writer, idle: Mutex::default(), names: Names::default() };
        let first = || -> Res<()> {
            let reader = pool.connect()?;
            open::verify(&pool.place, &reader.conn)?;
            for statement in sql::READ_OFTEN {
                drop(reader.conn.prepare_cached(statement)?);
            }
            pool.idle.lock().push(reader);
            Ok(())
        };
        first().map_err(|fault| open::opening(&pool.place.path, fault))?;
        Ok(pool)
    }

    /// Calls `read` with a view of the file as it is now.
    pub(super) fn read<T>(&self, read: impl FnOnce(ReadView<'_>) -> Res<T>) -> Result<T, StoreError> {
        let reader = self.take().map_err(Fault::into_read)?;
        let result = self.read_on(&reader.conn, read);
        // A reader whose transaction did not end is closed.
        if reader.conn.is_autocommit() {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_READERS_MAX {
                idle.push(reader);
            }
        }
        result.map_err(Fault::into_read)
    }

    /// Calls `read` in a read transaction of a connection.
    pub(super) fn read_on<T>(&self, conn: &Connection, read: impl FnOnce(ReadView<'_>) -> Res<T>) -> Res<T> {
        debug_assert!(conn.is_autocommit(), "an idle connection is in no transaction");
        conn.prepare_cached(sql::BEGIN_READ)?.execute([])?;
        let result = read(ReadView { conn, names: &self.names });
        if conn.prepare_cached(sql::COMMIT).and_then(|mut commit| commit.execute([])).is_err() {
            _ = conn.execute_batch(sql::ROLLBACK);
        }
        result
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        self.idle.lock().clear();
    }

    fn take(&self) -> Res<PooledReader> {
        let mut idle = self.idle.lock();
        while let Some(reader) = idle.pop() {
            if reader.immutable.is_none() || reader.immutable == self.stamp() {
                return Ok(reader);
            }
        }
        drop(idle);
        self.connect()
    }

    fn connect(&self) -> Res<PooledReader> {
        if self.beside_writer {
            return Ok(PooledReader { conn: open::connect_reader(&self.place)?, immutable: None });
        }
        if let Some(stamp) = self.stamp() {
            return Ok(PooledReader { conn: open::connect_immutable(&self.place)?, immutable: Some(stamp) });
        }
        let shared = open::connect_reader(&self.place).and_then(|conn| {
            open::verify(&self.place, &conn)?;
            Ok(PooledReader { conn, immutable: None })
        });
        match shared {
            Ok(reader) => Ok(reader),
            // In a folder that cannot be written to, an empty WAL holds nothing that the file does not.
            Err(_) if fs::metadata(beside(&self.place.path, "-wal")).is_ok_and(|wal| wal.len() == 0) => {
                Ok(PooledReader { conn: open::connect_immutable(&self.place)?, immutable: None })
            }
            Err(fault) => Err(fault),
        }
    }

    /// Returns the stamp of the file, `None` while a process has it open for writing.
    fn stamp(&self) -> Option<Stamp> {
        if beside(&self.place.path, "-wal").exists() {
            return None;
        }
        let meta = fs::metadata(&self.place.path).ok()?;
        Some(Stamp { bytes: meta.len(), modified: meta.modified().ok() })
    }
}
