//! The sealed columns of an encrypted file: payloads, blobs, metadata, and the values beside the log.
//!
//! The fields of a payload are sealed together, bound to the id of its row; a large data or text is a blob, bound to
//! the keyed hash of its content. A value that is not sealed is damage. *Absent:* the keys
//! ([`keys`](crate::store::sqlite::keys)), and names, ids, times and numbers of the log, which are not sealed.

use super::pack::{Unpack, put_uint};
use super::payload::{DATA, FORM_BITS, ITEM_ID, ReadBlob, Room, TEXT, XXH3};
use crate::base::{Codec, PayloadRef};
use crate::store::batch::ItemIndex;
use crate::store::record::ItemIndexRef;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::tables::row_check::payload_column;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

/// The bit of `form` of a sealed payload whose data or text is a blob.
pub(crate) const HAS_BLOBS: i64 = 1;
/// The bit of the first sealed byte of an item with an index.
const INDEXED: u8 = 1;
/// The bit of the first sealed byte of an item whose text is a blob.
const TEXT_IS_BLOB: u8 = 2;

/// The columns of a payload that are not sealed.
#[derive(Clone, Copy)]
pub(crate) struct PayloadColumns {
    pub(crate) id: i64,
    pub(crate) form: i64,
    pub(crate) data: Option<i64>,
    pub(crate) text: Option<i64>,
}

impl PayloadColumns {
    pub(crate) fn identity(&self, keys: &Keys) -> Identity {
        let blob = |id: Option<i64>| id.unwrap_or(-1);
        keys.identity("payload").int(self.id).int(self.form).int(blob(self.data)).int(blob(self.text))
    }
}

/// Decodes the sealed payload whose columns start at `first`.
pub(crate) fn decode<'r>(
    conn: &Connection,
    row: &Row<'_>,
    first: usize,
    id: i64,
    form: i64,
    room: &'r mut Room<'_>,
) -> Res<PayloadRef<'r>> {
    let place = || format!("payload {id}");
    let wrong = |what: &str| corrupt(place(), format!("{what} does not match the format"));
    let blob = |column: usize, what: &str| match row.get_ref(column)? {
        ValueRef::Integer(blob) => Ok(Some(blob)),
        ValueRef::Null | ValueRef::Blob(_) => Ok(None),
        _ => Err(wrong(what)),
    };
    let (data_blob, text_blob) = (blob(first + DATA, "data")?, blob(first + TEXT, "text")?);
    let columns = PayloadColumns { id, form, data: data_blob, text: text_blob };
    let column = first + if data_blob.is_some() { ITEM_ID } else { DATA };
    let sealed = row.get_ref(column)?.as_blob().map_err(|_| wrong("data"))?;
    if row.get_ref(first + XXH3)? != ValueRef::Integer(payload_column(id, xxh3_64(sealed) as i64)) {
        return Err(corrupt(place(), "its check does not match"));
    }
    let Room { keys, read_blob, data, text, check: fields, .. } = room;
    fields.clear();
    keys.open(conn, &columns.identity(keys), sealed, fields, &place)?;
    if let Some(blob) = data_blob {
        open_blob((*read_blob, conn), keys, blob, data)?;
    }
    if let Some(blob) = text_blob {
        open_blob((*read_blob, conn), keys, blob, text)?;
    }
    let text = text_blob.map(|_| &text[..]);
    let (index, rest) = unpack_fields(fields, text).ok_or_else(|| wrong("sealed columns"))?;
    let data = if data_blob.is_some() { &data[..] } else { rest };
    let codec = u8::try_from(form >> FORM_BITS).map_err(|_| wrong("form"))?;
    Ok(PayloadRef::new(Codec::from_tag(codec), data, index))
}

