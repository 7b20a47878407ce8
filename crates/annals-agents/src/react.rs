//! The step that handles a response: it runs the tools, waits for approvals and makes the next request.
//!
//! Invariant: each call that has ended is stored, and does not run again if the step does. *Absent:* the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_base::Value;
use annals_graph::RunError;
use annals_graph::graph::{BoxError, NodeResult};
use annals_graph::prelude::{Command, State};
use annals_graph::task::{Context, Interrupted, Started};
use annals_pydantic_ai::{
    ErrorDetail, FeedbackContent, ModelMessage, ModelRequest, ModelResponse, RequestPart, RequestState, ToolCallPart,
    ToolContent, ToolOutcome, ToolRetry, ToolRetryCause, ToolReturnPart, UserContent, UserPromptPart,
};

use crate::agent::{AgentCore, leads};
use crate::begin::completed;
use crate::deferred::{CallDecision, CallWait, REFUSED, ask_decisions};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::AgentEvent;
use crate::history::{SharedHistory, stored};
use crate::output::{BadOutput, OUTPUT_RESULT};
use crate::settle::{settle, take_output_retry};
use crate::shared::RunShared;
use crate::state::{AgentProgress, AgentState, FailureKind, NextStep};
use crate::tool::{AgentTool, ToolEnd, ToolInput, unknown_tool};
use crate::tool_output::tool_end;

/// Handles the last response.
pub(crate) async fn react(core: Arc<AgentCore>, state: Arc<AgentState>, context: Context) -> NodeResult<Command> {
    let shared = RunShared::of(&context)?;
    let (messages, mut progress) = shared.known.take(&state, &*core.clock)?;
    let begin = progress.clone();
    let Some(ModelMessage::Response(response)) = messages.last() else {
        return Err(AgentError::input("the last message of the thread is not a response").into());
    };
    if response.tool_calls().next().is_none() {
        let request = settle(&core, shared, &mut progress, response, &messages)?;
        return leave(&state, shared, messages, request, (begin, progress));
    }
    let calls: Vec<ToolCallPart> = response.tool_calls().cloned().collect();
    let mut batch = CallBatch::new(&core, shared, &context, &mut progress, &messages, calls);
    batch.announce();
    batch.take_outputs();
    let ran = batch.run().await;
    let (mut parts, beside) = batch.parts();
    if let Err(failure) = ran {
        // An interrupt is passed on as it is.
        let error = match failure.downcast::<AgentError>() {
            Ok(error) => error,
            Err(other) => return Err(other),
        };
        let mut request = ModelRequest::new(parts);
        request.state = RequestState::Interrupted;
        request.timestamp = Some(shared.now());
        request.run_id = Some(progress.run_id.clone());
        request.conversation_id = Some(progress.conversation_id.clone());
        if matches!(error.kind(), AgentErrorKind::Tool) {
            return Err(error.at(messages.iter().cloned().chain([request.into()]).collect::<Vec<_>>()).into());
        }
        let kind = match error.kind() {
            AgentErrorKind::UsageLimit => FailureKind::UsageLimit,
            AgentErrorKind::Function => FailureKind::Function,
            _ => FailureKind::Behavior,
        };
        progress.fail(kind, error.to_string());
        return leave(&state, shared, messages, Some(request), (begin, progress));
    }
    parts.extend(beside);
    let text = text_output(&core, shared, &mut progress, response, &messages);
    let ended = progress.output.is_some() || progress.failure.is_some() || text;
    let mut request = completed(ModelRequest::new(parts), &core, shared, &progress, &messages)?;
    if ended {
        request.instructions = None;
    } else {
        progress.next = NextStep::Ask;
    }
    leave(&state, shared, messages, Some(request), (begin, progress))
}

/// Returns the command of a step that adds a request, with the progress at its begin and at its end.
fn leave(
    state: &AgentState,
    shared: &RunShared,
    mut messages: SharedHistory,
    request: Option<ModelRequest>,
    (begin, mut progress): (AgentProgress, AgentProgress),
) -> NodeResult<Command> {
    let first_added = messages.len();
    Arc::make_mut(&mut messages).extend(request.map(ModelMessage::from));
    let written = stored(&messages[first_added..])?;
    let count = state.messages.len() + written.len();
    let next = progress.next;
    let follows = begin.after(&state.agent_run, &messages, first_added);
    let update = progress.write(AgentState::update(), &follows, &messages);
    let update = if written.is_empty() { update } else { update.messages(written) };
    shared.known.leave(count, messages, progress);
    Ok(leads(update, next))
}

