//! Runs of agents: each vector is run by the library's agent, with a model that follows the script of the run.
//!
//! *Absent:* the loop of an agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals::base::{IdSource, SystemClock, Value};
use annals_agents::{
    Agent, AgentError, AgentErrorKind, AgentRun, AgentTool, FunctionModel, HistoryProcessor, ModelError, ModelRetry,
    OutputMode, RunInfo, SystemPromptMode, ToolFailed, ToolOutput,
};
use annals_graph::graph::NodeResult;
use annals_pydantic_ai::{
    DefaultSource, ModelMessage, ModelResponse, RequestPart, ToolContent, UsageLimits, UserContent, dump, from_value,
    load, to_value,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::agent_stream::{chunks, streamed};
use super::ops::{get, object, text};
use crate::RunnerResult;

/// The structured output of the vectors.
#[derive(Clone, Debug, Serialize, serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
    n: i64,
}

/// The number of calls of each function of an agent; the last of its values serves all later calls.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, usize>>>);

impl Counters {
    fn next(&self, name: &str, values: &[Value]) -> Option<Value> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.to_owned()).or_default();
        *count += 1;
        values.get(*count - 1).or(values.last()).cloned()
    }

    /// Returns a function that makes a prompt of the values in turn.
    fn prompt(&self, name: String, of: &Value) -> impl Fn(&RunInfo<'_>) -> NodeResult<String> + Send + Sync + 'static {
        let (counters, values) = (self.clone(), get(of, "values").as_list().unwrap_or_default().to_vec());
        move |_| {
            let value = counters.next(&name, &values).ok_or("the function has values")?;
            Ok(value.as_str().unwrap_or_default().to_owned())
        }
    }
}

/// The script of a model, and the messages that it was asked with.
#[derive(Default)]
struct Script {
    entries: Vec<Value>,
    at: usize,
    saw: Vec<Value>,
}

type SharedScript = Arc<Mutex<Script>>;

/// Records a call of the model and returns the next entry of its script.
fn next_entry(script: &SharedScript, call: &annals_agents::ModelCall) -> Result<Value, ModelError> {
    let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
    let instructions = Value::from(call.instructions.clone());
    script.saw.push(object([("messages", to_value(&call.messages)), ("instructions", instructions)]));
    script.at += 1;
    script.entries.get(script.at - 1).cloned().ok_or_else(|| ModelError::fatal("the script is over"))
}

/// Returns the response of an entry.
fn response(mut entry: Value) -> Result<ModelResponse, ModelError> {
    if let Value::Map(entry) = &mut entry {
        entry.insert("kind".into(), "response".into());
    }
    let mut ids = IdSource::new();
    let read = from_value(Value::List(vec![entry]), &mut DefaultSource::new(&SystemClock, &mut ids));
    match read.map_err(ModelError::fatal)?.pop() {
        Some(ModelMessage::Response(response)) => Ok(response),
        _ => Err(ModelError::fatal("the script does not hold a response")),
    }
}

fn model(name: &str, script: &SharedScript) -> FunctionModel {
    let (whole, streamed) = (Arc::clone(script), Arc::clone(script));
    FunctionModel::new(move |call| response(next_entry(&whole, call)?))
        .with_name(name)
        .in_chunks(move |call| chunks(&next_entry(&streamed, call)?))
}

/// Returns a tool whose results are scripted.
fn tool(agent: &str, spec: &Value, counters: &Counters) -> AgentTool {
    let name = text(spec, "name").unwrap_or_default();
    let (counter, counters) = (format!("{agent}/tool/{name}"), counters.clone());
    let results = get(spec, "results").as_list().unwrap_or_default().to_vec();
    let run = move |_: BTreeMap<String, serde_json::Value>| {
        let result = counters.next(&counter, &results).unwrap_or_default();
        let (kind, value) = result.as_map().and_then(|map| map.iter().next()).ok_or("the tool is scripted")?;
        let said = value.as_str().unwrap_or_default();
        match kind.as_str() {
            "retry" => Err(ModelRetry::new(said).into()),
            "fail" => Err(ToolFailed::new(said).into()),
            "raise" => Err(said.into()),
            "tool_return" => {
                let content = ToolContent::data(get(value, "return_value").clone());
                let output = ToolOutput::new(content).with_metadata(get(value, "metadata").clone());
                Ok(match get(value, "content").as_str() {
                    Some(content) => output.with_user_content(content),
                    None => output,
                })
            }
            _ => Ok(ToolOutput::new(ToolContent::data(value.clone()))),
        }
    };
    AgentTool::new(name, run).sequential()
}

