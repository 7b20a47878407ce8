//! Runs of agents: an agent of the reference as a graph whose model follows a script, one run of the graph for each
//! run of the agent. The messages of a run are those of its outcome.
//!
//! *Absent:* results that are read while they stream in; those vectors still fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals::base::{IdSource, SystemClock, Value};
use annals_graph::prelude::*;
use annals_pydantic_ai::DateTime;
use annals_pydantic_ai::RunHistory as _;
use annals_pydantic_ai::{
    DefaultSource, FeedbackCause, FeedbackContent, FeedbackRetry, InstructionPart, ModelMessage, ModelRequest,
    ModelResponse, RequestPart, RequestState, ResponseState, RetryFeedbackPart, RunUsage, ToolCallPart, ToolContent,
    ToolOutcome, ToolRetry, ToolRetryCause, ToolReturnPart, UsageLimits, UserContent, UserPromptPart, from_value,
    join_instructions, repair_messages, to_value,
};

use super::agent_events::{OUTPUT_TOOL, called, returned, streamed};
use super::agent_prompts::{clean, system_prompts};
use super::ops::{get, object, text};
use crate::RunnerResult;

#[derive(State, Clone, Default)]
struct Conversation {
    #[channel(append)]
    history: List<ModelMessage>,
    /// The error that ended the run.
    #[channel(last)]
    failed: Option<String>,
}

/// The number of calls of each function of an agent; the last of its values serves all later calls.
#[derive(Default)]
pub(super) struct Counters(BTreeMap<String, usize>);

impl Counters {
    pub(super) fn next<'a>(&mut self, name: String, values: &'a [Value]) -> Option<&'a Value> {
        let count = self.0.entry(name).or_default();
        *count += 1;
        values.get(*count - 1).or(values.last())
    }
}

/// The state that the nodes of a run share.
struct AgentRun {
    agent: Value,
    name: String,
    run: Value,
    run_id: String,
    conversation_id: String,
    told: Mutex<RunRecord>,
}

/// The record of the run so far.
struct RunRecord {
    script: std::vec::IntoIter<Value>,
    saw: Vec<Value>,
    events: Vec<Value>,
    usage: RunUsage,
    retries: BTreeMap<String, i64>,
    counters: Counters,
    ids: IdSource,
}

/// An error, by its class in the reference.
fn error(class: &str) -> Box<dyn std::error::Error + Send + Sync> {
    class.into()
}

impl AgentRun {
    fn told(&self) -> std::sync::MutexGuard<'_, RunRecord> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the instructions in force, made anew.
    fn instructions(&self, told: &mut RunRecord) -> Option<String> {
        let dynamic = get(&self.agent, "dynamic_instructions").as_list().unwrap_or_default();
        let said = [get(&self.agent, "instructions"), get(&self.run, "instructions")].into_iter().cloned();
        let made: Vec<Value> = said
            .chain(dynamic.iter().enumerate().filter_map(|(at, function)| {
                let values = get(function, "values").as_list().unwrap_or_default();
                told.counters.next(format!("{}/instructions/{at}", self.name), values).cloned()
            }))
            .collect();
        let parts: Vec<_> = made.iter().filter_map(Value::as_str).map(InstructionPart::new).collect();
        join_instructions(&parts)
    }

    /// Returns a request of this run.
    fn request(&self, parts: Vec<RequestPart>, told: &mut RunRecord) -> ModelRequest {
        self.complete(ModelRequest::new(parts), told)
    }

    /// Completes a request for this run.
    fn complete(&self, mut request: ModelRequest, told: &mut RunRecord) -> ModelRequest {
        request.instructions = self.instructions(told);
        let now: DateTime = DefaultSource::new(&SystemClock, &mut told.ids).now().into();
        request.timestamp.get_or_insert(now);
        request.run_id.get_or_insert(self.run_id.clone());
        request.conversation_id.get_or_insert(self.conversation_id.clone());
        request
    }

