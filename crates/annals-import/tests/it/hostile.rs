//! Sources of strangers: compressed bombs, lines and documents without an end, databases that abuse SQLite.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use annals::rusqlite::Connection;
use annals_import::{SessionSink, SourceSession, UnknownRecord, read_sessions};
use serde_json::json;

use crate::fixtures::{fixtures, read};

/// The sessions and records of a source.
#[derive(Default)]
pub(crate) struct ReadSource {
    pub(crate) sessions: Vec<SourceSession>,
    pub(crate) unknown: Vec<UnknownRecord>,
}

impl SessionSink for ReadSource {
    fn session(&mut self, session: SourceSession) -> Result<(), annals_import::ImportError> {
        self.sessions.push(session);
        Ok(())
    }

    fn unknown(&mut self, record: UnknownRecord) -> Result<(), annals_import::ImportError> {
        self.unknown.push(record);
        Ok(())
    }
}

impl ReadSource {
    pub(crate) fn of(path: &Path) -> Self {
        let mut source = Self::default();
        read_sessions(path, None, &mut source).unwrap();
        source
    }

    /// Returns the kinds and the fields of the limits of the records.
    fn limits(&self) -> Vec<(&str, Option<&str>)> {
        self.unknown.iter().map(|of| (of.kind.as_str(), of.limit.as_ref().map(|limit| limit.field))).collect()
    }
}

/// Returns a Zstandard frame of stored blocks.
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38];
    let blocks: Vec<&[u8]> = content.chunks(100_000).collect();
    for (at, block) in blocks.iter().enumerate() {
        let head = (block.len() << 3) | usize::from(at + 1 == blocks.len());
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(*block);
    }
    frame
}

