//! Proofs of absence: a row that an index does not show is damage, and not an absent row.
//!
//! Reads stand on these proofs. *Absent:* the check of a whole file ([`check`](super::check)), which stands on reads.

pub(crate) mod neighbors;
pub(crate) mod succession;
