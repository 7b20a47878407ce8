//! A check of the table of threads: its rows are derived anew.

use super::super::check::Checker;
use super::super::fault::Res;
use super::super::write;
use super::row::{StateRow, undamaged};
use super::{MARK, derived, sql};
use std::collections::HashMap;

impl Checker<'_> {
    /// Compares the rows of the threads that the table follows with the log, and the facets with the rows.
    pub(in super::super) fn threads(&mut self) -> Res<()> {
        let view = self.view;
        let mut stored: HashMap<i64, StateRow> = HashMap::new();
        let mut statement = view.conn.prepare_cached(sql::STATES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let row = StateRow::decode(view.keys, row);
            if let Some(row) = self.note(row)? {
                stored.insert(row.thread, row);
            }
        }
        let mark = stored.remove(&MARK).map_or(0, |row| row.newest);
        let mut facets: HashMap<(i64, i64), i64> = HashMap::new();
        for row in stored.values() {
            if row.newest > mark {
                self.problem(format!("thread_state {}", row.thread), "it is newer than the mark");
            }
            facets.extend(row.facets.iter().map(|facet| ((*facet, row.newest), row.thread)));
        }
        let mut roots = view.conn.prepare_cached(sql::ROOTS)?;
        let mut rows = roots.query([])?;
        while let Some(row) = rows.next()? {
            let (thread, namespace): (i64, i64) = (row.get(0)?, row.get(1)?);
            let found = stored.remove(&thread);
            // The rest of the log, of which the table knows nothing yet.
            let Some((newest, _)) = write::newest(view.conn, namespace)?.filter(|(newest, _)| *newest <= mark) else {
                continue;
            };
            // Other invariants report the damage of a thread.
            let Some(expected) = undamaged(derived(view, thread, newest))?.filter(|row| row.status.is_some()) else {
                continue;
            };
            if found.as_ref() != Some(&expected) {
                let reason = "it does not follow from the log; make the table of threads anew";
                self.problem(format!("thread_state {thread}"), reason);
            }
        }
        for thread in stored.keys() {
            self.problem(format!("thread_state {thread}"), "it belongs to no thread");
        }
        let (mut statement, mut strays) = (view.conn.prepare_cached(sql::FACETS)?, 0_u64);
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (key, thread) = ((row.get(0)?, row.get(1)?), row.get::<_, i64>(2)?);
            strays += u64::from(facets.remove(&key) != Some(thread));
        }
        if strays > 0 || !facets.is_empty() {
            let reason = format!("{strays} rows are of no thread, and {} are missing", facets.len());
            self.problem("thread_facet", reason);
        }
        Ok(())
    }
}
