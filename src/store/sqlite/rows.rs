//! Decoding payloads where they stand: borrowed from the row, verified, with large parts fetched by reference.

use super::fault::{Res, corrupt};
use super::pack::{Stored, unpack_inline};
use super::sql;
use super::sums::PayloadRef;
use crate::base::Codec;
use crate::store::record::ItemIndexRef;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Row};

/// Room for what cannot be borrowed from the row of a payload.
pub(super) struct Room {
    data: Vec<u8>,
    text: Vec<u8>,
    id: [u8; 36],
}

impl Default for Room {
    fn default() -> Self {
        Self { data: Vec::new(), text: Vec::new(), id: [0; 36] }
    }
}

/// Reads payloads by what `value` columns hold.
pub(super) struct Payloads<'c> {
    conn: &'c Connection,
    by_id: CachedStatement<'c>,
    room: Room,
}

impl<'c> Payloads<'c> {
    /// Prepares the statement once for many values.
    pub(super) fn new(conn: &'c Connection) -> Res<Self> {
        Ok(Self { conn, by_id: conn.prepare_cached(sql::PAYLOAD_BY_ID)?, room: Room::default() })
    }

    /// Hands the verified value to `then`; a NULL has none.
    pub(super) fn with<T>(
        &mut self,
        stored: Stored,
        place: &dyn Fn() -> String,
        then: impl FnOnce(PayloadRef<'_>) -> Res<T>,
    ) -> Res<Option<T>> {
        match stored {
            Stored::Null => Ok(None),
            Stored::Inline(inline) => then(inline_value(inline.column(), place)?).map(Some),
            Stored::Payload(id) => {
                let mut rows = self.by_id.query([id])?;
                let Some(row) = rows.next()? else {
                    return Err(corrupt(place(), format!("payload {id} does not exist")));
                };
                then(decode(self.conn, row, 0, id, &mut self.room)?).map(Some)
            }
        }
    }
}

/// Returns an inline value whose check fits.
pub(super) fn inline_value<'a>(column: &'a [u8], place: &dyn Fn() -> String) -> Res<PayloadRef<'a>> {
    let data = unpack_inline(column).ok_or_else(|| corrupt(place(), "the check of the inline value does not fit"))?;
    Ok(PayloadRef { codec: Codec::MsgPack, data, index: None })
}

/// Decodes the payload whose columns start at `first`, and verifies its check.
pub(super) fn decode<'r>(
    conn: &Connection,
    row: &'r Row<'_>,
    first: usize,
    id: i64,
    room: &'r mut Room,
) -> Res<PayloadRef<'r>> {
    let wrong = |what: &str| corrupt(format!("payload {id}"), format!("{what} is not what the format says"));
    let codec = u8::try_from(row.get::<_, i64>(first)?).map_err(|_| wrong("codec"))?;
    let Room { data, text, id: id_text } = room;
    let data = match row.get_ref(first + 3)? {
        ValueRef::Blob(bytes) => bytes,
        ValueRef::Integer(blob) => fetch(conn, blob, data)?,
        _ => return Err(wrong("data")),
    };
    let index = if row.get::<_, bool>(first + 1)? {
        let text = match row.get_ref(first + 10)? {
            ValueRef::Null => None,
            ValueRef::Integer(blob) => Some(std::str::from_utf8(fetch(conn, blob, text)?).map_err(|_| wrong("text"))?),
            column => Some(column.as_str().map_err(|_| wrong("text"))?),
        };
        let field = |at: usize, what| row.get_ref(first + at)?.as_str_or_null().map_err(|_| wrong(what));
        let count = |at: usize| -> Res<Option<u32>> { Ok(row.get(first + at)?) };
        Some(ItemIndexRef {
            id: item_id(row.get_ref(first + 4)?, id_text).ok_or_else(|| wrong("item_id"))?,
            kind: field(5, "kind")?,
            name: field(6, "name")?,
            tool_calls: field(7, "tool_calls")?,
            input_tokens: count(8)?,
            output_tokens: count(9)?,
            text,
        })
    } else {
        None
    };
    let payload = PayloadRef { codec: Codec::from_tag(codec), data, index };
    if payload.check() != row.get::<_, i64>(first + 2)? {
        return Err(corrupt(format!("payload {id}"), "its check does not fit"));
    }
    Ok(payload)
}

fn item_id<'r>(column: ValueRef<'r>, text: &'r mut [u8; 36]) -> Option<Option<&'r str>> {
    match column {
        ValueRef::Null => Some(None),
        ValueRef::Blob(bytes) => {
            let id = uuid::Uuid::from_slice(bytes).ok()?;
            Some(Some(id.hyphenated().encode_lower(text)))
        }
        column => column.as_str().ok().map(Some),
    }
}

fn fetch<'b>(conn: &Connection, blob: i64, room: &'b mut Vec<u8>) -> Res<&'b [u8]> {
    let mut by_id = conn.prepare_cached(sql::BLOB_BY_ID)?;
    let mut rows = by_id.query([blob])?;
    let Some(row) = rows.next()? else {
        return Err(corrupt(format!("blob {blob}"), "a payload refers to it, but it does not exist"));
    };
    room.clear();
    room.extend_from_slice(row.get_ref(0)?.as_bytes().map_err(|e| corrupt(format!("blob {blob}"), e.to_string()))?);
    Ok(room)
}

/// Returns the column of an item id: 16 bytes if it is the canonical text of a UUID, as most are.
pub(super) fn item_id_column(id: &str) -> ToSqlOutput<'_> {
    let mut canonical = [0; 36];
    match uuid::Uuid::try_parse(id) {
        Ok(uuid) if uuid.hyphenated().encode_lower(&mut canonical) == id => {
            ToSqlOutput::Owned(uuid.into_bytes().to_vec().into())
        }
        _ => ToSqlOutput::Borrowed(id.into()),
    }
}
