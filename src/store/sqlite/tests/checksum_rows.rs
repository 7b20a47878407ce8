//! Checksums and checks of rows: each field changes them.

use super::*;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checksums::{
    ChangeChecksum, CheckpointChecksum, ItemChecksum, WriteChecksum, cache_check, kv_check, kv_lifetime_check,
    timer_check, writes_checksum,
};
use crate::store::sqlite::rows::item::item_check;
use crate::store::sqlite::tables::{cache, kv};
use rusqlite::types::ValueRef;
use std::fmt::Debug;

/// Verifies that no two of the values are the same.
fn differ<T: PartialEq + Debug>(values: &[T]) {
    for (at, one) in values.iter().enumerate() {
        let same = values[..at].iter().position(|other| other == one);
        assert_eq!(same, None, "value {at} is {one:?} too");
    }
}

fn change(task: Option<u32>, items: Vec<ItemChecksum>) -> ChangeChecksum {
    ChangeChecksum { channel: "x".into(), version: 3, kind: 2, task, value: None, items }
}

fn item(op: i64, position: u64, task: Option<u32>) -> ItemChecksum {
    ItemChecksum { op, position, end: 0, task, value: None }
}

fn written(index: i64) -> WriteChecksum {
    let (task, path, channel) = (TaskId::from_bytes([3; 16]), "p".into(), "x".into());
    WriteChecksum { task, path, index, part: 0, channel, value: None, mark: None }
}

#[test]
fn each_field_of_a_checkpoint_changes_its_checksum() {
    let empty = || CheckpointChecksum {
        thread: "a",
        namespace: "",
        id: &[1; 16],
        parent: None,
        step: 0,
        source: 0,
        created_at: 0,
        run: None,
        metadata: None,
        parents: &[],
        tasks: &[],
        consumed: Vec::new(),
        changes: Vec::new(),
        seen: Vec::new(),
    };
    let parents = [(Namespace::root(), CheckpointId::from_bytes([2; 16]))];
    let push = |index| TaskRecord { kind: TaskKind::Push { index }, ..task(1, "n") };
    let (pulled, other) = ([task(1, "n")], [task(1, "m")]);
    let (pushed, next) = ([push(0)], [push(1)]);
    let of = |checksum: CheckpointChecksum<'_>| checksum.finish(&Keys::default());
    let changed =
        |changes: Vec<ChangeChecksum>| of(CheckpointChecksum { changes: changes.iter().collect(), ..empty() });
    let consumed = |consumed: Vec<WriteChecksum>| of(CheckpointChecksum { consumed, ..empty() });
    let seen_versions = |seen: Vec<Seen>| of(CheckpointChecksum { seen: seen.iter().collect(), ..empty() });
    differ(&[
        [0; 16],
        of(empty()),
        of(CheckpointChecksum { thread: "b", ..empty() }),
        of(CheckpointChecksum { namespace: "b", ..empty() }),
        of(CheckpointChecksum { id: &[2; 16], ..empty() }),
        of(CheckpointChecksum { parent: Some([0; 16]), ..empty() }),
        of(CheckpointChecksum { step: 1, ..empty() }),
        of(CheckpointChecksum { source: 1, ..empty() }),
        of(CheckpointChecksum { created_at: 1, ..empty() }),
        of(CheckpointChecksum { run: Some(&[]), ..empty() }),
        of(CheckpointChecksum { metadata: Some(""), ..empty() }),
        of(CheckpointChecksum { parents: &parents, ..empty() }),
        of(CheckpointChecksum { tasks: &pulled, ..empty() }),
        of(CheckpointChecksum { tasks: &other, ..empty() }),
        of(CheckpointChecksum { tasks: &pushed, ..empty() }),
        of(CheckpointChecksum { tasks: &next, ..empty() }),
        consumed(vec![written(0)]),
        consumed(vec![written(1)]),
        consumed(vec![WriteChecksum { value: Some([0; 16]), ..written(0) }]),
        consumed(vec![written(0), written(1)]),
        changed(vec![change(None, Vec::new())]),
        changed(vec![change(Some(0), Vec::new())]),
        changed(vec![change(Some(1), Vec::new())]),
        changed(vec![ChangeChecksum { version: 4, ..change(None, Vec::new()) }]),
        changed(vec![ChangeChecksum { kind: 0, ..change(None, Vec::new()) }]),
        changed(vec![ChangeChecksum { channel: "y".into(), ..change(None, Vec::new()) }]),
        changed(vec![ChangeChecksum { value: Some([0; 16]), ..change(None, Vec::new()) }]),
        changed(vec![change(None, vec![item(0, 1, None)])]),
        changed(vec![change(None, vec![item(0, 1, Some(0))])]),
        changed(vec![change(None, vec![item(0, 1, Some(1))])]),
        changed(vec![change(None, vec![item(1, 1, None)])]),
        changed(vec![change(None, vec![item(0, 2, None)])]),
        changed(vec![change(None, vec![ItemChecksum { end: 2, ..item(0, 1, None) }])]),
        changed(vec![change(None, vec![ItemChecksum { value: Some([0; 16]), ..item(0, 1, None) }])]),
        seen_versions(vec![seen("n", "x", 1)]),
        seen_versions(vec![seen("n", "x", 2)]),
        seen_versions(vec![seen("m", "x", 1)]),
    ]);
    let two = [ChangeChecksum { channel: "y".into(), ..change(None, Vec::new()) }, change(None, Vec::new())];
    let [last, first] = two.clone();
    assert_eq!(changed(two.to_vec()), changed(vec![first, last]), "their order means nothing");
    assert_eq!(consumed(vec![written(1), written(0)]), consumed(vec![written(0), written(1)]));
}

