//! Rows of keys: a damaged or foreign one is named, and a failed creation leaves no transaction.

use super::cipher::{bench, encrypted, key};
use super::*;
use crate::limits::KEY_ID_BYTES_MAX;
use crate::store::StoreError;
use crate::store::cipher::{Cipher, CipherError, Key};
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::schema::statements_of;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::row_check::RowCheck;
use rusqlite::params;
use rusqlite::types::Value;

fn given(key: Key) -> OpenOptions {
    OpenOptions::new().key(key)
}

fn place<T: std::fmt::Debug>(result: Res<T>) -> String {
    match result.unwrap_err() {
        Fault::Store(StoreError::Corrupt { place, .. }) => place,
        fault => panic!("{fault:?}"),
    }
}

/// An encrypted store with a checkpoint, and a connection that changes its rows.
fn sealed() -> (Bench, rusqlite::Connection) {
    let mut bench = bench(&encrypted(key(1)));
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[1; 40]))]);
    bench.store.checkpoint_wal().unwrap();
    let conn = without_triggers(&bench.path());
    (bench, conn)
}

const FLIP: &str = "UPDATE store_key SET sealed = zeroblob(length(sealed)) WHERE id = ";

#[test]
fn a_check_finds_a_root_key_that_the_key_of_the_caller_does_not_open() {
    for row in ["0", "1"] {
        let (bench, conn) = sealed();
        assert_eq!(bench.check(), Vec::<String>::new());
        conn.execute_batch(&format!("{FLIP}{row}")).unwrap();
        let found = bench.check();
        assert!(found.iter().any(|problem| problem.contains(&format!("store_key {row}"))), "{row}: {found:?}");
    }
}

#[test]
fn a_damaged_row_of_keys_is_refused_where_a_key_was_given() {
    let (bench, conn) = sealed();
    let path = bench.path();
    assert!(Keys::new(given(key(1))).unlock_damaged(&conn, &path).is_ok());
    let wrong = Keys::new(given(key(2))).unlock_damaged(&conn, &path);
    assert!(matches!(wrong, Err(Fault::Store(StoreError::WrongKey { .. }))), "{wrong:?}");
    let none = Keys::default().unlock_damaged(&conn, &path);
    assert!(matches!(none, Err(Fault::Store(StoreError::KeyRequired { .. }))), "{none:?}");
    conn.execute_batch("UPDATE store_key SET file = NULL").unwrap();
    assert_eq!(place(Keys::new(given(key(1))).unlock_damaged(&conn, &path)), "store_key 0");
    assert!(Keys::default().unlock_damaged(&conn, &path).is_ok(), "it counts as a plain file");
    conn.execute_batch("DROP TABLE store_key").unwrap();
    assert!(matches!(Keys::new(given(key(1))).unlock_damaged(&conn, &path), Err(Fault::Sql(_))));
    assert!(Keys::default().unlock_damaged(&conn, &path).is_ok(), "it counts as a plain file");
}

#[test]
fn a_value_that_names_no_data_key_is_damage_of_its_row() {
    let (bench, conn) = sealed();
    let keys = Keys::new(given(key(1)));
    keys.unlock(&conn, &bench.path(), false).unwrap();
    let identity = || keys.identity("kv").int(7);
    let sealed = keys.seal(&identity(), b"secret").unwrap();
    assert_eq!(sealed[0], 1);
    let open = |sealed: &[u8]| {
        let mut plain = Vec::new();
        keys.open(&conn, &identity(), sealed, &mut plain, &|| "kv 7".to_owned()).map(|()| plain)
    };
    assert_eq!(open(&sealed).unwrap(), b"secret");
    for id in [0, 2, 0x7f] {
        let mut other = sealed.clone();
        other[0] = id;
        assert_eq!(place(open(&other)), "kv 7", "{id}");
    }
    for short in [&[][..], &[1], &[0x80]] {
        assert_eq!(place(open(short)), "kv 7");
    }
}

