//! The key-value memory: objects that outlive a thread and are shared by all threads.
//!
//! Objects are stored under a namespace and a key, beside the log in the same file. *Absent:* history; a put replaces the
//! old value, and a replay of a thread reverts nothing.

mod filter;
mod query;

use std::fmt;
use std::time::Duration;

use crate::base::{Encoded, Timestamp, Value};

pub use self::filter::KvCompare;
pub use self::query::{KvNamespaceQuery, KvQuery};
use super::beside::{KvChange, KvNamespace, KvRecord};
use super::error::StoreError;
use super::handle::Store;

/// The key-value memory of a store. Cheap to clone; all clones are the same memory.
///
/// Every call sees the puts that returned before it began, by any handle. A put or delete returns when it is as durable as the
/// store was opened for.
///
/// # Example
/// ```
/// use annals::base::Value;
/// use annals::store::{KvCompare, KvQuery, Store};
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
    /// The moment from which on it counts as not there, `None` if it stays.
    pub expires_at: Option<Timestamp>,
}

impl Store {
    /// Returns the key-value memory of this store.
    pub fn kv(&self) -> Kv {
        Kv { store: self.clone() }
    }
}

impl Kv {
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
        self.put_until(KvNamespace::new(namespace)?, key.into(), value.into(), None)
    }

    /// Stores an object as [`Kv::put`] does; after `lifetime` it counts as not there.
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
        let expires_at = self.store.now().saturating_add(lifetime);
        self.put_until(KvNamespace::new(namespace)?, key.into(), value.into(), Some(expires_at))
    }

    fn put_until(
        &self,
        namespace: KvNamespace,
        key: String,
        value: Value,
        expires_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        if value.as_map().is_none() {
            let reason = format!("it is a {}; an object is stored", value.kind());
            return Err(StoreError::Invalid { field: "kv value", reason });
        }
        let (value, now) = (Encoded::encode(&value)?, self.store.now());
        self.store.backend().beside().commit_kv(&[KvChange::Put { namespace, key, value, now, expires_at }])
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
        let Ok(namespace) = KvNamespace::new(namespace) else { return Ok(None) };
        let found = self.store.backend().beside().kv_entry(&namespace, key.as_ref(), self.store.now())?;
        found.as_ref().map(KvItem::decode).transpose()
    }

    /// Returns the entries that a query finds: namespaces in the order in which they were first put to, and in each the
    /// keys in the order in which they were first put.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn search(&self, query: KvQuery) -> Result<Vec<KvItem>, StoreError> {
        let Some(under) = query::namespace_of(&query.prefix) else { return Ok(Vec::new()) };
        let (mut found, mut skipped) = (Vec::new(), 0);
        if query.limit == 0 {
            return Ok(found);
        }
        self.store.backend().beside().kv_entries(under.as_ref(), self.store.now(), &mut |record| {
            if query.filters.is_empty() && skipped < query.offset {
                skipped += 1;
                return Ok(true);
            }
            let item = KvItem::decode(record)?;
            if query.filters.iter().all(|(name, test)| test.holds(item.value.get(name))) {
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

    /// Removes the entry under a key, if there is one.
    ///
    /// # Errors
    /// As [`Kv::put`]. A namespace to which nothing can be put holds nothing to remove.
    pub fn delete(
        &self,
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
    ) -> Result<(), StoreError> {
        let Ok(namespace) = KvNamespace::new(namespace) else { return Ok(()) };
        self.store.backend().beside().commit_kv(&[KvChange::Delete { namespace, key: key.into() }])
    }

    /// Returns the namespaces that hold something and that a query finds, each as its labels, sorted.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn list_namespaces(&self, query: KvNamespaceQuery) -> Result<Vec<Vec<String>>, StoreError> {
        let Some(under) = query.under() else { return Ok(Vec::new()) };
        let all = self.store.backend().beside().kv_namespaces(under.as_ref(), self.store.now())?;
        Ok(query.select(all.iter().map(|namespace| namespace.labels().map(str::to_owned).collect())))
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
        })
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").finish_non_exhaustive()
    }
}
