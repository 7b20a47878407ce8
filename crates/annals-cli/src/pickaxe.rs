//! `annals log THREAD -S TEXT`: the changes by which a text appears in the state or disappears from it, on all branches.
//!
//! JSON: `{"schema": 1, "thread", "text", "changes": [{"appears": bool, "channel", "item", "position", "by": {..}}], "more":
//! bool}`, newest first; `by` is as in `annals blame`.

use annals::history::Thread;
use serde_json::json;

use crate::args::LogArgs;
use crate::blame::{ShortIds, blame_json, node};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns, escape};

pub(crate) fn run(thread: &Thread, text: &str, args: &LogArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut changes = thread.pickaxe(text)?;
    changes.reverse();
    let (limit, now) = (args.list.limit, thread.store().now());
    let since = args.since.map(|since| since.at(now));
    changes.retain(|change| {
        let blame = &change.blame;
        args.channel.as_deref().is_none_or(|channel| *change.channel == *channel)
            && args.node.as_deref().is_none_or(|node| blame.node.as_deref() == Some(node))
            && since.is_none_or(|since| blame.created_at >= since)
    });
    let more = limit > 0 && changes.len() > limit;
    if more {
        changes.truncate(limit);
    }
    let Some(head) = thread.head()? else { return Ok(1) };
    let mut shorts = ShortIds::of(&head);
    if out.is_json() {
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
        return Ok(u8::from(changes.is_empty()));
    }
    let mut rows = Vec::with_capacity(changes.len());
    for change in &changes {
        let blame = &change.blame;
        let place = match (&change.item, change.position) {
            (Some(id), _) => format!("{}#{}", escape(&change.channel), escape(id)),
            (None, Some(position)) => format!("{}[{position}]", escape(&change.channel)),
            (None, None) => escape(&change.channel).into_owned(),
        };
        let sign = if change.appears { "+" } else { "-" };
        let (step, age) = (format!("step {}", blame.step), output::ago(now, blame.created_at));
        let mut cells = vec![sign.to_owned(), shorts.of_point(&blame.point)?, step, node(blame)];
        cells.extend((!args.oneline).then_some(age));
        cells.push(place);
        rows.push(cells);
    }
    for (change, line) in changes.iter().zip(columns(&rows)) {
        out.row(if change.appears { out.added(&line) } else { out.removed(&line) })?;
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    if rows.is_empty() {
        output::note("no change of the log is one of this text");
    }
    Ok(u8::from(rows.is_empty()))
}
