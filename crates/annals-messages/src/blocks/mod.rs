//! The content of a message as typed blocks that mean the same for every provider.
//!
//! A [`ContentBlock`] is read from a value and written back without loss: unknown types, unknown fields and nulls stay
//! as they are. [`Message::content_blocks`](super::Message::content_blocks) translates the blocks of a provider.
//! *Absent:* the data themselves (nothing is decoded or fetched).

mod annotation;
mod build;
pub(super) mod draft;
pub(super) mod factory;
mod fields;
mod kinds;
pub(super) mod passes;
mod translate;

pub use annotation::{Annotation, Citation, NonStandardAnnotation};
pub use fields::Index;
pub use kinds::{
    InvalidToolCallBlock, MediaBlock, NonStandardBlock, PlainTextBlock, ReasoningBlock, RefusalBlock,
    ServerToolCallBlock, ServerToolCallChunkBlock, ServerToolResultBlock, TextBlock, ToolCallBlock, ToolCallChunkBlock,
};
pub use translate::{Translator, Translators};

use super::Content;
use annals_base::{Map, Value};

/// Declares the enum of blocks, and what all its cases have.
macro_rules! blocks {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $case:ident($block:ident) = $kind:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $case($block),)*
            /// Anything else: an unknown type, or a known one whose needed fields are missing or of another kind.
            /// Verbatim.
            Other(Value),
        }

        /// The types of the standard blocks.
        const KNOWN: &[&str] = &[$($kind),*];

        impl $name {
            /// Returns the `type`; an empty text if there is none.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$case(_) => $kind,)*
                    Self::Other(value) => value.get("type").and_then(Value::as_str).unwrap_or_default(),
                }
            }

            /// Returns the id.
            pub fn id(&self) -> Option<&str> {
                match self {
                    $(Self::$case(block) => block.id.as_deref(),)*
                    Self::Other(value) => value.get("id").and_then(Value::as_str),
                }
            }

            /// Returns the place in a stream.
            pub fn index(&self) -> Option<&Index> {
                match self {
                    $(Self::$case(block) => block.index.as_ref(),)*
                    Self::Other(_) => None,
                }
            }

            /// Returns the further fields of the provider.
            pub fn extras(&self) -> Option<&Map> {
                match self {
                    $(Self::$case(block) => block.extras.as_ref(),)*
                    Self::Other(value) => value.get("extras").and_then(Value::as_map),
                }
            }

            /// Returns the fields that every standard block has, to be changed.
            fn common(&mut self) -> Option<(&mut Option<String>, &mut Option<Index>, &mut Option<Map>)> {
                match self {
                    $(Self::$case(block) => Some((&mut block.id, &mut block.index, &mut block.extras)),)*
                    Self::Other(_) => None,
                }
            }
        }

        /// Reads a block; nothing is refused and nothing is lost.
        impl From<Value> for $name {
            fn from(value: Value) -> Self {
                let Value::Map(map) = value else { return Self::Other(value) };
                let kind = KNOWN.iter().find(|kind| **kind == draft::kind_of(&map));
                let read = match kind.copied() {
                    $(Some($kind) => $block::read(map).map(Self::$case),)*
                    _ => Err(map),
                };
                read.unwrap_or_else(|map| Self::Other(Value::Map(map)))
            }
        }

        impl From<$name> for Value {
            fn from(block: $name) -> Self {
                match block {
                    $($name::$case(block) => Self::Map(block.write($kind)),)*
                    $name::Other(value) => value,
                }
            }
        }
    };
}

