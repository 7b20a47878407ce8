//! Nodes: functions from the state to updates and commands.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::base::{CheckpointId, ListRef, Map, Namespace, Value};
use crate::state::erased::resolve;
use crate::state::{BoxWrite, Layout, ListRule, Output, StateError, StateRef, Writes};
use crate::task::Context;

pub use crate::state::IntoOutput;

use super::async_node::NodeFuture;
use super::command::{Command, SendTo, Target};
use super::compiled::Graph;
use super::signature::{Signature, SignatureKind};

/// The error of a node. `?` converts every error into it, and the run returns it as given.
pub type BoxError = Box<dyn std::error::Error + std::marker::Send + Sync>;

/// The result of a node.
pub type NodeResult<T> = Result<T, BoxError>;

/// The output of a node: updates and commands.
#[derive(Clone, Debug, Default)]
pub struct NodeOutput {
    pub(crate) writes: Writes,
    pub(crate) commands: Vec<Command>,
}

impl NodeOutput {
    /// Returns the output of a value that a node of a graph with state `S` returned.
    pub(super) fn of<S, T: IntoOutput<S>>(returned: T) -> Self {
        returned.into_output().into()
    }

    /// Returns the output of an update.
    pub fn update(writes: Writes) -> Self {
        Self { writes, commands: Vec::new() }
    }
}

/// The update of a command joins the writes of the node, so that the updates in a list apply in the order of the list.
/// A command for the parent graph keeps its update: the parent graph applies it.
impl From<Command> for NodeOutput {
    fn from(mut command: Command) -> Self {
        let writes = own_writes(&mut command);
        Self { writes, commands: vec![command] }
    }
}

impl<S> IntoOutput<S> for Command {
    fn into_output(mut self) -> Output {
        Output::instruction(own_writes(&mut self), self)
    }
}

/// Takes the writes of a command that the node's own graph applies.
fn own_writes(command: &mut Command) -> Writes {
    if command.parent { Writes::default() } else { std::mem::take(&mut command.update) }
}

impl<S> IntoOutput<S> for SendTo {
    fn into_output(self) -> Output {
        <Command as IntoOutput<S>>::into_output(Command::goto(Target::Send(self)))
    }
}

/// All instructions of an output are commands.
impl From<Output> for NodeOutput {
    fn from(output: Output) -> Self {
        let mut commands = Vec::new();
        for instruction in output.instructions {
            commands.extend(instruction.downcast::<Command>().map(|command| *command));
        }
        Self { writes: output.writes, commands }
    }
}

impl NodeOutput {
    /// Returns the output with all writes resolved: each has the number of a field of the layout.
    pub(crate) fn resolved(self, layout: &dyn Layout) -> Result<Self, StateError> {
        let command = |command: Command| Ok(Command { update: resolve(layout, command.update)?, ..command });
        let commands = self.commands.into_iter().map(command).collect::<Result<_, StateError>>()?;
        Ok(Self { writes: resolve(layout, self.writes)?, commands })
    }
}

/// The input of a node.
pub(crate) enum NodeInput {
    State(StateRef),
    Value(Value),
    Fields(GivenFields),
}

/// The kind of input that a node takes. A node that takes fields also takes a value: the argument of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    State,
    Value,
    Fields,
}

/// The fields of a state that a subgraph is given.
pub(crate) struct GivenFields {
    pub(crate) layout: Arc<dyn Layout>,
    pub(crate) state: StateRef,
    pub(crate) fields: Vec<usize>,
    /// The checkpoint that stores the state, if one does.
    pub(crate) at: Option<(Namespace, CheckpointId)>,
}

impl GivenFields {
    /// Returns the fields as a map.
    pub(crate) fn to_value(&self) -> Result<Value, StateError> {
        debug_assert!(self.fields.iter().all(|field| *field < self.layout.len()), "a subgraph is given fields");
        let member = |field: &usize| {
            let name = self.layout.name(*field).to_string();
            self.layout.to_value(&self.state, *field).map(|value| (name, value))
        };
        self.fields.iter().map(member).collect::<Result<Map, _>>().map(Value::Map)
    }

