//! The writer of a process: a task that takes the batches that wait, and writes them in one transaction.
//!
//! A group has batches of different threads. Those whose threads were not as they were known are planned again on what
//! a new read shows; a refusal is reported only if it rests on such a read. If a connection is lost during a commit,
//! the batches are planned again as well: those that were stored are known by their ids, and repeating is safe.
//!
//! Invariant: batches are written in the order in which they came, but for those of different threads in one group.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use annals::base::{Clock, IdSource, SystemClock, ThreadId};
use annals::store::StoreError;
use annals::store::backend::CommitSettler;
use annals::store::batch::Batch;
use annals::store::log::LogSignal;
use annals::store::operation::NewOperation;
use tokio::sync::mpsc::UnboundedReceiver;

use super::known::{KnownThread, KnownThreads, Needs, load};
use super::plan::{BatchPlan, GroupMembers, Unplanned, WorkThread};
use super::planned::PlannedRows;
use super::sql as commit_sql;
use crate::client::{Answers, Connections, Param, PgConnection, PgQuery, back_off};
use crate::error::{PgFault, write_error};
use crate::follow::Notifier;
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST, GROUP_MAX, KNOWN_THREADS_MAX, PLANS_MAX};
use crate::rows::Cells;

/// What is handed to the writer.
#[derive(Debug)]
pub(crate) enum WriteJob {
    /// A batch, and the number of changes that its thread must have.
    Batch(Box<Batch>, Option<i64>, CommitSettler),
    Operation(Box<NewOperation>, SyncSender<Result<u64, StoreError>>),
}

impl WriteJob {
    /// Returns the threads of the batch, or of the operation.
    fn threads(&self) -> BTreeSet<ThreadId> {
        let changed = |operation: &NewOperation| -> Vec<ThreadId> {
            operation.changes.iter().map(|change| change.thread.clone()).collect()
        };
        match self {
            Self::Batch(batch, ..) => {
                let of_parts = batch.parts().map(|part| part.thread.clone());
                of_parts.chain(batch.operation.iter().flat_map(changed)).collect()
            }
            Self::Operation(operation, _) => changed(operation).into_iter().collect(),
        }
    }

    fn needs(&self, needs: &mut Needs) -> Result<(), StoreError> {
        match self {
            Self::Batch(batch, ..) => needs.add_batch(batch),
            Self::Operation(operation, _) => needs.add_operation(operation, &BTreeSet::new()),
        }
    }

    /// Returns the names of the groups whose limits a claim compares.
    fn groups(&self) -> Vec<String> {
        let Self::Batch(batch, ..) = self else { return Vec::new() };
        let entered = batch.lease.as_ref().and_then(|lease| lease.entered());
        entered.into_iter().flat_map(|(_, groups)| groups.iter().map(|group| group.name.clone())).collect()
    }

    /// Returns whether a batch expects that nothing of a thread is stored.
    fn begins(&self, thread: &ThreadId) -> bool {
        let Self::Batch(batch, None, _) = self else { return false };
        let mut expected = batch.parts().filter(|part| part.thread == *thread).flat_map(|part| &part.expect).peekable();
        batch.operation.is_none() && expected.peek().is_some() && expected.all(|expect| expect.head.is_none())
    }

    fn is_in_one_chain_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Batch(one, ..), Self::Batch(other, ..)) => one.chain.is_some() && one.chain == other.chain,
            _ => false,
        }
    }

    fn plan(&self, plan: &mut BatchPlan<'_>, members: &GroupMembers) -> Result<(), Unplanned> {
        match self {
            Self::Batch(batch, change, _) => {
                plan.verify_change(&batch.thread, *change)?;
                // An earlier batch of the chain may have been refused.
                batch.write_in_chain(|| Ok(()))?;
                plan.batch(batch, members)
            }
            Self::Operation(operation, _) => plan.operate(operation),
        }
    }

    fn settle(self, outcome: Result<Option<u64>, StoreError>) {
        match self {
            Self::Batch(batch, _, settler) => settler.settle(batch.write_in_chain(|| outcome.map(|_| ()))),
            Self::Operation(_, done) => {
                let missing = || StoreError::OutcomeUnknown { reason: "the operation has no number".into() };
                _ = done.send(outcome.and_then(|number| number.ok_or_else(missing)));
            }
        }
    }
}

/// A job of a group, and how often it was planned.
struct PendingJob {
    job: WriteJob,
    threads: BTreeSet<ThreadId>,
    needs: Needs,
    plans: u32,
    /// True if its plan must rest on a new read.
    is_stale: bool,
    /// True if a connection was lost during its commit.
    is_unknown: bool,
}

