//! The operations of a thread: its runs and updates, and the stored operations between them.
//!
//! A run or an update is derived from its checkpoints, so that it costs nothing. *Absent:* undo and redo, and the
//! meaning of values.

use std::collections::VecDeque;
use std::fmt;

use crate::base::limits::HISTORY_PAGE_ROWS;
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::limits::OPERATION_ROWS_MIN;
use crate::store::log::{CheckpointQuery, Log, LogExt};
use crate::store::operation::{
    ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationRecord,
    OperationTarget, OperationValue,
};
use crate::store::record::CheckpointRecord;
use crate::store::threads::ACTOR;
use crate::store::{Source, StoreError};

use crate::history::thread::Thread;

/// A change of a thread as a whole, which can be undone: by a run or an update, or by a stored operation.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals::history::Operation;
///
/// # fn main() -> Result<()> {
/// let thread = Store::memory().thread("trip")?;
/// let notes = thread.with_schema(DynSchema::new().append("notes").build());
/// for note in ["Bern", "Basel"] {
///     notes.update(DynUpdate::new().set("notes", note))?;
/// }
/// thread.by("Zoë").rewind_to(&thread.at("~1")?)?;
///
/// let operations = thread.operations()?.collect::<std::result::Result<Vec<_>, _>>()?;
/// let shown: Vec<_> = operations.iter().map(Operation::name).collect();
/// assert_eq!(shown, ["rewind", "update", "update"]);
/// assert_eq!(operations[0].actor(), Some("Zoë"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Checkpoints that were stored one after the other.
    Commits(CommitGroup),
    /// A stored operation.
    Stored(OperationRecord),
}

/// The checkpoints of the root namespace that one run stored without an operation between them, or one update.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommitGroup {
    /// The thread.
    pub thread: ThreadId,
    /// The position of the last checkpoint in the log of the file.
    pub seq: u64,
    /// The run, `None` for an update or a fork.
    pub run: Option<RunId>,
    /// The source of the first checkpoint.
    pub source: Source,
    /// The first checkpoint.
    pub first: CheckpointId,
    /// The last checkpoint.
    pub last: CheckpointId,
    /// The number of checkpoints.
    pub checkpoints: usize,
    /// The timestamp of the last checkpoint.
    pub at: Timestamp,
    /// The actor of the handle that made an update: the member `actor` of the metadata of the last checkpoint.
    pub actor: Option<String>,
}

impl Operation {
    /// Returns the name: `run`, `update` or `fork`, or that of the [`OperationKind`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::Commits(CommitGroup { run: Some(_), .. }) => "run",
            Self::Commits(group) => group.source.as_str(),
            Self::Stored(record) => record.kind.as_str(),
        }
    }

    /// Returns the timestamp.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Commits(group) => group.at,
            Self::Stored(record) => record.at,
        }
    }

    /// Returns its position in the log of the file: that of its last checkpoint, or of the newest checkpoint when it
    /// was made.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Commits(group) => group.seq,
            Self::Stored(record) => record.seq,
        }
    }

    /// Returns the user, the program or the part of a program that made it, if it is known: of a stored operation, or
    /// of an update through a handle with an [actor](Thread::by).
    pub fn actor(&self) -> Option<&str> {
        match self {
            Self::Commits(group) => group.actor.as_deref(),
            Self::Stored(record) => record.actor.as_deref(),
        }
    }

    pub(crate) fn target(&self) -> OperationTarget {
        match self {
            Self::Commits(group) => OperationTarget::Commits(group.last),
            Self::Stored(record) => OperationTarget::Operation(record.id),
        }
    }

    /// Returns the operation that an undo or a redo is about, with its kind.
    pub(crate) fn reverts(&self) -> Option<(OperationKind, OperationTarget)> {
        match self {
            Self::Stored(record @ OperationRecord { kind: OperationKind::Undo | OperationKind::Redo, .. }) => {
                record.target.map(|target| (record.kind, target))
            }
            _ => None,
        }
    }

    /// Returns the head of the root namespace of a thread after it, if it changed that.
    pub(crate) fn head_after(&self, thread: &ThreadId) -> Option<CheckpointId> {
        match self {
            Self::Commits(group) => Some(group.last),
            Self::Stored(record) => {
                let is_head = |change: &&OperationChange| {
                    change.thread == *thread && change.namespace.is_root() && change.field == OperationField::Head
                };
                record.changes.iter().find(is_head).and_then(after_checkpoint)
            }
        }
    }
}

/// The operations of a thread, newest first, read page by page.
#[derive(Debug)]
pub(crate) struct Operations {
    thread: Thread,
    pages: OperationPages,
}

/// The checkpoints and the stored operations of a thread that were read but not returned yet, and the queries for the
/// older ones. The first pages are short: an undo needs a few rows.
#[derive(Debug)]
pub(crate) struct OperationPages {
    checkpoints: VecDeque<CheckpointRecord>,
    older_checkpoints: Option<CheckpointQuery>,
    stored: VecDeque<OperationRecord>,
    older_stored: Option<OperationQuery>,
}

