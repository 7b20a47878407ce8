//! Messages that are persisted while they are streamed.
//!
//! A streamed message so far is a special write of a task of the head (`__partial__`), which each attempt to persist
//! replaces. After a crash it is there, to keep or to discard. Invariant: a whole message clears its partial one in its
//! own commit. *Absent:* the model, and threads that look at the clock: a message is persisted when a chunk of it
//! arrives.

use std::sync::Arc;
use std::time::Duration;

use crate::base::internal::hash;
use crate::base::{
    CheckpointId, Encoded, IdSource, Map, TaskId, Timestamp, Value, WriteValue, debug_fields, decode_bytes,
    limits::UPDATE_ATTEMPTS_MAX,
};
use crate::error::Error;
use crate::message::{MergedChunks, Message, MessageError, message_chunk_to_message};
use crate::state::DynUpdate;
use crate::store::batch::{Batch, NewCheckpoint, NewWrite, NewWrites};
use crate::store::log::{CommitHandle, LogExt};
use crate::store::record::WriteRecord;
use crate::store::status::{PARTIAL, misfit, partials};
use crate::store::{Source, StoreError};

use super::ModelUsage;
use super::update::{CommitExtras, StateThread, newest};
use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;

/// A message as far as it was streamed, for a channel of a thread.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartialMessage {
    /// The channel that the whole message is for.
    pub channel: String,
    /// The message: the sum of its chunks so far.
    pub message: Message,
    /// The time at which its first chunk arrived.
    pub started: Timestamp,
    /// The time at which it was persisted.
    pub updated: Timestamp,
}

impl PartialMessage {
    /// The channel and the index of the special write that stores it.
    pub const PLACE: (&str, i32) = PARTIAL;

    /// Makes the partial message of a channel, of chunks that were added up.
    pub fn new(channel: impl Into<String>, message: Message, started: Timestamp, updated: Timestamp) -> Self {
        Self { channel: channel.into(), message: message_chunk_to_message(message), started, updated }
    }

    /// Returns the special write that stores it: for executors, which commit it with the id of the task.
    ///
    /// # Errors
    /// [`CodecError`](crate::base::CodecError) if the message is beyond the limits of a value.
    pub fn to_write(&self) -> Result<NewWrite, Error> {
        let micros = |time: Timestamp| Value::from(time.as_micros());
        let fields = Map::from_iter([
            ("channel".to_owned(), Value::from(self.channel.as_str())),
            ("message".to_owned(), Value::Map(self.message.to_map())),
            ("started".to_owned(), micros(self.started)),
            ("updated".to_owned(), micros(self.updated)),
        ]);
        let value = Encoded::encode(&Value::Map(fields))?;
        Ok(NewWrite::new(PARTIAL.1, PARTIAL.0, WriteValue::One(value.into())))
    }

    /// Returns the message with `aborted: true` in its `response_metadata`, the mark of one that was cut off.
    pub fn aborted(&self) -> Message {
        self.message.clone().with_response_metadata("aborted", true)
    }

    /// Returns the special write that clears it.
    pub(crate) fn clearing() -> NewWrite {
        NewWrite::new(PARTIAL.1, PARTIAL.0, WriteValue::Null)
    }

    /// Reads it from a stored write; `None` if the write is another one, or was cleared.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the value is not that of a partial message.
    pub fn of_write(index: i32, value: &WriteValue) -> Result<Option<Self>, Error> {
        let WriteValue::One(payload) = value else { return Ok(None) };
        if index != PARTIAL.1 {
            return Ok(None);
        }
        let Value::Map(mut fields) = decode_bytes(payload.codec, &payload.data)? else { return Err(misfit().into()) };
        let message = Message::try_from(fields.shift_remove("message").ok_or_else(misfit)?)?;
        let time = |name: &str| fields.get(name).and_then(Value::as_int).map(Timestamp::from_micros).ok_or_else(misfit);
        let channel = fields.get("channel").and_then(Value::as_str).ok_or_else(misfit)?.to_owned();
        Ok(Some(Self { channel, message, started: time("started")?, updated: time("updated")? }))
    }
}

/// A partial message at the head of a thread, to keep or to discard. Returned by [`Thread::partial`].
///
/// One that is neither kept nor discarded is not lost: the next append to its channel ([`Thread::append`],
/// [`Thread::write`], [`Thread::update`], another streamed message) keeps it, before its own messages, as a
/// run of a graph with an input does; any other write takes it along to the new head.
#[derive(Clone)]
pub struct Partial {
    thread: Thread,
    checkpoint: CheckpointId,
    /// The task that streamed it; a task of its own for a writer without a graph.
    pub task: TaskId,
    path: Arc<str>,
    /// The message as far as it was persisted. The writer of one that is still streamed persists it again.
    pub content: PartialMessage,
}

