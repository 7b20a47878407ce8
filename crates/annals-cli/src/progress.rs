//! Progress on a terminal: what takes longer than half a second is named on stderr with its duration, on a line of its
//! own: the work of a command, or each node that runs. Invariant: the lines are gone before the command writes anything
//! else. Without a terminal nothing is shown.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

use crate::output;

/// The time before the first line.
const QUIET: Duration = Duration::from_millis(500);
/// The time between two drawings.
const REFRESH: Duration = Duration::from_millis(200);
/// Moves to the begin of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
/// Moves to the line above and clears it.
const CLEAR_ABOVE: &str = "\x1b[A\x1b[K";
/// Lines that are shown, so that they fit a small terminal: those above its begin could not be cleared.
const LINES_MAX: usize = 8;
/// The cells of a line if the terminal does not say them.
const CELLS: usize = 80;

/// The thread that shows the lines. It ends when the sender of the texts is dropped.
struct ProgressThread {
    texts: Sender<String>,
    thread: JoinHandle<()>,
}

/// Something that goes on.
#[derive(Clone)]
pub(crate) struct ProgressLine {
    /// Its name, safe to print.
    pub(crate) text: String,
    started: Duration,
}

impl ProgressLine {
    /// Makes the line of something that begins now.
    pub(crate) fn begin(text: String) -> Self {
        Self { text, started: SystemClock.elapsed() }
    }

    /// Returns whether the line is shown: something that ends sooner never is.
    fn is_old(&self, now: Duration) -> bool {
        self.started + QUIET <= now
    }

    /// Returns the line, which fits the width.
    fn shown(&self, now: Duration, cells: usize) -> String {
        let time = format!(" ({:.1} s)", now.saturating_sub(self.started).as_secs_f64());
        output::cut(&self.text, cells.saturating_sub(time.len())).into_owned() + &time
    }
}

static SHOWN: Mutex<Option<ProgressThread>> = Mutex::new(None);

fn shown() -> MutexGuard<'static, Option<ProgressThread>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins the wait for the first line. `text` names the work of the command.
pub(crate) fn start(text: &'static str) {
    show_lines(vec![ProgressLine::begin(text.to_owned())]);
}

/// Shows lines, each once it is old enough, in place of others.
pub(crate) fn show_lines(lines: Vec<ProgressLine>) {
    clear();
    if lines.is_empty() || !io::stderr().is_terminal() {
        return;
    }
    let (texts, received) = channel();
    let thread = std::thread::spawn(move || show(lines, &received));
    *shown() = Some(ProgressThread { texts, thread });
}

/// Replaces the text of the line.
pub(crate) fn say(text: impl FnOnce() -> String) {
    if let Some(progress) = &*shown() {
        // A thread that has ended shows nothing.
        _ = progress.texts.send(text());
    }
}

/// Ends the progress, and clears its lines.
pub(crate) fn clear() {
    // The guard is dropped before the thread is awaited.
    let progress = shown().take();
    if let Some(ProgressThread { texts, thread }) = progress {
        drop(texts);
        _ = thread.join();
    }
}

fn show(mut lines: Vec<ProgressLine>, received: &Receiver<String>) {
    let (mut drawn, mut due) = (0, SystemClock.elapsed());
    loop {
        let ended = loop {
            match received.recv_timeout(due.saturating_sub(SystemClock.elapsed())) {
                Ok(new) => lines[0].text = new,
                Err(RecvTimeoutError::Timeout) => break false,
                Err(RecvTimeoutError::Disconnected) => break true,
            }
        };
        let now = SystemClock.elapsed();
        let old: Vec<&ProgressLine> = lines.iter().filter(|line| line.is_old(now)).collect();
        let text = if ended { cleared(drawn) } else { cleared(drawn) + &block(&old, now, output::error_width()) };
        let mut err = io::stderr().lock();
        // A closed stderr is ignored.
        _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
        if ended {
            return;
        }
        drawn = old.len().min(LINES_MAX);
        let next = lines.iter().map(|line| line.started + QUIET).filter(|shown| *shown > now).min();
        due = if drawn == 0 { next.unwrap_or(now + REFRESH) } else { now + REFRESH };
    }
}

/// Returns the text that clears lines, at the end of the last of which the cursor stands.
fn cleared(lines: usize) -> String {
    if lines == 0 { String::new() } else { CLEAR.to_owned() + &CLEAR_ABOVE.repeat(lines - 1) }
}

/// Returns the text of lines, the last one without an end.
fn block(lines: &[&ProgressLine], now: Duration, width: Option<usize>) -> String {
    // A terminal may go to the next line after its last cell.
    let cells = width.unwrap_or(CELLS).saturating_sub(1);
    let single = if lines.len() > LINES_MAX { LINES_MAX - 1 } else { lines.len() };
    let mut shown: Vec<String> = lines[..single].iter().map(|line| line.shown(now, cells)).collect();
    if single < lines.len() {
        shown.push(output::cut(&format!("and {} more", lines.len() - single), cells).into_owned());
    }
    debug_assert!(shown.len() <= LINES_MAX, "lines past the begin of a terminal cannot be cleared");
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr as _;

    #[test]
    fn a_line_is_shown_after_half_a_second() {
        let line = ProgressLine { text: "checking".to_owned(), started: Duration::from_secs(7) };
        assert!([7_000, 7_100, 7_499].iter().all(|now| !line.is_old(Duration::from_millis(*now))));
        assert!([7_500, 60_000].iter().all(|now| line.is_old(Duration::from_millis(*now))));
    }

    #[test]
    fn lines_fit_the_terminal_and_are_few() {
        let line = |n: u64| ProgressLine { text: format!("計画{n}").repeat(20), started: Duration::from_secs(n) };
        let lines: Vec<ProgressLine> = (0..20).map(line).collect();
        for (count, expected) in [(1, 1), (8, 8), (9, 8), (20, 8)] {
            for width in [20, 41, 80] {
                let text = block(&lines.iter().take(count).collect::<Vec<_>>(), Duration::from_secs(30), Some(width));
                let shown: Vec<&str> = text.split('\n').collect();
                assert_eq!(shown.len(), expected);
                assert!(shown.iter().all(|line| line.width() < width), "{shown:?}");
                assert!(shown[0].starts_with("計画0") && shown[0].ends_with(" (30.0 s)"), "{shown:?}");
                assert_eq!(shown.last().unwrap().contains("more"), count > 8);
                assert_eq!(cleared(shown.len()).matches("\x1b[K").count(), expected);
            }
        }
    }
}
