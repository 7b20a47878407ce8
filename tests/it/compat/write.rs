//! Writes the content of the stored file: rows of each table of the log and beside it.

use annals::base::{Encoded, Namespace, RunId, TaskId, ThreadId, Timestamp, Value};
use annals::history::PrunePolicy;
use annals::message::Message;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, ListRef, NewCheckpoint, NewTimer, NewWrite,
    NewWrites, Parent, Payload, Seen, WriteRef, WriteValue,
};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{CacheKey, CheckpointRef, OpenOptions, Source, Store, WriteMark};
use std::path::Path;
use std::time::Duration;

/// Writes the file. Every id and timestamp is the same each time.
pub(super) fn write(path: &Path) {
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let options = OpenOptions::new().clock(now).id_seed(5).app_version("1.4.0").unwrap();
    let store = Store::open_with(path, options).unwrap();
    lists(&store);
    runs(&store);
    long(&store);
    shared_names(&store);
    operations(&store);
    beside(&store);
    while !store.reclaim().unwrap().is_erased() {}
}

/// A namespace that is written to.
struct Place<'s> {
    store: &'s Store,
    thread: ThreadId,
    namespace: Namespace,
}

impl<'s> Place<'s> {
    fn new(store: &'s Store, thread: &str, namespace: &str) -> Self {
        let (thread, namespace) = (ThreadId::new(thread).unwrap(), Namespace::new(namespace).unwrap());
        Self { store, thread, namespace }
    }

    /// Commits a checkpoint on a parent.
    fn add(&self, parent: Option<Parent>, change: impl FnOnce(&mut NewCheckpoint)) -> CheckpointRef {
        let thread = self.store.thread(self.thread.as_str()).unwrap().with_namespace(self.namespace.clone());
        let head = thread.head().unwrap().map(|head| head.id());
        let step = head.map_or(-1, |_| thread.head().unwrap().map_or(-1, |head| head.step()) + 1);
        let (id, now) = (self.store.mint_checkpoint(step, head.as_ref()), self.store.now());
        let source = if parent.is_none() { Source::Input } else { Source::Loop };
        let mut new = NewCheckpoint::new(id, parent, step, source, now);
        change(&mut new);
        let mut batch = Batch::new(self.thread.clone(), self.namespace.clone(), head);
        batch.checkpoints.push(new);
        self.store.commit(&batch).unwrap();
        CheckpointRef::new(self.thread.clone(), self.namespace.clone(), id)
    }

    fn on(&self, parent: &CheckpointRef, change: impl FnOnce(&mut NewCheckpoint)) -> CheckpointRef {
        self.add(Some(Parent::Local(parent.checkpoint)), change)
    }
}

fn plain(bytes: &[u8]) -> Payload {
    Payload::new(bytes.to_vec())
}

fn value(channel: &str, version: u64, bytes: &[u8]) -> Change {
    Change::new(channel, version, ChangeValue::Value(Data::New(plain(bytes))))
}

fn items(channel: &str, version: u64, items: Vec<ItemChange>) -> Change {
    Change::new(channel, version, ChangeValue::Items(items))
}

fn message(id: &str, text: &str) -> Payload {
    let mut index = ItemIndex::default();
    (index.id, index.kind, index.text) = (Some(id.into()), Some("ai".into()), Some(text.to_owned()));
    plain(&[0x80]).with_index(index)
}

fn put(position: u64, payload: Payload) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(Data::New(payload)), None)
}

fn task(n: u8) -> TaskId {
    TaskId::from_bytes([n; 16])
}

