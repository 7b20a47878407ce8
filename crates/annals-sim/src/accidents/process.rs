//! A worker seen from the judge: orders, answers, and the ways in which it can end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// How workers are started.
#[derive(Clone, Debug)]
pub(super) struct WorkerProgram {
    /// The program that has the subcommand of the worker.
    pub(super) path: PathBuf,
    /// The time within which an order must be answered.
    pub(super) limit: Duration,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    Complete,
    /// The process ended, with the signal if it was one.
    Died(Option<i32>),
    /// No answer came within the limit.
    Hung,
}

/// The answer to an order.
#[derive(Clone, Debug)]
pub(super) struct OrderAnswer {
    pub(super) lines: Vec<String>,
    pub(super) end: AnswerEnd,
}

impl OrderAnswer {
    /// Returns the rest of the first line that begins with a letter.
    pub(super) fn line(&self, letter: char) -> Option<&str> {
        self.lines.iter().find(|line| line.starts_with(letter)).map(|line| line[1..].trim_start())
    }

    /// Returns whether the process stands within a commit.
    pub(super) fn is_halted(&self) -> bool {
        self.line('P').is_some()
    }
}

/// A running worker.
#[derive(Debug)]
pub(super) struct OrderedProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    limit: Duration,
}

impl OrderedProcess {
    /// Starts a worker for the store at a path.
    pub(super) fn start(
        program: &WorkerProgram,
        store: &Path,
        author: &str,
        encrypted: bool,
        access: &str,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{} does not start: {error}", program.path.display());
        let mut child = Command::new(&program.path)
            .arg("accident-worker")
            .arg(store)
            .args([author, if encrypted { "encrypted" } else { "plain" }, access])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a worker has no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|count| count > 0) {
                // Half a line of a process that died says nothing.
                let Some(whole) = line.strip_suffix('\n') else { break };
                if sender.send(whole.to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { child, input, lines, limit: program.limit })
    }

    /// Gives an order and takes the answer.
    pub(super) fn order(&mut self, order: &str) -> OrderAnswer {
        if let Some(input) = &mut self.input {
            // A process that has ended is found by the end of its output.
            _ = input.write_all(format!("{order}\n").as_bytes());
        }
        let mut lines = Vec::new();
        let end = loop {
            match self.lines.recv_timeout(self.limit) {
                Ok(line) if line == "." => break AnswerEnd::Complete,
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => break AnswerEnd::Hung,
                Err(RecvTimeoutError::Disconnected) => break AnswerEnd::Died(self.end()),
            }
        };
        OrderAnswer { lines, end }
    }

    /// Gives an order that must be obeyed.
    pub(super) fn must(&mut self, order: &str) -> Result<OrderAnswer, String> {
        let answer = self.order(order);
        let problem = ['E', 'F', 'K', 'X'].into_iter().find_map(|letter| answer.line(letter));
        match problem {
            None if answer.end == AnswerEnd::Complete => Ok(answer),
            problem => Err(format!("{order}: {} ({:?})", problem.unwrap_or_default(), answer.end)),
        }
    }

    /// Waits for the end of a process whose output has ended. Returns the signal that ended it.
    fn end(&mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().ok().and_then(|status| status.signal())
    }

    /// Kills the process.
    pub(super) fn kill(mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Ends the input of the process, and takes its last lines.
    pub(super) fn finish(mut self) -> OrderAnswer {
        self.input = None;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(self.limit) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => return OrderAnswer { lines, end: AnswerEnd::Hung },
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let end = match self.child.wait() {
            Ok(status) if status.success() => AnswerEnd::Complete,
            status => AnswerEnd::Died(status.ok().and_then(|status| status.signal())),
        };
        OrderAnswer { lines, end }
    }
}

impl Drop for OrderedProcess {
    fn drop(&mut self) {
        // Both fail if it has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
