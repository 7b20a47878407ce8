//! `annals mcp` from outside: pipes, exit codes, and several processes on one store.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout};

use super::verbs::trip;
use super::*;

/// A server with the pipes of its client.
struct McpClient {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl McpClient {
    fn start(bench: &Bench, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.arg("mcp").args(arguments).current_dir(bench.folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, input, output, id: 0 };
        let info = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let result = client.request("initialize", info);
        assert_eq!(
            (&result["protocolVersion"], &result["serverInfo"]["name"]),
            (&json!("2025-06-18"), &json!("annals"))
        );
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Json) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Json) -> Json {
        self.id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params }));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let response: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(response["id"], json!(self.id), "{response}");
        if response.get("error").is_some() { response["error"].clone() } else { response["result"].clone() }
    }

    /// Calls a tool, and returns its text.
    fn call(&mut self, name: &str, arguments: Json) -> String {
        let result = self.request("tools/call", json!({ "name": name, "arguments": arguments }));
        assert_eq!(result["isError"], false, "{name}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes the input, and returns the exit code.
    fn end(mut self) -> i32 {
        self.input = None;
        self.child.wait().unwrap().code().unwrap()
    }
}

#[test]
fn agents_read_a_store_that_others_write() {
    let bench = trip();
    let (mut one, mut two) = (McpClient::start(&bench, &["store.db"]), McpClient::start(&bench, &["store.db"]));
    let tools = one.request("tools/list", json!({}));
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["search", "threads", "thread", "show", "diff", "blame", "log", "what_fixed"]);
    bench.text(&["update", "trip", "--say", "A zeppelin instead?"]);
    for client in [&mut one, &mut two] {
        let found = client.call("search", json!({ "query": "zeppelin" }));
        assert!(found.contains("A **zeppelin** instead?"), "{found}");
        // The point of a hit is an argument of another call.
        let point = found.lines().find(|line| line.starts_with("trip@")).unwrap().split(' ').next().unwrap();
        assert!(client.call("diff", json!({ "before": point })).contains("A zeppelin instead?"));
        assert!(client.call("thread", json!({ "point": point })).contains("A zeppelin instead?"));
    }
    let refused = one.request("tools/call", json!({ "name": "note", "arguments": { "thread": "trip", "text": "x" } }));
    assert!(refused["message"].as_str().unwrap().contains("--allow-write"), "{refused}");
    assert_eq!((one.end(), two.end()), (0, 0));
}

#[test]
fn a_server_that_may_write_adds_and_changes_nothing() {
    let bench = trip();
    let before = bench.json(&["show", "trip", "--messages", "100"]);
    let mut client = McpClient::start(&bench, &["--store", "store.db", "--allow-write"]);
    assert!(client.call("note", json!({ "thread": "trip", "text": "Trains are late" })).contains("trip@"));
    assert!(client.call("fork", json!({ "point": "trip~1", "name": "by-air" })).contains("by-air@"));
    assert!(client.call("append", json!({ "thread": "by-air", "text": "A kite" })).contains("by-air@"));
    assert_eq!(client.end(), 0);
    assert_eq!(bench.json(&["show", "trip", "--messages", "100"])["messages"], before["messages"]);
    assert_eq!(bench.json(&["show", "trip", "notes"])["value"], json!(["Trains are late"]));
    assert_eq!(bench.json(&["search", "kite"])["hits"][0]["thread"], "by-air");
    assert_eq!(bench.json(&["operations", "by-air"])["operations"].as_array().unwrap().len(), 2);
}

#[test]
fn a_client_that_is_gone_and_a_store_that_is_not_there() {
    let bench = trip();
    let mut client = McpClient::start(&bench, &["store.db"]);
    drop(client.output);
    writeln!(client.input.as_mut().unwrap(), "{}", json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" })).unwrap();
    // The write of the response fails, which ends the server as the end of its input does.
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
    let absent = run(bench.folder.path(), &["mcp", "absent.db"]);
    assert_eq!((code(&absent), absent.stdout.len()), (3, 0));
}
