//! Copies the WAL into the file on a thread of its own.
//!
//! SQLite's own checkpoints run inside a commit and drop their errors. Here a thread copies when the WAL has grown past
//! a size, and again after a pause while a reader is in the way; `check` reports its last error. No checkpoint waits:
//! one that waits for a reader would hold the write lock meanwhile, and stop the writers of all processes.

use super::group::{Core, WalCopy, copy_wal, copy_whole_wal};
use crate::limits::{WAL_COPY_BYTES, WAL_RESTART_BYTES, WAL_RETRY_MAX, WAL_RETRY_MIN, WAL_TRUNCATE_BYTES};
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Res, found_busy, reason};
use crate::store::sqlite::file::lock;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::wal_tail::FRAME_BYTES;
use crate::store::sqlite::sql;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const COPY_FRAMES: u64 = WAL_COPY_BYTES / FRAME_BYTES;
const RESTART_FRAMES: u64 = WAL_RESTART_BYTES / FRAME_BYTES;
const TRUNCATE_FRAMES: u64 = WAL_TRUNCATE_BYTES / FRAME_BYTES;

/// The checkpointer of a file. It starts when it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Wal(Arc<WalInner>);

#[derive(Debug)]
struct WalInner {
    place: FilePlace,
    core: Arc<Mutex<Core>>,
    /// The connection that copies while others write. SQLite does not wait for another checkpoint to end, so those of
    /// this process take turns with it.
    copier: Mutex<Option<Connection>>,
    state: Mutex<WalState>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct WalState {
    due: bool,
    stopping: bool,
    /// The pause before the next attempt, if the last one did not copy the whole WAL.
    retry: Option<Duration>,
    error: Option<String>,
}

impl Wal {
    /// Makes a checkpointer that does not run yet.
    pub(crate) fn new(place: FilePlace, core: Arc<Mutex<Core>>) -> Self {
        Self(Arc::new(WalInner {
            place,
            core,
            copier: Mutex::default(),
            state: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
        }))
    }

    /// Says how much the WAL has grown since it was last copied.
    pub(crate) fn grown_by(&self, frames: u64) {
        if frames >= COPY_FRAMES {
            self.copy_soon();
        }
    }

    /// Copies the WAL in the background.
    pub(crate) fn copy_soon(&self) {
        let mut state = self.0.state.lock();
        if state.due || state.stopping {
            return;
        }
        state.due = true;
        self.0.wake.notify_one();
        drop(state);
        let mut thread = self.0.thread.lock();
        if thread.is_none() {
            let inner = Arc::clone(&self.0);
            match std::thread::Builder::new().name("annals-wal".into()).spawn(move || inner.run()) {
                Ok(started) => *thread = Some(started),
                Err(error) => self.0.state.lock().error = Some(format!("the WAL checkpointer did not start: {error}")),
            }
        }
    }

    /// Copies the whole WAL into the file and empties it, if no reader is in the way: nothing is waited for.
    pub(crate) fn truncate(&self) -> Result<(), StoreError> {
        let busy = || StoreError::Busy { waited_ms: 0, holder: lock::holder(&self.0.place.path) };
        match self.0.truncate() {
            Ok(true) => Ok(()),
            Ok(false) => Err(busy()),
            Err(fault) => Err(fault.into_write(busy)),
        }
    }

    /// Returns how much of the WAL is copied, without copying more.
    pub(crate) fn progress(&self) -> Res<WalCopy> {
        let mut copier = self.0.copier.lock();
        copy_wal(self.0.connection(&mut copier)?, sql::WAL_NOOP)
    }

    /// Returns the last error, if the checkpoints since have not succeeded.
    pub(crate) fn error(&self) -> Option<String> {
        self.0.state.lock().error.clone()
    }

    /// Copies the log once.
    #[cfg(test)]
    pub(crate) fn copy_once(&self) {
        self.0.copy().map(drop).unwrap();
    }

    /// Plants an error of the last attempt.
    #[cfg(test)]
    pub(crate) fn fail_to_copy(&self, error: &str) {
        self.0.state.lock().error = Some(error.to_owned());
    }

