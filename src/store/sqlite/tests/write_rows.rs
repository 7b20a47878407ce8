//! The rows of writes, of heads and of listings: each damage is cited by its place and its reason.

use super::*;
use crate::store::StoreError;
use crate::store::operation::{NewOperation, OperationChange, OperationKind};
use crate::store::record::StoredHead;

/// A store with the writes of two tasks at one checkpoint: two of the first, and one of the second. A child has
/// consumed them if that is asked.
fn written(is_consumed: bool) -> (Bench, CheckpointRef) {
    let (mut bench, t, tasks) = (Bench::new(), thread("a"), [task(1, "a"), task(2, "b")]);
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: tasks.to_vec(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    let of_first = vec![
        write(0, "y", WriteValue::One(plain(&[9]))),
        write(1, "z", WriteValue::Items(vec![plain(&[1]), plain(&[2])])),
    ];
    let all = vec![writes(id, &tasks[0], of_first), writes(id, &tasks[1], vec![write(0, "y", WriteValue::Null)])];
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
    if is_consumed {
        let next = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&id));
        let parent = Some(Parent::Local(id));
        batch.checkpoints.push(NewCheckpoint { consumed: all, parent, ..checkpoint(next) });
    } else {
        batch.writes = all;
    }
    bench.store.commit(&batch).unwrap();
    assert_eq!(bench.store.writes(&at(&t, id)).unwrap().len(), 3);
    (bench, at(&t, id))
}

/// Returns place and reason of the damage that a read of the writes finds.
fn damage(is_consumed: bool, harm: &str) -> (String, String) {
    let (bench, at) = written(is_consumed);
    without_triggers(&bench.path()).execute_batch(harm).unwrap();
    match bench.store.writes(&at).expect_err(harm) {
        StoreError::Corrupt { place, reason } => (place, reason),
        other => panic!("{harm}: {other}"),
    }
}

fn cited(place: &str, reason: &str) -> (String, String) {
    (place.into(), reason.into())
}

const FIRST: &str = "write (checkpoint 1, task 0, idx 0, part 0)";

#[test]
fn a_run_with_a_checksum_of_another_form_is_refused() {
    for sum in [
        "X'00'",
        "CAST(sum || X'00' AS BLOB)",
        "CAST(sum || X'01' AS BLOB)",
        "CAST(substr(sum, 1, 16) || X'00' AS BLOB)",
        "substr(sum, 1, 16)",
        "CAST('text' AS TEXT)",
    ] {
        let harm = format!("UPDATE write SET sum = {sum} WHERE task = 0 AND idx = 0");
        assert_eq!(damage(false, &harm), cited(FIRST, "its checksum does not match the format"), "{harm}");
    }
}

#[test]
fn a_write_that_no_run_covers_is_refused() {
    let shorter = "UPDATE write SET sum = CAST(substr(sum, 1, 16) || X'01' AS BLOB) WHERE task = 0 AND idx = 0";
    let place = "write (checkpoint 1, task 0, idx 1, part 1)";
    assert_eq!(damage(false, shorter), cited(place, "no checksum covers it"));
    for is_consumed in [false, true] {
        let of_another = "UPDATE write SET sum = NULL WHERE task = 1";
        let place = "write (checkpoint 1, task 1, idx 0, part 0)";
        assert_eq!(damage(is_consumed, of_another), cited(place, "no checksum covers it"), "{is_consumed}");
        let without = "UPDATE write SET sum = NULL WHERE task = 0 AND idx = 0";
        assert_eq!(damage(is_consumed, without), cited(FIRST, "no checksum covers it"), "{is_consumed}");
    }
}

#[test]
fn a_changed_column_of_a_run_is_damage_of_the_run() {
    for is_consumed in [false, true] {
        for harm in [
            "UPDATE write SET channel = (SELECT channel FROM write WHERE idx = 1) WHERE task = 0 AND idx = 0",
            "UPDATE write SET value = X'0109' WHERE task = 0 AND idx = 0",
            "UPDATE write SET path = 'p' WHERE task = 0 AND idx = 0",
            "UPDATE write SET mark = -1 WHERE task = 0 AND idx = 0",
            "DELETE FROM write WHERE task = 0 AND part = 2",
        ] {
            let (place, reason) = damage(is_consumed, harm);
            assert_eq!((place.as_str(), reason.as_str()), (FIRST, "the checksum of its run does not match"), "{harm}");
        }
    }
}

fn rewind(bench: &Bench, of: &ThreadId, from: CheckpointId, to: CheckpointId) {
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.changes = vec![OperationChange::head(of.clone(), Namespace::root(), Some(from), Some(to))];
    bench.store.operate(&rewind).unwrap();
}

#[test]
fn a_head_that_was_moved_to_the_end_of_a_branch_is_not_continued() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let first = bench.add(&t, None, Vec::new());
    let second = bench.add(&t, Some(first), Vec::new());
    let other = bench.add(&t, Some(first), Vec::new());
    let head = |bench: &Bench| open(&bench.path()).head_with_writes(&t, &Namespace::root()).unwrap();
    assert_eq!(head(&bench), Some(StoredHead::new(other, false, Vec::new())));
    rewind(&bench, &t, other, second);
    assert_eq!(head(&bench), Some(StoredHead::new(second, false, Vec::new())));
    rewind(&bench, &t, second, first);
    assert_eq!(head(&bench), Some(StoredHead::new(first, true, Vec::new())));
}

