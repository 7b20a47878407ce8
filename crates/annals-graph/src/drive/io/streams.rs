//! Streaming a run: its events, in the types of its graph.

use std::collections::HashSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context as Waiting, Poll, ready};

use crate::base::{Namespace, Value};
use crate::drive::run::begin::{begin, begin_async};
use crate::drive::run::builder::Run;
use crate::drive::run::input::IntoInput;
use crate::drive::run::outcome::{Outcome, finish};
use crate::drive::run::signals::{deliver_after, deliver_async, receiving_thread};
use crate::drive::run::target::{RunOn, RunTarget};
use crate::error::Error;
use crate::exec::{Event, EventKind, EventMask, Machine, MessagesRead, RunError};
use crate::graph::CompiledGraph;
use crate::state::StateView;
use crate::stream::{ChildValues, StreamData, StreamMode, StreamPart, Values};
use crate::task::Interrupt;

use super::blocking::Driver;
use super::nonblocking::{AsyncDriver, Events};

/// The output of a run at its end: its last values, and the open interrupts (`GraphOutput`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOutput {
    /// A map of the output channels that hold something, or the one value of the state; `None` if the run never showed
    /// its state, as nothing was written.
    pub values: Option<Value>,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Why it was asked to stop, if it was.
    pub drained: Option<String>,
    /// Why it was cancelled, if it was.
    pub cancelled: Option<String>,
}

impl RunOutput {
    fn of<S>(last: Option<StateView>, outcome: Option<&Outcome<S>>) -> Result<Self, Error> {
        let (drained, cancelled) = match outcome {
            Some(Outcome::Drained { reason, .. }) => (Some(reason.clone()), None),
            Some(Outcome::Cancelled { reason, .. }) => (None, Some(reason.clone())),
            _ => (None, None),
        };
        let values = last.map(|view| view.to_value()).transpose().map_err(RunError::from)?;
        Ok(Self {
            values,
            interrupts: outcome.map(|outcome| outcome.interrupts().to_vec()).unwrap_or_default(),
            drained,
            cancelled,
        })
    }
}

/// Returns the state that a part shows, if it is one of the graph itself.
fn view_of<S>(part: StreamPart<S>) -> Option<StateView> {
    match part.data {
        StreamData::Values(values) => Some(values.view),
        _ => None,
    }
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Runs the graph with an input and returns what happens, as it happens.
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`], here and as items of the stream.
    pub fn stream<M>(
        &self,
        on: impl RunOn,
        input: impl IntoInput<S, M>,
        modes: &[StreamMode],
    ) -> Result<Stream<'_, S>, Error> {
        self.run(on).stream(input, modes)
    }

    /// Runs the graph with an input and returns what happens, as it happens, without blocking; see [`Run::ainvoke`].
    ///
    /// # Errors
    /// As [`CompiledGraph::stream`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Sum { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// async fn add(sum: &Sum) -> NodeResult<SumUpdate> {
    ///     Ok(Sum::update().n(sum.n + 1))
    /// }
    /// let graph = StateGraph::<Sum>::new().node("add", add).edge(START, "add").compile()?;
    /// let run = async {
    ///     let mut stream = graph.astream((), Sum::update().n(1), &[StreamMode::Updates]).await?;
    ///     while let Some(part) = stream.next().await {
    ///         let StreamData::Updates(update) = part?.data else { continue };
    ///         assert_eq!(&*update.node, "add");
    ///     }
    ///     assert_eq!(stream.outcome().map(|outcome| outcome.state().n), Some(2));
    ///     Ok::<(), annals_graph::Error>(())
    /// };
    /// # annals_graph::block_on(run)
    /// # }
    /// ```
    pub async fn astream<M>(
        &self,
        on: impl RunOn,
        input: impl IntoInput<S, M>,
        modes: &[StreamMode],
    ) -> Result<AsyncStream<'_, S>, Error> {
        self.run(on).astream(input, modes).await
    }
}

