//! `annals work`: a worker for the workflows of files.
//!
//! JSON: lines `{"schema": 1, "event", "at", "thread", "workflow", "run", "node", "attempt", "wake_at", "error"}`,
//! whose `event` is `started`, `continued`, `resumed`, `woken`, `attempt_failed`, `lock_wait`, `waiting`, `done`,
//! `failed`, `drained`, `cancelled`, `stopped` or `stuck`; then
//! `{"schema": 1, "event": "ended", "continued", "failed", "stuck"}`. Members that an event does not have are null.
//!
//! Invariant: the events of one run are printed in their order, those of several runs as they happen.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use annals::store::{OpenOptions, Store};
use annals_flow::Flow;
use annals_graph::{RunEvent, RunEventKind, Worker, WorkerReport};
use serde_json::json;

use crate::args::WorkArgs;
use crate::errors::CommandFailure;
use crate::flow_run::{self, open_beside};
use crate::interrupt;
use crate::key::NamedStore;
use crate::output::{self, Printer, count, cut, escape};

pub(crate) fn run(args: &WorkArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let flows = args.files.iter().map(|file| flow_run::open(file)).collect::<Result<Vec<_>, _>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = flows.iter().map(Flow::name).find(|name| !names.insert(*name)) {
        let message = format!("two workflows have the name {twice}; a worker finds the runs of a workflow by its name");
        return Err(CommandFailure::usage(message));
    }
    let store = opened(store, &args.files)?;
    for flow in &flows {
        flow.add_schedule(&store).map_err(flow_run::failure)?;
        if let Some(next) = flow.schedule().and_then(|schedule| schedule.next_after(store.now())) {
            output::note(format!("{} is due at {next}", escape(flow.name())));
        }
    }
    let control = interrupt::draining_control();
    let (events, happened) = channel();
    let worker = worker(args, &store, &flows, events);
    let listed: Vec<_> = flows.iter().map(|flow| escape(flow.name())).collect();
    if !args.once {
        output::note(format!("works on the runs of {}; Ctrl-C ends it", listed.join(", ")));
    }
    let (ended, shown) = std::thread::scope(|scope| {
        let (once, own) = (args.once, &control);
        // The worker is moved: the last sender of events is dropped with it.
        let works = scope.spawn(move || if once { worker.run_until_idle_or(own) } else { worker.run_until(own) });
        let mut shown = Ok(());
        for event in happened {
            if shown.is_ok() {
                shown = show(&event, out);
            }
            if shown.is_err() {
                // The output is not read any more: the worker ends as at a signal.
                control.request_drain("the output is closed");
            }
        }
        (works.join(), shown)
    });
    let report = ended.map_err(|_| CommandFailure::new(70, "internal", "the worker panicked"))??;
    shown?;
    summary(report, out)?;
    if interrupt::is_timed_out() {
        return Err(CommandFailure::new(5, "timed_out", "the time of the worker is over"));
    }
    Ok(u8::from(report.failed + report.stuck > 0))
}

/// Opens the store of the arguments; without one that beside the only file.
fn opened(store: NamedStore<'_>, files: &[PathBuf]) -> Result<Store, CommandFailure> {
    match files {
        [file] => open_beside(store, file),
        _ if store.path.is_none() => {
            let failure = CommandFailure::usage("several workflows need one store");
            Err(failure.hint("name it with --store FILE, or set ANNALS_STORE"))
        }
        _ => store.open_with(OpenOptions::new()),
    }
}

/// Makes a worker that sends the events of its runs.
fn worker(args: &WorkArgs, store: &Store, flows: &[Flow], events: Sender<RunEvent>) -> Worker {
    let mut worker = Worker::new(store).concurrency(args.concurrency.into());
    worker = worker.lease(args.lease).max_recoveries(args.max_recoveries);
    for flow in flows {
        worker = worker.register(flow.graph());
    }
    worker.on_event(move |event| {
        // The receiver is there until the worker is dropped.
        _ = events.send(event.clone());
    })
}

fn show(event: &RunEvent, out: &mut Printer) -> Result<(), CommandFailure> {
    let thread = event.thread.as_ref().map(|thread| thread.as_str()).unwrap_or_default();
    let (mut node, mut attempt, mut wake_at, mut error) = (None, None, None, None);
    match &event.kind {
        RunEventKind::AttemptFailed { node: of, attempt: number, error: message, .. } => {
            (node, attempt, error) = (Some(of.to_string()), Some(*number), Some(message.to_string()));
        }
        RunEventKind::Waiting { wake_at: at, .. } => wake_at = at.map(|at| at.to_string()),
        RunEventKind::Ended { error: message, .. } => error = message.as_ref().map(ToString::to_string),
        RunEventKind::Stuck { error: message } => error = Some(message.to_string()),
        _ => {}
    }
    let (word, at) = (event.kind.as_str(), event.at.to_string());
    if matches!(event.kind, RunEventKind::LockWait { .. }) {
        output::note(format!("the run of {} is {}", escape(thread), event.kind));
        if !out.is_json() {
            return Ok(());
        }
    }
    if out.is_json() {
        out.json_line(&json!({
            "schema": 1, "event": word, "at": at, "thread": thread, "workflow": &*event.graph, "run": event.run.to_string(),
            "node": node, "attempt": attempt, "wake_at": wake_at, "error": error,
        }))?;
        return Ok(out.flush()?);
    }
    let node = node.map(|node| format!("  {}, attempt {}", escape(&node), attempt.unwrap_or(0)));
    let wake_at = wake_at.map(|at| format!("  until {at}"));
    let error = error.map(|error| format!("  {}", cut(&escape(&error), 200)));
    let more = [node, wake_at, error].into_iter().flatten().collect::<String>();
    out.line(format!("{}Z  {:<14}  {}{more}", &at[..19.min(at.len())], word.replace('_', " "), escape(thread)))?;
    // A reader sees each event when it happens.
    Ok(out.flush()?)
}

fn summary(report: WorkerReport, out: &mut Printer) -> Result<(), CommandFailure> {
    let WorkerReport { continued, failed, stuck, .. } = report;
    if out.is_json() {
        let document =
            json!({ "schema": 1, "event": "ended", "continued": continued, "failed": failed, "stuck": stuck });
        return Ok(out.json_line(&document)?);
    }
    out.flush()?;
    let runs = |n: u64| count(usize::try_from(n).unwrap_or(usize::MAX), "run");
    let more = [(failed, "failed"), (stuck, "stuck")].into_iter().filter(|(n, _)| *n > 0);
    let more: String = more.map(|(n, word)| format!(", {n} {word}")).collect();
    output::note(format!("{} continued{more}", runs(continued)));
    Ok(())
}
