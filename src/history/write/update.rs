//! Typed reads and writes without a graph.
//!
//! A change goes through the reducers of its state, as in a superstep of a graph, and becomes one checkpoint. A graph
//! goes on from such a checkpoint, and an update from one of a graph. Invariant: the cost of an update follows its
//! changes; the decoded state is cached by the store, and of a list only the changed items are written. *Absent:* nodes
//! and edges: an update makes nothing due.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, IdSource, Map, Payload, Value, WriteValue};
use crate::error::Error;
use crate::message::REMOVE_ALL_MESSAGES;
use crate::span::span;
use crate::state::erased::resolve;
use crate::state::{BoxWrite, DynUpdate, IntoUpdate, Layout, Schema, State, StateRef, Writes};
use crate::store::batch::{Batch, NewCheckpoint, NewWrites, Parent};
use crate::store::log::{CachedHead, HeadKey, LogExt};
use crate::store::record::StoredHead;
use crate::store::threads::ACTOR;
use crate::store::{Source, StoreError};

use super::conflict::OnConflict;
use super::decoded::DecodedHead;
use super::partial::{Partial, PartialMessage};
use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;

/// A thread seen through the schema of its state: reads and writes without a graph. Cheap to clone.
///
/// # Example: a loop of one's own
/// ```
/// use annals::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
///     title: Option<String>,
/// }
///
/// # fn main() -> Result<()> {
/// let chat = Store::memory().thread("alice")?.with_state::<Chat>();
/// chat.update(Chat::update().messages([Message::human("hi").with_id("1")]).title("Greetings".to_string()))?;
/// chat.update(Chat::update().messages([Message::ai("hello"), Message::human("hi!").with_id("1")]))?;
///
/// let state = chat.state()?;
/// assert_eq!(state.title.as_deref(), Some("Greetings"));
/// assert_eq!(state.messages.iter().map(|m| m.text()).collect::<Vec<_>>(), ["hi!", "hello"]);
/// # Ok(())
/// # }
/// ```
pub struct StateThread<S> {
    thread: Thread,
    schema: Arc<Schema<S>>,
    key: HeadKey,
}

impl Thread {
    /// Returns the thread seen through a derived state.
    pub fn with_state<S: State>(&self) -> StateThread<S> {
        let key = HeadKey::State(TypeId::of::<S>());
        StateThread { thread: self.clone(), schema: Arc::new(Schema::of()), key }
    }

    /// Returns the thread seen through a schema: one that is made at run time, or that migrates stored values. The
    /// decoded state is cached per schema, so use one `Arc` for all threads of a kind.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = DynSchema::new().messages("messages").last("title").append("log").build();
    /// let chat = Store::memory().thread("alice")?.with_schema(schema);
    /// chat.update(DynUpdate::new().messages("messages", [Message::human("hi")]).set("title", "Greetings"))?;
    /// chat.update(DynUpdate::new().set("log", "asked").set("log", "answered"))?;
    /// assert_eq!(chat.state()?.get("title").as_str(), Some("Greetings"));
    /// assert_eq!(chat.state()?.list("log").map(List::len), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_schema<S: Clone + Send + Sync + 'static>(&self, schema: impl Into<Arc<Schema<S>>>) -> StateThread<S> {
        let schema = schema.into();
        StateThread { thread: self.clone(), key: HeadKey::Schema(schema.id()), schema }
    }

    /// Changes the state of the thread: [`StateThread::update`] on [`Thread::with_state`].
    ///
    /// # Errors
    /// As [`StateThread::update`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Note { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("monday")?;
    /// let written = thread.update(Note::update().text("buy tea"))?;
    /// assert_eq!(thread.at(written)?.state::<Note>()?.text, "buy tea");
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<S: State>(&self, change: impl IntoUpdate<S>) -> Result<CheckpointId, Error> {
        self.with_state::<S>().update(change)
    }
}

impl Snapshot {
    /// Returns the state at this checkpoint. Channels that `S` does not have are not read; fields whose channel holds
    /// nothing have the value of `S::default()`.
    ///
    /// # Errors
    /// [`StateError::Misfit`](crate::state::StateError::Misfit) naming the channel, if a stored value does not fit its
    /// field; as [`Snapshot::values`].
    pub fn state<S: State>(&self) -> Result<S, Error> {
        self.state_with(&Schema::of())
    }

