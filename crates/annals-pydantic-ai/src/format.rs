//! PydanticAI's requests and responses as a format of `annals_messages`. *Absent:* the conversion of one message.

use annals_base::{DefaultSource, Value};
use annals_messages::{FormatOutput, FormatWriter, Message, MessageError, MessageFormat, Role};

use crate::{LoadError, from_langchain, from_value, to_langchain, to_value};

/// PydanticAI's requests and responses, `{"kind": "request", "parts": [..]}`, older shapes included. One of them is one
/// message of LangChain or several, by the mapping of [`to_langchain`] and [`from_langchain`].
///
/// # Example
/// ```
/// use annals_base::{DefaultSource, IdSource, SystemClock};
/// use annals_messages::{Message, MessageFormat};
/// use annals_pydantic_ai::PydanticAiFormat;
///
/// let mut ids = IdSource::new();
/// let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
/// let mut writer = PydanticAiFormat.writer();
/// assert!(writer.push(Message::human("hi"), &mut defaults).items.is_empty());
/// let written = writer.finish(&mut defaults);
/// assert_eq!(written.items[0].get("kind").and_then(|kind| kind.as_str()), Some("request"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PydanticAiFormat;

impl MessageFormat for PydanticAiFormat {
    fn name(&self) -> &'static str {
        "pydantic-ai"
    }

    fn read(&self, item: Value, defaults: &mut DefaultSource<'_>) -> Result<Vec<Message>, MessageError> {
        to_langchain(&from_value(Value::List(vec![item]), defaults).map_err(message_error)?, false)
    }

    fn writer(&self) -> Box<dyn FormatWriter> {
        Box::new(PydanticAiWriter { position: 0, group: Vec::new() })
    }
}

fn message_error(error: LoadError) -> MessageError {
    MessageError::value(error.to_string())
}

#[derive(Debug)]
struct PydanticAiWriter {
    /// The position of the next message.
    position: u64,
    /// Messages that are not written yet, because the next ones may belong to the same response.
    group: Vec<Message>,
}

impl FormatWriter for PydanticAiWriter {
    fn push(&mut self, message: Message, defaults: &mut DefaultSource<'_>) -> FormatOutput {
        let mut written = FormatOutput::default();
        // A response begins a group: a result finds the name of its tool in the response before it.
        if message.opaque_item().is_some() || matches!(message.role, Role::Ai(_) | Role::Remove | Role::Other { .. }) {
            written = self.finish(defaults);
        }
        if let Some(item) = message.opaque_item() {
            written.items.push(item.clone());
        } else if matches!(message.role, Role::Remove | Role::Other { .. }) {
            let reason = format!("PydanticAI has no message of the type {:?}", message.kind());
            written.refused.push((self.position, MessageError::value(reason)));
        } else {
            written.left_out.extend(message.is_chunk().then_some("chunk"));
            written.left_out.extend((message.role == Role::Function).then_some("class"));
            self.group.push(message);
        }
        self.position += 1;
        written
    }

    fn finish(&mut self, defaults: &mut DefaultSource<'_>) -> FormatOutput {
        let group = std::mem::take(&mut self.group);
        let mut written = FormatOutput::default();
        let mut write = |group: &[Message]| -> Result<(), LoadError> {
            if let Value::List(items) = to_value(&from_langchain(group, defaults)?) {
                written.items.extend(items);
            }
            Ok(())
        };
        if write(&group).is_ok() {
            return written;
        }
        // One of them cannot be converted: each is tried by itself.
        let first = self.position - group.len() as u64;
        let mut refused = Vec::new();
        for (position, message) in (first..).zip(&group) {
            if let Err(error) = write(std::slice::from_ref(message)) {
                refused.push((position, message_error(error)));
            }
        }
        written.refused = refused;
        written
    }
}
