//! `annals diff --patch`: the JSON Patch (RFC 6902) that makes the values after of the values before.
//!
//! The document that it changes is the member `values` of `annals show --json`, so each path begins with a channel. The
//! output is the patch alone; with `--json`:
//! `{"schema": 1, "before": {"thread", "checkpoint"} | null, "after": {..}, "patch": [..]}`. Without a point before,
//! the patch is one of an empty object. *Absent:* the operations `move`, `copy` and `test`.

use annals::history::{ChannelDiff, Diff, EntryDiff, ItemDiff, Patch, Snapshot};
use annals::store::StoreError;
use annals_view::words::pointer;
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;
use crate::output::Printer;
use crate::words;

/// Prints the patch, and returns the number of its operations.
pub(crate) fn print(
    before: Option<&Snapshot>,
    after: &Snapshot,
    found: &Diff,
    out: &mut Printer,
) -> Result<usize, CommandFailure> {
    let mut patch = Vec::new();
    for channel in &found.channels {
        of_channel(before, after, channel, &mut patch)?;
    }
    let operations = patch.len();
    if out.is_json() {
        let (before, after) = (before.map(words::place), words::place(after));
        out.json(&json!({ "schema": 1, "before": before, "after": after, "patch": patch }))?;
    } else {
        out.json(&Json::Array(patch))?;
    }
    Ok(operations)
}

/// Adds the operations of a channel.
fn of_channel(
    before: Option<&Snapshot>,
    after: &Snapshot,
    change: &ChannelDiff,
    patch: &mut Vec<Json>,
) -> Result<(), StoreError> {
    let channel = &**change.channel();
    let path = format!("/{}", pointer(channel));
    match change {
        ChannelDiff::Added { value, .. } => patch.push(add(&path, value.to_json())),
        ChannelDiff::Removed { .. } => patch.push(remove(&path)),
        ChannelDiff::Changed { before, after, .. } => patch.extend(below(&path, &Patch::between(before, after))),
        ChannelDiff::Items { items, .. } => of_items(&path, items, patch),
        // A map that was never written to, or lost its last entry, can be an empty list.
        ChannelDiff::Entries { entries, .. } if is_filled(before, channel)? && is_filled(Some(after), channel)? => {
            patch.extend(entries.iter().flat_map(|entry| of_entry(&path, entry)));
        }
        _ => {
            let value = after.get(channel)?.map(|value| value.to_json());
            patch.push(json!({ "op": "replace", "path": path, "value": value }));
        }
    }
    Ok(())
}

fn is_filled(at: Option<&Snapshot>, channel: &str) -> Result<bool, StoreError> {
    at.map_or(Ok(false), |at| Ok(at.len(channel)? > 0))
}

/// Adds the operations of a list: first items are removed, the last one first; then they are added, the first one
/// first, so that each index is that of the list after; then they are edited. An item that was moved is removed and
/// added.
fn of_items(path: &str, items: &[ItemDiff], patch: &mut Vec<Json>) {
    let (mut removed, mut added, mut edited) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        match item {
            ItemDiff::Removed { from, .. } => removed.push(*from),
            ItemDiff::Added { to, value } => added.push((*to, value)),
            ItemDiff::Moved { from, to, after, .. } => {
                removed.push(*from);
                added.push((*to, after));
            }
            ItemDiff::Edited { to, before, after, .. } => {
                edited.extend(below(&format!("{path}/{to}"), &Patch::between(before, after)));
            }
            _ => {}
        }
    }
    removed.sort_unstable_by(|a, b| b.cmp(a));
    added.sort_unstable_by_key(|(to, _)| *to);
    patch.extend(removed.iter().map(|from| remove(&format!("{path}/{from}"))));
    patch.extend(added.iter().map(|(to, value)| add(&format!("{path}/{to}"), value.to_json())));
    patch.extend(edited);
}

fn of_entry(path: &str, entry: &EntryDiff) -> Vec<Json> {
    let path = format!("{path}/{}", pointer(&entry.key));
    match (&entry.before, &entry.after) {
        (Some(before), Some(after)) => below(&path, &Patch::between(before, after)),
        (_, Some(after)) => vec![add(&path, after.to_json())],
        (_, None) => vec![remove(&path)],
    }
}

fn add(path: &str, value: Json) -> Json {
    json!({ "op": "add", "path": path, "value": value })
}

fn remove(path: &str) -> Json {
    json!({ "op": "remove", "path": path })
}

/// Returns the operations of a patch of the value at a path.
fn below(path: &str, patch: &Patch) -> Vec<Json> {
    let Json::Array(mut operations) = patch.to_json() else { return Vec::new() };
    for operation in &mut operations {
        let inner = operation["path"].as_str().unwrap_or_default();
        operation["path"] = json!(format!("{path}{inner}"));
    }
    operations
}
