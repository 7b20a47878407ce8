//! Spans of `tracing` with the names of OpenTelemetry's conventions for generative AI, if the feature is on:
//! `invoke_agent` for a run, and in it `chat` for each request to a model and `execute_tool` for each call of a tool.
//!
//! Invariant: no text of a message, no argument and no result is recorded, unless the agent says so
//! ([`Agent::trace_values`](crate::Agent::trace_values)). *Absent:* the spans of graphs, which the executor makes;
//! spans of steps that are stored and do not run again.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{NoSpan as AgentRunSpan, NoSpan as ToolSpan};
#[cfg(feature = "tracing")]
pub(crate) use on::{AgentRunSpan, ToolSpan};

#[cfg(feature = "tracing")]
mod on {
    use std::future::Future;

    use annals_base::Value;
    use annals_graph::graph::{BoxError, NodeResult};
    use annals_graph::task::Interrupted;
    use annals_messages::Message;
    use annals_pydantic_ai::{ModelMessage, ModelResponse, to_langchain};
    use serde_json::{Value as Json, json};
    use tracing::field::{Empty, display};
    use tracing::{Instrument, Span, info_span};

    use crate::agent::AgentCore;
    use crate::error::{AgentError, AgentErrorKind};
    use crate::model::{Model, ModelCall, ModelError};
    use crate::result::AgentOutcome;
    use crate::tool_output::{ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ToolOutput};

    /// The status that OpenTelemetry gives a span that failed.
    const FAILED: &str = "error";

    fn fail(span: &Span, kind: &str) {
        span.record("error.type", kind);
        span.record("otel.status_code", FAILED);
    }

    /// The span of a run.
    #[derive(Clone)]
    pub(crate) struct AgentRunSpan {
        span: Span,
        /// True if spans carry values.
        values: bool,
    }

    impl Default for AgentRunSpan {
        fn default() -> Self {
            Self { span: Span::none(), values: false }
        }
    }

    impl AgentRunSpan {
        /// Begins the span of a run in a thread.
        pub(crate) fn begin(core: &AgentCore, model: &dyn Model, thread: Option<&str>) -> Self {
            let name = core.name.as_str();
            let span = info_span!(
                target: "annals", "invoke_agent",
                otel.name = format_args!("invoke_agent {name}"),
                otel.status_code = Empty,
                gen_ai.operation.name = "invoke_agent",
                gen_ai.agent.name = name,
                gen_ai.provider.name = model.provider(),
                gen_ai.request.model = model.name(),
                gen_ai.conversation.id = thread,
                gen_ai.usage.input_tokens = Empty,
                gen_ai.usage.output_tokens = Empty,
                "error.type" = Empty,
                annals.outcome = Empty,
            );
            Self { span, values: core.traces_values }
        }

        /// Calls a function in the span.
        pub(crate) fn scope<T>(&self, run: impl FnOnce() -> T) -> T {
            self.span.in_scope(run)
        }

        /// Polls a future in the span.
        pub(crate) fn around<F: Future>(&self, running: F) -> impl Future<Output = F::Output> + use<F> {
            running.instrument(self.span.clone())
        }

        /// Records the end of the run.
        pub(crate) fn end<O>(&self, outcome: &Result<AgentOutcome<O>, AgentError>) {
            let ended = match outcome {
                Ok(AgentOutcome::Done(result)) => {
                    let counts = &result.usage().counts;
                    self.span.record("gen_ai.usage.input_tokens", counts.input_tokens);
                    self.span.record("gen_ai.usage.output_tokens", counts.output_tokens);
                    "done"
                }
                Ok(AgentOutcome::Waiting(_)) => "waiting",
                // The outer run waits.
                Err(error) if error.find::<Interrupted>().is_some() => "waiting",
                Err(error) => {
                    fail(&self.span, kind_of(error.kind()));
                    "failed"
                }
            };
            self.span.record("annals.outcome", ended);
        }

