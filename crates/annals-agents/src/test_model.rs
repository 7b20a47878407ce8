//! A model for tests: it calls each tool once and then answers, or follows a script.
//!
//! Invariant: a response depends on the call alone, so a run that goes on in another process gets the same responses.
//! *Absent:* chance, and a network.

use annals_base::{IdSource, Map, Value};
use annals_pydantic_ai::{
    DefaultSource, ModelMessage, ModelResponse, RequestPart, ResponsePart, TextPart, ToolArgs, ToolCallPart,
};

use crate::model::{Model, ModelCall, ModelError, ModelFuture};
use crate::schema::sample;

/// A model without a provider (`TestModel`).
///
/// [`TestModel::new`] calls each tool once, with arguments that fit their schema, and then answers: with the results of
/// the tools, or with an output that fits the type of the agent. [`TestModel::script`] gives a response of the script
/// for each request: the first one to a conversation without responses, the second one to one with a response, and so
/// on.
///
/// # Example
/// ```
/// use annals_agents::{Agent, TestModel, AgentTool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     city: String,
/// }
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let weather = AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city)));
/// let result = Agent::new(TestModel::new()).tool(weather).run("What do I need?").invoke()?;
/// assert_eq!(result.output, r#"{"weather":"rain in a"}"#);
///
/// let agent = Agent::new(TestModel::script(["It rains.", "Still."]));
/// let first = agent.run("The weather?").invoke()?;
/// let second = agent.run("And now?").message_history(first.all_messages()).invoke()?;
/// assert_eq!((first.output.as_str(), second.output.as_str()), ("It rains.", "Still."));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestModel {
    name: String,
    script: Option<Vec<ScriptedResponse>>,
}

/// One response of a script.
#[derive(Clone, Debug)]
pub struct ScriptedResponse(Scripted);

#[derive(Clone, Debug)]
enum Scripted {
    Text(String),
    Calls(Vec<(String, Value)>),
    Response(Box<ModelResponse>),
}

impl From<&str> for ScriptedResponse {
    fn from(text: &str) -> Self {
        Self(Scripted::Text(text.to_owned()))
    }
}

impl From<String> for ScriptedResponse {
    fn from(text: String) -> Self {
        Self(Scripted::Text(text))
    }
}

impl From<ModelResponse> for ScriptedResponse {
    fn from(response: ModelResponse) -> Self {
        Self(Scripted::Response(Box::new(response)))
    }
}

impl ScriptedResponse {
    /// Returns a response that calls one tool.
    pub fn call(tool: impl Into<String>, args: impl Into<Value>) -> Self {
        Self::calls([(tool, args)])
    }

    /// Returns a response that calls several tools. The ids of the calls are numbers of the conversation.
    pub fn calls(calls: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        Self(Scripted::Calls(calls.into_iter().map(|(tool, args)| (tool.into(), args.into())).collect()))
    }
}

impl ScriptedResponse {
    /// Returns the response to a call.
    pub(crate) fn response(self, call: &ModelCall) -> ModelResponse {
        let parts = match self.0 {
            Scripted::Response(response) => return *response,
            Scripted::Text(text) => vec![TextPart::new(text).into()],
            Scripted::Calls(calls) => parts(&calls, number(call)),
        };
        counted(ModelResponse::new(parts, call.now()), call)
    }
}

/// Returns the number of responses in the messages of a call.
fn number(call: &ModelCall) -> usize {
    call.messages.iter().filter(|message| matches!(message, ModelMessage::Response(_))).count()
}

/// Returns a response with an estimate of its usage.
fn counted(mut response: ModelResponse, call: &ModelCall) -> ModelResponse {
    response.usage.counts.input_tokens = count(&call.messages);
    response.usage.counts.output_tokens = response.parts.iter().map(words_of).sum();
    response
}

impl Default for TestModel {
    fn default() -> Self {
        Self::new()
    }
}

impl TestModel {
    /// Returns a model that calls each tool once and then answers, with the name `test`.
    pub fn new() -> Self {
        Self { name: "test".into(), script: None }
    }

