//! The keys of a file: the root key that the caller's key seals, the data keys, and the key of the checksums.
//!
//! A plain file has no table `store_key`. Row 0 holds the root key, or the verifier of a caller's key of
//! checksums; the rows after it hold data keys, of which the greatest seals new values. The keys are unlocked once,
//! when a file is opened and before its content is read. *Absent:* the columns that are sealed
//! ([`sealed`](crate::store::sqlite::rows::sealed)).

mod sql;

use crate::base::internal::hash::{self, Checksum, ChecksumBuilder};
use crate::limits::KEY_ID_BYTES_MAX;
use crate::store::cipher::{Cipher, Key, random};
use crate::store::error::StoreError;
use crate::store::options::OpenOptions;
use crate::store::sqlite::fault::{Fault, Res, corrupt, invalid};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::pack::{Unpack, put_uint};
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::tables::row_check::ChecksumKey;
use crate::store::sqlite::tables::{Bare, OwnedColumns, TableRow, decoded, store_key};
use parking_lot::RwLock;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// The bytes of a key, on the heap so that a move leaves no copy.
type Secret = Box<Zeroizing<[u8; 32]>>;

/// The name in place of a cipher in a file whose checksums alone have a key.
const CHECKSUMS_ALONE: &str = "blake3";

/// The keys and the cipher that the caller opens a file with.
#[derive(Clone, Default)]
pub(crate) struct GivenKeys {
    pub(crate) key: Option<Key>,
    pub(crate) checksum_key: Option<Key>,
    pub(crate) cipher: Option<Arc<dyn Cipher>>,
}

impl ChecksumKey for Keys {
    fn of_checksums(&self) -> Option<&[u8; 32]> {
        Keys::of_checksums(self)
    }
}

/// A change of the keys of an encrypted file.
#[derive(Clone, Debug)]
pub(crate) enum KeyChange {
    /// The root key is sealed with another key of the caller.
    Caller(Key),
    /// New values are sealed with a new data key.
    Data,
}

/// The keys of a file; of a plain one none.
#[derive(Default)]
pub(crate) struct Keys {
    /// The options with which the file is opened.
    pub(crate) options: OpenOptions,
    unlocked: OnceLock<Option<Unlocked>>,
}

struct Unlocked {
    /// The random id of the file, to which every sealed value is bound.
    file: [u8; 16],
    /// The key of the checksums.
    checksums: Secret,
    sealing: Option<Sealing>,
}

struct Sealing {
    cipher: Arc<dyn Cipher>,
    root: Secret,
    data_keys: RwLock<DataKeys>,
}

#[derive(Default)]
struct DataKeys {
    newest: i64,
    by_id: HashMap<i64, Arc<Secret>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("key", &self.options.keys.key).finish_non_exhaustive()
    }
}

/// The associated data of a sealed value: the file, the kind of the value, and the identity of its row.
pub(crate) struct Identity(Vec<u8>);

impl Identity {
    fn of(file: &[u8; 16], kind: &str) -> Self {
        let mut fields = Vec::with_capacity(96);
        fields.extend_from_slice(file);
        Self(fields).bytes(kind.as_bytes())
    }

    /// Adds an integer.
    pub(crate) fn int(mut self, field: i64) -> Self {
        self.0.extend_from_slice(&field.to_le_bytes());
        self
    }

    /// Adds an optional integer.
    pub(crate) fn maybe_int(self, field: Option<i64>) -> Self {
        let present = self.int(i64::from(field.is_some()));
        match field {
            Some(field) => present.int(field),
            None => present,
        }
    }

    /// Adds bytes, after their length.
    pub(crate) fn bytes(mut self, field: &[u8]) -> Self {
        self.0.extend_from_slice(&(field.len() as u64).to_le_bytes());
        self.0.extend_from_slice(field);
        self
    }
}

impl Keys {
    /// Takes the keys that a file is opened with.
    pub(crate) fn new(options: OpenOptions) -> Self {
        Self { options, unlocked: OnceLock::new() }
    }

    /// Unlocks the keys of a file, once; afterwards verifies that the file still has them. An empty store gets the
    /// given key if `creates`.
    pub(crate) fn unlock(&self, conn: &Connection, path: &Path, creates: bool) -> Res<()> {
        if self.unlocked.get().is_some() {
            return self.verify_unchanged(conn, path);
        }
        self.options.keys.validate()?;
        let mut rows = read_rows(conn)?;
        if rows.is_empty() && creates && self.options.keys.id().is_some() {
            rows = self.create(conn, path)?;
        }
        let unlocked = self.unlock_rows(decoded(&rows)?, path)?;
        // Of two threads that unlock at once, both have the same keys.
        _ = self.unlocked.set(unlocked);
        Ok(())
    }

