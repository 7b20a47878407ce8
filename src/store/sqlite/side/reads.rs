//! The capability `SideTables` of a file: key-value memory and cache.
//!
//! Readers read on the pool, and changes are jobs of the writer. *Absent:* the rows, which `kv` and `cache` know.

use super::{cache, kv};
use crate::base::{Encoded, Timestamp};
use crate::store::error::StoreError;
use crate::store::log::{CommitHandle, VisitEach};
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use crate::store::sqlite::SqliteBackend;
use crate::store::sqlite::writer::job::{Job, JobRef};

impl SideTables for SqliteBackend {
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        self.writer()?.commit(JobRef::Kv(changes))
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError> {
        self.pool.read(|view| kv::entry(view, namespace, key, now))
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: VisitEach<'_, KvRecord>,
    ) -> Result<(), StoreError> {
        self.pool.read(|view| kv::entries(view, under, now, visit))
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.pool.read(|view| kv::indexed(view, under, now, visit))
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError> {
        self.pool.read(|view| kv::expired(view.conn, now, limit))
    }

    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        self.pool.read(|view| kv::namespaces(view, under, now))
    }

    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> Result<Vec<Option<Encoded>>, StoreError> {
        self.pool.read(|view| keys.iter().map(|key| cache::value(view, key, now)).collect())
    }

    fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle {
        match self.writer() {
            Ok(writer) => writer.submit(Job::Cache(changes)),
            Err(error) => CommitHandle::settled(Err(error)),
        }
    }
}
