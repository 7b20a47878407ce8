//! The handle of a saver, and of a put.
//!
//! *Absent:* the reads and the maintenance, which are in modules of their own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annals::store::log::CommitHandle;
use annals::store::{Store, StoreError};
use annals_base::ThreadId;

use crate::inner::SaverInner;
use crate::place::{SaverPlace, thread_id};
use crate::put::TakenWrites;
use crate::writes::TaskWrites;
use crate::{Config, LostRace, Result, SaverCheckpoint, SaverError, SaverVersion, SaverWrite, Typed, version};

/// The operations of LangGraph's `BaseCheckpointSaver` on a store. Cheap to clone; all clones share caches and
/// buffered writes, which the last one stores when it is dropped.
#[derive(Clone)]
pub struct Saver(Arc<LastHandle>);

/// Stores what is buffered when the last handle is dropped, also if the thread that flushes has begun to.
struct LastHandle(Arc<SaverInner>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A put that was submitted. Await it, or wait for it: a put that lost a race is repeated then, or refused. If the
/// handle is dropped, the saver does so, and the next call on the thread returns the error of a put that was refused.
#[must_use = "the error of a put that is not waited for comes from a later call"]
pub struct PutHandle {
    saver: Saver,
    handle: CommitHandle,
    config: Config,
    /// The put, to be repeated if the log has moved on meanwhile.
    put: Option<Box<SubmittedPut>>,
}

/// A put whose commit was submitted.
pub(crate) struct SubmittedPut {
    parent: Config,
    new: SaverCheckpoint,
    on_conflict: LostRace,
    taken: TakenWrites,
}

impl Saver {
    /// Makes a saver on a store.
    pub fn new(store: Store) -> Self {
        Self(Arc::new(LastHandle(Arc::new(SaverInner::new(store)))))
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.inner().store
    }

    pub(crate) fn inner(&self) -> &Arc<SaverInner> {
        &self.0.0
    }

    /// Stores a checkpoint under its id and returns its config when it is durable. The `checkpoint` of `parent` is the
    /// parent, which need not be stored. A checkpoint that is stored under the id is replaced, and its writes are
    /// retained.
    ///
    /// # Errors
    /// [`SaverError::Conflict`] if the parent was handed out as the newest checkpoint and is not the head any more;
    /// [`SaverError::Invalid`]; [`SaverError::Store`]; the error of an earlier call on the thread whose caller did not
    /// wait for the outcome.
    pub fn put(&self, parent: &Config, new: SaverCheckpoint, on_conflict: LostRace) -> Result<Config> {
        self.inner().earlier_error(&thread_id(&parent.thread)?)?;
        self.inner().put(parent, &new, on_conflict, true)?;
        Ok(parent.at(new.id))
    }

    /// Stores a checkpoint as [`Saver::put`], without waiting for the disk. The next put can build on it at once.
    ///
    /// # Errors
    /// As [`Saver::put`]; those of the commit come from the handle.
    pub fn submit_put(&self, parent: &Config, new: SaverCheckpoint, on_conflict: LostRace) -> Result<PutHandle> {
        self.inner().earlier_error(&thread_id(&parent.thread)?)?;
        let (handle, taken) = self.inner().put(parent, &new, on_conflict, false)?;
        let config = parent.at(new.id.clone());
        let put = SubmittedPut { parent: parent.clone(), new, on_conflict, taken };
        Ok(PutHandle { saver: self.clone(), handle, config, put: Some(Box::new(put)) })
    }

    /// Stores writes of a task of a checkpoint, each a channel with a value. Regular writes that are stored stay,
    /// those to special channels (`__error__`, `__scheduled__`, `__interrupt__`, `__resume__`) are replaced. The
    /// checkpoint need not be stored yet.
    ///
    /// The writes are buffered for some milliseconds at most, so that the put of the next checkpoint takes them along;
    /// every read through this saver sees them.
    ///
    /// # Errors
    /// [`SaverError::Invalid`]; an error of earlier writes of the thread.
    pub fn put_writes(&self, config: &Config, task: &str, path: &str, writes: Vec<(String, Typed)>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let (place, checkpoint) = place_of_writes(config)?;
        self.inner().buffer(place.thread, TaskWrites::new(&config.namespace, checkpoint, task, path, writes)?)
    }

    /// Stores writes under the indexes that they had in another saver, as [`Saver::put_writes`].
    ///
    /// # Errors
    /// As [`Saver::put_writes`].
    pub fn put_indexed_writes(&self, config: &Config, writes: Vec<SaverWrite>) -> Result<()> {
        let (place, checkpoint) = place_of_writes(config)?;
        for SaverWrite { task, path, index, channel, value } in writes {
            let write = TaskWrites::indexed(&config.namespace, checkpoint, &task, &path, [(index, channel, value)])?;
            self.inner().buffer(place.thread.clone(), write)?;
        }
        Ok(())
    }

    /// Stores the buffered writes, and returns when they are durable.
    ///
    /// # Errors
    /// An error of buffered writes that no call has returned.
    pub fn flush(&self) -> Result<()> {
        self.inner().flush(None)
    }

    /// Returns the version after another one: 32 digits, a point and a suffix that is always the same.
    ///
    /// # Example
    /// ```
    /// use annals::store::Store;
    /// use annals_langgraph::{Saver, SaverVersion};
    ///
    /// let saver = Saver::new(Store::memory());
    /// let first = saver.next_version(None);
    /// assert_eq!(first, SaverVersion::Text("00000000000000000000000000000001.0".into()));
    /// assert_eq!(saver.next_version(Some(&first)), saver.next_version(Some(&SaverVersion::Integer(1))));
    /// ```
    pub fn next_version(&self, current: Option<&SaverVersion>) -> SaverVersion {
        version::next(current)
    }
}

fn place_of_writes(config: &Config) -> Result<(SaverPlace, &str)> {
    let place = SaverPlace::new(&config.thread, &config.namespace)?;
    match config.checkpoint() {
        Some(checkpoint) => Ok((place, checkpoint)),
        None => Err(SaverError::invalid("checkpoint_id", "writes need the checkpoint of their task")),
    }
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("store", self.store()).finish_non_exhaustive()
    }
}

