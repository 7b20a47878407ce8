//! The begin of a run: the history made valid, the prompts, and the first request.
//!
//! Invariant: a run that is refused changes nothing. *Absent:* reading and writing the thread.

use std::sync::Arc;

use annals_base::IdSource;
use annals_graph::graph::BoxError;
use annals_pydantic_ai::{
    ModelMessage, ModelRequest, RequestState, ResponseState, RunUsage, UserContent, UserPromptPart, needs_repair,
    repair_messages,
};

use crate::agent::AgentCore;
use crate::error::{AgentError, AgentErrorKind};
use crate::history::{KnownHistory, SharedHistory, unchecked};
use crate::shared::{RunInfo, RunShared};
use crate::state::{AgentProgress, NextStep};

/// The id that stands for a new conversation.
const NEW: &str = "new";

/// The arguments with which a run begins.
#[derive(Clone, Default)]
pub(crate) struct BeginArgs {
    pub(crate) prompt: Option<UserContent>,
    pub(crate) run_id: Option<String>,
    pub(crate) conversation_id: Option<String>,
    /// True if open calls of the last response are closed.
    pub(crate) abandons: bool,
    /// True if messages of the history are folded.
    pub(crate) has_fold: bool,
}

/// A run that can begin.
pub(crate) struct BegunRun {
    /// The history with the first request.
    pub(crate) messages: SharedHistory,
    /// True if the messages before the run are as they were.
    pub(crate) keeps: bool,
    pub(crate) progress: AgentProgress,
}

/// Returns the ids of a run.
pub(crate) fn ids(args: &BeginArgs, history: &[ModelMessage]) -> Result<(String, String), AgentError> {
    let mut ids = IdSource::new();
    let run_id = args.run_id.clone().unwrap_or_else(|| ids.uuid_v4().to_string());
    if run_id.is_empty() {
        return Err(AgentError::input("the id of a run is not empty"));
    }
    if args.run_id.is_some() && history.iter().any(|message| message.run_id() == Some(&run_id)) {
        return Err(AgentError::input(format!("the history has messages of a run {run_id:?}: a run id is used once")));
    }
    let known = || history.iter().rev().find_map(conversation_of).map(str::to_owned);
    let conversation = args.conversation_id.clone().or_else(known).filter(|id| id != NEW);
    Ok((run_id, conversation.unwrap_or_else(|| ids.uuid_v4().to_string())))
}

pub(crate) fn conversation_of(message: &ModelMessage) -> Option<&str> {
    match message {
        ModelMessage::Request(request) => request.conversation_id.as_deref(),
        ModelMessage::Response(response) => response.conversation_id.as_deref(),
        _ => None,
    }
}

/// Returns a history that is valid for a run.
fn clean(history: &SharedHistory, args: &BeginArgs, known: &KnownHistory) -> SharedHistory {
    let broken_off = match history.last() {
        _ if args.abandons => true,
        Some(ModelMessage::Request(request)) => request.state == RequestState::Interrupted,
        Some(ModelMessage::Response(response)) => args.prompt.is_some() && response.state == ResponseState::Interrupted,
        _ => false,
    };
    // A summary may be a request before a request, which are one when they are sent.
    let is_one = |before: &ModelMessage, after: &ModelMessage| {
        let is_request = |message: &ModelMessage| matches!(message, ModelMessage::Request(_));
        !(args.has_fold && is_request(before) && is_request(after))
    };
    let mut parts = unchecked(history, known.valid()).chunk_by(is_one).peekable();
    let mut needs = false;
    while let Some(part) = parts.next() {
        needs |= needs_repair(part, broken_off && parts.peek().is_none());
    }
    if needs {
        known.set_valid(0);
        return Arc::new(repair_messages(history.to_vec(), broken_off));
    }
    Arc::clone(history)
}

/// Completes a request of a run with its ids, its time and its instructions.
pub(crate) fn completed(
    mut request: ModelRequest,
    core: &AgentCore,
    shared: &RunShared,
    progress: &AgentProgress,
    history: &[ModelMessage],
) -> Result<ModelRequest, BoxError> {
    let info = core.info(shared, progress, history);
    request.instructions = core.instructions(&info)?;
    request.timestamp.get_or_insert(shared.now());
    request.run_id.get_or_insert_with(|| progress.run_id.clone());
    request.conversation_id.get_or_insert_with(|| progress.conversation_id.clone());
    Ok(request)
}

