//! The tables beside the log: the key-value memory and the cache.

use super::build::*;
use crate::base::Codec;
use crate::base::limits::{KV_CHANGES_MAX, KV_EXPIRED_MAX, VALUE_BYTES_MAX};
use crate::limits::{KV_KEY_BYTES_MAX, KV_LABELS_MAX};
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use std::time::Duration;

/// Returns the tables beside the log.
fn beside(backend: &dyn Log) -> &dyn SideTables {
    backend.side_tables().expect("the backend has tables beside the log")
}

fn space(path: &str) -> KvNamespace {
    KvNamespace::new(path.split('.')).expect("a namespace")
}

fn value(bytes: impl AsRef<[u8]>) -> Encoded {
    Encoded { codec: Codec::MsgPack, bytes: bytes.as_ref().to_vec() }
}

fn put(path: &str, key: &str, bytes: impl AsRef<[u8]>, now: u64, expires: Option<u64>) -> KvChange {
    let (now, expires_at) = (moment(now), expires.map(moment));
    KvChange::Put { namespace: space(path), key: key.into(), value: value(bytes), now, expires_at }
}

fn delete(path: &str, key: &str) -> KvChange {
    KvChange::Delete { namespace: space(path), key: key.into() }
}

fn change(backend: &dyn Log, changes: &[KvChange]) {
    beside(backend).commit_kv(changes).expect("changes are made");
}

fn get(backend: &dyn Log, path: &str, key: &str, now: u64) -> Option<KvRecord> {
    beside(backend).kv_entry(&space(path), key, moment(now)).expect("an entry is read")
}

