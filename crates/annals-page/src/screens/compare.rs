//! The difference of two points or branches side by side, with their last common ancestor.

use annals::base::Value;
use annals::history::{ChannelDiff, Diff, EntryDiff, ItemDiff, Patch, Snapshot, diff};
use annals_view::words::{ago, brief, count, shortened};
use annals_view::{difference_document, members};
use serde_json::{Value as Json, json};
use similar::ChangeTag;

use super::heading::{heading, tabs};
use super::state::line;
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address::{self, point_text};
use crate::edits::{changes, has_lines};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::DIFF_ROWS_MAX;
use crate::values::kind;

/// Lines around a changed one that are shown.
const AROUND: usize = 2;

/// Goes to the difference of two points that a form names.
pub(super) fn choose(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let field = |name| screen.query.get(name).map(str::trim).filter(|text| !text.is_empty());
    let (Some(a), Some(b)) = (field("a"), field("b")) else {
        let mut html = Html::new();
        html.element("h1", &[], "Compare");
        form(&mut html, field("a").unwrap_or_default(), field("b").unwrap_or_default());
        return Ok(View::new("compare", html).into());
    };
    let (before, after) = (screen.point(a)?, screen.point(b)?);
    Ok(Shown::To(address::diff(&point_text(&before), &point_text(&after))))
}

fn form(html: &mut Html, a: &str, b: &str) {
    html.within("form", &[("action", "/diff"), ("class", "facets")], |html| {
        for (name, label, value) in [("a", "before", a), ("b", "after", b)] {
            html.within("label", &[], |html| {
                html.text(label).literal(" ").open("input", &[("name", name), ("value", value), ("size", "40")]);
            });
        }
        html.element("button", &[], "compare");
    });
}

pub(super) fn show(screen: &Screen<'_>, text: &str) -> Result<Shown, Refusal> {
    let (before, after) = match screen.store.point(text) {
        Ok(after) => (after.parent()?, after),
        Err(_) if text.contains("..") => {
            let (before, after) = screen.store.range(text)?;
            (Some(before), after)
        }
        Err(error) => return Err(error.into()),
    };
    let found = match &before {
        Some(before) => diff(before, &after)?,
        None => {
            let added = |(channel, value): (String, Value)| ChannelDiff::Added { channel: channel.into(), value };
            Diff::new(after.values()?.into_iter().map(added).collect(), 0)
        }
    };
    if screen.query.get("patch").is_some() {
        return Ok(Shown::Json(patches(&found)));
    }
    if screen.json {
        return Ok(Shown::Json(difference_document(before.as_ref(), &after, &found)));
    }
    let mut html = Html::new();
    let (thread, is_same) =
        (screen.thread(&after)?, before.as_ref().is_none_or(|before| before.point().thread == after.point().thread));
    if is_same {
        heading(&mut html, &thread, &thread.info()?, &after, &BranchTree::read(&thread)?)?;
        tabs(&mut html, &after, "diff");
    } else {
        html.element("h1", &[], "Difference");
    }
    html.open("table", &[("class", "diff")]).open("thead", &[]).open("tr", &[]).open("th", &[]);
    common(&mut html, before.as_ref(), &after)?;
    html.close("th");
    side(&mut html, before.as_ref(), "");
    side(&mut html, Some(&after), "own");
    html.close("tr").close("thead");
    for channel in &found.channels {
        channel_part(&mut html, channel, before.as_ref(), &after);
    }
    html.close("table");
    let same = match found.channels.len() {
        0 => "no differences".to_owned(),
        _ => format!("= {} unchanged", count(found.unchanged as u64, "channel")),
    };
    html.classed("p", "dim next", &same);
    if let Some(before) = &before {
        html.open("p", &[("class", "facts")]).open("span", &[]);
        let [from, to] = [before, &after].map(point_text);
        html.link(&address::diff(&to, &from), "the other way round").close("span").open("span", &[]);
        html.link(&format!("{}?patch=1", address::diff(&from, &to)), "JSON Patch (RFC 6902)").close("span").close("p");
        html.element("pre", &[("class", "command"), ("dir", "auto")], &screen.command(&["diff", &from, &to]));
    }
    let a = before.as_ref().map(point_text).unwrap_or_default();
    form(&mut html, &a, &point_text(&after));
    Ok(View::new("difference", html).into())
}

