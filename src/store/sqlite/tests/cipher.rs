//! Encrypted files: secrets in the bytes of the file, keys, rotation, and ciphertexts that were tampered with or moved.

use super::*;
use crate::base::{Codec, Encoded};
use crate::store::StoreError;
use crate::store::check::Invariant;
use crate::store::cipher::{Cipher, CipherError, Key};
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvVector, SideTables};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::item::{PUT, item_check};
use crate::store::sqlite::rows::version::{VersionRow, versions_check};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::row_check::payload_column;
use crate::store::sqlite::tables::{TableRow, version};
use crate::store::sqlite::view::ReadView;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use std::collections::HashSet;
use xxhash_rust::xxh3::xxh3_64;

pub(super) fn key(byte: u8) -> Key {
    Key::new([byte; 32])
}

pub(super) fn encrypted(key: Key) -> OpenOptions {
    options().key(key)
}

/// A store in a folder of its own, opened with these options.
pub(super) fn bench(options: &OpenOptions) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteBackend::open(&folder.path().join("x.db"), options).unwrap();
    Bench { folder, store, ids: IdSource::from_seed(7) }
}

fn reopen(bench: &mut Bench, options: &OpenOptions) {
    let path = bench.path();
    // Another file takes its place: a file is open once when its handle is dropped.
    bench.store = SqliteBackend::open(&bench.folder.path().join("other.db"), &super::options()).unwrap();
    bench.store = SqliteBackend::open(&path, options).unwrap();
}

fn encoded(text: &str) -> Encoded {
    Encoded { codec: Codec::MsgPack, bytes: text.as_bytes().to_vec() }
}

fn kv_put(key: &str, text: &str) -> KvChange {
    let namespace = KvNamespace::new(["users"]).unwrap();
    let now = Timestamp::from_micros(5);
    KvChange::Put { namespace, key: key.into(), value: encoded(text), now, expires_at: None }
}

/// Returns a vector whose bytes are a text.
fn kv_vector(key: &str, text: &str) -> KvChange {
    let values = text.as_bytes().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let (namespace, vectors) = (KvNamespace::new(["users"]).unwrap(), vec![KvVector::new("$", values)]);
    KvChange::SetVectors { namespace, key: key.into(), vectors }
}

fn cache_put(key: &str, text: &str) -> CacheChange {
    let key = CacheKey { namespace: vec!["w".into()], key: key.into() };
    CacheChange::Put { key, value: encoded(text), now: Timestamp::default(), expires_at: None }
}

/// Random texts of 16 letters.
pub(super) struct Secrets {
    state: u64,
    all: HashSet<[u8; 16]>,
}

impl Secrets {
    pub(super) fn new() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, all: HashSet::new() }
    }

    pub(super) fn next(&mut self) -> String {
        let mut secret = [0; 16];
        for letter in &mut secret {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            *letter = b'a' + (self.state >> 32) as u8 % 26;
        }
        self.all.insert(secret);
        String::from_utf8(secret.to_vec()).unwrap()
    }

    /// Returns how many of the secrets are in these files.
    fn found_in(&self, files: &[PathBuf]) -> usize {
        let mut found = HashSet::new();
        for file in files {
            let bytes = std::fs::read(file).unwrap();
            // Secrets are small letters: most bytes are passed over without a search.
            let words = bytes.split(|byte| !byte.is_ascii_lowercase()).filter(|word| word.len() >= 16);
            found.extend(words.flat_map(|word| word.windows(16)).filter_map(|at| self.all.get(at)).copied());
        }
        found.len()
    }
}

/// A message whose every field is a secret.
fn secret_message(secrets: &mut Secrets, long: bool) -> Payload {
    let mut index = ItemIndex::default();
    index.id = Some(secrets.next().into());
    (index.kind, index.name) = (Some(secrets.next().into()), Some(secrets.next().into()));
    index.tool_calls = Some(format!("[\"{}\"]", secrets.next()));
    index.text = Some(if long { secrets.next() + &"x".repeat(2_000) } else { secrets.next() });
    index.input_tokens = Some(7);
    let data = if long { secrets.next() + &"y".repeat(2_000) } else { secrets.next() };
    Payload::new(data.into_bytes()).with_index(index)
}

