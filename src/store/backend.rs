//! Rules that hold on every backend, and parts of answers, for implementers.
//!
//! A backend implements [`Log`](super::log::Log) and the capabilities that it has ([`log`](super::log)), and passes the
//! suite `store::conformance`. The log of a backend refuses and accepts what these rules say:
//!
//! | of | rules |
//! | --- | --- |
//! | every batch | [`Batch::validate`], [`Batch::write_in_chain`] |
//! | claims and the limits of groups | [`NewLease::apply`], [`LeaseGroup::admit`], [`LeaseRecord::is_claim`] |
//! | claims of runs | [`claim_runs`], [`ClaimRows`], [`ClaimCalls`], [`ClaimQuery::validate`] |
//! | reads that follow from others | [`derived`] |
//! | operations | [`NewOperation::validate`], [`NewOperation::is_stored_as`], [`sort_changes`] |
//! | the timers of a head | [`without_timer`] |
//! | listings of threads | [`ThreadInfo::new`], [`ThreadPage`] |
//! | the counts of a thread | [`ThreadCounts::stated`], [`ThreadCounts::of_tokens`] |
//! | deletions | [`validate_deleted`], [`trash_is_due`], [`deletable`] |
//! | pruned checkpoints | [`is_pruned`], [`pruned_metadata`] |
//! | searches | [`Search`], [`SearchedEntry`], [`BegunWord`], [`NewestHits`] |
//!
//! *Absent:* how rows are stored.

pub mod derived;

pub use super::batch::validate_deleted;
pub use super::claim::{ClaimCalls, ClaimRows, Claimable, claim_runs};
pub use super::counts::pruned_metadata;
pub use super::log::handle::CommitSettler;
pub use super::marked::without_timer;
pub use super::operation::sort_changes;
pub use super::prune::is_pruned;
pub use super::search::entry::{BegunWord, SearchedEntry};
pub use super::search::filter::{HitPlace, NewestHits, Search};
pub use super::threads::ThreadPage;
pub use super::trash::{deletable, trash_is_due};
pub use super::watch::LogProbe;

#[cfg(doc)]
use super::batch::Batch;
#[cfg(doc)]
use super::claim::ClaimQuery;
#[cfg(doc)]
use super::lease::{LeaseGroup, LeaseRecord, NewLease};
#[cfg(doc)]
use super::operation::NewOperation;
#[cfg(doc)]
use super::{ThreadCounts, ThreadInfo};
