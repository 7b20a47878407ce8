//! The body of a response as `hyper` sends it: bytes, or events that do not end.
//!
//! A stream of events takes no thread: it looks at the log in pauses, each time on a thread of the handlers, and ends
//! when its client has left.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use annals::store::StoreError;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Sleep, sleep};

use crate::limits::{LIVE_IDLE_MAX, LIVE_LOOK};
use crate::live::{LiveEvents, NOTHING_NEW};

/// The body of a response.
pub(crate) enum ResponseBody {
    Whole(Bytes),
    Live(LiveBody),
}

impl ResponseBody {
    pub(crate) fn live(events: Box<LiveEvents>, stream: Arc<TcpStream>) -> Self {
        Self::Live(LiveBody { stream, step: LiveStep::Look(look(events)), quiet_looks: 0 })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::Live(live) => ready!(live.poll_text(cx)).map(Bytes::from),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Live(_) => SizeHint::default(),
        }
    }
}

/// The events of one client.
pub(crate) struct LiveBody {
    stream: Arc<TcpStream>,
    step: LiveStep,
    /// Looks that found nothing, since the last text.
    quiet_looks: u32,
}

enum LiveStep {
    Look(JoinHandle<LookResult>),
    Pause(Pin<Box<Sleep>>, Option<Box<LiveEvents>>),
    End,
}

/// The events that were looked at, and the text of new ones.
type LookResult = (Box<LiveEvents>, Result<Option<String>, StoreError>);

fn look(mut events: Box<LiveEvents>) -> JoinHandle<LookResult> {
    spawn_blocking(move || {
        let found = events.look();
        (events, found)
    })
}

impl LiveBody {
    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        loop {
            if self.client_has_left(cx) {
                self.step = LiveStep::End;
            }
            match &mut self.step {
                LiveStep::Look(job) => {
                    // A look that fails, or panics, ends the stream; the client comes back.
                    let Ok((events, Ok(found))) = ready!(Pin::new(job).poll(cx)) else {
                        self.step = LiveStep::End;
                        continue;
                    };
                    self.step = LiveStep::Pause(Box::pin(sleep(LIVE_LOOK)), Some(events));
                    self.quiet_looks += 1;
                    let is_quiet_for_long = LIVE_LOOK * self.quiet_looks >= LIVE_IDLE_MAX;
                    let text = found.or_else(|| is_quiet_for_long.then(|| NOTHING_NEW.to_owned()));
                    if text.is_some() {
                        self.quiet_looks = 0;
                        return Poll::Ready(text);
                    }
                }
                LiveStep::Pause(pause, events) => {
                    ready!(pause.as_mut().poll(cx));
                    self.step = events.take().map_or(LiveStep::End, |events| LiveStep::Look(look(events)));
                }
                LiveStep::End => return Poll::Ready(None),
            }
        }
    }

    /// Returns whether the client has closed the connection. Bytes after its request are dropped.
    fn client_has_left(&self, cx: &mut Context<'_>) -> bool {
        let mut part = [0; 1 << 10];
        while let Poll::Ready(is_ready) = self.stream.poll_read_ready(cx) {
            match is_ready.and_then(|()| self.stream.try_read(&mut part)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
        false
    }
}