/// Fills a store with 1,000 secrets and more, and returns the files that hold its bytes.
pub(super) fn fill(bench: &mut Bench, secrets: &mut Secrets) -> Vec<PathBuf> {
    let t = thread("alice");
    let mut parent: Option<CheckpointId> = None;
    for n in 0..40 {
        let node = task(1, "node");
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, parent.as_ref());
        let messages = [secret_message(secrets, false), secret_message(secrets, true)];
        let puts = messages.into_iter().zip(2 * n..);
        let put = |(payload, position)| ItemChange { position, op: ItemOp::Put(Data::New(payload)), task: None };
        let mut batch = Batch::new(t.clone(), Namespace::root(), parent);
        batch.checkpoints.push(NewCheckpoint {
            parent: parent.map(Parent::Local),
            tasks: vec![node.clone()],
            metadata: Some(format!("{{\"user\":\"{}\"}}", secrets.next())),
            changes: vec![
                list(2 * n + 1, puts.map(put).collect()),
                value("inline", n + 1, plain(secrets.next().as_bytes())),
                value("short", n + 1, plain(format!("{}{}", secrets.next(), secrets.next()).as_bytes())),
            ],
            ..checkpoint(id)
        });
        bench.store.commit(&batch).unwrap();
        let mut specials: Vec<_> = (-4..=-1).filter(|index| *index != -2).collect();
        specials.extend([-9, 0, 1]);
        let one = |index| write(index, "c", WriteValue::One(plain(secrets.next().as_bytes())));
        let written: Vec<_> = specials.into_iter().map(one).collect();
        let items = write(2, "messages", WriteValue::Items(vec![secret_message(secrets, false)]));
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
        batch.writes = vec![writes(id, &node, written), writes(id, &node, vec![items])];
        bench.store.commit(&batch).unwrap();
        let key = format!("k{n}");
        bench.store.commit_kv(&[kv_put(&key, &secrets.next()), kv_vector(&key, &secrets.next())]).unwrap();
        let cached = cache_put(&secrets.next(), &secrets.next());
        bench.store.submit_cache(vec![cached]).wait().unwrap();
        parent = Some(id);
    }
    let copy = bench.folder.path().join("copy.db");
    bench.store.backup(&copy).unwrap();
    let wal = crate::store::sqlite::file::paths::beside(&bench.path(), "-wal");
    assert!(std::fs::metadata(&wal).unwrap().len() > 100_000, "the log was not emptied");
    vec![bench.path(), wal, copy]
}

#[test]
fn no_secret_is_in_the_bytes_of_an_encrypted_store_and_all_are_in_a_plain_one() {
    for (options, is_encrypted) in [(encrypted(key(1)), true), (options(), false)] {
        let mut secrets = Secrets::new();
        let mut bench = bench(&options);
        let files = fill(&mut bench, &mut secrets);
        assert!(secrets.all.len() > 1_000, "{}", secrets.all.len());
        assert_eq!(bench.check(), Vec::<String>::new());
        let expected = if is_encrypted { 0 } else { secrets.all.len() };
        assert_eq!(secrets.found_in(&files), expected, "in file, log and copy");
        assert_eq!(secrets.found_in(&files[2..]), expected, "in the copy");
        reopen(&mut bench, &options);
        assert_eq!(secrets.found_in(&files[..1]), expected, "in the file");
        let copy = SqliteBackend::open(&files[2], &options.clone().read_only(true)).unwrap();
        assert!(copy.check().unwrap().problems.is_empty());
        assert_eq!(SqliteBackend::open(&files[2], &super::options()).is_err(), is_encrypted, "a copy needs the key");
        let names = ["v_messages", "v_writes", "v_checkpoints", "v_threads", "v_channel_versions", "v_kv"];
        for view in names {
            let conn = raw(&files[2]);
            let mut statement = conn.prepare(&format!("SELECT * FROM {view}")).unwrap();
            let mut rows = statement.query([]).unwrap();
            let mut count = 0;
            while rows.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count == 0, is_encrypted && view == "v_messages", "{view}: {count} rows");
        }
    }
}

