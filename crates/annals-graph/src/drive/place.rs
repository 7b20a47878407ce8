//! The places on which a graph can be run.

use std::sync::Arc;

use crate::base::{CheckpointId, Namespace};
use crate::error::Error;
use crate::history::{Snapshot, Thread};
use crate::store::{CheckpointRef, StoreError};
use crate::task::Context;

/// A place on which a graph can be run: `&Thread`, `&Snapshot` to continue from an old checkpoint, `&Context` for a
/// graph that a node calls, or `()` for no store.
pub trait RunOn {
    #[doc(hidden)]
    fn place(&self) -> RunPlace;
}

#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct RunPlace {
    pub(super) thread: Option<Thread>,
    pub(super) at: Option<CheckpointRef>,
    pub(super) inside: Option<Context>,
    /// The checkpoints of several namespaces that a checkpoint inside stands for.
    pub(super) named: Arc<[(Namespace, CheckpointId)]>,
}

impl RunPlace {
    fn new(thread: Option<Thread>, at: Option<CheckpointRef>, inside: Option<Context>) -> Self {
        Self { thread, at, inside, named: [].into() }
    }

    pub(super) fn inside(context: &Context) -> Self {
        Self::new(None, None, Some(context.clone()))
    }

    /// Returns the place of the outermost graph: its checkpoint at the time, if this is a checkpoint of a subgraph.
    pub(super) fn outermost(&self) -> Result<Self, Error> {
        let Some(thread) = self.thread.as_ref().filter(|thread| !thread.namespace().is_root()) else {
            return Ok(self.clone());
        };
        let mut place = Self::new(Some(thread.with_namespace(Namespace::root())), None, None);
        let Some(point) = &self.at else { return Ok(place) };
        let not_found =
            || StoreError::CheckpointNotFound { thread: point.thread.clone(), id: point.checkpoint.to_string() };
        let backend = thread.store().backend();
        let record = backend.checkpoint(point)?.ok_or_else(not_found)?;
        let Some((_, root)) = record.parents.iter().find(|(namespace, _)| namespace.is_root()) else {
            return Ok(place);
        };
        let root = CheckpointRef { namespace: Namespace::root(), checkpoint: *root, ..point.clone() };
        let own = (point.namespace.clone(), point.checkpoint);
        let mut named: Vec<_> = record.parents.iter().filter(|(of, _)| *of != own.0).cloned().collect();
        named.push(own);
        // The run that made this checkpoint of the outermost graph may have named other subgraphs. They are named again,
        // also if a later run, which named none, has made the checkpoint of the subgraph.
        if let Some(fork) = backend.checkpoint(&root)?.filter(|root| root.run.is_some()) {
            for name in fork.parents.iter() {
                if named.iter().all(|(of, _)| *of != name.0) {
                    named.push(name.clone());
                }
            }
        }
        (place.at, place.named) = (Some(root), named.into());
        Ok(place)
    }
}

impl RunOn for () {
    fn place(&self) -> RunPlace {
        RunPlace::new(None, None, None)
    }
}

/// Inside a node: the graph is a part of the run of that node.
impl RunOn for &Context {
    fn place(&self) -> RunPlace {
        RunPlace::inside(self)
    }
}

impl RunOn for &Thread {
    fn place(&self) -> RunPlace {
        RunPlace::new(Some((*self).clone()), None, None)
    }
}

impl RunOn for &Snapshot {
    fn place(&self) -> RunPlace {
        let point = self.point();
        let thread = self.store().thread(point.thread.as_str()).ok();
        let thread = thread.map(|thread| thread.with_namespace(point.namespace.clone()));
        RunPlace::new(thread, Some(point.clone()), None)
    }
}