impl<'a, S: Clone + Send + Sync + 'static> Run<'a, S> {
    /// Runs to the end and returns the values that it showed last, by the names of the channels. To get the state in
    /// its own type use [`Run::invoke`].
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`].
    pub fn output<M>(self, input: impl IntoInput<S, M>) -> Result<RunOutput, Error> {
        let mut last = None;
        let mut stream = self.shows_output().stream(input, &[StreamMode::Values])?;
        for part in &mut stream {
            last = view_of(part?).or(last);
        }
        RunOutput::of(last, stream.outcome())
    }

    /// Runs to the end without blocking, and returns the values that it showed last; see [`Run::ainvoke`].
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`].
    pub async fn aoutput<M>(self, input: impl IntoInput<S, M>) -> Result<RunOutput, Error> {
        let mut last = None;
        let mut stream = self.shows_output().astream(input, &[StreamMode::Values]).await?;
        while let Some(part) = stream.next().await {
            last = view_of(part?).or(last);
        }
        RunOutput::of(last, stream.outcome())
    }

    /// Shows the channels of the output of the graph, unless others were asked for.
    fn shows_output(mut self) -> Self {
        let channels = || self.graph.output_channels().map(str::to_owned).collect();
        self.settings.output_keys = Some(self.settings.output_keys.take().unwrap_or_else(channels));
        self
    }

    /// Runs step by step, as far as the stream is read.
    ///
    /// # Errors
    /// As [`CompiledGraph::stream`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Sum { #[channel(last)] n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let inner = StateGraph::<Sum>::new()
    ///     .node("add", |s: &Sum| Ok(Sum::update().n(s.n + 1)))
    ///     .edge(START, "add")
    ///     .compile()?;
    /// let graph = StateGraph::<Sum>::new().node("inner", inner).edge(START, "inner").compile()?;
    ///
    /// let mut seen = Vec::new();
    /// for part in graph.run(()).subgraphs(true).stream(Sum::update().n(1), &[StreamMode::Updates])? {
    ///     let part = part?;
    ///     if let StreamData::Updates(update) = &part.data {
    ///         seen.push((part.namespace.is_root(), update.node.to_string()));
    ///     }
    /// }
    /// assert_eq!(seen, [(false, "add".to_string()), (true, "inner".to_string())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream<M>(self, input: impl IntoInput<S, M>, modes: &[StreamMode]) -> Result<Stream<'a, S>, Error> {
        let wants = mask(modes, self.settings.subgraphs);
        let begun = begin(&self.graph.graph, &self.target, input.into_input(), &self.settings, wants)?;
        let parts = StreamParts::new(&begun.machine);
        Ok(Stream { graph: self.graph, target: self.target, driver: Some(Driver::new(begun)), parts, outcome: None })
    }

    /// Runs step by step without blocking, as far as the stream is read.
    ///
    /// # Errors
    /// As [`CompiledGraph::stream`].
    pub async fn astream<M>(
        mut self,
        input: impl IntoInput<S, M>,
        modes: &[StreamMode],
    ) -> Result<AsyncStream<'a, S>, Error> {
        self.settings.find_timer(&self.graph.graph)?;
        let (input, wants) = (input.into_input(), mask(modes, self.settings.subgraphs));
        let begun = begin_async(&self.graph.graph, &self.target, input, &self.settings, wants).await?;
        let parts = StreamParts::new(&begun.machine);
        let events = Some(AsyncDriver::new(begun).events());
        Ok(AsyncStream { graph: self.graph, target: self.target, events, parts, delivery: None, outcome: None })
    }
}

fn mask(modes: &[StreamMode], subgraphs: bool) -> EventMask {
    let wants = |mode| modes.contains(&mode);
    EventMask {
        values: wants(StreamMode::Values),
        updates: wants(StreamMode::Updates),
        custom: wants(StreamMode::Custom),
        messages: wants(StreamMode::Messages),
        tasks: wants(StreamMode::Tasks),
        checkpoints: wants(StreamMode::Checkpoints),
        debug: wants(StreamMode::Debug),
        subgraphs,
    }
}

