//! Listings of checkpoints, the greatest id first.
//!
//! Invariants: nothing is locked and no transaction is open between two tuples; a listing of all threads reads the
//! records of the log before the first tuple. *Absent:* an index of the metadata; a filter reads the records, and the
//! states of those that it finds.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use annals::store::CheckpointRef;
use annals::store::log::{CheckpointQuery, LogExt, LogPosition};
use annals::store::record::CheckpointRecord;
use annals_base::limits::{HISTORY_PAGE_ROWS, PAGE_ROWS_MAX};
use annals_base::{CheckpointId, Map, Namespace, ThreadId, Value};

use crate::aside::{Aside, AsideIndex};
use crate::inner::FoundPlace;
use crate::notes::{Notes, plain_id};
use crate::place::{SaverPlace, is_aside, thread_id, thread_text};
use crate::state::LoadedCheckpoint;
use crate::{Config, ListQuery, Result, Saver, Tuple};

/// The tuples of a listing, read page by page. Nothing is locked between two of them; what is stored meanwhile may be
/// missing.
#[derive(Debug)]
pub struct Listing {
    saver: Saver,
    query: ListQuery,
    threads: Vec<ThreadSource>,
    left: usize,
    is_empty: bool,
    /// The checkpoint that was read last; its parent, which mostly comes next, shares its items.
    last: Option<LoadedCheckpoint>,
}

/// The checkpoints of a thread.
#[derive(Debug)]
struct ThreadSource {
    thread: ThreadId,
    index: Arc<AsideIndex>,
    namespace: Option<Namespace>,
    before: Option<CheckpointId>,
    page: VecDeque<CheckpointRecord>,
    /// Records of the next page.
    page_rows: usize,
    is_read: bool,
    /// The checkpoints that are stored aside, the least id first: namespace and id.
    aside: Vec<(String, String)>,
}

/// A checkpoint that comes next.
struct Candidate {
    namespace: String,
    id: String,
    at: CheckpointRef,
}

impl Saver {
    /// Lists checkpoints, the greatest id first, over all namespaces and threads of the query.
    ///
    /// # Errors
    /// [`SaverError::Store`](crate::SaverError::Store), here and from the iterator; an error of earlier writes.
    pub fn list(&self, query: ListQuery) -> Result<Listing> {
        let inner = self.inner();
        let threads: Vec<ThreadId> = match &query.thread {
            Some(thread) => vec![thread_id(thread)?],
            None => {
                inner.flush(None)?;
                inner.settle(None);
                self.threads()?
            }
        };
        // Of many threads most have no checkpoint among the first ones.
        let page_rows = if threads.len() > 1 { 2 } else { HISTORY_PAGE_ROWS };
        let mut sources = Vec::new();
        for thread in threads {
            let place = SaverPlace::new(&thread_text(&thread), query.namespace.as_deref().unwrap_or_default())?;
            inner.catch_up(&place)?;
            let index = inner.index(&thread)?;
            let is_wanted = |namespace: &str, id: &str| {
                query.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
                    && query.before.as_deref().is_none_or(|before| id < before)
            };
            let stored = index.stored().filter(|(namespace, id)| is_wanted(namespace, id));
            let mut aside: Vec<_> = stored.map(|(namespace, id)| (namespace.to_owned(), id.to_owned())).collect();
            aside.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
            sources.push(ThreadSource {
                thread,
                index,
                namespace: query.namespace.as_ref().map(|_| place.namespace),
                before: query.before.as_deref().and_then(plain_id),
                page: VecDeque::new(),
                page_rows,
                is_read: false,
                aside,
            });
        }
        let left = query.limit.unwrap_or(usize::MAX);
        Ok(Listing { saver: self.clone(), query, threads: sources, left, is_empty: true, last: None })
    }

