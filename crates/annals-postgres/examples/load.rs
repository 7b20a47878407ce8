//! Prints the cost of turns on a server: the bytes of rows and indexes for each turn of a conversation, and the commits
//! a second of many callers.
//!
//! Run it with `cargo run --release -p annals-postgres --example load -- postgres://app@localhost/scratch`, on an empty
//! schema.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::atomic::{AtomicU64, Ordering};

use annals::base::{Clock, SystemClock};
use annals_graph::prelude::*;
use tokio_postgres::NoTls;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
}

const TURNS: u64 = 1_000;
const CALLERS: u64 = 50;
const COMMITS: u64 = 40;

/// Returns a text of 500 letters that does not compress.
fn text(random: &mut annals::base::IdSource) -> String {
    (0..32).map(|_| format!("{:016x}", random.random())).collect::<String>()[..500].to_owned()
}

/// Runs a statement and returns the number that it selects.
fn number(url: &str, sql: &str) -> Result<i64, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client.query_one(sql, &[]).await?.try_get(0)?)
    })
}

/// Runs callers at once, and returns how many of their acts were done in a second.
fn rate(act: impl Fn(u64, u64) + Sync) -> f64 {
    let (begin, done) = (SystemClock.now().as_micros(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (act, done) = (&act, &done);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    act(caller, n);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner() as f64 * 1e6 / (SystemClock.now().as_micros() - begin) as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("the URL of a database is missing")?;
    let store = annals_postgres::open(&url)?;
    let graph = StateGraph::<Chat>::new()
        .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai(text(&mut annals::base::IdSource::new()))])))
        .edge(START, "answer")
        .edge("answer", END)
        .compile()?;
    let thread = store.thread("talk")?;
    let mut random = annals::base::IdSource::new();
    let begin = SystemClock.now().as_micros();
    for _ in 0..TURNS {
        graph.invoke(&thread, Chat::update().messages([Message::human(text(&mut random))]))?;
    }
    let micros = SystemClock.now().as_micros() - begin;
    let bytes = number(
        &url,
        "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c where c.relkind = 'r' \
         and c.relnamespace = current_schema()::regnamespace",
    )?;
    println!("{} bytes a turn, {} us a turn", bytes as u64 / TURNS, micros as u64 / TURNS);

    let commits = rate(|caller, n| {
        let thread = store.thread(format!("caller {caller}")).expect("an id");
        thread.set("n", n as i64).expect("it commits");
    });
    println!("{commits:.0} commits a second of {CALLERS} callers");
    Ok(())
}
