//! Adding chunks of a message.
//!
//! *Absent:* adding whole messages, which in LangChain makes a prompt.

use super::Chunk;
use super::places::{BlockPlaces, ItemPlaces};
use crate::{
    Ai, Content, Message, MessageClass, MessageError, MessageLike, Role, Tool, ToolCallChunk, ToolStatus, Usage,
    merge_content, merge_dicts, merge_obj,
};
use annals_base::Map;

/// Ids that LangChain made up, and those which it made of the id of a run.
const AUTO_ID: &str = "lc_";
const RUN_ID: &str = "lc_run-";

impl Message {
    /// Adds chunks to this one: another chunk, or a list of them. Contents grow, objects are merged, chunks of tool
    /// calls with one index join, and token counts are added. Names and extra fields are lost.
    ///
    /// # Errors
    /// [`MessageError`] if one of them is not a chunk, if roles, names or tool calls differ, or if values cannot be
    /// merged.
    ///
    /// # Example: a tool call in two chunks
    /// ```
    /// use annals_messages::{Chunk, Message, ToolCall, ToolCallChunk};
    ///
    /// let chunk = |args: &str| {
    ///     let mut message = Message::ai_chunk("");
    ///     message.chunk = Some(Box::new(Chunk::new([ToolCallChunk::new(0, args)])));
    ///     message
    /// };
    /// let sum = chunk("{\"city\": ").plus(chunk("\"Bern\"}"))?;
    /// assert_eq!(sum.tool_calls(), [ToolCall::new("", [("city", "Bern")])]);
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn plus(self, other: impl Into<MessageLike>) -> Result<Self, MessageError> {
        let other = other.into();
        let class = self.class().filter(|class| class.is_chunk());
        let Some(class) = class else { return Err(unsupported(self.class_name(), other.class_name())) };
        match other {
            MessageLike::Message(other) if other.is_chunk() => add_one(self, class, *other),
            MessageLike::List(items) if items.iter().all(is_chunk_like) => {
                let others: Vec<_> = items.into_iter().filter_map(chunk).collect();
                if class == MessageClass::AiChunk && others.iter().all(is_ai) {
                    return add_ai_message_chunks(self, others);
                }
                add_plain(self, class, others, true)
            }
            MessageLike::Value(annals_base::Value::List(items)) if items.is_empty() => {
                if class == MessageClass::AiChunk {
                    return add_ai_message_chunks(self, []);
                }
                add_plain(self, class, Vec::new(), true)
            }
            MessageLike::Tuple(items) if class == MessageClass::AiChunk && items.iter().all(is_ai_chunk_like) => {
                add_ai_message_chunks(self, items.into_iter().filter_map(chunk))
            }
            other => Err(unsupported(class.name(), other.class_name())),
        }
    }
}

/// Adds chunks of a message of the model. The id is the first that a provider gave, or else the first of a run, or else
/// the first.
///
/// # Errors
/// [`MessageError`] if one of them is not such a chunk, or values cannot be merged.
pub fn add_ai_message_chunks(
    first: Message,
    others: impl IntoIterator<Item = Message>,
) -> Result<Message, MessageError> {
    let mut sum = MergedChunks::new(first)?;
    for other in others {
        sum.add(other)?;
    }
    Ok(sum.into_message())
}

/// Chunks of a message of the model that are merged one by one, without reading the earlier ones again.
#[derive(Clone, Debug)]
pub struct MergedChunks {
    id: Option<String>,
    content: Content,
    additional_kwargs: Map,
    response_metadata: Map,
    usage: Option<Box<Usage>>,
    chunk: Chunk,
    calls: ItemPlaces<i64>,
    blocks: BlockPlaces,
}

impl MergedChunks {
    /// Begins with a chunk.
    ///
    /// # Errors
    /// [`MessageError`] if it is not a chunk of a message of the model.
    pub fn new(message: Message) -> Result<Self, MessageError> {
        match (message.role, message.chunk) {
            (Role::Ai(ai), Some(chunk)) => Ok(Self {
                id: message.id.filter(|id| !id.is_empty()),
                additional_kwargs: message.additional_kwargs,
                response_metadata: message.response_metadata,
                usage: ai.usage,
                calls: places_of(&chunk.tool_call_chunks),
                blocks: BlockPlaces::of(&message.content),
                content: message.content,
                chunk: *chunk,
            }),
            (role, _) => Err(unsupported("AIMessageChunk", role.class().map_or("BaseMessage", MessageClass::name))),
        }
    }

