//! A process that is killed at any moment loses nothing that it acknowledged, and goes on where it was.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use annals_graph::Durability;
use annals_graph::prelude::*;

use crate::cases;

/// The numbers of times that a child is killed: in the test command, and in all.
const KILLS: (u64, u64) = (6, 200);
/// Number of turns that a child runs, if it is not killed.
const TURNS: i64 = 15;
/// Tells the child where to work.
const FOLDER: &str = "ANNALS_CRASH_FOLDER";

fn concat(mut old: Vec<String>, new: Vec<String>) -> Vec<String> {
    old.extend(new);
    old
}

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Work {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    turn: i64,
    #[channel(reduce = concat)]
    log: Vec<String>,
}

/// Two nodes side by side, a join, and a node after it. Each notes on the outside that it ran, and says which
/// checkpoint it saw: that one was acknowledged.
fn graph(folder: &Path, acknowledge: bool) -> CompiledGraph<Work> {
    let node = |name: &'static str| {
        let effects = folder.join("effects");
        move |state: &Work, ctx: &Context| {
            if acknowledge {
                println!("\nack {}", ctx.checkpoint().unwrap());
            }
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&effects)?;
            // One system call, or the lines of two threads would mix.
            file.write_all(format!("{} {name}\n", state.turn).as_bytes())?;
            let id = format!("{}-{name}", state.turn);
            let message = Message::ai(format!("{name} in turn {} after {}", state.turn, state.messages.len()));
            Ok(Work::update().log(vec![id.clone()]).messages([message.with_id(id)]))
        }
    };
    StateGraph::<Work>::new()
        .node("left", node("left"))
        .node("right", node("right"))
        .node("after", node("after"))
        .edge(START, "left")
        .edge(START, "right")
        .join(["left", "right"], "after")
        .compile()
        .unwrap()
}

/// Runs all turns that are left, whatever state the thread is in.
fn run(folder: &Path, acknowledge: bool) -> Work {
    let graph = graph(folder, acknowledge);
    let store = Store::open(folder.join("store.db")).unwrap();
    let thread = store.thread("work").unwrap();
    loop {
        let state = graph.get_state(&thread).unwrap();
        let run = graph.run(&thread).durability(Durability::Sync);
        if !state.next.is_empty() {
            run.invoke(Input::Continue).unwrap();
        } else if state.checkpoint.is_none() || state.values.turn < TURNS {
            let turn = if state.checkpoint.is_none() { 1 } else { state.values.turn + 1 };
            run.invoke(Work::update().turn(turn)).unwrap();
        } else {
            return (*state.values).clone();
        }
    }
}

fn effects(folder: &Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in std::fs::read_to_string(folder.join("effects")).unwrap_or_default().lines() {
        *counts.entry(line.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// The child of the test below. On its own it is the uninterrupted run.
#[test]
fn a_run_that_is_left_alone_runs_each_node_once() {
    let (folder, acknowledge) = match std::env::var_os(FOLDER) {
        Some(folder) => (PathBuf::from(folder), true),
        None => (tempfile::tempdir().unwrap().keep(), false),
    };
    let state = run(&folder, acknowledge);
    assert_eq!((state.log.len(), state.messages.len()), (TURNS as usize * 3, TURNS as usize * 3));
    if !acknowledge {
        let effects = effects(&folder);
        assert_eq!(effects.len(), TURNS as usize * 3);
        assert!(effects.values().all(|runs| *runs == 1));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false);
    let mut seed = 0x5eed_u64;
    let mut acknowledged_in_all = 0;
    let mut cut_short = 0;
    let kills = cases(KILLS.0, KILLS.1) as usize;
    let is_enough = |acknowledged: usize, cut_short: usize| acknowledged > kills / 2 && cut_short > kills / 7;
    // More of them if this process was mostly too late, on a machine that is busy.
    for kill in 0..20 * kills {
        if kill >= kills && is_enough(acknowledged_in_all, cut_short) {
            break;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let folder = tempfile::tempdir().unwrap();
        // A fixed sequence of places in the run, and of delays behind them that are shorter than a superstep or longer.
        let (after, pause) =
            ((seed >> 33) as usize % (TURNS as usize * 3), Duration::from_micros((seed >> 20) % 4_000));
        let acknowledged = child(folder.path(), after, pause);
        acknowledged_in_all += acknowledged.len();

        let store = Store::open(folder.path().join("store.db")).unwrap();
        let report = store.check().unwrap();
        assert!(report.problems.is_empty(), "kill {kill}: {:?}", report.problems);
        let thread = store.thread("work").unwrap();
        for id in &acknowledged {
            assert!(thread.at(id).is_ok(), "kill {kill}: acknowledged checkpoint {id} is gone");
        }
        drop(store);
        let before = effects(folder.path());
        cut_short += usize::from(before.len() < TURNS as usize * 3);
        let resumed = run(folder.path(), false);
        assert_eq!(resumed, expected, "kill {kill}");
        let again: Vec<_> = effects(folder.path()).into_iter().filter(|(_, runs)| *runs > 1).collect();
        assert!(again.len() <= 2, "kill {kill}: only what ran at the kill runs again, not {again:?}");
    }
    let is_enough = is_enough(acknowledged_in_all, cut_short);
    assert!(is_enough, "{acknowledged_in_all} acknowledged, {cut_short} cut short");
}

/// Starts a child, kills it a pause after it has acknowledged a number of checkpoints, and returns the checkpoints that
/// it acknowledged.
fn child(folder: &Path, after: usize, pause: Duration) -> Vec<String> {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_run_that_is_left_alone_runs_each_node_once", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (says, said) = channel();
    let reader = std::thread::spawn(move || {
        let lines = output.lines().map_while(Result::ok);
        let acknowledged = lines.filter_map(|line| line.strip_prefix("ack ").map(str::to_owned));
        acknowledged.inspect(|_| _ = says.send(())).collect::<Vec<_>>()
    });
    // Fewer come if the child ends by itself.
    said.iter().take(after).for_each(drop);
    std::thread::sleep(pause);
    _ = child.kill();
    child.wait().unwrap();
    let mut acknowledged = reader.join().unwrap();
    // The last line may be cut.
    acknowledged.retain(|id| id.len() == 36);
    acknowledged
}
