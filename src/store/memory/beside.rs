//! The key-value memory and the cache in memory: maps whose order is that of the first put.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::base::limits::KV_EXPIRED_MAX;
use crate::base::{Encoded, Timestamp};
use crate::store::{CacheChange, CacheKey, CheckReport, Finding, Invariant, KvChange, KvNamespace, KvRecord, KvVector};

/// The number of a namespace, and that of a key: each in the order of the first put.
type EntryNumbers = (u64, u64);

/// The key-value memory.
#[derive(Debug, Default)]
pub(super) struct MemoryKv {
    last: u64,
    numbers: HashMap<KvNamespace, u64>,
    namespaces: BTreeMap<u64, KvSpace>,
    expiring: BTreeSet<(Timestamp, EntryNumbers)>,
    vectors: HashMap<EntryNumbers, Arc<[KvVector]>>,
    lifetimes: HashMap<EntryNumbers, Duration>,
}

#[derive(Debug)]
struct KvSpace {
    name: KvNamespace,
    keys: HashMap<String, u64>,
    entries: BTreeMap<u64, Arc<KvRecord>>,
}

fn is_live(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_none_or(|expires_at| expires_at > now)
}

impl MemoryKv {
    /// Makes a change.
    pub(super) fn change(&mut self, change: &KvChange) {
        match change {
            KvChange::Put { namespace, key, value, now, expires_at } => {
                self.remove_expired(*now);
                if let Some((place, _)) = self.place(namespace, key) {
                    self.vectors.remove(&place);
                    self.lifetimes.remove(&place);
                }
                let created_at = match self.place(namespace, key) {
                    Some((place, entry)) if is_live(entry.expires_at, *now) => {
                        let created_at = entry.created_at;
                        let expires_at = entry.expires_at;
                        expires_at.map(|expires_at| self.expiring.remove(&(expires_at, place)));
                        created_at
                    }
                    Some((place, _)) => {
                        self.remove(place);
                        *now
                    }
                    None => *now,
                };
                let mut record = KvRecord::new(namespace.clone(), key.clone(), value.clone(), created_at);
                (record.updated_at, record.expires_at) = (*now, *expires_at);
                self.put(record);
            }
            KvChange::Delete { namespace, key } => {
                if let Some((place, _)) = self.place(namespace, key) {
                    self.remove(place);
                }
            }
            KvChange::DeleteExpired { namespace, key, now } => {
                if let Some((place, entry)) = self.place(namespace, key)
                    && !is_live(entry.expires_at, *now)
                {
                    self.remove(place);
                }
            }
            KvChange::SetVectors { namespace, key, vectors } => {
                if let Some((place, _)) = self.place(namespace, key) {
                    self.vectors.remove(&place);
                    if !vectors.is_empty() {
                        self.vectors.insert(place, vectors.as_slice().into());
                    }
                }
            }
            KvChange::SetLifetime { namespace, key, lifetime } => {
                if let Some((place, _)) = self.place(namespace, key) {
                    self.lifetimes.insert(place, *lifetime);
                }
            }
            KvChange::Prolong { namespace, key, now } => self.prolong(namespace, key, *now),
        }
    }

    fn prolong(&mut self, namespace: &KvNamespace, key: &str, now: Timestamp) {
        let Some((place, entry)) = self.place(namespace, key) else { return };
        let Some(lifetime) = self.lifetimes.get(&place) else { return };
        let expires_at = now.saturating_add(*lifetime);
        let mut record = KvRecord::clone(entry);
        if let Some(expires_at) = record.expires_at.replace(expires_at) {
            self.expiring.remove(&(expires_at, place));
        }
        self.put(record);
    }

