//! Signals, resume values and cancels, which other callers store for a run.
//!
//! Signals are given to the tasks of a thread before a run loads its head, and after a run has stored interrupts. A
//! cancel is noticed by a run with a lease between two commits, and by any run when a commit is refused. A streamed
//! message that was cut off is kept by the next input. *Absent:* the rules of these changes, which are those of
//! `history`.

use annals_runs::ThreadRuns;
use std::sync::Arc;

use crate::drive::io::pool::unblock;
use crate::error::Error;
use crate::exec::{Head, Machine, PendingWrites, RunStart, given_of};
use crate::graph::{Command, Graph};
use crate::history::Thread;
use crate::run::Loaded;
use crate::state::erased::resolve;
use crate::state::{DynUpdate, Writes};
use crate::store::{CheckpointRef, StoreError};
use crate::task::Interrupt;

use super::active_run::ActiveRun;
use super::builder::RunSettings;
use super::load;
use super::outcome::Outcome;
use super::snapshot::partial_of;
use super::target::RunTarget;

/// Gives signals to the tasks that wait for them at a loaded head, and loads the head again if there were any.
pub(super) fn with_signals(
    graph: &Arc<Graph>,
    thread: &Thread,
    at: Option<&CheckpointRef>,
    start: &RunStart,
    loaded: Loaded,
) -> Result<Loaded, Error> {
    let receives = || loaded.head.open().iter().any(|interrupt| interrupt.signal.is_some());
    let continues = matches!(start, RunStart::Continue | RunStart::Command(_) | RunStart::Repeat(_));
    if !continues || at.is_some() || !receives() || !thread.deliver_signals()? {
        return Ok(loaded);
    }
    load::load(graph, thread, at)
}

/// Adds the partial messages at the head to an input, which abandons their tasks: they are kept with the mark of
/// messages that were cut off, before those of the input. One of a channel that holds no messages in this graph stays
/// at its checkpoint.
pub(super) fn with_partials(graph: &Graph, start: RunStart, loaded: &Loaded, addressed: bool) -> RunStart {
    let RunStart::Input(writes) = start else { return start };
    let is_open = |of: &&PendingWrites| of.writes.iter().all(|write| write.index < 0);
    // One that another program wrote in a form of its own refuses no run.
    let pending = loaded.head.pending.iter().filter(|of| !addressed && is_open(of));
    let partials = pending.filter_map(|of| partial_of(of).ok().flatten());
    let mut partials = partials.peekable();
    if partials.peek().is_none() {
        return RunStart::Input(writes);
    }
    let mut list: Vec<_> = writes.into_iter().collect();
    for partial in partials {
        let kept = DynUpdate::new().messages(partial.channel.as_str(), [partial.aborted()]);
        if let Ok(kept) = resolve(&*graph.layout, kept.into()) {
            let at = partial.place_among(&*graph.layout, &list).unwrap_or(0);
            list.splice(at..at, kept);
        }
    }
    let mut writes = Writes::default();
    list.into_iter().for_each(|(field, write)| writes.push_box(field, write));
    RunStart::Input(writes)
}

/// Verifies that a run may continue a thread: not one that was cancelled, and with a resume value only one whose tasks
/// are due, unless it takes all resume values.
///
/// # Errors
/// [`StoreError::ThreadEnded`].
pub(super) fn verify_continues(
    thread: &Thread,
    start: &RunStart,
    loaded: &Loaded,
    takes_all: bool,
) -> Result<(), Error> {
    let continues = matches!(start, RunStart::Continue | RunStart::Command(_));
    if !continues || !loaded.head.recorded.is_empty() || loaded.head.is_blank() {
        return Ok(());
    }
    let ended = |status| Err(StoreError::ThreadEnded { thread: thread.id().clone(), status }.into());
    if cancel_in(&loaded.head).is_some() {
        return ended("cancelled");
    }
    let resumes = |command: &Command| {
        let is_given = command.resume.as_ref().is_some_and(|value| !value.is_null());
        is_given && command.update.is_empty() && command.goto.is_empty()
    };
    match start {
        RunStart::Command(command) if !takes_all && resumes(command) => ended("done"),
        _ => Ok(()),
    }
}

/// Returns the reason for which a head cancels its thread.
fn cancel_in(head: &Head) -> Option<String> {
    let metadata = head.metadata.as_deref().filter(|metadata| metadata.contains("cancelled"))?;
    match serde_json::from_str::<serde_json::Value>(metadata).ok()?.get("cancelled")? {
        serde_json::Value::Null | serde_json::Value::Bool(false) => None,
        reason => Some(reason.as_str().unwrap_or_default().to_owned()),
    }
}

/// Returns the reason of the cancel that ended a run whose outcome is shown.
pub(super) fn cancelled_end(start: &RunStart, head: &Head) -> Option<String> {
    if matches!(start, RunStart::Show) { cancel_in(head) } else { None }
}

/// Returns a machine that shows the outcome of an earlier run, which a cancel may have ended.
pub(super) fn shown(mut machine: Machine, cancelled: Option<String>) -> Machine {
    cancelled.into_iter().for_each(|reason| machine.end_cancelled(reason));
    machine
}

/// Returns the resume values that were stored from outside for a run that begins at the head.
pub(super) fn given(loaded: &Loaded, addressed: bool) -> Option<crate::base::Map> {
    if addressed { None } else { given_of(&loaded.head) }
}

