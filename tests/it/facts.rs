//! Facts about threads, and listings by them, on both backends.

use annals::history::{Operation, StatusKind, ThreadInfo, ThreadQuery};
use annals::prelude::*;
use annals::store::{Key, StoreError};

/// Runs a test on both backends, and on an encrypted store.
fn on_all(test: impl Fn(&Store)) {
    test(&Store::memory());
    let folder = tempfile::tempdir().unwrap();
    test(&Store::open(folder.path().join("facts.db")).unwrap());
    test(&Store::open_with(folder.path().join("sealed.db"), OpenOptions::new().key(Key::new([7; 32]))).unwrap());
}

fn thread(store: &Store, id: &str) -> Thread {
    let thread = store.thread(id).unwrap();
    thread.append("messages", [Message::human(id)]).unwrap();
    thread
}

fn ids(listed: &[ThreadInfo]) -> Vec<&str> {
    listed.iter().map(|info| info.id().as_str()).collect()
}

#[test]
fn facts_are_stated_and_undone() {
    on_all(|store| {
        let trip = thread(store, "trip");
        let long = "ü".repeat(30_000);
        trip.facts().title(&*long).project("home").label("b").label("a").label("b").pinned(true).save().unwrap();
        let facts = trip.info().unwrap().facts.clone();
        assert_eq!((facts.title.as_deref(), facts.project.as_deref()), (Some(&*long), Some("home")));
        assert_eq!((facts.labels, facts.is_pinned, facts.is_archived), (vec!["a".into(), "b".into()], true, false));
        trip.facts().title("Bern \"in\" \0 May").remove_label("a").pinned(false).remove_project().save().unwrap();
        let facts = trip.info().unwrap().facts.clone();
        assert_eq!((facts.title.as_deref(), facts.project), (Some("Bern \"in\" \0 May"), None));
        assert_eq!((facts.labels, facts.is_pinned), (vec!["b".into()], false));
        trip.facts().label("b").save().unwrap();
        assert_eq!(trip.operations().unwrap().count(), 3, "what is so already is no operation");
        trip.undo().unwrap().unwrap();
        assert_eq!(trip.info().unwrap().facts.labels, ["a", "b"]);
        trip.redo().unwrap().unwrap();
        assert_eq!(trip.info().unwrap().facts.labels, ["b"]);
        let large = trip.facts().title("x".repeat((64 << 10) + 1)).save().unwrap_err();
        assert!(matches!(large, StoreError::Invalid { field: "fact", .. }), "{large}");
        let nobody = store.thread("nobody").unwrap();
        assert!(matches!(nobody.facts().title("x").save(), Err(StoreError::ThreadNotFound { .. })));
        assert!(matches!(nobody.info(), Err(StoreError::ThreadNotFound { .. })));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn facts_of_several_threads_are_one_operation() {
    on_all(|store| {
        let (a, b) = (thread(store, "a"), thread(store, "b"));
        store.facts(["a", "b", "a"]).unwrap().archived(true).save().unwrap();
        assert!(a.info().unwrap().facts.is_archived && b.info().unwrap().facts.is_archived);
        assert_eq!(store.backend().operations(&annals::store::operation::OperationQuery::default()).unwrap().len(), 1);
        b.facts().archived(false).save().unwrap();
        assert!(a.undo().unwrap_err().to_string().contains("has changed"), "the other thread has changed since");
        b.undo().unwrap().unwrap();
        a.undo().unwrap().unwrap();
        assert!(!a.info().unwrap().facts.is_archived && !b.info().unwrap().facts.is_archived);
    });
}

#[test]
fn an_operation_undone_through_another_thread_leaves_newer_ones() {
    on_all(|store| {
        let (a, b) = (thread(store, "a"), thread(store, "b"));
        b.set("x", 1).unwrap();
        store.facts(["a", "b"]).unwrap().archived(true).save().unwrap();
        b.set("x", 2).unwrap();
        let shown = || b.head().unwrap().unwrap().values().unwrap()["x"].clone();
        a.undo().unwrap().unwrap();
        assert!(!b.info().unwrap().facts.is_archived);

        b.undo().unwrap().unwrap();
        assert_eq!(shown(), Value::from(1), "the newest update of b is undone, not the one before the facts");
        assert_eq!(b.redo().unwrap().unwrap().name(), "update");
        assert_eq!(shown(), Value::from(2));

        a.redo().unwrap().unwrap();
        assert!(b.info().unwrap().facts.is_archived);
        assert!(b.redo().unwrap().is_none(), "nothing of b is undone any more");
        b.undo().unwrap().unwrap();
        assert_eq!(shown(), Value::from(1), "an update is newer than facts that were stated again");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn threads_are_listed_by_their_facts() {
    on_all(|store| {
        for n in 0..150 {
            let thread = thread(store, &format!("t{n:03}"));
            let facts = thread.facts().title(format!("Title {n}")).project(if n % 3 == 0 { "x" } else { "y" });
            let facts = if n % 5 == 0 { facts.label("five") } else { facts };
            let facts = if n % 7 == 0 { facts.archived(true) } else { facts };
            (if n % 11 == 0 { facts.pinned(true) } else { facts }).save().unwrap();
        }
        thread(store, "t003");
        let newest = store.threads_with(ThreadQuery::new().limit(3)).unwrap();
        assert_eq!(ids(&newest), ["t003", "t149", "t148"], "the newest activity first");
        assert_eq!(store.threads_with(ThreadQuery::new()).unwrap().len(), 50);
        let every = |n: u32| n.is_multiple_of(15) && !n.is_multiple_of(7);
        let expected: Vec<String> = (0..150).rev().filter(|n| every(*n)).map(|n| format!("t{n:03}")).collect();
        let query = ThreadQuery::new().project("x").label("five");
        assert_eq!(ids(&store.threads_with(query.clone()).unwrap()), expected);
        let (mut page, mut all) = (store.threads_with(query.clone().limit(2)).unwrap(), Vec::new());
        while let Some(last) = page.last() {
            let next = store.threads_with(query.clone().limit(2).after(last)).unwrap();
            all.extend(page.iter().map(|info| info.id().to_string()));
            page = next;
        }
        assert_eq!(all, expected, "page by page");
        let archived = store.threads_with(ThreadQuery::new().archived(true).pinned(true)).unwrap();
        assert_eq!(ids(&archived), ["t077", "t000"]);
        assert_eq!(ids(&store.threads_with(ThreadQuery::new().title_contains("tItLe 14")).unwrap()).len(), 8);
        let since = newest[1].updated_at;
        assert!(store.threads_with(ThreadQuery::new().since(since)).unwrap().len() >= 2);
        assert!(store.threads_with(ThreadQuery::new().status(StatusKind::Running)).unwrap().is_empty());
        assert!(store.threads_with(ThreadQuery::new().limit(0)).unwrap().is_empty());
        assert_eq!(store.threads_with(ThreadQuery::new().status(StatusKind::Done).limit(999)).unwrap().len(), 128);
        let same = store.threads_with(ThreadQuery::new().limit(1)).unwrap().remove(0);
        assert_eq!(store.thread("t003").unwrap().info().unwrap(), same);
    });
}

#[test]
fn operations_of_all_threads_come_in_their_order() {
    on_all(|store| {
        let names = |operation: Operation| match operation {
            Operation::Commits(group) => format!("{} {} {}", group.thread, group.source, group.checkpoints),
            Operation::Stored(record) => format!("{} by {}", record.kind, record.actor.unwrap_or_default()),
            other => panic!("{other:?}"),
        };
        let shown = || store.operations().unwrap().map(|operation| names(operation.unwrap())).collect::<Vec<_>>();
        assert!(shown().is_empty());
        let (a, b) = (thread(store, "a"), thread(store, "b"));
        a.append("messages", [Message::human("2")]).unwrap();
        store.facts(["a", "b"]).unwrap().archived(true).save().unwrap();
        b.append("messages", [Message::human("2")]).unwrap();
        b.facts().archived(false).save().unwrap();
        a.by("Zoë").rewind_to(&a.at("~1").unwrap()).unwrap();
        b.append("messages", [Message::human("3")]).unwrap();
        let expected = [
            "b update 1",
            "rewind by Zoë",
            "facts by ",
            "b update 1",
            "facts by ",
            "a update 1",
            "b update 1",
            "a update 1",
        ];
        assert_eq!(shown(), expected);
        for n in 0..200 {
            thread(store, &format!("t{n}"));
        }
        thread(store, "a");
        store.thread("t7").unwrap().trash(std::time::Duration::from_secs(60)).unwrap();
        let all: Vec<u64> = store.operations().unwrap().map(|operation| operation.unwrap().seq()).collect();
        assert!(all.len() == expected.len() + 202 && all.windows(2).all(|pair| pair[0] >= pair[1]), "{all:?}");
    });
}

#[test]
fn facts_are_not_in_the_clear_in_an_encrypted_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sealed.db");
    let store = Store::open_with(&path, OpenOptions::new().key(Key::new([7; 32]))).unwrap();
    thread(&store, "t").facts().title("Gasthof").label("Gasthof").project("Gasthof").save().unwrap();
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"Gasthof"));
}

#[test]
fn a_listing_since_a_timestamp_goes_on_after_an_older_thread() {
    on_all(|store| {
        let old = thread(store, "old");
        while store.now() == old.info().unwrap().updated_at {}
        let (at, _) = (store.now(), thread(store, "new"));
        // Its checkpoints have the timestamps of the original, and are the last ones of the log.
        old.copy_to("a copy").unwrap();
        assert_eq!(ids(&store.threads_with(ThreadQuery::new()).unwrap()), ["a copy", "new", "old"]);
        for query in [ThreadQuery::new().since(at), ThreadQuery::new().since(at).by_id()] {
            assert_eq!(ids(&store.threads_with(query).unwrap()), ["new"]);
        }
    });
}