    /// Unlocks the keys of a damaged file. If its rows cannot be read, and no key was given, it counts as a plain one.
    pub(crate) fn unlock_damaged(&self, conn: &Connection, path: &Path) -> Res<()> {
        match self.unlock(conn, path, false) {
            Err(Fault::Store(StoreError::Corrupt { .. }) | Fault::Sql(_)) if self.options.keys.id().is_none() => Ok(()),
            unlocked => unlocked,
        }
    }

    /// Gives a new file the keys of another one, by which its checksums are the same.
    pub(crate) fn copy_to(&self, old: &Connection, new: &Connection) -> Res<()> {
        if self.unlocked().is_some() {
            TableGroup::Keys.make(new)?;
            let rows = read_rows(old)?;
            decoded::<store_key::Row<'_>>(&rows)?.iter().try_for_each(|row| row.insert(new))?;
        }
        Ok(())
    }

    /// Verifies that another process has not given keys to a file that had none, or replaced them.
    pub(crate) fn verify_unchanged(&self, conn: &Connection, path: &Path) -> Res<()> {
        let rows = read_rows(conn)?;
        let first = decoded::<store_key::Row<'_>>(&rows)?.into_iter().next();
        let (found, own) = (first.as_ref().and_then(|row| row.file), self.unlocked().map(|unlocked| unlocked.file));
        match first {
            _ if found == own => Ok(()),
            Some(row) => Err(StoreError::KeyRequired { path: path.into(), key: row.caller.into() }.into()),
            None => Err(corrupt("store_key 0", "the row of the key of this file is missing")),
        }
    }

    fn unlocked(&self) -> Option<&Unlocked> {
        self.unlocked.get().and_then(Option::as_ref)
    }

    fn unlock_rows(&self, rows: Vec<store_key::Row<'_>>, path: &Path) -> Res<Option<Unlocked>> {
        let mut rows = rows.into_iter();
        let Some(first) = rows.next() else {
            return match self.options.keys.id() {
                None => Ok(None),
                Some(given) => Err(StoreError::NotKeyed { path: path.into(), given: given.into() }.into()),
            };
        };
        let file = first.file.filter(|_| first.id == 0);
        let file = file.ok_or_else(|| corrupt("store_key 0", "the row of the key does not match the format"))?;
        let required = || StoreError::KeyRequired { path: path.into(), key: first.caller.into() };
        let wrong = |given: &Key| StoreError::WrongKey {
            path: path.into(),
            key: first.caller.into(),
            given: given.id().to_owned(),
        };
        if first.cipher == CHECKSUMS_ALONE {
            let given = self.options.keys.checksum_key.as_ref().ok_or_else(required)?;
            let checksums = checksum_key(given.bytes(), &file);
            if *verifier(&checksums) != *first.sealed {
                return Err(wrong(given).into());
            }
            return Ok(Some(Unlocked { file, checksums, sealing: None }));
        }
        let given = self.options.keys.key.as_ref().ok_or_else(required)?;
        let cipher = self.options.keys.cipher(path)?;
        if cipher.name() != first.cipher {
            let reason = format!("it is encrypted with the cipher {}, not with {}", first.cipher, cipher.name());
            return Err(StoreError::Open { path: path.into(), reason, source: None }.into());
        }
        let root = open_key(&*cipher, given.bytes(), &root_identity(&file, first.caller), first.sealed);
        let sealing = Sealing { cipher, root: root.ok_or_else(|| wrong(given))?, data_keys: RwLock::default() };
        let checksums = checksum_key(&sealing.root, &file);
        let unlocked = Unlocked { file, checksums, sealing: Some(sealing) };
        rows.try_for_each(|row| unlocked.add_data_key(row.id, row.sealed).map(|_| ()))?;
        Ok(Some(unlocked))
    }

    /// Gives keys to a store that has no content. Returns the rows of another process that was faster, if there are
    /// any.
    fn create(&self, conn: &Connection, path: &Path) -> Res<Vec<OwnedColumns>> {
        conn.execute_batch(log_sql::BEGIN_WRITE)?;
        let created = self.create_in_transaction(conn, path);
        if created.is_err() && !conn.is_autocommit() {
            // The first error is reported; closing the connection rolls back as well.
            _ = conn.execute_batch(log_sql::ROLLBACK);
        }
        created
    }

