//! Rot beside the log, and how its rows look to plain SQL.

use super::*;
use crate::base::Encoded;
use crate::store::StoreError;
use crate::store::beside::{Beside, CacheChange, CacheKey, KvChange, KvNamespace};

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
    corrupt(bench.store.cached(&[CacheKey { namespace: vec!["w".into()], key: "k".into() }], now).unwrap_err());
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
