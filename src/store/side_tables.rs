//! The tables beside the log: entries of the key-value memory and of the cache, as plain data.
//!
//! Unlike rows of the log, entries are replaced and removed. *Absent:* the meaning of a value, and its owner.

use crate::base::limits::{KV_CHANGES_MAX, VALUE_BYTES_MAX};
use crate::base::{Encoded, Timestamp};
use crate::limits::{
    EMBEDDING_DIMS_MAX, KV_FIELD_BYTES_MAX, KV_KEY_BYTES_MAX, KV_LABELS_MAX, KV_NAMESPACE_BYTES_MAX, KV_VECTORS_MAX,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::log::{CommitHandle, VisitEach};

/// The part of a [`Log`](super::log::Log) beside the log: the key-value memory and the cache.
///
/// All calls may come from several threads at once. Reads see everything that was committed before they began.
///
/// # Implementing
/// `commit_kv` must call [`KvChange::validate`] first, and `submit_cache` [`CacheChange::validate`].
pub trait SideTables: Send + Sync + fmt::Debug {
    /// Changes the key-value memory: all changes in their order, or none, or (a failed fsync) with unknown outcome.
    /// Returns when that is as durable as the backend was opened for. A put may remove expired entries.
    ///
    /// # Errors
    /// [`StoreError::Invalid`]; [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`],
    /// [`StoreError::ReadOnly`].
    fn commit_kv(&self, changes: &[KvChange]) -> Result<(), StoreError>;

    /// Returns an entry of the key-value memory, `None` if it is not there or has expired by `now`.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn kv_entry(&self, namespace: &KvNamespace, key: &str, now: Timestamp) -> Result<Option<KvRecord>, StoreError>;

    /// Visits the entries in the namespace `under` and in those inside it, or all, until `visit` returns `false`:
    /// namespaces in the order of the first put to them, keys in the order of their first put. A namespace or key that
    /// was removed and is put anew comes last.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn kv_entries(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: VisitEach<'_, KvRecord>,
    ) -> Result<(), StoreError>;

    /// Visits the entries that have vectors, each with its vectors in their order, as [`SideTables::kv_entries`] visits
    /// all.
    ///
    /// # Errors
    /// As [`SideTables::kv_entries`].
    fn kv_indexed(
        &self,
        under: Option<&KvNamespace>,
        now: Timestamp,
        visit: &mut dyn FnMut(&KvRecord, &[KvVector]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError>;

    /// Returns the namespaces and keys of entries that have expired by `now`, the earliest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn kv_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<(KvNamespace, String)>, StoreError>;

    /// Returns the namespaces that hold an entry, of those in `under` or of all, in any order. This implementation
    /// visits the entries.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn kv_namespaces(&self, under: Option<&KvNamespace>, now: Timestamp) -> Result<Vec<KvNamespace>, StoreError> {
        let mut found = Vec::new();
        self.kv_entries(under, now, &mut |entry| {
            found.push(entry.namespace.clone());
            Ok(true)
        })?;
        // The entries of a namespace come one after another.
        found.dedup();
        Ok(found)
    }

    /// Returns the values of the cache under these keys, in their order; `None` for an absent or expired entry.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn cached(&self, keys: &[CacheKey], now: Timestamp) -> Result<Vec<Option<Encoded>>, StoreError>;

    /// Hands changes of the cache to a background writer, and returns at once: all of them are made in their order, or
    /// none. A put may remove expired entries.
    fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle;
}

/// The namespace of an entry of the key-value memory: labels, none of them empty or with a dot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KvNamespace(Arc<str>);

/// The first label of the namespaces that hold versions of entries.
pub(crate) const HISTORY: &str = "__history__";

impl KvNamespace {
    /// Checks the labels of a namespace to which a caller puts.
    ///
    /// # Errors
    /// [`StoreError::InvalidNamespace`] if there are none or too many, if one is empty, holds a dot or a NUL, or if the
    /// first one is `langgraph` or `__history__`, which are reserved.
    pub fn new(labels: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, StoreError> {
        let namespace = Self::from_labels(labels)?;
        let reason = match namespace.0.split('.').next() {
            None | Some("") => "it has no label",
            Some("langgraph") => "the first label is `langgraph`, which is reserved",
            Some(HISTORY) => "the first label is `__history__`, which is reserved",
            Some(_) => return Ok(namespace),
        };
        Err(refused(namespace.labels(), reason.to_owned()))
    }

    /// Checks the labels of a namespace that may exist: also the root, which has none, and the reserved one.
    ///
    /// # Errors
    /// [`StoreError::InvalidNamespace`] if there are too many labels, or if one is empty or holds a dot or a NUL.
    pub fn from_labels(labels: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, StoreError> {
        let mut path = String::new();
        let (mut count, mut reason) = (0, None);
        for label in labels {
            let label = label.as_ref();
            if label.is_empty() {
                reason.get_or_insert("a label is empty");
            } else if label.contains(['.', '\0']) {
                reason.get_or_insert("a label holds a dot or a NUL character");
            }
            if count > 0 {
                path.push('.');
            }
            path.push_str(label);
            count += 1;
        }
        let reason = match reason {
            Some(reason) => reason.to_owned(),
            None if count > KV_LABELS_MAX => format!("it has {count} labels, the limit is {KV_LABELS_MAX}"),
            None if path.len() > KV_NAMESPACE_BYTES_MAX => {
                format!("it has {} bytes, the limit is {KV_NAMESPACE_BYTES_MAX}", path.len())
            }
            None => return Ok(Self(path.into())),
        };
        Err(refused(path.split('.'), reason))
    }

    /// Reads labels that are joined by dots.
    pub(crate) fn from_path(path: &str) -> Result<Self, StoreError> {
        if path.is_empty() { Ok(Self(path.into())) } else { Self::from_labels(path.split('.')) }
    }

    /// Returns the labels, outermost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        let labels = (!self.0.is_empty()).then(|| self.0.split('.'));
        labels.into_iter().flatten()
    }

    /// Returns whether its entries are versions of other ones.
    pub(crate) fn is_history(&self) -> bool {
        self.labels().next() == Some(HISTORY)
    }

    /// Returns the labels joined by dots.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Returns whether it is `outer` or lies in it.
    pub fn is_in(&self, outer: &Self) -> bool {
        outer.0.is_empty()
            || self.0.strip_prefix(&*outer.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Debug for KvNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// An entry of the key-value memory, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvRecord {
    /// The namespace.
    pub namespace: KvNamespace,
    /// The key, unique in the namespace.
    pub key: String,
    /// The value.
    pub value: Encoded,
    /// When the key was first put.
    pub created_at: Timestamp,
    /// When it was last put.
    pub updated_at: Timestamp,
    /// The timestamp from which on the entry counts as absent.
    pub expires_at: Option<Timestamp>,
}

impl KvRecord {
    /// Makes the record of an entry that was put once and does not expire.
    pub fn new(namespace: KvNamespace, key: impl Into<String>, value: Encoded, created_at: Timestamp) -> Self {
        Self { namespace, key: key.into(), value, created_at, updated_at: created_at, expires_at: None }
    }
}

/// The embedding of a text in an entry of the key-value memory, by which it is found by meaning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KvVector {
    /// The path of the field whose text it embeds.
    pub field: String,
    /// The components, all finite.
    pub values: Vec<f32>,
}

impl KvVector {
    /// Makes a vector.
    pub fn new(field: impl Into<String>, values: Vec<f32>) -> Self {
        Self { field: field.into(), values }
    }

    fn validate(&self) -> Result<(), StoreError> {
        at_most("kv field bytes", self.field.len(), KV_FIELD_BYTES_MAX)?;
        at_most("kv vector dimensions", self.values.len(), EMBEDDING_DIMS_MAX)?;
        let reason = match self.values.iter().find(|value| !value.is_finite()) {
            Some(value) => format!("a component is {value}"),
            None if self.values.is_empty() => "it has no dimension".to_owned(),
            None if self.field.contains('\0') => "its field holds a NUL character".to_owned(),
            None => return Ok(()),
        };
        Err(StoreError::Invalid { field: "kv vector", reason })
    }
}

/// A change of the key-value memory.
#[derive(Clone, Debug, PartialEq)]
pub enum KvChange {
    /// Stores a value under a key. A value that is there is replaced and keeps its place in the order; its vectors and
    /// its lifetime are removed.
    Put {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
        /// The value.
        value: Encoded,
        /// The present timestamp.
        now: Timestamp,
        /// The timestamp from which on the entry counts as absent.
        expires_at: Option<Timestamp>,
    },
    /// Removes a key, if it is there.
    Delete {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
    },
    /// Stores the vectors of an entry in place of those it has, if it is there.
    SetVectors {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
        /// The vectors, in their order.
        vectors: Vec<KvVector>,
    },
    /// Stores the lifetime of an entry, if it is there: [`KvChange::Prolong`] begins it anew.
    SetLifetime {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
        /// The lifetime.
        lifetime: Duration,
    },
    /// Lets an entry with a lifetime expire that much after `now`, if it is there.
    Prolong {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
        /// The present timestamp.
        now: Timestamp,
    },
    /// Removes a key if it has expired.
    DeleteExpired {
        /// The namespace.
        namespace: KvNamespace,
        /// The key.
        key: String,
        /// The present timestamp.
        now: Timestamp,
    },
}

impl KvChange {
    /// Checks changes against the limits.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] naming the field and the limit.
    pub fn validate(changes: &[Self]) -> Result<(), StoreError> {
        at_most("kv changes", changes.len(), KV_CHANGES_MAX)?;
        changes.iter().try_for_each(|change| at_most("kv key", change.place().1.len(), KV_KEY_BYTES_MAX))?;
        changes.iter().try_for_each(|change| match change {
            Self::Put { value, .. } => at_most("value bytes", value.bytes.len(), VALUE_BYTES_MAX),
            Self::SetVectors { vectors, .. } => {
                at_most("kv vectors", vectors.len(), KV_VECTORS_MAX)?;
                vectors.iter().try_for_each(KvVector::validate)
            }
            _ => Ok(()),
        })
    }

    /// Returns the namespace and the key of the entry that it changes.
    pub fn place(&self) -> (&KvNamespace, &str) {
        match self {
            Self::Put { namespace, key, .. }
            | Self::Delete { namespace, key, .. }
            | Self::SetVectors { namespace, key, .. }
            | Self::SetLifetime { namespace, key, .. }
            | Self::Prolong { namespace, key, .. }
            | Self::DeleteExpired { namespace, key, .. } => (namespace, key),
        }
    }
}

/// The name of an entry of the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct CacheKey {
    /// The labels of its namespace: any text without a NUL.
    pub namespace: Vec<String>,
    /// The key, unique in the namespace.
    pub key: String,
}

impl CacheKey {
    /// Names the entry with a key in a namespace.
    pub fn new(namespace: impl IntoIterator<Item = impl Into<String>>, key: impl Into<String>) -> Self {
        Self { namespace: namespace.into_iter().map(Into::into).collect(), key: key.into() }
    }
}

/// A change of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Stores a value, in place of one that is there.
    Put {
        /// Its name.
        key: CacheKey,
        /// The value.
        value: Encoded,
        /// The present timestamp: entries that have expired by then may be removed.
        now: Timestamp,
        /// The timestamp from which on the entry counts as absent.
        expires_at: Option<Timestamp>,
    },
    /// Removes all entries whose namespace begins with these labels; without labels, all there are.
    Clear {
        /// The labels.
        namespace: Vec<String>,
    },
    /// Removes all entries whose namespace has these labels and no other.
    ClearNamespace {
        /// The labels.
        namespace: Vec<String>,
    },
}

impl CacheChange {
    /// Checks changes against the limits.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] naming the field and the limit.
    pub fn validate(changes: &[Self]) -> Result<(), StoreError> {
        at_most("cache changes", changes.len(), KV_CHANGES_MAX)?;
        changes.iter().try_for_each(|change| match change {
            Self::Put { key, value, .. } => {
                fits("cache key", &key.key)?;
                labels_fit(&key.namespace)?;
                at_most("value bytes", value.bytes.len(), VALUE_BYTES_MAX)
            }
            Self::Clear { namespace } | Self::ClearNamespace { namespace } => labels_fit(namespace),
        })
    }
}

fn refused<'a>(labels: impl Iterator<Item = &'a str>, reason: String) -> StoreError {
    StoreError::InvalidNamespace { namespace: labels.map(str::to_owned).collect(), reason }
}

