//! Branches of a thread: the head that moves between them, their names, and the lineages that they share.
//!
//! A branch ends at a checkpoint that no other one of its namespace continues. The branch of the head goes on with each
//! commit; a branch that the head left without giving it a name is abandoned: it is not listed by default, and never
//! lost. *Absent:* deleting anything.

use std::collections::VecDeque;
use std::fmt;

use crate::base::limits::HISTORY_PAGE_ROWS;
use crate::base::{CheckpointId, Namespace};
use crate::store::log::{CheckpointQuery, LogExt};
use crate::store::operation::{
    BranchRecord, ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationValue,
};
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, StoreError};

use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;

/// A branch of a thread: its last checkpoint, and its name if it has one.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ThreadBranch {
    /// The name.
    pub name: Option<String>,
    /// The last checkpoint.
    pub last: Snapshot,
    /// True if the head is on it.
    pub is_current: bool,
}

impl ThreadBranch {
    /// Returns whether it has neither a name nor the head.
    pub fn is_abandoned(&self) -> bool {
        self.name.is_none() && !self.is_current
    }
}

impl fmt::Debug for ThreadBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, last, is_current } = self;
        let mut shown = f.debug_struct("ThreadBranch");
        shown.field("name", name).field("last", &last.id()).field("is_current", is_current).finish()
    }
}

/// The names of the branches of a thread.
struct BranchNames {
    /// Each name with the checkpoint at which the head left the branch.
    named: Vec<(String, CheckpointId)>,
    current: Option<String>,
}

impl BranchNames {
    fn at(&self, name: &str) -> Option<CheckpointId> {
        self.named.iter().find(|(of, _)| of == name).map(|(_, at)| *at)
    }
}

impl Thread {
    /// Moves the head back to a checkpoint of the thread, in one durable operation; the heads of subgraphs that persist
    /// their state follow. Nothing is deleted: the checkpoints after it become an abandoned branch with the next
    /// commit, and
    /// [`Thread::undo`] moves the head to where it was.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the checkpoint is one of another thread or of a subgraph; [`StoreError::Conflict`] if
    /// another writer was faster; as [`Log::operate`](crate::store::log::Log::operate).
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// let chat = thread.with_schema(DynSchema::new().messages("messages").build());
    /// for text in ["A hotel in Bern", "A hotel in Basel", "A hotel in Biel"] {
    ///     chat.update(DynUpdate::new().messages("messages", [Message::human(text)]))?;
    /// }
    /// thread.rewind_to(&thread.at("~2")?)?;
    /// assert_eq!(chat.state()?.messages("messages").map(List::len), Some(1));
    ///
    /// chat.update(DynUpdate::new().messages("messages", [Message::human("A hostel in Thun")]))?;
    /// assert_eq!(chat.state()?.messages("messages").map(List::len), Some(2));
    /// assert_eq!((thread.branches()?.len(), thread.all_branches()?.len()), (1, 2), "one branch is abandoned");
    /// # Ok(())
    /// # }
    /// ```
    pub fn rewind_to(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        self.own(snapshot.point(), "rewind")?;
        let head = self.head_id()?;
        let changes = self.head_changes(head, snapshot.id())?;
        if changes.is_empty() {
            return Ok(());
        }
        let mut operation = NewOperation::new(OperationKind::Rewind, self.store().now());
        operation.changes = changes;
        self.operate(operation).map(|_| ())
    }

    /// Moves the head to the end of another branch of the thread, which becomes the current one; the heads of subgraphs
    /// that persist their state follow.
    ///
    /// # Errors
    /// As [`Thread::rewind_to`]; [`StoreError::FieldConflict`] if another writer renamed the branch or moved its end
    /// since it was read, or was faster.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Plan { transport: String }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// let plan = thread.with_state::<Plan>();
    /// plan.update(Plan::update().transport("open"))?;
    /// plan.update(Plan::update().transport("bus"))?;
    /// thread.name_branch("by bus")?;
    ///
    /// thread.name_branch_at("by train", &thread.at("~1")?)?;
    /// thread.switch(&thread.branch("by train")?)?;
    /// plan.update(Plan::update().transport("train"))?;
    /// thread.switch(&thread.branch("by bus")?)?;
    /// assert_eq!(plan.state()?.transport, "bus");
    /// let train = thread.branch("by train")?;
    /// assert_eq!(train.last.state::<Plan>()?.transport, "train", "a branch ends where the head left it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn switch(&self, branch: &ThreadBranch) -> Result<(), StoreError> {
        self.own(branch.last.point(), "switch")?;
        let (newest, names) = self.names_to_change()?;
        let head = self.head_id()?;
        let mut changes = self.head_changes(head, branch.last.id())?;
        if names.current != branch.name {
            if let Some(name) = &branch.name
                && names.at(name) != Some(branch.last.id())
            {
                let field = OperationField::Branch(name.clone()).to_string();
                return Err(StoreError::FieldConflict { thread: self.id().clone(), field });
            }
            if let Some(left) = &names.current {
                changes.push(self.branch_change(left, names.at(left), head));
            }
            changes.push(self.current_change(names.current, branch.name.clone()));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut operation = NewOperation::new(OperationKind::Switch, self.store().now());
        (operation.changes, operation.newest) = (changes, Some(newest));
        self.operate(operation).map(|_| ())
    }