/// Turns events into parts.
struct StreamParts {
    /// The namespace of the stream's graph; events of other namespaces have other types.
    namespace: Namespace,
    /// The ids of the messages that were shown, or that a task was given.
    seen: HashSet<String>,
    /// Further messages that tasks were given, in long lists.
    read: Vec<MessagesRead>,
}

impl StreamParts {
    fn new(machine: &Machine) -> Self {
        Self { namespace: machine.namespace().clone(), seen: HashSet::new(), read: Vec::new() }
    }

    /// Returns the part of an event; none if it is a message that was shown before or that a task was given.
    fn part<S: Send + Sync + 'static>(&mut self, event: Event) -> Option<StreamPart<S>> {
        let own = event.namespace == self.namespace;
        let data = match event.kind {
            EventKind::Values { view, interrupts } => match own.then(|| view.downcast::<S>()).flatten() {
                Some(state) => StreamData::Values(Values { state, view, interrupts }),
                None => StreamData::ChildValues(ChildValues { view, interrupts }),
            },
            EventKind::Updates(update) => StreamData::Updates(update),
            EventKind::Interrupts(interrupts) => StreamData::Interrupts(interrupts),
            EventKind::Custom(value) => StreamData::Custom(value),
            EventKind::Message(part) => {
                if let Some(id) = &part.message.id {
                    let is_new = !self.read.iter().any(|read| read.holds(id)) && self.seen.insert(id.clone());
                    if !is_new && part.once {
                        return None;
                    }
                }
                StreamData::Message(part)
            }
            EventKind::MessagesRead(mut read) => {
                self.seen.extend(read.ids.drain(..));
                if read.is_long() {
                    self.read.push(*read);
                }
                return None;
            }
            EventKind::TaskStart(start) => StreamData::TaskStart(start),
            EventKind::TaskEnd(end) => StreamData::TaskEnd(end),
            EventKind::Checkpoint(part) => StreamData::Checkpoint(part),
            EventKind::Debug(part) => StreamData::Debug(part),
        };
        Some(StreamPart { namespace: event.namespace, data })
    }
}

/// Returns the outcome of a run, and gives its tasks the signals that have come meanwhile.
fn finished<S: Clone + Send + Sync + 'static>(
    graph: &CompiledGraph<S>,
    target: &RunTarget,
    machine: Machine,
) -> Result<Outcome<S>, Error> {
    let outcome = finish(graph, target, machine)?;
    deliver_after(target, &outcome)?;
    Ok(outcome)
}

/// Ends a stream: what came of its run is kept, an error is its last part.
fn end<S>(
    finished: Result<Outcome<S>, Error>,
    outcome: &mut Option<Outcome<S>>,
) -> Option<Result<StreamPart<S>, Error>> {
    match finished {
        Ok(finished) => {
            *outcome = Some(finished);
            None
        }
        Err(error) => Some(Err(error)),
    }
}

/// The events of a run, as they happen. The run goes on as far as the stream is read; dropping it leaves the thread
/// where its last committed superstep was.
pub struct Stream<'a, S> {
    graph: &'a CompiledGraph<S>,
    target: RunTarget,
    driver: Option<Driver>,
    parts: StreamParts,
    outcome: Option<Outcome<S>>,
}

impl<S> Stream<'_, S> {
    /// Returns what came of the run, once the stream has ended without an error.
    pub fn outcome(&self) -> Option<&Outcome<S>> {
        self.outcome.as_ref()
    }
}

