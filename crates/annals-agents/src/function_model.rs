//! A model that is a function of its call, for tests and for clients without a type of their own.
//!
//! *Absent:* counting tokens; the usage is the function's.

use std::fmt;

use annals_pydantic_ai::ModelResponse;

use crate::chunk::ResponseStream;
use crate::model::{Model, ModelCall, ModelError, ModelFuture};
use crate::test_model::ScriptedResponse;

type Respond = Box<dyn Fn(&ModelCall) -> Result<ModelResponse, ModelError> + Send + Sync>;
type RespondInChunks = Box<dyn Fn(&ModelCall) -> Result<ResponseStream, ModelError> + Send + Sync>;

/// A model whose responses a function makes (`FunctionModel`).
///
/// # Example
/// ```
/// use annals_agents::{Agent, FunctionModel, ResponseChunk, ResponseStream};
/// use annals_pydantic_ai::{ModelResponse, TextPart};
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let echo = FunctionModel::new(|call| {
///     let text = format!("{} messages", call.messages.len());
///     Ok(ModelResponse::new(vec![TextPart::new(text).into()], call.now()))
/// })
/// .in_chunks(|_| Ok(ResponseStream::ready(["Good ", "day"].map(ResponseChunk::text).map(Ok))));
/// let agent = Agent::new(echo);
/// assert_eq!(agent.run("hi").invoke()?.output, "1 messages");
/// let texts: Result<Vec<String>, _> = agent.run("hi").stream()?.texts().collect();
/// assert_eq!(texts?, ["Good ", "Good day"]);
/// # Ok(())
/// # }
/// ```
pub struct FunctionModel {
    name: String,
    respond: Respond,
    in_chunks: Option<RespondInChunks>,
}

impl FunctionModel {
    /// Returns the model of a function, with the name `function`.
    pub fn new(respond: impl Fn(&ModelCall) -> Result<ModelResponse, ModelError> + Send + Sync + 'static) -> Self {
        Self { name: "function".into(), respond: Box::new(respond), in_chunks: None }
    }

    /// Returns the model of a function that answers with a text or with calls of tools, whose usage is estimated.
    pub fn answering<R: Into<ScriptedResponse>>(
        respond: impl Fn(&ModelCall) -> Result<R, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |call| Ok(respond(call)?.into().response(call)))
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the function that makes the chunks of a stream. Default: one chunk for each part of a response.
    #[must_use]
    pub fn in_chunks(
        mut self,
        respond: impl Fn(&ModelCall) -> Result<ResponseStream, ModelError> + Send + Sync + 'static,
    ) -> Self {
        self.in_chunks = Some(Box::new(respond));
        self
    }
}

impl Model for FunctionModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn provider(&self) -> Option<&str> {
        Some("function")
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        Box::pin(std::future::ready((self.respond)(call)))
    }

    fn stream<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ResponseStream> {
        Box::pin(std::future::ready(match &self.in_chunks {
            Some(respond) => respond(call),
            None => (self.respond)(call).map(ResponseStream::whole),
        }))
    }
}

impl fmt::Debug for FunctionModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionModel").field("name", &self.name).finish_non_exhaustive()
    }
}