#[test]
fn the_checksum_of_a_run_covers_its_checkpoint_and_its_writes_in_order() {
    let keys = Keys::default();
    differ(&[
        [0; 16],
        writes_checksum(&keys, &[0; 16], &[]),
        writes_checksum(&keys, &[1; 16], &[]),
        writes_checksum(&keys, &[1; 16], &[written(0)]),
        writes_checksum(&keys, &[1; 16], &[written(1)]),
        writes_checksum(&keys, &[1; 16], &[written(0), written(1)]),
        writes_checksum(&keys, &[1; 16], &[written(1), written(0)]),
    ]);
}

#[test]
fn each_column_of_a_row_changes_its_check() {
    let keys = Keys::default();
    let item = |columns: [i64; 5], task, value| {
        let [branch, list, position, ordinal, op] = columns;
        item_check(&keys, branch, list, position, ordinal, op, task, value)
    };
    differ(&[
        item([1, 1, 1, 1, 1], None, ValueRef::Null),
        item([2, 1, 1, 1, 1], None, ValueRef::Null),
        item([1, 2, 1, 1, 1], None, ValueRef::Null),
        item([1, 1, 2, 1, 1], None, ValueRef::Null),
        item([1, 1, 1, 2, 1], None, ValueRef::Null),
        item([1, 1, 1, 1, 2], None, ValueRef::Null),
        item([1, 1, 1, 1, 1], Some(1), ValueRef::Null),
        item([1, 1, 1, 1, 1], None, ValueRef::Integer(1)),
    ]);
    let cache_check = |namespace, key, expires_at, (codec, data)| {
        cache_check(&keys, &cache::Row { id: 0, namespace, key, expires_at, xxh3: 0, codec, data })
    };
    let kv_check = |path, created_at, updated_at| {
        let (key, expires_at, codec, data) = ("k", None, 0, &b"v"[..]);
        let row = kv::Row { id: 0, namespace: 0, key, created_at, updated_at, expires_at, xxh3: 0, codec, data };
        kv_check(&keys, path, &row)
    };
    differ(&[
        timer_check(&keys, ("a", ""), &[1], &[1], 1),
        timer_check(&keys, ("b", ""), &[1], &[1], 1),
        timer_check(&keys, ("a", "b"), &[1], &[1], 1),
        timer_check(&keys, ("a", ""), &[2], &[1], 1),
        timer_check(&keys, ("a", ""), &[1], &[2], 1),
        timer_check(&keys, ("a", ""), &[1], &[1], 2),
        cache_check(&b"a"[..], "k", None, (0, &b"v"[..])),
        cache_check(&b"b"[..], "k", None, (0, &b"v"[..])),
        cache_check(&b"a"[..], "l", None, (0, &b"v"[..])),
        cache_check(&b"a"[..], "k", Some(0), (0, &b"v"[..])),
        cache_check(&b"a"[..], "k", Some(1), (0, &b"v"[..])),
        cache_check(&b"a"[..], "k", None, (1, &b"v"[..])),
        cache_check(&b"a"[..], "k", None, (0, &b"w"[..])),
        kv_check("p", 0, 0),
        kv_check("q", 0, 0),
        kv_check("p", 1, 0),
        kv_check("p", 0, 1),
        kv_lifetime_check(&keys, "p", "k", 0),
        kv_lifetime_check(&keys, "p", "k", 1),
    ]);
}
