//! The outcome of a run, in the type of its state.

use std::fmt;
use std::sync::Arc;

use crate::base::{Namespace, Timestamp};
use crate::error::Error;
use crate::exec::{Machine, RunError, Status};
use crate::graph::{CompiledGraph, Entry, Graph};
use crate::state::{Part, StateRef};
use crate::task::Interrupt;

use super::state::{Ran, RunState};
use super::target::RunTarget;
use super::{load, subgraph};

/// The outcome of a run.
#[derive(Clone)]
#[non_exhaustive]
pub enum Outcome<S> {
    /// It has ended.
    Done(RunState<S>),
    /// The run waits for resume values, or at a breakpoint if it has no open interrupts.
    Interrupted {
        /// The state so far.
        state: RunState<S>,
        /// The open interrupts.
        interrupts: Vec<Interrupt>,
    },
    /// It was asked to stop with [`RunControl::request_drain`](crate::task::RunControl::request_drain), and can be
    /// continued.
    Drained {
        /// The state so far.
        state: RunState<S>,
        /// Why it was asked to stop.
        reason: String,
    },
    /// It was cancelled with [`RunControl::cancel`](crate::task::RunControl::cancel). Results of ended tasks are
    /// retained; the other tasks run again when the run is continued.
    Cancelled {
        /// The state after the last whole superstep.
        state: RunState<S>,
        /// Why it was cancelled.
        reason: String,
    },
}

impl<S> Outcome<S> {
    /// Returns the state.
    pub fn state(&self) -> &S {
        self.reached()
    }

    pub(super) fn reached(&self) -> &RunState<S> {
        match self {
            Self::Done(state)
            | Self::Interrupted { state, .. }
            | Self::Drained { state, .. }
            | Self::Cancelled { state, .. } => state,
        }
    }

    /// Returns a part of the state, as the output schema of the graph.
    pub fn output<O: Part<S>>(&self) -> O {
        O::of(self.state())
    }

    /// Returns the open interrupts; none if the run has ended or stopped at a breakpoint.
    ///
    /// A node that has started several tasks waits for one of them, and the interrupt of that one alone is returned, as
    /// in the reference. [`open_interrupts`](annals_runs::ThreadRuns::open_interrupts) of the thread lists those of all
    /// tasks; one command can resume them by id.
    pub fn interrupts(&self) -> &[Interrupt] {
        match self {
            Self::Done(_) | Self::Drained { .. } | Self::Cancelled { .. } => &[],
            Self::Interrupted { interrupts, .. } => interrupts,
        }
    }

    /// Returns when the first of its tasks that sleep can go on; `None` if none sleeps.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.interrupts().iter().filter_map(|interrupt| interrupt.wake_at).min()
    }

    /// Returns the branch that holds the work of a run which lost a race, if it retained that
    /// ([`Run::on_conflict`](crate::Run::on_conflict)).
    pub fn branch(&self) -> Option<&str> {
        self.reached().branch()
    }

    /// Returns whether the run has ended.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl<I, O> Outcome<Entry<I, O>> {
    /// Returns the value of the entrypoint; `None` before its first run has ended, and for a value that is null.
    pub fn value(&self) -> Option<&O> {
        self.state().value()
    }
}

/// Shows what came of it, not the state, which need not be printable.
impl<S> fmt::Debug for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => f.write_str("Done"),
            Self::Interrupted { interrupts, .. } => f.debug_tuple("Interrupted").field(interrupts).finish(),
            Self::Drained { reason, .. } => f.debug_tuple("Drained").field(reason).finish(),
            Self::Cancelled { reason, .. } => f.debug_tuple("Cancelled").field(reason).finish(),
        }
    }
}

pub(super) fn typed<S: Send + Sync + 'static>(state: &StateRef) -> Arc<S> {
    match Arc::downcast::<S>(Arc::clone(state)) {
        Ok(state) => state,
        Err(_) => unreachable!("a graph runs on its own states"),
    }
}

/// Returns the outcome of a run, in the type of its state.
pub(in crate::drive) fn finish<S: Clone + Send + Sync + 'static>(
    graph: &CompiledGraph<S>,
    target: &RunTarget,
    machine: Machine,
) -> Result<Outcome<S>, Error> {
    let Finished { state, ran, ending } = finish_erased(&graph.graph, target, machine)?;
    let state = RunState::new(typed::<S>(&state), ran);
    Ok(match ending {
        Ending::Done => Outcome::Done(state),
        Ending::Interrupted(interrupts) => Outcome::Interrupted { state, interrupts },
        Ending::Drained(reason) => Outcome::Drained { state, reason },
        Ending::Cancelled(reason) => Outcome::Cancelled { state, reason },
    })
}

/// The outcome of a run without the type of its state, so that its code is compiled once for all states.
struct Finished {
    state: StateRef,
    ran: Arc<Ran>,
    ending: Ending,
}

/// The end of a run that did not fail.
enum Ending {
    Done,
    Interrupted(Vec<Interrupt>),
    Drained(String),
    Cancelled(String),
}

fn finish_erased(graph: &Arc<Graph>, target: &RunTarget, mut machine: Machine) -> Result<Finished, Error> {
    let ran = Ran::of(graph, target, &mut machine);
    if let Some(context) = &target.inside {
        let (state, _) = subgraph::finish(graph, context, machine)?;
        return Ok(Finished { state, ran, ending: Ending::Done });
    }
    let state = Arc::clone(machine.state());
    let (status, head) = machine.finish();
    if let (Some(thread), Some(head)) = (&target.thread, head) {
        load::keep(graph, &thread.with_namespace(Namespace::root()), head);
    }
    let ending = match status {
        Status::Done => Ending::Done,
        Status::Interrupted(interrupts) => Ending::Interrupted(interrupts),
        Status::Drained(reason) => Ending::Drained(reason),
        Status::Cancelled(reason) => Ending::Cancelled(reason),
        Status::Left(_) => return Err(RunError::ParentCommand.into()),
        Status::Failed(error) => return Err(error.into()),
        Status::Running => unreachable!("a driver runs a machine to its end"),
    };
    Ok(Finished { state, ran, ending })
}
