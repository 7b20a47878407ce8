//! Reads records for the session: those that a decision needs. *Absent:* the decisions.

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::error::Error;
use crate::graph::Graph;
use crate::history::{History, HistoryFilter, Thread};
use crate::run::{Decision, Found, Need, Step, merged_writes};
use crate::store::record::{CheckpointRecord, WriteRecord};
use crate::store::{CheckpointRef, StoreError};
use annals::store::log::LogExt;

use super::host::RunHost;
use super::load;

/// Makes a decision from the records that the store holds of a thread.
pub(super) fn decided<T>(mut decision: Decision<T>, thread: &Thread) -> Result<T, Error> {
    let mut walk = None;
    loop {
        let need = match decision.poll() {
            Step::Decided(decided) => return Ok(decided),
            Step::Needs(need) => need,
        };
        match from_log(need, thread, &mut walk)? {
            Ok(found) => decision.handle(found),
            Err(Need::Writes(point)) => decision.handle(Found::Writes(thread.store().backend().writes(&point)?)),
            Err(need) => unreachable!("a decision outside a run asks for records: {need:?}"),
        }
    }
}

/// Makes a decision about a subgraph from the records that the store and the session hold of its run.
pub(super) fn decided_in_run<T>(
    mut decision: Decision<T>,
    graph: &Graph,
    thread: &Thread,
    host: &RunHost,
) -> Result<T, Error> {
    let mut walk = None;
    loop {
        let need = match decision.poll() {
            Step::Decided(decided) => return Ok(decided),
            Step::Needs(need) => need,
        };
        let need = match from_log(need, thread, &mut walk)? {
            Ok(found) => {
                decision.handle(found);
                continue;
            }
            Err(need) => need,
        };
        decision.handle(match need {
            Need::Settle => {
                settle(thread, host)?;
                Found::Settled
            }
            Need::Writes(point) => Found::Writes(match host.writes(thread, &point) {
                // The commit of the checkpoint is on its way, so no other run has added writes.
                Err(StoreError::CheckpointNotFound { .. }) => Vec::new(),
                writes => writes?,
            }),
            Need::Cached(left) => match load::left_by_run(graph, thread, left) {
                Some(loaded) => Found::Loaded(Box::new(loaded)),
                None => Found::Head(None),
            },
            Need::Load(at) => Found::Loaded(Box::new(load::load_begun(graph, thread, at.as_ref(), host)?)),
            _ => Found::Loaded(Box::new(load::load(graph, thread, None)?)),
        });
    }
}

/// Reads the records that a decision needs of the log. Returns any other need.
fn from_log(need: Need, thread: &Thread, walk: &mut Option<HistoryWalk>) -> Result<Result<Found, Need>, Error> {
    let backend = thread.store().backend();
    Ok(Ok(match need {
        Need::Head(of, namespace) => Found::Head(backend.head_id(&of, &namespace)?),
        Need::Checkpoint(point) => Found::Checkpoint(backend.checkpoint(&point)?.map(Box::new)),
        Need::Older(of, namespace, than) => {
            Found::Checkpoint(HistoryWalk::next(walk, thread, of, namespace, than)?.map(Box::new))
        }
        other => return Ok(Err(other)),
    }))
}

/// Waits until the commits of a run can be read.
fn settle(thread: &Thread, host: &RunHost) -> Result<(), Error> {
    let inside = std::mem::take(&mut host.commits.lock().inside);
    thread.store().backend().flush();
    inside.iter().try_for_each(|handle| Ok(handle.wait()?))
}

/// A walk through the history of a namespace.
struct HistoryWalk {
    thread: ThreadId,
    namespace: Namespace,
    /// The checkpoint that was read last.
    last: Option<CheckpointId>,
    history: History,
}

impl HistoryWalk {
    /// Reads the next older checkpoint, with the walk that has come to `than` or with a new one.
    fn next(
        walk: &mut Option<Self>,
        near: &Thread,
        thread: ThreadId,
        namespace: Namespace,
        than: Option<CheckpointId>,
    ) -> Result<Option<CheckpointRecord>, Error> {
        let goes_on = |walk: &mut Self| walk.thread == thread && walk.namespace == namespace && walk.last == than;
        let walk =
            match walk.take().filter(|_| than.is_some()).and_then(|mut known| goes_on(&mut known).then_some(known)) {
                Some(known) => walk.insert(known),
                None => {
                    let of = near.store().thread(thread.as_str())?.with_namespace(namespace.clone());
                    let filter = than.map_or_else(HistoryFilter::new, |than| HistoryFilter::new().before(than));
                    walk.insert(Self { history: of.history_with(filter)?, thread, namespace, last: than })
                }
            };
        let found = walk.history.next().transpose()?.map(|snapshot| snapshot.record().clone());
        walk.last = found.as_ref().map(|record| record.point.checkpoint);
        Ok(found)
    }
}

impl RunHost {
    /// Returns the writes of the tasks of a checkpoint, stored or held back.
    pub(super) fn writes(&self, thread: &Thread, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        let (is_held, added) = self.session.lock().held_writes(at);
        let stored = if is_held { Vec::new() } else { thread.store().backend().writes(at)? };
        Ok(merged_writes(stored, added))
    }

    /// Stores the held batch before the end of the run, as it has to be read. That is rare: another graph made it, or
    /// an update of it failed half way.
    pub(super) fn store_held(&self) -> Result<(), StoreError> {
        let held = self.session.lock().take_held();
        match (&self.thread, held) {
            (Some(thread), Some(batch)) => thread.store().commit(&batch),
            _ => Ok(()),
        }
    }
}
