//! The columns of sealed payloads: which fields they hold, and to which row they are bound.

use super::*;
use crate::base::Codec;
use crate::store::cipher::Key;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::row_check::RowCheck;

fn keys_of(path: &Path) -> (rusqlite::Connection, Keys) {
    let conn = raw(path);
    let keys = Keys::new(OpenOptions::new().key(Key::new([1; 32])));
    keys.unlock(&conn, path, false).unwrap_or_else(|fault| panic!("{fault:?}"));
    (conn, keys)
}

/// A row of `payload`: its id, its form, and its columns that a blob may stand in.
type SealedRow = (i64, i64, rusqlite::types::Value, rusqlite::types::Value, rusqlite::types::Value);

#[test]
fn a_sealed_payload_is_bound_to_its_id_its_form_and_its_blobs() {
    use rusqlite::types::Value::{Blob, Integer, Null};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let store = SqliteBackend::open(&path, &options().key(Key::new([1; 32]))).unwrap();
    let mut bench = Bench { folder, store, ids: IdSource::from_seed(7) };
    let of = |codec, data: &str, text: &str| {
        let mut index = ItemIndex::default();
        index.text = Some(text.into());
        let mut payload = Payload::new(data.as_bytes().to_vec()).with_index(index);
        payload.codec = codec;
        payload
    };
    let long = "y".repeat(2_000);
    let payloads = [
        of(Codec::MsgPack, "data", "text"),
        of(Codec::Foreign(3), "data", "text"),
        of(Codec::Foreign(3), &long, "text"),
        of(Codec::MsgPack, "data", &long),
    ];
    let puts =
        payloads.into_iter().zip(0..).map(|(payload, n)| ItemChange::new(n, ItemOp::Put(Data::New(payload)), None));
    bench.add(&thread("a"), None, vec![list(4, puts.collect())]);
    let (conn, keys) = keys_of(&path);
    let mut statement = conn.prepare("SELECT id, form, data, item_id, text FROM payload ORDER BY id").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let rows: Vec<SealedRow> = statement.query_map([], read).unwrap().map(Result::unwrap).collect();
    let forms: Vec<i64> = rows.iter().map(|row| row.1).collect();
    assert_eq!(forms, [0, 12, 13, 1]);
    for (n, (id, form, data, beside, text)) in rows.into_iter().enumerate() {
        let (data_blob, sealed) = match (data, beside) {
            (Blob(sealed), Null) => (-1, sealed),
            (Integer(blob), Blob(sealed)) => (blob, sealed),
            other => panic!("{other:?}"),
        };
        let text_blob = match text {
            Integer(blob) => blob,
            Null => -1,
            other => panic!("{other:?}"),
        };
        assert_eq!((data_blob > 0, text_blob > 0), (n == 2, n == 3));
        let identity = keys.identity("payload").int(id).int(form).int(data_blob).int(text_blob);
        let mut fields = Vec::new();
        keys.open(&conn, &identity, &sealed, &mut fields, &|| "a payload".into())
            .unwrap_or_else(|e| panic!("{n}: {e:?}"));
        // The first byte says that there is an index, and that its text is a blob.
        assert_eq!(fields[0], if n == 3 { 3 } else { 1 });
        assert_eq!(fields.ends_with(b"data"), n != 2);
        let other = keys.identity("payload").int(id + 1).int(form).int(data_blob).int(text_blob);
        assert!(keys.open(&conn, &other, &sealed, &mut fields, &|| "a payload".into()).is_err());
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_check_with_a_key_is_that_of_the_columns_and_of_the_file() {
    let check = |options: &OpenOptions| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        drop(SqliteBackend::open(&path, options).unwrap());
        let (_conn, keys) = keys_of(&path);
        let of = |column: i64| RowCheck::of("item").int(column).finish_keyed(&keys);
        assert_eq!(of(1), of(1));
        assert!((2..20).all(|column| of(column) != of(1)));
        assert_ne!(of(1), RowCheck::of("item").int(1).finish());
        assert_eq!(of(1), i64::from(of(1) as i32), "a check has 32 bits");
        of(1)
    };
    let options = options().key(Key::new([1; 32]));
    assert_ne!(check(&options), check(&options), "two files have two keys");
}

#[test]
fn sealed_metadata_of_a_plain_store_and_plain_metadata_of_a_sealed_one_are_damage() {
    use crate::store::sqlite::rows::sealed::{MetadataColumn, metadata};
    use rusqlite::types::ValueRef;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    drop(SqliteBackend::open(&path, &options().key(Key::new([1; 32]))).unwrap());
    let ((conn, sealing), plain, id) = (keys_of(&path), Keys::default(), [7; 16]);
    let read = |keys: &Keys, column: ValueRef<'_>| metadata(&conn, keys, &id, column, &|| "checkpoint 1".into());
    let sealed = MetadataColumn::new(&sealing, &id, Some("{}")).unwrap();
    let clear = MetadataColumn::new(&plain, &id, Some("{}")).unwrap();
    assert_eq!(read(&sealing, sealed.column()).unwrap().as_deref(), Some("{}"));
    assert_eq!(read(&plain, clear.column()).unwrap().as_deref(), Some("{}"));
    for (keys, column) in [
        (&plain, sealed.column()),
        (&sealing, clear.column()),
        (&plain, ValueRef::Integer(1)),
        (&plain, ValueRef::Text(&[0xff])),
    ] {
        let error = format!("{:?}", read(keys, column).unwrap_err());
        assert!(error.contains("metadata does not match the format"), "{error}");
    }
    for keys in [&sealing, &plain] {
        assert_eq!(read(keys, MetadataColumn::new(keys, &id, None).unwrap().column()).unwrap(), None);
    }
}
