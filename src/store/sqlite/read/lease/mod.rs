//! Reads leases. *Absent:* their rules, and their changes ([`lease`](crate::store::sqlite::side::lease)).

mod sql;

pub(crate) use self::sql::CHECK_LEASES;
use crate::base::{ThreadId, Timestamp};
use crate::store::lease::{LeaseOwner, LeaseRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::row_check::RowCheck;
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
    let mut statement = conn.prepare_cached(sql::LEASE)?;
    let mut rows = statement.query([thread])?;
    rows.next()?.map(|row| decode(keys, row)).transpose()
}

/// Decodes and verifies a row; its columns are those of `sql::LEASE`.
pub(crate) fn decode(keys: &Keys, row: &Row<'_>) -> Res<LeaseRecord> {
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
    let owner = LeaseOwner::from_stored(owner, &process);
    Ok(LeaseRecord::new(owner, epoch, expires_at.map(Timestamp::from_micros), recoveries))
}
