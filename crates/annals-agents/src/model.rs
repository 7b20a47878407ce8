//! The port for models: one trait, its request with messages, tools and settings, and its errors.
//!
//! A model takes a [`ModelCall`] and returns a response, or a stream of chunks. The messages of a call are valid for a
//! provider: each call of a tool has a result, and requests and responses take turns. *Absent:* clients of providers,
//! network access, prices.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use annals_base::{Map, Timestamp, Value};
use annals_messages::{Message, MessageError};
use annals_pydantic_ai::{ModelMessage, ModelResponse, to_langchain};

use crate::chunk::ResponseStream;
use crate::error::{AgentError, AgentErrorKind};

/// The future of a request to a model.
pub type ModelFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ModelError>> + Send + 'a>>;

/// A model that an agent can ask. [`TestModel`](crate::TestModel) and [`FunctionModel`](crate::FunctionModel) need no
/// provider.
///
/// # Example: a client of a provider
/// ```
/// use annals_agents::{Agent, Model, ModelCall, ModelError, ModelFuture};
/// use annals_pydantic_ai::{DateTime, ModelResponse, TextPart};
///
/// struct Client {
///     model: String,
/// }
///
/// impl Client {
///     /// Stands in for a request over the network.
///     async fn complete(&self, body: serde_json::Value) -> Result<String, std::io::Error> {
///         Ok(format!("{} got {} messages", self.model, body["messages"].as_array().map_or(0, Vec::len)))
///     }
/// }
///
/// impl Model for Client {
///     fn name(&self) -> &str {
///         &self.model
///     }
///
///     fn provider(&self) -> Option<&str> {
///         Some("example")
///     }
///
///     fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
///         Box::pin(async move {
///             let body = call.openai_body(&self.model).map_err(ModelError::fatal)?;
///             let text = self.complete(body).await.map_err(ModelError::transient)?;
///             Ok(ModelResponse::new(vec![TextPart::new(text).into()], call.now()))
///         })
///     }
/// }
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let result = Agent::new(Client { model: "m-1".into() }).instructions("Be brief.").run("Hello!").invoke()?;
/// assert_eq!(result.output, "m-1 got 2 messages");
/// # Ok(())
/// # }
/// ```
pub trait Model: Send + Sync + 'static {
    /// Returns the name of the model, as its provider knows it.
    fn name(&self) -> &str;

    /// Returns the name of the provider; `None` by default.
    fn provider(&self) -> Option<&str> {
        None
    }

    /// Returns whether the provider takes a system message after the first request. Otherwise the model gets such a
    /// message from the user, in a tag `system`. Default: no.
    fn takes_late_system_messages(&self) -> bool {
        false
    }

    /// Asks the model.
    ///
    /// # Errors
    /// [`ModelError`], which tells whether another attempt can succeed.
    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse>;

    /// Asks the model for a stream of chunks. By default the whole response is one chunk for each part.
    ///
    /// # Errors
    /// As [`Model::request`], here and as items of the stream.
    fn stream<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ResponseStream> {
        Box::pin(async move { Ok(ResponseStream::whole(self.request(call).await?)) })
    }
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn provider(&self) -> Option<&str> {
        (**self).provider()
    }

    fn takes_late_system_messages(&self) -> bool {
        (**self).takes_late_system_messages()
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        (**self).request(call)
    }

    fn stream<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ResponseStream> {
        (**self).stream(call)
    }
}

/// Returns the id of a model: `provider:name`, or its name.
pub(crate) fn model_id(model: &dyn Model) -> String {
    match model.provider() {
        Some(provider) => [provider, model.name()].join(":"),
        None => model.name().to_owned(),
    }
}

/// Returns the error of an agent whose model failed.
pub(crate) fn failed(model: &dyn Model, error: ModelError) -> AgentError {
    let message = format!("model {:?} failed: {error}", model.name());
    AgentError::with_source(AgentErrorKind::Model, message, Arc::new(error))
}

/// Settings of a request. A member that is `None` leaves the choice to the provider.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelSettings {
    /// The maximum number of tokens of a response.
    pub max_tokens: Option<i64>,
    /// The temperature.
    pub temperature: Option<f64>,
    /// The share of the probability mass that is sampled.
    pub top_p: Option<f64>,
    /// The seed of the sampling.
    pub seed: Option<i64>,
    /// Texts at which the model stops.
    pub stop_sequences: Option<Vec<String>>,
    /// True if the model may call several tools in one response.
    pub parallel_tool_calls: Option<bool>,
    /// Members for the provider alone.
    pub extra: Map,
}

impl ModelSettings {
    /// Returns these settings where they are set, and those of `other` elsewhere.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let mut extra = other.extra.clone();
        extra.extend(self.extra.clone());
        Self {
            max_tokens: self.max_tokens.or(other.max_tokens),
            temperature: self.temperature.or(other.temperature),
            top_p: self.top_p.or(other.top_p),
            seed: self.seed.or(other.seed),
            stop_sequences: self.stop_sequences.clone().or_else(|| other.stop_sequences.clone()),
            parallel_tool_calls: self.parallel_tool_calls.or(other.parallel_tool_calls),
            extra,
        }
    }
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name.
    pub name: String,
    /// The description; empty if there is none.
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Arc<Value>,
}

/// The form in which the model returns a typed output.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum OutputRequest {
    /// The output is text, or a call of an output tool.
    #[default]
    Plain,
    /// The provider makes the text fit a JSON schema.
    Schema {
        /// The name of the type.
        name: String,
        /// The JSON schema.
        schema: Value,
    },
}

/// One request to a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelCall {
    /// The messages, valid for a provider. They are shared with the run: a hook changes a copy (`Arc::make_mut`).
    pub messages: Arc<Vec<ModelMessage>>,
    /// The instructions in force.
    pub instructions: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// The tools whose call is the output of the run.
    pub output_tools: Vec<ToolDefinition>,
    /// The form of a typed output that is text.
    pub output: OutputRequest,
    /// True if text may be the output.
    pub allows_text: bool,
    /// The settings.
    pub settings: ModelSettings,
    /// The time of the request.
    pub(crate) clock: Timestamp,
}

impl ModelCall {
    /// Returns the time of the request, by the clock of the agent.
    pub fn now(&self) -> annals_pydantic_ai::DateTime {
        self.clock.into()
    }

    /// Returns the messages in LangChain's format, with the instructions as a leading system message.
    ///
    /// # Errors
    /// [`MessageError`] if a message has no counterpart.
    pub fn langchain_messages(&self) -> Result<Vec<Message>, MessageError> {
        to_langchain(&self.messages, true)
    }
}

/// A request to a model failed.
pub struct ModelError {
    message: String,
    is_transient: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl ModelError {
    /// Returns an error after which another attempt can succeed, such as a broken connection or a full server.
    pub fn transient(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::of(source.into(), true)
    }

    /// Returns an error that another attempt would repeat, such as a wrong key or a refused request.
    pub fn fatal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::of(source.into(), false)
    }

    fn of(source: Box<dyn std::error::Error + Send + Sync>, is_transient: bool) -> Self {
        Self { message: source.to_string(), is_transient, source: Some(source.into()) }
    }

    /// Returns whether another attempt can succeed.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelError").field("message", &self.message).field("is_transient", &self.is_transient).finish()
    }
}

impl std::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
