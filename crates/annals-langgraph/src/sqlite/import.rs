//! Reads a database of `langgraph-checkpoint-sqlite` into a store.
//!
//! The source is not written to, and one row of it is in memory besides the puts that are under way. What is stored
//! already is not stored again, so an import that ended early is run again. A row that cannot be taken is counted with
//! its place, and the import goes on. *Absent:* similarity indexes, which an embedder makes anew.

use annals::store::log::LogExt;
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::Path;

use annals::rusqlite::types::ValueRef;
use annals::rusqlite::{self, Row};
use annals::store::log::KvChange;
use annals_base::{Map, Value};
use annals_import::SourceDatabase;
use serde_json::Value as Json;

use super::items;
use crate::{Config, LostRace, PutHandle, Result, Saver, SaverCheckpoint, SaverError, SaverWrite, Typed};

/// Puts that are under way at a time, so that many share a commit.
const PUTS_UNDER_WAY: usize = 512;
/// Bytes of puts that are under way at a time.
const BYTES_UNDER_WAY: usize = 16 << 20;
/// Changes of the key-value memory in a commit.
const ITEMS_OF_COMMIT: usize = 500;
/// Rows that are named in a summary.
const REFUSED_NAMED: usize = 100;

/// The counts of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseImport {
    /// Threads of the source.
    pub threads: u64,
    /// Checkpoints that were stored.
    pub checkpoints: u64,
    /// Checkpoints that had been stored before.
    pub checkpoints_unchanged: u64,
    /// Writes of tasks that were read.
    pub writes: u64,
    /// Items of the key-value memory.
    pub items: u64,
    /// Rows that were not taken.
    pub refused: u64,
    /// The first 100 of them.
    pub refused_rows: Vec<RefusedRow>,
    /// Bytes of the rows that were read.
    pub source_bytes: u64,
}

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedRow {
    /// The table, the thread and the checkpoint.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// Returns whether a database has the tables of LangGraph's SQLite saver, or of its key-value memory.
pub fn is_langgraph(database: &SourceDatabase) -> bool {
    has_checkpoints(database) || items::is_in(database)
}

fn has_checkpoints(database: &SourceDatabase) -> bool {
    let has = |table: &str, column: &str| database.columns(table).iter().any(|name| name == column);
    has("checkpoints", "checkpoint_ns") && has("checkpoints", "parent_checkpoint_id") && has("writes", "task_id")
}

/// Reads all threads of a database, and its key-value memory, into the store of a saver. `progress` is told the
/// summary so far after each checkpoint.
///
/// # Errors
/// [`SaverError::Source`] if the file is no such database or is damaged; [`SaverError::Store`]. What was stored before
/// stays, and an import that is run again goes on there.
///
/// # Example
/// ```no_run
/// use annals::store::Store;
/// use annals_langgraph::{Saver, import_sqlite};
///
/// let saver = Saver::new(Store::open("chat.db")?);
/// let summary = import_sqlite("checkpoints.sqlite".as_ref(), &saver, |_| {})?;
/// println!("{} checkpoints of {} threads", summary.checkpoints, summary.threads);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import_sqlite(path: &Path, saver: &Saver, progress: impl FnMut(&DatabaseImport)) -> Result<DatabaseImport> {
    let broken = |reason: String| SaverError::Source { path: path.into(), reason, stored: 0 };
    fs::metadata(path).map_err(|error| broken(error.to_string()))?;
    let database = SourceDatabase::open_path(path).map_err(|error| broken(error.to_string()))?;
    import_database(path, &database, saver, progress)
}

/// Reads a database that is open, as [`import_sqlite`]. Errors name it by its path.
///
/// # Errors
/// As [`import_sqlite`].
pub fn import_database(
    path: &Path,
    database: &SourceDatabase,
    saver: &Saver,
    progress: impl FnMut(&DatabaseImport),
) -> Result<DatabaseImport> {
    let broken = |reason: String, stored: u64| SaverError::Source { path: path.into(), reason, stored };
    if !is_langgraph(database) {
        return Err(broken(
            "it has neither the tables `checkpoints` and `writes` nor the table `store` of LangGraph".into(),
            0,
        ));
    }
    let has_path = database.columns("writes").iter().any(|name| name == "task_path");
    let mut import = RowImport {
        saver,
        database,
        has_path,
        under_way: VecDeque::new(),
        bytes_under_way: 0,
        summary: DatabaseImport::default(),
        progress,
    };
    let ended = import.all();
    let settled = import.settle(0).and_then(|()| saver.flush());
    match ended {
        Ok(()) if settled.is_ok() && database.is_changed() => {
            let reason = "a program has written to it meanwhile; import it again";
            Err(broken(reason.into(), import.summary.checkpoints))
        }
        Ok(()) => settled.map(|()| import.summary),
        Err(ImportFault::Saver(error)) => Err(error),
        Err(ImportFault::Database(error)) => Err(broken(error.to_string(), import.summary.checkpoints)),
    }
}

