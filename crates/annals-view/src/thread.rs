//! A thread of a listing.

use annals::base::Value;
use annals::history::ThreadInfo;
use annals::store::record::ThreadSize;
use annals::store::{Store, StoreError};
use annals_runs::{ThreadRuns as _, ThreadStatus};
use serde_json::{Value as Json, json};

use crate::words::partial_json;

/// A thread of a listing with its first words.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedThread {
    /// The thread as a listing has it.
    pub info: ThreadInfo,
    /// The number of its checkpoints and branches, if they were counted.
    pub size: Option<ThreadSize>,
    /// The first words of a thread without a title.
    pub first_words: Option<String>,
}

impl ListedThread {
    /// Reads what a listing does not have: of a thread without a title its first words, and with `has_size` its size,
    /// which costs a visit of every checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]. A damaged message is no error: the first words are `None`.
    pub fn read(store: &Store, info: ThreadInfo, has_size: bool) -> Result<Self, StoreError> {
        let thread = store.thread(info.id())?;
        let size = if has_size { Some(thread.size()?) } else { None };
        let words = || thread.at(info.head())?.first_words();
        let first_words = if info.title().is_none() { words().unwrap_or_default() } else { None };
        Ok(Self { info, size, first_words })
    }

    /// Returns the title, or else the first words; `None` if they are empty.
    pub fn words(&self) -> Option<&str> {
        self.info.title().or(self.first_words.as_deref()).filter(|words| !words.trim().is_empty())
    }

    /// Returns the status with its values.
    pub fn status(&self) -> ThreadStatus {
        ThreadStatus::of(&self.info)
    }

    /// Returns the document of the thread, as `annals threads --json` has it.
    pub fn document(&self) -> Json {
        let (facts, status, counts) = (&self.info.facts, self.status(), self.info.counts);
        let (error, wake_at) = match &status {
            ThreadStatus::Failed(error) | ThreadStatus::Stuck(error) => (Some(error.clone()), None),
            ThreadStatus::Cancelled(reason) => (reason.clone(), None),
            ThreadStatus::Sleeping(until) => (None, Some(until.to_string())),
            _ => (None, None),
        };
        let open: &[Value] = if let ThreadStatus::Interrupted(values) = &status { values } else { &[] };
        json!({
            "thread": self.info.id().as_str(),
            "title": facts.title,
            "first_words": self.first_words,
            "project": facts.project,
            "labels": facts.labels,
            "archived": facts.is_archived,
            "pinned": facts.is_pinned,
            "paused": facts.is_paused,
            "graph": self.info.graph.as_deref(),
            "last_activity": self.info.updated_at.to_string(),
            "messages": counts.map(|counts| counts.messages),
            "input_tokens": counts.map(|counts| counts.input_tokens),
            "output_tokens": counts.map(|counts| counts.output_tokens),
            "cost_usd": counts.map(|counts| counts.cost_usd()),
            "checkpoints": self.size.map(|size| size.checkpoints),
            "branches": self.size.map(|size| size.branches),
            "head": self.info.head().to_string(),
            "step": self.info.record.step,
            "status": status.as_str(),
            "error": error,
            "wake_at": wake_at,
            "partial": partial_json(self.info.partial.as_ref()),
            "next": self.info.record.tasks.iter().map(|task| &*task.name).collect::<Vec<_>>(),
            "questions": open.iter().map(Value::to_json).collect::<Vec<_>>(),
        })
    }
}