/// Adds the last common ancestor, from which both sides come.
fn common(html: &mut Html, before: Option<&Snapshot>, after: &Snapshot) -> Result<(), Refusal> {
    let Some(before) = before else { return Ok(()) };
    html.open("span", &[("class", "join")]).literal(
        "<svg width=\"32\" height=\"36\" viewBox=\"0 0 32 36\" aria-hidden=\"true\"><path d=\"M8 28V14Q8 8 14 8H30\"/>\
         <path class=\"own\" d=\"M8 28H30\"/><circle cx=\"8\" cy=\"28\" r=\"4.5\"/></svg>",
    );
    match before.common_ancestor(after)? {
        Some(common) => {
            html.open("span", &[]).text("last common ancestor: ");
            html.link(&address::point(&common), &format!("step {}", common.step())).close("span");
        }
        None => _ = html.element("span", &[], "the two have no common ancestor"),
    }
    html.close("span");
    Ok(())
}

/// Adds the head of a side.
fn side(html: &mut Html, at: Option<&Snapshot>, class: &str) {
    html.open("th", &[("class", class)]).open("p", &[("class", "side")]);
    let Some(at) = at else {
        html.text("nothing: the first checkpoint").close("p").close("th");
        return;
    };
    html.within("span", &[("class", "strong")], |html| {
        _ = html.link(&address::point(at), &format!("step {}", at.step()))
    });
    let thread = at.point().thread.as_str();
    html.open("span", &[("class", "dim cut")]).isolated(&shortened(thread, 40)).close("span");
    html.within("span", &[("class", "id cut"), ("title", &point_text(at))], |html| super::pane::short_id(html, at));
    html.close("p");
    html.open("p", &[("class", "facts")]).element("span", &[], &ago(at.store().now(), at.created_at())).close("p");
    html.close("th");
}

fn channel_part(html: &mut Html, channel: &ChannelDiff, before: Option<&Snapshot>, after: &Snapshot) {
    let name = &**channel.channel();
    let (sign, class) = match channel {
        ChannelDiff::Added { .. } => ("+", "sign plus"),
        ChannelDiff::Removed { .. } => ("-", "sign"),
        _ => ("~", "sign tilde"),
    };
    html.open("tbody", &[]).open("tr", &[("class", "part")]).open("th", &[("colspan", "3"), ("scope", "rowgroup")]);
    html.classed("span", class, sign).literal(" ");
    let side = if sign == "-" { before.unwrap_or(after) } else { after };
    html.open("b", &[("class", "strong")]);
    html.link(&address::state(&address::point(side), [name]), &shortened(name, 80)).close("b").close("th").close("tr");
    match channel {
        ChannelDiff::Added { value, .. } => pair(html, "", None, Some(&brief_of(value))),
        ChannelDiff::Removed { value, .. } => pair(html, "", Some(&brief_of(value)), None),
        ChannelDiff::Changed { before, after, .. } => changed(html, "", before, after),
        ChannelDiff::Items { items, .. } => {
            for item in items.iter().take(DIFF_ROWS_MAX) {
                item_row(html, item);
            }
            more(html, items.len());
        }
        ChannelDiff::Entries { entries, .. } => {
            for EntryDiff { key, before, after, .. } in entries.iter().take(DIFF_ROWS_MAX) {
                match (before, after) {
                    (Some(before), Some(after)) => changed(html, key, before, after),
                    (before, after) => {
                        let [before, after] = [before, after].map(|value| value.as_ref().map(brief_of));
                        pair(html, key, before.as_deref(), after.as_deref());
                    }
                }
            }
            more(html, entries.len());
        }
        ChannelDiff::Appended { text, .. } => pair(html, "", None, Some(&shortened(text, 2_000))),
        _ => pair(html, "", None, Some("differs")),
    }
    html.close("tbody");
}

fn brief_of(value: &Value) -> String {
    format!("{} ({})", line(value), kind(value))
}

fn more(html: &mut Html, len: usize) {
    if len > DIFF_ROWS_MAX {
        html.within("tr", &[], |html| {
            _ = html.element("td", &[("colspan", "3")], &format!("{} more", len - DIFF_ROWS_MAX))
        });
    }
}

fn pair(html: &mut Html, path: &str, before: Option<&str>, after: Option<&str>) {
    html.open("tr", &[]).element("th", &[("scope", "row"), ("dir", "auto")], &shortened(path, 80));
    for (class, side, text) in [("a", "before", before), ("b", "after", after)] {
        match text {
            Some(text) => {
                html.open("td", &[("data-side", side), ("dir", "auto")]).open("span", &[("class", class)]);
                html.value(text).close("span").close("td");
            }
            None => _ = html.classed("td", "absent", ""),
        }
    }
    html.close("tr");
}

