//! The cost of a listing is that of what it shows: it is compared with the same listing of a small store, and with the
//! start of the process, in the same run.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use annals::base::{Clock as _, Encoded, SystemClock};
use annals::store::batch::{Change, ChangeValue, Data};
use annals::store::{Batch, NewCheckpoint, OpenOptions, Parent, Payload, Source, Store, Synchronous};

use super::*;

/// Threads, and checkpoints of a thread.
const MANY: i64 = 100_000;
const FEW: i64 = 200;
/// Runs of a command, of which the quickest counts: other processes use the machine as well.
const RUNS: usize = 15;

/// Returns the time of the quickest run.
fn quickest(folder: &Path, arguments: &[&str]) -> Duration {
    let timed = || {
        let started = SystemClock.elapsed();
        let output = run(folder, arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
        SystemClock.elapsed() - started
    };
    (0..RUNS).map(|_| timed()).min().unwrap()
}

/// Commits a checkpoint that sets a channel.
fn checkpoint(store: &Store, n: i64, parent: Option<annals::base::CheckpointId>) -> NewCheckpoint {
    let id = store.mint_checkpoint(n, parent.as_ref());
    let mut new = NewCheckpoint::new(id, parent.map(Parent::Local), n, Source::Update, store.now());
    let value = ChangeValue::Value(Data::New(Payload::from(Encoded::encode(&n).unwrap())));
    new.changes.push(Change::new("n", n as u64 + 1, value));
    new
}

/// A store with threads, and one thread with checkpoints.
fn store(path: &Path, number: i64) {
    let store = Store::open_with(path, OpenOptions::new().synchronous(Synchronous::Normal)).unwrap();
    let mut parent = None;
    let long = store.thread("long").unwrap();
    for first in (0..number).step_by(1_000) {
        let mut batch = Batch::new(long.id().clone(), long.namespace().clone(), parent);
        for n in first..(first + 1_000).min(number) {
            batch.checkpoints.push(checkpoint(&store, n, parent));
            parent = batch.checkpoints.last().map(|new| new.id);
        }
        store.commit(&batch).unwrap();
    }
    for n in 0..number {
        let thread = store.thread(format!("thread {n}")).unwrap();
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
        batch.checkpoints.push(checkpoint(&store, 0, None));
        store.commit(&batch).unwrap();
    }
    // The thread with the checkpoints is the first one of the list.
    long.set("n", number).unwrap();
}

/// Returns the time of the quickest run whose reader closes the pipe after ten lines.
fn quickest_head(folder: &Path, arguments: &[&str]) -> Duration {
    let timed = || {
        let started = SystemClock.elapsed();
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(10);
        assert_eq!(lines.map(Result::unwrap).count(), 10, "{arguments:?}");
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), &*stderr(&output)), (0, ""), "{arguments:?}");
        SystemClock.elapsed() - started
    };
    (0..RUNS).map(|_| timed()).min().unwrap()
}

#[test]
fn the_first_screen_costs_as_much_in_a_large_store_as_in_a_small_one() {
    let bench = Bench::new();
    store(&bench.path("few.db"), FEW);
    store(&bench.path("many.db"), MANY);
    let start = (0..6).map(|_| quickest(bench.folder.path(), &["--version"])).min().unwrap();
    for arguments in [
        &["threads"][..],
        &["log", "long"],
        &["log", "long", "--oneline"],
        &["log", "long", "--channel", "n"],
        &["show", "long"],
        &["tail"],
    ] {
        let on = |file: &str| {
            let timed = || {
                let started = SystemClock.elapsed();
                let output = run(bench.folder.path(), &[arguments, &["--store", file]].concat());
                assert!(code(&output) <= 1, "{arguments:?}: {output:?}");
                SystemClock.elapsed() - started
            };
            (0..RUNS).map(|_| timed()).min().unwrap()
        };
        let (few, many) = (on("few.db"), on("many.db"));
        println!("{arguments:?}: start {start:?}, {FEW}: {few:?}, {MANY}: {many:?}");
        assert!(many < few * 3 + start, "{arguments:?}: {FEW} take {few:?}, {MANY} take {many:?}, the start {start:?}");
    }
    for arguments in [
        &["threads", "-n", "0"][..],
        &["threads", "-n", "0", "--jsonl"],
        &["log", "long", "-n", "0"],
        &["log", "long", "-n", "0", "--jsonl"],
        &["log", "long", "-n", "0", "--channel", "n"],
    ] {
        let on = |file: &str| quickest_head(bench.folder.path(), &[arguments, &["--store", file]].concat());
        let (few, many) = (on("few.db"), on("many.db"));
        println!("{arguments:?} | head: {FEW}: {few:?}, {MANY}: {many:?}");
        assert!(many < few * 3 + start, "{arguments:?} | head: {FEW} take {few:?}, {MANY} take {many:?}");
    }
}

#[test]
fn the_command_starts_as_a_process_does() {
    let bench = Bench::new();
    let started = || {
        let begin = SystemClock.elapsed();
        Command::new("true").stdin(Stdio::null()).output().unwrap();
        SystemClock.elapsed() - begin
    };
    let process = (0..RUNS).map(|_| started()).min().unwrap();
    let start = (0..6).map(|_| quickest(bench.folder.path(), &["--version"])).min().unwrap();
    println!("a process starts in {process:?}, the command in {start:?}");
    assert!(start < process * 12, "a process starts in {process:?}, the command in {start:?}");
}
