//! The statements that read leases.

use crate::store::sqlite::tables::text::{columns, text};

pub(super) const LEASE_OF: &str =
    text!("SELECT ", columns!(lease, "l."), " FROM lease l JOIN thread t ON t.id = l.thread WHERE t.public_id = ?1");
pub(super) const LEASE_OF_NAMESPACE: &str = text!(
    "SELECT ",
    columns!(lease, "l."),
    " FROM namespace n CROSS JOIN lease l ON l.thread = n.thread WHERE n.id = ?1"
);
