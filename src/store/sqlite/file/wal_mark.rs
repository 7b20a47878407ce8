//! The mark by which a file and its write-ahead log know each other.
//!
//! The file holds one row of `wal_mark`. A log begins with a transaction that replaces the mark, so its first pages
//! hold the new mark and the one before, which is that of the file. Before a log is copied into the file its last
//! transaction replaces the mark again. So the mark of a file tells how far its log was copied. *Absent:* the
//! comparison of a file with a log ([`wal_link`](super::wal_link)), and the times at which a mark is replaced
//! ([`group`](crate::store::sqlite::writer::group)).

use super::record::{self, varint};
use super::wal_heads::LEAF;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, wal_mark};
use rusqlite::types::Value;
use rusqlite::{Connection, Row};

const TABLE: &str = wal_mark::TABLE.name;
const CELLS_AT: usize = 8;

/// The statement of a file about its log when none lies beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkState {
    /// Nothing is missed.
    Whole = 0,
    /// A log goes on from here, whose commits are synced.
    Synced = 1,
    /// A log goes on from here, whose last commits a power cut may take.
    Unsynced = 2,
}

/// The row of `wal_mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalMark {
    /// The id of the store.
    pub(crate) store: [u8; 16],
    /// The number of the mark.
    pub(crate) generation: i64,
    pub(crate) mark: [u8; 16],
    /// The mark before.
    pub(crate) before: [u8; 16],
    pub(crate) state: MarkState,
}

impl WalMark {
    /// Writes the first mark of a new file.
    pub(crate) fn create(conn: &Connection) -> Res<()> {
        let (store, mark, before) = conn.one(sql::RANDOM_MARK, [])?;
        Self { store, generation: 0, mark, before, state: MarkState::Whole }.row().insert(conn)
    }

    /// Returns the mark that a connection sees.
    pub(crate) fn read(conn: &Connection) -> Res<Self> {
        Ok(Self::read_with_next(conn)?.0)
    }

    /// Replaces the mark in the transaction that is open, unless it has that state and `is_kept`; returns whether it
    /// did.
    pub(crate) fn replace(conn: &Connection, state: MarkState, is_kept: bool) -> Res<bool> {
        let (now, next) = Self::read_with_next(conn)?;
        if is_kept && now.state == state {
            return Ok(false);
        }
        let generation = now.generation.checked_add(1).ok_or_else(|| damaged("its number cannot be greater"))?;
        let row = Self { generation, mark: next, before: now.mark, state, ..now }.row();
        row.store(conn, sql::WAL_MARK_UPDATE, Some(row.row_check().finish()))?;
        Ok(true)
    }

    /// Returns the mark and the random bytes of the next one.
    fn read_with_next(conn: &Connection) -> Res<(Self, [u8; 16])> {
        let read = |row: &Row<'_>| {
            let mark = Self::of(&wal_mark::Row::verified(row)?);
            Ok((mark.ok_or_else(|| damaged("its state is none of the format"))?, wal_mark::Row::after(row)?))
        };
        conn.read_first(sql::WAL_MARK, [], read)?.ok_or_else(|| damaged("it has no row"))
    }

    fn row(&self) -> wal_mark::Row {
        let Self { store, generation, mark, before, state } = *self;
        wal_mark::Row { id: 0, store, generation, mark, before, open: state as i64 }
    }

    fn of(row: &wal_mark::Row) -> Option<Self> {
        let wal_mark::Row { store, generation, mark, before, open, .. } = *row;
        Some(Self { store, generation, mark, before, state: MarkState::of(open)? })
    }

    /// Returns the mark that a page of the log holds. The check of the row tells it from the row of any other table.
    pub(crate) fn of_page(page: &[u8]) -> Option<Self> {
        if page.first() != Some(&LEAF) || page.get(3..5) != Some(&[0, 1]) {
            return None;
        }
        let at = usize::from(u16::from_be_bytes([*page.get(CELLS_AT)?, *page.get(CELLS_AT + 1)?]));
        let (length, rest) = varint(page.get(at..)?)?;
        let (number, record) = varint(rest)?;
        let mut columns = record::decode(record.get(..usize::try_from(length).ok()?)?)?;
        *columns.first_mut()? = Value::Integer(number as i64);
        let is_whole = columns.len() == wal_mark::TABLE.columns.len();
        Self::of(&wal_mark::Row::verified_of(&columns).ok().filter(|_| is_whole)?)
    }
}

impl MarkState {
    fn of(number: i64) -> Option<Self> {
        [Self::Whole, Self::Synced, Self::Unsynced].into_iter().find(|state| *state as i64 == number)
    }
}

fn damaged(reason: &str) -> crate::store::sqlite::fault::Fault {
    corrupt(TABLE, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::tests::{Bench, raw};

    #[test]
    fn a_mark_is_read_as_it_is_written_from_the_row_and_from_its_page() {
        let bench = Bench::new();
        let conn = raw(&bench.path());
        for (state, is_kept) in [(MarkState::Synced, false), (MarkState::Whole, true), (MarkState::Unsynced, true)] {
            let before = WalMark::read(&conn).unwrap();
            assert!(WalMark::replace(&conn, state, is_kept).unwrap());
            let now = WalMark::read(&conn).unwrap();
            assert_eq!((now.store, now.before, now.generation), (before.store, before.mark, before.generation + 1));
            assert_eq!(now.state, state);
            assert!(!WalMark::replace(&conn, state, true).unwrap());
            let log = std::fs::read(super::super::paths::beside(&bench.path(), "-wal")).unwrap();
            let mut pages = log[32..].chunks_exact(4_096 + 24).filter_map(|frame| WalMark::of_page(&frame[24..]));
            assert_eq!(pages.next_back(), Some(now));
        }
    }

    #[test]
    fn a_changed_row_and_another_page_hold_no_mark() {
        let bench = Bench::new();
        let conn = raw(&bench.path());
        WalMark::replace(&conn, MarkState::Synced, false).unwrap();
        let log = std::fs::read(super::super::paths::beside(&bench.path(), "-wal")).unwrap();
        let page = log[32..].chunks_exact(4_096 + 24).map(|frame| &frame[24..]);
        let page = page.rev().find(|page| WalMark::of_page(page).is_some()).unwrap().to_vec();
        let at = page.iter().rposition(|byte| *byte != 0).unwrap();
        for byte in [0, 3, 4, 8, 9, at, at - 1, at - 9, at - 30] {
            let mut changed = page.clone();
            changed[byte] ^= 0x11;
            assert_eq!(WalMark::of_page(&changed), None, "{byte}");
        }
        assert_eq!(WalMark::of_page(&[]), None);
        assert_eq!(WalMark::of_page(&[LEAF, 0, 0, 0, 1]), None);
        conn.execute_batch("UPDATE wal_mark SET generation = generation + 1").unwrap();
        assert!(WalMark::read(&conn).is_err());
        conn.execute_batch("DELETE FROM wal_mark").unwrap();
        assert!(WalMark::read(&conn).is_err());
    }
}
