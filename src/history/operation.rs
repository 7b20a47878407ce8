//! The operations of a thread: its runs and updates, and the stored operations between them; undo and redo.
//!
//! A run or an update is derived from its checkpoints, so that it costs nothing. Each entry of the walk leaves the
//! thread in a state that later entries build on: undo goes back along these states, and redo goes forward again until
//! something else is done. *Absent:* the meaning of values; an undo moves heads and names, and writes no checkpoint.
//!
//! Invariant: nothing is deleted by an undo, so it can be undone.

use std::collections::{HashMap, VecDeque};

use crate::base::limits::{HISTORY_PAGE_ROWS, OPERATION_ROWS_MIN};
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::store::{
    Backend, CachedHead, CheckpointQuery, CheckpointRecord, HeadKey, NewOperation, OperationChange, OperationField,
    OperationKind, OperationQuery, OperationRecord, OperationTarget, OperationValue, Source, StoreError,
};

use super::snapshot::Snapshot;
use super::thread::Thread;

/// About how many bytes an operation takes that an undo retains for the next one.
const OPERATION_BYTES: usize = 512;

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

    /// Returns the user, the program or the part of a program that made a stored operation, if it is known.
    pub fn actor(&self) -> Option<&str> {
        match self {
            Self::Commits(_) => None,
            Self::Stored(record) => record.actor.as_deref(),
        }
    }

    fn target(&self) -> OperationTarget {
        match self {
            Self::Commits(group) => OperationTarget::Commits(group.last),
            Self::Stored(record) => OperationTarget::Operation(record.id),
        }
    }

    /// Returns the operation that an undo or a redo is about, with its kind.
    fn reverts(&self) -> Option<(OperationKind, OperationTarget)> {
        match self {
            Self::Stored(record @ OperationRecord { kind: OperationKind::Undo | OperationKind::Redo, .. }) => {
                record.target.map(|target| (record.kind, target))
            }
            _ => None,
        }
    }

    /// Returns the head of the root namespace of a thread after it, if it changed that.
    fn head_after(&self, thread: &ThreadId) -> Option<CheckpointId> {
        match self {
            Self::Commits(group) => Some(group.last),
            Self::Stored(record) => {
                let is_head = |change: &&OperationChange| {
                    change.thread == *thread && change.namespace.is_root() && change.field == OperationField::Head
                };
                match record.changes.iter().find(is_head)?.after {
                    Some(OperationValue::Checkpoint(id)) => Some(id),
                    _ => None,
                }
            }
        }
    }
}

/// The operations of a thread, newest first, read page by page.
#[derive(Debug)]
pub struct Operations {
    thread: Thread,
    pages: OperationPages,
}

/// The checkpoints and the stored operations of a thread that were read but not returned yet, and the queries for the
/// older ones. The first pages are short: an undo needs a few rows.
#[derive(Debug)]
struct OperationPages {
    checkpoints: VecDeque<CheckpointRecord>,
    older_checkpoints: Option<CheckpointQuery>,
    stored: VecDeque<OperationRecord>,
    older_stored: Option<OperationQuery>,
}

impl OperationPages {
    fn of(thread: &ThreadId) -> Self {
        let mut checkpoints = CheckpointQuery::new(thread.clone(), Namespace::root());
        checkpoints.limit = OPERATION_ROWS_MIN;
        let stored = OperationQuery::new().thread(thread.clone()).limit(OPERATION_ROWS_MIN);
        Self {
            checkpoints: VecDeque::new(),
            older_checkpoints: Some(checkpoints),
            stored: VecDeque::new(),
            older_stored: Some(stored),
        }
    }

