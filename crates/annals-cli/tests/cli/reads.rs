//! A listing of a large store reads hardly more than one of a small store. Linux counts the bytes; the benches have the
//! times.

use annals::base::Encoded;
use annals::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, Parent, Payload};
use annals::store::{OpenOptions, Source, Store, Synchronous};

use super::*;

/// Threads, and checkpoints of a thread.
const MANY: i64 = 1_000;
const FEW: i64 = 100;
/// Bytes for the deeper trees of large tables, and for the start of a process.
const SLACK: u64 = 256 << 10;

/// Returns the bytes that a command reads. Its output goes to a file, or to a program that reads it.
fn bytes_read(folder: &Path, arguments: &[&str], to: &str) -> u64 {
    // The counts of a shell are those of the processes that it has waited for as well.
    let script = format!("\"$0\" \"$@\" {to}; cat /proc/$$/io");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_annals")]).args(arguments).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!((code(&output), &*stderr(&output)), (0, ""), "{arguments:?}");
    let counts = String::from_utf8(output.stdout).unwrap();
    let bytes = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    bytes.unwrap_or_else(|| panic!("{counts}")).parse().unwrap()
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
    // Batches that wait for the writer at the same time share a transaction.
    let submit = |n| {
        let thread = store.thread(format!("thread {n}")).unwrap();
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
        batch.checkpoints.push(checkpoint(&store, 0, None));
        store.submit(batch)
    };
    (0..number).map(submit).collect::<Vec<_>>().into_iter().for_each(|commit| commit.wait().unwrap());
    // The thread with the checkpoints is the first one of the list.
    long.set("n", number).unwrap();
}

#[test]
fn the_first_screen_reads_as_much_of_a_large_store_as_of_a_small_one() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    store(&bench.path("few.db"), FEW);
    store(&bench.path("many.db"), MANY);
    let on = |file: &str, arguments: &[&str], to: &str| {
        let bytes = bytes_read(folder, &[arguments, &["--quiet", "--store", file]].concat(), to);
        assert!(fs::read_to_string(bench.path("shown.txt")).unwrap().lines().count() >= 1, "{arguments:?}");
        bytes
    };
    for arguments in [
        &["threads"][..],
        &["log", "long"],
        &["log", "long", "--oneline"],
        &["log", "long", "--channel", "n"],
        &["show", "long"],
        &["tail"],
    ] {
        let [few, many] = ["few.db", "many.db"].map(|file| on(file, arguments, "> shown.txt"));
        println!("{arguments:?}: {FEW}: {few} bytes, {MANY}: {many} bytes");
        assert!(many < few + SLACK, "{arguments:?}: {FEW} take {few} bytes, {MANY} take {many} bytes");
    }
    for arguments in [
        &["threads", "-n", "0"][..],
        &["threads", "-n", "0", "--jsonl"],
        &["log", "long", "-n", "0"],
        &["log", "long", "-n", "0", "--jsonl"],
        &["log", "long", "-n", "0", "--channel", "n"],
    ] {
        let [head, whole] = ["| head > shown.txt", "> shown.txt"].map(|to| on("many.db", arguments, to));
        println!("{arguments:?} | head: {head} bytes of {whole}");
        assert!(2 * head < whole + SLACK, "{arguments:?} | head: {head} bytes, {whole} without");
    }
}

#[test]
fn the_command_starts_without_a_store() {
    let bench = Bench::new();
    let bytes = bytes_read(bench.folder.path(), &["--version"], "> shown.txt");
    assert!(bytes < SLACK, "{bytes} bytes");
}
