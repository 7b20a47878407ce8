//! The rows of a thread in `thread_state` and `thread_facet`.
//!
//! A facet is a number that stands for a filter of listings: one for each of status, project, label, graph and pin of
//! the thread, and one for the thread as such. The rows of a facet are in the order of the last activity, so a listing
//! reads a page of them. *Absent:* texts: a thread that a facet gives is compared with its facts.

use super::sql;
use crate::base::internal::hash::{check64, keyed_checksum};
use crate::store::counts::ThreadCounts;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res, corrupt, damage};
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::{Bare, KeyChecked, TableRow, thread_facet, thread_state};
use crate::store::status::StatusKind;
use crate::store::threads::{ThreadInfo, ThreadQuery};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row};

/// The row of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateRow {
    pub(super) thread: i64,
    /// The greatest `seq` of its root namespace; in the row of thread 0 the mark.
    pub(super) newest: i64,
    /// The number of its status; `None` if the rows of the thread are damaged.
    pub(super) status: Option<i64>,
    pub(super) facets: Vec<i64>,
    /// The messages at the newest checkpoint, and the tokens and the costs of all checkpoints up to the mark. `None` if
    /// rows are damaged, or while checkpoints are pruned.
    pub(super) counts: Option<ThreadCounts>,
}

/// A filter of listings.
#[derive(Clone, Copy)]
enum Facet<'f> {
    All,
    Status(StatusKind),
    Project(&'f str),
    Label(&'f str),
    Graph(&'f str),
    Pinned,
    /// The rows of the thread are damaged, whatever its other facets are.
    Damaged,
    /// The head of the thread has a partial message.
    Partial,
    /// The tasks of the thread are due, and its run has this priority in the queue of a graph.
    Queue(&'f str, u8),
}

/// The kind of the facet of a queue with the priority 0. Those of the other priorities follow.
const QUEUE_KIND: u8 = 16;

impl Facet<'_> {
    /// Returns the number among the threads of a place. In an encrypted file the hash has the key of the checksums,
    /// because facts are content.
    fn number(self, keys: &Keys, place: u8) -> i64 {
        let (kind, text) = match self {
            Self::All => (0, ""),
            Self::Status(status) => (1, status.as_str()),
            Self::Project(name) => (2, name),
            Self::Label(name) => (3, name),
            Self::Graph(name) => (4, name),
            Self::Pinned => (5, ""),
            Self::Damaged => (6, ""),
            Self::Partial => (7, ""),
            Self::Queue(name, priority) => (QUEUE_KIND + priority, name),
        };
        let mut bytes = vec![kind, place];
        bytes.extend_from_slice(text.as_bytes());
        match keys.of_checksums() {
            None => check64(&bytes) as i64,
            Some(key) => {
                let [a, b, c, d, e, f, g, h, ..] = keyed_checksum(key, &bytes);
                i64::from_le_bytes([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// The number of places.
const PLACES: u8 = 4;

/// Returns the number of the place of a thread: a listing shows the threads of one place.
fn place(is_archived: bool, is_trashed: bool) -> u8 {
    u8::from(is_archived) + 2 * u8::from(is_trashed)
}

/// Returns the facet by which the threads of a query are read: the one that is likely to have the fewest.
pub(super) fn facet_of(keys: &Keys, query: &ThreadQuery) -> i64 {
    let rare = query.status.filter(|status| *status != StatusKind::Done).map(Facet::Status);
    let facet = match query {
        ThreadQuery { partial: true, .. } => Facet::Partial,
        ThreadQuery { label: Some(label), .. } => Facet::Label(label),
        ThreadQuery { project: Some(project), .. } => Facet::Project(project),
        ThreadQuery { pinned: Some(true), .. } => Facet::Pinned,
        ThreadQuery { graph: Some(graph), .. } => rare.unwrap_or(Facet::Graph(graph)),
        ThreadQuery { status: Some(status), .. } => Facet::Status(*status),
        _ => Facet::All,
    };
    facet.number(keys, place(query.archived, query.trashed))
}

/// Returns the facet of the threads of a queue with a priority, for the places of a query.
pub(super) fn queue_facet(keys: &Keys, query: &ThreadQuery, graph: &str, priority: u8) -> i64 {
    Facet::Queue(graph, priority).number(keys, place(query.archived, query.trashed))
}

/// Returns the facet of the threads whose rows are damaged.
pub(super) fn damaged_facet(keys: &Keys) -> i64 {
    Facet::Damaged.number(keys, place(false, false))
}

impl StateRow {
    /// Describes a thread, `None` if its rows are damaged.
    pub(super) fn of(keys: &Keys, thread: i64, newest: i64, info: Option<&ThreadInfo>) -> Self {
        let Some(info) = info else {
            return Self { thread, newest, status: None, facets: vec![damaged_facet(keys)], counts: None };
        };
        let facts = &info.facts;
        let mut facets = vec![Facet::All, Facet::Status(info.status)];
        facets.extend(facts.project.as_deref().map(Facet::Project));
        facets.extend(facts.labels.iter().map(|label| Facet::Label(label)));
        facets.extend(info.graph.as_deref().map(Facet::Graph));
        facets.extend(facts.is_pinned.then_some(Facet::Pinned));
        facets.extend(info.partial.as_ref().map(|_| Facet::Partial));
        let queue = info.graph.as_deref().filter(|_| info.is_queued());
        facets.extend(queue.map(|graph| Facet::Queue(graph, info.priority)));
        let place = place(facts.is_archived, facts.trashed_until.is_some());
        let mut facets: Vec<i64> = facets.into_iter().map(|facet| facet.number(keys, place)).collect();
        facets.sort_unstable();
        facets.dedup();
        debug_assert!(facets.len() >= 2, "a thread has a status");
        let counts = info.counts;
        Self { thread, newest, status: Some(info.status as i64), facets, counts }
    }

    /// Returns whether the head of the thread has a partial message.
    pub(super) fn is_partial(&self, keys: &Keys) -> bool {
        (0..PLACES).any(|place| self.facets.contains(&Facet::Partial.number(keys, place)))
    }

    /// Decodes and verifies a row.
    pub(super) fn decode(conn: &Connection, keys: &Keys, row: &Row<'_>) -> Res<Self> {
        let row = thread_state::Row::verified(keys, row)?;
        let thread_state::Row { thread, newest, status, facets, counts } = row;
        let (facets, []) = facets.as_chunks() else {
            return Err(corrupt(row.place(), "its facets do not match the format"));
        };
        let facets = facets.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let mut found = Self { thread, newest, status, facets, counts: None };
        found.counts = found.counts_of(conn, keys, counts)?;
        Ok(found)
    }

    /// Returns the row of a thread.
    pub(super) fn read(conn: &Connection, keys: &Keys, thread: i64) -> Res<Option<Self>> {
        conn.read_first(thread_state::Row::BY_KEY, [thread], |row| Self::decode(conn, keys, row))
    }

    /// Decodes the column of the counts.
    fn counts_of(&self, conn: &Connection, keys: &Keys, column: ValueRef<'_>) -> Res<Option<ThreadCounts>> {
        let place = || format!("thread_state {}", self.thread);
        let wrong = || corrupt(place(), "its counts do not match the format");
        let mut opened = Vec::new();
        let text = match column {
            ValueRef::Null => return Ok(None),
            ValueRef::Text(text) if !keys.seal_content() => text,
            ValueRef::Blob(sealed) if keys.seal_content() => {
                keys.open(conn, &self.identity(keys), sealed, &mut opened, &place)?;
                &opened
            }
            _ => return Err(wrong()),
        };
        let numbers: [u64; 4] = serde_json::from_slice(text).map_err(|_| wrong())?;
        let mut counts = ThreadCounts::default();
        [counts.messages, counts.input_tokens, counts.output_tokens, counts.cost_nano_usd] = numbers;
        Ok(Some(counts))
    }

    /// Returns the column of the counts.
    fn counts_column(&self, keys: &Keys) -> Res<Value> {
        let Some(ThreadCounts { messages, input_tokens, output_tokens, cost_nano_usd }) = self.counts else {
            return Ok(Value::Null);
        };
        let text = format!("[{messages},{input_tokens},{output_tokens},{cost_nano_usd}]");
        match keys.seal_content() {
            true => Ok(Value::Blob(keys.seal(&self.identity(keys), text.as_bytes())?)),
            false => Ok(Value::Text(text)),
        }
    }

    fn identity(&self, keys: &Keys) -> Identity {
        keys.identity("thread counts").int(self.thread).int(self.newest)
    }

    /// Writes the row in place of the one that the thread had.
    pub(super) fn put(&self, conn: &Connection, keys: &Keys) -> Res<()> {
        debug_assert!(self.facets.is_sorted(), "facets are stored in their order");
        let old = undamaged(Self::read(conn, keys, self.thread))?;
        let is_filed = match &old {
            Some(Some(old)) if old == self => return Ok(()),
            Some(Some(old)) if (old.newest, &old.facets) == (self.newest, &self.facets) => true,
            Some(Some(old)) => {
                old.delete_facets(conn)?;
                false
            }
            Some(None) => false,
            None => {
                conn.run(sql::FACETS_DELETE, [self.thread])?;
                false
            }
        };
        if !is_filed {
            let Self { newest, thread, .. } = *self;
            for &facet in &self.facets {
                thread_facet::Row { facet, newest, thread }.put(conn)?;
            }
        }
        let facets: Vec<u8> = self.facets.iter().flat_map(|facet| facet.to_le_bytes()).collect();
        let counts = self.counts_column(keys)?;
        let counts = ValueRef::from(&counts);
        let Self { thread, newest, status, .. } = *self;
        thread_state::Row { thread, newest, status, facets: &facets, counts }.put(conn, keys)
    }

    fn delete_facets(&self, conn: &Connection) -> Res<()> {
        let delete = |facet: &i64| conn.run(thread_facet::Row::DELETE, [*facet, self.newest]).map(|_| ());
        self.facets.iter().try_for_each(delete)
    }
}

/// Deletes the rows of a thread that is being deleted.
pub(super) fn hide(conn: &Connection, keys: &Keys, thread: i64) -> Res<()> {
    match undamaged(StateRow::read(conn, keys, thread))? {
        Some(Some(row)) => row.delete_facets(conn)?,
        Some(None) => return Ok(()),
        None => _ = conn.run(sql::FACETS_DELETE, [thread])?,
    }
    conn.run(thread_state::Row::DELETE, [thread])?;
    Ok(())
}

/// Returns the result of a read; `None` if the rows are damaged. Any other error is passed on.
pub(crate) fn undamaged<T>(read: Res<T>) -> Res<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Fault::Store(error)) if is_of_rows(&error) => Ok(None),
        Err(Fault::Sql(error)) if damage(&error).is_some() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Returns whether an error says that rows cannot be decoded.
fn is_of_rows(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::Codec(_) | StoreError::Id(_))
}
