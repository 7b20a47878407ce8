//! Effects of nodes and tasks rest on stored results: a kill repeats only the tasks that were running, and a run that
//! lost a race starts no further task.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::base::{CheckpointId, IdSource};
use annals::history::OnConflict;
use annals::store::Source;
use annals::store::batch::{Batch, NewCheckpoint, Parent};
use annals_graph::Durability;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{IntoInput, Run};
use macro_rules_attribute::apply;

use crate::backends::new_thread;
use crate::line_state::{EVERY_WAY, Log, line, run_on, start};

/// The folder in which a child works.
const FOLDER: &str = "ANNALS_EFFECTS_FOLDER";
/// The customer whose order a child ships.
const CUSTOMER: &str = "ANNALS_EFFECTS_CUSTOMER";
/// The number of customers.
const CUSTOMERS: usize = 40;

/// The way in which the workflow of a customer is written and run.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// A graph of three nodes, or a function that calls three tasks.
    is_graph: bool,
    driver: usize,
    /// The durability that is asked for by name, with an idempotency key.
    keyed: Option<Durability>,
}

impl Way {
    /// Returns the way of a customer: nodes with the default durability; tasks with it, and with `async` and a key.
    fn of(customer: usize) -> Self {
        let way = |is_graph, keyed| Self { is_graph, driver: customer % 2, keyed };
        match (customer / 2) % 4 {
            0 => way(true, None),
            1 => way(false, None),
            2 => way(false, Some(Durability::Async)),
            _ => way(false, Some(Durability::Sync)),
        }
    }

    fn run<'a, S: Clone + Send + Sync + 'static>(self, run: Run<'a, S>) -> Run<'a, S> {
        match self.keyed {
            Some(durability) => run.durability(durability).idempotency_key("order"),
            None => run,
        }
    }
}

/// Notes an effect on the outside. The child ends in the middle of its last step.
fn effect(folder: &Path, customer: usize, step: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("effects")).unwrap();
    file.write_all(format!("{customer} {step}\n").as_bytes()).unwrap();
    if step == "ship" && std::env::var_os(FOLDER).is_some() {
        std::process::abort();
    }
}

/// Runs the workflow of a customer: from its input, or from where it stopped.
fn order(folder: &Path, customer: usize, goes_on: bool) -> Vec<String> {
    let way = Way::of(customer);
    let store = Store::open(folder.join("store.db")).unwrap();
    let thread = store.thread(customer.to_string()).unwrap();
    let steps = ["reserve", "charge", "ship"];
    if way.is_graph {
        let node = |step: &'static str| {
            let folder = folder.to_owned();
            move |_: &Log| {
                effect(&folder, customer, step);
                Ok(line(step))
            }
        };
        let graph = steps.iter().fold(StateGraph::<Log>::new(), |graph, step| graph.node(*step, node(step)));
        let graph = graph.edge(START, "reserve").edge("reserve", "charge").edge("charge", "ship").compile().unwrap();
        let input = if goes_on { Input::Continue } else { start() };
        let done = run_on(way.driver, way.run(graph.run(&thread)), input).unwrap();
        return done.state().lines.to_vec();
    }
    let task = |step: &'static str| {
        let folder = folder.to_owned();
        Task::new(step, move |customer: usize| {
            effect(&folder, customer, step);
            Ok(step.to_owned())
        })
    };
    let tasks = steps.map(task);
    let flow = Entrypoint::new("order", move |customer: usize, ctx: &Context| {
        tasks.iter().map(|task| task.call(ctx, customer)).collect::<Result<Vec<String>, _>>()
    });
    let flow = flow.compile().unwrap();
    let begins = !goes_on || way.keyed.is_some();
    let input = if begins { IntoInput::<Entry<usize, Vec<String>>, _>::into_input(customer) } else { Input::Continue };
    let done = run_on(way.driver, way.run(flow.run(&thread)), input).unwrap();
    done.value().unwrap().clone()
}

