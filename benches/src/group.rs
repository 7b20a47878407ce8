//! Group commit: many threads, and many batches outstanding, over one at a time. All at FULL.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Instant;

use annals::store::Synchronous;
use annals::store::batch::Batch;
use annals::store::log::CommitHandle;

use crate::append::Chain;
use crate::disk::{self, Fsync, OpenedStore};
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, ratio};
use crate::{Bench, Result, talks};

/// Blocking threads, each with a history thread of its own.
pub(crate) const THREADS: usize = 8;
/// Batches outstanding at once.
const OUTSTANDING: usize = 64;

/// Measures the group commit figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (rounds, commits) = (bench.runs(7, 2), bench.runs(240, 32));
    threads(bench, report, rounds, commits)?;
    outstanding(bench, report, rounds, commits)?;
    talks::measure(bench, report)
}

fn threads(bench: &Bench, report: &mut FigureReport, rounds: usize, commits: usize) -> Result<()> {
    let opened = disk::open(&bench.file("threads.db")?, Synchronous::Full)?;
    let mut alone = Chain::new("alone", 1)?;
    let mut together: Vec<Chain> =
        (0..THREADS).map(|at| Chain::new(&format!("thread-{at}"), at as u64 + 2)).collect::<Result<_>>()?;
    let mut fsync = Fsync::new(bench, "fsync")?;
    let groups = RefCell::new(Vec::new());
    let mut sides: [Side<'_>; 3] = [
        Box::new(|| {
            let batches = alone.take(commits);
            Ok(commits as f64 / in_threads(&opened, vec![batches])?)
        }),
        Box::new(|| {
            let batches: Vec<_> = together.iter_mut().map(|chain| chain.take(commits)).collect();
            let before = sizes(&opened);
            let seconds = in_threads(&opened, batches)?;
            let after = sizes(&opened);
            groups.borrow_mut().push(group_size(before, after));
            Ok((commits * THREADS) as f64 / seconds)
        }),
        Box::new(|| fsync.block(20)),
    ];
    let rates = interleave(rounds, &mut sides)?;
    drop(sides);
    opened.verify(((rounds + 1) * commits * (THREADS + 1)) as u64)?;
    report.set("group_commit_ratio_threads", ratio(&rates[1], &rates[0]));
    report.set("group_size_mean", median(&groups.borrow()[1..]));
    report.extra("group_threads_fsync_us", median(&rates[2]));
    report.extra("group_commits_per_s_1_thread", median(&rates[0]));
    report.extra("group_commits_per_s_8_threads", median(&rates[1]));
    Ok(())
}

/// Returns commits and transactions so far.
fn sizes(opened: &OpenedStore) -> (u64, u64) {
    let stats = opened.backend.commit_stats();
    (stats.commits, stats.transactions)
}

fn group_size(before: (u64, u64), after: (u64, u64)) -> f64 {
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

/// Commits each list of batches on a thread of its own; returns the seconds from the first start to the last end.
fn in_threads(opened: &OpenedStore, lists: Vec<Vec<Batch>>) -> Result<f64> {
    let barrier = Barrier::new(lists.len() + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = lists
            .iter()
            .map(|batches| {
                let (store, barrier) = (opened.store.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    batches.iter().try_for_each(|batch| store.commit(batch))
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        for worker in workers {
            worker.join().map_err(|_| "a committing thread panicked")??;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

fn outstanding(bench: &Bench, report: &mut FigureReport, rounds: usize, commits: usize) -> Result<()> {
    let opened = disk::open(&bench.file("outstanding.db")?, Synchronous::Full)?;
    let many = commits * 8;
    let (mut one, mut window) = (Chain::new("one", 1)?, Chain::new("window", 2)?);
    let mut fsync = Fsync::new(bench, "fsync")?;
    let groups = RefCell::new(Vec::new());
    let mut sides: [Side<'_>; 3] = [
        Box::new(|| submit(&opened, one.take(commits), 1)),
        Box::new(|| {
            let before = sizes(&opened);
            let rate = submit(&opened, window.take(many), OUTSTANDING)?;
            let after = sizes(&opened);
            groups.borrow_mut().push(group_size(before, after));
            Ok(rate)
        }),
        Box::new(|| fsync.block(20)),
    ];
    let rates = interleave(rounds, &mut sides)?;
    drop(sides);
    opened.verify(((rounds + 1) * (commits + many)) as u64)?;
    report.set("group_commit_ratio_outstanding", ratio(&rates[1], &rates[0]));
    report.extra("group_size_mean_outstanding", median(&groups.borrow()[1..]));
    report.extra("group_outstanding_fsync_us", median(&rates[2]));
    report.extra("group_commits_per_s_1_outstanding", median(&rates[0]));
    report.extra("group_commits_per_s_64_outstanding", median(&rates[1]));
    Ok(())
}

/// Submits batches, at most `window` of them unsettled; returns batches per second until the last is durable.
fn submit(opened: &OpenedStore, batches: Vec<Batch>, window: usize) -> Result<f64> {
    let count = batches.len();
    let mut open = VecDeque::with_capacity(window);
    let start = Instant::now();
    for batch in batches {
        if open.len() == window
            && let Some(oldest) = open.pop_front()
        {
            CommitHandle::wait(&oldest)?;
        }
        open.push_back(opened.store.submit(batch));
    }
    open.iter().try_for_each(CommitHandle::wait)?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
