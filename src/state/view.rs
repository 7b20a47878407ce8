//! Looking at a state or at writes without their types, only when somebody does.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::base::{Map, Value};
use crate::message::Message;

use super::error::StateError;
use super::given::Given;
use super::layout::{Layout, StateRef};
use super::lists::Single;
use super::overwrite::Overwrite;
use super::writes::BoxWrite;

/// A state as it is shown: some of its channels, by name. Values are made when they are asked for; cheap to clone.
#[derive(Clone)]
pub struct StateView {
    shape: Arc<ViewShape>,
    state: StateRef,
}

/// Which channels of a state are shown, the same for many states.
#[non_exhaustive]
#[doc(hidden)]
pub struct ViewShape {
    /// The layout of the state.
    pub layout: Arc<dyn Layout>,
    /// The fields that are shown.
    pub fields: Vec<usize>,
    /// The field that stands for the whole state.
    pub whole: Option<usize>,
}

impl ViewShape {
    /// Shows fields of a layout; `whole` is the field that stands for the whole state.
    pub fn new(layout: Arc<dyn Layout>, fields: Vec<usize>, whole: Option<usize>) -> Self {
        debug_assert!(fields.iter().chain(&whole).all(|field| *field < layout.len()), "the layout has the fields");
        Self { layout, fields, whole }
    }
}

impl StateView {
    /// Creates a view of a state.
    #[doc(hidden)]
    pub fn new(shape: Arc<ViewShape>, state: StateRef) -> Self {
        Self { shape, state }
    }

    /// Returns the names of the channels that hold something and are shown.
    fn channels(&self) -> impl Iterator<Item = &str> {
        self.shape.fields.iter().map(|field| &**self.shape.layout.name(*field))
    }

    /// Returns the channels with their values.
    ///
    /// # Errors
    /// [`StateError`] if a value refuses to be serialized.
    pub fn to_map(&self) -> Result<Map, StateError> {
        let member = |field: &usize| {
            Ok((self.shape.layout.name(*field).to_string(), self.shape.layout.to_value(&self.state, *field)?))
        };
        self.shape.fields.iter().map(member).collect()
    }

    /// Returns the map of the channels, or the value itself if the whole state is one (null if there is none).
    ///
    /// # Errors
    /// As [`StateView::to_map`].
    pub fn to_value(&self) -> Result<Value, StateError> {
        match self.shape.whole {
            Some(field) if self.shape.fields.contains(&field) => self.shape.layout.to_value(&self.state, field),
            Some(_) => Ok(Value::Null),
            None => self.to_map().map(Value::Map),
        }
    }

    /// Returns the whole state, channels that are not shown included, if it is of this type.
    pub fn downcast<S: Send + Sync + 'static>(&self) -> Option<Arc<S>> {
        Arc::downcast::<S>(Arc::clone(&self.state)).ok()
    }
}

impl fmt::Debug for StateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.channels()).finish()
    }
}

/// The writes of a task as they are shown: some of the channels, by name, in the order of the writes. Values are made
/// when they are asked for; cheap to clone.
#[derive(Clone)]
pub struct WritesView {
    writer: Arc<dyn Writer>,
    /// True shows only the channels of the output schema.
    chosen: bool,
}

/// A task that wrote.
#[doc(hidden)]
pub trait Writer: Send + Sync {
    /// Returns its writes, once it has ended.
    fn written(&self) -> Option<&Written>;
    /// Returns the layout of its state.
    fn layout(&self) -> Option<&dyn Layout>;
}

/// The writes of a task.
#[doc(hidden)]
pub enum Written {
    /// Writes to channels.
    Fields {
        /// The writes.
        writes: FieldWrites,
        /// The channels that the outside sees; `None` are all.
        chosen: Option<Arc<[usize]>>,
        /// True if the state is one value, which stands for its map.
        is_whole: bool,
    },
    /// The value of a called task, and the writes that it made to the channels of its caller's graph.
    Returned {
        /// The value that the task returned.
        value: Option<Value>,
        /// The writes to channels of its caller's graph.
        wrote: Vec<(Arc<str>, Value)>,
    },
}

