//! Statements on the tables of an application, in plain values: what a transaction of any database runs.
//!
//! *Absent:* the reach of a statement and its limits, which the backend decides, and the language of the statements,
//! which is that of its database.

use std::cell::Cell;
use std::fmt;

use super::batch::Payload;
use super::error::StoreError;
use super::record::CheckpointRef;
use crate::base::TaskId;

/// A value that a statement binds, or that a row holds.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// Null.
    Null,
    /// A number of 64 bits with a sign.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// The statements that a backend runs in a transaction on the tables of an application.
///
/// # Implementing
/// The transaction ends with the function that got it: no statement runs after that, or after an error that has rolled
/// it back. A statement sees the changes of those before it.
pub trait SqlConnection: fmt::Debug {
    /// Runs one statement and returns the number of rows that it inserted, updated or deleted.
    ///
    /// # Errors
    /// [`StoreError::Sql`], also for a statement that returns rows.
    fn execute(&self, sql: &str, params: &[SqlValue]) -> Result<usize, StoreError>;

    /// Runs several statements without values, separated by semicolons. They count as one statement.
    ///
    /// # Errors
    /// As [`SqlConnection::execute`]. The statements before the one that failed have run.
    fn execute_batch(&self, sql: &str) -> Result<(), StoreError>;

    /// Runs one statement and visits its rows until the visitor wants no more, at most 1,000,000. The statement has
    /// done its work when this returns, also if rows were left.
    ///
    /// # Errors
    /// [`StoreError::Sql`]; that of `visit`.
    fn query(
        &self,
        sql: &str,
        params: &[SqlValue],
        visit: &mut dyn FnMut(&[SqlValue]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError>;

    /// Returns the value of a stored write of a task of a checkpoint, as this transaction sees the log; `None` if it is
    /// not stored, or is not one value. For executors: a write that is stored in the same transaction says that its
    /// statements have run.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn write_of(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Result<Option<Payload>, StoreError>;
}

/// A transaction on the tables of an application, whose names begin with `app_`; see
/// [`Store::transaction`](crate::store::Store::transaction).
///
/// In a file a statement reads and writes these tables, makes and drops them and their indexes, and adds columns
/// (`ALTER TABLE` that renames or drops one is refused). It reaches nothing else: not the tables of the store, no other
/// file, no temporary table, no trigger, view or pragma. It sees the changes of the statements before it. Values are
/// bound by their order to `?1`, `?2` and so on: a tuple, an array or a slice of [`SqlValue`]. Foreign keys are
/// enforced.
#[derive(Debug)]
pub struct SqlTransaction<'a> {
    conn: &'a dyn SqlConnection,
    statements: Cell<usize>,
}

impl<'a> SqlTransaction<'a> {
    /// Gives a transaction of a backend the calls of a program.
    pub fn new(conn: &'a dyn SqlConnection) -> Self {
        Self { conn, statements: Cell::new(0) }
    }

    /// Runs one statement and returns the number of rows that it inserted, updated or deleted.
    ///
    /// # Errors
    /// [`StoreError::Sql`], also for a statement that returns rows.
    pub fn execute(&self, sql: &str, params: impl SqlParams) -> Result<usize, StoreError> {
        self.statements.set(self.statements.get() + 1);
        self.conn.execute(sql, &params.into_values())
    }

    /// Runs several statements without values, separated by semicolons: those that make the tables. They count as one
    /// statement.
    ///
    /// # Errors
    /// As [`SqlTransaction::execute`]. The statements before the one that failed have run.
    pub fn execute_batch(&self, sql: &str) -> Result<(), StoreError> {
        self.statements.set(self.statements.get() + 1);
        self.conn.execute_batch(sql)
    }

