//! The stored file of the format: it shows what the build that wrote it showed, and is written to.

mod show;
mod write;

use annals::base::{IdSource, Timestamp};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, Payload};
use annals::store::log::{FileStore, Log, LogExt};
use annals::store::{ItemRange, OpenOptions, Source, SqliteBackend};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat");

/// Copies a stored file into a folder of its own.
fn copy(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    fs::copy(Path::new(FOLDER).join(name), &path).unwrap();
    (folder, path)
}

/// Returns the content of a file as the version that wrote it showed it.
fn shown(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(FOLDER).join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn assert_shows(store: &dyn Log, expected: &[Value]) {
    let found = show::show(store);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn the_stored_file_shows_what_its_build_showed() {
    let (folder, path) = copy("format-1.db");
    let expected = shown("format-1.json");
    for read_only in [true, false] {
        let store = SqliteBackend::open(&path, &OpenOptions::new().read_only(read_only)).unwrap();
        assert_shows(&store, &expected);
        assert_eq!(store.check().unwrap().problems, Vec::<annals::store::check::Finding>::new());
    }
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["store.db"]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "make.sh names the folder of the stored file by a variable")]
fn a_file_with_the_content_of_the_stored_one_shows_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    write::write(&path);
    let store = SqliteBackend::open(&path, &OpenOptions::new()).unwrap();
    if let Some(made) = std::env::var_os("ANNALS_COMPAT_FOLDER").map(PathBuf::from) {
        store.compact().unwrap();
        let lines = show::show(&store).into_iter().map(|line| format!("{line}\n"));
        fs::write(made.join("format-1.json"), lines.collect::<String>()).unwrap();
        drop(store);
        fs::copy(&path, made.join("format-1.db")).unwrap();
        return;
    }
    assert_shows(&store, &shown("format-1.json"));
}

/// Returns the number of items of the list `messages` at the head of each thread.
fn lengths(store: &SqliteBackend) -> Vec<(String, u64)> {
    let heads = store.threads(None, 100).unwrap();
    let length = |head: &annals::store::CheckpointRef| store.list_len(head, "messages").unwrap();
    heads.iter().map(|thread| (thread.id.to_string(), length(&thread.head.point))).collect()
}

#[test]
fn every_thread_of_the_stored_file_is_continued_and_forked_and_deleted() {
    let (_folder, path) = copy("format-1.db");
    let store = SqliteBackend::open(&path, &OpenOptions::new()).unwrap();
    let mut ids = IdSource::from_seed(5);
    let before = lengths(&store);
    for thread in store.threads(None, 100).unwrap() {
        let head = thread.head.point;
        let state = store.state(&head).unwrap();
        let version = state.channels.iter().map(|channel| channel.version).max().unwrap_or(0) + 1;
        let mut position = 0;
        let mut last = |row: annals::store::record::ItemRow<'_>| {
            position = row.position + 1;
            Ok(())
        };
        store.items(&head, "messages", ItemRange::Tail(1), &mut last).unwrap();
        let now = Timestamp::from_micros(1_900_000_000_000_000);
        let id = ids.checkpoint(now, 1, Some(&head.checkpoint));
        let parent = Some(Parent::Local(head.checkpoint));
        let mut next = NewCheckpoint::new(id, parent, thread.head.step + 1, Source::Loop, now);
        let put = ItemChange::new(position, ItemOp::Put(Data::New(Payload::new(vec![0x2a]))), None);
        next.changes.push(Change::new("messages", version, ChangeValue::Items(vec![put])));
        let mut batch = Batch::new(head.thread.clone(), head.namespace.clone(), Some(head.checkpoint));
        batch.checkpoints.push(next);
        store.commit(&batch).unwrap();
    }
    let after: Vec<(String, u64)> = before.into_iter().map(|(thread, length)| (thread, length + 1)).collect();
    assert_eq!(lengths(&store), after);
    assert_eq!(store.check().unwrap().problems, Vec::<annals::store::check::Finding>::new());
    // The forks of a thread are known, and what nothing else uses goes with the last thread.
    let all: Vec<_> = store.threads(None, 100).unwrap().into_iter().map(|thread| thread.id).collect();
    for (forked, fork) in [("alice", "bob"), ("deep", "deep-2")] {
        let forked: Vec<_> = all.iter().filter(|id| id.as_str() == forked).cloned().collect();
        let error = store.delete_threads(&forked).unwrap_err().to_string();
        assert!(error.contains(&format!("thread {fork} was forked from it")), "{error}");
    }
    let _ = store.delete_threads(&all).unwrap();
    while !store.reclaim().unwrap().is_erased() {}
    let report = store.check().unwrap();
    assert_eq!((report.threads, report.checkpoints, report.problems), (0, 0, Vec::new()));
}
