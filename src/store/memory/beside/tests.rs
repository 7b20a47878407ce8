//! Damage in the key-value memory and the cache, each found by itself.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn value() -> Encoded {
    Encoded { codec: crate::base::Codec::MsgPack, bytes: vec![0x80] }
}

fn space(path: &str) -> KvNamespace {
    KvNamespace::new(path.split('.')).unwrap()
}

/// Returns a memory with two namespaces, of two entries and of one, which has a vector and a lifetime.
fn filled() -> MemoryKv {
    let mut kv = MemoryKv::default();
    for (path, key) in [("a", "one"), ("a", "two"), ("b", "only")] {
        let (namespace, key) = (space(path), key.to_owned());
        kv.change(&KvChange::Put { namespace, key, value: value(), now: at(1), expires_at: None });
    }
    let (namespace, key) = (space("b"), "only".to_owned());
    let vectors = vec![KvVector::new("text", vec![1.0])];
    kv.change(&KvChange::SetVectors { namespace: namespace.clone(), key: key.clone(), vectors });
    kv.change(&KvChange::SetLifetime { namespace, key, lifetime: Duration::from_secs(5) });
    kv
}

/// Returns the entries and the findings of a check after a damage.
fn damaged(damage: impl FnOnce(&mut MemoryKv)) -> (u64, Vec<Finding>) {
    let (mut kv, mut report) = (filled(), CheckReport::default());
    damage(&mut kv);
    kv.check(&mut report);
    (report.entries, report.problems)
}

fn of_entries(path: &str) -> Vec<Finding> {
    vec![Finding::new(Invariant::Entries, format!("kv {:?}", space(path)), "keys and entries do not match")]
}

/// Returns the number of the namespace with a path.
fn number(kv: &MemoryKv, path: &str) -> u64 {
    kv.numbers[&space(path)]
}

#[test]
fn a_sound_memory_is_counted_without_a_finding() {
    assert_eq!(damaged(|_| {}), (3, Vec::new()));
}

#[test]
fn a_namespace_that_is_not_found_by_its_name_is_damage() {
    let unknown = damaged(|kv| _ = kv.numbers.remove(&space("a")));
    assert_eq!(unknown, (3, of_entries("a")));
    let other = damaged(|kv| {
        let number = number(kv, "a");
        kv.numbers.insert(space("b"), number);
    });
    assert_eq!(other, (3, of_entries("b")));
}

#[test]
fn a_namespace_without_entries_is_damage() {
    let empty = damaged(|kv| {
        kv.numbers.insert(space("c"), 90);
        kv.namespaces.insert(90, KvSpace { name: space("c"), keys: HashMap::new(), entries: BTreeMap::new() });
    });
    assert_eq!(empty, (3, of_entries("c")));
}

#[test]
fn a_key_without_an_entry_and_an_entry_without_a_key_are_damage() {
    let change = |change: fn(&mut KvSpace)| {
        damaged(|kv| {
            let number = number(kv, "a");
            change(kv.namespaces.get_mut(&number).unwrap());
        })
    };
    assert_eq!(change(|space| _ = space.keys.insert("three".into(), 90)), (3, of_entries("a")));
    assert_eq!(change(|space| _ = space.keys.remove("two")), (3, of_entries("a")));
    let swapped = change(|space| {
        let (one, two) = (space.keys["one"], space.keys["two"]);
        space.keys.extend([("one".to_owned(), two), ("two".to_owned(), one)]);
    });
    assert_eq!(swapped, (3, of_entries("a")));
}

#[test]
fn a_vector_or_a_lifetime_of_no_entry_is_damage() {
    let place = "kv vectors and lifetimes";
    let finding = Finding::new(Invariant::Ownership, place, "one belongs to an entry that does not exist");
    let of_no_entry = damaged(|kv| {
        let number = number(kv, "b");
        kv.vectors.insert((number, 90), Vec::new().into());
    });
    assert_eq!(of_no_entry, (3, vec![finding.clone()]));
    let of_no_namespace = damaged(|kv| _ = kv.lifetimes.insert((90, 91), Duration::from_secs(1)));
    assert_eq!(of_no_namespace, (3, vec![finding]));
}

#[test]
fn a_value_of_the_cache_whose_end_is_not_listed_is_damage() {
    let mut cache = MemoryCache::default();
    for (key, expires_at) in [("stays", None), ("soon", Some(at(5))), ("late", Some(at(9)))] {
        let key = CacheKey::new(["a"], key);
        cache.change(CacheChange::Put { key, value: value(), now: at(1), expires_at });
    }
    // The entries of the key-value memory were counted before.
    let checked = |cache: &MemoryCache| {
        let mut report = CheckReport { entries: 4, ..CheckReport::default() };
        cache.check(&mut report);
        (report.entries, report.problems)
    };
    assert_eq!(checked(&cache), (7, Vec::new()));
    let finding = vec![Finding::new(Invariant::Entries, "cache", "values and their ends do not match")];
    cache.expiring.pop_first();
    assert_eq!(checked(&cache), (7, finding.clone()));
    cache.expiring.extend([(at(5), CacheKey::new(["a"], "soon")), (at(5), CacheKey::new(["a"], "stays"))]);
    assert_eq!(checked(&cache), (7, finding));
}

#[test]
fn a_put_into_the_cache_takes_what_has_expired_away() {
    let mut cache = MemoryCache::default();
    let mut put = |key: &str, now: i64, expires_at: Option<i64>| {
        let (key, expires_at) = (CacheKey::new(["a"], key), expires_at.map(at));
        cache.change(CacheChange::Put { key, value: value(), now: at(now), expires_at });
        cache.values.keys().map(|key| key.key.clone()).collect::<Vec<_>>().join(" ")
    };
    put("one", 1, Some(5));
    put("two", 1, Some(6));
    assert_eq!(put("stays", 4, None), "one stays two");
    assert_eq!(put("more", 5, None), "more stays two", "one ends at its timestamp");
}
