//! The spans of `tracing`: their names, parents and attributes, and values only if the agent says so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use annals_agents::{
    Agent, AgentTool, DeferredResults, FunctionModel, ModelError, ModelRetry, ScriptedResponse, TestModel, ToolContext,
};
use annals_graph::graph::RetryPolicy;
use annals_graph::prelude::*;
use annals_pydantic_ai::ModelResponse;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const SECRET: &str = "a word that no span shows";

/// A span: its parent by its place among all, and its attributes.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
}

/// The spans so far. The id of a span is its place plus one.
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

std::thread_local! {
    static ENTERED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A subscriber that collects spans.
struct Collector;

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "annals"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let current = || ENTERED.with_borrow(|entered| entered.last().copied());
        let parent = if span.is_contextual() { current() } else { span.parent().map(Id::into_u64) };
        let mut seen =
            Seen { name: span.metadata().name(), parent: parent.map(|id| id as usize - 1), ..Seen::default() };
        span.record(&mut Fields(&mut seen.fields));
        let mut all = SEEN.lock().unwrap();
        all.push(seen);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut SEEN.lock().unwrap()[span.into_u64() as usize - 1].fields));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _span: &Id) {
        ENTERED.with_borrow_mut(|entered| _ = entered.pop());
    }
}

/// Returns the spans of a conversation and those in them, each with its name, that of its parent, and its attributes.
fn spans_of(thread: &str) -> Vec<(String, String, BTreeMap<&'static str, String>)> {
    let all: Vec<Seen> = SEEN.lock().unwrap().clone();
    let root = |mut at: usize| {
        while let Some(parent) = all[at].parent {
            at = parent;
        }
        all[at].fields.get("gen_ai.conversation.id").is_some_and(|id| id == thread)
    };
    let named = |seen: &Seen| seen.fields.get("otel.name").cloned().unwrap_or_else(|| seen.name.to_owned());
    let is_of_ai = |seen: &Seen| ["invoke_agent", "chat", "execute_tool"].contains(&seen.name);
    let of_thread = (0..all.len()).filter(|at| is_of_ai(&all[*at]) && root(*at));
    let parent = |seen: &Seen| seen.parent.map_or(String::new(), |parent| named(&all[parent]));
    of_thread.map(|at| (named(&all[at]), parent(&all[at]), all[at].fields.clone())).collect()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Word {
    word: String,
}

fn agent(traces_values: bool) -> Agent {
    let inner_script = [ScriptedResponse::call("spell", json!({"word": SECRET})), SECRET.into()];
    let spell = AgentTool::new("spell", |word: Word, context: &ToolContext| match context.retry() {
        0 => Err(ModelRetry::new(word.word).into()),
        _ => Ok(word.word),
    });
    let inner = Agent::new(TestModel::script(inner_script)).name("speller").tool(spell);
    let ask = AgentTool::new("ask", move |word: Word, context: &ToolContext| {
        Ok(inner.run(word.word).in_task(context).invoke()?.output)
    });
    let wait = AgentTool::new("wait", |word: Word| Ok(word.word)).requires_approval();
    let script = [
        ScriptedResponse::call("ask", json!({"word": SECRET})),
        ScriptedResponse::call("wait", json!({"word": SECRET})),
        SECRET.into(),
    ];
    let script = TestModel::script(script).with_name("small");
    let agent = Agent::new(script).name("asker").instructions(SECRET).tool(ask).tool(wait);
    if traces_values { agent.trace_values() } else { agent }
}

fn play(name: &str, traces_values: bool) {
    let (agent, thread) = (agent(traces_values), Store::memory().thread(name).unwrap());
    let waiting = agent.run(SECRET).thread(&thread).outcome().unwrap().waiting().unwrap();
    let decision = DeferredResults::new().approve(&waiting.requests.approvals[0].tool_call_id);
    assert_eq!(agent.resume_with(&thread, decision).invoke().unwrap().output, SECRET);
}

/// The tests share one subscriber, which is that of the process.
fn collect() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
}

