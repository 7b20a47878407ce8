//! The raw tool calls of OpenAI: `{"id": .., "function": {"name": .., "arguments": "{..}"}}`.
//!
//! *Absent:* the check of the parsed calls; the constructor of a message does that.

use super::text::{json_loads, py_type, truthy};
use super::{MessageError, ToolCallChunk};
use annals_base::{Map, Value};

/// Reads raw tool calls, and returns the tool calls and the invalid ones, in their dictionary form. The arguments are
/// not checked to be an object.
///
/// # Errors
/// [`MessageError`] if a call has a function without name or arguments, or arguments other than a text.
///
/// # Example
/// ```
/// use annals_base::Value;
/// use annals_messages::default_tool_parser;
///
/// let raw = serde_json::json!([{"id": "1", "function": {"name": "add", "arguments": "{\"a\": 2}"}}]);
/// let (calls, invalid) = default_tool_parser(&Value::from(raw))?;
/// assert_eq!((calls[0].get("args").unwrap().get("a"), invalid.len()), (Some(&Value::Int(2)), 0));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn default_tool_parser(raw: &Value) -> Result<(Vec<Value>, Vec<Value>), MessageError> {
    let (mut calls, mut invalid) = (Vec::new(), Vec::new());
    // A text or a list among them has no function, and is passed over like an object without one.
    let is_object = |call: &Value| call.as_str().is_none() && call.as_list().is_none();
    for (at, call) in raw_calls(raw)?.iter().enumerate().filter(|(_, call)| is_object(call)) {
        let Some((name, arguments)) = function(call).map_err(|e| e.within(format_args!("[{at}]")))? else { continue };
        let Value::Str(text) = arguments else {
            let reason = format!("the JSON object must be str, bytes or bytearray, not {}", py_type(arguments));
            return Err(MessageError::wrong_type(reason).within(format_args!("[{at}].function.arguments")));
        };
        let id = member(call, "id");
        match json_loads(text, true) {
            Ok(args) => {
                let name = if truthy(name) { name.clone() } else { "".into() };
                let args = if truthy(&args) { args } else { Map::new().into() };
                calls.push(fields([("name", name), ("args", args), ("id", id), ("type", "tool_call".into())]));
            }
            Err(_) => {
                let kind = ("type", "invalid_tool_call".into());
                let args = ("args", arguments.clone());
                invalid.push(fields([("name", name.clone()), args, ("id", id), ("error", Value::Null), kind]));
            }
        }
    }
    Ok((calls, invalid))
}

/// Reads raw chunks of tool calls, and returns them in their dictionary form.
///
/// # Errors
/// [`MessageError`] if a chunk has a function without name or arguments.
pub fn default_tool_chunk_parser(raw: &Value) -> Result<Vec<Value>, MessageError> {
    let read = |(at, call): (usize, &Value)| {
        let parts = function(call).map_err(|e| e.within(format_args!("[{at}]")))?;
        let (name, args) = parts.map_or((Value::Null, Value::Null), |(name, args)| (name.clone(), args.clone()));
        let mut map = match Value::from(ToolCallChunk::default()) {
            Value::Map(map) => map,
            _ => Map::new(),
        };
        let given = [("name", name), ("args", args), ("id", member(call, "id")), ("index", member(call, "index"))];
        map.extend(given.map(|(name, value)| (name.to_owned(), value)));
        Ok(Value::Map(map))
    };
    raw_calls(raw)?.iter().enumerate().map(read).collect()
}

fn raw_calls(raw: &Value) -> Result<&[Value], MessageError> {
    raw.as_list().ok_or_else(|| MessageError::wrong_type(format!("'{}' object is not a list", py_type(raw))))
}

/// Returns the name and the arguments of the function, if there is one.
fn function(call: &Value) -> Result<Option<(&Value, &Value)>, MessageError> {
    if call.as_map().is_none() {
        return Err(MessageError::wrong_type(format!("'{}' object is not a raw tool call", py_type(call))));
    }
    let Some(function) = call.get("function") else { return Ok(None) };
    let get = |name| function.get(name).ok_or_else(|| MessageError::key("a raw tool call", format!("function.{name}")));
    Ok(Some((get("name")?, get("arguments")?)))
}

fn member(call: &Value, name: &str) -> Value {
    call.get(name).cloned().unwrap_or_default()
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
