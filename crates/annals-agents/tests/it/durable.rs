//! Runs on threads: the history they go on with, undo, steps, and runs that did not end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use annals_agents::{
    Agent, AgentErrorKind, AgentOutcome, AgentStep, AgentTool, FunctionModel, ScriptedResponse, TestModel,
};
use annals_graph::prelude::*;
use annals_pydantic_ai::{ModelMessage, ToolOutcome, dump, to_langchain};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

fn agent() -> Agent {
    let call = ScriptedResponse::call("weather", json!({"city": "Bern"}));
    let model = TestModel::script([call, "rain".into(), "still rain".into()]);
    Agent::new(model).tool(AgentTool::new("weather", |city: City| Ok(format!("rain in {}", city.city))))
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

#[test]
fn the_thread_of_an_agent_is_one_of_messages() {
    let thread = Store::memory().thread("t").unwrap();
    let result = agent().run("The weather?").thread(&thread).invoke().unwrap();
    let stored = thread.with_state::<Chat>().state().unwrap().messages.to_vec();
    let lines: Vec<String> = stored.iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "human: The weather?");
    assert_eq!(lines[2..], ["tool (weather): rain in Bern", "ai: rain"]);
    assert_eq!(result.langchain_messages().unwrap().len(), 4);
    let names: Vec<String> =
        thread.steps().unwrap().map(|step| step.unwrap().name.to_string()).filter(|name| name != "__start__").collect();
    assert!(names.contains(&"model".to_owned()) && names.contains(&"weather".to_owned()), "{names:?}");
}

#[test]
fn a_thread_with_messages_of_langchain_goes_on() {
    let thread = Store::memory().thread("t").unwrap();
    let graph = StateGraph::<Chat>::new()
        .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
        .edge(START, "answer")
        .compile()
        .unwrap();
    graph.invoke(&thread, Chat::update().messages([Message::system("Be brief."), Message::human("hi")])).unwrap();

    let agent = Agent::new(TestModel::script(["not asked", "good day"]));
    let result = agent.run("again").thread(&thread).invoke().unwrap();
    assert_eq!((result.all_messages().len(), result.new_messages().len()), (4, 2));
    let chat = thread.with_state::<Chat>().state().unwrap();
    let texts: Vec<_> = chat.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["Be brief.", "hi", "hello", "again", "good day"]);

    // And a graph goes on with the thread of the agent.
    graph.invoke(&thread, Chat::update().messages([Message::human("bye")])).unwrap();
    assert_eq!(agent.history(&thread).unwrap().len(), 6);
    assert_eq!(to_langchain(result.new_messages(), false).unwrap().len(), 2);
}

/// Counts the messages that say a word.
fn counting(word: &'static str) -> Agent {
    Agent::new(FunctionModel::answering(move |call| Ok(dump(&call.messages).matches(word).count().to_string())))
}

#[test]
fn a_thread_that_was_edited_between_runs_is_read_anew() {
    let thread = Store::memory().thread("t").unwrap();
    let agent = counting("secret");
    let first = agent.run("a secret").thread(&thread).invoke().unwrap();
    assert_eq!(first.output, "1");
    let chat = thread.with_state::<Chat>();
    let prompt = chat.state().unwrap().messages[0].clone();
    let edited = Message::human("a word").with_id(prompt.id.unwrap());
    chat.update(Chat::update().messages([edited])).unwrap();
    let second = agent.run("and now?").thread(&thread).abandon_unfinished().invoke().unwrap();
    assert_eq!(second.output, "0");
    assert_eq!((first.all_messages().len(), second.all_messages().len()), (2, 4));
}

#[test]
fn a_valid_history_is_neither_copied_for_a_request_nor_converted_for_the_next_run() {
    let thread = Store::memory().thread("t").unwrap();
    let shared = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&shared);
    let known = Mutex::new(None);
    let agent = agent().before_model(move |call, info| {
        counted.fetch_add(usize::from(call.messages.as_ptr() == info.messages.as_ptr()), Ordering::Relaxed);
        let Some(ModelMessage::Request(first)) = info.messages.first() else { return Ok(()) };
        let place = first.parts.as_ptr();
        assert_eq!(*known.lock().unwrap().get_or_insert(place as usize), place as usize);
        Ok(())
    });
    agent.run("The weather?").thread(&thread).invoke().unwrap();
    agent.run("And now?").thread(&thread).invoke().unwrap();
    assert_eq!(shared.load(Ordering::Relaxed), 3);
}

