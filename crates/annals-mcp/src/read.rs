//! The tools that find and read: search, threads, thread, show.

use annals::base::Value;
use annals::history::{Snapshot, ThreadInfo, ThreadQuery};
use annals::store::{ItemRange, SearchQuery, Store};
use annals_runs::{ThreadStatus, status_name, status_named};

use crate::arguments::ToolArguments;
use crate::error::ToolError;
use crate::limits::MESSAGE_CHARS;
use crate::names::{brief, message_channel, point_text, reference_text, words};
use crate::reply::{HistoryReply, one_line};

/// The characters of the title of a row.
const TITLE_CHARS: usize = 80;
/// The characters of the snippet of a hit.
const SNIPPET_CHARS: usize = 300;

pub(crate) fn search(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let mut query = SearchQuery::new(arguments.required("query")?).limit(arguments.count("limit"));
    if let Some(thread) = arguments.text("thread") {
        query = query.thread(store.find_thread(thread)?.id());
    }
    if let Some(role) = arguments.text("role") {
        query = query.role(role);
    }
    if arguments.flag("present") {
        query = query.on_head();
    }
    if let Some(cursor) = arguments.text("after") {
        query = query.after(cursor.parse().map_err(|reason| ToolError::Invalid { field: "after", reason })?);
    }
    let page = store.search(&query)?;
    let mut reply = HistoryReply::new();
    let mut shown = 0;
    for hit in &page.hits {
        let marks = match (hit.on_head, hit.partial) {
            (_, true) => " (half an answer)",
            (true, false) => "",
            (false, false) => " (past)",
        };
        let author = hit.role.as_deref().or(hit.node.as_deref()).unwrap_or("value");
        let snippet = one_line(&hit.snippet.marked("**", "**"), SNIPPET_CHARS);
        let point = reference_text(store, &hit.point)?;
        let (channel, position, at) = (&hit.channel, hit.position, hit.created_at);
        if !reply.row(&format!("{point} {channel}[{position}] {author}{marks} {at}: {snippet}")) {
            break;
        }
        shown += 1;
    }
    reply.fact(match shown {
        0 => "Nothing found: fewer or other words may help.".to_owned(),
        n => format!("{n} hits. `thread` with a point reads on; `show` with point, channel and position one item."),
    });
    // The cursor after the last row for which there was room is that of a smaller page.
    let next = match shown == page.hits.len() {
        true => page.next,
        false => store.search(query.limit(shown))?.next,
    };
    if let Some(next) = next {
        reply.next(format!("after={:?}", next.to_string()));
    }
    Ok(reply)
}

pub(crate) fn threads(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let mut query = ThreadQuery::new().limit(arguments.count("limit") + 1);
    if let Some(project) = arguments.text("project") {
        query = query.project(project);
    }
    if let Some(title) = arguments.text("title") {
        query = query.title_contains(title);
    }
    if let Some(name) = arguments.text("status") {
        query = query.status(status_named(name).ok_or_else(|| unknown_status(name))?);
    }
    if let Some(cursor) = arguments.text("after") {
        let invalid = |error: annals::store::StoreError| error.to_string();
        query.after = Some(cursor.parse().map_err(|e| ToolError::Invalid { field: "after", reason: invalid(e) })?);
    }
    let found = store.threads_with(query)?;
    let mut reply = HistoryReply::new();
    let (mut shown, mut last) = (0, None::<&ThreadInfo>);
    for info in found.iter().take(arguments.count("limit")) {
        if !reply.row(&thread_row(store, info)?) {
            break;
        }
        (shown, last) = (shown + 1, Some(info));
    }
    reply.fact(match shown {
        0 => "No thread is listed.".to_owned(),
        n => format!("{n} threads, the last active first. `thread` with an id reads its messages."),
    });
    if let Some(last) = last.filter(|_| shown < found.len()) {
        reply.next(format!("after={:?}", last.cursor().to_string()));
    }
    Ok(reply)
}

fn unknown_status(name: &str) -> ToolError {
    let known: Vec<&str> = annals::history::StatusKind::ALL.into_iter().map(status_name).collect();
    ToolError::Invalid { field: "status", reason: format!("{name:?} is none of {}", known.join(", ")) }
}

fn thread_row(store: &Store, info: &ThreadInfo) -> Result<String, ToolError> {
    let title = match info.title() {
        Some(title) => Some(title.to_owned()),
        // A damaged message does not end a listing.
        None => store.thread(info.id().as_str())?.at(info.head())?.first_words().unwrap_or_default(),
    };
    let title = one_line(&title.unwrap_or_default(), TITLE_CHARS);
    let project = info.facts.project.as_ref().map(|project| format!(", project {project}")).unwrap_or_default();
    let messages = info.counts.map(|counts| format!(", {} messages", counts.messages)).unwrap_or_default();
    let (id, status, at) = (info.id(), ThreadStatus::of(info), info.updated_at);
    Ok(format!("{id} ({status}{project}{messages}, {at}): {title}"))
}