#[test]
fn equal_content_of_two_files_has_no_hash_in_common() {
    let hashes = |options: &OpenOptions| -> Vec<Vec<u8>> {
        let mut bench = bench(options);
        bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 5_000])), value("y", 1, plain(b"low entropy"))]);
        let conn = raw(&bench.path());
        let all = "SELECT hash FROM blob UNION ALL SELECT sum FROM checkpoint UNION ALL SELECT data FROM blob";
        let mut statement = conn.prepare(all).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let common = |options: &OpenOptions| {
        let (one, two) = (hashes(options), hashes(options));
        one.iter().filter(|hash| two.contains(hash)).count()
    };
    assert_eq!((common(&encrypted(key(1))), common(&options())), (0, 3));
}

#[test]
fn a_store_is_opened_with_its_own_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let open = |name: &str, options: OpenOptions| SqliteBackend::open(&path(name), &options);
    for (name, options) in
        [("plain", options()), ("sealed", encrypted(key(1))), ("keyed", options().checksum_key(key(2)))]
    {
        let store = open(name, options).unwrap();
        store.commit_kv(&[kv_put("k", "v")]).unwrap();
    }
    let bytes = || ["plain", "sealed", "keyed"].map(|name| std::fs::read(path(name)).unwrap());
    let before = bytes();
    for read_only in [true, false] {
        let with = |options: OpenOptions| options.read_only(read_only);
        for (name, given) in [("plain", options().key(key(1))), ("plain", options().checksum_key(key(1)))] {
            let error = open(name, with(given)).unwrap_err();
            assert!(matches!(&error, StoreError::NotKeyed { given, .. } if given == key(1).id()), "{error}");
        }
        for (name, own, given) in [
            ("sealed", key(1), options()),
            ("sealed", key(1), options().checksum_key(key(1))),
            ("keyed", key(2), options()),
            ("keyed", key(2), options().key(key(2))),
        ] {
            let error = open(name, with(given)).unwrap_err();
            assert!(matches!(&error, StoreError::KeyRequired { key, .. } if key == own.id()), "{error}");
        }
        for (name, own, given) in [
            ("sealed", key(1), options().key(key(9))),
            ("sealed", key(1), options().key(key(9).with_id(key(1).id()))),
            ("keyed", key(2), options().checksum_key(key(9))),
        ] {
            let error = open(name, with(given)).unwrap_err();
            assert!(matches!(&error, StoreError::WrongKey { key, .. } if key == own.id()), "{error}");
        }
        let both = open("sealed", with(encrypted(key(1)).checksum_key(key(1)))).unwrap_err();
        assert!(matches!(both, StoreError::Invalid { field: "checksum_key", .. }));
        let unnamed = open("sealed", with(encrypted(key(1).with_id("")))).unwrap_err();
        assert!(matches!(unnamed, StoreError::Invalid { field: "key.id", .. }));
        let other = open("sealed", with(encrypted(key(1)).cipher(Reversed))).unwrap_err();
        assert!(other.to_string().contains("the cipher xchacha20poly1305, not with reversed"), "{other}");
        assert!(open("sealed", with(encrypted(key(1).with_id("another name")))).is_ok());
        assert!(open("keyed", with(options().checksum_key(key(2)))).is_ok());
    }
    assert!(bytes() == before, "no file was changed");
}

/// Not a cipher: the bytes are reversed.
struct Reversed;

impl Cipher for Reversed {
    fn name(&self) -> &str {
        "reversed"
    }

