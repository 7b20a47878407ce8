//! A message taken apart for a store: what an index wants to see, and the rest as bytes.
//!
//! *Absent:* the store. The rest is a MessagePack map that holds only what differs from its default and is in no other
//! part, so that a plain answer costs its text and its id.

use super::construct::{object_or_empty, take_ai};
use super::parts_text::{StoredBlocks, rejoin};
use super::tool::{list, string};
use super::{Ai, Chunk, Content, Message, MessageClass, MessageError, Role, Tool, ToolCall, ToolStatus, Usage};
use annals_base::{Codec, CodecError, Map, Value, ValueView, decode_value};

/// A message in parts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct MessageParts {
    /// The id.
    pub(crate) id: Option<String>,
    /// The type: `human`, `ai`, ...
    pub(crate) kind: String,
    /// The name of who speaks.
    pub(crate) name: Option<String>,
    /// The ids of the tool calls made or answered, as the text of a JSON list; `None` without such an id.
    pub(crate) tool_calls: Option<String>,
    /// The content, if it is a text; of blocks their texts, joined as [`Content::text`] does.
    pub(crate) text: Option<String>,
    /// Tokens read, if both counts are known and fit.
    pub(crate) input_tokens: Option<u32>,
    /// Tokens written, if both counts are known and fit.
    pub(crate) output_tokens: Option<u32>,
    /// A MessagePack map of the fields outside the other parts; empty without such fields.
    pub(crate) rest: Vec<u8>,
}

/// [`MessageParts`], borrowed: joining copies only the fields of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct MessagePartsRef<'a> {
    /// The id.
    pub(crate) id: Option<&'a str>,
    /// The type: `human`, `ai`, ...
    pub(crate) kind: &'a str,
    /// The name of who speaks.
    pub(crate) name: Option<&'a str>,
    /// The ids of the tool calls made or answered, as the text of a JSON list.
    pub(crate) tool_calls: Option<&'a str>,
    /// The content, if it is a text; of blocks their texts, joined.
    pub(crate) text: Option<&'a str>,
    /// Tokens read.
    pub(crate) input_tokens: Option<u32>,
    /// Tokens written.
    pub(crate) output_tokens: Option<u32>,
    /// The rest.
    pub(crate) rest: &'a [u8],
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
    pub(crate) fn split(&self) -> Result<MessageParts, MessageError> {
        let (rest, text) = rest_of(self);
        let tokens = counted(self);
        let rest = if rest.is_empty() { Vec::new() } else { ValueView::Fields(rest).encode()?.bytes };
        debug_assert!(is_map_or_empty(&rest), "the rest is a map before it is stored");
        Ok(MessageParts {
            id: self.id.clone(),
            kind: self.kind().to_owned(),
            name: self.name.clone(),
            tool_calls: self.call_ids()?,
            text,
            input_tokens: tokens.map(|t| t.0),
            output_tokens: tokens.map(|t| t.1),
            rest,
        })
    }

    /// Puts a message together again. Names in the rest that this version does not know become extra fields.
    ///
    /// # Errors
    /// [`MessageError`] if the parts do not come from [`split`](Self::split).
    pub(crate) fn join<'a>(parts: impl Into<MessagePartsRef<'a>>) -> Result<Self, MessageError> {
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
        debug_assert_eq!(message.kind(), parts.kind, "a message that was joined has the type of its parts");
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
    debug_assert_eq!(message.kind(), parts.kind, "a plain message has the type of its parts");
    Some(message)
}

/// Returns the token counts that are parts of their own: both are known and fit.
fn counted(message: &Message) -> Option<(u32, u32)> {
    let Role::Ai(ai) = &message.role else { return None };
    let usage = ai.usage.as_ref()?;
    Some((usage.input_tokens.try_into().ok()?, usage.output_tokens.try_into().ok()?))
}

