//! Rows of leases: one for each thread that was ever claimed, which is replaced.
//!
//! A row is compared and changed in the transaction of the batch that names a lease. A released lease leaves its row,
//! which holds the last epoch. *Absent:* the rules, which are those of [`NewLease::apply`].
//!
//! [`NewLease::apply`]: crate::store::lease::NewLease::apply

pub(crate) mod claim;
mod groups;
mod sql;

use crate::base::Timestamp;
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::lease::{LeaseRecord, NewLease};
use crate::store::sqlite::commit::batch;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::commit::leases::{RetainedLease, retained};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::lease::read;
use crate::store::sqlite::tables::{TableRow, lease};
use rusqlite::{Connection, params};

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
    let before = retained.as_ref().and_then(|retained| retained.lease.as_ref());
    let is_claim = lease.is_claim(before);
    // The check covers the text of the process, which is known if this writer has stored it.
    let moves_expiry = retained.as_ref().is_some_and(|retained| retained.process.is_some())
        && before.is_some_and(|before| LeaseRecord { expires_at: lease.expires_at, ..before.clone() } == *lease);
    let known = retained.and_then(|retained| retained.process.zip(retained.lease));
    let process = known.filter(|(_, before)| before.owner.is_of_process_of(&lease.owner)).map(|(text, _)| text);
    let process = process.unwrap_or_else(|| lease.owner.process_text().into());
    let owner = *lease.owner.id();
    let expires_at = lease.expires_at.map(Timestamp::as_micros);
    let row = lease::Row { thread, epoch, owner, process: &process, expires_at, recoveries };
    if is_new {
        TableGroup::Leases.make(conn)?;
    }
    caches.fresh = true;
    let check = row.row_check().finish_keyed(&caches.keys);
    let stored = match (is_new, moves_expiry) {
        (true, _) => row.store(conn, lease::Row::INSERT, Some(check)),
        (false, true) => conn.run(sql::LEASE_EXPIRY, params![thread, expires_at, check]),
        (false, false) => row.store(conn, sql::LEASE_UPDATE, Some(check)),
    };
    if stored? != 1 {
        return Err(corrupt(row.place(), "the row of a lease that was read is missing"));
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

/// Deletes the lease of a thread that is being deleted.
pub(crate) fn hide(conn: &Connection, thread: i64) -> Res<()> {
    if !TableGroup::Leases.exists(conn)? {
        return Ok(());
    }
    conn.run(lease::Row::DELETE, [thread])?;
    groups::hide(conn, thread)
}
