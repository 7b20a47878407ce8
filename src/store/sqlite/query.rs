//! Runs statements and reads the rows that they return.
//!
//! A row is read as a value, as a tuple of its columns in their order, or by a function. Statements are prepared once
//! for each connection. *Absent:* the rows of the tables, which [`tables`](super::tables) describes.

use super::fault::Res;
use super::tables::TaskColumn;
use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::sync::Arc;

/// Values that are read from columns of a row.
pub(crate) trait FromColumns: Sized {
    /// The number of columns.
    const COUNT: usize;

    /// Reads the columns from one on.
    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self>;
}

impl<T: FromSql> FromColumns for Option<T> {
    const COUNT: usize = 1;

    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        row.get(first)
    }
}

/// Implements the reading of values that have one column.
macro_rules! one_column {
    ($($type:ty),*) => {
        $(
        impl FromColumns for $type {
            const COUNT: usize = 1;

            fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
                row.get(first)
            }
        }
        )*
    };
}
one_column!(i64, u32, bool, String, Arc<str>, Vec<u8>, [u8; 16], TaskColumn, Value);

/// Reads the columns at a position, which goes past them.
fn next<T: FromColumns>(row: &Row<'_>, at: &mut usize) -> rusqlite::Result<T> {
    let value = T::read(row, *at);
    *at += T::COUNT;
    value
}

/// Implements the reading of tuples.
macro_rules! tuple {
    ($($type:ident),*) => {
        impl<$($type: FromColumns),*> FromColumns for ($($type,)*) {
            const COUNT: usize = 0 $(+ $type::COUNT)*;

            fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
                let mut at = first;
                Ok(($(next::<$type>(row, &mut at)?,)*))
            }
        }
    };
}
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);

/// Statements that are run by their texts.
pub(crate) trait Statements {
    /// Runs a statement without rows, and returns the number of rows that it changed.
    fn run(&self, sql: &str, params: impl Params) -> Res<usize>;

    /// Returns the first row, which must exist.
    fn one<T: FromColumns>(&self, sql: &str, params: impl Params) -> Res<T>;

    /// Returns the first row, if there is one.
    fn first<T: FromColumns>(&self, sql: &str, params: impl Params) -> Res<Option<T>>;

    /// Returns all rows.
    fn all<T: FromColumns, C: FromIterator<T>>(&self, sql: &str, params: impl Params) -> Res<C>;

    /// Reads the first row, if there is one.
    fn read_first<T>(&self, sql: &str, params: impl Params, read: impl FnOnce(&Row<'_>) -> Res<T>) -> Res<Option<T>>;

    /// Reads all rows.
    fn read_all<T>(&self, sql: &str, params: impl Params, read: impl FnMut(&Row<'_>) -> Res<T>) -> Res<Vec<T>>;

    /// Visits all rows.
    fn each(&self, sql: &str, params: impl Params, mut visit: impl FnMut(&Row<'_>) -> Res<()>) -> Res<()> {
        self.each_while(sql, params, |row| visit(row).map(|()| true)).map(|_| ())
    }

    /// Visits rows until a visit returns false. Returns whether none did.
    fn each_while(&self, sql: &str, params: impl Params, visit: impl FnMut(&Row<'_>) -> Res<bool>) -> Res<bool>;
}

impl Statements for Connection {
    fn run(&self, sql: &str, params: impl Params) -> Res<usize> {
        Ok(self.prepare_cached(sql)?.execute(params)?)
    }

    fn one<T: FromColumns>(&self, sql: &str, params: impl Params) -> Res<T> {
        Ok(self.prepare_cached(sql)?.query_row(params, |row| T::read(row, 0))?)
    }

    fn first<T: FromColumns>(&self, sql: &str, params: impl Params) -> Res<Option<T>> {
        Ok(self.prepare_cached(sql)?.query_row(params, |row| T::read(row, 0)).optional()?)
    }

    fn all<T: FromColumns, C: FromIterator<T>>(&self, sql: &str, params: impl Params) -> Res<C> {
        let mut statement = self.prepare_cached(sql)?;
        Ok(statement.query_map(params, |row| T::read(row, 0))?.collect::<rusqlite::Result<C>>()?)
    }

    fn read_first<T>(&self, sql: &str, params: impl Params, read: impl FnOnce(&Row<'_>) -> Res<T>) -> Res<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    fn read_all<T>(&self, sql: &str, params: impl Params, mut read: impl FnMut(&Row<'_>) -> Res<T>) -> Res<Vec<T>> {
        let mut found = Vec::new();
        self.each(sql, params, |row| {
            found.push(read(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn each_while(&self, sql: &str, params: impl Params, mut visit: impl FnMut(&Row<'_>) -> Res<bool>) -> Res<bool> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            if !visit(row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_values_and_as_tuples_of_tuples() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE a (x INTEGER, y TEXT); INSERT INTO a VALUES (1, 'one'), (2, NULL)").unwrap();
        let all = "SELECT x, y, x + 1 FROM a ORDER BY x";
        let rows: Vec<(i64, (Option<String>, i64))> = conn.all(all, []).unwrap();
        assert_eq!(rows, [(1, (Some("one".to_owned()), 2)), (2, (None, 3))]);
        assert_eq!(<(i64, (Option<String>, i64))>::COUNT, 3);
        assert_eq!(conn.one::<(i64, Option<Arc<str>>)>(all, []).unwrap(), (1, Some("one".into())));
        assert_eq!(conn.first::<i64>("SELECT x FROM a WHERE x > ?1", [2]).unwrap(), None);
        assert!(conn.one::<i64>("SELECT x FROM a WHERE x > ?1", [2]).is_err(), "the row must exist");
        assert!(conn.all::<(i64, String), Vec<_>>(all, []).is_err(), "a NULL is no text");
        let mut seen = Vec::new();
        let goes_on = conn.each_while(all, [], |row| {
            seen.push(i64::read(row, 2)?);
            Ok(false)
        });
        assert_eq!((goes_on.unwrap(), seen), (false, vec![2]));
        assert_eq!(conn.run("DELETE FROM a", []).unwrap(), 2);
    }
}
