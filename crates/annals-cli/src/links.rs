//! The links of imported threads to the threads that they were forked from, or whose agents started them.

use std::collections::HashMap;

use annals::history::{Snapshot, ThreadInfo, ThreadQuery};
use annals::store::Store;
use annals_import::SourceKind;
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;

/// Threads that one read lists.
const PAGE: usize = 500;

/// Threads of a program that are looked through for links.
pub(crate) const LINKED_MAX: usize = 10_000;

/// A thread to which an imported one belongs.
#[derive(Clone, Debug)]
pub(crate) struct ThreadLink {
    pub(crate) thread: String,
    /// `fork` or `sub`.
    pub(crate) kind: String,
    /// The tool call that started it.
    pub(crate) call: Option<String>,
}

impl ThreadLink {
    /// Returns the thread to which an imported one belongs.
    pub(crate) fn of(info: &ThreadInfo, head: &Snapshot) -> Option<Self> {
        let source = source(info)?;
        // Damaged facts do not end a listing.
        let facts = head.get(annals_import::FACTS).unwrap_or_default()?;
        let text = |name: &str| facts.get("parent")?.get(name)?.as_str();
        Some(Self {
            thread: annals_import::thread_id(source, text("id")?),
            kind: text("kind").unwrap_or("sub").to_owned(),
            call: text("call").map(str::to_owned),
        })
    }

    pub(crate) fn document(&self) -> Json {
        json!({ "thread": self.thread, "kind": self.kind, "call": self.call })
    }
}

/// Returns the program whose history a thread holds: the label of an import is its name.
fn source(info: &ThreadInfo) -> Option<SourceKind> {
    info.facts().labels.iter().find_map(|label| label.parse().ok())
}

/// The threads that belong to others, by the ids of these.
#[derive(Default)]
pub(crate) struct LinkedThreads {
    below: HashMap<String, Vec<(String, ThreadLink)>>,
    /// True if the program has more threads than were looked through.
    pub(crate) is_cut: bool,
}

impl LinkedThreads {
    /// Looks through the threads of the program whose history a thread holds, the last active first.
    pub(crate) fn of(info: &ThreadInfo, store: &Store) -> Result<Self, CommandFailure> {
        let (mut linked, mut seen) = (Self::default(), 0);
        // A chat has no agents.
        let Some(source) = source(info).filter(|source| *source != SourceKind::Chat) else { return Ok(linked) };
        let query = ThreadQuery::new().label(source.to_string()).limit(PAGE);
        let mut last: Option<ThreadInfo> = None;
        loop {
            let page = store.threads_with(last.as_ref().map_or(query.clone(), |last| query.clone().after(last)))?;
            let Some(end) = page.last() else { return Ok(linked) };
            last = Some(end.clone());
            for info in page {
                if seen == LINKED_MAX {
                    linked.is_cut = true;
                    return Ok(linked);
                }
                seen += 1;
                let head = store.thread(info.id().as_str())?.at(info.head())?;
                if let Some(link) = ThreadLink::of(&info, &head) {
                    let id = info.id().as_str().to_owned();
                    linked.below.entry(link.thread.clone()).or_default().push((id, link));
                }
            }
        }
    }

    /// Takes the threads that belong to another one, the last active first.
    pub(crate) fn take(&mut self, thread: &str) -> Vec<(String, ThreadLink)> {
        self.below.remove(thread).unwrap_or_default()
    }
}
