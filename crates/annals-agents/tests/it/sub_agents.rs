//! An agent that is a tool of another one: where its run is stored, what it waits for, and kills at each step.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use annals_agents::{Agent, AgentErrorKind, AgentTool, ScriptedResponse, TestModel, ToolContext};
use annals_graph::prelude::*;
use serde_json::json;

use crate::kills::{Log, finish_run, noted};

/// Tells the child where to work, and after how many lines of its log to abort.
const FOLDER: &str = "ANNALS_SUB_AGENT_FOLDER";
const ABORT_AFTER: &str = "ANNALS_SUB_AGENT_ABORT";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Question {
    question: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    n: u32,
}

/// An agent that asks a researcher, who reads two pages; the second one with an approval.
fn agent(log: &Log) -> Agent {
    let page = |name: &'static str| {
        let log = log.clone();
        AgentTool::new(name, move |page: Page| {
            log.note(&format!("begin {} page", page.n));
            log.note(&format!("end {} page", page.n));
            Ok(format!("page {}", page.n))
        })
    };
    let script = TestModel::script([
        ScriptedResponse::call("free", json!({"n": 3})),
        ScriptedResponse::call("paid", json!({"n": 5})),
        ScriptedResponse::from("1191"),
    ]);
    let researcher = Agent::new(noted(log, &[2, 4, 6], script))
        .name("researcher")
        .tool(page("free"))
        .tool(page("paid").requires_approval());
    let ask = AgentTool::new("research", move |asked: Question, context: &ToolContext| {
        Ok(researcher.run(asked.question).in_task(context).invoke()?.output)
    });
    let script = TestModel::script([
        ScriptedResponse::call("research", json!({"question": "How old is Bern?"})),
        ScriptedResponse::from("It was founded in 1191."),
    ]);
    Agent::new(noted(log, &[1, 7], script)).tool(ask)
}

/// Runs what is left of the run, whose inner run waits by the outer one, and returns the output.
fn finish(folder: &Path, abort_after: Option<usize>) -> String {
    let agent = agent(&Log(folder.join("log"), abort_after));
    let thread = Store::open(folder.join("store.db")).unwrap().thread("work").unwrap();
    finish_run(&agent, &thread, "How old is Bern?", "paid")
}

/// Checks that no call begins after one with a higher place, and that the thread holds the run of each agent.
fn check(folder: &Path, context: &str) {
    let log = Log(folder.join("log"), None);
    let (lines, begun) = (log.lines(), log.begun());
    assert!(begun.is_sorted(), "{context}: {lines:?}");
    assert_eq!((begun.first(), begun.last()), (Some(&1), Some(&7)), "{context}: {lines:?}");
    assert!(lines.len() <= 16, "{context}: only the call that was running runs again: {lines:?}");

    let thread = Store::open(folder.join("store.db")).unwrap().thread("work").unwrap();
    let texts = |thread: &Thread| -> Vec<String> {
        let head = thread.head().unwrap().unwrap();
        head.model_view("messages").unwrap().iter().map(|message| message.text().to_string()).collect()
    };
    assert_eq!(texts(&thread), ["How old is Bern?", "", "1191", "It was founded in 1191."], "{context}");
    let namespaces = thread.namespaces().unwrap();
    let [inner] = namespaces.iter().filter(|path| path.as_str().contains("research:")).collect::<Vec<_>>()[..] else {
        panic!("{context}: {namespaces:?}")
    };
    let inner = thread.with_namespace(inner.clone());
    let expected = ["How old is Bern?", "", "page 3", "", "page 5", "1191"];
    assert_eq!(texts(&inner), expected, "{context}: the run of the tool is a part of the thread");
}

/// The child of the test below. On its own it is the uninterrupted run.
#[test]
fn a_run_with_an_inner_one_that_is_left_alone_makes_each_call_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|count| count.parse().ok());
    if let Some(folder) = std::env::var_os(FOLDER) {
        finish(Path::new(&folder), number(ABORT_AFTER));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(finish(folder.path(), None), "It was founded in 1191.");
    check(folder.path(), "left alone");
    assert_eq!(Log(folder.path().join("log"), None).lines().len(), 14, "the begin and the end of seven calls");
}

#[test]
fn a_kill_at_each_step_of_an_inner_run_repeats_nothing_that_has_ended() {
    for lines in 1..=14 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Process::new(std::env::current_exe().unwrap());
        let name = "sub_agents::a_run_with_an_inner_one_that_is_left_alone_makes_each_call_once";
        child.args(["--exact", name, "--test-threads=1"]);
        child.env(FOLDER, folder.path()).env(ABORT_AFTER, lines.to_string());
        child.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!child.status().unwrap().success(), "the child was not killed after {lines} lines");
        assert_eq!(finish(folder.path(), None), "It was founded in 1191.");
        check(folder.path(), &format!("killed after {lines} lines"));
    }
}

#[test]
fn the_tools_of_an_inner_run_get_the_dependencies_of_the_outer_one() {
    let inner = |own: Option<&'static str>| {
        let script = [ScriptedResponse::call("whose", json!({"question": ""})), "done".into()];
        let agent = Agent::new(TestModel::script(script))
            .tool(AgentTool::new("whose", |_: Question, context: &ToolContext| {
                Ok(context.deps::<&str>().copied().unwrap_or("nobody's"))
            }));
        AgentTool::new("ask", move |asked: Question, context: &ToolContext| {
            let run = agent.run(asked.question).in_task(context);
            let result = own.into_iter().fold(run, |run, own| run.deps(own)).invoke()?;
            assert!(result.thread.is_none(), "its thread is that of the outer run");
            Ok(result.all_messages_json())
        })
    };
    for (own, expected) in [(None, "the outer run's"), (Some("its own"), "its own")] {
        let script = [ScriptedResponse::call("ask", json!({"question": "whose?"})), "done".into()];
        let outer = Agent::new(TestModel::script(script)).tool(inner(own));
        let result = outer.run("Ask").deps("the outer run's").invoke().unwrap();
        assert!(result.all_messages_json().contains(expected), "{}", result.all_messages_json());
    }
}

#[test]
fn a_run_inside_a_task_takes_no_thread_and_is_not_streamed() {
    let store = Store::memory();
    let other = store.thread("other").unwrap();
    let inner = Agent::new(TestModel::script(["done"]));
    let ask = AgentTool::new("ask", move |asked: Question, context: &ToolContext| {
        let run = || inner.run(asked.question.as_str()).in_task(context);
        let refused = [
            run().thread(&other).invoke().map(|_| ()),
            run().stream().map(|_| ()),
            run().iter().map(|_| ()),
            inner.resume(&other).in_task(context).invoke().map(|_| ()),
        ];
        assert!(refused.iter().all(|end| end.as_ref().is_err_and(|error| error.kind() == AgentErrorKind::Input)));
        Ok(run().invoke()?.output)
    });
    let script = [ScriptedResponse::call("ask", json!({"question": "?"})), "asked".into()];
    let outer = Agent::new(TestModel::script(script)).tool(ask);
    assert_eq!(outer.run("Ask").invoke().unwrap().output, "asked");
}