impl PendingJob {
    /// Settles the job with an error of the server. What a lost connection has left open stays open.
    fn fail(self, error: StoreError) {
        let error = match error {
            StoreError::Write { reason, .. } if self.is_unknown => StoreError::OutcomeUnknown { reason },
            error => error,
        };
        self.job.settle(Err(error));
    }
}

/// A job whose rows are to be written.
struct PlannedJob {
    job: usize,
    rows: PlannedRows,
    threads: Vec<WorkThread>,
    operation: Option<u64>,
}

/// The offset of the server's clock to that of this process, in microseconds.
#[derive(Debug, Default)]
struct ServerClock(i64);

impl ServerClock {
    fn now(&self) -> i64 {
        SystemClock.now().as_micros() + self.0
    }

    fn note(&mut self, server: i64) {
        self.0 = server - SystemClock.now().as_micros();
    }
}

/// The state of the writer.
pub(crate) struct GroupWriter {
    lanes: Arc<Connections>,
    signal: Arc<LogSignal>,
    notifier: Arc<Notifier>,
    clock: ServerClock,
    known: KnownThreads,
    /// The threads that are known, the least recently used first.
    used: VecDeque<ThreadId>,
    random: IdSource,
    /// The greatest position or number that was given.
    last: i64,
}

impl GroupWriter {
    pub(crate) fn new(lanes: Arc<Connections>, signal: Arc<LogSignal>, notifier: Arc<Notifier>) -> Self {
        let (known, used, clock) = (KnownThreads::default(), VecDeque::new(), ServerClock::default());
        Self { lanes, signal, notifier, clock, known, used, random: IdSource::new(), last: 0 }
    }

