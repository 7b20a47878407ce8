//! The calls that the executor makes of its backend: the number of commits and reads that `docs/architecture.md`
//! promises, which no result of a run shows, and the errors of commits that fail.

use annals::store::batch::{Batch, ChangeValue, Data, ItemOp, NewWrites, Payload, WriteValue};
use annals_graph::graph::{Entrypoint, Persistence};
use annals_graph::prelude::*;
use annals_graph::{Durability, ErrorKind, IntoInput, Run, Worker, block_on};

use super::{CommitFault, ProxiedBackend, ReadCall, RecordingProxy};

/// Makes the tests `NAME::memory` and `NAME::file` of functions with a place.
macro_rules! on_each_backend {
    ($($name:ident,)*) => {
        $(mod $name {
            #[test]
            fn memory() {
                super::$name(super::ProxiedBackend::Memory);
            }

            #[test]
            fn file() {
                super::$name(super::ProxiedBackend::File);
            }
        })*
    };
}

on_each_backend! {
    a_superstep_is_one_commit_and_a_run_that_stores_at_its_end_makes_one,
    a_second_turn_reads_the_id_of_the_head_and_not_its_state,
    a_turn_writes_what_it_changes_however_long_the_thread_is,
    the_writes_of_siblings_are_committed_as_each_ends_and_the_last_with_its_superstep,
    the_commits_of_a_subgraph_and_of_its_parent_name_the_heads_of_each_other,
    an_interrupt_is_one_commit_and_a_resume_reads_the_writes_of_tasks_alone,
    an_edit_is_one_commit_and_reads_no_state,
    a_fork_is_one_checkpoint_without_a_value,
    a_listing_of_history_reads_records_and_a_snapshot_its_state_at_once,
    a_commit_that_was_not_written_is_an_error_after_which_the_run_continues,
    a_commit_of_unknown_outcome_is_told_so_and_repeating_it_is_safe,
    a_worker_claims_its_runs_by_commits_which_are_recorded,
}

/// A state of lines.
#[derive(State, Clone, Default, Debug, PartialEq)]
struct LineLog {
    #[channel(append)]
    lines: List<String>,
}

fn line(text: impl Into<String>) -> LineLogUpdate {
    LineLog::update().lines([text.into()])
}

/// Returns an input without a line.
fn start() -> Input {
    IntoInput::<LineLog, _>::into_input(LineLog::update())
}

/// Both drivers with every durability.
const EVERY_WAY: [(usize, Durability); 6] = [
    (0, Durability::Sync),
    (0, Durability::Async),
    (0, Durability::Exit),
    (1, Durability::Sync),
    (1, Durability::Async),
    (1, Durability::Exit),
];

/// Runs on one of the drivers.
fn run_on(driver: usize, run: Run<'_, LineLog>, input: Input) -> Result<Outcome<LineLog>> {
    if driver == 0 { run.invoke(input) } else { block_on(run.ainvoke(input)) }
}

/// Returns a batch as text: for each namespace the steps of the checkpoints, and the number of tasks whose writes come
/// alone (`w`).
pub(super) fn shown(batch: &Batch) -> String {
    let part = |part: &Batch| {
        let steps: Vec<_> = part.checkpoints.iter().map(|checkpoint| checkpoint.step.to_string()).collect();
        let writes = if part.writes.is_empty() { String::new() } else { format!("w{}", part.writes.len()) };
        let namespace = if part.namespace.is_root() { String::new() } else { format!("{} ", part.namespace) };
        format!("{namespace}{writes}{}", steps.join(","))
    };
    batch.parts().map(part).collect::<Vec<_>>().join(" then ")
}

