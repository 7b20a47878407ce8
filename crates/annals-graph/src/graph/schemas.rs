//! The channels of the input and output of a graph, and those that a node reads.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use crate::state::{FieldKind, Layout, Part, ROOT, State};

use super::builder::StateGraph;
use super::compiled::{CompiledGraph, ContextType, Graph, Node};
use super::problem::GraphProblem;

/// The channels of the input and output of a graph, by number.
#[derive(Default)]
pub(crate) struct Schemas {
    /// For each field, true if the input may write it; `None` if it may write all.
    pub(crate) input: Option<Vec<bool>>,
    /// The fields of the output.
    pub(crate) output: Vec<usize>,
    /// True if there are managed values, so that each task gets a state of its own.
    pub(crate) managed: bool,
    /// True if the whole state is one value.
    pub(crate) root: bool,
}

impl Schemas {
    /// Returns the fields of the output; `None` if these are all.
    pub(crate) fn shown_output(&self, layout: &dyn Layout) -> Option<Arc<[usize]>> {
        (self.output.len() < layout.len()).then(|| self.output.as_slice().into())
    }
}

impl<S: Clone + Send + Sync + 'static> StateGraph<S> {
    /// Sets the channels that the input of a run may write: the input schema. Values for others are dropped. Default:
    /// all that are not private.
    ///
    /// # Example
    /// ```
    /// use annals::state::DynState;
    /// use annals_graph::prelude::*;
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
        self.draft.input = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the channels of the output of a run, and of the result for a parent graph: the output schema. Default: all
    /// that are not private.
    #[doc(alias = "output_schema")]
    pub fn output_channels(mut self, channels: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.draft.output = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the input schema to the channels of a part of the state, see [`StateGraph::input_channels`].
    pub fn input<I: Part<S>>(self) -> Self {
        self.input_channels(names::<I>())
    }

    /// Sets the output schema to the channels of a part of the state, see [`StateGraph::output_channels`].
    pub fn output<O: Part<S>>(self) -> Self {
        self.output_channels(names::<O>())
    }
}

impl<S> StateGraph<S> {
    /// Requires a context value of type `T`: a run without one ([`Run::context`](crate::Run::context)) fails before a
    /// node runs. The nodes read it with [`Context::value`](crate::task::Context::value). A subgraph shares the value
    /// of its parent graph.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
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
        self.draft.context = Some(ContextType { id: TypeId::of::<T>(), name: type_name::<T>() });
        self
    }
}

fn names<P: State>() -> Vec<Arc<str>> {
    let fields = P::fields();
    let channels = fields.iter().filter(|field| field.kind() != FieldKind::Managed);
    channels.map(|field| Arc::clone(field.name())).collect()
}

impl<S> CompiledGraph<S> {
    /// Returns the names of the channels of the output.
    pub fn output_channels(&self) -> impl Iterator<Item = &str> {
        self.graph.schemas.output.iter().map(|field| &**self.graph.layout.name(*field))
    }
}

/// Returns the fields of the schemas that the builder named, and adds their problems.
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
    debug_assert!(output.iter().chain(&taken).all(|field| *field < layout.len()), "a schema names fields of the state");
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

/// Sets the fields that each node reads.
pub(super) fn set_reads(layout: &dyn Layout, nodes: &mut [Node], problems: &mut Vec<GraphProblem>) {
    // A node without an input schema does not read the private channels.
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
        debug_assert!(field < self.layout.len(), "the input of a run is written to fields");
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