/// Items that are put, replaced and deleted, a channel that is emptied, a reference, forks, and a fork of a fork.
fn lists(store: &Store) {
    let alice = Place::new(store, "alice", "");
    let uuid = |n: u64| format!("01234567-89ab-4def-8123-4567890000{n:02}");
    let first = alice.add(None, |new| {
        let all = (0..8).map(|n| put(n, message(&uuid(n), &format!("hello {n}")))).collect();
        new.changes = vec![items("messages", 1, all), value("topic", 1, &[1])];
    });
    let second = alice.on(&first, |new| {
        let long = put(6, message("m6", &"x".repeat(2_000)));
        let removed = ItemChange::new(0, ItemOp::DeleteRange { end: 5 }, None);
        new.changes = vec![items("messages", 2, vec![removed, long, put(20, message("m20", "far"))])];
        new.metadata = Some(r#"{"user":"u1"}"#.into());
    });
    let other = alice.on(&first, |new| {
        let gone = ItemChange::new(3, ItemOp::Delete, None);
        new.changes = vec![items("messages", 2, vec![gone]), Change::new("topic", 2, ChangeValue::Empty)];
    });
    let list = ListRef::new(alice.namespace.clone(), second.checkpoint, "messages");
    alice.on(&other, |new| {
        let reference = ItemChange::new(0, ItemOp::Reference(list), None);
        new.changes = vec![items("shared", 1, vec![reference, put(30, plain(&[7]))])];
    });
    let bob = Place::new(store, "bob", "");
    let fork = bob.add(Some(Parent::Fork(second)), |new| new.source = Source::Fork);
    let carol = Place::new(store, "carol", "");
    carol.add(Some(Parent::Fork(fork)), |new| {
        (new.source, new.metadata) = (Source::Fork, Some(r#"{"why":"carol"}"#.into()));
    });
}

/// A run with prepared and called tasks, writes of each kind, an interrupt, a subgraph, and a task that sleeps.
fn runs(store: &Store) {
    let (root, path) = (Place::new(store, "run", ""), "ask:01010101-0101-0101-0101-010101010101");
    let pull = |n, name: &str| {
        let triggers = vec![format!("branch:to:{name}").into(), "messages".into()];
        TaskRecord::new(task(n), name, TaskKind::Pull { triggers })
    };
    let run = RunId::from_bytes([9, 9, 9, 9, 9, 9, 0x79, 9, 0x89, 9, 9, 9, 9, 9, 9, 9]);
    let input = root.add(None, |new| {
        new.tasks = vec![pull(1, "ask"), TaskRecord::new(task(2), "work", TaskKind::Push { index: 3 })];
        (new.run, new.changes) = (Some(run), vec![items("messages", 1, vec![put(0, message("a0", "go"))])]);
    });
    let write = |index, channel: &str, value| NewWrite::new(index, channel, value);
    let answers = WriteValue::Items(vec![message("a1", "one"), message("a2", &"y".repeat(1_600))]);
    let of_tasks = vec![
        NewWrites::new(input.checkpoint, task(1), "~__pregel_pull, ask").with(vec![
            write(0, "messages", answers),
            write(1, "score", WriteValue::One(plain(&[42]))),
            write(2, "empty", WriteValue::Items(Vec::new())),
        ]),
        NewWrites::new(input.checkpoint, task(2), "~__pregel_push, 3").with(vec![write(0, "notes", WriteValue::Null)]),
        NewWrites::new(input.checkpoint, task(3), "~__pregel_call, x").with(vec![write(
            0,
            "__return__",
            WriteValue::One(plain(b"\xa6called")),
        )]),
    ];
    let mut batch = Batch::new(root.thread.clone(), root.namespace.clone(), Some(input.checkpoint));
    batch.writes = of_tasks;
    store.commit(&batch).unwrap();
    let next = root.on(&input, |new| {
        let given = |part| Data::OfWrite(WriteRef::new(task(1), 0).with_part(part));
        let put_of = |position, part| ItemChange::new(position, ItemOp::Put(given(part)), Some(0));
        new.changes = vec![
            items("messages", 2, vec![put_of(1, 0), put_of(2, 1)]),
            Change::new("score", 2, ChangeValue::Value(Data::OfWrite(WriteRef::new(task(1), 1)))).by(Some(0)),
        ];
        new.seen = vec![Seen::new("ask", vec![("branch:to:ask".into(), 1), ("messages".into(), 1)])];
        (new.run, new.tasks) = (Some(run), vec![pull(4, "ask")]);
    });
    let inside = Place::new(store, "run", path);
    let begun = inside.add(None, |new| {
        new.parents = vec![(Namespace::root(), next.checkpoint)].into();
        new.changes = vec![value("inner", 1, b"\xa5inner")];
    });
    inside.on(&begun, |new| new.changes = vec![value("inner", 2, &[2])]);
    let mut batch = Batch::new(root.thread.clone(), root.namespace.clone(), Some(next.checkpoint));
    let question = write(-3, "__interrupt__", WriteValue::One(plain(b"\xa3wh?"))).with_mark(Some(WriteMark::Waits));
    let answer = write(-4, "__resume__", WriteValue::One(plain(&[42])));
    batch.writes.push(NewWrites::new(next.checkpoint, task(4), "~__pregel_pull, ask").with(vec![question, answer]));
    store.commit(&batch).unwrap();

    let asleep = Place::new(store, "asleep", "");
    let point = asleep.add(None, |new| new.tasks = vec![pull(5, "ask")]);
    let wake_at = Timestamp::from_micros(1_800_000_000_000_000);
    let sleeps = write(-3, "__interrupt__", WriteValue::One(plain(&[1]))).with_mark(Some(WriteMark::WakesAt(wake_at)));
    let mut batch = Batch::new(asleep.thread.clone(), asleep.namespace.clone(), Some(point.checkpoint));
    batch.writes.push(NewWrites::new(point.checkpoint, task(5), "~__pregel_pull, ask").with(vec![sleeps]));
    batch.timers.push(NewTimer::new(point.checkpoint, task(5), Some(wake_at)));
    store.commit(&batch).unwrap();
}

/// A lineage with index snapshots, a fork in its middle, and a pruned thread.
fn long(store: &Store) {
    let deep = Place::new(store, "deep", "");
    let mut points = vec![deep.add(None, |new| new.changes = vec![items("messages", 1, vec![put(0, plain(&[0]))])])];
    for n in 1..149 {
        points.push(deep.on(&points[n as usize - 1], |new| {
            new.changes = vec![items("messages", n + 1, vec![put(n, plain(&[(n % 100) as u8]))])];
            if n % 50 == 7 {
                new.changes.push(value("rare", n, &[3]));
            }
        }));
    }
    let fork = Place::new(store, "deep-2", "");
    fork.add(Some(Parent::Fork(points[126].clone())), |new| new.source = Source::Fork);
    let pruned = store.thread("pruned").unwrap();
    for n in 0..6 {
        pruned.append("messages", [Message::human(format!("line {n}")).with_id(format!("p{n}"))]).unwrap();
    }
    assert_eq!(pruned.prune(&PrunePolicy::new().keep_last(2)).unwrap().checkpoints, 4);
}

/// Names that eight threads and more have in common, and deleted threads among them.
fn shared_names(store: &Store) {
    for n in 0..12_u8 {
        Place::new(store, &format!("t{n:02}"), "").add(None, |new| {
            new.changes = vec![value("common", 1, &[n]), value(&format!("of {n}"), 1, b"\xa3own")];
            if n < 9 {
                new.changes.push(items("of nine", 1, vec![put(0, plain(&[n]))]));
            }
        });
    }
    let _ = store.delete_threads(["t03", "t11"]).unwrap();
}

/// Heads that are moved, named branches and facts.
fn operations(store: &Store) {
    let moved = store.thread("moved").unwrap();
    for n in 0..4 {
        moved.set("x", n).unwrap();
    }
    moved.name_branch("first").unwrap();
    moved.by("somebody").rewind_to(&moved.at("~2").unwrap()).unwrap();
    moved.set("x", 9).unwrap();
    moved.facts().title("Bern in May").project("home").label("trip").pinned(true).save().unwrap();
    moved.rewind_to(&moved.at("~1").unwrap()).unwrap();
    moved.undo().unwrap();
}

/// Entries of the key-value memory, the cache, and a lease.
fn beside(store: &Store) {
    let object = |text: &str| Value::from(annals::base::Map::from_iter([("is".into(), Value::from(text))]));
    let kv = store.kv();
    kv.put(["users", "u1"], "color", object("red")).unwrap();
    kv.put_for(["users", "u1"], "size", object("xl"), Duration::from_secs(1 << 31)).unwrap();
    kv.put(["users", "u2"], "color", object("green")).unwrap();
    let key = CacheKey::new(["node", "ask"], "7");
    store.cache().put(key, Encoded::encode(&42).unwrap(), None).wait().unwrap();
    let lease = store.thread("alice").unwrap().lease(Duration::from_secs(60)).unwrap();
    lease.release().unwrap();
}
