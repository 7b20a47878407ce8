//! One message as XML, for [`buffer_string`](super::buffer_string).
//!
//! *Absent:* data that is embedded in a message (base64, `data:` addresses); such blocks are left out.

use std::borrow::Cow;
use std::fmt::Write;

use super::text::{json_dumps, json_dumps_map, py_str, truthy, xml_escape, xml_quoteattr};
use super::{Content, Message, Role};
use crate::limits::{XML_ID_CHARS_MAX, XML_TEXT_CHARS_MAX};
use annals_base::{Map, Value};

/// Adds a message whose type is `role`.
pub(super) fn write_message(out: &mut String, role: &str, message: &Message) {
    let parts = parts(&message.content);
    let role = xml_quoteattr(role);
    let function_call = message.additional_kwargs.get("function_call");
    let is_call = matches!(message.role, Role::Ai(_)) && (!message.tool_calls().is_empty() || function_call.is_some());
    if !is_call {
        _ = write!(out, "<message type={role}>{parts}</message>");
        return;
    }
    _ = writeln!(out, "<message type={role}>");
    if let Some(parts) = &parts.0 {
        _ = writeln!(out, "  <content>{parts}</content>");
    }
    for call in message.tool_calls() {
        let id = xml_quoteattr(&cut(call.id.as_deref().unwrap_or_default(), XML_ID_CHARS_MAX));
        let args = json_dumps_map(&call.args, false);
        let (name, args) = (xml_quoteattr(&call.name), xml_escape(&args));
        _ = writeln!(out, "  <tool_call id={id} name={name}>{args}</tool_call>");
    }
    if let (true, Some(call)) = (message.tool_calls().is_empty(), function_call) {
        let member = |name| call.get(name).filter(|value| truthy(value)).map(py_str);
        let name = member("name").unwrap_or_default();
        let args = member("arguments").unwrap_or("{}".into());
        _ = writeln!(out, "  <function_call name={}>{}</function_call>", xml_quoteattr(&name), xml_escape(&args));
    }
    out.push_str("</message>");
}

/// The visible parts of a content, `None` if it has none.
struct XmlParts(Option<String>);

impl std::fmt::Display for XmlParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or_default())
    }
}

fn parts(content: &Content) -> XmlParts {
    match content {
        Content::Text(text) if text.is_empty() => XmlParts(None),
        Content::Text(text) => XmlParts(Some(xml_escape(text))),
        Content::Blocks(blocks) => {
            let shown: Vec<String> = blocks.iter().filter_map(block).collect();
            XmlParts((!shown.is_empty()).then(|| shown.join(" ")))
        }
    }
}

fn block(block: &Value) -> Option<String> {
    let block = match block {
        Value::Str(text) => return (!text.is_empty()).then(|| xml_escape(text)),
        Value::Map(block) => block,
        _ => return None,
    };
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let is_embedded = |address: Option<&str>| address.is_some_and(|address| address.starts_with("data:"));
    let image_url = block.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
    if block.get("base64").is_some_and(truthy) || is_embedded(text("url")) || is_embedded(image_url) {
        return None;
    }
    match text("type")? {
        "text" => text("text").filter(|text| !text.is_empty()).map(xml_escape),
        "reasoning" => {
            let text = text("reasoning").filter(|text| !text.is_empty())?;
            Some(format!("<reasoning>{}</reasoning>", xml_escape(text)))
        }
        kind @ ("image" | "audio" | "video") => {
            let member = |name| Some((name, block.get(name).filter(|value| truthy(value))?));
            let (name, value) = member("url").or_else(|| member("file_id"))?;
            Some(format!("<{kind} {name}={} />", xml_quoteattr(&py_str(value))))
        }
        "image_url" => {
            let url = image_url.filter(|url| !url.is_empty())?;
            Some(format!("<image url={} />", xml_quoteattr(url)))
        }
        "text-plain" => {
            let text = text("text").filter(|text| !text.is_empty())?;
            Some(xml_escape(&cut(text, XML_TEXT_CHARS_MAX)))
        }
        "server_tool_call" => {
            let args = block.get("args").map_or("{}".into(), |args| json_dumps(args, false));
            let (id, name) = (attribute(block, "id"), attribute(block, "name"));
            let args = xml_escape(&cut(&args, XML_TEXT_CHARS_MAX));
            Some(format!("<server_tool_call id={id} name={name}>{args}</server_tool_call>"))
        }
        "server_tool_result" => {
            let output = block.get("output").filter(|output| truthy(output));
            let output = output.map(|output| json_dumps(output, false)).unwrap_or_default();
            let (id, status) = (attribute(block, "tool_call_id"), attribute(block, "status"));
            let output = xml_escape(&cut(&output, XML_TEXT_CHARS_MAX));
            Some(format!("<server_tool_result tool_call_id={id} status={status}>{output}</server_tool_result>"))
        }
        _ => None,
    }
}

/// A member as an attribute, with quotes; empty if there is nothing in it.
fn attribute(block: &Map, name: &str) -> String {
    let text = block.get(name).filter(|value| truthy(value)).map(py_str).unwrap_or_default();
    xml_quoteattr(&text)
}

/// Cuts a text after so many code points, and says so.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
