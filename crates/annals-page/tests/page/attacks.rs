//! Attacks on the protocol: requests that two readers could read in two ways, and what else is not a plain request.

use super::sockets::{send, serve};
use super::*;

/// Sends a request of which each `{host}` and `{token}` is filled in.
fn sent(address: std::net::SocketAddr, request: &str) -> String {
    let filled = request.replace("{host}", &address.to_string()).replace("{token}", TOKEN);
    send(address, filled.as_bytes())
}

#[test]
fn a_request_that_is_not_plain_is_refused_with_the_headers_of_every_response() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let own = "Host: {host}\r\nAuthorization: Bearer {token}\r\n";
    let (long, many) = ("a".repeat(40_000), "a: b\r\n".repeat(101));
    for (what, request) in [
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("TLS", "\x16\x03\x01\x02\r\n\r\n".to_owned()),
        ("HTTP/0.9", "GET /\r\n\r\n".to_owned()),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("an absolute target", format!("GET http://{{host}}/ HTTP/1.1\r\n{own}\r\n")),
        ("the target of another host", format!("GET http://evil.example/ HTTP/1.1\r\n{own}\r\n")),
        ("a target without a slash", format!("GET t/trip HTTP/1.1\r\n{own}\r\n")),
        ("an asterisk", format!("OPTIONS * HTTP/1.1\r\n{own}\r\n")),
        ("CONNECT", format!("CONNECT evil.example:80 HTTP/1.1\r\n{own}\r\n")),
        ("a small method", format!("get / HTTP/1.1\r\n{own}\r\n")),
        ("a space in the target", format!("GET /t/ trip HTTP/1.1\r\n{own}\r\n")),
        ("a letter beyond ASCII in the target", format!("GET /\u{e4} HTTP/1.1\r\n{own}\r\n")),
        ("a NUL in the target", format!("GET /\0 HTTP/1.1\r\n{own}\r\n")),
        ("a NUL in a header", format!("GET / HTTP/1.1\r\n{own}X: a\0b\r\n\r\n")),
        ("a control character in a header", format!("GET / HTTP/1.1\r\n{own}X: a\x0bb\r\n\r\n")),
        ("a carriage return in a header", format!("GET / HTTP/1.1\r\n{own}X: a\rb\r\n\r\n")),
        ("a folded header", format!("GET / HTTP/1.1\r\n{own}X: a\r\n b\r\n\r\n")),
        ("a folded first header", "GET / HTTP/1.1\r\n Host: {host}\r\n\r\n".to_owned()),
        ("a header without a colon", format!("GET / HTTP/1.1\r\n{own}X\r\n\r\n")),
        ("a space before the colon", format!("GET / HTTP/1.1\r\n{own}X : a\r\n\r\n")),
        ("a header without a name", format!("GET / HTTP/1.1\r\n{own}: a\r\n\r\n")),
        ("two hosts", format!("GET / HTTP/1.1\r\n{own}Host: {{host}}\r\n\r\n")),
        ("an empty line before the request", format!("\r\nGET / HTTP/1.1\r\n{own}\r\n")),
        ("a bare line feed after the first line", format!("GET / HTTP/1.1\n{own}\r\n")),
        ("a bare line feed after a header", format!("GET / HTTP/1.1\r\n{own}X: a\nY: b\r\n\r\n")),
        ("a bare line feed at the end", format!("GET / HTTP/1.1\r\n{own}\n")),
        ("a length twice", format!("POST / HTTP/1.1\r\n{own}Content-Length: 1\r\nContent-Length: 1\r\n\r\na")),
        ("two lengths", format!("POST / HTTP/1.1\r\n{own}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        ("a list of lengths", format!("POST / HTTP/1.1\r\n{own}Content-Length: 1, 1\r\n\r\na")),
        ("a length with a sign", format!("POST / HTTP/1.1\r\n{own}Content-Length: +1\r\n\r\na")),
        ("a negative length", format!("POST / HTTP/1.1\r\n{own}Content-Length: -1\r\n\r\na")),
        ("a long body", format!("POST / HTTP/1.1\r\n{own}Content-Length: 1048577\r\n\r\n")),
        ("an endless length", format!("POST / HTTP/1.1\r\n{own}Content-Length: {}\r\n\r\n", "9".repeat(30))),
        ("chunks", format!("POST / HTTP/1.1\r\n{own}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        (
            "a length and chunks",
            format!("POST / HTTP/1.1\r\n{own}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "chunks and a length",
            format!("POST / HTTP/1.1\r\n{own}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
        ),
        ("another coding", format!("POST / HTTP/1.1\r\n{own}Transfer-Encoding: gzip\r\n\r\n")),
        ("chunks in HTTP/1.0", format!("POST / HTTP/1.0\r\n{own}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("a long target", format!("GET /{} HTTP/1.1\r\n{own}\r\n", &long[..17_000])),
        ("a long head", format!("GET / HTTP/1.1\r\n{own}X: {long}\r\n\r\n")),
        ("many headers", format!("GET / HTTP/1.1\r\n{own}{many}\r\n")),
        ("no head at all", long.clone()),
    ] {
        let response = sent(address, &request);
        assert!(response.starts_with("HTTP/1.1 400 ") || response.starts_with("HTTP/1.0 400 "), "{what}: {response}");
        assert!(response.contains("\r\nContent-Security-Policy: default-src 'none'"), "{what}: {response}");
        assert!(response.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{what}: {response}");
        assert!(response.contains("\r\nConnection: close\r\n"), "{what}: {response}");
        assert!(!response.contains("Bern") && response.matches("HTTP/1.").count() < 3, "{what}: {response}");
    }
    let plain = sent(address, &format!("GET /.json HTTP/1.1\r\n{own}\r\n"));
    assert!(plain.contains("\"thread\":\"trip\""), "{plain}");
}

#[test]
fn a_connection_has_one_response() {
    let store = Store::memory();
    trip(&store);
    let address = serve(store);
    let get = "GET /.json HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\nAuthorization: Bearer {token}\r\n\r\n";
    let response = sent(address, &get.repeat(50));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert_eq!((response.matches("HTTP/1.1").count(), response.matches("Connection: close").count()), (1, 1));
    let hidden = format!("GET /page.css HTTP/1.1\r\nHost: {{host}}\r\nAuthorization: Bearer x\r\n\r\n{get}");
    let response = sent(address, &hidden);
    assert!(response.starts_with("HTTP/1.1 403 ") && !response.contains("trip"), "{response}");
}

#[test]
fn the_body_of_a_client_without_the_token_is_not_waited_for() {
    use std::io::{Read, Write};
    let address = serve(Store::memory());
    let mut client = std::net::TcpStream::connect(address).unwrap();
    write!(client, "POST / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 403 ") && response.contains("Content-Security-Policy"), "{response}");
}

#[test]
fn a_form_of_one_mebibyte_is_read_whole() {
    let address = serve(Store::memory());
    let own = "Host: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    for more in ["", "Expect: 100-continue\r\n"] {
        let body = "a".repeat(1 << 20);
        let head = format!("POST /t/trip/fork HTTP/1.1\r\n{own}{more}Content-Length: {}\r\n\r\n", body.len());
        let response = sent(address, &(head + &body));
        assert!(response.contains("HTTP/1.1 403 Forbidden\r\n"), "{response}");
        assert!(response.contains("this server only reads"), "{response}");
        assert_eq!(response.starts_with("HTTP/1.1 100 Continue\r\n\r\n"), !more.is_empty(), "{response}");
    }
}
