//! Rot beside the log, and how its rows look to plain SQL.

use super::*;
use crate::base::Encoded;
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checksums::kv_vector_check;
use crate::store::sqlite::tables::kv_vector;
use crate::store::{Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn filled() -> Bench {
    let bench = Bench::new();
    let namespace = KvNamespace::new(["users", "7"]).unwrap();
    let value = |text: &str| Encoded { bytes: text.as_bytes().to_vec(), ..Encoded::default() };
    let put = |key: &str, expires_at| KvChange::Put {
        namespace: namespace.clone(),
        key: key.into(),
        value: value(key),
        now: Timestamp::from_micros(5),
        expires_at,
    };
    bench.store.commit_kv(&[put("name", None), put("code", Some(Timestamp::from_micros(9)))]).unwrap();
    let vectors = vec![KvVector::new("$", vec![1.0, 2.0]), KvVector::new("a[*]", vec![3.0])];
    let lifetime = Duration::from_micros(4);
    let set = [
        KvChange::SetVectors { namespace: namespace.clone(), key: "name".into(), vectors },
        KvChange::SetLifetime { namespace: namespace.clone(), key: "code".into(), lifetime },
    ];
    bench.store.commit_kv(&set).unwrap();
    let key = CacheKey { namespace: vec!["w".into()], key: "k".into() };
    let now = Timestamp::default();
    bench.store.submit_cache(vec![CacheChange::Put { key, value: value("v"), now, expires_at: None }]).wait().unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    bench
}

#[test]
fn every_column_beside_the_log_is_covered_by_a_sum() {
    for harm in [
        "UPDATE kv SET key = 'nom' WHERE key = 'name'",
        "UPDATE kv SET created_at = 6 WHERE key = 'name'",
        "UPDATE kv SET updated_at = 6 WHERE key = 'name'",
        "UPDATE kv SET expires_at = NULL WHERE key = 'code'",
        "UPDATE kv SET expires_at = 10 WHERE key = 'code'",
        "UPDATE kv SET xxh3 = 0 WHERE key = 'name'",
        "UPDATE kv SET codec = 1 WHERE key = 'name'",
        "UPDATE kv SET codec = 256 WHERE key = 'name'",
        "UPDATE kv SET data = X'00' WHERE key = 'name'",
        "UPDATE kv SET namespace = 9 WHERE key = 'name'",
        "UPDATE kv_namespace SET path = 'users.8'",
        "UPDATE kv_namespace SET path = ''",
        "DELETE FROM kv_namespace",
        "DELETE FROM kv",
        "UPDATE kv_vector SET entry = 2",
        "UPDATE kv_vector SET entry = 9",
        "UPDATE kv_vector SET position = 2 WHERE position = 1",
        "UPDATE kv_vector SET field = 'b'",
        "UPDATE kv_vector SET dims = 3",
        "UPDATE kv_vector SET data = X'0000803F00000040' WHERE position = 1",
        "UPDATE kv_vector SET data = X'00' WHERE position = 0",
        "UPDATE kv_vector SET xxh3 = 0",
        "DELETE FROM kv_vector WHERE position = 1",
        "INSERT INTO kv_vector SELECT entry, 2, field, dims, data, xxh3 FROM kv_vector WHERE position = 1",
        "UPDATE kv_lifetime SET entry = 1",
        "UPDATE kv_lifetime SET entry = 9",
        "UPDATE kv_lifetime SET lifetime = 5",
        "UPDATE kv_lifetime SET xxh3 = 0",
        "UPDATE cache SET namespace = X'00'",
        "UPDATE cache SET key = 'l'",
        "UPDATE cache SET expires_at = 1",
        "UPDATE cache SET xxh3 = 0",
        "UPDATE cache SET codec = 1",
        "UPDATE cache SET data = X'00'",
    ] {
        let bench = filled();
        raw(&bench.path()).execute_batch(harm).unwrap();
        assert!(!bench.check().is_empty(), "{harm}");
    }
}

#[test]
fn a_flip_beside_the_log_is_found_when_it_is_read() {
    let bench = filled();
    raw(&bench.path()).execute_batch("UPDATE kv SET data = X'00'; UPDATE cache SET data = X'00'").unwrap();
    let (namespace, now) = (KvNamespace::new(["users", "7"]).unwrap(), Timestamp::default());
    let corrupt = |error: StoreError| assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    corrupt(bench.store.kv_entry(&namespace, "name", now).unwrap_err());
    corrupt(bench.store.kv_entries(None, now, &mut |_| Ok(true)).unwrap_err());
    corrupt(bench.store.kv_indexed(None, now, &mut |_, _| Ok(true)).unwrap_err());
    corrupt(bench.store.cached(&[CacheKey { namespace: vec!["w".into()], key: "k".into() }], now).unwrap_err());
}

#[test]
fn a_vector_with_a_flip_is_not_compared() {
    let bench = filled();
    raw(&bench.path()).execute_batch("UPDATE kv_vector SET data = X'0000803F0000803F' WHERE position = 0").unwrap();
    let found = bench.store.kv_indexed(None, Timestamp::default(), &mut |_, _| panic!("it was visited"));
    assert!(matches!(found, Err(StoreError::Corrupt { .. })), "{found:?}");
    let prolong = |key: &str| {
        let namespace = KvNamespace::new(["users", "7"]).unwrap();
        bench.store.commit_kv(&[KvChange::Prolong { namespace, key: key.into(), now: Timestamp::from_micros(6) }])
    };
    prolong("code").unwrap();
    raw(&bench.path()).execute_batch("UPDATE kv_lifetime SET lifetime = 1").unwrap();
    assert!(prolong("code").is_err(), "a damaged lifetime prolongs nothing");
}

#[test]
fn a_vector_with_a_forged_check_has_finite_components_or_is_refused() {
    let bench = filled();
    for data in [f32::NAN, f32::INFINITY].map(|forged| [1.0_f32.to_le_bytes(), forged.to_le_bytes()].concat()) {
        let vector = kv_vector::Row { entry: 0, position: 0, field: "$", dims: 2, data: &data, xxh3: 0 };
        let check = kv_vector_check(&Keys::default(), ("users.7", "name"), 5, 2, &vector);
        let forge = "UPDATE kv_vector SET data = ?1, xxh3 = ?2 WHERE position = 0";
        assert_eq!(raw(&bench.path()).execute(forge, rusqlite::params![data, check]).unwrap(), 1);
        let found = bench.store.kv_indexed(None, Timestamp::default(), &mut |_, _| panic!("it was visited"));
        let Err(StoreError::Corrupt { reason, .. }) = found else { panic!("{found:?}") };
        assert_eq!(reason, "a component is not a finite number");
    }
}

#[test]
fn a_sweep_ends_at_an_entry_that_its_index_of_keys_does_not_show() {
    let bench = filled();
    let index = "CREATE UNIQUE INDEX kv_key ON kv (namespace, key)";
    let forge = format!(
        "DROP INDEX kv_key; {index} WHERE key <> 'code'; PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = '{index}' WHERE name = 'kv_key'; PRAGMA writable_schema = RESET;"
    );
    raw(&bench.path()).execute_batch(&forge).unwrap();
    let Bench { folder: _folder, store, .. } = bench;
    let store = Store::with_backend(Arc::new(store), OpenOptions::new().clock(Timestamp::from_micros(20)));
    let refused = store.kv().sweep();
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
}

#[test]
fn entries_without_vectors_and_lifetimes_have_no_rows_of_either() {
    let bench = filled();
    let count = |table: &str| -> i64 {
        raw(&bench.path()).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("kv_vector"), count("kv_lifetime")), (2, 1), "of the entries that were given them");
    let delete = |key: &str| KvChange::Delete { namespace: KvNamespace::new(["users", "7"]).unwrap(), key: key.into() };
    bench.store.commit_kv(&[delete("name"), delete("code")]).unwrap();
    assert_eq!((count("kv_vector"), count("kv_lifetime")), (0, 0));
}

