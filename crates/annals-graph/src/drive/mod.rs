//! Floor 6: the only code that blocks, spawns or waits.
//!
//! A driver is a loop around the machine: it loads heads, runs tasks on threads, commits batches and passes events on.
//! *Absent:* decisions about supersteps, which are the machine's, and SQL.
//!
//! Invariants: an acknowledged superstep is as durable as the [`Durability`] of its run says; a run that lost a race
//! gets an error; a head goes back into the cache only if it equals the head in the file.

mod io;
mod run;
mod worker;

#[cfg(feature = "tokio")]
pub use io::TokioTimer;
pub use io::{AsyncStream, RunOutput, Sleep, Stream, Timer, block_on};
pub use run::{
    AsyncStateHistory, Durability, HeadState, Input, IntoInput, ListChanges, Outcome, Run, RunEnd, RunEvent,
    RunEventKind, RunOn, RunState, StateHistory, StateSnapshot, StateUpdate, TaskState, TaskView, UpdateAs,
};
#[cfg(feature = "schedules")]
pub use worker::{ClockChanges, MissedRuns, Schedule, Schedules};
pub use worker::{QueueLimit, Worker, WorkerReport};
