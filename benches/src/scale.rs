//! Costs in large files beside those in small ones: deleting threads, listing them, and the ends of lists.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals::base::{CheckpointId, Clock, IdSource, Namespace, SystemClock, ThreadId};
use annals::history::ThreadQuery;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, Parent, Payload,
};
use annals::store::log::LogExt;
use annals::store::record::Source;
use annals::store::{CheckpointRef, Erasure, ItemRange, Synchronous};

use crate::disk::{self, OpenedStore, same};
use crate::figures::FigureReport;
use crate::stats::{SeededNumbers, Side, interleave, median, text, timed};
use crate::{Bench, Result};

/// The list whose end is read.
const LIST: &str = "messages";
/// Items of a tail, and threads of a page.
const PAGE: usize = 50;
/// Threads of the small file.
const SMALL: u64 = 200;
/// Checkpoints of a batch.
const BATCH: u64 = 500;

/// Measures the figures of size.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let size = if bench.quick { 1_000 } else { 100_000 };
    let forks = if bench.quick { 300 } else { 10_000 };
    threads(bench, report, size)?;
    tails(bench, report, size, forks)?;
    deletion(bench, report, size)
}

/// A thread whose checkpoints each add an item of 100 bytes to a list.
pub(crate) struct Growing {
    thread: ThreadId,
    ids: IdSource,
    head: Option<CheckpointId>,
    items: u64,
}

impl Growing {
    pub(crate) fn new(name: &str, seed: u64) -> Result<Self> {
        Ok(Self { thread: ThreadId::new(name)?, ids: IdSource::from_seed(seed), head: None, items: 0 })
    }

    fn checkpoint(&mut self, parent: Option<Parent>, adds: bool) -> NewCheckpoint {
        let id = self.ids.checkpoint(SystemClock.now(), 0, self.head.as_ref());
        let mut checkpoint = NewCheckpoint::new(id, parent, 0, Source::Loop, SystemClock.now());
        if adds {
            let mut index = ItemIndex::default();
            (index.kind, index.text) = (Some("ai".into()), Some(text(self.items, 100)));
            let put = ItemOp::Put(Data::New(Payload::default().with_index(index)));
            let change = ChangeValue::Items(vec![ItemChange::new(self.items, put, None)]);
            checkpoint.changes.push(Change::new(LIST, self.items + 1, change));
            self.items += 1;
        }
        self.head = Some(id);
        checkpoint
    }

    /// Commits `count` checkpoints, in batches.
    pub(crate) fn grow(&mut self, store: &OpenedStore, count: u64) -> Result<()> {
        for from in (0..count).step_by(BATCH as usize) {
            let mut batch = Batch::new(self.thread.clone(), Namespace::root(), self.head);
            for _ in from..count.min(from + BATCH) {
                let parent = self.head.map(Parent::Local);
                batch.checkpoints.push(self.checkpoint(parent, true));
            }
            store.store.commit(&batch)?;
        }
        Ok(())
    }

    /// Commits the first checkpoint of a fork, whose list is that of its source or has an item more.
    fn fork(&mut self, store: &OpenedStore, name: String, adds: bool) -> Result<()> {
        let from = self.at(self.head.ok_or("nothing to fork")?);
        self.thread = ThreadId::new(name)?;
        let mut batch = Batch::new(self.thread.clone(), Namespace::root(), None);
        batch.checkpoints.push(self.checkpoint(Some(Parent::Fork(from)), adds));
        Ok(store.store.commit(&batch)?)
    }

    fn at(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef::new(self.thread.clone(), Namespace::root(), checkpoint)
    }
}

/// Fills a file with threads of one checkpoint each.
fn fill(bench: &Bench, name: &str, count: u64) -> Result<OpenedStore> {
    let opened = disk::open(&bench.file(name)?, Synchronous::Normal)?;
    for n in 0..count {
        Growing::new(&thread_name(n), n + 1)?.grow(&opened, 1)?;
    }
    opened.empty_wal()?;
    Ok(opened)
}

