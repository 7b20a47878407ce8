//! One field of a state: its name, where it lies, and the rule of its channel.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::decode_bytes;
use crate::base::{CodecError, Encoded, IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{
    AnyValue, Append, Channel, ChannelEffect, ChannelError, Ephemeral, KeyMap, LastValue, List, MergeEntries, Reduce,
    Text, Topic, Untracked,
};
use crate::message::Message;

use super::error::StateError;
use super::given::ListRule;
use super::layout::{FieldKind, StateRef};
use super::lists::{ListField, PlainItems};
use super::managed::ManagedField;
use super::map_items::{EntryItems, TextItems};
use super::message_lists::{MergeDelta, MergeMessages, MessageItems};
use super::place::{ManagedPlace, Place, ValuePlace, held, held_mut};
use super::reduce::ReduceField;
use super::schema::cell;
use super::view::messages_in;
use super::writes::BoxWrite;

/// The types that a field can hold.
pub(super) trait FieldValue: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static> FieldValue for T {}

/// The types that can be written to a field.
pub(super) trait Writable: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Writable for T {}

/// A field of a state `S`, with its channel.
pub struct Field<S> {
    name: Arc<str>,
    kind: FieldKind,
    starts_present: bool,
    may_idle: bool,
    private: bool,
    rule: Rule,
    place: Box<dyn Place<S>>,
    ops: Box<dyn FieldOps>,
}

/// The rule of a channel: two channels of one name are the same if their rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    kind: RuleKind,
    /// The type of the value, or of the items.
    value: TypeId,
    /// The type of the reducer: every function and every closure has one of its own.
    reducer: Option<TypeId>,
}

/// The kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleKind {
    Last,
    Any,
    Ephemeral { guard: bool },
    Untracked { guard: bool },
    Reduce,
    Topic { accumulate: bool },
    Append,
    Map,
    Text,
    Messages,
    DeltaMessages,
    RemainingSteps,
    IsLastStep,
}

impl Rule {
    fn new<T: 'static>(kind: RuleKind) -> Self {
        Self { kind, value: TypeId::of::<T>(), reducer: None }
    }

    /// Returns whether it is that of a plain last value.
    pub(super) fn is_last(&self) -> bool {
        self.kind == RuleKind::Last
    }
}

