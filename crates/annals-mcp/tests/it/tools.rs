//! Each tool, called by the client.

use annals::base::{CheckpointId, Encoded};
use annals::prelude::*;
use annals::store::Source;
use annals::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, Parent, Payload};
use annals_mcp::McpOptions;
use serde_json::json;

use crate::client::PipedClient;

/// Returns the text between the marks.
fn content(reply: &str) -> &str {
    let (_, rest) = reply.split_once("<untrusted-history>\n").expect(reply);
    rest.split_once("\n</untrusted-history>").expect(reply).0
}

/// Returns the value of an argument that a reply names for the next call.
fn next<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = reply.split_once("more: call again with ")?;
    let value = rest.strip_prefix(name)?.strip_prefix('=')?;
    Some(value.split(' ').next()?.trim_matches('"'))
}

/// A store with a conversation in which an error was fixed, and a graph-like thread with values.
fn store() -> Store {
    let store = Store::memory();
    let build = store.thread("build").unwrap();
    build.append("messages", [Message::human("Build the cart"), Message::ai("Building").with_id("m2")]).unwrap();
    let error = "error[E0502]: cannot borrow `cart` as mutable at src/main.rs:17";
    build.append("messages", [Message::tool(error, "call-1")]).unwrap();
    build.append("messages", [Message::ai("I clone the items first"), Message::tool("test result: ok", "c2")]).unwrap();
    build.facts().title("The cart").project("shop").save().unwrap();
    let plan = store.thread("plan").unwrap();
    plan.set("city", "Bern").unwrap();
    plan.set("city", "Basel").unwrap();
    plan.put("files", "a.rs", "fn a() {}").unwrap();
    store
}

#[test]
fn tools_are_listed_with_their_fields() {
    let (reader, writer) = (
        PipedClient::start(&store(), McpOptions::new()),
        PipedClient::start(&store(), McpOptions::new().allow_write(true)),
    );
    let names = |client: &PipedClient| client.tools().iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&reader), ["search", "threads", "thread", "show", "diff", "blame", "log", "what_fixed"]);
    assert_eq!(names(&writer)[8..], ["append", "fork", "note"]);
    for tool in writer.tools() {
        let hints = tool.annotations.clone().unwrap();
        let writes = ["append", "fork", "note"].contains(&&*tool.name);
        assert_eq!((hints.read_only_hint, hints.destructive_hint), (Some(!writes), Some(false)), "{}", tool.name);
        assert!(writes || tool.description.unwrap().contains("not instructions"), "{}", tool.name);
        assert_eq!(tool.input_schema["additionalProperties"], false);
        assert!(tool.input_schema["properties"].as_object().unwrap().len() > 1);
    }
    assert!(reader.instructions().contains("untrusted-history"));
    reader.end();
    writer.end();
}

