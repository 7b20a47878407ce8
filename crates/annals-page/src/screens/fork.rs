//! A new thread from a point, with a channel set to another value: preview, command, replay and form.

use annals::base::Value;
use annals::history::{ChannelDiff, Diff, Snapshot};
use annals_view::words::{made, shortened, stored_parent, tally};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::tree::BranchTree;
use super::{Screen, Shown, compare};
use crate::address::{self, point_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{GRAPH_STEPS_MAX, REPLAYED_MAX};
use crate::request::Fields;

/// The fields of the form.
struct ForkPlan {
    /// The id of the new thread.
    name: String,
    /// A channel with its value.
    set: Option<(String, Value)>,
    /// The text of the value.
    text: String,
}

impl ForkPlan {
    fn read(fields: &Fields, at: &Snapshot) -> Self {
        let name = fields.get("name").map(|name| name.trim().to_owned());
        let name = name.unwrap_or_else(|| format!("{}-fork", at.point().thread.as_str()));
        let text = fields.get("value").unwrap_or_default().to_owned();
        let value = serde_json::from_str::<Json>(&text).map_or_else(|_| Value::from(text.as_str()), Value::from);
        let channel = fields.get("channel").map(str::trim).filter(|channel| !channel.is_empty());
        let set = channel.filter(|_| !text.is_empty()).map(|channel| (channel.to_owned(), value));
        Self { name, set, text }
    }

    /// Returns the difference that the new thread has.
    fn diff(&self, at: &Snapshot) -> Result<Diff, Refusal> {
        let Some((channel, after)) = &self.set else { return Ok(Diff::new(Vec::new(), 0)) };
        let change = match at.get(channel)? {
            Some(before) if before == *after => return Ok(Diff::new(Vec::new(), 0)),
            Some(before) => ChannelDiff::Changed { channel: channel.as_str().into(), before, after: after.clone() },
            None => ChannelDiff::Added { channel: channel.as_str().into(), value: after.clone() },
        };
        Ok(Diff::new(vec![change], 0))
    }

    /// Refuses a value for a channel that holds a list: a set would be another channel.
    fn verify(&self, at: &Snapshot) -> Result<(), Refusal> {
        if let Some((channel, _)) = &self.set
            && (at.len(channel)? > 0 || !annals_view::is_state(channel))
        {
            return Err(Refusal::usage(format!(
                "channel {channel} does not hold one value; a fork can set only such a channel"
            )));
        }
        Ok(())
    }
}

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    if !at.point().namespace.is_root() {
        return Err(Refusal::usage("a subgraph follows the graph that it is part of"));
    }
    let plan = ForkPlan::read(screen.form.as_ref().unwrap_or(&screen.query), at);
    plan.verify(at)?;
    if screen.form.is_some() {
        return write(at, &plan);
    }
    let found = plan.diff(at)?;
    let commands = commands(screen, at, &plan);
    if screen.json {
        let point = annals_view::words::place(at);
        return Ok(Shown::Json(json!({ "schema": 1, "from": point, "thread": plan.name, "commands": commands })));
    }
    let (thread, mut html) = (screen.thread(at)?, Html::new());
    let info = thread.info()?;
    heading(&mut html, &thread, &info, at, &BranchTree::read(&thread)?)?;
    tabs(&mut html, at, "fork");
    let own = format!("{}/fork", address::point(at));
    html.open("div", &[("class", "cols")]).open("section", &[("aria-label", "Preview")]);
    html.open("div", &[("class", "section")]).element("h2", &[], "What the new thread has").close("div");
    compare::preview(&mut html, at, &found);
    replay(screen, &mut html, at, &plan)?;
    html.close("section").open("aside", &[("class", "rail"), ("aria-label", "Fork")]);
    html.open("div", &[("class", "state")]).open("header", &[]).element("h2", &[], "A new thread from here");
    html.classed("span", "dim", &format!("step {}", at.step())).close("header");
    html.within("form", &[("action", &own), ("class", "fields")], |html| {
        inputs(html, &plan);
        html.element("button", &[("class", "btn")], "Preview");
    });
    for command in &commands {
        html.element("pre", &[("class", "command"), ("dir", "auto")], command);
    }
    if screen.page.allows_write() {
        html.within("form", &[("method", "post"), ("action", &own), ("class", "fields")], |html| {
            html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
            for (name, value) in plan.fields() {
                html.open("input", &[("type", "hidden"), ("name", name), ("value", value)]);
            }
            html.element("button", &[("id", "make-fork"), ("class", "btn main")], "Make the fork");
        });
    }
    html.close("div").close("aside").close("div");
    Ok(View::new(format!("{} fork", name(&info)), html).into())
}

