//! Decodes pages of the trees of SQLite, cell by cell: a damaged cell costs itself alone.
//!
//! The layout is that of <https://www.sqlite.org/fileformat2.html>, for pages of 4,096 bytes without reserved ones.
//! *Absent:* the meaning of rows.
//!
//! Invariant: no byte of a page leads outside of it, and each step consumes bytes.

use crate::store::sqlite::file::record::{decode, varint};
use crate::store::sqlite::sql as engine_sql;
use std::ops::Range;

pub(super) const PAGE: usize = engine_sql::PAGE_BYTES as usize;
/// The bytes of a page of an overflow chain, after the number of the next page.
pub(super) const CHAINED: usize = PAGE - 4;
/// The greatest part of a row that a leaf of a table holds, and of an entry that a page of an index holds; the least
/// part of either.
const TABLE_LOCAL: usize = PAGE - 35;
const INDEX_LOCAL: usize = (PAGE - 12) * 64 / 255 - 23;
const LOCAL_LEAST: usize = (PAGE - 12) * 32 / 255 - 23;
/// The length of a value: that of SQLite, which a record of a greater one does not have.
const RECORD: usize = 1 << 30;

/// The kind of a page of a tree, as its first byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    IndexInterior = 2,
    TableInterior = 5,
    IndexLeaf = 10,
    TableLeaf = 13,
}

impl PageKind {
    fn of(byte: u8) -> Option<Self> {
        [Self::IndexInterior, Self::TableInterior, Self::IndexLeaf, Self::TableLeaf]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Returns whether pages of this kind are above others.
    pub(super) fn is_interior(self) -> bool {
        matches!(self, Self::IndexInterior | Self::TableInterior)
    }

    /// Returns whether pages of this kind hold rows with a number, or lead to such pages.
    pub(super) fn is_of_table(self) -> bool {
        matches!(self, Self::TableInterior | Self::TableLeaf)
    }

    fn header(self) -> usize {
        if self.is_interior() { 12 } else { 8 }
    }
}

/// A page of a tree.
pub(super) struct TreePage<'p> {
    bytes: &'p [u8],
    pub(super) kind: PageKind,
    /// The number of its cells.
    pub(super) count: usize,
}

/// A cell: a row or an entry, and the page below it.
pub(super) struct TreeCell {
    pub(super) child: Option<u32>,
    /// The number of the row, or the greatest one below the page before it.
    pub(super) rowid: Option<i64>,
    /// The bytes of the record, and those of them that the page holds.
    pub(super) length: usize,
    pub(super) local: Range<usize>,
    /// The first page of the rest.
    pub(super) rest: Option<u32>,
}

impl<'p> TreePage<'p> {
    /// Reads the header of a page; `None` if it is not that of a page of a tree.
    pub(super) fn read(bytes: &'p [u8]) -> Option<Self> {
        let kind = PageKind::of(*bytes.first()?)?;
        let page = Self { bytes, kind, count: usize::from(short(bytes, 3)?) };
        let pointers_end = kind.header() + 2 * page.count;
        // A content that begins at 65,536 does not exist in a page of this size.
        let content = usize::from(short(bytes, 5)?);
        (bytes.len() == PAGE && pointers_end <= content && content <= PAGE && page.count > 0).then_some(page)
    }

    /// Reads a page whose header is damaged, as one of a kind: its cells are those of the pointers up to the first one
    /// that leads nowhere.
    pub(super) fn guess(bytes: &'p [u8], kind: PageKind) -> Option<Self> {
        let mut page = Self { bytes, kind, count: 0 };
        let mut content = PAGE;
        while let Some(pointer) = short(bytes, kind.header() + 2 * page.count)
            && usize::from(pointer) > kind.header() + 2 * page.count
            && page.cell_at(usize::from(pointer)).is_some()
        {
            page.count += 1;
            content = content.min(usize::from(pointer));
        }
        (bytes.len() == PAGE && page.count > 1 && kind.header() + 2 * page.count <= content).then_some(page)
    }

    /// Returns a cell; `None` if it is damaged.
    pub(super) fn cell(&self, index: usize) -> Option<TreeCell> {
        let pointer = usize::from(short(self.bytes, self.kind.header() + 2 * index)?);
        if pointer < self.kind.header() + 2 * self.count { None } else { self.cell_at(pointer) }
    }

