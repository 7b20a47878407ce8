//! The integration binary of the engine: its public API, as a program without graphs uses it.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod backends;
mod blames;
mod branches;
mod channels;
mod compacted_messages;
mod compactions;
mod compat;
mod damaged;
mod diffs;
mod facts;
mod hostile;
mod kv_search;
mod kv_versions;
mod locks;
mod memory_backend;
mod memory_threads;
mod on_both;
mod partials;
mod points;
mod prune;
mod retain;
mod store_copies;
mod store_model;
mod surface;
mod undo;
mod updates;
mod watch;

/// The longest wait of a test: longer than any wait of one that passes.
pub(crate) const GUARD: std::time::Duration = std::time::Duration::from_millis(PATIENT_MS);
/// The wait for a lock, in milliseconds, of handles that write beside each other: longer than a process that holds one
/// stands still on a busy machine.
pub(crate) const PATIENT_MS: u64 = 300_000;

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
pub(crate) fn cases(share: u64, all: u64) -> u64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
}
