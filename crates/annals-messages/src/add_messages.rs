//! `add_messages` of LangGraph with all that it accepts.
//!
//! *Absent:* the list of a channel, which is merged by a plan (`reduce`).

use super::reduce::merge_messages;
use super::{Message, MessageError, MessageLike, OpenAiOptions, convert_to_messages, convert_to_openai_messages};
use annals_base::{IdSource, Value};

/// The only format that `add_messages` knows.
const OPENAI: &str = "langchain-openai";

/// Merges `right` into `left`, each a list of what may stand for a message, or one of those: known ids are replaced in
/// place, removals are carried out, the others are appended.
///
/// Chunks of messages become whole first, and missing ids are assigned, those of `left` before those of `right`. If
/// `right` asks to remove all messages, the result is what follows the last such request, unmerged. Of several messages
/// with one id in `left`, the last is replaced and all are removed.
///
/// `format` is that of the result: `langchain-openai` converts the contents to the blocks of OpenAI, tool results
/// become messages of their own, and ids and metadata are lost. `None` and an empty text convert nothing.
///
/// # Errors
/// [`MessageError::UnknownId`] if a removal names an id that is neither in `left` nor earlier in `right`;
/// [`MessageError`] if one of them is null, something stands for no message, a removal names no message, or the format
/// is unknown. A request to remove all messages comes before the format: then it is not looked at.
///
/// # Example: replace one message, append another
/// ```
/// use annals_base::IdSource;
/// use annals_messages::{Message, add_messages};
///
/// let left = vec![Message::human("helo").with_id("1"), Message::ai("?").with_id("2")];
/// let right = vec![Message::human("hello").with_id("1"), Message::ai("hi")];
/// let merged = add_messages(left, right, None, &mut IdSource::from_seed(1))?;
/// let texts: Vec<_> = merged.iter().map(|m| m.text()).collect();
/// assert_eq!(texts, ["hello", "?", "hi"]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
///
/// # Example: a text joins a list
/// ```
/// use annals_base::IdSource;
/// use annals_messages::{Message, add_messages};
///
/// let list = vec![Message::human("hi").with_id("1")];
/// let merged = add_messages(list, "are you there?", None, &mut IdSource::from_seed(1))?;
/// assert_eq!(merged[1].text(), "are you there?");
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn add_messages(
    left: impl Into<MessageLike>,
    right: impl Into<MessageLike>,
    format: Option<&str>,
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
    let merged = merge_messages(left, right, ids)?;
    match format {
        _ if is_removed => Ok(merged),
        None | Some("") => Ok(merged),
        Some(OPENAI) => in_openai_format(merged),
        Some(other) => {
            Err(MessageError::value(format!("Unrecognized format='{other}'. Expected one of '{OPENAI}', None.")))
        }
    }
}

/// Fields of the messages in the format of OpenAI's API.
fn in_openai_format(messages: Vec<Message>) -> Result<Vec<Message>, MessageError> {
    convert_to_messages(convert_to_openai_messages(&messages, &OpenAiOptions::default())?)
}
