//! Reads blobs. *Absent:* their content, which is sealed in an encrypted file.

use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::sql;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Reads data and hash of a blob to which a payload refers.
pub(crate) fn read(
    conn: &Connection,
    blob: i64,
    visit: &mut dyn FnMut(ValueRef<'_>, ValueRef<'_>) -> Res<()>,
) -> Res<()> {
    let mut by_id = conn.prepare_cached(sql::BLOB_BY_ID)?;
    let mut rows = by_id.query([blob])?;
    let Some(row) = rows.next()? else {
        return Err(corrupt(format!("blob {blob}"), "a payload refers to it, but it does not exist"));
    };
    visit(row.get_ref(0)?, row.get_ref(1)?)
}
