//! The statements of an application in a transaction of the writer.
//!
//! *Absent:* the begin and the end of the transaction, and the batch that goes along
//! ([`transact`](super::group)).
//!
//! Invariant: no statement runs after the transaction has ended, by an error or past a limit.

use crate::base::TaskId;
use crate::base::internal::Stopwatch;
use crate::base::limits::{STATEMENT_BYTES_MAX, TRANSACTION_STATEMENTS_MAX};
use crate::limits::STATEMENT_ROWS_MAX;
use crate::store::batch::Payload;
use crate::store::error::{SchemaChange, SqlConstraint, StoreError};
use crate::store::record::CheckpointRef;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::guard::SqlGuard;
use crate::store::sqlite::file::schema;
use crate::store::sqlite::rows::task::task_column;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use crate::store::statements::{SqlConnection, SqlValue};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error as SqlError, ErrorCode, Params, ffi, params_from_iter};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// The statements of an application behind the guard, which refuses those that reach something else than its tables.
pub(crate) struct SqliteTransaction<'a> {
    view: ReadView<'a>,
    guard: &'a SqlGuard,
    began: Stopwatch,
    limit: Duration,
    statements: Cell<usize>,
}

impl<'a> SqliteTransaction<'a> {
    pub(crate) fn new(view: ReadView<'a>, guard: &'a SqlGuard, (began, limit): (Stopwatch, Duration)) -> Self {
        Self { view, guard, began, limit, statements: Cell::new(0) }
    }

    fn find_write(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Res<Option<Payload>> {
        let view = self.view;
        view.must_row(at, |row| {
            let tasks = view.tasks(row.tasks, &|| row.place())?;
            let (column, mut found) = (task_column(task, &tasks), None);
            view.runs((row.seq, &row.sum), &tasks, Some(column), &mut |read| {
                if read.row.idx == i64::from(index) && read.row.part == 0 {
                    found = read.payload.take();
                }
                Ok(())
            })?;
            Ok(found)
        })
    }

    /// Runs a statement behind the guard.
    fn run<T>(&self, sql: &str, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        self.statements.set(self.statements.get() + 1);
        self.verify_open()?;
        if self.statements.get() > TRANSACTION_STATEMENTS_MAX {
            return Err(self.refused(format!("a transaction has {TRANSACTION_STATEMENTS_MAX} statements at most")));
        }
        if sql.len() > STATEMENT_BYTES_MAX {
            let reason = format!("its text has {} bytes, the limit is {STATEMENT_BYTES_MAX}", sql.len());
            return Err(self.refused(reason));
        }
        let guarded = || {
            let _closed = self.guard.close();
            run(self.view.conn).map_err(|error| self.failed(error))
        };
        if has_reference(sql) { self.run_with_reference(guarded) } else { guarded() }
    }

    /// Runs a statement that may make a foreign key, and undoes it if that refers to a table of the store: the schema
    /// would be refused at the end of the transaction, and by each later open.
    fn run_with_reference<T>(&self, run: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let conn = self.view.conn;
        let step = |sql: &str| conn.execute_batch(sql).map_err(|error| self.failed(error));
        step(sql::SAVEPOINT_STATEMENT)?;
        let done = run().and_then(|done| match schema::verify(conn) {
            Ok(()) => Ok(done),
            Err(Fault::Store(StoreError::SchemaChanged {
                kind, name, change: change @ SchemaChange::Refers, ..
            })) => Err(self.refused(format!("the {kind} {name} {change}"))),
            Err(fault) => Err(fault.into_read()),
        });
        // An error may have ended the transaction, which the next statement tells.
        if done.is_err() && !conn.is_autocommit() {
            step(sql::ROLLBACK_STATEMENT)?;
        }
        if !conn.is_autocommit() {
            step(sql::RELEASE_STATEMENT)?;
        }
        done
    }

    /// Verifies that the transaction has not ended.
    ///
    /// # Errors
    /// [`StoreError::Sql`].
    pub(crate) fn verify_open(&self) -> Result<(), StoreError> {
        if self.view.conn.is_autocommit() {
            return Err(self.refused("an earlier error has rolled the transaction back".into()));
        }
        if self.began.elapsed() > self.limit { Err(self.refused(self.too_long())) } else { Ok(()) }
    }

    fn too_long(&self) -> String {
        format!("the transaction has taken longer than {:?}", self.limit)
    }

    /// Returns the error of a statement that does not run.
    pub(crate) fn refused(&self, reason: String) -> StoreError {
        StoreError::Sql { statement: self.statements.get(), at: None, constraint: None, reason, source: None }
    }

    /// Returns the error of a statement that SQLite refused.
    fn failed(&self, error: SqlError) -> StoreError {
        let (mut at, mut reason) = (None, error.to_string());
        match &error {
            SqlError::SqlInputError { msg, offset, .. } => {
                at = usize::try_from(*offset).ok();
                reason.clone_from(msg);
            }
            _ if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                reason = self.too_long();
            }
            _ => {}
        }
        let constraint = constraint_of(&error);
        StoreError::Sql { statement: self.statements.get(), at, constraint, reason, source: Some(Box::new(error)) }
    }
}