    /// Returns whether its cells have rows.
    pub(super) fn has_rows(&self) -> bool {
        self.kind != PageKind::TableInterior
    }

    /// Returns whether a cell can be read, with its record if the page holds all of it.
    pub(super) fn is_sound(&self, index: usize) -> bool {
        let Some(cell) = self.cell(index) else { return false };
        match self.kind {
            PageKind::TableInterior => cell.child.is_some_and(|child| child > 1),
            _ => cell.rest.is_some() || decode(&self.bytes[cell.local]).is_some(),
        }
    }

    /// Returns the bytes of the record of a cell that the page holds.
    pub(super) fn local(&self, cell: &TreeCell) -> &'p [u8] {
        &self.bytes[cell.local.clone()]
    }

    /// Returns the last page below one that is above others.
    pub(super) fn last_child(&self) -> Option<u32> {
        if self.kind.is_interior() { word(self.bytes, 8) } else { None }
    }

    fn cell_at(&self, mut at: usize) -> Option<TreeCell> {
        let child = match self.kind.is_interior() {
            true => {
                at += 4;
                Some(word(self.bytes, at - 4)?)
            }
            false => None,
        };
        if self.kind == PageKind::TableInterior {
            let rowid = Some(number(self.bytes, &mut at)? as i64);
            return Some(TreeCell { child, rowid, length: 0, local: at..at, rest: None });
        }
        let length =
            usize::try_from(number(self.bytes, &mut at)?).ok().filter(|length| (1..RECORD).contains(length))?;
        let rowid = match self.kind {
            PageKind::TableLeaf => Some(number(self.bytes, &mut at)? as i64),
            _ => None,
        };
        let local = local_length(length, rowid.is_some());
        debug_assert!(local <= length, "a page holds a part of the record");
        let rest = if local < length { Some(word(self.bytes, at + local)?) } else { None };
        (at + local <= self.bytes.len()).then_some(TreeCell { child, rowid, length, local: at..at + local, rest })
    }
}

/// Returns how many bytes of a record its page holds.
fn local_length(length: usize, is_of_table: bool) -> usize {
    let most = if is_of_table { TABLE_LOCAL } else { INDEX_LOCAL };
    if length <= most {
        return length;
    }
    let part = LOCAL_LEAST + (length - LOCAL_LEAST) % CHAINED;
    if part <= most { part } else { LOCAL_LEAST }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns a number of four bytes.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads a number, and goes past it.
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (number, rest) = varint(bytes.get(*at..)?)?;
    *at = bytes.len() - rest.len();
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_records_and_pages_are_refused() {
        for bytes in [&[][..], &[3, 1], &[2, 10], &[2, 15], &[2, 1, 1, 1], &[2, 15, 0xff], &[0xff; 9]] {
            assert!(decode(bytes).is_none(), "{bytes:?}");
        }
        let mut page = vec![0; PAGE];
        assert!(TreePage::read(&page).is_none());
        page[..8].copy_from_slice(&[13, 0, 0, 0, 1, 0x0f, 0xf0, 0]);
        page[8..10].copy_from_slice(&[0x0f, 0xf0]);
        page[0xff0..0xff5].copy_from_slice(&[3, 7, 2, 15, b'a']);
        let read = TreePage::read(&page).unwrap();
        let cell = read.cell(0).unwrap();
        assert_eq!((cell.rowid, cell.length, cell.local), (Some(7), 3, 0xff2..0xff5));
        page[8..10].copy_from_slice(&[0, 2]);
        assert!(TreePage::read(&page).unwrap().cell(0).is_none(), "a pointer into the header");
    }

    #[test]
    fn a_long_record_is_split_as_sqlite_splits_it() {
        assert_eq!((local_length(4_061, true), local_length(1_002, false)), (4_061, 1_002));
        assert_eq!((local_length(4_062, true), local_length(1_003, false)), (489, 489));
        assert_eq!((local_length(489 + 4_092 + 100, true), local_length(489 + 4_092 + 100, false)), (589, 589));
    }
}
