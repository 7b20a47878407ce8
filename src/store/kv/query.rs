//! Queries of the key-value memory.

use std::collections::BTreeSet;

use crate::base::{Map, Value, setters};
use crate::limits::{KV_NAMESPACES_DEFAULT, KV_SEARCH_DEFAULT};
use crate::store::error::StoreError;
use crate::store::side_tables::KvNamespace;

use super::filter::{KvCompare, Test};

/// A search of the key-value memory.
#[derive(Clone, Debug)]
pub struct KvQuery {
    pub(super) prefix: Vec<String>,
    pub(super) filters: Vec<(String, Test)>,
    pub(super) text: Option<String>,
    pub(super) order: KvOrder,
    pub(super) limit: usize,
    pub(super) offset: usize,
}

/// The order of the entries that a search of the key-value memory returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KvOrder {
    /// Namespaces by the first put to them, and in each the keys by their first put, as in LangGraph's `InMemoryStore`.
    /// A search ends as soon as it has enough.
    #[default]
    FirstPut,
    /// The entry that was put last comes first, as in LangGraph's `SqliteStore` and `PostgresStore`. All entries that
    /// fit are read.
    LatestPut,
}

impl KvQuery {
    /// Looks for all entries whose namespace begins with these labels; without labels, for all there are.
    pub fn new(prefix: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let prefix = prefix.into_iter().map(Into::into).collect();
        let (text, order) = (None, KvOrder::default());
        Self { prefix, filters: Vec::new(), text, order, limit: KV_SEARCH_DEFAULT, offset: 0 }
    }

    /// Looks for all entries there are.
    pub fn all() -> Self {
        Self::new([] as [String; 0])
    }

    setters! {
        /// Only values whose member equals `value`. A missing member is null, a truth value equals 0 or 1; of an object
        /// the members given must be equal.
        pub fn filter(member: impl Into<String>, value: impl Into<Value>) {
            .filters.push((member.into(), Test::like(value.into())))
        }

        /// Only values whose member compares so with `value`. Numbers are ordered among themselves, and texts are; a
        /// text is compared with a number by the number that it begins with. Anything else compares as neither less nor
        /// greater.
        pub fn compare(member: impl Into<String>, how: KvCompare, value: impl Into<Value>) {
            .filters.push((member.into(), Test::Compare(how, value.into())))
        }
    }

    /// Adds the filters of an object in the form of LangGraph: each member a value to equal, or an object of the
    /// comparisons `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for another name that begins with `$`.
    pub fn filter_object(mut self, filter: Map) -> Result<Self, StoreError> {
        for (member, value) in filter {
            self.filters.push((member, Test::parse(value)?));
        }
        Ok(self)
    }

    setters! {
        /// Looks for entries whose indexed fields are similar to a text, the most similar first: [`KvItem::score`] is
        /// the cosine similarity of the best field. Entries without a vector are not found. Without an index
        /// ([`Kv::with_index`]), or for an empty text, this changes nothing, as in LangGraph.
        ///
        /// [`KvItem::score`]: super::KvItem::score
        /// [`Kv::with_index`]: super::Kv::with_index
        #[doc(alias = "query")]
        pub fn similar_to(text: impl Into<String>) { .text = Some(text.into()) }

        /// Sets the order of the entries of a search that does not go by similarity. Default: [`KvOrder::FirstPut`].
        pub fn order(order: KvOrder) { .order = order }

        /// Sets how many entries are returned at most. Default: 10.
        pub fn limit(limit: usize) { .limit = limit }

        /// Sets how many entries that fit are passed over first. Default: 0.
        pub fn offset(offset: usize) { .offset = offset }
    }
}

/// A listing of the namespaces of the key-value memory.
#[derive(Clone, Debug)]
pub struct KvNamespaceQuery {
    /// All of these hold.
    prefixes: Vec<Vec<String>>,
    suffixes: Vec<Vec<String>>,
    max_depth: Option<usize>,
    limit: usize,
    offset: usize,
}

impl KvNamespaceQuery {
    /// Looks for all namespaces.
    pub fn new() -> Self {
        Self { prefixes: Vec::new(), suffixes: Vec::new(), max_depth: None, limit: KV_NAMESPACES_DEFAULT, offset: 0 }
    }

    setters! {
        /// Only those that begin with these labels; `*` stands for any one. Several prefixes must all fit.
        pub fn prefix(labels: impl IntoIterator<Item = impl Into<String>>) {
            .prefixes.push(labels.into_iter().map(Into::into).collect())
        }

        /// Only those that end with these labels; `*` stands for any one. Several suffixes must all fit.
        pub fn suffix(labels: impl IntoIterator<Item = impl Into<String>>) {
            .suffixes.push(labels.into_iter().map(Into::into).collect())
        }

        /// Cuts namespaces to so many labels, and leaves out those that are then equal.
        pub fn max_depth(labels: usize) { .max_depth = Some(labels) }

        /// Sets how many namespaces are returned at most. Default: 100.
        pub fn limit(limit: usize) { .limit = limit }

        /// Sets how many namespaces are passed over first. Default: 0.
        pub fn offset(offset: usize) { .offset = offset }
    }

    /// Returns the namespace under which to look, as [`namespace_of`].
    pub(super) fn under(&self) -> Option<Option<KvNamespace>> {
        let Some(prefix) = self.prefixes.first() else { return Some(None) };
        let literal = prefix.iter().position(|label| label == "*").unwrap_or(prefix.len());
        namespace_of(&prefix[..literal])
    }

    /// Returns those of `all` that fit: cut, sorted, and of them the page that is asked for.
    pub(super) fn select(&self, all: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
        let fit = all.filter(|labels| {
            let ends = |suffix: &Vec<String>| {
                labels.len().checked_sub(suffix.len()).is_some_and(|from| alike(suffix, &labels[from..]))
            };
            self.prefixes.iter().all(|prefix| labels.len() >= prefix.len() && alike(prefix, labels))
                && self.suffixes.iter().all(ends)
        });
        let cut: BTreeSet<Vec<String>> = fit
            .map(|mut labels| {
                labels.truncate(self.max_depth.unwrap_or(labels.len()));
                labels
            })
            .collect();
        cut.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

impl Default for KvNamespaceQuery {
    fn default() -> Self {
        Self::new()
    }
}

fn alike(pattern: &[String], labels: &[String]) -> bool {
    pattern.iter().zip(labels).all(|(pattern, label)| pattern == "*" || pattern == label)
}

/// Returns the namespace of a prefix: `None` if nothing can be under it, `Some(None)` if everything is.
pub(super) fn namespace_of(prefix: &[String]) -> Option<Option<KvNamespace>> {
    if prefix.is_empty() { Some(None) } else { KvNamespace::from_labels(prefix).ok().map(Some) }
}
