//! The history of a value: the checkpoints that wrote it, each with the value of that time.

use annals::base::Value;
use annals::history::{Evolution, Snapshot};
use annals::store::ItemRange;
use annals::store::record::{ChannelRecord, ChannelValue};

use super::state::{line, part, writer};
use crate::failure::Refusal;
use crate::html::Html;
use crate::limits::VERSIONS_MAX;

/// Adds the values that a channel or a part of it had, the newest first. A whole list has none: its items have.
pub(super) fn section(html: &mut Html, at: &Snapshot, record: &ChannelRecord, members: &[&str]) -> Result<(), Refusal> {
    let Some((walk, rest)) = walk(at, record, members)? else { return Ok(()) };
    html.open("div", &[("class", "section")]).element("h2", &[], "History of this value").close("div");
    html.open("table", &[("class", "rows")]).open("tbody", &[]);
    let mut newer: Option<Option<Value>> = None;
    let mut rows = 0;
    for version in walk.take(4 * VERSIONS_MAX) {
        let version = version?;
        let value = version.value.and_then(|value| part(value, rest));
        // Another part of the value was written.
        if rows > 0 && newer.as_ref() == Some(&value) {
            continue;
        }
        rows += 1;
        html.open("tr", &[]).within("td", &[], |html| writer(html, at, &version.blame));
        html.element("td", &[("dir", "auto")], &value.as_ref().map_or_else(|| "(absent)".into(), line)).close("tr");
        newer = Some(value);
        if rows == VERSIONS_MAX {
            break;
        }
    }
    html.close("tbody").close("table");
    Ok(())
}

/// Returns the versions to walk, and the members below their values.
fn walk<'m>(
    at: &Snapshot,
    record: &ChannelRecord,
    members: &'m [&'m str],
) -> Result<Option<(Evolution, &'m [&'m str])>, Refusal> {
    let channel = &*record.channel;
    let Some((first, rest)) = members.split_first() else {
        let is_list = record.value == ChannelValue::Items;
        return Ok((!is_list).then(|| (at.evolution(channel), members)));
    };
    if record.value != ChannelValue::Items {
        return Ok(Some((at.evolution(channel), members)));
    }
    let Ok(position) = first.parse::<u64>() else { return Ok(Some((at.entry_evolution(channel, first), rest))) };
    let item = at.items(channel, ItemRange::Positions(position, position.saturating_add(1)))?.into_iter().next();
    match item.as_ref().and_then(|item| item.get("id")).and_then(Value::as_str) {
        Some(id) => Ok(Some((at.item_evolution(channel, id)?, rest))),
        None => Ok(None),
    }
}
