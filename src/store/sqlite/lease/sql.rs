//! The statements of the table of leases.

/// The lease of a thread; its columns are those that are decoded.
pub(super) const LEASE: &str =
    "SELECT thread, epoch, owner, process, expires_at, recoveries, xxh3 FROM lease WHERE thread = ?1";
pub(super) const LEASE_INSERT: &str = "INSERT INTO lease (thread, epoch, owner, process, expires_at, recoveries, xxh3) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(super) const LEASE_UPDATE: &str = "UPDATE lease SET epoch = ?2, owner = ?3, process = ?4, expires_at = ?5, \
     recoveries = ?6, xxh3 = ?7 WHERE thread = ?1";
pub(super) const LEASE_DELETE: &str = "DELETE FROM lease WHERE thread = ?1";
pub(super) const LEASE_OF: &str = "SELECT l.thread, l.epoch, l.owner, l.process, l.expires_at, l.recoveries, l.xxh3 \
     FROM lease l JOIN thread t ON t.id = l.thread WHERE t.public_id = ?1";
pub(super) const LEASE_OF_NAMESPACE: &str = "SELECT l.thread, l.epoch, l.owner, l.process, l.expires_at, l.recoveries, \
     l.xxh3 FROM namespace n CROSS JOIN lease l ON l.thread = n.thread WHERE n.id = ?1";
pub(in super::super) const CHECK_LEASES: &str =
    "SELECT thread, epoch, owner, process, expires_at, recoveries, xxh3 FROM lease ORDER BY thread";
