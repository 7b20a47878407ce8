//! A message taken apart for a store: what an index wants to see, and the rest as bytes.
//!
//! *Absent:* the store. The rest is a MessagePack map that holds only what differs from its default and is in no other
//! part, so that a plain answer costs its text and its id.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::construct::{object_or_empty, take_ai};
use super::parts_text::{StoredBlocks, rejoin};
use super::tool::{list, string};
use super::{
    Ai, Chunk, Content, InvalidToolCall, Message, MessageClass, MessageError, Role, Tool, ToolCall, ToolCallChunk,
    ToolStatus, Usage,
};
use annals_base::value::{CodecError, decode_bytes};
use annals_base::{Codec, Encoded, Map, Value};

/// A message in parts.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageParts {
    /// The id.
    pub id: Option<String>,
    /// The type: `human`, `ai`, ...
    pub kind: String,
    /// The name of who speaks.
    pub name: Option<String>,
    /// The ids of the tool calls made or answered, as the text of a JSON list; none if there is no such id.
    pub tool_calls: Option<String>,
    /// The content, if it is a text; of blocks their texts, joined as [`Content::text`] does.
    pub text: Option<String>,
    /// Tokens read, if both counts are known and fit.
    pub input_tokens: Option<u32>,
    /// Tokens written, if both counts are known and fit.
    pub output_tokens: Option<u32>,
    /// A MessagePack map of what the other parts do not hold; empty if there is nothing.
    pub rest: Vec<u8>,
}

/// [`MessageParts`], borrowed: joining copies only what the message itself holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MessagePartsRef<'a> {
    /// The id.
    pub id: Option<&'a str>,
    /// The type: `human`, `ai`, ...
    pub kind: &'a str,
    /// The name of who speaks.
    pub name: Option<&'a str>,
    /// The ids of the tool calls made or answered, as the text of a JSON list.
    pub tool_calls: Option<&'a str>,
    /// The content, if it is a text; of blocks their texts, joined.
    pub text: Option<&'a str>,
    /// Tokens read.
    pub input_tokens: Option<u32>,
    /// Tokens written.
    pub output_tokens: Option<u32>,
    /// The rest.
    pub rest: &'a [u8],
}

impl<'a> From<&'a MessageParts> for MessagePartsRef<'a> {
    fn from(parts: &'a MessageParts) -> Self {
        Self {
            id: parts.id.as_deref(),
            kind: &parts.kind,
            name: parts.name.as_deref(),
            tool_calls: parts.tool_calls.as_deref(),
            text: parts.text.as_deref(),
            input_tokens: parts.input_tokens,
            output_tokens: parts.output_tokens,
            rest: &parts.rest,
        }
    }
}

impl Message {
    /// Takes the message apart.
    ///
    /// # Errors
    /// [`MessageError::Codec`] if the rest is longer than a stored value may be.
    ///
    /// # Example: a plain answer is its id and its text
    /// ```
    /// use annals_messages::Message;
    ///
    /// let answer = Message::ai("hello").with_id("m1");
    /// let parts = answer.split()?;
    /// assert_eq!((parts.kind.as_str(), parts.text.as_deref()), ("ai", Some("hello")));
    /// assert!(parts.rest.is_empty());
    /// assert_eq!(Message::join(&parts)?, answer);
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn split(&self) -> Result<MessageParts, MessageError> {
        let (rest, text) = Rest::of(self);
        let tokens = rest.tokens();
        Ok(MessageParts {
            id: self.id.clone(),
            kind: self.kind().to_owned(),
            name: self.name.clone(),
            tool_calls: self.call_ids()?,
            text,
            input_tokens: tokens.map(|t| t.0),
            output_tokens: tokens.map(|t| t.1),
            rest: if rest.len() == 0 { Vec::new() } else { Encoded::encode(&rest)?.bytes },
        })
    }

