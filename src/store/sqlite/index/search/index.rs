//! The search index: which texts hold a gram.
//!
//! The index follows the log: its state names the first entry that it does not hold, and a step adds the next ones. An
//! entry is a put or the value of a channel; its number is 2^24 times the `seq` of its checkpoint plus its place among
//! the entries there, by channel and position. So entries ascend with the log, and the number alone leads to the row.
//! *Absent:* texts: an entry that the index gives is compared with the log.
//!
//! Invariant: every entry below the first one that is not indexed has its grams in the index, unless its thread is
//! deleted.

use super::entry::{EntryKey, entries_at};
use super::sql;
use crate::base::ThreadId;
use crate::limits::{INDEX_COST_MAX, SEARCH_ENTRIES_MAX};
use crate::store::search::{Grams, SearchIndex};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::{Fault, Res, corrupt, invalid};
use crate::store::sqlite::index::projection::Projection;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::tables::{TableRow, checkpoint};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, ErrorCode, params};

/// The state of the index of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexState {
    /// The number of the first entry that it does not hold.
    pub(super) next: i64,
    unsealed: bool,
}

/// The tables of the search index.
#[derive(Debug)]
pub(crate) struct SearchEntries;

impl Projection for SearchEntries {
    fn make(&self, conn: &Connection, caches: &Caches, unsealed: bool) -> Res<()> {
        match IndexState::read(conn)? {
            None => enable(conn, caches, unsealed),
            Some(_) => Ok(()),
        }
    }

    fn remove(&self, conn: &Connection) -> Res<()> {
        match IndexState::read(conn)? {
            None => Ok(()),
            Some(_) => Ok(conn.execute_batch(sql::DROP)?),
        }
    }

    fn behind(&self, conn: &Connection, _caches: &mut Caches) -> Res<u64> {
        Ok(status(conn)?.map_or(0, |index| index.behind))
    }

    fn follow(&self, conn: &Connection, caches: &mut Caches) -> Res<()> {
        match IndexState::read(conn)? {
            None => Ok(()),
            Some(state) => add_entries(conn, caches, state),
        }
    }

    fn follow_bytes(&self) -> usize {
        // About 20 bytes for each gram, and as many again when segments of the index are merged.
        64 * INDEX_COST_MAX
    }

    fn clear(&self, conn: &Connection, _caches: &mut Caches) -> Res<()> {
        empty(conn)
    }

    /// The pruning deletes rows that entries name, and the places of the entries of a checkpoint count those rows.
    fn prune(&self, conn: &Connection, _caches: &Caches, _thread: &ThreadId) -> Res<()> {
        empty(conn)
    }

    fn hide(&self, conn: &Connection, _caches: &Caches, thread: i64) -> Res<()> {
        hide(conn, thread)
    }

    fn erase(&self, conn: &Connection, caches: &Caches, thread: i64, left: &mut usize) -> Res<bool> {
        erase(conn, caches, thread, left)
    }
}

/// Returns the number of the first entry of a checkpoint.
pub(super) fn first_entry(seq: i64) -> i64 {
    seq.saturating_mul(SEARCH_ENTRIES_MAX)
}

/// Returns the checkpoint of an entry, and its place there.
pub(super) fn place_of(entry: i64) -> (i64, usize) {
    (entry.div_euclid(SEARCH_ENTRIES_MAX), entry.rem_euclid(SEARCH_ENTRIES_MAX) as usize)
}

impl IndexState {
    /// Reads the state; `None` if the file has no index.
    pub(super) fn read(conn: &Connection) -> Res<Option<Self>> {
        if !conn.one(sql::IS_ON, [])? {
            return Ok(None);
        }
        match conn.first(sql::STATE, [])? {
            Some((next @ 0.., unsealed)) => Ok(Some(Self { next, unsealed })),
            _ => Err(corrupt("search_state", "it does not have one row with a number of an entry")),
        }
    }
}

/// Returns the state of the index of a file, as its users see it.
pub(crate) fn status(conn: &Connection) -> Res<Option<SearchIndex>> {
    let Some(state) = IndexState::read(conn)? else { return Ok(None) };
    Ok(Some(SearchIndex { behind: behind(conn, state.next)? }))
}

/// Returns the number of checkpoints of the log from an entry on, if none of them was deleted.
fn behind(conn: &Connection, next: i64) -> Res<u64> {
    let last: Option<i64> = conn.one(checkpoint::Row::GREATEST, [])?;
    let (seq, _) = place_of(next);
    Ok(last.map_or(0, |last| u64::try_from(last - seq + 1).unwrap_or(0)))
}

fn enable(conn: &Connection, caches: &Caches, unsealed: bool) -> Res<()> {
    if caches.keys.seal_content() && !unsealed {
        return Err(sealed());
    }
    if !conn.one(sql::HAS_FTS5, [])? {
        return Err(invalid("search index", "the SQLite that is linked was built without FTS5"));
    }
    conn.execute_batch(sql::SCHEMA).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::Unknown) => invalid("search index", format!("its tables cannot be made: {error}")),
        _ => Fault::Sql(error),
    })?;
    conn.execute_batch(sql::ERASE_DELETED)?;
    conn.run(sql::STATE_INSERT, [unsealed])?;
    Ok(())
}

fn sealed() -> Fault {
    let reason = "the store is encrypted, and the index would hold parts of its texts in plain form; \
                  `SearchOptions::unsealed` allows it";
    invalid("search index", reason)
}

