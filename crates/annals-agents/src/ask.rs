//! The step that asks the model.
//!
//! Invariant: the response, its usage and its output are committed together, and after that the model is not asked for
//! it again. *Absent:* tools.

use std::sync::Arc;

use annals_base::IdSource;
use annals_graph::annals::history::FoldedMessages;
use annals_graph::graph::NodeResult;
use annals_graph::prelude::{Command, State};
use annals_graph::task::Context;
use annals_pydantic_ai::{
    DefaultSource, ModelMessage, ModelRequest, ModelResponse, PartDelta, ResponsePart, ResponseState, StreamEvent,
};

use crate::agent::{AgentCore, leads};
use crate::begin::{BeginArgs, ids};
use crate::chunk::{OutputKinds, ResponseSum};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::AgentEvent;
use crate::gate::GateOrder;
use crate::history::{SharedHistory, rewritten, stored};
use crate::model::{Model, ModelCall, ModelError, ToolDefinition, failed, model_id};
use crate::processors::{HistoryChange, HistoryProcessor};
use crate::prompts::prepared;
use crate::settle::settle;
use crate::shared::RunShared;
use crate::state::{AgentProgress, AgentState, FailureKind, NextStep};
use crate::summary::MadeSummary;

/// Asks the model, and reads the output if the response is one.
pub(crate) async fn ask(core: Arc<AgentCore>, state: Arc<AgentState>, context: Context) -> NodeResult<Command> {
    let shared = RunShared::of(&context)?;
    let (mut messages, mut progress) = shared.known.take(&state, &*core.clock)?;
    let begin = progress.clone();
    if progress.next == NextStep::End {
        // The messages of the run were replaced by others.
        let (run_id, conversation_id) = ids(&BeginArgs::default(), &messages)?;
        let first_new = messages.len();
        progress =
            AgentProgress { run_id, conversation_id, first_new, next: NextStep::Ask, ..AgentProgress::default() };
    }
    if progress.next != NextStep::Ask {
        // A run begins with the calls of the last response.
        let next = progress.next;
        shared.known.leave(state.messages.len(), messages, progress);
        return Ok(leads(AgentState::update(), next));
    }
    let before = Arc::clone(&messages);
    let mut change = StoredChange::default();
    if !core.processors.is_empty() {
        shared.known.set_valid(0);
        messages = match process(&core, shared, &context, &state, &mut progress, messages, &mut change).await? {
            Ok(messages) => messages,
            Err(problem) => {
                progress.fail(FailureKind::Input, problem);
                return Ok(ended(progress, &begin, &before));
            }
        };
    }
    let limits = shared.limits.as_ref().unwrap_or(&core.limits);
    if let Err(exceeded) = limits.check_before_request(&progress.usage) {
        progress.fail(FailureKind::UsageLimit, exceeded.to_string());
        return Ok(ended(progress, &begin, &before));
    }
    let (model, fallbacks) = model_of(&core, shared, &progress);
    let asked = match respond(model, &core, shared, &progress, &context, &messages).await {
        Err(error) if error.kind() == AgentErrorKind::Model && fallbacks > 0 => {
            progress.failed_models += 1;
            // A summary of the history is not made again.
            return change.write((begin, &mut progress), &state, &messages, messages.len()).map(|(command, _)| command);
        }
        asked => asked.map_err(|error| error.at(before))?,
    };
    let mut response = stamped(asked, model, &progress);
    core.hooks.after_model(&mut response, &core.info(shared, &progress, &messages))?;
    progress.failed_models = 0;
    progress.usage.add_request(&response.usage);
    progress.usage.requests += 1;
    let first_added = messages.len();
    Arc::make_mut(&mut messages).push(response.into());
    let Some(ModelMessage::Response(response)) = messages.last() else {
        return Err(AgentError::input("the last message of the thread is not a response").into());
    };
    if response.state == ResponseState::Interrupted {
        progress.fail(FailureKind::Stopped, "the response was cancelled");
    } else if let Err(exceeded) = limits
        .check_tokens(&progress.usage)
        .and_then(|()| limits.check_cost(&progress.usage))
        .and_then(|()| limits.check_per_request_input_tokens(response.usage.counts.input_tokens))
    {
        progress.fail(FailureKind::UsageLimit, exceeded.to_string());
    } else {
        progress.next = NextStep::React;
        if response.tool_calls().next().is_none() {
            let feedback = settle(&core, shared, &mut progress, response, &messages)?;
            Arc::make_mut(&mut messages).extend(feedback.map(ModelMessage::from));
        }
    }
    let (command, count) = change.write((begin, &mut progress), &state, &messages, first_added)?;
    shared.known.leave(count, messages, progress);
    Ok(command)
}

