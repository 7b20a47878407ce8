//! Runs that are read while they happen, and the events of runs that are not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_agents::{
    Agent, AgentErrorKind, AgentEvent, AgentTool, FunctionModel, ModelError, OutputMode, ResponseChunk, ResponseStream,
    ScriptedResponse, TestModel,
};
use annals_graph::prelude::*;
use annals_pydantic_ai::{ModelMessage, ResponseState, StreamedToolCall, ToolArgs};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Debug, PartialEq)]
struct Trip {
    city: String,
    #[serde(default)]
    nights: Option<u8>,
}

fn chunks(texts: &'static [&'static str]) -> FunctionModel {
    FunctionModel::new(|_| Err(ModelError::fatal("this model streams")))
        .in_chunks(move |_| Ok(ResponseStream::ready(texts.iter().copied().map(ResponseChunk::text).map(Ok))))
}

#[test]
fn a_typed_output_is_read_as_it_grows() {
    let model = FunctionModel::new(|_| Err(ModelError::fatal("this model streams"))).in_chunks(|_| {
        let chunk = |(at, args): (usize, &str)| {
            let mut chunk = StreamedToolCall::default();
            chunk.tool_name = (at == 0).then(|| "final_result".to_owned());
            chunk.args = Some(ToolArgs::Text(args.to_owned()));
            Ok(ResponseChunk::ToolCall { key: Some("0".into()), chunk })
        };
        let texts = [r#"{"city": "#, r#""Bern""#, r#", "nights": 2}"#];
        Ok(ResponseStream::ready(texts.into_iter().enumerate().map(chunk).collect::<Vec<_>>()))
    });
    let agent = Agent::new(model).output::<Trip>(OutputMode::Tool);
    let mut run = agent.run("x").stream().unwrap();
    let outputs: Vec<Trip> = run.outputs().collect::<Result<_, _>>().unwrap();
    let bern = |nights| Trip { city: "Bern".into(), nights };
    assert_eq!(outputs, [bern(None), bern(Some(2)), bern(Some(2))]);
    assert!(run.is_complete());
    assert_eq!(run.all_messages().len(), 3);
}

#[test]
fn a_stream_that_is_dropped_leaves_a_run_that_can_be_resumed() {
    let agent = Agent::new(chunks(&["Good ", "day"]));
    let thread = Store::memory().thread("t").unwrap();
    let mut run = agent.run("hi").thread(&thread).stream().unwrap();
    assert_eq!(run.texts().next().unwrap().unwrap(), "Good ");
    assert!(!run.is_complete());
    drop(run);

    assert_eq!(agent.history(&thread).unwrap().len(), 1);
    let refused = agent.run("again").thread(&thread).invoke().unwrap_err();
    assert_eq!(refused.kind(), AgentErrorKind::Input);
    let result = agent.resume(&thread).on_event(|_| ()).invoke().unwrap();
    assert_eq!((result.output.as_str(), result.all_messages().len()), ("Good day", 2));
}

#[test]
fn a_stream_that_is_cancelled_keeps_its_text_and_ends_the_run() {
    let agent = Agent::new(chunks(&["Good ", "day"]));
    let thread = Store::memory().thread("t").unwrap();
    let mut run = agent.run("hi").thread(&thread).stream().unwrap();
    run.cancel().unwrap();
    let Some(ModelMessage::Response(last)) = run.all_messages().last() else { panic!("a response") };
    assert_eq!((last.text().as_deref(), last.state), (Some("Good "), ResponseState::Interrupted));
    assert_eq!(run.finish().unwrap_err().kind(), AgentErrorKind::Stopped);
    drop(run);
    let result = agent.run("again").thread(&thread).on_event(|_| ()).invoke().unwrap();
    assert_eq!((result.output.as_str(), result.all_messages().len()), ("Good day", 4));
}

#[test]
fn text_of_a_response_that_breaks_off_is_a_partial_message_of_the_thread() {
    let model = FunctionModel::new(|_| Err(ModelError::fatal("this model streams"))).in_chunks(|_| {
        let broken = [Ok(ResponseChunk::text("The Gasthof ")), Err(ModelError::fatal("the line is dead"))];
        Ok(ResponseStream::ready(broken))
    });
    let folder = tempfile::tempdir().unwrap();
    let thread = Store::open(folder.path().join("chats.db")).unwrap().thread("trip").unwrap();
    let run = Agent::new(model).run("A hotel?").thread(&thread).persist_text_every(Duration::ZERO).invoke();
    assert_eq!(run.unwrap_err().kind(), AgentErrorKind::Model);
    assert_eq!(thread.partial().unwrap().unwrap().content.message.text(), "The Gasthof ");

    // The other model answers, and the partial message is gone.
    let agent = Agent::new(TestModel::script(["The Bellevue."]));
    let result = agent.resume(&thread).invoke().unwrap();
    assert_eq!((result.output.as_str(), result.all_messages().len()), ("The Bellevue.", 2));
    assert!(thread.partial().unwrap().is_none());
}

#[test]
fn a_run_that_is_awaited_shows_its_events() {
    let model = TestModel::script([ScriptedResponse::call("look", json!({"city": "Bern"})), "rain".into()]);
    let agent = Agent::new(model).tool(AgentTool::new("look", |trip: Trip| Ok(trip.city)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let run = agent.run("x").on_event(move |event: &AgentEvent| {
        let kind = event.to_value()["event_kind"].as_str().unwrap().to_owned();
        log.lock().unwrap().push(kind);
    });
    let result = annals_graph::block_on(run.ainvoke()).unwrap();
    assert_eq!(result.output, "rain");
    let call = ["part_start", "part_end", "function_tool_call", "function_tool_result"];
    let text = ["part_start", "final_result", "part_end"];
    assert_eq!(*seen.lock().unwrap(), [&call[..], &text[..]].concat());
}

#[test]
fn a_stream_that_waits_for_an_approval_says_so() {
    let model = TestModel::script([ScriptedResponse::call("look", json!({"city": "Bern"})), "rain".into()]);
    let agent = Agent::new(model).tool(AgentTool::new("look", |trip: Trip| Ok(trip.city)).requires_approval());
    let error = agent.run("x").stream().unwrap_err();
    assert_eq!((error.kind(), error.requests().unwrap().approvals.len()), (AgentErrorKind::Waiting, 1));
}

#[test]
fn a_stream_that_is_awaited_is_read_dropped_and_resumed() {
    let agent = Agent::new(chunks(&["Good ", "day"]));
    let folder = tempfile::tempdir().unwrap();
    let thread = Store::open(folder.path().join("chats.db")).unwrap().thread("t").unwrap();
    let read = async {
        let mut run = agent.run("hi").thread(&thread).astream().await?;
        assert_eq!(run.next_text().await?.as_deref(), Some("Good "));
        assert_eq!((run.all_messages().len(), run.is_complete()), (1, false));
        drop(run);
        let mut again = agent.resume(&thread).astream().await?;
        let mut texts = Vec::new();
        while let Some(text) = again.next_text().await? {
            texts.push(text);
        }
        assert_eq!((texts, again.is_complete()), (vec!["Good ".to_owned(), "day".to_owned()], true));
        again.finish().await
    };
    let result = annals_graph::block_on(read).unwrap();
    assert_eq!((result.output.as_str(), result.all_messages().len()), ("Good day", 2));

    let cancelled = async {
        let mut run = agent.run("again").thread(&thread).astream().await?;
        run.cancel().await?;
        assert_eq!(run.response().state, ResponseState::Interrupted);
        run.finish().await
    };
    assert_eq!(annals_graph::block_on(cancelled).unwrap_err().kind(), AgentErrorKind::Stopped);
}