    fn seal(&self, _: &[u8; 32], _: &[u8], plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), CipherError> {
        sealed.extend(plain.iter().rev());
        sealed.push(0);
        Ok(())
    }

    fn open(&self, _: &[u8; 32], _: &[u8], sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), CipherError> {
        plain.extend(sealed.split_last().ok_or(CipherError)?.1.iter().rev());
        Ok(())
    }
}

#[test]
fn a_cipher_of_the_program_seals_and_opens() {
    let options = encrypted(key(1)).cipher(Reversed);
    let mut bench = bench(&options);
    let head = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "hello")])]);
    reopen(&mut bench, &options);
    assert_eq!(bench.items(&at(&thread("a"), head), ItemRange::All), [(0, "hello".into())]);
    let data: Vec<u8> = raw(&bench.path()).query_row("SELECT data FROM payload", [], |row| row.get(0)).unwrap();
    assert!(data.windows(5).any(|window| window == b"olleh"));
}

#[test]
fn a_store_without_content_takes_a_key_and_handles_without_it_write_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let plain = SqliteBackend::open(&path, &options()).unwrap();
    let read_only = SqliteBackend::open(&path, &encrypted(key(1)).read_only(true)).unwrap_err();
    assert!(matches!(read_only, StoreError::NotKeyed { .. }));
    let sealed = SqliteBackend::open(&path, &encrypted(key(1))).unwrap();
    let again = SqliteBackend::open(&path, &encrypted(key(1))).unwrap();
    let refused = plain.commit_kv(&[kv_put("k", "secret")]).unwrap_err();
    assert!(matches!(&refused, StoreError::KeyRequired { key: id, .. } if id == key(1).id()), "{refused}");
    sealed.commit_kv(&[kv_put("k", "secret")]).unwrap();
    again.commit_kv(&[kv_put("l", "secret")]).unwrap();
    assert!(sealed.check().unwrap().problems.is_empty());
}

