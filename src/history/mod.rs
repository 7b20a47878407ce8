//! Floor 3: threads and their states, without a graph.
//!
//! A [`Thread`] is the history of one conversation or workflow; a [`Snapshot`] is the state at one checkpoint, with its
//! values read on demand; a [`StateThread`] reads and writes the state of a thread by its types; a [`Watch`] follows
//! the log. Any file can be listed, shown, compared and forked without the program that wrote it, and its messages can
//! be exported and imported. *Absent:* graphs and the executor.
//!
//! Invariants: nothing here changes a stored checkpoint; an update is a new checkpoint, and a fork is a new first
//! checkpoint that refers to the old one.

mod compare;
mod operate;
mod read;
mod remove;
mod thread;
mod transfer;
mod write;

pub use crate::store::{PartialInfo, StatusKind, ThreadCounts, ThreadFacts, ThreadInfo, ThreadQuery};
pub use compare::blame::{Blame, ChannelBlame};
pub use compare::diff::{ChannelDiff, Diff, diff};
pub use compare::evolution::{Evolution, ValueVersion};
pub use compare::items_diff::ItemDiff;
pub use compare::patch::{Patch, PatchError, PatchOp};
pub use compare::pickaxe::TextChange;
pub use operate::branches::ThreadBranch;
pub use operate::operation::{CommitGroup, Operation};
pub use read::damaged::{Damaged, ListItem, Placeholder};
pub use read::entries::EntryDiff;
pub use read::folded::FoldedMessages;
pub use read::messages::MessageQuery;
pub use read::snapshot::Snapshot;
pub use read::usage::{UsageCall, UsageQuery, UsageTotal};
pub use remove::delete_runs::DeletedRuns;
pub use remove::prune::{PrunePlan, PrunePolicy};
pub use thread::facts::FactsUpdate;
pub use thread::filter::HistoryFilter;
pub use thread::lease::Lease;
pub use thread::short_ids::short_ids;
pub use thread::watch::Watch;
#[cfg(feature = "futures")]
pub use thread::watch::WatchStream;
pub use thread::{History, Thread};
pub use transfer::{
    BrokenLine, BrokenLines, CopiedThread, CopyOptions, CopyProgress, CopyReport, ExportOptions, ExportReport, Framing,
    ImportOptions, ImportReport, Problem, Problems, TransferError,
};
pub use write::compaction::MessageCompaction;
pub use write::conflict::{OnConflict, StoredBranch};
pub use write::partial::{MessageWriter, Partial, PartialMessage};
pub use write::update::StateThread;
pub use write::{ModelUsage, NewItem, ThreadWrite};
