//! `annals update`: sets channels of a thread and appends to lists, in one commit, without a graph.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "parent"}`. A value is JSON; any other text stands for itself. An
//! object with a content and a type or a role is a message. `--set plan.city=Thun` sets a member of the value of
//! `plan`, as the other commands read that text.

use annals::base::{CheckpointId, Map, Value};
use annals::history::{NewItem, Snapshot, Thread, ThreadWrite};
use annals::message::{Message, convert_to_messages};
use annals::store::Store;
use annals::store::record::ChannelValue;
use serde_json::json;

use crate::args;
use crate::digits;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, escape};
use crate::path::ValuePath;

pub(crate) fn run(args: &args::UpdateArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    if args.set.is_empty() && args.append.is_empty() && args.say.is_empty() {
        return Err(CommandFailure::usage("nothing to write").hint("name a channel: --set CHANNEL=VALUE"));
    }
    let thread = match args.create {
        true => store.thread(&args.thread)?,
        false => crate::point::thread(store, &args.thread)?,
    };
    let mut write = with_sets(&thread, &args.set)?;
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

/// Sets channels, or members of their values, in one commit.
pub(crate) fn set_channels(thread: &Thread, sets: &[String]) -> Result<(), CommandFailure> {
    with_sets(thread, sets)?.commit()?;
    Ok(())
}

/// Begins a write of the values that `--set` gives.
fn with_sets(thread: &Thread, texts: &[String]) -> Result<ThreadWrite, CommandFailure> {
    let mut write = thread.write();
    let mut sets = NewValues::of(thread)?;
    for text in texts {
        let (name, value) = assignment(text)?;
        sets.set(name, value)?;
    }
    if let Some(read) = sets.read {
        // A member is set in the value that was read: another writer must not have changed it.
        write = write.on_head(Some(read));
    }
    for (channel, value) in sets.values {
        write = write.set(&channel, value);
    }
    for (channel, key, value) in sets.entries {
        write = write.put(&channel, &key, value);
    }
    Ok(write)
}

/// Verifies the values that `--set` gives against a checkpoint, without a write.
pub(crate) fn verify_sets(at: &Snapshot, texts: &[String]) -> Result<(), CommandFailure> {
    let mut sets = NewValues { head: Some(at.clone()), values: Vec::new(), entries: Vec::new(), read: None };
    texts.iter().try_for_each(|text| {
        let (name, value) = assignment(text)?;
        sets.set(name, value)
    })
}

/// The values that `--set` gives to channels.
struct NewValues {
    head: Option<Snapshot>,
    values: Vec<(String, Value)>,
    /// The entries of map channels.
    entries: Vec<(String, String, Value)>,
    /// The head, if a value was read there.
    read: Option<CheckpointId>,
}

impl NewValues {
    fn of(thread: &Thread) -> Result<Self, CommandFailure> {
        Ok(Self { head: thread.head()?, values: Vec::new(), entries: Vec::new(), read: None })
    }

    /// Sets a channel, or the member of a channel that a path such as `plan.city` names.
    fn set(&mut self, name: &str, value: Value) -> Result<(), CommandFailure> {
        if self.values.iter().any(|(channel, _)| channel == name) || !name.contains(['.', '[', '#', '/']) {
            self.values.push((name.to_owned(), value));
            return Ok(());
        }
        let known = |(channel, _): &(String, Value)| {
            name.strip_prefix(channel.as_str()).is_some_and(|rest| rest.starts_with(['.', '[', '/']))
        };
        let set_before = self.values.iter().rposition(known);
        let path = match (set_before, &self.head) {
            (Some(at), _) => ValuePath::below(&self.values[at].0, name)?,
            (None, Some(head)) => ValuePath::read(head, name).map_err(|failure| match failure {
                CommandFailure::Error { code: "channel_not_found", .. } => without_value(name),
                failure => failure,
            })?,
            (None, None) => return Err(without_value(name)),
        };
        if path.is_channel() {
            self.values.push((path.channel, value));
            return Ok(());
        }
        let refused = |reason: &str| CommandFailure::usage(format!("{name}: {reason}"));
        if path.item.is_some() {
            return Err(refused("an item of a list is replaced by --append with its id"));
        }
        if let Some(at) = set_before {
            return set_member(&mut self.values[at].1, &path.members, value).map_err(|reason| refused(&reason));
        }
        let Some(head) = &self.head else { return Err(without_value(name)) };
        self.read = Some(head.id());
        let Some((first, rest)) = path.members.split_first() else { return Ok(()) };
        match stored_as(head, &path.channel)? {
            StoredAs::Value => {
                let mut whole = head.get(&path.channel)?.unwrap_or_default();
                set_member(&mut whole, &path.members, value).map_err(|reason| refused(&reason))?;
                self.values.push((path.channel, whole));
            }
            StoredAs::Map => {
                let mut entry = match rest.is_empty() {
                    true => Value::Null,
                    false => head.entry(&path.channel, first)?.unwrap_or_else(|| Value::Map(Map::new())),
                };
                set_member(&mut entry, rest, value).map_err(|reason| refused(&reason))?;
                self.entries.push((path.channel, first.clone(), entry));
            }
            StoredAs::Items => return Err(refused("the channel is a list, whose items are added by --append")),
        }
        Ok(())
    }
}

/// How a channel is stored.
enum StoredAs {
    Value,
    Map,
    Items,
}

fn stored_as(head: &Snapshot, channel: &str) -> Result<StoredAs, CommandFailure> {
    let state = head.state_record()?;
    let value = state.channels.iter().find(|stored| *stored.channel == *channel).map(|stored| &stored.value);
    if value.is_none_or(|value| *value != ChannelValue::Items) {
        return Ok(StoredAs::Value);
    }
    Ok(match head.get(channel)? {
        Some(Value::Map(_)) => StoredAs::Map,
        _ => StoredAs::Items,
    })
}

/// Returns the failure of a path whose channel has no value: a channel of that name would look like a member.
fn without_value(name: &str) -> CommandFailure {
    let end = name.find(['.', '[', '#', '/']).unwrap_or(name.len());
    let (channel, member) = (&name[..end], name[end..].trim_start_matches(['.', '[', '#', '/']).trim_end_matches(']'));
    let message = format!("{name} names a part of the channel {channel}, which has no value");
    CommandFailure::not_found("channel_not_found", message)
        .hint(format!("set the whole channel: --set '{channel}={{\"{member}\": ..}}'"))
}

/// Sets a member of a value; objects on the way are made. An error is the reason.
fn set_member(value: &mut Value, members: &[String], new: Value) -> Result<(), String> {
    let Some((first, rest)) = members.split_first() else {
        *value = new;
        return Ok(());
    };
    match value {
        Value::Map(map) => set_member(map.or_insert_with(first.clone(), || Value::Null), rest, new),
        Value::Null => {
            let mut map = Map::new();
            set_member(map.or_insert_with(first.clone(), || Value::Null), rest, new)?;
            *value = Value::Map(map);
            Ok(())
        }
        Value::List(items) => {
            let count = items.len();
            match first.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                Some(item) => set_member(item, rest, new),
                None => Err(format!("{first} is not an index of a list of {count} items")),
            }
        }
        _ => Err(format!("{first} is a member of a value that is not an object")),
    }
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
    Ok((channel, digits::value(channel, value)?))
}
