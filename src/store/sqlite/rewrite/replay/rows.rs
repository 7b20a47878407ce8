//! Reads the rows of a file without trusting one of them.
//!
//! Checks of rows are not verified here: the checksums of checkpoints and of runs of writes cover all that is read.
//! Each row is found by its key, so damage of a page concerns its rows alone. *Absent:* derived columns, which are
//! computed anew.

use super::scan::scan;
use super::sql;
use crate::base::internal::hash::Checksum;
use crate::base::{CheckpointId, Codec, Namespace, RunId, TaskId, ThreadId, Timestamp};
use crate::limits::NAMES_CACHE_MAX;
use crate::store::batch::{ItemIndex, NewCheckpoint, Parent, Payload};
use crate::store::record::TaskRecord;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::checkpoint::{source_of, task_records};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{unpack_parents, unpack_tasks};
use crate::store::sqlite::rows::payload::{Room, decode, form_column};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::version::{of_kind_column, version_of_column};
use crate::store::sqlite::tables::{Bare, TableRow, checkpoint, payload, write};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A row of `checkpoint`.
#[derive(Clone, Debug)]
pub(super) struct OldCheckpoint {
    pub(super) seq: i64,
    pub(super) namespace: i64,
    pub(super) id: [u8; 16],
    pub(super) parent: Option<i64>,
    pub(super) branch: i64,
    pub(super) ordinal: i64,
    pub(super) step: i64,
    pub(super) source: i64,
    pub(super) created_at: i64,
    pub(super) run: Option<[u8; 16]>,
    pub(super) metadata: Option<String>,
    pub(super) app_version: Option<Arc<str>>,
    pub(super) parents: Option<Vec<u8>>,
    pub(super) tasks: Option<Vec<u8>>,
    pub(super) checksum: Checksum,
}

impl OldCheckpoint {
    /// Begins the checkpoint anew: with what its row alone states.
    pub(super) fn begin_new(&self, parent: Option<Parent>) -> Res<NewCheckpoint> {
        let wrong =
            |what: &str| corrupt(format!("checkpoint {}", self.seq), format!("{what} does not match the format"));
        let source = source_of(self.source).ok_or_else(|| wrong("source"))?;
        let (id, created_at) = (CheckpointId::from_bytes(self.id), Timestamp::from_micros(self.created_at));
        let mut new = NewCheckpoint::new(id, parent, self.step, source, created_at);
        new.run = self.run.map(RunId::from_bytes);
        new.metadata.clone_from(&self.metadata);
        new.app_version.clone_from(&self.app_version);
        new.parents = unpack_parents(self.parents.as_deref()).ok_or_else(|| wrong("parents"))?;
        Ok(new)
    }

    /// Returns the bytes of the columns without a fixed size.
    pub(super) fn bytes(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, String::len);
        metadata + [&self.parents, &self.tasks].into_iter().flatten().map(Vec::len).sum::<usize>()
    }
}

/// A row of `version`.
pub(super) struct OldVersion {
    pub(super) key: i64,
    pub(super) version: i64,
    pub(super) kind: i64,
    pub(super) task: Option<u32>,
    pub(super) value: Value,
}

/// A row of `item`.
pub(super) struct OldItem {
    pub(super) position: i64,
    pub(super) op: i64,
    pub(super) task: Option<u32>,
    pub(super) value: Value,
}

/// A row of `write`.
pub(super) struct OldWrite {
    pub(super) task: i64,
    pub(super) index: i32,
    pub(super) part: i64,
    pub(super) channel: i64,
    pub(super) value: Value,
    pub(super) child: Option<i64>,
    pub(super) path: Option<String>,
    pub(super) sum: Value,
    pub(super) mark: Option<i64>,
}

/// A row of `timer`.
pub(super) struct OldTimer {
    pub(super) task: [u8; 16],
    pub(super) checkpoint: i64,
    pub(super) wake_at: i64,
    /// The check that the new row must have.
    pub(super) check: i64,
}

/// The rows of a file.
pub(super) struct OldRows<'c> {
    pub(super) conn: &'c Connection,
    pub(super) keys: Arc<Keys>,
    /// The rows of the lists that were read, in the order of the checkpoints.
    items: Connection,
    read_lists: RefCell<HashSet<(i64, i64)>>,
    names: RefCell<HashMap<i64, (i64, Arc<str>)>>,
    lists: HashMap<Arc<str>, i64>,
}

