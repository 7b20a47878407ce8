//! Making a schema at run time.

use std::sync::Arc;

use crate::base::Value;
use crate::channel::{KeyMap, List, Text};

use super::Messages;
use super::dynamic::{DynCell, DynState};
use super::field::Field;
use super::layout::FieldKind;
use super::schema::{Presence, Schema};

/// Makes a schema at run time.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// let schema = DynSchema::new()
///     .messages("messages")
///     .last("topic")
///     .reduce_from("total", 0, |old, new| Ok(Value::from(old.as_int().unwrap_or(0) + new.as_int().unwrap_or(0))))
///     .build();
/// assert_eq!(schema.fields().len(), 3);
/// ```
#[derive(Default)]
pub struct DynSchema {
    parts: Vec<DynChannel>,
}

/// A channel before it has its number.
struct DynChannel {
    name: Arc<str>,
    cell: DynCell,
    field: Box<dyn FnOnce(usize) -> Field<DynState>>,
    private: bool,
    /// True if the schema may have the channel already.
    merged: bool,
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
cell_access!(Map, KeyMap<Value>, map, map_mut, |cell| cell, |cell| cell);
cell_access!(Text, Text, text, text_mut, |cell| cell, |cell| cell);
cell_access!(Messages, Messages, messages, messages_mut, |cell| cell, |cell| cell);

impl DynSchema {
    /// Starts a schema without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a channel that holds the last value written to it (`LastValue`).
    pub fn last(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            Field::last(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that is emptied by a superstep which does not write it (`AnyValue`).
    pub fn any(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            Field::any(name, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that holds a value for one superstep (`EphemeralValue`). With `guard`, two writes in one
    /// superstep are an error; without, the last one counts.
    pub fn ephemeral(self, name: impl Into<Arc<str>>, guard: bool) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            Field::ephemeral(name, guard, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that lasts for one run and is never stored (`UntrackedValue`). `guard` as for
    /// [`DynSchema::ephemeral`].
    pub fn untracked(self, name: impl Into<Arc<str>>, guard: bool) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            Field::untracked(name, guard, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel into which each write is folded (`BinaryOperatorAggregate`). It starts empty: the first write
    /// becomes its value as it is. The value is stored whole at every change: see [`Field::reduce`] for the channels
    /// that a value which grows belongs in.
    ///
    /// # Errors
    /// An error of the reducer ends the update or the superstep that called it, as
    /// [`ChannelError::Reducer`](crate::channel::ChannelError::Reducer).
    pub fn reduce(
        self,
        name: impl Into<Arc<str>>,
        reducer: impl Fn(Value, Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            Field::try_reduce_first(name, reducer, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel into which each write is folded, starting from a value that it holds before the first write.
    ///
    /// # Errors
    /// As [`DynSchema::reduce`].
    pub fn reduce_from(
        self,
        name: impl Into<Arc<str>>,
        initial: impl Into<Value>,
        reducer: impl Fn(Value, Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(name, DynCell::Value(Arc::new(initial.into())), |name, at| {
            Field::try_reduce(name, reducer, move |s| value(s, at), move |s| value_mut(s, at))
        })
    }

    /// Adds a channel that collects the values written in a superstep, or in all of them (`Topic`).
    pub fn topic(self, name: impl Into<Arc<str>>, accumulate: bool) -> Self {
        self.add(name, DynCell::Topic(Arc::default()), move |name, at| {
            Field::dyn_topic(name, accumulate, move |s| topic(s, at), move |s| topic_mut(s, at))
        })
    }

    /// Adds a list channel to which each write appends its items. Only the new items are stored.
    pub fn append(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::List(List::new()), |name, at| {
            Field::append(name, move |s| list(s, at), move |s| list_mut(s, at))
        })
    }

    /// Adds a map channel. A write is a map: its keys are put, and those with the value `{"__remove__": true}` are
    /// removed ([`DynUpdate::put`](super::DynUpdate::put), [`DynUpdate::remove`](super::DynUpdate::remove)). Only these
    /// are stored.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let agent = Store::memory().thread("agent")?.with_schema(DynSchema::new().map("files").text("log").build());
    /// agent.update(DynUpdate::new().put("files", "a.txt", "one").put("files", "b.txt", 2).set("log", "two files; "))?;
    /// agent.update(DynUpdate::new().remove("files", "a.txt").set("log", "one file"))?;
    /// let state = agent.state()?;
    /// let files = state.map("files").expect("a map channel");
    /// assert_eq!((files.len(), files.get("b.txt")), (1, Some(&Value::from(2))));
    /// assert_eq!(state.text("log").expect("a text channel").to_string(), "two files; one file");
    /// # Ok(())
    /// # }
    /// ```
    pub fn map(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Map(KeyMap::new()), |name, at| {
            Field::map(name, move |s| map(s, at), move |s| map_mut(s, at))
        })
    }

    /// Adds a text channel to which each write appends a text, or a list of texts. Only these are stored.
    pub fn text(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Text(Text::new()), |name, at| {
            Field::text(name, move |s| text(s, at), move |s| text_mut(s, at))
        })
    }

    /// Adds a channel of messages that are merged by their ids (`add_messages`).
    pub fn messages(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Messages(List::new()), move |name, at| {
            Field::messages(name, move |s| messages(s, at), move |s| messages_mut(s, at))
        })
    }

    /// Adds a channel of messages that are merged in a forgiving way; see [`Field::delta_messages`].
    ///
    /// # Example: what is removed and added again moves to the end
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let schema = DynSchema::new().delta_messages("messages").build();
    /// let chat = Store::memory().thread("chat")?.with_schema(schema);
    /// chat.update(DynUpdate::new().messages("messages", ["1", "2"].map(|id| Message::human(id).with_id(id))))?;
    /// let again = [Message::remove("1"), Message::human("again").with_id("1"), Message::remove("none")];
    /// chat.update(DynUpdate::new().messages("messages", again))?;
    /// let state = chat.state()?;
    /// let messages = state.messages("messages").expect("a channel of messages");
    /// assert_eq!(messages.iter().map(|m| m.text()).collect::<Vec<_>>(), ["2", "again"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delta_messages(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Messages(List::new()), move |name, at| {
            Field::delta_messages(name, move |s| messages(s, at), move |s| messages_mut(s, at))
        })
    }

    /// Adds a member that tells a node how many supersteps are left before the recursion limit (`RemainingSteps`).
    pub fn remaining_steps(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            let set = move |s: &mut DynState, left: i64| *value_mut(s, at) = left.into();
            Field::remaining_steps(name, set, move |s| value(s, at).as_int().unwrap_or(0))
        })
    }

    /// Adds a member that tells a node whether its superstep is the last one before the recursion limit
    /// (`IsLastStep`).
    pub fn is_last_step(self, name: impl Into<Arc<str>>) -> Self {
        self.add(name, DynCell::Value(Arc::default()), move |name, at| {
            let set = move |s: &mut DynState, last: bool| *value_mut(s, at) = last.into();
            Field::is_last_step(name, set, move |s| value(s, at).as_bool().unwrap_or(false))
        })
    }

    /// Makes the channel that was added last private: it is left out of the input and the output of a graph, and only
    /// nodes whose input names it see it. Each node may write it.
    pub fn private(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.private = true;
        }
        self
    }

