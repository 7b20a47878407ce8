//! The findings of a check for one damaged row, and for none.

use super::side_tables::filled;
use super::*;
use crate::store::StoreError;
use crate::store::batch::ListRef;
use crate::store::check::{CheckReport, CheckedUpTo, Finding, Invariant};
use crate::store::prune::PruneSpan;
use crate::store::query::CheckpointQuery;
use crate::store::sqlite::tables::{TableRow, name};
use rusqlite::{OptionalExtension, params};

fn reference(version: u64, checkpoint: CheckpointId) -> Change {
    let of = ListRef::new(Namespace::root(), checkpoint, "messages");
    list(version, vec![ItemChange { position: 0, op: ItemOp::Reference(of), task: None }])
}

/// The bytes of a store with the kinds of rows of the log. Its checkpoints, by `seq`:
///
/// - branch 1: 1 with a task that stored two writes, 2 with a range delete, 3 without changes, 4 in which the list
///   becomes a value, 5 and 6 with items of a new list, 7 that references the list of 2
/// - branch 2, which leaves 2: 8 with a blob
/// - branch 3, thread `b`, which leaves 3: 9 with items, 10 that references the list of 9
fn whole() -> Vec<u8> {
    let mut bench = Bench::new();
    let (t, other, a) = (thread("a"), thread("b"), task(1, "a"));
    let first = NewCheckpoint {
        tasks: vec![a.clone()],
        changes: vec![list(1, vec![put(0, "zero"), put(1, "one")]), value("x", 1, plain(&[1; 40]))],
        ..checkpoint(bench.ids.checkpoint(Timestamp::from_micros(5), 0, None))
    };
    let one = first.id;
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first);
    bench.store.commit(&batch).unwrap();
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(one));
    let values = vec![write(0, "y", WriteValue::One(plain(&[9]))), write(1, "z", WriteValue::Null)];
    batch.writes = vec![writes(one, &a, values)];
    bench.store.commit(&batch).unwrap();
    let by_task = Change { task: Some(0), ..value("x", 2, plain(&[2])) };
    let two = bench.add(&t, Some(one), vec![list(2, vec![put(2, "two"), delete_range(0, 1)]), by_task]);
    let three = bench.add(&t, Some(two), Vec::new());
    let four = bench.add(&t, Some(three), vec![value("messages", 3, plain(&[3]))]);
    let five = bench.add(&t, Some(four), vec![list(4, vec![put(0, "again")])]);
    let six = bench.add(&t, Some(five), vec![list(5, vec![put(1, "and again")])]);
    bench.add(&t, Some(six), vec![reference(6, two)]);
    bench.add(&t, Some(two), vec![value("y", 1, plain(&[7; 2_000]))]);
    let nine = bench.add_on(&other, Some(Parent::Fork(at(&t, three))), vec![list(7, vec![put(3, "fork")])]);
    bench.add(&other, Some(nine), vec![reference(8, nine)]);
    let path = bench.path();
    drop(bench.store);
    std::fs::read(path).unwrap()
}

/// A file of its own with these bytes, after damage.
fn harmed(bytes: &[u8], harm: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    std::fs::write(&path, bytes).unwrap();
    without_triggers(&path).execute_batch(harm).unwrap();
    (folder, path)
}

fn checked(path: &Path) -> CheckReport {
    SqliteBackend::open(path, &options().read_only(true)).unwrap().check().unwrap()
}

fn since(path: &Path, point: &CheckedUpTo) -> CheckReport {
    SqliteBackend::open(path, &options().read_only(true)).unwrap().check_since(point).unwrap()
}

fn has(findings: &[Finding], invariant: Invariant, place: &str, reason: &str) -> bool {
    findings.iter().any(|one| one.invariant == invariant && one.place.starts_with(place) && one.reason == reason)
}

