//! Several processes on one file: the longest wait of a commit, and the write-ahead log beside a slow reader.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals::store::{ItemRange, Synchronous};

use crate::append::Chain;
use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::raw::{self, ONE_ROW_BYTES, OneRow};
use crate::{Bench, Result};

/// The argument that makes this program a process that commits.
pub(crate) const COMMIT_CHILD: &str = "commit-child";
/// Processes that commit to one file.
const PROCESSES: usize = 32;

/// Measures the figures of several processes.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    longest_wait(bench, report)?;
    wal_beside_reader(bench, report)
}

/// The method by which a process commits.
#[derive(Clone, Copy, Debug)]
enum CommitMethod {
    Store,
    /// One row by hand, with the busy handler of SQLite.
    Sqlite,
}

impl CommitMethod {
    const ALL: [Self; 2] = [Self::Store, Self::Sqlite];

    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Sqlite => "sqlite",
        }
    }
}

/// Lets processes commit to one file, each as fast as it can, and notes the longest wait of one commit: through stores,
/// and by hand.
fn longest_wait(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (processes, commits) = (bench.runs(PROCESSES, 3), bench.runs(200, 5));
    let path = bench.file("processes.db")?;
    drop(disk::open(&path, Synchronous::Full)?);
    let (longest, per_s) = wait_in_processes(CommitMethod::Store, &path, processes, commits)?;
    disk::open(&path, Synchronous::Full)?.verify((processes * commits) as u64)?;
    report.set("commit_wait_max_ms_32_processes", longest);
    report.extra("commits_per_s_32_processes", per_s);
    let path = bench.file("processes-sqlite.db")?;
    drop(OneRow::open(&path, Synchronous::Full)?);
    let (longest, per_s) = wait_in_processes(CommitMethod::Sqlite, &path, processes, commits)?;
    let rows: i64 = raw::connect(&path)?.query_row("SELECT count(*) FROM log", [], |row| row.get(0))?;
    same("rows by hand", rows, (processes * commits) as i64)?;
    report.set("commit_wait_max_ms_32_processes_sqlite", longest);
    report.extra("commits_per_s_32_processes_sqlite", per_s);
    Ok(())
}

/// Returns the longest wait of a commit in milliseconds, and the commits per second of all processes.
fn wait_in_processes(method: CommitMethod, path: &Path, processes: usize, commits: usize) -> Result<(f64, f64)> {
    let mut children = (0..processes).map(|n| start(method, path, n, commits)).collect::<Result<Vec<_>>>()?;
    for child in &mut children {
        // A child that has opened the file says so, and waits for its input to end.
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().ok_or("a child without an output")?).read_line(&mut line)?;
        same("the greeting of a child", line.as_str(), "ready\n")?;
    }
    let start = Instant::now();
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    let mut longest = 0.0_f64;
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let ms = text.trim().parse::<f64>().map_err(|_| format!("a child ended with {}: {text:?}", output.status))?;
        longest = longest.max(ms);
    }
    Ok((longest, (processes * commits) as f64 / start.elapsed().as_secs_f64()))
}

fn start(method: CommitMethod, path: &Path, n: usize, commits: usize) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args([COMMIT_CHILD, method.name()])
        .arg(path)
        .args([n.to_string(), commits.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// The process that commits: prints the longest wait of a commit, in milliseconds.
pub(crate) fn commit_child(args: Vec<String>) -> Result<()> {
    let [method, path, n, commits] = <[String; 4]>::try_from(args)
        .map_err(|_| "the child takes a method, a path, a number and a number of commits")?;
    let (path, n, commits) = (PathBuf::from(path), n.parse::<i64>()?, commits.parse::<usize>()?);
    let longest = match CommitMethod::ALL.into_iter().find(|known| known.name() == method) {
        Some(CommitMethod::Store) => {
            let opened = disk::open(&path, Synchronous::Full)?;
            let batches = Chain::new(&format!("process-{n}"), n as u64 + 1)?.take(commits);
            longest_of(batches, |batch| Ok(opened.store.commit(&batch)?))?
        }
        Some(CommitMethod::Sqlite) => {
            let conn = raw::connect(&path)?;
            conn.busy_timeout(Duration::from_secs(600))?;
            conn.execute_batch("PRAGMA synchronous = FULL")?;
            let data = "a".repeat(ONE_ROW_BYTES);
            longest_of(0..commits as i64, |ordinal| raw::append_row(&conn, n, ordinal, &data))?
        }
        None => return Err(format!("{method:?} is not a method").into()),
    };
    println!("{}", longest.as_secs_f64() * 1e3);
    Ok(())
}

/// Commits when the input of the process ends. Returns the longest duration of a commit.
fn longest_of<T>(batches: impl IntoIterator<Item = T>, commit: impl Fn(T) -> Result<()>) -> Result<Duration> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let mut longest = Duration::ZERO;
    for batch in batches {
        let start = Instant::now();
        commit(batch)?;
        longest = longest.max(start.elapsed());
    }
    Ok(longest)
}

/// Commits while another handle reads a list of 2,000 items, one every 2 ms, and notes the largest size of the WAL.
fn wal_beside_reader(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let path = bench.file("reader.db")?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    let mut listed = Chain::new("listed", 1)?;
    let items = bench.runs(2_000, 50);
    for batch in listed.take(items + 1) {
        opened.store.commit(&batch)?;
    }
    opened.empty_wal()?;
    let point = opened.store.thread("listed")?.head()?.ok_or("the list was not written")?;
    let mut wal = path.clone().into_os_string();
    wal.push("-wal");
    let (done, mut peak, mut commits) = (AtomicBool::new(false), 0, 0_usize);
    let mut chain = Chain::new("written", 2)?;
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<usize> {
            let mut seen = 0;
            let read = point.visit_items("messages", ItemRange::All, |_| {
                seen += 1;
                std::thread::sleep(Duration::from_millis(2));
                Ok(())
            });
            done.store(true, Ordering::Release);
            read?;
            Ok(seen)
        });
        while !done.load(Ordering::Acquire) {
            opened.store.commit(&chain.next())?;
            commits += 1;
            if commits.is_multiple_of(64) {
                peak = peak.max(std::fs::metadata(&wal)?.len());
            }
        }
        reader.join().map_err(|_| "the reader panicked")?
    })?;
    same("items that were read", read, items)?;
    peak = peak.max(std::fs::metadata(&wal)?.len());
    opened.verify((items + 1 + commits) as u64)?;
    report.set("wal_mb_peak_with_reader", peak as f64 / 1e6);
    report.extra("wal_commits_with_reader", commits as f64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_does_not_hold_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = FigureReport::default();
        wal_beside_reader(&Bench::quick_in(folder.path()), &mut report).unwrap();
        assert!(report.get("wal_mb_peak_with_reader").unwrap() < 64.0);
    }
}
