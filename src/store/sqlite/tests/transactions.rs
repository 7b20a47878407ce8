//! Transactions on the tables of an application: the reach of their statements, and the files that they leave.

use super::{Bench, at, open, plain, put, raw, thread, writes};
use super::{list, task, write};
use crate::base::{Namespace, Timestamp};
use crate::store::batch::{Batch, WriteValue};
use crate::store::error::{SqlConstraint, StoreError};
use crate::store::handle::Store;
use crate::store::lease::{LeaseOwner, NewLease};
use crate::store::log::{Log, LogExt};
use crate::store::options::OpenOptions;
use crate::store::recovery::LostKind;
use crate::store::sqlite::SqliteBackend;
use crate::store::sqlite::writer::group::PlantedFault;
use crate::store::statements::SqlTransaction;
use rusqlite::ffi;
use std::sync::Arc;
use std::time::Duration;

/// Statements that an application may run, in their order.
const ALLOWED: &[&str] = &[
    "CREATE TABLE app_a (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, pieces INTEGER CHECK (pieces >= 0))",
    "CREATE TABLE IF NOT EXISTS APP_b (a INTEGER NOT NULL REFERENCES app_a (id) ON DELETE CASCADE, note TEXT) STRICT",
    "CREATE INDEX app_b_of ON app_b (a)",
    "INSERT INTO app_a (name, pieces) VALUES ('x', 1), ('y', 2) ON CONFLICT (name) DO UPDATE SET pieces = excluded.pieces",
    "INSERT INTO app_b SELECT id, name FROM app_a",
    "UPDATE app_a SET pieces = pieces + 1 WHERE id IN (SELECT a FROM app_b)",
    "ALTER TABLE app_a ADD COLUMN price REAL DEFAULT 0",
    "CREATE TABLE app_c AS SELECT * FROM app_b",
    "DROP INDEX app_b_of",
    "DELETE FROM app_a WHERE name = 'y'",
    "DELETE FROM app_c",
    "DROP TABLE app_c",
    "WITH RECURSIVE app_n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM app_n WHERE n < 5) \
     INSERT INTO app_a (name) SELECT 'n' || n FROM app_n",
];

/// Statements that reach beyond the tables of an application.
const REFUSED: &[&str] = &[
    "SELECT count(*) FROM checkpoint",
    "SELECT id FROM main.thread",
    "SELECT (SELECT max(seq) FROM checkpoint) FROM app_a",
    "INSERT INTO app_a (name) SELECT public_id FROM thread",
    "SELECT * FROM v_threads",
    "INSERT INTO name (kind, text) VALUES (0, 'x')",
    "UPDATE thread SET public_id = 'x'",
    "DELETE FROM checkpoint",
    "DROP TABLE checkpoint",
    "DROP TRIGGER checkpoint_no_update",
    "CREATE TABLE other (x)",
    "CREATE TABLE app (x)",
    "ALTER TABLE checkpoint ADD COLUMN x",
    "ALTER TABLE app_a RENAME TO other",
    "ALTER TABLE app_a RENAME TO app_other",
    "ALTER TABLE app_a RENAME COLUMN name TO other",
    "ALTER TABLE app_a DROP COLUMN name",
    "CREATE INDEX app_i ON checkpoint (step)",
    "CREATE INDEX i ON app_a (name)",
    "CREATE TRIGGER app_t AFTER INSERT ON app_a BEGIN DELETE FROM checkpoint; END",
    "CREATE TEMP TRIGGER app_t AFTER INSERT ON app_a BEGIN DELETE FROM checkpoint; END",
    "CREATE VIEW app_v AS SELECT * FROM checkpoint",
    "CREATE TEMP VIEW app_v AS SELECT * FROM checkpoint",
    "CREATE TEMP TABLE app_t (x)",
    "CREATE TABLE temp.app_t (x)",
    "CREATE VIRTUAL TABLE app_f USING fts5 (x)",
    "CREATE TABLE app_r (x REFERENCES checkpoint (seq))",
    "PRAGMA writable_schema = ON",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA user_version = 7",
    "PRAGMA table_info (checkpoint)",
    "SELECT * FROM pragma_table_info('checkpoint')",
    "INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, '')",
    "UPDATE sqlite_schema SET sql = '' WHERE name = 'checkpoint'",
    "DELETE FROM sqlite_master",
    "UPDATE sqlite_temp_master SET sql = ''",
    "INSERT INTO temp.sqlite_master VALUES ('view', 'app_v', 'app_v', 0, 'CREATE VIEW app_v AS SELECT 1')",
    "ATTACH ':memory:' AS app_other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'x.db'",
    "ANALYZE",
    "REINDEX checkpoint",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT app_s",
    "RELEASE batch",
    "SELECT load_extension('x')",
    "SELECT FTS3_tokenizer('simple')",
    "INSERT INTO app_a (name) VALUES ('1'); DELETE FROM checkpoint",
    "EXPLAIN SELECT * FROM checkpoint",
];

