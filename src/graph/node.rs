//! What a node is: a function of the state.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::base::Value;
use crate::state::{DynState, DynUpdate, StateRef, Writes};

use super::async_node::NodeFuture;
use super::command::{Command, SendTo, Target};
use super::compiled::Graph;
use super::context::Context;

/// Any error of a node: `?` turns every error into it, and the run returns it as given.
pub type BoxError = Box<dyn std::error::Error + std::marker::Send + Sync>;

/// What a node returns.
pub type NodeResult<T> = Result<T, BoxError>;

/// What a node asks for: changes and commands.
#[derive(Clone, Debug, Default)]
pub struct NodeOutput {
    pub(crate) writes: Writes,
    pub(crate) commands: Vec<Command>,
}

/// What a node may return for a state `S`: nothing, an update, a [`Command`], a [`SendTo`], or an option or list of
/// these.
pub trait IntoOutput<S> {
    /// Returns what is asked for.
    fn into_output(self) -> NodeOutput;
}

impl NodeOutput {
    /// Makes the output of a plain change.
    pub fn update(writes: Writes) -> Self {
        Self { writes, commands: Vec::new() }
    }
}

impl<S> IntoOutput<S> for () {
    fn into_output(self) -> NodeOutput {
        NodeOutput::default()
    }
}

impl<S> IntoOutput<S> for Command {
    fn into_output(self) -> NodeOutput {
        NodeOutput { writes: Writes::default(), commands: vec![self] }
    }
}

impl<S> IntoOutput<S> for SendTo {
    fn into_output(self) -> NodeOutput {
        <Command as IntoOutput<S>>::into_output(Command::goto(Target::Send(self)))
    }
}

impl IntoOutput<DynState> for DynUpdate {
    fn into_output(self) -> NodeOutput {
        NodeOutput::update(crate::state::IntoUpdate::<DynState>::into_writes(self))
    }
}

impl<S, T: IntoOutput<S>> IntoOutput<S> for Option<T> {
    fn into_output(self) -> NodeOutput {
        self.map(T::into_output).unwrap_or_default()
    }
}

impl<S, T: IntoOutput<S>> IntoOutput<S> for Vec<T> {
    fn into_output(self) -> NodeOutput {
        let mut all = NodeOutput::default();
        for output in self.into_iter().map(T::into_output) {
            all.writes.extend(output.writes);
            all.commands.extend(output.commands);
        }
        all
    }
}

/// What a node is given.
pub(crate) enum NodeInput {
    State(StateRef),
    Value(Value),
}

/// Which of the two a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    State,
    Value,
}

/// Runs a node on the calling thread.
pub(crate) type RunNode = Arc<dyn Fn(NodeInput, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync>;
/// Starts a node that waits without blocking.
pub(crate) type StartNode = Arc<dyn Fn(NodeInput, Context) -> NodeFuture + std::marker::Send + Sync>;

/// How a node runs.
#[derive(Clone)]
pub(crate) enum Work {
    /// On a thread.
    Blocking(RunNode),
    /// As a future.
    Async(StartNode),
    /// As its driver likes: a graph.
    Either(RunNode, StartNode),
}

/// A node without its types.
#[derive(Clone)]
pub struct NodeBody {
    pub(crate) takes: Takes,
    pub(crate) work: Work,
    /// The graph that it runs, if it is one.
    pub(crate) child: Option<Arc<Graph>>,
}

/// A function that can be a node of a graph with state `S`:
///
/// - `Fn(&S) -> NodeResult<T>` and `Fn(&S, &Context) -> NodeResult<T>`;
/// - the same with a [`Part`](crate::state::Part) of the state in its place;
/// - `Fn(I) -> NodeResult<T>` and `Fn(I, &Context) -> NodeResult<T>` with an input type `I` of its own, which is read
///   from the argument of a [`SendTo`], or from the state by channel names. Write it `Own(function)`;
/// - `async fn(&S)` and `async fn(&S, &Context)`; `Fn(Arc<S>)`, `Fn(Arc<S>, Context)` and `Own(Fn(I, Context))` that
///   return a future: what captures something (a client, say) takes owned handles;
/// - a [`CompiledGraph`](super::CompiledGraph).
///
/// `T` is nothing, an update, a [`Command`], a [`SendTo`], or an option or list of these.
pub trait IntoNode<S, M> {
    /// Hides the types.
    fn into_node(self) -> NodeBody;
}

/// Marks a function that takes an input type of its own, not the state.
#[derive(Clone, Copy, Debug)]
pub struct Own<F>(pub F);

#[doc(hidden)]
pub struct TakesState;
#[doc(hidden)]
pub struct TakesStateAndContext;
#[doc(hidden)]
pub struct TakesOwn;
#[doc(hidden)]
pub struct TakesOwnAndContext;

pub(super) fn of_state<S: 'static>(
    run: impl Fn(&S, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync + 'static,
) -> NodeBody {
    let run = move |input: NodeInput, context: &Context| match &input {
        NodeInput::State(state) => match state.downcast_ref::<S>() {
            Some(state) => run(state, context),
            None => unreachable!("a node is given the state of its graph"),
        },
        NodeInput::Value(_) => unreachable!("a node of the state is given the state"),
    };
    NodeBody { takes: Takes::State, work: Work::Blocking(Arc::new(run)), child: None }
}

fn of_value<I: DeserializeOwned>(
    run: impl Fn(I, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync + 'static,
) -> NodeBody {
    let run = move |input: NodeInput, context: &Context| match input {
        NodeInput::Value(value) => run(value.to::<I>()?, context),
        NodeInput::State(_) => unreachable!("a node with its own input is given a value"),
    };
    NodeBody { takes: Takes::Value, work: Work::Blocking(Arc::new(run)), child: None }
}

impl<S, F, T> IntoNode<S, (TakesState, T)> for F
where
    S: 'static,
    F: Fn(&S) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, _: &Context| self(state).map(T::into_output))
    }
}

impl<S, F, T> IntoNode<S, (TakesStateAndContext, T)> for F
where
    S: 'static,
    F: Fn(&S, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, context: &Context| self(state, context).map(T::into_output))
    }
}

impl<S, F, I, T> IntoNode<S, (TakesOwn, I, T)> for Own<F>
where
    F: Fn(I) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, _: &Context| (self.0)(input).map(T::into_output))
    }
}

impl<S, F, I, T> IntoNode<S, (TakesOwnAndContext, I, T)> for Own<F>
where
    F: Fn(I, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, context: &Context| (self.0)(input, context).map(T::into_output))
    }
}
