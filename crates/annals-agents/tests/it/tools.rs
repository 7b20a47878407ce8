//! Tools: arguments, retries, order, limits, approvals and results from outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use annals_agents::{
    Agent, AgentErrorKind, AgentTool, ApprovalRequired, CallDeferred, DeferredResults, ModelRetry, ScriptedResponse,
    TestModel, ToolContext, ToolFailed, ToolOutput,
};
use annals_base::{Map, Value};
use annals_graph::prelude::*;
use annals_pydantic_ai::{
    ModelMessage, RequestPart, RequestState, ToolContent, ToolOutcome, ToolRetryCause, ToolReturnPart, UsageLimits,
};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

fn script(calls: &[&[(&str, serde_json::Value)]]) -> TestModel {
    let calls = calls.iter().map(|calls| ScriptedResponse::calls(calls.iter().cloned()));
    TestModel::script(calls.chain(["done".into()]))
}

/// Returns the results of tools in a history, in order.
fn results(messages: &[ModelMessage]) -> Vec<ToolReturnPart> {
    let parts = messages.iter().filter_map(|message| match message {
        ModelMessage::Request(request) => Some(&request.parts),
        _ => None,
    });
    let results = parts.flatten().filter_map(|part| match part {
        RequestPart::ToolReturn(part) => Some(part.clone()),
        _ => None,
    });
    results.collect()
}

fn texts(messages: &[ModelMessage]) -> Vec<String> {
    results(messages).iter().map(|part| part.content.to_value().as_str().unwrap_or_default().to_owned()).collect()
}

fn weather() -> AgentTool {
    AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city)))
}

#[test]
fn the_model_is_told_what_is_wrong_with_arguments() {
    let model = script(&[&[("weather", json!({"town": "Bern"}))], &[("weather", json!({"city": "Bern"}))]]);
    let result = Agent::new(model).tool(weather()).run("x").invoke().unwrap();
    let parts = results(result.all_messages());
    assert_eq!((parts[0].outcome, parts[1].outcome), (ToolOutcome::Retried, ToolOutcome::Success));
    let retry = parts[0].retry.as_ref().unwrap();
    assert_eq!((retry.cause, retry.attempt, retry.max_retries), (ToolRetryCause::ValidationError, Some(1), Some(1)));
    let told = parts[0].content.to_value().to_json();
    assert_eq!(told, json!([{"type": "missing", "loc": ["city"], "msg": "Field required", "input": {"town": "Bern"}}]));
    assert_eq!(result.usage().tool_calls, 1);
}

#[test]
fn an_unknown_tool_is_told_and_the_others_run() {
    let model = script(&[&[("forecast", json!({})), ("weather", json!({"city": "Bern"}))]]);
    let result = Agent::new(model).tool(weather()).run("x").invoke().unwrap();
    let parts = results(result.all_messages());
    assert_eq!(parts[0].retry.as_ref().unwrap().cause, ToolRetryCause::UnknownTool);
    assert!(texts(result.all_messages())[0].contains("\"weather\""));
    assert_eq!(parts[1].outcome, ToolOutcome::Success);
}

#[test]
fn a_tool_that_fails_too_often_ends_the_run_and_a_prompt_can_follow() {
    let bad = ("weather", json!({}));
    let calls: [&[_]; 3] = [std::slice::from_ref(&bad); 3];
    let agent = Agent::new(script(&calls)).tool(weather().retries(2));
    let thread = Store::memory().thread("t").unwrap();
    let error = agent.run("x").thread(&thread).invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::Behavior);
    let Some(ModelMessage::Request(last)) = error.messages().last() else { panic!("a request") };
    assert_eq!((last.state, last.parts.len()), (RequestState::Interrupted, 0));

    let result = agent.run("go on").thread(&thread).invoke().unwrap();
    assert_eq!(result.output, "done");
    assert_eq!(results(result.all_messages()).last().unwrap().outcome, ToolOutcome::Interrupted);
}

