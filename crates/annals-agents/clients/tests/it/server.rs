//! A server on the loopback address with the replies of a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The reply to one request.
pub enum Reply {
    /// A status and a JSON text.
    Json(u16, &'static str),
    /// The events of a whole stream.
    Events(&'static [&'static str]),
    /// The events of a stream after which the connection breaks.
    Broken(&'static [&'static str]),
}

/// A server that gives its replies one after another, and refuses connections after the last one.
pub struct Server {
    /// The address with the scheme.
    pub address: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// Starts a server.
    pub fn start(replies: impl IntoIterator<Item = Reply, IntoIter: Send + 'static>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let (seen, replies) = (Arc::clone(&bodies), replies.into_iter());
        std::thread::spawn(move || {
            for reply in replies {
                let (mut connection, _) = listener.accept().unwrap();
                seen.lock().unwrap().push(body_of(&connection));
                // A client that is gone does not read its reply.
                _ = send(&mut connection, &reply);
            }
        });
        Self { address, bodies }
    }

    /// Returns the bodies of the requests so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }
}

/// Reads a request and returns its body.
fn body_of(connection: &TcpStream) -> Value {
    let mut reader = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 0 && line != "\r\n" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn send(connection: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
    let (status, kind, framing) = match reply {
        Reply::Json(status, text) => (*status, "application/json", format!("content-length: {}", text.len())),
        _ => (200, "text/event-stream", "transfer-encoding: chunked".to_owned()),
    };
    write!(connection, "HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\nconnection: close\r\n{framing}\r\n\r\n")?;
    match reply {
        Reply::Json(_, text) => connection.write_all(text.as_bytes()),
        Reply::Events(events) => {
            events.iter().try_for_each(|event| send_event(connection, event))?;
            connection.write_all(b"0\r\n\r\n")
        }
        Reply::Broken(events) => events.iter().try_for_each(|event| send_event(connection, event)),
    }
}

fn send_event(connection: &mut TcpStream, event: &str) -> std::io::Result<()> {
    let event = format!("data: {event}\n\n");
    write!(connection, "{:x}\r\n{event}\r\n", event.len())
}
