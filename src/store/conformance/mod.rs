//! The suite that every backend must pass.
//!
//! [`cases`] are the contract of [`Log`], case by case: each takes an empty backend and panics where it does
//! something else than the contract says. The check of the backend finds nothing afterwards. A test runner may report
//! them one by one, or call [`run`]. A backend that several processes can open has a [`race`] of processes as well.
//! Rules that need no look at a log ([`backend`](super::backend)) are tested where they are written.
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
mod heads;
mod histories;
mod leases;
mod listing;
mod lists;
mod mirror;
mod operations;
mod processes;
mod pruning;
mod references;
mod search;
mod short_cuts;
mod side_tables;
mod threads;
mod timers;
mod transactions;
mod values;

#[cfg(test)]
mod tests;

pub use self::calls::run_calls;
pub use self::processes::{race, race_ended};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use self::mirror::mirrored;
use self::search::with_and_without_index;
use super::log::Log;

/// A case: it takes an empty backend, and panics if that does not hold the contract.
pub type Case = fn(&dyn Log);

/// Names each case by its module and its function, and runs it `once`, or as the module says.
macro_rules! cases {
    ($($module:ident $run:ident: $($case:ident),+;)+) => {
        &[$($((
            concat!(stringify!($module), "::", stringify!($case)),
            (|backend| $run(backend, $module::$case)) as Case,
        )),+),+]
    };
}

fn once(backend: &dyn Log, case: Case) {
    case(backend);
}

/// The cases of [`run`], with their names.
const CASES: &[(&str, Case)] = cases! {
    basics once: empty, submit, not_found;
    histories mirrored: random;
    heads mirrored: repeat;
    heads once: race, chain, together, none_of_all;
    lists mirrored: ranges;
    references once: refused_references;
    references mirrored: deltas;
    values mirrored: sizes, item_fields;
    values once: at_the_limit;
    listing mirrored: threads_and_check;
    deletion mirrored: whole, forks;
    deletion once: hidden, trash;
    following once: order, signals;
    operations mirrored: batch_with_operation, refused_whole, listing;
    threads once: by_status, pages, counted, queue;
    pruning mirrored: linear, pruned_state, namespaces, searched;
    timers mirrored: of_moved_head;
    timers once: missed;
    leases once: random, with_checkpoints, repeated, race;
    claims once: order, timers, limits, rates, lapsed, race;
    transactions once: together;
    side_tables once: kv_random, kv_limits, cache_random;
    search with_and_without_index: fields, filters, pages, on_head, references_and_writes, channels, parts, deleted;
    search with_and_without_index: hostile, long_texts;
};

/// Returns the cases of [`run`], with their names.
pub fn cases() -> &'static [(&'static str, Case)] {
    CASES
}

/// Runs every case, each on a backend of its own, and bounds the calls that a store makes of it.
///
/// # Panics
/// If a case does; the message names every case that failed.
pub fn run(make: &dyn Fn() -> Arc<dyn Log>) {
    run_all(cases(), make);
    run_calls(make);
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
        short_cuts::law(backend.as_ref());
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let reason = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
    Some(format!("- {title}: {reason}"))
}
