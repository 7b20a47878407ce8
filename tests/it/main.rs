//! The integration binary of the engine: its public API, as a program without graphs uses it.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod backends;
mod blames;
mod both;
mod branches;
mod compat;
mod damaged;
mod diffs;
mod facts;
mod hostile;
#[cfg(target_os = "linux")]
mod hostile_files;
mod meaning;
mod points;
mod store_model;
mod updates;
mod watch;
