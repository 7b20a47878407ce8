//! The blocking driver: the machine on the calling thread, its tasks on this and other threads.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::drive::run::active_run::ActiveRun;
use crate::drive::run::attempt::{attempt, attempt_here, closed, wait_before};
use crate::drive::run::cache::look_up;
use crate::drive::run::commits::PendingCommits;
use crate::drive::run::host::RunHost;
use crate::error::Error;
use crate::exec::{Closing, Effect, Event, EventMask, Machine, Opened, Status, TaskJob, TaskOutcome, open};
use crate::graph::Work;
use crate::limits::NODE_THREADS_DEFAULT;
use crate::store::batch::Batch;
use crate::store::log::CommitHandle;

use super::feed::{FeedReader, Notice, while_polled};
use super::nonblocking::block_on;
use super::pool::{Pool, in_task, run_here};
use super::work_sharing::SharedTasks;

/// A run on the calling thread.
pub(in crate::drive) struct Driver {
    run: ActiveRun,
    commits: PendingCommits,
    due: VecDeque<Box<TaskJob>>,
    running: usize,
    /// True if the machine has received a notice since it was last asked for effects.
    told: bool,
    feed: FeedReader,
    /// The error that ends the run, held until the events before it are returned.
    failed: Option<Error>,
}

impl Driver {
    /// Makes the driver of a run.
    pub(in crate::drive) fn new(run: ActiveRun) -> Self {
        let feed = if run.inside { Arc::default() } else { Arc::clone(&run.host.feed) };
        let commits = PendingCommits::new(&run);
        Self { run, commits, due: VecDeque::new(), running: 0, told: true, feed: FeedReader(feed), failed: None }
    }

    /// Runs until there is an event, or until the run ends (`None`) with all its batches committed. Events before a
    /// failure are returned before its error.
    #[inline]
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, Error> {
        if !self.told
            && let Some(event) = self.run.poll_event()
        {
            return Ok(Some(event));
        }
        self.go_on()
    }

