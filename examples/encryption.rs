//! Encryption at rest: a store that is opened with its key alone, a change of the key, and the parts that stay visible.
//!
//! Run it with `cargo run -p annals --example encryption`; a program enables the feature `encryption`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs;

use annals::prelude::*;
use annals::rusqlite::{Connection, OpenFlags};
use annals::store::{ItemRange, Key};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("secret.db");
    // A program takes 32 random bytes from the key store of the system.
    let (key, newer) = (Key::new([7; 32]).with_id("2026"), Key::new([8; 32]).with_id("2027"));

    let store = Store::open_with(&path, OpenOptions::new().key(key.clone()))?;
    let thread = store.thread("diary")?;
    thread.append("messages", [Message::human("nobody reads this sentence")])?;
    thread.set("mood", "cheerful")?;
    drop((thread, store));

    // No byte of the content is in the file, and it does not open without the key.
    let bytes = fs::read(&path)?;
    for text in ["nobody reads", "cheerful"] {
        assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()));
    }
    println!("without a key: {}", Store::open(&path).expect_err("it is sealed"));
    let wrong = Store::open_with(&path, OpenOptions::new().key(newer.clone())).expect_err("another key");
    println!("with another key: {wrong}");

    // Ids of threads, times and sizes stay visible; values do not.
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let visible = |query: &str| conn.query_row(query, [], |row| row.get::<_, Option<String>>(0));
    println!("a thread, as SQLite shows it: {:?}", visible("SELECT thread FROM v_threads")?);
    let stored = "SELECT hex(data) FROM payload JOIN v_channel_versions v ON v.payload = id WHERE channel = 'mood'";
    println!("its mood, as SQLite shows it: {:?}", visible(stored)?);
    drop(conn);

    // A new key seals the key of the data again: one row is written, whatever the size of the file.
    let store = Store::open_with(&path, OpenOptions::new().key(key.clone()))?;
    store.change_key(&newer)?;
    drop(store);
    assert!(Store::open_with(&path, OpenOptions::new().key(key)).is_err(), "the older key is of no use");
    let store = Store::open_with(&path, OpenOptions::new().key(newer))?;
    for message in store.thread("diary")?.at("@")?.messages("messages", ItemRange::All)? {
        println!("with the new key: {}", message.text());
    }
    assert!(store.check()?.problems.is_empty(), "a check verifies the seals as well");
    Ok(())
}
