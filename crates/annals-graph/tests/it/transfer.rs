//! Messages come into a thread and go out of it in the forms of other programs.

use std::io::{self, Read, Write};

use std::sync::Arc;

use annals::history::{ExportOptions, ExportReport, Framing, ImportOptions, ImportReport, TransferError};
use annals::message::{Content, LangChainFormat, MessageFormat, OpenAiFormat};
use annals::message::{ToolCall, Usage};
use annals::state::DynState;
use annals_graph::prelude::*;
use annals_pydantic_ai::PydanticAiFormat;
use macro_rules_attribute::apply;
use serde_json::{Value as Json, json};

use super::backends::place;

fn import(
    store: &Store,
    thread: &str,
    format: impl MessageFormat + 'static,
    text: &str,
) -> Result<ImportReport, TransferError> {
    store.thread(thread).unwrap().import_messages(&ImportOptions::new().format(format), text.as_bytes())
}

fn export(store: &Store, thread: &str, options: &ExportOptions) -> (Json, ExportReport) {
    let mut text = Vec::new();
    let head = store.thread(thread).unwrap().head().unwrap().unwrap();
    let report = head.export_messages("messages", options, &mut text).unwrap();
    (serde_json::from_slice(&text).unwrap(), report)
}

fn graph() -> annals_graph::graph::CompiledGraph<DynState> {
    let schema = DynSchema::new().messages("messages").build();
    let answer = |state: &DynState| {
        let count = state.messages("messages").map_or(0, |messages| messages.len());
        Ok(DynUpdate::new().messages("messages", [Message::ai(format!("after {count}"))]))
    };
    StateGraph::with_schema(schema).node("answer", answer).edge(START, "answer").edge("answer", END).compile().unwrap()
}

/// Dictionaries of every class, as LangChain gives them, and items that are not messages.
fn dictionaries() -> Json {
    let dict = |kind: &str, more: Json| {
        let mut data = json!({
            "content": "hi", "additional_kwargs": {"a": [1, {"b": null}]}, "response_metadata": {"model": "m"},
            "type": kind, "name": null, "id": format!("id of {kind}"),
        });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": kind, "data": data})
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"audio": 1}});
    let call = json!({"name": "f", "args": {"z": 1, "a": "é"}, "id": "c", "type": "tool_call"});
    let ai = json!({"tool_calls": [call], "invalid_tool_calls": [], "usage_metadata": usage, "mine": 1.0});
    json!([
        dict("human", json!({"content": [{"type": "text", "text": "x"}, "y"], "name": "ann"})),
        dict("system", json!({})),
        dict("ai", ai),
        dict("tool", json!({"tool_call_id": "c", "artifact": {"rows": [1, 2]}, "status": "error"})),
        dict("function", json!({"name": "f"})),
        dict("chat", json!({"role": "critic"})),
        dict("HumanMessageChunk", json!({})),
        dict("critic", json!({"score": 5})),
        5,
        {"type": "human"},
        {"neither": "this"},
        null,
        [1, [2]],
    ])
}

#[apply(each_backend)]
fn what_is_imported_is_exported_as_it_was() {
    let store = place();
    let report = import(&store, "chat", LangChainFormat, &dictionaries().to_string()).unwrap();
    assert_eq!((report.items, report.messages, report.ids_given), (13, 13, 5));
    let places: Vec<u64> = report.not_understood.first.iter().map(|problem| problem.position).collect();
    assert_eq!((report.not_understood.count, places), (6, (7..13).collect()));

    let (exported, report) = export(&store, "chat", &ExportOptions::new());
    let dicts = dictionaries();
    for (at, (exported, dict)) in exported.as_array().unwrap().iter().zip(dicts.as_array().unwrap()).enumerate() {
        assert_eq!(exported, dict, "{at}");
    }
    assert_eq!((report.messages, report.items, report.retained), (13, 13, 5));
    assert!(report.left_out.is_empty() && report.refused.count == 0);

    let mut lines = Vec::new();
    let options = ExportOptions::new().framing(Framing::Lines);
    let head = store.thread("chat").unwrap().head().unwrap().unwrap();
    head.export_messages("messages", &options, &mut lines).unwrap();
    let text = String::from_utf8(lines).unwrap();
    assert_eq!(text.lines().count(), 13);
    import(&store, "again", LangChainFormat, &text).unwrap();
    assert_eq!(export(&store, "again", &ExportOptions::new()).0, dictionaries());
}

