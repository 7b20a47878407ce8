//! The whole state of a thread read with hand-written SQL: the bound that SQLite sets for reading the same rows.
//!
//! The rows of the head, of the channels since the last index snapshot, and of the list with its payloads are read in
//! one transaction, and their bytes are copied out. Nothing is decoded and no checksum is verified.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};

use crate::disk::same;
use crate::raw::{self, ANCHOR_INTERVAL};
use crate::{Result, turns};

const HEAD: &str = "SELECT c.*, n.path, t.public_id, t.created_at FROM thread t JOIN namespace n ON n.thread = t.id \
     JOIN checkpoint c ON c.namespace = n.id WHERE t.public_id = ?1 AND n.path = '' ORDER BY c.id DESC LIMIT 1";
const NAMES: &str = "SELECT id, kind, text FROM name";
const VERSIONS: &str = "SELECT ordinal, key, version, kind, task, value FROM version \
     WHERE branch = ?1 AND ordinal BETWEEN ?2 AND ?3 ORDER BY ordinal DESC, key DESC";
const PAYLOAD: &str = "SELECT form, xxh3, data, item_id, kind, text FROM payload WHERE id = ?1";
const ITEMS: &str = "SELECT i.slot, i.ordinal, i.task, i.value, p.form, p.xxh3, p.data, p.item_id, p.kind, p.text \
     FROM item i LEFT JOIN payload p ON p.id = i.value WHERE i.branch = ?1 AND i.channel = ?2 \
     AND i.slot BETWEEN 0 AND 9223372036854775807 AND i.ordinal <= ?3 ORDER BY i.slot, i.ordinal DESC";
const STATEMENTS: [&str; 7] = ["BEGIN", HEAD, NAMES, VERSIONS, PAYLOAD, ITEMS, "COMMIT"];

/// The kinds of a row of `version` that hold a value and a list.
const VALUE: i64 = 1;
const LIST: i64 = 2;
/// The kind of `name` of the channel of item rows.
const LIST_NAME: i64 = 3;

/// A payload whose bytes were copied out.
pub(crate) struct RawPayload {
    #[expect(dead_code, reason = "read because the library reads it")]
    form: i64,
    #[expect(dead_code, reason = "read because the library reads it")]
    xxh3: i64,
    data: Vec<u8>,
    id: Value,
    kind: Option<String>,
    text: Option<String>,
}

impl RawPayload {
    fn read(row: &Row<'_>, first: usize) -> Result<Self> {
        Ok(Self {
            form: row.get(first)?,
            xxh3: row.get(first + 1)?,
            data: row.get(first + 2)?,
            id: row.get(first + 3)?,
            kind: row.get(first + 4)?,
            text: row.get(first + 5)?,
        })
    }
}

/// The rows of a state.
#[derive(Default)]
pub(crate) struct RawState {
    head: Vec<Value>,
    names: Vec<(i64, i64, String)>,
    versions: Vec<(i64, i64, i64, i64, Option<i64>, Value)>,
    values: Vec<RawPayload>,
    items: Vec<(i64, i64, Option<i64>, RawPayload)>,
}

/// A reader with its statements prepared, as the library has one when a store is open.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let conn = raw::connect(path)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192;")?;
    for statement in STATEMENTS {
        drop(conn.prepare_cached(statement)?);
    }
    Ok(conn)
}

