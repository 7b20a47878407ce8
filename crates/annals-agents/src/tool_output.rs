//! The results of tools, and the errors by which a tool asks for another call, an approval or somebody else.
//!
//! *Absent:* counting retries, which is the loop's.

use annals_base::{Clock, CodecError, SystemClock, Value};
use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{File, ToolContent, ToolOutcome, ToolReturnPart, UserContent};
use serde::Serialize;

use crate::shared::RunShared;
use crate::tool::{ToolContext, ToolEnd};
use crate::tool_command::{ToolCommand, ToolReply};

/// The result of a tool with more than its content (`ToolReturn`). A tool whose result can be serialized needs none.
///
/// # Example
/// ```
/// use annals_agents::ToolOutput;
/// use annals_pydantic_ai::ToolContent;
///
/// let output = ToolOutput::new(ToolContent::text("a map")).with_metadata("kept for the program");
/// # let _ = output;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    pub(crate) content: ToolContent,
    pub(crate) metadata: Value,
    pub(crate) beside: Option<UserContent>,
    /// Messages and commands in place of a content.
    pub(crate) replies: Vec<ToolReply>,
}

impl ToolOutput {
    /// Returns an output of a content.
    pub fn new(content: ToolContent) -> Self {
        Self { content, metadata: Value::Null, beside: None, replies: Vec::new() }
    }

    /// Returns an output that is a file, such as an image.
    pub fn file(file: impl Into<File>) -> Self {
        Self::new(ToolContent::File(file.into()))
    }

    /// Returns an output of messages and commands, for a [`ToolNode`](crate::ToolNode): one of them is the message
    /// that answers the call. An [`Agent`](crate::Agent) takes no such output.
    pub fn replies(replies: impl IntoIterator<Item = impl Into<ToolReply>>) -> Self {
        let replies = replies.into_iter().map(Into::into).collect();
        Self { replies, ..Self::new(ToolContent::data(Value::Null)) }
    }

    /// Sets data that the history retains and the model does not see (`artifact` of a tool message).
    #[must_use]
    pub fn with_metadata(mut self, metadata: impl Into<Value>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Sets content that the model gets beside the result, in the voice of the user.
    #[must_use]
    pub fn with_user_content(mut self, content: impl Into<UserContent>) -> Self {
        self.beside = Some(content.into());
        self
    }
}

/// A result of a tool: any value that can be serialized, or a [`ToolOutput`].
pub trait IntoToolOutput: Send + 'static {
    /// Returns the output.
    ///
    /// # Errors
    /// [`CodecError`] if the value cannot be serialized.
    fn into_tool_output(self) -> NodeResult<ToolOutput>;
}

impl<T: Serialize + Send + 'static> IntoToolOutput for T {
    fn into_tool_output(self) -> NodeResult<ToolOutput> {
        let value = Value::from_serialize(&self).map_err(|error: CodecError| error)?;
        Ok(ToolOutput::new(ToolContent::data(value)))
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> NodeResult<ToolOutput> {
        Ok(self)
    }
}

impl IntoToolOutput for ToolCommand {
    fn into_tool_output(self) -> NodeResult<ToolOutput> {
        Ok(ToolOutput::replies([self]))
    }
}

macro_rules! tool_errors {
    ($($(#[$about:meta])* $name:ident = $says:literal,)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Returns the error with a message for the model.
            pub fn new(message: impl Into<String>) -> Self {
                Self(message.into())
            }

            /// Returns the message.
            pub fn message(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($says, ": {}"), self.0)
            }
        }

        impl std::error::Error for $name {}
    )*};
}

tool_errors! {
    /// The error of a tool or of a validator that asks the model for another attempt (`ModelRetry`).
    ModelRetry = "the model is asked for another attempt",
    /// The error of a tool whose failure the model is told, without another attempt.
    ToolFailed = "the tool failed",
}

macro_rules! tool_deferrals {
    ($($(#[$about:meta])* $name:ident = $says:literal,)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name(Value);

        impl $name {
            /// Returns the error with data for the person who decides.
            pub fn new(metadata: impl Into<Value>) -> Self {
                Self(metadata.into())
            }

            pub(crate) fn metadata(&self) -> &Value {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($says)
            }
        }

        impl std::error::Error for $name {}
    )*};
}

tool_deferrals! {
    /// The error of a tool whose call waits for an approval (`ApprovalRequired`): it is called again once that is
    /// given, and [`ToolContext::is_approved`] then returns true.
    ApprovalRequired = "the call waits for an approval",
    /// The error of a tool whose call somebody else will run (`CallDeferred`).
    CallDeferred = "the call waits for a result from outside",
}

/// Returns the end of a call.
///
/// # Errors
/// The error of the tool, unless it is one for the model.
pub(crate) fn tool_end(result: NodeResult<ToolOutput>, context: &ToolContext) -> NodeResult<ToolEnd> {
    // A graph of one's own has no clock for its tools.
    let now = || context.value::<RunShared>().map_or_else(|| SystemClock.now().into(), RunShared::now);
    let part = |content| ToolReturnPart::new(context.tool_name(), content, context.tool_call_id(), now());
    let error = match result {
        Ok(output) if !output.replies.is_empty() => {
            let name = context.tool_name();
            return Err(format!("tool {name:?} returned messages or a command, which only a tool node takes").into());
        }
        Ok(ToolOutput { content, metadata: Value::Null, beside: None, .. }) if content.files().next().is_none() => {
            return Ok(ToolEnd::Plain(content.to_value()));
        }
        Ok(output) => {
            let mut part = part(output.content);
            part.metadata = output.metadata;
            let beside = output.beside.as_ref().map(Value::from_serialize).transpose()?;
            return Ok(ToolEnd::Returned(Box::new(part), beside));
        }
        Err(error) => error,
    };
    if let Some(retry) = error.downcast_ref::<ModelRetry>() {
        return Ok(ToolEnd::Retry(retry.0.clone()));
    }
    if let Some(failed) = error.downcast_ref::<ToolFailed>() {
        let mut part = part(ToolContent::text(&failed.0));
        part.outcome = ToolOutcome::Failed;
        return Ok(ToolEnd::Returned(Box::new(part), None));
    }
    if let Some(required) = error.downcast_ref::<ApprovalRequired>() {
        return Ok(ToolEnd::NeedsApproval(required.0.clone()));
    }
    if let Some(deferred) = error.downcast_ref::<CallDeferred>() {
        return Ok(ToolEnd::Deferred(deferred.0.clone()));
    }
    Err(error)
}
