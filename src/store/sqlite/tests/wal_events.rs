//! Events of the write-ahead log: commits of other handles are announced to every follower of the file.

use super::*;
use crate::store::log::Follow;
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::wal_events::WalEvents;
use crate::store::watch::LogSignal;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waits until a signal has more hints than so many.
fn wait_for_hint(signal: &LogSignal, seen: u64) {
    until("a hint", || signal.hints() > seen);
}

#[test]
fn a_commit_of_another_handle_is_announced_to_each_follower_of_the_file() {
    let mut bench = Bench::new();
    let log = beside(&bench.path(), "-wal");
    let [first, second] = [(); 2].map(|()| Arc::new(LogSignal::default()));
    let events = [&first, &second].map(|signal| WalEvents::of(&log, signal).expect("Linux has events"));
    for n in 0..3 {
        let seen = [&first, &second].map(|signal| signal.hints());
        bench.add(&thread(&format!("t{n}")), None, vec![]);
        wait_for_hint(&first, seen[0]);
        wait_for_hint(&second, seen[1]);
    }
    let [of_first, of_second] = events;
    drop(of_first);
    // The other one shares the watch of the file, which stays.
    let seen = (first.hints(), second.hints());
    bench.add(&thread("more"), None, vec![]);
    wait_for_hint(&second, seen.1);
    assert_eq!(first.hints(), seen.0);
    assert!(of_second.is_live().load(Ordering::Relaxed));
    assert!(WalEvents::of(&beside(&bench.path(), "-none"), &first).is_none(), "it does not exist");
}

#[test]
fn the_events_of_a_file_that_is_gone_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let (path, signal) = (folder.path().join("log"), Arc::new(LogSignal::default()));
    std::fs::write(&path, "bytes").unwrap();
    let events = WalEvents::of(&path, &signal).expect("Linux has events");
    std::fs::remove_file(&path).unwrap();
    until("the end", || !events.is_live().load(Ordering::Relaxed));
    wait_for_hint(&signal, 0);
}

#[test]
fn a_watch_of_a_file_has_hints_and_finds_the_commit_after_them() {
    let mut bench = Bench::new();
    let reader = open(&bench.path());
    let mut watch = reader.watch().unwrap();
    for n in 0..3 {
        let (seen, hints) = (watch.signal.count(), watch.signal.hints());
        bench.add(&thread(&format!("t{n}")), None, vec![]);
        wait_for_hint(&watch.signal, hints);
        while !watch.wait(seen, GUARD).unwrap() {}
        assert_eq!(watch.signal.count(), seen, "it was a commit of another handle");
    }
}
