//! Operations: changes of heads and of the names of branches, which no commit of a checkpoint makes.
//!
//! An operation holds its changes, each with the value before and after it, so that it can be undone and made again.
//! *Absent:* runs and updates, which are derived from their checkpoints, and the rules of undo.

use crate::base::limits::{FACT_BYTES_MAX, NAME_BYTES_MAX};
use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp, variants};
use crate::limits::{ACTOR_BYTES_MAX, OPERATION_CHANGES_MAX};

use super::error::StoreError;
use super::record::CheckpointRecord;

/// The fact that holds the labels of a thread: a JSON list of texts.
pub(crate) const LABELS: &str = "labels";

/// The fact of a thread in the trash: the timestamp in microseconds, in decimal digits, from which on it is to be
/// deleted.
pub(crate) const TRASHED: &str = "trashed";

/// Returns the timestamp from which on a thread with this fact is to be deleted.
pub(crate) fn trashed_until(fact: &str) -> Option<Timestamp> {
    fact.parse().ok().map(Timestamp::from_micros)
}

variants! {
    /// The kind of an operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum OperationKind {
        /// Heads move to older checkpoints.
        Rewind => "rewind",
        /// The head moves to another branch.
        Switch => "switch",
        /// A branch gets a name, or loses it.
        NameBranch => "name branch",
        /// The user of a thread states facts about it.
        Facts => "facts",
        /// Another operation, or a run, is undone.
        Undo => "undo",
        /// An operation or a run that was undone is made again.
        Redo => "redo",
    }
    /// Returns the name: `rewind`, `switch`, `name branch`, `facts`, `undo` or `redo`.
    pub fn as_str -> &'static str, Display
}

/// The operation that an undo or a redo is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationTarget {
    /// A stored operation, by its number.
    Operation(u64),
    /// A run or an update, by the last checkpoint that it stored in the namespace of the first change.
    Commits(CheckpointId),
}

/// A value of a thread that operations change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationField {
    /// The head of a namespace: a checkpoint. A commit of checkpoints changes it too.
    Head,
    /// The last checkpoint of the branch with this name, as of when the head left it; `None` for a name that is not
    /// taken.
    Branch(String),
    /// The name of the branch that the head is on, `None` for a branch without a name.
    CurrentBranch,
    /// A fact about the thread, by its name: a text.
    Fact(String),
}

impl std::fmt::Display for OperationField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Head => f.write_str("the head"),
            Self::Branch(name) => write!(f, "branch {name:?}"),
            Self::CurrentBranch => f.write_str("the current branch"),
            Self::Fact(name) => write!(f, "fact {name:?}"),
        }
    }
}

/// The content of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationValue {
    /// A checkpoint of the namespace.
    Checkpoint(CheckpointId),
    /// A text.
    Text(String),
}

/// The change of a field by an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationChange {
    /// The thread.
    pub thread: ThreadId,
    /// The namespace: the root namespace, but for heads of subgraphs.
    pub namespace: Namespace,
    /// The field.
    pub field: OperationField,
    /// The content before the operation, which must be the present one; `None` for none.
    pub before: Option<OperationValue>,
    /// The content after the operation.
    pub after: Option<OperationValue>,
}

/// An operation that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewOperation {
    /// The kind.
    pub kind: OperationKind,
    /// The timestamp.
    pub at: Timestamp,
    /// The user, the program or the part of a program that makes the operation, if it is known. At most 256 bytes.
    pub actor: Option<String>,
    /// The operation that is undone or made again.
    pub target: Option<OperationTarget>,
    /// The changes, each of another field. At least one, at most 10,000.
    pub changes: Vec<OperationChange>,
    /// The newest operation on which it rests; `None` if it rests on the fields of its changes alone.
    pub newest: Option<ExpectedNewest>,
}

/// The newest operation of a thread that the writer of another one has read: a stored operation, or a run or an update,
/// which is known by its checkpoint. The operation is refused if another one has come since.
///
/// Undo and redo state it, because the operation that they are about follows from all operations before them, and not
/// from the fields that they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedNewest {
    /// The thread, which the operation changes.
    pub thread: ThreadId,
    /// The number of the newest stored operation with a change of the thread; `None` for none.
    pub operation: Option<u64>,
    /// The newest checkpoint of the root namespace; `None` for none.
    pub checkpoint: Option<CheckpointId>,
}

impl ExpectedNewest {
    /// Describes the newest operation of a thread.
    pub(crate) fn new(thread: ThreadId, operation: Option<u64>, checkpoint: Option<CheckpointId>) -> Self {
        Self { thread, operation, checkpoint }
    }

