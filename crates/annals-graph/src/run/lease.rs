//! The lease of a run, as its commits name it.
//!
//! The first commit of a run claims the thread and the last one releases it, so that a turn costs no transaction for
//! its lease. *Absent:* clocks, the renewal in time, and the release of a run that ends without a last checkpoint,
//! which are the driver's.

use std::time::Duration;

use crate::store::batch::Batch;
use crate::store::lease::{LeaseOwner, NewLease};

/// The lease of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunLease {
    pub(crate) owner: LeaseOwner,
    /// The duration from a claim or a renewal to the expiry. `None` of a run that takes no lease: its first commit is
    /// refused while another one has it.
    pub(crate) duration: Option<Duration>,
    stage: LeaseStage,
}

/// The progress of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStage {
    /// The first commit with a checkpoint claims the thread.
    Due,
    Held,
    /// The last commit releases it, or the run takes none.
    Over,
    /// It was released in a transaction of its own.
    Ended,
}

impl RunLease {
    /// Makes the lease of a run; it is `held` if the thread is claimed already.
    pub(crate) fn new(owner: LeaseOwner, duration: Option<Duration>, held: bool) -> Self {
        Self { owner, duration, stage: if held { LeaseStage::Held } else { LeaseStage::Due } }
    }

    /// Returns whether the run has claimed the thread and not released it.
    pub(crate) fn is_held(&self) -> bool {
        self.stage == LeaseStage::Held
    }

    /// Returns whether the thread is claimed and not released, in a run of which a commit may have been refused: it may
    /// be the one with the release.
    pub(crate) fn is_unreleased(&self, has_failed: bool) -> bool {
        self.is_held() || (has_failed && self.stage == LeaseStage::Over)
    }

    /// Marks the lease as released.
    pub(crate) fn end(&mut self) {
        self.stage = LeaseStage::Ended;
    }

    /// Names the lease in a commit of the run. One that leaves no task of the outermost graph to run is the last one.
    pub(crate) fn name_in(&mut self, batch: &mut Batch, is_last: bool) {
        debug_assert!(batch.lease.is_none(), "a batch names a lease once");
        let roots = batch.parts().filter(|part| part.namespace.is_root());
        let ends = roots.filter_map(|part| part.checkpoints.last()).last().is_some_and(|last| last.tasks.is_empty());
        let ends = is_last || ends;
        let first = batch.parts().find_map(|part| part.checkpoints.first());
        let owner = self.owner.clone();
        batch.lease = match (self.stage, first.map(|checkpoint| checkpoint.created_at), self.duration) {
            (LeaseStage::Due, Some(now), Some(duration)) if !ends => {
                self.stage = LeaseStage::Held;
                Some(NewLease::claim(owner, now, now.saturating_add(duration)))
            }
            // The first commit is the last one, or the run takes no lease.
            (LeaseStage::Due, Some(now), _) => {
                self.stage = LeaseStage::Over;
                Some(NewLease::require_unclaimed(owner, now))
            }
            (_, _, None) => None,
            (_, _, Some(_)) if ends => {
                self.stage = LeaseStage::Over;
                Some(NewLease::release(owner))
            }
            (_, _, Some(_)) => Some(NewLease::hold(owner)),
        };
    }
}

#[cfg(test)]
mod tests;
