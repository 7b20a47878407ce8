//! The appends and reads of an application with a loop of its own, here and with salamander-db.
//!
//! Both append messages of 500 bytes to a conversation, each synced; open the file; and rebuild the whole state from
//! it. The peer is a package outside the workspace, which is built when it is measured. Each of its commits syncs the
//! log and writes and syncs its catalog anew, which is longer the more events there are.

use std::path::Path;
use std::process::Command;

use annals::history::Thread;
use annals::store::Synchronous;
use annals_graph::prelude::*;
use serde_json::{Map, Value, json};

use crate::append::TEXT_BYTES;
use crate::disk::{self, OpenedStore, same};
use crate::figures::FigureReport;
use crate::stats::{median, text, timed};
use crate::{Bench, Result};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/salamander/Cargo.toml");
/// The figures of both sides.
const NAMES: [&str; 4] = ["append_full_us", "open_us", "whole_state_us", "bytes_per_event"];
/// Opens and reads that are measured.
const READS: usize = 5;

#[derive(State, Clone, Default)]
struct ComparedChat {
    #[channel(messages)]
    messages: Messages,
}

/// Lets both sides take turns, and notes the medians of each and of their ratios.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    if let Err(reason) = build() {
        eprintln!("annals-bench: salamander-db is skipped: {reason}");
        report.salamander = json!({ "skipped": reason });
        return Ok(());
    }
    let (events, appends) = (bench.runs(10_000, 200), bench.runs(200, 20));
    let mut runs: Vec<[[f64; 4]; 2]> = Vec::new();
    for _ in 0..bench.runs(3, 1) {
        let here = here(&bench.file("salamander-annals.db")?, events, appends)?;
        runs.push([here, there(bench, events, appends)?]);
    }
    let mut peer = Map::new();
    let rounded = |values: Vec<f64>| json!((median(&values) * 100.0).round() / 100.0);
    for (at, name) in NAMES.iter().enumerate() {
        let side = |side: usize| runs.iter().map(|run| run[side][at]).collect();
        peer.insert((*name).into(), rounded(side(1)));
        peer.insert(format!("annals_{name}"), rounded(side(0)));
        peer.insert(format!("{name}_ratio"), rounded(runs.iter().map(|[here, there]| there[at] / here[at]).collect()));
    }
    peer.insert("events".into(), json!(events + appends));
    report.salamander = Value::Object(peer);
    Ok(())
}

fn cargo(verb: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([verb, "--quiet", "--release", "--manifest-path", MANIFEST]);
    command
}

fn build() -> Result<(), String> {
    match cargo("build").output() {
        Err(error) => Err(format!("cargo does not run: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("it does not build: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Measures salamander-db.
fn there(bench: &Bench, events: usize, appends: usize) -> Result<[f64; 4]> {
    let folder = bench.dir.join("salamander");
    let output = cargo("run").arg("--").arg(&folder).args([events.to_string(), appends.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{MANIFEST}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    std::fs::remove_dir_all(&folder)?;
    let peer: Map<String, Value> = serde_json::from_slice(&output.stdout)?;
    same("events", peer.get("events").and_then(Value::as_u64), Some((events + appends) as u64))?;
    let mut figures = [0.0; 4];
    for (figure, name) in figures.iter_mut().zip(NAMES) {
        *figure = peer.get(name).and_then(Value::as_f64).ok_or(format!("{MANIFEST} does not print {name}"))?;
    }
    Ok(figures)
}

/// Measures annals without a graph.
fn here(path: &Path, events: usize, appends: usize) -> Result<[f64; 4]> {
    let chat = conversation(&disk::open(path, Synchronous::Normal)?)?.with_state::<ComparedChat>();
    for n in 0..events {
        chat.update(ComparedChat::update().messages([message(n)]))?;
    }
    drop(chat);
    let opened = disk::open(path, Synchronous::Full)?;
    let chat = conversation(&opened)?.with_state::<ComparedChat>();
    same("messages", chat.state()?.messages.len(), events)?;
    let mut times = Vec::new();
    for n in events..events + appends {
        let update = ComparedChat::update().messages([message(n)]);
        times.push(timed(|| Ok(chat.update(update)?))?.0);
    }
    let bytes = opened.bytes(path)? as f64;
    drop((chat, opened));
    let (mut opens, mut states) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let (us, opened) = timed(|| disk::open(path, Synchronous::Full))?;
        opens.push(us);
        let thread = conversation(&opened)?;
        let (us, state) = timed(|| Ok(thread.head()?.ok_or("there is no head")?.state::<ComparedChat>()?))?;
        states.push(us);
        let whole = state.messages.iter().filter(|message| message.text().len() == TEXT_BYTES).count();
        same("whole messages", whole, events + appends)?;
    }
    Ok([median(&times), median(&opens), median(&states), bytes / (events + appends) as f64])
}

fn conversation(opened: &OpenedStore) -> Result<Thread> {
    Ok(opened.store.thread("chat")?)
}

fn message(n: usize) -> Message {
    Message::ai(text(n as u64, TEXT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_and_reads_here_leave_every_message() {
        let folder = tempfile::tempdir().unwrap();
        let figures = here(&folder.path().join("chat.db"), 30, 3).unwrap();
        assert!(figures.iter().all(|figure| *figure > 0.0), "{figures:?}");
    }
}
