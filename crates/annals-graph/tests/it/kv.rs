//! The key-value memory and the cache, as a user sees them, on both backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, Encoded, Map, Timestamp, Value};
use annals::store::kv::{KvCompare, KvItem, KvNamespaceQuery};
use annals::store::{CacheKey, KvQuery, MemoryBackend, OpenOptions, Store, StoreError};
use annals_graph::prelude::{CompiledGraph, Context, Input, START, State, StateGraph};

/// A clock that a test sets.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl Hand {
    pub(crate) fn set(&self, seconds: i64) {
        self.0.store(seconds * 1_000_000, Ordering::Relaxed);
    }
}

fn both(test: impl Fn(&Store, &Hand)) {
    let hand = Hand::default();
    test(&Store::with_backend(Arc::new(MemoryBackend::new()), OpenOptions::new().clock(hand.clone())), &hand);
    let (folder, hand) = (tempfile::tempdir().unwrap(), Hand::default());
    let options = OpenOptions::new().clock(hand.clone());
    test(&Store::open_with(folder.path().join("kv.db"), options).unwrap(), &hand);
}

fn object(json: serde_json::Value) -> Map {
    match Value::from(json) {
        Value::Map(map) => map,
        other => panic!("{other:?} is no object"),
    }
}

fn keys(items: &[KvItem]) -> Vec<&str> {
    items.iter().map(|item| item.key.as_str()).collect()
}

#[test]
fn a_value_is_put_read_replaced_and_deleted() {
    both(|store, hand| {
        let kv = store.kv();
        hand.set(1);
        kv.put(["users", "7"], "name", object(serde_json::json!({"v": "Ann", "n": [1, {"k": null}]}))).unwrap();
        hand.set(2);
        kv.clone().put(["users", "7"], "name", object(serde_json::json!({"v": "Bo"}))).unwrap();
        let item = store.kv().get(["users", "7"], "name").unwrap().unwrap();
        assert_eq!(item.namespace, ["users", "7"]);
        assert_eq!(item.value, Value::from(object(serde_json::json!({"v": "Bo"}))), "a put replaces the whole value");
        assert_eq!((item.created_at.as_micros(), item.updated_at.as_micros()), (1_000_000, 2_000_000));
        assert!(kv.get(["users"], "name").unwrap().is_none() && kv.get(["users", "7"], "x").unwrap().is_none());
        assert!(kv.get([""; 0], "x").unwrap().is_none() && kv.get(["a.b"], "x").unwrap().is_none());
        kv.delete(["users", "7"], "name").unwrap();
        kv.delete(["users", "7"], "name").unwrap();
        kv.delete(["a.b"], "name").unwrap();
        assert!(kv.search(KvQuery::all()).unwrap().is_empty());
        for value in [Value::Null, Value::from("text"), Value::List(Vec::new())] {
            let error = kv.put(["users"], "name", value).unwrap_err();
            assert!(matches!(error, StoreError::Invalid { field: "kv value", .. }), "{error}");
        }
        let error = kv.put(["langgraph"], "name", Map::new()).unwrap_err();
        assert!(matches!(error, StoreError::InvalidNamespace { .. }), "{error}");
        assert_eq!(annals_graph::Error::from(error).kind(), annals_graph::ErrorKind::Invalid);
    });
}

