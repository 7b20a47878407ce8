//! Reads of the batches that a run holds back.

use super::*;
use crate::base::{Encoded, TaskId, Timestamp, WriteValue};
use crate::store::Source;
use crate::store::batch::NewWrite;

fn id(n: u8) -> CheckpointId {
    CheckpointId::from_bytes([n; 16])
}

fn task(n: u8) -> TaskId {
    TaskId::from_bytes([n; 16])
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn inside(path: &str) -> Namespace {
    Namespace::new(path).unwrap()
}

fn at(path: &str, n: u8) -> CheckpointRef {
    CheckpointRef { thread: thread(), namespace: inside(path), checkpoint: id(n) }
}

fn text(text: &str) -> WriteValue {
    WriteValue::One(Encoded::encode(text).unwrap().into())
}

/// Writes of a task of a checkpoint, each an index and a text.
fn writes(checkpoint: u8, of: u8, writes: &[(i32, &str)]) -> NewWrites {
    let writes = writes.iter().map(|(index, value)| NewWrite::new(*index, "c", text(value))).collect();
    NewWrites::new(id(checkpoint), task(of), format!("path {of}")).with(writes)
}

/// A batch with a checkpoint of a subgraph below others.
fn batch(path: &str, checkpoint: u8, below: &[&str]) -> Batch {
    let mut new = NewCheckpoint::new(id(checkpoint), None, 0, Source::Loop, Timestamp::from_micros(0));
    new.parents = below.iter().map(|parent| (inside(parent), id(0))).collect();
    let mut batch = Batch::new(thread(), inside(path), None);
    batch.checkpoints.push(new);
    batch
}

fn held(batches: impl IntoIterator<Item = Batch>) -> Held {
    let mut held = Held::default();
    batches.into_iter().for_each(|batch| held.add(batch));
    held
}

#[test]
fn the_writes_of_a_checkpoint_that_is_held_back_come_in_their_order() {
    let (first, second) = (writes(1, 1, &[(0, "a")]), writes(1, 2, &[(0, "b")]));
    let of_next = writes(2, 3, &[(0, "c")]);
    let mut beside = Batch::new(thread(), inside("a"), None);
    beside.writes.push(first.clone());
    let mut next = batch("a", 2, &[]);
    next.writes = vec![second.clone(), of_next.clone()];
    let mut elsewhere = batch("b", 1, &[]);
    elsewhere.writes.push(writes(1, 4, &[(0, "d")]));
    let held = held([batch("a", 1, &[]), beside, next, elsewhere]);
    assert_eq!(held.writes(&at("a", 1)), (true, vec![first, second]));
    assert_eq!(held.writes(&at("a", 2)), (true, vec![of_next]));
    assert_eq!(held.writes(&at("a", 3)), (false, Vec::new()));
    let other = CheckpointRef { thread: ThreadId::new("u").unwrap(), ..at("a", 1) };
    assert_eq!(held.writes(&other), (false, Vec::new()));
    assert_eq!(held.newest(&thread(), &inside("a")).map(|(newest, _)| newest), Some(id(2)));
    assert_eq!(held.newest(&thread(), &inside("b")).map(|(newest, _)| newest), Some(id(1)));
    assert_eq!(held.newest(&thread(), &inside("c")), None);
}

#[test]
fn what_was_made_below_a_dropped_subgraph_since_it_began_is_dropped() {
    let batches = || {
        [batch("a|x", 1, &["", "a"]), batch("a|x", 2, &["", "a"]), batch("b|x", 3, &["", "b"]), batch("a|y", 4, &["a"])]
    };
    let left = |from: usize| {
        let mut held = held(batches());
        assert_eq!(held.len(), 4);
        held.drop_below(&inside("a"), from);
        held.batches.iter().map(|batch| batch.checkpoints[0].id).collect::<Vec<_>>()
    };
    assert_eq!(left(0), [id(3)]);
    assert_eq!(left(1), [id(1), id(3)]);
    assert_eq!(left(2), [id(1), id(2), id(3)]);
    assert_eq!(left(4), [id(1), id(2), id(3), id(4)]);
}

#[test]
fn held_writes_are_added_to_the_stored_ones_as_a_backend_adds_them() {
    let record =
        |of: u8, index: i32, value: &str| WriteRecord::new(task(of), format!("path {of}"), index, "c", text(value));
    let stored = vec![record(2, -4, "answer"), record(2, -1, "error"), record(2, 0, "two")];
    assert_eq!(merged_writes(stored.clone(), Vec::new()), stored);
    let held = vec![
        // A position keeps its first write, a special write is replaced.
        writes(1, 2, &[(0, "again"), (1, "more"), (-4, "answers")]),
        writes(1, 1, &[(0, "one"), (-4, "none")]),
    ];
    let merged = [
        record(1, -4, "none"),
        record(1, 0, "one"),
        record(2, -4, "answers"),
        record(2, -1, "error"),
        record(2, 0, "two"),
        record(2, 1, "more"),
    ];
    assert_eq!(merged_writes(stored, held), merged);
}
