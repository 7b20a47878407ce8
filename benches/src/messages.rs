//! Measures the cost of messages: merging one into a list, loading, trimming and writing out 10,000, and LangChain's
//! loader beside.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use annals::base::Value;
use annals::message::{
    BufferOptions, Message, TokenCounter, ToolCall, TrimOptions, Usage, buffer_string, messages_from_json,
    messages_to_dict, trim_messages,
};
use annals::state::{BoxWrite, Layout};
use annals_graph::prelude::*;
use serde_json::{Map, json};

use crate::disk::same;
use crate::figures::FigureReport;
use crate::stats::{SeededNumbers, Side, best, interleave, median, text, timed};
use crate::{Bench, Result};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/langchain_messages.py");
/// The exit code of the script when the package is missing.
const MISSING: i32 = 3;
/// Merges of a round that are timed.
const MERGES: usize = 2_000;
/// Merges that are timed together: so few that the merged messages are still in the caches of the CPU, as those are
/// that a node has just made.
const TOGETHER: usize = 50;

/// Measures the figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    merges(bench, report)?;
    let messages = chat(bench.runs(10_000, 200));
    load(bench, report, &messages)?;
    utilities(bench, report, &messages)
}

#[derive(State, Clone, Default)]
struct MergedChat {
    #[channel(messages)]
    messages: Messages,
}

/// The message that a merge writes.
#[derive(Clone, Copy)]
enum Merge {
    /// The id of any message: where the list is longer than the caches of the CPU, the message and its place in the
    /// index come from main memory.
    Any,
    /// The id of one of the last hundred messages.
    Late,
    /// A message with a new id, which goes to the end. The next merge removes it again, so that the list keeps its
    /// length.
    New,
}

/// Merges messages into a list, one write each, as a channel is updated at the end of a superstep.
fn merges(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let mut sides = Vec::new();
    for merge in [Merge::Any, Merge::Late, Merge::New] {
        for length in [1_000, 10_000] {
            sides.push(merging(merge, length)?);
        }
    }
    sides.extend([1_000, 10_000].map(by_hand));
    let costs = interleave(bench.runs(15, 3), &mut sides)?;
    report.set("add_messages_ns_1k", median(&costs[0]));
    report.set("add_messages_ns_10k", median(&costs[1]));
    let names = ["late_1k", "late_10k", "new_1k", "new_10k", "by_hand_1k", "by_hand_10k"];
    for (name, costs) in names.into_iter().zip(&costs[2..]) {
        report.extra(&format!("add_messages_ns_{name}"), median(costs));
    }
    Ok(())
}

/// Merges as many as the list is long, so that none of the other lists is in its place in the caches of the CPU, and
/// then those that are timed. Returns how many nanoseconds one takes.
fn round<W>(length: usize, new: impl FnMut(usize) -> W, mut merge: impl FnMut(Vec<W>) -> Result<()>) -> Result<f64> {
    let (mut new, mut sum) = (new, 0.0);
    for from in (0..length + MERGES).step_by(TOGETHER) {
        let writes: Vec<W> = (from..from + TOGETHER).map(&mut new).collect();
        let (us, ()) = timed(|| merge(writes))?;
        sum += if from < length { 0.0 } else { us };
    }
    Ok(sum * 1_000.0 / MERGES as f64)
}

fn message_id(n: usize) -> String {
    format!("message-{n}")
}

fn long_chat(length: usize) -> impl Iterator<Item = Message> {
    (0..length).map(|n| Message::human(text(n as u64, 200)).with_id(message_id(n)))
}

/// Replaces any message of a plain vector beside a plain hash table, which no clone can share and nothing is told of:
/// the time for a message to be found in memory, compared and dropped.
fn by_hand(length: usize) -> Side<'static> {
    let mut list: Vec<Arc<Message>> = long_chat(length).map(Arc::new).collect();
    let places: HashMap<String, usize> = (0..length).map(|n| (message_id(n), n)).collect();
    let mut dice = SeededNumbers(length as u64);
    Box::new(move || {
        let new =
            |at: usize| Message::human(format!("changed {at}")).with_id(message_id(dice.below(length as u64) as usize));
        round(length, new, |writes| {
            for message in writes {
                let place = places[message.id.as_deref().unwrap_or_default()];
                if *list[place] != message {
                    list[place] = Arc::new(message);
                }
            }
            Ok(())
        })
    })
}