impl Partial {
    /// Appends the message to its channel, marked with `aborted: true` in its `response_metadata`, and clears the
    /// partial one in the same commit. Returns the new checkpoint. If its writer goes on, the whole message replaces
    /// it.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the head of the thread is another checkpoint by now; as
    /// [`ThreadWrite::commit`](crate::history::ThreadWrite::commit).
    pub fn keep(self) -> Result<CheckpointId, Error> {
        let write = self.thread.write().append(&self.content.channel, [self.aborted()]).on_head(Some(self.checkpoint));
        write.clearing(vec![self.clear()]).commit()
    }

    /// Returns the message with the mark of one that was cut off.
    pub(crate) fn aborted(&self) -> Message {
        self.content.aborted()
    }

    pub(crate) fn content(&self) -> &PartialMessage {
        &self.content
    }

    /// Returns the id of the message.
    fn id(&self) -> Option<&str> {
        self.content.message.id.as_deref()
    }

    /// Clears the message; its bytes are deleted.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the head of the thread is another checkpoint by now; as
    /// [`Log::submit`](crate::store::log::Log::submit).
    pub fn discard(self) -> Result<(), Error> {
        let (thread, namespace) = (self.thread.id().clone(), self.thread.namespace().clone());
        let mut batch = Batch::new(thread, namespace, Some(self.checkpoint));
        batch.writes.push(self.clear());
        Ok(self.thread.store().commit(&batch)?)
    }

    /// Returns the write that clears it.
    pub(crate) fn clear(&self) -> NewWrites {
        NewWrites::new(self.checkpoint, self.task, Arc::clone(&self.path)).with(vec![PartialMessage::clearing()])
    }

    /// Returns the write that stores it at another checkpoint.
    pub(crate) fn at(&self, checkpoint: CheckpointId) -> Result<NewWrites, Error> {
        Ok(NewWrites::new(checkpoint, self.task, Arc::clone(&self.path)).with(vec![self.content.to_write()?]))
    }
}

debug_fields!(Partial { thread, content });

/// A message that is streamed into a channel of a thread. Its chunks so far are persisted at an interval, and the whole
/// message is appended by [`finish`](Self::finish). Made by [`Thread::message_writer`].
///
/// Persisting hands the message so far to the background writer, so a message of `n` bytes that arrives over `t` costs
/// about `n / 2` bytes of writes for each interval in `t`; the file retains one copy. It happens when a chunk arrives
/// and the interval has passed, and when the writer is dropped before its end. An attempt that fails is repeated with a
/// later chunk. If another writer moves the head, the message so far is persisted at the new head. If another writer
/// appends to the channel meanwhile, it keeps the message so far, and the whole one takes its place.
pub struct MessageWriter {
    thread: Thread,
    channel: Arc<str>,
    interval: Duration,
    id: Option<String>,
    sum: Option<MergedChunks>,
    started: Timestamp,
    /// The time of the last attempt to persist the message, by a clock that does not jump.
    attempted: Duration,
    /// The checkpoint at which it was persisted last, and the outcome of that.
    persisted: Option<(CheckpointId, CommitHandle)>,
    /// Other checkpoints that may hold it, because another writer moved the head.
    left: Vec<CheckpointId>,
    /// True if a chunk arrived since.
    is_changed: bool,
    /// The metadata of the checkpoint that the whole message becomes.
    metadata: Map,
    append: AppendMessage,
}

/// Appends a whole message to its channel with the metadata of its checkpoint, and stores writes that clear partial
/// messages.
type AppendMessage = Box<dyn Fn(Message, Map, Vec<NewWrites>) -> Result<CheckpointId, Error> + Send>;

