//! Decodes payloads: borrowed from the row, verified, with large parts fetched from `blob`.

use super::checksums::payload_check;
use super::sealed;
use crate::base::{Codec, PayloadRef};
use crate::store::record::ItemIndexRef;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::payload;
use crate::store::sqlite::tables::row_check::payload_column;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

/// Reads data and hash of a blob to which a payload refers, and hands them on.
pub(crate) type ReadBlob = fn(&Connection, i64, &mut dyn FnMut(ValueRef<'_>, ValueRef<'_>) -> Res<()>) -> Res<()>;

/// Buffers for parts that cannot be borrowed from the row of a payload.
pub(crate) struct Room<'k> {
    pub(crate) keys: &'k Keys,
    pub(crate) read_blob: ReadBlob,
    pub(crate) data: Vec<u8>,
    pub(crate) text: Vec<u8>,
    id: [u8; 36],
    pub(crate) check: Vec<u8>,
    /// True if the checks of plain payloads are verified.
    verifies: bool,
}

impl<'k> Room<'k> {
    /// Makes empty buffers for payloads of a file with these keys.
    pub(crate) fn of(keys: &'k Keys, read_blob: ReadBlob) -> Self {
        let (data, text, check) = Default::default();
        Self { keys, read_blob, data, text, id: [0; 36], check, verifies: true }
    }

    /// Leaves the checks of plain payloads to a checksum that covers them.
    pub(crate) fn unverified(self) -> Self {
        Self { verifies: false, ..self }
    }
}

/// Returns an inline value, which an encrypted file does not have. The check of its row covers it.
pub(crate) fn inline_value<'c>(keys: &Keys, column: &'c [u8], place: &dyn Fn() -> String) -> Res<PayloadRef<'c>> {
    if keys.seal_content() {
        return Err(corrupt(place(), "its value is not sealed"));
    }
    Ok(PayloadRef::new(Codec::MsgPack, column, None))
}

/// The bit of `form` that says that an item has an index.
const INDEXED: i64 = 1;
/// The bit of `form` that announces the columns from `name` on, so that they are read only where they are needed.
const DETAILED: i64 = 2;
/// The bits below the codec.
pub(crate) const FORM_BITS: u32 = 2;

/// The positions of columns: each is read where it is needed alone, because to read one costs as much as a seek.
pub(super) const DATA: usize = payload::TABLE.position("data");
pub(super) const XXH3: usize = payload::TABLE.position("xxh3");
pub(super) const ITEM_ID: usize = payload::TABLE.position("item_id");
pub(super) const TEXT: usize = payload::TABLE.position("text");
const KIND: usize = payload::TABLE.position("kind");
const NAME: usize = payload::TABLE.position("name");
const TOOL_CALLS: usize = payload::TABLE.position("tool_calls");
const INPUT_TOKENS: usize = payload::TABLE.position("input_tokens");
const OUTPUT_TOKENS: usize = payload::TABLE.position("output_tokens");

const FORM: usize = payload::TABLE.position("form");

/// Returns the column `form` of a row whose columns start at `first`; an error if there is none.
pub(crate) fn form_column(row: &Row<'_>, first: usize) -> Res<i64> {
    Ok(row.get(first + FORM)?)
}

/// Returns the column `form` for a payload.
pub(crate) fn form(codec: Codec, index: Option<&ItemIndexRef<'_>>) -> i64 {
    let detailed = index.is_some_and(|index| {
        index.name.or(index.tool_calls).is_some() || index.input_tokens.or(index.output_tokens).is_some()
    });
    let bits = if index.is_some() { INDEXED } else { 0 } | if detailed { DETAILED } else { 0 };
    (i64::from(codec.to_tag()) << FORM_BITS) | bits
}

