//! The figures of annals, and of its peers beside them.
//!
//! `figures` measures the library through its public API and writes one JSON object or a table. Nothing here is part
//! of the library; a ratio is always taken between two sides that ran alternately in the same process.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod agents;
mod allocs;
mod append;
mod channels;
mod command;
#[cfg(feature = "dbos")]
mod dbos;
mod disk;
mod figures;
mod group;
mod history;
mod imports;
mod inside;
mod inspect;
mod leases;
mod messages;
mod pages;
mod peers;
#[cfg(feature = "postgres")]
mod postgres;
mod processes;
mod profile;
mod raw;
mod raw_state;
mod raw_turns;
mod runtime;
#[cfg(feature = "salamander")]
mod salamander;
mod scale;
mod search;
mod stats;
mod supersteps;
mod talks;
mod turns;
mod workflows;
mod writes;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The result of a measurement; errors cross threads.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "usage: annals-bench figures [--json] [--quick] [--dir FOLDER] [--only NAME] [--python PROGRAM]
       annals-bench profile WORK FILE COUNT

  --json     one JSON object on stdout in place of the table
  --quick    few and short runs: a smoke test, no measurement
  --dir      where the files go (default: a fresh folder under the system's temporary folder)
  --only     one group (append, group, processes, disk, turns, lease, workflows, agents, history, writes, inspect,
             inspect_long, command, imports, channels, inside, supersteps, runtime, messages, pages, rss, langgraph, and
             salamander, dbos and postgres if built with the feature of this name), or the group of a figure
  --python   the Python that has langgraph (default: python3)

  profile    repeats one piece of work, for a profiler: append, append-by-hand, undo, commit, by-hand, turn,
             turn-by-hand, leased-turn, agent-turn, agent-turn-by-hand, worker, get-state, tail, open, chain, stream,
             fan-out (the last three use no FILE)";

/// The options of a measurement: the requested figures and the folder.
pub(crate) struct Bench {
    pub(crate) dir: PathBuf,
    pub(crate) quick: bool,
    pub(crate) only: Option<String>,
    pub(crate) python: String,
}

impl Bench {
    /// Returns the options of a smoke test in a folder.
    #[cfg(test)]
    pub(crate) fn quick_in(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), quick: true, only: None, python: "python3".into() }
    }

    /// Returns the path of a file that does not exist yet.
    pub(crate) fn file(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        for suffix in ["", "-wal", "-shm"] {
            let mut beside = path.clone().into_os_string();
            beside.push(suffix);
            if Path::new(&beside).exists() {
                std::fs::remove_file(&beside)?;
            }
        }
        Ok(path)
    }

    /// Returns `full`, or `quick` for a smoke test.
    pub(crate) fn runs(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("annals-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Vec<String>) -> Result<()> {
    let mut args = args.into_iter();
    match args.next().as_deref() {
        Some("figures") => {}
        Some("profile") => return profile::run(args.collect()),
        Some(processes::COMMIT_CHILD) => return processes::commit_child(args.collect()),
        Some(workflows::WORK_CHILD) => return workflows::work_child(args.collect()),
        Some(workflows::CRASH_CHILD) => return workflows::crash_child(args.collect()),
        Some(turns::RSS_CHILD) => return turns::rss_child(args.collect()),
        _ => return Err(USAGE.into()),
    }
    let (mut json, mut quick, mut dir, mut only, mut python) = (false, false, None, None, "python3".to_owned());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            "--dir" => dir = Some(PathBuf::from(value()?)),
            "--only" => only = Some(value()?),
            "--python" => python = value()?,
            _ => return Err(format!("{arg:?} is no option\n{USAGE}").into()),
        }
    }
    let parent = dir.unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent)?;
    // Removed when it is dropped, whatever the measurement comes to.
    let folder = tempfile::Builder::new().prefix("annals-bench-").tempdir_in(parent)?;
    let bench = Bench { dir: folder.path().to_path_buf(), quick, only, python };
    let report = figures::measure(&bench)?;
    if json {
        println!("{}", report.to_json())
    } else {
        print!("{}", report.to_table())
    }
    Ok(())
}
