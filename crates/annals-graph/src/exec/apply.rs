//! Applying the writes of a superstep to the head.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Encoded, ListRef, TaskId};
use crate::channel::{ChannelEffect, ListOp};
use crate::graph::Graph;
use crate::state::erased::NOT_STORED;
use crate::state::{BoxWrite, FieldKind};
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp, Seen, WriteRef};

use super::call::CallWrites;
use super::error::RunError;
use super::exit::add_items;
use super::head::{Head, INTERRUPT_SEEN};
use super::task::{StepTask, TaskWrite, WriteKind};

/// Changes since the last checkpoint, to be recorded with the next one.
#[derive(Default)]
pub(crate) struct Changes {
    /// In the order of the channels.
    channels: Vec<(u32, ChangeValue, Option<u32>)>,
    seen: Vec<Seen>,
}

/// A write to a channel with its place: the position of its task among those the checkpoint records, and of the write
/// in the task.
struct Placed {
    channel: u32,
    task: Option<u32>,
    id: TaskId,
    index: i32,
    kind: WriteKind,
}

impl Changes {
    /// Returns whether nothing changed since the last checkpoint.
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.seen.is_empty()
    }

    /// Returns whether a channel with a number below `end` changed since the last checkpoint.
    pub(crate) fn changed_below(&self, end: usize) -> bool {
        self.channels.first().is_some_and(|(channel, ..)| (*channel as usize) < end)
    }

    /// Takes the changes and the seen versions, for a checkpoint to record.
    pub(crate) fn take(&mut self, graph: &Graph, head: &Head) -> (Vec<Change>, Vec<Seen>) {
        // The list itself is reused by the next superstep.
        let changes = self.channels.drain(..).map(|(channel, value, task)| {
            let channel = channel as usize;
            Change::new(Arc::clone(&graph.channels[channel]), head.versions[channel], value).by(task)
        });
        (changes.collect(), std::mem::take(&mut self.seen))
    }

    /// Notes a change. Changes of one list add up; of anything else the last counts.
    pub(crate) fn note(&mut self, channel: u32, value: ChangeValue, task: Option<u32>) {
        let at = self.channels.partition_point(|(known, ..)| *known < channel);
        let known = self.channels.get_mut(at).filter(|(known, ..)| *known == channel);
        match (known, value) {
            (Some((_, ChangeValue::Items(old), last)), ChangeValue::Items(new)) => {
                add_items(old, new);
                *last = task;
            }
            (Some(known), value) => *known = (channel, value, task),
            (None, value) => self.channels.insert(at, (channel, value, task)),
        }
    }

    pub(crate) fn note_seen(&mut self, seen: Seen) {
        self.seen.retain(|old| old.node != seen.node);
        // Most supersteps have one task.
        self.seen.reserve_exact(usize::from(self.seen.is_empty()));
        self.seen.push(seen);
    }
}

/// The step that follows after the writes are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterWrites {
    /// No step: the writes do not belong to a superstep.
    Continue,
    /// The superstep is abandoned, and another one begins in any case.
    Abandon,
    /// The superstep ends, perhaps as the last one.
    Finish,
}

/// Drops the tasks of a superstep that is abandoned for a new input. Deferred nodes stay deferred.
pub(crate) fn abandon(
    graph: &Graph,
    head: &mut Head,
    tasks: &mut [StepTask],
    changes: &mut Changes,
    record: bool,
) -> Result<(), RunError> {
    apply_then(graph, head, tasks, Vec::new(), changes, record, AfterWrites::Abandon)
}

/// Applies the writes of the tasks of a superstep, and then of those they called. The channels that changed are then
/// [`Head::updated`].
///
/// The tasks are sorted first; `tasks` keeps its order. A failure leaves the head half changed: drop it.
pub(crate) fn apply(
    graph: &Graph,
    head: &mut Head,
    tasks: &mut [StepTask],
    calls: Vec<CallWrites>,
    changes: &mut Changes,
    record: bool,
) -> Result<(), RunError> {
    apply_then(graph, head, tasks, calls, changes, record, AfterWrites::Finish)
}

