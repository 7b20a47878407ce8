//! Fields that are stored item by item: lists that grow, those of messages, maps and texts.

use std::any::{Any, TypeId, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::decode_bytes;
use crate::base::{Encoded, IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Cell, Channel, ChannelEffect, ChannelError, List, ListChange, ListOp, ListShape};

use super::error::StateError;
use super::field::{FieldOps, ListOps, StoredItems, channel_error, codec, misfit, wrong_type};
use super::given::{self, Given, ListRule};
use super::layout::StateRef;
use super::overwrite::{self, Overwrite};
use super::place::{held, held_mut};
use super::schema::cell;
use super::writes::BoxWrite;

/// How an item of a list is stored.
pub(super) trait ListItems: Send + Sync + 'static {
    type Item: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The shape that the items have together.
    const SHAPE: ListShape = ListShape::List;
    /// True if null stands for an empty list in a write that replaces the list.
    const NULL_IS_EMPTY: bool = false;
    /// True if items are merged by their ids, so that items that are written unchanged change nothing.
    const MERGES: bool = false;

    fn prepare(_items: &mut [Self::Item], _ids: &mut IdSource) {}
    /// Reads an item.
    fn item(name: &Arc<str>, value: &Value) -> Result<Self::Item, StateError> {
        value.to::<Self::Item>().map_err(codec::<Self::Item>(name))
    }
    /// Returns for each value whether it is a message already; nothing if that is all the same.
    fn as_messages(_values: &[Value]) -> Vec<bool> {
        Vec::new()
    }
    /// Returns whether one of the items is a message with this id.
    fn holds_message(_list: &List<Self::Item>, _id: &str) -> bool {
        false
    }
    /// Returns the ids of the messages among the items; `None` if there are more than `most` messages.
    fn message_ids(_list: &List<Self::Item>, _most: usize) -> Option<Vec<String>> {
        Some(Vec::new())
    }
    /// Returns whether two items are stored alike, if that can be told.
    fn is_same(_old: &Self::Item, _new: &Self::Item) -> bool {
        false
    }
    /// Returns the list without items.
    fn empty() -> List<Self::Item> {
        List::starting_at(Self::SHAPE.first_position())
    }
    /// Makes a list of items, without the rule of the channel.
    fn collect(items: Vec<Self::Item>) -> Result<List<Self::Item>, ChannelError> {
        let mut list = Self::empty();
        list.extend(items);
        Ok(list)
    }
    /// Reads a write as a whole; `None` if the value stands for one item.
    fn items(name: &Arc<str>, value: &Value) -> Option<Result<Vec<Self::Item>, StateError>> {
        let items = value.as_list()?;
        Some(items.iter().map(|item| Self::item(name, item)).collect())
    }
    /// Returns items as one dynamic value.
    fn to_value(name: &Arc<str>, items: &mut dyn Iterator<Item = &Self::Item>) -> Result<Value, StateError> {
        let items = items.map(Value::from_serialize);
        items.collect::<Result<_, _>>().map(Value::List).map_err(codec::<List<Self::Item>>(name))
    }
    fn encode(name: &Arc<str>, item: &Self::Item) -> Result<Payload, StateError>;
    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<Self::Item, StateError>;
}