impl Thread {
    /// Returns the partial message at the head that was persisted last, if there is one: a message that is being
    /// streamed, or one whose writer or whose task was stopped. A thread has one head for each namespace.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example: an answer that a crash has cut off
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let chat = Store::memory().thread("trip")?;
    /// chat.append("messages", [Message::human("A hotel in Bern, please")])?;
    /// let mut answer = chat.message_writer("messages", Duration::from_millis(500));
    /// answer.push("The Gasthof ");
    /// drop(answer); // the user closes the window
    ///
    /// let partial = chat.partial()?.expect("the answer so far");
    /// assert_eq!(partial.content.message.text(), "The Gasthof ");
    /// partial.keep()?;
    /// let head = chat.head()?.expect("a head");
    /// let last = head.messages("messages", annals::store::ItemRange::Tail(1))?.remove(0);
    /// assert_eq!(last.response_metadata["aborted"], Value::Bool(true));
    /// assert!(chat.partial()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn partial(&self) -> Result<Option<Partial>, Error> {
        Ok(self.partials()?.into_iter().max_by_key(|partial| partial.content.updated))
    }

    /// Returns the partial messages at the head: several tasks of a graph may stream at the same time.
    ///
    /// # Errors
    /// As [`Thread::partial`].
    pub fn partials(&self) -> Result<Vec<Partial>, Error> {
        self.store().flush_abandoned();
        let Some(head) = self.store().backend().head_with_writes(self.id(), self.namespace())? else {
            return Ok(Vec::new());
        };
        self.partials_among(head.checkpoint, &head.writes)
    }

    /// Returns the partial messages among the writes of a checkpoint.
    pub(crate) fn partials_among(&self, at: CheckpointId, writes: &[WriteRecord]) -> Result<Vec<Partial>, Error> {
        let mut found = Vec::new();
        for write in partials(writes) {
            if let Some(content) = PartialMessage::of_write(write.index, &write.value)? {
                let (thread, path) = (self.clone(), Arc::clone(&write.path));
                found.push(Partial { thread, checkpoint: at, task: write.task, path, content });
            }
        }
        Ok(found)
    }

    /// Starts a message that is streamed into a list of messages, and is persisted at an interval.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let chat = Store::memory().thread("trip")?;
    /// chat.append("messages", [Message::human("hi")])?;
    /// let mut answer = chat.message_writer("messages", Duration::from_millis(500));
    /// for token in ["Good ", "day"] {
    ///     answer.push(token);
    /// }
    /// assert_eq!(answer.finish()?.text(), "Good day");
    /// assert_eq!(chat.head()?.expect("two checkpoints").len("messages")?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn message_writer(&self, channel: &str, interval: Duration) -> MessageWriter {
        let (thread, name) = (self.clone(), channel.to_owned());
        let append = move |message, metadata, clears| {
            thread.write().append(&name, [message]).with_metadata(metadata).clearing(clears).commit()
        };
        MessageWriter::new(self, channel, interval, Box::new(append))
    }

    /// Streams a message into a list of messages: `stream` pushes the chunks, and the whole message is appended in one
    /// commit. If `stream` fails, the chunks so far are persisted as a partial message.
    ///
    /// # Errors
    /// The error of `stream`; as [`MessageWriter::finish`].
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let chat = Store::memory().thread("trip")?;
    /// let answer = chat.stream_message("messages", Duration::from_millis(500), |out| {
    ///     ["Good ", "day"].into_iter().for_each(|token| out.push(token));
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(answer.text(), "Good day");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_message<E: From<Error>>(
        &self,
        channel: &str,
        interval: Duration,
        stream: impl FnOnce(&mut MessageWriter) -> Result<(), E>,
    ) -> Result<Message, E> {
        streamed(self.message_writer(channel, interval), stream)
    }
}

impl Snapshot {
    /// Returns the partial messages that are stored at this checkpoint: messages that are streamed, or were cut off
    /// here. [`Thread::partials`] has those of the head, to keep or to discard.
    ///
    /// # Errors
    /// As [`Thread::partial`].
    pub fn partials(&self) -> Result<Vec<PartialMessage>, Error> {
        let writes = self.store().backend().writes(self.point())?;
        let found = partials(&writes).map(|write| PartialMessage::of_write(write.index, &write.value));
        found.filter_map(Result::transpose).collect()
    }
}

impl<S: Clone + Send + Sync + 'static> StateThread<S> {
    /// Starts a message that is streamed into a channel of messages, as [`Thread::message_writer`]. The whole message
    /// is appended by the rules of the state.
    pub fn message_writer(&self, channel: &str, interval: Duration) -> MessageWriter {
        let (thread, name) = (self.clone(), channel.to_owned());
        let append = move |message, metadata, clears| {
            let with = CommitExtras { metadata, clears, ..CommitExtras::default() };
            thread.update_with(DynUpdate::new().messages(name.as_str(), [message]), with)
        };
        MessageWriter::new(self.thread(), channel, interval, Box::new(append))
    }

    /// Streams a message into a channel of messages, as [`Thread::stream_message`].
    ///
    /// # Errors
    /// As [`Thread::stream_message`].
    pub fn stream_message<E: From<Error>>(
        &self,
        channel: &str,
        interval: Duration,
        stream: impl FnOnce(&mut MessageWriter) -> Result<(), E>,
    ) -> Result<Message, E> {
        streamed(self.message_writer(channel, interval), stream)
    }
}

