//! Requests and responses, and a history of them as JSON text.
//!
//! *Absent:* running agents.

use super::datetime::{DateTime, TimeDelta};
use super::error::LoadError;
use super::macros::{record, variants, words};
use super::part::{RequestPart, ResponsePart};
use super::speech::Speaker;
use super::usage::RequestUsage;
use super::wire::{Wire, WireReader, read_text, read_value};
use annals_base::DefaultSource;
use annals_base::{Map, Value};
use annals_messages::internal::{JsonStyle, json_write};

words! {
    /// The state of a request.
    pub enum RequestState = Complete {
        /// Complete.
        Complete = "complete",
        /// The run ended before the request was complete.
        Interrupted = "interrupted",
    }
}

record! {
    /// A request to a model (`ModelRequest`).
    pub struct ModelRequest {
        /// Its parts.
        pub parts: Vec<RequestPart>,
        /// The time at which it was sent.
        pub timestamp: Option<DateTime>,
        /// The instructions in force.
        pub instructions: Option<String>,
    } [kind = "request"] {
        /// The id of its run.
        pub run_id: Option<String>,
        /// The id of its conversation.
        pub conversation_id: Option<String>,
        /// Not sent to the model; the key `__pydantic_ai__` is the framework's.
        pub metadata: Option<Map>,
        /// Its state.
        pub state: RequestState,
    }
    after check_request;
}

impl ModelRequest {
    /// Returns a complete request of these parts, without a timestamp.
    pub fn new(parts: Vec<RequestPart>) -> Self {
        Self {
            parts,
            timestamp: None,
            instructions: None,
            run_id: None,
            conversation_id: None,
            metadata: None,
            state: RequestState::Complete,
        }
    }
}

/// In a request only the user speaks, and a compaction is the application's own.
fn check_request(request: &mut ModelRequest, _: &mut Map, reader: &mut WireReader<'_>) {
    for part in &request.parts {
        let wrong = match part {
            RequestPart::Speech(speech) if speech.speaker != Speaker::User => "a request in which the user speaks",
            RequestPart::Compaction(c)
                if c.id.is_some() || c.provider_name.is_some() || c.provider_details.is_some() =>
            {
                "a request whose compaction has no provider fields"
            }
            _ => continue,
        };
        reader.fail::<()>(wrong, &part.to_value());
    }
}

words! {
    /// The reason why a model stopped (`FinishReason`).
    pub enum FinishReason {
        /// The response is finished.
        Stop = "stop",
        /// It reached a limit on length.
        Length = "length",
        /// A filter stopped it.
        ContentFilter = "content_filter",
        /// It called a tool.
        ToolCall = "tool_call",
        /// An error occurred.
        Error = "error",
    }
}

words! {
    /// The state of a response.
    pub enum ResponseState = Complete {
        /// Complete.
        Complete = "complete",
        /// More chunks are to come.
        Incomplete = "incomplete",
        /// The provider will continue it later.
        Suspended = "suspended",
        /// The stream was closed early.
        Interrupted = "interrupted",
    }
}

record! {
    /// A reference to the files of a conversation at a provider (`WorkspaceRef`).
    pub struct WorkspaceRef {
        /// The name of the provider.
        pub provider: String,
        /// The provider's id of the workspace.
        pub id: String,
    }
}

impl WorkspaceRef {
    /// Returns a reference by the name of the provider and its id.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self { provider: provider.into(), id: id.into() }
    }
}

words! {
    /// The outcome of a failed attempt.
    pub enum AttemptOutcome {
        /// With an error.
        Error = "error",
        /// Its response was refused.
        Rejected = "rejected",
    }
}

record! {
    /// A request to a model that failed before another one succeeded (`FailedAttempt`).
    pub struct FailedAttempt {
        /// The name of the model.
        pub model_name: String,
        /// The name of the provider.
        pub provider_name: Option<String>,
        /// Its outcome.
        pub outcome: AttemptOutcome,
        /// The text of the error.
        pub error: Option<String>,
        /// The time at which it began.
        pub timestamp: DateTime = |_| None,
        /// Its duration.
        pub duration: TimeDelta,
        /// Its usage if that is known, without unknown fields.
        pub usage: Option<RequestUsage>,
    }
    after forget_unknown_usage;
}

impl FailedAttempt {
    /// Returns an attempt without a provider, an error text or usage.
    pub fn new(
        model_name: impl Into<String>,
        outcome: AttemptOutcome,
        timestamp: DateTime,
        duration: TimeDelta,
    ) -> Self {
        Self {
            model_name: model_name.into(),
            outcome,
            timestamp,
            duration,
            provider_name: None,
            error: None,
            usage: None,
        }
    }
}

/// Of an attempt, the reference keeps the known fields only.
fn forget_unknown_usage(attempt: &mut FailedAttempt, _: &mut Map, _: &mut WireReader<'_>) {
    if let Some(usage) = &mut attempt.usage {
        usage.counts.extra.clear();
    }
}

