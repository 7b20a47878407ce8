//! Rows of the key-value memory: put in place, removed, and read in their order.

mod sql;
pub(crate) mod vectors;

use self::sql as kv_sql;
use self::vectors::EntryOwner;
use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Codec, Encoded, Timestamp};
use crate::store::error::StoreError;
use crate::store::log::VisitEach;
use crate::store::side_tables::{KvChange, KvNamespace, KvRecord, KvVector};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::rows::checksums::kv_check;
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{TableRow, kv, kv_vector};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row, params};

/// The column behind those of an entry.
const PATH: usize = kv::TABLE.columns.len();

/// Makes changes in the transaction that is open.
pub(crate) fn write(conn: &Connection, keys: &Keys, changes: &[KvChange]) -> Res<()> {
    for change in changes {
        if matches!(change, KvChange::Put { .. }) {
            TableGroup::Memory.make(conn)?;
        } else if !TableGroup::Memory.exists(conn)? {
            continue;
        }
        match change {
            KvChange::Put { namespace, key, value, now, expires_at } => {
                remove_expired(conn, *now)?;
                put(conn, keys, namespace, key, value, *now, *expires_at)?;
            }
            KvChange::Delete { namespace, key } => {
                if let Some((id, of, _)) = found(conn, namespace, key)? {
                    remove(conn, id, of)?;
                }
            }
            KvChange::DeleteExpired { namespace, key, now } => {
                if let Some((id, of, Some(expired))) = found(conn, namespace, key)?
                    && expired <= now.as_micros()
                {
                    remove(conn, id, of)?;
                }
            }
            KvChange::SetVectors { namespace, key, vectors } => {
                if let Some((id, record)) = stored(conn, keys, namespace, key)? {
                    vectors::store(conn, keys, EntryOwner::of(id, &record), vectors)?;
                }
            }
            KvChange::SetLifetime { namespace, key, lifetime } => {
                if let Some((id, record)) = stored(conn, keys, namespace, key)? {
                    vectors::store_lifetime(conn, keys, EntryOwner::of(id, &record), *lifetime)?;
                }
            }
            KvChange::Prolong { namespace, key, now } => {
                if let Some((id, record)) = stored(conn, keys, namespace, key)? {
                    prolong(conn, keys, id, &record, *now)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns number, namespace and expiry of a key.
fn found(conn: &Connection, namespace: &KvNamespace, key: &str) -> Res<Option<(i64, i64, Option<i64>)>> {
    let Some(of) = namespace_id(conn, namespace)? else { return Ok(None) };
    Ok(place(conn, of, key)?.map(|(id, _, expires_at)| (id, of, expires_at)))
}

/// Returns the number and the content of a key.
fn stored(conn: &Connection, keys: &Keys, namespace: &KvNamespace, key: &str) -> Res<Option<(i64, KvRecord)>> {
    conn.read_first(engine_sql::KV_ENTRY, params![namespace.path(), key], |row| {
        let (row, names) = (kv::Row::read(row, 0)?, Names::default());
        Ok((row.id, decode(ReadView { conn, names: &names, keys }, &row, namespace)?))
    })
}

/// Begins the lifetime of an entry anew, if it has one. Its check, and its sealed value, cover the new expiry.
fn prolong(conn: &Connection, keys: &Keys, id: i64, record: &KvRecord, now: Timestamp) -> Res<()> {
    let Some(lifetime) = vectors::lifetime(conn, keys, EntryOwner::of(id, record))? else { return Ok(()) };
    let expires_at = Some(now.saturating_add(lifetime));
    let [created_at, updated_at] = [record.created_at, record.updated_at].map(Timestamp::as_micros);
    let row = kv::Row { id, created_at, updated_at, ..row_of(&record.key, &record.value, expires_at) };
    store(conn, keys, &record.namespace, row, engine_sql::KV_UPDATE)
}

/// Returns the columns of an entry that a put states.
fn row_of<'r>(key: &'r str, value: &'r Encoded, expires_at: Option<Timestamp>) -> kv::Row<'r> {
    let (expires_at, codec) = (expires_at.map(Timestamp::as_micros), i64::from(value.codec.to_tag()));
    kv::Row { id: 0, namespace: 0, key, created_at: 0, updated_at: 0, expires_at, xxh3: 0, codec, data: &value.bytes }
}

/// Stores an entry with its check, in an encrypted file sealed.
fn store(conn: &Connection, keys: &Keys, namespace: &KvNamespace, clear: kv::Row<'_>, sql: &str) -> Res<()> {
    let data = sealed::value_column(keys, || identity(keys, namespace, &clear), clear.data)?;
    let row = kv::Row { data: &data, ..clear };
    let xxh3 = kv_check(keys, namespace.path(), &row);
    kv::Row { xxh3, ..row }.store(conn, sql, None).map(|_| ())
}

fn put(
    conn: &Connection,
    keys: &Keys,
    namespace: &KvNamespace,
    key: &str,
    value: &Encoded,
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Res<()> {
    let now = now.as_micros();
    let mut found = None;
    if let Some(of) = namespace_id(conn, namespace)? {
        found = place(conn, of, key)?;
        if let Some((id, _, Some(expired))) = found
            && expired <= now
        {
            remove(conn, id, of)?;
            found = None;
        }
    }
    let row = kv::Row { created_at: now, updated_at: now, ..row_of(key, value, expires_at) };
    if let Some((id, created_at, _)) = found {
        vectors::remove(conn, id)?;
        return store(conn, keys, namespace, kv::Row { id, created_at, ..row }, engine_sql::KV_UPDATE);
    }
    // Looked up anew: the removal of an expired key may have taken it along.
    let of = match namespace_id(conn, namespace)? {
        Some(of) => of,
        None => {
            conn.run(engine_sql::KV_NAMESPACE_INSERT, [namespace.path()])?;
            conn.last_insert_rowid()
        }
    };
    store(conn, keys, namespace, kv::Row { namespace: of, ..row }, engine_sql::KV_INSERT)
}

/// Returns the identity of a sealed value.
fn identity(keys: &Keys, namespace: &KvNamespace, row: &kv::Row<'_>) -> Identity {
    let identity = keys.identity("kv").bytes(namespace.path().as_bytes()).bytes(row.key.as_bytes());
    identity.int(row.created_at).int(row.updated_at).maybe_int(row.expires_at).int(row.codec)
}

fn remove(conn: &Connection, id: i64, namespace: i64) -> Res<()> {
    vectors::remove(conn, id)?;
    conn.run(kv::Row::DELETE, [id])?;
    conn.run(engine_sql::KV_NAMESPACE_DELETE, [namespace])?;
    Ok(())
}

fn remove_expired(conn: &Connection, now: Timestamp) -> Res<()> {
    let expired: Vec<(i64, i64)> = conn.all(engine_sql::KV_EXPIRED, params![now.as_micros(), KV_EXPIRED_MAX])?;
    expired.into_iter().try_for_each(|(id, namespace)| remove(conn, id, namespace))
}

fn namespace_id(conn: &Connection, namespace: &KvNamespace) -> Res<Option<i64>> {
    conn.first(engine_sql::KV_NAMESPACE, [namespace.path()])
}

/// Returns number, first put and expiry of a key.
fn place(conn: &Connection, namespace: i64, key: &str) -> Res<Option<(i64, i64, Option<i64>)>> {
    conn.first(engine_sql::KV_PLACE, params![namespace, key])
}

/// Returns an entry that has not expired.
pub(crate) fn entry(view: ReadView<'_>, namespace: &KvNamespace, key: &str, now: Timestamp) -> Res<Option<KvRecord>> {
    if !TableGroup::Memory.exists(view.conn)? {
        return Ok(None);
    }
    let read = |row: &Row<'_>| decode(view, &kv::Row::read(row, 0)?, namespace);
    let Some(record) = view.conn.read_first(engine_sql::KV_ENTRY, params![namespace.path(), key], read)? else {
        neighbors::no_kv_namespace(view.conn, namespace.path())?;
        neighbors::no_hidden_kv_namespace(view.conn, &view.names.counted)?;
        if let Some(of) = namespace_id(view.conn, namespace)? {
            neighbors::no_kv(view.conn, of, key)?;
        }
        return Ok(None);
    };
    Ok(is_valid(&record, now).then_some(record))
}

/// Returns whether a verified entry has not expired.
fn is_valid(record: &KvRecord, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|expires_at| expires_at > now)
}

/// Visits the entries of the namespaces under one, or of all, in their order.
pub(crate) fn entries(
    view: ReadView<'_>,
    under: Option<&KvNamespace>,
    now: Timestamp,
    visit: VisitEach<'_, KvRecord>,
) -> Res<()> {
    for found in numbered(view, under)? {
        let goes_on = found.visit(view, &mut |record| if is_valid(record, now) { visit(record) } else { Ok(true) })?;
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

/// Visits the entries that have vectors, as [`entries`] visits all.
pub(crate) fn indexed(
    view: ReadView<'_>,
    under: Option<&KvNamespace>,
    now: Timestamp,
    visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
) -> Res<()> {
    if !TableGroup::Memory.exists(view.conn)? || !view.conn.one::<bool>(kv_vector::Row::EXISTS, [])? {
        return Ok(());
    }
    for StoredNamespace { id, namespace, .. } in numbered(view, under)? {
        let goes_on = view.conn.each_while(kv_sql::INDEXED, [id], |row| {
            let row = kv::Row::read(row, 0)?;
            let record = decode(view, &row, &namespace)?;
            if !is_valid(&record, now) {
                return Ok(true);
            }
            Ok(visit(&record, &vectors::read(view, EntryOwner::of(row.id, &record))?)?)
        })?;
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the names of expired entries, the earliest first.
pub(crate) fn expired(conn: &Connection, now: Timestamp, limit: usize) -> Res<Vec<(KvNamespace, String)>> {
    if !TableGroup::Memory.exists(conn)? {
        return Ok(Vec::new());
    }
    let params = params![now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
    let rows: Vec<(i64, Option<String>, String)> = conn.all(kv_sql::EXPIRED, params)?;
    let named = rows.into_iter().map(|(id, path, key)| {
        let path = path.ok_or_else(|| corrupt(format!("kv {id}"), "its namespace does not exist"))?;
        let namespace = parse(&path).ok_or_else(|| corrupt(format!("kv {id}"), "the path of its namespace is none"))?;
        Ok((namespace, key))
    });
    named.collect()
}

/// Returns the namespaces that hold something, under one or all.
pub(crate) fn namespaces(view: ReadView<'_>, under: Option<&KvNamespace>, now: Timestamp) -> Res<Vec<KvNamespace>> {
    let mut namespaces = Vec::new();
    for found in numbered(view, under)? {
        // Most have an entry that does not expire, or expires later, at once.
        if !found.visit(view, &mut |record| Ok(!is_valid(record, now)))? {
            namespaces.push(found.namespace);
        }
    }
    Ok(namespaces)
}

/// A namespace of the key-value memory.
struct StoredNamespace {
    id: i64,
    namespace: KvNamespace,
    /// The number of its keys, which both indexes agree on.
    keys: i64,
}

impl StoredNamespace {
    /// Visits all entries, verified, with those that have expired. Ends when `visit` returns false; returns whether it
    /// did not.
    fn visit(&self, view: ReadView<'_>, visit: VisitEach<'_, KvRecord>) -> Res<bool> {
        let wrong = || corrupt(format!("kv_namespace {}", self.id), "an index does not give all of its keys");
        let (mut count, mut last) = (0, None);
        let goes_on = view.conn.each_while(engine_sql::KV_ENTRIES, [self.id], |row| {
            // An index can give a row twice, in the place of another one.
            let row = kv::Row::read(row, 0)?;
            if last >= Some(row.id) {
                return Err(wrong());
            }
            (count, last) = (count + 1, Some(row.id));
            Ok(visit(&decode(view, &row, &self.namespace)?)?)
        })?;
        if !goes_on || count == self.keys { Ok(goes_on) } else { Err(wrong()) }
    }
}

fn numbered(view: ReadView<'_>, under: Option<&KvNamespace>) -> Res<Vec<StoredNamespace>> {
    let conn = view.conn;
    if !TableGroup::Memory.exists(conn)? {
        return Ok(Vec::new());
    }
    neighbors::no_hidden_kv_namespace(conn, &view.names.counted)?;
    // Every namespace is in the root.
    let rows: Vec<(i64, String, i64, i64)> = match under.filter(|under| !under.path().is_empty()) {
        None => conn.all(engine_sql::KV_NAMESPACES, [])?,
        Some(under) => {
            // The character after the dot bounds what goes on with one.
            let (from, to) = (format!("{}.", under.path()), format!("{}/", under.path()));
            [under.path(), &from, &to].into_iter().try_for_each(|path| neighbors::no_kv_namespace(conn, path))?;
            conn.all(engine_sql::KV_NAMESPACES_UNDER, params![under.path(), from, to])?
        }
    };
    let decoded = rows.into_iter().map(|(id, path, keys, in_order)| {
        // A namespace is deleted with its last key. A key that one index does not show is in the other one.
        if keys != in_order || keys == 0 {
            return Err(corrupt(format!("kv_namespace {id}"), "its keys are not the same in both indexes"));
        }
        let namespace = parse(&path).ok_or_else(|| corrupt(format!("kv_namespace {id}"), "its path is none"))?;
        Ok(StoredNamespace { id, namespace, keys })
    });
    decoded.collect()
}

fn parse(path: &str) -> Option<KvNamespace> {
    KvNamespace::from_path(path).ok()
}

/// Decodes and verifies an entry.
pub(crate) fn decode(view: ReadView<'_>, row: &kv::Row<'_>, namespace: &KvNamespace) -> Res<KvRecord> {
    let &kv::Row { key, created_at, updated_at, expires_at, codec, data, .. } = row;
    let place = || format!("kv {namespace:?} {key:?}");
    if kv_check(view.keys, namespace.path(), row) != row.xxh3 {
        return Err(corrupt(place(), "its checksum does not match"));
    }
    let identity = || identity(view.keys, namespace, row);
    let data = sealed::value((view.conn, view.keys), identity, data.to_vec(), &place)?;
    let tag = u8::try_from(codec).map_err(|_| corrupt(place(), format!("codec {codec} does not exist")))?;
    Ok(KvRecord {
        namespace: namespace.clone(),
        key: key.to_owned(),
        value: Encoded { codec: Codec::from_tag(tag), bytes: data },
        created_at: Timestamp::from_micros(created_at),
        updated_at: Timestamp::from_micros(updated_at),
        expires_at: expires_at.map(Timestamp::from_micros),
    })
}

/// Verifies a row of `engine_sql::CHECK_KV`.
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    // Without a namespace it is among the rows that belong to nothing.
    let Some(path) = row.get::<_, Option<String>>(PATH)? else { return Ok(()) };
    let row = kv::Row::read(row, 0)?;
    let namespace = parse(&path).ok_or_else(|| corrupt(row.place(), "the path of its namespace is none"))?;
    decode(view, &row, &namespace).map(|_| ())
}

/// The entries whose vectors and lifetime [`check_beside_entry`] verifies.
pub(crate) const CHECK_BESIDE_ENTRY: &str = kv_sql::CHECK_BESIDE_ENTRY;

/// Verifies the vectors and the lifetime of an entry, a row of [`CHECK_BESIDE_ENTRY`].
pub(crate) fn check_beside_entry(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    let (path, row) = (row.get::<_, String>(PATH)?, kv::Row::read(row, 0)?);
    // A path or an entry that is damaged is found where entries are verified.
    let Some(Ok(record)) = parse(&path).map(|namespace| decode(view, &row, &namespace)) else { return Ok(()) };
    let owner = EntryOwner::of(row.id, &record);
    vectors::read(view, owner)?;
    vectors::lifetime(view.conn, view.keys, owner).map(|_| ())
}