fn thread_name(n: u64) -> String {
    format!("thread {n:06}")
}

/// Lists the threads with the newest activity, in a file with 1,000 threads and in a large one: the newest ones, and
/// those with a filter that few threads fit.
fn listings(bench: &Bench, report: &mut FigureReport, large: &OpenedStore) -> Result<()> {
    let small = fill(bench, "threads-1k.db", if bench.quick { 200 } else { 1_000 })?;
    for opened in [&small, large] {
        let rare = opened.store.threads()?;
        let rare: Vec<&str> = rare.iter().step_by(rare.len() / PAGE).map(|thread| thread.id.as_str()).collect();
        opened.store.facts(&rare)?.project("rare").save()?;
    }
    let list = |opened: &OpenedStore, query: ThreadQuery| -> Result<f64> {
        let (us, page) = timed(|| Ok(opened.store.threads_with(query)?))?;
        same("threads of a page", page.len(), PAGE)?;
        Ok(us)
    };
    let of_project = || ThreadQuery::new().project("rare");
    let mut sides: [Side<'_>; 4] = [
        Box::new(|| list(&small, ThreadQuery::new())),
        Box::new(|| list(large, ThreadQuery::new())),
        Box::new(|| list(&small, of_project())),
        Box::new(|| list(large, of_project())),
    ];
    let costs = interleave(bench.runs(200, 10), &mut sides)?;
    drop(sides);
    report.set("list_50_threads_us_1k", median(&costs[0]));
    report.set("list_50_threads_us_100k", median(&costs[1]));
    report.extra("list_50_of_project_us_1k", median(&costs[2]));
    report.extra("list_50_of_project_us_100k", median(&costs[3]));
    Ok(())
}

/// Deletes single threads, and lists pages of threads, in a small and in a large file.
fn threads(bench: &Bench, report: &mut FigureReport, size: u64) -> Result<()> {
    let (small, large) = (fill(bench, "threads-small.db", SMALL)?, fill(bench, "threads-large.db", size)?);
    let page = |opened: &OpenedStore, after: u64| -> Result<f64> {
        let after = ThreadId::new(thread_name(after))?;
        let (us, page) = timed(|| Ok(opened.backend.threads(Some(&after), PAGE)?))?;
        same("threads of a page", page.len(), PAGE)?;
        Ok(us)
    };
    let (mut dice, mut same_dice) = (SeededNumbers(1), SeededNumbers(1));
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| page(&small, dice.below(SMALL - PAGE as u64 - 1))),
        Box::new(|| page(&large, same_dice.below(size - PAGE as u64 - 1))),
    ];
    let costs = interleave(bench.runs(200, 10), &mut sides)?;
    drop(sides);
    report.set("threads_page_us", median(&costs[0]));
    report.set("threads_page_us_100k", median(&costs[1]));
    listings(bench, report, &large)?;
    let delete = |opened: &OpenedStore, n: u64| -> Result<f64> {
        let (us, erasure) = timed(|| Ok(opened.store.delete_thread(thread_name(n))?))?;
        same("erasure", erasure, Erasure::Erased)?;
        Ok(us)
    };
    let (mut next, mut next_large) = (0..SMALL, (0..size).step_by((size / SMALL) as usize));
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| delete(&small, next.next().ok_or("no thread is left")?)),
        Box::new(|| delete(&large, next_large.next().ok_or("no thread is left")?)),
    ];
    let costs = interleave(bench.runs(100, 10), &mut sides)?;
    report.set("delete_thread_us", median(&costs[0]));
    report.set("delete_thread_us_100k_threads", median(&costs[1]));
    Ok(())
}