#[test]
fn the_key_of_the_caller_changes_with_one_row_and_data_keys_rotate() {
    let mut bench = bench(&encrypted(key(1)));
    let t = thread("a");
    let first = bench.add(&t, None, vec![list(1, vec![put(0, "one")])]);
    let beside = SqliteBackend::open(&bench.path(), &encrypted(key(1))).unwrap();
    let rows = |path: &Path| -> Vec<(i64, Vec<u8>)> {
        let conn = raw(path);
        let mut statement = conn.prepare("SELECT id, sealed FROM store_key ORDER BY id").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let before = rows(&bench.path());
    bench.store.change_key(&key(2)).unwrap();
    let after = rows(&bench.path());
    assert!(before[0] != after[0] && before[1..] == after[1..], "one row was written");
    bench.store.rotate_data_key().unwrap();
    let second = bench.add(&t, Some(first), vec![list(2, vec![put(1, "two")])]);
    assert_eq!(rows(&bench.path()).len(), 3);
    let expected = [(0, "one".to_owned()), (1, "two".to_owned())];
    assert_eq!(items(&beside, &at(&t, second), ItemRange::All), expected, "the handle beside finds the new key");
    beside.commit_kv(&[kv_put("k", "v")]).unwrap();
    drop(beside);
    let sealed_with = |id: i64| -> u8 {
        let sql = "SELECT substr(data, 1, 1) FROM payload WHERE id = ?1";
        raw(&bench.path()).query_row(sql, [id], |row| row.get::<_, Vec<u8>>(0)).unwrap()[0]
    };
    assert_eq!((sealed_with(1), sealed_with(2)), (1, 2));
    assert!(bench.check().is_empty());
    let path = bench.path();
    assert!(matches!(SqliteBackend::open(&path, &encrypted(key(1))), Err(StoreError::WrongKey { .. })));
    reopen(&mut bench, &encrypted(key(2)));
    assert_eq!(bench.items(&at(&t, second), ItemRange::All), expected);
    assert!(bench.check().is_empty());
    assert!(matches!(bench.store.change_key(&key(3).with_id("x".repeat(256))), Err(StoreError::Invalid { .. })));
    let plain = Bench::new();
    assert!(matches!(plain.store.change_key(&key(3)), Err(StoreError::Invalid { .. })));
    assert!(matches!(plain.store.rotate_data_key(), Err(StoreError::Invalid { .. })));
}

/// A store with a sealed value of each kind.
fn one_of_each() -> (Bench, CheckpointRef) {
    let mut bench = bench(&encrypted(key(1)));
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(thread("a"), Namespace::root(), None);
    let changes = vec![value("x", 1, plain(b"small")), value("y", 1, plain(&[7; 2_000]))];
    batch.checkpoints.push(NewCheckpoint { metadata: Some("{}".into()), changes, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    bench.store.commit_kv(&[kv_put("k", "v"), kv_vector("k", "text")]).unwrap();
    bench.store.submit_cache(vec![cache_put("k", "v")]).wait().unwrap();
    (bench, at(&thread("a"), id))
}

/// Reads a value of each kind and returns the first error.
fn read_each(store: &SqliteBackend, at: &CheckpointRef) -> Result<(), StoreError> {
    store.state(at)?;
    store.kv_entry(&KvNamespace::new(["users"])?, "k", Timestamp::default())?;
    store.kv_indexed(None, Timestamp::default(), &mut |_, _| Ok(true))?;
    store.cached(&[CacheKey { namespace: vec!["w".into()], key: "k".into() }], Timestamp::default())?;
    Ok(())
}

/// Repairs the checks of payloads and checkpoints, which have no key, as a writer of the file can.
fn repair(conn: &rusqlite::Connection) {
    let updates = |sql: &str, check: &dyn Fn(&Row<'_>) -> i64| -> Vec<(i64, i64)> {
        let mut statement = conn.prepare(sql).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, check(row)))).unwrap().map(Result::unwrap).collect()
    };
    let payload = |row: &Row<'_>| {
        let sealed: Vec<u8> = row.get(1).unwrap();
        payload_column(row.get(0).unwrap(), xxh3_64(&sealed) as i64)
    };
    let sealed = "SELECT id, CASE typeof(data) WHEN 'blob' THEN data ELSE item_id END FROM payload";
    for (id, check) in updates(sealed, &payload) {
        conn.execute("UPDATE payload SET xxh3 = ?2 WHERE id = ?1", [id, check]).unwrap();
    }
    for (seq, _) in updates("SELECT seq FROM checkpoint", &|_| 0) {
        let check = |row: &Row<'_>| Ok(RecordRow::unverified(row).unwrap().check());
        let check = conn.query_row(sql::RECORD_BY_SEQ, [seq], check).unwrap();
        conn.execute("UPDATE checkpoint SET xxh3 = ?2 WHERE seq = ?1", [seq, check]).unwrap();
    }
}

#[test]
fn each_byte_of_a_sealed_value_is_covered() {
    let (bench, at) = one_of_each();
    read_each(&bench.store, &at).unwrap();
    let conn = without_triggers(&bench.path());
    let mut tampered = 0;
    for (table, column, filter) in [
        ("payload", "data", "typeof(data) = 'blob'"),
        ("payload", "item_id", "typeof(data) = 'integer'"),
        ("blob", "data", "1"),
        ("checkpoint", "metadata", "1"),
        ("kv", "data", "1"),
        ("kv_vector", "data", "1"),
        ("cache", "data", "1"),
    ] {
        let query = format!("SELECT {column} FROM {table} WHERE {filter}");
        let sealed: Vec<u8> = conn.query_row(&query, [], |row| row.get(0)).unwrap();
        let put = |bytes: &[u8]| {
            let sql = format!("UPDATE {table} SET {column} = ?1 WHERE {filter}");
            assert_eq!(conn.execute(&sql, [bytes]).unwrap(), 1);
            repair(&conn);
        };
        // Of the blob, which is long, a part.
        for n in (0..sealed.len()).filter(|n| *n < 100 || *n + 20 > sealed.len()) {
            let mut harmed = sealed.clone();
            harmed[n] ^= 0x10;
            put(&harmed);
            let error = read_each(&bench.store, &at).unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{table}.{column} byte {n}: {error}");
            tampered += 1;
        }
        put(&sealed[..sealed.len() - 1]);
        assert!(matches!(read_each(&bench.store, &at), Err(StoreError::Corrupt { .. })), "{table}.{column} cut");
        assert!(!bench.check().is_empty());
        put(&sealed);
        read_each(&bench.store, &at).unwrap();
    }
    assert!(tampered > 300, "{tampered}");
}

