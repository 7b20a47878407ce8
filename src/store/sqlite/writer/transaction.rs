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
use crate::store::sqlite::rows::checkpoint::column;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Error as SqlError, ErrorCode, Params, Row, ffi};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// A transaction on the tables of an application, whose names begin with `app_`; see
/// [`Store::transaction`](crate::store::Store::transaction).
///
/// A statement reads and writes these tables, makes and drops them and their indexes, and adds columns (`ALTER TABLE`
/// that renames or drops one is refused). It reaches nothing else: not the tables of the store, no other file, no
/// temporary table, no trigger, view or pragma. It sees the changes of the statements before it. Values are bound as in
/// [`rusqlite`](crate::rusqlite): `?1`, `:name`, and a tuple, an array or `rusqlite::params!`. Foreign keys are
/// enforced.
pub struct SqlTransaction<'a> {
    view: ReadView<'a>,
    guard: &'a SqlGuard,
    began: Stopwatch,
    limit: Duration,
    statements: Cell<usize>,
}

impl<'a> SqlTransaction<'a> {
    pub(crate) fn new(view: ReadView<'a>, guard: &'a SqlGuard, (began, limit): (Stopwatch, Duration)) -> Self {
        Self { view, guard, began, limit, statements: Cell::new(0) }
    }

    /// Runs one statement and returns the number of rows that it inserted, updated or deleted.
    ///
    /// # Errors
    /// [`StoreError::Sql`], also for a statement that returns rows.
    pub fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        self.run(sql, |conn| conn.execute(sql, params))
    }

    /// Runs several statements without values, separated by semicolons: those that make the tables. They count as one
    /// statement.
    ///
    /// # Errors
    /// As [`SqlTransaction::execute`]. The statements before the one that failed have run.
    pub fn execute_batch(&self, sql: &str) -> Result<(), StoreError> {
        self.run(sql, |conn| conn.execute_batch(sql))
    }

    /// Runs one statement and reads its first row; `None` if it returns none.
    ///
    /// # Errors
    /// [`StoreError::Sql`]; that of `read`.
    pub fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.run(sql, |conn| {
            let mut statement = conn.prepare(sql)?;
            let mut rows = statement.query(params)?;
            let found = rows.next()?.map(read).transpose()?;
            // A statement with `RETURNING` has done its work only when it has ended.
            while rows.next()?.is_some() {}
            Ok(found)
        })
    }

    /// Runs one statement and reads all its rows, at most 1,000,000.
    ///
    /// # Errors
    /// [`StoreError::Sql`]; that of `read`.
    pub fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        let is_whole = self.run(sql, |conn| {
            let mut statement = conn.prepare(sql)?;
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                if found.len() == STATEMENT_ROWS_MAX {
                    return Ok(false);
                }
                found.push(read(row)?);
            }
            Ok(true)
        })?;
        if is_whole { Ok(found) } else { Err(self.refused(format!("it returns more than {STATEMENT_ROWS_MAX} rows"))) }
    }

    /// Returns the rowid of the last inserted row; 0 before the first one.
    pub fn last_insert_rowid(&self) -> i64 {
        self.view.conn.last_insert_rowid()
    }

    /// Returns the value of a stored write of a task of a checkpoint, as this transaction sees the log; `None` if it is
    /// not stored, or is not one value. For executors: a write that is stored in the same transaction says that its
    /// statements have run.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn write_of(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Result<Option<Payload>, StoreError> {
        self.find_write(at, task, index).map_err(Fault::into_read)
    }

    fn find_write(&self, at: &CheckpointRef, task: &TaskId, index: i32) -> Res<Option<Payload>> {
        let view = self.view;
        view.must_row(at, |seq, row| {
            let place = || format!("checkpoint {seq}");
            let tasks = view.tasks(row.get_ref(column::TASKS)?, &place)?;
            let code = match tasks.iter().position(|prepared| prepared.id == *task) {
                Some(position) => Some(position as i64),
                None => view.names.find(view.conn, Kind::Task, &task.to_string())?.map(|name| -name),
            };
            let Some(code) = code else { return Ok(None) };
            let mut found = None;
            view.runs((seq, &row.get(column::SUM)?), &tasks, Some(code), &mut |read| {
                if read.row.index == i64::from(index) && read.row.part == 0 {
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

impl fmt::Debug for SqlTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTransaction").field("statements", &self.statements).finish_non_exhaustive()
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
            tx.statements.set(TRANSACTION_STATEMENTS_MAX - 1);
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