/// Ends the run with the text beside the calls, if a reader of the stream was shown it as the output.
fn text_output(
    core: &AgentCore,
    shared: &RunShared,
    progress: &mut AgentProgress,
    response: &ModelResponse,
    messages: &[ModelMessage],
) -> bool {
    if shared.gate.is_none() || progress.output.is_some() || !core.output.allows_text() {
        return false;
    }
    let Some(text) = response.text().filter(|text| !text.is_empty()) else { return false };
    let output = core.output.of_text(&text, &core.info(shared, progress, messages));
    let Ok(output) = output else { return false };
    progress.finish(output, None);
    true
}

/// The calls of a response.
struct CallBatch<'a> {
    core: &'a AgentCore,
    shared: &'a RunShared,
    context: &'a Context,
    progress: &'a mut AgentProgress,
    messages: &'a [ModelMessage],
    calls: Vec<ToolCallPart>,
    /// The result of each call, with content beside it.
    results: Vec<Option<(ToolReturnPart, Option<Value>)>>,
    /// The retries of the tools that failed in this step.
    failed: BTreeMap<String, i64>,
}

impl<'a> CallBatch<'a> {
    fn new(
        core: &'a AgentCore,
        shared: &'a RunShared,
        context: &'a Context,
        progress: &'a mut AgentProgress,
        messages: &'a [ModelMessage],
        calls: Vec<ToolCallPart>,
    ) -> Self {
        let results = calls.iter().map(|_| None).collect();
        Self { core, shared, context, progress, messages, calls, results, failed: BTreeMap::new() }
    }

    fn is_output(&self, call: &ToolCallPart) -> bool {
        self.core.output.is_tool(&call.tool_name)
    }

    fn function(&self, call: &ToolCallPart) -> Option<Arc<AgentTool>> {
        self.core.tool(&call.tool_name).cloned()
    }

    /// Shows the begin of all calls.
    fn announce(&self) {
        if !self.shared.is_shown() {
            return;
        }
        let event = |call: &ToolCallPart| {
            let args = Value::Map(call.args_or_invalid());
            let is_output = self.is_output(call);
            let args_valid = match self.function(call) {
                _ if is_output => self.core.output.checked(&args).is_ok(),
                Some(tool) => tool.check(&args).is_ok(),
                None => false,
            };
            AgentEvent::ToolCall { part: call.clone(), is_output, args_valid }
        };
        self.shared.show(self.context, self.calls.iter().map(event).collect(), None);
    }

    fn part(&self, at: usize, content: ToolContent) -> ToolReturnPart {
        let call = &self.calls[at];
        let mut part = ToolReturnPart::new(&call.tool_name, content, &call.tool_call_id, self.shared.now());
        part.tool_kind.clone_from(&call.tool_kind);
        part
    }

    /// Sets the result of a call, and shows it.
    fn end(&mut self, at: usize, mut part: ToolReturnPart, beside: Option<Value>) {
        part.tool_kind.clone_from(&self.calls[at].tool_kind);
        self.core.hooks.after_tool(&mut part, &self.core.info(self.shared, self.progress, self.messages));
        if self.shared.is_shown() {
            let is_output = self.is_output(&self.calls[at]);
            self.shared.show(self.context, vec![AgentEvent::ToolResult { part: part.clone(), is_output }], None);
        }
        self.results[at] = Some((part, beside));
    }

    /// Reads the calls of the output tool: the first one that fits is the output of the run.
    fn take_outputs(&mut self) {
        for at in 0..self.calls.len() {
            if !self.is_output(&self.calls[at]) {
                continue;
            }
            let call = self.calls[at].clone();
            if self.progress.output.is_some() {
                let part = self.part(at, ToolContent::text("Not used: the run has an output already."));
                self.end(at, part, None);
                continue;
            }
            let args = Value::Map(call.args_or_invalid());
            let info = self.core.info(self.shared, self.progress, self.messages);
            match self.core.output.of_object(&args, &info) {
                Ok(output) => {
                    self.progress.finish(output, Some(&call));
                    let part = self.part(at, ToolContent::text(OUTPUT_RESULT));
                    self.end(at, part, None);
                }
                Err(BadOutput::Failed(error)) => {
                    let message = format!("a validator of the output failed: {error}");
                    self.progress.fail(FailureKind::Function, message);
                    let mut part = self.part(at, ToolContent::text(error.to_string()));
                    part.outcome = ToolOutcome::Failed;
                    self.end(at, part, None);
                }
                Err(BadOutput::Retry(_, content)) => {
                    take_output_retry(self.core, self.progress);
                    let (cause, content) = match content {
                        FeedbackContent::Text(text) => (ToolRetryCause::ModelRetry, ToolContent::text(text)),
                        FeedbackContent::Errors(errors) => (ToolRetryCause::ValidationError, told(&errors)),
                    };
                    let counts = (self.progress.output_retries, self.core.output_retries);
                    self.retried(at, cause, content, counts);
                }
            }
        }
    }