    /// Reads the next page of each kind that is used up.
    fn fill(&mut self, backend: &dyn Backend) -> Result<(), StoreError> {
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

    fn read(&mut self, backend: &dyn Backend) -> Result<Option<Operation>, StoreError> {
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

impl Operations {
    pub(super) fn of(thread: &Thread) -> Self {
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

/// The operations of a thread, read as far back as they are asked for. The newest one has index 0.
struct OperationWalk<'a> {
    backend: &'a dyn Backend,
    rest: OperationPages,
    read: Vec<Operation>,
}

impl<'a> OperationWalk<'a> {
    fn of(thread: &'a Thread) -> Self {
        Self { backend: &**thread.store().backend(), rest: OperationPages::of(thread.id()), read: Vec::new() }
    }

    fn get(&mut self, index: usize) -> Result<Option<&Operation>, StoreError> {
        while self.read.len() <= index {
            match self.rest.read(self.backend)? {
                Some(operation) => self.read.push(operation),
                None => return Ok(None),
            }
        }
        Ok(self.read.get(index))
    }

    fn target(&mut self, index: usize) -> Result<Option<OperationTarget>, StoreError> {
        Ok(self.get(index)?.map(Operation::target))
    }

    /// Returns the index of an operation that is older than the one at an index; `None` if it is lost.
    fn find(&mut self, target: OperationTarget, after: usize) -> Result<Option<usize>, StoreError> {
        let mut index = after + 1;
        while let Some(operation) = self.get(index)? {
            if operation.target() == target {
                return Ok(Some(index));
            }
            index += 1;
        }
        Ok(None)
    }

    /// Returns the index of the newest operation that is not undone. An operation on several threads may be undone
    /// through another thread, so newer operations than it can be left. `is_undone` are the undos and redos of
    /// operations before the first one.
    fn newest_done(&mut self, is_undone: &mut IsUndone) -> Result<Option<usize>, StoreError> {
        let mut index = 0;
        while let Some(operation) = self.get(index)? {
            match operation.reverts() {
                Some((kind, target)) => _ = is_undone.entry(target).or_insert(kind == OperationKind::Undo),
                None if is_undone.remove(&operation.target()) == Some(true) => {}
                None => return Ok(Some(index)),
            }
            index += 1;
        }
        Ok(None)
    }

    /// Returns the index of the operation that was undone last and can be made again.
    fn newest_undone(&mut self) -> Result<Option<usize>, StoreError> {
        let mut reverts = Vec::new();
        while let Some(found) = self.get(reverts.len())?.and_then(Operation::reverts) {
            reverts.push(found);
        }
        let mut undone = Vec::new();
        for (kind, target) in reverts.iter().rev() {
            match kind {
                OperationKind::Undo => undone.push(*target),
                _ => undone.retain(|other| other != target),
            }
        }
        match undone.pop() {
            Some(target) => self.find(target, reverts.len().saturating_sub(1)),
            None => Ok(None),
        }
    }

    /// Returns the head of the root namespace before the operation at an index.
    fn head_before(&mut self, thread: &ThreadId, index: usize) -> Result<Option<CheckpointId>, StoreError> {
        let mut older = index + 1;
        while let Some(operation) = self.get(older)? {
            if let Some(head) = operation.head_after(thread) {
                return Ok(Some(head));
            }
            older += 1;
        }
        Ok(None)
    }
}

/// The newest undo or redo of each operation that older operations are not: `true` if it is undone.
type IsUndone = HashMap<OperationTarget, bool>;

/// The place of the last undo of a thread, in the cache of the store: the next undo goes on there, if nothing else was
/// done since. Without it each of n undos would read the undos before it.
struct UndoPlace {
    /// The id of the undo.
    undo: u64,
    /// The newest operation when the undo began. Another one between the two is not part of the place.
    before: OperationTarget,
    /// The operations that are older than the undone one.
    rest: OperationPages,
    read: Vec<Operation>,
    is_undone: IsUndone,
}

impl UndoPlace {
    /// Returns the walk of the next undo. It begins at the place of the last one, whose id is returned too, if that is
    /// the newest operation, and nothing was done beside it.
    fn walk(thread: &Thread) -> Result<(OperationWalk<'_>, IsUndone, Option<u64>), StoreError> {
        let mut fresh = OperationWalk::of(thread);
        let cached = thread.store().heads().take(thread.id(), &Namespace::root(), HeadKey::Operations);
        let Some(place) = cached.and_then(|cached| cached.head.downcast::<Self>().ok()) else {
            return Ok((fresh, IsUndone::new(), None));
        };
        let newest = [fresh.target(0)?, fresh.target(1)?];
        if newest != [Some(OperationTarget::Operation(place.undo)), Some(place.before)] {
            return Ok((fresh, IsUndone::new(), None));
        }
        let Self { undo, rest, read, is_undone, .. } = *place;
        Ok((OperationWalk { rest, read, ..fresh }, is_undone, Some(undo)))
    }

    /// Puts a place into the cache: that of an undo, behind the operation at an index, which it has undone.
    fn retain(
        thread: &Thread,
        (before, undo): (OperationTarget, u64),
        index: usize,
        walk: OperationWalk<'_>,
        is_undone: IsUndone,
    ) {
        let OperationWalk { rest, mut read, .. } = walk;
        read.drain(..=index);
        let rows = rest.checkpoints.len() + rest.stored.len() + read.len() + is_undone.len();
        thread.store().heads().put(CachedHead {
            thread: thread.id().clone(),
            namespace: Namespace::root(),
            // The place is found by the id of the undo.
            checkpoint: CheckpointId::default(),
            schema: HeadKey::Operations,
            bytes: rows * OPERATION_BYTES,
            head: Box::new(Self { undo, before, rest, read, is_undone }),
        });
    }
}

impl Thread {
    /// Returns the operations of the thread, newest first: its runs and updates, moves of its head, names of branches,
    /// undos and redos. A run that was continued after an operation counts as two.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; each item may fail alike.
    #[doc(alias = "reflog")]
    pub fn operations(&self) -> Result<Operations, StoreError> {
        self.store().settle_abandoned();
        let mut operations = Operations::of(self);
        operations.pages.fill(&**self.store().backend())?;
        Ok(operations)
    }

    /// Undoes the newest operation that is not undone: the head moves to the checkpoint at which it was before, and
    /// branches get back their earlier names. Nothing is deleted; [`Thread::redo`] makes the operation again until
    /// something else is done. Returns the operation, `None` if there is nothing to undo: the first checkpoint of a
    /// thread stays its head.
    ///
    /// An operation on several threads is undone in all of them.
    ///
    /// # Errors
    /// [`StoreError::CheckpointPruned`] if the checkpoint to which the head would move was pruned;
    /// [`StoreError::Conflict`], [`StoreError::FieldConflict`] if another writer was faster, or changed another thread
    /// of the operation since; as [`Backend::operate`](crate::store::Backend::operate).
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Note { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let note = Store::memory().thread("monday")?.with_state::<Note>();
    /// note.update(Note::update().text("draft"))?;
    /// note.update(Note::update().text("edited"))?;
    ///
    /// note.thread().undo()?.expect("the update is undone");
    /// assert_eq!(note.state()?.text, "draft");
    /// note.thread().redo()?.expect("the update is made again");
    /// assert_eq!(note.state()?.text, "edited");
    /// assert!(note.thread().redo()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn undo(&self) -> Result<Option<Operation>, StoreError> {
        self.store().settle_abandoned();
        let (mut walk, mut is_undone, last_undo) = UndoPlace::walk(self)?;
        let Some(index) = walk.newest_done(&mut is_undone)? else { return Ok(None) };
        let undone = walk.read[index].clone();
        let before = last_undo.map_or_else(|| walk.read[0].target(), OperationTarget::Operation);
        debug_assert!(self.is_newest_done(&undone, last_undo), "a place skips nothing that is done");
        let changes = match &undone {
            Operation::Commits(group) => {
                let head = walk.head_before(self.id(), index)?;
                match self.with_kept_parent(group).map(|()| head)? {
                    Some(head) => self.head_changes(head)?,
                    None => return Ok(None),
                }
            }
            Operation::Stored(record) => {
                let inverse = record.changes.iter().cloned().map(OperationChange::inverse);
                self.on_present_subgraphs(inverse.collect())?
            }
        };
        let undo = self.revert(OperationKind::Undo, &undone, changes)?;
        UndoPlace::retain(self, (before, undo), index, walk, is_undone);
        Ok(Some(undone))
    }

    /// Returns whether an operation is the newest one that is not undone, found from the newest operation on; also
    /// `true` if that is not the last undo any more, at whose place the operation was found.
    fn is_newest_done(&self, found: &Operation, last_undo: Option<u64>) -> bool {
        let mut walk = OperationWalk::of(self);
        let newest = walk.get(0).ok().flatten().map(Operation::target);
        let has_changed = last_undo.is_none_or(|undo| newest != Some(OperationTarget::Operation(undo)));
        let index = walk.newest_done(&mut IsUndone::new());
        has_changed || matches!(index, Ok(Some(index)) if walk.read[index].target() == found.target())
    }

    /// Makes the operation again that was undone last. Returns it, `None` if nothing was undone since the last
    /// operation of another kind.
    ///
    /// # Errors
    /// As [`Thread::undo`].
    pub fn redo(&self) -> Result<Option<Operation>, StoreError> {
        self.store().settle_abandoned();
        let mut walk = OperationWalk::of(self);
        let Some(index) = walk.newest_undone()? else { return Ok(None) };
        let undone = walk.read.swap_remove(index);
        let changes = match &undone {
            Operation::Commits(group) => self.head_changes(group.last)?,
            Operation::Stored(record) => self.on_present_subgraphs(record.changes.clone())?,
        };
        self.revert(OperationKind::Redo, &undone, changes)?;
        Ok(Some(undone))
    }

    /// Refuses to go back to before a run whose beginning, or the checkpoint before it, was pruned.
    fn with_kept_parent(&self, group: &CommitGroup) -> Result<(), StoreError> {
        let backend = self.store().backend();
        let root = self.with_namespace(Namespace::root());
        let first = backend.checkpoint(&root.point(group.first))?;
        match first
            .and_then(|first| first.parent_ref())
            .map(|parent| backend.checkpoint(&parent))
            .transpose()?
            .flatten()
        {
            Some(parent) => Snapshot::kept(self.store(), parent).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Stores an undo or a redo, and returns its id.
    fn revert(&self, kind: OperationKind, of: &Operation, changes: Vec<OperationChange>) -> Result<u64, StoreError> {
        let mut operation = NewOperation::new(kind, self.store().now());
        operation.target = Some(of.target());
        operation.changes = changes;
        self.operate(operation)
    }

    /// Stores an operation with the actor of this handle.
    pub(super) fn operate(&self, mut operation: NewOperation) -> Result<u64, StoreError> {
        operation.actor = self.actor().map(ToOwned::to_owned);
        self.store().backend().operate(&operation)
    }

    /// Makes the changes of heads of subgraphs begin at their present heads: a run may have moved them since, also one
    /// that was undone.
    fn on_present_subgraphs(&self, mut changes: Vec<OperationChange>) -> Result<Vec<OperationChange>, StoreError> {
        for change in &mut changes {
            if change.field == OperationField::Head && !change.namespace.is_root() {
                let present = self.store().backend().head_id(&change.thread, &change.namespace)?;
                change.before = present.map(OperationValue::Checkpoint);
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{DynSchema, DynUpdate};
    use crate::store::Store;

    #[test]
    fn an_undo_finds_an_operation_that_came_beside_the_last_undo() -> Result<(), Box<dyn std::error::Error>> {
        let thread = Store::memory().thread("trip")?;
        let notes = thread.with_schema(DynSchema::new().append("notes").build());
        for note in ["Bern", "Basel", "Genf"] {
            notes.update(DynUpdate::new().set("notes", note))?;
        }
        let (mut walk, mut is_undone, last_undo) = UndoPlace::walk(&thread)?;
        let index = walk.newest_done(&mut is_undone)?.ok_or("there is an update")?;
        let (newest, update) = (walk.read[0].target(), walk.read[index].clone());
        assert_eq!((index, last_undo), (0, None));
        let before = walk.head_before(thread.id(), index)?.ok_or("there is an update before it")?;
        let changes = thread.head_changes(before)?;
        // Another process names a branch, before the undo is stored.
        thread.name_branch_at("south", &thread.at("~1")?)?;
        let undo = thread.revert(OperationKind::Undo, &update, changes)?;
        UndoPlace::retain(&thread, (newest, undo), index, walk, is_undone);

        let undone = thread.undo()?.ok_or("the branch is left")?;
        assert_eq!(undone.name(), "name branch");
        Ok(())
    }
}
