//! Groups of leases: the claims that count for a limit.
//!
//! A row is written and read in the transaction of a claim. A member counts as live while its lease is; a row of a
//! lease that has expired, or whose process died, stays until the thread is claimed again or released. *Absent:* the
//! rules, which are those of
//! [`LeaseGroup::admit`].

use super::super::fault::{Fault, Res};
use super::super::keys::Keys;
use super::sql;
use crate::base::Timestamp;
use crate::base::internal::hash::{check64, keyed_checksum};
use crate::store::lease::{LeaseGroup, LeaseRecord, NewLease};
use rusqlite::{Connection, params};

/// Compares a claim with the limits of its groups. `thread` is `None` for a thread that the batch makes.
pub(super) fn admit(conn: &Connection, keys: &Keys, lease: &NewLease, thread: Option<i64>) -> Res<()> {
    debug_assert!(lease.validate().is_ok(), "a claim is validated before it is written");
    let Some((now, groups)) = lease.entered() else { return Ok(()) };
    for group in groups {
        let number = number(keys, group);
        let mut members = Vec::new();
        let mut statement = conn.prepare_cached(sql::GROUP_MEMBERS)?;
        let mut rows = statement.query([number])?;
        while let Some(row) = rows.next()? {
            let member: i64 = row.get(0)?;
            if Some(member) != thread {
                let lease = super::read(conn, keys, member)?;
                let is_live = lease.is_some_and(|lease| lease.is_live(now));
                members.push((is_live, row.get::<_, Option<i64>>(1)?.map(Timestamp::from_micros)));
            }
        }
        group.admit(now, members).map_err(Fault::Store)?;
    }
    Ok(())
}

/// Stores the groups of a claim, or removes those of a released lease.
pub(super) fn put(conn: &Connection, keys: &Keys, lease: &NewLease, stored: &LeaseRecord, thread: i64) -> Res<()> {
    if stored.expires_at.is_none() {
        conn.prepare_cached(sql::GROUPS_RELEASE)?.execute([thread])?;
        return Ok(());
    }
    let Some((now, groups)) = lease.entered() else { return Ok(()) };
    for group in groups {
        let number = number(keys, group);
        conn.prepare_cached(sql::GROUP_PUT)?.execute(params![
            thread,
            number,
            group.rated_until(now).map(Timestamp::as_micros)
        ])?;
        if group.rate.is_some() {
            conn.prepare_cached(sql::GROUP_PASSED)?.execute([number, now.as_micros()])?;
        }
    }
    Ok(())
}

/// Deletes the rows of a thread that is being deleted.
pub(super) fn hide(conn: &Connection, thread: i64) -> Res<()> {
    conn.prepare_cached(sql::GROUPS_DELETE)?.execute([thread])?;
    Ok(())
}

/// Returns the number that stands for a group. In an encrypted file the hash has the key of the checksums, because
/// names are content.
fn number(keys: &Keys, group: &LeaseGroup) -> i64 {
    match keys.of_checksums() {
        None => check64(group.name.as_bytes()) as i64,
        Some(key) => {
            let [a, b, c, d, e, f, g, h, ..] = keyed_checksum(key, group.name.as_bytes());
            i64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
    }
}
