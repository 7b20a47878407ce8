//! A lock of another program: the commits of a chain that waits for it keep their places, and others are refused.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use annals::base::{CheckpointId, Namespace, ThreadId};
use annals::rusqlite::Connection;
use annals::store::batch::{Batch, NewCheckpoint, Parent};
use annals::store::log::CommitChain;
use annals::store::{OpenOptions, Source, Store, StoreError};

use crate::GUARD;

fn opened(folder: &Path, busy_timeout_ms: u64) -> (Store, PathBuf) {
    let path = folder.join("store.db");
    (Store::open_with(&path, OpenOptions::new().busy_timeout_ms(busy_timeout_ms)).unwrap(), path)
}

/// Takes the write lock, as another program does.
fn lock(path: &Path) -> Connection {
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

/// A batch with one checkpoint onto `after`.
fn batch(store: &Store, thread: &str, after: Option<CheckpointId>) -> Batch {
    let id = store.mint_checkpoint(0, after.as_ref());
    let mut batch = Batch::new(ThreadId::new(thread).unwrap(), Namespace::root(), after);
    batch.checkpoints.push(NewCheckpoint::new(id, after.map(Parent::Local), 0, Source::Loop, store.now()));
    batch
}

/// A chain that waits for locks, and the waits of its commits that were reported, in milliseconds.
fn outwaiting() -> (CommitChain, Receiver<u64>) {
    let (sender, told) = channel();
    let chain = CommitChain::begin_with_lock_wait(move |busy| {
        let StoreError::Busy { waited_ms, .. } = busy else { panic!("{busy}") };
        sender.send(*waited_ms).unwrap();
    });
    (chain, told)
}

fn is_busy<T: std::fmt::Debug>(refused: Result<T, StoreError>, expected_ms: u64) {
    assert!(matches!(refused, Err(StoreError::Busy { waited_ms, .. }) if waited_ms == expected_ms), "{refused:?}");
}

#[test]
fn commits_that_outwait_a_lock_keep_their_order_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, path) = opened(folder.path(), 1_000);
    let (chain, told) = outwaiting();
    let first = batch(&store, "a", None);
    let second = batch(&store, "a", first.head_after());
    let third = batch(&store, "a", second.head_after());
    let fourth = batch(&store, "a", third.head_after());
    let last = fourth.head_after();

    let other = lock(&path);
    let submitted = [first, second].map(|batch| store.backend().submit(chain.append(batch)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| submitted[1].wait());
        is_busy(store.commit(&batch(&store, "b", None)), 1_000);
        assert_eq!(told.recv_timeout(GUARD), Ok(1_000));
        other.execute_batch("ROLLBACK").unwrap();
        waits.join().unwrap().unwrap();
    });
    submitted[0].wait().unwrap();
    assert!(told.try_recv().is_err(), "the wait of both is told once");

    // A caller that writes its batch itself waits for the lock as well; the next wait is told anew.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| store.commit(&chain.append(third)));
        assert_eq!(told.recv_timeout(GUARD), Ok(1_000));
        let follows = store.backend().submit(chain.append(fourth));
        is_busy(store.commit(&batch(&store, "b", None)), 1_000);
        other.execute_batch("ROLLBACK").unwrap();
        commits.join().unwrap().unwrap();
        follows.wait().unwrap();
    });
    assert_eq!(store.thread("a").unwrap().head().unwrap().map(|head| head.id()), last);
    assert!(store.thread("b").unwrap().head().unwrap().is_none() && chain.failure().is_none());
}

#[test]
fn a_lock_is_outwaited_twelve_times() {
    let folder = tempfile::tempdir().unwrap();
    let (store, path) = opened(folder.path(), 20);
    let (chain, told) = outwaiting();
    let _other = lock(&path);
    let first = batch(&store, "a", None);
    let next = batch(&store, "a", first.head_after());
    is_busy(store.commit(&chain.append(first)), 12 * 20);
    // A caller that stands still until the last wait is over finds the outcome, and has no wait to report.
    let reported: Vec<u64> = told.try_iter().collect();
    assert!(reported == [20] || reported.is_empty(), "{reported:?}");
    // The chain has ended with it.
    is_busy(store.backend().submit(chain.append(next)).wait(), 20);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_listener_of_lock_waits_may_use_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let (store, path) = opened(folder.path(), 1_000);
    let (other, own) = (Mutex::new(lock(&path)), store.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let chain = CommitChain::begin_with_lock_wait(move |_| {
        let refused = own.commit(&batch(&own, "b", None));
        other.lock().unwrap().execute_batch("ROLLBACK").unwrap();
        let stored = own.commit(&batch(&own, "b", None));
        log.lock().unwrap().push((matches!(refused, Err(StoreError::Busy { .. })), stored.is_ok()));
    });
    store.commit(&chain.append(batch(&store, "a", None))).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(true, true)]);
}

#[test]
fn a_store_that_closes_outwaits_no_lock() {
    let is_closed_within_a_wait = || {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = opened(folder.path(), 500);
        let (chain, told) = outwaiting();
        let _other = lock(&path);
        let submitted = store.backend().submit(chain.append(batch(&store, "a", None)));
        drop(store);
        assert!(submitted.is_settled());
        let Err(StoreError::Busy { waited_ms, .. }) = submitted.wait() else { panic!("the lock is held") };
        waited_ms == 500 && told.try_recv().is_err()
    };
    // The first wait of a round is over before the store closes if this thread stands still in between.
    assert!((0..20).any(|_| is_closed_within_a_wait()), "a store that closes waits again");
}
