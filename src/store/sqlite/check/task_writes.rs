//! Checks the runs of writes: the checksums of those that were stored on their own, the checks of consumed ones.

use super::Checker;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::read::task_writes::WriteRuns;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{TableRow, write};
use rusqlite::Rows;

impl Checker<'_> {
    /// Verifies the rows of `write`, checkpoint by checkpoint.
    pub(crate) fn writes(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_WRITES)?;
        self.write_rows(statement.query([])?)
    }

    /// Verifies rows of `write` in the order of checkpoint and task.
    pub(crate) fn write_rows(&mut self, mut rows: Rows<'_>) -> Res<()> {
        let mut of: Option<(i64, Option<Known>)> = None;
        let mut runs: Option<WriteRuns<'_>> = None;
        while let Some(row) = rows.next()? {
            let (row, consumed_by) = (write::Row::read(row, 0)?, row.get(write::TABLE.columns.len())?);
            let checkpoint = row.checkpoint;
            if !matches!(&of, Some((last, _)) if *last == checkpoint) {
                self.end(runs.take())?;
                let parent = self.view.known(checkpoint);
                let parent = self.note(parent)?;
                runs = parent.as_ref().map(|parent| WriteRuns::new(self.view.keys, parent.checksum));
                of = Some((checkpoint, parent));
            }
            if let (Some((_, Some(parent))), Some(runs)) = (&of, &mut runs) {
                let verified = self.write(parent, &row, consumed_by, runs);
                self.note(verified)?;
            }
        }
        self.end(runs)
    }

    fn end(&mut self, runs: Option<WriteRuns<'_>>) -> Res<()> {
        let verified = runs.map_or(Ok(()), |mut runs| runs.finish());
        self.note(verified).map(|_| ())
    }

    /// Verifies a row whose consumer, if it has one, is a child of the checkpoint `of`.
    fn write(&mut self, parent: &Known, row: &write::Row<'_>, of: Option<i64>, runs: &mut WriteRuns<'_>) -> Res<()> {
        if row.child.is_some() && of != Some(row.checkpoint) {
            return Err(corrupt(row.place(), "its consumer is not a child of its checkpoint"));
        }
        let checksum = self.write_checksum(&parent.tasks, row, &mut runs.task)?;
        runs.add(row, checksum)
    }
}
