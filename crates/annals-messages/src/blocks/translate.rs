//! From the content of a message to its blocks.
//!
//! *Absent:* the translators of the providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ContentBlock;
use super::draft::kind_of;
use super::passes;
use crate::{Content, Message, MessageError, Role, providers};
use annals_base::{IdSource, Map, Value};

/// Translates the messages of one provider.
///
/// Any function of this shape is one. It is given messages of the model, chunks of them included
/// ([`Message::is_chunk`]), and may decline (`None`): then the message is read without regard to its provider.
pub trait Translator: Send + Sync {
    /// Returns the blocks of a message.
    ///
    /// # Errors
    /// [`MessageError`] if a block lacks what its translation needs.
    fn translate(&self, message: &Message, ids: &mut IdSource) -> Result<Option<Vec<ContentBlock>>, MessageError>;
}

impl<F> Translator for F
where
    F: Fn(&Message, &mut IdSource) -> Result<Option<Vec<ContentBlock>>, MessageError> + Send + Sync,
{
    fn translate(&self, message: &Message, ids: &mut IdSource) -> Result<Option<Vec<ContentBlock>>, MessageError> {
        self(message, ids)
    }
}

/// The translators by provider: the built-in ones (`openai`, `anthropic`, `bedrock`, `bedrock_converse`,
/// `google_genai`, `google_vertexai`, `groq`), and those that are added.
///
/// # Example: a provider of one's own
/// ```
/// use annals_base::{IdSource, Value};
/// use annals_messages::Message;
/// use annals_messages::blocks::{ContentBlock, Translators};
///
/// let translators = Translators::default().with("acme", |message: &Message, _: &mut IdSource| {
///     Ok(Some(vec![ContentBlock::text(message.text()).with_extra("from", "acme")]))
/// });
/// let mut answer = Message::ai("hello");
/// answer.response_metadata.insert("model_provider".into(), "acme".into());
/// let blocks = translators.blocks(&answer, &mut IdSource::from_seed(1))?;
/// assert_eq!(blocks[0].extras().map(|extras| &extras["from"]), Some(&Value::from("acme")));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
#[derive(Clone, Default)]
pub struct Translators {
    added: BTreeMap<String, Arc<dyn Translator>>,
}

impl Translators {
    /// Adds the translator of a provider, or takes the place of the one there is.
    #[must_use]
    pub fn with(mut self, provider: impl Into<String>, translator: impl Translator + 'static) -> Self {
        self.added.insert(provider.into(), Arc::new(translator));
        self
    }

    /// Returns the blocks of a message (`content_blocks` of LangChain); the message stays as it is.
    ///
    /// A message of the model is translated by its provider (`response_metadata.model_provider`), unless its blocks are
    /// standard ones already (`output_version` is `v1`). In all others, blocks in the form of OpenAI, Anthropic, Google
    /// and Bedrock are recognised.
    ///
    /// # Errors
    /// [`MessageError`] naming the field that a block lacks.
    pub fn blocks(&self, message: &Message, ids: &mut IdSource) -> Result<Vec<ContentBlock>, MessageError> {
        let Role::Ai(_) = &message.role else { return Ok(typed(passes::read(&message.content, ids)?)) };
        if let Some(blocks) = standard_already(message) {
            return Ok(blocks.iter().cloned().map(ContentBlock::from).collect());
        }
        if let Some(provider) = message.response_metadata.get("model_provider").and_then(Value::as_str) {
            if let Some(added) = self.added.get(provider) {
                if let Some(blocks) = added.translate(message, ids)? {
                    return Ok(blocks);
                }
            } else if let Some(blocks) = providers::translate(provider, message, ids)? {
                return Ok(typed(blocks));
            }
        }
        of_any_model(message, ids).map(typed)
    }
}

impl std::fmt::Debug for Translators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Translators").field(&self.added.keys()).finish()
    }
}

impl Message {
    /// Returns the content of the message as typed blocks, for every provider: see [`Translators::blocks`], here with
    /// the built-in ones. Blocks that have no id but need one get a random one.
    ///
    /// # Errors
    /// [`MessageError`] naming the field that a block lacks.
    ///
    /// # Example: an answer in Anthropic's form
    /// ```
    /// use annals_base::Value;
    /// use annals_messages::Message;
    /// use annals_messages::blocks::ContentBlock;
    ///
    /// let answer = Message::try_from(Value::from(serde_json::json!({
    ///     "type": "ai", "response_metadata": {"model_provider": "anthropic"},
    ///     "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Bern"}],
    /// })))?;
    /// let blocks = answer.content_blocks()?;
    /// assert_eq!(blocks[0], ContentBlock::reasoning("hm").with_extra("signature", "s"));
    /// assert_eq!(blocks[1], ContentBlock::text("Bern"));
    /// # Ok::<(), annals_messages::MessageError>(())
    /// ```
    pub fn content_blocks(&self) -> Result<Vec<ContentBlock>, MessageError> {
        Translators::default().blocks(self, &mut IdSource::new())
    }
}

