//! Pruning a thread: a policy, the plan that follows from it, and the report of the plan.
//!
//! A plan names the checkpoints that go; running it changes nothing else. *Absent:* the choice ([`PruneCandidates`]),
//! the rows ([`LogExt::prune`]), and the deletion of threads.
//!
//! Invariant: no policy reaches a checkpoint that [`LogExt::unprunable`] names: heads, the ends of branches, targets
//! of names, and the checkpoints on which other branches, other threads and lists rest.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{CheckpointId, Namespace, RunId, Timestamp, setters};
use crate::store::log::{Log, LogExt, PruneSpan, PruneTarget};
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, Pruned, StatusKind, Store, StoreError, ThreadInfo, ThreadQuery};

use super::prune_candidates::PruneCandidates;
use crate::history::thread::Thread;

/// The checkpoints of a thread that are to go: those to which every condition applies that was set. A policy without a
/// condition prunes nothing.
///
/// Heads, the last checkpoints of branches, those that a name stands for, and those on which others rest are kept
/// whatever a policy says; so are forks of the outermost graph that name checkpoints of subgraphs, with these, and the
/// checkpoint of an input that may still be due at a kept update or fork after it. A checkpoint of a subgraph goes with
/// the checkpoint of its parent graph, unless the subgraph retains its state and a run from a kept checkpoint would
/// begin with it. The namespace of a subgraph that belongs to one task goes as a whole, its head included, when all of
/// its checkpoints go so and nothing else rests on it. It stays if the metadata of one of them have the member `usage`,
/// which sums of the thread count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias("retention", "keep_latest"))]
pub struct PrunePolicy {
    keep_last: Option<u64>,
    older_than: Option<Timestamp>,
    runs: Option<BTreeSet<RunId>>,
    keeps_interrupted: bool,
}

impl PrunePolicy {
    /// Makes a policy that prunes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Keeps the last `n` checkpoints of each branch.
        pub fn keep_last(n: u64) { .keep_last = Some(n) }

        /// Keeps the checkpoints that were made at a timestamp or later.
        pub fn older_than(at: Timestamp) { .older_than = Some(at) }

        /// Keeps the checkpoints of all other runs, and those that no run made.
        pub fn of_runs(runs: impl IntoIterator<Item = RunId>) { .runs = Some(runs.into_iter().collect()) }
    }

    /// Keeps the checkpoints of which a task waits at an interrupt, or sleeps. Alone, it prunes nothing. The writes of
    /// each checkpoint that would go are read.
    pub fn keep_interrupted(mut self) -> Self {
        self.keeps_interrupted = true;
        self
    }

    /// Returns whether checkpoints stay because of their interrupts.
    pub(crate) fn keeps_interrupted(&self) -> bool {
        self.keeps_interrupted
    }

    /// Returns whether a checkpoint stays because of its interrupts.
    pub(crate) fn keeps(&self, backend: &dyn Log, record: &CheckpointRecord) -> Result<bool, StoreError> {
        if !self.keeps_interrupted || record.tasks.is_empty() {
            return Ok(false);
        }
        let writes = backend.writes(&record.point)?;
        let info = ThreadInfo::new(record.clone(), record.seq, record.created_at, Vec::new(), &writes)?;
        Ok(matches!(info.status, StatusKind::Interrupted | StatusKind::Sleeping))
    }

    /// Returns whether a checkpoint goes that has `newer` newer ones on its branch.
    pub(crate) fn applies(&self, record: &CheckpointRecord, newer: u64) -> bool {
        let is_set = self.keep_last.is_some() || self.older_than.is_some() || self.runs.is_some();
        is_set
            && self.keep_last.is_none_or(|n| newer >= n)
            && self.older_than.is_none_or(|at| record.created_at < at)
            && self.runs.as_ref().is_none_or(|runs| record.run.is_some_and(|run| runs.contains(&run)))
    }
}

/// The checkpoints of a thread that a policy prunes. Nothing is pruned until [`PrunePlan::run`].
#[derive(Clone, Debug)]
#[must_use = "a plan prunes nothing until it is run"]
pub struct PrunePlan {
    thread: Thread,
    checkpoints: Vec<(Namespace, CheckpointId)>,
    spans: Vec<PruneSpan>,
    /// The namespaces that go as a whole, each with its newest checkpoint.
    namespaces: Vec<(Namespace, CheckpointId)>,
}

impl Thread {
    /// Returns the checkpoints that a policy prunes, in all namespaces of the thread. Nothing is written. The records
    /// of all checkpoints are read, and no state.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend does not prune; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::history::PrunePolicy;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let trip = Store::memory().thread("trip")?;
    /// for text in ["one", "two", "three", "four"] {
    ///     trip.append("messages", [Message::human(text)])?;
    /// }
    /// let plan = trip.prune_plan(&PrunePolicy::new().keep_last(1))?;
    /// assert_eq!(plan.points().len(), 3);
    ///
    /// let pruned = plan.run()?;
    /// assert_eq!(pruned.checkpoints, 3);
    /// assert_eq!(trip.history()?.count(), 1);
    /// assert_eq!(trip.head()?.unwrap().len("messages")?, 4, "the head shows what it showed before");
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune_plan(&self, policy: &PrunePolicy) -> Result<PrunePlan, StoreError> {
        self.store().flush_abandoned();
        let backend = &**self.store().backend();
        let candidates = PruneCandidates::read(backend, self.id(), policy)?;
        let chosen = candidates.choose()?;
        let mut plan = PrunePlan {
            thread: self.clone(),
            checkpoints: Vec::new(),
            spans: Vec::new(),
            namespaces: chosen.namespaces.clone(),
        };
        let whole: BTreeSet<&Namespace> = chosen.namespaces.iter().map(|(namespace, _)| namespace).collect();
        for (namespace, of_namespace) in candidates.by_namespace() {
            let mut places: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let is_whole = whole.contains(namespace);
            for (id, (branch, ordinal)) in of_namespace.filter(|(id, _)| chosen.goes(namespace, *id)) {
                plan.checkpoints.push((namespace.clone(), id));
                if !is_whole {
                    places.entry(branch).or_default().push(ordinal);
                }
            }
            plan.spans.extend(places.into_iter().flat_map(|(branch, ordinals)| spans(branch, ordinals)));
        }
        plan.spans.sort_unstable();
        Ok(plan)
    }