/// Returns the number of bytes of all values in a batch.
fn bytes(batch: &Batch) -> usize {
    let all = |payloads: &[Payload]| payloads.iter().map(Payload::len).sum::<usize>();
    let of_write = |value: &WriteValue| match value {
        WriteValue::Null => 0,
        WriteValue::One(payload) => payload.len(),
        WriteValue::Items(items) => all(items),
        WriteValue::Delta(delta) => all(&delta.items),
    };
    let of_writes = |writes: &NewWrites| writes.writes.iter().map(|write| of_write(&write.value)).sum::<usize>();
    let of_data = |data: &Data| if let Data::New(payload) = data { payload.len() } else { 0 };
    let of_change = |value: &ChangeValue| match value {
        ChangeValue::Empty => 0,
        ChangeValue::Value(data) => of_data(data),
        ChangeValue::Items(items) => {
            items.iter().map(|item| if let ItemOp::Put(data) = &item.op { of_data(data) } else { 0 }).sum()
        }
    };
    let of_part = |part: &Batch| {
        let consumed = part.checkpoints.iter().flat_map(|checkpoint| &checkpoint.consumed);
        let changes = part.checkpoints.iter().flat_map(|checkpoint| &checkpoint.changes);
        let written: usize = part.writes.iter().chain(consumed).map(of_writes).sum();
        written + changes.map(|change| of_change(&change.value)).sum::<usize>()
    };
    batch.parts().map(of_part).sum()
}

/// Returns whether a read is of a state, and not of a record, an id or the writes of tasks.
fn is_of_state(read: &ReadCall) -> bool {
    matches!(read.of, "state" | "read_state" | "items" | "list_reference")
}

/// a -> b -> c
fn chain() -> CompiledGraph<LineLog> {
    let node = |name: &'static str| move |_: &LineLog| Ok(line(name));
    let graph = StateGraph::<LineLog>::new().node("a", node("a")).node("b", node("b")).node("c", node("c"));
    graph.edge(START, "a").edge("a", "b").edge("b", "c").compile().unwrap()
}

/// A node that interrupts between two others.
fn asking() -> CompiledGraph<LineLog> {
    let node = |name: &'static str| move |_: &LineLog| Ok(line(name));
    StateGraph::<LineLog>::new()
        .node("a", node("a"))
        .node("ask", |_: &LineLog, context: &Context| Ok(line(context.interrupt("?")?.as_str().unwrap_or("none"))))
        .edge(START, "a")
        .edge("a", "ask")
        .compile()
        .unwrap()
}

/// A graph whose node is a subgraph with persisted state.
fn remembering() -> CompiledGraph<LineLog> {
    let count = |state: &LineLog| Ok(line(format!("turn {}", state.lines.len())));
    let inner = StateGraph::<LineLog>::new().node("count", count).edge(START, "count");
    let inner = inner.persistence(Persistence::PerThread).compile().unwrap();
    let outer = move |_: &LineLog, context: &Context| {
        let done = inner.invoke(context, LineLog::update())?;
        Ok(line(format!("{} lines inside", done.state().lines.len())))
    };
    StateGraph::<LineLog>::new().node("outer", outer).edge(START, "outer").compile().unwrap()
}

fn a_superstep_is_one_commit_and_a_run_that_stores_at_its_end_makes_one(place: ProxiedBackend) {
    let graph = chain();
    for way @ (driver, durability) in EVERY_WAY {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        let run = |input| run_on(driver, graph.run(&thread).durability(durability), input).unwrap();
        run(start());
        assert_eq!(proxy.names(), ["head_with_writes"], "{way:?}");
        let commits = proxy.commits();
        let submitted = commits.iter().filter(|committed| committed.submitted).count();
        let steps: Vec<_> = commits.iter().map(|committed| shown(&committed.batch)).collect();
        match durability {
            // The checkpoint of the input shares a batch with the first superstep.
            Durability::Sync | Durability::Async => assert_eq!(steps, ["-1,0", "1", "2", "3"], "{way:?}"),
            _ => assert_eq!(steps, ["3"], "{way:?}"),
        }
        // The blocking driver hands a batch over only if it does not wait for it.
        let expected = if driver == 0 && durability != Durability::Async { 0 } else { steps.len() };
        assert_eq!(submitted, expected, "{way:?}");
        assert!(store.check().unwrap().problems.is_empty());
    }
}

