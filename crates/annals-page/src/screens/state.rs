//! The screen of a state: its channels, the items of a list, a value as a tree, and the history of a value.

use annals::base::limits::{MAP_POSITION_MIN, TEXT_POSITION_MIN};
use annals::base::{Map, Value};
use annals::history::{Blame, Damaged, ListItem, Snapshot};
use annals::store::ItemRange;
use annals::store::record::{ChannelRecord, ChannelValue};
use annals_runs::SnapshotRuns;
use annals_view::is_state;
use annals_view::words::{self, ago, brief, count, grouped, metadata, place, status, stored_parent};
use serde_json::{Value as Json, json};

use super::evolution;
use super::heading::{heading, name, tabs};
use super::tree::BranchTree;
use super::{Screen, Shown};
use crate::address::{self, encode, thread_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::ITEMS_MAX;
use crate::values::{ValueTree, kind, text};

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot, path: &[&str]) -> Result<Shown, Refusal> {
    let Some((channel, members)) = path.split_first() else { return whole(screen, at) };
    let state = at.state_record()?;
    let found = state.channels.into_iter().find(|record| &*record.channel == *channel && is_state(channel));
    let record = found.filter(|record| record.value != ChannelValue::Empty);
    let record = record.ok_or_else(|| Refusal::not_found(format!("channel {channel} is empty at this point")))?;
    let target = StateTarget::read(at, &record, members)?;
    if screen.query.get("raw").is_some() {
        return Ok(Shown::Text(match target.value(at, channel)? {
            Value::Str(text) => text,
            value => format!("{:#}\n", value.to_json()),
        }));
    }
    let by = target.blame(at, channel, members)?;
    if screen.json {
        let mut document = place(at);
        document["schema"] = json!(1);
        document["channel"] = json!(channel);
        document["path"] = json!(path.join("/"));
        document["value"] = target.value(at, channel)?.to_json();
        document["written_by"] = by.as_ref().map_or(Json::Null, |by| written_by(at, by));
        return Ok(Shown::Json(document));
    }
    let base = address::state(&address::point(at), path.iter().copied());
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let (info, tree) = (thread.info()?, BranchTree::read(&thread)?);
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "state");
    html.open("div", &[("class", "section")]);
    crumbs(&mut html, at, path);
    html.open("p", &[("class", "end facts")]);
    if let StateTarget::One(value) = &target {
        html.element("span", &[], &kind(value));
    }
    if let Some(by) = &by {
        html.within("span", &[], |html| writer(html, at, by));
    }
    html.within("span", &[], |html| _ = html.link(&format!("{base}?raw=1"), "as text"));
    html.close("p").close("div");
    match &target {
        StateTarget::List(items, len) => list(&mut html, screen, items, *len, &base),
        StateTarget::One(Value::Str(content)) => text(&mut html, content, &base),
        StateTarget::One(value) => ValueTree::add_to(&mut html, value, &base),
    }
    let command = show_command(at, path);
    let shown = screen.command(&["show", &command[0], &command[1]]);
    html.element("pre", &[("class", "command"), ("dir", "auto")], &shown);
    html.open("p", &[]);
    html.element("button", &[("type", "button"), ("class", "copy"), ("data-copy", &command[1])], "copy the path");
    html.close("p");
    evolution::section(&mut html, at, &record, members)?;
    Ok(View::new(format!("{} {}", name(&info), path.join("/")), html).live(thread.id().as_str()).into())
}

/// A part of a state.
enum StateTarget {
    /// The items of a page of a list, and the number of all.
    List(Vec<ListItem<Value>>, u64),
    /// A value.
    One(Value),
}

