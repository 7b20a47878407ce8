//! Properties of random histories: `load` inverts `dump`, the conversion to LangChain is lossless, and hostile
//! documents do not panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use annals_base::{IdSource, Map, Timestamp, Value};
use annals_messages::Message;

fn with_defaults<T>(f: impl FnOnce(&mut DefaultSource<'_>) -> T) -> T {
    f(&mut DefaultSource::new(&Timestamp::from_micros(1_735_787_045_678_901), &mut IdSource::from_seed(7)))
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z_<>&\"é漢😀 \\n\u{2028}\u{7f}]{1,8}".prop_map(|text| text)]
}

fn data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::Float),
        "-?[1-9][0-9]{20,40}".prop_map(|digits| Value::from_digits(&digits).unwrap()),
        word().prop_map(Value::Str),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::List), map(inner).prop_map(Value::Map)]
    })
}

fn map(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Map> {
    vec(("[a-z]{1,4}", values), 0..4).prop_map(|members| members.into_iter().collect())
}

fn object() -> impl Strategy<Value = Map> {
    map(data())
}

fn datetime() -> impl Strategy<Value = DateTime> {
    let offsets = prop_oneof![Just(String::new()), Just("Z".into()), "[+-](0[0-9]|1[0-9]|2[0-3]):[0-5][0-9]"];
    (0i64..200_000_000_000_000_000, offsets).prop_map(|(micros, offset)| {
        let text = Timestamp::from_micros(micros).to_string();
        DateTime::parse(&text.replace('Z', &offset)).unwrap()
    })
}

type Provider = (Option<String>, Option<String>, Option<Map>);

fn provider() -> impl Strategy<Value = Provider> {
    (proptest::option::of(word()), proptest::option::of(word()), proptest::option::of(object()))
}

fn named() -> impl Strategy<Value = String> {
    "[a-z]{1,6}"
}

fn file() -> impl Strategy<Value = File> {
    let kinds = [UrlKind::Image, UrlKind::Audio, UrlKind::Video, UrlKind::Document];
    let url = (proptest::sample::select(kinds.to_vec()), "https://x/[a-z]{1,3}(\\.png|\\.mp3)?", any::<bool>());
    let url = url.prop_map(|(kind, url, force)| {
        let force_download = if force { ForceDownload::AllowLocal } else { ForceDownload::No };
        File::Url(FileUrl { force_download, ..FileUrl::new(kind, url) })
    });
    let uploaded =
        (named(), proptest::option::of(object()), named()).prop_map(|(file_id, vendor_metadata, identifier)| {
            let (provider_name, media_type) = (FileHost::OpenAi, "image/png".into());
            File::Uploaded(UploadedFile { file_id, provider_name, vendor_metadata, media_type, identifier })
        });
    prop_oneof![url, uploaded, binary().prop_map(File::Binary)]
}

fn binary() -> impl Strategy<Value = Binary> {
    (vec(any::<u8>(), 0..8), proptest::option::of(object()))
        .prop_map(|(data, vendor_metadata)| Binary { vendor_metadata, ..Binary::new(data, "audio/wav") })
}

fn item() -> impl Strategy<Value = UserItem> {
    let structured = (named(), data(), data(), proptest::option::of(word()), proptest::option::of(word()));
    let kept = object().prop_map(|kept| Value::Map(Map::from_iter([("langchain".to_owned(), kept.into())])));
    prop_oneof![
        word().prop_map(UserItem::Text),
        file().prop_map(UserItem::File),
        (word(), prop_oneof![data(), kept])
            .prop_map(|(content, metadata)| { UserItem::TextContent(TextContent { content, metadata }) }),
        structured.prop_map(|(content, metadata, value, tag, description)| {
            UserItem::Structured(StructuredContent { content, metadata, value, tag, description })
        }),
        any::<bool>().prop_map(|long| UserItem::CachePoint(CachePoint {
            ttl: if long { CacheTtl::OneHour } else { CacheTtl::FiveMinutes }
        })),
    ]
}

fn content() -> impl Strategy<Value = ToolContent> {
    let leaf = prop_oneof![3 => data().prop_map(ToolContent::data), 1 => file().prop_map(ToolContent::File)];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(ToolContent::List),
            vec(("[a-z]{1,4}", inner), 0..3).prop_map(|members| ToolContent::Map(members.into_iter().collect())),
        ]
    })
}

