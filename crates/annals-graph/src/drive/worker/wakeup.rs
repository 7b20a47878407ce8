//! The signals that end the wait of a worker: commits, ends of its runs, and requests to stop.
//!
//! Invariant: a signal after the counts were read ends a wait for these counts. *Absent:* the changes that are found
//! then.

use std::sync::Arc;
use std::time::Duration;

use crate::store::log::{LogSignal, LogWatch};
use crate::task::RunControl;

/// The signals of a worker.
pub(super) struct Wakeup {
    log: Arc<LogSignal>,
    /// Notified when a run ends, and by requests to stop.
    freed: Arc<LogSignal>,
    /// Held so that the control calls it.
    _on_request: Arc<dyn Fn() + Send + Sync>,
}

/// The counts of the signals.
#[derive(Clone, Copy)]
pub(super) struct SeenSignals {
    pub(super) log: u64,
    freed: u64,
}

impl Wakeup {
    /// Joins the signals of a log with the requests of a control.
    pub(super) fn of(signals: &LogWatch, control: &RunControl) -> Self {
        let (log, freed) = (Arc::clone(&signals.signal), Arc::new(LogSignal::default()));
        let notified = (Arc::clone(&log), Arc::clone(&freed));
        let on_request: Arc<dyn Fn() + Send + Sync> = Arc::new(move || notify(&notified.0, &notified.1));
        control.on_request(&on_request);
        Self { log, freed, _on_request: on_request }
    }

    /// Ends the wait of the worker: a run has ended.
    pub(super) fn notify(&self) {
        notify(&self.log, &self.freed);
    }

    /// Returns the counts.
    pub(super) fn seen(&self) -> SeenSignals {
        SeenSignals { log: self.log.count(), freed: self.freed.count() }
    }

    /// Gathers commits for some time, if this process has made one. Those of others do not come without a pause.
    pub(super) fn linger(&self, seen: SeenSignals, longest: Duration) {
        if self.log.count() != seen.log {
            self.wait_for_room(seen, longest);
        }
    }

    /// Waits until a thread is free, or for a request to stop, at most for a time.
    pub(super) fn wait_for_room(&self, seen: SeenSignals, longest: Duration) {
        self.freed.wait(seen.freed, longest);
    }
}

fn notify(log: &LogSignal, freed: &LogSignal) {
    freed.notify();
    log.notify();
}
