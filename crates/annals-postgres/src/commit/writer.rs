//! The writer of a process: a task that takes the batches that wait, and writes them in one transaction.
//!
//! A group has batches of different threads. Those whose threads were not as they were known are planned again on what
//! a new read shows; a refusal is reported only if it rests on such a read. If a connection is lost during a commit,
//! the batches are planned again as well: those that were stored are known by their ids, and repeating is safe.
//!
//! Groups are written on several connections at once. A group in progress keeps others from the threads that it looks
//! at, and from the chains of its batches.
//!
//! Invariant: batches of one thread, and of one chain, are written in the order in which they came.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::Poll;

use annals::base::{Clock, IdSource, SystemClock, ThreadId};
use annals::store::StoreError;
use annals::store::backend::CommitSettler;
use annals::store::batch::{Batch, CommitChain};
use annals::store::log::LogSignal;
use annals::store::operation::NewOperation;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::known::{KnownThread, KnownThreads, Needs, load};
use super::plan::{BatchPlan, GroupMembers, Unplanned, WorkThread};
use super::planned::PlannedRows;
use super::sql as commit_sql;
use crate::client::{Answers, Connections, Param, PgConnection, PgQuery, back_off};
use crate::error::{PgFault, write_error};
use crate::follow::Notifier;
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST, GROUP_MAX, GROUP_SHARE_MIN, PLANS_MAX, WRITE_CONNECTIONS};
use crate::rows::Cells;
use crate::sql;

