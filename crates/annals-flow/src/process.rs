//! Runs a command with its input, and collects its output, which an observer is shown as it is printed. Time and output
//! are limited; a command over a limit is killed with its process group.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_graph::annals::base::{Clock, SystemClock};

use crate::command_log::{OutputTail, OutputTails, locked};
use crate::limits::{COMMAND_LOOK_MAX, COMMAND_LOOK_MIN, LOG_INTERVAL, OUTPUT_BYTES_MAX, PIPE_GRACE, STDERR_BYTES_MAX};

/// A command that is ready to run.
#[derive(Debug)]
pub(crate) struct ReadyCommand {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    pub(crate) stdin: Vec<u8>,
    pub(crate) timeout: Option<Duration>,
}

/// The output of a command that ended by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// The observer of a command that runs.
pub(crate) struct CommandWatch<'a> {
    /// Returns whether the command is to be killed. Called while the command runs.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
    /// The function that is called with the output: at an interval while the command runs, and at its end.
    pub(crate) printed: &'a dyn Fn(&OutputTails, PrintedAt),
    /// The number of bytes at the end of each output that are retained for it.
    pub(crate) most: usize,
}

/// The time at which an output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedAt {
    Running,
    /// The end, with the exit code of a command that was not killed.
    End(Option<i32>),
}

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("{program} cannot be started in {}: {source}", folder.display())]
    Start { program: String, folder: PathBuf, source: std::io::Error },
    #[error("{program} ran longer than its timeout of {timeout:?} and was killed")]
    TimedOut { program: String, timeout: Duration },
    #[error("{program} printed more than {OUTPUT_BYTES_MAX} bytes and was killed")]
    OutputTooLong { program: String },
    #[error("{program} was killed, because the run was cancelled")]
    Cancelled { program: String },
    #[error("{program} ended, and a process that it started holds its output open")]
    PipeHeld { program: String },
    #[error("{program} ended with {status}{stderr}")]
    Status { program: String, status: String, stderr: String },
    #[error("{program} cannot be waited for: {source}")]
    Wait { program: String, source: std::io::Error },
    #[error("the output of {program} {reason}")]
    Output { program: String, reason: String },
}

impl ReadyCommand {
    pub(crate) fn program(&self) -> String {
        self.argv.first().map(|program| format!("`{program}`")).unwrap_or_default()
    }

    /// Runs the command to its end.
    pub(crate) fn run(self, watch: &CommandWatch<'_>) -> Result<CommandOutput, CommandError> {
        let tails = OutputTails::new(watch.most);
        let ended = self.run_with(watch, &tails);
        if tails.printed() > 0 {
            (watch.printed)(&tails, PrintedAt::End(ended.as_ref().ok().map(|output| output.status)));
        }
        ended
    }

