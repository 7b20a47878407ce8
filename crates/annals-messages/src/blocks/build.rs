//! Constructors of blocks.
//!
//! *Absent:* ids that come by themselves; [`ContentBlock::ensure_id`] gives one.

use super::factory::factory;
use super::{ContentBlock, MediaBlock, ReasoningBlock, TextBlock, ToolCallBlock};
use crate::{Message, MessageError, Role, ToolCall, ensure_id};
use annals_base::{IdSource, Map, Value};

impl ContentBlock {
    /// Returns a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), ..TextBlock::default() })
    }

    /// Returns a thought of the model.
    pub fn reasoning(reasoning: impl Into<String>) -> Self {
        Self::Reasoning(ReasoningBlock { reasoning: Some(reasoning.into()), ..ReasoningBlock::default() })
    }

    /// Returns a request to call a tool.
    pub fn tool_call(call: ToolCall) -> Self {
        // The id of a call is written even if it is null.
        let null_id = call.id.is_none().then(|| ("id".to_owned(), Value::Null));
        Self::ToolCall(ToolCallBlock {
            name: call.name,
            args: call.args,
            id: call.id,
            more: null_id.into_iter().collect(),
            ..ToolCallBlock::default()
        })
    }

    /// Makes a block of the type `kind` from named fields, as the factories of LangChain do (`create_text_block`, ...):
    /// nulls are left out, names without a place of their own become extras, and the block has an id afterwards.
    ///
    /// # Errors
    /// [`MessageError::Missing`] if a needed field is missing, [`MessageError::Refused`] if a medium has no data, if
    /// data in the message come without their MIME type, or if the type has no factory.
    ///
    /// # Example: an image as a provider describes it
    /// ```
    /// use annals_base::{IdSource, Value};
    /// use annals_messages::blocks::ContentBlock;
    ///
    /// let json = serde_json::json!({"url": "https://example.com/a.png", "detail": "low", "mime_type": null});
    /// let Value::Map(fields) = Value::from(json) else { unreachable!() };
    /// let image = ContentBlock::create("image", fields, &mut IdSource::from_seed(1))?;
    /// assert_eq!(image.extras().map(|extras| &extras["detail"]), Some(&"low".into()));
    /// assert!(image.id().is_some_and(|id| id.starts_with("lc_")));
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn create(kind: &str, fields: Map, ids: &mut IdSource) -> Result<Self, MessageError> {
        factory(kind, fields, ids).map(|map| Self::from(Value::Map(map)))
    }

    /// Sets the id.
    fn with_id(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        if let Some((slot, ..)) = self.common() {
            *slot = Some(id);
        } else if let Self::Other(Value::Map(map)) = &mut self {
            map.insert("id".into(), id.into());
        }
        self
    }

    /// Gives it an id (`lc_` and a random UUID) if it has none, or an empty one.
    ///
    /// # Example
    /// ```
    /// use annals_base::IdSource;
    /// use annals_messages::blocks::ContentBlock;
    ///
    /// let block = ContentBlock::text("hi").ensure_id(&mut IdSource::from_seed(1));
    /// assert!(block.id().is_some_and(|id| id.starts_with("lc_")));
    /// ```
    #[must_use]
    pub fn ensure_id(self, ids: &mut IdSource) -> Self {
        let id = ensure_id(self.id().map(str::to_owned), ids);
        self.with_id(id)
    }

    /// Adds something that the provider says besides; an unknown block stays as it is.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Some((.., slot)) = self.common() {
            slot.get_or_insert_default().insert(name.into(), value.into());
        }
        self
    }
}

impl Message {
    /// Replaces the content by blocks (`content_blocks` of LangChain's constructors). Tool calls among the
    /// blocks of a model become those of the message, unless it has some.
    ///
    /// # Example: an answer with a thought and a call
    /// ```
    /// use annals_messages::blocks::ContentBlock;
    /// use annals_messages::{Message, ToolCall};
    ///
    /// let call = ToolCall::new("weather", [("city", "Bern")]).with_id("c1");
    /// let blocks = vec![ContentBlock::reasoning("look it up"), ContentBlock::tool_call(call.clone())];
    /// let answer = Message::ai("").with_blocks(blocks.clone());
    /// assert_eq!(answer.tool_calls(), [call]);
    /// assert_eq!(answer.content_blocks()?, blocks);
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    #[must_use]
    pub fn with_blocks(mut self, blocks: Vec<ContentBlock>) -> Self {
        if let Role::Ai(ai) = &mut self.role
            && ai.tool_calls.is_empty()
        {
            let calls = blocks.iter().filter_map(|block| match block {
                ContentBlock::ToolCall(call) => Some(call.to_call()),
                _ => None,
            });
            ai.tool_calls = calls.collect();
        }
        self.content = blocks.into();
        self
    }
}

impl ToolCallBlock {
    /// Returns the call, as a message holds it.
    fn to_call(&self) -> ToolCall {
        ToolCall { name: self.name.clone(), args: self.args.clone(), id: self.id.clone() }
    }
}

impl MediaBlock {
    /// Returns data at an address.
    pub fn from_url(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::PlainTextBlock;

    #[test]
    fn every_block_can_be_given_an_id_and_keeps_it() {
        let ids = &mut IdSource::from_seed(1);
        let call = ContentBlock::tool_call(ToolCall::new("f", [("a", 1)]));
        let unknown = ContentBlock::from(Value::from(serde_json::json!({"type": "hologram"})));
        for block in [
            ContentBlock::text("t"),
            call,
            unknown,
            ContentBlock::Image(MediaBlock { file_id: Some("f".into()), ..MediaBlock::default() }),
        ] {
            let named = block.clone().with_id("").ensure_id(ids);
            let id = named.id().expect("an id").to_owned();
            assert!(id.starts_with("lc_") && id.len() == 39, "{id}");
            assert_eq!(Value::from(named.ensure_id(ids)).get("id"), Some(&Value::from(id)));
        }
        assert_eq!(ContentBlock::from(Value::from(5)).ensure_id(ids), ContentBlock::Other(5.into()));
    }

    #[test]
    fn a_tool_call_is_written_as_a_message_holds_it() {
        for call in [ToolCall::new("f", [("a", 1)]), ToolCall::new("f", [("a", 1)]).with_id("c1")] {
            assert_eq!(Value::from(ContentBlock::tool_call(call.clone())), Value::from(call));
        }
    }

    #[test]
    fn calls_among_the_blocks_are_those_of_a_model_that_has_none() {
        let call = |id: &str| ToolCall::new("f", [("a", 1)]).with_id(id);
        let blocks = vec![ContentBlock::tool_call(call("b"))];
        let answer = Message::ai("x").with_tool_call(call("a")).with_blocks(blocks.clone());
        assert_eq!(answer.tool_calls(), [call("a")]);
        let question = Message::human("x").with_blocks(blocks.clone());
        assert_eq!((question.tool_calls(), question.content_blocks().unwrap()), (&[][..], blocks));
    }

    #[test]
    fn what_a_provider_says_besides_is_added() {
        let document = ContentBlock::PlainText(PlainTextBlock { text: Some("t".into()), ..PlainTextBlock::default() });
        let block = document.with_extra("a", 1).with_extra("b", 2);
        assert_eq!(block.extras().map(Map::len), Some(2));
    }
}
