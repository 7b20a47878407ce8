//! Recoveries: sound rows are written to a new store, losses are listed, and nothing loops or panics.

use super::cipher::{Secrets, bench, encrypted, fill, key};
use super::*;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::prune::PruneSpan;
use crate::store::recovery::{LostKind, Recovery};
use crate::store::side_tables::SideTables;
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Texts at each checkpoint of a store, by its id.
type Contents = BTreeMap<String, Vec<(u64, String)>>;

/// A closed store of at least 64 KiB: two threads, forks, writes, large values.
fn closed() -> (TempDir, PathBuf) {
    let mut bench = Bench::new();
    let (mut head, mut forked) = (None, None);
    for n in 0..90_u64 {
        let text = if n % 9 == 0 { "x".repeat(2_000) } else { format!("text {n}") };
        let mut changes = vec![list(n + 1, vec![put(n, &text)])];
        if n % 4 == 0 {
            changes.push(value("topic", n + 1, plain(&[0x0b])));
        }
        let id = bench.add(&thread("a"), head, changes);
        forked = if n == 40 { Some(id) } else { forked };
        head = Some(id);
    }
    for n in 0..5_u64 {
        forked = Some(bench.add(&thread("a"), forked, vec![list(50 + n, vec![put(60 + n, "on the side")])]));
    }
    bench.add(&thread("b"), None, vec![list(1, vec![put(0, "alone")])]);
    bench.store.checkpoint_wal().unwrap();
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path)
}

fn contents(store: &SqliteBackend) -> Contents {
    let mut found = Contents::new();
    for of in store.threads(None, 100).unwrap().into_iter().filter(|of| !of.id.as_str().ends_with("salvaged)")) {
        let query = crate::store::log::CheckpointQuery {
            limit: 1_000,
            ..crate::store::log::CheckpointQuery::new(of.id, Namespace::root())
        };
        for record in store.checkpoints(&query).unwrap() {
            found.insert(record.point.checkpoint.to_string(), items(store, &record.point, ItemRange::All));
        }
    }
    found
}

/// Recovers a file and verifies that the recovered rows are a part of the stored ones.
fn recovered(path: &Path, whole: &Contents, name: &str) -> Result<Recovery, StoreError> {
    let to = path.with_file_name(format!("{name}.db"));
    let before = fs::read(path).unwrap();
    let report = Store::recover(path, &to)?;
    assert!(fs::read(path).unwrap() == before, "{name}: the damaged file is not changed");
    let store = open(&to);
    assert_eq!(store.check().unwrap().problems, Vec::<crate::store::check::Finding>::new(), "{name}");
    let found = contents(&store);
    assert_eq!(found.len() as u64, report.checkpoints, "{name}");
    for (id, texts) in &found {
        assert_eq!(Some(texts), whole.get(id), "{name}: {id}");
    }
    assert!(report.lost_count > 0 || found.len() == whole.len(), "{name}: what is missing is listed");
    let of_kind = |kind| report.lost.iter().filter(move |lost| lost.kind == kind);
    let lost: BTreeSet<String> =
        of_kind(LostKind::Checkpoint).filter_map(|lost| Some(lost.checkpoint?.to_string())).collect();
    let missing: BTreeSet<String> = whole.keys().filter(|id| !found.contains_key(*id)).cloned().collect();
    let is_lost = lost.iter().all(|id| !found.contains_key(id));
    assert!(is_lost, "{name}: nothing is listed that was recovered: {lost:?}");
    // The rest of a file that was longer is not known.
    let is_counted = report.doubts.is_empty()
        && [LostKind::Log, LostKind::Range].into_iter().all(|kind| of_kind(kind).next().is_none())
        && of_kind(LostKind::Thread).all(|lost| lost.thread.is_some())
        && of_kind(LostKind::Checkpoint).all(|lost| lost.checkpoint.is_some())
        // A damaged id is that of no checkpoint.
        && lost.is_subset(&missing);
    assert!(!is_counted || lost == missing, "{name}: all that is missing is listed");
    drop(store);
    fs::remove_file(&to).unwrap();
    Ok(report)
}

#[test]
fn a_sound_file_is_recovered_whole() {
    let (_folder, path) = closed();
    assert!(fs::metadata(&path).unwrap().len() >= 64 << 10);
    let whole = contents(&open(&path));
    let report = recovered(&path, &whole, "whole").unwrap();
    assert!(report.is_complete(), "{:?}", report.lost);
    assert_eq!((report.threads, report.checkpoints), (2, whole.len() as u64));
}

