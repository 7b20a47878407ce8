//! Runs controlled from outside: cancelled, paused, retried, restarted, waited for. No graph and no types are needed,
//! and the run may be in another process.
//!
//! A cancel is a checkpoint without due tasks whose metadata have the reason, so a run under way is refused at its next
//! commit. A pause is a fact. *Absent:* stopping the run between two commits, which its driver does.

use std::time::Duration;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Clock, Namespace, SystemClock, ThreadId};
use crate::history::{Snapshot, Thread};
use crate::interrupts::is_call;
use crate::special::SpecialWrite;
use crate::store::batch::{Batch, NewCheckpoint, NewTimer, NewWrites, Parent};
use crate::store::log::{HeadParts, LogExt, NamespaceRef, ThreadParts, ThreadRow, ThreadRows};
use crate::store::record::{CheckpointRecord, StoredHead, WriteRecord};
use crate::store::{Source, StatusKind, Store, StoreError, ThreadFacts, ThreadInfo};

/// The request of somebody outside to a run of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlOrder {
    /// The thread was cancelled, for this reason.
    Cancel(String),
    /// The thread is paused.
    Pause,
}

pub(crate) fn control_orders(
    store: &Store,
    runs: &[(&ThreadId, Option<CheckpointId>)],
) -> Result<Vec<Option<ControlOrder>>, StoreError> {
    let (root, fields) = (Namespace::root(), ThreadParts::FIELDS);
    let places: Vec<NamespaceRef<'_>> = runs.iter().map(|(thread, _)| (*thread, &root)).collect();
    let threads: Vec<&ThreadId> = runs.iter().map(|(thread, _)| *thread).collect();
    let heads = store.backend().heads(&places, HeadParts::RECORD)?;
    let rows = store.backend().thread_rows(&ThreadRows::Ids(&threads), fields)?;
    let order = |(((_, began), head), row): ((&(_, Option<CheckpointId>), Option<StoredHead>), ThreadRow)| {
        let head = head.filter(|head| Some(head.checkpoint) != *began).and_then(|head| head.record);
        if let Some(reason) = head.as_ref().and_then(CheckpointRecord::cancel_reason) {
            return Ok(Some(ControlOrder::Cancel(reason)));
        }
        Ok(ThreadFacts::of(row.fields)?.is_paused.then_some(ControlOrder::Pause))
    };
    runs.iter().zip(heads).zip(rows).map(order).collect()
}

pub(crate) fn cancel(thread: &Thread, reason: &str) -> Result<bool, StoreError> {
    let mut attempt = 1;
    loop {
        let info = thread.info()?;
        if matches!(info.status, StatusKind::Done | StatusKind::Cancelled) {
            return Ok(false);
        }
        let mut metadata = serde_json::Map::new();
        metadata.insert(ThreadInfo::CANCELLED.to_owned(), reason.into());
        metadata.extend(info.graph.as_deref().map(|graph| (ThreadInfo::GRAPH.to_owned(), graph.into())));
        match commit_control(thread, &info, info.head(), Source::Update, metadata) {
            Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
            done => return done.map(|_| true),
        }
    }
}

pub(crate) fn retry(thread: &Thread) -> Result<bool, StoreError> {
    let mut attempt = 1;
    loop {
        match retry_once(thread) {
            Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
            done => return done,
        }
    }
}

fn retry_once(thread: &Thread) -> Result<bool, StoreError> {
    thread.store().flush_abandoned();
    let missing = || StoreError::ThreadNotFound { id: thread.id().clone() };
    let root = Namespace::root();
    let stored = thread.store().backend().head_with_writes(thread.id(), &root)?.ok_or_else(missing)?;
    let has_ended = |task| stored.writes.iter().any(|write| write.task == task && write.index >= 0);
    let mut batch = Batch::new(thread.id().clone(), root, Some(stored.checkpoint));
    let failed = stored.writes.iter().filter(|write| SpecialWrite::Error.is_set(write));
    for write in failed.filter(|write| !has_ended(write.task)) {
        // Its interrupts go too: it went past them, so they are not open.
        let mut cleared = vec![SpecialWrite::Error.clear(), SpecialWrite::Interrupt.clear()];
        let of_task = |other: &&WriteRecord| other.task == write.task && SpecialWrite::EarlierError.is(other);
        cleared.extend(stored.writes.iter().find(of_task).map(|_| SpecialWrite::EarlierError.clear()));
        let writes = NewWrites::new(stored.checkpoint, write.task, write.path.clone()).with(cleared);
        batch.writes.push(writes);
        // A worker finds the task by its timer.
        if !is_call(&stored.writes, write.task) {
            batch.timers.push(NewTimer::new(stored.checkpoint, write.task, Some(thread.store().now())));
        }
    }
    if batch.writes.is_empty() {
        return Ok(false);
    }
    thread.store().commit(&batch).map(|()| true)
}

