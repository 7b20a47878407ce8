//! Progress on a terminal: a command that takes longer than half a second names its work and its duration on stderr.
//! Invariant: the line is gone before the command writes anything else. Without a terminal nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

/// The time before the first line.
const QUIET: Duration = Duration::from_millis(500);
/// The time between two lines.
const REFRESH: Duration = Duration::from_millis(200);
/// Moves to the begin of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The thread that shows the line. It ends when the sender of the texts is dropped.
struct ProgressThread {
    texts: Sender<String>,
    thread: JoinHandle<()>,
}

static SHOWN: Mutex<Option<ProgressThread>> = Mutex::new(None);

fn shown() -> MutexGuard<'static, Option<ProgressThread>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins the wait for the first line. `text` names the work of the command.
pub(crate) fn start(text: &'static str) {
    if !io::stderr().is_terminal() {
        return;
    }
    let (texts, received) = channel();
    let thread = std::thread::spawn(move || show(text.to_owned(), &received));
    *shown() = Some(ProgressThread { texts, thread });
}

/// Replaces the text of the line.
pub(crate) fn say(text: impl FnOnce() -> String) {
    if let Some(progress) = &*shown() {
        // A thread that has ended shows nothing.
        _ = progress.texts.send(text());
    }
}

/// Ends the progress, and clears its line.
pub(crate) fn clear() {
    // The guard is dropped before the thread is awaited.
    let progress = shown().take();
    if let Some(ProgressThread { texts, thread }) = progress {
        drop(texts);
        _ = thread.join();
    }
}

fn show(mut text: String, received: &Receiver<String>) {
    let started = SystemClock.elapsed();
    let (mut wait, mut is_shown) = (QUIET, false);
    loop {
        let due = SystemClock.elapsed() + wait;
        let ended = loop {
            match received.recv_timeout(due.saturating_sub(SystemClock.elapsed())) {
                Ok(new) => text = new,
                Err(RecvTimeoutError::Timeout) => break false,
                Err(RecvTimeoutError::Disconnected) => break true,
            }
        };
        let mut err = io::stderr().lock();
        // A closed stderr is ignored.
        if ended {
            _ = if is_shown { write!(err, "{CLEAR}") } else { Ok(()) };
            return;
        }
        let seconds = (SystemClock.elapsed() - started).as_secs_f64();
        _ = write!(err, "{CLEAR}{text} ({seconds:.1} s)").and_then(|()| err.flush());
        (wait, is_shown) = (REFRESH, true);
    }
}
