//! Random messages and values, for the laws of this floor.

use proptest::prelude::*;

use super::{Ai, Chunk, Content, InvalidToolCall, Message, Role, Tool, ToolCall, ToolCallChunk, ToolStatus, Usage};
use annals_base::{Map, Value};

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,5}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::Bytes),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Ext(5, bytes)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::vec(("[a-z]{0,3}", inner), 0..4)
                .prop_map(|entries| Value::Map(entries.into_iter().collect())),
        ]
    })
}

pub(super) fn map() -> impl Strategy<Value = Map> {
    let entries = prop::collection::vec(("[a-z_]{0,4}", value()), 1..4);
    prop_oneof![2 => Just(Map::new()), 1 => entries.prop_map(|entries| entries.into_iter().collect())]
}

pub(super) fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(".{0,6}")
}

pub(super) fn usage() -> impl Strategy<Value = Usage> {
    let count = prop_oneof![4 => 0..1_000i64, 1 => any::<i64>()];
    let details = || prop::option::of(prop::collection::vec(("[x-z]", value()), 0..3));
    (count.clone(), count, prop::option::of(any::<i64>()), details(), details(), map()).prop_map(
        |(input, output, total, input_details, output_details, extra)| {
            let mut usage = Usage::new(input, output);
            usage.total_tokens = total.unwrap_or(usage.total_tokens);
            usage.input_token_details = input_details.map(|d| d.into_iter().collect());
            usage.output_token_details = output_details.map(|d| d.into_iter().collect());
            usage.extra = extra;
            usage
        },
    )
}

pub(super) fn role() -> impl Strategy<Value = Role> {
    let call = ("[a-z]{0,3}", map(), text()).prop_map(|(name, args, id)| ToolCall { name, args, id });
    let invalid =
        (text(), text(), text(), text()).prop_map(|(name, args, id, error)| InvalidToolCall { name, args, id, error });
    let calls = (prop::collection::vec(call, 0..4), prop::collection::vec(invalid, 0..3));
    let ai = (calls, prop::option::of(usage())).prop_map(|((tool_calls, invalid_tool_calls), usage)| {
        Ai { tool_calls, invalid_tool_calls, usage: usage.map(Box::new) }.into()
    });
    let tool = (".{0,6}", value(), any::<bool>()).prop_map(|(tool_call_id, artifact, failed)| {
        let status = if failed { ToolStatus::Error } else { ToolStatus::Success };
        Tool { tool_call_id, artifact, status }.into()
    });
    let chat = ".{0,6}".prop_map(|role| Role::Chat { role });
    let other = "x[a-z]{0,6}".prop_map(|kind| Role::Other { kind });
    prop_oneof![Just(Role::Human), Just(Role::System), Just(Role::Function), Just(Role::Remove), ai, tool, chat, other]
}

pub(super) fn chunk() -> impl Strategy<Value = Option<Chunk>> {
    let call = (text(), text(), text(), prop::option::of(any::<i64>()));
    let call = call.prop_map(|(name, args, id, index)| ToolCallChunk { name, args, id, index });
    let chunk = (prop::collection::vec(call, 0..3), any::<bool>());
    prop::option::of(chunk.prop_map(|(tool_call_chunks, last)| Chunk { tool_call_chunks, last }))
}

pub(super) fn message() -> impl Strategy<Value = Message> {
    let block = prop_oneof![".{0,6}".prop_map(Value::from), map().prop_map(Value::Map)];
    let content =
        prop_oneof![".{0,20}".prop_map(Content::Text), prop::collection::vec(block, 0..3).prop_map(Content::Blocks)];
    (role(), content, text(), text(), map(), map(), map(), chunk()).prop_map(
        |(role, content, id, name, additional_kwargs, response_metadata, extra, chunk)| {
            // A removal has no content; a dictionary could not hold one.
            let content = if role == Role::Remove { Content::default() } else { content };
            let name = if role == Role::Function { name.or_else(|| Some("f".into())) } else { name };
            let mut message = Message::new(role, content);
            (message.id, message.name, message.extra) = (id, name, extra);
            (message.additional_kwargs, message.response_metadata) = (additional_kwargs, response_metadata);
            match chunk.filter(|_| message.role.class().is_some_and(|class| class.chunk().is_some())) {
                Some(chunk) if matches!(message.role, Role::Ai(_)) => message.chunk = Some(Box::new(chunk)),
                Some(_) => message.chunk = Some(Box::default()),
                None => {}
            }
            message
        },
    )
}
