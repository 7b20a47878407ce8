//! Backup and recovery: a copy of one moment while others write, a check that names the damage, and a new file with all
//! that can still be verified.
//!
//! Run it with `cargo run -p annals --example backup`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs;
use std::path::Path;

use annals::prelude::*;

/// Overwrites the middle of the first place at which a text stands in a file.
fn damage(path: &Path, text: &str) -> std::io::Result<()> {
    let mut bytes = fs::read(path)?;
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).expect("the text is in the file");
    bytes[at + text.len() / 2] ^= 0x20;
    fs::write(path, bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let store = Store::open(path("notes.db"))?;
    for day in 1..=30 {
        let thread = store.thread(format!("day-{day:02}"))?;
        thread.append("messages", [Message::human(format!("a note of day {day:02}"))])?;
    }

    // A snapshot of the file, checked before it gets its name. Other threads and processes may write meanwhile.
    store.backup(path("backup.db"))?;
    let copy = Store::open_with(path("backup.db"), OpenOptions::new().read_only(true))?;
    println!("the backup has {} threads", copy.threads()?.len());

    // A full check once, and from then on a check of the newer rows.
    let report = store.check()?;
    assert!(report.problems.is_empty());
    let verified = report.up_to.expect("no problem was found");
    store.thread("day-31")?.append("messages", [Message::human("one more")])?;
    let newer = store.check_since(&verified)?;
    println!("a check of {} checkpoints, then one of the newer {}", report.checkpoints, newer.checkpoints);
    drop((store, copy));

    // A bad sector.
    damage(&path("notes.db"), "a note of day 12")?;
    let store = Store::open(path("notes.db"))?;
    let report = store.check()?;
    println!("the check finds {} problems:", report.problems.len());
    for problem in report.problems.iter().take(3) {
        println!("  {}: {}", problem.place, problem.reason);
    }
    // The other threads are read as before.
    assert_eq!(store.thread("day-13")?.at("@")?.len("messages")?, 1);
    let unread = store.thread("day-12")?.at("@")?.tail("messages", 1).expect_err("a changed value is refused");
    println!("a read of the damaged item: {unread}");
    drop(store);

    // The sound part goes to a new file; the damaged one is not changed.
    let recovery = Store::recover(path("notes.db"), path("recovered.db"))?;
    println!("recovered {} threads; lost {}:", recovery.threads, recovery.lost_count);
    for lost in &recovery.lost {
        println!("  {} {}", lost.thread.as_ref().map_or("-", |thread| thread.as_str()), lost.reason);
    }
    let recovered = Store::open(path("recovered.db"))?;
    assert!(recovered.check()?.problems.is_empty());
    assert_eq!(recovered.threads()?.len(), 30);

    // The lost thread is in the backup.
    let backup = Store::open_with(path("backup.db"), OpenOptions::new().read_only(true))?;
    let message = backup.thread("day-12")?.at("@")?.tail("messages", 1)?;
    println!("from the backup: {}", message[0].get("content").and_then(Value::as_str).unwrap_or_default());
    Ok(())
}
