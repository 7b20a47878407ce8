//! The decoded heads that a handle used, bounded in bytes.
//!
//! The newest head is retained whatever its size: its thread is the one in use, and to load it again for each write
//! would cost as much memory, and time in the length of the thread.
//!
//! A run takes the head out and puts its own back when it ends, so that the next turn on a long thread does not load
//! the state that is already in memory. The caller that takes a head compares its checkpoint with the head in the file.

use std::any::{Any, TypeId};

use parking_lot::Mutex;

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::limits::HEADS_MAX;

use super::record::CheckpointRef;

/// The decoder of a cached head: another one cannot use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum HeadKey {
    /// A graph of an executor, by its number.
    Graph(usize),
    /// A schema, by its number.
    Schema(usize),
    /// The schema of a derived state, by its type.
    State(TypeId),
    /// The channels that were written by name.
    Named,
    /// The operations that the last undo has read.
    Operations,
}

/// A decoded head: the state that an executor made of a checkpoint, opaque to the store.
#[non_exhaustive]
#[doc(hidden)]
pub struct CachedHead {
    /// The thread.
    pub thread: ThreadId,
    /// The namespace.
    pub namespace: Namespace,
    /// The checkpoint that was decoded.
    pub checkpoint: CheckpointId,
    /// The decoder.
    pub schema: HeadKey,
    /// About how many bytes it holds.
    pub bytes: usize,
    /// The decoded head.
    pub head: Box<dyn Any + Send>,
}

impl CachedHead {
    /// Holds the head that a decoder has made of a checkpoint. `bytes` is about its size.
    pub fn new(at: CheckpointRef, schema: HeadKey, bytes: usize, head: Box<dyn Any + Send>) -> Self {
        let CheckpointRef { thread, namespace, checkpoint } = at;
        Self { thread, namespace, checkpoint, schema, bytes, head }
    }
}

/// Heads, least recently used first.
#[derive(Default)]
pub(crate) struct HeadCache {
    heads: Mutex<Vec<CachedHead>>,
    bytes_max: usize,
}

impl HeadCache {
    /// Creates a cache of at most `bytes_max` bytes, or of the newest head alone if that is larger; 0 caches none.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { heads: Mutex::new(Vec::new()), bytes_max }
    }

    /// Takes the head of a namespace as `schema` decoded it, whatever checkpoint it is of.
    pub(crate) fn take(&self, thread: &ThreadId, namespace: &Namespace, schema: HeadKey) -> Option<CachedHead> {
        let mut heads = self.heads.lock();
        let at = heads
            .iter()
            .rposition(|head| head.schema == schema && head.thread == *thread && head.namespace == *namespace)?;
        Some(heads.remove(at))
    }

    /// Caches a head, in place of an older one of the same namespace.
    pub(crate) fn put(&self, head: CachedHead) {
        if self.bytes_max == 0 {
            return;
        }
        let mut heads = self.heads.lock();
        heads.retain(|old| old.schema != head.schema || old.thread != head.thread || old.namespace != head.namespace);
        heads.push(head);
        let mut bytes: usize = heads.iter().map(|head| head.bytes).sum();
        let mut drop_to = 0;
        while drop_to + 1 < heads.len() && (bytes > self.bytes_max || heads.len() - drop_to > HEADS_MAX) {
            bytes -= heads[drop_to].bytes;
            drop_to += 1;
        }
        heads.drain(..drop_to);
        debug_assert!(heads.len() <= HEADS_MAX && (bytes <= self.bytes_max || heads.len() == 1));
    }

    /// Removes the heads of threads.
    pub(crate) fn forget(&self, threads: &[ThreadId]) {
        self.heads.lock().retain(|head| !threads.contains(&head.thread));
    }

    /// Removes all heads.
    pub(crate) fn clear(&self) {
        self.heads.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: &str, bytes: usize) -> CachedHead {
        CachedHead {
            thread: ThreadId::new(thread).unwrap(),
            namespace: Namespace::root(),
            checkpoint: CheckpointId::default(),
            schema: HeadKey::Graph(1),
            bytes,
            head: Box::new(()),
        }
    }

    #[test]
    fn the_cache_is_bounded_and_drops_the_oldest() {
        let cache = HeadCache::new(100);
        let has = |name: &str| {
            let found = cache.take(&ThreadId::new(name).unwrap(), &Namespace::root(), HeadKey::Graph(1));
            found.map(|head| cache.put(head)).is_some()
        };
        cache.put(head("a", 60));
        cache.put(head("b", 30));
        assert!(has("a") && has("b"));
        assert!(has("a"), "taking and putting makes it the newest");
        cache.put(head("c", 40));
        assert!(!has("b") && has("a") && has("c"));
        cache.put(head("a", 101));
        assert!(has("a") && !has("c"), "the newest head is cached alone if it is above the bound");
        cache.put(head("b", 30));
        assert!(has("b") && !has("a"), "and is dropped for the next one");
        let none = HeadCache::new(0);
        none.put(head("a", 0));
        assert!(none.take(&ThreadId::new("a").unwrap(), &Namespace::root(), HeadKey::Graph(1)).is_none());
    }
}
