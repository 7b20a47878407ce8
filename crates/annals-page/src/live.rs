//! Live events: new checkpoints of the log, and changes without one, as server-sent events.

use std::collections::BTreeMap;
use std::time::Duration;

use annals::history::{Snapshot, Thread, ThreadInfo, Watch};
use annals::store::{LogWatch, Store, StoreError};
use serde_json::{Value as Json, json};

use crate::limits::LIVE_BATCH_MAX;

/// The events of one client: an iterator over texts of the format `text/event-stream` that does not end.
#[derive(Debug)]
pub struct LiveEvents {
    watch: Watch,
    signals: LogWatch,
    /// The count of the signal before the last read.
    seen: u64,
    /// The followed thread as it was shown last; `None` follows all threads.
    thread: Option<(Thread, Option<ThreadInfo>)>,
    begun: bool,
}

impl LiveEvents {
    /// Follows the log from now on, or from a position on.
    pub(crate) fn new(store: &Store, thread: Option<&str>, after: Option<u64>) -> Result<Self, StoreError> {
        let signals = store.backend().watch_log()?;
        let seen = signals.signal.count();
        let thread = thread.map(|thread| store.thread(thread)).transpose()?;
        let watch = match (&thread, after) {
            (None, None) => store.watch()?,
            (None, Some(after)) => store.watch_from(after)?,
            (Some(thread), None) => thread.watch()?,
            (Some(thread), Some(after)) => thread.watch_from(after)?,
        };
        let thread = thread.map(|thread| {
            let info = thread.info().ok();
            (thread, info)
        });
        Ok(Self { watch, signals, seen, thread, begun: false })
    }

    /// Waits for new checkpoints, at most for a time, and returns one event for each thread that has some. A change
    /// without a checkpoint, such as an interrupt or a new title, is an event with no new ones: of the followed thread,
    /// or of the store. Without any change the text is a comment. The id of an event is the position in the log after
    /// it.
    ///
    /// # Errors
    /// As [`Watch::next`].
    #[allow(clippy::should_implement_trait, reason = "an iterator has no timeout")]
    pub fn next(&mut self, timeout: Duration) -> Result<String, StoreError> {
        if !self.begun {
            self.begun = true;
            return Ok("retry: 2000\n: the log is followed\n\n".into());
        }
        let mut left = timeout;
        let mut found = self.new_checkpoints()?;
        while found.is_empty() {
            let turn = left.min(self.signals.interval);
            if self.signals.wait(self.seen, turn)? {
                found = self.changes()?;
            }
            left = left.saturating_sub(turn);
            if left.is_zero() {
                break;
            }
        }
        if found.is_empty() {
            return Ok(": nothing new\n\n".into());
        }
        // JSON on one line holds no line break, so an event has one line of data.
        let position = self.watch.position();
        let text: String = found.iter().map(|data| format!("id: {position}\ndata: {data}\n\n")).collect();
        debug_assert!(text.ends_with("\n\n"), "an event ends with an empty line");
        Ok(text)
    }

    /// Returns the data of the events of new checkpoints, one for each thread.
    fn new_checkpoints(&mut self) -> Result<Vec<Json>, StoreError> {
        let mut newest: BTreeMap<String, (u64, Snapshot)> = BTreeMap::new();
        for _ in 0..LIVE_BATCH_MAX {
            let Some(snapshot) = self.watch.next(Duration::ZERO)? else { break };
            let entry = newest.entry(snapshot.point().thread.to_string()).or_insert((0, snapshot.clone()));
            *entry = (entry.0 + 1, snapshot);
        }
        let data = newest.into_iter().map(|(thread, (count, snapshot))| {
            json!({ "thread": thread, "checkpoint": snapshot.id().to_string(), "step": snapshot.step(), "new": count })
        });
        Ok(data.collect())
    }

    /// Returns the data of the events of a commit.
    fn changes(&mut self) -> Result<Vec<Json>, StoreError> {
        self.seen = self.signals.signal.count();
        // The commit that notified the signal is one that the probe would report once more.
        if let Some(probe) = &mut self.signals.probe {
            probe.has_changed()?;
        }
        let mut found = self.new_checkpoints()?;
        let Some((thread, shown)) = &mut self.thread else {
            if found.is_empty() {
                found.push(json!({ "thread": null, "checkpoint": null, "step": null, "new": 0 }));
            }
            return Ok(found);
        };
        // A thread without a checkpoint has no info.
        let info = thread.info().ok();
        if found.is_empty() && info != *shown {
            let head = info.as_ref().map(|info| info.head().to_string());
            found.push(json!({ "thread": thread.id().as_str(), "checkpoint": head, "step": null, "new": 0 }));
        }
        *shown = info;
        Ok(found)
    }
}
