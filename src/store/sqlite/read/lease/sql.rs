//! The statements that read leases.

/// The lease of a thread; its columns are those that are decoded.
pub(super) const LEASE: &str =
    "SELECT thread, epoch, owner, process, expires_at, recoveries, xxh3 FROM lease WHERE thread = ?1";
pub(super) const LEASE_OF: &str = "SELECT l.thread, l.epoch, l.owner, l.process, l.expires_at, l.recoveries, l.xxh3 \
     FROM lease l JOIN thread t ON t.id = l.thread WHERE t.public_id = ?1";
pub(super) const LEASE_OF_NAMESPACE: &str = "SELECT l.thread, l.epoch, l.owner, l.process, l.expires_at, l.recoveries, \
     l.xxh3 FROM namespace n CROSS JOIN lease l ON l.thread = n.thread WHERE n.id = ?1";
pub(crate) const CHECK_LEASES: &str =
    "SELECT thread, epoch, owner, process, expires_at, recoveries, xxh3 FROM lease ORDER BY thread";
