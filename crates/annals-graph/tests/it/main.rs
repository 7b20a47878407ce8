//! The one integration binary: tests the behaviour that a user of the library sees, on its public API.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

#[macro_use]
mod places;

mod added;
mod awaited;
mod building;
mod cache;
mod call_borders;
mod cancelling;
mod changes;
mod channels;
mod clock;
mod commands;
mod crash;
mod draining;
mod drawings;
mod due_nodes;
mod durable;
mod edits;
mod effects;
mod events;
mod exec_borders;
mod exec_errors;
mod exec_shows;
mod forms;
mod functional;
mod graphs;
mod halfway;
mod hands;
mod inside;
mod kv;
mod leases;
mod limits;
mod lineage_borders;
mod lines;
mod lock_waits;
mod maps;
mod nonblocking;
mod outside;
mod partials;
mod paths;
mod policies;
mod pushed_calls;
mod pushing;
mod queue_limits;
mod queues;
mod read_messages;
mod remembered;
mod resume_targets;
mod retries;
mod run_borders;
mod runtimes;
mod schedules;
mod sharing;
mod signals;
mod sim;
mod statuses;
mod step_borders;
mod step_keys;
mod step_limits;
mod stored_steps;
mod streams;
mod subgraph_branches;
mod subgraphs;
mod task_limits;
mod traces;
mod transactions;
mod transfer;
mod unblocking;
mod without_graph;
mod workers;

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
pub(crate) fn cases(share: u64, all: u64) -> u64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
}
