//! Benches of the executor: superstep, turn, fan-out, stream.

use std::time::Duration;

use annals_graph::Durability;
use annals_graph::graph::Own;
use annals_graph::prelude::*;
use criterion::{BenchmarkId, Criterion, Throughput};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Nodes of the chain, each a superstep.
const NODES: i64 = 10;
/// Sends of the fan-out.
const SENDS: i64 = 100;
/// Messages of the conversation before the turns.
const LENGTHS: [usize; 2] = [1_000, 10_000];

#[derive(State, Clone, Default)]
struct SuperstepCount {
    #[channel(last)]
    n: i64,
}

#[derive(State, Clone, Default)]
struct TurnChat {
    #[channel(last)]
    n: i64,
    #[channel(messages)]
    messages: Messages,
}

/// A chain of nodes that count.
fn chain() -> Result<CompiledGraph<SuperstepCount>> {
    let mut graph = StateGraph::<SuperstepCount>::new();
    let mut from = START.to_owned();
    for at in 0..NODES {
        let name = format!("node-{at:02}");
        graph = graph
            .node(name.as_str(), |count: &SuperstepCount| Ok(SuperstepCount::update().n(count.n + 1)))
            .edge(from.as_str(), name.as_str());
        from = name;
    }
    Ok(graph.compile()?)
}

/// A node that sends to a node that does nothing, and one that comes after.
fn fan() -> Result<CompiledGraph<SuperstepCount>> {
    Ok(StateGraph::<SuperstepCount>::new()
        .node("fan", |_: &SuperstepCount| {
            let send = |command: Command, n| command.and_goto(SendTo::new("empty", n));
            Ok((0..SENDS).fold(Command::new(), send))
        })
        .node("empty", Own(|_: i64| Ok(())))
        .node("join", |count: &SuperstepCount| Ok(SuperstepCount::update().n(count.n + 1)))
        .edge(START, "fan")
        .edge("empty", "join")
        .compile()?)
}

/// A node that answers with a message of 500 bytes.
fn chat() -> Result<CompiledGraph<TurnChat>> {
    Ok(StateGraph::<TurnChat>::new()
        .node("answer", |chat: &TurnChat| Ok(TurnChat::update().messages([Message::ai(format!("{:<500}", chat.n))])))
        .edge(START, "answer")
        .compile()?)
}

fn supersteps(criterion: &mut Criterion) {
    let graph = chain().expect("the graph compiles");
    let mut group = criterion.benchmark_group("executor");
    group.throughput(Throughput::Elements(NODES as u64));
    group.bench_function("10 supersteps", |bencher| {
        bencher.iter(|| {
            let done = graph.invoke((), SuperstepCount::update().n(0)).expect("the chain runs");
            assert_eq!(done.state().n, NODES);
        });
    });
    group.bench_function("10 supersteps, stored in memory", |bencher| {
        let thread = Store::memory().thread("chain").expect("a thread is named");
        bencher.iter(|| {
            let run = graph.run(&thread).durability(Durability::Sync);
            let done = run.invoke(SuperstepCount::update().n(0)).expect("the chain runs");
            assert_eq!(done.state().n, NODES);
        });
    });
    group.bench_function("10 supersteps, streamed in three modes", |bencher| {
        let modes = [StreamMode::Values, StreamMode::Updates, StreamMode::Tasks];
        bencher.iter(|| {
            let stream = graph.stream((), SuperstepCount::update().n(0), &modes).expect("the chain starts");
            let count = stream.filter(Result::is_ok).count();
            // The state after the input, then for each node its start, its end, an update and a state.
            assert_eq!(count as i64, 1 + 4 * NODES);
        });
    });
    let graph = fan().expect("the graph compiles");
    group.throughput(Throughput::Elements(SENDS as u64));
    group.bench_function("fan-out of 100 sends", |bencher| {
        bencher.iter(|| {
            let done = graph.invoke((), SuperstepCount::update().n(0)).expect("the fan-out runs");
            assert_eq!(done.state().n, 1);
        });
    });
    group.finish();
}

/// Turns of a conversation in a file that is not synced. It grows by a message with each.
fn turns(criterion: &mut Criterion) {
    let graph = chat().expect("the graph compiles");
    let mut group = criterion.benchmark_group("executor");
    for length in LENGTHS {
        let folder = tempfile::tempdir().expect("a folder is made");
        let options = OpenOptions::new().synchronous(Synchronous::Normal);
        let store = Store::open_with(folder.path().join("chat.db"), options).expect("a file is made");
        let thread = store.thread("chat").expect("a thread is named");
        let messages = (0..length).map(|n| Message::human(format!("{n:<500}")));
        graph
            .update_state(&thread, TurnChat::update().messages(messages), Some("__start__"))
            .expect("the conversation is written");
        let mut n = 0;
        group.bench_function(BenchmarkId::new("turn", length), |bencher| {
            bencher.iter(|| {
                n += 1;
                let run = graph.run(&thread).durability(Durability::Sync);
                assert!(run.invoke(TurnChat::update().n(n)).expect("a turn runs").is_done());
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    supersteps(&mut criterion);
    turns(&mut criterion);
    criterion.final_summary();
}