/// The reason for which an import ended.
enum ImportFault {
    Database(rusqlite::Error),
    Saver(SaverError),
}

impl From<rusqlite::Error> for ImportFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<SaverError> for ImportFault {
    fn from(error: SaverError) -> Self {
        Self::Saver(error)
    }
}

struct RowImport<'i, P> {
    saver: &'i Saver,
    database: &'i SourceDatabase,
    /// False for a database of an older release, whose writes have no paths.
    has_path: bool,
    under_way: VecDeque<(PutHandle, usize, String)>,
    bytes_under_way: usize,
    summary: DatabaseImport,
    progress: P,
}

impl<P: FnMut(&DatabaseImport)> RowImport<'_, P> {
    fn all(&mut self) -> Result<(), ImportFault> {
        let connection = self.database.connection();
        // One state of the database, while the program that writes goes on.
        connection.execute_batch("BEGIN")?;
        if has_checkpoints(self.database) {
            self.threads()?;
        }
        if items::is_in(self.database) {
            self.items()?;
        }
        connection.execute_batch("ROLLBACK")?;
        Ok(())
    }

    fn threads(&mut self) -> Result<(), ImportFault> {
        let connection = self.database.connection();
        let sql = "SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes";
        let threads = connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>();
        for thread in threads? {
            self.thread(&thread)?;
            self.summary.threads += 1;
        }
        Ok(())
    }

    /// Reads the key-value memory. An item that is there already is put again.
    fn items(&mut self) -> Result<(), ImportFault> {
        let backend = self.saver.store().backend();
        let (mut changes, mut count) = (Vec::new(), 0);
        items::each(self.database, |item| {
            self.summary.source_bytes += item.bytes as u64;
            match item.changes {
                Err(reason) => self.note(item.place, &reason),
                Ok(found) => {
                    if let Err(error) = KvChange::validate(&found) {
                        self.note(item.place, &error);
                        return Ok(());
                    }
                    changes.extend(found);
                    count += 1;
                }
            }
            if changes.len() >= ITEMS_OF_COMMIT {
                backend.side_tables().map_err(SaverError::from)?.commit_kv(&changes).map_err(SaverError::from)?;
                changes.clear();
                self.summary.items += std::mem::take(&mut count);
                (self.progress)(&self.summary);
            }
            Ok::<_, ImportFault>(())
        })?;
        if !changes.is_empty() {
            backend.side_tables().map_err(SaverError::from)?.commit_kv(&changes).map_err(SaverError::from)?;
        }
        self.summary.items += count;
        Ok(())
    }

    /// Reads a thread in the order of its ids, in which LangGraph wrote it.
    fn thread(&mut self, thread: &str) -> Result<(), ImportFault> {
        let stored = self.saver.ids(thread)?;
        let connection = self.database.connection();
        let mut statement = connection.prepare_cached(
            "SELECT rowid, checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?1 \
             ORDER BY checkpoint_id, checkpoint_ns",
        )?;
        let key = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows = statement.query_map([thread], key)?.collect::<Result<Vec<(i64, String, String)>, _>>()?;
        let mut known: HashSet<(String, String)> = HashSet::new();
        for (row, namespace, id) in rows {
            let place = Config::new(thread, &*namespace).at(&*id);
            if stored.contains(&(namespace.clone(), id.clone())) {
                self.summary.checkpoints_unchanged += 1;
            } else {
                self.checkpoint(&place, row)?;
            }
            self.writes(&place)?;
            known.insert((namespace, id));
            (self.progress)(&self.summary);
        }
        // Writes whose checkpoint is not there.
        let mut statement = connection.prepare_cached(
            "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes WHERE thread_id = ?1 ORDER BY 1, 2",
        )?;
        let key = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let keys = statement.query_map([thread], key)?.collect::<Result<Vec<(String, String)>, _>>()?;
        for (namespace, id) in keys.into_iter().filter(|key| !known.contains(key)) {
            self.writes(&Config::new(thread, namespace).at(id))?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, place: &Config, row: i64) -> Result<(), ImportFault> {
        let mut statement = self.database.connection().prepare_cached(
            "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE rowid = ?1",
        )?;
        let id = place.checkpoint.as_deref().unwrap_or_default();
        let read = |row: &Row<'_>| {
            let checkpoint = typed(row, 1, 2)?;
            let metadata = bytes(row.get_ref(3)?).to_vec();
            Ok((row.get::<_, Option<String>>(0)?, checkpoint, metadata))
        };
        let (parent, checkpoint, metadata) = match statement.query_row([row], read) {
            Err(error @ rusqlite::Error::InvalidColumnType(..)) => {
                self.refuse("checkpoints", place, &error);
                return Ok(());
            }
            read => read?,
        };
        let bytes = checkpoint.bytes.len() + metadata.len();
        self.summary.source_bytes += bytes as u64;
        let metadata = match json_object(&metadata) {
            Ok(metadata) => metadata,
            Err(reason) => {
                self.refuse("checkpoints", place, &format!("metadata: {reason}"));
                return Ok(());
            }
        };
        let new = SaverCheckpoint::from_value(id, checkpoint, metadata);
        let from = Config { checkpoint: parent, ..place.clone() };
        match self.saver.submit_put(&from, new, LostRace::Branch) {
            Ok(handle) => {
                self.bytes_under_way += bytes;
                self.under_way.push_back((handle, bytes, place_text("checkpoints", place)));
                self.settle(PUTS_UNDER_WAY).map_err(ImportFault::from)
            }
            Err(error) => self.refuse_or_end("checkpoints", place, error),
        }
    }

    /// Stores the writes of a checkpoint.
    fn writes(&mut self, place: &Config) -> Result<(), ImportFault> {
        let path = if self.has_path { "task_path" } else { "''" };
        let mut statement = self.database.connection().prepare_cached(&format!(
            "SELECT task_id, {path}, idx, channel, type, value FROM writes \
             WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 ORDER BY task_id, idx"
        ))?;
        let id = place.checkpoint.as_deref().unwrap_or_default();
        let mut rows = statement.query([&place.thread, &place.namespace, id])?;
        let mut writes = Vec::new();
        while let Some(row) = rows.next()? {
            match pending_write(row) {
                Ok(write) => {
                    self.summary.source_bytes += write.value.bytes.len() as u64;
                    writes.push(write);
                }
                Err(error) => self.refuse("writes", place, &error),
            }
        }
        let count = writes.len() as u64;
        match self.saver.put_indexed_writes(place, writes) {
            Ok(()) => self.summary.writes += count,
            Err(error) => self.refuse_or_end("writes", place, error)?,
        }
        Ok(())
    }

    /// Waits until no more than `limit` puts are under way.
    fn settle(&mut self, limit: usize) -> Result<()> {
        while self.under_way.len() > limit || (self.bytes_under_way > BYTES_UNDER_WAY && !self.under_way.is_empty()) {
            let Some((handle, bytes, place)) = self.under_way.pop_front() else { break };
            self.bytes_under_way -= bytes;
            match handle.wait() {
                Ok(_) => self.summary.checkpoints += 1,
                Err(error) if is_of_row(&error) => self.note(place, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn refuse_or_end(&mut self, table: &str, place: &Config, error: SaverError) -> Result<(), ImportFault> {
        if !is_of_row(&error) {
            return Err(error.into());
        }
        self.refuse(table, place, &error);
        Ok(())
    }

    fn refuse(&mut self, table: &str, place: &Config, reason: &dyn std::fmt::Display) {
        self.note(place_text(table, place), reason);
    }

    fn note(&mut self, place: String, reason: &dyn std::fmt::Display) {
        self.summary.refused += 1;
        if self.summary.refused_rows.len() < REFUSED_NAMED {
            self.summary.refused_rows.push(RefusedRow { place, reason: reason.to_string() });
        }
    }
}

fn place_text(table: &str, place: &Config) -> String {
    let Config { thread, namespace, checkpoint } = place;
    format!("{table}: thread {thread:?}, namespace {namespace:?}, checkpoint {:?}", checkpoint.as_deref().unwrap_or(""))
}

/// Returns whether an error concerns one row, and not the store.
fn is_of_row(error: &SaverError) -> bool {
    match error {
        SaverError::Invalid { .. } | SaverError::Unsupported { .. } => true,
        SaverError::Store(error) => error.code().starts_with("INVALID"),
        _ => false,
    }
}

fn pending_write(row: &Row<'_>) -> rusqlite::Result<SaverWrite> {
    let (task, path, channel): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(3)?);
    Ok(SaverWrite::new(task, path, row.get(2)?, channel, typed(row, 4, 5)?))
}

fn typed(row: &Row<'_>, tag: usize, value: usize) -> rusqlite::Result<Typed> {
    let tag = row.get::<_, Option<String>>(tag)?.unwrap_or_else(|| "null".into());
    Ok(Typed::new(tag, bytes(row.get_ref(value)?).to_vec()))
}

pub(super) fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}

/// Reads metadata; a row of an older release has none.
fn json_object(text: &[u8]) -> Result<Map, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    let value = match serde_json::from_slice::<Json>(text) {
        Ok(json) => Value::from(json),
        Err(error) => with_named_floats(text).ok_or_else(|| error.to_string())?,
    };
    match value {
        Value::Map(map) => Ok(map),
        _ => Err("they are not an object".into()),
    }
}