/// Reads the state at the head of a thread.
pub(crate) fn read(conn: &Connection, thread: &str) -> Result<RawState> {
    let mut state = RawState::default();
    conn.prepare_cached("BEGIN")?.execute([])?;
    let (branch, ordinal) = conn.prepare_cached(HEAD)?.query_row([thread], |row| {
        let columns = row.as_ref().column_count();
        state.head = (0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?;
        Ok((row.get::<_, i64>("branch")?, row.get::<_, i64>("ordinal")?))
    })?;
    let mut names = conn.prepare_cached(NAMES)?;
    let mut rows = names.query([])?;
    while let Some(row) = rows.next()? {
        state.names.push((row.get(0)?, row.get(1)?, row.get(2)?));
    }
    let mut versions = conn.prepare_cached(VERSIONS)?;
    let mut rows = versions.query(params![branch, ordinal - ordinal % ANCHOR_INTERVAL, ordinal])?;
    while let Some(row) = rows.next()? {
        let version = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        state.versions.push(version);
    }
    let mut payload = conn.prepare_cached(PAYLOAD)?;
    let mut items = conn.prepare_cached(ITEMS)?;
    for at in 0..state.versions.len() {
        let (_, key, _, kind, _, value) = &state.versions[at];
        let is_newest = state.versions[..at].iter().all(|(_, newer, ..)| newer != key);
        if !is_newest {
            continue;
        }
        if let (VALUE, Value::Integer(id)) = (*kind, value) {
            let mut rows = payload.query([id])?;
            state.values.push(RawPayload::read(rows.next()?.ok_or("a payload does not exist")?, 0)?);
        }
        if *kind == LIST {
            let name = state.names.iter().find(|(id, ..)| id == key).map(|(_, _, text)| text);
            let list = state.names.iter().find(|(_, kind, text)| *kind == LIST_NAME && Some(text) == name);
            let mut rows = items.query(params![branch, list.ok_or("a list has no name")?.0, ordinal])?;
            while let Some(row) = rows.next()? {
                state.items.push((row.get(0)?, row.get(1)?, row.get(2)?, RawPayload::read(row, 4)?));
            }
        }
    }
    conn.prepare_cached("COMMIT")?.execute([])?;
    Ok(state)
}

impl RawState {
    /// Returns an error unless the state has `messages` messages with a text of `bytes` bytes, an id and a type each.
    pub(crate) fn verify(&self, messages: usize, bytes: usize) -> Result<()> {
        same("item rows", self.items.len(), messages)?;
        let whole = |payload: &RawPayload| {
            payload.text.as_deref().map(str::len) == Some(bytes)
                && payload.kind.as_deref() == Some("ai")
                && matches!(&payload.id, Value::Blob(id) if id.len() == 16)
        };
        same("whole messages", self.items.iter().filter(|(.., payload)| whole(payload)).count(), messages)?;
        let slots = self.items.iter().map(|(slot, ..)| *slot);
        same("positions in order", slots.eq(0..messages as i64), true)?;
        same("a head", self.head.is_empty(), false)?;
        let inline = self.versions.iter().filter(|(_, _, _, kind, _, value)| *kind == VALUE && *value != Value::Null);
        same("a value beside the list", inline.count() + self.values.len() > 0, true)
    }

    /// Returns how many bytes of payloads were copied out.
    pub(crate) fn bytes(&self) -> usize {
        let size = |payload: &RawPayload| {
            payload.data.len()
                + payload.text.as_deref().map_or(0, str::len)
                + payload.kind.as_deref().map_or(0, str::len)
        };
        self.items.iter().map(|(.., payload)| size(payload)).sum::<usize>()
            + self.values.iter().map(size).sum::<usize>()
    }
}

/// Reads the state of a file of turns by a reader of its own; the reader is opened before the clock starts.
pub(crate) fn fresh(path: &Path) -> Result<(f64, RawState)> {
    let conn = open(path)?;
    crate::stats::timed(|| read(&conn, turns::THREAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;
    use crate::append::TEXT_BYTES;

    #[test]
    fn rows_of_a_state_are_all_read_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::quick_in(folder.path());
        let path = bench.file("state.db").unwrap();
        turns::build(&path, 50).unwrap();
        let (_, state) = fresh(&path).unwrap();
        state.verify(50, TEXT_BYTES).unwrap();
        assert!(state.verify(51, TEXT_BYTES).is_err());
        assert!(state.verify(50, TEXT_BYTES + 1).is_err());
        assert!(state.bytes() >= 50 * (TEXT_BYTES + 2));
    }
}