impl<'c> OldRows<'c> {
    /// Makes a reader of the rows of `conn`.
    pub(super) fn new(conn: &'c Connection, keys: Arc<Keys>) -> Res<Self> {
        // Without a name, SQLite makes a temporary file, which it removes.
        let items = Connection::open("")?;
        items.execute_batch(sql::PLACES_TABLE)?;
        items.execute_batch(sql::ITEMS_TABLE)?;
        let mut lists = HashMap::new();
        let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Option<Arc<str>>)>> {
            let mut statement = conn.prepare_cached(sql::LISTS_FROM)?;
            let rows = statement.query_map(params![from, limit as i64], |row| {
                let text = if row.get::<_, i64>(1)? == Kind::List as i64 { Some(row.get(2)?) } else { None };
                Ok((row.get(0)?, text))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        };
        scan(
            0,
            &mut page,
            &mut |(id, text)| {
                lists.extend(text.map(|text| (text, id)));
                Ok(())
            },
            // A list whose name is lost makes its checkpoints fail.
            &mut |_, _, _| Ok(()),
        )?;
        Ok(Self { conn, keys, items, read_lists: RefCell::default(), names: RefCell::default(), lists })
    }

    /// Returns the temporary file in which the replay notes the rows it has written.
    pub(super) fn scratch(&self) -> &Connection {
        &self.items
    }

    /// Returns checkpoints from a `seq` on, in the order of the log.
    pub(super) fn checkpoints(&self, from: i64, limit: usize) -> Res<Vec<(i64, OldCheckpoint)>> {
        let mut statement = self.conn.prepare_cached(sql::CHECKPOINTS_FROM)?;
        let mut rows = statement.query(params![from, limit as i64])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let row = checkpoint::Row::read(row, 0)?;
            found.push((row.seq, self.read_checkpoint(&row)?));
        }
        Ok(found)
    }

    /// Returns the namespace, the id and the tasks of a checkpoint.
    pub(super) fn checkpoint(&self, seq: i64) -> Res<(i64, [u8; 16], Vec<TaskRecord>)> {
        let mut statement = self.conn.prepare_cached(sql::CHECKPOINT)?;
        let found: Option<(i64, [u8; 16], Option<Vec<u8>>)> =
            statement.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
        let (namespace, id, tasks) = found.ok_or_else(|| corrupt(format!("checkpoint {seq}"), "it does not exist"))?;
        Ok((namespace, id, self.tasks(tasks.as_deref())?))
    }

    /// Returns the thread and the path of a namespace; `None` if the row of the thread does not exist.
    pub(super) fn namespace(&self, id: i64) -> Res<Option<(ThreadId, Namespace)>> {
        let place = || format!("namespace {id}");
        let found: Option<(i64, String)> = self
            .conn
            .prepare_cached(sql::NAMESPACE)?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let (thread, path) = found.ok_or_else(|| corrupt(place(), "it does not exist"))?;
        let public: Option<String> =
            self.conn.prepare_cached(sql::THREAD)?.query_row([thread], |row| row.get(0)).optional()?;
        let Some(public) = public else { return Ok(None) };
        let thread = ThreadId::new(public).map_err(|error| corrupt(place(), error.to_string()))?;
        Ok(Some((thread, Namespace::new(path).map_err(|error| corrupt(place(), error.to_string()))?)))
    }

    /// Returns whether a namespace is one of a deleted thread.
    pub(super) fn is_of_deleted(&self, namespace: i64) -> Res<bool> {
        Ok(self.conn.prepare_cached(sql::IS_OF_DELETED)?.query_row([namespace], |row| row.get(0))?)
    }

    /// Returns the text of a name.
    pub(super) fn name(&self, kind: Kind, id: i64) -> Res<Arc<str>> {
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES_CACHE_MAX {
            names.clear();
        }
        let found = match names.get(&id) {
            Some(found) => Some(found.clone()),
            None => {
                let mut statement = self.conn.prepare_cached(sql::NAME)?;
                statement.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?
            }
        };
        match found {
            Some((stored, text)) if stored == kind as i64 => {
                names.insert(id, (stored, Arc::clone(&text)));
                Ok(text)
            }
            _ => Err(corrupt(format!("name {id}"), format!("it does not stand for a {kind:?}"))),
        }
    }

    /// Returns the id under which a channel has items.
    pub(super) fn list(&self, channel: &str) -> Option<i64> {
        self.lists.get(channel).copied()
    }

    /// Decodes tasks.
    pub(super) fn tasks(&self, column: Option<&[u8]>) -> Res<Vec<TaskRecord>> {
        let Some(bytes) = column else { return Ok(Vec::new()) };
        let packed = unpack_tasks(bytes).ok_or_else(|| corrupt("checkpoint", "its tasks cannot be decoded"))?;
        task_records(packed, |kind, id| self.name(kind, id))
    }