fn outcome() -> impl Strategy<Value = ToolOutcome> {
    let words = ["success", "failed", "denied", "interrupted", "retried"];
    proptest::sample::select(words.to_vec()).prop_map(|word| ToolOutcome::from_word(word).unwrap())
}

fn args() -> impl Strategy<Value = Option<ToolArgs>> {
    proptest::option::of(prop_oneof![
        prop_oneof![word(), Just("{\"a\": 1}".to_owned()), Just("[1]".to_owned())].prop_map(ToolArgs::Text),
        object().prop_map(ToolArgs::Object),
    ])
}

fn feedback() -> impl Strategy<Value = RequestPart> {
    let loc = prop_oneof![word().prop_map(Location::Name), any::<i64>().prop_map(Location::Index)];
    let detail = (word(), vec(loc, 0..3), word(), data(), proptest::option::of(object()))
        .prop_map(|(kind, loc, msg, input, ctx)| ErrorDetail { kind, loc, msg, input: Some(input), ctx, url: None });
    let content =
        prop_oneof![word().prop_map(FeedbackContent::Text), vec(detail, 0..3).prop_map(FeedbackContent::Errors),];
    (content, datetime()).prop_map(|(content, timestamp)| {
        let retry = FeedbackRetry { cause: FeedbackCause::NoOutput, attempt: Some(1), max_retries: None };
        RetryFeedbackPart { content, retry, timestamp }.into()
    })
}

fn speech(speaker: Speaker) -> impl Strategy<Value = SpeechPart> {
    (proptest::option::of(word()), proptest::option::of(binary()), provider()).prop_map(
        move |(transcript, audio, (id, provider_name, provider_details))| SpeechPart {
            speaker,
            transcript,
            audio,
            interrupted_at_ms: Some(3),
            timestamps: Some(Vec::new()),
            id,
            provider_name,
            provider_details,
        },
    )
}

fn request_part() -> impl Strategy<Value = RequestPart> {
    let returned = (named(), content(), word(), proptest::option::of(named()), data(), datetime(), outcome());
    prop_oneof![
        (word(), datetime(), proptest::option::of(object())).prop_map(|(content, timestamp, metadata)| {
            let (dynamic_ref, context_id, scope) = (None, Some("c".into()), PromptScope::Request);
            SystemPromptPart { content, timestamp, dynamic_ref, context_id, scope, metadata }.into()
        }),
        (word(), datetime()).prop_map(|(text, timestamp)| UserPromptPart::new(text.as_str(), timestamp).into()),
        (vec(item(), 0..3), datetime())
            .prop_map(|(items, timestamp)| { UserPromptPart { content: UserContent::Items(items), timestamp }.into() }),
        returned.prop_map(|(tool_name, content, tool_call_id, tool_kind, metadata, timestamp, outcome)| {
            let retry = None;
            let part =
                ToolReturnPart { tool_name, content, tool_call_id, tool_kind, metadata, timestamp, outcome, retry };
            part.into()
        }),
        feedback(),
        speech(Speaker::User).prop_map(RequestPart::Speech),
        vec(word(), 0..3)
            .prop_map(|tools_added| { ToolAvailabilityDeltaPart { tools_added, tool_call_id: None }.into() }),
        proptest::option::of(word()).prop_map(|content| {
            let id = MaybeInstructionId(InstructionId::parse("toolset:a:b"));
            InstructionDeltaPart { id, content, base_hash: None }.into()
        }),
        Just(ModelSettingsDeltaPart { settings: SettingsChange { thinking: Some(None) }, top_level: true }.into()),
    ]
}

