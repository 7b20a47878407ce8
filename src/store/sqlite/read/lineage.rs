//! The lineage of a checkpoint: its branch, the branch it was forked from, and so on; and the newest row of each key.
//!
//! The version rows of a checkpoint are read together, because one check covers them. Every checkpoint has at least
//! one, so a scan finds each ordinal or reports that rows are missing.

use crate::limits::INDEX_SNAPSHOT_INTERVAL;
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::pack::{RowPlace, unpack_index_snapshot};
use crate::store::sqlite::rows::version::{
    INDEX_SNAPSHOT, KeyContent, NO_CHANGES, VersionRow, version_place, versions_check,
};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, branch, version};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// The number of ordinals between two index snapshots.
pub(crate) const INTERVAL: i64 = INDEX_SNAPSHOT_INTERVAL as i64;

/// The part of a branch that belongs to a lineage: ordinals from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) branch: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// Returns the spans that end at (branch, ordinal), newest first, as far back as they reach `down_to`.
pub(crate) fn spans(conn: &Connection, branch: i64, ordinal: i64, down_to: i64) -> Res<Vec<Span>> {
    let mut spans = Vec::new();
    let (mut branch, mut last) = (branch, ordinal);
    loop {
        let wrong = |reason: &str| corrupt(format!("branch {branch}"), reason);
        let branch::Row { parent, upto, .. } = self::branch(conn, branch)?;
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

/// Reads a branch that a row refers to.
pub(crate) fn branch(conn: &Connection, id: i64) -> Res<branch::Row> {
    let missing = || corrupt(format!("branch {id}"), "a row refers to it, but it does not exist");
    conn.read_first(branch::Row::BY_KEY, [id], |row| branch::Row::verified(row))?.ok_or_else(missing)
}

/// Visits the rows of each checkpoint of a span, verified: the newest checkpoint first, its rows by descending key.
/// Ends when `visit` returns false; returns whether it did not.
pub(crate) fn walk(
    view: ReadView<'_>,
    branch: i64,
    (first, last): (i64, i64),
    visit: &mut dyn FnMut(Vec<VersionRow>) -> Res<bool>,
) -> Res<bool> {
    let mut scan = view.conn.prepare_cached(sql::VERSIONS_OF_SPAN)?;
    let mut rows = scan.query(params![branch, first, last])?;
    let mut next = rows.next()?;
    for ordinal in (first..=last).rev() {
        let (mut found, mut check) = (Vec::new(), None);
        while let Some(row) = next.map(|row| version::Row::read(row, 0)).transpose()?
            && row.ordinal == ordinal
        {
            if found.is_empty() {
                check = row.xxh3;
            }
            found.push(VersionRow::of(&row)?);
            next = rows.next()?;
        }
        let place = || format!("version (branch {branch}, ordinal {ordinal})");
        if found.is_empty() {
            return Err(corrupt(place(), "the rows of the checkpoint are missing"));
        }
        if check != Some(versions_check(view.keys, branch, ordinal, found.iter().rev())) {
            return Err(corrupt(place(), "the check of the rows does not match"));
        }
        if !visit(found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the row of a key at (branch, ordinal), to which another row refers.
pub(crate) fn row_at(view: ReadView<'_>, at: (i64, i64), key: i64) -> Res<VersionRow> {
    let rows = rows_at(view, at)?;
    rows.into_iter().find(|row| row.key == key).ok_or_else(|| missing(at, key))
}

/// Returns the rows of a checkpoint, by descending key.
pub(crate) fn rows_at(view: ReadView<'_>, (branch, ordinal): (i64, i64)) -> Res<Vec<VersionRow>> {
    let mut found = Vec::new();
    walk(view, branch, (ordinal, ordinal), &mut |rows| {
        found = rows;
        Ok(true)
    })?;
    Ok(found)
}

fn missing((branch, ordinal): (i64, i64), key: i64) -> Fault {
    corrupt(version_place(branch, ordinal, key), "a row refers to it, but it is missing")
}

/// Returns the newest row of a key at (branch, ordinal): a range scan back to the last index snapshot, and a seek.
pub(crate) fn newest_of(view: ReadView<'_>, branch: i64, ordinal: i64, key: i64) -> Res<Option<VersionRow>> {
    let base = ordinal - ordinal.rem_euclid(INTERVAL);
    let (mut found, mut snapshot) = (None, None);
    for span in spans(view.conn, branch, ordinal, base)? {
        let goes_on = walk(view, span.branch, (span.first.max(base), span.last), &mut |rows| {
            for row in rows {
                if row.key == key {
                    found = Some(row);
                } else if row.kind == INDEX_SNAPSHOT {
                    snapshot = Some(row);
                }
            }
            Ok(found.is_none())
        })?;
        if !goes_on {
            return Ok(found);
        }
    }
    if base == 0 {
        return Ok(None);
    }
    let place = places(snapshot, branch, base)?.into_iter().find(|(of, ..)| *of == key);
    place.map(|(_, branch, ordinal)| row_at(view, (branch, ordinal), key)).transpose()
}

/// Unpacks the index snapshot at the ordinal `base` of the lineage of a branch.
fn places(snapshot: Option<VersionRow>, branch: i64, base: i64) -> Res<Vec<RowPlace>> {
    let places = snapshot.filter(|row| row.ordinal == base).and_then(|row| match &row.value {
        KeyContent::Packed(bytes) => unpack_index_snapshot(row.branch, base, bytes),
        KeyContent::Channel(_) => None,
    });
    places.ok_or_else(|| {
        corrupt(version_place(branch, base, 0), "the index snapshot of its lineage is missing or cannot be decoded")
    })
}

/// Returns the newest row of every key at (branch, ordinal), by key: one range scan back to the last index
/// snapshot, and one seek for each checkpoint before it that has newest rows.
pub(crate) fn newest(view: ReadView<'_>, branch: i64, ordinal: i64) -> Res<BTreeMap<i64, VersionRow>> {
    let base = ordinal - ordinal.rem_euclid(INTERVAL);
    let (mut newest, mut snapshot) = (BTreeMap::new(), None);
    for span in spans(view.conn, branch, ordinal, base)? {
        walk(view, span.branch, (span.first.max(base), span.last), &mut |rows| {
            for row in rows {
                match row.kind {
                    INDEX_SNAPSHOT => snapshot = Some(row),
                    NO_CHANGES => {}
                    _ => _ = newest.entry(row.key).or_insert(row),
                }
            }
            Ok(true)
        })?;
    }
    if base > 0 {
        let before = places(snapshot, branch, base)?.into_iter().filter(|(key, ..)| !newest.contains_key(key));
        let before = at_places(view, before.collect::<Vec<_>>())?;
        newest.extend(before);
    }
    Ok(newest)
}

/// Returns the rows at the places of keys, by key: one seek for each checkpoint among them.
pub(crate) fn at_places(view: ReadView<'_>, places: Vec<RowPlace>) -> Res<BTreeMap<i64, VersionRow>> {
    let (mut found, mut by_checkpoint) = (BTreeMap::new(), BTreeMap::<(i64, i64), Vec<i64>>::new());
    for (key, branch, ordinal) in places {
        by_checkpoint.entry((branch, ordinal)).or_default().push(key);
    }
    for (at, keys) in by_checkpoint {
        let mut rows: BTreeMap<i64, VersionRow> = rows_at(view, at)?.into_iter().map(|row| (row.key, row)).collect();
        for key in keys {
            found.insert(key, rows.remove(&key).ok_or_else(|| missing(at, key))?);
        }
    }
    Ok(found)
}
