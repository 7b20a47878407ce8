//! Transactions on the tables of an application, which lie in the file of the store.
//!
//! *Absent:* the reach of a statement, which the backend decides.

use super::batch::Batch;
use super::error::StoreError;
use super::handle::Store;
use super::statements::SqlTransaction;
use crate::span::span;
use crate::store::log::LogExt;

impl Store {
    /// Runs SQL on tables of the application, which lie in the file of the store beside its own: all statements of the
    /// function in one transaction, as durable as a commit. The names of the tables, and those of their indexes, begin
    /// with `app_`; statements reach nothing else ([`SqlTransaction`]). A backup has the tables, and a check verifies
    /// their pages; they have no checksums, are in the clear in an encrypted store, and stay when a thread is deleted.
    ///
    /// The function runs once, on the calling thread, while all other writers of the file wait: it should do nothing
    /// but run statements. It may not write to this store, or wait for a commit of it. If it fails or panics, or lasts
    /// longer than 5 s, nothing of it is stored.
    ///
    /// # Errors
    /// The error of the function; [`StoreError::Sql`] of a statement, also one that is not allowed;
    /// [`StoreError::Unsupported`] of a store in memory; [`StoreError::Busy`], [`StoreError::Write`],
    /// [`StoreError::ReadOnly`]; [`StoreError::OutcomeUnknown`] if the disk did not confirm the commit: read whether it
    /// is there before it is repeated.
    ///
    /// # Example
    /// ```
    /// use annals::store::{SqlConstraint, Store, StoreError};
    ///
    /// # fn main() -> Result<(), StoreError> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("orders.db"))?;
    /// store.transaction(|tx| {
    ///     tx.execute_batch("CREATE TABLE IF NOT EXISTS app_stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL CHECK (pieces >= 0))")?;
    ///     tx.execute("INSERT INTO app_stock VALUES (?1, ?2)", ("tea", 3))
    /// })?;
    /// let left = store.transaction(|tx| {
    ///     tx.execute("UPDATE app_stock SET pieces = pieces - ?2 WHERE item = ?1", ("tea", 2))?;
    ///     tx.query_row("SELECT pieces FROM app_stock WHERE item = ?1", ["tea"], |row| row.get::<i64>(0))
    /// })?;
    /// assert_eq!(left, Some(1));
    ///
    /// let sold_out = store.transaction(|tx| {
    ///     tx.execute("UPDATE app_stock SET pieces = pieces - 2 WHERE item = 'tea'", ())
    /// });
    /// assert_eq!(sold_out.unwrap_err().constraint(), Some(SqlConstraint::Check));
    /// let refused: Result<usize, StoreError> = store.transaction(|tx| tx.execute("DELETE FROM checkpoint", ()));
    /// assert!(matches!(refused, Err(StoreError::Sql { statement: 1, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<T, E: From<StoreError>>(
        &self,
        run: impl FnOnce(&SqlTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction_with(|tx| run(tx).map(|done| (done, None)))
    }

    /// Runs SQL as [`Store::transaction`], and commits the batch that the function returns in the same transaction:
    /// what the statements did is stored if the batch is, and not if the batch is refused. For executors: an effect in
    /// a table together with the record that it has happened.
    ///
    /// # Errors
    /// As [`Store::transaction`]; as [`Store::commit`] for the batch.
    ///
    /// # Example: a ledger that agrees with a thread
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::{Source, StoreError};
    /// use annals::store::batch::{Batch, NewCheckpoint, Parent};
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("orders.db"))?;
    /// let thread = store.thread("order-17")?;
    /// store.transaction(|tx| tx.execute_batch("CREATE TABLE app_ledger (thread TEXT, cents INTEGER)"))?;
    /// let pay = |head| {
    ///     store.transaction_with(|tx| {
    ///         tx.execute("INSERT INTO app_ledger VALUES (?1, ?2)", (thread.id().as_str(), 500))?;
    ///         let id = store.mint_checkpoint(0, None);
    ///         let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), head);
    ///         batch.checkpoints.push(NewCheckpoint::new(id, head.map(Parent::Local), 0, Source::Update, store.now()));
    ///         Ok::<_, StoreError>((id, Some(batch)))
    ///     })
    /// };
    /// let paid = pay(None)?;
    /// // Built on the same head a second time, the batch is refused, and so is the row of the ledger.
    /// assert!(matches!(pay(None), Err(StoreError::Conflict { found, .. }) if found == Some(paid)));
    /// let rows = store.transaction(|tx| tx.query("SELECT cents FROM app_ledger", (), |row| row.get::<i64>(0)))?;
    /// assert_eq!(rows, [500]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction_with<T, E: From<StoreError>>(
        &self,
        run: impl FnOnce(&SqlTransaction<'_>) -> Result<(T, Option<Batch>), E>,
    ) -> Result<T, E> {
        span!("transaction");
        let (mut run, mut done, mut failed) = (Some(run), None, None);
        let ended = self.backend().transact(&mut |tx| {
            let again = || StoreError::Unsupported { feature: "a repeated transaction", reason: "it ran once".into() };
            match run.take().ok_or_else(again)?(tx) {
                Ok((value, batch)) => {
                    done = Some(value);
                    Ok(batch)
                }
                Err(error) => {
                    failed = Some(error);
                    Err(StoreError::Invalid { field: "transaction", reason: "its function failed".into() })
                }
            }
        });
        match (ended, failed, done) {
            (Ok(()), None, Some(done)) => Ok(done),
            (_, Some(error), _) => Err(error),
            (Err(error), ..) => Err(error.into()),
            (Ok(()), None, None) => unreachable!("a backend that succeeds has called the function"),
        }
    }
}
