//! The compiled graph: triggers and edges, with channels and nodes numbered.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::limits::NAME_BYTES_MAX;
use crate::hash::FieldHasher;
use crate::state::{FieldKind, Layout};
use crate::store::Cache;
use crate::task::TaskPath;

use super::branch::Branch;
use super::builder::{GraphDraft, NodeSpec, Persistence};
use super::entrypoint::INPUT;
use super::fingerprint::{GraphCode, bad_version, fingerprint};
use super::node::{NodeBody, Work};
use super::options::NodeSettings;
use super::problem::{GraphError, GraphProblem};
use super::schemas::{Schemas, schemas, set_reads};
use super::{END, START};

/// A graph that was validated and can run. A clone is cheap.
///
/// It runs on a [`Thread`](crate::history::Thread) of a store, or on `()` without one.
#[doc(alias = "CompiledStateGraph")]
pub struct CompiledGraph<S> {
    pub(crate) graph: Arc<Graph>,
    /// The defaults of its runs, whose type the drivers know.
    pub(crate) config: Option<Arc<dyn Any + Send + Sync>>,
    state: PhantomData<fn() -> S>,
}

impl<S> Clone for CompiledGraph<S> {
    fn clone(&self) -> Self {
        Self { graph: Arc::clone(&self.graph), config: self.config.clone(), state: PhantomData }
    }
}

impl<S> fmt::Debug for CompiledGraph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.graph.nodes.iter().map(|node| &node.name).collect();
        f.debug_struct("CompiledGraph").field("name", &self.graph.name).field("nodes", &nodes).finish_non_exhaustive()
    }
}

impl<S> CompiledGraph<S> {
    /// Types a graph, whose state is an `S`.
    pub(super) fn new(graph: Arc<Graph>) -> Self {
        Self { graph, config: None, state: PhantomData }
    }

    /// Returns the name of the graph.
    pub fn name(&self) -> &str {
        &self.graph.name
    }

    /// Returns the fingerprint of the graph: 15 hexadecimal digits, five each of a hash of its nodes, its edges, and
    /// its channels with the way each is stored. It does not depend on the functions of the nodes, nor on the order in
    /// which parts were added.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let add = |s: &Count| Ok(Count::update().n(s.n + 1));
    /// let first = StateGraph::<Count>::new().node("a", add).node("b", add).edge(START, "a");
    /// let second = StateGraph::<Count>::new().node("b", add).node("a", add).edge(START, "a");
    /// let other = StateGraph::<Count>::new().node("b", add).node("a", add).edge(START, "b");
    /// let (first, second, other) = (first.compile()?, second.compile()?, other.compile()?);
    /// assert_eq!(first.fingerprint(), second.fingerprint());
    /// assert_ne!(first.fingerprint(), other.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fingerprint(&self) -> &str {
        &self.graph.fingerprint
    }

    /// Returns the names of its nodes, in the order in which they were added.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.graph.nodes.iter().map(|node| &*node.name)
    }
}

impl<S> CompiledGraph<S> {
    /// Returns the subgraph at a path: the names of nodes (`"outer|inner"`), or the namespace of a task. `None` if
    /// the path does not lead to a subgraph, or if the state of the subgraph is not a `C`.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Inner { #[channel(last)] n: i64 }
    /// #[derive(State, Clone, Default)]
    /// struct Outer { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let inner = StateGraph::<Inner>::new()
    ///     .node("add", |s: &Inner| Ok(Inner::update().n(s.n + 1)))
    ///     .edge(START, "add")
    ///     .compile()?;
    /// let graph = StateGraph::<Outer>::new().node("inner", inner).edge(START, "inner").compile()?;
    /// assert!(graph.subgraph::<Inner>("inner").is_some());
    /// assert!(graph.subgraph::<Outer>("inner").is_none(), "it has another state");
    /// assert!(graph.subgraph::<Inner>("other").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn subgraph<C: 'static>(&self, path: &str) -> Option<CompiledGraph<C>> {
        let graph = self.graph.subgraph_at(path)?;
        let fits = graph.layout.initial().is::<C>();
        fits.then(|| CompiledGraph::new(Arc::clone(graph)))
    }
}