#[test]
fn a_sealed_value_is_bound_to_its_row_and_its_file() {
    let mut bench = bench(&encrypted(key(1)));
    let t = thread("a");
    let mut heads = Vec::new();
    for n in 0..2_u8 {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, heads.last());
        let mut batch = Batch::new(t.clone(), Namespace::root(), heads.last().copied());
        let changes =
            vec![value("x", 1 + u64::from(n), plain(&[n; 30])), value("y", 1 + u64::from(n), plain(&[n; 2_000]))];
        let parent = heads.last().copied().map(Parent::Local);
        batch.checkpoints.push(NewCheckpoint { metadata: Some(format!("[{n}]")), parent, changes, ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        heads.push(id);
    }
    bench.store.commit_kv(&[kv_put("k", "one"), kv_put("l", "two")]).unwrap();
    let cache = vec![cache_put("k", "one"), cache_put("l", "two")];
    bench.store.submit_cache(cache).wait().unwrap();
    let path = bench.path();
    let all = |store: &SqliteBackend| -> Result<(), StoreError> {
        heads.iter().try_for_each(|head| read_each(store, &at(&t, *head)))
    };
    all(&bench.store).unwrap();
    let conn = without_triggers(&path);
    for (table, columns) in [
        ("payload", "data, item_id"),
        ("blob", "data"),
        ("checkpoint", "metadata"),
        ("kv", "xxh3, data"),
        ("cache", "xxh3, data"),
    ] {
        let rowid = if table == "checkpoint" { "seq" } else { "id" };
        let first = if table == "payload" { "typeof(t.data) = 'blob'" } else { "1" };
        let swap = format!(
            "CREATE TEMP TABLE swapped AS SELECT t.{rowid} AS of, {columns} FROM {table} t WHERE {first}; \
             UPDATE {table} AS t SET ({columns}) = (SELECT {columns} FROM swapped s WHERE s.of <> t.{rowid}) \
             WHERE {first}; DROP TABLE swapped;"
        );
        conn.execute_batch(&swap).unwrap();
        repair(&conn);
        let error = all(&bench.store).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{table}: {error}");
        assert!(!bench.check().is_empty(), "{table}");
        conn.execute_batch(&swap).unwrap();
        repair(&conn);
        all(&bench.store).unwrap();
    }
    assert!(bench.check().is_empty());
}

/// Swaps the values to which the items and the channels refer, and computes their checks without a key.
fn forge_references(path: &Path) {
    let (conn, keys) = (without_triggers(path), Keys::default());
    for table in ["item", "version"] {
        let sum = format!("SELECT sum(value) FROM {table} WHERE typeof(value) = 'integer'");
        let sum: i64 = conn.query_row(&sum, [], |row| row.get(0)).unwrap();
        let swap = format!("UPDATE {table} SET value = ?1 - value WHERE typeof(value) = 'integer'");
        assert_eq!(conn.execute(&swap, [sum]).unwrap(), 2);
    }
    let mut items = conn.prepare("SELECT branch, channel, slot, ordinal, op, value FROM item").unwrap();
    let check = |row: &Row<'_>| -> rusqlite::Result<[i64; 2]> {
        let [branch, list, position, ordinal, op] = [0, 1, 2, 3, 4].map(|column| row.get(column).unwrap());
        Ok([position, item_check(&keys, branch, list, position, ordinal, op, None, row.get_ref(5)?)])
    };
    let checks: Vec<_> = items.query_map([], check).unwrap().map(Result::unwrap).collect();
    for check in checks {
        assert_eq!(conn.execute("UPDATE item SET xxh3 = ?2 WHERE slot = ?1", check).unwrap(), 1);
    }
    let mut versions = conn.prepare(&format!("{} ORDER BY key", version::Row::SELECT)).unwrap();
    let rows = versions.query_map([], |row| Ok(VersionRow::of(&version::Row::read(row, 0).unwrap()).unwrap())).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    let check = versions_check(&keys, 1, 0, &rows);
    assert_eq!(conn.execute("UPDATE version SET xxh3 = ?1 WHERE xxh3 IS NOT NULL", [check]).unwrap(), 1);
}

