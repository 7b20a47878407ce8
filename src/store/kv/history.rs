//! Versions of the key-value memory: a handle that retains each value that it puts, and reads of the past.
//!
//! A version is an entry of a reserved namespace, which is written in the commit of its put: `__history__`, the labels
//! of the namespace, and a hash of the key. Its key says nothing, as the entries of a namespace are read in the order
//! of their puts. Invariant: a put by a handle with versions and its version are both stored, or neither. *Absent:*
//! puts by handles without versions; an end of versions, but for [`Kv::forget`].

use crate::base::internal::hash;
use crate::base::{Encoded, IdSource, Map, Timestamp, Value};
use crate::limits::KV_SWEEP_MAX;
use crate::store::error::StoreError;
use crate::store::log::LogExt;
use crate::store::side_tables::{HISTORY, KvChange, KvNamespace, KvRecord};

use super::{Kv, KvItem, query};

/// A version of an entry of the key-value memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KvVersion {
    /// The value; `None` if the key was deleted.
    pub value: Option<Value>,
    /// When it was put or deleted.
    pub at: Timestamp,
    /// The timestamp from which on it counts as absent, `None` if it stays.
    pub expires_at: Option<Timestamp>,
}

/// The key-value memory as it was at a time: [`Kv::as_of`].
#[derive(Clone, Debug)]
pub struct KvAsOf {
    kv: Kv,
    at: Timestamp,
}

/// A version as it is stored.
struct StoredVersion {
    labels: Vec<String>,
    key: String,
    version: KvVersion,
}

impl StoredVersion {
    fn decode(record: &KvRecord) -> Result<Self, StoreError> {
        let value: Value = record.value.decode()?;
        let time = |name: &str| value.get(name).and_then(Value::as_int).map(Timestamp::from_micros);
        let corrupt = || StoreError::Corrupt {
            place: format!("kv {:?} {:?}", record.namespace, record.key),
            reason: "it is not a version".into(),
        };
        let (key, at) = (value.get("key").and_then(Value::as_str), time("at"));
        let (Some(key), Some(at)) = (key, at) else { return Err(corrupt()) };
        let all: Vec<String> = record.namespace.labels().map(str::to_owned).collect();
        let labels = all.get(1..all.len().saturating_sub(1)).ok_or_else(corrupt)?.to_vec();
        let version = KvVersion { value: value.get("value").cloned(), at, expires_at: time("expires_at") };
        Ok(Self { labels, key: key.to_owned(), version })
    }
}

/// Returns the namespace of the versions of a key.
fn versions_of(namespace: &KvNamespace, key: &str) -> Result<KvNamespace, StoreError> {
    let digits: String = hash::checksum(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    KvNamespace::from_labels([HISTORY].into_iter().chain(namespace.labels()).chain([digits.as_str()]))
}

/// Returns the change that stores a version of an entry.
pub(super) fn version(
    kv: &Kv,
    namespace: &KvNamespace,
    key: &str,
    value: Option<&Value>,
    at: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<KvChange, StoreError> {
    let mut members: Map =
        [("key".to_owned(), Value::from(key)), ("at".to_owned(), Value::from(at.as_micros()))].into_iter().collect();
    members.extend(value.map(|value| ("value".to_owned(), value.clone())));
    members.extend(expires_at.map(|at| ("expires_at".to_owned(), Value::from(at.as_micros()))));
    let id = IdSource::from_seed(kv.store.mint_seed()).uuid_v4().to_string();
    let value = Encoded::encode(&Value::Map(members))?;
    Ok(KvChange::Put { namespace: versions_of(namespace, key)?, key: id, value, now: at, expires_at: None })
}

impl Kv {
    /// Returns a handle that retains each value that it puts, in the same commit: [`Kv::history`] and [`Kv::as_of`]
    /// read them. A put by another handle is not in the history. Versions are entries of the memory, under the reserved
    /// label `__history__`, on every backend, and stay until they are [forgotten](Kv::forget); searches and listings of
    /// the memory pass them over. A put takes 220 to 380 bytes more, and twice the time. Default: off, so that a value
    /// that is replaced is gone.
    ///
    /// # Example
    /// ```
    /// use annals::base::{Map, Value};
    /// use annals::store::Store;
    ///
    /// # fn main() -> Result<(), annals::store::StoreError> {
    /// let store = Store::memory();
    /// let kv = store.kv().versioned();
    /// let lives = |city: &str| Map::from_iter([("city".to_owned(), Value::from(city))]);
    /// kv.put(["users"], "ann", lives("Bern"))?;
    /// let then = store.now();
    /// kv.put(["users"], "ann", lives("Thun"))?;
    /// kv.delete(["users"], "ann")?;
    ///
    /// let cities = kv.history(["users"], "ann")?.into_iter().map(|version| version.value);
    /// let cities: Vec<_> = cities.map(|value| value.and_then(|value| value.get("city").cloned())).collect();
    /// assert_eq!(cities, [Some(Value::from("Bern")), Some(Value::from("Thun")), None]);
    /// let before = kv.as_of(then).get(["users"], "ann")?.expect("she lived in Bern");
    /// assert_eq!(before.value.get("city"), Some(&Value::from("Bern")));
    /// assert!(kv.get(["users"], "ann")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn versioned(mut self) -> Self {
        self.is_versioned = true;
        self
    }

    /// Returns the versions of the entry under a key, the oldest first: each put and deletion by a
    /// [versioned](Kv::versioned) handle. The cost is theirs.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn history(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl AsRef<str>,
    ) -> Result<Vec<KvVersion>, StoreError> {
        let mut found = Vec::new();
        // A namespace that is not valid holds no entry.
        let Ok(under) = KvNamespace::from_labels(namespace).and_then(|of| versions_of(&of, key.as_ref())) else {
            return Ok(found);
        };
        self.each_version(&under, &mut |record, stored| {
            // Namespaces inside may be those of other entries, and another key may have the same hash.
            let is_own = record.namespace == under && stored.key == key.as_ref();
            found.extend(is_own.then_some(stored.version));
        })?;
        Ok(found)
    }

    /// Returns the memory as it was at a time, as far as it was put by [versioned](Kv::versioned) handles.
    pub fn as_of(&self, at: Timestamp) -> KvAsOf {
        KvAsOf { kv: self.clone(), at }
    }

    /// Removes the entry under a key and its versions, and returns the number of versions that it found. Of many
    /// versions the last go in later commits.
    ///
    /// # Errors
    /// As [`Kv::put`]; [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn forget(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl AsRef<str>,
    ) -> Result<u64, StoreError> {
        let Ok(namespace) = KvNamespace::from_labels(namespace) else { return Ok(0) };
        let mut changes = vec![KvChange::Delete { namespace: namespace.clone(), key: key.as_ref().into() }];
        if let Ok(under) = versions_of(&namespace, key.as_ref()) {
            self.each_version(&under, &mut |record, stored| {
                if record.namespace == under && stored.key == key.as_ref() {
                    changes.push(KvChange::Delete { namespace: record.namespace.clone(), key: record.key.clone() });
                }
            })?;
        }
        for part in changes.chunks(KV_SWEEP_MAX) {
            self.store.backend().side_tables()?.commit_kv(part)?;
        }
        Ok(changes.len() as u64 - 1)
    }

    fn each_version(
        &self,
        under: &KvNamespace,
        visit: &mut dyn FnMut(&KvRecord, StoredVersion),
    ) -> Result<(), StoreError> {
        let all = Timestamp::from_micros(i64::MIN);
        self.store.backend().side_tables()?.kv_entries(Some(under), all, &mut |record| {
            visit(record, StoredVersion::decode(record)?);
            Ok(true)
        })
    }
}

