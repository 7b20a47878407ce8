//! The options of a node: scheduling, schemas, metadata and policies.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::Value;

use super::node::{IntoNode, NodeBody};
use super::policy::{CachePolicy, RetryPolicy, TimeoutPolicy};

/// The options of one node, for [`StateGraph::node_with`](super::StateGraph::node_with).
///
/// # Example
/// ```
/// use annals_graph::graph::RetryPolicy;
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Order { #[channel(last)] status: String }
///
/// # fn main() -> Result<()> {
/// let options = NodeOptions::new()
///     .retry(RetryPolicy::new().max_attempts(1))
///     .error_handler(|_: &Order, ctx: &Context| {
///         let failed = ctx.error().map_or(String::new(), |failed| format!("{}: {}", failed.node, failed.message));
///         Ok(Order::update().status(failed))
///     });
/// let graph = StateGraph::<Order>::new()
///     .node_with("pay", |_: &Order| -> NodeResult<()> { Err("no money".into()) }, options)
///     .edge(START, "pay")
///     .compile()?;
/// assert_eq!(graph.invoke((), Order::update())?.state().status, "pay: no money");
/// # Ok(())
/// # }
/// ```
pub struct NodeOptions<S> {
    pub(crate) settings: NodeSettings,
    pub(crate) error_handler: Option<NodeBody>,
    state: PhantomData<fn(&S)>,
}

/// The options that a compiled node retains.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSettings {
    /// True for a node that runs only when no other task is left.
    pub(crate) defer: bool,
    /// The channels that it reads; `None` if its options do not name them.
    pub(crate) input: Option<Vec<Arc<str>>>,
    pub(crate) metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// `None` takes the defaults of the graph.
    pub(crate) retry: Option<Arc<[RetryPolicy]>>,
    pub(crate) cache: Option<CachePolicy>,
    pub(crate) timeout: Option<TimeoutPolicy>,
    /// The declared targets of its commands, with labels.
    pub(crate) destinations: Vec<(Arc<str>, Option<Arc<str>>)>,
}

impl<S> NodeOptions<S> {
    /// Returns options without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the node is deferred: it waits until no other task is left, and then runs once for all its
    /// triggers.
    ///
    /// # Example
    /// ```
    /// use annals::state::DynState;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let log = |name: &'static str| move |_: &DynState| Ok(DynUpdate::new().set("log", name));
    /// let graph = StateGraph::with_schema(DynSchema::new().append("log").build())
    ///     .node("short", log("short"))
    ///     .node("long", log("long"))
    ///     .node("longer", log("longer"))
    ///     .node_with("end", log("end"), NodeOptions::new().defer(true))
    ///     .edge(START, "short")
    ///     .edge(START, "long")
    ///     .edge("long", "longer")
    ///     .edge("short", "end")
    ///     .edge("longer", "end")
    ///     .compile()?;
    /// let done = graph.invoke((), DynUpdate::new())?;
    /// let names = ["long", "short", "longer", "end"].map(Value::from);
    /// assert_eq!(done.state().list("log").map(|log| log.to_vec()), Some(names.to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn defer(mut self, defer: bool) -> Self {
        self.settings.defer = defer;
        self
    }

    /// Sets the channels that the node, and the conditional edges that leave it, read: its input schema.
    #[doc(alias = "input_schema")]
    pub fn input(mut self, channels: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.settings.input = Some(channels.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the metadata of the node, which streams show with its tasks: `[("owner", "ann")]`, or a JSON object.
    pub fn metadata(mut self, metadata: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        let members = metadata.into_iter().map(|(name, value)| (name.into(), value.into().to_json()));
        self.settings.metadata = Some(Arc::new(members.collect()));
        self
    }

    /// Adds a retry policy. Of several policies the first that matches the error decides.
    #[doc(alias = "retry_policy")]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        let known = self.settings.retry.take();
        self.settings.retry = Some(known.iter().flat_map(|list| list.iter().cloned()).chain([policy]).collect());
        self
    }

    /// Sets how results are cached, see [`CachePolicy`].
    #[doc(alias = "cache_policy")]
    pub fn cache(mut self, policy: CachePolicy) -> Self {
        self.settings.cache = Some(policy);
        self
    }

    /// Sets the node that runs after the last failed attempt, in the same superstep and with the same input.
    ///
    /// It reads the failure in [`Context::error`](crate::task::Context::error). Its output takes the place of that of
    /// the node. The edges of the node are not followed, so its [`Command`](super::Command) names the next nodes. An
    /// error of the handler ends the run.
    pub fn error_handler<M>(mut self, handler: impl IntoNode<S, M>) -> Self {
        self.error_handler = Some(handler.into_node());
        self
    }

    /// Sets the time limits of an attempt of an async node: a [`TimeoutPolicy`], or a duration for the whole attempt.
    /// An asynchronous run needs a timer for it, see [`Run::timer`](crate::Run::timer).
    pub fn timeout(mut self, policy: impl Into<TimeoutPolicy>) -> Self {
        self.settings.timeout = Some(policy.into()).filter(TimeoutPolicy::is_set);
        self
    }

    /// Declares the targets of the commands of this node: drawings show them, and `compile` verifies them.
    pub fn destinations(mut self, nodes: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.settings.destinations.extend(nodes.into_iter().map(|node| (node.into(), None)));
        self
    }

    /// As [`destinations`](Self::destinations), with a label for each target.
    pub fn labeled_destinations(
        mut self,
        nodes: impl IntoIterator<Item = (impl Into<Arc<str>>, impl Into<Arc<str>>)>,
    ) -> Self {
        let labeled = nodes.into_iter().map(|(node, label)| (node.into(), Some(label.into())));
        self.settings.destinations.extend(labeled);
        self
    }
}

impl<S> Default for NodeOptions<S> {
    fn default() -> Self {
        Self { settings: NodeSettings::default(), error_handler: None, state: PhantomData }
    }
}

impl<S> Clone for NodeOptions<S> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), error_handler: self.error_handler.clone(), state: PhantomData }
    }
}

impl<S> fmt::Debug for NodeOptions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeOptions")
            .field("settings", &self.settings)
            .field("error_handler", &self.error_handler.is_some())
            .finish()
    }
}

/// The defaults of nodes whose own options leave something open, for
/// [`StateGraph::node_defaults`](super::StateGraph::node_defaults).
///
/// Retries and timeouts apply to error handlers too, caches and error handlers to nodes only. Subgraphs have their
/// own.
pub struct NodeDefaults<S>(pub(crate) NodeOptions<S>);

impl<S> NodeDefaults<S> {
    /// Returns defaults without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`NodeOptions::retry`].
    pub fn retry(self, policy: RetryPolicy) -> Self {
        Self(self.0.retry(policy))
    }

    /// As [`NodeOptions::cache`].
    pub fn cache(self, policy: CachePolicy) -> Self {
        Self(self.0.cache(policy))
    }

    /// As [`NodeOptions::error_handler`]; one handler for all nodes without their own.
    pub fn error_handler<M>(self, handler: impl IntoNode<S, M>) -> Self {
        Self(self.0.error_handler(handler))
    }

    /// As [`NodeOptions::timeout`].
    pub fn timeout(self, policy: impl Into<TimeoutPolicy>) -> Self {
        Self(self.0.timeout(policy))
    }
}

impl<S> Default for NodeDefaults<S> {
    fn default() -> Self {
        Self(NodeOptions::default())
    }
}

impl<S> fmt::Debug for NodeDefaults<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeDefaults").field(&self.0).finish()
    }
}
