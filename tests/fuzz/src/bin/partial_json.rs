//! JSON that ends anywhere, and the parsers of tool calls in it.

#![no_main]

use annals::message::internal::{json_dumps, json_loads};
use annals::message::{default_tool_chunk_parser, default_tool_parser, parse_partial_json};
use annals_fuzz::value;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for strict in [true, false] {
        let partial = parse_partial_json(&text, strict);
        if let Ok(whole) = json_loads(&text, strict) {
            assert_eq!(partial.as_ref(), Ok(&whole), "whole JSON is what it says");
        }
        if let Ok(value) = partial {
            assert_eq!(parse_partial_json(&json_dumps(&value, true), true), Ok(value));
        }
    }
    if let Some(value) = value(bytes) {
        let _ = (default_tool_parser(&value), default_tool_chunk_parser(&value));
    }
});