    /// Asks the model for another call.
    fn retried(&mut self, at: usize, cause: ToolRetryCause, content: ToolContent, (attempt, allowed): (i64, i64)) {
        let mut part = self.part(at, content);
        let mut retry = ToolRetry::new(cause);
        (retry.attempt, retry.max_retries) = (Some(attempt), Some(allowed));
        (part.outcome, part.retry) = (ToolOutcome::Retried, Some(retry));
        self.end(at, part, None);
    }

    /// Counts a failed call of a tool and asks the model for another one.
    fn fail(&mut self, at: usize, cause: ToolRetryCause, content: ToolContent) -> Result<(), AgentError> {
        let name = self.calls[at].tool_name.clone();
        let attempt = self.progress.retries.get(&name).copied().unwrap_or(0) + 1;
        let allowed = self.allowed(&name);
        if attempt > allowed {
            let message = format!("tool {name:?} failed after {allowed} retries");
            return Err(AgentError::new(AgentErrorKind::Behavior, message));
        }
        self.failed.insert(name, attempt);
        self.retried(at, cause, content, (attempt, allowed));
        Ok(())
    }

    fn allowed(&self, tool: &str) -> i64 {
        self.core.tool(tool).and_then(|tool| tool.max_retries).unwrap_or(self.core.tool_retries)
    }

    /// Runs the calls that have no result, and waits for those that need one from outside.
    async fn run(&mut self) -> Result<(), BoxError> {
        let (mut due, mut waits) = (Vec::new(), BTreeMap::new());
        for at in 0..self.calls.len() {
            if self.results[at].is_some() {
                continue;
            }
            let call = &self.calls[at];
            let args = Value::Map(call.args_or_invalid());
            let Some(tool) = self.function(call) else {
                let text = unknown_tool(&call.tool_name, &self.core.tools);
                self.fail(at, ToolRetryCause::UnknownTool, ToolContent::text(text))?;
                continue;
            };
            if let Err(errors) = tool.check(&args) {
                self.fail(at, ToolRetryCause::ValidationError, told(&errors))?;
            } else if tool.is_external() {
                waits.insert(at, CallWait::Result(Value::Null));
            } else if tool.needs_approval || self.core.hooks.approvals.iter().any(|name| name == tool.name()) {
                waits.insert(at, CallWait::Approval(Value::Null));
            } else {
                due.push((at, tool, args, false));
            }
        }
        self.check_limit(due.len())?;
        self.call(due, &mut waits).await?;
        while !waits.is_empty() {
            let due = self.ask_outside(&mut waits)?;
            self.check_limit(due.len())?;
            self.call(due, &mut waits).await?;
        }
        self.progress.retries = std::mem::take(&mut self.failed);
        Ok(())
    }

    /// Refuses more calls than the run may make.
    fn check_limit(&self, more: usize) -> Result<(), AgentError> {
        let mut projected = self.progress.usage.clone();
        projected.tool_calls += i64::try_from(more).unwrap_or(i64::MAX);
        let limits = self.shared.limits.as_ref().unwrap_or(&self.core.limits);
        limits
            .check_before_tool_call(&projected)
            .map_err(|exceeded| AgentError::new(AgentErrorKind::UsageLimit, exceeded.to_string()))
    }

