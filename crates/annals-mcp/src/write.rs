//! The tools that write, offered only if the server may: append, fork, note.

use annals::base::{CheckpointId, Value};
use annals::history::Thread;
use annals::message::Message;
use annals::store::Store;

use crate::arguments::ToolArguments;
use crate::error::ToolError;
use crate::names::point_text;
use crate::reply::HistoryReply;

/// The actor that operations of the server have.
const ACTOR: &str = "mcp";
/// The channel of notes.
const NOTES: &str = "notes";

pub(crate) fn append(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let thread = writable(store, arguments, arguments.flag("create"))?;
    let text = arguments.required("text")?;
    let message = match arguments.required("role")? {
        "human" => Message::human(text),
        "system" => Message::system(text),
        _ => Message::ai(text),
    };
    let checkpoint = thread.append("messages", [message])?;
    written(&thread, checkpoint, "The message is stored")
}

pub(crate) fn note(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let thread = writable(store, arguments, false)?;
    let checkpoint = thread.append(NOTES, [Value::from(arguments.required("text")?)])?;
    written(&thread, checkpoint, "The note is stored")
}

pub(crate) fn fork(store: &Store, arguments: &ToolArguments<'_>) -> Result<HistoryReply, ToolError> {
    let (from, name) = (store.point(arguments.required("point")?)?, arguments.required("name")?);
    if store.thread(name)?.head()?.is_some() {
        return Err(ToolError::ThreadExists { thread: name.to_owned() });
    }
    let fork = from.fork_to(name)?;
    let head = fork.head()?.ok_or_else(|| ToolError::NotFound { what: format!("thread {name} was deleted") })?;
    let mut reply = HistoryReply::new();
    reply.fact(format!("Forked from {}; the new point is {}.", point_text(&from)?, point_text(&head)?));
    Ok(reply)
}

/// Returns the thread of a write. Its id must be whole: the beginning of one could be that of another tomorrow.
fn writable(store: &Store, arguments: &ToolArguments<'_>, may_create: bool) -> Result<Thread, ToolError> {
    let name = arguments.required("thread")?;
    let thread = store.thread(name)?.by(ACTOR);
    match thread.head()? {
        None if !may_create => {
            Err(ToolError::NotFound { what: format!("thread {name} is not in this store; nothing was written") })
        }
        _ => Ok(thread),
    }
}

fn written(thread: &Thread, checkpoint: CheckpointId, what: &str) -> Result<HistoryReply, ToolError> {
    let mut reply = HistoryReply::new();
    reply.fact(format!("{what}; the new point is {}.", point_text(&thread.at(checkpoint)?)?));
    Ok(reply)
}
