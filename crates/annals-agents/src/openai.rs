//! OpenAI's chat completions: the body of a request, the response in the answer to it, and the chunks of a stream.
//!
//! *Absent:* the connection.

use annals_base::{IdSource, Value};
use annals_messages::{MessageError, OpenAiOptions, convert_to_messages, convert_to_openai_messages};
use annals_pydantic_ai::{
    DefaultSource, FinishReason, ModelMessage, ModelResponse, RequestUsage, StreamedThinking, StreamedToolCall,
    ToolArgs, from_langchain,
};
use serde_json::json;

use crate::chunk::ResponseChunk;
use crate::model::{ModelCall, ModelError, OutputRequest, ToolDefinition};

impl ModelCall {
    /// Returns the body of a request to a server with OpenAI's chat completions: the model, the messages, the tools
    /// and the settings.
    ///
    /// # Errors
    /// [`MessageError`] if a message has no counterpart.
    pub fn openai_body(&self, model: &str) -> Result<serde_json::Value, MessageError> {
        let messages = convert_to_openai_messages(&self.langchain_messages()?, &OpenAiOptions::default())?;
        let messages: Vec<_> = messages.into_iter().map(|message| Value::Map(message).to_json()).collect();
        let mut body = json!({"model": model, "messages": messages});
        let tools: Vec<_> = self.tools.iter().chain(&self.output_tools).map(openai_tool).collect();
        if !tools.is_empty() {
            body["tools"] = tools.into();
            if !self.allows_text {
                body["tool_choice"] = "required".into();
            }
        }
        if let OutputRequest::Schema { name, schema } = &self.output {
            let schema = json!({"name": name, "schema": schema.to_json(), "strict": true});
            body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        }
        let settings = &self.settings;
        let members = [
            ("max_tokens", settings.max_tokens.map(Into::into)),
            ("temperature", settings.temperature.map(Into::into)),
            ("top_p", settings.top_p.map(Into::into)),
            ("seed", settings.seed.map(Into::into)),
            ("stop", settings.stop_sequences.clone().map(Into::into)),
            ("parallel_tool_calls", settings.parallel_tool_calls.map(Into::into)),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        for (name, value) in &settings.extra {
            body[name] = value.to_json();
        }
        Ok(body)
    }

    /// Reads the response in the answer of a server with OpenAI's chat completions, with its usage.
    ///
    /// # Errors
    /// A fatal [`ModelError`] with the answer, if it has no message or the message cannot be read.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, FunctionModel};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let server = FunctionModel::new(|call| {
    ///     let answer = json!({
    ///         "id": "r-1",
    ///         "model": "m-1",
    ///         "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Bern."}}],
    ///         "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    ///     });
    ///     call.openai_response(&answer)
    /// });
    /// let result = Agent::new(server).run("The capital of Switzerland?").invoke()?;
    /// assert_eq!((result.output.as_str(), result.usage().counts.output_tokens), ("Bern.", 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn openai_response(&self, answer: &serde_json::Value) -> Result<ModelResponse, ModelError> {
        let choice = &answer["choices"][0];
        let failed = |reason: &str| ModelError::fatal(format!("{reason}: {answer}"));
        if !choice["message"].is_object() {
            return Err(failed("the server gave no message"));
        }
        let messages = convert_to_messages([choice["message"].clone()]).map_err(|error| failed(&error.to_string()))?;
        let mut ids = IdSource::new();
        let history = from_langchain(&messages, &mut DefaultSource::new(&self.clock, &mut ids));
        let Some(ModelMessage::Response(mut response)) = history.map_err(|error| failed(&error.to_string()))?.pop()
        else {
            return Err(failed("the message of the server is not a response"));
        };
        response.metadata = None;
        (response.provider_response_id, response.model_name) = (text_of(&answer["id"]), text_of(&answer["model"]));
        response.finish_reason = finish_of(&choice["finish_reason"]);
        response.usage = usage_of(&answer["usage"]);
        Ok(response)
    }