fn streamed<E: From<Error>>(
    mut writer: MessageWriter,
    stream: impl FnOnce(&mut MessageWriter) -> Result<(), E>,
) -> Result<Message, E> {
    stream(&mut writer)?;
    Ok(writer.finish()?)
}

impl MessageWriter {
    fn new(thread: &Thread, channel: &str, interval: Duration, append: AppendMessage) -> Self {
        Self {
            thread: thread.clone(),
            channel: channel.into(),
            interval,
            id: None,
            sum: None,
            started: thread.store().now(),
            attempted: thread.store().elapsed(),
            persisted: None,
            left: Vec::new(),
            is_changed: false,
            metadata: Map::new(),
            append,
        }
    }

    /// Adds the tokens, the cost and the model of the call to the metadata of the checkpoint that the whole message
    /// becomes: they are stored in the same commit.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::history::{ModelUsage, UsageQuery};
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let chat = store.thread("trip")?;
    /// chat.stream_message("messages", Duration::from_millis(500), |out| {
    ///     out.push("Good day");
    ///     out.usage(ModelUsage::new(812, 64).cost_usd(0.004).model("m-1"));
    ///     Ok::<_, Error>(())
    /// })?;
    /// let total = store.usage(UsageQuery::new().by_model())?.remove(0);
    /// assert_eq!((total.model.as_deref(), total.input_tokens, total.cost_usd), (Some("m-1"), 812, 0.004));
    /// assert_eq!(chat.history()?.count(), 1, "one checkpoint has both");
    /// # Ok(())
    /// # }
    /// ```
    pub fn usage(&mut self, usage: ModelUsage) {
        self.metadata("usage", usage.into_value());
    }

    /// Adds an entry to the metadata of the checkpoint that the whole message becomes.
    pub(crate) fn metadata(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.metadata.insert(name.into(), value.into());
    }

    /// Returns the id of the message: that of the first chunk, or a new one.
    pub fn id(&mut self) -> &str {
        let thread = &self.thread;
        self.id.get_or_insert_with(|| IdSource::from_seed(thread.store().mint_seed()).uuid_v4().to_string())
    }

    /// Adds a chunk of text.
    pub fn push(&mut self, text: impl Into<String>) {
        if self.push_chunk(Message::ai(text.into())).is_err() {
            unreachable!("a text fits any chunk");
        }
    }

    /// Adds a chunk as a provider sent it; a whole message of the model counts as one chunk. The first chunk with an id
    /// gives it to the message.
    ///
    /// # Errors
    /// [`MessageError`] if `chunk` is not a message of a model, or does not fit the earlier chunks; it is not added
    /// then.
    pub fn push_chunk(&mut self, chunk: Message) -> Result<(), MessageError> {
        let mut chunk = chunk.into_chunk_with_calls();
        let own = chunk.id.take().filter(|id| !id.is_empty());
        if self.id.is_none() {
            self.id = own;
        }
        chunk.id = Some(self.id().to_owned());
        match &mut self.sum {
            Some(sum) => sum.add(chunk)?,
            None => {
                self.sum = Some(MergedChunks::new(chunk)?);
                self.started = self.thread.store().now();
            }
        }
        self.is_changed = true;
        let now = self.thread.store().elapsed();
        let is_pending = self.persisted.as_ref().is_some_and(|(_, handle)| !handle.is_settled());
        if !is_pending && now.saturating_sub(self.attempted) >= self.interval {
            self.attempted = now;
            // A failed attempt is repeated with a later chunk; the error of the last commit is that of `finish`.
            _ = self.persist();
        }
        Ok(())
    }

