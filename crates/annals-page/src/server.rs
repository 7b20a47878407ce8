//! The server: a socket of the loopback address, a thread for each connection, one request for each connection.
//!
//! *Absent:* encryption, pipelining, and any address but the loopback.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals::store::Store;

use crate::failure::PageError;
use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, IDLE_MAX, LIVE_IDLE_MAX};
use crate::page::{Page, PageOptions};
use crate::request::{PageBody, PageRequest, PageResponse};

/// A server of pages on the loopback address.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals_page::{PageOptions, PageServer};
/// use std::io::{Read, Write};
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory();
/// store.thread("trip")?.append("messages", [Message::human("A hotel in Bern")])?;
/// let server = PageServer::bind(store, 0, PageOptions::new())?;
/// let (address, link) = (server.address(), server.link());
/// assert!(link.starts_with(&format!("http://{address}/?token=")));
/// std::thread::spawn(move || server.run());
///
/// let mut client = std::net::TcpStream::connect(address)?;
/// let token = link.split_once('=').unwrap().1;
/// write!(client, "GET /.json HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n")?;
/// let mut response = String::new();
/// client.read_to_string(&mut response)?;
/// assert!(response.starts_with("HTTP/1.1 200 ") && response.contains(r#""thread":"trip""#), "{response}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    page: Arc<Page>,
}

impl PageServer {
    /// Opens a port of the loopback address; 0 stands for any free one.
    ///
    /// # Errors
    /// [`PageError::Bind`]; [`PageError::Random`].
    pub fn bind(store: Store, port: u16, options: PageOptions) -> Result<Self, PageError> {
        let failed = |source| PageError::Bind { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        debug_assert!(address.ip().is_loopback(), "the pages are for this machine");
        let page = Arc::new(Page::new(store, options.address(address))?);
        Ok(Self { listener, address, page })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the link to the first screen, with the token.
    pub fn link(&self) -> String {
        self.page.link()
    }

    /// Answers requests until the process ends.
    pub fn run(&self) {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (page, guard) = (Arc::clone(&self.page), OpenConnection(Arc::clone(&open)));
            let thread = std::thread::Builder::new().name("annals-page".into());
            // A connection without a thread is closed.
            _ = thread.spawn(move || {
                let _guard = guard;
                // The client has gone, which is its right.
                _ = serve(&page, stream);
            });
        }
    }
}

/// Counts a connection while it is open.
struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "an open connection is counted");
    }
}

fn serve(page: &Page, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_write_timeout(Some(IDLE_MAX))?;
    stream.set_nodelay(true)?;
    let Some((request, is_head)) = read_request(&mut stream)? else { return Ok(()) };
    let response = match request {
        Ok(request) => page.handle(&request),
        Err(error) => page.refuse(&error),
    };
    write_response(&mut stream, response, is_head)
}

/// Reads a request; `None` if the client sent nothing. The flag says whether only the head of the response is wanted.
fn read_request(stream: &mut TcpStream) -> io::Result<Option<(Result<PageRequest, PageError>, bool)>> {
    let mut bytes = Vec::new();
    // The bytes before it are searched: an end of the head can lie across two reads.
    let mut searched = 0_usize;
    let end = loop {
        if let Some(at) = bytes[searched..].windows(4).position(|four| four == b"\r\n\r\n") {
            break searched + at;
        }
        searched = bytes.len().saturating_sub(3);
        if bytes.len() > HEAD_BYTES_MAX {
            let reason = "the head is longer than 32 KiB";
            return Ok(Some((Err(PageError::Malformed { reason }), false)));
        }
        if !read_some(stream, &mut bytes)? {
            return Ok(None);
        }
    };
    let mut request = match PageRequest::read_head(&bytes[..end]) {
        Ok(request) => request,
        Err(error) => return Ok(Some((Err(error), false))),
    };
    let len = match request.body_len() {
        Ok(len) => len,
        Err(error) => return Ok(Some((Err(error), false))),
    };
    let mut body = bytes.split_off(end + 4);
    while body.len() < len {
        if !read_some(stream, &mut body)? {
            return Ok(None);
        }
    }
    body.truncate(len);
    request.body = body;
    let is_head = request.method == "HEAD";
    if is_head {
        request.method = "GET".into();
    }
    Ok(Some((Ok(request), is_head)))
}

/// Adds the bytes that have arrived; returns false at the end.
fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut part = [0; 8 << 10];
    let read = stream.read(&mut part)?;
    bytes.extend_from_slice(&part[..read]);
    Ok(read > 0)
}

fn write_response(stream: &mut TcpStream, response: PageResponse, is_head: bool) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\nConnection: close\r\n", response.status, reason(response.status));
    for (name, value) in &response.headers {
        // A header is one line, whatever it was made of.
        debug_assert!(!value.contains(['\r', '\n']), "{name} is one line");
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match response.body {
        PageBody::Bytes(bytes) => {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", bytes.len()));
            stream.write_all(head.as_bytes())?;
            if !is_head {
                stream.write_all(&bytes)?;
            }
        }
        PageBody::Live(mut events) => {
            head.push_str("\r\n");
            stream.write_all(head.as_bytes())?;
            // Ends with the error of a write, when the client has gone.
            if is_head {
                return stream.flush();
            }
            while let Ok(text) = events.next(LIVE_IDLE_MAX) {
                stream.write_all(text.as_bytes())?;
                stream.flush()?;
            }
        }
    }
    stream.flush()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        303 => "See Other",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        415 => "Unsupported Media Type",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
