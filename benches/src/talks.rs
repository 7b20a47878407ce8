//! Turns of eight conversations at once over turns of one: every commit on the disk.

use std::sync::Barrier;
use std::time::Instant;

use annals::store::Synchronous;
use annals_graph::Durability;
use annals_graph::graph::CompiledGraph;

use crate::disk::{self, OpenedStore};
use crate::figures::FigureReport;
use crate::group::THREADS;
use crate::stats::{Side, interleave, median, ratio};
use crate::turns::{self, Chat, Talk};
use crate::{Bench, Result};

/// Measures `turns_per_s_ratio_8_threads`.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (rounds, count) = (bench.runs(7, 2), bench.runs(100, 10));
    let [one, eight] = compare(bench, Durability::Sync, rounds, count)?;
    report.set("turns_per_s_ratio_8_threads", ratio(&eight, &one));
    report.extra("turns_per_s_1_thread", median(&one));
    report.extra("turns_per_s_8_threads", median(&eight));
    // Committed in the background, both commits of a turn share an fsync already.
    let [one, eight] = compare(bench, Durability::Async, rounds, count)?;
    report.extra("turns_per_s_ratio_8_threads_async", ratio(&eight, &one));
    report.extra("turns_per_s_1_thread_async", median(&one));
    report.extra("turns_per_s_8_threads_async", median(&eight));
    Ok(())
}

/// Runs blocks of `count` turns a conversation, by one thread and by eight in turn, and returns the turns per second of
/// each round.
fn compare(bench: &Bench, durability: Durability, rounds: usize, count: usize) -> Result<[Vec<f64>; 2]> {
    let graph = turns::graph()?;
    let opened = disk::open(&bench.file("talks.db")?, Synchronous::Full)?;
    let talk = |name: &str| Talk::on(opened.clone(), name, durability, 0);
    let mut alone = vec![talk("alone")?];
    let mut together = (0..THREADS).map(|at| talk(&format!("talk-{at}"))).collect::<Result<Vec<_>>>()?;
    let mut sides: [Side<'_>; 2] =
        [Box::new(|| in_threads(&graph, &mut alone, count)), Box::new(|| in_threads(&graph, &mut together, count))];
    let rates = interleave(rounds, &mut sides)?;
    drop(sides);
    verify(&opened, &graph, alone.iter().chain(&together), (rounds + 1) * count)?;
    <[Vec<f64>; 2]>::try_from(rates).map_err(|_| "two sides have two rates".into())
}

/// Runs `count` turns of each conversation on a thread of its own; returns turns per second.
fn in_threads(graph: &CompiledGraph<Chat>, talks: &mut [Talk], count: usize) -> Result<f64> {
    let turns = (talks.len() * count) as f64;
    let barrier = Barrier::new(talks.len() + 1);
    std::thread::scope(|scope| {
        let run = |talk| {
            let (talk, barrier): (&mut Talk, _) = (talk, &barrier);
            scope.spawn(move || {
                barrier.wait();
                (0..count).try_for_each(|_| talk.turn(graph).map(|_| ()))
            })
        };
        let workers: Vec<_> = talks.iter_mut().map(run).collect();
        barrier.wait();
        let start = Instant::now();
        for worker in workers {
            worker.join().map_err(|_| "a thread of turns panicked")??;
        }
        Ok(turns / start.elapsed().as_secs_f64())
    })
}

/// Every conversation has its turns, three checkpoints each.
fn verify<'a>(
    opened: &OpenedStore,
    graph: &CompiledGraph<Chat>,
    talks: impl Iterator<Item = &'a Talk>,
    turns: usize,
) -> Result<()> {
    let mut checkpoints = 0;
    for talk in talks {
        talk.verify_state(graph, turns)?;
        checkpoints += 3 * turns as u64;
    }
    opened.verify(checkpoints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_on_eight_threads_have_all_their_turns() {
        let folder = tempfile::tempdir().unwrap();
        let [one, eight] = compare(&Bench::quick_in(folder.path()), Durability::Sync, 2, 2).unwrap();
        assert_eq!((one.len(), eight.len()), (2, 2));
        assert!(one.iter().chain(&eight).all(|rate| *rate > 0.0));
    }
}
