//! Followers of the log: every checkpoint once, in order, from any position on, also those of other processes.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use annals::history::Watch;
use annals::prelude::*;
use annals::store::log::{LogExt, LogPosition};
use annals::store::{Key, OpenOptions, StoreError};
use futures_core::Stream;

use super::on_both::on_both;

#[derive(State, Clone, Default)]
struct Count {
    n: u64,
}

/// Longer than any wait of a test that passes.
const LONG: Duration = Duration::from_secs(300);

/// The variable with the path of the file that the other process writes.
const WATCHED: &str = "ANNALS_WATCHED";
const WRITES: usize = 20;

fn write(store: &Store, thread: &str, n: u64) -> u64 {
    let thread = store.thread(thread).unwrap();
    let id = thread.update(Count::update().n(n)).unwrap();
    thread.at(id).unwrap().record().seq
}

fn next(watch: &mut Watch) -> u64 {
    let found = watch.next(LONG).unwrap().expect("a checkpoint comes");
    found.record().seq
}

#[test]
fn a_follower_misses_nothing_under_four_writers() {
    on_both(|store| {
        let mut all = store.watch().unwrap();
        let mut one = store.thread("2").unwrap().watch().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || (0..50).for_each(|n| _ = write(store, &writer.to_string(), n)));
            }
            let seen: Vec<u64> = (0..200).map(|_| next(&mut all)).collect();
            assert!(seen.is_sorted_by(|a, b| a < b), "each once, in the order of the log: {seen:?}");
            let of_thread: Vec<Snapshot> = (0..50).map(|_| one.next(LONG).unwrap().unwrap()).collect();
            assert!(of_thread.iter().all(|snapshot| snapshot.record().point.thread.as_str() == "2"));
            let read = |snapshot: &Snapshot| snapshot.get("n").unwrap().unwrap().as_int().unwrap();
            assert_eq!(of_thread.iter().map(read).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
        });
        assert!(all.next(Duration::ZERO).unwrap().is_none() && one.next(Duration::ZERO).unwrap().is_none());
    });
}

#[test]
fn a_follower_begins_at_any_position() {
    on_both(|store| {
        let mut positions = vec![LogPosition::START];
        let mut all = store.watch_from(LogPosition::START).unwrap();
        let seqs: Vec<u64> = (0..300).map(|n| write(store, "t", n)).collect();
        for seq in &seqs {
            assert_eq!(next(&mut all), *seq);
            positions.push(all.position());
        }
        for from in [0, 1, 255, 256, 299, 300] {
            let mut watch = store.watch_from(positions[from]).unwrap();
            let left: Vec<u64> =
                std::iter::from_fn(|| watch.next(Duration::ZERO).unwrap()).map(|s| s.record().seq).collect();
            assert_eq!(left, seqs[from..], "from {from}");
        }
        let mut new = store.thread("none").unwrap().watch_from(LogPosition::START).unwrap();
        assert!(new.next(Duration::from_millis(1)).unwrap().is_none());
    });
}

#[test]
fn a_checkpoint_of_a_deleted_thread_is_passed_over() {
    on_both(|store| {
        let (first, _) = (write(store, "stays", 1), write(store, "goes", 1));
        let last = write(store, "stays", 2);
        let mut watch = store.watch_from(LogPosition::START).unwrap();
        _ = store.delete_thread("goes").unwrap();
        assert_eq!((next(&mut watch), next(&mut watch)), (first, last));
        let again = write(store, "goes", 3);
        assert!(again > last && next(&mut watch) == again, "a number is used once");
    });
}

#[test]
fn a_handle_for_reading_follows_another_one() {
    for key in [None, Some(Key::new([5; 32]))] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("watched.db");
        let options = || key.iter().cloned().fold(OpenOptions::new(), OpenOptions::key);
        let writer = Store::open_with(&path, options()).unwrap();
        let reader = Store::open_with(&path, options().read_only(true)).unwrap();
        let mut watch = reader.watch().unwrap();
        assert!(watch.next(Duration::from_millis(30)).unwrap().is_none());
        for n in 0..3 {
            let seq = write(&writer, "t", n);
            assert_eq!(next(&mut watch), seq);
        }
    }
}

#[test]
fn a_follower_is_told_of_each_commit_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watched.db");
    let store = Store::open(&path).unwrap();
    let mut watch = store.watch().unwrap();
    let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "watch::a_process_writes_for_a_follower", "--nocapture"])
        .env(WATCHED, &path)
        .spawn()
        .unwrap();
    for n in 0..WRITES {
        let snapshot = watch.next(LONG).unwrap().expect("the other process writes");
        assert_eq!(snapshot.get("n").unwrap().unwrap().as_int(), Some(n as i64));
    }
    assert!(writer.wait().unwrap().success());
    assert!(watch.next(Duration::ZERO).unwrap().is_none());
}

/// The other process; without a path it writes to a file of its own.
#[test]
fn a_process_writes_for_a_follower() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os(WATCHED).map_or_else(|| folder.path().join("own.db"), Into::into);
    let store = Store::open(path).unwrap();
    for n in 0..WRITES {
        write(&store, "t", n as u64);
        // The follower waits anew for some of the commits, and finds others together.
        std::thread::sleep(Duration::from_millis(n as u64 % 15));
    }
    assert_eq!(store.thread("t").unwrap().history().unwrap().count(), WRITES);
}

/// Wakes the thread that waits for a stream.
struct Unpark(std::thread::Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        self.0.unpark();
    }
}

fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&unpark));
    let began = Instant::now();
    loop {
        if unpark.1.swap(false, Ordering::SeqCst)
            && let Poll::Ready(ready) = poll(&mut Context::from_waker(&waker))
        {
            return ready;
        }
        assert!(began.elapsed() < LONG, "the stream was not woken");
        std::thread::park_timeout(LONG);
    }
}

#[test]
fn a_stream_is_woken_by_each_commit() {
    on_both(|store| {
        let mut stream = store.watch().unwrap().into_stream();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..30 {
                    std::thread::sleep(Duration::from_millis(n % 3));
                    write(store, "t", n);
                }
            });
            let mut seen = BTreeSet::new();
            for _ in 0..30 {
                let mut one = Box::pin(poll_fn(|waiting| Pin::new(&mut stream).poll_next(waiting)));
                let snapshot = block_on(|waiting| one.as_mut().poll(waiting)).unwrap().unwrap();
                assert!(seen.insert(snapshot.record().seq) && seen.last() == Some(&snapshot.record().seq));
            }
        });
        assert_eq!(stream.position(), store.backend().follow().unwrap().position(0).unwrap());
    });
}

#[test]
fn a_stream_is_woken_by_another_handle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watched.db");
    let (store, other) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
    let mut stream = store.watch().unwrap().into_stream();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            write(&other, "t", 1);
        });
        let snapshot: Result<Snapshot, StoreError> =
            block_on(|waiting| Pin::new(&mut stream).poll_next(waiting)).unwrap();
        assert_eq!(snapshot.unwrap().record().point.thread.as_str(), "t");
    });
}
