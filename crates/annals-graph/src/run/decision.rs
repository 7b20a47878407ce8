//! Decisions that need the log: straight-line code that stops where it needs something, and goes on when that is found.
//!
//! A decision is a future that is polled without a waker. Its one open [`Need`] stands in a cell that it shares with
//! the
//! [`DecisionLog`] its code asks. *Absent:* reading.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Polling, Poll, Waker};

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::CheckpointRef;
use crate::store::record::{CheckpointRecord, WriteRecord};

use super::start::Loaded;

/// A record that a decision needs, or a condition for the next read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The commits of the run so far can be read: [`Found::Settled`].
    Settle,
    /// The newest stored checkpoint of a namespace: [`Found::Head`].
    Head(ThreadId, Namespace),
    /// A stored checkpoint: [`Found::Checkpoint`].
    Checkpoint(CheckpointRef),
    /// The newest stored checkpoint of a namespace, or the next one after another in its history, newest first:
    /// [`Found::Checkpoint`].
    Older(ThreadId, Namespace, Option<CheckpointId>),
    /// The writes of the tasks of a checkpoint, stored or held back; none if the checkpoint is not stored yet:
    /// [`Found::Writes`].
    Writes(CheckpointRef),
    /// The decoded head that this run has left at a checkpoint, if it is in memory: [`Found::Head`] or
    /// [`Found::Loaded`].
    Cached(CheckpointId),
    /// The decoded head of a checkpoint; without one an empty head: [`Found::Loaded`].
    Load(Option<CheckpointRef>),
    /// The decoded newest head of the namespace: [`Found::Loaded`].
    LoadNewest,
}

/// The records for a [`Need`].
pub(crate) enum Found {
    Settled,
    Head(Option<CheckpointId>),
    Checkpoint(Option<Box<CheckpointRecord>>),
    Writes(Vec<WriteRecord>),
    Loaded(Box<Loaded>),
}

/// The progress of a decision.
pub(crate) enum Step<T> {
    Needs(Need),
    Decided(T),
}

/// The need that is open, and the records for it.
#[derive(Default)]
struct OpenNeed {
    need: Option<Need>,
    found: Option<Found>,
}

/// The log as the code of a decision sees it.
#[derive(Clone, Default)]
pub(super) struct DecisionLog(Rc<RefCell<OpenNeed>>);

impl DecisionLog {
    async fn ask(&self, need: Need) -> Found {
        self.0.borrow_mut().need = Some(need);
        poll_fn(|_| self.0.borrow_mut().found.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    pub(super) async fn settle(&self) {
        self.ask(Need::Settle).await;
    }

    pub(super) async fn head(&self, thread: ThreadId, namespace: Namespace) -> Option<CheckpointId> {
        match self.ask(Need::Head(thread, namespace)).await {
            Found::Head(head) => head,
            _ => None,
        }
    }

    pub(super) async fn checkpoint(&self, point: CheckpointRef) -> Option<CheckpointRecord> {
        match self.ask(Need::Checkpoint(point)).await {
            Found::Checkpoint(record) => record.map(|record| *record),
            _ => None,
        }
    }

    pub(super) async fn older(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        than: Option<CheckpointId>,
    ) -> Option<CheckpointRecord> {
        match self.ask(Need::Older(thread.clone(), namespace.clone(), than)).await {
            Found::Checkpoint(record) => record.map(|record| *record),
            _ => None,
        }
    }

    pub(super) async fn writes(&self, point: CheckpointRef) -> Vec<WriteRecord> {
        match self.ask(Need::Writes(point)).await {
            Found::Writes(writes) => writes,
            _ => Vec::new(),
        }
    }

    pub(super) async fn cached(&self, left: CheckpointId) -> Option<Loaded> {
        match self.ask(Need::Cached(left)).await {
            Found::Loaded(loaded) => Some(*loaded),
            _ => None,
        }
    }

    pub(super) async fn load(&self, need: Need) -> Loaded {
        match self.ask(need).await {
            Found::Loaded(loaded) => *loaded,
            _ => unreachable!("a head that cannot be loaded is an error of the driver, which drops the decision"),
        }
    }
}

/// A decision that is being made.
pub(crate) struct Decision<T> {
    made: Pin<Box<dyn Future<Output = T>>>,
    log: DecisionLog,
}

impl<T> Decision<T> {
    /// Makes a decision of its code.
    pub(super) fn new<F: Future<Output = T> + 'static>(code: impl FnOnce(DecisionLog) -> F) -> Self {
        let log = DecisionLog::default();
        Self { made: Box::pin(code(log.clone())), log }
    }

    /// Continues until the decision has a need, or is made. If the records for a need cannot be read, the decision is
    /// dropped.
    pub(crate) fn poll(&mut self) -> Step<T> {
        match self.made.as_mut().poll(&mut Polling::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Step::Decided(decided),
            Poll::Pending => match self.log.0.borrow_mut().need.take() {
                Some(need) => Step::Needs(need),
                None => unreachable!("a decision waits for the log alone"),
            },
        }
    }

    /// Provides the records for the open need.
    pub(crate) fn handle(&mut self, found: Found) {
        self.log.0.borrow_mut().found = Some(found);
    }
}