#[test]
fn progress_is_stored_where_it_does_not_follow_from_the_messages() {
    let thread = Store::memory().thread("t").unwrap();
    let result = agent().run("The weather?").thread(&thread).invoke().unwrap();
    let stored = |thread: &Thread| {
        thread
            .head()
            .unwrap()
            .unwrap()
            .evolution("agent_run")
            .map(Result::unwrap)
            .filter(|at| at.value.is_some())
            .count()
    };
    assert_eq!(stored(&thread), 0, "the messages say all of it");
    assert_eq!((result.usage().requests, result.usage().tool_calls), (2, 1));
    assert_eq!((result.new_message_index(), agent().resume(&thread).invoke().unwrap().run_id()), (0, result.run_id()));

    let mut resumed = 0;
    for (number, at) in thread.history().unwrap().map(Result::unwrap).enumerate() {
        if at.next().next().is_some_and(|node| node != "__start__") {
            let fork = at.fork_to(format!("fork-{number}")).unwrap();
            let again = agent().resume(&fork).invoke().unwrap();
            assert_eq!((again.output.as_str(), again.usage()), ("rain", result.usage()));
            assert_eq!(again.new_messages().len(), 4);
            resumed += 1;
        }
    }
    assert_eq!(resumed, 3, "before each step");

    // A call that fails counts as a retry of its tool.
    let wrong = ScriptedResponse::call("weather", json!({}));
    let model = TestModel::script([wrong, ScriptedResponse::call("weather", json!({"city": "Bern"})), "dry".into()]);
    let tool = AgentTool::new("weather", |city: City| Ok(city.city));
    let other = Store::memory().thread("t").unwrap();
    let retried = Agent::new(model).tool(tool).run("The weather?").thread(&other).invoke().unwrap();
    assert_eq!(stored(&other), 2, "with the retry, and without it");
    assert_eq!((retried.usage().requests, retried.usage().tool_calls, retried.new_messages().len()), (3, 1, 6));
}

#[test]
fn a_run_goes_on_after_its_messages_were_replaced() {
    let thread = Store::memory().thread("t").unwrap();
    let agent = counting("secret");
    let first = agent.run("a secret").thread(&thread).invoke().unwrap();
    assert!(agent.run("another secret").thread(&thread).iter().unwrap().next().unwrap().is_ok());
    let begun = thread.history().unwrap().map(Result::unwrap).find(|at| at.next().any(|node| node == "model"));
    let fork = begun.unwrap().fork_to("fork").unwrap();
    let chat = fork.with_state::<Chat>();
    let prompt = chat.state().unwrap().messages.last().unwrap().clone();
    chat.update(Chat::update().messages([Message::human("a word").with_id(prompt.id.unwrap())])).unwrap();
    let resumed = agent.resume(&fork).invoke().unwrap();
    assert_eq!((resumed.output.as_str(), resumed.all_messages().len(), resumed.new_messages().len()), ("1", 4, 1));
    assert_ne!(resumed.run_id(), first.run_id());
    assert_eq!(resumed.conversation_id(), first.conversation_id());
}

#[test]
fn undo_goes_back_a_turn() {
    let thread = Store::memory().thread("t").unwrap();
    let agent = agent();
    agent.run("The weather?").thread(&thread).invoke().unwrap();
    let before = thread.head().unwrap().unwrap();
    agent.run("And now?").thread(&thread).invoke().unwrap();
    assert_eq!(agent.history(&thread).unwrap().len(), 6);
    assert!(agent.take_back(&thread).unwrap());
    assert_eq!(thread.head().unwrap().unwrap().id(), before.id());
    assert_eq!(agent.history(&thread).unwrap().len(), 4);
    let again = agent.run("And tomorrow?").thread(&thread).invoke().unwrap();
    assert_eq!((again.output.as_str(), again.all_messages().len()), ("still rain", 6));
    assert!(agent.take_back(&thread).unwrap());
    thread.undo().unwrap().unwrap();
    assert_eq!(agent.history(&thread).unwrap(), again.all_messages());
    assert!(agent.take_back(&thread).unwrap());
    assert_eq!(agent.history(&thread).unwrap().len(), 4);
    assert!(!agent.take_back(&thread).unwrap());
}