blocks! {
    /// One block of the content of a message.
    ///
    /// # Example: a question about a picture
    /// ```
    /// use annals_messages::Message;
    /// use annals_messages::blocks::{ContentBlock, MediaBlock};
    ///
    /// let picture = MediaBlock::from_url("https://example.com/cat.png");
    /// let question = Message::human(vec![ContentBlock::text("What is this?"), ContentBlock::Image(picture)]);
    /// let blocks = question.content_blocks()?;
    /// let ContentBlock::Image(picture) = &blocks[1] else { panic!("the picture") };
    /// assert_eq!(picture.url.as_deref(), Some("https://example.com/cat.png"));
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    ///
    /// # Example: unknown blocks and fields stay as they are
    /// ```
    /// use annals_base::Value;
    /// use annals_messages::blocks::ContentBlock;
    ///
    /// for json in [
    ///     serde_json::json!({"type": "text", "text": "hi", "id": null, "new_field": [1, 2]}),
    ///     serde_json::json!({"type": "hologram", "depth": 3}),
    /// ] {
    ///     let block = ContentBlock::from(Value::from(json.clone()));
    ///     assert_eq!(Value::from(block).to_json(), json);
    /// }
    /// ```
    ContentBlock {
        /// A text.
        Text(TextBlock) = "text",
        /// Reasoning of the model.
        Reasoning(ReasoningBlock) = "reasoning",
        /// A refusal of the model to answer.
        Refusal(RefusalBlock) = "refusal",
        /// A picture.
        Image(MediaBlock) = "image",
        /// A sound.
        Audio(MediaBlock) = "audio",
        /// A film.
        Video(MediaBlock) = "video",
        /// Any other file.
        File(MediaBlock) = "file",
        /// A document that is a plain text.
        PlainText(PlainTextBlock) = "text-plain",
        /// A request to call a tool.
        ToolCall(ToolCallBlock) = "tool_call",
        /// A chunk of such a request.
        ToolCallChunk(ToolCallChunkBlock) = "tool_call_chunk",
        /// A request that could not be read.
        InvalidToolCall(InvalidToolCallBlock) = "invalid_tool_call",
        /// A call of a tool at the provider.
        ServerToolCall(ServerToolCallBlock) = "server_tool_call",
        /// A chunk of such a call.
        ServerToolCallChunk(ServerToolCallChunkBlock) = "server_tool_call_chunk",
        /// The result of such a call.
        ServerToolResult(ServerToolResultBlock) = "server_tool_result",
        /// A block that only its provider understands.
        NonStandard(NonStandardBlock) = "non_standard",
    }
}

/// Returns whether this is the `type` of a standard block.
pub(super) fn is_known(kind: &str) -> bool {
    KNOWN.contains(&kind)
}

impl From<Vec<ContentBlock>> for Content {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        Self::Blocks(blocks.into_iter().map(Value::from).collect())
    }
}

