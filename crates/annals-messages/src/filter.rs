//! Choosing messages by name, type and id, and leaving tool calls out.
//!
//! *Absent:* choosing by length, see [`trim_messages`](super::trim_messages).

use std::collections::HashSet;

use super::{Content, Message, MessageClass, Role};
use annals_base::Value;

/// Which messages are meant: those whose `type` is a text, or those of a class and the classes below it.
///
/// The text is compared as it is: `"human"` does not mean a chunk, whose `type` is `HumanMessageChunk`;
/// [`MessageClass::Human`] means both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypeFilter {
    /// Messages whose [`kind`](Message::kind) this is.
    Kind(String),
    /// Messages of this class or of its chunks.
    Class(MessageClass),
    /// Every message (`BaseMessage`).
    Any,
    /// Every chunk (`BaseMessageChunk`).
    AnyChunk,
}

impl TypeFilter {
    /// Returns whether the message is meant.
    pub(crate) fn matches(&self, message: &Message) -> bool {
        match self {
            Self::Kind(kind) => message.kind() == kind,
            Self::Class(class) => message.class().is_some_and(|of| of.is_a(*class)),
            Self::Any => true,
            Self::AnyChunk => message.is_chunk(),
        }
    }
}

impl From<&str> for TypeFilter {
    fn from(kind: &str) -> Self {
        Self::Kind(kind.to_owned())
    }
}

impl From<String> for TypeFilter {
    fn from(kind: String) -> Self {
        Self::Kind(kind)
    }
}

impl From<MessageClass> for TypeFilter {
    fn from(class: MessageClass) -> Self {
        Self::Class(class)
    }
}

/// Which messages [`filter_messages`] keeps. Without any criterion it keeps all.
///
/// A message is dropped if any of the exclusions names it. Of the others, those are retained that any of the inclusions
/// names, or all without an inclusion.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FilterOptions {
    /// The names of messages that are included.
    pub include_names: HashSet<String>,
    /// The names of messages that are excluded.
    pub exclude_names: HashSet<String>,
    /// The types or classes of messages that are included.
    pub include_types: Vec<TypeFilter>,
    /// The types or classes of messages that are excluded.
    pub exclude_types: Vec<TypeFilter>,
    /// The ids of messages that are included.
    pub include_ids: HashSet<String>,
    /// The ids of messages that are excluded.
    pub exclude_ids: HashSet<String>,
    exclude_calls: ExcludedCalls,
}

/// Which tool calls are left out.
#[derive(Clone, Debug, Default)]
enum ExcludedCalls {
    #[default]
    None,
    All,
    Ids(HashSet<String>),
}

fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> impl Iterator<Item = String> {
    texts.into_iter().map(Into::into)
}

impl FilterOptions {
    /// Keeps everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops every message of the model that calls a tool, and every result of a tool.
    #[must_use]
    pub fn exclude_tool_calls(mut self) -> Self {
        self.exclude_calls = ExcludedCalls::All;
        self
    }

    /// Leaves the tool calls with these ids out, with their `tool_use` blocks and their results. A message of the model
    /// that has no tool call left is dropped.
    #[must_use]
    pub fn exclude_tool_call_ids<T: Into<String>>(mut self, ids: impl IntoIterator<Item = T>) -> Self {
        match &mut self.exclude_calls {
            ExcludedCalls::All => {}
            ExcludedCalls::Ids(known) => known.extend(texts(ids)),
            calls => *calls = ExcludedCalls::Ids(texts(ids).collect()),
        }
        self
    }

    fn excludes(&self, message: &Message) -> bool {
        let has = |set: &HashSet<String>, text: &Option<String>| text.as_ref().is_some_and(|text| set.contains(text));
        has(&self.exclude_names, &message.name)
            || has(&self.exclude_ids, &message.id)
            || self.exclude_types.iter().any(|filter| filter.matches(message))
    }

    fn includes(&self, message: &Message) -> bool {
        let has = |set: &HashSet<String>, text: &Option<String>| text.as_ref().is_some_and(|text| set.contains(text));
        let all = self.include_names.is_empty() && self.include_types.is_empty() && self.include_ids.is_empty();
        all || has(&self.include_names, &message.name)
            || has(&self.include_ids, &message.id)
            || self.include_types.iter().any(|filter| filter.matches(message))
    }