fn merging(merge: Merge, length: usize) -> Result<Side<'static>> {
    let schema = Schema::<MergedChat>::of();
    let (mut state, mut present) = (schema.initial(), true);
    let (id, all): (_, Vec<Message>) = (message_id, long_chat(length).collect());
    schema.update(&mut state, 0, &mut present, vec![BoxWrite::new(all)])?;
    let mut dice = SeededNumbers(length as u64);
    Ok(Box::new(move || {
        let mut new = |at: usize| match merge {
            Merge::New if at % 2 == 1 => Message::remove("new"),
            Merge::New => Message::human("new").with_id("new"),
            Merge::Late => Message::human(format!("changed {at}")).with_id(id(length - 1 - dice.below(100) as usize)),
            Merge::Any => Message::human(format!("changed {at}")).with_id(id(dice.below(length as u64) as usize)),
        };
        let written = |at: usize| vec![BoxWrite::new(vec![new(at)])];
        round(length, written, |writes| {
            writes.into_iter().try_for_each(|write| {
                schema.update(&mut state, 0, &mut present, write)?;
                Ok(())
            })
        })
    }))
}

/// A chat of questions, tool calls, their results and answers.
fn chat(length: usize) -> Vec<Message> {
    let message = |n: usize| {
        let call = format!("call-{}", n / 4);
        let message = match n % 4 {
            0 => Message::human(text(n as u64, 120)),
            1 => Message::ai("").with_tool_call(
                ToolCall::new("search", [("query", Value::from(text(n as u64, 40))), ("limit", 5.into())])
                    .with_id(call),
            ),
            2 => Message::tool(text(n as u64, 400), call),
            _ => Message::ai(text(n as u64, 250)).with_usage(Usage::new(900, 60)),
        };
        message.with_id(format!("0190f3c2-7a3e-7000-8000-{n:012x}"))
    };
    (0..length).map(message).collect()
}

/// Reads a file of LangChain's dictionaries, and lets LangChain read the same.
fn load(bench: &Bench, report: &mut FigureReport, messages: &[Message]) -> Result<()> {
    let path = bench.dir.join("messages.json");
    let mut file = BufWriter::new(File::create(&path)?);
    let dicts = Value::List(messages_to_dict(messages));
    serde_json::to_writer(&mut file, &dicts.to_json())?;
    file.flush()?;
    let one = || {
        let (us, loaded) = timed(|| Ok(messages_from_json(&fs::read(&path)?)?))?;
        same("messages", loaded.len(), messages.len())?;
        Ok(us / 1_000.0)
    };
    let ours = (0..bench.runs(15, 2)).map(|_| one()).collect::<Result<Vec<f64>>>()?;
    report.set("load_10k_messages_ms", best(&ours));
    langchain(bench, report, &path)?;
    fs::remove_file(&path)?;
    Ok(())
}

fn langchain(bench: &Bench, report: &mut FigureReport, path: &Path) -> Result<()> {
    let output = Command::new(&bench.python).arg(SCRIPT).arg(path).output();
    let skipped = |reason: String| {
        eprintln!("annals-bench: langchain-core is skipped: {reason}");
        json!({ "skipped": reason })
    };
    report.langchain = match output {
        Err(error) => skipped(format!("{} does not run: {error}", bench.python)),
        Ok(output) if output.status.code() == Some(MISSING) => {
            skipped(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
        Ok(output) if !output.status.success() => {
            return Err(format!("{SCRIPT}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(output) => {
            let mut peer: Map<String, serde_json::Value> =
                serde_json::from_reader(BufReader::new(output.stdout.as_slice()))?;
            // The same work, and theirs without reading and parsing the file.
            for (ratio, theirs) in [("load_ratio", "load_messages_ms"), ("from_dict_ratio", "messages_from_dict_ms")] {
                let theirs = peer.get(theirs).and_then(serde_json::Value::as_f64);
                let value = theirs.zip(report.get("load_10k_messages_ms")).map(|(theirs, ours)| theirs / ours);
                peer.insert(ratio.into(), json!(value.map(|value| (value * 10.0).round() / 10.0)));
            }
            peer.into()
        }
    };
    Ok(())
}

fn utilities(bench: &Bench, report: &mut FigureReport, messages: &[Message]) -> Result<()> {
    let words = |message: &Message| message.text().split_whitespace().count() as i64 + 3;
    let half = messages.iter().map(words).sum::<i64>() / 2;
    let options = TrimOptions::new(half).counter(TokenCounter::each(words));
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| {
            let (us, kept) = timed(|| Ok(trim_messages(messages, &options)?))?;
            same("half", kept.len().abs_diff(messages.len() / 2) < messages.len() / 10, true)?;
            Ok(us / 1_000.0)
        }),
        Box::new(|| {
            let (us, text) = timed(|| Ok(buffer_string(messages, &BufferOptions::default())?))?;
            same("lines", text.lines().count(), messages.len())?;
            Ok(us / 1_000.0)
        }),
    ];
    let costs = interleave(bench.runs(15, 2), &mut sides)?;
    report.set("trim_10k_ms", median(&costs[0]));
    report.set("buffer_string_10k_ms", median(&costs[1]));
    Ok(())
}
