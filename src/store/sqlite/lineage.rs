//! The lineage of a checkpoint: its branch, the branch it was forked from, and so on; and the newest row of each key.

use super::fault::{Res, corrupt};
use super::pack::{RowPlace, ValueColumn, unpack_index_snapshot};
use super::sql;
use crate::base::limits::INDEX_SNAPSHOT_INTERVAL;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// The number of ordinals between two index snapshots.
pub(super) const INTERVAL: i64 = INDEX_SNAPSHOT_INTERVAL as i64;

/// The part of a branch that belongs to a lineage: ordinals from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) branch: i64,
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Returns the spans that end at (branch, ordinal), newest first, as far back as they reach `down_to`.
pub(super) fn spans(conn: &Connection, branch: i64, ordinal: i64, down_to: i64) -> Res<Vec<Span>> {
    let mut spans = Vec::new();
    let (mut branch, mut last) = (branch, ordinal);
    let mut row = conn.prepare_cached(sql::BRANCH)?;
    loop {
        let wrong = |reason: &str| corrupt(format!("branch {branch}"), reason);
        let found: Option<(Option<i64>, Option<i64>)> =
            row.query_row([branch], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (parent, upto) = found.ok_or_else(|| wrong("a row refers to it, but it does not exist"))?;
        let first = upto.map_or(0, |upto| upto.saturating_add(1));
        spans.push(Span { branch, first, last });
        match (parent, upto) {
            (None, None) => {
                debug_assert!(spans.windows(2).all(|pair| pair[1].last + 1 == pair[0].first), "spans are contiguous");
                return Ok(spans);
            }
            // A parent is older, so the walk ends whatever the file says.
            (Some(parent), Some(upto)) if parent < branch && upto < last => {
                if first <= down_to {
                    return Ok(spans);
                }
                (branch, last) = (parent, upto);
            }
            _ => return Err(wrong("it does not leave an older branch before its own rows")),
        }
    }
}

/// The newest row of a channel or node.
#[derive(Clone, Debug)]
pub(super) struct VersionRow {
    pub(super) branch: i64,
    pub(super) ordinal: i64,
    pub(super) key: i64,
    pub(super) version: i64,
    pub(super) kind: i64,
    pub(super) task: Option<u32>,
    pub(super) value: KeyContent,
}

/// The content of the row of a key.
#[derive(Clone, Debug)]
pub(super) enum KeyContent {
    /// Of a channel that is not a list.
    Channel(ValueColumn),
    /// Of a list, a node or an index snapshot: packed numbers.
    Packed(Vec<u8>),
}

pub(super) const EMPTY: i64 = 0;
pub(super) const VALUE: i64 = 1;
pub(super) const LIST: i64 = 2;
pub(super) const SEEN: i64 = 3;
pub(super) const INDEX_SNAPSHOT: i64 = 4;

impl VersionRow {
    fn read(branch: i64, row: &Row<'_>) -> Res<Self> {
        let (ordinal, key, kind) = (row.get(0)?, row.get(1)?, row.get(3)?);
        let column = row.get_ref(5)?;
        let value = match kind {
            EMPTY | VALUE => ValueColumn::from_column(column).map(KeyContent::Channel),
            LIST | SEEN | INDEX_SNAPSHOT => column.as_blob().ok().map(|bytes| KeyContent::Packed(bytes.to_vec())),
            _ => None,
        };
        let value = value
            .ok_or_else(|| corrupt(version_place(branch, ordinal, key), "kind and value do not match the format"))?;
        Ok(Self { branch, ordinal, key, version: row.get(2)?, kind, task: row.get(4)?, value })
    }
}

/// Names a row of `version`.
pub(super) fn version_place(branch: i64, ordinal: i64, key: i64) -> String {
    format!("version (branch {branch}, ordinal {ordinal}, key {key})")
}

/// Returns the row of a key at (branch, ordinal), to which another row refers.
pub(super) fn row_at(conn: &Connection, (branch, ordinal): (i64, i64), key: i64) -> Res<VersionRow> {
    let mut at = conn.prepare_cached(sql::VERSION_AT)?;
    let mut rows = at.query(params![branch, ordinal, key])?;
    match rows.next()? {
        Some(row) => VersionRow::read(branch, row),
        None => Err(corrupt(version_place(branch, ordinal, key), "a row refers to it, but it is missing")),
    }
}

/// Returns the newest row of a key at (branch, ordinal): a range scan back to the last index snapshot, and a seek.
pub(super) fn newest_of(conn: &Connection, branch: i64, ordinal: i64, key: i64) -> Res<Option<VersionRow>> {
    let base = ordinal - ordinal.rem_euclid(INTERVAL);
    let mut of_snapshot = branch;
    for span in spans(conn, branch, ordinal, base)? {
        let mut newest = conn.prepare_cached(sql::VERSION_OF_KEY)?;
        let mut rows = newest.query(params![span.branch, span.first.max(base), span.last, key])?;
        if let Some(row) = rows.next()? {
            return VersionRow::read(span.branch, row).map(Some);
        }
        of_snapshot = span.branch;
    }
    if base == 0 {
        return Ok(None);
    }
    let row = row_at(conn, (of_snapshot, base), 0)?;
    let places = match &row.value {
        KeyContent::Packed(bytes) if row.kind == INDEX_SNAPSHOT => unpack_index_snapshot(of_snapshot, base, bytes),
        _ => None,
    };
    let places =
        places.ok_or_else(|| corrupt(version_place(of_snapshot, base, 0), "the index snapshot cannot be decoded"))?;
    let place = places.into_iter().find(|(of, ..)| *of == key);
    place.map(|(_, branch, ordinal)| row_at(conn, (branch, ordinal), key)).transpose()
}

/// Returns the newest row of every key at (branch, ordinal), by key: one range scan back to the last index
/// snapshot, and one seek for each key that did not change since.
pub(super) fn newest(conn: &Connection, branch: i64, ordinal: i64) -> Res<BTreeMap<i64, VersionRow>> {
    let base = ordinal - ordinal.rem_euclid(INTERVAL);
    let mut newest = BTreeMap::new();
    let mut snapshot: Option<Vec<RowPlace>> = None;
    for span in spans(conn, branch, ordinal, base)? {
        let mut scan = conn.prepare_cached(sql::VERSIONS_OF_SPAN)?;
        let mut rows = scan.query(params![span.branch, span.first.max(base), span.last])?;
        while let Some(row) = rows.next()? {
            let row = VersionRow::read(span.branch, row)?;
            match &row.value {
                KeyContent::Packed(bytes) if row.kind == INDEX_SNAPSHOT => {
                    if row.ordinal == base {
                        snapshot = unpack_index_snapshot(span.branch, base, bytes);
                    }
                }
                _ => _ = newest.entry(row.key).or_insert(row),
            }
        }
    }
    if base > 0 {
        let places = snapshot.ok_or_else(|| {
            corrupt(version_place(branch, base, 0), "the index snapshot of its lineage is missing or cannot be decoded")
        })?;
        for (key, branch, ordinal) in places {
            if let std::collections::btree_map::Entry::Vacant(slot) = newest.entry(key) {
                slot.insert(row_at(conn, (branch, ordinal), key)?);
            }
        }
    }
    Ok(newest)
}
