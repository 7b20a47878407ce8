//! Power cuts, errors and damage below the store of annals, from a seed, with the results as one line of JSON.
//!
//! `docs/reliability.md` describes the model of the disk, the workload, the verdicts and the commands.

#[cfg(unix)]
mod accidents;
#[cfg(unix)]
mod commands;
#[cfg(unix)]
mod controls;
#[cfg(unix)]
mod cuts;
#[cfg(unix)]
mod disk;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod flips;
#[cfg(unix)]
mod forgeries;
#[cfg(unix)]
mod kills;
#[cfg(unix)]
mod log;
#[cfg(unix)]
mod makers;
#[cfg(unix)]
mod model;
#[cfg(unix)]
mod observe;
#[cfg(unix)]
#[cfg(unix)]
mod proxy;
#[cfg(unix)]
mod races;
#[cfg(unix)]
mod recoveries;
#[cfg(unix)]
mod rng;
#[cfg(unix)]
mod spent;
mod sql;
#[cfg(unix)]
mod trace;
#[cfg(unix)]
mod vfs;
#[cfg(unix)]
mod watch;
#[cfg(unix)]
mod workload;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    commands::main()
}

#[cfg(not(unix))]
#[allow(clippy::print_stderr)]
fn main() -> std::process::ExitCode {
    eprintln!("annals-sim needs the VFS of a Unix system");
    std::process::ExitCode::from(2)
}
