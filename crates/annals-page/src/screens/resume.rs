//! Resume values for open interrupts: a form for each, and its write.
//!
//! The value is stored by [`Thread::resume_interrupt`](annals_runs::ThreadRuns::resume_interrupt): a worker, or the
//! next run that goes on from the head, takes it. *Absent:* running the graph.

use annals::base::{Timestamp, Value};
use annals::history::{Snapshot, Thread};
use annals_runs::{OpenInterrupt, ThreadRuns};
use annals_view::words::{ago, shortened, tally};
use serde_json::Value as Json;

use super::inputs::ResumeInputs;
use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::limits::FORMS_MAX;
use crate::values::interrupt;

/// Adds a form for each open interrupt of a head.
pub(super) fn forms(screen: &Screen<'_>, html: &mut Html, head: &Snapshot, open: &[OpenInterrupt]) {
    if !screen.page.allows_write() {
        return;
    }
    open.iter().take(FORMS_MAX).for_each(|open| form(screen, html, head, open));
    if open.len() > FORMS_MAX {
        html.classed("p", "dim", "Further interrupts are open: annals pending lists them.");
    }
}

/// Adds an interrupt above another screen: its text, and a button for each value if there are few, else the way to the
/// form. Without leave to write the command is the only way.
pub(super) fn call(screen: &Screen<'_>, html: &mut Html, head: &Snapshot, open: &OpenInterrupt) {
    let action = format!("{}/resume", address::point(head));
    let writes = screen.page.allows_write();
    let tag = if writes { "form" } else { "div" };
    let attributes = [("class", "call"), ("method", "post"), ("action", &*action)];
    html.open(tag, if writes { &attributes } else { &attributes[..1] });
    html.open("p", &[]);
    StatusShape::Waits.add_to(html);
    html.open("span", &[]).element("b", &[("class", "strong"), ("dir", "auto")], &interrupt(&open.value)).literal(" ");
    let (now, node) = (head.store().now(), tally(head.next()));
    html.classed("span", "dim", &format!("{} waits for {}", shortened(&node, 60), waited(now, head.created_at())));
    html.close("span").close("p").open("span", &[("class", "answer")]);
    if !writes {
        let command = screen.command(&["answer", head.point().thread.as_str(), "JSON", "--id", &open.id]);
        html.element("code", &[("class", "command"), ("dir", "auto")], &command);
    } else {
        hidden(screen, html, open);
        if let Some(labels) = ResumeInputs::of(open).buttons() {
            buttons(html, &labels);
        }
        html.element("a", &[("class", "btn bare"), ("href", "/runs?status=interrupted")], "answer in words");
    }
    html.close("span").close(tag);
}

/// Returns how long something waits.
fn waited(now: Timestamp, then: Timestamp) -> String {
    match ago(now, then).as_str() {
        "now" => "a few seconds".to_owned(),
        age => age.trim_end_matches(" ago").to_owned(),
    }
}

/// Adds a button for each value of a choice. A value is sent as its number.
fn buttons(html: &mut Html, labels: &[String]) {
    for (at, label) in labels.iter().enumerate() {
        let class = if at == 0 { "btn main" } else { "btn" };
        html.element(
            "button",
            &[("class", class), ("name", "in.value"), ("value", &at.to_string()), ("dir", "auto")],
            label,
        );
    }
}

/// Adds what every form of an interrupt sends: the token of the forms, and the id.
fn hidden(screen: &Screen<'_>, html: &mut Html, open: &OpenInterrupt) {
    html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
    html.open("input", &[("type", "hidden"), ("name", "id"), ("value", &open.id)]);
}

/// Returns the commands with the effects of the forms.
pub(super) fn commands(screen: &Screen<'_>, head: &Snapshot, open: &[OpenInterrupt]) -> Vec<String> {
    let thread = head.point().thread.as_str();
    let command = |open: &OpenInterrupt| screen.command(&["answer", thread, "JSON", "--id", &open.id]);
    open.iter().take(FORMS_MAX).map(command).collect()
}

/// Adds the form of an interrupt: inputs by its schema or its options, and a field for the value as JSON.
fn form(screen: &Screen<'_>, html: &mut Html, head: &Snapshot, open: &OpenInterrupt) {
    let action = format!("{}/resume", address::point(head));
    let attributes = [("method", "post"), ("action", &*action), ("class", "resume")];
    let inputs = ResumeInputs::of(open);
    let has_inputs = !matches!(inputs, ResumeInputs::Json);
    if has_inputs {
        html.within("form", &attributes, |html| {
            hidden(screen, html, open);
            html.element("p", &[("class", "ask"), ("dir", "auto")], &interrupt(&open.value));
            match inputs.buttons() {
                Some(labels) => _ = html.within("p", &[("class", "answer")], |html| buttons(html, &labels)),
                None => {
                    inputs.add_to(html);
                    html.within("p", &[], |html| {
                        html.element("button", &[("class", "btn main")], "store the resume value");
                    });
                }
            }
        });
        html.open("details", &[("class", "dim")]).element("summary", &[], "another value, as JSON");
    }
    html.within("form", &attributes, |html| {
        hidden(screen, html, open);
        let class = if has_inputs { "small" } else { "ask" };
        html.within("label", &[("class", class), ("dir", "auto")], |html| {
            html.value(&interrupt(&open.value)).literal("<br>");
            html.open("textarea", &[("name", "value"), ("rows", "2"), ("cols", "60"), ("required", "")])
                .close("textarea");
        });
        html.within("p", &[], |html| {
            html.element("button", &[("class", "btn")], "store the resume value");
            html.classed("span", "dim", " JSON, or else a text");
        });
    });
    if has_inputs {
        html.close("details");
    }
}

/// Returns the interrupts that wait for a person.
pub(super) fn waiting(thread: &Thread) -> Result<Vec<OpenInterrupt>, Refusal> {
    Ok(thread.open_interrupts()?.into_iter().filter(|open| open.wake_at.is_none()).collect())
}

/// Stores the resume value of a form.
pub(super) fn write(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let form = screen.form.clone().unwrap_or_default();
    let thread = screen.thread(at)?;
    if thread.head()?.as_ref() != Some(at) {
        return Err(Refusal::new(409, "conflict", "the thread has gone on: this checkpoint is not its head"));
    }
    let open = waiting(&thread)?;
    let found = match (form.get("id"), &open[..]) {
        (Some(id), open) => open.iter().find(|open| open.id == id),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let refused = || Refusal::new(409, "conflict", "the checkpoint has no open interrupt with this id");
    let found = found.ok_or_else(refused)?;
    let value = match form.get("value") {
        Some(text) => serde_json::from_str::<Json>(text).map_or_else(|_| Value::from(text), Value::from),
        None => ResumeInputs::of(found).read(&form)?,
    };
    thread.resume_interrupt(&found.id, value)?;
    let next = if waiting(&thread)?.is_empty() { "running" } else { "interrupted" };
    Ok(Shown::To(format!("/runs?status={next}")))
}
