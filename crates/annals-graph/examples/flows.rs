//! A service of durable workflows on one file: orders are queued, a worker process dies in the middle of one, another
//! worker continues it, a review comes as a signal or does not come, and the ledger has each order once.
//!
//! Run it with `cargo run -p annals-graph --example flows`; the process that dies is the same program with an argument.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::process::Command as Process;
use std::time::Duration;

use annals::history::ThreadQuery;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::{RunControl, Task};
use annals_graph::{QueueLimit, Schedule, Schedules, Worker};

fn book(dies: bool) -> Result<CompiledGraph<Entry<i64, String>>> {
    let reserve = Task::new("reserve", |cents: i64, ctx: &Context| match ctx.attempt() {
        1 => Err("the hotel is busy".into()),
        _ => Ok(cents * 2),
    })
    .retry(RetryPolicy::new().initial_interval(Duration::from_millis(10)));
    let charge = Task::new("charge", move |cents: i64, ctx: &Context| {
        // A service outside compares the key, which stays the same over attempts, crashes and processes.
        println!("  charge {cents} under the key {:.12}", ctx.step_key());
        if dies { std::process::abort() } else { Ok(cents) }
    });
    let book = Entrypoint::new("book", move |cents: i64, ctx: &Context| {
        let order = ctx.thread().map(ToString::to_string);
        let price = reserve.call(ctx, cents)?;
        ctx.transaction(|tx| tx.execute("INSERT INTO app_ledger VALUES (?1, ?2)", (&order, price)))?;
        charge.call(ctx, price)?;
        Ok(match ctx.receive::<bool>("review", Duration::from_millis(400))? {
            Some(true) => format!("shipped for {price}"),
            Some(false) => "refunded".to_owned(),
            None => "shipped without a review".to_owned(),
        })
    });
    Ok(book.version("2026-11").compile()?)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    if let Some(path) = std::env::args().nth(1) {
        Worker::new(&Store::open(path)?).register(&book(true)?).run_until_idle()?;
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (path, control) = (folder.path().join("flows.db"), RunControl::new());
    let store = Store::open(&path)?;
    store.transaction(|tx| tx.execute_batch("CREATE TABLE app_ledger (id TEXT, cents INTEGER)"))?;
    for n in 1..=5 {
        store.queue("book").dedup(format!("request-{n}")).enqueue(format!("order-{n}"), n * 100)?;
    }
    store.queue("book").delay(Duration::from_secs(3_600)).enqueue("order-6", 600)?;
    Schedules::of(&store).add(&Schedule::new("nightly", "book", "30 2 * * *")?.zone("Europe/Zurich")?.argument(50))?;
    println!("a worker dies:");
    assert!(!Process::new(std::env::current_exe()?).arg(&path).status()?.success());

    store.signal("order-1", "review", true)?;
    store.signal("order-2", "review", false)?;
    store.thread("order-3")?.cancel("the customer asked")?;
    println!("another worker continues:");
    let limit = QueueLimit::new("book").concurrency(3);
    let worker = Worker::new(&store).register(&book(false)?).concurrency(4).queue(limit);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| worker.run_until(&control));
        let wait = |n| store.thread(format!("order-{n}"))?.wait_for_end(Duration::from_secs(20)).map(drop);
        let ended = (1..=5).try_for_each(wait);
        control.request_drain("all have ended");
        work.join().map_err(|_| "the worker panicked")??;
        Ok::<_, Box<dyn Error>>(ended?)
    })?;

    for run in store.threads_with(ThreadQuery::new().graph("book"))? {
        let result = store.thread(run.id())?.head()?.map(|head| head.result()).transpose()?.flatten();
        println!("{:<8} {:<9} {}", run.id(), run.status.as_str(), result.unwrap_or_default());
    }
    for step in store.thread("order-1")?.steps()? {
        let step = step?;
        println!("  {:<8} {:<6} {} attempts {}", step.name, step.state, step.attempts.len(), step.error_text());
    }
    let rows: Vec<String> =
        store.transaction(|tx| tx.query("SELECT id FROM app_ledger ORDER BY id", (), |row| row.get(0)))?;
    assert_eq!(rows, ["order-1", "order-2", "order-4", "order-5"]);
    Ok(())
}
