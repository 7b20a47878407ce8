//! The system prompts of an agent, and the preparation of a history for the next run.
//!
//! *Absent:* the run.

use annals::base::{IdSource, SystemClock, Value};
use annals_pydantic_ai::{
    DateTime, DefaultSource, ModelMessage, RequestPart, RequestState, ResponseState, SystemPromptPart, repair_messages,
};

use super::agent::Counters;
use super::ops::{get, text};

fn system_prompt(content: &Value, dynamic_ref: Option<String>, timestamp: DateTime) -> SystemPromptPart {
    let mut part = SystemPromptPart::new(content.as_str().unwrap_or_default(), timestamp);
    part.dynamic_ref = dynamic_ref;
    part
}

/// Returns the system prompts of an agent: the static ones, then those of functions.
pub(super) fn system_prompts(agent: &Value, name: &str, now: DateTime, counters: &mut Counters) -> Vec<RequestPart> {
    let standing = get(agent, "system_prompt").as_list().unwrap_or_default().iter();
    let mut parts: Vec<RequestPart> = standing.map(|content| system_prompt(content, None, now).into()).collect();
    for function in get(agent, "dynamic_system_prompts").as_list().unwrap_or_default() {
        let is_dynamic = get(function, "dynamic").as_bool().unwrap_or(true);
        let function_name = text(function, "name").filter(|_| is_dynamic);
        parts.extend(value_of(function, name, counters).map(|value| system_prompt(value, function_name, now).into()));
    }
    parts
}

/// Calls a function that makes a prompt.
fn value_of<'a>(function: &'a Value, agent: &str, counters: &mut Counters) -> Option<&'a Value> {
    let name = text(function, "name").unwrap_or_default();
    counters.next(format!("{agent}/system/{name}"), get(function, "values").as_list().unwrap_or_default())
}

/// Makes a history valid for a run, with the system prompts that the agent renews or restores.
pub(super) fn clean(
    history: Vec<ModelMessage>,
    agent: &Value,
    name: &str,
    has_prompt: bool,
    counters: &mut Counters,
) -> Vec<ModelMessage> {
    let broken_off = match history.last() {
        Some(ModelMessage::Request(request)) => request.state == RequestState::Interrupted,
        Some(ModelMessage::Response(response)) => has_prompt && response.state == ResponseState::Interrupted,
        _ => return history,
    };
    let mut history = repair_messages(history, broken_off);
    let now = DefaultSource::new(&SystemClock, &mut IdSource::new()).now().into();
    let functions = get(agent, "dynamic_system_prompts").as_list().unwrap_or_default();
    let requests = |history: &mut Vec<ModelMessage>, change: &mut dyn FnMut(&mut Vec<RequestPart>)| {
        for message in history {
            if let ModelMessage::Request(request) = message {
                change(&mut request.parts);
            }
        }
    };
    requests(&mut history, &mut |parts| {
        for part in parts {
            let RequestPart::SystemPrompt(prompt) = part else { continue };
            let made = functions
                .iter()
                .find(|function| prompt.dynamic_ref.is_some() && prompt.dynamic_ref == text(function, "name"));
            if let Some(value) = made.and_then(|function| value_of(function, name, counters)) {
                *prompt = system_prompt(value, prompt.dynamic_ref.clone(), now);
            }
        }
    });
    let mode = get(agent, "reinject_system_prompt").as_str();
    let mut found = false;
    requests(&mut history, &mut |parts| {
        parts.retain(|part| !(mode == Some("replace") && matches!(part, RequestPart::SystemPrompt(_))));
        found |= parts.iter().any(|part| matches!(part, RequestPart::SystemPrompt(_)));
    });
    if mode.is_some() && !found {
        let first = history.iter_mut().find_map(|message| match message {
            ModelMessage::Request(request) => Some(request),
            _ => None,
        });
        if let Some(first) = first {
            first.parts.splice(0..0, system_prompts(agent, name, now, counters));
        }
    }
    history
}
