//! A run whose final response is read while it streams in.
//!
//! Invariant: until the run has ended, the final response is not among the messages. *Absent:* the stream of the graph;
//! both kinds of it, the one that blocks and the one that is awaited, are read alike.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use annals_graph::prelude::{Outcome, StreamData, StreamMode, Thread};
use annals_graph::{AsyncStream, Stream, StreamPart};
use annals_messages::parse_partial_json;
use annals_pydantic_ai::{
    ModelMessage, ModelResponse, ResponsePart, ResponseState, RunUsage, StreamEvent, ToolArgs, dump,
};
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::ask::text_in;
use crate::error::AgentError;
use crate::event::AgentEvent;
use crate::gate::{EventGate, GateOrder};
use crate::history::{KnownHistory, SharedHistory};
use crate::output::without_fence;
use crate::result::{AgentOutcome, AgentResult};
use crate::run::{ReadyRun, conclude, history_of};
use crate::shared::BATCH;
use crate::span::AgentRunSpan;
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
    read: ReadRun<'a, O>,
    /// `None` once the run has ended.
    stream: Option<Stream<'a, AgentState>>,
}

/// A run that is awaited while it happens. The run goes on as far as it is read; one that is dropped before its end can
/// be resumed on its thread.
///
/// # Example
/// ```
/// use annals_agents::{Agent, FunctionModel, ModelError, ResponseChunk, ResponseStream};
///
/// # fn main() -> Result<(), annals_agents::AgentError> {
/// let model = FunctionModel::new(|_| Err(ModelError::fatal("this model streams")))
///     .in_chunks(|_| Ok(ResponseStream::ready(["A ", "hotel ", "in Bern"].map(ResponseChunk::text).map(Ok))));
/// let agent = Agent::new(model);
/// let read = async {
///     let mut run = agent.run("Where to?").astream().await?;
///     let mut shown = String::new();
///     while let Some(text) = run.next_text().await? {
///         shown += &text;
///     }
///     assert_eq!(shown, "A hotel in Bern");
///     run.finish().await
/// };
/// # let result = annals_graph::block_on(read)?;
/// # assert_eq!((result.output.as_str(), result.all_messages().len()), ("A hotel in Bern", 2));
/// # Ok(())
/// # }
/// ```
pub struct AsyncStreamedRun<'a, O = String> {
    read: ReadRun<'a, O>,
    /// `None` once the run has ended.
    stream: Option<AsyncStream<'a, AgentState>>,
    /// True once the text that began with the stream was returned.
    begun: bool,
}

/// The part of a run that was read.
struct ReadRun<'a, O> {
    agent: &'a Agent<O>,
    thread: Thread,
    span: AgentRunSpan,
    gate: Arc<EventGate>,
    queue: VecDeque<AgentEvent>,
    messages: SharedHistory,
    known: Arc<KnownHistory>,
    progress: AgentProgress,
    /// The response that streams in.
    response: ModelResponse,
    /// The number of responses that have begun.
    number: u64,
    outcome: Option<Result<AgentOutcome<O>, AgentError>>,
}

/// The modes of the stream of the graph.
const MODES: &[StreamMode] = &[StreamMode::Values, StreamMode::Custom];

impl<'a, O: DeserializeOwned> ReadRun<'a, O> {
    fn new(agent: &'a Agent<O>, ready: &ReadyRun<'a>, gate: Arc<EventGate>) -> Self {
        Self {
            agent,
            thread: ready.thread.clone(),
            span: ready.span.clone(),
            gate,
            queue: VecDeque::new(),
            messages: Arc::default(),
            known: Arc::clone(&ready.known),
            progress: AgentProgress::default(),
            response: ModelResponse::new(Vec::new(), agent.core().clock.now().into()),
            number: 0,
            outcome: None,
        }
    }

    /// Returns the next event that was shown. Without one, the run may go on until there is one.
    fn pop(&mut self) -> Option<AgentEvent> {
        let event = self.queue.pop_front();
        match &event {
            Some(AgentEvent::Response(event)) => self.apply(event),
            Some(_) => {}
            None => self.gate.want(),
        }
        event
    }

    /// Takes a part of the stream.
    fn take(&mut self, part: StreamPart<AgentState>) -> Result<(), AgentError> {
        match part.data {
            StreamData::Values(values) => {
                self.messages = history_of(&values, &self.known, self.agent.core())?;
                self.progress = values.agent_run.at(&self.messages);
            }
            StreamData::Custom(value) if value == BATCH => self.queue.extend(self.gate.take().into_iter().flatten()),
            _ => {}
        }
        Ok(())
    }

