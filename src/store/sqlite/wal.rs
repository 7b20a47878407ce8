//! Copies the WAL into the file on a thread of its own.
//!
//! SQLite's own checkpoints run inside a commit and drop their errors. Here a thread copies when the WAL has grown past
//! a size, and `check` reports the last error of that thread.

use super::fault::Res;
use super::group::Core;
use super::open::{self, FilePlace};
use super::sql;
use super::writer::reason;
use crate::base::limits::{WAL_COPY_BYTES, WAL_RESTART_BYTES, WAL_TRUNCATE_BYTES};
use crate::store::error::StoreError;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of a WAL frame: a page and its header.
const FRAME_BYTES: u64 = sql::PAGE_BYTES + 24;
const COPY_FRAMES: u64 = WAL_COPY_BYTES / FRAME_BYTES;
const RESTART_FRAMES: u64 = WAL_RESTART_BYTES / FRAME_BYTES;
const TRUNCATE_FRAMES: u64 = WAL_TRUNCATE_BYTES / FRAME_BYTES;

/// The checkpointer of a file. It starts when it is needed.
#[derive(Clone, Debug)]
pub(super) struct Wal(Arc<WalInner>);

#[derive(Debug)]
struct WalInner {
    place: FilePlace,
    core: Arc<Mutex<Core>>,
    /// SQLite does not wait for another checkpoint to end, so those of this process take turns here.
    copying: Mutex<()>,
    state: Mutex<WalState>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct WalState {
    due: bool,
    stopping: bool,
    error: Option<String>,
}

impl Wal {
    /// Makes a checkpointer that does not run yet.
    pub(super) fn new(place: FilePlace, core: Arc<Mutex<Core>>) -> Self {
        Self(Arc::new(WalInner {
            place,
            core,
            copying: Mutex::default(),
            state: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
        }))
    }

    /// Says how much the WAL has grown since it was last copied.
    pub(super) fn grown_by(&self, frames: u64) {
        if frames < COPY_FRAMES {
            return;
        }
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

    /// Copies the whole WAL into the file and empties it.
    pub(super) fn truncate(&self) -> Result<(), StoreError> {
        let _copying = self.0.copying.lock();
        self.0.core.lock().truncate_wal()
    }

    /// Returns the last error, if the checkpoints since have not succeeded.
    pub(super) fn error(&self) -> Option<String> {
        self.0.state.lock().error.clone()
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.0.state.lock().stopping = true;
        self.0.wake.notify_all();
        let thread = self.0.thread.lock().take();
        // A thread that panicked leaves the WAL as it is, which is safe.
        _ = thread.map(JoinHandle::join);
    }
}

impl WalInner {
    fn run(&self) {
        let mut conn = None;
        loop {
            let mut state = self.state.lock();
            while !state.due && !state.stopping {
                self.wake.wait(&mut state);
            }
            if state.stopping {
                return;
            }
            drop(state);
            let copied = self.copy(&mut conn);
            let mut state = self.state.lock();
            state.due = false;
            state.error = copied.err().map(|fault| format!("the WAL could not be copied: {}", reason(&fault)));
        }
    }

    fn copy(&self, conn: &mut Option<Connection>) -> Res<()> {
        let conn = match conn {
            Some(conn) => conn,
            None => conn.insert(open::connect_checkpointer(&self.place)?),
        };
        let _copying = self.copying.lock();
        self.core.lock().count_anew();
        let frames: i64 = conn.query_row(sql::WAL_PASSIVE, [], |row| row.get(1))?;
        let frames = u64::try_from(frames).unwrap_or(0);
        if frames > RESTART_FRAMES {
            // Most is copied already, so the writers wait only for what came meanwhile.
            self.core.lock().finish_wal(frames > TRUNCATE_FRAMES)?;
        }
        Ok(())
    }
}
