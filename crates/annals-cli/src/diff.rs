//! `annals diff`: compares the states at two points.
//!
//! One point is compared with its parent; a range `A..B` is two points. Exit code 1 with `--exit-code` if the states
//! differ; `--messages` is in [`crate::message_diff`], `--patch` in [`crate::state_patch`].
//!
//! JSON: `{"schema": 1, "before": {"thread", "checkpoint"} | null, "after": {..}, "unchanged": n, "channels": [..]}`
//! with one of `{"channel", "kind": "added" | "removed", "value"}`, `{"channel", "kind": "changed", "before", "after",
//! "members": [{"path", "before"?, "after"?}]}`, `{"channel", "kind": "items", "added": [..], "removed": [..],
//! "changed": [{"before", "after"}], "moved": [{"from", "to", "item"}]}`, `{"channel", "kind": "entries", "entries":
//! [{"key", "before"?, "after"?}]}`, `{"channel", "kind": "appended", "text"}`.

use annals::base::Value;
use annals::history::{ChannelDiff, Diff, ItemDiff, Snapshot, diff};
use annals::store::Store;
use annals_view::{difference_document, members};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::lines::{DiffLine, apart, lines};
use crate::message_diff;
use crate::output::{Printer, columns, count, cut, escape, safe_lines};
use crate::point::{resolve, resolve_range};
use crate::state_patch;
use crate::words::{brief, item};

/// The number of changed lines, members or items of one channel that are shown; JSON has all.
const SHOWN_MAX: usize = 20;
/// The number of characters of a changed line that are shown.
const LINE_CHARS: usize = 110;

pub(crate) fn run(args: &args::DiffArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let (before, after) = match &args.after {
        Some(after) => (Some(resolve(store, &args.before)?), resolve(store, after)?),
        None => match resolve_range(store, &args.before)? {
            Some((before, after)) => (Some(before), after),
            None => {
                let after = resolve(store, &args.before)?;
                (after.parent()?, after)
            }
        },
    };
    let found = match &before {
        Some(before) => diff(before, &after)?,
        None => everything(&after)?,
    };
    let before = before.as_ref();
    let differences = if args.messages {
        message_diff::print(before, &after, &found, out)?
    } else if args.patch {
        state_patch::print(before, &after, &found, out)?
    } else if out.is_json() {
        out.json(&difference_document(before, &after, &found))?;
        found.channels.len()
    } else {
        print(before, &after, &found, args.stat, out)?;
        found.channels.len()
    };
    Ok(u8::from(args.exit_code && differences > 0))
}

/// Prints the differences between two points.
pub(crate) fn compare(before: &Snapshot, after: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    print(Some(before), after, &diff(before, after)?, false, out)
}

/// Returns the difference of a first checkpoint, which has no parent: all its channels are new.
fn everything(after: &Snapshot) -> Result<Diff, CommandFailure> {
    let added = |(channel, value): (String, Value)| ChannelDiff::Added { channel: channel.into(), value };
    Ok(Diff::new(after.values()?.into_iter().map(added).collect(), 0))
}

fn print(
    before: Option<&Snapshot>,
    after: &Snapshot,
    found: &Diff,
    stat: bool,
    out: &mut Printer,
) -> Result<(), CommandFailure> {
    if stat {
        let rows = found.channels.iter().map(|channel| vec![escape(channel.channel()).into_owned(), figures(channel)]);
        for line in columns(&rows.collect::<Vec<_>>()) {
            out.line(line)?;
        }
        out.line(out.dim(&unchanged(found)))?;
        return Ok(());
    }
    header(before, after, out)?;
    for channel in &found.channels {
        out.line(format!("{}: {}", out.bold(&escape(channel.channel())), figures(channel)))?;
        body(channel, out)?;
    }
    out.line(out.dim(&unchanged(found)))?;
    Ok(())
}

/// Prints the two points.
pub(crate) fn header(before: Option<&Snapshot>, after: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
    let name = |at: &Snapshot| -> Result<String, CommandFailure> {
        Ok(format!("{}@{} (step {})", escape(at.point().thread.as_str()), at.short_id()?, at.step()))
    };
    let before = before.map(name).transpose()?.unwrap_or_else(|| "nothing".into());
    out.line(out.removed(&format!("--- {before}")))?;
    out.line(out.added(&format!("+++ {}", name(after)?)))?;
    Ok(())
}

fn unchanged(found: &Diff) -> String {
    match (found.channels.len(), found.unchanged) {
        (0, _) => "no differences".into(),
        (_, n) => format!("{} unchanged", count(n, "channel")),
    }
}

