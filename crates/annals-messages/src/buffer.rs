//! A list of messages as one text, for a prompt or a log: `get_buffer_string` of LangChain.
//!
//! *Absent:* the blocks of a message in XML, which are in `buffer_xml`.

use std::str::FromStr;

use super::buffer_xml::write_message;
use super::text::{py_repr, py_str};
use super::{Message, MessageError, Role};
use annals_base::Value;

/// The format of a [buffer string](buffer_string).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BufferFormat {
    /// `Human: hi`
    #[default]
    Prefix,
    /// `<message type="human">hi</message>`
    Xml,
}

impl FromStr for BufferFormat {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        match text {
            "prefix" => Ok(Self::Prefix),
            "xml" => Ok(Self::Xml),
            _ => Err(MessageError::value(format!(
                "Unrecognized format='{text}'. Supported formats are 'prefix' and 'xml'."
            ))),
        }
    }
}

/// How [`buffer_string`] names those who speak, and the form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferOptions {
    /// The name of the user.
    pub human_prefix: String,
    /// The name of the model.
    pub ai_prefix: String,
    /// The name before instructions.
    pub system_prefix: String,
    /// The name before the results of functions.
    pub function_prefix: String,
    /// The name before the results of tools.
    pub tool_prefix: String,
    /// The text between two messages.
    pub message_separator: String,
    /// The format.
    pub format: BufferFormat,
}

impl Default for BufferOptions {
    /// The names that LangChain gives unless told otherwise: `Human`, `AI`, `System`, `Function` and `Tool`, one
    /// message a line.
    fn default() -> Self {
        Self {
            human_prefix: "Human".into(),
            ai_prefix: "AI".into(),
            system_prefix: "System".into(),
            function_prefix: "Function".into(),
            tool_prefix: "Tool".into(),
            message_separator: "\n".into(),
            format: BufferFormat::Prefix,
        }
    }
}

impl BufferOptions {
    fn prefix_of<'a>(&'a self, message: &'a Message) -> Result<&'a str, MessageError> {
        Ok(match &message.role {
            Role::Human => &self.human_prefix,
            Role::Ai(_) => &self.ai_prefix,
            Role::System => &self.system_prefix,
            Role::Function => &self.function_prefix,
            Role::Tool(_) => &self.tool_prefix,
            Role::Chat { role } => role,
            Role::Remove | Role::Other { .. } => {
                return Err(MessageError::value(format!("Got unsupported message type: {}", message.kind())));
            }
        })
    }
}

/// Returns the messages as one text. Its cost grows with the length of the text.
///
/// # Errors
/// [`MessageError`] if there is a removal, or a message of a type that is not known.
///
/// # Example
/// ```
/// use annals_messages::{BufferFormat, BufferOptions, Message, buffer_string};
///
/// let chat = [Message::human("Is 1 < 2?"), Message::ai("Yes.")];
/// let mut options = BufferOptions::default();
/// assert_eq!(buffer_string(&chat, &options)?, "Human: Is 1 < 2?\nAI: Yes.");
/// options.format = BufferFormat::Xml;
/// let xml = buffer_string(&chat, &options)?;
/// assert!(xml.starts_with(r#"<message type="human">Is 1 &lt; 2?</message>"#));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
#[doc(alias = "get_buffer_string")]
pub fn buffer_string<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    options: &BufferOptions,
) -> Result<String, MessageError> {
    let mut out = String::new();
    for (at, message) in messages.into_iter().enumerate() {
        if at > 0 {
            out.push_str(&options.message_separator);
        }
        let prefix = options.prefix_of(message)?;
        match options.format {
            BufferFormat::Prefix => {
                out.push_str(prefix);
                out.push_str(": ");
                out.push_str(&message.text());
                if let Role::Ai(_) = message.role {
                    push_calls(&mut out, message);
                }
            }
            BufferFormat::Xml if matches!(message.role, Role::Chat { .. }) => write_message(&mut out, prefix, message),
            BufferFormat::Xml => write_message(&mut out, &prefix.to_lowercase(), message),
        }
    }
    Ok(out)
}

/// Adds the tool calls of an answer or, if it has none, its call of a function.
fn push_calls(out: &mut String, message: &Message) {
    if !message.tool_calls().is_empty() {
        let calls = message.tool_calls().iter().map(|call| Value::from(call.clone())).collect();
        out.push_str(&py_repr(&Value::List(calls)));
    } else if let Some(call) = message.additional_kwargs.get("function_call") {
        out.push_str(&py_str(call));
    }
}
