//! The key-value memory and the cache: tables of rows that may expire.
//!
//! The changes of a call are one transaction. Repeating it after a lost connection is safe.

mod sql;

use std::sync::Arc;
use std::time::Duration;

use annals::base::limits::KV_EXPIRED_MAX;
use annals::base::{Codec, Encoded, Timestamp};
use annals::store::log::{CacheChange, CommitHandle, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use annals::store::{CacheKey, StoreError};
use tokio_postgres::Row;

use self::sql as side_sql;
use crate::PostgresBackend;
use crate::client::{Connections, Param, PgQuery, Together, back_off};
use crate::error::{corrupt, write_error};
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST, KV_PAGE_ROWS};
use crate::pack::{Packer, Unpacker, packed};
use crate::read::points::place_of;
use crate::rows::Cells;

fn int(value: i64) -> Param {
    Param::Int(Some(value))
}

fn text(text: &str) -> Param {
    Param::Text(Some(text.to_owned()))
}

fn blob(bytes: impl Into<Vec<u8>>) -> Param {
    Param::Bytes(Some(bytes.into()))
}

fn micros(at: Option<Timestamp>) -> Param {
    Param::Int(at.map(Timestamp::as_micros))
}

fn pack_vectors(vectors: &[KvVector]) -> Option<Vec<u8>> {
    let write = |to: &mut Packer, vector: &KvVector| {
        to.text(&vector.field);
        to.list(&vector.values, |to, value| to.0.extend_from_slice(&value.to_le_bytes()));
    };
    (!vectors.is_empty()).then(|| packed(|to| to.list(vectors, write)))
}

fn unpack_vectors(bytes: &[u8]) -> Result<Vec<KvVector>, StoreError> {
    Unpacker::new(bytes, "kv_entry.vectors").list(|from| {
        let field = from.text()?.to_owned();
        Ok(KvVector::new(field, from.list(Unpacker::float)?))
    })
}

/// Returns the statements of a change.
fn kv_queries(change: &KvChange) -> Vec<PgQuery> {
    let (namespace, key) = change.place();
    let place = || vec![text(namespace.path()), blob(key)];
    let with = |more: Param| {
        let mut params = place();
        params.push(more);
        params
    };
    match change {
        KvChange::Put { value, now, expires_at, .. } => {
            let mut params = place();
            let codec = int(value.codec.to_tag().into());
            params.extend([codec, blob(value.bytes.clone()), int(now.as_micros()), micros(*expires_at)]);
            let expired = [int(now.as_micros()), int(KV_EXPIRED_MAX.into())];
            vec![
                PgQuery::new(side_sql::DELETE_EXPIRED, expired),
                PgQuery::new(side_sql::DELETE_IF_EXPIRED, with(int(now.as_micros()))),
                PgQuery::new(side_sql::PUT_NAMESPACE, [text(namespace.path())]),
                PgQuery::new(side_sql::PUT, params),
            ]
        }
        KvChange::Delete { .. } => vec![PgQuery::new(side_sql::DELETE, place())],
        KvChange::DeleteExpired { now, .. } => {
            vec![PgQuery::new(side_sql::DELETE_IF_EXPIRED, with(int(now.as_micros())))]
        }
        KvChange::SetVectors { vectors, .. } => {
            vec![PgQuery::new(side_sql::SET_VECTORS, with(Param::Bytes(pack_vectors(vectors))))]
        }
        KvChange::SetLifetime { lifetime, .. } => {
            let lifetime = i64::try_from(Duration::as_micros(lifetime)).unwrap_or(i64::MAX);
            vec![PgQuery::new(side_sql::SET_LIFETIME, with(int(lifetime)))]
        }
        KvChange::Prolong { now, .. } => vec![PgQuery::new(side_sql::PROLONG, with(int(now.as_micros())))],
    }
}

/// Packs labels so that those of an outer namespace begin those of an inner one.
fn labels(labels: &[String]) -> Vec<u8> {
    packed(|to| labels.iter().for_each(|label| to.text(label)))
}

fn cache_queries(change: CacheChange) -> Vec<PgQuery> {
    match change {
        CacheChange::Put { key, value, now, expires_at } => {
            let codec = int(value.codec.to_tag().into());
            let place = [blob(labels(&key.namespace)), blob(key.key.into_bytes())];
            let params = place.into_iter().chain([codec, blob(value.bytes), micros(expires_at)]);
            let expired = [int(now.as_micros()), int(KV_EXPIRED_MAX.into())];
            vec![
                PgQuery::new(side_sql::CACHE_DELETE_EXPIRED, expired),
                PgQuery::new(side_sql::CACHE_PUT, params.collect::<Vec<_>>()),
            ]
        }
        CacheChange::Clear { namespace } => vec![PgQuery::new(side_sql::CACHE_CLEAR, [blob(labels(&namespace))])],
        CacheChange::ClearNamespace { namespace } => {
            vec![PgQuery::new(side_sql::CACHE_CLEAR_NAMESPACE, [blob(labels(&namespace))])]
        }
    }
}

