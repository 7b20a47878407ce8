//! The requests of nodes, to a server of this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use annals_flow::{Flow, FlowEnd, FlowInput};
use annals_graph::prelude::{Store, Value};
use annals_graph::task::RunControl;
use serde_json::{Value as Json, json};

/// The requests that a server has counted.
#[derive(Default)]
struct Requests {
    failures: AtomicUsize,
    silent: AtomicUsize,
}

/// Answers one request.
fn answer(stream: &TcpStream, Requests { failures, silent }: &Requests) {
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
    // Redirects to another origin, whose address follows.
    if let Some((status, to)) = path.strip_prefix("/away/").and_then(|rest| rest.split_once('/')) {
        reply(&format!("{status} Elsewhere"), &format!("Location: http://{to}\r\n"), "");
        return;
    }
    match path {
        "/seen" => {
            let seen = json!({ "method": method, "body": String::from_utf8(body).unwrap(), "head": head[1..] });
            reply("200 OK", "", &seen.to_string());
        }
        "/here" => reply("302 Found", "Location: seen\r\n", ""),
        "/again" => reply("307 Temporary Redirect", "Location: /seen\r\n", ""),
        "/json" => reply("200 OK", "", "{\"n\": 3}"),
        "/lines" => reply("200 OK", "", "a\nb\n"),
        "/moved" => reply("302 Found", "Location: /json\r\n", ""),
        "/round" => reply("302 Found", "Location: /round\r\n", ""),
        "/missing" => reply("404 Not Found", "", "there is no such page"),
        // No answer until the client is gone.
        "/silent" => {
            silent.fetch_add(1, Ordering::SeqCst);
            _ = reader.read_to_end(&mut Vec::new());
        }
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
    server_with(&Arc::default())
}

fn server_with(requests: &Arc<Requests>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::clone(requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, requests) = (stream.unwrap(), Arc::clone(&requests));
            std::thread::spawn(move || answer(&stream, &requests));
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
        ("http = \"= base + '/silent'\"\ntimeout = '200ms'", "takes longer than the timeout of 200ms"),
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
    let requests = Arc::<Requests>::default();
    let text = format!("{CHANNELS}[nodes.a]\nhttp = '{}/silent'\n", server_with(&requests));
    let flow = Flow::parse("a.toml", &text).unwrap();
    let control = RunControl::new();
    let own = control.clone();
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let thread = Store::memory().thread("t").unwrap();
        sender.send(flow.run(&thread, FlowInput::new().control(&control), &mut |_| ()).is_err())
    });
    while requests.silent.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    own.cancel("enough");
    assert!(ended.recv_timeout(Duration::from_secs(300)).unwrap(), "the server does not answer");
}

/// Returns the names of the headers that a server has seen, in small letters.
fn names(seen: &Json) -> Vec<String> {
    let lines = seen["head"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    lines.map(|line| line.split(':').next().unwrap().to_ascii_lowercase()).collect()
}

#[test]
fn a_redirect_takes_headers_along_within_one_origin_only() {
    let (base, other) = (server(), server());
    let got = |path: &str, more: &str| {
        let headers = "headers = { X-Api-Key = 'secret', Authorization = 'secret', Cookie = 'secret' }";
        let node = format!("http = \"= base + '{path}'\"\n{headers}\ninto = 'got'\nformat = 'json'\n{more}");
        run(&base, &node).map(|state| state["got"].clone())
    };
    let here = got("/here", "").unwrap();
    for name in ["x-api-key", "authorization", "cookie"] {
        assert!(names(&here).contains(&name.to_owned()), "{here}");
    }
    let (own, foreign) = (base.trim_start_matches("http://"), other.trim_start_matches("http://"));
    let post = "method = 'POST'\nbody = { a = 1 }";
    for status in [301, 302, 303] {
        let here = got("/here", post).unwrap();
        assert_eq!((&here["method"], &here["body"]), (&json!("GET"), &json!("")));
        let found = names(&here);
        assert!(found.contains(&"x-api-key".to_owned()), "{here}");
        for name in ["content-type", "content-length", "transfer-encoding", "idempotency-key"] {
            assert!(!found.contains(&name.to_owned()), "{here}");
        }
        for (more, path) in [
            ("", format!("/away/{status}/{foreign}/seen")),
            (post, format!("/away/{status}/{foreign}/seen")),
            // Back at the first origin there are none either.
            (post, format!("/away/{status}/{foreign}/away/{status}/{own}/seen")),
        ] {
            let away = got(&path, more).unwrap();
            assert_eq!((&away["method"], &away["body"]), (&json!("GET"), &json!("")), "{path}");
            for name in names(&away) {
                assert!(["host", "user-agent", "accept"].contains(&name.as_str()), "{path}: {away}");
            }
        }
    }
    for status in [307, 308] {
        let away = got(&format!("/away/{status}/{foreign}/seen"), "").unwrap();
        assert!(!away.to_string().contains("secret"), "{away}");
        let error = got(&format!("/away/{status}/{foreign}/seen"), post).unwrap_err();
        assert!(error.contains("asks to send the POST again"), "{error}");
    }
    let error = got("/again", post).unwrap_err();
    assert!(error.contains("asks to send the POST again"), "{error}");
    assert_eq!(got("/again", "").unwrap()["method"], "GET");
}

/// The name of the test that runs itself as a process of its own, with variables of a proxy.
const PROXY_TEST: &str = "variables_of_a_proxy_are_not_obeyed";

#[test]
#[allow(clippy::disallowed_methods, reason = "the process of its own is told so by a variable")]
fn variables_of_a_proxy_are_not_obeyed() {
    if std::env::var_os("ANNALS_PROXY_TEST").is_some() {
        let node = "http = \"= base + '/lines'\"\ninto = 'got'\nformat = 'lines'";
        assert_eq!(run(&server(), node).unwrap()["got"], json!(["a", "b"]));
        return;
    }
    let proxy = server();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", PROXY_TEST]).env("ANNALS_PROXY_TEST", "1").env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"] {
        child.env(name, format!("{proxy}/"));
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
