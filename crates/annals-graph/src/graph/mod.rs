//! Floor 3: the inert shape of a graph.
//!
//! A [`StateGraph`] collects nodes and edges; `compile` validates them and makes a [`CompiledGraph`], which holds the
//! triggers of its nodes and runs nothing. *Absent:* the superstep machine, threads, the store.
//!
//! Invariants: a compiled graph never changes; channels and nodes are numbered once; every problem of a graph is
//! reported at once.

mod answer;
mod async_node;
mod branch;
mod builder;
mod call;
mod command;
mod compiled;
mod context;
mod control;
mod draw;
mod entrypoint;
mod life;
mod message_part;
mod message_stream;
mod node;
mod options;
mod part_node;
mod policy;
mod problem;
mod schemas;
mod scope;
mod sequence;
mod sleep;
mod step_time;
mod task_body;
mod task_info;
mod validate;

pub use answer::InvalidResumeValue;
pub use branch::{IntoPath, IntoTargets, Named, PathLabel};
pub use builder::{Persistence, StateGraph};
pub use call::{AsyncTask, CallError, Started, Task};
pub use command::{Command, SendTo, Target};
pub use compiled::CompiledGraph;
pub use context::{Context, Interrupt, Interrupted, NoKv, NodeError};
pub use control::{Cancelled, RunControl};
pub use draw::{Drawing, DrawingEdge, DrawingNode};
pub use entrypoint::{Entry, Entrypoint, Final, IntoFinal};
pub use message_part::MessagePart;
pub use message_stream::MessageStream;
pub use node::{BoxError, IntoNode, IntoOutput, NodeBody, NodeOutput, NodeResult, Own};
pub use options::{NodeDefaults, NodeOptions};
pub use policy::{CachePolicy, RefreshOn, RetryPolicy, TimeoutPolicy};
pub use problem::{GraphError, GraphProblem};
pub use sequence::IntoSequence;
#[doc(hidden)]
pub use step_time::OutOfTime;
pub use task_body::{Awaited, Blocking, IntoTask, TaskBody};
pub use task_info::TaskInfo;
pub(crate) use task_info::TaskParts;

pub(crate) use answer::check_answer;
pub(crate) use async_node::NodeFuture;
pub(crate) use branch::{Branch, Path, PathFuture};
pub(crate) use call::{
    Attempt, Call, CallOutcome, CallWork, Called, Calls, Done, Returned, StoredCall, TaskPath, holds, questions, stops,
    task_labels,
};
pub(crate) use compiled::{Breakpoints, Graph, Join, Outgoing};
pub(crate) use context::{Around, Asked, CallBegan, ContextParts, Signal, task_namespace, without_tasks};
pub(crate) use control::CancelWait;
pub(crate) use entrypoint::{INPUT, VALUE, input_writes};
pub(crate) use life::Life;
pub(crate) use message_part::json_map;
pub(crate) use node::{GivenFields, NodeInput, RunNode, StartNode, Takes, Work};
pub(crate) use scope::{Host, Left, LivePart, Scope};
pub(crate) use step_time::StepTime;
pub(crate) use task_info::NodePlace;

/// The name of the entry: the source of the first edges.
pub const START: &str = "__start__";
/// The name of the exit: a target that ends a path.
pub const END: &str = "__end__";