#[test]
fn search_pages_and_its_points_open() {
    let store = store();
    for n in 0..30 {
        store.thread(format!("chat-{n}")).unwrap().append("messages", [Message::ai(format!("hotel {n}"))]).unwrap();
    }
    let client = PipedClient::start(&store, McpOptions::new());
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    loop {
        let reply = client.call("search", json!({ "query": "hotel", "limit": 7, "after": after }));
        seen.extend(content(&reply).lines().map(|line| line.split_once(": ").unwrap().1.to_owned()));
        match next(&reply, "after") {
            Some(cursor) => after = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, (0..30).rev().map(|n| format!("**hotel** {n}")).collect::<Vec<_>>());
    let reply = client.call("search", json!({ "query": "clone items", "role": "ai" }));
    let row = content(&reply).lines().next().unwrap();
    let (point, rest) = row.split_once(' ').unwrap();
    assert!(rest.starts_with("messages[3] ai "), "{row}");
    let shown = client.call("show", json!({ "point": point, "channel": "messages", "position": 3 }));
    assert!(shown.contains("I clone the items first"), "{shown}");
    assert!(client.call("search", json!({ "query": "nothing of this" })).starts_with("Nothing found"));
    client.end();
}

#[test]
fn checkpoints_that_share_their_time_are_told_apart() {
    let store = Store::memory();
    let thread = store.thread("copied").unwrap();
    let mut bytes = *store.mint_checkpoint(0, None).as_bytes();
    let ids = [1, 2].map(|last| {
        bytes[15] = last;
        CheckpointId::from_bytes(bytes)
    });
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
    for (n, id) in ids.iter().enumerate() {
        let parent = n.checked_sub(1).map(|before| Parent::Local(ids[before]));
        let mut new = NewCheckpoint::new(*id, parent, n as i64, Source::Update, store.now());
        let value = ChangeValue::Value(Data::New(Payload::from(Encoded::encode(&format!("hotel {n}")).unwrap())));
        new.changes.push(Change::new("city", n as u64 + 1, value));
        batch.checkpoints.push(new);
    }
    store.commit(&batch).unwrap();
    let client = PipedClient::start(&store, McpOptions::new());
    let reply = client.call("search", json!({ "query": "hotel" }));
    let rows: Vec<&str> = content(&reply).lines().collect();
    assert_eq!(rows.len(), 2, "{reply}");
    for row in rows {
        let (point, text) = (row.split(' ').next().unwrap(), row.split_once("**hotel** ").unwrap().1);
        let shown = client.call("show", json!({ "point": point, "channel": "city" }));
        assert!(shown.contains(&format!("hotel {text}")), "{row}: {shown}");
    }
    client.end();
}

#[test]
fn recent_work_of_a_project() {
    let store = store();
    let client = PipedClient::start(&store, McpOptions::new());
    let reply = client.call("threads", json!({ "project": "shop" }));
    let row = content(&reply);
    assert!(row.starts_with("build (done, project shop, ") && row.ends_with(": The cart"), "{row}");
    let first = client.call("threads", json!({ "limit": 1 }));
    let second = client.call("threads", json!({ "limit": 1, "after": next(&first, "after") }));
    assert_ne!(content(&first), content(&second));
    assert_eq!(next(&second, "after"), None);
    // Another process, or another handle of this one, has written: the server follows.
    store.thread("newest").unwrap().append("messages", [Message::human("What now?")]).unwrap();
    let reply = client.call("threads", json!({}));
    assert!(content(&reply).lines().next().unwrap().ends_with(": What now?"), "{reply}");
    client.end();
}

#[test]
fn a_long_conversation_is_read_backwards() {
    let store = Store::memory();
    let long = store.thread("long").unwrap();
    long.append("messages", (0..50).map(|n| Message::human(format!("number {n} {}", "x".repeat(500))))).unwrap();
    let client = PipedClient::start(&store, McpOptions::new());
    let (mut numbers, mut before) = (Vec::new(), None::<u64>);
    loop {
        let reply = client.call("thread", json!({ "point": "long", "before": before }));
        assert!(reply.chars().count() < 9_000, "{}", reply.chars().count());
        let page = content(&reply).lines().map(|row| row.split(' ').nth(3).unwrap().parse::<u64>().unwrap());
        numbers.splice(0..0, page.collect::<Vec<_>>());
        match next(&reply, "before") {
            Some(position) => before = Some(position.parse().unwrap()),
            None => break,
        }
    }
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    client.end();
}

#[test]
fn states_differences_and_writers() {
    let client = PipedClient::start(&store(), McpOptions::new());
    let state = client.call("show", json!({ "point": "plan" }));
    assert!(content(&state).contains("city: \"Basel\"") && state.contains("step 2"), "{state}");
    let entry = client.call("show", json!({ "point": "plan", "channel": "files", "key": "a.rs" }));
    assert_eq!(content(&entry), "fn a() {}");
    assert_eq!(content(&client.call("show", json!({ "point": "plan~2", "channel": "city" }))), "Bern");
    let changed = client.call("diff", json!({ "before": "plan~2", "after": "plan~1" }));
    assert_eq!(content(&changed), "city: \"Bern\" -> \"Basel\"\n");
    assert!(content(&client.call("diff", json!({ "before": "plan~2" }))).starts_with("city: added"));
    let writers = client.call("blame", json!({ "point": "plan" }));
    assert!(content(&writers).contains("step 1, update"), "{writers}");
    let item = client.call("blame", json!({ "point": "build", "channel": "messages", "position": 2 }));
    assert!(content(&item).starts_with("messages[2]: build@") && content(&item).contains("step 1"), "{item}");
    client.end();
}

#[test]
fn a_log_pages_and_finds_a_text() {
    let client = PipedClient::start(&store(), McpOptions::new());
    let first = client.call("log", json!({ "thread": "plan", "limit": 2 }));
    assert_eq!(content(&first).lines().count(), 2);
    assert!(content(&first).lines().next().unwrap().ends_with(": changed files"), "{first}");
    let rest = client.call("log", json!({ "thread": "plan", "before": next(&first, "before").unwrap() }));
    assert_eq!((content(&rest).lines().count(), next(&rest, "before")), (1, None));
    let found = client.call("log", json!({ "thread": "build", "text": "clone" }));
    assert!(content(&found).starts_with("+ messages[3]: build@"), "{found}");
    client.end();
}

#[test]
fn an_error_is_found_though_its_numbers_differ() {
    let store = store();
    let client = PipedClient::start(&store, McpOptions::new());
    let error = "error[E0502]: cannot borrow `cart` as mutable at src/shop.rs:99";
    let reply = client.call("what_fixed", json!({ "error": error }));
    let rows: Vec<&str> = content(&reply).lines().collect();
    assert!(rows[0].starts_with("== build@") && rows[1].starts_with("[2] tool: "), "{reply}");
    assert_eq!(rows[2..], ["[3] ai: I clone the items first", "[4] tool: test result: ok"]);
    let unknown = client.call("what_fixed", json!({ "error": "segmentation fault" }));
    assert!(unknown.starts_with("This error is in no thread"), "{unknown}");
    client.end();
}

#[test]
fn writes_add_and_refuse() {
    let store = store();
    let client = PipedClient::start(&store, McpOptions::new().allow_write(true));
    let before = store.point("build").unwrap().id();
    client.call("fork", json!({ "point": "build~1", "name": "build-2" }));
    client.call("append", json!({ "thread": "build-2", "text": "Another way", "role": "human" }));
    client.call("note", json!({ "thread": "plan", "text": "Trains are late" }));
    assert_eq!(store.point("build").unwrap().id(), before, "the original stays");
    let last = store.point("build-2").unwrap().tail("messages", 1).unwrap();
    assert_eq!(last[0].get("content").and_then(|text| text.as_str().map(str::to_owned)), Some("Another way".into()));
    assert_eq!(store.point("plan").unwrap().get("notes").unwrap().unwrap().to_json(), json!(["Trains are late"]));
    for (tool, arguments, code) in [
        ("fork", json!({ "point": "build", "name": "build-2" }), "THREAD_EXISTS"),
        ("fork", json!({ "point": "nobody", "name": "x" }), "THREAD_NOT_FOUND"),
        ("append", json!({ "thread": "nobody", "text": "x" }), "NOT_FOUND"),
        ("append", json!({ "thread": "plan", "text": "x", "role": "tool" }), "WRONG_TYPE"),
        ("note", json!({ "thread": "buil", "text": "x" }), "NOT_FOUND"),
    ] {
        assert_eq!(client.refusal(tool, arguments)["code"], code, "{tool}");
    }
    client.call("append", json!({ "thread": "new", "text": "x", "create": true }));
    assert!(store.point("new").is_ok());
    client.end();
}
