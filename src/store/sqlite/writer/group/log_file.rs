//! The log of the writer: whether it begins with a mark, and whether it and the files beside it are still in place.
//!
//! A log begins with a mark of its own, and the file is told of it before the first commit is acknowledged: a file
//! whose log was removed says so at the next open. *Absent:* the comparison at an open ([`wal_link`]).

use crate::base::internal::Stopwatch;
use crate::limits::LOG_NAMES_TIME;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::lock::LockWait;
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::schema::data_version;
use crate::store::sqlite::file::system::{self, FileId, Stamp};
use crate::store::sqlite::file::wal_link::{self, LogLink};
use crate::store::sqlite::file::wal_tail::{FRAME_BYTES, Frames, HEADER_BYTES};
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The place of the salts in the header of a log.
const SALTS_AT: u64 = 16;
/// The place of the salts in the header of a frame.
const FRAME_SALTS_AT: u64 = 8;

/// The knowledge of the writer about its log.
#[derive(Debug, Default)]
pub(super) struct LogFile {
    path: PathBuf,
    shared_path: PathBuf,
    /// A descriptor of the log. SQLite locks no byte of this file, so closing it drops no lock.
    file: Option<File>,
    id: Option<FileId>,
    /// The identity of the shared memory.
    shared: Option<FileId>,
    /// The salts of the log that is known to begin with a mark.
    salts: Option<[u8; 8]>,
    /// The bytes of that log up to the end of the last commit.
    bytes: u64,
    /// The end of the last commit, if the connection made it in a transaction that had compared its caches.
    end: Option<u64>,
    /// True if no other connection had committed since then when the open transaction began.
    pub(super) is_last: bool,
    /// The frames of the log after a commit of the connection, as SQLite counts them; 0 once they are taken.
    frames: Arc<AtomicU64>,
    /// Runs since the names were looked up.
    names: Option<Stopwatch>,
    /// The file when it was last known that the log continues it.
    paired: Option<Stamp>,
    /// The bytes of the file.
    file_bytes: u64,
    /// The number of the commits of others when the last transaction that replaces the mark was open.
    before_mark: Option<i64>,
    /// The same, if that transaction was the last one and replaced the mark alone.
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
    /// Takes the files as they are now, which belong to a store that was verified, and the connection that writes.
    pub(super) fn new(place: &FilePlace, conn: &mut Connection) -> Res<Self> {
        let frames = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&frames);
        conn.wal_hook(Some(move |_: &mut Wal, count: c_int| {
            counted.store(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let (path, shared_path) = (beside(&place.path, "-wal"), beside(&place.path, "-shm"));
        let file = system::open_to_read(&path).ok();
        let id = file.as_ref().and_then(|file| file.metadata().ok()).and_then(|meta| system::id(&meta));
        let shared = id_of(&shared_path);
        let file_bytes = length(&place.path);
        Ok(Self { path, shared_path, file, id, shared, frames, file_bytes, may_begin: true, ..Self::default() })
    }

    /// Looks at the log before a transaction, under the write lock.
    pub(super) fn look(&mut self, place: &FilePlace) -> Res<LogBegin> {
        self.is_last = false;
        let has_names = self.names.is_some_and(|names| names.elapsed() < LOG_NAMES_TIME);
        let Some(bytes) = (if has_names { self.bytes_if_named() } else { self.bytes_in_place() }) else {
            return Err(replaced(place, "its write-ahead log was removed or replaced"));
        };
        if !has_names {
            if id_of(&self.shared_path) != self.shared {
                return Err(replaced(place, "its shared memory (-shm) was removed or replaced"));
            }
            self.names = Some(Stopwatch::start());
        }
        let salts = self.read_salts().map_err(|error| unread(&self.path, &error))?;
        let Some(salts) = salts else {
            self.note_empty();
            return Ok(LogBegin::Empty);
        };
        if Some(salts) == self.salts {
            if bytes < self.bytes {
                return Err(replaced(place, "its write-ahead log was cut short"));
            }
            self.is_last = self.has_no_frame_at_end();
            return Ok(LogBegin::Marked);
        }
        if salts == [0; 8] {
            return Err(replaced(place, "its write-ahead log was emptied"));
        }
        // Another process has begun a new log.
        self.note_empty();
        self.bytes = bytes;
        self.compare(place)?;
        if !wal_link::begins_with_mark(&place.path).map_err(|error| unread(&self.path, &error))? {
            return Ok(LogBegin::Unmarked);
        }
        self.salts = Some(salts);
        Ok(LogBegin::Marked)
    }

    /// Returns whether no other connection has committed since the last commit of the connection, as far as the log
    /// tells. It takes no lock: SQLite would begin a transaction to find out.
    pub(super) fn ends_with_own_commit(&self) -> bool {
        self.salts.is_some_and(|salts| self.read_salts().is_ok_and(|read| read == Some(salts)))
            && self.has_no_frame_at_end()
    }

    /// Returns whether the log, whose salts are known, has no frame behind the last commit of the connection. A frame
    /// with other salts is one of a log before it.
    fn has_no_frame_at_end(&self) -> bool {
        let Some((end, salts)) = self.end.zip(self.salts) else { return false };
        self.read_salts_at(end + FRAME_SALTS_AT).is_ok_and(|found| found != Some(salts))
    }

    /// Notes that the transaction that is open replaces the mark.
    pub(super) fn expect_mark(&mut self, conn: &Connection) -> Res<()> {
        self.before_mark = Some(data_version(conn)?);
        Ok(())
    }

    /// Notes that the transaction that replaces the mark was committed. If another process has committed since, the log
    /// may be a new one, of which nothing is known.
    pub(super) fn note_mark(&mut self, conn: &Connection) {
        let salts = self.read_salts().ok().flatten();
        self.salts = if data_version(conn).ok() == self.before_mark { salts } else { None };
    }

    /// Notes that the last transaction of the log replaced the mark alone.
    pub(super) fn note_end(&mut self) {
        self.ended = self.before_mark;
    }

    /// Returns whether the log is empty, or ends with a mark after which no connection has committed.
    pub(super) fn is_ended(&self, conn: &Connection) -> Res<bool> {
        let is_empty = self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.len() == 0));
        Ok(is_empty || self.ended.is_some() && self.ended == Some(data_version(conn)?))
    }

    /// Returns whether the log has frames and no header: SQLite reads nothing of it.
    pub(super) fn is_headless(&self) -> bool {
        let has_frames = self.bytes_in_place().is_some_and(|bytes| bytes > HEADER_BYTES as u64);
        has_frames && system::open_to_read(&self.path).and_then(Frames::begin).is_ok_and(|frames| frames.is_none())
    }

    /// Notes how long the log is after a commit; one that changed nothing leaves it as it was. `compared` says that the
    /// transaction had looked for the commits of others.
    pub(super) fn note_commit(&mut self, compared: bool) {
        self.ended = None;
        let frames = self.frames.swap(0, Ordering::Relaxed);
        if frames > 0 {
            self.bytes = HEADER_BYTES as u64 + frames * FRAME_BYTES;
            self.end = compared.then_some(self.bytes);
        }
    }

    /// Notes that the log may have been copied whole, and the stamp of the file after that copy.
    pub(super) fn note_copied(&mut self, file: Option<Stamp>) {
        self.may_begin = true;
        self.paired = file;
    }

    /// Notes that the log was emptied.
    pub(super) fn note_empty(&mut self) {
        (self.salts, self.bytes, self.end) = (None, 0, None);
        self.frames.store(0, Ordering::Relaxed);
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
            if !wal_link::lacks_pages(&place.path, now) && !self.compare(place).is_err_and(is_other) {
                return None;
            }
            if !wait.pause() {
                return Some(format!("it was cut short from {before} to {now} bytes"));
            }
        }
    }

