//! Searches of the texts of channels: queries, hits and pages.
//!
//! A search finds the puts of items, and the values of channels, whose text holds every word of the query, over all
//! threads and branches, the newest first. A word is any run of characters without white space; it matches within words
//! and ignores case, so Chinese and Japanese need no division into words. *Absent:* ranking, stemming, and a syntax:
//! every character of a query is text.
//!
//! Invariants: a hit is decided by the stored text, with or without an index; the order of hits is that of the log.

pub(super) mod entry;
pub(super) mod filter;
mod grams;
mod text;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use entry::{BegunWord, SearchedEntry};
pub(crate) use filter::{HitPlace, NewestHits, Search};
pub(super) use grams::{Grams, push_token};

use super::error::StoreError;
use super::record::{CheckpointRecord, CheckpointRef};
use crate::base::{Timestamp, setters};
use crate::limits::SEARCH_HITS_DEFAULT;

/// A search of the texts of channels, such as messages.
///
/// It finds every put of an item, of an entry of a map and of a part of a text, and every value of a channel, whose
/// text holds all words of the query, also on abandoned branches and where it was edited or deleted later. The text of
/// a message is what it says; the text of any other value are the texts in it, without the names of members and of
/// classes of Python, and of an entry of a map its key and these. A hit is of the thread that wrote it, also if a fork
/// shares it. The first 64 KiB of a text are searched, and channels that only trigger nodes are not.
///
/// A word may cross the parts of a text: it is found in the part in which it ends. All words of a query must be in this
/// part, or in the word that the parts before it began on the same branch.
///
/// # Example: the second page of a search
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
/// let thread = store.thread("numbers")?;
/// for n in 0..5 {
///     thread.update(Chat::update().messages([Message::human(format!("number {n}"))]))?;
/// }
/// let query = SearchQuery::new("NUMBER").limit(2);
/// let first = store.search(&query)?;
/// let second = store.search(&query.after(first.next.expect("three are left")))?;
/// let texts: Vec<&str> = second.hits.iter().map(|hit| &*hit.snippet.text).collect();
/// assert_eq!(texts, ["number 2", "number 1"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    text: String,
    thread: Option<String>,
    role: Option<String>,
    node: Option<String>,
    channel: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    on_head: bool,
    limit: usize,
    after: Option<SearchCursor>,
}

impl SearchQuery {
    /// Searches for items and values whose text holds every word of `text`. White space separates words; at most 1,024
    /// bytes, and at least one word.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            thread: None,
            role: None,
            node: None,
            channel: None,
            since: None,
            until: None,
            on_head: false,
            limit: SEARCH_HITS_DEFAULT,
            after: None,
        }
    }

    setters! {
        /// Finds only items and values of this thread.
        #[must_use]
        pub fn thread(id: impl AsRef<str>) { .thread = Some(id.as_ref().to_owned()) }

        /// Finds only items of this type: of messages `human`, `ai`, `system`, `tool` and so on.
        #[must_use]
        pub fn role(kind: impl Into<String>) { .role = Some(kind.into()) }

        /// Finds only items and values that this node wrote.
        #[must_use]
        pub fn node(name: impl Into<String>) { .node = Some(name.into()) }

        /// Finds only items, or values, of this channel.
        #[must_use]
        pub fn channel(name: impl Into<String>) { .channel = Some(name.into()) }

        /// Finds only hits whose checkpoint was made at this timestamp or later.
        #[must_use]
        pub fn since(at: Timestamp) { .since = Some(at) }

        /// Finds only hits whose checkpoint was made before this timestamp.
        #[must_use]
        pub fn until(before: Timestamp) { .until = Some(before) }
    }

    /// Finds only items that are in their list, map or text at the head of their namespace, and the values there.
    #[must_use]
    pub fn on_head(mut self) -> Self {
        self.on_head = true;
        self
    }

    /// Limits the hits of a page; 20 unless set, from 1 to 1,000.
    #[must_use]
    pub fn limit(mut self, hits: usize) -> Self {
        self.limit = hits;
        self
    }

    /// Returns whether hits must be on the head.
    pub(crate) fn is_on_head(&self) -> bool {
        self.on_head
    }

    /// Returns whether the page is the first one.
    pub(crate) fn is_first_page(&self) -> bool {
        self.after.is_none()
    }

    /// Returns the maximum number of hits of a page.
    pub(crate) fn page_limit(&self) -> usize {
        self.limit
    }

    /// Returns the id of the only thread that is searched.
    pub(crate) fn thread_id(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// Verifies the query.
    pub(crate) fn verify(&self) -> Result<(), StoreError> {
        Search::of(self).map(|_| ())
    }

    /// Returns whether a hit passes the filters of its checkpoint.
    pub(crate) fn fits(&self, hit: &SearchHit) -> Result<bool, StoreError> {
        Ok(Search::of(self)?.passes(hit))
    }

    /// Returns the hit of a partial message at a head; `None` if it does not match or pass the filters.
    pub(crate) fn partial_hit(
        &self,
        head: &CheckpointRecord,
        partial: PartialText<'_>,
    ) -> Result<Option<SearchHit>, StoreError> {
        let search = Search::of(self)?;
        let PartialText { channel, role, text, id, name, updated } = partial;
        let matches = search.words.are_in(text, 0) && search.role.as_deref().is_none_or(|wanted| wanted == role);
        if !matches || !search.reads(channel) {
            return Ok(None);
        }
        let hit = SearchHit {
            point: head.point.clone(),
            seq: head.seq,
            created_at: updated,
            channel: channel.into(),
            position: 0,
            key: None,
            role: Some(role.to_owned()),
            id: id.map(ToOwned::to_owned),
            name: name.map(ToOwned::to_owned),
            node: None,
            on_head: true,
            carried: None,
            folded: false,
            partial: true,
            snippet: search.words.snippet(text),
        };
        Ok(search.passes(&hit).then_some(hit))
    }

    /// Continues after the page that returned this cursor. Hits of later commits come before it, so no hit is shown
    /// twice.
    #[must_use]
    pub fn after(mut self, cursor: SearchCursor) -> Self {
        self.after = Some(cursor);
        self
    }
}

