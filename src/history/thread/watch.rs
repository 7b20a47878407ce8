//! Follows the log: every checkpoint once, in the order of the log, by any handle of any process.
//!
//! A follower has a position in the log and reads the checkpoints after it. While there are none it waits for a signal
//! of this process, and looks 50 times a second at a counter that other processes change. *Absent:* checkpoints of
//! threads that were deleted before they were read, and the key-value memory.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::internal::Stopwatch;
use crate::base::{ThreadId, debug_fields};
use crate::limits::WATCH_PAGE_ROWS;
use crate::store::log::{LogExt, LogPosition, LogWatch};
use crate::store::record::CheckpointRecord;
use crate::store::{Store, StoreError};

use super::Thread;
use crate::history::read::snapshot::Snapshot;

/// A follower of a log. It returns each checkpoint once, in the order in which they were committed; those of one commit
/// follow each other.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use std::time::Duration;
///
/// #[derive(State, Clone, Default)]
/// struct Note { text: String }
///
/// # fn main() -> Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let store = Store::open(folder.path().join("notes.db"))?;
/// let mut watch = store.watch()?;
/// // Any process that has the file open.
/// store.thread("monday")?.update(Note::update().text("eggs"))?;
///
/// let new = watch.next(Duration::from_secs(5))?.expect("a checkpoint was committed");
/// assert_eq!(new.record().point.thread.as_str(), "monday");
/// assert!(watch.next(Duration::ZERO)?.is_none(), "each checkpoint comes once");
///
/// // A follower that stores the position goes on from there, also after a restart.
/// let position = watch.position();
/// store.thread("tuesday")?.update(Note::update().text("rice"))?;
/// let mut later = store.watch_from(position)?;
/// assert_eq!(later.next(Duration::ZERO)?.unwrap().record().point.thread.as_str(), "tuesday");
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    // Dropped before the store, which closes its file last.
    signals: LogWatch,
    page: VecDeque<(LogPosition, CheckpointRecord)>,
    /// The position after `page`.
    read_up_to: LogPosition,
    /// The position after the last checkpoint that was returned, or that of the caller.
    position: LogPosition,
    thread: Option<ThreadId>,
    store: Store,
}

impl Store {
    /// Follows the log from now on: all checkpoints of all threads and namespaces.
    ///
    /// # Errors
    /// [`StoreError::Read`]; [`StoreError::Invalid`] for a backend that cannot be followed.
    pub fn watch(&self) -> Result<Watch, StoreError> {
        Watch::new(self, None, None)
    }

    /// Follows the log from a position on ([`Watch::position`]): the first checkpoint is the one after it.
    /// [`LogPosition::START`] is the beginning of the log.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub fn watch_from(&self, position: LogPosition) -> Result<Watch, StoreError> {
        Watch::new(self, None, Some(position))
    }

    /// Returns the position in the log after which about `newest` checkpoints follow, at most; 0 for the position after
    /// the last one.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        self.backend().follow()?.position(newest)
    }

    /// Returns the checkpoints after a position of the log, at most `limit`, in the order of the log, and the position
    /// after them. A program that waits for more of them has a [`Watch`].
    ///
    /// # Errors
    /// As [`Store::watch`]; [`StoreError::Corrupt`].
    ///
    /// # Example: the newest checkpoints of a store
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for id in ["bern", "basel", "chur"] {
    ///     store.thread(id)?.set("day", 1)?;
    /// }
    /// let (newest, position) = store.changes_after(&store.position(2)?, 10)?;
    /// let threads: Vec<_> = newest.iter().map(|snapshot| snapshot.point().thread.as_str()).collect();
    /// assert_eq!(threads, ["basel", "chur"]);
    /// assert_eq!(position, store.position(0)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes_after(
        &self,
        position: &LogPosition,
        limit: usize,
    ) -> Result<(Vec<Snapshot>, LogPosition), StoreError> {
        let page = self.backend().follow()?.changes_after(position, None, limit)?;
        let snapshots = page.records.into_iter().map(|(_, record)| Snapshot::new(self.clone(), record));
        Ok((snapshots.collect(), page.position))
    }

    /// Returns the signals of the log, which come with every commit, also with one that has no checkpoint.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub fn watch_log(&self) -> Result<LogWatch, StoreError> {
        self.backend().follow()?.watch()
    }
}

impl Thread {
    /// Follows the thread from now on: its checkpoints in all namespaces.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub fn watch(&self) -> Result<Watch, StoreError> {
        Watch::new(self.store(), Some(self.id().clone()), None)
    }

    /// Follows the thread from a position of the log on, as [`Store::watch_from`].
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub fn watch_from(&self, position: LogPosition) -> Result<Watch, StoreError> {
        Watch::new(self.store(), Some(self.id().clone()), Some(position))
    }
}

impl Watch {
    fn new(store: &Store, thread: Option<ThreadId>, after: Option<LogPosition>) -> Result<Self, StoreError> {
        // Signals first: a commit after the look at the end of the log is noticed.
        let signals = store.backend().follow()?.watch()?;
        let position = after.map_or_else(|| store.position(0), Ok)?;
        let (store, page) = (store.clone(), VecDeque::new());
        Ok(Self { signals, page, read_up_to: position, position, thread, store })
    }