#[test]
fn flips_all_over_a_file_cost_at_most_what_they_touch() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    let (mut outcomes, mut recovered_checkpoints) = (0, 0);
    for (at, mask) in (0..bytes.len()).step_by(bytes.len() / cases(6, 60)).zip([0x01, 0xff].into_iter().cycle()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= mask;
        fs::write(&damaged, &flipped).unwrap();
        match recovered(&damaged, &whole, "flip") {
            Ok(report) => recovered_checkpoints += report.checkpoints,
            Err(error) => assert!(matches!(error, StoreError::NotAStore { .. }) && at < 100, "{at}: {error}"),
        }
        outcomes += 1;
    }
    let share = recovered_checkpoints as f64 / (outcomes * whole.len()) as f64;
    assert!(share > 0.6, "{share} of the checkpoints were recovered");
}

/// A closed store with a checkpoint in seven of its main branch, and the ends of both branches.
fn closed_and_pruned() -> (TempDir, PathBuf) {
    let (folder, path) = closed();
    let store = open(&path);
    let kept = (0..90).step_by(7);
    let spans: Vec<PruneSpan> = kept.map(|ordinal| PruneSpan::new(1, ordinal + 1, ordinal + 6)).collect();
    let side = PruneSpan::new(2, 0, 44);
    let pruned = store.prune(&thread("a"), &[&spans[..], &[side]].concat()).unwrap();
    assert!(pruned.checkpoints > 70, "{pruned:?}");
    store.checkpoint_wal().unwrap();
    (folder, path)
}

#[test]
fn kept_checkpoints_after_pruned_ones_are_recovered() {
    let (folder, path) = closed_and_pruned();
    let whole = contents(&open(&path));
    assert!((15..20).contains(&whole.len()), "{}", whole.len());
    let report = recovered(&path, &whole, "pruned").unwrap();
    assert!(report.is_complete(), "{:?}", report.lost);
    assert_eq!((report.threads, report.checkpoints), (2, whole.len() as u64));
    // Each kept one begins a lineage, so damage of a row costs the checkpoints that show it.
    let (sound, damaged) = (fs::read(&path).unwrap(), folder.path().join("damaged.db"));
    let harms = [
        ("UPDATE checkpoint SET step = step + 1 WHERE seq = 50", 1, "a kept one"),
        (
            "UPDATE checkpoint SET created_at = created_at + 1 WHERE seq = 47",
            0,
            "a pruned one, which is not its parent",
        ),
        ("UPDATE checkpoint SET sum = zeroblob(16) WHERE seq = 49", 1, "the pruned parent of a kept one"),
        ("UPDATE item SET value = x'00' WHERE slot = 45 AND branch = 1", 7, "a row of a pruned one"),
        ("UPDATE checkpoint SET source = source - 2147483648 WHERE seq = 50", 1, "a kept one that seems pruned"),
    ];
    for (harm, lost, what) in harms {
        fs::write(&damaged, &sound).unwrap();
        without_triggers(&damaged).execute_batch(harm).unwrap();
        let report = recovered(&damaged, &whole, "harm").unwrap();
        assert_eq!(report.checkpoints, whole.len() as u64 - lost, "{what}: {:?}", report.lost);
    }
    for page in (0..sound.len() / 4_096).step_by(cases(23, 1)) {
        let mut zeroed = sound.clone();
        zeroed[page * 4_096..(page + 1) * 4_096].fill(0);
        fs::write(&damaged, &zeroed).unwrap();
        recovered(&damaged, &whole, "page").unwrap_or_else(|error| panic!("page {page}: {error}"));
    }
}

