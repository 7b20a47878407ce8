//! A view of the file: what a read needs. *Absent:* the reads, which are `impl` blocks in `read`.

use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::names::Names;
use rusqlite::Connection;

/// A connection inside a read transaction, with the names it needs.
#[derive(Clone, Copy)]
pub(crate) struct ReadView<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) names: &'a Names,
    pub(crate) keys: &'a Keys,
}