fields::value_form!(ContentBlock);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::Message;

    fn same(json: serde_json::Value) -> ContentBlock {
        let value = Value::from(json);
        let block = ContentBlock::from(value.clone());
        assert_eq!(Value::from(block.clone()), value);
        assert_eq!(Value::from_serialize(&block).unwrap(), value);
        assert_eq!(value.to::<ContentBlock>().unwrap(), block);
        block
    }

    #[test]
    fn a_block_of_each_type_is_read_and_written_without_loss() {
        let extras = json!({"cache": true});
        for kind in KNOWN {
            let block = same(json!({"type": kind, "id": "b", "index": 3, "extras": extras, "z": null, "a": [{}],
                "text": "t", "name": "n", "args": {}, "tool_call_id": "c", "status": "error", "value": {"v": 1},
                "base64": "AA==", "error": null, "refusal": "r"}));
            assert_eq!((block.kind(), block.id(), block.index()), (*kind, Some("b"), Some(&Index::Number(3))));
            assert_eq!(block.extras().unwrap()["cache"], Value::Bool(true));
            assert!(!matches!(block, ContentBlock::Other(_)), "{kind}");
        }
    }

    #[test]
    fn what_does_not_fit_is_kept_where_it_was() {
        let ContentBlock::Text(text) = same(json!({"type": "text", "text": "t", "id": 5, "z": 1, "index": 1.5})) else {
            panic!("a text");
        };
        assert_eq!((text.id, text.index), (None, None));
        assert_eq!(text.more.keys().collect::<Vec<_>>(), ["id", "z", "index"]);
        for odd in
            [json!({"type": "text"}), json!({"type": "tool_call", "name": "f", "args": "x"}), json!({}), json!(5)]
        {
            assert_eq!(same(odd.clone()), ContentBlock::Other(Value::from(odd)));
        }
        let ContentBlock::ToolCall(call) = same(json!({"type": "tool_call", "name": "f", "args": {}, "id": null}))
        else {
            panic!("a call");
        };
        assert_eq!((call.id, &call.more["id"]), (None, &Value::Null));
    }

    #[test]
    fn annotations_are_typed() {
        let ContentBlock::Text(text) = same(json!({"type": "text", "text": "t", "annotations": [
            {"type": "citation", "url": "u", "start_index": 0, "end_index": null},
            {"type": "non_standard_annotation", "value": {"x": 1}},
            {"type": "citations"}, 5,
        ]})) else {
            panic!("a text");
        };
        let annotations = text.annotations.unwrap();
        let Annotation::Citation(citation) = &annotations[0] else { panic!("a citation") };
        assert_eq!((citation.url.as_deref(), citation.start_index, citation.end_index), (Some("u"), Some(0), None));
        assert!(matches!(&annotations[1], Annotation::NonStandard(_)));
        assert!(matches!((&annotations[2], &annotations[3]), (Annotation::Other(_), Annotation::Other(_))));
    }

    /// Values in which the names and types that mean something stand at any place.
    fn any_value() -> impl Strategy<Value = Value> {
        let providers = [
            "tool_use",
            "server_tool_use",
            "mcp_call",
            "web_search_call",
            "function_call",
            "thinking",
            "image_url",
            "input_audio",
            "document",
            "executable_code",
            "reasoning_content",
            "x_tool_result",
        ];
        let kinds: Vec<&str> = KNOWN.iter().copied().chain(providers).collect();
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..9).prop_map(Value::from),
            Just(Value::Float(1.5)),
            prop::sample::select(kinds).prop_map(Value::from),
            prop::sample::select(vec!["", "c1", "data:a/b;base64,QQ==", "{\"a\": 1}"]).prop_map(Value::from),
        ];
        let names = [
            "type",
            "text",
            "id",
            "index",
            "extras",
            "value",
            "name",
            "args",
            "source",
            "source_type",
            "url",
            "data",
            "image_url",
            "document",
            "annotations",
            "citations",
            "summary",
            "status",
            "input",
            "call_id",
        ];
        leaf.prop_recursive(4, 40, 8, move |inner| {
            let name = prop::sample::select(names.to_vec()).prop_map(str::to_owned);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::vec((name, inner), 0..8).prop_map(|fields| Value::Map(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_a_block_and_stays_what_it_is(value in any_value()) {
            prop_assert_eq!(Value::from(ContentBlock::from(value.clone())), value);
        }

        #[test]
        fn any_message_is_translated_or_refused(blocks in prop::collection::vec(any_value(), 0..4), beside in any_value(),
            provider in prop::sample::select(vec!["openai", "anthropic", "bedrock", "bedrock_converse", "google_genai",
                "groq", "acme"]), chunk in any::<bool>())
        {
            let Ok(content) = Content::try_from(Value::List(blocks)) else { return Ok(()) };
            let mut message = if chunk { Message::ai_chunk(content) } else { Message::ai(content) };
            message.response_metadata.insert("model_provider".into(), provider.into());
            for name in ["grounding_metadata", "executed_tools", "tool_outputs", "reasoning"] {
                message.additional_kwargs.insert(name.into(), beside.clone());
                message.response_metadata.insert(name.into(), beside.clone());
            }
            if let Err(error) = message.content_blocks() {
                prop_assert!(error.to_string().contains("content["), "{}", error);
            }
        }
    }
}
