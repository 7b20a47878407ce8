//! The parts of requests and of responses.
//!
//! *Absent:* the tools' parts, instructions, feedback and speech, which have files of their own.

use super::citation::Citation;
use super::content::UserContent;
use super::datetime::DateTime;
use super::file::Binary;
use super::instruction::{InstructionBaselinePart, InstructionDeltaPart, SettingsChange};
use super::macros::{record, variants, words};
use super::retry::{RetryFeedbackPart, read_retry_prompt};
use super::speech::SpeechPart;
use super::tool::{NativeToolCallPart, NativeToolReturnPart, ToolCallPart, ToolReturnPart};
use annals_base::{Map, Value};

words! {
    /// The scope of a system prompt.
    pub enum PromptScope = Conversation {
        /// For the conversation.
        Conversation = "conversation",
        /// For the request it is in.
        Request = "request",
    }
}

record! {
    /// Instructions of the developer as part of the history (`SystemPromptPart`).
    pub struct SystemPromptPart {
        /// The text.
        pub content: String,
        /// The time at which it was rendered.
        pub timestamp: DateTime,
        /// The name of the function that renders it anew in every run.
        pub dynamic_ref: Option<String>,
        /// The id of its topic.
        pub context_id: Option<String>,
        /// Its scope.
        pub scope: PromptScope,
        /// Not sent to the model.
        pub metadata: Option<Map>,
    } [part_kind = "system-prompt"]
}

impl SystemPromptPart {
    /// Returns a prompt for the conversation, without a function that renews it.
    pub fn new(content: impl Into<String>, timestamp: DateTime) -> Self {
        Self {
            content: content.into(),
            timestamp,
            dynamic_ref: None,
            context_id: None,
            scope: PromptScope::Conversation,
            metadata: None,
        }
    }
}

record! {
    /// A prompt of the user (`UserPromptPart`).
    pub struct UserPromptPart {
        /// A text, or items.
        pub content: UserContent,
        /// The time of the prompt.
        pub timestamp: DateTime,
    } [part_kind = "user-prompt"]
}

impl UserPromptPart {
    /// Returns a prompt.
    pub fn new(content: impl Into<UserContent>, timestamp: DateTime) -> Self {
        Self { content: content.into(), timestamp }
    }
}

record! {
    /// Tools become available (`ToolAvailabilityDeltaPart`).
    pub struct ToolAvailabilityDeltaPart {
        /// Their names.
        pub tools_added: Vec<String> | "added" = |_| Some(Vec::new()),
        /// The id of the call that added them.
        pub tool_call_id: Option<String>,
    } [part_kind = "tool-availability-delta"]
}

impl ToolAvailabilityDeltaPart {
    /// Returns the part for the tools of these names, without a call.
    pub fn new(tools_added: Vec<String>) -> Self {
        Self { tools_added, tool_call_id: None }
    }
}

record! {
    /// Capabilities are loaded (`CapabilityLoadDeltaPart`).
    pub struct CapabilityLoadDeltaPart {
        /// Their ids.
        pub loaded: Vec<String> = |_| Some(Vec::new()),
        /// The id of the call that loaded them.
        pub tool_call_id: Option<String>,
    } [part_kind = "capability-load-delta"]
}

impl CapabilityLoadDeltaPart {
    /// Returns the part for the capabilities of these ids, without a call.
    pub fn new(loaded: Vec<String>) -> Self {
        Self { loaded, tool_call_id: None }
    }
}

record! {
    /// Settings of the model change (`ModelSettingsDeltaPart`).
    pub struct ModelSettingsDeltaPart {
        /// The settings.
        pub settings: SettingsChange,
        /// True if they apply to the run as a whole.
        pub top_level: bool,
    } [part_kind = "model-settings-delta"]
}

impl ModelSettingsDeltaPart {
    /// Returns a change of settings; `top_level` is false.
    pub fn new(settings: SettingsChange) -> Self {
        Self { settings, top_level: false }
    }
}

record! {
    /// Replaces the history before it (`CompactionPart`). In a request it has neither an id nor details of a provider.
    pub struct CompactionPart {
        /// The summary, if it is readable.
        pub content: Option<String>,
        /// The provider's id.
        pub id: Option<String>,
        /// The provider to which the id and the details belong.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
        /// Not sent to the model.
        pub metadata: Option<Map>,
    } [part_kind = "compaction"]
}

impl CompactionPart {
    /// Returns a compaction without an id, details of a provider or metadata.
    pub fn new(content: Option<String>) -> Self {
        Self { content, id: None, provider_name: None, provider_details: None, metadata: None }
    }
}

