//! A process that is killed at any point of an agent's run: no call of the model and no tool that has ended runs again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use annals_agents::{
    Agent, AgentTool, DeferredResults, FunctionModel, ModelError, ScriptedResponse, TestModel, ToolContext,
};
use annals_agents::{AgentOutcome, Model};
use annals_graph::prelude::*;
use annals_pydantic_ai::ModelMessage;
use serde_json::json;

use crate::cases;

/// Tells the child where to work, and after how many lines of its log to abort.
const FOLDER: &str = "ANNALS_AGENT_FOLDER";
const ABORT_AFTER: &str = "ANNALS_AGENT_ABORT";
/// The numbers of kills at random moments: in the test command, and in all.
const KILLS: (u64, u64) = (6, 300);

/// The log of the begins and ends of all calls, over all processes.
#[derive(Clone)]
pub(crate) struct Log(pub(crate) PathBuf, pub(crate) Option<usize>);

impl Log {
    pub(crate) fn note(&self, line: &str) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        // One system call, or the lines of two threads would mix.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        if self.1.is_some_and(|most| self.lines().len() >= most) {
            std::process::abort();
        }
    }

    /// Returns the places of the calls in the order in which they began.
    pub(crate) fn begun(&self) -> Vec<u32> {
        let place = |line: &String| line.strip_prefix("begin ")?.split(' ').next()?.parse().ok();
        self.lines().iter().filter_map(place).collect()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// Notes the begin and the end of each request to a model, with its place in the run.
pub(crate) fn noted(log: &Log, places: &'static [u32], script: TestModel) -> FunctionModel {
    let log = log.clone();
    FunctionModel::new(move |call| {
        let number = call.messages.iter().filter(|message| matches!(message, ModelMessage::Response(_))).count();
        let place = places.get(number).ok_or_else(|| ModelError::fatal("it is asked as often as there are places"))?;
        log.note(&format!("begin {place} model"));
        let response = annals_graph::block_on(script.request(call));
        log.note(&format!("end {place} model"));
        response
    })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Step {
    n: u32,
}

/// An agent with six tools, one of which needs an approval. Each call of the model and of a tool notes its begin and
/// its end, with its place in the run: calls with a lower place ended before.
fn agent(log: &Log) -> Agent {
    let tool = |name: &'static str, log: &Log| {
        let log = log.clone();
        AgentTool::new(name, move |step: Step, _: &ToolContext| {
            log.note(&format!("begin {} {name}", step.n));
            log.note(&format!("end {} {name}", step.n));
            Ok(format!("{name} {}", step.n))
        })
        .sequential()
    };
    let call = |name: &str, n: u32| (name.to_owned(), json!({"n": n}));
    let script = TestModel::script([
        ScriptedResponse::calls([call("a", 2), call("b", 3), call("c", 4)]),
        ScriptedResponse::calls([call("d", 6), call("pay", 8), call("e", 7)]),
        ScriptedResponse::from("the end"),
    ]);
    let model = noted(log, &[1, 5, 9], script);
    let tools = ["a", "b", "c", "d", "e"].map(|name| tool(name, log));
    let agent = Agent::new(model).tool(tool("pay", log).requires_approval());
    tools.into_iter().fold(agent, Agent::tool)
}

/// Runs what is left of the run, whatever state its thread is in, and returns the output.
fn finish(folder: &Path, abort_after: Option<usize>) -> String {
    let log = Log(folder.join("log"), abort_after);
    finish_run(&agent(&log), &Store::open(folder.join("store.db")).unwrap().thread("work").unwrap(), "Work", "pay")
}

/// Begins the run of an agent in a thread, or goes on with it, until it ends, and returns the output. The call of one
/// tool waits for an approval.
pub(crate) fn finish_run(agent: &Agent, thread: &Thread, prompt: &str, asked: &str) -> String {
    loop {
        let outcome = match (thread.head().unwrap(), agent.requests(thread).unwrap()) {
            (None, _) => agent.run(prompt).thread(thread).outcome(),
            (_, Some(requests)) => {
                assert_eq!(requests.approvals[0].tool_name, asked);
                let id = &requests.approvals[0].tool_call_id;
                agent.resume_with(thread, DeferredResults::new().approve(id)).outcome()
            }
            (Some(head), None) if head.next().next().is_some() => agent.resume(thread).outcome(),
            // Killed after the last commit.
            (Some(_), None) => {
                let history = agent.history(thread).unwrap();
                let Some(ModelMessage::Response(last)) = history.last() else { panic!("a response") };
                return last.text().unwrap();
            }
        };
        if let AgentOutcome::Done(result) = outcome.unwrap() {
            return result.output;
        }
    }
}

/// Checks that no call begins after one with a higher place: what had ended did not run again.
fn check(log: &Log, context: &str) {
    let (lines, begun) = (log.lines(), log.begun());
    assert!(begun.is_sorted(), "{context}: {lines:?}");
    assert_eq!((begun.first(), begun.last()), (Some(&1), Some(&9)), "{context}: {lines:?}");
}

/// The child of the tests below. On its own it is the uninterrupted run.
#[test]
fn a_run_that_is_left_alone_makes_each_call_once() {
    let count = |name: &str| std::env::var(name).ok().and_then(|count| count.parse().ok());
    if let Some(folder) = std::env::var_os(FOLDER) {
        finish(Path::new(&folder), count(ABORT_AFTER));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(finish(folder.path(), None), "the end");
    let log = Log(folder.path().join("log"), None);
    check(&log, "left alone");
    assert_eq!(log.lines().len(), 18, "the begin and the end of nine calls");
}

fn child(folder: &Path, abort_after: Option<usize>) -> std::process::Child {
    let mut child = Process::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "kills::a_run_that_is_left_alone_makes_each_call_once", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(lines) = abort_after {
        child.env(ABORT_AFTER, lines.to_string());
    }
    child.spawn().unwrap()
}

#[test]
fn a_kill_at_each_step_repeats_nothing_that_has_ended() {
    for lines in 1..=18 {
        let folder = tempfile::tempdir().unwrap();
        let status = child(folder.path(), Some(lines)).wait().unwrap();
        assert!(!status.success(), "the child was not killed after {lines} lines");
        assert_eq!(finish(folder.path(), None), "the end");
        let log = Log(folder.path().join("log"), None);
        check(&log, &format!("killed after {lines} lines"));
        assert!(log.lines().len() <= 20, "only the call that was running runs again");
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_comes_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log(folder.path().join("log"), None);
    // Each process ends the call that was running and begins the next one.
    while log.lines().last().map(String::as_str) != Some("end 9 model") {
        child(folder.path(), Some(log.lines().len() + 3)).wait().unwrap();
    }
    assert_eq!(finish(folder.path(), None), "the end");
    check(&log, "killed again and again");
}

#[test]
fn kills_at_random_moments_repeat_nothing_that_has_ended() {
    let mut seed = 0x5eed_u64;
    let mut cut_short = 0;
    for kill in 0..cases(KILLS.0, KILLS.1) {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let folder = tempfile::tempdir().unwrap();
        let log = Log(folder.path().join("log"), None);
        // A fixed sequence of places in the run, and of pauses behind them that are shorter than a step or longer.
        let (after, pause) = ((seed >> 33) as usize % 18, Duration::from_micros((seed >> 20) % 4_000));
        // It ends by itself if this process is late, on a machine that is busy.
        let mut child = child(folder.path(), Some(after + 6));
        while log.lines().len() < after && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(pause);
        _ = child.kill();
        child.wait().unwrap();
        cut_short += usize::from(log.lines().len() < 18);
        assert_eq!(finish(folder.path(), None), "the end");
        check(&log, &format!("kill {kill}"));
    }
    assert!(cut_short > 0, "no child was killed before its end");
    println!("{cut_short} runs were cut short");
}
