//! Assembles a response from the chunks that a provider streams.
//!
//! *Absent:* the provider's events, which an adapter turns into calls of these methods.

use super::citation::Citation;
use super::delta::{DeltaError, PartDelta, PartOrDelta, TextDelta, ThinkingDelta, ToolCallDelta};
use super::event::{PartDeltaEvent, PartStartEvent, StreamEvent};
use super::part::{ResponsePart, TextPart, ThinkingPart};
use super::tool::{ToolArgs, ToolCallPart};
use crate::wire::tool_call_id;
use annals_base::DefaultSource;
use annals_base::Map;

/// A chunk of a response does not fit what came before (`UnexpectedModelBehavior`). Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// The provider's key belongs to a part of another kind.
    #[error("a chunk of kind {chunk:?} does not fit a part of kind {part:?}")]
    KindMismatch {
        /// The kind of the chunk.
        chunk: &'static str,
        /// The kind of the part.
        part: &'static str,
    },
    /// The first chunk of a thinking part is empty.
    #[error("a thinking part needs content, a signature or details to begin")]
    EmptyThinking,
    /// The delta does not apply.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

/// A chunk of text.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct StreamedText<'a> {
    /// The text.
    pub content: &'a str,
    /// The provider's id, of a new part.
    pub id: Option<String>,
    /// The name of the provider.
    pub provider_name: Option<String>,
    /// Data that the provider adds.
    pub provider_details: Option<Map>,
    /// The sources of the text so far.
    pub citations: Option<Vec<Citation>>,
    /// Texts that begin and end thinking.
    pub thinking_tags: Option<(&'a str, &'a str)>,
    /// True if white space before the first text is left out.
    pub ignore_leading_whitespace: bool,
}

impl<'a> StreamedText<'a> {
    /// Returns a chunk of text without an id, details or tags.
    pub fn new(content: &'a str) -> Self {
        Self { content, ..Self::default() }
    }
}

/// A chunk of thinking.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct StreamedThinking {
    /// The text.
    pub content: Option<String>,
    /// The provider's id, of a new part.
    pub id: Option<String>,
    /// The signature so far.
    pub signature: Option<String>,
    /// The name of the provider.
    pub provider_name: Option<String>,
    /// Data that the provider adds.
    pub provider_details: Option<Map>,
}

impl StreamedThinking {
    /// Returns a chunk of thinking without an id, a signature or details.
    pub fn new(content: impl Into<String>) -> Self {
        Self { content: Some(content.into()), ..Self::default() }
    }
}

/// A chunk of a tool call.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct StreamedToolCall {
    /// More of the name.
    pub tool_name: Option<String>,
    /// More of the arguments.
    pub args: Option<ToolArgs>,
    /// The id of the call.
    pub tool_call_id: Option<String>,
    /// The provider's id, of a whole call.
    pub id: Option<String>,
    /// The name of the provider.
    pub provider_name: Option<String>,
    /// Data that the provider adds.
    pub provider_details: Option<Map>,
}

/// The parts of a response that streams in (`ModelResponsePartsManager`). `key` is the provider's id of a part; without
/// one, a chunk belongs to the latest part if that is of its kind.
///
/// # Example: two chunks of text
/// ```
/// use annals_pydantic_ai::{StreamedParts, StreamedText};
///
/// let mut parts = StreamedParts::default();
/// let begun = parts.text(None, StreamedText::new("Hel"))?;
/// let more = parts.text(None, StreamedText::new("lo"))?;
/// assert_eq!(begun.unwrap().to_value().get("event_kind").unwrap().as_str(), Some("part_start"));
/// assert_eq!(more.unwrap().to_value().get("event_kind").unwrap().as_str(), Some("part_delta"));
/// assert_eq!(parts.parts().count(), 1);
/// # Ok::<(), annals_pydantic_ai::PartsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StreamedParts {
    /// The parts, and tool calls without a name.
    parts: Vec<PartOrDelta>,
    keys: indexmap::IndexMap<String, usize>,
}

type PartsResult<T> = Result<T, PartsError>;

impl StreamedParts {
    /// Returns the parts so far, without tool calls that have no name yet.
    pub fn parts(&self) -> impl Iterator<Item = &ResponsePart> {
        self.parts.iter().filter_map(|part| match part {
            PartOrDelta::Part(part) => Some(part),
            PartOrDelta::Delta(_) => None,
        })
    }

    /// Returns the index of the part of a key, or without a key that of the latest part if it `fits`.
    fn place(&self, key: Option<&str>, fits: impl Fn(&PartOrDelta) -> bool) -> Option<usize> {
        match key {
            Some(key) => self.keys.get(key).copied(),
            None => self.parts.len().checked_sub(1).filter(|at| fits(&self.parts[*at])),
        }
    }