/// A partial message, as a search reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialText<'a> {
    pub(crate) channel: &'a str,
    pub(crate) role: &'a str,
    pub(crate) text: &'a str,
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) updated: Timestamp,
}

/// How to index the texts of a store.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals::store::{SearchOptions, SearchQuery};
///
/// # fn main() -> Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let store = Store::open(folder.path().join("notes.db"))?;
/// assert!(store.search(SearchQuery::new("Gasthof"))?.hits.is_empty(), "a search needs no index");
/// assert_eq!(store.search_index()?, None);
/// store.enable_search(SearchOptions::new())?;
/// assert_eq!(store.search_index()?.map(|index| index.behind), Some(0));
/// store.disable_search()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    pub(super) unsealed: bool,
}

impl SearchOptions {
    /// Indexes the texts of all channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows an index of an encrypted store. The index is not sealed: hashes of groups of two or three characters tell
    /// much of the texts to a reader of the file.
    #[must_use]
    pub fn unsealed(mut self) -> Self {
        self.unsealed = true;
        self
    }
}

/// The state of the search index of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchIndex {
    /// The checkpoints at the end of the log that are not indexed yet, with those of the log that were deleted among
    /// them: a search scans them.
    pub behind: u64,
}

impl SearchIndex {
    /// Describes an index that has not indexed so many checkpoints.
    pub fn new(behind: u64) -> Self {
        Self { behind }
    }
}

/// A page of hits, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SearchPage {
    /// The hits: by checkpoint in the order of the log, then by channel and position, each descending.
    pub hits: Vec<SearchHit>,
    /// The place at which the next page begins; `None` if this one is the last.
    pub next: Option<SearchCursor>,
}

/// An item, or a value, whose text holds every word of a query.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SearchHit {
    /// The checkpoint that put it.
    pub point: CheckpointRef,
    /// The position of the checkpoint in the log of the file.
    pub seq: u64,
    /// The timestamp of the checkpoint.
    pub created_at: Timestamp,
    /// The channel.
    pub channel: Arc<str>,
    /// The position of the item in its list, or the number of the part of a text, from 0; 0 for an entry of a map and
    /// for the value of a channel.
    pub position: u64,
    /// The key of an entry of a map.
    pub key: Option<String>,
    /// The type of the item.
    pub role: Option<String>,
    /// The id of the item.
    pub id: Option<String>,
    /// The name of the author.
    pub name: Option<String>,
    /// The node that wrote it; `None` for the input of a run and for an update.
    pub node: Option<Arc<str>>,
    /// True if it is in its channel at the head of its namespace: it was not edited or deleted, and its branch was not
    /// abandoned. A message that a compaction carried on is there as well.
    pub on_head: bool,
    /// The checkpoint that put the message at the place which it has at the head, if a compaction carried it there
    /// under its id; `None` for a backend, whose hits [`Store::search`](crate::store::Store::search) merges.
    pub carried: Option<CheckpointRef>,
    /// True if a compaction has folded the message at the head; `false` for a backend, whose hits
    /// [`Store::search`](crate::store::Store::search) marks.
    pub folded: bool,
    /// True for a partial message at the head of a thread: it is in no list yet, and `point` is the head.
    pub partial: bool,
    /// The text around the first match.
    pub snippet: Snippet,
}

