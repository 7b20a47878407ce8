//! Checks the tables row by row: the checks of rows, blobs, payloads, branches, ids, and leftover rows.

use super::Checker;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::file::wal_mark::WalMark;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::checksums::payload_hash;
use crate::store::sqlite::rows::payload::{Room, decode, form_column};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{
    Checked, TABLES, TableRow, blob, branch, name, namespace, payload, thread, wal_mark,
};
use rusqlite::Row;
use std::collections::HashMap;

impl Checker<'_> {
    /// Verifies the rows that have a check of their own.
    pub(crate) fn row_checks(&mut self) -> Res<()> {
        // The names, threads and namespaces of newer rows are verified where those are read.
        let first = if self.first.checkpoint == i64::MIN { i64::MIN } else { i64::MAX };
        self.each(name::Row::FROM, first, |row| name::Row::verified(row).map(|_| ()))?;
        self.each(thread::Row::FROM, first, |row| thread::Row::verified(row).map(|_| ()))?;
        self.each(namespace::Row::FROM, first, |row| namespace::Row::verified(row).map(|_| ()))?;
        self.each(branch::Row::FROM, self.first.branch, |row| branch::Row::verified(row).map(|_| ()))?;
        self.each(sql::CHECK_RECORDS, self.first.checkpoint, |row| RecordRow::verified(row).map(|_| ()))
    }

    /// Verifies each row of a query from the first one on.
    fn each(&mut self, query: &str, first: i64, verify: impl Fn(&Row<'_>) -> Res<()>) -> Res<()> {
        let conn = self.view.conn;
        conn.each(query, [first], |row| self.note(verify(row)).map(|_| ()))
    }

    /// Opens each index. SQLite finds one whose first page is that of another table or index.
    pub(crate) fn indexes(&mut self) -> Res<()> {
        let reads: Vec<String> = self.view.conn.all(sql::INDEX_READS, [])?;
        for read in reads {
            let read = self.view.conn.prepare(&read).and_then(|mut read| read.exists([]));
            self.note(read.map_err(Fault::Sql))?;
        }
        Ok(())
    }

    /// Verifies the rows of the keys.
    pub(crate) fn keys(&mut self) -> Res<()> {
        self.view.keys.check(self.view.conn)
    }

    /// Verifies the hashes of blobs.
    pub(crate) fn blobs(&mut self) -> Res<()> {
        let conn = self.view.conn;
        conn.each(blob::Row::FROM, [self.first.blob], |row| {
            let fits = blob::Row::read(row, 0).and_then(|row| match row.data.as_bytes() {
                Ok(data) => sealed::blob_fits((conn, self.view.keys), row.id, row.hash, data),
                Err(_) => Ok(false),
            });
            if self.note(fits)? == Some(false) {
                self.problem(format!("blob {}", i64::read(row, 0)?), "its hash does not match");
            }
            Ok(())
        })
    }

    /// Verifies the checks of payloads, and notes their hashes.
    pub(crate) fn payloads(&mut self) -> Res<()> {
        let conn = self.view.conn;
        let mut room = Room::of(self.view.keys, blobs::read);
        conn.each(payload::Row::FROM, [self.first.payload], |row| {
            let id = i64::read(row, 0)?;
            let hash = form_column(row, 0).and_then(|form| decode(conn, row, 0, id, form, &mut room));
            let hash = hash.map(|payload| payload_hash(self.view.keys, &payload));
            if let Some(hash) = self.note(hash)? {
                self.payloads.insert(id, hash);
                self.report.values += 1;
            }
            Ok(())
        })
    }

    /// Verifies that branches leave older ones.
    pub(crate) fn branches(&mut self) -> Res<()> {
        let conn = self.view.conn;
        conn.each(sql::CHECK_BRANCHES, [self.first.branch], |row| {
            let branch::Row { id, parent, upto, depth, fork_thread, fork_checkpoint, .. } = branch::Row::read(row, 0)?;
            type Beside = (Option<i64>, Option<i64>, Option<i64>, (Option<i64>, Option<i64>));
            let (above, own, of, left): Beside = branch::Row::after(row)?;
            let forks = match (fork_thread, fork_checkpoint) {
                (None, None) => parent.is_none() || of == own,
                (Some(thread), Some(_)) => of == Some(thread) && of != own && left == (parent, upto),
                _ => false,
            };
            let fits = match (parent, upto, above) {
                (None, None, None) => depth == 0,
                (Some(parent), Some(upto), Some(above)) => {
                    parent < id && upto >= 0 && above.checked_add(1) == Some(depth)
                }
                _ => false,
            };
            if !fits || !forks {
                self.problem(format!("branch {id}"), "parent, upto, depth and fork do not match");
            }
            Ok(())
        })
    }

    /// Ids of a namespace go up with the log.
    pub(crate) fn ids(&mut self) -> Res<()> {
        let (conn, first) = (self.view.conn, self.first.checkpoint);
        let mut last: HashMap<i64, [u8; 16]> = HashMap::new();
        conn.each(sql::CHECK_IDS, [first], |row| {
            let (seq, namespace): (i64, i64) = FromColumns::read(row, 0)?;
            if first > i64::MIN && !last.contains_key(&namespace) {
                let before = conn.first(sql::CHECK_ID_BEFORE, [namespace, first])?;
                last.extend(before.map(|before| (namespace, before)));
            }
            if let Some(id) = self.note(<[u8; 16]>::read(row, 2).map_err(Fault::Sql))?
                && last.insert(namespace, id).is_some_and(|last| last >= id)
            {
                self.problem(format!("checkpoint {seq}"), "its id does not follow the one before it");
            }
            Ok(())
        })
    }

    /// Verifies the operations with their changes.
    pub(crate) fn operations(&mut self) -> Res<()> {
        let view = self.view;
        self.each(sql::OPERATIONS, i64::MAX, |row| view.check_operation(row))
    }

    /// Verifies the mark of the log.
    pub(crate) fn log_mark(&mut self) -> Res<()> {
        let rows: i64 = self.view.conn.one(wal_mark::Row::COUNT, [])?;
        if rows != 1 {
            self.problem("wal_mark", format!("it has {rows} rows"));
        }
        let read = WalMark::read(self.view.conn);
        self.note(read)?;
        Ok(())
    }

    /// Compares the time of each thread with that of its first checkpoint.
    pub(crate) fn thread_times(&mut self) -> Res<()> {
        for thread in self.view.conn.all::<i64, Vec<_>>(sql::CHECK_THREAD_TIMES, [])? {
            self.problem(format!("thread {thread}"), "created_at is not that of its first checkpoint");
        }
        Ok(())
    }

    /// Finds rows that belong to nothing.
    pub(crate) fn orphans(&mut self) -> Res<()> {
        let owned = TABLES.iter().filter_map(|table| Some((table.name, table.orphans()?)));
        for (table, query) in owned.chain(sql::CHECK_ORPHANS.map(|(table, query)| (table, query.to_owned()))) {
            if TableGroup::of(table).map(|group| group.exists(self.view.conn)).transpose()? == Some(false) {
                continue;
            }
            let count = self.view.conn.one(&query, [])?;
            self.belong_to_nothing(table, count);
        }
        Ok(())
    }

    /// Notes a number of rows of a table that belong to nothing.
    pub(crate) fn belong_to_nothing(&mut self, table: &str, count: i64) {
        if count > 0 {
            self.problem(table, format!("{count} rows belong to nothing"));
        }
    }
}