#[test]
fn a_damaged_number_of_the_format_costs_nothing() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    for (at, mask) in (60..64).flat_map(|at| [(at, 0x01), (at, 0x02), (at, 0xff)]) {
        let mut flipped = bytes.clone();
        flipped[at] ^= mask;
        fs::write(&damaged, &flipped).unwrap();
        let report = recovered(&damaged, &whole, "format").unwrap_or_else(|error| panic!("{at}, {mask}: {error}"));
        // That byte has the bits of the groups, and none is in the schema.
        let is_told = (at, mask) == (62, 0xff) && report.doubts.len() == 1 && report.lost_count == 0;
        assert!(report.is_complete() || is_told, "{at}, {mask}: {report:?}");
    }
    // A file of a newer format has another schema as well.
    let conn = without_triggers(&path);
    conn.execute_batch("DROP VIEW v_messages; PRAGMA user_version = 2").unwrap();
    drop(conn);
    let newer = Store::recover(&path, folder.path().join("newer.db"));
    assert!(matches!(newer, Err(StoreError::NewerFormat { found: 2, .. })), "{newer:?}");
}

#[test]
fn whole_pages_of_zeros_and_short_files_are_recovered_from() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    for page in (0..bytes.len() / 4_096).step_by(cases(19, 1)) {
        let mut zeroed = bytes.clone();
        zeroed[page * 4_096..(page + 1) * 4_096].fill(0);
        fs::write(&damaged, &zeroed).unwrap();
        recovered(&damaged, &whole, "page").unwrap_or_else(|error| panic!("page {page}: {error}"));
    }
    for length in [4_096, 5_000, 40_960, bytes.len() / 2, bytes.len() - 4_096, bytes.len() - 1] {
        fs::write(&damaged, &bytes[..length]).unwrap();
        match recovered(&damaged, &whole, "short") {
            Ok(report) => assert!(report.checkpoints < whole.len() as u64 || length == bytes.len() - 1),
            Err(error) => panic!("{length}: {error}"),
        }
    }
}

#[test]
fn a_log_is_read_and_a_lost_one_costs_its_commits_alone() {
    let mut bench = Bench::new();
    let first = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "in the file")])]);
    bench.store.checkpoint_wal().unwrap();
    bench.add(&thread("a"), Some(first), vec![list(2, vec![put(1, "in the log")])]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let from = crate::store::sqlite::file::paths::beside(&bench.path(), suffix);
        fs::copy(from, crate::store::sqlite::file::paths::beside(&copy, suffix)).unwrap();
    }
    let whole = contents(&bench.store);
    let report = recovered(&copy, &whole, "with-log").unwrap();
    assert_eq!((report.checkpoints, report.lost_count), (2, 0), "{:?}", report.lost);
    fs::remove_file(folder.path().join("copy.db-wal")).unwrap();
    let to = folder.path().join("without.db");
    assert_eq!(Store::recover(&copy, &to).unwrap().checkpoints, 1);
}

#[test]
fn what_builds_on_a_damaged_checkpoint_is_listed_with_it() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    without_triggers(&path).execute_batch("UPDATE checkpoint SET step = step + 1 WHERE seq = 60").unwrap();
    let report = recovered(&path, &whole, "chain").unwrap();
    // The main branch from there on is lost, the fork at 41 and the other thread are not.
    assert_eq!((report.checkpoints, report.lost_count), (59 + 5 + 1, 31));
    assert!(report.lost.iter().all(|lost| lost.kind == LostKind::Checkpoint && lost.checkpoint.is_some()));
    assert!(report.lost[0].reason.contains("checksum"), "{}", report.lost[0].reason);
    drop(folder);
}