    /// Puts a message together again. Names in the rest that this version does not know become extra fields.
    ///
    /// # Errors
    /// [`MessageError`] if the parts do not come from [`split`](Self::split).
    pub fn join<'a>(parts: impl Into<MessagePartsRef<'a>>) -> Result<Self, MessageError> {
        let parts = parts.into();
        if let Some(plain) = join_plain(&parts) {
            return Ok(plain);
        }
        let mut rest = match parts.rest {
            [] => Map::new(),
            bytes => decode_rest(bytes)?,
        };
        let content = match (parts.text, rest.shift_remove("content")) {
            (Some(text), None) => Content::from(text),
            (Some(text), Some(blocks)) => rejoin(blocks, text)?.try_into()?,
            (None, Some(blocks)) => blocks.try_into()?,
            (None, None) => Content::default(),
        };
        let class = MessageClass::of_kind(parts.kind);
        let role = match class.map(MessageClass::whole) {
            Some(MessageClass::Human) => Role::Human,
            Some(MessageClass::Ai) => join_ai(&parts, &mut rest)?.into(),
            Some(MessageClass::Tool) => join_tool(&parts, &mut rest)?.into(),
            Some(MessageClass::System) => Role::System,
            Some(MessageClass::Function) => Role::Function,
            Some(MessageClass::Chat) => {
                Role::Chat { role: string("role", rest.shift_remove("role").unwrap_or_else(|| "".into()))? }
            }
            Some(MessageClass::Remove) => Role::Remove,
            _ => Role::Other { kind: parts.kind.to_owned() },
        };
        let chunk = match class.filter(|class| class.is_chunk()) {
            Some(_) => Some(Box::new(join_chunk(&mut rest)?)),
            None => None,
        };
        let mut message = Self::new(role, content);
        message.id = parts.id.map(str::to_owned);
        message.name = parts.name.map(str::to_owned);
        message.chunk = chunk;
        if !rest.is_empty() {
            message.additional_kwargs = object_or_empty("additional_kwargs", &mut rest)?;
            message.response_metadata = object_or_empty("response_metadata", &mut rest)?;
            message.extra = object_or_empty("extra", &mut rest)?;
            message.extra.extend(rest);
        }
        Ok(message)
    }

    fn call_ids(&self) -> Result<Option<String>, MessageError> {
        let ids: Vec<&str> = match &self.role {
            Role::Ai(ai) => ai.tool_calls.iter().filter_map(|call| call.id.as_deref()).collect(),
            Role::Tool(tool) => vec![&tool.tool_call_id],
            _ => return Ok(None),
        };
        if ids.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(&ids).map_err(|e| CodecError::Encode { reason: e.to_string() })?;
        Ok(Some(text))
    }
}

/// Most messages say something and that is all: they need no maps.
fn join_plain(parts: &MessagePartsRef<'_>) -> Option<Message> {
    let counted = parts.input_tokens.is_some() || parts.output_tokens.is_some();
    if !parts.rest.is_empty() || parts.tool_calls.is_some() || counted {
        return None;
    }
    let role = match parts.kind {
        "human" => Role::Human,
        "ai" => Ai::default().into(),
        "system" => Role::System,
        _ => return None,
    };
    let mut message = Message::new(role, Content::from(parts.text.unwrap_or_default()));
    message.id = parts.id.map(str::to_owned);
    message.name = parts.name.map(str::to_owned);
    Some(message)
}

/// What the other parts do not hold, borrowed from the message. Absent is what equals its default.
struct Rest<'a> {
    content: Option<StoredBlocks<'a>>,
    ai: Option<&'a Ai>,
    tool: Option<&'a Tool>,
    role: Option<&'a str>,
    chunk: Option<&'a Chunk>,
    maps: [(&'static str, &'a Map); 3],
}

impl<'a> Rest<'a> {
    /// Returns the rest of a message, and its text, which is a part of its own.
    fn of(message: &'a Message) -> (Self, Option<String>) {
        let (content, text) = match &message.content {
            Content::Text(text) => (None, Some(text.clone())),
            Content::Blocks(blocks) => {
                let (stored, text) = StoredBlocks::of(blocks);
                (Some(stored), text)
            }
        };
        let (ai, tool, role) = match &message.role {
            Role::Ai(ai) => (Some(&**ai), None, None),
            Role::Tool(tool) => (None, Some(&**tool), None),
            Role::Chat { role } => (None, None, Some(role.as_str()).filter(|role| !role.is_empty())),
            _ => (None, None, None),
        };
        let maps = [
            ("additional_kwargs", &message.additional_kwargs),
            ("response_metadata", &message.response_metadata),
            ("extra", &message.extra),
        ];
        (Self { content, ai, tool, role, chunk: message.chunk.as_deref(), maps }, text)
    }

    /// Returns the counts that are a part of their own.
    fn tokens(&self) -> Option<(u32, u32)> {
        let usage = self.ai?.usage.as_ref()?;
        Some((usage.input_tokens.try_into().ok()?, usage.output_tokens.try_into().ok()?))
    }

