//! The checkpoints of a thread among which a pruning chooses.
//!
//! The records are read once. The choice begins with every namespace of a subgraph that belongs to one task as one that
//! goes as a whole, and takes back those of which a checkpoint stays, until nothing changes: what rests only on such a
//! namespace can go with it. *Absent:* the conditions of the policy.
//!
//! Invariant: a namespace goes as a whole only if no checkpoint that stays names it, and each of its checkpoints
//! belongs to one of its parent graph that goes, or was pruned before.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, TaskId, ThreadId};
use crate::store::batch::WriteValue;
use crate::store::log::{CheckpointQuery, Log, LogExt};
use crate::store::record::TaskRecord;
use crate::store::{CheckpointRef, Source, StoreError};

use super::prune::PrunePolicy;

/// A namespace and a checkpoint in it.
type PrunePoint = (Namespace, CheckpointId);

/// A checkpoint that may go.
struct PruneCandidate {
    id: CheckpointId,
    seq: u64,
    /// Branch and ordinal.
    place: (u64, u64),
    /// The checkpoints of the parent graphs.
    parents: Arc<[PrunePoint]>,
    /// A fork or an update: the checkpoint of the input before it, whose writes hold the input as long as it is due.
    input: Option<CheckpointId>,
    /// True for a fork of the outermost graph that names checkpoints of subgraphs: its runs begin with these.
    names_subgraphs: bool,
    /// True if the policy applies to it.
    by_policy: bool,
    /// True if an interrupt keeps it, once that is known.
    is_kept: Cell<Option<bool>>,
}

/// The checkpoints of a thread, by namespace; that of a parent graph comes before those of its subgraphs.
pub(crate) struct PruneCandidates<'a> {
    backend: &'a dyn Log,
    thread: &'a ThreadId,
    policy: &'a PrunePolicy,
    namespaces: Vec<(Namespace, Vec<PruneCandidate>)>,
    all: HashSet<PrunePoint>,
    /// Parents that are not among the checkpoints, each with true if it was pruned.
    pruned: RefCell<HashMap<PrunePoint, bool>>,
}

/// The checkpoints that go.
pub(crate) struct PruneChoice {
    goes: BTreeSet<PrunePoint>,
    /// The namespaces that go as a whole, each with its newest checkpoint.
    pub(crate) namespaces: Vec<PrunePoint>,
}

impl PruneChoice {
    /// Returns whether a checkpoint goes.
    pub(crate) fn goes(&self, namespace: &Namespace, id: CheckpointId) -> bool {
        self.goes.contains(&(namespace.clone(), id))
    }
}

impl<'a> PruneCandidates<'a> {
    /// Reads the records of a thread.
    pub(crate) fn read(
        backend: &'a dyn Log,
        thread: &'a ThreadId,
        policy: &'a PrunePolicy,
    ) -> Result<Self, StoreError> {
        // A subgraph is inside the path of its parent graph, so that one is decided first.
        let mut paths = backend.namespaces(thread)?;
        paths.sort_by_key(|path| (path.as_str().len(), path.clone()));
        let (mut namespaces, mut all) = (Vec::new(), HashSet::new());
        for path in paths {
            let (mut newer, mut found) = (HashMap::<u64, u64>::new(), Vec::<PruneCandidate>::new());
            let mut lineage = Vec::new();
            let mut query = CheckpointQuery::new(thread.clone(), path.clone());
            loop {
                let page = backend.checkpoints(&query)?;
                let Some(last) = page.last() else { break };
                query.before = Some(last.point.checkpoint);
                for record in page {
                    let count = newer.entry(record.branch).or_insert(0);
                    let by_policy = policy.applies(&record, *count);
                    *count += 1;
                    let (id, place) = (record.point.checkpoint, (record.branch, record.ordinal));
                    all.insert((path.clone(), id));
                    let parents = Arc::clone(&record.parents);
                    let (seq, input, is_kept) = (record.seq, None, Cell::new(None));
                    let names_subgraphs = path.is_root() && record.source == Source::Fork && !parents.is_empty();
                    found.push(PruneCandidate { id, seq, place, parents, input, names_subgraphs, by_policy, is_kept });
                    let is_input = record.tasks.iter().any(TaskRecord::takes_input);
                    lineage.push((record.source, record.parent, is_input));
                }
            }
            set_inputs(&mut found, &lineage);
            namespaces.push((path, found));
        }
        Ok(Self { backend, thread, policy, namespaces, all, pruned: RefCell::default() })
    }