    /// Adds a chunk.
    ///
    /// # Errors
    /// [`MessageError`] if it is not a chunk, or values cannot be merged. The sum is then unchanged.
    pub fn add(&mut self, other: Message) -> Result<(), MessageError> {
        let other = Self::new(other)?;
        let additional_kwargs = merged(&self.additional_kwargs, other.additional_kwargs)?;
        let response_metadata = merged(&self.response_metadata, other.response_metadata)?;
        let usage = match (&self.usage, other.usage) {
            (Some(ours), Some(theirs)) => Some(Box::new(ours.plus(&theirs)?)),
            (_, theirs) => theirs,
        };
        match (&mut self.content, other.content) {
            (Content::Blocks(blocks), Content::Blocks(more)) => self.blocks.merge(blocks, more)?,
            (Content::Text(text), Content::Text(more)) => text.push_str(&more),
            // A text can be added to blocks and blocks to a text; a text has no index.
            (content, more) => {
                let was_text = matches!(content, Content::Text(_));
                *content = merge_content(std::mem::take(content), more)?;
                if was_text {
                    self.blocks = BlockPlaces::of(content);
                }
            }
        }
        self.additional_kwargs.extend(additional_kwargs);
        self.response_metadata.extend(response_metadata);
        self.usage = usage.or(self.usage.take());
        merge_calls(&mut self.chunk.tool_call_chunks, &mut self.calls, other.chunk.tool_call_chunks);
        self.chunk.last |= other.chunk.last;
        if rank(other.id.as_deref()) > rank(self.id.as_deref()) {
            self.id = other.id;
        }
        Ok(())
    }

    /// Returns the sum, which is a chunk itself.
    pub fn into_message(self) -> Message {
        let mut message = Message::new(Role::from(Ai { usage: self.usage, ..Ai::default() }), self.content);
        message.id = self.id;
        message.additional_kwargs = self.additional_kwargs;
        message.response_metadata = self.response_metadata;
        message.chunk = Some(Box::new(self.chunk));
        message.read_raw_chunks();
        message.settle();
        debug_assert_eq!(message.class(), Some(MessageClass::AiChunk), "a sum of chunks is a chunk");
        message
    }
}

fn rank(id: Option<&str>) -> u8 {
    match id {
        None => 0,
        Some(id) if id.starts_with(RUN_ID) => 2,
        Some(id) if id.starts_with(AUTO_ID) => 1,
        Some(_) => 3,
    }
}

/// Chunks with one index and no other id are chunks of one call. Those of the first list are never joined.
fn merge_calls(left: &mut Vec<ToolCallChunk>, places: &mut ItemPlaces<i64>, right: Vec<ToolCallChunk>) {
    for new in right {
        let partner = new.index.and_then(|index| Some((index, places.partner(&index, new.id.as_deref())?)));
        let Some((index, at)) = partner else {
            if let Some(index) = new.index {
                places.push(index, new.id.as_deref(), left.len());
            }
            left.push(new);
            continue;
        };
        let old = &mut left[at];
        grow(&mut old.name, new.name);
        grow(&mut old.args, new.args);
        if old.id != new.id {
            grow(&mut old.id, new.id);
        }
        places.merged(&index, old.id.as_deref(), at);
    }
}

fn places_of(calls: &[ToolCallChunk]) -> ItemPlaces<i64> {
    let mut places = ItemPlaces::default();
    for (at, call) in calls.iter().enumerate() {
        if let Some(index) = call.index {
            places.push(index, call.id.as_deref(), at);
        }
    }
    places
}

fn grow(text: &mut Option<String>, more: Option<String>) {
    match (text, more) {
        (Some(text), Some(more)) => text.push_str(&more),
        (text @ None, more) => *text = more,
        (Some(_), None) => {}
    }
}

/// Returns the members of `left` that `right` changes or adds.
fn merged(left: &Map, right: Map) -> Result<Map, MessageError> {
    let changed = right.keys().filter_map(|name| Some((name.clone(), left.get(name)?.clone()))).collect();
    merge_dicts(changed, right)
}

fn merge_into(left: &mut Map, right: Map) -> Result<(), MessageError> {
    *left = merge_dicts(std::mem::take(left), right)?;
    Ok(())
}