fn effects(folder: &Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in std::fs::read_to_string(folder.join("effects")).unwrap_or_default().lines() {
        *counts.entry(line.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// The child of the test below. On its own it is the workflow of one customer that nothing disturbs.
#[test]
fn an_undisturbed_workflow_has_each_effect_once() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let customer = std::env::var(CUSTOMER).unwrap().parse().unwrap();
        order(&PathBuf::from(folder), customer, false);
        panic!("the last step ends the process");
    }
    let folder = tempfile::tempdir().unwrap();
    for customer in 0..8 {
        assert_eq!(order(folder.path(), customer, false), ["reserve", "charge", "ship"]);
    }
    let effects = effects(folder.path());
    assert!(effects.len() == 24 && effects.values().all(|count| *count == 1), "{effects:?}");
}

#[test]
fn a_kill_in_the_third_task_repeats_that_task_alone() {
    let folder = tempfile::tempdir().unwrap();
    for customer in 0..CUSTOMERS {
        let name = "effects::an_undisturbed_workflow_has_each_effect_once";
        let child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .env(CUSTOMER, customer.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(!child.unwrap().success(), "the child is killed");
    }
    let killed = effects(folder.path());
    assert_eq!(killed.len(), 3 * CUSTOMERS, "each child came to its last step");
    for customer in 0..CUSTOMERS {
        let way = Way::of(customer);
        assert_eq!(order(folder.path(), customer, true), ["reserve", "charge", "ship"], "{way:?}");
        let effects = effects(folder.path());
        let count = |step: &str| effects[&format!("{customer} {step}")];
        assert_eq!(["reserve", "charge", "ship"].map(count), [1, 1, 2], "customer {customer}, {way:?}");
    }
    assert!(Store::open(folder.path().join("store.db")).unwrap().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn a_run_with_a_key_has_stored_its_input_when_its_first_node_starts() {
    for (driver, durability) in EVERY_WAY.into_iter().filter(|(_, durability)| *durability != Durability::Exit) {
        let thread = new_thread();
        let seen = thread.clone();
        let look = move |_: &Log| Ok(line(seen.head()?.map_or("absent", |_| "stored")));
        let graph = StateGraph::<Log>::new().node("look", look).edge(START, "look").compile().unwrap();
        let run = graph.run(&thread).durability(durability).idempotency_key("once");
        let done = run_on(driver, run, start()).unwrap();
        assert_eq!(done.state().lines.to_vec(), ["stored"], "{driver} {durability:?}");
    }
}

/// Lets another run win the race on a thread, once the input of the losing run is stored.
fn overtake(thread: &Thread, durability: Durability) {
    while durability != Durability::Exit && thread.head().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let fast = StateGraph::<Log>::new().node("fast", |_: &Log| Ok(line("fast"))).edge(START, "fast").compile().unwrap();
    fast.invoke(thread, Log::update()).unwrap();
}

/// Returns a graph whose first node loses the race, and the number of times that its second node has run.
fn losing_graph(thread: &Thread, durability: Durability) -> (CompiledGraph<Log>, Arc<AtomicUsize>) {
    let (other, later) = (thread.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&later);
    let lose = move |_: &Log| {
        overtake(&other, durability);
        Ok(line("lost"))
    };
    let after = move |_: &Log| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(line("after"))
    };
    let graph = StateGraph::<Log>::new().node("lose", lose).node("after", after);
    (graph.edge(START, "lose").edge("lose", "after").compile().unwrap(), later)
}

#[apply(each_backend)]
fn a_run_that_lost_the_race_is_told_of_a_conflict_and_starts_no_further_node() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let (graph, later) = losing_graph(&thread, durability);
        let error = run_on(driver, graph.run(&thread).durability(durability), start()).expect_err("the race is lost");
        assert!(error.is_conflict(), "{driver} {durability:?}: {error}");
        assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), ["fast"]);
        if durability == Durability::Sync {
            assert_eq!(later.load(Ordering::SeqCst), 0, "{driver}: no node starts after the lost commit");
        }
    }
}