/// Ends a run whose messages stay as they are.
fn ended(mut progress: AgentProgress, begin: &AgentProgress, history: &[ModelMessage]) -> Command {
    let next = progress.next;
    leads(progress.write(AgentState::update(), begin, history), next)
}

/// The change of the stored messages by history processors.
#[derive(Default)]
struct StoredChange {
    /// True if the history takes the place of the messages.
    rewrites: bool,
    /// The fold of the last summary.
    folded: Option<FoldedMessages>,
}

impl StoredChange {
    /// Returns the command of a step that leaves a history, whose messages from `first_added` on are new, and the
    /// number of messages of the thread after it. The step has the progress at its begin and at its end.
    fn write(
        self,
        (begin, progress): (AgentProgress, &mut AgentProgress),
        state: &AgentState,
        history: &[ModelMessage],
        first_added: usize,
    ) -> NodeResult<(Command, usize)> {
        let next = progress.next;
        let follows = match self.rewrites || self.folded.is_some() {
            true => state.agent_run.at(history),
            false => begin.after(&state.agent_run, history, first_added),
        };
        let update = progress.write(AgentState::update(), &follows, history);
        if self.rewrites {
            let written = stored(history)?;
            let count = written.len();
            return Ok((leads(rewritten(update, state, written), next), count));
        }
        let written = stored(&history[first_added..])?;
        let count = state.messages.len() + written.len();
        let update = if written.is_empty() { update } else { update.messages(written) };
        let update = if self.folded.is_some() { update.folded(self.folded) } else { update };
        Ok((leads(update, next), count))
    }

    /// Folds the messages in whose place a summary stands, the first message of a history.
    fn fold(
        &mut self,
        state: &AgentState,
        before: &[ModelMessage],
        made: &MadeSummary,
        history: &[ModelMessage],
    ) -> NodeResult<()> {
        if self.rewrites {
            return Ok(());
        }
        let folded = self.folded.as_ref().or(state.folded.as_ref());
        let count = stored(&before[..made.count])?.len();
        let summary = stored(&history[..1])?;
        self.folded = Some(FoldedMessages::of_view(&state.messages, folded, 0..count, summary));
        Ok(())
    }
}

/// Runs the history processors; the inner error is a problem of their result.
async fn process(
    core: &AgentCore,
    shared: &RunShared,
    context: &Context,
    state: &AgentState,
    progress: &mut AgentProgress,
    mut messages: SharedHistory,
    stored_change: &mut StoredChange,
) -> NodeResult<Result<SharedHistory, &'static str>> {
    let count = messages.len();
    for HistoryProcessor(change) in &core.processors {
        match change {
            HistoryChange::Function(process) => {
                let made = process(messages.to_vec(), &core.info(shared, progress, &messages)).map_err(|error| {
                    let message = format!("a history processor failed: {error}");
                    AgentError::with_source(AgentErrorKind::Function, message, error.into())
                })?;
                stored_change.rewrites |= made != *messages;
                messages = Arc::new(made);
            }
            HistoryChange::Summary(rule) => {
                let before = Arc::clone(&messages);
                if let Some(made) = rule.apply(&mut messages, shared.clock.now(), context).await? {
                    progress.usage.add_request(&made.response.usage);
                    progress.usage.requests += 1;
                    stored_change.fold(state, &before, &made, &messages)?;
                }
            }
        }
    }
    let Some(ModelMessage::Request(last)) = Arc::make_mut(&mut messages).last_mut() else {
        return Ok(Err("a history processor returned a history that does not end with a request"));
    };
    stored_change.rewrites |= last.run_id.is_none() || last.conversation_id.is_none();
    last.run_id.get_or_insert_with(|| progress.run_id.clone());
    last.conversation_id.get_or_insert_with(|| progress.conversation_id.clone());
    let run_id = progress.run_id.as_str();
    let first = messages.iter().position(|message| message.run_id() == Some(run_id)).unwrap_or(messages.len());
    progress.first_new = if progress.resends {
        // The request that is sent again has the id of the run and is not new.
        (progress.first_new + messages.len()).saturating_sub(count)
    } else {
        first
    };
    Ok(Ok(messages))
}

