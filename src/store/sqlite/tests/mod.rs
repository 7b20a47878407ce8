//! Tests of the SQLite backend: helpers, and a file per topic.

mod app_version;
mod backup;
mod calls;
mod check_rows;
mod check_since;
mod checksum_rows;
#[cfg(feature = "encryption")]
mod cipher;
mod commit;
mod compact;
mod damage;
mod erase;
mod erase_slices;
mod files;
mod flips;
mod forks;
mod format;
mod groups;
mod growth;
mod heads;
mod identity;
mod inspecting;
mod interning;
mod invariants;
mod item_pages;
mod item_rows;
mod jobs;
#[cfg(feature = "encryption")]
mod key_rows;
mod kv_rows;
mod lease_rows;
mod leases;
mod lineages;
mod list_ends;
mod listings;
mod log_links;
mod opening;
mod operations;
mod outcomes;
mod packing;
mod prune_slices;
mod reader_pool;
mod readers;
mod recover;
mod recovering;
#[cfg(feature = "encryption")]
mod replays;
mod roundtrip;
mod run_rows;
mod schema;
#[cfg(feature = "encryption")]
mod sealing;
mod search;
mod search_index;
mod searching;
mod side_tables;
mod thread_queue;
mod thread_rows;
mod thread_writes;
mod threads;
mod timers;
mod transactions;
mod unordered;
mod waits;
#[cfg(target_os = "linux")]
mod wal_events;
mod wal_pages;
mod wal_tail;
mod write_path;
mod write_rows;

use super::SqliteBackend;
use crate::base::{CheckpointId, IdSource, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, NewWrite, NewWrites, Parent,
    Payload, Seen, WriteRef, WriteValue,
};
use crate::store::log::{FileStore, Log, LogExt, LogReads};
use crate::store::options::{OpenOptions, Synchronous};
use crate::store::query::ItemRange;
use crate::store::record::{CheckpointRef, Source, TaskKind, TaskRecord};
use crate::store::sqlite::file::table_group::TableGroup;
use rusqlite::config::DbConfig;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Makes the tables that a file gets at their first use, without rows.
pub(super) fn make_groups(path: &Path) {
    let conn = raw(path);
    conn.execute_batch("BEGIN").unwrap();
    TableGroup::ALL.into_iter().for_each(|group| group.make(&conn).unwrap());
    conn.execute_batch("COMMIT").unwrap();
}

/// A store in a folder of its own.
pub(super) struct Bench {
    pub(super) folder: TempDir,
    pub(super) store: SqliteBackend,
    pub(super) ids: IdSource,
}

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
/// The variable is read when the tests are compiled, as nothing in `src` reads the environment.
fn cases(share: usize, all: usize) -> usize {
    if option_env!("ANNALS_ALL_CASES").is_some() { all } else { share }
}

impl Bench {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("x.db"));
        Self { folder, store, ids: IdSource::from_seed(7) }
    }

    /// Opens a store with the bytes of a closed one.
    fn with_bytes(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        std::fs::write(&path, bytes).unwrap();
        Self { store: open(&path), folder, ids: IdSource::from_seed(7) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("x.db")
    }

    /// Commits a checkpoint onto `parent`, which must be local, in the root namespace of `thread`.
    pub(super) fn add(
        &mut self,
        thread: &ThreadId,
        parent: Option<CheckpointId>,
        changes: Vec<Change>,
    ) -> CheckpointId {
        let parent = parent.map(Parent::Local);
        self.add_on(thread, parent, changes)
    }

    pub(super) fn add_on(&mut self, thread: &ThreadId, parent: Option<Parent>, changes: Vec<Change>) -> CheckpointId {
        let head = self.store.head_id(thread, &Namespace::root()).unwrap();
        let above = head.into_iter().max();
        let id = self.ids.checkpoint(Timestamp::from_micros(1), 0, above.as_ref());
        let mut batch = Batch::new(thread.clone(), Namespace::root(), head);
        batch.checkpoints.push(NewCheckpoint { changes, parent, ..checkpoint(id) });
        self.store.commit(&batch).unwrap();
        id
    }

    pub(super) fn check(&self) -> Vec<String> {
        self.store.check().unwrap().problems.iter().map(ToString::to_string).collect()
    }

    /// Returns (position, text) of the items.
    pub(super) fn items(&self, at: &CheckpointRef, range: ItemRange) -> Vec<(u64, String)> {
        items(&self.store, at, range)
    }
}

