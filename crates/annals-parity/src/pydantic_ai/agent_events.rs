//! A response that streams in by a script, and the events of a run that show it.
//!
//! *Absent:* reading the stream as it arrives; the model has ended when the run continues.

use annals::base::{IdSource, SystemClock, Value};
use annals_pydantic_ai::{
    DefaultSource, FinalResultEvent, ModelResponse, PartEndEvent, ResponsePart, StreamEvent, StreamedParts,
    StreamedText, StreamedThinking, StreamedToolCall, ToolArgs, ToolCallPart, ToolReturnPart,
};

use super::ops::{get, object, text};
use crate::RunnerResult;

/// The tool whose call is the output of an agent with structured output.
pub(super) const OUTPUT_TOOL: &str = "final_result";

/// Puts a response together from chunks. The events go to `events`.
pub(super) fn streamed(
    chunks: &[Value],
    structured: bool,
    ids: &mut IdSource,
    events: &mut Vec<Value>,
) -> RunnerResult<ModelResponse> {
    let defaults = &mut DefaultSource::new(&SystemClock, ids);
    let mut stream = Streamed { parts: StreamedParts::default(), structured, found: false, open: None };
    for chunk in chunks {
        stream.take(chunk, defaults, events)?;
    }
    stream.end_part(None, events);
    let mut response = ModelResponse::new(stream.parts.parts().cloned().collect(), defaults.now().into());
    response.usage.counts.input_tokens = 50;
    response.usage.counts.output_tokens = i64::try_from(chunks.len())?;
    Ok(response)
}

struct Streamed {
    parts: StreamedParts,
    structured: bool,
    /// True once the part that holds the result has started.
    found: bool,
    /// The index of the open part.
    open: Option<i64>,
}

impl Streamed {
    fn take(&mut self, chunk: &Value, defaults: &mut DefaultSource<'_>, events: &mut Vec<Value>) -> RunnerResult<()> {
        let key = get(chunk, "index").as_int().map(|index| index.to_string());
        let event = if let Some(content) = get(chunk, "text").as_str() {
            self.parts.text(Some("content"), StreamedText::new(content))?
        } else if chunk.get("thinking").is_some() {
            let signature = text(chunk, "signature");
            let provider_name = signature.as_ref().map(|_| "function".to_owned());
            let mut more = StreamedThinking::default();
            more.content = text(chunk, "thinking");
            (more.signature, more.provider_name) = (signature, provider_name);
            self.parts.thinking(key.as_deref(), more)?
        } else {
            let mut more = StreamedToolCall::default();
            more.args = text(chunk, "args").map(ToolArgs::Text);
            (more.tool_name, more.tool_call_id) = (text(chunk, "name"), text(chunk, "id"));
            self.parts.tool_call(key.as_deref(), more, defaults)?
        };
        if let Some(event) = event {
            self.show(event, events);
        }
        Ok(())
    }

    /// Adds an event, with the end of the part before a new one, and with the final result.
    fn show(&mut self, event: StreamEvent, events: &mut Vec<Value>) {
        let StreamEvent::PartStart(mut start) = event else { return events.push(event.to_value()) };
        start.previous_part_kind = self.end_part(Some(start.part.kind()), events);
        self.open = Some(start.index);
        let result = match &start.part {
            ResponsePart::Text(_) if !self.structured => Some((None, None)),
            ResponsePart::ToolCall(call) if self.structured && call.tool_name == OUTPUT_TOOL => {
                Some((Some(call.tool_name.clone()), Some(call.tool_call_id.clone())))
            }
            _ => None,
        };
        events.push(StreamEvent::from(start).to_value());
        if let Some((tool_name, tool_call_id)) = result.filter(|_| !self.found) {
            self.found = true;
            events.push(StreamEvent::from(FinalResultEvent::new(tool_name, tool_call_id)).to_value());
        }
    }

    /// Ends the open part, and returns its kind.
    fn end_part(&mut self, next: Option<&str>, events: &mut Vec<Value>) -> Option<String> {
        let index = self.open.take()?;
        let part = self.parts.parts().nth(usize::try_from(index).ok()?)?.clone();
        let kind = part.kind().to_owned();
        let mut end = PartEndEvent::new(index, part);
        end.next_part_kind = next.map(str::to_owned);
        events.push(StreamEvent::from(end).to_value());
        Some(kind)
    }
}

/// Returns the event of a call that begins.
pub(super) fn called(call: &ToolCallPart, is_output: bool) -> Value {
    let kind = if is_output { "output_tool_call" } else { "function_tool_call" };
    let part = ResponsePart::from(call.clone()).to_value();
    object([("part", part), ("args_valid", true.into()), ("event_kind", kind.into())])
}

/// Returns the event of a call that has ended.
pub(super) fn returned(part: &ToolReturnPart, is_output: bool) -> Value {
    let part = annals_pydantic_ai::RequestPart::from(part.clone()).to_value();
    if is_output {
        return object([("part", part), ("event_kind", "output_tool_result".into())]);
    }
    object([("part", part), ("content", Value::Null), ("event_kind", "function_tool_result".into())])
}