    fn start(&mut self, key: Option<&str>, at: Option<usize>, part: ResponsePart) -> StreamEvent {
        let index = at.unwrap_or(self.parts.len());
        let held = PartOrDelta::Part(part.clone());
        match self.parts.get_mut(index) {
            Some(place) => *place = held,
            None => self.parts.push(held),
        }
        debug_assert!(index < self.parts.len(), "a part that starts has its place");
        if let Some(key) = key {
            self.keys.insert(key.to_owned(), index);
        }
        PartStartEvent { index: index as i64, part, previous_part_kind: None, canonical_system: None }.into()
    }

    fn change(&mut self, at: usize, delta: PartDelta) -> PartsResult<StreamEvent> {
        let other = |on: &PartOrDelta| PartsError::KindMismatch { chunk: delta.kind(), part: kind(on) };
        let PartOrDelta::Part(part) = &mut self.parts[at] else { return Err(other(&self.parts[at])) };
        match delta.apply(part) {
            Err(DeltaError::WrongKind { .. }) => return Err(other(&self.parts[at])),
            done => done?,
        }
        Ok(PartDeltaEvent { index: at as i64, delta }.into())
    }

    /// Takes a chunk of text (`handle_text_delta`). `None` if the chunk was left out, or ended thinking.
    ///
    /// # Errors
    /// [`PartsError::KindMismatch`] if the key belongs to a part that is not a text.
    pub fn text(&mut self, key: Option<&str>, chunk: StreamedText<'_>) -> PartsResult<Option<StreamEvent>> {
        let is_text = |part: &PartOrDelta| matches!(part, PartOrDelta::Part(ResponsePart::Text(_)));
        let at = self.place(key, is_text);
        if let (Some((_, close)), Some(place), Some(key)) = (chunk.thinking_tags, at, key)
            && matches!(&self.parts[place], PartOrDelta::Part(ResponsePart::Thinking(_)))
        {
            if chunk.content == close {
                self.keys.shift_remove(key);
                return Ok(None);
            }
            return self.thinking(Some(key), chunk.into_thinking());
        }
        if chunk.thinking_tags.is_some_and(|(open, _)| chunk.content == open) {
            if let Some(key) = key {
                self.keys.shift_remove(key);
            }
            let begin = ThinkingPart {
                content: String::new(),
                id: None,
                signature: None,
                provider_name: chunk.provider_name,
                provider_details: chunk.provider_details,
            };
            return Ok(Some(self.start(key, None, begin.into())));
        }
        if at.is_none() && chunk.ignore_leading_whitespace && chunk.content.trim().is_empty() {
            return Ok(None);
        }
        let Some(at) = at else {
            let part = TextPart {
                content: chunk.content.to_owned(),
                id: chunk.id,
                provider_name: chunk.provider_name,
                provider_details: chunk.provider_details,
                citations: chunk.citations,
            };
            return Ok(Some(self.start(key, None, part.into())));
        };
        let known = match &self.parts[at] {
            PartOrDelta::Part(ResponsePart::Text(text)) => text.provider_name.clone(),
            _ => None,
        };
        let delta = TextDelta {
            content_delta: chunk.content.to_owned(),
            provider_name: chunk.provider_name.filter(|name| Some(name) != known.as_ref()),
            provider_details: chunk.provider_details,
            citations_delta: chunk.citations,
        };
        self.change(at, delta.into()).map(Some)
    }

    /// Takes a chunk of thinking (`handle_thinking_delta`). `None` if the chunk is empty.
    ///
    /// # Errors
    /// [`PartsError`] if the key belongs to a part of another kind, or a new part would begin with nothing.
    pub fn thinking(&mut self, key: Option<&str>, chunk: StreamedThinking) -> PartsResult<Option<StreamEvent>> {
        let is_thinking = |part: &PartOrDelta| matches!(part, PartOrDelta::Part(ResponsePart::Thinking(_)));
        let has_content = chunk.content.is_some() || chunk.signature.is_some() || chunk.provider_details.is_some();
        let Some(at) = self.place(key, is_thinking) else {
            if !has_content {
                return Err(PartsError::EmptyThinking);
            }
            let part = ThinkingPart {
                content: chunk.content.unwrap_or_default(),
                id: chunk.id,
                signature: chunk.signature,
                provider_name: chunk.provider_name,
                provider_details: chunk.provider_details,
            };
            return Ok(Some(self.start(key, None, part.into())));
        };
        let known = match &self.parts[at] {
            PartOrDelta::Part(ResponsePart::Thinking(part)) => part.provider_name.clone(),
            other => return Err(PartsError::KindMismatch { chunk: "thinking", part: kind(other) }),
        };
        if !has_content && chunk.provider_name.is_none() {
            return Ok(None);
        }
        let delta = ThinkingDelta {
            content_delta: chunk.content,
            signature_delta: chunk.signature,
            provider_name: chunk.provider_name.filter(|name| Some(name) != known.as_ref()),
            provider_details: chunk.provider_details,
        };
        self.change(at, delta.into()).map(Some)
    }

