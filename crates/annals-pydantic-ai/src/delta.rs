//! Deltas of parts while a response streams in.
//!
//! *Absent:* the choice of the part that a delta applies to; `streamed.rs` makes it.

use super::LoadError;
use super::citation::Citation;
use super::file::{BinaryData, short_name};
use super::macros::{record, serde_impls, variants};
use super::part::{ResponsePart, TextPart, ThinkingPart};
use super::speech::{Speaker, SpeechPart, SpeechTimestamp};
use super::tool::{CallFields, ToolArgs, ToolCallPart};
use super::wire::{Wire, WireReader, read_value};
use crate::wire::tool_call_id;
use annals_base::DefaultSource;
use annals_base::{Map, Value};

record! {
    /// More text (`TextPartDelta`).
    pub struct TextDelta {
        /// The text to append.
        pub content_delta: String,
        /// Replaces the name, unless it is empty.
        pub provider_name: Option<String>,
        /// Merged into the details.
        pub provider_details: Option<Map>,
        /// Replace the citations.
        pub citations_delta: Option<Vec<Citation>>,
    } [part_delta_kind = "text"]
}

impl TextDelta {
    /// Returns a delta that appends text.
    pub fn new(content_delta: impl Into<String>) -> Self {
        Self { content_delta: content_delta.into(), provider_name: None, provider_details: None, citations_delta: None }
    }
}

record! {
    /// More thinking (`ThinkingPartDelta`).
    pub struct ThinkingDelta {
        /// The text to append.
        pub content_delta: Option<String>,
        /// Replaces the signature.
        pub signature_delta: Option<String>,
        /// Replaces the name.
        pub provider_name: Option<String>,
        /// Merged into the details.
        pub provider_details: Option<Map>,
    } [part_delta_kind = "thinking"]
}

impl ThinkingDelta {
    /// Returns a delta that appends text.
    pub fn new(content_delta: impl Into<String>) -> Self {
        Self {
            content_delta: Some(content_delta.into()),
            signature_delta: None,
            provider_name: None,
            provider_details: None,
        }
    }
}

record! {
    /// More of a tool call (`ToolCallPartDelta`).
    #[derive(Default)]
    pub struct ToolCallDelta {
        /// Appended to the name.
        pub tool_name_delta: Option<String>,
        /// Appended to a text, merged into an object.
        pub args_delta: Option<ToolArgs>,
        /// Replaces the id, unless it is empty.
        pub tool_call_id: Option<String>,
        /// Replaces the name, unless it is empty.
        pub provider_name: Option<String>,
        /// Merged into the details.
        pub provider_details: Option<Map>,
    } [part_delta_kind = "tool_call"]
}

record! {
    /// More speech (`SpeechPartDelta`).
    #[derive(Default)]
    pub struct SpeechDelta {
        /// The speaker; a part keeps its own.
        pub speaker: Option<Speaker>,
        /// Appended to the transcript.
        pub transcript_delta: Option<String>,
        /// Replaces the transcript.
        pub transcript: Option<String>,
        /// Appended to the audio, if the part keeps any.
        pub audio_chunk: Option<BinaryData>,
        /// Appended.
        pub timestamps: Option<Vec<SpeechTimestamp>>,
    } [part_delta_kind = "speech"]
}

variants! {
    /// A delta of a part of a response (`ModelResponsePartDelta`).
    pub enum PartDelta by "part_delta_kind" {
        /// More text (`TextPartDelta`).
        Text(TextDelta) = "text",
        /// More thinking (`ThinkingPartDelta`).
        Thinking(ThinkingDelta) = "thinking",
        /// More of a tool call (`ToolCallPartDelta`).
        ToolCall(ToolCallDelta) = "tool_call",
        /// More speech (`SpeechPartDelta`).
        Speech(SpeechDelta) = "speech",
    }
}

/// A delta does not apply. The part is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The part is of another kind (`ValueError` in PydanticAI).
    #[error("a delta of kind {delta:?} does not apply to {on:?}")]
    WrongKind {
        /// The kind of the delta.
        delta: &'static str,
        /// The kind of the part or of the earlier delta.
        on: &'static str,
    },
    /// The delta has neither content nor a signature to merge into another delta (`ValueError` in PydanticAI).
    #[error("a thinking delta needs content or a signature")]
    EmptyThinking,
    /// Text and an object meet (`UnexpectedModelBehavior` in PydanticAI).
    #[error("arguments as text and arguments as an object cannot be merged")]
    MixedArgs,
}

