//! Rows that an entry of the key-value memory may have beside its own: its vectors, and its lifetime.
//!
//! The check of a vector covers the entry, the time of its last put and the number of its vectors, so that a vector
//! that is missing, or of an older value, is found. *Absent:* the comparison of vectors.

use super::sql;
use crate::store::side_tables::{KvRecord, KvVector};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checksums::{kv_lifetime_check, kv_vector_check};
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::tables::{Bare, TableRow, decoded, kv_lifetime, kv_vector};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Connection, Row, params};
use std::time::Duration;

/// The entry that a row belongs to, as its check covers it.
#[derive(Clone, Copy)]
pub(crate) struct EntryOwner<'a> {
    pub(super) id: i64,
    pub(super) path: &'a str,
    pub(super) key: &'a str,
    pub(super) updated_at: i64,
}

impl<'a> EntryOwner<'a> {
    pub(crate) fn of(id: i64, record: &'a KvRecord) -> Self {
        let updated_at = record.updated_at.as_micros();
        Self { id, path: record.namespace.path(), key: &record.key, updated_at }
    }

    fn place(&self, row: &str) -> String {
        format!("{row} of kv {:?} {:?}", self.path, self.key)
    }

    fn identity(&self, keys: &Keys, count: usize, vector: &kv_vector::Row<'_>) -> Identity {
        let identity = keys.identity("kv vector").bytes(self.path.as_bytes()).bytes(self.key.as_bytes());
        let identity = identity.int(self.updated_at).int(count as i64).int(vector.position);
        identity.bytes(vector.field.as_bytes()).int(vector.dims)
    }

    fn check(&self, keys: &Keys, count: usize, vector: &kv_vector::Row<'_>) -> i64 {
        kv_vector_check(keys, (self.path, self.key), self.updated_at, count as i64, vector)
    }
}

/// Removes the vectors and the lifetime of an entry.
pub(super) fn remove(conn: &Connection, entry: i64) -> Res<()> {
    conn.run(kv_vector::Row::DELETE_UNDER, [entry])?;
    conn.run(kv_lifetime::Row::DELETE, [entry])?;
    Ok(())
}

/// Stores the vectors of an entry in place of those it has.
pub(super) fn store(conn: &Connection, keys: &Keys, owner: EntryOwner<'_>, vectors: &[KvVector]) -> Res<()> {
    conn.run(kv_vector::Row::DELETE_UNDER, [owner.id])?;
    for (position, vector) in (0..).zip(vectors) {
        let bytes: Vec<u8> = vector.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (field, dims) = (&*vector.field, vector.values.len() as i64);
        let clear = kv_vector::Row { entry: owner.id, position, field, dims, data: &bytes, xxh3: 0 };
        let data = sealed::value_column(keys, || owner.identity(keys, vectors.len(), &clear), &bytes)?;
        let row = kv_vector::Row { data: &data, ..clear };
        kv_vector::Row { xxh3: owner.check(keys, vectors.len(), &row), ..row }.insert(conn)?;
    }
    Ok(())
}

/// Reads and verifies the vectors of an entry.
pub(crate) fn read(view: ReadView<'_>, owner: EntryOwner<'_>) -> Res<Vec<KvVector>> {
    let found = view.conn.read_all(kv_vector::Row::UNDER, [owner.id], |row| kv_vector::Row::owned(row))?;
    let count = found.len();
    let mut vectors = Vec::with_capacity(count);
    for row in decoded::<kv_vector::Row<'_>>(&found)? {
        let place = || owner.place(&format!("kv_vector {}", row.position));
        if owner.check(view.keys, count, &row) != row.xxh3 {
            return Err(corrupt(place(), "its check does not match"));
        }
        let identity = || owner.identity(view.keys, count, &row);
        let data = sealed::value((view.conn, view.keys), identity, row.data.to_vec(), &place)?;
        let (chunks, rest) = data.as_chunks::<4>();
        if !rest.is_empty() || i64::try_from(chunks.len()) != Ok(row.dims) {
            return Err(corrupt(place(), "its length does not match its dimensions"));
        }
        let values: Vec<f32> = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if !values.iter().all(|value| value.is_finite()) {
            return Err(corrupt(place(), "a component is not a finite number"));
        }
        vectors.push(KvVector::new(row.field, values));
    }
    Ok(vectors)
}

/// Stores the lifetime of an entry.
pub(super) fn store_lifetime(conn: &Connection, keys: &Keys, owner: EntryOwner<'_>, lifetime: Duration) -> Res<()> {
    let lifetime = i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX);
    let check = kv_lifetime_check(keys, owner.path, owner.key, lifetime);
    conn.run(sql::LIFETIME_SET, params![owner.id, lifetime, check])?;
    Ok(())
}

/// Reads and verifies the lifetime of an entry.
pub(crate) fn lifetime(conn: &Connection, keys: &Keys, owner: EntryOwner<'_>) -> Res<Option<Duration>> {
    let read = |row: &Row<'_>| kv_lifetime::Row::read(row, 0).map(|row| (row.lifetime, row.xxh3));
    let Some((lifetime, xxh3)) = conn.read_first(kv_lifetime::Row::BY_KEY, [owner.id], read)? else { return Ok(None) };
    if kv_lifetime_check(keys, owner.path, owner.key, lifetime) != xxh3 {
        return Err(corrupt(owner.place("kv_lifetime"), "its check does not match"));
    }
    Ok(Some(Duration::from_micros(u64::try_from(lifetime).unwrap_or(0))))
}
