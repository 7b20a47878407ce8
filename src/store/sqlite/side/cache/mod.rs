//! Rows of the cache: put in place, cleared, and read by name.

mod sql;

use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Codec, Encoded, Timestamp};
use crate::store::side_tables::{CacheChange, CacheKey};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::table_group::TableGroup;
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checksums::cache_check;
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::tables::{TableRow, cache};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row, params};
use std::borrow::Cow;

/// Makes changes in the transaction that is open.
pub(crate) fn write(conn: &Connection, keys: &Keys, changes: &[CacheChange]) -> Res<()> {
    for change in changes {
        if matches!(change, CacheChange::Put { .. }) {
            TableGroup::Cache.make(conn)?;
        } else if !TableGroup::Cache.exists(conn)? {
            continue;
        }
        match change {
            CacheChange::Put { key, value, now, expires_at } => {
                conn.run(sql::CACHE_EXPIRED, params![now.as_micros(), KV_EXPIRED_MAX])?;
                let (namespace, expires_at) = (pack(&key.namespace), expires_at.map(Timestamp::as_micros));
                let codec = i64::from(value.codec.to_tag());
                let name = key_column(keys, &namespace, &key.key);
                let (namespace, key, data) = (&*namespace, &*name, &*value.bytes);
                let clear = cache::Row { id: 0, namespace, key, expires_at, xxh3: 0, codec, data };
                let data = sealed::value_column(keys, || identity(keys, &clear), data)?;
                let row = cache::Row { data: &data, ..clear };
                cache::Row { xxh3: cache_check(keys, &row), ..row }.store(conn, sql::CACHE_PUT, None)?;
            }
            CacheChange::Clear { namespace } if namespace.is_empty() => {
                conn.run(sql::CACHE_CLEAR, [])?;
            }
            CacheChange::Clear { namespace } => {
                let from = pack(namespace);
                let mut to = from.clone();
                // Keys with this prefix end before the bytes in which the last 0 is a 1.
                to.pop();
                to.push(1);
                conn.run(sql::CACHE_CLEAR_UNDER, params![from, to])?;
            }
            CacheChange::ClearNamespace { namespace } => {
                conn.run(sql::CACHE_CLEAR_NAMESPACE, [pack(namespace)])?;
            }
        }
    }
    Ok(())
}

/// Returns the value under a key, unless it has expired.
pub(crate) fn value(view: ReadView<'_>, key: &CacheKey, now: Timestamp) -> Res<Option<Encoded>> {
    if !TableGroup::Cache.exists(view.conn)? {
        return Ok(None);
    }
    let namespace = pack(&key.namespace);
    let name = key_column(view.keys, &namespace, &key.key);
    view.conn.read_first(sql::CACHED, params![now.as_micros(), namespace, name], |row| decode(view, row))
}

/// Returns the column of a key. In an encrypted file it is a keyed hash: a key often is a hash of the input of a task,
/// which could be guessed from it.
fn key_column<'k>(keys: &Keys, namespace: &[u8], key: &'k str) -> Cow<'k, str> {
    if !keys.seal_content() {
        return Cow::Borrowed(key);
    }
    let mut hash = keys.builder();
    hash.bytes(b"cache key").bytes(namespace).bytes(key.as_bytes());
    hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the identity of a sealed value.
fn identity(keys: &Keys, row: &cache::Row<'_>) -> Identity {
    let identity = keys.identity("cache").bytes(row.namespace).bytes(row.key.as_bytes());
    identity.maybe_int(row.expires_at).int(row.codec)
}

/// Packs labels: each followed by a 0 byte, which none holds.
fn pack(labels: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(labels.iter().map(|label| label.len() + 1).sum());
    for label in labels {
        out.extend_from_slice(label.as_bytes());
        out.push(0);
    }
    out
}

/// Decodes and verifies an entry.
fn decode(view: ReadView<'_>, row: &Row<'_>) -> Res<Encoded> {
    let row = cache::Row::read(row, 0)?;
    let place = || format!("cache {:?}", row.key);
    if cache_check(view.keys, &row) != row.xxh3 {
        return Err(corrupt(place(), "its checksum does not match"));
    }
    let data = sealed::value((view.conn, view.keys), || identity(view.keys, &row), row.data.to_vec(), &place)?;
    let tag = u8::try_from(row.codec).map_err(|_| corrupt(place(), format!("codec {} does not exist", row.codec)))?;
    Ok(Encoded { codec: Codec::from_tag(tag), bytes: data })
}

/// Verifies a row.
pub(crate) fn check(view: ReadView<'_>, row: &Row<'_>) -> Res<()> {
    decode(view, row).map(|_| ())
}
