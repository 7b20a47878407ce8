//! Every row of the databases in `tests/parity/checkpoint` is put and read again.

use std::path::{Path, PathBuf};

use annals::history::{Snapshot, diff};
use annals::store::{Store, ThreadQuery};
use annals_base::{Map, Value};
use annals_langgraph::{
    Config, ListQuery, LostRace, NewValue, Saver, SaverCheckpoint, SaverWrite, StoredValue, Tuple, Typed,
};
use annals_runs::SnapshotRuns;
use rusqlite::{Connection, OpenFlags};

/// A row of the table `checkpoints`, with its writes in their order.
struct Row {
    config: Config,
    parent: Option<String>,
    checkpoint: Typed,
    metadata: Map,
    writes: Vec<WriteRow>,
}

struct WriteRow {
    task: String,
    path: String,
    index: i32,
    channel: String,
    value: Typed,
}

fn databases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/checkpoint");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sqlite"));
    paths.sort();
    assert_eq!(paths.len(), 9, "the databases are there");
    paths
}

fn rows(path: &Path) -> Vec<Row> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let has_path = conn.prepare("SELECT task_path FROM writes").is_ok();
    let path = if has_path { "task_path" } else { "''" };
    let mut writes_of = conn
        .prepare(&format!(
            "SELECT task_id, {path}, idx, channel, type, value FROM writes \
             WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 ORDER BY {path}, task_id, idx"
        ))
        .unwrap();
    let mut checkpoints = conn
        .prepare(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata \
             FROM checkpoints ORDER BY checkpoint_id",
        )
        .unwrap();
    let found = checkpoints.query_map([], |row| {
        let (thread, namespace, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let writes = writes_of.query_map([&thread, &namespace, &id], |row| {
            Ok(WriteRow {
                task: row.get(0)?,
                path: row.get(1)?,
                index: row.get(2)?,
                channel: row.get(3)?,
                value: Typed::new(row.get::<_, String>(4)?, row.get(5)?),
            })
        })?;
        let metadata: Option<Vec<u8>> = row.get(6)?;
        let metadata = metadata.map_or_else(|| serde_json::json!({}), |text| serde_json::from_slice(&text).unwrap());
        let metadata = match Value::from(metadata) {
            Value::Map(metadata) => metadata,
            other => panic!("{other}"),
        };
        Ok(Row {
            config: Config::new(thread, namespace).at(id),
            parent: row.get(3)?,
            checkpoint: Typed::new(row.get::<_, String>(4)?, row.get(5)?),
            metadata,
            writes: writes.collect::<Result<_, _>>()?,
        })
    });
    found.unwrap().map(Result::unwrap).collect()
}

fn put(saver: &Saver, row: &Row) {
    let id = row.config.checkpoint().unwrap();
    let new = SaverCheckpoint::from_value(id, row.checkpoint.clone(), row.metadata.clone());
    let mut parent = row.config.clone();
    parent.checkpoint.clone_from(&row.parent);
    saver.put(&parent, new, LostRace::Branch).unwrap();
    let write = |write: &WriteRow| {
        SaverWrite::new(&*write.task, &*write.path, write.index, &*write.channel, write.value.clone())
    };
    saver.put_indexed_writes(&row.config, row.writes.iter().map(write).collect()).unwrap();
}

/// Returns the bytes of the channels of a checkpoint, sorted.
fn channels(new: SaverCheckpoint) -> Vec<(String, Typed)> {
    let mut channels: Vec<(String, Typed)> = new
        .values
        .into_iter()
        .map(|(name, value)| match value {
            NewValue::Typed(value) => (name, value),
            other => panic!("{other:?}"),
        })
        .collect();
    channels.sort_by(|a, b| a.0.cmp(&b.0));
    channels
}