    /// Writes what comes until the other end is dropped.
    pub(crate) async fn run(mut self, mut jobs: UnboundedReceiver<WriteJob>) {
        let mut waiting: VecDeque<WriteJob> = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let Some(job) = jobs.recv().await else { return };
                waiting.push_back(job);
            }
            while let Ok(job) = jobs.try_recv() {
                waiting.push_back(job);
            }
            let group = next_group(&mut waiting);
            self.write(group).await;
        }
    }

    /// Writes a group: each job is settled when this returns.
    async fn write(&mut self, mut group: Vec<PendingJob>) {
        let (mut backoff, mut faults) = (BACKOFF_FIRST, 0);
        for id in group.iter().flat_map(|pending| pending.needs.threads.keys()) {
            self.known.threads.get_mut(id).into_iter().for_each(|known| known.is_fresh = false);
        }
        while !group.is_empty() {
            let (entered, members) = match self.enter(&group[0]).await {
                Ok(entered) => entered,
                Err(fault) => {
                    faults += 1;
                    self.settle_fault(&mut group, fault, faults, &mut backoff).await;
                    continue;
                }
            };
            if let Err(error) = self.load(&group).await {
                self.leave(entered).await;
                let reason = error.to_string();
                group
                    .drain(..)
                    .for_each(|pending| pending.fail(StoreError::Write { reason: reason.clone(), source: None }));
                return;
            }
            let ready = self.plan(&mut group, &members);
            if ready.is_empty() {
                self.leave(entered).await;
                continue;
            }
            match self.execute(&ready, entered.as_deref()).await {
                Ok(changed) => self.settle_ready(&mut group, ready, &changed),
                Err(fault) => {
                    self.leave(entered).await;
                    faults += 1;
                    for planned in ready.iter().filter(|_| !fault.is_refusal()) {
                        group[planned.job].is_unknown = true;
                    }
                    self.settle_fault(&mut group, fault, faults, &mut backoff).await;
                }
            }
        }
    }

    /// Reads what the plans lack.
    async fn load(&mut self, group: &[PendingJob]) -> Result<(), StoreError> {
        let (mut needs, mut ids) = (Needs::default(), BTreeSet::new());
        for pending in group {
            for (id, of) in &pending.needs.threads {
                let is_unknown = !self.known.threads.contains_key(id);
                if is_unknown && !pending.is_stale && of.points.is_empty() && pending.job.begins(id) {
                    // Most such threads are new; one that is stored after all refuses the commit, and is read then.
                    let mut thread = KnownThread::missing(id.clone());
                    thread.spaces.extend(of.spaces.iter().map(|space| (space.clone(), None)));
                    self.remember(id.clone(), thread);
                }
                let is_met = self.known.threads.get(id).is_some_and(|known| pending.needs.are_met(known));
                let compares = pending.needs.fields.iter().any(|(thread, _)| thread == id);
                if pending.is_stale || !is_met || compares {
                    ids.insert(id.clone());
                    let wanted = needs.thread(id);
                    wanted.spaces.extend(of.spaces.iter().cloned());
                    wanted.points.extend(of.points.iter().cloned());
                }
            }
            needs.fields.extend(pending.needs.fields.iter().cloned());
        }
        if ids.is_empty() {
            return Ok(());
        }
        let loaded = load(&self.lanes, &needs, &ids).await?;
        self.known.operations = loaded.operations;
        for (id, mut thread) in loaded.threads {
            thread.is_fresh = true;
            self.remember(id, thread);
        }
        Ok(())
    }

    fn remember(&mut self, id: ThreadId, thread: KnownThread) {
        self.used.retain(|other| *other != id);
        self.used.push_back(id.clone());
        self.known.threads.insert(id, thread);
    }

    /// Forgets the threads that were not used for long.
    fn forget_old(&mut self) {
        while self.used.len() > KNOWN_THREADS_MAX {
            let Some(id) = self.used.pop_front() else { break };
            self.known.threads.remove(&id);
        }
    }

    /// Plans the jobs. Those that are refused are settled; those whose plan rests on an old read stay.
    fn plan(&mut self, group: &mut Vec<PendingJob>, members: &GroupMembers) -> Vec<PlannedJob> {
        let (mut ready, mut settled) = (Vec::new(), Vec::new());
        for (at, pending) in group.iter_mut().enumerate() {
            pending.plans += 1;
            let clock = self.clock.now().max(self.last + 1);
            let mut plan = BatchPlan::begin(&self.known, (clock, self.random.random()));
            let planned = pending.job.plan(&mut plan, members);
            let is_fresh =
                pending.needs.threads.keys().all(|id| self.known.threads.get(id).is_some_and(|of| of.is_fresh));
            match planned {
                Ok(()) if plan.is_empty() && is_fresh => settled.push((at, Ok(plan.operation))),
                Ok(()) if plan.is_empty() => pending.is_stale = true,
                Ok(()) => {
                    let (operation, rows) = (plan.operation, plan.rows);
                    let threads: Vec<WorkThread> = plan.threads.into_values().collect();
                    let last = threads.iter().map(|work| work.known.seq.max(work.known.operation)).max();
                    self.last = self.last.max(last.unwrap_or_default()).max(clock);
                    ready.push(PlannedJob { job: at, rows, threads, operation });
                }
                Err(Unplanned::Missing(thread, namespace, id)) => {
                    pending.is_stale = true;
                    let needs = pending.needs.thread(&thread);
                    needs.spaces.insert(namespace.clone());
                    needs.points.extend(id.map(|id| (namespace, id)));
                }
                Err(Unplanned::Refused(error)) if is_fresh || pending.plans >= PLANS_MAX => {
                    settled.push((at, Err(error)))
                }
                Err(Unplanned::Refused(_)) => pending.is_stale = true,
            }
            if pending.plans >= PLANS_MAX
                && !ready.iter().any(|of| of.job == at)
                && !settled.iter().any(|of| of.0 == at)
            {
                settled.push((at, Err(StoreError::Busy { waited_ms: 0, holder: None })));
            }
        }
        settled.into_iter().rev().for_each(|(at, outcome)| settle_at(group, &mut ready, at, outcome));
        ready
    }

    /// Writes the rows of plans in one transaction. Returns the numbers of the threads that were changed.
    async fn execute(
        &mut self,
        ready: &[PlannedJob],
        entered: Option<&PgConnection>,
    ) -> Result<BTreeSet<i64>, PgFault> {
        let mut rows = PlannedRows::default();
        for (at, of) in (0..).zip(ready) {
            let mut own = of.rows.clone();
            own.threads.iter_mut().for_each(|(batch, _)| *batch = at);
            rows.append(own);
        }
        let (queries, changed) = rows.queries(self.random.random().cast_signed());
        let answers: Answers = match entered {
            None => self.lanes.write(&queries).await?,
            Some(client) => self.lanes.commit_on(client, &queries).await?,
        };
        let mut numbers = BTreeSet::new();
        for row in &answers[changed] {
            let mut cells = Cells::of(row);
            if let (Ok(number), Ok(clock)) = (cells.next::<i64>(), cells.next::<i64>()) {
                numbers.insert(number);
                self.clock.note(clock);
            }
        }
        Ok(numbers)
    }

    /// Settles the jobs whose threads were changed; the others are planned again.
    fn settle_ready(&mut self, group: &mut Vec<PendingJob>, ready: Vec<PlannedJob>, changed: &BTreeSet<i64>) {
        let mut stored = Vec::new();
        for PlannedJob { job, threads, operation, .. } in ready {
            let is_stored =
                threads.iter().filter(|work| work.is_changed).all(|work| changed.contains(&work.known.number));
            if !is_stored {
                group[job].is_stale = true;
                continue;
            }
            for mut work in threads.into_iter().filter(|work| work.is_changed) {
                work.known.change += 1;
                work.known.is_fresh = false;
                work.known.shrink();
                self.remember(work.known.id.clone(), work.known);
            }
            stored.push((job, operation));
        }
        self.forget_old();
        if !stored.is_empty() {
            self.signal.notify();
            self.notifier.committed.notify_one();
        }
        stored.into_iter().rev().for_each(|(job, operation)| group.remove(job).job.settle(Ok(operation)));
    }

    /// Decides about a group whose transaction failed: it is repeated, or each job for itself, or refused.
    async fn settle_fault(
        &mut self,
        group: &mut Vec<PendingJob>,
        fault: PgFault,
        faults: u32,
        backoff: &mut std::time::Duration,
    ) {
        group.iter_mut().for_each(|pending| pending.is_stale = true);
        self.known.threads.clear();
        self.used.clear();
        if (fault.passes() || fault.is_duplicate()) && faults < ATTEMPTS_MAX {
            back_off(backoff).await;
        } else if group.len() > 1 {
            for pending in std::mem::take(group) {
                Box::pin(self.write(vec![pending])).await;
            }
        } else if let Some(pending) = group.pop() {
            pending.fail(write_error(fault));
        }
    }

    /// Locks the groups that a claim names, and returns their members. The transaction stays open.
    async fn enter(&mut self, pending: &PendingJob) -> Result<(Option<Arc<PgConnection>>, GroupMembers), PgFault> {
        let (mut members, groups) = (GroupMembers::new(), pending.job.groups());
        if groups.is_empty() {
            return Ok((None, members));
        }
        let names = Param::Blobs(groups.iter().map(|name| Some(name.as_bytes().to_vec())).collect());
        let own = pending.threads.first().map(|thread| thread.as_str().to_owned());
        self.lanes.write(&[PgQuery::new(commit_sql::MAKE_GROUP_LOCKS, [names.clone()])]).await?;
        let queries = [
            PgQuery::new(commit_sql::LOCK_GROUPS, [names.clone()]),
            PgQuery::new(commit_sql::GROUP_MEMBERS, [names, Param::Text(own)]),
        ];
        let (client, answers) = self.lanes.begin_write(&queries).await?;
        for row in &answers[1] {
            let mut cells = Cells::of(row);
            let read = (cells.next::<&[u8]>(), cells.next::<Option<i64>>(), cells.next::<bool>(), cells.lease());
            if let (Ok(name), Ok(rated), Ok(is_current), Ok(Some(lease))) = read {
                let name = String::from_utf8_lossy(name).into_owned();
                members.entry(name).or_default().push((lease, is_current, rated));
            }
        }
        Ok((Some(client), members))
    }

    /// Ends the transaction of [`GroupWriter::enter`] without a change.
    async fn leave(&mut self, entered: Option<Arc<PgConnection>>) {
        if let Some(client) = entered {
            self.lanes.roll_back(&client).await;
        }
    }
}

