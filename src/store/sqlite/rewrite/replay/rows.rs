//! Reads the rows of a file without trusting one of them.
//!
//! Checks of rows are not verified here: the checksums of checkpoints and of runs of writes cover all that is read.
//! Each row is found by its key, so damage of a page concerns its rows alone. *Absent:* derived columns, which are
//! computed anew.

use super::scan::scan;
use super::{reason, sql};
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::limits::NAMES_CACHE_MAX;
use crate::store::batch::{NewCheckpoint, Parent, Payload};
use crate::store::record::TaskRecord;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::blobs;
use crate::store::sqlite::rows::checkpoint::{run_and_time, source_of, task_records};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{unpack_parents, unpack_tasks};
use crate::store::sqlite::rows::payload::{Room, decode, form_column};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::task::{join_path, of_path_column, prepared};
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{
    OwnedColumns, RunColumn, TableRow, checkpoint, item, payload, timer, version, write,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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
        let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Arc<str>)>> {
            conn.all(sql::LISTS_FROM, [from, limit as i64, Kind::List as i64])
        };
        scan(
            0,
            &mut page,
            &mut |(id, text)| {
                lists.insert(text, id);
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

    /// Returns checkpoints from a `seq` on, in the order of the log. Each has the id and the time of its run itself.
    pub(super) fn checkpoints(&self, from: i64, limit: usize) -> Res<Vec<(i64, OwnedColumns)>> {
        self.conn.read_all(sql::CHECKPOINTS_FROM, [from, limit as i64], |row| {
            let mut columns = checkpoint::Row::owned(row)?;
            let (run, created_at): (Value, Option<i64>) = checkpoint::Row::after(row)?;
            let row = checkpoint::Row::of(&columns)?;
            let run = RunColumn::of((&run).into()).unwrap_or(RunColumn::None);
            let (seq, (run, created_at)) = (row.seq, run_and_time(&row, run, created_at));
            for (column, value) in checkpoint::TABLE.columns.iter().zip(&mut columns) {
                match column.name {
                    "run" => *value = run.map_or(Value::Null, |run| Value::Blob(run.to_vec())),
                    "created_at" => *value = Value::Integer(created_at),
                    _ => {}
                }
            }
            Ok((seq, columns))
        })
    }

    /// Begins a checkpoint anew: with what its row alone states.
    pub(super) fn begin_new(&self, row: &checkpoint::Row<'_>, parent: Option<Parent>) -> Res<NewCheckpoint> {
        let wrong = |what: &str| corrupt(row.place(), format!("{what} does not match the format"));
        let source = source_of(row.source).ok_or_else(|| wrong("source"))?;
        let (id, created_at) = (CheckpointId::from_bytes(row.id), Timestamp::from_micros(row.created_at));
        let mut new = NewCheckpoint::new(id, parent, row.step, source, created_at);
        new.run = if let RunColumn::Id(run) = row.run { Some(RunId::from_bytes(run)) } else { None };
        new.metadata = sealed::metadata(self.conn, &self.keys, &row.id, row.metadata, &|| row.place())?;
        new.app_version = row.app_version.map(Arc::from);
        new.parents = unpack_parents(row.parents).ok_or_else(|| wrong("parents"))?;
        Ok(new)
    }

    /// Returns the namespace, the id and the tasks of a checkpoint.
    pub(super) fn checkpoint(&self, seq: i64) -> Res<(i64, [u8; 16], Vec<TaskRecord>)> {
        let found: Option<(i64, [u8; 16], Option<Vec<u8>>)> = self.conn.first(sql::CHECKPOINT, [seq])?;
        let (namespace, id, tasks) = found.ok_or_else(|| corrupt(format!("checkpoint {seq}"), "it does not exist"))?;
        Ok((namespace, id, self.tasks(tasks.as_deref())?))
    }

    /// Returns the thread and the path of a namespace; `None` if the row of the thread does not exist.
    pub(super) fn namespace(&self, id: i64) -> Res<Option<(ThreadId, Namespace)>> {
        let place = || format!("namespace {id}");
        let found: Option<(i64, String)> = self.conn.first(sql::NAMESPACE, [id])?;
        let (thread, path) = found.ok_or_else(|| corrupt(place(), "it does not exist"))?;
        let public: Option<String> = self.conn.first(engine_sql::PUBLIC_ID, [thread])?;
        let Some(public) = public else { return Ok(None) };
        let thread = ThreadId::new(public).map_err(|error| corrupt(place(), error.to_string()))?;
        Ok(Some((thread, Namespace::new(path).map_err(|error| corrupt(place(), error.to_string()))?)))
    }

    /// Returns whether a namespace is one of a deleted thread.
    pub(super) fn is_of_deleted(&self, namespace: i64) -> Res<bool> {
        self.conn.one(sql::IS_OF_DELETED, [namespace])
    }

    /// Returns the text of a name.
    pub(super) fn name(&self, kind: Kind, id: i64) -> Res<Arc<str>> {
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES_CACHE_MAX {
            names.clear();
        }
        let found = match names.get(&id) {
            Some(found) => Some(found.clone()),
            None => self.conn.first(sql::NAME, [id])?,
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

    /// Returns the path of a task by the column of the first row of a run.
    pub(super) fn path(&self, tasks: &[TaskRecord], row: &write::Row<'_>) -> Res<Arc<str>> {
        let wrong = |why| corrupt(format!("write (task {})", row.task), why);
        match row.path {
            ValueRef::Integer(column) => {
                let (name, number) = of_path_column(column);
                Ok(join_path(&self.name(Kind::Path, name)?, number).into())
            }
            ValueRef::Null => Ok(prepared(row.task, tasks).ok_or_else(|| wrong("it has no path"))?.path()),
            path => Ok(path.as_str().map_err(|_| wrong("its path does not match the format"))?.into()),
        }
    }

    /// Returns the versions at an ordinal of a branch.
    pub(super) fn versions(&self, branch: i64, ordinal: i64) -> Res<Vec<OwnedColumns>> {
        self.conn.read_all(engine_sql::VERSIONS_AT, [branch, ordinal], |row| version::Row::owned(row))
    }

    /// Returns the rows of a list at an ordinal of a branch.
    pub(super) fn items(&self, branch: i64, ordinal: i64, list: i64) -> Res<Vec<OwnedColumns>> {
        if self.read_lists.borrow_mut().insert((branch, list)) {
            self.read_list(branch, list)?;
        }
        self.items.read_all(sql::ITEMS, [branch, ordinal, list], |row| item::Row::owned(row))
    }

    /// Reads all rows of a list on a branch. Rows that cannot be read make the checksums of their checkpoints fail.
    fn read_list(&self, branch: i64, list: i64) -> Res<()> {
        let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Vec<OwnedColumns>)>> {
            let mut statement = self.conn.prepare_cached(sql::ITEMS_FROM)?;
            let mut rows = statement.query([branch, list, from])?;
            let mut found: Vec<(i64, Vec<OwnedColumns>)> = Vec::new();
            loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row,
                    Ok(None) => break,
                    // The rows of a position that come before a damaged page.
                    Err(_) if limit == 1 && !found.is_empty() => break,
                    Err(error) => return Err(error.into()),
                };
                let item = item::Row::owned(row)?;
                let position = item::Row::of(&item)?.slot;
                if (position < 0) != (from < 0) {
                    break;
                }
                let count = found.len();
                match found.last_mut() {
                    Some((last, rows)) if *last == position => rows.push(item),
                    _ if count == limit => break,
                    _ => found.push((position, vec![item])),
                }
            }
            Ok(found)
        };
        let mut put = |(_, rows): (i64, Vec<OwnedColumns>)| -> Res<()> {
            rows.iter().try_for_each(|row| self.items.run(sql::ITEMS_INSERT, params_from_iter(row)).map(|_| ()))
        };
        // Range deletes have negative positions, and items others: damage of the first does not touch the second.
        scan(i64::MIN, &mut page, &mut put, &mut |_, _, _| Ok(()))?;
        scan(0, &mut page, &mut put, &mut |_, _, _| Ok(()))
    }

    /// Returns the writes of the tasks of a checkpoint.
    pub(super) fn writes(&self, seq: i64) -> Res<Vec<OwnedColumns>> {
        self.conn.read_all(write::Row::UNDER, [seq], |row| write::Row::owned(row))
    }

    /// Returns the timers of a namespace; of a row that cannot be decoded, the reason.
    pub(super) fn timers(&self, namespace: i64) -> Res<Vec<Result<timer::Row, String>>> {
        self.conn.read_all(timer::Row::UNDER, [namespace], |row| match timer::Row::read(row, 0) {
            Ok(timer) => Ok(Ok(timer)),
            Err(fault) => reason(fault).map(Err),
        })
    }

    /// Returns the value of a column; a NULL has none.
    pub(super) fn value(&self, column: ValueRef<'_>) -> Res<Option<Payload>> {
        match column {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(id) => self.payload(id, Room::of(&self.keys, blobs::read).unverified()).map(Some),
            ValueRef::Blob(_) if self.keys.seal_content() => Err(corrupt("an inline value", "it is not sealed")),
            ValueRef::Blob(bytes) => Ok(Some(Payload::new(bytes.to_vec()))),
            _ => Err(corrupt("an inline value", "its type does not match the format")),
        }
    }

    /// Returns a payload whose check matches.
    pub(super) fn verified_payload(&self, id: i64) -> Res<Payload> {
        self.payload(id, Room::of(&self.keys, blobs::read))
    }

    fn payload(&self, id: i64, mut room: Room<'_>) -> Res<Payload> {
        let read = |row: &Row<'_>| Ok(decode(self.conn, row, 0, id, form_column(row, 0)?, &mut room)?.to_payload());
        let found = self.conn.read_first(payload::Row::BY_KEY, [id], read)?;
        found.ok_or_else(|| corrupt(format!("payload {id}"), "it does not exist"))
    }
}
