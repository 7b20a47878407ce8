//! Changing a state from outside: `update_state`.

use std::sync::Arc;

use crate::base::{IdSource, Timestamp};
use crate::graph::{Context, ContextParts, Graph, NodeOutput, START, Scope};
use crate::store::batch::{Change, ChangeValue, Data, ItemOp};
use crate::store::{Batch, NewCheckpoint, NewWrite, NewWrites, Parent, Payload, Source, WriteValue};

use super::apply::{Changes, apply};
use super::effect::Recording;
use super::error::RunError;
use super::head::{Head, HeadCheckpoint};
use super::plan::{Order, plan};
use super::task::{Task, TaskJob, TaskStatus, run_as, task_id};

/// A change to be made to a state as if a node had made it.
pub(crate) struct Edit {
    pub(crate) output: NodeOutput,
    /// The node; `None` is the input.
    pub(crate) node: Option<usize>,
    pub(crate) recording: Recording,
    pub(crate) seed: u64,
}

/// Finds the node an update is made as: the one that was named, or the one that wrote last.
pub(crate) fn as_node(graph: &Graph, head: &Head, name: Option<&str>) -> Result<Option<usize>, RunError> {
    let known = || graph.nodes.iter().map(|node| node.name.to_string()).collect();
    match name {
        Some(START) => return Ok(None),
        Some(name) => {
            let node = graph.by_name.get(name).copied();
            let unknown = || RunError::UnknownNode { node: name.to_owned(), known: known() };
            return node.map(Some).ok_or_else(unknown);
        }
        None if graph.nodes.len() == 1 && head.seen.iter().any(Option::is_some) => return Ok(Some(0)),
        None => {}
    }
    let last = |seen: &Option<Vec<(u32, u64)>>| seen.as_ref()?.iter().map(|(_, version)| *version).max();
    let mut seen: Vec<_> = head.seen.iter().enumerate().filter_map(|(node, seen)| Some((last(seen)?, node))).collect();
    seen.sort_unstable();
    match seen.as_slice() {
        [] => Ok(None),
        [.., (before, _), (newest, _)] if before == newest => Err(RunError::AmbiguousUpdate { candidates: known() }),
        [.., (_, node)] => Ok(Some(*node)),
    }
}

/// Makes the batch of an update: a checkpoint on the head, with the writes of the node that is spoken for. The head is
/// left as the checkpoint has it.
pub(crate) fn edit(graph: &Arc<Graph>, head: &mut Head, edit: Edit, now: Timestamp) -> Result<Batch, RunError> {
    let mut ids = IdSource::from_seed(edit.seed);
    let recording = edit.recording;
    let base = head.checkpoint;
    let step = head.step().max(-1) + 1;
    let task = spoken_for(graph, head, edit.node, &recording, &mut ids);
    let job = job(graph, head, &task, &recording, step, ids.random());
    let mut writes = run_as(&job, edit.output)?;
    drop(job);
    let mut task = task;
    let path = task.record(graph).path();
    let name = |channel: u32| Arc::clone(&graph.channels[channel as usize]);
    let stored: Vec<_> = writes
        .iter_mut()
        .filter_map(|write| {
            let value = write.encoded.take()?;
            Some(NewWrite { index: write.index, channel: name(write.channel), value })
        })
        .collect();
    task.status = TaskStatus::Done(writes);
    let id = ids.checkpoint(now, step, base.map(|base| base.id).max(recording.head).as_ref());
    let consumed = match base {
        Some(base) if !stored.is_empty() => {
            vec![NewWrites { checkpoint: base.id, task: task.id, path, writes: stored.clone() }]
        }
        _ => Vec::new(),
    };
    let mut changes = Changes::default();
    let mut tasks = [task];
    apply(graph, head, &mut tasks, &mut changes, true)?;
    head.updated = None;
    head.checkpoint = Some(HeadCheckpoint { id, step, source: Source::Update });
    head.pending.clear();
    let (mut changes, seen) = changes.take(graph, head);
    if base.is_none() {
        changes.iter_mut().for_each(|change| hold(change, &stored));
    }
    let due = plan(graph, head, id, &recording.namespace, step + 1, Order::Run);
    let mut batch = Batch::new(recording.thread, recording.namespace, recording.head);
    head.recorded = due.iter().map(|task| task.id).collect();
    batch.checkpoints.push(NewCheckpoint {
        id,
        parent: base.map(|base| Parent::Local(base.id)),
        step,
        source: Source::Update,
        created_at: now,
        run: Some(recording.run),
        metadata: recording.metadata,
        tasks: due.iter().map(|task| task.record(graph)).collect(),
        consumed,
        changes,
        seen,
    });
    Ok(batch)
}

/// Makes the task that is spoken for: the one that is due, unless it has stored its writes; then one of its own.
fn spoken_for(graph: &Graph, head: &Head, node: Option<usize>, recording: &Recording, ids: &mut IdSource) -> Task {
    let base = head.checkpoint;
    let mut task = Task {
        id: crate::base::TaskId::default(),
        node,
        push: None,
        status: TaskStatus::Due,
        saved: false,
        restored: false,
        answers: Vec::new(),
        answered: false,
    };
    if let Some(base) = base {
        task.id = task_id(base.id, &recording.namespace, base.step + 1, &task.record(graph));
    }
    let due =
        base.map_or_else(Vec::new, |base| plan(graph, head, base.id, &recording.namespace, base.step + 1, Order::Run));
    let takes_over = due.iter().any(|due| due.id == task.id)
        && head.pending_of(task.id).is_none_or(|pending| !pending.is_finished());
    if !takes_over {
        task.id = crate::base::TaskId::from_bytes(ids.uuid_v4().into_bytes());
    }
    task
}

fn job(graph: &Arc<Graph>, head: &Head, task: &Task, recording: &Recording, step: i64, seed: u64) -> TaskJob {
    let context = Context::new(ContextParts {
        thread: Some(recording.thread.clone()),
        namespace: recording.namespace.clone(),
        checkpoint: head.checkpoint.map(|base| base.id),
        task: task.id,
        node: task.name(graph).into(),
        step,
        stop: step + 2,
        scope: Scope::detached(),
        parents: Arc::clone(&recording.parents),
        resuming: false,
        asked: Default::default(),
    });
    TaskJob {
        slot: 0,
        graph: Arc::clone(graph),
        node: task.node,
        arg: None,
        input: None,
        state: Arc::clone(&head.state),
        present: None,
        context,
        record: true,
        seed,
    }
}

/// Without a parent whose writes hold the bytes, puts the bytes into the change.
fn hold(change: &mut Change, stored: &[NewWrite]) {
    let own = |data: &mut Data| {
        if let Data::OfWrite(from) = &*data {
            let write = stored.iter().find(|write| write.index == from.index).map(|write| &write.value);
            let payload = match write {
                Some(WriteValue::One(payload)) => payload.clone(),
                Some(WriteValue::Items(items)) => items.get(from.part as usize).cloned().unwrap_or_default(),
                _ => Payload { data: vec![0xc0], ..Payload::default() },
            };
            *data = Data::New(payload);
        }
    };
    match &mut change.value {
        ChangeValue::Value(data) => own(data),
        ChangeValue::Items(items) => items.iter_mut().for_each(|item| {
            if let ItemOp::Put(data) = &mut item.op {
                own(data);
            }
        }),
        ChangeValue::Empty => {}
    }
}