#[test]
fn a_search_filters_and_pages() {
    both(|store, _| {
        let kv = store.kv();
        for (n, name) in (0..).zip(["c", "a", "d", "b"]) {
            let value = serde_json::json!({"n": n, "even": n % 2 == 0, "name": name, "in": {"n": n, "more": true}});
            kv.put(["d", if n < 2 { "x" } else { "y" }], name, object(value)).unwrap();
        }
        kv.put(["dd"], "other", Map::new()).unwrap();
        let found = |query: KvQuery| keys(&kv.search(query).unwrap()).join("");
        assert_eq!(found(KvQuery::new(["d"])), "cadb");
        assert_eq!(found(KvQuery::new(["d", "y"]).offset(1)), "b");
        assert_eq!(found(KvQuery::new(["d"]).limit(2).offset(1)), "ad");
        assert_eq!(found(KvQuery::new(["d"]).limit(0)), "");
        assert_eq!(found(KvQuery::new(["d.x"])), "", "no label holds a dot");
        assert_eq!(found(KvQuery::new(["d"]).filter("even", true)), "cd");
        assert_eq!(found(KvQuery::new(["d"]).filter("in", object(serde_json::json!({"n": 1})))), "a");
        let between = KvQuery::new(["d"]).compare("n", KvCompare::Gt, 0).compare("n", KvCompare::Lte, 2);
        assert_eq!(found(between), "ad");
        assert_eq!(found(KvQuery::all().compare("name", KvCompare::Ne, "a").limit(2).offset(1)), "db");
        let form = object(serde_json::json!({"n": {"$gte": 1}, "even": false}));
        assert_eq!(found(KvQuery::new(["d"]).filter_object(form).unwrap()), "ab");
        assert!(KvQuery::all().filter_object(object(serde_json::json!({"n": {"$near": 1}}))).is_err());
        for n in 0..12 {
            kv.put(["many"], n.to_string(), Map::new()).unwrap();
        }
        assert_eq!(kv.search(KvQuery::new(["many"])).unwrap().len(), 10, "the usual limit");
    });
}

#[test]
fn namespaces_are_listed_by_what_they_begin_and_end_with() {
    both(|store, _| {
        let kv = store.kv();
        for path in ["a.b.c", "a.b", "a.x.c", "z", "b.c", "a-1"] {
            kv.put(path.split('.'), "k", Map::new()).unwrap();
        }
        let list = |query: KvNamespaceQuery| {
            let found = kv.list_namespaces(query).unwrap();
            found.iter().map(|labels| labels.join(".")).collect::<Vec<_>>().join(" ")
        };
        let all = KvNamespaceQuery::new;
        assert_eq!(list(all()), "a.b a.b.c a.x.c a-1 b.c z", "sorted label by label");
        assert_eq!(list(all().prefix(["a"])), "a.b a.b.c a.x.c");
        assert_eq!(list(all().suffix(["c"])), "a.b.c a.x.c b.c");
        assert_eq!(list(all().prefix(["a", "*", "c"])), "a.b.c a.x.c");
        assert_eq!(list(all().prefix(["*", "b"]).suffix(["*"])), "a.b a.b.c");
        assert_eq!(list(all().max_depth(1)), "a a-1 b z");
        assert_eq!(list(all().prefix(["a"]).suffix(["c"]).max_depth(2)), "a.b a.x");
        assert_eq!(list(all().limit(2).offset(1)), "a.b.c a.x.c");
        assert_eq!(list(all().prefix(["none"])), "");
        assert_eq!(list(all().prefix(["a.b"])), "");
    });
}

#[test]
fn a_value_lives_as_long_as_it_was_given() {
    both(|store, hand| {
        let kv = store.kv();
        hand.set(10);
        kv.put_for(["a"], "k", Map::new(), Duration::from_secs(5)).unwrap();
        hand.set(14);
        let item = kv.get(["a"], "k").unwrap().unwrap();
        assert_eq!(item.expires_at.map(Timestamp::as_micros), Some(15_000_000));
        hand.set(15);
        assert!(kv.get(["a"], "k").unwrap().is_none());
        assert!(kv.search(KvQuery::all()).unwrap().is_empty());
        assert!(kv.list_namespaces(KvNamespaceQuery::new()).unwrap().is_empty());
        let key = CacheKey::new(["w"], "k");
        let cache = store.cache();
        for n in 0..100 {
            // The commit handle is dropped, and still the next read sees the value.
            drop(cache.put(key.clone(), Encoded::encode(&n).unwrap(), Some(Duration::from_secs(1))));
            assert_eq!(store.cache().get(&key).unwrap().unwrap().decode::<i32>().unwrap(), n);
        }
        hand.set(16);
        assert!(cache.get(&key).unwrap().is_none());
        drop(cache.put(key.clone(), Encoded::encode("x").unwrap(), None));
        cache.clear(["w"]).unwrap();
        assert!(cache.get(&key).unwrap().is_none());
    });
}

