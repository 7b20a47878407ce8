//! A subgraph in a task of its parent graph: its namespace, and how its run is recorded.

use crate::base::{CheckpointId, IdError, Namespace, ThreadId};
use crate::exec::{Recording, Saving};
use crate::graph::{Graph, Persistence};
use crate::task::{Around, CallBegan, Context, task_namespace, without_tasks};

use super::session::Session;
use super::start::{Begins, ReadySubgraph};

/// A subgraph that is about to run in a task.
pub(crate) struct Subgraph {
    namespace: Namespace,
    /// True if it stores checkpoints whenever its run does.
    pub(crate) stores: bool,
    /// The number of the call in its attempt.
    pub(super) call: usize,
    /// The beginning of the subgraph in an earlier attempt of its task, if that attempt called it.
    pub(super) before: Option<CallBegan>,
}

impl Subgraph {
    /// Makes the next subgraph that the task of a context calls.
    ///
    /// # Errors
    /// [`IdError`] if it is nested too deep to have a namespace.
    pub(crate) fn new(graph: &Graph, context: &Context) -> Result<Self, IdError> {
        let outer = context.parts();
        let (call, before) = {
            let mut asked = context.asked().lock();
            let call = asked.calls;
            asked.calls += 1;
            (call, asked.begun.iter().find(|(known, _)| *known == call).map(|(_, began)| began.clone()))
        };
        let mut path = task_namespace(&outer.namespace, &outer.node, outer.task);
        if call > 0 {
            path = format!("{path}|{call}");
        }
        if graph.persistence == Persistence::PerThread {
            path = without_tasks(&path);
        }
        // A graph that keeps its state does so also inside a stateless graph.
        let stores = match graph.persistence {
            Persistence::Stateless => false,
            Persistence::PerInvocation => outer.thread.is_some(),
            Persistence::PerThread => true,
        };
        Ok(Self { namespace: Namespace::new(path)?, stores, call, before })
    }

    /// Returns its namespace.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns its namespace.
    pub(crate) fn into_namespace(self) -> Namespace {
        self.namespace
    }
}

impl Session {
    /// Returns how the run of a subgraph is recorded that starts in the task of a context, and where its parent graphs
    /// stand.
    pub(crate) fn recording(
        &self,
        context: &Context,
        thread: &ThreadId,
        of: &Subgraph,
        start: &ReadySubgraph,
    ) -> Recording {
        let (parents, heads) = match Around::below(context.parts()) {
            Some(Around { parents, heads, .. }) => (parents, heads),
            None => ([].into(), [].into()),
        };
        let Begins { at, named, .. } = &start.begins;
        Recording {
            thread: thread.clone(),
            namespace: of.namespace.clone(),
            head: start.loaded.newest,
            run: self.run,
            metadata: self.metadata.clone(),
            marked_metadata: None,
            parents,
            around: heads,
            addressed: *named,
            is_continued: false,
            forked_from: at.clone().filter(|at| at.thread != *thread),
        }
    }

    /// Returns when a subgraph stores its checkpoints.
    pub(crate) fn saving_of(&self, graph: &Graph, resumes: bool) -> Saving {
        match (self.saving(), graph.persistence) {
            // A task that an earlier run left open stays open until the end of the subgraph is stored: its interrupt
            // would be found again.
            (Saving::AtEnd, persistence) if resumes || persistence == Persistence::PerThread => Saving::AtEnd,
            (Saving::AtEnd, _) => Saving::UnlessDone,
            (saving, _) => saving,
        }
    }
}

/// Notes how a subgraph begins, for the next attempt of its task. The work of a failed attempt does not count: the
/// subgraph begins at the same checkpoint again with its new input, or on an empty state if it keeps no state beyond
/// its task. But a subgraph that continues in this run continues in the next attempt too, as it would in the next run,
/// so that it does not interrupt again.
pub(super) fn note_began(graph: &Graph, context: &Context, call: usize, begins: &Begins, newest: Option<CheckpointId>) {
    let at = begins.at.clone();
    let began = match begins.resumes {
        true => CallBegan::Resumed { at, named: begins.named, newest },
        false => CallBegan::On(at.filter(|_| graph.persistence == Persistence::PerThread)),
    };
    let mut asked = context.asked().lock();
    if asked.begun.iter().all(|(known, _)| *known != call) {
        asked.begun.push((call, began));
    }
}
