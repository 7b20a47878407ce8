//! Measures the cost of a superstep without a disk: a chain of ten nodes.

use annals_graph::Durability;
use annals_graph::graph::CompiledGraph;
use annals_graph::prelude::*;

use crate::disk::same;
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, timed};
use crate::{Bench, Result};

/// Nodes of the chain, each a superstep.
pub(crate) const NODES: usize = 10;

/// A state of one number.
#[derive(State, Clone, Default)]
pub(crate) struct Count {
    #[channel(last)]
    pub(crate) n: i64,
}

fn graph() -> Result<CompiledGraph<Count>> {
    let mut graph = StateGraph::<Count>::new();
    for at in 0..NODES {
        let from = if at == 0 { START.to_owned() } else { format!("node-{:02}", at - 1) };
        let name = format!("node-{at:02}");
        graph = graph
            .node(name.as_str(), |count: &Count| Ok(Count::update().n(count.n + 1)))
            .edge(from.as_str(), name.as_str());
    }
    Ok(graph.compile()?)
}

/// Measures the superstep figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let graph = graph()?;
    let (bare, stored) = (bench.runs(5_000, 100), bench.runs(300, 20));
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| {
            per_superstep(bare, || {
                let done = graph.invoke((), Count::update().n(0))?;
                same("n", done.state().n, NODES as i64)
            })
        }),
        Box::new(|| {
            let thread = Store::memory().thread("chain")?;
            per_superstep(stored, || {
                let run = graph.run(&thread).durability(Durability::Sync);
                same("n", run.invoke(Count::update().n(0))?.state().n, NODES as i64)
            })
        }),
    ];
    let costs = interleave(bench.runs(7, 2), &mut sides)?;
    report.set("superstep_ns", median(&costs[0]) * 1_000.0);
    report.set("superstep_store_us", median(&costs[1]));
    Ok(())
}

fn per_superstep(invokes: usize, mut invoke: impl FnMut() -> Result<()>) -> Result<f64> {
    let (us, ()) = timed(|| (0..invokes).try_for_each(|_| invoke()))?;
    Ok(us / (invokes * NODES) as f64)
}
