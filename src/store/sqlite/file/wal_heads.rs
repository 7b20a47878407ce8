//! Recognizes rows of `checkpoint` in pages of a write-ahead log that SQLite does not read.
//!
//! A row is recognized by the types of its columns. *Absent:* rows of other tables, and rows in pages that are damaged
//! themselves.
//!
//! Invariant: no byte of a page is believed; what does not fit is passed over.

use crate::base::CheckpointId;
use crate::store::sqlite::tables::checkpoint;

/// A leaf of a table.
pub(crate) const LEAF: u8 = 13;
const LEAF_HEADER_BYTES: usize = 8;
/// Columns of `checkpoint`.
const COLUMNS: usize = checkpoint::TABLE.columns.len();
const NAMESPACE: usize = checkpoint::TABLE.position("namespace");
const ID: usize = checkpoint::TABLE.position("id");
const CHECKSUM: usize = checkpoint::TABLE.position("sum");
/// The serial type of a BLOB of 16 bytes.
const BLOB_16: u64 = 44;

/// A checkpoint that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundCheckpoint {
    pub(crate) seq: i64,
    pub(crate) namespace: i64,
    pub(crate) id: CheckpointId,
}

/// Returns the checkpoints in a page.
pub(crate) fn find(page: &[u8]) -> Vec<FoundCheckpoint> {
    if page.first() != Some(&LEAF) {
        return Vec::new();
    }
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*page.get(at)?, *page.get(at + 1)?])));
    let cells = (0..word(3).unwrap_or(0)).map_while(|n| word(LEAF_HEADER_BYTES + 2 * n));
    cells.filter_map(|at| found(page.get(at..)?)).collect()
}

/// Reads a cell of a leaf, if it has the shape of a checkpoint.
fn found(cell: &[u8]) -> Option<FoundCheckpoint> {
    let (_, rest) = varint(cell)?;
    let (seq, record) = varint(rest)?;
    let (header_bytes, types) = varint(record)?;
    let header_bytes = usize::try_from(header_bytes).ok()?;
    let mut types = types.get(..header_bytes.checked_sub(record.len() - types.len())?)?;
    let mut body = record.get(header_bytes..)?;
    let (mut column, mut namespace, mut id) = (0, None, None);
    while !types.is_empty() {
        if column == COLUMNS {
            return None;
        }
        let (kind, rest) = varint(types)?;
        types = rest;
        match column {
            0 if kind != 0 => return None,
            NAMESPACE => namespace = Some(integer(body.get(..size(kind)?)?, kind)?),
            ID => id = Some(<[u8; 16]>::try_from(body.get(..16)?).ok().filter(|_| kind == BLOB_16)?),
            CHECKSUM if kind != BLOB_16 => return None,
            _ => {}
        }
        // The columns after the id may be in other pages.
        body = body.get(size(kind)?..).unwrap_or_default();
        column += 1;
    }
    let seq = i64::try_from(seq).ok().filter(|_| column == COLUMNS)?;
    Some(FoundCheckpoint { seq, namespace: namespace?, id: CheckpointId::from_bytes(id?) })
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

/// Returns the bytes of a column of a serial type.
pub(crate) fn size(kind: u64) -> Option<usize> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => usize::try_from(kind).ok(),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => usize::try_from((kind - 12) / 2).ok(),
    }
}

