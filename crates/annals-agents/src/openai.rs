//! OpenAI's chat completions: the body of a request, and the response in the answer to it.
//!
//! *Absent:* the connection, and streams of a server.

use annals_base::{IdSource, Value};
use annals_messages::{MessageError, OpenAiOptions, convert_to_messages, convert_to_openai_messages};
use annals_pydantic_ai::{DefaultSource, FinishReason, ModelMessage, ModelResponse, from_langchain};
use serde_json::json;

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
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        (response.provider_response_id, response.model_name) = (text(&answer["id"]), text(&answer["model"]));
        response.finish_reason = match choice["finish_reason"].as_str() {
            Some("stop") => Some(FinishReason::Stop),
            Some("length") => Some(FinishReason::Length),
            Some("tool_calls" | "function_call") => Some(FinishReason::ToolCall),
            Some("content_filter") => Some(FinishReason::ContentFilter),
            _ => None,
        };
        let (usage, counts) = (&answer["usage"], &mut response.usage.counts);
        counts.input_tokens = usage["prompt_tokens"].as_i64().unwrap_or(0);
        counts.output_tokens = usage["completion_tokens"].as_i64().unwrap_or(0);
        counts.cache_read_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_i64().unwrap_or(0);
        counts.output_reasoning_tokens = usage["completion_tokens_details"]["reasoning_tokens"].as_i64().unwrap_or(0);
        Ok(response)
    }
}

fn openai_tool(tool: &ToolDefinition) -> serde_json::Value {
    let parameters = tool.parameters.to_json();
    let function = json!({"name": tool.name, "description": tool.description, "parameters": parameters});
    json!({"type": "function", "function": function})
}
