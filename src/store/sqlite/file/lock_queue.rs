//! The queue of the processes that wait for the write lock of a store.
//!
//! A process that finds the write lock taken waits for the lock of the folder (`flock`), which Linux grants in the
//! order of arrival, and keeps it only until it has the write lock: the process at the front attempts, the others
//! sleep. It has a turn then, in which further transactions do not queue; after that the next one goes to the end.
//! *Absent:* any promise. A folder that cannot be locked, or whose lock does not come in time, because its owner is
//! stopped or another program has it, leaves attempts by chance.

use super::lock::{LockWait, repeat};
use crate::base::internal::Stopwatch;
use crate::limits::{LOCK_QUEUE_MAX, LOCK_TURN};
use crate::store::sqlite::fault::{Res, found_busy};
use parking_lot::{Condvar, Mutex};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The place of a process in the queue for the write lock of a store.
#[derive(Debug)]
pub(crate) struct LockQueue {
    folder: Option<PathBuf>,
    /// True if the last transaction waited for another process.
    has_waited: bool,
    /// The moment at which it last came to the front.
    turn: Option<Stopwatch>,
    /// The lock that did not come in time.
    late: Option<Arc<TurnSlot>>,
}

/// The lock of the folder, for which a thread waits, as such a wait has no limit.
#[derive(Debug)]
struct TurnSlot {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug)]
enum TurnState {
    Awaited,
    Taken(File),
    /// The wait is over: the thread drops the lock as soon as it has it.
    Late,
    Over,
}

/// Takes the lock of the folder of a file that is to be made, which is held until the result is dropped. Like the turn
/// in the queue, it is not a promise: `None` if it does not come in time, or the folder cannot be locked.
pub(crate) fn turn_to_make(path: &Path, limit: Duration) -> Option<File> {
    LockQueue::new(path).front(limit)
}

impl LockQueue {
    /// Begins without a lock. The path is that of the store.
    pub(crate) fn new(path: &Path) -> Self {
        Self { folder: path.parent().map(Path::to_owned), has_waited: false, turn: None, late: None }
    }

    /// Repeats a step that finds the write lock taken, for at most so many milliseconds.
    pub(crate) fn wait_for<T>(&mut self, limit_ms: u64, mut step: impl FnMut() -> Res<T>) -> Res<T> {
        let begin = Stopwatch::start();
        let has_turn = self.turn.is_some_and(|turn| turn.elapsed() < LOCK_TURN);
        if !self.has_waited || has_turn || limit_ms == 0 {
            let first = step();
            let is_busy = found_busy(&first);
            self.has_waited |= is_busy;
            if !is_busy || limit_ms == 0 {
                return first;
            }
        }
        let limit = Duration::from_millis(limit_ms);
        let front = self.front(limit.min(LOCK_QUEUE_MAX));
        let wait = LockWait::new(limit.saturating_sub(begin.elapsed()));
        let mut is_first = true;
        let result = repeat(if front.is_some() { wait.of_front() } else { wait }, || {
            let result = step();
            self.has_waited |= is_first && found_busy(&result);
            is_first = false;
            result
        });
        self.turn = front.map(|_| Stopwatch::start());
        result
    }

    /// Takes the lock of the folder, which is held until the result is dropped; `None` if it does not come in time.
    fn front(&mut self, limit: Duration) -> Option<File> {
        self.has_waited = false;
        if let Some(late) = &self.late {
            if !matches!(*late.state.lock(), TurnState::Over) {
                return None;
            }
            self.late = None;
        }
        let folder = File::open(self.folder.as_ref()?).ok()?;
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(TryLockError::WouldBlock) => self.has_waited = true,
            Err(TryLockError::Error(_)) => return None,
        }
        let slot = Arc::new(TurnSlot { state: Mutex::new(TurnState::Awaited), changed: Condvar::new() });
        let of_thread = Arc::clone(&slot);
        let builder = std::thread::Builder::new().name("annals-turn".into());
        builder.spawn(move || of_thread.end(folder.lock().ok().map(|()| folder))).ok()?;
        let taken = slot.wait(limit);
        if taken.is_none() {
            self.late = Some(slot);
        }
        taken
    }
}

impl TurnSlot {
    /// Hands the lock to the waiting thread, or drops it.
    fn end(&self, taken: Option<File>) {
        let mut state = self.state.lock();
        *state = match (&*state, taken) {
            (TurnState::Awaited, Some(folder)) => TurnState::Taken(folder),
            _ => TurnState::Over,
        };
        self.changed.notify_one();
    }

