//! `annals prune`: prunes old checkpoints of threads. Heads, ends of branches and targets of names stay.
//!
//! JSON: `{"schema": 1, "threads": [..], "checkpoints", "values", "bytes"}`.

use annals::history::{PrunePolicy, ThreadQuery};
use annals::store::{Pruned, Store};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, count, escape, size};
use crate::point::whole_thread;

pub(crate) fn run(args: &args::PruneArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut policy = PrunePolicy::new();
    if let Some(n) = args.keep_last {
        policy = policy.keep_last(n);
    }
    if let Some(since) = &args.before {
        policy = policy.older_than(since.at(store.now()));
    }
    if !args.runs.is_empty() {
        policy = policy.of_runs(args.runs.iter().copied());
    }
    let mut threads = args.threads.iter().map(|name| whole_thread(store, name)).collect::<Result<Vec<_>, _>>()?;
    if args.all {
        for is_archived in [false, true] {
            let mut query = ThreadQuery::new().by_id().archived(is_archived);
            loop {
                let page = store.threads_with(query.clone())?;
                let Some(last) = page.last() else { break };
                query = query.after(last);
                for info in &page {
                    threads.push(store.thread(info.id())?);
                }
            }
        }
    }
    let mut pruned = Pruned::default();
    for thread in &threads {
        let plan = thread.prune_plan(&policy)?;
        pruned.add(if args.yes { plan.run()? } else { plan.estimate()? });
    }
    let what = format!(
        "{} of {}",
        count(usize::try_from(pruned.checkpoints).unwrap_or(usize::MAX), "checkpoint"),
        count(threads.len(), "thread")
    );
    if !args.yes {
        let message = format!("{what} would go, with {} of values; nothing was changed", size(pruned.bytes));
        return Err(CommandFailure::new(7, "needs_yes", message).hint("repeat it with --yes"));
    }
    let ids: Vec<&str> = threads.iter().map(|thread| thread.id().as_str()).collect();
    if out.is_json() {
        let (checkpoints, values, bytes) = (pruned.checkpoints, pruned.values, pruned.bytes);
        out.json(&json!({
            "schema": 1, "threads": ids, "checkpoints": checkpoints, "values": values, "bytes": bytes
        }))?;
        return Ok(0);
    }
    for id in &ids {
        out.line(escape(id))?;
    }
    out.flush()?;
    output::note(format!("pruned {what}, with {} of values", size(pruned.bytes)));
    Ok(0)
}
