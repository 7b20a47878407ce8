//! Damage in the log, each found by itself and with its invariant.

use super::*;
use crate::base::{Encoded, IdSource, Timestamp};
use crate::store::WriteMark;
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent,
    WriteValue,
};
use crate::store::log::{Log, LogExt};
use crate::store::memory::MemoryBackend;
use crate::store::memory::operation::MovedHead;
use crate::store::memory::stored::{CheckpointWrites, Delta};
use crate::store::prune::PruneSpan;
use crate::store::record::{Source, TaskKind, TaskRecord};

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

fn data(text: &str) -> Data {
    Data::New(Payload::new(text.as_bytes().to_vec()))
}

fn value(channel: &str, version: u64) -> Change {
    Change::new(channel, version, ChangeValue::Value(data(channel)))
}

fn put(position: u64) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(data("an item")), None)
}

fn batch(name: &str, namespace: &Namespace, head: Option<u64>, writes: Vec<NewWrites>) -> Batch {
    Batch { writes, ..Batch::new(thread(name), namespace.clone(), head.map(id)) }
}

fn add(backend: &MemoryBackend, name: &str, n: u64, parent: Option<Parent>, changes: Vec<Change>) {
    let head = backend.head_id(&thread(name), &Namespace::root()).unwrap();
    let mut new = NewCheckpoint::new(id(n), parent, 0, Source::Loop, moment(n));
    new.changes = changes;
    new.tasks = vec![TaskRecord::new(task(1), "node", TaskKind::Pull { triggers: Vec::new() })];
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    batch.checkpoints = vec![new];
    backend.commit(&batch).unwrap();
}

fn local(n: u64) -> Option<Parent> {
    Some(Parent::Local(id(n)))
}

fn write(index: i32, value: WriteValue) -> NewWrite {
    NewWrite::new(index, "x", value)
}

fn one(text: &str) -> WriteValue {
    WriteValue::One(Payload::new(text.as_bytes().to_vec()))
}

/// Returns a backend with thread `t` of four checkpoints, of which the first is pruned and the last has writes, and
/// with its fork.
fn filled() -> MemoryBackend {
    let backend = MemoryBackend::new();
    add(&backend, "t", 1, None, vec![value("x", 1), Change::new("list", 1, ChangeValue::Items(vec![put(0), put(1)]))]);
    add(&backend, "t", 2, local(1), vec![value("x", 2), value("y", 2)]);
    add(&backend, "t", 3, local(2), vec![Change::new("y", 3, ChangeValue::Empty)]);
    add(&backend, "t", 4, local(3), vec![Change::new("list", 4, ChangeValue::Items(vec![put(2), put(3), put(4)]))]);
    let from = CheckpointRef::new(thread("t"), Namespace::root(), id(3));
    add(&backend, "fork", 1, Some(Parent::Fork(from)), vec![value("z", 1)]);
    let items = WriteValue::Items([b"1", b"2"].map(|text| Payload::new(text.to_vec())).to_vec());
    let writes = vec![write(0, one("of a task")), write(1, items), write(2, WriteValue::Null)];
    let writes = NewWrites::new(id(4), task(1), "p").with(writes);
    backend.commit(&batch("t", &Namespace::root(), Some(4), vec![writes])).unwrap();
    let first = backend.checkpoint(&CheckpointRef::new(thread("t"), Namespace::root(), id(1))).unwrap().unwrap();
    let pruned = backend.prune(&thread("t"), &[PruneSpan::new(first.branch, 0, 0)]).unwrap();
    assert_eq!(pruned.checkpoints, 1);
    backend
}

fn space(log: &mut MemoryLog) -> &mut NamespaceVersion {
    log.threads.get_mut(&thread("t")).unwrap().spaces.get_mut(&Namespace::root()).unwrap()
}

/// Replaces checkpoint `n` of thread `t` with a changed one.
fn change(log: &mut MemoryLog, n: u64, change: impl FnOnce(&mut StoredCheckpoint)) {
    let space = space(log);
    let old = space.checkpoints.get(&id(n)).unwrap();
    let delta = Delta {
        consumed: old.delta.consumed.clone(),
        changes: old.delta.changes.clone(),
        seen: old.delta.seen.clone(),
    };
    let mut new = StoredCheckpoint { record: old.record.clone(), delta, state: old.state.clone() };
    change(&mut new);
    space.checkpoints.put(id(n), Arc::new(new));
}

fn findings(damage: impl FnOnce(&mut MemoryLog)) -> Vec<Finding> {
    let backend = filled();
    damage(&mut backend.log.write());
    backend.check().unwrap().problems
}

/// Asserts that a change of checkpoint `n` is the one finding.
#[track_caller]
fn found(n: u64, damage: impl FnOnce(&mut StoredCheckpoint), invariant: Invariant, reason: &str) {
    let expected = Finding::new(invariant, format!("checkpoint {}", id(n)), reason);
    assert_eq!(findings(|log| change(log, n, damage)), [expected]);
}

#[test]
fn a_check_counts_checkpoints_pruned_ones_and_values() {
    let backend = filled();
    let report = backend.check().unwrap();
    assert_eq!(report.problems, []);
    assert_eq!((report.threads, report.checkpoints, report.pruned, report.entries), (2, 4, 1, 0));
    // Two items of the first checkpoint, which later ones show, then 2, 0 and 3 values, 1 of the fork and 3 of writes.
    assert_eq!(report.values, 2 + 2 + 3 + 1 + 3);
}