record! {
    /// A response of a model (`ModelResponse`).
    pub struct ModelResponse {
        /// Its parts.
        pub parts: Vec<ResponsePart>,
        /// Its usage.
        pub usage: RequestUsage,
        /// The model, as the provider names it.
        pub model_name: Option<String>,
        /// The model, as the application names it: `provider:model`.
        pub model_id: Option<String>,
        /// The time at which it arrived.
        pub timestamp: DateTime,
    } [kind = "response"] {
        /// The name of the provider.
        pub provider_name: Option<String>,
        /// The base URL of the provider.
        pub provider_url: Option<String>,
        /// The system that the provider's adapter stands for.
        pub canonical_system: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map> | "vendor_details",
        /// The provider's id of the response.
        pub provider_response_id: Option<String> | "vendor_id",
        /// The reason why the model stopped.
        pub finish_reason: Option<FinishReason>,
        /// The id of its run.
        pub run_id: Option<String>,
        /// The id of its conversation.
        pub conversation_id: Option<String>,
        /// Not sent to the model; the key `__pydantic_ai__` is the framework's.
        pub metadata: Option<Map>,
        /// The files of the conversation at the provider.
        pub workspace_ref: Option<WorkspaceRef>,
        /// The hash of the history that was sent.
        pub history_digest: Option<String>,
        /// The attempts that failed before it.
        pub failed_attempts: Option<Vec<FailedAttempt>>,
        /// Its state.
        pub state: ResponseState,
    }
    after check_response;
}

impl ModelResponse {
    /// Returns a complete response of these parts.
    pub fn new(parts: Vec<ResponsePart>, timestamp: DateTime) -> Self {
        Self {
            parts,
            usage: RequestUsage::default(),
            model_name: None,
            model_id: None,
            timestamp,
            provider_name: None,
            provider_url: None,
            canonical_system: None,
            provider_details: None,
            provider_response_id: None,
            finish_reason: None,
            run_id: None,
            conversation_id: None,
            metadata: None,
            workspace_ref: None,
            history_digest: None,
            failed_attempts: None,
            state: ResponseState::Complete,
        }
    }
}

/// In a response only the assistant speaks.
fn check_response(response: &mut ModelResponse, _: &mut Map, reader: &mut WireReader<'_>) {
    for part in &response.parts {
        if matches!(part, ResponsePart::Speech(speech) if speech.speaker != Speaker::Assistant) {
            reader.fail::<()>("a response in which the assistant speaks", &part.to_value());
        }
    }
}

variants! {
    /// One message of a history (`ModelMessage`).
    #[allow(clippy::large_enum_variant, reason = "half of the messages are responses")]
    pub enum ModelMessage by "kind" {
        /// A request to a model (`ModelRequest`).
        Request(ModelRequest) = "request",
        /// A response of a model.
        Response(ModelResponse) = "response",
    }
}

impl ModelMessage {
    /// Returns the metadata.
    pub fn metadata(&self) -> Option<&Map> {
        match self {
            Self::Request(request) => request.metadata.as_ref(),
            Self::Response(response) => response.metadata.as_ref(),
        }
    }

    /// Returns the run it belongs to.
    pub fn run_id(&self) -> Option<&str> {
        match self {
            Self::Request(request) => request.run_id.as_deref(),
            Self::Response(response) => response.run_id.as_deref(),
        }
    }
}

/// Reads a history from JSON text, also that of older releases (`ModelMessagesTypeAdapter.validate_json`).
///
/// # Errors
/// [`LoadError`] with the place: the text is not JSON, is not a history, or nests deeper than
/// [`VALUE_DEPTH_MAX`](annals_base::limits::VALUE_DEPTH_MAX).
///
/// # Example: an error names its place
/// ```
/// use annals_base::{IdSource, SystemClock};
/// use annals_pydantic_ai::{DefaultSource, load};
///
/// let mut ids = IdSource::from_seed(1);
/// let text = r#"[{"kind": "request", "parts": [{"part_kind": "system-prompt", "content": 3}]}]"#;
/// let error = load(text.as_bytes(), &mut DefaultSource::new(&SystemClock, &mut ids)).unwrap_err();
/// assert_eq!(error.to_string(), "messages[0].parts[0].content: expected a text, found 3");
/// ```
pub fn load(text: &[u8], defaults: &mut DefaultSource<'_>) -> Result<Vec<ModelMessage>, LoadError> {
    read_text("messages", text, defaults)
}

/// Reads a history from a JSON value.
///
/// # Errors
/// As [`load`].
pub fn from_value(value: Value, defaults: &mut DefaultSource<'_>) -> Result<Vec<ModelMessage>, LoadError> {
    read_value("messages", value, defaults)
}

/// Writes a history as JSON text, byte for byte as `ModelMessagesTypeAdapter.dump_json` does. A number that is not
/// finite becomes `null`; in the place of a declared number, such as the seconds of audio, neither PydanticAI nor
/// [`load`] reads that.
pub fn dump(messages: &[ModelMessage]) -> String {
    json_write(&to_value(messages), JsonStyle::PYDANTIC)
}

/// Returns a history as a JSON value.
pub fn to_value(messages: &[ModelMessage]) -> Value {
    Value::List(messages.iter().map(Wire::write).collect())
}
