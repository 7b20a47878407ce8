//! Searches the rows of a list on a lineage for a text: each row once, replaced and deleted items included.

use super::items::{PAYLOAD, joined_value};
use super::lineage::{self, Span};
use crate::store::record::{CheckpointRef, ListChangeOp, StoredListChange};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::item::{REFERENCE, item_place};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{unpack_ranges, unpack_reference};
use crate::store::sqlite::rows::payload::{Room, joined};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{KeyChecked, TableRow, item};
use crate::store::sqlite::view::ReadView;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// A search of one list.
struct ListSearch<'a> {
    view: ReadView<'a>,
    list: i64,
    text: &'a str,
    found: Vec<StoredListChange>,
}

impl ReadView<'_> {
    /// Returns the changes of the positions of a list at which an item was ever put that holds a text.
    pub(crate) fn search_list(self, at: &CheckpointRef, channel: &str, text: &str) -> Res<Vec<StoredListChange>> {
        let (_, branch, ordinal) = self.place(at)?;
        let Some(list) = self.names.find(self.conn, Kind::List, channel)? else { return Ok(Vec::new()) };
        let mut search = ListSearch { view: self, list, text, found: Vec::new() };
        for span in lineage::spans(self.conn, branch, ordinal, 0)? {
            search.items(span)?;
            search.wholes(span)?;
        }
        if self.has_deletions()? {
            search.drop_pruned(&lineage::spans(self.conn, branch, ordinal, 0)?)?;
        }
        StoredListChange::order(&mut search.found);
        Ok(search.found)
    }
}

impl ListSearch<'_> {
    /// Drops the changes of checkpoints that were pruned: only a part of them is stored.
    fn drop_pruned(&mut self, spans: &[Span]) -> Res<()> {
        let mut pruned: HashMap<u64, bool> = HashMap::new();
        for change in &self.found {
            let at = change.ordinal as i64;
            if let Entry::Vacant(entry) = pruned.entry(change.ordinal)
                && let Some(span) = spans.iter().find(|span| (span.first..=span.last).contains(&at))
            {
                entry.insert(self.view.is_pruned_at(span.branch, at)?);
            }
        }
        self.found.retain(|change| !pruned.get(&change.ordinal).copied().unwrap_or(false));
        Ok(())
    }

    /// Searches the items that were put, and the deletes of one position.
    fn items(&mut self, span: Span) -> Res<()> {
        let (conn, keys, list) = (self.view.conn, self.view.keys, self.list);
        let mut room = Room::of(keys, blobs::read);
        conn.each(sql::ITEMS_JOINED, [span.branch, list, 0, i64::MAX], |row| {
            let (position, ordinal): (i64, i64) = FromColumns::read(row, 0)?;
            let place = || item_place(span.branch, list, position, ordinal);
            let (task, value) = joined_value(keys, (span.branch, list), (position, ordinal), row)?;
            if ordinal > span.last {
                return Ok(());
            }
            let payload = joined(conn, row, (value, PAYLOAD), &mut room, &place)?;
            let op = payload.map_or(ListChangeOp::Delete, |payload| ListChangeOp::of(payload, self.text));
            let position = position as u64;
            self.found.push(StoredListChange::new(position..position.saturating_add(1), ordinal as u64, task, op));
            Ok(())
        })
    }

    /// Adds the range deletes, and the items of referenced lists.
    fn wholes(&mut self, span: Span) -> Res<()> {
        let conn = self.view.conn;
        conn.each(sql::DELETED_RANGES, [span.branch, self.list, -1 - span.last, -1], |row| {
            let row = item::Row::verified(self.view.keys, row)?;
            let item::Row { ordinal, op, task, value, .. } = row;
            let wrong = || corrupt(row.place(), "it cannot be decoded");
            let bytes = value.0.as_blob().map_err(|_| wrong())?;
            if op == REFERENCE {
                return self.reference(unpack_reference(bytes).ok_or_else(wrong)?, ordinal as u64, task);
            }
            for range in unpack_ranges(bytes).ok_or_else(wrong)? {
                let change =
                    StoredListChange::new(range.first..range.end, ordinal as u64, range.task, ListChangeOp::Delete);
                self.found.push(change);
            }
            Ok(())
        })
    }

    /// Adds the items of a list that another one references from an ordinal on, but for the positions that the same
    /// checkpoint changed: their items are above those of the other list.
    fn reference(&mut self, (seq, channel): (i64, i64), ordinal: u64, task: Option<u32>) -> Res<()> {
        let Self { view, text, found, .. } = self;
        let own: HashSet<u64> =
            found.iter().filter(|change| change.ordinal == ordinal).map(|change| change.positions.start).collect();
        found.push(StoredListChange::new(0..u64::MAX, ordinal, task, ListChangeOp::Delete));
        let Some(list) = view.list_at(seq, channel)? else { return Ok(()) };
        list.all(&mut |row| {
            if own.contains(&row.position) {
                return Ok(());
            }
            let op = ListChangeOp::of(row.payload, text);
            found.push(StoredListChange::new(row.position..row.position.saturating_add(1), ordinal, task, op));
            Ok(())
        })
    }
}
