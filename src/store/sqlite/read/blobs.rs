//! Reads blobs. *Absent:* their content, which is sealed in an encrypted file.

use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::{TableRow, blob};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

/// Reads data and hash of a blob to which a payload refers.
pub(crate) fn read(
    conn: &Connection,
    id: i64,
    visit: &mut dyn FnMut(ValueRef<'_>, ValueRef<'_>) -> Res<()>,
) -> Res<()> {
    let missing = || corrupt(format!("blob {id}"), "a payload refers to it, but it does not exist");
    let read = |row: &Row<'_>| {
        let row = blob::Row::read(row, 0)?;
        visit(row.data, ValueRef::Blob(row.hash))
    };
    conn.read_first(blob::Row::BY_KEY, [id], read)?.ok_or_else(missing)
}
