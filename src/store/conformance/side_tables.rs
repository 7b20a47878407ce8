//! The tables beside the log: the key-value memory and the cache.

use super::build::{clean, moment, refusal};
use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Codec, Encoded, Timestamp};
use crate::limits::{KV_KEY_BYTES_MAX, KV_LABELS_MAX};
use crate::store::error::StoreError;
use crate::store::log::{Log, LogExt};
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use std::time::Duration;

/// Returns the tables beside the log.
fn beside(backend: &dyn Log) -> &dyn SideTables {
    backend.side_tables().expect("the backend has tables beside the log")
}

fn space(path: &str) -> KvNamespace {
    let labels = path.split('.').filter(|label| !label.is_empty());
    KvNamespace::from_labels(labels).expect("a namespace")
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

fn vectors(path: &str, key: &str, values: &[&[f32]]) -> KvChange {
    let vectors = values.iter().map(|values| KvVector::new("text", values.to_vec())).collect();
    KvChange::SetVectors { namespace: space(path), key: key.into(), vectors }
}

fn change(backend: &dyn Log, changes: &[KvChange]) {
    beside(backend).commit_kv(changes).expect("changes are made");
}

fn refuses(backend: &dyn Log, changes: &[KvChange], field: &str) {
    assert_eq!(refusal(beside(backend).commit_kv(changes)), field);
}

fn get(backend: &dyn Log, path: &str, key: &str, now: u64) -> Option<KvRecord> {
    beside(backend).kv_entry(&space(path), key, moment(now)).expect("an entry is read")
}

fn name(entry: &KvRecord) -> String {
    format!("{}/{}", entry.namespace.path(), entry.key)
}

/// Returns `path/key` of the entries under a path, in their order.
fn names(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<String> {
    let mut found = Vec::new();
    let mut visit = |entry: &KvRecord| {
        found.push(name(entry));
        Ok(true)
    };
    beside(backend).kv_entries(under.map(space).as_ref(), moment(now), &mut visit).expect("entries are read");
    found
}

/// Returns `path/key` and the vectors of the indexed entries under a path, in their order.
fn indexed(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<(String, Vec<Vec<f32>>)> {
    let mut found = Vec::new();
    let mut visit = |entry: &KvRecord, vectors: &[KvVector]| {
        assert!(vectors.iter().all(|vector| vector.field == "text"));
        found.push((name(entry), vectors.iter().map(|vector| vector.values.clone()).collect()));
        Ok(true)
    };
    beside(backend).kv_indexed(under.map(space).as_ref(), moment(now), &mut visit).expect("entries are read");
    found
}

fn spaces(backend: &dyn Log, under: Option<&str>, now: u64) -> Vec<String> {
    let found = beside(backend).kv_namespaces(under.map(space).as_ref(), moment(now)).expect("namespaces are read");
    let mut paths: Vec<String> = found.iter().map(|namespace| namespace.path().to_owned()).collect();
    paths.sort();
    paths
}

fn count(backend: &dyn Log, entries: u64) {
    clean(backend);
    assert_eq!(backend.check().expect("a check runs").entries, entries);
}

pub(super) fn kv_fields(backend: &dyn Log) {
    assert_eq!(get(backend, "a", "k", 1), None);
    change(backend, &[put("a.b", "k", b"one", 1, None), put("a.b", "", vec![7; 100_000], 2, Some(9))]);
    let first = KvRecord::new(space("a.b"), "k", value(b"one"), moment(1));
    assert_eq!(get(backend, "a.b", "k", 5), Some(first.clone()));
    let large = get(backend, "a.b", "", 5).expect("an empty key is one");
    assert_eq!((large.value.bytes.len(), large.expires_at), (100_000, Some(moment(9))));
    let foreign = Encoded { codec: Codec::Foreign(3), bytes: vec![0, 255] };
    let (namespace, key, now) = (space("a.b"), "k".to_owned(), moment(4));
    let replaced = KvChange::Put { namespace, key, value: foreign.clone(), now, expires_at: None };
    // Repeating is safe.
    for _ in 0..2 {
        change(backend, std::slice::from_ref(&replaced));
        let second = KvRecord { value: foreign.clone(), updated_at: moment(4), ..first.clone() };
        assert_eq!(get(backend, "a.b", "k", 5), Some(second));
    }
    assert_eq!(get(backend, "a", "k", 5), None, "another namespace is another place");
    count(backend, 2);
    change(backend, &[put("", "k", b"", 1, None), put("langgraph", "k", b"", 1, None)]);
    assert_eq!(names(backend, None, 5), ["a.b/k", "a.b/", "/k", "langgraph/k"]);
    assert_eq!(names(backend, Some(""), 5).len(), 4, "everything is in the root");
    assert!(get(backend, "", "k", 2).is_some());
}

pub(super) fn kv_order(backend: &dyn Log) {
    for (n, name) in (1..).zip(["z/1", "a/b", "z/0", "a.x/c", "a-b/d", "ab/e", "a/a"]) {
        let (path, key) = name.split_once('/').expect("a path and a key");
        change(backend, &[put(path, key, name, n, None)]);
    }
    change(backend, &[put("z", "1", b"again", 20, None), put("a", "b", b"again", 21, None)]);
    assert_eq!(names(backend, None, 30), ["z/1", "z/0", "a/b", "a/a", "a.x/c", "a-b/d", "ab/e"]);
    assert_eq!(names(backend, Some("a"), 30), ["a/b", "a/a", "a.x/c"]);
    assert_eq!((names(backend, Some("a.x"), 30), names(backend, Some("b"), 30)), (vec!["a.x/c".into()], vec![]));
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
    let stopped = beside(backend).kv_entries(None, moment(50), &mut |_| Err(StoreError::ReadOnly));
    assert_eq!(refusal(stopped), "of the visitor");
    count(backend, 6);
}

pub(super) fn kv_expiry(backend: &dyn Log) {
    change(backend, &[put("a", "soon", b"1", 1, Some(5)), put("a", "late", b"2", 1, Some(9))]);
    change(backend, &[put("b", "soon", b"3", 1, Some(5)), put("c", "stays", b"4", 1, None)]);
    assert_eq!(names(backend, None, 4), ["a/soon", "a/late", "b/soon", "c/stays"]);
    assert_eq!(names(backend, None, 5), ["a/late", "c/stays"], "expired at its timestamp");
    assert_eq!((spaces(backend, None, 5), get(backend, "a", "soon", 5)), (vec!["a".into(), "c".into()], None));
    change(backend, &[put("a", "soon", b"5", 6, None)]);
    let anew = KvRecord::new(space("a"), "soon", value(b"5"), moment(6));
    assert_eq!(get(backend, "a", "soon", 6), Some(anew), "an expired key is put anew");
    assert_eq!(names(backend, None, 6), ["a/late", "a/soon", "c/stays"]);
    change(backend, &[put("a", "late", b"6", 7, None), put("c", "stays", b"7", 7, Some(8))]);
    assert_eq!(names(backend, None, 20), ["a/late", "a/soon"], "a put decides anew when it expires");
    let many = (0..u64::from(KV_EXPIRED_MAX) + 3).map(|n| put("many", &n.to_string(), b"", 20, Some(21)));
    many.for_each(|put| change(backend, &[put]));
    change(backend, &[put("x", "1", b"", 30, None)]);
    change(backend, &[put("x", "2", b"", 31, None)]);
    count(backend, 4);
}

pub(super) fn kv_keys(backend: &dyn Log) {
    let long = |bytes| put("a", &"k".repeat(bytes), b"", 1, None);
    refuses(backend, &[long(1), long(KV_KEY_BYTES_MAX + 1)], "kv key");
    assert!(names(backend, None, 1).is_empty(), "nothing was written");
    let deep = vec!["x"; KV_LABELS_MAX].join(".");
    let keys = ["a\0b", "a\0c", "a"];
    change(backend, &keys.map(|key| put(&deep, key, key, 1, None)));
    change(backend, &[long(KV_KEY_BYTES_MAX)]);
    assert_eq!(spaces(backend, Some("x"), 1), std::slice::from_ref(&deep));
    let found = keys.map(|key| get(backend, &deep, key, 1).expect("it is there").value);
    assert_eq!(found, keys.map(value), "a key may hold any character");
    count(backend, 4);
}

pub(super) fn kv_vectors(backend: &dyn Log) {
    assert!(indexed(backend, None, 1).is_empty());
    change(backend, &[put("b", "1", b"", 1, None), vectors("b", "1", &[&[1.0, -0.5], &[0.0, f32::MIN_POSITIVE]])]);
    change(backend, &[put("a", "1", b"", 1, None), put("a.x", "1", b"", 1, Some(5)), vectors("a.x", "1", &[&[2.0]])]);
    let b = ("b/1".to_owned(), vec![vec![1.0, -0.5], vec![0.0, f32::MIN_POSITIVE]]);
    let one = |name: &str, component| (name.to_owned(), vec![vec![component]]);
    assert_eq!(indexed(backend, None, 4), [b.clone(), one("a.x/1", 2.0)], "in the order of first puts");
    assert_eq!(indexed(backend, Some("a"), 4), [one("a.x/1", 2.0)]);
    assert_eq!(indexed(backend, None, 5), [b], "expired at its timestamp");
    change(backend, &[vectors("none", "1", &[&[1.0]]), vectors("b", "none", &[&[1.0]])]);
    change(backend, &[vectors("b", "1", &[&[7.0]])]);
    assert_eq!(indexed(backend, Some("b"), 4), [one("b/1", 7.0)], "they are replaced");
    let set = || vectors("b", "1", &[&[8.0]]);
    // A put removes them, a deletion does, and none are as good as no vectors.
    for changes in [
        vec![put("b", "1", b"again", 2, None)],
        vec![set(), delete("b", "1"), put("b", "1", b"", 3, None)],
        vec![set(), vectors("b", "1", &[])],
    ] {
        change(backend, &changes);
        assert!(indexed(backend, Some("b"), 4).is_empty(), "{changes:?}");
    }
    change(backend, &[put("c", "1", b"", 9, None), put("d", "1", b"", 9, None), vectors("c", "1", &[&[1.0]])]);
    assert!(indexed(backend, Some("a"), 4).is_empty(), "an expired entry goes with its vectors");
    let stopped = beside(backend).kv_indexed(None, moment(9), &mut |_, _| Err(StoreError::ReadOnly));
    assert_eq!(refusal(stopped), "of the visitor");
    refuses(backend, &[delete("c", "1"), vectors("c", "1", &[&[f32::NAN]])], "kv vector");
    assert_eq!(indexed(backend, None, 9), [one("c/1", 1.0)], "nothing was written");
    count(backend, 4);
}

pub(super) fn kv_lifetimes(backend: &dyn Log) {
    let (namespace, key) = (|| space("a"), |key: &str| key.to_owned());
    let lifetime = |of: &str, us: u64| {
        let lifetime = Duration::from_micros(us);
        KvChange::SetLifetime { namespace: namespace(), key: key(of), lifetime }
    };
    let prolong = |of: &str, now: u64| KvChange::Prolong { namespace: namespace(), key: key(of), now: moment(now) };
    let expiry = |of: &str| get(backend, "a", of, 0).and_then(|entry| entry.expires_at);
    let later = |us: u64| moment(1).saturating_add(Duration::from_micros(us));
    change(backend, &[put("a", "k", b"v", 1, Some(2)), lifetime("k", 10), put("a", "l", b"w", 1, Some(3))]);
    change(backend, &[prolong("k", 1), prolong("l", 1), prolong("none", 1), lifetime("none", 1)]);
    assert_eq!((expiry("k"), expiry("l")), (Some(later(10)), Some(moment(3))), "only an entry with a lifetime");
    let entry = get(backend, "a", "k", 0).expect("it is there");
    assert_eq!((entry.value, entry.updated_at), (value(b"v"), moment(1)), "the rest is as before");
    let expired = |at: Timestamp, limit| {
        let found = beside(backend).kv_expired(at, limit).expect("entries are read");
        found.into_iter().map(|(namespace, key)| format!("{}/{key}", namespace.path())).collect::<Vec<_>>()
    };
    assert_eq!(expired(later(9), 9), [""; 0]);
    assert_eq!(expired(moment(9), 9), ["a/k", "a/l"], "the earliest first");
    assert_eq!(expired(moment(9), 1), ["a/k"]);
    let expire = |of: &str, now| KvChange::DeleteExpired { namespace: namespace(), key: key(of), now: moment(now) };
    change(backend, &[expire("k", 1), expire("none", 9), expire("l", 3)]);
    assert!(expiry("l").is_none() && expiry("k").is_some(), "only an expired entry");
    change(backend, &[put("a", "k", b"v", 1, Some(2)), prolong("k", 1)]);
    assert_eq!(expiry("k"), Some(moment(2)), "a put removes the lifetime");
    count(backend, 1);
}

fn cache_key(labels: &[&str], key: &str) -> CacheKey {
    CacheKey::new(labels.iter().copied(), key)
}

fn cache_put(labels: &[&str], key: &str, bytes: &[u8], now: u64, expires: Option<u64>) -> CacheChange {
    let (now, expires_at) = (moment(now), expires.map(moment));
    CacheChange::Put { key: cache_key(labels, key), value: value(bytes), now, expires_at }
}

fn cache(backend: &dyn Log, changes: Vec<CacheChange>) -> String {
    refusal(beside(backend).submit_cache(changes).wait())
}

fn cached(backend: &dyn Log, keys: &[CacheKey], now: u64) -> Vec<Option<Vec<u8>>> {
    let found = beside(backend).cached(keys, moment(now)).expect("the cache is read");
    found.into_iter().map(|value| value.map(|value| value.bytes)).collect()
}

const DONE: &str = "accepted: ()";

pub(super) fn cache_values(backend: &dyn Log) {
    let keys = [cache_key(&["w", "a.b"], "1"), cache_key(&["w", "a.b"], "2"), cache_key(&["w"], "1")];
    assert_eq!(cached(backend, &keys, 1), [None, None, None]);
    let puts = vec![cache_put(&["w", "a.b"], "1", b"one", 1, Some(5)), cache_put(&["w"], "1", b"", 1, None)];
    assert_eq!(cache(backend, puts), DONE);
    assert_eq!(cached(backend, &keys, 4), [Some(b"one".to_vec()), None, Some(Vec::new())]);
    assert_eq!(cached(backend, &keys, 5), [None, None, Some(Vec::new())], "expired at its timestamp");
    assert_eq!(cache(backend, vec![cache_put(&["w", "a.b"], "1", b"two", 6, None)]), DONE);
    assert_eq!(cached(backend, &keys[..1], 9), [Some(b"two".to_vec())]);
    assert_eq!(cache(backend, vec![cache_put(&["w"], "1", b"", 9, Some(10))]), DONE);
    assert_eq!(cache(backend, vec![cache_put(&["w"], "2", b"", 11, None)]), DONE);
    // A put takes expired values away.
    count(backend, 2);
    let nul = CacheChange::Clear { namespace: vec!["a\0".into()] };
    assert_eq!(cache(backend, vec![cache_put(&["w"], "3", b"", 1, None), nul]), "cache label");
    assert_eq!(cached(backend, &[cache_key(&["w"], "3")], 1), [None], "nothing was written");
}

pub(super) fn cache_clear(backend: &dyn Log) {
    let places: [&[&str]; 6] = [&[], &["a"], &["a", "b"], &["a", "b", "c"], &["a", "bb"], &["ab"]];
    let fill = || places.iter().map(|place| cache_put(place, "k", b"v", 1, None)).collect();
    let keys = places.map(|place| cache_key(place, "k"));
    let labels = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    let inside = |of| CacheChange::Clear { namespace: labels(of) };
    let alone = |of| CacheChange::ClearNamespace { namespace: labels(of) };
    for (changes, left) in [
        (vec![inside(&["a", "b"])], [true, true, false, false, true, true]),
        (vec![inside(&["a", "b"]), inside(&["a"])], [true, false, false, false, false, true]),
        (vec![alone(&["a"])], [true, false, true, true, true, true]),
        (vec![alone(&["a"]), alone(&[])], [false, false, true, true, true, true]),
        (vec![inside(&[])], [false; 6]),
    ] {
        assert_eq!(cache(backend, fill()), DONE);
        assert_eq!(cache(backend, changes.clone()), DONE);
        let found: Vec<bool> = cached(backend, &keys, 2).iter().map(Option::is_some).collect();
        assert_eq!(found, left, "{changes:?}");
    }
    count(backend, 0);
}
