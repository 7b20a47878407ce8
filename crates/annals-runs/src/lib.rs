//! Runs of workflows on the log of [`annals`]: status, steps, interrupts, signals, queues and control, without a graph.

mod control;
mod hash;
mod interrupts;
pub mod prelude;
mod queue;
mod resume_value;
mod sealed;
mod signal;
mod snapshot_runs;
mod special;
mod status;
mod steps;
mod store_runs;
mod thread_runs;

pub(crate) use annals::{base, history, store};

pub use control::ControlOrder;
pub use interrupts::OpenInterrupt;
pub use queue::{Queue, Queued};
pub use resume_value::{InvalidResumeValue, check_resume_value, choose_resume_value, received_signal};
pub use signal::{WaitingSignal, is_mailbox};
pub use snapshot_runs::SnapshotRuns;
pub use special::{SpecialWrite, interrupts_write};
pub use status::{ThreadStatus, status_name, status_named};
pub use steps::{AttemptInfo, StepInfo, StepState, Steps};
pub use store_runs::StoreRuns;
pub use thread_runs::ThreadRuns;
