//! Checks the tables beside the log: timers, leases, the key-value memory and the cache.

use super::check::Checker;
use super::fault::Res;
use super::read::ReadView;
use super::{cache, kv, lease, sql, timer};
use crate::store::check::Invariant;
use rusqlite::Row;

impl Checker<'_> {
    /// Verifies the timers, the leases, and the rows of the key-value memory and of the cache.
    pub(super) fn beside(&mut self) -> Res<()> {
        self.verifies = Invariant::Entries;
        self.report.entries = self.entries(sql::CHECK_KV, kv::check)? + self.entries(sql::CHECK_CACHE, cache::check)?;
        self.entries(kv::CHECK_BESIDE_ENTRY, kv::check_beside_entry)?;
        self.verifies = Invariant::Timers;
        self.entries(sql::CHECK_TIMERS, timer::check)?;
        self.verifies = Invariant::Leases;
        self.entries(lease::CHECK_LEASES, lease::check)?;
        Ok(())
    }

    /// Verifies the rows of a query, and returns their number.
    fn entries(&mut self, query: &str, check: fn(ReadView<'_>, &Row<'_>) -> Res<()>) -> Res<u64> {
        let conn = self.view.conn;
        let mut statement = conn.prepare(query)?;
        let mut rows = statement.query([])?;
        let mut entries = 0;
        while let Some(row) = rows.next()? {
            entries += 1;
            let checked = check(self.view, row);
            self.note(checked)?;
        }
        Ok(entries)
    }
}
