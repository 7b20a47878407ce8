//! The operations of the vectors, except those of streams.

use annals::base::{IdSource, Map, SystemClock, Value};
use annals_pydantic_ai as ai;
use annals_pydantic_ai::{
    ArgsError, DefaultSource, File, ForceDownload, ModelMessage, ModelResponse, PathPart, RequestPart, RequestUsage,
    ResponsePart, RunUsage, SanitizeOptions, UserItem,
};

use annals::message::internal::{JsonStyle, json_loads, json_write};

use super::{agent, mapping, stream};
use crate::RunnerResult;

/// Returns an object with these members.
pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Map(members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

pub(super) fn get<'a>(input: &'a Value, name: &str) -> &'a Value {
    input.get(name).unwrap_or(&Value::Null)
}

pub(super) fn text(input: &Value, name: &str) -> Option<String> {
    get(input, name).as_str().map(str::to_owned)
}

/// Runs a vector.
pub(super) fn result(vector: &Value) -> RunnerResult<Value> {
    let mut ids = IdSource::new();
    let defaults = &mut DefaultSource::new(&SystemClock, &mut ids);
    let input = get(vector, "input");
    let op = get(vector, "op").as_str().unwrap_or_default();
    match op {
        "load_dump" => Ok(load_dump(input.as_str().unwrap_or_default(), defaults)),
        "apply_deltas" => stream::apply_deltas(input, defaults),
        "parts_manager" => stream::parts_manager(input, defaults),
        "usage" => usage(input, defaults),
        "usage_limit" => usage_limit(input, defaults),
        "response_props" => response_props(input, defaults),
        "tool_call_props" => tool_call_props(input, defaults),
        "tool_return_props" => tool_return_props(input, defaults),
        "retry_feedback_text" => match RequestPart::from_value(input.clone(), defaults)? {
            RequestPart::RetryFeedback(part) => Ok(part.text().into()),
            other => Err(format!("a part of kind {}", other.kind()).into()),
        },
        "instructions" => instructions(input, defaults),
        "agent_trace" => agent::trace(input),
        "repair" | "post_compaction_window" | "sanitize" => clean(op, input, defaults),
        other => mapping::result(other, input, defaults),
    }
}

fn load_dump(document: &str, defaults: &mut DefaultSource<'_>) -> Value {
    match ai::load(document.as_bytes(), defaults) {
        Ok(messages) => {
            let dumped = ai::dump(&messages);
            let ok = json_loads(&dumped, true).unwrap_or_default();
            object([("ok", ok), ("ok_text", dumped.into())])
        }
        Err(error) => {
            let part = |part: &PathPart| match part {
                PathPart::Name(name) => Value::from(name.as_str()),
                PathPart::Index(index) => Value::from(*index),
            };
            let at = Value::List(error.path.iter().map(part).collect());
            object([("error", object([("at", at), ("message", error.to_string().into())]))])
        }
    }
}

fn usage(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let (kind, a, b) = (text(input, "kind"), get(input, "a").clone(), get(input, "b").clone());
    let operation = text(input, "do").unwrap_or_default();
    let (value, counts, has_values) = if kind.as_deref() == Some("request") {
        let mut usage = RequestUsage::from_value(a, defaults)?;
        if operation == "add" {
            usage.add(&RequestUsage::from_value(b, defaults)?);
        }
        (usage.to_value(), usage.counts.clone(), usage.counts.has_values())
    } else {
        let mut usage = RunUsage::from_value(a, defaults)?;
        match (operation.as_str(), text(input, "b_kind").as_deref()) {
            ("add", Some("request")) => usage.add_request(&RequestUsage::from_value(b, defaults)?),
            ("add", _) => usage.add(&RunUsage::from_value(b, defaults)?),
            ("sub", _) => usage = usage.since(&RunUsage::from_value(b, defaults)?),
            _ => {}
        }
        (usage.to_value(), usage.counts.clone(), usage.has_values())
    };
    Ok(object([
        ("usage", value),
        ("total_tokens", counts.total_tokens().into()),
        ("cache_hit_ratio", counts.cache_hit_ratio().into()),
        ("has_values", has_values.into()),
    ]))
}

fn usage_limit(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let mut limits = ai::UsageLimits::default();
    for (name, value) in get(input, "limits").as_map().into_iter().flatten() {
        let limit = value.as_int();
        match name.as_str() {
            "request_limit" => limits.request_limit = limit,
            "tool_calls_limit" => limits.tool_calls_limit = limit,
            "input_tokens_limit" => limits.input_tokens_limit = limit,
            "output_tokens_limit" => limits.output_tokens_limit = limit,
            "total_tokens_limit" => limits.total_tokens_limit = limit,
            "cost_limit" => limits.cost_limit = value.as_str().and_then(ai::Decimal::parse),
            other => return Err(format!("unknown limit {other}").into()),
        }
    }
    let usage = RunUsage::from_value(get(input, "usage").clone(), defaults)?;
    let checked = match get(input, "check").as_str().unwrap_or_default() {
        "before_request" => limits.check_before_request(&usage),
        "tokens" => limits.check_tokens(&usage),
        "before_tool_call" => limits.check_before_tool_call(&usage),
        "cost" => limits.check_cost(&usage),
        other => return Err(format!("unknown check {other}").into()),
    };
    Ok(match checked {
        Ok(()) => object([("ok", true.into())]),
        Err(error) => object([("error", "UsageLimitExceeded".into()), ("message", error.to_string().into())]),
    })
}