/// Packs the fields that are sealed together: a byte of bits, the fields of an index, and the data that is not a blob.
pub(crate) fn pack_fields(index: Option<&ItemIndex>, text_is_blob: bool, data: &[u8]) -> Zeroizing<Vec<u8>> {
    let text = index.and_then(|index| index.text.as_deref()).filter(|_| !text_is_blob);
    let mut out = Zeroizing::new(Vec::with_capacity(data.len() + text.map_or(0, str::len) + 128));
    out.push(if index.is_some() { INDEXED } else { 0 } | if text_is_blob { TEXT_IS_BLOB } else { 0 });
    if let Some(index) = index {
        let (id, kind, name) = (index.id.as_deref(), index.kind.as_deref(), index.name.as_deref());
        for field in [id, kind, name, index.tool_calls.as_deref(), text] {
            put_uint(&mut out, field.map_or(0, |field| field.len() as u64 + 1));
            out.extend_from_slice(field.unwrap_or_default().as_bytes());
        }
        for tokens in [index.input_tokens, index.output_tokens] {
            put_uint(&mut out, tokens.map_or(0, |tokens| u64::from(tokens) + 1));
        }
    }
    out.extend_from_slice(data);
    out
}

/// Unpacks the sealed fields; `blob` is the text that is a blob.
fn unpack_fields<'r>(fields: &'r [u8], blob: Option<&'r [u8]>) -> Option<(Option<ItemIndexRef<'r>>, &'r [u8])> {
    let mut rest = Unpack(fields);
    let bits = rest.take(1)?[0];
    if bits & !(INDEXED | TEXT_IS_BLOB) != 0 || (bits & TEXT_IS_BLOB != 0) != blob.is_some() {
        return None;
    }
    if bits & INDEXED == 0 {
        return Some((None, rest.0));
    }
    let mut field = || -> Option<Option<&'r str>> {
        match rest.uint()?.checked_sub(1) {
            None => Some(None),
            Some(length) => Some(Some(std::str::from_utf8(rest.take(usize::try_from(length).ok()?)?).ok()?)),
        }
    };
    let mut index = ItemIndexRef::default();
    (index.id, index.kind, index.name, index.tool_calls) = (field()?, field()?, field()?, field()?);
    index.text = match (field()?, blob) {
        (None, Some(blob)) => Some(std::str::from_utf8(blob).ok()?),
        (text, None) => text,
        _ => return None,
    };
    let mut tokens = || -> Option<Option<u32>> {
        match rest.uint()?.checked_sub(1) {
            None => Some(None),
            Some(tokens) => Some(Some(u32::try_from(tokens).ok()?)),
        }
    };
    (index.input_tokens, index.output_tokens) = (tokens()?, tokens()?);
    Some((Some(index), rest.0))
}

/// Returns the identity of the content of a blob.
pub(crate) fn blob_identity(keys: &Keys, hash: &[u8]) -> Identity {
    keys.identity("blob").bytes(hash)
}

/// Reads a blob into `plain`.
fn open_blob((read_blob, conn): (ReadBlob, &Connection), keys: &Keys, blob: i64, plain: &mut Vec<u8>) -> Res<()> {
    let place = || format!("blob {blob}");
    read_blob(conn, blob, &mut |data, hash| {
        let (Ok(hash), Ok(sealed)) = (hash.as_blob(), data.as_blob()) else {
            return Err(corrupt(place(), "it does not match the format"));
        };
        plain.clear();
        keys.open(conn, &blob_identity(keys, hash), sealed, plain, &place)
    })
}

/// Returns whether the content of a blob has its hash.
pub(crate) fn blob_fits((conn, keys): (&Connection, &Keys), id: i64, hash: &[u8], data: &[u8]) -> Res<bool> {
    if !keys.seal_content() {
        return Ok(keys.checksum(data) == *hash);
    }
    let mut plain = Vec::new();
    keys.open(conn, &blob_identity(keys, hash), data, &mut plain, &|| format!("blob {id}"))?;
    Ok(keys.checksum(&plain) == *hash)
}

/// The column of the metadata of a checkpoint.
pub(crate) enum MetadataColumn<'t> {
    Clear(Option<&'t str>),
    Sealed(Vec<u8>),
}

