//! The output of a command as it is stored with its task: the ends of stdout and stderr, as they are printed.
//!
//! Invariant: the stored output is bounded in bytes and has no secret, also if a secret is printed in parts. *Absent:*
//! the order of the lines of stdout among those of stderr.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_graph::annals::base::{Map, Value};
use annals_graph::runs::StepInfo;

use crate::secrets::Secrets;

/// The output of the command of a step: what its last attempt that printed anything has printed, also while it runs.
///
/// # Example
/// ```ignore-windows
/// use annals_flow::{CommandLog, Flow, FlowInput};
/// use annals_graph::prelude::*;
/// use annals_graph::runs::ThreadRuns;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flow = Flow::parse("build.toml", "[nodes.make]\nrun = 'echo warning: old >&2'\n")?;
/// let thread = Store::memory().thread("t")?;
/// flow.run(&thread, FlowInput::new(), &mut |_| ())?;
/// let step = thread.steps()?.next().expect("a step")?;
/// let log = CommandLog::of(&step).expect("the output of a command");
/// assert_eq!((log.stderr.as_str(), log.exit), ("warning: old\n", Some(0)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandLog {
    /// The item of a node with `each` or `matrix`: a text, or the JSON of another value.
    pub item: Option<String>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The end of stdout.
    pub stdout: String,
    /// The number of bytes of stdout before it.
    pub stdout_dropped: u64,
    /// The end of stderr.
    pub stderr: String,
    /// The number of bytes of stderr before it.
    pub stderr_dropped: u64,
    /// The exit code; `None` while the command runs, and of one that was killed.
    pub exit: Option<i32>,
}

impl CommandLog {
    /// Returns the output of the command of a step; `None` if it has no command, or printed nothing.
    pub fn of(step: &StepInfo) -> Option<Self> {
        let stored = step.output.as_ref()?;
        let number = |name: &str| stored.get(name).and_then(Value::as_int);
        let text = |name: &str| stored.get(name).and_then(Value::as_str).map(str::to_owned);
        let bytes = |name: &str| number(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let attempt = u32::try_from(number("attempt")?).ok()?;
        Some(Self {
            item: text("item"),
            attempt,
            stdout: text("stdout").unwrap_or_default(),
            stdout_dropped: bytes("stdout_dropped"),
            stderr: text("stderr").unwrap_or_default(),
            stderr_dropped: bytes("stderr_dropped"),
            exit: number("exit").and_then(|exit| i32::try_from(exit).ok()),
        })
    }

    /// Returns the value that is stored. Members that are empty are left out.
    pub(crate) fn into_value(self) -> Value {
        let mut members = Map::new();
        members.insert("attempt".to_owned(), Value::from(i64::from(self.attempt)));
        for (name, text) in [("item", self.item.unwrap_or_default()), ("stdout", self.stdout), ("stderr", self.stderr)]
        {
            if !text.is_empty() {
                members.insert(name.to_owned(), Value::from(text));
            }
        }
        for (name, bytes) in [("stdout_dropped", self.stdout_dropped), ("stderr_dropped", self.stderr_dropped)] {
            if bytes > 0 {
                members.insert(name.to_owned(), Value::from(i64::try_from(bytes).unwrap_or(i64::MAX)));
            }
        }
        members.extend(self.exit.map(|exit| ("exit".to_owned(), Value::from(i64::from(exit)))));
        Value::Map(members)
    }
}

/// The last bytes of an output.
#[derive(Debug)]
pub(crate) struct OutputTail {
    bytes: Vec<u8>,
    /// The number of bytes before them.
    dropped: u64,
    most: usize,
}

impl OutputTail {
    pub(crate) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), dropped: 0, most }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Cut when it is twice as long, so that each byte is moved once at most.
        if self.bytes.len() > self.most.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.bytes.len().saturating_sub(self.most);
        self.bytes.drain(..over);
        self.dropped = self.dropped.saturating_add(over as u64);
        debug_assert!(self.bytes.len() <= self.most, "the end of the output is retained");
    }

    /// Returns the number of bytes that were printed.
    fn printed(&self) -> u64 {
        self.dropped.saturating_add(self.bytes.len() as u64)
    }

    /// Returns the text of the end without secrets, and the number of bytes before it. The text of a command that runs
    /// ends with a whole line, as a secret may be printed by half.
    fn text(&mut self, secrets: &Secrets, is_whole: bool) -> (String, u64) {
        self.cut();
        let is_line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let end = match is_whole {
            true => self.bytes.len(),
            false => self.bytes.iter().rposition(is_line_end).map_or(0, |at| at + 1),
        };
        // The first line may be the rest of one.
        let start = match self.dropped {
            0 => 0,
            _ => self.bytes[..end].iter().position(is_line_end).map_or(end, |at| at + 1),
        };
        let text = String::from_utf8_lossy(&self.bytes[start..end]);
        let text = secrets.without_halves(&text, self.dropped > 0, !is_whole);
        (secrets.redacted(text.to_owned()), self.dropped.saturating_add(start as u64))
    }
}

/// The ends of stdout and stderr of a command, which the readers of its pipes fill.
#[derive(Clone, Debug)]
pub(crate) struct OutputTails {
    pub(crate) stdout: Arc<Mutex<OutputTail>>,
    pub(crate) stderr: Arc<Mutex<OutputTail>>,
}

pub(crate) fn locked(tail: &Mutex<OutputTail>) -> MutexGuard<'_, OutputTail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OutputTails {
    pub(crate) fn new(most: usize) -> Self {
        let tail = || Arc::new(Mutex::new(OutputTail::new(most)));
        Self { stdout: tail(), stderr: tail() }
    }

    /// Returns the number of bytes that were printed on both.
    pub(crate) fn printed(&self) -> u64 {
        locked(&self.stdout).printed().saturating_add(locked(&self.stderr).printed())
    }

    /// Returns the log of a command that has exited or, without `is_whole`, of one that runs or was killed.
    pub(crate) fn log(&self, secrets: &Secrets, is_whole: bool) -> CommandLog {
        let (stdout, stdout_dropped) = locked(&self.stdout).text(secrets, is_whole);
        let (stderr, stderr_dropped) = locked(&self.stderr).text(secrets, is_whole);
        CommandLog { stdout, stdout_dropped, stderr, stderr_dropped, ..CommandLog::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_retained_by_whole_lines() {
        let mut tail = OutputTail::new(16);
        let none = Secrets::default();
        tail.push(b"one\ntwo");
        assert_eq!(tail.text(&none, false), ("one\n".to_owned(), 0));
        assert_eq!(tail.text(&none, true), ("one\ntwo".to_owned(), 0));
        for n in 0..20 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        assert_eq!(tail.text(&none, true), ("line 19\n".to_owned(), tail.printed() - 8));
        tail.push(&[b'x'; 40]);
        assert_eq!(tail.text(&none, true).0, "", "the rest of a line");
    }
}