#[test]
fn a_run_that_has_not_ended_is_resumed_or_abandoned() {
    let thread = Store::memory().thread("t").unwrap();
    let model = || {
        let call = ScriptedResponse::call("weather", json!({"city": "Bern"}));
        TestModel::script([call, "it was cancelled".into()])
    };
    let weather = |approval: bool| {
        let tool = AgentTool::new("weather", |city: City| Ok(city.city));
        if approval { tool.requires_approval() } else { tool }
    };
    let agent = Agent::new(model()).tool(weather(true));
    let waiting = agent.run("The weather?").thread(&thread).outcome().unwrap();
    assert!(matches!(waiting, AgentOutcome::Waiting(_)));
    let refused = agent.run("Stop").thread(&thread).invoke().unwrap_err();
    assert_eq!((refused.kind(), refused.messages().len()), (AgentErrorKind::Input, 2));

    let result = agent.run("Stop").thread(&thread).abandon_unfinished().invoke().unwrap();
    assert_eq!(result.output, "it was cancelled");
    let ModelMessage::Request(closed) = &result.all_messages()[2] else { panic!("a request") };
    let annals_pydantic_ai::RequestPart::ToolReturn(part) = &closed.parts[0] else { panic!("a result") };
    assert_eq!(part.outcome, ToolOutcome::Interrupted);
    assert_eq!(agent.requests(&thread).unwrap(), None);
}

#[test]
fn a_thread_with_messages_takes_no_other_history() {
    let thread = Store::memory().thread("t").unwrap();
    let result = agent().run("The weather?").thread(&thread).invoke().unwrap();
    let history = result.all_messages().to_vec();
    let refused = agent().run("x").thread(&thread).message_history(history.clone()).invoke().unwrap_err();
    assert_eq!(refused.kind(), AgentErrorKind::Input);
    let other = Store::memory().thread("other").unwrap();
    let moved = agent().run("And now?").thread(&other).message_history(history).invoke().unwrap();
    assert_eq!((moved.output.as_str(), moved.all_messages().len()), ("still rain", 6));
    assert_eq!(agent().history(&other).unwrap(), moved.all_messages());
}

#[test]
fn steps_are_shown_as_they_are_stored() {
    let thread = Store::memory().thread("t").unwrap();
    agent().run("The weather?").thread(&thread).invoke().unwrap();
    let agent = agent();
    let steps: Vec<_> = agent.run("And now?").thread(&thread).iter().unwrap().map(Result::unwrap).collect();
    assert!(
        matches!(&steps[..], [AgentStep::Request(_), AgentStep::Response(_), AgentStep::End(_)]),
        "{} steps",
        steps.len()
    );
    // An iterator that is dropped leaves a run that can be resumed.
    let other = Store::memory().thread("t").unwrap();
    assert!(agent.run("The weather?").thread(&other).iter().unwrap().next().unwrap().is_ok());
    assert_eq!(agent.resume(&other).invoke().unwrap().output, "rain");
}

#[test]
fn a_run_is_awaited_on_a_thread() {
    let folder = tempfile::tempdir().unwrap();
    let thread = Store::open(folder.path().join("chats.db")).unwrap().thread("t").unwrap();
    let agent = agent();
    let result = annals_graph::block_on(agent.run("The weather?").thread(&thread).ainvoke()).unwrap();
    assert_eq!((result.output.as_str(), result.usage().requests), ("rain", 2));
    let second = annals_graph::block_on(agent.run("And now?").thread(&thread).ainvoke()).unwrap();
    assert_eq!(second.new_messages().len(), 2);
}
