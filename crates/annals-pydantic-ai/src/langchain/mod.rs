//! The mapping between PydanticAI's messages and LangChain's, without loss in either direction.
//!
//! Data without a counterpart on the other side goes under the key `pydantic_ai`: of the `additional_kwargs` of a
//! message, of the `extras` of a block. A message that was born in LangChain leaves a record in the metadata of the
//! PydanticAI message, which says what making it anew would get wrong; it holds while the parts are not edited.
//! *Absent:* chunks; they become whole messages.
//!
//! Invariants: `from_langchain(to_langchain(m)) == m`, and `to_langchain(from_langchain(l)) == l` while nothing is
//! edited.

mod block_in;
mod block_out;
mod record;
mod request_in;
mod request_out;
mod response_in;
mod response_out;
mod usage;

use super::error::LoadError;
use super::history::{ModelMessage, from_value};
use super::wire::{Wire, object_of};
use annals_base::DefaultSource;
use annals_base::{Map, Value};
use annals_messages::{Message, MessageError};

/// The key of data without a counterpart in LangChain.
const KEY: &str = "pydantic_ai";
/// The key of the metadata for data without a counterpart in PydanticAI.
const LANGCHAIN: &str = "langchain";

/// Makes an object of members.
fn object<const N: usize>(mut members: [(&str, Value); N]) -> Map {
    object_of(&mut members)
}

/// Adds the member unless it is as `default`.
fn put_unless(map: &mut Map, name: &str, value: Value, default: &Value) {
    if value != *default {
        map.insert(name.to_owned(), value);
    }
}

/// Adds the field unless it is `None`.
fn put_some<T: Wire>(map: &mut Map, name: &str, value: Option<&T>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value.write());
    }
}

fn member<'a>(map: &'a Map, name: &str) -> &'a Value {
    map.get(name).unwrap_or(&Value::Null)
}

/// Turns a history into messages of LangChain. A request becomes one message for each part that a model sees, a
/// response one message. With `instructions_as_system`, the instructions in force come first as a system message, which
/// the way back leaves out.
///
/// # Errors
/// [`MessageError`] if a record in the metadata, left by [`from_langchain`], was changed and does not give a message.
///
/// # Example: there and back
/// ```
/// use annals_base::{IdSource, SystemClock};
/// use annals_pydantic_ai::{
///     DefaultSource, ModelRequest, UserPromptPart, from_langchain, to_langchain,
/// };
///
/// let mut ids = IdSource::from_seed(1);
/// let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
/// let prompt = UserPromptPart::new("What is the weather in Bern?", defaults.now().into());
/// let history = vec![ModelRequest::new(vec![prompt.into()]).into()];
/// let messages = to_langchain(&history, false)?;
/// assert_eq!(messages[0].text(), "What is the weather in Bern?");
/// assert_eq!(from_langchain(&messages, &mut defaults)?, history);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_langchain(messages: &[ModelMessage], instructions_as_system: bool) -> Result<Vec<Message>, MessageError> {
    let mut out = Vec::with_capacity(messages.len());
    if instructions_as_system {
        let in_force = messages.iter().rev().find_map(|message| match message {
            ModelMessage::Request(request) => request.instructions.as_ref().filter(|text| !text.is_empty()),
            ModelMessage::Response(_) => None,
        });
        if let Some(text) = in_force {
            let envelope = object([("v", 1.into()), ("role", "instructions".into())]);
            out.push(with_envelope(Message::system(text.as_str()), envelope));
        }
    }
    for message in messages {
        match (regenerated(message), record::of(message)) {
            (made, Some(records)) if records.len() == made.len() => {
                for (made, record) in made.iter().zip(records) {
                    out.push(record::restore(record::sparse(made), record)?);
                }
            }
            (made, _) => out.extend(made),
        }
    }
    Ok(out)
}

/// Returns the messages that stand for one, ignoring the record of a message of LangChain.
fn regenerated(message: &ModelMessage) -> Vec<Message> {
    match message {
        ModelMessage::Request(request) => request_out::messages(request),
        ModelMessage::Response(response) => vec![response_out::message(response)],
    }
}

fn with_envelope(mut message: Message, envelope: Map) -> Message {
    message.additional_kwargs = object([(KEY, envelope.into())]);
    message
}

/// Turns messages of LangChain into a history. Messages that came from PydanticAI return to their first shape; of
/// others, consecutive ones that are not the model's form one request, with the present time as its timestamp.
///
/// # Errors
/// [`LoadError`] if what stands under `pydantic_ai` in a message is not what [`to_langchain`] writes; it names the
/// place in the history.
pub fn from_langchain(messages: &[Message], defaults: &mut DefaultSource<'_>) -> Result<Vec<ModelMessage>, LoadError> {
    let messages = messages.iter().map(|message| (false, message));
    Ok(from_langchain_marked(messages, [].iter(), defaults)?.into_iter().map(|(_, message)| message).collect())
}

/// As [`from_langchain`], of messages with a mark; where that changes, a message of its own begins. Calls that none of
/// them made are looked for among those `before` them.
///
/// # Errors
/// As [`from_langchain`].
pub fn from_langchain_marked<'a>(
    messages: impl Iterator<Item = (bool, &'a Message)>,
    before: impl DoubleEndedIterator<Item = &'a Message> + Clone,
    defaults: &mut DefaultSource<'_>,
) -> Result<Vec<(bool, ModelMessage)>, LoadError> {
    let now = crate::DateTime::from(defaults.now()).write();
    let tool_of = |id: &str| before.clone().rev().find_map(|message| request_in::tool_of(&record::sparse(message), id));
    let mut reading = request_in::HistoryBuilder::new(now, defaults, &tool_of);
    messages.for_each(|(mark, message)| reading.push(mark, record::sparse(message)));
    let (marks, history, originals) = reading.finish();
    let mut history = from_value(Value::List(history), defaults)?;
    debug_assert_eq!(marks.len(), history.len(), "each message has a mark");
    debug_assert_eq!(originals.len(), history.len(), "each message has its originals, if any");
    for (message, originals) in history.iter_mut().zip(originals) {
        if let Some(originals) = originals {
            let made: Vec<Map> = regenerated(message).iter().map(record::sparse).collect();
            record::write(message, &originals, &made);
        }
    }
    Ok(marks.into_iter().zip(history).collect())
}