#[test]
fn nothing_is_replaced_and_strangers_are_refused() {
    let (folder, path) = closed();
    let taken = folder.path().join("taken.db");
    fs::write(&taken, "of somebody").unwrap();
    assert!(matches!(Store::recover(&path, &taken), Err(StoreError::Invalid { .. })));
    assert_eq!(fs::read(&taken).unwrap(), b"of somebody");
    let text = folder.path().join("text.db");
    fs::write(&text, "a text\n".repeat(2_000)).unwrap();
    let to = folder.path().join("to.db");
    assert!(matches!(Store::recover(&text, &to), Err(StoreError::NotAStore { .. })));
    assert!(matches!(Store::recover(folder.path().join("missing.db"), &to), Err(StoreError::Open { .. })));
    let open = open(&path);
    assert!(matches!(Store::recover(&path, &to), Err(StoreError::Open { .. })), "it is open");
    drop(open);
    // The name of the scratch folder is that of the damaged file.
    let input = folder.path().join("to.db-damaged");
    fs::rename(&path, &input).unwrap();
    let before = fs::read(&input).unwrap();
    let error = Store::recover(&input, &to).unwrap_err().to_string();
    assert!(error.contains("to.db-damaged"), "{error}");
    assert!(fs::read(&input).unwrap() == before);
    fs::rename(&input, &path).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_damaged_checkpoint_costs_itself_and_its_descendants_and_nothing_else() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let store = open(&path);
    let mut records = Vec::new();
    for of in ["a", "b"].map(thread) {
        let mut query = crate::store::log::CheckpointQuery::new(of, Namespace::root());
        query.limit = 1_000;
        records.extend(store.checkpoints(&query).unwrap());
    }
    drop(store);
    records.sort_by_key(|record| record.seq);
    assert_eq!(records.len(), 96);
    let (sound, damaged) = (fs::read(&path).unwrap(), folder.path().join("damaged.db"));
    // The first one, the one that was forked, both of its children, the ends of both branches, and the other thread.
    for (seq, count) in [(1, 95), (41, 55), (42, 49), (91, 5), (90, 1), (95, 1), (96, 1)] {
        fs::write(&damaged, &sound).unwrap();
        let harm = format!("UPDATE checkpoint SET created_at = created_at + 1 WHERE seq = {seq}");
        without_triggers(&damaged).execute_batch(&harm).unwrap();
        let mut expected = BTreeSet::new();
        for record in &records {
            if record.seq == seq || record.parent.is_some_and(|parent| expected.contains(&parent)) {
                expected.insert(record.point.checkpoint);
            }
        }
        assert_eq!(expected.len(), count, "{seq}");
        let report = recovered(&damaged, &whole, "row").unwrap();
        let of_checkpoints = report.lost.iter().filter(|lost| lost.kind == LostKind::Checkpoint);
        let lost: BTreeSet<CheckpointId> = of_checkpoints.filter_map(|lost| lost.checkpoint).collect();
        assert_eq!(lost, expected, "{seq}");
        let threads = report.lost.iter().filter(|lost| lost.kind == LostKind::Thread);
        let threads: Vec<_> = threads.filter_map(|lost| lost.thread.clone()).collect();
        let whole_threads = [(1, "a"), (96, "b")].into_iter().filter(|(first, _)| *first == seq);
        assert_eq!(threads, whole_threads.map(|(_, name)| thread(name)).collect::<Vec<_>>(), "{seq}");
        assert_eq!(report.lost_count as usize, count + threads.len(), "{seq}: nothing else is lost: {:?}", report.lost);
        assert_eq!(report.checkpoints as usize, records.len() - count, "{seq}");
    }
}