    /// Returns a list as a write for a channel of this rule in a subgraph. A subgraph that stores checkpoints stores a
    /// reference to the list. `None` if the rules differ, or the list is not stored.
    pub(crate) fn give(&self, field: usize, rule: Option<ListRule>, is_stored: bool) -> Option<BoxWrite> {
        debug_assert!(field < self.layout.len(), "a list is given from a field");
        if rule.is_none() || rule != self.layout.list_rule(field) {
            return None;
        }
        let of = self
            .at
            .clone()
            .map(|(namespace, checkpoint)| ListRef::new(namespace, checkpoint, Arc::clone(self.layout.name(field))));
        if is_stored && of.is_none() { None } else { self.layout.give(&self.state, field, of) }
    }
}

/// A function that runs a node on the calling thread.
pub(crate) type RunNode = Arc<dyn Fn(NodeInput, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync>;
/// A function that returns the future of a node.
pub(crate) type StartNode = Arc<dyn Fn(NodeInput, Context) -> NodeFuture + std::marker::Send + Sync>;

/// The work of a node.
#[derive(Clone)]
pub(crate) enum Work {
    /// A function that runs on a thread.
    Blocking(RunNode),
    /// A function that returns a future.
    Async(StartNode),
    /// Either, as the driver chooses: a subgraph.
    Either(RunNode, StartNode),
}

/// A node without its types.
#[derive(Clone)]
pub struct NodeBody {
    pub(crate) takes: Takes,
    pub(crate) work: Work,
    /// The subgraph, if the node is one.
    pub(crate) child: Option<Arc<Graph>>,
}

/// A function that can be a node of a graph with state `S`:
///
/// - `Fn(&S) -> NodeResult<T>` and `Fn(&S, &Context) -> NodeResult<T>`;
/// - the same with a [`Part`](crate::state::Part) of the state in its place;
/// - `Fn(I) -> NodeResult<T>` and `Fn(I, &Context) -> NodeResult<T>` with an input type `I` of its own, which is read
///   from the argument of a [`SendTo`], or from the state by channel names. Write it `Own(function)`;
/// - `async fn(&S)` and `async fn(&S, &Context)`, the same with a part, and `Own(async fn(I))`,
///   `Own(async fn(I, &Context))`;
/// - `Fn(Arc<S>)`, `Fn(Arc<S>, Context)`, the same with a part, and `Own(Fn(I, Context))` that return a future: a
///   closure that captures something (a client, say) takes owned handles;
/// - a [`CompiledGraph`](super::CompiledGraph).
///
/// `T` is nothing, an update, a [`Command`], a [`SendTo`], or an option, list, array or pair of these.
///
/// A node borrows the state, which belongs to the run. A closure that takes it by value does not compile:
///
/// ```compile_fail,E0277
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Chat { topic: String }
///
/// // Write `|chat: &Chat|`.
/// let graph = StateGraph::<Chat>::new().node("answer", |chat: Chat| Ok(Chat::update().topic(chat.topic)));
/// ```
///
/// # Example: a node that captures a client, and one with an input of its own
/// ```
/// use annals_graph::graph::Own;
/// use annals_graph::prelude::*;
/// use std::sync::Arc;
///
/// #[derive(State, Clone, Default)]
/// struct Pages { urls: Vec<String>, #[channel(append)] texts: List<String> }
///
/// #[derive(Clone)]
/// struct Client;
///
/// impl Client {
///     async fn get(&self, url: &str) -> Result<String, std::io::Error> {
///         Ok(format!("the text of {url}"))
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let client = Client;
/// let graph = StateGraph::<Pages>::new()
///     .node("first", {
///         let client = client.clone();
///         move |pages: Arc<Pages>| {
///             let client = client.clone();
///             async move { Ok(Pages::update().texts([client.get(&pages.urls[0]).await?])) }
///         }
///     })
///     .node("read", Own(move |url: String| {
///         let client = client.clone();
///         async move { Ok(Pages::update().texts([client.get(&url).await?])) }
///     }))
///     .edge(START, "first")
///     .branch("first", |pages: &Pages| pages.urls[1..].iter().map(|url| SendTo::new("read", url)).collect::<Vec<_>>())
///     .compile()?;
/// let urls = ["a.example", "b.example"].map(String::from).to_vec();
/// let done = annals_graph::block_on(graph.ainvoke((), Pages::update().urls(urls)))?;
/// assert_eq!(done.state().texts.to_vec(), ["the text of a.example", "the text of b.example"]);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "this function or closure cannot be a node of a graph whose state is `{S}`",
    label = "a node borrows the state: its first parameter is `&{S}`, with the `&`, and it returns a `NodeResult`",
    note = "a node is `Fn(&{S}) -> NodeResult<T>`, `Fn(&{S}, &Context) -> NodeResult<T>`, an `async fn` of the same, or a compiled graph; the documentation of `IntoNode` lists all forms",
    note = "`T` is `()`, an update such as `{S}::update()`, a `Command`, a `SendTo`, or an `Option`, `Vec`, array or pair of these",
    note = "write the types of a closure's parameters: `|state: &{S}| Ok({S}::update())`; wrap a function with an input of its own in `Own(..)`",
    note = "an async closure cannot capture by reference: take owned handles, `move |state: Arc<{S}>| {{ let client = client.clone(); async move {{ .. }} }}`"
)]
pub trait IntoNode<S, M> {
    /// Erases the types.
    fn into_node(self) -> NodeBody;
}