    /// Calls the model.
    fn ask(&self, state: &Conversation) -> NodeResult<ConversationUpdate> {
        let told = &mut *self.told();
        let history = state.history.to_vec();
        let processors = get(&self.agent, "processors").as_list().unwrap_or_default();
        let sent = processors.iter().fold(history, process);
        let mut limits = UsageLimits::default();
        limits.request_limit = get(&self.run, "request_limit").as_int().or(limits.request_limit);
        limits.check_before_request(&told.usage).map_err(|_| error("UsageLimitExceeded"))?;
        let Some(ModelMessage::Request(request)) = sent.last() else { return Err(error("UserError")) };
        let instructions = Value::from(request.instructions.clone());
        let seen = to_value(&as_words(repair_messages(sent.clone(), false)));
        told.saw.push(object([("messages", seen), ("instructions", instructions)]));
        let response = self.answer(told).map_err(|error| error.to_string())?;
        told.usage.add_request(&response.usage);
        told.usage.requests += 1;
        Ok(match processors {
            [] => Conversation::update().history([response.into()]),
            _ => Conversation::update().overwrite_history(sent.into_iter().chain([response.into()])),
        })
    }

    /// Returns the next response of the script.
    fn answer(&self, told: &mut RunRecord) -> RunnerResult<ModelResponse> {
        let Some(mut form) = told.script.next() else { return Err("the script is over".into()) };
        let mut response = if let Some(chunks) = form.get("chunks").and_then(Value::as_list) {
            streamed(chunks, self.is_structured(), &mut told.ids, &mut told.events)?
        } else {
            if let Value::Map(form) = &mut form {
                form.insert("kind".into(), "response".into());
            }
            let read = from_value(Value::List(vec![form]), &mut DefaultSource::new(&SystemClock, &mut told.ids))?.pop();
            let Some(ModelMessage::Response(response)) = read else {
                return Err("the script does not hold a response".into());
            };
            response
        };
        let model = text(&self.agent, "model_name").unwrap_or_else(|| "m1".into());
        response.model_id = Some(format!("function:{model}"));
        response.model_name = Some(model);
        response.run_id = Some(self.run_id.clone());
        response.conversation_id = Some(self.conversation_id.clone());
        Ok(response)
    }

    /// Makes the request that follows a response.
    fn react(&self, state: &Conversation) -> NodeResult<ConversationUpdate> {
        let told = &mut *self.told();
        let Some(ModelMessage::Response(response)) = state.history.last() else { return Err(error("UserError")) };
        let (mut parts, mut beside) = (Vec::new(), Vec::new());
        let is_output = |call: &ToolCallPart| self.output(call).is_some();
        told.events.extend(response.tool_calls().map(|call| called(call, is_output(call))));
        for call in response.tool_calls() {
            match self.call(call, told, &mut beside) {
                Ok(part) => {
                    told.events.push(returned(&part, is_output(call)));
                    parts.push(part.into());
                }
                Err(class) => {
                    let mut request = self.request(parts, told);
                    request.state = RequestState::Interrupted;
                    return Ok(Conversation::update().history([request.into()]).failed(class));
                }
            }
        }
        if parts.is_empty() {
            let attempt = told.retries.entry(String::new()).or_default();
            *attempt += 1;
            let mut retry = FeedbackRetry::new(FeedbackCause::NoOutput);
            (retry.attempt, retry.max_retries) = (Some(*attempt), Some(1));
            let content = FeedbackContent::Text("Please return text.".into());
            let timestamp = DefaultSource::new(&SystemClock, &mut told.ids).now().into();
            parts.push(RetryFeedbackPart::new(content, retry, timestamp).into());
        }
        parts.extend(beside);
        Ok(Conversation::update().history([self.request(parts, told).into()]))
    }