/// The operations on the value of a field: compiled once for each type of value and channel, not for each field. The
/// values they are given are those of a [`Place`].
pub(super) trait FieldOps: Send + Sync {
    fn prepare(&self, _write: &mut BoxWrite, _ids: &mut IdSource) {}
    /// Returns whether a write is of a type that the field takes.
    fn takes(&self, write: &BoxWrite) -> bool;
    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError>;
    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError>;
    fn write_from_value(&self, name: &Arc<str>, value: Value) -> Result<BoxWrite, StateError>;
    fn write_to_value(&self, name: &Arc<str>, write: &BoxWrite) -> Result<Value, StateError>;
    fn update(
        &self,
        name: &Arc<str>,
        value: &mut dyn Any,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError>;
    fn idle(&self, value: &mut dyn Any, present: &mut bool) -> ChannelEffect;
    fn reset(&self, value: &mut dyn Any);
    fn encode(&self, name: &Arc<str>, value: &dyn Any) -> Result<Payload, StateError>;
    fn load(&self, name: &Arc<str>, value: &mut dyn Any, stored: PayloadRef<'_>) -> Result<(), StateError>;
    fn to_value(&self, name: &Arc<str>, value: &dyn Any) -> Result<Value, StateError>;
    /// Sets the value as it is, without the rule of the channel.
    fn set(&self, name: &Arc<str>, value: &mut dyn Any, new: Value) -> Result<(), StateError>;
    /// Takes the value over from another state.
    fn copy(&self, from: &dyn Any, to: &mut dyn Any);
    /// Returns a clone of the list, if it is one.
    fn list(&self, _value: &dyn Any) -> Option<StateRef> {
        None
    }
    /// Returns whether it holds a message with this id.
    fn holds_message(&self, _value: &dyn Any, _id: &str) -> bool {
        false
    }
    /// Returns the ids of the messages that it holds; `None` if it holds a list of more than `most` messages.
    fn message_ids(&self, _value: &dyn Any, _most: usize) -> Option<Vec<String>> {
        Some(Vec::new())
    }
    /// Returns the name of the type of the field.
    fn type_name(&self) -> &'static str;
    /// Returns what can be done with it besides, if it is a list.
    fn lists(&self) -> Option<&dyn ListOps> {
        None
    }
}

/// The operations on a list field; [`Layout`](super::layout::Layout) documents them under the same names.
pub(super) trait ListOps {
    fn rule(&self) -> ListRule;
    fn give(&self, value: &dyn Any, of: Option<ListRef>) -> BoxWrite;
    fn give_back(&self, value: &dyn Any, given: &BoxWrite) -> Option<BoxWrite>;
    fn plain(&self, write: &BoxWrite) -> Option<BoxWrite>;
    fn decode_delta(
        &self,
        name: &Arc<str>,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError>;
    fn encode_item(&self, name: &Arc<str>, value: &dyn Any, position: u64) -> Result<Payload, StateError>;
    fn items(&self) -> Box<dyn StoredItems>;
    fn positions(&self, value: &dyn Any) -> Vec<u64>;
}

/// The items of a list field that were decoded so far.
pub(super) trait StoredItems {
    /// Decodes an item. An item that does not fit may be given again, migrated.
    fn add(&mut self, name: &Arc<str>, position: u64, stored: PayloadRef<'_>) -> Result<(), StateError>;
    /// Adds the items to the list.
    fn finish(self: Box<Self>, value: &mut dyn Any);
}

impl<S: Clone + Send + Sync + 'static> Field<S> {
    /// Makes a field that holds the last value written to it (`LastValue`).
    pub fn last<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self::value(name, RuleKind::Last, LastValue, ValuePlace::new(get, get_mut))
    }

    /// Makes a field that is emptied by a superstep which does not write it (`AnyValue`).
    pub fn any<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self { may_idle: true, ..Self::value(name, RuleKind::Any, AnyValue, ValuePlace::new(get, get_mut)) }
    }

    /// Makes a field that holds a value for one superstep (`EphemeralValue`). With `guard`, two writes in one superstep
    /// are an error; without, the last one counts.
    pub fn ephemeral<T>(
        name: impl Into<Arc<str>>,
        guard: bool,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let kind = RuleKind::Ephemeral { guard };
        Self { may_idle: true, ..Self::value(name, kind, Ephemeral::new(guard), ValuePlace::new(get, get_mut)) }
    }

    /// Makes a field that lasts for one run and is never stored (`UntrackedValue`). `guard` as for
    /// [`Field::ephemeral`].
    pub fn untracked<T>(
        name: impl Into<Arc<str>>,
        guard: bool,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let kind = RuleKind::Untracked { guard };
        Self {
            kind: FieldKind::Untracked,
            ..Self::value(name, kind, Untracked::new(guard), ValuePlace::new(get, get_mut))
        }
    }

    /// Makes a field into which each write is folded (`BinaryOperatorAggregate`), starting from the value it has in the
    /// state before the first write.
    ///
    /// Its result is stored whole at every change, because a reducer is any function: a list of 3,000 items of 68 bytes
    /// writes 206 kB in each superstep that adds one. A value that grows belongs in a channel that stores its changes:
    /// [`append`](Self::append) for a list, [`messages`](Self::messages), [`map`](Self::map), [`text`](Self::text). A
    /// thread that began with a reducer goes on with such a channel: its first write stores the value that is there
    /// item by item.
    pub fn reduce<T, W, F>(
        name: impl Into<Arc<str>>,
        reducer: F,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn(T, W) -> T + Send + Sync + 'static,
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
        W: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let rule = Reduce::new(move |old, write| Ok(reducer(old, write)));
        Self::folded(name, TypeId::of::<F>(), rule, ValuePlace::new(get, get_mut))
    }

    /// Makes a field into which each write is folded by a function that may refuse it, else as [`Field::reduce`].
    ///
    /// # Errors
    /// An error of the reducer ends the update or the superstep that called it, as
    /// [`ChannelError::Reducer`](crate::channel::ChannelError::Reducer).
    pub(crate) fn try_reduce<T, W, F>(
        name: impl Into<Arc<str>>,
        reducer: F,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn(T, W) -> Result<T, String> + Send + Sync + 'static,
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
        W: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self::folded(name, TypeId::of::<F>(), Reduce::new(reducer), ValuePlace::new(get, get_mut))
    }

    /// Makes a field with a reducer that starts empty: the first write becomes its value as it is.
    pub fn reduce_first<T, F>(
        name: impl Into<Arc<str>>,
        reducer: F,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn(T, T) -> T + Send + Sync + 'static,
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let rule = Reduce::from_first(move |old, write| Ok(reducer(old, write)));
        Self { starts_present: false, ..Self::folded(name, TypeId::of::<F>(), rule, ValuePlace::new(get, get_mut)) }
    }

    /// Makes a field with a reducer that starts empty and may refuse a write, else as [`Field::reduce_first`].
    ///
    /// # Errors
    /// As [`Field::try_reduce`].
    pub(crate) fn try_reduce_first<T, F>(
        name: impl Into<Arc<str>>,
        reducer: F,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn(T, T) -> Result<T, String> + Send + Sync + 'static,
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let rule = Reduce::from_first(reducer);
        Self { starts_present: false, ..Self::folded(name, TypeId::of::<F>(), rule, ValuePlace::new(get, get_mut)) }
    }

    /// Makes a field that collects the values written in a superstep, or in all of them (`Topic`).
    pub fn topic<T>(
        name: impl Into<Arc<str>>,
        accumulate: bool,
        get: impl Fn(&S) -> &Vec<T> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut Vec<T> + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let ops = ValueField::<Vec<T>, Vec<T>, _>::new(Topic::new(accumulate));
        Self::topic_of::<T>(name, accumulate, ValuePlace::new(get, get_mut), ops)
    }

    /// Makes a topic of a schema made at run time: a write is one value, or a list of them.
    pub(super) fn dyn_topic(
        name: impl Into<Arc<str>>,
        accumulate: bool,
        get: impl Fn(&S) -> &Vec<Value> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        let ops = ValueField::<Vec<Value>, Value, _>::new(Topic::new(accumulate));
        Self::topic_of::<Value>(name, accumulate, ValuePlace::new(get, get_mut), ops)
    }

    fn topic_of<T: 'static>(
        name: impl Into<Arc<str>>,
        accumulate: bool,
        place: impl Place<S> + 'static,
        ops: impl FieldOps + 'static,
    ) -> Self {
        let rule = Rule::new::<T>(RuleKind::Topic { accumulate });
        Self { may_idle: !accumulate, ..Self::with(name, FieldKind::Value, rule, place, ops) }
    }