    /// Waits for the lock.
    fn wait(&self, limit: Duration) -> Option<File> {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| matches!(state, TurnState::Awaited), limit);
        match std::mem::replace(&mut *state, TurnState::Over) {
            TurnState::Taken(folder) => Some(folder),
            TurnState::Awaited => {
                *state = TurnState::Late;
                None
            }
            TurnState::Late | TurnState::Over => None,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::store::sqlite::fault::Fault;
    use crate::store::sqlite::tests::{GUARD, until};
    use rusqlite::ffi;
    use std::collections::VecDeque;

    fn busy() -> Res<()> {
        Err(Fault::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)))
    }

    /// Waits until a lock that was dropped is free: a process that another test starts has a copy of its descriptor
    /// until it runs its program.
    fn until_free(other: &File) {
        until("the lock is free", || other.try_lock().is_ok());
    }

    /// Returns a queue whose process waited for its last transaction.
    fn waited(path: &Path) -> LockQueue {
        LockQueue { has_waited: true, ..LockQueue::new(path) }
    }

    #[test]
    fn a_write_lock_that_is_free_is_taken_without_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let locked = File::open(folder.path()).unwrap();
        locked.lock().unwrap();
        let mut queue = LockQueue::new(&folder.path().join("x.db"));
        queue.wait_for(60_000, || Ok(())).unwrap();
        assert!(!queue.has_waited && queue.late.is_none());
        assert!(found_busy(&queue.wait_for(0, busy)), "a limit of 0 does not wait");
        assert!(queue.has_waited && queue.late.is_none());
        queue.wait_for(0, || Ok(())).unwrap();
    }

    #[test]
    fn a_process_queues_until_it_finds_the_folder_and_the_write_lock_free() {
        let folder = tempfile::tempdir().unwrap();
        let other = File::open(folder.path()).unwrap();
        let mut queue = LockQueue::new(&folder.path().join("x.db"));
        let mut outcomes: VecDeque<Res<()>> = [busy(), busy(), Ok(())].into();
        queue.wait_for(60_000, || outcomes.pop_front().unwrap()).unwrap();
        assert!(queue.has_waited);
        // In its turn it does not queue.
        loop {
            let turn = Stopwatch::start();
            queue.turn = Some(turn);
            let is_free = queue.wait_for(60_000, || Ok(other.try_lock().is_ok())).unwrap();
            other.unlock().unwrap();
            if turn.elapsed() < LOCK_TURN {
                assert!(is_free && queue.has_waited);
                break;
            }
            queue.has_waited = true;
        }
        queue.turn = None;
        // The lock of the folder is held while the write lock is attempted, and not longer.
        assert!(queue.wait_for(60_000, || Ok(other.try_lock().is_err())).unwrap());
        assert!(!queue.has_waited, "no other process was in the way");
        until_free(&other);
    }

    #[test]
    fn a_lock_of_the_folder_that_comes_late_is_dropped_and_not_waited_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let stopped = File::open(folder.path()).unwrap();
        stopped.lock().unwrap();
        let mut queue = waited(&folder.path().join("x.db"));
        let begin = Stopwatch::start();
        assert!(found_busy(&queue.wait_for(20, busy)));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        assert!(queue.late.is_some());
        // The process goes on by chance.
        assert!(queue.turn.is_none());
        queue.has_waited = true;
        queue.wait_for(60_000, || Ok(())).unwrap();
        assert!(queue.front(GUARD).is_none() && queue.late.is_some());
        assert!(begin.elapsed() < GUARD, "it was waited for again");
        drop(stopped);
        let late = queue.late.clone().unwrap();
        let mut state = late.state.lock();
        late.changed.wait_while(&mut state, |state| !matches!(state, TurnState::Over));
        drop(state);
        queue.has_waited = true;
        let other = File::open(folder.path()).unwrap();
        assert!(queue.wait_for(60_000, || Ok(other.try_lock().is_err())).unwrap());
        assert!(queue.late.is_none());
        until_free(&other);
    }

    #[test]
    fn a_folder_that_cannot_be_locked_leaves_the_attempts_by_chance() {
        for path in [Path::new("/none/such/x.db"), Path::new("/"), Path::new("x.db")] {
            let mut queue = waited(path);
            let mut outcomes: VecDeque<Res<()>> = [busy(), busy(), Ok(())].into();
            queue.wait_for(60_000, || outcomes.pop_front().unwrap()).unwrap();
            assert!(queue.late.is_none(), "{path:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn those_that_wait_get_the_lock_in_the_order_of_their_arrival() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let inode = format!(":{} ", std::fs::metadata(folder.path()).unwrap().ino());
        let waiting = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().filter(|line| line.contains("->") && line.contains(&inode)).count()
        };
        let locked = File::open(folder.path()).unwrap();
        locked.lock().unwrap();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for n in 0..6 {
                let (path, order) = (&path, &order);
                scope.spawn(move || {
                    let turn = waited(path).front(GUARD).expect("the lock of the folder comes");
                    order.lock().push(n);
                    drop(turn);
                });
                // Two equal counts: the list may change while it is read.
                until("the next one waits", || [waiting(), waiting()] == [n + 1; 2]);
            }
            drop(locked);
        });
        assert_eq!(order.into_inner(), [0, 1, 2, 3, 4, 5]);
    }
}