fn apply_then(
    graph: &Graph,
    head: &mut Head,
    tasks: &mut [StepTask],
    calls: Vec<CallWrites>,
    changes: &mut Changes,
    record: bool,
    after: AfterWrites,
) -> Result<(), RunError> {
    let sorted: Vec<usize>;
    let order: &[usize] = match tasks.len() {
        0 => &[],
        // Most supersteps have one task.
        1 => &[0],
        count => {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|a, b| tasks[*a].order(graph).cmp(&tasks[*b].order(graph)));
            sorted = order;
            &sorted
        }
    };
    for at in order {
        see(graph, head, &tasks[*at], changes, record);
    }
    let next = head.version_max + 1;
    let mut consumed: Vec<u32> = Vec::new();
    for task in tasks.iter() {
        if let (Some(node), None) = (task.node, &task.push) {
            let held = |channel: &&u32| graph.join_of(**channel).is_some() || graph.nodes[node].settings.defer;
            consumed.extend(graph.nodes[node].triggers.iter().filter(held));
        }
    }
    consumed.sort_unstable();
    consumed.dedup();
    for channel in consumed {
        super::defer::consume(graph, head, channel, next, changes, record);
        if let Some(join) = graph.join_of(channel)
            && head.barriers[join].consume()
        {
            bump(head, channel, next);
            note_barrier(graph, head, channel, changes, record)?;
        }
    }
    let count = tasks.iter().map(|task| task.writes().len()).chain(calls.iter().map(|call| call.writes.len())).sum();
    let mut placed: Vec<Placed> = Vec::with_capacity(count);
    for &at in order {
        let id = tasks[at].id;
        // A task that a command started is not recorded with the checkpoint.
        let recorded =
            if head.recorded.get(at) == Some(&id) { Some(at) } else { head.recorded.iter().position(|r| *r == id) };
        let task = recorded.map(|at| at as u32);
        // A write without a channel only says that the task has ended.
        for TaskWrite { index, channel, kind, .. } in
            tasks[at].take_writes().into_iter().filter(|write| write.channel != u32::MAX)
        {
            placed.push(Placed { channel, task, id, index, kind });
        }
    }
    for CallWrites { task: id, writes, .. } in calls {
        placed.extend(writes.into_iter().map(|write| Placed::untasked(write, id)));
    }
    write_all(graph, head, placed, next, after, changes, record)
}

/// Applies writes that belong to no task: the input of a run, or a command. Returns the channels that changed.
pub(crate) fn apply_untasked(
    graph: &Graph,
    head: &mut Head,
    writes: Vec<TaskWrite>,
    from: TaskId,
    changes: &mut Changes,
    record: bool,
) -> Result<Vec<u32>, RunError> {
    let next = head.version_max + 1;
    let placed = writes.into_iter().map(|write| Placed::untasked(write, from)).collect();
    write_all(graph, head, placed, next, AfterWrites::Continue, changes, record)?;
    Ok(head.updated.clone().unwrap_or_default())
}

impl Placed {
    /// Places a write whose task no checkpoint records.
    fn untasked(write: TaskWrite, id: TaskId) -> Self {
        let TaskWrite { index, channel, kind, .. } = write;
        Self { channel, task: None, id, index, kind }
    }
}

/// Notes that a node has seen its triggers.
fn see(graph: &Graph, head: &mut Head, task: &StepTask, changes: &mut Changes, record: bool) {
    let Some(node) = task.node else {
        if task.push.is_none() {
            head.input_seen = head.versions[graph.input() as usize];
        }
        if record {
            let input = Arc::clone(&graph.channels[graph.input() as usize]);
            let seen = (head.input_seen > 0).then(|| (Arc::clone(&input), head.input_seen));
            changes.note_seen(Seen::new(input, seen.into_iter().collect()));
        }
        return;
    };
    let mut seen = head.seen[node].take().unwrap_or_default();
    if task.push.is_none() && task.handles().is_none() {
        seen.clear();
        seen.reserve_exact(graph.nodes[node].triggers.len());
        let versions = graph.nodes[node].triggers.iter().map(|channel| (*channel, head.versions[*channel as usize]));
        seen.extend(versions.filter(|(_, version)| *version > 0));
    }
    if record {
        let name = |channel: u32| Arc::clone(&graph.channels[channel as usize]);
        let versions = seen.iter().map(|(channel, version)| (name(*channel), *version)).collect();
        changes.note_seen(Seen::new(Arc::clone(&graph.nodes[node].name), versions));
    }
    head.seen[node] = Some(seen);
}

/// Notes for breakpoints that all present versions were seen.
pub(crate) fn see_all(graph: &Graph, head: &mut Head, changes: &mut Changes, record: bool) {
    let versions = head.versions.iter().enumerate().filter(|(_, version)| **version > 0);
    head.interrupt_seen = versions.map(|(channel, version)| (channel as u32, *version)).collect();
    if record {
        let name = |channel: u32| Arc::clone(&graph.channels[channel as usize]);
        let versions = head.interrupt_seen.iter().map(|(channel, version)| (name(*channel), *version)).collect();
        changes.note_seen(Seen::new(INTERRUPT_SEEN, versions));
    }
}

pub(super) fn bump(head: &mut Head, channel: u32, next: u64) {
    head.versions[channel as usize] = next;
    head.version_max = next;
}