    fn create_in_transaction(&self, conn: &Connection, path: &Path) -> Res<Vec<OwnedColumns>> {
        let rows = read_rows(conn)?;
        if !rows.is_empty() || !is_without_content(conn)? {
            conn.execute_batch(log_sql::ROLLBACK)?;
            return Ok(rows);
        }
        // A handle that was opened without a key compares the schema when its version changes, and the keys with it.
        TableGroup::Keys.make(conn)?;
        let file = *uuid::Uuid::new_v4().as_bytes();
        let insert = |id: i64, cipher: &str, caller: &str, sealed: &[u8]| {
            store_key::Row { id, cipher, caller, file: (id == 0).then_some(file), sealed }.insert(conn)
        };
        match (&self.options.keys.key, &self.options.keys.checksum_key) {
            (Some(key), _) => {
                let cipher = self.options.keys.cipher(path)?;
                let root = new_secret()?;
                let sealed = seal_key(&*cipher, key.bytes(), &root_identity(&file, key.id()), &root)?;
                insert(0, cipher.name(), key.id(), &sealed)?;
                let first = seal_key(&*cipher, &root, &data_key_identity(&file, 1), &new_secret()?)?;
                insert(1, cipher.name(), "", &first)?;
            }
            (None, Some(key)) => {
                let verifier = verifier(&checksum_key(key.bytes(), &file));
                insert(0, CHECKSUMS_ALONE, key.id(), &verifier[..])?;
            }
            (None, None) => {}
        }
        conn.execute_batch(log_sql::COMMIT)?;
        read_rows(conn)
    }

    /// Returns the key of the checksums, if they have one.
    pub(crate) fn of_checksums(&self) -> Option<&[u8; 32]> {
        self.unlocked().map(|unlocked| &**unlocked.checksums)
    }

    /// Returns a builder of checksums.
    pub(crate) fn builder(&self) -> ChecksumBuilder {
        self.of_checksums().map_or_else(ChecksumBuilder::new, ChecksumBuilder::keyed)
    }

