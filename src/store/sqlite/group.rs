//! One transaction for a group of jobs: each in a savepoint of its own, so that a conflict fails no neighbour.

use super::fault::{Fault, Res, is_busy};
use super::job::JobRef;
use super::lock;
use super::open::FilePlace;
use super::sql;
use super::write::Caches;
use super::writer::reason;
use crate::store::batch::CommitChain;
use crate::store::error::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::collections::VecDeque;

/// The connection that writes, and its caches.
#[derive(Debug)]
pub(super) struct Core {
    conn: Connection,
    caches: Caches,
    place: FilePlace,
    frames: u64,
    has_written: bool,
    poisoned: Option<String>,
}

/// The outcomes of a group.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The outcome of each job.
    pub(super) outcomes: VecDeque<Result<(), StoreError>>,
    /// The reason that the writer accepts no further job.
    pub(super) poison: Option<String>,
}

/// The progress of a group.
enum Group {
    /// All jobs were written or refused.
    Written(VecDeque<Result<(), StoreError>>),
    /// The transaction is gone, for this reason.
    Undone(String),
    /// A job failed after it had written rows.
    HalfWritten,
}

impl Verdict {
    /// The outcome of a group whose leader panicked: unknown.
    pub(super) fn panicked(reason: &str, jobs: usize) -> Self {
        let reason = format!("the writer panicked: {reason}");
        let unknown = |_| Err(StoreError::OutcomeUnknown { reason: reason.clone() });
        Self { outcomes: (0..jobs).map(unknown).collect(), poison: Some(reason) }
    }
}

impl Core {
    /// Takes the connection that writes.
    pub(super) fn new(conn: Connection, place: FilePlace) -> Self {
        Self { conn, caches: Caches::default(), place, frames: 0, has_written: false, poisoned: None }
    }

    /// Returns whether the connection has written, and can still be used.
    pub(super) fn has_written(&self) -> bool {
        self.has_written && self.poisoned.is_none()
    }

    /// Returns the connection, which is in no transaction between two groups.
    pub(super) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// Begins a transaction with the write lock: one that reads first would not wait for other writers.
    pub(super) fn begin(&self) -> Res<()> {
        lock::wait_for(self.place.busy_ms, || self.step(sql::BEGIN_WRITE))
    }

    /// Returns the error of a wait for another process that has ended.
    fn busy(&self) -> StoreError {
        StoreError::Busy { waited_ms: self.place.busy_ms, holder: lock::holder(&self.place.path) }
    }

    /// Returns the outcomes of a group whose transaction did not begin.
    pub(super) fn refuse(&self, fault: Fault, count: usize) -> Verdict {
        let text = reason(&fault);
        let busy = matches!(&fault, Fault::Sql(error) if is_busy(error));
        let mut outcomes: VecDeque<_> =
            (1..count).map(|_| Err(if busy { self.busy() } else { undone(&text) })).collect();
        outcomes.push_front(Err(fault.into_write(|| self.busy())));
        Verdict { outcomes, poison: None }
    }

