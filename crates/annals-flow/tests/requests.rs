//! The requests of nodes, to a server of this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_flow::{Flow, FlowEnd, FlowInput};
use annals_graph::prelude::{Store, Value};
use annals_graph::task::RunControl;
use serde_json::{Value as Json, json};

/// Answers one request.
fn answer(stream: &TcpStream, failures: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        head.push(std::mem::take(&mut line).trim_end().to_owned());
    }
    let Some(first) = head.first() else { return };
    let header = |name: &str| {
        let found =
            head.iter().find_map(|line| line.split_once(": ").filter(|(own, _)| own.eq_ignore_ascii_case(name)));
        found.map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (method, path) = (first.split(' ').next().unwrap(), first.split(' ').nth(1).unwrap());
    let mut stream = stream;
    let mut reply = |status: &str, more: &str, text: &str| {
        let length = text.len();
        _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n{text}");
    };
    match path {
        "/json" => reply("200 OK", "", "{\"n\": 3}"),
        "/lines" => reply("200 OK", "", "a\nb\n"),
        "/moved" => reply("302 Found", "Location: /json\r\n", ""),
        "/round" => reply("302 Found", "Location: /round\r\n", ""),
        "/missing" => reply("404 Not Found", "", "there is no such page"),
        "/slow" => std::thread::sleep(Duration::from_secs(5)),
        "/flaky" if failures.fetch_add(1, Ordering::Relaxed) < 2 => reply("503 Busy", "", "later"),
        "/flaky" => reply("200 OK", "", "now"),
        "/echo" => {
            let text = String::from_utf8(body).unwrap();
            let seen = json!({ "method": method, "body": text, "type": header("content-type"), "own": header("x-own"),
                "key": header("idempotency-key") });
            reply("201 Created", "", &seen.to_string());
        }
        _ => {
            // A body without an end: the client must stop reading.
            _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            while stream.write_all(&[b'x'; 65_536]).is_ok() {}
        }
    }
}

/// Starts the server, and returns the begin of its addresses.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let failures = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, failures) = (stream.unwrap(), Arc::clone(&failures));
            std::thread::spawn(move || answer(&stream, &failures));
        }
    });
    format!("http://{address}")
}

const CHANNELS: &str = "channels = { base = 'last', got = 'last', code = 'last', sent = 'last' }\n";

/// Runs a workflow of one node against the server.
fn run(base: &str, node: &str) -> Result<Json, String> {
    let text = format!("{CHANNELS}input = {{ base = '{base}', sent = {{ a = 1 }} }}\n[nodes.a]\n{node}\n");
    let flow = Flow::parse("a.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let thread = Store::memory().thread("t").unwrap();
    match flow.run(&thread, FlowInput::new(), &mut |_| ()) {
        Ok(FlowEnd::Done { state }) => Ok(Value::Map(state).to_json()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_response_goes_into_a_channel() {
    let base = server();
    let got = |node: &str| run(&base, node).unwrap()["got"].clone();
    assert_eq!(got("http = \"= base + '/json'\"\ninto = 'got'\nformat = 'json'"), json!({ "n": 3 }));
    assert_eq!(got("http = \"= base + '/moved'\"\ninto = 'got'\nformat = 'json'"), json!({ "n": 3 }));
    assert_eq!(got("http = \"= base + '/lines'\"\ninto = 'got'\nformat = 'lines'"), json!(["a", "b"]));
    assert_eq!(got("http = \"= base + '/json'\"\nmethod = 'HEAD'\ninto = 'got'"), "");

    let sent =
        "http = \"= base + '/echo'\"\nbody = '= sent'\nheaders = { X-Own = '= base' }\ninto = 'got'\nformat = 'json'";
    let echo = got(sent);
    assert_eq!((&echo["method"], &echo["body"]), (&json!("POST"), &json!("{\"a\":1}")));
    assert_eq!((&echo["type"], &echo["own"]), (&json!("application/json"), &json!(base)));
    assert_eq!(echo["key"].as_str().map(str::len), Some(36), "{echo}");
    let text = "http = \"= base + '/echo'\"\nmethod = 'PUT'\nbody = 'hello'\ninto = 'got'\nformat = 'json'";
    let echo = got(text);
    assert_eq!((&echo["method"], &echo["body"]), (&json!("PUT"), &json!("hello")));
    assert!(echo["type"].as_str().unwrap().starts_with("text/plain"), "{echo}");
}

#[test]
fn a_status_is_a_failure_or_a_value() {
    let base = server();
    let error = run(&base, "http = \"= base + '/missing'\"\ninto = 'got'").unwrap_err();
    assert!(error.contains("has the status 404: there is no such page"), "{error}");
    let state = run(&base, "http = \"= base + '/missing'\"\ninto = 'got'\nstatus = 'code'").unwrap();
    assert_eq!((&state["code"], &state["got"]), (&json!(404), &json!("there is no such page")));
    let state = run(&base, "http = \"= base + '/flaky'\"\ninto = 'got'\nretry = { attempts = 3 }").unwrap();
    assert_eq!(state["got"], "now");
}

#[test]
fn a_request_has_a_timeout_and_a_size() {
    let base = server();
    for (node, message) in [
        ("http = \"= base + '/slow'\"\ntimeout = '200ms'", "takes longer than the timeout of 200ms"),
        ("http = \"= base + '/endless'\"\ninto = 'got'", "has more than 8388608 bytes"),
        ("http = \"= base + '/round'\"", "cannot be requested"),
        ("http = 'http://127.0.0.1:1/'", "cannot be requested"),
        ("http = \"= base + '/json'\"\nheaders = { A = \"b\\nc\" }", "cannot be requested"),
        ("http = \"= base + '/lines'\"\ninto = 'got'\nformat = 'json'", "is not JSON"),
    ] {
        let error = run(&base, node).unwrap_err();
        assert!(error.contains(message), "{node}: {error}");
    }
}

#[test]
fn a_cancelled_run_does_not_wait_for_a_response() {
    let text = format!("{CHANNELS}[nodes.a]\nhttp = '{}/slow'\n", server());
    let flow = Flow::parse("a.toml", &text).unwrap();
    let control = RunControl::new();
    let own = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        own.cancel("enough");
    });
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let thread = Store::memory().thread("t").unwrap();
        sender.send(flow.run(&thread, FlowInput::new().control(&control), &mut |_| ()).is_err())
    });
    assert!(ended.recv_timeout(Duration::from_secs(4)).unwrap(), "the server takes five seconds");
}
