//! A model by way of genai, which knows the formats of many providers. What genai takes and returns is translated from
//! and to the bodies of OpenAI's chat completions, which `annals-agents` writes and reads.

use annals_agents::{Model, ModelCall, ModelError, ModelFuture, OutputRequest, ResponseChunk, ResponseStream};
use annals_pydantic_ai::{ModelResponse, StreamedThinking, ThinkingPart};
use futures::StreamExt;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, JsonSpec, MessageContent, StopReason, Tool,
    ToolCall, ToolChoice, ToolResponse,
};
use genai::{Client, Error, webc};
use serde_json::{Value, json};

use crate::{can_retry, stream_of};

/// A model of a provider that genai knows, by the name that genai resolves.
///
/// # Example
/// ```no_run
/// use annals_agents::Agent;
/// use annals_agents_clients::GenaiModel;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let model = GenaiModel::new("claude-sonnet-4-5", genai::Client::new()?);
/// println!("{}", Agent::new(model).run("Hello!").ainvoke().await?.output);
/// # Ok(())
/// # }
/// ```
pub struct GenaiModel(Client, String);

impl GenaiModel {
    /// Returns the model with this name. It runs in a Tokio runtime.
    pub fn new(name: impl Into<String>, client: Client) -> Self {
        Self(client, name.into())
    }
}

impl Model for GenaiModel {
    fn name(&self) -> &str {
        &self.1
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        Box::pin(async move {
            let answer = self.0.exec_chat(&self.1, request_of(call)?, Some(&options_of(call))).await.map_err(failed)?;
            let (text, calls) = (answer.content.joined_texts(), calls_of(answer.content.tool_calls()));
            let mut response = call.openai_response(&json!({
                "id": answer.response_id,
                "model": answer.provider_model_iden.model_name.to_string(),
                "choices": [{
                    "finish_reason": answer.stop_reason.as_ref().map(finish_of),
                    "message": {"role": "assistant", "content": text, "tool_calls": calls},
                }],
                "usage": answer.usage,
            }))?;
            let thinking = answer.reasoning_content.map(|text| ThinkingPart::new(text).into());
            response.parts.splice(0..0, thinking);
            Ok(response)
        })
    }

    fn stream<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ResponseStream> {
        Box::pin(async move {
            let options = options_of(call).with_capture_usage(true).with_capture_tool_calls(true);
            let started = self.0.exec_chat_stream(&self.1, request_of(call)?, Some(&options)).await;
            let (events, call) = (started.map_err(failed)?.stream.map(|event| event.map_err(failed)), call.clone());
            Ok(stream_of(events, move |event| read(event, &call)))
        })
    }
}

/// Returns the chunks of an event, and whether it is the last one.
fn read(event: ChatStreamEvent, call: &ModelCall) -> Result<(Vec<ResponseChunk>, bool), ModelError> {
    let chunk = match event {
        ChatStreamEvent::Chunk(chunk) => ResponseChunk::text(chunk.content),
        ChatStreamEvent::ReasoningChunk(chunk) => {
            ResponseChunk::Thinking { key: None, chunk: StreamedThinking::new(chunk.content) }
        }
        ChatStreamEvent::End(end) => {
            // The calls are whole here. Their chunks do not tell to which call they belong.
            let calls = calls_of(end.captured_tool_calls().unwrap_or_default());
            let finish = end.captured_stop_reason.as_ref().map(finish_of);
            let choices = json!([{"delta": {"tool_calls": calls}, "finish_reason": finish}]);
            return Ok((call.openai_chunks(&json!({"choices": choices, "usage": end.captured_usage}))?, true));
        }
        _ => return Ok((Vec::new(), false)),
    };
    Ok((vec![chunk], false))
}

