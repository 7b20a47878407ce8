//! Running the tasks that nodes call: on the thread of the caller, or beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};

use crate::base::{Clock, SystemClock, Value};
use crate::error::Error;
use crate::exec::{
    CallJob, DebugPart, DebugPayload, Event, EventKind, NodeUpdate, RunError, TaskEnd, call_end, call_failed,
    call_messages, call_start, close_call, open_call, shown_result,
};
use crate::graph::{Call, CallOutcome, Called, Context, Done};
use crate::state::WritesView;
use crate::store::{Batch, NewWrites};

use super::host::RunHost;
use super::pool::{Pool, run_here};
use super::run::Durability;

/// A call that was started.
struct Running {
    host: Arc<RunHost>,
    state: Mutex<State>,
    ended: Condvar,
}

enum State {
    /// Nobody has begun it.
    Due(Box<CallJob>),
    Begun,
    Ended(Option<CallOutcome>),
}

/// Starts a call.
pub(super) fn start(host: Arc<RunHost>, context: &Context, call: Call) -> Arc<dyn Called> {
    let mut job = open_call(context, call);
    host.show_start(&job);
    let state = match job.stored.take() {
        Some(stored) => State::Ended(Some(CallOutcome::Done(Done::Stored(stored)))),
        None => State::Due(Box::new(job)),
    };
    let due = matches!(state, State::Due(_));
    let running = Arc::new(Running { host, state: Mutex::new(state), ended: Condvar::new() });
    if due && running.host.inline {
        running.run();
    } else if due && running.host.admit_call() {
        let beside = Arc::clone(&running);
        Pool::shared().spawn(Box::new(move || {
            beside.run();
            beside.host.calling.fetch_sub(1, Ordering::Relaxed);
        }));
    }
    // Else it is run by who waits for it.
    running
}

impl Running {
    /// Runs the call, if nobody has begun it. So whoever waits never waits for a free thread.
    fn run(&self) {
        let job = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Begun) {
                State::Due(job) => job,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        let outcome = self.outcome(&job);
        *self.state.lock() = State::Ended(Some(outcome));
        self.ended.notify_all();
    }

    fn outcome(&self, job: &CallJob) -> CallOutcome {
        let records = job.context.checkpoint().is_some();
        let shows = self.host.shows_calls(&job.context);
        let result = run_here(|| catch_unwind(AssertUnwindSafe(|| (job.call.run)(&job.context, records || shows))));
        let shown = match &result {
            Ok(Ok(returned)) if shows => returned.stored.as_ref().map(shown_result),
            _ => None,
        };
        let (outcome, writes) = close_call(job, result);
        if let Some(writes) = writes.filter(|_| records)
            && let Err(error) = self.host.record(&job.context, writes)
        {
            return CallOutcome::Failed(error.into());
        }
        match (&outcome, shown) {
            (CallOutcome::Done(_), Some(result)) => self.host.show_done(job, result),
            (CallOutcome::Failed(error), _) if shows => {
                self.host.show_end(job, call_end(job, WritesView::returned(None), Some(call_failed(job, error))));
            }
            _ => {}
        }
        outcome
    }
}

impl Called for Running {
    fn wait(&self) -> CallOutcome {
        self.finish();
        match &mut *self.state.lock() {
            State::Ended(outcome) => match outcome.take() {
                Some(outcome) => outcome,
                None => unreachable!("there is one handle, and it waits once"),
            },
            _ => unreachable!("the call has ended"),
        }
    }

    fn finish(&self) {
        self.run();
        if matches!(*self.state.lock(), State::Ended(_)) {
            return;
        }
        self.host.feed.while_waiting(|| {
            let mut state = self.state.lock();
            while !matches!(*state, State::Ended(_)) {
                self.ended.wait(&mut state);
            }
        });
    }
}

/// What is shown of calls.
impl RunHost {
    fn shows_calls(&self, context: &Context) -> bool {
        self.wants.show_calls() && self.shows(context.graph_namespace())
    }

    fn show_call(&self, job: &CallJob, kind: EventKind) {
        self.forward(Event { namespace: job.context.graph_namespace().clone(), kind });
    }

    fn debug_call(&self, job: &CallJob, payload: DebugPayload) {
        let part = DebugPart { step: job.context.step(), timestamp: SystemClock.now(), payload };
        self.show_call(job, EventKind::Debug(Box::new(part)));
    }

    fn show_start(&self, job: &CallJob) {
        if !self.shows_calls(&job.context) {
            return;
        }
        if self.wants.tasks {
            self.show_call(job, EventKind::TaskStart(call_start(job)));
        }
        if self.wants.debug {
            self.debug_call(job, DebugPayload::TaskStart(call_start(job)));
        }
    }

    fn show_done(&self, job: &CallJob, result: Value) {
        if self.wants.messages {
            for part in call_messages(job, &result) {
                self.show_call(job, EventKind::Message(Box::new(part)));
            }
        }
        let writes = WritesView::returned(Some(result));
        if self.wants.updates {
            let node = job.context.node().into();
            self.show_call(job, EventKind::Updates(NodeUpdate { node, writes: writes.clone(), cached: false }));
        }
        self.show_end(job, call_end(job, writes, None));
    }

    fn show_end(&self, job: &CallJob, end: TaskEnd) {
        if self.wants.tasks {
            self.show_call(job, EventKind::TaskEnd(end.clone()));
        }
        if self.wants.debug {
            self.debug_call(job, DebugPayload::TaskEnd(end));
        }
    }
}

impl RunHost {
    /// Takes a place for a call beside its caller, if fewer tasks run than may.
    fn admit_call(&self) -> bool {
        let free = self.calling.fetch_add(1, Ordering::Relaxed) < self.concurrency_max - 1;
        if !free {
            self.calling.fetch_sub(1, Ordering::Relaxed);
        }
        free
    }

    /// Stores what became of a call, as durably as the run stores a superstep, on the head that its graph stands at.
    fn record(&self, context: &Context, writes: NewWrites) -> Result<(), Error> {
        let thread = self.thread.as_ref().ok_or(RunError::NoStore)?;
        let store = thread.store();
        let namespace = context.graph_namespace().clone();
        let mut batch = Batch::new(thread.id().clone(), namespace, context.calls().head);
        batch.writes.push(writes);
        match self.durability {
            // The machine stores it if the run ends before its superstep has.
            Durability::Exit => {
                let Batch { namespace, writes, .. } = batch;
                self.calls.lock().extend(writes.into_iter().map(|writes| (namespace.clone(), writes)));
            }
            Durability::Sync => store.commit(&batch)?,
            Durability::Async => {
                let mut tickets = self.tickets.lock();
                tickets.push(store.submit(batch));
                let settled = tickets.iter().take_while(|ticket| ticket.is_settled()).count();
                let settled: Vec<_> = tickets.drain(..settled).collect();
                drop(tickets);
                for ticket in settled {
                    ticket.wait()?;
                }
            }
        }
        Ok(())
    }
}