    fn usage(&self) -> Option<RestUsage<'a>> {
        let usage = self.ai?.usage.as_deref()?;
        let own = self.tokens().is_none();
        let sum = usage.input_tokens.saturating_add(usage.output_tokens);
        let counts = [own, own, usage.total_tokens != sum];
        let rest = RestUsage { usage, counts };
        // Counts that are no parts are written even if they are zero: they tell that there is a usage at all.
        (rest.len() > 0).then_some(rest)
    }

    fn calls(&self) -> &'a [ToolCall] {
        self.ai.map_or(&[], |ai| &ai.tool_calls)
    }

    fn invalid_calls(&self) -> &'a [InvalidToolCall] {
        self.ai.map_or(&[], |ai| &ai.invalid_tool_calls)
    }

    fn artifact(&self) -> Option<&'a Value> {
        self.tool.map(|tool| &tool.artifact).filter(|artifact| !artifact.is_null())
    }

    fn status(&self) -> Option<ToolStatus> {
        self.tool.map(|tool| tool.status).filter(|status| *status != ToolStatus::default())
    }

    fn call_chunks(&self) -> &'a [ToolCallChunk] {
        self.chunk.map_or(&[], |chunk| &chunk.tool_call_chunks)
    }

    fn is_last(&self) -> bool {
        self.chunk.is_some_and(|chunk| chunk.last)
    }

    fn len(&self) -> usize {
        let own = [
            self.content.is_some(),
            !self.calls().is_empty(),
            !self.invalid_calls().is_empty(),
            self.usage().is_some(),
            self.artifact().is_some(),
            self.status().is_some(),
            self.role.is_some(),
            !self.call_chunks().is_empty(),
            self.is_last(),
        ];
        own.into_iter().filter(|present| *present).count() + self.maps.iter().filter(|(_, map)| !map.is_empty()).count()
    }
}

impl Serialize for Rest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.len()))?;
        if let Some(content) = &self.content {
            out.serialize_entry("content", content)?;
        }
        if !self.calls().is_empty() {
            out.serialize_entry("tool_calls", &self.calls().iter().map(RestCall).collect::<Vec<_>>())?;
        }
        if !self.invalid_calls().is_empty() {
            out.serialize_entry("invalid_tool_calls", self.invalid_calls())?;
        }
        if let Some(usage) = self.usage() {
            out.serialize_entry("usage_metadata", &usage)?;
        }
        if let Some(artifact) = self.artifact() {
            out.serialize_entry("artifact", artifact)?;
        }
        if let Some(status) = self.status() {
            out.serialize_entry("status", &status)?;
        }
        if let Some(role) = self.role {
            out.serialize_entry("role", role)?;
        }
        if !self.call_chunks().is_empty() {
            out.serialize_entry("tool_call_chunks", self.call_chunks())?;
        }
        if self.is_last() {
            out.serialize_entry("last", &true)?;
        }
        for (name, map) in self.maps.iter().filter(|(_, map)| !map.is_empty()) {
            out.serialize_entry(name, map)?;
        }
        out.end()
    }
}

/// A tool call without its id, which is in the list of ids; an `id` of null says that there is none there.
struct RestCall<'a>(&'a ToolCall);

impl Serialize for RestCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let without_id = self.0.id.is_none();
        let mut out = serializer.serialize_map(Some(2 + usize::from(without_id)))?;
        out.serialize_entry("name", &self.0.name)?;
        out.serialize_entry("args", &self.0.args)?;
        if without_id {
            out.serialize_entry("id", &())?;
        }
        out.end()
    }
}

struct RestUsage<'a> {
    usage: &'a Usage,
    counts: [bool; 3],
}

impl RestUsage<'_> {
    fn len(&self) -> usize {
        self.counts.into_iter().filter(|written| *written).count() + self.usage.entries_besides_counts()
    }
}

impl Serialize for RestUsage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.len()))?;
        self.usage.write(&mut out, self.counts)?;
        out.end()
    }
}

fn decode_rest(bytes: &[u8]) -> Result<Map, MessageError> {
    match decode_bytes(Codec::MsgPack, bytes)? {
        Value::Map(map) => Ok(map),
        other => Err(MessageError::invalid("rest", "a map", &other)),
    }
}