    /// Returns the namespace and the id of each checkpoint of a thread.
    pub(crate) fn ids(&self, thread: &str) -> Result<HashSet<(String, String)>> {
        let mut listing = self.list(ListQuery::of_thread(thread))?;
        let mut ids = HashSet::new();
        while let Some(candidate) = listing.candidate()? {
            ids.insert((candidate.namespace, candidate.id));
        }
        Ok(ids)
    }

    /// Returns the threads that have a checkpoint, also those without one in the root namespace: the log is followed.
    pub(crate) fn threads(&self) -> Result<Vec<ThreadId>> {
        let (mut threads, mut position) = (BTreeSet::new(), LogPosition::START);
        loop {
            let page = self.inner().backend().follow()?.changes_after(&position, None, PAGE_ROWS_MAX)?;
            if page.records.is_empty() {
                return Ok(threads.into_iter().collect());
            }
            position = page.position;
            threads.extend(page.records.into_iter().map(|(_, record)| record.point.thread));
        }
    }
}

impl ThreadSource {
    /// Reads records until one is next that is listed under its own id.
    fn fill(&mut self, saver: &Saver) -> Result<()> {
        loop {
            while let Some(record) = self.page.front() {
                let namespace = record.point.namespace.as_str();
                let id = record.point.checkpoint.to_string();
                let is_listed = matches!(self.index.find(namespace, &id), Aside::Nowhere | Aside::Awaited);
                if !is_aside(namespace) && (self.index.is_empty() || is_listed) {
                    return Ok(());
                }
                self.page.pop_front();
            }
            if self.is_read {
                return Ok(());
            }
            let root = Namespace::root();
            let mut query = CheckpointQuery::new(self.thread.clone(), self.namespace.clone().unwrap_or(root));
            query.namespace.clone_from(&self.namespace);
            (query.before, query.limit) = (self.before, self.page_rows);
            let mut page = saver.inner().backend().checkpoints(&query)?;
            self.is_read = page.len() < self.page_rows;
            self.page_rows = HISTORY_PAGE_ROWS;
            if let Some(last) = page.last().filter(|_| !self.is_read && self.namespace.is_none()) {
                // Namespaces may have equal ids, and a page may end between them: they all come with the next one.
                let last = last.point.checkpoint;
                match page.iter().position(|record| record.point.checkpoint == last) {
                    Some(0) if query.limit < PAGE_ROWS_MAX => {
                        self.page_rows = (query.limit * 2).min(PAGE_ROWS_MAX);
                        continue;
                    }
                    Some(first) if first > 0 => page.truncate(first),
                    _ => {}
                }
            }
            if let Some(last) = page.last() {
                self.before = Some(last.point.checkpoint);
            }
            self.page.extend(page);
        }
    }

