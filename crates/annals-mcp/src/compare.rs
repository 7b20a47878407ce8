//! The tools that compare: diff, blame, log.

use annals::history::{Blame, ChannelDiff, Diff, HistoryFilter, Snapshot};
use annals::store::{ItemRange, Source, Store, StoreError};

use crate::arguments::ToolArguments;
use crate::error::ToolError;
use crate::names::{brief, point_text, reference_text};
use crate::reply::HistoryReply;

pub(crate) fn diff(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let first = store.point(arguments.required("before")?)?;
    let (before, after) = match arguments.text("after") {
        Some(after) => (Some(first), store.point(after)?),
        None => (first.parent()?, first),
    };
    let found = match &before {
        Some(before) => annals::history::diff(before, &after)?,
        None => {
            let values = after.values()?.into_iter();
            Diff::new(values.map(|(name, value)| ChannelDiff::Added { channel: name.into(), value }).collect(), 0)
        }
    };
    let mut reply = HistoryReply::new();
    let name = |at: &Snapshot| Ok::<_, StoreError>(format!("{} (step {})", point_text(at)?, at.step()));
    let from = before.as_ref().map(name).transpose()?.unwrap_or_else(|| "nothing".to_owned());
    let (changed, unchanged) = (found.channels.len(), found.unchanged);
    reply.fact(format!("From {from} to {}: {changed} channels differ, {unchanged} do not.", name(&after)?));
    let text = found.to_string();
    if !text.is_empty() {
        reply.text_from(&text, arguments.count("offset"));
    }
    Ok(reply)
}

/// Returns the row of a write.
fn written(store: &Store, what: &str, blame: &Blame) -> Result<String, ToolError> {
    let node = match &blame.node {
        Some(node) => format!("node {node}"),
        None => blame.source.to_string(),
    };
    let point = reference_text(store, &blame.point)?;
    Ok(format!("{what}: {point}, step {}, {node}, {}", blame.step, blame.created_at))
}

pub(crate) fn blame(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let at = store.point(arguments.required("point")?)?;
    let mut reply = HistoryReply::new();
    reply.fact(format!("The checkpoints that wrote the values at {}:", point_text(&at)?));
    let Some(channel) = arguments.text("channel") else {
        let known = at.channels()?;
        for (channel, blame) in at.blames()?.into_iter().filter(|(channel, _)| known.contains(channel)) {
            if !reply.row(&written(store, &channel, &blame)?) {
                reply.fact("Other channels are not listed: channel asks for one.");
                break;
            }
        }
        return Ok(reply);
    };
    let writes = at.blame(channel);
    let (place, found) = match (arguments.number("position"), arguments.text("key")) {
        (Some(position), _) => (format!("{channel}[{position}]"), writes.position(position)?),
        (None, Some(key)) => (format!("entry {key:?} of {channel}"), writes.entry(key)?),
        (None, None) => (channel.to_owned(), writes.value()?),
    };
    let what = || format!("{place} has no value at this point; show without channel lists those that have");
    let found = found.ok_or_else(|| ToolError::NotFound { what: what() })?;
    reply.row(&written(store, &place, &found)?);
    if place == channel {
        last_items(&at, channel, arguments.count("limit"), &mut reply)?;
    }
    Ok(reply)
}

/// Adds the writers of the last items of a list.
fn last_items(at: &Snapshot, channel: &str, limit: usize, reply: &mut HistoryReply) -> Result<(), ToolError> {
    let mut positions = Vec::new();
    at.visit_items(channel, ItemRange::Tail(limit), |row| {
        positions.push(row.position);
        Ok(())
    })?;
    for (position, value) in positions.into_iter().zip(at.tail(channel, limit)?).rev() {
        let Some(blame) = at.blame(channel).position(position)? else { continue };
        let row = written(at.store(), &format!("{channel}[{position}]"), &blame)?;
        if !reply.row(&format!("{row}: {}", brief(&value.to_json()))) {
            break;
        }
    }
    Ok(())
}

pub(crate) fn log(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let thread = store.find_thread(arguments.required("thread")?)?;
    let limit = arguments.count("limit");
    let mut reply = HistoryReply::new();
    if let Some(text) = arguments.text("text") {
        let changes = thread.pickaxe(text)?;
        reply.fact(format!("{} changes of {} by which {text:?} appears or disappears:", changes.len(), thread.id()));
        for change in changes.iter().take(limit) {
            let mark = if change.appears { '+' } else { '-' };
            let place = change.position.map(|position| format!("[{position}]")).unwrap_or_default();
            if !reply.row(&written(store, &format!("{mark} {}{place}", change.channel), &change.blame)?) {
                break;
            }
        }
        return Ok(reply);
    }
    let mut filter = HistoryFilter::new().limit(limit + 1);
    if let Some(before) = arguments.text("before") {
        filter = filter.before(store.point(before)?.id());
    }
    let (mut shown, mut last) = (0, None);
    for at in thread.history_with(filter)? {
        let at = at?;
        if shown == limit || !reply.row(&log_row(&at)?) {
            if let Some(last) = &last {
                reply.next(format!("before={:?}", point_text(last)?));
            }
            break;
        }
        (shown, last) = (shown + 1, Some(at));
    }
    reply.fact(format!("{shown} checkpoints of {}, newest first. `diff` with a point shows its changes.", thread.id()));
    Ok(reply)
}

fn log_row(at: &Snapshot) -> Result<String, ToolError> {
    let parent = match at.parent() {
        Err(StoreError::CheckpointPruned { .. }) => None,
        parent => parent?,
    };
    let ran: Vec<&str> = match &parent {
        Some(parent) if at.source() == Source::Loop => parent.next().collect(),
        _ => Vec::new(),
    };
    let ran = if ran.is_empty() { String::new() } else { format!(", ran {}", ran.join(", ")) };
    let known = at.channels()?;
    let changed: Vec<String> = match at.source() {
        Source::Fork => Vec::new(),
        _ => {
            at.state_record()?.updated.iter().filter(|name| known.contains(name)).map(|name| name.to_string()).collect()
        }
    };
    let changed = if changed.is_empty() { String::new() } else { format!(": changed {}", changed.join(", ")) };
    let (point, step, source, made) = (point_text(at)?, at.step(), at.source(), at.created_at());
    Ok(format!("{point} step {step}, {source}, {made}{ran}{changed}"))
}
