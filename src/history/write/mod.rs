//! Writes by the names of channels: no graph, no schema and no types.
//!
//! The rule of a channel follows from the call: `append` makes a list, or a list of messages that are merged by id,
//! `put` a map, `append_text` a text, and `set` a last value. A channel that the thread has already must be of that
//! kind. *Absent:* reducers, which only a schema or a graph knows.
//!
//! Invariant: the cost of a write follows its changes, that of the first write of a handle too: of a list to which it
//! appends it reads the end, and the whole list only to find a message by its id. The decoded channels that a handle of
//! the store has written by name are cached together.

pub(crate) mod compaction;
pub(crate) mod conflict;
pub(crate) mod decoded;
pub(crate) mod partial;
pub(crate) mod update;

use std::sync::Arc;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Map, Value, setters};
use crate::channel::ListShape;
use crate::error::Error;
use crate::message::Message;
use crate::state::{DynSchema, DynState, DynUpdate, Layout, Schema, Writes};
use crate::store::StoreError;
use crate::store::batch::NewWrites;
use crate::store::log::{CachedHead, HeadKey};
use crate::store::record::StoredHead;

use super::thread::Thread;
use conflict::OnConflict;
use decoded::{DecodedHead, FoundContent};
use update::{CommitExtras, commit_on, newest_with_writes, prepared};

/// An item of a list that is written by name: a message, or a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NewItem {
    /// A message: it replaces the message with its id, or removes it.
    Message(Message),
    /// A value, which is added at the end.
    Value(Value),
}

impl From<Message> for NewItem {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl From<Value> for NewItem {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<&str> for NewItem {
    fn from(text: &str) -> Self {
        Self::Value(text.into())
    }
}

impl From<String> for NewItem {
    fn from(text: String) -> Self {
        Self::Value(text.into())
    }
}

impl From<i64> for NewItem {
    fn from(number: i64) -> Self {
        Self::Value(number.into())
    }
}

/// The tokens and the cost of a model call, for the metadata of a checkpoint.
///
/// They are stored under the name `usage`, as an object with `input_tokens`, `output_tokens` and, if they are known,
/// `cost_usd` and `model`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelUsage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// The cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The model.
    pub model: Option<String>,
}

impl ModelUsage {
    /// Counts the tokens of a model call.
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cost_usd: None, model: None }
    }

    setters! {
        /// Adds the cost in US dollars.
        pub fn cost_usd(cost: f64) { .cost_usd = Some(cost) }

        /// Names the model.
        pub fn model(model: impl Into<String>) { .model = Some(model.into()) }
    }

    pub(super) fn into_value(self) -> Value {
        let mut usage = Map::new();
        let tokens = |count: u64| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
        usage.insert("input_tokens".into(), tokens(self.input_tokens));
        usage.insert("output_tokens".into(), tokens(self.output_tokens));
        usage.extend(self.cost_usd.map(|cost| ("cost_usd".into(), cost.into())));
        usage.extend(self.model.map(|model| ("model".into(), model.into())));
        Value::Map(usage)
    }
}

/// The kind of a channel that is written by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteRule {
    Last,
    Append,
    Messages,
    Map,
    Text,
}

impl WriteRule {
    fn noun(self) -> &'static str {
        match self {
            Self::Last => "one value",
            Self::Append => "a list",
            Self::Messages => "a list of messages",
            Self::Map => "a map",
            Self::Text => "a text",
        }
    }
}

/// A channel that is written by name.
#[derive(Clone, Debug)]
struct WrittenChannel {
    name: String,
    rule: WriteRule,
    /// True if all of its value is needed, and not the end of a list alone.
    whole: bool,
}

/// The channels that were written by name, decoded: an entry of the head cache.
struct NamedHead {
    schema: Arc<Schema<DynState>>,
    channels: Vec<WrittenChannel>,
    head: DecodedHead,
}