#[test]
fn a_check_counts_what_it_verified() {
    let (_folder, path) = harmed(&whole(), "SELECT 1");
    let report = checked(&path);
    assert_eq!(report.problems, []);
    assert_eq!((report.threads, report.checkpoints, report.pruned, report.erasing), (2, 10, 0, 0));
    let payloads: i64 = raw(&path).query_row("SELECT count(*) FROM payload", [], |row| row.get(0)).unwrap();
    assert_eq!((payloads, report.values, report.entries), (8, 8 + 3, 0), "payloads, and values in their rows");
    let point = report.up_to.unwrap();
    assert_eq!((point.checkpoint, point.branch, point.payload, point.blob), (10, 3, 8, 1));
    let sum: [u8; 16] =
        raw(&path).query_row("SELECT sum FROM checkpoint WHERE seq = 10", [], |row| row.get(0)).unwrap();
    assert_eq!(point.checksum.to_be_bytes(), sum[..8]);
    let idle = since(&path, &point);
    assert_eq!((idle.problems.len(), idle.checkpoints, idle.values, idle.up_to), (0, 0, 0, Some(point)));
    assert_eq!(filled().store.check().unwrap().entries, 3);
}

#[test]
fn pruned_checkpoints_are_counted_apart() {
    let (_folder, path) = harmed(&whole(), "SELECT 1");
    let store = open(&path);
    assert_eq!(store.prune(&thread("a"), &[PruneSpan::new(1, 3, 4)]).unwrap().checkpoints, 2);
    let report = store.check().unwrap();
    assert_eq!((report.checkpoints, report.pruned, &report.problems[..]), (8, 2, &[][..]));
}