fn store(bench: &Bench) -> Store {
    Store::open(bench.path()).unwrap()
}

/// Makes a table with one row.
fn table(store: &Store) {
    store
        .transaction(|tx| {
            tx.execute_batch("CREATE TABLE app_a (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL)")?;
            tx.execute("INSERT INTO app_a (name) VALUES (?1)", ["first"])
        })
        .unwrap();
}

fn names(store: &Store) -> Vec<String> {
    store.transaction(|tx| tx.query("SELECT name FROM app_a ORDER BY id", (), |row| row.get(0))).unwrap()
}

fn insert(tx: &SqlTransaction<'_>, name: &str) -> Result<usize, StoreError> {
    tx.execute("INSERT INTO app_a (name) VALUES (?1)", [name])
}

#[test]
fn an_application_makes_its_tables_and_works_on_them() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let store = store(&bench);
    for statement in ALLOWED {
        let done: Result<usize, StoreError> = store.transaction(|tx| tx.execute(statement, ()));
        assert!(done.is_ok(), "{statement}: {done:?}");
    }
    let read: (i64, String, i64) = store
        .transaction(|tx| {
            let text = tx.query_row("SELECT value FROM json_each('[\"j\"]')", (), |row| row.get::<String>(0))?;
            let sql = "INSERT INTO app_a (name, pieces) VALUES (?1, ?2) RETURNING id, name, pieces";
            let row = tx.query_row(sql, (text, 7), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.unwrap();
            Ok::<_, StoreError>(row)
        })
        .unwrap();
    assert_eq!((&*read.1, read.2), ("j", 7));
    let left = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        store.transaction(|tx| tx.query_row(&sql, (), |row| row.get::<i64>(0))).unwrap().unwrap()
    };
    // The row of `y` went with its parent.
    assert_eq!((left("app_a"), left("app_b")), (7, 1));
    assert!(bench.check().is_empty(), "{:?}", bench.check());
    let copy = bench.folder.path().join("copy.db");
    store.backup(&copy).unwrap();
    store.compact().unwrap();
    let count: i64 = raw(&copy).query_row("SELECT count(*) FROM app_a", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 7);
    assert!(Store::open(&copy).unwrap().check().unwrap().problems.is_empty());
    let report = Store::recover(&copy, bench.folder.path().join("recovered.db")).unwrap();
    let lost: Vec<_> = report.lost.iter().map(|lost| (lost.kind, &*lost.place)).collect();
    assert_eq!(lost, [(LostKind::Table, "table \"APP_b\""), (LostKind::Table, "table \"app_a\"")], "{:?}", report.lost);
}

#[test]
fn a_hostile_statement_is_refused_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let store = store(&bench);
    table(&store);
    let schema = |path: &std::path::Path| -> Vec<String> {
        let conn = raw(path);
        let mut statement = conn.prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY 1").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let before = schema(&bench.path());
    for statement in REFUSED {
        for whole in [false, true] {
            let done: Result<(), StoreError> = store.transaction(|tx| {
                insert(tx, "lost")?;
                if whole { tx.execute_batch(statement) } else { tx.query(statement, (), |_| Ok(())).map(|_| ()) }
            });
            let is_refused = matches!(done, Err(StoreError::Sql { .. } | StoreError::Corrupt { .. }));
            assert!(is_refused, "{statement}: {done:?}");
            assert_eq!(names(&store), ["first"], "{statement}");
        }
    }
    assert_eq!(schema(&bench.path()), before);
    assert!(bench.check().is_empty(), "{:?}", bench.check());
    assert_eq!(bench.store.threads(None, 10).unwrap().len(), 1);
    assert!(!bench.folder.path().join("x.db").with_file_name("x.db-journal").exists());
}

