//! The tools for messages: buffer strings, filters, trimming, counting, and OpenAI's format.

use annals::base::{Map, Value};
use annals::message::{
    BufferOptions, CountOptions, FilterOptions, Message, MessageClass, MessageError, MessageLike, OpenAiApi,
    OpenAiData, OpenAiOptions, TokenCounter, TrimOptions, TrimStrategy, TypeFilter, buffer_string,
    convert_to_openai_data_block, convert_to_openai_image_block, convert_to_openai_messages,
    count_tokens_approximately, filter_messages, is_data_content_block, merge_message_runs, openai_data_block,
    parse_data_uri, title_repr, trim_messages, v1_to_chat_completions,
};
use serde_json::{Value as Json, json};

use super::encode::{VectorValue, encode_message, encode_messages};
use super::{FailedCall, FunctionCase, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("get_buffer_string", buffer),
    ("filter_messages", filter),
    ("merge_message_runs", |case| {
        let separator = case.text_arg("chunk_separator").unwrap_or_else(|| "\n".into());
        Ok(encode_messages(&merge_message_runs(&case.messages()?, &separator)?))
    }),
    ("trim_messages", trim),
    ("count_tokens_approximately", count),
    ("convert_to_openai_messages", to_openai),
    ("convert_to_openai_image_block", |case| Ok(json_of(convert_to_openai_image_block(&block(case)?)?))),
    ("convert_to_openai_data_block", |case| {
        let api = match case.text_arg("api").as_deref() {
            Some("responses") => OpenAiApi::Responses,
            _ => OpenAiApi::ChatCompletions,
        };
        Ok(json_of(convert_to_openai_data_block(&block(case)?, api)?))
    }),
    ("v1_to_chat_completions", |case| Ok(encode_message(&v1_to_chat_completions(case.message()?)))),
    ("is_data_content_block", |case| Ok(json!(is_data_content_block(&block(case)?)))),
    ("is_openai_data_block", |case| {
        let kind = openai_data_block(&block(case)?);
        let wanted = case.text_arg("filter_").map(|name| match name.as_str() {
            "image" => Some(OpenAiData::Image),
            "audio" => Some(OpenAiData::Audio),
            _ => Some(OpenAiData::File),
        });
        Ok(json!(kind.is_some() && wanted.is_none_or(|wanted| wanted == kind)))
    }),
    ("parse_data_uri", |case| {
        let text = case.text()?;
        Ok(json!(
            parse_data_uri(&text)
                .map(|uri| { json!({"source_type": "base64", "data": uri.data, "mime_type": uri.mime_type}) })
        ))
    }),
    ("pretty_repr", |case| Ok(json!(case.message()?.pretty_repr(case.flag("html").unwrap_or(false))))),
    ("get_msg_title_repr", |case| Ok(json!(title_repr(&case.text()?, case.flag("bold").unwrap_or(false))))),
];

fn json_of(map: Map) -> Json {
    Value::Map(map).to_json()
}

fn block(case: &FunctionCase) -> Result<Map, FailedCall> {
    case.input.value().as_map().cloned().ok_or_else(|| FailedCall::vector("block"))
}

fn parsed<T: std::str::FromStr<Err = MessageError>>(case: &FunctionCase, name: &str) -> Result<Option<T>, FailedCall> {
    Ok(case.text_arg(name).map(|text| text.parse()).transpose()?)
}

fn buffer(case: &FunctionCase) -> Result<Json, FailedCall> {
    let mut options = BufferOptions::default();
    options.format = parsed(case, "format")?.unwrap_or_default();
    for (name, option) in [
        ("human_prefix", &mut options.human_prefix),
        ("ai_prefix", &mut options.ai_prefix),
        ("system_prefix", &mut options.system_prefix),
        ("function_prefix", &mut options.function_prefix),
        ("tool_prefix", &mut options.tool_prefix),
        ("message_separator", &mut options.message_separator),
    ] {
        case.text_arg(name).into_iter().for_each(|text| *option = text);
    }
    Ok(json!(buffer_string(&case.messages()?, &options)?))
}

/// Returns the items of an argument that is one value or a list of values.
fn many(case: &FunctionCase, name: &str) -> Vec<VectorValue> {
    case.arg(name).map(|data| data.items().unwrap_or_else(|| vec![data])).unwrap_or_default()
}

fn texts(case: &FunctionCase, name: &str) -> Vec<String> {
    many(case, name).iter().filter_map(|data| data.value().as_str().map(str::to_owned)).collect()
}

fn types(case: &FunctionCase, name: &str) -> Result<Vec<TypeFilter>, FailedCall> {
    let filter = |data: VectorValue| match data {
        VectorValue::Named("$type", name) if name == "BaseMessage" => Ok(TypeFilter::Any),
        VectorValue::Named("$type", name) if name == "BaseMessageChunk" => Ok(TypeFilter::AnyChunk),
        VectorValue::Named("$type", name) => match MessageClass::of_name(&name) {
            Some(class) => Ok(TypeFilter::from(class)),
            None => Err(FailedCall::vector("known class")),
        },
        other => other.value().as_str().map(TypeFilter::from).ok_or_else(|| FailedCall::vector("type")),
    };
    many(case, name).into_iter().map(filter).collect()
}

fn filter(case: &FunctionCase) -> Result<Json, FailedCall> {
    let mut options = FilterOptions::new().exclude_tool_call_ids(texts(case, "exclude_tool_calls"));
    options.include_names.extend(texts(case, "include_names"));
    options.exclude_names.extend(texts(case, "exclude_names"));
    options.include_ids.extend(texts(case, "include_ids"));
    options.exclude_ids.extend(texts(case, "exclude_ids"));
    options.include_types = types(case, "include_types")?;
    options.exclude_types = types(case, "exclude_types")?;
    if case.flag("exclude_tool_calls") == Some(true) {
        options = options.exclude_tool_calls();
    }
    Ok(encode_messages(&filter_messages(&case.messages()?, &options)))
}