    /// Calls functions, at the same time unless one of them is sequential.
    async fn call(
        &mut self,
        due: Vec<(usize, Arc<AgentTool>, Value, bool)>,
        waits: &mut BTreeMap<usize, CallWait>,
    ) -> Result<(), BoxError> {
        let one_by_one = due.iter().any(|(_, tool, ..)| tool.is_sequential);
        // A single call: its step is stored before another call ends or a person is asked.
        let is_alone = due.len() == 1 && waits.is_empty();
        let mut started = Vec::new();
        let mut first_error = None;
        for (at, tool, args, approved) in due {
            let retry = self.progress.retries.get(tool.name()).copied().unwrap_or(0);
            let max_retries = self.allowed(tool.name());
            let tool_call_id = self.calls[at].tool_call_id.clone();
            let input = ToolInput { tool_call_id, args, retry, max_retries, approved };
            let Some(call) = tool.start(self.context, input, None, is_alone, tool_end) else { continue };
            if one_by_one {
                self.ended(at, call, waits).await?;
            } else {
                started.push((at, call));
            }
        }
        // All calls end before the first error is returned: their results are stored.
        for (at, call) in started {
            if let Err(error) = self.ended(at, call, waits).await {
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Waits for the end of a call.
    async fn ended(
        &mut self,
        at: usize,
        call: Started<ToolEnd>,
        waits: &mut BTreeMap<usize, CallWait>,
    ) -> Result<(), BoxError> {
        waits.remove(&at);
        match call.await {
            Ok(ToolEnd::Plain(value)) => {
                self.progress.usage.tool_calls += 1;
                let part = self.part(at, ToolContent::data(value));
                self.end(at, part, None);
            }
            Ok(ToolEnd::Returned(part, beside)) => {
                if part.outcome == ToolOutcome::Success {
                    self.progress.usage.tool_calls += 1;
                }
                self.end(at, *part, beside);
            }
            Ok(ToolEnd::Retry(message)) => {
                self.fail(at, ToolRetryCause::ModelRetry, ToolContent::text(message))?;
            }
            Ok(ToolEnd::NeedsApproval(metadata)) => _ = waits.insert(at, CallWait::Approval(metadata)),
            Ok(ToolEnd::Deferred(metadata)) => _ = waits.insert(at, CallWait::Result(metadata)),
            Err(error) => match error.downcast_ref::<RunError>() {
                Some(RunError::NodeTimeout { .. }) => {
                    let message = "The call took too long and was stopped.";
                    self.fail(at, ToolRetryCause::ModelRetry, ToolContent::text(message))?;
                }
                _ if error.is::<Interrupted>() => return Err(error),
                _ => {
                    let message = format!("tool {:?} failed: {error}", self.calls[at].tool_name);
                    return Err(AgentError::with_source(AgentErrorKind::Tool, message, error.into()).into());
                }
            },
        }
        Ok(())
    }

    /// Interrupts the run until there are decisions, and returns the calls that run by them.
    fn ask_outside(
        &mut self,
        waits: &mut BTreeMap<usize, CallWait>,
    ) -> Result<Vec<(usize, Arc<AgentTool>, Value, bool)>, BoxError> {
        let waiting = waits.iter().map(|(at, wait)| {
            let call = &self.calls[*at];
            (call.tool_name.as_str(), call.tool_call_id.as_str(), call.args_or_invalid(), wait)
        });
        let decisions = ask_decisions(self.context, waiting)?;
        let mut due = Vec::new();
        for at in waits.keys().copied().collect::<Vec<_>>() {
            let Some(decision) = decisions.get(&self.calls[at].tool_call_id) else { continue };
            match decision {
                CallDecision::Approve(given) => {
                    let args = given.clone().unwrap_or_else(|| self.calls[at].args_or_invalid());
                    let (Some(tool), args) = (self.function(&self.calls[at]), Value::Map(args)) else { continue };
                    match tool.check(&args) {
                        Ok(()) => due.push((at, tool, args, true)),
                        Err(errors) => {
                            self.fail(at, ToolRetryCause::ValidationError, told(&errors))?;
                            waits.remove(&at);
                        }
                    }
                    continue;
                }
                CallDecision::Refuse(message) => {
                    let text = if message.is_empty() { REFUSED } else { message };
                    let mut part = self.part(at, ToolContent::text(text));
                    part.outcome = ToolOutcome::Denied;
                    self.end(at, part, None);
                }
                CallDecision::Result(value) => {
                    self.progress.usage.tool_calls += 1;
                    let part = self.part(at, ToolContent::data(value.clone()));
                    self.end(at, part, None);
                }
                CallDecision::Retry(message) => {
                    self.fail(at, ToolRetryCause::ModelRetry, ToolContent::text(message))?
                }
                CallDecision::Fail(message) => {
                    let mut part = self.part(at, ToolContent::text(message));
                    part.outcome = ToolOutcome::Failed;
                    self.end(at, part, None);
                }
            }
            waits.remove(&at);
        }
        Ok(due)
    }

    /// Returns the results in the order of the calls, and the content beside them.
    fn parts(self) -> (Vec<RequestPart>, Vec<RequestPart>) {
        let (mut parts, mut beside) = (Vec::new(), Vec::new());
        let now = self.shared.now();
        for (part, content) in self.results.into_iter().flatten() {
            parts.push(part.into());
            let content = content.and_then(|content| content.to::<UserContent>().ok());
            beside.extend(content.map(|content| RequestPart::from(UserPromptPart::new(content, now))));
        }
        (parts, beside)
    }
}

/// Returns the errors of arguments as a model is told.
fn told(errors: &[ErrorDetail]) -> ToolContent {
    let details = errors.iter().map(|error| Value::from_serialize(error).unwrap_or_default());
    ToolContent::data(Value::List(details.collect()))
}
