//! Compactions of an agent's history: the messages stay in the thread, and a process that is killed anywhere, in a hook
//! too, makes a summary once.

use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_agents::{
    Agent, AgentOutcome, AgentTool, ChatCall, FunctionModel, HistoryProcessor, ModelInput, ReactAgent, ReactState,
    ScriptedResponse, TestModel,
};
use annals_graph::annals::history::{FoldedMessages, MessageCompaction};
use annals_graph::annals::store::{ItemRange, SearchQuery};
use annals_graph::prelude::*;
use annals_pydantic_ai::{ModelMessage, RequestPart, dump};
use serde_json::json;

use crate::kills::Log;

/// Tells the child where to work, after how many lines of its log to abort, and which agent to run.
const FOLDER: &str = "ANNALS_COMPACTION_FOLDER";
const ABORT_AFTER: &str = "ANNALS_COMPACTION_ABORT";
const REACT: &str = "ANNALS_COMPACTION_REACT";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Empty {}

/// Returns a model that makes summaries, and the number of those it made.
fn summariser() -> (impl Fn() -> HistoryProcessor, Arc<AtomicUsize>) {
    let count: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&count);
    let processor = move || {
        let count = Arc::clone(&counted);
        let model = FunctionModel::answering(move |_| Ok(format!("summary {}", count.fetch_add(1, Ordering::SeqCst))));
        HistoryProcessor::summarise(model, 4, 1)
    };
    (processor, count)
}

fn texts(thread: &Thread) -> Vec<String> {
    let head = thread.head().unwrap().unwrap();
    head.model_view("messages").unwrap().iter().map(|message| message.text().into_owned()).collect()
}

fn stored(thread: &Thread) -> usize {
    thread.head().unwrap().unwrap().messages("messages", ItemRange::All).unwrap().len()
}

#[test]
fn a_summary_folds_messages_that_stay_in_the_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (processor, count) = summariser();
    let agent = || {
        let echo = FunctionModel::answering(|call| Ok(format!("of {}", call.messages.len())));
        Agent::new(echo).system_prompt("Be brief.").history_processor(processor())
    };
    let run = |n: usize| {
        // Each run reads the thread from the file.
        let thread = Store::open(&path).unwrap().thread("t").unwrap();
        let result = agent().run(format!("prompt {n}").as_str()).thread(&thread).invoke().unwrap();
        let reread = agent().history(&Store::open(&path).unwrap().thread("t").unwrap()).unwrap();
        assert_eq!(dump(&reread), dump(result.all_messages()), "what was stored is what the run went on with");
        assert_eq!(result.new_messages().len(), 2);
        thread
    };
    (0..2).for_each(|n| _ = run(n));
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let thread = run(2);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(texts(&thread), ["Be brief.", "summary 0", "prompt 2", "of 1"]);
    assert_eq!(stored(&thread), 7, "the system prompt, and three turns");
    let view = thread.head().unwrap().unwrap().folded("messages").unwrap().unwrap();
    assert_eq!(view.positions(), 0..5);

    // The second summary folds the first one and what came after it.
    run(3);
    let thread = run(4);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!(texts(&thread), ["Be brief.", "summary 1", "prompt 4", "of 1"]);
    assert_eq!(stored(&thread), 11);
    let hits = thread.store().search(SearchQuery::new("prompt 1").channel("messages")).unwrap().hits;
    assert_eq!((hits.len(), hits[0].folded), (1, true));

    // An undo goes back over it, and a fork has it.
    let fork = thread.head().unwrap().unwrap().fork_to("fork").unwrap();
    agent().take_back(&thread).unwrap();
    assert_eq!(texts(&thread), ["Be brief.", "summary 0", "prompt 2", "of 1", "prompt 3", "of 3"]);
    assert_eq!(texts(&fork), ["Be brief.", "summary 1", "prompt 4", "of 1"]);
    let result = agent().run("again").thread(&thread).invoke().unwrap();
    assert_eq!((result.output.as_str(), count.load(Ordering::SeqCst)), ("of 1", 3));
    assert_eq!(thread.store().check().unwrap().problems, []);
}

#[test]
fn a_fold_of_somebody_else_is_what_the_next_run_goes_on_with() {
    let thread = Store::memory().thread("t").unwrap();
    let agent = Agent::new(FunctionModel::answering(|call| Ok(format!("of {}", call.messages.len()))));
    for n in 0..3 {
        agent.run(format!("{n}").as_str()).thread(&thread).invoke().unwrap();
    }
    let summary = Message::human("so far");
    thread.compact("messages", MessageCompaction::new([summary]).keep_first(2).keep_last(2)).unwrap();
    let result = agent.run("3").thread(&thread).invoke().unwrap();
    assert_eq!(result.output, "of 5", "the first turn, the summary with the last turn, and the prompt");
    assert_eq!(stored(&thread), 8);
    thread.undo().unwrap();
    thread.undo().unwrap();
    assert_eq!(agent.run("4").thread(&thread).invoke().unwrap().output, "of 7", "without the fold");
}

