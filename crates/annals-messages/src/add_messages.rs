//! `add_messages` of LangGraph with all that it accepts.
//!
//! *Absent:* the list of a channel, which is merged by a plan (`reduce`).

use super::{
    Message, MessageError, MessageLike, OpenAiOptions, add_messages, convert_to_messages, convert_to_openai_messages,
};
use annals_base::{IdSource, Value};

/// The only format that `add_messages` knows.
const OPENAI: &str = "langchain-openai";

/// `add_messages` as a reducer: it takes message-like values, and gives messages in a format.
///
/// # Example: a list, and one text that joins it
/// ```
/// use annals_base::IdSource;
/// use annals_messages::{AddMessages, Message};
///
/// let list = vec![Message::human("hi").with_id("1")];
/// let merged = AddMessages::new().merge(list, "are you there?", &mut IdSource::from_seed(1))?;
/// assert_eq!(merged[1].text(), "are you there?");
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddMessages {
    format: Option<String>,
}

impl AddMessages {
    /// Returns the reducer without a format.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the format of the result: `langchain-openai`, which converts the contents to the blocks of OpenAI, tool
    /// results become messages of their own, and ids and metadata are lost; or none, if the text is empty.
    #[must_use]
    pub fn with_format(mut self, format: impl Into<String>) -> Self {
        self.format = Some(format.into());
        self
    }

    /// Merges `right` into `left`, as [`add_messages`] does. Each is a list of what may stand for a message, or one of
    /// those.
    ///
    /// # Errors
    /// [`MessageError`] if one of them is null, something stands for no message, a removal names no message, or the
    /// format is unknown. A request to remove all messages comes before the format: then it is not looked at.
    pub fn merge(
        &self,
        left: impl Into<MessageLike>,
        right: impl Into<MessageLike>,
        ids: &mut IdSource,
    ) -> Result<Vec<Message>, MessageError> {
        let (left, right) = (left.into(), right.into());
        let is_null = |like: &MessageLike| *like == MessageLike::Value(Value::Null);
        if is_null(&left) || is_null(&right) {
            let given = if left.is_truthy() { "left" } else { "right" };
            return Err(MessageError::value(format!(
                "Must specify non-null arguments for both 'left' and 'right'. Only received: '{given}'."
            )));
        }
        let left = left.into_messages().map_err(|e| e.within("left"))?;
        let right = right.into_messages().map_err(|e| e.within("right"))?;
        let is_removed = right.iter().any(Message::is_remove_all);
        let merged = add_messages(left, right, ids)?;
        match self.format.as_deref() {
            _ if is_removed => Ok(merged),
            None | Some("") => Ok(merged),
            Some(OPENAI) => in_openai_format(merged),
            Some(other) => {
                Err(MessageError::value(format!("Unrecognized format='{other}'. Expected one of '{OPENAI}', None.")))
            }
        }
    }
}

/// Fields of the messages in the format of OpenAI's API.
fn in_openai_format(messages: Vec<Message>) -> Result<Vec<Message>, MessageError> {
    convert_to_messages(convert_to_openai_messages(&messages, &OpenAiOptions::default())?)
}
