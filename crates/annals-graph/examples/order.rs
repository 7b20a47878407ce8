//! A durable order workflow, written as a plain function: the process is killed while it ships, another one continues,
//! no finished task runs again, and a request that is repeated runs nothing.
//!
//! Run it with `cargo run -p annals-graph --example order`; the process that is killed is the same program with
//! arguments.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs::{self, OpenOptions as FileOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::task::Task;

/// Notes an effect on the outside world, with the key by which the other side can refuse a second one: a task has the
/// same id in every attempt and in every process.
fn effect(folder: &Path, name: &str, ctx: &Context) -> std::io::Result<()> {
    let mut file = FileOptions::new().create(true).append(true).open(folder.join("effects"))?;
    file.write_all(format!("{name} {}\n", ctx.task()).as_bytes())
}

fn workflow(folder: &Path, dies: bool) -> Result<CompiledGraph<Entry<i64, String>>> {
    let task = |name: &'static str| {
        let folder = folder.to_owned();
        Task::new(name, move |amount: i64, ctx: &Context| {
            effect(&folder, name, ctx)?;
            if name == "ship" && dies {
                std::process::abort(); // the power goes, in the middle of the task
            }
            Ok(format!("{name} {amount}"))
        })
    };
    let (reserve, charge, ship) = (task("reserve"), task("charge"), task("ship"));
    let order = Entrypoint::new("order", move |amount: i64, ctx: &Context| {
        let reserved = reserve.call(ctx, amount)?;
        let charged = charge.call(ctx, amount)?;
        // The sleep is stored: it goes on over restarts, and a second process does not begin it anew.
        ctx.sleep_for(Duration::from_millis(50))?;
        let shipped = ship.call(ctx, amount)?;
        Ok(format!("{reserved}, {charged}, {shipped}"))
    });
    Ok(order.compile()?)
}

/// Sends the request until the order has ended. A run with the key of an earlier one takes no input: it goes on where
/// that one stopped, whichever process that was in.
fn worker(folder: &Path, dies: bool) -> Result<String> {
    let store = Store::open(folder.join("orders.db"))?;
    let (thread, order) = (store.thread("order-17")?, workflow(folder, dies)?);
    loop {
        let ended = order.run(&thread).idempotency_key("request-1").invoke(90)?;
        if let Some(value) = ended.value() {
            return Ok(value.clone());
        }
        // A service with many orders asks for the first timer of all threads.
        let wake_at = store.next_timer()?.expect("the order sleeps").wake_at;
        println!("  sleeps until {wake_at}");
        std::thread::sleep(Duration::from_micros((wake_at.as_micros() - store.now().as_micros()).max(0) as u64));
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::args().nth(1) {
        worker(&PathBuf::from(folder), true)?;
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    println!("the first worker:");
    let status = Process::new(std::env::current_exe()?).arg(path).stderr(Stdio::null()).status()?;
    assert!(!status.success(), "it is killed while it ships");

    println!("the second worker: {}", worker(path, false)?);

    // The client that heard nothing sends its request again: it gets the result, and no task runs.
    let before = fs::read_to_string(path.join("effects"))?;
    println!("the client, again:  {}", worker(path, false)?);
    assert_eq!(fs::read_to_string(path.join("effects"))?, before);

    // Once each, but for the task that was running at the kill; its two attempts have one key.
    let effects: Vec<(&str, &str)> = before.lines().filter_map(|line| line.split_once(' ')).collect();
    let names: Vec<&str> = effects.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["reserve", "charge", "ship", "ship"]);
    assert_eq!(effects[2].1, effects[3].1);
    println!("effects: {}", names.join(", "));
    Ok(())
}
