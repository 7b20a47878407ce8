//! A run whose final response is read while it streams in.
//!
//! Invariant: until the run has ended, the final response is not among the messages. *Absent:* a stream that is
//! awaited; [`AgentRun::on_event`](crate::AgentRun::on_event) shows the events of a run that is awaited.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use annals_graph::prelude::{StreamData, StreamMode, Thread};
use annals_graph::{Stream, StreamPart};
use annals_messages::parse_partial_json;
use annals_pydantic_ai::{
    ModelMessage, ModelResponse, PartDelta, ResponsePart, ResponseState, RunUsage, StreamEvent, ToolArgs, dump,
};
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::error::AgentError;
use crate::event::AgentEvent;
use crate::gate::{EventGate, GateOrder};
use crate::output::without_fence;
use crate::result::{AgentOutcome, AgentResult};
use crate::run::{ReadyRun, conclude, history_of};
use crate::shared::BATCH;
use crate::state::{AgentProgress, AgentState};

/// A run that is read while it happens (`StreamedRunResult`). The run goes on as far as it is read; one that is dropped
/// before its end can be resumed on its thread.
///
/// # Example
/// ```
/// use annals_agents::{Agent, FunctionModel, ModelError, ResponseChunk, ResponseStream};
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let model = FunctionModel::new(|_| Err(ModelError::fatal("this model streams")))
///     .in_chunks(|_| Ok(ResponseStream::ready(["A ", "hotel ", "in Bern"].map(ResponseChunk::text).map(Ok))));
/// let agent = Agent::new(model);
///
/// let mut run = agent.run("Where to?").stream()?;
/// assert_eq!(run.all_messages().len(), 1);
/// let deltas: Result<Vec<String>, _> = run.text_deltas().collect();
/// assert_eq!(deltas?, ["A ", "hotel ", "in Bern"]);
/// assert_eq!(run.all_messages().len(), 2);
/// assert_eq!(run.finish()?.output, "A hotel in Bern");
/// # Ok(())
/// # }
/// ```
pub struct StreamedRun<'a, O = String> {
    agent: &'a Agent<O>,
    thread: Thread,
    gate: Arc<EventGate>,
    /// `None` once the run has ended.
    stream: Option<Stream<'a, AgentState>>,
    queue: VecDeque<AgentEvent>,
    messages: Vec<ModelMessage>,
    progress: AgentProgress,
    /// The response that streams in.
    response: ModelResponse,
    /// The number of responses that have begun.
    number: u64,
    outcome: Option<Result<AgentOutcome<O>, AgentError>>,
}

impl<'a, O: DeserializeOwned> StreamedRun<'a, O> {
    /// Begins a run, up to the begin of its final response.
    pub(crate) fn begin(agent: &'a Agent<O>, ready: ReadyRun, gate: Arc<EventGate>) -> Result<Self, AgentError> {
        let now = ready.shared.now();
        let stream = ready.on(agent)?.stream(ready.input, &[StreamMode::Values, StreamMode::Custom])?;
        let mut run = Self {
            agent,
            thread: ready.thread,
            gate,
            stream: Some(stream),
            queue: VecDeque::new(),
            messages: Vec::new(),
            progress: AgentProgress::default(),
            response: ModelResponse::new(Vec::new(), now),
            number: 0,
            outcome: None,
        };
        while let Some(event) = run.next_event()? {
            if let AgentEvent::Response(StreamEvent::FinalResult(_)) = event {
                return Ok(run);
            }
        }
        match &run.outcome {
            Some(Ok(AgentOutcome::Waiting(waiting))) => {
                Err(AgentError::waiting(waiting.requests.clone(), waiting.messages.clone()))
            }
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(run),
        }
    }