fn labels_fit(labels: &[String]) -> Result<(), StoreError> {
    at_most("cache labels", labels.len(), KV_LABELS_MAX)?;
    at_most("cache namespace bytes", labels.iter().map(|label| label.len() + 1).sum(), KV_NAMESPACE_BYTES_MAX)?;
    match labels.iter().find(|label| label.contains('\0')) {
        Some(label) => {
            Err(StoreError::Invalid { field: "cache label", reason: format!("{label:?} holds a NUL character") })
        }
        None => Ok(()),
    }
}

fn fits(field: &'static str, key: &str) -> Result<(), StoreError> {
    if key.contains('\0') {
        return Err(StoreError::Invalid { field, reason: format!("{key:?} holds a NUL character") });
    }
    at_most(field, key.len(), KV_KEY_BYTES_MAX)
}

fn at_most(field: &'static str, found: usize, limit: usize) -> Result<(), StoreError> {
    if found > limit {
        return Err(StoreError::Invalid { field, reason: format!("{found} is above the limit of {limit}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_cannot_be_a_namespace_are_named() {
        for labels in [&[][..], &[""], &["a", ""], &["a.b"], &["a\0"], &["langgraph"], &["langgraph", "x"]] {
            let Err(StoreError::InvalidNamespace { namespace, .. }) = KvNamespace::new(labels) else {
                panic!("{labels:?} was accepted");
            };
            assert_eq!(namespace.is_empty(), labels.is_empty(), "{labels:?}");
        }
        assert!(KvNamespace::new(vec!["x"; KV_LABELS_MAX + 1]).is_err());
        assert!(KvNamespace::new(["x".repeat(KV_NAMESPACE_BYTES_MAX + 1)]).is_err());
        let inner = KvNamespace::new(["ok", "langgraph"]).unwrap();
        assert_eq!(inner.labels().collect::<Vec<_>>(), ["ok", "langgraph"]);
        let outer = |label: &str| KvNamespace::new([label]).unwrap();
        assert!(inner.is_in(&outer("ok")) && inner.is_in(&inner));
        assert!(!inner.is_in(&outer("o")) && !outer("ok").is_in(&inner));
    }

    #[test]
    fn the_root_and_the_reserved_namespace_may_exist() {
        let root = KvNamespace::from_labels([""; 0]).unwrap();
        assert_eq!((root.labels().count(), root.path()), (0, ""));
        assert_eq!(KvNamespace::from_path("").unwrap(), root);
        let reserved = KvNamespace::from_labels(["langgraph", "x"]).unwrap();
        assert!(reserved.is_in(&root) && !root.is_in(&reserved) && root.is_in(&root));
        assert_eq!(KvNamespace::from_path("langgraph.x").unwrap(), reserved);
        for labels in [&[""][..], &["a", ""], &["a.b"], &["a\0"]] {
            assert!(KvNamespace::from_labels(labels).is_err(), "{labels:?}");
        }
    }

    #[test]
    fn a_vector_has_components_that_are_finite_numbers() {
        let changes = |field: &str, values: Vec<f32>| {
            let (namespace, vectors) = (KvNamespace::new(["a"]).unwrap(), vec![KvVector::new(field, values)]);
            [KvChange::SetVectors { namespace, key: "k".into(), vectors }]
        };
        KvChange::validate(&changes("$", vec![0.0; EMBEDDING_DIMS_MAX])).unwrap();
        for (field, values) in [
            ("$", vec![]),
            ("$", vec![1.0, f32::NAN]),
            ("$", vec![f32::INFINITY]),
            ("$", vec![0.0; EMBEDDING_DIMS_MAX + 1]),
            ("a\0", vec![1.0]),
            (&"x".repeat(KV_FIELD_BYTES_MAX + 1), vec![1.0]),
        ] {
            let refused = KvChange::validate(&changes(field, values));
            assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{field}: {refused:?}");
        }
    }
}