    /// Returns the message without the calls to be left out, `None` if nothing is left of it.
    fn without_calls(&self, message: &Message) -> Option<Message> {
        match (&self.exclude_calls, &message.role) {
            (ExcludedCalls::All, Role::Tool(_)) => None,
            (ExcludedCalls::All, Role::Ai(ai)) if !ai.tool_calls.is_empty() => None,
            (ExcludedCalls::Ids(ids), Role::Tool(tool)) if ids.contains(&tool.tool_call_id) => None,
            (ExcludedCalls::Ids(ids), Role::Ai(ai)) if !ai.tool_calls.is_empty() => {
                let mut message = message.clone();
                if let Role::Ai(ai) = &mut message.role {
                    ai.tool_calls.retain(|call| !call.id.as_ref().is_some_and(|id| ids.contains(id)));
                    if ai.tool_calls.is_empty() {
                        return None;
                    }
                }
                if let Content::Blocks(blocks) = &mut message.content {
                    blocks.retain(|block| !is_use_of(block, ids));
                }
                Some(message)
            }
            _ => Some(message.clone()),
        }
    }
}

fn is_use_of(block: &Value, ids: &HashSet<String>) -> bool {
    let text = |name| block.get(name).and_then(Value::as_str);
    text("type") == Some("tool_use") && text("id").is_some_and(|id| ids.contains(id))
}

/// Returns copies of the messages that the options keep, in order.
///
/// # Example: what was said, without the tools
/// ```
/// use annals_messages::{FilterOptions, Message, MessageClass, ToolCall, filter_messages};
///
/// let call = ToolCall::new("weather", [("city", "Bern")]).with_id("c1");
/// let messages =
///     [Message::human("How is Bern?"), Message::ai("").with_tool_call(call), Message::tool("rain", "c1"), Message::ai("Wet.")];
/// let said = filter_messages(&messages, &FilterOptions::new().exclude_tool_calls());
/// assert_eq!(said.iter().map(|m| m.text()).collect::<Vec<_>>(), ["How is Bern?", "Wet."]);
/// let mut options = FilterOptions::new();
/// options.include_types.push(MessageClass::Human.into());
/// let asked = filter_messages(&messages, &options);
/// assert_eq!(asked.len(), 1);
/// ```
pub fn filter_messages<'a>(messages: impl IntoIterator<Item = &'a Message>, options: &FilterOptions) -> Vec<Message> {
    let kept = messages.into_iter().filter(|message| !options.excludes(message) && options.includes(message));
    kept.filter_map(|message| options.without_calls(message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn a_tool_call_is_left_out_with_its_block_and_its_result() {
        let block = |id: &str| Value::from(serde_json::json!({"type": "tool_use", "id": id}));
        let answer = Message::ai(Content::Blocks(vec![block("x"), block("y")]))
            .with_tool_call(ToolCall::new("f", [("a", 1)]).with_id("x"))
            .with_tool_call(ToolCall::new("g", [("a", 1)]).with_id("y"));
        let messages = [answer, Message::tool("1", "x"), Message::tool("2", "y")];
        let left = filter_messages(&messages, &FilterOptions::new().exclude_tool_call_ids(["x"]));
        assert_eq!((left.len(), left[0].tool_calls().len()), (2, 1));
        assert_eq!(left[0].content, Content::Blocks(vec![block("y")]));
        assert!(filter_messages(&messages, &FilterOptions::new().exclude_tool_call_ids(["x", "y"])).is_empty());
        assert!(filter_messages(&messages, &FilterOptions::new().exclude_tool_calls()).is_empty());
    }

    #[test]
    fn a_message_is_kept_if_any_inclusion_and_no_exclusion_names_it() {
        let messages = [Message::human("a").with_id("1"), Message::ai("b").with_name("bot"), Message::system("c")];
        let kept = |options: FilterOptions| filter_messages(&messages, &options).len();
        assert_eq!(kept(FilterOptions::new()), 3);
        let mut options = FilterOptions::new();
        options.include_ids.insert("1".into());
        let mut human = options.clone();
        human.exclude_types.push("human".into());
        options.include_names.insert("bot".into());
        assert_eq!((kept(options), kept(human)), (2, 0));
    }
}