/// A graph without its types. Channels are numbered: the fields of the state, then the sends, the input, the trigger
/// of each node, and the joins.
pub(crate) struct Graph {
    /// An id that is unique among the graphs of the process, also after one was dropped.
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) persistence: Persistence,
    pub(crate) layout: Arc<dyn Layout>,
    /// The names of all channels, by number.
    pub(crate) channels: Vec<Arc<str>>,
    pub(crate) by_channel: HashMap<Arc<str>, u32>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) by_name: HashMap<Arc<str>, usize>,
    pub(crate) start: Outgoing,
    pub(crate) joins: Vec<Join>,
    /// True for an entrypoint: its first channel is its input, which triggers its one node.
    pub(crate) entry: bool,
    /// The fields that a superstep may change without writing them.
    pub(crate) idle_fields: Vec<usize>,
    pub(crate) schemas: Schemas,
    /// The deferred nodes: they wait until no other task is left.
    pub(crate) deferred: Vec<usize>,
    pub(crate) interrupt_before: Breakpoints,
    pub(crate) interrupt_after: Breakpoints,
    pub(crate) cache: Option<Cache>,
    pub(crate) context: Option<ContextType>,
    /// The time limit of each superstep.
    pub(crate) step_timeout: Option<Duration>,
    /// A hash of its channels and edges: a cached result does not fit a graph with others.
    pub(crate) shape: [u8; 16],
    /// Short hashes of its nodes, edges and channels.
    pub(crate) fingerprint: String,
    /// The fingerprint with the version that the program gave to the graph, if it gave one.
    pub(crate) code: Option<GraphCode>,
}

impl Graph {
    /// Returns a graph, this one or a subgraph, and the type of the context value it requires, if `value` is not of
    /// that type.
    pub(crate) fn misses_context(&self, value: Option<&(dyn Any + Send + Sync)>) -> Option<(&str, &'static str)> {
        let missed = self.context.filter(|wanted| value.map(|value| value.type_id()) != Some(wanted.id));
        let inside = || self.nodes.iter().find_map(|node| node.body.child.as_ref()?.misses_context(value));
        missed.map(|wanted| (&*self.name, wanted.name)).or_else(inside)
    }

    /// Returns a node, of this graph or of a subgraph, for which a run needs a timer: it has a timeout, or its
    /// superstep has a deadline, as `timed` says for this graph.
    pub(crate) fn timed_node(&self, timed: bool) -> Option<&Arc<str>> {
        self.nodes.iter().find_map(|node| match node.settings.timeout {
            Some(_) => Some(&node.name),
            None if timed && !matches!(node.body.work, Work::Blocking(_)) => Some(&node.name),
            None => node.body.child.as_ref().and_then(|child| child.timed_node(child.step_timeout.is_some())),
        })
    }

    /// Returns the name of an async node, of this graph or of a subgraph.
    pub(crate) fn async_node(&self) -> Option<String> {
        self.nodes.iter().find_map(|node| match &node.body.child {
            Some(child) => child.async_node(),
            None => matches!(node.body.work, Work::Async(_)).then(|| node.name.to_string()),
        })
    }
}

/// The type of the context value that a graph requires.
#[derive(Clone, Copy)]
pub(crate) struct ContextType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

/// A node of a compiled graph.
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) body: NodeBody,
    /// The channels that trigger it, sorted by name.
    pub(crate) triggers: Vec<u32>,
    /// Their names, as a checkpoint records them.
    pub(crate) trigger_names: Vec<Arc<str>>,
    /// The path under which the writes of its tasks are stored.
    pub(crate) path: Arc<str>,
    pub(crate) out: Outgoing,
    pub(crate) settings: NodeSettings,
    /// The fields it reads; `None` if it reads all.
    pub(crate) reads: Option<Vec<usize>>,
    /// The error handler of the node.
    pub(crate) handler: Option<usize>,
    /// True for an error handler, which no edge triggers.
    pub(crate) is_handler: bool,
    /// The Rust name of its function; empty for error handlers, whose results are not cached.
    pub(crate) function: &'static str,
}

