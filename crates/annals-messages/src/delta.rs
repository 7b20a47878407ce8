//! Merging of messages for channels whose writes are saved as they are and reduced again at every read.
//!
//! *Absent:* the channel. Messages must have their ids when they are saved: see [`ensure_message_ids`].

use std::collections::HashMap;

use super::text::truthy;
use super::{Message, MessageError, MessageLike, Role};
use annals_base::{IdSource, Map, Value};

/// Merges writes into messages in one pass: known ids are replaced in place, a removal of an unknown id is ignored, and
/// a message without id is appended as it is. [`REMOVE_ALL_MESSAGES`](super::REMOVE_ALL_MESSAGES) drops all messages
/// before it. Each write is a list of what may stand for a message, or one of those.
/// Merging two batches one after the other is merging both at once.
///
/// # Errors
/// [`MessageError`] if something stands for no message.
///
/// # Example: removed and added again, a message moves to the end
/// ```
/// use annals_messages::{Message, MessageLike, messages_delta_reducer};
///
/// let state = vec![Message::human("a").with_id("1"), Message::ai("b").with_id("2")];
/// let write = vec![Message::remove("1"), Message::human("c").with_id("1")];
/// let merged = messages_delta_reducer(state, [MessageLike::from(write)])?;
/// assert_eq!(merged.iter().map(|m| m.text()).collect::<Vec<_>>(), ["b", "c"]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn messages_delta_reducer(
    state: Vec<Message>,
    writes: impl IntoIterator<Item = MessageLike>,
) -> Result<Vec<Message>, MessageError> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut slots: Vec<Option<Message>> = Vec::with_capacity(state.len());
    for message in state {
        index.extend(message.id.clone().map(|id| (id, slots.len())));
        slots.push(Some(message));
    }
    for (at, write) in writes.into_iter().enumerate() {
        for message in write.into_messages().map_err(|e| e.within(format_args!("writes[{at}]")))? {
            if message.is_remove_all() {
                index.clear();
                slots.clear();
                continue;
            }
            let known = message.id.as_ref().and_then(|id| index.get(id).copied());
            match (&message.id, known) {
                (Some(id), known) if message.role == Role::Remove => {
                    index.remove(id);
                    known.into_iter().for_each(|at| slots[at] = None);
                }
                (_, Some(at)) => slots[at] = Some(message),
                (id, None) => {
                    index.extend(id.clone().map(|id| (id, slots.len())));
                    slots.push(Some(message));
                }
            }
        }
    }
    Ok(slots.into_iter().flatten().collect())
}

/// A write to a channel that is saved as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum DeltaWrite {
    /// To be reduced.
    Write(MessageLike),
    /// Replaces the messages of the channel.
    Overwrite(MessageLike),
}

/// Which reducer the channel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaReducer {
    /// [`messages_delta_reducer`]: all that may stand for a message becomes one with an id.
    Messages,
    /// Another one: whatever is not a message may be something else, so only messages get ids, and objects that are
    /// messages by their role or type.
    Other,
}

/// Gives the messages in a write their ids before it is saved: a message without one could never be named again.
/// Values that are not message-like stay as they are.
///
/// # Errors
/// [`MessageError`] of an object in a list that has the role or type of a message and cannot become one.
///
/// # Example
/// ```
/// use annals_base::IdSource;
/// use annals_messages::{DeltaReducer, DeltaWrite, MessageLike, ensure_message_ids};
///
/// let write = DeltaWrite::Write("hi".into());
/// let stamped = ensure_message_ids(write, DeltaReducer::Messages, &mut IdSource::from_seed(1))?;
/// assert!(matches!(stamped, DeltaWrite::Write(MessageLike::Message(message)) if message.id.is_some()));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn ensure_message_ids(
    write: DeltaWrite,
    reducer: DeltaReducer,
    ids: &mut IdSource,
) -> Result<DeltaWrite, MessageError> {
    let of_messages = reducer == DeltaReducer::Messages;
    Ok(match write {
        DeltaWrite::Overwrite(value) => {
            let each = |item, ids: &mut IdSource| Ok(if of_messages { with_id(item, ids) } else { stamped(item, ids) });
            DeltaWrite::Overwrite(each_item(value, ids, each, |value, _| value)?)
        }
        DeltaWrite::Write(value) => {
            let each = |item: MessageLike, ids: &mut IdSource| match is_message_object(&item) {
                true => Message::try_from(item).map(|message| identified(message, ids)),
                false if of_messages => Ok(with_id(item, ids)),
                false => Ok(stamped(item, ids)),
            };
            let alone = if of_messages { with_id } else { object_with_id };
            DeltaWrite::Write(each_item(value, ids, each, alone)?)
        }
    })
}

/// Changes each item of a list, or what stands alone.
fn each_item(
    value: MessageLike,
    ids: &mut IdSource,
    each: impl Fn(MessageLike, &mut IdSource) -> Result<MessageLike, MessageError>,
    alone: fn(MessageLike, &mut IdSource) -> MessageLike,
) -> Result<MessageLike, MessageError> {
    let items: Vec<MessageLike> = match value {
        MessageLike::List(items) => items,
        MessageLike::Value(Value::List(items)) => items.into_iter().map(MessageLike::Value).collect(),
        one => return Ok(alone(one, ids)),
    };
    let changed = items.into_iter().enumerate();
    let changed = changed.map(|(at, item)| each(item, ids).map_err(|e| e.within(format_args!("[{at}]"))));
    Ok(super::envelope::plain_list(changed.collect::<Result<_, _>>()?))
}

/// A message gets an id if it has none, not even an empty one.
fn stamped(item: MessageLike, ids: &mut IdSource) -> MessageLike {
    match item {
        MessageLike::Message(mut message) => {
            message.id.get_or_insert_with(|| ids.uuid_v4().to_string());
            MessageLike::Message(message)
        }
        other => other,
    }
}

/// A message-like value becomes a message with an id.
fn with_id(item: MessageLike, ids: &mut IdSource) -> MessageLike {
    match item {
        MessageLike::Message(_) => stamped(item, ids),
        other => match Message::try_from(other.clone()) {
            Ok(message) => identified(message, ids),
            Err(_) => other,
        },
    }
}

/// The id of a converted value counts as missing if it is empty.
fn identified(mut message: Message, ids: &mut IdSource) -> MessageLike {
    if message.id.as_deref().is_none_or(str::is_empty) {
        message.id = Some(ids.uuid_v4().to_string());
    }
    message.into()
}

/// An object that is a message gets an id and stays an object.
fn object_with_id(item: MessageLike, ids: &mut IdSource) -> MessageLike {
    match item {
        MessageLike::Value(Value::Map(mut map)) if is_message_map(&map) && !map.get("id").is_some_and(truthy) => {
            map.insert("id".into(), ids.uuid_v4().to_string().into());
            map.into()
        }
        other => stamped(other, ids),
    }
}

fn is_message_object(item: &MessageLike) -> bool {
    matches!(item, MessageLike::Value(Value::Map(map)) if is_message_map(map))
}

/// Returns whether an object has the role or the type of a message.
fn is_message_map(map: &Map) -> bool {
    const ROLES: [&str; 7] = ["user", "human", "assistant", "ai", "tool", "system", "function"];
    const TYPES: [&str; 6] = ["human", "ai", "tool", "system", "function", "remove"];
    let is_one = |name: &str, known: &[&str]| map.get(name).and_then(Value::as_str).is_some_and(|v| known.contains(&v));
    is_one("role", &ROLES) || is_one("type", &TYPES)
}
