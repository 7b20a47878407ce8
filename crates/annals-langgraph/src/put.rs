//! Puts of checkpoints, and the storing of writes.
//!
//! Invariant: a put is one commit: the checkpoint, the buffered writes of its parent, and the entry of the index if
//! the checkpoint does not fit the order of ids. *Absent:* reads.

use std::collections::HashMap;
use std::sync::Arc;

use annals::store::batch::{Batch, NewCheckpoint as LogCheckpoint, NewWrites, Parent};
use annals::store::log::{CommitHandle, LogExt};
use annals::store::record::{StoredHead, WriteRecord};
use annals::store::{CheckpointRef, Source, StoreError};
use annals_base::limits::UPDATE_ATTEMPTS_MAX;
use annals_base::{CheckpointId, Namespace, ThreadId, Timestamp, Value};

use crate::aside::{Aside, AsideIndex};
use crate::change::{Difference, WrittenValues, difference};
use crate::inner::{FoundPlace, SaverInner};
use crate::notes::{Notes, RecordColumns, plain_id};
use crate::place::{SaverPlace, aside_of};
use crate::state::{DigestState, LoadedCheckpoint};
use crate::writes::{TaskWrites, are_missing, moved, name, writes_of, written};
use crate::{Config, LostRace, Result, SaverCheckpoint, SaverError};

/// A put, with what it builds on.
struct PutDraft<'a> {
    inner: &'a SaverInner,
    place: SaverPlace,
    index: Arc<AsideIndex>,
    new: &'a SaverCheckpoint,
    parent_id: Option<&'a str>,
    /// The head that the put was compared with: the commit is refused if it has moved since.
    head: Option<CheckpointId>,
    /// The parent, if it is stored.
    base: Option<CheckpointRef>,
    /// The writes of the parent, if they were read with the head.
    stored: Option<Vec<WriteRecord>>,
    state: Arc<DigestState>,
    /// The buffered writes of the parent; they go back into the buffer unless the put takes them along.
    buffered: Vec<TaskWrites>,
    /// The buffered writes of the checkpoint itself.
    early: Vec<TaskWrites>,
    /// True if values may be stored as references to writes of the parent.
    refers: bool,
}

/// The buffered writes that a put took along, with its parent in the log.
#[derive(Debug, Default)]
pub(crate) struct TakenWrites {
    parent: Option<CheckpointRef>,
    pub(crate) writes: Vec<TaskWrites>,
}

/// The outcome of one attempt.
enum PutAttempt {
    Stored(TakenWrites),
    Submitted(CommitHandle, TakenWrites),
    /// Another writer was faster.
    Again,
}

impl Drop for PutDraft<'_> {
    fn drop(&mut self) {
        let mut writes = std::mem::take(&mut self.buffered);
        writes.append(&mut self.early);
        self.inner.put_back(&self.place.thread, writes);
    }
}

impl SaverInner {
    /// Stores a checkpoint, or submits it. Returns the handle of the commit, with the buffered writes that go along.
    pub(crate) fn put(
        &self,
        parent: &Config,
        new: &SaverCheckpoint,
        on_conflict: LostRace,
        waits: bool,
    ) -> Result<(CommitHandle, TakenWrites)> {
        // Writes that are stored meanwhile, before their checkpoint, would wait for it for ever.
        let _sending = self.sending(&SaverPlace::new(&parent.thread, &parent.namespace)?.thread);
        let mut refers = true;
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let put = self.begin(parent, new, on_conflict, refers)?;
            let (thread, is_cached) = (put.place.thread.clone(), self.has_states(&put.place.thread));
            match put.run(waits) {
                Ok(PutAttempt::Stored(taken)) => {
                    if refers && self.were_overtaken(parent, &taken)? {
                        refers = false;
                        continue;
                    }
                    return Ok((CommitHandle::settled(Ok(())), TakenWrites::default()));
                }
                Ok(PutAttempt::Submitted(handle, taken)) => return Ok((handle, taken)),
                Ok(PutAttempt::Again) => {}
                // Another program has deleted or pruned the parent.
                Err(SaverError::Store(
                    StoreError::Invalid { field: "checkpoint.parent", .. } | StoreError::CheckpointPruned { .. },
                )) if is_cached => self.forget(&thread),
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Busy { waited_ms: 0, holder: None }.into())
    }

