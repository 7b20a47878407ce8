//! `annals export --format otlp-json`: the runs, steps and model calls of a thread as spans of OpenTelemetry, in the
//! JSON lines of its file exporter, which a collector's `otlpjsonfile` receiver reads.
//!
//! A run is a trace, whose id is that of the run. Ids follow from the ids of the store, so a second export gives the
//! same spans. Names of attributes are those of the conventions for generative AI (`gen_ai.*`). Invariant: no value
//! of the state and no text of a message is written; the message of an error is. *Absent:* steps that run or wait,
//! which have no end.

use std::collections::BTreeMap;

use annals::base::Timestamp;
use annals::history::{Thread, UsageCall};
use annals::store::{Store, StoreError};
use annals_runs::{StepInfo, StepState, ThreadRuns};
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;
use crate::output::{self, Printer, count};
use crate::point::thread;

/// Spans of one line.
const LINE_SPANS: usize = 500;
/// Kinds of spans.
const INTERNAL: u64 = 1;
const CLIENT: u64 = 3;
/// The status of a span that failed.
const ERROR: u64 = 2;

/// The providers of models by the first letters of their names, as the conventions name them.
const PROVIDERS: &[(&str, &str)] = &[
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex", "openai"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("deepseek", "deepseek"),
    ("grok", "x_ai"),
    ("command", "cohere"),
];

/// A run, as far as its steps and calls tell of it.
struct RunSpan {
    trace: String,
    begin: Timestamp,
    end: Timestamp,
    failure: Option<String>,
}

/// The spans of a thread.
struct SpanWriter<'a> {
    thread: &'a Thread,
    graph: String,
    runs: BTreeMap<String, RunSpan>,
    spans: Vec<Json>,
    written: usize,
    /// Steps that have not ended.
    open: usize,
    /// Model calls of pruned checkpoints.
    pruned: usize,
}

pub(crate) fn export(name: &str, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, name)?;
    let graph = thread.info()?.graph.as_deref().unwrap_or_default().to_owned();
    let (runs, spans) = (BTreeMap::new(), Vec::new());
    let mut writer = SpanWriter { thread: &thread, graph, runs, spans, written: 0, open: 0, pruned: 0 };
    for step in thread.steps()? {
        let step = step?;
        writer.add_step(&step)?;
        writer.flush(LINE_SPANS, out)?;
    }
    let mut calls = Vec::new();
    store.usage_calls(thread.id().as_str(), &mut |call| {
        calls.push(call.clone());
        Ok(())
    })?;
    // The calls of a checkpoint follow each other: their numbers in it stay when others come.
    let (mut last, mut number) = (None, 0);
    for call in &calls {
        number = if last == Some(call.point.checkpoint) { number + 1 } else { 0 };
        last = Some(call.point.checkpoint);
        writer.add_call(number, call)?;
        writer.flush(LINE_SPANS, out)?;
    }
    writer.add_runs();
    writer.flush(1, out)?;
    if writer.open > 0 {
        output::note(format!("{} left out: no end is stored", count(writer.open, "step")));
    }
    if writer.pruned > 0 {
        output::note(format!("{} left out: their checkpoints were pruned", count(writer.pruned, "model call")));
    }
    Ok(u8::from(writer.written == 0))
}

