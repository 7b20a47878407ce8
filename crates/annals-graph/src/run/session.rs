//! The session: the state that all graphs of a run share.

use annals_runs::SpecialWrite;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::{CheckpointId, Namespace, RunId, TaskId, ThreadId, Value};
use crate::exec::{CallLeft, Head, Machine, RunError, Saving, Status, special};
use crate::graph::{Graph, Persistence};
use crate::state::StateRef;
use crate::store::batch::{Batch, CommitChain, Expect, NewWrites};
use crate::store::{CheckpointRef, StoreError};
use crate::task::{CallBegan, Context, Interrupted, Signal};

use super::decision::Decision;
use super::held::Held;
use super::lease::RunLease;
use super::lineage::{Stands, is_below};
use super::start::{ReadySubgraph, SubgraphStart, root_of};
use super::subgraph::Subgraph;

/// The tree of graphs that run in one run, as far as they share it.
pub(crate) struct Session {
    pub(super) run: RunId,
    /// The text of a JSON object that is stored with each checkpoint.
    pub(super) metadata: Option<String>,
    /// True if the run stores nothing before it ends.
    holds: bool,
    held: Held,
    /// The commits of the run and of its subgraphs: each counts only with those before it.
    sequence: CommitChain,
    /// The new ids of checkpoints that were stored with others than the machines know.
    renamed: HashMap<CheckpointId, CheckpointId>,
    starts: Starts,
    /// The heads at which subgraphs were left, until their parent graphs have stored the results.
    left: Vec<Left>,
    /// The results of called tasks that the machines of their graphs have not taken yet.
    calls: Vec<(Namespace, CallLeft)>,
    /// The subgraphs that were dropped where they waited, with the number of batches held back when they began.
    dropped: Vec<(Namespace, usize)>,
    /// The lease that the commits name.
    pub(crate) lease: Option<RunLease>,
}

/// The checkpoints at which subgraphs begin, as far as they are known.
#[derive(Default)]
struct Starts {
    /// The checkpoint of the outermost graph that the run began on.
    at: Option<CheckpointRef>,
    /// True if the run replays the superstep that began at `at`.
    replays: bool,
    /// True if the outermost graph takes an input.
    takes_input: bool,
    /// The checkpoint of the outermost graph in whose superstep the first subgraph of the run began.
    first: Option<CheckpointId>,
    /// The checkpoints of subgraphs that the caller named.
    named: Arc<[(Namespace, CheckpointId)]>,
    /// The namespaces in which a subgraph has begun: there it goes on from its newest checkpoint.
    visited: HashSet<Namespace>,
    /// The heads of the subgraphs that keep their state, as this run has left them.
    heads: HashMap<Namespace, CheckpointId>,
    /// The subgraphs that keep their state and wait for a resume value, with the tasks that they work for.
    waiting: HashMap<Namespace, TaskId>,
}

/// The head at which a run has left a subgraph.
struct Left {
    namespace: Namespace,
    head: CheckpointId,
    /// The tasks it ran in, innermost first.
    tasks: Vec<TaskId>,
    /// True if the next task finds the subgraph at this head.
    keeps: bool,
}

/// The end of a subgraph.
pub(crate) struct SubgraphEnd {
    /// Its state, and which channels hold a value; the error with which its task ends if it has not come to its end.
    pub(crate) returned: Result<(StateRef, Vec<bool>), RunError>,
    /// The head to be cached for its next start, and its namespace.
    pub(crate) cached: Option<(Namespace, Head)>,
}

impl Starts {
    /// Returns the relation of the outermost graph, which is at `root` when a subgraph begins, to the checkpoint that
    /// the run began on.
    fn stands(&mut self, subgraph: &Namespace, root: Option<CheckpointId>) -> Stands {
        self.first = self.first.or(root);
        let is_named = |named: &Namespace| self.named.iter().any(|(of, _)| of == named);
        let is_below_named = !is_named(subgraph) && self.named.iter().any(|(of, _)| is_below(subgraph, of));
        match self.replays {
            // The earlier steps of a subgraph below a named one are not made again.
            true if is_below_named && root != self.first => Stands::Past,
            true => Stands::Replays,
            false if root == self.at.as_ref().map(|at| at.checkpoint) => Stands::At,
            false => Stands::Past,
        }
    }
}

