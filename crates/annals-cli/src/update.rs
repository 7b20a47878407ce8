//! `annals update`: sets channels of a thread and appends to lists, in one commit, without a graph.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "parent"}`. A value is JSON; any other text stands for itself. An
//! object with a content and a type or a role is a message.

use annals::base::Value;
use annals::history::NewItem;
use annals::message::{Message, convert_to_messages};
use annals::store::Store;
use serde_json::json;

use crate::args;
use crate::digits;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};

pub(crate) fn run(args: &args::UpdateArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    if args.set.is_empty() && args.append.is_empty() && args.say.is_empty() {
        return Err(CommandFailure::usage("nothing to write").hint("name a channel: --set CHANNEL=VALUE"));
    }
    let thread = match args.create {
        true => store.thread(&args.thread)?,
        false => crate::point::thread(store, &args.thread)?,
    };
    let mut write = thread.write();
    for text in &args.set {
        let (channel, value) = assignment(text)?;
        write = write.set(channel, value);
    }
    for text in &args.append {
        let (channel, value) = assignment(text)?;
        write = write.append(channel, [item(text, value)?]);
    }
    let said: Vec<Message> = args.say.iter().map(|text| Message::human(text.as_str())).collect();
    if !said.is_empty() {
        write = write.append("messages", said);
    }
    if let Some(expected) = &args.on_head {
        write = write.on_head(Some(thread.at(expected)?.id()));
    }
    let id = write.commit()?;
    if out.is_json() {
        let parent = thread.at(id)?.record().parent.map(|parent| parent.to_string());
        let thread = thread.id().as_str();
        out.json(&json!({ "schema": 1, "thread": thread, "checkpoint": id.to_string(), "parent": parent }))?;
        return Ok(0);
    }
    out.line(format!("{}@{}", escape(thread.id().as_str()), thread.at(id)?.short_id()?))?;
    out.flush()?;
    output::note("annals undo moves the head back");
    Ok(0)
}

/// Returns a message if the value has the members of one, in the form of LangChain or OpenAI.
fn item(text: &str, value: Value) -> Result<NewItem, CommandFailure> {
    let is_message = value.get("content").is_some() && (value.get("type").is_some() || value.get("role").is_some());
    if !is_message {
        return Ok(value.into());
    }
    match convert_to_messages([value]).map(|mut messages| messages.pop()) {
        Ok(Some(message)) => Ok(message.into()),
        Ok(None) => Err(CommandFailure::usage(format!("{text}: no message"))),
        Err(error) => Err(CommandFailure::usage(format!("{text}: {error}"))),
    }
}

/// Reads `CHANNEL=VALUE`.
fn assignment(text: &str) -> Result<(&str, Value), CommandFailure> {
    let Some((channel, value)) = text.split_once('=').filter(|(channel, _)| !channel.is_empty()) else {
        return Err(CommandFailure::usage(format!("{text}: expected CHANNEL=VALUE")));
    };
    Ok((channel, digits::value(value)?))
}