#[test]
fn a_processor_that_changes_messages_rewrites_what_was_folded() {
    let (processor, _) = summariser();
    let thread = Store::memory().thread("t").unwrap();
    let agent = |last: Option<usize>| {
        let agent = Agent::new(TestModel::script(["x", "x", "x", "x", "x", "x"])).history_processor(processor());
        last.into_iter().fold(agent, |agent, last| agent.history_processor(HistoryProcessor::keep_last(last)))
    };
    for n in 0..3 {
        agent(None).run(format!("{n}").as_str()).thread(&thread).invoke().unwrap();
    }
    assert_eq!((texts(&thread)[0].as_str(), stored(&thread)), ("summary 0", 6));
    // It keeps all that there is, so nothing is rewritten.
    agent(Some(9)).run("3").thread(&thread).invoke().unwrap();
    assert_eq!((texts(&thread)[0].as_str(), stored(&thread)), ("summary 0", 8));
    agent(Some(1)).run("4").thread(&thread).invoke().unwrap();
    assert_eq!((texts(&thread), stored(&thread)), (vec!["4".to_owned(), "x".to_owned()], 2));
    assert_eq!(thread.head().unwrap().unwrap().folded("messages").unwrap(), None);
}

/// Returns an agent that makes a summary in its second run, with notes of the begin and the end of its calls and hooks.
fn noted_agent(log: &Log) -> Agent {
    let begins = |place: u32, name: &str, log: &Log| {
        log.note(&format!("begin {place} {name}"));
        log.note(&format!("end {place} {name}"));
    };
    let noted = log.clone();
    let model = FunctionModel::answering(move |call| {
        let Some(ModelMessage::Request(last)) = call.messages.last() else { panic!("a request") };
        let returns = last.parts.iter().any(|part| matches!(part, RequestPart::ToolReturn(_)));
        let is_second = dump(&call.messages[call.messages.len() - 1..]).contains("second");
        let (place, response) = match (returns, is_second) {
            (true, _) => (6, ScriptedResponse::from("two")),
            (false, true) => (4, ScriptedResponse::call("look", json!({}))),
            (false, false) => (1, "one".into()),
        };
        begins(place, "model", &noted);
        Ok(response)
    });
    let noted = log.clone();
    let small = FunctionModel::answering(move |_| {
        begins(3, "summary", &noted);
        Ok("many words")
    });
    let (noted, hooked) = (log.clone(), log.clone());
    let look = AgentTool::new("look", move |_: Empty| {
        begins(5, "look", &noted);
        Ok("a cat")
    });
    Agent::new(model).tool(look).history_processor(HistoryProcessor::summarise_over(small, 1_000, 1)).before_model(
        move |_, _| {
            begins(0, "hook", &hooked);
            Ok(())
        },
    )
}

/// Makes the two runs, or what is left of them.
fn finish(folder: &Path, abort_after: Option<usize>) {
    let log = Log(folder.join("log"), abort_after);
    let agent = noted_agent(&log);
    let thread = Store::open(folder.join("store.db")).unwrap().thread("work").unwrap();
    loop {
        let outcome = match thread.head().unwrap() {
            None => agent.run("word ".repeat(2_000).as_str()).thread(&thread).outcome(),
            Some(head) if head.next().next().is_some() => agent.resume(&thread).outcome(),
            Some(head) if head.messages("messages", ItemRange::All).unwrap().iter().any(|m| m.text() == "second") => {
                return;
            }
            Some(_) => agent.run("second").thread(&thread).outcome(),
        };
        assert!(matches!(outcome.unwrap(), AgentOutcome::Done(_)));
    }
}

/// Checks the calls and the thread: a call does not begin after one with a higher place.
fn check(folder: &Path, context: &str) {
    let lines = Log(folder.join("log"), None).lines();
    let begun = lines.iter().filter_map(|line| line.strip_prefix("begin ")?.split(' ').next()?.parse::<u32>().ok());
    let begun: Vec<u32> = begun.filter(|place| *place > 0).collect();
    assert!(begun.is_sorted() && begun.last() == Some(&6), "{context}: {lines:?}");
    let store = Store::open(folder.join("store.db")).unwrap();
    let thread = store.thread("work").unwrap();
    assert_eq!(texts(&thread), ["many words", "second", "", "a cat", "two"], "{context}");
    assert_eq!(stored(&thread), 6, "{context}: the messages stay");
    assert_eq!(thread.head().unwrap().unwrap().folded("messages").unwrap().unwrap().positions(), 0..2, "{context}");
    assert_eq!(store.check().unwrap().problems, [], "{context}");
}