#[apply(each_backend)]
fn envelopes_and_flat_dictionaries_are_read_too() {
    let store = place();
    let envelope = json!({
        "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
        "kwargs": {"content": "a", "type": "ai", "tool_calls": [], "invalid_tool_calls": []},
    });
    let text = json!([envelope, {"type": "human", "content": "b"}]).to_string();
    let report = import(&store, "chat", LangChainFormat, &text).unwrap();
    assert_eq!((report.messages, report.not_understood.count, report.ids_given), (2, 0, 2));
}

#[apply(each_backend)]
fn an_export_for_openai_says_what_it_leaves_out() {
    let store = place();
    import(&store, "chat", LangChainFormat, &dictionaries().to_string()).unwrap();
    let (exported, report) = export(&store, "chat", &ExportOptions::new().format(OpenAiFormat));
    assert_eq!(exported[2]["tool_calls"][0]["function"], json!({"name": "f", "arguments": "{\"z\": 1, \"a\": \"é\"}"}));
    assert_eq!(exported[3], json!({"role": "tool", "tool_call_id": "c", "content": "hi"}));
    for (field, count) in [("id", 7), ("usage_metadata", 1), ("artifact", 1), ("status", 1), ("additional_kwargs", 7)] {
        assert_eq!(report.left_out[field], count, "{field}");
    }
    // The critic has no role; retained items are exported as they were imported.
    assert_eq!((report.messages, report.items, report.refused.count, report.retained), (13, 12, 1, 5));
    assert_eq!(report.refused.first[0].position, 7);
}

#[apply(each_backend)]
fn a_chat_of_openai_comes_back_without_loss_but_for_what_it_never_had() {
    let store = place();
    let chat = json!([
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "tool_calls": [{"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}],
            "content": ""},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "refusal": "no", "content": ""},
        {"role": "oracle", "content": "?"},
    ]);
    let report = import(&store, "chat", OpenAiFormat, &chat.to_string()).unwrap();
    assert_eq!((report.messages, report.not_understood.count), (6, 1));
    let (exported, _) = export(&store, "chat", &ExportOptions::new().format(OpenAiFormat));
    assert_eq!(exported, chat);
}