/// Writes to several channels of a thread, which become one checkpoint. Made by [`Thread::write`].
///
/// # Example
/// ```
/// use annals::history::ModelUsage;
/// use annals::prelude::*;
///
/// # fn main() -> Result<()> {
/// let thread = Store::memory().thread("trip")?;
/// let first = thread.append("messages", [Message::human("A hotel in Bern, please")])?;
/// thread
///     .write()
///     .append("messages", [Message::ai("The Gasthof Post")])
///     .set("title", "Bern")
///     .usage(ModelUsage::new(812, 64).cost_usd(0.004).model("m-1"))
///     .on_head(Some(first))
///     .commit()?;
///
/// let head = thread.head()?.expect("two checkpoints");
/// assert_eq!(head.len("messages")?, 2);
/// assert_eq!(head.get("title")?, Some("Bern".into()));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is written before `commit`"]
#[derive(Clone, Debug)]
pub struct ThreadWrite {
    thread: Thread,
    writes: Vec<(String, Vec<NewItem>)>,
    /// The values that are set, with the rule of each channel: of a map the entries, of a text the part.
    values: Vec<(String, WriteRule, Value)>,
    expected: Option<Option<CheckpointId>>,
    metadata: Map,
    clears: Vec<NewWrites>,
    on_conflict: OnConflict,
}

impl Thread {
    /// Appends items to a list channel, in one commit: messages, which are merged by id, or values. Returns the new
    /// checkpoint when it is durable. A graph that runs on the thread goes on from it, and the other way round. A
    /// [partial message](super::Partial) of the channel is kept before them, marked as aborted.
    ///
    /// # Errors
    /// As [`ThreadWrite::commit`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::ItemRange;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// thread.append("messages", [Message::human("A hotel in Bern").with_id("1")])?;
    /// thread.append("messages", [Message::human("A hotel in Basel").with_id("1"), Message::ai("Done")])?;
    /// thread.append("visited", ["Basel"])?;
    ///
    /// let head = thread.head()?.expect("three checkpoints");
    /// let messages = head.messages("messages", ItemRange::All)?;
    /// let texts: Vec<_> = messages.iter().map(|message| message.text().into_owned()).collect();
    /// assert_eq!(texts, ["A hotel in Basel", "Done"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn append(
        &self,
        channel: &str,
        items: impl IntoIterator<Item = impl Into<NewItem>>,
    ) -> Result<CheckpointId, Error> {
        self.write().append(channel, items).commit()
    }

    /// Sets a channel that holds one value, in one commit. Returns the new checkpoint when it is durable. A channel
    /// into which a graph folds its writes is replaced: the reducer is the graph's.
    ///
    /// # Errors
    /// As [`ThreadWrite::commit`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// thread.set("title", "Bern")?;
    /// thread.set("title", "Basel")?;
    /// assert_eq!(thread.head()?.expect("two checkpoints").get("title")?, Some("Basel".into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, channel: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        self.write().set(channel, value).commit()
    }

    /// Puts a value at a key of a map channel, in one commit. Returns the new checkpoint when it is durable. Only the
    /// entry is stored.
    ///
    /// # Errors
    /// As [`ThreadWrite::commit`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("agent")?;
    /// thread.put("files", "a.txt", "one")?;
    /// thread.put("files", "b.txt", "two")?;
    /// thread.write().remove("files", "a.txt").append_text("log", "a.txt is gone. ").commit()?;
    ///
    /// let head = thread.head()?.expect("three checkpoints");
    /// assert_eq!(head.entry("files", "b.txt")?, Some("two".into()));
    /// assert_eq!((head.len("files")?, head.text_tail("log", 5)?), (1, "one. ".to_string()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, channel: &str, key: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        self.write().put(channel, key, value).commit()
    }

    /// Starts a write to several channels.
    pub fn write(&self) -> ThreadWrite {
        ThreadWrite {
            thread: self.clone(),
            writes: Vec::new(),
            values: Vec::new(),
            expected: None,
            metadata: Map::new(),
            clears: Vec::new(),
            on_conflict: OnConflict::Refuse,
        }
    }
}

impl ThreadWrite {
    setters! {
        /// Appends items to a list channel: messages, or values.
        pub fn append(channel: &str, items: impl IntoIterator<Item = impl Into<NewItem>>) {
            .writes.push((channel.to_owned(), items.into_iter().map(Into::into).collect()))
        }

        /// Sets a channel that holds one value.
        pub fn set(channel: &str, value: impl Into<Value>) {
            .values.push((channel.to_owned(), WriteRule::Last, value.into()))
        }
    }