fn response_part() -> impl Strategy<Value = ResponsePart> {
    let call = || (named(), args(), word(), proptest::option::of(named()), provider());
    let returned = (named(), content(), word(), data(), datetime(), outcome(), provider());
    let source = (word(), proptest::option::of(word()))
        .prop_map(|(url, title)| CitationSource::Web(WebSource { url, title, excerpts: vec!["e".into()] }));
    let citation = (vec(source, 1..3), 0i64..9).prop_map(|(sources, start)| Citation {
        sources,
        anchor: Some(CitedRange { start, end: start + 1, is_marker: true }),
    });
    let citations = proptest::option::of(vec(citation, 0..2));
    prop_oneof![
        (word(), provider(), citations).prop_map(|(content, (id, provider_name, provider_details), citations)| {
            TextPart { content, id, provider_name, provider_details, citations }.into()
        }),
        (word(), provider(), proptest::option::of(word())).prop_map(
            |(content, (id, provider_name, provider_details), signature)| {
                ThinkingPart { content, id, signature, provider_name, provider_details }.into()
            }
        ),
        call().prop_map(|(tool_name, args, tool_call_id, tool_kind, (id, provider_name, provider_details))| {
            ToolCallPart { tool_name, args, tool_call_id, tool_kind, id, provider_name, provider_details }.into()
        }),
        call().prop_map(|(tool_name, args, tool_call_id, tool_kind, (id, provider_name, provider_details))| {
            NativeToolCallPart { tool_name, args, tool_call_id, tool_kind, id, provider_name, provider_details }.into()
        }),
        returned.prop_map(|(tool_name, content, tool_call_id, metadata, timestamp, outcome, provider)| {
            let (tool_kind, (_, provider_name, provider_details)) = (None, provider);
            let part = NativeToolReturnPart {
                tool_name,
                content,
                tool_call_id,
                tool_kind,
                metadata,
                timestamp,
                outcome,
                provider_name,
                provider_details,
            };
            part.into()
        }),
        (binary(), provider()).prop_map(|(content, (id, provider_name, provider_details))| {
            FilePart { content, id, provider_name, provider_details }.into()
        }),
        speech(Speaker::Assistant).prop_map(ResponsePart::Speech),
        (proptest::option::of(word()), provider()).prop_map(|(content, (id, provider_name, provider_details))| {
            CompactionPart { content, id, provider_name, provider_details, metadata: None }.into()
        }),
    ]
}

fn message() -> impl Strategy<Value = ModelMessage> {
    let request = (vec(request_part(), 0..4), proptest::option::of(datetime()), proptest::option::of(word()), object());
    let counts = (vec(0i64..9, 10), any::<i16>(), object());
    let response = (vec(response_part(), 0..5), datetime(), counts, provider());
    prop_oneof![
        request.prop_map(|(parts, timestamp, instructions, metadata)| {
            let metadata = Some(metadata);
            ModelRequest { timestamp, instructions, metadata, ..ModelRequest::new(parts) }.into()
        }),
        response.prop_map(|(parts, timestamp, (counts, seconds, extra), (model_name, run_id, provider_details))| {
            let mut response = ModelResponse::new(parts, timestamp);
            let used = &mut response.usage.counts;
            used.input_tokens = counts[0];
            used.cache_write_1h_tokens = counts[1];
            used.unmeasured_requests = counts[2];
            used.output_audio_tokens = counts[3];
            used.output_reasoning_tokens = counts[4];
            used.audio_seconds = f64::from(seconds);
            used.cost = Decimal::parse("1.10");
            used.details.insert("d".into(), counts[5]);
            used.extra = extra.into_iter().map(|(name, value)| (format!("x_{name}"), value)).collect();
            response.finish_reason = Some(FinishReason::ToolCall);
            response.state = ResponseState::Suspended;
            (response.model_name, response.run_id) = (model_name, run_id);
            response.provider_details = provider_details;
            response.into()
        }),
    ]
}

