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
    /// Of a channel.
    Channel(ValueColumn),
    /// Of a node or an index snapshot: packed numbers.
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
            EMPTY | VALUE | LIST => ValueColumn::from_column(column).map(KeyContent::Channel),
            SEEN | INDEX_SNAPSHOT => column.as_blob().ok().map(|bytes| KeyContent::Packed(bytes.to_vec())),
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
        let mut at = conn.prepare_cached(sql::VERSION_AT)?;
        for (key, branch, ordinal) in places {
            if let std::collections::btree_map::Entry::Vacant(slot) = newest.entry(key) {
                let mut rows = at.query(params![branch, ordinal, key])?;
                let Some(row) = rows.next()? else {
                    return Err(corrupt(
                        version_place(branch, ordinal, key),
                        "an index snapshot refers to it, but it is missing",
                    ));
                };
                slot.insert(VersionRow::read(branch, row)?);
            }
        }
    }
    Ok(newest)
}