/// Writes to fields. Mostly there is one, which needs no memory of its own.
#[doc(hidden)]
pub enum FieldWrites {
    /// One write.
    One([(usize, BoxWrite); 1]),
    /// Any number of writes.
    Any(Vec<(usize, BoxWrite)>),
}

impl FieldWrites {
    fn as_slice(&self) -> &[(usize, BoxWrite)] {
        match self {
            Self::One(write) => write,
            Self::Any(writes) => writes,
        }
    }
}

impl FromIterator<(usize, BoxWrite)> for FieldWrites {
    fn from_iter<I: IntoIterator<Item = (usize, BoxWrite)>>(writes: I) -> Self {
        let mut writes = writes.into_iter();
        match (writes.next(), writes.next()) {
            (Some(write), None) => Self::One([write]),
            (first, second) => Self::Any(first.into_iter().chain(second).chain(writes).collect()),
        }
    }
}

impl Writer for Written {
    fn written(&self) -> Option<&Written> {
        Some(self)
    }

    fn layout(&self) -> Option<&dyn Layout> {
        None
    }
}

/// The name under which the result of a called task is shown.
const RETURN: &str = "__return__";

impl WritesView {
    /// Makes the view of the writes of a task; with `chosen`, of those to the channels of the output schema.
    #[doc(hidden)]
    pub fn new(writer: Arc<dyn Writer>, chosen: bool) -> Self {
        Self { writer, chosen }
    }

    /// Makes the view of the value that a called task returned, and of its writes.
    #[doc(hidden)]
    pub fn returned(value: Option<Value>, wrote: Vec<(Arc<str>, Value)>) -> Self {
        Self::new(Arc::new(Written::Returned { value, wrote }), false)
    }

    /// Returns the writes to channels that are shown.
    fn fields(&self) -> impl Iterator<Item = (&dyn Layout, &(usize, BoxWrite))> {
        let (writes, chosen) = match self.writer.written() {
            Some(Written::Fields { writes, chosen, .. }) => {
                (writes.as_slice(), chosen.as_deref().filter(|_| self.chosen))
            }
            _ => (&[][..], None),
        };
        let shown = writes.iter().filter(move |(field, _)| chosen.is_none_or(|chosen| chosen.contains(field)));
        let layout = self.writer.layout();
        shown.filter_map(move |write| Some((layout?, write)))
    }

    /// Returns the shown values of a call, by name.
    fn of_call(&self) -> impl Iterator<Item = (&str, &Value)> {
        let (value, wrote) = match self.writer.written() {
            Some(Written::Returned { value, wrote }) => (value.as_ref(), wrote.as_slice()),
            _ => (None, &[][..]),
        };
        wrote.iter().map(|(name, value)| (&**name, value)).chain(value.map(|value| (RETURN, value)))
    }

    /// Returns the name of the channel of each write.
    fn channels(&self) -> impl Iterator<Item = &str> {
        let fields = self.fields().map(|(layout, (field, _))| &**layout.name(*field));
        fields.chain(self.of_call().map(|(name, _)| name))
    }

    /// Returns each write: its channel and its value.
    ///
    /// # Errors
    /// [`StateError`] if a value refuses to be serialized.
    pub fn to_list(&self) -> Result<Vec<(String, Value)>, StateError> {
        let fields = self.fields().map(|(layout, (field, write))| {
            Ok((layout.name(*field).to_string(), layout.write_to_value(*field, write)?))
        });
        fields.chain(self.of_call().map(|(name, value)| Ok((name.to_owned(), value.clone())))).collect()
    }

