//! Live events: new checkpoints of the log, as server-sent events.

use std::collections::BTreeMap;
use std::time::Duration;

use annals::history::{Snapshot, Watch};
use annals::store::{Store, StoreError};
use serde_json::json;

use crate::limits::LIVE_BATCH_MAX;

/// The events of one client: an iterator over texts of the format `text/event-stream` that does not end.
#[derive(Debug)]
pub struct LiveEvents {
    watch: Watch,
    begun: bool,
}

impl LiveEvents {
    /// Follows the log from now on, or from a position on.
    pub(crate) fn new(store: &Store, thread: Option<&str>, after: Option<u64>) -> Result<Self, StoreError> {
        let watch = match (thread, after) {
            (None, None) => store.watch()?,
            (None, Some(after)) => store.watch_from(after)?,
            (Some(thread), None) => store.thread(thread)?.watch()?,
            (Some(thread), Some(after)) => store.thread(thread)?.watch_from(after)?,
        };
        Ok(Self { watch, begun: false })
    }

    /// Waits for new checkpoints, at most for a time, and returns one event for each thread that has some, or a
    /// comment. The id of an event is the position in the log after it.
    ///
    /// # Errors
    /// As [`Watch::next`].
    #[allow(clippy::should_implement_trait, reason = "an iterator has no timeout")]
    pub fn next(&mut self, timeout: Duration) -> Result<String, StoreError> {
        if !self.begun {
            self.begun = true;
            return Ok("retry: 2000\n: the log is followed\n\n".into());
        }
        let mut newest: BTreeMap<String, (u64, Snapshot)> = BTreeMap::new();
        let mut wait = timeout;
        for _ in 0..LIVE_BATCH_MAX {
            let Some(snapshot) = self.watch.next(wait)? else { break };
            wait = Duration::ZERO;
            let entry = newest.entry(snapshot.point().thread.to_string()).or_insert((0, snapshot.clone()));
            *entry = (entry.0 + 1, snapshot);
        }
        if newest.is_empty() {
            return Ok(": nothing new\n\n".into());
        }
        let mut text = String::new();
        for (thread, (count, snapshot)) in newest {
            let data = json!({
                "thread": thread, "checkpoint": snapshot.id().to_string(), "step": snapshot.step(), "new": count,
            });
            // JSON on one line holds no line break, so an event has one line of data.
            text.push_str(&format!("id: {}\ndata: {data}\n\n", self.watch.position()));
        }
        debug_assert!(text.ends_with("\n\n"), "an event ends with an empty line");
        Ok(text)
    }
}
