//! The suite that every backend must pass.
//!
//! [`CASES`] is the contract of [`Log`], case by case: each takes an empty backend and panics where it does
//! something else than the contract says. The check of the backend finds nothing afterwards. A test runner may report
//! them one by one, or call [`run`]. [`strict_cases`] are for backends which, like the one in memory, also refuse what
//! shows a mistake of the caller. A backend that several processes can open has a [`race`] of processes as well.
//! *Absent:* durability and files; those are tested where a backend has them.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//!
//! use annals::store::{MemoryBackend, conformance};
//!
//! conformance::run(&|| Arc::new(MemoryBackend::new()));
//! ```
#![allow(clippy::expect_used, reason = "the suite reports by panicking")]

mod basics;
mod batches;
mod build;
mod calls;
mod claims;
mod deletion;
mod following;
mod forks;
mod heads;
mod leases;
mod limits;
mod lineage;
mod listing;
mod lists;
mod operations;
mod processes;
mod pruning;
mod references;
mod replay;
mod search;
mod side_tables;
mod strict;
mod threads;
mod timers;
mod transactions;
mod values;
mod writes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::log::Log;

/// A case: it takes an empty backend, and panics if that does not hold the contract.
pub type Case = fn(&dyn Log);

/// Every case with its title.
pub const CASES: &[(&str, fn(&dyn Log))] = &[
    ("an empty backend answers", basics::empty),
    ("the first batch", basics::first),
    ("a chain, in one batch and in several", basics::chain),
    ("two threads do not see each other", basics::two_threads),
    ("namespaces of one thread do not see each other", basics::namespaces),
    ("a submitted batch settles", basics::submit),
    ("updated names what the checkpoint changed", basics::updated),
    ("seen holds the newest versions of every node", basics::seen),
    ("what is not stored is not found", basics::not_found),
    ("a whole state in one read", lineage::whole_states),
    ("the checkpoints of a lineage by their ordinals", lineage::ancestors),
    ("the versions of a lineage, newest first", lineage::versions),
    ("the item with an id", lineage::items_by_id),
    ("a search of a list", lineage::list_search),
    ("a fork of another thread leaves its source alone", forks::other_thread),
    ("a fork of a fork, across namespaces", forks::other_namespace),
    ("a branch does not see the one that it was abandoned for", forks::abandoned),
    ("a moved head is a conflict and writes nothing", heads::own),
    ("a moved head of an ancestor is a conflict", heads::ancestor),
    ("a head that should not be there is a conflict", heads::none_expected),
    ("pending writes on a moved head are a conflict", heads::pending),
    ("repeating a batch is safe", heads::repeat),
    ("a batch that was refused takes the rest of its chain along", heads::chain),
    ("batches that go along are written with the first one, or not", heads::together),
    ("batches that go along and were refused leave nothing", heads::none_of_all),
    ("a taken id with other content is a duplicate", heads::duplicate),
    ("eight threads write to eight threads", heads::many_threads),
    ("eight threads race for one head", heads::race),
    ("limits of a batch", limits::batch),
    ("limits of a checkpoint", limits::checkpoint),
    ("limits of changes and items", limits::changes),
    ("limits of writes", limits::writes_of_tasks),
    ("what stands at a limit is accepted", limits::at_the_limit),
    ("list operations", lists::operations),
    ("a range comes before the other operations of its change", lists::range_first),
    ("the tail and a range of positions", lists::ranges),
    ("a list that was emptied or replaced loses its items", lists::kinds),
    ("positions far apart", lists::far_positions),
    ("a visitor can stop", lists::visitor),
    ("a list that references another one", references::operations),
    ("lists that reference one another", references::below_one_another),
    ("repeating a batch with a reference is safe", references::repeated),
    ("references that are refused", references::refused),
    ("writes that say what differs from a list", references::deltas),
    ("random histories with forks equal their replays", replay::random_history),
    ("the batches of a thread make it anew", batches::of_a_thread),
    ("values of every size", values::sizes),
    ("every field of an item", values::item_fields),
    ("foreign bytes are stored verbatim", values::foreign),
    ("equal bytes in many places", values::shared),
    ("every field of a checkpoint", values::checkpoint_fields),
    ("writes come in the order of path, task and index", writes::order),
    ("writes at special indexes are replaced, others keep their first value", writes::special_indexes),
    ("consumed writes are visible on the parent", writes::consumed),
    ("bytes of earlier and of consumed writes", writes::references),
    ("an empty list of writes is not null", writes::empty_list),
    ("writes belong to one checkpoint", writes::of_one_checkpoint),
    ("checkpoints come newest first, in pages", listing::pages),
    ("namespaces can be listed together", listing::mixed),
    ("pages stay as they are while a commit comes in", listing::stable),
    ("an id can be found by its beginning", listing::prefixes),
    ("threads come in order, in pages", listing::threads),
    ("the check counts what is there", listing::check),
    ("a deleted thread is gone, and only it", deletion::whole),
    ("a thread that others were forked off is not deleted alone", deletion::forks),
    ("the refusal to delete a thread names a bounded number of forks", deletion::many_forks),
    ("a deleted thread is hidden before it is erased", deletion::hidden),
    ("a seq is used once", deletion::seqs),
    ("what is not there is passed over when it is deleted", deletion::nothing),
    ("threads in the trash are deleted when their time has ended", deletion::trash),
    ("a run on a deleted thread gets a conflict", deletion::under_way),
    ("the newest checkpoint of a run", deletion::of_run),
    ("the log is followed in its order", following::order),
    ("deleted threads are passed over by a follower", following::deleted),
    ("a commit is signalled to a follower", following::signals),
    ("a head that was moved", operations::moved_head),
    ("a batch with an operation", operations::batch_with_operation),
    ("a head that was moved to the newest checkpoint", operations::moved_to_the_newest),
    ("heads of subgraphs move with the head of the thread", operations::subgraphs),
    ("an operation on what has changed is refused as a whole", operations::refused),
    ("an operation that rests on the newest one is refused if another came between", operations::expected_newest),
    ("repeating an operation is safe", operations::repeated),
    ("names of branches", operations::fields),
    ("facts about threads", operations::facts),
    ("threads come by their last activity, in pages", threads::by_activity),
    ("threads come by their status and their facts, as these change", threads::by_status),
    ("pages of threads, by activity and by id", threads::pages),
    ("threads count their messages, tokens and costs", threads::counted),
    ("the queue of a graph comes by priority, then age", threads::queue),
    ("forks of a thread, and the origin of a fork", operations::forks),
    ("operations come newest first, in pages", operations::listing),
    ("timers of a head that was moved", operations::timers),
    ("branches come newest first, with their last checkpoints", operations::branches),
    ("every field of a hit of a search", search::fields),
    ("a search and its filters", search::filters),
    ("pages of a search", search::pages),
    ("a search tells the items that are on the head", search::on_head),
    ("a search passes over references", search::references),
    ("a search passes over writes that no channel holds", search::of_writes),
    ("a search of values, maps and lists without an index", search::channels),
    ("a search of the parts of texts", search::parts),
    ("a search does not find deleted threads", search::deleted),
    ("a search takes every character of its query for text", search::hostile),
    ("a search of long texts", search::long_texts),
    ("every field of a hit of an indexed search", |backend| search::indexed(backend, search::fields)),
    ("an indexed search and its filters", |backend| search::indexed(backend, search::filters)),
    ("pages of an indexed search", |backend| search::indexed(backend, search::pages)),
    ("an indexed search tells the items that are on the head", |backend| search::indexed(backend, search::on_head)),
    ("an indexed search passes over references", |backend| search::indexed(backend, search::references)),
    ("an indexed search passes over writes that no channel holds", |backend| {
        search::indexed(backend, search::of_writes)
    }),
    ("an indexed search of values, maps and lists without an index", |backend| {
        search::indexed(backend, search::channels)
    }),
    ("an indexed search of the parts of texts", |backend| search::indexed(backend, search::parts)),
    ("an indexed search does not find deleted threads", |backend| search::indexed(backend, search::deleted)),
    ("an indexed search takes every character of its query for text", |backend| {
        search::indexed(backend, search::hostile)
    }),
    ("an indexed search of long texts", |backend| search::indexed(backend, search::long_texts)),
    ("a linear history that is pruned", pruning::linear),
    ("what a pruned checkpoint says, and what refuses it", pruning::refused),
    ("checkpoints on which others rest are not pruned", pruning::held),
    ("a value in two places is pruned with the second one", pruning::shared),
    ("namespaces of subgraphs are pruned as a whole", pruning::namespaces),
    ("a search finds the items that checkpoints show after a pruning", pruning::searched),
    ("timers are listed by their timestamps", timers::listed),
    ("timers go when they are passed", timers::passed),
    ("the timers of one namespace are listed", timers::of_namespace),
    ("timers that make no sense are refused", timers::refused),
    ("tasks that sleep need timers", timers::missed),
    ("a lease is held by one owner, and each claim raises its epoch", leases::claimed),
    ("a batch of an owner that lost its lease is refused as a whole", leases::lost),
    ("a claim and a release in batches with checkpoints", leases::with_checkpoints),
    ("repeating a batch with a lease is safe", leases::repeated),
    ("leases of threads that do not exist", leases::of_no_thread),
    ("eight threads race for one lease", leases::race),
    ("a group does not count the last claim of the claimant", leases::own_claim),
    ("runs are claimed by priority, then age", claims::order),
    ("runs whose timers have passed are claimed", claims::timers),
    ("a claim holds the limits of its queue", claims::limits),
    ("a claim holds the rate of its queue", claims::rates),
    ("a run whose lease has lapsed is claimed again, and its first owner is refused", claims::lapsed),
    ("eight threads claim the runs of one queue", claims::race),
    ("statements and the batch beside them are stored together, or SQL is not supported", transactions::together),
    ("a group of leases holds its limits", leases::groups),
    ("a lease is in the groups that its last claim named", leases::groups_left),
    ("eight threads race for the places of a group", leases::group_race),
    ("every field of an entry of the key-value memory", side_tables::kv_fields),
    ("the order of the key-value memory", side_tables::kv_order),
    ("entries of the key-value memory expire", side_tables::kv_expiry),
    ("limits of the key-value memory", side_tables::kv_limits),
    ("vectors of the key-value memory", side_tables::kv_vectors),
    ("lifetimes of the key-value memory", side_tables::kv_lifetimes),
    ("the root of the key-value memory", side_tables::kv_root),
    ("eight threads reference the key-value memory", side_tables::kv_many_threads),
    ("values of the cache", side_tables::cache_values),
    ("the cache is cleared by the beginning of namespaces", side_tables::cache_clear),
];

