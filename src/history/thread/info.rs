//! Threads as a list shows them, and the threads that were forked from one.
//!
//! *Absent:* the changes of facts ([`facts`](super::facts)), and the rules of the status
//! ([`WriteMark`](crate::store::WriteMark)).

use crate::base::ThreadId;
use crate::limits::WORKER_PAGE_ROWS;
use crate::store::log::{FileStore, LogExt, LogReads};
use crate::store::{CheckpointRef, Store, StoreError, ThreadInfo, ThreadQuery};

use super::Thread;

impl Store {
    /// Lists threads with their facts and their status, the one with the newest activity first. The cost is that of the
    /// page, however many threads there are, with at most one filter on project, label, graph, status or pin; the
    /// threads that other filters pass over are read too.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::ThreadQuery;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for (name, project) in [("bern", "travel"), ("tax", "home"), ("basel", "travel")] {
    ///     let thread = store.thread(name)?;
    ///     thread.append("messages", [Message::human("hi")])?;
    ///     thread.facts().title(name.to_uppercase()).project(project).save()?;
    /// }
    /// let query = ThreadQuery::new().project("travel");
    /// let listed = store.threads_with(query.clone())?;
    /// let titles: Vec<_> = listed.iter().map(|thread| (thread.title(), thread.status.as_str())).collect();
    /// assert_eq!(titles, [(Some("BASEL"), "done"), (Some("BERN"), "done")]);
    /// assert_eq!(store.threads_with(query.after(&listed[0]))?.len(), 1, "the next page");
    /// # Ok(())
    /// # }
    /// ```
    pub fn threads_with(&self, query: ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        self.flush_abandoned();
        self.backend().list_threads(&query)
    }

    /// Calls a function for each thread of a query, page by page, and returns how often it returned true. Without
    /// [`ThreadQuery::limit`] all threads of the query are visited, each once; the function may change them.
    ///
    /// # Errors
    /// Those of the function, which end the visit; as [`Store::threads_with`].
    ///
    /// # Example
    /// ```
    /// use annals::history::ThreadQuery;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for name in ["bern", "basel"] {
    ///     let thread = store.thread(name)?;
    ///     thread.append("messages", [Message::human("hi")])?;
    ///     thread.facts().label("old").save()?;
    /// }
    /// let pinned = store.for_each_thread(ThreadQuery::new().label("old"), |thread| thread.facts().pinned(true).save().map(|()| true))?;
    /// assert_eq!(pinned, 2);
    /// assert!(store.thread("bern")?.info()?.facts.is_pinned);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_each_thread(
        &self,
        query: ThreadQuery,
        mut act: impl FnMut(&Thread) -> Result<bool, StoreError>,
    ) -> Result<u64, StoreError> {
        let (mut left, mut acted) = (query.limit.unwrap_or(usize::MAX), 0);
        let mut query = query;
        while left > 0 {
            query = query.limit(left.min(WORKER_PAGE_ROWS));
            let page = self.threads_with(query.clone())?;
            let Some(last) = page.last() else { break };
            for info in &page {
                acted += u64::from(act(&self.thread(info.id())?)?);
            }
            left -= page.len().min(left);
            query = query.after(last);
        }
        Ok(acted)
    }

    /// Makes the table anew by which threads are listed, in steps of some milliseconds. It follows the log, and
    /// [`Store::check`] says if it does not.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`].
    pub fn rebuild_threads(&self) -> Result<(), StoreError> {
        self.flush_abandoned();
        self.backend().capabilities().file.map_or(Ok(()), FileStore::rebuild_threads)
    }
}

impl Thread {
    /// Returns the thread as a list shows it.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn info(&self) -> Result<ThreadInfo, StoreError> {
        self.store().flush_abandoned();
        let info = self.store().backend().thread_info(self.id())?;
        info.ok_or_else(|| StoreError::ThreadNotFound { id: self.id().clone() })
    }

    /// Returns the threads that were forked from this one, the first fork first.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let trip = Store::memory().thread("trip")?;
    /// let first = trip.at(trip.append("messages", [Message::human("hi")])?)?;
    /// let fork = first.fork_to("trip by train")?;
    /// assert_eq!(trip.forks()?, [fork.id().clone()]);
    /// assert_eq!(fork.forked_from()?.as_ref(), Some(first.point()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn forks(&self) -> Result<Vec<ThreadId>, StoreError> {
        self.store().flush_abandoned();
        self.store().backend().forks(self.id())
    }

    /// Returns the checkpoint of another thread from which this one was forked; `None` if it began with nothing, or
    /// does not exist.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn forked_from(&self) -> Result<Option<CheckpointRef>, StoreError> {
        self.store().flush_abandoned();
        self.store().backend().forked_from(self.id())
    }
}
