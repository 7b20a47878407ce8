//! Reads payloads by what `value` columns hold. *Absent:* their decoding, which is that of `rows`.

use super::blobs;
use crate::base::PayloadRef;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::rows::pack::ValueColumn;
use crate::store::sqlite::rows::payload::{Room, decode, form_column, inline_value};
use crate::store::sqlite::tables::{TableRow, payload};
use crate::store::sqlite::view::ReadView;
use rusqlite::{CachedStatement, Connection};

/// Reads payloads by what `value` columns hold.
pub(crate) struct Payloads<'c> {
    conn: &'c Connection,
    by_id: CachedStatement<'c>,
    room: Room<'c>,
}

impl<'c> Payloads<'c> {
    /// Prepares the statement once for many values.
    pub(crate) fn new(view: ReadView<'c>) -> Res<Self> {
        let by_id = view.conn.prepare_cached(payload::Row::BY_KEY)?;
        Ok(Self { conn: view.conn, by_id, room: Room::of(view.keys, blobs::read) })
    }

    /// Hands the value of a verified row to `then`; a NULL has none.
    pub(crate) fn with<T>(
        &mut self,
        stored: ValueColumn,
        place: &dyn Fn() -> String,
        then: impl FnOnce(PayloadRef<'_>) -> Res<T>,
    ) -> Res<Option<T>> {
        match stored {
            ValueColumn::Null => Ok(None),
            ValueColumn::Inline(inline) => then(inline_value(self.room.keys, inline.column(), place)?).map(Some),
            ValueColumn::Payload(id) => {
                let mut rows = self.by_id.query([id])?;
                let Some(row) = rows.next()? else {
                    return Err(corrupt(place(), format!("payload {id} does not exist")));
                };
                then(decode(self.conn, row, 0, id, form_column(row, 0)?, &mut self.room)?).map(Some)
            }
        }
    }
}
