//! The threads below one: those of its helpers, and forks that repeat its messages, each at the checkpoint that
//! started it.
//!
//! Invariant: the checkpoint of a thread is on the lineage of the point that was asked for. It holds the tool call, or,
//! of a helper without one, is the first that is not older than the helper. *Absent:* subgraphs, and forks of the
//! log.

use std::collections::{HashMap, HashSet};

use annals::base::{CheckpointId, Timestamp, Value};
use annals::history::{Snapshot, Thread};
use annals::store::{ItemRange, StoreError};
use annals_runs::{ThreadLink, ThreadLinkKind, ThreadRuns as _};
use serde_json::{Value as Json, json};

use crate::limits::CALL_ITEMS_FIRST;
use crate::thread::ListedThread;

/// A thread below another one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkedThread {
    /// The link, which names the thread.
    pub link: ThreadLink,
    /// The thread as a listing has it.
    pub listed: ListedThread,
    /// The checkpoint of the parent that started it, if it is known.
    pub started_by: Option<CheckpointId>,
}

impl LinkedThread {
    /// Returns the document of the thread, as the checkpoints of `annals log --json` have it.
    pub fn document(&self) -> Json {
        link_document(&self.link)
    }
}

/// Returns the document of a link: `{"thread", "kind", "call"}`.
pub fn link_document(link: &ThreadLink) -> Json {
    json!({ "thread": link.thread, "kind": link.kind.as_str(), "call": link.call })
}

/// Returns the threads below the thread of a checkpoint, at most `threads_max`, in the order in which they began. The
/// newest `items_max` items of its lists are searched for the tool calls, back to the oldest of these. A thread that
/// was deleted is left out.
///
/// # Errors
/// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`]. The tool calls after a damaged message are not
/// found.
///
/// # Example
/// ```
/// use annals_runs::prelude::*;
/// use annals_runs::{ThreadLink, ThreadLinkKind};
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// let (research, prices) = (store.thread("research")?, store.thread("prices")?);
/// research.append("messages", [Message::human("What does it cost?")])?;
/// prices.append("messages", [Message::human("Look for prices.")])?;
/// store.link_threads(&[("prices".to_owned(), ThreadLink::new("research", ThreadLinkKind::Sub))])?;
/// let below = annals_view::linked_threads(&research.at("@")?, 10, 1_000)?;
/// assert_eq!(below[0].listed.words(), Some("Look for prices."));
/// # Ok(())
/// # }
/// ```
pub fn linked_threads(at: &Snapshot, threads_max: usize, items_max: usize) -> Result<Vec<LinkedThread>, StoreError> {
    let store = at.store();
    let mut linked = Vec::new();
    for link in store.thread(at.point().thread.as_str())?.linked_threads()? {
        if linked.len() == threads_max {
            break;
        }
        let info = match store.thread(&link.thread).and_then(|thread| thread.info()) {
            Ok(info) => info,
            Err(StoreError::ThreadNotFound { .. } | StoreError::Id(_)) => continue,
            Err(error) => return Err(error),
        };
        let begun = begin(&store.thread(&link.thread)?)?;
        let listed = ListedThread::read(store, info, false)?;
        linked.push((begun, LinkedThread { link, listed, started_by: None }));
    }
    linked.sort_by_key(|(begun, _)| *begun);
    let calls: HashSet<&str> = linked.iter().filter_map(|(_, thread)| thread.link.call.as_deref()).collect();
    let callers = if calls.is_empty() { HashMap::new() } else { callers(at, &calls, items_max)? };
    let mut placed = Vec::with_capacity(linked.len());
    for (begun, mut thread) in linked {
        thread.started_by = match (&thread.link.call, begun) {
            (Some(call), _) => callers.get(call).copied(),
            (None, Some(begun)) if thread.link.kind == ThreadLinkKind::Sub => first_since(at, begun)?,
            (None, _) => None,
        };
        placed.push(thread);
    }
    Ok(placed)
}