    /// Reads one event of a stream of a server with OpenAI's chat completions. A stream without an event that has a
    /// `finish_reason` was cut off, which the client has to notice.
    ///
    /// # Errors
    /// A transient [`ModelError`] if the event tells of an error of the server.
    ///
    /// # Example
    /// ```
    /// use annals_agents::{Agent, FunctionModel, ModelError, ResponseStream};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), annals_agents::AgentError> {
    /// let server = FunctionModel::new(|_| Err(ModelError::fatal("this model streams"))).in_chunks(|call| {
    ///     let events = [
    ///         json!({"id": "r-1", "choices": [{"delta": {"role": "assistant", "content": "Be"}}]}),
    ///         json!({"id": "r-1", "choices": [{"delta": {"content": "rn."}, "finish_reason": "stop"}]}),
    ///         json!({"id": "r-1", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}),
    ///     ];
    ///     let chunks = events.iter().map(|event| call.openai_chunks(event)).collect::<Result<Vec<_>, _>>()?;
    ///     Ok(ResponseStream::ready(chunks.into_iter().flatten().map(Ok)))
    /// });
    /// let agent = Agent::new(server);
    /// let mut run = agent.run("The capital of Switzerland?").stream()?;
    /// assert_eq!(run.texts().collect::<Result<Vec<_>, _>>()?, ["Be", "Bern."]);
    /// assert_eq!(run.usage().counts.output_tokens, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn openai_chunks(&self, event: &serde_json::Value) -> Result<Vec<ResponseChunk>, ModelError> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(ModelError::transient(format!("the stream of the server ended with an error: {error}")));
        }
        let (choice, mut chunks) = (&event["choices"][0], Vec::new());
        let delta = &choice["delta"];
        if delta["role"].is_string() {
            let mut meta = ModelResponse::new(Vec::new(), self.now());
            (meta.provider_response_id, meta.model_name) = (text_of(&event["id"]), text_of(&event["model"]));
            chunks.push(ResponseChunk::Meta(Box::new(meta)));
        }
        let filled = |value: &serde_json::Value| text_of(value).filter(|text| !text.is_empty());
        if let Some(text) = filled(&delta["reasoning_content"]).or_else(|| filled(&delta["reasoning"])) {
            chunks.push(ResponseChunk::Thinking { key: None, chunk: StreamedThinking::new(text) });
        }
        chunks.extend(filled(&delta["content"]).map(ResponseChunk::text));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let mut chunk = StreamedToolCall::default();
            let function = &call["function"];
            (chunk.tool_call_id, chunk.tool_name) = (filled(&call["id"]), filled(&function["name"]));
            chunk.args = text_of(&function["arguments"]).map(ToolArgs::Text);
            let key = call["index"].as_u64().map(|index| format!("call-{index}"));
            chunks.push(ResponseChunk::ToolCall { key, chunk });
        }
        chunks.extend(finish_of(&choice["finish_reason"]).map(ResponseChunk::Finish));
        chunks.extend(event["usage"].is_object().then(|| ResponseChunk::Usage(usage_of(&event["usage"]))));
        Ok(chunks)
    }
}

fn text_of(value: &serde_json::Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn finish_of(reason: &serde_json::Value) -> Option<FinishReason> {
    match reason.as_str()? {
        "stop" => Some(FinishReason::Stop),
        "length" => Some(FinishReason::Length),
        "tool_calls" | "function_call" => Some(FinishReason::ToolCall),
        "content_filter" => Some(FinishReason::ContentFilter),
        _ => None,
    }
}

fn usage_of(usage: &serde_json::Value) -> RequestUsage {
    let mut of_request = RequestUsage::default();
    let counts = &mut of_request.counts;
    counts.input_tokens = usage["prompt_tokens"].as_i64().unwrap_or(0);
    counts.output_tokens = usage["completion_tokens"].as_i64().unwrap_or(0);
    counts.cache_read_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_i64().unwrap_or(0);
    counts.output_reasoning_tokens = usage["completion_tokens_details"]["reasoning_tokens"].as_i64().unwrap_or(0);
    of_request
}

fn openai_tool(tool: &ToolDefinition) -> serde_json::Value {
    let parameters = tool.parameters.to_json();
    let function = json!({"name": tool.name, "description": tool.description, "parameters": parameters});
    json!({"type": "function", "function": function})
}