/// Returns the number of changes of a channel.
fn figures(channel: &ChannelDiff) -> String {
    match channel {
        ChannelDiff::Added { .. } => "added".into(),
        ChannelDiff::Removed { .. } => "removed".into(),
        ChannelDiff::Changed { before, after, .. } => match (before, after) {
            (Value::Str(a), Value::Str(b)) if a.contains('\n') || b.contains('\n') => {
                let all = lines(a, b);
                let removed = all.iter().filter(|line| matches!(line, DiffLine::Removed(_))).count();
                let added = all.iter().filter(|line| matches!(line, DiffLine::Added(_))).count();
                format!("{} removed, {added} added", count(removed, "line"))
            }
            (Value::List(_) | Value::Map(_), _) => {
                format!("{} changed", count(members(before, after).len(), "member"))
            }
            _ => "changed".into(),
        },
        ChannelDiff::Items { items, .. } => {
            let ChangedItems { added, removed, changed, moved } = ChangedItems::of(items);
            let parts = [
                (added.len(), "added"),
                (removed.len(), "removed"),
                (changed.len(), "changed"),
                (moved.len(), "moved"),
            ];
            let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        ChannelDiff::Entries { entries, .. } => {
            let added = entries.iter().filter(|entry| entry.before.is_none()).count();
            let removed = entries.iter().filter(|entry| entry.after.is_none()).count();
            let parts = [(added, "added"), (removed, "removed"), (entries.len() - added - removed, "changed")];
            let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        ChannelDiff::Appended { text, .. } => format!("{} appended", count(text.len(), "byte")),
        _ => "differs".into(),
    }
}

/// The items of a list that differ, by kind.
#[derive(Default)]
struct ChangedItems<'d> {
    added: Vec<&'d Value>,
    removed: Vec<&'d Value>,
    /// Before and after.
    changed: Vec<(&'d Value, &'d Value)>,
    /// The indexes before and after, and the item after.
    moved: Vec<(usize, usize, &'d Value)>,
}

impl<'d> ChangedItems<'d> {
    fn of(items: &'d [ItemDiff]) -> Self {
        let mut all = Self::default();
        for item in items {
            match item {
                ItemDiff::Added { value, .. } => all.added.push(value),
                ItemDiff::Removed { value, .. } => all.removed.push(value),
                ItemDiff::Edited { before, after, .. } => all.changed.push((before, after)),
                ItemDiff::Moved { from, to, before, after } => {
                    all.moved.push((*from, *to, after));
                    if before != after {
                        all.changed.push((before, after));
                    }
                }
                _ => {}
            }
        }
        all
    }
}

fn body(channel: &ChannelDiff, out: &mut Printer) -> Result<(), CommandFailure> {
    let minus = |json: &Json| out.removed(&format!("  - {}", item(json)));
    let plus = |json: &Json| out.added(&format!("  + {}", item(json)));
    let mut shown: Vec<String> = Vec::new();
    match channel {
        ChannelDiff::Added { value, .. } => shown.push(plus(&value.to_json())),
        ChannelDiff::Removed { value, .. } => shown.push(minus(&value.to_json())),
        ChannelDiff::Changed { before, after, .. } => change(before, after, out, &mut shown),
        ChannelDiff::Items { items, .. } => {
            let ChangedItems { added, removed, changed, moved } = ChangedItems::of(items);
            shown.extend(removed.iter().map(|value| minus(&value.to_json())));
            for (before, after) in changed {
                let id = before.get("id").and_then(Value::as_str).unwrap_or("?");
                for member in members(before, after) {
                    pair(
                        &format!("{}{}", escape(id), escape(&member.path)),
                        member.before,
                        member.after,
                        out,
                        &mut shown,
                    );
                }
            }
            let place =
                |(from, to, value): &(usize, usize, &Value)| format!("  > [{from} to {to}] {}", item(&value.to_json()));
            shown.extend(moved.iter().map(place));
            shown.extend(added.iter().map(|value| plus(&value.to_json())));
        }
        ChannelDiff::Entries { entries, .. } => {
            for entry in entries {
                let (before, after) = (entry.before.as_ref(), entry.after.as_ref());
                pair(&format!("/{}", escape(&entry.key)), before, after, out, &mut shown);
            }
        }
        ChannelDiff::Appended { text, .. } => shown.push(plus(&Json::from(text.as_str()))),
        _ => {}
    }
    let more = shown.len().saturating_sub(SHOWN_MAX);
    for line in shown.into_iter().take(SHOWN_MAX) {
        out.line(line)?;
    }
    if more > 0 {
        out.line(out.dim(&format!("  ... {more} more lines; --json has all")))?;
    }
    Ok(())
}

/// Adds the change of one value: texts by line, objects by member, all else whole.
fn change(before: &Value, after: &Value, out: &Printer, shown: &mut Vec<String>) {
    let safe = |line: &str| cut(&safe_lines(line).next().unwrap_or_default(), LINE_CHARS).into_owned();
    match (before, after) {
        (Value::Str(old), Value::Str(new)) if old.contains('\n') || new.contains('\n') => {
            for line in lines(old, new) {
                match line {
                    DiffLine::Same(_) => {}
                    DiffLine::Removed(line) => shown.push(out.removed(&format!("  - {}", safe(line)))),
                    DiffLine::Added(line) => shown.push(out.added(&format!("  + {}", safe(line)))),
                }
            }
        }
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            for member in members(before, after) {
                pair(&escape(&member.path), member.before, member.after, out, shown);
            }
        }
        _ => shown.push(format!(
            "  {} -> {}",
            out.removed(&brief(&before.to_json())),
            out.added(&brief(&after.to_json()))
        )),
    }
}

/// Adds a member that differs; of two texts, from their first difference on.
fn pair(path: &str, before: Option<&Value>, after: Option<&Value>, out: &Printer, shown: &mut Vec<String>) {
    let brief_of = |value: &Value| brief(&value.to_json());
    let (old, new) = match (before, after) {
        (Some(Value::Str(old)), Some(Value::Str(new))) => {
            let (old, new) = apart(old, new);
            (Some(brief(&json!(old))), Some(brief(&json!(new))))
        }
        _ => (before.map(brief_of), after.map(brief_of)),
    };
    shown.extend(old.map(|old| out.removed(&format!("  - {path}: {old}"))));
    shown.extend(new.map(|new| out.added(&format!("  + {path}: {new}"))));
}
