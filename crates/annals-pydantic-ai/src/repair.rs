//! Making a history valid: every result has its call, every call its result, and requests and responses alternate.
//!
//! *Absent:* any judgement of the content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use indexmap::IndexMap;

use super::datetime::DateTime;
use super::history::{ModelMessage, ModelRequest, ModelResponse, RequestState};
use super::part::{RequestPart, ResponsePart};
use super::tool::{ToolCallPart, ToolOutcome, ToolReturnPart};
use super::tool_content::ToolContent;
use annals_base::{Map, Value};

/// The result of an interrupted call.
const INTERRUPTED: &str = "The tool call was interrupted before a result was produced.";
/// The metadata key of a result that the repair added.
const SYNTHESIZED: &str = "pydantic_ai_synthesized_tool_return";
/// The key of the metadata that is the framework's.
pub(super) const RESERVED: &str = "__pydantic_ai__";

/// Returns the history with results without a call removed, calls without a result closed as interrupted, and requests
/// and responses that follow one another merged where nothing is lost by it (`repair_messages`). Doing it again changes
/// nothing. The calls of the last response stay open unless `repair_last_response`. All results of one call are
/// kept; [`repair_messages_with`] can keep the first one alone.
///
/// # Example: a call that was broken off
/// ```
/// use annals_base::{IdSource, SystemClock};
/// use annals_pydantic_ai::{DefaultSource, ModelResponse, ToolArgs, ToolCallPart, repair_messages};
///
/// let mut ids = IdSource::from_seed(1);
/// let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
/// let call = ToolCallPart::new("weather", ToolArgs::Text("{}".into()), &mut defaults);
/// let history = vec![ModelResponse::new(vec![call.into()], defaults.now().into()).into()];
/// assert_eq!(repair_messages(history.clone(), true).len(), 2);
/// assert_eq!(repair_messages(history.clone(), false), history);
/// ```
pub fn repair_messages(messages: Vec<ModelMessage>, repair_last_response: bool) -> Vec<ModelMessage> {
    repair_messages_with(messages, RepairOptions { repair_last_response, ..RepairOptions::default() })
}

/// Returns whether [`repair_messages`] may change a history. Looks at neighbouring messages alone and copies nothing.
///
/// `false` means that the repair returns the history as it is: requests and responses alternate, and each request holds
/// the results of the calls of the response before it, one for each call, in their order. Other histories can be valid
/// as well.
///
/// # Example: a call that was broken off
/// ```
/// use annals_base::{IdSource, SystemClock};
/// use annals_pydantic_ai::{DefaultSource, ModelResponse, ToolArgs, ToolCallPart, needs_repair, repair_messages};
///
/// let mut ids = IdSource::from_seed(1);
/// let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
/// let call = ToolCallPart::new("weather", ToolArgs::Text("{}".into()), &mut defaults);
/// let history = vec![ModelResponse::new(vec![call.into()], defaults.now().into()).into()];
/// assert!(needs_repair(&history, true) && !needs_repair(&history, false));
/// assert!(!needs_repair(&repair_messages(history, true), true));
/// ```
pub fn needs_repair(messages: &[ModelMessage], repair_last_response: bool) -> bool {
    let mut before = None;
    for message in messages {
        if !is_in_turn(before, message) {
            return true;
        }
        before = Some(message);
    }
    let has_calls = |response: &ModelResponse| response.tool_calls().next().is_some();
    repair_last_response && matches!(before, Some(ModelMessage::Response(last)) if has_calls(last))
}

/// Returns whether a message follows another one as it does in a valid history.
fn is_in_turn(before: Option<&ModelMessage>, message: &ModelMessage) -> bool {
    let (response, request) = match (before, message) {
        (None | Some(ModelMessage::Request(_)), ModelMessage::Response(_)) => return true,
        (Some(ModelMessage::Response(response)), ModelMessage::Request(request)) => (Some(response), request),
        (None, ModelMessage::Request(request)) => (None, request),
        _ => return false,
    };
    let calls = response.into_iter().flat_map(|response| response.tool_calls().map(|call| &call.tool_call_id));
    let results = request.parts.iter().filter_map(|part| match part {
        RequestPart::ToolReturn(part) => Some(&part.tool_call_id),
        _ => None,
    });
    calls.eq(results) && are_gathered(&request.parts)
}