/// The names under which Python writes floats that JSON lacks.
const NAMED_FLOATS: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("-Infinity", f64::NEG_INFINITY), ("Infinity", f64::INFINITY)];

/// Reads JSON as Python writes it: outside of texts, floats may have names. Returns `None` for text that is invalid
/// even so.
fn with_named_floats(text: &[u8]) -> Option<Value> {
    // The name stands in a text of its own meanwhile, behind a mark that the JSON does not have.
    let text = std::str::from_utf8(text).ok()?;
    let mark = (0..).map(|number| format!("float {number} ")).find(|mark| !text.contains(&**mark))?;
    let (mut plain, mut rest, mut is_text) = (String::with_capacity(text.len()), text, false);
    while let Some(first) = rest.chars().next() {
        let name = NAMED_FLOATS.iter().map(|(name, _)| *name).find(|name| !is_text && rest.starts_with(name));
        let taken = match (first, name) {
            (_, Some(name)) => {
                plain.push_str(&format!("\"{mark}{name}\""));
                name.len()
            }
            ('\\', None) => {
                let escaped = rest.chars().take(2).map(char::len_utf8).sum();
                plain.push_str(&rest[..escaped]);
                escaped
            }
            (first, None) => {
                is_text ^= first == '"';
                plain.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    let mut value = Value::from(serde_json::from_str::<Json>(&plain).ok()?);
    named(&mut value, &mark).then_some(value)
}

/// Puts floats in the place of their names. Returns false if one is the name of a member.
fn named(value: &mut Value, mark: &str) -> bool {
    match value {
        Value::Str(text) => {
            let name = text.strip_prefix(mark);
            let found = NAMED_FLOATS.iter().find(|(known, _)| Some(*known) == name);
            if let Some((_, number)) = found {
                *value = (*number).into();
            }
            true
        }
        Value::List(items) => items.iter_mut().all(|item| named(item, mark)),
        Value::Map(map) => map.iter_mut().all(|(name, member)| !name.starts_with(mark) && named(member, mark)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_read_as_python_writes_them() {
        let text =
            br#"{"step": 1, "score": NaN, "all": [Infinity, -Infinity, -1.5], "text": "NaN \"Infinity\" float 0 "}"#;
        let read = json_object(text).unwrap();
        assert!(matches!(read["score"], Value::Float(score) if score.is_nan()));
        let infinite = [f64::INFINITY, f64::NEG_INFINITY, -1.5].map(Value::from);
        assert_eq!((&read["all"], &read["step"]), (&Value::List(infinite.into()), &Value::from(1)));
        assert_eq!(read["text"], Value::from(r#"NaN "Infinity" float 0 "#));
        for broken in [&b"{NaN: 1}"[..], b"[NaN]", b"{\"a\": NaNs}", b"{\"a\": NaN", b"{\"a\": \xff}"] {
            assert!(json_object(broken).is_err(), "{broken:?}");
        }
    }
}