fn a_second_turn_reads_the_id_of_the_head_and_not_its_state(place: ProxiedBackend) {
    let graph = chain();
    for way @ (driver, durability) in EVERY_WAY {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        let run = || run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
        run();
        proxy.reads();
        run();
        // The head, and no writes of its tasks.
        assert_eq!(proxy.reads(), [ReadCall { of: "head_with_writes", at: None, rows: 1 }], "{way:?}");

        store.clear_head_cache();
        run();
        let reads = proxy.reads();
        let state = reads.iter().find(|read| read.of == "read_state").unwrap();
        assert_eq!(state.rows, 6, "{way:?}: the lines of two turns, when the cache is empty");
    }
}

fn a_turn_writes_what_it_changes_however_long_the_thread_is(place: ProxiedBackend) {
    let graph = chain();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        let turn = || {
            proxy.commits();
            graph.run(&thread).durability(durability).invoke(line("x")).unwrap();
            proxy.commits().iter().map(|committed| bytes(&committed.batch)).sum::<usize>()
        };
        let first = turn();
        let long = LineLog::update().lines((0..200).map(|n| format!("{n} {}", "long".repeat(100))));
        graph.run(&thread).durability(durability).invoke(long).unwrap();
        let late = turn();
        assert!(late <= first + 8, "{durability:?}: {first} bytes, then {late}");
    }
}

fn the_writes_of_siblings_are_committed_as_each_ends_and_the_last_with_its_superstep(place: ProxiedBackend) {
    let node = |name: &'static str| move |_: &LineLog| Ok(line(name));
    let mut graph = StateGraph::<LineLog>::new();
    for name in ["a", "b", "c"] {
        graph = graph.node(name, node(name)).edge(START, name);
    }
    let graph = graph.compile().unwrap();
    for way @ (driver, durability) in EVERY_WAY {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        // One after another; side by side, tasks that end at the same time share a commit.
        run_on(driver, graph.run(&thread).durability(durability).concurrency_max(1), start()).unwrap();
        let commits = proxy.commits();
        let steps: Vec<_> = commits.iter().map(|committed| shown(&committed.batch)).collect();
        match durability {
            Durability::Exit => assert_eq!(steps, ["1"], "{way:?}"),
            _ => {
                assert_eq!(steps, ["-1,0", "w1", "w1", "1"], "{way:?}");
                let consumed = &commits[3].batch.checkpoints[0].consumed;
                assert_eq!(consumed.len(), 1, "{way:?}: the writes of the last task share the commit");
            }
        }
    }
}

fn the_commits_of_a_subgraph_and_of_its_parent_name_the_heads_of_each_other(place: ProxiedBackend) {
    let graph = remembering();
    for way @ (driver, durability) in EVERY_WAY {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        let run = || run_on(driver, graph.run(&thread).durability(durability), start()).unwrap();
        run();
        let commits = proxy.commits();
        let steps: Vec<_> = commits.iter().map(|committed| shown(&committed.batch)).collect();
        if durability == Durability::Exit {
            assert_eq!(steps, ["outer 1 then 1"], "{way:?}: all of the run is one batch");
        } else {
            assert_eq!(steps, ["-1,0", "outer -1,0", "outer 1", "1"], "{way:?}");
            let expects = |at: usize| {
                let expect = commits[at].batch.expect.iter();
                let mut names: Vec<_> = expect.map(|expect| expect.namespace.to_string()).collect();
                names.sort();
                names
            };
            assert_eq!(expects(0), [""], "{way:?}");
            (1..4).for_each(|at| assert_eq!(expects(at), ["", "outer"], "{way:?}: commit {at}"));
        }
        proxy.reads();
        let done = run();
        let reads = proxy.reads();
        assert!(!reads.iter().any(is_of_state), "{way:?}: {reads:?}");
        assert_eq!(done.state().lines.to_vec(), ["1 lines inside", "2 lines inside"], "{way:?}");
    }
}