/// How [`repair_messages_with`] repairs a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairOptions {
    /// True if the calls of the last response are closed.
    pub repair_last_response: bool,
    /// True if only the first result of each call is kept: APIs refuse a second result of one call.
    pub one_result: bool,
}

impl Default for RepairOptions {
    /// The options of PydanticAI: closes the calls of the last response, and keeps all results of a call.
    fn default() -> Self {
        Self { repair_last_response: true, one_result: false }
    }
}

/// Repairs a history as [`repair_messages`] does, with options.
///
/// # Example: a result that was stored twice
/// ```
/// use annals_base::{IdSource, SystemClock};
/// use annals_pydantic_ai::{
///     DefaultSource, ModelMessage, ModelRequest, ModelResponse, RepairOptions, ToolArgs, ToolCallPart, ToolContent,
///     ToolReturnPart, repair_messages_with,
/// };
///
/// let mut ids = IdSource::from_seed(1);
/// let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
/// let call = ToolCallPart::new("weather", ToolArgs::Text("{}".into()), &mut defaults);
/// let now = defaults.now();
/// let result = ToolReturnPart::new("weather", ToolContent::text("rain"), &call.tool_call_id, now.into());
/// let request = ModelRequest::new(vec![result.clone().into(), result.into()]);
/// let history: Vec<ModelMessage> = vec![ModelResponse::new(vec![call.into()], now.into()).into(), request.into()];
/// let mut options = RepairOptions::default();
/// options.one_result = true;
/// let repaired = repair_messages_with(history, options);
/// let ModelMessage::Request(request) = &repaired[1] else { panic!("the results") };
/// assert_eq!(request.parts.len(), 1);
/// ```
pub fn repair_messages_with(messages: Vec<ModelMessage>, options: RepairOptions) -> Vec<ModelMessage> {
    let mut messages = drop_orphans(messages);
    if options.one_result {
        messages = drop_repeats(messages);
    }
    let repaired = merge(close_calls(messages, options.repair_last_response));
    debug_assert!(!options.repair_last_response || dangling(&repaired).is_empty(), "every call has its result");
    repaired
}

/// Removes results of calls that have their result. An id may be used again by a later call.
fn drop_repeats(messages: Vec<ModelMessage>) -> Vec<ModelMessage> {
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    retain_parts(messages, |message| match message {
        ModelMessage::Response(response) => {
            // An id that is used again can no longer answer the earlier call.
            response.tool_calls().for_each(|call| _ = open.remove(&call.tool_call_id));
            response.tool_calls().for_each(|call| *open.entry(call.tool_call_id.clone()).or_default() += 1);
        }
        ModelMessage::Request(request) => request.parts.retain(|part| {
            let RequestPart::ToolReturn(part) = part else { return true };
            let left = open.get_mut(&part.tool_call_id).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        }),
    })
}

/// Changes the parts of messages, and removes requests that have none left, but for the last message.
fn retain_parts(messages: Vec<ModelMessage>, mut change: impl FnMut(&mut ModelMessage)) -> Vec<ModelMessage> {
    let count = messages.len();
    let parts = |message: &ModelMessage| match message {
        ModelMessage::Request(request) => request.parts.len(),
        ModelMessage::Response(_) => usize::MAX,
    };
    let mut out = Vec::with_capacity(count);
    for (at, mut message) in messages.into_iter().enumerate() {
        let before = parts(&message);
        change(&mut message);
        if parts(&message) > 0 || before == 0 || at + 1 == count {
            out.push(message);
        }
    }
    out
}