    /// Makes a list field to which each write appends its items. Only the new items are stored.
    pub fn append<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &List<T> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut List<T> + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let (rule, place) = (Rule::new::<T>(RuleKind::Append), ValuePlace::new(get, get_mut));
        let ops = ListField::<_, PlainItems<T>>::new(Append);
        Self { starts_present: true, ..Self::with(name, FieldKind::List, rule, place, ops) }
    }

    /// Makes a map field to which each write puts entries, or from which it removes keys. Only these are stored.
    pub fn map<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &KeyMap<T> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut KeyMap<T> + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let place = ValuePlace::new(move |s| get(s).entries(), move |s| get_mut(s).entries_mut());
        let ops = ListField::<_, EntryItems<T>>::new(MergeEntries);
        Self { starts_present: true, ..Self::with(name, FieldKind::List, Rule::new::<T>(RuleKind::Map), place, ops) }
    }

    /// Makes a text field to which each write appends a part. Only the new part is stored.
    pub fn text(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &Text + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut Text + Send + Sync + 'static,
    ) -> Self {
        let place = ValuePlace::new(move |s| get(s).list(), move |s| get_mut(s).list_mut());
        let ops = ListField::<_, TextItems>::new(Append);
        Self {
            starts_present: true,
            ..Self::with(name, FieldKind::List, Rule::new::<Text>(RuleKind::Text), place, ops)
        }
    }

    /// Makes a field of messages that are merged by their ids (`add_messages`). Only what changed is stored.
    #[doc(alias = "add_messages")]
    pub fn messages(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &List<Message> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut List<Message> + Send + Sync + 'static,
    ) -> Self {
        let (rule, place) = (Rule::new::<Message>(RuleKind::Messages), ValuePlace::new(get, get_mut));
        Self {
            starts_present: true,
            ..Self::with_ops(name.into(), FieldKind::List, rule, Box::new(place), merge_ops())
        }
    }

    /// Makes a field of messages that are merged as [`messages_delta_reducer`](crate::message::messages_delta_reducer)
    /// does (`DeltaChannel` of messages): message chunks stay chunks, and removing an unknown id is not an error.
    #[doc(alias = "DeltaChannel")]
    pub fn delta_messages(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &List<Message> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut List<Message> + Send + Sync + 'static,
    ) -> Self {
        let (rule, place) = (Rule::new::<Message>(RuleKind::DeltaMessages), ValuePlace::new(get, get_mut));
        Self {
            starts_present: true,
            ..Self::with_ops(name.into(), FieldKind::List, rule, Box::new(place), delta_ops())
        }
    }

    /// Makes a field that tells a node how many supersteps are left before the recursion limit, its own included
    /// (`RemainingSteps`). It is not a channel: nothing writes or stores it.
    pub fn remaining_steps(
        name: impl Into<Arc<str>>,
        set: impl Fn(&mut S, i64) + Send + Sync + 'static,
        get: impl Fn(&S) -> i64 + Send + Sync + 'static,
    ) -> Self {
        let place = ManagedPlace::new(set, move |state: &S| Value::from(get(state)));
        Self::with(name, FieldKind::Managed, Rule::new::<i64>(RuleKind::RemainingSteps), place, ManagedField)
    }

    /// Makes a field that tells a node whether its superstep is the last one before the recursion limit
    /// (`IsLastStep`). It is not a channel: nothing writes or stores it.
    pub fn is_last_step(
        name: impl Into<Arc<str>>,
        set: impl Fn(&mut S, bool) + Send + Sync + 'static,
        get: impl Fn(&S) -> bool + Send + Sync + 'static,
    ) -> Self {
        let place = ManagedPlace::new(
            move |state: &mut S, left: i64| set(state, left == 1),
            move |state: &S| Value::from(get(state)),
        );
        Self::with(name, FieldKind::Managed, Rule::new::<bool>(RuleKind::IsLastStep), place, ManagedField)
    }

    /// Keeps the field out of the input and the output of a graph, unless they name it.
    pub fn private(self) -> Self {
        Self { private: true, ..self }
    }

    fn value<T: FieldValue, C, G, M>(
        name: impl Into<Arc<str>>,
        kind: RuleKind,
        channel: C,
        place: ValuePlace<T, G, M>,
    ) -> Self
    where
        C: Channel<T, T>,
        G: Fn(&S) -> &T + Send + Sync + 'static,
        M: Fn(&mut S) -> &mut T + Send + Sync + 'static,
    {
        Self::with(name, FieldKind::Value, Rule::new::<T>(kind), place, ValueField::<T, T, _>::new(channel))
    }

    fn folded<T: FieldValue, W: Writable, G, M>(
        name: impl Into<Arc<str>>,
        reducer: TypeId,
        rule: Reduce<T, W>,
        place: ValuePlace<T, G, M>,
    ) -> Self
    where
        G: Fn(&S) -> &T + Send + Sync + 'static,
        M: Fn(&mut S) -> &mut T + Send + Sync + 'static,
    {
        let of = Rule { reducer: Some(reducer), ..Rule::new::<T>(RuleKind::Reduce) };
        Self { starts_present: true, ..Self::with(name, FieldKind::Value, of, place, ReduceField::new(rule)) }
    }

    fn with(
        name: impl Into<Arc<str>>,
        kind: FieldKind,
        rule: Rule,
        place: impl Place<S> + 'static,
        ops: impl FieldOps + 'static,
    ) -> Self {
        Self::with_ops(name.into(), kind, rule, Box::new(place), Box::new(ops))
    }

    fn with_ops(name: Arc<str>, kind: FieldKind, rule: Rule, place: Box<dyn Place<S>>, ops: Box<dyn FieldOps>) -> Self {
        let (starts_present, may_idle, private) = (false, false, false);
        Self { name, kind, starts_present, may_idle, private, rule, place, ops }
    }

    /// Returns the name of the channel.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns how the field is stored.
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    /// Returns whether it is kept out of the input and the output of a graph.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(super) fn starts_present(&self) -> bool {
        self.starts_present
    }

    pub(super) fn may_idle(&self) -> bool {
        self.may_idle
    }

    pub(super) fn ops(&self) -> &dyn FieldOps {
        &*self.ops
    }

    pub(super) fn place(&self) -> &dyn Place<S> {
        &*self.place
    }
}

