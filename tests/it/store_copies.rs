//! Copies of threads to another store, between both backends.

mod filled;
mod held;

use std::ops::ControlFlow;

use annals::base::{Map, TaskId, ThreadId, Value, WriteValue};
use annals::history::{CopyOptions, PrunePolicy};
use annals::prelude::*;
use annals::store::batch::{Batch, NewWrite, NewWrites};
use annals::store::{OpenOptions, StoreError, Synchronous};

use self::filled::{THREADS, assert_same, batches, fill, say, waits};

/// Runs a test with a filled store and an empty one: a file and memory, in both directions.
fn on_pairs(test: impl Fn(&Store, &dyn Fn() -> Store)) {
    let folder = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    let file = || {
        number.set(number.get() + 1);
        let path = folder.path().join(format!("{}.db", number.get()));
        Store::open_with(path, OpenOptions::new().synchronous(Synchronous::Normal)).unwrap()
    };
    for (source, target) in [(Store::memory(), &file as &dyn Fn() -> Store), (file(), &Store::memory)] {
        fill(&source);
        test(&source, target);
    }
}

#[test]
fn a_store_is_copied_whole_and_back() {
    on_pairs(|source, empty| {
        let (target, back) = (empty(), Store::memory());
        let dry = source.copy_to(&target, CopyOptions::new().dry_run(true)).unwrap();
        assert_eq!((target.threads().unwrap().len(), dry.kv_entries), (0, 3));
        let report = source.copy_to(&target, CopyOptions::new()).unwrap();
        assert!(report.refused.is_empty(), "{report:?}");
        let order: Vec<&str> = report.threads.iter().map(|thread| thread.thread.as_str()).collect();
        assert_eq!(order, ["trip", "a fork", "fork of a fork"], "a fork comes after its original");
        for (copied, dry) in report.threads.iter().zip(&dry.threads) {
            assert!(copied.checksum.is_some() && dry.checksum.is_none());
            assert_eq!((copied.checkpoints, copied.operations), (dry.checkpoints, dry.operations));
            assert_eq!((copied.operations_left_out, copied.checkpoints_there), (0, 0));
        }
        assert_same(source, &target);
        let again = source.copy_to(&target, CopyOptions::new()).unwrap();
        let returned = target.copy_to(&back, CopyOptions::new()).unwrap();
        for ((copied, again), returned) in report.threads.iter().zip(&again.threads).zip(&returned.threads) {
            assert_eq!((again.checkpoints, again.operations), (0, 0), "nothing is written twice");
            assert_eq!(copied.checksum, again.checksum);
            assert_eq!(copied.checksum, returned.checksum, "the way back");
        }
        assert_eq!((again.kv_entries, again.kv_entries_there), (0, 3));
        assert_same(source, &back);
        // Undo and redo find the same operations at both ends.
        for name in THREADS {
            let [of, copy] = [source, &target].map(|store| store.thread(name).unwrap());
            let step = |thread: &Thread, undo: bool| {
                let done = if undo { thread.undo() } else { thread.redo() }.unwrap();
                (done.map(|operation| operation.name().to_owned()), thread.head().unwrap().map(|head| head.id()))
            };
            for undo in [true, true, false, true, true, true, false] {
                assert_eq!(step(&of, undo), step(&copy, undo), "{name}");
            }
        }
    });
}

