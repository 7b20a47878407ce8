//! Checks the tables row by row: the checks of rows, blobs, payloads, branches, ids, and leftover rows.

use super::Checker;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::wal_mark::WalMark;
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::checksums::payload_hash;
use crate::store::sqlite::rows::payload::{Room, decode, form_column};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::sql;

use crate::store::sqlite::tables::{Bare, Checked, TABLES, blob, branch, name, namespace, thread};
use rusqlite::{OptionalExtension, Row};
use std::collections::HashMap;

impl Checker<'_> {
    /// Verifies the rows that have a check of their own.
    pub(crate) fn row_checks(&mut self) -> Res<()> {
        // The names, threads and namespaces of newer rows are verified where those are read.
        let first = if self.first.checkpoint == i64::MIN { i64::MIN } else { i64::MAX };
        self.each(sql::CHECK_NAMES, first, |row| name::Row::verified(row).map(|_| ()))?;
        self.each(sql::CHECK_THREAD_ROWS, first, |row| thread::Row::verified(row).map(|_| ()))?;
        self.each(sql::CHECK_NAMESPACES, first, |row| namespace::Row::verified(row).map(|_| ()))?;
        self.each(sql::CHECK_BRANCH_ROWS, self.first.branch, |row| branch::Row::verified(row).map(|_| ()))?;
        self.each(sql::CHECK_RECORDS, self.first.checkpoint, |row| RecordRow::verified(row).map(|_| ()))
    }

    /// Verifies each row of a query from the first one on.
    fn each(&mut self, query: &str, first: i64, verify: impl Fn(&Row<'_>) -> Res<()>) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(query)?;
        let mut rows = statement.query([first])?;
        while let Some(row) = rows.next()? {
            self.note(verify(row))?;
        }
        Ok(())
    }

    /// Opens each index. SQLite finds one whose first page is that of another table or index.
    pub(crate) fn indexes(&mut self) -> Res<()> {
        let mut listed = self.view.conn.prepare(sql::INDEX_READS)?;
        let reads: Vec<String> = listed.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
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
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_BLOBS)?;
        let mut rows = statement.query([self.first.blob])?;
        while let Some(row) = rows.next()? {
            let fits = blob::Row::read(row, 0).and_then(|row| match row.data.as_bytes() {
                Ok(data) => sealed::blob_fits((self.view.conn, self.view.keys), row.id, row.hash, data),
                Err(_) => Ok(false),
            });
            if self.note(fits)? == Some(false) {
                self.problem(format!("blob {}", row.get::<_, i64>(0)?), "its hash does not match");
            }
        }
        Ok(())
    }

    /// Verifies the checks of payloads, and notes their hashes.
    pub(crate) fn payloads(&mut self) -> Res<()> {
        let conn = self.view.conn;
        let mut statement = conn.prepare_cached(sql::CHECK_PAYLOADS)?;
        let mut rows = statement.query([self.first.payload])?;
        let mut room = Room::of(self.view.keys, blobs::read);
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let hash = form_column(row, 0).and_then(|form| decode(conn, row, 0, id, form, &mut room));
            let hash = hash.map(|payload| payload_hash(self.view.keys, &payload));
            if let Some(hash) = self.note(hash)? {
                self.payloads.insert(id, hash);
                self.report.values += 1;
            }
        }
        Ok(())
    }

    /// Verifies that branches leave older ones.
    pub(crate) fn branches(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_BRANCHES)?;
        let mut rows = statement.query([self.first.branch])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let (parent, upto, depth): (Option<i64>, Option<i64>, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let above: Option<i64> = row.get(4)?;
            let fork: (Option<i64>, Option<i64>) = (row.get(5)?, row.get(6)?);
            let (own, of): (Option<i64>, Option<i64>) = (row.get(7)?, row.get(8)?);
            let left: (Option<i64>, Option<i64>) = (row.get(9)?, row.get(10)?);
            let forks = match fork {
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
        }
        Ok(())
    }

    /// Ids of a namespace go up with the log.
    pub(crate) fn ids(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_IDS)?;
        let mut before = self.view.conn.prepare_cached(sql::CHECK_ID_BEFORE)?;
        let first = self.first.checkpoint;
        let mut rows = statement.query([first])?;
        let mut last: HashMap<i64, [u8; 16]> = HashMap::new();
        while let Some(row) = rows.next()? {
            let (seq, namespace): (i64, i64) = (row.get(0)?, row.get(1)?);
            if first > i64::MIN && !last.contains_key(&namespace) {
                let before = before.query_row([namespace, first], |row| row.get(0)).optional()?;
                last.extend(before.map(|before| (namespace, before)));
            }
            let id: Option<Option<[u8; 16]>> = self.note(row.get(2).map(Some).map_err(Fault::Sql))?;
            if let Some(Some(id)) = id
                && last.insert(namespace, id).is_some_and(|last| last >= id)
            {
                self.problem(format!("checkpoint {seq}"), "its id does not follow the one before it");
            }
        }
        Ok(())
    }

    /// Verifies the operations with their changes.
    pub(crate) fn operations(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::OPERATIONS)?;
        let mut rows = statement.query([i64::MAX])?;
        while let Some(row) = rows.next()? {
            let verified = self.view.check_operation(row);
            self.note(verified)?;
        }
        Ok(())
    }

    /// Verifies the mark of the log.
    pub(crate) fn log_mark(&mut self) -> Res<()> {
        let rows: i64 = self.view.conn.query_row(sql::WAL_MARKS, [], |row| row.get(0))?;
        if rows != 1 {
            self.problem("wal_mark", format!("it has {rows} rows"));
        }
        let read = WalMark::read(self.view.conn);
        self.note(read)?;
        Ok(())
    }

    /// Compares the time of each thread with that of its first checkpoint.
    pub(crate) fn thread_times(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_THREAD_TIMES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let thread: i64 = row.get(0)?;
            self.problem(format!("thread {thread}"), "created_at is not that of its first checkpoint");
        }
        Ok(())
    }

    /// Finds rows that belong to nothing.
    pub(crate) fn orphans(&mut self) -> Res<()> {
        let owned = TABLES.iter().filter_map(|table| Some((table.name, table.orphans()?)));
        for (table, query) in owned.chain(sql::CHECK_ORPHANS.map(|(table, query)| (table, query.to_owned()))) {
            let count: i64 = self.view.conn.query_row(&query, [], |row| row.get(0))?;
            if count > 0 {
                self.problem(table, format!("{count} rows belong to nothing"));
            }
        }
        Ok(())
    }
}
