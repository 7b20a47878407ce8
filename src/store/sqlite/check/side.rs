//! Checks the tables beside the log: timers and the tasks that must have one, leases, the key-value memory and the
//! cache.

use super::Checker;
use crate::base::ThreadId;
use crate::store::check::Invariant;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::index::threads::undamaged;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::lease;
use crate::store::sqlite::side::{cache, kv, timer};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{self, TableRow};
use crate::store::sqlite::view::ReadView;
use rusqlite::Row;

impl Checker<'_> {
    /// Verifies the timers, the leases, and the rows of the key-value memory and of the cache.
    pub(crate) fn beside(&mut self) -> Res<()> {
        self.verifies = Invariant::Entries;
        self.report.entries = self.entries(TableGroup::Memory, sql::CHECK_KV, kv::check)?
            + self.entries(TableGroup::Cache, tables::cache::Row::SELECT, cache::check)?;
        self.entries(TableGroup::Memory, kv::CHECK_BESIDE_ENTRY, kv::check_beside_entry)?;
        self.verifies = Invariant::Timers;
        self.entries(TableGroup::Timers, timer::CHECK_TIMERS, timer::check)?;
        let sleepers = self.sleepers();
        self.note(sleepers)?;
        self.verifies = Invariant::Leases;
        self.entries(TableGroup::Leases, tables::lease::Row::SELECT, lease::check)?;
        Ok(())
    }

    /// Finds tasks that sleep at the head of a thread and have no timer.
    fn sleepers(&mut self) -> Res<()> {
        let view = self.view;
        for (namespace, thread) in view.conn.all::<(i64, String), Vec<_>>(sql::CHECK_SLEEPERS, [])? {
            let Ok(thread) = ThreadId::new(thread) else { continue };
            // Other invariants report the damage of a thread.
            for timer in undamaged(timer::missing(view, namespace, &thread))?.into_iter().flatten() {
                let reason = format!("it sleeps at the head of thread {thread:?}, but its row is missing");
                self.problem(format!("timer of task {}", timer.task), reason);
            }
        }
        Ok(())
    }

    /// Verifies the rows of a query of a group, and returns their number.
    fn entries(&mut self, group: TableGroup, query: &str, check: fn(ReadView<'_>, &Row<'_>) -> Res<()>) -> Res<u64> {
        let (conn, mut entries) = (self.view.conn, 0);
        if !group.exists(conn)? {
            return Ok(0);
        }
        conn.each(query, [], |row| {
            entries += 1;
            self.note(check(self.view, row)).map(|_| ())
        })?;
        Ok(entries)
    }
}
