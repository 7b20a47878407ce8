//! A disk that loses unwritten data at a power cut.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use annals::base::{Encoded, Value};
use annals::store::backend::CommitSettler;
use annals::store::batch::{Batch, ChangeValue, Data, NewCheckpoint, Payload};
use annals::store::log::{
    Capabilities, CommitHandle, Erase, Erasure, HeadParts, Layer, Log, LogExt as _, NamespaceRef, RecordQuery,
    StateQuery, TimerQuery, VisitState,
};
use annals::store::operation::NewOperation;
use annals::store::record::{CheckpointRecord, StoredHead, TimerRecord, WriteRecord};
use annals::store::{CheckpointRef, MemoryBackend, Source, StoreError};

use annals_graph::task::RunControl;

use super::held::HeldLeases;

/// The write at which the power goes, and whether that write is kept, unacknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    pub(crate) at: u64,
    pub(crate) kept: bool,
}

/// A fault of the disk that the simulator must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Writes the checkpoint of an edit of a subgraph without the items that the edit adds.
    DropsEdits,
    /// Leaves out the value of an input whose checkpoint is committed alone, as that of a drained run.
    ForgetsDrainedInput,
    /// Stores the batches of an owner that has lost its lease.
    IgnoresOwners,
    /// Stores the claims that a limit refuses.
    IgnoresLimits,
}

/// The act of another process meanwhile.
struct Meanwhile(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

/// The backend in memory behind a queue of writes.
#[derive(Debug)]
pub(crate) struct Disk {
    inner: MemoryBackend,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Batch, CommitSettler)>,
    writes: u64,
    crash: Option<Crash>,
    faults: Vec<u64>,
    dead: bool,
    /// True if submitted batches are written at once.
    eager: bool,
    mutant: Option<Mutant>,
    /// Number of batches that were changed by the mutant.
    broken: u64,
    held: HeldLeases,
    /// The controls of the workers that work, each inside a task of the one before.
    workers: Vec<RunControl>,
    /// An act of another process, and the number of looks for a run with a key that come before it.
    after_look: Option<(usize, Meanwhile)>,
}

/// Puts null in the place of the values of a checkpoint. Returns whether there was another value.
fn forget(input: &mut NewCheckpoint) -> bool {
    let null = Payload::from(Encoded::encode(&Value::Null).unwrap());
    let mut is_changed = false;
    for change in &mut input.changes {
        let ChangeValue::Value(Data::New(value)) = &mut change.value else { continue };
        is_changed |= *value != null;
        *value = null.clone();
    }
    is_changed
}

fn dead() -> StoreError {
    StoreError::Write { reason: "the power is off".into(), source: None }
}

impl Disk {
    pub(crate) fn new(crash: Option<Crash>, faults: Vec<u64>) -> Arc<Self> {
        Arc::new(Self { inner: MemoryBackend::new(), state: Mutex::new(State { crash, faults, ..State::default() }) })
    }

