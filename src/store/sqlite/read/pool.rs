//! Readers: connections that only read, taken from a pool, each call in one snapshot.

use super::names::Names;
use crate::base::debug_fields;
use crate::base::internal::Stopwatch;
use crate::limits::{IDLE_READERS_MAX, STAMP_SETTLE};
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res, is_busy, lacks_room_for_locks, refuses_locks};
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::schema::data_version;
use crate::store::sqlite::file::system::Stamp;
#[cfg(target_os = "linux")]
use crate::store::sqlite::file::wal_events::WalEvents;
use crate::store::sqlite::file::{open, place};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use crate::store::watch::{LogProbe, LogSignal, LogWatch};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A pool of readers of one file.
#[derive(Debug)]
pub(crate) struct ReaderPool {
    place: FilePlace,
    /// True if this process has the file open for writing: a WAL exists.
    beside_writer: bool,
    idle: Mutex<Vec<PooledReader>>,
    reads: Mutex<Reads>,
    names: Names,
}

/// The reads in progress, each with a number.
#[derive(Debug, Default)]
struct Reads {
    begun: u64,
    open: Vec<(u64, Stopwatch)>,
}

/// A read in progress; it ends when this is dropped.
struct OpenRead<'a> {
    reads: &'a Mutex<Reads>,
    number: u64,
}

impl Drop for OpenRead<'_> {
    fn drop(&mut self) {
        self.reads.lock().open.retain(|(number, _)| *number != self.number);
    }
}

#[derive(Debug)]
struct PooledReader {
    conn: Connection,
    /// The stamp of the file when it was opened without locks.
    unlocked: Option<Stamp>,
    /// True if it keeps every other connection out: it is closed after its read.
    is_alone: bool,
}

impl PooledReader {
    fn new(conn: Connection) -> Self {
        Self { conn, unlocked: None, is_alone: false }
    }
}

impl ReaderPool {
    /// Makes a pool of readers beside a writer, which has verified the file.
    pub(crate) fn beside_writer(place: FilePlace) -> Result<Self, StoreError> {
        Self::new(place, true)
    }

    /// Makes a pool of readers of a file that this process does not write, and verifies that it is a store.
    pub(crate) fn alone(place: FilePlace) -> Result<Self, StoreError> {
        Self::new(place, false)
    }

    /// The first reader is connected, and knows the schema and the usual statements, before the first question: that
    /// costs a millisecond.
    fn new(place: FilePlace, beside_writer: bool) -> Result<Self, StoreError> {
        let pool =
            Self { place, beside_writer, idle: Mutex::default(), reads: Mutex::default(), names: Names::of_readers() };
        let first = || -> Res<()> {
            let reader = pool.connect()?;
            for statement in sql::READ_OFTEN {
                drop(reader.conn.prepare_cached(statement)?);
            }
            match reader.is_alone {
                true => pool.close_reader(reader),
                false => pool.idle.lock().push(reader),
            }
            Ok(())
        };
        first().map_err(|fault| place::opening_place(&pool.place, fault))?;
        Ok(pool)
    }

    /// Calls `read` with a view of the file as it is now.
    pub(crate) fn read<T>(&self, read: impl FnOnce(ReadView<'_>) -> Res<T>) -> Result<T, StoreError> {
        let reader = self.take().map_err(|fault| self.failed(fault))?;
        let _open = self.begin_read();
        let result = self.read_on(&reader.conn, read);
        // Without locks, a writer elsewhere may have changed pages meanwhile: the result, or an error, means nothing.
        if reader.unlocked.is_some() && reader.unlocked != self.stamp() {
            return Err(changed());
        }
        // A reader whose transaction did not end is closed.
        if reader.conn.is_autocommit() && !reader.is_alone {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_READERS_MAX {
                idle.push(reader);
                return result.map_err(|fault| self.failed(fault));
            }
        }
        self.close_reader(reader);
        result.map_err(|fault| self.failed(fault))
    }

    /// Returns the error of a read.
    fn failed(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Sql(error) if is_busy(&error) => self.place.busy(),
            fault => fault.into_read(),
        }
    }