#[test]
fn vectors_and_lifetimes_are_recovered() {
    let bench = filled();
    let (damaged, path) = (bench.folder.path().join("damaged.db"), |n: u8| bench.folder.path().join(format!("{n}.db")));
    bench.store.backup(&damaged).unwrap();
    let report = crate::store::Store::recover(&damaged, path(1)).unwrap();
    assert!(report.is_complete() && report.entries == 2, "{report:?}");
    let recovered = open(&path(1));
    let vectors = |store: &SqliteBackend| {
        let mut found = Vec::new();
        let mut visit = |record: &KvRecord, vectors: &[KvVector]| {
            found.push((record.key.clone(), vectors.to_vec()));
            Ok(true)
        };
        store.kv_indexed(None, Timestamp::default(), &mut visit).unwrap();
        found
    };
    assert_eq!(vectors(&recovered), vectors(&bench.store));
    let namespace = KvNamespace::new(["users", "7"]).unwrap();
    let prolong =
        KvChange::Prolong { namespace: namespace.clone(), key: "code".into(), now: Timestamp::from_micros(6) };
    recovered.commit_kv(&[prolong]).unwrap();
    let expires_at = recovered.kv_entry(&namespace, "code", Timestamp::default()).unwrap().unwrap().expires_at;
    assert_eq!(expires_at, Some(Timestamp::from_micros(10)));
    raw(&damaged).execute_batch("UPDATE kv_vector SET data = X'00' WHERE position = 1").unwrap();
    let report = crate::store::Store::recover(&damaged, path(2)).unwrap();
    assert_eq!((report.entries, report.lost.len()), (2, 1), "{report:?}");
    assert!(report.lost[0].place.contains("vectors"), "{report:?}");
    assert_eq!(vectors(&open(&path(2))), []);
}

