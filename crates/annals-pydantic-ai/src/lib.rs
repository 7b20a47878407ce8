//! The message history of PydanticAI: requests and responses of parts, as typed Rust.
//!
//! [`load`] and [`dump`] read and write its JSON as `ModelMessagesTypeAdapter` of pydantic-ai 2.68 does, byte for byte,
//! and read what older releases wrote. *Absent:* models, agents, prices, and running anything.
//!
//! Invariants: `load(dump(m)) == m`; nothing that is read panics, and what is refused names its place.
//!
//! # Example: a history is read and written
//! ```
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{Fresh, ModelMessage, dump, load};
//!
//! let text = r#"[{"parts":[{"content":"hi","timestamp":"2025-01-02T03:04:05+02:00","part_kind":"user-prompt"}],"timestamp":null,"instructions":null,"kind":"request","run_id":null,"conversation_id":null,"metadata":null,"state":"complete"}]"#;
//! let mut ids = IdSource::from_seed(1);
//! let messages = load(text.as_bytes(), &mut Fresh::new(&SystemClock, &mut ids))?;
//! assert!(matches!(&messages[0], ModelMessage::Request(request) if request.parts.len() == 1));
//! assert_eq!(dump(&messages), text);
//! # Ok::<(), annals_pydantic_ai::LoadError>(())
//! ```

mod base64;
mod citation;
mod content;
mod datetime;
mod decimal;
mod delta;
mod error;
mod event;
mod file;
mod format;
mod hash;
mod history;
mod instruction;
mod langchain;
mod macros;
mod mime;
#[cfg(feature = "graph")]
mod outcome;
mod part;
mod repair;
mod retry;
mod sanitize;
mod speech;
mod streamed;
#[cfg(test)]
mod tests;
mod tool;
mod tool_content;
mod tool_text;
mod usage;
mod usage_sum;
mod value_xml;
mod view;
mod wire;

pub use annals_base::Fresh;
pub use citation::{Anchor, Citation, CitationSource, DocumentSource, WebSource};
pub use content::{CachePoint, CacheTtl, StructuredContent, TextContent, UserContent, UserItem};
pub use datetime::{DateTime, TimeDelta};
pub use decimal::Decimal;
pub use delta::{DeltaError, PartDelta, PartOrDelta, SpeechDelta, TextDelta, ThinkingDelta, ToolCallDelta};
pub use error::{LoadError, LoadReason, PathPart};
pub use event::{FinalResultEvent, PartDeltaEvent, PartEndEvent, PartStartEvent, StreamEvent};
pub use file::{Binary, BinaryData, File, FileHost, FileUrl, ForceDownload, UploadedFile, UrlKind};
pub use format::PydanticAiFormat;
pub use history::{
    AttemptOutcome, FailedAttempt, FinishReason, ModelMessage, ModelRequest, ModelResponse, RequestState,
    ResponseState, WorkspaceRef, dump, from_value, load, to_value,
};
pub use instruction::{
    InstructionBaselinePart, InstructionDeltaPart, InstructionDigest, InstructionId, InstructionPart,
    InstructionRecord, MaybeInstructionId, OnChange, SettingsChange, Thinking, join_instructions, sort_instructions,
};
pub use langchain::from_langchain_marked;
pub use langchain::{from_langchain, to_langchain};
#[cfg(feature = "graph")]
pub use outcome::{HistoryError, RunHistory};
pub use part::{
    CapabilityLoadDeltaPart, CompactionPart, FilePart, ModelSettingsDeltaPart, PromptScope, RequestPart, ResponsePart,
    SystemPromptPart, TextPart, ThinkingPart, ToolAvailabilityDeltaPart, UserPromptPart,
};
pub use repair::{post_compaction_window, repair_messages};
pub use retry::{ErrorDetail, FeedbackCause, FeedbackContent, FeedbackRetry, Location, RetryFeedbackPart};
pub use sanitize::{SanitizeOptions, sanitize_messages};
pub use speech::{Granularity, Speaker, SpeechPart, SpeechTimestamp};
pub use streamed::{PartsError, StreamedParts, StreamedText, StreamedThinking, StreamedToolCall};
pub use tool::{
    ArgsError, NativeToolCallPart, NativeToolReturnPart, ToolArgs, ToolCallPart, ToolOutcome, ToolRetry,
    ToolRetryCause, ToolReturnPart,
};
pub use tool_content::ToolContent;
pub use usage::{RequestUsage, RunUsage, UsageCounts};
pub use usage_sum::{UsageLimitExceeded, UsageLimits};
