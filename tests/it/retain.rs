//! Copies of threads, and the trash, on both backends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use annals::base::{Clock, SystemClock, Timestamp};
use annals::history::{PrunePolicy, ThreadQuery};
use annals::prelude::*;
use annals::store::operation::OperationQuery;
use annals::store::{Key, OpenOptions, StoreError};

use super::on_both::on_both;
use crate::GUARD;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Note {
    n: i64,
    #[channel(append)]
    log: List<i64>,
}

fn add(thread: &Thread, n: i64) -> Snapshot {
    let id = thread.update(Note::update().n(n).log([n])).unwrap();
    thread.at(id).unwrap()
}

fn states(thread: &Thread) -> Vec<(Snapshot, Note)> {
    let all = thread.history().unwrap().map(Result::unwrap);
    all.map(|snapshot| (snapshot.clone(), snapshot.state::<Note>().unwrap())).collect()
}

#[test]
fn a_copy_has_the_history_the_branches_and_the_facts() {
    on_both(|store| {
        let trip = store.thread("trip").unwrap();
        let first = [1, 2, 3].map(|n| add(&trip, n));
        trip.name_branch("by train").unwrap();
        trip.rewind_to(&first[1]).unwrap();
        add(&trip, 4);
        trip.in_namespace("part").unwrap().update(Note::update().n(7)).unwrap();
        trip.facts().title("Bern").label("travel").save().unwrap();
        trip.rewind_to(&first[0]).unwrap();
        let copy = trip.copy_to("copy").unwrap();
        let same = |copy: &Thread| {
            for namespace in ["", "part"] {
                let (of, copied) = (trip.in_namespace(namespace).unwrap(), copy.in_namespace(namespace).unwrap());
                let plain = |all: Vec<(Snapshot, Note)>| {
                    all.into_iter().map(|(at, state)| (at.id(), at.record().parent, state)).collect::<Vec<_>>()
                };
                assert_eq!(plain(states(&of)), plain(states(&copied)));
                assert_eq!(of.head().unwrap().unwrap().id(), copied.head().unwrap().unwrap().id());
            }
            let names = |thread: &Thread| {
                let branches = thread.branches().unwrap().into_iter();
                branches.map(|branch| (branch.name.clone(), branch.last.id())).collect::<Vec<_>>()
            };
            assert_eq!(names(&trip), names(copy));
            assert_eq!(trip.info().unwrap().facts, copy.info().unwrap().facts);
        };
        same(&copy);
        let again = trip.copy_to("copy").unwrap_err();
        assert!(matches!(again, StoreError::Conflict { .. }), "{again}");
        add(&copy, 9);
        assert_eq!(states(&trip).len() + 1, states(&copy).len(), "the original does not follow the copy");
        let plain = store.thread("plain").unwrap();
        add(&plain, 1);
        let copy = plain.copy_to("plain copy").unwrap();
        plain.copy_to("plain copy").expect("a repeat changes nothing");
        add(&copy, 2);
        assert!(matches!(plain.copy_to("plain copy"), Err(StoreError::Conflict { .. })), "the copy was written to");
    });
}

/// A clock that lets another writer change a thread when it is read while it is armed, by the thread that made it: the
/// background of the store reads it as well.
#[derive(Clone)]
struct MeddlingClock {
    caller: std::thread::ThreadId,
    thread: Arc<OnceLock<Thread>>,
    is_armed: Arc<AtomicBool>,
}

impl MeddlingClock {
    fn new() -> Self {
        Self { caller: std::thread::current().id(), thread: Arc::default(), is_armed: Arc::default() }
    }
}

impl Clock for MeddlingClock {
    fn now(&self) -> Timestamp {
        if std::thread::current().id() == self.caller && self.is_armed.swap(false, Ordering::SeqCst) {
            let thread = self.thread.get().unwrap();
            thread.facts().title("after").save().unwrap();
            thread.rewind_to(&thread.at("~1").unwrap()).unwrap();
        }
        SystemClock.now()
    }
}

