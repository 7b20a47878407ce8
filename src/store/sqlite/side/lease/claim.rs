//! Claims runs of queues: the rows that a claim reads, and the leases that it stores. *Absent:* the order and the
//! limits, which are those of [`claim_runs`].

use super::{groups, write};
use crate::base::{ThreadId, Timestamp};
use crate::store::backend::{ClaimRows, Claimable, claim_runs};
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::lease::{LeaseRecord, NewLease};
use crate::store::log::{ClaimQuery, Claims};
use crate::store::record::TimerRecord;
use crate::store::sqlite::commit::caches::{Caches, refresh};
use crate::store::sqlite::commit::leases::retained;
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::index::threads::{self, QueueTail};
use crate::store::sqlite::read::lease;
use crate::store::sqlite::side::timer;
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use crate::store::threads::{ThreadInfo, ThreadQuery};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;

/// A claim that waits for the writer, and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct ClaimJob {
    pub(crate) query: Arc<ClaimQuery>,
    pub(crate) claims: Arc<Mutex<Claims>>,
}

/// Returns what a claim of one run would take. Nothing is stored.
pub(crate) fn find(view: ReadView<'_>, query: &ClaimQuery) -> Res<Claims> {
    claim_runs(query, 1, &mut ReadRows(view))
}

/// Claims runs in the open transaction.
pub(crate) fn claim(conn: &Connection, caches: &mut Caches, job: &ClaimJob) -> Res<()> {
    refresh(conn, caches)?;
    let claims = claim_runs(&job.query, usize::MAX, &mut WrittenRows { conn, caches })?;
    // A group that is written anew claims anew.
    *job.claims.lock() = claims;
    Ok(())
}

/// The rows as a reader sees them.
struct ReadRows<'v>(ReadView<'v>);

impl ReadRows<'_> {
    /// Returns a page of a queue. `tail` follows the log first.
    fn queued_after(&self, query: &ThreadQuery, claim: &ClaimQuery, tail: &mut QueueTail) -> Res<Vec<Claimable>> {
        tail.follow(self.0)?;
        let admits = &mut |thread| Ok(claim.admits(lease::read(self.0.conn, self.0.keys, thread)?.as_ref()));
        let page = threads::list_queue(self.0, query, tail, admits)?;
        page.into_iter().map(|info| self.with_lease(info)).collect()
    }

    fn with_lease(&self, info: ThreadInfo) -> Res<Claimable> {
        let lease = lease::of_id(self.0, info.id())?;
        Ok((info, lease))
    }
}

impl ClaimRows for ReadRows<'_> {
    type Error = Fault;

    fn queued(&mut self, query: &ThreadQuery, claim: &ClaimQuery) -> Res<Vec<Claimable>> {
        let mut tail = QueueTail::default();
        self.queued_after(query, claim, &mut tail)
    }

    fn thread(&mut self, thread: &ThreadId) -> Res<Option<Claimable>> {
        threads::uncounted(self.0, thread)?.map(|info| self.with_lease(info)).transpose()
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Res<Vec<TimerRecord>> {
        timer::list(self.0, due_by, limit)
    }

    fn take(&mut self, thread: &ThreadId, new: &NewLease) -> Res<Result<LeaseRecord, StoreError>> {
        let stored = lease::of_id(self.0, thread)?;
        let number = neighbors::thread_number(self.0.conn, thread)?;
        let admitted = groups::admit(self.0.conn, self.0.keys, new, number);
        let changed = admitted.and_then(|()| new.apply(thread, stored.as_ref()).map_err(Fault::Store));
        taken(thread, changed)
    }
}

/// The rows as the open transaction sees and changes them.
struct WrittenRows<'t> {
    conn: &'t Connection,
    caches: &'t mut Caches,
}

impl WrittenRows<'_> {
    fn read(&self) -> ReadRows<'_> {
        ReadRows(self.caches.view(self.conn))
    }
}

impl ClaimRows for WrittenRows<'_> {
    type Error = Fault;

    fn queued(&mut self, query: &ThreadQuery, claim: &ClaimQuery) -> Res<Vec<Claimable>> {
        // It is retained unless the read fails.
        let mut tail = std::mem::take(&mut self.caches.queue_tail);
        let page = self.read().queued_after(query, claim, &mut tail)?;
        self.caches.queue_tail = tail;
        Ok(page)
    }

    fn thread(&mut self, thread: &ThreadId) -> Res<Option<Claimable>> {
        self.read().thread(thread)
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Res<Vec<TimerRecord>> {
        self.read().timers(due_by, limit)
    }

    fn take(&mut self, thread: &ThreadId, new: &NewLease) -> Res<Result<LeaseRecord, StoreError>> {
        let batch = Batch::of_lease(thread.clone(), new.clone());
        let written = write(self.conn, self.caches, &batch).and_then(|()| {
            let number = self.caches.thread_number(self.conn, thread)?;
            Ok(number.map(|number| retained(self.conn, self.caches, number)).transpose()?.flatten())
        });
        taken(thread, written)
    }
}

/// Tells a lease, or the reason that refuses it, from an error.
fn taken(thread: &ThreadId, lease: Res<Option<LeaseRecord>>) -> Res<Result<LeaseRecord, StoreError>> {
    match lease {
        Ok(lease) => lease.map(Ok).ok_or_else(|| corrupt(format!("lease of {thread}"), "a claim has stored none")),
        Err(Fault::Store(refused @ (StoreError::Leased { .. } | StoreError::LeaseLimit { .. }))) => Ok(Err(refused)),
        Err(error) => Err(error),
    }
}