#[apply(each_backend)]
fn a_run_goes_on_where_an_import_ended() {
    let store = place();
    let lines: String =
        (0..2_500).map(|n| format!("{{\"type\": \"human\", \"content\": \"{n}\", \"id\": \"{n}\"}}\n")).collect();
    let report = import(&store, "long", LangChainFormat, &lines).unwrap();
    assert_eq!((report.messages, report.checkpoints, report.ids_given), (2_500, 3, 0));
    let thread = store.thread("long").unwrap();
    let input = DynUpdate::new().messages("messages", [Message::human("changed").with_id("7"), Message::human("new")]);
    let done = graph().invoke(&thread, input).unwrap();
    let messages = done.state().messages("messages").unwrap();
    assert_eq!(
        (messages.len(), messages[7].text(), messages[2_501].text()),
        (2_502, "changed".into(), "after 2501".into())
    );
    assert_eq!(thread.history().unwrap().count(), 3 + 3);
    assert!(store.check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn what_ends_an_import_is_told_with_its_place_and_what_is_stored() {
    let store = place();
    let good = json!({"type": "human", "content": "a"});
    let deep = format!("[{good}, {}", "[".repeat(10_000));
    let surrogate = format!("[{good}, {{\"type\": \"human\", \"content\": \"\\ud800\"}}]");
    let huge = format!("[{good}, {{\"type\": \"human\", \"content\": {}}}]", "9".repeat(5_000));
    for (at, text) in [format!("[{good}, {{"), format!("{good}\n{{]"), deep, surrogate, huge, format!("[{good}] 5")]
        .into_iter()
        .enumerate()
    {
        let thread = format!("broken {at}");
        match import(&store, &thread, LangChainFormat, &text).unwrap_err() {
            TransferError::NotJson { line, messages, reason, .. } => {
                assert!((1..=2).contains(&line) && !reason.is_empty(), "{reason}");
                assert_eq!(messages, 1, "{text}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(store.thread(&thread).unwrap().head().unwrap().unwrap().tail("messages", 9).unwrap().len(), 1);
    }
    for text in ["[", "{", "nothing"] {
        assert!(matches!(import(&store, "none", LangChainFormat, text), Err(TransferError::NotJson { .. })));
        assert!(store.thread("none").unwrap().head().unwrap().is_none(), "{text}");
    }
    assert!(matches!(import(&store, "broken 0", LangChainFormat, "[]"), Err(TransferError::Exists { .. })));
    assert_eq!(import(&store, "empty", LangChainFormat, " ").unwrap().messages, 0);
    assert_eq!(export(&store, "empty", &ExportOptions::new()).0, json!([]));
}

#[apply(each_backend)]
fn a_lenient_import_leaves_out_what_it_cannot_read_and_says_which_lines() {
    let store = place();
    let good = |n: u64| json!({"type": "human", "content": "a", "id": n.to_string()}).to_string();
    let lines = [&good(1), "{\"type\": \"human", "", &good(2), "nothing", "5", &good(3)].join("\n");
    let options = ImportOptions::new().lenient();
    let report = store.thread("lines").unwrap().import_messages(&options, lines.as_bytes()).unwrap();
    assert_eq!((report.messages, report.not_understood.count, report.left_out.count), (4, 1, 2));
    let first: Vec<_> = report.left_out.first.iter().map(|line| (line.line, line.reason.as_str())).collect();
    assert_eq!(first, [(2, "column 16: expected no control character in a text"), (5, "column 1: expected a value")]);
    let (exported, _) = export(&store, "lines", &ExportOptions::new());
    let ids: Vec<_> = exported.as_array().unwrap().iter().map(|item| item["data"]["id"].as_str()).collect();
    assert_eq!(ids, [Some("1"), Some("2"), None, Some("3")]);

    // A list is not read by lines.
    let list = format!("[{},\n{{]", good(1));
    let error = store.thread("list").unwrap().import_messages(&options, list.as_bytes()).unwrap_err();
    assert!(matches!(error, TransferError::NotJson { line: 2, messages: 1, .. }), "{error}");
    let many = "x\n".repeat(1_000);
    let report = store.thread("none").unwrap().import_messages(&options, many.as_bytes()).unwrap();
    assert_eq!((report.messages, report.left_out.count, report.left_out.first.len()), (0, 1_000, 100));
}

#[apply(each_backend)]
fn an_object_with_messages_that_is_the_whole_text_is_their_list() {
    let store = place();
    let chat = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, 5],
        "tools": [],
    });
    let pretty = serde_json::to_string_pretty(&chat).unwrap();
    for (at, text) in [chat.to_string(), pretty].into_iter().enumerate() {
        let thread = format!("whole {at}");
        let report = import(&store, &thread, OpenAiFormat, &text).unwrap();
        assert_eq!((report.items, report.messages, report.not_understood.first[0].position), (3, 3, 2));
        assert_eq!(report.beside, ["model", "tools"]);
        let (exported, _) = export(&store, &thread, &ExportOptions::new().format(OpenAiFormat));
        assert_eq!(exported, chat["messages"]);
    }
    // The object is an item, not a list, if it is one of several, if it is in a list, or if the framing is given.
    let plain = ImportOptions::new();
    for (at, (options, text)) in [
        (plain.clone(), format!("{chat}\n{chat}\n")),
        (plain.clone(), format!("[{chat}]")),
        (plain.clone().framing(Framing::Lines), chat.to_string()),
        (plain.clone().lenient(), format!("{chat}\nx")),
        (plain.lenient(), format!("x\n{chat}")),
    ]
    .into_iter()
    .enumerate()
    {
        let thread = store.thread(format!("item {at}")).unwrap();
        let report = thread.import_messages(&options, text.as_bytes()).unwrap();
        let items = if at == 0 { 2 } else { 1 };
        assert_eq!((report.items, report.not_understood.count), (items, items), "{text}");
        assert!(report.beside.is_empty());
    }
    let cut = import(&store, "cut", OpenAiFormat, &format!("{chat} x")).unwrap_err();
    assert!(matches!(cut, TransferError::NotJson { messages: 1, .. }), "{cut}");
}

#[apply(each_backend)]
fn lines_of_which_the_first_is_a_list_are_imported_as_they_were_exported() {
    let store = place();
    let items = json!([[], {"type": "human", "content": "a"}, 5]);
    import(&store, "list", LangChainFormat, &items.to_string()).unwrap();
    let mut lines = Vec::new();
    let head = store.thread("list").unwrap().head().unwrap().unwrap();
    head.export_messages("messages", &ExportOptions::new().framing(Framing::Lines), &mut lines).unwrap();
    assert!(lines.starts_with(b"[]\n"));
    let options = ImportOptions::new().framing(Framing::Lines);
    let report = store.thread("lines").unwrap().import_messages(&options, &*lines).unwrap();
    assert_eq!((report.messages, report.not_understood.count), (3, 2));
    let error =
        store.thread("no list").unwrap().import_messages(&ImportOptions::new().framing(Framing::List), &b"5"[..]);
    assert_eq!(error.unwrap_err().to_string(), "line 1, column 1: expected a list; nothing was stored");
}

/// A reader, or a writer, that fails after so many bytes and hands over a few at a time.
struct Broken<'a>(&'a [u8], usize);

impl Read for Broken<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::other("the line is dead"));
        }
        let take = into.len().min(7).min(self.0.len());
        into[..take].copy_from_slice(&self.0[..take]);
        self.0 = &self.0[take..];
        Ok(take)
    }
}