record! {
    /// A text of the model (`TextPart`).
    pub struct TextPart {
        /// The text.
        pub content: String,
        /// The provider's id.
        pub id: Option<String>,
        /// The provider to which the id and the details belong.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
        /// The sources of the text.
        pub citations: Option<Vec<Citation>>,
    } [part_kind = "text"]
}

impl TextPart {
    /// Returns a text without citations.
    pub fn new(content: impl Into<String>) -> Self {
        let content = content.into();
        Self { content, id: None, provider_name: None, provider_details: None, citations: None }
    }
}

record! {
    /// Thinking of the model (`ThinkingPart`).
    pub struct ThinkingPart {
        /// The text.
        pub content: String,
        /// The provider's id.
        pub id: Option<String>,
        /// The signature by which the provider recognises its own text.
        pub signature: Option<String>,
        /// The provider to which the id, the signature and the details belong.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
    } [part_kind = "thinking"]
}

impl ThinkingPart {
    /// Returns thinking without an id, a signature or details of a provider.
    pub fn new(content: impl Into<String>) -> Self {
        Self { content: content.into(), id: None, provider_name: None, provider_details: None, signature: None }
    }
}

record! {
    /// A file that the model made (`FilePart`).
    pub struct FilePart {
        /// The file.
        pub content: Binary,
        /// The provider's id.
        pub id: Option<String>,
        /// The provider to which the id and the details belong.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
    } [part_kind = "file"]
}

impl FilePart {
    /// Returns a file without an id or details of a provider.
    pub fn new(content: Binary) -> Self {
        Self { content, id: None, provider_name: None, provider_details: None }
    }
}

variants! {
    /// A part of a request (`ModelRequestPart`).
    pub enum RequestPart by "part_kind" {
        /// Instructions of the developer.
        SystemPrompt(SystemPromptPart) = "system-prompt",
        /// A prompt of the user (`UserPromptPart`).
        UserPrompt(UserPromptPart) = "user-prompt",
        /// The result of a tool of the application.
        ToolReturn(ToolReturnPart) = "tool-return",
        /// The model is asked to try again.
        RetryFeedback(RetryFeedbackPart) = "retry-feedback",
        /// Tools become available (`ToolAvailabilityDeltaPart`).
        ToolAvailabilityDelta(ToolAvailabilityDeltaPart) = "tool-availability-delta",
        /// Capabilities are loaded (`CapabilityLoadDeltaPart`).
        CapabilityLoadDelta(CapabilityLoadDeltaPart) = "capability-load-delta",
        /// Settings of the model change (`ModelSettingsDeltaPart`).
        ModelSettingsDelta(ModelSettingsDeltaPart) = "model-settings-delta",
        /// An instruction changes.
        InstructionDelta(InstructionDeltaPart) = "instruction-delta",
        /// The instructions from which changes count.
        InstructionBaseline(InstructionBaselinePart) = "instruction-baseline",
        /// Replaces the history before it.
        Compaction(CompactionPart) = "compaction",
        /// Speech of the user.
        Speech(SpeechPart) = "speech",
    }
    also "retry-prompt" => read_retry_prompt;
}

variants! {
    /// A part of a response (`ModelResponsePart`).
    pub enum ResponsePart by "part_kind" {
        /// A text of the model (`TextPart`).
        Text(TextPart) = "text",
        /// Thinking of the model.
        Thinking(ThinkingPart) = "thinking",
        /// A call of a tool of the application.
        ToolCall(ToolCallPart) = "tool-call",
        /// A call of a tool of the provider.
        NativeToolCall(NativeToolCallPart) = "builtin-tool-call",
        /// The result of a tool of the provider.
        NativeToolReturn(NativeToolReturnPart) = "builtin-tool-return",
        /// A file that it made.
        File(FilePart) = "file",
        /// Replaces the history before it.
        Compaction(CompactionPart) = "compaction",
        /// Speech of the model.
        Speech(SpeechPart) = "speech",
    }
}

/// Reads and writes single parts as values.
macro_rules! part_values {
    ($type:ty) => {
        impl $type {
            /// Reads one part from its JSON.
            ///
            /// # Errors
            /// [`LoadError`](super::LoadError) naming the place.
            pub fn from_value(value: Value, defaults: &mut super::DefaultSource<'_>) -> Result<Self, super::LoadError> {
                super::wire::read_value("part", value, defaults)
            }

            /// Returns the value as JSON.
            pub fn to_value(&self) -> Value {
                super::wire::Wire::write(self)
            }
        }
    };
}
part_values!(RequestPart);
part_values!(ResponsePart);
