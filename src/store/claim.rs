//! Claims: runs of queues that are due are taken under leases, in one transaction.
//!
//! A run is due if its tasks are and no lease of its thread is live: it waits in a queue, its process has died, or one
//! of its timers has passed. The order is that of the queue over all graphs: priority, then age. A run that a limit of
//! a group refuses is passed over with all others of the group. *Absent:* how a backend finds threads and stores
//! leases ([`ClaimRows`]).
//!
//! Invariant: a run is claimed by one owner, and a limit is compared with the claims before it in the transaction.

use std::collections::{BTreeMap, VecDeque};

use super::batch::Batch;
use super::error::StoreError;
use super::lease::{LeaseGroup, LeaseOwner, LeaseRecord, NewLease};
use super::log::{Log, LogExt, ThreadParts, ThreadRows, TimerQuery};
use super::record::TimerRecord;
use super::status::StatusKind;
use super::threads::{ThreadInfo, ThreadQuery};
use crate::base::internal::hash::check64;
use crate::base::limits::{CLAIM_RUNS_MAX, LEASE_GROUPS_MAX};
use crate::base::{ThreadId, Timestamp};
use crate::limits::{CLAIM_CANDIDATES_MAX, CLAIM_PAGE_ROWS, CLAIM_TIMERS, LEASE_GROUP_BYTES_MAX};

/// Asks for runs of the queues of graphs, at most as many as there are owners.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals::prelude::*;
/// use annals::store::log::{ClaimQuery, LogExt};
///
/// # fn main() -> annals::Result<()> {
/// let store = Store::memory();
/// let until = store.now().saturating_add(Duration::from_secs(30));
/// let query = ClaimQuery::new([store.mint_owner()], store.now(), until).queue("book", []);
/// assert!(store.backend().claim(&query)?.runs.is_empty(), "nothing is queued");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimQuery {
    /// The graphs, each with the groups that the leases of its runs enter.
    pub queues: BTreeMap<String, Vec<QueueGroup>>,
    /// The owners of the leases, one for each run.
    pub owners: Vec<LeaseOwner>,
    /// The present timestamp.
    pub now: Timestamp,
    /// The timestamp at which the leases expire.
    pub until: Timestamp,
}

/// A group of the leases of a queue: one group of all runs, or one for each value that the metadata of the runs have
/// under a key. A run without the key enters none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueGroup {
    /// The member of the metadata whose values have a group each.
    pub key: Option<String>,
    /// The limits; the name, or the end of the names.
    pub group: LeaseGroup,
}

/// The runs that a claim has taken.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Claims {
    /// The runs, in the order of their claims.
    pub runs: Vec<ClaimedRun>,
    /// The first timestamp at which another run may be due: a timer, or the end of the period of a rate.
    pub next_at: Option<Timestamp>,
    /// True if runs are due that a limit refuses, or that lie behind too many such runs.
    pub is_refused: bool,
}

/// A run that a claim has taken.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClaimedRun {
    /// Its thread, without counts.
    pub info: ThreadInfo,
    /// Its lease, with the epoch of the claim.
    pub lease: LeaseRecord,
    /// The groups that the lease has entered.
    pub groups: Vec<LeaseGroup>,
}

impl ClaimedRun {
    /// Makes a run whose lease has entered no group.
    pub fn new(info: ThreadInfo, lease: LeaseRecord) -> Self {
        Self { info, lease, groups: Vec::new() }
    }
}

/// A thread with its last lease.
pub type Claimable = (ThreadInfo, Option<LeaseRecord>);

/// The rows of a backend that a claim reads and writes, in one transaction.
pub trait ClaimRows {
    /// The error of a read or a write.
    type Error;

    /// Returns the threads of a [queue](ThreadQuery::queue) in its order. Those with a live lease of an owner that the
    /// claim does not name may be left out: the runs that are under way stand at the front of a queue.
    ///
    /// # Errors
    /// Those of the backend.
    fn queued(&mut self, query: &ThreadQuery, claim: &ClaimQuery) -> Result<Vec<Claimable>, Self::Error>;

    /// Returns a thread.
    ///
    /// # Errors
    /// Those of the backend.
    fn thread(&mut self, thread: &ThreadId) -> Result<Option<Claimable>, Self::Error>;

    /// Lists timers, as [`TimerQuery::Due`](super::log::TimerQuery::Due).
    ///
    /// # Errors
    /// Those of the backend.
    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, Self::Error>;

