//! The queue that a driver reads while it waits: ended tasks, and events of runs before their superstep ends.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::{Condvar, Mutex};

use crate::drive::run::call::Running;
use crate::exec::{Event, TaskOutcome};
use crate::limits::QUEUED_EVENTS_MAX;

/// A message to the driver that waits for the tasks of a run.
pub(in crate::drive) enum Notice {
    /// The task in this slot has ended.
    Ended(usize, TaskOutcome),
    /// Something to show at once.
    Shown(Event),
    /// A called task is to be polled.
    Called(Arc<Running>),
}

/// A queue of notices. The number of events is bounded. Ends of tasks need no bound, as each task ends once.
#[derive(Default)]
pub(in crate::drive) struct Feed {
    state: Mutex<QueueState>,
    came: Condvar,
    room: Condvar,
    /// True if the reader runs the tasks itself and cannot read meanwhile.
    unbounded: bool,
}

#[derive(Default)]
struct QueueState {
    queue: VecDeque<Notice>,
    shown: usize,
    closed: bool,
    /// The waker of the reader that polls for the next notice.
    waker: Option<Waker>,
    /// The number of readers that wait for work of other threads, and cannot read meanwhile.
    lifted: usize,
}

thread_local! {
    static POLLED: Cell<bool> = const { Cell::new(false) };
}

/// Polls a task. Its events do not wait for room: the reader is this very thread.
pub(super) fn while_polled<T>(poll: impl FnOnce() -> T) -> T {
    let outer = POLLED.replace(true);
    let result = poll();
    POLLED.set(outer);
    result
}

/// Returns whether this thread polls a task.
pub(in crate::drive) fn is_polled() -> bool {
    POLLED.get()
}

impl Feed {
    /// Makes a queue whose events do not wait for room.
    pub(in crate::drive) fn unbounded() -> Self {
        Self { unbounded: true, ..Self::default() }
    }

    /// Waits for work of another thread. If this is the thread that reads, events do not wait for room meanwhile.
    pub(in crate::drive) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        if !POLLED.get() {
            return wait();
        }
        self.state.lock().lifted += 1;
        self.room.notify_all();
        let result = wait();
        self.state.lock().lifted -= 1;
        result
    }

    /// Adds a notice. An event waits for room. Once the queue is closed, notices are dropped.
    pub(in crate::drive) fn push(&self, notice: Notice) {
        let mut state = self.state.lock();
        if matches!(notice, Notice::Shown(_)) {
            while state.shown >= QUEUED_EVENTS_MAX
                && !state.closed
                && !self.unbounded
                && state.lifted == 0
                && !POLLED.get()
            {
                self.room.wait(&mut state);
            }
            state.shown += 1;
        }
        if !state.closed {
            state.queue.push_back(notice);
            self.came.notify_one();
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Returns the next notice; if there is none, `waker` is woken when one comes.
    pub(super) fn poll_or_wake(&self, waker: &Waker) -> Option<Notice> {
        let mut state = self.state.lock();
        let notice = self.take(&mut state);
        if notice.is_none() {
            state.waker = Some(waker.clone());
        }
        notice
    }

    /// Waits for the next notice.
    pub(super) fn wait(&self) -> Notice {
        let mut state = self.state.lock();
        loop {
            if let Some(notice) = self.take(&mut state) {
                return notice;
            }
            self.came.wait(&mut state);
        }
    }

    /// Returns the next notice, if there is one.
    pub(super) fn poll(&self) -> Option<Notice> {
        self.take(&mut self.state.lock())
    }

    fn take(&self, state: &mut QueueState) -> Option<Notice> {
        let notice = state.queue.pop_front()?;
        if matches!(notice, Notice::Shown(_)) {
            state.shown -= 1;
            self.room.notify_one();
        }
        Some(notice)
    }

    /// Closes the queue: its notices are dropped, and events do not wait any more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        self.room.notify_all();
    }
}

/// The reading end of a queue. The drop of the reader closes the queue, so that no event waits for room.
pub(super) struct FeedReader(pub(super) Arc<Feed>);

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Namespace, Value};
    use crate::exec::EventKind;

    fn event(n: i64) -> Notice {
        Notice::Shown(Event { namespace: Namespace::root(), kind: EventKind::Custom(Value::from(n)) })
    }

    #[test]
    fn who_shows_more_than_is_read_waits_and_is_let_go_when_the_reader_leaves() {
        let feed = Arc::new(Feed::default());
        let writer = {
            let feed = Arc::clone(&feed);
            std::thread::spawn(move || (0..QUEUED_EVENTS_MAX as i64 + 2).for_each(|n| feed.push(event(n))))
        };
        for want in 0..2 {
            match feed.wait() {
                Notice::Shown(Event { kind: EventKind::Custom(value), .. }) => assert_eq!(value, Value::from(want)),
                _ => panic!("an event was pushed"),
            }
        }
        writer.join().unwrap();
        assert_eq!(feed.state.lock().shown, QUEUED_EVENTS_MAX);
        let late = {
            let feed = Arc::clone(&feed);
            std::thread::spawn(move || feed.push(event(-1)))
        };
        feed.close();
        late.join().unwrap();
        assert!(feed.poll().is_none());
    }
}
