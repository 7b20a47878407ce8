//! Every public type of messages implements serde, with the JSON that it has inside a message.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt::Debug;

use annals_base::{Timestamp, Value};
use annals_messages::blocks::{self, ContentBlock, MediaBlock, TextBlock};
use annals_messages::{Chunk, Message, MessageClass, Role, ToolCall, ToolCallChunk, ToolStatus};
use annals_pydantic_ai as pai;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn is_serde<T: Serialize + DeserializeOwned + Clone + Debug + PartialEq>() {}

/// Exceptions: errors, arguments of functions, `StreamedParts` and its chunks.
#[test]
fn every_type_of_a_message_is_a_serde_value() {
    macro_rules! all {
        ($($in:ident: $($name:ident)*;)*) => { $($(is_serde::<$in::$name>();)*)* };
    }
    use annals_messages as lc;
    all! {
        lc: Message Content Role Ai Tool ToolStatus ToolCall InvalidToolCall ToolCallChunk Usage Chunk MessageClass;
        blocks: ContentBlock TextBlock ReasoningBlock MediaBlock PlainTextBlock ToolCallBlock ToolCallChunkBlock
            InvalidToolCallBlock ServerToolCallBlock ServerToolCallChunkBlock ServerToolResultBlock NonStandardBlock
            Annotation Citation NonStandardAnnotation Index;
        pai: ModelMessage ModelRequest ModelResponse RequestState ResponseState FinishReason WorkspaceRef FailedAttempt
            AttemptOutcome DateTime TimeDelta Decimal
            RequestPart ResponsePart SystemPromptPart PromptScope UserPromptPart ToolReturnPart RetryFeedbackPart
            ToolAvailabilityDeltaPart CapabilityLoadDeltaPart ModelSettingsDeltaPart InstructionDeltaPart
            InstructionBaselinePart CompactionPart SpeechPart TextPart ThinkingPart ToolCallPart NativeToolCallPart
            NativeToolReturnPart FilePart
            UserContent UserItem TextContent StructuredContent CachePoint CacheTtl File Binary BinaryData FileUrl UrlKind
            ForceDownload UploadedFile FileHost ToolContent ToolArgs ToolOutcome ToolRetry ToolRetryCause
            FeedbackContent FeedbackRetry FeedbackCause ErrorDetail Location Citation CitationSource WebSource
            DocumentSource CitedRange Speaker Granularity SpeechTimestamp InstructionPart InstructionDigest
            InstructionRecord InstructionId MaybeInstructionId OnChange SettingsChange Thinking
            PartDelta TextDelta ThinkingDelta ToolCallDelta SpeechDelta PartOrDelta
            StreamEvent PartStartEvent PartDeltaEvent PartEndEvent FinalResultEvent
            RequestUsage RunUsage UsageCounts UsageLimits SanitizeOptions;
    }
}

/// The JSON text of a value, which reads as the value.
fn text<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: &T) -> String {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value);
    assert_eq!(&Value::from_serialize(value).unwrap().to::<T>().unwrap(), value);
    text
}