impl<S> fmt::Debug for Field<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The operations on messages that are merged by their ids. They are compiled here, and not in every program.
fn merge_ops() -> Box<dyn FieldOps> {
    Box::new(ListField::<_, MessageItems<MergeMessages>>::new(MergeMessages))
}

/// The operations on messages that are merged in a forgiving way.
fn delta_ops() -> Box<dyn FieldOps> {
    Box::new(ListField::<_, MessageItems<MergeDelta>>::new(MergeDelta))
}

/// The operations on a value of a type that is stored as one, whatever is written to it.
macro_rules! whole_value {
    ($type:ident) => {
        fn reset(&self, value: &mut dyn Any) {
            *held_mut::<$type>(value) = $type::default();
        }

        fn encode(&self, name: &Arc<str>, value: &dyn Any) -> Result<Payload, StateError> {
            Encoded::encode(held::<$type>(value)).map(Payload::from).map_err(codec::<$type>(name))
        }

        fn load(&self, name: &Arc<str>, value: &mut dyn Any, stored: PayloadRef<'_>) -> Result<(), StateError> {
            *held_mut::<$type>(value) =
                decode_bytes(stored.codec, stored.data).map_err(misfit::<$type>(name, stored))?;
            Ok(())
        }

        fn type_name(&self) -> &'static str {
            type_name::<$type>()
        }

        fn to_value(&self, name: &Arc<str>, value: &dyn Any) -> Result<Value, StateError> {
            Value::from_serialize(held::<$type>(value)).map_err(codec::<$type>(name))
        }

        fn set(&self, name: &Arc<str>, value: &mut dyn Any, new: Value) -> Result<(), StateError> {
            *held_mut::<$type>(value) = new.to().map_err(codec::<$type>(name))?;
            Ok(())
        }

        fn copy(&self, from: &dyn Any, to: &mut dyn Any) {
            *held_mut::<$type>(to) = held::<$type>(from).clone();
        }
    };
}
pub(super) use whole_value;