#[test]
fn an_index_snapshot_is_verified_and_stands_for_the_whole_checkpoint() {
    let mut bench = Bench::new();
    let (t, mut batch) = (thread("a"), Batch::new(thread("a"), Namespace::root(), None));
    let mut parent = None;
    for n in 0..66_u64 {
        let id = bench.ids.checkpoint(Timestamp::from_micros(5), n as i64, parent.as_ref());
        let changes = vec![value(if n % 2 == 0 { "x" } else { "y" }, n + 1, plain(&[n as u8]))];
        let parent = parent.replace(id).map(Parent::Local);
        batch.checkpoints.push(NewCheckpoint { changes, parent, ..checkpoint(id) });
    }
    bench.store.commit(&batch).unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    let kinds = "SELECT count(*) FROM version WHERE kind & 15 = 4 AND key = 0";
    assert_eq!(raw(&bench.path()).query_row(kinds, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    assert!(bench.store.state(&at(&t, parent.unwrap())).is_ok());
    without_triggers(&bench.path())
        .execute_batch("UPDATE version SET value = substr(value, 1, 1) WHERE kind & 15 = 4")
        .unwrap();
    let reason = "the index snapshot differs from the rows of its lineage";
    let findings = bench.store.check().unwrap().problems;
    assert!(has(&findings, Invariant::IndexSnapshots, "version (branch 1, ordinal 64, key 0)", reason), "{findings:?}");
}

#[test]
fn a_finding_names_the_row_and_what_is_wrong_with_it() {
    const FOLLOWS: &str = "branch and ordinal do not follow from its parent";
    const KIND: &str = "kind and value do not match the format";
    const OPERATION: &str = "operation and value do not match the format";
    const REFERENCE: &str = "a list references one of another thread, or of a later checkpoint";
    const BRANCH: &str = "parent, upto, depth and fork do not match";
    const STRAY: &str = "it belongs to no checkpoint";
    const CHECK: &str = "the check does not match";
    const ROW: &str = "the check of the row does not match";
    let copy = |table: &str, columns: &str| {
        let of = format!("FROM {table} WHERE branch = 1 AND ordinal = 0 LIMIT 1");
        format!("INSERT INTO {table} (ordinal, {columns}) SELECT 90, {columns} {of}")
    };
    let copied = copy("version", "branch, key, version, kind, task, value, xxh3");
    let copied_item = copy("item", "branch, channel, slot, op, task, value, xxh3");
    // The list of checkpoint 2, and the list of checkpoint 8, which is later.
    let of_two = "(SELECT value FROM item WHERE op = 3 AND branch = 1)";
    let of_other = format!("UPDATE item SET value = {of_two} WHERE op = 3 AND branch = 3");
    let of_later =
        format!("UPDATE item SET value = CAST(X'08' || substr({of_two}, 2) AS BLOB) WHERE op = 3 AND branch = 1");
    let of_value = "(SELECT value FROM version WHERE branch = 1 AND ordinal = 3)";
    let marked = format!("UPDATE version SET value = {of_value} WHERE kind & 15 = 5");
    use Invariant::{Branches, Parents, References, RowChecks, Rows};
    let harms: Vec<(&str, Invariant, &str, &str)> = vec![
        (&copied, Rows, "version (branch 1, ordinal 90)", STRAY),
        (&copied_item, Rows, "item (branch 1, ordinal 90)", STRAY),
        ("UPDATE item SET branch = 77 WHERE slot = 3", Rows, "item (branch 77, ordinal 3)", STRAY),
        (&of_other, References, "checkpoint 10", REFERENCE),
        (&of_later, References, "checkpoint 7", REFERENCE),
        (
            "UPDATE version SET kind = (kind & ~15) | 4 WHERE branch = 1 AND ordinal = 1 AND kind & 15 = 2",
            Rows,
            "version (branch 1, ordinal 1, key",
            KIND,
        ),
        (&marked, Rows, "version (branch 1, ordinal 2, key 0)", KIND),
        ("UPDATE version SET key = 1 WHERE kind & 15 = 5", Rows, "version (branch 1, ordinal 2, key 1)", KIND),
        ("UPDATE version SET task = 1 WHERE kind & 15 = 5", Rows, "version (branch 1, ordinal 2, key 0)", KIND),
        (
            "UPDATE version SET xxh3 = xxh3 + 1 WHERE branch = 1 AND ordinal = 1 AND xxh3 IS NOT NULL",
            RowChecks,
            "version (branch 1, ordinal 1)",
            CHECK,
        ),
        ("UPDATE item SET xxh3 = xxh3 + 1 WHERE branch = 1 AND slot = 2", RowChecks, "item (branch 1", CHECK),
        // The range delete of everything in checkpoint 4: its operation, its place, and its range.
        ("UPDATE item SET op = 0 WHERE branch = 1 AND ordinal = 3", Rows, "item (branch 1", OPERATION),
        ("UPDATE item SET slot = 5 WHERE branch = 1 AND ordinal = 3", Rows, "item (branch 1", OPERATION),
        ("UPDATE item SET value = X'000100' WHERE branch = 1 AND ordinal = 3", Rows, "item (branch 1", OPERATION),
        ("UPDATE item SET slot = 50 WHERE branch = 1 AND slot = -2", Rows, "item (branch 1", OPERATION),
        ("UPDATE item SET slot = 50 WHERE branch = 1 AND op = 3", Rows, "item (branch 1", OPERATION),
        ("UPDATE item SET slot = -60 WHERE branch = 1 AND slot = 2", Rows, "item (branch 1", OPERATION),
        ("UPDATE checkpoint SET parent = NULL WHERE seq = 2", Parents, "checkpoint 2", FOLLOWS),
        ("UPDATE checkpoint SET ordinal = 100 WHERE seq = 6", Parents, "checkpoint 6", FOLLOWS),
        ("UPDATE branch SET upto = 0 WHERE id = 2", Parents, "checkpoint 8", FOLLOWS),
        ("UPDATE branch SET depth = 5 WHERE id = 2", Branches, "branch 2", BRANCH),
        ("UPDATE branch SET upto = -1 WHERE id = 2", Branches, "branch 2", BRANCH),
        ("UPDATE branch SET parent = 3 WHERE id = 2", Branches, "branch 2", BRANCH),
        ("UPDATE branch SET fork_thread = 9 WHERE id = 3", Branches, "branch 3", BRANCH),
        ("UPDATE branch SET fork_checkpoint = fork_checkpoint + 1 WHERE id = 3", Branches, "branch 3", BRANCH),
        ("UPDATE branch SET xxh3 = xxh3 + 1 WHERE id = 3", RowChecks, "branch 3", ROW),
        ("UPDATE thread SET xxh3 = xxh3 + 1 WHERE id = 2", RowChecks, "thread 2", ROW),
        ("UPDATE name SET xxh3 = xxh3 + 1 WHERE text = 'z'", RowChecks, "name ", ROW),
        ("UPDATE checkpoint SET xxh3 = xxh3 + 1 WHERE seq = 8", RowChecks, "checkpoint 8", ROW),
        ("DELETE FROM payload WHERE id = 1", Rows, "item (branch 1", "payload 1 is missing or damaged"),
        ("UPDATE write SET sum = NULL", Invariant::Writes, "write", "no checksum covers it"),
    ];
    let bytes = whole();
    for (harm, invariant, place, reason) in harms {
        let (_folder, path) = harmed(&bytes, harm);
        let report = checked(&path);
        assert!(has(&report.problems, invariant, place, reason), "{harm}: {:?}", report.problems);
        assert_eq!(report.up_to, None, "{harm}");
    }
}

#[test]
fn a_column_of_another_type_is_damage_of_the_row_that_has_it() {
    let (_folder, path) = harmed(&whole(), "UPDATE checkpoint SET id = X'00' WHERE seq = 9");
    let findings = checked(&path).problems;
    assert!(findings.iter().any(|finding| finding.invariant == Invariant::Ids), "{findings:?}");
    assert!(findings.iter().all(|finding| finding.invariant != Invariant::Pages), "{findings:?}");
}

#[test]
fn a_broken_page_is_cited_as_one_wherever_it_is_read() {
    let (_folder, path) = harmed(&whole(), "SELECT 1");
    let point = checked(&path).up_to.unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'payload'";
    let root: i64 = raw(&path).query_row(root, [], |row| row.get(0)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(root as usize - 1) * 4_096] = 0;
    std::fs::write(&path, bytes).unwrap();
    let findings = since(&path, &point).problems;
    assert!(!findings.is_empty() && findings.iter().all(|one| one.invariant == Invariant::Pages), "{findings:?}");
}

#[test]
fn a_check_reads_names_anew() {
    let mut bench = Bench::new();
    let t = thread("a");
    let id = bench.add(&t, None, vec![value("x", 1, plain(&[1]))]);
    assert_eq!(bench.store.state(&at(&t, id)).unwrap().channels.len(), 1);
    let conn = without_triggers(&bench.path());
    conn.execute_batch("UPDATE name SET text = 'w' WHERE text = 'x'").unwrap();
    let row = "SELECT id, kind FROM name WHERE text = 'w'";
    let check = |row: &rusqlite::Row<'_>| {
        let row = name::Row { id: row.get(0)?, kind: row.get(1)?, text: "w" };
        Ok(row.row_check().finish())
    };
    let check: Option<i64> = conn.query_row(row, [], check).optional().unwrap();
    assert_eq!(conn.execute("UPDATE name SET xxh3 = ?1 WHERE text = 'w'", params![check]).unwrap(), 1);
    let findings = bench.store.check().unwrap().problems;
    assert!(has(&findings, Invariant::Checkpoints, "checkpoint 1", "its checksum does not match"), "{findings:?}");
}

/// A store of `whole`, the point after it, and what came later: checkpoints 11 and 12 on branch 2, and 13 on branch 4,
/// of a new thread.
fn grown() -> (TempDir, PathBuf, CheckedUpTo) {
    let (folder, path) = harmed(&whole(), "SELECT 1");
    let mut ids = IdSource::from_seed(99);
    let store = open(&path);
    let point = store.check().unwrap().up_to.unwrap();
    let t = thread("a");
    for n in 0..2_u64 {
        let head = store.head_id(&t, &Namespace::root()).unwrap();
        let id = ids.checkpoint(Timestamp::from_micros(9_000_000_000), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let changes = vec![list(9 + n, vec![put(4 + n, "later")]), value("z", 1 + n, plain(&[3; 2_000]))];
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
        store.commit(&batch).unwrap();
    }
    let old = CheckpointQuery::new(thread("a"), Namespace::root());
    let old = store.checkpoints(&old).unwrap().into_iter().find(|record| record.seq == 3).unwrap().point;
    let mut batch = Batch::new(thread("c"), Namespace::root(), None);
    let id = ids.checkpoint(Timestamp::from_micros(9_000_000_000), 0, None);
    batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Fork(old)), ..checkpoint(id) });
    store.commit(&batch).unwrap();
    let report = store.check_since(&point).unwrap();
    assert_eq!((report.checkpoints, report.threads, &report.problems[..]), (3, 2, &[][..]));
    drop(store);
    (folder, path, point)
}