fn request_of(call: &ModelCall) -> Result<ChatRequest, ModelError> {
    let body = call.openai_body("").map_err(ModelError::fatal)?;
    let messages = body["messages"].as_array().into_iter().flatten().map(message_of);
    let mut request = ChatRequest::from_messages(messages.collect());
    request.tools = body["tools"].as_array().map(|tools| {
        let tools = tools.iter().map(|tool| &tool["function"]);
        let named = |tool: &Value| Tool::new(text_of(&tool["name"])).with_description(text_of(&tool["description"]));
        tools.map(|tool| named(tool).with_schema(tool["parameters"].clone())).collect()
    });
    Ok(request)
}

fn message_of(message: &Value) -> ChatMessage {
    let content = match &message["content"] {
        Value::Array(blocks) => blocks.iter().map(block_of).collect(),
        text => text.as_str().map(ContentPart::from).into_iter().collect::<Vec<_>>(),
    };
    match message["role"].as_str() {
        Some("system") => ChatMessage::system(content),
        Some("tool") => {
            let text = MessageContent::from_parts(content).into_joined_texts().unwrap_or_default();
            ToolResponse::new(text_of(&message["tool_call_id"]), text).into()
        }
        Some("assistant") => {
            let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| ToolCall {
                call_id: text_of(&call["id"]).to_owned(),
                fn_name: text_of(&call["function"]["name"]).to_owned(),
                fn_arguments: serde_json::from_str(text_of(&call["function"]["arguments"])).unwrap_or_default(),
                thought_signatures: None,
            });
            ChatMessage::assistant(content.into_iter().chain(calls.map(ContentPart::from)).collect::<Vec<_>>())
        }
        _ => ChatMessage::user(content),
    }
}

fn block_of(block: &Value) -> ContentPart {
    let url = text_of(&block["image_url"]["url"]);
    match url.strip_prefix("data:").and_then(|url| url.split_once(";base64,")) {
        Some((kind, data)) => ContentPart::from_binary_base64(kind, data, None),
        None if !url.is_empty() => ContentPart::from_binary_url("image/png", url, None),
        None => ContentPart::from(text_of(&block["text"])),
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn options_of(call: &ModelCall) -> ChatOptions {
    let settings = &call.settings;
    let mut options = ChatOptions {
        max_tokens: settings.max_tokens.and_then(|tokens| tokens.try_into().ok()),
        temperature: settings.temperature,
        top_p: settings.top_p,
        seed: settings.seed.and_then(|seed| seed.try_into().ok()),
        stop_sequences: settings.stop_sequences.clone().unwrap_or_default(),
        tool_choice: (!call.allows_text).then_some(ToolChoice::Required),
        ..ChatOptions::default()
    };
    if let OutputRequest::Schema { name, schema } = &call.output {
        options.response_format = Some(JsonSpec::new(name, schema.to_json()).into());
    }
    options
}

fn calls_of(calls: Vec<&ToolCall>) -> Vec<Value> {
    let call_of = |(at, call): (usize, &ToolCall)| {
        // Arguments that are not JSON remain a text.
        let args = call.fn_arguments.as_str().map_or_else(|| call.fn_arguments.to_string(), str::to_owned);
        json!({"index": at, "id": call.call_id, "function": {"name": call.fn_name, "arguments": args}})
    };
    calls.into_iter().enumerate().map(call_of).collect()
}

fn finish_of(reason: &StopReason) -> &str {
    match reason {
        StopReason::Completed(_) | StopReason::StopSequence(_) => "stop",
        StopReason::MaxTokens(_) => "length",
        StopReason::ToolCall(_) => "tool_calls",
        StopReason::ContentFilter(_) => "content_filter",
        StopReason::Other(reason) => reason,
    }
}

fn failed(error: Error) -> ModelError {
    let inner = if let Error::WebStream { error, .. } = &error { error.downcast_ref::<Error>() } else { None };
    let is_transient = match (inner.unwrap_or(&error).status(), &error) {
        (Some(status), _) => can_retry(status.as_u16(), &error.to_string()),
        (None, Error::WebModelCall { webc_error, .. }) => matches!(webc_error, webc::Error::Reqwest(_)),
        (None, error) => matches!(error, Error::WebStream { .. } | Error::ChatResponse { .. }),
    };
    if is_transient { ModelError::transient(error) } else { ModelError::fatal(error) }
}