impl Node {
    /// Returns the graph that is the node, if it stores checkpoints of its own.
    pub(crate) fn stored_child(&self) -> Option<&Arc<Graph>> {
        self.body.child.as_ref().filter(|child| child.persistence != Persistence::Stateless)
    }
}

/// The edges that leave a node.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// The triggers it writes.
    pub(crate) edges: Vec<u32>,
    /// The joins it takes part in.
    pub(crate) joins: Vec<usize>,
    pub(crate) branches: Vec<Branch>,
}

/// A barrier before a node.
pub(crate) struct Join {
    pub(crate) channel: u32,
    pub(crate) names: Vec<String>,
    /// The node that it leads to.
    pub(crate) node: usize,
}

/// The breakpoints of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakpoints {
    pub(crate) all: bool,
    pub(crate) nodes: Vec<usize>,
}

impl Breakpoints {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.nodes.is_empty()
    }
}

impl Graph {
    /// Returns the number of the channel that holds the pending sends.
    pub(crate) fn sends(&self) -> u32 {
        self.layout.len() as u32
    }

    /// Returns the number of the channel that holds the input.
    pub(crate) fn input(&self) -> u32 {
        self.layout.len() as u32 + 1
    }

    /// Returns the number of the trigger of a node.
    pub(crate) fn trigger(&self, node: usize) -> u32 {
        debug_assert!(node <= self.nodes.len(), "a trigger belongs to a node; that of their number is the end");
        (self.layout.len() + 2 + node) as u32
    }

    /// Returns the node that a channel triggers.
    pub(crate) fn triggered_node(&self, channel: u32) -> Option<usize> {
        (channel as usize).checked_sub(self.layout.len() + 2).filter(|node| *node < self.nodes.len())
    }

    /// Returns the number of the join that a channel belongs to.
    pub(crate) fn join_of(&self, channel: u32) -> Option<usize> {
        let join = (channel as usize).checked_sub(self.layout.len() + 2 + self.nodes.len())?;
        (join < self.joins.len()).then_some(join)
    }

    /// Returns whether a channel is a field of the state.
    pub(crate) fn is_field(&self, channel: u32) -> bool {
        (channel as usize) < self.layout.len()
    }

    /// Returns the subgraph at a path of node names, or at a namespace.
    pub(crate) fn subgraph_at(&self, path: &str) -> Option<&Arc<Graph>> {
        let is_call = |segment: &&str| segment.bytes().all(|byte| byte.is_ascii_digit());
        let mut names = path.split('|').filter(|segment| !is_call(segment));
        let child = |graph: &Self, segment: &str| {
            let node = *graph.by_name.get(segment.rsplit_once(':').map_or(segment, |(node, _)| node))?;
            Some(node)
        };
        let first = child(self, names.next()?)?;
        let mut graph = self.nodes[first].body.child.as_ref()?;
        for name in names {
            let node = child(graph, name)?;
            graph = graph.nodes[node].body.child.as_ref()?;
        }
        Some(graph)
    }

    /// Returns whether the numbers of channels, nodes and joins agree with each other.
    fn is_numbered(&self) -> bool {
        let joins = self.joins.iter().enumerate();
        self.channels.len() == self.layout.len() + 2 + self.nodes.len() + self.joins.len()
            && joins
                .into_iter()
                .all(|(at, join)| self.join_of(join.channel) == Some(at) && join.node < self.nodes.len())
            && self.nodes.iter().all(|node| node.triggers.len() == node.trigger_names.len())
            && self.deferred.iter().all(|node| *node < self.nodes.len())
    }