    /// Ends the thread, and empties the WAL if no reader is in the way.
    pub(crate) fn close(&self) {
        self.0.state.lock().stopping = true;
        self.0.wake.notify_all();
        let thread = self.0.thread.lock().take();
        // A thread that panicked leaves the WAL as it is, which is safe.
        _ = thread.map(JoinHandle::join);
        *self.0.copier.lock() = None;
        // If this fails, the WAL stays and is read at the next open.
        _ = self.0.core.lock().empty_wal();
    }
}

impl WalInner {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while !state.due && !state.stopping {
                match state.retry {
                    Some(pause) => state.due |= self.wake.wait_for(&mut state, pause).timed_out(),
                    None => self.wake.wait(&mut state),
                }
            }
            if state.stopping {
                return;
            }
            // Frames that are added from now on make it due again.
            state.due = false;
            drop(state);
            let copied = self.copy();
            let mut state = self.state.lock();
            state.retry = match copied {
                Ok(true) => None,
                _ => Some(state.retry.map_or(WAL_RETRY_MIN, |pause| (2 * pause).min(WAL_RETRY_MAX))),
            };
            state.error = copied.err().map(|fault| format!("the WAL could not be copied: {}", reason(&fault)));
        }
    }

    /// Copies the WAL; returns whether nothing was in the way.
    fn copy(&self) -> Res<bool> {
        let mut copier = self.copier.lock();
        let mut core = self.core.lock();
        core.count_anew();
        let marked = core.mark_copy();
        drop(core);
        if found_busy(&marked) {
            return Ok(false);
        }
        marked?;
        let copied = copy_wal(self.connection(&mut copier)?, sql::WAL_PASSIVE);
        // Before the writers are waited for: what happens to the file meanwhile is not taken for the copy.
        let file = self.place.stamp().filter(|_| copied.is_ok());
        self.core.lock().note_copied(file);
        let copy = copied?;
        if copy.frames <= RESTART_FRAMES || copy.busy {
            return Ok(copy.is_whole());
        }
        // Most is copied already, so the writers wait only for what came meanwhile. To truncate is to hold the write
        // lock: those of other processes wait too.
        self.core.lock().finish_wal(copy.is_whole() && copy.frames > TRUNCATE_FRAMES)
    }

    /// Copies the WAL beside the writers, and then, in their place, its last frames; returns whether it was emptied.
    fn truncate(&self) -> Res<bool> {
        let mut copier = self.copier.lock();
        self.core.lock().verify_pair()?;
        Ok(copy_whole_wal(self.connection(&mut copier)?)? && self.core.lock().finish_wal(true)?)
    }

    fn connection<'a>(&self, copier: &'a mut Option<Connection>) -> Res<&'a Connection> {
        match copier {
            Some(conn) => Ok(conn),
            None => Ok(copier.insert(open::connect_checkpointer(&self.place)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::file::paths;
    use crate::store::sqlite::tests::{Bench, raw};
    use std::fs;

    /// A checkpointer of the file of a store, which does not run.
    fn checkpointer(bench: &Bench) -> Wal {
        let place = bench.store.pool.place().clone();
        let core = Core::new(open::connect_checkpointer(&place).unwrap(), place.clone()).unwrap();
        Wal::new(place, Arc::new(Mutex::new(core)))
    }

    /// Lets the WAL of a store hold a commit of so many bytes, and returns its length.
    fn fill(bench: &Bench, bytes: u64) -> u64 {
        let conn = raw(&bench.path());
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF").unwrap();
        conn.execute_batch("CREATE TABLE IF NOT EXISTS app_a (x)").unwrap();
        conn.execute("INSERT INTO app_a VALUES (zeroblob(?1))", [bytes as i64]).unwrap();
        fs::metadata(paths::beside(&bench.path(), "-wal")).unwrap().len()
    }

    fn wal_bytes(bench: &Bench) -> u64 {
        fs::metadata(paths::beside(&bench.path(), "-wal")).unwrap().len()
    }

    #[test]
    fn a_copy_empties_a_wal_that_has_become_large_and_no_smaller_one() {
        let bench = Bench::new();
        let wal = checkpointer(&bench);
        let beyond = |bytes: u64| bytes + bytes / 16;
        let smaller = fill(&bench, beyond(WAL_RESTART_BYTES));
        assert!(smaller > WAL_RESTART_BYTES && smaller < WAL_TRUNCATE_BYTES);
        assert!(wal.0.copy().unwrap());
        assert_eq!(wal_bytes(&bench), smaller + FRAME_BYTES, "its last transaction is a mark");
        assert!(wal.progress().unwrap().is_whole());
        let large = fill(&bench, beyond(WAL_TRUNCATE_BYTES));
        assert!(large > WAL_TRUNCATE_BYTES);
        assert!(wal.0.copy().unwrap());
        assert_eq!(wal_bytes(&bench), 0);
    }

    #[test]
    fn a_reader_of_older_pages_keeps_a_large_wal() {
        let bench = Bench::new();
        let wal = checkpointer(&bench);
        fill(&bench, 1);
        let reader = raw(&bench.path());
        reader.execute_batch("BEGIN; SELECT * FROM app_a").unwrap();
        let bytes = fill(&bench, WAL_RESTART_BYTES + WAL_RESTART_BYTES / 16);
        assert!(!wal.0.copy().unwrap(), "a reader is in the way");
        assert_eq!(wal_bytes(&bench), bytes + FRAME_BYTES);
        reader.execute_batch("COMMIT").unwrap();
        assert!(wal.0.copy().unwrap());
        wal.truncate().unwrap();
        assert_eq!(wal_bytes(&bench), 0);
    }
}