#[test]
fn a_check_of_newer_rows_reads_these_and_no_older_ones() {
    const ROW: &str = "the check of the row does not match";
    let (folder, path, point) = grown();
    let bytes = std::fs::read(&path).unwrap();
    drop(folder);
    for older in [
        "UPDATE checkpoint SET xxh3 = xxh3 + 1 WHERE seq = 5",
        "UPDATE branch SET xxh3 = xxh3 + 1 WHERE id = 3",
        "UPDATE branch SET depth = 9 WHERE id = 3",
        "UPDATE name SET xxh3 = xxh3 + 1 WHERE text = 'y'",
        "UPDATE blob SET hash = zeroblob(16) WHERE id = 1",
        "UPDATE payload SET xxh3 = xxh3 + 1 WHERE id = 8",
    ] {
        let (_folder, path) = harmed(&bytes, older);
        assert_eq!(since(&path, &point).problems, [], "{older}");
        assert_ne!(checked(&path).problems, [], "{older}");
    }
    let missing = "payload 9 is missing or damaged";
    for (newer, invariant, place, reason) in [
        ("UPDATE checkpoint SET xxh3 = xxh3 + 1 WHERE seq = 12", Invariant::RowChecks, "checkpoint 12", ROW),
        ("UPDATE branch SET xxh3 = xxh3 + 1 WHERE id = 4", Invariant::RowChecks, "branch 4", ROW),
        ("UPDATE payload SET xxh3 = xxh3 + 1 WHERE id = 9", Invariant::Rows, "", missing),
        ("UPDATE blob SET hash = zeroblob(16) WHERE id = 2", Invariant::Blobs, "blob 2", "its hash does not match"),
        (
            "UPDATE checkpoint SET id = zeroblob(16) WHERE seq = 11",
            Invariant::Ids,
            "checkpoint 11",
            "its id does not follow the one before it",
        ),
        (
            "UPDATE checkpoint SET id = CAST(X'7fffffffffffffffffffffffffffffff' AS BLOB) WHERE seq = 11",
            Invariant::Ids,
            "checkpoint 12",
            "its id does not follow the one before it",
        ),
    ] {
        let (_folder, path) = harmed(&bytes, newer);
        let findings = since(&path, &point).problems;
        assert!(has(&findings, invariant, place, reason), "{newer}: {findings:?}");
    }
}

