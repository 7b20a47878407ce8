//! Decodes the stored records of a checkpoint into a head.

use annals_runs::SpecialWrite;
use std::sync::Arc;

use crate::base::NULL_TASK;
use crate::base::decode_bytes;
use crate::base::{CheckpointId, CodecError, ListDelta, ListRef, Map, PayloadRef, Timestamp, Value, WriteValue};
use crate::graph::{Graph, JOIN_CHANNEL, NodeOutput, SendTo, TimeoutPolicy};
use crate::state::{BoxWrite, FieldKind, ListLoader, StateError, Writes};
use crate::store::Source;
use crate::store::record::{ChannelRecord, ChannelValue, ItemRow, StateRecord, TaskKind, WriteRecord};
use crate::task::{Attempt, Interrupt};

use super::begin::resume_values_by_id;
use super::error::RunError;
use super::head::{DeltaBase, Head, HeadCheckpoint, INTERRUPT_SEEN, LostJoin, PendingWrite, PendingWrites};
use super::input::input_from;
use super::task::{TaskWrite, WriteKind};

/// The memory overhead of a list item besides its bytes, roughly.
const ITEM_OVERHEAD_BYTES: usize = 240;

/// Builds a head from the records of a checkpoint.
pub(crate) struct Loader<'a> {
    graph: &'a Graph,
    head: Head,
    lists: Vec<u32>,
    /// The list channel whose items come next.
    list: Option<u32>,
    /// The loader of that list, once it has an item, if it is a field.
    items: Option<Box<dyn ListLoader + 'a>>,
    /// True if the input waits to run and its content is in the writes of its task.
    needs_input: bool,
    /// The lists of the input that are stored elsewhere, by their fields.
    input_lists: Vec<(usize, ListRef)>,
}