    /// Calls a tool. Content beside its return goes to `beside`.
    fn call(
        &self,
        call: &ToolCallPart,
        told: &mut RunRecord,
        beside: &mut Vec<RequestPart>,
    ) -> Result<ToolReturnPart, String> {
        let timestamp = DefaultSource::new(&SystemClock, &mut told.ids).now().into();
        let content = ToolContent::text("Final result processed.");
        let mut part = ToolReturnPart::new(&call.tool_name, content, &call.tool_call_id, timestamp);
        part.tool_kind.clone_from(&call.tool_kind);
        if self.output(call).is_some() {
            return Ok(part);
        }
        let tools = get(&self.agent, "tools").as_list().unwrap_or_default();
        let tool = tools.iter().find(|tool| get(tool, "name").as_str() == Some(&call.tool_name));
        let results = tool.and_then(|tool| get(tool, "results").as_list()).unwrap_or_default();
        let result = told.counters.next(format!("{}/tool/{}", self.name, call.tool_name), results);
        let Some(Value::Map(result)) = result.cloned() else { return Err("the tool is not scripted".into()) };
        let said = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
        match result.keys().next().map(String::as_str).unwrap_or_default() {
            "retry" => {
                let attempt = told.retries.entry(call.tool_name.clone()).or_default();
                *attempt += 1;
                let mut retry = ToolRetry::new(ToolRetryCause::ModelRetry);
                (retry.attempt, retry.max_retries) = (Some(*attempt), Some(1));
                part.retry = Some(retry);
                (part.content, part.outcome) = (ToolContent::text(said("retry")), ToolOutcome::Retried);
            }
            "fail" => (part.content, part.outcome) = (ToolContent::text(said("fail")), ToolOutcome::Failed),
            "raise" => return Err("RuntimeError".into()),
            "tool_return" => {
                let full = &result["tool_return"];
                part.content = ToolContent::data(get(full, "return_value").clone());
                part.metadata = get(full, "metadata").clone();
                let content = get(full, "content").as_str().map(UserContent::from);
                beside.extend(content.map(|content| UserPromptPart::new(content, timestamp).into()));
                told.usage.tool_calls += 1;
            }
            _ => {
                part.content = ToolContent::data(get(&Value::Map(result), "return").clone());
                told.usage.tool_calls += 1;
            }
        }
        Ok(part)
    }

    /// Returns the output that a call of the output tool gives.
    fn output(&self, call: &ToolCallPart) -> Option<Value> {
        (self.is_structured() && call.tool_name == OUTPUT_TOOL).then(|| call.args_or_invalid().into())
    }

    fn is_structured(&self) -> bool {
        get(&self.agent, "output").as_str() == Some("struct")
    }

    /// Returns the output, if a response holds it.
    fn output_of(&self, response: &ModelResponse) -> Option<Value> {
        if let Some(output) = response.tool_calls().find_map(|call| self.output(call)) {
            return Some(output);
        }
        let calls = response.tool_calls().next().is_some();
        response.text().filter(|text| !calls && !text.is_empty()).map(Value::from)
    }

    /// Returns the output of the run, if it has ended.
    fn ended(&self, history: &[ModelMessage]) -> Option<Value> {
        let last = history.iter().rev().find_map(|message| match message {
            ModelMessage::Response(response) => Some(response),
            _ => None,
        });
        self.output_of(last?)
    }

    /// Returns the next node.
    fn next(&self, state: &Conversation) -> &'static str {
        let mut from_last = state.history.iter().rev();
        match (from_last.next(), from_last.next()) {
            _ if state.failed.is_some() => END,
            // The return of an output tool is the end.
            (Some(ModelMessage::Request(request)), Some(ModelMessage::Response(response)))
                if matches!(request.parts.first(), Some(RequestPart::ToolReturn(_)))
                    && self.output_of(response).is_some() =>
            {
                END
            }
            (Some(ModelMessage::Request(_)), _) => "ask",
            (Some(ModelMessage::Response(response)), _)
                if self.output_of(response).is_some_and(|o| o.as_str().is_some()) =>
            {
                END
            }
            (Some(ModelMessage::Response(_)), _) => "react",
            _ => END,
        }
    }
}

/// Rewrites the parts that carry instructions as text, for a model without such parts.
fn as_words(mut history: Vec<ModelMessage>) -> Vec<ModelMessage> {
    for message in &mut history {
        let ModelMessage::Request(request) = message else { continue };
        for part in &mut request.parts {
            if let RequestPart::RetryFeedback(feedback) = part {
                let content = UserContent::Text(format!("<system>{}</system>", feedback.text()));
                *part = UserPromptPart::new(content, feedback.timestamp).into();
            }
        }
    }
    history
}

