//! Work sharing: the tasks of a superstep that a driver runs itself, and the threads that help it.
//!
//! To wake a thread costs as much as fifty small tasks. So a thread that was called first looks whether the tasks go by
//! without it; if one takes longer than [`TASKS_ALONE`], it calls two more and takes part. *Absent:* what ended tasks
//! mean.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::drive::run::host::RunHost;
use crate::elapsed::ElapsedTime;
use crate::exec::TaskJob;
use crate::limits::TASKS_ALONE;

use super::blocking::run_task;
use super::feed::{Feed, Notice};
use super::pool::Pool;

/// Tasks from which each thread takes the next one.
pub(super) struct SharedTasks {
    due: Mutex<VecDeque<Box<TaskJob>>>,
    /// The number of tasks in `due`, for readers without the lock.
    left: AtomicUsize,
    /// The number of threads that may still be called.
    calls: AtomicUsize,
    feed: Arc<Feed>,
    host: Arc<RunHost>,
}

impl SharedTasks {
    /// Makes the tasks of a driver that `others` threads at most may help.
    pub(super) fn new(due: VecDeque<Box<TaskJob>>, others: usize, feed: Arc<Feed>, host: Arc<RunHost>) -> Self {
        let left = AtomicUsize::new(due.len());
        Self { due: Mutex::new(due), left, calls: AtomicUsize::new(others), feed, host }
    }

    /// Takes the next task.
    pub(super) fn next(&self) -> Option<Box<TaskJob>> {
        let mut due = self.due.lock();
        let job = due.pop_front();
        self.left.store(due.len(), Ordering::Release);
        job
    }

    /// Calls up to `count` threads.
    pub(super) fn call(shared: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let fewer = |calls: usize| calls.checked_sub(1);
            if shared.calls.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_err() {
                return;
            }
            let shared = Arc::clone(shared);
            Pool::shared().spawn(Box::new(move || Self::help(&shared)));
        }
    }

    fn help(shared: &Arc<Self>) {
        shared.look_on();
        let mut called = false;
        while let Some(job) = shared.next() {
            if !std::mem::replace(&mut called, true) {
                Self::call(shared, 2);
            }
            let slot = job.slot;
            shared.feed.push(Notice::Ended(slot, run_task(job, &shared.host)));
        }
    }

    /// Returns when no task was taken for [`TASKS_ALONE`], or none is left.
    fn look_on(&self) {
        let mut left = self.left.load(Ordering::Acquire);
        let mut since = ElapsedTime::start();
        while left > 0 && since.elapsed() < TASKS_ALONE {
            std::thread::yield_now();
            let now = self.left.load(Ordering::Acquire);
            if now != left {
                (left, since) = (now, ElapsedTime::start());
            }
        }
    }
}