pub(crate) fn talk(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let at = store.point(arguments.required("point")?)?;
    let channel = match arguments.text("channel") {
        Some(channel) => channel.into(),
        None => message_channel(&at)?,
    };
    items(&at, &channel, arguments.number("before"), arguments.count("limit"))
}

/// Returns the last items of a list before a position.
fn items(at: &Snapshot, channel: &str, before: Option<u64>, limit: usize) -> Result<HistoryReply, ToolError> {
    let range = match before {
        None => ItemRange::Tail(limit),
        Some(before) => ItemRange::Positions(before.saturating_sub(limit as u64), before),
    };
    let mut positions = Vec::new();
    at.visit_items(channel, range, |row| {
        positions.push(row.position);
        Ok(())
    })?;
    let values = at.items(channel, range)?;
    debug_assert_eq!(positions.len(), values.len(), "one read finds the items of the other");
    let mut reply = HistoryReply::new();
    // The newest items are those that must be shown.
    let (mut rows, mut room) = (Vec::new(), reply.room());
    for (position, value) in positions.iter().zip(&values).rev() {
        let row = format!("[{position}] {}", words(&value.to_json(), MESSAGE_CHARS));
        let chars = row.chars().count() + 1;
        if chars > room {
            break;
        }
        room -= chars;
        rows.push((*position, row));
    }
    rows.reverse();
    let first = rows.first().map(|(position, _)| *position);
    for (_, row) in &rows {
        reply.row(row);
    }
    reply.fact(format!(
        "{} of {} items of {channel} at {}, step {}. `show` with channel and position returns one whole.",
        rows.len(),
        at.len(channel)?,
        point_text(at)?,
        at.step()
    ));
    // Deleted items leave gaps, so that a page before may be empty and others before it not.
    let earlier = first.or_else(|| before.map(|before| before.saturating_sub(limit as u64)));
    if let Some(position) = earlier.filter(|position| *position > 0) {
        reply.next(format!("before={position} for earlier ones"));
    }
    Ok(reply)
}

pub(crate) fn show(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let at = store.point(arguments.required("point")?)?;
    let Some(channel) = arguments.text("channel") else { return state(&at) };
    let (position, key) = (arguments.number("position"), arguments.text("key"));
    let value = match (position, key) {
        (Some(_), Some(_)) => {
            let reason = "an item of a list has a position, an entry of a map a key".to_owned();
            return Err(ToolError::Invalid { field: "key", reason });
        }
        (Some(position), None) => at.items(channel, ItemRange::Positions(position, position + 1))?.pop(),
        (None, Some(key)) => at.entry(channel, key)?,
        (None, None) => at.get(channel)?,
    };
    let place = match (position, key) {
        (Some(position), _) => format!("{channel}[{position}]"),
        (None, Some(key)) => format!("entry {key:?} of {channel}"),
        (None, None) => channel.to_owned(),
    };
    let what = || format!("{place} has no value at this point; show without channel lists those that have");
    let value = value.ok_or_else(|| ToolError::NotFound { what: what() })?;
    let mut reply = HistoryReply::new();
    let text = match &value {
        Value::Str(text) => text.to_string(),
        value => format!("{:#}", value.to_json()),
    };
    reply.fact(format!("{place} at {}.", point_text(&at)?));
    reply.text_from(&text, arguments.count("offset"));
    Ok(reply)
}

/// Returns the channels at a point, each on one line.
fn state(at: &Snapshot) -> Result<HistoryReply, ToolError> {
    let mut reply = HistoryReply::new();
    let due: Vec<&str> = at.next().collect();
    let due = if due.is_empty() { String::new() } else { format!(", due next: {}", due.join(", ")) };
    let (step, source, made) = (at.step(), at.source(), at.created_at());
    reply.fact(format!("{}: step {step}, made by {source} at {made}{due}.", point_text(at)?));
    let mut left = 0;
    for channel in at.channels()? {
        let row = match at.tail(&channel, 1)?.pop() {
            Some(last) => format!("{channel}: {} items, the last: {}", at.len(&channel)?, brief(&last.to_json())),
            None => format!("{channel}: {}", brief(&at.get(&channel)?.unwrap_or(Value::Null).to_json())),
        };
        left += usize::from(left > 0 || !reply.row(&row));
    }
    if left > 0 {
        reply.fact(format!("{left} other channels are not listed: channel shows one of them."));
    }
    Ok(reply)
}