impl ActiveRun {
    /// Ends a run as cancelled if it failed because its thread was cancelled from outside.
    ///
    /// # Errors
    /// The failure, if that was not so.
    pub(in crate::drive) fn end_if_cancelled(&mut self, failed: Error) -> Result<(), Error> {
        let thread = self.thread_of_conflict(&failed);
        let reason = thread.and_then(|thread| thread.cancel_reason().ok().flatten());
        self.end_cancelled(reason, failed)
    }

    /// As [`Self::end_if_cancelled`], without blocking.
    pub(in crate::drive) async fn end_if_cancelled_async(&mut self, failed: Error) -> Result<(), Error> {
        let reason = match self.thread_of_conflict(&failed).cloned() {
            Some(thread) => {
                let store = thread.store().clone();
                unblock(&store, move || thread.cancel_reason().ok().flatten()).await
            }
            None => None,
        };
        self.end_cancelled(reason, failed)
    }

    /// Returns the thread of an outermost run that lost a race: a cancel may have won it.
    fn thread_of_conflict(&self, failed: &Error) -> Option<&Thread> {
        self.host.thread.as_ref().filter(|_| !self.inside && failed.is_conflict())
    }

    fn end_cancelled(&mut self, reason: Option<String>, failed: Error) -> Result<(), Error> {
        let Some(reason) = reason else { return Err(failed) };
        self.machine.end_cancelled(reason);
        Ok(())
    }
}

/// Returns the thread of a run that has stored interrupts: signals for its tasks may have come meanwhile.
pub(in crate::drive) fn receiving_thread<'t, S>(target: &'t RunTarget, outcome: &Outcome<S>) -> Option<&'t Thread> {
    target.thread.as_ref().filter(|_| target.inside.is_none() && !outcome.interrupts().is_empty())
}

/// Gives the tasks of a run that has stored interrupts the signals that have come meanwhile. Returns whether one of
/// them is due.
pub(in crate::drive) fn deliver_after<S>(target: &RunTarget, outcome: &Outcome<S>) -> Result<bool, Error> {
    receiving_thread(target, outcome).map_or(Ok(false), |thread| Ok(thread.deliver_signals()?))
}

/// Gives the tasks of a [`receiving_thread`] its signals, without blocking. Returns whether one of them is due.
pub(in crate::drive) async fn deliver_async(thread: Thread) -> Result<bool, Error> {
    let store = thread.store().clone();
    Ok(unblock(&store, move || thread.deliver_signals()).await?)
}

/// Returns the ids of the interrupts of a run that receive signals.
fn receives_of<S>(outcome: &Outcome<S>) -> Vec<String> {
    let receives = outcome.interrupts().iter().filter(|interrupt| interrupt.signal.is_some());
    receives.map(|interrupt| interrupt.id.to_string()).collect()
}

/// Gives the tasks of a run that has stopped the signals that have come meanwhile. Returns whether one of them is due,
/// also if a sender was faster and has given its signal itself. A run that another owner continues is left to it.
fn gives(thread: &Thread, receives: &[String]) -> Result<bool, StoreError> {
    if thread.deliver_signals()? {
        return Ok(true);
    }
    if receives.is_empty() || thread.last_lease()?.is_some_and(|lease| lease.is_live(thread.store().now())) {
        return Ok(false);
    }
    let open = thread.open_interrupts()?;
    Ok(receives.iter().any(|id| open.iter().all(|interrupt| interrupt.id != *id)))
}

/// The receives at which a run stopped last, so that it goes on only with a signal.
#[derive(Default)]
pub(super) struct Receives(Vec<Interrupt>);

impl Receives {
    /// Gives the tasks of a run that has ended the signals that are there already. Returns whether the run goes on at
    /// once: with the settings of a run that continues another one.
    pub(super) fn go_on<S>(
        &mut self,
        target: &RunTarget,
        outcome: &Outcome<S>,
        settings: &RunSettings,
    ) -> Result<Option<RunSettings>, Error> {
        let is_new = outcome.interrupts() != self.0;
        let delivered = match receiving_thread(target, outcome) {
            Some(thread) if is_new => gives(thread, &receives_of(outcome))?,
            _ => false,
        };
        Ok(self.settings_after(delivered, target, outcome, settings))
    }

    /// As [`Self::go_on`], without blocking.
    pub(super) async fn go_on_async<S>(
        &mut self,
        target: &RunTarget,
        outcome: &Outcome<S>,
        settings: &RunSettings,
    ) -> Result<Option<RunSettings>, Error> {
        let delivered = match receiving_thread(target, outcome) {
            Some(thread) if outcome.interrupts() != self.0 => {
                let (thread, receives, store) = (thread.clone(), receives_of(outcome), thread.store().clone());
                unblock(&store, move || gives(&thread, &receives)).await?
            }
            _ => false,
        };
        Ok(self.settings_after(delivered, target, outcome, settings))
    }

    fn settings_after<S>(
        &mut self,
        delivered: bool,
        target: &RunTarget,
        outcome: &Outcome<S>,
        settings: &RunSettings,
    ) -> Option<RunSettings> {
        if !delivered {
            return None;
        }
        let interrupts = outcome.interrupts();
        self.0 = interrupts.to_vec();
        // A run without a receive ends here: the next one takes the resume value.
        let receives = interrupts.iter().any(|interrupt| interrupt.signal.is_some());
        let stops = settings.control.drain_reason().is_some() || settings.control.cancel_reason().is_some();
        let goes_on = receives && !stops && target.at.is_none();
        goes_on.then(|| {
            let mut settings = settings.clone();
            // The lease was released at the end of the run before.
            settings.key = None;
            settings
        })
    }
}
