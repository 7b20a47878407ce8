//! A checkpoint of a history.

use annals::base::Value;
use annals::history::{PartialInfo, Snapshot};
use annals::store::{Source, StoreError};
use annals_runs::ThreadStatus;
use serde_json::{Value as Json, json};

use crate::changes::{ChangedChannel, changes};
use crate::links::LinkedThread;
use crate::words::{made, metadata, partial_json, ran, status};

/// A checkpoint of a history with what its row shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedCheckpoint {
    /// The checkpoint.
    pub at: Snapshot,
    /// The checkpoint before it, if that is stored.
    pub parent: Option<Snapshot>,
    /// The shortest id that tells it apart.
    pub short: String,
    /// The channels that it changed, messages first.
    pub changed: Vec<ChangedChannel>,
    /// The status of its thread, if it is the end of a branch.
    pub status: Option<ThreadStatus>,
    /// Half an answer that is streamed there or was cut off.
    pub partial: Option<PartialInfo>,
    /// The threads that it started: those of helpers. They are not read with it.
    pub started: Vec<LinkedThread>,
}

impl ListedCheckpoint {
    /// Reads what a checkpoint changed, as [`changes`] does, and with `is_end` its status.
    ///
    /// # Errors
    /// As [`changes`].
    pub fn read(
        at: Snapshot,
        parent: Option<Snapshot>,
        short: String,
        is_end: bool,
        items_max: u64,
    ) -> Result<Self, StoreError> {
        let changed = changes(&at, parent.as_ref(), items_max)?;
        let (status, partial) = if is_end {
            let (status, partial) = status(&at)?;
            (Some(status), partial)
        } else {
            (None, None)
        };
        Ok(Self { at, parent, short, changed, status, partial, started: Vec::new() })
    }

    /// Returns the nodes that ran to make it, one name for each task.
    pub fn ran(&self) -> Vec<&str> {
        ran(&self.at, self.parent.as_ref())
    }

    /// Returns its cause: its nodes, or its source.
    pub fn made(&self) -> String {
        made(&self.at, self.parent.as_ref())
    }

    /// Returns the time from the parent to the checkpoint in microseconds; `None` if no superstep made it.
    pub fn micros(&self) -> Option<i64> {
        let parent = self.parent.as_ref().filter(|_| self.at.source() == Source::Loop)?;
        Some(self.at.created_at().as_micros().saturating_sub(parent.created_at().as_micros()).max(0))
    }

    /// Returns the changes as a short text: `+1 message, plan`.
    pub fn changes_text(&self) -> String {
        self.changed.iter().map(ChangedChannel::text).collect::<Vec<_>>().join(", ")
    }

    /// Returns the document of the checkpoint, as `annals log --json` has it.
    pub fn document(&self) -> Json {
        let record = self.at.record();
        let from = record
            .forked_from
            .as_ref()
            .map(|from| json!({ "thread": from.thread.as_str(), "checkpoint": from.checkpoint.to_string() }));
        let open: &[Value] = if let Some(ThreadStatus::Interrupted(values)) = &self.status { values } else { &[] };
        let mut document = json!({
            "checkpoint": self.at.id().to_string(),
            "short": self.short,
            "parent": record.parent.map(|parent| parent.to_string()),
            "forked_from": from,
            "branch": record.branch,
            "ordinal": record.ordinal,
            "step": record.step,
            "source": record.source.as_str(),
            "created_at": record.created_at.to_string(),
            "ran": self.ran(),
            "next": self.at.next().collect::<Vec<_>>(),
            "changed": self.changed.iter().map(ChangedChannel::document).collect::<Vec<_>>(),
            "status": self.status.as_ref().map(ThreadStatus::as_str),
            "partial": partial_json(self.partial.as_ref()),
            "questions": open.iter().map(Value::to_json).collect::<Vec<_>>(),
            "run": record.run.map(|run| run.to_string()),
            "app_version": record.app_version,
            "metadata": metadata(&self.at),
        });
        if !self.started.is_empty() {
            document["started"] = self.started.iter().map(LinkedThread::document).collect();
        }
        document
    }
}