#[test]
fn a_forged_reference_is_found_where_it_is_read_if_the_checks_have_a_key() {
    for (options, is_keyed) in [(options(), false), (options().checksum_key(key(1)), true), (encrypted(key(1)), true)] {
        let mut bench = bench(&options);
        let items = vec![put(0, "pay ten"), put(1, "pay all")];
        let changes = vec![list(1, items), value("x", 1, plain(&[1; 40])), value("y", 1, plain(&[2; 40]))];
        let head = at(&thread("a"), bench.add(&thread("a"), None, changes));
        forge_references(&bench.path());
        let read = [
            bench.store.state(&head).map(|_| ()),
            bench.store.items(&head, "messages", ItemRange::All, &mut |_| Ok(())),
            bench.store.items(&head, "messages", ItemRange::Tail(1), &mut |_| Ok(())),
        ];
        for read in read {
            assert_eq!(matches!(read, Err(StoreError::Corrupt { .. })), is_keyed, "{read:?}");
        }
        assert!(!bench.check().is_empty(), "the checksum covers it in any file");
    }
}

#[test]
fn a_forged_resume_value_is_found_where_it_is_read_if_the_checksums_have_a_key() {
    for (options, is_keyed) in [(options(), false), (options().checksum_key(key(1)), true)] {
        let commit = |bench: &mut Bench, approval: u8| {
            let a = task(1, "a");
            let id = IdSource::from_seed(3).checkpoint(Timestamp::default(), 0, None);
            let mut batch = Batch::new(thread("a"), Namespace::root(), None);
            batch.checkpoints.push(NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(id) });
            bench.store.commit(&batch).unwrap();
            let mut batch = Batch::new(thread("a"), Namespace::root(), Some(id));
            batch.writes = vec![writes(id, &a, vec![write(-4, "given", WriteValue::One(plain(&[approval])))])];
            bench.store.commit(&batch).unwrap();
            at(&thread("a"), id)
        };
        let mut bench = bench(&options);
        let head = commit(&mut bench, 1);
        let mut forgery = Bench::new();
        commit(&mut forgery, 2);
        let conn = without_triggers(&bench.path());
        conn.execute("ATTACH ?1 AS forged", [forgery.path().to_str().unwrap()]).unwrap();
        conn.execute_batch("DELETE FROM write; INSERT INTO write SELECT * FROM forged.write; DETACH forged").unwrap();
        assert_eq!(bench.store.writes(&head).is_err(), is_keyed);
        assert_eq!(bench.check().is_empty(), !is_keyed);
    }
}

