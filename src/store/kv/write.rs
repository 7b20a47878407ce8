//! Writes of the key-value memory: a put or a deletion with its lifetime and its indexed fields, and the defaults of a
//! handle.

use std::time::Duration;

use crate::base::{Value, setters};
use crate::store::error::StoreError;
use crate::store::side_tables::KvNamespace;

use super::index::parse_fields;
use super::path::FieldPath;

/// A write of the key-value memory, for [`Kv::write_all`](super::Kv::write_all).
#[doc(alias = "PutOp")]
#[derive(Clone, Debug)]
pub struct KvWrite {
    pub(super) namespace: KvNamespace,
    pub(super) key: String,
    /// `None` removes the key.
    pub(super) value: Option<Value>,
    pub(super) lifetime: WriteLifetime,
    /// `None` for the fields of the index.
    pub(super) fields: Option<Vec<FieldPath>>,
}

/// The lifetime of an entry that is put.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WriteLifetime {
    /// That of the handle.
    OfHandle,
    /// It stays.
    Unlimited,
    /// So long.
    Limited(Duration),
}

impl KvWrite {
    /// Stores an object under a key, in place of one that is there.
    ///
    /// # Errors
    /// [`StoreError::InvalidNamespace`] for a label that is empty or holds a dot or a NUL. Unlike [`Kv::put`], a write
    /// may name the root, which has no label, and the reserved label `langgraph`, as in LangGraph's `batch`.
    ///
    /// [`Kv::put`]: super::Kv::put
    pub fn put(
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
        value: impl Into<Value>,
    ) -> Result<Self, StoreError> {
        Ok(Self::of(KvNamespace::from_labels(namespace)?, key.into(), Some(value.into())))
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`KvWrite::put`].
    pub fn delete(
        namespace: impl IntoIterator<Item = impl AsRef<str>>,
        key: impl Into<String>,
    ) -> Result<Self, StoreError> {
        Ok(Self::of(KvNamespace::from_labels(namespace)?, key.into(), None))
    }

    pub(super) fn of(namespace: KvNamespace, key: String, value: Option<Value>) -> Self {
        Self { namespace, key, value, lifetime: WriteLifetime::OfHandle, fields: None }
    }

    /// Sets the time after which the entry counts as absent; `None` lets it stay. Default: that of the handle
    /// ([`KvLifetimes::lifetime`]).
    pub fn lifetime(mut self, lifetime: Option<Duration>) -> Self {
        self.lifetime = lifetime.map_or(WriteLifetime::Unlimited, WriteLifetime::Limited);
        self
    }

    /// Sets the fields of this value that are embedded, in place of those of the index; none leaves the entry out of
    /// searches by similarity. A handle without an index embeds nothing.
    ///
    /// # Errors
    /// As [`KvIndex::fields`](super::KvIndex::fields).
    #[doc(alias = "index")]
    pub fn fields(mut self, fields: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, StoreError> {
        self.fields = Some(parse_fields(fields)?);
        Ok(self)
    }
}

/// The lifetimes of entries that a handle of the key-value memory puts and reads.
#[doc(alias = "TTLConfig")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KvLifetimes {
    pub(super) lifetime: Option<Duration>,
    pub(super) prolong_on_read: bool,
    pub(super) retain_expired: bool,
}

impl KvLifetimes {
    /// Returns the defaults: entries stay unless a put says otherwise, reads do not prolong them, and expired entries
    /// are not read.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the lifetime of an entry whose put names none; `None` lets it stay. Default: `None`.
        #[doc(alias = "default_ttl")]
        pub fn lifetime(lifetime: Option<Duration>) { .lifetime = lifetime }

        /// Begins the lifetime of an entry anew when it is read, which costs a commit for each read of entries with a
        /// lifetime. Only entries that were put by a handle with lifetimes have one that can begin anew. A store that
        /// is open for reading only prolongs nothing. Default: off.
        #[doc(alias = "refresh_on_read")]
        pub fn prolong_on_read(prolong: bool) { .prolong_on_read = prolong }

        /// Reads expired entries as long as they are stored: a sweep removes them, and a put removes the oldest 16 of
        /// them. Default: off.
        #[doc(alias = "omit_expired")]
        pub fn retain_expired(retain: bool) { .retain_expired = retain }
    }
}
