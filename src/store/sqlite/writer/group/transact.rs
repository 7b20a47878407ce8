//! One transaction for the statements of an application and the batch that goes along.
//!
//! It has no neighbours: its function runs on the thread of its caller, and may be refused after it has written rows.
//! *Absent:* repeating it. A transaction whose commit the disk did not confirm has an unknown outcome.

use super::{Core, Outcomes, Verdict, is_undone};
use crate::base::internal::Stopwatch;
use crate::limits::TRANSACTION_STEPS_BETWEEN;
use crate::store::batch::Batch;
use crate::store::error::StoreError;
use crate::store::sqlite::commit::caches;
use crate::store::sqlite::fault::{Fault, Res, reason};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::transaction::SqliteTransaction;
use crate::store::statements::SqlConnection;
use rusqlite::Connection;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The function of a transaction: it runs statements, and returns the batch that is committed with them.
pub(crate) type TransactionRun<'r> = &'r mut dyn FnMut(&dyn SqlConnection) -> Result<Option<Batch>, StoreError>;

/// Changed rows that are taken for one frame of the WAL.
const ROWS_OF_FRAME: u64 = 16;

/// The end of a transaction.
pub(crate) struct Transacted {
    /// The outcome; the payload of a panic of the function.
    pub(crate) outcome: Result<Result<(), StoreError>, Box<dyn Any + Send>>,
    /// True if a batch was committed.
    pub(crate) has_batch: bool,
    /// The reason that the writer accepts no further job.
    pub(crate) closed: Option<String>,
}

impl Transacted {
    fn refused(error: StoreError) -> Self {
        Self { outcome: Ok(Err(error)), has_batch: false, closed: None }
    }
}

impl Core {
    /// Runs a function in the transaction that has begun, and ends it.
    pub(crate) fn transact(&mut self, run: TransactionRun<'_>) -> Transacted {
        if let Some(closed) = self.closed.clone() {
            self.roll_back();
            return Transacted {
                closed: Some(closed.clone()),
                ..Transacted::refused(StoreError::HandleClosed { reason: closed })
            };
        }
        let changes = self.conn.total_changes();
        let batch = match catch_unwind(AssertUnwindSafe(|| self.run_function(run))) {
            Ok(Ok(batch)) => batch,
            Ok(Err(fault)) => {
                self.abandon();
                let error = fault.into_write(|| self.busy());
                return Transacted::refused(error);
            }
            Err(panic) => {
                self.abandon();
                return Transacted { outcome: Err(panic), has_batch: false, closed: None };
            }
        };
        let written = match &batch {
            Some(batch) => self.write_along(batch),
            None => Ok(()),
        };
        if let Err(fault) = written {
            self.abandon();
            let error = fault.into_write(|| self.busy());
            if let Some(chain) = batch.as_ref().and_then(|batch| batch.chain.as_ref()) {
                chain.end(&error);
            }
            return Transacted::refused(error);
        }
        let changed = self.conn.total_changes().saturating_sub(changes);
        self.end(batch.as_ref(), changed)
    }

    /// Runs the function, and verifies the schema that it leaves.
    fn run_function(&mut self, run: TransactionRun<'_>) -> Res<Option<Batch>> {
        self.verify_schema()?;
        caches::refresh(&self.conn, &mut self.caches)?;
        self.carry_mark()?;
        let (before, version) = (unmarked(&self.conn)?, self.schema);
        let limit = (Stopwatch::start(), self.transaction_max);
        interrupt_after(&mut self.conn, Some(limit))?;
        let tx = SqliteTransaction::new(self.caches.view(&self.conn), &self.guard, limit);
        let batch = run(&tx).map_err(Fault::Store);
        let is_open = tx.verify_open();
        let renamed = tx.refused("a table or index would get a name that does not begin with app_".into());
        interrupt_after(&mut self.conn, None)?;
        let batch = batch?;
        is_open?;
        self.verify_schema()?;
        // The guard does not see the new name of a table that is renamed.
        if self.schema != version && unmarked(&self.conn)? != before {
            return Err(renamed.into());
        }
        Ok(batch)
    }

    fn write_along(&mut self, batch: &Batch) -> Res<()> {
        batch.validate()?;
        if let Some(chain) = batch.chain.as_ref().filter(|chain| chain.has_ended()) {
            return Err(chain.refusal().into());
        }
        JobRef::Log(batch).write(&self.conn, &mut self.caches)
    }

    /// Rolls back a transaction in which the schema may have changed: its number may come again with another schema.
    fn abandon(&mut self) {
        self.schema = None;
        self.roll_back();
    }

    fn end(&mut self, batch: Option<&Batch>, changed: u64) -> Transacted {
        let rows = changed / ROWS_OF_FRAME;
        let jobs: Vec<JobRef<'_>> = batch.map(JobRef::Log).into_iter().collect();
        let verdict = match self.commit() {
            Ok(()) => {
                self.frames += rows;
                self.unmeasured += rows;
                self.committed(&jobs, Outcomes::from([Ok(())]))
            }
            Err(fault) if is_undone(&fault) => {
                self.abandon();
                Verdict::open(Outcomes::from([Err(fault.into_write(|| self.busy()))]))
            }
            Err(fault) => {
                let text = reason(&fault);
                self.schema = None;
                // The connection is made anew; nothing is repeated, since the function has run.
                let Verdict { closed, .. } = self.heal(&[], Outcomes::new(), &text);
                Verdict { outcomes: Outcomes::from([Err(StoreError::OutcomeUnknown { reason: text })]), closed }
            }
        };
        let outcome = verdict.outcomes.into_iter().next().unwrap_or(Ok(()));
        if let (Err(error), Some(chain)) = (&outcome, batch.and_then(|batch| batch.chain.as_ref())) {
            chain.end(error);
        }
        Transacted { has_batch: batch.is_some() && outcome.is_ok(), outcome: Ok(outcome), closed: verdict.closed }
    }
}

/// Returns the number of tables and indexes that are not those of an application by their names.
fn unmarked(conn: &Connection) -> Res<i64> {
    conn.one(sql::UNMARKED_OBJECTS, [])
}

/// Interrupts statements that run past a limit, or no longer does.
fn interrupt_after(conn: &mut Connection, limit: Option<(Stopwatch, Duration)>) -> Res<()> {
    let is_over = limit.map(|(began, limit)| move || began.elapsed() > limit);
    conn.progress_handler(TRANSACTION_STEPS_BETWEEN, is_over)?;
    Ok(())
}
