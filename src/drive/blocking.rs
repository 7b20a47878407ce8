//! The blocking driver: the machine on the calling thread, its tasks on this and other threads.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::error::Error;
use crate::exec::{Effect, Event, Machine, Status, TaskJob, TaskOutcome, run_task};
use crate::store::{Store, Ticket};

use super::pool::{Pool, in_task, run_here};
use super::run::Durability;

/// A machine with what it runs on.
pub(super) struct Driver {
    machine: Machine,
    store: Option<Store>,
    durability: Durability,
    clock: crate::base::SystemClock,
    tickets: VecDeque<Ticket>,
    running: usize,
    done: (Sender<(usize, TaskOutcome)>, Receiver<(usize, TaskOutcome)>),
}

impl Driver {
    pub(super) fn new(machine: Machine, store: Option<Store>, durability: Durability) -> Self {
        let clock = crate::base::SystemClock;
        Self { machine, store, durability, clock, tickets: VecDeque::new(), running: 0, done: channel() }
    }

    /// Runs until there is an event, or the run ends (`None`) with everything it made committed.
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Ok(Some(event));
            }
            if !self.step()? {
                return Ok(None);
            }
        }
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> Result<Machine, Error> {
        while self.step()? {
            while self.machine.poll_event().is_some() {}
        }
        Ok(self.machine)
    }

    pub(super) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Does what the machine asks for, then waits for one fact. Returns whether the run goes on.
    fn step(&mut self) -> Result<bool, Error> {
        let mut starts = Vec::new();
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Commit(batch) => self.commit(batch)?,
                Effect::Start(job) => starts.push(job),
            }
        }
        if starts.is_empty() && self.running == 0 {
            let ended = !matches!(self.machine.status(), Status::Running);
            if ended {
                self.wait_for_commits()?;
            }
            return Ok(!ended);
        }
        if (starts.len() == 1 && self.running == 0) || in_task() {
            for job in starts {
                let slot = job.slot;
                let outcome = run_here(|| run_task(*job));
                self.task_done(slot, outcome);
            }
            return Ok(true);
        }
        for job in starts {
            self.spawn(job);
        }
        if let Ok((slot, outcome)) = self.done.1.recv() {
            self.running -= 1;
            self.task_done(slot, outcome);
        }
        // What has ended meanwhile shares the commit.
        while let Ok((slot, outcome)) = self.done.1.try_recv() {
            self.running -= 1;
            self.task_done(slot, outcome);
        }
        Ok(true)
    }

    fn spawn(&mut self, job: Box<TaskJob>) {
        self.running += 1;
        let sender = self.done.0.clone();
        Pool::shared().spawn(Box::new(move || {
            let slot = job.slot;
            // A run that has ended needs no answer.
            _ = sender.send((slot, run_task(*job)));
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
        match self.durability {
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
        if let (Some(store), false) = (&self.store, self.tickets.iter().all(Ticket::is_settled)) {
            store.backend().write_submitted();
        }
        while let Some(ticket) = self.tickets.pop_front() {
            ticket.wait()?;
        }
        Ok(())
    }
}
