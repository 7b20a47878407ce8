//! Runs without a caller: workers, their queues, leases and schedules.
//!
//! Invariant: a run under a lease commits nothing after another owner has claimed its thread. *Absent:* the run itself,
//! which is `run`'s.

mod claims;
pub(super) mod lease;
mod looks;
mod queue;
#[cfg(feature = "schedules")]
mod schedule;
mod wakeup;
#[cfg(feature = "schedules")]
mod wall_clock;
mod work_loop;

pub use queue::QueueLimit;
#[cfg(feature = "schedules")]
pub use schedule::{MissedRuns, Schedule, Schedules};
#[cfg(feature = "schedules")]
pub use wall_clock::ClockChanges;
pub use work_loop::{Worker, WorkerReport};
