//! The control of a run from outside: cancel, pause, resume and retry, as commands, as a form, and as its write.
//!
//! The writes are those of [`Thread::cancel`](annals_runs::ThreadRuns::cancel), `pause`, `resume` and `retry`: a run
//! under way, also in another process, follows them. *Absent:* running the graph.

use annals::history::{Snapshot, ThreadInfo};
use annals_runs::{ThreadRuns, ThreadStatus};

use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;

/// A control of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlKind {
    Cancel,
    Pause,
    Resume,
    Retry,
}

impl ControlKind {
    const ALL: [Self; 4] = [Self::Retry, Self::Pause, Self::Resume, Self::Cancel];

    /// Returns the name: that of the command and of the button.
    fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
        }
    }

    /// Returns whether the control changes a thread.
    fn fits(self, info: &ThreadInfo) -> bool {
        match self {
            Self::Cancel => !matches!(ThreadStatus::of(info), ThreadStatus::Done | ThreadStatus::Cancelled(_)),
            Self::Pause => !info.facts.is_paused,
            Self::Resume => info.facts.is_paused,
            Self::Retry => matches!(ThreadStatus::of(info), ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)),
        }
    }
}

fn fitting(info: &ThreadInfo) -> impl Iterator<Item = ControlKind> {
    ControlKind::ALL.into_iter().filter(|control| control.fits(info))
}

/// Adds a button for each control that changes a thread.
pub(super) fn form(screen: &Screen<'_>, html: &mut Html, info: &ThreadInfo) {
    if !screen.page.allows_write() {
        return;
    }
    let action = format!("{}/control", address::thread(info.id().as_str()));
    html.within("form", &[("method", "post"), ("action", &action), ("class", "control")], |html| {
        html.open("input", &[("type", "hidden"), ("name", "form"), ("value", screen.page.form_token())]);
        for control in fitting(info) {
            let class = if control == ControlKind::Retry { "btn" } else { "btn bare" };
            let attributes = [("class", class), ("name", "control"), ("value", control.as_str())];
            html.element("button", &attributes, control.as_str());
            html.literal(" ");
        }
        if ControlKind::Cancel.fits(info) {
            let attributes = [("name", "reason"), ("size", "16"), ("placeholder", "reason of a cancel")];
            html.open("input", &[&attributes[..], &[("aria-label", "reason of a cancel")]].concat());
        }
    });
}

/// Returns the commands with the effects of the buttons.
pub(super) fn commands(screen: &Screen<'_>, info: &ThreadInfo) -> Vec<String> {
    fitting(info).map(|control| screen.command(&[control.as_str(), info.id().as_str()])).collect()
}

/// Applies the control of a form to the thread of a point.
pub(super) fn write(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    if !at.point().namespace.is_root() {
        return Err(Refusal::usage("a subgraph follows the graph that it is part of"));
    }
    let field = |name: &str| screen.form.as_ref().and_then(|form| form.get(name)).unwrap_or_default();
    let control = ControlKind::ALL.into_iter().find(|control| control.as_str() == field("control"));
    let control = control.ok_or_else(|| Refusal::usage("control is not one of cancel, pause, resume and retry"))?;
    let thread = screen.thread(at)?;
    let (has_changed, to) = match control {
        ControlKind::Cancel => (thread.cancel(field("reason").trim())?, "/?status=cancelled"),
        ControlKind::Pause => (thread.pause().map(|()| true)?, "/runs"),
        ControlKind::Resume => (thread.resume().map(|()| true)?, "/runs"),
        ControlKind::Retry => (thread.retry()?, "/runs?status=running"),
    };
    if !has_changed {
        let reason = match control {
            ControlKind::Retry => "no task of the thread has failed",
            _ => "the thread is done or cancelled",
        };
        return Err(Refusal::new(409, "conflict", reason));
    }
    Ok(Shown::To(to.to_owned()))
}