#[apply(each_backend)]
fn a_run_that_lost_the_race_starts_no_further_task_though_its_code_ignores_the_error() {
    let retains =
        |(driver, durability)| [OnConflict::Refuse, OnConflict::Branch].map(|then| (driver, durability, then));
    for (driver, durability, then) in EVERY_WAY.into_iter().flat_map(retains) {
        let thread = new_thread();
        let (other, later) = (thread.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&later);
        let lose = Task::new("lose", move |(): ()| {
            overtake(&other, durability);
            Ok(1)
        });
        let after = Task::new("after", move |(): ()| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(2)
        });
        let flow = Entrypoint::new("flow", move |_: i64, ctx: &Context| {
            _ = lose.call(ctx, ());
            _ = after.call(ctx, ());
            Ok(3_i64)
        });
        let flow = flow.compile().unwrap();
        let input = IntoInput::<Entry<i64, i64>, _>::into_input(1_i64);
        let run = run_on(driver, flow.run(&thread).durability(durability).on_conflict(then), input);
        // With `exit` nothing is stored before the end, so the loser cannot know.
        let is_late = durability == Durability::Exit;
        if is_late && then == OnConflict::Branch {
            assert!(run.unwrap().branch().is_some(), "{driver}");
        } else {
            // A superstep that rests on the error is not retained.
            let error = run.expect_err("the race is lost");
            assert!(error.is_conflict(), "{driver} {durability:?}: {error}");
            assert_eq!(thread.branches().unwrap().len(), 1, "{driver} {durability:?}: the current one");
        }
        let expected = usize::from(is_late);
        assert_eq!(later.load(Ordering::SeqCst), expected, "{driver} {durability:?}");
    }
}

#[apply(each_backend)]
fn a_node_is_not_retried_after_a_lost_race() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        let (other, runs) = (thread.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&runs);
        let inner = StateGraph::<Log>::new().node("inner", |_: &Log| Ok(line("inner"))).edge(START, "inner");
        let inner = inner.compile().unwrap();
        let outer = move |_: &Log, ctx: &Context| {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                overtake(&other, durability);
            }
            inner.invoke(ctx, start())?;
            Ok(line("outer"))
        };
        let retry = RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false);
        let graph = StateGraph::<Log>::new().node_with("outer", outer, NodeOptions::new().retry(retry));
        let graph = graph.edge(START, "outer").compile().unwrap();
        let error = run_on(driver, graph.run(&thread).durability(durability), start()).expect_err("the race is lost");
        assert!(error.is_conflict(), "{driver} {durability:?}: {error}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{driver} {durability:?}");
    }
}

#[apply(each_backend)]
fn a_run_that_lost_the_race_leaves_its_superstep_on_a_branch() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        thread.update(line("seed")).unwrap();
        let (graph, later) = losing_graph(&thread, durability);
        let run = graph.run(&thread).durability(durability).on_conflict(OnConflict::Branch);
        let ended = run_on(driver, run, start()).unwrap();
        let name = ended.branch().expect("the race is lost").to_owned();
        assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), ["seed", "fast"], "the head stays");
        let branch = thread.branch(&name).unwrap();
        let stored = branch.last.state::<Log>().unwrap().lines.to_vec();
        if durability == Durability::Exit {
            assert!(ended.is_done(), "the run learns of the race at its end");
        } else {
            assert!(matches!(ended, Outcome::Drained { .. }), "{driver} {durability:?}: {ended:?}");
            assert_eq!((stored.join(" ").as_str(), later.load(Ordering::SeqCst)), ("seed lost", 0));
            thread.switch(&branch).unwrap();
            run_on(driver, graph.run(&thread).durability(durability), Input::Continue).unwrap();
        }
        assert_eq!(later.load(Ordering::SeqCst), 1, "{driver} {durability:?}");
        let done = if durability == Durability::Exit {
            stored
        } else {
            graph.get_state(&thread).unwrap().values.lines.to_vec()
        };
        assert_eq!(done, ["seed", "lost", "after"], "{driver} {durability:?}");
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

