//! Rows of the key-value memory: numbers that a put retains, and damage that is named.

use super::*;
use crate::base::Encoded;
use crate::store::StoreError;
use crate::store::side_tables::{KvChange, KvNamespace, KvVector, SideTables};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checksums::kv_vector_check;
use crate::store::sqlite::tables::kv_vector;
use rusqlite::params;

fn users() -> KvNamespace {
    KvNamespace::new(["users"]).unwrap()
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn kv_put(key: &str, now: i64, expires_at: Option<i64>) -> KvChange {
    let value = Encoded { bytes: vec![0xc0], ..Encoded::default() };
    let (now, expires_at) = (moment(now), expires_at.map(moment));
    KvChange::Put { namespace: users(), key: key.into(), value, now, expires_at }
}

#[test]
fn a_put_retains_the_first_moment_of_an_entry_that_has_not_expired() {
    let bench = Bench::new();
    let created = |now: i64| bench.store.kv_entry(&users(), "k", moment(now)).unwrap().map(|found| found.created_at);
    bench.store.commit_kv(&[kv_put("k", 5, Some(100))]).unwrap();
    bench.store.commit_kv(&[kv_put("k", 6, Some(100))]).unwrap();
    assert_eq!(created(7), Some(moment(5)));
    bench.store.commit_kv(&[kv_put("k", 99, Some(100))]).unwrap();
    assert_eq!((created(99), created(100)), (Some(moment(5)), None));
    bench.store.commit_kv(&[kv_put("k", 100, None)]).unwrap();
    assert_eq!(created(100), Some(moment(100)), "the expired entry is not the same");
    assert_eq!(bench.check(), Vec::<String>::new());
}

/// A store with one entry with a vector of one component, and the error of reading it after some harm.
fn harmed(harm: &[(&str, &[u8])]) -> String {
    let bench = Bench::new();
    bench.store.commit_kv(&[kv_put("k", 5, None)]).unwrap();
    let vectors = vec![KvVector::new("$", vec![1.0])];
    bench.store.commit_kv(&[KvChange::SetVectors { namespace: users(), key: "k".into(), vectors }]).unwrap();
    for (statement, data) in harm {
        let vector = kv_vector::Row { entry: 0, position: 0, field: "$", dims: 1, data, xxh3: 0 };
        let check = kv_vector_check(&Keys::default(), ("users", "k"), 5, 1, &vector);
        raw(&bench.path()).execute(statement, params![data, check]).unwrap();
    }
    match bench.store.kv_indexed(None, moment(6), &mut |_, _| Ok(true)).unwrap_err() {
        StoreError::Corrupt { place, reason } => format!("{place}: {reason}"),
        error => panic!("{error:?}"),
    }
}

#[test]
fn a_vector_of_another_length_is_damage() {
    let set = "UPDATE kv_vector SET data = ?1, xxh3 = ?2";
    let length = "kv_vector 0 of kv \"users\" \"k\": its length does not match its dimensions";
    for data in [&[0; 5][..], &[0; 8], &[0; 3], &[]] {
        assert_eq!(harmed(&[(set, data)]), length, "{data:?}");
    }
    let check = "kv_vector 0 of kv \"users\" \"k\": its check does not match";
    assert_eq!(harmed(&[("UPDATE kv_vector SET data = ?1, xxh3 = ?2 + 1", &[0; 4])]), check);
}

#[test]
fn a_namespace_whose_keys_are_not_in_both_indexes_is_damage() {
    let bench = Bench::new();
    bench.store.commit_kv(&[kv_put("a", 5, None), kv_put("b", 5, None)]).unwrap();
    bench.store.checkpoint_wal().unwrap();
    let (path, Bench { folder: _folder, store, .. }) = (bench.path(), bench);
    drop(store);
    let index = "CREATE UNIQUE INDEX kv_key ON kv (namespace, key)";
    raw(&path)
        .execute_batch(&format!(
            "DROP INDEX kv_key; {index} WHERE key <> 'a'; PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = '{index}' WHERE name = 'kv_key'; PRAGMA writable_schema = RESET;"
        ))
        .unwrap();
    let store = open(&path);
    match store.kv_namespaces(None, moment(6)).unwrap_err() {
        StoreError::Corrupt { place, reason } => {
            assert_eq!(place, "kv_namespace 1");
            assert_eq!(reason, "its keys are not the same in both indexes");
        }
        error => panic!("{error:?}"),
    }
    // A namespace without keys would have been deleted.
    let empty = Bench::new();
    empty.store.commit_kv(&[kv_put("a", 5, None)]).unwrap();
    without_triggers(&empty.path()).execute_batch("DELETE FROM kv").unwrap();
    let error = empty.store.kv_namespaces(None, moment(6)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}
