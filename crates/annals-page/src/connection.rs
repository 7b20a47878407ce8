//! One connection: one request, which `hyper` reads, and its response.
//!
//! Invariants: head and body come within one deadline; a request without the token is refused without a thread of the
//! handlers and before its body is read; the other requests wait for one of [`HANDLERS_MAX`] threads.
//!
//! [`HANDLERS_MAX`]: crate::limits::HANDLERS_MAX

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::body::ResponseBody;
use crate::failure::PageError;
use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LINGER_BYTES_MAX, LINGER_MAX};
use crate::page::Page;
use crate::places::ConnectionPlace;
use crate::request::{PageBody, PageRequest, PageResponse};
use crate::socket::{Progress, Socket};

/// Serves the connection of a client. `request_max` is the time for the whole request.
pub(crate) async fn serve(page: Arc<Page>, stream: TcpStream, place: ConnectionPlace, request_max: Duration) {
    _ = stream.set_nodelay(true);
    let (stream, progress) = (Arc::new(stream), Arc::new(Progress::default()));
    let exchange = Exchange { page, place: Mutex::new(place), stream, progress };
    // The client has gone, or has taken too long, which is its right.
    if exchange.run(request_max).await.is_ok() {
        let Exchange { place: _place, stream, .. } = exchange;
        linger(stream).await;
    }
}

/// The request of one connection and its response.
struct Exchange {
    page: Arc<Page>,
    place: Mutex<ConnectionPlace>,
    stream: Arc<TcpStream>,
    progress: Arc<Progress>,
}

impl Exchange {
    async fn run(&self, request_max: Duration) -> io::Result<()> {
        let socket = Socket::new(Arc::clone(&self.stream), Arc::clone(&self.progress));
        let mut connection = pin!(builder().serve_connection(socket, service_fn(|request| self.respond(request))));
        let mut deadline = pin!(sleep(request_max));
        let ended = poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if self.progress.is_whole() => Poll::Pending,
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| None),
        });
        let Some(ended) = ended.await else { return Err(io::ErrorKind::TimedOut.into()) };
        let reason = match (self.progress.refused(), ended) {
            (_, ended) if self.progress.has_head() => return ended.map_err(io::Error::other),
            // For `hyper`, a head that is refused with its first byte is that of a client that has left.
            (Some(reason), _) => reason,
            (None, Err(error)) if error.is_parse_too_large() => {
                "the head is longer than 32 KiB, or has more than 100 headers"
            }
            (None, Err(error)) if error.is_parse() => "the head is not one of HTTP/1.1",
            (None, ended) => return ended.map_err(io::Error::other),
        };
        self.refuse(PageError::Malformed { reason }).await
    }

    /// Refuses a request that `hyper` could not read.
    async fn refuse(&self, error: PageError) -> io::Result<()> {
        self.progress.head_is_read();
        self.progress.request_is_whole();
        let socket = Socket::stand_in(Arc::clone(&self.stream), Arc::clone(&self.progress));
        let refused = service_fn(|_| async { self.response(self.page.refuse(&error)) });
        builder().serve_connection(socket, refused).await.map_err(io::Error::other)
    }

    /// Answers a request whose head was read.
    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<ResponseBody>> {
        self.progress.head_is_read();
        let (parts, body) = request.into_parts();
        let read = PageRequest::read(&parts).and_then(|request| {
            let wrong = |reason| Err(PageError::Malformed { reason });
            // A coding hides the length: `hyper` drops a length beside it.
            match body.size_hint().exact() {
                _ if parts.headers.contains_key(TRANSFER_ENCODING) => wrong("codings of a transfer are not supported"),
                Some(len) if len <= BODY_BYTES_MAX as u64 => Ok(request),
                _ => wrong("the body is longer than 1 MiB"),
            }
        });
        let mut request = match read {
            Ok(request) => request,
            Err(error) => return self.refused(self.page.refuse(&error)),
        };
        // `hyper` leaves the body of the response out.
        if request.method == "HEAD" {
            request.method = "GET".into();
        }
        if !self.page.knows(&request) {
            return self.refused(self.page.handle(&request));
        }
        if !self.place.lock().unwrap_or_else(PoisonError::into_inner).move_to_known() {
            return self.refused(self.page.busy());
        }
        request.body = read_body(body).await?;
        self.progress.request_is_whole();
        let page = Arc::clone(&self.page);
        // A handler that panics closes its connection.
        self.response(spawn_blocking(move || page.handle(&request)).await?)
    }

    /// Makes a response to a request of which no more is wanted.
    fn refused(&self, response: PageResponse) -> io::Result<Response<ResponseBody>> {
        self.progress.request_is_whole();
        self.response(response)
    }

    fn response(&self, response: PageResponse) -> io::Result<Response<ResponseBody>> {
        let body = match response.body {
            PageBody::Bytes(bytes) => ResponseBody::Whole(Bytes::from(bytes)),
            PageBody::Live(events) => ResponseBody::live(events, Arc::clone(&self.stream)),
        };
        let mut made = Response::new(body);
        *made.status_mut() = StatusCode::from_u16(response.status).map_err(io::Error::other)?;
        for (name, value) in &response.headers {
            // A header is one line, whatever it was made of.
            debug_assert!(!value.contains(['\r', '\n']), "{name} is one line");
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
            made.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(io::Error::other)?);
        }
        made.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(made)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // A client may close its side after the request, and still read the response.
    builder.half_close(true).keep_alive(false).auto_date_header(false).title_case_headers(true);
    builder.max_headers(HEADERS_MAX).max_header_size(HEAD_BYTES_MAX).header_read_timeout(None);
    builder
}

/// Reads a body, whose length is within the limit.
async fn read_body(mut body: Incoming) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    debug_assert!(bytes.len() <= BODY_BYTES_MAX, "the length was stated, and is within the limit");
    Ok(bytes)
}

/// Closes the side of the server, and reads the rest of the bytes of the client: a socket that is closed with unread
/// bytes takes the response away from the client.
async fn linger(stream: Arc<TcpStream>) {
    // The body of the response, which shared it, is gone.
    let Some(mut stream) = Arc::into_inner(stream) else { return };
    if poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.is_err() {
        return;
    }
    let left = async {
        let (mut part, mut read) = ([0; 8 << 10], 0);
        while read < LINGER_BYTES_MAX && stream.readable().await.is_ok() {
            match stream.try_read(&mut part) {
                Ok(0) => break,
                Ok(len) => read += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    _ = timeout(LINGER_MAX, left).await;
}