#[apply(each_backend)]
fn two_runs_that_begin_at_once_are_both_stored() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        thread.update(line("seed")).unwrap();
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let meet = move |_: &Log| {
            barrier.wait();
            Ok(line("end"))
        };
        // Both have read the head when they meet.
        let graph = StateGraph::<Log>::new().node("meet", meet).edge(START, "meet").compile().unwrap();
        let run = |text: &'static str| {
            let run = graph.run(&thread).durability(Durability::Exit).on_conflict(OnConflict::Branch);
            run_on(driver, run, IntoInput::<Log, _>::into_input(line(text))).unwrap()
        };
        let (a, b) = std::thread::scope(|scope| {
            let (a, b) = (scope.spawn(|| run("a")), scope.spawn(|| run("b")));
            (a.join().unwrap(), b.join().unwrap())
        });
        let (won, lost) = if a.branch().is_none() { (a, b) } else { (b, a) };
        assert!(won.branch().is_none() && won.is_done() && lost.is_done(), "{driver} {durability:?}");
        let branch = thread.branch(lost.branch().unwrap()).unwrap();
        assert_eq!(branch.last.state::<Log>().unwrap().lines.to_vec(), lost.state().lines.to_vec());
        assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), won.state().lines.to_vec());
        assert!(thread.store().check().unwrap().problems.is_empty());
    }
}

/// Stores a branch off the head whose checkpoint has an id of the next hour, as a writer with another clock does.
fn store_aside(thread: &Thread) -> CheckpointId {
    let (store, head) = (thread.store(), thread.head().unwrap().map(|head| head.id()));
    let later = store.now().saturating_add(Duration::from_secs(3_600));
    let id = IdSource::from_seed(7).checkpoint(later, 1, None);
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), head);
    batch.checkpoints.push(NewCheckpoint::new(id, head.map(Parent::Local), 1, Source::Update, store.now()));
    thread.commit_branch(&batch).unwrap().last
}

#[apply(each_backend)]
fn a_run_whose_head_stays_is_stored_although_a_branch_has_a_greater_id() {
    for (driver, durability) in EVERY_WAY {
        let thread = new_thread();
        thread.update(line("seed")).unwrap();
        let aside = Arc::new(std::sync::Mutex::new(None));
        let (other, stored) = (thread.clone(), Arc::clone(&aside));
        let slow = move |_: &Log| {
            while durability == Durability::Async && other.head().unwrap().unwrap().step() < 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            stored.lock().unwrap().get_or_insert_with(|| store_aside(&other));
            Ok(line("slow"))
        };
        let graph = StateGraph::<Log>::new().node("slow", slow).node("after", |_: &Log| Ok(line("after")));
        let graph = graph.edge(START, "slow").edge("slow", "after").compile().unwrap();
        let ended = run_on(driver, graph.run(&thread).durability(durability), start());
        let case = format!("{driver} {durability:?}");
        if durability == Durability::Async {
            // The supersteps after the refused one were made already: the run is repeated, and finds its input.
            assert!(ended.as_ref().is_err_and(|error| error.is_conflict()), "{case}: {ended:?}");
        } else {
            assert!(ended.unwrap().is_done(), "{case}");
            let state = graph.get_state(&thread).unwrap();
            assert_eq!(state.values.lines.to_vec(), ["seed", "slow", "after"], "{case}");
            assert!(thread.head().unwrap().unwrap().id() > aside.lock().unwrap().unwrap(), "{case}");
            assert_eq!(thread.branches().unwrap().len(), 2, "{case}");
            // The next run builds on the ids that are stored.
            run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
            assert_eq!(graph.get_state(&thread).unwrap().values.lines.len(), 5, "{case}");
        }
        assert_eq!(thread.store().check().unwrap().problems, [], "{case}");
    }
}