/// A part, or the deltas of one that has no name yet.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are parts")]
pub enum PartOrDelta {
    /// A part.
    Part(ResponsePart),
    /// The merged deltas of a part that has no name yet.
    Delta(PartDelta),
}

/// The JSON of the part, or of the delta.
impl Wire for PartOrDelta {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value.get("part_delta_kind") {
            Some(_) => PartDelta::read(value, reader).map(Self::Delta),
            None => ResponsePart::read(value, reader).map(Self::Part),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Part(part) => part.write(),
            Self::Delta(delta) => delta.write(),
        }
    }
}

impl PartDelta {
    /// Reads the value from its JSON.
    ///
    /// # Errors
    /// [`LoadError`] naming the place.
    pub fn from_value(value: Value, defaults: &mut DefaultSource<'_>) -> Result<Self, LoadError> {
        read_value("delta", value, defaults)
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        self.write()
    }

    /// Applies the delta to a part (`apply`).
    ///
    /// # Errors
    /// [`DeltaError`]; the part is unchanged.
    ///
    /// # Example: text comes in chunks
    /// ```
    /// use annals_pydantic_ai::{PartDelta, ResponsePart, TextDelta, TextPart};
    ///
    /// let mut part = ResponsePart::from(TextPart::new("Hel"));
    /// PartDelta::from(TextDelta::new("lo")).apply(&mut part)?;
    /// assert!(matches!(part, ResponsePart::Text(text) if text.content == "Hello"));
    /// # Ok::<(), annals_pydantic_ai::DeltaError>(())
    /// ```
    pub fn apply(&self, part: &mut ResponsePart) -> Result<(), DeltaError> {
        match (self, part) {
            (Self::Text(delta), ResponsePart::Text(part)) => delta.apply(part),
            (Self::Thinking(delta), ResponsePart::Thinking(part)) => delta.apply(part),
            (Self::Speech(delta), ResponsePart::Speech(part)) => delta.apply(part),
            (Self::ToolCall(delta), ResponsePart::ToolCall(part)) => delta.apply(part.fields())?,
            (Self::ToolCall(delta), ResponsePart::NativeToolCall(part)) => delta.apply(part.fields())?,
            (delta, part) => return Err(DeltaError::WrongKind { delta: delta.kind(), on: part.kind() }),
        }
        Ok(())
    }

    /// Applies the delta to a part, or merges it into an earlier delta (`apply`). A tool call becomes a part as soon
    /// as it has a name.
    ///
    /// # Errors
    /// [`DeltaError`]
    pub fn apply_to(&self, to: PartOrDelta, defaults: &mut DefaultSource<'_>) -> Result<PartOrDelta, DeltaError> {
        match (self, to) {
            (delta, PartOrDelta::Part(mut part)) => {
                delta.apply(&mut part)?;
                Ok(PartOrDelta::Part(part))
            }
            (Self::Thinking(delta), PartOrDelta::Delta(Self::Thinking(before))) => {
                Ok(PartOrDelta::Delta(delta.after(before)?.into()))
            }
            (Self::ToolCall(delta), PartOrDelta::Delta(Self::ToolCall(before))) => {
                let call = delta.after(&before)?;
                Ok(match call.to_part(defaults) {
                    Some(part) => PartOrDelta::Part(part.into()),
                    None => PartOrDelta::Delta(call.into()),
                })
            }
            (delta, PartOrDelta::Delta(before)) => {
                Err(DeltaError::WrongKind { delta: delta.kind(), on: before.kind() })
            }
        }
    }
}