/// Returns a history processor.
fn processor(spec: &Value) -> HistoryProcessor {
    let spec = spec.clone();
    let process = move |mut history: Vec<ModelMessage>, _: &RunInfo<'_>| {
        match get(&spec, "op").as_str().unwrap_or_default() {
            "keep_last" => {
                let kept = usize::try_from(get(&spec, "n").as_int().unwrap_or(0)).unwrap_or(0);
                return Ok(history.split_off(history.len().saturating_sub(kept)));
            }
            "drop_responses" => history.retain(|message| matches!(message, ModelMessage::Request(_))),
            "drop_system" => history.iter_mut().for_each(|message| {
                if let ModelMessage::Request(request) = message {
                    request.parts.retain(|part| !matches!(part, RequestPart::SystemPrompt(_)));
                }
            }),
            other => return Err(format!("unknown processor {other:?}").into()),
        }
        Ok(history)
    };
    HistoryProcessor::new(process)
}

/// Returns the agent of a specification, without its output.
fn agent(name: &str, spec: &Value, counters: &Counters) -> Agent {
    let list = |member: &str| get(spec, member).as_list().unwrap_or_default().to_vec();
    let unasked = FunctionModel::new(|_| Err(ModelError::fatal("each run has a model of its own")));
    let mut agent = Agent::new(unasked).name(name);
    for prompt in list("system_prompt") {
        agent = agent.system_prompt(prompt.as_str().unwrap_or_default());
    }
    if let Some(instructions) = text(spec, "instructions") {
        agent = agent.instructions(instructions);
    }
    for function in list("dynamic_system_prompts") {
        let of = text(&function, "name").unwrap_or_default();
        let make = counters.prompt(format!("{name}/system/{of}"), &function);
        let is_dynamic = get(&function, "dynamic").as_bool().unwrap_or(true);
        agent = if is_dynamic { agent.dynamic_system_prompt(of, make) } else { agent.system_prompt_from(make) };
    }
    for (at, function) in list("dynamic_instructions").iter().enumerate() {
        agent = agent.instructions_from(counters.prompt(format!("{name}/instructions/{at}"), function));
    }
    for spec in list("tools") {
        agent = agent.tool(tool(name, &spec, counters));
    }
    for spec in list("processors") {
        agent = agent.history_processor(processor(&spec));
    }
    match get(spec, "reinject_system_prompt").as_str() {
        Some("replace") => agent.system_prompt_mode(SystemPromptMode::Replace),
        Some(_) => agent.system_prompt_mode(SystemPromptMode::AddMissing),
        None => agent,
    }
}

/// The messages of a run, which later runs may go on with.
#[derive(Default)]
pub(super) struct Past {
    pub(super) all: Vec<ModelMessage>,
    pub(super) new: Vec<ModelMessage>,
    pub(super) captured: Vec<ModelMessage>,
}

fn given(run: &Value, past: &[Past]) -> RunnerResult<Vec<ModelMessage>> {
    let history = get(run, "history");
    let mut ids = IdSource::new();
    let defaults = &mut DefaultSource::new(&SystemClock, &mut ids);
    if let Some(messages) = history.get("messages") {
        return Ok(from_value(messages.clone(), defaults)?);
    }
    let Some(earlier) = get(history, "run").as_int().and_then(|at| past.get(usize::try_from(at).ok()?)) else {
        return Ok(Vec::new());
    };
    let messages = match get(history, "which").as_str().unwrap_or_default() {
        "new" => &earlier.new,
        "captured" => &earlier.captured,
        _ => &earlier.all,
    };
    match get(history, "json").as_bool() {
        Some(false) => Ok(messages.clone()),
        _ => Ok(load(dump(messages).as_bytes(), defaults)?),
    }
}