/// Decodes the payload of a row whose columns start at `first`, and verifies its check, unless the room says otherwise.
pub(crate) fn decode<'r>(
    conn: &Connection,
    row: &'r Row<'_>,
    first: usize,
    id: i64,
    form: i64,
    room: &'r mut Room<'_>,
) -> Res<PayloadRef<'r>> {
    if room.keys.seal_content() {
        return sealed::decode(conn, row, first, id, form, room);
    }
    let wrong = |what: &str| corrupt(format!("payload {id}"), format!("{what} does not match the format"));
    let Room { read_blob, data, text, id: id_text, check, verifies, .. } = room;
    let data = match row.get_ref(first + DATA)? {
        ValueRef::Blob(bytes) => bytes,
        ValueRef::Integer(blob) => fetch(*read_blob, conn, blob, data)?,
        _ => return Err(wrong("data")),
    };
    let field =
        |at: usize| row.get_ref(first + at)?.as_str_or_null().map_err(|_| wrong(payload::TABLE.columns[at].name));
    let index = if form & INDEXED != 0 {
        let text = match row.get_ref(first + TEXT)? {
            ValueRef::Integer(blob) => {
                Some(std::str::from_utf8(fetch(*read_blob, conn, blob, text)?).map_err(|_| wrong("text"))?)
            }
            column => column.as_str_or_null().map_err(|_| wrong("text"))?,
        };
        let item_id = item_id(row.get_ref(first + ITEM_ID)?, id_text).ok_or_else(|| wrong("item_id"))?;
        let mut index = ItemIndexRef::default();
        (index.id, index.kind, index.text) = (item_id, field(KIND)?, text);
        if form & DETAILED != 0 {
            index.name = field(NAME)?;
            index.tool_calls = field(TOOL_CALLS)?;
            index.input_tokens = row.get(first + INPUT_TOKENS)?;
            index.output_tokens = row.get(first + OUTPUT_TOKENS)?;
        }
        Some(index)
    } else {
        None
    };
    let codec = u8::try_from(form >> FORM_BITS).map_err(|_| wrong("form"))?;
    let payload = PayloadRef::new(Codec::from_tag(codec), data, index);
    if *verifies && row.get_ref(first + XXH3)? != ValueRef::Integer(payload_column(id, payload_check(&payload, check)))
    {
        return Err(corrupt(format!("payload {id}"), "its check does not match"));
    }
    Ok(payload)
}

/// Returns the payload of a `value` column, given a row in which the columns of the payload start at `first`, NULL if
/// it does not exist. A NULL has none.
pub(crate) fn joined<'r>(
    conn: &Connection,
    row: &'r Row<'_>,
    (value, first): (ValueRef<'r>, usize),
    room: &'r mut Room<'_>,
    place: &dyn Fn() -> String,
) -> Res<Option<PayloadRef<'r>>> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(column) => inline_value(room.keys, column, place).map(Some),
        ValueRef::Integer(id) => {
            let form = row.get::<_, Option<i64>>(first + FORM)?;
            let form = form.ok_or_else(|| corrupt(place(), "its payload does not exist"))?;
            decode(conn, row, first, id, form, room).map(Some)
        }
        _ => Err(corrupt(place(), "its value does not match the format")),
    }
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

fn fetch<'b>(read_blob: ReadBlob, conn: &Connection, blob: i64, room: &'b mut Vec<u8>) -> Res<&'b [u8]> {
    read_blob(conn, blob, &mut |data, _| {
        room.clear();
        room.extend_from_slice(data.as_bytes().map_err(|e| corrupt(format!("blob {blob}"), e.to_string()))?);
        Ok(())
    })?;
    Ok(room)
}

/// The column of an item id: 16 bytes if it is the canonical text of a UUID, as most are.
pub(crate) enum ItemIdColumn<'t> {
    Bytes([u8; 16]),
    Text(&'t str),
}

impl<'t> ItemIdColumn<'t> {
    /// Makes the column of an id.
    pub(crate) fn of(id: &'t str) -> Self {
        let mut canonical = [0; 36];
        match uuid::Uuid::try_parse(id) {
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut canonical) == id => Self::Bytes(uuid.into_bytes()),
            _ => Self::Text(id),
        }
    }

    /// Returns the content of the column.
    pub(crate) fn column(&self) -> ValueRef<'_> {
        match self {
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Text(text) => ValueRef::from(*text),
        }
    }
}
