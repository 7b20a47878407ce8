//! Runs the graph superstep by superstep and prints which nodes ran now and which results were remembered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use annals_graph::Durability;
use annals_graph::prelude::*;
use serde_json::{Value as Json, json};

use super::graph::Research;
use crate::errors::CommandFailure;
use crate::output::{Printer, count, escape, grouped, size};

/// The number of runs and of remembered results of each node.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, Runs>);

#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    now: usize,
    remembered: usize,
}

impl Tally {
    pub(crate) fn remembered(&mut self, node: &str, n: usize) {
        self.0.entry(node.to_owned()).or_default().remembered += n;
    }

    pub(crate) fn any_remembered(&self) -> bool {
        self.0.values().any(|runs| runs.remembered > 0)
    }

    fn count(&mut self, node: &str, cached: bool) {
        let runs = self.0.entry(node.to_owned()).or_default();
        *(if cached { &mut runs.remembered } else { &mut runs.now }) += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (node, runs) in &other.0 {
            let mine = self.0.entry(node.clone()).or_default();
            mine.now += runs.now;
            mine.remembered += runs.remembered;
        }
    }

    /// Returns `list, read ×12` of one kind, in the order of the workflow; the text `nothing` if the kind is empty.
    pub(crate) fn words(&self, remembered: bool) -> String {
        let known = ["list", "read", "analyse", "draft", "approve", "finish"];
        let place = |node: &str| known.iter().position(|known| *known == node).unwrap_or(known.len());
        let mut nodes: Vec<(&String, usize)> =
            self.0.iter().map(|(node, runs)| (node, if remembered { runs.remembered } else { runs.now })).collect();
        nodes.retain(|(_, n)| *n > 0);
        nodes.sort_by_key(|(node, _)| place(node));
        let words = nodes.iter().map(|(node, n)| if *n == 1 { (*node).clone() } else { format!("{node} ×{n}") });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "nothing".into() } else { words.join(", ") }
    }

    pub(crate) fn json(&self) -> Json {
        let of = |kind: fn(&Runs) -> usize| -> Json {
            self.0
                .iter()
                .filter(|(_, runs)| kind(runs) > 0)
                .map(|(node, runs)| (node.clone(), json!(kind(runs))))
                .collect()
        };
        json!({ "ran_now": of(|runs| runs.now), "remembered": of(|runs| runs.remembered) })
    }
}

/// A graph on its thread.
pub(crate) struct DemoRunner<'a> {
    pub(crate) graph: &'a CompiledGraph<Research>,
    pub(crate) thread: &'a Thread,
}

impl DemoRunner<'_> {
    /// Runs until the end or an interrupt; every superstep is on the disk before the next one starts.
    pub(crate) fn drive(
        &self,
        input: Input,
        tally: &mut Tally,
        out: &mut Printer,
    ) -> Result<Outcome<Research>, CommandFailure> {
        let head = self.thread.head()?;
        // A new thread writes its input first; the nodes begin with step 1.
        let mut step = head.map_or(1, |head| (head.step() + 1).max(1));
        let mut stream = self
            .graph
            .run(self.thread)
            .durability(Durability::Sync)
            .stream(input, &[StreamMode::Updates, StreamMode::Values])?;
        let (mut superstep, mut since) = (Tally::default(), now());
        for part in &mut stream {
            match part?.data {
                StreamData::Updates(update) => superstep.count(&update.node, update.cached),
                StreamData::Values(state) if !superstep.0.is_empty() => {
                    print_superstep(step, &superstep, &state, since.elapsed(), out)?;
                    tally.add(&std::mem::take(&mut superstep));
                    (step, since) = (step + 1, now());
                }
                StreamData::Interrupts(_) => {
                    print_step(out, step, "approve", "interrupts, and waits for a resume value", None)?
                }
                _ => {}
            }
        }
        match stream.outcome() {
            Some(outcome) => Ok(outcome.clone()),
            None => Err(CommandFailure::new(70, "internal", "the run ended without an outcome")),
        }
    }
}

/// Prints a superstep.
fn print_superstep(
    step: i64,
    superstep: &Tally,
    state: &Research,
    took: Duration,
    out: &mut Printer,
) -> Result<(), CommandFailure> {
    let (now, remembered) = (superstep.words(false), superstep.words(true));
    let (nodes, note) = match (superstep.any_remembered(), now == "nothing") {
        (false, _) => (now, String::new()),
        (true, true) => (remembered, " (remembered)".into()),
        (true, false) => (now, format!(" ({remembered} remembered)")),
    };
    let first = superstep.0.keys().next().map(String::as_str).unwrap_or_default();
    print_step(out, step, &nodes, &format!("{}{note}", found(first, state)), Some(took))
}

fn print_step(
    out: &mut Printer,
    step: i64,
    nodes: &str,
    text: &str,
    took: Option<Duration>,
) -> Result<(), CommandFailure> {
    if out.is_json() {
        return Ok(());
    }
    let took = took.map(|took| format!("{:>7.1} ms", took.as_secs_f64() * 1_000.0)).unwrap_or_default();
    out.line(format!("  step {step:<2}  {nodes:<10} {:<56}{}", escape(text), out.dim(&took)))?;
    // Printed at once, also if the process is about to be killed.
    out.flush()?;
    Ok(())
}

/// Returns the findings of a node as a short text.
fn found(node: &str, state: &Research) -> String {
    match node {
        "list" => {
            let bytes = state.files.iter().map(|file| file.bytes).sum();
            format!("{}, {}", count(state.files.len(), "file"), size(bytes))
        }
        "read" => {
            let words: usize = state.notes.iter().map(|facts| facts.words).sum();
            let headings: usize = state.notes.iter().map(|facts| facts.headings.len()).sum();
            let links: usize = state.notes.iter().map(|facts| facts.links.len()).sum();
            let words = grouped(words as u64);
            format!("{words} words, {}, {}", count(headings, "heading"), count(links, "link"))
        }
        "analyse" => state.analysis.findings(),
        "draft" => {
            let lines = count(state.report.lines().count(), "line");
            format!("report of {lines}, {}", count(state.messages.len(), "message"))
        }
        "approve" => if state.approved == Some(true) { "yes" } else { "no" }.into(),
        "finish" => format!("{}, {}", state.status, count(state.report_words, "word")),
        _ => String::new(),
    }
}

#[allow(clippy::disallowed_methods, reason = "the demo shows how long its steps take; nothing is stored of it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
