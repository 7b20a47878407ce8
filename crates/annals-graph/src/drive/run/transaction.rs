//! Transactions of tasks: SQL on the tables of the application, stored together with the record that it has run.
//!
//! The record is a write of a task of its own, whose id follows from the calling task and the number of the transaction
//! in it. It is looked up in the transaction itself, so two attempts of a task cannot both run the SQL. *Absent:* the
//! rules for statements, and the comparison of heads and leases, which are the store's.

use annals::store::log::LogExt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::limits::RUN_LOCK_WAITS_MAX;
use crate::base::{Encoded, Payload, TaskId, WriteValue, decode_bytes};
use crate::drive::io::nonblocking::block_on;
use crate::drive::io::pool::unblock;
use crate::exec::RETURN;
use crate::hash;
use crate::store::batch::{NewWrite, NewWrites};
use crate::store::{CheckpointRef, SqlTransaction, StoreError};
use crate::task::Context;

use super::builder::Durability;
use super::host::RunHost;
use super::subgraph::host_of;

/// A transaction of a task: its id, and the path under which its record is stored.
struct TransactionTask {
    id: TaskId,
    path: Arc<str>,
}

/// The function of a transaction: it gets the stored result if the transaction has run, and else returns the result to
/// be stored.
type RecordedRun<'r> = &'r mut dyn FnMut(&SqlTransaction<'_>, Option<Payload>) -> Result<Option<Payload>, StoreError>;

impl Context {
    /// Runs SQL on tables of the application, exactly once: its statements are committed together with the record that
    /// this transaction of the task has run, and with its result. If the task runs again, after a failure, an interrupt
    /// or a crash, the stored result is returned and the function does not run. A run that was overtaken by another one
    /// or has lost its lease stores nothing of it.
    ///
    /// The tables lie in the file of the store, and their names begin with `app_`. The rules for its statements and for
    /// the function stand at [`Store::transaction`](crate::store::Store::transaction). The function runs on the calling
    /// thread, which waits for the disk; an async node whose executor must not wait calls
    /// [`Context::atransaction`].
    ///
    /// A transaction is known by its number in the task, so a task makes its transactions in the same order each time.
    /// A fork, a rewind and a run that begins at an older checkpoint make the step again, and its transactions with it.
    ///
    /// # Errors
    /// The error of the function: nothing of it is stored, and the next attempt runs it again. [`StoreError::Sql`] of a
    /// statement; [`StoreError::Unsupported`] if the store is in memory, or the graph stores nothing, or the run has
    /// [`Durability::Exit`]; [`StoreError::Conflict`], [`StoreError::LeaseLost`] of a run that was overtaken;
    /// [`StoreError::OutcomeUnknown`] if the disk did not confirm the commit: the next attempt finds out;
    /// [`StoreError::Busy`] if others held the lock of the file for twelve times
    /// [`OpenOptions::busy_timeout_ms`](crate::store::OpenOptions::busy_timeout_ms).
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("orders.db"))?;
    /// store.transaction(|tx| tx.execute_batch("CREATE TABLE app_ledger (id TEXT, cents INTEGER)"))?;
    /// let book = Entrypoint::new("book", |cents: i64, context: &Context| {
    ///     let id = context.thread().map(|thread| thread.as_str().to_owned());
    ///     context.transaction(|tx| tx.execute("INSERT INTO app_ledger VALUES (?1, ?2)", (&id, cents)))?;
    ///     Ok(context.interrupt("ship it?")? == "yes")
    /// })
    /// .compile()?;
    /// let thread = store.thread("order-17")?;
    /// book.invoke(&thread, 500)?;
    /// // The entrypoint runs again from its first line; the ledger has one row.
    /// assert_eq!(book.invoke(&thread, Command::resume("yes"))?.value(), Some(&true));
    /// let rows = store.transaction(|tx| tx.query("SELECT cents FROM app_ledger", (), |row| row.get::<i64>(0)))?;
    /// assert_eq!(rows, [500]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<T, E>(&self, run: impl FnOnce(&SqlTransaction<'_>) -> Result<T, E>) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StoreError>,
    {
        transact(self, self.next_transaction(), run)
    }

    /// Runs SQL as [`Context::transaction`], on a thread of the store, and awaits it.
    ///
    /// # Errors
    /// As [`Context::transaction`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] rows: i64 }
    ///
    /// async fn pay(_: &Order, context: &Context) -> NodeResult<OrderUpdate> {
    ///     let rows = context.atransaction(|tx| tx.execute("INSERT INTO app_ledger VALUES (500)", ())).await?;
    ///     Ok(Order::update().rows(rows as i64))
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("orders.db"))?;
    /// store.transaction(|tx| tx.execute_batch("CREATE TABLE app_ledger (cents INTEGER)"))?;
    /// let graph = StateGraph::<Order>::new().node("pay", pay).edge(START, "pay").compile()?;
    /// let done = annals_graph::block_on(graph.ainvoke(&store.thread("order-17")?, Order::update()))?;
    /// assert_eq!(done.state().rows, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn atransaction<T, E, F>(&self, run: F) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        F: FnOnce(&SqlTransaction<'_>) -> Result<T, E> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (context, of) = (self.clone(), self.next_transaction());
        let store = host_of(self).and_then(|host| host.thread.as_ref().map(|thread| thread.store().clone()));
        async move {
            match store {
                Some(store) => unblock(&store, move || transact(&context, of, run)).await,
                None => transact(&context, of, run),
            }
        }
    }

    /// Returns the next transaction of this attempt. Its id is the same in each attempt.
    fn next_transaction(&self) -> TransactionTask {
        let number = self.calls().transactions.fetch_add(1, Ordering::Relaxed);
        let mut place = self.effect_id();
        place.extend_from_slice(format!("|transaction {number}").as_bytes());
        let caller = self.calls().path.text(self.node());
        let path = format!("~__pregel_push, {caller}, {number:010}, {:010}", 2);
        TransactionTask { id: TaskId::from_bytes(hash::xxh3_128(&place)), path: path.into() }
    }
}