/// A value of type `T` that is stored as one, to which a `W` is written.
struct ValueField<T, W, C> {
    channel: C,
    types: PhantomData<fn() -> (T, W)>,
}

impl<T, W, C> ValueField<T, W, C> {
    fn new(channel: C) -> Self {
        Self { channel, types: PhantomData }
    }
}

impl<T: FieldValue, W: Writable, C: Channel<T, W>> FieldOps for ValueField<T, W, C> {
    fn takes(&self, write: &BoxWrite) -> bool {
        write.get::<W>().is_some()
    }

    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let encoded = Encoded::encode(typed::<W>(name, write)?).map_err(codec::<W>(name))?;
        Ok(WriteValue::One(encoded.into()))
    }

    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let WriteValue::One(payload) = stored else {
            return Err(wrong_type::<W>(name, "a list of items"));
        };
        decode_bytes::<W>(payload.codec, &payload.data).map(BoxWrite::new).map_err(misfit::<W>(name, payload.as_ref()))
    }

    fn write_from_value(&self, name: &Arc<str>, value: Value) -> Result<BoxWrite, StateError> {
        value.to::<W>().map(BoxWrite::new).map_err(codec::<W>(name))
    }

    fn write_to_value(&self, name: &Arc<str>, write: &BoxWrite) -> Result<Value, StateError> {
        Value::from_serialize(typed::<W>(name, write)?).map_err(codec::<W>(name))
    }

    fn update(
        &self,
        name: &Arc<str>,
        value: &mut dyn Any,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        let writes = take_all::<W>(name, writes)?;
        self.channel.update(cell(held_mut::<T>(value), present), writes).map_err(channel_error(name))
    }

    fn idle(&self, value: &mut dyn Any, present: &mut bool) -> ChannelEffect {
        self.channel.idle(cell(held_mut::<T>(value), present))
    }

    whole_value!(T);

    fn holds_message(&self, value: &dyn Any, id: &str) -> bool {
        messages_in(held::<T>(value)).iter().any(|message| message.id.as_deref() == Some(id))
    }

    fn message_ids(&self, value: &dyn Any, _most: usize) -> Option<Vec<String>> {
        Some(messages_in(held::<T>(value)).into_iter().filter_map(|message| message.id).collect())
    }
}