    /// Returns the id of a task by its number in the rows of `write`.
    pub(super) fn task(&self, tasks: &[TaskRecord], code: i64) -> Res<TaskId> {
        let wrong = || corrupt(format!("write (task {code})"), "its task does not exist");
        match usize::try_from(code) {
            Ok(position) => tasks.get(position).map(|task| task.id).ok_or_else(wrong),
            Err(_) => {
                let name = self.name(Kind::Task, code.checked_neg().ok_or_else(wrong)?)?;
                name.parse().map_err(|_| wrong())
            }
        }
    }

    /// Returns the versions at an ordinal of a branch.
    pub(super) fn versions(&self, branch: i64, ordinal: i64) -> Res<Vec<OldVersion>> {
        let mut statement = self.conn.prepare_cached(sql::VERSIONS)?;
        let versions = statement.query_map(params![branch, ordinal], |row| {
            let (kind, _) = of_kind_column(row.get(2)?);
            let version = version_of_column(kind, row.get(1)?, ordinal);
            Ok(OldVersion { key: row.get(0)?, version, kind, task: row.get(3)?, value: row.get(4)? })
        })?;
        Ok(versions.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the rows of a list at an ordinal of a branch.
    pub(super) fn items(&self, branch: i64, ordinal: i64, list: i64) -> Res<Vec<OldItem>> {
        if self.read_lists.borrow_mut().insert((branch, list)) {
            self.read_list(branch, list)?;
        }
        let mut statement = self.items.prepare_cached(sql::ITEMS)?;
        let items = statement.query_map(params![branch, ordinal, list], |row| {
            Ok(OldItem { position: row.get(0)?, op: row.get(1)?, task: row.get(2)?, value: row.get(3)? })
        })?;
        Ok(items.collect::<rusqlite::Result<_>>()?)
    }

    /// Reads all rows of a list on a branch. Rows that cannot be read make the checksums of their checkpoints fail.
    fn read_list(&self, branch: i64, list: i64) -> Res<()> {
        type Rows = Vec<(i64, Option<u32>, i64, Value)>;
        let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Rows)>> {
            let mut statement = self.conn.prepare_cached(sql::ITEMS_FROM)?;
            let mut rows = statement.query(params![branch, list, from])?;
            let mut found: Vec<(i64, Rows)> = Vec::new();
            loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row,
                    Ok(None) => break,
                    // The rows of a position that come before a damaged page.
                    Err(_) if limit == 1 && !found.is_empty() => break,
                    Err(error) => return Err(error.into()),
                };
                let position: i64 = row.get(0)?;
                if (position < 0) != (from < 0) {
                    break;
                }
                let item = (row.get(1)?, row.get(3)?, row.get(2)?, row.get(4)?);
                let count = found.len();
                match found.last_mut() {
                    Some((last, rows)) if *last == position => rows.push(item),
                    _ if count == limit => break,
                    _ => found.push((position, vec![item])),
                }
            }
            Ok(found)
        };
        let mut put = |(position, rows): (i64, Rows)| -> Res<()> {
            let mut insert = self.items.prepare_cached(sql::ITEMS_INSERT)?;
            for (ordinal, task, op, value) in rows {
                insert.execute(params![branch, list, position, ordinal, op, task, value])?;
            }
            Ok(())
        };
        // Range deletes have negative positions, and items others: damage of the first does not touch the second.
        scan(i64::MIN, &mut page, &mut put, &mut |_, _, _| Ok(()))?;
        scan(0, &mut page, &mut put, &mut |_, _, _| Ok(()))
    }

    /// Returns the writes of the tasks of a checkpoint.
    pub(super) fn writes(&self, seq: i64) -> Res<Vec<OldWrite>> {
        let mut statement = self.conn.prepare_cached(sql::WRITES)?;
        let (mut rows, mut writes) = (statement.query([seq])?, Vec::new());
        while let Some(row) = rows.next()? {
            let row = write::Row::read(row, 0)?;
            let wrong = |what: &str| corrupt(row.place(), format!("{what} does not match the format"));
            writes.push(OldWrite {
                task: row.task,
                index: i32::try_from(row.idx).map_err(|_| wrong("idx"))?,
                part: row.part,
                channel: row.channel,
                value: row.value.0.try_into().map_err(|_| wrong("value"))?,
                child: row.child,
                path: row.path.map(str::to_owned),
                sum: row.sum.try_into().map_err(|_| wrong("sum"))?,
                mark: row.mark,
            });
        }
        Ok(writes)
    }

    /// Returns the timers of a namespace; of a row that cannot be decoded, the reason.
    pub(super) fn timers(&self, namespace: i64) -> Res<Vec<Result<OldTimer, String>>> {
        let mut statement = self.conn.prepare_cached(sql::TIMERS)?;
        let timers = statement.query_map([namespace], |row| {
            let timer = || {
                Ok(OldTimer { task: row.get(0)?, checkpoint: row.get(1)?, wake_at: row.get(2)?, check: row.get(3)? })
            };
            Ok(timer().map_err(|error: rusqlite::Error| error.to_string()))
        })?;
        Ok(timers.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the value of a column; a NULL has none.
    pub(super) fn value(&self, column: &Value) -> Res<Option<Payload>> {
        match column {
            Value::Null => Ok(None),
            Value::Integer(id) => self.payload(*id).map(Some),
            Value::Blob(_) if self.keys.seal_content() => Err(corrupt("an inline value", "it is not sealed")),
            Value::Blob(bytes) => Ok(Some(Payload::new(bytes.clone()))),
            _ => Err(corrupt("an inline value", "its type does not match the format")),
        }
    }

    /// Returns a payload whose check matches.
    pub(super) fn verified_payload(&self, id: i64) -> Res<Payload> {
        let mut statement = self.conn.prepare_cached(payload::Row::BY_KEY)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Err(corrupt(format!("payload {id}"), "it does not exist")) };
        let mut room = Room::of(&self.keys, blobs::read);
        Ok(decode(self.conn, row, 0, id, form_column(row, 0)?, &mut room)?.to_payload())
    }

    fn payload(&self, id: i64) -> Res<Payload> {
        if self.keys.seal_content() {
            return self.verified_payload(id);
        }
        let mut statement = self.conn.prepare_cached(sql::PAYLOAD)?;
        let mut rows = statement.query([id])?;
        let wrong = |what: &str| corrupt(format!("payload {id}"), format!("{what} does not match the format"));
        let Some(row) = rows.next()? else { return Err(corrupt(format!("payload {id}"), "it does not exist")) };
        let form: i64 = row.get(0)?;
        let codec = u8::try_from(form >> 2).map_err(|_| wrong("form"))?;
        let bytes = |column: Value| match column {
            Value::Blob(bytes) => Ok(bytes),
            Value::Text(text) => Ok(text.into_bytes()),
            Value::Integer(blob) => self.blob(blob),
            _ => Err(wrong("data")),
        };
        let mut payload = Payload::new(bytes(row.get(1)?)?);
        payload.codec = Codec::from_tag(codec);
        if form & 1 == 0 {
            return Ok(payload);
        }
        let mut index = ItemIndex::default();
        index.kind = row.get(3)?;
        index.id = match row.get(2)? {
            Value::Null => None,
            Value::Blob(id) => {
                let id = uuid::Uuid::from_slice(&id).map_err(|_| wrong("item_id"))?;
                Some(id.hyphenated().to_string().into())
            }
            Value::Text(id) => Some(id.into()),
            _ => return Err(wrong("item_id")),
        };
        index.text = match row.get(4)? {
            Value::Null => None,
            text => Some(String::from_utf8(bytes(text)?).map_err(|_| wrong("text"))?),
        };
        if form & 2 != 0 {
            (index.name, index.tool_calls) = (row.get(5)?, row.get(6)?);
            (index.input_tokens, index.output_tokens) = (row.get(7)?, row.get(8)?);
        }
        Ok(payload.with_index(index))
    }

    fn blob(&self, id: i64) -> Res<Vec<u8>> {
        let mut statement = self.conn.prepare_cached(sql::BLOB)?;
        let found: Option<Value> = statement.query_row([id], |row| row.get(0)).optional()?;
        match found {
            Some(Value::Blob(bytes)) => Ok(bytes),
            Some(Value::Text(text)) => Ok(text.into_bytes()),
            _ => Err(corrupt(format!("blob {id}"), "it does not exist")),
        }
    }

    fn read_checkpoint(&self, row: &checkpoint::Row<'_>) -> Res<OldCheckpoint> {
        let metadata = sealed::metadata(self.conn, &self.keys, &row.id, row.metadata, &|| row.place())?;
        Ok(OldCheckpoint {
            seq: row.seq,
            namespace: row.namespace,
            id: row.id,
            parent: row.parent,
            branch: row.branch,
            ordinal: row.ordinal,
            step: row.step,
            source: row.source,
            created_at: row.created_at,
            run: row.run,
            metadata,
            app_version: row.app_version.map(Arc::from),
            parents: row.parents.map(<[u8]>::to_vec),
            tasks: row.tasks.map(<[u8]>::to_vec),
            checksum: row.sum,
        })
    }
}
