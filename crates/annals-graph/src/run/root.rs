//! The outermost graph of a run: the checkpoint it begins on, and the superstep it makes again there.

use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::exec::RunStart;
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, Source, StoreError};

use super::decision::{Decision, DecisionLog};
use super::start::Loaded;

/// The checkpoint of the outermost graph that a run begins on whose caller names one.
#[derive(Default)]
pub(crate) struct RootPoint {
    /// The checkpoint; `None` for the head of the outermost graph.
    pub(crate) at: Option<CheckpointRef>,
    /// The checkpoints of subgraphs and of their parent graphs that the named one stands for.
    pub(crate) named: Arc<[(Namespace, CheckpointId)]>,
}

impl RootPoint {
    /// Decides where the outermost graph begins: at the named checkpoint, or at its checkpoint at the time that the
    /// named one of a subgraph was made.
    pub(crate) fn decide(named: CheckpointRef) -> Decision<Result<Self, StoreError>> {
        Decision::new(|log| async move { Self::of(&log, named).await })
    }

    async fn of(log: &DecisionLog, point: CheckpointRef) -> Result<Self, StoreError> {
        let Some(record) = log.checkpoint(point.clone()).await else {
            return Err(StoreError::CheckpointNotFound { thread: point.thread, id: point.checkpoint.to_string() });
        };
        if point.namespace.is_root() {
            // A run that forked the graph for checkpoints of subgraphs has named them: who continues the fork means
            // them too.
            if record.source != Source::Fork || record.run.is_none() || record.parents.is_empty() {
                return Ok(Self { at: Some(point), ..Self::default() });
            }
            let own = (point.namespace.clone(), point.checkpoint);
            let others = record.parents.iter().filter(|(of, _)| !of.is_root()).cloned();
            return Ok(Self { named: std::iter::once(own).chain(others).collect(), at: Some(point) });
        }
        let Some((_, root)) = record.parents.iter().find(|(namespace, _)| namespace.is_root()) else {
            return Ok(Self::default());
        };
        if record.source == Source::Update && record.parent.is_none() && stand_still(log, &record).await {
            // An edit that was made before the subgraph first ran, in the superstep that is due.
            return Ok(Self { at: None, named: [(point.namespace, point.checkpoint)].into() });
        }
        let root = CheckpointRef { namespace: Namespace::root(), checkpoint: *root, ..point.clone() };
        let own = (point.namespace, point.checkpoint);
        let mut named: Vec<_> = record.parents.iter().filter(|(of, _)| *of != own.0).cloned().collect();
        named.push(own);
        // The run that made this checkpoint of the outermost graph may have named other subgraphs. They are named
        // again, also if a later run, which named none, has made the checkpoint of the subgraph.
        if let Some(fork) = log.checkpoint(root.clone()).await.filter(|root| root.run.is_some()) {
            for name in fork.parents.iter() {
                if named.iter().all(|(of, _)| *of != name.0) {
                    named.push(name.clone());
                }
            }
        }
        Ok(Self { at: Some(root), named: named.into() })
    }
}

/// Returns whether the parent graphs of a checkpoint still stand where they stood when it was made.
async fn stand_still(log: &DecisionLog, record: &CheckpointRecord) -> bool {
    for (parent, checkpoint) in record.parents.iter().filter(|(of, _)| *of != record.point.namespace) {
        if log.head(record.point.thread.clone(), parent.clone()).await != Some(*checkpoint) {
            return false;
        }
    }
    true
}

/// Decides which heads of the parent graphs an update names that makes the first checkpoint of a subgraph, so that a
/// run which continues there finds the update.
pub(crate) fn parent_heads(
    thread: ThreadId,
    namespace: Namespace,
) -> Decision<Result<Arc<[(Namespace, CheckpointId)]>, StoreError>> {
    Decision::new(|log| async move {
        let segments: Vec<&str> = namespace.segments().collect();
        let mut heads = Vec::with_capacity(segments.len());
        for depth in 0..segments.len() {
            let parent = Namespace::new(segments[..depth].join("|"))?;
            if let Some(head) = log.head(thread.clone(), parent.clone()).await {
                heads.push((parent, head));
            }
        }
        Ok(heads.into())
    })
}

/// The relation of a run, or of an update, to the head that the outermost graph begins on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RootStart {
    /// True if the head is a checkpoint of the past, so that its superstep was made already: its caller named it, or
    /// the head of the thread was moved back to it.
    pub(crate) addressed: bool,
    /// True if the head of the thread was moved to a checkpoint that others continue: its superstep is made again.
    pub(crate) is_continued: bool,
    /// True if no checkpoint of the thread is newer than the head.
    is_newest: bool,
}

impl RootStart {
    /// Returns the relation to a loaded head, whose checkpoint the caller may have `named`. A run that is `repeated`
    /// with its key makes no superstep a second time.
    pub(crate) fn new(named: bool, repeated: bool, loaded: &Loaded) -> Self {
        let is_continued = loaded.is_continued && !repeated;
        let is_newest = loaded.head.checkpoint.map(|checkpoint| checkpoint.id) == loaded.newest;
        Self { addressed: named || is_continued, is_continued, is_newest }
    }

    /// Returns whether the run makes the superstep of its head again, subgraphs included. With resume values it goes on
    /// in the tasks that have interrupted, and an input at the newest checkpoint goes on from there, unless others
    /// continue the head.
    pub(crate) fn replays(self, start: &RunStart) -> bool {
        let goes_on = match start {
            RunStart::Command(command) => command.resume.is_some(),
            RunStart::Input(_) => self.is_newest,
            _ => false,
        };
        self.addressed && (!goes_on || self.is_continued)
    }
}