pub(super) fn typed<'a, W: 'static>(name: &Arc<str>, write: &'a BoxWrite) -> Result<&'a W, StateError> {
    write.get().ok_or_else(|| wrong_type::<W>(name, "a write of another type"))
}

pub(super) fn take_all<W: Clone + Send + Sync + 'static>(
    name: &Arc<str>,
    writes: Vec<BoxWrite>,
) -> Result<Vec<W>, StateError> {
    let take = |write: BoxWrite| write.take().ok_or_else(|| wrong_type::<W>(name, "a write of another type"));
    writes.into_iter().map(take).collect()
}

pub(super) fn wrong_type<W>(name: &Arc<str>, found: &'static str) -> StateError {
    StateError::WrongType { channel: Arc::clone(name), expected: type_name::<W>(), found }
}

pub(super) fn codec<W>(name: &Arc<str>) -> impl FnOnce(CodecError) -> StateError {
    move |source| StateError::Codec { channel: Arc::clone(name), expected: type_name::<W>(), source }
}

/// The error of a stored value that does not fit the type of its field.
pub(super) fn misfit<W>(name: &Arc<str>, stored: PayloadRef<'_>) -> impl FnOnce(CodecError) -> StateError {
    move |source| {
        let value = decode_bytes::<Value>(stored.codec, stored.data);
        let stored = value.map_or("something unreadable", |value| value.kind());
        StateError::Misfit { channel: Arc::clone(name), expected: type_name::<W>(), stored, source }
    }
}

pub(super) fn channel_error(name: &Arc<str>) -> impl FnOnce(ChannelError) -> StateError {
    move |source| StateError::Channel { channel: Arc::clone(name), source }
}