/// Reads the ends of lists at the head and in the middle of a long thread, and below many forks.
fn tails(bench: &Bench, report: &mut FigureReport, size: u64, forks: u64) -> Result<()> {
    let opened = disk::open(&bench.file("tails.db")?, Synchronous::Normal)?;
    let mut long = Growing::new("long", 1)?;
    long.grow(&opened, size / 2)?;
    let middle = long.at(long.head.ok_or("there is no head")?);
    long.grow(&opened, size - size / 2)?;
    let head = long.at(long.head.ok_or("there is no head")?);
    let mut forked = Growing::new("forked", 2)?;
    forked.grow(&opened, 100)?;
    for n in 0..forks {
        forked.fork(&opened, format!("fork {n}"), n % 2 == 0)?;
    }
    let below = forked.at(forked.head.ok_or("there is no head")?);
    opened.empty_wal()?;
    let tail = |at: &CheckpointRef, items: u64| -> Result<f64> {
        let (mut count, mut last) = (0, 0);
        let (us, ()) = timed(|| {
            Ok(opened.backend.items(at, LIST, ItemRange::Tail(PAGE), &mut |row| {
                (count, last) = (count + 1, row.position);
                Ok(())
            })?)
        })?;
        same("items and the last position", (count, last), (PAGE, items - 1))?;
        Ok(us)
    };
    let len = |at: &CheckpointRef, items: u64| -> Result<f64> {
        let (us, len) = timed(|| Ok(opened.backend.list_len(at, LIST)?))?;
        same("length", len, items)?;
        Ok(us)
    };
    let mut sides: [Side<'_>; 5] = [
        Box::new(|| tail(&head, size)),
        Box::new(|| tail(&middle, size / 2)),
        Box::new(|| tail(&below, forked.items)),
        Box::new(|| len(&head, size)),
        Box::new(|| len(&below, forked.items)),
    ];
    let costs = interleave(bench.runs(200, 5), &mut sides)?;
    report.set("tail_50_us_head_100k", median(&costs[0]));
    report.set("tail_50_us_middle_100k", median(&costs[1]));
    report.set("tail_50_us_forks_10k", median(&costs[2]));
    report.extra("list_len_us_head_100k", median(&costs[3]));
    report.extra("list_len_us_forks_10k", median(&costs[4]));
    Ok(())
}

/// Deletes a long thread while another handle commits.
fn deletion(bench: &Bench, report: &mut FigureReport, size: u64) -> Result<()> {
    let path = bench.file("deleted.db")?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    Growing::new("long", 1)?.grow(&opened, size)?;
    opened.empty_wal()?;
    let (us, erasure) = timed(|| Ok(opened.store.delete_thread("long")?))?;
    report.set("delete_thread_ms_100k_checkpoints", us / 1_000.0);
    same("threads", opened.store.threads()?.len(), 0)?;
    if size == 100_000 {
        same("erasure", erasure, Erasure::ErasePending { threads: 1 })?;
    }
    let done = AtomicBool::new(false);
    let (reclaim_us, longest) = std::thread::scope(|scope| -> Result<(f64, f64)> {
        let writer = scope.spawn(|| commits(&path, &done).map_err(|error| error.to_string()));
        let reclaimed = timed(|| {
            loop {
                if opened.store.reclaim()?.is_erased() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        done.store(true, Ordering::Relaxed);
        let longest = writer.join().map_err(|_| "the writer panicked")??;
        Ok((reclaimed?.0, longest))
    })?;
    report.extra("reclaim_ms_100k_checkpoints", reclaim_us / 1_000.0);
    report.extra("commit_wait_max_ms_reclaim", longest / 1_000.0);
    let report = opened.store.check()?;
    same("deleted threads with bytes", (report.erasing, report.problems), (0, Vec::new()))
}

/// Commits small checkpoints through a handle of its own, and returns the longest time that one took.
fn commits(path: &std::path::Path, done: &AtomicBool) -> Result<f64> {
    let opened = disk::open(path, Synchronous::Normal)?;
    let (mut other, mut longest) = (Growing::new("other", 3)?, 0.0_f64);
    while !done.load(Ordering::Relaxed) {
        longest = longest.max(timed(|| other.grow(&opened, 1))?.0);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(longest)
}
