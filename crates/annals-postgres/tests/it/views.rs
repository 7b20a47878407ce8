//! The views show what a graph, operations and the key-value memory wrote.

use std::sync::Arc;

use annals::store::log::LogExt;
use annals::store::{OpenOptions, Store};
use annals_graph::prelude::*;
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![("views::show_the_log".into(), Box::new(show_the_log))]
}

#[derive(State, Clone, Default)]
struct ViewedTalk {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    turns: i64,
}

fn show_the_log(server: &Server) {
    let url = server.empty();
    let schema = url.rsplit("%3D").next().expect("a schema").to_owned();
    let backend = Arc::new(PostgresBackend::connect(&url).expect("the server is reached"));
    let store = Store::with_backend(backend, OpenOptions::new());
    let answer = |talk: &ViewedTalk| Ok(ViewedTalk::update().messages([Message::ai("hello")]).turns(talk.turns + 300));
    let graph =
        StateGraph::<ViewedTalk>::new().node("answer", answer).edge(START, "answer").edge("answer", END).compile();
    let graph = graph.expect("a graph");
    let thread = store.thread("t").expect("an id");
    for text in ["hi", "a\0b"] {
        graph.invoke(&thread, ViewedTalk::update().messages([Message::human(text)])).expect("it runs");
    }
    let long = "x".repeat(20_000);
    for title in ["first", &long, "Bern"] {
        thread.facts().title(title).project(&long).label("a").pinned(true).save().expect("facts are set");
    }
    store.thread("other").expect("an id").facts().title("none").save().expect_err("the thread is not stored");
    store.kv().put(["users", "ada"], "city", annals::base::Map::new()).expect("it is put");
    let select = |sql: &str| server.select(&format!("SET search_path = {schema}; {sql}"));

    let records: Vec<_> = thread.history().expect("a history").map(|point| point.expect("a checkpoint")).collect();
    let newest = records[0].record();
    let ids: Vec<String> = records.iter().map(|point| point.id().to_string()).collect();
    assert_eq!(select("SELECT checkpoint FROM v_checkpoints WHERE thread = 't' ORDER BY seq DESC"), ids);
    assert_eq!(select("SELECT parent FROM v_checkpoints WHERE parent IS NOT NULL ORDER BY seq DESC"), ids[1..]);
    assert_eq!(select("SELECT checkpoint FROM v_checkpoints WHERE is_head = 1"), ids[..1]);
    assert_eq!(select("SELECT seq FROM v_heads WHERE seq = newest"), [newest.seq.to_string()]);
    let created = select("SELECT created_at FROM v_checkpoints ORDER BY seq DESC LIMIT 1");
    assert_eq!(created, [newest.created_at.to_string()]);
    assert_eq!(select("SELECT updated_at FROM v_threads"), created);
    assert_eq!(select("SELECT source FROM v_checkpoints ORDER BY seq LIMIT 2"), ["input", "loop"]);
    assert_eq!(select("SELECT step FROM v_checkpoints ORDER BY seq DESC LIMIT 1"), [newest.step.to_string()]);

    assert_eq!(select("SELECT text FROM v_messages ORDER BY slot"), ["hi", "hello", "ab", "hello"]);
    assert_eq!(select("SELECT kind FROM v_messages ORDER BY slot"), ["human", "ai", "human", "ai"]);
    let versions = "SELECT max(version) FROM v_channel_versions WHERE channel = 'turns' AND kind = 'value'";
    let state = store.backend().state(&newest.point).expect("a state");
    let turns = state.channels.iter().find(|of| &*of.channel == "turns").expect("it was written");
    assert_eq!(select(versions), [turns.version.to_string()]);
    assert_eq!(select("SELECT DISTINCT kind FROM v_channel_versions WHERE channel = 'messages'"), ["list"]);

    assert_eq!(select("SELECT title FROM v_threads"), ["Bern"]);
    assert_eq!(select("SELECT project FROM v_threads"), [long]);
    assert_eq!(select("SELECT labels FROM v_threads"), [r#"["a"]"#]);
    assert_eq!(select("SELECT pinned + archived FROM v_threads"), ["1"]);
    assert_eq!(select("SELECT checkpoints FROM v_threads"), [records.len().to_string()]);
    assert_eq!(select("SELECT namespace || ' ' || key FROM v_kv"), ["users.ada city"]);
}
