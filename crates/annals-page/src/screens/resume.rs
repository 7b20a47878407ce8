//! A resume value for an open interrupt: the form, and its write.
//!
//! The value is stored by [`Thread::resume_interrupt`](annals::history::Thread::resume_interrupt): a worker, or the next run that goes on
//! from the head, takes it. *Absent:* running the graph.

use annals::base::Value;
use annals::history::{OpenInterrupt, Snapshot, Thread};
use serde_json::Value as Json;

use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::words::interrupt;

/// Adds the form for the open interrupt of a head.
pub(super) fn form(screen: &Screen<'_>, html: &mut Html, head: &Snapshot) -> Result<(), Refusal> {
    if !screen.page.allows_write() {
        return Ok(());
    }
    let open = waiting(&screen.thread(head)?)?;
    let [open] = &open[..] else {
        html.classed("p", "dim", "Several interrupts are open: annals answer resumes one by its id.");
        return Ok(());
    };
    let action = format!("{}/resume", address::point(head));
    html.within("form", &[("method", "post"), ("action", &action), ("class", "resume")], |html| {
        html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
        html.within("label", &[("dir", "auto")], |html| {
            html.text(&interrupt(&open.value)).literal("<br>");
            html.open("textarea", &[("name", "value"), ("rows", "2"), ("cols", "60"), ("required", "")])
                .close("textarea");
        });
        html.within("p", &[], |html| {
            html.element("button", &[], "store the resume value");
            html.classed("span", "dim", " JSON, or else a text");
        });
    });
    Ok(())
}

/// Returns the interrupts that wait for a person.
fn waiting(thread: &Thread) -> Result<Vec<OpenInterrupt>, Refusal> {
    Ok(thread.open_interrupts()?.into_iter().filter(|open| open.wake_at.is_none()).collect())
}

/// Stores the resume value of a form.
pub(super) fn write(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let form = screen.form.as_ref().and_then(|form| form.get("value"));
    let text = form.ok_or_else(|| Refusal::usage("value is empty: name a resume value"))?;
    let value = serde_json::from_str::<Json>(text).map_or_else(|_| Value::from(text), Value::from);
    let thread = screen.thread(at)?;
    if thread.head()?.as_ref() != Some(at) {
        return Err(Refusal::new(409, "conflict", "the thread has gone on: this checkpoint is not its head"));
    }
    let open = waiting(&thread)?;
    let [open] = &open[..] else {
        return Err(Refusal::new(409, "conflict", "the checkpoint does not have one open interrupt"));
    };
    thread.resume_interrupt(&open.id, value)?;
    Ok(Shown::To("/runs?status=running".to_owned()))
}