#[test]
fn a_damaged_row_beside_the_checkpoints_costs_itself_alone() {
    let mut bench = Bench::new();
    let (of, a) = (thread("a"), task(1, "a"));
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: vec![a.clone(), task(2, "b")], ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    for (n, due) in [(1, &a), (2, &task(2, "b"))] {
        let mut batch = Batch::new(of.clone(), Namespace::root(), Some(id));
        batch.writes.push(writes(id, due, vec![write(0, "x", WriteValue::One(plain(&[n])))]));
        let wake_at = Some(Timestamp::from_micros(i64::from(n)));
        batch.timers.push(crate::store::batch::NewTimer { checkpoint: id, task: due.id, wake_at });
        bench.store.commit(&batch).unwrap();
    }
    for name in ["one", "two"] {
        let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(3));
        let (field, text) = (OperationField::Fact(name.into()), OperationValue::Text(name.into()));
        operation.changes.push(OperationChange::new(of.clone(), Namespace::root(), field, None, Some(text)));
        bench.store.operate(&operation).unwrap();
    }
    let path = bench.path();
    let Bench { folder, store, .. } = bench;
    drop(store);
    let store = Store::open(&path).unwrap();
    let note = |text: &str| crate::base::Map::from_iter([("text".to_owned(), crate::base::Value::from(text))]);
    ["one", "two"].into_iter().for_each(|key| store.kv().put(["notes"], key, note(key)).unwrap());
    drop(store);
    let (sound, damaged) = (fs::read(&path).unwrap(), folder.path().join("damaged.db"));
    let recover = |name: &str| {
        let to = folder.path().join(format!("{name}.db"));
        (Store::recover(&damaged, &to).unwrap(), open(&to))
    };
    fs::write(&damaged, &sound).unwrap();
    let (whole, _) = recover("whole");
    assert!(whole.is_complete(), "{:?}", whole.lost);
    assert_eq!((whole.checkpoints, whole.writes, whole.timers, whole.operations, whole.entries), (1, 2, 2, 2, 2));
    let harms = [
        (LostKind::Writes, "UPDATE write SET channel = channel + 1 WHERE task = (SELECT min(task) FROM write)"),
        (LostKind::Timer, "UPDATE timer SET wake_at = 9 WHERE wake_at = 1"),
        (LostKind::Operation, "UPDATE operation SET at = 8 WHERE id = 1"),
        (LostKind::Entry, "UPDATE kv SET updated_at = updated_at + 1 WHERE key = 'one'"),
    ];
    for (kind, harm) in harms {
        fs::write(&damaged, &sound).unwrap();
        without_triggers(&damaged).execute_batch(harm).unwrap();
        let (report, store) = recover(kind.as_str());
        let lost: Vec<LostKind> = report.lost.iter().map(|lost| lost.kind).collect();
        assert_eq!((lost, report.lost_count), (vec![kind], 1), "{harm}: {:?}", report.lost);
        let less = |of: LostKind| u64::from(of == kind);
        let expected = Recovery {
            writes: whole.writes - less(LostKind::Writes),
            timers: whole.timers - less(LostKind::Timer),
            operations: whole.operations - less(LostKind::Operation),
            entries: whole.entries - less(LostKind::Entry),
            lost_count: 1,
            lost: report.lost.clone(),
            ..whole.clone()
        };
        assert_eq!(report, expected, "{harm}");
        assert_eq!(store.check().unwrap().problems, [], "{harm}");
        // The other row of its kind is there, with its content.
        let timers: Vec<i64> = store.timers(None, 9).unwrap().iter().map(|timer| timer.wake_at.as_micros()).collect();
        assert_eq!(timers, if kind == LostKind::Timer { vec![2] } else { vec![1, 2] }, "{harm}");
        let written = store.writes(&at(&of, id)).unwrap();
        let values: Vec<u8> =
            written.iter().filter_map(|write| write.value.payloads().first()).map(|value| value.data[0]).collect();
        assert_eq!(values, if kind == LostKind::Writes { vec![2] } else { vec![1, 2] }, "{harm}");
        let facts: Vec<String> = store.fields(&of).unwrap().into_iter().map(|(field, _)| field.to_string()).collect();
        assert_eq!(facts.len(), if kind == LostKind::Operation { 1 } else { 2 }, "{harm}: {facts:?}");
    }
}

#[test]
fn a_store_with_keys_is_recovered_with_them_alone() {
    for options in [encrypted(key(1)), options().checksum_key(key(1))] {
        let (mut bench, mut secrets) = (bench(&options), Secrets::new());
        fill(&mut bench, &mut secrets);
        let mut titled = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(3));
        let (field, title) = (OperationField::Fact("title".into()), OperationValue::Text(secrets.next()));
        titled.changes.push(OperationChange::new(thread("alice"), Namespace::root(), field, None, Some(title)));
        bench.store.operate(&titled).unwrap();
        let of = bench.store.threads(None, 9).unwrap();
        let read = |store: &SqliteBackend| {
            let mut found = Vec::new();
            for record in &of {
                let mut query = crate::store::log::CheckpointQuery::new(record.id.clone(), Namespace::root());
                query.limit = 1_000;
                for record in store.checkpoints(&query).unwrap() {
                    let state = store.state(&record.point).unwrap();
                    let mut items = Vec::new();
                    let mut visit = |row: crate::store::record::ItemRow<'_>| {
                        items.push(row.payload.to_payload());
                        Ok(())
                    };
                    store.items(&record.point, "messages", ItemRange::All, &mut visit).unwrap();
                    let writes = store.writes(&record.point).unwrap();
                    found.push(format!("{:?} {:?} {items:?} {writes:?}", record.metadata, state.channels));
                }
                found.push(format!("{:?}", store.fields(&record.id).unwrap()));
            }
            store.kv_indexed(None, Timestamp::default(), &mut |record, vectors| {
                found.push(format!("{record:?} {vectors:?}"));
                Ok(true)
            })?;
            Ok::<_, StoreError>(found)
        };
        let whole = read(&bench.store).unwrap();
        assert!(whole.len() > 5, "{}", whole.len());
        let Bench { folder, store, .. } = bench;
        drop(store);
        let (from, to) = (folder.path().join("x.db"), folder.path().join("recovered.db"));
        let error = Store::recover(&from, &to).unwrap_err();
        assert!(matches!(error, StoreError::KeyRequired { .. }), "{error}");
        let wrong = options.clone();
        let wrong = if wrong.keys.key.is_some() { wrong.key(key(2)) } else { wrong.checksum_key(key(2)) };
        let error = Store::recover_with(&from, &to, &wrong).unwrap_err();
        assert!(matches!(error, StoreError::WrongKey { .. }), "{error}");
        assert!(!to.exists());
        let report = Store::recover_with(&from, &to, &options).unwrap();
        assert!(report.is_complete() && report.checkpoints > 0 && report.entries > 0, "{report:?}");
        assert!(SqliteBackend::open(&to, &super::options()).is_err(), "it has the keys of the old file");
        let recovered = SqliteBackend::open(&to, &options).unwrap();
        assert_eq!(recovered.check().unwrap().problems, []);
        assert_eq!(read(&recovered).unwrap(), whole);
        drop(recovered);
        // A change of a sealed or keyed row costs that row.
        std::fs::remove_file(&to).unwrap();
        without_triggers(&from).execute_batch("UPDATE kv SET updated_at = updated_at + 1").unwrap();
        let less = Store::recover_with(&from, &to, &options).unwrap();
        assert!(less.entries == 0 && less.lost_count >= report.entries && less.checkpoints == report.checkpoints);
        let Bench { folder: plain, store, .. } = Bench::new();
        drop(store);
        let error = Store::recover_with(plain.path().join("x.db"), folder.path().join("p.db"), &options).unwrap_err();
        assert!(matches!(error, StoreError::NotKeyed { .. }), "{error}");
    }
}