    /// Stores the lease of a claim, or returns the error that refuses it: [`StoreError::LeaseLimit`] or
    /// [`StoreError::Leased`].
    ///
    /// # Errors
    /// Those of the backend.
    fn take(&mut self, thread: &ThreadId, lease: &NewLease) -> Result<Result<LeaseRecord, StoreError>, Self::Error>;
}

/// The rows of a claim by calls of a log, each of its own: for a layer that changes commits. A run that another owner
/// ends between a read and its claim is claimed although it is not due.
#[derive(Debug)]
pub struct ClaimCalls<'l, L: Log + ?Sized>(pub &'l L);

impl<L: Log + ?Sized> ClaimCalls<'_, L> {
    fn rows(&self, of: &ThreadRows<'_>) -> Result<Vec<Claimable>, StoreError> {
        let mut parts = ThreadParts::default();
        (parts.info, parts.lease) = (true, true);
        let rows = self.0.thread_rows(of, parts)?;
        Ok(rows.into_iter().filter_map(|row| Some((row.info?, row.lease))).collect())
    }
}

impl<L: Log + ?Sized> ClaimRows for ClaimCalls<'_, L> {
    type Error = StoreError;

    fn queued(&mut self, query: &ThreadQuery, _: &ClaimQuery) -> Result<Vec<Claimable>, StoreError> {
        self.rows(&ThreadRows::Listed(query))
    }

    fn thread(&mut self, thread: &ThreadId) -> Result<Option<Claimable>, StoreError> {
        Ok(self.rows(&ThreadRows::Ids(&[thread]))?.pop())
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.0.timer_rows(&TimerQuery::Due(due_by, limit))
    }

    fn take(&mut self, thread: &ThreadId, lease: &NewLease) -> Result<Result<LeaseRecord, StoreError>, StoreError> {
        match self.0.commit(&Batch::of_lease(thread.clone(), lease.clone())) {
            Ok(()) => {
                let missing = || StoreError::ThreadNotFound { id: thread.clone() };
                Ok(self.0.lease(thread)?.ok_or_else(missing))
            }
            Err(refused @ (StoreError::LeaseLimit { .. } | StoreError::Leased { .. })) => Ok(Err(refused)),
            Err(error) => Err(error),
        }
    }
}

impl ClaimQuery {
    /// Asks for one run for each owner.
    pub fn new(owners: impl IntoIterator<Item = LeaseOwner>, now: Timestamp, until: Timestamp) -> Self {
        Self { queues: BTreeMap::new(), owners: owners.into_iter().collect(), now, until }
    }

    /// Adds the queue of a graph, with the groups that the leases of its runs enter.
    pub fn queue(mut self, graph: impl Into<String>, groups: impl IntoIterator<Item = QueueGroup>) -> Self {
        self.queues.insert(graph.into(), groups.into_iter().collect());
        self
    }

    /// Compares the query with the limits. Every backend calls this first.
    ///
    /// # Errors
    /// [`StoreError::Invalid`].
    pub fn validate(&self) -> Result<(), StoreError> {
        if self.owners.len() > CLAIM_RUNS_MAX {
            let reason = format!("{} runs are asked for, the limit is {CLAIM_RUNS_MAX}", self.owners.len());
            return Err(StoreError::Invalid { field: "claim", reason });
        }
        for groups in self.queues.values() {
            if groups.len() > LEASE_GROUPS_MAX {
                let reason = format!("{} groups are named, the limit is {LEASE_GROUPS_MAX}", groups.len());
                return Err(StoreError::Invalid { field: "lease group", reason });
            }
            groups.iter().try_for_each(|of| of.group.validate())?;
        }
        Ok(())
    }

    /// Returns whether a thread with this lease can be claimed: it is not live, or one of the owners holds it.
    pub(crate) fn admits(&self, lease: Option<&LeaseRecord>) -> bool {
        let is_own = |lease: &LeaseRecord| self.owners.iter().any(|owner| owner.id() == lease.owner.id());
        lease.is_none_or(|lease| !lease.is_live(self.now) || is_own(lease))
    }

    /// Returns the groups that the lease of a run enters.
    fn groups_of(&self, info: &ThreadInfo) -> Vec<LeaseGroup> {
        let Some(groups) =
            info.graph.as_ref().and_then(|graph| self.queues.get(graph)).filter(|groups| !groups.is_empty())
        else {
            return Vec::new();
        };
        let metadata = info.record.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let metadata = metadata.unwrap_or(serde_json::Value::Null);
        groups.iter().filter_map(|of| of.entered_by(&metadata)).collect()
    }
}

