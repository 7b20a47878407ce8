//! `annals threads`: the threads of the store, the last active first.
//!
//! JSON: `{"schema": 1, "threads": [{"thread", "created_at", "last_activity", "checkpoints", "branches", "head",
//! "step", "status": "done" | "due" | "interrupted", "next": [..], "questions": [..]}], "more": n}`.

use annals::base::Value;
use annals::history::Snapshot;
use annals::store::{Store, ThreadRecord, ThreadSize};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, cut, escape};
use crate::words::Waits;

pub(crate) fn run(args: &args::ThreadsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut threads = store.threads()?;
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.head.created_at));
    let shown = if args.limit == 0 { threads.len() } else { args.limit.min(threads.len()) };
    let more = threads.len() - shown;
    threads.truncate(shown);
    let heads: Vec<(ThreadRecord, Snapshot, Waits)> = threads
        .into_iter()
        .filter_map(|thread| with_head(store, thread).transpose())
        .collect::<Result<_, CommandFailure>>()?;
    if out.is_json() {
        let documents = heads.iter().map(|(thread, head, waits)| {
            let size = store.backend().thread_size(&thread.id)?;
            Ok(document(thread, size, head, waits))
        });
        let threads: Vec<Json> = documents.collect::<Result<_, CommandFailure>>()?;
        out.json(&json!({ "schema": 1, "threads": threads, "more": more }))?;
    } else {
        table(store, &heads, out)?;
        if more > 0 {
            output::note(format!("{more} more: --limit 0 lists all"));
        }
    }
    if heads.is_empty() && !out.is_json() {
        output::note("the store has no threads");
    }
    Ok(u8::from(heads.is_empty()))
}

fn with_head(store: &Store, thread: ThreadRecord) -> Result<Option<(ThreadRecord, Snapshot, Waits)>, CommandFailure> {
    let Some(head) = store.thread(thread.id.as_str())?.head()? else { return Ok(None) };
    let waits = Waits::of(&head)?;
    Ok(Some((thread, head, waits)))
}

fn table(store: &Store, heads: &[(ThreadRecord, Snapshot, Waits)], out: &mut Printer) -> Result<(), CommandFailure> {
    if heads.is_empty() {
        return Ok(());
    }
    let titles = ["THREAD", "CHECKPOINTS", "BRANCHES", "HEAD", "STEP", "ACTIVE", "STATE"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    for (thread, head, waits) in heads {
        let size = store.backend().thread_size(&thread.id)?;
        rows.push(vec![
            cut(&escape(thread.id.as_str()), 40).into_owned(),
            size.checkpoints.to_string(),
            size.branches.to_string(),
            head.short_id()?,
            head.step().to_string(),
            output::ago(store.now(), head.created_at()),
            waits.text(60),
        ]);
    }
    for (at, line) in columns(&rows).iter().enumerate() {
        let line = if at == 0 { out.dim(line) } else { line.clone() };
        out.line(line)?;
    }
    Ok(())
}

fn document(thread: &ThreadRecord, size: ThreadSize, head: &Snapshot, waits: &Waits) -> Json {
    let interrupts: &[Value] = if let Waits::Interrupted(interrupts) = waits { interrupts } else { &[] };
    json!({
        "thread": thread.id.as_str(),
        "created_at": thread.created_at.to_string(),
        "last_activity": head.created_at().to_string(),
        "checkpoints": size.checkpoints,
        "branches": size.branches,
        "head": head.id().to_string(),
        "step": head.step(),
        "status": waits.status(),
        "next": head.next().collect::<Vec<_>>(),
        "questions": interrupts.iter().map(Value::to_json).collect::<Vec<_>>(),
    })
}