fn verify(row: &Row, tuple: &Tuple, place: &str) {
    assert_eq!(tuple.parent.as_ref().and_then(|parent| parent.checkpoint.as_ref()), row.parent.as_ref(), "{place}");
    assert_eq!(tuple.metadata, row.metadata, "{place}");
    let written: Vec<_> = tuple
        .writes
        .iter()
        .map(|write| (&*write.task, &*write.path, write.index, &*write.channel, &write.value))
        .collect();
    let expected: Vec<_> = row
        .writes
        .iter()
        .map(|write| (&*write.task, &*write.path, write.index, &*write.channel, &write.value))
        .collect();
    assert_eq!(written, expected, "{place}");
    let id = row.config.checkpoint().unwrap();
    let back = SaverCheckpoint::from_value(id, tuple.to_value().unwrap(), row.metadata.clone());
    let mut original = SaverCheckpoint::from_value(id, row.checkpoint.clone(), row.metadata.clone());
    original.seen.iter_mut().for_each(|(_, versions)| versions.sort_by(|a, b| a.0.cmp(&b.0)));
    original.seen.sort_by(|a, b| a.0.cmp(&b.0));
    original.versions.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        (back.v, &back.ts, &back.updated, &back.extra),
        (original.v, &original.ts, &original.updated, &original.extra)
    );
    assert_eq!((&back.versions, &back.seen), (&original.versions, &original.seen), "{place}");
    assert_eq!(channels(back), channels(original), "{place}");
}

#[test]
fn every_row_comes_back_with_its_bytes() {
    for path in databases() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("saver.db");
        let rows = rows(&path);
        assert!(!rows.is_empty(), "{name}");
        let saver = Saver::new(Store::open(&file).unwrap());
        rows.iter().for_each(|row| put(&saver, row));
        drop(saver);

        let store = Store::open(&file).unwrap();
        assert_eq!(store.check().unwrap().problems, [], "{name}");
        let saver = Saver::new(store);
        for row in &rows {
            let place = format!("{name}: {:?}", row.config);
            let tuple = saver.tuple(&row.config).unwrap().unwrap_or_else(|| panic!("{place} is stored"));
            verify(row, &tuple, &place);
        }
        let listed: Vec<Config> = saver.list(ListQuery::new()).unwrap().map(|tuple| tuple.unwrap().config).collect();
        assert_eq!(listed.len(), rows.len(), "{name}");
        assert!(listed.is_sorted_by(|a, b| a.checkpoint >= b.checkpoint), "{name}: the greatest id first");
    }
}

#[test]
fn the_engine_reads_what_the_saver_stored() {
    for path in databases() {
        let store = Store::memory();
        let saver = Saver::new(store.clone());
        rows(&path).iter().for_each(|row| put(&saver, row));
        drop(saver);
        let threads = store.threads_with(ThreadQuery::new()).unwrap();
        assert!(!threads.is_empty(), "{path:?}");
        for thread in threads {
            let thread = store.thread(thread.id()).unwrap();
            let snapshots: Vec<Snapshot> = thread.history().unwrap().map(Result::unwrap).collect();
            for snapshot in &snapshots {
                let channels = snapshot.channels().unwrap();
                assert!(channels.iter().all(|channel| !channel.starts_with("__")), "{channels:?}");
                let values = snapshot.values().unwrap();
                assert!(values.len() <= channels.len());
                snapshot.writes().unwrap().iter().for_each(|write| _ = write.to_value().unwrap());
                snapshot.interrupts().unwrap();
            }
            for pair in snapshots.windows(2) {
                diff(&pair[1], &pair[0]).unwrap();
            }
        }
    }
}

#[test]
fn messages_of_a_database_are_messages_of_the_log() {
    let path = databases().into_iter().find(|path| path.ends_with("chat_30_turns.sqlite")).unwrap();
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    rows(&path).iter().for_each(|row| put(&saver, row));
    saver.flush().unwrap();
    let head = store.thread("chat").unwrap().head().unwrap().expect("a head");
    let messages = head.messages("messages", annals::store::ItemRange::All).unwrap();
    let tuple = saver.tuple(&Config::new("chat", "")).unwrap().unwrap();
    let (_, StoredValue::Items(items)) = tuple.values.iter().find(|(name, _)| name == "messages").unwrap() else {
        panic!("the messages are a list")
    };
    assert_eq!((messages.len(), items.len()), (60, 60));
    assert_eq!((messages[0].kind(), messages[1].kind()), ("human", "ai"));
}
