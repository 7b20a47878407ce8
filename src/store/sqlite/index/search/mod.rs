//! Searches of the texts of channels.
//!
//! Without an index, a scan reads the puts and the values of each branch that the filters leave. With one ([`index`]),
//! the newest entries, which are not indexed yet, are scanned, and the index gives the others. A hit is built from its
//! checkpoint and its payload, both verified. *Absent:* the matching of texts ([`search`](crate::store::search)).

mod check;
mod entry;
mod index;
pub(crate) mod indexer;
mod scan;
pub(crate) mod sql;

pub(crate) use index::{SearchEntries, status};

use self::entry::{EntryKey, entries_at};
use self::index::{IndexState, first_entry, place_of};
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRecord;
use crate::store::search::{Grams, NewestHits, Search, SearchHit, SearchPage};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::lineage::{self, Span};
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::view::ReadView;
use rusqlite::{Row, params};
use std::sync::Arc;

/// Returns the page of hits of a search.
pub(crate) fn page(view: ReadView<'_>, search: &Search) -> Res<SearchPage> {
    let mut newest = NewestHits::of(search);
    let Some(state) = IndexState::read(view.conn)? else {
        scan::scan(view, search, &mut newest)?;
        return Ok(newest.page());
    };
    let mut grams = Grams::of_words(&search.words);
    if let Some(thread) = &search.thread {
        let Some(thread) = view.conn.first(log_sql::THREAD_BY_ID, [thread.as_str()])? else {
            return Ok(newest.page());
        };
        grams.add_thread(thread);
    }
    if grams.len() == 0 {
        // The words are shorter than a gram: the index would give every entry.
        scan::scan(view, search, &mut newest)?;
        return Ok(newest.page());
    }
    if let Some(role) = &search.role {
        grams.add_role(role);
    }
    let last = search.after().and_then(|after| i64::try_from(after.seq).ok()).unwrap_or(i64::MAX);
    unindexed(view, search, state, last, &mut newest)?;
    if !newest.is_full() {
        indexed(view, search, &grams, (state.next - 1).min(first_entry(last.saturating_add(1)) - 1), &mut newest)?;
    }
    Ok(newest.page())
}

/// Adds the hits among the entries that are not indexed, down from the checkpoint `last`.
fn unindexed(view: ReadView<'_>, search: &Search, state: IndexState, last: i64, newest: &mut NewestHits) -> Res<()> {
    let (first, part) = place_of(state.next);
    let visit = |row: &Row<'_>| {
        let (seq, branch, ordinal): (i64, i64, i64) = FromColumns::read(row, 0)?;
        let skipped = if seq == first { part } else { 0 };
        for (key, channel) in entries_at(view, branch, ordinal)?.iter().skip(skipped).rev() {
            key.add_hit(view, search, seq, channel, newest)?;
            if newest.is_full() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    view.conn.each_while(sql::CHECKPOINTS_DOWN, [first, last], visit).map(|_| ())
}

/// Adds the hits among the entries that the index gives, down from the entry `last`.
fn indexed(view: ReadView<'_>, search: &Search, grams: &Grams, last: i64, newest: &mut NewestHits) -> Res<()> {
    let mut read: (i64, Vec<(EntryKey, Arc<str>)>) = (-1, Vec::new());
    let visit = |row: &Row<'_>| {
        let (seq, place) = place_of(i64::read(row, 0)?);
        if seq != read.0 {
            // The index of a damaged file may give entries that the log does not have.
            let at: Option<(i64, i64)> = view.conn.first(log_sql::PLACE_OF_SEQ, [seq])?;
            read =
                (seq, at.map(|(branch, ordinal)| entries_at(view, branch, ordinal)).transpose()?.unwrap_or_default());
        }
        if let Some((key, channel)) = read.1.get(place) {
            key.add_hit(view, search, seq, channel, newest)?;
        }
        Ok(!newest.is_full())
    };
    view.conn.each_while(sql::ENTRIES, params![grams.tokens("\"", "\"", " AND "), last], visit).map(|_| ())
}

impl EntryKey {
    /// Adds the entry if it is a hit after the cursor.
    fn add_hit(
        &self,
        view: ReadView<'_>,
        search: &Search,
        seq: i64,
        channel: &Arc<str>,
        newest: &mut NewestHits,
    ) -> Res<()> {
        let place = self.place(seq, channel)?;
        if search.reads(channel)
            && search.shows(&place)
            && let Some(hit) = self.hit(view, search, seq, channel)?
        {
            newest.add(place, hit);
        }
        Ok(())
    }

    /// Builds the hit of an entry of the checkpoint `seq`; `None` if it does not match or pass the filters, or if its
    /// thread is deleted.
    fn hit(&self, view: ReadView<'_>, search: &Search, seq: i64, channel: &Arc<str>) -> Res<Option<SearchHit>> {
        let hit = self.read(view, channel, |task, entry| {
            if !search.matches(&entry) {
                return Ok(None);
            }
            let Some(record) = view.by_seq(seq)? else { return Ok(None) };
            if (record.branch as i64, record.ordinal as i64) != (self.branch, self.ordinal) {
                return Err(corrupt(self.to_string(), format!("checkpoint {seq} did not put it")));
            }
            Ok(Some(SearchHit {
                seq: record.seq,
                created_at: record.created_at,
                position: entry.shown_position(),
                key: entry.key(),
                role: entry.index.kind.map(str::to_owned),
                id: entry.index.id.map(str::to_owned),
                name: entry.index.name.map(str::to_owned),
                node: task.map(|task| node(view, &record, task)).transpose()?.flatten(),
                on_head: self.is_on_head(view, &record, channel)?,
                carried: None,
                folded: false,
                partial: false,
                snippet: search.snippet(&entry),
                channel: Arc::clone(channel),
                point: record.point.clone(),
            }))
        })?;
        Ok(hit.flatten().filter(|hit| search.passes(hit)))
    }

    /// Returns whether its channel holds it at the head of its namespace, as its checkpoint put it.
    fn is_on_head(&self, view: ReadView<'_>, record: &CheckpointRecord, channel: &str) -> Res<bool> {
        let Some(head) = view.head(&record.point.thread, &record.point.namespace)? else { return Ok(false) };
        if head.ordinal < record.ordinal {
            return Ok(false);
        }
        let lineage = lineage::spans(view.conn, head.branch as i64, head.ordinal as i64, self.ordinal)?;
        let holds = |span: &Span| span.branch == self.branch && (span.first..=span.last).contains(&self.ordinal);
        if !lineage.iter().any(holds) {
            return Ok(false);
        }
        let Some(position) = self.position else {
            let newest = lineage::newest_of(view, head.branch as i64, head.ordinal as i64, self.channel)?;
            return Ok(newest.is_some_and(|row| (row.branch, row.ordinal) == (self.branch, self.ordinal)));
        };
        let mut is_shown = false;
        let range = ItemRange::Positions(position as u64, (position as u64).saturating_add(1));
        view.items(&head.point, channel, range, &mut |row| {
            is_shown |= row.ordinal == record.ordinal;
            Ok(())
        })?;
        Ok(is_shown)
    }
}

/// Returns the node of a task of the parent of a checkpoint.
fn node(view: ReadView<'_>, record: &CheckpointRecord, task: u32) -> Res<Option<Arc<str>>> {
    let Some(parent) = record.parent_ref() else { return Ok(None) };
    let parent = view.checkpoint(&parent)?;
    Ok(parent.and_then(|parent| parent.tasks.get(task as usize).map(|task| Arc::clone(&task.name))))
}