fn item_row(html: &mut Html, item: &ItemDiff) {
    match item {
        ItemDiff::Added { to, value } => pair(html, &format!("+ {to}"), None, Some(&line(value))),
        ItemDiff::Removed { from, value } => pair(html, &format!("- {from}"), Some(&line(value)), None),
        ItemDiff::Moved { from, to, before, after } => {
            pair(html, &format!("moved {from} → {to}"), Some(&line(before)), Some(&line(after)));
        }
        ItemDiff::Edited { from, before, after, .. } => changed(html, &format!("~ {from}"), before, after),
        _ => {}
    }
}

/// Adds a value that changed: members by path, texts by line or by word.
fn changed(html: &mut Html, path: &str, before: &Value, after: &Value) {
    let members = members(before, after);
    for member in members.iter().take(DIFF_ROWS_MAX) {
        let path = &format!("{path}{}", member.path);
        match (member.before, member.after) {
            (Some(Value::Str(before)), Some(Value::Str(after))) => text_row(html, path, before, after),
            (before, after) => {
                let [before, after] = [before, after].map(|value| value.map(brief));
                pair(html, path, before.as_deref(), after.as_deref());
            }
        }
    }
    more(html, members.len());
}

/// Adds two texts: by line if they have several, else by word.
fn text_row(html: &mut Html, path: &str, before: &str, after: &str) {
    let has_lines = has_lines(before, after);
    let Some(changes) = changes(before, after, false) else {
        pair(html, path, Some(&shortened(before, 400)), Some(&shortened(after, 400)));
        return;
    };
    let is_near = |at: usize| {
        let near = changes.iter().skip(at.saturating_sub(AROUND)).take(2 * AROUND + 1);
        !has_lines || near.into_iter().any(|(tag, _)| *tag != ChangeTag::Equal)
    };
    html.open("tr", &[]).element("th", &[("scope", "row"), ("dir", "auto")], &shortened(path, 80));
    for (class, side, own) in [("a", "before", ChangeTag::Delete), ("b", "after", ChangeTag::Insert)] {
        html.open("td", &[("data-side", side), ("dir", "auto")]);
        let mut shown = 0;
        for (at, (tag, text)) in changes.iter().enumerate() {
            if (*tag != ChangeTag::Equal && *tag != own) || !is_near(at) {
                continue;
            }
            shown += 1;
            if shown > 4 * DIFF_ROWS_MAX {
                html.text("…");
                break;
            }
            let text = shortened(text, 1_000);
            if *tag == own {
                html.open("span", &[("class", class)]).value(&text).close("span");
            } else {
                html.value(&text);
            }
            if has_lines {
                html.literal("<br>");
            }
        }
        html.close("td");
    }
    html.close("tr");
}

/// Returns a JSON Patch for each channel that has one.
fn patches(found: &Diff) -> Json {
    let patch = |channel: &ChannelDiff| {
        let whole = |op: &str, value: Option<&Value>| {
            let mut op = json!({ "op": op, "path": "" });
            if let Some(value) = value {
                op["value"] = value.to_json();
            }
            json!([op])
        };
        let patch = match channel {
            ChannelDiff::Added { value, .. } => whole("add", Some(value)),
            ChannelDiff::Removed { .. } => whole("remove", None),
            ChannelDiff::Items { items, .. } => {
                let edits =
                    items.iter().filter_map(|item| Some(json!({ "id": item.id(), "patch": item.patch()?.to_json() })));
                return (channel.channel().to_string(), json!({ "edited": edits.collect::<Vec<_>>() }));
            }
            channel => channel.patch().as_ref().map_or(Json::Null, Patch::to_json),
        };
        (channel.channel().to_string(), json!({ "patch": patch }))
    };
    let channels: serde_json::Map<String, Json> = found.channels.iter().map(patch).collect();
    json!({ "schema": 1, "channels": channels })
}

/// Adds the difference of two points to another screen.
pub(super) fn preview(html: &mut Html, before: &Snapshot, found: &Diff) {
    html.open("table", &[("class", "diff")]);
    for channel in &found.channels {
        channel_part(html, channel, Some(before), before);
    }
    html.close("table");
    if found.channels.is_empty() {
        html.classed("p", "dim", "the new thread has the same state");
    }
}
