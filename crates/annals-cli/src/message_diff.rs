//! `annals diff --messages`: the messages that were added, edited, removed or moved, one line each.
//!
//! JSON: `{"schema": 1, "before": {"thread", "checkpoint"} | null, "after": {..}, "messages": [{"channel", "change":
//! "added" | "edited" | "removed" | "moved", "id", "from", "to", "before", "after"}]}`. `from` and `to` are the indexes
//! in the list before and after, and `before` and `after` the messages; the members of the side on which the list lacks
//! the message are null. A message that was moved may be edited as well. Messages are told apart by their id, those
//! without one by their content.

use std::collections::{HashMap, VecDeque};

use annals::base::Value;
use annals::history::{ChannelDiff, Diff, ItemDiff, Snapshot};
use serde_json::{Value as Json, json};

use crate::diff::header;
use crate::errors::CommandFailure;
use crate::output::{Printer, columns, escape};
use crate::words::{self, is_message, message};

/// The cells of the first words of a message.
const WORDS_CELLS: usize = 80;

/// A message at an index of its list.
type PlacedMessage = (usize, Json);

/// A message that differs.
struct MessageChange<'d> {
    channel: &'d str,
    is_moved: bool,
    before: Option<PlacedMessage>,
    after: Option<PlacedMessage>,
}

/// Prints the messages that differ, and returns their number.
pub(crate) fn print(
    before: Option<&Snapshot>,
    after: &Snapshot,
    found: &Diff,
    out: &mut Printer,
) -> Result<usize, CommandFailure> {
    let changes: Vec<MessageChange<'_>> = found.channels.iter().flat_map(changes).collect();
    if out.is_json() {
        let messages: Vec<Json> = changes.iter().map(MessageChange::document).collect();
        let (before, after) = (before.map(words::place), words::place(after));
        out.json(&json!({ "schema": 1, "before": before, "after": after, "messages": messages }))?;
        return Ok(changes.len());
    }
    header(before, after, out)?;
    let cells: Vec<Vec<String>> = changes.iter().map(MessageChange::cells).collect();
    for (change, line) in changes.iter().zip(columns(&cells)) {
        out.row(match (&change.before, &change.after) {
            (None, _) => out.added(&line),
            (_, None) => out.removed(&line),
            _ => line,
        })?;
    }
    if changes.is_empty() {
        out.line(out.dim("no message differs"))?;
    }
    Ok(changes.len())
}

/// Returns the messages of a channel that differ: by index before if they were removed, then by index after.
fn changes(channel: &ChannelDiff) -> Vec<MessageChange<'_>> {
    let name = &**channel.channel();
    let change = |is_moved, before, after| MessageChange { channel: name, is_moved, before, after };
    let placed = |at: usize, value: &Value| Some((at, value.to_json()));
    let mut all = match channel {
        ChannelDiff::Items { items, .. } => items
            .iter()
            .filter_map(|item| match item {
                ItemDiff::Removed { from, value } => Some(change(false, placed(*from, value), None)),
                ItemDiff::Added { to, value } => Some(change(false, None, placed(*to, value))),
                ItemDiff::Edited { from, to, before, after } => {
                    Some(change(false, placed(*from, before), placed(*to, after)))
                }
                ItemDiff::Moved { from, to, before, after } => {
                    Some(change(true, placed(*from, before), placed(*to, after)))
                }
                _ => None,
            })
            .collect(),
        ChannelDiff::Added { value, .. } => paired(name, Vec::new(), listed(value)),
        ChannelDiff::Removed { value, .. } => paired(name, listed(value), Vec::new()),
        // A channel of one value that is a list.
        ChannelDiff::Changed { before, after, .. } => paired(name, listed(before), listed(after)),
        _ => Vec::new(),
    };
    all.retain(|change| {
        let either = change.after.as_ref().or(change.before.as_ref());
        either.is_some_and(|(_, item)| is_message(item))
    });
    all
}

/// Returns the items of a list; none of another value.
fn listed(value: &Value) -> Vec<PlacedMessage> {
    let items = value.as_list().unwrap_or_default();
    items.iter().map(Value::to_json).enumerate().collect()
}

