//! Copies of threads to another store, in parts: [`Store::copy_to`].
//!
//! A thread is read back as batches and operations, and written in the order of its log, about 1,000 checkpoints a
//! commit. A copy that was interrupted has a beginning of the thread, and the next one goes on after it. *Absent:* the
//! cache, leases, and threads under another id ([`Thread::copy_into`](super::super::Thread::copy_into)).
//!
//! Invariant: a thread counts as copied when the checksum of what the target has is that of what was read.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::copy_kv;
use super::copy_plan::CopyPlan;
use crate::base::internal::hash::Checksum;
use crate::base::limits::BATCH_CHECKPOINTS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId, WriteValue, setters};
use crate::limits::{COPY_PAGE_BYTES, COPY_PART_BYTES, COPY_WRITES_COMPARED};
use crate::store::batch::{Batch, ChangeValue, Data, ItemOp, NewWrites};
use crate::store::log::batches::{CopiedPoint, ForkParents, ThreadBatches, copied_point, timers, writes_of};
use crate::store::log::checksum::LogChecksum;
use crate::store::log::{Log, LogExt, LogReads, ThreadParts, ThreadRows};
use crate::store::operation::{OperationField, OperationTarget, checkpoint_of};
use crate::store::record::{CheckpointRecord, CheckpointRef};
use crate::store::{Store, StoreError};

/// Threads of a page of a listing.
const COPY_PAGE_THREADS: usize = 1_000;

/// What [`Store::copy_to`] copies.
///
/// # Example: what a copy would write
/// ```
/// use annals::history::CopyOptions;
/// use annals::prelude::*;
///
/// # fn main() -> Result<()> {
/// let (laptop, server) = (Store::memory(), Store::memory());
/// laptop.thread("trip")?.append("messages", [Message::human("hi")])?;
/// let report = laptop.copy_to(&server, CopyOptions::new().dry_run(true))?;
/// assert_eq!((report.threads[0].checkpoints, server.threads()?.len()), (1, 0));
/// # Ok(())
/// # }
/// ```
pub struct CopyOptions<'a> {
    threads: Option<Vec<ThreadId>>,
    dry_run: bool,
    checkpoints_per_commit: usize,
    progress: Option<Box<dyn FnMut(&CopyProgress<'_>) -> ControlFlow<()> + 'a>>,
}

impl<'a> CopyOptions<'a> {
    /// Copies all threads and the key-value memory.
    pub fn new() -> Self {
        Self { threads: None, dry_run: false, checkpoints_per_commit: BATCH_CHECKPOINTS_MAX, progress: None }
    }

    setters! {
        /// Copies a thread, and only those that are named so. The key-value memory is not copied.
        pub fn thread(thread: ThreadId) { .threads.get_or_insert_default().push(thread) }

        /// Counts what would be copied, and writes nothing. Default: off.
        pub fn dry_run(dry_run: bool) { .dry_run = dry_run }

        /// Commits after so many checkpoints, and after 8 MiB of values; a value below 1 counts as 1. Default: 1,000.
        pub fn checkpoints_per_commit(checkpoints: usize) { .checkpoints_per_commit = checkpoints }

        /// Calls a function after each commit; [`ControlFlow::Break`] ends the copy, which another call completes.
        pub fn on_progress(progress: impl FnMut(&CopyProgress<'_>) -> ControlFlow<()> + 'a) {
            .progress = Some(Box::new(progress))
        }
    }
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, dry_run, checkpoints_per_commit, progress } = self;
        f.debug_struct("CopyOptions")
            .field("threads", threads)
            .field("dry_run", dry_run)
            .field("checkpoints_per_commit", checkpoints_per_commit)
            .field("progress", &progress.is_some())
            .finish()
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CopyProgress<'a> {
    /// The thread that is being copied.
    pub thread: &'a ThreadId,
    /// The threads before it, of all that are copied.
    pub threads_done: usize,
    /// The threads that are copied.
    pub threads: usize,
    /// The checkpoints of the thread that the target has.
    pub checkpoints_done: u64,
    /// The checkpoints of the thread.
    pub checkpoints: u64,
}

/// A thread that was copied, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedThread {
    /// Its id.
    pub thread: ThreadId,
    /// The checkpoints that were written.
    pub checkpoints: u64,
    /// The checkpoints that the target had already.
    pub checkpoints_there: u64,
    /// The operations that were written.
    pub operations: u64,
    /// The operations that were left out, because they name pruned checkpoints.
    pub operations_left_out: u64,
    /// The checksum of its batches and operations, in hexadecimal digits: equal at both ends. `None` of a dry run.
    pub checksum: Option<String>,
}

