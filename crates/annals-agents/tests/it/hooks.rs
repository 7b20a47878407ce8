//! Hooks and fallback models in runs that stop and are resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_agents::{
    Agent, AgentTool, ChatCall, DeferredResults, FunctionModel, HistoryProcessor, ModelError, ReactAgent, ReactState,
    ReviewDecision, ScriptedResponse, TestModel, ToolReview,
};
use annals_graph::prelude::*;
use annals_messages::ToolCall;
use annals_pydantic_ai::ToolContent;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

fn weather() -> AgentTool {
    AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city)))
}

/// A model that counts its requests, and fails those with these numbers.
fn failing(count: &Arc<AtomicUsize>, fails: &'static [usize]) -> FunctionModel {
    let count = Arc::clone(count);
    FunctionModel::answering(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        at if fails.contains(&at) => Err(ModelError::fatal("out of order")),
        at => Ok(format!("answer {at}")),
    })
}

#[test]
fn a_resumed_run_does_not_ask_a_failed_model_again() {
    let (first, second) = (Arc::default(), Arc::default());
    let agent = || Agent::new(failing(&first, &[0])).fallback(failing(&second, &[0]));
    let thread = Store::memory().thread("t").unwrap();
    // Both fail: the run stops after the choice of the second model was stored.
    let error = agent().run("x").thread(&thread).invoke().unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
    let result = agent().resume(&thread).invoke().unwrap();
    assert_eq!(
        (result.output.as_str(), first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)),
        ("answer 1", 1, 2)
    );

    // The next request asks the first model.
    assert_eq!(agent().run("y").thread(&thread).invoke().unwrap().output, "answer 1");
    assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn a_react_agent_that_is_resumed_does_not_ask_a_failed_model_again() {
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let model = |at: usize| {
        let count = Arc::clone(&counts[at]);
        move |_: &ChatCall| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Err(ModelError::fatal("out of order")),
            _ => Ok(Message::ai(format!("model {at}"))),
        }
    };
    let agent = ReactAgent::new(model(0)).fallback(model(1)).compile().unwrap();
    let thread = Store::memory().thread("t").unwrap();
    assert!(agent.invoke(&thread, ReactState::update().messages([Message::human("hi")])).is_err());
    let done = agent.run(&thread).invoke(annals_graph::Input::Continue).unwrap();
    assert_eq!(done.state().messages.last().unwrap().text(), "model 1");
    assert_eq!(counts.each_ref().map(|count| count.load(Ordering::SeqCst)), [1, 2]);
}

#[test]
fn a_summary_is_made_once_whatever_model_answers_after_it() {
    let summaries: Arc<AtomicUsize> = Arc::default();
    let talk = Agent::new(TestModel::script(["one"])).run("1").invoke().unwrap();
    let counts = (Arc::default(), Arc::default());
    let compaction = HistoryProcessor::summarise(failing(&summaries, &[]), 2, 1);
    let agent = Agent::new(failing(&counts.0, &[0])).fallback(failing(&counts.1, &[])).history_processor(compaction);
    let result = agent.run("2").message_history(talk.all_messages()).invoke().unwrap();
    assert_eq!((result.all_messages().len(), summaries.load(Ordering::SeqCst)), (3, 1));
}

#[test]
fn redacted_results_and_approvals_by_name_hold_when_a_run_is_resumed() {
    let calls = ["Bern", "Rome"].map(|city| ("weather".to_owned(), json!({"city": city})));
    let model = || TestModel::script([ScriptedResponse::calls(calls.clone()), "Done.".into()]);
    let agent = || {
        Agent::new(model()).tool(weather()).approve_tools(["weather"]).after_tool(|part, _| {
            let text = part.content.to_value().as_str().unwrap_or_default().replace("Bern", "(city)");
            part.content = ToolContent::text(text);
        })
    };
    let thread = Store::memory().thread("t").unwrap();
    let waiting = agent().run("x").thread(&thread).outcome().unwrap().waiting().unwrap();
    let ids: Vec<_> = waiting.requests.approvals.iter().map(|call| call.tool_call_id.clone()).collect();
    let first = agent().resume_with(&thread, DeferredResults::new().approve(&ids[0])).outcome().unwrap();
    assert_eq!(first.waiting().unwrap().requests.approvals.len(), 1);
    let result = agent().resume_with(&thread, DeferredResults::new().approve(&ids[1])).invoke().unwrap();
    let texts: Vec<_> =
        result.langchain_messages().unwrap().iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(texts[2..], ["rain in (city)", "rain in Rome", "Done."]);
}

#[test]
fn a_limit_holds_when_a_run_is_resumed_and_a_wrong_decision_can_be_taken_again() {
    let asked: Arc<AtomicUsize> = Arc::default();
    let agent = || {
        let asked = Arc::clone(&asked);
        let model = move |_: &ChatCall| {
            let id = format!("c{}", asked.fetch_add(1, Ordering::SeqCst));
            Ok(Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id(id)))
        };
        let review = ToolReview::new().tool("weather");
        ReactAgent::new(model).tool(weather()).model_limit(2).review(review).compile().unwrap()
    };
    let decide = |decisions: serde_json::Value| Command::resume(Value::from(json!({"decisions": decisions})));
    let thread = Store::memory().thread("t").unwrap();
    agent().invoke(&thread, ReactState::update().messages([Message::human("hi")])).unwrap();
    let error = agent().invoke(&thread, decide(json!([]))).unwrap_err();
    assert!(error.to_string().contains("$.decisions"), "{error}");
    let error = agent().invoke(&thread, decide(json!([{"type": "maybe"}]))).unwrap_err();
    assert!(error.to_string().contains("$.decisions"), "{error}");
    agent().invoke(&thread, decide(json!([{"type": "approve"}]))).unwrap();
    let done = agent().invoke(&thread, decide(json!([{"type": "reject", "message": "no"}]))).unwrap();
    let texts: Vec<_> = done.state().messages.iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(texts[2], "rain in Bern");
    assert!(texts[4].ends_with("no") && texts[5].contains("limit of 2 requests"), "{texts:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn a_decision_that_one_of_the_tools_does_not_allow_is_asked_for_again() {
    let call = |name: &str| ToolCall::new(name, [("city", "Bern")]).with_id(name);
    let model = move |asked: &ChatCall| match asked.messages.len() {
        1 => Ok(Message::ai("").with_tool_call(call("weather")).with_tool_call(call("book"))),
        _ => Ok(Message::ai("Done.")),
    };
    let book = AgentTool::new("book", |city: City| Ok(format!("booked {}", city.city)));
    let review = ToolReview::new().tool("weather").tool_with("book", [ReviewDecision::Approve]);
    let agent = ReactAgent::new(model).tool(weather()).tool(book).review(review).compile().unwrap();
    let decide =
        |second: &str| Command::resume(Value::from(json!({"decisions": [{"type": "approve"}, {"type": second}]})));
    let thread = Store::memory().thread("t").unwrap();
    agent.invoke(&thread, ReactState::update().messages([Message::human("hi")])).unwrap();
    let again = agent.invoke(&thread, decide("reject")).unwrap();
    let problem = again.interrupts()[0].value.get("problem").cloned().unwrap();
    assert_eq!(problem, "decision \"reject\" about tool \"book\" is none of: approve");
    let done = agent.invoke(&thread, decide("approve")).unwrap();
    assert_eq!(done.state().messages.len(), 5);
}