impl<'t> MetadataColumn<'t> {
    /// Seals the metadata of a checkpoint in an encrypted file.
    pub(crate) fn new(keys: &Keys, id: &[u8; 16], metadata: Option<&'t str>) -> Res<Self> {
        match metadata.filter(|_| keys.seal_content()) {
            Some(text) => keys.seal(&keys.identity("metadata").bytes(id), text.as_bytes()).map(Self::Sealed),
            None => Ok(Self::Clear(metadata)),
        }
    }

    /// Returns the content of the column.
    pub(crate) fn column(&self) -> ValueRef<'_> {
        match self {
            Self::Clear(text) => text.map_or(ValueRef::Null, ValueRef::from),
            Self::Sealed(sealed) => ValueRef::Blob(sealed),
        }
    }
}

/// Decodes the column of the metadata of a checkpoint.
pub(crate) fn metadata(
    conn: &Connection,
    keys: &Keys,
    id: &[u8; 16],
    column: ValueRef<'_>,
    place: &dyn Fn() -> String,
) -> Res<Option<String>> {
    let wrong = || corrupt(place(), "metadata does not match the format");
    match column {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(sealed) if keys.seal_content() => {
            let mut plain = Vec::new();
            keys.open(conn, &keys.identity("metadata").bytes(id), sealed, &mut plain, place)?;
            String::from_utf8(plain).map(Some).map_err(|_| wrong())
        }
        ValueRef::Text(text) if !keys.seal_content() => {
            Ok(Some(std::str::from_utf8(text).map_err(|_| wrong())?.to_owned()))
        }
        _ => Err(wrong()),
    }
}

/// Returns the column of a value beside the log.
pub(crate) fn value_column<'v>(
    keys: &Keys,
    identity: impl FnOnce() -> Identity,
    value: &'v [u8],
) -> Res<Cow<'v, [u8]>> {
    if keys.seal_content() { keys.seal(&identity(), value).map(Cow::Owned) } else { Ok(Cow::Borrowed(value)) }
}

/// Decodes the column of a value beside the log.
pub(crate) fn value(
    (conn, keys): (&Connection, &Keys),
    identity: impl FnOnce() -> Identity,
    column: Vec<u8>,
    place: &dyn Fn() -> String,
) -> Res<Vec<u8>> {
    if !keys.seal_content() {
        return Ok(column);
    }
    let mut plain = Vec::with_capacity(column.len());
    keys.open(conn, &identity(), &column, &mut plain, place)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(index: Option<ItemIndexRef<'_>>) -> String {
        format!("{index:?}")
    }

    #[test]
    fn the_sealed_fields_round_trip_and_cut_ones_are_refused() {
        let mut index = ItemIndex::default();
        (index.id, index.kind, index.text) = (Some("i".into()), Some(String::new().into()), Some("text".into()));
        index.output_tokens = Some(u32::MAX);
        for index in [None, Some(ItemIndex::default()), Some(index)] {
            let packed = pack_fields(index.as_ref(), false, b"data");
            let (found, data) = unpack_fields(&packed, None).unwrap();
            assert_eq!(shown(found), shown(index.as_ref().map(ItemIndex::as_ref)));
            assert_eq!(data, b"data");
            assert!(unpack_fields(&packed, Some(b"blob")).is_none(), "its text is not a blob");
            let head = packed.len() - 4;
            assert!((0..head).all(|n| unpack_fields(&packed[..n], None).is_none()));
        }
        let mut index = ItemIndex::default();
        index.text = Some("large".into());
        let packed = pack_fields(Some(&index), true, b"");
        let (found, _) = unpack_fields(&packed, Some(b"large")).unwrap();
        assert_eq!(shown(found), shown(Some(index.as_ref())));
        assert!(unpack_fields(&packed, None).is_none());
        assert!(unpack_fields(&[4], None).is_none() && unpack_fields(&packed, Some(&[0xff])).is_none());
    }
}
