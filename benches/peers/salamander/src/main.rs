//! The appends and reads of annals-bench with salamander-db: one JSON object on stdout, times in microseconds.
//!
//! usage: annals-bench-salamander FOLDER EVENTS APPENDS
//!
//! A new database gets EVENTS messages of 500 bytes. Then APPENDS messages are appended, each committed with an fsync;
//! the database is opened, and the session is rebuilt from the log, a few times each.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use salamander::AgentDb;
use salamander::Projection;
use salamander::agent::{EventBody, Role, TranscriptEntry};

const SESSION: &str = "chat";
/// Bytes of the text of a message.
const TEXT_BYTES: usize = 500;
/// Opens and reads that are measured.
const READS: usize = 5;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, events, appends] =
        <[String; 3]>::try_from(args).map_err(|_| "usage: annals-bench-salamander FOLDER EVENTS APPENDS")?;
    let (folder, events, appends) = (PathBuf::from(folder), events.parse::<usize>()?, appends.parse::<usize>()?);
    let mut db = AgentDb::open(&folder)?;
    for n in 0..events {
        db.append(SESSION, message(n))?;
    }
    db.commit()?;
    let mut times = Vec::new();
    for n in events..events + appends {
        let body = message(n);
        let start = Instant::now();
        db.append(SESSION, body)?;
        db.commit()?;
        times.push(micros(start));
    }
    drop(db);
    let append_us = median(times);
    let (mut opens, mut states) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let start = Instant::now();
        let db = AgentDb::open(&folder)?;
        opens.push(micros(start));
        let start = Instant::now();
        let session = db.session_view(SESSION)?;
        states.push(micros(start));
        let is_whole = |entry: &TranscriptEntry| matches!(entry, TranscriptEntry::ModelTurn { content, .. } if content.len() == TEXT_BYTES);
        let whole = session.state().transcript.iter().filter(|entry| is_whole(entry)).count();
        if whole != events + appends {
            return Err(format!("the session has {whole} messages, {} were appended", events + appends).into());
        }
    }
    println!(
        "{}",
        serde_json::json!({
            "append_full_us": append_us,
            "open_us": median(opens),
            "whole_state_us": median(states),
            "bytes_per_event": bytes(&folder)? as f64 / (events + appends) as f64,
            "events": events + appends,
        })
    );
    Ok(())
}

fn message(n: usize) -> EventBody {
    EventBody::ModelTurn { role: Role::Assistant, content: format!("{n:<TEXT_BYTES$}"), model: "model".into() }
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the size of all files of a folder.
fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}