fn write_all(
    graph: &Graph,
    head: &mut Head,
    mut placed: Vec<Placed>,
    next: u64,
    after: AfterWrites,
    changes: &mut Changes,
    record: bool,
) -> Result<(), RunError> {
    debug_assert!(next >= head.version_max, "versions of channels grow");
    // Stable: the writes to one channel stay in the order of their tasks.
    placed.sort_by_key(|write| write.channel);
    let mut updated = head.updated.take().unwrap_or_default();
    updated.clear();
    for writes in placed.chunk_by_mut(|a, b| a.channel == b.channel) {
        let channel = writes[0].channel;
        let changed = write_channel(graph, head, channel, writes, next, changes, record)?;
        if changed && head.available(graph, channel) {
            updated.push(channel);
        }
    }
    if after != AfterWrites::Continue {
        idle(graph, head, &updated, next, changes, record);
    }
    if after == AfterWrites::Finish {
        super::defer::finish(graph, head, &mut updated, next, changes, record)?;
    }
    debug_assert!(
        updated.iter().all(|channel| head.versions[*channel as usize] == next),
        "a channel that changed has the version of its superstep"
    );
    debug_assert!(head.version_max <= next, "a superstep makes one version");
    head.updated = Some(updated);
    Ok(())
}

fn write_channel(
    graph: &Graph,
    head: &mut Head,
    channel: u32,
    writes: &mut [Placed],
    next: u64,
    changes: &mut Changes,
    record: bool,
) -> Result<bool, RunError> {
    if graph.is_field(channel) {
        return write_field(graph, head, channel, writes, next, changes, record);
    }
    if let Some(join) = graph.join_of(channel) {
        let names = writes.iter().filter_map(|write| match &write.kind {
            WriteKind::Join(name) => Some(name.as_str()),
            _ => None,
        });
        let effect = head.barriers[join].update(names).map_err(|source| crate::state::StateError::Channel {
            channel: Arc::clone(&graph.channels[channel as usize]),
            source,
        })?;
        if effect != ChannelEffect::Unchanged {
            bump(head, channel, next);
            note_barrier(graph, head, channel, changes, record)?;
        }
        return Ok(effect != ChannelEffect::Unchanged);
    }
    bump(head, channel, next);
    if channel == graph.sends() {
        let old = head.sends.len() as u64;
        head.sends.clear();
        let mut items = Vec::new();
        if old > 0 {
            items.push(ItemChange::new(0, ItemOp::DeleteRange { end: old }, None));
        }
        for write in writes {
            let slot = head.sends.len() as u64;
            let data = data_of(write);
            if let WriteKind::Send(send) = std::mem::replace(&mut write.kind, WriteKind::Trigger) {
                items.push(ItemChange::new(slot, ItemOp::Put(data), write.task));
                head.sends.push(*send);
            }
        }
        head.present[channel as usize] = !head.sends.is_empty();
        if record {
            changes.note(channel, ChangeValue::Items(items), None);
        }
        return Ok(true);
    }
    head.present[channel as usize] = true;
    if !super::defer::hold(graph, head, channel, changes, record)? && record {
        // A trigger has no value: only its version matters.
        let null = crate::base::Encoded::null().into();
        let task = writes.last().and_then(|write| write.task);
        changes.note(channel, ChangeValue::Value(Data::New(null)), task);
    }
    Ok(true)
}