fn typed(blocks: Vec<Map>) -> Vec<ContentBlock> {
    blocks.into_iter().map(|block| Value::Map(block).into()).collect()
}

/// Returns the content if it is said to be standard blocks.
fn standard_already(message: &Message) -> Option<&[Value]> {
    let version = message.response_metadata.get("output_version").and_then(Value::as_str);
    match &message.content {
        Content::Blocks(blocks) if version == Some("v1") => Some(blocks),
        _ => None,
    }
}

/// Reads a message of a model of which nothing is known.
fn of_any_model(message: &Message, ids: &mut IdSource) -> Result<Vec<Map>, MessageError> {
    let mut blocks = passes::read(&message.content, ids)?;
    blocks.extend(providers::calls_besides(message, &calls_in_content(message)));
    if message.chunk.as_deref().is_some_and(|chunk| !chunk.last && !chunk.tool_call_chunks.is_empty())
        && message.content.is_empty()
    {
        blocks.retain(|block| !matches!(kind_of(block), "tool_call" | "invalid_tool_call"));
        blocks.extend(providers::chunk_blocks(message));
    }
    if !blocks.iter().any(|block| kind_of(block) == "reasoning")
        && let Some(reasoning) = providers::reasoning_besides(message)
    {
        blocks.insert(0, reasoning);
    }
    Ok(blocks)
}

/// Returns the ids of the tool calls that the content has as blocks.
fn calls_in_content(message: &Message) -> Vec<&str> {
    let Content::Blocks(blocks) = &message.content else { return Vec::new() };
    let calls = blocks.iter().filter_map(Value::as_map).filter(|block| kind_of(block) == "tool_call");
    calls.filter_map(|call| call.get("id")?.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ai(provider: &str, content: serde_json::Value) -> Message {
        let json = json!({"type": "ai", "content": content, "response_metadata": {"model_provider": provider}});
        Message::try_from(Value::from(json)).unwrap()
    }

    #[test]
    fn a_translator_that_declines_leaves_the_message_to_the_passes() {
        let thought = ai("acme", json!([{"type": "thinking", "thinking": "t"}]));
        let plain = thought.content_blocks().unwrap();
        assert_eq!(plain[0].kind(), "non_standard");
        let ids = &mut IdSource::from_seed(1);
        let declines = Translators::default().with("acme", |_: &Message, _: &mut IdSource| Ok(None));
        assert_eq!(declines.blocks(&thought, ids).unwrap(), plain);
        let fails = Translators::default().with("acme", |_: &Message, _: &mut IdSource| Err(MessageError::value("no")));
        assert_eq!(fails.blocks(&thought, ids).unwrap_err().to_string(), "no");
    }

    #[test]
    fn an_added_translator_takes_the_place_of_a_built_in_one() {
        let answer = ai("anthropic", json!([{"type": "thinking", "thinking": "t"}]));
        let own = Translators::default().with("anthropic", |_: &Message, _: &mut IdSource| Ok(Some(Vec::new())));
        assert!(own.blocks(&answer, &mut IdSource::from_seed(1)).unwrap().is_empty());
        assert_eq!(answer.content_blocks().unwrap(), [ContentBlock::reasoning("t")]);
    }

    #[test]
    fn an_error_names_the_block() {
        let error = ai("openai", json!([{"type": "text"}, {"type": "web_search_call"}])).content_blocks().unwrap_err();
        assert_eq!(error.to_string(), "content[1].id: a content block needs it, and it is missing");
        let question =
            Message::human(Content::Blocks(vec![Value::from(json!({"type": "image", "source_type": "url"}))]));
        assert!(question.content_blocks().unwrap_err().to_string().starts_with("content[0].url"));
    }

    #[test]
    fn equal_seeds_give_equal_ids() {
        let picture = json!([{"type": "image_url", "image_url": {"url": "https://example.com"}}]);
        let question = Message::human(Content::try_from(Value::from(picture)).unwrap());
        let blocks = |seed| Translators::default().blocks(&question, &mut IdSource::from_seed(seed)).unwrap();
        assert_eq!(blocks(1), blocks(1));
        assert_ne!(blocks(1), blocks(2));
    }
}
