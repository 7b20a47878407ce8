//! Channels of messages: how a message is stored, and the two rules by which messages are merged.
//!
//! Invariant: neither rule scans the list. *Absent:* the type of messages.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::{IdSource, Map, Payload, PayloadRef, Value};
use crate::channel::{Cell, Channel, ChannelEffect, ChannelError, Keyed, List, ListChange, ListOp};
use crate::message::{
    MergeOp, Message, MessageClass, MessageError, MessageLike, ensure_ids, merge_plan, message_chunk_to_message,
};

use super::error::StateError;
use super::lists::ListItems;

/// Messages that are merged by a rule: id, type, name, text and token counts go to the index, the rest to the data.
pub(super) struct MessageItems<R>(PhantomData<fn() -> R>);

/// The requirements of a rule on the messages that are written.
pub(super) trait MessageRule: 'static {
    /// True if message chunks stay chunks.
    const KEEPS_CHUNKS: bool;
}

impl<R: MessageRule> ListItems for MessageItems<R> {
    type Item = Message;

    const NULL_IS_EMPTY: bool = true;
    const MERGES: bool = true;

    fn prepare(items: &mut [Message], ids: &mut IdSource) {
        ensure_ids(items, ids);
        for item in items.iter_mut().filter(|item| item.is_chunk() && !R::KEEPS_CHUNKS) {
            *item = message_chunk_to_message(std::mem::replace(item, Message::human("")));
        }
    }

    fn item(name: &Arc<str>, value: &Value) -> Result<Message, StateError> {
        let value = value.clone();
        // A map with every field of a message is one; other values may stand for one.
        let message = if Message::is_dump(&value) { value.try_into() } else { MessageLike::from(value).try_into() };
        message.map_err(message_error(name))
    }

    fn as_messages(values: &[Value]) -> Vec<bool> {
        values.iter().map(Message::is_dump).collect()
    }

    fn holds_message(list: &List<Message>, id: &str) -> bool {
        // The clone shares the index.
        list.clone().find(id).is_some()
    }

    fn message_ids(list: &List<Message>, most: usize) -> Option<Vec<String>> {
        (list.len() <= most).then(|| list.iter().filter_map(|message| message.id.clone()).collect())
    }

    fn is_same(old: &Message, new: &Message) -> bool {
        is_same(old, new)
    }

    fn encode(name: &Arc<str>, message: &Message) -> Result<Payload, StateError> {
        message.to_payload().map_err(message_error(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<Message, StateError> {
        Message::from_payload(stored).map_err(message_error(name))
    }
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
    fn update(&self, cell: Cell<'_, List<Message>>, writes: Vec<Vec<Message>>) -> Result<ChannelEffect, ChannelError> {
        let list = cell.value;
        let first_new = list.end_position();
        let mut cut = None;
        let mut changed = BTreeMap::new();
        for (write, messages) in writes.into_iter().enumerate() {
            // Known messages are replaced or removed once each, in the order in which they were found.
            let mut found = Vec::new();
            let known = &mut |id: &str| find(list, id).map(|position| found.push(position)).is_some();
            let plan = merge_plan(messages, known).map_err(|e| ChannelError::Reducer { reason: e.to_string() })?;
            let mut found = found.into_iter();
            for op in plan {
                match op {
                    MergeOp::Append { part, message } => {
                        changed.insert(list.push(message), ListOp::Put { write, part });
                    }
                    MergeOp::Replace { part, message, .. } => {
                        let is_new =
                            |position: &u64| list.at_position(*position).is_none_or(|old| !is_same(old, &message));
                        if let Some(position) = found.next().filter(is_new) {
                            list.replace(position, message);
                            changed.insert(position, ListOp::Put { write, part });
                        }
                    }
                    MergeOp::Remove { id } => {
                        found.next();
                        while let Some(position) = list.find(&id) {
                            list.remove(position);
                            changed.insert(position, ListOp::Delete);
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
        Ok(items_effect(first_new, cut, changed))
    }
}

/// Returns the changes of a list that ended at `first_new` before, and of which everything before `cut` was removed.
fn items_effect(first_new: u64, cut: Option<u64>, mut changed: BTreeMap<u64, ListOp>) -> ChannelEffect {
    // A message that was added and removed within this superstep was never stored.
    changed.retain(|position, op| *op != ListOp::Delete || (*position < first_new && cut.is_none()));
    let cut = cut.map(|end| ListChange { position: 0, op: ListOp::DeleteRange { end } });
    let changed = changed.into_iter().map(|(position, op)| ListChange { position, op });
    ChannelEffect::Items(cut.into_iter().chain(changed).collect())
}

impl MessageRule for MergeMessages {
    const KEEPS_CHUNKS: bool = false;
}

/// Merges messages by id in one pass, as writes come: the rule of a channel of messages that forgives. The removal of
/// an unknown id is ignored, and a message that is removed and added again moves to the end.
pub(super) struct MergeDelta;

impl MessageRule for MergeDelta {
    const KEEPS_CHUNKS: bool = true;
}

impl Channel<List<Message>, Vec<Message>> for MergeDelta {
    fn update(&self, cell: Cell<'_, List<Message>>, writes: Vec<Vec<Message>>) -> Result<ChannelEffect, ChannelError> {
        let list = cell.value;
        let first_new = list.end_position();
        let mut cut = None;
        let mut changed = BTreeMap::new();
        for (write, messages) in writes.into_iter().enumerate() {
            for (part, message) in messages.into_iter().enumerate() {
                if message.is_remove_all() {
                    let end = list.clear();
                    changed.clear();
                    cut = (first_new > 0).then_some(end.min(first_new));
                    continue;
                }
                let known = message.id.as_deref().and_then(|id| find(list, id));
                match (known, message.class() == Some(MessageClass::Remove) && message.id.is_some()) {
                    (Some(position), true) => {
                        list.remove(position);
                        changed.insert(position, ListOp::Delete);
                    }
                    (None, true) => {}
                    (Some(position), false) if list.at_position(position).is_some_and(|old| is_same(old, &message)) => {
                    }
                    (Some(position), false) => {
                        list.replace(position, message);
                        changed.insert(position, ListOp::Put { write, part });
                    }
                    (None, false) => _ = changed.insert(list.push(message), ListOp::Put { write, part }),
                }
            }
        }
        *cell.present = true;
        Ok(items_effect(first_new, cut, changed))
    }
}

/// Returns the position of the message with this id.
fn find(list: &mut List<Message>, id: &str) -> Option<u64> {
    let position = list.find(id)?;
    if let Some(found) = list.at_position(position) {
        // It is about to be compared and dropped, which reads all of it. In a long list it is not in the caches of the
        // CPU: asked for now, its lines come together with its id, and not one after the other when each is needed.
        let maps = [&found.additional_kwargs, &found.response_metadata, &found.extra].map(Map::is_empty);
        std::hint::black_box((found.name.is_some(), found.content.is_empty(), found.class(), found.is_chunk(), maps));
    }
    Some(position)
}

/// Returns whether two messages are stored alike. Equal ones may differ in the order of their members, or in the sign
/// of a zero.
fn is_same(old: &Message, new: &Message) -> bool {
    old == new && matches!((old.to_payload(), new.to_payload()), (Ok(old), Ok(new)) if old == new)
}
