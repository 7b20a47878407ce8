//! One transaction for a group of jobs: each in a savepoint of its own, so that a conflict fails no neighbour.

mod log_file;
mod marks;
mod transact;

use self::log_file::LogFile;

pub(crate) use self::transact::{Transacted, TransactionRun};
use super::job::JobRef;
use crate::base::limits::TRANSACTION_TIME_MAX;
use crate::base::{Namespace, ThreadId};
use crate::limits::{INHERITED_WAL_ATTEMPTS_MAX, WAL_MEASURED_BYTES, WAL_TRUNCATE_ATTEMPTS_MAX};
use crate::store::batch::CommitChain;
use crate::store::chain::repeated;
use crate::store::error::StoreError;
use crate::store::record::StoredHead;
use crate::store::sqlite::commit::caches;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::{Fault, Res, RolledBack, found_busy, is_busy, reason};
use crate::store::sqlite::file::guard::SqlGuard;
use crate::store::sqlite::file::lock_queue::LockQueue;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::schema;
use crate::store::sqlite::file::wal_mark::{MarkState, WalMark};
use crate::store::sqlite::file::wal_tail::FRAME_BYTES;
use crate::store::sqlite::file::{lock, paths};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, ffi};
use std::cell::LazyCell;
use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// The connection that writes, and its caches.
#[derive(Debug)]
pub(crate) struct Core {
    conn: Connection,
    /// The guard of the connection.
    guard: SqlGuard,
    caches: Caches,
    place: FilePlace,
    lock_queue: LockQueue,
    log: LogFile,
    frames: u64,
    /// Frames since the size of the WAL was last compared with its limit.
    unmeasured: u64,
    /// Attempts that are left to empty the WAL that the connection found when it was opened.
    inherited_attempts: usize,
    has_written: bool,
    /// True while a transaction is being committed.
    commits: bool,
    /// The reason that no further job is accepted.
    closed: Option<String>,
    /// The version of the schema that was verified last.
    schema: Option<i64>,
    /// The longest transaction on the tables of an application.
    transaction_max: Duration,
    #[cfg(test)]
    planted: VecDeque<PlantedFault>,
}

/// The outcomes of the jobs of a group, in their order.
pub(crate) type Outcomes = VecDeque<Result<(), StoreError>>;

/// The outcomes of a group.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The outcome of each job.
    pub(crate) outcomes: Outcomes,
    /// The reason that the writer accepts no further job.
    pub(crate) closed: Option<String>,
}

/// The progress of a group.
enum Group {
    /// All jobs were written or refused.
    Written(Outcomes),
    /// The transaction is gone, for this reason.
    Undone(RolledBack),
    /// A job failed after it had written rows.
    HalfWritten,
}

impl Verdict {
    fn open(outcomes: Outcomes) -> Self {
        Self { outcomes, closed: None }
    }
}

fn step(conn: &Connection, sql: &str) -> Res<()> {
    conn.run(sql, [])?;
    Ok(())
}

impl Core {
    /// Takes the connection that writes.
    pub(crate) fn new(mut conn: Connection, place: FilePlace) -> Res<Self> {
        let guard = SqlGuard::default();
        guard.install(&mut conn)?;
        let log = LogFile::new(&place, &mut conn)?;
        let found_wal = fs::metadata(paths::beside(&place.path, "-wal")).is_ok_and(|wal| wal.len() > 0);
        Ok(Self {
            inherited_attempts: if found_wal { INHERITED_WAL_ATTEMPTS_MAX } else { 0 },
            schema: schema::version(&conn).ok(),
            conn,
            guard,
            caches: Caches::new(Arc::clone(&place.keys)),
            lock_queue: LockQueue::new(&place.path),
            place,
            log,
            frames: 0,
            unmeasured: 0,
            has_written: false,
            commits: false,
            closed: None,
            transaction_max: TRANSACTION_TIME_MAX,
            #[cfg(test)]
            planted: VecDeque::new(),
        })
    }