impl<'a> Loader<'a> {
    /// Makes a loader of an empty head.
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let (lists, input_lists) = (Vec::new(), Vec::new());
        Self { graph, head: Head::empty(graph), lists, list: None, items: None, needs_input: false, input_lists }
    }

    /// Decodes everything but the items of lists and the writes of tasks. Called once, before the items.
    pub(crate) fn record(&mut self, record: &StateRecord) -> Result<(), RunError> {
        let (graph, checkpoint) = (self.graph, &record.checkpoint);
        debug_assert!(self.head.checkpoint.is_none(), "a head is loaded from one record");
        self.head.checkpoint =
            Some(HeadCheckpoint { id: checkpoint.point.checkpoint, step: checkpoint.step, source: checkpoint.source });
        self.head.parent = checkpoint.parent;
        self.head.metadata.clone_from(&checkpoint.metadata);
        self.head.parents = Arc::clone(&checkpoint.parents);
        self.head.recorded = checkpoint.tasks.iter().map(|task| task.id).collect();
        self.head.due = checkpoint.tasks.iter().map(|task| Arc::clone(&task.name)).collect();
        for channel in &record.channels {
            self.head.version_max = self.head.version_max.max(channel.version);
            if let Some(number) = graph.by_channel.get(&channel.channel) {
                self.head.versions[*number as usize] = channel.version;
                self.value(*number, &channel.value)?;
            }
        }
        let input = graph.input() as usize;
        // An older arrival was left behind by a run before.
        let newer = record.channels.iter().filter(|channel| channel.version > self.head.versions[input]);
        self.head.lost_joins = newer.filter_map(|channel| lost_join(graph, channel)).collect();
        self.seen(record);
        self.head.updated = updated(graph, record);
        self.needs_input &= self.head.versions[input] > self.head.input_seen;
        Ok(())
    }

    fn value(&mut self, channel: u32, value: &ChannelValue) -> Result<(), RunError> {
        let (graph, head) = (self.graph, &mut self.head);
        let at = channel as usize;
        match value {
            ChannelValue::Empty => head.present[at] = false,
            ChannelValue::Items => {
                self.lists.push(channel);
                head.present[at] = graph.is_field(channel);
            }
            ChannelValue::Value(payload) => {
                head.present[at] = true;
                head.bytes += payload.len();
                if graph.is_field(channel) {
                    if graph.layout.kind(at) == FieldKind::List {
                        head.stored_whole.push(channel);
                    }
                    graph.layout.load(&mut head.state, at, payload.as_ref())?;
                } else if let Some(join) = graph.join_of(channel) {
                    let (names, released) = super::defer::barrier(decode_bytes(payload.codec, &payload.data)?);
                    let names: Vec<String> = names.to()?;
                    let update = head.barriers[join].update(names.iter().map(String::as_str));
                    update
                        .map_err(|source| StateError::Channel { channel: Arc::clone(&graph.channels[at]), source })?;
                    head.barriers[join].set_finished(released);
                } else if let Some(deferral) = graph.deferral_of(channel) {
                    head.finished[deferral] = super::defer::released(&decode_bytes(payload.codec, &payload.data)?);
                } else if channel == graph.input() {
                    match decode_bytes(payload.codec, &payload.data)? {
                        Value::Null => self.needs_input = true,
                        value => {
                            let (input, lists) = input_from(graph, value)?;
                            (head.input, self.input_lists) = (Some(input), lists);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn seen(&mut self, record: &StateRecord) {
        let graph = self.graph;
        for seen in &record.seen {
            let versions = seen.versions.iter();
            let known = versions.filter_map(|(name, version)| Some((*graph.by_channel.get(name)?, *version)));
            if &*seen.node == INTERRUPT_SEEN {
                self.head.interrupt_seen = known.collect();
            } else if seen.node == graph.channels[graph.input() as usize] {
                self.head.input_seen = known.map(|(_, version)| version).max().unwrap_or(0);
            } else if let Some(node) = graph.by_name.get(&seen.node) {
                self.head.seen[*node] = Some(known.collect());
            }
        }
    }

    /// Returns the fields that are stored as lists.
    pub(crate) fn lists(&self) -> Vec<u32> {
        self.lists.iter().copied().filter(|channel| self.graph.is_field(*channel)).collect()
    }

    /// Begins a channel of the record, and returns whether its items are needed.
    pub(crate) fn channel(&mut self, channel: &ChannelRecord) -> bool {
        self.finish_list();
        let known = self.graph.by_channel.get(&channel.channel).copied();
        self.list = known.filter(|_| channel.value == ChannelValue::Items);
        debug_assert!(self.list.is_none_or(|list| self.lists.contains(&list)), "the record has the list");
        self.list.is_some()
    }

    /// Adds an item of the list that was begun last; items come in order.
    pub(crate) fn item(&mut self, row: ItemRow<'_>) -> Result<(), RunError> {
        let Some(channel) = self.list else { return Ok(()) };
        let stored: PayloadRef<'_> = row.payload;
        self.head.bytes += stored.data.len() + ITEM_OVERHEAD_BYTES;
        self.head.bytes += stored.index.and_then(|index| index.text).map_or(0, str::len);
        if self.graph.is_field(channel) {
            let items = match &mut self.items {
                Some(items) => items,
                None => self.items.insert(self.graph.layout.load_list(channel as usize)?),
            };
            items.item(row.position, stored)?;
        } else if channel == self.graph.sends() {
            self.head.sends.push(send_from(stored)?);
            self.head.present[channel as usize] = true;
        }
        Ok(())
    }

    fn finish_list(&mut self) {
        if let Some(items) = self.items.take() {
            items.finish(&mut self.head.state);
        }
    }

    /// Notes that a list began as another one.
    pub(crate) fn shares(&mut self, channel: u32, of: ListRef) {
        self.head.shared.push((channel, Some(of)));
    }

    /// Returns whether the writes that hold the input are still missing.
    pub(crate) fn needs_input(&self) -> bool {
        self.needs_input && self.head.input.is_none()
    }

    /// Returns the lists of the input that are stored elsewhere, by their fields.
    pub(crate) fn input_lists(&mut self) -> Vec<(usize, ListRef)> {
        std::mem::take(&mut self.input_lists)
    }

    /// Adds such a list to the input.
    pub(crate) fn input_list(&mut self, field: usize, of: ListRef, base: &DeltaBase) -> Result<(), RunError> {
        let whole = ListDelta::new(of);
        let write = self.graph.layout.decode_delta(field, &whole, &base.list, false)?;
        if let Some(input) = &mut self.head.input {
            input.writes.push_box(field, write);
        }
        Ok(())
    }

    /// Takes the input from the stored writes of the task that took it.
    pub(crate) fn input(&mut self, writes: Vec<(WriteRecord, Option<DeltaBase>)>) -> Result<(), RunError> {
        let mut input = Writes::default();
        for (write, base) in &writes {
            if let Some(channel) = self.graph.by_channel.get(&write.channel).filter(|c| self.graph.is_field(**c)) {
                let write = field_write(self.graph, *channel, &write.value, base.as_ref())?;
                input.push_box(*channel as usize, write);
            }
        }
        self.head.input = Some(NodeOutput::update(input));
        Ok(())
    }

    /// Returns the head.
    pub(crate) fn finish(mut self) -> Head {
        self.finish_list();
        self.head
    }
}

/// Returns a join of another graph that some of its nodes have reached.
fn lost_join(graph: &Graph, channel: &ChannelRecord) -> Option<LostJoin> {
    let ChannelValue::Value(payload) = &channel.value else { return None };
    if !channel.channel.starts_with(JOIN_CHANNEL) || graph.by_channel.contains_key(&channel.channel) {
        return None;
    }
    // A field of another graph may have such a name, and any value.
    let (names, _) = super::defer::barrier(decode_bytes(payload.codec, &payload.data).ok()?);
    let arrived: Vec<String> = names.to().ok()?;
    (!arrived.is_empty()).then(|| LostJoin { channel: Arc::clone(&channel.channel), arrived })
}

impl Head {
    /// Takes the stored writes of the tasks of its checkpoint.
    pub(crate) fn set_pending(&mut self, writes: Vec<(WriteRecord, Option<DeltaBase>)>) {
        self.pending.clear();
        for (write, base) in writes {
            let WriteRecord { task, path, index, channel, value, .. } = write;
            let at = match self.pending.iter().position(|pending| pending.task == task) {
                Some(at) => at,
                None => {
                    self.pending.push(PendingWrites { task, path, writes: Vec::new() });
                    self.pending.len() - 1
                }
            };
            self.pending[at].writes.push(PendingWrite { index, channel, value, base });
        }
    }
}

/// The channels whose change made tasks due, as far as a checkpoint says: an update does not, and a fork only if its
/// tasks are recorded in the order that follows from it.
fn updated(graph: &Graph, record: &StateRecord) -> Option<Vec<u32>> {
    let checkpoint = &record.checkpoint;
    match (checkpoint.source, checkpoint.run) {
        (Source::Update, _) | (_, None) => None,
        (Source::Fork, Some(_)) if graph.entry => None,
        (Source::Fork, Some(_)) => {
            let nodes = checkpoint.tasks.iter().filter(|task| matches!(task.kind, TaskKind::Pull { .. }));
            let nodes: Vec<_> = nodes.map(|task| &task.name).collect();
            // The order of one task says nothing; a fork that changes nothing lists its tasks as the graph does.
            let by_name = nodes.is_sorted() && (nodes.len() > 1 || !record.updated.is_empty());
            by_name.then(|| (graph.layout.len()..graph.channels.len()).map(|channel| channel as u32).collect())
        }
        _ => Some(record.updated.iter().filter_map(|name| graph.by_channel.get(name).copied()).collect()),
    }
}

pub(super) fn send_from(stored: PayloadRef<'_>) -> Result<SendTo, CodecError> {
    let parts: Vec<Value> = decode_bytes(stored.codec, stored.data)?;
    let mut parts = parts.into_iter();
    let (node, arg) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let timeout = parts.next().map(|timeout| timeout.to::<TimeoutPolicy>()).transpose()?;
    Ok(SendTo { node: node.to::<String>()?.into(), arg, timeout })
}

fn field_write(
    graph: &Graph,
    channel: u32,
    value: &WriteValue,
    base: Option<&DeltaBase>,
) -> Result<BoxWrite, RunError> {
    let field = channel as usize;
    Ok(match (value, base) {
        (WriteValue::Delta(delta), Some(base)) => graph.layout.decode_delta(field, delta, &base.list, base.is_own)?,
        (value, _) => graph.layout.decode_write(field, value)?,
    })
}

/// Decodes the stored writes of a task. Writes to channels that the graph does not have are dropped.
pub(super) fn task_writes(graph: &Graph, pending: &PendingWrites) -> Result<Vec<TaskWrite>, RunError> {
    let mut writes = Vec::new();
    for write in pending.writes.iter().filter(|write| write.index >= 0) {
        let Some(channel) = graph.by_channel.get(&write.channel).copied() else { continue };
        let one = |value: &WriteValue| match value {
            WriteValue::One(payload) => Some(payload.clone()),
            _ => None,
        };
        let kind = if graph.is_field(channel) {
            WriteKind::Field(Some(field_write(graph, channel, &write.value, write.base.as_ref())?))
        } else if graph.join_of(channel).is_some() {
            match one(&write.value) {
                Some(payload) => WriteKind::Join(decode_bytes(payload.codec, &payload.data)?),
                None => continue,
            }
        } else if channel == graph.sends() {
            match one(&write.value) {
                Some(payload) => WriteKind::Send(Box::new(send_from(payload.as_ref())?)),
                None => continue,
            }
        } else {
            WriteKind::Trigger
        };
        writes.push(TaskWrite { index: write.index, channel, kind, encoded: None });
    }
    Ok(writes)
}

/// Returns the interrupts stored for a task.
pub(crate) fn interrupts_of(pending: &PendingWrites) -> Vec<Interrupt> {
    let stored = special_of(pending, SpecialWrite::Interrupt);
    let interrupts = stored.as_ref().and_then(Value::as_list).unwrap_or_default().iter().map(|interrupt| Interrupt {
        value: interrupt.get("value").cloned().unwrap_or_default(),
        id: interrupt.get("id").and_then(Value::as_str).unwrap_or_default().to_owned(),
        wake_at: interrupt.get("wake_at").and_then(Value::as_int).map(Timestamp::from_micros),
        signal: interrupt.get("signal").and_then(Value::as_str).map(str::to_owned),
        response_schema: interrupt.get("response_schema").cloned(),
    });
    interrupts.collect()
}

/// Returns the interrupts stored for a task in which it sleeps, with their wake-up times.
pub(super) fn asleep_of(pending: &PendingWrites) -> Vec<(String, Timestamp)> {
    interrupts_of(pending).into_iter().filter_map(|asked| Some((asked.id, asked.wake_at?))).collect()
}

/// Returns the heads at which a task has left the subgraphs that keep their state.
pub(super) fn left_by(pending: &PendingWrites) -> Vec<(String, CheckpointId)> {
    let Some(Value::Map(left)) = special_of(pending, SpecialWrite::Left) else { return Vec::new() };
    left.into_iter().filter_map(|(namespace, head)| Some((namespace, head.as_str()?.parse().ok()?))).collect()
}

/// Returns the attempt of a task that has called others.
pub(super) fn attempt_of(pending: &PendingWrites) -> Attempt {
    let Some(Value::List(stored)) = special_of(pending, SpecialWrite::Attempt) else { return Attempt::default() };
    let part = |at: usize| stored.get(at).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    Attempt { number: part(0), calls: part(1) }
}

/// Returns the resume values stored for a task, or the one stored for the first task that interrupts.
pub(super) fn resume_values_of(pending: &PendingWrites) -> Vec<Value> {
    match special_of(pending, SpecialWrite::Resume) {
        Some(value) if pending.task == NULL_TASK => vec![value],
        Some(Value::List(resume_values)) => resume_values,
        _ => Vec::new(),
    }
}

/// Returns the resume values that were stored from outside for the tasks of a head, by the ids of their interrupts.
pub(crate) fn given_of(head: &Head) -> Option<Map> {
    let given = special_of(head.pending_of(NULL_TASK)?, SpecialWrite::Given)?;
    resume_values_by_id(&given).filter(|given| !given.is_empty()).cloned()
}

pub(super) fn special_of(pending: &PendingWrites, of: SpecialWrite) -> Option<Value> {
    let write = pending.writes.iter().find(|write| write.index == of.index())?;
    match &write.value {
        WriteValue::One(payload) => decode_bytes(payload.codec, &payload.data).ok(),
        _ => None,
    }
}

/// Returns the writes of a task to the state, by channel; several writes to a channel are `{"$writes": [..]}`.
pub(crate) fn result_of(graph: &Graph, pending: &PendingWrites) -> Result<Map, RunError> {
    let written = shown_writes(graph, &task_writes(graph, pending)?)?;
    let mut result: Map = Map::new();
    for (channel, value) in &written {
        if !result.contains_key(channel) {
            let several: Vec<Value> =
                written.iter().filter(|(other, _)| other == channel).map(|(_, value)| value.clone()).collect();
            let shown = match several.len() {
                1 => value.clone(),
                _ => Value::Map([("$writes".to_string(), Value::List(several))].into_iter().collect()),
            };
            result.insert(channel.to_string(), shown);
        }
    }
    Ok(result)
}

fn shown_writes<'a>(graph: &'a Graph, writes: &[TaskWrite]) -> Result<Vec<(&'a Arc<str>, Value)>, RunError> {
    let mut shown = Vec::new();
    for write in writes {
        if let WriteKind::Field(Some(value)) = &write.kind {
            let field = write.channel as usize;
            shown.push((&graph.channels[field], graph.layout.write_to_value(field, value)?));
        }
    }
    Ok(shown)
}

/// Returns the message of the error stored for a task.
pub(super) fn error_of(pending: &PendingWrites) -> Option<String> {
    special_of(pending, SpecialWrite::Error).and_then(|error| error.as_str().map(str::to_owned))
}

/// Returns the message of the error that a snapshot shows for a task: its own, or that of the attempt before it waited.
pub(crate) fn shown_error_of(pending: &PendingWrites) -> Option<String> {
    let earlier = || special_of(pending, SpecialWrite::EarlierError)?.as_str().map(str::to_owned);
    error_of(pending).or_else(earlier)
}

/// Returns the message of the node's own error stored for a task whose failure another one handles. A file that an
/// earlier version wrote has the whole message alone.
pub(super) fn error_message_of(pending: &PendingWrites) -> Option<String> {
    let own = special_of(pending, SpecialWrite::ErrorMessage).and_then(|own| own.as_str().map(str::to_owned));
    own.or_else(|| error_of(pending))
}

/// Returns the name of the node stored for a task whose failure another one handles.
pub(super) fn error_source_of(pending: &PendingWrites) -> Option<Value> {
    special_of(pending, SpecialWrite::ErrorSource)
}
