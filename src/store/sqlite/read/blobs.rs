//! Reads blobs. *Absent:* their content, which is sealed in an encrypted file.

use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::tables::{Bare, TableRow, blob};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Reads data and hash of a blob to which a payload refers.
pub(crate) fn read(
    conn: &Connection,
    id: i64,
    visit: &mut dyn FnMut(ValueRef<'_>, ValueRef<'_>) -> Res<()>,
) -> Res<()> {
    let mut by_id = conn.prepare_cached(blob::Row::BY_KEY)?;
    let mut rows = by_id.query([id])?;
    let missing = || corrupt(format!("blob {id}"), "a payload refers to it, but it does not exist");
    let row = blob::Row::read(rows.next()?.ok_or_else(missing)?, 0)?;
    visit(row.data, ValueRef::Blob(row.hash))
}