    /// Takes an item of the stream, which is dropped at its end or after an error.
    fn accept<T>(
        &mut self,
        item: Option<Result<StreamPart<AgentState>, annals_graph::Error>>,
        stream: &mut Option<T>,
        outcome: fn(&T) -> Option<&Outcome<AgentState>>,
    ) -> Result<(), AgentError> {
        match item {
            Some(Ok(part)) => self.take(part),
            Some(Err(error)) => {
                *stream = None;
                let error = AgentError::from(error).at(self.messages.clone());
                let ended = Err(error.clone());
                self.span.end(&ended);
                self.outcome = Some(ended);
                Err(error)
            }
            None => {
                let ended = stream.take().and_then(|stream| outcome(&stream).cloned());
                let ended = ended.ok_or_else(|| AgentError::input("the run did not end"))?;
                let ended = conclude(self.agent.core(), Some(self.thread.clone()), &self.known, Ok(ended));
                self.span.end(&ended);
                self.outcome = Some(ended);
                Ok(())
            }
        }
    }

    /// Refuses a run that has ended before its final response.
    fn begun(&self) -> Result<(), AgentError> {
        match &self.outcome {
            Some(Ok(AgentOutcome::Waiting(waiting))) => {
                Err(AgentError::waiting(waiting.requests.clone(), waiting.messages.clone()))
            }
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the result of a run that was read to its end.
    fn result(&self) -> Result<AgentResult<O>, AgentError>
    where
        O: Clone,
    {
        self.begun()?;
        match &self.outcome {
            Some(Ok(AgentOutcome::Done(result))) => Ok(result.clone()),
            _ => Err(AgentError::input("the run did not end")),
        }
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

    /// Returns the response so far.
    fn response(&self) -> ModelResponse {
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

    /// Returns the text of the response so far.
    fn text(&self) -> String {
        let text = |part: &'_ ResponsePart| match part {
            ResponsePart::Text(part) => Some(part.content.clone()),
            _ => None,
        };
        self.response.parts.iter().filter_map(text).collect()
    }

    /// Returns the output in the response so far, if it fits the type.
    fn partial_output(&self) -> Option<O> {
        let output = &self.agent.core().output;
        let call = self.response.parts.iter().find_map(|part| match part {
            ResponsePart::ToolCall(call) if output.is_tool(&call.tool_name) => Some(call),
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

impl<O> Drop for ReadRun<'_, O> {
    fn drop(&mut self) {
        // The step that waits for its reader ends before the stream of the run is dropped.
        self.gate.order(GateOrder::Close);
    }
}

/// Returns the text that an event adds to a response.
fn added_text(event: &AgentEvent) -> Option<&str> {
    let AgentEvent::Response(event) = event else { return None };
    text_in(event).filter(|text| !text.is_empty())
}

macro_rules! readers {
    ($($name:ident),*) => {$(
        impl<O: DeserializeOwned> $name<'_, O> {
            /// Returns the response as far as it has streamed in: incomplete until the run has ended.
            pub fn response(&self) -> ModelResponse {
                self.read.response()
            }

            /// Returns the history: the messages before the run, and those of the run that are stored.
            pub fn all_messages(&self) -> &[ModelMessage] {
                &self.read.messages
            }

            /// Returns the messages of the run that are stored.
            pub fn new_messages(&self) -> &[ModelMessage] {
                &self.read.messages[self.read.progress.first_new.min(self.read.messages.len())..]
            }

            /// Returns the history as JSON text, as PydanticAI writes it.
            pub fn all_messages_json(&self) -> String {
                dump(self.all_messages())
            }

            /// Returns whether the run has ended.
            pub fn is_complete(&self) -> bool {
                matches!(&self.read.outcome, Some(Ok(_))) || self.read.progress.failure.is_some()
            }

            /// Returns the usage of the run, without that of the response that streams in.
            pub fn usage(&self) -> &RunUsage {
                &self.read.progress.usage
            }

            /// Returns the thread of the run.
            pub fn thread(&self) -> &Thread {
                &self.read.thread
            }
        }

        impl<O> fmt::Debug for $name<'_, O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("thread", &self.read.thread).finish_non_exhaustive()
            }
        }
    )*};
}
readers!(StreamedRun, AsyncStreamedRun);

impl<'a, O: DeserializeOwned> StreamedRun<'a, O> {
    /// Begins a run, up to the begin of its final response.
    pub(crate) fn begin(agent: &'a Agent<O>, ready: ReadyRun<'a>, gate: Arc<EventGate>) -> Result<Self, AgentError> {
        let read = ReadRun::new(agent, &ready, gate);
        let stream = Some(ready.run.stream(ready.input, MODES)?);
        let mut run = Self { read, stream };
        while let Some(event) = run.next_event()? {
            if let AgentEvent::Response(StreamEvent::FinalResult(_)) = event {
                return Ok(run);
            }
        }
        run.read.begun().map(|()| run)
    }

    /// Returns the next event of the run, `None` at its end.
    ///
    /// # Errors
    /// [`AgentError`] if the run fails.
    pub fn next_event(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if let Some(event) = self.read.pop() {
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let item = stream.next();
            self.read.accept(item, &mut self.stream, Stream::outcome)?;
        }
    }

    /// Reads the text of the response so far, each time it grows (`stream_text`).
    pub fn texts(&mut self) -> StreamedTexts<'_, 'a, O> {
        StreamedTexts { number: self.read.number, run: self, sum: Some(String::new()), begun: false }
    }

    /// Reads the text of the response chunk by chunk (`stream_text(delta=True)`).
    pub fn text_deltas(&mut self) -> StreamedTexts<'_, 'a, O> {
        StreamedTexts { number: self.read.number, run: self, sum: None, begun: false }
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
        self.read.result()
    }

    /// Ends the response where it is: it is stored with the state `interrupted`, and the run ends.
    ///
    /// # Errors
    /// [`AgentError`] if the store fails.
    pub fn cancel(&mut self) -> Result<(), AgentError> {
        self.read.gate.order(GateOrder::Cancel);
        while self.next_event()?.is_some() {}
        Ok(())
    }
}

impl<'a, O: DeserializeOwned> AsyncStreamedRun<'a, O> {
    /// Begins a run, up to the begin of its final response.
    pub(crate) async fn begin(
        agent: &'a Agent<O>,
        ready: ReadyRun<'a>,
        gate: Arc<EventGate>,
    ) -> Result<Self, AgentError> {
        let read = ReadRun::new(agent, &ready, gate);
        let stream = Some(ready.run.astream(ready.input, MODES).await?);
        let mut run = Self { read, stream, begun: false };
        while let Some(event) = run.next_event().await? {
            if let AgentEvent::Response(StreamEvent::FinalResult(_)) = event {
                return Ok(run);
            }
        }
        run.read.begun().map(|()| run)
    }

    /// Returns the next event of the run, `None` at its end. If its future is dropped before it is ready, no event is
    /// lost.
    ///
    /// # Errors
    /// [`AgentError`] if the run fails.
    pub async fn next_event(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if let Some(event) = self.read.pop() {
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let item = stream.next().await;
            self.read.accept(item, &mut self.stream, AsyncStream::outcome)?;
        }
    }

    /// Returns the next chunk of the text of the response, `None` at the end of the run.
    ///
    /// # Errors
    /// [`AgentError`] if the run fails.
    pub async fn next_text(&mut self) -> Result<Option<String>, AgentError> {
        if !std::mem::replace(&mut self.begun, true) {
            let text = self.read.text();
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        while let Some(event) = self.next_event().await? {
            if let Some(text) = added_text(&event) {
                return Ok(Some(text.to_owned()));
            }
        }
        Ok(None)
    }

    /// Reads the run to its end and returns its result (`get_output`).
    ///
    /// # Errors
    /// [`AgentError`] if the run fails or waits.
    pub async fn finish(&mut self) -> Result<AgentResult<O>, AgentError>
    where
        O: Clone,
    {
        while self.next_event().await?.is_some() {}
        self.read.result()
    }

    /// Ends the response where it is: it is stored with the state `interrupted`, and the run ends.
    ///
    /// # Errors
    /// [`AgentError`] if the store fails.
    pub async fn cancel(&mut self) -> Result<(), AgentError> {
        self.read.gate.order(GateOrder::Cancel);
        while self.next_event().await?.is_some() {}
        Ok(())
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
            let text = self.run.read.text();
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
            if self.number != self.run.read.number {
                self.number = self.run.read.number;
                if let Some(sum) = &mut self.sum {
                    sum.clear();
                }
            }
            if let Some(text) = added_text(&event) {
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
        if !std::mem::replace(&mut self.begun, true) && !self.run.read.response.parts.is_empty() {
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
            if self.last.as_ref() != Some(&self.run.read.response.parts) {
                self.last = Some(self.run.read.response.parts.clone());
                if let Some(output) = self.run.read.partial_output() {
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
