//! Time that passes when a test says so.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::{Clock, Timestamp};
use annals::{Sleep, Timer};

/// The clock of the store and the timer of its runs.
#[derive(Clone, Default)]
pub(crate) struct SimClock(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Duration,
    next: u64,
    waiting: BTreeMap<(Duration, u64), Waker>,
}

/// A wait for a moment.
struct Moment {
    clock: SimClock,
    place: (Duration, u64),
}

impl SimClock {
    /// Returns how many wait for a moment.
    pub(crate) fn awaited(&self) -> usize {
        self.0.lock().unwrap().waiting.len()
    }

    /// Goes on to the next moment that somebody waits for.
    pub(crate) fn go_on(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        let Some(((at, _), waker)) = state.waiting.pop_first() else { return state.now };
        state.now = state.now.max(at);
        let now = state.now;
        drop(state);
        waker.wake();
        now
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::default().saturating_add(self.0.lock().unwrap().now)
    }
}

impl Timer for SimClock {
    fn sleep(&self, pause: Duration) -> Sleep {
        let mut state = self.0.lock().unwrap();
        state.next += 1;
        let place = (state.now + pause, state.next);
        drop(state);
        Box::pin(Moment { clock: self.clone(), place })
    }
}

impl Future for Moment {
    type Output = ();

    fn poll(self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let mut state = self.clock.0.lock().unwrap();
        if state.now >= self.place.0 {
            return Poll::Ready(());
        }
        state.waiting.insert(self.place, waiting.waker().clone());
        Poll::Pending
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.clock.0.lock().unwrap().waiting.remove(&self.place);
    }
}