/// Makes changes in one transaction, and again if it fails for a reason that passes.
async fn write(lanes: &Connections, queries: &[PgQuery]) -> Result<(), StoreError> {
    let mut backoff = BACKOFF_FIRST;
    for attempt in 1.. {
        match lanes.write_beside(queries).await {
            Ok(_) => break,
            Err(fault) if attempt < ATTEMPTS_MAX && fault.passes() => back_off(&mut backoff).await,
            Err(fault) => return Err(write_error(fault)),
        }
    }
    Ok(())
}

fn namespace_of(path: &str) -> Result<KvNamespace, StoreError> {
    match path {
        "" => KvNamespace::from_labels([""; 0]),
        path => KvNamespace::from_labels(path.split('.')),
    }
}

fn key_of(bytes: &[u8]) -> Result<String, StoreError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| corrupt("kv_entry.key", "it is not UTF-8"))
}

fn encoded(cells: &mut Cells<'_>) -> Result<Encoded, StoreError> {
    let codec = Codec::from_tag(cells.next::<i16>()? as u8);
    Ok(Encoded { codec, bytes: cells.next()? })
}

fn kv_record(cells: &mut Cells<'_>) -> Result<KvRecord, StoreError> {
    let (namespace, key) = (namespace_of(cells.next()?)?, key_of(cells.next()?)?);
    let (value, created_at) = (encoded(cells)?, Timestamp::from_micros(cells.next()?));
    let mut record = KvRecord::new(namespace, key, value, created_at);
    record.updated_at = Timestamp::from_micros(cells.next()?);
    record.expires_at = cells.next::<Option<i64>>()?.map(Timestamp::from_micros);
    Ok(record)
}

impl PostgresBackend {
    fn side_rows(&self, sql: &'static str, params: impl Into<Vec<Param>>) -> Result<Vec<Row>, StoreError> {
        Ok(self.client.read(vec![PgQuery::new(sql, params)], Together::Apart)?.remove(0))
    }

    /// Visits the entries in a namespace, in their order, page by page.
    fn each_entry(
        &self,
        under: Option<&KvNamespace>,
        (now, indexed): (Timestamp, bool),
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let (under, mut after) = (under.map_or("", KvNamespace::path), (i64::MIN, i64::MIN));
        loop {
            let params =
                [text(under), int(now.as_micros()), int(indexed.into()), int(after.0), int(after.1), int(KV_PAGE_ROWS)];
            let rows = self.side_rows(side_sql::ENTRIES, params)?;
            for row in &rows {
                let mut cells = Cells::of(row);
                let record = kv_record(&mut cells)?;
                let vectors = cells.next::<Option<&[u8]>>()?.map_or(Ok(Vec::new()), unpack_vectors)?;
                after = (cells.next()?, cells.next()?);
                if !visit(&record, &vectors)? {
                    return Ok(());
                }
            }
            if (rows.len() as i64) < KV_PAGE_ROWS {
                return Ok(());
            }
        }
    }
}

impl SideTables for PostgresBackend {
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        KvChange::validate(changes)?;
        let (lanes, queries) =
            (Arc::clone(&self.client.lanes), changes.iter().flat_map(kv_queries).collect::<Vec<_>>());
        self.client.wait(async move { write(&lanes, &queries).await })
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError> {
        let rows = self.side_rows(side_sql::ENTRY, [text(namespace.path()), blob(key), int(now.as_micros())])?;
        rows.first().map(|row| kv_record(&mut Cells::of(row))).transpose()
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.each_entry(under, (now, false), &mut |record, _| visit(record))
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.each_entry(under, (now, true), visit)
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.side_rows(side_sql::EXPIRED, [int(now.as_micros()), int(limit)])?;
        let read = |row| {
            let mut cells = Cells::of(row);
            Ok((namespace_of(cells.next()?)?, key_of(cells.next()?)?))
        };
        rows.iter().map(read).collect()
    }

    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        let under = text(under.map_or("", KvNamespace::path));
        let rows = self.side_rows(side_sql::NAMESPACES, [under, int(now.as_micros())])?;
        rows.iter().map(|row| namespace_of(Cells::of(row).next()?)).collect()
    }

    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> Result<Vec<Option<Encoded>>, StoreError> {
        let namespaces = Param::Blobs(keys.iter().map(|key| Some(labels(&key.namespace))).collect());
        let names = Param::Blobs(keys.iter().map(|key| Some(key.key.clone().into_bytes())).collect());
        let rows = self.side_rows(side_sql::CACHED, [namespaces, names, int(now.as_micros())])?;
        let mut found = vec![None; keys.len()];
        for row in &rows {
            let mut cells = Cells::of(row);
            let at = place_of(&mut cells, keys.len())?;
            found[at] = Some(encoded(&mut cells)?);
        }
        Ok(found)
    }

    fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle {
        if let Err(error) = CacheChange::validate(&changes) {
            return CommitHandle::settled(Err(error));
        }
        let (handle, settler) = CommitHandle::open_remote();
        let (lanes, queries) =
            (Arc::clone(&self.client.lanes), changes.into_iter().flat_map(cache_queries).collect::<Vec<_>>());
        self.client.spawn(async move { settler.settle(write(&lanes, &queries).await) });
        handle
    }
}