    fn start(self, tails: &OutputTails) -> Result<StartedCommand, CommandError> {
        let program = self.program();
        let mut command = Command::new(self.argv.first().map_or("", String::as_str));
        command.args(self.argv.iter().skip(1)).envs(self.env).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let start = |source| CommandError::Start { program: program.clone(), folder: self.folder.clone(), source };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.stdin;
            // A command need not read its input: an error of the pipe is dropped.
            std::thread::spawn(move || _ = stdin.write_all(&bytes));
        }
        let stdout = child.stdout.take().map(|pipe| read_start(pipe, OUTPUT_BYTES_MAX, Arc::clone(&tails.stdout)));
        let stderr = child.stderr.take().map(|pipe| read_end(pipe, STDERR_BYTES_MAX, Arc::clone(&tails.stderr)));
        Ok(StartedCommand { program, timeout: self.timeout, child, stdout, stderr })
    }

    fn run_with(self, watch: &CommandWatch<'_>, tails: &OutputTails) -> Result<CommandOutput, CommandError> {
        let StartedCommand { program, timeout, mut child, stdout, stderr } = self.start(tails)?;
        let since = SystemClock.elapsed();
        let (mut shown_at, mut shown) = (since, 0);
        let mut out = None;
        let mut pause = COMMAND_LOOK_MIN;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(source) => {
                    kill(&mut child);
                    return Err(CommandError::Wait { program, source });
                }
            }
            let now = SystemClock.elapsed();
            if let Some(timeout) = timeout.filter(|timeout| now.saturating_sub(since) >= *timeout) {
                kill(&mut child);
                return Err(CommandError::TimedOut { program, timeout });
            }
            if now.saturating_sub(shown_at) >= LOG_INTERVAL && tails.printed() > shown {
                (shown_at, shown) = (now, tails.printed());
                (watch.printed)(tails, PrintedAt::Running);
            }
            if (watch.is_cancelled)() {
                kill(&mut child);
                return Err(CommandError::Cancelled { program });
            }
            match stdout.as_ref().filter(|_| out.is_none()).map(|pipe| pipe.recv_timeout(pause)) {
                Some(Ok(bytes)) => out = Some(bytes),
                Some(Err(RecvTimeoutError::Timeout)) => {}
                _ => std::thread::sleep(pause),
            }
            if out.as_ref().is_some_and(|bytes| bytes.len() > OUTPUT_BYTES_MAX) {
                kill(&mut child);
                return Err(CommandError::OutputTooLong { program });
            }
            pause = (pause * 2).min(COMMAND_LOOK_MAX);
        };
        // Processes that it left behind in its group would hold the pipes open.
        kill(&mut child);
        let held = || CommandError::PipeHeld { program: program.clone() };
        let ended = |pipe: Option<Receiver<Vec<u8>>>| match pipe {
            Some(pipe) => pipe.recv_timeout(PIPE_GRACE).map_err(|_| held()),
            None => Ok(Vec::new()),
        };
        let stdout = out.map_or_else(|| ended(stdout), Ok)?;
        if stdout.len() > OUTPUT_BYTES_MAX {
            return Err(CommandError::OutputTooLong { program });
        }
        let stderr = String::from_utf8_lossy(&ended(stderr)?).trim().to_owned();
        match status.code() {
            Some(status) => Ok(CommandOutput { status, stdout, stderr }),
            None => Err(CommandError::Status { program, status: status.to_string(), stderr: self::shown(&stderr) }),
        }
    }
}

/// A command that runs, with the readers of its pipes.
struct StartedCommand {
    program: String,
    timeout: Option<Duration>,
    child: Child,
    stdout: Option<Receiver<Vec<u8>>>,
    stderr: Option<Receiver<Vec<u8>>>,
}

/// Returns the end of stderr, as errors show it.
pub(crate) fn shown(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}

/// Reads one byte more than `max`, then nothing.
fn read_start(pipe: impl Read + Send + 'static, max: usize, tail: Arc<Mutex<OutputTail>>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
        let mut pipe = pipe.take(max as u64 + 1);
        // An error of the pipe is its end.
        while let n @ 1.. = read_some(&mut pipe, &mut buffer) {
            locked(&tail).push(&buffer[..n]);
            bytes.extend_from_slice(&buffer[..n]);
        }
        debug_assert!(bytes.len() <= max + 1, "one byte more tells that the output is too long");
        sender.send(bytes)
    });
    receiver
}

/// Reads a pipe to its end and retains the last bytes.
fn read_end(mut pipe: impl Read + Send + 'static, max: usize, tail: Arc<Mutex<OutputTail>>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
        while let n @ 1.. = read_some(&mut pipe, &mut buffer) {
            locked(&tail).push(&buffer[..n]);
            bytes.extend_from_slice(&buffer[..n]);
            let over = bytes.len().saturating_sub(max);
            bytes.drain(..over);
        }
        debug_assert!(bytes.len() <= max, "the end of the output is retained");
        sender.send(bytes)
    });
    receiver
}

