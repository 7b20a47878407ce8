//! A store with three threads and a key-value memory, for tests that copy it, and the comparison of two such stores.

use annals::base::{Encoded, ItemIndex, ListDelta, ListRef, Map, Payload, RunId, TaskId, ThreadId, Value, WriteValue};
use annals::prelude::*;
use annals::store::batch::{Batch, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent};
use annals::store::kv::{Embedder, EmbedderError, KvIndex};
use annals::store::log::LogExt;
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{KvQuery, Source, WriteMark};

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

pub(crate) fn say(thread: &Thread, text: &str) -> Snapshot {
    let id = thread.append("messages", [Message::human(text).with_id(text)]).unwrap();
    thread.at(id).unwrap()
}

/// Adds a checkpoint with two tasks: one waits, with a timer, and the other has an unfinished list.
pub(crate) fn waits(thread: &Thread) {
    let (store, head) = (thread.store(), thread.head().unwrap().unwrap().id());
    let id = store.mint_checkpoint(9, Some(&head));
    let tasks = [7, 8].map(|n| TaskRecord::new(TaskId::from_bytes([n; 16]), "node", TaskKind::Push { index: 0 }));
    let mut new = NewCheckpoint::new(id, Some(Parent::Local(head)), 9, Source::Loop, store.now());
    (new.run, new.tasks) = (Some(RunId::from_bytes([3; 16])), tasks.to_vec());
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
    batch.checkpoints.push(new);
    store.commit(&batch).unwrap();

    let at = store.now();
    let question =
        Encoded::encode(&Value::from(vec![Value::from(Map::from_iter([("value".to_owned(), Value::from("which?"))]))]))
            .unwrap();
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
pub(crate) fn fill(store: &Store) {
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

pub(crate) fn batches(store: &Store, thread: &str) -> Vec<Batch> {
    let mut found = Vec::new();
    let visit = &mut |batch| {
        found.push(batch);
        Ok(())
    };
    store.backend().batches(&ThreadId::new(thread).unwrap(), visit).unwrap();
    found
}

pub(crate) const THREADS: [&str; 3] = ["a fork", "fork of a fork", "trip"];

/// Compares everything that callers see of two stores.
pub(crate) fn assert_same(one: &Store, other: &Store) {
    for name in THREADS {
        assert_eq!(batches(one, name), batches(other, name), "{name}");
        let [of, copy] = [one, other].map(|store| store.thread(name).unwrap());
        let heads = |thread: &Thread| {
            ["", "part:1"].map(|space| thread.in_namespace(space).unwrap().head().unwrap().map(|head| head.id()))
        };
        assert_eq!(heads(&of), heads(&copy), "{name}");
        let branches = |thread: &Thread| {
            let all = thread.branches().unwrap().into_iter();
            all.map(|branch| (branch.name.clone(), branch.last.id())).collect::<Vec<_>>()
        };
        assert_eq!(branches(&of), branches(&copy), "{name}");
        assert_eq!(of.info().unwrap().facts, copy.info().unwrap().facts, "{name}");
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