/// Compares two whole lists. A message is moved if one that was before it comes after it.
fn paired<'d>(channel: &'d str, before: Vec<PlacedMessage>, after: Vec<PlacedMessage>) -> Vec<MessageChange<'d>> {
    let key = |item: &Json| match item.get("id").and_then(Json::as_str) {
        Some(id) => (true, id.to_owned()),
        None => (false, item.to_string()),
    };
    let mut twins: HashMap<(bool, String), VecDeque<PlacedMessage>> = HashMap::new();
    for (at, item) in after {
        twins.entry(key(&item)).or_default().push_back((at, item));
    }
    let (mut removed, mut kept, mut last) = (Vec::new(), Vec::new(), None);
    for (at, item) in before {
        match twins.get_mut(&key(&item)).and_then(VecDeque::pop_front) {
            None => removed.push(MessageChange { channel, is_moved: false, before: Some((at, item)), after: None }),
            Some((to, new)) => {
                let is_moved = last.is_some_and(|last| to < last);
                last = last.max(Some(to));
                if is_moved || new != item {
                    let (before, after) = (Some((at, item)), Some((to, new)));
                    kept.push(MessageChange { channel, is_moved, before, after });
                }
            }
        }
    }
    let added = twins.into_values().flatten();
    kept.extend(added.map(|new| MessageChange { channel, is_moved: false, before: None, after: Some(new) }));
    kept.sort_by_key(|change| change.after.as_ref().map(|(to, _)| *to));
    removed.extend(kept);
    removed
}

impl MessageChange<'_> {
    /// Returns the change as a sign and as a word.
    fn kind(&self) -> (&'static str, &'static str) {
        match (&self.before, &self.after) {
            (None, _) => ("+", "added"),
            (_, None) => ("-", "removed"),
            _ if self.is_moved => (">", "moved"),
            _ => ("~", "edited"),
        }
    }

    /// Returns the message after the change, or the one that was removed.
    fn newest(&self) -> Option<&Json> {
        self.after.as_ref().or(self.before.as_ref()).map(|(_, item)| item)
    }

    fn id(&self) -> Option<&str> {
        self.newest()?.get("id")?.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let at = |placed: &Option<PlacedMessage>| placed.as_ref().map(|(at, _)| *at);
        let index = match (at(&self.before), at(&self.after)) {
            (Some(from), Some(to)) if from != to => format!("[{from} to {to}]"),
            (from, to) => to.or(from).map(|at| format!("[{at}]")).unwrap_or_default(),
        };
        let channel = escape(self.channel);
        let place = self.id().map_or_else(|| channel.to_string(), |id| format!("{channel}#{}", escape(id)));
        let is_edited =
            self.is_moved && self.before.as_ref().map(|one| &one.1) != self.after.as_ref().map(|one| &one.1);
        let words = self.newest().map(|item| message(item, WORDS_CELLS)).unwrap_or_default();
        let words = if is_edited { format!("{words} (edited)") } else { words };
        vec![self.kind().0.to_owned(), index, place, words]
    }

    fn document(&self) -> Json {
        json!({
            "channel": self.channel,
            "change": self.kind().1,
            "id": self.id(),
            "from": self.before.as_ref().map(|(at, _)| at),
            "to": self.after.as_ref().map(|(at, _)| at),
            "before": self.before.as_ref().map(|(_, item)| item),
            "after": self.after.as_ref().map(|(_, item)| item),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn list(items: &[(&str, &str)]) -> Value {
        let one = |(id, text): &(&str, &str)| {
            let mut item = json!({ "type": "human", "content": text });
            if !id.is_empty() {
                item["id"] = json!(id);
            }
            Value::from(item)
        };
        Value::List(items.iter().map(one).collect())
    }

    fn of(change: &ChannelDiff) -> Vec<String> {
        changes(change).iter().map(|change| change.cells().join(" ")).collect()
    }

    #[test]
    fn messages_of_a_list_in_one_value_are_paired_by_id() {
        let channel: Arc<str> = "chat".into();
        let before = list(&[("a", "one"), ("b", "two"), ("c", "three"), ("", "four")]);
        let after = list(&[("b", "two"), ("a", "uno"), ("", "four"), ("d", "five")]);
        let changed = ChannelDiff::Changed { channel: channel.clone(), before: before.clone(), after };
        assert_eq!(
            of(&changed),
            [
                "- [2] chat#c human  three",
                "> [1 to 0] chat#b human  two",
                "~ [0 to 1] chat#a human  uno",
                "+ [3] chat#d human  five",
            ]
        );
        let added = ChannelDiff::Added { channel: channel.clone(), value: before.clone() };
        assert_eq!(of(&added)[3], "+ [3] chat human  four");
        let removed = ChannelDiff::Removed { channel: channel.clone(), value: before };
        assert!(of(&removed).len() == 4 && of(&removed)[0] == "- [0] chat#a human  one");
        let plain = ChannelDiff::Added { channel, value: Value::from(json!([1, { "id": "a" }])) };
        assert!(of(&plain).is_empty(), "these are not messages");
    }
}
