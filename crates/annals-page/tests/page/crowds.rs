//! Many connections at a time: of clients without the token, slow ones, and those that follow the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

use super::sockets::{send, serve};
use super::*;

/// Connections of clients with the token, as the limit of the server says.
const KNOWN_MAX: usize = 64;
/// Connections of other clients.
const UNKNOWN_MAX: usize = 64;
/// The time for a whole request, after which a connection is closed.
const REQUEST_MAX: Duration = Duration::from_secs(10);

fn get(address: SocketAddr, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
}

fn is_answered(address: SocketAddr) -> bool {
    let response = send(address, get(address, "/.json").as_bytes());
    response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("\"thread\":\"trip\"")
}

/// Opens a connection that follows the log; `None` if all places are taken.
fn follow(address: SocketAddr) -> Option<BufReader<TcpStream>> {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(get(address, "/live").as_bytes()).unwrap();
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.contains(": the log is followed\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("64 connections are open"), "{head}");
            return None;
        }
    }
    Some(reader)
}

#[test]
fn the_owner_is_answered_beside_64_clients_that_send_a_byte_at_a_time() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let mut slow: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    for byte in "GET / HTTP/1.1".bytes() {
        for client in &mut slow {
            // The oldest ones are closed, and come back.
            if client.write_all(&[byte]).is_err() {
                *client = TcpStream::connect(address).unwrap();
            }
        }
        assert!(is_answered(address));
    }
}

#[test]
fn the_owner_is_answered_beside_hundreds_of_connections_and_the_oldest_of_them_are_closed() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let (mut crowd, mut opened): (Vec<TcpStream>, Vec<Duration>) = Default::default();
    for _ in 0..20 {
        opened.extend([SystemClock.elapsed(); 20]);
        crowd.extend((0..20).map(|_| TcpStream::connect(address).unwrap()));
        assert!(is_answered(address));
    }
    // All but the newest ones are closed, some of them before anything was sent.
    for client in crowd.iter_mut().rev().skip(UNKNOWN_MAX) {
        let mut read = Vec::new();
        _ = client.read_to_end(&mut read);
        assert!(read.is_empty(), "a client without a request gets no answer");
    }
    for (newest, opened) in crowd.iter().zip(opened).rev().take(UNKNOWN_MAX / 2) {
        newest.set_nonblocking(true).unwrap();
        let read = (&*newest).read(&mut [0]);
        let is_open = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(is_open || SystemClock.elapsed() - opened >= REQUEST_MAX, "the newest ones are open");
    }
}

#[test]
fn requests_without_the_token_take_no_place_of_those_with_it() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let mut followers: Vec<_> = (0..KNOWN_MAX).map(|_| follow(address).expect("a place is free")).collect();
    assert!(follow(address).is_none(), "no further place");
    for _ in 0..200 {
        let refused = send(address, format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    }
    let crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Those that follow the log are still served.
    for follower in &mut followers {
        let mut line = String::new();
        while line.trim_end() != ": nothing new" {
            line.clear();
            assert!(follower.read_line(&mut line).unwrap() > 0, "a follower was closed");
        }
    }
    // A client that leaves is noticed.
    drop(followers);
    while !is_answered(address) {
        std::thread::yield_now();
    }
    drop(crowd);
}