    /// Runs one statement and reads its first row; `None` if it returns none.
    ///
    /// # Errors
    /// [`StoreError::Sql`]; that of `read`.
    pub fn query_row<T>(
        &self,
        sql: &str,
        params: impl SqlParams,
        read: impl FnOnce(&SqlRow<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let (mut read, mut found) = (Some(read), None);
        self.visit(sql, params, &mut |row| {
            found = read.take().map(|read| read(row)).transpose()?;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Runs one statement and reads all its rows, at most 1,000,000.
    ///
    /// # Errors
    /// [`StoreError::Sql`]; that of `read`.
    pub fn query<T>(
        &self,
        sql: &str,
        params: impl SqlParams,
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.visit(sql, params, &mut |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Returns the value of a stored write of a task, as [`SqlConnection::write_of`].
    ///
    /// # Errors
    /// As [`SqlConnection::write_of`].
    pub fn write_of(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Result<Option<Payload>, StoreError> {
        self.conn.write_of(at, task, index)
    }

    fn visit(
        &self,
        sql: &str,
        params: impl SqlParams,
        visit: &mut dyn FnMut(&SqlRow<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let statement = self.statements.get() + 1;
        self.statements.set(statement);
        self.conn.query(sql, &params.into_values(), &mut |values| visit(&SqlRow { values, statement }))
    }
}

/// A row that a statement returned.
#[derive(Debug)]
pub struct SqlRow<'r> {
    values: &'r [SqlValue],
    statement: usize,
}

impl SqlRow<'_> {
    /// Reads the value of a column, counted from 0.
    ///
    /// # Errors
    /// [`StoreError::Sql`] if the row has no such column, or if its value is of another type.
    pub fn get<T: FromSql>(&self, column: usize) -> Result<T, StoreError> {
        let value = self.values.get(column);
        value.and_then(T::from_value).ok_or_else(|| StoreError::Sql {
            statement: self.statement,
            at: None,
            constraint: None,
            reason: format!("column {column} is {value:?}, which is not the wanted type"),
            source: None,
        })
    }
}

/// A type that a column is read as.
pub trait FromSql: Sized {
    /// Reads a value; `None` if it is of another type.
    fn from_value(value: &SqlValue) -> Option<Self>;
}

/// Values that a statement binds.
pub trait SqlParams {
    /// Returns the values in their order.
    fn into_values(self) -> Vec<SqlValue>;
}

impl FromSql for SqlValue {
    fn from_value(value: &SqlValue) -> Option<Self> {
        Some(value.clone())
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_value(value: &SqlValue) -> Option<Self> {
        if *value == SqlValue::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Implements the conversions of a type from and to a value of one kind.
macro_rules! column_types {
    ($($type:ty as $kind:ident: $read:expr;)+) => {
        $(impl FromSql for $type {
            fn from_value(value: &SqlValue) -> Option<Self> {
                let read: fn(&_) -> Option<$type> = $read;
                if let SqlValue::$kind(value) = value { read(value) } else { None }
            }
        }

        impl From<$type> for SqlValue {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        })+
    };
}

column_types! {
    i64 as Integer: |value: &i64| Some(*value);
    i32 as Integer: |value: &i64| (*value).try_into().ok();
    u32 as Integer: |value: &i64| (*value).try_into().ok();
    bool as Integer: |value: &i64| [false, true].get(usize::try_from(*value).ok()?).copied();
    f64 as Real: |value: &f64| Some(*value);
    String as Text: |value: &String| Some(value.clone());
    Vec<u8> as Blob: |value: &Vec<u8>| Some(value.clone());
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&[u8]> for SqlValue {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_owned())
    }
}

impl<T: Clone + Into<SqlValue>> From<&T> for SqlValue {
    fn from(value: &T) -> Self {
        value.clone().into()
    }
}

impl SqlParams for () {
    fn into_values(self) -> Vec<SqlValue> {
        Vec::new()
    }
}

impl SqlParams for &[SqlValue] {
    fn into_values(self) -> Vec<SqlValue> {
        self.to_vec()
    }
}

impl<T: Into<SqlValue>, const N: usize> SqlParams for [T; N] {
    fn into_values(self) -> Vec<SqlValue> {
        self.map(Into::into).into()
    }
}

/// Implements the values of tuples.
macro_rules! tuples {
    ($($($name:ident)+;)+) => {
        $(impl<$($name: Into<SqlValue>),+> SqlParams for ($($name,)+) {
            #[allow(non_snake_case, reason = "each name is that of a type and of its value")]
            fn into_values(self) -> Vec<SqlValue> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        })+
    };
}

tuples! { A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H; }
