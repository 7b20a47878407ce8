//! Feedback that asks the model for another attempt without a tool call, and the `retry-prompt` parts of older
//! releases.
//!
//! *Absent:* counting attempts.

use super::datetime::DateTime;
use super::macros::{record, serde_impls, words};
use super::part::RequestPart;
use super::tool::{ToolOutcome, ToolRetry, ToolRetryCause, ToolReturnPart};
use super::tool_content::ToolContent;
use super::wire::{Wire, WireReader};
use crate::wire::tool_call_id;
use annals_base::{Map, Value};
use annals_messages::internal::{JsonStyle, json_write};

/// One step of where in the output an error is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A member.
    Name(String),
    /// An item.
    Index(i64),
}

impl Wire for Location {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Str(name) => Some(Self::Name(name)),
            other => i64::read(other, reader).map(Self::Index),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Name(name) => name.write(),
            Self::Index(index) => index.write(),
        }
    }
}

/// One error that a validator found in an output (`ErrorDetails` of pydantic).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrorDetail {
    /// The kind of error.
    pub kind: String,
    /// The place in the output.
    pub loc: Vec<Location>,
    /// The message.
    pub msg: String,
    /// The value at the place; not dumped if it is `None`.
    pub input: Option<Value>,
    /// The values in the message.
    pub ctx: Option<Map>,
    /// The URL of a page about the kind of error.
    pub url: Option<String>,
}

impl ErrorDetail {
    /// Returns an error without a context or a URL.
    pub fn new(kind: impl Into<String>, loc: Vec<Location>, msg: impl Into<String>, input: Value) -> Self {
        Self { kind: kind.into(), loc, msg: msg.into(), input: Some(input), ctx: None, url: None }
    }
}

impl Wire for ErrorDetail {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut map = reader.object(value)?;
        let kind = reader.field::<String>(&mut map, &["type"], |_| None);
        let loc = reader.field::<Vec<Location>>(&mut map, &["loc"], |_| None);
        let msg = reader.field::<String>(&mut map, &["msg"], |_| None);
        let input = reader.field::<Value>(&mut map, &["input"], |_| None);
        let has = |map: &Map, name| map.contains_key(name);
        let (with_ctx, with_url) = (has(&map, "ctx"), has(&map, "url"));
        let ctx = reader.field::<Map>(&mut map, &["ctx"], |_| Some(Map::new()));
        let url = reader.field::<String>(&mut map, &["url"], |_| Some(String::new()));
        let (ctx, url) = (ctx?, url?);
        Some(Self {
            kind: kind?,
            loc: loc?,
            msg: msg?,
            input: Some(input?),
            ctx: with_ctx.then_some(ctx),
            url: with_url.then_some(url),
        })
    }

    fn write(&self) -> Value {
        let members = [
            ("type", Some(self.kind.write())),
            ("loc", Some(self.loc.write())),
            ("msg", Some(self.msg.write())),
            ("input", self.input.clone()),
            ("ctx", self.ctx.as_ref().map(Wire::write)),
            ("url", self.url.as_ref().map(Wire::write)),
        ];
        Value::Map(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }
}

/// Leaves out data that a model need not see twice: the context of each error, and an input that equals that of the
/// first error at the top of the output.
pub(super) fn reduced(errors: &[ErrorDetail]) -> Vec<ErrorDetail> {
    let is_top = |error: &&ErrorDetail| error.loc.len() <= 1;
    let first = errors.iter().position(|error| is_top(&error));
    let root = first.and_then(|at| errors[at].input.as_ref());
    let reduce = |(at, error): (usize, &ErrorDetail)| {
        let again = is_top(&error) && Some(at) != first && error.input.as_ref() == root;
        ErrorDetail { ctx: None, input: error.input.clone().filter(|_| !again), ..error.clone() }
    };
    errors.iter().enumerate().map(reduce).collect()
}

/// The content of feedback.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedbackContent {
    /// A text.
    Text(String),
    /// The errors that a validator found.
    Errors(Vec<ErrorDetail>),
}

impl Wire for FeedbackContent {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Str(text) => Some(Self::Text(text)),
            Value::List(_) => reader.one_place(|reader| Vec::read(value, reader)).map(Self::Errors),
            other => reader.fail("a text or a list", &other),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Text(text) => text.write(),
            Self::Errors(errors) => errors.write(),
        }
    }
}

words! {
    /// The cause of feedback.
    pub enum FeedbackCause {
        /// The output failed validation.
        ValidationError = "validation_error",
        /// The response had no output.
        NoOutput = "no_output",
        /// A validator raised `ModelRetry`.
        ModelRetry = "model_retry",
    }
}

