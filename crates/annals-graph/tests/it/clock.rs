//! Time that passes when a test says so.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use annals::base::{Clock, Timestamp};
use annals::store::MemoryBackend;
use annals_graph::prelude::*;
use annals_graph::{IntoInput, Sleep, Timer, block_on};

/// The clock of the store and the timer of its runs.
#[derive(Clone, Default)]
pub(crate) struct SimClock(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Duration,
    next: u64,
    waiting: BTreeMap<(Duration, u64), Waker>,
}

impl State {
    /// Takes out all who wait for a moment that has come.
    fn due(&mut self) -> BTreeMap<(Duration, u64), Waker> {
        let later = self.waiting.split_off(&(self.now, u64::MAX));
        std::mem::replace(&mut self.waiting, later)
    }
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

    /// Advances the clock to a timestamp, unless it has passed. Panics if a task waits for a timestamp.
    pub(crate) fn set(&self, to: Timestamp) {
        let mut state = self.0.lock().unwrap();
        assert!(state.waiting.is_empty());
        state.now = state.now.max(Duration::from_micros(to.as_micros() as u64));
    }

    /// Goes on to the next moment that somebody waits for, and wakes all who do.
    pub(crate) fn go_on(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        let Some((at, _)) = state.waiting.first_key_value().map(|(place, _)| *place) else { return state.now };
        state.now = state.now.max(at);
        let (now, woken) = (state.now, state.due());
        drop(state);
        woken.into_values().for_each(Waker::wake);
        now
    }

    /// Lets time pass, and wakes all who wait for a moment in it.
    pub(crate) fn pass(&self, time: Duration) {
        let mut state = self.0.lock().unwrap();
        state.now += time;
        let woken = state.due();
        drop(state);
        woken.into_values().for_each(Waker::wake);
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

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a graph on both drivers by a clock that goes on whenever so many wait for it, and checks what came of it and
/// how long that took.
pub(crate) fn by_the_clock<S, I, M>(
    waits: usize,
    build: impl Fn(&SimClock) -> CompiledGraph<S>,
    input: I,
    mut check: impl FnMut(&CompiledGraph<S>, &Thread, Duration, Result<Outcome<S>>),
) where
    S: Clone + Send + Sync + 'static,
    I: IntoInput<S, M> + Clone + Send + Sync,
{
    for blocking in [true, false] {
        let clock = SimClock::default();
        let graph = build(&clock);
        let options = OpenOptions::new().clock(clock.clone());
        let thread = Store::with_backend(Arc::new(MemoryBackend::new()), options).thread("t").unwrap();
        let outcome = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let run = graph.run(&thread).timer(clock.clone());
                if blocking { run.invoke(input.clone()) } else { block_on(run.ainvoke(input.clone())) }
            });
            while !run.is_finished() {
                if clock.awaited() >= waits {
                    clock.go_on();
                }
                std::thread::yield_now();
            }
            run.join().unwrap()
        });
        check(&graph, &thread, clock.elapsed(), outcome);
    }
}

/// Runs something while a clock goes on whenever so many wait for it and the test is ready for that.
pub(crate) fn beside<T>(clock: &SimClock, waits: usize, ready: impl Fn() -> bool + Sync, run: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                if ready() && clock.awaited() == waits {
                    clock.go_on();
                }
                std::thread::yield_now();
            }
        });
        // Also if it panics.
        let _ends = Ends(&ended);
        run()
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs something, and lets time pass once when so many wait for a moment. Who computes its moment meanwhile would wait
/// for one that is later by that time.
pub(crate) fn pass_when<T>(clock: &SimClock, time: Duration, waits: usize, run: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) && clock.awaited() < waits {
                std::thread::yield_now();
            }
            clock.pass(time);
        });
        // Also if it panics.
        let _ends = Ends(&ended);
        run()
    })
}
