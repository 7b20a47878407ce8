//! `annals enqueue`: stores the input of a run, for a worker.
//!
//! Prints the id of the thread; JSON: `{"schema": 1, "thread", "queue", "new": bool, "status"}`. `new` is false if a
//! run with the key was there. *Absent:* running anything.

use annals::base::{Map, Value};
use annals::store::{OpenOptions, Store};
use annals_flow::Flow;
use annals_runs::{Queue, Queued, StoreRuns, ThreadStatus};
use serde_json::json;

use crate::args::EnqueueArgs;
use crate::digits;
use crate::errors::CommandFailure;
use crate::flow_run::{self, failure};
use crate::key::NamedStore;
use crate::output::{self, Printer, escape};

pub(crate) fn run(args: &EnqueueArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    let values = args.input.as_deref().map(flow_run::values).transpose()?;
    let (name, queued) = match (&args.file, &args.queue) {
        (Some(file), _) => {
            let flow = Flow::open(file).map_err(failure)?;
            let store = flow_run::open_beside(store, file)?;
            let thread = store.thread(thread_of(args, flow.name(), &store))?;
            let queued = flow.enqueue(&thread, values, |queue| with_options(args, queue)).map_err(failure)?;
            (flow.name().to_owned(), queued)
        }
        (None, Some(queue)) => {
            let store = store.open_with(OpenOptions::new())?;
            (queue.clone(), untyped(args, queue, values, &store)?)
        }
        (None, None) => return Err(CommandFailure::usage("expected the file of a workflow, or --queue NAME")),
    };
    let (thread, is_new) = (queued.thread.id().as_str(), queued.is_new);
    if out.is_json() {
        let status = ThreadStatus::of(&queued.thread.info()?).as_str();
        let document = json!({ "schema": 1, "thread": thread, "queue": name, "new": is_new, "status": status });
        out.json(&document)?;
        return Ok(0);
    }
    out.line(escape(thread))?;
    out.flush()?;
    output::note(match (is_new, args.delay) {
        (false, _) => "a run with this key was enqueued before; nothing was written",
        (true, Some(_)) => "enqueued; a worker begins it after the delay",
        (true, None) => "enqueued; annals work runs it",
    });
    Ok(0)
}

/// Enqueues a run of a graph that this program does not have.
fn untyped(args: &EnqueueArgs, name: &str, values: Option<Map>, store: &Store) -> Result<Queued, CommandFailure> {
    let (thread, queue) = (thread_of(args, name, store), with_options(args, store.queue(name)));
    Ok(match (&args.argument, values) {
        (Some(argument), _) => queue.enqueue(thread, digits::value("--argument", argument)?)?,
        (None, Some(values)) => queue.enqueue_update(thread, values)?,
        (None, None) => queue.enqueue(thread, Value::Null)?,
    })
}

/// Returns the id of the thread. With a key it follows from the key, so that the key holds for the whole queue.
fn thread_of(args: &EnqueueArgs, name: &str, store: &Store) -> String {
    match (&args.thread, &args.key) {
        (Some(thread), _) => thread.clone(),
        (None, Some(key)) => format!("{name}/{key}"),
        (None, None) => format!("{name}/{}", store.mint_run()),
    }
}

fn with_options(args: &EnqueueArgs, queue: Queue) -> Queue {
    let queue = queue.priority(args.priority);
    let queue = args.delay.into_iter().fold(queue, Queue::delay);
    args.key.iter().fold(queue, |queue, key| queue.dedup(key.as_str()))
}
