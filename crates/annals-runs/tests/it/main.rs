//! The integration tests of runs, as one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod control;
#[cfg(target_os = "linux")]
mod hostile_files;
mod links;
mod statuses;

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
#[cfg(target_os = "linux")]
pub(crate) fn cases(share: u64, all: u64) -> u64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
}
