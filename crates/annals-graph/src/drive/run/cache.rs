//! Looking results up in the cache of a run, and keeping them there.

use crate::base::Encoded;
use crate::drive::io::pool::unblock;
use crate::error::Error;
use crate::exec::{RunError, node_labels};
use crate::graph::CompiledGraph;
use crate::store::{Cache, CacheKey};

/// Returns the cached values of these keys. A value that cannot be read counts as missing.
pub(in crate::drive) fn look_up(cache: &Cache, keys: &[CacheKey]) -> Vec<Option<Encoded>> {
    cache.values(keys).unwrap_or_else(|_| keys.iter().map(|key| cache.get(key).ok().flatten()).collect())
}

/// As [`look_up`], without blocking.
pub(in crate::drive) async fn look_up_async(cache: &Cache, keys: Vec<CacheKey>) -> Vec<Option<Encoded>> {
    let (store, cache) = (cache.store().clone(), cache.clone());
    unblock(&store, move || look_up(&cache, &keys)).await
}

impl<S> CompiledGraph<S> {
    /// Removes the cached results of these nodes from the cache of the graph; without names, of all its nodes. Names
    /// that no node has are ignored. Cached results of called tasks stay: see [`Task::clear_cache`](crate::task::Task).
    ///
    /// # Errors
    /// [`RunError::NoCache`] if the graph has none; the errors of [`Cache::clear`].
    #[doc(alias = "aclear_cache")]
    pub fn clear_cache(&self, nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Error> {
        let cache = self.graph.cache.as_ref().ok_or(RunError::NoCache)?;
        let named: Vec<String> = nodes.into_iter().map(|node| node.as_ref().to_owned()).collect();
        for node in &self.graph.nodes {
            if named.is_empty() || named.iter().any(|name| **name == *node.name) {
                cache.clear(node_labels(&self.graph, &node.name))?;
            }
        }
        Ok(())
    }
}