fn add_one(left: Message, class: MessageClass, other: Message) -> Result<Message, MessageError> {
    let differ = |what: &str| Err(MessageError::value(format!("Cannot concatenate {what}.")));
    let role = match (&left.role, &other.role) {
        (Role::Ai(_), Role::Ai(_)) => return add_ai_message_chunks(left, [other]),
        (Role::Chat { role: ours }, Role::Chat { role: theirs }) if ours != theirs => {
            return differ("ChatMessageChunks with different roles");
        }
        (Role::Chat { role }, _) => Role::Chat { role: role.clone() },
        (Role::Function, Role::Function) if left.name != other.name => {
            return differ("FunctionMessageChunks with different names");
        }
        (Role::Function, Role::Function) => Role::Function,
        (Role::Tool(ours), Role::Tool(theirs)) if ours.tool_call_id != theirs.tool_call_id => {
            return differ("ToolMessageChunks with different names");
        }
        (Role::Tool(ours), Role::Tool(theirs)) => add_tools(ours, theirs)?.into(),
        _ => return add_plain(left, class, vec![other], false),
    };
    let name = left.name.clone().filter(|_| role == Role::Function);
    let id = left.id.clone();
    let mut sum = Message::new(role, "").into_chunk();
    fill(&mut sum, left, vec![other])?;
    (sum.id, sum.name) = (id, name);
    debug_assert!(sum.is_chunk(), "a sum of chunks is a chunk");
    Ok(sum)
}

fn add_tools(ours: &Tool, theirs: &Tool) -> Result<Tool, MessageError> {
    let mut sum = Tool::new(ours.tool_call_id.as_str());
    sum.artifact = merge_obj(ours.artifact.clone(), theirs.artifact.clone()).map_err(|e| e.within("artifact"))?;
    let failed = [ours, theirs].iter().any(|tool| tool.status == ToolStatus::Error);
    sum.status = if failed { ToolStatus::Error } else { ToolStatus::Success };
    Ok(sum)
}

/// Fields without a rule of their own: those that only the left class has are not carried over, and missed if they must
/// be there.
fn add_plain(left: Message, class: MessageClass, others: Vec<Message>, is_list: bool) -> Result<Message, MessageError> {
    let role = match class {
        MessageClass::HumanChunk => Role::Human,
        MessageClass::SystemChunk => Role::System,
        MessageClass::AiChunk => Role::from(Ai::default()),
        MessageClass::ToolChunk => return Err(MessageError::key("a tool message", "tool_call_id")),
        MessageClass::FunctionChunk => return Err(MessageError::missing("a function message", "name")),
        _ if is_list => return Err(MessageError::missing("a chat message", "role")),
        _ => return Err(unsupported(class.name(), "BaseMessage")),
    };
    let id = left.id.clone();
    let mut sum = Message::new(role, "").into_chunk();
    fill(&mut sum, left, others)?;
    sum.id = id;
    sum.read_raw_chunks();
    sum.settle();
    Ok(sum)
}

/// Sets what every sum has.
fn fill(sum: &mut Message, left: Message, others: Vec<Message>) -> Result<(), MessageError> {
    sum.content = left.content;
    sum.additional_kwargs = left.additional_kwargs;
    sum.response_metadata = left.response_metadata;
    for other in others {
        sum.content = merge_content(std::mem::take(&mut sum.content), other.content)?;
        merge_into(&mut sum.additional_kwargs, other.additional_kwargs)?;
        merge_into(&mut sum.response_metadata, other.response_metadata)?;
    }
    Ok(())
}

fn unsupported(left: &str, right: &str) -> MessageError {
    MessageError::wrong_type(format!("unsupported operand type(s) for +: \"{left}\" and \"{right}\""))
}

fn is_ai(message: &Message) -> bool {
    message.class() == Some(MessageClass::AiChunk)
}

fn is_chunk_like(like: &MessageLike) -> bool {
    matches!(like, MessageLike::Message(message) if message.is_chunk())
}

fn is_ai_chunk_like(like: &MessageLike) -> bool {
    matches!(like, MessageLike::Message(message) if is_ai(message))
}

fn chunk(like: MessageLike) -> Option<Message> {
    match like {
        MessageLike::Message(message) => Some(*message),
        _ => None,
    }
}
