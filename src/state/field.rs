//! One field of a state: its name, where it lies, and the rule of its channel.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::value::decode_bytes;
use crate::base::{CodecError, Encoded, IdSource, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{AnyValue, Append, Channel, ChannelError, Effect, Ephemeral, LastValue, List, Reduce, Topic};
use crate::message::Message;

use super::layout::{FieldKind, StateError};
use super::lists::{ListField, MergeMessages, MessageItems, PlainItems};
use super::schema::cell;
use super::writes::BoxWrite;

/// What a field can hold.
pub(super) trait Data: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static> Data for T {}

/// What can be written to a field.
pub(super) trait Written: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Written for T {}

/// A field of a state `S`, with its channel.
pub struct Field<S> {
    name: Arc<str>,
    kind: FieldKind,
    starts_present: bool,
    may_idle: bool,
    ops: Box<dyn FieldOps<S>>,
}

/// What can be done with a field, whatever its type.
pub(super) trait FieldOps<S>: Send + Sync {
    fn prepare(&self, _write: &mut BoxWrite, _ids: &mut IdSource) {}
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
    fn load_item(&self, name: &Arc<str>, state: &mut S, slot: u64, stored: PayloadRef<'_>) -> Result<(), StateError>;
    fn to_value(&self, name: &Arc<str>, state: &S) -> Result<Value, StateError>;
}

/// Where a field lies in its state.
pub(super) struct Place<G, M> {
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
        Self::value(name, LastValue, Place { get, get_mut })
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
        Self { may_idle: true, ..Self::value(name, AnyValue, Place { get, get_mut }) }
    }

    /// Makes a field that holds a value for one superstep (`EphemeralValue`).
    pub fn ephemeral<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self { may_idle: true, ..Self::value(name, Ephemeral { guard: true }, Place { get, get_mut }) }
    }

    /// Makes a field that lasts for one run and is never stored (`UntrackedValue`).
    pub fn untracked<T>(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self { kind: FieldKind::Untracked, ..Self::value(name, LastValue, Place { get, get_mut }) }
    }

    /// Makes a field into which each write is folded (`BinaryOperatorAggregate`). Its result is stored whole at
    /// every change.
    pub fn reduce<T, W>(
        name: impl Into<Arc<str>>,
        reducer: impl Fn(T, W) -> T + Send + Sync + 'static,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
        W: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self::try_reduce(name, move |old, write| Ok(reducer(old, write)), get, get_mut)
    }

    /// Makes a field into which each write is folded by a function that may refuse it.
    pub fn try_reduce<T, W>(
        name: impl Into<Arc<str>>,
        reducer: impl Fn(T, W) -> Result<T, String> + Send + Sync + 'static,
        get: impl Fn(&S) -> &T + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut T + Send + Sync + 'static,
    ) -> Self
    where
        T: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
        W: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self { starts_present: true, ..Self::value(name, Reduce::new(reducer), Place { get, get_mut }) }
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
        Self { may_idle: !accumulate, ..Self::value(name, Topic { accumulate }, Place { get, get_mut }) }
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
        Self::list(name, ListField::<_, _, _, PlainItems<T>>::new(Append, Place { get, get_mut }))
    }

    /// Makes a field of messages that are merged by their ids (`add_messages`). Only what changed is stored.
    #[doc(alias = "add_messages")]
    pub fn messages(
        name: impl Into<Arc<str>>,
        get: impl Fn(&S) -> &List<Message> + Send + Sync + 'static,
        get_mut: impl Fn(&mut S) -> &mut List<Message> + Send + Sync + 'static,
    ) -> Self {
        Self::list(name, ListField::<_, _, _, MessageItems>::new(MergeMessages, Place { get, get_mut }))
    }

    fn value<T: Data, W: Written, C, G, M>(name: impl Into<Arc<str>>, channel: C, place: Place<G, M>) -> Self
    where
        C: Channel<T, W>,
        G: Fn(&S) -> &T + Send + Sync + 'static,
        M: Fn(&mut S) -> &mut T + Send + Sync + 'static,
    {
        let ops = ValueField { channel, place, types: PhantomData };
        Self { name: name.into(), kind: FieldKind::Value, starts_present: false, may_idle: false, ops: Box::new(ops) }
    }

    fn list(name: impl Into<Arc<str>>, ops: impl FieldOps<S> + 'static) -> Self {
        Self { name: name.into(), kind: FieldKind::List, starts_present: true, may_idle: false, ops: Box::new(ops) }
    }

    /// Returns the name of the channel.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns how the field is stored.
    pub fn kind(&self) -> FieldKind {
        self.kind
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
    place: Place<G, M>,
    types: PhantomData<fn() -> (T, W)>,
}

impl<S, T: Data, W: Written, C, G, M> FieldOps<S> for ValueField<T, W, C, G, M>
where
    C: Channel<T, W>,
    G: Fn(&S) -> &T + Send + Sync,
    M: Fn(&mut S) -> &mut T + Send + Sync,
{
    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let encoded = Encoded::encode(typed::<W>(name, write)?).map_err(codec::<W>(name))?;
        Ok(WriteValue::One(encoded.into()))
    }

    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let WriteValue::One(payload) = stored else {
            return Err(wrong_type::<W>(name, "a list of items"));
        };
        decode_bytes::<W>(payload.codec, &payload.data).map(BoxWrite::new).map_err(codec::<W>(name))
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
        *(self.place.get_mut)(state) = decode_bytes(stored.codec, stored.data).map_err(codec::<T>(name))?;
        Ok(())
    }

    fn load_item(&self, name: &Arc<str>, _: &mut S, _: u64, _: PayloadRef<'_>) -> Result<(), StateError> {
        Err(wrong_type::<T>(name, "a list of items"))
    }

    fn to_value(&self, name: &Arc<str>, state: &S) -> Result<Value, StateError> {
        Value::from_serialize((self.place.get)(state)).map_err(codec::<T>(name))
    }
}

pub(super) fn typed<'a, W: 'static>(name: &Arc<str>, write: &'a BoxWrite) -> Result<&'a W, StateError> {
    write.get().ok_or_else(|| wrong_type::<W>(name, "a write of another type"))
}

pub(super) fn take_all<W: 'static>(name: &Arc<str>, writes: Vec<BoxWrite>) -> Result<Vec<W>, StateError> {
    let take = |write: BoxWrite| write.take().ok_or_else(|| wrong_type::<W>(name, "a write of another type"));
    writes.into_iter().map(take).collect()
}

pub(super) fn wrong_type<W>(name: &Arc<str>, found: &'static str) -> StateError {
    StateError::WrongType { channel: Arc::clone(name), expected: type_name::<W>(), found }
}

pub(super) fn codec<W>(name: &Arc<str>) -> impl FnOnce(CodecError) -> StateError {
    move |source| StateError::Codec { channel: Arc::clone(name), expected: type_name::<W>(), source }
}

pub(super) fn channel_error(name: &Arc<str>) -> impl FnOnce(ChannelError) -> StateError {
    move |source| StateError::Channel { channel: Arc::clone(name), source }
}
