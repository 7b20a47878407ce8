//! The targets of a run: a thread, a checkpoint, the context of a node, or no store.

use std::sync::Arc;

use crate::base::{CheckpointId, Namespace};
use crate::error::Error;
use crate::history::{Snapshot, Thread};
use crate::run::RootPoint;
use crate::store::CheckpointRef;
use crate::task::Context;

use super::records::decided;

/// A target of a run: `&Thread`, `&Snapshot` to continue from an old checkpoint, `&Context` for a
/// graph that a node calls, or `()` for no store.
pub trait RunOn {
    #[doc(hidden)]
    fn target(&self) -> RunTarget;
}

#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct RunTarget {
    pub(super) thread: Option<Thread>,
    pub(super) at: Option<CheckpointRef>,
    pub(super) inside: Option<Context>,
    /// The checkpoints of several namespaces that a checkpoint inside stands for.
    pub(super) named: Arc<[(Namespace, CheckpointId)]>,
}

impl RunTarget {
    fn new(thread: Option<Thread>, at: Option<CheckpointRef>, inside: Option<Context>) -> Self {
        Self { thread, at, inside, named: [].into() }
    }

    pub(super) fn inside(context: &Context) -> Self {
        Self::new(None, None, Some(context.clone()))
    }

    /// Returns the target of the outermost graph: its checkpoint at the time, if this is a checkpoint of a subgraph.
    pub(super) fn outermost(&self) -> Result<Self, Error> {
        let Some(thread) = &self.thread else { return Ok(self.clone()) };
        let root = match &self.at {
            Some(point) => decided(RootPoint::decide(point.clone()), thread)??,
            None => RootPoint::default(),
        };
        let thread = thread.with_namespace(Namespace::root());
        Ok(Self { named: root.named, ..Self::new(Some(thread), root.at, self.inside.clone()) })
    }
}

impl RunOn for RunTarget {
    fn target(&self) -> RunTarget {
        self.clone()
    }
}

impl RunOn for () {
    fn target(&self) -> RunTarget {
        RunTarget::new(None, None, None)
    }
}

/// Inside a node: the graph is a part of the run of that node.
impl RunOn for &Context {
    fn target(&self) -> RunTarget {
        RunTarget::inside(self)
    }
}

impl RunOn for &Thread {
    fn target(&self) -> RunTarget {
        RunTarget::new(Some((*self).clone()), None, None)
    }
}

impl RunOn for &Snapshot {
    fn target(&self) -> RunTarget {
        let point = self.point();
        let thread = self.store().thread(point.thread.as_str()).ok();
        let thread = thread.map(|thread| thread.with_namespace(point.namespace.clone()));
        RunTarget::new(thread, Some(point.clone()), None)
    }
}
