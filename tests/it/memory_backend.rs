//! The contract of a backend at its edges, in memory and in a file.

use std::sync::Arc;
use std::time::Duration;

use annals::base::limits::{FORKS_SHOWN_MAX, KV_EXPIRED_MAX, TEXT_POSITION_MIN};
use annals::base::{CheckpointId, Encoded, IdSource, Namespace, TaskId, ThreadId, Timestamp, Value};
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewCheckpoint, NewTimer, NewWrite, NewWrites,
    Parent, Payload, WriteRef, WriteValue,
};
use annals::store::lease::{LeaseGroup, LeaseOwner, NewLease};
use annals::store::log::{KvChange, KvNamespace, Log, LogExt, PruneSpan, PruneTarget};
use annals::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{
    CheckpointRef, MemoryBackend, OpenOptions, SearchOptions, SearchQuery, Source, SqliteBackend, StoreError,
    Synchronous,
};

/// Runs a test on an empty backend of each kind, which must verify afterwards.
fn on_each(test: impl Fn(&dyn Log)) {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions::new().synchronous(Synchronous::Normal);
    let file = SqliteBackend::open(&folder.path().join("x.db"), &options).unwrap();
    let both: [Arc<dyn Log>; 2] = [Arc::new(MemoryBackend::new()), Arc::new(file)];
    for backend in both {
        test(&*backend);
        assert_eq!(backend.check().unwrap().problems, []);
    }
}

fn moment(n: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + n.cast_signed() * 1_000)
}

/// Returns checkpoint id number `n`: a greater number gives a greater id.
fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(moment(n), 0, None)
}

fn task(n: u8) -> TaskId {
    TaskId::from_bytes([n; 16])
}

fn thread(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

fn payload(text: &str) -> Payload {
    Encoded::encode(&Value::from(text)).unwrap().into()
}

fn value(channel: &str, version: u64, text: &str) -> Change {
    Change::new(channel, version, ChangeValue::Value(Data::New(payload(text))))
}

fn put(position: u64, text: &str) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(Data::New(payload(text))), None)
}

fn items(channel: &str, version: u64, items: Vec<ItemChange>) -> Change {
    Change::new(channel, version, ChangeValue::Items(items))
}

/// Describes checkpoint number `n` with one task.
fn draft(n: u64, parent: Option<Parent>, changes: Vec<Change>) -> NewCheckpoint {
    let mut new = NewCheckpoint::new(id(n), parent, 0, Source::Loop, moment(n));
    new.changes = changes;
    new.tasks = vec![TaskRecord::new(task(1), "node", TaskKind::Pull { triggers: Vec::new() })];
    new
}

fn on(n: u64, parent: u64, changes: Vec<Change>) -> NewCheckpoint {
    draft(n, Some(Parent::Local(id(parent))), changes)
}

/// The place of a test: a namespace of a thread of a backend.
#[derive(Clone, Copy)]
struct Spot<'a> {
    backend: &'a dyn Log,
    thread: &'a str,
    namespace: &'a str,
}

impl<'a> Spot<'a> {
    fn root(backend: &'a dyn Log, thread: &'a str) -> Self {
        Self { backend, thread, namespace: "" }
    }