/// Applies a history processor.
fn process(mut history: Vec<ModelMessage>, processor: &Value) -> Vec<ModelMessage> {
    match get(processor, "op").as_str().unwrap_or_default() {
        "keep_last" => {
            let kept = usize::try_from(get(processor, "n").as_int().unwrap_or(0)).unwrap_or(0);
            history.split_off(history.len().saturating_sub(kept))
        }
        "drop_responses" => {
            history.retain(|message| matches!(message, ModelMessage::Request(_)));
            history
        }
        "drop_system" => {
            for message in &mut history {
                if let ModelMessage::Request(request) = message {
                    request.parts.retain(|part| !matches!(part, RequestPart::SystemPrompt(_)));
                }
            }
            history
        }
        _ => history,
    }
}

/// The agent as a graph: calls of the model and reactions to its responses take turns.
fn graph(session: &Arc<AgentRun>) -> RunnerResult<CompiledGraph<Conversation>> {
    let of = || Arc::clone(session);
    let (asks, reacts, first, second, third) = (of(), of(), of(), of(), of());
    let graph = StateGraph::<Conversation>::new()
        .node("ask", move |state: &Conversation| asks.ask(state))
        .node("react", move |state: &Conversation| reacts.react(state))
        .branch(START, move |state: &Conversation| first.next(state))
        .branch("ask", move |state: &Conversation| second.next(state))
        .branch("react", move |state: &Conversation| third.next(state));
    Ok(graph.compile()?)
}

/// The state that later runs may continue from.
#[derive(Default)]
struct Past {
    all: Vec<ModelMessage>,
    new: Vec<ModelMessage>,
    captured: Vec<ModelMessage>,
}

fn given(run: &Value, past: &[Past], ids: &mut IdSource) -> RunnerResult<Vec<ModelMessage>> {
    let history = get(run, "history");
    if let Some(messages) = history.get("messages") {
        return Ok(from_value(messages.clone(), &mut DefaultSource::new(&SystemClock, ids))?);
    }
    let Some(earlier) = get(history, "run").as_int().and_then(|at| past.get(usize::try_from(at).ok()?)) else {
        return Ok(Vec::new());
    };
    Ok(match get(history, "which").as_str().unwrap_or_default() {
        "new" => earlier.new.clone(),
        "captured" => earlier.captured.clone(),
        _ => earlier.all.clone(),
    })
}

/// Runs the runs of a vector one after another.
pub(super) fn trace(input: &Value) -> RunnerResult<Value> {
    let (mut counters, mut past, mut records) = (Counters::default(), Vec::new(), Vec::new());
    for run in get(input, "runs").as_list().unwrap_or_default() {
        if get(run, "mode").as_str() == Some("stream") {
            return Err("results that stream in are not read".into());
        }
        let name = text(run, "agent").unwrap_or_else(|| "a".into());
        let agent = get(get(input, "agents"), &name).clone();
        let (record, earlier) = one_run(agent, name, run, &past, &mut counters)?;
        records.push(record);
        past.push(earlier);
    }
    Ok(records.into())
}

fn one_run(
    agent: Value,
    name: String,
    run: &Value,
    past: &[Past],
    counters: &mut Counters,
) -> RunnerResult<(Value, Past)> {
    let mut ids = IdSource::new();
    let history = given(run, past, &mut ids)?;
    let mut fresh_id = || ids.uuid_v4().to_string();
    let run_id = text(run, "run_id").unwrap_or_else(&mut fresh_id);
    let known = history.iter().rev().find_map(|message| match message {
        ModelMessage::Request(request) => request.conversation_id.clone(),
        ModelMessage::Response(response) => response.conversation_id.clone(),
        _ => None,
    });
    let conversation_id = match text(run, "conversation_id") {
        Some(given) if given != "new" => given,
        Some(_) => fresh_id(),
        None => known.unwrap_or_else(fresh_id),
    };
    let refused = run_id.is_empty() || history.iter().any(|message| message.run_id() == Some(&run_id));
    let script = get(run, "script").as_list().unwrap_or_default().to_vec().into_iter();
    let (usage, retries) = (RunUsage::default(), BTreeMap::new());
    let told = RunRecord {
        script,
        saw: Vec::new(),
        events: Vec::new(),
        usage,
        retries,
        counters: std::mem::take(counters),
        ids,
    };
    let run = run.clone();
    let session = Arc::new(AgentRun { agent, name, run, run_id, conversation_id, told: Mutex::new(told) });
    if refused {
        let record = object([("error", "UserError".into()), ("model_saw", Value::List(Vec::new()))]);
        std::mem::swap(counters, &mut session.told().counters);
        return Ok((record, Past::default()));
    }
    let done = play(&session, history);
    std::mem::swap(counters, &mut session.told().counters);
    done
}