pub(crate) fn integer(bytes: &[u8], kind: u64) -> Option<i64> {
    match kind {
        8 | 9 => Some(kind as i64 - 8),
        1..=6 => {
            let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
            Some(bytes.iter().fold(sign, |number, byte| (number << 8) | i64::from(*byte)))
        }
        _ => None,
    }
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
    fn noise_holds_no_checkpoint() {
        let mut page = vec![LEAF; 4_096];
        assert_eq!(find(&page), []);
        for (n, byte) in page.iter_mut().enumerate().skip(1) {
            *byte = (n * n % 251) as u8;
        }
        assert_eq!((find(&page), find(&[]), find(&[LEAF, 0, 0, 0xff])), (vec![], vec![], vec![]));
    }

    /// The types of the columns of a row: NULL, a byte, 16 bytes, and so on.
    const KINDS: [u8; COLUMNS] = {
        let mut kinds = [0; COLUMNS];
        (kinds[NAMESPACE], kinds[ID], kinds[CHECKSUM], kinds[COLUMNS - 1]) = (1, 44, 44, 4);
        kinds
    };

    /// Returns a leaf with one row, number 7, whose body begins with the bytes of its namespace.
    fn leaf(kinds: &[u8], namespace: &[u8]) -> Vec<u8> {
        let mut page = vec![LEAF, 0, 0, 0, 1, 0, 0, 0, 0, 10];
        page.extend([100, 7, kinds.len() as u8 + 1]);
        page.extend(kinds);
        page.extend(namespace);
        page.extend([0xab; 16]);
        page.extend([9; 60]);
        page
    }

    fn with(column: usize, kind: u8) -> [u8; COLUMNS] {
        let mut kinds = KINDS;
        kinds[column] = kind;
        kinds
    }

    #[test]
    fn a_row_is_read_as_far_as_its_id() {
        let id = CheckpointId::from_bytes([0xab; 16]);
        for (kind, bytes, namespace) in [
            (8, &[][..], 0),
            (9, &[], 1),
            (1, &[5], 5),
            (2, &[1, 2], 258),
            (3, &[1, 0, 3], 0x1_0003),
            (4, &[1, 2, 3, 4], 0x0102_0304),
            (5, &[1, 2, 3, 4, 5, 6], 0x0102_0304_0506),
            (6, &[1, 2, 3, 4, 5, 6, 7, 8], 0x0102_0304_0506_0708),
        ] {
            assert_eq!(find(&leaf(&with(1, kind), bytes)), [FoundCheckpoint { seq: 7, namespace, id }], "{kind}");
        }
        // The length of the types may take two bytes.
        let mut page = leaf(&KINDS, &[5]);
        page.splice(12..13, [0x80, COLUMNS as u8 + 2]);
        assert_eq!(find(&page), [FoundCheckpoint { seq: 7, namespace: 5, id }]);
        // The bytes after the id may be in other pages.
        assert_eq!(find(&leaf(&KINDS, &[5])[..30 + COLUMNS]).len(), 1);
        assert_eq!(find(&leaf(&KINDS, &[5])[..29 + COLUMNS]), []);
    }

    #[test]
    fn a_row_with_columns_of_other_types_is_no_checkpoint() {
        let mut longer = KINDS.to_vec();
        longer.push(1);
        assert_eq!(find(&leaf(&longer, &[5])), []);
        assert_eq!(find(&leaf(&KINDS[..COLUMNS - 1], &[5])), []);
        for (column, kind, bytes) in [
            (0, 1, &[1, 5][..]),
            (0, 8, &[5]),
            (1, 0, &[]),
            (1, 7, &[0; 8]),
            (1, 12, &[]),
            (2, 42, &[5]),
            (2, 45, &[5]),
            (CHECKSUM, 42, &[5]),
            (CHECKSUM, 45, &[5]),
            (CHECKSUM, 0, &[5]),
            (9, 10, &[5]),
            (9, 11, &[5]),
        ] {
            assert_eq!(find(&leaf(&with(column, kind), bytes)), [], "column {column} of type {kind}");
        }
    }

    #[test]
    fn a_type_tells_the_bytes_of_a_column() {
        let sizes: Vec<_> = (0..18).map(size).collect();
        let fixed = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0].map(Some);
        assert_eq!((&sizes[..10], &sizes[10..12]), (&fixed[..], &[None, None][..]));
        assert_eq!(sizes[12..], [0, 0, 1, 1, 2, 2].map(Some));
        assert_eq!((size(44), size(45), size(1_013)), (Some(16), Some(16), Some(500)));
    }
}