#[test]
fn a_copy_that_ends_after_any_commit_is_completed_by_the_next_one() {
    on_pairs(|source, empty| {
        let whole = Store::memory();
        let commits = std::cell::Cell::new(0);
        let parts = || CopyOptions::new().checkpoints_per_commit(2);
        let count = parts().on_progress(|_| {
            commits.set(commits.get() + 1);
            ControlFlow::Continue(())
        });
        let report = source.copy_to(&whole, count).unwrap();
        assert!(commits.get() > 15, "{}", commits.get());
        for end in 1..=commits.get() {
            let (target, mut left) = (empty(), end);
            let stopped = source.copy_to(
                &target,
                parts().on_progress(|at| {
                    assert!(at.checkpoints_done <= at.checkpoints && at.threads_done < at.threads);
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }),
            );
            assert!(stopped.unwrap().is_stopped);
            let completed = source.copy_to(&target, parts()).unwrap();
            let sums = |report: &annals::history::CopyReport| {
                report.threads.iter().map(|thread| thread.checksum.clone().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(sums(&completed), sums(&report), "ended after commit {end}");
            if end % 8 == 0 {
                assert_same(source, &target);
            }
        }
    });
}

#[test]
fn a_repeated_copy_adds_what_is_new_and_refuses_a_thread_that_went_on_elsewhere() {
    on_pairs(|source, empty| {
        let target = empty();
        _ = source.copy_to(&target, CopyOptions::new()).unwrap();
        say(&source.thread("trip").unwrap(), "later");
        waits(&source.thread("a fork").unwrap());
        say(&target.thread("fork of a fork").unwrap(), "elsewhere");
        source.kv().put(["texts"], "4", Map::new()).unwrap();
        target.kv().put(["facts", "of ann"], "2", Map::new()).unwrap();
        let report = source.copy_to(&target, CopyOptions::new()).unwrap();
        let written: Vec<_> = report.threads.iter().map(|of| (of.thread.as_str(), of.checkpoints)).collect();
        assert_eq!(written, [("trip", 1), ("a fork", 1)]);
        assert_eq!(report.kv_entries, 1);
        let newer = target.kv().get(["facts", "of ann"], "2").unwrap().unwrap();
        assert_eq!(newer.value, Value::from(Map::new()), "the later put stays");
        let [(thread, StoreError::Conflict { .. })] = &report.refused[..] else { panic!("{:?}", report.refused) };
        assert_eq!(thread.as_str(), "fork of a fork");
        for name in ["trip", "a fork"] {
            assert_eq!(batches(source, name), batches(&target, name));
        }

        // The writes of a task that come after its checkpoint was copied.
        let fork = source.thread("a fork").unwrap();
        let head = fork.head().unwrap().unwrap();
        let mut batch = Batch::new(fork.id().clone(), fork.namespace().clone(), Some(head.id()));
        let more = NewWrite::new(1, "messages", WriteValue::Null);
        batch.writes.push(NewWrites::new(head.id(), TaskId::from_bytes([8; 16]), "b").with(vec![more]));
        source.commit(&batch).unwrap();
        let named = CopyOptions::new().thread(fork.id().clone());
        let report = source.copy_to(&target, named).unwrap();
        assert_eq!((report.threads.len(), report.threads[0].checkpoints, report.kv_entries_there), (1, 0, 0));
        assert_eq!(batches(source, "a fork"), batches(&target, "a fork"));
    });
}

#[test]
fn a_fork_alone_begins_with_its_whole_state() {
    on_pairs(|source, empty| {
        let target = empty();
        let named = || CopyOptions::new().thread(ThreadId::new("a fork").unwrap());
        _ = source.copy_to(&target, named()).unwrap();
        assert_eq!(target.thread("a fork").unwrap().forked_from().unwrap(), None);
        assert_eq!(batches(source, "a fork"), batches(&target, "a fork"));
        let report = source.copy_to(&target, CopyOptions::new()).unwrap();
        assert!(report.refused.is_empty(), "{report:?}");
        assert_eq!(target.thread("a fork").unwrap().forked_from().unwrap(), None, "it stays as it is");
        let missing = CopyOptions::new().thread(ThreadId::new("nobody").unwrap());
        assert!(matches!(source.copy_to(&target, missing), Err(StoreError::ThreadNotFound { .. })));
        assert!(matches!(source.copy_to(source, named()), Err(StoreError::Invalid { .. })));
    });
}

#[test]
fn pruned_checkpoints_are_left_out_with_the_operations_that_name_them() {
    on_pairs(|source, empty| {
        let (target, chat) = (empty(), source.thread("chat").unwrap());
        let all: Vec<Snapshot> = (0..8).map(|n| say(&chat, &format!("line {n}"))).collect();
        chat.rewind_to(&all[2]).unwrap();
        chat.rewind_to(&all[5]).unwrap();
        chat.undo().unwrap().expect("the second move is undone");
        chat.redo().unwrap().expect("it is made again");
        chat.facts().title("after the moves").save().unwrap();
        say(&chat, "the end");
        assert!(chat.prune(&PrunePolicy::new().keep_last(1)).unwrap().checkpoints > 0);
        let named = CopyOptions::new().thread(chat.id().clone());
        let report = source.copy_to(&target, named).unwrap();
        assert!(report.refused.is_empty(), "{report:?}");
        assert!(report.threads[0].operations_left_out > 0, "{report:?}");
        assert_eq!(batches(source, "chat"), batches(&target, "chat"));
        let copy = target.thread("chat").unwrap();
        assert_eq!(copy.info().unwrap().facts, chat.info().unwrap().facts);
        assert_eq!(copy.head().unwrap().map(|head| head.id()), chat.head().unwrap().map(|head| head.id()));
        assert_eq!(target.check().unwrap().problems, []);
        let again = source.copy_to(&target, CopyOptions::new().thread(chat.id().clone())).unwrap();
        assert_eq!((again.threads[0].checkpoints, again.threads[0].operations), (0, 0));
    });
}