    /// Puts a value at a key of a map channel ([`DynUpdate::put`]).
    pub fn put(self, channel: &str, key: &str, value: impl Into<Value>) -> Self {
        self.entries(DynUpdate::new().put(channel, key, value))
    }

    /// Removes a key of a map channel. It need not be there.
    pub fn remove(self, channel: &str, key: &str) -> Self {
        self.entries(DynUpdate::new().remove(channel, key))
    }

    setters! {
        /// Appends to a text channel.
        pub fn append_text(channel: &str, part: impl Into<String>) {
            .values.push((channel.to_owned(), WriteRule::Text, Value::Str(part.into())))
        }

        fn entries(update: DynUpdate) {
            .values.extend(update.values.into_iter().map(|(channel, entries)| (channel, WriteRule::Map, entries)))
        }

        /// Writes only if this is the head of the thread: `None` expects a thread without checkpoints.
        pub fn on_head(expected: Option<CheckpointId>) { .expected = Some(expected) }

        /// Adds an entry to the metadata of the checkpoint.
        pub fn metadata(name: impl Into<String>, value: impl Into<Value>) {
            .metadata.insert(name.into(), value.into())
        }
    }

    /// Adds the tokens and the cost of a model call to the metadata of the checkpoint.
    pub fn usage(self, usage: ModelUsage) -> Self {
        self.metadata("usage", usage.into_value())
    }

    setters! {
        /// Sets the result of a head that is not the [expected](Self::on_head) one: with [`OnConflict::Branch`] the
        /// write is applied to the state at the expected checkpoint, and stored as a branch off it. Default: the
        /// conflict is returned.
        ///
        /// # Example
        /// ```
        /// use annals::history::OnConflict;
        /// use annals::prelude::*;
        ///
        /// # fn main() -> Result<()> {
        /// let thread = Store::memory().thread("trip")?;
        /// let first = thread.append("messages", [Message::human("A hotel in Bern")])?;
        /// thread.append("messages", [Message::ai("The Gasthof Post")])?; // the other window
        /// let write = thread.write().append("messages", [Message::ai("The Hotel Adler")]).on_head(Some(first));
        /// let late = write.on_conflict(OnConflict::Branch).commit()?;
        ///
        /// let stored = thread.head()?.expect("a head").messages("messages", annals::store::ItemRange::All)?;
        /// assert_eq!(stored[1].text(), "The Gasthof Post");
        /// let branches = thread.branches()?;
        /// let branch = branches.into_iter().find(|branch| branch.last.id() == late).expect("it has a name");
        /// assert_eq!(branch.last.len("messages")?, 2);
        /// # Ok(())
        /// # }
        /// ```
        pub fn on_conflict(on_conflict: OnConflict) { .on_conflict = on_conflict }

        /// Adds entries to the metadata of the checkpoint.
        pub(super) fn with_metadata(metadata: Map) { .metadata.extend(metadata) }

        /// Stores writes with the commit that clear special writes of stored checkpoints.
        pub(super) fn clearing(clears: Vec<NewWrites>) { .clears = clears }
    }

    /// Writes everything in one commit, and returns the new checkpoint when it is durable. If another writer commits
    /// first, the write is applied to the head that it left, unless a head is [expected](Self::on_head).
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a channel is of another kind, is written in two ways, or has two colons in its name;
    /// [`StoreError::Conflict`] if the head is not the expected one, or if other writers were faster 64 times in a row;
    /// as [`StateThread::update`](super::StateThread::update). Nothing is stored then.
    pub fn commit(self) -> Result<CheckpointId, Error> {
        let Self { thread, writes: own_writes, values, expected, metadata, clears, on_conflict } = self;
        let own_wanted = written(&own_writes, &values)?;
        let on_stale = expected.map_or(OnConflict::Refuse, |_| on_conflict);
        let own = CommitExtras { metadata, clears, on_conflict: on_stale, moved: Vec::new() };
        let mut attempt = 1;
        loop {
            let stored = newest_with_writes(&thread)?;
            let head = stored.as_ref().map(|head| head.checkpoint);
            let mut found = head;
            if let Some(expected @ Some(_)) = expected
                && on_conflict == OnConflict::Branch
            {
                found = expected;
            }
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                let (thread, namespace) = (thread.id().clone(), thread.namespace().clone());
                return Err(StoreError::Conflict { thread, namespace, expected, found }.into());
            }
            let (mut writes, mut with) = (own_writes.clone(), own.clone());
            if found == head {
                keep_partials(&thread, stored.as_ref(), &mut writes, &mut with);
            }
            let has_partials = with.clears.len() > own.clears.len();
            let kept = if has_partials { Some(written(&writes, &values)?) } else { None };
            let mut named = named_head(&thread, kept.as_ref().unwrap_or(&own_wanted), found)?;
            let layout: &dyn Layout = &*named.schema;
            let prepared = prepared(&thread, layout, to_writes(&named.channels, writes, &values))?;
            match commit_on(&thread, layout, &mut named.head, prepared, &with) {
                Err(error) if error.is_conflict() && expected.is_none() && attempt < UPDATE_ATTEMPTS_MAX => {
                    attempt += 1
                }
                Err(error) => return Err(error),
                Ok(id) => {
                    retain(&thread, id, named);
                    return Ok(id);
                }
            }
        }
    }
}

