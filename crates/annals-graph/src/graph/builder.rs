//! Building a graph: nodes, edges, joins and conditional edges.

use std::sync::Arc;
use std::time::Duration;

use crate::state::{Schema, State};
use crate::store::Cache;

use super::branch::{Branch, IntoPath, PathBody, PathLabel};
use super::compiled::{CompiledGraph, ContextType, link};
use super::node::{IntoNode, NodeBody};
use super::options::{NodeDefaults, NodeOptions, NodeSettings};
use super::problem::{GraphError, GraphProblem};
use super::sequence::IntoSequence;
use super::{END, START};

/// The checkpoints that are stored of a subgraph (`checkpointer` of `compile` upstream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Persistence {
    /// Checkpoints of their own for each task: the subgraph starts empty, and can be continued after an interrupt
    /// (`None`).
    #[default]
    PerInvocation,
    /// One history for the whole thread: the subgraph continues from the state it last had (`True`). Two tasks of one
    /// superstep must not both run it: as upstream, an answer to a question of the one could reach the other.
    PerThread,
    /// None: the subgraph starts anew when the run is continued (`False`).
    Stateless,
}

/// A graph under construction, with state `S`.
///
/// Problems are collected and reported together by [`StateGraph::compile`].
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Count { #[channel(last)] n: i64 }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Count>::new()
///     .node("add", |s: &Count| Ok(Count::update().n(s.n + 1)))
///     .edge(START, "add")
///     .branch("add", |s: &Count| if s.n < 3 { "add" } else { END })
///     .compile()?;
/// assert_eq!(graph.invoke((), Count::update().n(0))?.state().n, 3);
/// # Ok(())
/// # }
/// ```
pub struct StateGraph<S> {
    pub(super) schema: Schema<S>,
    pub(super) draft: GraphDraft,
}

/// The parts of a graph under construction that do not depend on the type of its state, so that a program compiles
/// what works on them once and not for each state.
pub(super) struct GraphDraft {
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) persistence: Persistence,
    pub(super) nodes: Vec<NodeSpec>,
    /// The settings of nodes whose own options leave something open.
    pub(super) defaults: NodeSettings,
    /// The error handler of nodes without their own.
    pub(super) default_handler: Option<NodeBody>,
    pub(super) edges: Vec<(Arc<str>, Arc<str>)>,
    pub(super) joins: Vec<(Vec<Arc<str>>, Arc<str>)>,
    pub(super) branches: Vec<(Arc<str>, Branch)>,
    pub(super) interrupt_before: Vec<String>,
    pub(super) interrupt_after: Vec<String>,
    pub(super) input: Option<Vec<Arc<str>>>,
    pub(super) output: Option<Vec<Arc<str>>>,
    pub(super) cache: Option<Cache>,
    pub(super) context: Option<ContextType>,
    pub(super) step_timeout: Option<Duration>,
    /// True for an entrypoint: its one node takes the input itself.
    pub(super) entry: bool,
    pub(super) problems: Vec<GraphProblem>,
}

/// An added node.
pub(super) struct NodeSpec {
    pub(super) name: Arc<str>,
    pub(super) body: NodeBody,
    pub(super) settings: NodeSettings,
    pub(super) error_handler: Option<NodeBody>,
    /// The Rust name of its function.
    pub(super) function: &'static str,
}

impl<S: State> StateGraph<S> {
    /// Returns a graph without nodes, with a derived state.
    pub fn new() -> Self {
        Self::with_schema(Schema::of())
    }
}

