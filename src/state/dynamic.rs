//! A state whose schema is made at run time.

use std::sync::Arc;

use crate::base::{Map, Value};
use crate::channel::List;
use crate::message::Message;

use super::Messages;
use super::field::Field;
use super::layout::{Layout, StateError};
use super::schema::Schema;
use super::writes::{BoxWrite, IntoUpdate, Writes};

/// The state of a graph whose schema is made at run time: named channels with dynamic values.
#[derive(Clone, Debug)]
pub struct DynState {
    names: Arc<[Arc<str>]>,
    cells: Vec<DynCell>,
}

#[derive(Clone, Debug)]
enum DynCell {
    Value(Arc<Value>),
    Topic(Arc<Vec<Value>>),
    List(List<Value>),
    Messages(Messages),
}

impl DynState {
    /// Returns the value of a channel; null if it is empty, unknown, or a list.
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

    /// Returns the values of a topic channel.
    pub fn topic(&self, channel: &str) -> Option<&[Value]> {
        match self.cell(channel)? {
            DynCell::Topic(values) => Some(values),
            _ => None,
        }
    }

    fn cell(&self, channel: &str) -> Option<&DynCell> {
        self.names.iter().position(|name| &**name == channel).map(|at| &self.cells[at])
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
}

impl DynUpdate {
    /// Starts an empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a channel. A list or message channel takes a list of items, or one item.
    pub fn set(mut self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.push((channel.into(), value.into()));
        self
    }

    /// Writes messages to a message channel.
    pub fn messages(self, channel: impl Into<String>, messages: impl IntoIterator<Item = Message>) -> Self {
        // A message is plain data: its serialization cannot fail.
        let items = messages.into_iter().filter_map(|message| Value::from_serialize(&message).ok()).collect();
        self.set(channel, Value::List(items))
    }
}

impl From<Map> for DynUpdate {
    fn from(map: Map) -> Self {
        Self { values: map.into_iter().collect() }
    }
}

/// Values that are resolved to fields where the schema is known.
impl IntoUpdate<DynState> for DynUpdate {
    fn into_writes(self) -> Writes {
        let mut writes = Writes::default();
        for (channel, value) in self.values {
            writes.push_box(usize::MAX, BoxWrite::new(NamedWrite { channel, value, optional: false }));
        }
        writes
    }
}

/// Returns the writes of what a graph inside another one returns: the channels that both have count.
pub(crate) fn shared_writes(values: Map) -> Writes {
    let mut writes = Writes::default();
    for (channel, value) in values {
        writes.push_box(usize::MAX, BoxWrite::new(NamedWrite { channel, value, optional: true }));
    }
    writes
}

/// A write whose field is known by name only.
#[derive(Clone)]
struct NamedWrite {
    channel: String,
    value: Value,
    /// Whether it is dropped if there is no such channel.
    optional: bool,
}

/// Gives every write the number of its field.
pub(crate) fn resolve(layout: &dyn Layout, writes: Writes) -> Result<Writes, StateError> {
    let mut resolved = Writes::default();
    for (field, write) in writes {
        if field != usize::MAX {
            resolved.push_box(field, write);
        } else if let Some(named) = write.take::<NamedWrite>() {
            let field = match field_of(layout, &named.channel) {
                Err(_) if named.optional => continue,
                field => field?,
            };
            resolved.push_box(field, layout.write_from_value(field, named.value)?);
        }
    }
    Ok(resolved)
}

/// Returns the number of a channel's field.
pub(crate) fn field_of(layout: &dyn Layout, channel: &str) -> Result<usize, StateError> {
    (0..layout.len()).find(|field| &**layout.name(*field) == channel).ok_or_else(|| StateError::UnknownChannel {
        channel: channel.to_owned(),
        known: (0..layout.len()).map(|field| Arc::clone(layout.name(field))).collect(),
    })
}

/// Makes a schema at run time.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// let schema = DynSchema::new()
///     .messages("messages")
///     .last("topic")
///     .reduce("total", |old, new| Ok(Value::from(old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0))))
///     .build();
/// assert_eq!(schema.fields().len(), 3);
/// ```
#[derive(Default)]
pub struct DynSchema {
    fields: Vec<Field<DynState>>,
    cells: Vec<DynCell>,
}

/// The two ways into a cell of one kind.
macro_rules! cell_access {
    ($kind:ident, $type:ty, $get:ident, $get_mut:ident, |$cell:ident| $shared:expr, |$mut_cell:ident| $unique:expr) => {
        fn $get(state: &DynState, at: usize) -> &$type {
            match &state.cells[at] {
                DynCell::$kind($cell) => $shared,
                _ => unreachable!("the schema made cell {at} of another kind"),
            }
        }

        fn $get_mut(state: &mut DynState, at: usize) -> &mut $type {
            match &mut state.cells[at] {
                DynCell::$kind($mut_cell) => $unique,
                _ => unreachable!("the schema made cell {at} of another kind"),
            }
        }
    };
}

cell_access!(Value, Value, value, value_mut, |cell| cell, |cell| Arc::make_mut(cell));
cell_access!(Topic, Vec<Value>, topic, topic_mut, |cell| cell, |cell| Arc::make_mut(cell));
cell_access!(List, List<Value>, list, list_mut, |cell| cell, |cell| cell);
cell_access!(Messages, Messages, messages, messages_mut, |cell| cell, |cell| cell);

impl DynSchema {
    /// Starts a schema without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a channel that holds the last value written to it (`LastValue`).
    pub fn last(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::Value(Arc::default()), |at| {
            Field::last(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that is emptied by a superstep which does not write it (`AnyValue`).
    pub fn any(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::Value(Arc::default()), |at| {
            Field::any(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that holds a value for one superstep (`EphemeralValue`).
    pub fn ephemeral(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::Value(Arc::default()), |at| {
            Field::ephemeral(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that lasts for one run and is never stored (`UntrackedValue`).
    pub fn untracked(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::Value(Arc::default()), |at| {
            Field::untracked(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel into which each write is folded (`BinaryOperatorAggregate`), starting from null.
    pub fn reduce(
        self,
        name: impl Into<Arc<str>>,
        reducer: impl Fn(Value, Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(DynCell::Value(Arc::default()), |at| {
            Field::try_reduce(name, reducer, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that collects the values written in a superstep, or in all of them (`Topic`).
    pub fn topic(self, name: impl Into<Arc<str>>, accumulate: bool) -> Self {
        self.add(DynCell::Topic(Arc::default()), |at| {
            Field::topic(name, accumulate, move |s| topic(s, at), move |s| topic_mut(s, at))
        })
    }

    /// Adds a list channel to which each write appends its items. Only the new items are stored.
    pub fn append(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::List(List::new()), |at| Field::append(name, move |s| list(s, at), move |s| list_mut(s, at)))
    }

    /// Adds a channel of messages that are merged by their ids (`add_messages`).
    pub fn messages(self, name: impl Into<Arc<str>>) -> Self {
        self.add(DynCell::Messages(List::new()), |at| {
            Field::messages(name, move |s| messages(s, at), move |s| messages_mut(s, at))
        })
    }

    fn add(mut self, cell: DynCell, field: impl FnOnce(usize) -> Field<DynState>) -> Self {
        self.fields.push(field(self.cells.len()));
        self.cells.push(cell);
        self
    }

    /// Returns the schema.
    pub fn build(self) -> Schema<DynState> {
        let names = self.fields.iter().map(|field| Arc::clone(field.name())).collect();
        Schema::new(self.fields, DynState { names, cells: self.cells })
    }
}
