//! Ids of new rows: SQLite gives out the greatest one plus one, which a deleted row may have had.
//!
//! A deletion first notes the greatest ids (`high_water`). The first row that a table gets after that has the id above
//! the noted one, and SQLite counts on from there; so an id is used once in the life of a file.

use super::fault::Res;
use super::sql;
use rusqlite::{Connection, OptionalExtension, Row};

/// A table whose ids SQLite gives out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    Name,
    Thread,
    Namespace,
    Branch,
    Payload,
    Blob,
}

const TABLES: usize = Table::Blob as usize + 1;

/// The marks of the last deletion, as far as they concern rows to come. They hold until another deletion.
#[derive(Debug, Default)]
pub(super) struct NewIds(Option<Marks>);

#[derive(Debug, Default)]
struct Marks {
    /// The greatest `seq` at the last deletion.
    seq: i64,
    names_erased: i64,
    /// The id of the next row, if SQLite would give out one that was used.
    next: [Option<i64>; TABLES],
}

impl Marks {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mut next = [None; TABLES];
        for (table, next) in next.iter_mut().enumerate() {
            *next = row.get(table + 2)?;
        }
        Ok(Self { seq: row.get(0)?, names_erased: row.get(1)?, next })
    }
}

impl NewIds {
    /// Reads the marks anew when they are needed: rows were deleted or rolled back.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    fn marks(&mut self, conn: &Connection) -> Res<&mut Marks> {
        let marks = match self.0.take() {
            Some(marks) => marks,
            None => conn.prepare_cached(sql::NEXT_IDS)?.query_row([], Marks::read).optional()?.unwrap_or_default(),
        };
        Ok(self.0.insert(marks))
    }

    /// Returns the id for the next row of a table; `None` lets SQLite choose.
    pub(super) fn next(&mut self, conn: &Connection, table: Table) -> Res<Option<i64>> {
        Ok(self.marks(conn)?.next[table as usize].take())
    }

    /// Returns the least `seq` that a new checkpoint may have after the deletions.
    pub(super) fn seq_after_deletions(&mut self, conn: &Connection) -> Res<i64> {
        Ok(self.marks(conn)?.seq + 1)
    }

    /// Returns the number of names that were ever erased.
    pub(super) fn names_erased(&mut self, conn: &Connection) -> Res<i64> {
        Ok(self.marks(conn)?.names_erased)
    }
}
