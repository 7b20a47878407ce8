//! Recognizes rows of `checkpoint` in pages of a write-ahead log that SQLite does not read.
//!
//! A row is recognized by the types of its columns. *Absent:* rows of other tables, and rows in pages that are damaged
//! themselves.
//!
//! Invariant: no byte of a page is believed; what does not fit is passed over.

use crate::base::CheckpointId;

/// A leaf of a table.
const LEAF: u8 = 13;
const LEAF_HEADER_BYTES: usize = 8;
/// Columns of `checkpoint`.
const COLUMNS: usize = 15;
/// The columns of the public id and of the checksum.
const ID: usize = 2;
const CHECKSUM: usize = 13;
/// The serial type of a BLOB of 16 bytes.
const BLOB_16: u64 = 44;

/// A checkpoint that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundCheckpoint {
    pub(super) seq: i64,
    pub(super) namespace: i64,
    pub(super) id: CheckpointId,
}

/// Returns the checkpoints in a page.
pub(super) fn find(page: &[u8]) -> Vec<FoundCheckpoint> {
    if page.first() != Some(&LEAF) {
        return Vec::new();
    }
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*page.get(at)?, *page.get(at + 1)?])));
    let cells = (0..word(3).unwrap_or(0)).map_while(|n| word(LEAF_HEADER_BYTES + 2 * n));
    cells.filter_map(|at| checkpoint(page.get(at..)?)).collect()
}

/// Reads a cell of a leaf, if it has the shape of a checkpoint.
fn checkpoint(cell: &[u8]) -> Option<FoundCheckpoint> {
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
            1 => namespace = Some(integer(body.get(..size(kind)?)?, kind)?),
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
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
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

fn integer(bytes: &[u8], kind: u64) -> Option<i64> {
    match kind {
        8 | 9 => Some(kind as i64 - 8),
        1..=6 => Some(bytes.iter().fold(0, |number, byte| (number << 8) | i64::from(*byte))),
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
}