impl SearchHit {
    /// Makes the hit of an entry of a checkpoint. `node` wrote it, and `on_head` says whether the channel still holds
    /// it at the head of the namespace.
    pub fn of(
        record: &CheckpointRecord,
        channel: &Arc<str>,
        entry: &SearchedEntry<'_>,
        (node, on_head): (Option<Arc<str>>, bool),
        snippet: Snippet,
    ) -> Self {
        let text = |column: Option<&str>| column.map(str::to_owned);
        Self {
            point: record.point.clone(),
            seq: record.seq,
            created_at: record.created_at,
            channel: Arc::clone(channel),
            position: entry.shown_position(),
            key: entry.key(),
            role: text(entry.index.kind),
            id: text(entry.index.id),
            name: text(entry.index.name),
            node,
            on_head,
            carried: None,
            folded: false,
            partial: false,
            snippet,
        }
    }
}

/// A part of a text with the places of its matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snippet {
    /// The part of the text.
    pub text: String,
    /// The matches: ranges of bytes of `text`, ascending, none of which touches another one.
    pub matches: Vec<Range<usize>>,
    /// True if the text has a beginning that the snippet leaves out.
    pub more_before: bool,
    /// True if the text has an end that the snippet leaves out.
    pub more_after: bool,
}

impl Snippet {
    /// Returns the text with marks around each match.
    ///
    /// # Example
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
    /// store.thread("trip")?.update(Chat::update().messages([Message::ai("東京のホテル")]))?;
    /// let hits = store.search(&SearchQuery::new("ホテル"))?.hits;
    /// assert_eq!(hits[0].snippet.marked("<b>", "</b>"), "東京の<b>ホテル</b>");
    /// # Ok(())
    /// # }
    /// ```
    pub fn marked(&self, before: &str, after: &str) -> String {
        let (mut marked, mut done) = (String::new(), 0);
        for range in &self.matches {
            // The fields are public, so a range may be that of another text.
            let parts = self.text.get(done..range.start).zip(self.text.get(range.clone()));
            let Some((between, found)) = parts else { continue };
            marked.extend([between, before, found, after]);
            done = range.end;
        }
        marked.push_str(self.text.get(done..).unwrap_or_default());
        marked
    }
}

/// The place of a hit in the order of a search. As text, it can be stored in an address and parsed again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SearchCursor(HitPlace);

impl SearchCursor {
    /// Returns the place before all hits of the log.
    pub(crate) fn first() -> Self {
        Self(HitPlace { seq: u64::MAX, channel: "".into(), position: u64::MAX })
    }
}

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0.seq, self.0.position, self.0.channel)
    }
}

impl FromStr for SearchCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '.');
        let numbers = parts.next().and_then(|seq| seq.parse().ok()).zip(parts.next().and_then(|at| at.parse().ok()));
        match (numbers, parts.next()) {
            (Some((seq, position)), Some(channel)) => Ok(Self(HitPlace { seq, channel: channel.into(), position })),
            _ => Err(format!("{text:?} is not a cursor of a search (two numbers and a channel, joined by dots)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_it_is_shown() {
        for channel in ["messages", "", "a.b", "日本"] {
            let cursor = SearchCursor(HitPlace { seq: 7, channel: channel.into(), position: u64::MAX });
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "7", "7.1", "x.1.c", "7.-1.c", "99999999999999999999.1.c"] {
            assert!(text.parse::<SearchCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn marks_of_ranges_of_another_text_are_left_out() {
        let mut snippet = Snippet { text: "aé".into(), matches: vec![0..1, 2..3, 9..10], ..Snippet::default() };
        assert_eq!(snippet.marked("[", "]"), "[a]é");
        snippet.matches = vec![1..3, 0..1];
        assert_eq!(snippet.marked("[", "]"), "a[é]");
    }
}