        /// Begins the span of a request to a model.
        pub(crate) fn chat(&self, call: &ModelCall, model: &dyn Model) -> ChatSpan {
            let (name, settings) = (model.name(), &call.settings);
            let span = info_span!(
                target: "annals", parent: &self.span, "chat",
                otel.name = format_args!("chat {name}"),
                otel.kind = "client",
                otel.status_code = Empty,
                gen_ai.operation.name = "chat",
                gen_ai.provider.name = model.provider(),
                gen_ai.request.model = name,
                gen_ai.request.max_tokens = settings.max_tokens,
                gen_ai.request.temperature = settings.temperature,
                gen_ai.request.top_p = settings.top_p,
                gen_ai.request.seed = settings.seed,
                gen_ai.response.model = Empty,
                gen_ai.response.id = Empty,
                gen_ai.response.finish_reasons = Empty,
                gen_ai.usage.input_tokens = Empty,
                gen_ai.usage.output_tokens = Empty,
                gen_ai.usage.cache_read.input_tokens = Empty,
                gen_ai.usage.cache_creation.input_tokens = Empty,
                gen_ai.system_instructions = Empty,
                gen_ai.input.messages = Empty,
                gen_ai.output.messages = Empty,
                "error.type" = Empty,
            );
            let values = self.values && !span.is_disabled();
            if values {
                if let Some(text) = &call.instructions {
                    let parts = json!([{ "type": "text", "content": text }]);
                    span.record("gen_ai.system_instructions", display(parts));
                }
                span.record("gen_ai.input.messages", display(Json::Array(shown(&call.messages))));
            }
            ChatSpan { span, values }
        }

        /// Begins the span of a call of a tool.
        pub(crate) fn tool(&self, name: &str, call_id: &str, args: &Value) -> ToolSpan {
            let span = info_span!(
                target: "annals", parent: &self.span, "execute_tool",
                otel.name = format_args!("execute_tool {name}"),
                otel.status_code = Empty,
                gen_ai.operation.name = "execute_tool",
                gen_ai.tool.name = name,
                "gen_ai.tool.type" = "function",
                gen_ai.tool.call.id = call_id,
                gen_ai.tool.call.arguments = Empty,
                gen_ai.tool.call.result = Empty,
                "error.type" = Empty,
            );
            let values = self.values && !span.is_disabled();
            if values {
                span.record("gen_ai.tool.call.arguments", display(args.to_json()));
            }
            ToolSpan { span, values }
        }
    }

    /// The span of a request to a model.
    pub(crate) struct ChatSpan {
        span: Span,
        values: bool,
    }

    impl ChatSpan {
        /// Polls a future in the span.
        pub(crate) fn around<F: Future>(&self, running: F) -> impl Future<Output = F::Output> + use<F> {
            running.instrument(self.span.clone())
        }

        /// Records the response.
        pub(crate) fn end(&self, response: &Result<ModelResponse, AgentError>) {
            let response = match response {
                Ok(response) => response,
                Err(error) => {
                    let transient = error.find::<ModelError>().map(ModelError::is_transient);
                    let of_model = transient.map(|is_so| if is_so { "transient" } else { "fatal" });
                    return fail(&self.span, of_model.unwrap_or(kind_of(error.kind())));
                }
            };
            if self.span.is_disabled() {
                return;
            }
            let counts = &response.usage.counts;
            self.span.record("gen_ai.response.model", response.model_name.as_deref());
            self.span.record("gen_ai.response.id", response.provider_response_id.as_deref());
            if let Some(reason) = response.finish_reason {
                // An attribute with several values is its JSON.
                self.span.record("gen_ai.response.finish_reasons", display(json!([reason.as_str()])));
            }
            self.span.record("gen_ai.usage.input_tokens", counts.input_tokens);
            self.span.record("gen_ai.usage.output_tokens", counts.output_tokens);
            for (name, count) in [
                ("gen_ai.usage.cache_read.input_tokens", counts.cache_read_tokens),
                ("gen_ai.usage.cache_creation.input_tokens", counts.cache_write_tokens),
            ] {
                if count > 0 {
                    self.span.record(name, count);
                }
            }
            if self.values {
                let mut messages = shown(&[response.clone().into()]);
                let reason = response.finish_reason.map_or("stop", |reason| reason.as_str());
                messages.iter_mut().for_each(|message| message["finish_reason"] = reason.into());
                self.span.record("gen_ai.output.messages", display(Json::Array(messages)));
            }
        }
    }

