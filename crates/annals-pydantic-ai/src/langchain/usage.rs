//! Usage on both sides.
//!
//! *Absent:* sums.

use crate::usage::RequestUsage;
use annals_base::{Map, Value};
use annals_messages::Usage;

/// Counts of PydanticAI, and the detail of LangChain that is the same.
const DETAILS: [(&str, &str, &str); 5] = [
    ("input_audio_tokens", "input_token_details", "audio"),
    ("cache_write_tokens", "input_token_details", "cache_creation"),
    ("cache_read_tokens", "input_token_details", "cache_read"),
    ("output_audio_tokens", "output_token_details", "audio"),
    ("output_reasoning_tokens", "output_token_details", "reasoning"),
];

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Int(n) => *n == 0,
        Value::Float(x) => *x == 0.0,
        Value::Map(map) => map.is_empty(),
        _ => false,
    }
}

/// Returns the `usage_metadata`, if it counts anything, and the remaining fields of the usage.
pub(super) fn usage_out(usage: &RequestUsage) -> (Option<Usage>, Map) {
    let mut rest = usage.counts.non_zero();
    if rest.is_empty() {
        return (None, rest);
    }
    let mut details: Map = Map::new();
    for (name, group, detail) in DETAILS {
        if let Some(count) = rest.shift_remove(name) {
            let group = details.or_insert_with(group.to_owned(), || Value::Map(Map::new()));
            if let Value::Map(group) = group {
                group.insert(detail.to_owned(), count);
            }
        }
    }
    let [input, output] = ["input_tokens", "output_tokens"].map(|name| rest.shift_remove(name));
    if input.is_none() && output.is_none() && details.is_empty() {
        return (None, rest);
    }
    let count = |count: Option<Value>| count.as_ref().and_then(Value::as_int).unwrap_or(0);
    let mut metadata = Usage::new(count(input), count(output));
    metadata.total_tokens = usage.counts.total_tokens();
    let mut group = |name| match details.shift_remove(name) {
        Some(Value::Map(group)) => Some(group),
        _ => None,
    };
    metadata.input_token_details = group("input_token_details");
    metadata.output_token_details = group("output_token_details");
    (Some(metadata), rest)
}

/// Returns the JSON of usage from `usage_metadata` and the remaining fields.
pub(super) fn usage_in(metadata: &Value, rest: &Value) -> Value {
    let mut map = Map::new();
    let mut put = |name: &str, value: Option<&Value>| {
        if let Some(value) = value.filter(|value| !is_zero(value)) {
            map.insert(name.to_owned(), value.clone());
        }
    };
    put("input_tokens", metadata.get("input_tokens"));
    put("output_tokens", metadata.get("output_tokens"));
    for (name, group, detail) in DETAILS {
        put(name, metadata.get(group).and_then(|group| group.get(detail)));
    }
    map.extend(rest.as_map().cloned().unwrap_or_default());
    map.into()
}