/// Returns `path/key` of the entries under a path, in their order.
fn names(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<String> {
    let mut found = Vec::new();
    let mut visit = |entry: &KvRecord| {
        found.push(format!("{}/{}", entry.namespace.path(), entry.key));
        Ok(true)
    };
    beside(backend).kv_entries(under.map(space).as_ref(), moment(now), &mut visit).expect("entries are read");
    found
}

fn spaces(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<String> {
    let found = beside(backend).kv_namespaces(under.map(space).as_ref(), moment(now)).expect("namespaces are read");
    let mut paths: Vec<String> = found.iter().map(|namespace| namespace.path().to_owned()).collect();
    paths.sort();
    paths
}

fn entries_checked(backend: &dyn Log) -> u64 {
    clean(backend);
    backend.check().expect("a check runs").entries
}

pub(super) fn kv_fields(backend: &dyn Log) {
    assert_eq!(get(backend, "a", "k", 1), None);
    change(backend, &[put("a.b", "k", b"one", 1, None), put("a.b", "", vec![7; 100_000], 2, Some(9))]);
    let first = get(backend, "a.b", "k", 5).expect("it is there");
    assert_eq!((first.namespace.path(), first.key.as_str(), &first.value), ("a.b", "k", &value(b"one")));
    assert_eq!((first.created_at, first.updated_at, first.expires_at), (moment(1), moment(1), None));
    let large = get(backend, "a.b", "", 5).expect("an empty key is one");
    assert_eq!((large.value.bytes.len(), large.expires_at), (100_000, Some(moment(9))));
    let foreign = Encoded { codec: Codec::Foreign(3), bytes: vec![0, 255] };
    let (namespace, key) = (space("a.b"), "k".to_owned());
    let replaced = KvChange::Put { namespace, key, value: foreign.clone(), now: moment(4), expires_at: None };
    // Repeating is safe.
    for _ in 0..2 {
        change(backend, std::slice::from_ref(&replaced));
        let second = get(backend, "a.b", "k", 5).expect("it is there");
        assert_eq!((&second.value, second.created_at, second.updated_at), (&foreign, moment(1), moment(4)));
    }
    assert_eq!(get(backend, "a", "k", 5), None, "another namespace is another place");
    assert_eq!(entries_checked(backend), 2);
}

pub(super) fn kv_order(backend: &dyn Log) {
    let puts = ["z/1", "a/b", "z/0", "a.x/c", "a-b/d", "ab/e", "a/a"];
    for (n, name) in (1..).zip(puts) {
        let (path, key) = name.split_once('/').expect("a path and a key");
        change(backend, &[put(path, key, name, n, None)]);
    }
    change(backend, &[put("z", "1", b"again", 20, None), put("a", "b", b"again", 21, None)]);
    assert_eq!(names(backend, None, 30), ["z/1", "z/0", "a/b", "a/a", "a.x/c", "a-b/d", "ab/e"]);
    assert_eq!(names(backend, Some("a"), 30), ["a/b", "a/a", "a.x/c"]);
    assert_eq!(names(backend, Some("a.x"), 30), ["a.x/c"]);
    assert!(names(backend, Some("b"), 30).is_empty());
    assert_eq!(spaces(backend, None, 30), ["a", "a-b", "a.x", "ab", "z"]);
    assert_eq!(spaces(backend, Some("a"), 30), ["a", "a.x"]);
    change(backend, &[delete("z", "1"), delete("z", "none"), delete("none", "1"), put("z", "1", b"", 31, None)]);
    assert_eq!(names(backend, Some("z"), 40), ["z/0", "z/1"], "what is put anew comes last");
    change(backend, &[delete("z", "0"), delete("z", "1")]);
    assert_eq!(spaces(backend, None, 40), ["a", "a-b", "a.x", "ab"], "an empty namespace is none");
    change(backend, &[put("z", "2", b"", 41, None)]);
    assert_eq!(names(backend, None, 50).last().map(String::as_str), Some("z/2"));
    let mut seen = 0;
    let mut visit = |_: &KvRecord| {
        seen += 1;
        Ok(seen < 2)
    };
    beside(backend).kv_entries(None, moment(50), &mut visit).expect("entries are read");
    assert_eq!(seen, 2, "a visitor can stop");
    let mut fail = |_: &KvRecord| Err(StoreError::ReadOnly);
    let stopped = beside(backend).kv_entries(None, moment(50), &mut fail);
    assert!(matches!(stopped, Err(StoreError::ReadOnly)), "an error of a visitor is handed on");
    assert_eq!(entries_checked(backend), 6);
}

pub(super) fn kv_expiry(backend: &dyn Log) {
    change(backend, &[put("a", "soon", b"1", 1, Some(5)), put("a", "late", b"2", 1, Some(9))]);
    change(backend, &[put("b", "soon", b"3", 1, Some(5)), put("c", "stays", b"4", 1, None)]);
    assert_eq!(names(backend, None, 4), ["a/soon", "a/late", "b/soon", "c/stays"]);
    assert_eq!(names(backend, None, 5), ["a/late", "c/stays"], "expired at its timestamp");
    assert_eq!(spaces(backend, None, 5), ["a", "c"]);
    assert_eq!(get(backend, "a", "soon", 5), None);
    change(backend, &[put("a", "soon", b"5", 6, None)]);
    let anew = get(backend, "a", "soon", 6).expect("it is there");
    assert_eq!((anew.created_at, anew.expires_at), (moment(6), None), "an expired key is put anew");
    assert_eq!(names(backend, None, 6), ["a/late", "a/soon", "c/stays"]);
    change(backend, &[put("a", "late", b"6", 7, None), put("c", "stays", b"7", 7, Some(8))]);
    assert_eq!(names(backend, None, 20), ["a/late", "a/soon"], "a put decides anew when it expires");
    for n in 0..u64::from(KV_EXPIRED_MAX) + 3 {
        change(backend, &[put("many", &n.to_string(), b"", 20, Some(21))]);
    }
    change(backend, &[put("x", "1", b"", 30, None)]);
    change(backend, &[put("x", "2", b"", 31, None)]);
    assert_eq!(entries_checked(backend), 4, "puts take expired entries away");
}

pub(super) fn kv_limits(backend: &dyn Log) {
    let key = |n: usize| "k".repeat(n);
    let refused = |changes: &[KvChange], field: &str| match beside(backend).commit_kv(changes) {
        Err(StoreError::Invalid { field: found, .. }) => assert_eq!(found, field),
        other => panic!("{field}: {other:?}"),
    };
    let good = put("a", "good", b"", 1, None);
    for bad in [put("a", &key(KV_KEY_BYTES_MAX + 1), b"", 1, None), delete("a", &key(KV_KEY_BYTES_MAX + 1))] {
        refused(&[good.clone(), bad], "kv key");
    }
    refused(&[good.clone(), put("a", "k", vec![0; VALUE_BYTES_MAX + 1], 1, None)], "value bytes");
    refused(&vec![good; KV_CHANGES_MAX + 1], "kv changes");
    assert!(names(backend, None, 1).is_empty(), "nothing was written");
    let deep = vec!["x"; KV_LABELS_MAX].join(".");
    change(backend, &[put(&deep, &key(KV_KEY_BYTES_MAX), b"", 1, None)]);
    assert_eq!(spaces(backend, Some("x"), 1), std::slice::from_ref(&deep));
    change(
        backend,
        &[put(&deep, "a\0b", b"1", 1, None), put(&deep, "a\0c", b"2", 1, None), put(&deep, "a", b"3", 1, None)],
    );
    let found = ["a\0b", "a\0c", "a"].map(|key| get(backend, &deep, key, 1).expect("it is there").value);
    assert_eq!(found, [value(b"1"), value(b"2"), value(b"3")], "a key may hold any character");
    assert_eq!(entries_checked(backend), 4);
}

pub(super) fn kv_many_threads(backend: &dyn Log) {
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            scope.spawn(move || {
                let path = format!("thread.{thread}");
                for n in 0..20_u8 {
                    change(backend, &[put(&path, "own", [n], 1, None), put("shared", "last", [thread], 1, None)]);
                    let own = get(backend, &path, "own", 1).expect("a put is seen at once");
                    assert_eq!(own.value.bytes, [n]);
                }
            });
        }
    });
    assert_eq!(spaces(backend, Some("thread"), 1).len(), 8);
    assert_eq!(entries_checked(backend), 9);
}

