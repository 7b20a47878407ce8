//! Deletion by runs: [`Store::delete_for_runs`].
//!
//! The runs of a checkpoint stand in its record, so the log is read once, without states. *Absent:* the deletion of
//! threads and the pruning of checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{RunId, ThreadId};
use crate::store::log::{LogExt, LogPosition};
use crate::store::{Pruned, Store, StoreError};

use super::prune::PrunePolicy;

/// The report of a deletion by runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedRuns {
    /// The number of deleted threads.
    pub threads: u64,
    /// The figures of the pruning of the other threads.
    pub pruned: Pruned,
    /// The number of checkpoints of the runs that stay, because they are heads or others rest on them.
    pub checkpoints_retained: u64,
}

impl Store {
    /// Deletes what runs have stored. A thread whose checkpoints are all theirs is deleted, unless another thread was
    /// forked from it. From other threads their checkpoints are pruned, as far as a pruning may: heads, ends of
    /// branches and checkpoints on which others rest stay, and the states of the checkpoints of other runs never
    /// change. Unknown runs are passed over.
    ///
    /// The cost is that of the records of the whole log. A repeated call continues one that was interrupted.
    ///
    /// # Errors
    /// As [`Store::delete_thread`] and [`PrunePlan::run`](crate::history::PrunePlan::run). Threads before the one that
    /// failed are done.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let run = annals::base::RunId::from_key(store.thread("trip")?.id(), "nightly");
    /// let none = store.delete_for_runs([run])?;
    /// assert_eq!((none.threads, none.pruned.checkpoints), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_for_runs(&self, runs: impl IntoIterator<Item = RunId>) -> Result<DeletedRuns, StoreError> {
        let runs: BTreeSet<RunId> = runs.into_iter().collect();
        let mut report = DeletedRuns::default();
        if runs.is_empty() {
            return Ok(report);
        }
        self.flush_abandoned();
        let policy = PrunePolicy::new().of_runs(runs.iter().copied());
        for (thread, (count, is_whole)) in self.checkpoints_of_runs(&runs)? {
            if count == 0 {
                continue;
            }
            if is_whole {
                match self.delete_thread(&thread) {
                    Ok(_) => {
                        report.threads += 1;
                        continue;
                    }
                    Err(StoreError::ForkedOff { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let pruned = self.thread(&thread)?.prune(&policy)?;
            report.checkpoints_retained += count.saturating_sub(pruned.checkpoints);
            report.pruned.add(pruned);
        }
        Ok(report)
    }

    /// Returns for each thread the number of its checkpoints of some runs, and whether these are all.
    fn checkpoints_of_runs(&self, runs: &BTreeSet<RunId>) -> Result<BTreeMap<ThreadId, (u64, bool)>, StoreError> {
        let (mut threads, mut position) = (BTreeMap::new(), LogPosition::START);
        loop {
            let page = self.backend().follow()?.changes_after(&position, None, PAGE_ROWS_MAX)?;
            if page.records.is_empty() {
                return Ok(threads);
            }
            position = page.position;
            for (_, record) in page.records {
                let is_of_runs = record.run.is_some_and(|run| runs.contains(&run));
                let (count, is_whole) = threads.entry(record.point.thread).or_insert((0, true));
                *count += u64::from(is_of_runs);
                *is_whole &= is_of_runs;
            }
        }
    }
}