    /// Returns the state at this checkpoint as a schema decodes it.
    ///
    /// # Errors
    /// As [`Snapshot::state`].
    pub fn state_with<S: Clone + Send + Sync + 'static>(&self, schema: &Schema<S>) -> Result<S, Error> {
        let head = DecodedHead::read(schema, self.store(), self.record())?;
        Ok(Arc::unwrap_or_clone(typed(head.state)))
    }
}

impl<S: Clone + Send + Sync + 'static> StateThread<S> {
    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Returns the state at the head of the thread; that before the first write if the thread has no checkpoint.
    ///
    /// # Errors
    /// As [`Snapshot::state`].
    pub fn state(&self) -> Result<Arc<S>, Error> {
        let head = head(&self.thread, &*self.schema, self.key, newest(&self.thread)?)?;
        let state = Arc::clone(&head.state);
        retain(&self.thread, self.key, head);
        Ok(typed(state))
    }

    /// Changes the state at the head of the thread, in one commit, and returns the new checkpoint when it is durable.
    ///
    /// The change is merged by the rules of the channels, as the writes of one superstep: messages by id, a reducer
    /// folds, a channel that lasts for one superstep is emptied if it is not written. If another writer commits first,
    /// the change is applied to the state that it left.
    ///
    /// A [partial message](Partial) of a channel that is changed is kept before the change, marked as aborted.
    ///
    /// Tasks of a graph that are due stay due; of those that wait at an interrupt or have ended beside one nothing is
    /// retained, so they run again.
    ///
    /// # Errors
    /// [`StateError`](crate::state::StateError) if the change breaks the rule of a channel: nothing is stored.
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::log::Log::submit).
    pub fn update(&self, change: impl IntoUpdate<S>) -> Result<CheckpointId, Error> {
        self.update_with(change, CommitExtras::default())
    }

    /// Changes the state as [`StateThread::update`], with the other parts of the commit.
    pub(crate) fn update_with(&self, change: impl IntoUpdate<S>, with: CommitExtras) -> Result<CheckpointId, Error> {
        let layout = &*self.schema;
        let writes = prepared(&self.thread, layout, change.into_writes())?;
        let mut attempt = 1;
        loop {
            let newest = newest_with_writes(&self.thread)?;
            match commit(&self.thread, layout, self.key, writes.clone(), newest.as_ref(), with.clone()) {
                Err(error) if error.is_conflict() && attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done,
            }
        }
    }

    /// Changes the state as [`StateThread::update`], but only if `expected` is the head of the thread: `None` expects a
    /// thread without checkpoints.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the head is another checkpoint: nothing is stored. Else as [`StateThread::update`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Note { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let note = Store::memory().thread("monday")?.with_state::<Note>();
    /// let first = note.update_at(None, Note::update().text("draft"))?;
    /// note.update_at(Some(first), Note::update().text("edited"))?;
    /// let late = note.update_at(Some(first), Note::update().text("edited elsewhere")).unwrap_err();
    /// assert!(late.is_conflict());
    /// assert_eq!(note.state()?.text, "edited");
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_at(&self, expected: Option<CheckpointId>, change: impl IntoUpdate<S>) -> Result<CheckpointId, Error> {
        let layout = &*self.schema;
        let writes = prepared(&self.thread, layout, change.into_writes())?;
        let newest = newest_with_writes(&self.thread)?;
        let found = newest.as_ref().map(|head| head.checkpoint);
        if found != expected {
            let (thread, namespace) = (self.thread.id().clone(), self.thread.namespace().clone());
            return Err(StoreError::Conflict { thread, namespace, expected, found }.into());
        }
        commit(&self.thread, layout, self.key, writes, newest.as_ref(), CommitExtras::default())
    }
}

impl<S> Clone for StateThread<S> {
    fn clone(&self) -> Self {
        Self { thread: self.thread.clone(), schema: Arc::clone(&self.schema), key: self.key }
    }
}

impl<S> fmt::Debug for StateThread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

fn typed<S: Send + Sync + 'static>(state: StateRef) -> Arc<S> {
    Arc::downcast(state).unwrap_or_else(|_| unreachable!("a layout makes states of its own type"))
}

/// Resolves the fields of a change, verifies their names, and gives ids to messages without one.
pub(crate) fn prepared(thread: &Thread, layout: &dyn Layout, writes: Writes) -> Result<Vec<(usize, BoxWrite)>, Error> {
    let mut ids = IdSource::from_seed(thread.store().mint_seed());
    let resolved = resolve(layout, writes)?.into_iter().map(|(field, write)| {
        verify_name(thread, layout.name(field))?;
        let mut write = if write.told_of().is_some() { layout.plain(field, &write) } else { write };
        layout.prepare(field, &mut write, &mut ids);
        Ok((field, write))
    });
    resolved.collect()
}