/// Returns the checkpoints whose messages hold tool calls, by the ids of the calls.
fn callers(
    at: &Snapshot,
    calls: &HashSet<&str>,
    items_max: usize,
) -> Result<HashMap<String, CheckpointId>, StoreError> {
    let mut ordinals: HashMap<String, u64> = HashMap::new();
    for channel in at.channels()? {
        // Only lists have items.
        let mut end = at.len(&channel).unwrap_or(0);
        let (least, mut count) = (end.saturating_sub(items_max as u64), CALL_ITEMS_FIRST);
        // The calls of the newest helpers are among the newest items, which are searched first.
        while end > least && ordinals.len() < calls.len() {
            let (first, mut found) = (end.saturating_sub(count).max(least), HashMap::new());
            // A damaged message ends the visit.
            _ = at.visit_items(&channel, ItemRange::Positions(first, end), |row| {
                if row.payload.index.and_then(|index| index.kind) != Some("ai") {
                    return Ok(());
                }
                let message = row.to_value()?;
                let made = message.get("tool_calls").and_then(Value::as_list).unwrap_or_default();
                for call in made.iter().filter_map(|call| call.get("id")?.as_str()).filter(|call| calls.contains(call))
                {
                    found.insert(call.to_owned(), row.ordinal);
                }
                Ok(())
            });
            // The newest message with a call counts.
            found.extend(std::mem::take(&mut ordinals));
            (ordinals, end, count) = (found, first, 2 * count);
        }
    }
    let mut wanted: Vec<u64> = ordinals.values().copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let found = at.ancestors(&wanted)?.into_iter().flatten();
    let ids: HashMap<u64, CheckpointId> = found.map(|found| (found.record().ordinal, found.id())).collect();
    Ok(ordinals.into_iter().filter_map(|(call, ordinal)| Some((call, *ids.get(&ordinal)?))).collect())
}

/// Returns the timestamp of the first checkpoint of a thread.
fn begin(thread: &Thread) -> Result<Option<Timestamp>, StoreError> {
    let Some(head) = thread.head()? else { return Ok(None) };
    Ok(head.ancestors(&[0])?.into_iter().flatten().next().map(|first| first.created_at()))
}

/// Returns the first checkpoint of a lineage that is not older than a timestamp, by halving.
fn first_since(at: &Snapshot, since: Timestamp) -> Result<Option<CheckpointId>, StoreError> {
    if at.created_at() < since {
        return Ok(None);
    }
    let (mut from, mut to, mut found) = (0, at.record().ordinal, at.id());
    while from < to {
        let middle = from + (to - from) / 2;
        match at.ancestors(&[middle])?.into_iter().flatten().next().filter(|of| of.created_at() >= since) {
            Some(of) => (to, found) = (middle, of.id()),
            None => from = middle + 1,
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use annals::message::ToolCall;
    use annals_runs::prelude::*;

    use super::*;

    #[test]
    fn a_call_is_found_however_long_ago_it_was_made() {
        let store = Store::memory();
        let parent = store.thread("parent").unwrap();
        let call = |id: &str| {
            let mut call = ToolCall::new("task", [("what", "look")]);
            call.id = Some(id.into());
            Message::ai("go").with_tool_call(call)
        };
        let many = || (0..3 * CALL_ITEMS_FIRST).map(|n| Message::human(format!("{n}")));
        let first = parent.append("messages", [call("c1")]).unwrap();
        parent.append("messages", many()).unwrap();
        let second = parent.append("messages", [call("c2")]).unwrap();
        parent.append("messages", many()).unwrap();
        for (helper, id) in [("h1", "c1"), ("h2", "c2"), ("h3", "c3")] {
            store.thread(helper).unwrap().append("messages", [Message::human("look")]).unwrap();
            let link = ThreadLink::new("parent", ThreadLinkKind::Sub).call(id);
            store.link_threads(&[(helper.to_owned(), link)]).unwrap();
        }
        let started = |items_max| -> Vec<Option<CheckpointId>> {
            let linked = linked_threads(&parent.at("@").unwrap(), usize::MAX, items_max).unwrap();
            linked.iter().map(|thread| thread.started_by).collect()
        };
        assert_eq!(started(usize::MAX), [Some(first), Some(second), None]);
        assert_eq!(started(1_000), [None, Some(second), None]);
    }
}