/// A hostile document: meaningful names with arbitrary values.
fn hostile() -> impl Strategy<Value = Value> {
    let names = [
        "kind",
        "part_kind",
        "parts",
        "content",
        "timestamp",
        "args",
        "tool_name",
        "tool_call_id",
        "usage",
        "data",
        "url",
        "media_type",
        "value",
        "content_file_digests",
        "input_tokens",
        "cost",
        "details",
        "citations",
        "sources",
        "anchor",
        "start",
        "end",
        "duration",
        "failed_attempts",
        "loc",
        "retry",
        "cause",
        "id",
        "metadata",
        "settings",
    ];
    let words = [
        "request",
        "response",
        "user-prompt",
        "tool-return",
        "tool-call",
        "text",
        "binary",
        "image-url",
        "uploaded-file",
        "structured-content",
        "cache-point",
        "retry-prompt",
        "retry-feedback",
        "instruction-baseline",
        "tool-search",
        "capability-load",
        "speech",
        "assistant",
        "success",
        "2025-01-02T03:04:05Z",
        "1e999999",
        "PT1S",
        "aGk=",
    ];
    let leaf = prop_oneof![
        data(),
        proptest::sample::select(words.to_vec()).prop_map(Value::from),
        Just(Value::Float(f64::NAN)),
        Just(Value::Float(1e300)),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        let members = vec((proptest::sample::select(names.to_vec()), inner.clone()), 0..7);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::List),
            members.prop_map(|members| {
                Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_dumped_is_loaded_as_it_was(messages in vec(message(), 0..4)) {
        let text = dump(&messages);
        let again = with_defaults(|defaults| load(text.as_bytes(), defaults)).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(&again, &messages);
        prop_assert_eq!(dump(&again), text);
    }

    #[test]
    fn langchain_and_back_is_the_same_history(messages in vec(message(), 0..4)) {
        let there = to_langchain(&messages, true).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let again = with_defaults(|defaults| from_langchain(&there, defaults));
        let again = again.map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(dump(&again), dump(&messages));
        prop_assert_eq!(again, messages);
    }

    #[test]
    fn repairing_twice_is_repairing_once(messages in vec(message(), 0..6), last in any::<bool>()) {
        let once = repair_messages(messages, last);
        prop_assert_eq!(repair_messages(once.clone(), last), once);
    }

    #[test]
    fn a_history_that_needs_no_repair_stays_as_it_is(messages in vec(message(), 0..6), last in any::<bool>()) {
        let repaired = repair_messages(messages.clone(), true);
        for history in [messages, repaired] {
            for count in 0..=history.len() {
                let begin = &history[..count];
                if !needs_repair(begin, last) {
                    prop_assert_eq!(repair_messages(begin.to_vec(), last), begin);
                }
            }
        }
    }

    #[test]
    fn each_call_has_one_result_if_that_is_wanted(messages in vec(message(), 0..6)) {
        let options = RepairOptions { one_result: true, ..RepairOptions::default() };
        let once = repair_messages_with(messages, options);
        prop_assert_eq!(&repair_messages_with(once.clone(), options), &once);
        let mut open = Vec::new();
        for message in &once {
            match message {
                ModelMessage::Response(response) => {
                    open.extend(response.tool_calls().map(|call| call.tool_call_id.clone()));
                }
                ModelMessage::Request(request) => {
                    for part in &request.parts {
                        let RequestPart::ToolReturn(part) = part else { continue };
                        let call = open.iter().position(|id| *id == part.tool_call_id);
                        prop_assert!(call.is_some(), "a second result of {}", part.tool_call_id);
                        call.into_iter().for_each(|at| _ = open.remove(at));
                    }
                }
            }
        }
    }

    #[test]
    fn hostile_documents_do_not_panic(parts in vec(hostile(), 0..3), head in hostile(), kind in any::<bool>()) {
        let kind = if kind { "request" } else { "response" };
        let mut message = head.as_map().cloned().unwrap_or_default();
        message.insert("kind".into(), kind.into());
        message.insert("parts".into(), parts.into());
        let document = Value::List(vec![message.into(), head]);
        if let Ok(messages) = with_defaults(|defaults| from_value(document, defaults)) {
            let text = dump(&messages);
            prop_assert!(with_defaults(|defaults| load(text.as_bytes(), defaults)).is_ok(), "{}", text);
            prop_assert!(to_langchain(&messages, true).is_ok());
        }
    }

    #[test]
    fn random_texts_do_not_panic(text in "[\\[\\]{}\",:0-9eE.+\\-a-z\\\\u \u{e9}]{0,40}") {
        _ = with_defaults(|defaults| load(text.as_bytes(), defaults));
    }

    #[test]
    fn messages_of_langchain_survive_the_round_trip(
        blocks in vec(hostile(), 0..4),
        kind in proptest::sample::select(&["human", "ai", "system", "tool", "chat"][..]),
    ) {
        let content = blocks.into_iter().filter(|block| matches!(block, Value::Str(_) | Value::Map(_))).collect();
        let form = Map::from_iter([
            ("type".to_owned(), Value::from(kind)),
            ("role".to_owned(), "developer".into()),
            ("tool_call_id".to_owned(), "c".into()),
            ("content".to_owned(), Value::List(content)),
        ]);
        let Ok(message) = Message::try_from(Value::Map(form)) else { return Ok(()) };
        if let Ok(history) = with_defaults(|defaults| from_langchain(std::slice::from_ref(&message), defaults)) {
            let back = to_langchain(&history, false).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(back, vec![message]);
        }
    }
}

#[test]
fn an_error_names_the_smallest_place_that_holds_all_problems() {
    let error = |text: &str| with_defaults(|defaults| load(text.as_bytes(), defaults)).unwrap_err().to_string();
    assert_eq!(error("[1"), "messages: not JSON: expected a comma or what closes it at byte 2");
    assert_eq!(error(r#"[{"kind":"request"}]"#), "messages[0].parts: the field is missing");
    let two = error(r#"[{"kind":"response","parts":[],"usage":{"input_tokens":1.5,"cost":"x"},"model_name":3}]"#);
    assert!(two.ends_with("(the first of 3 problems in messages[0])"), "{two}");
    let union =
        r#"[{"kind":"request","parts":[{"part_kind":"user-prompt","content":["a",{"kind":"binary","data":"!"}]}]}]"#;
    let union = with_defaults(|defaults| load(union.as_bytes(), defaults)).unwrap_err();
    assert_eq!(union.path.last(), Some(&PathPart::Name("content".into())));
    assert_eq!(union.problems, 2);
    let deep = [b"[{\"kind\":\"request\",\"parts\":[],\"metadata\":".to_vec(), vec![b'['; 100_000]].concat();
    assert!(with_defaults(|defaults| load(&deep, defaults)).unwrap_err().to_string().contains("inside one another"));
}

#[test]
fn missing_timestamps_and_ids_come_from_the_clock_and_the_id_source() {
    let text = r#"[{"kind":"response","parts":[{"part_kind":"tool-call","tool_name":"f"}]}]"#;
    let load = || with_defaults(|defaults| load(text.as_bytes(), defaults)).unwrap();
    let dumped = dump(&load());
    assert!(dumped.contains(r#""timestamp":"2025-01-02T03:04:05.678901Z""#), "{dumped}");
    assert!(dumped.contains(r#""tool_call_id":"pyd_ai_"#), "{dumped}");
    assert_eq!(load(), load());
}

#[test]
fn an_edited_message_is_converted_afresh() {
    let question = Message::human("a").with_id("x");
    let mut history = with_defaults(|defaults| from_langchain(std::slice::from_ref(&question), defaults)).unwrap();
    assert_eq!(to_langchain(&history, false).unwrap(), [question]);
    if let ModelMessage::Request(request) = &mut history[0] {
        request.parts = vec![UserPromptPart::new("b", with_defaults(|defaults| defaults.now().into())).into()];
    }
    let made = to_langchain(&history, false).unwrap();
    assert_eq!((made[0].text().as_ref(), made[0].id.as_deref()), ("b", None));
}

#[test]
fn serde_uses_the_json_of_messages() {
    let text = r#"[{"kind":"request","parts":[{"part_kind":"user-prompt","content":["a",{"kind":"cache-point"}],"timestamp":"2025-01-02T03:04:05+01:00"}]}]"#;
    let messages: Vec<ModelMessage> = serde_json::from_str(text).unwrap();
    assert_eq!(messages, with_defaults(|defaults| load(text.as_bytes(), defaults)).unwrap());
    assert_eq!(serde_json::to_string(&messages).unwrap(), dump(&messages));
    let wrong = serde_json::from_str::<ModelMessage>(r#"{"kind":"request","parts":[3]}"#).unwrap_err();
    assert!(wrong.to_string().starts_with("ModelMessage.parts[0]: expected"), "{wrong}");
}

/// The results are those of pydantic-ai 2.68.
#[test]
fn older_and_rarer_shapes_are_read() {
    let content = |item: serde_json::Value| {
        let item = Value::from(item).to::<UserItem>().map_err(|error| error.to_string())?;
        Ok::<_, String>(serde_json::to_value(item).unwrap())
    };
    let rendered = |mut item: serde_json::Value| {
        item["kind"] = "structured-content".into();
        content(item).map(|item| item["content"].as_str().unwrap_or_default().to_owned())
    };
    use serde_json::json;
    assert_eq!(rendered(json!({"value": {"a": 1}, "format": "xml"})).unwrap(), "<a>1</a>");
    let described = json!({"value": [1], "format": "xml", "tag": "t", "description": "d"});
    assert_eq!(rendered(described).unwrap(), "d\n<t>\n  <item>1</item>\n</t>");
    assert_eq!(rendered(json!({"value": "<", "format": "json", "tag": "t"})).unwrap(), "<t>\"\\u003c\"</t>");
    assert_eq!(rendered(json!({"value": 1, "format": "xml", "content": "x"})).unwrap(), "x");
    for wrong in [
        json!({"value": [], "format": "xml"}),
        json!({"value": 1, "format": "yaml"}),
        json!({"value": 1, "format": 3, "content": "x"}),
        json!({"value": 1, "format": "xml", "tag": "system"}),
    ] {
        rendered(wrong).unwrap_err();
    }
    let id = |id: serde_json::Value| {
        let part = json!({"part_kind": "instruction-delta", "id": id, "content": "c"});
        let part = Value::from(part).to::<InstructionDeltaPart>().map_err(|error| error.to_string())?;
        Ok::<_, String>(part.id.0.map(|id| id.to_string()))
    };
    assert_eq!(id(json!({"source": {}})).unwrap().as_deref(), Some("agent"));
    assert_eq!(id(json!({"source": {"id": "a", "z": 1}, "name": "n"})).unwrap().as_deref(), Some("toolset:a:n"));
    assert_eq!(id(json!({"source": {"id": 5}, "name": null})).unwrap().as_deref(), Some("agent"));
    assert!(id(json!({})).unwrap_err().contains("id.source"));
    assert!(id(json!({"source": []})).unwrap_err().contains("id.source: expected an object"));
    assert!(id(json!({"source": {}, "name": 3})).unwrap_err().contains("id.name: expected a text"));
    assert!(id(json!(5)).unwrap_err().contains("id: expected a text or an object"));
}
