//! Columns: their types, and the numbers that they hold as distances.

use super::TableDescription;
use crate::store::sqlite::fault::{Res, corrupt};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Integer,
    Text,
    Blob,
    /// An integer, which is the number of a payload, or an inline value.
    Stored,
    /// A value of any type.
    Any,
}

/// A type of Rust in which a column is read and bound.
pub(crate) trait ColumnType<'r>: Copy {
    const KIND: ColumnKind;
    const IS_NULLABLE: bool;

    /// Returns the content of a column; `None` if it does not match the format.
    fn read(column: ValueRef<'r>) -> Option<Self>;

    /// Returns the column.
    fn column(&self) -> ValueRef<'_>;
}

/// Implements a type of columns: how it is read, and how it is bound.
macro_rules! column_type {
    ($type:ty, $kind:ident, $column:ident => $read:expr, $value:ident => $bind:expr) => {
        impl<'r> ColumnType<'r> for $type {
            const KIND: ColumnKind = ColumnKind::$kind;
            const IS_NULLABLE: bool = matches!(ColumnKind::$kind, ColumnKind::Any | ColumnKind::Stored);

            fn read($column: ValueRef<'r>) -> Option<Self> {
                $read
            }

            fn column(&self) -> ValueRef<'_> {
                let $value = self;
                $bind
            }
        }
    };
}
column_type!(i64, Integer, column => column.as_i64().ok(), number => ValueRef::Integer(*number));
column_type!(u32, Integer, column => column.as_i64().ok()?.try_into().ok(), number => ValueRef::Integer((*number).into()));
column_type!(&'r str, Text, column => column.as_str().ok(), text => ValueRef::Text(text.as_bytes()));
column_type!(&'r [u8], Blob, column => column.as_blob().ok(), bytes => ValueRef::Blob(bytes));
column_type!([u8; 16], Blob, column => column.as_blob().ok()?.try_into().ok(), bytes => ValueRef::Blob(bytes));
column_type!(RunColumn, Any, column => RunColumn::of(column), run => run.value());
column_type!(ValueRef<'r>, Any, column => Some(column), value => *value);
column_type!(TaskColumn, Any, column => match column {
    ValueRef::Integer(number) => Some(Self::Number(number)),
    ValueRef::Blob(id) => Some(Self::Id(id.try_into().ok()?)),
    _ => None,
}, task => match task {
    Self::Number(number) => ValueRef::Integer(*number),
    Self::Id(id) => ValueRef::Blob(id),
});
column_type!(StoredColumn<'r>, Stored, column => Some(Self(column)), value => value.0);

impl fmt::Display for TaskColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Id(id) => id.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl FromSql for TaskColumn {
    fn column_result(column: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::read(column).ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for TaskColumn {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.column()))
    }
}

impl<'r, T: ColumnType<'r>> ColumnType<'r> for Option<T> {
    const KIND: ColumnKind = T::KIND;
    const IS_NULLABLE: bool = true;

    fn read(column: ValueRef<'r>) -> Option<Self> {
        if column == ValueRef::Null { Some(None) } else { T::read(column).map(Some) }
    }

    fn column(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, T::column)
    }
}

/// The content of the column `run` of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunColumn {
    None,
    /// The id of the run.
    Id([u8; 16]),
    /// The distance to the checkpoint that holds the id.
    Of(i64),
}

impl RunColumn {
    /// Returns the column that holds the id of a run.
    pub(crate) fn of_id(run: Option<[u8; 16]>) -> Self {
        run.map_or(Self::None, Self::Id)
    }

    pub(crate) fn of(column: ValueRef<'_>) -> Option<Self> {
        match column {
            ValueRef::Null => Some(Self::None),
            ValueRef::Integer(distance) => Some(Self::Of(distance)),
            column => Some(Self::Id(column.as_blob().ok()?.try_into().ok()?)),
        }
    }

