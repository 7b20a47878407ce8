//! The operations of a saver.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annals::store::{CommitHandle, Store};

use crate::{
    Config, DeltaHistory, ListQuery, NewCheckpoint, OnConflict, PruneStrategy, Result, SaverError, Tuple, Typed,
    Version,
};

/// The operations of LangGraph's `BaseCheckpointSaver` on a store. Cheap to clone; all clones share caches and
/// buffered writes.
#[derive(Clone, Debug)]
pub struct Saver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
}

/// A put that was submitted. Await it, or wait for it.
#[derive(Debug)]
pub struct PutHandle {
    config: Config,
    handle: CommitHandle,
}

/// The tuples of a listing, read page by page. Nothing is locked between two of them.
#[derive(Debug)]
pub struct Listing {
    _query: ListQuery,
}

fn unsupported<T>(feature: &'static str) -> Result<T> {
    Err(SaverError::Unsupported { feature, reason: "it follows".into() })
}

impl Saver {
    /// Makes a saver on a store.
    pub fn new(store: Store) -> Self {
        Self(Arc::new(Inner { store }))
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Stores a checkpoint under its id and returns its config when it is durable. The `checkpoint` of `parent` is the
    /// parent, which need not be stored. A checkpoint that is stored under the id is replaced, and its writes are
    /// retained.
    ///
    /// # Errors
    /// [`SaverError::Conflict`]; [`SaverError::Invalid`]; [`SaverError::Store`].
    pub fn put(&self, parent: &Config, new: NewCheckpoint, on_conflict: OnConflict) -> Result<Config> {
        self.submit_put(parent, new, on_conflict)?.wait()
    }

    /// Stores a checkpoint as [`Saver::put`], without waiting for the disk.
    ///
    /// # Errors
    /// As [`Saver::put`]; those of the commit come from the handle.
    pub fn submit_put(&self, _parent: &Config, _new: NewCheckpoint, _on_conflict: OnConflict) -> Result<PutHandle> {
        unsupported("put")
    }

    /// Stores writes of a task of a checkpoint, each a channel with a value. Regular writes that are stored stay,
    /// those to special channels (`__error__`, `__scheduled__`, `__interrupt__`, `__resume__`) are replaced.
    ///
    /// The writes are buffered for some milliseconds at most, so that the put of the next checkpoint takes them along;
    /// every read sees them.
    ///
    /// # Errors
    /// [`SaverError::Invalid`]; an error of earlier writes of the thread.
    pub fn put_writes(&self, _config: &Config, _task: &str, _path: &str, _writes: Vec<(String, Typed)>) -> Result<()> {
        unsupported("put_writes")
    }

    /// Stores the buffered writes, and returns when they are durable.
    ///
    /// # Errors
    /// The first error of buffered writes that no call has returned.
    pub fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the checkpoint with the id of the config, or the newest one of the namespace if it has none; `None` if it
    /// is not stored.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn tuple(&self, _config: &Config) -> Result<Option<Tuple>> {
        unsupported("tuple")
    }

    /// Lists checkpoints, the greatest id first.
    ///
    /// # Errors
    /// [`SaverError::Store`], here and from the iterator.
    pub fn list(&self, query: ListQuery) -> Result<Listing> {
        Ok(Listing { _query: query })
    }

    /// Returns for each channel the writes of the ancestors of a checkpoint, back to the nearest one that holds a value
    /// of the channel. The writes of the checkpoint itself are not among them.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn delta_history(&self, _config: &Config, _channels: &[&str]) -> Result<Vec<DeltaHistory>> {
        unsupported("delta_history")
    }

    /// Deletes a thread with everything in it. One that does not exist is passed over.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn delete_thread(&self, _thread: &str) -> Result<()> {
        unsupported("delete_thread")
    }

    /// Copies a thread, with its namespaces, ids and writes, to a thread that does not exist. A source that does not
    /// exist is passed over.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn copy(&self, _source: &str, _target: &str) -> Result<()> {
        unsupported("copy")
    }

    /// Deletes the checkpoints of runs, which their metadata name (`run_id`), with their writes, in all threads.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn delete_for_runs(&self, _runs: &[&str]) -> Result<()> {
        unsupported("delete_for_runs")
    }

    /// Prunes threads. Unknown ones are passed over.
    ///
    /// # Errors
    /// [`SaverError::Unsupported`] for [`PruneStrategy::KeepLatest`] if a thread has delta channels, whose histories
    /// need the ancestors; [`SaverError::Store`].
    pub fn prune(&self, _threads: &[&str], _strategy: PruneStrategy) -> Result<()> {
        unsupported("prune")
    }

    /// Returns the version after another one: 32 digits, a point and a suffix that is always the same.
    pub fn next_version(&self, current: Option<&Version>) -> Version {
        let number = match current {
            None => 0,
            Some(Version::Integer(number)) => *number,
            Some(Version::Float(number)) => *number as i64,
            Some(Version::Text(text)) => text.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0),
        };
        Version::Text(format!("{:032}.0", number.saturating_add(1)))
    }
}

impl PutHandle {
    /// Returns the config of the checkpoint.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether the put is durable or refused.
    pub fn is_settled(&self) -> bool {
        self.handle.is_settled()
    }

    /// Waits until the checkpoint is durable.
    ///
    /// # Errors
    /// As [`Saver::put`].
    pub fn wait(self) -> Result<Config> {
        self.handle.wait()?;
        Ok(self.config)
    }
}

/// Awaits the outcome of [`PutHandle::wait`].
impl Future for PutHandle {
    type Output = Result<Config>;

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(waiting).map(|outcome| Ok(outcome.map(|()| self.config.clone())?))
    }
}

impl Iterator for Listing {
    type Item = Result<Tuple>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(unsupported("list"))
    }
}
