//! Checks the checksums of writes that were stored on their own.

use super::check::{Checker, ParentFields};
use super::checksums::{WriteChecksum, writes_checksum};
use super::fault::{Res, corrupt};
use super::pack::Unpack;
use super::sql;
use rusqlite::Row;

/// A row of `write` with what says who stored it.
struct CheckedWrite {
    checksum: WriteChecksum,
    /// The checksum and how many writes it covers, on the first row of a run.
    run: Option<([u8; 16], i64)>,
    consumed: bool,
}

impl Checker<'_> {
    /// Verifies the rows of `write`, task by task.
    pub(super) fn writes(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_WRITES)?;
        let mut rows = statement.query([])?;
        let mut of: Option<(i64, ParentFields)> = None;
        let mut task: Option<(i64, i64, Vec<CheckedWrite>)> = None;
        while let Some(row) = rows.next()? {
            let (checkpoint, code): (i64, i64) = (row.get(0)?, row.get(1)?);
            if !matches!(&task, Some((last, of, _)) if (*last, *of) == (checkpoint, code)) {
                self.task(of.as_ref(), task.replace((checkpoint, code, Vec::new())));
            }
            if !matches!(&of, Some((last, _)) if *last == checkpoint) {
                let found = self.parent(checkpoint);
                of = self.note(found)?.map(|parent| (checkpoint, parent));
            }
            if let Some((_, parent)) = &of {
                let stored = self.stored(parent, checkpoint, row);
                if let (Some(stored), Some((_, _, rows))) = (self.note(stored)?, &mut task) {
                    rows.push(stored);
                }
            }
        }
        self.task(of.as_ref(), task);
        Ok(())
    }

    fn stored(&mut self, parent: &ParentFields, checkpoint: i64, row: &Row<'_>) -> Res<CheckedWrite> {
        let checksum = self.write_checksum(&parent.tasks, checkpoint, row, 1)?;
        let place = || {
            format!(
                "write (checkpoint {checkpoint}, task {}, idx {}, part {})",
                checksum.task, checksum.index, checksum.part
            )
        };
        let child: Option<i64> = row.get(8)?;
        if child.is_some() && row.get::<_, Option<i64>>(9)? != Some(checkpoint) {
            return Err(corrupt(place(), "its consumer is not a child of its checkpoint"));
        }
        let run = match row.get_ref(7)?.as_blob_or_null().map_err(|e| corrupt(place(), e.to_string()))? {
            None => None,
            Some(column) => {
                let mut rest = Unpack(column);
                let checksum = rest.take(16).and_then(|checksum| checksum.try_into().ok());
                let count = rest.id().filter(|count| *count > 0 && rest.is_empty());
                Some(checksum.zip(count).ok_or_else(|| corrupt(place(), "its checksum does not match the format"))?)
            }
        };
        Ok(CheckedWrite { checksum, run, consumed: child.is_some() })
    }

    /// Verifies the runs of one task. `of` is its checkpoint if the rows could be read at all.
    fn task(&mut self, of: Option<&(i64, ParentFields)>, task: Option<(i64, i64, Vec<CheckedWrite>)>) {
        let (Some((_, parent)), Some((checkpoint, code, rows))) = (of, task) else { return };
        let mut covered = vec![false; rows.len()];
        for first in &rows {
            let Some((checksum, count)) = first.run else { continue };
            let run = first.checksum.index..first.checksum.index.saturating_add(count);
            let mut writes = Vec::new();
            for (row, covered) in rows.iter().zip(&mut covered) {
                if run.contains(&row.checksum.index) {
                    *covered = true;
                    writes.push(row.checksum.clone());
                }
            }
            if writes_checksum(&parent.checksum, &writes) != checksum {
                let place = format!("write (checkpoint {checkpoint}, task {code}, idx {})", first.checksum.index);
                self.problem(place, "the checksum of its run does not match");
            }
        }
        for (row, covered) in rows.iter().zip(covered) {
            if !covered && (!row.consumed || row.checksum.index < 0) {
                let place = format!("write (checkpoint {checkpoint}, task {code}, idx {})", row.checksum.index);
                self.problem(place, "no checksum covers it");
            }
        }
    }
}