    /// Returns the checkpoints of each namespace, newest first: the id, and branch and ordinal.
    pub(crate) fn by_namespace(
        &self,
    ) -> impl Iterator<Item = (&Namespace, impl Iterator<Item = (CheckpointId, (u64, u64))>)> {
        let points = |found: &Vec<PruneCandidate>| {
            found.iter().map(|candidate| (candidate.id, candidate.place)).collect::<Vec<_>>().into_iter()
        };
        self.namespaces.iter().map(move |(namespace, found)| (namespace, points(found)))
    }

    /// Chooses the checkpoints that go.
    pub(crate) fn choose(&self) -> Result<PruneChoice, StoreError> {
        let of_task = self.namespaces.iter().filter(|(namespace, found)| !found.is_empty() && names_task(namespace));
        let mut whole: BTreeSet<Namespace> = of_task.map(|(namespace, _)| namespace.clone()).collect();
        loop {
            let chosen = self.choose_without(&whole)?;
            let left: BTreeSet<Namespace> = chosen.namespaces.iter().map(|(namespace, _)| namespace.clone()).collect();
            debug_assert!(left.is_subset(&whole), "a namespace is only taken back");
            if left.len() == whole.len() {
                return Ok(chosen);
            }
            whole = left;
        }
    }

    /// Chooses the checkpoints that go if no namespace goes as a whole but those of `whole`, of which some may not.
    fn choose_without(&self, whole: &BTreeSet<Namespace>) -> Result<PruneChoice, StoreError> {
        let held = self.held(whole)?;
        let mut goes: BTreeSet<PrunePoint> = BTreeSet::new();
        let (mut chosen, mut named): (Vec<PrunePoint>, HashSet<&Namespace>) = (Vec::new(), HashSet::new());
        // The positions of the checkpoints of the outermost graph that stay, the newest first.
        let mut roots = Vec::new();
        // The checkpoints of subgraphs that forks of the outermost graph name.
        let mut begins = HashSet::new();
        for (namespace, found) in &self.namespaces {
            let is_whole = whole.contains(namespace) && self.goes_whole(namespace, found, &goes, &held)?;
            // Kept checkpoints rest on their inputs, and on the states with which their subgraphs begin.
            let mut rests = match namespace.is_root() || names_task(namespace) {
                true => HashSet::new(),
                false => begun_with(found, &roots),
            };
            for candidate in found {
                let applies = match candidate.parents.last() {
                    Some(parent) if !namespace.is_root() => self.is_gone(parent, &goes)?,
                    _ => candidate.by_policy,
                };
                let is_held = held.contains(&candidate.place)
                    || candidate.names_subgraphs
                    || rests.contains(&candidate.id)
                    || begins.contains(&(namespace.clone(), candidate.id));
                if applies && (is_whole || !is_held) && !self.is_kept(namespace, candidate)? {
                    goes.insert((namespace.clone(), candidate.id));
                } else {
                    rests.extend(candidate.input);
                    if namespace.is_root() {
                        roots.push(candidate.seq);
                    }
                    if candidate.names_subgraphs {
                        begins.extend(candidate.parents.iter().cloned());
                    }
                    named.extend(candidate.parents.iter().map(|(namespace, _)| namespace));
                }
            }
            if is_whole {
                chosen.extend(found.first().map(|newest| (namespace.clone(), newest.id)));
            }
        }
        chosen.retain(|(namespace, _)| !named.contains(namespace));
        Ok(PruneChoice { goes, namespaces: chosen })
    }

