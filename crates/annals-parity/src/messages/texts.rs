//! The text helpers, and partial JSON.

use annals::message::internal::{json_dumps, py_repr, py_title, xml_escape, xml_quoteattr};
use annals::message::parse_partial_json;
use serde_json::json;

use super::Handler;

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("py_repr", |case| Ok(json!(py_repr(&case.input.value())))),
    ("json_dumps", |case| Ok(json!(json_dumps(&case.input.value(), case.flag("ensure_ascii").unwrap_or(true))))),
    ("py_title", |case| Ok(json!(py_title(&case.text()?)))),
    ("xml_escape", |case| Ok(json!(xml_escape(&case.text()?)))),
    ("xml_quoteattr", |case| Ok(json!(xml_quoteattr(&case.text()?)))),
    ("parse_partial_json", |case| {
        Ok(parse_partial_json(&case.text()?, case.flag("strict").unwrap_or_default())?.to_json())
    }),
];
