//! `annals facts` and `annals archive`: the facts that the users of a thread state.
//!
//! JSON of `facts`: `{"schema": 1, "thread", "title", "project", "labels": [..], "archived", "pinned", "paused",
//! "status", "graph", "last_activity"}`; of `archive`: `{"schema": 1, "threads": [..], "archived": bool}`. An operation
//! on several threads is undone in all of them.

use annals::store::Store;
use annals_runs::ThreadStatus;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, escape};
use crate::point::{thread, whole_thread};

pub(crate) fn run(args: &args::FactsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    if args.is_change() {
        let mut update = thread.facts();
        update = match args.title.as_deref() {
            None => update,
            Some("") => update.remove_title(),
            Some(title) => update.title(title),
        };
        update = match args.project.as_deref() {
            None => update,
            Some("") => update.remove_project(),
            Some(project) => update.project(project),
        };
        for label in &args.label {
            update = update.label(label);
        }
        for label in &args.remove_label {
            update = update.remove_label(label);
        }
        update = if args.pin { update.pinned(true) } else { update };
        update = if args.unpin { update.pinned(false) } else { update };
        update.save()?;
    }
    let info = thread.info()?;
    let facts = &info.facts;
    if out.is_json() {
        out.json(&json!({
            "schema": 1,
            "thread": info.id().as_str(),
            "title": facts.title,
            "project": facts.project,
            "labels": facts.labels,
            "archived": facts.is_archived,
            "pinned": facts.is_pinned,
            "paused": facts.is_paused,
            "status": ThreadStatus::of(&info).as_str(),
            "graph": info.graph.as_deref(),
            "last_activity": info.updated_at.to_string(),
        }))?;
        return Ok(0);
    }
    let text = |text: &Option<String>| escape(text.as_deref().unwrap_or_default()).into_owned();
    let flags = [(facts.is_archived, "archived"), (facts.is_pinned, "pinned"), (facts.is_paused, "paused")];
    let flags: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
    let rows = [
        ("thread", escape(info.id().as_str()).into_owned()),
        ("title", text(&facts.title)),
        ("project", text(&facts.project)),
        ("labels", escape(&facts.labels.join(", ")).into_owned()),
        ("flags", flags.join(", ")),
        ("graph", escape(info.graph.as_deref().unwrap_or_default()).into_owned()),
        ("status", ThreadStatus::of(&info).to_string()),
        ("active", output::ago(store.now(), info.updated_at)),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    for line in columns(&rows.map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>()) {
        out.line(line)?;
    }
    Ok(0)
}

/// Archives threads, or brings them back, in one operation.
pub(crate) fn archive(args: &args::ArchiveArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    for name in &args.threads {
        whole_thread(store, name)?;
    }
    let update = store.facts(&args.threads)?;
    update.archived(!args.remove).save()?;
    if out.is_json() {
        out.json(&json!({ "schema": 1, "threads": args.threads, "archived": !args.remove }))?;
        return Ok(0);
    }
    for name in &args.threads {
        out.line(escape(name))?;
    }
    out.flush()?;
    output::note(match args.remove {
        true => "annals threads lists them again",
        false => "annals threads --archived lists them",
    });
    Ok(0)
}