    /// Returns whether every checkpoint of a namespace goes.
    fn goes_whole(
        &self,
        namespace: &Namespace,
        found: &[PruneCandidate],
        goes: &BTreeSet<PrunePoint>,
        held: &BTreeSet<(u64, u64)>,
    ) -> Result<bool, StoreError> {
        for candidate in found {
            let Some(parent) = candidate.parents.last() else { return Ok(false) };
            if held.contains(&candidate.place) || !self.is_gone(parent, goes)? || self.is_kept(namespace, candidate)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a checkpoint goes, or was pruned before.
    fn is_gone(&self, point: &PrunePoint, goes: &BTreeSet<PrunePoint>) -> Result<bool, StoreError> {
        if self.all.contains(point) {
            return Ok(goes.contains(point));
        }
        if let Some(pruned) = self.pruned.borrow().get(point) {
            return Ok(*pruned);
        }
        let at = CheckpointRef::new(self.thread.clone(), point.0.clone(), point.1);
        let pruned = self.backend.checkpoint(&at)?.is_some_and(|record| record.pruned);
        self.pruned.borrow_mut().insert(point.clone(), pruned);
        Ok(pruned)
    }

    /// Returns whether an interrupt keeps a checkpoint.
    fn is_kept(&self, namespace: &Namespace, candidate: &PruneCandidate) -> Result<bool, StoreError> {
        if let Some(kept) = candidate.is_kept.get() {
            return Ok(kept);
        }
        let at = CheckpointRef::new(self.thread.clone(), namespace.clone(), candidate.id);
        let kept = match self.policy.keeps_interrupted() {
            true => {
                self.backend.checkpoint(&at)?.map_or(Ok(false), |record| self.policy.keeps(self.backend, &record))?
            }
            false => false,
        };
        candidate.is_kept.set(Some(kept));
        Ok(kept)
    }

    /// Returns the places of the checkpoints that are kept whatever the policy says, if the namespaces `whole` are
    /// gone.
    fn held(&self, whole: &BTreeSet<Namespace>) -> Result<BTreeSet<(u64, u64)>, StoreError> {
        let without: Vec<Namespace> = whole.iter().cloned().collect();
        let mut held = self.backend.unprunable(self.thread, &without)?;
        // The writes of tasks that are not finished may build on lists of older checkpoints.
        for (namespace, _) in self.namespaces.iter().filter(|(namespace, _)| !whole.contains(namespace)) {
            let Some(head) = self.backend.head_with_writes(self.thread, namespace)? else { continue };
            for write in head.writes {
                let WriteValue::Delta(delta) = write.value else { continue };
                let of = CheckpointRef::new(self.thread.clone(), delta.of.namespace.clone(), delta.of.checkpoint);
                held.extend(self.backend.checkpoint(&of)?.map(|record| (record.branch, record.ordinal)));
            }
        }
        Ok(held)
    }
}

/// Notes the input before each fork and update. The candidates come newest first, each with its source, its parent,
/// and whether an input was due there. In place of a pruned parent the candidate before it on the branch counts: what
/// is between them was pruned.
fn set_inputs(found: &mut [PruneCandidate], lineage: &[(Source, Option<CheckpointId>, bool)]) {
    debug_assert_eq!(found.len(), lineage.len(), "each candidate has a lineage");
    let (mut inputs, mut last): (HashMap<CheckpointId, Option<CheckpointId>>, HashMap<u64, CheckpointId>) =
        Default::default();
    for (candidate, (source, parent, is_input)) in found.iter_mut().zip(lineage).rev() {
        let input = match source {
            Source::Fork | Source::Update => {
                let before = parent.filter(|parent| inputs.contains_key(parent));
                let before = before.or_else(|| last.get(&candidate.place.0).copied());
                candidate.input = before.and_then(|before| inputs[&before]);
                candidate.input
            }
            Source::Input => is_input.then_some(candidate.id),
            Source::Loop => None,
        };
        inputs.insert(candidate.id, input);
        last.insert(candidate.place.0, candidate.id);
    }
}

/// Returns the checkpoints of a subgraph that retains its state from which a run may begin at the checkpoints `roots`
/// of the outermost graph: on each branch the newest one before each of these. Both come newest first.
fn begun_with(found: &[PruneCandidate], roots: &[u64]) -> HashSet<CheckpointId> {
    debug_assert!(roots.is_sorted_by(|a, b| a > b), "positions come in descending order");
    let (mut begun, mut left) = (HashSet::new(), HashMap::<u64, &[u64]>::new());
    for candidate in found {
        let roots = left.entry(candidate.place.0).or_insert(roots);
        let later = roots.partition_point(|root| *root > candidate.seq);
        if later > 0 {
            begun.insert(candidate.id);
            *roots = &roots[later..];
        }
    }
    begun
}

/// Returns whether a namespace is that of a subgraph which one task runs, and which keeps no state beyond it: its last
/// level names the task. A further subgraph that the task runs has a number after that.
fn names_task(namespace: &Namespace) -> bool {
    let segments: Vec<&str> = namespace.segments().collect();
    let last = segments.iter().rev().find(|segment| segment.parse::<u64>().is_err());
    last.and_then(|segment| segment.rsplit_once(':')).is_some_and(|(_, task)| task.parse::<TaskId>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_one_task_names_the_task() {
        let task = "ef5b1bfa-7a3d-5c1e-9e3c-0d3a1c1c8f5e";
        let path = |path: &str| names_task(&Namespace::new(path.replace('T', task)).unwrap());
        assert!(path("node:T") && path("node:T|1") && path("node:T|child:T") && path("outer|inner:T"));
        assert!(!path("") && !path("node") && !path("node:T|child") && !path("node:1") && !path("1"));
    }
}