impl QueueGroup {
    /// Makes one group of all runs of a queue.
    pub fn of_all(group: LeaseGroup) -> Self {
        Self { key: None, group }
    }

    /// Makes a group for each value that the metadata of the runs have under a key. The name of `group` ends their
    /// names.
    pub fn of_each(key: impl Into<String>, group: LeaseGroup) -> Self {
        Self { key: Some(key.into()), group }
    }

    /// Returns the group that a run with these metadata enters.
    fn entered_by(&self, metadata: &serde_json::Value) -> Option<LeaseGroup> {
        let Some(key) = &self.key else { return Some(self.group.clone()) };
        let value = match metadata.get(key)? {
            serde_json::Value::Null => return None,
            serde_json::Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let mut name = format!("{key} {value} of {}", self.group.name);
        if name.len() > LEASE_GROUP_BYTES_MAX {
            name = format!("{:016x} of a queue", check64(name.as_bytes()));
        }
        Some(LeaseGroup { name, ..self.group.clone() })
    }
}

/// Claims runs, at most `limit`, in the transaction of the rows. A repeated claim returns the runs whose live leases
/// have its owners.
///
/// # Errors
/// Those of the rows. The transaction is of no use then.
pub fn claim_runs<R: ClaimRows>(query: &ClaimQuery, limit: usize, rows: &mut R) -> Result<Claims, R::Error> {
    let (mut claim, mut sources) = (Claim::of(query, limit), Vec::new());
    if claim.limit > 0 {
        sources.push(claim.woken(rows)?);
        sources.extend(query.queues.keys().map(|graph| ClaimSource::of_queue(graph, claim.limit)));
    }
    while claim.claims.runs.len() < claim.limit {
        for source in &mut sources {
            source.fill(rows, query)?;
        }
        let next = sources.iter_mut().filter(|source| !source.page.is_empty());
        let Some(source) = next.min_by_key(|source| source.place()) else { break };
        let Some(candidate) = source.page.pop_front() else { break };
        if !claim.offer(rows, candidate)? {
            source.close();
        }
        if claim.passed_over >= CLAIM_CANDIDATES_MAX {
            claim.claims.is_refused = true;
            break;
        }
    }
    Ok(claim.claims)
}

/// The progress of a claim.
struct Claim<'q> {
    query: &'q ClaimQuery,
    limit: usize,
    owners: std::slice::Iter<'q, LeaseOwner>,
    claims: Claims,
    /// The groups that have refused a claim.
    refused: Vec<String>,
    /// The number of runs that a limit has refused.
    passed_over: usize,
}

impl<'q> Claim<'q> {
    fn of(query: &'q ClaimQuery, limit: usize) -> Self {
        let (limit, owners) = (limit.min(query.owners.len()), query.owners.iter());
        Self { query, limit, owners, claims: Claims::default(), refused: Vec::new(), passed_over: 0 }
    }

    /// Returns the threads of which a timer has passed, and notes the first timer that has not.
    fn woken<R: ClaimRows>(&mut self, rows: &mut R) -> Result<ClaimSource, R::Error> {
        let (now, mut woken) = (self.query.now, ClaimSource::default());
        let first = rows.timers(None, 1)?.first().map(|timer| timer.wake_at);
        if first.is_none_or(|first| first > now) {
            self.claims.next_at = first;
            return Ok(woken);
        }
        // A timer that has passed and is still there belongs to others, or runs.
        let next = rows.timers(None, CLAIM_TIMERS)?;
        self.claims.next_at = next.iter().map(|timer| timer.wake_at).find(|wake_at| *wake_at > now);
        let mut due = rows.timers(Some(now), CLAIM_TIMERS)?;
        let mut found = self.woken_of(rows, &due)?;
        if found.is_empty() && due.len() == CLAIM_TIMERS {
            // Those at the front belong to other graphs.
            due = rows.timers(Some(now), usize::MAX)?;
            found = self.woken_of(rows, due.get(CLAIM_TIMERS..).unwrap_or_default())?;
        }
        found.sort_by_key(|(info, _)| info.queue_place());
        woken.page = found.into();
        Ok(woken)
    }

    /// Returns the threads of timers that have passed, as far as they can be claimed.
    fn woken_of<R: ClaimRows>(&self, rows: &mut R, due: &[TimerRecord]) -> Result<Vec<Claimable>, R::Error> {
        let mut found: Vec<Claimable> = Vec::new();
        for timer in due {
            let thread = &timer.point.thread;
            if found.iter().any(|(info, _)| info.id() == thread) {
                continue;
            }
            found.extend(rows.thread(thread)?.filter(|candidate| self.is_due(candidate)));
        }
        Ok(found)
    }

