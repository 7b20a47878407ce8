//! Undo and redo: walks over the operations of a thread that find the one to revert.
//!
//! Each operation leaves the thread in a state that later operations build on: undo goes back along these states, and
//! redo goes forward again until something else is done. *Absent:* the listing of operations, and the meaning of
//! values.
//!
//! Invariants: nothing is deleted by an undo, so it can be undone. An undo and a redo rest on all operations before
//! them, so both state the newest one that the walk has read, and begin at the head that the walk implies: if another
//! writer was faster, the store refuses them, and nothing is undone without a request.

use std::collections::{HashMap, HashSet};

use crate::base::{CheckpointId, Namespace};
use crate::store::backend::is_pruned;
use crate::store::log::{CachedHead, HeadKey, Log, LogExt, LogReads};
use crate::store::operation::{
    ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationTarget, OperationValue,
};
use crate::store::{CheckpointRef, StoreError};

use super::operation::{CommitGroup, Operation, OperationPages, after_checkpoint};
use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;

/// About how many bytes an operation takes that an undo retains for the next one.
const OPERATION_BYTES: usize = 512;

/// The operations of a thread, read as far back as they are asked for. The newest one has index 0.
struct OperationWalk<'a> {
    backend: &'a dyn Log,
    /// The newest operation of the thread when the walk began. The store compares both parts, and either only grows, so
    /// it does not matter that the walk reads them one after the other.
    newest: ExpectedNewest,
    rest: OperationPages,
    read: Vec<Operation>,
    /// The head of the root namespace after the first operation, if that is known.
    head: Option<CheckpointId>,
}

impl<'a> OperationWalk<'a> {
    fn of(thread: &'a Thread) -> Result<Self, StoreError> {
        let backend = &**thread.store().backend();
        let mut rest = OperationPages::of(thread.id());
        rest.fill(backend)?;
        let newest = rest.newest(thread.id());
        Ok(Self { backend, newest, rest, read: Vec::new(), head: None })
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

    /// Returns the operation that an undo after the operations before an index has undone. An undo of an operation
    /// that was undone already does not count.
    fn undone_after(&mut self, target: OperationTarget, from: usize) -> Result<Undone, StoreError> {
        let (mut index, mut is_known) = (from, false);
        while let Some(operation) = self.get(index)? {
            if operation.target() == target {
                return Ok(Undone::At(index));
            }
            if let Some((kind, _)) = operation.reverts().filter(|(_, other)| !is_known && *other == target) {
                if kind == OperationKind::Undo {
                    return Ok(Undone::Before);
                }
                is_known = true;
            }
            index += 1;
        }
        Ok(Undone::Lost)
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
        let (mut undone, mut is_undone) = (Vec::new(), HashSet::new());
        for (kind, target) in reverts.iter().rev() {
            match kind {
                OperationKind::Undo if is_undone.insert(*target) => undone.push(*target),
                OperationKind::Undo => {}
                _ if is_undone.remove(target) => {
                    let at = undone.iter().rposition(|other| other == target);
                    at.map(|at| undone.remove(at));
                }
                _ => {}
            }
        }
        debug_assert_eq!(undone.len(), is_undone.len(), "the list and the set hold the same operations");
        while let Some(target) = undone.pop() {
            match self.undone_after(target, reverts.len())? {
                Undone::At(index) => return Ok(Some(index)),
                Undone::Before => {}
                Undone::Lost => return self.lost(target),
            }
        }
        Ok(None)
    }

    /// Refuses to make updates again that were pruned.
    fn lost(&self, target: OperationTarget) -> Result<Option<usize>, StoreError> {
        let OperationTarget::Commits(checkpoint) = target else { return Ok(None) };
        let (thread, namespace) = (self.newest.thread.clone(), Namespace::root());
        let at = CheckpointRef { thread, namespace, checkpoint };
        match self.backend.checkpoint(&at)? {
            Some(record) if record.pruned => Err(is_pruned(&at.thread, &checkpoint)),
            _ => Ok(None),
        }
    }

    /// Returns the head of the root namespace as the operations left it.
    fn head(&mut self) -> Result<Option<CheckpointId>, StoreError> {
        if self.head.is_none() {
            self.head = self.head_after(0)?;
        }
        Ok(self.head)
    }

    /// Returns the head of the root namespace after the operation at an index.
    fn head_after(&mut self, index: usize) -> Result<Option<CheckpointId>, StoreError> {
        let (mut older, thread) = (index, self.newest.thread.clone());
        while let Some(operation) = self.get(older)? {
            if let Some(head) = operation.head_after(&thread) {
                return Ok(Some(head));
            }
            older += 1;
        }
        Ok(None)
    }
}

/// The operation that an undo is about, in a walk.
enum Undone {
    /// The operation is at this index.
    At(usize),
    /// An undo before it has undone the operation.
    Before,
    /// The operation is not in the walk.
    Lost,
}

/// The newest undo or redo of each operation that older operations are not: `true` if it is undone.
type IsUndone = HashMap<OperationTarget, bool>;

/// The place of the last undo of a thread, in the cache of the store: the next undo goes on there, if nothing else was
/// done since. Without it each of n undos would read the undos before it.
struct UndoPlace {
    /// The undo, and the checkpoint beside it: the newest operation of the thread, if nothing was done since.
    newest: ExpectedNewest,
    /// The head of the root namespace after the undo.
    head: Option<CheckpointId>,
    /// The operations that are older than the undone one.
    rest: OperationPages,
    read: Vec<Operation>,
    is_undone: IsUndone,
}

impl UndoPlace {
    /// Returns the walk of the next undo. It begins at the place of the last one, if that is the newest operation; then
    /// the last value is true.
    fn walk(thread: &Thread) -> Result<(OperationWalk<'_>, IsUndone, bool), StoreError> {
        let fresh = OperationWalk::of(thread)?;
        let cached = thread.store().take_head(thread.id(), &Namespace::root(), HeadKey::Operations);
        match cached.and_then(|cached| cached.head.downcast::<Self>().ok()) {
            Some(place) if place.newest == fresh.newest => {
                let Self { head, rest, read, is_undone, .. } = *place;
                Ok((OperationWalk { head, rest, read, ..fresh }, is_undone, true))
            }
            _ => Ok((fresh, IsUndone::new(), false)),
        }
    }