impl StateTarget {
    fn read(at: &Snapshot, record: &ChannelRecord, members: &[&str]) -> Result<Self, Refusal> {
        let channel = &*record.channel;
        let absent = || Refusal::not_found(format!("{channel}/{} is absent at this point", members.join("/")));
        if record.value != ChannelValue::Items {
            let value = at.get(channel)?.ok_or_else(absent)?;
            return part(value, members).map(Self::One).ok_or_else(absent);
        }
        let shape = at.read_items(channel, ItemRange::Tail(1), Damaged::Placeholder)?;
        let position = shape.first().map_or(0, |item| item.position);
        match members.split_first() {
            None if position < MAP_POSITION_MIN => {
                let items = at.read_items(channel, ItemRange::Tail(ITEMS_MAX), Damaged::Placeholder)?;
                Ok(Self::List(items, at.len(channel)?))
            }
            None => Ok(Self::One(at.get(channel)?.ok_or_else(absent)?)),
            Some((key, rest)) if (MAP_POSITION_MIN..TEXT_POSITION_MIN).contains(&position) => {
                let value = at.entry(channel, key)?.ok_or_else(absent)?;
                part(value, rest).map(Self::One).ok_or_else(absent)
            }
            Some((number, rest)) => {
                let at_position: u64 = number.parse().map_err(|_| absent())?;
                let range = ItemRange::Positions(at_position, at_position.saturating_add(1));
                let value = at.items(channel, range)?.into_iter().next().ok_or_else(absent)?;
                part(value, rest).map(Self::One).ok_or_else(absent)
            }
        }
    }

    /// Returns the value; of a list all of it.
    fn value(&self, at: &Snapshot, channel: &str) -> Result<Value, Refusal> {
        match self {
            Self::One(value) => Ok(value.clone()),
            Self::List(..) => Ok(at.get(channel)?.unwrap_or_default()),
        }
    }

    fn blame(&self, at: &Snapshot, channel: &str, members: &[&str]) -> Result<Option<Blame>, Refusal> {
        let blame = at.blame(channel);
        Ok(match (self, members.first().and_then(|number| number.parse().ok())) {
            (Self::List(..), _) => blame.value()?,
            (Self::One(_), _) if members.is_empty() => blame.value()?,
            (Self::One(_), Some(position)) if at.len(channel)? > 0 => blame.position(position)?,
            (Self::One(_), _) if at.len(channel)? > 0 => blame.entry(members[0])?,
            (Self::One(_), _) => blame.path(&pointer(members))?,
        })
    }
}

/// Returns members as a JSON Pointer (RFC 6901).
pub(super) fn pointer(members: &[&str]) -> String {
    members.iter().map(|member| format!("/{}", words::pointer(member))).collect()
}

/// Returns a part of a value.
pub(super) fn part(value: Value, members: &[&str]) -> Option<Value> {
    members.iter().try_fold(value, |value, member| match value {
        Value::List(mut items) => {
            let at = member.parse::<usize>().ok().filter(|at| *at < items.len())?;
            Some(items.swap_remove(at))
        }
        Value::Map(mut map) => map.shift_remove(member),
        _ => None,
    })
}

/// Returns the arguments of the command that prints a value.
fn show_command(at: &Snapshot, path: &[&str]) -> [String; 2] {
    let (channel, members) = path.split_first().map_or(("", &[][..]), |(channel, members)| (*channel, members));
    [address::point_text(at), format!("{channel}{}", pointer(members))]
}

fn crumbs(html: &mut Html, at: &Snapshot, path: &[&str]) {
    let mut address = format!("{}/state", address::point(at));
    html.open("h2", &[("class", "crumbs")]).link(&address, "state");
    for member in path {
        address = format!("{address}/{}", encode(member));
        html.literal(" / ").link(&address, member);
    }
    html.close("h2");
}