impl<S: Clone + Send + Sync + 'static> Iterator for Stream<'_, S> {
    type Item = Result<StreamPart<S>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.driver.as_mut()?.next_event() {
                Ok(Some(event)) => match self.parts.part(event) {
                    Some(part) => return Some(Ok(part)),
                    None => continue,
                },
                Ok(None) => {
                    let machine = self.driver.take()?.into_machine();
                    return end(finished(self.graph, &self.target, machine), &mut self.outcome);
                }
                Err(error) => {
                    self.driver = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The events of a run, as they happen, for asynchronous programs. The run goes on as far as the stream is read;
/// dropping it leaves the thread where its last committed superstep was. With the feature `futures` it is a `Stream` of
/// the crate `futures-core`.
pub struct AsyncStream<'a, S> {
    graph: &'a CompiledGraph<S>,
    target: RunTarget,
    events: Option<Events>,
    parts: StreamParts,
    /// The outcome of the run, until its tasks were given the signals that have come meanwhile.
    delivery: Option<(Result<Outcome<S>, Error>, SignalDelivery)>,
    outcome: Option<Outcome<S>>,
}

/// A delivery of signals that is awaited.
type SignalDelivery = Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>;

impl<S: Clone + Send + Sync + 'static> AsyncStream<'_, S> {
    /// Returns the next part, `None` at the end. If its future is dropped before it is ready, as where two are awaited
    /// at once, no part is lost.
    pub async fn next(&mut self) -> Option<Result<StreamPart<S>, Error>> {
        poll_fn(|waiting| self.poll_part(waiting)).await
    }

    fn poll_part(&mut self, waiting: &mut Waiting<'_>) -> Poll<Option<Result<StreamPart<S>, Error>>> {
        while let Some(events) = &mut self.events {
            match ready!(events.poll_next(waiting)) {
                Ok(ControlFlow::Continue(event)) => {
                    if let Some(part) = self.parts.part(event) {
                        return Poll::Ready(Some(Ok(part)));
                    }
                }
                Ok(ControlFlow::Break(machine)) => {
                    self.events = None;
                    let finished = finish(self.graph, &self.target, machine);
                    let thread = finished.as_ref().ok().and_then(|outcome| receiving_thread(&self.target, outcome));
                    match thread.cloned() {
                        Some(thread) => self.delivery = Some((finished, Box::pin(deliver_async(thread)))),
                        None => return Poll::Ready(end(finished, &mut self.outcome)),
                    }
                }
                Err(error) => {
                    self.events = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        let Some((_, delivery)) = &mut self.delivery else { return Poll::Ready(None) };
        let delivered = ready!(delivery.as_mut().poll(waiting));
        let finished = self.delivery.take().map(|(finished, _)| delivered.and(finished));
        Poll::Ready(finished.and_then(|finished| end(finished, &mut self.outcome)))
    }

    /// Returns what came of the run, once the stream has ended without an error.
    pub fn outcome(&self) -> Option<&Outcome<S>> {
        self.outcome.as_ref()
    }
}

/// # Example
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
///
/// use annals_graph::prelude::*;
/// use futures_core::Stream;
///
/// #[derive(State, Clone, Default)]
/// struct Sum { #[channel(last)] n: i64 }
///
/// /// Counts what any stream gives.
/// async fn count(mut stream: impl Stream + Unpin) -> usize {
///     let mut count = 0;
///     while poll_fn(|waiting| Pin::new(&mut stream).poll_next(waiting)).await.is_some() {
///         count += 1;
///     }
///     count
/// }
///
/// # fn main() -> Result<()> {
/// let add = |sum: &Sum| Ok(Sum::update().n(sum.n + 1));
/// let graph = StateGraph::<Sum>::new().node("add", add).edge(START, "add").compile()?;
/// let run = async {
///     let stream = graph.astream((), Sum::update().n(1), &[StreamMode::Values]).await?;
///     assert_eq!(count(stream).await, 2);
///     Ok::<(), annals_graph::Error>(())
/// };
/// # annals_graph::block_on(run)
/// # }
/// ```
#[cfg(feature = "futures")]
impl<S: Clone + Send + Sync + 'static> futures_core::Stream for AsyncStream<'_, S> {
    type Item = Result<StreamPart<S>, Error>;

    fn poll_next(self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_part(waiting)
    }
}

impl<S> fmt::Debug for Stream<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("ended", &self.driver.is_none()).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for AsyncStream<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncStream")
            .field("ended", &(self.events.is_none() && self.delivery.is_none()))
            .finish_non_exhaustive()
    }
}
