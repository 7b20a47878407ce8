//! Floor 3: threads and their states, without a graph.
//!
//! A [`Thread`] is the history of one conversation or workflow; a [`Snapshot`] is the state at one checkpoint, with its
//! values read on demand; a [`StateThread`] reads and writes the state of a thread by its types; a [`Watch`] follows
//! the log. Any file can be listed, shown, compared and forked without the program that wrote it, and its messages can
//! be exported and imported. *Absent:* graphs and the executor.
//!
//! Invariants: nothing here changes a stored checkpoint; an update is a new checkpoint, and a fork is a new first
//! checkpoint that refers to the old one.

mod blame;
mod branches;
mod carried;
mod conflict;
mod control;
mod copy;
mod damaged;
mod decoded;
mod delete_runs;
mod diff;
mod entries;
mod evolution;
mod facts;
mod filter;
mod info;
mod interrupts;
mod items_diff;
mod lease;
mod messages;
mod oldest_first;
mod operation;
mod partial;
mod patch;
mod pickaxe;
mod points;
mod prune;
mod prune_candidates;
mod queue;
mod search;
mod short_ids;
mod signal;
mod snapshot;
mod steps;
mod store_operations;
mod thread;
mod thread_file;
mod transfer;
mod trash;
mod undo;
mod update;
mod usage;
mod watch;
mod write;

pub use crate::store::{PartialInfo, StatusKind, ThreadCounts, ThreadFacts, ThreadInfo, ThreadQuery, ThreadStatus};
pub use blame::{Blame, ChannelBlame};
pub use branches::{Lineage, ThreadBranch};
pub use conflict::{OnConflict, StoredBranch};
pub use control::ControlOrder;
pub use damaged::{Damaged, ListItem, Placeholder};
pub use delete_runs::DeletedRuns;
pub use diff::{ChannelDiff, Diff, diff};
pub use entries::EntryDiff;
pub use evolution::{Evolution, ValueVersion};
pub use facts::FactsUpdate;
pub use filter::HistoryFilter;
pub use interrupts::OpenInterrupt;
pub use items_diff::ItemDiff;
pub use lease::Lease;
pub use messages::MessageQuery;
pub use operation::{CommitGroup, Operation, Operations};
pub use partial::{MessageWriter, Partial, PartialMessage};
pub use patch::{Patch, PatchError, PatchOp};
pub use pickaxe::TextChange;
pub use prune::{PrunePlan, PrunePolicy};
pub use queue::{Queue, Queued};
pub use short_ids::short_ids;
pub use signal::WaitingSignal;
pub use snapshot::Snapshot;
pub use steps::{AttemptInfo, StepInfo, StepState, Steps};
pub use store_operations::StoreOperations;
pub use thread::{History, Thread};
pub use transfer::{
    BrokenLine, BrokenLines, ExportOptions, ExportReport, Framing, ImportOptions, ImportReport, Problem, Problems,
    TransferError,
};
pub use update::StateThread;
pub use usage::{UsageQuery, UsageTotal};
pub use watch::Watch;
#[cfg(feature = "futures")]
pub use watch::WatchStream;
pub use write::{ModelUsage, NewItem, ThreadWrite};
