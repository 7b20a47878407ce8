//! Answers through Groq: the tools that it ran stand beside the content.
//!
//! *Absent:* content in blocks; Groq gives a text.

use super::{call_block, json, reasoning_besides};
use crate::blocks::draft::{Draft, truthy_in};
use crate::{Content, Message};
use annals_base::{Map, Value};

pub(super) fn translate(message: &Message) -> Vec<Map> {
    let mut blocks: Vec<Map> = reasoning_besides(message).into_iter().collect();
    let tools = message.additional_kwargs.get("executed_tools").and_then(Value::as_list).unwrap_or_default();
    for (at, tool) in tools.iter().enumerate().filter_map(|(at, tool)| Some((at, tool.as_map()?))) {
        blocks.extend(executed(&at.to_string(), tool).into_iter().flatten());
    }
    if let Content::Text(text) = &message.content
        && !text.is_empty()
    {
        blocks.push(Draft::of("text").set("text", text.as_str()).done());
    }
    blocks.extend(message.tool_calls().iter().map(call_block));
    blocks
}

/// Returns the call of a tool and its result; none if the arguments are in no form that is known.
fn executed(id: &str, tool: &Map) -> Option<Vec<Map>> {
    let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default();
    let python = kind == "function" && tool.get("name").and_then(Value::as_str) == Some("python");
    let args = match truthy_in(tool, "arguments").and_then(Value::as_str) {
        None => None,
        Some(arguments) => Some(match json(arguments) {
            Some(args) => args,
            None if kind == "python" => code(unescaped_code(arguments)?),
            None if python => code(arguments),
            None => return None,
        }),
    };
    let name = match kind {
        "search" => "web_search",
        "python" => "code_interpreter",
        _ if python => "code_interpreter",
        _ => "",
    };
    let mut blocks = Vec::with_capacity(2);
    if let Some(Value::Map(args)) = args {
        blocks.push(Draft::of("server_tool_call").set("name", name).set("id", id).set("args", args).done());
    }
    if let Some(output) = truthy_in(tool, "output") {
        let draft = Draft::of("server_tool_result").set("tool_call_id", id).set("output", output.clone());
        blocks
            .push(draft.set("status", "success").extras_except(tool, &["type", "arguments", "index", "output"]).done());
    }
    Some(blocks)
}

fn code(text: &str) -> Value {
    Map::from_iter([("code".to_owned(), text.into())]).into()
}

/// Returns what stands between `{"code": "` and `"}`: Groq may leave the quotes of a program unescaped.
fn unescaped_code(arguments: &str) -> Option<&str> {
    let after = |text: &'_ str, token: &str| text.trim_start().strip_prefix(token).map(str::len);
    let mut rest = arguments;
    for token in ["{", "\"code\"", ":", "\""] {
        rest = &rest[rest.len() - after(rest, token)?..];
    }
    let before = rest.trim_end().strip_suffix('}')?.trim_end();
    before.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_unescaped_quotes_is_found() {
        assert_eq!(unescaped_code(" { \"code\" : \"print(\"x\")\" } "), Some("print(\"x\")"));
        assert_eq!(unescaped_code("{\"code\": \"\"}"), Some(""));
        for other in ["", "{\"code\": \"}", "{\"code\": 1}", "{\"cod\": \"x\"}", "{\"code\": \"x\"", "print(1)"] {
            assert_eq!(unescaped_code(other), None, "{other}");
        }
    }
}
