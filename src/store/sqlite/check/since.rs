//! A check of the rows that are newer than a point.
//!
//! Rows of the log are only added, and ids are used once. So newer rows have greater ids, and an older row is read only
//! where a newer one refers to it. The items of a new checkpoint are looked for at its new positions first: if its
//! checksum matches, these are all. Otherwise the rows of its lists on its branch are read. *Absent:* invariants of the
//! file as a whole (pages, leftovers), and the tables beside the log.
//!
//! Invariant: the cost is that of the newer rows, however long the log is.

use super::{CheckedRow, Checker, CheckpointContent};
use crate::base::internal::hash::Checksum;
use crate::store::check::{CheckedUpTo, Invariant};
use crate::store::sqlite::fault::{Res, corrupt, invalid};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::item::range_position;
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row};
use std::collections::HashSet;

/// The least ids of the rows that a check verifies.
#[derive(Clone, Copy)]
pub(crate) struct First {
    pub(crate) checkpoint: i64,
    pub(crate) branch: i64,
    pub(crate) payload: i64,
    pub(crate) blob: i64,
}

impl First {
    /// Begins before every row.
    pub(crate) const ALL: Self = Self { checkpoint: i64::MIN, branch: i64::MIN, payload: i64::MIN, blob: i64::MIN };

    /// Begins after a point, which must be one of this file.
    pub(crate) fn after(conn: &Connection, point: &CheckedUpTo) -> Res<Self> {
        let refused = |reason: &str| invalid("point of a check", format!("{point}: {reason}"));
        let found: Option<Checksum> = conn.first(sql::CHECKPOINT_CHECKSUM, [point.checkpoint])?;
        match found {
            Some(checksum) if short(&checksum) != point.checksum => return Err(refused("it is of another file")),
            Some(_) => {}
            None if point.checkpoint > 0 && conn.one::<i64>(sql::CHECKPOINT_HIGH_WATER, [])? < point.checkpoint => {
                return Err(refused("the file ends before it"));
            }
            None => {}
        }
        let CheckedUpTo { checkpoint, branch, payload, blob, .. } = *point;
        Ok(Self { checkpoint: checkpoint + 1, branch: branch + 1, payload: payload + 1, blob: blob + 1 })
    }
}

/// Returns the point at which a check of the present rows ends.
pub(crate) fn point(conn: &Connection) -> Res<CheckedUpTo> {
    let (checkpoint, branch, payload, blob) = conn.one(sql::CHECK_POINT, [])?;
    let last = conn.first(sql::CHECKPOINT_CHECKSUM, [checkpoint])?;
    Ok(CheckedUpTo { checkpoint, branch, payload, blob, checksum: last.as_ref().map_or(0, short) })
}

/// Returns whether the checksum of one checkpoint fits its rows, and the rows their checks. One that was pruned has no
/// checksum of its rows.
pub(crate) fn verifies(view: ReadView<'_>, seq: i64) -> Res<bool> {
    // Each payload is read when a row refers to it.
    let first = First { payload: i64::MAX, ..First::ALL };
    let mut checker = Checker::new(view, first);
    let verify = |row: &Row<'_>| checker.new_checkpoint(&CheckedRow::of(row)?, true);
    let fits = view.conn.read_first(sql::CHECK_CHECKPOINT, [seq], verify)?;
    fits.ok_or_else(|| corrupt(format!("checkpoint {seq}"), "its thread, namespace or branch does not exist"))
}

/// Returns the first bytes of a checksum.
fn short(checksum: &Checksum) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *checksum;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl Checker<'_> {
    /// Verifies the checkpoints from the first one on, with their rows.
    pub(crate) fn new_checkpoints(&mut self) -> Res<()> {
        let (conn, mut threads) = (self.view.conn, HashSet::new());
        conn.each(sql::CHECK_CHECKPOINTS, [self.first.checkpoint], |row| {
            let row = CheckedRow::of(row)?;
            let seq = row.record.seq;
            if !threads.contains(row.record.thread) {
                threads.insert(row.record.thread.to_owned());
            }
            self.newer.insert(seq);
            self.newer.extend(row.record.parent.filter(|parent| *parent < self.first.checkpoint));
            let values = self.report.values;
            let mut verified = self.new_checkpoint(&row, false);
            if !matches!(verified, Ok(true)) {
                self.report.values = values;
                verified = self.new_checkpoint(&row, true);
            }
            self.verified(seq, verified)
        })?;
        self.report.threads = threads.len() as u64;
        Ok(())
    }

    /// Returns whether the checksum of a checkpoint fits its rows: those at the new positions of its lists, or at all.
    fn new_checkpoint(&mut self, row: &CheckedRow<'_>, all: bool) -> Res<bool> {
        self.verifies = Invariant::Rows;
        let content = self.content(row, all)?;
        let ends = content.ends();
        let fits = self.checkpoint(row, content);
        self.note_ends(row.record.at(), ends);
        fits
    }

    /// Reads the changes of a checkpoint.
    fn content(&mut self, row: &CheckedRow<'_>, all: bool) -> Res<CheckpointContent> {
        let (conn, names, at) = (self.view.conn, self.view.names, row.record.at());
        let parent = row.record.parent.map(|parent| self.view.known(parent)).transpose()?;
        let mut content = CheckpointContent::of(row);
        conn.each(sql::VERSIONS_AT, [at.0, at.1], |row| content.version(self, row))?;
        for (key, channel, end) in content.changed() {
            let Some(list) = names.find(conn, Kind::List, &channel)? else { continue };
            let before = match &parent {
                Some(parent) if !parent.pruned => self.ends.at(self.view, (parent.branch, parent.ordinal), key)?,
                _ => None,
            };
            let before = before.and_then(|before| before.list).map_or(0, |before| before.end);
            let after = end.map_or(before, |end: ListEnd| end.end);
            let place =
                |position| i64::try_from(position).map_err(|_| corrupt(format!("list {list}"), "its end is too great"));
            let ranges = range_position(at.1);
            let spans = match all {
                true => [(i64::MIN, i64::MAX), (1, 0)],
                false => [(ranges, ranges), (place(before)?, place(after)? - 1)],
            };
            for (first, last) in spans.into_iter().filter(|(first, last)| first <= last) {
                conn.each(sql::CHECK_ITEMS_AT, [at.0, list, at.1, first, last], |row| content.item(self, row))?;
            }
        }
        Ok(content)
    }

    /// Verifies the writes of the new checkpoints, and of those which they followed.
    pub(crate) fn new_writes(&mut self) -> Res<()> {
        let mut statement = self.view.conn.prepare_cached(sql::CHECK_WRITES_OF)?;
        for checkpoint in std::mem::take(&mut self.newer) {
            self.write_rows(statement.query([checkpoint])?)?;
        }
        Ok(())
    }

    /// Finds new checkpoints whose thread, namespace or branch does not exist.
    pub(crate) fn new_orphans(&mut self) -> Res<()> {
        let count = self.view.conn.one(sql::CHECK_CHECKPOINTS_OWNED, [self.first.checkpoint])?;
        self.belong_to_nothing("checkpoint", count);
        Ok(())
    }
}
