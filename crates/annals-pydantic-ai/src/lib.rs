//! The message history of PydanticAI as typed Rust: load, dump, repair, and conversion to and from LangChain's
//! messages.
//!
//! A history is a list of [`ModelMessage`]s: a [`ModelRequest`] holds [`RequestPart`]s, a [`ModelResponse`] holds
//! [`ResponsePart`]s and its [`RequestUsage`]. [`load`] and [`dump`] read and write the JSON of
//! `ModelMessagesTypeAdapter` of pydantic-ai 2.68, byte for byte, and [`load`] also reads the JSON of older releases.
//! Each type has the name and the fields of its counterpart in `pydantic_ai.messages` or names it. Records have public
//! fields and a constructor with the required ones; the others are assigned afterwards.
//!
//! *Absent:* models, agents, tools, prices, and network access.
//!
//! Invariants: `load(dump(m)) == m`; no input panics, and every error names its place.
//!
//! # Recipes
//!
//! [Load and dump a history](#load-and-dump-a-history) ·
//! [Build a history](#build-a-history) ·
//! [Locate an error](#locate-an-error) ·
//! [Repair an interrupted history](#repair-an-interrupted-history) ·
//! [Convert to LangChain's messages and back](#convert-to-langchains-messages-and-back) ·
//! [Assemble a streamed response](#assemble-a-streamed-response) ·
//! [Limit the usage of a run](#limit-the-usage-of-a-run) ·
//! [Take the history out of a run](#take-the-history-out-of-a-run)
//!
//! ## Load and dump a history
//!
//! A missing timestamp or id comes from the clock and the id source of [`DefaultSource`], so that tests are
//! deterministic.
//! ```
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{DefaultSource, ModelMessage, dump, load};
//!
//! let text =
//! r#"[{"parts":[{"content":"hi","timestamp":"2025-01-02T03:04:05+02:00","part_kind":"user-prompt"}],"timestamp":null,"instructions":null,"kind":"request","run_id":null,"conversation_id":null,"metadata":null,"state":"complete"}]"#; let mut ids = IdSource::from_seed(1);
//! let messages = load(text.as_bytes(), &mut DefaultSource::new(&SystemClock, &mut ids))?;
//! assert!(matches!(&messages[0], ModelMessage::Request(request) if request.parts.len() == 1));
//! assert_eq!(dump(&messages), text);
//! # Ok::<(), annals_pydantic_ai::LoadError>(())
//! ```
//!
//! ## Build a history
//! ```
//! use annals_pydantic_ai::{DateTime, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart};
//!
//! let noon = DateTime::parse("2025-01-02T12:00:00Z").expect("a date and time");
//! let mut request = ModelRequest::new(vec![UserPromptPart::new("Which city?", noon).into()]);
//! request.instructions = Some("Answer in one word.".into());
//! let response = ModelResponse::new(vec![TextPart::new("Bern").into()], noon);
//! assert_eq!(response.text().as_deref(), Some("Bern"));
//! let history: Vec<ModelMessage> = vec![request.into(), response.into()];
//! assert!(annals_pydantic_ai::dump(&history).contains(r#""content":"Bern""#));
//! ```
//!
//! ## Locate an error
//! ```
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{DefaultSource, PathPart, load};
//!
//! let text = br#"[{"kind": "response", "parts": [{"part_kind": "text", "content": 3}]}]"#;
//! let error = load(text, &mut DefaultSource::new(&SystemClock, &mut IdSource::new())).unwrap_err();
//! assert_eq!(error.to_string(), "messages[0].parts[0].content: expected a text, found 3");
//! assert_eq!(error.path.first(), Some(&PathPart::Index(0)));
//! ```
//!
//! ## Repair an interrupted history
//!
//! A call without a result gets one with the outcome `interrupted`, so that a provider accepts the history again.
//! ```
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{
//!     DefaultSource, ModelMessage, ModelResponse, RequestPart, ToolArgs, ToolCallPart, ToolOutcome, repair_messages,
//! };
//!
//! let mut ids = IdSource::new();
//! let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
//! let call = ToolCallPart::new("weather", ToolArgs::Text(r#"{"city": "Bern"}"#.into()), &mut defaults);
//! let repaired = repair_messages(vec![ModelResponse::new(vec![call.into()], defaults.now().into()).into()], true);
//! let ModelMessage::Request(request) = &repaired[1] else { panic!("a request with the result") };
//! assert!(matches!(&request.parts[0], RequestPart::ToolReturn(part) if part.outcome == ToolOutcome::Interrupted));
//! ```
//!
//! ## Convert to LangChain's messages and back
//!
//! Both directions are lossless while the messages are not edited: data without a counterpart travels under the key
//! `pydantic_ai` of a message, or in the metadata of a request or response.
//! ```
//! use annals_base::{IdSource, SystemClock};
//! use annals_messages::Message;
//! use annals_pydantic_ai::{DefaultSource, from_langchain, to_langchain};
//!
//! let messages = [Message::system("Be brief."), Message::human("hi").with_id("m1"), Message::ai("hello")];
//! let history = from_langchain(&messages, &mut DefaultSource::new(&SystemClock, &mut IdSource::new()))?;
//! assert_eq!(history.len(), 2, "a request and a response");
//! assert_eq!(to_langchain(&history, false)?, messages);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Assemble a streamed response
//!
//! [`StreamedParts`] takes the chunks of a provider and returns the events for a user interface; the receiver of the
//! events applies each [`PartDelta`] to its copy of the part.
//! ```
//! use annals_pydantic_ai::{ResponsePart, StreamEvent, StreamedParts, StreamedText, TextPart};
//!
//! let (mut parts, mut copy) = (StreamedParts::default(), None);
//! for content in ["Hel", "lo"] {
//!     match parts.text(Some("content"), StreamedText::new(content))? {
//!         Some(StreamEvent::PartStart(start)) => copy = Some(start.part),
//!         Some(StreamEvent::PartDelta(event)) => event.delta.apply(copy.as_mut().expect("a part that began"))?,
//!         _ => {}
//!     }
//! }
//! assert_eq!(copy, Some(ResponsePart::from(TextPart::new("Hello"))));
//! assert_eq!(parts.parts().next(), copy.as_ref());
//! # Ok::<(), annals_pydantic_ai::PartsError>(())
//! ```
//!
//! ## Limit the usage of a run
//! ```
//! use annals_pydantic_ai::{RunUsage, UsageLimits};
//!
//! let mut limits = UsageLimits::default();
//! limits.total_tokens_limit = Some(100);
//! let mut usage = RunUsage::default();
//! usage.counts.input_tokens = 120;
//! let error = limits.check_tokens(&usage).unwrap_err();
//! assert!(error.to_string().starts_with("Exceeded the total_tokens_limit of 100 (total_tokens=120)"));
//! ```
//!
//! ## Take the history out of a run
//!
//! With the feature `graph`, the trait `RunHistory` gives the outcome of a run of `annals-graph` the methods of
//! `AgentRunResult`: all messages of a channel, or those that the run added.
//! ```
//! # #[cfg(feature = "graph")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use annals_graph::prelude::*;
//! use annals_pydantic_ai::RunHistory;
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! let graph = StateGraph::<Chat>::new()
//!     .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
//!     .edge(START, "answer")
//!     .compile()?;
//! let outcome = graph.invoke(&Store::memory().thread("alice")?, Chat::update().messages([Message::human("hi")]))?;
//! assert_eq!(outcome.new_messages("messages")?.len(), 2);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "graph"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! | feature | adds | cost |
//! | --- | --- | --- |
//! | `graph` | `RunHistory` for the outcome of a run | the dependency `annals-graph`, with SQLite |

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
mod limits;
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

pub use annals_base::DefaultSource;
pub use citation::{Citation, CitationSource, CitedRange, DocumentSource, WebSource};
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
pub use langchain::{from_langchain, from_langchain_marked, to_langchain};
#[cfg(feature = "graph")]
pub use outcome::{HistoryError, RunHistory};
pub use part::{
    CapabilityLoadDeltaPart, CompactionPart, FilePart, ModelSettingsDeltaPart, PromptScope, RequestPart, ResponsePart,
    SystemPromptPart, TextPart, ThinkingPart, ToolAvailabilityDeltaPart, UserPromptPart,
};
pub use repair::{RepairOptions, needs_repair, post_compaction_window, repair_messages, repair_messages_with};
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
