//! A worker seen from the parent process: signals, the lines of its report, and the locks that it holds.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::WorkerArgs;
use super::ledger::Ledger;

/// The bytes of the `-shm` file whose locks are those of a commit, of a copy of the WAL, and of its recovery.
const WRITE_LOCK: u64 = 120;
const COPY_LOCK: u64 = 121;
const RECOVERY_LOCK: u64 = 122;

/// Longest wait for a process that was stopped to stand still.
const STOP_LIMIT: Duration = Duration::from_secs(180);

/// A running worker.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) job: WorkerArgs,
    child: Child,
    /// The end of the input tells the worker to end.
    input: Option<ChildStdin>,
    lines: Option<JoinHandle<()>>,
}

impl WorkerProcess {
    /// Starts a worker; its lines go to the ledger.
    pub(super) fn start(job: WorkerArgs, ledger: &Arc<Mutex<Ledger>>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a worker does not start: {error}");
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("worker")
            .args(job.to_words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("a worker has no output")?;
        let (author, ledger) = (job.author, Arc::clone(ledger));
        let lines = std::thread::spawn(move || {
            // A killed worker may leave half a line, which says nothing.
            let mut whole = String::new();
            let mut output = BufReader::new(output);
            while output.read_line(&mut whole).is_ok_and(|count| count > 0) {
                if let Some(line) = whole.strip_suffix('\n') {
                    ledger.lock().take(author, line);
                }
                whole.clear();
            }
        });
        Ok(Self { job, child, input, lines: Some(lines) })
    }

    /// Returns the id of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        // It fails if the process has ended, which the status tells.
        _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Stops the process where it is, and returns when it stands still.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let begin = SystemClock.elapsed();
        // Each thread stops when it leaves the kernel, in which it may still release a lock. One that has ended stands
        // as well.
        let stands = |thread: std::fs::DirEntry| {
            let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let rest = state.rsplit(')').next().unwrap_or_default().trim();
            rest.is_empty() || rest.starts_with(['T', 'Z', 'X'])
        };
        let threads = || std::fs::read_dir(format!("/proc/{}/task", self.id())).into_iter().flatten().flatten();
        while !threads().all(stands) && SystemClock.elapsed() - begin < STOP_LIMIT {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Lets a stopped process go on.
    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process and takes the last lines of its report. Returns false if it had ended before.
    pub(super) fn kill(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        _ = self.child.kill();
        let status = self.child.wait();
        self.join();
        status.is_ok_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Tells the process to end.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Waits for the end of a process that was told to end. Returns its problem, if it did not end well.
    pub(super) fn wait(&mut self, limit: Duration) -> Option<String> {
        let begin = SystemClock.elapsed();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.join();
                    let author = self.job.author;
                    return (!status.success()).then(|| format!("process {author} ended with {status}"));
                }
                Ok(None) if SystemClock.elapsed() - begin < limit => std::thread::sleep(Duration::from_millis(1)),
                _ => {
                    self.kill();
                    return Some(format!("process {} did not end within {limit:?}", self.job.author));
                }
            }
        }
    }

    fn join(&mut self) {
        if let Some(lines) = self.lines.take() {
            _ = lines.join();
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if self.lines.is_some() {
            self.kill();
        }
    }
}

/// Returns the bytes of the `-shm` file that a process has locked for itself, if the operating system tells it.
pub(super) fn ranges_of(store: &Path, process: u32) -> Vec<(u64, u64)> {
    let shared_memory = store.with_extension("db-shm");
    let Ok(inode) = std::fs::metadata(shared_memory).map(|meta| meta.ino()) else { return Vec::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(|line| range_in(line, process, inode)).collect()
}

/// Returns the name of the most exclusive lock of the store that a process holds.
pub(super) fn lock_of(store: &Path, process: u32) -> Option<&'static str> {
    let held = ranges_of(store, process);
    let holds = |byte: u64| held.iter().any(|(first, last)| (*first..=*last).contains(&byte));
    [(RECOVERY_LOCK, "recovery"), (COPY_LOCK, "copy"), (WRITE_LOCK, "write")]
        .into_iter()
        .find_map(|(byte, name)| holds(byte).then_some(name))
}

/// Returns the bytes that a process has locked for itself, from a line as
/// `4: POSIX  ADVISORY  WRITE 4711 fe:00:81 120 120`.
fn range_in(line: &str, process: u32, inode: u64) -> Option<(u64, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[_, "POSIX", _, "WRITE", holder, place, first, last] = fields.as_slice() else { return None };
    let is_it = holder.parse() == Ok(process) && place.rsplit(':').next()?.parse() == Ok(inode);
    let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
    is_it.then_some((first.parse().ok()?, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_of_a_process_are_read_from_the_listing() {
        let line = "4: POSIX  ADVISORY  WRITE 4711 fe:00:81 120 121";
        assert_eq!(range_in(line, 4711, 81), Some((120, 121)));
        assert_eq!(range_in(line, 4712, 81), None);
        assert_eq!(range_in(line, 4711, 82), None);
        assert_eq!(range_in("4: -> POSIX  ADVISORY  WRITE 4711 fe:00:81 120 120", 4711, 81), None);
        assert_eq!(range_in("4: POSIX  ADVISORY  READ 4711 fe:00:81 123 123", 4711, 81), None);
    }
}