    /// Waits for the next checkpoint, at most for a time; `None` when that is over. A zero time only looks.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]. The position is as before.
    #[allow(clippy::should_implement_trait, reason = "an iterator has no timeout")]
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Snapshot>, StoreError> {
        let began = Stopwatch::start();
        loop {
            let seen = self.signals.signal.count();
            if let Some(snapshot) = self.ready()? {
                return Ok(Some(snapshot));
            }
            loop {
                let Some(left) = timeout.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                    // A commit of another handle just before the end.
                    return self.ready();
                };
                if self.signals.wait(seen, left)? {
                    break;
                }
            }
        }
    }

    /// Returns the position in the log after the checkpoints that were returned, for [`Store::watch_from`].
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Returns the next checkpoint if it is committed.
    fn ready(&mut self) -> Result<Option<Snapshot>, StoreError> {
        if self.page.is_empty() {
            let page = self.store.backend().follow()?.changes_after(
                &self.read_up_to,
                self.thread.as_ref(),
                WATCH_PAGE_ROWS,
            )?;
            (self.page, self.read_up_to) = (page.records.into(), page.position);
        }
        let Some((position, record)) = self.page.pop_front() else { return Ok(None) };
        self.position = position;
        Ok(Some(Snapshot::new(self.store.clone(), record)))
    }
}

debug_fields!(Watch { thread, position });

#[cfg(feature = "futures")]
pub use self::streams::WatchStream;

#[cfg(feature = "futures")]
mod streams {
    //! A follower as a stream: a thread waits for the signals and wakes the task.

    use std::mem;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::thread::JoinHandle;

    use futures_core::Stream;
    use parking_lot::Mutex;

    use super::{LogPosition, Snapshot, StoreError, Watch};
    use crate::base::debug_fields;
    use crate::limits::WATCH_WAIT;
    use crate::store::log::{LogSignal, LogWatch};

    /// A follower as a stream that does not end: [`Watch::into_stream`].
    pub struct WatchStream {
        watch: Watch,
        waiter: Option<Waiter>,
    }

    /// The thread that waits for signals. It ends when this is dropped.
    struct Waiter {
        shared: Arc<WaiterShared>,
        signal: Arc<LogSignal>,
        thread: Option<JoinHandle<()>>,
    }

    #[derive(Default)]
    struct WaiterShared {
        waker: Mutex<Option<Waker>>,
        error: Mutex<Option<StoreError>>,
        ended: AtomicBool,
    }

    impl Watch {
        /// Returns the follower as a stream. A poll reads the log, which blocks for the microseconds of an indexed
        /// read; the first poll that finds nothing starts a thread, which ends with the stream.
        ///
        /// # Example
        /// ```
        /// use annals::prelude::*;
        /// use futures_core::Stream;
        /// # use std::{pin::{Pin, pin}, task::{Context, Poll}};
        ///
        /// # #[derive(State, Clone, Default)]
        /// # struct Note { text: String }
        /// # fn main() -> Result<()> {
        /// let store = Store::memory();
        /// let mut stream = store.watch()?.into_stream();
        /// store.thread("monday")?.update(Note::update().text("eggs"))?;
        /// # let mut waiting = Context::from_waker(std::task::Waker::noop());
        /// // With a crate of futures: `stream.next().await`.
        /// let Poll::Ready(Some(new)) = pin!(stream).poll_next(&mut waiting) else { panic!() };
        /// assert_eq!(new?.record().point.thread.as_str(), "monday");
        /// # Ok(())
        /// # }
        /// ```
        pub fn into_stream(self) -> WatchStream {
            WatchStream { watch: self, waiter: None }
        }
    }

    impl WatchStream {
        /// Returns the position in the log, as [`Watch::position`].
        pub fn position(&self) -> LogPosition {
            self.watch.position()
        }

        fn start(&mut self) -> Result<(), StoreError> {
            if self.waiter.is_some() {
                return Ok(());
            }
            let signal = Arc::clone(&self.watch.signals.signal);
            let own = LogWatch::new(Arc::clone(&signal), None);
            let (signals, shared) = (mem::replace(&mut self.watch.signals, own), Arc::<WaiterShared>::default());
            let inner = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("annals-watch".into());
            let thread = builder.spawn(move || inner.run(signals));
            let thread = thread.map_err(|error| StoreError::Read {
                reason: "the thread of a follower did not start".into(),
                source: Some(error.into()),
            })?;
            self.waiter = Some(Waiter { shared, signal, thread: Some(thread) });
            Ok(())
        }
    }

    impl WaiterShared {
        fn run(&self, mut signals: LogWatch) {
            let mut seen = signals.signal.count();
            while !self.ended.load(Ordering::SeqCst) {
                match signals.wait(seen, WATCH_WAIT) {
                    Ok(false) => continue,
                    Ok(true) => {}
                    // The next look may succeed.
                    Err(error) => *self.error.lock() = Some(error),
                }
                seen = signals.signal.count();
                self.wake();
            }
        }

        fn wake(&self) {
            if let Some(waker) = self.waker.lock().take() {
                waker.wake();
            }
        }
    }

    impl Drop for Waiter {
        fn drop(&mut self) {
            self.shared.ended.store(true, Ordering::SeqCst);
            self.signal.notify();
            // Its connection is closed before the store is.
            _ = self.thread.take().map(JoinHandle::join);
        }
    }

    impl Stream for WatchStream {
        type Item = Result<Snapshot, StoreError>;

        fn poll_next(self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            let this = self.get_mut();
            if let Some(ready) = this.watch.ready().transpose() {
                return Poll::Ready(Some(ready));
            }
            if let Err(error) = this.start() {
                return Poll::Ready(Some(Err(error)));
            }
            if let Some(waiter) = &this.waiter {
                *waiter.shared.waker.lock() = Some(waiting.waker().clone());
                if let Some(error) = waiter.shared.error.lock().take() {
                    return Poll::Ready(Some(Err(error)));
                }
            }
            // The waker was registered after the look, and a commit in between did not wake it.
            match this.watch.ready().transpose() {
                Some(ready) => Poll::Ready(Some(ready)),
                None => Poll::Pending,
            }
        }
    }

    debug_fields!(WatchStream { watch });
}
