//! A state whose schema is made at run time.

use std::borrow::Cow;
use std::sync::Arc;

use crate::base::{Map, Value};
use crate::channel::{KeyMap, List, Text};
use crate::message::Message;

use super::error::StateError;
use super::layout::{FieldKind, Layout};
use super::writes::{BoxWrite, Foreign, IntoUpdate, Writes};
use super::{Messages, State};

/// The name of the channel of a schema whose whole state is one value.
pub const ROOT: &str = "__root__";

/// The state of a graph whose schema is made at run time: named channels with dynamic values.
#[derive(Clone, Debug)]
pub struct DynState {
    pub(super) names: Arc<[Arc<str>]>,
    pub(super) cells: Vec<DynCell>,
    /// Which channels hold something.
    pub(super) set: Vec<bool>,
    /// Which of them are managed, and no channels.
    pub(super) managed: Arc<[bool]>,
}

#[derive(Clone, Debug)]
pub(super) enum DynCell {
    Value(Arc<Value>),
    Topic(Arc<Vec<Value>>),
    List(List<Value>),
    Map(KeyMap<Value>),
    Text(Text),
    Messages(Messages),
}

impl DynState {
    /// Returns whether a channel holds something: null is a value, too.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = DynSchema::new().last("a").last("b").build();
    /// let thread = Store::memory().thread("t")?.with_schema(schema);
    /// thread.update(DynUpdate::new().set("a", Value::Null))?;
    /// let state = thread.state()?;
    /// assert!(state.is_set("a") && !state.is_set("b"));
    /// assert_eq!(state.to_map().keys().collect::<Vec<_>>(), ["a"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_set(&self, channel: &str) -> bool {
        self.at(channel).is_some_and(|at| self.set[at])
    }

    /// Returns the channels that hold something, with their values. Managed values are not channels.
    pub fn to_map(&self) -> Map {
        let held = (0..self.cells.len()).filter(|at| self.set[*at] && !self.managed[*at]);
        held.map(|at| (self.names[at].to_string(), self.cells[at].to_value())).collect()
    }

    /// Returns the value of a schema whose whole state is one value, whatever the kind of its channel; null while it is
    /// empty. A list, a topic or messages are a list of their items.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::state::ROOT;
    ///
    /// # fn main() -> Result<()> {
    /// let greetings = Store::memory().thread("t")?.with_schema(DynSchema::new().append(ROOT).build());
    /// greetings.update(DynUpdate::root("hi"))?;
    /// greetings.update(DynUpdate::root("hello"))?;
    /// assert_eq!(*greetings.state()?.root(), Value::from(vec![Value::from("hi"), Value::from("hello")]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn root(&self) -> Cow<'_, Value> {
        self.value(ROOT)
    }

    /// Returns the value of a channel of any kind; null if it is empty or unknown. A list, a topic or messages are a
    /// list of their items, which is made anew for each call: [`list`](Self::list), [`topic`](Self::topic) and
    /// [`messages`](Self::messages) return them as they are held.
    pub fn value(&self, channel: &str) -> Cow<'_, Value> {
        match self.at(channel).filter(|at| self.set[*at]).map(|at| &self.cells[at]) {
            Some(DynCell::Value(value)) => Cow::Borrowed(value),
            Some(cell) => Cow::Owned(cell.to_value()),
            None => Cow::Owned(Value::Null),
        }
    }

    /// Returns the value of a channel that holds one value; null if it is empty or unknown, and for a list, a topic or
    /// messages, whose items [`value`](Self::value) returns.
    pub fn get(&self, channel: &str) -> &Value {
        match self.cell(channel) {
            Some(DynCell::Value(value)) => value,
            _ => &Value::Null,
        }
    }

    /// Returns the messages of a message channel.
    pub fn messages(&self, channel: &str) -> Option<&Messages> {
        match self.cell(channel)? {
            DynCell::Messages(messages) => Some(messages),
            _ => None,
        }
    }

    /// Returns the items of a list channel.
    pub fn list(&self, channel: &str) -> Option<&List<Value>> {
        match self.cell(channel)? {
            DynCell::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the entries of a map channel.
    pub fn map(&self, channel: &str) -> Option<&KeyMap<Value>> {
        match self.cell(channel)? {
            DynCell::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the text of a text channel.
    pub fn text(&self, channel: &str) -> Option<&Text> {
        match self.cell(channel)? {
            DynCell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the values of a topic channel.
    pub fn topic(&self, channel: &str) -> Option<&[Value]> {
        match self.cell(channel)? {
            DynCell::Topic(values) => Some(values),
            _ => None,
        }
    }

    fn at(&self, channel: &str) -> Option<usize> {
        self.names.iter().position(|name| &**name == channel)
    }

    fn cell(&self, channel: &str) -> Option<&DynCell> {
        self.at(channel).map(|at| &self.cells[at])
    }
}

impl DynCell {
    fn to_value(&self) -> Value {
        match self {
            Self::Value(value) => Value::clone(value),
            Self::Topic(values) => Value::List(values.to_vec()),
            Self::List(values) => Value::List(values.iter().cloned().collect()),
            Self::Map(map) => Value::Map(map.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()),
            Self::Text(text) => Value::from(text.to_string()),
            Self::Messages(all) => Value::List(all.iter().map(|message| Value::Map(message.to_map())).collect()),
        }
    }
}

/// A change to a [`DynState`]: values by channel name, in order.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// let change = DynUpdate::new().set("topic", "boats").set("n", 3);
/// # let _ = change;
/// ```
#[derive(Clone, Debug, Default)]
pub struct DynUpdate {
    pub(crate) values: Vec<(String, Value)>,
    lenient: bool,
}

impl DynUpdate {
    /// Starts an empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a change of a schema whose whole state is one value.
    pub fn root(value: impl Into<Value>) -> Self {
        Self::new().set(ROOT, value)
    }

    /// Replaces the value of a channel with a reducer, a list or messages, in place of folding into it (`Overwrite`).
    /// It hides every other write to the channel in its superstep.
    pub fn overwrite(self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(channel, super::overwrite::to_value(value.into()))
    }

    /// Drops the values for channels that the state does not have, as LangGraph does, so that one change fits
    /// graphs with different channels. Default: such a channel is an error, [`StateError::UnknownChannel`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("t")?.with_schema(DynSchema::new().last("n").build());
    /// let change = DynUpdate::new().set("n", 1).set("m", 2);
    /// let error = thread.update(change.clone()).unwrap_err();
    /// assert!(error.to_string().contains("no channel \"m\""), "{error}");
    /// thread.update(change.lenient())?;
    /// assert_eq!(thread.state()?.get("n"), &Value::from(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Writes a channel. A list, message or topic channel takes a list of items, or one item. Of two writes to one
    /// channel both count, in this order. A map `{"__overwrite__": value}` is an [overwrite](DynUpdate::overwrite) for
    /// the channels that know it.
    pub fn set(mut self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.push((channel.into(), value.into()));
        self
    }

    /// Puts a value at a key of a map channel. In a map that is written with [`set`](Self::set) each key is put. The
    /// key `__overwrite__` can be put together with other keys only: alone it is an [overwrite](DynUpdate::overwrite).
    pub fn put(self, channel: impl Into<String>, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(channel, Value::Map([(key.into(), value.into())].into_iter().collect()))
    }

    /// Removes a key of a map channel. It need not be there.
    pub fn remove(self, channel: impl Into<String>, key: impl Into<String>) -> Self {
        self.put(channel, key, super::map_items::removed())
    }

    /// Writes messages to a message channel.
    pub fn messages(self, channel: impl Into<String>, messages: impl IntoIterator<Item = Message>) -> Self {
        self.set(channel, Value::List(messages.into_iter().map(|message| message.to_map().into()).collect()))
    }
}

impl From<Map> for DynUpdate {
    fn from(map: Map) -> Self {
        map.into_iter().collect()
    }
}

/// Channels and the values written to them: `DynUpdate::from([("n", 1)])`.
impl<N: Into<String>, V: Into<Value>, const L: usize> From<[(N, V); L]> for DynUpdate {
    fn from(writes: [(N, V); L]) -> Self {
        writes.into_iter().collect()
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for DynUpdate {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(writes: I) -> Self {
        let values = writes.into_iter().map(|(channel, value)| (channel.into(), value.into())).collect();
        Self { values, lenient: false }
    }
}

/// Values that are resolved to fields where the schema is known.
impl From<DynUpdate> for Writes {
    fn from(update: DynUpdate) -> Self {
        let mut writes = Self::default();
        for (channel, value) in update.values {
            writes.push_box(usize::MAX, BoxWrite::new(NamedWrite { channel, value, optional: update.lenient }));
        }
        writes
    }
}

impl From<Map> for Writes {
    fn from(update: Map) -> Self {
        DynUpdate::from(update).into()
    }
}

impl<S> IntoUpdate<S> for DynUpdate {
    fn into_writes(self) -> Writes {
        self.into()
    }
}

impl<S: State> IntoUpdate<S> for Map {
    fn into_writes(self) -> Writes {
        self.into()
    }
}

impl IntoUpdate<DynState> for Map {
    fn into_writes(self) -> Writes {
        self.into()
    }
}

/// Returns the writes of values for the channels that a graph has; the others are dropped.
#[doc(hidden)]
pub fn shared_writes(values: Map) -> Writes {
    returned_writes(values.into_iter().map(|(channel, value)| (channel, Returned::Value(value))))
}

/// The value that a subgraph returns for a channel.
#[doc(hidden)]
pub enum Returned {
    /// A plain value.
    Value(Value),
    /// A list that was given to the subgraph, for the channel that gave it.
    List(BoxWrite),
}

/// Returns the writes of the output of a subgraph: the channels that both graphs have count.
#[doc(hidden)]
pub fn returned_writes(returned: impl IntoIterator<Item = (String, Returned)>) -> Writes {
    let mut writes = Writes::default();
    for (channel, returned) in returned {
        let write = match returned {
            Returned::Value(value) => BoxWrite::new(NamedWrite { channel, value, optional: true }),
            Returned::List(write) => BoxWrite::new(NamedBox { channel: channel.into(), write }),
        };
        writes.push_box(usize::MAX, write);
    }
    writes
}

/// Returns the write of one message to a channel; it is dropped if the state does not have the channel.
#[doc(hidden)]
pub fn message_write(channel: &str, message: &Message) -> Writes {
    shared_writes([(channel.to_owned(), message.to_map().into())].into_iter().collect())
}

/// A write whose field is known by name only.
#[derive(Clone)]
struct NamedWrite {
    channel: String,
    value: Value,
    /// True drops it if the state does not have the channel.
    optional: bool,
}

/// A write of its own type, whose field is known by name only.
#[derive(Clone)]
struct NamedBox {
    channel: Cow<'static, str>,
    write: BoxWrite,
}

/// Returns writes of another state by the names of its channels, `names` in the order of its fields: they go to the
/// channels of the same names, as those of a [`DynUpdate`].
#[doc(hidden)]
pub fn named_writes(writes: Writes, names: &[&'static str]) -> Writes {
    let mut named = Writes::default();
    for (field, write) in writes {
        match names.get(field) {
            Some(channel) => named.push_box(usize::MAX, BoxWrite::new(NamedBox { channel: (*channel).into(), write })),
            None => named.push_box(field, write),
        }
    }
    named
}

/// Gives every write the number of its field.
///
/// # Errors
/// [`StateError::UnknownChannel`] if the state has no channel of a write, unless the write is optional; another
/// [`StateError`] if its value does not fit the field.
#[doc(hidden)]
pub fn resolve(layout: &dyn Layout, writes: Writes) -> Result<Writes, StateError> {
    let writes = writes.for_state(layout.state_type());
    if writes.fields().all(|field| field < layout.len()) {
        return Ok(writes.without_owner());
    }
    let mut resolved = Writes::default();
    for (field, write) in writes {
        if field != usize::MAX {
            resolved.push_box(field, write);
        } else if let Some(foreign) = write.get::<Foreign>() {
            let (field, write) = at_home(layout, foreign)?;
            resolved.push_box(field, write);
        } else if let Some(named) = write.get::<NamedBox>() {
            resolved.push_box(field_of(layout, &named.channel)?, named.write.clone());
        } else if let Some(named) = write.take::<NamedWrite>() {
            let field = match field_of(layout, &named.channel) {
                Err(_) if named.optional => continue,
                field => field?,
            };
            resolved.push_box(field, layout.write_from_value(field, named.value)?);
        }
    }
    debug_assert!(resolved.fields().all(|field| field < layout.len()), "each write has a field of the layout");
    Ok(resolved)
}

/// Returns a write that was made for another state, as the channel of the same name takes it.
fn at_home(layout: &dyn Layout, foreign: &Foreign) -> Result<(usize, BoxWrite), StateError> {
    let source = (foreign.owner.layout)();
    let field = field_of(layout, source.name(foreign.field))?;
    if layout.takes(field, &foreign.write) {
        return Ok((field, foreign.write.clone()));
    }
    let value = source.write_to_value(foreign.field, &foreign.write)?;
    Ok((field, layout.write_from_value(field, value)?))
}

/// Returns the number of a channel's field.
///
/// # Errors
/// [`StateError::UnknownChannel`] if there is none, or if the field is managed.
#[doc(hidden)]
pub fn field_of(layout: &dyn Layout, channel: &str) -> Result<usize, StateError> {
    let channels = || (0..layout.len()).filter(|field| layout.kind(*field) != FieldKind::Managed);
    channels().find(|field| &**layout.name(*field) == channel).ok_or_else(|| StateError::UnknownChannel {
        channel: channel.to_owned(),
        known: channels().map(|field| Arc::clone(layout.name(field))).collect(),
    })
}
