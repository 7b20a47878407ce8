//! Events of the write-ahead log: a write to it announces a commit of any process (inotify, on Linux alone).
//!
//! One thread of the process waits for the events of all stores, and passes each on as a hint ([`LogSignal::hint`]).
//! Invariant: the event of a commit comes before the commit can be read, so a hint says when to begin to look.
//! *Absent:* the look itself, and a promise: without events, a follower polls.

use crate::limits::WAL_EVENT_PAUSE;
use crate::store::watch::LogSignal;
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// Bytes for the events of one read. An event of a file has 16.
const BUFFER_BYTES: usize = 1_024;

/// The events of one write-ahead log, for one follower, until this is dropped.
#[derive(Debug)]
pub(crate) struct WalEvents {
    watch: i32,
    follower: Arc<Follower>,
}

#[derive(Debug)]
struct Follower {
    signal: Arc<LogSignal>,
    /// False when no more events come.
    is_live: Arc<AtomicBool>,
}

/// The events of all write-ahead logs that the process follows.
#[derive(Debug)]
struct Watcher {
    events: OwnedFd,
    /// A child process after a fork has this memory, and not the thread.
    process: u32,
    /// The followers by the number of the watch, which all those of one file share.
    followers: Mutex<HashMap<i32, Vec<Arc<Follower>>>>,
}

/// `None` if the system refuses events or the thread.
static WATCHER: LazyLock<Option<Arc<Watcher>>> = LazyLock::new(|| {
    let events = inotify::init(CreateFlags::CLOEXEC).ok()?;
    let watcher = Arc::new(Watcher { events, process: std::process::id(), followers: Mutex::default() });
    let of_thread = Arc::clone(&watcher);
    let thread = std::thread::Builder::new().name("annals-watch".into());
    thread.spawn(move || of_thread.work()).ok()?;
    Some(watcher)
});

impl WalEvents {
    /// Follows a write-ahead log, which exists. Returns `None` if the system refuses that.
    pub(crate) fn of(log: &Path, signal: &Arc<LogSignal>) -> Option<Self> {
        let watcher = Watcher::of_this_process()?;
        let follower = Follower { signal: Arc::clone(signal), is_live: Arc::new(AtomicBool::new(true)) };
        let follower = Arc::new(follower);
        // With the lock, so that the end of another follower does not remove the watch meanwhile.
        let mut followers = watcher.followers.lock();
        let watch = inotify::add_watch(&watcher.events, log, WatchFlags::MODIFY).ok()?;
        followers.entry(watch).or_default().push(Arc::clone(&follower));
        Some(Self { watch, follower })
    }

    /// Returns whether events come.
    pub(crate) fn is_live(&self) -> &Arc<AtomicBool> {
        &self.follower.is_live
    }
}

impl Drop for WalEvents {
    fn drop(&mut self) {
        let Some(watcher) = Watcher::of_this_process() else { return };
        let mut followers = watcher.followers.lock();
        let Some(of_file) = followers.get_mut(&self.watch) else { return };
        of_file.retain(|other| !Arc::ptr_eq(other, &self.follower));
        if of_file.is_empty() {
            followers.remove(&self.watch);
            // It fails if the file is gone, and the watch with it.
            _ = inotify::remove_watch(&watcher.events, self.watch);
        }
    }
}

impl Watcher {
    fn of_this_process() -> Option<&'static Arc<Self>> {
        WATCHER.as_ref().filter(|watcher| watcher.process == std::process::id())
    }

    fn work(&self) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = Reader::new(&self.events, &mut buffer);
        loop {
            match events.next().map(|event| (event.wd(), event.events())) {
                Ok((_, what)) if what.contains(ReadFlags::QUEUE_OVERFLOW) => self.hint_all(true),
                Ok((watch, what)) => self.hint(watch, what.contains(ReadFlags::MODIFY)),
                Err(Errno::INTR) => {}
                Err(_) => return self.hint_all(false),
            }
            if events.is_buffer_empty() {
                std::thread::sleep(WAL_EVENT_PAUSE);
            }
        }
    }

    /// Passes an event on to the followers of a file. After the last one they are forgotten.
    fn hint(&self, watch: i32, is_live: bool) {
        let mut followers = self.followers.lock();
        let Some(of_file) = followers.get(&watch) else { return };
        of_file.iter().for_each(|follower| follower.hint(is_live));
        if !is_live {
            followers.remove(&watch);
        }
    }

    fn hint_all(&self, is_live: bool) {
        self.followers.lock().values().flatten().for_each(|follower| follower.hint(is_live));
    }
}

impl Follower {
    fn hint(&self, is_live: bool) {
        if !is_live {
            self.is_live.store(false, Ordering::Relaxed);
        }
        self.signal.hint();
    }
}
