//! A model by way of async-openai, which sends the bodies that `annals-agents` writes.

use annals_agents::{Model, ModelCall, ModelError, ModelFuture, ResponseStream};
use annals_pydantic_ai::ModelResponse;
use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::ReqwestService;
use async_openai::types::stream::StreamResponse;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::{can_retry, stream_of};

/// A model of a server with OpenAI's chat completions.
///
/// # Example
/// ```no_run
/// use annals_agents::Agent;
/// use annals_agents_clients::OpenAiModel;
/// use async_openai::config::OpenAIConfig;
///
/// # async fn run() -> Result<(), annals_agents::AgentError> {
/// let server = OpenAIConfig::new().with_api_base("http://127.0.0.1:11434/v1").with_api_key("none");
/// let result = Agent::new(OpenAiModel::new("llama3", server)).run("Hello!").ainvoke().await?;
/// println!("{}", result.output);
/// # Ok(())
/// # }
/// ```
pub struct OpenAiModel {
    client: Client<OpenAIConfig>,
    name: String,
}

impl OpenAiModel {
    /// Returns the model with this name of a server. It runs in a Tokio runtime.
    pub fn new(name: impl Into<String>, server: OpenAIConfig) -> Self {
        // The client's own service repeats requests, which is the agent's decision.
        let client = Client::with_config(server).with_http_service(ReqwestService::default());
        Self { client, name: name.into() }
    }
}

impl Model for OpenAiModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn provider(&self) -> Option<&str> {
        Some("openai")
    }

    fn takes_late_system_messages(&self) -> bool {
        true
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        Box::pin(async move {
            let body = call.openai_body(&self.name).map_err(ModelError::fatal)?;
            let answer: Value = self.client.chat().create_byot(body).await.map_err(failed)?;
            call.openai_response(&answer)
        })
    }

    fn stream<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ResponseStream> {
        Box::pin(async move {
            let mut body = call.openai_body(&self.name).map_err(ModelError::fatal)?;
            body["stream"] = true.into();
            body["stream_options"] = json!({"include_usage": true});
            let events: StreamResponse<Value> = self.client.chat().create_stream_byot(body).await.map_err(failed)?;
            let call = call.clone();
            Ok(stream_of(events.map(|event| event.map_err(failed)), move |event| {
                Ok((call.openai_chunks(&event)?, event["choices"][0]["finish_reason"].is_string()))
            }))
        })
    }
}

fn failed(error: OpenAIError) -> ModelError {
    let is_transient = match &error {
        OpenAIError::ApiError(answer) => {
            can_retry(answer.status_code.as_u16(), answer.api_error.code.as_deref().unwrap_or_default())
        }
        OpenAIError::Reqwest(error) => !error.is_builder(),
        OpenAIError::StreamError(_) => true,
        _ => false,
    };
    if is_transient { ModelError::transient(error) } else { ModelError::fatal(error) }
}
