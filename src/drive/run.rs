//! Starting a run: on what, with what, and what comes back.

use std::fmt;
use std::sync::Arc;

use crate::base::limits::RECURSION_LIMIT_DEFAULT;
use crate::base::{Clock, IdSource, RunId, SystemClock};
use crate::error::Error;
use crate::exec::{Event, EventMask, Head, Machine, Recording, Request, RunError, Start, Status};
use crate::graph::{Command, CompiledGraph, Interrupt};
use crate::history::{Snapshot, Thread};
use crate::state::{DynState, DynUpdate, IntoUpdate, StateRef, Writes, resolve};
use crate::store::Point;
use crate::stream::{StreamMode, StreamPart};

use super::blocking::Driver;
use super::load;

/// When a superstep counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// When it is committed: what follows starts after that. No acknowledged superstep is lost.
    Sync,
    /// When it is handed to the background writer; the run returns when its last checkpoint is committed. A crash
    /// may take the last superstep, which is then run again. A conflict may surface one superstep late.
    #[default]
    Async,
}

/// What a run is given.
#[derive(Clone, Debug)]
pub enum Input {
    /// A change: the graph starts at its entry.
    Update(Writes),
    /// An answer, a change or a jump: the graph goes on where it stopped.
    Command(Command),
    /// Nothing: the graph goes on where it stopped.
    Continue,
}

/// What can be given to a run of a graph with state `S`: an update, a [`Command`], or an [`Input`]. Implemented by
/// `#[derive(State)]` for the update of a state.
pub trait IntoInput<S> {
    /// Returns the input.
    fn into_input(self) -> Input;
}

impl IntoInput<DynState> for DynUpdate {
    fn into_input(self) -> Input {
        Input::Update(IntoUpdate::<DynState>::into_writes(self))
    }
}

impl<S> IntoInput<S> for Command {
    fn into_input(self) -> Input {
        Input::Command(self)
    }
}

impl<S> IntoInput<S> for Input {
    fn into_input(self) -> Input {
        self
    }
}

/// What a graph can be run on: `&Thread`, `&Snapshot` to go on from an old checkpoint, or `()` for no store.
pub trait RunOn {
    #[doc(hidden)]
    fn place(&self) -> Place;
}

#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) thread: Option<Thread>,
    pub(super) at: Option<Point>,
}

impl RunOn for () {
    fn place(&self) -> Place {
        Place { thread: None, at: None }
    }
}

impl RunOn for &Thread {
    fn place(&self) -> Place {
        Place { thread: Some((*self).clone()), at: None }
    }
}

impl RunOn for &Snapshot {
    fn place(&self) -> Place {
        let thread = self.store().thread(self.point().thread.as_str()).ok();
        Place { thread, at: Some(self.point().clone()) }
    }
}

/// What came of a run.
#[derive(Clone)]
#[non_exhaustive]
pub enum Outcome<S> {
    /// It has ended.
    Done(Arc<S>),
    /// It waits for answers, or at a breakpoint if there are no questions.
    Interrupted {
        /// The state so far.
        state: Arc<S>,
        /// The open questions.
        interrupts: Vec<Interrupt>,
    },
}

impl<S> Outcome<S> {
    /// Returns the state.
    pub fn state(&self) -> &S {
        match self {
            Self::Done(state) | Self::Interrupted { state, .. } => state,
        }
    }

    /// Returns the open questions; none if the run has ended or stopped at a breakpoint.
    pub fn interrupts(&self) -> &[Interrupt] {
        match self {
            Self::Done(_) => &[],
            Self::Interrupted { interrupts, .. } => interrupts,
        }
    }

    /// Returns whether the run has ended.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// Shows what came of it, not the state, which need not be printable.
impl<S> fmt::Debug for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => f.write_str("Done"),
            Self::Interrupted { interrupts, .. } => f.debug_tuple("Interrupted").field(interrupts).finish(),
        }
    }
}