/// Verifies that a channel of the root namespace is one of the state. An executor has namespaces of its own, whose
/// channels have any names.
fn verify_name(thread: &Thread, channel: &str) -> Result<(), StoreError> {
    if !thread.namespace().is_root() || channel.matches(':').count() < 2 {
        return Ok(());
    }
    let reason = format!("{channel:?} holds two colons: such a channel is one of an executor, and not of the state");
    Err(StoreError::Invalid { field: "write.channel", reason })
}

/// Returns the head of a thread.
pub(crate) fn newest(thread: &Thread) -> Result<Option<CheckpointId>, Error> {
    thread.store().flush_abandoned();
    Ok(thread.store().backend().head_id(thread.id(), thread.namespace())?)
}

/// Returns the head of a thread with its writes. The writer knows a head that it has stored last, and that has no
/// writes, without a read.
pub(crate) fn newest_with_writes(thread: &Thread) -> Result<Option<StoredHead>, Error> {
    thread.store().flush_abandoned();
    Ok(thread.store().backend().head_with_writes(thread.id(), thread.namespace())?)
}

/// Returns the decoded head: from the cache if it is of the checkpoint `newest`, else from the file.
fn head(
    thread: &Thread,
    layout: &dyn Layout,
    key: HeadKey,
    newest: Option<CheckpointId>,
) -> Result<DecodedHead, Error> {
    let Some(checkpoint) = newest else { return Ok(DecodedHead::empty(layout)) };
    let cached = thread.store().take_head(thread.id(), thread.namespace(), key);
    let cached = cached.filter(|cached| cached.checkpoint == checkpoint);
    match cached.and_then(|cached| cached.head.downcast::<DecodedHead>().ok()) {
        Some(head) => Ok(*head),
        None => {
            let point = thread.point(checkpoint);
            let unknown =
                || StoreError::CheckpointNotFound { thread: point.thread.clone(), id: checkpoint.to_string() };
            let record = thread.store().backend().checkpoint(&point)?.ok_or_else(unknown)?;
            DecodedHead::read(layout, thread.store(), &record)
        }
    }
}

/// Puts a head into the cache for the next call.
fn retain(thread: &Thread, key: HeadKey, head: DecodedHead) {
    let Some(checkpoint) = head.checkpoint else { return };
    thread.store().cache_head(CachedHead {
        thread: thread.id().clone(),
        namespace: thread.namespace().clone(),
        checkpoint,
        schema: key,
        bytes: head.bytes,
        head: Box::new(head),
    });
}

/// Applies writes to the state of the checkpoint `newest` and commits the result as its child.
fn commit(
    thread: &Thread,
    layout: &dyn Layout,
    key: HeadKey,
    mut writes: Vec<(usize, BoxWrite)>,
    newest: Option<&StoredHead>,
    mut with: CommitExtras,
) -> Result<CheckpointId, Error> {
    keep_partials(thread, layout, newest, &mut writes, &mut with);
    let newest = newest.map(|head| head.checkpoint);
    let mut head = head(thread, layout, key, newest)?;
    debug_assert_eq!(head.checkpoint, newest, "the state is that of the expected head");
    let id = commit_on(thread, layout, &mut head, writes, &with)?;
    retain(thread, key, head);
    Ok(id)
}

/// Writes the partial messages at a head to their channels, before the other writes to these. Those of channels that
/// are not written, or that hold no messages in this state, go along to the new head.
fn keep_partials(
    thread: &Thread,
    layout: &dyn Layout,
    head: Option<&StoredHead>,
    writes: &mut Vec<(usize, BoxWrite)>,
    with: &mut CommitExtras,
) {
    for partial in with.partials(thread, head) {
        let first = partial.content().place_among(layout, writes);
        let kept = || {
            prepared(thread, layout, DynUpdate::new().messages(&partial.content.channel, [partial.aborted()]).into())
        };
        match first.map(|at| (at, kept())) {
            Some((at, Ok(kept))) => {
                writes.splice(at..at, kept);
                with.clears.push(partial.clear());
            }
            Some((_, Err(_))) | None => with.moved.push(partial),
        }
    }
}

impl PartialMessage {
    /// Returns the index at which the kept message is inserted into the writes of an update: before the others of its
    /// channel, and after one that empties the list. Returns `None` if the channel is not written.
    #[doc(hidden)]
    pub fn place_among(&self, layout: &dyn Layout, writes: &[(usize, BoxWrite)]) -> Option<usize> {
        let is_of_channel = |(field, _): &(usize, BoxWrite)| **layout.name(*field) == *self.channel;
        // A write that empties the list is a compaction: the kept message comes after it.
        let emptied = writes.iter().rposition(|write| is_of_channel(write) && empties(layout, write));
        emptied.map(|at| at + 1).or_else(|| writes.iter().position(is_of_channel))
    }
}

