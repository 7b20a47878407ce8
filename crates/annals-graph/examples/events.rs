//! Events of runs as spans in the manner of OpenTelemetry: one trace for each thread, one span for each run, events
//! inside it. A workflow fails once, is tried again, waits for a person, and ends.
//!
//! Run it with `cargo run -p annals-graph --example events`. An exporter takes the place of `print`; with the feature
//! `tracing` the same runs are spans of `tracing`, which `tracing-opentelemetry` exports without a line of code.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{RunEvent, RunEventKind};

/// The open spans, by the ids of their runs.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<HashMap<String, Vec<RunEvent>>>>);

impl Spans {
    /// Adds an event to the span of its run, and prints the span when it ends.
    fn add(&self, event: &RunEvent) {
        let mut open = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let events = open.entry(event.run.to_string()).or_default();
        events.push(event.clone());
        if matches!(event.kind, RunEventKind::Waiting { .. } | RunEventKind::Ended { .. }) {
            let events = open.remove(&event.run.to_string()).unwrap_or_default();
            print(&events);
        }
    }
}

fn print(events: &[RunEvent]) {
    let [first, .., last] = events else { return };
    let thread = first.thread.as_ref().map_or("-", |thread| thread.as_str());
    let micros = last.at.as_micros() - first.at.as_micros();
    println!("span {} trace={thread} id={} {micros} us status={}", first.graph, first.run, last.kind.as_str());
    for event in events {
        match &event.kind {
            RunEventKind::AttemptFailed { node, attempt, error, .. } => {
                println!("  {} {node} #{attempt}: {error}", event.kind.as_str())
            }
            RunEventKind::Waiting { interrupts, .. } => {
                println!(
                    "  {} for {:?}",
                    event.kind.as_str(),
                    interrupts.iter().map(|at| &at.value).collect::<Vec<_>>()
                )
            }
            kind => println!("  {}", kind.as_str()),
        }
    }
}

fn main() -> Result<()> {
    let spans = Spans::default();
    let listener = spans.clone();
    let charge = Task::new("charge", |cents: i64, ctx: &Context| match ctx.attempt() {
        1 => Err("the bank is busy".into()),
        _ => Ok(format!("receipt for {cents}")),
    })
    .retry(RetryPolicy::new().initial_interval(Duration::from_millis(5)).jitter(false));
    let order = Entrypoint::new("order", move |cents: i64, ctx: &Context| {
        let receipt = charge.call(ctx, cents)?;
        ctx.interrupt("ship it?")?;
        Ok(receipt)
    })
    .compile()?
    .with_config(|run| run.on_event(move |event| listener.add(event)));

    let thread = Store::memory().thread("order-17")?;
    order.invoke(&thread, 1_999)?;
    let done = order.invoke(&thread, Command::resume("yes"))?;
    println!("{:?}", done.value());
    for step in thread.steps()? {
        let step = step?;
        let (attempts, took) = (step.attempts.len(), step.duration());
        println!("{:<12} {:<9} {attempts} attempts {took:?} {}", step.name, step.state, step.error_text());
    }
    Ok(())
}
