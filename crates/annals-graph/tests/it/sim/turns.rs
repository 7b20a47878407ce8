//! Decides the order of turns: asynchronous nodes wait here until the simulator lets one of them go.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context as Waiting, Poll, Wake, Waker};
use std::time::Duration;

use annals_graph::task::RunControl;

use super::Rng;
use super::disk::Disk;
use crate::clock::SimClock;

/// The nodes that wait, and the log of what happened.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    waiting: Vec<(u64, String, Option<Waker>)>,
    open: BTreeSet<u64>,
    /// Number of waits for work on a thread.
    busy: usize,
    /// The run whose nodes do not wait: its driver blocks.
    blocking: Option<Blocking>,
    log: Vec<String>,
}

/// A run of the blocking driver.
struct Blocking {
    control: RunControl,
    /// The number of turns after which the run is drained.
    drain_after: Option<u64>,
}

/// The events that may happen to the runs of one round besides the turns of nodes and writes.
#[derive(Default)]
pub(crate) struct Fate {
    /// How often time goes on although something else could.
    pub(crate) haste: usize,
    /// Number of runs that are still to be cancelled or dropped.
    pub(crate) stops: usize,
    /// Number of runs that are still to be drained.
    pub(crate) drains: usize,
    /// The decision before which the runs are drained.
    pub(crate) drain_at: Option<u64>,
    /// Number of decisions so far.
    pub(crate) decisions: u64,
    /// The controls that drain and cancel the runs.
    pub(crate) controls: Vec<RunControl>,
}

/// Somebody waits for what runs on a thread. Until then nothing else happens.
pub(crate) struct Busy(Turns);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().busy -= 1;
    }
}

/// A node that waits for its turn.
pub(crate) struct Turn {
    turns: Turns,
    id: u64,
}

impl Future for Turn {
    type Output = ();

    fn poll(self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let mut state = self.turns.0.lock().unwrap();
        if state.open.remove(&self.id) {
            return Poll::Ready(());
        }
        if let Some(place) = state.waiting.iter_mut().find(|(id, ..)| *id == self.id) {
            place.2 = Some(waiting.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock().unwrap();
        state.waiting.retain(|(id, ..)| *id != self.id);
        state.open.remove(&self.id);
    }
}

/// Wake flag: true if a future has to be polled.
#[derive(Default)]
struct Flag(Mutex<bool>, Condvar);

impl Flag {
    fn raise(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    /// Lowers it. If it `waits`, that is when somebody has raised it.
    fn lower(&self, waits: bool) -> bool {
        let mut raised = self.0.lock().unwrap();
        while waits && !*raised {
            let (woken, timeout) = self.1.wait_timeout(raised, Duration::from_secs(60)).unwrap();
            assert!(*woken || !timeout.timed_out(), "what runs on a thread does not end");
            raised = woken;
        }
        std::mem::take(&mut raised)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
}

impl Turns {
    /// Waits for a turn.
    pub(crate) fn wait(&self, label: &str) -> Turn {
        let mut state = self.0.lock().unwrap();
        state.next += 1;
        let id = state.next;
        let Some(blocking) = &mut state.blocking else {
            state.waiting.push((id, label.to_owned(), None));
            return Turn { turns: self.clone(), id };
        };
        if blocking.drain_after == Some(0) {
            blocking.control.request_drain("by chance");
        }
        blocking.drain_after = blocking.drain_after.and_then(|turns| turns.checked_sub(1));
        state.open.insert(id);
        state.log.push(format!("{label} goes on"));
        Turn { turns: self.clone(), id }
    }

    /// Runs on this thread with the blocking driver, whose nodes have their turns at once.
    pub(crate) fn run_blocking<T>(&self, control: &RunControl, drain_after: Option<u64>, run: impl FnOnce() -> T) -> T {
        self.0.lock().unwrap().blocking = Some(Blocking { control: control.clone(), drain_after });
        let end = run();
        self.0.lock().unwrap().blocking = None;
        end
    }

    /// Says that somebody waits for what runs on a thread.
    pub(crate) fn busy(&self) -> Busy {
        self.0.lock().unwrap().busy += 1;
        Busy(self.clone())
    }

    fn is_busy(&self) -> bool {
        self.0.lock().unwrap().busy > 0
    }

    /// Notes that something happened.
    pub(crate) fn note(&self, what: String) {
        self.0.lock().unwrap().log.push(what);
    }

    /// Returns what happened.
    pub(crate) fn log(&self) -> Vec<String> {
        self.0.lock().unwrap().log.clone()
    }

    /// Runs futures to their ends. Whenever none of them can go on, chance decides who may: a node, the disk, or time;
    /// or a run is drained, cancelled or dropped. Returns nothing of a run that was dropped.
    pub(crate) fn run<T>(
        &self,
        futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>,
        disk: &Disk,
        clock: &SimClock,
        fate: &mut Fate,
        rng: &mut Rng,
    ) -> Vec<T> {
        let mut futures: Vec<Option<_>> = futures.into_iter().map(Some).collect();
        let mut ends: Vec<Option<T>> = futures.iter().map(|_| None).collect();
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&flag));
        loop {
            flag.raise();
            while flag.lower(self.is_busy()) {
                for (future, end) in futures.iter_mut().zip(&mut ends) {
                    if let Some(running) = future
                        && let Poll::Ready(value) = running.as_mut().poll(&mut Waiting::from_waker(&waker))
                    {
                        *end = Some(value);
                        *future = None;
                    }
                }
            }
            if futures.iter().all(Option::is_none) {
                return ends.into_iter().flatten().collect();
            }
            if fate.drain_at == Some(fate.decisions) || (fate.drains > 0 && rng.chance(6)) {
                fate.drains = fate.drains.saturating_sub(1);
                let at = rng.below(futures.len());
                fate.controls[at].request_drain("by chance");
                self.note(format!("run {at} is drained"));
            }
            fate.decisions += 1;
            if fate.stops > 0 && rng.chance(6) {
                fate.stops -= 1;
                let at = rng.below(futures.len());
                if rng.chance(60) {
                    fate.controls[at].cancel("by chance");
                    self.note(format!("run {at} is cancelled"));
                } else {
                    futures[at] = None;
                    self.note(format!("run {at} is dropped"));
                }
                continue;
            }
            self.go_on(disk, clock, fate, rng);
        }
    }

    /// Lets somebody go on.
    fn go_on(&self, disk: &Disk, clock: &SimClock, fate: &mut Fate, rng: &mut Rng) {
        let nodes = self.0.lock().unwrap().waiting.len();
        let writes = disk.waiting();
        let hastes = fate.haste > 0 && clock.awaited() > 0 && rng.chance(10);
        if hastes || nodes + writes == 0 {
            assert!(clock.awaited() > 0, "nothing can go on: {:#?}", self.log());
            fate.haste = fate.haste.saturating_sub(1);
            return self.note(format!("it is {:?}", clock.go_on()));
        }
        let chosen = rng.below(nodes + writes.min(2));
        if chosen < nodes {
            let mut state = self.0.lock().unwrap();
            let (id, label, waker) = state.waiting.remove(chosen);
            state.open.insert(id);
            state.log.push(format!("{label} goes on"));
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        } else {
            let what = disk.write_one();
            self.note(what.into());
        }
    }
}
