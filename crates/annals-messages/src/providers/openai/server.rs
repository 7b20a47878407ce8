//! Tools that OpenAI runs: each of its blocks is a call and its result.
//!
//! *Absent:* the calls that the program itself has to make.

use super::{index_of, prefixed};
use crate::MessageError;
use crate::blocks::draft::{Draft, kind_of, need, object_in, others, truthy_in, value_or};
use crate::providers::json;
use annals_base::{Map, Value};

/// Translates the block if it is that of such a tool.
pub(super) fn translate(block: &Map, all: &[Map], out: &mut Vec<Map>) -> Result<bool, MessageError> {
    let on_server = block.get("execution").and_then(Value::as_str) == Some("server");
    match kind_of(block) {
        "web_search_call" => {
            out.push(web_search(block)?);
            let given = |other: &&Map| kind_of(other) == "web_search_result" && other.get("id") == block.get("id");
            if !all.iter().any(|other| given(&other)) {
                let sources = object_in(block, "action").and_then(|action| truthy_in(action, "sources"));
                let output = sources.map(|sources| Map::from_iter([("sources".to_owned(), sources.clone())]));
                out.push(with_status(block, result(block, "lc_wsr_")?.maybe("output", output)).done());
            }
        }
        "file_search_call" => {
            let args = Map::from_iter([("queries".to_owned(), value_or(block, "queries", Value::List(Vec::new())))]);
            let known = ["type", "id", "queries", "results", "status", "index"];
            out.push(call(block, "file_search", "lc_fsc_")?.set("args", args).copy_except(block, &known).done());
            let result = result(block, "lc_fsr_")?.maybe("output", truthy_in(block, "results").cloned());
            out.push(with_status(block, result).done());
        }
        "code_interpreter_call" => {
            let args = block.get("code").map(|code| Map::from_iter([("code".to_owned(), code.clone())]));
            let known = ["type", "id", "outputs", "status", "code", "extras", "index"];
            let call = call(block, "code_interpreter", "lc_cic_")?.maybe("args", args);
            out.push(call.extras_except(block, &known).done());
            let result = result(block, "lc_cir_")?.maybe("output", block.get("outputs").cloned());
            out.push(with_status(block, result).done());
        }
        "mcp_call" => {
            out.push(mcp_call(block)?);
            out.push(with_error(
                block,
                result(block, "lc_mcpr_")?.maybe("output", truthy_in(block, "output").cloned()),
            ));
        }
        "mcp_list_tools" => {
            let known = ["type", "id", "name", "server_label", "tools", "error", "extras", "index"];
            let call = call(block, "mcp_list_tools", "lc_mlt_")?.set("args", Map::new());
            let call = call.maybe_extra("server_label", block.get("server_label"));
            out.push(call.extras_except(block, &known).done());
            out.push(with_error(block, result(block, "lc_mltr_")?.maybe("output", truthy_in(block, "tools").cloned())));
        }
        "tool_search_call" if on_server => {
            let call = call(block, "tool_search", "lc_tsc_")?.set("args", value_or(block, "arguments", Map::new()));
            out.push(call.extras_except(block, &["type", "id", "arguments", "index"]).done());
        }
        "tool_search_output" if on_server => out.push(tool_search_output(block)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn call(block: &Map, name: &str, prefix: &str) -> Result<Draft, MessageError> {
    let draft = Draft::of("server_tool_call").set("name", name).set("id", need(block, "id")?);
    Ok(draft.maybe("index", index_of(block, prefix)))
}

/// In a stream, the result comes after its call.
fn result(block: &Map, prefix: &str) -> Result<Draft, MessageError> {
    let index = block.get("index").and_then(Value::as_int).and_then(|index| index.checked_add(1));
    let draft = Draft::of("server_tool_result").set("tool_call_id", need(block, "id")?);
    Ok(draft.maybe("index", index.map(|index| prefixed(prefix, &index.into()))))
}

fn with_status(block: &Map, draft: Draft) -> Draft {
    match truthy_in(block, "status") {
        None => draft,
        Some(status) => match status.as_str() {
            Some("failed") => draft.set("status", "error"),
            Some("completed") => draft.set("status", "success"),
            _ => draft.extra("status", status.clone()),
        },
    }
}

fn with_error(block: &Map, draft: Draft) -> Map {
    match truthy_in(block, "error") {
        Some(error) => draft.extra("error", error.clone()).set("status", "error").done(),
        None => draft.set("status", "success").done(),
    }
}

fn web_search(block: &Map) -> Result<Map, MessageError> {
    let args: Map = object_in(block, "action").map(|action| others(action, &["sources"]).collect()).unwrap_or_default();
    let draft = call(block, "web_search", "lc_wsc_")?.set("args", args);
    Ok(draft.copy_except(block, &["type", "id", "action", "status", "index"]).done())
}

fn mcp_call(block: &Map) -> Result<Map, MessageError> {
    let draft = call(block, "remote_mcp", "lc_mcp_")?;
    let arguments = truthy_in(block, "arguments").and_then(Value::as_str);
    let draft = match arguments.map(|text| (text, json(text))) {
        None => draft,
        Some((_, Some(args))) => draft.set("args", args),
        Some((text, None)) => draft.extra("arguments", text),
    };
    let known = ["type", "id", "arguments", "name", "server_label", "output", "error", "extras", "index"];
    Ok(draft
        .maybe_extra("tool_name", block.get("name"))
        .maybe_extra("server_label", block.get("server_label"))
        .extras_except(block, &known)
        .done())
}

fn tool_search_output(block: &Map) -> Result<Map, MessageError> {
    let output = Map::from_iter([("tools".to_owned(), value_or(block, "tools", Value::List(Vec::new())))]);
    let draft = Draft::of("server_tool_result").set("tool_call_id", need(block, "id")?).set("output", output);
    let status = match block.get("status").and_then(Value::as_str) {
        Some("failed") => Some("error"),
        Some("completed") => Some("success"),
        _ => None,
    };
    let index = block.get("index").filter(|index| index.as_int().is_some()).map(|index| prefixed("lc_tso_", index));
    let draft = draft.maybe("status", status).maybe("index", index).extra("name", "tool_search");
    Ok(draft.extras_except(block, &["type", "id", "status", "tools", "index"]).done())
}