/// Returns the fields of the rest, borrowed from the message, and the text, which is a part of its own. A field that
/// equals its default is left out.
fn rest_of(message: &Message) -> (Vec<(&'static str, ValueView<'_>)>, Option<String>) {
    let mut rest = Vec::new();
    let text = match &message.content {
        Content::Text(text) => Some(text.clone()),
        Content::Blocks(blocks) => {
            let (stored, text) = StoredBlocks::of(blocks);
            rest.push(("content", stored.view()));
            text
        }
    };
    match &message.role {
        Role::Ai(ai) => rest_of_ai(ai, counted(message).is_some(), &mut rest),
        Role::Tool(tool) => {
            if !tool.artifact.is_null() {
                rest.push(("artifact", (&tool.artifact).into()));
            }
            if tool.status != ToolStatus::default() {
                rest.push(("status", tool.status.view()));
            }
        }
        Role::Chat { role } if !role.is_empty() => rest.push(("role", role.into())),
        _ => {}
    }
    if let Some(chunk) = &message.chunk {
        let [(name, chunks), _] = chunk.fields();
        if !chunk.tool_call_chunks.is_empty() {
            rest.push((name, chunks));
        }
        if chunk.last {
            rest.push(("last", true.into()));
        }
    }
    let maps = [
        ("additional_kwargs", &message.additional_kwargs),
        ("response_metadata", &message.response_metadata),
        ("extra", &message.extra),
    ];
    rest.extend(maps.into_iter().filter(|(_, map)| !map.is_empty()).map(|(name, map)| (name, map.into())));
    (rest, text)
}

fn rest_of_ai<'a>(ai: &'a Ai, counted: bool, rest: &mut Vec<(&'static str, ValueView<'a>)>) {
    if !ai.tool_calls.is_empty() {
        rest.push(("tool_calls", ai.tool_calls.iter().map(rest_of_call).collect()));
    }
    if !ai.invalid_tool_calls.is_empty() {
        let [_, invalid, _] = ai.fields();
        rest.push(invalid);
    }
    if let Some(usage) = &ai.usage {
        let sum = usage.input_tokens.saturating_add(usage.output_tokens);
        // Counts that are not parts of their own are written even if they are zero: they tell that there is a usage.
        let fields = usage.fields([!counted, !counted, usage.total_tokens != sum]);
        if !fields.is_empty() {
            rest.push(("usage_metadata", ValueView::Fields(fields)));
        }
    }
}

/// Returns a tool call without its id, which is in the list of ids; an `id` of null says that the list has none of it.
fn rest_of_call(call: &ToolCall) -> ValueView<'_> {
    let mut fields = vec![("name", ValueView::from(&call.name)), ("args", (&call.args).into())];
    if call.id.is_none() {
        fields.push(("id", ValueView::Null));
    }
    ValueView::Fields(fields)
}

/// Returns whether bytes are none or begin as a map of MessagePack does.
fn is_map_or_empty(bytes: &[u8]) -> bool {
    matches!(bytes.first(), None | Some(0x80..=0x8f | 0xde | 0xdf))
}

fn decode_rest(bytes: &[u8]) -> Result<Map, MessageError> {
    match decode_value(Codec::MsgPack, bytes)? {
        Value::Map(map) => {
            debug_assert!(is_map_or_empty(bytes), "the rest is a map after it was read");
            Ok(map)
        }
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
    use annals_base::Encoded;
    use annals_base::limits::VALUE_DEPTH_MAX;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn join_undoes_split(message in message()) {
            prop_assert_eq!(&Message::join(&message.split().unwrap()).unwrap(), &message);
        }

        #[test]
        fn the_dictionary_survives_the_codec(message in message()) {
            // Names of at most four letters may be declared ones (`id`, `name`, `type`): those are not extra fields.
            let mut message = message;
            message.extra.retain(|name, _| !["id", "name", "type", "role"].contains(&name.as_str()));
            if let Role::Ai(ai) = &mut message.role
                && let Some(usage) = &mut ai.usage
            {
                usage.extra.retain(|name, _| name.len() > 4);
            }
            // Chunks of calls are JSON: once they stand for the calls, these hold what JSON can.
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
    fn a_message_that_could_not_be_read_again_is_refused() {
        // The arguments lie in four maps and lists of the rest.
        let deepest = VALUE_DEPTH_MAX - 4;
        for depth in deepest - 2..deepest + 4 {
            let args = (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
            let message = Message::ai("").with_tool_call(ToolCall::new("f", [("a", args)]).with_id("c"));
            match message.to_payload() {
                Ok(payload) => assert_eq!(Message::from_payload(payload.as_ref()).unwrap(), message, "{depth}"),
                Err(error) => {
                    let source = CodecError::TooDeep { limit: VALUE_DEPTH_MAX };
                    assert_eq!((error, depth > deepest), (MessageError::Codec { source }, true), "{depth}");
                }
            }
        }
    }

    #[test]
    fn fields_at_their_defaults_are_left_out() {
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