/// A run that is being set up.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Count { #[channel(last)] n: i64 }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Count>::new()
///     .node("add", |s: &Count| Ok(Count::update().n(s.n + 1)))
///     .edge(START, "add")
///     .edge("add", "add")
///     .compile()?;
/// let error = graph.run(()).recursion_limit(5).invoke(Count::update().n(0)).unwrap_err();
/// assert_eq!(error.code(), Some("GRAPH_RECURSION_LIMIT"));
/// # Ok(())
/// # }
/// ```
pub struct Run<'a, S> {
    graph: &'a CompiledGraph<S>,
    place: Place,
    recursion_limit: u64,
    durability: Durability,
    interrupt_before: Vec<String>,
    interrupt_after: Vec<String>,
    metadata: Option<String>,
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Runs the graph with an input and returns what came of it.
    ///
    /// # Errors
    /// A node's own error as [`RunError::Node`]; [`RunError`] for what a run cannot do; the store's errors. What was
    /// committed before stays, and the thread can be continued.
    pub fn invoke(&self, on: impl RunOn, input: impl IntoInput<S>) -> Result<Outcome<S>, Error> {
        self.run(on).invoke(input)
    }

    /// Runs the graph with an input and returns what happens, as it happens.
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`], here and as items of the stream.
    pub fn stream(
        &self,
        on: impl RunOn,
        input: impl IntoInput<S>,
        modes: &[StreamMode],
    ) -> Result<Stream<'_, S>, Error> {
        self.run(on).stream(input, modes)
    }

    /// Sets up a run with options.
    pub fn run(&self, on: impl RunOn) -> Run<'_, S> {
        Run {
            graph: self,
            place: on.place(),
            recursion_limit: RECURSION_LIMIT_DEFAULT,
            durability: Durability::default(),
            interrupt_before: Vec::new(),
            interrupt_after: Vec::new(),
            metadata: None,
        }
    }
}

impl<'a, S: Clone + Send + Sync + 'static> Run<'a, S> {
    /// Sets how many supersteps the run may take. Default: 10,007.
    pub fn recursion_limit(mut self, limit: u64) -> Self {
        self.recursion_limit = limit;
        self
    }

    /// Sets when a superstep counts as done. Default: [`Durability::Async`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Stops before these nodes, in place of the breakpoints of the graph.
    pub fn interrupt_before(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.interrupt_before.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Stops after these nodes, in place of the breakpoints of the graph.
    pub fn interrupt_after(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.interrupt_after.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Sets metadata that is stored with every checkpoint of the run.
    pub fn metadata(mut self, metadata: serde_json::Map<String, serde_json::Value>) -> Self {
        self.metadata = Some(serde_json::Value::Object(metadata).to_string());
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`CompiledGraph::invoke`].
    pub fn invoke(self, input: impl IntoInput<S>) -> Result<Outcome<S>, Error> {
        let (graph, thread) = (self.graph, self.place.thread.clone());
        let driver = self.start(input.into_input(), EventMask::default())?;
        finish(graph, thread.as_ref(), driver.run()?)
    }

    /// Runs step by step, as far as the stream is read.
    ///
    /// # Errors
    /// As [`CompiledGraph::stream`].
    pub fn stream(self, input: impl IntoInput<S>, modes: &[StreamMode]) -> Result<Stream<'a, S>, Error> {
        let events =
            EventMask { values: modes.contains(&StreamMode::Values), updates: modes.contains(&StreamMode::Updates) };
        let (graph, thread) = (self.graph, self.place.thread.clone());
        let driver = self.start(input.into_input(), events)?;
        Ok(Stream { graph, thread, driver: Some(driver), outcome: None })
    }

    fn start(self, input: Input, events: EventMask) -> Result<Driver, Error> {
        let graph = &self.graph.graph;
        let start = match input {
            Input::Update(writes) => Start::Input(resolve(&*graph.layout, writes).map_err(RunError::from)?),
            Input::Command(command) => Start::Command(command),
            Input::Continue => Start::Continue,
        };
        let breakpoints = |names: &[String], when| match names {
            [] => Ok(None),
            names => graph.breakpoints(names, when).map(Some).map_err(RunError::from),
        };
        let (seed, now, store, head, recording) = match &self.place.thread {
            None => (IdSource::new().random(), SystemClock.now(), None, Head::empty(graph), None),
            Some(thread) => {
                let store = thread.store();
                let loaded = load::load(graph, thread, self.place.at.as_ref())?;
                let recording = recording(thread, &self.place, loaded.newest, store.mint_run(), self.metadata.clone());
                (store.mint_seed(), store.now(), Some(store.clone()), loaded.head, Some(recording))
            }
        };
        let request = Request {
            start,
            recursion_limit: self.recursion_limit,
            interrupt_before: breakpoints(&self.interrupt_before, "before")?,
            interrupt_after: breakpoints(&self.interrupt_after, "after")?,
            events,
            recording,
            seed,
        };
        let machine = Machine::new(Arc::clone(graph), head, request, now)?;
        Ok(Driver::new(machine, store, self.durability))
    }
}

pub(super) fn recording(
    thread: &Thread,
    place: &Place,
    newest: Option<crate::base::CheckpointId>,
    run: RunId,
    metadata: Option<String>,
) -> Recording {
    Recording {
        thread: thread.id().clone(),
        namespace: crate::base::Namespace::root(),
        head: newest,
        run,
        metadata,
        addressed: place.at.is_some(),
    }
}

pub(super) fn typed<S: Send + Sync + 'static>(state: &StateRef) -> Arc<S> {
    match Arc::downcast::<S>(Arc::clone(state)) {
        Ok(state) => state,
        Err(_) => unreachable!("a graph runs on its own states"),
    }
}

fn finish<S: Clone + Send + Sync + 'static>(
    graph: &CompiledGraph<S>,
    thread: Option<&Thread>,
    machine: Machine,
) -> Result<Outcome<S>, Error> {
    let state = typed::<S>(machine.state());
    let (status, head) = machine.finish();
    if let (Some(thread), Some(head)) = (thread, head) {
        load::keep(&graph.graph, thread, head);
    }
    match status {
        Status::Done => Ok(Outcome::Done(state)),
        Status::Interrupted(interrupts) => Ok(Outcome::Interrupted { state, interrupts }),
        Status::Failed(error) => Err(error.into()),
        Status::Running => unreachable!("a driver runs a machine to its end"),
    }
}

/// What happens in a run, as it happens. The run goes on as far as the stream is read; dropping it leaves the thread
/// where its last committed superstep was.
pub struct Stream<'a, S> {
    graph: &'a CompiledGraph<S>,
    thread: Option<Thread>,
    driver: Option<Driver>,
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
        match self.driver.as_mut()?.next_event() {
            Ok(Some(event)) => Some(Ok(match event {
                Event::Values(state) => StreamPart::Values(typed::<S>(&state)),
                Event::Updates { node, update, cached } => StreamPart::Updates { node, update, cached },
                Event::Interrupts(interrupts) => StreamPart::Interrupts(interrupts),
            })),
            Ok(None) => {
                let machine = self.driver.take()?.into_machine();
                match finish(self.graph, self.thread.as_ref(), machine) {
                    Ok(outcome) => {
                        self.outcome = Some(outcome);
                        None
                    }
                    Err(error) => Some(Err(error)),
                }
            }
            Err(error) => {
                self.driver = None;
                Some(Err(error))
            }
        }
    }
}

impl<S> fmt::Debug for Stream<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("ended", &self.driver.is_none()).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Run<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("place", &self.place).field("durability", &self.durability).finish_non_exhaustive()
    }
}