/// Returns whether the text of a statement has the word that every foreign key has.
fn has_reference(sql: &str) -> bool {
    const WORD: &[u8] = b"references";
    sql.as_bytes().windows(WORD.len()).any(|bytes| bytes.eq_ignore_ascii_case(WORD))
}

/// Returns the kind of the constraint that an error is about.
fn constraint_of(error: &SqlError) -> Option<SqlConstraint> {
    let SqlError::SqliteFailure(failure, _) = error else { return None };
    if failure.code != ErrorCode::ConstraintViolation {
        return None;
    }
    Some(match failure.extended_code {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            SqlConstraint::Unique
        }
        ffi::SQLITE_CONSTRAINT_NOTNULL => SqlConstraint::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK => SqlConstraint::Check,
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => SqlConstraint::ForeignKey,
        _ => SqlConstraint::Other,
    })
}

impl SqlConnection for SqliteTransaction<'_> {
    fn execute(&self, sql: &str, params: &[SqlValue]) -> Result<usize, StoreError> {
        self.run(sql, |conn| conn.execute(sql, bound(params)))
    }

    fn execute_batch(&self, sql: &str) -> Result<(), StoreError> {
        self.run(sql, |conn| conn.execute_batch(sql))
    }

    fn query(
        &self,
        sql: &str,
        params: &[SqlValue],
        visit: &mut dyn FnMut(&[SqlValue]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        // Statements that the visitor runs meanwhile have numbers of their own.
        self.run(sql, |conn| {
            let mut statement = conn.prepare(sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query(bound(params))?;
            let (mut visited, mut values) = (0, Vec::with_capacity(columns));
            let mut goes_on = Ok(true);
            // A statement with `RETURNING` has done its work only when it has ended.
            while let Some(row) = rows.next()? {
                if !matches!(goes_on, Ok(true)) {
                    continue;
                }
                if visited == STATEMENT_ROWS_MAX {
                    return Ok(Err(self.refused(format!("it returns more than {STATEMENT_ROWS_MAX} rows"))));
                }
                visited += 1;
                values.clear();
                for column in 0..columns {
                    values.push(value(row.get_ref(column)?)?);
                }
                goes_on = visit(&values);
            }
            Ok(goes_on.map(|_| ()))
        })?
    }

    fn write_of(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Result<Option<Payload>, StoreError> {
        self.find_write(at, task, index).map_err(Fault::into_read)
    }
}

fn bound(params: &[SqlValue]) -> impl Params {
    params_from_iter(params.iter().map(|value| match value {
        SqlValue::Null => Value::Null,
        SqlValue::Integer(number) => Value::Integer(*number),
        SqlValue::Real(number) => Value::Real(*number),
        SqlValue::Text(text) => Value::Text(text.clone()),
        SqlValue::Blob(bytes) => Value::Blob(bytes.clone()),
    }))
}

fn value(column: ValueRef<'_>) -> rusqlite::Result<SqlValue> {
    Ok(match column {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Integer(number),
        ValueRef::Real(number) => SqlValue::Real(number),
        ValueRef::Text(text) => SqlValue::Text(std::str::from_utf8(text)?.to_owned()),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_owned()),
    })
}

impl fmt::Debug for SqliteTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").field("statements", &self.statements).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::log::LogExt;
    use crate::store::sqlite::tests::Bench;

    #[test]
    fn a_transaction_has_as_many_statements_as_the_limit_and_no_more() {
        let bench = Bench::new();
        let counted = bench.store.transact(&mut |tx| {
            (1..TRANSACTION_STATEMENTS_MAX).try_for_each(|_| tx.execute_batch(""))?;
            tx.execute_batch("CREATE TABLE app_a (x)")?;
            for statement in [1, 2].map(|more| TRANSACTION_STATEMENTS_MAX + more) {
                let error = tx.execute_batch("CREATE TABLE app_b (x)").unwrap_err();
                assert!(error.to_string().contains("100000 statements at most"), "{error}");
                assert!(matches!(error, StoreError::Sql { statement: found, .. } if found == statement), "{error}");
            }
            assert!(format!("{tx:?}").contains(&format!("{}", TRANSACTION_STATEMENTS_MAX + 2)), "{tx:?}");
            Ok(None)
        });
        counted.unwrap();
    }
}