/// ListItems of any type.
pub(super) struct PlainItems<T>(PhantomData<fn() -> T>);

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> ListItems for PlainItems<T> {
    type Item = T;

    fn encode(name: &Arc<str>, item: &T) -> Result<Payload, StateError> {
        Encoded::encode(item).map(Payload::from).map_err(codec::<T>(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<T, StateError> {
        decode_bytes(stored.codec, stored.data).map_err(misfit::<T>(name, stored))
    }
}

/// One item, written without a list around it. It is shown and stored as it was written.
#[derive(Clone)]
pub(super) struct Single<T>(pub(super) T);

/// Returns the items that a write brings, whichever form it has; `None` if they are of another type.
#[doc(hidden)]
pub fn written_items<T: 'static>(write: &BoxWrite) -> Option<&[T]> {
    let single = write.get::<Single<T>>().map(|one| std::slice::from_ref(&one.0));
    let replacing = || write.get::<Overwrite<Vec<T>>>().map(|new| new.0.as_slice());
    let given = || write.get::<Given<T>>().map(|given| given.changed.as_slice());
    write.get::<Vec<T>>().map(Vec::as_slice).or(single).or_else(replacing).or_else(given)
}

fn items_of<'a, T: 'static>(name: &Arc<str>, write: &'a BoxWrite) -> Result<&'a [T], StateError> {
    written_items(write).ok_or_else(|| wrong_type::<Vec<T>>(name, "a write of another type"))
}

pub(super) fn take_items<T: Clone + Send + Sync + 'static>(
    name: &Arc<str>,
    write: BoxWrite,
) -> Result<Vec<T>, StateError> {
    let items = if write.get::<Single<T>>().is_some() {
        write.take::<Single<T>>().map(|one| vec![one.0])
    } else if is_overwrite::<T>(&write) {
        write.take::<Overwrite<Vec<T>>>().map(|new| new.0)
    } else {
        write.take::<Vec<T>>()
    };
    items.ok_or_else(|| wrong_type::<Vec<T>>(name, "a write of another type"))
}

fn is_overwrite<T: 'static>(write: &BoxWrite) -> bool {
    write.get::<Overwrite<Vec<T>>>().is_some()
}

/// A list that is stored item by item.
pub(super) struct ListField<C, I> {
    channel: C,
    items: PhantomData<fn() -> I>,
}

impl<C, I> ListField<C, I> {
    pub(super) fn new(channel: C) -> Self {
        Self { channel, items: PhantomData }
    }
}

/// Replaces a list by the items of the write with number `write`.
fn replace<T, C: Channel<List<T>, Vec<T>>>(
    channel: &C,
    cell: Cell<'_, List<T>>,
    write: usize,
    items: Vec<T>,
) -> Result<ChannelEffect, ChannelError> {
    let end = cell.value.clear();
    let mut changes = Vec::new();
    if end > 0 {
        changes.push(ListChange { position: 0, op: ListOp::DeleteRange { end } });
    }
    if let ChannelEffect::Items(new) = channel.update(cell, vec![items])? {
        // The first item of the stored write is its mark.
        changes.extend(new.into_iter().map(|change| match change.op {
            ListOp::Put { part, .. } => ListChange { op: ListOp::Put { write, part: part + 1 }, ..change },
            _ => change,
        }));
    }
    Ok(ChannelEffect::Items(changes))
}

impl<C: Channel<List<I::Item>, Vec<I::Item>>, I: ListItems> FieldOps for ListField<C, I> {
    fn prepare(&self, write: &mut BoxWrite, ids: &mut IdSource) {
        if let Some(items) = write.get_mut::<Vec<I::Item>>() {
            I::prepare(items, ids);
        } else if let Some(Overwrite(items)) = write.get_mut::<Overwrite<Vec<I::Item>>>() {
            I::prepare(items, ids);
        } else if let Some(Single(item)) = write.get_mut::<Single<I::Item>>() {
            I::prepare(std::slice::from_mut(item), ids);
        }
    }

    fn takes(&self, write: &BoxWrite) -> bool {
        write.get::<Vec<I::Item>>().is_some()
            || write.get::<Single<I::Item>>().is_some()
            || write.get::<Given<I::Item>>().is_some()
            || is_overwrite::<I::Item>(write)
    }

    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let encode = |item: &I::Item| I::encode(name, item);
        if let Some(Single(item)) = write.get() {
            return encode(item).map(WriteValue::One);
        }
        if let Some(encoded) = given::encode::<I>(name, write) {
            return encoded;
        }
        let items = items_of::<I::Item>(name, write)?.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        Ok(WriteValue::Items(if is_overwrite::<I::Item>(write) { overwrite::marked(items) } else { items }))
    }

    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let decode = |item: &Payload| I::decode(name, item.as_ref());
        let all = |items: &[Payload]| items.iter().map(decode).collect::<Result<Vec<_>, _>>();
        match stored {
            WriteValue::One(item) => decode(item).map(|item| BoxWrite::new(Single(item))),
            WriteValue::Items(items) => match overwrite::unmarked(items) {
                Some(items) => all(items).map(|items| BoxWrite::new(Overwrite(items))),
                None => all(items).map(BoxWrite::new),
            },
            WriteValue::Null => Err(wrong_type::<Vec<I::Item>>(name, "null")),
            WriteValue::Delta(_) => Err(wrong_type::<Vec<I::Item>>(name, "a delta of an unknown list")),
        }
    }

    fn write_from_value(&self, name: &Arc<str>, value: Value) -> Result<BoxWrite, StateError> {
        let one = |value: &Value| I::item(name, value);
        let all = |value: &Value| match (I::items(name, value), value) {
            (Some(items), _) => items,
            // A list that is replaced by nothing is empty.
            (None, Value::Null) if I::NULL_IS_EMPTY => Ok(Vec::new()),
            (None, value) => one(value).map(|item| vec![item]),
        };
        let marks = |value: &Value| match value {
            Value::List(items) => I::as_messages(items),
            one => I::as_messages(std::slice::from_ref(one)),
        };
        let (write, marks) = match overwrite::of_value(value) {
            Ok(value) => (BoxWrite::new(Overwrite(all(&value)?)), marks(&value)),
            Err(value) => match I::items(name, &value) {
                Some(items) => (BoxWrite::new(items?), marks(&value)),
                None => (BoxWrite::new(Single(one(&value)?)), marks(&value)),
            },
        };
        Ok(write.with_messages(marks))
    }

    fn write_to_value(&self, name: &Arc<str>, write: &BoxWrite) -> Result<Value, StateError> {
        let of = codec::<Vec<I::Item>>(name);
        if let Some(Single(item)) = write.get::<Single<I::Item>>() {
            return Value::from_serialize(item).map_err(of);
        }
        if let Some(given) = write.get::<Given<I::Item>>() {
            return I::to_value(name, &mut given.items());
        }
        let items = I::to_value(name, &mut items_of::<I::Item>(name, write)?.iter())?;
        Ok(if is_overwrite::<I::Item>(write) { overwrite::to_value(items) } else { items })
    }

    fn update(
        &self,
        name: &Arc<str>,
        value: &mut dyn Any,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        let cell = cell(held_mut::<List<I::Item>>(value), present);
        let mut replacing = writes.iter().enumerate().filter(|(_, write)| is_overwrite::<I::Item>(write));
        let effect = match (replacing.next().map(|(at, _)| at), replacing.count()) {
            (None, _) if writes.iter().any(|write| write.told_of().is_some()) => {
                given::update::<I, C>(name, &self.channel, cell, writes)?
            }
            (None, _) => {
                let writes = writes.into_iter().map(|write| take_items(name, write));
                self.channel.update(cell, writes.collect::<Result<_, _>>()?)
            }
            (Some(at), 0) => {
                let write = writes.into_iter().nth(at).map(|write| take_items(name, write));
                replace(&self.channel, cell, at, write.transpose()?.unwrap_or_default())
            }
            (Some(_), more) => Err(ChannelError::OneOverwritePerStep { writes: more + 1 }),
        };
        effect.map_err(channel_error(name))
    }

    fn idle(&self, _: &mut dyn Any, _: &mut bool) -> ChannelEffect {
        ChannelEffect::Unchanged
    }

    fn reset(&self, value: &mut dyn Any) {
        *held_mut::<List<I::Item>>(value) = I::empty();
    }

    fn encode(&self, name: &Arc<str>, _: &dyn Any) -> Result<Payload, StateError> {
        Err(wrong_type::<List<I::Item>>(name, "one value"))
    }

    /// Loads the value that a reducer or a last value stored in the channel before it was a list.
    fn load(&self, name: &Arc<str>, value: &mut dyn Any, stored: PayloadRef<'_>) -> Result<(), StateError> {
        let found: Value = decode_bytes(stored.codec, stored.data).map_err(misfit::<List<I::Item>>(name, stored))?;
        let items = match I::items(name, &found) {
            Some(items) => items.map_err(|error| match error {
                StateError::Codec { channel, expected, source } => {
                    StateError::Misfit { channel, expected, stored: found.kind(), source }
                }
                error => error,
            })?,
            None if found.is_null() => Vec::new(),
            None if I::SHAPE == ListShape::Text && found.as_str().is_some() => vec![I::item(name, &found)?],
            None => found.to::<Vec<I::Item>>().map_err(misfit::<List<I::Item>>(name, stored))?,
        };
        *held_mut::<List<I::Item>>(value) = I::collect(items).map_err(channel_error(name))?;
        Ok(())
    }

    fn type_name(&self) -> &'static str {
        type_name::<List<I::Item>>()
    }

    fn to_value(&self, name: &Arc<str>, value: &dyn Any) -> Result<Value, StateError> {
        I::to_value(name, &mut held::<List<I::Item>>(value).iter())
    }

    fn set(&self, name: &Arc<str>, value: &mut dyn Any, new: Value) -> Result<(), StateError> {
        let items = take_items::<I::Item>(name, self.write_from_value(name, new)?)?;
        *held_mut::<List<I::Item>>(value) = I::collect(items).map_err(channel_error(name))?;
        Ok(())
    }

    fn copy(&self, from: &dyn Any, to: &mut dyn Any) {
        *held_mut::<List<I::Item>>(to) = held::<List<I::Item>>(from).clone();
    }

    fn list(&self, value: &dyn Any) -> Option<StateRef> {
        Some(Arc::new(held::<List<I::Item>>(value).clone()))
    }

    fn holds_message(&self, value: &dyn Any, id: &str) -> bool {
        I::holds_message(held::<List<I::Item>>(value), id)
    }

    fn message_ids(&self, value: &dyn Any, most: usize) -> Option<Vec<String>> {
        I::message_ids(held::<List<I::Item>>(value), most)
    }

    fn lists(&self) -> Option<&dyn ListOps> {
        Some(self)
    }
}

