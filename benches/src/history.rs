//! Reading and forking a history of 10,000 messages.

use std::cell::Cell;
use std::path::Path;

use annals::history::Thread;
use annals::store::Synchronous;
use annals::store::batch::Batch;

use crate::append::{Chain, ChainLink, TEXT_BYTES};
use crate::disk::{self, OpenedStore, same};
use crate::figures::FigureReport;
use crate::stats::{SeededNumbers, Side, best, interleave, median, ratio, timed};
use crate::turns::{self, Chat, THREAD};
use crate::{Bench, Result, raw_state};

/// Operations of one side before the next has its turn.
const BLOCK: usize = 20;

/// Measures the history figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    reads(bench, report)?;
    forks(bench, report)
}

/// Fresh handles on a conversation made by turns.
fn reads(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (_, turns) = turns::lengths(bench);
    let path = bench.file("reads.db")?;
    turns::build(&path, turns)?;
    let graph = turns::graph()?;
    let bytes = Cell::new(0);
    let mut get_state = || {
        let thread = fresh(&path)?;
        let (us, state) = timed(|| Ok(graph.get_state(&thread)?))?;
        same("messages", state.values.messages.len(), turns)?;
        let texts = state.values.messages.iter().filter(|message| message.text().len() == TEXT_BYTES);
        same("texts of their length", texts.count(), turns)?;
        Ok(us)
    };
    let mut tail = || {
        let thread = fresh(&path)?;
        let (us, items) = timed(|| Ok(thread.head()?.ok_or("there is no head")?.tail("messages", 50)?))?;
        same("items", items.len(), 50)?;
        let text = items[49].get("content").and_then(|content| content.as_str()).map(str::len);
        same("bytes of the last text", text, Some(TEXT_BYTES))?;
        Ok(us)
    };
    let mut by_hand = || {
        let (us, state) = raw_state::fresh(&path)?;
        state.verify(turns, TEXT_BYTES)?;
        bytes.set(state.bytes());
        Ok(us)
    };
    let mut snapshot = || {
        let thread = fresh(&path)?;
        let (us, state) = timed(|| Ok(thread.head()?.ok_or("there is no head")?.state::<Chat>()?))?;
        same("messages", state.messages.len(), turns)?;
        Ok(us)
    };
    let mut sides: [Side<'_>; 4] =
        [Box::new(&mut get_state), Box::new(&mut tail), Box::new(&mut by_hand), Box::new(&mut snapshot)];
    let costs = interleave(bench.runs(11, 2), &mut sides)?;
    drop(sides);
    report.set("get_state_us_10k", median(&costs[0]));
    report.set("get_state_raw_ratio", ratio(&costs[0], &costs[2]));
    report.extra("get_state_raw_us_10k", median(&costs[2]));
    report.extra("get_state_raw_best_ratio", best(&costs[0]) / best(&costs[2]));
    report.extra("get_state_raw_bytes_10k", bytes.get() as f64);
    report.extra("snapshot_state_us_10k", median(&costs[3]));
    report.set("read_tail_50_us_10k", median(&costs[1]));
    report.extra("get_state_best_us_10k", best(&costs[0]));
    report.extra("read_tail_50_best_us_10k", best(&costs[1]));
    let warm = fresh(&path)?;
    let mut tails = Vec::new();
    for _ in 0..bench.runs(100, 5) {
        tails.push(timed(|| Ok(warm.head()?.ok_or("there is no head")?.tail("messages", 50)?.len()))?.0);
    }
    report.extra("read_tail_50_warm_us_10k", median(&tails));
    Ok(())
}

fn fresh(path: &Path) -> Result<Thread> {
    Ok(disk::open(path, Synchronous::Normal)?.store.thread(THREAD)?)
}

/// A copy of one thread of chat supersteps.
struct Copy {
    opened: OpenedStore,
    chain: Chain,
    checkpoints: u64,
}

impl Copy {
    fn open(bench: &Bench, name: &str, original: &Path, chain: Chain) -> Result<Self> {
        let path = bench.file(name)?;
        std::fs::copy(original, &path)?;
        let checkpoints = chain.links.len() as u64;
        Ok(Self { opened: disk::open(&path, Synchronous::Normal)?, chain, checkpoints })
    }

    fn commit(&mut self, batch: &Batch) -> Result<f64> {
        self.checkpoints += 1;
        let (us, ()) = timed(|| Ok(self.opened.store.commit(batch)?))?;
        Ok(us)
    }

    fn append(&mut self) -> Result<f64> {
        let batch = self.chain.next();
        self.commit(&batch)
    }

    /// Opens a branch at an old checkpoint with its first superstep.
    fn fork(&mut self, at: &ChainLink) -> Result<f64> {
        let (batch, _) = self.chain.on(Some(at));
        self.commit(&batch)
    }

    /// Makes a thread of an old checkpoint, with its first superstep.
    fn fork_thread(&mut self, at: &ChainLink, name: &str) -> Result<f64> {
        let snapshot = self.opened.store.thread(THREAD)?.at(at.id)?;
        let (fork_us, thread) = timed(|| Ok(snapshot.fork_to(name)?))?;
        let head = thread.head()?.ok_or("the fork has no head")?.id();
        let mut chain = Chain::new(name, self.checkpoints)?;
        chain.head = Some(head);
        // The fork repeats the tasks of its parent, and nothing else changes.
        let (batch, _) = chain.on(Some(&at.forked_as(head)));
        self.checkpoints += 1;
        Ok(fork_us + self.commit(&batch)?)
    }
}

fn chain(bench: &Bench) -> Result<Chain> {
    let (_, messages) = turns::lengths(bench);
    let mut chain = Chain::new(THREAD, 1)?;
    chain.links.reserve(messages + 1);
    Ok(chain)
}

/// Appends and forks on copies of the same thread, in blocks that take turns.
fn forks(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (_, messages) = turns::lengths(bench);
    let original = bench.file("chain.db")?;
    let opened = disk::open(&original, Synchronous::Normal)?;
    let mut first = chain(bench)?;
    for batch in first.take(messages + 1) {
        opened.store.commit(&batch)?;
    }
    opened.empty_wal()?;
    drop(opened);
    let links = first.links.clone();
    let copy = |name: &str, seed: u64| {
        let mut chain = Chain::new(THREAD, seed)?;
        (chain.head, chain.links) = (first.head, links.clone());
        Copy::open(bench, name, &original, chain)
    };
    let (mut append, mut fork, mut thread) = (copy("append.db", 2)?, copy("fork.db", 3)?, copy("fork-thread.db", 4)?);
    let (mut dice, mut other_dice, mut forks) = (SeededNumbers(5), SeededNumbers(5), 0);
    let mut sides: [Side<'_>; 3] = [
        Box::new(|| block(|| append.append())),
        Box::new(|| block(|| fork.fork(&links[dice.below(links.len() as u64 - 1) as usize]))),
        Box::new(|| {
            block(|| {
                forks += 1;
                let at = &links[other_dice.below(links.len() as u64 - 1) as usize];
                thread.fork_thread(at, &format!("fork-{forks}"))
            })
        }),
    ];
    let costs = interleave(bench.runs(50, 2), &mut sides)?;
    drop(sides);
    for copy in [&append, &fork, &thread] {
        copy.opened.verify(copy.checkpoints)?;
    }
    report.set("append_us_10k", median(&costs[0]));
    report.set("fork_us_10k", median(&costs[1]));
    report.extra("fork_thread_us_10k", median(&costs[2]));
    report.extra("fork_over_append", ratio(&costs[1], &costs[0]));
    Ok(())
}

fn block(mut one: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(median(&(0..BLOCK).map(|_| one()).collect::<Result<Vec<_>>>()?))
}