/// Adds the partial messages at a head to the appends to their channels, before the messages of these. The others go
/// along to the new head.
fn keep_partials(
    thread: &Thread,
    head: Option<&StoredHead>,
    writes: &mut [(String, Vec<NewItem>)],
    with: &mut CommitExtras,
) {
    let is_message = |item: &NewItem| matches!(item, NewItem::Message(_));
    for partial in with.partials(thread, head) {
        let mut of_channel = writes.iter_mut().filter(|(name, _)| **name == *partial.content.channel);
        match of_channel.find(|(_, items)| items.iter().any(is_message)) {
            Some((_, items)) => {
                // A write that empties the list is a compaction: the kept message comes after it.
                let is_emptying = |item: &NewItem| matches!(item, NewItem::Message(message) if message.is_remove_all());
                let at = items.iter().rposition(is_emptying).map_or(0, |_| items.len());
                items.insert(at, NewItem::Message(partial.aborted()));
                with.clears.push(partial.clear());
            }
            None => with.moved.push(partial),
        }
    }
}

/// Returns the channels of a write.
fn written(
    writes: &[(String, Vec<NewItem>)],
    values: &[(String, WriteRule, Value)],
) -> Result<Vec<WrittenChannel>, StoreError> {
    let mut channels: Vec<WrittenChannel> = Vec::new();
    let mut add = |name: &String, rule: WriteRule, whole: bool| {
        match channels.iter_mut().find(|known| known.name == *name) {
            Some(known) if known.rule != rule => return Err(of_another_kind(name, known.rule, rule)),
            Some(known) => known.whole |= whole,
            None => channels.push(WrittenChannel { name: name.clone(), rule, whole }),
        }
        Ok(())
    };
    for (name, items) in writes {
        for item in items {
            match item {
                // A message with an id may be in the list; one without gets a new id, and is appended.
                NewItem::Message(message) => add(name, WriteRule::Messages, message.id.is_some())?,
                NewItem::Value(_) => add(name, WriteRule::Append, false)?,
            }
        }
    }
    values.iter().try_for_each(|(name, rule, _)| add(name, *rule, true))?;
    if channels.is_empty() {
        return Err(StoreError::Invalid { field: "write", reason: "it changes nothing".into() });
    }
    Ok(channels)
}

fn of_another_kind(channel: &str, found: WriteRule, wanted: WriteRule) -> StoreError {
    let reason = format!("channel {channel:?} holds {}, not {}", found.noun(), wanted.noun());
    StoreError::Invalid { field: "write.channel", reason }
}

/// Returns the writes for the channels of a head: messages as they are, other values by the names of their channels.
fn to_writes(
    channels: &[WrittenChannel],
    writes: Vec<(String, Vec<NewItem>)>,
    values: &[(String, WriteRule, Value)],
) -> Writes {
    let mut named = DynUpdate::new();
    let mut typed = Writes::default();
    for (name, items) in writes {
        let mut messages = Vec::new();
        for item in items {
            match item {
                NewItem::Message(message) => messages.push(message),
                // A write of a list adds its items: a list that is one item is in a list of its own.
                NewItem::Value(list @ Value::List(_)) => named = named.set(name.clone(), Value::List(vec![list])),
                NewItem::Value(value) => named = named.set(name.clone(), value),
            }
        }
        if !messages.is_empty()
            && let Some(field) = channels.iter().position(|channel| channel.name == name)
        {
            typed.push(field, messages);
        }
    }
    let named = values.iter().fold(named, |named, (name, _, value)| named.set(name.clone(), value.clone()));
    typed.extend(named.into());
    typed
}

