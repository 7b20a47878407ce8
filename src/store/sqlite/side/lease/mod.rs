//! Rows of leases: one for each thread that was ever claimed, which is replaced.
//!
//! A row is compared and changed in the transaction of the batch that names a lease. A released lease leaves its row,
//! which holds the last epoch. *Absent:* the rules, which are those of [`NewLease::apply`].
//!
//! [`NewLease::apply`]: crate::store::NewLease::apply

mod groups;
mod sql;

pub(crate) use self::sql::CHECK_LEASES;
use crate::base::limits::WRITER_CACHE_MAX;
use crate::base::{ThreadId, Timestamp};
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::lease::{LeaseOwner, LeaseRecord, NewLease};
use crate::store::sqlite::commit::batch::{self, Caches};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::record::ReadView;
use crate::store::sqlite::rows::row_check::RowCheck;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use std::sync::Arc;

/// The leases of threads that the writer retains.
#[derive(Debug, Default)]
pub(crate) struct RetainedLeases(HashMap<i64, RetainedLease>);

/// The lease of a thread, with what its next release need not find out again.
#[derive(Debug)]
struct RetainedLease {
    lease: Option<LeaseRecord>,
    /// The text of the process of its owner, once it was stored.
    process: Option<Arc<str>>,
    /// True if rows may exist that a release deletes.
    is_in_groups: bool,
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

/// Writes a batch with its lease in the open transaction. On an error the caller rolls back.
pub(crate) fn write(conn: &Connection, caches: &mut Caches, batch: &Batch) -> Res<()> {
    if batch.lease.is_none() {
        return batch::batch(conn, caches, batch);
    }
    let (thread, is_new, lease) = compare(conn, caches, batch)?;
    if !batch.is_lease_alone() {
        batch::batch(conn, caches, batch)?;
    } else if thread.is_none() {
        return Err(StoreError::ThreadNotFound { id: batch.thread.clone() }.into());
    }
    let (Some(lease), Some(new)) = (lease, &batch.lease) else { return Ok(()) };
    // The batch may have made the thread.
    let thread = if thread.is_none() { caches.thread_number(conn, &batch.thread)? } else { thread };
    let thread = thread.ok_or_else(|| StoreError::ThreadNotFound { id: batch.thread.clone() })?;
    put(conn, caches, (thread, is_new), &lease, new)
}

/// Returns whether a checkpoint of the batch is stored: then all of the batch is.
fn is_stored(conn: &Connection, batch: &Batch) -> Res<bool> {
    for part in batch.parts() {
        if batch::is_stored(conn, part)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Compares the lease that a batch names with the stored one, before the batch is written. Returns the number of the
/// thread, whether it has no lease yet, and the lease to be stored, if that changes.
fn compare(conn: &Connection, caches: &mut Caches, batch: &Batch) -> Res<(Option<i64>, bool, Option<LeaseRecord>)> {
    let thread = caches.thread_number(conn, &batch.thread)?;
    let stored = thread.map(|thread| retained(conn, caches, thread)).transpose()?.flatten();
    let Some(new) = &batch.lease else { return Ok((thread, stored.is_none(), None)) };
    let admitted = new.apply(&batch.thread, stored.as_ref()).map_err(Fault::Store).and_then(|changed| {
        let is_claim = changed.as_ref().is_some_and(|lease| lease.is_claim(stored.as_ref()));
        if is_claim {
            groups::admit(conn, &caches.keys, new, thread)?;
        }
        Ok(changed)
    });
    match admitted {
        Ok(changed) => Ok((thread, stored.is_none(), changed)),
        // The batch was accepted before, when the lease was its own.
        Err(_) if is_stored(conn, batch)? => Ok((thread, stored.is_none(), None)),
        Err(refused) => Err(refused),
    }
}

/// Stores a lease in the place of the one that the thread has, or as its first one, and its groups as the batch names
/// them.
fn put(
    conn: &Connection,
    caches: &mut Caches,
    (thread, is_new): (i64, bool),
    lease: &LeaseRecord,
    new: &NewLease,
) -> Res<()> {
    debug_assert!(lease.epoch > 0, "the first claim has the epoch 1");
    let (epoch, recoveries) = (lease.epoch.cast_signed(), lease.recoveries.cast_signed());
    let retained = caches.leases.0.remove(&thread);
    let is_in_groups = retained.as_ref().is_none_or(|retained| retained.is_in_groups);
    let is_claim = lease.is_claim(retained.as_ref().and_then(|retained| retained.lease.as_ref()));
    let known = retained.and_then(|retained| retained.process.zip(retained.lease));
    let process = known.filter(|(_, before)| before.owner.is_of_process_of(&lease.owner)).map(|(text, _)| text);
    let process = process.unwrap_or_else(|| lease.owner.process_text().into());
    let owner = lease.owner.id();
    let expires_at = lease.expires_at.map(Timestamp::as_micros);
    let mut check = RowCheck::of("lease");
    check.int(thread).int(epoch).maybe_bytes(Some(owner)).text(&process).maybe_int(expires_at).int(recoveries);
    let row = params![thread, epoch, owner, &*process, expires_at, recoveries, check.finish_keyed(&caches.keys)];
    let statement = if is_new { sql::LEASE_INSERT } else { sql::LEASE_UPDATE };
    caches.fresh = true;
    if conn.prepare_cached(statement)?.execute(row)? != 1 {
        return Err(corrupt(format!("lease {thread}"), "the row of a lease that was read is missing"));
    }
    let releases = lease.expires_at.is_none();
    if is_in_groups && (releases || is_claim) {
        groups::leave(conn, thread)?;
    }
    if is_claim && !releases {
        groups::enter(conn, &caches.keys, new, thread)?;
    }
    let is_in_groups = !releases && if is_claim { new.entered().is_some() } else { is_in_groups };
    let retained = RetainedLease { lease: Some(lease.clone()), process: Some(process), is_in_groups };
    caches.leases.0.insert(thread, retained);
    Ok(())
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

/// Returns the lease of a thread.
pub(crate) fn of_id(view: ReadView<'_>, thread: &ThreadId) -> Res<Option<LeaseRecord>> {
    let mut statement = view.conn.prepare_cached(sql::LEASE_OF)?;
    let mut rows = statement.query([thread.as_str()])?;
    rows.next()?.map(|row| decode(view.keys, row)).transpose()
}

/// Returns the lease of the thread of a namespace.
pub(crate) fn of_namespace(view: ReadView<'_>, namespace: i64) -> Res<Option<LeaseRecord>> {
    let mut statement = view.conn.prepare_cached(sql::LEASE_OF_NAMESPACE)?;
    let mut rows = statement.query([namespace])?;
    rows.next()?.map(|row| decode(view.keys, row)).transpose()
}

/// Deletes the lease of a thread that is being deleted.
pub(crate) fn hide(conn: &Connection, thread: i64) -> Res<()> {
    conn.prepare_cached(sql::LEASE_DELETE)?.execute([thread])?;
    groups::hide(conn, thread)
}

/// Verifies a row of [`CHECK_LEASES`].
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view.keys, row).map(|_| ())
}

fn read(conn: &Connection, keys: &Keys, thread: i64) -> Res<Option<LeaseRecord>> {
    let mut statement = conn.prepare_cached(sql::LEASE)?;
    let mut rows = statement.query([thread])?;
    rows.next()?.map(|row| decode(keys, row)).transpose()
}

/// Decodes and verifies a row; its columns are those of `sql::LEASE`.
fn decode(keys: &Keys, row: &Row<'_>) -> Res<LeaseRecord> {
    let (thread, epoch): (i64, i64) = (row.get(0)?, row.get(1)?);
    let wrong = |reason: &str| corrupt(format!("lease {thread}"), reason);
    let owner = row.get_ref(2)?.as_blob().ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let owner = owner.ok_or_else(|| wrong("the id of its owner does not match the format"))?;
    let (process, expires_at, recoveries): (String, Option<i64>, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let mut check = RowCheck::of("lease");
    check.int(thread).int(epoch).maybe_bytes(Some(&owner)).text(&process).maybe_int(expires_at).int(recoveries);
    if check.finish_keyed(keys) != row.get::<_, i64>(6)? {
        return Err(wrong("the check of the row does not match"));
    }
    let (Ok(epoch), Ok(recoveries)) = (u64::try_from(epoch), u64::try_from(recoveries)) else {
        return Err(wrong("a number is negative"));
    };
    let owner = LeaseOwner::stored(owner, &process);
    Ok(LeaseRecord::new(owner, epoch, expires_at.map(Timestamp::from_micros), recoveries))
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