/// Removes results whose call has not come before.
fn drop_orphans(messages: Vec<ModelMessage>) -> Vec<ModelMessage> {
    let mut called = BTreeSet::new();
    retain_parts(messages, |message| match message {
        ModelMessage::Response(response) => {
            called.extend(response.tool_calls().map(|call| call.tool_call_id.clone()));
        }
        ModelMessage::Request(request) => request.parts.retain(|part| match part {
            RequestPart::ToolReturn(part) => called.contains(&part.tool_call_id),
            _ => true,
        }),
    })
}

/// Returns for each response which of its tool calls, counted among them, have no result: first those whose id was used
/// again, then the others by when their id was seen first.
fn dangling(messages: &[ModelMessage]) -> BTreeMap<usize, Vec<usize>> {
    let mut open: IndexMap<&str, Vec<(usize, usize)>> = IndexMap::new();
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ModelMessage::Response(response) => {
                for (number, call) in response.tool_calls().enumerate() {
                    let calls = open.entry(call.tool_call_id.as_str()).or_default();
                    // An id that is used again can no longer answer the earlier call.
                    for (from, number) in calls.extract_if(.., |(from, _)| *from < at) {
                        found.entry(from).or_default().push(number);
                    }
                    calls.push((at, number));
                }
            }
            ModelMessage::Request(request) => {
                for part in &request.parts {
                    if let RequestPart::ToolReturn(part) = part
                        && let Some(calls) = open.get_mut(part.tool_call_id.as_str()).filter(|calls| !calls.is_empty())
                    {
                        calls.remove(0);
                    }
                }
            }
        }
    }
    open.into_values().flatten().for_each(|(from, number)| found.entry(from).or_default().push(number));
    found
}

fn interrupted(call: &ToolCallPart, timestamp: DateTime) -> RequestPart {
    ToolReturnPart {
        tool_name: call.tool_name.clone(),
        content: ToolContent::text(INTERRUPTED),
        tool_call_id: call.tool_call_id.clone(),
        tool_kind: call.tool_kind.clone(),
        metadata: Map::from_iter([(SYNTHESIZED.to_owned(), Value::Bool(true))]).into(),
        timestamp,
        outcome: ToolOutcome::Interrupted,
        retry: None,
    }
    .into()
}

fn close_calls(messages: Vec<ModelMessage>, repair_last_response: bool) -> Vec<ModelMessage> {
    let mut open = dangling(&messages);
    if !repair_last_response {
        let last = messages.iter().rposition(|message| matches!(message, ModelMessage::Response(_)));
        last.and_then(|last| open.remove(&last));
    }
    let mut out: Vec<ModelMessage> = Vec::with_capacity(messages.len() + open.len());
    let mut pending: Vec<RequestPart> = Vec::new();
    for (at, mut message) in messages.into_iter().enumerate() {
        if !pending.is_empty() {
            let results = std::mem::take(&mut pending);
            match &mut message {
                ModelMessage::Request(request) => {
                    let after = request.parts.iter().rposition(is_result).map_or(0, |last| last + 1);
                    request.parts.splice(after..after, results);
                }
                ModelMessage::Response(_) => out.push(ModelRequest::new(results).into()),
            }
        }
        if let (ModelMessage::Response(response), Some(numbers)) = (&message, open.get(&at)) {
            let calls: Vec<&ToolCallPart> = response.tool_calls().collect();
            pending = numbers.iter().map(|number| interrupted(calls[*number], response.timestamp)).collect();
        }
        out.push(message);
    }
    if !pending.is_empty() {
        out.push(ModelRequest::new(pending).into());
    }
    debug_assert!(dangling(&out).len() <= usize::from(!repair_last_response), "only the last response has open calls");
    out
}

fn is_result(part: &RequestPart) -> bool {
    matches!(part, RequestPart::ToolReturn(_))
}