#[test]
fn an_error_says_which_statement_where_and_which_constraint() {
    let bench = Bench::new();
    let store = store(&bench);
    table(&store);
    let constraint =
        |sql: &str| -> Option<SqlConstraint> { store.transaction(|tx| tx.execute(sql, ())).unwrap_err().constraint() };
    assert_eq!(constraint("INSERT INTO app_a (name) VALUES ('first')"), Some(SqlConstraint::Unique));
    assert_eq!(constraint("INSERT INTO app_a (id, name) VALUES (1, 'x')"), Some(SqlConstraint::Unique));
    assert_eq!(constraint("INSERT INTO app_a (name) VALUES (NULL)"), Some(SqlConstraint::NotNull));
    assert_eq!(constraint("INSERT INTO app_a (nome) VALUES ('x')"), None);
    let wrong: Result<usize, StoreError> = store.transaction(|tx| {
        insert(tx, "second")?;
        tx.execute("INSERT INTO app_a (name) VALUES (nome)", ())
    });
    match wrong.unwrap_err() {
        StoreError::Sql { statement: 2, at: Some(33), constraint: None, reason, .. } => {
            assert!(reason.contains("nome"), "{reason}");
        }
        other => panic!("{other}"),
    }
    // A function may go on behind a statement that failed.
    let gone_on: Result<usize, StoreError> = store.transaction(|tx| {
        let taken = insert(tx, "first").unwrap_err();
        assert_eq!(taken.constraint(), Some(SqlConstraint::Unique));
        insert(tx, "third")
    });
    gone_on.unwrap();
    assert_eq!(names(&store), ["first", "third"]);
    let text = " ".repeat(crate::base::limits::STATEMENT_BYTES_MAX + 1);
    let long: Result<usize, StoreError> = store.transaction(|tx| tx.execute(&text, ()));
    assert!(long.unwrap_err().to_string().contains("the limit is 1048576"));
}

#[test]
fn a_transaction_that_fails_panics_or_rolls_itself_back_leaves_nothing() {
    let bench = Bench::new();
    let store = store(&bench);
    table(&store);
    let own: Result<(), Box<dyn std::error::Error>> = store.transaction(|tx| {
        insert(tx, "a")?;
        Err("an error of the function".into())
    });
    assert_eq!(own.unwrap_err().to_string(), "an error of the function");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.transaction(|tx| -> Result<(), StoreError> {
            insert(tx, "b")?;
            panic!("a function that panics")
        })
    }));
    assert!(panicked.is_err());
    let rolled_back: Result<usize, StoreError> = store.transaction(|tx| {
        insert(tx, "c")?;
        let failed = tx.execute("INSERT OR ROLLBACK INTO app_a (name) VALUES ('first')", ());
        assert_eq!(failed.unwrap_err().constraint(), Some(SqlConstraint::Unique));
        // Outside of the transaction it would be stored at once.
        let after = insert(tx, "d").unwrap_err();
        assert!(after.to_string().contains("rolled the transaction back"), "{after}");
        Ok(0)
    });
    assert!(matches!(rolled_back, Err(StoreError::Sql { .. })), "{rolled_back:?}");
    let within: Result<(), StoreError> = store.transaction(|tx| {
        insert(tx, "e")?;
        let other = thread("other");
        let refused = store.transaction(|tx| insert(tx, "f"));
        assert!(matches!(refused, Err(StoreError::Invalid { field: "transaction", .. })), "{refused:?}");
        let refused = store.commit(&Batch::new(other.clone(), Namespace::root(), None));
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        let refused = store.submit(Batch::new(other, Namespace::root(), None)).wait();
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        // Readers see the last commit.
        assert!(store.threads()?.is_empty());
        Err(StoreError::ReadOnly)
    });
    assert!(matches!(within, Err(StoreError::ReadOnly)), "{within:?}");
    assert_eq!(names(&store), ["first"]);
}

