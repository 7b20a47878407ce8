//! One field of a state: its name, where it lies, and the rule of its channel.

use std::any::{TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::decode_bytes;
use crate::base::{CodecError, Encoded, IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{
    AnyValue, Append, Channel, ChannelError, Effect, Ephemeral, LastValue, List, Reduce, Topic, Untracked,
};
use crate::message::Message;

use super::error::StateError;
use super::given::ListRule;
use super::layout::{FieldKind, StateRef};
use super::lists::{ListField, PlainItems};
use super::managed::ManagedField;
use super::message_lists::{MergeDelta, MergeMessages, MessageItems};
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
    ops: Box<dyn FieldOps<S>>,
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

/// The operations on a field of any type.
pub(super) trait FieldOps<S>: Send + Sync {
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
        state: &mut S,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<Effect, StateError>;
    fn idle(&self, state: &mut S, present: &mut bool) -> Effect;
    fn reset(&self, state: &mut S);
    fn encode(&self, name: &Arc<str>, state: &S) -> Result<Payload, StateError>;
    fn load(&self, name: &Arc<str>, state: &mut S, stored: PayloadRef<'_>) -> Result<(), StateError>;
    fn load_item(
        &self,
        name: &Arc<str>,
        state: &mut S,
        position: u64,
        stored: PayloadRef<'_>,
    ) -> Result<(), StateError>;
    fn to_value(&self, name: &Arc<str>, state: &S) -> Result<Value, StateError>;
    /// Sets the value as it is, without the rule of the channel.
    fn set(&self, name: &Arc<str>, state: &mut S, value: Value) -> Result<(), StateError>;
    /// Takes the value over from another state.
    fn copy(&self, from: &S, to: &mut S);
    /// Sets a managed value: how many supersteps are left.
    fn set_managed(&self, _state: &mut S, _remaining: i64) {}
    /// Returns a clone of the list, if it is one.
    fn list(&self, _state: &S) -> Option<StateRef> {
        None
    }
    /// Returns whether it holds a message with this id.
    fn holds_message(&self, _state: &S, _id: &str) -> bool {
        false
    }
    /// Returns what can be done with it besides, if it is a list.
    fn lists(&self) -> Option<&dyn ListOps<S>> {
        None
    }
}

/// The operations on a list field; [`Layout`](super::layout::Layout) documents them under the same names.
pub(super) trait ListOps<S> {
    fn rule(&self) -> ListRule;
    fn give(&self, state: &S, of: Option<ListRef>) -> BoxWrite;
    fn give_back(&self, state: &S, given: &BoxWrite) -> Option<BoxWrite>;
    fn plain(&self, write: &BoxWrite) -> Option<BoxWrite>;
    fn decode_delta(
        &self,
        name: &Arc<str>,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError>;
    fn encode_item(&self, name: &Arc<str>, state: &S, position: u64) -> Result<Payload, StateError>;
}

/// The place of a field in its state.
pub(super) struct FieldPlace<G, M> {
    pub(super) get: G,
    pub(super) get_mut: M,
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
        Self::value(name, RuleKind::Last, LastValue, FieldPlace { get, get_mut })
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
        Self { may_idle: true, ..Self::value(name, RuleKind::Any, AnyValue, FieldPlace { get, get_mut }) }
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
        Self { may_idle: true, ..Self::value(name, kind, Ephemeral { guard }, FieldPlace { get, get_mut }) }
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
        Self { kind: FieldKind::Untracked, ..Self::value(name, kind, Untracked { guard }, FieldPlace { get, get_mut }) }
    }

    /// Makes a field into which each write is folded (`BinaryOperatorAggregate`), starting from the value it has in the
    /// state before the first write. Its result is stored whole at every change.
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
        Self::folded(name, TypeId::of::<F>(), rule, FieldPlace { get, get_mut })
    }

    /// Makes a field into which each write is folded by a function that may refuse it, else as [`Field::reduce`].
    pub fn try_reduce<T, W, F>(
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
        Self::folded(name, TypeId::of::<F>(), Reduce::new(reducer), FieldPlace { get, get_mut })
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
        Self { starts_present: false, ..Self::folded(name, TypeId::of::<F>(), rule, FieldPlace { get, get_mut }) }
    }

    /// Makes a field with a reducer that starts empty and may refuse a write, else as [`Field::reduce_first`].
    pub fn try_reduce_first<T, F>(
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
        Self { starts_present: false, ..Self::folded(name, TypeId::of::<F>(), rule, FieldPlace { get, get_mut }) }
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
        let ops = ValueField::<Vec<T>, Vec<T>, _, _, _>::new(Topic { accumulate }, FieldPlace { get, get_mut });
        Self::topic_of::<T>(name, accumulate, ops)
    }

    /// Makes a topic of a schema made at run time: a write is one value, or a list of them.
    pub(super) fn dyn_topic(
        name: impl Into<Arc<str>>,
        accumulate: bool,
        get: impl Fn(&S) -> &Vec<Value> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        let ops = ValueField::<Vec<Value>, Value, _, _, _>::new(Topic { accumulate }, FieldPlace { get, get_mut });
        Self::topic_of::<Value>(name, accumulate, ops)
    }

    fn topic_of<T: 'static>(name: impl Into<Arc<str>>, accumulate: bool, ops: impl FieldOps<S> + 'static) -> Self {
        let rule = Rule::new::<T>(RuleKind::Topic { accumulate });
        Self { may_idle: !accumulate, ..Self::with(name, FieldKind::Value, rule, ops) }
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
        let ops = ListField::<_, _, _, PlainItems<T>>::new(Append, FieldPlace { get, get_mut });
        Self { starts_present: true, ..Self::with(name, FieldKind::List, Rule::new::<T>(RuleKind::Append), ops) }
    }

    /// Makes a field of messages that are merged by their ids (`add_messages`). Only what changed is stored.
    #[doc(alias = "add_messages")]
    pub fn messages(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &List<Message> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut List<Message> + Send + Sync + 'static,
    ) -> Self {
        let ops = ListField::<_, _, _, MessageItems<MergeMessages>>::new(MergeMessages, FieldPlace { get, get_mut });
        Self {
            starts_present: true,
            ..Self::with(name, FieldKind::List, Rule::new::<Message>(RuleKind::Messages), ops)
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
        let ops = ListField::<_, _, _, MessageItems<MergeDelta>>::new(MergeDelta, FieldPlace { get, get_mut });
        Self {
            starts_present: true,
            ..Self::with(name, FieldKind::List, Rule::new::<Message>(RuleKind::DeltaMessages), ops)
        }
    }

    /// Makes a field that tells a node how many supersteps are left before the recursion limit, its own included
    /// (`RemainingSteps`). It is not a channel: nothing writes or stores it.
    pub fn remaining_steps(
        name: impl Into<Arc<str>>,
        set: impl Fn(&mut S, i64) + Send + Sync + 'static,
        get: impl Fn(&S) -> i64 + Send + Sync + 'static,
    ) -> Self {
        let ops = ManagedField::new(set, move |state: &S| Value::from(get(state)));
        Self::with(name, FieldKind::Managed, Rule::new::<i64>(RuleKind::RemainingSteps), ops)
    }

    /// Makes a field that tells a node whether its superstep is the last one before the recursion limit
    /// (`IsLastStep`). It is not a channel: nothing writes or stores it.
    pub fn is_last_step(
        name: impl Into<Arc<str>>,
        set: impl Fn(&mut S, bool) + Send + Sync + 'static,
        get: impl Fn(&S) -> bool + Send + Sync + 'static,
    ) -> Self {
        let ops = ManagedField::new(
            move |state: &mut S, left: i64| set(state, left == 1),
            move |state: &S| Value::from(get(state)),
        );
        Self::with(name, FieldKind::Managed, Rule::new::<bool>(RuleKind::IsLastStep), ops)
    }

    /// Keeps the field out of the input and the output of a graph, unless they name it.
    pub fn private(self) -> Self {
        Self { private: true, ..self }
    }

    fn value<T: FieldValue, C, G, M>(
        name: impl Into<Arc<str>>,
        kind: RuleKind,
        channel: C,
        place: FieldPlace<G, M>,
    ) -> Self
    where
        C: Channel<T, T>,
        G: Fn(&S) -> &T + Send + Sync + 'static,
        M: Fn(&mut S) -> &mut T + Send + Sync + 'static,
    {
        Self::with(name, FieldKind::Value, Rule::new::<T>(kind), ValueField::<T, T, _, _, _>::new(channel, place))
    }

    fn folded<T: FieldValue, W: Writable, G, M>(
        name: impl Into<Arc<str>>,
        reducer: TypeId,
        rule: Reduce<T, W>,
        place: FieldPlace<G, M>,
    ) -> Self
    where
        G: Fn(&S) -> &T + Send + Sync + 'static,
        M: Fn(&mut S) -> &mut T + Send + Sync + 'static,
    {
        let of = Rule { reducer: Some(reducer), ..Rule::new::<T>(RuleKind::Reduce) };
        Self { starts_present: true, ..Self::with(name, FieldKind::Value, of, ReduceField::new(rule, place)) }
    }

    fn with(name: impl Into<Arc<str>>, kind: FieldKind, rule: Rule, ops: impl FieldOps<S> + 'static) -> Self {
        let (starts_present, may_idle, private) = (false, false, false);
        Self { name: name.into(), kind, starts_present, may_idle, private, rule, ops: Box::new(ops) }
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
    pub fn is_private(&self) -> bool {
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

    pub(super) fn ops(&self) -> &dyn FieldOps<S> {
        &*self.ops
    }
}

impl<S> fmt::Debug for Field<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A field that is stored as one value.
struct ValueField<T, W, C, G, M> {
    channel: C,
    place: FieldPlace<G, M>,
    types: PhantomData<fn() -> (T, W)>,
}

impl<T, W, C, G, M> ValueField<T, W, C, G, M> {
    fn new(channel: C, place: FieldPlace<G, M>) -> Self {
        Self { channel, place, types: PhantomData }
    }
}

impl<S, T: FieldValue, W: Writable, C, G, M> FieldOps<S> for ValueField<T, W, C, G, M>
where
    C: Channel<T, W>,
    G: Fn(&S) -> &T + Send + Sync,
    M: Fn(&mut S) -> &mut T + Send + Sync,
{
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
        state: &mut S,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<Effect, StateError> {
        let writes = take_all::<W>(name, writes)?;
        self.channel.update(cell((self.place.get_mut)(state), present), writes).map_err(channel_error(name))
    }

    fn idle(&self, state: &mut S, present: &mut bool) -> Effect {
        self.channel.idle(cell((self.place.get_mut)(state), present))
    }

    fn reset(&self, state: &mut S) {
        *(self.place.get_mut)(state) = T::default();
    }

    fn encode(&self, name: &Arc<str>, state: &S) -> Result<Payload, StateError> {
        Encoded::encode((self.place.get)(state)).map(Payload::from).map_err(codec::<T>(name))
    }

    fn load(&self, name: &Arc<str>, state: &mut S, stored: PayloadRef<'_>) -> Result<(), StateError> {
        *(self.place.get_mut)(state) = decode_bytes(stored.codec, stored.data).map_err(misfit::<T>(name, stored))?;
        Ok(())
    }

    fn load_item(&self, name: &Arc<str>, _: &mut S, _: u64, _: PayloadRef<'_>) -> Result<(), StateError> {
        Err(wrong_type::<T>(name, "a list of items"))
    }

    fn to_value(&self, name: &Arc<str>, state: &S) -> Result<Value, StateError> {
        Value::from_serialize((self.place.get)(state)).map_err(codec::<T>(name))
    }

    fn set(&self, name: &Arc<str>, state: &mut S, value: Value) -> Result<(), StateError> {
        *(self.place.get_mut)(state) = value.to().map_err(codec::<T>(name))?;
        Ok(())
    }

    fn copy(&self, from: &S, to: &mut S) {
        *(self.place.get_mut)(to) = (self.place.get)(from).clone();
    }

    fn holds_message(&self, state: &S, id: &str) -> bool {
        messages_in((self.place.get)(state)).iter().any(|message| message.id.as_deref() == Some(id))
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
