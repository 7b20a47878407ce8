//! The drawings of graphs that runs leave in the cache of a store.

use std::time::Duration;

use annals::base::Value;
use annals::state::DynState;
use annals::store::{CacheKey, KvNamespaceQuery, KvQuery, OpenOptions};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;
use serde_json::json;

use crate::places::place;

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

/// Returns the nodes of the drawing under a key, once the background writer had time to store it.
fn nodes(store: &Store, graph: &str, key: &str) -> Option<serde_json::Value> {
    let key = CacheKey::new(["drawings", graph], key);
    for _ in 0..100 {
        if let Some(found) = store.cache().get(&key).unwrap() {
            return Some(found.decode::<Value>().unwrap().to_json());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

#[apply(each_backend)]
fn a_run_stores_the_drawing_of_its_graph() {
    let store = place();
    let first = order("order", Some("7"), "refuse");
    run(&store, &first);
    let key = format!("7#{}", first.fingerprint());
    let found = nodes(&store, "order", &key).unwrap();
    assert_eq!(found["nodes"], json!(["__start__", "pay", "refuse", "__end__"]));
    assert!(found["edges"].as_array().unwrap().contains(&json!({
        "source": "__start__", "target": "refuse", "conditional": true
    })));
    assert!(store.kv().search(KvQuery::all()).unwrap().is_empty(), "the key-value memory does not show it");
    assert!(store.kv().list_namespaces(KvNamespaceQuery::new()).unwrap().is_empty());

    // Another version is another entry; without a version the newest graph of the name has the one entry.
    run(&store, &order("order", Some("8"), "refuse"));
    run(&store, &order("order", None, "refuse"));
    assert!(nodes(&store, "order", "newest").unwrap()["nodes"].as_array().unwrap().contains(&json!("refuse")));
    run(&store, &order("order", None, "ask"));
    let is_new = || nodes(&store, "order", "newest").unwrap()["nodes"].as_array().unwrap().contains(&json!("ask"));
    assert!((0..100).any(|_| is_new() || {
        std::thread::sleep(Duration::from_millis(5));
        false
    }));
    assert!(nodes(&store, "order", &key).is_some());
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
    assert!(nodes(&store, "order", "newest").is_some());
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
    assert!(nodes(&store, "order", "newest").is_some(), "another handle looks again");
    store.cache().clear(["drawings"]).unwrap();
    run(&store, &graph);
    drop(store);
    let store = Store::open_with(&path, options()).unwrap();
    assert_eq!(store.cache().get(&key).unwrap(), None, "the same handle does not look again");
}