#[test]
fn a_copy_is_the_thread_at_one_time() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("copies.db"), MeddlingClock::new());
    let store = Store::open_with(&path, OpenOptions::new().clock(clock.clone())).unwrap();
    let other = Store::open(&path).unwrap();
    let trip = store.thread("trip").unwrap();
    [1, 2, 3].into_iter().for_each(|n| _ = add(&trip, n));
    trip.facts().title("before").save().unwrap();
    trip.rewind_to(&trip.at("~1").unwrap()).unwrap();
    let head = trip.head().unwrap().unwrap().id();
    clock.thread.set(other.thread("trip").unwrap()).unwrap();
    clock.is_armed.store(true, Ordering::SeqCst);
    let copy = trip.copy_to("copy").unwrap();
    assert!(!clock.is_armed.load(Ordering::SeqCst), "another writer was faster");
    let found = (copy.info().unwrap().title().map(str::to_owned), copy.head().unwrap().unwrap().id());
    assert_eq!(found, (Some("before".to_owned()), head));
    assert_eq!(trip.info().unwrap().title(), Some("after"));
    let stored = store.backend().operations(&OperationQuery::new(Some(copy.id().clone()), 0)).unwrap();
    assert_eq!(stored.len(), 1, "the facts and the head are one operation");
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn a_copy_survives_the_deletion_of_its_original() {
    on_both(|store| {
        let trip = store.thread("trip").unwrap();
        let first = add(&trip, 1);
        let fork = first.fork_to("fork").unwrap();
        add(&fork, 2);
        let (of_trip, of_fork) = (trip.copy_to("a").unwrap(), fork.copy_to("b").unwrap());
        assert_eq!(of_fork.forked_from().unwrap().as_ref(), Some(first.point()), "a copy of a fork is a fork");
        assert!(matches!(store.delete_thread("trip"), Err(StoreError::ForkedOff { .. })));
        _ = store.delete_threads(["fork", "b", "trip"]).unwrap();
        assert_eq!(states(&of_trip).len(), 1);
        assert_eq!(store.threads_with(ThreadQuery::new()).unwrap().len(), 1);
        let nobody = store.thread("nobody").unwrap().copy_to("c").unwrap_err();
        assert!(matches!(nobody, StoreError::ThreadNotFound { .. }), "{nobody}");
    });
}

