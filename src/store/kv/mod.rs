//! The key-value memory: objects that outlive a thread and are shared by all threads.
//!
//! Objects are stored under a namespace and a key, beside the log in the same file. A put replaces the old value,
//! unless the handle retains versions. *Absent:* the runs of threads; a replay of a thread reverts nothing.

mod filter;
mod history;
mod index;
mod path;
mod query;
mod write;

use crate::store::log::LogExt;
use std::time::Duration;

use crate::base::{Encoded, Timestamp, Value, debug_fields, setters};
use crate::limits::KV_SWEEP_MAX;

pub use self::filter::KvCompare;
pub use self::history::{KvAsOf, KvVersion};
use self::index::{Best, Rank};
pub use self::index::{Embedder, EmbedderError, KvIndex};
pub use self::query::{KvNamespaceQuery, KvOrder, KvQuery};
use self::write::WriteLifetime;
pub use self::write::{KvLifetimes, KvWrite};
use super::error::StoreError;
use super::handle::Store;
use super::side_tables::{HISTORY, KvChange, KvNamespace, KvRecord, KvVector};

/// The key-value memory of a store. Cheap to clone; all clones are the same memory.
///
/// Every call sees the puts that returned before it began, by any handle. A put or delete returns when it is as durable
/// as the store was opened for.
///
/// # Example
/// ```
/// use annals::base::Value;
/// use annals::store::{KvQuery, Store};
/// use annals::store::kv::KvCompare;
///
/// # fn main() -> Result<(), annals::store::StoreError> {
/// let kv = Store::memory().kv();
/// let user = |age: i64| Value::from_serialize(&[("age", age)].into_iter().collect::<std::collections::BTreeMap<_, _>>());
/// kv.put(["users"], "ann", user(41)?)?;
/// kv.put(["users"], "bob", user(17)?)?;
///
/// assert_eq!(kv.get(["users"], "ann")?.unwrap().value.get("age"), Some(&Value::from(41)));
/// let adults = kv.search(KvQuery::new(["users"]).compare("age", KvCompare::Gte, 18))?;
/// assert_eq!(adults.len(), 1);
/// kv.delete(["users"], "bob")?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "BaseStore")]
#[derive(Clone)]
pub struct Kv {
    store: Store,
    index: Option<KvIndex>,
    lifetimes: Option<KvLifetimes>,
    /// True if each value that is put is retained.
    is_versioned: bool,
}

/// An entry of the key-value memory.
#[doc(alias = "SearchItem")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KvItem {
    /// The labels of its namespace.
    pub namespace: Vec<String>,
    /// Its key, unique in the namespace.
    pub key: String,
    /// The value: an object.
    pub value: Value,
    /// When the key was first put.
    pub created_at: Timestamp,
    /// When it was last put.
    pub updated_at: Timestamp,
    /// The timestamp from which on it counts as absent, `None` if it stays.
    pub expires_at: Option<Timestamp>,
    /// The cosine similarity, from -1 to 1, in a search by similarity ([`KvQuery::similar_to`]).
    pub score: Option<f64>,
}

impl Store {
    /// Returns the key-value memory of this store.
    pub fn kv(&self) -> Kv {
        Kv { store: self.clone(), index: None, lifetimes: None, is_versioned: false }
    }
}

impl Kv {
    setters! {
        /// Returns a handle that embeds the values it puts, and searches them by meaning ([`KvQuery::similar_to`]).
        /// Vectors are stored in the file with their entry, and are removed with it; a put by a handle without an index
        /// removes them.
        ///
        /// # Example
        /// ```
        /// use annals::base::{Map, Value};
        /// use annals::store::{KvQuery, Store};
        /// use annals::store::kv::{Embedder, EmbedderError, KvIndex};
        ///
        /// /// Counts letters. A program uses a model here.
        /// struct Letters;
        ///
        /// impl Embedder for Letters {
        ///     fn dims(&self) -> usize {
        ///         26
        ///     }
        ///
        ///     fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
        ///         let count = |text: &&str, letter: u8| text.bytes().filter(|byte| *byte == letter).count() as f32;
        ///         Ok(texts.iter().map(|text| (b'a'..=b'z').map(|letter| count(text, letter)).collect()).collect())
        ///     }
        /// }
        ///
        /// # fn main() -> Result<(), annals::store::StoreError> {
        /// let kv = Store::memory().kv().with_index(KvIndex::new(Letters).fields(["text"])?);
        /// for (key, text) in [("1", "a banana"), ("2", "two plums"), ("3", "bandana")] {
        ///     kv.put(["facts"], key, Map::from_iter([("text".to_owned(), Value::from(text))]))?;
        /// }
        /// let found = kv.search(KvQuery::new(["facts"]).similar_to("bananas").limit(2))?;
        /// assert_eq!(found.iter().map(|item| &*item.key).collect::<Vec<_>>(), ["1", "3"]);
        /// assert!(found[0].score > Some(0.9));
        /// # Ok(())
        /// # }
        /// ```
        pub fn with_index(index: KvIndex) { .index = Some(index) }

        /// Returns a handle that gives entries a lifetime, prolongs it, or reads expired entries.
        pub fn with_lifetimes(lifetimes: KvLifetimes) { .lifetimes = Some(lifetimes) }
    }

