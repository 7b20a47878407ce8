//! Which channels go in and out of a graph, and which of them a node reads.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use crate::state::{FieldKind, Layout, Part, ROOT, State};

use super::builder::StateGraph;
use super::compiled::{CompiledGraph, ContextType, Graph, Node};
use super::problem::GraphProblem;

/// Which channels of a graph go where, by number.
#[derive(Default)]
pub(crate) struct Schemas {
    /// For each field, whether the input may write it; `None` if it may write all.
    pub(crate) input: Option<Vec<bool>>,
    /// The fields that the output of a run shows.
    pub(crate) output: Vec<usize>,
    /// Whether there are managed values, so that each task gets a state of its own.
    pub(crate) managed: bool,
    /// Whether the whole state is one value.
    pub(crate) root: bool,
}

impl Schemas {
    /// Returns the fields of the output, if these are not all.
    pub(crate) fn shown_output(&self, layout: &dyn Layout) -> Option<Arc<[usize]>> {
        (self.output.len() < layout.len()).then(|| self.output.as_slice().into())
    }
}

impl<S: Clone + Send + Sync + 'static> StateGraph<S> {
    /// Lets the input of a run write only these channels: the input schema. What it gives for others is dropped.
    /// Default: all that are not private.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::with_schema(DynSchema::new().last("question").last("answer").build())
    ///     .node("n", |_: &DynState| Ok(DynUpdate::new().set("answer", 42)))
    ///     .edge(START, "n")
    ///     .input_channels(["question"])
    ///     .output_channels(["answer"])
    ///     .compile()?;
    /// let done = graph.invoke((), DynUpdate::new().set("question", "?").set("answer", "dropped"))?;
    /// assert_eq!(done.state().get("answer"), &Value::from(42));
    /// assert_eq!(graph.output_channels().collect::<Vec<_>>(), ["answer"]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "input_schema")]
    pub fn input_channels(mut self, channels: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.input = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// Shows only these channels of the state as the output of a run, and hands only them to the graph around this
    /// one: the output schema. Default: all that are not private.
    #[doc(alias = "output_schema")]
    pub fn output_channels(mut self, channels: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.output = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// As [`StateGraph::input_channels`], with the channels of a part of the state.
    pub fn input<I: Part<S>>(self) -> Self {
        self.input_channels(names::<I>())
    }

    /// As [`StateGraph::output_channels`], with the channels of a part of the state.
    pub fn output<O: Part<S>>(self) -> Self {
        self.output_channels(names::<O>())
    }
}

impl<S> StateGraph<S> {
    /// Asks for a context value of type `T`: a run that is not given one with [`Run::context`](crate::Run::context)
    /// fails before anything is run. The nodes get it with [`Context::value`](super::Context::value). A graph that is a
    /// node shares the value of the run around it.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Chat { #[channel(last)] answer: String }
    ///
    /// struct User { name: String }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Chat>::new()
    ///     .context::<User>()
    ///     .node("greet", |_: &Chat, ctx: &Context| {
    ///         let user: &User = ctx.value().ok_or("there is a user")?;
    ///         Ok(Chat::update().answer(format!("Hello {}", user.name)))
    ///     })
    ///     .edge(START, "greet")
    ///     .compile()?;
    /// let done = graph.run(()).context(User { name: "Ann".into() }).invoke(Chat::update())?;
    /// assert_eq!(done.state().answer, "Hello Ann");
    ///
    /// let error = graph.invoke((), Chat::update()).unwrap_err();
    /// assert!(error.to_string().contains("asks for a context value"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "context_schema")]
    pub fn context<T: Any + Send + Sync>(mut self) -> Self {
        self.context = Some(ContextType { id: TypeId::of::<T>(), name: type_name::<T>() });
        self
    }
}

fn names<P: State>() -> Vec<Arc<str>> {
    let fields = P::fields();
    let channels = fields.iter().filter(|field| field.kind() != FieldKind::Managed);
    channels.map(|field| Arc::clone(field.name())).collect()
}

impl<S> CompiledGraph<S> {
    /// Returns the names of the channels that the output of a run shows.
    pub fn output_channels(&self) -> impl Iterator<Item = &str> {
        self.graph.schemas.output.iter().map(|field| &**self.graph.layout.name(*field))
    }
}

/// Finds the channels that the builder named, and what is wrong with them.
pub(super) fn schemas(
    layout: &dyn Layout,
    input: Option<&[Arc<str>]>,
    output: Option<&[Arc<str>]>,
    problems: &mut Vec<GraphProblem>,
) -> Schemas {
    let fields = || (0..layout.len()).filter(|field| layout.kind(*field) != FieldKind::Managed);
    let open = || fields().filter(|field| !layout.is_private(*field));
    let mut named = |names: &[Arc<str>], what: &str| find(layout, names, what, false, problems);
    let taken = match input {
        Some(names) => named(names, "the input"),
        None => open().collect(),
    };
    let output = match output {
        Some(names) => named(names, "the output"),
        None => open().collect(),
    };
    let mask = (0..layout.len()).map(|field| taken.contains(&field)).collect();
    Schemas {
        input: (taken.len() < fields().count()).then_some(mask),
        output,
        managed: (0..layout.len()).any(|field| layout.kind(field) == FieldKind::Managed),
        root: layout.len() == 1 && &**layout.name(0) == ROOT,
    }
}

fn find(
    layout: &dyn Layout,
    names: &[Arc<str>],
    what: &str,
    managed: bool,
    problems: &mut Vec<GraphProblem>,
) -> Vec<usize> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        match (0..layout.len()).find(|field| layout.name(*field) == name) {
            Some(field) if managed || layout.kind(field) != FieldKind::Managed => found.push(field),
            Some(_) => {
                let (channel, what) = (name.to_string(), what.to_owned());
                problems.push(GraphProblem::ManagedChannel { channel, what });
            }
            None => {
                let (channel, what) = (name.to_string(), what.to_owned());
                problems.push(GraphProblem::UnknownChannel { channel, what });
            }
        }
    }
    found
}

/// Tells the nodes what they read.
pub(super) fn set_reads(layout: &dyn Layout, nodes: &mut [Node], problems: &mut Vec<GraphProblem>) {
    // Who does not name what it reads does not see what others pass on among themselves.
    let hides = layout.is_dynamic() && (0..layout.len()).any(|field| layout.is_private(field));
    for node in nodes {
        if let Some(channels) = &node.settings.input {
            let what = format!("the input of node {:?}", node.name);
            node.reads = Some(find(layout, channels, &what, true, problems));
        } else if hides {
            node.reads = Some((0..layout.len()).filter(|field| !layout.is_private(*field)).collect());
        }
    }
}

impl Graph {
    /// Returns whether the input of a run may write a field.
    pub(crate) fn takes(&self, field: usize) -> bool {
        self.schemas.input.as_ref().is_none_or(|taken| taken[field])
    }

    /// Returns the place of the deferred node that a channel is the trigger of, among the deferred ones.
    pub(crate) fn deferral_of(&self, channel: u32) -> Option<usize> {
        if self.deferred.is_empty() {
            return None;
        }
        let node = self.triggered_node(channel)?;
        self.deferred.iter().position(|deferred| *deferred == node)
    }
}