    /// Ends the message: appends the sum of its chunks to the channel, in one commit that clears the partial message,
    /// and returns it.
    ///
    /// # Errors
    /// As [`ThreadWrite::commit`](crate::history::ThreadWrite::commit), or [`StateThread::update`] for a typed thread.
    /// The partial message is retained then.
    pub fn finish(mut self) -> Result<Message, Error> {
        let message = match &self.sum {
            Some(sum) => message_chunk_to_message(sum.clone().into_message()),
            None => Message::ai("").with_id(self.id()),
        };
        if let Some((checkpoint, handle)) = self.persisted.take() {
            // Written later, it would be a partial message that nothing clears.
            handle.wait_until_settled();
            self.left.push(checkpoint);
        }
        let mut clears = Vec::with_capacity(self.left.len());
        for checkpoint in std::mem::take(&mut self.left) {
            // The thread may have been deleted meanwhile.
            if self.thread.store().backend().checkpoint(&self.thread.point(checkpoint))?.is_some() {
                clears.push(self.writes(checkpoint, PartialMessage::clearing()));
            }
        }
        (self.append)(message.clone(), std::mem::take(&mut self.metadata), clears)?;
        self.is_changed = false;
        Ok(message)
    }

    /// Hands the message so far to the background writer.
    fn persist(&mut self) -> Result<(), Error> {
        if self.sum.is_none() {
            return Ok(());
        }
        let store = self.thread.store().clone();
        if self.persisted.is_none() && self.left.is_empty() {
            self.keep_earlier()?;
        }
        let Some(sum) = &self.sum else { return Ok(()) };
        let content = PartialMessage::new(&*self.channel, sum.clone().into_message(), self.started, store.now());
        let checkpoint = match newest(&self.thread)? {
            Some(head) => head,
            None => self.begin()?,
        };
        let (thread, namespace) = (self.thread.id().clone(), self.thread.namespace().clone());
        let mut batch = Batch::new(thread, namespace, Some(checkpoint));
        let write = content.to_write()?;
        if let Some((before, handle)) = self.persisted.take() {
            if handle.is_settled() { self.settled(before, &handle.wait()) } else { self.left.push(before) }
        }
        self.left.retain(|other| *other != checkpoint);
        // The message moves along with the head.
        batch.writes.extend(self.left.iter().map(|other| self.writes(*other, PartialMessage::clearing())));
        batch.writes.push(self.writes(checkpoint, write));
        self.persisted = Some((checkpoint, store.submit(batch)));
        self.is_changed = false;
        Ok(())
    }

    /// Keeps the message that an earlier writer left: this one would take its place.
    fn keep_earlier(&mut self) -> Result<(), Error> {
        let own = self.id().to_owned();
        let mut earlier = self.thread.partials()?.into_iter();
        match earlier.find(|partial| *partial.content.channel == *self.channel && partial.id() != Some(&own)) {
            Some(partial) if partial.task == self.task() => partial.keep().map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Notes where the message is after it was persisted at a checkpoint.
    fn settled(&mut self, at: CheckpointId, done: &Result<(), StoreError>) {
        match done {
            // It was cleared at the others in the same commit.
            Ok(()) => self.left = vec![at],
            Err(StoreError::Conflict { .. }) => {}
            // The thread was deleted, or the next attempt has the same error.
            Err(_) => self.left.clear(),
        }
    }

    fn writes(&self, checkpoint: CheckpointId, write: NewWrite) -> NewWrites {
        NewWrites::new(checkpoint, self.task(), "").with(vec![write])
    }

    /// Returns the task under which a message without a graph is persisted: one of its channel.
    fn task(&self) -> TaskId {
        let place = format!("{}|{}", PARTIAL.0, self.channel);
        TaskId::from_bytes(hash::xxh3_128(place.as_bytes()))
    }

    /// Makes the first checkpoint of a thread, without content: a partial message is a write of a checkpoint.
    fn begin(&self) -> Result<CheckpointId, Error> {
        let store = self.thread.store();
        let id = store.mint_checkpoint(0, None);
        let mut batch = Batch::new(self.thread.id().clone(), self.thread.namespace().clone(), None);
        batch.checkpoints.push(NewCheckpoint::new(id, None, 0, Source::Update, store.now()));
        store.commit(&batch)?;
        Ok(id)
    }
}

/// Persists the chunks so far, if the message did not end.
impl Drop for MessageWriter {
    fn drop(&mut self) {
        for attempt in 1..UPDATE_ATTEMPTS_MAX {
            let is_stored = match self.persisted.take() {
                None => !self.is_changed,
                Some((at, handle)) => {
                    let done = handle.wait();
                    self.settled(at, &done);
                    match done {
                        // Another writer may have moved the head meanwhile.
                        Ok(()) => !self.is_changed && newest(&self.thread).is_ok_and(|head| head == Some(at)),
                        Err(StoreError::Conflict { .. }) => false,
                        Err(_) => attempt > 1,
                    }
                }
            };
            if is_stored || self.persist().is_err() {
                return;
            }
        }
    }
}

debug_fields!(MessageWriter { thread, channel });
