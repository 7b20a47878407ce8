//! Reads leases. *Absent:* their rules, and their changes ([`lease`](crate::store::sqlite::side::lease)).

mod sql;

use crate::base::{ThreadId, Timestamp};
use crate::store::lease::{LeaseOwner, LeaseRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::{KeyChecked, TableRow, lease};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row};

/// Returns the lease of a thread.
pub(crate) fn of_id(view: ReadView<'_>, thread: &ThreadId) -> Res<Option<LeaseRecord>> {
    if !TableGroup::Leases.exists(view.conn)? {
        return Ok(None);
    }
    view.conn.read_first(sql::LEASE_OF, [thread.as_str()], |row| decode(view.keys, row))
}

/// Returns the lease of the thread of a namespace.
pub(crate) fn of_namespace(view: ReadView<'_>, namespace: i64) -> Res<Option<LeaseRecord>> {
    if !TableGroup::Leases.exists(view.conn)? {
        return Ok(None);
    }
    view.conn.read_first(sql::LEASE_OF_NAMESPACE, [namespace], |row| decode(view.keys, row))
}

/// Verifies a row.
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view.keys, row).map(|_| ())
}

pub(crate) fn read(conn: &Connection, keys: &Keys, thread: i64) -> Res<Option<LeaseRecord>> {
    if !TableGroup::Leases.exists(conn)? {
        return Ok(None);
    }
    conn.read_first(lease::Row::BY_KEY, [thread], |row| decode(keys, row))
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