    /// Gives the branch of the head a name, in place of the one that it may have. The name follows the head: through
    /// commits, rewinds and undos, until [`Thread::switch`] leaves the branch.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the thread has no checkpoint, if another branch has this name, or if the name is
    /// empty, longer than 256 bytes or holds a NUL; [`StoreError::FieldConflict`] if another writer was faster.
    pub fn name_branch(&self, name: &str) -> Result<(), StoreError> {
        let (newest, names) = self.names_to_change()?;
        let Some(head) = self.head_id()? else {
            return Err(StoreError::Invalid { field: "branch", reason: "the thread has no checkpoint".into() });
        };
        if names.current.as_deref() == Some(name) {
            return Ok(());
        }
        self.not_taken(&names, name)?;
        let mut changes = vec![self.branch_change(name, None, Some(head))];
        if let Some((old, at)) = names.named.iter().find(|(old, _)| Some(old) == names.current.as_ref()) {
            changes.push(self.branch_change(old, Some(*at), None));
        }
        changes.push(self.current_change(names.current, Some(name.to_owned())));
        self.operate_names(changes, newest)
    }

    /// Gives a name to the branch that ends at a checkpoint of the thread. The head stays where it is.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the checkpoint is one of another thread or of a subgraph; else as
    /// [`Thread::name_branch`].
    pub fn name_branch_at(&self, name: &str, snapshot: &Snapshot) -> Result<(), StoreError> {
        self.own(snapshot.point(), "branch")?;
        let (newest, names) = self.names_to_change()?;
        self.not_taken(&names, name)?;
        self.operate_names(vec![self.branch_change(name, None, Some(snapshot.id()))], newest)
    }

    /// Takes its name from a branch. Its checkpoints stay.
    ///
    /// # Errors
    /// [`StoreError::BranchNotFound`]; [`StoreError::FieldConflict`] if another writer was faster.
    pub fn remove_branch_name(&self, name: &str) -> Result<(), StoreError> {
        let (newest, names) = self.names_to_change()?;
        let Some(at) = names.at(name) else {
            return Err(StoreError::BranchNotFound { thread: self.id().clone(), name: name.to_owned() });
        };
        let mut changes = vec![self.branch_change(name, Some(at), None)];
        if names.current.as_deref() == Some(name) {
            changes.push(self.current_change(names.current, None));
        }
        self.operate_names(changes, newest)
    }

