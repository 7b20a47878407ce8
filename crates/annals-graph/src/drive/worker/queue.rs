//! Queues with the types of their graphs, and the limits that a worker holds.

use annals_runs::{Queue, Queued, StoreRuns};
use std::time::Duration;

use crate::drive::run::input::{Input, IntoInput};
use crate::drive::run::outcome::Outcome;
use crate::error::Error;
use crate::exec::{RunError, input_value};
use crate::graph::{CompiledGraph, DEFAULT_NAME, NodeOutput};
use crate::history::Thread;
use crate::state::erased::resolve;
use crate::store::StoreError;
use crate::store::lease::LeaseGroup;
use crate::store::log::QueueGroup;

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Stores an input without running anything: a [`Worker`](crate::Worker) with this graph runs it. The graph has a
    /// [name](crate::graph::StateGraph::name).
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`]; [`StoreError::Leased`] while a run with a lease is on the thread.
    pub fn enqueue<M>(&self, thread: &Thread, input: impl IntoInput<S, M>) -> Result<Outcome<S>, Error> {
        let nodes: Vec<String> = self.nodes().map(str::to_owned).collect();
        self.run(thread).interrupt_before(nodes).invoke(input)
    }

    /// Stores an input with a delay, a priority, a deduplication key or metadata, without running anything. It is as
    /// [`Queue::enqueue`] with the name and the types of this graph.
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; [`RunError::State`] for an update that the graph does not take; [`StoreError::Invalid`]
    /// if the graph has no name, or if the input is a command.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::Worker;
    ///
    /// # fn main() -> Result<()> {
    /// let book = Entrypoint::new("book", |order: i64| Ok(format!("receipt {order}"))).compile()?;
    /// let store = Store::memory();
    /// let thread = store.thread("order-17")?;
    /// book.enqueue_with(&thread, 17, |queue| queue.priority(5).dedup("order-17"))?;
    /// assert!(!book.enqueue_with(&thread, 17, |queue| queue.dedup("order-17"))?.is_new);
    /// book.enqueue_with(&store.thread("order-18")?, 18, |queue| queue.delay(Duration::from_secs(3_600)))?;
    ///
    /// assert_eq!(Worker::new(&store).register(&book).run_until_idle()?.continued, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_with<M>(
        &self,
        thread: &Thread,
        input: impl IntoInput<S, M>,
        options: impl FnOnce(Queue) -> Queue,
    ) -> Result<Queued, Error> {
        let invalid = |field, reason: &str| Err(StoreError::Invalid { field, reason: reason.into() }.into());
        if self.name() == DEFAULT_NAME {
            return invalid("graph", "it has no name, by which a worker finds its runs");
        }
        let Input::Update(writes) = input.into_input() else {
            return invalid("input", "a command continues a run, and is not enqueued");
        };
        let graph = &*self.graph;
        let writes = resolve(&*graph.layout, writes).map_err(RunError::from)?;
        let queue = options(thread.store().queue(self.name()));
        if !graph.entry {
            let input = input_value(graph, &NodeOutput::update(writes))?;
            return Ok(queue.enqueue_stored(thread.id(), &input)?);
        }
        let Some((field, write)) = writes.into_iter().last() else { return Err(RunError::EmptyInput.into()) };
        let argument = graph.layout.write_to_value(field, &write).map_err(RunError::from)?;
        Ok(queue.enqueue(thread.id(), argument)?)
    }
}

/// The limits of the queue of a graph. They hold over all workers of all processes that state them: the store counts
/// the live leases of the queue, and its claims within a period, in the transaction of each claim. A worker that states
/// no limit for a queue is not limited, and its runs are not counted.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals_graph::graph::Entrypoint;
/// use annals_graph::prelude::*;
/// use annals_graph::{QueueLimit, Worker};
///
/// # fn main() -> Result<()> {
/// let book = Entrypoint::new("book", |order: i64| Ok(order)).compile()?;
/// let store = Store::memory();
/// for order in 0..20 {
///     let customer = format!("customer-{}", order % 3);
///     store.queue("book").metadata([("customer", customer)]).enqueue(format!("order-{order}"), order)?;
/// }
/// let limit = QueueLimit::new("book").concurrency(4).per_key("customer", 1).rate(1_000, Duration::from_secs(1));
/// assert_eq!(Worker::new(&store).register(&book).concurrency(8).queue(limit).run_until_idle()?.continued, 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct QueueLimit {
    graph: String,
    concurrency: Option<u64>,
    rate: Option<(u64, Duration)>,
    keys: Vec<(String, u64)>,
}

impl QueueLimit {
    /// Names the graph whose queue has limits.
    pub fn new(graph: impl Into<String>) -> Self {
        Self { graph: graph.into(), concurrency: None, rate: None, keys: Vec::new() }
    }

    /// Limits the runs at the same time, 1 to 10,000. The run of a process that died counts until its lease has
    /// expired; on Linux, for a process of the same machine, until it has ended.
    pub fn concurrency(mut self, runs: u64) -> Self {
        self.concurrency = Some(runs);
        self
    }

    /// Limits the runs that begin within any span of a duration, 1 to 10,000. A continuation after a sleep or a crash
    /// counts as a begin.
    pub fn rate(mut self, runs: u64, period: Duration) -> Self {
        self.rate = Some((runs, period));
        self
    }

    /// Limits the runs at the same time whose metadata have the same value under `key`. A run without the key is not
    /// limited.
    pub fn per_key(mut self, key: impl Into<String>, runs: u64) -> Self {
        self.keys.push((key.into(), runs));
        self
    }

    /// Returns the name of the graph.
    pub(super) fn graph(&self) -> &str {
        &self.graph
    }

    /// Returns the groups of leases in which the runs count.
    pub(super) fn groups(&self) -> Vec<QueueGroup> {
        let (mut groups, queue) = (Vec::new(), format!("queue {}", self.graph));
        if self.concurrency.is_some() || self.rate.is_some() {
            let mut group = LeaseGroup::new(&*queue);
            (group.live_max, group.rate) = (self.concurrency, self.rate);
            groups.push(QueueGroup::of_all(group));
        }
        let of_key = |(key, runs): &(String, u64)| QueueGroup::of_each(key, LeaseGroup::new(&*queue).live_max(*runs));
        groups.extend(self.keys.iter().map(of_key));
        groups
    }
}