    /// Takes a chunk of a tool call (`handle_tool_call_delta`). `None` while the call has no name.
    ///
    /// # Errors
    /// [`PartsError`] if the key belongs to a part of another kind, or arguments in text and as an object meet.
    pub fn tool_call(
        &mut self,
        key: Option<&str>,
        chunk: StreamedToolCall,
        defaults: &mut DefaultSource<'_>,
    ) -> PartsResult<Option<StreamEvent>> {
        let names = chunk.tool_name.is_some();
        let at = self.place(key, |part| !names && call_fields(part).is_some());
        let known = match at.map(|at| (call_fields(&self.parts[at]), kind(&self.parts[at]))) {
            Some((None, part)) => return Err(PartsError::KindMismatch { chunk: "tool_call", part }),
            Some((Some((_, name)), _)) => name,
            None => None,
        };
        let mut delta = ToolCallDelta {
            tool_name_delta: chunk.tool_name,
            args_delta: chunk.args,
            tool_call_id: chunk.tool_call_id,
            provider_name: chunk.provider_name.filter(|name| Some(name) != known.as_ref()),
            provider_details: chunk.provider_details,
        };
        let (was_part, changed) = match at {
            None => (
                false,
                delta
                    .to_part(defaults)
                    .map_or(PartOrDelta::Delta(delta.clone().into()), |p| PartOrDelta::Part(p.into())),
            ),
            Some(at) => {
                let before = self.parts[at].clone();
                let was_part = matches!(before, PartOrDelta::Part(_));
                (was_part, PartDelta::from(delta.clone()).apply_to(before, defaults)?)
            }
        };
        let index = at.unwrap_or(self.parts.len());
        debug_assert!(index <= self.parts.len(), "a call changes a part or is the next one");
        match changed {
            PartOrDelta::Part(part) if !was_part => Ok(Some(self.start(key, Some(index), part))),
            PartOrDelta::Part(part) => {
                let held = PartOrDelta::Part(part);
                delta.tool_call_id = call_fields(&held).map(|(id, _)| id);
                self.parts[index] = held;
                Ok(Some(PartDeltaEvent { index: index as i64, delta: delta.into() }.into()))
            }
            held => {
                match self.parts.get_mut(index) {
                    Some(place) => *place = held,
                    None => self.parts.push(held),
                }
                if let Some(key) = key {
                    self.keys.insert(key.to_owned(), index);
                }
                Ok(None)
            }
        }
    }

    /// Takes a complete tool call (`handle_tool_call_part`). It replaces the part of the key if that is a tool call.
    pub fn tool_call_part(
        &mut self,
        key: Option<&str>,
        chunk: StreamedToolCall,
        defaults: &mut DefaultSource<'_>,
    ) -> StreamEvent {
        let part = ToolCallPart {
            tool_name: chunk.tool_name.unwrap_or_default(),
            args: chunk.args,
            tool_call_id: chunk.tool_call_id.unwrap_or_else(|| tool_call_id(defaults)),
            tool_kind: None,
            id: chunk.id,
            provider_name: chunk.provider_name,
            provider_details: chunk.provider_details,
        };
        self.part(key, part.into())
    }

    /// Takes a complete part (`handle_part`). It replaces the part of the key if that has the same kind, and is
    /// appended otherwise.
    pub fn part(&mut self, key: Option<&str>, part: ResponsePart) -> StreamEvent {
        let same = |held: &PartOrDelta| matches!(held, PartOrDelta::Part(held) if held.kind() == part.kind());
        let at = key.and_then(|key| self.keys.get(key).copied()).filter(|at| same(&self.parts[*at]));
        self.start(key, at, part)
    }
}

impl StreamedText<'_> {
    fn into_thinking(self) -> StreamedThinking {
        StreamedThinking {
            content: Some(self.content.to_owned()),
            id: None,
            signature: None,
            provider_name: self.provider_name,
            provider_details: self.provider_details,
        }
    }
}

fn kind(part: &PartOrDelta) -> &'static str {
    match part {
        PartOrDelta::Part(part) => part.kind(),
        PartOrDelta::Delta(delta) => delta.kind(),
    }
}

/// Returns the id and the provider's name of a tool call, if the part is one.
fn call_fields(part: &PartOrDelta) -> Option<(String, Option<String>)> {
    match part {
        PartOrDelta::Part(ResponsePart::ToolCall(p)) => Some((p.tool_call_id.clone(), p.provider_name.clone())),
        PartOrDelta::Part(ResponsePart::NativeToolCall(p)) => Some((p.tool_call_id.clone(), p.provider_name.clone())),
        PartOrDelta::Delta(PartDelta::ToolCall(p)) => {
            Some((p.tool_call_id.clone().unwrap_or_default(), p.provider_name.clone()))
        }
        _ => None,
    }
}