/// Returns a Zstandard frame that yields `count` times 128 KiB of one byte, at 4 bytes for each of these.
fn bomb(byte: u8, count: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38];
    for at in 0..count {
        let head = ((128 << 10) << 3) | (1 << 1) | usize::from(at + 1 == count);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

#[test]
fn all_frames_of_a_compressed_rollout_are_read() {
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == "codex/basic").unwrap();
    let rollout = crate::fixtures::largest(&fixture.input);
    let text = fs::read(&rollout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    let compressed = folder.path().join("compressed");
    let name = rollout.file_name().unwrap().to_str().unwrap().to_owned();
    for of in [&plain, &compressed] {
        fs::create_dir(of).unwrap();
    }
    fs::write(plain.join(&name), &text).unwrap();
    // Two frames that meet within a line, with a frame to skip between them.
    let middle = text.len() / 2;
    let mut bytes = frame(&text[..middle]);
    bytes.extend([0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    bytes.extend(frame(&text[middle..]));
    fs::write(compressed.join(format!("{name}.zst")), &bytes).unwrap();
    assert_eq!(read(&compressed, None)["threads"], read(&plain, None)["threads"]);

    // Bytes behind the last frame are reported, and what stands before them is read.
    bytes.extend(b"no frame");
    fs::write(compressed.join(format!("{name}.zst")), &bytes).unwrap();
    let read_again = read(&compressed, None);
    assert_eq!(read_again["threads"], read(&plain, None)["threads"]);
    assert_eq!(read_again["not_understood"]["broken_frame"], 1);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the time that a refusal takes is what is tested")]
fn a_compressed_bomb_is_refused_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollout.jsonl.zst");
    // 32 GiB of newlines, and of a line without an end.
    for byte in [b'\n', b'{', b' '] {
        fs::write(&path, bomb(byte, 1 << 18)).unwrap();
        let begun = Instant::now();
        let source = ReadSource::of(&path);
        assert!(source.sessions.is_empty());
        assert_eq!(source.limits(), [("too_large", Some("bytes decompressed from one byte"))], "byte {byte}");
        // All of it takes far longer to decompress.
        assert!(begun.elapsed().as_secs() < 300, "byte {byte}: {:?}", begun.elapsed());
    }
    // A rollout whose first line is good.
    let head = json!({"timestamp": "2026-03-02T00:00:00Z", "type": "session_meta", "payload": {"id": "one"}});
    let mut bytes = frame(format!("{head}\n").as_bytes());
    bytes.extend(bomb(b' ', 1 << 18));
    fs::write(&path, bytes).unwrap();
    let source = ReadSource::of(&path);
    assert_eq!(source.sessions.len(), 1);
    assert!(source.unknown.iter().any(|of| of.kind == "too_large" && of.place.ends_with("rollout.jsonl.zst:2")));
}

#[test]
fn a_line_that_is_too_long_is_counted_and_the_lines_behind_it_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    let mut file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    writeln!(file, "{}", json!({"role": "user", "content": "before"})).unwrap();
    write!(file, "{{\"role\":\"user\",\"content\":\"").unwrap();
    for _ in 0..65 {
        file.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    writeln!(file, "\"}}").unwrap();
    writeln!(file, "{{\"role\":\"user\",\"content\":[{}0]}}", "0,".repeat(2_000_001)).unwrap();
    writeln!(file, "{}", json!({"role": "assistant", "content": "behind"})).unwrap();
    file.flush().unwrap();
    let source = ReadSource::of(&path);
    let texts: Vec<String> = source.sessions[0].main.iter().map(|of| of.message.text().into_owned()).collect();
    assert_eq!(texts, ["before", "behind"]);
    assert_eq!(source.limits(), [("too_large", Some("bytes of a line")), ("too_large", Some("values of a record"))]);
    assert_eq!(source.unknown[0].place, "log.jsonl:2");
    assert_eq!(source.unknown[0].raw, "bytes of a line: more than 67108864");
}

#[test]
fn an_item_of_an_array_that_is_too_large_ends_the_array_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.json");
    let good = json!({"id": "good", "conversations": [{"from": "human", "value": "hi"}]});
    fs::write(&path, format!("[{good},{{\"conversations\":[{}0]}}]", "[],".repeat(1_000_000))).unwrap();
    let source = ReadSource::of(&path);
    assert_eq!(source.sessions.len(), 1);
    assert_eq!(source.limits(), [("too_large", Some("values of a record"))]);
}

const GOOSE: &str = "CREATE TABLE schema_version(version);
    CREATE TABLE sessions(id TEXT PRIMARY KEY, name TEXT, created_at TEXT);
    CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content_json TEXT, created_timestamp INTEGER,
        metadata_json TEXT);";

const TEXT: &str = "[{\"type\":\"text\",\"text\":\"hi\"}]";

/// Makes a database of a file of goose.
fn database(path: &Path, sql: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    connection
}

#[test]
fn a_view_or_a_virtual_table_under_the_name_of_a_table_is_not_read() {
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
        SELECT x AS id, 'session' AS session_id, 'user' AS role, '[]' AS content_json, x AS created_timestamp, \
        '{}' AS metadata_json FROM n";
    for messages in [
        format!("CREATE VIEW messages AS {endless}"),
        "CREATE VIRTUAL TABLE messages USING fts5(id, session_id, role, content_json, created_timestamp)".to_owned(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let tables = GOOSE.split_once("CREATE TABLE messages").unwrap().0;
        drop(database(&path, &format!("{tables} INSERT INTO sessions(id) VALUES ('s'); {messages};")));
        let source = ReadSource::of(&path);
        assert!(source.sessions.is_empty());
        assert_eq!(source.limits(), [("unrecognised_file", None)], "{messages}");
    }
}

#[test]
fn a_row_that_is_too_large_is_counted_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let connection = database(&path, GOOSE);
    connection.execute_batch("INSERT INTO sessions(id) VALUES ('s')").unwrap();
    let insert =
        "INSERT INTO messages(id, session_id, role, content_json, created_timestamp) VALUES (?1, 's', 'user', ?2, ?1)";
    connection.execute(insert, (1, TEXT)).unwrap();
    connection.execute(insert, (2, "x".repeat(65 << 20))).unwrap();
    connection.execute(insert, (3, TEXT)).unwrap();
    drop(connection);
    let source = ReadSource::of(&path);
    assert_eq!(source.sessions[0].main.len(), 2);
    assert_eq!(source.limits(), [("too_large", Some("bytes of a row"))]);
    assert_eq!(source.unknown[0].place, "sessions.db:messages:2");
}

#[test]
fn a_database_that_yields_more_than_it_holds_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    // A generated column makes 1 MB of each row of a few bytes.
    let tables = GOOSE.replace("metadata_json TEXT", "metadata_json TEXT AS (printf('%1000000d', id))");
    let rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000) \
        INSERT INTO messages(id, session_id, role, content_json, created_timestamp) SELECT x, 's', 'user', '[]', x FROM n";
    drop(database(&path, &format!("{tables} INSERT INTO sessions(id) VALUES ('s'), ('t'); {rows};")));
    let source = ReadSource::of(&path);
    assert!(source.limits().contains(&("too_large", Some("bytes that the queries of a database yield"))));
}

