//! Stores payloads and blobs, in an encrypted file sealed. *Absent:* their encodings, which are those of `rows`.

use super::caches::Caches;
use super::ids::Table;
use crate::base::limits::VALUE_BYTES_MAX;
use crate::limits::BLOB_BYTES_MIN;
use crate::store::batch::{ItemIndex, Payload};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::pack::{Inline, ValueColumn};
use crate::store::sqlite::rows::payload::{FORM_BITS, ItemIdColumn, form};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::sealed::{HAS_BLOBS, PayloadColumns, pack_fields};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::row_check::payload_column;
use crate::store::sqlite::tables::{Bare, blob, payload};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use xxhash_rust::xxh3::xxh3_64;

/// Stores a payload and returns what stands for it: its bytes if it is small and plain, else its row.
pub(crate) fn store(conn: &Connection, caches: &mut Caches, payload: &Payload, check: i64) -> Res<ValueColumn> {
    if caches.keys.seal_content() {
        return store_sealed(conn, caches, payload);
    }
    if let Some(inline) = Inline::pack(payload) {
        return Ok(ValueColumn::Inline(inline));
    }
    debug_assert!(payload.len() <= VALUE_BYTES_MAX, "a batch is validated before it is written");
    let data = match large(&payload.data) {
        true => ValueRef::Integer(store_blob(conn, caches, ValueRef::Blob(&payload.data), &payload.data)?),
        false => ValueRef::Blob(&payload.data),
    };
    let index = payload.index.as_deref();
    let text = match index.and_then(|index| index.text.as_deref()) {
        None => ValueRef::Null,
        Some(text) if large(text.as_bytes()) => {
            ValueRef::Integer(store_blob(conn, caches, text.into(), text.as_bytes())?)
        }
        Some(text) => text.into(),
    };
    let id = caches.ids.next(conn, Table::Payload)?;
    caches.unfollowed.note_payload(id, index);
    let item_id = index.and_then(|index| index.id.as_deref()).map(ItemIdColumn::of);
    let row = payload::Row {
        id,
        form: form(payload.codec, index.map(ItemIndex::as_ref).as_ref()),
        xxh3: payload_column(id, check),
        data,
        item_id: item_id.as_ref().map_or(ValueRef::Null, ItemIdColumn::column),
        kind: index.and_then(|index| index.kind.as_deref()),
        text,
        name: index.and_then(|index| index.name.as_deref()),
        tool_calls: index.and_then(|index| index.tool_calls.as_deref()),
        input_tokens: index.and_then(|index| index.input_tokens),
        output_tokens: index.and_then(|index| index.output_tokens),
    };
    row.insert(conn)?;
    Ok(ValueColumn::Payload(id))
}

pub(crate) fn large(bytes: &[u8]) -> bool {
    bytes.len() >= BLOB_BYTES_MIN
}

/// Stores a large content, once in the file; `column` holds it, in an encrypted file sealed.
pub(crate) fn store_blob(conn: &Connection, caches: &mut Caches, column: ValueRef<'_>, bytes: &[u8]) -> Res<i64> {
    let hash = caches.keys.checksum(bytes);
    let found = conn.first(sql::BLOB_BY_HASH, [&hash])?;
    if let Some(id) = found {
        return Ok(id);
    }
    let id = caches.ids.next(conn, Table::Blob)?;
    let sealed = match caches.keys.seal_content() {
        true => Some(caches.keys.seal(&sealed::blob_identity(&caches.keys, &hash), bytes)?),
        false => None,
    };
    let data = sealed.as_deref().map_or(column, ValueRef::Blob);
    blob::Row { id, hash: &hash, data }.insert(conn)?;
    Ok(id)
}

/// Stores a payload whose content is sealed.
pub(crate) fn store_sealed(conn: &Connection, caches: &mut Caches, payload: &Payload) -> Res<ValueColumn> {
    let index = payload.index.as_deref();
    let text = index.and_then(|index| index.text.as_deref());
    let mut blob = |bytes: &[u8]| match bytes.len() >= BLOB_BYTES_MIN {
        true => store_blob(conn, caches, ValueRef::Blob(bytes), bytes).map(Some),
        false => Ok(None),
    };
    let data = blob(&payload.data)?;
    let text = text.map(|text| blob(text.as_bytes())).transpose()?.flatten();
    let id = caches.ids.next(conn, Table::Payload)?;
    caches.unfollowed.note_payload(id, index);
    let form = (i64::from(payload.codec.to_tag()) << FORM_BITS) | if data.or(text).is_some() { HAS_BLOBS } else { 0 };
    let columns = PayloadColumns { id, form, data, text };
    let fields = pack_fields(index, text.is_some(), if data.is_some() { &[] } else { &payload.data });
    let sealed = caches.keys.seal(&columns.identity(&caches.keys), &fields)?;
    let here = ValueRef::Blob(&sealed);
    let (data, item_id) = data.map_or((here, ValueRef::Null), |blob| (ValueRef::Integer(blob), here));
    let text = text.map_or(ValueRef::Null, ValueRef::Integer);
    let xxh3 = payload_column(id, xxh3_64(&sealed) as i64);
    let (kind, name, tool_calls, input_tokens, output_tokens) = (None, None, None, None, None);
    let row = payload::Row { id, form, xxh3, data, item_id, kind, text, name, tool_calls, input_tokens, output_tokens };
    row.insert(conn)?;
    Ok(ValueColumn::Payload(id))
}
