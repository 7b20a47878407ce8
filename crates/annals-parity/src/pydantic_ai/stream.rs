//! The operations on parts that stream in.

use annals::base::{Map, Value};
use annals_pydantic_ai::{
    Citation, DefaultSource, DeltaError, PartDelta, PartOrDelta, PartsError, ResponsePart, StreamEvent, StreamedParts,
    StreamedText, StreamedThinking, StreamedToolCall, ToolArgs,
};

use super::ops::{dumped, get, object, text};
use crate::RunnerResult;

fn shown(part: &PartOrDelta) -> Value {
    match part {
        PartOrDelta::Part(part) => object([("part", dumped(&part.to_value()))]),
        PartOrDelta::Delta(delta) => object([("delta", dumped(&delta.to_value()))]),
    }
}

/// Returns the class of the reference's error.
fn class(error: &DeltaError) -> &'static str {
    match error {
        DeltaError::MixedArgs => "UnexpectedModelBehavior",
        _ => "ValueError",
    }
}

pub(super) fn apply_deltas(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let start = get(input, "start");
    let mut current = match start.get("part") {
        Some(part) => PartOrDelta::Part(ResponsePart::from_value(part.clone(), defaults)?),
        None => PartOrDelta::Delta(PartDelta::from_value(get(start, "delta").clone(), defaults)?),
    };
    let mut steps = Vec::new();
    for delta in get(input, "deltas").as_list().unwrap_or_default() {
        let delta = PartDelta::from_value(delta.clone(), defaults)?;
        match delta.apply_to(current, defaults) {
            Ok(next) => {
                steps.push(shown(&next));
                current = next;
            }
            Err(error) => {
                steps.push(object([("error", class(&error).into())]));
                break;
            }
        }
    }
    Ok(object([("steps", steps.into())]))
}

fn args(call: &Value) -> Option<ToolArgs> {
    match get(call, "args") {
        Value::Str(text) => Some(ToolArgs::Text(text.clone())),
        Value::Map(map) => Some(ToolArgs::Object(map.clone())),
        _ => None,
    }
}

fn details(call: &Value) -> Option<Map> {
    get(call, "provider_details").as_map().cloned()
}

fn citations(call: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Option<Vec<Citation>>> {
    let part =
        object([("part_kind", "text".into()), ("content", "".into()), ("citations", get(call, "citations").clone())]);
    match ResponsePart::from_value(part, defaults)? {
        ResponsePart::Text(part) => Ok(part.citations),
        _ => Ok(None),
    }
}

fn call_chunk(call: &Value) -> StreamedToolCall {
    let mut chunk = StreamedToolCall::default();
    chunk.tool_name = text(call, "tool_name");
    chunk.args = args(call);
    chunk.tool_call_id = text(call, "tool_call_id");
    chunk.id = text(call, "id");
    chunk.provider_name = text(call, "provider_name");
    chunk.provider_details = details(call);
    chunk
}

fn make_call(
    manager: &mut StreamedParts,
    call: &Value,
    defaults: &mut DefaultSource<'_>,
) -> RunnerResult<Result<Option<StreamEvent>, PartsError>> {
    let key = get(call, "vendor_part_id").as_str();
    Ok(match get(call, "fn").as_str().unwrap_or_default() {
        "text_delta" => {
            let tags = get(call, "thinking_tags").as_list().unwrap_or_default();
            let tag = |at: usize| tags.get(at).and_then(Value::as_str);
            let mut chunk = StreamedText::new(get(call, "content").as_str().unwrap_or_default());
            chunk.id = text(call, "id");
            chunk.provider_name = text(call, "provider_name");
            chunk.provider_details = details(call);
            chunk.citations = citations(call, defaults)?;
            chunk.thinking_tags = tag(0).zip(tag(1));
            chunk.ignore_leading_whitespace = get(call, "ignore_leading_whitespace").as_bool().unwrap_or_default();
            manager.text(key, chunk)
        }
        "thinking_delta" => {
            let mut chunk = StreamedThinking::default();
            chunk.content = text(call, "content");
            chunk.id = text(call, "id");
            chunk.signature = text(call, "signature");
            chunk.provider_name = text(call, "provider_name");
            chunk.provider_details = details(call);
            manager.thinking(key, chunk)
        }
        "tool_call_delta" => manager.tool_call(key, call_chunk(call), defaults),
        "tool_call_part" => Ok(Some(manager.tool_call_part(key, call_chunk(call), defaults))),
        "part" => Ok(Some(manager.part(key, ResponsePart::from_value(get(call, "part").clone(), defaults)?))),
        other => return Err(format!("unknown call {other}").into()),
    })
}

pub(super) fn parts_manager(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let mut manager = StreamedParts::default();
    let mut events = Vec::new();
    let mut failed = false;
    for call in get(input, "calls").as_list().unwrap_or_default() {
        match make_call(&mut manager, call, defaults)? {
            Ok(event) => events.push(Value::List(event.iter().map(|event| dumped(&event.to_value())).collect())),
            Err(_) => {
                failed = true;
                break;
            }
        }
    }
    let parts = Value::List(manager.parts().map(|part| dumped(&part.to_value())).collect());
    let mut result = object([("events", events.into()), ("parts", parts)]);
    if let (true, Value::Map(map)) = (failed, &mut result) {
        map.insert("error".into(), "UnexpectedModelBehavior".into());
    }
    Ok(result)
}
