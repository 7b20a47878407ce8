//! The cost of a lease: turns that take one beside turns that take none.

use std::time::Duration;

use annals::store::Synchronous;
use annals_graph::Durability;

use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, ratio};
use crate::turns::{self, BLOCK, Talk};
use crate::{Bench, Result};

/// The duration of a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Measures the figures of leases: without a sync of each commit, and with one, as a store is opened by default.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    for (synchronous, name, suffix) in
        [(Synchronous::Normal, "lease_overhead_pct", ""), (Synchronous::Full, "lease_overhead_full_pct", "_full")]
    {
        let [plain, leased] = costs(bench, synchronous)?;
        report.set(name, (ratio(&leased, &plain) - 1.0) * 100.0);
        report.extra(&format!("turn_us_without_lease{suffix}"), median(&plain));
        report.extra(&format!("turn_us_with_lease{suffix}"), median(&leased));
    }
    Ok(())
}

/// Returns the microseconds of turns without a lease and of those with one.
fn costs(bench: &Bench, synchronous: Synchronous) -> Result<[Vec<f64>; 2]> {
    let graph = turns::graph()?;
    let leased = turns::graph()?.with_config(|run| run.lease(LEASE));
    let (turns, _) = turns::lengths(bench);
    let (plain_path, leased_path) = (bench.file("plain.db")?, bench.file("leased.db")?);
    turns::build(&plain_path, turns)?;
    std::fs::copy(&plain_path, &leased_path)?;
    let mut plain_talk = Talk::open(&plain_path, synchronous, Durability::Sync, turns)?;
    let mut leased_talk = Talk::open(&leased_path, synchronous, Durability::Sync, turns)?;
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| turns::block(BLOCK, || plain_talk.turn(&graph))),
        Box::new(|| turns::block(BLOCK, || leased_talk.turn(&leased))),
    ];
    let costs = interleave(bench.runs(100, 2), &mut sides)?;
    costs.try_into().map_err(|_| "there are two sides".into())
}