impl SpanWriter<'_> {
    /// Adds the span of a step that has ended.
    fn add_step(&mut self, step: &StepInfo) -> Result<(), StoreError> {
        let Some(ended) = end_of(step) else {
            self.open += 1;
            return Ok(());
        };
        let record = self.thread.at(step.point.checkpoint)?;
        let run = record.record().run.map(|run| run.to_string());
        let failure = (step.state == StepState::Failed).then(|| step.error_text().to_owned());
        let (trace, parent) = self.run_of(run, step.started_at, ended, failure.as_ref());
        let mut attributes = vec![
            text("gen_ai.conversation.id", self.thread.id().as_str()),
            text("annals.task", &step.task.to_string()),
            text("annals.state", step.state.as_str()),
            int("annals.step", step.superstep),
            int("annals.attempts", i64::try_from(step.attempts.len()).unwrap_or(i64::MAX)),
        ];
        attributes.extend(step.is_call.then(|| json!({ "key": "annals.call", "value": { "boolValue": true } })));
        let id = span_id(&format!("task {}", step.task));
        let times = (step.started_at, ended);
        self.spans.push(span(&trace, &id, Some(&parent), &step.name, INTERNAL, times, attributes, failure.as_deref()));
        Ok(())
    }

    /// Adds the span of a model call: from the checkpoint before it to its own.
    fn add_call(&mut self, number: usize, call: &UsageCall) -> Result<(), StoreError> {
        let at = match self.thread.with_namespace(call.point.namespace.clone()).at(call.point.checkpoint) {
            Err(StoreError::CheckpointPruned { .. }) => {
                self.pruned += 1;
                return Ok(());
            }
            at => at?,
        };
        let ended = at.created_at();
        let begun = match at.parent() {
            Ok(parent) => parent.map_or(ended, |parent| parent.created_at().min(ended)),
            Err(StoreError::CheckpointPruned { .. }) => ended,
            Err(error) => return Err(error),
        };
        let (trace, parent) = self.run_of(at.record().run.map(|run| run.to_string()), begun, ended, None);
        let mut attributes = vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.conversation.id", self.thread.id().as_str()),
            int("gen_ai.usage.input_tokens", i64::try_from(call.input_tokens).unwrap_or(i64::MAX)),
            int("gen_ai.usage.output_tokens", i64::try_from(call.output_tokens).unwrap_or(i64::MAX)),
        ];
        if let Some(model) = &call.model {
            attributes.extend([text("gen_ai.request.model", model), text("gen_ai.response.model", model)]);
            attributes.extend(provider(model).map(|provider| text("gen_ai.provider.name", provider)));
        }
        attributes.extend(call.node.as_ref().map(|node| text("annals.node", node)));
        attributes
            .extend(call.cost_usd.map(|cost| json!({ "key": "annals.cost_usd", "value": { "doubleValue": cost } })));
        let name = format!("chat {}", call.model.as_deref().unwrap_or_default());
        let id = span_id(&format!("call {} {number}", call.point.checkpoint));
        self.spans.push(span(&trace, &id, Some(&parent), name.trim_end(), CLIENT, (begun, ended), attributes, None));
        Ok(())
    }

    /// Extends the span of a run to a time, and returns the ids of its trace and its span. Commits without a run are
    /// one trace of the thread.
    fn run_of(
        &mut self,
        run: Option<String>,
        begin: Timestamp,
        end: Timestamp,
        failure: Option<&String>,
    ) -> (String, String) {
        let key = run.unwrap_or_default();
        let thread = self.thread.id().as_str();
        let run = self.runs.entry(key.clone()).or_insert_with(|| {
            let digits: String = key.chars().filter(char::is_ascii_hexdigit).collect();
            let is_id = digits.len() == 32 && digits.contains(|digit| digit != '0');
            let of_thread = || format!("{}{}", span_id(&format!("trace {thread}")), span_id(&format!("of {thread}")));
            RunSpan { trace: if is_id { digits } else { of_thread() }, begin, end, failure: None }
        });
        (run.begin, run.end) = (run.begin.min(begin), run.end.max(end));
        if run.failure.is_none() {
            run.failure = failure.cloned();
        }
        (run.trace.clone(), span_id(&format!("run {thread} {key}")))
    }

    fn add_runs(&mut self) {
        let thread = self.thread.id().as_str();
        for (key, run) in &self.runs {
            let graph = if self.graph.is_empty() { thread } else { &self.graph };
            let attributes = vec![
                text("gen_ai.operation.name", "invoke_workflow"),
                text("gen_ai.workflow.name", graph),
                text("gen_ai.conversation.id", thread),
                text("annals.run", key),
            ];
            let (id, name) = (span_id(&format!("run {thread} {key}")), format!("invoke_workflow {graph}"));
            let times = (run.begin, run.end);
            self.spans.push(span(&run.trace, &id, None, &name, INTERNAL, times, attributes, run.failure.as_deref()));
        }
    }

    /// Writes a line, if so many spans wait.
    fn flush(&mut self, least: usize, out: &mut Printer) -> Result<(), CommandFailure> {
        if self.spans.len() < least {
            return Ok(());
        }
        self.written += self.spans.len();
        let service = if self.graph.is_empty() { "annals" } else { &self.graph };
        out.json_line(&json!({ "resourceSpans": [{
            "resource": { "attributes": [text("service.name", service)] },
            "scopeSpans": [{
                "scope": { "name": "annals", "version": env!("CARGO_PKG_VERSION") },
                "spans": std::mem::take(&mut self.spans),
            }],
        }] }))?;
        Ok(())
    }
}

/// Returns the end of a step. Of one that failed and whose end is not stored it is that of its last attempt of which
/// one is, or else its begin.
fn end_of(step: &StepInfo) -> Option<Timestamp> {
    let has_failed = matches!(step.state, StepState::Failed | StepState::Cancelled);
    let of_attempt = || step.attempts.iter().rev().find_map(|attempt| attempt.ended_at).unwrap_or(step.started_at);
    step.ended_at.or_else(|| has_failed.then(of_attempt))
}

fn span(
    trace: &str,
    id: &str,
    parent: Option<&str>,
    name: &str,
    kind: u64,
    (begin, end): (Timestamp, Timestamp),
    attributes: Vec<Json>,
    failure: Option<&str>,
) -> Json {
    debug_assert!(trace.len() == 32 && id.len() == 16, "ids have 16 and 8 bytes");
    // Clocks may have been set back meanwhile.
    let (begin, end) = (nanos(begin), nanos(end.max(begin)));
    let mut span = json!({
        "traceId": trace,
        "spanId": id,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": begin,
        "endTimeUnixNano": end,
        "attributes": attributes,
        "status": {},
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = json!(parent);
    }
    if let Some(message) = failure {
        span["status"] = json!({ "code": ERROR, "message": message });
    }
    span
}

/// Returns a timestamp in nanoseconds as a text of digits: JSON has no numbers of 64 bits.
fn nanos(at: Timestamp) -> String {
    i128::from(at.as_micros()).max(0).saturating_mul(1_000).to_string()
}

fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn int(key: &str, value: i64) -> Json {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn provider(model: &str) -> Option<&'static str> {
    let name = model.rsplit('/').next().unwrap_or(model);
    PROVIDERS.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, provider)| *provider)
}

/// Returns the 16 digits of a hash (FNV-1a), none of which is that of zero.
fn span_id(of: &str) -> String {
    let hash = of
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:016x}", hash.max(1))
}
