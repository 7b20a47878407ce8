//! A run in progress, under either driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{Clock, Encoded, Namespace, SystemClock, Timestamp};
use crate::drive::io::pool::unblock;
use crate::drive::worker::lease::Renewal;
use crate::error::Error;
use crate::exec::{Event, EventMask, Machine, Status, TaskOutcome};
use crate::store::batch::Batch;
use crate::store::{Cache, CacheKey, Store, StoreError};
use crate::task::Context;

use super::events::{EndReport, RunEventKind};
use super::host::RunHost;

/// A machine with its store and its host.
pub(in crate::drive) struct ActiveRun {
    /// The renewal of the lease of an outermost run. Dropped first, it still finds the host and releases the lease.
    renewal: Option<Renewal>,
    /// The report of the end of an outermost run.
    pub(super) end: EndReport,
    pub(in crate::drive) machine: Machine,
    pub(in crate::drive) store: Option<Store>,
    pub(in crate::drive) host: Arc<RunHost>,
    /// True if it runs inside a task of another run.
    pub(in crate::drive) inside: bool,
    /// The kinds of events that its own caller subscribed to.
    pub(super) wants: EventMask,
    /// Marks the tasks of the run as abandoned when it is dropped.
    _over: Over,
}

/// Drop guard: marks the run as abandoned, and tells the session of a subgraph that it is gone.
struct Over {
    over: Arc<AtomicBool>,
    host: Arc<RunHost>,
    /// The namespace of a subgraph, and the number of batches that were held back when it began.
    subgraph: Option<(Namespace, usize)>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some((namespace, from)) = &self.subgraph {
            self.host.session.lock().dropped(namespace, *from);
        }
    }
}

impl ActiveRun {
    /// Makes the run of an outermost graph, or that of a subgraph, which began when so many batches were held back.
    pub(super) fn new(
        machine: Machine,
        store: Option<Store>,
        host: Arc<RunHost>,
        held: Option<usize>,
        wants: EventMask,
    ) -> Self {
        let subgraph = held.map(|held| (machine.namespace().clone(), held));
        let inside = subgraph.is_some();
        let _over = Over { over: Arc::clone(machine.over()), host: Arc::clone(&host), subgraph };
        Self { renewal: None, end: EndReport::none(), machine, store, host, inside, wants, _over }
    }

    /// Sets the renewal of the lease and the report of the end of an outermost run.
    pub(super) fn with(self, renewal: Option<Renewal>, end: EndReport) -> Self {
        Self { renewal, end, ..self }
    }

    /// Reports how the run has ended, when its commits are stored.
    pub(in crate::drive) fn report_end(&mut self) {
        self.end.ended(self.machine.status());
    }

    /// Returns the batch that releases the lease of a run at its end, if its last commit has not done so.
    pub(in crate::drive) fn release(&self) -> Option<Batch> {
        let batch = self.renewal.as_ref().and_then(Renewal::release)?;
        // The chain of the run may have ended.
        let chain = self.host.session.lock().chain().begin_another();
        Some(chain.append(batch))
    }

    /// Tells the machine that the run was cancelled, if it was.
    pub(in crate::drive) fn heed_control(&mut self) {
        if let Some(reason) = self.machine.control().cancel_reason() {
            self.machine.cancel(reason);
        }
    }
    /// Returns the present moment of the clock of the store.
    pub(super) fn now(&self) -> Timestamp {
        self.store.as_ref().map_or_else(|| SystemClock.now(), Store::now)
    }

    /// Tells the machine how a task has ended.
    pub(in crate::drive) fn task_done(&mut self, slot: usize, outcome: TaskOutcome) {
        let now = self.now();
        self.heed_control();
        if let Some(above) = self.machine.above() {
            above.progress();
        }
        if let (TaskOutcome::Failed { error, .. }, Some(events)) = (&outcome, &self.host.events) {
            let (node, task, attempt) = self.machine.attempt_in(slot);
            events.report(RunEventKind::AttemptFailed { node, task, attempt, error: error.to_string().into() });
        }
        let calls = self.host.session.lock().take_calls(self.machine.namespace());
        self.machine.handle_calls(calls.into_iter());
        self.machine.handle_task_done(slot, outcome, now);
    }

