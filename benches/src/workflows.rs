//! Durable workflows: queues, workers in other processes, recovery, and the same five-task workflow with DBOS.

use std::future::{pending, poll_fn};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use annals::history::{ThreadInfo, ThreadQuery};
use annals::store::batch::Batch;
use annals::store::lease::NewLease;
use annals::store::log::{ClaimQuery, LogExt};
use annals::store::{Store, Synchronous};
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::{RunControl, Task};
use annals_graph::{Durability, Worker};

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::stats::{SeededNumbers, median, micros, timed};
use crate::{Bench, Result};

/// The argument that makes this program a process with a worker.
pub(crate) const WORK_CHILD: &str = "work-child";
/// The argument that makes this program a process that begins runs and is killed.
pub(crate) const CRASH_CHILD: &str = "crash-child";
/// The name of the measured queue.
const FLOW: &str = "flow";
/// The workflows that are run before the measured ones, on both sides of a comparison.
const WARMUPS: usize = 5;
/// The names of the tasks of the measured workflow.
const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];
/// The duration of the leases of the process that is killed.
const LEASE: Duration = Duration::from_secs(600);

type FiveTaskGraph = CompiledGraph<Entry<i64, i64>>;

/// Measures the figures of workflows.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    queued(bench, report)?;
    wake(bench, report)?;
    throughput(bench, report)?;
    recovery(bench, report)
}

/// A workflow of five tasks without work of their own.
pub(crate) fn five_tasks() -> Result<FiveTaskGraph> {
    counted_tasks(&Arc::default())
}

/// The workflow of five tasks, which counts the tasks that have run.
fn counted_tasks(ran: &Arc<AtomicUsize>) -> Result<FiveTaskGraph> {
    let tasks = NAMES.map(|name| {
        let ran = Arc::clone(ran);
        Task::new(name, move |n: i64| {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(n + 1)
        })
    });
    let steps = move |n: i64, context: &Context| tasks.iter().try_fold(n, |n, task| task.call(context, n));
    Ok(Entrypoint::new(FLOW, steps).compile()?)
}

/// The workflow of five tasks, whose third task does not end; it counts those.
fn hanging_tasks(hung: &Arc<AtomicUsize>) -> Result<FiveTaskGraph> {
    let tasks = NAMES.map(|name| {
        let hung = Arc::clone(hung);
        Task::new(name, move |n: i64| {
            let hung = Arc::clone(&hung);
            async move {
                if name == NAMES[2] {
                    hung.fetch_add(1, Ordering::Relaxed);
                    pending::<()>().await;
                }
                Ok(n + 1)
            }
        })
    });
    let steps = move |n: i64, context: Context| {
        let tasks = tasks.clone();
        async move {
            let mut n = n;
            for task in &tasks {
                n = task.call(&context, n).await?;
            }
            Ok(n)
        }
    };
    Ok(Entrypoint::new(FLOW, steps).compile()?)
}

