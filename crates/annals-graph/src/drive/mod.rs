//! Floor 6: the only code that blocks, spawns or waits.
//!
//! A driver is a loop around the machine: it loads heads, runs tasks on threads, commits batches and passes events on.
//! *Absent:* decisions about supersteps, which are the machine's, and SQL.
//!
//! Invariants: an acknowledged superstep is as durable as the [`Durability`] of its run says; a run that lost a race
//! gets an error; a head goes back into the cache only if it equals the head in the file.

mod added;
mod agenda;
mod attempt;
mod begun;
mod blocking;
mod cache;
mod call;
mod code;
mod commits;
mod drawn;
mod edit;
mod events;
mod feed;
mod host;
mod inside;
mod key;
mod lease;
mod load;
mod nonblocking;
mod outcome;
mod outside;
mod place;
mod pool;
mod queue;
mod reads;
mod run;
mod runtime;
#[cfg(feature = "schedules")]
mod schedule;
mod share;
mod snapshot;
mod streams;
mod timer;
mod transaction;
#[cfg(feature = "schedules")]
mod wall_clock;
mod worker;

pub use added::{ListChanges, RunState};
pub use edit::{StateUpdate, UpdateAs};
pub use events::{RunEnd, RunEvent, RunEventKind};
pub use nonblocking::block_on;
pub use outcome::Outcome;
pub use place::RunOn;
pub use queue::QueueLimit;
pub use run::{AsArgument, AsInput, AsUpdate, Durability, Input, IntoInput, Run};
#[cfg(feature = "schedules")]
pub use schedule::{MissedRuns, Schedule, Schedules};
pub use snapshot::{StateHistory, StateSnapshot, TaskState, TaskView};
pub use streams::{AsyncStream, RunOutput, Stream};
#[cfg(feature = "tokio")]
pub use timer::TokioTimer;
pub use timer::{Sleep, Timer};
#[cfg(feature = "schedules")]
pub use wall_clock::ClockChanges;
pub use worker::{Worker, WorkerReport};
