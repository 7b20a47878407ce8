//! Searches over all threads of a store, and the states in which their hits were written.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::carried::CarriedHits;
use super::damaged::is_damage;
use super::folded::FoldedMessages;
use super::snapshot::Snapshot;
use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{Namespace, ThreadId};
use crate::error::Error;
use crate::store::log::LogExt;
use crate::store::search::{SearchCursor, SearchHit, SearchIndex, SearchPage};
use crate::store::{PartialText, SearchOptions, SearchQuery, Store, StoreError, ThreadInfo, ThreadQuery};

impl Store {
    /// Returns the items and values whose text holds every word of a query, such as messages, the newest first: over
    /// all threads, namespaces and branches. The items are those of lists, the entries of maps and the parts of texts,
    /// the values those of other channels ([`SearchQuery`] says what their text is). A word matches within words, and
    /// in any case.
    ///
    /// A message that a compaction carries on under its id is one hit, at the checkpoint that put it first:
    /// [`SearchHit::carried`] says where it was carried. The partial messages at the heads of threads come first, on
    /// the first page ([`SearchHit::partial`]). A message that a compaction has folded is found as any other
    /// ([`SearchHit::folded`]).
    ///
    /// Without an index it reads the items and values that the filters leave, so its time is that of their number:
    /// [`Store::enable_search`] makes one, and [`SearchQuery::thread`] narrows a search.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the text holds no word or more than 1,024 bytes, or if the limit is not from 1 to
    /// 1,000; [`StoreError::Id`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example: the answer that named a hotel
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::SearchQuery;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Chat {
    /// #     #[channel(messages)]
    /// #     messages: Messages,
    /// # }
    /// # fn main() -> Result<()> {
    /// # let store = Store::memory();
    /// let trip = store.thread("trip")?;
    /// trip.update(Chat::update().messages([Message::human("A Gasthof in Bern?")]))?;
    /// trip.update(Chat::update().messages([Message::ai("The Gasthof zum Bären has rooms.")]))?;
    ///
    /// let page = store.search(SearchQuery::new("gasthof bären").role("ai").thread("trip"))?;
    /// let hit = &page.hits[0];
    /// assert_eq!(hit.snippet.marked("*", "*"), "The *Gasthof* zum *Bären* has rooms.");
    /// assert_eq!((&*hit.channel, hit.position, hit.on_head), ("messages", 1, true));
    /// assert_eq!(hit.snapshot(&store)?.state::<Chat>()?.messages.len(), 2);
    ///
    /// trip.set("city", "Bern, near the bears")?;
    /// let page = store.search(SearchQuery::new("bears").channel("city"))?;
    /// assert_eq!(page.hits[0].snippet.marked("*", "*"), "Bern, near the *bears*");
    /// # Ok(())
    /// # }
    /// ```
    pub fn search(&self, query: impl Borrow<SearchQuery>) -> Result<SearchPage, StoreError> {
        self.flush_abandoned();
        let query = query.borrow();
        query.verify()?;
        let mut page = SearchPage::default();
        if query.is_first_page() {
            page.hits = self.partial_hits(query)?;
        }
        if page.hits.len() >= query.page_limit() {
            page.next = Some(SearchCursor::first());
        }
        let (mut rest, mut carried) = (query.clone(), CarriedHits::new(self, query));
        while page.hits.len() < query.page_limit() {
            let found = self.backend().searches()?.search(&rest.clone().limit(query.page_limit() - page.hits.len()))?;
            for hit in found.hits {
                page.hits.extend(carried.merge(hit)?);
            }
            page.next = found.next;
            match &page.next {
                Some(next) => rest = rest.after(next.clone()),
                None => break,
            }
        }
        debug_assert!(page.hits.len() <= query.page_limit(), "the limit holds");
        self.mark_folded(&mut page.hits)?;
        Ok(page)
    }

    /// Marks the messages that are folded at the heads of their threads.
    fn mark_folded(&self, hits: &mut [SearchHit]) -> Result<(), StoreError> {
        let mut lists: HashMap<(ThreadId, Namespace, Arc<str>), Option<FoldedMessages>> = HashMap::new();
        let is_message = |hit: &&mut SearchHit| hit.on_head && hit.role.is_some() && !hit.partial;
        for hit in hits.iter_mut().filter(is_message).filter(|hit| hit.carried.is_none()) {
            let at = &hit.point;
            let folded = match lists.entry((at.thread.clone(), at.namespace.clone(), Arc::clone(&hit.channel))) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let head = self.backend().head(&at.thread, &at.namespace)?.filter(|record| !record.pruned);
                    let folded = match head.map(|record| Snapshot::new(self.clone(), record).folded(&hit.channel)) {
                        // Another value under that name folds nothing.
                        Some(Err(error)) if !is_damage(&error) => return Err(error),
                        found => found.and_then(Result::ok).flatten(),
                    };
                    new.insert(folded)
                }
            };
            hit.folded = folded.as_ref().is_some_and(|folded| folded.holds(hit.position));
        }
        Ok(())
    }

    /// Returns the partial messages at the heads of threads that a query finds, as many as a page has.
    fn partial_hits(&self, query: &SearchQuery) -> Result<Vec<SearchHit>, StoreError> {
        let mut hits = Vec::new();
        let mut add = |info: &ThreadInfo| -> Result<bool, StoreError> {
            let thread = self.thread(info.id().as_str())?;
            for partial in thread.partials().map_err(store_error)? {
                let (message, text) = (&partial.content.message, partial.content.message.text());
                let text = PartialText {
                    channel: &partial.content.channel,
                    role: message.kind(),
                    text: &text,
                    id: message.id.as_deref(),
                    name: message.name.as_deref(),
                    updated: partial.content.updated,
                };
                hits.extend(query.partial_hit(&info.record, text)?);
            }
            Ok(hits.len() < query.page_limit())
        };
        if let Some(id) = query.thread_id() {
            let info = self.backend().thread_info(&crate::base::ThreadId::new(id)?)?;
            info.filter(|info| info.partial.is_some()).map_or(Ok(true), |info| add(&info))?;
        } else {
            let mut listing = ThreadQuery::new().partial().limit(PAGE_ROWS_MAX);
            loop {
                let page = self.backend().list_threads(&listing)?;
                let Some(last) = page.last() else { break };
                let mut goes_on = true;
                for info in &page {
                    goes_on = goes_on && add(info)?;
                }
                if !goes_on {
                    break;
                }
                listing = listing.after(last);
            }
        }
        hits.truncate(query.page_limit());
        Ok(hits)
    }

    /// Indexes the texts that [`Store::search`] reads, and returns when all are indexed. From then on the index follows
    /// the log in the background: a search scans up to 256 new checkpoints, and indexes more of them first. Other
    /// handles write meanwhile: the texts are indexed in short transactions, after a longer one that makes the index.
    ///
    /// A commit to an indexed store writes one more row for each item. An append to a text indexes the appended part,
    /// with the word that the parts before it began. The index has about five times the bytes of the texts that it
    /// holds. Words of one or two letters (of one character in Chinese and Japanese) are searched without it. Deleting
    /// a thread takes longer: its entries are overwritten as well.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the SQLite that is linked has no FTS5, or if the store is encrypted and
    /// [`SearchOptions::unsealed`] does not allow it; [`StoreError::ReadOnly`], [`StoreError::Busy`],
    /// [`StoreError::Write`]; [`StoreError::Corrupt`] for a checkpoint that cannot be indexed.
    pub fn enable_search(&self, options: SearchOptions) -> Result<(), StoreError> {
        self.flush_abandoned();
        self.backend().searches()?.enable(&options)
    }

    /// Removes the index that [`Store::enable_search`] made, if there is one. Searches return the same hits without it.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`], [`StoreError::Busy`], [`StoreError::Write`].
    pub fn disable_search(&self) -> Result<(), StoreError> {
        self.backend().capabilities().searches.map_or(Ok(()), |searches| searches.disable())
    }

    /// Returns the state of the search index; `None` if the store is not indexed.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn search_index(&self) -> Result<Option<SearchIndex>, StoreError> {
        self.backend().capabilities().searches.map_or(Ok(None), |searches| searches.index())
    }
}

/// Returns the error of a store. A partial message that does not hold a message is damage.
fn store_error(error: Error) -> StoreError {
    let damage = |error: Error| StoreError::Corrupt { place: "a partial message".into(), reason: error.to_string() };
    error.into_store().unwrap_or_else(damage)
}

impl SearchHit {
    /// Returns the state at the checkpoint that wrote it.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`] if the thread was deleted meanwhile, or if `store` is another one;
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn snapshot(&self, store: &Store) -> Result<Snapshot, StoreError> {
        let point = &self.point;
        let record = store.backend().checkpoint(point)?;
        let not_found =
            || StoreError::CheckpointNotFound { thread: point.thread.clone(), id: point.checkpoint.to_string() };
        Ok(Snapshot::new(store.clone(), record.ok_or_else(not_found)?))
    }
}
