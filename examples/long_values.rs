//! Values that grow: the files of a coding agent in a map channel, and its transcript in a text channel. Each commit
//! stores its changes alone, at any length of the value.
//!
//! Run it with `cargo run -p annals --example long_values`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals::prelude::*;
use annals::state::{KeyMap, Text};

#[derive(State, Clone, Default)]
struct Agent {
    #[channel(map)]
    files: KeyMap<String>,
    #[channel(text)]
    transcript: Text,
}

/// The number of edits, and the number of files that they go to.
const EDITS: usize = 400;
const FILES: usize = 20;

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agent.db");
    let store = Store::open(&path)?;
    let thread = store.thread("port-to-rust")?;
    let agent = thread.with_state::<Agent>();

    let body = "    // a line of sixty characters, to give the file some length\n".repeat(16);
    for edit in 0..EDITS {
        let name = format!("src/part_{:02}.rs", edit % FILES);
        let source = format!("// edit {edit}\n{body}");
        agent.update(Agent::update().files([(name.as_str(), source)]).transcript(format!("edited {name}\n")))?;
    }
    agent.update(Agent::update().remove_files(["src/part_00.rs"]).transcript("removed src/part_00.rs\n"))?;

    let state = agent.state()?;
    let bytes: usize = state.files.iter().map(|(name, source)| name.len() + source.len()).sum();
    println!("{} files of {bytes} bytes, {} parts of a transcript", state.files.len(), state.transcript.parts().len());
    let written = EDITS * (body.len() + 60);
    println!("{} checkpoints; an edit writes its file alone: {} kB in all", EDITS + 1, written / 1_000);
    println!("with the whole map in each checkpoint it would be {} kB", EDITS * bytes / 1_000);
    // One entry, and the end of the text, are read without the rest.
    let head = thread.at("@")?;
    assert_eq!(head.entry("files", "src/part_00.rs")?, None);
    print!("the transcript ends with: {}", head.text_tail("transcript", 23)?);

    // Each entry has a history of its own.
    let name = "src/part_07.rs";
    let versions = head.entry_evolution("files", name).count();
    let blame = head.blame("files").entry(name)?.expect("it was written");
    println!("{name}: {versions} versions, the last one in step {}", blame.step);
    let earlier = thread.at("@{step:7}")?;
    assert!(
        earlier.entry("files", name)?.and_then(|value| Some(value.as_str()?.starts_with("// edit 7\n"))) == Some(true)
    );
    println!("{}", annals::history::diff(&thread.at("~1")?, &head)?);

    // The last handle copies the write-ahead log into the file.
    drop((state, agent, head, earlier, thread, store));
    let file = std::fs::metadata(&path).expect("it was closed").len();
    println!("the file has {} kB", file / 1_000);
    assert!(file < (EDITS * bytes / 4) as u64, "its size follows the changes");
    Ok(())
}