/// Returns the class of the reference's error.
pub(super) fn class(error: &AgentError) -> &'static str {
    match error.kind() {
        AgentErrorKind::Input => "UserError",
        AgentErrorKind::UsageLimit => "UsageLimitExceeded",
        AgentErrorKind::Behavior => "UnexpectedModelBehavior",
        _ => "RuntimeError",
    }
}

/// Runs the runs of a vector one after another.
pub(super) fn trace(input: &Value) -> RunnerResult<Value> {
    let (counters, mut past, mut records) = (Counters::default(), Vec::new(), Vec::new());
    for run in get(input, "runs").as_list().unwrap_or_default() {
        let name = text(run, "agent").unwrap_or_else(|| "a".into());
        let spec = get(get(input, "agents"), &name);
        let history = given(run, &past)?;
        let entries = get(run, "script").as_list().unwrap_or_default().to_vec();
        let script: SharedScript = Arc::new(Mutex::new(Script { entries, ..Script::default() }));
        let model_name = text(spec, "model_name").unwrap_or_else(|| "m1".into());
        let asked = model(&model_name, &script);
        let agent = agent(&name, spec, &counters);
        let (mut record, earlier) = match get(spec, "output").as_str() {
            Some("struct") => one_run(&agent.output::<City>(OutputMode::Tool), run, history, asked)?,
            _ => one_run(&agent, run, history, asked)?,
        };
        let saw = std::mem::take(&mut script.lock().unwrap_or_else(PoisonError::into_inner).saw);
        record.push(("model_saw", saw.into()));
        records.push(Value::Map(record.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()));
        past.push(earlier);
    }
    Ok(records.into())
}

/// The members of the record of a run.
pub(super) type RunMembers = Vec<(&'static str, Value)>;

fn one_run<O: Serialize + DeserializeOwned + Clone>(
    agent: &Agent<O>,
    run: &Value,
    history: Vec<ModelMessage>,
    model: FunctionModel,
) -> RunnerResult<(RunMembers, Past)> {
    let mut set_up: AgentRun<'_, O> = match get(run, "prompt").as_str() {
        Some(prompt) => agent.run(UserContent::from(prompt)),
        None => agent.run_without_prompt(),
    };
    set_up = set_up.message_history(history).model(model);
    if let Some(id) = text(run, "run_id") {
        set_up = set_up.run_id(id);
    }
    if let Some(id) = text(run, "conversation_id") {
        set_up = set_up.conversation_id(id);
    }
    if let Some(instructions) = text(run, "instructions") {
        set_up = set_up.instructions(instructions);
    }
    if let Some(limit) = get(run, "request_limit").as_int() {
        let mut limits = UsageLimits::default();
        limits.request_limit = Some(limit);
        set_up = set_up.usage_limits(limits);
    }
    if get(run, "mode").as_str() == Some("stream") {
        return streamed(set_up, get(run, "steps").as_list().unwrap_or_default());
    }
    let events = Arc::new(Mutex::new(Vec::new()));
    let shows_events = get(run, "events").as_bool() == Some(true);
    if shows_events {
        let seen = Arc::clone(&events);
        set_up = set_up.on_event(move |event| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(event.to_value());
        });
    }
    let result = match set_up.invoke() {
        Ok(result) => result,
        Err(error) => {
            let captured = error.messages().to_vec();
            let mut record = vec![("error", class(&error).into())];
            if !captured.is_empty() {
                record.push(("captured_messages", to_value(&captured)));
            }
            return Ok((record, Past { captured, ..Past::default() }));
        }
    };
    let (all, new) = (result.all_messages().to_vec(), result.new_messages().to_vec());
    let mut record = vec![
        ("output", Value::from_serialize(&result.output)?),
        ("all_messages", to_value(&all)),
        ("new_messages", to_value(&new)),
        ("usage", result.usage().to_value()),
        ("new_message_index", result.new_message_index().into()),
    ];
    if let Some(content) = text(run, "output_tool_return_content") {
        record.push(match result.all_messages_with_output(&content) {
            Ok(messages) => ("all_messages_with_output_content", to_value(&messages)),
            Err(_) => ("output_content_error", "ValueError".into()),
        });
    }
    if shows_events {
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        record.push(("events", events.into()));
    }
    Ok((record, Past { all, new, captured: Vec::new() }))
}