fn prompt_failed(error: BoxError) -> AgentError {
    match error.downcast::<AgentError>() {
        Ok(error) => *error,
        Err(error) => {
            let message = format!("a prompt function failed: {error}");
            AgentError::with_source(AgentErrorKind::Function, message, error.into())
        }
    }
}

/// Begins a run.
pub(crate) fn begin(
    core: &AgentCore,
    shared: &RunShared,
    history: SharedHistory,
    args: &BeginArgs,
) -> Result<BegunRun, AgentError> {
    if let Some(problem) = core.problem() {
        return Err(AgentError::input(problem));
    }
    let (run_id, conversation_id) = ids(args, &history)?;
    let mut messages = clean(&history, args, &shared.known);
    let mut keeps = Arc::ptr_eq(&messages, &history) || messages == history;
    drop(history);
    let usage = RunUsage::default();
    let info = RunInfo { shared, messages: &[], usage: &usage, run_id: &run_id };
    let renewed = renewed(core, &messages, &info).map_err(prompt_failed)?;
    let mut progress = AgentProgress { run_id, conversation_id, usage, ..AgentProgress::default() };
    progress.next = NextStep::Ask;
    progress.first_new = messages.len();
    if let Err(error) = refuse(&messages, args) {
        return Err(error.at(messages));
    }
    if let Some(renewed) = renewed {
        keeps &= *messages == renewed;
        shared.known.set_valid(0);
        messages = Arc::new(renewed);
    }
    if args.prompt.is_none() {
        match messages.split_last() {
            Some((ModelMessage::Request(last), before)) => {
                progress.resends = true;
                shared.known.set_valid(shared.known.valid().min(before.len()));
                let request = completed(last.clone(), core, shared, &progress, before).map_err(prompt_failed)?;
                keeps &= request == *last;
                let messages_mut = Arc::make_mut(&mut messages);
                messages_mut.pop();
                messages_mut.push(request.into());
                return Ok(BegunRun { messages, keeps, progress });
            }
            Some((ModelMessage::Response(last), _)) => {
                let has_calls = last.tool_calls().next().is_some();
                let request = completed(ModelRequest::new(Vec::new()), core, shared, &progress, &messages);
                let request = request.map_err(prompt_failed)?;
                if has_calls || request.instructions.is_none() {
                    progress.next = NextStep::React;
                } else {
                    Arc::make_mut(&mut messages).push(request.into());
                }
                return Ok(BegunRun { messages, keeps, progress });
            }
            _ => {}
        }
    }
    let mut parts = Vec::new();
    if messages.is_empty() {
        let info = core.info(shared, &progress, &messages);
        parts = core.system_prompts.parts(&info).map_err(prompt_failed)?;
    }
    let now = shared.now();
    parts.extend(args.prompt.clone().map(|content| UserPromptPart::new(content, now).into()));
    let request = completed(ModelRequest::new(parts), core, shared, &progress, &messages).map_err(prompt_failed)?;
    if messages.is_empty() && request.parts.is_empty() && request.instructions.is_none() {
        return Err(AgentError::input("a run needs a prompt, a history or instructions"));
    }
    Arc::make_mut(&mut messages).push(request.into());
    Ok(BegunRun { messages, keeps, progress })
}

/// Returns a history with the system prompts of this run, `None` if there are none to make.
fn renewed(
    core: &AgentCore,
    history: &[ModelMessage],
    info: &RunInfo<'_>,
) -> Result<Option<Vec<ModelMessage>>, BoxError> {
    if !core.system_prompts.can_renew() {
        return Ok(None);
    }
    let mut renewed = history.to_vec();
    core.system_prompts.renew(&mut renewed, info)?;
    Ok(Some(renewed))
}

/// Refuses a prompt after a response that waits for something.
fn refuse(history: &[ModelMessage], args: &BeginArgs) -> Result<(), AgentError> {
    let Some(ModelMessage::Response(last)) = history.last() else { return Ok(()) };
    if args.prompt.is_none() {
        return match last.state {
            ResponseState::Suspended => Err(AgentError::input("the provider has suspended the last response")),
            _ => Ok(()),
        };
    }
    if last.state == ResponseState::Suspended {
        return Err(AgentError::input("a prompt cannot follow a response that the provider has suspended"));
    }
    if last.tool_calls().next().is_some() {
        return Err(AgentError::input(
            "a prompt cannot follow tool calls without results: run without a prompt, which runs them, or resume",
        ));
    }
    Ok(())
}
