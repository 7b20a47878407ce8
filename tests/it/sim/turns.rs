//! Who goes on next: asynchronous nodes wait here until the simulator lets one of them go.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Wake, Waker};

use super::Rng;
use super::disk::Disk;

/// The nodes that wait, and the log of what happened.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    waiting: Vec<(u64, String, Option<Waker>)>,
    open: BTreeSet<u64>,
    log: Vec<String>,
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

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Turns {
    /// Waits for a turn.
    pub(crate) fn wait(&self, label: &str) -> Turn {
        let mut state = self.0.lock().unwrap();
        state.next += 1;
        let id = state.next;
        state.waiting.push((id, label.to_owned(), None));
        Turn { turns: self.clone(), id }
    }

    /// Notes that something happened.
    pub(crate) fn note(&self, what: String) {
        self.0.lock().unwrap().log.push(what);
    }

    /// Returns what happened.
    pub(crate) fn log(&self) -> Vec<String> {
        self.0.lock().unwrap().log.clone()
    }

    /// Runs futures to their ends. Whenever none of them can go on, chance decides who may: a node, or the disk.
    pub(crate) fn run<T>(
        &self,
        mut futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>,
        disk: &Disk,
        rng: &mut Rng,
    ) -> Vec<T> {
        let mut ends: Vec<Option<T>> = futures.iter().map(|_| None).collect();
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        while ends.iter().any(Option::is_none) {
            while flag.0.swap(false, Ordering::SeqCst) {
                for (future, end) in futures.iter_mut().zip(&mut ends) {
                    if end.is_none()
                        && let Poll::Ready(value) = future.as_mut().poll(&mut Waiting::from_waker(&waker))
                    {
                        *end = Some(value);
                    }
                }
            }
            if ends.iter().all(Option::is_some) {
                break;
            }
            let nodes = self.0.lock().unwrap().waiting.len();
            let writes = disk.waiting();
            assert!(nodes + writes > 0, "nothing can go on: {:#?}", self.log());
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
            flag.0.store(true, Ordering::SeqCst);
        }
        ends.into_iter().flatten().collect()
    }
}