fn list(html: &mut Html, screen: &Screen<'_>, items: &[ListItem<Value>], len: u64, base: &str) {
    html.classed("p", "dim", &format!("{}; the last {} by their positions", count(len, "item"), items.len()));
    html.open("table", &[("class", "rows")]).open("tbody", &[]);
    for item in items {
        let address = format!("{base}/{}", item.position);
        html.open("tr", &[("data-row", "")]);
        html.within("td", &[("class", "number")], |html| _ = html.link(&address, &item.position.to_string()));
        match &item.item {
            Ok(value) => html.element("td", &[("dir", "auto")], &line(value)).classed("td", "dim", &kind(value)),
            Err(placeholder) => html.classed("td", "error", &placeholder.to_string()),
        };
        html.close("tr");
    }
    html.close("tbody").close("table");
    if len > items.len() as u64 {
        let raw = format!("{base}.json");
        let note = format!("all {} as JSON", grouped(len));
        html.within("p", &[], |html| _ = html.link(&raw, &note));
    }
    debug_assert!(!screen.json, "the JSON of a list has all items");
}

/// Returns any item of a list on one line; of a message the type and the text.
pub(super) fn line(value: &Value) -> String {
    match (value.get("type").and_then(Value::as_str), value.get("content")) {
        (Some(kind), Some(content)) => format!("{kind}: {}", brief(content)),
        _ => brief(value),
    }
}

/// Adds the writer of a value: node, step and a link to the checkpoint.
pub(super) fn writer(html: &mut Html, at: &Snapshot, by: &Blame) {
    let text = format!("{}@{}", thread_text(by.point.thread.as_str()), by.point.checkpoint);
    let writer = annals_view::words::tally([by.node.as_deref().unwrap_or(by.source.as_str())]);
    html.text("written by ").text(&writer).text(" at ");
    let step = format!("/t/{}", encode(&text));
    html.element("a", &[("href", &step), ("data-blame", "")], &format!("step {}", by.step));
    html.text(&format!(", {}", ago(at.store().now(), by.created_at)));
}

fn written_by(at: &Snapshot, by: &Blame) -> Json {
    let back = at.record().ordinal.saturating_sub(by.ordinal);
    json!({ "node": by.node, "back": back, "ordinal": by.ordinal, "version": by.version })
}

/// Shows all channels at a point.
fn whole(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let record = at.record();
    if screen.json {
        let tasks = record.tasks.iter().map(|task| json!({ "id": task.id.to_string(), "node": &*task.name }));
        let open = at.interrupts()?;
        let open = open.iter().map(|(task, value)| json!({ "task": task.to_string(), "value": value.to_json() }));
        let by: serde_json::Map<String, Json> =
            at.blames()?.iter().map(|(channel, by)| (channel.to_string(), written_by(at, by))).collect();
        let values: Map = at.values()?;
        let halves = at.partials()?;
        let halves = halves.iter().map(|half| {
            json!({
                "channel": half.channel,
                "started": half.started.to_string(),
                "updated": half.updated.to_string(),
                "message": Value::Map(half.message.to_map()).to_json(),
            })
        });
        return Ok(Shown::Json(json!({
            "schema": 1,
            "thread": record.point.thread.as_str(),
            "checkpoint": at.id().to_string(),
            "parent": stored_parent(at)?.as_ref().map(place),
            "step": at.step(),
            "source": at.source().as_str(),
            "created_at": at.created_at().to_string(),
            "run": record.run.map(|run| run.to_string()),
            "metadata": metadata(at),
            "status": status(at)?.0.as_str(),
            "next": at.next().collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "questions": open.collect::<Vec<_>>(),
            "partials": halves.collect::<Vec<_>>(),
            "values": Value::Map(values).to_json(),
            "written_by": by,
        })));
    }
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let (info, tree) = (thread.info()?, BranchTree::read(&thread)?);
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "state");
    super::pane::add_to(screen, &mut html, at)?;
    let metadata = Value::from(metadata(at));
    if metadata.as_map().is_some_and(|map| !map.is_empty()) {
        html.open("div", &[("class", "section")]).element("h2", &[], "Metadata").close("div");
        ValueTree::add_without_links(&mut html, &metadata);
    }
    Ok(View::new(format!("{} state", name(&info)), html).live(thread.id().as_str()).into())
}
