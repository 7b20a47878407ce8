//! Runs of agents that are read while they stream in, and the chunks of a script.
//!
//! *Absent:* the loop of an agent.

use annals::base::Value;
use annals_agents::{AgentError, AgentRun, ModelError, ResponseChunk, ResponseStream, StreamedRun};
use annals_pydantic_ai::{ModelResponse, RequestUsage, StreamedThinking, StreamedToolCall, ToolArgs, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::agent::{Past, RunMembers, class};
use super::ops::{get, object, text};
use crate::RunnerResult;

/// Returns the chunks of an entry of a script, each with the usage so far.
pub(super) fn chunks(entry: &Value) -> Result<ResponseStream, ModelError> {
    let entries = entry.get("chunks").and_then(Value::as_list).ok_or_else(|| ModelError::fatal("it has chunks"))?;
    let mut items = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(error) = text(entry, "raise") {
            items.push(Err(ModelError::fatal(error)));
            break;
        }
        let mut usage = RequestUsage::default();
        usage.counts.input_tokens = 50;
        usage.counts.output_tokens = i64::try_from(at + 1).map_err(ModelError::fatal)?;
        items.push(Ok(ResponseChunk::Usage(usage)));
        items.push(Ok(chunk(entry)));
    }
    Ok(ResponseStream::ready(items))
}

fn chunk(entry: &Value) -> ResponseChunk {
    let key = get(entry, "index").as_int().map(|index| index.to_string());
    if let Some(text) = text(entry, "text") {
        return ResponseChunk::Text { key: Some("content".into()), text };
    }
    if entry.get("thinking").is_some() {
        let mut chunk = StreamedThinking::default();
        chunk.content = text(entry, "thinking");
        chunk.signature = text(entry, "signature");
        chunk.provider_name = chunk.signature.as_ref().map(|_| "function".to_owned());
        return ResponseChunk::Thinking { key, chunk };
    }
    let mut chunk = StreamedToolCall::default();
    chunk.args = text(entry, "args").map(ToolArgs::Text);
    (chunk.tool_name, chunk.tool_call_id) = (text(entry, "name"), text(entry, "id"));
    ResponseChunk::ToolCall { key, chunk }
}

/// Runs an agent and reads its stream step by step.
pub(super) fn streamed<O: Serialize + DeserializeOwned + Clone>(
    run: AgentRun<'_, O>,
    steps: &[Value],
) -> RunnerResult<(RunMembers, Past)> {
    let mut run = run.stream()?;
    let mut records = Vec::new();
    for step in steps {
        let result = match read(&mut run, step)? {
            Ok(result) => ("result", result),
            Err(error) => ("error", class(&error).into()),
        };
        records.push(object([("do", get(step, "do").clone()), result]));
    }
    let (all, new) = (run.all_messages().to_vec(), run.new_messages().to_vec());
    let after = object([
        ("all_messages", to_value(&all)),
        ("new_messages", to_value(&new)),
        ("is_complete", run.is_complete().into()),
    ]);
    let record = vec![("steps", records.into()), ("after_exit", after)];
    Ok((record, Past { all, new, captured: Vec::new() }))
}

/// Returns the items of a stream, up to a number of them.
fn items<T>(
    stream: impl Iterator<Item = Result<T, AgentError>>,
    step: &Value,
    show: impl Fn(T) -> RunnerResult<Value>,
) -> RunnerResult<Result<Value, AgentError>> {
    let most = get(step, "break_after").as_int().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let mut shown = Vec::new();
    for item in stream.take(most) {
        match item {
            Ok(item) => shown.push(show(item)?),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(shown.into()))
}

/// Takes one step of reading.
fn read<O: Serialize + DeserializeOwned + Clone>(
    run: &mut StreamedRun<'_, O>,
    step: &Value,
) -> RunnerResult<Result<Value, AgentError>> {
    let snapshot = |response: ModelResponse| {
        Ok(Value::List(vec![response.state.as_str().into(), response.text().unwrap_or_default().into()]))
    };
    match get(step, "do").as_str().unwrap_or_default() {
        "stream_text" if get(step, "delta").as_bool() == Some(true) => {
            items(run.text_deltas(), step, |text| Ok(text.into()))
        }
        "stream_text" => items(run.texts(), step, |text| Ok(text.into())),
        "stream_output" => items(run.outputs(), step, |output| Ok(Value::from_serialize(&output)?)),
        "stream_response" => items(run.responses(), step, snapshot),
        "get_output" => match run.finish() {
            Ok(result) => Ok(Ok(Value::from_serialize(&result.output)?)),
            Err(error) => Ok(Err(error)),
        },
        "cancel" => Ok(run.cancel().map(|()| Value::Null)),
        "all_messages" => Ok(Ok(to_value(run.all_messages()))),
        "new_messages" => Ok(Ok(to_value(run.new_messages()))),
        "is_complete" => Ok(Ok(run.is_complete().into())),
        "usage" => Ok(Ok(run.usage().to_value())),
        "response_state" => snapshot(run.response()).map(Ok),
        other => Err(format!("unknown step {other:?}").into()),
    }
}