impl Write for Broken<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 = self.1.checked_sub(1).ok_or_else(|| io::Error::other("the disk is full"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[apply(each_backend)]
fn a_dead_line_and_a_full_disk_are_told() {
    let store = place();
    let text = "{\"type\":\"human\",\"content\":\"a\"}\n".repeat(3);
    let thread = store.thread("half").unwrap();
    match thread.import_messages(&ImportOptions::new(), Broken(text.as_bytes(), 0)).unwrap_err() {
        TransferError::Io { what: "import", messages: 3, source } => assert_eq!(source.to_string(), "the line is dead"),
        other => panic!("{other}"),
    }
    let head = thread.head().unwrap().unwrap();
    match head.export_messages("messages", &ExportOptions::new(), &mut Broken(b"", 0)).unwrap_err() {
        TransferError::Io { what: "export", messages: 3, .. } => {}
        other => panic!("{other}"),
    }
    let none = head.export_messages("nothing", &ExportOptions::new(), &mut Vec::new());
    assert!(matches!(none, Err(TransferError::NoList { .. })));
}

#[apply(each_backend)]
fn an_export_shows_the_list_as_it_was_at_its_point() {
    let store = place();
    let thread = store.thread("chat").unwrap();
    let say = |message| graph().invoke(&thread, DynUpdate::new().messages("messages", [message])).unwrap();
    say(Message::human(Content::Text("first".into())).with_id("1"));
    say(Message::remove("1"));
    let texts = |point: &str| {
        let mut text = Vec::new();
        thread.at(point).unwrap().export_messages("messages", &ExportOptions::new(), &mut text).unwrap();
        let items: Vec<Json> = serde_json::from_slice(&text).unwrap();
        items.iter().map(|item| item["data"]["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts("@"), ["after 1", "after 1"]);
    assert_eq!(texts("~2"), ["first", "after 1"]);
}

#[apply(each_backend)]
fn a_history_of_pydantic_ai_goes_in_and_out() {
    let store = place();
    let history = json!([
        {"parts": [
            {"content": "be brief", "timestamp": "2026-01-01T00:00:00Z", "part_kind": "system-prompt"},
            {"content": "weather in Bern?", "timestamp": "2026-01-01T00:00:00Z", "part_kind": "user-prompt"},
        ], "kind": "request"},
        {"parts": [{"tool_name": "weather", "args": {"city": "Bern"}, "tool_call_id": "c", "part_kind": "tool-call"}],
            "model_name": "m", "timestamp": "2026-01-01T00:00:01Z", "kind": "response"},
        {"parts": [{"tool_name": "weather", "content": "rain", "tool_call_id": "c",
            "timestamp": "2026-01-01T00:00:02Z", "part_kind": "tool-return"}], "kind": "request"},
        {"parts": [{"content": "It rains.", "part_kind": "text"}], "timestamp": "2026-01-01T00:00:03Z", "kind": "response"},
        {"kind": "neither"},
    ]);
    let report = import(&store, "chat", PydanticAiFormat, &history.to_string()).unwrap();
    assert_eq!((report.items, report.messages, report.not_understood.count), (5, 6, 1));
    let (as_openai, _) = export(&store, "chat", &ExportOptions::new().format(OpenAiFormat));
    let roles: Vec<_> = as_openai.as_array().unwrap().iter().filter_map(|item| item["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);

    let options = ExportOptions::new().format(PydanticAiFormat);
    let (exported, report) = export(&store, "chat", &options);
    assert_eq!((report.items, report.refused.count, report.retained), (5, 0, 1));
    for (at, item) in history.as_array().unwrap().iter().enumerate() {
        assert_eq!(exported[at]["kind"], item["kind"]);
        let parts = item["parts"].as_array().into_iter().flatten().enumerate();
        for (part, name, value) in
            parts.flat_map(|(n, part)| part.as_object().unwrap().iter().map(move |(k, v)| (n, k, v)))
        {
            assert_eq!(exported[at]["parts"][part][name], *value, "{at} {part} {name}");
        }
    }
    // The exported text is imported and exported again unchanged.
    import(&store, "again", PydanticAiFormat, &exported.to_string()).unwrap();
    assert_eq!(export(&store, "again", &options).0, exported);
}

#[apply(each_backend)]
fn numbers_of_python_go_in_and_out_as_they_were() {
    let store = place();
    let numbers =
        "[36893488147419103232,-9223372036854775809,18446744073709551615,NaN,-Infinity,Infinity,-0.0,1.5,1e+22]";
    let text =
        format!("[{{\"type\":\"human\",\"content\":\"a\",\"id\":\"1\",\"additional_kwargs\":{{\"n\":{numbers}}}}}]");
    let report = import(&store, "chat", LangChainFormat, &text).unwrap();
    assert_eq!((report.messages, report.not_understood.count), (1, 0));
    let head = store.thread("chat").unwrap().head().unwrap().unwrap();
    let mut out = Vec::new();
    head.export_messages("messages", &ExportOptions::new(), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(numbers), "{out}");
    import(&store, "again", LangChainFormat, &out).unwrap();
    let again = store.thread("again").unwrap().head().unwrap().unwrap();
    assert_eq!(again.get("messages").unwrap(), head.get("messages").unwrap());
}

#[apply(each_backend)]
fn a_mark_at_the_beginning_is_passed_over_and_a_wrong_kind_of_file_is_named() {
    let store = place();
    let marked = "\u{feff}{\"role\": \"user\", \"content\": \"a\"}\r\n{\"role\": \"user\", \"content\": \"b\"}\r\n";
    assert_eq!(import(&store, "marked", OpenAiFormat, marked).unwrap().messages, 2);
    let thread = store.thread("packed").unwrap();
    let error = thread.import_messages(&ImportOptions::new(), &b"\x1f\x8b\x08\0"[..]).unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 1: the text is compressed (gzip); nothing was stored");
    assert!(thread.head().unwrap().is_none(), "the name is free");
}

#[apply(each_backend)]
fn what_is_not_understood_is_named_by_its_own_path() {
    let store = place();
    let text = r#"[{"role": "user", "content": [5]}, 7]"#;
    let reasons = |thread: &str, format: Arc<dyn MessageFormat>, text: &str| -> Vec<String> {
        let options = ImportOptions::new().shared_format(format);
        let report = store.thread(thread).unwrap().import_messages(&options, text.as_bytes()).unwrap();
        report.not_understood.first.into_iter().map(|problem| problem.reason).collect()
    };
    assert_eq!(
        reasons("chat", Arc::new(OpenAiFormat), text),
        ["content[0]: expected a text or an object, found 5", "Unsupported message type: <class 'int'>"]
    );
    // Counts of tokens have 64 bits, here and in the store.
    let large = "36893488147419103232";
    let ai = |usage: &str| format!(r#"{{"type": "ai", "content": "", "usage_metadata": {{{usage}}}}}"#);
    let counts = |n: &str| format!(r#""input_tokens": {n}, "output_tokens": 1, "total_tokens": 2"#);
    let details = format!(r#"{}, "input_token_details": {{"audio": 9223372036854775808}}"#, counts("1"));
    assert_eq!(
        reasons("langchain", Arc::new(LangChainFormat), &format!("[{}, {}]", ai(&counts(large)), ai(&details))),
        [
            format!("usage_metadata.input_tokens: expected an integer of 64 bits, found {large}"),
            "usage_metadata.input_token_details.audio: expected an integer of 64 bits, found 9223372036854775808"
                .into(),
        ]
    );
    let response = format!(r#"[{{"kind": "response", "parts": [], "usage": {{"output_tokens": {large}}}}}]"#);
    assert_eq!(
        reasons("pydantic", Arc::new(PydanticAiFormat), &response),
        [format!("messages[0].usage.output_tokens: expected an integer of 64 bits, found {large}")]
    );
}

/// A message that LangChain's `convert_to_messages` refuses is retained as it is; one that it accepts is accepted.
#[apply(each_backend)]
fn arguments_of_calls_that_are_no_json_are_kept_with_their_message() {
    let store = place();
    let call = |arguments: Json| {
        let call = json!({"type": "function", "id": "c", "function": {"name": "f", "arguments": arguments}});
        json!({"role": "assistant", "content": "", "tool_calls": [call]})
    };
    let taken = [json!("{\"a\": 1}"), json!("{\"a\": NaN}"), json!("{\"a\": \"x\ny\"}"), json!({"a": 1})];
    let refused = ["{bad", "", "[]", "5", "null", "\"x\"", "{\"a\": 1} x", "{\"a\": 1,}", "{\"a\": 1"].map(Json::from);
    let refused = refused.into_iter().chain([json!(null), json!(5)]);
    let items: Json = taken.into_iter().chain(refused).map(call).collect();
    let report = import(&store, "chat", OpenAiFormat, &items.to_string()).unwrap();
    assert_eq!((report.messages, report.not_understood.count), (15, 11), "{:?}", report.not_understood);
    let (exported, _) = export(&store, "chat", &ExportOptions::new().format(OpenAiFormat));
    assert_eq!(exported.as_array().unwrap()[4..], items.as_array().unwrap()[4..]);
}

#[apply(each_backend)]
fn a_message_that_is_past_a_limit_is_kept_and_one_that_cannot_be_kept_is_named() {
    let store = place();
    let item = |id: &str, content: &str| json!({"type": "human", "id": id, "content": content});
    let list = json!([item("1", "a"), item(&"i".repeat(2_000), "b"), item("3", "c")]);
    let report = import(&store, "long id", LangChainFormat, &list.to_string()).unwrap();
    assert_eq!((report.messages, report.not_understood.count), (3, 1));
    assert!(report.not_understood.first[0].reason.contains("2000 is above the limit of 1024"));
    let (exported, _) = export(&store, "long id", &ExportOptions::new());
    assert_eq!(exported[1], list[1]);
}

#[test]
fn a_text_past_the_limit_is_named_and_left_out_of_a_lenient_import() {
    let store = Store::memory();
    let item = |id: &str, content: &str| json!({"type": "human", "id": id, "content": content}).to_string();
    let items = [item("1", "a"), item("2", &"x".repeat(65 << 20)), item("3", "c")];
    let list = format!("[{}]", items.join(","));
    let error = import(&store, "list", LangChainFormat, &list).unwrap_err();
    assert!(matches!(error, TransferError::Message { position: 1, messages: 1, .. }), "{error}");
    assert_eq!(store.thread("list").unwrap().head().unwrap().unwrap().tail("messages", 9).unwrap().len(), 1);

    let lines = items.join("\n");
    let lenient = ImportOptions::new().lenient();
    let report = store.thread("lines").unwrap().import_messages(&lenient, lines.as_bytes()).unwrap();
    assert_eq!((report.messages, report.left_out.count), (2, 1));
    let left_out = &report.left_out.first[0];
    assert!(left_out.line == 2 && left_out.reason.contains("limit"), "{left_out:?}");
}

#[apply(each_backend)]
fn messages_are_found_by_what_the_index_knows() {
    use annals::history::MessageQuery;
    use annals::store::ItemRange;

    let store = place();
    let call = |id: &str| ToolCall::new("f", [("a", 1)]).with_id(id);
    let blocks = Content::from(vec![json!({"type": "text", "text": "in blocks"})]);
    let messages = [
        Message::human("first").with_id("1").with_name("ann"),
        Message::ai("")
            .with_id("2")
            .with_tool_call(call("c1"))
            .with_tool_call(call("c\"2"))
            .with_usage(Usage::new(5, 7)),
        Message::tool("r", "c1").with_id("3"),
        Message::ai(blocks).with_id("4").with_usage(Usage::new(1, 1)),
    ];
    let thread = store.thread("chat").unwrap();
    graph().invoke(&thread, DynUpdate::new().messages("messages", messages)).unwrap();
    let head = thread.head().unwrap().unwrap();
    let found = |query: MessageQuery| -> Vec<String> {
        let found = head.find_messages("messages", &query).unwrap();
        found.into_iter().filter_map(|message| message.id).filter(|id| id.len() == 1).collect()
    };
    let all = MessageQuery::new;
    assert_eq!(found(all()), ["1", "2", "3", "4"]);
    assert_eq!((found(all().id("3")), found(all().kind("ai"))), (vec!["3".into()], vec!["2".into(), "4".into()]));
    assert_eq!((found(all().name("ann")), found(all().name("bob"))), (vec!["1".into()], vec![]));
    assert_eq!(
        (found(all().tool_call("c1")), found(all().tool_call("c\"2"))),
        (vec!["2".into(), "3".into()], vec!["2".into()])
    );
    assert_eq!((found(all().text("irs")), found(all().text("blocks"))), (vec!["1".into()], vec!["4".into()]));
    assert_eq!(found(all().kind("tool").text("first")), Vec::<String>::new());
    assert_eq!(head.messages("messages", ItemRange::Positions(1, 3)).unwrap().len(), 2);
    assert_eq!(head.token_usage("messages").unwrap(), Usage::new(6, 8));
    assert!(head.messages("nothing", ItemRange::All).unwrap().is_empty());
}
