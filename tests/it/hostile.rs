//! Tests the loaders of messages with hostile input: they return messages or a typed error, and never panic.

use annals::base::{DefaultSource, IdSource, Map, SystemClock, Value};
use annals::history::{ExportOptions, Framing, ImportOptions};
use annals::message::{
    BufferFormat, BufferOptions, CountOptions, FilterOptions, LangChainFormat, Message, MessageFormat, OpenAiFormat,
    OpenAiOptions, REMOVE_ALL_MESSAGES, TokenCounter, TrimOptions, TrimStrategy, any_message, buffer_string,
    checkpoint_loads, convert_to_messages, convert_to_openai_messages, count_tokens_approximately,
    default_tool_chunk_parser, default_tool_parser, filter_messages, load, merge_message_runs, message_to_dict,
    messages_from_dict, messages_from_json, parse_partial_json, trim_messages,
};
use annals::prelude::*;
use annals_pydantic_ai::PydanticAiFormat;
use proptest::prelude::*;

/// All formats of messages that annals brings.
const FORMATS: [&dyn MessageFormat; 3] = [&LangChainFormat, &OpenAiFormat, &PydanticAiFormat];

/// Names that loaders look for.
const NAMES: &[&str] = &[
    "type",
    "data",
    "content",
    "role",
    "id",
    "name",
    "text",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_chunks",
    "tool_call_id",
    "additional_kwargs",
    "response_metadata",
    "usage_metadata",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_token_details",
    "artifact",
    "status",
    "args",
    "index",
    "function",
    "arguments",
    "error",
    "extras",
    "lc",
    "kwargs",
    "chunk_position",
    "image_url",
    "url",
    "source",
    "source_type",
    "base64",
    "mime_type",
    "file",
    "file_id",
    "file_data",
    "input",
    "tool_use_id",
    "call_id",
    "json",
    "guard_content",
    "media_type",
    "format",
    "image",
    "bytes",
    "value",
    "annotations",
    "summary",
    "reasoning",
    "function_call",
    "refusal",
    "__openai_role__",
    "kind",
    "parts",
    "part_kind",
    "timestamp",
    "instructions",
    "model_provider",
    "output_version",
];

/// Texts that mean something somewhere.
const TEXTS: &[&str] = &[
    "human",
    "ai",
    "system",
    "tool",
    "function",
    "chat",
    "remove",
    "user",
    "assistant",
    "developer",
    "AIMessageChunk",
    "HumanMessageChunk",
    "ToolMessageChunk",
    "constructor",
    "text",
    "image",
    "image_url",
    "file",
    "audio",
    "video",
    "tool_use",
    "tool_result",
    "tool_call",
    "reasoning",
    "thinking",
    "json",
    "media",
    "guard_content",
    "function_call",
    "non_standard",
    "server_tool_call",
    "input_audio",
    "success",
    "error",
    "last",
    "v1",
    "openai",
    "anthropic",
    "groq",
    "google_genai",
    "bedrock_converse",
    "url",
    "base64",
    "id",
    "",
    "é\u{0}\u{202e}",
    "{\"a\": [1",
    "data:a/b;base64,QQ==",
    "lc_run-1",
    "{}",
    "1",
    "request",
    "response",
    "user-prompt",
    "tool-return",
    REMOVE_ALL_MESSAGES,
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(TEXTS).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop_oneof![Just(0), Just(1), Just(-1), any::<i64>()].prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        6 => text().prop_map(Value::from),
        1 => prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            5 => prop::collection::vec((prop::sample::select(NAMES), inner), 0..7).prop_map(object),
        ]
    })
}

fn object(members: Vec<(&'static str, Value)>) -> Value {
    Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map>())
}