/// Recovers a file, and returns the report with the texts of each checkpoint of a salvaged thread.
fn salvaged(path: &Path, of: &str) -> (Recovery, Vec<Vec<String>>) {
    let to = path.with_file_name("salvaged.db");
    _ = fs::remove_file(&to);
    let report = Store::recover(path, &to).unwrap();
    let store = open(&to);
    assert_eq!(store.check().unwrap().problems, Vec::<crate::store::check::Finding>::new());
    let mut query = crate::store::log::CheckpointQuery::new(thread(of), Namespace::root());
    query.limit = 1_000;
    let mut found = store.checkpoints(&query).unwrap();
    found.sort_by_key(|record| record.seq);
    let is_marked = |record: &crate::store::record::CheckpointRecord| {
        record.metadata.as_ref().is_some_and(|text| text.contains("salvaged"))
    };
    assert!(found.iter().all(is_marked), "each says that it is not verified");
    let texts = |record: &crate::store::record::CheckpointRecord| {
        items(&store, &record.point, ItemRange::All).into_iter().map(|(_, text)| text).collect()
    };
    let texts = found.iter().map(texts).collect();
    (report, texts)
}

#[test]
fn what_builds_on_a_damaged_checkpoint_comes_back_in_a_thread_of_its_own() {
    let (_folder, path) = closed();
    without_triggers(&path).execute_batch("UPDATE checkpoint SET step = step + 1 WHERE seq = 60").unwrap();
    let (report, texts) = salvaged(&path, "a (salvaged)");
    assert_eq!((report.checkpoints, report.lost_count, texts.len()), (65, 31, 31), "{report:?}");
    // The verified items before them are there, and each has one more.
    assert_eq!((texts[0].len(), texts[30].len()), (60, 90));
    assert_eq!(texts[30][89], "text 89");
    // One value in four checkpoints.
    assert_eq!(report.salvaged, 31 + 8, "{report:?}");
    assert!(!report.is_complete());
}

