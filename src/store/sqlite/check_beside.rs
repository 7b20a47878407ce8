//! Checks the tables beside the log: timers, the key-value memory and the cache.

use super::check::Checker;
use super::fault::Res;
use super::read::ReadView;
use super::{cache, kv, sql, timer};
use crate::store::check::Invariant;
use rusqlite::Row;

impl Checker<'_> {
    /// Verifies the timers, and the rows of the key-value memory and of the cache.
    pub(super) fn beside(&mut self) -> Res<()> {
        self.verifies = Invariant::Entries;
        self.entries(sql::CHECK_KV, kv::check)?;
        self.entries(sql::CHECK_CACHE, cache::check)?;
        let entries = self.report.entries;
        self.verifies = Invariant::Timers;
        self.entries(sql::CHECK_TIMERS, timer::check)?;
        self.report.entries = entries;
        Ok(())
    }

    fn entries(&mut self, query: &str, check: fn(ReadView<'_>, &Row<'_>) -> Res<()>) -> Res<()> {
        let conn = self.view.conn;
        let mut statement = conn.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.report.entries += 1;
            let checked = check(self.view, row);
            self.note(checked)?;
        }
        Ok(())
    }
}