/// Something that is nearly a message, in one of the shapes that are accepted.
fn nearly() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(&TEXTS[..13]).prop_map(Value::from);
    let call = (text(), value(), text())
        .prop_map(|(name, args, id)| object(vec![("name", name.into()), ("args", args), ("id", id.into())]));
    let more = prop::collection::vec((prop::sample::select(NAMES), value()), 0..4);
    let members = (kind, value(), prop::collection::vec(call, 0..3), more, any::<bool>());
    let flat = members.prop_map(|(kind, content, calls, more, is_role)| {
        let mut all = vec![(if is_role { "role" } else { "type" }, kind), ("content", content)];
        all.extend(more);
        if !calls.is_empty() {
            all.push(("tool_calls", calls.into()));
        }
        object(all)
    });
    (flat, 0..4).prop_map(|(flat, shape)| match shape {
        0 => {
            let kind = flat.get("type").cloned().unwrap_or_default();
            object(vec![("type", kind), ("data", flat)])
        }
        1 => {
            let id = ["langchain", "schema", "messages", "AIMessage"].map(Value::from);
            let head = vec![("lc", 1.into()), ("type", "constructor".into()), ("id", id.to_vec().into())];
            object(head.into_iter().chain([("kwargs", flat)]).collect())
        }
        _ => flat,
    })
}

fn item() -> impl Strategy<Value = Value> {
    prop_oneof![3 => nearly(), 1 => value()]
}

/// Returns every message that any loader makes of an item. A loaded message equals the one that its own dictionary
/// loads.
fn loaded(item: &Value) -> Vec<Message> {
    let mut all = Vec::new();
    let flat = Message::try_from(item.clone());
    let lists = [
        flat.map(|message| vec![message]),
        messages_from_dict([item.clone()]),
        load(item.clone()).and_then(|like| like.into_messages()),
        any_message(item.clone()).map(|message| vec![message]),
        convert_to_messages([item.clone()]),
    ];
    let mut ids = IdSource::from_seed(1);
    let read = |format: &dyn MessageFormat| format.read(item.clone(), &mut DefaultSource::new(&SystemClock, &mut ids));
    let formats = FORMATS.map(read);
    for list in lists.into_iter().chain(formats) {
        match list {
            Ok(messages) => all.extend(messages),
            Err(error) => {
                assert!(!error.to_string().is_empty() && !error.class().as_str().is_empty());
            }
        }
    }
    all
}

