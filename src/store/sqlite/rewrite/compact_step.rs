//! A step of a compaction: a transaction that returns a bounded number of pages.
//!
//! *Absent:* the order of the steps ([`compact`](super::compact)).

use crate::limits::COMPACT_PAGES_MAX;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;

/// A step of a compaction: a job of the writer role.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactJob {
    /// The pages of the file after the step.
    pub(crate) left: Arc<Mutex<Pages>>,
}

/// The pages of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pages {
    pub(crate) free: u64,
    pub(crate) all: u64,
}

pub(crate) fn pages(conn: &Connection) -> Res<Pages> {
    let number = |sql: &str| -> Res<u64> { Ok(u64::try_from(conn.one::<i64>(sql, [])?).unwrap_or(0)) };
    Ok(Pages { free: number(sql::FREE_PAGES)?, all: number(sql::ALL_PAGES)? })
}

/// Does a step in the transaction that is open.
pub(crate) fn step(conn: &Connection, job: &CompactJob) -> Res<()> {
    let mut returned = 0;
    // Each row is a page.
    conn.each_while(sql::RETURN_PAGES, [], |_| {
        returned += 1;
        Ok(returned < COMPACT_PAGES_MAX)
    })?;
    *job.left.lock() = pages(conn)?;
    Ok(())
}