    /// Returns the breakpoints with these names.
    pub(crate) fn breakpoints(&self, names: &[String], when: &'static str) -> Result<Breakpoints, GraphProblem> {
        let mut breakpoints = Breakpoints::default();
        for name in names {
            match (name.as_str(), self.by_name.get(name.as_str())) {
                ("*", _) => breakpoints.all = true,
                (_, Some(node)) => breakpoints.nodes.push(*node),
                _ => return Err(GraphProblem::UnknownBreakpoint { node: name.clone(), when }),
            }
        }
        Ok(breakpoints)
    }
}

/// The beginning of the name of the channel by which an edge makes a node due.
pub(crate) const BRANCH_CHANNEL: &str = "branch:to:";
/// The beginning of the name of the channel of a join; the name of its node follows the last colon.
pub(crate) const JOIN_CHANNEL: &str = "join:";

/// The number of compiled graphs.
static GRAPHS: AtomicUsize = AtomicUsize::new(0);

/// Validates a graph and numbers its parts.
pub(super) fn link(
    mut draft: GraphDraft,
    layout: Arc<dyn Layout>,
    conflicts: &[Arc<str>],
) -> Result<Arc<Graph>, GraphError> {
    let mut problems = std::mem::take(&mut draft.problems);
    super::validate::check(&draft, &*layout, conflicts, &mut problems);
    let (specs, default_handler) = (std::mem::take(&mut draft.nodes), draft.default_handler.take());
    let mut nodes = with_handlers(specs, &draft.defaults, default_handler, &mut problems);
    let fields = layout.len();
    let mut channels: Vec<Arc<str>> = (0..fields).map(|field| Arc::clone(layout.name(field))).collect();
    // The input of an entrypoint is one of its fields.
    let input = if draft.entry { "__input__" } else { START };
    channels.extend(["__pregel_tasks".into(), input.into()]);
    channels.extend(nodes.iter().map(|node| format!("{BRANCH_CHANNEL}{}", node.name).into()));
    let by_name: HashMap<_, _> = nodes.iter().enumerate().map(|(i, node)| (Arc::clone(&node.name), i)).collect();
    let first_trigger = fields + 2;
    for (i, node) in nodes.iter_mut().enumerate() {
        node.triggers.push(if draft.entry { INPUT } else { (first_trigger + i) as u32 });
    }
    set_reads(&*layout, &mut nodes, &mut problems);
    let schemas = schemas(&*layout, draft.input.as_deref(), draft.output.as_deref(), &mut problems);
    let mut start = Outgoing::default();
    let edges = Edges { edges: draft.edges, joins: draft.joins, branches: draft.branches };
    let joins = connect(edges, &mut start, &mut nodes, &by_name, &mut channels);
    for node in &mut nodes {
        node.triggers.sort_by(|a, b| channels[*a as usize].cmp(&channels[*b as usize]));
        node.trigger_names = node.triggers.iter().map(|channel| Arc::clone(&channels[*channel as usize])).collect();
    }
    let by_channel = number(&channels, &*layout);
    let shape = shape(&channels, &nodes);
    let fingerprint = fingerprint(&*layout, &channels, &nodes, (&start, &joins));
    problems.extend(draft.version.as_deref().and_then(bad_version));
    let code = draft.version.map(|version| GraphCode { version, fingerprint: fingerprint.clone() });
    let deferred = (0..nodes.len()).filter(|node| nodes[*node].settings.defer).collect();
    let idle_fields = (0..fields).filter(|field| layout.may_idle(*field)).collect();
    let mut graph = Graph {
        id: GRAPHS.fetch_add(1, Ordering::Relaxed),
        name: draft.name,
        persistence: draft.persistence,
        layout,
        channels,
        by_channel,
        nodes,
        by_name,
        start,
        joins,
        entry: draft.entry,
        idle_fields,
        schemas,
        deferred,
        interrupt_before: Breakpoints::default(),
        interrupt_after: Breakpoints::default(),
        cache: draft.cache,
        context: draft.context,
        step_timeout: draft.step_timeout,
        shape,
        fingerprint,
        code,
    };
    debug_assert!(graph.is_numbered(), "channels are fields, sends, input, triggers and joins, in this order");
    for (names, when) in [(&draft.interrupt_before, "before"), (&draft.interrupt_after, "after")] {
        let unknown = names.iter().filter(|name| *name != "*" && !graph.by_name.contains_key(name.as_str()));
        problems.extend(unknown.map(|name| GraphProblem::UnknownBreakpoint { node: name.clone(), when }));
    }
    graph.interrupt_before = graph.breakpoints(&draft.interrupt_before, "before").unwrap_or_default();
    graph.interrupt_after = graph.breakpoints(&draft.interrupt_after, "after").unwrap_or_default();
    if problems.is_empty() { Ok(Arc::new(graph)) } else { Err(GraphError { problems }) }
}

