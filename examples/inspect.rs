//! Somebody who was given a file: its threads, what happened in one of them, the writer of a text, and plain SQL.
//!
//! Run it with `cargo run -p annals --example inspect`; with the path of a file as argument it inspects that one.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::path::Path;

use annals::history::{ThreadQuery, diff};
use annals::prelude::*;
use annals::rusqlite::{Connection, OpenFlags};

/// Makes a file to inspect.
fn made_by_somebody(path: &Path) -> Result<()> {
    let store = Store::open(path)?;
    let order = store.thread("order-17")?;
    order.append("messages", [Message::human("A room in the Gasthof")])?;
    order.set("price", 120)?;
    order.set("price", 95)?;
    order.write().set("state", "refused").metadata("cancelled", "no room is left").commit()?;
    order.by("Zoë").facts().title("Refused").save()?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => {
            let path = folder.path().join("agent.db");
            made_by_somebody(&path)?;
            path
        }
    };
    let store = Store::open_with(&path, OpenOptions::new().read_only(true))?;

    for info in store.threads_with(ThreadQuery::new())? {
        println!("{:<10} {:<10} {}", info.id(), info.status, info.title().unwrap_or_default());
        let thread = store.thread(info.id())?;
        for operation in thread.operations()? {
            let operation = operation?;
            println!("  {} {:<8} {}", operation.at(), operation.name(), operation.actor().unwrap_or_default());
        }
        for change in thread.pickaxe("Gasthof")? {
            println!("  \"Gasthof\" {} in {}", if change.appears { "appears" } else { "disappears" }, change.channel);
        }
        let head = thread.at("@")?;
        for channel in head.channels()? {
            let versions = head.evolution(&channel).count();
            let writer = head.blame(&channel).value()?.map(|blame| blame.created_at.to_string());
            println!("  {channel}: {versions} versions, the last one of {}", writer.unwrap_or_default());
        }
        if let Ok(before) = thread.at("~2") {
            println!("{}", diff(&before, &head)?);
        }
    }

    // The channels with SQLite alone: the views are public; `annals sql` shows their values as well.
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement =
        conn.prepare("SELECT thread, channel, version, kind FROM v_channel_versions ORDER BY seq, channel")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (thread, channel): (String, String) = (row.get(0)?, row.get(1)?);
        println!("{thread} {channel}: version {}, {}", row.get::<_, i64>(2)?, row.get::<_, String>(3)?);
    }
    Ok(())
}
