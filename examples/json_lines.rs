//! From JSON lines to a store: the log of an agent becomes a thread, grows by appends, and is written as lines again.
//!
//! Run it with `cargo run -p annals --example json_lines`; with the path of a file of lines (`role`, `content`) it
//! reads that one.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Write};

use annals::history::{ExportOptions, Framing, ImportOptions};
use annals::message::OpenAiFormat;
use annals::prelude::*;
use annals::store::ItemRange;

/// The log of an agent that was killed while it wrote its third line, and was started again.
const LINES: &str = r#"{"role": "user", "content": "A hotel in Bern"}
{"role": "assistant", "content": "The Gasthof Adler has rooms."}
{"role": "user", "cont
{"role": "user", "content": "Book it for two nights"}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let source = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => {
            let path = folder.path().join("session.jsonl");
            File::create(&path)?.write_all(LINES.as_bytes())?;
            path
        }
    };
    let store = Store::open(folder.path().join("agent.db"))?;
    let thread = store.thread("session")?;

    // One line at a time is in memory. Without `lenient` the broken line would end the import with its number.
    let options = ImportOptions::new().format(OpenAiFormat).framing(Framing::Lines).lenient();
    let report = thread.import_messages(&options, BufReader::new(File::open(&source)?))?;
    println!("{} messages; broken lines: {}", report.messages, report.left_out.count);
    for broken in &report.left_out.first {
        println!("  line {}", broken.line);
    }

    // From now on: an append is one commit, which is on the disk when the call returns, or not there at all.
    thread.append("messages", [Message::ai("Booked: two nights in the Gasthof Adler.")])?;
    thread.append("messages", [Message::human("No, three nights")])?;
    for message in thread.at("@")?.messages("messages", ItemRange::Tail(2))? {
        println!("{message}");
    }

    // Going back, which a file of lines cannot do without losing its end.
    thread.rewind_to(&thread.at("~1")?)?;
    thread.append("messages", [Message::human("Thank you")])?;

    let mut lines = Vec::new();
    let options = ExportOptions::new().format(OpenAiFormat).framing(Framing::Lines);
    thread.at("@")?.export_messages("messages", &options, &mut lines)?;
    print!("\nas lines again:\n{}", String::from_utf8(lines)?);
    Ok(())
}