    fn begin<'a>(
        &'a self,
        parent: &'a Config,
        new: &'a SaverCheckpoint,
        on_conflict: LostRace,
        refers: bool,
    ) -> Result<PutDraft<'a>> {
        if new.id.is_empty() {
            return Err(SaverError::invalid("checkpoint_id", "it is empty"));
        }
        let place = SaverPlace::new(&parent.thread, &parent.namespace)?;
        let submitted = self.submitted_head(&place);
        let (index, stored_head) = self.index_and_head(&place)?;
        let parent_id = parent.checkpoint();
        let base = match parent_id.map(|id| self.find(&place, &index, id)).transpose()? {
            Some(FoundPlace::At(at)) => Some(at),
            _ => None,
        };
        let head = submitted.or(stored_head.as_ref().map(|head| head.checkpoint));
        // A copy of a checkpoint begins a branch beside it, whoever has continued its parent.
        let is_copy = new.metadata.get("source").and_then(Value::as_str) == Some(Source::Fork.as_str());
        if on_conflict == LostRace::Refuse && !is_copy {
            self.verify_head(parent, &place, base.as_ref(), head.filter(|head| Some(*head) != plain_id(&new.id)))?;
        }
        let state = match &base {
            Some(at) => self.state(at)?.unwrap_or_default(),
            None => Arc::default(),
        };
        // No writes are on their way to the store: the put holds them back.
        let buffered = match (&base, parent_id) {
            (Some(_), Some(id)) => self.take_writes(&place, id),
            _ => Vec::new(),
        };
        let early = self.take_writes(&place, &new.id);
        let is_head = |stored: &StoredHead| base.as_ref().is_some_and(|at| *at == place.at(stored.checkpoint));
        let stored = stored_head.filter(is_head).map(|head| head.writes);
        Ok(PutDraft { inner: self, place, index, new, parent_id, head, base, stored, state, buffered, early, refers })
    }

    /// Returns whether another process has stored other writes of a task, between the comparison of a put with the
    /// writes that were stored and its commit: the put refers to the wrong values then, and is repeated without
    /// references. LangGraph runs a task twice at a time only if two processes resume one thread.
    pub(crate) fn were_overtaken(&self, parent: &Config, taken: &TakenWrites) -> Result<bool> {
        let (Some(at), Some(id)) = (&taken.parent, parent.checkpoint()) else { return Ok(false) };
        if taken.writes.is_empty() {
            return Ok(false);
        }
        match self.backend().writes(at) {
            // It was deleted meanwhile.
            Err(StoreError::CheckpointNotFound { .. } | StoreError::CheckpointPruned { .. }) => Ok(false),
            stored => are_missing(&taken.writes, id, stored?),
        }
    }

    /// Refuses a put on a checkpoint that was handed out as the newest, if it is not the head any more. `head` is not
    /// the put itself, which may have been stored before.
    fn verify_head(
        &self,
        parent: &Config,
        place: &SaverPlace,
        base: Option<&CheckpointRef>,
        head: Option<CheckpointId>,
    ) -> Result<()> {
        let id = base.map(|at| at.checkpoint);
        let is_of_log = base.is_none_or(|at| at.namespace == place.namespace);
        if !is_of_log || parent.checkpoint().is_some() && id.is_none() || !self.was_handed_out(place, id) {
            return Ok(());
        }
        match head {
            Some(head) if Some(head) != id => Err(SaverError::Conflict {
                thread: parent.thread.clone(),
                namespace: parent.namespace.clone(),
                parent: id.map_or_else(|| "none".into(), |id| id.to_string()),
                head: head.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

impl PutDraft<'_> {
    fn run(mut self, waits: bool) -> Result<PutAttempt> {
        let own = self.index.find(self.place.namespace.as_str(), &self.new.id);
        let is_above = |id: &CheckpointId| match &self.base {
            Some(at) if at.namespace == self.place.namespace => at.checkpoint < *id,
            _ => true,
        };
        let id = plain_id(&self.new.id).filter(is_above);
        match (id, own) {
            (Some(id), Aside::Nowhere | Aside::Awaited) => match self.in_order(id, own, waits) {
                Err(SaverError::Store(StoreError::StaleId { .. } | StoreError::Duplicate { .. })) => self.aside(own),
                other => other,
            },
            _ => self.aside(own),
        }
    }

    /// Puts the checkpoint into the log under its id.
    fn in_order(&mut self, id: CheckpointId, own: Aside, waits: bool) -> Result<PutAttempt> {
        if waits {
            self.inner.settle(Some(&self.place.thread));
        }
        let is_local = self.base.as_ref().is_some_and(|at| at.namespace == self.place.namespace);
        let (difference, writes) = self.difference()?;
        let stored_parent = self.base.as_ref().filter(|_| is_local).map(|at| at.checkpoint.to_string());
        let columns = self.columns(&difference, stored_parent.as_deref(), id)?;
        let parent = self.base.clone().map(|at| if is_local { Parent::Local(at.checkpoint) } else { Parent::Fork(at) });
        let Difference { changes, seen, state, .. } = difference;
        let mut batch = Batch::new(self.place.thread.clone(), self.place.namespace.clone(), self.head);
        batch.checkpoints.push(checkpoint(id, parent, columns, changes, seen));
        let mut batches = Vec::new();
        match &self.base {
            Some(_) if is_local => batch.writes = writes,
            Some(at) if !writes.is_empty() => batches.push(self.writes_batch(&at.namespace, at.checkpoint, writes)),
            _ => {}
        }
        batches.push(batch);
        let waiting = match own {
            Aside::Awaited => self.stored_aside()?.map(|(_, writes)| writes).unwrap_or_default(),
            _ => Vec::new(),
        };
        let early = writes_of(&self.early, id, &waiting);
        let mut later = moved(waiting, id);
        later.extend(early);
        if !later.is_empty() {
            let namespace = self.place.namespace.clone();
            batches.push(self.writes_batch(&namespace, id, later));
        }
        if own == Aside::Awaited {
            batches.push(self.entry(Aside::Nowhere)?);
        }
        let at = self.place.at(id);
        let attempt = self.commit(batches, &at, waits)?;
        if !matches!(attempt, PutAttempt::Again) {
            self.inner.remember(&at, Arc::new(state));
            self.inner.hand_out(&self.place, Some(id));
        }
        if let PutAttempt::Submitted(handle, _) = &attempt {
            self.inner.submitted(&self.place, id, handle.clone());
        }
        Ok(attempt)
    }

    /// Puts the checkpoint into a namespace of its own, unless it is stored as it is.
    fn aside(&mut self, own: Aside) -> Result<PutAttempt> {
        self.inner.settle(Some(&self.place.thread));
        let existing = match self.inner.find(&self.place, &self.index, &self.new.id)? {
            FoundPlace::At(at) => self.inner.load(&at)?,
            _ => None,
        };
        let namespace = aside_of(self.place.namespace.as_str(), &self.new.id)?;
        if self.base.as_ref().is_some_and(|at| at.namespace == namespace) {
            // Its own parent: the log begins with nothing then.
            (self.base, self.state) = (None, Arc::default());
        }
        let (difference, writes) = self.difference()?;
        if let Some(existing) = &existing
            && self.is_same(existing, &difference)?
        {
            return Ok(PutAttempt::Stored(TakenWrites::default()));
        }
        let retained = match (&existing, own) {
            (Some(existing), _) => self.inner.backend().writes(&existing.record.point)?,
            (None, Aside::Awaited) => self.stored_aside()?.map(|(_, writes)| writes).unwrap_or_default(),
            (None, _) => Vec::new(),
        };
        let head = self.inner.stored_head(&self.place.thread, &namespace)?;
        let id = self.inner.store.mint_checkpoint(0, head.as_ref());
        let columns = self.columns(&difference, None, id)?;
        let mut batches = Vec::new();
        if let Some(at) = self.base.as_ref().filter(|_| !writes.is_empty()) {
            let head = match at.namespace == self.place.namespace {
                true => self.head.unwrap_or(at.checkpoint),
                false => at.checkpoint,
            };
            batches.push(self.writes_batch(&at.namespace, head, writes));
        }
        let Difference { changes, seen, state, .. } = difference;
        let mut batch = Batch::new(self.place.thread.clone(), namespace.clone(), head);
        batch.checkpoints.push(checkpoint(id, self.base.clone().map(Parent::Fork), columns, changes, seen));
        batches.push(batch);
        let early = writes_of(&self.early, id, &retained);
        let mut later = moved(retained, id);
        later.extend(early);
        if !later.is_empty() {
            batches.push(self.writes_batch(&namespace, id, later));
        }
        if own != Aside::Stored {
            batches.push(self.entry(Aside::Stored)?);
        }
        let at = CheckpointRef::new(self.place.thread.clone(), namespace, id);
        let attempt = self.commit(batches, &at, true)?;
        if !matches!(attempt, PutAttempt::Again) {
            self.inner.remember(&at, Arc::new(state));
        }
        Ok(attempt)
    }

    /// Commits batches as one, or submits them.
    fn commit(&mut self, batches: Vec<Batch>, at: &CheckpointRef, waits: bool) -> Result<PutAttempt> {
        let Some(batch) = Batch::of_all(batches) else {
            return Ok(PutAttempt::Stored(TakenWrites::default()));
        };
        debug_assert!(batch.parts().any(|part| part.namespace == at.namespace), "the checkpoint is in the batch");
        if waits {
            match self.inner.store.commit(&batch) {
                Err(StoreError::Conflict { .. }) => return Ok(PutAttempt::Again),
                outcome => outcome?,
            }
        }
        let mut writes = std::mem::take(&mut self.buffered);
        writes.append(&mut self.early);
        let taken = TakenWrites { parent: self.base.clone(), writes };
        Ok(match waits {
            true => PutAttempt::Stored(taken),
            false => PutAttempt::Submitted(self.inner.backend().submit(batch), taken),
        })
    }

    /// Compares the checkpoint with its parent. Returns the difference, and the buffered writes of the parent.
    fn difference(&mut self) -> Result<(Difference, Vec<NewWrites>)> {
        let (stored, writes): (Vec<WriteRecord>, Vec<NewWrites>) = match &self.base {
            Some(at) => {
                let stored = match self.stored.take().map_or_else(|| self.inner.backend().writes(at), Ok) {
                    // The parent is submitted and not yet stored.
                    Err(StoreError::CheckpointNotFound { .. }) => Vec::new(),
                    stored => stored?,
                };
                let writes = writes_of(&self.buffered, at.checkpoint, &stored);
                (stored, writes)
            }
            None => (Vec::new(), Vec::new()),
        };
        let written = if self.refers { written(&stored, &writes)? } else { WrittenValues::default() };
        let mut values_of = || {
            self.inner.settle(Some(&self.place.thread));
            let loaded = self.base.as_ref().map(|at| self.inner.load(at)).transpose()?.flatten();
            Ok(loaded.map(|loaded| loaded.values.into_iter().collect()).unwrap_or_else(HashMap::new))
        };
        let mut difference = difference(&self.state, self.new, &written, &mut values_of)?;
        let mut writes = writes;
        name(&mut writes, std::mem::take(&mut difference.named));
        Ok((difference, writes))
    }

    fn notes(&self, difference: &Difference) -> Notes {
        Notes {
            v: self.new.v,
            ts: self.new.ts.clone(),
            updated: self.new.updated.clone(),
            extra: self.new.extra.clone(),
            metadata: self.new.metadata.clone(),
            parent: self.parent_id.map(ToOwned::to_owned),
            form: difference.form,
        }
    }

    /// `id` tells the time of a checkpoint whose `ts` does not.
    fn columns(&self, difference: &Difference, stored_parent: Option<&str>, id: CheckpointId) -> Result<RecordColumns> {
        let time = plain_id(&self.new.id).unwrap_or(id).ticks() / 10;
        let fallback = Timestamp::from_micros(time.cast_signed() - UUID_EPOCH_MICROS);
        self.notes(difference).columns(stored_parent, &difference.updated, fallback)
    }

    /// Returns whether a stored checkpoint is the one to be put.
    fn is_same(&self, stored: &LoadedCheckpoint, difference: &Difference) -> Result<bool> {
        let notes = Notes::read(&stored.record, || stored.updated.clone())?;
        let (new, form) = (self.notes(difference), difference.form);
        Ok(notes.v == new.v
            && notes.ts == new.ts
            && notes.updated == new.updated
            && notes.extra == new.extra
            && notes.parent == new.parent
            && notes.metadata == new.metadata
            && stored.state.versions(notes.form) == difference.state.versions(form)
            && stored.state.seen(notes.form) == difference.state.seen(form)
            && stored.state.holds_same(&difference.state))
    }

    /// Returns the head of the namespace of the checkpoint alone, with its writes.
    fn stored_aside(&self) -> Result<Option<(CheckpointRef, Vec<WriteRecord>)>> {
        let namespace = aside_of(self.place.namespace.as_str(), &self.new.id)?;
        let Some(head) = self.inner.stored_head(&self.place.thread, &namespace)? else { return Ok(None) };
        let at = CheckpointRef::new(self.place.thread.clone(), namespace, head);
        let writes = self.inner.backend().writes(&at)?;
        Ok(Some((at, writes)))
    }

    fn writes_batch(&self, namespace: &Namespace, head: CheckpointId, writes: Vec<NewWrites>) -> Batch {
        let mut batch = Batch::new(self.place.thread.clone(), namespace.clone(), Some(head));
        batch.writes = writes;
        batch
    }

    fn entry(&self, aside: Aside) -> Result<Batch> {
        let entry = (self.place.namespace.as_str().to_owned(), self.new.id.clone(), aside);
        self.index.change(&self.inner.store, &self.place.thread, [entry])
    }
}

/// Microseconds between the epoch of UUIDs and that of timestamps.
const UUID_EPOCH_MICROS: i64 = 12_219_292_800_000_000;

fn checkpoint(
    id: CheckpointId,
    parent: Option<Parent>,
    columns: RecordColumns,
    changes: Vec<annals::store::batch::Change>,
    seen: Vec<annals::store::batch::Seen>,
) -> LogCheckpoint {
    let mut checkpoint = LogCheckpoint::new(id, parent, columns.step, columns.source, columns.created_at);
    checkpoint.run = columns.run;
    checkpoint.metadata = columns.metadata;
    checkpoint.parents = columns.parents.into();
    checkpoint.changes = changes;
    checkpoint.seen = seen;
    checkpoint
}

impl SaverInner {
    /// Stores writes of one checkpoint. If it is not stored, they wait for it in a namespace of its own.
    pub(crate) fn store_writes(&self, thread: &ThreadId, group: &[TaskWrites]) -> Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let place = SaverPlace { thread: thread.clone(), namespace: Namespace::new(&first.namespace)? };
        self.settle(Some(thread));
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let index = self.index(thread)?;
            let batch = match self.find(&place, &index, &first.checkpoint)? {
                FoundPlace::At(at) => {
                    let head = self.stored_head(thread, &at.namespace)?;
                    let stored = match self.backend().writes(&at) {
                        // It was deleted meanwhile.
                        Err(StoreError::CheckpointNotFound { .. } | StoreError::CheckpointPruned { .. }) => {
                            self.forget(thread);
                            continue;
                        }
                        stored => stored?,
                    };
                    let mut batch = Batch::new(thread.clone(), at.namespace, head);
                    batch.writes = writes_of(group, at.checkpoint, &stored);
                    batch
                }
                FoundPlace::Nowhere | FoundPlace::Deleted => self.awaited(&place, &index, &first.checkpoint, group)?,
            };
            match self.store.commit(&batch) {
                Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) => {}
                Err(StoreError::Invalid { field: "writes.checkpoint", .. }) => self.forget(thread),
                outcome => return Ok(outcome?),
            }
        }
        Err(StoreError::Busy { waited_ms: 0, holder: None }.into())
    }

    /// Returns the batch of writes that come before their checkpoint.
    fn awaited(&self, place: &SaverPlace, index: &AsideIndex, id: &str, group: &[TaskWrites]) -> Result<Batch> {
        let namespace = aside_of(place.namespace.as_str(), id)?;
        let head = self.stored_head(&place.thread, &namespace)?;
        let is_awaited = index.find(place.namespace.as_str(), id) == Aside::Awaited;
        let mut batches = Vec::new();
        let mut stored = Vec::new();
        let at = match head.filter(|_| is_awaited) {
            Some(head) => {
                let at = CheckpointRef::new(place.thread.clone(), namespace.clone(), head);
                stored = self.backend().writes(&at)?;
                head
            }
            None => {
                let at = self.store.mint_checkpoint(0, head.as_ref());
                let mut batch = Batch::new(place.thread.clone(), namespace.clone(), head);
                batch.checkpoints.push(LogCheckpoint::new(at, None, 0, Source::Update, self.store.now()));
                batches.push(batch);
                let entry = (place.namespace.as_str().to_owned(), id.to_owned(), Aside::Awaited);
                batches.push(index.change(&self.store, &place.thread, [entry])?);
                at
            }
        };
        let mut batch = Batch::new(place.thread.clone(), namespace, Some(at));
        batch.writes = writes_of(group, at, &stored);
        batches.push(batch);
        Batch::of_all(batches).ok_or_else(|| SaverError::invalid("writes", "there are none"))
    }
}