/// A workflow that returns the time at which it began, in microseconds since 1970.
fn clock() -> Result<FiveTaskGraph> {
    Ok(Entrypoint::new(FLOW, |_: i64| Ok(now_us())).compile()?)
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Enqueues runs without types, and claims the first of a short queue and of a long one.
fn queued(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (few, many) = (bench.runs(1_000, 200), bench.runs(100_000, 600));
    let opened = disk::open(&bench.file("queue.db")?, Synchronous::Normal)?;
    let queue = opened.store.queue(FLOW);
    let mut enqueued = Vec::new();
    let mut claims = Vec::new();
    for n in 0..many {
        if n == few {
            claims.push(claim(bench, &opened.store)?);
        }
        let (us, _) = timed(|| Ok(queue.enqueue(format!("order-{n}"), n as i64)?))?;
        enqueued.push(us);
    }
    claims.push(claim(bench, &opened.store)?);
    report.set("enqueue_us", median(&enqueued));
    report.set("claim_us_1k_queued", claims[0]);
    report.set("claim_us_100k_queued", claims[1]);
    opened.verify(many as u64)
}

/// Returns the time of a claim of the first run of a queue. It is released again, which is not timed.
fn claim(bench: &Bench, store: &Store) -> Result<f64> {
    let mut costs = Vec::new();
    for _ in 0..bench.runs(300, 5) {
        let (us, run) = timed(|| {
            let until = store.now().saturating_add(LEASE);
            let query = ClaimQuery::new([store.mint_owner()], store.now(), until).queue(FLOW, []);
            Ok(store.backend().claim(&query)?.runs.pop().ok_or("the queue is empty")?)
        })?;
        store.commit(&Batch::of_lease(run.info.id().clone(), NewLease::release(run.lease.owner)))?;
        costs.push(us);
    }
    Ok(median(&costs))
}

/// Enqueues runs for a worker in another process, and compares the time at which each began with that of the commit, or
/// with that at which a delayed one was due.
fn wake(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let path = bench.file("wake.db")?;
    let opened = disk::open(&path, Synchronous::Full)?;
    let mut child = start(WORK_CHILD, &path)?;
    idle(bench, report, child.id())?;
    let (mut waits, mut late, mut dice) = (Vec::new(), Vec::new(), SeededNumbers(7));
    for n in 0..bench.runs(100, 5) {
        std::thread::sleep(Duration::from_millis(30 + dice.below(40)));
        opened.store.queue(FLOW).enqueue(format!("now-{n}"), 0)?;
        waits.push((now_us(), format!("now-{n}")));
        let due = opened.store.now().saturating_add(Duration::from_millis(20 + dice.below(20)));
        opened.store.queue(FLOW).at(due).enqueue(format!("later-{n}"), 0)?;
        late.push((due.as_micros(), format!("later-{n}")));
    }
    let clock = clock()?;
    let began = |expected: &[(i64, String)]| -> Result<Vec<f64>> {
        let mut costs = Vec::new();
        for (since, thread) in expected {
            let thread = opened.store.thread(thread)?;
            until(Duration::from_secs(20), || Ok(ThreadStatus::of(&thread.info()?) == ThreadStatus::Done))?;
            let state = clock.get_state(&thread)?;
            let at = state.values.value().copied().ok_or("a run without a result")?;
            costs.push((at - since) as f64 / 1e3);
        }
        Ok(costs)
    };
    let (waits, late) = (began(&waits)?, began(&late)?);
    drop(child.stdin.take());
    child.wait()?;
    report.set("worker_wake_ms", median(&waits));
    report.extra("worker_wake_ms_max", waits.iter().copied().fold(0.0, f64::max));
    report.extra("timer_wake_ms", median(&late));
    Ok(())
}

/// Measures a process whose worker has nothing to do: the time of its threads, and how often they were woken.
fn idle(bench: &Bench, report: &mut FigureReport, process: u32) -> Result<()> {
    let sum = || -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            let times = std::fs::read_to_string(thread.join("schedstat"))?;
            let status = std::fs::read_to_string(thread.join("status"))?;
            let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
            sum = (sum.0 + count(times.split(' ').next()), sum.1 + count(waits));
        }
        Ok(sum)
    };
    // The first looks and the end of idle threads.
    std::thread::sleep(Duration::from_secs(3));
    let Ok(before) = sum() else { return Ok(()) };
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(bench.runs(20, 3) as u64));
    let (after, seconds) = (sum()?, begin.elapsed().as_secs_f64());
    report.set("worker_idle_cpu_pct", after.0.saturating_sub(before.0) as f64 / 1e7 / seconds);
    report.set("worker_idle_wakeups_per_s", after.1.saturating_sub(before.1) as f64 / seconds);
    Ok(())
}

/// Runs queued workflows of five tasks on eight threads, and one after another without a worker.
fn throughput(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (flow, runs) = (five_tasks()?, bench.runs(800, 20));
    let us = work(&bench.file("flows.db")?, &flow, runs)?;
    report.set("workflows_per_s_8_threads", runs as f64 / us * 1e6);
    let path = bench.file("alone.db")?;
    let (us, bytes) = alone(&path, &flow, runs)?;
    report.extra("workflow_us_alone", us);
    report.extra("workflow_bytes", bytes);
    Ok(())
}

/// Queues workflows, and runs them by a worker with eight threads at FULL. Returns the time of the worker in
/// microseconds.
pub(crate) fn work(path: &Path, flow: &FiveTaskGraph, runs: usize) -> Result<f64> {
    let opened = disk::open(path, Synchronous::Full)?;
    for n in 0..runs {
        opened.store.queue(FLOW).enqueue(format!("order-{n}"), n as i64)?;
    }
    let worker = Worker::new(&opened.store).register(flow).concurrency(8);
    let (us, done) = timed(|| Ok(worker.run_until_idle()?))?;
    same("workflows that have ended", done.continued, runs as u64)?;
    Ok(us)
}