    /// Takes the batch that the run held back, if the run has ended.
    pub(in crate::drive) fn take_held(&self) -> Option<Batch> {
        let ends = !self.inside && !matches!(self.machine.status(), Status::Running);
        if ends { self.host.session.lock().take_held() } else { None }
    }

    /// Makes a batch of the machine the next commit of its run. Returns `None` if it is held back until the run ends.
    pub(in crate::drive) fn next_commit(&self, batch: Batch) -> Option<Batch> {
        let of = self.machine.above().map(Context::task);
        self.host.session.lock().commit(batch, of)
    }

    /// Ends the run with a branch that holds a superstep which was refused, if it is retained.
    ///
    /// # Errors
    /// As [`RunHost::branch_off`].
    pub(super) fn branch_off(&mut self, batch: Option<&Batch>, refused: StoreError) -> Result<(), Error> {
        let Some(batch) = batch else { return Err(refused.into()) };
        self.machine.branch_off(self.host.branch_off(batch, refused)?);
        Ok(())
    }

    /// Gives the checkpoints of a batch new ids, if it was refused because another writer stored a branch with greater
    /// ones. Returns whether it can be committed again.
    pub(in crate::drive) fn raise(&mut self, batch: &mut Batch, refused: &StoreError, attempt: usize) -> bool {
        let StoreError::StaleId { namespace, newest, .. } = refused else { return false };
        if attempt >= UPDATE_ATTEMPTS_MAX {
            return false;
        }
        let raised = self.host.session.lock().raise(batch, namespace, newest);
        self.machine.rename(&raised);
        true
    }

    /// Commits a batch that is awaited, and returns whether it is stored as it is: one that lost a race is stored as a
    /// branch, if the run retains its work.
    ///
    /// # Errors
    /// That of the commit; as [`RunHost::branch_off`].
    pub(in crate::drive) fn commit_awaited(&mut self, store: &Store, mut batch: Batch) -> Result<bool, Error> {
        let (mut attempt, retains) = (1, self.host.retains());
        while let Err(refused) = store.commit(&batch) {
            if !self.raise(&mut batch, &refused, attempt) {
                return self.branch_off(retains.then_some(&batch), refused).map(|()| false);
            }
            attempt += 1;
        }
        Ok(true)
    }

    /// Returns a copy of a batch, if it may have to be stored with other ids or as a branch.
    pub(in crate::drive) fn retained(&self, batch: &Batch) -> Option<Batch> {
        (!batch.checkpoints.is_empty()).then(|| batch.clone())
    }

    /// Ends the run with a branch, as [`Self::branch_off`], without blocking.
    pub(in crate::drive) async fn branch_off_async(
        &mut self,
        batch: Option<Batch>,
        refused: StoreError,
    ) -> Result<(), Error> {
        let Some(batch) = batch else { return Err(refused.into()) };
        let Some(store) = &self.store else { return Err(refused.into()) };
        let host = Arc::clone(&self.host);
        let branch = unblock(store, move || host.branch_off(&batch, refused)).await?;
        self.machine.branch_off(branch);
        Ok(())
    }

    /// Returns the cache of the run.
    pub(in crate::drive) fn cache(&self) -> Option<&Cache> {
        self.machine.cache()
    }

    /// Passes the cached results of the tasks in these slots to the machine.
    pub(in crate::drive) fn found(&mut self, slots: &[usize], found: Vec<Option<Encoded>>) {
        let now = self.now();
        self.machine.handle_found(slots, found, now);
    }

    /// Puts a result into the cache. The write is not awaited.
    pub(in crate::drive) fn keep(&self, key: CacheKey, value: Encoded, lifetime: Option<Duration>) {
        drop(self.cache().map(|cache| cache.put(key, value, lifetime)));
    }

    /// Forwards the events of the machine to the outermost driver. In the outermost driver they are dropped.
    pub(in crate::drive) fn forward(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            if self.inside {
                self.host.forward(event);
            }
        }
    }

    /// Takes the next event that its caller subscribed to. The events of a subgraph are forwarded to the outermost
    /// driver as well.
    #[inline]
    pub(in crate::drive) fn poll_event(&mut self) -> Option<Event> {
        loop {
            let event = self.machine.poll_event()?;
            if !self.inside {
                return Some(event);
            }
            let wanted = self.wants.wants(&event.kind).then(|| event.clone());
            self.host.forward(event);
            if wanted.is_some() {
                return wanted;
            }
        }
    }
}
