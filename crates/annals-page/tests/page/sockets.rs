//! The server on a socket: whole requests, broken ones, and live events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use annals_page::{PageBody, PageServer};

use super::*;

/// Longer than any wait of a test that passes.
const GUARD: Duration = Duration::from_secs(300);

pub(super) fn serve(store: Store) -> SocketAddr {
    let server = PageServer::bind(store, 0, PageOptions::new().token(TOKEN)).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.run());
    address
}

/// Sends bytes and returns all that comes back.
pub(super) fn send(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(GUARD)).unwrap();
    client.write_all(bytes).unwrap();
    _ = client.shutdown(std::net::Shutdown::Write);
    let mut response = String::new();
    _ = client.read_to_string(&mut response);
    response
}

#[test]
fn requests_come_over_a_socket() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let head = format!("Host: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let response = send(address, format!("GET /t/trip/talk HTTP/1.1\r\n{head}").as_bytes());
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("A hotel in Bern"), "{response}");
    let only_head = send(address, format!("HEAD /t/trip/talk HTTP/1.1\r\n{head}").as_bytes());
    assert!(only_head.starts_with("HTTP/1.1 200 OK\r\n") && only_head.ends_with("\r\n\r\n"), "{only_head}");
    assert_eq!(send(address, b"GET / HT"), "", "a client that leaves gets nothing");
    let again = send(address, format!("GET /.json HTTP/1.1\r\n{head}").as_bytes());
    assert!(again.contains("\"thread\":\"trip\""));
}

#[test]
fn new_checkpoints_are_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let writer = Store::open(&path).unwrap();
    let thread = trip(&writer);
    let address = serve(Store::open_with(&path, OpenOptions::new().read_only(true)).unwrap());
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(GUARD)).unwrap();
    write!(client, "GET /live?thread=trip HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(client).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line == ": the log is followed"));
    writer.thread("another").unwrap().set("n", 1).unwrap();
    let id = thread.append("messages", [Message::human("news")]).unwrap();
    let data = lines.by_ref().find_map(|line| line.strip_prefix("data: ").map(ToOwned::to_owned)).unwrap();
    let data: Json = serde_json::from_str(&data).unwrap();
    assert_eq!((data["thread"].as_str(), data["checkpoint"].as_str()), (Some("trip"), Some(&*id.to_string())));
}

#[test]
fn events_without_a_socket_wait_and_say_so() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let PageBody::Live(mut events) = get(&page, "/live").body else { panic!("not a stream") };
    assert!(events.next(Duration::ZERO).unwrap().starts_with("retry: "));
    assert_eq!(events.next(Duration::ZERO).unwrap(), ": nothing new\n\n");
    store.thread("trip").unwrap().set("n", 1).unwrap();
    let event = events.next(Duration::ZERO).unwrap();
    assert!(event.starts_with("id: ") && event.contains("\"new\":1"), "{event}");
    let position = event.split(['\n', ' ']).nth(1).unwrap();
    store.thread("trip").unwrap().set("n", 2).unwrap();
    let again = page.handle(&request("/live").header("last-event-id", position));
    let PageBody::Live(mut again) = again.body else { panic!("not a stream") };
    _ = again.next(Duration::ZERO).unwrap();
    assert!(again.next(Duration::ZERO).unwrap().contains("\"new\":1"), "a client that comes back misses nothing");
}

#[test]
fn changes_without_a_checkpoint_are_events() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Store::open(folder.path().join("store.db")).unwrap();
    let other = writer.thread("other").unwrap();
    other.set("n", 1).unwrap();
    trip(&writer);
    let page = page_of(&Store::open(folder.path().join("store.db")).unwrap());
    let [mut all, mut one] = ["/live", "/live?thread=trip"].map(|target| {
        let PageBody::Live(mut events) = get(&page, target).body else { panic!("not a stream") };
        _ = events.next(Duration::ZERO).unwrap();
        events
    });
    assert_eq!(all.next(Duration::ZERO).unwrap(), ": nothing new\n\n");
    other.facts().title("another one").save().unwrap();
    let event = all.next(GUARD).unwrap();
    assert!(event.contains("\"new\":0") && event.contains("\"thread\":null"), "{event}");
    assert_eq!(one.next(Duration::from_millis(100)).unwrap(), ": nothing new\n\n", "a change of another thread");
    writer.thread("trip").unwrap().facts().title("renamed").save().unwrap();
    let event = one.next(GUARD).unwrap();
    assert!(event.contains("\"new\":0") && event.contains("\"thread\":\"trip\""), "{event}");
    assert_eq!(one.next(Duration::from_millis(100)).unwrap(), ": nothing new\n\n", "a change is one event");
}

#[test]
fn a_stopped_server_returns_and_leaves_its_port() {
    let store = Store::memory();
    trip(&store);
    let server = PageServer::bind(store, 0, PageOptions::new().token(TOKEN)).unwrap();
    let address = server.address();
    let get =
        |target: &str| format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.run());
        let mut follower = TcpStream::connect(address).unwrap();
        follower.write_all(get("/live").as_bytes()).unwrap();
        let mut lines = BufReader::new(follower).lines();
        assert!(lines.by_ref().map(Result::unwrap).any(|line| line == ": the log is followed"));
        assert!(send(address, get("/").as_bytes()).starts_with("HTTP/1.1 200 OK\r\n"));
        server.stop();
        running.join().unwrap().unwrap();
        assert_eq!(lines.find_map(|line| line.ok().filter(|line| !line.is_empty())), None, "the follower is left");
    });
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}