    fn value(&self) -> ValueRef<'_> {
        match self {
            Self::None => ValueRef::Null,
            Self::Id(id) => ValueRef::Blob(id),
            Self::Of(distance) => ValueRef::Integer(*distance),
        }
    }
}

/// The task of a row of `write`. Their order is that of SQLite: numbers, then ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TaskColumn {
    /// The position of a task that its checkpoint prepared, or a negative number for the null task.
    Number(i64),
    /// The id of another task.
    Id([u8; 16]),
}

/// The content of a `value` column as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredColumn<'r>(pub(crate) ValueRef<'r>);

/// The columns of a row, read one after the other.
pub(crate) struct RowColumns<'r, 's> {
    table: &'static TableDescription,
    row: RowSource<'r, 's>,
    first: usize,
    next: usize,
}

/// The row of a statement, or the columns of one.
#[derive(Clone, Copy)]
enum RowSource<'r, 's> {
    Row(&'r Row<'s>),
    Columns(&'r [Value]),
}

impl<'r> RowSource<'r, '_> {
    fn get(self, column: usize) -> rusqlite::Result<ValueRef<'r>> {
        match self {
            Self::Row(row) => row.get_ref(column),
            Self::Columns(columns) => {
                columns.get(column).map(ValueRef::from).ok_or(rusqlite::Error::InvalidColumnIndex(column))
            }
        }
    }
}

impl<'r, 's> RowColumns<'r, 's> {
    /// Begins at a column.
    pub(crate) fn new(table: &'static TableDescription, row: &'r Row<'s>, first: usize) -> Self {
        Self { table, row: RowSource::Row(row), first, next: first }
    }

    /// Begins at the first one of the columns of a row.
    pub(crate) fn of(table: &'static TableDescription, columns: &'r [Value]) -> Self {
        Self { table, row: RowSource::Columns(columns), first: 0, next: 0 }
    }

    /// Returns the next column.
    pub(crate) fn next<T: ColumnType<'r>>(&mut self, name: &str) -> Res<T> {
        let column = T::read(self.row.get(self.next)?);
        self.next += 1;
        column.ok_or_else(|| corrupt(self.place(), format!("{name} does not match the format")))
    }

    /// Verifies the check, which is the next column.
    pub(crate) fn verify(&mut self, check: i64) -> Res<()> {
        match self.row.get(self.next)? == ValueRef::Integer(check) {
            true => Ok(()),
            false => Err(corrupt(self.place(), "the check of the row does not match")),
        }
    }

    fn place(&self) -> String {
        let columns = self.first..self.first + self.table.columns.len();
        self.table.place(|visit| columns.for_each(|column| visit(self.row.get(column).unwrap_or(ValueRef::Null))))
    }
}

/// A number, or none.
pub(crate) trait MaybeNumber {
    fn map_number(self, map: impl FnOnce(i64) -> i64) -> Self;
}

impl MaybeNumber for i64 {
    fn map_number(self, map: impl FnOnce(i64) -> i64) -> Self {
        map(self)
    }
}

impl MaybeNumber for Option<i64> {
    fn map_number(self, map: impl FnOnce(i64) -> i64) -> Self {
        self.map(map)
    }
}

/// A column that holds the distance to the number of another one, which is the greater.
pub(crate) mod below {
    use super::MaybeNumber;

    /// Returns the number for a distance, and the distance for a number.
    pub(crate) fn turn<N: MaybeNumber>(column: N, of: i64) -> N {
        column.map_number(|column| of.wrapping_sub(column))
    }

    pub(crate) use turn as turn_back;
}

/// A column that holds the distance from the number of another one.
pub(crate) mod above {
    /// Returns the number for a distance.
    pub(crate) fn turn(column: Option<i64>, of: i64) -> Option<i64> {
        column.map(|column| of.wrapping_add(column))
    }

    /// Returns the distance for a number.
    pub(crate) fn turn_back(number: Option<i64>, of: i64) -> Option<i64> {
        number.map(|number| number.wrapping_sub(of))
    }
}