#[test]
fn a_row_that_does_not_match_its_check_is_not_salvaged() {
    let (_folder, path) = closed();
    let harm = "UPDATE checkpoint SET step = step + 1 WHERE seq = 60; \
                UPDATE payload SET text = 'forged' WHERE text = 'text 70'; \
                UPDATE item SET ordinal = ordinal + 1000 WHERE slot = 71 AND branch = 1";
    without_triggers(&path).execute_batch(harm).unwrap();
    let (_, texts) = salvaged(&path, "a (salvaged)");
    let last = texts.last().unwrap();
    assert!(last.contains(&"text 69".to_owned()) && last.contains(&"text 73".to_owned()));
    assert!(!last.iter().any(|text| text == "forged" || text == "text 70" || text == "text 71"));
    // A message whose place is lost is in a list of its own.
    let store = open(&path.with_file_name("salvaged.db"));
    let unknown = thread("unknown (salvaged)");
    let head = store.head_id(&unknown, &Namespace::root()).unwrap().unwrap();
    let mut texts = Vec::new();
    let mut visit = |row: crate::store::record::ItemRow<'_>| {
        texts.extend(row.payload.index.and_then(|index| index.text).map(str::to_owned));
        Ok(())
    };
    store.items(&at(&unknown, head), "salvaged", ItemRange::All, &mut visit).unwrap();
    assert!(texts.contains(&"text 71".to_owned()), "{texts:?}");
}

#[test]
fn a_damaged_way_to_the_rows_of_a_table_costs_nothing() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    for table in ["thread", "namespace", "name", "branch", "checkpoint", "version", "item", "payload", "blob"] {
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let root = raw(&path).query_row(root, [table], |row| row.get::<_, u32>(0)).unwrap() as usize;
        // The rows of a table of one page are lost with it, but for those that a unique index has.
        if matches!(bytes[(root - 1) * 4_096], 10 | 13) && !matches!(table, "thread" | "namespace" | "name" | "branch")
        {
            continue;
        }
        let mut zeroed = bytes.clone();
        zeroed[(root - 1) * 4_096..root * 4_096].fill(0);
        fs::write(&damaged, &zeroed).unwrap();
        let report = recovered(&damaged, &whole, "root").unwrap();
        let found = (report.checkpoints, report.salvaged);
        let expected = if bytes[(root - 1) * 4_096] == 2 { (0, 1) } else { (whole.len() as u64, 0) };
        assert!(found.0 >= expected.0 && found.1 >= expected.1, "{table}: {report:?}");
    }
}

#[test]
fn displaced_pages_are_found() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    let with = |at: usize, inserted: &[u8]| [&bytes[..at], inserted, &bytes[at..]].concat();
    let ends: Vec<u8> =
        bytes.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect();
    for (name, content) in [("page", with(middle, &[0; 4_096])), ("part", with(middle, &[7; 512])), ("ends", ends)] {
        fs::write(&damaged, content).unwrap();
        let report = recovered(&damaged, &whole, name).unwrap();
        assert_eq!(report.checkpoints, whole.len() as u64, "{name}: {report:?}");
    }
}

#[test]
fn a_report_says_what_cannot_be_known() {
    let (folder, path) = closed();
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    let report_of = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut content = bytes.clone();
        change(&mut content);
        fs::write(&damaged, content).unwrap();
        let to = folder.path().join("to.db");
        _ = fs::remove_file(&to);
        Store::recover(&damaged, &to).unwrap()
    };
    assert!(report_of(&|_| {}).is_complete());
    assert!(report_of(&|content| content[68..72].fill(0)).is_complete(), "the id of a store is not needed");
    let longer = report_of(&|content| content[31] += 1);
    let pages = bytes.len() / 4_096;
    assert_eq!(longer.doubts, [format!("its header counts {} pages, and {pages} are there", pages + 1)]);
    assert!(longer.lost_count == 0 && !longer.is_complete());
    let unknown = report_of(&|content| content[..100].fill(0));
    assert!(unknown.lost_count == 0 && unknown.doubts.len() == 1 && !unknown.is_complete(), "{unknown:?}");
}

#[test]
fn a_log_of_an_older_state_is_left_out() {
    let mut bench = Bench::new();
    let first = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "first")])]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let log = fs::read(crate::store::sqlite::file::paths::beside(&bench.path(), "-wal")).unwrap();
    bench.add(&thread("a"), Some(first), vec![list(2, vec![put(1, "second")])]);
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    fs::copy(&path, &copy).unwrap();
    fs::write(crate::store::sqlite::file::paths::beside(&copy, "-wal"), log).unwrap();
    let report = Store::recover(&copy, folder.path().join("to.db")).unwrap();
    assert_eq!((report.checkpoints, report.lost_count), (2, 1), "{report:?}");
    assert_eq!(report.lost[0].kind, LostKind::Log);
    assert!(report.lost[0].reason.contains("it was left out"), "{report:?}");
}