    /// Goes on until there is an event, as [`Self::next_event`].
    fn go_on(&mut self) -> Result<Option<Event>, Error> {
        loop {
            // The events of a superstep are returned after its commit is submitted.
            if self.told && self.failed.is_none() {
                self.failed = self.act().err();
                self.told = false;
            }
            if let Some(event) = self.run.poll_event() {
                return Ok(Some(event));
            }
            if let Some(error) = self.failed.take() {
                return self.run.end_if_cancelled(error).map(|()| None);
            }
            self.told = true;
            match self.wait() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return self.run.end_if_cancelled(error).map(|()| None),
            }
        }
    }

    /// Runs to the end. Its events go to the outermost driver.
    pub(in crate::drive) fn run(mut self) -> Result<Machine, Error> {
        loop {
            let acted = self.act();
            self.run.forward();
            match acted.and_then(|()| self.wait()) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => self.run.end_if_cancelled(error)?,
            }
            return Ok(self.run.machine);
        }
    }

    pub(super) fn into_machine(self) -> Machine {
        self.run.machine
    }

    /// Performs the effects that the machine requests.
    fn act(&mut self) -> Result<(), Error> {
        self.run.heed_control();
        while let Some(effect) = self.run.machine.poll_effect() {
            match effect {
                Effect::Commit(batch) => self.commit(batch)?,
                Effect::LookUp { slots, keys } => {
                    let found = self.run.cache().map_or_else(Vec::new, |cache| look_up(cache, &keys));
                    self.run.found(&slots, found);
                }
                Effect::Keep { key, value, lifetime } => self.run.keep(key, value, lifetime),
                // Another attempt goes on before the next task starts.
                Effect::Start(job) => {
                    self.run.host.verify_commits()?;
                    if job.context.attempt() > 1 { self.due.push_front(job) } else { self.due.push_back(job) }
                }
            }
        }
        match (&self.run.store, self.run.take_held()) {
            // It is the only commit of the run.
            (Some(store), Some(batch)) => {
                let store = store.clone();
                self.run.commit_awaited(&store, batch).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Waits for one notice. Returns whether the run goes on.
    fn wait(&mut self) -> Result<bool, Error> {
        if self.due.is_empty() && self.running == 0 {
            let ended = !matches!(self.run.machine.status(), Status::Running);
            if ended {
                self.wait_for_commits()?;
            }
            return Ok(!ended);
        }
        let alone = (self.due.len() == 1 || self.run.host.concurrency_max == 1) && self.running == 0;
        // On this thread a task could show nothing before it has ended.
        let wants = self.run.host.wants;
        let live = wants.are_live() || (wants.show_calls() && self.run.machine.is_entry());
        if in_task() || (alone && !live) {
            if let Some(job) = self.due.pop_front() {
                self.run_one(job);
            }
            return Ok(true);
        }
        // A task that is to be stopped where it waits must not hold up others.
        let stops = self.run.machine.is_timed();
        if self.run.store.is_none() && wants == EventMask::default() && self.running == 0 && !stops {
            self.share();
            return Ok(true);
        }
        while self.running < self.run.host.concurrency_max
            && let Some(job) = self.due.pop_front()
        {
            self.spawn(job);
        }
        let mut notice = Some(self.feed.0.wait());
        // Tasks that have ended meanwhile share the commit.
        while let Some(next) = notice {
            match next {
                Notice::Ended(slot, outcome) => {
                    debug_assert!(self.running > 0, "a task that ends was started");
                    self.running -= 1;
                    self.task_done(slot, outcome);
                }
                // It is handed out first, so that the queue stays bounded.
                Notice::Shown(event) => {
                    self.run.machine.show(event);
                    break;
                }
                // The waiting caller polls the call.
                Notice::Called(_) => {}
            }
            notice = self.feed.0.poll();
        }
        Ok(true)
    }

    /// Runs a task on this thread. Events of the task and of the tasks it called come before its end.
    fn run_one(&mut self, job: Box<TaskJob>) {
        let slot = job.slot;
        let host = &self.run.host;
        let run = || run_here(|| run_task(job, host));
        let outcome = if self.run.inside { run() } else { while_polled(run) };
        if self.run.host.wants != EventMask::default() {
            while let Some(Notice::Shown(event)) = self.feed.0.poll() {
                self.run.machine.show(event);
            }
        }
        self.task_done(slot, outcome);
    }

    /// Runs the tasks that are due on this thread and, if they take longer than others need to come, on others. This
    /// thread hears late that another has ended a task: this is for runs that keep and show nothing before their
    /// superstep has ended.
    fn share(&mut self) {
        self.running += self.due.len();
        let others = self.due.len().min(self.run.host.concurrency_max).min(NODE_THREADS_DEFAULT) - 1;
        let (feed, host) = (Arc::clone(&self.feed.0), Arc::clone(&self.run.host));
        let shared = Arc::new(SharedTasks::new(std::mem::take(&mut self.due), others, feed, Arc::clone(&host)));
        SharedTasks::call(&shared, 1);
        while let Some(job) = shared.next() {
            let slot = job.slot;
            let outcome = while_polled(|| run_here(|| run_task(job, &host)));
            self.running -= 1;
            self.task_done(slot, outcome);
        }
    }

    fn spawn(&mut self, job: Box<TaskJob>) {
        self.running += 1;
        let (feed, host) = (Arc::clone(&self.feed.0), Arc::clone(&self.run.host));
        Pool::shared().spawn(Box::new(move || {
            let slot = job.slot;
            feed.push(Notice::Ended(slot, run_task(job, &host)));
        }));
    }

    fn task_done(&mut self, slot: usize, outcome: TaskOutcome) {
        self.run.task_done(slot, outcome);
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        let Some(store) = self.run.store.clone() else { return Ok(()) };
        let goes_on = match self.run.next_commit(batch) {
            Some(batch) if self.run.host.awaits_commit() => self.run.commit_awaited(&store, batch)?,
            Some(batch) => self.commits.submit(&store, batch).map(|()| true)?,
            None => true,
        };
        if goes_on {
            self.run.machine.handle_committed();
        }
        Ok(())
    }

    fn wait_for_commits(&mut self) -> Result<(), Error> {
        let commits = self.commits.at_end(&self.run);
        if let (Some(store), false) = (&self.run.store, commits.iter().all(CommitHandle::is_settled)) {
            store.backend().flush();
        }
        while let Some(handle) = commits.front() {
            handle.wait()?;
            debug_assert!(handle.is_settled(), "a commit that was waited for is settled");
            commits.pop_front();
        }
        self.run.host.verify_commits()?;
        if let (Some(store), Some(batch)) = (&self.run.store, self.run.release()) {
            // If it cannot be stored, the lease expires.
            _ = store.commit(&batch);
        }
        self.run.report_end();
        Ok(())
    }
}

/// Runs a task on this thread, also one that waits without blocking.
pub(super) fn run_task(mut job: Box<TaskJob>, host: &RunHost) -> TaskOutcome {
    if !job.after.is_zero()
        && let Err(outcome) = block_on(async { wait_before(&job, host, host.timer()).await })
    {
        return outcome;
    }
    let (node, input) = match open(&mut job) {
        Opened::Node { node, input } => (node, input),
        Opened::Ended(outcome) => return outcome,
        Opened::Path(wait) => return block_on(closed(&job, Closing::Path(wait))),
    };
    let limited = job.context.life().is_limited();
    match &job.graph().nodes[node].body.work {
        Work::Either(run, _) if !limited => attempt_here(&job, input, run),
        Work::Blocking(run) => attempt_here(&job, input, run),
        Work::Async(start) | Work::Either(_, start) => block_on(async { attempt(&job, input, start, host).await }),
    }
}