    /// Puts a place into the cache: that of an undo, behind the operation at an index, which it has undone.
    fn retain(
        thread: &Thread,
        (undo, head): (u64, Option<CheckpointId>),
        index: usize,
        walk: OperationWalk<'_>,
        is_undone: IsUndone,
    ) {
        let OperationWalk { newest, rest, mut read, .. } = walk;
        read.drain(..=index);
        let rows = rest.rows() + read.len() + is_undone.len();
        let newest = ExpectedNewest { operation: Some(undo), ..newest };
        thread.store().cache_head(CachedHead {
            thread: thread.id().clone(),
            namespace: Namespace::root(),
            // The place is found by the id of the undo.
            checkpoint: CheckpointId::default(),
            schema: HeadKey::Operations,
            bytes: rows * OPERATION_BYTES,
            head: Box::new(Self { newest, head, rest, read, is_undone }),
        });
    }
}

impl Thread {
    /// Undoes the newest operation that is not undone: the head moves to the checkpoint at which it was before, and
    /// branches get back their earlier names. Nothing is deleted; [`Thread::redo`] makes the operation again until
    /// something else is done. Returns the operation, `None` if there is nothing to undo: the first checkpoint of a
    /// thread stays its head.
    ///
    /// An operation on several threads is undone in all of them.
    ///
    /// # Errors
    /// [`StoreError::CheckpointPruned`] if the checkpoint to which the head would move was pruned;
    /// [`StoreError::Conflict`], [`StoreError::FieldConflict`] if another writer was faster: nothing was undone, and a
    /// repeated call undoes the operation that is then the newest one; [`StoreError::FieldConflict`] also if another
    /// thread of the operation has changed since; as [`Log::operate`](crate::store::log::Log::operate).
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
        self.store().flush_abandoned();
        let (mut walk, mut is_undone, is_place) = UndoPlace::walk(self)?;
        let Some(index) = walk.newest_done(&mut is_undone)? else { return Ok(None) };
        let undone = walk.read[index].clone();
        debug_assert!(self.is_newest_done(&undone, &walk, is_place), "a place skips nothing that is done");
        let head = walk.head()?;
        let changes = match &undone {
            Operation::Commits(group) => {
                let before = walk.head_after(index + 1)?;
                match self.with_kept_parent(group).map(|()| before)? {
                    Some(before) => self.head_moves(head, before)?,
                    None => return Ok(None),
                }
            }
            Operation::Stored(record) => {
                let inverse = record.changes.iter().cloned().map(OperationChange::inverse);
                self.on_present(head, inverse.collect())?
            }
        };
        let head = changes.iter().find(|change| self.is_head(change)).map_or(head, after_checkpoint);
        let undo = self.revert(OperationKind::Undo, &undone, changes, walk.newest.clone())?;
        UndoPlace::retain(self, (undo, head), index, walk, is_undone);
        Ok(Some(undone))
    }

