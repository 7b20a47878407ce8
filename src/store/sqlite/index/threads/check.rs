//! A check of the table of threads: its rows are derived anew.

use super::counts::usage_of_thread;
use super::row::{StateRow, undamaged};
use super::{MARK, derived, sql};
use crate::store::counts::ThreadCounts;
use crate::store::sqlite::check::Checker;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::head;
use crate::store::sqlite::tables::{TableRow, thread_facet, thread_state};
use std::collections::HashMap;

impl Checker<'_> {
    /// Compares the rows of the threads that the table follows with the log, and the facets with the rows.
    pub(crate) fn threads(&mut self) -> Res<()> {
        let view = self.view;
        let mut stored: HashMap<i64, StateRow> = HashMap::new();
        view.conn.each(thread_state::Row::SELECT, [], |row| {
            let row = StateRow::decode(view.conn, view.keys, row);
            stored.extend(self.note(row)?.map(|row| (row.thread, row)));
            Ok(())
        })?;
        let mark = stored.remove(&MARK).map_or(0, |row| row.newest);
        let mut facets: HashMap<(i64, i64), i64> = HashMap::new();
        for row in stored.values() {
            if row.newest > mark {
                self.problem(format!("thread_state {}", row.thread), "it is newer than the mark");
            }
            facets.extend(row.facets.iter().map(|facet| ((*facet, row.newest), row.thread)));
        }
        view.conn.each(sql::ROOTS, [], |row| {
            let (thread, namespace) = FromColumns::read(row, 0)?;
            let found = stored.remove(&thread);
            let Some((newest, _)) = head::newest(view.conn, namespace)? else { return Ok(()) };
            let usage = self.usage(thread, mark, found.as_ref())?;
            if newest > mark {
                self.lagging(thread, found.as_ref(), usage);
                return Ok(());
            }
            // Other invariants report the damage of a thread.
            let expected = undamaged(derived(view, thread, newest, usage, None))?;
            let Some(expected) = expected.filter(|row| row.status.is_some()) else { return Ok(()) };
            if found.as_ref() != Some(&expected) {
                let reason = "it does not follow from the log; make the table of threads anew";
                self.problem(format!("thread_state {thread}"), reason);
            }
            Ok(())
        })?;
        for thread in stored.keys() {
            self.problem(format!("thread_state {thread}"), "it belongs to no thread");
        }
        let mut strays = 0_u64;
        view.conn.each(thread_facet::Row::SELECT, [], |row| {
            let thread_facet::Row { facet, newest, thread } = thread_facet::Row::read(row, 0)?;
            strays += u64::from(facets.remove(&(facet, newest)) != Some(thread));
            Ok(())
        })?;
        if strays > 0 || !facets.is_empty() {
            let reason = format!("{strays} rows are of no thread, and {} are missing", facets.len());
            self.problem("thread_facet", reason);
        }
        Ok(())
    }

    /// Derives the tokens and the costs of a thread up to the mark. A row without counts is that of a thread of which
    /// checkpoints are being pruned, or have damaged rows.
    fn usage(&self, thread: i64, mark: i64, found: Option<&StateRow>) -> Res<Option<ThreadCounts>> {
        if found.is_some_and(|row| row.counts.is_none()) && self.view.conn.one(sql::HAS_PRUNED, [thread])? {
            return Ok(None);
        }
        undamaged(usage_of_thread(self.view, thread, mark))
    }

    /// Compares the row of a thread with checkpoints after the mark: it counts those before.
    fn lagging(&mut self, thread: i64, found: Option<&StateRow>, usage: Option<ThreadCounts>) {
        let found = found.and_then(|row| row.counts).map(|counts| ThreadCounts { messages: 0, ..counts });
        if usage.is_some() && found != usage && (found.is_some() || usage != Some(ThreadCounts::default())) {
            let reason = "its counts do not follow from the log; make the table of threads anew";
            self.problem(format!("thread_state {thread}"), reason);
        }
    }
}
