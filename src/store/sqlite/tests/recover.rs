//! Recoveries: sound rows are written to a new store, losses are listed, and nothing loops or panics.

use super::*;
use crate::store::recovery::{LostKind, Recovery};
use crate::store::{Store, StoreError};
use std::collections::BTreeMap;
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
    for of in store.threads(None, 100).unwrap() {
        let query = crate::store::CheckpointQuery {
            limit: 1_000,
            ..crate::store::CheckpointQuery::new(of.id, Namespace::root())
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
    assert_eq!(store.check().unwrap().problems, Vec::<crate::store::Finding>::new(), "{name}");
    let found = contents(&store);
    assert_eq!(found.len() as u64, report.checkpoints, "{name}");
    for (id, texts) in &found {
        assert_eq!(Some(texts), whole.get(id), "{name}: {id}");
    }
    assert!(report.lost_count > 0 || found.len() == whole.len(), "{name}: what is missing is listed");
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
    for (at, mask) in (0..bytes.len()).step_by(bytes.len() / 60).zip([0x01, 0xff].into_iter().cycle()) {
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
        assert!(report.is_complete(), "{at}, {mask}: {:?}", report.lost);
    }
    // A file of a newer format has another schema as well.
    let conn = without_triggers(&path);
    conn.execute_batch("DROP VIEW v_timers; PRAGMA user_version = 3").unwrap();
    drop(conn);
    let newer = Store::recover(&path, folder.path().join("newer.db"));
    assert!(matches!(newer, Err(StoreError::NewerFormat { found: 3, .. })), "{newer:?}");
}

#[test]
fn whole_pages_of_zeros_and_short_files_are_recovered_from() {
    let (folder, path) = closed();
    let whole = contents(&open(&path));
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.db");
    for page in 0..bytes.len() / 4_096 {
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
        let from = super::super::open::beside(&bench.path(), suffix);
        fs::copy(from, super::super::open::beside(&copy, suffix)).unwrap();
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
fn a_file_of_format_1_is_recovered_to_the_newest_format() {
    let folder = tempfile::tempdir().unwrap();
    let (old, to) = (folder.path().join("old.db"), folder.path().join("new.db"));
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/format-1.db"), &old).unwrap();
    let report = Store::recover(&old, &to).unwrap();
    assert!(report.is_complete(), "{:?}", report.lost);
    let recovered = open(&to);
    let migrated = open(&old);
    assert_eq!(contents(&recovered), contents(&migrated));
    assert_eq!(recovered.timers(None, 99).unwrap(), migrated.timers(None, 99).unwrap());
    assert!(report.timers > 0 && report.entries > 0 && report.writes > 0, "{report:?}");
}