/// Replaces bytes of a page of a table or an index, as rot does.
fn rot(path: &Path, of: &str, change: impl FnOnce(&mut [u8])) {
    let root: i64 =
        raw(path).query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [of], |row| row.get(0)).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let begin = (root as usize - 1) * 4_096;
    change(&mut bytes[begin..begin + 4_096]);
    std::fs::write(path, bytes).unwrap();
}

fn find(page: &[u8], text: &[u8]) -> usize {
    page.windows(text.len()).rposition(|found| found == text).unwrap()
}

#[test]
fn writes_of_a_head_with_tasks_are_missed_where_no_search_finds_them() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 1..=5_u64 {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let tasks = vec![task(1, "a")];
        batch.checkpoints.push(NewCheckpoint { tasks, parent: head.map(Parent::Local), ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        let value = if n == 5 { plain(b"findme") } else { plain(&[n as u8]) };
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
        batch.writes = vec![writes(id, &task(1, "a"), vec![write(0, "y", WriteValue::One(value))])];
        bench.store.commit(&batch).unwrap();
        head = Some(id);
    }
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    rot(&path, "write", |page| {
        let value = find(page, b"findme");
        let checkpoint = (value - 5..value).find(|at| page[*at] == 5).unwrap();
        page[checkpoint] = 0;
    });
    let found = open(&path).head_with_writes(&t, &Namespace::root());
    assert!(matches!(found, Err(StoreError::Corrupt { .. })), "{found:?}");
}

#[test]
fn a_page_of_threads_goes_on_past_those_of_subgraphs_alone() {
    let mut bench = Bench::new();
    let inner = Namespace::new("inner").unwrap();
    for name in ["a", "d", "e"] {
        let mut batch = Batch::new(thread(name), inner.clone(), None);
        batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::from_micros(1), 0, None)));
        bench.store.commit(&batch).unwrap();
    }
    for name in ["b", "c", "f", "g"] {
        bench.add(&thread(name), None, Vec::new());
    }
    let listed = |after: Option<&str>, limit| {
        let found = bench.store.threads(after.map(thread).as_ref(), limit).unwrap();
        found.iter().map(|of| of.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 1), ["b"]);
    assert_eq!(listed(None, 2), ["b", "c"]);
    assert_eq!(listed(None, 3), ["b", "c", "f"]);
    assert_eq!(listed(Some("c"), 2), ["f", "g"]);
    assert_eq!(listed(Some("c"), 1), ["f"]);
    assert_eq!(listed(None, 9), ["b", "c", "f", "g"]);
}

/// A closed store with a root namespace and one of a subgraph in each of three threads.
fn three_threads() -> (TempDir, PathBuf) {
    let mut bench = Bench::new();
    for name in ["alice", "bob", "carol"] {
        let id = bench.add(&thread(name), None, Vec::new());
        let mut batch = Batch::new(thread(name), Namespace::new("inner").unwrap(), None);
        batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&id))));
        bench.store.commit(&batch).unwrap();
    }
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path)
}

#[test]
fn the_end_of_a_listing_tells_of_a_namespace_that_its_index_does_not_show() {
    let (_folder, path) = three_threads();
    rot(&path, "sqlite_autoindex_namespace_1", |page| {
        let found = find(page, b"inner");
        page[found + 4] = b's';
    });
    let store = open(&path);
    assert_eq!(store.threads(None, 3).unwrap().len(), 3, "a full page is not the end");
    let whole = store.threads(None, 4);
    assert!(matches!(&whole, Err(StoreError::Corrupt { place, .. }) if place == "thread"), "{whole:?}");
}

#[test]
fn a_prefix_in_a_thread_that_an_index_does_not_show_is_damage() {
    let (_folder, path) = three_threads();
    rot(&path, "sqlite_autoindex_thread_1", |page| {
        let found = find(page, b"bob");
        page[found + 2] = b'd';
    });
    let found = open(&path).checkpoints_by_prefix(&thread("bob"), "1", 9);
    assert!(matches!(found, Err(StoreError::Corrupt { .. })), "{found:?}");
}

#[test]
fn a_prefix_with_a_full_page_of_checkpoints_is_not_searched_beside_them() {
    let (mut bench, t, mut ids) = (Bench::new(), thread("a"), Vec::new());
    // The last two ids have their first bytes in common.
    for micros in [1_000_000_000, 3_000_000_000, 3_000_000_010] {
        let head = ids.last().copied();
        let id = bench.ids.checkpoint(Timestamp::from_micros(micros), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        ids.push(id);
    }
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    rot(&path, "checkpoint_id", |page| {
        // The entries of a page are stored from its end on.
        let found = find(page, &ids[1].as_bytes()[..6]);
        page[found + 5] -= 1;
    });
    let (store, prefix) = (open(&path), &ids[1].to_string()[..13]);
    assert!(ids[2].to_string().starts_with(prefix));
    let found = store.checkpoints_by_prefix(&t, prefix, 1).unwrap();
    assert_eq!(found.iter().map(|record| record.point.checkpoint).collect::<Vec<_>>(), [ids[2]]);
    assert!(store.checkpoints_by_prefix(&t, prefix, 2).is_err(), "the entry beside it is damaged");
}