/// Changes the fact of a thread to a value, with the check that a file with these keys has for it.
fn forge_fact(conn: &rusqlite::Connection, keys: &Keys, after: Value) {
    let (namespace, kind, operation, newest): (i64, i64, i64, i64) = conn
        .query_row("SELECT namespace, kind, operation, newest FROM operation_change", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    let mut check = RowCheck::of("operation_change");
    check.int(namespace).int(kind).text("city").int(operation).int(newest);
    check.value((&Value::Null).into()).value((&after).into());
    let row = params![after, check.finish_keyed(keys)];
    conn.execute("UPDATE operation_change SET after = ?1, xxh3 = ?2", row).unwrap();
}

#[test]
fn a_fact_in_the_clear_or_sealed_is_damage_where_the_file_holds_the_other() {
    let field = || OperationField::Fact("city".into());
    for options in [options(), encrypted(key(1))] {
        let mut bench = bench(&options);
        let t = thread("a");
        bench.add(&t, None, Vec::new());
        let mut facts = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(9));
        let text = || OperationValue::Text("Rome".into());
        facts.changes = vec![OperationChange::new(t.clone(), Namespace::root(), field(), None, Some(text()))];
        bench.store.operate(&facts).unwrap();
        assert_eq!(bench.store.fields(&t).unwrap(), [(field(), text())]);
        let conn = without_triggers(&bench.path());
        let keys = Keys::new(options.clone());
        keys.unlock(&conn, &bench.path(), false).unwrap();
        let other = if keys.seal_content() { Value::Text("Rome".into()) } else { Value::Blob(vec![1, 2, 3]) };
        forge_fact(&conn, &keys, other);
        match bench.store.fields(&t).unwrap_err() {
            StoreError::Corrupt { place, reason } => {
                assert_eq!((&*place, &*reason), ("operation_change", "a value does not match the format"));
            }
            error => panic!("{error:?}"),
        }
    }
}

struct SealsNothing;

impl Cipher for SealsNothing {
    fn name(&self) -> &str {
        "seals-nothing"
    }

    fn seal(&self, _: &[u8; 32], _: &[u8], _: &[u8], _: &mut Vec<u8>) -> Result<(), CipherError> {
        Err(CipherError)
    }

    fn open(&self, _: &[u8; 32], _: &[u8], _: &[u8], _: &mut Vec<u8>) -> Result<(), CipherError> {
        Err(CipherError)
    }
}

#[test]
fn keys_that_cannot_be_made_leave_no_transaction() {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch(&statements_of(None)).unwrap();
    let failing = Keys::new(given(key(1)).cipher(SealsNothing));
    let refused = failing.unlock(&conn, Path::new("x.db"), true);
    assert!(matches!(refused, Err(Fault::Store(StoreError::Write { .. }))), "{refused:?}");
    assert!(conn.is_autocommit());
    let keys = Keys::new(given(key(1)));
    keys.unlock(&conn, Path::new("x.db"), true).unwrap();
    assert!(conn.is_autocommit() && keys.seal_content());
}

#[test]
fn the_id_of_a_key_is_shown_and_has_a_limit() {
    let of = |id: String| bench_result(encrypted(key(1).with_id(id)));
    assert!(of("k".repeat(KEY_ID_BYTES_MAX)).is_ok());
    for id in ["k".repeat(KEY_ID_BYTES_MAX + 1), String::new(), "a\0".to_owned()] {
        assert!(matches!(of(id), Err(StoreError::Invalid { field: "key.id", .. })));
    }
    let keys = Keys::new(given(key(1).with_id("of the caller")));
    assert!(format!("{keys:?}").contains("of the caller"), "{keys:?}");
}

fn bench_result(options: OpenOptions) -> Result<SqliteBackend, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    SqliteBackend::open(&folder.path().join("x.db"), &options)
}