    /// Returns the next event of the run, `None` at its end.
    ///
    /// # Errors
    /// [`AgentError`] if the run fails.
    pub fn next_event(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                if let AgentEvent::Response(event) = &event {
                    self.apply(event);
                }
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            self.gate.want();
            match stream.next() {
                Some(Ok(part)) => self.take(part)?,
                Some(Err(error)) => {
                    self.stream = None;
                    let error = AgentError::from(error).at(self.messages.clone());
                    self.outcome = Some(Err(error.clone()));
                    return Err(error);
                }
                None => {
                    let outcome = self.stream.take().and_then(|stream| stream.outcome().cloned());
                    let outcome = outcome.ok_or_else(|| AgentError::input("the run did not end"))?;
                    self.outcome = Some(conclude(self.agent.core(), self.thread.clone(), Ok(outcome)));
                }
            }
        }
    }

    /// Takes a part of the stream.
    fn take(&mut self, part: StreamPart<AgentState>) -> Result<(), AgentError> {
        match part.data {
            StreamData::Values(values) => {
                self.messages = history_of(&values, self.agent.core())?;
                self.progress = values.agent_run.clone();
            }
            StreamData::Custom(value) if value == BATCH => self.queue.extend(self.gate.take().into_iter().flatten()),
            _ => {}
        }
        Ok(())
    }

    /// Applies an event to the response so far.
    fn apply(&mut self, event: &StreamEvent) {
        let parts = &mut self.response.parts;
        match event {
            StreamEvent::PartStart(start) => {
                if start.index == 0 {
                    parts.clear();
                    self.number += 1;
                }
                match usize::try_from(start.index).ok().and_then(|at| parts.get_mut(at)) {
                    Some(part) => *part = start.part.clone(),
                    None => parts.push(start.part.clone()),
                }
            }
            StreamEvent::PartDelta(event) => {
                let part = usize::try_from(event.index).ok().and_then(|at| parts.get_mut(at));
                // A delta was made from the same parts.
                _ = part.map(|part| event.delta.apply(part));
            }
            _ => {}
        }
    }

    /// Returns the response as far as it has streamed in: incomplete until the run has ended.
    pub fn response(&self) -> ModelResponse {
        let last = self.messages.iter().rev().find_map(|message| match message {
            ModelMessage::Response(response) => Some(response),
            _ => None,
        });
        if let (Some(_), Some(last)) = (&self.outcome, last) {
            return last.clone();
        }
        let mut response = self.response.clone();
        response.state = ResponseState::Incomplete;
        response.usage = self.gate.usage();
        response
    }

    /// Returns the history: the messages before the run, and those of the run that are stored.
    pub fn all_messages(&self) -> &[ModelMessage] {
        &self.messages
    }

    /// Returns the messages of the run that are stored.
    pub fn new_messages(&self) -> &[ModelMessage] {
        &self.messages[self.progress.first_new.min(self.messages.len())..]
    }

    /// Returns [`StreamedRun::all_messages`] as JSON text, as PydanticAI writes it.
    pub fn all_messages_json(&self) -> String {
        dump(self.all_messages())
    }

    /// Returns whether the run has ended.
    pub fn is_complete(&self) -> bool {
        matches!(&self.outcome, Some(Ok(_))) || self.progress.failure.is_some()
    }

    /// Returns the usage of the run, without that of the response that streams in.
    pub fn usage(&self) -> &RunUsage {
        &self.progress.usage
    }

    /// Returns the thread of the run.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Reads the text of the response so far, each time it grows (`stream_text`).
    pub fn texts(&mut self) -> StreamedTexts<'_, 'a, O> {
        StreamedTexts { number: self.number, run: self, sum: Some(String::new()), begun: false }
    }

    /// Reads the text of the response chunk by chunk (`stream_text(delta=True)`).
    pub fn text_deltas(&mut self) -> StreamedTexts<'_, 'a, O> {
        StreamedTexts { number: self.number, run: self, sum: None, begun: false }
    }

    /// Reads the response so far, each time it changes, and the whole response at the end (`stream_response`).
    pub fn responses(&mut self) -> StreamedResponses<'_, 'a, O> {
        StreamedResponses { run: self, begun: false, ended: false }
    }

    /// Reads the output so far, each time it changes and fits the type, and the output of the run at the end
    /// (`stream_output`). Validators see the last one alone.
    pub fn outputs(&mut self) -> StreamedOutputs<'_, 'a, O> {
        StreamedOutputs { run: self, last: None, begun: false, ended: false }
    }

    /// Reads the run to its end and returns its result (`get_output`).
    ///
    /// # Errors
    /// [`AgentError`] if the run fails or waits.
    pub fn finish(&mut self) -> Result<AgentResult<O>, AgentError>
    where
        O: Clone,
    {
        while self.next_event()?.is_some() {}
        match &self.outcome {
            Some(Ok(AgentOutcome::Done(result))) => Ok(result.clone()),
            Some(Ok(AgentOutcome::Waiting(waiting))) => {
                Err(AgentError::waiting(waiting.requests.clone(), waiting.messages.clone()))
            }
            Some(Err(error)) => Err(error.clone()),
            None => Err(AgentError::input("the run did not end")),
        }
    }

    /// Ends the response where it is: it is stored with the state `interrupted`, and the run ends.
    ///
    /// # Errors
    /// [`AgentError`] if the store fails.
    pub fn cancel(&mut self) -> Result<(), AgentError> {
        self.gate.order(GateOrder::Cancel);
        while self.next_event()?.is_some() {}
        Ok(())
    }

    /// Returns the output in the response so far, if it fits the type.
    fn partial_output(&self) -> Option<O> {
        let output = &self.agent.core().output;
        let tool = output.tool();
        let call = self.response.parts.iter().find_map(|part| match part {
            ResponsePart::ToolCall(call) if tool.as_ref().is_some_and(|tool| tool.name == call.tool_name) => Some(call),
            _ => None,
        });
        let value = match call {
            Some(call) => match &call.args {
                Some(ToolArgs::Text(text)) => parse_partial_json(text, false).ok()?,
                Some(ToolArgs::Object(args)) => args.clone().into(),
                None => return None,
            },
            None if output.is_typed() => parse_partial_json(without_fence(&self.response.text()?), false).ok()?,
            None => self.response.text()?.into(),
        };
        output.checked(&value).ok()?.to().ok()
    }
}

