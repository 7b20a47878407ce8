//! Sources on a disk: nothing is written beside them, and a database is read with its log.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use annals::rusqlite::Connection;
use annals_import::{SourceKind, TurnsCollector, read_sessions};
use serde_json::Value as Json;

use crate::fixtures::{fixtures, read};

/// Returns the files of a folder with their bytes.
fn disk(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(disk(&path));
        } else {
            files.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn nothing_is_written_beside_a_source() {
    for fixture in fixtures() {
        let before = disk(&fixture.input);
        read(&fixture.input, None);
        assert!(before == disk(&fixture.input), "{}", fixture.name);
    }
}

/// Makes a database of goose whose newest row stands only in its log, in a folder that may not be written if asked for.
fn goose_with_log(is_read_only: bool, has_shared_memory: bool) -> (Json, bool) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "goose/basic").unwrap();
    let live = folder.path().join("live.db");
    fs::copy(fixture.input.join("sessions/sessions.db"), &live).unwrap();
    let mut permissions = fs::metadata(&live).unwrap().permissions();
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
    fs::set_permissions(&live, permissions).unwrap();
    let connection = Connection::open(&live).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    connection
        .execute(
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) \
             SELECT id, 'user', '[{\"type\":\"text\",\"text\":\"only in the log\"}]', 99999999999 FROM sessions",
            [],
        )
        .unwrap();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for ending in ["", "-wal", "-shm"] {
        if has_shared_memory || ending != "-shm" {
            fs::copy(folder.path().join(format!("live.db{ending}")), copy.join(format!("sessions.db{ending}")))
                .unwrap();
        }
    }
    drop(connection);
    let names = || fs::read_dir(&copy).unwrap().count();
    let before = names();
    #[cfg(unix)]
    if is_read_only {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        fs::set_permissions(&copy, mode).unwrap();
    }
    let document = read(&copy, Some(SourceKind::Goose));
    let is_unchanged = before == names();
    #[cfg(unix)]
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    (document, is_unchanged)
}

#[test]
fn the_rows_that_stand_only_in_the_log_of_a_database_are_read() {
    for is_read_only in [false, true] {
        for has_shared_memory in [false, true] {
            let (document, is_unchanged) = goose_with_log(is_read_only, has_shared_memory);
            let turns = document["threads"][0]["turns"].as_array().unwrap();
            let last = turns.last().unwrap()["messages"].as_array().unwrap().last().unwrap();
            assert_eq!(
                last["text"], "only in the log",
                "read only: {is_read_only}, shared memory: {has_shared_memory}"
            );
            assert!(is_unchanged, "read only: {is_read_only}, shared memory: {has_shared_memory}");
        }
    }
}

#[test]
fn a_path_that_does_not_exist_is_an_error_and_an_empty_folder_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = TurnsCollector::default();
    assert!(read_sessions(&folder.path().join("none"), None, &mut collector).is_err());
    read_sessions(folder.path(), None, &mut collector).unwrap();
    assert_eq!(collector.into_document()["threads"], Json::Array(Vec::new()));
}