    /// Writes a group in the transaction that has begun, and ends it.
    pub(super) fn run(&mut self, jobs: &[JobRef<'_>]) -> Verdict {
        if let Some(poison) = self.poisoned.clone() {
            self.roll_back();
            let outcomes = jobs.iter().map(|_| Err(StoreError::OutcomeUnknown { reason: poison.clone() })).collect();
            return Verdict { outcomes, poison: Some(poison) };
        }
        debug_assert!(!self.conn.is_autocommit(), "the caller has begun the transaction");
        // A savepoint per job costs an eighth of a group. So the group is first written without them: a job that
        // is refused before it wrote a row leaves nothing behind. Should one fail later, all are written anew.
        let outcomes = match self.write_group(jobs, false) {
            Group::Written(outcomes) => outcomes,
            Group::Undone(text) => return self.undo(jobs.len(), &text),
            Group::HalfWritten => {
                self.roll_back();
                if let Err(fault) = self.begin() {
                    return self.refuse(fault, jobs.len());
                }
                match self.write_group(jobs, true) {
                    Group::Written(outcomes) => outcomes,
                    Group::Undone(text) => return self.undo(jobs.len(), &text),
                    Group::HalfWritten => return self.undo(jobs.len(), "a job could not be rolled back"),
                }
            }
        };
        if outcomes.iter().all(Result::is_err) {
            self.roll_back();
            return Verdict { outcomes, poison: None };
        }
        debug_assert_eq!(outcomes.len(), jobs.len());
        match self.step(sql::COMMIT) {
            Ok(()) => {
                debug_assert!(self.conn.is_autocommit());
                self.caches.committed();
                self.has_written = true;
                self.frames += jobs.iter().map(|job| job.frames()).sum::<u64>();
                Verdict { outcomes, poison: None }
            }
            Err(fault) => self.commit_failed(&fault, outcomes),
        }
    }

    /// Writes the jobs of a group, each in a savepoint of its own or all in the transaction.
    fn write_group(&mut self, jobs: &[JobRef<'_>], savepoints: bool) -> Group {
        let mut outcomes = VecDeque::with_capacity(jobs.len());
        // A job refused here may still be written when the group is written anew.
        let mut broken: Vec<&CommitChain> = Vec::new();
        for &job in jobs {
            let chain = job.chain();
            if let Some(chain) = chain.filter(|own| own.has_ended() || broken.contains(own)) {
                outcomes.push_back(Err(chain.refusal()));
                continue;
            }
            let before = self.conn.total_changes();
            let written = if savepoints { self.in_savepoint(job) } else { job.write(&self.conn, &mut self.caches) };
            if let Err(fault) = &written {
                // SQLite itself ended the transaction (disk full, I/O error): nothing of the group is left.
                if self.conn.is_autocommit() {
                    return Group::Undone(reason(fault));
                }
                // Alone in its group, it is rolled back as a whole.
                if !savepoints && jobs.len() > 1 && self.conn.total_changes() != before {
                    return Group::HalfWritten;
                }
            }
            broken.extend(chain.filter(|_| written.is_err()));
            outcomes.push_back(written.map_err(|fault| fault.into_write(|| self.busy())));
        }
        Group::Written(outcomes)
    }

    fn in_savepoint(&mut self, job: JobRef<'_>) -> Res<()> {
        self.step(sql::SAVEPOINT)?;
        let written = job.write(&self.conn, &mut self.caches);
        if written.is_err() && !self.conn.is_autocommit() {
            self.caches.rolled_back();
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

    fn commit_failed(&mut self, fault: &Fault, outcomes: VecDeque<Result<(), StoreError>>) -> Verdict {
        let text = reason(fault);
        let code = match fault {
            Fault::Sql(error) => error.sqlite_error_code(),
            Fault::Store(_) => None,
        };
        if matches!(code, Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
            return self.undo(outcomes.len(), &text);
        }
        // Frames may have reached the disk although the sync failed: only a fresh look can tell.
        self.roll_back();
        self.poisoned = Some(text.clone());
        // If this is refused, the WAL is merely copied when the connection closes.
        _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        let unknown = |outcome: Result<(), StoreError>| {
            outcome.and_then(|()| Err(StoreError::OutcomeUnknown { reason: text.clone() }))
        };
        Verdict { outcomes: outcomes.into_iter().map(unknown).collect(), poison: Some(text.clone()) }
    }

    fn undo(&mut self, count: usize, text: &str) -> Verdict {
        self.roll_back();
        Verdict { outcomes: (0..count).map(|_| Err(undone(text))).collect(), poison: None }
    }

    fn roll_back(&mut self) {
        self.caches.rolled_back();
        if !self.conn.is_autocommit() {
            // If even this fails, the next BEGIN fails and says so.
            _ = self.step(sql::ROLLBACK);
        }
    }

    fn step(&self, sql: &str) -> Res<()> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Returns about how many frames the WAL has grown by since it was last copied.
    pub(super) fn frames_since_checkpoint(&self) -> u64 {
        self.frames
    }

    /// Copies the rest of the WAL while this process does not write, and truncates it if no connection reads from it.
    /// Returns whether all of it was copied, and truncated if asked for. Nothing is waited for: the write lock of the WAL
    /// is held until the readers are gone, if they are waited for.
    pub(super) fn finish_wal(&mut self, truncates: bool) -> Res<bool> {
        if let Some(reason) = &self.poisoned {
            return Err(StoreError::OutcomeUnknown { reason: reason.clone() }.into());
        }
        self.frames = 0;
        copy_wal(&self.conn, if truncates { sql::WAL_TRUNCATE } else { sql::WAL_PASSIVE }).map(WalCopy::is_whole)
    }

    /// Begins to count the frames anew.
    pub(super) fn count_anew(&mut self) {
        self.frames = 0;
    }
}

/// The result of a WAL checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalCopy {
    /// True if another checkpoint, a writer or a reader was in the way.
    pub(super) busy: bool,
    /// Frames in the WAL.
    pub(super) frames: u64,
    /// Frames of it that the file holds.
    pub(super) copied: u64,
}

impl WalCopy {
    /// Returns whether the file holds all frames.
    pub(super) fn is_whole(self) -> bool {
        !self.busy && self.copied >= self.frames
    }
}

/// Runs a WAL checkpoint, which reports that it was in the way of others as a row, not as an error.
pub(super) fn copy_wal(conn: &Connection, sql: &str) -> Res<WalCopy> {
    // Numbers that are not known are -1.
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(conn.query_row(sql, [], |row| {
        Ok(WalCopy { busy: row.get::<_, i64>(0)? != 0, frames: count(row.get(1)?), copied: count(row.get(2)?) })
    })?)
}

fn undone(reason: &str) -> StoreError {
    StoreError::Write { reason: format!("the whole group of commits was rolled back: {reason}"), source: None }
}