    /// Verifies, before the log is copied, that it still continues the file. Both are compared if somebody has written
    /// to the file since the last copy of this handle, or begun another log; a write in the same tick of the clock of
    /// the file system as that copy is not seen.
    pub(super) fn verify_pair(&mut self, place: &FilePlace) -> Res<()> {
        let is_same_log = self.bytes_in_place().is_some_and(|bytes| bytes >= self.bytes)
            && self.salts.is_some_and(|salts| self.read_salts().is_ok_and(|read| read == Some(salts)));
        if is_same_log && self.paired.is_some() && self.paired == place.stamp() {
            return Ok(());
        }
        self.compare(place)
    }

    fn compare(&mut self, place: &FilePlace) -> Res<()> {
        self.paired = None;
        let before = place.stamp();
        match wal_link::compare(&place.path, false).map_err(|error| unread(&place.path, &error))? {
            LogLink::Sound => self.paired = before,
            LogLink::Missing(found) | LogLink::Cut(found) | LogLink::Foreign(found) => {
                return Err(replaced(place, &found));
            }
        }
        Ok(())
    }

    /// Returns the bytes of the log if it is the one that was opened.
    fn bytes_in_place(&self) -> Option<u64> {
        let meta = fs::symlink_metadata(&self.path).ok()?;
        (system::id(&meta) == self.id).then_some(meta.len())
    }