#[test]
fn the_retries_of_a_tool_begin_anew_when_it_succeeds() {
    let (bad, good) = (("weather", json!({})), ("weather", json!({"city": "Bern"})));
    let calls = [&bad, &good, &bad, &good].map(std::slice::from_ref);
    let result = Agent::new(script(&calls)).tool(weather()).run("x").invoke().unwrap();
    let attempts: Vec<_> =
        results(result.all_messages()).iter().filter_map(|part| part.retry.as_ref()?.attempt).collect();
    assert_eq!(attempts, [1, 1]);
}

#[test]
fn calls_run_at_the_same_time_and_their_results_keep_the_order_of_the_calls() {
    let barrier = Arc::new(Barrier::new(2));
    let meet = AgentTool::new("meet", move |city: City| {
        // Neither call ends before the other one has begun.
        barrier.wait();
        Ok(city.city)
    });
    let model = script(&[&[("meet", json!({"city": "Bern"})), ("meet", json!({"city": "Rome"}))]]);
    let result = Agent::new(model).tool(meet).run("x").invoke().unwrap();
    assert_eq!(texts(result.all_messages()), ["Bern", "Rome"]);
}

#[test]
fn a_sequential_tool_runs_one_call_after_another() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let note = AgentTool::new("note", move |city: City| {
        seen.lock().unwrap().push(format!("{} begins", city.city));
        seen.lock().unwrap().push(format!("{} ends", city.city));
        Ok(())
    });
    let model = script(&[&[("note", json!({"city": "a"})), ("note", json!({"city": "b"}))]]);
    Agent::new(model).tool(note.sequential()).run("x").invoke().unwrap();
    assert_eq!(*log.lock().unwrap(), ["a begins", "a ends", "b begins", "b ends"]);
}

#[test]
fn a_call_that_takes_too_long_is_stopped_and_told() {
    let hang = AgentTool::new("hang", |city: City| async move {
        if city.city == "slow" { std::future::pending().await } else { Ok(city.city) }
    });
    let model = script(&[&[("hang", json!({"city": "slow"}))], &[("hang", json!({"city": "Bern"}))]]);
    let agent = Agent::new(model).tool(hang.timeout(Duration::from_millis(5)));
    let result = agent.run("x").invoke().unwrap();
    assert_eq!(texts(result.all_messages()), ["The call took too long and was stopped.", "Bern"]);
}

#[test]
fn an_agent_that_cannot_run_says_why() {
    let agent = Agent::new(TestModel::new()).tool(weather().timeout(Duration::from_secs(1)));
    let error = agent.run("x").invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::Input);
    assert!(error.to_string().contains("\"weather\" runs on a thread"), "{error}");

    let agent = Agent::new(TestModel::new()).tool(weather()).tool(weather());
    let error = agent.run("x").invoke().unwrap_err();
    assert!(error.to_string().contains("two tools with the name \"weather\""), "{error}");
}

#[test]
fn a_failure_is_told_without_another_attempt_and_outputs_have_metadata_and_content() {
    let fail = AgentTool::new("fail", |_: City| -> NodeResult<()> { Err(ToolFailed::new("no network").into()) });
    let map = AgentTool::new("map", |city: City| {
        let output = ToolOutput::new(ToolContent::data(json!({"map of": city.city}).into()));
        Ok(output.with_metadata("kept").with_user_content("Look at the map."))
    });
    let model = script(&[&[("fail", json!({"city": "a"})), ("map", json!({"city": "Bern"}))]]);
    let result = Agent::new(model).tool(fail).tool(map).run("x").invoke().unwrap();
    let parts = results(result.all_messages());
    assert_eq!((parts[0].outcome, parts[0].retry.is_none()), (ToolOutcome::Failed, true));
    assert_eq!(parts[1].metadata, "kept");
    assert_eq!(parts[1].content.to_value()["map of"], "Bern");
    let ModelMessage::Request(request) = &result.all_messages()[2] else { panic!("a request") };
    assert!(matches!(&request.parts[2], RequestPart::UserPrompt(_)));
}