fn words(message: &Message) -> i64 {
    message.text().split_whitespace().count() as i64
}

/// Returns the counter of a vector. One that can count message by message does.
fn counter(case: &FunctionCase) -> Result<TokenCounter<'static>, FailedCall> {
    let name = match case.arg("token_counter") {
        Some(VectorValue::Named("$counter", name)) => name,
        Some(other) => return Ok(TokenCounter::try_from(&other.value())?),
        None => return Ok(TokenCounter::default()),
    };
    Ok(match name.as_str() {
        "len" => TokenCounter::all(|messages| messages.len() as i64),
        "words" => TokenCounter::all(|messages| messages.iter().map(|message| words(message)).sum()),
        "chars" => TokenCounter::each(|message| message.text().chars().count() as i64),
        "dummy10" => TokenCounter::each(|message| match message.content.to_value() {
            Value::List(blocks) => 6 + 4 * blocks.len() as i64,
            _ => 10,
        }),
        "words_plus3" => TokenCounter::each(|message| words(message) + 3),
        "words_plus_base2" => {
            TokenCounter::all(|messages| 2 + messages.iter().map(|message| words(message)).sum::<i64>())
        }
        "per_message_words" => TokenCounter::each(words),
        "count_tokens_approximately" => TokenCounter::approximate(CountOptions::default()),
        _ => return Err(FailedCall::vector("known counter")),
    })
}

/// Splits a text after each separator; the last part may be empty.
fn pieces(text: &str, separator: &str) -> Vec<String> {
    let mut pieces: Vec<String> = text.split(separator).map(|piece| format!("{piece}{separator}")).collect();
    if let Some(last) = pieces.last_mut() {
        last.truncate(last.len() - separator.len());
    }
    pieces
}

fn splitter(name: &str) -> Result<fn(&str) -> Vec<String>, FailedCall> {
    Ok(match name {
        "spaces" => |text| pieces(text, " "),
        "newlines" => |text| pieces(text, "\n"),
        "sentences" => |text| pieces(text, ". "),
        "chars" => |text| text.chars().map(String::from).collect(),
        "whole" => |text| vec![text.to_owned()],
        "none" => |_| Vec::new(),
        _ => return Err(FailedCall::vector("known splitter")),
    })
}

/// Checks and reads the arguments in the order of the reference, which decides the error of several bad ones.
fn trim(case: &FunctionCase) -> Result<Json, FailedCall> {
    let max_tokens = case.arg("max_tokens").and_then(|max| max.value().as_int());
    let strategy = parsed::<TrimStrategy>(case, "strategy");
    let mut options = TrimOptions::new(max_tokens.ok_or_else(|| FailedCall::vector("max_tokens"))?)
        .strategy(strategy.as_ref().ok().copied().flatten().unwrap_or_default())
        .allow_partial(case.flag("allow_partial").unwrap_or(false))
        .include_system(case.flag("include_system").unwrap_or(false))
        .start_on(types(case, "start_on")?)
        .end_on(types(case, "end_on")?);
    options.check()?;
    let messages = case.messages()?;
    options = options.counter(counter(case)?);
    strategy?;
    if let Some(VectorValue::Named("$splitter", name)) = case.arg("text_splitter") {
        options = options.text_splitter(splitter(&name)?);
    }
    Ok(encode_messages(&trim_messages(&messages, &options)?))
}

fn count(case: &FunctionCase) -> Result<Json, FailedCall> {
    let mut options = CountOptions::default();
    let number = |name: &str| match case.arg(name).map(|data| data.value()) {
        Some(Value::Int(n)) => Some(n as f64),
        Some(Value::Float(x)) => Some(x),
        _ => None,
    };
    if let Some(chars) = number("chars_per_token") {
        options.chars_per_token = chars;
    }
    if let Some(tokens) = number("extra_tokens_per_message") {
        options.extra_tokens_per_message = tokens;
    }
    if let Some(tokens) = number("tokens_per_image") {
        options.tokens_per_image = tokens as i64;
    }
    options.count_name = case.flag("count_name").unwrap_or(true);
    options.use_usage_metadata_scaling = case.flag("use_usage_metadata_scaling").unwrap_or(false);
    for tool in many(case, "tools") {
        match (&tool, tool.value()) {
            (VectorValue::Tool(tool), _) => {
                let text = |name| tool.get(name).and_then(Value::as_str).unwrap_or_default();
                let schema = tool.get("args_schema").and_then(Value::as_map).cloned().unwrap_or_default();
                options = options.tool(text("name"), text("description"), &schema);
            }
            (_, tool) => options.tools.push(tool),
        }
    }
    Ok(json!(count_tokens_approximately(&case.messages()?, &options)?))
}

fn to_openai(case: &FunctionCase) -> Result<Json, FailedCall> {
    let mut options = OpenAiOptions::default();
    options.include_id = case.flag("include_id").unwrap_or(false);
    options.pass_through_unknown_blocks = case.flag("pass_through_unknown_blocks").unwrap_or(true);
    options.text_format = parsed(case, "text_format")?.unwrap_or_default();
    // A pair represents two messages here.
    let messages = match case.input.items() {
        Some(items) => MessageLike::List(items.into_iter().map(VectorValue::like).collect()).into_messages()?,
        None => case.messages()?,
    };
    let objects = convert_to_openai_messages(&messages, &options)?;
    let mut objects = objects.into_iter().map(json_of);
    if case.input.items().is_some() { Ok(objects.collect()) } else { Ok(objects.next().unwrap_or_default()) }
}