impl PutHandle {
    /// Returns the config of the checkpoint.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether the commit was written or refused.
    pub fn is_settled(&self) -> bool {
        self.handle.is_settled()
    }

    /// Waits until the checkpoint is durable.
    ///
    /// # Errors
    /// As [`Saver::put`].
    pub fn wait(mut self) -> Result<Config> {
        let outcome = self.handle.wait();
        self.end(outcome)
    }

    fn end(&mut self, outcome: Result<(), StoreError>) -> Result<Config> {
        match self.put.take() {
            Some(put) => self.saver.inner().end_put(*put, outcome)?,
            None => outcome?,
        }
        Ok(self.config.clone())
    }
}

impl Drop for PutHandle {
    fn drop(&mut self) {
        if let Some(put) = self.put.take() {
            self.saver.inner().abandon(self.handle.clone(), put);
        }
    }
}

impl SaverInner {
    /// Ends a put whose commit has an outcome: repeats it if the commit was refused because the log had moved on.
    pub(crate) fn end_put(&self, put: SubmittedPut, outcome: Result<(), StoreError>) -> Result<()> {
        let SubmittedPut { parent, new, on_conflict, taken } = put;
        match outcome {
            Ok(()) if !self.were_overtaken(&parent, &taken)? => return Ok(()),
            Ok(()) => {}
            Err(error) => {
                let place = SaverPlace::new(&parent.thread, &parent.namespace)?;
                self.forget_put(&place, &new.id);
                self.put_back(&place.thread, taken.writes);
                let has_moved_on = matches!(
                    error,
                    StoreError::Conflict { .. } | StoreError::StaleId { .. } | StoreError::Duplicate { .. }
                );
                if !has_moved_on {
                    return Err(error.into());
                }
            }
        }
        self.put(&parent, &new, on_conflict, true)?;
        Ok(())
    }
}

impl SubmittedPut {
    /// Returns the thread of the put.
    pub(crate) fn thread(&self) -> Result<ThreadId> {
        thread_id(&self.parent.thread)
    }
}

/// Awaits the outcome of [`PutHandle::wait`].
impl Future for PutHandle {
    type Output = Result<Config>;

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.handle).poll(waiting) {
            Poll::Ready(outcome) => Poll::Ready(self.end(outcome)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for PutHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutHandle").field("config", &self.config).field("handle", &self.handle).finish_non_exhaustive()
    }
}