/// Returns the decoded channels at the head: from the cache if it has them all at that checkpoint, else from the file.
fn named_head(thread: &Thread, wanted: &[WrittenChannel], newest: Option<CheckpointId>) -> Result<NamedHead, Error> {
    let cached = thread.store().take_head(thread.id(), thread.namespace(), HeadKey::Named);
    let cached = cached.and_then(|cached| cached.head.downcast::<NamedHead>().ok());
    let mut channels = match cached {
        Some(cached) if cached.head.checkpoint == newest && has_all(&cached.channels, wanted)? => return Ok(*cached),
        // A channel may have become another one since, so only those are decoded that are written.
        Some(cached) if cached.head.checkpoint == newest => cached.channels,
        _ => Vec::new(),
    };
    for one in wanted {
        match channels.iter_mut().find(|known| known.name == one.name) {
            Some(known) => known.whole |= one.whole,
            None => channels.push(one.clone()),
        }
    }
    if newest.is_none() {
        channels.iter_mut().for_each(|channel| channel.whole = true);
    }
    let schema = channels.iter().fold(DynSchema::new(), |schema, channel| match channel.rule {
        WriteRule::Last => schema.last(channel.name.as_str()),
        WriteRule::Append => schema.append(channel.name.as_str()),
        WriteRule::Messages => schema.messages(channel.name.as_str()),
        WriteRule::Map => schema.map(channel.name.as_str()),
        WriteRule::Text => schema.text(channel.name.as_str()),
    });
    let schema = Arc::new(schema.build());
    let head = match newest {
        None => DecodedHead::empty(&*schema),
        Some(checkpoint) => {
            let whole: Vec<&str> =
                channels.iter().filter(|channel| channel.whole).map(|channel| channel.name.as_str()).collect();
            let mut admit = |name: &str, found: FoundContent<'_>| fits(wanted, name, found);
            DecodedHead::read_ends(&*schema, thread.store(), &thread.point(checkpoint), &whole, &mut admit)?
        }
    };
    Ok(NamedHead { schema, channels, head })
}

/// Returns whether all channels are among those that were decoded, by the same rules and as far as they are needed.
fn has_all(known: &[WrittenChannel], wanted: &[WrittenChannel]) -> Result<bool, StoreError> {
    for one in wanted {
        match known.iter().find(|known| known.name == one.name) {
            Some(found) if found.rule != one.rule => return Err(of_another_kind(&one.name, found.rule, one.rule)),
            Some(found) if found.whole || !one.whole => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Compares the stored content of a channel with the rule by which it is written.
fn fits(wanted: &[WrittenChannel], channel: &str, found: FoundContent<'_>) -> Result<(), StoreError> {
    let Some(WrittenChannel { rule, .. }) = wanted.iter().find(|one| one.name == channel) else { return Ok(()) };
    let found = match found {
        FoundContent::Value => WriteRule::Last,
        FoundContent::NoItems if *rule == WriteRule::Last => WriteRule::Append,
        FoundContent::NoItems => return Ok(()),
        FoundContent::Item(row) => match ListShape::of_position(row.position) {
            ListShape::Map => WriteRule::Map,
            ListShape::Text => WriteRule::Text,
            ListShape::List if row.payload.index.is_some_and(|index| index.kind.is_some()) => WriteRule::Messages,
            ListShape::List => WriteRule::Append,
        },
    };
    if found == *rule { Ok(()) } else { Err(of_another_kind(channel, found, *rule)) }
}

/// Puts the decoded channels into the cache for the next write.
fn retain(thread: &Thread, checkpoint: CheckpointId, head: NamedHead) {
    thread.store().cache_head(CachedHead {
        thread: thread.id().clone(),
        namespace: thread.namespace().clone(),
        checkpoint,
        schema: HeadKey::Named,
        bytes: head.head.bytes,
        head: Box::new(head),
    });
}