/// Plays one run and returns the record that the reference gives of it.
fn play(session: &Arc<AgentRun>, history: Vec<ModelMessage>) -> RunnerResult<(Value, Past)> {
    let prompt = get(&session.run, "prompt");
    let (history, next) = {
        let told = &mut *session.told();
        let mut history = clean(history, &session.agent, &session.name, !prompt.is_null(), &mut told.counters);
        let next = begin(session, &mut history, told);
        (history, next)
    };
    let failed = |class: &str, captured: Vec<ModelMessage>| {
        let saw = session.told().saw.clone();
        let messages = to_value(&captured);
        let record = object([("error", class.into()), ("captured_messages", messages), ("model_saw", saw.into())]);
        (record, Past { captured, ..Past::default() })
    };
    let next = match next {
        Ok(next) => next,
        Err(class) => return Ok(failed(class, history)),
    };
    let (graph, thread) = (graph(session)?, Store::memory().thread("run")?);
    if !history.is_empty() {
        graph.update_state(&thread, Conversation::update().history(history), Some(START))?;
    }
    let outcome = match graph.invoke(&thread, Conversation::update().history(next)) {
        Ok(outcome) => outcome,
        Err(error) => {
            let class = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return Ok(failed(&class, graph.get_state(&thread)?.values.history.to_vec()));
        }
    };
    if let Some(class) = &outcome.state().failed {
        return Ok(failed(class, outcome.all_messages("history")?));
    }
    let (all, new) = (outcome.all_messages("history")?, outcome.new_messages("history")?);
    let saw = session.told().saw.clone();
    let usage = session.told().usage.to_value();
    let mut record = object([
        ("output", session.ended(&all).unwrap_or_default()),
        ("all_messages", to_value(&all)),
        ("new_messages", to_value(&new)),
        ("usage", usage),
        ("new_message_index", (all.len() - new.len()).into()),
        ("model_saw", saw.into()),
    ]);
    if let (Value::Map(record), Some(_)) = (&mut record, session.run.get("output_tool_return_content")) {
        // A tool return that could hold it does not exist.
        record.insert("output_content_error".into(), "ValueError".into());
    }
    if let (Value::Map(record), Some(Value::Bool(true))) = (&mut record, session.run.get("events")) {
        record.insert("events".into(), session.told().events.clone().into());
    }
    Ok((record, Past { all, new, captured: Vec::new() }))
}

/// Returns the request with which a run starts, if it has one of its own; a request at the end of the history that is
/// sent again is completed there.
fn begin(
    session: &AgentRun,
    history: &mut Vec<ModelMessage>,
    told: &mut RunRecord,
) -> Result<Vec<ModelMessage>, &'static str> {
    let prompt = get(&session.run, "prompt").as_str().map(UserContent::from);
    let timestamp = DefaultSource::new(&SystemClock, &mut told.ids).now().into();
    match (prompt, history.pop()) {
        (Some(content), last) => {
            let is_first = last.is_none();
            history.extend(last);
            if let Some(ModelMessage::Response(response)) = history.last() {
                let open = response.tool_calls().next().is_some() && response.state != ResponseState::Interrupted;
                if open || response.state == ResponseState::Suspended {
                    return Err("UserError");
                }
            }
            let mut parts = Vec::new();
            if is_first {
                parts = system_prompts(&session.agent, &session.name, timestamp, &mut told.counters);
            }
            parts.push(UserPromptPart::new(content, timestamp).into());
            Ok(vec![session.request(parts, told).into()])
        }
        (None, Some(ModelMessage::Request(request))) => {
            history.push(session.complete(request, told).into());
            Ok(Vec::new())
        }
        (None, Some(ModelMessage::Response(response))) => {
            let ends = session.output_of(&response).is_some();
            history.push(response.into());
            let request = session.request(Vec::new(), told);
            Ok(if ends && request.instructions.is_some() { vec![request.into()] } else { Vec::new() })
        }
        (None, _) => Err("UserError"),
    }
}
