//! Deletions of threads: all rows of them, in one transaction on a connection of its own.
//!
//! The rows of the threads are locked first, as a fork locks the row of its source, so none is forked meanwhile.
//! *Absent:* the overwriting of bytes, which is the work of the server's vacuum.

mod sql;

use std::collections::BTreeMap;

use annals::base::ThreadId;
use annals::base::limits::{DELETED_THREADS_MAX, FORKS_SHOWN_MAX};
use annals::store::backend::{deletable, validate_deleted};
use annals::store::log::Erase;
use annals::store::{Erasure, StoreError};
use tokio_postgres::Row;

use self::sql as erase_sql;
use crate::PostgresBackend;
use crate::client::{Connections, Param, PgQuery, Together, back_off};
use crate::error::{PgFault, write_error};
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST};
use crate::rows::Cells;
use crate::sql as common_sql;

/// Deletes threads.
pub(crate) fn erase(backend: &PostgresBackend, what: &Erase<'_>) -> Result<Erasure, StoreError> {
    let threads = match what {
        Erase::Threads(threads) => {
            validate_deleted(threads)?;
            threads.to_vec()
        }
        Erase::Trash(now) => {
            let query = PgQuery::new(erase_sql::TRASH, [Param::Int(Some(now.as_micros()))]);
            let rows = backend.client.read(vec![query], Together::Apart)?.remove(0);
            due(&rows)?
        }
    };
    if !threads.is_empty() {
        let lanes = std::sync::Arc::clone(&backend.client.lanes);
        backend.client.wait(async move { delete(&lanes, &threads).await })?;
        backend.signal.notify();
    }
    Ok(Erasure::Erased)
}

/// Returns the threads whose time in the trash has ended, without those from which others were forked that stay.
fn due(rows: &[Row]) -> Result<Vec<ThreadId>, StoreError> {
    let mut forks: BTreeMap<ThreadId, Vec<ThreadId>> = BTreeMap::new();
    for row in rows {
        let mut cells = Cells::of(row);
        let of = forks.entry(cells.thread()?).or_default();
        if let Some(fork) = cells.next::<Option<&str>>()? {
            of.push(ThreadId::new(fork)?);
        }
    }
    let due = forks.keys().cloned().collect();
    deletable::<StoreError>(due, DELETED_THREADS_MAX, |of| Ok(forks.get(of).cloned().unwrap_or_default()))
}

async fn delete(lanes: &Connections, threads: &[ThreadId]) -> Result<(), StoreError> {
    let mut backoff = BACKOFF_FIRST;
    for attempt in 1.. {
        match delete_once(lanes, threads).await {
            Ok(outcome) => return outcome,
            Err(fault) if attempt < ATTEMPTS_MAX && fault.passes() => back_off(&mut backoff).await,
            Err(fault) => return Err(write_error(fault)),
        }
    }
    Ok(())
}

async fn delete_once(lanes: &Connections, threads: &[ThreadId]) -> Result<Result<(), StoreError>, PgFault> {
    let of = lanes.open().await?;
    of.begin().await?;
    let ids = Param::Texts(threads.iter().map(|id| Some(id.as_str().to_owned())).collect());
    let found = lanes.run(&of, &[PgQuery::new(common_sql::LOCK_THREADS, [ids])], Together::Open).await?.remove(0);
    let numbers = found.iter().map(|row| row.try_get(0).map(Some)).collect::<Result<Vec<Option<i64>>, _>>()?;
    let numbers = Param::Ints(numbers);
    let forks = [PgQuery::new(erase_sql::FORKS_THAT_STAY, [numbers.clone()])];
    let forks = lanes.run(&of, &forks, Together::Open).await?.remove(0);
    match forked_off(&forks) {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Ok(Err(error)),
    }
    let deletions: Vec<PgQuery> = erase_sql::DELETIONS.iter().map(|sql| PgQuery::new(sql, [numbers.clone()])).collect();
    lanes.run(&of, &deletions, Together::Open).await?;
    of.client.batch_execute(common_sql::COMMIT).await?;
    Ok(Ok(()))
}

/// Returns the error for the first thread with forks that stay.
fn forked_off(rows: &[Row]) -> Result<Option<StoreError>, StoreError> {
    let (mut of, mut forks) = (None, Vec::new());
    for row in rows {
        let mut cells = Cells::of(row);
        let thread = cells.thread()?;
        if *of.get_or_insert_with(|| thread.clone()) == thread {
            forks.push(cells.thread()?);
        }
    }
    let more = forks.len() > FORKS_SHOWN_MAX;
    forks.truncate(FORKS_SHOWN_MAX);
    Ok(of.map(|thread| StoreError::ForkedOff { thread, forks, more }))
}
