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
pub struct BufferOptions {
    human: String,
    ai: String,
    system: String,
    function: String,
    tool: String,
    separator: String,
    format: BufferFormat,
}

impl Default for BufferOptions {
    /// `Human`, `AI`, `System`, `Function` and `Tool`, one message a line.
    fn default() -> Self {
        Self {
            human: "Human".into(),
            ai: "AI".into(),
            system: "System".into(),
            function: "Function".into(),
            tool: "Tool".into(),
            separator: "\n".into(),
            format: BufferFormat::Prefix,
        }
    }
}

impl BufferOptions {
    /// Names them as LangChain does unless told otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the user.
    #[must_use]
    pub fn human_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.human = prefix.into();
        self
    }

    /// Sets the name of the model.
    #[must_use]
    pub fn ai_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.ai = prefix.into();
        self
    }

    /// Sets the name before instructions.
    #[must_use]
    pub fn system_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.system = prefix.into();
        self
    }

    /// Sets the name before the results of functions.
    #[must_use]
    pub fn function_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.function = prefix.into();
        self
    }

    /// Sets the name before the results of tools.
    #[must_use]
    pub fn tool_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.tool = prefix.into();
        self
    }

    /// Sets what stands between two messages.
    #[must_use]
    pub fn message_separator(mut self, separator: impl Into<String>) -> Self {
        self.separator = separator.into();
        self
    }

    /// Sets the form.
    #[must_use]
    pub fn format(mut self, format: BufferFormat) -> Self {
        self.format = format;
        self
    }

    fn prefix_of<'a>(&'a self, message: &'a Message) -> Result<&'a str, MessageError> {
        Ok(match &message.role {
            Role::Human => &self.human,
            Role::Ai(_) => &self.ai,
            Role::System => &self.system,
            Role::Function => &self.function,
            Role::Tool(_) => &self.tool,
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
/// assert_eq!(buffer_string(&chat, &BufferOptions::new())?, "Human: Is 1 < 2?\nAI: Yes.");
/// let xml = buffer_string(&chat, &BufferOptions::new().format(BufferFormat::Xml))?;
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
            out.push_str(&options.separator);
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