fn vectors(path: &str, key: &str, values: &[&[f32]]) -> KvChange {
    let vectors = values.iter().map(|values| KvVector::new("text", values.to_vec())).collect();
    KvChange::SetVectors { namespace: space(path), key: key.into(), vectors }
}

/// Returns `path/key` and the vectors of the indexed entries under a path, in their order.
fn indexed(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<(String, Vec<Vec<f32>>)> {
    let mut found = Vec::new();
    let mut visit = |entry: &KvRecord, vectors: &[KvVector]| {
        assert!(vectors.iter().all(|vector| vector.field == "text"));
        let name = format!("{}/{}", entry.namespace.path(), entry.key);
        found.push((name, vectors.iter().map(|vector| vector.values.clone()).collect()));
        Ok(true)
    };
    beside(backend).kv_indexed(under.map(space).as_ref(), moment(now), &mut visit).expect("entries are read");
    found
}

pub(super) fn kv_vectors(backend: &dyn Log) {
    assert!(indexed(backend, None, 1).is_empty());
    change(backend, &[put("b", "1", b"", 1, None), vectors("b", "1", &[&[1.0, -0.5], &[0.0, f32::MIN_POSITIVE]])]);
    change(backend, &[put("a", "1", b"", 1, None), put("a.x", "1", b"", 1, Some(5)), vectors("a.x", "1", &[&[2.0]])]);
    let (b, ax) = (("b/1".to_owned(), vec![vec![1.0, -0.5], vec![0.0, f32::MIN_POSITIVE]]), "a.x/1".to_owned());
    assert_eq!(indexed(backend, None, 4), [b.clone(), (ax.clone(), vec![vec![2.0]])], "in the order of first puts");
    assert_eq!(indexed(backend, Some("a"), 4), [(ax.clone(), vec![vec![2.0]])]);
    assert_eq!(indexed(backend, None, 5), [b], "expired at its timestamp");
    change(backend, &[vectors("none", "1", &[&[1.0]]), vectors("b", "none", &[&[1.0]])]);
    change(backend, &[vectors("b", "1", &[&[7.0]])]);
    assert_eq!(indexed(backend, Some("b"), 4), [("b/1".to_owned(), vec![vec![7.0]])], "they are replaced");
    change(backend, &[put("b", "1", b"again", 2, None)]);
    assert!(indexed(backend, Some("b"), 4).is_empty(), "a put removes them");
    change(backend, &[vectors("b", "1", &[&[8.0]]), delete("b", "1"), put("b", "1", b"", 3, None)]);
    assert!(indexed(backend, Some("b"), 4).is_empty(), "a deletion removes them");
    change(backend, &[vectors("b", "1", &[&[9.0]]), vectors("b", "1", &[])]);
    assert!(indexed(backend, Some("b"), 4).is_empty(), "none is as good as no vectors");
    change(backend, &[put("c", "1", b"", 9, None), put("d", "1", b"", 9, None), vectors("c", "1", &[&[1.0]])]);
    assert!(indexed(backend, Some("a"), 4).is_empty(), "an expired entry goes with its vectors");
    let mut fail = |_: &KvRecord, _: &[KvVector]| Err(StoreError::ReadOnly);
    let stopped = beside(backend).kv_indexed(None, moment(9), &mut fail);
    assert!(matches!(stopped, Err(StoreError::ReadOnly)), "an error of a visitor is handed on");
    for bad in [vectors("c", "1", &[&[f32::NAN]]), vectors("c", "1", &[&[]]), vectors("c", "1", &[&[0.0; 20_000]])] {
        let refused = beside(backend).commit_kv(&[delete("c", "1"), bad]);
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(indexed(backend, None, 9), [("c/1".to_owned(), vec![vec![1.0]])], "nothing was written");
    assert_eq!(entries_checked(backend), 4);
}

pub(super) fn kv_lifetimes(backend: &dyn Log) {
    let lifetime = |key: &str, us: u64| KvChange::SetLifetime {
        namespace: space("a"),
        key: key.into(),
        lifetime: Duration::from_micros(us),
    };
    let prolong = |key: &str, now: u64| KvChange::Prolong { namespace: space("a"), key: key.into(), now: moment(now) };
    let expiry = |key: &str| get(backend, "a", key, 0).and_then(|entry| entry.expires_at);
    let us = |at: u64| Some(Timestamp::default().saturating_add(Duration::from_micros(at)));
    let now = |at: u64| Timestamp::default().saturating_add(Duration::from_micros(at));
    let start = moment(1).as_micros() as u64;
    change(backend, &[put("a", "k", b"v", 1, Some(2)), lifetime("k", 10), put("a", "l", b"w", 1, Some(3))]);
    change(backend, &[prolong("k", 1), prolong("l", 1), prolong("none", 1), lifetime("none", 1)]);
    assert_eq!((expiry("k"), expiry("l")), (us(start + 10), Some(moment(3))), "only an entry with a lifetime");
    let entry = get(backend, "a", "k", 0).expect("it is there");
    assert_eq!((entry.value, entry.updated_at), (value(b"v"), moment(1)), "the rest is as before");
    let expired = |at: Timestamp, limit| {
        let found = beside(backend).kv_expired(at, limit).expect("entries are read");
        found.into_iter().map(|(namespace, key)| format!("{}/{key}", namespace.path())).collect::<Vec<_>>()
    };
    assert_eq!(expired(now(start + 9), 9), [""; 0]);
    assert_eq!(expired(moment(9), 9), ["a/k", "a/l"], "the earliest first");
    assert_eq!(expired(moment(9), 1), ["a/k"]);
    let delete = |key: &str, now| KvChange::DeleteExpired { namespace: space("a"), key: key.into(), now: moment(now) };
    change(backend, &[delete("k", 1), delete("none", 9), delete("l", 3)]);
    assert!(expiry("l").is_none() && expiry("k").is_some(), "only an expired entry");
    change(backend, &[put("a", "k", b"v", 1, Some(2)), prolong("k", 1)]);
    assert_eq!(expiry("k"), Some(moment(2)), "a put removes the lifetime");
    assert_eq!(entries_checked(backend), 1);
}

pub(super) fn kv_root(backend: &dyn Log) {
    let root = || KvNamespace::from_labels([""; 0]).expect("the root");
    let reserved = KvNamespace::from_labels(["langgraph"]).expect("the reserved label");
    let put_to = |namespace: &KvNamespace| KvChange::Put {
        namespace: namespace.clone(),
        key: "k".into(),
        value: value(b""),
        now: moment(1),
        expires_at: None,
    };
    change(backend, &[put_to(&root()), put_to(&reserved), put("a", "k", b"", 1, None)]);
    assert_eq!(names(backend, None, 2), ["/k", "langgraph/k", "a/k"]);
    let mut found = 0;
    let mut count = |_: &KvRecord| {
        found += 1;
        Ok(true)
    };
    beside(backend).kv_entries(Some(&root()), moment(2), &mut count).expect("entries are read");
    assert_eq!(found, 3, "everything is in the root");
    assert!(beside(backend).kv_entry(&root(), "k", moment(2)).expect("it is read").is_some());
    assert_eq!(entries_checked(backend), 3);
}

fn cache_key(labels: &[&str], key: &str) -> CacheKey {
    CacheKey { namespace: labels.iter().map(|&label| label.to_owned()).collect(), key: key.into() }
}

fn cache(backend: &dyn Log, changes: Vec<CacheChange>) {
    beside(backend).submit_cache(changes).wait().expect("changes are made");
}

fn cache_put(labels: &[&str], key: &str, bytes: &[u8], now: u64, expires: Option<u64>) -> CacheChange {
    let (now, expires_at): (Timestamp, _) = (moment(now), expires.map(moment));
    CacheChange::Put { key: cache_key(labels, key), value: value(bytes), now, expires_at }
}

fn cached(backend: &dyn Log, keys: &[CacheKey], now: u64) -> Vec<Option<Vec<u8>>> {
    let found = beside(backend).cached(keys, moment(now)).expect("the cache is read");
    found.into_iter().map(|value| value.map(|value| value.bytes)).collect()
}

pub(super) fn cache_values(backend: &dyn Log) {
    let keys = [cache_key(&["w", "a.b"], "1"), cache_key(&["w", "a.b"], "2"), cache_key(&["w"], "1")];
    assert_eq!(cached(backend, &keys, 1), [None, None, None]);
    cache(backend, vec![cache_put(&["w", "a.b"], "1", b"one", 1, Some(5)), cache_put(&["w"], "1", b"", 1, None)]);
    assert_eq!(cached(backend, &keys, 4), [Some(b"one".to_vec()), None, Some(Vec::new())]);
    assert_eq!(cached(backend, &keys, 5), [None, None, Some(Vec::new())], "expired at its timestamp");
    cache(backend, vec![cache_put(&["w", "a.b"], "1", b"two", 6, None)]);
    assert_eq!(cached(backend, &keys[..1], 9), [Some(b"two".to_vec())]);
    cache(backend, vec![cache_put(&["w"], "1", b"", 9, Some(10))]);
    cache(backend, vec![cache_put(&["w"], "2", b"", 11, None)]);
    assert_eq!(entries_checked(backend), 2, "a put takes expired values away");
    let long = "k".repeat(KV_KEY_BYTES_MAX + 1);
    let many = vec!["x"; KV_LABELS_MAX + 1];
    for bad in [cache_put(&["w"], &long, b"", 1, None), cache_put(&many, "", b"", 1, None)] {
        let outcome = beside(backend).submit_cache(vec![cache_put(&["w"], "3", b"", 1, None), bad]).wait();
        assert!(matches!(outcome, Err(StoreError::Invalid { .. })), "{outcome:?}");
    }
    let nul = CacheChange::Clear { namespace: vec!["a\0".into()] };
    assert!(matches!(beside(backend).submit_cache(vec![nul]).wait(), Err(StoreError::Invalid { .. })));
    assert_eq!(cached(backend, &[cache_key(&["w"], "3")], 1), [None], "nothing was written");
}

pub(super) fn cache_clear(backend: &dyn Log) {
    let places: [&[&str]; 6] = [&[], &["a"], &["a", "b"], &["a", "b", "c"], &["a", "bb"], &["ab"]];
    let fill = || cache(backend, places.iter().map(|place| cache_put(place, "k", b"v", 1, None)).collect());
    let keys: Vec<CacheKey> = places.iter().map(|place| cache_key(place, "k")).collect();
    let left = || cached(backend, &keys, 2).iter().map(Option::is_some).collect::<Vec<_>>();
    fill();
    cache(backend, vec![CacheChange::Clear { namespace: vec!["a".into(), "b".into()] }]);
    assert_eq!(left(), [true, true, false, false, true, true]);
    cache(backend, vec![CacheChange::Clear { namespace: vec!["a".into()] }]);
    assert_eq!(left(), [true, false, false, false, false, true]);
    fill();
    cache(backend, vec![CacheChange::ClearNamespace { namespace: vec!["a".into()] }]);
    assert_eq!(left(), [true, false, true, true, true, true], "not those inside it");
    cache(backend, vec![CacheChange::ClearNamespace { namespace: Vec::new() }]);
    assert_eq!(left(), [false, false, true, true, true, true]);
    fill();
    cache(backend, vec![CacheChange::Clear { namespace: Vec::new() }]);
    assert_eq!(left(), [false; 6]);
    assert_eq!(entries_checked(backend), 0);
}
