//! Decodes records of SQLite: the columns of a row as a page holds them.
//!
//! The layout is that of <https://www.sqlite.org/fileformat2.html>. *Absent:* pages, and the meaning of columns.
//!
//! Invariant: no byte leads outside of the record.

use rusqlite::types::Value;

/// The serial types of the columns of a record, each with its bytes.
pub(crate) type CellColumns<'r> = Vec<(u64, Option<&'r [u8]>)>;

/// Returns the columns of a record, and the bytes after them; `None` if the record is damaged. A column of which a byte
/// is missing has none.
pub(crate) fn columns(record: &[u8]) -> Option<(CellColumns<'_>, &[u8])> {
    let (header_bytes, types) = varint(record)?;
    let header_bytes = usize::try_from(header_bytes).ok()?;
    let mut types = types.get(..header_bytes.checked_sub(record.len() - types.len())?)?;
    let (mut body, mut columns) = (record.get(header_bytes..), Vec::new());
    while !types.is_empty() {
        let (kind, rest) = varint(types)?;
        let size = size(kind)?;
        let split = body.and_then(|body| body.split_at_checked(size));
        columns.push((kind, split.map(|(column, _)| column)));
        (types, body) = (rest, split.map(|(_, rest)| rest));
    }
    Some((columns, body.unwrap_or_default()))
}

/// Decodes a record; `None` if it is damaged.
pub(crate) fn decode(record: &[u8]) -> Option<Vec<Value>> {
    let (columns, rest) = columns(record)?;
    let values = columns.into_iter().map(|(kind, bytes)| value(kind, bytes?));
    if rest.is_empty() { values.collect() } else { None }
}

/// Returns the value of a column of a serial type.
pub(crate) fn value(kind: u64, bytes: &[u8]) -> Option<Value> {
    Some(match kind {
        0 => Value::Null,
        8 | 9 => Value::Integer(kind as i64 - 8),
        1..=6 => Value::Integer(integer(bytes)),
        7 => Value::Real(f64::from_bits(integer(bytes) as u64)),
        _ if kind.is_multiple_of(2) => Value::Blob(bytes.to_vec()),
        _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
    })
}

fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| (number << 8) | i64::from(*byte))
}

/// Returns the bytes of a column of a serial type.
fn size(kind: u64) -> Option<usize> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => usize::try_from(kind).ok(),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => usize::try_from((kind - 12) / 2).ok(),
    }
}

/// Reads a number of one to nine bytes, and returns the rest.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some(((number << 8) | u64::from(*byte), &bytes[9..]));
        }
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_to_nine_bytes() {
        assert_eq!(varint(&[5, 9]), Some((5, &[9][..])));
        assert_eq!(varint(&[0x81, 0x00, 9]), Some((128, &[9][..])));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, &[][..])));
        assert_eq!((varint(&[0x81]), varint(&[])), (None, None));
    }

    #[test]
    fn a_type_tells_the_bytes_of_a_column() {
        let sizes: Vec<_> = (0..18).map(size).collect();
        let fixed = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0].map(Some);
        assert_eq!((&sizes[..10], &sizes[10..12]), (&fixed[..], &[None, None][..]));
        assert_eq!(sizes[12..], [0, 0, 1, 1, 2, 2].map(Some));
        assert_eq!((size(44), size(45), size(1_013)), (Some(16), Some(16), Some(500)));
    }

    #[test]
    fn a_record_is_read_as_sqlite_writes_it() {
        let record = decode(&[8, 0, 1, 9, 7, 15, 14, 2, 0xfe, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, b'a', 7, 1, 0]).unwrap();
        let expected = [
            Value::Null,
            Value::Integer(-2),
            Value::Integer(1),
            Value::Real(1.5),
            Value::Text("a".into()),
            Value::Blob(vec![7]),
            Value::Integer(256),
        ];
        assert_eq!(record, expected);
    }
}
