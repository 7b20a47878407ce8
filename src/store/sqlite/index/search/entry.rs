//! The entries that a search reads: the puts of items, and the values of channels.
//!
//! Invariant: an entry is read from rows of its own branch, so that it is the same until the rows of its thread are
//! reclaimed. *Absent:* hits, and the order of entries in the log.

use super::sql;
use crate::limits::SEARCH_ENTRIES_MAX;
use crate::store::record::is_control;
use crate::store::search::{BegunWord, HitPlace, SearchedEntry};
use crate::store::sqlite::fault::{Fault, Res, corrupt, invalid};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::read::items::ChannelRows;
use crate::store::sqlite::read::lineage;
use crate::store::sqlite::read::payloads::Payloads;
use crate::store::sqlite::rows::item::item_place;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::payload::{self, Room};
use crate::store::sqlite::rows::version::{KeyContent, VersionRow, version_place};
use crate::store::sqlite::tables::{KeyChecked, item};
use crate::store::sqlite::view::ReadView;
use rusqlite::Row;
use std::fmt;
use std::sync::Arc;

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryKey {
    pub(super) branch: i64,
    /// The name of the channel: of its items, or of its values.
    pub(super) channel: i64,
    /// The position of an item; `None` for the value of a channel.
    pub(super) position: Option<i64>,
    pub(super) ordinal: i64,
}

/// Returns the entries of a checkpoint, each with its channel, in their order: by channel and position. Those of
/// channels that only trigger nodes are left out.
pub(super) fn entries_at(view: ReadView<'_>, branch: i64, ordinal: i64) -> Res<Vec<(EntryKey, Arc<str>)>> {
    let mut found = view.conn.read_all(sql::PUTS_AT, [branch, ordinal], |row| {
        let key = EntryKey::of_put(row)?;
        Ok((key, view.names.text(view.conn, Kind::List, key.channel)?))
    })?;
    for channel in view.conn.all::<i64, Vec<_>>(sql::VALUES_AT, [branch, ordinal])? {
        let key = EntryKey { branch, channel, position: None, ordinal };
        found.push((key, view.names.text(view.conn, Kind::Channel, channel)?));
    }
    found.retain(|(_, channel)| !is_control(channel));
    found.sort_unstable_by(|(a, in_a), (b, in_b)| (in_a, a.position).cmp(&(in_b, b.position)));
    verify_count(found.len(), branch, ordinal)?;
    Ok(found)
}

/// Refuses more entries of a checkpoint than the index has numbers for.
fn verify_count(entries: usize, branch: i64, ordinal: i64) -> Res<()> {
    if entries as i64 > SEARCH_ENTRIES_MAX {
        let reason =
            format!("ordinal {ordinal} of branch {branch} has {entries} entries, at most {SEARCH_ENTRIES_MAX}");
        return Err(invalid("search index", reason));
    }
    Ok(())
}

/// The first column of the payload in a row of `sql::put!`.
const PAYLOAD: usize = item::TABLE.columns.len();

impl EntryKey {
    /// Reads the key of a row of an item.
    pub(super) fn of_put(row: &Row<'_>) -> Res<Self> {
        let (branch, channel, position, ordinal): (i64, i64, i64, i64) = FromColumns::read(row, 0)?;
        Ok(Self { branch, channel, position: Some(position), ordinal })
    }

    /// Returns its place in the order of a search.
    pub(super) fn place(&self, seq: i64, channel: &Arc<str>) -> Res<HitPlace> {
        let wrong = |_| corrupt(self.to_string(), "it has no place");
        let seq = u64::try_from(seq).map_err(wrong)?;
        let position = u64::try_from(self.position.unwrap_or(0)).map_err(wrong)?;
        Ok(HitPlace { seq, channel: Arc::clone(channel), position })
    }

    /// Reads the entry and hands it, with the task that wrote it, to `then`; `None` if it is not stored or has no text.
    pub(super) fn read<T>(
        self,
        view: ReadView<'_>,
        channel: &str,
        then: impl FnOnce(Option<u32>, SearchedEntry<'_>) -> Res<T>,
    ) -> Res<Option<T>> {
        let Some(position) = self.position else {
            let row = lineage::row_at(view, (self.branch, self.ordinal), self.channel)?;
            return self.value(&row, &mut Payloads::new(view)?, then);
        };
        let key = [self.branch, self.channel, position, self.ordinal];
        let read = |row: &Row<'_>| self.put(view, row, channel, &mut Room::of(view.keys, blobs::read), then);
        Ok(view.conn.read_first(sql::PUT, key, read)?.flatten())
    }

    /// Reads the entry of a row of `sql::put!`, verified.
    pub(super) fn put<T>(
        self,
        view: ReadView<'_>,
        row: &Row<'_>,
        channel: &str,
        room: &mut Room<'_>,
        then: impl FnOnce(Option<u32>, SearchedEntry<'_>) -> Res<T>,
    ) -> Res<Option<T>> {
        let place = || self.to_string();
        let item::Row { slot, task, value, .. } = item::Row::verified(view.keys, row)?;
        let payload = payload::joined(view.conn, row, (value.0, PAYLOAD), room, &place)?;
        let payload = payload.ok_or_else(|| corrupt(place(), "its value does not match the format"))?;
        let entry = SearchedEntry::of(payload, u64::try_from(slot).ok(), || self.begun(view, channel))?;
        entry.map(|entry| then(task, entry)).transpose()
    }

    /// Reads the entry of the value of a channel, given its verified row.
    pub(super) fn value<T>(
        self,
        row: &VersionRow,
        payloads: &mut Payloads<'_>,
        then: impl FnOnce(Option<u32>, SearchedEntry<'_>) -> Res<T>,
    ) -> Res<Option<T>> {
        let KeyContent::Channel(stored) = row.value else {
            return Err(corrupt(self.to_string(), "it is not the value of a channel"));
        };
        let read = payloads.with(stored, &|| self.to_string(), |payload| {
            let entry = SearchedEntry::of(payload, None, || Ok::<_, Fault>(String::new()))?;
            entry.map(|entry| then(row.task, entry)).transpose()
        })?;
        Ok(read.flatten())
    }

    /// Returns the word that the parts of a text before this one began.
    fn begun(self, view: ReadView<'_>, channel: &str) -> Res<String> {
        let Some(key) = view.names.find(view.conn, Kind::Channel, channel)? else { return Ok(String::new()) };
        // The state of a pruned checkpoint is in the next row of the channel.
        let ordinal = view.conn.first(sql::SHOWN_AT, [self.branch, self.ordinal, key])?;
        let row = lineage::row_at(view, (self.branch, ordinal.unwrap_or(self.ordinal)), key)?;
        let mut word = BegunWord::at_end();
        if let Some((list, position)) = ChannelRows::of_row(view, &row, channel)?.zip(self.position) {
            list.before(position, &mut |payload| word.add(&payload))?;
        }
        Ok(word.finish())
    }
}

/// Names the row.
impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.position {
            Some(position) => item_place(self.branch, self.channel, position, self.ordinal),
            None => version_place(self.branch, self.ordinal, self.channel),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_as_many_entries_as_the_index_has_numbers_for() {
        let most = SEARCH_ENTRIES_MAX as usize;
        verify_count(0, 1, 1).unwrap();
        verify_count(most, 1, 1).unwrap();
        let Err(Fault::Store(error)) = verify_count(most + 1, 3, 7) else { panic!("one more") };
        assert!(error.to_string().contains("ordinal 7 of branch 3 has 16777217 entries, at most 16777216"), "{error}");
    }
}