#[test]
fn a_transaction_past_its_time_is_interrupted() {
    let bench = Bench::new();
    bench.store.writer.as_ref().unwrap().set_transaction_max(Duration::from_millis(30));
    let endless = "WITH RECURSIVE app_n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM app_n) SELECT max(n) FROM app_n";
    let mut reasons = Vec::new();
    let ended = bench.store.transact(&mut |tx| {
        tx.execute_batch("CREATE TABLE app_a (name)")?;
        reasons.push(tx.query_row(endless, (), |row| row.get::<i64>(0)).unwrap_err().to_string());
        assert!(reasons[0].contains("longer than 30ms"), "{reasons:?}");
        reasons.push(tx.execute("INSERT INTO app_a VALUES ('late')", ()).unwrap_err().to_string());
        Ok(None)
    });
    assert!(matches!(ended, Err(StoreError::Sql { .. })), "{ended:?}");
    assert!(reasons.iter().all(|reason| reason.contains("longer than 30ms")), "{reasons:?}");
    // A function that only takes its time is refused at its end.
    let slow = bench.store.transact(&mut |tx| {
        tx.execute_batch("CREATE TABLE app_a (name)")?;
        std::thread::sleep(Duration::from_millis(40));
        Ok(None)
    });
    assert!(slow.unwrap_err().to_string().contains("longer than"));
    // On a loaded machine a commit may take longer than that.
    bench.store.writer.as_ref().unwrap().set_transaction_max(super::GUARD);
    bench.store.transact(&mut |tx| tx.execute_batch("CREATE TABLE app_a (name)").map(|()| None)).unwrap();
}

#[test]
fn a_batch_and_the_statements_beside_it_are_stored_together_or_not_at_all() {
    let mut bench = Bench::new();
    let of = thread("a");
    let first = bench.add(&of, None, vec![list(1, vec![put(0, "stored")])]);
    let store = store(&bench);
    table(&store);
    let (once, point) = (task(9, "call"), at(&of, first));
    let pay = |lease: Option<NewLease>, name: &str| {
        bench.store.transact(&mut |tx| {
            if tx.write_of(&point, &once.id, 0)?.is_some() {
                return Ok(None);
            }
            insert(tx, name)?;
            let mut batch = Batch::new(of.clone(), Namespace::root(), Some(first));
            batch.writes = vec![writes(first, &once, vec![write(0, "__return__", WriteValue::One(plain(b"\x01")))])];
            batch.lease = lease.clone();
            Ok(Some(batch))
        })
    };
    let (owner, rival) = (LeaseOwner::new([1; 16]), LeaseOwner::new([2; 16]));
    let until = Timestamp::from_micros(i64::MAX);
    bench.store.commit(&Batch::of_lease(of.clone(), NewLease::claim(rival, Timestamp::from_micros(1), until))).unwrap();
    let fenced = pay(Some(NewLease::hold(owner)), "fenced");
    assert!(matches!(fenced, Err(StoreError::LeaseLost { .. })), "{fenced:?}");
    assert_eq!(names(&store), ["first"], "nothing of a fenced owner");
    pay(None, "paid").unwrap();
    pay(None, "paid again").unwrap();
    assert_eq!(names(&store), ["first", "paid"]);
    assert_eq!(bench.store.writes(&point).unwrap().len(), 1);
    // A head that moved refuses both.
    let second = bench.add(&of, Some(first), vec![]);
    let conflict = bench.store.transact(&mut |tx| {
        insert(tx, "lost")?;
        let mut batch = Batch::new(of.clone(), Namespace::root(), Some(first));
        batch.writes = vec![writes(first, &task(8, "late"), vec![write(0, "x", WriteValue::Null)])];
        Ok(Some(batch))
    });
    assert!(
        matches!(conflict, Err(StoreError::Conflict { found: Some(found), .. }) if found == second),
        "{conflict:?}"
    );
    assert_eq!(names(&store), ["first", "paid"]);
    assert!(bench.check().is_empty(), "{:?}", bench.check());
}

