//! The statements that read leases.

use crate::store::sqlite::tables::sql::select;

pub(super) const LEASE_OF: &str =
    select!(lease as l, " FROM lease l JOIN thread t ON t.id = l.thread WHERE t.public_id = ?1");
pub(super) const LEASE_OF_NAMESPACE: &str =
    select!(lease as l, " FROM namespace n CROSS JOIN lease l ON l.thread = n.thread WHERE n.id = ?1");