#[test]
fn spans_have_the_names_and_places_of_the_conventions_and_no_values() {
    collect();
    play("traced", false);
    let spans = spans_of("traced");
    let places: Vec<_> = spans.iter().map(|(name, parent, _)| (name.as_str(), parent.as_str())).collect();
    let expected = [
        ("invoke_agent asker", ""),
        ("chat small", "invoke_agent asker"),
        ("execute_tool ask", "invoke_agent asker"),
        ("invoke_agent speller", "execute_tool ask"),
        ("chat test", "invoke_agent speller"),
        ("execute_tool spell", "invoke_agent speller"),
        ("chat test", "invoke_agent speller"),
        ("chat small", "invoke_agent asker"),
        ("invoke_agent asker", ""),
        ("execute_tool wait", "invoke_agent asker"),
        ("chat small", "invoke_agent asker"),
    ];
    assert_eq!(places, expected);
    assert!(!format!("{spans:?}").contains(SECRET), "{spans:?}");

    let fields = |at: usize| &spans[at].2;
    assert_eq!(fields(0)["gen_ai.operation.name"], "invoke_agent");
    assert_eq!((&*fields(0)["gen_ai.agent.name"], &*fields(0)["gen_ai.request.model"]), ("asker", "small"));
    assert_eq!((&*fields(0)["annals.outcome"], &*fields(8)["annals.outcome"]), ("waiting", "done"));
    assert_eq!(fields(3)["gen_ai.conversation.id"], "traced", "an inner run is a part of the thread");
    let (chat, tool) = (fields(1), fields(2));
    assert_eq!((&*chat["gen_ai.operation.name"], &*chat["otel.kind"]), ("chat", "client"));
    assert!(chat["gen_ai.usage.output_tokens"].parse::<i64>().is_ok(), "{chat:?}");
    assert_eq!((&*tool["gen_ai.tool.name"], &*tool["gen_ai.tool.type"]), ("ask", "function"));
    assert!(!tool["gen_ai.tool.call.id"].is_empty() && !tool.contains_key("error.type"));
    assert_eq!((&*fields(5)["error.type"], &*fields(5)["otel.status_code"]), ("retry", "error"));
}

#[test]
fn an_agent_that_says_so_traces_values() {
    collect();
    play("traced-values", true);
    let spans = spans_of("traced-values");
    let (chat, tool) = (&spans[1].2, &spans[2].2);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&chat["gen_ai.system_instructions"])[0]["content"], SECRET);
    let asked = json(&chat["gen_ai.input.messages"]);
    assert_eq!(asked, json!([{"role": "user", "parts": [{"type": "text", "content": SECRET}]}]));
    let answer = json(&chat["gen_ai.output.messages"]);
    assert_eq!((&answer[0]["role"], &answer[0]["parts"][0]["name"]), (&json!("assistant"), &json!("ask")));
    assert_eq!(json(&tool["gen_ai.tool.call.arguments"]), json!({"word": SECRET}));
    assert_eq!(json(&tool["gen_ai.tool.call.result"]), json!(SECRET));
    // The inner agent does not say so.
    assert!(!format!("{:?}", spans[4]).contains(SECRET), "{:?}", spans[4]);
}

#[test]
fn a_request_that_fails_is_a_span_for_each_attempt() {
    collect();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let model = FunctionModel::new(move |call| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Err(ModelError::transient(SECRET)),
        1 => Err(ModelError::fatal(SECRET)),
        _ => Ok(ModelResponse::new(Vec::new(), call.now())),
    });
    let soon = std::time::Duration::from_millis(1);
    let agent =
        Agent::new(model).model_retry(RetryPolicy::new().initial_interval(soon).jitter(false).on_if(
            |error: &(dyn std::error::Error + 'static)| error.downcast_ref().is_some_and(ModelError::is_transient),
        ));
    let thread = Store::memory().thread("traced-failure").unwrap();
    assert!(agent.run("hi").thread(&thread).invoke().is_err());
    let spans = spans_of("traced-failure");
    let kinds: Vec<_> = spans.iter().map(|(_, _, fields)| fields["error.type"].as_str()).collect();
    assert_eq!(kinds, ["model", "transient", "fatal"]);
    assert!(!format!("{spans:?}").contains(SECRET), "{spans:?}");
}
