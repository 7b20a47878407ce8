//! The key-value memory and the cache in memory: tables of rows that may expire.

use std::time::Duration;

use parking_lot::RwLock;

use super::stored::*;
use crate::base::Encoded;
use crate::base::limits::KV_EXPIRED_MAX;
use crate::store::CacheKey;

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

    fn is_at(&self, namespace: &KvNamespace, key: &str) -> bool {
        self.record.key == key && self.record.namespace == *namespace
    }
}

/// The entries in the order in which a visitor sees them: those of a namespace lie side by side.
#[derive(Debug, Default)]
struct MemoryKv(Vec<KvEntry>);

impl MemoryKv {
    fn change(&mut self, change: &KvChange) {
        let (namespace, key) = change.place();
        if let KvChange::Put { now, .. } = change {
            self.remove_expired(*now, |entry| entry.is_at(namespace, key));
        }
        let at = self.0.iter().position(|entry| entry.is_at(namespace, key));
        match (change, at.and_then(|at| self.0.get_mut(at))) {
            (KvChange::Put { value, now, expires_at, .. }, before) => {
                let created_at = before.as_ref().map_or(*now, |before| before.record.created_at);
                let mut record = KvRecord::new(namespace.clone(), key, value.clone(), created_at);
                (record.updated_at, record.expires_at) = (*now, *expires_at);
                let entry = KvEntry { record, vectors: Vec::new(), lifetime: None };
                match before {
                    Some(before) => *before = entry,
                    None => {
                        let last = self.0.iter().rposition(|entry| entry.record.namespace == *namespace);
                        self.0.insert(last.map_or(self.0.len(), |last| last + 1), entry);
                    }
                }
            }
            (KvChange::SetVectors { vectors, .. }, Some(entry)) => entry.vectors.clone_from(vectors),
            (KvChange::SetLifetime { lifetime, .. }, Some(entry)) => entry.lifetime = Some(*lifetime),
            (KvChange::Prolong { now, .. }, Some(KvEntry { lifetime: Some(lifetime), record, .. })) => {
                record.expires_at = Some(now.saturating_add(*lifetime));
            }
            (KvChange::Delete { .. }, _) => self.0.retain(|entry| !entry.is_at(namespace, key)),
            (KvChange::DeleteExpired { now, .. }, _) => {
                self.0.retain(|entry| entry.is_live(*now) || !entry.is_at(namespace, key));
            }
            _ => {}
        }
    }

    /// Returns the places of entries that have expired, the earliest first.
    fn expired(&self, now: Timestamp, limit: usize) -> Vec<(KvNamespace, String)> {
        let mut expired: Vec<&KvRecord> = self.0.iter().filter(|of| !of.is_live(now)).map(|of| &of.record).collect();
        expired.sort_by_key(|record| record.expires_at);
        expired.into_iter().take(limit).map(|record| (record.namespace.clone(), record.key.clone())).collect()
    }

    /// Removes entries that have expired, and of the wanted ones all of them.
    fn remove_expired(&mut self, now: Timestamp, is_wanted: impl Fn(&KvEntry) -> bool) {
        let expired: HashSet<_> = self.expired(now, KV_EXPIRED_MAX as usize).into_iter().collect();
        let is_first = |KvRecord { namespace, key, .. }: &KvRecord| expired.contains(&(namespace.clone(), key.clone()));
        self.0.retain(|entry| entry.is_live(now) || !(is_wanted(entry) || is_first(&entry.record)));
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
        self.kv.read().0.len() + self.cache.read().len()
    }

    /// Visits the entries of the namespaces under one, or of all, in their order, until one wants no more.
    fn each(&self, under: Option<&KvNamespace>, now: Timestamp, visit: VisitEach<'_, KvEntry>) -> MemoryResult<()> {
        let is_in = |entry: &&KvEntry| under.is_none_or(|under| entry.record.namespace.is_in(under));
        let entries: Vec<_> =
            self.kv.read().0.iter().filter(|entry| entry.is_live(now)).filter(is_in).cloned().collect();
        entries.iter().try_fold(true, |goes_on, entry| Ok(goes_on && visit(entry)?)).map(|_| ())
    }
}

impl SideTables for MemoryTables {
    fn commit_kv(&self, changes: &[KvChange]) -> MemoryResult<()> {
        KvChange::validate(changes)?;
        let mut kv = self.kv.write();
        changes.iter().for_each(|change| kv.change(change));
        Ok(())
    }

    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> MemoryResult<Option<KvRecord>> {
        let kv = self.kv.read();
        let entry = kv.0.iter().find(|entry| entry.is_at(namespace, key) && entry.is_live(now));
        Ok(entry.map(|entry| entry.record.clone()))
    }

    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: VisitEach<'_, KvRecord>,
    ) -> MemoryResult<()> {
        self.each(under, now, &mut |entry| visit(&entry.record))
    }

    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> MemoryResult<bool>,
    ) -> MemoryResult<()> {
        self.each(under, now, &mut |KvEntry { record, vectors, .. }| Ok(vectors.is_empty() || visit(record, vectors)?))
    }

    fn kv_expired(&self, now: Timestamp, limit: usize) -> MemoryResult<Vec<(KvNamespace, String)>> {
        Ok(self.kv.read().expired(now, limit))
    }

    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> MemoryResult<Vec<Option<Encoded>>> {
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