#[test]
fn a_newer_row_may_refer_to_an_older_value_and_to_older_writes() {
    let mut bench = Bench::new();
    let (t, a) = (thread("a"), task(1, "a"));
    let id = bench.ids.checkpoint(Timestamp::from_micros(5), 0, None);
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    let store = |bench: &Bench, index: i32, payload: Payload| {
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
        batch.writes = vec![writes(id, &a, vec![write(index, "x", WriteValue::One(payload))])];
        bench.store.commit(&batch).unwrap();
    };
    store(&bench, 0, plain(&[7; 40]));
    let point = bench.store.check().unwrap().up_to.unwrap();
    let change =
        |at| Change { channel: "x".into(), version: 1, value: ChangeValue::Value(Data::OfWrite(at)), task: Some(0) };
    bench.add(&t, Some(id), vec![change(WriteRef { task: a.id, index: 0, part: 0 })]);
    let report = bench.store.check_since(&point).unwrap();
    assert_eq!((report.checkpoints, &report.problems[..]), (1, &[][..]));
    // The run of an older checkpoint is verified along with the child that came later.
    without_triggers(&bench.path()).execute_batch("UPDATE write SET sum = zeroblob(16)").unwrap();
    let findings = bench.store.check_since(&point).unwrap().problems;
    assert!(findings.iter().any(|one| one.invariant == Invariant::Writes), "{findings:?}");
}

#[test]
fn an_index_with_the_page_of_another_table_is_a_finding_also_without_rows() {
    let bench = Bench::new();
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    make_groups(&path);
    let roots: Vec<(String, usize)> = raw(&path)
        .prepare("SELECT name, rootpage FROM sqlite_schema WHERE type = 'index' ORDER BY name")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(roots.len() > 20, "{roots:?}");
    let sound = std::fs::read(&path).unwrap();
    for (name, root) in roots {
        let mut bytes = sound.clone();
        let page = &mut bytes[(root - 1) * 4_096..root * 4_096];
        page.fill(0);
        // The leaf of a table without rows.
        (page[0], page[5]) = (13, 0x10);
        std::fs::write(&path, bytes).unwrap();
        // Some are read when a file is opened, which is refused.
        let checked = SqliteBackend::open(&path, &options()).and_then(|store| store.check());
        let Ok(CheckReport { problems: findings, .. }) = checked else {
            assert!(matches!(checked, Err(StoreError::Corrupt { .. })), "{name}: {checked:?}");
            continue;
        };
        assert!(findings.iter().any(|finding| finding.invariant == Invariant::Pages), "{name}: {findings:?}");
    }
}