#[test]
fn parts_of_langchains_messages_have_their_json_inside_a_message() {
    let role = |kind: &str| serde_json::from_str::<Role>(kind).unwrap();
    assert_eq!(text(&Role::Human), r#"{"type":"human"}"#);
    assert_eq!(
        text(&Message::ai("").with_tool_call(ToolCall::new("f", [("x", 1)])).role),
        r#"{"type":"ai","tool_calls":[{"name":"f","args":{"x":1},"id":null,"type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null}"#
    );
    assert_eq!(role(r#"{"type":"tool","tool_call_id":"c"}"#), Message::tool("", "c").role);
    assert_eq!(text(&Message::chat("", "critic").role), r#"{"type":"chat","role":"critic"}"#);
    assert_eq!(role(r#"{"type":"oracle"}"#), Role::Other { kind: "oracle".into() });
    for (broken, word) in [
        (r#"{"type":"ai","usage_metadata":{"input_tokens":5}}"#, "output_tokens"),
        (r#"{"type":"chat"}"#, "role"),
        (r#"{"type":5}"#, "type"),
    ] {
        let error = serde_json::from_str::<Role>(broken).unwrap_err().to_string();
        assert!(error.contains(word), "a known type is never an unknown one: {error}");
    }
    assert_eq!(text(&Role::Other { kind: "oracle".into() }), r#"{"type":"oracle"}"#);
    assert_eq!(text(&MessageClass::AiChunk), r#""AIMessageChunk""#);
    assert!(serde_json::from_str::<MessageClass>(r#""Nobody""#).unwrap_err().to_string().contains("Nobody"));
    let mut call = ToolCallChunk::default();
    call.index = Some(1);
    let mut chunk = Chunk::new([call]);
    chunk.last = true;
    assert!(text(&chunk).ends_with(r#""chunk_position":"last"}"#));
    assert_eq!(serde_json::from_str::<Chunk>("{}").unwrap(), Chunk::default());
    let block = MediaBlock::from_url("https://example.com/a.png");
    assert_eq!(text(&block), r#"{"url":"https://example.com/a.png"}"#);
    assert_eq!(text(&ContentBlock::Image(block)), r#"{"type":"image","url":"https://example.com/a.png"}"#);
    assert!(serde_json::from_str::<TextBlock>("{}").unwrap_err().to_string().contains("TextBlock"));
    assert_eq!(text(&blocks::Index::Name("lc_1".into())), r#""lc_1""#);
    assert_eq!(text(&ToolStatus::Error), r#""error""#);
}

#[test]
fn parts_of_pydantic_ais_messages_have_their_json_inside_a_message() {
    let at = pai::DateTime::from(Timestamp::default());
    let prompt = pai::UserPromptPart::new("hi", at);
    assert_eq!(text(&prompt), r#"{"content":"hi","timestamp":"1970-01-01T00:00:00Z","part_kind":"user-prompt"}"#);
    assert_eq!(text(&pai::RequestPart::from(prompt.clone())), text(&prompt));
    let request = pai::ModelRequest::new(vec![prompt.into()]);
    assert_eq!(format!("[{}]", text(&request)), pai::dump(&[request.into()]));
    assert_eq!(text(&pai::UserItem::from("a")), r#""a""#);
    assert_eq!(text(&pai::BinaryData(vec![0xfb, 0xff])), r#""-_8=""#);
    assert_eq!(text(&pai::InstructionId::Run("x".into())), r#""run:x""#);
    let delta: pai::PartDelta = serde_json::from_str(r#"{"part_delta_kind":"text","content_delta":"x"}"#).unwrap();
    assert_eq!(text(&pai::PartOrDelta::Delta(delta.clone())), text(&delta));
    let event = pai::StreamEvent::from(pai::PartDeltaEvent::new(0, delta));
    assert!(text(&event).contains(r#""event_kind":"part_delta""#));
    let usage: pai::RunUsage = serde_json::from_str(r#"{"requests":2,"input_tokens":"5","new_count":1}"#).unwrap();
    assert_eq!((usage.requests, usage.counts.input_tokens), (2, 5));
    assert!(text(&usage).ends_with(r#""requests":2,"tool_calls":0,"new_count":1}"#));
    text(&usage.counts);
    let limits: pai::UsageLimits = serde_json::from_str(r#"{"cost_limit":"1.50"}"#).unwrap();
    assert_eq!((limits.request_limit, limits.cost_limit.unwrap().to_string()), (Some(50), "1.50".to_owned()));
    let url = pai::FileUrl::new(pai::UrlKind::Image, "https://example.com/a.png");
    let content =
        pai::ToolContent::List(vec![pai::ToolContent::text("a"), pai::ToolContent::File(pai::File::Url(url))]);
    assert!(text(&content).starts_with(r#"["a",{"url":"#));
    let error = serde_json::from_str::<pai::ToolCallPart>(r#"{"tool_name":5}"#).unwrap_err();
    assert!(error.to_string().starts_with("ToolCallPart.tool_name: expected a text, found 5"), "{error}");
}