/// Returns the model to ask, and the number of models that stand in for it.
fn model_of<'a>(core: &'a AgentCore, shared: &'a RunShared, progress: &AgentProgress) -> (&'a dyn Model, usize) {
    let fallbacks = &core.hooks.fallbacks;
    match progress.failed_models.min(fallbacks.len()) {
        0 => (shared.model.as_deref().unwrap_or(&*core.model), fallbacks.len()),
        failed => (&*fallbacks[failed - 1], fallbacks.len() - failed),
    }
}

/// Completes a response of a run.
fn stamped(mut response: ModelResponse, model: &dyn Model, progress: &AgentProgress) -> ModelResponse {
    response.model_name.get_or_insert_with(|| model.name().to_owned());
    response.model_id.get_or_insert_with(|| model_id(model));
    response.run_id = Some(progress.run_id.clone());
    response.conversation_id = Some(progress.conversation_id.clone());
    response
}

/// Asks a model for a response, or for a stream of one if somebody reads it.
async fn respond(
    model: &dyn Model,
    core: &AgentCore,
    shared: &RunShared,
    progress: &AgentProgress,
    context: &Context,
    messages: &SharedHistory,
) -> Result<ModelResponse, AgentError> {
    let instructions = messages.iter().rev().find_map(request_of).and_then(|request| request.instructions.clone());
    let mut call = ModelCall {
        messages: prepared(Arc::clone(messages), model, &shared.known),
        instructions,
        tools: core.tools.iter().map(|tool| tool.definition()).collect(),
        output_tools: core.output.tool().into_iter().collect(),
        output: core.output.request(),
        allows_text: core.output.allows_text(),
        settings: shared.settings.or(&core.settings),
        clock: shared.clock.now(),
    };
    core.hooks.before_model(&mut call, &core.info(shared, progress, messages))?;
    let span = shared.span.chat(&call, model);
    let response = match shared.streams() {
        true => span.around(streamed(model, &call, shared, context)).await,
        false => span.around(model.request(&call)).await.map_err(|error| failed(model, error)),
    };
    span.end(&response);
    response
}

fn request_of(message: &ModelMessage) -> Option<&ModelRequest> {
    match message {
        ModelMessage::Request(request) => Some(request),
        _ => None,
    }
}

/// Asks a model for a stream, and shows its events.
async fn streamed(
    model: &dyn Model,
    call: &ModelCall,
    shared: &RunShared,
    context: &Context,
) -> Result<ModelResponse, AgentError> {
    let failed = |error| failed(model, error);
    let mut ids = IdSource::new();
    let mut defaults = DefaultSource::new(&*shared.clock, &mut ids);
    let tools: Vec<String> = call.output_tools.iter().map(|tool: &ToolDefinition| tool.name.clone()).collect();
    let kinds = OutputKinds { allows_text: call.allows_text, tools: &tools };
    let mut sum = ResponseSum::new(shared.now());
    let mut live = context.message_stream();
    let mut chunks = model.stream(call).await.map_err(failed)?;
    loop {
        if let Some(gate) = &shared.gate {
            match gate.wanted().await {
                None => {}
                Some(GateOrder::Cancel) => return Ok(sum.response(ResponseState::Interrupted)),
                Some(GateOrder::Close) => {
                    return Err(AgentError::new(AgentErrorKind::Stopped, "the reader of the stream is gone"));
                }
            }
        }
        let mut events = Vec::new();
        let chunk = chunks.next().await.transpose().map_err(failed)?;
        let is_last = chunk.is_none();
        match chunk {
            Some(chunk) => {
                sum.push(chunk, &kinds, &mut defaults, &mut events).map_err(|error| failed(ModelError::fatal(error)))?
            }
            None => _ = sum.end_part(None, &mut events),
        }
        events.iter().filter_map(text_in).for_each(|text| live.push(text));
        let usage = sum.response(ResponseState::Incomplete).usage;
        shared.show(context, events.into_iter().map(AgentEvent::Response).collect(), Some(usage));
        if is_last {
            return Ok(sum.response(ResponseState::Complete));
        }
    }
}

/// Returns the text that an event adds.
pub(crate) fn text_in(event: &StreamEvent) -> Option<&str> {
    match event {
        StreamEvent::PartStart(start) => match &start.part {
            ResponsePart::Text(text) => Some(&text.content),
            _ => None,
        },
        StreamEvent::PartDelta(event) => match &event.delta {
            PartDelta::Text(text) => Some(&text.content_delta),
            _ => None,
        },
        _ => None,
    }
}
