//! Resume values for open interrupts: a form for each, and its write.
//!
//! The value is stored by [`Thread::resume_interrupt`](annals_runs::ThreadRuns::resume_interrupt): a worker, or the
//! next run that goes on from the head, takes it. *Absent:* running the graph.

use annals::base::Value;
use annals::history::{Snapshot, Thread};
use annals_runs::{OpenInterrupt, ThreadRuns};
use serde_json::Value as Json;

use super::inputs::ResumeInputs;
use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::limits::FORMS_MAX;
use crate::words::interrupt;

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
    let hidden = |html: &mut Html| {
        html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
        html.open("input", &[("type", "hidden"), ("name", "id"), ("value", &open.id)]);
    };
    let inputs = ResumeInputs::of(open);
    let has_inputs = !matches!(inputs, ResumeInputs::Json);
    if has_inputs {
        html.within("form", &attributes, |html| {
            hidden(html);
            html.element("p", &[("dir", "auto")], &interrupt(&open.value));
            inputs.add_to(html);
            html.within("p", &[], |html| _ = html.element("button", &[], "store the resume value"));
        });
        html.open("details", &[("class", "dim")]).element("summary", &[], "another value, as JSON");
    }
    html.within("form", &attributes, |html| {
        hidden(html);
        html.within("label", &[("dir", "auto")], |html| {
            html.value(&interrupt(&open.value)).literal("<br>");
            html.open("textarea", &[("name", "value"), ("rows", "2"), ("cols", "60"), ("required", "")])
                .close("textarea");
        });
        html.within("p", &[], |html| {
            html.element("button", &[], "store the resume value");
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