/// Runs workflows one after another at FULL. Returns the median in microseconds, and the bytes that each adds.
pub(crate) fn alone(path: &Path, flow: &FiveTaskGraph, runs: usize) -> Result<(f64, f64)> {
    let opened = disk::open(path, Synchronous::Full)?;
    let (mut costs, mut before) = (Vec::new(), 0);
    for n in 0..runs + WARMUPS {
        if n == WARMUPS {
            before = opened.bytes(path)?;
        }
        let thread = opened.store.thread(format!("order-{n}"))?;
        let (us, done) = timed(|| Ok(flow.run(&thread).durability(Durability::Sync).invoke(n as i64)?))?;
        same("the result of a workflow", done.value().copied(), Some(n as i64 + 5))?;
        costs.push(us);
    }
    let bytes = opened.bytes(path)?.saturating_sub(before);
    Ok((median(&costs[WARMUPS..]), bytes as f64 / runs as f64))
}

/// Lets a process begin many runs and die in the third task of each, and measures the time until a worker has ended all
/// of them. Their first two tasks do not run again.
fn recovery(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let runs = bench.runs(1_000, 30);
    let path = bench.file("recovery.db")?;
    let opened = disk::open(&path, Synchronous::Full)?;
    for n in 0..runs {
        opened.store.queue(FLOW).enqueue(format!("order-{n}"), n as i64)?;
    }
    let mut child = start(CRASH_CHILD, &path)?;
    child.kill()?;
    child.wait()?;
    let ran = Arc::default();
    let flow = counted_tasks(&ran)?;
    let begin = Instant::now();
    let done = Worker::new(&opened.store).register(&flow).concurrency(8).run_until_idle()?;
    report.set("recovery_ms_1000_crashed", micros(begin.elapsed()) / 1e3);
    same("runs that were recovered", done.continued, runs as u64)?;
    same("tasks that ran since", ran.load(Ordering::Relaxed), 3 * runs)?;
    for n in 0..runs {
        let thread = opened.store.thread(format!("order-{n}"))?;
        let lease = thread.last_lease()?.ok_or("a run without a lease")?;
        same("the claims and recoveries of a run", (lease.epoch, lease.recoveries), (2, 1))?;
        same("its result", flow.get_state(&thread)?.values.value().copied(), Some(n as i64 + 5))?;
    }
    Ok(())
}

fn until(longest: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !holds()? {
        if begin.elapsed() > longest {
            return Err("a worker does not end its runs".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Starts a process, and returns when it says that it is ready.
fn start(role: &str, path: &Path) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(role)
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().ok_or("a child without an output")?).read_line(&mut line)?;
    same("the greeting of a child", line.as_str(), "ready\n")?;
    Ok(child)
}

fn say_ready() -> Result<()> {
    println!("ready");
    Ok(std::io::stdout().flush()?)
}

/// The process with a worker: works until its input ends.
pub(crate) fn work_child(args: Vec<String>) -> Result<()> {
    let path = args.into_iter().next().ok_or("the child takes a path")?;
    let opened = disk::open(&PathBuf::from(path), Synchronous::Full)?;
    let (flow, control) = (clock()?, RunControl::new());
    std::thread::scope(|scope| {
        let works = scope.spawn(|| Worker::new(&opened.store).register(&flow).concurrency(2).run_until(&control));
        say_ready()?;
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        control.request_drain("the end");
        works.join().map_err(|_| "the worker panicked")??;
        Ok(())
    })
}

/// The process that is killed: begins every run of the queue, up to its third task.
pub(crate) fn crash_child(args: Vec<String>) -> Result<()> {
    let path = args.into_iter().next().ok_or("the child takes a path")?;
    let opened = disk::open(&PathBuf::from(path), Synchronous::Full)?;
    let due = opened.store.threads_with(ThreadQuery::new().queue(FLOW).limit(usize::MAX))?;
    let begin = |runs: &[ThreadInfo]| -> Result<()> {
        let hung = Arc::default();
        let flow = hanging_tasks(&hung)?;
        for (n, info) in runs.iter().enumerate() {
            let thread = opened.store.thread(info.id())?;
            let mut run = Box::pin(flow.run(&thread).lease(LEASE).ainvoke(Input::Continue));
            annals_graph::block_on(poll_fn(|waiting| match run.as_mut().poll(waiting) {
                Poll::Pending if hung.load(Ordering::Relaxed) <= n => Poll::Pending,
                _ => Poll::Ready(()),
            }));
            std::mem::forget(run);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = due.chunks(due.len().div_ceil(8).max(1)).map(|part| scope.spawn(|| begin(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().map_err(|_| "a run panicked")?)
    })?;
    say_ready()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