/// Merges requests and responses that follow one another, and orders the parts of requests.
fn merge(messages: Vec<ModelMessage>) -> Vec<ModelMessage> {
    let mut out: Vec<ModelMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match (out.last_mut(), message) {
            (Some(ModelMessage::Request(before)), ModelMessage::Request(next)) if can_merge(before, &next) => {
                merge_requests(before, next);
            }
            (Some(ModelMessage::Response(before)), ModelMessage::Response(next))
                if is_anonymous(before) && is_anonymous(&next) =>
            {
                before.parts.extend(next.parts);
            }
            (_, ModelMessage::Request(mut request)) => {
                gather_results(&mut request.parts);
                out.push(request.into());
            }
            (_, message) => out.push(message),
        }
    }
    out
}

fn instructions(request: &ModelRequest) -> Option<&String> {
    request.instructions.as_ref().filter(|text| !text.is_empty())
}

fn can_merge(before: &ModelRequest, next: &ModelRequest) -> bool {
    match (instructions(before), instructions(next)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

fn merge_requests(before: &mut ModelRequest, next: ModelRequest) {
    let reserved = [before.metadata.as_ref(), next.metadata.as_ref()];
    let reserved = reserved.map(|metadata| metadata.and_then(|map| map.get(RESERVED)).and_then(Value::as_map));
    let merged: Map = reserved.iter().flatten().flat_map(|map| (*map).clone()).collect();
    let has_reserved = reserved.iter().any(Option::is_some);
    before.metadata = has_reserved.then(|| Map::from_iter([(RESERVED.to_owned(), merged.into())]));
    before.instructions = instructions(before).or(next.instructions.as_ref()).cloned();
    before.timestamp = next.timestamp.or(before.timestamp);
    (before.run_id, before.conversation_id) = (None, None);
    before.state = RequestState::Complete;
    before.parts.extend(next.parts);
    // Results first, both in their order.
    before.parts.sort_by_key(|part| !is_result(part));
}

fn is_anonymous(response: &ModelResponse) -> bool {
    response.provider_response_id.is_none() && response.provider_name.is_none() && response.model_name.is_none()
}

/// Returns the places from the first result to the last one.
fn result_places(parts: &[RequestPart]) -> Range<usize> {
    let first = parts.iter().position(is_result).unwrap_or_default();
    first..parts.iter().rposition(is_result).map_or(first, |last| last + 1)
}

/// Returns whether a part can stand between results: a result, or a tool that becomes available there.
fn stays_between(part: &RequestPart) -> bool {
    is_result(part) || matches!(part, RequestPart::ToolAvailabilityDelta(_))
}

fn are_gathered(parts: &[RequestPart]) -> bool {
    parts[result_places(parts)].iter().all(stays_between)
}

/// Moves what stands between results behind the last one, but for what can stand there.
fn gather_results(parts: &mut [RequestPart]) {
    let places = result_places(parts);
    parts[places].sort_by_key(|part| !stays_between(part));
}

/// Returns the part of the history that counts after the last compaction (`post_compaction_window`): from that part on
/// in a response; in a request, from the first of the requests that follow one another there.
pub fn post_compaction_window(messages: &[ModelMessage]) -> Vec<ModelMessage> {
    let last = |message: &ModelMessage| match message {
        ModelMessage::Request(r) => r.parts.iter().rposition(|part| matches!(part, RequestPart::Compaction(_))),
        ModelMessage::Response(r) => r.parts.iter().rposition(|part| matches!(part, ResponsePart::Compaction(_))),
    };
    let found = messages.iter().enumerate().rev().find_map(|(at, message)| Some((at, last(message)?)));
    let Some((at, part)) = found else { return messages.to_vec() };
    match &messages[at] {
        ModelMessage::Response(response) => {
            let mut cut = response.clone();
            cut.parts.drain(..part);
            [ModelMessage::from(cut)].into_iter().chain(messages[at + 1..].iter().cloned()).collect()
        }
        ModelMessage::Request(_) => {
            let before = messages[..at].iter().rposition(|message| matches!(message, ModelMessage::Response(_)));
            messages[before.map_or(0, |before| before + 1)..].to_vec()
        }
    }
}
