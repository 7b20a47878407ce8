//! The state at a point beside another screen: each channel with its writer, messages and what the step changed open.

use std::collections::HashMap;
use std::sync::Arc;

use annals::base::Value;
use annals::history::{Blame, Damaged, Snapshot};
use annals::store::ItemRange;
use annals::store::record::{ChannelRecord, ChannelValue};
use annals_view::is_state;
use annals_view::words::{brief, count, made, shortened, size, stored_parent, tally};

use super::state::line;
use super::{Screen, resume};
use crate::address::{self, encode, thread_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::limits::{CALLS_MAX, ITEMS_BRIEF_MAX, PANE_DEPTH_MAX, PANE_NODES_MAX};
use crate::values::kind;

/// Adds the channels at a point, each with a brief value and its writer.
pub(super) fn add_to(screen: &Screen<'_>, html: &mut Html, at: &Snapshot) -> Result<(), Refusal> {
    let by: HashMap<Arc<str>, Blame> = at.blames()?.into_iter().collect();
    let state = at.state_record()?;
    html.open("div", &[("class", "state")]).open("header", &[]);
    html.element("h2", &[], &format!("Step {}", at.step()));
    let id = at.id().to_string();
    html.within("span", &[("class", "id"), ("title", &id)], |html| short_id(html, at));
    html.classed("span", "dim small cut", &shortened(&made(at, stored_parent(at)?.as_ref()), 60));
    html.time("dim small", at.store().now(), at.created_at()).close("header");
    let shown = state.channels.iter().filter(|record| is_state(&record.channel) && record.value != ChannelValue::Empty);
    for record in shown {
        channel(html, at, record, by.get(&record.channel))?;
    }
    let next: Vec<&str> = at.next().collect();
    if next.is_empty() {
        html.classed("p", "chan dim", "no task is due");
    } else {
        html.open("p", &[("class", "chan")]).classed("span", "dim", "Due next ");
        html.classed("span", "strong", &shortened(&tally(next), 120)).close("p");
    }
    let is_head = screen.thread(at)?.head()?.as_ref() == Some(at);
    let open = if is_head { resume::waiting(&screen.thread(at)?)? } else { Vec::new() };
    for command in resume::commands(screen, at, &open).iter().take(CALLS_MAX) {
        html.element("pre", &[("class", "command"), ("dir", "auto")], command);
    }
    html.close("div");
    Ok(())
}

/// Adds the short id of a checkpoint; the letters that tell it apart are strong.
pub(super) fn short_id(html: &mut Html, at: &Snapshot) {
    let short = at.short_id().unwrap_or_else(|_| at.id().to_string());
    let same = short.len().saturating_sub(3);
    html.text("@").text(&short[..same]).element("b", &[], &short[same..]);
}

fn channel(html: &mut Html, at: &Snapshot, record: &ChannelRecord, by: Option<&Blame>) -> Result<(), Refusal> {
    let name = &*record.channel;
    let address = address::state(&address::point(at), [name]);
    let is_new = by.is_some_and(|by| by.point.checkpoint == at.id());
    match &record.value {
        ChannelValue::Value(payload) => {
            let value = at.get(name)?.unwrap_or_default();
            let is_tree = matches!(&value, Value::Map(_) | Value::List(_));
            open(html, is_new && is_tree, &address, name);
            if is_tree {
                html.classed("span", "dim", &format!("{} · {}", kind(&value), size(payload.data.len() as u64)));
            } else {
                html.element("code", &[("class", "cut"), ("dir", "auto")], &brief(&value));
            }
            writer(html, by);
            html.close("summary");
            if is_tree {
                let mut left = PANE_NODES_MAX;
                tree(html, &value, &mut left, 0);
                if left == 0 {
                    html.within("p", &[("class", "small")], |html| _ = html.link(&address, "all of it"));
                }
            } else {
                let bytes = size(payload.data.len() as u64);
                html.within("p", &[("class", "brief dim")], |html| _ = html.element("span", &[], &bytes));
            }
        }
        _ => {
            let items = at.read_items(name, ItemRange::Tail(ITEMS_BRIEF_MAX), Damaged::Placeholder)?;
            open(html, true, &address, name);
            html.classed("span", "dim", &count(at.len(name)?, "item"));
            writer(html, by);
            html.close("summary").open("div", &[("class", "brief")]);
            for item in items {
                let text = item.item.as_ref().map_or_else(ToString::to_string, line);
                let words = text.split_once(": ").map_or(text.as_str(), |(_, words)| words);
                let (role, words) = match item.item.as_ref().ok().and_then(|value| value.get("type")?.as_str()) {
                    Some("human") => ("you".to_owned(), words),
                    Some("ai") => ("agent".to_owned(), words),
                    Some(role) => (shortened(role, 12), words),
                    None => (item.position.to_string(), text.as_str()),
                };
                html.element("span", &[], &role).element("span", &[("dir", "auto")], words);
            }
            html.close("div");
        }
    }
    html.close("details");
    Ok(())
}

/// Opens a channel up to what stands beside its name.
fn open(html: &mut Html, is_open: bool, address: &str, name: &str) {
    html.open("details", if is_open { &[("class", "chan"), ("open", "")] } else { &[("class", "chan")] });
    html.open("summary", &[]);
    html.element("a", &[("href", address), ("class", "strong"), ("dir", "auto")], &shortened(name, 60));
}

/// Adds the writer of a value as a link to its step.
fn writer(html: &mut Html, by: Option<&Blame>) {
    let Some(by) = by else { return };
    let step = format!("/t/{}", encode(&format!("{}@{}", thread_text(by.point.thread.as_str()), by.point.checkpoint)));
    let node = tally([by.node.as_deref().unwrap_or(by.source.as_str())]);
    html.open("span", &[("class", "by")]);
    html.isolated(&shortened(&node, 24)).text(", ");
    html.element("a", &[("href", &step), ("data-blame", ""), ("title", "written by")], &format!("step {}", by.step));
    html.close("span");
}

/// Adds the first parts of a value.
pub(super) fn tree(html: &mut Html, value: &Value, left: &mut usize, depth: usize) {
    html.open("ul", &[("class", "tree")]);
    let mut member = |html: &mut Html, name: &str, value: &Value| {
        if *left == 0 {
            return;
        }
        *left -= 1;
        html.open("li", &[]).element("b", &[("dir", "auto")], &shortened(name, 60)).literal(" ");
        match value {
            Value::Map(_) | Value::List(_) if depth < PANE_DEPTH_MAX => tree(html, value, left, depth + 1),
            Value::Str(text) => _ = html.element("i", &[("dir", "auto")], &format!("\"{}\"", shortened(text, 100))),
            value => _ = html.element("i", &[("dir", "auto")], &brief(value)),
        }
        html.close("li");
    };
    match value {
        Value::Map(map) => map.iter().for_each(|(name, value)| member(html, name, value)),
        Value::List(items) => {
            items.iter().enumerate().for_each(|(at, value)| member(html, &at.to_string(), value));
        }
        _ => {}
    }
    html.close("ul");
}
