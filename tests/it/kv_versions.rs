//! Versions of the key-value memory: histories, the memory at a time, what searches pass over, and what is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, Map, Timestamp, Value};
use annals::store::kv::{KvItem, KvNamespaceQuery, KvVersion, KvWrite};
use annals::store::{KvQuery, OpenOptions, Store, StoreError};

use super::on_both::on_both;

#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn city(name: &str) -> Map {
    Map::from_iter([("city".to_owned(), Value::from(name))])
}

fn cities(versions: &[KvVersion]) -> Vec<Option<&str>> {
    versions.iter().map(|version| version.value.as_ref()?.get("city")?.as_str()).collect()
}

fn shown(items: &[KvItem]) -> Vec<(&str, &str)> {
    items.iter().map(|item| (&*item.key, item.value.get("city").and_then(Value::as_str).unwrap())).collect()
}

/// A file whose clock the test sets.
fn timed(folder: &std::path::Path) -> (Hands, Store) {
    let hands = Hands(Arc::new(AtomicI64::new(0)));
    (hands.clone(), Store::open_with(folder.join("store.db"), OpenOptions::new().clock(hands)).unwrap())
}

#[test]
fn each_put_and_deletion_of_a_versioned_handle_is_a_version() {
    on_both(|store| {
        let (kv, plain) = (store.kv().versioned(), store.kv());
        plain.put(["users"], "ann", city("Chur")).unwrap();
        for name in ["Bern", "Thun"] {
            kv.put(["users"], "ann", city(name)).unwrap();
        }
        kv.delete(["users"], "ann").unwrap();
        kv.write_all([KvWrite::put(["users"], "ann", city("Basel")).unwrap()]).unwrap();
        kv.put(["users"], "bob", city("Genf")).unwrap();
        plain.put(["users"], "ann", city("Uster")).unwrap();
        let versions = plain.history(["users"], "ann").unwrap();
        assert_eq!(cities(&versions), [Some("Bern"), Some("Thun"), None, Some("Basel")]);
        assert!(versions.is_sorted_by_key(|version| version.at));
        assert_eq!(kv.history(["users"], "nobody").unwrap(), []);
        assert_eq!(kv.history(["a.b"], "ann").unwrap(), [], "no valid namespace");
        assert_eq!(kv.get(["users"], "ann").unwrap().unwrap().value.get("city"), Some(&Value::from("Uster")));
    });
}

#[test]
fn the_memory_is_read_as_it_was_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (hands, store) = timed(folder.path());
    let kv = store.kv().versioned();
    let go = |micros: i64| hands.0.store(micros, Ordering::SeqCst);
    for (time, key, name) in [(10, "ann", "Bern"), (20, "bob", "Genf"), (30, "ann", "Thun")] {
        go(time);
        kv.put(["users", "home"], key, city(name)).unwrap();
    }
    go(40);
    kv.delete(["users", "home"], "bob").unwrap();
    kv.put_for(["users"], "guest", city("Brig"), Duration::from_micros(5)).unwrap();
    let then = |micros: i64| kv.as_of(at(micros)).entries(["users"]).unwrap();
    assert_eq!(shown(&then(9)), []);
    assert_eq!(shown(&then(10)), [("ann", "Bern")]);
    assert_eq!(shown(&then(29)), [("ann", "Bern"), ("bob", "Genf")]);
    assert_eq!(shown(&then(40)), [("ann", "Thun"), ("guest", "Brig")]);
    assert_eq!(shown(&then(45)), [("ann", "Thun")], "the guest has expired");
    let ann = kv.as_of(at(35)).get(["users", "home"], "ann").unwrap().unwrap();
    assert_eq!((ann.created_at, ann.updated_at, ann.namespace.join("/")), (at(10), at(30), "users/home".to_owned()));
    assert!(kv.as_of(at(40)).get(["users", "home"], "bob").unwrap().is_none());
    go(50);
    kv.put(["users", "home"], "bob", city("Visp")).unwrap();
    let bob = kv.as_of(at(50)).get(["users", "home"], "bob").unwrap().unwrap();
    assert_eq!(bob.created_at, at(50), "a key that was deleted begins anew");
    assert_eq!(store.check().unwrap().problems, []);
}

#[test]
fn versions_are_no_entries_of_searches_and_listings() {
    on_both(|store| {
        let (kv, plain) = (store.kv().versioned(), store.kv());
        for name in ["Bern", "Thun"] {
            kv.put(["users"], "ann", city(name)).unwrap();
        }
        for order in [annals::store::kv::KvOrder::FirstPut, annals::store::kv::KvOrder::LatestPut] {
            let all = plain.search(KvQuery::all().order(order).limit(100)).unwrap();
            assert_eq!(shown(&all), [("ann", "Thun")]);
        }
        assert_eq!(plain.search(KvQuery::all().offset(1)).unwrap(), []);
        assert_eq!(plain.list_namespaces(KvNamespaceQuery::new()).unwrap(), [["users"]]);
        let reserved = plain.put(["__history__", "users"], "ann", city("Rom"));
        assert!(matches!(reserved, Err(StoreError::InvalidNamespace { .. })), "{reserved:?}");
    });
}

#[test]
fn a_key_is_forgotten_with_its_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (_, store) = timed(folder.path());
    let kv = store.kv().versioned();
    for n in 0..1_500 {
        kv.put(["users"], "ann", city(&format!("secret {n}"))).unwrap();
    }
    kv.put(["users"], "bob", city("Genf")).unwrap();
    assert_eq!(kv.forget(["users"], "ann").unwrap(), 1_500);
    assert_eq!((kv.history(["users"], "ann").unwrap(), kv.get(["users"], "ann").unwrap()), (vec![], None));
    assert_eq!(kv.history(["users"], "bob").unwrap().len(), 1);
    assert_eq!(kv.forget(["users"], "ann").unwrap(), 0);
    // A namespace of the caller is within that of the versions of another key.
    kv.put(["users"], "ann", city("Chur")).unwrap();
    let all = kv.list_namespaces(KvNamespaceQuery::new().prefix(["__history__"])).unwrap();
    for hash in all.iter().filter_map(|labels| labels.last()) {
        kv.put(["users", hash], "ann", city("Olten")).unwrap();
    }
    assert_eq!(cities(&kv.history(["users"], "ann").unwrap()), [Some("Chur")]);
    let before = kv.as_of(store.now()).get(["users"], "ann").unwrap().unwrap();
    assert_eq!(shown(&[before]), [("ann", "Chur")]);
    assert_eq!(kv.forget(["users"], "ann").unwrap(), 1);
    for hash in all.iter().filter_map(|labels| labels.last()) {
        assert_eq!(cities(&kv.history(["users", hash], "ann").unwrap()), [Some("Olten")]);
    }
    assert_eq!(store.check().unwrap().problems, []);
}
