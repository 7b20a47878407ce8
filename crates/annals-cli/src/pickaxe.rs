//! `annals log THREAD -S TEXT`: the changes by which a text appears in the state or disappears from it, on all
//! branches.
//!
//! JSON: `{"schema": 1, "thread", "text", "changes": [{"appears": bool, "channel", "item", "position", "by": {..}}],
//! "more": bool}`, newest first; `by` is as in `annals blame`.

use annals::history::{TextChange, Thread};
use serde_json::json;

use crate::args::LogArgs;
use crate::blame::{ShortIds, blame_json, node};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, escape};

/// The note of an empty list.
pub(crate) const NO_CHANGE: &str = "no change of the log is one of this text";

/// Returns the changes of a text that pass the filter of the log, newest first.
pub(crate) fn find(thread: &Thread, text: &str, args: &LogArgs) -> Result<Vec<TextChange>, CommandFailure> {
    let mut changes = thread.pickaxe(text)?;
    changes.reverse();
    let since = args.since.map(|since| since.at(thread.store().now()));
    changes.retain(|change| {
        let blame = &change.blame;
        args.channel.as_deref().is_none_or(|channel| *change.channel == *channel)
            && args.node.as_deref().is_none_or(|node| blame.node.as_deref() == Some(node))
            && since.is_none_or(|since| blame.created_at >= since)
    });
    Ok(changes)
}

/// Prints the changes of a text without the tree, or their document.
pub(crate) fn run(thread: &Thread, text: &str, args: &LogArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut changes = find(thread, text, args)?;
    let more = changes.len() > args.list.most();
    changes.truncate(args.list.most());
    if !out.is_json() {
        list(thread, &changes, args.oneline, out)?;
        if more {
            out.line(out.dim("(older ones: -n 0 shows all)"))?;
        }
        if changes.is_empty() {
            output::note(NO_CHANGE);
        }
        return Ok(u8::from(changes.is_empty()));
    }
    let Some(head) = thread.head()? else { return Ok(1) };
    let mut shorts = ShortIds::of(&head);
    let mut documents = Vec::with_capacity(changes.len());
    for change in &changes {
        documents.push(json!({
            "appears": change.appears,
            "channel": &*change.channel,
            "item": change.item,
            "position": change.position,
            "by": blame_json(&head, &change.blame, &mut shorts)?,
        }));
    }
    let thread = thread.id().as_str();
    out.json(&json!({ "schema": 1, "thread": thread, "text": text, "changes": documents, "more": more }))?;
    Ok(u8::from(changes.is_empty()))
}

/// Prints changes, each with its checkpoint.
pub(crate) fn list(
    thread: &Thread,
    changes: &[TextChange],
    oneline: bool,
    out: &mut Printer,
) -> Result<(), CommandFailure> {
    let Some(head) = thread.head()? else { return Ok(()) };
    let (mut shorts, now) = (ShortIds::of(&head), thread.store().now());
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        let blame = &change.blame;
        let (step, age) = (format!("step {}", blame.step), output::ago(now, blame.created_at));
        let mut cells = vec![sign(change).to_owned(), shorts.of_point(&blame.point)?, step, node(blame)];
        cells.extend((!oneline).then_some(age));
        cells.push(place(change));
        rows.push(cells);
    }
    for (change, line) in changes.iter().zip(columns(&rows)) {
        out.row(painted(change, &line, out))?;
    }
    Ok(())
}

/// Returns a change on one line, for a place below its checkpoint.
pub(crate) fn line(change: &TextChange, out: &Printer) -> String {
    painted(change, &format!("{} {}", sign(change), place(change)), out)
}

fn sign(change: &TextChange) -> &'static str {
    if change.appears { "+" } else { "-" }
}

fn painted(change: &TextChange, line: &str, out: &Printer) -> String {
    if change.appears { out.added(line) } else { out.removed(line) }
}

/// Returns the channel, and the item if it is a list.
fn place(change: &TextChange) -> String {
    match (&change.item, change.position) {
        (Some(id), _) => format!("{}#{}", escape(&change.channel), escape(id)),
        (None, Some(position)) => format!("{}[{position}]", escape(&change.channel)),
        (None, None) => escape(&change.channel).into_owned(),
    }
}