    /// Stores an object under a key. A value that is there is replaced as a whole.
    ///
    /// # Errors
    /// [`StoreError::InvalidNamespace`]; [`StoreError::Invalid`] if the value is not an object or is too long;
    /// [`StoreError::Codec`]; the errors of a commit: [`StoreError::Busy`], [`StoreError::Write`],
    /// [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`].
    pub fn put(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
        value: impl Into<Value>,
    ) -> Result<(), StoreError> {
        self.write_all([KvWrite::of(KvNamespace::new(namespace)?, key.into(), Some(value.into()))])
    }

    /// Stores an object as [`Kv::put`] does; after `lifetime` it counts as absent.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_for(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
        value: impl Into<Value>,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let write = KvWrite::of(KvNamespace::new(namespace)?, key.into(), Some(value.into()));
        self.write_all([write.lifetime(Some(lifetime))])
    }

    /// Makes several writes in one commit, in their order: all of them, or none. The texts of all values are embedded
    /// in one call of the model, before the commit.
    ///
    /// # Errors
    /// As [`Kv::put`]; [`StoreError::Embedding`] if the model fails; [`StoreError::Invalid`] for vectors that are not
    /// of the model's dimensions or not finite.
    ///
    /// # Example
    /// ```
    /// use annals::base::Map;
    /// use annals::store::Store;
    /// use annals::store::kv::KvWrite;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), annals::store::StoreError> {
    /// let kv = Store::memory().kv();
    /// kv.put(["drafts"], "7", Map::new())?;
    /// let publish = KvWrite::put(["published"], "7", Map::new())?.lifetime(Some(Duration::from_secs(3_600)));
    /// kv.write_all([publish, KvWrite::delete(["drafts"], "7")?])?;
    /// assert!(kv.get(["drafts"], "7")?.is_none() && kv.get(["published"], "7")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "batch")]
    pub fn write_all(&self, writes: impl IntoIterator<Item = KvWrite>) -> Result<(), StoreError> {
        let (mut changes, now) = (Vec::new(), self.store.now());
        // The fields and texts of a value, and the place in `changes` of its vectors.
        let (mut texts, mut indexed) = (Vec::new(), Vec::new());
        for write in writes {
            let KvWrite { namespace, key, value, lifetime, fields } = write;
            let Some(value) = value else {
                if self.is_versioned {
                    changes.push(history::version(self, &namespace, &key, None, now, None)?);
                }
                changes.push(KvChange::Delete { namespace, key });
                continue;
            };
            if value.as_map().is_none() {
                let reason = format!("it is a {}; an object is stored", value.kind());
                return Err(StoreError::Invalid { field: "kv value", reason });
            }
            let lifetime = match lifetime {
                WriteLifetime::OfHandle => self.lifetimes.and_then(|lifetimes| lifetimes.lifetime),
                WriteLifetime::Unlimited => None,
                WriteLifetime::Limited(lifetime) => Some(lifetime),
            };
            let expires_at = lifetime.map(|lifetime| now.saturating_add(lifetime));
            if self.is_versioned {
                changes.push(history::version(self, &namespace, &key, Some(&value), now, expires_at)?);
            }
            let entry = (namespace.clone(), key.clone());
            changes.push(KvChange::Put { namespace, key, value: Encoded::encode(&value)?, now, expires_at });
            if let Some(lifetime) = lifetime.filter(|_| self.lifetimes.is_some()) {
                let (namespace, key) = entry.clone();
                changes.push(KvChange::SetLifetime { namespace, key, lifetime });
            }
            let found = self.index.as_ref().map(|index| index.texts(&value, fields.as_deref())).unwrap_or_default();
            if !found.is_empty() {
                indexed.push((changes.len(), texts.len()..texts.len() + found.len()));
                texts.extend(found);
                let (namespace, key) = entry;
                changes.push(KvChange::SetVectors { namespace, key, vectors: Vec::new() });
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        // Verified before the model is called, which may take long.
        KvChange::validate(&changes)?;
        if let Some(index) = self.index.as_ref().filter(|_| !texts.is_empty()) {
            let embedded = index.embed(&texts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>())?;
            let mut made = texts.into_iter().zip(embedded).map(|((field, _), values)| KvVector::new(field, values));
            for (at, range) in indexed {
                if let KvChange::SetVectors { vectors, .. } = &mut changes[at] {
                    vectors.extend(made.by_ref().take(range.len()));
                }
            }
        }
        self.store.backend().side_tables()?.commit_kv(&changes)
    }

    /// Returns the timestamp by which entries count as absent.
    fn read_at(&self) -> Timestamp {
        let retains = self.lifetimes.is_some_and(|lifetimes| lifetimes.retain_expired);
        if retains { Timestamp::from_micros(i64::MIN) } else { self.store.now() }
    }

    /// Prolongs the entries that were read.
    fn prolong(&self, items: &[KvItem]) -> Result<(), StoreError> {
        if !self.lifetimes.is_some_and(|lifetimes| lifetimes.prolong_on_read) {
            return Ok(());
        }
        let now = self.store.now();
        let prolong = |item: &KvItem| -> Result<KvChange, StoreError> {
            Ok(KvChange::Prolong { namespace: KvNamespace::from_labels(&item.namespace)?, key: item.key.clone(), now })
        };
        let expiring = items.iter().filter(|item| item.expires_at.is_some());
        let changes = expiring.map(prolong).collect::<Result<Vec<_>, _>>()?;
        for part in changes.chunks(KV_SWEEP_MAX) {
            match self.store.backend().side_tables()?.commit_kv(part) {
                Err(StoreError::ReadOnly) => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }

    /// Removes the entries that have expired, in commits of at most 1,000, and returns how many it found. A put removes
    /// some of them as well, so a sweep is needed only to have all of their bytes back, or to end what
    /// [`KvLifetimes::retain_expired`] retains.
    ///
    /// # Errors
    /// As [`Kv::put`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    #[doc(alias = "sweep_ttl")]
    pub fn sweep(&self) -> Result<u64, StoreError> {
        let (now, mut count, mut last) = (self.store.now(), 0, None);
        loop {
            let expired = self.store.backend().side_tables()?.kv_expired(now, KV_SWEEP_MAX)?;
            let Some((namespace, key)) = expired.first().cloned() else { return Ok(count) };
            // An index that is damaged may show an entry that is not found by its key.
            if last.as_ref() == Some(&(namespace.clone(), key.clone())) {
                let place = format!("kv {namespace:?} {key:?}");
                return Err(StoreError::Corrupt { place, reason: "it has expired and cannot be removed".into() });
            }
            last = Some((namespace, key));
            count += expired.len() as u64;
            let delete = |(namespace, key)| KvChange::DeleteExpired { namespace, key, now };
            self.store.backend().side_tables()?.commit_kv(&expired.into_iter().map(delete).collect::<Vec<_>>())?;
        }
    }

    /// Returns the entry under a key, `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn get(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl AsRef<str>,
    ) -> Result<Option<KvItem>, StoreError> {
        // A namespace that is not valid holds no entry.
        let Ok(namespace) = KvNamespace::from_labels(namespace) else { return Ok(None) };
        let found = self.store.backend().side_tables()?.kv_entry(&namespace, key.as_ref(), self.read_at())?;
        let found = found.as_ref().map(KvItem::decode).transpose()?;
        self.prolong(found.as_slice())?;
        Ok(found)
    }

    /// Returns the entries that a query finds, in the order of [`KvOrder`], or the most similar ones first.
    ///
    /// # Errors
    /// As [`Kv::get`]; of a search by similarity also [`StoreError::Embedding`], and [`StoreError::Invalid`] if an
    /// entry was indexed with other dimensions than those of the index.
    pub fn search(&self, query: KvQuery) -> Result<Vec<KvItem>, StoreError> {
        let Some(under) = query::namespace_of(&query.prefix) else { return Ok(Vec::new()) };
        if query.limit == 0 {
            return Ok(Vec::new());
        }
        let text = query.text.as_deref().filter(|text| !text.is_empty());
        let found = match (&self.index, text) {
            (Some(index), Some(text)) => self.search_similar(under.as_ref(), &query, index, text)?,
            _ => match query.order {
                KvOrder::FirstPut => self.search_first_put(under.as_ref(), &query)?,
                KvOrder::LatestPut => self.search_latest_put(under.as_ref(), &query)?,
            },
        };
        self.prolong(&found)?;
        Ok(found)
    }

    fn search_first_put(&self, under: Option<&KvNamespace>, query: &KvQuery) -> Result<Vec<KvItem>, StoreError> {
        let (mut found, mut skipped) = (Vec::new(), 0);
        self.store.backend().side_tables()?.kv_entries(under, self.read_at(), &mut |record| {
            if query.filters.is_empty() && skipped < query.offset && !query.passes_over(record) {
                skipped += 1;
                return Ok(true);
            }
            if let Some(item) = query.fit(record)? {
                if skipped < query.offset {
                    skipped += 1;
                } else {
                    found.push(item);
                }
            }
            Ok(found.len() < query.limit)
        })?;
        Ok(found)
    }

    fn search_latest_put(&self, under: Option<&KvNamespace>, query: &KvQuery) -> Result<Vec<KvItem>, StoreError> {
        let (mut best, mut place) = (Best::new(query.offset.saturating_add(query.limit)), 0);
        self.store.backend().side_tables()?.kv_entries(under, self.read_at(), &mut |record| {
            place += 1;
            if let Some(item) = query.fit(record)? {
                best.push(Rank { score: 0.0, updated_at: item.updated_at, place }, item);
            }
            Ok(true)
        })?;
        Ok(best.into_sorted().into_iter().skip(query.offset).map(|(_, item)| item).collect())
    }

    fn search_similar(
        &self,
        under: Option<&KvNamespace>,
        query: &KvQuery,
        index: &KvIndex,
        text: &str,
    ) -> Result<Vec<KvItem>, StoreError> {
        let vector = index.embed_query(text)?;
        let (mut best, mut place) = (Best::new(query.offset.saturating_add(query.limit)), 0);
        self.store.backend().side_tables()?.kv_indexed(under, self.read_at(), &mut |record, vectors| {
            place += 1;
            if let Some(mut item) = query.fit(record)? {
                let score = vector.score(vectors)?;
                item.score = Some(score);
                best.push(Rank { score, updated_at: item.updated_at, place }, item);
            }
            Ok(true)
        })?;
        Ok(best.into_sorted().into_iter().skip(query.offset).map(|(_, item)| item).collect())
    }

    /// Removes the entry under a key, if there is one.
    ///
    /// # Errors
    /// As [`Kv::put`]. A namespace to which nothing can be put holds nothing to remove.
    pub fn delete(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
    ) -> Result<(), StoreError> {
        let Ok(namespace) = KvNamespace::from_labels(namespace) else { return Ok(()) };
        self.write_all([KvWrite::of(namespace, key.into(), None)])
    }

    /// Returns the namespaces that hold something and that a query finds, each as its labels, sorted.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn list_namespaces(&self, query: KvNamespaceQuery) -> Result<Vec<Vec<String>>, StoreError> {
        let Some(under) = query.under() else { return Ok(Vec::new()) };
        let all = self.store.backend().side_tables()?.kv_namespaces(under.as_ref(), self.read_at())?;
        let all = all
            .iter()
            .filter(|namespace| under.as_ref().is_some_and(KvNamespace::is_history) || !namespace.is_history());
        Ok(query.select(all.map(|namespace| namespace.labels().map(str::to_owned).collect())))
    }
}

impl KvItem {
    fn decode(record: &KvRecord) -> Result<Self, StoreError> {
        Ok(Self {
            namespace: record.namespace.labels().map(str::to_owned).collect(),
            key: record.key.clone(),
            value: record.value.decode()?,
            created_at: record.created_at,
            updated_at: record.updated_at,
            expires_at: record.expires_at,
            score: None,
        })
    }
}

impl KvQuery {
    /// Returns whether an entry is a version, which a search does not find.
    fn passes_over(&self, record: &KvRecord) -> bool {
        record.namespace.is_history() && self.prefix.first().is_none_or(|label| label != HISTORY)
    }

    /// Returns an entry that fits the filters.
    fn fit(&self, record: &KvRecord) -> Result<Option<KvItem>, StoreError> {
        if self.passes_over(record) {
            return Ok(None);
        }
        let item = KvItem::decode(record)?;
        let fits = self.filters.iter().all(|(name, test)| test.holds(item.value.get(name)));
        Ok(fits.then_some(item))
    }
}

debug_fields!(Kv {});
