//! The key-value memory and the cache in memory: tables of rows that may expire.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Encoded, Timestamp};
use crate::store::CacheKey;
use crate::store::log::{CacheChange, KvChange, KvNamespace, KvRecord, KvVector};

/// Rows, and the ends of those that expire.
#[derive(Debug)]
struct ExpiringRows<K, V> {
    rows: BTreeMap<K, (V, Option<Timestamp>)>,
    ends: BTreeSet<(Timestamp, K)>,
}

impl<K, V> Default for ExpiringRows<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), ends: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> ExpiringRows<K, V> {
    fn put(&mut self, key: K, value: V, expires_at: Option<Timestamp>) {
        self.remove(&key);
        self.ends.extend(expires_at.map(|at| (at, key.clone())));
        self.rows.insert(key, (value, expires_at));
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let (value, expires_at) = self.rows.remove(key)?;
        expires_at.map(|at| self.ends.remove(&(at, key.clone())));
        Some(value)
    }

    /// Returns the keys of rows that have expired, the earliest first.
    fn expired(&self, now: Timestamp) -> impl Iterator<Item = &K> {
        self.ends.iter().take_while(move |(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// Returns the rows from a key on that have not expired.
    fn live(&self, from: &K, now: Timestamp) -> impl Iterator<Item = (&K, &V)> {
        let is_live = move |at: &Option<Timestamp>| at.is_none_or(|at| at > now);
        self.rows.range(from..).filter(move |(_, (_, at))| is_live(at)).map(|(key, (value, _))| (key, value))
    }

    fn get(&self, key: &K, now: Timestamp) -> Option<&V> {
        self.live(key, now).next().filter(|(found, _)| *found == key).map(|(_, value)| value)
    }
}

/// The number of a namespace, and that of a key in it: each in the order of the first put.
type EntryNumbers = (u64, u64);

/// An entry of the key-value memory.
#[derive(Clone, Debug)]
pub(super) struct KvEntry {
    pub(super) record: KvRecord,
    pub(super) vectors: Vec<KvVector>,
    lifetime: Option<Duration>,
}

/// The key-value memory.
#[derive(Debug, Default)]
pub(super) struct MemoryKv {
    last: u64,
    namespaces: HashMap<KvNamespace, u64>,
    keys: HashMap<(KvNamespace, String), EntryNumbers>,
    entries: ExpiringRows<EntryNumbers, Arc<KvEntry>>,
}

impl MemoryKv {
    pub(super) fn change(&mut self, change: &KvChange) {
        let at = |kv: &Self, key: &String| kv.place(change.namespace(), key);
        match change {
            KvChange::Put { namespace, key, value, now, expires_at } => {
                let expired: Vec<_> = self.entries.expired(*now).take(KV_EXPIRED_MAX as usize).copied().collect();
                expired.iter().for_each(|at| self.remove(at));
                self.remove_expired(at(self, key), *now);
                let created_at = self.entry(namespace, key, *now).map_or(*now, |before| before.record.created_at);
                let mut record = KvRecord::new(namespace.clone(), key.clone(), value.clone(), created_at);
                (record.updated_at, record.expires_at) = (*now, *expires_at);
                self.put(KvEntry { record, vectors: Vec::new(), lifetime: None });
            }
            KvChange::Delete { key, .. } => at(self, key).iter().for_each(|at| self.remove(at)),
            KvChange::DeleteExpired { key, now, .. } => self.remove_expired(at(self, key), *now),
            KvChange::SetVectors { key, vectors, .. } => {
                if let Some(entry) = self.entry_mut(at(self, key)) {
                    entry.vectors.clone_from(vectors);
                }
            }
            KvChange::SetLifetime { key, lifetime, .. } => {
                if let Some(entry) = self.entry_mut(at(self, key)) {
                    entry.lifetime = Some(*lifetime);
                }
            }
            KvChange::Prolong { key, now, .. } => {
                let entry = at(self, key).and_then(|at| self.entries.rows.get(&at)).map(|(entry, _)| entry);
                if let Some(mut entry) = entry.filter(|entry| entry.lifetime.is_some()).map(|of| KvEntry::clone(of)) {
                    entry.record.expires_at = entry.lifetime.map(|lifetime| now.saturating_add(lifetime));
                    self.put(entry);
                }
            }
        }
    }

    fn place(&self, namespace: &KvNamespace, key: &str) -> Option<EntryNumbers> {
        self.keys.get(&(namespace.clone(), key.to_owned())).copied()
    }

    fn entry_mut(&mut self, at: Option<EntryNumbers>) -> Option<&mut KvEntry> {
        self.entries.rows.get_mut(&at?).map(|(entry, _)| Arc::make_mut(entry))
    }

    /// Puts an entry at the place of the one before it, or else at the end.
    fn put(&mut self, entry: KvEntry) {
        let mut next = || {
            self.last += 1;
            self.last
        };
        let record = &entry.record;
        let number = *self.namespaces.entry(record.namespace.clone()).or_insert_with(&mut next);
        let key = (record.namespace.clone(), record.key.clone());
        let at = *self.keys.entry(key).or_insert_with(|| (number, next()));
        let expires_at = record.expires_at;
        self.entries.put(at, Arc::new(entry), expires_at);
    }

    fn remove(&mut self, at: &EntryNumbers) {
        let Some(entry) = self.entries.remove(at) else { return };
        if self.entries.rows.range((at.0, 0)..(at.0 + 1, 0)).next().is_none() {
            self.namespaces.remove(&entry.record.namespace);
        }
        self.keys.remove(&(entry.record.namespace.clone(), entry.record.key.clone()));
    }

    fn remove_expired(&mut self, at: Option<EntryNumbers>, now: Timestamp) {
        at.filter(|at| self.entries.get(at, now).is_none()).iter().for_each(|at| self.remove(at));
    }

    /// Returns an entry that has not expired.
    pub(super) fn entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Option<&Arc<KvEntry>> {
        self.entries.get(&self.place(namespace, key)?, now)
    }

    /// Returns the entries of the namespaces under one, or of all, in their order.
    pub(super) fn entries(&self, under: Option<&KvNamespace>, now: Timestamp) -> impl Iterator<Item = &Arc<KvEntry>> {
        let live = self.entries.live(&(0, 0), now).map(|(_, entry)| entry);
        live.filter(move |entry| under.is_none_or(|under| entry.record.namespace.is_in(under)))
    }

    /// Returns the names of expired entries, the earliest first.
    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<(KvNamespace, String)> {
        let expired = self.entries.expired(now).take(limit).map(|at| &self.entries.rows[at].0.record);
        expired.map(|record| (record.namespace.clone(), record.key.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.rows.len()
    }
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct MemoryCache(ExpiringRows<CacheKey, Encoded>);

impl MemoryCache {
    pub(super) fn change(&mut self, change: CacheChange) {
        match change {
            CacheChange::Put { key, value, now, expires_at } => {
                let expired: Vec<_> = self.0.expired(now).take(KV_EXPIRED_MAX as usize).cloned().collect();
                expired.iter().for_each(|key| _ = self.0.remove(key));
                self.0.put(key, value, expires_at);
            }
            CacheChange::Clear { namespace } => self.clear(&namespace, |of| of.starts_with(&namespace)),
            CacheChange::ClearNamespace { namespace } => self.clear(&namespace, |of| *of == namespace),
        }
    }

    /// Clears the namespaces from one on, as long as they go.
    fn clear(&mut self, from: &[String], goes: impl Fn(&[String]) -> bool) {
        let from = CacheKey::new(from.iter().cloned(), "");
        let keys = self.0.rows.range(from..).map(|(key, _)| key);
        let cleared: Vec<CacheKey> = keys.take_while(|key| goes(&key.namespace)).cloned().collect();
        cleared.iter().for_each(|key| _ = self.0.remove(key));
    }

    /// Returns the value under a key, unless it has expired.
    pub(super) fn value(&self, key: &CacheKey, now: Timestamp) -> Option<Encoded> {
        self.0.get(key, now).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.0.rows.len()
    }
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