fn response(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<ModelResponse> {
    match ai::from_value(Value::List(vec![input.clone()]), defaults)?.pop() {
        Some(ModelMessage::Response(response)) => Ok(response),
        _ => Err("no response".into()),
    }
}

fn response_props(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let response = response(input, defaults)?;
    let place = |found: &dyn Fn(&ResponsePart) -> bool| Value::from(response.parts.iter().position(found).unwrap_or(0));
    let call = |wanted: &ai::ToolCallPart| {
        place(&|part| matches!(part, ResponsePart::ToolCall(call) if std::ptr::eq(call, wanted)))
    };
    let pair = |(call, result): (&ai::NativeToolCallPart, &ai::NativeToolReturnPart)| {
        let call = place(&|part| matches!(part, ResponsePart::NativeToolCall(found) if std::ptr::eq(found, call)));
        let result =
            place(&|part| matches!(part, ResponsePart::NativeToolReturn(found) if std::ptr::eq(found, result)));
        Value::List(vec![call, result])
    };
    let names = |files: Vec<&ai::Binary>| Value::List(files.iter().map(|f| f.identifier.as_str().into()).collect());
    Ok(object([
        ("text", response.text().into()),
        ("thinking", response.thinking().into()),
        ("tool_calls", Value::List(response.tool_calls().map(call).collect())),
        ("native_tool_calls", Value::List(response.native_tool_calls().into_iter().map(pair).collect())),
        ("files", names(response.files().collect())),
        ("images", names(response.images().collect())),
        ("total_tokens", response.usage.counts.total_tokens().into()),
    ]))
}

fn tool_call_props(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let ResponsePart::ToolCall(call) = ResponsePart::from_value(input.clone(), defaults)? else {
        return Err("no tool call".into());
    };
    let strict = match call.args_as_object() {
        Ok(args) => object([("ok", args.into())]),
        Err(ArgsError::NotAnObject { .. }) => object([("error", "AssertionError".into())]),
        Err(_) => object([("error", "ValueError".into())]),
    };
    Ok(object([
        ("args_as_dict", call.args_or_invalid().into()),
        ("args_as_json_str", call.args_as_json().into()),
        ("strict", strict),
        ("has_content", call.has_content().into()),
    ]))
}

fn tool_return_props(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let RequestPart::ToolReturn(part) = RequestPart::from_value(input.clone(), defaults)? else {
        return Err("no tool return".into());
    };
    let (shown, items) = part.text_and_files(true);
    let item = |item: &UserItem| match item {
        UserItem::Text(text) => text.as_str().into(),
        UserItem::File(file) => File::to_value(file),
        _ => Value::Null,
    };
    Ok(object([
        ("model_response_str", part.text(true).into()),
        ("model_response_str_raw", part.text(false).into()),
        ("model_response_object", part.object(true).into()),
        ("model_response_object_raw", part.object(false).into()),
        ("structured_content", part.structured_content().into()),
        ("text_with_file_refs", shown.into()),
        ("text_with_file_refs_raw", part.text_and_files(false).0.into()),
        ("user_content", Value::List(items.iter().map(item).collect())),
        ("n_files", part.content.files().count().into()),
    ]))
}

fn instructions(input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let baseline = object([("part_kind", "instruction-baseline".into()), ("instructions", input.clone())]);
    let RequestPart::InstructionBaseline(baseline) = RequestPart::from_value(baseline, defaults)? else {
        return Err("no instructions".into());
    };
    let parts: Vec<ai::InstructionPart> = baseline
        .instructions
        .into_iter()
        .filter_map(|record| match record {
            ai::InstructionRecord::Part(part) => Some(part),
            ai::InstructionRecord::Digest(_) => None,
        })
        .collect();
    let sorted = ai::sort_instructions(&parts);
    Ok(object([("joined", ai::join_instructions(&parts).into()), ("sorted", sorted.into())]))
}

fn clean(op: &str, input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let messages = ai::from_value(get(input, "messages").clone(), defaults)?;
    let cleaned = match op {
        "repair" => ai::repair_messages(messages, get(input, "repair_last_response").as_bool().unwrap_or(true)),
        "sanitize" => ai::sanitize_messages(messages, &options(get(input, "options"))?),
        _ => ai::post_compaction_window(&messages),
    };
    Ok(json_loads(&ai::dump(&cleaned), true)?)
}

fn options(input: &Value) -> RunnerResult<SanitizeOptions> {
    let mut options = SanitizeOptions::default();
    let texts = |value: &Value| -> Vec<String> {
        value.as_list().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let none = Map::new();
    for (name, value) in input.as_map().unwrap_or(&none) {
        let flag = value.as_bool().unwrap_or_default();
        match name.as_str() {
            "strip_system_prompts" => options.strip_system_prompts = flag,
            "strip_instructions" => options.strip_instructions = flag,
            "strip_compaction_parts" => options.strip_compaction_parts = flag,
            "strip_workspace_refs" => options.strip_workspace_refs = flag,
            "allow_uploaded_files" => options.allow_uploaded_files = flag,
            "allowed_file_url_schemes" => options.allowed_file_url_schemes = texts(value),
            "resolved_tool_call_ids" => options.resolved_tool_call_ids = texts(value),
            "allowed_file_url_force_download" => {
                let modes = value.as_list().into_iter().flatten().map(|mode| match mode {
                    Value::Bool(true) => ForceDownload::Yes,
                    Value::Str(_) => ForceDownload::AllowLocal,
                    _ => ForceDownload::No,
                });
                options.allowed_force_download = modes.collect();
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Returns the JSON text of a value as data; for results that hold integers of any size.
pub(super) fn dumped(value: &Value) -> Value {
    json_loads(&json_write(value, JsonStyle::PYDANTIC), true).unwrap_or_default()
}
