//! Measures the costs of the runtime beside the chain: fan-out, streams, async nodes, parallel nodes, a large state.

use annals_graph::block_on;
use annals_graph::graph::CompiledGraph;
use annals_graph::graph::Own;
use annals_graph::prelude::*;

use crate::disk::same;
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, timed};
use crate::supersteps::{Count, CountUpdate, NODES};
use crate::{Bench, Result, allocs};

/// Sends of the fan-out.
const SENDS: i64 = 100;
/// Bytes that the nodes of the large state do not touch.
const LARGE: usize = 1 << 20;

/// Measures the figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    fan_out(bench, report)?;
    streams(bench, report)?;
    parallel(bench, report)?;
    large_state(bench, report)
}

fn fan_out(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let graph = fan()?;
    let one = || {
        let (us, done) = timed(|| Ok(graph.invoke((), Count::update().n(0))?))?;
        same("n", done.state().n, 1)?;
        Ok(us)
    };
    let runs = (0..bench.runs(400, 10)).map(|_| one()).collect::<Result<Vec<f64>>>()?;
    report.set("superstep_parallel_us", median(&runs));
    Ok(())
}

/// A node that sends [`SENDS`] times to a node that does nothing, and one that comes after.
pub(crate) fn fan() -> Result<CompiledGraph<Count>> {
    Ok(StateGraph::<Count>::new()
        .node("fan", |_: &Count| {
            let send = |command: Command, n| command.and_goto(SendTo::new("empty", n));
            Ok((0..SENDS).fold(Command::new(), send))
        })
        .node("empty", Own(|_: i64| Ok(())))
        .node("join", |count: &Count| Ok(Count::update().n(count.n + 1)))
        .edge(START, "fan")
        .edge("empty", "join")
        .compile()?)
}

/// A chain of nodes that count.
pub(crate) fn chain(asynchronous: bool) -> Result<CompiledGraph<Count>> {
    let mut graph = StateGraph::<Count>::new();
    for at in 0..NODES {
        let from = if at == 0 { START.to_owned() } else { format!("node-{:02}", at - 1) };
        let name = format!("node-{at:02}");
        graph = if asynchronous {
            graph.node(name.as_str(), step)
        } else {
            graph.node(name.as_str(), |count: &Count| Ok(Count::update().n(count.n + 1)))
        };
        graph = graph.edge(from.as_str(), name.as_str());
    }
    Ok(graph.compile()?)
}

async fn step(count: &Count) -> NodeResult<CountUpdate> {
    Ok(Count::update().n(count.n + 1))
}

/// Runs a chain and looks at what its stream shows.
pub(crate) fn read_stream(graph: &CompiledGraph<Count>) -> Result<()> {
    let mut seen = 0;
    for part in graph.stream((), Count::update().n(0), &[StreamMode::Values, StreamMode::Updates, StreamMode::Tasks])? {
        part?;
        seen += 1;
    }
    // The state after the input, then for each node its start, its end, an update and a state.
    same("parts", seen, 1 + 4 * NODES as i64)
}

fn streams(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (graph, waiting) = (chain(false)?, chain(true)?);
    let invokes = bench.runs(2_000, 50);
    let ns = |us: f64| us * 1_000.0 / (invokes * NODES) as f64;
    let mut sides: [Side<'_>; 3] = [
        Box::new(|| {
            let (us, ()) = timed(|| {
                (0..invokes)
                    .try_for_each(|_| same("n", graph.invoke((), Count::update().n(0))?.state().n, NODES as i64))
            })?;
            Ok(ns(us))
        }),
        Box::new(|| {
            let (us, ()) = timed(|| (0..invokes).try_for_each(|_| read_stream(&graph)))?;
            Ok(ns(us))
        }),
        Box::new(|| {
            let (us, ()) = timed(|| {
                (0..invokes).try_for_each(|_| {
                    let done = block_on(waiting.ainvoke((), Count::update().n(0)))?;
                    same("n", done.state().n, NODES as i64)
                })
            })?;
            Ok(ns(us))
        }),
    ];
    let costs = interleave(bench.runs(7, 2), &mut sides)?;
    let over: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(none, all)| (all / none - 1.0) * 100.0).collect();
    report.set("stream_overhead_pct", median(&over));
    report.set("async_chain_ns", median(&costs[2]));
    Ok(())
}

/// Some work for a CPU: about a millisecond.
fn busy(seed: u64) -> u64 {
    (0..1_000_000_u64).fold(seed, |sum, n| (sum ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7))
}

fn node(count: &Count) -> NodeResult<()> {
    std::hint::black_box(busy(count.n as u64));
    Ok(())
}

fn parallel(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let beside =
        StateGraph::<Count>::new().node("a", node).node("b", node).edge(START, "a").edge(START, "b").compile()?;
    let after = StateGraph::<Count>::new().node("a", node).node("b", node).edge(START, "a").edge("a", "b").compile()?;
    let run = |graph: &CompiledGraph<Count>| {
        let (us, _) = timed(|| Ok(graph.invoke((), Count::update().n(7))?))?;
        Ok(us)
    };
    let mut sides: [Side<'_>; 4] = [
        Box::new(|| run(&beside)),
        Box::new(|| run(&after)),
        Box::new(|| {
            let (us, ()) = timed(|| {
                std::thread::scope(|scope| {
                    scope.spawn(|| std::hint::black_box(busy(7)));
                    scope.spawn(|| std::hint::black_box(busy(7)));
                });
                Ok(())
            })?;
            Ok(us)
        }),
        Box::new(|| {
            let (us, ()) = timed(|| {
                std::hint::black_box(busy(7));
                std::hint::black_box(busy(7));
                Ok(())
            })?;
            Ok(us)
        }),
    ];
    let times = interleave(bench.runs(9, 3), &mut sides)?;
    let best = |at: usize| times[at].iter().copied().fold(f64::INFINITY, f64::min);
    report.set("parallel_speedup", best(1) / best(0));
    report.set("parallel_speedup_threads", best(3) / best(2));
    Ok(())
}

#[derive(State, Clone, Default)]
struct Large {
    #[channel(last)]
    n: i64,
    #[channel(last)]
    bytes: String,
    #[channel(messages)]
    messages: Messages,
}

fn large_state(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let mut graph = StateGraph::<Large>::new();
    for at in 0..NODES {
        let from = if at == 0 { START.to_owned() } else { format!("node-{:02}", at - 1) };
        let name = format!("node-{at:02}");
        graph = graph
            .node(name.as_str(), |large: &Large| Ok(Large::update().n(large.n + 1)))
            .edge(from.as_str(), name.as_str());
    }
    let graph = graph.compile()?;
    let store = Store::memory();
    let mut per_run = [Vec::new(), Vec::new()];
    for (at, size) in [0, LARGE].into_iter().enumerate() {
        let thread = store.thread(format!("large-{size}"))?;
        let text = "x".repeat(500);
        let messages = (0..size / 2 / 500).map(|_| Message::human(text.as_str()));
        let first = Large::update().n(0).bytes("y".repeat(size / 2)).messages(messages.collect::<Vec<_>>());
        graph.invoke(&thread, first)?;
        for _ in 0..bench.runs(20, 3) {
            let (bytes, done) = allocs::bytes(|| graph.invoke(&thread, Large::update().n(0)));
            same("n", done?.state().n, NODES as i64)?;
            per_run[at].push(bytes as f64);
        }
    }
    report.set("superstep_state_1mb_allocs_ratio", median(&per_run[1]) / median(&per_run[0]));
    report.set("superstep_alloc_bytes", median(&per_run[0]) / NODES as f64);
    Ok(())
}
