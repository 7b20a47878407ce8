//! Returns free pages to the file system while others read and write.
//!
//! Each step is a transaction that moves a bounded number of pages from the end of the file to free places and shortens
//! the file by them. The pages that are still free say where to continue, in any process and after a crash. *Absent:*
//! the pages of rows that are not reclaimed yet, which an erasure frees first.

use super::compact_step::{CompactJob, Pages, pages};
use crate::limits::RECLAIM_INTERVAL;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::role::SqliteWriter;
use crate::store::stats::Compaction;
use std::fs;

/// Compacts the file until it has no free page.
pub(crate) fn compact(place: &FilePlace, writer: &SqliteWriter) -> Result<Compaction, StoreError> {
    let before = measure(place)?;
    let bytes_before = file_bytes(place);
    let mut left = before;
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
    let left = measure(place)?;
    Ok(Compaction {
        pages: before.all.saturating_sub(left.all),
        free_pages: left.free,
        bytes_before,
        bytes_after: file_bytes(place),
        is_log_copied,
    })
}

/// Returns the pages of the file.
fn measure(place: &FilePlace) -> Result<Pages, StoreError> {
    open::connect_reader(place).and_then(|conn| pages(&conn)).map_err(Fault::into_read)
}

fn file_bytes(place: &FilePlace) -> u64 {
    fs::metadata(&place.path).map_or(0, |meta| meta.len())
}
