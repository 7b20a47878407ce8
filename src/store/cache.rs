//! The cache: results that may be computed anew, beside the log in the same file.

use crate::store::log::LogExt;
use std::time::Duration;

use crate::base::{Encoded, debug_fields};

use super::error::StoreError;
use super::handle::Store;
use super::log::CommitHandle;
use super::side_tables::{CacheChange, CacheKey};

/// The cache of a store: values under a namespace and a key, until they expire or are cleared. Cheap to clone; all
/// clones are the same cache. An entry that was put is visible to every later read through the same store.
///
/// # Example
/// ```
/// use annals::base::Encoded;
/// use annals::store::{CacheKey, Store};
///
/// # fn main() -> Result<(), annals::store::StoreError> {
/// let cache = Store::memory().cache();
/// let key = CacheKey::new(["results", "node"], "input 1");
/// cache.put(key.clone(), Encoded::encode("answer")?, None).wait()?;
/// let found = cache.get(&key)?.unwrap();
/// assert_eq!(found.decode::<String>()?, "answer");
///
/// cache.clear(["results"])?;
/// assert!(cache.get(&key)?.is_none());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "BaseCache")]
#[derive(Clone)]
pub struct Cache {
    store: Store,
}

impl Store {
    /// Returns the cache of this store.
    pub fn cache(&self) -> Cache {
        Cache { store: self.clone() }
    }
}

impl Cache {
    /// Returns the value under a key, `None` if there is none or it has expired.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn get(&self, key: &CacheKey) -> Result<Option<Encoded>, StoreError> {
        Ok(self.values(std::slice::from_ref(key))?.pop().flatten())
    }

    /// Returns the values under several keys, in their order, in one read.
    ///
    /// # Errors
    /// As [`Cache::get`].
    pub fn values(&self, keys: &[CacheKey]) -> Result<Vec<Option<Encoded>>, StoreError> {
        self.store.wait_for_cache();
        self.store.backend().side_tables()?.cached(keys, self.store.now())
    }

    /// Hands a value to the background writer, which stores it in place of one that is there; after `lifetime` it
    /// counts as not there. The handle reports when it is stored; waiting for it is optional.
    pub fn put(&self, key: CacheKey, value: Encoded, lifetime: Option<Duration>) -> CommitHandle {
        let now = self.store.now();
        let expires_at = lifetime.map(|lifetime| now.saturating_add(lifetime));
        self.store.submit_cache(vec![CacheChange::Put { key, value, now, expires_at }])
    }

    /// Returns the store it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Removes all values whose namespace begins with these labels, and returns when that is durable; without labels,
    /// all there are. Entries that were put before are removed as well.
    ///
    /// # Errors
    /// [`StoreError::Invalid`]; [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`],
    /// [`StoreError::ReadOnly`].
    pub fn clear(&self, namespace: impl IntoIterator<Item = impl Into<String>>) -> Result<(), StoreError> {
        let namespace = namespace.into_iter().map(Into::into).collect();
        self.make(vec![CacheChange::Clear { namespace }])
    }

    /// Removes the values of some namespaces, and not those of the namespaces inside them, and returns when that is
    /// durable.
    ///
    /// # Errors
    /// As [`Cache::clear`].
    pub fn clear_namespaces(&self, namespaces: impl IntoIterator<Item = Vec<String>>) -> Result<(), StoreError> {
        let clear = |namespace| CacheChange::ClearNamespace { namespace };
        self.make(namespaces.into_iter().map(clear).collect())
    }

    fn make(&self, changes: Vec<CacheChange>) -> Result<(), StoreError> {
        let handle = self.store.submit_cache(changes);
        self.store.backend().flush();
        handle.wait()
    }
}

debug_fields!(Cache {});
