//! What the nodes of a run reach of its driver.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::RunId;
use crate::exec::{Event, EventKind, EventMask};
use crate::graph::{Context, Host, LivePart};
use crate::history::Thread;
use crate::store::Ticket;

use super::feed::{Fact, Feed};
use super::run::Durability;

/// The driver of a run, shared with all runs inside it.
pub(super) struct RunHost {
    /// Where the run is recorded.
    pub(super) thread: Option<Thread>,
    pub(super) run: RunId,
    pub(super) metadata: Option<String>,
    pub(super) durability: Durability,
    pub(super) recursion_limit: u64,
    /// How many tasks run at the same time at most.
    pub(super) concurrency_max: usize,
    pub(super) wants: EventMask,
    /// Where the outermost driver looks.
    pub(super) feed: Arc<Feed>,
    /// Commits of runs inside this one that nobody has waited for yet.
    pub(super) tickets: Mutex<Vec<Ticket>>,
}

impl RunHost {
    /// Shows an event of a run inside this one, if that is wanted.
    pub(super) fn forward(&self, event: Event) {
        if self.wants.subgraphs || event.namespace.is_root() {
            self.feed.push(Fact::Shown(event));
        }
    }
}

impl Host for RunHost {
    fn emit(&self, context: &Context, part: LivePart) {
        match part {
            LivePart::Custom(value) if self.wants.custom => {
                self.forward(Event { namespace: context.parts().namespace.clone(), kind: EventKind::Custom(value) });
            }
            LivePart::Custom(_) => {}
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
