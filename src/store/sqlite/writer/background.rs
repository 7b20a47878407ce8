//! The background thread of a file that is open for writing: it reclaims rows, empties the trash, and indexes texts.
//!
//! A task of the background does a bounded step, and says after which pause it goes on, so that other writers get the
//! lock. The thread starts with the first task that is woken. *Absent:* the contents of a step
//! ([`eraser`](crate::store::sqlite::remove::eraser),
//! [`search`](crate::store::sqlite::index::search)).
//!
//! Invariant: a task that is woken during its own step makes another one.

use super::role::SqliteWriter;
use crate::base::internal::Stopwatch;
use crate::limits::RECLAIM_RETRY;
use crate::store::error::StoreError;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A task of the background.
pub(crate) trait Upkeep: Send + Sync + 'static {
    /// Does a bounded part of the work. Returns the pause before the next part; `None` if the task has nothing to do
    /// until it is woken.
    fn step(&self, writer: &SqliteWriter, worker: &Background) -> Result<Option<Duration>, StoreError>;
}

/// The kinds of tasks: each is waiting at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UpkeepKind {
    Reclaim,
    Trash,
    Index,
}

/// The background of a file that is open for writing.
#[derive(Clone)]
pub(crate) struct Background(Arc<WorkerInner>);

struct WorkerInner {
    writer: Arc<SqliteWriter>,
    state: Mutex<WorkerState>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct WorkerState {
    /// The tasks that have work, each with the rest of its pause.
    waiting: BTreeMap<UpkeepKind, (Arc<dyn Upkeep>, Duration)>,
    is_stopping: bool,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("Background").field("waiting", &state.waiting.keys()).finish_non_exhaustive()
    }
}

impl Background {
    /// Makes a background whose thread does not run yet.
    pub(crate) fn new(writer: Arc<SqliteWriter>) -> Self {
        let (state, wake, thread) = Default::default();
        Self(Arc::new(WorkerInner { writer, state, wake, thread }))
    }

    /// Returns the writer of the file.
    pub(crate) fn writer(&self) -> &SqliteWriter {
        &self.0.writer
    }

    /// Lets the thread do the work of a task, from now on.
    pub(crate) fn wake(&self, kind: UpkeepKind, task: Arc<dyn Upkeep>) {
        self.wake_after(kind, task, Duration::ZERO);
    }

    /// Lets the thread do the work of a task after a pause.
    pub(crate) fn wake_after(&self, kind: UpkeepKind, task: Arc<dyn Upkeep>, pause: Duration) {
        self.0.state.lock().waiting.insert(kind, (task, pause));
        self.0.wake.notify_all();
        let mut thread = self.0.thread.lock();
        if thread.is_none() {
            let worker = self.clone();
            // Without a thread, the next call or the next open continues.
            *thread = std::thread::Builder::new().name("annals-worker".into()).spawn(move || worker.run()).ok();
        }
    }

    /// Ends the thread. The work that is left continues after the next open.
    pub(crate) fn stop(&self) {
        self.0.state.lock().is_stopping = true;
        self.0.wake.notify_all();
        let thread = self.0.thread.lock().take();
        // A thread that panicked leaves tombstones and texts that are not indexed, which is safe.
        _ = thread.map(JoinHandle::join);
    }

    fn run(&self) {
        while let Some((kind, task)) = self.next() {
            let step = Stopwatch::start();
            let done = task.step(&self.0.writer, self);
            let pause = match done {
                Ok(pause) => pause,
                // A handle that accepts no writes never will.
                Err(StoreError::HandleClosed { .. } | StoreError::FileReplaced { .. }) => return,
                Err(_) => Some(RECLAIM_RETRY),
            };
            let mut state = self.0.state.lock();
            state.pass(step.elapsed());
            if let Some(pause) = pause {
                state.waiting.entry(kind).or_insert((task, pause));
            }
        }
    }