impl Session {
    /// Makes the session of a run. If it `holds`, all commits become one at its end.
    pub(crate) fn new(run: RunId, metadata: Option<String>, holds: bool) -> Self {
        Self {
            run,
            metadata,
            holds,
            held: Held::default(),
            sequence: CommitChain::begin(),
            renamed: HashMap::new(),
            starts: Starts::default(),
            left: Vec::new(),
            calls: Vec::new(),
            dropped: Vec::new(),
            lease: None,
        }
    }

    /// Notes the checkpoint of the outermost graph that the run begins on, whether the run `replays` it and
    /// `takes_input`, and the checkpoints of subgraphs that its caller named.
    pub(crate) fn begin(
        &mut self,
        at: Option<CheckpointRef>,
        (replays, takes_input): (bool, bool),
        named: &Arc<[(Namespace, CheckpointId)]>,
    ) {
        debug_assert!(self.starts.visited.is_empty(), "a run begins before its subgraphs");
        self.starts = Starts { at, replays, takes_input, named: Arc::clone(named), ..Starts::default() };
    }

    /// Returns when a graph of the run stores its checkpoints.
    pub(crate) fn saving(&self) -> Saving {
        if self.holds { Saving::AtEnd } else { Saving::Steps }
    }

    /// Verifies that a subgraph which keeps its state does not wait for a resume value of another task: the superstep
    /// of the subgraph would be abandoned, and the resume value lost.
    ///
    /// # Errors
    /// [`RunError::SharedSubgraph`].
    pub(crate) fn verify_free(&self, graph: &Graph, context: &Context, of: &Subgraph) -> Result<(), RunError> {
        match self.starts.waiting.get(of.namespace()) {
            Some(task) if *task != context.task() => {
                Err(RunError::SharedSubgraph { graph: graph.name.to_string(), node: context.node().to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Decides where a subgraph begins that stores its state.
    pub(crate) fn start(
        &mut self,
        graph: &Arc<Graph>,
        context: &Context,
        of: &Subgraph,
        thread: &ThreadId,
    ) -> Decision<Result<ReadySubgraph, StoreError>> {
        let starts = &mut self.starts;
        let namespace = of.namespace().clone();
        let named = starts.named.iter().find(|(named, _)| *named == namespace).map(|(_, checkpoint)| *checkpoint);
        let left = starts.heads.get(&namespace).copied();
        // Another attempt begins where the first one did, and another task where this run has left the subgraph.
        let is_known = matches!((&of.before, left), (Some(CallBegan::On(_)), _) | (None, Some(_)));
        let stands = starts.stands(&namespace, root_of(context));
        let counts = graph.persistence == Persistence::PerThread || starts.replays || !starts.named.is_empty();
        let start = SubgraphStart {
            graph: Arc::clone(graph),
            context: context.clone(),
            thread: thread.clone(),
            call: of.call,
            before: of.before.clone(),
            left,
            held: self.held.newest(thread, &namespace),
            start: starts.at.clone(),
            replays: starts.replays,
            takes_input: starts.takes_input,
            stands,
            named,
            first: !is_known && counts && starts.visited.insert(namespace.clone()),
            namespace,
        };
        Decision::new(|log| start.decide(log))
    }

    /// Notes that a subgraph runs: the head at which it was left is past. Returns the number of batches that are held
    /// back.
    pub(crate) fn started(&mut self, namespace: &Namespace) -> usize {
        self.left.retain(|left| left.namespace != *namespace);
        self.dropped.retain(|(dropped, _)| dropped != namespace);
        self.held.len()
    }

    /// Notes that the loop of a subgraph is gone, which began when so many batches were held back. If the subgraph does
    /// not end and does not begin again, the run has dropped it: a cancelled run stores nothing of the subgraph, so
    /// what is below it is not stored either.
    pub(crate) fn dropped(&mut self, namespace: &Namespace, from: usize) {
        if self.holds {
            self.dropped.push((namespace.clone(), from));
        }
    }

    /// Ends a subgraph in the task of a context.
    pub(crate) fn end(
        &mut self,
        graph: &Graph,
        context: &Context,
        thread: Option<&ThreadId>,
        machine: Machine,
    ) -> SubgraphEnd {
        let (state, present) = machine.returned();
        let namespace = machine.namespace().clone();
        self.dropped.retain(|(dropped, _)| *dropped != namespace);
        debug_assert!(!namespace.is_root(), "a subgraph has a namespace");
        debug_assert!(!matches!(machine.status(), Status::Running), "a subgraph ends once");
        let stored = machine.stored_head();
        let (status, head) = machine.finish();
        let keeps = graph.persistence == Persistence::PerThread;
        let mut cached = None;
        if let Some(stored) = stored {
            let tasks = context.with_callers().map(Context::task).collect();
            self.left.push(Left { namespace: namespace.clone(), head: stored, tasks, keeps });
            if let (Some(head), Some(thread)) = (&head, thread) {
                self.held.retain(graph, thread, &namespace, head);
            }
            if keeps {
                // The head it began on may be older than the newest one of its namespace.
                let own = head.as_ref().and_then(|head| head.checkpoint).map(|checkpoint| checkpoint.id);
                self.starts.heads.insert(namespace.clone(), own.unwrap_or(stored));
                match &status {
                    Status::Interrupted(open) if !open.is_empty() => {
                        self.starts.waiting.insert(namespace.clone(), context.task());
                    }
                    _ => _ = self.starts.waiting.remove(&namespace),
                }
                cached = head.map(|head| (namespace, head));
            }
        }
        let signal = match status {
            Status::Done => return SubgraphEnd { returned: Ok((state, present)), cached },
            Status::Failed(error) => return SubgraphEnd { returned: Err(error), cached },
            Status::Interrupted(interrupts) => Signal::Waiting(interrupts),
            Status::Left(command) => Signal::Parent(command),
            Status::Drained(reason) => Signal::Drained(reason),
            Status::Cancelled(reason) => Signal::Cancelled(reason),
            Status::Running => unreachable!("a driver runs a machine to its end"),
        };
        context.asked().lock().signal = Some(signal);
        SubgraphEnd { returned: Err(RunError::Waiting(Interrupted::new())), cached }
    }

    /// Makes the batch of a graph, which runs in the task `of` of its parent graph, the next commit of the run: it
    /// counts only with what subgraphs stored of it. Returns `None` if it is held back until the run ends.
    pub(crate) fn commit(&mut self, mut batch: Batch, of: Option<TaskId>) -> Option<Batch> {
        debug_assert!(
            batch.checkpoints.is_empty() || batch.namespace.is_root() == of.is_none(),
            "a subgraph runs in a task of its parent graph"
        );
        debug_assert!(
            self.left.iter().all(|left| left.namespace != batch.namespace),
            "a graph that commits runs, so it has not been left"
        );
        for writes in &mut batch.writes {
            self.note_left(writes);
        }
        let has_checkpoint = !batch.checkpoints.is_empty();
        let writes = &batch.writes;
        let is_inside = |left: &Left| match has_checkpoint {
            true => of.is_none_or(|own| left.tasks.contains(&own)),
            false => writes.iter().any(|writes| left.tasks.contains(&writes.task)),
        };
        if !self.holds {
            let inside = self.left.iter().filter(|left| is_inside(left));
            batch.expect.extend(inside.map(|left| Expect::new(left.namespace.clone(), Some(left.head))));
        }
        if has_checkpoint {
            self.left.retain(|left| !is_inside(left));
        }
        self.append(batch)
    }

    /// Makes a batch the next commit of the run, as it is. Returns `None` if it is held back until the run ends.
    pub(crate) fn append(&mut self, mut batch: Batch) -> Option<Batch> {
        debug_assert!(batch.chain.is_none(), "a batch is appended once");
        self.rename(&mut batch);
        if self.holds {
            self.held.add(batch);
            return None;
        }
        let batch = self.leased(batch, false);
        Some(self.sequence.append(batch))
    }

    /// Names the checkpoints of a batch as they are stored.
    pub(crate) fn rename(&self, batch: &mut Batch) {
        batch.rename(&self.renamed);
    }

    /// Gives the checkpoints of a refused batch ids above `newest`, which another writer stored as a branch, and begins
    /// the commits of the run anew with it. Returns the ids that changed.
    pub(crate) fn raise(
        &mut self,
        batch: &mut Batch,
        namespace: &Namespace,
        newest: &CheckpointId,
    ) -> HashMap<CheckpointId, CheckpointId> {
        let raised: HashMap<_, _> = batch.remint_ids(namespace, newest).into_iter().collect();
        for id in self.renamed.values_mut() {
            *id = raised.get(id).copied().unwrap_or(*id);
        }
        self.renamed.extend(&raised);
        self.restart_commits();
        batch.chain = Some(self.sequence.clone());
        raised
    }

    /// Returns a batch with the lease of the run; the last batch of a run releases it.
    pub(crate) fn leased(&mut self, mut batch: Batch, is_last: bool) -> Batch {
        if let Some(lease) = &mut self.lease {
            lease.name_in(&mut batch, is_last);
        }
        batch
    }

    /// Ends the commits of the run: those that follow are refused.
    pub(crate) fn refuse(&self, error: &StoreError) {
        self.sequence.end(error);
    }

    /// Begins the commits of the run anew, after the work of one that was refused was stored elsewhere.
    pub(crate) fn restart_commits(&mut self) {
        self.sequence = self.sequence.begin_another();
    }

    /// Sets the chain of the commits of a run that has none yet.
    pub(crate) fn set_chain(&mut self, chain: CommitChain) {
        self.sequence = chain;
    }

    /// Returns the chain of the commits of the run.
    pub(crate) fn chain(&self) -> &CommitChain {
        &self.sequence
    }

    /// Returns the error of the first commit of the run that was refused.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        if self.sequence.has_ended() { self.sequence.failure() } else { None }
    }

    /// Takes the batches that are held back, as one.
    pub(crate) fn take_held(&mut self) -> Option<Batch> {
        for (namespace, from) in std::mem::take(&mut self.dropped) {
            self.held.drop_below(&namespace, from);
        }
        let batch = self.held.take()?;
        let batch = self.leased(batch, true);
        Some(self.sequence.append(batch))
    }

    /// Returns whether a checkpoint is held back that cannot be read before it is stored.
    pub(crate) fn hides(&self, graph: &Graph, at: &CheckpointRef) -> bool {
        self.held.hides(graph, at)
    }

    /// Returns the head of a checkpoint that is held back.
    pub(crate) fn held_head(&self, graph: &Graph, at: &CheckpointRef) -> Option<Head> {
        self.held.head(graph, at).cloned()
    }

    /// Returns the newest checkpoint of a namespace that is held back.
    pub(crate) fn held_newest(&self, thread: &ThreadId, namespace: &Namespace) -> Option<CheckpointId> {
        self.held.newest(thread, namespace).map(|(newest, _)| newest)
    }

    /// Returns whether a checkpoint is held back, and the writes to it that are.
    pub(crate) fn held_writes(&self, at: &CheckpointRef) -> (bool, Vec<NewWrites>) {
        self.held.writes(at)
    }

    /// Leaves the result of a called task to the machine of its graph.
    pub(crate) fn leave_call(&mut self, namespace: Namespace, mut left: CallLeft) {
        if let CallLeft::Unsaved(writes) = &mut left {
            // Another call may begin the same subgraph before they are stored.
            self.note_left(writes);
        }
        self.calls.push((namespace, left));
    }

    /// Takes the results of called tasks that were left to the machine of a graph.
    pub(crate) fn take_calls(&mut self, namespace: &Namespace) -> Vec<CallLeft> {
        if self.calls.is_empty() {
            return Vec::new();
        }
        let (own, others): (Vec<_>, _) = self.calls.drain(..).partition(|(of, _)| of == namespace);
        self.calls = others;
        own.into_iter().map(|(_, left)| left).collect()
    }

    /// Notes with the writes of a task that has ended where it left subgraphs that keep their state: a later task of
    /// its superstep begins them anew, though they stand where they stood.
    fn note_left(&self, writes: &mut NewWrites) {
        let has = |index: i32| writes.writes.iter().any(|write| write.index == index);
        if writes.writes.iter().all(|write| write.index < 0)
            || has(SpecialWrite::Error.index())
            || has(SpecialWrite::Left.index())
        {
            return;
        }
        let left = self.left.iter().filter(|left| left.keeps && left.tasks.contains(&writes.task));
        let mut left = left.map(|left| (left.namespace.to_string(), Value::from(left.head.to_string()))).peekable();
        if left.peek().is_some() {
            writes.writes.push(special(SpecialWrite::Left, &Value::Map(left.collect())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Encoded, Timestamp, WriteValue};
    use crate::store::Source;
    use crate::store::batch::{NewCheckpoint, NewWrite};

    fn id(n: u8) -> CheckpointId {
        CheckpointId::from_bytes([n; 16])
    }

    fn task(n: u8) -> TaskId {
        TaskId::from_bytes([n; 16])
    }

    fn path(path: &str) -> Namespace {
        Namespace::new(path).unwrap()
    }

    fn session(holds: bool) -> Session {
        Session::new(RunId::default(), None, holds)
    }

    /// Writes of a task to checkpoint 1, with these indexes.
    fn writes(of: u8, indexes: &[i32]) -> NewWrites {
        let value = || WriteValue::One(Encoded::encode("x").unwrap().into());
        let writes = indexes.iter().map(|index| NewWrite::new(*index, "c", value())).collect();
        NewWrites::new(id(1), task(of), "path").with(writes)
    }

    fn indexes(writes: &NewWrites) -> Vec<i32> {
        writes.writes.iter().map(|write| write.index).collect()
    }

    /// A batch of a graph, perhaps with a checkpoint that was made below another graph.
    fn batch(of: &str, checkpoint: Option<(u8, &str)>) -> Batch {
        let mut batch = Batch::new(ThreadId::new("t").unwrap(), path(of), None);
        batch.checkpoints.extend(checkpoint.map(|(n, parent)| {
            let mut new = NewCheckpoint::new(id(n), None, 0, Source::Loop, Timestamp::from_micros(0));
            new.parents = [(path(parent), id(0))].into();
            new
        }));
        batch
    }

    fn left(of: &str, head: u8, tasks: &[u8]) -> Left {
        let tasks = tasks.iter().map(|n| task(*n)).collect();
        Left { namespace: path(of), head: id(head), tasks, keeps: true }
    }

    /// The namespaces and heads that a batch expects.
    fn expected(batch: &Batch) -> Vec<(&str, Option<CheckpointId>)> {
        batch.expect.iter().map(|expect| (expect.namespace.as_str(), expect.head)).collect()
    }

    #[test]
    fn the_end_of_a_task_is_noted_once_with_the_subgraphs_it_left() {
        let mut session = session(false);
        session.left.push(left("a", 2, &[1]));
        let mut ended = writes(1, &[0]);
        session.note_left(&mut ended);
        assert_eq!(indexes(&ended), [0, SpecialWrite::Left.index()]);
        // Another task begins the subgraph anew, and the first one is handed out after that.
        session.started(&path("a"));
        session.left.push(left("b", 3, &[1]));
        let noted = ended.clone();
        session.note_left(&mut ended);
        assert_eq!(ended, noted);
    }

    #[test]
    fn a_task_that_has_not_ended_notes_no_subgraph() {
        let mut session = session(false);
        session.left.push(left("a", 2, &[1]));
        for not_ended in [writes(1, &[-1, -2]), writes(1, &[0, SpecialWrite::Error.index()]), writes(2, &[0])] {
            let mut noted = not_ended.clone();
            session.note_left(&mut noted);
            assert_eq!(noted, not_ended);
        }
    }

    #[test]
    fn a_checkpoint_counts_with_the_heads_that_its_superstep_left_and_the_next_one_without() {
        let mut session = session(false);
        session.left.extend([left("a", 2, &[1]), left("a|b", 3, &[7, 1]), left("c", 5, &[2])]);
        // The writes of a task alone leave the heads to the checkpoint.
        let mut ended = batch("", None);
        ended.writes.push(writes(1, &[0]));
        let ended = session.commit(ended, None).unwrap();
        assert_eq!(expected(&ended), [("", None), ("a", Some(id(2))), ("a|b", Some(id(3)))]);
        let all = [("", None), ("a", Some(id(2))), ("a|b", Some(id(3))), ("c", Some(id(5)))];
        assert_eq!(expected(&session.commit(batch("", Some((4, ""))), None).unwrap()), all);
        assert_eq!(expected(&session.commit(batch("", Some((5, ""))), None).unwrap()), [("", None)]);
    }

    #[test]
    fn a_batch_that_is_held_back_expects_no_head() {
        let mut session = session(true);
        session.left.push(left("a", 2, &[1]));
        assert!(session.commit(batch("", Some((4, ""))), None).is_none());
        let held = session.take_held().unwrap();
        assert_eq!(expected(&held), [("", None)]);
    }

    #[test]
    fn later_batches_name_raised_checkpoints_as_they_are_stored() {
        let mut session = session(false);
        let mut refused = batch("", Some((1, "")));
        let raised = session.raise(&mut refused, &path(""), &id(9));
        let stored = refused.checkpoints[0].id;
        assert!(stored > id(9));
        assert_eq!(raised, HashMap::from([(id(1), stored)]));
        let mut next = batch("", None);
        next.writes.push(writes(1, &[0]));
        assert_eq!(session.append(next).unwrap().writes[0].checkpoint, stored);
    }

    #[test]
    fn a_refusal_ends_the_commits_of_a_run() {
        let session = session(false);
        assert!(session.failure().is_none());
        let error = StoreError::CheckpointNotFound { thread: ThreadId::new("t").unwrap(), id: "x".to_owned() };
        session.refuse(&error);
        assert!(session.failure().unwrap().to_string().contains("checkpoint x is not in thread t"));
    }

    #[test]
    fn the_batches_below_a_subgraph_that_was_dropped_and_did_not_begin_again_are_not_stored() {
        for (again, stored) in [(None, ["", "b"].as_slice()), (Some("b"), &["", "b"]), (Some("a"), &["", "a|b", "b"])] {
            let mut session = session(true);
            session.append(batch("", Some((1, ""))));
            let from = session.started(&path("a"));
            assert_eq!(from, 1);
            session.append(batch("a|b", Some((2, "a"))));
            session.append(batch("b", Some((2, ""))));
            session.dropped(&path("a"), from);
            again.into_iter().for_each(|again| _ = session.started(&path(again)));
            let held = session.take_held().unwrap();
            assert!(held.parts().map(|part| part.namespace.as_str()).eq(stored.iter().copied()), "{again:?}");
        }
    }
}