    /// Prunes the thread: its [plan](Thread::prune_plan) for the policy is run.
    ///
    /// # Errors
    /// As [`PrunePlan::run`].
    pub fn prune(&self, policy: &PrunePolicy) -> Result<Pruned, StoreError> {
        self.prune_plan(policy)?.run()
    }
}

impl Store {
    /// Prunes the threads that a query finds, one after the other, and returns what went from all of them. They are
    /// listed page by page; without a [limit](ThreadQuery::limit) all of them are pruned.
    ///
    /// # Errors
    /// As [`PrunePlan::run`] and [`Store::threads_with`]. The threads before the one that failed are pruned.
    ///
    /// # Example
    /// ```
    /// use annals::history::{PrunePolicy, ThreadQuery};
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for id in ["a", "b"] {
    ///     store.thread(id)?.append("messages", [Message::human("hi")])?;
    ///     store.thread(id)?.append("messages", [Message::human("bye")])?;
    /// }
    /// let pruned = store.prune(ThreadQuery::new(), &PrunePolicy::new().keep_last(1))?;
    /// assert_eq!(pruned.checkpoints, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune(&self, mut query: ThreadQuery, policy: &PrunePolicy) -> Result<Pruned, StoreError> {
        let mut sum = Pruned::default();
        let mut left = query.limit.unwrap_or(usize::MAX);
        while left > 0 {
            let page = self.threads_with(query.clone().limit(left))?;
            for info in &page {
                sum.add(self.thread(info.id())?.prune(policy)?);
            }
            let Some(last) = page.last() else { break };
            left -= page.len();
            query = query.after(last);
        }
        Ok(sum)
    }
}

/// Returns the runs of neighbouring ordinals, which come in descending order.
fn spans(branch: u64, ordinals: Vec<u64>) -> Vec<PruneSpan> {
    debug_assert!(ordinals.is_sorted_by(|a, b| a > b), "ordinals come in descending order");
    let mut spans: Vec<PruneSpan> = Vec::new();
    for ordinal in ordinals {
        match spans.last_mut() {
            Some(span) if span.first == ordinal + 1 => span.first = ordinal,
            _ => spans.push(PruneSpan::new(branch, ordinal, ordinal)),
        }
    }
    debug_assert!(spans.iter().all(|span| span.first <= span.last), "a span ascends");
    spans
}

impl PrunePlan {
    /// Returns the checkpoints that go: namespace by namespace, the newest first.
    pub fn points(&self) -> impl ExactSizeIterator<Item = CheckpointRef> {
        let point = |(namespace, id): &(Namespace, CheckpointId)| {
            CheckpointRef::new(self.thread.id().clone(), namespace.clone(), *id)
        };
        self.checkpoints.iter().map(point)
    }

    /// Estimates the values and the bytes that go. It is an estimate: bytes that are stored once for several values are
    /// counted for each of them, rows and indexes are not counted, and the thread may change until the plan is run.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn estimate(&self) -> Result<Pruned, StoreError> {
        let (backend, thread) = (self.thread.store().backend(), self.thread.id());
        let mut sum = backend.prune_estimate(thread, &self.spans)?;
        if !self.namespaces.is_empty() {
            sum.add(backend.prune_estimate(thread, PruneTarget::Namespaces(&self.namespaces))?);
        }
        Ok(sum)
    }

    /// Prunes the checkpoints: their states, writes and metadata go, as far as no kept checkpoint shows them. Of each
    /// its id, place, time and run stay, so reading it is [`StoreError::CheckpointPruned`]. The state of every kept
    /// checkpoint stays as it is, also in threads that were forked from this one. One that cannot go any more, because
    /// something rests on it since the plan was made, is passed over.
    ///
    /// Whole namespaces of subgraphs go first, in one commit, and do not exist any more. Other checkpoints go in short
    /// transactions, the oldest first, and other writers come in between. After a crash or an
    /// error, some are pruned and the others are as they were: the same call continues.
    ///
    /// # Errors
    /// As [`LogExt::prune`].
    pub fn run(self) -> Result<Pruned, StoreError> {
        let (backend, thread) = (self.thread.store().backend(), self.thread.id());
        let mut sum = Pruned::default();
        // Lists of namespaces that go may begin as those of checkpoints that go.
        if !self.namespaces.is_empty() {
            sum.add(backend.prune(thread, PruneTarget::Namespaces(&self.namespaces))?);
        }
        sum.add(backend.prune(thread, &self.spans)?);
        Ok(sum)
    }
}