impl<S: State> Default for StateGraph<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Send + Sync + 'static> StateGraph<S> {
    /// Returns a graph without nodes, with a schema made at run time.
    ///
    /// # Example
    /// ```
    /// use annals::state::DynState;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = DynSchema::new().last("n").append("log").build();
    /// let graph = StateGraph::with_schema(schema)
    ///     .node("double", |s: &DynState| {
    ///         let n = s.get("n").as_int().unwrap_or(0);
    ///         Ok(DynUpdate::new().set("n", n * 2).set("log", format!("doubled {n}")))
    ///     })
    ///     .edge(START, "double")
    ///     .compile()?;
    /// let done = graph.invoke((), DynUpdate::new().set("n", 21))?;
    /// assert_eq!(done.state().get("n"), &Value::from(42));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_schema(schema: Schema<S>) -> Self {
        Self { schema, draft: GraphDraft::new() }
    }

    /// Sets the name of the graph. Default: `LangGraph`. The first run of a graph with another name leaves a
    /// [drawing](CompiledGraph::get_graph) of it in the cache of the store, under `drawings` and the name, for viewers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.draft.name = name.into();
        self
    }

    /// Sets the version of the program that the graph is part of, such as the date of a release. A run stores it, with
    /// the [fingerprint](CompiledGraph::fingerprint) of the graph, and an unfinished run is not continued by a graph
    /// with another version or fingerprint: [`RunError::GraphChanged`](crate::RunError::GraphChanged) names what
    /// differs, and [`Run::allow_changed_graph`](crate::Run::allow_changed_graph) allows it. Default: no version, and
    /// any graph continues a run.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] paid: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = |version: &str| {
    ///     StateGraph::<Order>::new()
    ///         .version(version)
    ///         .node("pay", |_: &Order, ctx: &Context| Ok(Order::update().paid(ctx.interrupt("pay?")? == "yes")))
    ///         .edge(START, "pay")
    ///         .compile()
    /// };
    /// let thread = Store::memory().thread("order")?;
    /// graph("2026-11")?.invoke(&thread, Order::update())?;
    ///
    /// let newer = graph("2026-12")?;
    /// let error = newer.invoke(&thread, Command::resume("yes")).unwrap_err();
    /// assert!(error.to_string().contains("version \"2026-11\""), "{error}");
    /// let done = newer.run(&thread).allow_changed_graph(true).invoke(Command::resume("yes"))?;
    /// assert!(done.state().paid);
    /// # Ok(())
    /// # }
    /// ```
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.draft.version = Some(version.into());
        self
    }

    /// Sets which checkpoints are stored of the graph when it is a subgraph. Default: [`Persistence::PerInvocation`].
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.draft.persistence = persistence;
        self
    }

    /// Adds a node: a function of the state, see [`IntoNode`].
    #[doc(alias = "add_node")]
    pub fn node<M>(self, name: impl Into<Arc<str>>, node: impl IntoNode<S, M>) -> Self {
        self.node_with(name, node, NodeOptions::new())
    }

    /// Adds a node with options.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { #[channel(last)] n: i64 }
    ///
    /// let graph = StateGraph::<Count>::new()
    ///     .node_with("a", |_: &Count| Ok(Command::goto("b")), NodeOptions::new().destinations(["b", END]))
    ///     .edge(START, "a")
    ///     .compile();
    /// assert!(graph.unwrap_err().to_string().contains("unknown node \"b\""));
    /// ```
    pub fn node_with<M>(
        mut self,
        name: impl Into<Arc<str>>,
        node: impl IntoNode<S, M>,
        options: NodeOptions<S>,
    ) -> Self {
        let function = std::any::type_name_of_val(&node);
        let (name, body) = (name.into(), node.into_node());
        let NodeOptions { settings, error_handler, .. } = options;
        self.draft.nodes.push(NodeSpec { name, body, settings, error_handler, function });
        self
    }

    /// Sets the defaults of nodes whose own options leave something open.
    #[doc(alias = "set_node_defaults")]
    pub fn node_defaults(mut self, defaults: NodeDefaults<S>) -> Self {
        let NodeOptions { settings, error_handler, .. } = defaults.0;
        (self.draft.defaults, self.draft.default_handler) = (settings, error_handler);
        self
    }

    /// Adds a sequence of nodes: a tuple of `(name, node)`, each with an edge to the next.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Count>::new()
    ///     .sequence((
    ///         ("add", |s: &Count| Ok(Count::update().n(s.n + 1))),
    ///         ("double", |s: &Count| Ok(Count::update().n(s.n * 2))),
    ///     ))
    ///     .entry("add")
    ///     .finish("double")
    ///     .compile()?;
    /// assert_eq!(graph.invoke((), Count::update().n(1))?.state().n, 4);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "add_sequence")]
    pub fn sequence<M>(mut self, nodes: impl IntoSequence<S, M>) -> Self {
        self.draft.add_sequence(nodes.into_sequence());
        self
    }

    /// Starts runs at a node: an edge from [`START`].
    #[doc(alias = "set_entry_point")]
    pub fn entry(self, node: impl Into<Arc<str>>) -> Self {
        self.edge(START, node)
    }

    /// Ends a path at a node: an edge to [`END`].
    #[doc(alias = "set_finish_point")]
    pub fn finish(self, node: impl Into<Arc<str>>) -> Self {
        self.edge(node, END)
    }

    /// Adds an edge: when `from` has run, `to` runs in the next superstep.
    #[doc(alias = "add_edge")]
    pub fn edge(mut self, from: impl Into<Arc<str>>, to: impl Into<Arc<str>>) -> Self {
        self.draft.edges.push((from.into(), to.into()));
        self
    }

    /// Adds a join: `to` runs once after all of `from` have run, in any supersteps. A repeated name counts once.
    pub fn join(mut self, from: impl IntoIterator<Item = impl Into<Arc<str>>>, to: impl Into<Arc<str>>) -> Self {
        self.draft.joins.push((from.into_iter().map(Into::into).collect(), to.into()));
        self
    }

    /// Adds a conditional edge: when `from` has run, `path` returns the nodes that run next, see [`IntoPath`].
    ///
    /// From [`START`] it is a conditional entry. An unknown name is dropped silently, as in the reference;
    /// [`StateGraph::branch_to`] refuses it.
    #[doc(alias = "add_conditional_edges")]
    #[doc(alias = "set_conditional_entry_point")]
    pub fn branch<M>(mut self, from: impl Into<Arc<str>>, path: impl IntoPath<S, M>) -> Self {
        self.draft.add_branch(from.into(), path.into_path(), None);
        self
    }

    /// Adds a conditional edge with a map from the labels that `path` may return to nodes, or with the names of the
    /// nodes alone. Drawings show its targets, and `compile` reports a target that does not exist.
    ///
    /// A label that is not in the map fails the node.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Count>::new()
    ///     .node("add", |s: &Count| Ok(Count::update().n(s.n + 1)))
    ///     .node("show", |_: &Count| Ok(()))
    ///     .edge(START, "add")
    ///     .branch_to("add", |s: &Count| if s.n < 3 { "again" } else { "enough" }, [("again", "add"), ("enough", "show")])
    ///     .branch_to("show", |_: &Count| END, ["add", END])
    ///     .compile()?;
    /// assert_eq!(graph.invoke((), Count::update().n(0))?.state().n, 3);
    /// assert!(graph.get_graph(0).to_mermaid(false).contains("add -. &nbsp;again&nbsp; .-> add"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "path_map")]
    pub fn branch_to<M>(
        mut self,
        from: impl Into<Arc<str>>,
        path: impl IntoPath<S, M>,
        map: impl IntoIterator<Item = impl Into<PathLabel>>,
    ) -> Self {
        let map = map.into_iter().map(|label| {
            let PathLabel { label, node } = label.into();
            (label, node)
        });
        let map = map.collect();
        self.draft.add_branch(from.into(), path.into_path(), Some(map));
        self
    }

    /// Sets the cache for the results of nodes with a [`CachePolicy`](super::CachePolicy): the cache of a store, or of
    /// `Store::memory()` for one that ends with the program. Subgraphs use it too, unless they have their own.
    ///
    /// The graph's name is part of the key: graphs that share a cache should have different names.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::CachePolicy;
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Page { #[channel(last)] url: String, #[channel(last)] text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let graph = StateGraph::<Page>::new()
    ///     .name("pages")
    ///     .node_with("fetch", |page: &Page, ctx: &Context| {
    ///         ctx.kv()?.put(["fetched"], &page.url, annals::base::Map::new())?;
    ///         Ok(Page::update().text(format!("the text of {}", page.url)))
    ///     }, NodeOptions::new().cache(CachePolicy::new()))
    ///     .edge(START, "fetch")
    ///     .cache(&store.cache())
    ///     .compile()?;
    /// let url = || Page::update().url("a.example");
    /// graph.invoke(&store.thread("monday")?, url())?;
    ///
    /// store.kv().delete(["fetched"], "a.example")?;
    /// assert_eq!(graph.invoke(&store.thread("tuesday")?, url())?.state().text, "the text of a.example");
    /// assert!(store.kv().get(["fetched"], "a.example")?.is_none(), "it was not fetched again");
    ///
    /// graph.clear_cache([] as [&str; 0])?;
    /// graph.invoke(&store.thread("wednesday")?, url())?;
    /// assert!(store.kv().get(["fetched"], "a.example")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.draft.cache = Some(cache.clone());
        self
    }

    /// Limits the duration of each superstep of the graph, from the start of its first node; zero removes the limit. At
    /// the deadline the async nodes that wait are dropped; nodes on a thread see it in
    /// [`Context::is_cancelled`](crate::task::Context::is_cancelled) and are waited for; none is started or retried.
    /// The run fails with [`RunError::StepTimeout`](crate::RunError::StepTimeout); finished tasks are stored, late ones
    /// included, so the thread can be continued. A subgraph has its own limit, and ends with its node. A subgraph of a
    /// node on a thread runs its nodes one after another, so a node that waits uses the time of the next ones.
    ///
    /// # Example
    /// ```
    /// use annals_graph::RunError;
    /// use annals_graph::prelude::*;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Page { #[channel(append)] found: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Page>::new()
    ///     .node("cache", |_: &Page| Ok(Page::update().found(["in the cache".to_string()])))
    ///     .node("web", |_: Arc<Page>, ctx: Context| async move {
    ///         if ctx.value() == Some(&"offline") {
    ///             std::future::pending::<()>().await;
    ///         }
    ///         Ok(Page::update().found(["on the web".to_string()]))
    ///     })
    ///     .edge(START, "cache")
    ///     .edge(START, "web")
    ///     .step_timeout(Duration::from_millis(20))
    ///     .compile()?;
    /// let thread = Store::memory().thread("t")?;
    /// let error = graph.run(&thread).context("offline").invoke(Page::update()).unwrap_err();
    /// assert!(matches!(error.as_run(), Some(RunError::StepTimeout { nodes, .. }) if nodes.contains(&"web".into())));
    ///
    /// let done = graph.run(&thread).step_timeout(Duration::from_secs(60)).invoke(Input::Continue)?;
    /// assert_eq!(done.state().found.to_vec(), ["in the cache", "on the web"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn step_timeout(mut self, limit: Duration) -> Self {
        self.draft.step_timeout = Some(limit).filter(|limit| !limit.is_zero());
        self
    }

    /// Sets breakpoints before these nodes (`"*"`: before each): the run stops there until it is continued.
    pub fn interrupt_before(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.draft.interrupt_before.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Sets breakpoints after these nodes (`"*"`: after each): the run stops there until it is continued.
    pub fn interrupt_after(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.draft.interrupt_after.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Validates the graph and compiles it.
    ///
    /// # Errors
    /// [`GraphError`] with every problem of the graph.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Empty {}
    ///
    /// let error = StateGraph::<Empty>::new()
    ///     .node("a", |_: &Empty| Ok(()))
    ///     .edge("a", "nowhere")
    ///     .edge("nobody", "a")
    ///     .compile()
    ///     .unwrap_err();
    /// assert_eq!(error.problems.len(), 3, "unknown source, unknown target, no entry: {error}");
    /// ```
    pub fn compile(self) -> Result<CompiledGraph<S>, GraphError> {
        let Self { schema, draft } = self;
        let conflicts = schema.conflicts().to_vec();
        link(draft, Arc::new(schema), &conflicts).map(CompiledGraph::new)
    }
}

/// The name of a graph that was given none.
pub(crate) const DEFAULT_NAME: &str = "LangGraph";

impl GraphDraft {
    fn new() -> Self {
        Self {
            name: DEFAULT_NAME.into(),
            version: None,
            persistence: Persistence::default(),
            nodes: Vec::new(),
            defaults: NodeSettings::default(),
            default_handler: None,
            edges: Vec::new(),
            joins: Vec::new(),
            branches: Vec::new(),
            interrupt_before: Vec::new(),
            interrupt_after: Vec::new(),
            input: None,
            output: None,
            cache: None,
            context: None,
            step_timeout: None,
            entry: false,
            problems: Vec::new(),
        }
    }

    fn add_sequence(&mut self, nodes: Vec<(Arc<str>, NodeBody, &'static str)>) {
        if nodes.is_empty() {
            self.problems.push(GraphProblem::EmptySequence);
        }
        let mut last: Option<Arc<str>> = None;
        for (name, body, function) in nodes {
            if let Some(last) = last.replace(Arc::clone(&name)) {
                self.edges.push((last, Arc::clone(&name)));
            }
            let settings = NodeSettings::default();
            self.nodes.push(NodeSpec { name, body, settings, error_handler: None, function });
        }
    }

    fn add_branch(&mut self, from: Arc<str>, path: PathBody, map: Option<Vec<(Arc<str>, Arc<str>)>>) {
        let PathBody { run, name } = path;
        let known = |name: &str| self.branches.iter().any(|(source, branch)| *source == from && *branch.name == *name);
        let name = match name {
            Some(name) => {
                if known(&name) {
                    self.problems.push(GraphProblem::DuplicateBranch {
                        source_node: from.to_string(),
                        branch: name.to_string(),
                    });
                }
                name
            }
            None => {
                let mut names = std::iter::once("condition".to_string()).chain((2..).map(|n| format!("condition{n}")));
                names.find(|name| !known(name)).unwrap_or_default().into()
            }
        };
        self.branches.push((from, Branch { name, path: run, map }));
    }
}