/// Makes the nodes of a graph, with their defaults and their error handlers.
fn with_handlers(
    specs: Vec<NodeSpec>,
    defaults: &NodeSettings,
    default_handler: Option<NodeBody>,
    problems: &mut Vec<GraphProblem>,
) -> Vec<Node> {
    const DEFAULT_HANDLER: &str = "__default_error_handler__";
    let handled = specs.iter().filter(|spec| spec.error_handler.is_some()).count();
    let last = default_handler.is_some().then_some(specs.len() + handled);
    let handler = |name: String, body| {
        let settings =
            NodeSettings { retry: defaults.retry.clone(), timeout: defaults.timeout, ..NodeSettings::default() };
        Node { is_handler: true, ..Node::new(name.into(), body, settings) }
    };
    let mut nodes = Vec::with_capacity(specs.len() + handled + 1);
    let taken: Vec<Arc<str>> = specs.iter().map(|spec| Arc::clone(&spec.name)).collect();
    for spec in specs {
        let mut settings = spec.settings;
        settings.retry = settings.retry.or_else(|| defaults.retry.clone());
        settings.cache = settings.cache.or_else(|| defaults.cache.clone());
        settings.timeout = settings.timeout.or(defaults.timeout);
        let own = spec.error_handler.map(|body| {
            nodes.push(handler(format!("__error_handler__{}", spec.name), body));
            nodes.len() - 1
        });
        let function = spec.function;
        nodes.push(Node { handler: own.or(last), function, ..Node::new(spec.name, spec.body, settings) });
    }
    nodes.extend(default_handler.map(|body| handler(DEFAULT_HANDLER.into(), body)));
    for node in nodes.iter().filter(|node| node.is_handler && taken.contains(&node.name)) {
        problems.push(GraphProblem::DuplicateNode { node: node.name.to_string() });
    }
    nodes
}

impl Node {
    fn new(name: Arc<str>, body: NodeBody, mut settings: NodeSettings) -> Self {
        // Nothing is retained for the next attempt of a node that has none, as without policies.
        settings.retry = settings.retry.filter(|policies| policies.iter().any(|policy| policy.max_attempts > 1));
        let out = Outgoing::default();
        let (triggers, trigger_names) = (Vec::new(), Vec::new());
        Self {
            path: TaskPath::Pull.text(&name),
            name,
            body,
            triggers,
            trigger_names,
            out,
            settings,
            reads: None,
            handler: None,
            is_handler: false,
            function: "",
        }
    }
}

/// Returns a hash of the parts of a graph that the writes of its nodes depend on.
fn shape(channels: &[Arc<str>], nodes: &[Node]) -> [u8; 16] {
    let mut hasher = FieldHasher::default();
    channels.iter().for_each(|channel| _ = hasher.bytes(channel.as_bytes()));
    for Node { out, body, .. } in nodes {
        hasher.maybe(body.child.as_ref().map(|child| child.shape.as_slice()));
        hasher.int(out.edges.len() as i64).int(out.joins.len() as i64).int(out.branches.len() as i64);
        out.edges.iter().for_each(|channel| _ = hasher.int((*channel).into()));
        out.joins.iter().for_each(|join| _ = hasher.int(*join as i64));
        out.branches.iter().for_each(|branch| _ = hasher.bytes(branch.name.as_bytes()));
    }
    hasher.finish()
}

