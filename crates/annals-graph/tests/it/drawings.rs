//! The drawings of graphs that runs leave in the cache of a store.

use std::time::Duration;

use annals::base::{Clock, SystemClock, Value};
use annals::state::DynState;
use annals::store::kv::KvNamespaceQuery;
use annals::store::{CacheKey, KvQuery, OpenOptions};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;
use serde_json::json;

use crate::backends::{GUARD, place};

/// A graph whose only branch leads to `pay`, or to a node that no run reaches.
fn order(name: &str, version: Option<&str>, other: &str) -> CompiledGraph<DynState> {
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build()).name(name);
    let graph = match version {
        Some(version) => graph.version(version),
        None => graph,
    };
    let pay = DynUpdate::new;
    graph
        .node("pay", move |_: &DynState| Ok(pay()))
        .node(other, move |_: &DynState| Ok(pay()))
        .branch_to(START, |_: &DynState| "pay", ["pay", other])
        .compile()
        .unwrap()
}

fn run(store: &Store, graph: &CompiledGraph<DynState>) {
    assert!(graph.invoke(&store.thread("t").unwrap(), DynUpdate::new().set("n", 1)).unwrap().is_done());
}

/// Returns the nodes of the drawing under a key, once the background writer has stored it and they are wanted.
fn nodes_once(store: &Store, graph: &str, key: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let (key, begin) = (CacheKey::new(["drawings", graph], key), SystemClock.elapsed());
    loop {
        let found = store.cache().get(&key).unwrap().map(|found| found.decode::<Value>().unwrap().to_json());
        match found.filter(&wanted) {
            Some(found) => return found,
            None => assert!(SystemClock.elapsed() - begin < GUARD, "the drawing is not stored"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the nodes of the drawing under a key, once the background writer has stored it.
fn nodes(store: &Store, graph: &str, key: &str) -> serde_json::Value {
    nodes_once(store, graph, key, |_| true)
}

#[apply(each_backend)]
fn a_run_stores_the_drawing_of_its_graph() {
    let store = place();
    let first = order("order", Some("7"), "refuse");
    run(&store, &first);
    let key = format!("7#{}", first.fingerprint());
    let found = nodes(&store, "order", &key);
    assert_eq!(found["nodes"], json!(["__start__", "pay", "refuse", "__end__"]));
    assert!(found["edges"].as_array().unwrap().contains(&json!({
        "source": "__start__", "target": "refuse", "conditional": true
    })));
    assert!(store.kv().search(KvQuery::all()).unwrap().is_empty(), "the key-value memory does not show it");
    assert!(store.kv().list_namespaces(KvNamespaceQuery::new()).unwrap().is_empty());

    // Another version is another entry; without a version the newest graph of the name has the one entry.
    run(&store, &order("order", Some("8"), "refuse"));
    run(&store, &order("order", None, "refuse"));
    let has = |node: &'static str| move |of: &serde_json::Value| of["nodes"].as_array().unwrap().contains(&json!(node));
    nodes_once(&store, "order", "newest", has("refuse"));
    run(&store, &order("order", None, "ask"));
    nodes_once(&store, "order", "newest", has("ask"));
    assert_eq!(nodes(&store, "order", &key), found);
}

#[apply(each_backend)]
fn graphs_without_a_drawing_of_use_store_none() {
    let store = place();
    run(&store, &order("LangGraph", None, "refuse"));
    let one = Entrypoint::new("one", |n: i64| -> NodeResult<i64> { Ok(n) }).compile().unwrap();
    one.invoke(&store.thread("one").unwrap(), 1).unwrap();
    let many = (0..201).fold(StateGraph::with_schema(DynSchema::new().last("n").build()).name("many"), |graph, n| {
        graph.node(format!("n{n}"), |_: &DynState| Ok(()))
    });
    let many = many.edge(START, "n0").compile().unwrap();
    run(&store, &many);
    run(&store, &order("order", None, "refuse"));
    nodes(&store, "order", "newest");
    // The background writer makes its changes in their order, so one of these would be there by now.
    for name in ["LangGraph", "one", "many"] {
        assert_eq!(store.cache().get(&CacheKey::new(["drawings", name], "newest")).unwrap(), None, "{name}");
    }
}

#[test]
fn a_process_looks_once_and_writes_what_the_file_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drawn.db");
    let graph = order("order", None, "refuse");
    let options = || OpenOptions::new();
    let store = Store::open_with(&path, options()).unwrap();
    run(&store, &graph);
    drop(store);
    let store = Store::open_with(&path, options()).unwrap();
    let key = CacheKey::new(["drawings", "order"], "newest");
    assert!(store.cache().get(&key).unwrap().is_some(), "the end of a store waits for it");
    store.cache().clear(["drawings"]).unwrap();
    run(&store, &graph);
    // Another handle looks again.
    nodes(&store, "order", "newest");
    store.cache().clear(["drawings"]).unwrap();
    run(&store, &graph);
    drop(store);
    let store = Store::open_with(&path, options()).unwrap();
    assert_eq!(store.cache().get(&key).unwrap(), None, "the same handle does not look again");
}
