//! Returns free pages to the file system while others read and write.
//!
//! Each step is a transaction that moves a bounded number of pages from the end of the file to free places and shortens
//! the file by them. The pages that are still free say where to continue, in any process and after a crash. *Absent:*
//! the pages of rows that are not reclaimed yet, which an erasure frees first.

use super::compact_step::{CompactJob, Pages, pages};
use super::migrate;
use crate::limits::RECLAIM_INTERVAL;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::lock::{self, wait_for};
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::sql;
use crate::store::sqlite::writer::group;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::role::SqliteWriter;
use crate::store::stats::Compaction;
use std::fs;

/// Compacts the file until it has no free page.
pub(crate) fn compact(place: &FilePlace, writer: &SqliteWriter) -> Result<Compaction, StoreError> {
    let before = measure(place)?;
    let bytes_before = file_bytes(place);
    if !before.1 {
        rewrite(place)?;
    }
    let mut left = before.0;
    while left.free > 0 {
        let job = CompactJob::default();
        writer.commit(JobRef::Compact(&job))?;
        let next = *job.left.lock();
        if next.free >= left.free {
            // Others free pages as fast as they are returned, or the last pages cannot be moved: the next call
            // continues.
            break;
        }
        left = next;
        // A process that waits for the lock finds it free.
        std::thread::sleep(RECLAIM_INTERVAL);
    }
    // The file itself gets shorter when the log is copied into it.
    let is_log_copied = match writer.checkpoint_wal() {
        Ok(()) => true,
        Err(StoreError::Busy { .. }) => false,
        Err(error) => return Err(error),
    };
    let left = measure(place)?.0;
    Ok(Compaction {
        pages: before.0.all.saturating_sub(left.all),
        free_pages: left.free,
        bytes_before,
        bytes_after: file_bytes(place),
        is_log_copied,
    })
}

/// Returns the pages of the file, and whether they can be moved.
fn measure(place: &FilePlace) -> Result<(Pages, bool), StoreError> {
    let measure = || -> Res<(Pages, bool)> {
        let conn = open::connect_reader(place)?;
        let can_move: i64 = conn.query_row(sql::AUTO_VACUUM, [], |row| row.get(0))?;
        Ok((pages(&conn)?, can_move != 0))
    };
    measure().map_err(Fault::into_read)
}

/// Writes a file anew that does not map its pages: its migration was interrupted before it did so.
fn rewrite(place: &FilePlace) -> Result<(), StoreError> {
    let rewritten = open::connect_checkpointer(place).and_then(|conn| {
        group::empty_found_wal(&conn)?;
        wait_for(place.busy_ms, || migrate::rewrite(&conn))
    });
    rewritten.map_err(|fault| {
        fault.into_write(|| StoreError::Busy { waited_ms: place.busy_ms, holder: lock::holder(&place.path) })
    })
}

fn file_bytes(place: &FilePlace) -> u64 {
    fs::metadata(&place.path).map_or(0, |meta| meta.len())
}