impl OperationPages {
    pub(crate) fn of(thread: &ThreadId) -> Self {
        let mut checkpoints = CheckpointQuery::new(thread.clone(), Namespace::root());
        checkpoints.limit = OPERATION_ROWS_MIN;
        let stored = OperationQuery::new(Some(thread.clone()), OPERATION_ROWS_MIN);
        Self {
            checkpoints: VecDeque::new(),
            older_checkpoints: Some(checkpoints),
            stored: VecDeque::new(),
            older_stored: Some(stored),
        }
    }

    /// Returns the newest operation of the thread. No operation must have been returned yet.
    pub(crate) fn newest(&self, thread: &ThreadId) -> ExpectedNewest {
        let operation = self.stored.front().map(|record| record.id);
        let checkpoint = self.checkpoints.front().map(|record| record.point.checkpoint);
        ExpectedNewest::new(thread.clone(), operation, checkpoint)
    }

    /// Returns the number of rows that were read and not returned yet.
    pub(crate) fn rows(&self) -> usize {
        self.checkpoints.len() + self.stored.len()
    }

    /// Reads the next page of each kind that is used up.
    pub(crate) fn fill(&mut self, backend: &dyn Log) -> Result<(), StoreError> {
        let longer = |rows: usize| (2 * rows).min(HISTORY_PAGE_ROWS);
        if self.checkpoints.is_empty()
            && let Some(query) = &mut self.older_checkpoints
        {
            self.checkpoints = backend.checkpoints(query)?.into();
            query.limit = longer(query.limit);
            match self.checkpoints.back() {
                Some(last) => query.before = Some(last.point.checkpoint),
                None => self.older_checkpoints = None,
            }
        }
        if self.stored.is_empty()
            && let Some(query) = &mut self.older_stored
        {
            self.stored = backend.operations(query)?.into();
            query.limit = longer(query.limit);
            match self.stored.back() {
                Some(last) => query.before = Some(last.id),
                None => self.older_stored = None,
            }
        }
        Ok(())
    }

    /// Returns the next older operation.
    pub(crate) fn read(&mut self, backend: &dyn Log) -> Result<Option<Operation>, StoreError> {
        self.fill(backend)?;
        let is_stored = match (self.stored.front(), self.checkpoints.front()) {
            (Some(stored), Some(checkpoint)) => stored.seq >= checkpoint.seq,
            (stored, _) => stored.is_some(),
        };
        if is_stored {
            return Ok(self.stored.pop_front().map(Operation::Stored));
        }
        let Some(last) = self.checkpoints.pop_front() else { return Ok(None) };
        let mut group = CommitGroup {
            thread: last.point.thread.clone(),
            seq: last.seq,
            run: last.run,
            source: last.source,
            first: last.point.checkpoint,
            last: last.point.checkpoint,
            checkpoints: 1,
            at: last.created_at,
            actor: last.metadata.as_deref().and_then(actor_in),
        };
        loop {
            self.fill(backend)?;
            let Some(older) = self.checkpoints.front() else { break };
            let is_divided = self.stored.front().is_some_and(|stored| stored.seq >= older.seq);
            if group.run.is_none() || older.run != group.run || is_divided {
                break;
            }
            (group.first, group.source) = (older.point.checkpoint, older.source);
            group.checkpoints += 1;
            self.checkpoints.pop_front();
        }
        Ok(Some(Operation::Commits(group)))
    }
}

/// Returns the actor that metadata name.
fn actor_in(metadata: &str) -> Option<String> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok().filter(|_| metadata.contains(ACTOR))?;
    metadata.get(ACTOR)?.as_str().map(ToOwned::to_owned)
}

/// Returns the checkpoint that a field names after a change.
pub(crate) fn after_checkpoint(change: &OperationChange) -> Option<CheckpointId> {
    match change.after {
        Some(OperationValue::Checkpoint(id)) => Some(id),
        _ => None,
    }
}

impl Operations {
    pub(crate) fn of(thread: &Thread) -> Self {
        Self { thread: thread.with_namespace(Namespace::root()), pages: OperationPages::of(thread.id()) }
    }
}

impl Iterator for Operations {
    type Item = Result<Operation, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.pages.read(&**self.thread.store().backend());
        if next.is_err() {
            (self.pages.older_checkpoints, self.pages.older_stored) = (None, None);
            self.pages.checkpoints.clear();
            self.pages.stored.clear();
        }
        next.transpose()
    }
}

impl Thread {
    /// Returns the operations of the thread, newest first: its runs and updates, moves of its head, names of branches,
    /// undos and redos. A run that was continued after an operation counts as two.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; each item may fail alike.
    #[doc(alias = "reflog")]
    pub fn operations(
        &self,
    ) -> Result<impl Iterator<Item = Result<Operation, StoreError>> + fmt::Debug + use<>, StoreError> {
        self.store().flush_abandoned();
        let mut operations = Operations::of(self);
        operations.pages.fill(&**self.store().backend())?;
        Ok(operations)
    }

    /// Returns the newest operation of the thread.
    pub(crate) fn newest_operation(&self) -> Result<ExpectedNewest, StoreError> {
        let mut pages = OperationPages::of(self.id());
        pages.fill(&**self.store().backend())?;
        Ok(pages.newest(self.id()))
    }

    /// Stores an operation with the actor of this handle.
    pub(crate) fn operate(&self, mut operation: NewOperation) -> Result<u64, StoreError> {
        operation.actor = self.actor().map(ToOwned::to_owned);
        self.store().backend().operate(&operation)
    }
}