/// Runs a transaction, or returns its stored result.
fn transact<T, E>(
    context: &Context,
    of: TransactionTask,
    run: impl FnOnce(&SqlTransaction<'_>) -> Result<T, E>,
) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: From<StoreError>,
{
    let host = host_of(context).ok_or_else(|| unsupported("the context is not that of a run"))?;
    let (mut run, mut done, mut failed) = (Some(run), None, None);
    let mut recorded = |tx: &SqlTransaction<'_>, stored: Option<Payload>| {
        if let Some(stored) = stored {
            done = Some(decode_bytes::<T>(stored.codec, &stored.data)?);
            return Ok(None);
        }
        let run = run.take().ok_or_else(|| unsupported("the backend repeated the function"))?;
        match run(tx) {
            Ok(value) => {
                let stored = Encoded::encode(&value)?;
                done = Some(value);
                Ok(Some(stored.into()))
            }
            Err(error) => {
                failed = Some(error);
                Err(StoreError::Invalid { field: "transaction", reason: "its function failed".into() })
            }
        }
    };
    let mut waits = 1;
    let ended = loop {
        match host.transact(context, &of, &mut recorded) {
            // Another process holds the lock of the file, and this one has written nothing: the task has not failed.
            Err(busy @ StoreError::Busy { .. }) if waits < RUN_LOCK_WAITS_MAX => {
                waits += 1;
                let chain = host.session.lock().chain().clone();
                chain.note_lock_wait(&busy);
                chain.report_lock_wait();
            }
            ended => break ended,
        }
    };
    match (ended, failed, done) {
        (_, Some(error), _) => Err(error),
        (Err(error), None, _) => Err(error.into()),
        (Ok(()), None, Some(done)) => Ok(done),
        (Ok(()), None, None) => unreachable!("a backend that succeeds has called the function"),
    }
}

fn unsupported(reason: &str) -> StoreError {
    StoreError::Unsupported { feature: "a transaction of a task", reason: reason.to_owned() }
}

impl RunHost {
    /// Runs a function in a transaction of the store, unless its record is stored, and commits the record with it, on
    /// the head of the graph.
    ///
    /// # Errors
    /// The error of `run`; [`StoreError::Unsupported`] if the run stores nothing by then; as the commits of the run.
    fn transact(&self, context: &Context, of: &TransactionTask, run: RecordedRun<'_>) -> Result<(), StoreError> {
        let (Some(checkpoint), Some(thread)) = (context.checkpoint(), &self.thread) else {
            return Err(unsupported("the graph stores nothing"));
        };
        if self.durability == Durability::Exit {
            return Err(unsupported("the run stores nothing before it ends"));
        }
        // It rests on the results before it.
        if let Err(error) = block_on(self.wait_for_submitted(true)) {
            let refused = self.session.lock().failure();
            return Err(refused.unwrap_or(StoreError::Write { reason: error.to_string(), source: None }));
        }
        let none = || unsupported("the graph stores nothing");
        let mut batch =
            self.writes_of(context, NewWrites::new(checkpoint, of.id, Arc::clone(&of.path))).ok_or_else(none)?;
        debug_assert_eq!(batch.writes.len(), 1, "the record of a transaction is one write");
        let at = CheckpointRef::new(batch.thread.clone(), batch.namespace.clone(), batch.writes[0].checkpoint);
        thread.store().backend().transact(&mut |tx| {
            if context.life().is_over() {
                let reason = "the attempt of its task was abandoned".into();
                return Err(StoreError::Invalid { field: "transaction", reason });
            }
            let stored = tx.write_of(&at, &of.id, 0)?;
            let Some(result) = run(tx, stored)? else { return Ok(None) };
            batch.writes[0].writes = vec![NewWrite::new(0, RETURN, WriteValue::One(result))];
            Ok(self.session.lock().commit(batch.clone(), None))
        })
    }
}