/// The result of [`Store::copy_to`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// The threads that are whole in the target, or would be after a dry run, in the order of the copy.
    pub threads: Vec<CopiedThread>,
    /// The threads that were refused, each with the reason: the target has something else in the thread, or the thread
    /// is damaged. Their copies are as far as they were written.
    pub refused: Vec<(ThreadId, StoreError)>,
    /// The entries of the key-value memory that were written.
    pub kv_entries: u64,
    /// The entries of the key-value memory that the target had already.
    pub kv_entries_there: u64,
    /// True if the function of [`CopyOptions::on_progress`] ended the copy.
    pub is_stopped: bool,
}

impl Store {
    /// Copies threads to another store, on any backend: their checkpoints in all namespaces with their ids, the writes
    /// of their tasks, their timers, operations, facts, branches and heads, and of all threads together the key-value
    /// memory. A fork stays a fork of its original if the target has that, and begins with its whole state otherwise.
    /// Each thread is verified: the checksum of what the target has is that of what was read.
    ///
    /// The copy is written in commits of about 1,000 checkpoints, so it needs neither the memory nor the time of one
    /// commit for all. A copy that ended early is completed by another call, and one that is repeated adds what is new:
    /// what the target has is neither written again nor changed. A thread that went on in the target is refused. What
    /// is written to the threads meanwhile is copied by the next call, so the last copy is made when no run is left.
    ///
    /// Not copied are the cache, leases, pruned checkpoints with the operations that name them, and threads that have
    /// nothing but signals in their mailbox, unless they are named. An operation on several threads becomes one of
    /// each. Numbers of operations and positions of followers are those of the target.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if both stores are the same handle; [`StoreError::ThreadNotFound`] for a named thread;
    /// as [`Log::submit`] for the target, with the threads before it copied. Threads that are refused are in the
    /// report.
    ///
    /// # Example
    /// ```
    /// use annals::history::CopyOptions;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let (laptop, server) = (Store::memory(), Store::memory());
    /// let trip = laptop.thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// trip.facts().title("Bern").save()?;
    /// let report = laptop.copy_to(&server, CopyOptions::new())?;
    /// assert!(report.refused.is_empty() && report.threads[0].operations == 1);
    /// let copy = server.thread("trip")?;
    /// assert_eq!(copy.head()?.unwrap().id(), trip.head()?.unwrap().id());
    /// copy.undo()?.expect("the facts are undone there as here");
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_to(&self, target: &Store, mut options: CopyOptions<'_>) -> Result<CopyReport, StoreError> {
        self.flush_abandoned();
        target.flush_abandoned();
        if Arc::ptr_eq(self.backend(), target.backend()) {
            return Err(StoreError::Invalid { field: "target of the copy", reason: "it is the store itself".into() });
        }
        let threads = in_order(&**self.backend(), options.threads.as_deref())?;
        let mut report = CopyReport::default();
        for (done, thread) in threads.iter().enumerate() {
            let mut copying = ThreadCopy {
                source: &**self.backend(),
                target,
                thread,
                place: (done, threads.len()),
                part_checkpoints: options.checkpoints_per_commit,
                progress: &mut options.progress,
                is_stopped: false,
            };
            let copied = copying.run(options.dry_run);
            if copying.is_stopped {
                report.is_stopped = true;
                return Ok(report);
            }
            match copied {
                Ok(copied) => report.threads.push(copied),
                Err(error) if is_refusal(&error) => report.refused.push((thread.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        if options.threads.is_none() {
            let kv = copy_kv::copy(self, target, options.dry_run)?;
            (report.kv_entries, report.kv_entries_there) = (kv.copied, kv.all.saturating_sub(kv.copied));
        }
        Ok(report)
    }
}

/// Returns whether an error is about one thread, so that the others can be copied.
fn is_refusal(error: &StoreError) -> bool {
    use StoreError as E;
    matches!(
        error,
        E::Conflict { .. }
            | E::FieldConflict { .. }
            | E::StaleId { .. }
            | E::Duplicate { .. }
            | E::Invalid { .. }
            | E::Corrupt { .. }
            | E::Codec(_)
            | E::CheckpointNotFound { .. }
            | E::CheckpointPruned { .. }
            | E::Leased { .. }
    )
}

/// Returns the threads so that each comes after the one from which it was forked.
fn in_order(log: &dyn Log, named: Option<&[ThreadId]>) -> Result<Vec<ThreadId>, StoreError> {
    let mut parents: Vec<(ThreadId, Option<ThreadId>)> = Vec::new();
    let parts = ThreadParts { forked_from: true, ..ThreadParts::default() };
    match named {
        Some(threads) => {
            for thread in threads {
                let from = log.forked_from(thread)?;
                if from.is_none() && log.namespaces(thread)?.is_empty() {
                    return Err(StoreError::ThreadNotFound { id: thread.clone() });
                }
                parents.push((thread.clone(), from.map(|from| from.thread)));
            }
        }
        None => loop {
            let after = parents.last().map(|(thread, _)| thread.clone());
            let page = log.thread_rows(&ThreadRows::After(after.as_ref(), COPY_PAGE_THREADS), parts)?;
            let is_last = page.len() < COPY_PAGE_THREADS;
            let row = |row: crate::store::log::ThreadRow| Some((row.record?.id, row.forked_from.map(|of| of.thread)));
            parents.extend(page.into_iter().filter_map(row));
            if is_last {
                break;
            }
        },
    }
    let of: HashMap<&ThreadId, Option<&ThreadId>> =
        parents.iter().map(|(thread, parent)| (thread, parent.as_ref())).collect();
    let (mut ordered, mut placed) = (Vec::with_capacity(parents.len()), HashSet::new());
    for (thread, _) in &parents {
        let (mut lineage, mut next) = (Vec::new(), Some(thread));
        while let Some(thread) = next.filter(|thread| of.contains_key(thread) && placed.insert(*thread)) {
            lineage.push(thread);
            next = of[thread];
        }
        ordered.extend(lineage.into_iter().rev().cloned());
    }
    Ok(ordered)
}

/// One part of a thread in the order of its plan.
enum CopyStep {
    /// A checkpoint by its place in the plan, with the writes of its tasks.
    Checkpoint(usize, Vec<Batch>),
    /// An operation, by its place in the plan.
    Operation(usize),
    /// Writes that come after all checkpoints.
    Late(Box<Batch>),
}

/// Visits the steps of a plan.
fn walk(
    plan: &CopyPlan,
    batches: &mut ThreadBatches<'_, dyn Log + '_>,
    visit: &mut dyn FnMut(CopyStep) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut next = 0;
    for at in 0..=plan.records.len() {
        while let Some(operation) = plan.operations.get(next).filter(|operation| operation.after == at) {
            visit(CopyStep::Operation(next))?;
            for change in operation.new.changes.iter().filter(|change| change.field == OperationField::Head) {
                batches.move_head(&change.namespace, checkpoint_of(change.after.as_ref()));
            }
            next += 1;
        }
        if at < plan.records.len() {
            let mut own = Vec::with_capacity(2);
            batches.first(&plan.records[at..], plan.ends.contains(&at), &mut |batch| {
                own.push(batch);
                Ok(())
            })?;
            visit(CopyStep::Checkpoint(at, own))?;
        }
    }
    batches.rest(&mut |batch| visit(CopyStep::Late(Box::new(batch))))
}

/// Adds a step to a checksum.
fn add(checksum: &mut LogChecksum, plan: &CopyPlan, step: &CopyStep) {
    match step {
        CopyStep::Checkpoint(_, batches) => batches.iter().for_each(|batch| checksum.batch(batch)),
        CopyStep::Operation(place) => checksum.operation(&plan.operations[*place].new),
        CopyStep::Late(batch) => checksum.batch(batch),
    }
}

/// The copy of one thread.
struct ThreadCopy<'a, 'p, 'f> {
    source: &'a dyn Log,
    target: &'a Store,
    thread: &'a ThreadId,
    /// The threads before it, and all.
    place: (usize, usize),
    part_checkpoints: usize,
    progress: &'p mut Option<Box<dyn FnMut(&CopyProgress<'_>) -> ControlFlow<()> + 'f>>,
    is_stopped: bool,
}

/// The batches of the next commit.
#[derive(Default)]
struct CopyPart {
    batches: Vec<Batch>,
    checkpoints: usize,
    bytes: usize,
}

impl ThreadCopy<'_, '_, '_> {
    fn run(&mut self, dry_run: bool) -> Result<CopiedThread, StoreError> {
        let (thread, to) = (self.thread, &**self.target.backend());
        let plan = CopyPlan::read(self.source, thread)?;
        let there = CopyPlan::read(to, thread)?;
        let Some(begun) = plan.begun(&there) else { return Err(self.conflict(&plan, &there)) };
        let mut copied = CopiedThread {
            thread: thread.clone(),
            checkpoints: (plan.records.len() - begun.0) as u64,
            checkpoints_there: begun.0 as u64,
            operations: (plan.operations.len() - begun.1) as u64,
            operations_left_out: plan.left_out,
            checksum: None,
        };
        if dry_run {
            return Ok(copied);
        }
        let forks = self.forks(&plan, &there)?;
        self.catch_up(&plan.records[..begun.0])?;
        let read = self.write(&plan, begun, there.numbers, &forks)?;
        if self.checksum_of_copy()? != read {
            let place = format!("copy of thread {thread}");
            let reason = "the checksum of what the target has is not that of what was read".to_owned();
            return Err(StoreError::Corrupt { place, reason });
        }
        copied.checksum = Some(read.iter().map(|byte| format!("{byte:02x}")).collect());
        Ok(copied)
    }

    fn conflict(&self, plan: &CopyPlan, there: &CopyPlan) -> StoreError {
        let newest = |plan: &CopyPlan| plan.records.last().map(|record| record.point.checkpoint);
        let differs = |(own, other): &(&CheckpointRecord, &CheckpointRecord)| copied_point(own) != copied_point(other);
        let first = plan.records.iter().zip(&there.records).find(differs);
        let (expected, found) = match first {
            Some((own, other)) => (Some(own.point.checkpoint), Some(other.point.checkpoint)),
            None => (newest(plan), newest(there)),
        };
        StoreError::Conflict { thread: self.thread.clone(), namespace: Namespace::root(), expected, found }
    }

    /// Returns the first checkpoints of forks whose parent in another thread the target has. What is there already
    /// stays as it is.
    fn forks(&self, plan: &CopyPlan, there: &CopyPlan) -> Result<HashSet<CopiedPoint>, StoreError> {
        let is_elsewhere = |of: &&CheckpointRef| of.thread != *self.thread;
        let mut found = HashSet::new();
        for (at, record) in plan.records.iter().enumerate() {
            let Some(parent) = record.forked_from.as_ref().filter(is_elsewhere) else { continue };
            let is_fork = match there.records.get(at) {
                Some(copy) => copy.forked_from.as_ref().is_some_and(|of| is_elsewhere(&of)),
                None => self.target.backend().checkpoint(parent)?.is_some_and(|parent| !parent.pruned),
            };
            if is_fork {
                found.insert(copied_point(record));
            }
        }
        Ok(found)
    }

    /// Writes what tasks of checkpoints that the target has wrote since.
    fn catch_up(&mut self, there: &[CheckpointRecord]) -> Result<(), StoreError> {
        let points: HashSet<CopiedPoint> = there.iter().map(copied_point).collect();
        let newest: HashMap<&Namespace, CheckpointId> =
            there.iter().map(|record| (&record.point.namespace, record.point.checkpoint)).collect();
        let has_base = |new: &NewWrites| {
            new.writes.iter().all(|write| match &write.value {
                WriteValue::Delta(delta) => points.contains(&(delta.of.namespace.clone(), delta.of.checkpoint)),
                _ => true,
            })
        };
        let to = self.target.backend();
        let mut next = there;
        while !next.is_empty() {
            let page = &next[..next.len().min(COPY_WRITES_COMPARED)];
            let points: Vec<&CheckpointRef> = page.iter().map(|record| &record.point).collect();
            let own = self.source.writes_of(&points, COPY_PAGE_BYTES)?;
            let copied = to.writes_of(&points[..own.len()], COPY_PAGE_BYTES)?;
            next = &next[own.len().min(copied.len()).max(1)..];
            let differs = |((_, own), copied): &((&CheckpointRecord, Vec<_>), Vec<_>)| own != copied;
            for ((record, own), _) in page.iter().zip(own).zip(copied).filter(differs) {
                let (id, namespace) = (record.point.checkpoint, &record.point.namespace);
                let has_timers = newest.get(namespace) == Some(&id);
                let timers = if has_timers { timers(record, &own) } else { Vec::new() };
                let mut writes = writes_of(id, own);
                writes.retain(has_base);
                if !writes.is_empty() {
                    let mut batch = Batch::new(self.thread.clone(), namespace.clone(), None);
                    batch.expect[0].head = to.head_id(self.thread, namespace)?;
                    (batch.writes, batch.timers) = (writes, timers);
                    self.target.commit(&batch)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the steps that the target lacks, and returns the checksum of all.
    fn write(
        &mut self,
        plan: &CopyPlan,
        (records, operations): (usize, usize),
        mut numbers: Vec<u64>,
        forks: &HashSet<CopiedPoint>,
    ) -> Result<Checksum, StoreError> {
        let (mut checksum, mut part, mut done) = (LogChecksum::default(), CopyPart::default(), records as u64);
        let all = plan.records.len() as u64;
        let mut batches = ThreadBatches::new(self.source, (self.thread, self.thread), ForkParents::Of(forks));
        walk(plan, &mut batches, &mut |step| {
            add(&mut checksum, plan, &step);
            match step {
                CopyStep::Checkpoint(at, batches) if at >= records => {
                    done = at as u64 + 1;
                    part.add(batches);
                    if part.checkpoints >= self.part_checkpoints || part.bytes >= COPY_PART_BYTES {
                        self.commit(&mut part, (done, all))?;
                    }
                }
                CopyStep::Operation(place) if place >= operations => {
                    self.commit(&mut part, (done, all))?;
                    let mut new = plan.operations[place].new.clone();
                    if let Some(OperationTarget::Operation(place)) = new.target {
                        let number = usize::try_from(place).ok().and_then(|place| numbers.get(place).copied());
                        new.target = number.map(OperationTarget::Operation);
                    }
                    numbers.push(self.target.backend().operate(&new)?);
                    self.progressed((done, all))?;
                }
                CopyStep::Late(batch) if records < plan.records.len() => part.add(vec![*batch]),
                _ => {}
            }
            Ok(())
        })?;
        self.commit(&mut part, (done, all))?;
        plan.end(self.thread, &mut checksum);
        Ok(checksum.value())
    }

    fn commit(&mut self, part: &mut CopyPart, done: (u64, u64)) -> Result<(), StoreError> {
        let Some(batch) = Batch::of_all(std::mem::take(part).batches) else { return Ok(()) };
        let handle = self.target.submit(batch);
        self.target.backend().flush();
        handle.wait()?;
        self.progressed(done)
    }

    fn progressed(&mut self, (checkpoints_done, checkpoints): (u64, u64)) -> Result<(), StoreError> {
        let Some(progress) = self.progress.as_mut() else { return Ok(()) };
        let (threads_done, threads) = self.place;
        let now = CopyProgress { thread: self.thread, threads_done, threads, checkpoints_done, checkpoints };
        match progress(&now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                self.is_stopped = true;
                Err(StoreError::Invalid { field: "copy", reason: "it was ended".into() })
            }
        }
    }

    /// Returns the checksum of what the target has.
    fn checksum_of_copy(&self) -> Result<Checksum, StoreError> {
        let log = &**self.target.backend();
        let plan = CopyPlan::read(log, self.thread)?;
        let mut batches = ThreadBatches::new(log, (self.thread, self.thread), ForkParents::All);
        let mut checksum = LogChecksum::default();
        walk(&plan, &mut batches, &mut |step| {
            add(&mut checksum, &plan, &step);
            Ok(())
        })?;
        plan.end(self.thread, &mut checksum);
        Ok(checksum.value())
    }
}

impl CopyPart {
    fn add(&mut self, batches: Vec<Batch>) {
        self.checkpoints += batches.iter().map(|batch| batch.checkpoints.len()).sum::<usize>();
        self.bytes += batches.iter().map(bytes_of).sum::<usize>();
        self.batches.extend(batches);
    }
}

/// Returns the bytes of the values in a batch.
fn bytes_of(batch: &Batch) -> usize {
    let data = |data: &Data| if let Data::New(payload) = data { payload.len() } else { 0 };
    let change = |value: &ChangeValue| match value {
        ChangeValue::Empty => 0,
        ChangeValue::Value(value) => data(value),
        ChangeValue::Items(items) => {
            items.iter().map(|item| if let ItemOp::Put(value) = &item.op { data(value) } else { 0 }).sum()
        }
    };
    let value = |value: &WriteValue| value.payloads().iter().map(crate::base::Payload::len).sum::<usize>();
    let writes = batch.writes.iter().flat_map(|writes| &writes.writes).map(|write| value(&write.value));
    let changes = batch.checkpoints.iter().flat_map(|new| &new.changes).map(|of| change(&of.value));
    writes.chain(changes).sum()
}