pub(crate) fn restart_from(thread: &Thread, snapshot: &Snapshot) -> Result<CheckpointId, StoreError> {
    let (point, record) = (snapshot.point(), snapshot.record());
    let invalid = |reason: &str| Err(StoreError::Invalid { field: "snapshot", reason: reason.to_owned() });
    if point.thread != *thread.id() || !point.namespace.is_root() {
        return invalid("it is not a checkpoint of the root namespace of the thread");
    }
    if record.tasks.is_empty() {
        return invalid("no task is due there");
    }
    let mut attempt = 1;
    loop {
        let info = thread.info()?;
        let metadata = info.graph.as_deref().map(|graph| (ThreadInfo::GRAPH.to_owned(), graph.into()));
        let metadata = metadata.into_iter().collect();
        match commit_control(thread, &info, point.checkpoint, Source::Fork, metadata) {
            Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
            done => return done,
        }
    }
}

/// Commits a checkpoint on the head that changes no channel: without tasks, or, for a fork of an older one, with
/// its tasks.
fn commit_control(
    thread: &Thread,
    info: &ThreadInfo,
    parent: CheckpointId,
    source: Source,
    metadata: serde_json::Map<String, serde_json::Value>,
) -> Result<CheckpointId, StoreError> {
    let (store, root) = (thread.store(), Namespace::root());
    let unknown = || StoreError::CheckpointNotFound { thread: thread.id().clone(), id: parent.to_string() };
    let of = thread.with_namespace(root.clone()).point(parent);
    let record = store.backend().checkpoint(&of)?.ok_or_else(unknown)?;
    let step = record.step.max(-1) + 1;
    let id = store.mint_checkpoint(step, Some(&info.head().max(parent)));
    let mut checkpoint = NewCheckpoint::new(id, Some(Parent::Local(parent)), step, source, store.now());
    if !metadata.is_empty() {
        checkpoint.metadata = Some(serde_json::Value::Object(metadata).to_string());
    }
    if source == Source::Fork {
        // They get new ids when the graph runs.
        checkpoint.tasks.clone_from(&record.tasks);
    }
    let mut batch = Batch::new(thread.id().clone(), root, Some(info.head()));
    batch.checkpoints.push(checkpoint);
    store.commit_reminting(&mut batch)?;
    Ok(batch.head_after().unwrap_or(id))
}

pub(crate) fn cancel_reason(thread: &Thread) -> Result<Option<String>, StoreError> {
    let head = thread.store().backend().head(thread.id(), &Namespace::root())?;
    Ok(head.as_ref().and_then(CheckpointRecord::cancel_reason))
}

pub(crate) fn wait_for_end(thread: &Thread, timeout: Duration) -> Result<Option<ThreadInfo>, StoreError> {
    let (store, since) = (thread.store(), SystemClock.elapsed());
    store.flush_abandoned();
    let mut signals = store.backend().follow()?.watch()?;
    loop {
        let seen = signals.signal.count();
        if let Some(info) = store.backend().thread_info(thread.id())?
            && !matches!(info.status, StatusKind::Running | StatusKind::Sleeping)
            && !store.backend().lease(thread.id())?.is_some_and(|lease| lease.is_live(store.now()))
        {
            return Ok(Some(info));
        }
        let Some(left) =
            timeout.checked_sub(SystemClock.elapsed().saturating_sub(since)).filter(|left| !left.is_zero())
        else {
            return Ok(None);
        };
        signals.wait(seen, left)?;
    }
}