/// A job of the writer.
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

    /// Returns the chain of a batch: of one chain, one batch is written at a time.
    fn chain(&self) -> Option<&CommitChain> {
        if let Self::Batch(batch, ..) = self { batch.chain.as_ref() } else { None }
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

/// The state of the writer between groups. Its lock is not held while the server is waited for.
struct WriterState {
    clock: ServerClock,
    known: KnownThreads,
    random: IdSource,
    /// The greatest position or number that was given.
    last: i64,
}

/// The writer.
pub(crate) struct GroupWriter {
    lanes: Arc<Connections>,
    signal: Arc<LogSignal>,
    notifier: Arc<Notifier>,
    state: Mutex<WriterState>,
}

/// The threads and chains of a group in progress, which other groups must not touch, and its number of jobs.
struct BusyGroup {
    len: usize,
    threads: BTreeSet<ThreadId>,
    chains: Vec<CommitChain>,
}

/// Drop guard: tells that a connection is free.
struct FreedLane(usize, UnboundedSender<usize>);

impl Drop for FreedLane {
    fn drop(&mut self) {
        // The error of a receiver that is gone is dropped: the writer has ended.
        _ = self.1.send(self.0);
    }
}

impl GroupWriter {
    pub(crate) fn new(lanes: Arc<Connections>, signal: Arc<LogSignal>, notifier: Arc<Notifier>) -> Self {
        let (clock, known, random) = (ServerClock::default(), KnownThreads::default(), IdSource::new());
        Self { lanes, signal, notifier, state: Mutex::new(WriterState { clock, known, random, last: 0 }) }
    }

    /// Writes what comes until the other end is dropped.
    pub(crate) async fn run(self, mut jobs: UnboundedReceiver<WriteJob>) {
        let writer = Arc::new(self);
        let mut waiting: VecDeque<WriteJob> = VecDeque::new();
        let mut busy: [Option<BusyGroup>; WRITE_CONNECTIONS] = [const { None }; WRITE_CONNECTIONS];
        let (freed, mut ended) = unbounded_channel();
        let mut is_open = true;
        loop {
            while let Some(lane) = busy.iter().position(Option::is_none).filter(|_| is_worth(&waiting, &busy)) {
                let group = next_group(&mut waiting, &busy);
                if group.is_empty() {
                    break;
                }
                busy[lane] = Some(BusyGroup::of(&group));
                let (writer, freed) = (Arc::clone(&writer), FreedLane(lane, freed.clone()));
                tokio::spawn(async move {
                    writer.write(lane, group).await;
                    drop(freed);
                });
            }
            if !is_open && waiting.is_empty() && busy.iter().all(Option::is_none) {
                return;
            }
            poll_fn(|context| {
                let mut is_ready = false;
                while let Poll::Ready(Some(lane)) = ended.poll_recv(context) {
                    (busy[lane], is_ready) = (None, true);
                }
                while is_open && let Poll::Ready(job) = jobs.poll_recv(context) {
                    (is_open, is_ready) = (job.is_some(), true);
                    waiting.extend(job);
                }
                if is_ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Writes a group: each job is settled when this returns.
    async fn write(&self, lane: usize, mut group: Vec<PendingJob>) {
        let (mut backoff, mut faults) = (BACKOFF_FIRST, 0);
        {
            let mut state = self.state.lock();
            state.known.forget_old();
            group.iter().flat_map(|of| of.needs.threads.keys()).for_each(|id| state.known.age(id));
        }
        while !group.is_empty() {
            let (entered, members) = match self.enter(lane, &group[0]).await {
                Ok(entered) => entered,
                Err(fault) => {
                    faults += 1;
                    self.settle_fault(lane, &mut group, fault, (faults, &mut backoff)).await;
                    continue;
                }
            };
            match self.load(&group, entered.as_deref()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.leave(entered).await;
                    let reason = error.to_string();
                    group
                        .drain(..)
                        .for_each(|pending| pending.fail(StoreError::Write { reason: reason.clone(), source: None }));
                    return;
                }
                Err(fault) => {
                    self.leave(entered).await;
                    faults += 1;
                    self.settle_fault(lane, &mut group, fault, (faults, &mut backoff)).await;
                    continue;
                }
            }
            let mut ready = self.plan(&mut group, &members);
            if ready.is_empty() {
                self.leave(entered).await;
                continue;
            }
            match self.execute(lane, &mut ready, entered.as_deref()).await {
                Ok(changed) => self.settle_ready(&mut group, ready, &changed),
                Err(fault) => {
                    self.leave(entered).await;
                    faults += 1;
                    for planned in ready.iter().filter(|_| !fault.is_refusal()) {
                        group[planned.job].is_unknown = true;
                    }
                    self.settle_fault(lane, &mut group, fault, (faults, &mut backoff)).await;
                }
            }
        }
    }

    /// Reads what the plans lack: in the transaction of [`GroupWriter::enter`], if there is one.
    async fn load(
        &self,
        group: &[PendingJob],
        entered: Option<&PgConnection>,
    ) -> Result<Result<(), StoreError>, PgFault> {
        let (needs, ids) = self.missing(group);
        if ids.is_empty() {
            return Ok(Ok(()));
        }
        let loaded = match load(&self.lanes, entered, &needs, &ids).await? {
            Ok(loaded) => loaded,
            Err(error) => return Ok(Err(error)),
        };
        let mut state = self.state.lock();
        let known = &mut state.known;
        known.operations = loaded.operations;
        for mut thread in loaded.threads {
            thread.is_fresh = true;
            known.insert(thread);
        }
        Ok(Ok(()))
    }

    /// Returns what the plans of a group lack, and of which threads.
    fn missing(&self, group: &[PendingJob]) -> (Needs, BTreeSet<ThreadId>) {
        let (mut needs, mut ids) = (Needs::default(), BTreeSet::new());
        let mut state = self.state.lock();
        let known = &mut state.known;
        for pending in group {
            for (id, of) in &pending.needs.threads {
                let is_unknown = known.get(id).is_none();
                if is_unknown && !pending.is_stale && of.points.is_empty() && pending.job.begins(id) {
                    // Most such threads are new; one that is stored after all refuses the commit, and is read then.
                    let mut thread = KnownThread::missing(id.clone());
                    thread.spaces.extend(of.spaces.iter().map(|space| (space.clone(), None)));
                    known.insert(thread);
                }
                let is_met = known.get(id).is_some_and(|known| pending.needs.are_met(known));
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
        (needs, ids)
    }

    /// Plans the jobs. Those that are refused are settled; those whose plan rests on an old read stay.
    fn plan(&self, group: &mut Vec<PendingJob>, members: &GroupMembers) -> Vec<PlannedJob> {
        let (mut ready, mut settled) = (Vec::new(), Vec::new());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for (at, pending) in group.iter_mut().enumerate() {
            pending.plans += 1;
            let clock = state.clock.now().max(state.last + 1);
            let mut plan = BatchPlan::begin(&state.known, (clock, state.random.random()));
            let planned = pending.job.plan(&mut plan, members);
            let is_fresh = pending.needs.threads.keys().all(|id| state.known.get(id).is_some_and(|of| of.is_fresh));
            match planned {
                Ok(()) if plan.is_empty() && is_fresh => settled.push((at, Ok(plan.operation))),
                Ok(()) if plan.is_empty() => pending.is_stale = true,
                Ok(()) => {
                    let (operation, rows) = (plan.operation, plan.rows);
                    let threads: Vec<WorkThread> = plan.threads.into_values().collect();
                    let last = threads.iter().map(|work| work.known.seq.max(work.known.operation)).max();
                    state.last = state.last.max(last.unwrap_or_default()).max(clock);
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
        &self,
        lane: usize,
        ready: &mut [PlannedJob],
        entered: Option<&PgConnection>,
    ) -> Result<BTreeSet<i64>, PgFault> {
        let mut rows = PlannedRows::default();
        for (at, of) in (0..).zip(ready) {
            let mut own = std::mem::take(&mut of.rows);
            own.threads.iter_mut().for_each(|(batch, _)| *batch = at);
            rows.append(own);
        }
        let token = self.state.lock().random.random().cast_signed();
        let (queries, changed) = rows.queries(token);
        let answers: Answers = match entered {
            None => self.lanes.write(lane, &queries).await?,
            Some(client) => self.lanes.commit_on(client, &queries).await?,
        };
        let mut numbers = BTreeSet::new();
        for row in &answers[changed] {
            let mut cells = Cells::of(row);
            if let (Ok(number), Ok(clock)) = (cells.next::<i64>(), cells.next::<i64>()) {
                numbers.insert(number);
                self.state.lock().clock.note(clock);
            }
        }
        Ok(numbers)
    }

    /// Settles the jobs whose threads were changed; the others are planned again.
    fn settle_ready(&self, group: &mut Vec<PendingJob>, ready: Vec<PlannedJob>, changed: &BTreeSet<i64>) {
        let mut stored = Vec::new();
        let mut state = self.state.lock();
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
                state.known.insert(work.known);
            }
            stored.push((job, operation));
        }
        drop(state);
        if !stored.is_empty() {
            self.signal.notify();
            self.notifier.committed.notify_one();
        }
        stored.into_iter().rev().for_each(|(job, operation)| group.remove(job).job.settle(Ok(operation)));
    }

    /// Decides about a group whose transaction failed: it is repeated, or each job for itself, or refused.
    async fn settle_fault(
        &self,
        lane: usize,
        group: &mut Vec<PendingJob>,
        fault: PgFault,
        (faults, backoff): (u32, &mut std::time::Duration),
    ) {
        group.iter_mut().for_each(|pending| pending.is_stale = true);
        self.state.lock().known.clear();
        if (fault.passes() || fault.is_duplicate()) && faults < ATTEMPTS_MAX {
            back_off(backoff).await;
        } else if group.len() > 1 {
            for pending in std::mem::take(group) {
                Box::pin(self.write(lane, vec![pending])).await;
            }
        } else if let Some(pending) = group.pop() {
            pending.fail(write_error(fault));
        }
    }

    /// Locks the groups that a claim names, and then its thread, and returns the members of the groups. The transaction
    /// stays open. All else of the claim runs on its connection, so that it waits for no other one: behind a pooler
    /// there may be none.
    async fn enter(
        &self,
        lane: usize,
        pending: &PendingJob,
    ) -> Result<(Option<Arc<PgConnection>>, GroupMembers), PgFault> {
        let (mut members, groups) = (GroupMembers::new(), pending.job.groups());
        if groups.is_empty() {
            return Ok((None, members));
        }
        let names = Param::Blobs(groups.iter().map(|name| Some(name.as_bytes().to_vec())).collect());
        let own = pending.threads.first().map(|thread| thread.as_str().to_owned());
        let threads = pending.needs.threads.keys().map(|thread| Some(thread.as_str().to_owned())).collect();
        self.lanes.write(lane, &[PgQuery::new(commit_sql::MAKE_GROUP_LOCKS, [names.clone()])]).await?;
        let queries = [
            PgQuery::new(commit_sql::LOCK_GROUPS, [names.clone()]),
            PgQuery::new(commit_sql::GROUP_MEMBERS, [names, Param::Text(own)]),
            PgQuery::new(sql::LOCK_THREADS, [Param::Texts(threads)]),
        ];
        let (client, answers) = self.lanes.begin_write(lane, &queries).await?;
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
    async fn leave(&self, entered: Option<Arc<PgConnection>>) {
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

impl BusyGroup {
    fn of(group: &[PendingJob]) -> Self {
        let threads = group.iter().flat_map(|of| of.threads.iter().chain(of.needs.threads.keys())).cloned().collect();
        Self { len: group.len(), threads, chains: group.iter().filter_map(|of| of.job.chain()).cloned().collect() }
    }
}

/// Returns whether enough batches wait for a group: beside one in progress as many as it has, because a transaction of
/// few costs almost as much as one of many.
fn is_worth(waiting: &VecDeque<WriteJob>, busy: &[Option<BusyGroup>]) -> bool {
    let largest = busy.iter().flatten().map(|group| group.len).max().unwrap_or_default();
    waiting.len() >= largest.max(1)
}

/// Returns how many batches the next group has at most: each connection gets its share of those that wait or are in
/// progress, so that the server writes one group while another one is planned.
fn share(waiting: &VecDeque<WriteJob>, busy: &[Option<BusyGroup>]) -> usize {
    let in_progress: usize = busy.iter().flatten().map(|group| group.len).sum();
    (waiting.len() + in_progress).div_ceil(busy.len()).clamp(GROUP_SHARE_MIN, GROUP_MAX)
}

/// Takes the jobs of the next transaction: of different threads, and of different chains. A claim with groups is alone.
fn next_group(waiting: &mut VecDeque<WriteJob>, busy: &[Option<BusyGroup>]) -> Vec<PendingJob> {
    let (mut group, mut taken): (Vec<PendingJob>, BTreeSet<ThreadId>) = (Vec::new(), BTreeSet::new());
    let share = share(waiting, busy);
    while let Some(job) = waiting.front().filter(|_| group.len() < share) {
        let (threads, is_alone) = (job.threads(), !job.groups().is_empty());
        let mut needs = Needs::default();
        let refused = job.needs(&mut needs).err();
        let is_apart = threads.is_disjoint(&taken)
            && !group.iter().any(|of| of.job.chain().is_some_and(|chain| job.chain() == Some(chain)));
        let is_held = busy.iter().flatten().any(|of| {
            threads.iter().chain(needs.threads.keys()).any(|thread| of.threads.contains(thread))
                || job.chain().is_some_and(|chain| of.chains.contains(chain))
        });
        if is_held || !group.is_empty() && (is_alone || !is_apart) {
            break;
        }
        let Some(job) = waiting.pop_front() else { break };
        if let Some(error) = refused {
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