#[test]
fn a_commit_that_fails_is_lost_or_of_unknown_outcome() {
    let bench = Bench::new();
    let of_bench = Store::with_backend(Arc::new(open(&bench.path())), OpenOptions::new());
    table(&of_bench);
    let attempt = |fault: PlantedFault, name: &str| {
        bench.store.writer.as_ref().unwrap().plant(&[fault]);
        bench.store.transact(&mut |tx| insert(tx, name).map(|_| None))
    };
    let lost = attempt(PlantedFault::Lost(ffi::SQLITE_FULL), "full");
    assert!(matches!(lost, Err(StoreError::Write { .. })), "{lost:?}");
    assert_eq!(names(&of_bench), ["first"]);
    let unknown = attempt(PlantedFault::Stored(ffi::SQLITE_IOERR_FSYNC), "stored");
    assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
    assert_eq!(names(&of_bench), ["first", "stored"]);
    let unknown = attempt(PlantedFault::Lost(ffi::SQLITE_IOERR_FSYNC), "lost");
    assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
    // The handle goes on, and its new connection has a guard.
    bench.store.transact(&mut |tx| insert(tx, "after").map(|_| None)).unwrap();
    let refused = bench.store.transact(&mut |tx| tx.execute("DELETE FROM thread", ()).map(|_| None));
    assert!(matches!(refused, Err(StoreError::Sql { .. })), "{refused:?}");
    assert_eq!(names(&of_bench), ["first", "stored", "after"]);
}

#[test]
fn a_table_that_refers_to_one_of_the_store_is_refused_when_a_file_is_opened() {
    for statement in [
        "CREATE TABLE app_r (x REFERENCES Checkpoint (seq) ON DELETE CASCADE)",
        "CREATE TABLE app_r (x); CREATE TRIGGER app_t AFTER INSERT ON app_r BEGIN SELECT 1; END",
        "CREATE VIEW app_v AS SELECT 1",
        "CREATE VIRTUAL TABLE app_f USING rtree (id, a, b)",
    ] {
        let bench = Bench::new();
        let path = bench.path();
        let Bench { folder: _folder, store, .. } = bench;
        drop(store);
        if raw(&path).execute_batch(statement).is_err() {
            // The module of the virtual table is not compiled in.
            continue;
        }
        let refused = SqliteBackend::open(&path, &OpenOptions::new()).unwrap_err();
        assert!(
            matches!(&refused, StoreError::SchemaChanged { .. }) && refused.to_string().contains("app_"),
            "{refused}"
        );
    }
}

#[test]
fn transactions_wait_their_turn_among_commits() {
    let bench = Bench::new();
    let store = store(&bench);
    store.transaction(|tx| tx.execute_batch("CREATE TABLE app_n (n INTEGER)")).unwrap();
    std::thread::scope(|scope| {
        for of in ["a", "b"] {
            let store = &store;
            scope.spawn(move || {
                let thread = store.thread(of).unwrap();
                for n in 0..20 {
                    thread.set("n", n).unwrap();
                    store.transaction(|tx| tx.execute("INSERT INTO app_n VALUES (?1)", [n])).unwrap();
                }
            });
        }
    });
    let count = store
        .transaction(|tx| tx.query_row("SELECT count(*), sum(n) FROM app_n", (), |row| Ok((row.get(0)?, row.get(1)?))));
    assert_eq!(count.unwrap(), Some((40_i64, 380_i64)));
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_foreign_key_to_a_table_of_the_store_is_the_error_of_its_statement() {
    let bench = Bench::new();
    let store = store(&bench);
    table(&store);
    let refused: Result<(), StoreError> = store.transaction(|tx| {
        insert(tx, "second")?;
        tx.execute_batch("CREATE TABLE app_c (x); CREATE TABLE app_r (x References checkpoint (seq))")
    });
    match refused.unwrap_err() {
        StoreError::Sql { statement: 2, reason, .. } => {
            assert_eq!(reason, "the table app_r refers to a table of the store");
        }
        other => panic!("{other}"),
    }
    assert_eq!(names(&store), ["first"]);
    // The statement alone is undone, and the function may go on.
    let gone_on: Result<usize, StoreError> = store.transaction(|tx| {
        let refused = tx.execute_batch("CREATE TABLE app_c (x); CREATE TABLE app_r (x REFERENCES thread (id))");
        assert!(matches!(refused, Err(StoreError::Sql { .. })), "{refused:?}");
        tx.execute_batch("CREATE TABLE app_c (x REFERENCES app_a (id))")?;
        insert(tx, "third")
    });
    gone_on.unwrap();
    assert_eq!(names(&store), ["first", "third"]);
    let violated: Result<usize, StoreError> = store.transaction(|tx| {
        tx.execute("INSERT INTO app_c VALUES (7) RETURNING 'references'", ()).unwrap_err();
        tx.execute("INSERT INTO app_c VALUES (7)", ())
    });
    violated.unwrap_err();
    assert!(bench.check().is_empty(), "{:?}", bench.check());
}
