//! Differences and hits of a search as JSON, as the command prints it and the pages serve it.

use annals::base::Value;
use annals::history::{ChannelDiff, Diff, EntryDiff, FoldedMessages, ItemDiff, Snapshot};
use annals::store::StoreError;
use annals::store::search::SearchHit;
use serde_json::{Value as Json, json};

use crate::words::{place, pointer};

/// A member in which two values differ.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChangedMember<'v> {
    /// The path of the member, a JSON Pointer (RFC 6901).
    pub path: String,
    /// The value before; `None` if the member is new.
    pub before: Option<&'v Value>,
    /// The value after; `None` if the member is gone.
    pub after: Option<&'v Value>,
}

/// Returns the members in which two values differ, in order.
///
/// # Example
/// ```
/// use annals::base::Value;
/// use annals_view::members;
/// use serde_json::json;
///
/// let [before, after] = [json!({ "a/b": [1, 2] }), json!({ "a/b": [1] })].map(Value::from);
/// assert_eq!(members(&before, &after)[0].path, "/a~1b/1");
/// ```
pub fn members<'v>(before: &'v Value, after: &'v Value) -> Vec<ChangedMember<'v>> {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    found
}

fn compare<'v>(path: String, before: &'v Value, after: &'v Value, found: &mut Vec<ChangedMember<'v>>) {
    let mut both = |path: String, before: Option<&'v Value>, after: Option<&'v Value>| match (before, after) {
        (Some(before), Some(after)) => compare(path, before, after, found),
        _ => found.push(ChangedMember { path, before, after }),
    };
    match (before, after) {
        (Value::Map(old), Value::Map(new)) => {
            for (name, value) in old.iter() {
                both(format!("{path}/{}", pointer(name)), Some(value), new.get(name));
            }
            for (name, value) in new.iter().filter(|(name, _)| old.get(name).is_none()) {
                both(format!("{path}/{}", pointer(name)), None, Some(value));
            }
        }
        (Value::List(old), Value::List(new)) => {
            for at in 0..old.len().max(new.len()) {
                both(format!("{path}/{at}"), old.get(at), new.get(at));
            }
        }
        _ if before == after => {}
        _ => found.push(ChangedMember { path, before: Some(before), after: Some(after) }),
    }
}

/// Returns the document of a difference, as `annals diff --json` has it. `before` is `None` for the first checkpoint of
/// a thread.
pub fn difference_document(before: Option<&Snapshot>, after: &Snapshot, found: &Diff) -> Json {
    json!({
        "schema": 1,
        "before": before.map(place),
        "after": place(after),
        "unchanged": found.unchanged,
        "channels": found.channels.iter().map(channel_document).collect::<Vec<_>>(),
    })
}

/// Returns the document of the difference of a channel, as `annals diff --json` has it.
pub fn channel_document(channel: &ChannelDiff) -> Json {
    let name = &**channel.channel();
    match channel {
        ChannelDiff::Added { value, .. } => json!({ "channel": name, "kind": "added", "value": value.to_json() }),
        ChannelDiff::Removed { value, .. } => json!({ "channel": name, "kind": "removed", "value": value.to_json() }),
        ChannelDiff::Changed { before, after, .. } => {
            let member = |member: ChangedMember<'_>| sides(json!({ "path": member.path }), member.before, member.after);
            let members: Vec<Json> = members(before, after).into_iter().map(member).collect();
            let (before, after) = (before.to_json(), after.to_json());
            json!({ "channel": name, "kind": "changed", "before": before, "after": after, "members": members })
        }
        ChannelDiff::Items { items, .. } => {
            let mut document = json!({
                "channel": name, "kind": "items", "added": [], "removed": [], "changed": [], "moved": [],
            });
            for item in items {
                let (kind, item) = match item {
                    ItemDiff::Added { value, .. } => ("added", value.to_json()),
                    ItemDiff::Removed { value, .. } => ("removed", value.to_json()),
                    ItemDiff::Edited { before, after, .. } => ("changed", sides(json!({}), Some(before), Some(after))),
                    ItemDiff::Moved { from, to, after, .. } => {
                        ("moved", json!({ "from": from, "to": to, "item": after.to_json() }))
                    }
                    _ => continue,
                };
                if let Some(list) = document[kind].as_array_mut() {
                    list.push(item);
                }
            }
            document
        }
        ChannelDiff::Entries { entries, .. } => {
            let entry =
                |entry: &EntryDiff| sides(json!({ "key": entry.key }), entry.before.as_ref(), entry.after.as_ref());
            json!({ "channel": name, "kind": "entries", "entries": entries.iter().map(entry).collect::<Vec<_>>() })
        }
        ChannelDiff::Appended { text, .. } => json!({ "channel": name, "kind": "appended", "text": text }),
        _ => json!({ "channel": name, "kind": "other" }),
    }
}

/// Adds the values of both sides to an object; an absent one is left out.
fn sides(mut document: Json, before: Option<&Value>, after: Option<&Value>) -> Json {
    debug_assert!(document.is_object(), "the sides are members");
    for (side, value) in [("before", before), ("after", after)] {
        if let Some(value) = value {
            document[side] = value.to_json();
        }
    }
    document
}

/// Returns the messages of a list that are folded at a point; `None` if none are. Another value under the name of the
/// fold folds nothing.
///
/// # Errors
/// As [`Snapshot::folded`], but for [`StoreError::Corrupt`].
pub fn folded_messages(at: &Snapshot, channel: &str) -> Result<Option<FoldedMessages>, StoreError> {
    match at.folded(channel) {
        Err(StoreError::Corrupt { .. }) => Ok(None),
        folded => folded,
    }
}

/// Returns the document of folded messages, as `annals show --messages --json` has it.
pub fn folded_document(folded: &FoldedMessages) -> Json {
    let positions = folded.positions();
    let summary: Vec<Json> = folded.summary.iter().map(|message| Value::Map(message.to_map()).to_json()).collect();
    json!({ "from": positions.start, "to": positions.end, "summary": summary })
}

/// Returns the document of a hit, as `annals search --json` has it.
pub fn hit_document(hit: &SearchHit) -> Json {
    json!({
        "thread": hit.point.thread.as_str(),
        "namespace": hit.point.namespace.as_str(),
        "checkpoint": hit.point.checkpoint.to_string(),
        "created_at": hit.created_at.to_string(),
        "channel": &*hit.channel,
        "position": hit.position,
        "key": hit.key,
        "id": hit.id,
        "role": hit.role,
        "name": hit.name,
        "node": hit.node.as_deref(),
        "on_head": hit.on_head,
        "carried": hit.carried.as_ref().map(|carried| carried.checkpoint.to_string()),
        "folded": hit.folded,
        "partial": hit.partial,
        "snippet": hit.snippet.text,
        "matches": hit.snippet.matches.iter().map(|found| [found.start, found.end]).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_path() {
        let [before, after] =
            [json!({ "a/b": { "c": [1, 2] }, "x": 1 }), json!({ "a/b": { "c": [1] }, "y": 1 })].map(Value::from);
        let paths: Vec<String> = members(&before, &after).into_iter().map(|member| member.path).collect();
        assert_eq!(paths, ["/a~1b/c/1", "/x", "/y"]);
        assert_eq!(members(&Value::from(1), &Value::from(2)).len(), 1);
        assert!(members(&before, &before).is_empty());
    }
}