/// Returns the cases of [`run`], with their titles.
pub fn cases() -> &'static [(&'static str, Case)] {
    CASES
}

/// Returns the further cases, with their titles, for a backend that refuses mistakes of its caller.
pub fn strict_cases() -> &'static [(&'static str, Case)] {
    strict::CASES
}

/// Runs every case, each on a backend of its own, and bounds the calls that a store makes of it.
///
/// # Panics
/// If a case does; the message names every case that failed.
pub fn run(make: &dyn Fn() -> Arc<dyn Log>) {
    run_all(cases(), make);
    run_calls(make);
}

/// Bounds the calls that a store makes of an empty backend.
///
/// # Panics
/// If a store makes other calls than the bounds allow.
pub fn run_calls(make: &dyn Fn() -> Arc<dyn Log>) {
    calls::bounds(make());
}

/// Runs the part of a process in a race of several for one thread: their numbers count from 0. It is for a backend
/// that several processes can open. [`race_ended`] compares the outcome.
///
/// # Panics
/// If a commit is refused with another error than a conflict.
pub fn race(backend: &dyn Log, process: u64) {
    processes::race(backend, process);
}

/// Verifies the outcome of a [`race`] of so many processes.
///
/// # Panics
/// If a checkpoint is missing, stored twice, or out of order.
pub fn race_ended(backend: &dyn Log, processes: u64) {
    processes::ended(backend, processes);
}

/// Runs some cases, each on a backend of its own.
///
/// # Panics
/// As [`run`].
pub fn run_all(cases: &[(&str, Case)], make: &dyn Fn() -> Arc<dyn Log>) {
    let failures: Vec<String> = cases.iter().filter_map(|(title, case)| failure(title, *case, make)).collect();
    assert!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn failure(title: &str, case: Case, make: &dyn Fn() -> Arc<dyn Log>) -> Option<String> {
    let run = || {
        let backend = make();
        case(backend.as_ref());
        build::clean(backend.as_ref());
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let reason = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
    Some(format!("- {title}: {reason}"))
}
