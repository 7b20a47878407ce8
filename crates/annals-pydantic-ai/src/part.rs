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
    /// How long a system prompt holds.
    pub enum PromptScope = Conversation {
        /// For the conversation.
        Conversation = "conversation",
        /// For the request it is in.
        Request = "request",
    }
}

record! {
    /// Instructions of the developer, as part of the history.
    pub struct SystemPromptPart {
        /// The text.
        pub content: String,
        /// When it was made.
        pub timestamp: DateTime,
        /// The function that makes it anew in every run.
        pub dynamic_ref: Option<String>,
        /// What it is about.
        pub context_id: Option<String>,
        /// How long it holds.
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
    /// What the user says.
    pub struct UserPromptPart {
        /// A text, or items.
        pub content: UserContent,
        /// When it was said.
        pub timestamp: DateTime,
    } [part_kind = "user-prompt"]
}

impl UserPromptPart {
    /// Returns what is said at a moment.
    pub fn new(content: impl Into<UserContent>, timestamp: DateTime) -> Self {
        Self { content: content.into(), timestamp }
    }
}

record! {
    /// Tools become available.
    pub struct ToolAvailabilityDeltaPart {
        /// Their names.
        pub tools_added: Vec<String> | "added" = |_| Some(Vec::new()),
        /// The call that made them so.
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
    /// Capabilities are loaded.
    pub struct CapabilityLoadDeltaPart {
        /// Their ids.
        pub loaded: Vec<String> = |_| Some(Vec::new()),
        /// The call that loaded them.
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
    /// Settings of the model change.
    pub struct ModelSettingsDeltaPart {
        /// The settings.
        pub settings: SettingsChange,
        /// Whether they hold for the run as a whole.
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
    /// Stands for the history before it. In a request it has neither id nor details of a provider.
    pub struct CompactionPart {
        /// What that was, in short, if it can be read.
        pub content: Option<String>,
        /// The provider's id.
        pub id: Option<String>,
        /// Whose id and details those are.
        pub provider_name: Option<String>,
        /// What the provider adds.
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
    /// What the model says.
    pub struct TextPart {
        /// The text.
        pub content: String,
        /// The provider's id.
        pub id: Option<String>,
        /// Whose id and details those are.
        pub provider_name: Option<String>,
        /// What the provider adds.
        pub provider_details: Option<Map>,
        /// What the text rests on.
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
    /// What the model thinks.
    pub struct ThinkingPart {
        /// The text.
        pub content: String,
        /// The provider's id.
        pub id: Option<String>,
        /// What proves to the provider that the text is its own.
        pub signature: Option<String>,
        /// Whose id, signature and details those are.
        pub provider_name: Option<String>,
        /// What the provider adds.
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
    /// A file that the model made.
    pub struct FilePart {
        /// The file.
        pub content: Binary,
        /// The provider's id.
        pub id: Option<String>,
        /// Whose id and details those are.
        pub provider_name: Option<String>,
        /// What the provider adds.
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
    /// A part of a request.
    pub enum RequestPart by "part_kind" {
        /// Instructions of the developer.
        SystemPrompt(SystemPromptPart) = "system-prompt",
        /// What the user says.
        UserPrompt(UserPromptPart) = "user-prompt",
        /// What a tool returned.
        ToolReturn(ToolReturnPart) = "tool-return",
        /// The model is asked to try again.
        RetryFeedback(RetryFeedbackPart) = "retry-feedback",
        /// Tools become available.
        ToolAvailabilityDelta(ToolAvailabilityDeltaPart) = "tool-availability-delta",
        /// Capabilities are loaded.
        CapabilityLoadDelta(CapabilityLoadDeltaPart) = "capability-load-delta",
        /// Settings of the model change.
        ModelSettingsDelta(ModelSettingsDeltaPart) = "model-settings-delta",
        /// An instruction changes.
        InstructionDelta(InstructionDeltaPart) = "instruction-delta",
        /// The instructions from which changes count.
        InstructionBaseline(InstructionBaselinePart) = "instruction-baseline",
        /// Stands for the history before it.
        Compaction(CompactionPart) = "compaction",
        /// What the user says, spoken.
        Speech(SpeechPart) = "speech",
    }
    also "retry-prompt" => read_retry_prompt;
}

variants! {
    /// A part of a response.
    pub enum ResponsePart by "part_kind" {
        /// What the model says.
        Text(TextPart) = "text",
        /// What it thinks.
        Thinking(ThinkingPart) = "thinking",
        /// It asks for a tool of the application.
        ToolCall(ToolCallPart) = "tool-call",
        /// It called a tool of its provider.
        NativeToolCall(NativeToolCallPart) = "builtin-tool-call",
        /// What that returned.
        NativeToolReturn(NativeToolReturnPart) = "builtin-tool-return",
        /// A file that it made.
        File(FilePart) = "file",
        /// Stands for the history before it.
        Compaction(CompactionPart) = "compaction",
        /// What it says, spoken.
        Speech(SpeechPart) = "speech",
    }
}

/// Reads a value as parts do; for tests and for those who hold single parts.
macro_rules! part_values {
    ($type:ty) => {
        impl $type {
            /// Reads the JSON form of one part.
            ///
            /// # Errors
            /// [`LoadError`](super::LoadError) naming the place.
            pub fn from_value(value: Value, fresh: &mut super::Fresh<'_>) -> Result<Self, super::LoadError> {
                super::wire::read_value("part", value, fresh)
            }

            /// Returns the JSON form.
            pub fn to_value(&self) -> Value {
                super::wire::Wire::write(self)
            }
        }
    };
}
part_values!(RequestPart);
part_values!(ResponsePart);