#[test]
fn a_view_shows_the_key_value_memory() {
    let bench = filled();
    let query =
        "SELECT namespace || '|' || key || '|' || created_at || '|' || expires_at || '|' || hex(data) FROM v_kv";
    let line: String =
        raw(&bench.path()).query_row(&format!("{query} WHERE key = 'code'"), [], |row| row.get(0)).unwrap();
    assert_eq!(line, "users.7|code|1970-01-01T00:00:00.000005Z|1970-01-01T00:00:00.000009Z|636F6465");
}

#[test]
fn what_was_put_is_there_after_a_reopen() {
    let bench = filled();
    let path = bench.path();
    let again = open(&path);
    let entry = again.kv_entry(&KvNamespace::new(["users", "7"]).unwrap(), "name", Timestamp::default()).unwrap();
    assert_eq!(entry.unwrap().value.bytes, b"name");
}

/// Returns the number of frames of a log, and how many of them end a commit.
fn frames(bench: &Bench) -> (usize, usize) {
    let log = std::fs::read(crate::store::sqlite::file::paths::beside(&bench.path(), "-wal")).unwrap();
    let frames = log[32..].chunks_exact(24 + 4_096);
    (frames.len(), frames.filter(|frame| frame[4..8] != [0; 4]).count())
}

#[test]
fn the_first_use_of_tables_adds_pages_to_its_commit_and_no_commit() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let namespace = KvNamespace::new(["users"]).unwrap();
    let mut written = Vec::new();
    for key in ["first", "second"] {
        let before = frames(&bench);
        let value = Encoded { bytes: vec![0x80], ..Encoded::default() };
        let (namespace, key, now) = (namespace.clone(), key.to_owned(), Timestamp::default());
        bench.store.commit_kv(&[KvChange::Put { namespace, key, value, now, expires_at: None }]).unwrap();
        let after = frames(&bench);
        assert_eq!(after.1 - before.1, 1, "a put is one commit");
        written.push(after.0 - before.0);
    }
    assert!(written[0] > written[1] && written[0] - written[1] <= 24, "{written:?}");
}