    /// Returns whether the connection has written, and can still be used.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written && self.closed.is_none()
    }

    /// Returns the connection, which is in no transaction between two groups.
    pub(crate) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// Returns the head of a namespace that this connection has stored last, as [`Caches::bare_head`].
    pub(crate) fn bare_head(&mut self, thread: &ThreadId, namespace: &Namespace) -> Option<StoredHead> {
        if !self.has_written() {
            return None;
        }
        // A read that fails is repeated, and reported, by the caller.
        let is_current = || self.log.ends_with_own_commit();
        self.caches.bare_head(&self.conn, thread, namespace, is_current).ok().flatten()
    }

    /// Refuses further commits while a reader keeps a WAL that is past its limit from being copied. The size is looked
    /// at once in a megabyte.
    pub(crate) fn check_wal(&mut self) -> Res<()> {
        let limit_bytes = self.place.wal_limit_bytes;
        if self.unmeasured < WAL_MEASURED_BYTES / FRAME_BYTES {
            return Ok(());
        }
        let file_bytes = fs::metadata(paths::beside(&self.place.path, "-wal")).map_or(0, |wal| wal.len());
        if file_bytes > limit_bytes {
            let copy = copy_wal(&self.conn, sql::WAL_NOOP)?;
            let wal_bytes = copy.frames * FRAME_BYTES;
            if wal_bytes > limit_bytes && !copy.is_whole() {
                return Err(StoreError::WalLimit { wal_bytes, limit_bytes }.into());
            }
        }
        self.unmeasured = 0;
        Ok(())
    }

    /// Begins a transaction with the write lock: one that reads first would not wait for other writers.
    pub(crate) fn begin(&mut self) -> Res<()> {
        self.empty_inherited_wal()?;
        self.begin_write()?;
        if self.closed.is_some() {
            return Ok(());
        }
        let begun = self.begin_log();
        if let Err(fault) = &begun {
            self.roll_back();
            self.close_if_replaced(fault);
        }
        begun
    }

    fn begin_write(&mut self) -> Res<()> {
        let Self { conn, place, lock_queue, .. } = self;
        lock_queue.wait_for(place.busy_ms, || step(conn, sql::BEGIN_WRITE))
    }

    /// Copies the WAL that the connection found into the file and begins it anew, before a frame is added and before a
    /// row of it is acknowledged as stored. Its last commit may be one whose sync failed in a process that has ended:
    /// then the kernel counts frames as clean that are not on the disk, and what follows them would end with the next
    /// power cut. Others that use the file are not waited for; the next transactions try again.
    fn empty_inherited_wal(&mut self) -> Res<()> {
        if self.inherited_attempts == 0 || self.closed.is_some() {
            return Ok(());
        }
        let emptied = self.empty_found();
        let is_empty = if found_busy(&emptied) { false } else { emptied? };
        self.inherited_attempts = if is_empty { 0 } else { self.inherited_attempts - 1 };
        Ok(())
    }

    fn empty_found(&mut self) -> Res<bool> {
        // Before a frame is added behind those that may be lost, the file holds them.
        if !copy_whole_wal(&self.conn)? {
            return Ok(false);
        }
        self.mark_alone(MarkState::Whole)?;
        empty_found_wal(&self.conn)
    }

    /// Returns the error of a wait for another process that has ended.
    fn busy(&self) -> StoreError {
        StoreError::Busy { waited_ms: self.place.busy_ms, holder: lock::holder(&self.place.path) }
    }

    /// Returns the outcomes of a group whose transaction did not begin.
    pub(crate) fn refuse(&self, fault: Fault, count: usize) -> Verdict {
        let group = RolledBack::by(&fault);
        // The holder is looked up once: that takes longer than a commit.
        let (waited_ms, holder) = (self.place.busy_ms, LazyCell::new(|| lock::holder(&self.place.path)));
        let busy = || StoreError::Busy { waited_ms, holder: *holder };
        let others = |_| match &fault {
            Fault::Sql(error) if is_busy(error) => Err(busy()),
            Fault::Store(StoreError::WalLimit { wal_bytes, limit_bytes }) => {
                Err(StoreError::WalLimit { wal_bytes: *wal_bytes, limit_bytes: *limit_bytes })
            }
            _ => Err(group.error()),
        };
        let mut outcomes: Outcomes = (1..count).map(others).collect();
        outcomes.push_front(Err(fault.into_write(busy)));
        Verdict { outcomes, closed: self.closed.clone() }
    }

    /// Writes a group in the transaction that has begun, and ends it.
    pub(crate) fn run(&mut self, jobs: &[JobRef<'_>]) -> Verdict {
        if let Some(closed) = self.closed.clone() {
            self.roll_back();
            let outcomes = jobs.iter().map(|_| Err(StoreError::HandleClosed { reason: closed.clone() })).collect();
            return Verdict { outcomes, closed: Some(closed) };
        }
        debug_assert!(!self.conn.is_autocommit(), "the caller has begun the transaction");
        if let Err(fault) = self.verify_schema_of_others() {
            self.roll_back();
            return self.refuse(fault, jobs.len());
        }
        // A savepoint per job costs an eighth of a group. So the group is first written without them: a job that
        // is refused before it wrote a row leaves nothing behind. Should one fail later, all are written anew.
        let outcomes = match self.write_group(jobs, false) {
            Group::Written(outcomes) => outcomes,
            Group::Undone(cause) => return self.undo(jobs.len(), &cause),
            Group::HalfWritten => {
                self.roll_back();
                if let Err(fault) = self.begin() {
                    return self.refuse(fault, jobs.len());
                }
                match self.write_group(jobs, true) {
                    Group::Written(outcomes) => outcomes,
                    Group::Undone(cause) => return self.undo(jobs.len(), &cause),
                    Group::HalfWritten => return self.undo(jobs.len(), &half_written()),
                }
            }
        };
        if outcomes.iter().all(Result::is_err) {
            self.roll_back();
            return Verdict::open(outcomes);
        }
        debug_assert_eq!(outcomes.len(), jobs.len());
        match self.commit() {
            Ok(()) => self.committed(jobs, outcomes),
            Err(fault) if is_undone(&fault) => {
                self.roll_back();
                let cause = RolledBack::by(&fault);
                Verdict::open(outcomes.into_iter().map(|outcome| outcome.and_then(|()| Err(cause.error()))).collect())
            }
            Err(fault) => self.heal(jobs, outcomes, &reason(&fault)),
        }
    }

    /// Verifies the schema if another connection has committed since it was verified.
    fn verify_schema_of_others(&mut self) -> Res<()> {
        if !caches::is_current(&self.conn, &mut self.caches, self.log.is_last)? {
            // Before the caches read a table again.
            self.verify_schema()?;
            caches::refresh(&self.conn, &mut self.caches)?;
            self.caches.is_verified = true;
        }
        Ok(())
    }

    /// Verifies the schema again if somebody has changed it: a trigger would run with the rows of this group.
    fn verify_schema(&mut self) -> Res<()> {
        let version = Some(schema::version(&self.conn)?);
        if version != self.schema {
            schema::verify(&self.conn)?;
            self.place.keys.verify_unchanged(&self.conn, &self.place.path)?;
            self.schema = version;
        }
        Ok(())
    }

    /// Ends the transaction; a panic in here leaves it unknown whether that succeeded.
    fn commit(&mut self) -> Res<()> {
        self.commits = true;
        #[cfg(test)]
        let planted = self.planted.pop_front();
        #[cfg(test)]
        let result = planted.map_or_else(|| self.step(sql::COMMIT), |planted| planted.befall(&self.conn));
        #[cfg(not(test))]
        let result = self.step(sql::COMMIT);
        self.commits = false;
        result
    }

    /// Acknowledges a commit, if the file at the path has it.
    fn committed(&mut self, jobs: &[JobRef<'_>], outcomes: Outcomes) -> Verdict {
        debug_assert!(self.conn.is_autocommit());
        let compared = self.caches.committed();
        self.has_written = true;
        let frames = jobs.iter().map(|job| job.frames()).sum::<u64>();
        self.frames += frames;
        self.unmeasured += frames;
        if std::mem::take(&mut self.log.may_begin) {
            self.log.note_mark(&self.conn);
        }
        self.log.note_commit(compared);
        let Some(found) = self.log.displaced(&self.place) else { return Verdict::open(outcomes) };
        let replaced = || StoreError::FileReplaced { path: self.place.path.clone(), found: found.clone() };
        let outcomes = outcomes.into_iter().map(|outcome| outcome.and_then(|()| Err(replaced()))).collect();
        let closed = replaced().to_string();
        self.close(outcomes, closed)
    }

    /// Writes the jobs of a group, each in a savepoint of its own or all in the transaction.
    fn write_group(&mut self, jobs: &[JobRef<'_>], savepoints: bool) -> Group {
        let mut outcomes = VecDeque::with_capacity(jobs.len());
        // A job refused here may still be written when the group is written anew.
        let mut broken: Vec<(&CommitChain, StoreError)> = Vec::new();
        if let Err(fault) = self.carry_mark() {
            return Group::Undone(RolledBack::by(&fault));
        }
        #[cfg(test)]
        if matches!(self.planted.front(), Some(PlantedFault::PanicOfJob)) {
            self.planted.pop_front();
            panic!("a planted panic");
        }
        for &job in jobs {
            let chain = job.chain();
            let first =
                |own: &CommitChain| broken.iter().find(|(chain, _)| *chain == own).map(|(_, error)| repeated(error));
            let refusal = |own: &CommitChain| if own.has_ended() { Some(own.refusal()) } else { first(own) };
            if let Some(refusal) = chain.and_then(refusal) {
                outcomes.push_back(Err(refusal));
                continue;
            }
            let before = self.conn.total_changes();
            let written = if savepoints { self.in_savepoint(job) } else { job.write(&self.conn, &mut self.caches) };
            if let Err(fault) = &written {
                // SQLite itself ended the transaction (disk full, I/O error): nothing of the group is left.
                if self.conn.is_autocommit() {
                    return Group::Undone(RolledBack::by(fault));
                }
                // Alone in its group, it is rolled back as a whole.
                if !savepoints && jobs.len() > 1 && self.conn.total_changes() != before {
                    return Group::HalfWritten;
                }
            }
            let outcome = written.map_err(|fault| fault.into_write(|| self.busy()));
            broken.extend(chain.zip(outcome.as_ref().err().map(repeated)));
            outcomes.push_back(outcome);
        }
        Group::Written(outcomes)
    }

    fn in_savepoint(&mut self, job: JobRef<'_>) -> Res<()> {
        self.step(sql::SAVEPOINT)?;
        let written = job.write(&self.conn, &mut self.caches);
        if written.is_err() && !self.conn.is_autocommit() {
            self.caches.rolled_back();
            // Rows of the jobs before it are not committed, and are read into the caches again.
            self.caches.fresh = true;
            if self.step(sql::ROLLBACK_TO).is_err() {
                // The group ends here; the caller finds that the transaction is gone.
                self.roll_back();
                return written;
            }
        }
        if !self.conn.is_autocommit() {
            self.step(sql::RELEASE)?;
        }
        written
    }

    /// Finds out the outcome of a commit that failed when its frames may have reached the disk: a new connection begins
    /// the WAL anew and writes the jobs again. Should another process have recovered the frames as a commit, they are
    /// in the file by then, and the jobs find that they are stored.
    fn heal(&mut self, jobs: &[JobRef<'_>], first: Outcomes, text: &str) -> Verdict {
        self.roll_back();
        let unknown = |reason: &str| StoreError::OutcomeUnknown { reason: reason.to_owned() };
        if let Err(fault) = self.reconnect() {
            let closed = format!("{text}; the file cannot be used again: {}", reason(&fault));
            let outcomes = first.into_iter().map(|outcome| outcome.and_then(|()| Err(unknown(text)))).collect();
            return self.close(outcomes, closed);
        }
        let accepted: Vec<JobRef<'_>> =
            jobs.iter().zip(&first).filter(|(_, outcome)| outcome.is_ok()).map(|(job, _)| *job).collect();
        match self.repeat(&accepted) {
            Ok(second) => {
                let mut second = accepted.iter().zip(second).map(|(job, outcome)| match outcome {
                    // A checkpoint that is not stored and no longer fits was not stored by the first attempt either.
                    Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) if job.stores_checkpoint() => outcome,
                    Err(error) => Err(unknown(&format!("{text}; when it was repeated: {error}"))),
                    Ok(()) => Ok(()),
                });
                let outcomes = first.into_iter().map(|outcome| outcome.and_then(|()| second.next().unwrap_or(Ok(()))));
                let outcomes: Outcomes = outcomes.collect();
                self.committed(&accepted, outcomes)
            }
            Err(fault) => {
                let text = format!("{text}; when it was repeated: {}", reason(&fault));
                self.roll_back();
                let outcomes = first.into_iter().map(|outcome| outcome.and_then(|()| Err(unknown(&text)))).collect();
                match self.reconnect() {
                    Ok(()) => Verdict::open(outcomes),
                    Err(fault) => self.close(outcomes, format!("{text}; then: {}", reason(&fault))),
                }
            }
        }
    }

    /// Writes jobs again, or finds them stored.
    fn repeat(&mut self, jobs: &[JobRef<'_>]) -> Res<Outcomes> {
        self.begin()?;
        let outcomes = match self.write_group(jobs, true) {
            Group::Written(outcomes) => outcomes,
            Group::Undone(cause) => return Err(cause.error().into()),
            Group::HalfWritten => return Err(half_written().error().into()),
        };
        self.commit()?;
        Ok(outcomes)
    }

    /// Replaces the connection by a new one, which finds the WAL empty.
    fn reconnect(&mut self) -> Res<()> {
        if !self.place.is_in_place() {
            return Err(log_file::replaced(&self.place, "it was removed or replaced"));
        }
        let mut conn = open::connect_writer(&self.place)?;
        self.guard.install(&mut conn)?;
        self.log = LogFile::new(&self.place, &mut conn)?;
        let old = std::mem::replace(&mut self.conn, conn);
        // If this is refused, the WAL is merely copied when the connection closes.
        _ = old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        self.caches = Caches::new(Arc::clone(&self.place.keys));
        self.restart_wal()
    }

    /// Copies the whole WAL into the file and begins it anew. A sync that failed may have dropped frames that are still
    /// read from memory: commits behind them would be acknowledged and end with the next power cut.
    fn restart_wal(&mut self) -> Res<()> {
        let busy = || Fault::from(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None));
        let copied = |sql: &str| copy_wal(&self.conn, sql)?.is_whole().then_some(()).ok_or_else(busy);
        // Before a frame is added behind those that may be lost, the file holds them.
        lock::wait_for(self.place.busy_ms, || copied(sql::WAL_PASSIVE))?;
        lock::wait_for(self.place.busy_ms, || {
            step(&self.conn, sql::BEGIN_WRITE)?;
            let marked = WalMark::replace(&self.conn, MarkState::Whole, false);
            let ended = if marked.is_ok() { sql::COMMIT } else { sql::ROLLBACK };
            if let Err(fault) = step(&self.conn, ended) {
                _ = step(&self.conn, sql::ROLLBACK);
                return Err(fault);
            }
            marked.map(drop)
        })?;
        lock::wait_for(self.place.busy_ms, || copied(sql::WAL_TRUNCATE))?;
        self.inherited_attempts = 0;
        self.log.note_empty();
        Ok(())
    }

    /// Ends the writer: it accepts no further job.
    fn close(&mut self, outcomes: Outcomes, text: String) -> Verdict {
        _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        self.closed = Some(text.clone());
        Verdict { outcomes, closed: Some(text) }
    }

    /// Returns the outcomes of a group in which a job panicked, and ends its transaction: the write lock must not stay
    /// taken.
    pub(crate) fn panicked(&mut self, panic: &str, jobs: usize) -> Verdict {
        let text = format!("the writer panicked: {panic}");
        self.roll_back();
        self.caches = Caches::new(Arc::clone(&self.place.keys));
        if !std::mem::take(&mut self.commits) {
            return self.undo(jobs, &RolledBack::because(&text));
        }
        let outcomes = (0..jobs).map(|_| Err(StoreError::OutcomeUnknown { reason: text.clone() })).collect();
        self.close(outcomes, text)
    }

    fn undo(&mut self, count: usize, cause: &RolledBack) -> Verdict {
        self.roll_back();
        Verdict::open((0..count).map(|_| Err(cause.error())).collect())
    }

    fn roll_back(&mut self) {
        self.caches.rolled_back();
        if !self.conn.is_autocommit() {
            // If even this fails, the next BEGIN fails and says so.
            _ = self.step(sql::ROLLBACK);
        }
    }

    fn step(&self, sql: &str) -> Res<()> {
        step(&self.conn, sql)
    }

    /// Returns about how many frames the WAL has grown by since it was last copied.
    pub(crate) fn frames_since_checkpoint(&self) -> u64 {
        self.frames
    }

    /// Copies the rest of the WAL while this process does not write, and truncates it if no connection reads from it.
    /// Returns whether all of it was copied, and truncated if asked for. Nothing is waited for: the write lock of the
    /// WAL is held until the readers are gone, if they are waited for.
    pub(crate) fn finish_wal(&mut self, truncates: bool) -> Res<bool> {
        if let Some(reason) = &self.closed {
            return Err(StoreError::HandleClosed { reason: reason.clone() }.into());
        }
        self.frames = 0;
        self.verify_pair()?;
        if truncates {
            let marked = self.mark_alone(MarkState::Whole);
            if found_busy(&marked) {
                return Ok(false);
            }
            marked?;
        }
        let copy = copy_wal(&self.conn, if truncates { sql::WAL_TRUNCATE } else { sql::WAL_PASSIVE })?;
        self.log.note_copied(self.place.stamp());
        if truncates && copy.is_whole() {
            self.log.note_empty();
        }
        Ok(copy.is_whole())
    }

    /// Copies the whole WAL and empties it, if no other connection is in the way. For a handle that closes: its own
    /// commits would wait.
    pub(crate) fn empty_wal(&mut self) -> Res<bool> {
        if self.closed.is_some() {
            return Ok(false);
        }
        self.verify_pair()?;
        Ok(copy_whole_wal(&self.conn)? && self.finish_wal(true)?)
    }

    /// Begins to count the frames anew.
    pub(crate) fn count_anew(&mut self) {
        self.frames = 0;
    }
}

/// The result of a WAL checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalCopy {
    /// True if another checkpoint, a writer or a reader was in the way.
    pub(crate) busy: bool,
    /// Frames in the WAL.
    pub(crate) frames: u64,
    /// Frames of it that the file holds.
    pub(crate) copied: u64,
}

impl WalCopy {
    /// Returns whether the file holds all frames.
    pub(crate) fn is_whole(self) -> bool {
        !self.busy && self.copied >= self.frames
    }
}

/// Copies the WAL beside all writers; returns whether the file holds all of it.
pub(crate) fn copy_whole_wal(conn: &Connection) -> Res<bool> {
    for _ in 0..WAL_TRUNCATE_ATTEMPTS_MAX {
        // A transaction that is being committed looks like a reader, for some microseconds.
        if copy_wal(conn, sql::WAL_PASSIVE)?.is_whole() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the whole WAL beside all writers, and empties it if no other connection is in the way; returns whether it
/// did.
pub(crate) fn empty_wal(conn: &Connection) -> Res<bool> {
    Ok(copy_whole_wal(conn)? && copy_wal(conn, sql::WAL_TRUNCATE)?.is_whole())
}

/// Copies the WAL that a connection found before it writes for the first time, and begins it anew, unless others use
/// the file; returns whether it did.
pub(crate) fn empty_found_wal(conn: &Connection) -> Res<bool> {
    let emptied = empty_wal(conn);
    let is_busy = found_busy(&emptied);
    emptied.or_else(|fault| if is_busy { Ok(false) } else { Err(fault) })
}

/// Runs a WAL checkpoint, which reports that it was in the way of others as a row, not as an error.
pub(crate) fn copy_wal(conn: &Connection, sql: &str) -> Res<WalCopy> {
    // Numbers that are not known are -1.
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let (busy, frames, copied): (i64, i64, i64) = conn.one(sql, [])?;
    Ok(WalCopy { busy: busy != 0, frames: count(frames), copied: count(copied) })
}

/// Returns whether a commit failed before its last frame was written: then no connection will ever see it. Anything
/// else, as a failed sync, leaves the outcome open.
fn is_undone(fault: &Fault) -> bool {
    let Fault::Sql(rusqlite::Error::SqliteFailure(error, _)) = fault else { return false };
    let before_the_end = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ];
    matches!(error.code, ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        || before_the_end.contains(&error.extended_code)
}

fn half_written() -> RolledBack {
    RolledBack::because("a job could not be rolled back")
}

/// A fault that a test plants, in place of one of the disk or of a job.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlantedFault {
    /// The next COMMIT fails with this code of SQLite, and stores nothing.
    Lost(std::ffi::c_int),
    /// The next COMMIT fails with this code of SQLite, and is stored nevertheless.
    Stored(std::ffi::c_int),
    /// The next job panics.
    PanicOfJob,
}

#[cfg(test)]
impl PlantedFault {
    fn befall(self, conn: &Connection) -> Res<()> {
        let (sql, code) = match self {
            Self::Lost(code) => (sql::ROLLBACK, code),
            Self::Stored(code) => (sql::COMMIT, code),
            Self::PanicOfJob => (sql::COMMIT, ffi::SQLITE_OK),
        };
        conn.execute_batch(sql)?;
        if code == ffi::SQLITE_OK {
            return Ok(());
        }
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into())
    }
}

#[cfg(test)]
impl Core {
    /// Plants faults, each for one commit.
    pub(crate) fn plant(&mut self, faults: &[PlantedFault]) {
        self.planted.extend(faults);
    }

    /// Sets how long a transaction may last.
    pub(crate) fn set_transaction_max(&mut self, limit: Duration) {
        self.transaction_max = limit;
    }

    /// Calls a hook at the steps of SQLite's machine on the connection.
    pub(crate) fn on_steps(&mut self, mut hook: impl FnMut() + Send + 'static) {
        let counted = move || {
            hook();
            false
        };
        self.conn.progress_handler(1, Some(counted)).unwrap();
    }
}