    /// The span of a call of a tool.
    pub(crate) struct ToolSpan {
        span: Span,
        values: bool,
    }

    impl ToolSpan {
        /// Calls a function in the span, and records its end.
        pub(crate) fn scope(&self, run: impl FnOnce() -> NodeResult<ToolOutput>) -> NodeResult<ToolOutput> {
            let result = self.span.in_scope(run);
            self.end(&result);
            result
        }

        /// Polls a future in the span, and records its end.
        pub(crate) async fn around(
            self,
            running: impl Future<Output = NodeResult<ToolOutput>>,
        ) -> NodeResult<ToolOutput> {
            let result = running.instrument(self.span.clone()).await;
            self.end(&result);
            result
        }

        fn end(&self, result: &NodeResult<ToolOutput>) {
            match result {
                Ok(output) if self.values => {
                    let result = output.content.to_value().to_json();
                    self.span.record("gen_ai.tool.call.result", display(result));
                }
                Ok(_) => {}
                Err(error) => _ = failure_of(error).map(|kind| fail(&self.span, kind)),
            }
        }
    }

    /// Returns the kind of the failure of a tool; `None` if its call waits.
    fn failure_of(error: &BoxError) -> Option<&'static str> {
        if error.is::<ModelRetry>() {
            return Some("retry");
        }
        if error.is::<ToolFailed>() {
            return Some("failed");
        }
        if error.is::<ApprovalRequired>() || error.is::<CallDeferred>() {
            return None;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
        while let Some(error) = cause {
            if error.is::<Interrupted>() {
                return None;
            }
            cause = error.source();
        }
        Some("error")
    }

    fn kind_of(kind: AgentErrorKind) -> &'static str {
        match kind {
            AgentErrorKind::Input => "input",
            AgentErrorKind::UsageLimit => "usage_limit",
            AgentErrorKind::Model => "model",
            AgentErrorKind::Tool => "tool",
            AgentErrorKind::Behavior => "behavior",
            AgentErrorKind::Function => "function",
            AgentErrorKind::Waiting => "waiting",
            AgentErrorKind::Stopped => "stopped",
            AgentErrorKind::Run => "run",
        }
    }

    /// Returns messages in the JSON of the conventions; none if one of them has no counterpart.
    fn shown(messages: &[ModelMessage]) -> Vec<Json> {
        to_langchain(messages, false).unwrap_or_default().iter().map(message).collect()
    }

    fn message(message: &Message) -> Json {
        let (role, text) = match message.kind() {
            "human" => ("user", message.text()),
            "ai" => ("assistant", message.text()),
            kind => (kind, message.text()),
        };
        let mut parts = Vec::new();
        if let Some(id) = message.tool_call_id() {
            parts.push(json!({ "type": "tool_call_response", "id": id, "response": text }));
        } else if !text.is_empty() {
            parts.push(json!({ "type": "text", "content": text }));
        }
        parts.extend(message.tool_calls().iter().map(|call| {
            let arguments = Value::Map(call.args.clone()).to_json();
            json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments })
        }));
        json!({ "role": role, "parts": parts })
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::future::Future;

    use annals_base::Value;

    use crate::agent::AgentCore;
    use crate::error::AgentError;
    use crate::model::{Model, ModelCall};

    /// Stands for each span.
    #[derive(Clone, Default)]
    pub(crate) struct NoSpan;

    impl NoSpan {
        pub(crate) fn begin(_: &AgentCore, _: &dyn Model, _: Option<&str>) -> Self {
            Self
        }

        pub(crate) fn scope<T>(&self, run: impl FnOnce() -> T) -> T {
            run()
        }

        pub(crate) fn around<F: Future>(&self, running: F) -> F {
            running
        }

        pub(crate) fn end<T>(&self, _: &Result<T, AgentError>) {}

        pub(crate) fn chat(&self, _: &ModelCall, _: &dyn Model) -> Self {
            Self
        }

        pub(crate) fn tool(&self, _: &str, _: &str, _: &Value) -> Self {
            Self
        }
    }
}