    /// Returns how many writes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().queue.len()
    }

    /// Returns how many writes there were.
    pub(crate) fn writes(&self) -> u64 {
        self.state.lock().unwrap().writes
    }

    /// Writes submitted batches at once from now on.
    pub(crate) fn write_at_once(&self) {
        self.state.lock().unwrap().eager = true;
    }

    /// Breaks the disk.
    pub(crate) fn break_as(&self, mutant: Option<Mutant>) {
        self.state.lock().unwrap().mutant = mutant;
    }

    /// Returns how many batches were changed because the disk is broken.
    pub(crate) fn broken(&self) -> u64 {
        self.state.lock().unwrap().broken
    }

    /// Takes the account of the leases so far.
    pub(crate) fn take_leases(&self) -> HeldLeases {
        std::mem::take(&mut self.state.lock().unwrap().held)
    }

    /// Lets a worker drain when a limit refuses one of its claims.
    pub(crate) fn begin_worker(&self, control: &RunControl) {
        self.state.lock().unwrap().workers.push(control.clone());
    }

    /// Forgets the last worker.
    pub(crate) fn end_worker(&self) {
        self.state.lock().unwrap().workers.pop();
    }

    /// Calls `act` once, after `before` looks for a run with a key and the next one, whose result is not returned yet.
    pub(crate) fn after_look(&self, before: usize, act: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().after_look = Some((before, Meanwhile(Box::new(act))));
    }

    /// Counts a look for a run with a key. Returns the act that comes after it.
    fn looked(&self) -> Option<Meanwhile> {
        let mut state = self.state.lock().unwrap();
        let (before, act) = state.after_look.take()?;
        if before == 0 {
            return Some(act);
        }
        state.after_look = Some((before - 1, act));
        None
    }

    /// Returns whether the power is off.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().unwrap().dead
    }

    /// Turns the power on again. Returns whether it was off.
    pub(crate) fn revive(&self) -> bool {
        std::mem::take(&mut self.state.lock().unwrap().dead)
    }

    /// Does the first write that waits.
    pub(crate) fn write_one(&self) -> &'static str {
        let mut state = self.state.lock().unwrap();
        let Some((batch, settle)) = state.queue.pop_front() else { return "nothing to write" };
        let mut what = "refused";
        let outcome = batch.write_in_chain(|| {
            let (outcome, did) = self.write(&mut state, &batch);
            what = did;
            outcome
        });
        let lost = if state.dead { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        settle.settle(outcome);
        lost.into_iter().for_each(|(_, settle)| settle.settle(Err(dead())));
        what
    }

    fn write(&self, state: &mut State, batch: &Batch) -> (Result<(), StoreError>, &'static str) {
        if state.dead {
            return (Err(dead()), "lost");
        }
        let at = state.writes;
        state.writes += 1;
        match state.crash {
            Some(crash) if crash.at == at => {
                state.dead = true;
                if crash.kept && self.commit_inner(state, batch).is_ok() {
                    return (Err(dead()), "crash after a write");
                }
                return (Err(dead()), "crash before a write");
            }
            _ => {}
        }
        if state.faults.contains(&at) {
            return (Err(StoreError::Busy { waited_ms: 1, holder: None }), "the disk is busy");
        }
        (self.commit_inner(state, batch), "written")
    }

    /// Commits a batch, and notes its lease.
    fn commit_inner(&self, state: &mut State, batch: &Batch) -> Result<(), StoreError> {
        let outcome = self.commit_broken(state, batch);
        state.held.note(batch, &outcome);
        if let (Err(StoreError::LeaseLimit { .. }), Some(control)) = (&outcome, state.workers.last()) {
            control.request_drain("a limit is reached");
        }
        outcome
    }

    /// Commits a batch as the mutant changes it.
    fn commit_broken(&self, state: &mut State, batch: &Batch) -> Result<(), StoreError> {
        let source = |of: &Batch| of.checkpoints.last().map(|checkpoint| checkpoint.source);
        match state.mutant {
            Some(Mutant::DropsEdits) if !batch.namespace.is_root() && source(batch) == Some(Source::Update) => {
                let mut changed = batch.clone();
                for edit in &mut changed.checkpoints {
                    let before = edit.changes.len();
                    edit.changes.retain(|change| !matches!(change.value, ChangeValue::Items(_)));
                    state.broken += u64::from(edit.changes.len() < before);
                }
                self.inner.commit(&changed)
            }
            Some(Mutant::ForgetsDrainedInput) if batch.parts().any(|part| source(part) == Some(Source::Input)) => {
                let mut changed = batch.clone();
                let parts = std::iter::once(&mut changed.checkpoints)
                    .chain(changed.then.iter_mut().map(|part| &mut part.checkpoints));
                let alone = parts.filter_map(|checkpoints| checkpoints.last_mut());
                for input in alone.filter(|checkpoint| checkpoint.source == Source::Input) {
                    state.broken += u64::from(forget(input));
                }
                self.inner.commit(&changed)
            }
            Some(Mutant::IgnoresOwners) if self.is_lost(batch) => {
                let mut changed = batch.clone();
                changed.lease = None;
                // One that builds on an old head is refused all the same.
                self.inner.commit(&changed).inspect(|()| state.broken += 1)
            }
            Some(Mutant::IgnoresLimits) => match self.inner.commit(batch) {
                Err(StoreError::LeaseLimit { .. }) => {
                    let mut changed = batch.clone();
                    changed.lease.iter_mut().for_each(|lease| lease.groups.clear());
                    self.inner.commit(&changed).inspect(|()| state.broken += 1)
                }
                outcome => outcome,
            },
            _ => self.inner.commit(batch),
        }
    }

    /// Returns whether a batch with content is of an owner that has lost its lease.
    fn is_lost(&self, batch: &Batch) -> bool {
        let holds = batch.lease.as_ref().filter(|lease| lease.claimed_at.is_none());
        let stored = self.inner.lease(&batch.thread).unwrap();
        let is_other = holds.is_some_and(|lease| stored.is_some_and(|stored| stored.owner != lease.owner));
        is_other && !(batch.checkpoints.is_empty() && batch.writes.is_empty())
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.state.lock().unwrap().dead { Err(dead()) } else { Ok(()) }
    }
}

impl Layer for Disk {
    fn below(&self) -> &dyn Log {
        &self.inner
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        while self.waiting() > 0 {
            self.write_one();
        }
        let mut state = self.state.lock().unwrap();
        batch.write_in_chain(|| self.write(&mut state, batch).0)
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        let (ticket, settle) = CommitHandle::open();
        let mut state = self.state.lock().unwrap();
        if state.dead {
            drop(state);
            settle.settle(Err(dead()));
        } else {
            state.queue.push_back((batch, settle));
            let is_eager = state.eager;
            drop(state);
            if is_eager {
                Layer::flush(self);
            }
        }
        ticket
    }

    fn flush(&self) {
        while self.waiting() > 0 {
            self.write_one();
        }
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        self.alive()?;
        self.inner.operate(operation)
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        self.alive()?;
        self.inner.heads(of, parts)
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.alive()?;
        let found = self.inner.records(query);
        if matches!(query, RecordQuery::LastOfRun(..))
            && let Some(Meanwhile(act)) = self.looked()
        {
            act();
        }
        found
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        self.alive()?;
        self.inner.read(at, query, visit)
    }

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        self.alive()?;
        self.inner.writes_of(at, bytes)
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        self.alive()?;
        self.inner.timer_rows(query)
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        self.alive()?;
        self.inner.erase(what)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let mut parts = self.inner.capabilities();
        // A claim is made of commits, at each of which the power may go.
        parts.queues = None;
        parts
    }
}
