//! The server: a socket of the loopback address, one thread for all connections, one request for each connection.
//!
//! *Absent:* encryption, pipelining, and any address but the loopback.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annals::store::Store;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::connection::serve;
use crate::failure::PageError;
use crate::limits::{ACCEPT_PAUSE, HANDLERS_MAX, REQUEST_MAX};
use crate::page::{Page, PageOptions};
use crate::places::ConnectionPlaces;

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
    listener: std::net::TcpListener,
    stopped: Notify,
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
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        debug_assert!(address.ip().is_loopback(), "the pages are for this machine");
        let page = Arc::new(Page::new(store, options.address(address))?);
        Ok(Self { listener, stopped: Notify::new(), address, page })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the link to the first screen, with the token.
    pub fn link(&self) -> String {
        self.page.link()
    }

    /// Answers requests until [`PageServer::stop`] is called. One thread of its own serves the sockets, at
    /// most 8 further ones read the store.
    ///
    /// # Errors
    /// [`PageError::Run`].
    pub fn run(&self) -> Result<(), PageError> {
        self.run_within(REQUEST_MAX).map_err(|source| PageError::Run { source })
    }

    /// Ends [`PageServer::run`], or the next call of it: connections are closed, and it returns when the requests that
    /// read the store are done.
    pub fn stop(&self) {
        self.stopped.notify_one();
    }

    /// Runs the server. `request_max` is the time for a whole request.
    fn run_within(&self, request_max: Duration) -> io::Result<()> {
        // A thread of its own, because the caller may run within another runtime.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("annals-page".into());
            let server = thread.spawn_scoped(scope, || {
                let mut runtime = Builder::new_current_thread();
                let runtime = runtime.enable_io().enable_time().max_blocking_threads(HANDLERS_MAX);
                runtime.thread_name("annals-page").build()?.block_on(self.accept(request_max))
            })?;
            server.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the server panicked")))
        })
    }

    async fn accept(&self, request_max: Duration) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener.try_clone()?)?;
        let places = Arc::new(ConnectionPlaces::default());
        let mut stopped = pin!(self.stopped.notified());
        loop {
            let accepted = poll_fn(|cx| match stopped.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => listener.poll_accept(cx).map(Some),
            });
            let stream = match accepted.await {
                None => return Ok(()),
                Some(Ok((stream, _))) => stream,
                Some(Err(_)) => {
                    // There may be no more descriptors.
                    places.close_oldest();
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = places.place();
            let number = place.number();
            let task = tokio::spawn(serve(Arc::clone(&self.page), stream, place, request_max));
            places.enter(number, task.abort_handle());
            // The new connection reads its request before the next one can take its place.
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    use super::*;

    /// Sends a text and then its last byte again and again, until the server closes the connection.
    fn drip(address: SocketAddr, text: &str) {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        while client.write_all(b"a").is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn head_and_body_have_one_deadline() {
        let server = PageServer::bind(Store::memory(), 0, PageOptions::new().token("secret")).unwrap();
        let address = server.address();
        let head = format!("Host: {address}\r\nAuthorization: Bearer secret\r\n");
        std::thread::scope(|scope| {
            let running = scope.spawn(|| server.run_within(Duration::from_millis(20)));
            let mut silent = TcpStream::connect(address).unwrap();
            assert!(silent.read(&mut [0]).is_ok_and(|read| read == 0), "a client that sends nothing is closed");
            drip(address, &format!("POST / HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\na"));
            let mut begun = TcpStream::connect(address).unwrap();
            begun.write_all(b"GET / HT").unwrap();
            let mut response = Vec::new();
            // A server that has not read the bytes resets the connection.
            _ = begun.read_to_end(&mut response);
            assert!(response.is_empty(), "half a head has no answer");
            server.stop();
            running.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_server_that_was_stopped_runs_again() {
        let server = PageServer::bind(Store::memory(), 0, PageOptions::new()).unwrap();
        server.stop();
        server.run().unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| server.run());
            let mut client = TcpStream::connect(server.address()).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
            server.stop();
            running.join().unwrap().unwrap();
        });
    }
}
