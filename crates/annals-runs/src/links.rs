//! Links between threads: the thread of a helper with the one whose agent started it, and a fork that repeats the
//! messages of its parent.
//!
//! A link is two entries of the key-value memory, which are put in one commit: one by which the parent is found from
//! the thread, and one by which the threads below are found from the parent. Invariant: a thread has one parent.
//! *Absent:* forks of the log ([`Thread::forks`]), and subgraphs, which are namespaces of one thread.

use crate::base::{Map, Value};
use crate::hash::xxh3_128;
use crate::history::Thread;
use crate::limits::LINKS_MAX;
use crate::store::kv::KvWrite;
use crate::store::{KvQuery, Store, StoreError};

/// The first label of the namespaces of links.
const LABEL: &str = "annals-links";
/// The second label of the entries by which parents are found; of the others it is the hash of the parent.
const PARENTS: &str = "parents";

/// The relation of a thread to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadLinkKind {
    /// The thread is a fork that repeats the messages of its parent.
    Fork,
    /// The thread is the work of a helper, which the agent of the parent started.
    Sub,
}

impl ThreadLinkKind {
    /// Returns the name: `fork` or `sub`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fork => "fork",
            Self::Sub => "sub",
        }
    }
}

/// A link of two threads, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadLink {
    /// The id of the other thread.
    pub thread: String,
    /// The relation.
    pub kind: ThreadLinkKind,
    /// The id of the tool call by which the parent started the thread, if it is known.
    pub call: Option<String>,
}

impl ThreadLink {
    /// Makes a link to another thread.
    pub fn new(thread: impl Into<String>, kind: ThreadLinkKind) -> Self {
        Self { thread: thread.into(), kind, call: None }
    }

    /// Sets the tool call by which the parent started the thread.
    #[must_use]
    pub fn call(mut self, call: impl Into<String>) -> Self {
        self.call = Some(call.into());
        self
    }

    /// Encodes the link as an entry.
    fn entry(&self) -> Map {
        let fields = [
            ("thread", Some(self.thread.as_str())),
            ("kind", Some(self.kind.as_str())),
            ("call", self.call.as_deref()),
        ];
        let stored = fields.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))));
        stored.collect()
    }

    /// Decodes an entry; `None` if something else is stored there.
    fn of(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry.get(name)?.as_str();
        let kind = match text("kind")? {
            "fork" => ThreadLinkKind::Fork,
            "sub" => ThreadLinkKind::Sub,
            _ => return None,
        };
        Some(Self { thread: text("thread")?.to_owned(), kind, call: text("call").map(str::to_owned) })
    }
}

/// Returns the labels of the entries by which the threads below one are found. A thread id may hold characters that a
/// label must not have.
fn below(parent: &str) -> [String; 2] {
    [LABEL.to_owned(), format!("{:032x}", u128::from_be_bytes(xxh3_128(parent.as_bytes())))]
}

/// Stores the link of each thread to its parent. One that is stored already is not written again.
pub(crate) fn link_threads(store: &Store, links: &[(String, ThreadLink)]) -> Result<(), StoreError> {
    let mut writes = Vec::with_capacity(2 * links.len());
    for (thread, link) in links {
        match parent_link(store, thread)? {
            Some(former) if former == *link => continue,
            // A thread has one parent: the earlier one no longer lists it.
            Some(former) => writes.push(KvWrite::delete(below(&former.thread), thread.as_str())?),
            None => {}
        }
        let found = ThreadLink { thread: thread.clone(), ..link.clone() };
        writes.push(KvWrite::put([LABEL, PARENTS], thread.as_str(), link.entry())?);
        writes.push(KvWrite::put(below(&link.thread), thread.as_str(), found.entry())?);
    }
    store.kv().write_all(writes)
}

/// Returns the link of a thread to its parent.
pub(crate) fn parent_link(store: &Store, thread: &str) -> Result<Option<ThreadLink>, StoreError> {
    let found = store.kv().get([LABEL, PARENTS], thread)?;
    Ok(found.and_then(|entry| ThreadLink::of(&entry.value)))
}

/// Returns the links of the threads below one, in the order in which they were stored.
pub(crate) fn linked_threads(thread: &Thread) -> Result<Vec<ThreadLink>, StoreError> {
    let entries = thread.store().kv().search(KvQuery::new(below(thread.id().as_str())).limit(LINKS_MAX))?;
    Ok(entries.iter().filter_map(|entry| ThreadLink::of(&entry.value)).collect())
}