#[test]
fn a_value_in_the_clear_is_damage_in_an_encrypted_store() {
    for harm in [
        "UPDATE payload SET data = X'666f72676564' WHERE typeof(data) = 'blob'",
        "UPDATE payload SET data = CAST(X'02' || substr(data, 2) AS BLOB) WHERE typeof(data) = 'blob'",
        "UPDATE version SET value = X'07' WHERE key = (SELECT id FROM name WHERE text = 'x')",
        "UPDATE checkpoint SET metadata = '{}'",
        "UPDATE blob SET data = zeroblob(2000)",
    ] {
        let (mut bench, at) = one_of_each();
        let conn = without_triggers(&bench.path());
        conn.execute_batch(harm).unwrap();
        repair(&conn);
        drop(conn);
        reopen(&mut bench, &encrypted(key(1)));
        let error = read_each(&bench.store, &at).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{harm}: {error}");
        assert!(!bench.check().is_empty(), "{harm}");
    }
    for harm in [
        "DELETE FROM store_key WHERE id = 0",
        "UPDATE store_key SET file = zeroblob(16) WHERE id = 0",
        "UPDATE store_key SET sealed = zeroblob(72)",
        "UPDATE store_key SET sealed = zeroblob(72) WHERE id = 1",
    ] {
        let (bench, _) = one_of_each();
        raw(&bench.path()).execute_batch(harm).unwrap();
        let findings = bench.store.check().unwrap().problems;
        assert!(findings.iter().any(|finding| finding.invariant == Invariant::Keys), "{harm}: {findings:?}");
    }
}

#[test]
fn an_item_in_the_clear_is_damage_in_an_encrypted_store() {
    let mut bench = bench(&encrypted(key(1)));
    let head = at(&thread("a"), bench.add(&thread("a"), None, vec![list(1, vec![put(0, "zero"), put(1, "one")])]));
    let conn = without_triggers(&bench.path());
    let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (branch, channel): (i64, i64) =
        conn.query_row("SELECT branch, channel FROM item WHERE slot = 1", [], place).unwrap();
    // The check of a row does not say that its value is sealed.
    let check = |view: ReadView<'_>| Ok(item_check(view.keys, branch, channel, 1, 0, PUT, None, ValueRef::Blob(&[7])));
    let check = bench.store.pool.read(check).unwrap();
    conn.execute("UPDATE item SET value = X'07', xxh3 = ?1 WHERE slot = 1", [check]).unwrap();
    for range in [ItemRange::All, ItemRange::Tail(1), ItemRange::Positions(1, 2)] {
        let error = bench.store.items(&head, "messages", range, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("its value is not sealed"), "{range:?}: {error}");
    }
    let error = bench.store.search_list(&head, "messages", "one").unwrap_err();
    assert!(error.to_string().contains("its value is not sealed"), "{error}");
    let findings = bench.check();
    assert!(findings.iter().any(|finding| finding.contains("its value is not sealed")), "{findings:?}");
}

#[test]
fn a_forged_history_passes_the_check_of_a_plain_store_but_not_that_of_a_keyed_one() {
    for (options, is_keyed) in [(options(), false), (options().checksum_key(key(1)), true)] {
        let mut bench = bench(&options);
        let real = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "pay 10")])]);
        bench.add(&thread("a"), Some(real), vec![list(2, vec![put(1, "approved")])]);
        assert_eq!(bench.check(), Vec::<String>::new());
        // The same history but for one text, whose checksums are computed without a key.
        let mut forgery = Bench::new();
        let forged = forgery.add(&thread("a"), None, vec![list(1, vec![put(0, "pay 9999")])]);
        forgery.add(&thread("a"), Some(forged), vec![list(2, vec![put(1, "approved")])]);
        let conn = without_triggers(&bench.path());
        conn.execute("ATTACH ?1 AS forged", [forgery.path().to_str().unwrap()]).unwrap();
        for table in ["name", "name_user", "thread", "namespace", "branch", "checkpoint", "version", "payload", "item"]
        {
            conn.execute_batch(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM forged.{table}"))
                .unwrap();
        }
        conn.execute_batch("DETACH forged").unwrap();
        reopen(&mut bench, &options);
        let problems = bench.check();
        let found = problems.iter().filter(|problem| problem.contains("does not match")).count();
        assert_eq!(found, if is_keyed { 2 } else { 0 }, "{problems:?}");
        assert_eq!(problems.is_empty(), !is_keyed);
    }
}
