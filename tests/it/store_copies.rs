//! Copies of threads to another store, between both backends.

use std::ops::ControlFlow;

use annals::base::{Encoded, ItemIndex, ListDelta, ListRef, Map, Payload, RunId, TaskId, ThreadId, Value, WriteValue};
use annals::history::{CopyOptions, PrunePolicy};
use annals::prelude::*;
use annals::store::batch::{Batch, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent};
use annals::store::kv::{Embedder, EmbedderError, KvIndex};
use annals::store::log::LogExt;
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{KvQuery, OpenOptions, Source, StoreError, Synchronous, WriteMark};

/// A model of texts for the key-value memory.
struct Lengths;

impl Embedder for Lengths {
    fn dims(&self) -> usize {
        2
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
        Ok(texts.iter().map(|text| vec![1.0, text.len() as f32]).collect())
    }
}

fn say(thread: &Thread, text: &str) -> Snapshot {
    let id = thread.append("messages", [Message::human(text).with_id(text)]).unwrap();
    thread.at(id).unwrap()
}

/// Adds a checkpoint with two tasks: one waits, with a timer, and the other has an unfinished list.
fn waits(thread: &Thread) {
    let (store, head) = (thread.store(), thread.head().unwrap().unwrap().id());
    let id = store.mint_checkpoint(9, Some(&head));
    let tasks = [7, 8].map(|n| TaskRecord::new(TaskId::from_bytes([n; 16]), "node", TaskKind::Push { index: 0 }));
    let mut new = NewCheckpoint::new(id, Some(Parent::Local(head)), 9, Source::Loop, store.now());
    (new.run, new.tasks) = (Some(RunId::from_bytes([3; 16])), tasks.to_vec());
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
    batch.checkpoints.push(new);
    store.commit(&batch).unwrap();

    let at = store.now();
    let question = Encoded::encode(&Value::from(serde_json::json!([{ "value": "which?" }]))).unwrap();
    let special = NewWrite::new(-3, "__interrupt__", WriteValue::One(question.into()));
    let special = special.with_mark(WriteMark::waiting([Some(at)]));
    let mut delta = ListDelta::new(ListRef::new(thread.namespace().clone(), head, "messages"));
    let mut index = ItemIndex::default();
    (index.id, index.text) = (Some("late".into()), Some("a write of a task".into()));
    (delta.positions, delta.items) = (vec![99], vec![Payload::new(vec![0x80]).with_index(index)]);
    let list = NewWrite::new(0, "messages", WriteValue::Delta(Box::new(delta)));
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(id));
    batch.writes.push(NewWrites::new(id, tasks[0].id, "a").with(vec![special]));
    batch.writes.push(NewWrites::new(id, tasks[1].id, "b").with(vec![list]));
    batch.timers.push(NewTimer::new(id, tasks[0].id, Some(at)));
    store.commit(&batch).unwrap();
}

/// Fills a store with three threads and a key-value memory.
fn fill(store: &Store) {
    let trip = store.thread("trip").unwrap();
    let first = ["one", "two", "three", "four"].map(|text| say(&trip, text));
    let rest = trip.head().unwrap().unwrap().messages("messages", annals::store::ItemRange::Tail(2)).unwrap();
    let summary = [Message::remove_all(), Message::system("so far").with_id("s")];
    trip.append("messages", summary.into_iter().chain(rest)).unwrap();
    trip.name_branch("compacted").unwrap();
    trip.rewind_to(&first[2]).unwrap();
    say(&trip, "a branch");
    trip.undo().unwrap().expect("the update is undone");
    trip.undo().unwrap().expect("the move is undone");
    trip.redo().unwrap().expect("the move is made again");
    say(&trip, "another branch");
    let inner = trip.in_namespace("part:1").unwrap();
    (1..4).for_each(|n| _ = inner.set("n", n).unwrap());
    trip.facts().title("Bern").label("travel").save().unwrap();
    waits(&trip);

    // Named so that it is listed before the thread from which it was forked.
    let fork = first[1].fork_to("a fork").unwrap();
    say(&fork, "the fork goes on");
    let second = fork.head().unwrap().unwrap().fork_to("fork of a fork").unwrap();
    say(&second, "and the next");
    store.facts(["a fork", "fork of a fork"]).unwrap().label("forks").save().unwrap();
    second.undo().unwrap().expect("the label is undone in both");

    let kv = store.kv();
    let text = |text: &str| Map::from_iter([("text".to_owned(), Value::from(text))]);
    for (key, value) in [("1", "first"), ("2", "second"), ("1", "put again")] {
        kv.put(["facts", "of ann"], key, text(value)).unwrap();
    }
    kv.clone().with_index(KvIndex::new(Lengths)).put(["texts"], "3", text("with a vector")).unwrap();
}

fn batches(store: &Store, thread: &str) -> Vec<Batch> {
    let mut found = Vec::new();
    let visit = &mut |batch| {
        found.push(batch);
        Ok(())
    };
    store.backend().batches(&ThreadId::new(thread).unwrap(), visit).unwrap();
    found
}

const THREADS: [&str; 3] = ["a fork", "fork of a fork", "trip"];

/// Compares everything that callers see of two stores.
fn assert_same(one: &Store, other: &Store) {
    for name in THREADS {
        assert_eq!(batches(one, name), batches(other, name), "{name}");
        let [of, copy] = [one, other].map(|store| store.thread(name).unwrap());
        let heads = |thread: &Thread| {
            ["", "part:1"].map(|space| thread.in_namespace(space).unwrap().head().unwrap().map(|head| head.id()))
        };
        assert_eq!(heads(&of), heads(&copy), "{name}");
        let branches = |thread: &Thread| {
            let all = thread.branches().unwrap().into_iter();
            all.map(|branch| (branch.name().map(str::to_owned), branch.last().id())).collect::<Vec<_>>()
        };
        assert_eq!(branches(&of), branches(&copy), "{name}");
        assert_eq!(of.info().unwrap().facts(), copy.info().unwrap().facts(), "{name}");
        assert_eq!(of.forked_from().unwrap(), copy.forked_from().unwrap(), "{name}");
        let operations = |thread: &Thread| {
            let all = thread.operations().unwrap().map(Result::unwrap);
            all.map(|operation| (operation.name().to_owned(), operation.at())).collect::<Vec<_>>()
        };
        assert_eq!(operations(&of), operations(&copy), "{name}");
        let timers = |thread: &Thread| thread.store().backend().timers_of(thread.id(), thread.namespace()).unwrap();
        assert_eq!(timers(&of), timers(&copy), "{name}");
    }
    let entries = |store: &Store| store.kv().search(KvQuery::new([""; 0]).limit(100)).unwrap();
    assert_eq!(entries(one), entries(other));
    let similar = |store: &Store| {
        let kv = store.kv().with_index(KvIndex::new(Lengths));
        kv.search(KvQuery::new(["texts"]).similar_to("with a vector")).unwrap()
    };
    assert!(similar(one)[0].score > Some(0.99));
    assert_eq!(similar(one), similar(other));
    assert_eq!(other.check().unwrap().problems, []);
}

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
        assert_eq!(copy.info().unwrap().facts(), chat.info().unwrap().facts());
        assert_eq!(copy.head().unwrap().map(|head| head.id()), chat.head().unwrap().map(|head| head.id()));
        assert_eq!(target.check().unwrap().problems, []);
        let again = source.copy_to(&target, CopyOptions::new().thread(chat.id().clone())).unwrap();
        assert_eq!((again.threads[0].checkpoints, again.threads[0].operations), (0, 0));
    });
}