    /// Returns the next checkpoint, and whether it is one that is stored aside.
    fn peek(&self) -> Option<(&str, String, bool)> {
        let of_log = self
            .page
            .front()
            .map(|record| (record.point.namespace.as_str(), record.point.checkpoint.to_string(), false));
        let aside = self.aside.last().map(|(namespace, id)| (&**namespace, id.clone(), true));
        match (of_log, aside) {
            (Some(a), Some(b)) => Some(if order(&a, &b) == Ordering::Less { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

fn order(a: &(&str, String, bool), b: &(&str, String, bool)) -> Ordering {
    (&a.1, a.0).cmp(&(&b.1, b.0))
}

impl Listing {
    /// Returns the next checkpoint in the order of ids.
    fn candidate(&mut self) -> Result<Option<Candidate>> {
        let mut best: Option<(usize, (&str, String, bool))> = None;
        for source in &mut self.threads {
            source.fill(&self.saver)?;
        }
        for (at, source) in self.threads.iter().enumerate() {
            if let Some(next) = source.peek()
                && best.as_ref().is_none_or(|(_, best)| order(&next, best) == Ordering::Greater)
            {
                best = Some((at, next));
            }
        }
        let Some((at, (namespace, id, is_aside))) = best else { return Ok(None) };
        let namespace = namespace.to_owned();
        let source = &mut self.threads[at];
        if !is_aside {
            let record = source.page.pop_front();
            return Ok(record.map(|record| Candidate { namespace, id, at: record.point }));
        }
        source.aside.pop();
        let place = SaverPlace { thread: source.thread.clone(), namespace: Namespace::new(&namespace)? };
        let index = Arc::clone(&source.index);
        match self.saver.inner().find(&place, &index, &id)? {
            FoundPlace::At(at) => Ok(Some(Candidate { namespace, id, at })),
            FoundPlace::Nowhere | FoundPlace::Deleted => self.candidate(),
        }
    }

    /// Returns the id and the place of the next checkpoint.
    pub(crate) fn next_place(&mut self) -> Result<Option<(String, CheckpointRef)>> {
        Ok(self.candidate()?.map(|candidate| (candidate.id, candidate.at)))
    }

    /// Returns the place of the tuple that came last.
    pub(crate) fn last_place(&self) -> Option<&CheckpointRef> {
        self.last.as_ref().map(|loaded| &loaded.record.point)
    }

    fn next_tuple(&mut self) -> Result<Option<Tuple>> {
        while self.left > 0 {
            let Some(Candidate { namespace, id, at }) = self.candidate()? else { break };
            let is_wanted = |wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == id);
            let is_before = self.query.before.as_deref().is_none_or(|before| *id < *before);
            if !is_wanted(&self.query.checkpoint) || !is_before {
                continue;
            }
            let inner = self.saver.inner();
            if !self.query.filter.is_empty() {
                let Some(record) = inner.backend().checkpoint(&at)?.filter(|record| !record.pruned) else { continue };
                if !matches(&self.query.filter, &Notes::read(&record, Vec::new)?.metadata) {
                    continue;
                }
            }
            let Some(loaded) = inner.load_beside(&at, self.last.as_ref())? else { continue };
            self.last = Some(loaded.clone());
            let notes = Notes::read(&loaded.record, || loaded.updated.clone())?;
            let index = inner.index(&at.thread)?;
            let config = Config::new(thread_text(&at.thread), namespace).at(id);
            self.left -= 1;
            self.is_empty = false;
            return inner.tuple(config, &index, notes, loaded).map(Some);
        }
        if self.is_empty && self.left > 0 {
            self.note_empty()?;
        }
        self.left = 0;
        Ok(None)
    }

    /// Notes a namespace without a checkpoint before some id as asked for: a put without a parent goes back to there.
    fn note_empty(&self) -> Result<()> {
        if let (Some(thread), Some(namespace)) = (&self.query.thread, &self.query.namespace) {
            self.saver.inner().asked_for(&SaverPlace::new(thread, namespace)?, None);
        }
        Ok(())
    }
}

impl Iterator for Listing {
    type Item = Result<Tuple>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_tuple().transpose();
        if matches!(next, Some(Err(_))) {
            self.left = 0;
        }
        next
    }
}

/// Returns whether metadata have the members of a filter.
fn matches(filter: &Map, metadata: &Map) -> bool {
    filter.iter().all(|(name, wanted)| is_equal(wanted, metadata.get(name).unwrap_or(&Value::Null)))
}

/// Compares values as Python does: numbers and truth values by their number, objects in any order of their members.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (Value::Float(a), b) | (b, Value::Float(a)) => match (whole(b), b) {
            (Some(b), _) => *a == b as f64,
            (None, Value::Float(b)) => a == b,
            _ => false,
        },
        (a, b) => match (whole(a), whole(b)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a == b,
            _ => false,
        },
    }
}

/// Returns the integer that a value is to Python.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(truth) => Some((*truth).into()),
        Value::Int(number) => Some((*number).into()),
        Value::UInt(number) => Some((*number).into()),
        _ => None,
    }
}