    /// Returns the form of stream mode `updates`: null if nothing was written, a list of maps with one member each if
    /// a channel was written more than once, else a map. If the whole state is one value, it stands for its map.
    ///
    /// # Errors
    /// As [`WritesView::to_list`].
    pub fn to_update(&self) -> Result<Value, StateError> {
        let written = self.writer.written();
        if let Some(Written::Returned { value, .. }) = written {
            return Ok(value.clone().unwrap_or_default());
        }
        let mut list = self.to_list()?;
        if matches!(written, Some(Written::Fields { is_whole: true, .. })) {
            let single = list.len() <= 1;
            let mut values = list.drain(..).map(|(_, value)| value);
            return Ok(if single { values.next().unwrap_or_default() } else { Value::List(values.collect()) });
        }
        let count = list.len();
        let map: Map = list.iter().cloned().collect();
        Ok(match (count, map.len()) {
            (0, _) => Value::Null,
            (writes, channels) if writes == channels => Value::Map(map),
            _ => Value::List(list.into_iter().map(|member| Value::Map([member].into_iter().collect())).collect()),
        })
    }

    /// Returns the form of task results: a map, in which several writes to one channel are `{"$writes": [..]}`.
    ///
    /// # Errors
    /// As [`WritesView::to_list`].
    pub fn to_result(&self) -> Result<Map, StateError> {
        let mut writes: indexmap::IndexMap<String, Vec<Value>> = indexmap::IndexMap::new();
        for (channel, value) in self.to_list()? {
            writes.entry(channel).or_default().push(value);
        }
        let shown = |(channel, mut values): (String, Vec<Value>)| {
            let several = |values| Value::Map([("$writes".to_string(), Value::List(values))].into_iter().collect());
            let value = if values.len() == 1 { values.remove(0) } else { several(values) };
            (channel, value)
        };
        Ok(writes.into_iter().map(shown).collect())
    }
}

impl fmt::Debug for WritesView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.channels()).finish()
    }
}

/// Returns the messages that a write brings: of a channel of messages, or as a value or list of another one. Objects
/// that a channel made messages of are none.
#[doc(hidden)]
pub fn messages_of(write: &BoxWrite) -> Vec<Message> {
    let written = messages_in(write.as_any()).into_iter().enumerate();
    written.filter(|(at, _)| write.is_message(*at)).map(|(_, message)| message).collect()
}

/// Returns whether a write brings messages that [`messages_of`] does not return.
#[doc(hidden)]
pub fn brings_other_messages(write: &BoxWrite) -> bool {
    (0..messages_in(write.as_any()).len()).any(|at| !write.is_message(at))
}

/// Returns the messages in a value: itself, or the items of a list. A dynamic value is a message if it has all that the
/// dictionary form of one has.
pub(super) fn messages_in(value: &dyn Any) -> Vec<Message> {
    if let Some(value) = value.downcast_ref::<Value>() {
        return messages_in_value(value);
    }
    if let Some(message) = value.downcast_ref::<Message>() {
        return vec![message.clone()];
    }
    if let Some(message) = value.downcast_ref::<Option<Message>>() {
        return message.iter().cloned().collect();
    }
    if let Some(value) = value.downcast_ref::<Option<Value>>() {
        return value.iter().flat_map(messages_in_value).collect();
    }
    if let Some(messages) = value.downcast_ref::<Option<Vec<Message>>>() {
        return messages.iter().flatten().cloned().collect();
    }
    if let Some(Single(message)) = value.downcast_ref::<Single<Message>>() {
        return vec![message.clone()];
    }
    if let Some(Overwrite(messages)) = value.downcast_ref::<Overwrite<Vec<Message>>>() {
        return messages.clone();
    }
    if let Some(given) = value.downcast_ref::<Given<Message>>() {
        // The others were there before.
        return given.changed.clone();
    }
    value.downcast_ref::<Vec<Message>>().cloned().unwrap_or_default()
}

/// Returns the messages in a dynamic value, by the rules of typed states.
#[doc(hidden)]
pub fn messages_in_value(value: &Value) -> Vec<Message> {
    let items = match value {
        Value::List(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items.iter().filter(|item| Message::is_dump(item)).filter_map(|item| item.to().ok()).collect()
}