    fn inside(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    fn space(&self) -> Namespace {
        Namespace::new(self.namespace).unwrap()
    }

    fn point(&self, n: u64) -> CheckpointRef {
        CheckpointRef::new(thread(self.thread), self.space(), id(n))
    }

    /// Returns a batch on the present head.
    fn batch(&self, checkpoints: Vec<NewCheckpoint>) -> Batch {
        let head = self.backend.head_id(&thread(self.thread), &self.space()).unwrap();
        let mut batch = Batch::new(thread(self.thread), self.space(), head);
        batch.checkpoints = checkpoints;
        batch
    }

    fn add(&self, new: NewCheckpoint) {
        self.backend.commit(&self.batch(vec![new])).unwrap();
    }

    /// Commits writes of task 1 of the head, which is checkpoint `n`.
    fn write(&self, n: u64, writes: Vec<NewWrite>) {
        let mut batch = self.batch(Vec::new());
        batch.writes = vec![NewWrites::new(id(n), task(1), "p").with(writes)];
        self.backend.commit(&batch).unwrap();
    }

    fn prune(&self, first: u64, last: u64) -> (u64, u64) {
        let record = |n| self.backend.checkpoint(&self.point(n)).unwrap().unwrap();
        let (first, last) = (record(first), record(last));
        let span = PruneSpan::new(first.branch, first.ordinal, last.ordinal);
        let pruned = self.backend.prune(&thread(self.thread), &[span]).unwrap();
        (pruned.checkpoints, pruned.values)
    }

    fn tasks(&self, n: u64) -> usize {
        self.backend.checkpoint(&self.point(n)).unwrap().unwrap().tasks.len()
    }
}

/// Prunes the namespaces that end with the given checkpoints. Returns those that are left.
fn left_of(root: Spot<'_>, ends: &[(&str, u64)]) -> Vec<String> {
    let ends: Vec<_> = ends.iter().map(|(path, n)| (Namespace::new(path).unwrap(), id(*n))).collect();
    root.backend.prune(&thread(root.thread), PruneTarget::Namespaces(&ends)).unwrap();
    let left = root.backend.namespaces(&thread(root.thread)).unwrap();
    left.iter().filter(|namespace| !namespace.is_root()).map(ToString::to_string).collect()
}

#[test]
fn the_backend_in_memory_waits_for_nothing_and_searches_without_an_index() {
    let backend = MemoryBackend::new();
    assert!(!backend.capabilities().reads_block);
    backend.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(backend.searches().unwrap().index().unwrap(), None);
    backend.searches().unwrap().disable().unwrap();
}

#[test]
fn an_expired_key_is_put_anew_though_more_have_expired_than_a_put_removes() {
    on_each(|backend| {
        let space = KvNamespace::new(["a"]).unwrap();
        let put = |key: u64, now: u64, expires: Option<u64>| {
            let (namespace, value) = (space.clone(), Encoded::encode(&Value::from("v")).unwrap());
            let (now, expires_at) = (moment(now), expires.map(moment));
            let change = KvChange::Put { namespace, key: key.to_string(), value, now, expires_at };
            backend.side_tables().unwrap().commit_kv(&[change]).unwrap();
        };
        let last = u64::from(KV_EXPIRED_MAX);
        (0..=last).for_each(|key| put(key, 1, Some(100 + key)));
        put(last, 500, None);
        let entry = backend.side_tables().unwrap().kv_entry(&space, &last.to_string(), moment(500)).unwrap().unwrap();
        assert_eq!((entry.created_at, entry.updated_at, entry.expires_at), (moment(500), moment(500), None));
        assert_eq!(backend.check().unwrap().entries, 1);
    });
}

/// Claims a thread with a lease of ten milliseconds in one group.
fn claim(backend: &dyn Log, name: &str, owner: u8, now: u64, group: LeaseGroup) -> Result<(), StoreError> {
    let lease = NewLease::claim(LeaseOwner::new([owner; 16]), moment(now), moment(now + 10)).in_groups([group]);
    backend.commit(&Batch::of_lease(thread(name), lease))
}

#[test]
fn an_owner_that_holds_its_lease_enters_a_group_whose_limit_has_become_lower() {
    on_each(|backend| {
        ["a", "b", "c"].iter().for_each(|name| Spot::root(backend, name).add(draft(1, None, vec![])));
        let group = |max| LeaseGroup::new("queue").live_max(max);
        claim(backend, "a", 1, 10, group(2)).unwrap();
        claim(backend, "b", 2, 10, group(2)).unwrap();
        claim(backend, "a", 1, 12, group(1)).expect("it claims nothing");
        let expires_at = backend.lease(&thread("a")).unwrap().unwrap().expires_at;
        assert_eq!(expires_at, Some(moment(22)), "it is renewed");
        let refused = claim(backend, "c", 3, 12, group(2));
        assert!(matches!(refused, Err(StoreError::LeaseLimit { until: None, .. })), "{refused:?}");
    });
}

#[test]
fn an_owner_that_holds_its_lease_enters_no_further_group() {
    on_each(|backend| {
        ["a", "b", "c"].iter().for_each(|name| Spot::root(backend, name).add(draft(1, None, vec![])));
        let group = |name| LeaseGroup::new(name).live_max(1);
        claim(backend, "a", 1, 10, group("first")).unwrap();
        claim(backend, "a", 1, 12, group("second")).expect("it claims nothing");
        claim(backend, "b", 2, 12, group("second")).expect("its only claim");
        let refused = claim(backend, "c", 3, 12, group("first"));
        assert!(matches!(refused, Err(StoreError::LeaseLimit { .. })), "{refused:?}");
    });
}

#[test]
fn the_last_claim_of_a_thread_counts_for_the_rate_of_a_group_and_other_groups_stay() {
    on_each(|backend| {
        ["a", "b"].iter().for_each(|name| Spot::root(backend, name).add(draft(1, None, vec![])));
        let rated = |name: &str| LeaseGroup::new(name).rate(1, Duration::from_millis(20));
        let release = |owner| {
            let lease = NewLease::release(LeaseOwner::new([owner; 16]));
            backend.commit(&Batch::of_lease(thread("a"), lease)).unwrap();
        };
        claim(backend, "a", 1, 10, rated("first")).unwrap();
        release(1);
        claim(backend, "a", 2, 20, rated("first")).unwrap();
        release(2);
        claim(backend, "a", 3, 25, rated("second")).unwrap();
        let until = |now, name: &str| match claim(backend, "b", 9, now, rated(name)) {
            Err(StoreError::LeaseLimit { until, .. }) => until,
            other => panic!("{other:?}"),
        };
        assert_eq!(until(31, "first"), Some(moment(40)), "the second claim counts");
        assert_eq!(until(31, "second"), Some(moment(45)));
        claim(backend, "b", 9, 40, rated("first")).unwrap();
    });
}

#[test]
fn a_refusal_of_the_strict_backend_says_what_is_wrong() {
    let backend = MemoryBackend::new();
    let root = Spot::root(&backend, "t");
    root.add(draft(5, None, vec![]));
    let one = NewWrite::new(0, "x", WriteValue::One(payload("one")));
    root.write(5, vec![one, NewWrite::new(1, "x", WriteValue::Null)]);
    let reason = |new: NewCheckpoint| match backend.commit(&root.batch(vec![new])) {
        Err(StoreError::Invalid { field, reason }) => (field, reason),
        other => panic!("{other:?}"),
    };
    for parent in [7, 8, 9] {
        let missing = format!("the parent of {} is not stored below it", id(8));
        assert_eq!(reason(on(8, parent, vec![])), ("checkpoint.parent", missing));
    }
    let of_write = |index: i32, part: u32| {
        let wanted = WriteRef::new(task(1), index).with_part(part);
        reason(on(8, 5, vec![Change::new("x", 1, ChangeValue::Value(Data::OfWrite(wanted)))]))
    };
    for (index, part) in [(1, 0), (0, 1), (2, 0)] {
        let lacks = format!("write {index} of task {} has no part {part} at the parent", task(1));
        assert_eq!(of_write(index, part), ("data.of_write", lacks));
    }
}

#[test]
fn a_refused_deletion_names_each_fork_of_the_thread_once_and_says_if_there_are_more() {
    on_each(|backend| {
        let fork = |n: u64, of: &str| draft(n, Some(Parent::Fork(Spot::root(backend, of).point(1))), vec![]);
        ["a", "c"].iter().for_each(|name| Spot::root(backend, name).add(draft(1, None, vec![])));
        Spot::root(backend, "fork of c").add(fork(1, "c"));
        let delete = |names: &[&str]| {
            let threads: Vec<ThreadId> = names.iter().map(|name| thread(name)).collect();
            match backend.delete_threads(&threads) {
                Err(StoreError::ForkedOff { thread, forks, more }) => (thread.to_string(), forks.len(), more),
                other => panic!("{other:?}"),
            }
        };
        for n in 1..=FORKS_SHOWN_MAX {
            let name = format!("fork {n}");
            Spot::root(backend, &name).add(fork(1, "a"));
            // A second root of a fork makes it no second fork.
            Spot::root(backend, &name).add(fork(2, "a"));
            assert_eq!(delete(&["a"]), ("a".to_owned(), n, false));
            assert_eq!(delete(&["a", "c"]), ("a".to_owned(), n, false));
        }
        Spot::root(backend, "one more").add(fork(1, "a"));
        assert_eq!(delete(&["a"]), ("a".to_owned(), FORKS_SHOWN_MAX, true));
    });
}

#[test]
fn an_operation_is_repeated_safely_after_one_on_another_thread() {
    on_each(|backend| {
        ["a", "b"].iter().for_each(|name| Spot::root(backend, name).add(draft(1, None, vec![])));
        let named = |name: &str| {
            let (field, value) = (OperationField::Branch("main".into()), OperationValue::Checkpoint(id(1)));
            let mut operation = NewOperation::new(OperationKind::NameBranch, moment(5));
            operation.changes = vec![OperationChange::new(thread(name), Namespace::root(), field, None, Some(value))];
            operation
        };
        let (first, second) = (named("a"), named("b"));
        let numbers = [backend.operate(&first).unwrap(), backend.operate(&second).unwrap()];
        assert_eq!(backend.operate(&first).unwrap(), numbers[0]);
        assert_eq!(backend.operate(&second).unwrap(), numbers[1]);
    });
}

#[test]
fn a_namespace_is_pruned_unless_it_begins_with_another_one_or_states_usage() {
    on_each(|backend| {
        let (root, other) = (Spot::root(backend, "t"), Spot::root(backend, "other"));
        root.add(draft(1, None, vec![value("x", 1, "root")]));
        other.add(draft(1, None, vec![value("x", 1, "other")]));
        root.add(on(2, 1, vec![]));
        let described = |n: u64, text: &str| {
            let mut new = draft(n, None, vec![]);
            new.metadata = Some(text.to_owned());
            new
        };
        root.inside("plain:1").add(described(10, r#"{"why":"because"}"#));
        root.inside("usage:1").add(described(11, r#"{"usage":{"input_tokens":3}}"#));
        root.inside("own:1").add(draft(12, Some(Parent::Fork(root.point(1))), vec![]));
        root.inside("foreign:1").add(draft(13, Some(Parent::Fork(other.point(1))), vec![]));
        for (path, first) in [("shorter:1", draft(14, None, vec![])), ("spent:1", described(24, "{\"usage\":[]}"))] {
            let (place, n) = (root.inside(path), if path == "spent:1" { 24 } else { 14 });
            place.add(first);
            place.add(on(n + 1, n, vec![]));
            place.add(on(n + 2, n + 1, vec![]));
            assert_eq!(place.prune(n, n + 1).0, 2);
        }
        let ends =
            [("plain:1", 10), ("usage:1", 11), ("own:1", 12), ("foreign:1", 13), ("shorter:1", 16), ("spent:1", 26)];
        assert_eq!(left_of(root, &ends), ["own:1", "spent:1", "usage:1"]);
    });
}

#[test]
fn a_namespace_on_which_one_rests_that_stays_is_kept() {
    on_each(|backend| {
        let root = Spot::root(backend, "t");
        root.add(draft(1, None, vec![]));
        root.inside("a:1").add(draft(10, None, vec![items("list", 1, vec![put(0, "an item")])]));
        let of = ListRef::new(Namespace::new("a:1").unwrap(), id(10), "list");
        let taken = items("list", 1, vec![ItemChange::new(0, ItemOp::Reference(of), None)]);
        let mut new = draft(20, None, vec![taken]);
        new.metadata = Some(r#"{"usage":{"input_tokens":3}}"#.into());
        root.inside("b:1").add(new);
        assert_eq!(left_of(root, &[("a:1", 10), ("b:1", 20)]), ["a:1", "b:1"]);
        assert_eq!(backend.list_len(&root.inside("b:1").point(20), "list").unwrap(), 1);
    });
}

#[test]
fn a_pruning_leaves_the_timers_of_other_checkpoints() {
    on_each(|backend| {
        let root = Spot::root(backend, "t");
        root.add(draft(1, None, vec![]));
        (2..=4).for_each(|n| root.add(on(n, n - 1, vec![])));
        let mut batch = root.batch(Vec::new());
        let interrupt = NewWrite::new(-3, "__interrupt__", WriteValue::One(payload("an interrupt")));
        batch.writes = vec![NewWrites::new(id(4), task(1), "p").with(vec![interrupt])];
        batch.timers = vec![NewTimer::new(id(4), task(1), Some(moment(50)))];
        backend.commit(&batch).unwrap();
        assert_eq!(root.prune(1, 2).0, 2);
        let timers = backend.timers(None, 9).unwrap();
        assert_eq!(
            timers.iter().map(|timer| (timer.point.clone(), timer.wake_at)).collect::<Vec<_>>(),
            [(root.point(4), moment(50))]
        );
    });
}

#[test]
fn a_pruned_checkpoint_has_tasks_while_its_child_is_kept() {
    on_each(|backend| {
        let root = Spot::root(backend, "t");
        root.add(draft(1, None, vec![]));
        (2..=5).for_each(|n| root.add(on(n, n - 1, vec![])));
        // The newest one is on another branch.
        root.add(on(6, 3, vec![]));
        assert_eq!(root.prune(1, 2).0, 2);
        assert_eq!([1, 2, 3, 4, 5, 6].map(|n| root.tasks(n)), [0, 1, 1, 1, 1, 1]);
    });
}

#[test]
fn a_pruning_counts_the_values_that_no_kept_checkpoint_shows() {
    on_each(|backend| {
        let root = Spot::root(backend, "t");
        let long = |text: &str| format!("{text} {}", "and so on ".repeat(40));
        root.add(draft(1, None, vec![value("stays", 1, &long("stays")), value("goes", 1, &long("first"))]));
        root.add(on(2, 1, vec![value("goes", 2, &long("second"))]));
        root.add(on(3, 2, vec![value("goes", 3, &long("third"))]));
        assert_eq!(root.prune(1, 2), (2, 2));
        let found = |text: &str| backend.searches().unwrap().search(&SearchQuery::new(text)).unwrap().hits.len();
        assert_eq!(["stays", "first", "second", "third"].map(found), [1, 0, 0, 1]);
    });
}

#[test]
fn a_word_of_several_parts_is_found_after_the_checkpoints_of_the_parts_were_pruned() {
    on_each(|backend| {
        let root = Spot::root(backend, "t");
        let part = |n: u64, text: &str| vec![items("draft", n, vec![put(TEXT_POSITION_MIN + n, text)])];
        root.add(draft(1, None, part(1, "The Lang")));
        root.add(on(2, 1, part(2, "gast")));
        root.add(on(3, 2, part(3, "hof ")));
        root.add(on(4, 3, part(4, "in Bern")));
        // Another branch, with another text at these positions.
        root.add(on(5, 1, part(2, "sam")));
        root.add(on(6, 5, part(3, "er ")));
        assert_eq!(root.prune(2, 3).0, 2);
        let found = |text: &str| {
            let hits = backend.searches().unwrap().search(&SearchQuery::new(text)).unwrap().hits;
            hits.iter().map(|hit| (hit.point.checkpoint, hit.position)).collect::<Vec<_>>()
        };
        assert_eq!(found("langgasthof"), [(id(3), 3)]);
        assert_eq!(found("samer"), [(id(6), 3)], "a branch is read alone");
        assert_eq!((found("langsamer"), found("samhof")), (Vec::new(), Vec::new()));
    });
}