/// Settles a job of a group, and moves the numbers of those after it.
fn settle_at(
    group: &mut Vec<PendingJob>,
    ready: &mut [PlannedJob],
    at: usize,
    outcome: Result<Option<u64>, StoreError>,
) {
    group.remove(at).job.settle(outcome);
    ready.iter_mut().filter(|of| of.job > at).for_each(|of| of.job -= 1);
}

/// Takes the jobs of the next transaction: of different threads, and of different chains. A claim with groups is alone.
fn next_group(waiting: &mut VecDeque<WriteJob>) -> Vec<PendingJob> {
    let (mut group, mut taken): (Vec<PendingJob>, BTreeSet<ThreadId>) = (Vec::new(), BTreeSet::new());
    while let Some(job) = waiting.front().filter(|_| group.len() < GROUP_MAX) {
        let (threads, is_alone) = (job.threads(), !job.groups().is_empty());
        let is_apart = threads.is_disjoint(&taken) && !group.iter().any(|of| of.job.is_in_one_chain_with(job));
        if !group.is_empty() && (is_alone || !is_apart) {
            break;
        }
        let Some(job) = waiting.pop_front() else { break };
        let mut needs = Needs::default();
        if let Err(error) = job.needs(&mut needs) {
            job.settle(Err(error));
            continue;
        }
        taken.extend(threads.iter().cloned());
        group.push(PendingJob { job, threads, needs, plans: 0, is_stale: false, is_unknown: false });
        if is_alone {
            break;
        }
    }
    group
}