impl<C: Channel<List<I::Item>, Vec<I::Item>>, I: ListItems> ListOps for ListField<C, I> {
    fn rule(&self) -> ListRule {
        ListRule { id: TypeId::of::<(C, I)>(), merges: I::MERGES }
    }

    fn give(&self, value: &dyn Any, of: Option<ListRef>) -> BoxWrite {
        Given::give(held::<List<I::Item>>(value), of)
    }

    fn give_back(&self, value: &dyn Any, given: &BoxWrite) -> Option<BoxWrite> {
        Given::give_back(held::<List<I::Item>>(value), given, I::is_same)
    }

    fn plain(&self, write: &BoxWrite) -> Option<BoxWrite> {
        let given = write.get::<Given<I::Item>>()?;
        Some(BoxWrite::new(given.items().cloned().collect::<Vec<_>>()))
    }

    fn decode_delta(
        &self,
        name: &Arc<str>,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError> {
        let none = || Err(wrong_type::<List<I::Item>>(name, "a delta of another list"));
        given::decode::<I>(name, delta, base, returns).unwrap_or_else(none)
    }

    fn encode_item(&self, name: &Arc<str>, value: &dyn Any, position: u64) -> Result<Payload, StateError> {
        match held::<List<I::Item>>(value).at_position(position) {
            Some(item) => I::encode(name, item),
            None => Err(wrong_type::<I::Item>(name, "an empty position")),
        }
    }

    fn items(&self) -> Box<dyn StoredItems> {
        Box::new(DecodedItems::<I>(Vec::new()))
    }

    fn positions(&self, value: &dyn Any) -> Vec<u64> {
        held::<List<I::Item>>(value).iter_positions().map(|(position, _)| position).collect()
    }
}

/// The decoded items of a list, with their positions.
struct DecodedItems<I: ListItems>(Vec<(u64, Arc<I::Item>)>);

impl<I: ListItems> StoredItems for DecodedItems<I> {
    fn add(&mut self, name: &Arc<str>, position: u64, stored: PayloadRef<'_>) -> Result<(), StateError> {
        let shape = ListShape::of_position(position);
        if shape != I::SHAPE {
            return Err(wrong_type::<List<I::Item>>(name, shape.noun()));
        }
        self.0.push((position, Arc::new(I::decode(name, stored)?)));
        Ok(())
    }

    fn finish(self: Box<Self>, value: &mut dyn Any) {
        held_mut::<List<I::Item>>(value).load(self.0);
    }
}
