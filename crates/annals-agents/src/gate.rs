//! The gate between a run and the reader of its events: the run asks the model for more only when the reader does.
//!
//! Invariant: while a response streams in, the run is at most one batch of events ahead of its reader. *Absent:* the
//! run, and the response.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use annals_pydantic_ai::RequestUsage;
use parking_lot::Mutex;

use crate::event::AgentEvent;

/// The gate of a run that is read event by event.
#[derive(Default)]
pub(crate) struct EventGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    batches: VecDeque<Vec<AgentEvent>>,
    /// The number of batches that were shown.
    shown: u64,
    /// The number of batches that the reader has asked for.
    wanted: u64,
    /// The number of batches that the reader has taken.
    taken: u64,
    usage: RequestUsage,
    order: Option<GateOrder>,
    waker: Option<Waker>,
}

/// An order of the reader to a response that streams in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateOrder {
    /// The response ends here, and is stored as interrupted.
    Cancel,
    /// The reader is gone.
    Close,
}

impl EventGate {
    /// Waits until the reader wants more; returns its order if it gave one.
    pub(crate) async fn wanted(&self) -> Option<GateOrder> {
        poll_fn(|waiting| {
            let mut state = self.0.lock();
            if state.order.is_some() || state.shown < state.wanted {
                return Poll::Ready(state.order);
            }
            state.waker = Some(waiting.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Shows a batch of events, with the usage of the response so far.
    pub(crate) fn show(&self, batch: Vec<AgentEvent>, usage: Option<RequestUsage>) {
        let mut state = self.0.lock();
        state.batches.push_back(batch);
        state.shown += 1;
        state.usage = usage.unwrap_or_else(|| std::mem::take(&mut state.usage));
    }

    /// Takes the next batch.
    pub(crate) fn take(&self) -> Option<Vec<AgentEvent>> {
        let mut state = self.0.lock();
        let batch = state.batches.pop_front()?;
        state.taken += 1;
        Some(batch)
    }

    /// Lets the run go on until there is a batch that was not taken.
    pub(crate) fn want(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.wanted = state.taken + 1;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Gives an order.
    pub(crate) fn order(&self, order: GateOrder) {
        let waker = {
            let mut state = self.0.lock();
            state.order = Some(order);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the usage of the response so far.
    pub(crate) fn usage(&self) -> RequestUsage {
        self.0.lock().usage.clone()
    }
}
