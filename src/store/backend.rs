//! What the implementers of a backend share: the rules that hold on every backend, and the parts that answers are made
//! of.
//!
//! A backend implements [`Log`](super::Log) and the capabilities that it has ([`log`](super::log)), and passes the suite
//! `store::conformance`. The log of a backend refuses and accepts what these rules say:
//!
//! | rule | of |
//! | --- | --- |
//! | [`Batch::validate`](super::Batch::validate), [`Batch::write_in_chain`](super::Batch::write_in_chain) | every batch |
//! | [`NewLease::apply`](super::NewLease::apply), [`LeaseGroup::admit`](super::LeaseGroup::admit), [`LeaseRecord::is_claim`](super::LeaseRecord::is_claim) | claims and the limits of groups |
//! | [`NewOperation::validate`](super::NewOperation::validate), [`NewOperation::is_stored_as`](super::NewOperation::is_stored_as), [`sort_changes`] | operations |
//! | [`sleeping`], [`without_timer`] | the timers of a head |
//! | [`ThreadInfo::new`](super::ThreadInfo::new), [`ThreadPage`](super::ThreadPage) | listings of threads |
//! | [`ThreadCounts::stated`](super::ThreadCounts::stated), [`ThreadCounts::of_tokens`](super::ThreadCounts::of_tokens) | the counts of a thread |
//! | [`validate_deleted`](super::batch::validate_deleted), [`trash_is_due`], [`deletable`], [`delete_unforked`] | deletions |
//! | [`is_pruned`], [`pruned_metadata`] | pruned checkpoints |
//! | [`Search`], [`SearchedEntry`], [`BegunWord`], [`NewestHits`] | searches |
//!
//! *Absent:* how rows are stored.

pub use super::counts::pruned_metadata;
pub use super::operation::sort_changes;
pub use super::prune::is_pruned;
pub use super::search::{BegunWord, HitPlace, NewestHits, Search, SearchedEntry};
pub use super::threads::{sleeping, without_timer};
pub use super::trash::{deletable, delete_unforked, trash_is_due};