pub(super) fn items(store: &SqliteBackend, at: &CheckpointRef, range: ItemRange) -> Vec<(u64, String)> {
    let mut items = Vec::new();
    let mut visit = |row: crate::store::record::ItemRow<'_>| {
        let text = row.payload.index.and_then(|index| index.text);
        let text = text.map_or_else(|| format!("{:?}", row.payload.data), str::to_owned);
        items.push((row.position, text));
        Ok(())
    };
    store.items(at, "messages", range, &mut visit).unwrap();
    items
}

/// Longer than any wait of a test that passes.
pub(super) const GUARD: std::time::Duration = std::time::Duration::from_secs(300);

/// Options for a file whose locks are waited for as long as it takes on a busy machine.
pub(super) fn options() -> OpenOptions {
    OpenOptions::new().synchronous(Synchronous::Normal).busy_timeout_ms(GUARD.as_millis() as u64)
}

pub(super) fn open(path: &std::path::Path) -> SqliteBackend {
    SqliteBackend::open(path, &options()).unwrap()
}

pub(super) fn thread(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

pub(super) fn at(thread: &ThreadId, checkpoint: CheckpointId) -> CheckpointRef {
    CheckpointRef { thread: thread.clone(), namespace: Namespace::root(), checkpoint }
}

pub(super) fn checkpoint(id: CheckpointId) -> NewCheckpoint {
    NewCheckpoint::new(id, None, 0, Source::Loop, Timestamp::from_micros(5))
}

pub(super) fn task(byte: u8, node: &str) -> TaskRecord {
    let kind = TaskKind::Pull { triggers: vec![format!("trigger:of:{node}").into()] };
    TaskRecord { id: TaskId::from_bytes([byte; 16]), name: node.into(), kind }
}

pub(super) fn plain(data: &[u8]) -> Payload {
    Payload::new(data.to_vec())
}

pub(super) fn message(id: &str, text: &str) -> Payload {
    let mut index = ItemIndex::default();
    (index.id, index.kind, index.text) = (Some(id.into()), Some("ai".into()), Some(text.into()));
    Payload::new(vec![0x80]).with_index(index)
}

pub(super) fn value(channel: &str, version: u64, payload: Payload) -> Change {
    Change { channel: channel.into(), version, value: ChangeValue::Value(Data::New(payload)), task: None }
}

pub(super) fn empty(channel: &str, version: u64) -> Change {
    Change { channel: channel.into(), version, value: ChangeValue::Empty, task: None }
}

pub(super) fn list(version: u64, items: Vec<ItemChange>) -> Change {
    Change { channel: "messages".into(), version, value: ChangeValue::Items(items), task: None }
}

pub(super) fn put(position: u64, text: &str) -> ItemChange {
    ItemChange { position, op: ItemOp::Put(Data::New(message(&format!("m{position}"), text))), task: None }
}

pub(super) fn remove(position: u64) -> ItemChange {
    ItemChange { position, op: ItemOp::Delete, task: None }
}

pub(super) fn delete_range(position: u64, end: u64) -> ItemChange {
    ItemChange { position, op: ItemOp::DeleteRange { end }, task: None }
}

pub(super) fn write(index: i32, channel: &str, value: WriteValue) -> NewWrite {
    NewWrite::new(index, channel, value)
}

pub(super) fn of_write(task: TaskId, index: i32, part: u32) -> Data {
    Data::OfWrite(WriteRef { task, index, part })
}

pub(super) fn writes(checkpoint: CheckpointId, task: &TaskRecord, writes: Vec<NewWrite>) -> NewWrites {
    NewWrites { checkpoint, task: task.id, path: task.path(), writes }
}

pub(super) fn seen(node: &str, channel: &str, version: u64) -> Seen {
    Seen { node: node.into(), versions: vec![(channel.into(), version)] }
}

/// Waits until a condition holds, and panics if it does not within some minutes.
pub(super) fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = crate::base::internal::Stopwatch::start();
    while !holds() {
        assert!(begin.elapsed() < GUARD, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A connection that is not the store's, for looking and for doing damage.
pub(super) fn raw(path: &std::path::Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

/// A connection that may change and delete rows of the log.
pub(super) fn without_triggers(path: &std::path::Path) -> rusqlite::Connection {
    let conn = raw(path);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
    conn
}