/// An agent over LangChain's messages whose hook folds what is older than the last message.
fn noted_react(log: &Log) -> annals_graph::prelude::CompiledGraph<ReactState> {
    let (noted, hooked) = (log.clone(), log.clone());
    let model = move |call: &ChatCall| {
        noted.note("begin 2 model");
        noted.note("end 2 model");
        Ok(Message::ai(format!("of {}", call.messages.len())))
    };
    ReactAgent::new(model)
        .before_model(move |messages, _| {
            hooked.note("begin 1 hook");
            let input = match messages.len() {
                count @ 4.. => ModelInput::Folded { count: count - 1, summary: vec![Message::human("so far")] },
                _ => ModelInput::Unchanged,
            };
            hooked.note("end 1 hook");
            Ok(input)
        })
        .compile()
        .unwrap()
}

fn finish_react(folder: &Path, abort_after: Option<usize>) {
    let log = Log(folder.join("log"), abort_after);
    let agent = noted_react(&log);
    let thread = Store::open(folder.join("store.db")).unwrap().thread("work").unwrap();
    loop {
        let asked = match thread.head().unwrap() {
            Some(head) if head.next().next().is_some() => {
                agent.run(&thread).invoke(annals_graph::Input::Continue).unwrap();
                continue;
            }
            Some(head) => head.messages("messages", ItemRange::All).unwrap(),
            None => Vec::new(),
        };
        let asked = asked.iter().filter(|message| message.kind() == "human").count();
        if asked == 4 {
            return;
        }
        agent.invoke(&thread, ReactState::update().messages([Message::human(format!("{asked}"))])).unwrap();
    }
}

fn check_react(folder: &Path, context: &str) {
    let store = Store::open(folder.join("store.db")).unwrap();
    let thread = store.thread("work").unwrap();
    // The third prompt folds the first two turns, the fourth what came after.
    assert_eq!(texts(&thread), ["so far", "3", "of 2"], "{context}");
    assert_eq!(stored(&thread), 8, "{context}: the messages stay");
}

/// The child of the test below. On its own it is the uninterrupted runs.
#[test]
fn runs_that_are_left_alone_fold_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|count| count.parse().ok());
    let is_react = std::env::var_os(REACT).is_some();
    if let Some(folder) = std::env::var_os(FOLDER) {
        let run = if is_react { finish_react } else { finish };
        run(Path::new(&folder), number(ABORT_AFTER));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    finish(folder.path(), None);
    check(folder.path(), "left alone");
    assert_eq!(Log(folder.path().join("log"), None).lines().len(), 16, "the begins and the ends");
    let folder = tempfile::tempdir().unwrap();
    finish_react(folder.path(), None);
    check_react(folder.path(), "left alone");
    assert_eq!(Log(folder.path().join("log"), None).lines().len(), 16, "the begins and the ends");
}

#[test]
fn a_kill_within_any_call_or_hook_changes_nothing_of_the_result() {
    for is_react in [false, true] {
        for lines in 1..=16 {
            let folder = tempfile::tempdir().unwrap();
            let mut child = Process::new(std::env::current_exe().unwrap());
            child.args(["--exact", "compactions::runs_that_are_left_alone_fold_once", "--test-threads=1"]);
            child.env(FOLDER, folder.path()).env(ABORT_AFTER, lines.to_string());
            child.stdout(Stdio::null()).stderr(Stdio::null());
            if is_react {
                child.env(REACT, "1");
            }
            assert!(!child.status().unwrap().success(), "the child was not killed after {lines} lines");
            let (finish, check) = if is_react {
                (finish_react as fn(&Path, _), check_react as fn(&Path, &str))
            } else {
                (finish as _, check as _)
            };
            finish(folder.path(), None);
            check(folder.path(), &format!("killed after {lines} lines"));
        }
    }
}

#[test]
fn a_hook_folds_before_others_change_the_messages() {
    let agent = ReactAgent::new(|_: &ChatCall| Ok(Message::ai("x")))
        .before_model(|messages, _| Ok(ModelInput::Sent(messages.to_vec())))
        .before_model(|_, _| Ok(ModelInput::Folded { count: 1, summary: Vec::new() }))
        .compile()
        .unwrap();
    let error = agent.invoke((), ReactState::update().messages([Message::human("hi")])).unwrap_err();
    assert!(error.to_string().contains("another hook has changed"), "{error}");
    let folded = FoldedMessages::new(0..1, [Message::system("s")]);
    let agent = ReactAgent::new(|call: &ChatCall| Ok(Message::ai(format!("of {}", call.messages.len()))));
    let update = ReactState::update().messages([Message::human("a"), Message::human("b")]).folded(folded);
    let done = agent.compile().unwrap().invoke((), update).unwrap();
    assert_eq!(done.state().messages.last().unwrap().text(), "of 2", "the summary and the last message");
}