/// Numbers the channels. A managed value has no number, whatever a file holds under its name.
fn number(channels: &[Arc<str>], layout: &dyn Layout) -> HashMap<Arc<str>, u32> {
    let is_channel = |i: &usize| *i >= layout.len() || layout.kind(*i) != FieldKind::Managed;
    (0..channels.len()).filter(is_channel).map(|i| (Arc::clone(&channels[i]), i as u32)).collect()
}

/// The edges of a graph by name.
struct Edges {
    edges: Vec<(Arc<str>, Arc<str>)>,
    joins: Vec<(Vec<Arc<str>>, Arc<str>)>,
    branches: Vec<(Arc<str>, Branch)>,
}

/// Attaches the edges to the nodes they leave, and returns the joins, which get a channel each.
fn connect(
    edges: Edges,
    start: &mut Outgoing,
    nodes: &mut [Node],
    by_name: &HashMap<Arc<str>, usize>,
    channels: &mut Vec<Arc<str>>,
) -> Vec<Join> {
    let first_trigger = channels.len() - nodes.len();
    let mut joins = Vec::new();
    for (from, to) in &edges.edges {
        let Some(to) = by_name.get(to) else { continue };
        let trigger = (first_trigger + to) as u32;
        if let Some(out) = outgoing(start, nodes, by_name, from)
            && !out.edges.contains(&trigger)
        {
            out.edges.push(trigger);
        }
    }
    for (from, to) in &edges.joins {
        let Some(to) = by_name.get(to) else { continue };
        let channel = channels.len() as u32;
        channels.push(format!("{JOIN_CHANNEL}{}:{}", from.join("+"), nodes[*to].name).into());
        nodes[*to].triggers.push(channel);
        for source in from {
            if let Some(out) = outgoing(start, nodes, by_name, source) {
                out.joins.push(joins.len());
            }
        }
        joins.push(Join { channel, names: from.iter().map(ToString::to_string).collect(), node: *to });
    }
    for (from, branch) in edges.branches {
        if let Some(out) = outgoing(start, nodes, by_name, &from) {
            out.branches.push(branch);
        }
    }
    joins
}

fn outgoing<'a>(
    start: &'a mut Outgoing,
    nodes: &'a mut [Node],
    by_name: &HashMap<Arc<str>, usize>,
    from: &str,
) -> Option<&'a mut Outgoing> {
    if from == START {
        return Some(start);
    }
    by_name.get(from).map(|node| &mut nodes[*node].out)
}

/// Returns the reason for which a name cannot be that of a node or channel.
pub(super) fn bad_name(name: &str) -> Option<String> {
    /// The names that the runtime uses itself.
    const RESERVED: [&str; 34] = [
        START,
        END,
        "__pregel_tasks",
        "__return__",
        "__previous__",
        "langsmith:hidden",
        "__input__",
        "__interrupt__",
        "__resume__",
        "__error__",
        "__error_source_node__",
        "__no_writes__",
        "__snapshot_bumps__",
        "__pregel_send",
        "__pregel_read",
        "__pregel_checkpointer",
        "__pregel_stream",
        "checkpoint_map",
        "__pregel_resuming",
        "__pregel_replay_state",
        "__pregel_task_id",
        "checkpoint_id",
        "checkpoint_ns",
        "__pregel_timed_attempt_observer",
        "__pregel_resume_map",
        "__pregel_strict_resume",
        "__pregel_stream_messages_v2",
        "__pregel_push",
        "__pregel_pull",
        "__parent__",
        "__copy__",
        "|",
        ":",
        "configurable",
    ];
    if name.is_empty() || name.contains('\0') {
        Some("it is empty or holds a NUL character".into())
    } else if name.len() > NAME_BYTES_MAX {
        Some(format!("it has {} bytes, the limit is {NAME_BYTES_MAX}", name.len()))
    } else if RESERVED.contains(&name) {
        Some("it is reserved".into())
    } else {
        None
    }
}