    fn begin_read(&self) -> OpenRead<'_> {
        let mut reads = self.reads.lock();
        reads.begun += 1;
        let number = reads.begun;
        reads.open.push((number, Stopwatch::start()));
        OpenRead { reads: &self.reads, number }
    }

    /// Returns the age of the oldest read in progress.
    pub(crate) fn oldest_read(&self) -> Option<Duration> {
        self.reads.lock().open.iter().map(|(_, began)| began.elapsed()).max()
    }

    /// Returns the place of the file.
    pub(crate) fn place(&self) -> &FilePlace {
        &self.place
    }

    fn close_reader(&self, reader: PooledReader) {
        if !self.beside_writer && reader.unlocked.is_none() {
            open::close_lone_reader(&self.place, reader.conn);
        }
    }

    /// Calls `read` in a read transaction of a connection.
    pub(crate) fn read_on<T>(&self, conn: &Connection, read: impl FnOnce(ReadView<'_>) -> Res<T>) -> Res<T> {
        debug_assert!(conn.is_autocommit(), "an idle connection is in no transaction");
        conn.run(sql::BEGIN_READ, [])?;
        let result = read(ReadView { conn, names: &self.names, keys: &self.place.keys });
        if conn.prepare_cached(sql::COMMIT).and_then(|mut commit| commit.execute([])).is_err() {
            _ = conn.execute_batch(sql::ROLLBACK);
        }
        result
    }

    /// Closes the idle connections.
    pub(crate) fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        idle.into_iter().for_each(|reader| self.close_reader(reader));
    }

    fn take(&self) -> Res<PooledReader> {
        let mut idle = self.idle.lock();
        while let Some(reader) = idle.pop() {
            if reader.unlocked.is_none() || reader.unlocked == self.stamp() {
                return Ok(reader);
            }
        }
        drop(idle);
        self.connect()
    }

    fn connect(&self) -> Res<PooledReader> {
        if self.beside_writer {
            return Ok(PooledReader::new(open::connect_reader(&self.place)?));
        }
        let verify = |conn: &Connection| open::verify(&self.place, conn);
        match self.connect_alone(open::connect_lone_reader, verify) {
            // The log is needed to read the file, and no other process shares the locks: it would have made the file in
            // which they are.
            Err(fault) if lacks_room_for_locks(&fault) => {
                let conn = open::connect_excluding(&self.place)?;
                verify(&conn)?;
                Ok(PooledReader { is_alone: true, ..PooledReader::new(conn) })
            }
            done => done,
        }
    }

    /// Opens a connection for the version of the data alone. The schema is neither read nor verified: the connection
    /// that reads a commit does that.
    fn connect_probe(&self) -> Res<PooledReader> {
        if self.beside_writer {
            return Ok(PooledReader::new(open::connect_probe(&self.place)?));
        }
        self.connect_alone(open::connect_lone_probe, |conn| data_version(conn).map(drop))
    }

    /// Opens a connection with locks and verifies it, or one without them if the folder refuses the `-shm` file, or the
    /// disk has no room for it.
    fn connect_alone(
        &self,
        connect: fn(&FilePlace) -> Res<Connection>,
        verify: impl Fn(&Connection) -> Res<()>,
    ) -> Res<PooledReader> {
        let locked = connect(&self.place).and_then(|conn| {
            if let Err(fault) = verify(&conn) {
                open::close_lone_reader(&self.place, conn);
                return Err(fault);
            }
            Ok(PooledReader::new(conn))
        });
        match locked {
            Err(fault) if refuses_locks(&fault) || lacks_room_for_locks(&fault) => self.connect_unlocked(fault),
            done => done,
        }
    }

    /// Opens a reader without locks, which is sound as long as the file stays as it is. `refusal` is the reason that it
    /// cannot have any.
    fn connect_unlocked(&self, refusal: Fault) -> Res<PooledReader> {
        let stamp = self.stamp().ok_or(refusal)?;
        // A write within the resolution of the timestamps would not change the stamp. From now on it will.
        std::thread::sleep(STAMP_SETTLE);
        if self.stamp() != Some(stamp) {
            return Err(changed().into());
        }
        let conn = open::connect_immutable(&self.place)?;
        open::verify(&self.place, &conn)?;
        Ok(PooledReader { unlocked: Some(stamp), ..PooledReader::new(conn) })
    }

    /// Returns the stamp of the file, `None` while it has a WAL: that is needed to read it.
    fn stamp(&self) -> Option<Stamp> {
        if fs::metadata(beside(&self.place.path, "-wal")).is_ok_and(|wal| wal.len() > 0) {
            return None;
        }
        fs::metadata(&self.place.path).ok().map(|meta| Stamp::of(&meta))
    }
}

/// The probe of a follower: the counter of a connection of its own, which changes with each commit of any other one.
pub(crate) struct DataVersion {
    pool: Arc<ReaderPool>,
    /// `None` after a failure, and while it is dropped.
    reader: Option<PooledReader>,
    seen: i64,
    /// The events of the write-ahead log, while they come.
    #[cfg(target_os = "linux")]
    events: Option<WalEvents>,
}