#[test]
fn a_tool_that_raises_ends_the_run_and_only_it_runs_again() {
    let (runs, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, failing) = (Arc::clone(&runs), Arc::clone(&fails));
    let good = AgentTool::new("good", move |_: City| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok("fine")
    });
    let bad = AgentTool::new("bad", move |_: City| match failing.fetch_add(1, Ordering::SeqCst) {
        0 => Err("the disk is full".into()),
        _ => Ok("written"),
    });
    let model = script(&[&[("good", json!({"city": "a"})), ("bad", json!({"city": "a"}))]]);
    let agent = Agent::new(model).tool(good).tool(bad);
    let thread = Store::memory().thread("t").unwrap();

    let error = agent.run("x").thread(&thread).invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::Tool);
    assert!(error.to_string().contains("the disk is full"), "{error}");
    let Some(ModelMessage::Request(last)) = error.messages().last() else { panic!("a request") };
    assert_eq!((last.state, last.parts.len()), (RequestState::Interrupted, 1), "the result of the good call");

    let refused = agent.run("go on").thread(&thread).invoke().unwrap_err();
    assert_eq!(refused.kind(), AgentErrorKind::Input);
    let result = agent.resume(&thread).invoke().unwrap();
    assert_eq!(texts(result.all_messages()), ["fine", "written"]);
    assert_eq!((runs.load(Ordering::SeqCst), fails.load(Ordering::SeqCst)), (1, 2));
}

#[test]
fn more_calls_than_allowed_are_not_made() {
    let mut limits = UsageLimits::default();
    limits.tool_calls_limit = Some(1);
    let model = script(&[&[("weather", json!({"city": "a"})), ("weather", json!({"city": "b"}))]]);
    let error = Agent::new(model).tool(weather()).usage_limits(limits).run("x").invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::UsageLimit);
    assert!(results(error.messages()).is_empty());
}

#[test]
fn approvals_are_given_edited_refused_and_awaited_one_by_one() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&runs);
    let book = AgentTool::new("book", move |city: City, context: &ToolContext| {
        assert!(context.is_approved());
        ran.lock().unwrap().push(city.city.clone());
        Ok(format!("booked {}", city.city))
    });
    let calls: Vec<_> = ["a", "b", "c"].map(|city| ("book", json!({"city": city}))).into();
    let model = script(&[&[("weather", json!({"city": "x"}))], &calls]);
    let agent = Agent::new(model).tool(book.requires_approval()).tool(weather());
    let thread = Store::memory().thread("t").unwrap();
    let waiting = agent.run("x").thread(&thread).outcome().unwrap().waiting().unwrap();
    let ids: Vec<_> = waiting.requests.approvals.iter().map(|call| call.tool_call_id.clone()).collect();
    assert_eq!((ids.len(), waiting.requests.calls.len()), (3, 0));
    assert!(runs.lock().unwrap().is_empty());
    assert_eq!(agent.requests(&thread).unwrap(), Some(waiting.requests.clone()));

    let unknown = agent.resume_with(&thread, DeferredResults::new().approve("other")).outcome().unwrap_err();
    assert_eq!(unknown.kind(), AgentErrorKind::Input);
    let error = agent.resume_with(&thread, DeferredResults::new().refuse(&ids[1], "Too far.")).invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::Waiting);
    assert_eq!(error.requests().unwrap().approvals.len(), 2);

    let rest = DeferredResults::new().approve(&ids[0]).approve_with(&ids[2], json!({"city": "Bern"}));
    let result = agent.resume_with(&thread, rest).invoke().unwrap();
    assert_eq!(texts(result.all_messages())[1..], ["booked a", "Too far.", "booked Bern"]);
    assert_eq!(results(result.all_messages())[2].outcome, ToolOutcome::Denied);
    let mut ran = runs.lock().unwrap().clone();
    ran.sort();
    assert_eq!((ran, result.usage().tool_calls), (vec!["Bern".to_owned(), "a".to_owned()], 3));
    assert_eq!(agent.requests(&thread).unwrap(), None);
}

