//! Recognizes rows of `checkpoint` in pages of a write-ahead log that SQLite does not read.
//!
//! A row is recognized by the types of its columns. *Absent:* rows of other tables, and rows in pages that are damaged
//! themselves.
//!
//! Invariant: no byte of a page is believed; what does not fit is passed over.

use super::record::{columns, value, varint};
use crate::base::CheckpointId;
use crate::store::sqlite::tables::checkpoint;
use rusqlite::types::Value;

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
    let (columns, _) = columns(record)?;
    let kind = |column: usize| columns[column].0;
    if columns.len() != COLUMNS || kind(0) != 0 || kind(ID) != BLOB_16 || kind(CHECKSUM) != BLOB_16 {
        return None;
    }
    let (of_namespace, namespace) = columns[NAMESPACE];
    let Some(Value::Integer(namespace)) = value(of_namespace, namespace?) else { return None };
    let id = CheckpointId::from_bytes(columns[ID].1?.try_into().ok()?);
    Some(FoundCheckpoint { seq: i64::try_from(seq).ok()?, namespace, id })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
