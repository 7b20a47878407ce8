//! Fields that are stored item by item: lists that grow, and conversations.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::value::decode_bytes;
use crate::base::{Encoded, IdSource, ItemIndex, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Cell, Channel, ChannelError, Effect, Keyed, List, ListChange, ListOp};
use crate::message::{MergeOp, Message, MessageError, MessagePartsRef, ensure_ids, merge_plan};

use super::field::{FieldOps, Place, channel_error, codec, take_all, typed, wrong_type};
use super::layout::StateError;
use super::schema::cell;
use super::writes::BoxWrite;

/// How an item of a list is stored.
pub(super) trait Items: Send + Sync + 'static {
    type Item: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    fn prepare(_items: &mut Vec<Self::Item>, _ids: &mut IdSource) {}
    fn encode(name: &Arc<str>, item: &Self::Item) -> Result<Payload, StateError>;
    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<Self::Item, StateError>;
    /// Reads what a write may look like as a dynamic value: a list of items, or one item.
    fn from_value(name: &Arc<str>, value: Value) -> Result<Vec<Self::Item>, StateError> {
        match value {
            Value::List(_) => value.to().map_err(codec::<Vec<Self::Item>>(name)),
            one => Ok(vec![one.to().map_err(codec::<Self::Item>(name))?]),
        }
    }
}