fn listed(store: &Store, query: ThreadQuery) -> Vec<String> {
    store.threads_with(query).unwrap().iter().map(|thread| thread.id().to_string()).collect()
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Erases what was deleted. The background reads the trash of a file, and a read that stands still holds the log.
fn erase(store: &Store) {
    let begin = Instant::now();
    while !store.reclaim().unwrap().is_erased() {
        assert!(begin.elapsed() < GUARD, "deleted threads are not erased");
    }
}

#[test]
fn a_thread_in_the_trash_is_hidden_until_it_is_restored() {
    on_both(|store| {
        let (trip, diary) = (store.thread("trip").unwrap(), store.thread("diary").unwrap());
        [&trip, &diary].into_iter().for_each(|thread| _ = add(thread, 1));
        trip.restore().unwrap();
        assert_eq!(trip.operations().unwrap().count(), 1, "nothing is stored for a thread that is not in the trash");
        let before = store.now();
        trip.trash(30 * DAY).unwrap();
        let until = trip.info().unwrap().facts.trashed_until.unwrap();
        assert!(until.as_micros() - before.as_micros() >= 30 * DAY.as_micros() as i64);
        assert_eq!(listed(store, ThreadQuery::new()), ["diary"]);
        assert_eq!(listed(store, ThreadQuery::new().trashed(true)), ["trip"]);
        trip.facts().title("Bern").save().unwrap();
        assert_eq!(trip.info().unwrap().facts.trashed_until, Some(until), "other facts leave it in the trash");
        add(&trip, 2);
        assert_eq!(trip.copy_to("copy").unwrap().info().unwrap().facts.trashed_until, None);
        store.delete_thread("copy").map(|_| ()).unwrap();
        trip.restore().unwrap();
        assert_eq!(listed(store, ThreadQuery::new()), ["trip", "diary"]);
        trip.undo().unwrap().unwrap();
        assert_eq!(listed(store, ThreadQuery::new()), ["diary"], "an undo of the restoration");
        trip.trash(Duration::MAX).unwrap();
        _ = store.empty_trash().unwrap();
        erase(store);
        assert_eq!(states(&trip).len(), 2, "its time has not ended");
        let nobody = store.thread("nobody").unwrap().trash(DAY).unwrap_err();
        assert!(matches!(nobody, StoreError::ThreadNotFound { .. }), "{nobody}");
    });
}

#[test]
fn a_thread_is_deleted_when_its_time_in_the_trash_has_ended() {
    on_both(|store| {
        let (trip, diary) = (store.thread("trip").unwrap(), store.thread("diary").unwrap());
        [&trip, &diary].into_iter().for_each(|thread| _ = add(thread, 1));
        let fork = trip.head().unwrap().unwrap().fork_to("fork").unwrap();
        [&trip, &diary].into_iter().for_each(|thread| thread.trash(Duration::ZERO).unwrap());
        _ = store.empty_trash().unwrap();
        assert!(diary.head().unwrap().is_none());
        assert!(trip.head().unwrap().is_some(), "another thread was forked from it");
        fork.trash(Duration::ZERO).unwrap();
        _ = store.empty_trash().unwrap();
        assert!(store.threads().unwrap().is_empty());
        erase(store);
    });
}

#[test]
fn the_background_empties_the_trash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trash.db");
    let is_gone = |store: &Store, id: &str| {
        let begin = Instant::now();
        while store.thread(id).unwrap().head().unwrap().is_some() {
            assert!(begin.elapsed() < GUARD, "thread {id} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let store = Store::open(&path).unwrap();
    for id in ["at once", "soon", "later"] {
        add(&store.thread(id).unwrap(), 1);
    }
    store.thread("at once").unwrap().trash(Duration::ZERO).unwrap();
    is_gone(&store, "at once");
    store.thread("soon").unwrap().trash(Duration::from_millis(200)).unwrap();
    is_gone(&store, "soon");
    store.thread("later").unwrap().trash(Duration::from_millis(200)).unwrap();
    drop(store);
    std::thread::sleep(Duration::from_millis(250));
    let store = Store::open(&path).unwrap();
    is_gone(&store, "later");
    erase(&store);
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn threads_with_forks_do_not_hold_up_the_trash() {
    on_both(|store| {
        let names = |kind: &str, count: usize| (0..count).map(|n| format!("{kind} {n:04}")).collect::<Vec<_>>();
        // More than one call deletes, all of which have forks that stay.
        let (forked, plain) = (names("a forked", 1_001), names("plain", 2));
        let root = store.thread("a forked 0000").unwrap();
        add(&root, 1);
        for name in &forked[1..] {
            root.at("@").unwrap().fork_to(name).unwrap();
        }
        for name in &forked {
            store.thread(name).unwrap().at("@").unwrap().fork_to(format!("stays {name}")).unwrap();
        }
        plain.iter().for_each(|name| _ = add(&store.thread(name).unwrap(), 1));
        for name in forked.iter().chain(&plain) {
            store.thread(name).unwrap().trash(Duration::ZERO).unwrap();
        }
        _ = store.empty_trash().unwrap();
        let trashed = ThreadQuery::new().trashed(true).limit(9_999).by_id();
        let (mut left, mut query) = (Vec::new(), trashed.clone());
        loop {
            let page = store.threads_with(query).unwrap();
            let Some(last) = page.last() else { break };
            query = trashed.clone().after(last);
            left.extend(page.into_iter().map(|info| info.id().to_string()));
        }
        assert_eq!(left, forked, "only those with forks stay");
        // A fork and its source are deleted in one call.
        let (a, b) = (store.thread("source").unwrap(), "its fork");
        add(&a, 1);
        a.at("@").unwrap().fork_to(b).unwrap();
        [&a, &store.thread(b).unwrap()].into_iter().for_each(|thread| thread.trash(Duration::ZERO).unwrap());
        _ = store.empty_trash().unwrap();
        assert!(a.head().unwrap().is_none() && store.thread(b).unwrap().head().unwrap().is_none());
    });
}

#[test]
fn a_thread_in_a_file_is_taken_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let mut names: Vec<String> =
            folder.path().read_dir().unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let key = || OpenOptions::new().key(Key::new([7; 32]));
    for (n, options) in [OpenOptions::new(), key()].into_iter().enumerate() {
        on_both(|store| {
            let trip = store.thread("trip").unwrap();
            let first = [1, 2, 3].map(|n| add(&trip, n));
            trip.name_branch("by train").unwrap();
            trip.rewind_to(&first[1]).unwrap();
            add(&trip, 4);
            trip.in_namespace("part").unwrap().update(Note::update().n(7)).unwrap();
            trip.facts().title("Bern").label("travel").save().unwrap();
            let fork = first[2].fork_to("fork").unwrap();
            add(&fork, 5);
            trip.prune(&PrunePolicy::new().keep_last(1)).unwrap();
            for thread in [&trip, &fork] {
                let path = folder.path().join(format!("thread {n}.db"));
                thread.export_file(&path, options.clone()).unwrap();
                assert_eq!(names(), [format!("thread {n}.db")], "one file and no other");
                let again = thread.export_file(&path, options.clone()).unwrap_err();
                assert!(matches!(again, StoreError::Invalid { field: "thread file", .. }), "{again}");
                let file = Store::open_with(&path, options.clone()).unwrap();
                assert_eq!(file.check().unwrap().problems, []);
                assert_eq!(file.threads().unwrap().len(), 1);
                drop(file);
                let other = Store::memory();
                let copy = other.import_thread(&path, options.clone()).unwrap();
                let shown = |thread: &Thread| {
                    let all = states(thread).into_iter();
                    all.map(|(at, state)| (at.id(), at.created_at(), state)).collect::<Vec<_>>()
                };
                assert_eq!((copy.id(), shown(&copy)), (thread.id(), shown(thread)));
                assert_eq!(copy.info().unwrap().facts, thread.info().unwrap().facts);
                assert_eq!(copy.head().unwrap().unwrap().id(), thread.head().unwrap().unwrap().id());
                let branches = |thread: &Thread| {
                    let all = thread.branches().unwrap().into_iter();
                    all.map(|branch| (branch.name.clone(), branch.last.id())).collect::<Vec<_>>()
                };
                assert_eq!(branches(&copy), branches(thread));
                add(&copy, 6);
                let head = |thread: &Thread| thread.head().unwrap().unwrap().id();
                let again = other.import_thread(&path, options.clone()).unwrap();
                assert_eq!(head(&again), head(&copy), "a repeated import changes nothing");
                let of_another = Store::memory();
                add(&of_another.thread(thread.id()).unwrap(), 1);
                let taken = of_another.import_thread(&path, options.clone()).unwrap_err();
                assert!(matches!(taken, StoreError::Conflict { .. }), "{taken}");
                std::fs::remove_file(&path).unwrap();
            }
            let missing = store.thread("nothing").unwrap().export_file(folder.path().join("x.db"), options.clone());
            assert!(matches!(missing.unwrap_err(), StoreError::ThreadNotFound { .. }));
            assert!(names().is_empty(), "an export that failed leaves no file");
        });
    }
    // A file of several threads is a store, and a file with a key needs it.
    let path = folder.path().join("two.db");
    let two = Store::open_with(&path, key()).unwrap();
    add(&two.thread("a").unwrap(), 1);
    add(&two.thread("b").unwrap(), 1);
    drop(two);
    let other = Store::memory();
    let many = other.import_thread(&path, key()).unwrap_err();
    assert!(many.to_string().contains("more than one thread"), "{many}");
    let locked = other.import_thread(&path, OpenOptions::new()).unwrap_err();
    assert!(matches!(locked, StoreError::KeyRequired { .. }), "{locked}");
}