#[test]
fn a_database_that_a_program_writes_is_read_as_it_commits() {
    for mode in ["wal", "delete"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let connection = database(&path, &format!("PRAGMA journal_mode = {mode}; {GOOSE}"));
        connection.execute_batch("INSERT INTO sessions(id) VALUES ('s')").unwrap();
        let insert =
            "INSERT INTO messages(session_id, role, content_json, created_timestamp) VALUES ('s', 'user', ?1, 1)";
        connection.execute(insert, [TEXT]).unwrap();
        // The second message is not committed when the database is read.
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection.execute(insert, [TEXT]).unwrap();
        let source = ReadSource::of(&path);
        assert_eq!(source.sessions[0].main.len(), 1, "{mode}");
        connection.execute_batch("COMMIT").unwrap();
        assert_eq!(ReadSource::of(&path).sessions[0].main.len(), 2, "{mode}");
        // The program writes on after a checkpoint of its log.
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        connection.execute(insert, [TEXT]).unwrap();
        assert_eq!(ReadSource::of(&path).sessions[0].main.len(), 3, "{mode}");
    }
}

#[test]
fn a_database_that_a_program_opens_while_it_is_read_without_locks_is_reported() {
    struct Opening<'a> {
        path: &'a Path,
        read: ReadSource,
        program: Option<Connection>,
    }
    impl SessionSink for Opening<'_> {
        fn session(&mut self, session: SourceSession) -> Result<(), annals_import::ImportError> {
            self.program = Some(database(self.path, "INSERT INTO sessions(id) VALUES ('t')"));
            self.read.session(session)
        }

        fn unknown(&mut self, record: UnknownRecord) -> Result<(), annals_import::ImportError> {
            self.read.unknown(record)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let rows = "INSERT INTO sessions(id) VALUES ('r'), ('s');";
    drop(database(&path, &format!("PRAGMA journal_mode = wal; {GOOSE} {rows}")));
    let mut sink = Opening { path: &path, read: ReadSource::default(), program: None };
    read_sessions(&path, None, &mut sink).unwrap();
    assert_eq!(sink.read.sessions.len(), 1, "what was read after the program had opened the database is dropped");
    assert_eq!(sink.read.limits(), [("changed_database", None)]);
    assert_eq!(ReadSource::of(&path).sessions.len(), 3);
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_read_does_not_end_the_import() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.jsonl");
    fs::write(&good, json!({"role": "user", "content": "hi"}).to_string()).unwrap();
    let locked = folder.path().join("locked.jsonl");
    fs::write(&locked, "{}").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    // A user who may read everything reads an empty object instead.
    let kind = if fs::File::open(&locked).is_ok() { "unrecognised_file" } else { "unreadable" };
    let source = ReadSource::of(folder.path());
    assert_eq!(source.sessions.len(), 1);
    assert_eq!(source.limits(), [(kind, None)]);
}
