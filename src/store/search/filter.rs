//! A query that is verified and prepared, and the newest of the hits that it finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::SearchedEntry;
use super::text::Words;
use super::{Grams, SearchCursor, SearchHit, SearchPage, SearchQuery, Snippet};
use crate::base::limits::NAME_BYTES_MAX;
use crate::base::{ThreadId, Timestamp};
use crate::limits::SEARCH_HITS_MAX;
use crate::store::error::StoreError;
use crate::store::record::is_control;

/// The place of a hit in the order of a search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct HitPlace {
    /// The position of the checkpoint in the log.
    pub seq: u64,
    /// The channel.
    pub channel: Arc<str>,
    /// The position at which the item is stored; 0 for a value.
    pub position: u64,
}

impl HitPlace {
    /// Makes the place of an entry of a checkpoint.
    pub fn new(seq: u64, channel: Arc<str>, position: u64) -> Self {
        Self { seq, channel, position }
    }
}

/// A verified query.
#[derive(Debug)]
pub struct Search {
    pub(in crate::store) words: Words,
    pub(in crate::store) thread: Option<ThreadId>,
    pub(in crate::store) role: Option<String>,
    pub(in crate::store) node: Option<String>,
    pub(in crate::store) channel: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    on_head: bool,
    limit: usize,
    after: Option<HitPlace>,
}

impl Search {
    /// Verifies a query.
    pub fn of(query: &SearchQuery) -> Result<Self, StoreError> {
        let invalid = |field, reason: String| Err(StoreError::Invalid { field, reason });
        if !(1..=SEARCH_HITS_MAX).contains(&query.limit) {
            return invalid("limit of a search", format!("{} is not from 1 to {SEARCH_HITS_MAX}", query.limit));
        }
        let names = [
            ("role of a search", &query.role),
            ("node of a search", &query.node),
            ("channel of a search", &query.channel),
        ];
        for (field, name) in names {
            if let Some(name) = name.as_ref().filter(|name| name.len() > NAME_BYTES_MAX) {
                return invalid(field, format!("{} bytes, at most {NAME_BYTES_MAX}", name.len()));
            }
        }
        Ok(Self {
            words: Words::of(&query.text)?,
            thread: query.thread.as_ref().map(ThreadId::new).transpose()?,
            role: query.role.clone(),
            node: query.node.clone(),
            channel: query.channel.clone(),
            since: query.since,
            until: query.until,
            on_head: query.on_head,
            limit: query.limit,
            after: query.after.clone().map(|cursor| cursor.0),
        })
    }

    /// Returns whether a hit at this place comes after the cursor.
    pub fn shows(&self, place: &HitPlace) -> bool {
        self.after.as_ref().is_none_or(|after| place < after)
    }

    /// Returns the place of the cursor.
    pub(crate) fn after(&self) -> Option<&HitPlace> {
        self.after.as_ref()
    }

    /// Returns grams of the words, for an index: all of them are among [`SearchedEntry::grams`] of every entry that
    /// matches. There are none if no word is long enough.
    pub fn grams(&self) -> Vec<u32> {
        Grams::of_words(&self.words).iter().collect()
    }

    /// Returns whether a channel is searched.
    pub fn reads(&self, channel: &str) -> bool {
        self.channel.as_deref().is_none_or(|wanted| wanted == channel) && !is_control(channel)
    }

    /// Returns whether type and text of an entry match.
    pub fn matches(&self, entry: &SearchedEntry<'_>) -> bool {
        let is_of_role = self.role.is_none() || self.role.as_deref() == entry.index.kind;
        is_of_role && self.words.are_in(&entry.text, entry.begun)
    }

    /// Returns the text around the first match.
    pub fn snippet(&self, entry: &SearchedEntry<'_>) -> Snippet {
        self.words.snippet(&entry.text)
    }

    /// Returns whether a hit passes the filters of its checkpoint: thread, time, node, and whether it is on the head.
    pub fn passes(&self, hit: &SearchHit) -> bool {
        self.thread.as_ref().is_none_or(|thread| *thread == hit.point.thread)
            && self.is_at(hit.created_at)
            && (self.node.is_none() || self.node.as_deref() == hit.node.as_deref())
            && (hit.on_head || !self.on_head)
    }

    /// Returns whether a timestamp is in the period.
    pub(crate) fn is_at(&self, created_at: Timestamp) -> bool {
        self.since.is_none_or(|since| created_at >= since) && self.until.is_none_or(|until| created_at < until)
    }
}

/// The newest hits of a search: those of its page, and one more that tells that another page follows.
#[derive(Debug)]
pub struct NewestHits {
    hits: BTreeMap<HitPlace, SearchHit>,
    limit: usize,
}

impl NewestHits {
    /// Begins the page of a search.
    pub fn of(search: &Search) -> Self {
        Self { hits: BTreeMap::new(), limit: search.limit }
    }

    /// Returns whether the page is full.
    pub(crate) fn is_full(&self) -> bool {
        self.hits.len() > self.limit
    }

    /// Returns whether a hit at this place would be shown, or would tell that another page follows.
    pub fn wants(&self, place: &HitPlace) -> bool {
        !self.is_full() || self.hits.first_key_value().is_some_and(|(oldest, _)| oldest < place)
    }

    /// Adds a hit.
    pub fn add(&mut self, place: HitPlace, hit: SearchHit) {
        self.hits.insert(place, hit);
        if self.hits.len() > self.limit + 1 {
            self.hits.pop_first();
        }
    }

    /// Returns the page.
    pub fn page(mut self) -> SearchPage {
        let more = self.is_full();
        if more {
            self.hits.pop_first();
        }
        let next = self.hits.first_key_value().filter(|_| more).map(|(oldest, _)| SearchCursor(oldest.clone()));
        SearchPage { hits: self.hits.into_values().rev().collect(), next }
    }
}