fn an_interrupt_is_one_commit_and_a_resume_reads_the_writes_of_tasks_alone(place: ProxiedBackend) {
    let graph = asking();
    for way @ (driver, durability) in EVERY_WAY {
        let (proxy, store) = RecordingProxy::store(place);
        let thread = store.thread("t").unwrap();
        let run = |input| run_on(driver, graph.run(&thread).durability(durability), input).unwrap();
        assert_eq!(run(start()).interrupts().len(), 1);
        let steps = proxy.steps();
        let at_end = durability == Durability::Exit;
        assert_eq!(steps.last().map(String::as_str), Some(if at_end { "1 then w1" } else { "w1" }), "{way:?}");
        assert_eq!(steps.len(), if at_end { 1 } else { 3 }, "{way:?}: {steps:?}");

        proxy.reads();
        assert!(run(Input::Command(Command::resume("yes"))).is_done());
        let reads = proxy.reads();
        let read: Vec<_> = reads.iter().map(|read| (read.of, read.rows)).collect();
        assert_eq!(read, [("head_with_writes", 2)], "{way:?}: the stored interrupt");
        assert_eq!(proxy.steps(), if at_end { vec!["2"] } else { vec!["w1", "2"] }, "{way:?}");
    }
}

fn an_edit_is_one_commit_and_reads_no_state(place: ProxiedBackend) {
    let (graph, (proxy, store)) = (asking(), RecordingProxy::store(place));
    let thread = store.thread("t").unwrap();
    graph.run(&thread).durability(Durability::Sync).invoke(start()).unwrap();
    proxy.forget();
    graph.update_state(&thread, line("edited"), "a").unwrap();
    let reads = proxy.reads();
    assert!(!reads.iter().any(is_of_state), "{reads:?}");
    let commits = proxy.commits();
    assert_eq!(commits.iter().map(|committed| shown(&committed.batch)).collect::<Vec<_>>(), ["2"]);
    assert!(bytes(&commits[0].batch) < 40, "the edit alone: {} bytes", bytes(&commits[0].batch));
    assert_eq!(proxy.names(), [""; 0]);
    assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), ["a", "edited"]);
    let reads = proxy.reads();
    assert!(!reads.iter().any(is_of_state), "the head that the edit made is cached: {reads:?}");
}

fn a_fork_is_one_checkpoint_without_a_value(place: ProxiedBackend) {
    let (graph, (proxy, store)) = (chain(), RecordingProxy::store(place));
    let thread = store.thread("t").unwrap();
    graph.run(&thread).durability(Durability::Sync).invoke(line("x")).unwrap();
    let before_c = thread.at("~1").unwrap();
    proxy.forget();
    let fork = before_c.fork_to("fork").unwrap();
    let commits = proxy.commits();
    assert_eq!(commits.len(), 1);
    let checkpoint = &commits[0].batch.checkpoints[0];
    assert_eq!((checkpoint.changes.len(), checkpoint.consumed.len(), bytes(&commits[0].batch)), (0, 0, 0));
    assert!(proxy.reads().is_empty());

    let done = graph.run(&fork).durability(Durability::Sync).invoke(Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["x", "a", "b", "c"]);
    assert_eq!(proxy.steps(), ["4"], "the superstep of c is made again, and no other");
    assert_eq!(thread.head().unwrap().unwrap().step(), 3);
}

fn a_listing_of_history_reads_records_and_a_snapshot_its_state_at_once(place: ProxiedBackend) {
    let (graph, (proxy, store)) = (chain(), RecordingProxy::store(place));
    let thread = store.thread("t").unwrap();
    for _ in 0..20 {
        graph.run(&thread).durability(Durability::Sync).invoke(line("x")).unwrap();
    }
    proxy.reads();
    let history: Vec<_> = thread.history().unwrap().map(Result::unwrap).collect();
    assert_eq!(history.len(), 100);
    let reads = proxy.reads();
    // Two pages: one that is not full is the last.
    assert!(reads.iter().all(|read| read.of == "checkpoints") && reads.len() == 2, "{reads:?}");
    assert_eq!(reads.iter().map(|read| read.rows).sum::<usize>(), 100);

    let values = history[0].values().unwrap();
    assert_eq!(values["lines"].as_list().map(<[Value]>::len), Some(80));
    assert_eq!(proxy.names(), ["read_state"]);
    assert_eq!(history[0].tail("lines", 2).unwrap().len(), 2);
    let reads = proxy.reads();
    assert_eq!(reads.iter().map(|read| (read.of, read.rows)).collect::<Vec<_>>(), [("items", 2)]);
}