    /// Waits for a task whose pause is over; `None` once the worker is to stop.
    fn next(&self) -> Option<(UpkeepKind, Arc<dyn Upkeep>)> {
        let mut state = self.0.state.lock();
        while !state.is_stopping {
            let first = state.waiting.iter().map(|(kind, (_, pause))| (*pause, *kind)).min();
            match first {
                None => self.0.wake.wait(&mut state),
                Some((Duration::ZERO, kind)) => return state.waiting.remove(&kind).map(|(task, _)| (kind, task)),
                Some((pause, _)) => {
                    let wait = Stopwatch::start();
                    let timed_out = self.0.wake.wait_for(&mut state, pause).timed_out();
                    state.pass(if timed_out { pause } else { wait.elapsed() });
                }
            }
        }
        None
    }
}

impl WorkerState {
    /// Shortens all pauses by a duration.
    fn pass(&mut self, duration: Duration) {
        self.waiting.values_mut().for_each(|(_, pause)| *pause = pause.saturating_sub(duration));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::tests::{Bench, GUARD, until};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A task of so many steps, each after a pause.
    struct CountedSteps {
        done: AtomicU32,
        steps: u32,
        fails: bool,
    }

    impl Upkeep for CountedSteps {
        fn step(&self, _writer: &SqliteWriter, _worker: &Background) -> Result<Option<Duration>, StoreError> {
            let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
            if self.fails {
                return Err(StoreError::HandleClosed { reason: "it is closed".into() });
            }
            Ok((done < self.steps).then_some(Duration::from_millis(1)))
        }
    }

    fn background() -> (Bench, Background) {
        let bench = Bench::new();
        let worker = Background::new(Arc::clone(bench.store.writer.as_ref().unwrap()));
        (bench, worker)
    }

    /// Waits until a task has done its steps.
    fn reaches(task: &CountedSteps, steps: u32) {
        until("the steps are done", || task.done.load(Ordering::SeqCst) >= steps);
    }

    #[test]
    fn a_task_goes_on_after_its_pauses_and_is_woken_again() {
        let (_bench, worker) = background();
        let task = Arc::new(CountedSteps { done: AtomicU32::new(0), steps: 3, fails: false });
        worker.wake(UpkeepKind::Index, Arc::clone(&task) as Arc<dyn Upkeep>);
        reaches(&task, 3);
        worker.wake_after(UpkeepKind::Trash, Arc::clone(&task) as Arc<dyn Upkeep>, Duration::from_millis(2));
        reaches(&task, 4);
        worker.stop();
        assert_eq!(task.done.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_stopped_background_does_nothing_more() {
        let (_bench, worker) = background();
        let task = Arc::new(CountedSteps { done: AtomicU32::new(0), steps: 9, fails: false });
        worker.wake_after(UpkeepKind::Reclaim, Arc::clone(&task) as Arc<dyn Upkeep>, GUARD);
        assert_eq!(format!("{worker:?}"), "Background { waiting: [Reclaim], .. }");
        worker.stop();
        assert_eq!(task.done.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_task_of_a_closed_handle_ends_the_thread() {
        let (_bench, worker) = background();
        let task = Arc::new(CountedSteps { done: AtomicU32::new(0), steps: 9, fails: true });
        worker.wake(UpkeepKind::Reclaim, Arc::clone(&task) as Arc<dyn Upkeep>);
        reaches(&task, 1);
        worker.stop();
        assert_eq!(task.done.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_pause_gets_shorter_by_the_time_that_passes() {
        let mut state = WorkerState::default();
        for (kind, millis) in [(UpkeepKind::Reclaim, 5), (UpkeepKind::Trash, 2)] {
            let task = Arc::new(CountedSteps { done: AtomicU32::new(0), steps: 1, fails: false });
            state.waiting.insert(kind, (task, Duration::from_millis(millis)));
        }
        state.pass(Duration::from_millis(3));
        let pauses: Vec<_> = state.waiting.values().map(|(_, pause)| pause.as_millis()).collect();
        assert_eq!(pauses, [2, 0]);
    }
}