/// Adds the effects of a replay in the new thread: the tasks that run, the steps that followed here, and the comparison
/// of both.
fn replay(screen: &Screen<'_>, html: &mut Html, at: &Snapshot, plan: &ForkPlan) -> Result<(), Refusal> {
    html.open("div", &[("class", "section")]).element("h2", &[], "What runs in it").close("div");
    let due: Vec<&str> = at.next().collect();
    html.within("p", &[], |html| match due.is_empty() {
        true => _ = html.text("No task is due: the new thread takes an input or an update."),
        false => {
            html.text("These tasks are due, and run when a program goes on with the new thread: ");
            html.text(&shortened(&tally(due.iter().copied()), 200));
        }
    });
    if !due.is_empty() {
        html.element("pre", &[("class", "command")], &screen.command(&["run", "FILE.toml", "--thread", &plan.name]));
    }
    let after = after(screen, at)?;
    let Some(last) = after.first() else { return Ok(()) };
    html.open("div", &[("class", "section")]).element("h2", &[], "What followed here");
    let both = address::diff(&address::thread_text(&plan.name), &point_text(last));
    html.open("p", &[("class", "end facts")]).open("span", &[]).text("once it ran: ");
    html.link(&both, "compare both").close("span").close("p").close("div").open("ol", &[("class", "followed")]);
    for step in after.iter().take(REPLAYED_MAX) {
        let text = shortened(&made(step, stored_parent(step)?.as_ref()), 100);
        html.open("li", &[]).classed("span", "num dim", &step.step().to_string());
        html.within("b", &[], |html| _ = html.link(&format!("{}/step", address::point(step)), &text));
        html.time("num dim", at.store().now(), step.created_at()).close("li");
    }
    html.close("ol");
    Ok(())
}

/// Returns the steps from the head of the thread down to a point, newest first, if the point is on its lineage within
/// reach.
fn after(screen: &Screen<'_>, at: &Snapshot) -> Result<Vec<Snapshot>, Refusal> {
    let Some(head) = screen.thread(at)?.head()? else { return Ok(Vec::new()) };
    let mut after = Vec::new();
    for snapshot in head.lineage().take(GRAPH_STEPS_MAX) {
        let snapshot = snapshot?;
        if snapshot.id() == at.id() {
            return Ok(after);
        }
        after.push(snapshot);
    }
    Ok(Vec::new())
}

impl ForkPlan {
    fn fields(&self) -> [(&'static str, &str); 3] {
        let channel = self.set.as_ref().map_or("", |(channel, _)| channel);
        [("name", &self.name), ("channel", channel), ("value", &self.text)]
    }
}

fn inputs(html: &mut Html, plan: &ForkPlan) {
    for ((name, value), label) in
        plan.fields().into_iter().zip(["id of the new thread", "set channel", "to (JSON, or else a text)"])
    {
        html.within("label", &[], |html| {
            html.classed("span", "dim small", label);
            html.open("input", &[("class", "field"), ("name", name), ("value", value), ("autocomplete", "off")]);
        });
    }
}

/// Returns the commands that do the same.
fn commands(screen: &Screen<'_>, at: &Snapshot, plan: &ForkPlan) -> Vec<String> {
    let mut commands = vec![screen.command(&["fork", &point_text(at), "--name", &plan.name])];
    if let Some((channel, value)) = &plan.set {
        commands.push(screen.command(&["update", &plan.name, "--set", &format!("{channel}={}", value.to_json())]));
    }
    commands
}

fn write(at: &Snapshot, plan: &ForkPlan) -> Result<Shown, Refusal> {
    let fork = at.fork_to(&plan.name)?;
    if let Some((channel, value)) = &plan.set {
        fork.set(channel, value.clone())?;
    }
    debug_assert!(fork.forked_from().is_ok_and(|from| from.is_some()), "the new thread names its origin");
    Ok(Shown::To(address::thread(fork.id().as_str())))
}