    /// Returns the bytes of the log unless it has lost its name.
    fn bytes_if_named(&self) -> Option<u64> {
        let meta = self.file.as_ref()?.metadata().ok()?;
        (system::links(&meta) > 0).then_some(meta.len())
    }

    fn read_salts(&self) -> io::Result<Option<[u8; 8]>> {
        self.read_salts_at(SALTS_AT)
    }

    fn read_salts_at(&self, place: u64) -> io::Result<Option<[u8; 8]>> {
        let Some(file) = &self.file else { return Ok(None) };
        let mut salts = [0; 8];
        match system::read_at(file, &mut salts, place) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(salts)),
        }
    }
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

#[cfg(test)]
mod tests {
    use crate::base::{Encoded, Timestamp};
    use crate::store::side_tables::{KvChange, KvNamespace};
    use crate::store::sqlite::file::open;
    use crate::store::sqlite::file::wal_mark::MarkState;
    use crate::store::sqlite::tests::{Bench, raw};
    use crate::store::sqlite::writer::group::Core;
    use crate::store::sqlite::writer::job::JobRef;
    use rusqlite::hooks::Wal;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Commits a row of a table of an application.
    fn commit(conn: &rusqlite::Connection) {
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE IF NOT EXISTS app_a (x)").unwrap();
        conn.execute("INSERT INTO app_a VALUES (zeroblob(9000))", []).unwrap();
    }

    #[test]
    fn the_log_shows_the_commits_of_other_connections_until_the_next_own_one() {
        let bench = Bench::new();
        let (path, place) = (bench.path(), bench.store.pool.place().clone());
        let mut core = Core::new(open::connect_writer(&place).unwrap(), place).unwrap();
        core.inherited_attempts = 0;
        let puts = Cell::new(0);
        let commit_own = |core: &mut Core| {
            core.begin().unwrap();
            let was_last = core.log.is_last;
            // Each put changes its row: a commit without a frame leaves the end of the log as it was.
            let now = Timestamp::from_micros(puts.replace(puts.get() + 1));
            let (namespace, value) = (KvNamespace::new(["a"]).unwrap(), Encoded::default());
            let put = KvChange::Put { namespace, key: "k".into(), value, now, expires_at: None };
            assert!(core.run(&[JobRef::Kv(&[put])]).outcomes.iter().all(Result::is_ok));
            assert!(core.log.ends_with_own_commit());
            was_last
        };
        assert!(!commit_own(&mut core), "it has no commit of its own before");
        assert!(commit_own(&mut core));
        let empty = || raw(&path).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let others: [&dyn Fn(); 3] = [&|| commit(&raw(&path)), &empty, &|| (0..3).for_each(|_| commit(&raw(&path)))];
        for (at, other) in others.iter().enumerate() {
            other();
            assert!(!core.log.ends_with_own_commit(), "{at}");
            assert!(!commit_own(&mut core), "{at}");
        }
        core.mark_alone(MarkState::Synced).unwrap();
        assert!(!core.log.ends_with_own_commit(), "the transaction of a mark has not looked for the commits of others");
        assert!(!commit_own(&mut core) && commit_own(&mut core));
        // One that is rolled back changes nothing.
        core.begin().unwrap();
        core.conn.execute_batch("ROLLBACK").unwrap();
        assert!(core.log.ends_with_own_commit());
    }

    #[test]
    fn a_log_that_others_begin_right_after_the_commit_of_a_mark_is_not_taken_for_one_that_was_cut() {
        let bench = Bench::new();
        let (path, place) = (bench.path(), bench.store.pool.place().clone());
        (0..20).for_each(|_| commit(&raw(&path)));
        let mut core = Core::new(open::connect_writer(&place).unwrap(), place).unwrap();
        core.inherited_attempts = 0;
        // SQLite calls this between the end of the commit and its return.
        let (frames, begun) = (Arc::clone(&core.log.frames), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&begun);
        let begin_anew = move |_: &mut Wal, count: std::ffi::c_int| {
            frames.store(count.unsigned_abs().into(), Ordering::Relaxed);
            let other = raw(&path);
            other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            commit(&other);
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        core.conn.wal_hook(Some(begin_anew)).unwrap();
        core.mark_alone(MarkState::Synced).unwrap();
        core.conn.wal_hook(None::<fn(&mut Wal, std::ffi::c_int) -> rusqlite::Result<()>>).unwrap();
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        assert!(!core.log.is_ended(&core.conn).unwrap(), "others have committed since the mark");
        core.begin().unwrap();
        core.conn.execute_batch("ROLLBACK").unwrap();
    }
}
