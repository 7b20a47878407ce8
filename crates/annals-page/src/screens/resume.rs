//! A resume value for an open interrupt: the form, and its write.
//!
//! The value is stored as a run stores the resume value of a command before it starts the task: a special write of the head
//! (`__resume__`, without a task). The next run that goes on from the head takes it. *Absent:* running the graph.

use annals::base::{Encoded, TaskId, Value};
use annals::history::Snapshot;
use annals::store::{Batch, NewWrite, NewWrites, WriteValue};
use serde_json::Value as Json;

use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::words::{brief, interrupt};

/// The channel and the index of a stored resume value.
const RESUME: (&str, i32) = ("__resume__", -4);

/// Returns the task of writes that belong to none.
fn no_task() -> TaskId {
    TaskId::from_bytes([0; 16])
}

/// Adds the form for the open interrupt of a head, and the value that was given already.
pub(super) fn form(screen: &Screen<'_>, html: &mut Html, head: &Snapshot) -> Result<(), Refusal> {
    if let Some(value) = given(head)? {
        html.classed("p", "given", &format!("resume value: {}; the next run goes on with it", brief(&value)));
    }
    let open = head.interrupts()?;
    if !screen.page.allows_write() {
        return Ok(());
    }
    let [(_, value)] = &open[..] else {
        html.classed("p", "dim", "Several interrupts are open: the program resumes them by their ids.");
        return Ok(());
    };
    let action = format!("{}/resume", address::point(head));
    html.within("form", &[("method", "post"), ("action", &action), ("class", "resume")], |html| {
        html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
        html.within("label", &[("dir", "auto")], |html| {
            html.text(&interrupt(value)).literal("<br>");
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

/// Returns the resume value that is stored for the first interrupt of a head.
pub(super) fn given(head: &Snapshot) -> Result<Option<Value>, Refusal> {
    let writes = head.writes()?;
    let stored = writes.iter().find(|write| write.task == no_task() && write.index == RESUME.1);
    Ok(stored.map(annals::store::WriteRecord::to_value).transpose()?)
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
    if at.interrupts()?.len() != 1 {
        return Err(Refusal::new(409, "conflict", "the checkpoint does not have one open interrupt"));
    }
    let payload = Encoded::encode(&value).map_err(|error| Refusal::usage(error.to_string()))?;
    let write = NewWrite::new(RESUME.1, RESUME.0, WriteValue::One(payload.into()));
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(at.id()));
    batch.writes.push(NewWrites::new(at.id(), no_task(), "").with(vec![write]));
    screen.store.commit(&batch)?;
    debug_assert!(given(at).is_ok_and(|given| given.is_some()), "the value is stored");
    Ok(Shown::To("/runs?status=interrupted".to_owned()))
}