#[test]
fn bytes_are_no_arguments_of_a_piece_of_an_answer() {
    let args = Value::Map([("b".to_owned(), Value::Bytes(vec![1]))].into_iter().collect());
    let call: Value = serde_json::json!({"name": "f", "args": {}, "id": null}).into();
    let Value::Map(mut call) = call else { unreachable!() };
    call.insert(
        "args".into(),
        vec![("a", args)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<annals::base::Map>()
            .into(),
    );
    let item = |kind: &str| {
        let calls = Value::List(vec![call.clone().into()]);
        let members = [("type", kind.into()), ("content", "".into()), ("tool_calls", calls)];
        Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    assert!(Message::try_from(item("ai")).is_ok());
    let error = Message::try_from(item("AIMessageChunk")).unwrap_err().to_string();
    assert!(error.contains("tool_calls") && error.contains("Object of type bytes is not JSON serializable"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_loader_panics_and_what_was_loaded_is_loaded_again(item in item()) {
        for message in loaded(&item) {
            let again = messages_from_dict([message_to_dict(&message)]);
            match (message.class(), again) {
                (Some(_), Ok(again)) => prop_assert_eq!(again, [message]),
                (None, again) => prop_assert!(again.is_err(), "its type is not known"),
                (Some(_), Err(error)) => prop_assert!(false, "{error}: {message:?}"),
            }
        }
    }

    #[test]
    fn a_text_of_dictionaries_is_read_as_its_values_are(items in prop::collection::vec(nearly(), 0..4)) {
        let items: Vec<serde_json::Value> = items.iter().map(Value::to_json).collect();
        let text = serde_json::to_vec(&items).unwrap();
        let by_value = messages_from_dict(items.into_iter().map(Value::from));
        match (messages_from_json(&text), by_value) {
            (Ok(messages), Ok(by_value)) => prop_assert_eq!(messages, by_value),
            (Err(error), Err(by_value)) => {
                // For an item that is not an object, the reader of the text names the line.
                let told = error.to_string() == by_value.to_string() || error.to_string().contains("at line");
                prop_assert!(told, "{error} is not {by_value}");
            }
            (by_text, by_value) => prop_assert!(false, "{by_text:?} is not {by_value:?}"),
        }
    }

    #[test]
    fn no_utility_panics_on_what_was_loaded(items in prop::collection::vec(item(), 1..4), max in -5..60_i64) {
        let messages: Vec<Message> = items.iter().flat_map(loaded).collect();
        for format in [BufferFormat::Prefix, BufferFormat::Xml] {
            let mut options = BufferOptions::default();
            options.format = format;
            let _ = buffer_string(&messages, &options);
        }
        let mut options = CountOptions::default();
        options.use_usage_metadata_scaling = true;
        let _ = count_tokens_approximately(&messages, &options);
        let _ = convert_to_openai_messages(&messages, &OpenAiOptions::default());
        let _ = merge_message_runs(&messages, "\n");
        let _ = filter_messages(&messages, &FilterOptions::new().exclude_tool_call_ids(["1"]));
        for strategy in [TrimStrategy::First, TrimStrategy::Last] {
            let chars = TokenCounter::each(|message| message.text().chars().count() as i64 + 1);
            let options = TrimOptions::new(max).counter(chars).strategy(strategy).allow_partial(true);
            prop_assert!(trim_messages(&messages, &options).unwrap().len() <= messages.len());
        }
        for message in &messages {
            let _ = (message.pretty_repr(true), message.content_blocks());
        }
        let mut ids = IdSource::from_seed(1);
        let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
        for format in FORMATS {
            let mut writer = format.writer();
            let mut refused = 0;
            for message in &messages {
                refused += writer.push(message.clone(), &mut defaults).refused.len();
            }
            refused += writer.finish(&mut defaults).refused.len();
            prop_assert!(refused <= messages.len());
        }
    }

    #[test]
    fn whatever_is_imported_is_exported_as_it_was(items in prop::collection::vec(value(), 0..6), lines in any::<bool>()) {
        let items: Vec<serde_json::Value> = items.iter().map(Value::to_json).collect();
        // Lines are values too, but a first line that is a list would be the list.
        let lines = lines && !items.first().is_some_and(serde_json::Value::is_array);
        let text = match lines {
            true => items.iter().map(|item| format!("{item}\n")).collect(),
            false => serde_json::to_string(&items).unwrap(),
        };
        let thread = Store::memory().thread("hostile").unwrap();
        let report = thread.import_messages(&ImportOptions::new(), text.as_bytes()).unwrap();
        prop_assert_eq!(report.items, items.len() as u64);
        let mut exported = Vec::new();
        let options = ExportOptions::new().framing(Framing::Lines);
        thread.head().unwrap().unwrap().export_messages("messages", &options, &mut exported).unwrap();
        let kept = String::from_utf8(exported).unwrap();
        prop_assert_eq!(kept.lines().count() as u64, report.messages);
        let not_understood = report.not_understood.first.iter().map(|problem| &items[problem.position as usize]);
        for item in not_understood.filter(|item| item.get("type").is_none_or(|kind| !kind.is_string())) {
            prop_assert!(kept.lines().any(|line| serde_json::from_str::<serde_json::Value>(line).unwrap() == *item));
        }
    }

    #[test]
    fn no_bytes_and_no_text_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), json in ".{0,40}", value in value()) {
        for kind in ["msgpack", "bytes", "null", "json", "ext"] {
            let _ = checkpoint_loads(kind, &bytes);
        }
        let _ = (parse_partial_json(&json, false), parse_partial_json(&json, true));
        let _ = (default_tool_parser(&value), default_tool_chunk_parser(&value));
    }
}