    /// Returns a model that follows a script.
    pub fn script(responses: impl IntoIterator<Item = impl Into<ScriptedResponse>>) -> Self {
        Self { name: "test".into(), script: Some(responses.into_iter().map(Into::into).collect()) }
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    fn respond(&self, call: &ModelCall) -> Result<ModelResponse, ModelError> {
        let Some(script) = &self.script else { return Ok(counted(answer(call), call)) };
        let over = || ModelError::fatal(format!("the script has {} responses", script.len()));
        Ok(script.get(number(call)).cloned().ok_or_else(over)?.response(call))
    }
}

impl Model for TestModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn provider(&self) -> Option<&str> {
        Some("test")
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        Box::pin(std::future::ready(self.respond(call)))
    }
}

/// Returns calls of tools, with ids that are the same each time.
fn parts(calls: &[(String, Value)], number: usize) -> Vec<ResponsePart> {
    let mut ids = IdSource::from_seed(0);
    let now = annals_base::Timestamp::from_micros(0);
    let part = |(at, (tool, args)): (usize, &(String, Value))| {
        let args = match args {
            Value::Map(map) => ToolArgs::Object(map.clone()),
            other => ToolArgs::Text(text_of(other)),
        };
        let mut call = ToolCallPart::new(tool, args, &mut DefaultSource::new(&now, &mut ids));
        call.tool_call_id = format!("call_{}_{}", number + 1, at + 1);
        call.into()
    };
    calls.iter().enumerate().map(part).collect()
}

/// Returns a value as JSON text.
fn text_of(value: &Value) -> String {
    value.to_json().to_string()
}

/// Calls each tool once, and then answers.
fn answer(call: &ModelCall) -> ModelResponse {
    let number = number(call);
    let results = results(&call.messages);
    if results.is_empty() && !call.tools.is_empty() {
        let calls: Vec<_> = call.tools.iter().map(|tool| (tool.name.clone(), sample(&tool.parameters))).collect();
        return ModelResponse::new(parts(&calls, number), call.now());
    }
    let part = match (call.output_tools.first(), &call.output) {
        (Some(tool), _) => {
            return ModelResponse::new(parts(&[(tool.name.clone(), sample(&tool.parameters))], number), call.now());
        }
        (None, crate::model::OutputRequest::Schema { schema, .. }) => TextPart::new(text_of(&sample(schema))),
        _ if results.is_empty() => TextPart::new("success (no tool calls)"),
        _ => TextPart::new(text_of(&Value::Map(results))),
    };
    ModelResponse::new(vec![part.into()], call.now())
}

/// Returns the results of the tools since the last prompt, by the names of the tools.
fn results(messages: &[ModelMessage]) -> Map {
    let mut results = Map::new();
    for message in messages {
        let ModelMessage::Request(request) = message else { continue };
        for part in &request.parts {
            match part {
                RequestPart::UserPrompt(_) => results.clear(),
                RequestPart::ToolReturn(part) => _ = results.insert(part.tool_name.clone(), part.content.to_value()),
                _ => {}
            }
        }
    }
    results
}

/// Estimates the tokens of messages: their words.
fn count(messages: &[ModelMessage]) -> i64 {
    let words = |message: &ModelMessage| match message {
        ModelMessage::Response(response) => response.parts.iter().map(words_of).sum::<i64>(),
        ModelMessage::Request(request) => request
            .parts
            .iter()
            .map(|part| match part {
                RequestPart::SystemPrompt(part) => words_in(&part.content),
                RequestPart::ToolReturn(part) => words_in(&text_of(&part.content.to_value())),
                other => words_in(&text_of(&other.to_value())),
            })
            .sum(),
        _ => 0,
    };
    messages.iter().map(words).sum()
}

fn words_of(part: &ResponsePart) -> i64 {
    match part {
        ResponsePart::Text(part) => words_in(&part.content),
        ResponsePart::ToolCall(call) => words_in(&call.args_as_json()),
        _ => 0,
    }
}

fn words_in(text: &str) -> i64 {
    i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX)
}
