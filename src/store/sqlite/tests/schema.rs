//! A file whose schema is another one is refused, however the difference came about.

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::file::schema;
use rusqlite::Connection;

/// Statements that change the schema of a store, and the object that the error names.
const HOSTILE: [(&str, &str); 11] = [
    ("CREATE TRIGGER evil BEFORE INSERT ON item BEGIN SELECT RAISE(IGNORE); END;", "trigger \"evil\" is not made"),
    (
        "CREATE TABLE hidden (x); CREATE TRIGGER copies AFTER INSERT ON payload \
         BEGIN INSERT INTO hidden VALUES (NEW.data); END;",
        "trigger \"copies\" is not made",
    ),
    (
        "CREATE VIEW slow AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r;",
        "view \"slow\"",
    ),
    ("CREATE INDEX more ON payload (data);", "index \"more\" is not made"),
    ("CREATE TABLE pragma_user_version (user_version);", "table \"pragma_user_version\" is not made"),
    ("CREATE VIRTUAL TABLE words USING fts5(x);", "table \"words\" is not made"),
    ("DROP TRIGGER checkpoint_no_update;", "trigger \"checkpoint_no_update\" is missing"),
    ("DROP VIEW v_messages;", "view \"v_messages\" is missing"),
    ("DROP VIEW v_messages; CREATE VIEW v_messages AS SELECT 1;", "view \"v_messages\" differs"),
    (
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'UNIQUE (thread, path)', \
         'UNIQUE (path, thread)') WHERE name = 'namespace'; PRAGMA schema_version = 900;",
        "table \"namespace\" differs",
    ),
    (
        "PRAGMA legacy_alter_table = ON; DROP TRIGGER thread_no_update; ALTER TABLE thread RENAME TO t; \
         CREATE VIEW thread AS SELECT id, public_id, 1 AS created_at FROM t;",
        "thread",
    ),
];

/// Returns a closed store with a thread, and the folder it is in.
fn closed() -> (TempDir, PathBuf) {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let path = bench.path();
    drop(bench.store);
    make_groups(&path);
    (bench.folder, path)
}

fn change_schema(path: &Path, statements: &str) {
    Connection::open(path).unwrap().execute_batch(statements).unwrap_or_else(|e| panic!("{statements}: {e}"));
}

#[track_caller]
fn assert_names<T: std::fmt::Debug>(result: Result<T, StoreError>, object: &str) {
    let error = result.unwrap_err();
    let is_schema = match &error {
        StoreError::Corrupt { place, .. } => place == "schema",
        error => matches!(error, StoreError::SchemaChanged { .. }),
    };
    assert!(is_schema && error.to_string().contains(object), "{error}");
}

#[test]
fn a_file_with_another_schema_is_not_opened() {
    for (statements, object) in HOSTILE {
        let (_folder, path) = closed();
        change_schema(&path, statements);
        assert_names(SqliteBackend::open(&path, &OpenOptions::default()), object);
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        assert_names(SqliteBackend::open(&path, &read_only), object);
    }
}

#[test]
fn a_schema_that_changes_under_an_open_store_is_noticed_before_the_next_commit() {
    for (statements, object) in HOSTILE {
        let mut bench = Bench::new();
        let id = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
        change_schema(&bench.path(), statements);
        let next = bench.ids.checkpoint(Timestamp::from_micros(2), 0, Some(&id));
        let mut batch = Batch::new(thread("a"), Namespace::root(), Some(id));
        batch.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(id)), ..checkpoint(next) });
        assert_names(bench.store.commit(&batch), object);
        let problems = bench.check();
        assert!(
            problems.iter().any(|problem| problem.starts_with("I2 ") && problem.contains(object)),
            "{statements}: {problems:?}"
        );
    }
}

#[test]
fn an_application_may_have_tables_of_its_own_in_the_file() {
    let (_folder, path) = closed();
    change_schema(
        &path,
        "CREATE TABLE app (x UNIQUE); CREATE INDEX app_x ON app (x); INSERT INTO app VALUES (1); ANALYZE;",
    );
    let store = open(&path);
    assert!(store.check().unwrap().problems.is_empty());
    change_schema(&path, "CREATE TABLE later (x);");
    assert_eq!(store.threads(None, 10).unwrap().len(), 1);
    schema::verify(&Connection::open(&path).unwrap()).unwrap();
}

#[test]
fn an_object_of_another_program_is_named_with_the_statement_that_removes_it() {
    use crate::store::SchemaChange::{Added, Missing, Refers};
    for (statements, kind, name, change, removes) in [
        ("CREATE VIEW mine AS SELECT 1; CREATE VIEW later AS SELECT 1", "view", "mine", Added, "DROP VIEW \"mine\""),
        ("CREATE INDEX my ON checkpoint (created_at)", "index", "my", Added, "DROP INDEX \"my\""),
        ("CREATE TABLE app_of (x REFERENCES thread (id))", "table", "app_of", Refers, "DROP TABLE \"app_of\""),
        ("DROP VIEW v_heads; DROP VIEW v_facts; DROP INDEX kv_key", "index", "kv_key", Missing, ""),
    ] {
        let (_folder, path) = closed();
        change_schema(&path, statements);
        // The same object is named each time, whoever asks.
        for read_only in [false, true, false, true] {
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            match SqliteBackend::open(&path, &options).unwrap_err() {
                StoreError::SchemaChanged { kind: found, name: of, change: is, statement } => {
                    assert_eq!((&*found, &*of, is), (kind, name, change), "{statements}");
                    assert_eq!(statement.as_deref().unwrap_or_default(), removes);
                }
                error => panic!("{statements}: {error}"),
            }
        }
        if !removes.is_empty() {
            change_schema(&path, removes);
            change_schema(&path, "DROP VIEW IF EXISTS later");
            assert!(open(&path).check().unwrap().problems.is_empty());
        }
    }
}

#[test]
fn a_name_that_is_no_plain_text_is_in_no_statement() {
    for name in ["x".repeat(65), "a\nb".to_owned(), "a`b".to_owned()] {
        let (_folder, path) = closed();
        change_schema(&path, &format!("CREATE VIEW \"{name}\" AS SELECT 1"));
        let error = SqliteBackend::open(&path, &OpenOptions::default()).unwrap_err();
        assert!(matches!(&error, StoreError::SchemaChanged { statement: None, .. }), "{error}");
        assert!(error.to_string().contains("a tool of SQLite removes it"), "{error}");
    }
}