impl KvAsOf {
    /// Returns the entry that was under a key, `None` if there was none.
    ///
    /// # Errors
    /// As [`Kv::history`].
    pub fn get(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl AsRef<str>,
    ) -> Result<Option<KvItem>, StoreError> {
        let Ok(namespace) = KvNamespace::from_labels(namespace) else { return Ok(None) };
        let Ok(under) = versions_of(&namespace, key.as_ref()) else { return Ok(None) };
        let mut found = PastItems::new(self.at);
        self.kv.each_version(&under, &mut |record, stored| {
            if record.namespace == under {
                found.add(stored);
            }
        })?;
        Ok(found.into_items().into_iter().find(|item| item.key == key.as_ref()))
    }

    /// Returns the entries that were in a namespace and in those inside it: namespaces and keys in the order of their
    /// first versions. The cost is that of all their versions.
    ///
    /// # Errors
    /// As [`Kv::history`].
    pub fn entries(&self, under: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<KvItem>, StoreError> {
        let labels: Vec<String> = under.into_iter().map(|label| label.as_ref().to_owned()).collect();
        let labels: Vec<String> = std::iter::once(HISTORY.to_owned()).chain(labels).collect();
        let Some(Some(under)) = query::namespace_of(&labels) else { return Ok(Vec::new()) };
        let mut found = PastItems::new(self.at);
        self.kv.each_version(&under, &mut |_, stored| found.add(stored))?;
        Ok(found.into_items())
    }
}

/// The entries at a time, collected from versions in their order.
struct PastItems {
    at: Timestamp,
    items: Vec<KvItem>,
    /// The namespace and key of the versions that are read.
    open: Option<(Vec<String>, String)>,
    last: Option<(Timestamp, KvVersion)>,
}

impl PastItems {
    fn new(at: Timestamp) -> Self {
        Self { at, items: Vec::new(), open: None, last: None }
    }

    fn add(&mut self, stored: StoredVersion) {
        let entry = (stored.labels, stored.key);
        if self.open.as_ref() != Some(&entry) {
            self.close();
            self.open = Some(entry);
        }
        if stored.version.at <= self.at {
            // A key that was deleted and put again begins anew.
            let created_at = match &self.last {
                Some((created_at, before)) if before.value.is_some() => *created_at,
                _ => stored.version.at,
            };
            self.last = Some((created_at, stored.version));
        }
    }

    fn close(&mut self) {
        let (Some((namespace, key)), Some((created_at, version))) = (self.open.take(), self.last.take()) else {
            return;
        };
        let is_there = version.expires_at.is_none_or(|expires_at| self.at < expires_at);
        if let Some(value) = version.value.filter(|_| is_there) {
            let (updated_at, expires_at) = (version.at, version.expires_at);
            self.items.push(KvItem { namespace, key, value, created_at, updated_at, expires_at, score: None });
        }
    }

    fn into_items(mut self) -> Vec<KvItem> {
        self.close();
        self.items
    }
}
