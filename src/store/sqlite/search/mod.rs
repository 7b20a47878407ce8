//! Searches of the texts of items.
//!
//! Without an index, a scan reads the puts of each branch that the filters leave. With one ([`index`]), the newest entries,
//! which are not indexed yet, are scanned, and the index gives the others. A hit is built from its checkpoint and its
//! payload, both verified. *Absent:* the matching of texts ([`search`](crate::store::search)).

mod check;
mod index;
mod indexer;
mod scan;
mod sql;

pub(super) use sql::{OBJECTS, SCHEMA};

pub(super) use indexer::Indexer;

pub(super) use index::{IndexJob, IndexStep, advance, erase, hide, status, step};

use self::index::{IndexState, first_entry, place_of, puts_at};
use super::changes::{PUT, item_check};
use super::fault::{Res, corrupt};
use super::items::item_place;
use super::lineage;
use super::read::ReadView;
use super::rows::{self, Room};
use crate::base::PayloadRef;
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRecord;
use crate::store::search::{Grams, HitPlace, NewestHits, Search, SearchHit, SearchPage};
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, params};
use std::sync::Arc;

/// The key of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PutKey {
    branch: i64,
    channel: i64,
    position: i64,
    ordinal: i64,
}

/// Returns the page of hits of a search.
pub(super) fn page(view: ReadView<'_>, search: &Search) -> Res<SearchPage> {
    let mut newest = NewestHits::of(search);
    let Some(state) = IndexState::read(view.conn)? else {
        scan::scan(view, search, &mut newest)?;
        return Ok(newest.page());
    };
    let mut grams = Grams::of_words(&search.words);
    if let Some(thread) = &search.thread {
        let mut statement = view.conn.prepare_cached(sql::THREAD)?;
        let Some(thread) = statement.query_row([thread.as_str()], |row| row.get(0)).optional()? else {
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
    let mut checkpoints = view.conn.prepare_cached(sql::CHECKPOINTS_DOWN)?;
    let mut rows = checkpoints.query([first, last])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let skipped = if seq == first { part } else { 0 };
        for (key, channel) in puts_at(view, row.get(1)?, row.get(2)?)?.iter().skip(skipped).rev() {
            key.add_hit(view, search, seq, channel, newest)?;
            if newest.is_full() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Adds the hits among the entries that the index gives, down from the entry `last`.
fn indexed(view: ReadView<'_>, search: &Search, grams: &Grams, last: i64, newest: &mut NewestHits) -> Res<()> {
    let mut places = view.conn.prepare_cached(sql::CHECKPOINT_PLACE)?;
    let mut entries = view.conn.prepare_cached(sql::ENTRIES)?;
    let mut rows = entries.query(params![grams.tokens("\"", "\"", " AND "), last])?;
    let mut puts: (i64, Vec<(PutKey, Arc<str>)>) = (-1, Vec::new());
    while let Some(row) = rows.next()? {
        let (seq, place) = place_of(row.get(0)?);
        if seq != puts.0 {
            // The index of a damaged file may give entries that the log does not have.
            let at: Option<(i64, i64)> = places.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            puts = (seq, at.map(|(branch, ordinal)| puts_at(view, branch, ordinal)).transpose()?.unwrap_or_default());
        }
        if let Some((key, channel)) = puts.1.get(place) {
            key.add_hit(view, search, seq, channel, newest)?;
            if newest.is_full() {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl PutKey {
    /// Reads a row of `sql::put!` and hands its verified payload to `then`.
    fn read<T>(
        view: ReadView<'_>,
        row: &Row<'_>,
        room: &mut Room<'_>,
        then: impl FnOnce(Self, Option<u32>, PayloadRef<'_>) -> Res<T>,
    ) -> Res<T> {
        let key = Self { branch: row.get(0)?, channel: row.get(1)?, position: row.get(2)?, ordinal: row.get(3)? };
        let Self { branch, channel, position, ordinal } = key;
        let (task, value) = (row.get(4)?, row.get_ref(5)?);
        let check = item_check(view.keys, branch, channel, position, ordinal, PUT, task, value);
        if row.get_ref(6)? != ValueRef::Integer(check) {
            return Err(corrupt(item_place(branch, channel, position, ordinal), "the check of the row does not match"));
        }
        let payload = rows::decode(view.conn, row, 7, row.get(5)?, row.get(7)?, room)?;
        then(key, task, payload)
    }

    /// Returns its place in the order of a search.
    fn place(&self, seq: i64, channel: &Arc<str>) -> Res<HitPlace> {
        let wrong = || corrupt(item_place(self.branch, self.channel, self.position, self.ordinal), "it has no place");
        let (seq, position) =
            (u64::try_from(seq).map_err(|_| wrong())?, u64::try_from(self.position).map_err(|_| wrong())?);
        Ok(HitPlace { seq, channel: Arc::clone(channel), position })
    }

    /// Returns the parameters of `sql::PUT`.
    fn columns(&self) -> [i64; 4] {
        [self.branch, self.channel, self.position, self.ordinal]
    }

    /// Adds the put if it is a hit after the cursor.
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

    /// Builds the hit of a put of the checkpoint `seq`; `None` if it does not match or pass the filters, or if its thread is
    /// deleted.
    fn hit(&self, view: ReadView<'_>, search: &Search, seq: i64, channel: &Arc<str>) -> Res<Option<SearchHit>> {
        let mut statement = view.conn.prepare_cached(sql::PUT)?;
        let mut rows = statement.query(self.columns())?;
        // An inline value has no text; the statement does not return it.
        let Some(row) = rows.next()? else { return Ok(None) };
        let hit = Self::read(view, row, &mut Room::of(view.keys), |key, task, payload| {
            let Some(index) = payload.index.filter(|index| search.matches(index)) else { return Ok(None) };
            let Some(record) = view.by_seq(seq)? else { return Ok(None) };
            let position = key.place(seq, channel)?.position;
            if (record.branch as i64, record.ordinal as i64) != (key.branch, key.ordinal) {
                let place = item_place(key.branch, key.channel, key.position, key.ordinal);
                return Err(corrupt(place, format!("checkpoint {seq} did not put it")));
            }
            Ok(Some(SearchHit {
                seq: record.seq,
                created_at: record.created_at,
                position,
                role: index.kind.map(str::to_owned),
                id: index.id.map(str::to_owned),
                name: index.name.map(str::to_owned),
                node: task.map(|task| node(view, &record, task)).transpose()?.flatten(),
                on_head: is_on_head(view, &record, channel, position)?,
                snippet: search.snippet(&index),
                channel: Arc::clone(channel),
                point: record.point.clone(),
            }))
        })?;
        Ok(hit.filter(|hit| search.passes(hit)))
    }
}

/// Returns the node of a task of the parent of a checkpoint.
fn node(view: ReadView<'_>, record: &CheckpointRecord, task: u32) -> Res<Option<Arc<str>>> {
    let Some(parent) = record.parent_ref() else { return Ok(None) };
    let parent = view.checkpoint(&parent)?;
    Ok(parent.and_then(|parent| parent.tasks.get(task as usize).map(|task| Arc::clone(&task.name))))
}

/// Returns whether an item is in its list at the head of its namespace, as its checkpoint put it.
fn is_on_head(view: ReadView<'_>, record: &CheckpointRecord, channel: &str, position: u64) -> Res<bool> {
    let Some(head) = view.head(&record.point.thread, &record.point.namespace)? else { return Ok(false) };
    if head.ordinal < record.ordinal {
        return Ok(false);
    }
    let (branch, ordinal) = (record.branch as i64, record.ordinal as i64);
    let lineage = lineage::spans(view.conn, head.branch as i64, head.ordinal as i64, ordinal)?;
    if !lineage.iter().any(|span| span.branch == branch && (span.first..=span.last).contains(&ordinal)) {
        return Ok(false);
    }
    let mut is_shown = false;
    view.items(&head.point, channel, ItemRange::Positions(position, position.saturating_add(1)), &mut |row| {
        is_shown |= row.ordinal == record.ordinal;
        Ok(())
    })?;
    Ok(is_shown)
}
