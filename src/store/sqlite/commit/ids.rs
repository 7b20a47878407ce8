//! Ids of new rows, which their checks cover: a row gets the greatest id plus one.
//!
//! A deletion first notes the greatest ids (`high_water`), and new rows get ids above these; so an id is used once in
//! the life of a file. The next ids are read once and counted from there until a transaction is rolled back or another
//! connection commits.

use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::sql;
use rusqlite::{Connection, Row};

/// A table with ids.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    Name,
    Thread,
    Namespace,
    Branch,
    Payload,
    Blob,
    Operation,
}

const TABLES: usize = Table::Operation as usize + 1;

/// The next ids, and the marks of the last deletion.
#[derive(Debug, Default)]
pub(crate) struct NewIds(Option<Marks>);

#[derive(Debug)]
struct Marks {
    /// The greatest `seq` at the last deletion.
    seq: i64,
    names_erased: i64,
    /// The id of the next row.
    next: [i64; TABLES],
}

impl FromColumns for Marks {
    const COUNT: usize = TABLES + 2;

    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let ((seq, names_erased), mut next) = (FromColumns::read(row, first)?, [0; TABLES]);
        for (table, next) in next.iter_mut().enumerate() {
            *next = row.get(first + 2 + table)?;
        }
        Ok(Self { seq, names_erased, next })
    }
}

/// Returns the id after another one. A row with the greatest number is damage: ids are counted from 1.
pub(crate) fn above(table: impl std::fmt::Debug, id: i64) -> Res<i64> {
    id.checked_add(1).ok_or_else(|| corrupt(format!("{table:?} {id}"), "no id is above that of the row"))
}

impl NewIds {
    /// Reads the ids anew when they are needed: rows were deleted, rolled back, or written by another connection.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    fn marks(&mut self, conn: &Connection) -> Res<&mut Marks> {
        let marks = match self.0.take() {
            Some(marks) => marks,
            None => conn.one(sql::NEXT_IDS, [])?,
        };
        Ok(self.0.insert(marks))
    }

    /// Returns the id for the next row of a table.
    pub(crate) fn next(&mut self, conn: &Connection, table: Table) -> Res<i64> {
        let next = &mut self.marks(conn)?.next[table as usize];
        let id = *next;
        *next = above(table, id)?;
        Ok(id)
    }

    /// Returns the least `seq` that a new checkpoint may have after the deletions.
    pub(crate) fn seq_after_deletions(&mut self, conn: &Connection) -> Res<i64> {
        above("checkpoint", self.marks(conn)?.seq)
    }

    /// Returns the number of names that were ever erased.
    pub(crate) fn names_erased(&mut self, conn: &Connection) -> Res<i64> {
        Ok(self.marks(conn)?.names_erased)
    }
}
