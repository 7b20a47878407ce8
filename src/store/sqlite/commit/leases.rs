//! The leases of threads that the writer retains. *Absent:* their changes.

use super::caches::Caches;
use crate::limits::WRITER_CACHE_MAX;
use crate::store::lease::LeaseRecord;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::read::lease::read;
use rusqlite::Connection;
use std::sync::Arc;

/// The leases of threads that the writer retains.
#[derive(Debug, Default)]
pub(crate) struct RetainedLeases(pub(crate) NumberMap<i64, RetainedLease>);

/// The lease of a thread, with what its next release need not find out again.
#[derive(Debug)]
pub(crate) struct RetainedLease {
    pub(crate) lease: Option<LeaseRecord>,
    /// The text of the process of its owner, once it was stored.
    pub(crate) process: Option<Arc<str>>,
    /// True if rows may exist that a release deletes.
    pub(crate) is_in_groups: bool,
}

impl RetainedLeases {
    /// Forgets all leases if there are too many.
    pub(crate) fn bound(&mut self) {
        if self.0.len() > WRITER_CACHE_MAX {
            self.clear();
        }
    }

    /// Forgets all leases.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the lease of a thread, which the writer retains.
pub(crate) fn retained(conn: &Connection, caches: &mut Caches, thread: i64) -> Res<Option<LeaseRecord>> {
    if let Some(RetainedLease { lease, .. }) = caches.leases.0.get(&thread) {
        // Outside a transaction another connection may have replaced it.
        debug_assert!(
            conn.is_autocommit() || read(conn, &caches.keys, thread).is_ok_and(|read| read == *lease),
            "the lease that was retained is that of the file"
        );
        return Ok(lease.clone());
    }
    let lease = read(conn, &caches.keys, thread)?;
    let retained = RetainedLease { lease: lease.clone(), process: None, is_in_groups: lease.is_some() };
    caches.leases.0.insert(thread, retained);
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_retained_up_to_a_bound() {
        let mut leases = RetainedLeases::default();
        for thread in 0..WRITER_CACHE_MAX as i64 {
            leases.0.insert(thread, RetainedLease { lease: None, process: None, is_in_groups: false });
        }
        leases.bound();
        assert_eq!(leases.0.len(), WRITER_CACHE_MAX);
        leases.0.insert(-1, RetainedLease { lease: None, process: None, is_in_groups: false });
        leases.bound();
        assert!(leases.0.is_empty());
    }
}