/// Adds the next entries.
fn add_entries(conn: &Connection, caches: &Caches, state: IndexState) -> Res<()> {
    // The key may have been given after the index was made.
    if caches.keys.seal_content() && !state.unsealed {
        return Err(sealed());
    }
    let (view, mut left, mut next) = (caches.view(conn), INDEX_COST_MAX, state.next);
    let (from, mut part) = place_of(next);
    conn.each_while(sql::CHECKPOINTS_FROM, [from], |row| {
        let (seq, branch, ordinal, thread): (i64, i64, i64, Option<i64>) = FromColumns::read(row, 0)?;
        // An index that goes back would never come to the end of the log.
        if seq < place_of(next).0 || seq.checked_mul(SEARCH_ENTRIES_MAX).is_none() {
            return Err(corrupt(format!("checkpoint {seq}"), "its number is too large, or out of order"));
        }
        if seq != from {
            part = 0;
        }
        // The entries of a deleted thread are not found, and would have to be deleted.
        let Some(thread) = thread else {
            next = first_entry(seq + 1);
            return Ok(true);
        };
        for (at, (key, channel)) in entries_at(view, branch, ordinal)?.into_iter().enumerate().skip(part) {
            if left == 0 {
                return Ok(false);
            }
            let grams = grams_of(view, key, &channel, thread)?;
            if let Some(grams) = &grams {
                conn.run(sql::ENTRY_INSERT, params![first_entry(seq) + at as i64, grams.tokens("", "", " ")])?;
            }
            next = first_entry(seq) + at as i64 + 1;
            left = left.saturating_sub(1 + grams.map_or(0, |grams| grams.len()));
        }
        next = first_entry(seq + 1);
        left = left.saturating_sub(1);
        Ok(left > 0)
    })?;
    conn.run(sql::STATE_UPDATE, [next])?;
    Ok(())
}

/// Returns the grams of an entry; `None` if it has no text.
pub(super) fn grams_of(view: ReadView<'_>, key: EntryKey, channel: &str, thread: i64) -> Res<Option<Grams>> {
    key.read(view, channel, |_, entry| {
        let mut grams = Grams::of_text(&entry.text);
        grams.add_thread(thread);
        grams.add_role(entry.index.kind.unwrap_or_default());
        Ok(grams)
    })
}

/// Empties the index, if it holds entries; it follows the log anew.
fn empty(conn: &Connection) -> Res<()> {
    if IndexState::read(conn)?.is_some_and(|state| state.next > 0) {
        // FTS5's `delete-all` resets the format that its `secure-delete` has noted, and a file with both is reported as
        // corrupt.
        conn.execute_batch(sql::EMPTY)?;
        let table = sql::SCHEMA.find("CREATE VIRTUAL TABLE").map_or("", |at| &sql::SCHEMA[at..]);
        conn.execute_batch(table)?;
        conn.execute_batch(sql::ERASE_DELETED)?;
    }
    Ok(())
}

/// Notes that the entries of a thread, which is being deleted, are to be deleted.
fn hide(conn: &Connection, thread: i64) -> Res<()> {
    if let Some(state) = IndexState::read(conn)? {
        conn.run(sql::ERASE_INSERT, [thread, state.next])?;
    }
    Ok(())
}

/// Deletes entries of a deleted thread, whose rows are all stored yet, at a cost of at most `left`. Returns whether
/// none is left.
fn erase(conn: &Connection, caches: &Caches, thread: i64, left: &mut usize) -> Res<bool> {
    if IndexState::read(conn)?.is_none() {
        return Ok(true);
    }
    let cursor: Option<(i64, i64, Vec<u8>, i64)> = conn.first(sql::ERASE_NEXT, [thread])?;
    let Some((end, mut namespace, mut checkpoint, mut part)) = cursor else { return Ok(true) };
    let view = caches.view(conn);
    while *left > 0 {
        let found: Option<(Vec<u8>, i64, i64, i64)> =
            conn.first(sql::ERASE_CHECKPOINT, params![namespace, checkpoint])?;
        let Some((id, seq, branch, ordinal)) = found else {
            let Some(after) = conn.one::<Option<i64>>(sql::ERASE_NAMESPACE, [thread, namespace])? else {
                conn.run(sql::ERASE_DELETE, [thread])?;
                return Ok(true);
            };
            (namespace, checkpoint, part) = (after, Vec::new(), 0);
            continue;
        };
        if id != checkpoint {
            (checkpoint, part) = (id, 0);
        }
        *left = left.saturating_sub(1);
        let mut all = true;
        for (at, (key, channel)) in entries_at(view, branch, ordinal)?.into_iter().enumerate().skip(part as usize) {
            let entry = first_entry(seq) + at as i64;
            if entry >= end {
                break;
            }
            if *left == 0 {
                all = false;
                break;
            }
            // The grams of a damaged text are not known. It does not stop the erasure.
            if let Some(grams) = grams_of(view, key, &channel, thread).ok().flatten() {
                conn.run(sql::ENTRY_DELETE, params![entry, grams.tokens("", "", " ")])?;
                *left = left.saturating_sub(grams.len());
            }
            part = at as i64 + 1;
        }
        if all {
            // Every longer id is greater, and no stored id is longer.
            checkpoint.push(0);
            part = 0;
        }
    }
    conn.run(sql::ERASE_UPDATE, params![thread, namespace, checkpoint, part])?;
    Ok(false)
}
