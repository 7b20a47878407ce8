//! The start of a subgraph: the checkpoint it begins on, and whether it continues there or takes its input.

use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::exec::Head;
use crate::graph::{Graph, Persistence};
use crate::store::lease::LeaseRecord;
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, Source, StoreError};
use crate::task::{CallBegan, Context};

use super::decision::{DecisionLog, Need};
use super::lineage::{Stands, inherited, pinned};
use super::subgraph::note_began;

/// The checkpoint that a subgraph begins on.
pub(crate) struct Begins {
    /// The checkpoint, perhaps of the thread from which its own was forked; `None` if there is none yet, or none that
    /// counts.
    pub(crate) at: Option<CheckpointRef>,
    /// True if the caller named the checkpoint: that of the run, or of an earlier one that this run continues.
    pub(crate) named: bool,
    /// True if the subgraph continues there, and takes no input.
    pub(crate) resumes: bool,
}

impl Begins {
    /// Begins on a checkpoint with an input.
    fn anew(at: Option<CheckpointRef>) -> Self {
        Self { at, named: false, resumes: false }
    }
}

/// A decoded head, and the head of its namespace when it was loaded.
pub(crate) struct Loaded {
    pub(crate) head: Head,
    pub(crate) newest: Option<CheckpointId>,
    /// True if the head of the thread was moved to a checkpoint that others continue.
    pub(crate) is_continued: bool,
    /// The last lease of the thread, of the head of the outermost graph.
    pub(crate) lease: Option<LeaseRecord>,
}

/// A subgraph that can begin.
pub(crate) struct ReadySubgraph {
    pub(crate) begins: Begins,
    pub(crate) loaded: Loaded,
}

/// The newest checkpoint of a namespace that is held back, with the parent graphs and their checkpoints.
pub(super) type HeldNewest = (CheckpointId, Arc<[(Namespace, CheckpointId)]>);

/// The data from which it is decided where a subgraph begins.
pub(super) struct SubgraphStart {
    pub(super) graph: Arc<Graph>,
    pub(super) context: Context,
    pub(super) thread: ThreadId,
    pub(super) namespace: Namespace,
    /// The number of the call in its attempt.
    pub(super) call: usize,
    /// The beginning of the subgraph in an earlier attempt of its task, if that attempt called it.
    pub(super) before: Option<CallBegan>,
    /// The checkpoint at which this run left the subgraph, if it keeps its state.
    pub(super) left: Option<CheckpointId>,
    pub(super) held: Option<HeldNewest>,
    /// The checkpoint of the outermost graph that the run began on.
    pub(super) start: Option<CheckpointRef>,
    /// True if the run replays the superstep that began at `start`.
    pub(super) replays: bool,
    /// True if the outermost graph of the run takes an input.
    pub(super) takes_input: bool,
    /// The relation of the outermost graph to `start`.
    pub(super) stands: Stands,
    /// The checkpoint of the subgraph that the caller named, for its first start in the run.
    pub(super) named: Option<CheckpointId>,
    /// True if this is the first start of the subgraph in the run, as far as that is known.
    pub(super) first: bool,
}

impl SubgraphStart {
    /// Decides where the subgraph begins, and loads its head.
    pub(super) async fn decide(self, log: DecisionLog) -> Result<ReadySubgraph, StoreError> {
        if self.before.is_some() {
            // The commits of the attempt that failed may be on their way.
            log.settle().await;
        }
        let mut newest = None;
        let (begins, loaded) = match (&self.before, self.left) {
            (Some(CallBegan::On(at)), _) => (Begins::anew(at.clone()), log.load(Need::Load(at.clone())).await),
            (None, Some(left)) => (Begins::anew(Some(self.point(left))), self.load_left(&log, left).await?),
            (before, _) => {
                newest = self.newest(&log).await;
                let begins = match before {
                    // A checkpoint that the failed attempt stored counts. Without one, the attempt begins as that did.
                    Some(CallBegan::Resumed { at, named, newest: was }) => match newest {
                        Some(stored) if newest != *was => {
                            Begins { at: Some(self.point(stored)), named: false, resumes: true }
                        }
                        _ => Begins { at: at.clone(), named: *named, resumes: true },
                    },
                    _ => self.begins(&log, newest).await?,
                };
                let loaded = log.load(Need::Load(begins.at.clone())).await;
                (begins, loaded)
            }
        };
        note_began(&self.graph, &self.context, self.call, &begins, newest);
        Ok(ReadySubgraph { begins, loaded })
    }

    /// Returns the newest checkpoint of the namespace, which may be held back.
    async fn newest(&self, log: &DecisionLog) -> Option<CheckpointId> {
        match &self.held {
            Some((newest, _)) => Some(*newest),
            None => log.head(self.thread.clone(), self.namespace.clone()).await,
        }
    }

    fn point(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef { thread: self.thread.clone(), namespace: self.namespace.clone(), checkpoint }
    }

