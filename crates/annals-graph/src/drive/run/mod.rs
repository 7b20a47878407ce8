//! One run of a graph: its settings, head, tasks, subgraphs, commits and outcome.
//!
//! Invariant: a run that began ends, with its outcome, an error or a drop guard, and releases its lease. *Absent:* the
//! loops of the drivers, which are `io`'s.

pub(super) mod active_run;
mod async_state;
pub(super) mod attempt;
pub(super) mod begin;
pub(super) mod builder;
pub(super) mod cache;
pub(super) mod call;
pub(super) mod commits;
mod drawing;
mod edit;
pub(super) mod events;
mod graph_version;
pub(super) mod host;
mod idempotency;
pub(super) mod input;
mod load;
pub(super) mod outcome;
mod records;
pub(super) mod signals;
mod snapshot;
mod state;
mod subgraph;
pub(super) mod target;
mod transaction;

pub use async_state::AsyncStateHistory;
pub use builder::{Durability, Run};
pub use edit::{StateUpdate, UpdateAs};
pub use events::{RunEnd, RunEvent, RunEventKind};
pub use input::{Input, IntoInput};
pub use outcome::Outcome;
pub use snapshot::{HeadState, StateHistory, StateSnapshot, TaskState, TaskView};
pub use state::{ListChanges, RunState};
pub use target::RunOn;
