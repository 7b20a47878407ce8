//! The integration tests: the behaviour of agents on the public API.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod compactions;
mod durable;
mod graphs;
mod hooks;
mod kills;
mod langchain;
mod outputs;
mod spans;
mod streams;
mod sub_agents;
mod tools;

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
pub(crate) fn cases(share: u64, all: u64) -> u64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
}
