//! The one integration binary: what a user of the library sees, on its public API.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::duplicate_mod, clippy::print_stdout)]

mod added;
/// The same runs on a file.
#[path = "added.rs"]
mod added_in_a_file;
mod awaited;
/// The same tasks on a file.
#[path = "awaited.rs"]
mod awaited_in_a_file;
mod building;
mod cache;
/// The same caches in a file.
#[path = "cache.rs"]
mod cache_in_a_file;
mod cancelling;
/// The same runs on a file.
#[path = "cancelling.rs"]
mod cancelling_in_a_file;
mod channels;
/// The same channels in a file.
#[path = "channels.rs"]
mod channels_in_a_file;
mod clock;
mod commands;
/// The same commands on a file.
#[path = "commands.rs"]
mod commands_in_a_file;
mod crash;
mod draining;
/// The same on a file.
#[path = "draining.rs"]
mod draining_in_a_file;
mod durable;
/// The same on a file.
#[path = "durable.rs"]
mod durable_in_a_file;
mod edits;
/// The same edits on a file.
#[path = "edits.rs"]
mod edits_in_a_file;
mod forms;
mod functional;
/// The same on a file.
#[path = "functional.rs"]
mod functional_in_a_file;
mod graphs;
/// The same graphs on a file.
#[path = "graphs.rs"]
mod graphs_in_a_file;
mod halfway;
/// The same runs on a file.
#[path = "halfway.rs"]
mod halfway_in_a_file;
mod inside;
/// The same graphs on a file.
#[path = "inside.rs"]
mod inside_in_a_file;
mod kv;
mod limits;
/// The same limits on a file.
#[path = "limits.rs"]
mod limits_in_a_file;
mod lines;
mod nonblocking;
/// The same runs on a file.
#[path = "nonblocking.rs"]
mod nonblocking_in_a_file;
mod paths;
/// The same paths on a file.
#[path = "paths.rs"]
mod paths_in_a_file;
mod places;
mod policies;
/// The same policies on a file.
#[path = "policies.rs"]
mod policies_in_a_file;
mod pushed_calls;
#[path = "pushed_calls.rs"]
mod pushed_calls_in_a_file;
mod pushing;
/// The same on a file.
#[path = "pushing.rs"]
mod pushing_in_a_file;
mod sharing;
/// The same lists in a file.
#[path = "sharing.rs"]
mod sharing_in_a_file;
mod sim;
mod step_limits;
/// The same limits on a file.
#[path = "step_limits.rs"]
mod step_limits_in_a_file;
mod streams;
/// The same streams on a file.
#[path = "streams.rs"]
mod streams_in_a_file;
mod subgraph_branches;
/// The same on a file.
#[path = "subgraph_branches.rs"]
mod subgraph_branches_in_a_file;
mod subgraphs;
/// The same graphs on a file.
#[path = "subgraphs.rs"]
mod subgraphs_in_a_file;
mod task_limits;
/// The same limits on a file.
#[path = "task_limits.rs"]
mod task_limits_in_a_file;
mod transfer;
/// The same on a file.
#[path = "transfer.rs"]
mod transfer_in_a_file;
