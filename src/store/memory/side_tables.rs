//! The key-value memory and the cache in memory: tables of rows that may expire.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::RwLock;

use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Encoded, Timestamp};
use crate::store::log::{CacheChange, CommitHandle, KvChange, KvNamespace, KvRecord, KvVector, SideTables};
use crate::store::{CacheKey, StoreError};

/// The number of a namespace, and that of a key in it: each in the order of the first put.
type EntryNumbers = (u64, u64);

/// An entry of the key-value memory.
#[derive(Clone, Debug)]
struct KvEntry {
    record: KvRecord,
    vectors: Vec<KvVector>,
    lifetime: Option<Duration>,
}

impl KvEntry {
    fn is_live(&self, now: Timestamp) -> bool {
        self.record.expires_at.is_none_or(|at| at > now)
    }
}

#[derive(Debug, Default)]
struct MemoryKv {
    last: u64,
    namespaces: HashMap<KvNamespace, u64>,
    keys: HashMap<(KvNamespace, String), EntryNumbers>,
    entries: BTreeMap<EntryNumbers, KvEntry>,
}

impl MemoryKv {
    fn change(&mut self, change: &KvChange) {
        let (namespace, key) = change.place();
        let at = self.keys.get(&(namespace.clone(), key.to_owned())).copied();
        match (change, at.and_then(|at| self.entries.get_mut(&at))) {
            (KvChange::Put { value, now, expires_at, .. }, before) => {
                let before = before.filter(|before| before.is_live(*now)).map(|before| before.record.created_at);
                let mut expired = self.expired(*now, KV_EXPIRED_MAX as usize);
                expired.extend(at.filter(|_| before.is_none()));
                expired.iter().for_each(|at| self.remove(at));
                let mut record = KvRecord::new(namespace.clone(), key, value.clone(), before.unwrap_or(*now));
                (record.updated_at, record.expires_at) = (*now, *expires_at);
                self.put(KvEntry { record, vectors: Vec::new(), lifetime: None });
            }
            (KvChange::Delete { .. }, Some(_)) => at.iter().for_each(|at| self.remove(at)),
            (KvChange::DeleteExpired { now, .. }, Some(entry)) if !entry.is_live(*now) => {
                at.iter().for_each(|at| self.remove(at));
            }
            (KvChange::SetVectors { vectors, .. }, Some(entry)) => entry.vectors.clone_from(vectors),
            (KvChange::SetLifetime { lifetime, .. }, Some(entry)) => entry.lifetime = Some(*lifetime),
            (KvChange::Prolong { now, .. }, Some(KvEntry { lifetime: Some(lifetime), record, .. })) => {
                record.expires_at = Some(now.saturating_add(*lifetime));
            }
            _ => {}
        }
    }

    /// Returns the places of entries that have expired, the earliest first.
    fn expired(&self, now: Timestamp, limit: usize) -> Vec<EntryNumbers> {
        let expired = self.entries.iter().filter(|(_, entry)| !entry.is_live(now));
        let mut expired: Vec<_> = expired.map(|(at, entry)| (entry.record.expires_at, *at)).collect();
        expired.sort_unstable();
        expired.into_iter().take(limit).map(|(_, at)| at).collect()
    }

    /// Puts an entry at the place of the one before it, or else at the end.
    fn put(&mut self, entry: KvEntry) {
        let mut next = || {
            self.last += 1;
            self.last
        };
        let KvRecord { namespace, key, .. } = &entry.record;
        let number = *self.namespaces.entry(namespace.clone()).or_insert_with(&mut next);
        let at = *self.keys.entry((namespace.clone(), key.clone())).or_insert_with(|| (number, next()));
        self.entries.insert(at, entry);
    }

    fn remove(&mut self, at: &EntryNumbers) {
        let Some(entry) = self.entries.remove(at) else { return };
        let KvRecord { namespace, key, .. } = entry.record;
        if self.entries.range((at.0, 0)..(at.0 + 1, 0)).next().is_none() {
            self.namespaces.remove(&namespace);
        }
        self.keys.remove(&(namespace, key));
    }
}

/// The tables beside the log.
#[derive(Debug, Default)]
pub(super) struct MemoryTables {
    kv: RwLock<MemoryKv>,
    cache: RwLock<BTreeMap<CacheKey, (Encoded, Option<Timestamp>)>>,
}

impl MemoryTables {
    pub(super) fn len(&self) -> usize {
        self.kv.read().entries.len() + self.cache.read().len()
    }

    /// Visits the entries of the namespaces under one, or of all, in their order, until one wants no more.
    fn each(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvEntry) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let is_in = |entry: &&KvEntry| under.is_none_or(|under| entry.record.namespace.is_in(under));
        let kv = self.kv.read();
        let entries: Vec<_> = kv.entries.values().filter(|entry| entry.is_live(now)).filter(is_in).cloned().collect();
        drop(kv);
        for entry in entries {
            if !visit(&entry)? {
                break;
            }
        }
        Ok(())
    }
}

impl SideTables for MemoryTables {
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError> {
        KvChange::validate(changes)?;
        let mut kv = self.kv.write();
        changes.iter().for_each(|change| kv.change(change));
        Ok(())
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError> {
        let kv = self.kv.read();
        let at = kv.keys.get(&(namespace.clone(), key.to_owned()));
        let entry = at.and_then(|at| kv.entries.get(at)).filter(|entry| entry.is_live(now));
        Ok(entry.map(|entry| entry.record.clone()))
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.each(under, now, &mut |entry| visit(&entry.record))
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.each(under, now, &mut |KvEntry { record, vectors, .. }| Ok(vectors.is_empty() || visit(record, vectors)?))
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError> {
        let kv = self.kv.read();
        let expired = kv.expired(now, limit).into_iter().map(|at| kv.entries[&at].record.clone());
        Ok(expired.map(|record| (record.namespace, record.key)).collect())
    }

    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        let mut found = Vec::new();
        self.each(under, now, &mut |entry| {
            found.push(entry.record.namespace.clone());
            Ok(true)
        })?;
        found.dedup();
        Ok(found)
    }

    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> Result<Vec<Option<Encoded>>, StoreError> {
        let cache = self.cache.read();
        let value = |key| cache.get(key).filter(|(_, at)| at.is_none_or(|at| at > now)).map(|(value, _)| value.clone());
        Ok(keys.iter().map(value).collect())
    }

    fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle {
        let outcome = CacheChange::validate(&changes);
        let mut cache = self.cache.write();
        for change in changes.into_iter().filter(|_| outcome.is_ok()) {
            match change {
                CacheChange::Put { key, value, now, expires_at } => {
                    cache.retain(|_, (_, at)| at.is_none_or(|at| at > now));
                    cache.insert(key, (value, expires_at));
                }
                CacheChange::Clear { namespace } => cache.retain(|key, _| !key.namespace.starts_with(&namespace)),
                CacheChange::ClearNamespace { namespace } => cache.retain(|key, _| key.namespace != namespace),
            }
        }
        CommitHandle::settled(outcome)
    }
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