fn a_commit_that_was_not_written_is_an_error_after_which_the_run_continues(place: ProxiedBackend) {
    let graph = chain();
    for way @ (driver, durability) in EVERY_WAY {
        let commits = if durability == Durability::Exit { 1 } else { 4 };
        for at in 0..commits {
            let (proxy, store) = RecordingProxy::store(place);
            let thread = store.thread("t").unwrap();
            let run = |input| run_on(driver, graph.run(&thread).durability(durability), input);
            proxy.fail(at, CommitFault::Before);
            let error = run(start()).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Busy, true), "{way:?}, commit {at}");
            // The commits after it are refused: the log holds a prefix of the run.
            let stored = thread.history().unwrap().count();
            assert_eq!(stored, if at == 0 { 0 } else { at + 1 }, "{way:?}, commit {at}");
            proxy.reads();
            let again = if at == 0 { start() } else { Input::Continue };
            let done = run(again).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["a", "b", "c"], "{way:?}, commit {at}");
            // A head that a failed run has changed is not taken from the cache.
            assert_eq!(proxy.reads().iter().any(is_of_state), at > 0, "{way:?}, commit {at}");
            assert!(store.check().unwrap().problems.is_empty());
        }
    }
}

fn a_commit_of_unknown_outcome_is_told_so_and_repeating_it_is_safe(place: ProxiedBackend) {
    let graph = chain();
    for way @ (driver, durability) in EVERY_WAY {
        let commits = if durability == Durability::Exit { 1 } else { 4 };
        for at in 0..commits {
            let (proxy, store) = RecordingProxy::store(place);
            let thread = store.thread("t").unwrap();
            let run = |input| run_on(driver, graph.run(&thread).durability(durability), input);
            proxy.fail(at, CommitFault::After);
            let error = run(start()).unwrap_err();
            assert!(
                error.kind() == ErrorKind::OutcomeUnknown && !error.is_retryable(),
                "{way:?}, commit {at}: {error}"
            );
            assert_eq!(error.code(), Some("OUTCOME_UNKNOWN"));
            let stored = thread.history().unwrap().count();
            // The proxy has written it: the input's batch holds two checkpoints.
            assert_eq!(stored, if commits == 1 { 1 } else { at + 2 }, "{way:?}, commit {at}");

            let unknown = proxy.commits().swap_remove(at).batch;
            let repeated = Batch::of_all([unknown]).unwrap();
            store.commit(&repeated).unwrap();
            assert_eq!(thread.history().unwrap().count(), stored, "{way:?}, commit {at}: nothing is written twice");
            if at + 1 < commits {
                let done = run(Input::Continue).unwrap();
                assert_eq!(done.state().lines.to_vec(), ["a", "b", "c"], "{way:?}, commit {at}");
            }
            assert!(store.check().unwrap().problems.is_empty());
        }
    }
}

fn a_worker_claims_its_runs_by_commits_which_are_recorded(place: ProxiedBackend) {
    let (proxy, store) = RecordingProxy::store(place);
    let book = Entrypoint::new("book", |order: i64, _: &Context| Ok(order + 1)).compile().unwrap();
    let threads: Vec<_> = (0..3).map(|n| store.thread(format!("order-{n}")).unwrap()).collect();
    (0..).zip(&threads).for_each(|(n, thread)| _ = book.enqueue(thread, n).unwrap());
    proxy.forget();
    let report = Worker::new(&store).register(&book).run_until_idle().unwrap();
    assert_eq!(report.continued, 3);
    let commits = proxy.commits();
    for thread in &threads {
        let first = commits.iter().find(|committed| committed.batch.thread == *thread.id()).unwrap();
        assert!(first.batch.is_lease_alone(), "{first:?}");
        assert!(first.outcome.as_ref().is_some_and(|outcome| outcome.wait().is_ok()), "the run is claimed");
    }
    assert!(store.check().unwrap().problems.is_empty());
}