/// Marks a function that takes an input type of its own instead of the state.
#[derive(Clone, Copy, Debug)]
pub struct Own<F>(pub F);

pub(super) fn of_state<S: 'static>(
    run: impl Fn(&S, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync + 'static,
) -> NodeBody {
    let run = move |input: NodeInput, context: &Context| match &input {
        NodeInput::State(state) => match state.downcast_ref::<S>() {
            Some(state) => run(state, context),
            None => unreachable!("a node is given the state of its graph"),
        },
        NodeInput::Value(_) | NodeInput::Fields(_) => unreachable!("a node of the state is given the state"),
    };
    NodeBody { takes: Takes::State, work: Work::Blocking(Arc::new(run)), child: None }
}

fn of_value<I: DeserializeOwned>(
    run: impl Fn(I, &Context) -> NodeResult<NodeOutput> + std::marker::Send + Sync + 'static,
) -> NodeBody {
    let run = move |input: NodeInput, context: &Context| match input {
        NodeInput::Value(value) => run(value.to::<I>()?, context),
        NodeInput::State(_) | NodeInput::Fields(_) => unreachable!("a node with its own input is given a value"),
    };
    NodeBody { takes: Takes::Value, work: Work::Blocking(Arc::new(run)), child: None }
}

impl<S, F, T> IntoNode<S, (Signature<{ SignatureKind::TakesState as u8 }>, T)> for F
where
    S: 'static,
    F: Fn(&S) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, _: &Context| self(state).map(NodeOutput::of::<S, T>))
    }
}

impl<S, F, T> IntoNode<S, (Signature<{ SignatureKind::TakesStateAndContext as u8 }>, T)> for F
where
    S: 'static,
    F: Fn(&S, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, context: &Context| self(state, context).map(NodeOutput::of::<S, T>))
    }
}

impl<S, F, I, T> IntoNode<S, (Signature<{ SignatureKind::TakesOwn as u8 }>, I, T)> for Own<F>
where
    F: Fn(I) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, _: &Context| (self.0)(input).map(NodeOutput::of::<S, T>))
    }
}

impl<S, F, I, T> IntoNode<S, (Signature<{ SignatureKind::TakesOwnAndContext as u8 }>, I, T)> for Own<F>
where
    F: Fn(I, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, context: &Context| (self.0)(input, context).map(NodeOutput::of::<S, T>))
    }
}
