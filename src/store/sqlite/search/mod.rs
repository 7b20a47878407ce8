//! Searches of the texts of items.
//!
//! A scan reads the puts of each branch that the filters leave; a hit is built from its checkpoint and its payload, both
//! verified. *Absent:* the matching of texts ([`search`](crate::store::search)).

mod scan;
mod sql;

use super::changes::{PUT, item_check};
use super::fault::{Res, corrupt};
use super::items::item_place;
use super::lineage;
use super::names::Kind;
use super::read::ReadView;
use super::rows::{self, Room};
use crate::base::PayloadRef;
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRecord;
use crate::store::search::{HitPlace, NewestHits, Search, SearchHit, SearchPage};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
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
    scan::scan(view, search, &mut newest)?;
    Ok(newest.page())
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

    /// Builds the hit of a put of the checkpoint `seq`; `None` if it does not pass the filters, or if its thread is deleted.
    fn hit(&self, view: ReadView<'_>, search: &Search, seq: i64) -> Res<Option<SearchHit>> {
        let Some(record) = view.by_seq(seq)? else { return Ok(None) };
        let place = || item_place(self.branch, self.channel, self.position, self.ordinal);
        if (record.branch as i64, record.ordinal as i64) != (self.branch, self.ordinal) {
            return Err(corrupt(place(), format!("checkpoint {seq} did not put it")));
        }
        let mut statement = view.conn.prepare_cached(sql::PUT)?;
        let mut rows = statement.query(params![self.branch, self.channel, self.position, self.ordinal])?;
        let Some(row) = rows.next()? else { return Err(corrupt(place(), "it does not exist")) };
        let channel = view.names.text(view.conn, Kind::List, self.channel)?;
        let hit = Self::read(view, row, &mut Room::of(view.keys), |key, task, payload| {
            let position = key.place(seq, &channel)?.position;
            let Some(index) = payload.index.filter(|index| search.matches(index)) else { return Ok(None) };
            Ok(Some(SearchHit {
                seq: record.seq,
                created_at: record.created_at,
                position,
                role: index.kind.map(str::to_owned),
                id: index.id.map(str::to_owned),
                name: index.name.map(str::to_owned),
                node: task.map(|task| node(view, &record, task)).transpose()?.flatten(),
                on_head: is_on_head(view, &record, &channel, position)?,
                snippet: search.snippet(&index),
                channel: Arc::clone(&channel),
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
