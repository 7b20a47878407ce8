//! The statements of the table of leases.

pub(super) const LEASE_UPDATE: &str = "UPDATE lease SET epoch = ?2, owner = ?3, process = ?4, expires_at = ?5, \
     recoveries = ?6, xxh3 = ?7 WHERE thread = ?1";
/// A release or a renewal, which changes nothing else.
pub(super) const LEASE_EXPIRY: &str = "UPDATE lease SET expires_at = ?2, xxh3 = ?3 WHERE thread = ?1";

/// The threads of a group, and until when the claim of each counts for its rate.
pub(super) const GROUP_MEMBERS: &str =
    "SELECT thread, rated_until FROM lease_group INDEXED BY lease_group_members WHERE grp = ?1";
/// Deletes the rows of leases that have left the group and whose claims do not count any more.
pub(super) const GROUP_PASSED: &str = "DELETE FROM lease_group WHERE grp = ?1 AND max(rated_until, -rated_until) <= ?2 \
     AND (rated_until < 0 OR (SELECT l.expires_at FROM lease l WHERE l.thread = lease_group.thread) IS NULL)";
/// Deletes the rows of a thread that count for no rate.
pub(super) const GROUPS_LEAVE: &str = "DELETE FROM lease_group WHERE thread = ?1 AND rated_until IS NULL";
/// Marks the others: a negative number counts for the rate alone.
pub(super) const GROUPS_LEAVE_RATED: &str =
    "UPDATE lease_group SET rated_until = -rated_until WHERE thread = ?1 AND rated_until > 0";