    /// Loads the head that this run has left, whose commits may not be written yet.
    async fn load_left(&self, log: &DecisionLog, left: CheckpointId) -> Result<Loaded, StoreError> {
        if self.held.is_some() {
            return Ok(log.load(Need::Load(Some(self.point(left)))).await);
        }
        if let Some(loaded) = log.cached(left).await {
            return Ok(loaded);
        }
        log.settle().await;
        let loaded = log.load(Need::LoadNewest).await;
        if loaded.newest == Some(left) {
            return Ok(loaded);
        }
        Err(self.conflict(self.namespace.clone(), Some(left), loaded.newest))
    }

    fn conflict(
        &self,
        namespace: Namespace,
        expected: Option<CheckpointId>,
        found: Option<CheckpointId>,
    ) -> StoreError {
        StoreError::Conflict { thread: self.thread.clone(), namespace, expected, found }
    }

    async fn begins(&self, log: &DecisionLog, newest: Option<CheckpointId>) -> Result<Begins, StoreError> {
        let keeps = self.graph.persistence == Persistence::PerThread;
        let Some(newest) = newest else {
            let at = if keeps { inherited(log, &self.namespace, self.start.clone()).await } else { None };
            return Ok(Begins::anew(at));
        };
        if let Some(named) = self.named.filter(|_| self.first) {
            // A run that takes an input gives one to the subgraph, on the named checkpoint.
            return Ok(Begins { at: Some(self.point(named)), named: true, resumes: !self.takes_input });
        }
        let resuming = self.context.parts().resuming && !self.replays;
        if !keeps && !self.replays {
            // Its namespace is that of the task.
            return Ok(Begins { at: Some(self.point(newest)), named: false, resumes: resuming });
        }
        let of = |record: CheckpointRecord| {
            let is_edit = matches!(record.source, Source::Update | Source::Fork);
            (record.point, record.parents, is_edit)
        };
        let (found, named_by) = match (&self.held, &self.start) {
            (Some((newest, parents)), _) => (Some((self.point(*newest), Arc::clone(parents), false)), None),
            (None, Some(start)) if self.first => {
                let pin = pinned(log, &self.thread, &self.namespace, start, self.stands).await;
                let named_by = pin.as_ref().and_then(|pin| pin.named_by);
                (pin.map(|pin| of(pin.record)), named_by)
            }
            (None, None) if self.first => (None, None),
            _ => (log.checkpoint(self.point(newest)).await.map(of), None),
        };
        let Some((at, parents, is_edit)) = found else { return Ok(Begins::anew(None)) };
        // Its parent graph may begin anew, as the run at the edit stopped before it stored a checkpoint of that.
        let is_named = !self.replays && self.is_named_by_root(named_by);
        let resumes = (is_named || (resuming && self.is_of_task(&parents))) && !self.is_free(&at);
        if let (true, Some(parent)) = (resuming, self.context.parts().checkpoint) {
            self.refuse_if_ended(log, at.checkpoint, parent).await?;
        }
        // The run that forked the outermost graph stopped before it forked the subgraph.
        let named = is_named && resumes && !(is_edit && at.checkpoint == newest);
        Ok(Begins { at: Some(at), named, resumes })
    }

    /// Returns whether a checkpoint of the subgraph, with these parents, was made by its task.
    fn is_of_task(&self, parents: &[(Namespace, CheckpointId)]) -> bool {
        let parts = self.context.parts();
        let at = |(of, checkpoint): &(Namespace, CheckpointId)| {
            *of == parts.namespace && Some(*checkpoint) == parts.checkpoint
        };
        parents.iter().any(at)
    }

    /// Returns whether the outermost graph still stands at the fork that names the checkpoint of the subgraph. That
    /// counts as made by its task.
    fn is_named_by_root(&self, named_by: Option<CheckpointId>) -> bool {
        named_by.is_some_and(|fork| root_of(&self.context) == Some(fork))
    }

    /// Returns whether another task of the superstep has ended where it left the subgraph at this checkpoint.
    fn is_free(&self, at: &CheckpointRef) -> bool {
        let stored = self.context.calls().stored.iter().flat_map(|stored| stored.iter());
        let is_left = |(left, head): &(String, CheckpointId)| left == at.namespace.as_str() && *head == at.checkpoint;
        stored.flat_map(|ended| &ended.left).any(is_left)
    }

    /// Refuses to continue for a task that another run has ended meanwhile: the subgraph now works for the next task.
    async fn refuse_if_ended(
        &self,
        log: &DecisionLog,
        found: CheckpointId,
        parent: CheckpointId,
    ) -> Result<(), StoreError> {
        let namespace = self.context.graph_namespace().clone();
        let at = CheckpointRef { thread: self.thread.clone(), namespace: namespace.clone(), checkpoint: parent };
        let writes = log.writes(at).await;
        let has_ended = |task| writes.iter().any(|write| write.task == task && write.index >= 0);
        if !self.context.with_callers().map(Context::task).any(has_ended) {
            return Ok(());
        }
        Err(self.conflict(namespace, Some(parent), Some(found)))
    }
}

/// Returns the checkpoint of the outermost graph in whose superstep the task of a context runs.
pub(super) fn root_of(context: &Context) -> Option<CheckpointId> {
    let parts = context.parts();
    if parts.namespace.is_root() {
        return parts.checkpoint;
    }
    let around = parts.around.as_ref()?;
    around.parents.iter().find(|(of, _)| of.is_root()).map(|(_, checkpoint)| *checkpoint)
}