/// Items of any type.
pub(super) struct PlainItems<T>(PhantomData<fn() -> T>);

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Items for PlainItems<T> {
    type Item = T;

    fn encode(name: &Arc<str>, item: &T) -> Result<Payload, StateError> {
        Encoded::encode(item).map(Payload::from).map_err(codec::<T>(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<T, StateError> {
        decode_bytes(stored.codec, stored.data).map_err(codec::<T>(name))
    }
}

/// Messages: id, type, name, text and token counts go to the index, the rest to the data.
pub(super) struct MessageItems;

impl Items for MessageItems {
    type Item = Message;

    fn prepare(items: &mut Vec<Message>, ids: &mut IdSource) {
        ensure_ids(items, ids);
    }

    fn encode(name: &Arc<str>, message: &Message) -> Result<Payload, StateError> {
        message_payload(message).map_err(message_error(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<Message, StateError> {
        payload_message(stored).map_err(message_error(name))
    }
}

/// Puts a message into a payload.
pub(crate) fn message_payload(message: &Message) -> Result<Payload, MessageError> {
    let parts = message.split()?;
    let index = ItemIndex {
        id: parts.id.map(Into::into),
        kind: Some(parts.kind.into()),
        name: parts.name.map(Into::into),
        tool_calls: parts.tool_calls,
        text: parts.text,
        input_tokens: parts.input_tokens,
        output_tokens: parts.output_tokens,
    };
    Ok(Payload { codec: crate::base::Codec::MsgPack, data: parts.rest, index: Some(Box::new(index)) })
}

/// Reads a message from a payload.
pub(crate) fn payload_message(stored: PayloadRef<'_>) -> Result<Message, MessageError> {
    let index = stored.index.unwrap_or_default();
    Message::join(MessagePartsRef {
        id: index.id,
        kind: index.kind.unwrap_or_default(),
        name: index.name,
        tool_calls: index.tool_calls,
        text: index.text,
        input_tokens: index.input_tokens,
        output_tokens: index.output_tokens,
        rest: stored.data,
    })
}

fn message_error(name: &Arc<str>) -> impl FnOnce(MessageError) -> StateError {
    move |source| StateError::Message { channel: Arc::clone(name), source }
}

impl Keyed for Message {
    fn key(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// Merges messages by id: the rule of a `messages` channel, which never scans the list.
pub(super) struct MergeMessages;

impl Channel<List<Message>, Vec<Message>> for MergeMessages {
    fn update(&self, cell: Cell<'_, List<Message>>, writes: Vec<Vec<Message>>) -> Result<Effect, ChannelError> {
        let list = cell.value;
        let first_new = list.end_slot();
        let mut cut = None;
        let mut changed = BTreeMap::new();
        for (write, messages) in writes.into_iter().enumerate() {
            let plan = merge_plan(messages, &mut |id| list.find(id).is_some())
                .map_err(|e| ChannelError::Reducer { reason: e.to_string() })?;
            for op in plan {
                match op {
                    MergeOp::Append { part, message } => {
                        changed.insert(list.push(message), ListOp::Put { write, part });
                    }
                    MergeOp::Replace { part, id, message } => {
                        if let Some(slot) = list.find(&id) {
                            list.replace(slot, message);
                            changed.insert(slot, ListOp::Put { write, part });
                        }
                    }
                    MergeOp::Remove { id } => {
                        while let Some(slot) = list.find(&id) {
                            list.remove(slot);
                            changed.insert(slot, ListOp::Remove);
                        }
                    }
                    MergeOp::Clear => {
                        let end = list.clear();
                        changed.clear();
                        cut = (first_new > 0).then_some(end.min(first_new));
                    }
                }
            }
        }
        *cell.present = true;
        // What was added and removed again within this superstep was never stored.
        changed.retain(|slot, op| *op != ListOp::Remove || (*slot < first_new && cut.is_none()));
        let cut = cut.map(|end| ListChange { slot: 0, op: ListOp::Cut { end } });
        Ok(Effect::Items(
            cut.into_iter().chain(changed.into_iter().map(|(slot, op)| ListChange { slot, op })).collect(),
        ))
    }
}

/// A field that is stored item by item.
pub(super) struct ListField<C, G, M, I> {
    channel: C,
    place: Place<G, M>,
    items: PhantomData<fn() -> I>,
}

impl<C, G, M, I> ListField<C, G, M, I> {
    pub(super) fn new(channel: C, place: Place<G, M>) -> Self {
        Self { channel, place, items: PhantomData }
    }
}

impl<S, C, G, M, I: Items> FieldOps<S> for ListField<C, G, M, I>
where
    C: Channel<List<I::Item>, Vec<I::Item>>,
    G: Fn(&S) -> &List<I::Item> + Send + Sync,
    M: Fn(&mut S) -> &mut List<I::Item> + Send + Sync,
{
    fn prepare(&self, write: &mut BoxWrite, ids: &mut IdSource) {
        if let Some(items) = write.get_mut::<Vec<I::Item>>() {
            I::prepare(items, ids);
        }
    }

    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let items = typed::<Vec<I::Item>>(name, write)?;
        Ok(WriteValue::Items(items.iter().map(|item| I::encode(name, item)).collect::<Result<_, _>>()?))
    }

    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let WriteValue::Items(items) = stored else {
            return Err(wrong_type::<Vec<I::Item>>(name, "one value"));
        };
        let items: Vec<_> = items.iter().map(|item| I::decode(name, item.as_ref())).collect::<Result<_, _>>()?;
        Ok(BoxWrite::new(items))
    }

    fn write_from_value(&self, name: &Arc<str>, value: Value) -> Result<BoxWrite, StateError> {
        I::from_value(name, value).map(BoxWrite::new)
    }

    fn write_to_value(&self, name: &Arc<str>, write: &BoxWrite) -> Result<Value, StateError> {
        let items = typed::<Vec<I::Item>>(name, write)?;
        Value::from_serialize(items).map_err(codec::<Vec<I::Item>>(name))
    }

    fn update(
        &self,
        name: &Arc<str>,
        state: &mut S,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<Effect, StateError> {
        let writes = take_all::<Vec<I::Item>>(name, writes)?;
        self.channel.update(cell((self.place.get_mut)(state), present), writes).map_err(channel_error(name))
    }

    fn idle(&self, _: &mut S, _: &mut bool) -> Effect {
        Effect::Unchanged
    }

    fn reset(&self, state: &mut S) {
        *(self.place.get_mut)(state) = List::new();
    }

    fn encode(&self, name: &Arc<str>, _: &S) -> Result<Payload, StateError> {
        Err(wrong_type::<List<I::Item>>(name, "one value"))
    }

    fn load(&self, name: &Arc<str>, _: &mut S, _: PayloadRef<'_>) -> Result<(), StateError> {
        Err(wrong_type::<List<I::Item>>(name, "one value"))
    }

    fn load_item(&self, name: &Arc<str>, state: &mut S, slot: u64, stored: PayloadRef<'_>) -> Result<(), StateError> {
        (self.place.get_mut)(state).insert_at_slot(slot, I::decode(name, stored)?);
        Ok(())
    }

    fn to_value(&self, name: &Arc<str>, state: &S) -> Result<Value, StateError> {
        let items = (self.place.get)(state).iter().map(Value::from_serialize);
        items.collect::<Result<_, _>>().map(Value::List).map_err(codec::<List<I::Item>>(name))
    }
}
