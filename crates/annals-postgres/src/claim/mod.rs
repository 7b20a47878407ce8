//! Claims of queued runs.
//!
//! Runs of queues without groups are taken in one round trip: rows that another claim has locked are passed over. If a
//! timer has passed, a group has limits, or a process that held runs has ended, the candidates are read one after
//! another in their order, and each is claimed by a commit that compares its thread with what was read.

mod sql;

use std::collections::HashMap;
use std::sync::Arc;

use annals::base::{IdSource, ThreadId, Timestamp};
use annals::store::backend::{ClaimRows, Claimable, claim_runs};
use annals::store::batch::Batch;
use annals::store::lease::{LeaseOwner, LeaseRecord, NewLease};
use annals::store::log::{ClaimQuery, ClaimedRun, Claims, Log, LogExt, Queues, TimerQuery};
use annals::store::record::TimerRecord;
use annals::store::{StoreError, ThreadQuery};
use tokio_postgres::Row;

use self::sql as claim_sql;
use crate::PostgresBackend;
use crate::client::{Param, PgQuery};
use crate::error::write_error;
use crate::read::threads::{ClaimedState, claimable, listed, owned};
use crate::rows::{Cells, column_text};

impl Queues for PostgresBackend {
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        query.validate()?;
        if let Some(claims) = claim_at_once(self, query)? {
            return Ok(claims);
        }
        claim_runs(query, usize::MAX, &mut ClaimedThreads { backend: self, changes: HashMap::new() })
    }
}

/// Claims runs in one round trip; `None` if that is not how they are claimed.
fn claim_at_once(backend: &PostgresBackend, query: &ClaimQuery) -> Result<Option<Claims>, StoreError> {
    let Some(owner) = query.owners.first().filter(|_| !query.queues.is_empty()) else { return Ok(None) };
    if query.queues.values().any(|groups| !groups.is_empty()) {
        return Ok(None);
    }
    let owners = Param::Blobs(query.owners.iter().map(|owner| Some(owner.id().to_vec())).collect());
    let graphs = Param::Texts(query.queues.keys().map(|graph| Some(column_text(graph))).collect());
    let (now, int) = (query.now.as_micros(), |value: i64| Param::Int(Some(value)));
    let params = [
        owners.clone(),
        graphs.clone(),
        int(now),
        int(query.until.as_micros()),
        Param::Text(Some(owner.process_text())),
        int(IdSource::new().random().cast_signed()),
        int(query.owners.len() as i64),
    ];
    let mut queries = vec![PgQuery::new(claim_sql::FIRST_TIMER, []), PgQuery::new(claim_sql::CLAIM, params)];
    queries.push(PgQuery::new(claim_sql::HOLDERS, [graphs, int(now)]));
    let of_owners = [
        claim_sql::THREADS,
        claim_sql::RECORDS,
        claim_sql::TASK_WRITES,
        claim_sql::CONSUMED,
        claim_sql::CONSUMED_ITEMS,
    ];
    queries.extend(of_owners.map(|sql| PgQuery::new(sql, [owners.clone(), int(now)])));
    let lanes = Arc::clone(&backend.client.lanes);
    let answers = backend.client.wait(async move { lanes.write_repeated(&queries).await.map_err(write_error) })?;
    let first = answers[0].first().map(|row| Cells::of(row).next::<i64>()).transpose()?;
    let ids = answers[1].iter().map(|row| Cells::of(row).thread()).collect::<Result<Vec<_>, _>>()?;
    let has_ended = |row: &Row| {
        let process = Cells::of(row).next::<Option<&str>>().ok().flatten().unwrap_or_default();
        LeaseOwner::from_stored([0; 16], process).has_died()
    };
    let is_short = ids.len() < query.owners.len();
    if first.is_some_and(|first| first <= now) || is_short && answers[2].iter().any(has_ended) {
        return Ok(None);
    }
    let mut claims = Claims::default();
    claims.next_at = first.map(Timestamp::from_micros);
    for (info, lease) in owned(&answers[3..], query.owners.len())? {
        if ids.contains(info.id()) {
            claims.runs.push(ClaimedRun::new(info, lease));
        }
    }
    claims.runs.sort_by_key(|run| run.info.queue_place());
    Ok(Some(claims))
}

/// The threads of a claim.
struct ClaimedThreads<'b> {
    backend: &'b PostgresBackend,
    /// The number of changes at which each thread was read.
    changes: HashMap<ThreadId, i64>,
}

impl ClaimedThreads<'_> {
    fn note(&mut self, (info, lease, change): ClaimedState) -> Claimable {
        self.changes.insert(info.id().clone(), change);
        (info, lease)
    }
}

impl ClaimRows for ClaimedThreads<'_> {
    type Error = StoreError;

    fn queued(&mut self, query: &ThreadQuery, _: &ClaimQuery) -> Result<Vec<Claimable>, StoreError> {
        let found = listed(self.backend, query)?;
        Ok(found.into_iter().map(|of| self.note(of)).collect())
    }

    fn thread(&mut self, thread: &ThreadId) -> Result<Option<Claimable>, StoreError> {
        let found = claimable(self.backend, &[thread])?;
        Ok(found.into_iter().map(|of| self.note(of)).next())
    }

    fn timers(&mut self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.backend.timer_rows(&TimerQuery::Due(due_by, limit))
    }

    fn take(&mut self, thread: &ThreadId, lease: &NewLease) -> Result<Result<LeaseRecord, StoreError>, StoreError> {
        let batch = Batch::of_lease(thread.clone(), lease.clone());
        match self.backend.commit_at(batch, self.changes.get(thread).copied()) {
            Ok(()) => {
                let missing = || StoreError::ThreadNotFound { id: thread.clone() };
                Ok(self.backend.lease(thread)?.ok_or_else(missing))
            }
            Err(
                refused @ (StoreError::LeaseLimit { .. }
                | StoreError::Leased { .. }
                | StoreError::ThreadNotFound { .. }
                | StoreError::FieldConflict { .. }),
            ) => Ok(Err(refused)),
            Err(error) => Err(error),
        }
    }
}