    /// Returns whether an operation is the newest one that is not undone, found from the newest operation on; also
    /// `true` if there is another one since the walk from the place of the last undo began.
    fn is_newest_done(&self, found: &Operation, walk: &OperationWalk<'_>, is_place: bool) -> bool {
        let Ok(mut fresh) = OperationWalk::of(self) else { return true };
        let index = fresh.newest_done(&mut IsUndone::new());
        let is_it = matches!(index, Ok(Some(index)) if fresh.read[index].target() == found.target());
        !is_place || fresh.newest != walk.newest || is_it
    }

    /// Makes the operation again that was undone last. Returns it, `None` if nothing was undone since the last
    /// operation of another kind.
    ///
    /// # Errors
    /// As [`Thread::undo`]; [`StoreError::CheckpointPruned`] also if the checkpoints of the operation were pruned.
    pub fn redo(&self) -> Result<Option<Operation>, StoreError> {
        self.store().flush_abandoned();
        let mut walk = OperationWalk::of(self)?;
        let Some(index) = walk.newest_undone()? else { return Ok(None) };
        let head = walk.head()?;
        let undone = walk.read.swap_remove(index);
        let changes = match &undone {
            Operation::Commits(group) => self.head_moves(head, group.last)?,
            Operation::Stored(record) => self.on_present(head, record.changes.clone())?,
        };
        self.revert(OperationKind::Redo, &undone, changes, walk.newest)?;
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
    fn revert(
        &self,
        kind: OperationKind,
        of: &Operation,
        changes: Vec<OperationChange>,
        newest: ExpectedNewest,
    ) -> Result<u64, StoreError> {
        let mut operation = NewOperation::new(kind, self.store().now());
        operation.target = Some(of.target());
        operation.changes = changes;
        operation.newest = Some(newest);
        self.operate(operation)
    }

    /// Returns whether a change is that of the head of the thread.
    fn is_head(&self, change: &OperationChange) -> bool {
        change.field == OperationField::Head && change.namespace.is_root() && change.thread == *self.id()
    }

    /// Makes the changes of a stored operation begin at the present content of their fields: at the head that the walk
    /// implies, and at the present heads of subgraphs, which a run may have moved since, also one that was undone. The
    /// other fields of the thread are as the walk left them, because the store compares the newest operation. They
    /// differ from those of the operation only if it was undone twice. Fields of other threads stay as they are: these
    /// threads may have changed since.
    fn on_present(
        &self,
        head: Option<CheckpointId>,
        mut changes: Vec<OperationChange>,
    ) -> Result<Vec<OperationChange>, StoreError> {
        let backend = self.store().backend();
        let mut fields = None;
        for change in &mut changes {
            let is_own = change.thread == *self.id();
            if change.field != OperationField::Head {
                if is_own {
                    let fields = match &mut fields {
                        Some(fields) => fields,
                        none => none.insert(backend.fields(self.id())?.into_iter().collect::<HashMap<_, _>>()),
                    };
                    change.before = fields.get(&change.field).cloned();
                }
            } else if !change.namespace.is_root() {
                let present = backend.head_id(&change.thread, &change.namespace)?;
                change.before = present.map(OperationValue::Checkpoint);
            } else if is_own {
                change.before = head.map(OperationValue::Checkpoint);
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
    fn an_operation_that_comes_between_refuses_an_undo_that_its_fields_allow() -> Result<(), Box<dyn std::error::Error>>
    {
        let thread = Store::memory().thread("trip")?;
        let notes = thread.with_schema(DynSchema::new().append("notes").build());
        for note in ["Bern", "Basel", "Genf"] {
            notes.update(DynUpdate::new().set("notes", note))?;
        }
        let (mut walk, mut is_undone, is_place) = UndoPlace::walk(&thread)?;
        let index = walk.newest_done(&mut is_undone)?.ok_or("there is an update")?;
        let update = walk.read[index].clone();
        assert_eq!((index, is_place), (0, false));
        let (head, before) = (walk.head()?, walk.head_after(index + 1)?.ok_or("there is an update before it")?);
        assert_eq!(head, thread.head()?.map(|head| head.id()), "the walk implies the head");
        let changes = thread.head_moves(head, before)?;
        // Another process names a branch, before the undo is stored.
        thread.name_branch_at("south", &thread.at("~1")?)?;
        let refused = thread.revert(OperationKind::Undo, &update, changes, walk.newest.clone());
        assert!(matches!(refused, Err(StoreError::FieldConflict { .. })), "{refused:?}");

        let undone = [thread.undo()?, thread.undo()?].map(|undone| undone.map(|undone| undone.name()));
        assert_eq!(undone, [Some("name branch"), Some("update")]);
        Ok(())
    }
}
