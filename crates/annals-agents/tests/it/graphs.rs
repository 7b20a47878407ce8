//! The tools as a node of a graph of one's own.

use annals_agents::{
    AgentTool, DeferredRequests, DeferredResults, ToolContext, ToolErrors, ToolFailed, ToolNode, tools_condition,
};
use annals_graph::prelude::*;
use annals_messages::{ToolCall, ToolStatus};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

fn graph(node: ToolNode) -> CompiledGraph<Chat> {
    StateGraph::<Chat>::new()
        .node("tools", node.on(|chat: &Chat| &chat.messages))
        .branch(START, |chat: &Chat| tools_condition(&chat.messages))
        .compile()
        .unwrap()
}

fn calls(calls: &[(&str, serde_json::Value)]) -> Message {
    calls.iter().enumerate().fold(Message::ai(""), |message, (at, (name, args))| {
        let args: annals_base::Value = args.clone().into();
        let args = args.as_map().unwrap().iter().map(|(name, value)| (name.clone(), value.clone()));
        message.with_tool_call(ToolCall::new(*name, args).with_id(format!("c{at}")))
    })
}

fn lines(chat: &Chat) -> Vec<String> {
    let is_error = |message: &Message| message.status() == Some(ToolStatus::Error);
    chat.messages.iter().skip(1).map(|message| format!("{message} {}", is_error(message))).collect()
}

#[test]
fn errors_are_messages_and_results_keep_their_order() {
    let node = ToolNode::new([
        AgentTool::new("weather", |city: City, context: &ToolContext| {
            Ok(format!("{} in {}", context.deps::<&str>().unwrap(), city.city))
        }),
        AgentTool::new("fail", |_: City| -> NodeResult<()> { Err(ToolFailed::new("no network").into()) }),
    ]);
    let bern = json!({"city": "Bern"});
    let message =
        calls(&[("fail", bern.clone()), ("weather", json!({})), ("gone", json!({})), ("weather", bern.clone())]);
    let done = graph(node).run(()).context("rain").invoke(Chat::update().messages([message])).unwrap();
    let lines = lines(done.state());
    assert_eq!(lines[0], "tool (fail): no network true");
    assert!(lines[1].contains("Field required") && lines[1].ends_with("true"), "{lines:?}");
    assert!(lines[2].contains("\"weather\"") && lines[2].ends_with("true"), "{lines:?}");
    assert_eq!(lines[3], "tool (weather): rain in Bern false");
}

#[test]
fn other_errors_fail_the_node_unless_they_are_told() {
    let bad = || ToolNode::new([AgentTool::new("bad", |_: City| -> NodeResult<()> { Err("the disk is full".into()) })]);
    let message = || Chat::update().messages([calls(&[("bad", json!({"city": "a"}))])]);
    let error = graph(bad()).invoke((), message()).unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    let done = graph(bad().errors(ToolErrors::with(|error| Some(error.to_string())))).invoke((), message()).unwrap();
    assert_eq!(lines(done.state()), ["tool (bad): the disk is full true"]);
    let done = graph(bad()).invoke((), Chat::update().messages([Message::human("hi")])).unwrap();
    assert_eq!(done.state().messages.len(), 1);
}

#[test]
fn a_call_that_needs_an_approval_interrupts_the_graph() {
    let node = ToolNode::new([AgentTool::new("pay", |city: City| Ok(city.city)).requires_approval()]);
    let (graph, thread) = (graph(node), Store::memory().thread("t").unwrap());
    let message = calls(&[("pay", json!({"city": "a"})), ("pay", json!({"city": "b"}))]);
    let waiting = graph.invoke(&thread, Chat::update().messages([message])).unwrap();
    let requests: DeferredRequests = waiting.interrupts()[0].value.to().unwrap();
    assert_eq!(requests.approvals.len(), 2);
    let decisions = DeferredResults::new().approve("c0").refuse("c1", "no");
    let done = graph.invoke(&thread, Command::resume(Value::from_serialize(&decisions).unwrap())).unwrap();
    assert_eq!(lines(done.state()), ["tool (pay): a false", "tool (pay): no true"]);
}