    /// Compares it with the newest operation in the store.
    pub fn compare(&self, operation: Option<u64>, checkpoint: Option<CheckpointId>) -> Result<(), StoreError> {
        if (self.operation, self.checkpoint) == (operation, checkpoint) {
            return Ok(());
        }
        Err(StoreError::FieldConflict { thread: self.thread.clone(), field: "the newest operation".to_owned() })
    }
}

/// A stored operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationRecord {
    /// Its number: later operations of the file have greater ones.
    pub id: u64,
    /// The `seq` of the newest checkpoint of the file when it was made: its position in the log.
    pub seq: u64,
    /// Its kind.
    pub kind: OperationKind,
    /// Its timestamp.
    pub at: Timestamp,
    /// The user, the program or the part of a program that made it.
    pub actor: Option<String>,
    /// The operation that is undone or made again.
    pub target: Option<OperationTarget>,
    /// Its changes, sorted by thread, namespace and field; those of deleted threads are absent.
    pub changes: Vec<OperationChange>,
}

impl OperationRecord {
    /// Makes the record of an operation that is stored under a number, at a position of the log, with these changes.
    pub fn new(id: u64, seq: u64, new: &NewOperation, changes: Vec<OperationChange>) -> Self {
        Self { id, seq, kind: new.kind, at: new.at, actor: new.actor.clone(), target: new.target, changes }
    }
}

impl BranchRecord {
    /// Makes the record of a branch: its last checkpoint, and the branch and the ordinal that it leaves.
    pub fn new(last: CheckpointRecord, leaves: Option<(u64, u64)>) -> Self {
        Self { last, leaves }
    }
}

/// A listing of operations, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OperationQuery {
    /// Only operations with changes of this thread.
    pub thread: Option<ThreadId>,
    /// Only operations with a smaller number.
    pub before: Option<u64>,
    /// The maximum number of records; 0 stands for a page of 10,000.
    pub limit: usize,
}

/// A branch of the log: a run of checkpoints of a namespace, each the child of the one before.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BranchRecord {
    /// The newest checkpoint on it.
    pub last: CheckpointRecord,
    /// The branch that it leaves, and the last ordinal that both share; `None` for one that begins with the empty
    /// state.
    pub leaves: Option<(u64, u64)>,
}

impl OperationChange {
    /// Describes the change of a field.
    pub fn new(
        thread: ThreadId,
        namespace: Namespace,
        field: OperationField,
        before: Option<OperationValue>,
        after: Option<OperationValue>,
    ) -> Self {
        Self { thread, namespace, field, before, after }
    }

    /// Describes the move of a head.
    pub fn head(
        thread: ThreadId,
        namespace: Namespace,
        before: Option<CheckpointId>,
        after: Option<CheckpointId>,
    ) -> Self {
        let value = |id: Option<CheckpointId>| id.map(OperationValue::Checkpoint);
        Self::new(thread, namespace, OperationField::Head, value(before), value(after))
    }

    /// Compares the present content of the field with the one that the change expects. Every backend calls this.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] for a head, [`StoreError::FieldConflict`] for another field.
    pub fn compare(&self, found: Option<OperationValue>) -> Result<(), StoreError> {
        if found == self.before {
            return Ok(());
        }
        let (thread, namespace) = (self.thread.clone(), self.namespace.clone());
        let [expected, found] = [self.before.as_ref(), found.as_ref()].map(checkpoint_of);
        Err(match self.field {
            OperationField::Head => StoreError::Conflict { thread, namespace, expected, found },
            _ => StoreError::FieldConflict { thread, field: self.field.to_string() },
        })
    }

    /// Returns the change back.
    pub(crate) fn inverse(self) -> Self {
        Self { before: self.after, after: self.before, ..self }
    }

    fn validate(&self) -> Result<(), StoreError> {
        let wrong = |reason: &str| invalid("operation.change", format!("{:?}: {reason}", self.field));
        if let OperationField::Branch(name) = &self.field
            && (name.is_empty() || name.contains('\0') || name.len() > NAME_BYTES_MAX)
        {
            return invalid(
                "branch.name",
                format!("it must have 1 to {NAME_BYTES_MAX} bytes and no NUL character, and has {}", name.len()),
            );
        }
        if let OperationField::Fact(name) = &self.field
            && (name.is_empty() || name.contains('\0') || name.len() > NAME_BYTES_MAX)
        {
            return invalid(
                "fact.name",
                format!("it must have 1 to {NAME_BYTES_MAX} bytes and no NUL character, and has {}", name.len()),
            );
        }
        if self.field != OperationField::Head && !self.namespace.is_root() {
            return wrong("only the root namespace has this field");
        }
        if self.field == OperationField::Head && self.namespace.is_root() && self.after.is_none() {
            return wrong("the root namespace has a head from its first checkpoint on");
        }
        let fits = |value: &OperationValue| match (&self.field, value) {
            (OperationField::Head | OperationField::Branch(_), OperationValue::Checkpoint(_)) => true,
            (OperationField::CurrentBranch, OperationValue::Text(text)) => text.len() <= NAME_BYTES_MAX,
            (OperationField::Fact(_), OperationValue::Text(text)) => text.len() <= FACT_BYTES_MAX,
            _ => false,
        };
        if ![&self.before, &self.after].into_iter().flatten().all(fits) {
            return wrong("the field does not hold such a value");
        }
        match (&self.field, &self.after) {
            (OperationField::Fact(name), Some(OperationValue::Text(text))) => fact_is_readable(name, text),
            _ => Ok(()),
        }
    }
}

