//! `annals search`: the items and values whose text holds every word, such as messages, newest first.
//!
//! JSON: `{"schema": 1, "hits": [{"thread", "namespace", "checkpoint", "created_at", "channel", "position", "key",
//! "id", "role", "name", "node", "on_head", "carried", "folded", "partial", "snippet", "matches": [[from, to]]}],
//! "next": cursor | null}`. `matches` are ranges of bytes of `snippet`; `next` continues the search with `--after`.
//! `carried` is the checkpoint to which a compaction carried the message; `folded` says that a model sees a summary in
//! its place, `partial` that it is half an answer at the head. Exit code 1 if nothing is found.

use annals::store::search::SearchHit;
use annals::store::{SearchQuery, Store};
use annals_view::hit_document;
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, escape};

pub(crate) fn run(args: &args::SearchArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let page = store.search(query(args, store)?)?;
    let code = u8::from(page.hits.is_empty());
    if out.is_json() {
        let hits: Vec<Json> = page.hits.iter().map(hit_document).collect();
        let next = page.next.map(|next| next.to_string());
        out.json(&json!({ "schema": 1, "hits": hits, "next": next }))?;
        return Ok(code);
    }
    let now = store.now();
    let mut rows = Vec::with_capacity(page.hits.len());
    for hit in &page.hits {
        let namespace = match hit.point.namespace.is_root() {
            true => String::new(),
            false => format!(" {}", escape(hit.point.namespace.as_str())),
        };
        let short = hit.snapshot(store)?.short_id()?;
        let place = format!("{}@{short}{namespace}", escape(hit.point.thread.as_str()));
        let author = hit.role.as_deref().or(hit.node.as_deref()).unwrap_or(&hit.channel);
        let mark = mark(hit, store)?;
        let cells = [&*place, &output::ago(now, hit.created_at), &escape(author), &mark, &snippet(hit, out)];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    for line in columns(&rows) {
        out.row(line)?;
    }
    match (rows.is_empty(), page.next) {
        (true, _) => output::note("nothing found"),
        (false, Some(next)) => output::note(format!("more: --after {next}")),
        (false, None) => {}
    }
    Ok(code)
}

fn query(args: &args::SearchArgs, store: &Store) -> Result<SearchQuery, CommandFailure> {
    let mut query = SearchQuery::new(args.text.join(" ")).limit(args.limit);
    if let Some(thread) = &args.thread {
        query = query.thread(crate::point::thread(store, thread)?.id().as_str());
    }
    if let Some(role) = &args.role {
        query = query.role(role);
    }
    if let Some(node) = &args.node {
        query = query.node(node);
    }
    if let Some(channel) = &args.channel {
        query = query.channel(channel);
    }
    if let Some(since) = &args.since {
        query = query.since(since.at(store.now()));
    }
    if args.on_head {
        query = query.on_head();
    }
    if let Some(after) = &args.after {
        query = query.after(after.clone());
    }
    Ok(query)
}

/// Returns the mark of a hit: of the past, of half an answer, or of a message that a compaction carried on or folded.
fn mark(hit: &SearchHit, store: &Store) -> Result<String, CommandFailure> {
    Ok(match &hit.carried {
        Some(carried) => {
            let to = store.thread(carried.thread.as_str())?.with_namespace(carried.namespace.clone());
            format!("(carried to {})", to.at(carried.checkpoint)?.short_id()?)
        }
        None if hit.partial => "(half an answer)".to_owned(),
        None if hit.folded => "(folded)".to_owned(),
        None if hit.on_head => String::new(),
        None => "(past)".to_owned(),
    })
}

/// Returns the snippet on one line, with its matches in colour.
fn snippet(hit: &SearchHit, out: &Printer) -> String {
    let snippet = &hit.snippet;
    let (mut line, mut done) = (String::new(), 0);
    if snippet.more_before {
        line.push_str("...");
    }
    for range in &snippet.matches {
        let Some((between, found)) = snippet.text.get(done..range.start).zip(snippet.text.get(range.clone())) else {
            continue;
        };
        line.push_str(&escape(between));
        line.push_str(&out.open(&escape(found)));
        done = range.end;
    }
    line.push_str(&escape(snippet.text.get(done..).unwrap_or_default()));
    if snippet.more_after {
        line.push_str("...");
    }
    line
}
