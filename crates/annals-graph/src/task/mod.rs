//! Floor 3, beside `graph`: the run-time context of a task, which user code sees while it runs.
//!
//! A [`Context`] gives a node the data of its run, its interrupts, its stream and the [`Task`]s it calls, through ports
//! that the drivers implement. *Absent:* the superstep machine, waiting, the store.
//!
//! Invariants: a context belongs to one attempt; an abandoned attempt has no effects.

mod answer;
mod attempts;
mod call;
mod context;
mod control;
mod life;
mod message_part;
mod message_stream;
mod receive;
mod scope;
mod sleep;
mod step_key;
mod step_time;
mod task_body;
mod task_info;
mod version;

pub use annals_runs::InvalidResumeValue;
pub use call::{AsyncTask, CallError, Started, Task};
pub use context::{Context, Interrupt, Interrupted, NoKv, NodeError};
pub use control::{Cancelled, RunControl};
pub use message_part::MessagePart;
pub use message_stream::MessageStream;
#[doc(hidden)]
pub use step_time::TimedOut;
pub use task_body::{Awaited, Blocking, IntoTask, TaskBody};
pub use task_info::TaskInfo;

pub(crate) use attempts::{AttemptFailure, Attempts};
pub(crate) use call::{
    Attempt, Call, CallOutcome, CallParts, CallRecord, CallValue, CallWork, Called, EndedCalls, FunctionResult,
    StoredCall, TaskPath, holds, interrupts_in, stops, task_labels,
};
pub(crate) use context::{
    Around, AttemptLog, CallBegan, ContextParts, Signal, StepAt, interrupt_id, task_namespace, without_tasks,
};
pub(crate) use control::CancelWait;
pub(crate) use life::Life;
pub(crate) use message_part::json_map;
pub(crate) use scope::{Host, LivePart, Scope};
pub(crate) use step_time::StepTime;
pub(crate) use task_body::TaskWork;
pub(crate) use task_info::{NodePlace, TaskParts};
pub(crate) use version::versions_in;