/// Returns whether a write deletes all messages of its channel.
fn empties(layout: &dyn Layout, (field, write): &(usize, BoxWrite)) -> bool {
    let Ok(WriteValue::Items(items)) = layout.encode_write(*field, write) else { return false };
    let id = |item: &Payload| item.index.as_ref().is_some_and(|index| index.id.as_deref() == Some(REMOVE_ALL_MESSAGES));
    items.iter().any(id)
}

/// The parts of a commit beside its changes.
#[derive(Clone, Default)]
pub(crate) struct CommitExtras {
    pub(crate) metadata: Map,
    /// Writes that clear special writes of stored checkpoints.
    pub(crate) clears: Vec<NewWrites>,
    /// The partial messages of the head that go along to the new one.
    pub(crate) moved: Vec<Partial>,
    /// The result of a conflict.
    pub(crate) on_conflict: OnConflict,
}

impl CommitExtras {
    /// Returns the partial messages at a head that the commit does not clear.
    pub(crate) fn partials(&self, thread: &Thread, head: Option<&StoredHead>) -> Vec<Partial> {
        let Some(head) = head.filter(|head| !head.writes.is_empty()) else { return Vec::new() };
        let at = head.checkpoint;
        // One that another program wrote in a form of its own stays where it is, and refuses no update.
        let mut partials = thread.partials_among(at, &head.writes).unwrap_or_default();
        let clears = |partial: &Partial| self.clears.iter().any(|of| (of.checkpoint, of.task) == (at, partial.task));
        partials.retain(|partial| !clears(partial));
        partials
    }

    /// Returns the metadata of the checkpoint as the text of a JSON object, with the actor of a handle.
    fn metadata_of(&self, thread: &Thread) -> Option<String> {
        let mut metadata = self.metadata.clone();
        if let Some(actor) = thread.actor() {
            metadata.or_insert_with(ACTOR.to_owned(), || actor.into());
        }
        (!metadata.is_empty()).then(|| Value::Map(metadata).to_json().to_string())
    }
}

/// Applies writes to a decoded head and commits the result as its child. If that fails, the head must be dropped.
pub(crate) fn commit_on(
    thread: &Thread,
    layout: &dyn Layout,
    head: &mut DecodedHead,
    writes: Vec<(usize, BoxWrite)>,
    with: &CommitExtras,
) -> Result<CheckpointId, Error> {
    span!("update", thread = ?thread.id(), writes = writes.len());
    let store = thread.store();
    let newest = head.checkpoint;
    let changes = head.apply(layout, writes)?;
    let step = head.step.max(-1) + 1;
    let id = store.mint_checkpoint(step, newest.as_ref());
    debug_assert!(newest.is_none_or(|newest| id > newest), "a child has a greater id than its parent");
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), newest);
    let mut checkpoint = NewCheckpoint::new(id, newest.map(Parent::Local), step, Source::Update, store.now());
    checkpoint.metadata = with.metadata_of(thread);
    let moved = with.moved.iter().map(Partial::clear);
    for writes in with.clears.iter().cloned().chain(moved) {
        let of = if Some(writes.checkpoint) == newest { &mut checkpoint.consumed } else { &mut batch.writes };
        of.push(writes);
    }
    checkpoint.parents = Arc::clone(&head.parents);
    // The tasks stay due; they get new ids when a graph runs.
    checkpoint.tasks.clone_from(&head.tasks);
    checkpoint.changes = changes;
    batch.checkpoints.push(checkpoint);
    if !with.moved.is_empty() {
        // They belong to the head, which the batch makes.
        let mut then = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(id));
        then.writes = with.moved.iter().map(|partial| partial.at(id)).collect::<Result<_, _>>()?;
        batch.then.push(then);
    }
    let id = match store.commit_reminting(&mut batch) {
        Err(StoreError::Conflict { .. }) if with.on_conflict == OnConflict::Branch => {
            // The head of the other writer has them.
            batch.then.clear();
            thread.commit_branch(&batch)?.last
        }
        done => done.map(|()| batch.head_after().unwrap_or(id))?,
    };
    head.reset_untracked(layout);
    (head.checkpoint, head.step) = (Some(id), step);
    Ok(id)
}