fn write_field(
    graph: &Graph,
    head: &mut Head,
    channel: u32,
    writes: &mut [Placed],
    next: u64,
    changes: &mut Changes,
    record: bool,
) -> Result<bool, RunError> {
    let field = channel as usize;
    let mut values: Vec<BoxWrite> = Vec::with_capacity(writes.len());
    values.extend(writes.iter_mut().filter_map(|write| match &mut write.kind {
        WriteKind::Field(value) => value.take(),
        _ => None,
    }));
    let places = &*writes;
    debug_assert_eq!(values.len(), places.len(), "a write to a field has a value, which is applied once");
    let is_list = graph.layout.kind(field) == FieldKind::List;
    let from = |value: &BoxWrite| value.told_of().and_then(|told| told.of.clone());
    let given: Vec<Option<ListRef>> = if is_list { values.iter().map(from).collect() } else { Vec::new() };
    let effect = graph.layout.update(&mut head.state, field, &mut head.present[field], values)?;
    if let ChannelEffect::Shared(at) = effect {
        head.shared.retain(|(known, _)| *known != channel);
        head.shared.push((channel, given[at].clone()));
    }
    if effect == ChannelEffect::Unchanged {
        return Ok(false);
    }
    bump(head, channel, next);
    if !record || graph.layout.kind(field) == FieldKind::Untracked {
        return Ok(true);
    }
    let last = places.last().and_then(|write| write.task);
    match effect {
        ChannelEffect::Unchanged => {}
        ChannelEffect::Cleared => changes.note(channel, ChangeValue::Empty, None),
        ChannelEffect::TookWrite(at) => {
            changes.note(channel, ChangeValue::Value(data_of(&places[at])), places[at].task);
        }
        ChannelEffect::Computed => {
            let data = Data::New(graph.layout.encode(&head.state, field)?);
            changes.note(channel, ChangeValue::Value(data), last);
        }
        ChannelEffect::Shared(at) => {
            let share = given[at].clone().map(|of| ItemChange::new(0, ItemOp::Reference(of), places[at].task));
            head.stored_whole.retain(|known| *known != channel);
            // In a recorded run a given list has a reference to the stored list.
            changes.note(channel, ChangeValue::Items(share.into_iter().collect()), last);
        }
        ChannelEffect::Items(items) => {
            let items = items.into_iter().map(|change| match change.op {
                ListOp::Put { write, part } => {
                    let place = &places[write];
                    let data = match part {
                        NOT_STORED => Data::New(graph.layout.encode_item(&head.state, field, change.position)?),
                        part => Data::OfWrite(WriteRef::new(place.id, place.index).with_part(part as u32)),
                    };
                    Ok(ItemChange::new(change.position, ItemOp::Put(data), place.task))
                }
                ListOp::Delete => Ok(ItemChange::new(change.position, ItemOp::Delete, last)),
                ListOp::DeleteRange { end } => Ok(ItemChange::new(change.position, ItemOp::DeleteRange { end }, last)),
            });
            let items = whole_list(graph, head, channel, items.collect::<Result<_, RunError>>()?)?;
            changes.note(channel, ChangeValue::Items(items), last);
        }
    }
    Ok(true)
}

/// Returns the changes to store of a list: all its items if it was stored as one value so far, else those that changed.
fn whole_list(
    graph: &Graph,
    head: &mut Head,
    channel: u32,
    items: Vec<ItemChange>,
) -> Result<Vec<ItemChange>, RunError> {
    let Some(at) = head.stored_whole.iter().position(|known| *known == channel) else { return Ok(items) };
    head.stored_whole.swap_remove(at);
    let field = channel as usize;
    let mut written: BTreeMap<u64, ItemChange> = items.into_iter().map(|item| (item.position, item)).collect();
    let put = |position: u64| match written.remove(&position).filter(|item| matches!(item.op, ItemOp::Put(_))) {
        Some(item) => Ok(item),
        None => {
            let data = Data::New(graph.layout.encode_item(&head.state, field, position)?);
            Ok(ItemChange::new(position, ItemOp::Put(data), None))
        }
    };
    graph.layout.positions(&head.state, field).into_iter().map(put).collect()
}

/// The bytes of a value that a write brought: they are those of the write.
fn data_of(write: &Placed) -> Data {
    Data::OfWrite(WriteRef::new(write.id, write.index))
}

pub(super) fn note_barrier(
    graph: &Graph,
    head: &Head,
    channel: u32,
    changes: &mut Changes,
    record: bool,
) -> Result<(), RunError> {
    if let (true, Some(join)) = (record, graph.join_of(channel)) {
        let seen: Vec<&str> = head.barriers[join].seen().collect();
        let encoded = match head.barriers[join].finished() {
            Some(finished) => Encoded::encode(&(seen, finished))?,
            None => Encoded::encode(&seen)?,
        };
        changes.note(channel, ChangeValue::Value(Data::New(encoded.into())), None);
    }
    Ok(())
}

/// Ends a superstep for the channels that it did not write: triggers and other short-lived values are cleared.
fn idle(graph: &Graph, head: &mut Head, updated: &[u32], next: u64, changes: &mut Changes, record: bool) {
    for field in &graph.idle_fields {
        let channel = *field as u32;
        if head.present[*field] && !updated.contains(&channel) {
            let effect = graph.layout.idle(&mut head.state, *field, &mut head.present[*field]);
            if effect != ChannelEffect::Unchanged {
                bump(head, channel, next);
                if record && graph.layout.kind(*field) != FieldKind::Untracked {
                    changes.note(channel, ChangeValue::Empty, None);
                }
            }
        }
    }
    let first = graph.sends();
    let end = graph.trigger(graph.nodes.len());
    for channel in first..end {
        if head.present[channel as usize] && !updated.contains(&channel) && graph.deferral_of(channel).is_none() {
            head.present[channel as usize] = false;
            bump(head, channel, next);
            if channel == graph.sends() {
                let end = head.sends.len() as u64;
                head.sends.clear();
                let cut = ItemChange::new(0, ItemOp::DeleteRange { end }, None);
                if record {
                    changes.note(channel, ChangeValue::Items(vec![cut]), None);
                }
            } else if record {
                changes.note(channel, ChangeValue::Empty, None);
            }
            if channel == graph.input() {
                head.input = None;
            }
        }
    }
}