fn join_ai(parts: &MessagePartsRef<'_>, rest: &mut Map) -> Result<Ai, MessageError> {
    if let Some(Value::List(calls)) = rest.get_mut("tool_calls") {
        let mut ids = read_ids(parts.tool_calls)?.into_iter();
        for call in calls {
            if let Value::Map(call) = call
                && !call.contains_key("id")
            {
                let Some(id) = ids.next() else {
                    return Err(MessageError::missing("a tool call", "tool_calls.id"));
                };
                call.insert("id".into(), id.into());
            }
        }
    }
    let own_usage = rest.shift_remove("usage_metadata");
    let mut ai = take_ai(rest)?;
    let counted = parts.input_tokens.zip(parts.output_tokens).map(|(i, o)| Usage::new(i.into(), o.into()));
    ai.usage = match (counted, own_usage) {
        (None, None) => None,
        (Some(usage), None) => Some(Box::new(usage)),
        (counted, Some(own)) => Some(Box::new(join_usage(counted, own)?)),
    };
    Ok(ai)
}

fn join_usage(counted: Option<Usage>, own: Value) -> Result<Usage, MessageError> {
    let with_total = own.get("total_tokens").is_some();
    let mut usage = counted.unwrap_or_default().read_over(own)?;
    if !with_total {
        usage.total_tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    }
    Ok(usage)
}

fn join_tool(parts: &MessagePartsRef<'_>, rest: &mut Map) -> Result<Tool, MessageError> {
    let mut tool = Tool::new(read_ids(parts.tool_calls)?.into_iter().next().unwrap_or_default());
    tool.artifact = rest.shift_remove("artifact").unwrap_or_default();
    if let Some(status) = rest.shift_remove("status") {
        tool.status = status.try_into()?;
    }
    Ok(tool)
}

fn join_chunk(rest: &mut Map) -> Result<Chunk, MessageError> {
    let chunks = rest.shift_remove("tool_call_chunks");
    let tool_call_chunks = chunks.map_or_else(|| Ok(Vec::new()), |chunks| list("tool_call_chunks", chunks))?;
    Ok(Chunk { tool_call_chunks, last: rest.shift_remove("last").is_some() })
}

fn read_ids(text: Option<&str>) -> Result<Vec<String>, MessageError> {
    let text = text.unwrap_or("[]");
    serde_json::from_str(text).map_err(|e| {
        let reason = e.to_string();
        CodecError::Decode { expected: "list of tool call ids", reason }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{message, text};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn join_undoes_split(message in message()) {
            prop_assert_eq!(&Message::join(&message.split().unwrap()).unwrap(), &message);
        }

        #[test]
        fn the_dictionary_survives_the_codec(message in message()) {
            // Names of at most four letters may be declared ones (`id`, `name`, `type`): those are no extra fields.
            let mut message = message;
            message.extra.retain(|name, _| !["id", "name", "type", "role"].contains(&name.as_str()));
            if let Role::Ai(ai) = &mut message.role
                && let Some(usage) = &mut ai.usage
            {
                usage.extra.retain(|name, _| name.len() > 4);
            }
            // Pieces of calls are JSON: once they stand for the calls, these hold what JSON can.
            message.settle();
            message.settle();
            let back: Message = Encoded::encode(&message).unwrap().decode().unwrap();
            prop_assert_eq!(back, message);
        }

        #[test]
        fn hostile_parts_never_panic(
            rest in prop::collection::vec(any::<u8>(), 0..40), kind in "ai|tool|human|x", ids in text(), text in text()
        ) {
            let parts = MessageParts { kind, rest, tool_calls: ids, text, ..Default::default() };
            let _ = Message::join(&parts);
        }
    }

    #[test]
    fn what_is_default_is_not_written() {
        let plain = Message::ai("hello").with_id("m1").with_name("bot").with_usage(Usage::new(3, 4));
        let parts = plain.split().unwrap();
        assert_eq!(parts.rest, Vec::<u8>::new());
        assert_eq!((parts.input_tokens, parts.output_tokens, parts.tool_calls), (Some(3), Some(4), None));
        let result = Message::tool("12", "call-1").split().unwrap();
        assert_eq!((result.tool_calls.as_deref(), result.rest.len()), (Some(r#"["call-1"]"#), 0));
        let call = Message::ai("").with_tool_call(ToolCall::new("f", [("a", 1)]).with_id("c1"));
        let call = call.with_tool_call(ToolCall::new("g", [("b", 2)]));
        let parts = call.split().unwrap();
        assert_eq!(parts.tool_calls.as_deref(), Some(r#"["c1"]"#));
        assert_eq!(Message::join(&parts).unwrap(), call);
    }
}