    /// Returns whether a thread belongs to one of the graphs, is not paused, and waits for nothing but a timer that has
    /// passed.
    fn is_due(&self, (info, lease): &Claimable) -> bool {
        let waits = matches!(info.status, StatusKind::Running | StatusKind::Sleeping | StatusKind::Interrupted);
        let is_of_queue = info.graph.as_ref().is_some_and(|graph| self.query.queues.contains_key(graph));
        waits && self.query.admits(lease.as_ref()) && is_of_queue && !info.facts.is_paused
    }

    /// Claims a run, unless it is not due or a limit refuses it. Returns `false` if the limit is that of the queue.
    fn offer<R: ClaimRows>(&mut self, rows: &mut R, candidate: Claimable) -> Result<bool, R::Error> {
        if !self.is_due(&candidate) {
            return Ok(true);
        }
        let (info, lease) = candidate;
        if self.claims.runs.iter().any(|run| run.info.id() == info.id()) {
            return Ok(true);
        }
        let groups = self.query.groups_of(&info);
        if let Some(own) = lease.filter(|lease| lease.is_live(self.query.now)) {
            self.claims.runs.push(ClaimedRun { info, lease: own, groups });
            return Ok(true);
        }
        if groups.iter().any(|group| self.refused.contains(&group.name)) {
            self.passed_over += 1;
            return Ok(true);
        }
        let Some(owner) = self.owners.as_slice().first() else { return Ok(true) };
        let new = NewLease::claim(owner.clone(), self.query.now, self.query.until).in_groups(groups.iter().cloned());
        match rows.take(info.id(), &new)? {
            Ok(lease) => {
                debug_assert!(lease.owner == *owner && lease.is_live(self.query.now), "the lease is that of the claim");
                self.owners.next();
                self.claims.runs.push(ClaimedRun { info, lease, groups });
                Ok(true)
            }
            Err(StoreError::LeaseLimit { group, until }) => {
                self.claims.is_refused = true;
                self.claims.next_at = self.claims.next_at.into_iter().chain(until).min();
                let queue = info.graph.as_ref().and_then(|graph| self.query.queues.get(graph));
                let is_of_queue = |of: &QueueGroup| of.key.is_none() && of.group.name == group;
                let goes_on = !queue.is_some_and(|groups| groups.iter().any(is_of_queue));
                self.refused.push(group);
                self.passed_over += 1;
                Ok(goes_on)
            }
            // Another owner was faster, or the thread was deleted.
            Err(_) => Ok(true),
        }
    }
}

/// The candidates of a queue, or those whose timers have passed.
#[derive(Default)]
struct ClaimSource {
    page: VecDeque<Claimable>,
    /// The query of the next page; `None` after the last one.
    next: Option<ThreadQuery>,
    /// The place of the last candidate of a full page.
    passed: Option<(u8, u64)>,
}

impl ClaimSource {
    fn of_queue(graph: &str, limit: usize) -> Self {
        Self { next: Some(ThreadQuery::new().queue(graph).limit(limit)), ..Self::default() }
    }

    /// Reads the next page, if the one before was taken.
    fn fill<R: ClaimRows>(&mut self, rows: &mut R, claim: &ClaimQuery) -> Result<(), R::Error> {
        while self.page.is_empty()
            && let Some(query) = self.next.take()
        {
            let (listed, passed) = (rows.queued(&query, claim)?, self.passed);
            // A listing that repeats itself ends.
            let later = |(info, _): &Claimable| passed.is_none_or(|passed| info.queue_place() > passed);
            self.page = listed.into_iter().filter(later).collect();
            let limit = query.limit.unwrap_or_default();
            let last = self.page.back().filter(|_| self.page.len() >= limit);
            // The runs at the front were passed over: the next page is longer.
            self.passed = last.map(|(info, _)| info.queue_place());
            self.next = last.map(|(info, _)| query.after(info).limit((2 * limit).min(CLAIM_PAGE_ROWS)));
        }
        Ok(())
    }

    fn place(&self) -> Option<(u8, u64)> {
        self.page.front().map(|(info, _)| info.queue_place())
    }

    /// Passes over the rest.
    fn close(&mut self) {
        if self.next.take().is_some() {
            self.page.clear();
        }
    }
}