#[test]
fn what_was_put_survives_a_reopen_and_a_reader_may_not_put() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.db");
    let store = Store::open(&path).unwrap();
    store.kv().put(["a"], "k", object(serde_json::json!({"v": 1}))).unwrap();
    drop(store);
    let reader = Store::open_with(&path, OpenOptions::new().read_only(true)).unwrap();
    assert_eq!(reader.kv().get(["a"], "k").unwrap().unwrap().value.get("v"), Some(&Value::from(1)));
    assert!(matches!(reader.kv().delete(["a"], "k"), Err(StoreError::ReadOnly)));
    assert!(matches!(reader.cache().clear(["a"]), Err(StoreError::ReadOnly)));
    assert_eq!(reader.check().unwrap().entries, 1);
}

#[derive(State, Clone, Default)]
struct Visit {
    #[channel(last)]
    user: String,
    #[channel(last)]
    seen: i64,
}

/// Counts the visits of a user; the graph that counts lies inside another one.
fn visits() -> CompiledGraph<Visit> {
    let count = StateGraph::<Visit>::new()
        .node("count", |visit: &Visit, ctx: &Context| {
            let kv = ctx.kv()?;
            let seen = kv.get(["visits"], &visit.user)?.and_then(|item| item.value.get("n").and_then(Value::as_int));
            let seen = seen.unwrap_or(0) + 1;
            kv.put(["visits"], &visit.user, object(serde_json::json!({"n": seen})))?;
            let own = ctx.kv()?.get(["visits"], &visit.user)?.and_then(|item| item.value.get("n").cloned());
            assert_eq!(own, Some(Value::from(seen)), "a node sees at once what it put");
            Ok(Visit::update().seen(seen))
        })
        .edge(START, "count")
        .compile()
        .unwrap();
    StateGraph::<Visit>::new().node("inner", count).edge(START, "inner").compile().unwrap()
}

#[test]
fn nodes_share_the_key_value_memory() {
    both(|store, _| {
        let graph = visits();
        for (thread, user, seen) in [("1", "ann", 1), ("2", "ann", 2), ("1", "bob", 1), ("1", "ann", 3)] {
            let visit = graph.invoke(&store.thread(thread).unwrap(), Visit::update().user(user)).unwrap();
            assert_eq!(visit.state().seen, seen, "{user} on {thread}");
        }
        assert_eq!(keys(&store.kv().search(KvQuery::new(["visits"])).unwrap()), ["ann", "bob"]);
        // A replay takes nothing back.
        let start = store.thread("2").unwrap().at("~1").unwrap();
        assert_eq!(graph.invoke(&start, Input::Continue).unwrap().state().seen, 4);
    });
}

#[test]
fn a_run_can_be_given_another_memory_and_may_have_none() {
    let (graph, kv) = (visits(), Store::memory().kv());
    for seen in 1..=2 {
        let visit = graph.run(()).kv(&kv).invoke(Visit::update().user("ann")).unwrap();
        assert_eq!(visit.state().seen, seen);
    }
    let thread = Store::memory().thread("1").unwrap();
    assert_eq!(graph.run(&thread).kv(&kv).invoke(Visit::update().user("ann")).unwrap().state().seen, 3);
    let error = graph.invoke((), Visit::update().user("ann")).unwrap_err();
    assert!(error.is_user() && error.to_string().contains("no key-value memory"), "{error}");
}