impl DataVersion {
    /// Makes a probe that tells of commits from now on.
    pub(crate) fn new(pool: &Arc<ReaderPool>) -> Result<Self, StoreError> {
        let mut probe = Self {
            pool: Arc::clone(pool),
            reader: None,
            seen: 0,
            #[cfg(target_os = "linux")]
            events: None,
        };
        probe.has_changed()?;
        Ok(probe)
    }

    /// Makes the watch of a follower: writes to the write-ahead log are hints, if the system has such events.
    pub(crate) fn into_watch(self, signal: Arc<LogSignal>) -> LogWatch {
        #[cfg(target_os = "linux")]
        if let Some(events) = WalEvents::of(&beside(&self.pool.place.path, "-wal"), &signal) {
            let is_live = Arc::clone(events.is_live());
            let mut probe = self;
            probe.events = Some(events);
            return LogWatch::new(signal, Some(Box::new(probe))).hinted_while(is_live);
        }
        LogWatch::new(signal, Some(Box::new(self)))
    }

    fn look(&mut self) -> Res<bool> {
        let unchanged = |reader: &PooledReader| reader.unlocked.is_none() || reader.unlocked == self.pool.stamp();
        let reader = match self.reader.take().filter(unchanged) {
            Some(reader) => reader,
            None => {
                // The counters of two connections cannot be compared.
                self.reader = Some(self.pool.connect_probe()?);
                self.seen = self.version()?;
                return Ok(true);
            }
        };
        self.reader = Some(reader);
        let version = self.version()?;
        Ok(std::mem::replace(&mut self.seen, version) != version)
    }

    fn version(&self) -> Res<i64> {
        self.reader.as_ref().map_or(Ok(0), |reader| data_version(&reader.conn))
    }
}

impl LogProbe for DataVersion {
    fn has_changed(&mut self) -> Result<bool, StoreError> {
        self.look().map_err(Fault::into_read)
    }
}

impl Drop for DataVersion {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.pool.close_reader(reader);
        }
    }
}

debug_fields!(DataVersion { seen });

/// The error of a read without locks during which the file changed.
fn changed() -> StoreError {
    StoreError::Busy { waited_ms: 0, holder: None }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::base::Namespace;
    use crate::store::sqlite::SqliteBackend;
    use crate::store::sqlite::tests::{Bench, options, raw, thread, value};
    use std::path::Path;

    /// Makes a pool whose folder refuses the `-shm` file.
    fn without_locks(path: &Path) -> ReaderPool {
        let pool = ReaderPool::alone(open::readable(path, &options()).unwrap()).unwrap();
        pool.close();
        std::os::unix::fs::symlink("nowhere", beside(path, "-shm")).unwrap();
        let reader = pool.connect().unwrap();
        assert!(reader.unlocked.is_some());
        pool.idle.lock().push(reader);
        std::fs::remove_file(beside(path, "-shm")).unwrap();
        pool
    }

    #[test]
    fn a_probe_does_not_read_the_schema() {
        let Bench { store, folder, .. } = Bench::new();
        drop(store);
        let path = folder.path().join("x.db");
        let pools = [true, false].map(|beside_writer| {
            let pool = ReaderPool::new(open::readable(&path, &options()).unwrap(), beside_writer).unwrap();
            pool.close();
            pool
        });
        raw(&path)
            .execute_batch(
                "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE VIEW' WHERE type = 'view'",
            )
            .unwrap();
        for pool in pools {
            let reader = pool.connect();
            assert!(reader.is_err(), "{reader:?}");
            pool.connect_probe().unwrap();
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_without_locks_is_busy() {
        let mut bench = Bench::new();
        let head = bench.add(&thread("a"), None, vec![value("x", 1, crate::store::batch::Payload::new(vec![7; 40]))]);
        let path = bench.path();
        bench.store = SqliteBackend::open(&bench.folder.path().join("other.db"), &options()).unwrap();
        let pool = without_locks(&path);
        let read = |pool: &ReaderPool| pool.read(|view| view.head_id(&thread("a"), &Namespace::root()));
        assert_eq!(read(&pool).unwrap(), Some(head));
        let during = pool.read(|_| {
            drop(SqliteBackend::open(&path, &options()).unwrap());
            Ok(())
        });
        assert!(during.is_ok(), "nothing was written: {during:?}");
        let during = pool.read(|_| {
            bench.store = SqliteBackend::open(&path, &options()).unwrap();
            bench.add(&thread("a"), Some(head), vec![value("x", 2, crate::store::batch::Payload::new(vec![8; 40]))]);
            bench.store.checkpoint_wal().unwrap();
            Ok(())
        });
        assert!(matches!(during, Err(StoreError::Busy { .. })), "{during:?}");
        let next = read(&pool).unwrap();
        assert!(next.is_some() && next != Some(head));
    }
}