/// Returns the number of bytes read, 0 at the end of the pipe.
fn read_some(pipe: &mut impl Read, buffer: &mut [u8]) -> usize {
    loop {
        match pipe.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read.unwrap_or(0),
        }
    }
}

/// Kills the process group of a child, and the child.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // The error is dropped: the group has ended already.
        _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    _ = child.kill();
    _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str, timeout: Option<u64>) -> Result<CommandOutput, CommandError> {
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        let timeout = timeout.map(Duration::from_millis);
        let command = ReadyCommand { argv, env: vec![], folder: ".".into(), stdin: b"input".to_vec(), timeout };
        command.run(&CommandWatch { is_cancelled: &|| false, printed: &|_, _| (), most: 1_024 })
    }

    #[test]
    fn the_output_of_a_command_is_shown_while_it_runs_and_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo first; echo half >&2; until [ -e go ]; do sleep 0.01; done; echo last; exit 3";
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        let command =
            ReadyCommand { argv, env: vec![], folder: folder.path().to_owned(), stdin: vec![], timeout: None };
        let shown = Mutex::new(Vec::new());
        let printed = |tails: &OutputTails, at: PrintedAt| {
            let log = tails.log(&crate::secrets::Secrets::default(), at != PrintedAt::Running);
            if !log.stdout.is_empty() && !log.stderr.is_empty() {
                std::fs::write(folder.path().join("go"), "").unwrap();
            }
            shown.lock().unwrap().push((log.stdout, log.stderr, at));
        };
        command.run(&CommandWatch { is_cancelled: &|| false, printed: &printed, most: 1_024 }).unwrap();
        let shown = shown.into_inner().unwrap();
        let of = |stdout: &str, at| (stdout.to_owned(), "half\n".to_owned(), at);
        assert!(shown.contains(&of("first\n", PrintedAt::Running)), "{shown:?}");
        assert_eq!(shown.last(), Some(&of("first\nlast\n", PrintedAt::End(Some(3)))));
    }

    #[test]
    fn a_command_reads_its_input_and_prints() {
        let output = sh("cat; echo careful >&2; exit 3", None).unwrap();
        assert_eq!(output, CommandOutput { status: 3, stdout: b"input".to_vec(), stderr: "careful".into() });
    }

    /// Returns whether a process runs: it exists, and has not ended without having been waited for.
    #[cfg(target_os = "linux")]
    fn runs(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
    }

    #[test]
    fn a_command_over_a_limit_is_killed() {
        // A command that was waited for would end ten minutes later, and not with this error.
        assert!(matches!(sh("sleep 600", Some(100)), Err(CommandError::TimedOut { .. })));
        assert!(matches!(sh("cat /dev/zero", Some(600_000)), Err(CommandError::OutputTooLong { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_that_is_killed_takes_its_children_along() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > writing; mv writing child; wait";
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        let (env, folder, stdin) = (vec![], folder.path().to_owned(), Vec::new());
        let child = || std::fs::read_to_string(folder.join("child")).ok();
        let command = ReadyCommand { argv, env, folder: folder.clone(), stdin, timeout: None };
        let watch = CommandWatch { is_cancelled: &|| child().is_some(), printed: &|_, _| (), most: 1_024 };
        assert!(matches!(command.run(&watch), Err(CommandError::Cancelled { .. })));
        let child = child().unwrap();
        let since = SystemClock.elapsed();
        while runs(child.trim()) {
            assert!(SystemClock.elapsed() - since < Duration::from_secs(300), "a child of the command goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_process_that_is_left_behind_does_not_hold_the_run() {
        // A run that waited for it would fail, as its output is held open.
        assert_eq!(sh("sleep 600 & echo done", None).unwrap().stdout, b"done\n");
        assert!(matches!(sh("kill -9 $$", None), Err(CommandError::Status { .. })));
    }
}
