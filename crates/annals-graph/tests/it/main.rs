//! The one integration binary: tests the behaviour that a user of the library sees, on its public API.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

#[macro_use]
mod backends;

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
mod kv;
mod leases;
mod limits;
mod line_state;
mod lineage_borders;
mod lock_waits;
mod maps;
mod node_subgraphs;
mod nonblocking;
mod partials;
mod paths;
mod policies;
mod pushed_messages;
mod queue_limits;
mod queues;
mod read_messages;
mod resume_targets;
mod retried_calls;
mod retries;
mod run_borders;
mod run_messages;
mod runtimes;
mod schedules;
mod shared_lists;
mod signals;
mod sim;
mod statuses;
mod step_borders;
mod step_keys;
mod step_limits;
mod stopped_supersteps;
mod stored_steps;
mod streams;
mod subgraph_branches;
mod subgraphs;
mod task_limits;
mod task_messages;
mod test_clock;
mod thread_control;
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
