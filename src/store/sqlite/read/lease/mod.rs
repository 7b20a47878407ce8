//! Reads leases. *Absent:* their rules, and their changes ([`lease`](crate::store::sqlite::side::lease)).

mod sql;

pub(crate) use self::sql::CHECK_LEASES;
use crate::base::{ThreadId, Timestamp};
use crate::store::lease::{LeaseOwner, LeaseRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::{KeyChecked, TableRow, lease};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row};

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

/// Verifies a row of [`CHECK_LEASES`].
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view.keys, row).map(|_| ())
}

pub(crate) fn read(conn: &Connection, keys: &Keys, thread: i64) -> Res<Option<LeaseRecord>> {
    let mut statement = conn.prepare_cached(lease::Row::BY_KEY)?;
    let mut rows = statement.query([thread])?;
    rows.next()?.map(|row| decode(keys, row)).transpose()
}

/// Decodes and verifies a row.
pub(crate) fn decode(keys: &Keys, row: &Row<'_>) -> Res<LeaseRecord> {
    let row = lease::Row::verified(keys, row)?;
    let (Ok(epoch), Ok(recoveries)) = (u64::try_from(row.epoch), u64::try_from(row.recoveries)) else {
        return Err(corrupt(row.place(), "a number is negative"));
    };
    let owner = LeaseOwner::from_stored(row.owner, row.process);
    Ok(LeaseRecord::new(owner, epoch, row.expires_at.map(Timestamp::from_micros), recoveries))
}
