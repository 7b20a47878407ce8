//! Live events: new checkpoints of the log, and changes without one, as server-sent events.

use std::collections::BTreeMap;
use std::time::Duration;

use annals::history::{Snapshot, Thread, ThreadInfo, Watch};
use annals::store::log::{LogPosition, LogWatch};
use annals::store::{Store, StoreError};
use serde_json::{Value as Json, json};

use crate::limits::LIVE_BATCH_MAX;

/// The text of a stream without an event.
pub(crate) const NOTHING_NEW: &str = ": nothing new\n\n";

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
    /// True if the log may be longer than the part that was read.
    is_behind: bool,
}

impl LiveEvents {
    /// Follows the log from now on, or from a position on.
    pub(crate) fn new(store: &Store, thread: Option<&str>, after: Option<LogPosition>) -> Result<Self, StoreError> {
        let signals = store.watch_log()?;
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
        Ok(Self { watch, signals, seen, thread, begun: false, is_behind: true })
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
        if let Some(text) = self.begin() {
            return Ok(text);
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
        Ok(self.text(&found).unwrap_or_else(|| NOTHING_NEW.into()))
    }

    /// Returns the next events without waiting, or `None`. The log is read only if it may have changed.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub(crate) fn look(&mut self) -> Result<Option<String>, StoreError> {
        if let Some(text) = self.begin() {
            return Ok(Some(text));
        }
        let mut found = if self.is_behind { self.new_checkpoints()? } else { Vec::new() };
        if found.is_empty() && self.signals.wait(self.seen, Duration::ZERO)? {
            found = self.changes()?;
        }
        // A read is limited, so that there may be more.
        self.is_behind = !found.is_empty();
        Ok(self.text(&found))
    }

    /// Returns the first text of the stream, once.
    fn begin(&mut self) -> Option<String> {
        (!std::mem::replace(&mut self.begun, true)).then(|| "retry: 2000\n: the log is followed\n\n".into())
    }

    /// Returns the text of events; `None` if there are none.
    fn text(&self, found: &[Json]) -> Option<String> {
        // JSON on one line holds no line break, so an event has one line of data.
        let position = self.watch.position();
        let text: String = found.iter().map(|data| format!("id: {position}\ndata: {data}\n\n")).collect();
        debug_assert!(text.is_empty() || text.ends_with("\n\n"), "an event ends with an empty line");
        (!text.is_empty()).then_some(text)
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
