//! The operations of all threads of a store: the runs and updates of each thread, merged with the stored operations.
//!
//! A thread is opened when the walk comes to its newest checkpoint, which the listing of threads gives in the order of
//! the log. So the first page costs as much as the threads in it, however many threads there are. *Absent:* undo, which
//! is an affair of a thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::base::limits::HISTORY_PAGE_ROWS;
use crate::store::log::LogExt;
use crate::store::operation::{OperationQuery, OperationRecord};
use crate::store::{Store, StoreError, ThreadInfo, ThreadQuery};

use super::operation::{CommitGroup, Operation, Operations};

/// The operations of a store, newest first, read page by page.
#[derive(Debug)]
struct StoreOperations {
    store: Store,
    stored: VecDeque<OperationRecord>,
    older_stored: Option<OperationQuery>,
    /// The threads that are archived or not, and in the trash or not.
    listings: [ThreadListing; 4],
    /// The next run or update of each opened thread, by its position in the log.
    opened: BTreeMap<u64, (CommitGroup, Operations)>,
}

/// Threads by their last activity, of which some are opened.
#[derive(Debug)]
struct ThreadListing {
    page: VecDeque<ThreadInfo>,
    rest: Option<ThreadQuery>,
}

impl ThreadListing {
    fn new(archived: bool, trashed: bool) -> Self {
        let rest = ThreadQuery::new().archived(archived).trashed(trashed).limit(HISTORY_PAGE_ROWS);
        Self { page: VecDeque::new(), rest: Some(rest) }
    }

    /// Returns the position of the newest checkpoint of the next thread.
    fn next_seq(&mut self, store: &Store) -> Result<Option<u64>, StoreError> {
        if self.page.is_empty()
            && let Some(query) = self.rest.take()
        {
            self.page = store.backend().list_threads(&query)?.into();
            self.rest = self.page.back().map(|last| query.after(last));
        }
        Ok(self.page.front().map(|info| info.seq))
    }
}

/// Returns the next run or update of a thread.
fn next_group(operations: &mut Operations) -> Result<Option<CommitGroup>, StoreError> {
    for operation in operations {
        if let Operation::Commits(group) = operation? {
            return Ok(Some(group));
        }
    }
    Ok(None)
}

impl StoreOperations {
    fn read(&mut self) -> Result<Option<Operation>, StoreError> {
        self.open_threads()?;
        if self.stored.is_empty()
            && let Some(query) = &mut self.older_stored
        {
            self.stored = self.store.backend().operations(query)?.into();
            match self.stored.back() {
                Some(last) => query.before = Some(last.id),
                None => self.older_stored = None,
            }
        }
        let newest = self.opened.last_key_value().map(|(seq, _)| *seq);
        match (self.stored.front(), newest) {
            (Some(stored), newest) if newest.is_none_or(|newest| stored.seq >= newest) => {
                Ok(self.stored.pop_front().map(Operation::Stored))
            }
            _ => {
                let Some((_, (group, rest))) = self.opened.pop_last() else { return Ok(None) };
                self.open(rest)?;
                Ok(Some(Operation::Commits(group)))
            }
        }
    }

    /// Opens the threads whose newest checkpoint is newer than every run or update that was read.
    fn open_threads(&mut self) -> Result<(), StoreError> {
        loop {
            let mut next: Option<(u64, usize)> = None;
            for (at, listing) in self.listings.iter_mut().enumerate() {
                next = next.max(listing.next_seq(&self.store)?.map(|seq| (seq, at)));
            }
            let newest = self.opened.last_key_value().map(|(seq, _)| *seq);
            let next = next.filter(|(seq, _)| newest.is_none_or(|newest| newest < *seq));
            let Some(info) = next.and_then(|(_, at)| self.listings[at].page.pop_front()) else { return Ok(()) };
            let thread = self.store.thread(info.id())?;
            self.open(Operations::of(&thread))?;
        }
    }

    fn open(&mut self, mut operations: Operations) -> Result<(), StoreError> {
        if let Some(group) = next_group(&mut operations)? {
            debug_assert!(!self.opened.contains_key(&group.seq), "a checkpoint is of one thread");
            self.opened.insert(group.seq, (group, operations));
        }
        Ok(())
    }
}

impl Iterator for StoreOperations {
    type Item = Result<Operation, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read();
        if next.is_err() {
            self.older_stored = None;
            self.stored.clear();
            self.opened.clear();
            self.listings.iter_mut().for_each(|listing| (listing.rest, listing.page) = (None, VecDeque::new()));
        }
        next.transpose()
    }
}

impl Store {
    /// Returns what changed the threads of the store, newest first: runs and updates, moves of heads, names of
    /// branches, facts, undos and redos, each with its timestamp and, if it is stored, its actor. An operation on
    /// several threads comes once.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; each item may fail alike.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for name in ["trip", "diary"] {
    ///     store.thread(name)?.append("messages", [Message::human("hi")])?;
    /// }
    /// store.facts(["trip", "diary"])?.archived(true).save()?;
    /// let operations = store.operations()?.collect::<std::result::Result<Vec<_>, _>>()?;
    /// let shown: Vec<_> = operations.iter().map(|operation| operation.name()).collect();
    /// assert_eq!(shown, ["facts", "update", "update"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn operations(
        &self,
    ) -> Result<impl Iterator<Item = Result<Operation, StoreError>> + fmt::Debug + use<>, StoreError> {
        self.flush_abandoned();
        let kinds = [(false, false), (true, false), (false, true), (true, true)];
        let listings = kinds.map(|(archived, trashed)| ThreadListing::new(archived, trashed));
        let stored = Some(OperationQuery::new(None, HISTORY_PAGE_ROWS));
        let mut operations = StoreOperations {
            store: self.clone(),
            stored: VecDeque::new(),
            older_stored: stored,
            listings,
            opened: BTreeMap::new(),
        };
        operations.open_threads()?;
        Ok(operations)
    }
}