    /// Returns the branch with a name.
    ///
    /// # Errors
    /// [`StoreError::BranchNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn branch(&self, name: &str) -> Result<ThreadBranch, StoreError> {
        let not_found = || StoreError::BranchNotFound { thread: self.id().clone(), name: name.to_owned() };
        let names = self.branch_names()?;
        let at = names.at(name).ok_or_else(not_found)?;
        // A thread without a head has no branches.
        let head = self.root().head()?.ok_or_else(not_found)?;
        let is_current = names.current.as_deref() == Some(name);
        let last = if is_current { head } else { self.stored(at)? };
        Ok(ThreadBranch { name: Some(name.to_owned()), last, is_current })
    }

    /// Returns the branches that have a name or the head: the one with the head first, the others by name.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn branches(&self) -> Result<Vec<ThreadBranch>, StoreError> {
        let mut branches = self.named_branches()?;
        branches.sort_by_key(|branch| !branch.is_current);
        Ok(branches)
    }

    /// Returns all branches: those of [`Thread::branches`], then the abandoned ones, newest first. It costs some
    /// indexed reads for each branch of the log.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn all_branches(&self) -> Result<Vec<ThreadBranch>, StoreError> {
        let mut branches = self.branches()?;
        let records = self.root().branch_records()?;
        for record in &records {
            let is_listed = branches.iter().any(|branch| branch.last.id() == record.last.point.checkpoint);
            if ends(&records, &record.last) && !is_listed {
                let last = Snapshot::new(self.store().clone(), record.last.clone());
                branches.push(ThreadBranch { name: None, last, is_current: false });
            }
        }
        Ok(branches)
    }

    /// Returns the branches of the namespace as the log stores them, the newest first: each with its last checkpoint
    /// and the place at which it leaves another one. It costs some indexed reads for each.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn branch_records(&self) -> Result<Vec<BranchRecord>, StoreError> {
        self.store().flush_abandoned();
        self.store().backend().branches(self.id(), self.namespace())
    }

    fn root(&self) -> Self {
        self.with_namespace(Namespace::root())
    }

    fn named_branches(&self) -> Result<Vec<ThreadBranch>, StoreError> {
        let names = self.branch_names()?;
        let Some(head) = self.root().head()? else { return Ok(Vec::new()) };
        let mut branches = Vec::with_capacity(names.named.len() + 1);
        if names.current.is_none() {
            branches.push(ThreadBranch { name: None, last: head.clone(), is_current: true });
        }
        for (name, at) in names.named {
            let is_current = names.current.as_ref() == Some(&name);
            let last = if is_current { head.clone() } else { self.stored(at)? };
            branches.push(ThreadBranch { name: Some(name), last, is_current });
        }
        Ok(branches)
    }

    fn stored(&self, id: CheckpointId) -> Result<Snapshot, StoreError> {
        let record = self.store().backend().checkpoint(&self.root().point(id))?;
        let not_found = || StoreError::CheckpointNotFound { thread: self.id().clone(), id: id.to_string() };
        Ok(Snapshot::new(self.store().clone(), record.ok_or_else(not_found)?))
    }

    fn branch_names(&self) -> Result<BranchNames, StoreError> {
        let mut names = BranchNames { named: Vec::new(), current: None };
        for field in self.fields()? {
            match field {
                (OperationField::Branch(name), OperationValue::Checkpoint(at)) => names.named.push((name, at)),
                (OperationField::CurrentBranch, OperationValue::Text(name)) => names.current = Some(name),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Reads the names for an operation that changes some of them. The operation states the newest one before it,
    /// because it rests on names that it does not change.
    fn names_to_change(&self) -> Result<(ExpectedNewest, BranchNames), StoreError> {
        self.store().flush_abandoned();
        Ok((self.newest_operation()?, self.branch_names()?))
    }

    fn head_id(&self) -> Result<Option<CheckpointId>, StoreError> {
        self.store().flush_abandoned();
        self.store().backend().head_id(self.id(), &Namespace::root())
    }

    fn operate_names(&self, changes: Vec<OperationChange>, newest: ExpectedNewest) -> Result<(), StoreError> {
        let mut operation = NewOperation::new(OperationKind::NameBranch, self.store().now());
        (operation.changes, operation.newest) = (changes, Some(newest));
        self.operate(operation).map(|_| ())
    }

    fn branch_change(&self, name: &str, before: Option<CheckpointId>, after: Option<CheckpointId>) -> OperationChange {
        let value = |id: Option<CheckpointId>| id.map(OperationValue::Checkpoint);
        let field = OperationField::Branch(name.to_owned());
        OperationChange::new(self.id().clone(), Namespace::root(), field, value(before), value(after))
    }

    fn current_change(&self, before: Option<String>, after: Option<String>) -> OperationChange {
        let value = |name: Option<String>| name.map(OperationValue::Text);
        let field = OperationField::CurrentBranch;
        OperationChange::new(self.id().clone(), Namespace::root(), field, value(before), value(after))
    }

    fn not_taken(&self, names: &BranchNames, name: &str) -> Result<(), StoreError> {
        if names.named.iter().any(|(taken, _)| taken == name) {
            let reason = format!("{name:?} is the name of another branch");
            return Err(StoreError::Invalid { field: "branch.name", reason });
        }
        Ok(())
    }

    /// Refuses a checkpoint of another thread or of a subgraph.
    fn own(&self, point: &CheckpointRef, field: &'static str) -> Result<(), StoreError> {
        if point.thread == *self.id() && point.namespace.is_root() {
            return Ok(());
        }
        let reason = format!(
            "checkpoint {} is not one of the root namespace of thread {}; a subgraph follows the graph that it is part of",
            point.checkpoint,
            self.id()
        );
        Err(StoreError::Invalid { field, reason })
    }

    /// Returns the changes that move the head of the thread from where it was read to a checkpoint, and the heads of
    /// subgraphs along; none if it is there.
    fn head_changes(&self, head: Option<CheckpointId>, to: CheckpointId) -> Result<Vec<OperationChange>, StoreError> {
        if head == Some(to) { Ok(Vec::new()) } else { self.head_moves(head, to) }
    }

    /// Returns the changes that move the head of the thread from one checkpoint to another one, and the heads of
    /// subgraphs along. The first one is there also if the head is at the other checkpoint already.
    pub(crate) fn head_moves(
        &self,
        from: Option<CheckpointId>,
        to: CheckpointId,
    ) -> Result<Vec<OperationChange>, StoreError> {
        let root = self.root();
        let backend = root.store().backend();
        let mut changes = vec![OperationChange::head(root.id().clone(), root.namespace().clone(), from, Some(to))];
        let at = self.stored(to)?;
        let mut target: Option<MoveTarget> = None;
        for namespace in backend.namespaces(root.id())? {
            // The namespace of a subgraph that keeps no state beyond its task names the task.
            if namespace.is_root() || namespace.as_str().contains(':') {
                continue;
            }
            let found = backend.head_id(root.id(), &namespace)?;
            let target = match &target {
                Some(target) => target,
                None => target.insert(MoveTarget::new(at.clone())?),
            };
            let wanted = target.of_subgraph(&namespace)?.unwrap_or(found);
            if found != wanted {
                changes.push(OperationChange::head(root.id().clone(), namespace, found, wanted));
            }
        }
        Ok(changes)
    }
}

/// The checkpoint to which the head of a thread moves.
struct MoveTarget {
    at: Snapshot,
    /// True if no checkpoint continues it.
    is_end: bool,
}

impl MoveTarget {
    fn new(at: Snapshot) -> Result<Self, StoreError> {
        let branches = at.store().backend().branches(&at.point().thread, &at.point().namespace)?;
        Ok(Self { is_end: ends(&branches, at.record()), at })
    }

    /// Returns the newest checkpoint of a subgraph on which the state at the target rests: it was made while the
    /// outermost graph stood on the lineage before the target, or at it, if nothing continues that. `Some(None)` if
    /// there is none, and `None` if no checkpoint of the subgraph names one of the outermost graph.
    fn of_subgraph(&self, namespace: &Namespace) -> Result<Option<Option<CheckpointId>>, StoreError> {
        let store = self.at.store().clone();
        let mut query = CheckpointQuery::new(self.at.point().thread.clone(), namespace.clone());
        query.limit = HISTORY_PAGE_ROWS;
        let mut is_part = false;
        loop {
            let page = store.backend().checkpoints(&query)?;
            let Some(last) = page.last() else { return Ok(is_part.then_some(None)) };
            query.before = Some(last.point.checkpoint);
            for record in &page {
                let Some((_, root)) = record.parents.iter().find(|(of, _)| of.is_root()) else { continue };
                is_part = true;
                let counts = if *root == self.at.id() { self.is_end } else { self.follows(*root)? };
                if counts {
                    return Ok(Some(Some(record.point.checkpoint)));
                }
            }
        }
    }

    /// Returns whether the target follows a checkpoint of its namespace, also one that was pruned.
    fn follows(&self, id: CheckpointId) -> Result<bool, StoreError> {
        let (backend, at) = (self.at.store().backend(), self.at.point());
        let record = backend.checkpoint(&CheckpointRef { checkpoint: id, ..at.clone() })?;
        let Some(record) = record.filter(|record| record.ordinal < self.at.record().ordinal) else { return Ok(false) };
        let found = backend.ancestors(at, &[record.ordinal])?.pop().flatten();
        Ok(found.is_some_and(|found| found.point.checkpoint == id))
    }
}

/// Returns whether no checkpoint of the namespace continues this one.
fn ends(branches: &[BranchRecord], checkpoint: &CheckpointRecord) -> bool {
    let is_last = branches.iter().any(|branch| branch.last.point == checkpoint.point);
    is_last && !branches.iter().any(|branch| branch.leaves == Some((checkpoint.branch, checkpoint.ordinal)))
}

/// The checkpoints of a lineage, newest first, read page by page.
#[derive(Debug)]
struct Lineage {
    at: Snapshot,
    page: VecDeque<CheckpointRecord>,
    /// The ordinal below which the next page begins.
    below: u64,
}

impl Lineage {
    fn read(&mut self) -> Result<Option<Snapshot>, StoreError> {
        while self.page.is_empty() && self.below > 0 {
            let lowest = self.below.saturating_sub(HISTORY_PAGE_ROWS as u64);
            let ordinals: Vec<u64> = (lowest..self.below).rev().collect();
            let found = self.at.store().backend().ancestors(self.at.point(), &ordinals)?;
            let mut page: VecDeque<CheckpointRecord> = found.into_iter().flatten().collect();
            self.below = lowest;
            // The next page begins at the last checkpoint of this one, so that a walk is linear.
            if let Some(last) = page.back() {
                self.at = Snapshot::new(self.at.store().clone(), last.clone());
            }
            page.retain(|record| !record.pruned);
            self.page = page;
        }
        let store = self.at.store().clone();
        Ok(self.page.pop_front().map(|record| Snapshot::new(store, record)))
    }
}

impl Iterator for Lineage {
    type Item = Result<Snapshot, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read();
        if next.is_err() {
            self.below = 0;
        }
        next.transpose()
    }
}

impl Snapshot {
    /// Returns the lineage: this checkpoint, its parent, and so on, across forks. No state is read. Checkpoints that
    /// were pruned are passed over.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Count { n: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("count")?;
    /// for n in 0..3 {
    ///     thread.update(Count::update().n(n))?;
    /// }
    /// let fork = thread.at("~1")?.fork_to("other")?;
    /// let lineage = fork.head()?.expect("a fork has a head").lineage();
    /// let states = lineage.map(|snapshot| Ok(snapshot?.state::<Count>()?.n)).collect::<Result<Vec<_>>>()?;
    /// assert_eq!(states, [1, 1, 0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lineage(&self) -> impl Iterator<Item = Result<Snapshot, StoreError>> + fmt::Debug + use<> {
        Lineage { at: self.clone(), page: VecDeque::new(), below: self.record().ordinal + 1 }
    }

    /// Returns the newest checkpoint that is on the lineages of both, also if they are of two threads; `None` if the
    /// two have nothing in common. It reads about as many rows as lie between the checkpoints and the one in common.
    ///
    /// # Errors
    /// [`StoreError::CheckpointPruned`] if it was pruned; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// let notes = thread.with_schema(DynSchema::new().append("notes").build());
    /// for note in ["Bern", "Basel"] {
    ///     notes.update(DynUpdate::new().set("notes", note))?;
    /// }
    /// let common = thread.at("~1")?;
    /// let fork = common.fork_to("other")?.head()?.expect("a fork has a head");
    /// assert_eq!(thread.at("@")?.common_ancestor(&fork)?, Some(common));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "merge_base")]
    pub fn common_ancestor(&self, other: &Self) -> Result<Option<Self>, StoreError> {
        let highest = self.record().ordinal.min(other.record().ordinal);
        let (mut own, mut others) = (self.clone(), other.clone());
        let (mut from, mut step) = (highest, 1);
        // Goes back in growing steps until the lineages meet, then searches the last step.
        loop {
            let (Some(a), Some(b)) = (own.ancestor(from)?, others.ancestor(from)?) else { return Ok(None) };
            if a.point() == b.point() {
                break;
            }
            if from == 0 {
                return Ok(None);
            }
            (own, others) = (a, b);
            from = from.saturating_sub(step);
            step *= 2;
        }
        // The lineages have `from` in common; above `own` they do not meet, or nothing was searched yet.
        let (mut common, mut apart) = (from, own.record().ordinal.min(others.record().ordinal));
        if common == highest {
            return self.kept_ancestor(highest);
        }
        debug_assert!(common < apart, "the lineages part above the last common ancestor");
        while apart - common > 1 {
            let middle = common + (apart - common) / 2;
            let (Some(a), Some(b)) = (own.ancestor(middle)?, others.ancestor(middle)?) else { return Ok(None) };
            if a.point() == b.point() {
                common = middle;
            } else {
                (apart, own, others) = (middle, a, b);
            }
        }
        own.kept_ancestor(common)
    }

    fn kept_ancestor(&self, ordinal: u64) -> Result<Option<Self>, StoreError> {
        let found = self.ancestor(ordinal)?;
        found.map(|found| Self::kept(self.store(), found.record().clone())).transpose()
    }

    /// Returns the checkpoints of the lineage that have these ordinals, in the order asked for, pruned ones included;
    /// `None` for an ordinal above that of this checkpoint. The ordinal of a checkpoint is its distance from the first
    /// one ([`CheckpointRecord::ordinal`]). It is one read, however far apart the ordinals are.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`] if the thread was deleted meanwhile; [`StoreError::Read`],
    /// [`StoreError::Corrupt`].
    pub fn ancestors(&self, ordinals: &[u64]) -> Result<Vec<Option<Self>>, StoreError> {
        let found = self.store().backend().ancestors(self.point(), ordinals)?.into_iter();
        Ok(found.map(|record| record.map(|record| Self::new(self.store().clone(), record))).collect())
    }

    fn ancestor(&self, ordinal: u64) -> Result<Option<Self>, StoreError> {
        Ok(self.ancestors(&[ordinal])?.pop().flatten())
    }
}