impl NewOperation {
    /// Starts an operation without an actor and without changes.
    pub fn new(kind: OperationKind, at: Timestamp) -> Self {
        Self { kind, at, actor: None, target: None, changes: Vec::new(), newest: None }
    }

    /// Checks everything that can be checked without the log. Every backend calls this first.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] naming the field and the limit.
    pub fn validate(&self) -> Result<(), StoreError> {
        let count = self.changes.len();
        if count == 0 || count > OPERATION_CHANGES_MAX {
            return invalid(
                "operation.changes",
                format!("{count} is not between 1 and the limit of {OPERATION_CHANGES_MAX}"),
            );
        }
        let bytes = self.actor.as_ref().map_or(0, String::len);
        if bytes > ACTOR_BYTES_MAX {
            return invalid("operation.actor", format!("{bytes} bytes are above the limit of {ACTOR_BYTES_MAX}"));
        }
        self.changes.iter().try_for_each(OperationChange::validate)?;
        let mut fields: Vec<_> =
            self.changes.iter().map(|change| (&change.thread, &change.namespace, &change.field)).collect();
        fields.sort_unstable();
        if fields.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("operation.changes", "a field changes twice".into());
        }
        let has_root = |thread: &ThreadId| fields.iter().any(|(of, namespace, _)| *of == thread && namespace.is_root());
        if !fields.iter().all(|(thread, ..)| has_root(thread)) {
            return invalid("operation.changes", "a thread without a change of its root namespace".into());
        }
        if let Some(newest) = &self.newest
            && !has_root(&newest.thread)
        {
            return invalid("operation.newest", format!("the operation does not change thread {}", newest.thread));
        }
        Ok(())
    }

    /// Returns whether a stored operation is this one.
    pub fn is_stored_as(&self, stored: &OperationRecord) -> bool {
        let mut changes = self.changes.clone();
        sort_changes(&mut changes);
        (stored.kind, stored.at, &stored.actor, stored.target) == (self.kind, self.at, &self.actor, self.target)
            && stored.changes == changes
    }
}

impl OperationQuery {
    /// Lists the newest operations with changes of a thread, or all; at most so many. 0 stands for a page of 10,000.
    pub fn new(thread: Option<ThreadId>, limit: usize) -> Self {
        Self { thread, before: None, limit }
    }
}

/// Refuses a fact that could not be read as its name demands.
fn fact_is_readable(name: &str, text: &str) -> Result<(), StoreError> {
    let reason = match name {
        LABELS => match labels_of(text) {
            Ok(labels) if labels.is_sorted_by(|a, b| a < b) => return Ok(()),
            _ => "labels are a JSON list of texts, ascending, each once",
        },
        TRASHED if trashed_until(text).is_none() => "the end of the time in the trash is a number of microseconds",
        _ => return Ok(()),
    };
    invalid("fact", format!("{name}: {reason}"))
}

/// Returns the checkpoint that a content names.
pub(crate) fn checkpoint_of(value: Option<&OperationValue>) -> Option<CheckpointId> {
    match value {
        Some(OperationValue::Checkpoint(id)) => Some(*id),
        _ => None,
    }
}

/// Sorts changes as records hold them.
pub fn sort_changes(changes: &mut [OperationChange]) {
    changes.sort_by(|a, b| (&a.thread, &a.namespace, &a.field).cmp(&(&b.thread, &b.namespace, &b.field)));
}

fn invalid(field: &'static str, reason: String) -> Result<(), StoreError> {
    Err(StoreError::Invalid { field, reason })
}

/// Decodes the labels of a thread.
pub(super) fn labels_of(text: &str) -> Result<Vec<String>, StoreError> {
    let wrong = || StoreError::Corrupt { place: "fact labels".into(), reason: "it is not a list of texts".into() };
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let labels = parsed.as_array().ok_or_else(wrong)?.iter();
    labels.map(|label| label.as_str().map(ToOwned::to_owned).ok_or_else(wrong)).collect()
}
