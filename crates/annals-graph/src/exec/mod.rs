//! Floor 4: the superstep machine, without I/O.
//!
//! [`Machine`] begins at a loaded head, asks for effects (start this task, commit this batch) and is told their
//! completions (the task has ended, the batch was committed). It reads no clock, rolls no dice, spawns nothing and
//! touches no store: time and seeds are arguments. A task is begun by `task::open` and ended by `leave::close`; the
//! node between them is run by a driver, where it likes. *Absent:* the `Store`, clocks, threads, async.
//!
//! The machine is made of named parts (`parts`): [`Planning`](parts::Planning) holds the present superstep,
//! [`CalledTasks`](parts::CalledTasks) the results of called tasks, [`Commits`](parts::Commits) the batches of the run,
//! [`Showing`](parts::Showing) its stream.
//!
//! Invariants: the writes of a superstep are applied in the order of their tasks, whatever order they end in; a task
//! whose writes are stored is not run again; a machine that failed leaves no head behind.

mod apply;
mod attempts;
mod barrier;
mod before;
mod begin;
mod cache;
mod call;
mod call_id;
mod defer;
mod due;
mod edit;
mod effect;
mod entry;
mod error;
mod exit;
mod head;
mod input;
mod key;
mod leave;
mod limits;
mod load;
mod machine;
mod messages_read;
mod parts;
mod plan;
mod retry;
mod save;
mod show;
mod shown;
mod task;
mod view;

pub use error::{EditProblem, ResumeProblem, RunError};
pub use limits::TimeoutKind;
pub use shown::{CheckpointPart, CheckpointTask, DebugPart, DebugPayload, NodeUpdate, TaskEnd, TaskStart};

pub(crate) use before::Before;
pub(crate) use begin::resume_values_by_id;
pub(crate) use cache::{call_entry, node_labels};
pub(crate) use call::{
    CallEnd, CallJob, CallLeft, RETURN, attempt_write, attempts_write, call_end, call_failed, call_messages,
    call_result, call_start, close_call, known_call, next_attempt, open_call, shown_result, sleeps_before,
    still_asleep, versions_write,
};
pub(crate) use due::{verify_due, verify_joins};
pub(crate) use edit::{Copied, Editor, NodeEdit, as_node};
pub(crate) use effect::{Effect, Event, EventKind, EventMask, Recording, Request, RunStart, Status};
pub(crate) use exit::Saving;
pub(crate) use head::{DeltaBase, Head, PendingWrites};
pub(crate) use input::input_value;
pub(crate) use leave::{Closing, PathResult, close};
pub(crate) use limits::{begin, begin_limited, handle_timeout, overdue, poll_timeout};
pub(crate) use load::{Loader, given_of, interrupts_of, result_of, shown_error_of};
pub(crate) use machine::Machine;
pub(crate) use messages_read::MessagesRead;
pub(crate) use plan::{Order, plan};
pub(crate) use save::special;
pub(crate) use task::{Opened, TaskJob, TaskOutcome, TaskStatus, close_panicked, close_stopped, open};
pub(crate) use view::stored as stored_state;