    /// Adds the channels of another schema, as those that only some nodes read. A channel that both have must be the
    /// same in both, or a plain last value in the other one; else the graph does not compile. Two reducers are the same
    /// if they are one function, or one closure: not two closures with the same text.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// let schema = DynSchema::new().append("log").last("topic");
    /// let same = schema.merge(DynSchema::new().last("log").last("draft").private());
    /// let schema = same.build();
    /// assert_eq!(schema.fields().len(), 3);
    ///
    /// let twice = DynSchema::new().last("log").merge(DynSchema::new().append("log")).build();
    /// assert_eq!(&*twice.conflicts()[0], "log");
    /// ```
    pub fn merge(mut self, other: DynSchema) -> Self {
        self.parts.extend(other.parts.into_iter().map(|part| DynChannel { merged: true, ..part }));
        self
    }

    fn add(
        mut self,
        name: impl Into<Arc<str>>,
        cell: DynCell,
        field: impl FnOnce(Arc<str>, usize) -> Field<DynState> + 'static,
    ) -> Self {
        let name: Arc<str> = name.into();
        let own = Arc::clone(&name);
        let field = Box::new(move |at| field(own, at));
        self.parts.push(DynChannel { name, cell, field, private: false, merged: false });
        self
    }

    /// Returns the schema.
    pub fn build(self) -> Schema<DynState> {
        let (mut fields, mut cells, mut conflicts) = (Vec::<Field<DynState>>::new(), Vec::new(), Vec::new());
        for part in self.parts {
            let known = fields.iter().find(|field| *field.name() == part.name).filter(|_| part.merged);
            let field = (part.field)(cells.len());
            match known {
                Some(known) if field.rule().is_last() || field.rule() == known.rule() => {}
                Some(_) => conflicts.push(part.name),
                None => {
                    fields.push(if part.private { field.private() } else { field });
                    cells.push(part.cell);
                }
            }
        }
        let names = fields.iter().map(|field| Arc::clone(field.name())).collect();
        let set = fields.iter().map(Field::starts_present).collect();
        let managed = fields.iter().map(|field| field.kind() == FieldKind::Managed).collect();
        let mut schema = Schema::new(fields, DynState { names, cells, set, managed });
        schema.presence = Some(Presence { get: |state, at| state.set[at], set: |state, at, set| state.set[at] = set });
        schema.conflicts = conflicts;
        schema
    }
}