    /// Returns the checksum of bytes.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> Checksum {
        self.of_checksums().map_or_else(|| hash::checksum(bytes), |key| hash::keyed_checksum(key, bytes))
    }

    /// Returns whether the content of the file is sealed.
    pub(crate) fn seal_content(&self) -> bool {
        self.unlocked().is_some_and(|unlocked| unlocked.sealing.is_some())
    }

    /// Begins the identity of a value of a kind.
    pub(crate) fn identity(&self, kind: &str) -> Identity {
        Identity::of(self.unlocked().map_or(&[0; 16], |unlocked| &unlocked.file), kind)
    }

    /// Seals a value with the newest data key: returns the number of the key and the output of the cipher.
    pub(crate) fn seal(&self, identity: &Identity, plain: &[u8]) -> Res<Vec<u8>> {
        let refused = || Fault::Store(StoreError::Write { reason: "the cipher sealed no value".into(), source: None });
        let sealing = self.unlocked().and_then(|unlocked| unlocked.sealing.as_ref()).ok_or_else(refused)?;
        let (newest, key) = {
            let keys = sealing.data_keys.read();
            (keys.newest, keys.by_id.get(&keys.newest).cloned().ok_or_else(refused)?)
        };
        let mut sealed = Vec::with_capacity(plain.len() + 48);
        put_uint(&mut sealed, newest as u64);
        sealing.cipher.seal(&key, &identity.0, plain, &mut sealed).map_err(|_| refused())?;
        debug_assert!(sealed.len() > plain.len(), "a tag was added");
        Ok(sealed)
    }

    /// Opens a sealed value and appends it to `plain`. A value that was not sealed with a key of this file, or for
    /// another row, is damage.
    pub(crate) fn open(
        &self,
        conn: &Connection,
        identity: &Identity,
        sealed: &[u8],
        plain: &mut Vec<u8>,
        place: &dyn Fn() -> String,
    ) -> Res<()> {
        let wrong = || corrupt(place(), "it is not a value that the keys of this file sealed for this row");
        let unlocked = self.unlocked().ok_or_else(wrong)?;
        let sealing = unlocked.sealing.as_ref().ok_or_else(wrong)?;
        let mut rest = Unpack(sealed);
        let id = rest.id().ok_or_else(wrong)?;
        let known = sealing.data_keys.read().by_id.get(&id).cloned();
        let key = match known {
            Some(key) => key,
            // Another process may have added it since the file was opened.
            None => {
                let row: Option<Vec<u8>> = conn.first(sql::STORE_KEY_SEALED, [id])?;
                unlocked.add_data_key(id, &row.filter(|_| id > 0).ok_or_else(wrong)?)?
            }
        };
        sealing.cipher.open(&key, &identity.0, rest.0, plain).map_err(|_| wrong())
    }

    /// Changes the keys of an encrypted file in the open transaction.
    pub(crate) fn change(&self, conn: &Connection, change: &KeyChange) -> Res<()> {
        let unlocked = self.unlocked();
        let Some((file, sealing)) = unlocked.and_then(|keys| Some((&keys.file, keys.sealing.as_ref()?))) else {
            return Err(invalid("key", "the store is not encrypted"));
        };
        match change {
            KeyChange::Caller(key) => {
                let sealed = seal_key(&*sealing.cipher, key.bytes(), &root_identity(file, key.id()), &sealing.root)?;
                conn.run(sql::STORE_KEY_UPDATE, params![key.id(), sealed])?;
            }
            KeyChange::Data => {
                let greatest: i64 = conn.one(store_key::Row::GREATEST, [])?;
                let id = greatest + 1;
                let sealed = seal_key(&*sealing.cipher, &sealing.root, &data_key_identity(file, id), &new_secret()?)?;
                store_key::Row { id, cipher: sealing.cipher.name(), caller: "", file: None, sealed: &sealed }
                    .insert(conn)?;
            }
        }
        Ok(())
    }

    /// Verifies the rows of the keys. That of the root key is verified if it is sealed with the key that was given.
    pub(crate) fn check(&self, conn: &Connection) -> Res<()> {
        let Some(unlocked) = self.unlocked() else { return Ok(()) };
        let rows = read_rows(conn)?;
        let mut rows = decoded::<store_key::Row<'_>>(&rows)?.into_iter();
        let first = rows.next().filter(|row| row.id == 0 && row.file == Some(unlocked.file));
        let first = first.ok_or_else(|| corrupt("store_key 0", "the row of the key does not match the format"))?;
        let fits = match (&unlocked.sealing, &self.options.keys.key) {
            (None, _) => *verifier(&unlocked.checksums) == *first.sealed,
            (Some(sealing), Some(given)) if given.id() == first.caller => {
                let identity = root_identity(&unlocked.file, first.caller);
                open_key(&*sealing.cipher, given.bytes(), &identity, first.sealed).is_some()
            }
            (Some(_), _) => true,
        };
        if !fits {
            return Err(corrupt("store_key 0", "the key of this file does not open it"));
        }
        rows.try_for_each(|row| unlocked.add_data_key(row.id, row.sealed).map(|_| ()))
    }

    /// Reads the data keys anew.
    pub(crate) fn reload(&self, conn: &Connection) -> Res<()> {
        let Some(unlocked) = self.unlocked().filter(|unlocked| unlocked.sealing.is_some()) else { return Ok(()) };
        let rows = read_rows(conn)?;
        let mut rows = decoded::<store_key::Row<'_>>(&rows)?.into_iter().filter(|row| row.id > 0);
        rows.try_for_each(|row| unlocked.add_data_key(row.id, row.sealed).map(|_| ()))
    }
}

impl Unlocked {
    fn add_data_key(&self, id: i64, sealed: &[u8]) -> Res<Arc<Secret>> {
        let wrong = || corrupt(format!("store_key {id}"), "it is not a data key that the root key of this file sealed");
        let sealing = self.sealing.as_ref().ok_or_else(wrong)?;
        let key = open_key(&*sealing.cipher, &sealing.root, &data_key_identity(&self.file, id), sealed);
        let key = Arc::new(key.ok_or_else(wrong)?);
        let mut keys = sealing.data_keys.write();
        keys.newest = keys.newest.max(id);
        keys.by_id.insert(id, Arc::clone(&key));
        Ok(key)
    }
}

impl GivenKeys {
    /// Returns the id of the key that was given, if one was.
    fn id(&self) -> Option<&str> {
        self.key.as_ref().or(self.checksum_key.as_ref()).map(Key::id)
    }