#[test]
fn a_parent_that_is_not_stored_is_damage() {
    found(3, |stored| stored.record.parent = Some(id(9)), Invariant::Parents, "its parent is missing");
    let nowhere = CheckpointRef::new(thread("none"), Namespace::root(), id(1));
    let fork = |at: CheckpointRef| {
        move |stored: &mut StoredCheckpoint| (stored.record.parent, stored.record.forked_from) = (None, Some(at))
    };
    found(3, fork(nowhere), Invariant::Parents, "the checkpoint it was forked from is missing");
    let both = CheckpointRef::new(thread("fork"), Namespace::root(), id(1));
    found(3, |stored| stored.record.forked_from = Some(both), Invariant::Parents, "it has two parents");
}

#[test]
fn an_ordinal_that_does_not_follow_is_damage() {
    let reason = "its ordinal does not follow that of its parent";
    found(4, |stored| stored.record.ordinal += 1, Invariant::Parents, reason);
}

#[test]
fn a_number_above_the_counters_is_damage() {
    let reason = "its seq or branch is above the counters";
    found(4, |stored| stored.record.branch += 90, Invariant::Parents, reason);
    // A pruned checkpoint has no state that depends on it.
    found(1, |stored| stored.record.seq += 90, Invariant::Parents, reason);
    assert_eq!(findings(|log| (log.seq, log.branch) = (log.seq + 1, log.branch + 1)), []);
}

#[test]
fn a_state_that_does_not_follow_from_its_parent_is_damage() {
    let reason = "its state is not that of its parent with its changes";
    found(4, |stored| _ = stored.delta.changes.pop(), Invariant::Checkpoints, reason);
    let refused = "change.version is not valid: 1 of channel \"list\" is not above 1; nothing was written";
    let late = |stored: &mut StoredCheckpoint| stored.delta.changes[0].version = 1;
    found(4, late, Invariant::Checkpoints, refused);
    // The parent of the second checkpoint is pruned, and with it the state that this one would be compared with.
    let changed = |stored: &mut StoredCheckpoint| _ = stored.delta.changes.pop();
    assert_eq!(findings(|log| change(log, 1, changed)), []);
    let others = findings(|log| change(log, 2, |stored| stored.state = Default::default()));
    let expected = Finding::new(Invariant::Checkpoints, format!("checkpoint {}", id(3)), reason);
    assert_eq!(others, [expected]);
}

#[test]
fn trees_that_are_out_of_order_are_damage() {
    let expected = Finding::new(Invariant::Ids, "a namespace", "its trees are out of order");
    assert_eq!(findings(|log| space(log).checkpoints.damage()), std::slice::from_ref(&expected));
    assert_eq!(findings(|log| space(log).writes.damage()), std::slice::from_ref(&expected));
    let newest = findings(|log| change(log, 4, |stored| stored.state.channels.damage()));
    assert_eq!(newest, [expected]);
}

#[test]
fn writes_that_are_out_of_order_or_of_no_checkpoint_are_damage() {
    let finding = |n: u64| {
        let reason = "they are out of order, or of no checkpoint";
        [Finding::new(Invariant::Writes, format!("writes of checkpoint {}", id(n)), reason)]
    };
    assert_eq!(findings(|log| space(log).writes.put(id(9), CheckpointWrites::default())), finding(9));
    let disordered = findings(|log| {
        let mut writes = space(log).writes_of(&id(4));
        writes.damage();
        space(log).writes.put(id(4), writes);
    });
    assert_eq!(disordered, finding(4));
}

#[test]
fn a_move_of_a_head_from_or_to_what_is_not_stored_is_damage() {
    let moved = |newest: u64, head: Option<u64>| {
        findings(|log| space(log).moved = Some(MovedHead { newest: id(newest), head: head.map(id) }))
    };
    assert_eq!((moved(4, Some(3)), moved(4, None)), (Vec::new(), Vec::new()));
    let reason = "head is not valid: it was moved to a checkpoint that is not stored; nothing was written";
    let expected = [Finding::new(Invariant::Operations, "a namespace", reason)];
    assert_eq!(moved(9, Some(3)), expected);
    assert_eq!(moved(9, None), expected);
    assert_eq!(moved(4, Some(9)), expected);
}

#[test]
fn a_timer_that_a_sleeping_task_lost_is_missing() {
    let backend = MemoryBackend::new();
    add(&backend, "t", 1, None, vec![]);
    let mark = WriteMark::WakesAt(Timestamp::from_micros(5));
    let interrupt = write(-3, WriteValue::One(Encoded::null().into())).with_mark(Some(mark));
    let writes = NewWrites::new(id(1), task(1), "p").with(vec![interrupt]);
    let timers = vec![NewTimer::new(id(1), task(1), Some(Timestamp::from_micros(5)))];
    backend.commit(&Batch { timers, ..batch("t", &Namespace::root(), Some(1), vec![writes]) }).unwrap();
    assert_eq!(backend.check().unwrap().problems, []);
    space(&mut backend.log.write()).timers.clear();
    let expected = Finding::new(Invariant::Timers, format!("timer of task {}", task(1)), "it is missing");
    assert_eq!(backend.check().unwrap().problems, [expected]);
}
