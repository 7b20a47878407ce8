//! The socket of one connection, as `hyper` reads and writes it.
//!
//! Invariants: lines of a head that `hyper` would tolerate and this server refuses do not reach `hyper`; a client takes
//! the next part of a response within [`IDLE_MAX`]; bytes that `hyper` writes before the handler was called are
//! dropped, because its own refusals lack the headers of this server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::limits::IDLE_MAX;

/// The request that stands for one that `hyper` did not read, so that its refusal is written by `hyper` as well.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// The progress of one request, shared by its socket, its handler and its deadline.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    is_head_read: AtomicBool,
    is_whole: AtomicBool,
    /// Why the lines of the head were refused.
    refused: OnceLock<&'static str>,
}

impl Progress {
    /// Notes that the head was read: bytes that are written from now on are a response of this server.
    pub(crate) fn head_is_read(&self) {
        self.is_head_read.store(true, Ordering::Relaxed);
    }

    /// Notes that the whole request was read, or that the rest is not wanted: the deadline is met.
    pub(crate) fn request_is_whole(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_head(&self) -> bool {
        self.is_head_read.load(Ordering::Relaxed)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.refused.get().copied()
    }
}

/// A socket that watches the lines of the head and the pace of the client.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    progress: Arc<Progress>,
    lines: HeadLines,
    /// Bytes that are read in place of those of the client, and nothing after them.
    stand_in: Option<&'static [u8]>,
    /// The end of the time in which the client takes the next part, while it takes none.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(crate) fn new(stream: Arc<TcpStream>, progress: Arc<Progress>) -> Self {
        Self { stream, progress, lines: HeadLines::default(), stand_in: None, stalled: None }
    }

    /// Makes a socket that reads a request of its own, whatever the client sent.
    pub(crate) fn stand_in(stream: Arc<TcpStream>, progress: Arc<Progress>) -> Self {
        Self { stand_in: Some(STAND_IN), ..Self::new(stream, progress) }
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if let Some(bytes) = &mut self.stand_in {
            if bytes.is_empty() {
                return Poll::Pending;
            }
            let (now, later) = bytes.split_at(bytes.len().min(buf.remaining()));
            buf.put_slice(now);
            *bytes = later;
            return Poll::Ready(Ok(()));
        }
        let mut part = [0; 8 << 10];
        let room = part.len().min(buf.remaining());
        debug_assert!(room > 0, "no bytes would be an end");
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(&mut part[..room]) {
                Ok(read) => {
                    if let Err(reason) = self.lines.read(&part[..read]) {
                        _ = self.progress.refused.set(reason);
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
                    }
                    buf.put_slice(&part[..read]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.progress.has_head() {
            return Poll::Ready(Ok(bytes.len()));
        }
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(IDLE_MAX)));
                    ready!(stalled.as_mut().poll(cx));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            match self.stream.try_write(bytes) {
                Ok(written) => {
                    self.stalled = None;
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The owner of the stream closes it, after a refusal was written as well.
        Poll::Ready(Ok(()))
    }
}

/// Reads the lines of a head as far as `hyper` is too lenient: it takes empty lines before the first one, a line
/// without a carriage return, and a length that is stated twice if both are equal.
#[derive(Debug, Default)]
struct HeadLines {
    /// The first bytes of the line.
    begin: [u8; HeadLines::LENGTH.len()],
    line_len: usize,
    lines: usize,
    lengths: usize,
    last: u8,
    is_over: bool,
}

impl HeadLines {
    const LENGTH: &[u8] = b"content-length:";

    /// Reads the next bytes of the connection; those after the head are not looked at.
    fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for &byte in bytes {
            if self.is_over {
                break;
            }
            self.byte(byte)?;
            self.last = byte;
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8) -> Result<(), &'static str> {
        match byte {
            b'\n' if self.last != b'\r' => return Err("a line of the head does not end with CR LF"),
            b'\n' if self.line_len == 0 && self.lines == 0 => return Err("the first line is empty"),
            b'\n' => {
                self.is_over = self.line_len == 0;
                self.lengths += usize::from(self.begin.eq_ignore_ascii_case(Self::LENGTH));
                if self.lengths > 1 {
                    return Err("the length of the body is stated twice");
                }
                (self.begin, self.line_len, self.lines) = (Default::default(), 0, self.lines + 1);
            }
            b'\r' => {}
            byte => {
                if let Some(begin) = self.begin.get_mut(self.line_len) {
                    *begin = byte;
                }
                self.line_len += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_hyper_tolerates_are_refused() {
        for (head, is_taken) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n\n\nContent-Length: 1\r\n", true),
            ("POST / HTTP/1.1\r\nX: Content-Length: 1\r\nContent-Length: 1\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\r\n\r\n", false),
            ("\nGET / HTTP/1.1\r\n\r\n", false),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\n\n", false),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-LENGTH:1\r\n\r\n", false),
        ] {
            assert_eq!(HeadLines::default().read(head.as_bytes()).is_ok(), is_taken, "{head:?}");
            let mut lines = HeadLines::default();
            let single = head.bytes().all(|byte| lines.read(&[byte]).is_ok());
            assert_eq!(single, is_taken, "{head:?} byte by byte");
        }
    }
}