/// Merges details: new names win, and an empty object becomes `None`.
fn merged(before: Option<&Map>, more: Option<&Map>) -> Option<Map> {
    let mut map = before.cloned().unwrap_or_default();
    map.extend(more.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    Some(map).filter(|map| !map.is_empty())
}

fn append(text: Option<&str>, more: Option<&str>) -> Option<String> {
    match (text, more) {
        (None, None) => None,
        (text, more) => Some([text.unwrap_or(""), more.unwrap_or("")].concat()),
    }
}

fn non_empty(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

impl TextDelta {
    fn apply(&self, part: &mut TextPart) {
        part.content.push_str(&self.content_delta);
        if let Some(name) = non_empty(self.provider_name.as_ref()) {
            part.provider_name = Some(name.clone());
        }
        part.provider_details = merged(part.provider_details.as_ref(), self.provider_details.as_ref());
        if self.citations_delta.is_some() {
            part.citations.clone_from(&self.citations_delta);
        }
    }
}

impl ThinkingDelta {
    fn apply(&self, part: &mut ThinkingPart) {
        part.content.push_str(self.content_delta.as_deref().unwrap_or(""));
        if self.signature_delta.is_some() {
            part.signature.clone_from(&self.signature_delta);
        }
        if self.provider_name.is_some() {
            part.provider_name.clone_from(&self.provider_name);
        }
        part.provider_details = merged(part.provider_details.as_ref(), self.provider_details.as_ref());
    }

    fn after(&self, before: ThinkingDelta) -> Result<ThinkingDelta, DeltaError> {
        if self.content_delta.is_none() && self.signature_delta.is_none() {
            return Err(DeltaError::EmptyThinking);
        }
        Ok(ThinkingDelta {
            content_delta: append(before.content_delta.as_deref(), self.content_delta.as_deref()),
            signature_delta: self.signature_delta.clone().or(before.signature_delta),
            provider_name: self.provider_name.clone().or(before.provider_name),
            provider_details: merged(before.provider_details.as_ref(), self.provider_details.as_ref()),
        })
    }
}

impl ToolCallDelta {
    /// Returns the arguments after the delta.
    fn args(&self, before: Option<&ToolArgs>) -> Result<Option<ToolArgs>, DeltaError> {
        match (before, &self.args_delta) {
            (before, None) => Ok(before.cloned()),
            (None, Some(args)) => Ok(Some(args.clone())),
            (Some(ToolArgs::Text(text)), Some(ToolArgs::Text(more))) => {
                Ok(Some(ToolArgs::Text(format!("{text}{more}"))))
            }
            (Some(ToolArgs::Object(map)), Some(ToolArgs::Object(more))) => {
                Ok(Some(ToolArgs::Object(merged(Some(map), Some(more)).unwrap_or_default())))
            }
            _ => Err(DeltaError::MixedArgs),
        }
    }

    fn details(&self, before: Option<&Map>) -> Option<Map> {
        match self.provider_details.as_ref().filter(|details| !details.is_empty()) {
            None => before.cloned(),
            more => merged(before, more),
        }
    }

    fn apply(&self, call: CallFields<'_>) -> Result<(), DeltaError> {
        *call.args = self.args(call.args.as_ref())?;
        call.tool_name.push_str(self.tool_name_delta.as_deref().unwrap_or(""));
        if let Some(id) = non_empty(self.tool_call_id.as_ref()) {
            call.tool_call_id.clone_from(id);
        }
        if let Some(name) = non_empty(self.provider_name.as_ref()) {
            *call.provider_name = Some(name.clone());
        }
        *call.provider_details = self.details(call.provider_details.as_ref());
        Ok(())
    }

    fn after(&self, before: &ToolCallDelta) -> Result<ToolCallDelta, DeltaError> {
        Ok(ToolCallDelta {
            tool_name_delta: append(before.tool_name_delta.as_deref(), self.tool_name_delta.as_deref()),
            args_delta: self.args(before.args_delta.as_ref())?,
            tool_call_id: non_empty(self.tool_call_id.as_ref()).cloned().or_else(|| before.tool_call_id.clone()),
            provider_name: non_empty(self.provider_name.as_ref()).cloned().or_else(|| before.provider_name.clone()),
            provider_details: self.details(before.provider_details.as_ref()),
        })
    }

    /// Returns the part, if the call has a name; an id is made if it has none.
    pub(super) fn to_part(&self, defaults: &mut DefaultSource<'_>) -> Option<ToolCallPart> {
        Some(ToolCallPart {
            tool_name: self.tool_name_delta.clone()?,
            args: self.args_delta.clone(),
            tool_call_id: self.tool_call_id.clone().unwrap_or_else(|| tool_call_id(defaults)),
            tool_kind: None,
            id: None,
            provider_name: self.provider_name.clone(),
            provider_details: self.provider_details.clone(),
        })
    }
}

impl SpeechDelta {
    fn apply(&self, part: &mut SpeechPart) {
        part.transcript = match &self.transcript {
            Some(transcript) => Some(transcript.clone()),
            None => append(part.transcript.as_deref(), self.transcript_delta.as_deref()),
        };
        if let (Some(audio), Some(chunk)) = (&mut part.audio, &self.audio_chunk) {
            audio.data.0.extend_from_slice(&chunk.0);
            audio.identifier = short_name(&audio.data.0);
        }
        if let Some(more) = &self.timestamps {
            part.timestamps.get_or_insert_default().extend_from_slice(more);
        }
    }
}

serde_impls!(PartOrDelta);