record! {
    /// The request for another attempt (`RetryInfo`).
    pub struct FeedbackRetry {
        /// The cause.
        pub cause: FeedbackCause,
        /// The number of this attempt.
        pub attempt: Option<i64>,
        /// The allowed number of attempts.
        pub max_retries: Option<i64>,
    }
}

impl FeedbackRetry {
    /// Returns the request for another output, without counts of attempts.
    pub fn new(cause: FeedbackCause) -> Self {
        Self { cause, attempt: None, max_retries: None }
    }
}

record! {
    /// Asks the model for another attempt (`RetryFeedbackPart`).
    pub struct RetryFeedbackPart {
        /// The content.
        pub content: FeedbackContent,
        /// The cause.
        pub retry: FeedbackRetry,
        /// The time of the feedback.
        pub timestamp: DateTime,
    } [part_kind = "retry-feedback"]
}

impl RetryFeedbackPart {
    /// Returns feedback with its cause.
    pub fn new(content: FeedbackContent, retry: FeedbackRetry, timestamp: DateTime) -> Self {
        Self { content, retry, timestamp }
    }
}

const FRAME: &str = "Your previous response failed the application's validation \
    (this is automated feedback, not a message from the user):";

impl RetryFeedbackPart {
    /// Returns the text that the model sees: requests of the framework as they are, anything else as feedback
    /// in a tag, so that it is not taken for words of the user.
    pub fn text(&self) -> String {
        match &self.content {
            FeedbackContent::Text(text) if self.retry.cause == FeedbackCause::NoOutput && is_request(text) => {
                text.clone()
            }
            _ => self.framed_text(),
        }
    }

    /// Returns any text as feedback in a tag.
    pub(super) fn framed_text(&self) -> String {
        let text = match &self.content {
            FeedbackContent::Text(text) => text.clone(),
            FeedbackContent::Errors(errors) => json_write(&reduced(errors).write(), JsonStyle::PYDANTIC),
        };
        let tag = match self.retry.cause {
            FeedbackCause::ValidationError => "pyai:validation_errors",
            _ => "pyai:retry_feedback",
        };
        format!("{FRAME}\n<{tag}>\n{text}\n</{tag}>")
    }
}

/// Returns whether a text is one with which the framework asks for an output.
fn is_request(text: &str) -> bool {
    const ASKS: [&[&str]; 3] =
        [&["return text"], &["include your response in a tool call", "call a tool"], &["return an image"]];
    let Some(asked) = text.strip_prefix("Please ").and_then(|text| text.strip_suffix('.')) else { return false };
    // Each phrase is of a later group than the one before it.
    let mut from = 0;
    asked.split(" or ").all(|piece| {
        let group = (from..ASKS.len()).find(|group| ASKS[*group].contains(&piece));
        from = group.map_or(ASKS.len(), |group| group + 1);
        group.is_some()
    }) || asked.is_empty()
}

record! {
    /// The part of older releases for both kinds of retry (`RetryPromptPart`).
    struct RetryPrompt {
        /// The content of feedback.
        pub content: FeedbackContent,
        /// The tool to be called again.
        pub tool_name: Option<String>,
        /// Its call.
        pub tool_call_id: String = |defaults| Some(tool_call_id(defaults)),
        /// The time of the feedback.
        pub timestamp: DateTime,
    }
}

/// Reads a `retry-prompt` of older releases: with a tool it is a tool return that asks for another call, without one
/// feedback.
pub(super) fn read_retry_prompt(value: Value, reader: &mut WireReader<'_>) -> Option<RequestPart> {
    let RetryPrompt { content, tool_name, tool_call_id, timestamp } = RetryPrompt::read(value, reader)?;
    let Some(tool_name) = tool_name else {
        let cause = match &content {
            FeedbackContent::Text(_) => FeedbackCause::ModelRetry,
            FeedbackContent::Errors(_) => FeedbackCause::ValidationError,
        };
        let retry = FeedbackRetry { cause, attempt: None, max_retries: None };
        return Some(RetryFeedbackPart { content, retry, timestamp }.into());
    };
    let (content, retry) = match content {
        FeedbackContent::Text(text) => (ToolContent::text(text), None),
        FeedbackContent::Errors(errors) => {
            let retry = ToolRetry { cause: ToolRetryCause::ValidationError, attempt: None, max_retries: None };
            (ToolContent::data(reduced(&errors).write()), Some(retry))
        }
    };
    let (tool_kind, metadata, outcome) = (None, Value::Null, ToolOutcome::Retried);
    Some(ToolReturnPart { tool_name, content, tool_call_id, tool_kind, metadata, timestamp, outcome, retry }.into())
}

serde_impls!(Location, ErrorDetail, FeedbackContent);