    fn validate(&self) -> Res<()> {
        if self.key.is_some() && self.checksum_key.is_some() {
            return Err(invalid(
                "checksum_key",
                "an encrypted store derives the key of its checksums from its own key",
            ));
        }
        Ok([&self.key, &self.checksum_key].into_iter().flatten().try_for_each(validate)?)
    }

    /// Returns the cipher of the caller, or the default one.
    fn cipher(&self, path: &Path) -> Res<Arc<dyn Cipher>> {
        if let Some(cipher) = &self.cipher {
            return Ok(Arc::clone(cipher));
        }
        #[cfg(feature = "encryption")]
        let default: Option<Arc<dyn Cipher>> = Some(Arc::new(crate::store::cipher::XChaCha20Poly1305));
        #[cfg(not(feature = "encryption"))]
        let default: Option<Arc<dyn Cipher>> = None;
        let reason = "it is encrypted, and this program was built without the feature encryption".to_owned();
        Ok(default.ok_or_else(|| StoreError::Open { path: path.into(), reason, source: None })?)
    }
}

impl KeyChange {
    /// Checks it against the limits.
    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        match self {
            Self::Caller(key) => validate(key),
            Self::Data => Ok(()),
        }
    }
}

/// Checks the id of a key.
fn validate(key: &Key) -> Result<(), StoreError> {
    if key.id().is_empty() || key.id().len() > KEY_ID_BYTES_MAX || key.id().contains('\0') {
        let reason = format!("it must have 1 to {KEY_ID_BYTES_MAX} bytes and no NUL");
        return Err(StoreError::Invalid { field: "key.id", reason });
    }
    Ok(())
}

/// Returns whether nothing was ever written to the store.
fn is_without_content(conn: &Connection) -> Res<bool> {
    for (group, table) in [(TableGroup::Memory, "kv_namespace"), (TableGroup::Cache, "cache")] {
        if group.exists(conn)? && conn.one(&log_sql::HAS_ROW.replace("{table}", table), [])? {
            return Ok(false);
        }
    }
    conn.one(sql::IS_WITHOUT_CONTENT, [])
}

fn read_rows(conn: &Connection) -> Res<Vec<OwnedColumns>> {
    if !TableGroup::Keys.exists(conn)? {
        return Ok(Vec::new());
    }
    conn.read_all(store_key::Row::SELECT, [], |row| store_key::Row::owned(row))
}

fn new_secret() -> Res<Secret> {
    let mut secret = Box::new(Zeroizing::new([0; 32]));
    let failed = |_| StoreError::Write { reason: "the operating system gave no random bytes".into(), source: None };
    random(&mut secret[..]).map_err(failed)?;
    Ok(secret)
}

fn root_identity(file: &[u8; 16], caller: &str) -> Identity {
    Identity::of(file, "root key").bytes(caller.as_bytes())
}

fn data_key_identity(file: &[u8; 16], id: i64) -> Identity {
    Identity::of(file, "data key").int(id)
}

fn seal_key(cipher: &dyn Cipher, with: &[u8; 32], identity: &Identity, key: &Secret) -> Res<Vec<u8>> {
    let mut sealed = Vec::new();
    let failed = |_| StoreError::Write { reason: "the cipher did not seal a key".into(), source: None };
    cipher.seal(with, &identity.0, &key[..], &mut sealed).map_err(failed)?;
    Ok(sealed)
}

fn open_key(cipher: &dyn Cipher, with: &[u8; 32], identity: &Identity, sealed: &[u8]) -> Option<Secret> {
    let mut plain = Zeroizing::new(Vec::with_capacity(32));
    cipher.open(with, &identity.0, sealed, &mut plain).ok()?;
    let mut key = Box::new(Zeroizing::new([0; 32]));
    (plain.len() == key.len()).then(|| key.copy_from_slice(&plain))?;
    Some(key)
}

/// Derives the key of the checksums of a file.
fn checksum_key(key: &[u8; 32], file: &[u8; 16]) -> Secret {
    let mut material = Zeroizing::new(Vec::with_capacity(48));
    material.extend_from_slice(key);
    material.extend_from_slice(file);
    Box::new(Zeroizing::new(blake3::derive_key("annals 2026-11 key of the checksums of a file", &material)))
}

/// Returns the bytes by which the key of the checksums is verified when a file is opened.
fn verifier(checksums: &Secret) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(blake3::derive_key("annals 2026-11 verifier of the key of the checksums", &checksums[..]))
}
