//! Groups of leases: the claims that count for a limit.
//!
//! A row is written and read in the transaction of a claim. A member counts as live while its lease is; a row of a
//! lease that has expired, or whose process died, stays until the thread is claimed again or released. *Absent:* the
//! rules, which are those of [`LeaseGroup::admit`].

use super::sql;
use crate::base::Timestamp;
use crate::base::internal::hash::{check64, keyed_checksum};
use crate::store::lease::{LeaseGroup, NewLease};
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::{Bare, TableRow, lease_group};
use rusqlite::Connection;

/// Compares a claim with the limits of its groups. `thread` is `None` for a thread that the batch makes.
pub(super) fn admit(conn: &Connection, keys: &Keys, lease: &NewLease, thread: Option<i64>) -> Res<()> {
    debug_assert!(lease.validate().is_ok(), "a claim is validated before it is written");
    let Some((now, groups)) = lease.entered() else { return Ok(()) };
    for group in groups {
        group.admit(now, members(conn, keys, group, (thread, now))?).map_err(Fault::Store)?;
    }
    Ok(())
}

/// Returns the members of a group beside a thread: whether each is live, and until when its claim counts for the rate.
fn members(
    conn: &Connection,
    keys: &Keys,
    group: &LeaseGroup,
    (beside, now): (Option<i64>, Timestamp),
) -> Res<Vec<(bool, Option<Timestamp>)>> {
    let mut members = Vec::new();
    if !TableGroup::Leases.exists(conn)? {
        return Ok(members);
    }
    for (member, until) in conn.all::<(i64, Option<i64>), Vec<_>>(sql::GROUP_MEMBERS, [number(keys, group)])? {
        if Some(member) != beside {
            let lease = super::read(conn, keys, member)?;
            let is_live = until.is_none_or(|until| until >= 0) && lease.is_some_and(|lease| lease.is_live(now));
            members.push((is_live, until.map(|until| Timestamp::from_micros(until.saturating_abs()))));
        }
    }
    Ok(members)
}

/// Takes a thread out of its groups. A claim that counts for a rate does so until its time has passed.
pub(super) fn leave(conn: &Connection, thread: i64) -> Res<()> {
    conn.run(sql::GROUPS_LEAVE, [thread])?;
    conn.run(sql::GROUPS_LEAVE_RATED, [thread])?;
    Ok(())
}

/// Stores the groups of a claim.
pub(super) fn enter(conn: &Connection, keys: &Keys, lease: &NewLease, thread: i64) -> Res<()> {
    let Some((now, groups)) = lease.entered() else { return Ok(()) };
    for group in groups {
        let (grp, rated_until) = (number(keys, group), group.rated_until(now).map(Timestamp::as_micros));
        lease_group::Row { thread, grp, rated_until }.put(conn)?;
        if group.rate.is_some() {
            conn.run(sql::GROUP_PASSED, [grp, now.as_micros()])?;
        }
    }
    Ok(())
}

/// Deletes the rows of a thread that is being deleted.
pub(super) fn hide(conn: &Connection, thread: i64) -> Res<()> {
    conn.run(lease_group::Row::DELETE_UNDER, [thread])?;
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
