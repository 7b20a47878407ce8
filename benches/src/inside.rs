//! The turn of a graph inside another one: a conversation goes into it, and comes back one message longer.

use std::path::Path;

use annals_graph::Durability;
use annals_graph::graph::CompiledGraph;
use annals_graph::prelude::*;

use crate::append::TEXT_BYTES;
use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::stats::{median, text, timed};
use crate::turns::{Chat, THREAD};
use crate::{Bench, Result};

/// Turns measured at one length.
const MEASURED: usize = 50;

fn graph() -> Result<CompiledGraph<Chat>> {
    let agent = StateGraph::<Chat>::new()
        .node("answer", |chat: &Chat| {
            Ok(Chat::update().messages([Message::ai(text(chat.n.unsigned_abs(), TEXT_BYTES))]))
        })
        .edge(START, "answer")
        .compile()?;
    Ok(StateGraph::<Chat>::new().node("agent", agent).edge(START, "agent").compile()?)
}

/// Measures the figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    for (label, length) in [("1k", bench.runs(1_000, 100)), ("10k", bench.runs(10_000, 400))] {
        let [us, bytes] = run(&bench.file("inside.db")?, length)?;
        report.set(&format!("inside_turn_us_{label}"), us);
        report.set(&format!("inside_bytes_per_turn_{label}"), bytes);
    }
    Ok(())
}

/// Returns how long a turn takes when the conversation has so many messages, and by how much the file grows.
fn run(path: &Path, length: usize) -> Result<[f64; 2]> {
    let graph = graph()?;
    let opened = disk::open(path, Synchronous::Normal)?;
    let thread = opened.store.thread(THREAD)?;
    let messages = (0..length).map(|n| Message::human(text(n as u64, TEXT_BYTES)));
    graph.update_state(&thread, Chat::update().messages(messages), Some("__start__"))?;
    let turn = |n: usize| {
        let run = graph.run(&thread).durability(Durability::Sync);
        timed(|| Ok(run.invoke(Chat::update().n(n as i64))?.state().messages.len()))
    };
    turn(0)?;
    let before = opened.bytes(path)?;
    let mut times = Vec::new();
    for n in 1..=MEASURED {
        let (us, messages) = turn(n)?;
        same("messages", messages, length + n + 1)?;
        times.push(us);
    }
    let bytes = opened.bytes(path)?.saturating_sub(before) as f64 / MEASURED as f64;
    opened.store.clear_head_cache();
    same("messages", graph.get_state(&thread)?.values.messages.len(), length + MEASURED + 1)?;
    same("problems", opened.store.check()?.problems, Vec::new())?;
    Ok([median(&times), bytes])
}