#[test]
fn a_tool_asks_for_an_approval_itself_and_edited_arguments_are_checked() {
    let pay = AgentTool::new("pay", |city: City, context: &ToolContext| {
        if city.city == "expensive" && !context.is_approved() {
            return Err(ApprovalRequired::new(json!({"francs": 900})).into());
        }
        Ok(format!("paid for {}", city.city))
    });
    let model = script(&[&[("pay", json!({"city": "cheap"})), ("pay", json!({"city": "expensive"}))]]);
    let agent = Agent::new(model).tool(pay);
    let waiting = agent.run("x").outcome().unwrap().waiting().unwrap();
    let [call] = &waiting.requests.approvals[..] else { panic!("one call waits") };
    assert_eq!(call.metadata["francs"], 900);

    let wrong = DeferredResults::new().approve_with(&call.tool_call_id, json!({"town": "Bern"}));
    let result = agent.resume_with(&waiting.thread, wrong).invoke().unwrap();
    let parts = results(result.all_messages());
    assert_eq!(parts[0].content.to_value(), "paid for cheap");
    assert_eq!(parts[1].outcome, ToolOutcome::Retried);
}

#[test]
fn results_come_from_outside() {
    let schema = || Map::from_iter([("type".to_owned(), Value::from("object"))]);
    let later = AgentTool::new("later", |_: City| -> NodeResult<()> { Err(CallDeferred::new("job 7").into()) });
    let model = script(&[&[("screen", json!({})), ("later", json!({"city": "a"})), ("screen", json!({}))]]);
    let agent = Agent::new(model).tool(AgentTool::external("screen", schema())).tool(later);
    let waiting = agent.run("x").outcome().unwrap().waiting().unwrap();
    let calls = &waiting.requests.calls;
    assert_eq!(calls[1].metadata, "job 7");
    let results = DeferredResults::new()
        .result(&calls[0].tool_call_id, json!({"seen": "a cat"}))
        .result(&calls[1].tool_call_id, "ended")
        .decide(&calls[2].tool_call_id, annals_agents::CallDecision::Fail("it is dark".into()));
    let result = agent.resume_with(&waiting.thread, results).invoke().unwrap();
    let parts = super::tools::results(result.all_messages());
    assert_eq!(parts[0].content.to_value()["seen"], "a cat");
    assert_eq!((parts[1].content.to_value(), parts[2].outcome), ("ended".into(), ToolOutcome::Failed));
}

#[test]
fn a_tool_interrupts_the_run_and_gets_the_resume_value() {
    let ask = AgentTool::new("ask", |city: City, context: &ToolContext| {
        let name = context.interrupt(format!("which {}?", city.city))?;
        Ok(format!("{} it is", name.as_str().unwrap_or_default()))
    });
    let agent = Agent::new(script(&[&[("ask", json!({"city": "hotel"}))]])).tool(ask);
    let waiting = agent.run("x").outcome().unwrap().waiting().unwrap();
    assert_eq!(waiting.interrupts[0].value, "which hotel?");
    let result = agent.resume_value(&waiting.thread, "the Gasthof").invoke().unwrap();
    assert_eq!(texts(result.all_messages()), ["the Gasthof it is"]);
}

#[test]
fn the_context_of_a_call_says_which_attempt_it_is() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let moody = AgentTool::new("moody", move |_: City, context: &ToolContext| {
        log.lock().unwrap().push((context.retry(), context.max_retries(), context.tool_call_id().to_owned()));
        if context.retry() < 2 { Err(ModelRetry::new("again").into()) } else { Ok(*context.deps::<i64>().unwrap()) }
    });
    let call = ("moody", json!({"city": "a"}));
    let model = script(&[std::slice::from_ref(&call); 3]);
    let result = Agent::new(model).tool(moody).tool_retries(2).run("x").deps(7_i64).invoke().unwrap();
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|(retry, most, _)| (*retry, *most)).collect();
    assert_eq!(seen, [(0, 2), (1, 2), (2, 2)]);
    assert_eq!(results(result.all_messages())[2].content.to_value(), 7);
}