    fn put(&mut self, record: KvRecord) {
        let number = *self.numbers.entry(record.namespace.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        let space = self.namespaces.entry(number).or_insert_with(|| KvSpace {
            name: record.namespace.clone(),
            keys: HashMap::new(),
            entries: BTreeMap::new(),
        });
        let at = *space.keys.entry(record.key.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        if let Some(expires_at) = record.expires_at {
            self.expiring.insert((expires_at, (number, at)));
        }
        space.entries.insert(at, Arc::new(record));
    }

    fn remove(&mut self, place: EntryNumbers) {
        self.vectors.remove(&place);
        self.lifetimes.remove(&place);
        let Some(space) = self.namespaces.get_mut(&place.0) else { return };
        if let Some(entry) = space.entries.remove(&place.1) {
            space.keys.remove(&entry.key);
            if let Some(expires_at) = entry.expires_at {
                self.expiring.remove(&(expires_at, place));
            }
        }
        if space.entries.is_empty() {
            self.numbers.remove(&space.name);
            self.namespaces.remove(&place.0);
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..KV_EXPIRED_MAX {
            match self.expiring.first() {
                Some(&(expires_at, place)) if expires_at <= now => self.remove(place),
                _ => return,
            }
        }
    }

    fn place(&self, namespace: &KvNamespace, key: &str) -> Option<(EntryNumbers, &Arc<KvRecord>)> {
        let number = *self.numbers.get(namespace)?;
        let space = self.namespaces.get(&number)?;
        let at = *space.keys.get(key)?;
        Some(((number, at), space.entries.get(&at)?))
    }

    /// Returns an entry that has not expired.
    pub(super) fn entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Option<Arc<KvRecord>> {
        let (_, entry) = self.place(namespace, key)?;
        is_live(entry.expires_at, now).then(|| Arc::clone(entry))
    }

    /// Returns the entries of the namespaces under one, or of all, in their order.
    pub(super) fn entries(&self, under: Option<&KvNamespace>, now: Timestamp) -> Vec<Arc<KvRecord>> {
        let spaces = self.namespaces.values().filter(|space| under.is_none_or(|under| space.name.is_in(under)));
        spaces.flat_map(|space| space.entries.values()).filter(|e| is_live(e.expires_at, now)).cloned().collect()
    }

    /// Returns the entries that have vectors, with these, as [`MemoryKv::entries`].
    pub(super) fn indexed(&self, under: Option<&KvNamespace>, now: Timestamp) -> Vec<(Arc<KvRecord>, Arc<[KvVector]>)> {
        let mut found = Vec::new();
        for (number, space) in &self.namespaces {
            if under.is_some_and(|under| !space.name.is_in(under)) {
                continue;
            }
            let live = space.entries.iter().filter(|(_, entry)| is_live(entry.expires_at, now));
            found.extend(live.filter_map(|(at, entry)| {
                self.vectors.get(&(*number, *at)).map(|vectors| (Arc::clone(entry), Arc::clone(vectors)))
            }));
        }
        found
    }

    /// Returns the names of expired entries, the earliest first.
    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<(KvNamespace, String)> {
        let expired = self.expiring.iter().take_while(|(expires_at, _)| *expires_at <= now).take(limit);
        let entry = |(_, (number, at)): &(Timestamp, EntryNumbers)| self.namespaces.get(number)?.entries.get(at);
        expired.filter_map(entry).map(|entry| (entry.namespace.clone(), entry.key.clone())).collect()
    }

    /// Returns the namespaces that hold something, under one or all.
    pub(super) fn namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Vec<KvNamespace> {
        let live = |space: &&KvSpace| {
            under.is_none_or(|under| space.name.is_in(under))
                && space.entries.values().any(|entry| is_live(entry.expires_at, now))
        };
        self.namespaces.values().filter(live).map(|space| space.name.clone()).collect()
    }

    /// Adds the counts and problems to a report.
    pub(super) fn check(&self, report: &mut CheckReport) {
        for (number, space) in &self.namespaces {
            report.entries += space.entries.len() as u64;
            let sound = self.numbers.get(&space.name) == Some(number)
                && !space.entries.is_empty()
                && space.keys.len() == space.entries.len()
                && space.entries.iter().all(|(at, entry)| space.keys.get(&entry.key) == Some(at));
            if !sound {
                let place = format!("kv {:?}", space.name);
                report.note(Finding::new(Invariant::Entries, place, "keys and entries do not match"));
            }
        }
        let exists = |(number, at): &EntryNumbers| {
            self.namespaces.get(number).is_some_and(|space| space.entries.contains_key(at))
        };
        if !self.vectors.keys().chain(self.lifetimes.keys()).all(exists) {
            let place = "kv vectors and lifetimes";
            report.note(Finding::new(Invariant::Ownership, place, "one belongs to an entry that does not exist"));
        }
    }
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct MemoryCache {
    values: BTreeMap<CacheKey, (Encoded, Option<Timestamp>)>,
    expiring: BTreeSet<(Timestamp, CacheKey)>,
}

impl MemoryCache {
    /// Makes a change.
    pub(super) fn change(&mut self, change: CacheChange) {
        match change {
            CacheChange::Put { key, value, now, expires_at } => {
                self.remove_expired(now);
                self.remove(&key);
                if let Some(expires_at) = expires_at {
                    self.expiring.insert((expires_at, key.clone()));
                }
                self.values.insert(key, (value, expires_at));
            }
            CacheChange::Clear { namespace } => {
                let from = CacheKey::new(namespace.iter().cloned(), "");
                let under = self.values.range(from..).map(|(key, _)| key);
                let cleared: Vec<CacheKey> =
                    under.take_while(|key| key.namespace.starts_with(&namespace)).cloned().collect();
                cleared.iter().for_each(|key| self.remove(key));
            }
            CacheChange::ClearNamespace { namespace } => {
                let from = CacheKey::new(namespace.iter().cloned(), "");
                let inside = self.values.range(from..).map(|(key, _)| key);
                let cleared: Vec<CacheKey> = inside.take_while(|key| key.namespace == namespace).cloned().collect();
                cleared.iter().for_each(|key| self.remove(key));
            }
        }
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some((_, Some(expires_at))) = self.values.remove(key) {
            self.expiring.remove(&(expires_at, key.clone()));
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..KV_EXPIRED_MAX {
            match self.expiring.first() {
                Some((expires_at, key)) if *expires_at <= now => {
                    let key = key.clone();
                    self.remove(&key);
                }
                _ => return,
            }
        }
    }

    /// Returns the value under a key, unless it has expired.
    pub(super) fn value(&self, key: &CacheKey, now: Timestamp) -> Option<Encoded> {
        let (value, expires_at) = self.values.get(key)?;
        is_live(*expires_at, now).then(|| value.clone())
    }

    /// Adds the counts and problems to a report.
    pub(super) fn check(&self, report: &mut CheckReport) {
        report.entries += self.values.len() as u64;
        let expiring = self.values.values().filter(|(_, expires_at)| expires_at.is_some()).count();
        if expiring != self.expiring.len() {
            report.note(Finding::new(Invariant::Entries, "cache", "values and their ends do not match"));
        }
    }
}

#[cfg(not(outside))]
#[cfg(test)]
mod tests;
