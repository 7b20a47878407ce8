//! The blocking driver: the machine on the calling thread, its tasks on this and other threads.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::exec::{Effect, Event, Machine, Status, TaskJob, TaskOutcome, run_task};
use crate::store::{Store, Ticket};

use super::feed::{Fact, Feed, Reader};
use super::host::RunHost;
use super::pool::{Pool, in_task, run_here};
use super::run::Durability;

/// A machine with what it runs on.
pub(super) struct Driver {
    machine: Machine,
    store: Option<Store>,
    host: Arc<RunHost>,
    /// Whether it runs inside a task of another run.
    inside: bool,
    clock: crate::base::SystemClock,
    tickets: VecDeque<Ticket>,
    due: VecDeque<Box<TaskJob>>,
    running: usize,
    feed: Reader,
    /// What nodes showed, and has not been handed out.
    shown: VecDeque<Event>,
}

impl Driver {
    /// Makes the driver of an outermost run.
    pub(super) fn new(machine: Machine, store: Option<Store>, host: Arc<RunHost>) -> Self {
        let feed = Arc::clone(&host.feed);
        Self::on(machine, store, host, feed, false)
    }

    /// Makes the driver of a run inside a task.
    pub(super) fn inside(machine: Machine, store: Option<Store>, host: Arc<RunHost>) -> Self {
        Self::on(machine, store, host, Arc::default(), true)
    }

    fn on(machine: Machine, store: Option<Store>, host: Arc<RunHost>, feed: Arc<Feed>, inside: bool) -> Self {
        Self {
            machine,
            store,
            host,
            inside,
            clock: crate::base::SystemClock,
            tickets: VecDeque::new(),
            due: VecDeque::new(),
            running: 0,
            feed: Reader(feed),
            shown: VecDeque::new(),
        }
    }

    /// Runs until there is an event, or the run ends (`None`) with everything it made committed.
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.shown.pop_front().or_else(|| self.machine.poll_event()) {
                return Ok(Some(event));
            }
            if !self.step()? {
                return Ok(None);
            }
        }
    }

    /// Runs to the end. What it shows goes to the outermost driver.
    pub(super) fn run(mut self) -> Result<Machine, Error> {
        loop {
            let goes_on = self.step()?;
            while let Some(event) = self.machine.poll_event() {
                if self.inside {
                    self.host.forward(event);
                }
            }
            if !goes_on {
                return Ok(self.machine);
            }
        }
    }

    pub(super) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Does what the machine asks for, then waits for one fact. Returns whether the run goes on.
    fn step(&mut self) -> Result<bool, Error> {
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Commit(batch) => self.commit(batch)?,
                Effect::Start(job) => self.due.push_back(job),
            }
        }
        if self.due.is_empty() && self.running == 0 {
            let ended = !matches!(self.machine.status(), Status::Running);
            if ended {
                self.wait_for_commits()?;
            }
            return Ok(!ended);
        }
        let alone = (self.due.len() == 1 || self.host.concurrency_max == 1) && self.running == 0;
        // On this thread a task could show nothing before it has ended.
        if in_task() || (alone && !self.host.wants.are_live()) {
            if let Some(job) = self.due.pop_front() {
                let slot = job.slot;
                let outcome = run_here(|| run_task(*job));
                self.task_done(slot, outcome);
            }
            return Ok(true);
        }
        while self.running < self.host.concurrency_max
            && let Some(job) = self.due.pop_front()
        {
            self.spawn(job);
        }
        let mut fact = Some(self.feed.0.wait());
        // What has ended meanwhile shares the commit.
        while let Some(next) = fact {
            match next {
                Fact::Ended(slot, outcome) => {
                    self.running -= 1;
                    self.task_done(slot, outcome);
                }
                Fact::Shown(event) => self.shown.push_back(event),
            }
            fact = self.feed.0.poll();
        }
        Ok(true)
    }

    fn spawn(&mut self, job: Box<TaskJob>) {
        self.running += 1;
        let feed = Arc::clone(&self.feed.0);
        Pool::shared().spawn(Box::new(move || {
            let slot = job.slot;
            feed.push(Fact::Ended(slot, run_task(*job)));
        }));
    }

    fn task_done(&mut self, slot: usize, outcome: TaskOutcome) {
        let now = match &self.store {
            Some(store) => store.now(),
            None => crate::base::Clock::now(&self.clock),
        };
        self.machine.handle_task_done(slot, outcome, now);
    }

    fn commit(&mut self, batch: crate::store::Batch) -> Result<(), Error> {
        let Some(store) = &self.store else { return Ok(()) };
        match self.host.durability {
            Durability::Sync => store.commit(&batch)?,
            Durability::Async => {
                while self.tickets.front().is_some_and(Ticket::is_settled) {
                    if let Some(ticket) = self.tickets.pop_front() {
                        ticket.wait()?;
                    }
                }
                self.tickets.push_back(store.submit(batch));
            }
        }
        self.machine.handle_committed();
        Ok(())
    }

    fn wait_for_commits(&mut self) -> Result<(), Error> {
        if self.inside {
            // The outermost run waits for them, once.
            self.host.tickets.lock().extend(self.tickets.drain(..));
            return Ok(());
        }
        self.tickets.extend(self.host.tickets.lock().drain(..));
        if let (Some(store), false) = (&self.store, self.tickets.iter().all(Ticket::is_settled)) {
            store.backend().write_submitted();
        }
        while let Some(ticket) = self.tickets.pop_front() {
            ticket.wait()?;
        }
        Ok(())
    }
}