impl<O> Drop for StreamedRun<'_, O> {
    fn drop(&mut self) {
        // The step that waits for its reader ends before the stream of the run is dropped.
        self.gate.order(GateOrder::Close);
    }
}

impl<O> fmt::Debug for StreamedRun<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedRun").field("thread", &self.thread).finish_non_exhaustive()
    }
}

/// The text of a response that streams in: [`StreamedRun::texts`] and [`StreamedRun::text_deltas`].
pub struct StreamedTexts<'s, 'a, O> {
    run: &'s mut StreamedRun<'a, O>,
    /// The number of the response.
    number: u64,
    /// The text so far; `None` if chunks are returned.
    sum: Option<String>,
    begun: bool,
}

impl<O: DeserializeOwned> StreamedTexts<'_, '_, O> {
    /// Returns the item for more text.
    fn item(&mut self, text: &str) -> String {
        match &mut self.sum {
            Some(sum) => {
                sum.push_str(text);
                sum.clone()
            }
            None => text.to_owned(),
        }
    }
}

impl<O: DeserializeOwned> Iterator for StreamedTexts<'_, '_, O> {
    type Item = Result<String, AgentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.begun, true) {
            let parts = self.run.response.parts.iter();
            let texts =
                parts.filter_map(|part| if let ResponsePart::Text(part) = part { Some(&*part.content) } else { None });
            let text: String = texts.collect();
            if !text.is_empty() {
                return Some(Ok(self.item(&text)));
            }
        }
        loop {
            let event = match self.run.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            };
            if self.number != self.run.number {
                self.number = self.run.number;
                self.sum.as_mut().map(String::clear);
            }
            let text = match &event {
                AgentEvent::Response(StreamEvent::PartStart(start)) => match &start.part {
                    ResponsePart::Text(part) => part.content.as_str(),
                    _ => continue,
                },
                AgentEvent::Response(StreamEvent::PartDelta(event)) => match &event.delta {
                    PartDelta::Text(delta) => delta.content_delta.as_str(),
                    _ => continue,
                },
                _ => continue,
            };
            if !text.is_empty() {
                return Some(Ok(self.item(text)));
            }
        }
    }
}

/// The response that streams in: [`StreamedRun::responses`].
pub struct StreamedResponses<'s, 'a, O> {
    run: &'s mut StreamedRun<'a, O>,
    begun: bool,
    ended: bool,
}

impl<O: DeserializeOwned> Iterator for StreamedResponses<'_, '_, O> {
    type Item = Result<ModelResponse, AgentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.begun, true) && !self.run.response.parts.is_empty() {
            return Some(Ok(self.run.response()));
        }
        loop {
            match self.run.next_event() {
                Ok(Some(AgentEvent::Response(_))) => return Some(Ok(self.run.response())),
                Ok(Some(_)) => {}
                Ok(None) => return (!std::mem::replace(&mut self.ended, true)).then(|| Ok(self.run.response())),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The output that streams in: [`StreamedRun::outputs`].
pub struct StreamedOutputs<'s, 'a, O> {
    run: &'s mut StreamedRun<'a, O>,
    last: Option<Vec<ResponsePart>>,
    begun: bool,
    ended: bool,
}

impl<O: DeserializeOwned + Clone> Iterator for StreamedOutputs<'_, '_, O> {
    type Item = Result<O, AgentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if std::mem::replace(&mut self.begun, true) {
                match self.run.next_event() {
                    Ok(Some(_)) => {}
                    Ok(None) if std::mem::replace(&mut self.ended, true) => return None,
                    Ok(None) => return Some(self.run.finish().map(|result| result.output)),
                    Err(error) => return Some(Err(error)),
                }
            }
            if self.last.as_ref() != Some(&self.run.response.parts) {
                self.last = Some(self.run.response.parts.clone());
                if let Some(output) = self.run.partial_output() {
                    return Some(Ok(output));
                }
            }
        }
    }
}

macro_rules! debug {
    ($($name:ident),*) => {$(
        impl<O> fmt::Debug for $name<'_, '_, O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("run", &self.run).finish_non_exhaustive()
            }
        }
    )*};
}
debug!(StreamedTexts, StreamedResponses, StreamedOutputs);
