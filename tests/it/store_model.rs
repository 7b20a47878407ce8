//! The backend in a file equals the backend in memory, whatever is done to both.
//!
//! Random operations go to both; after each the answers are compared. Numbers that a backend gives out (`seq` and
//! `branch`) may differ, but must agree on their order, and on the checkpoints that share a branch.
#![allow(clippy::unwrap_used, reason = "a test")]

use annals::store::WriteMark;
use std::sync::Arc;

use annals::base::limits::{MAP_POSITION_MIN, TEXT_POSITION_MIN};
use annals::base::{CheckpointId, Codec, Encoded, IdSource, Namespace, TaskId, ThreadId, Timestamp, Value};
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, ListDelta, ListRef, NewCheckpoint, NewTimer,
    NewWrite, NewWrites, Parent, Payload, Seen, WriteValue,
};
use annals::store::check::CheckedUpTo;
use annals::store::log::{CheckpointQuery, Log, LogExt, RecordQuery};
use annals::store::record::{ChannelValue, CheckpointRecord, TaskKind, TaskRecord};
use annals::store::{CheckpointRef, ItemRange, MemoryBackend, OpenOptions, Source, SqliteBackend, StoreError};
use proptest::prelude::*;

mod base;
mod copies;
mod ops;
mod prunes;
mod searches;
mod threads;
use crate::cases;
use base::Base;
use ops::{Content, ItemSpec, Op, ValueSpec, WriteSpec, op};

const THREADS_MAX: usize = 4;
const VALUES: [&str; 3] = ["x", "y", "z"];
const LISTS: [&str; 3] = ["list", "other", "draft"];
/// The parts of words and texts, in lists and values.
const TEXTS: [&str; 9] = ["te", "xt", " text ", "ü 3", "t ü ", "x", "", "日", "本 xt"];

/// A namespace of a thread, with the ids that were stored there.
struct Place {
    thread: ThreadId,
    namespace: Namespace,
    ids: Vec<CheckpointId>,
}

impl Place {
    fn point(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef { thread: self.thread.clone(), namespace: self.namespace.clone(), checkpoint }
    }
}

/// Both backends, and the data for batches that make sense. The state comes from the model.
struct Pair<'a> {
    model: Arc<MemoryBackend>,
    file: Arc<dyn Log>,
    open: &'a mut dyn FnMut() -> Arc<dyn Log>,
    places: Vec<Place>,
    committed: Vec<Batch>,
    ids: IdSource,
    /// Makes every payload another one.
    count: u32,
    /// The place for which a batch is built.
    building: usize,
}

fn task_id(checkpoint: &CheckpointId, n: u8) -> TaskId {
    let mut bytes = *checkpoint.as_bytes();
    bytes[0] = n;
    TaskId::from_bytes(bytes)
}

impl<'a> Pair<'a> {
    fn new(open: &'a mut dyn FnMut() -> Arc<dyn Log>) -> Self {
        let place = |thread: &str, namespace: &str| Place {
            thread: ThreadId::new(thread).unwrap(),
            namespace: Namespace::new(namespace).unwrap(),
            ids: Vec::new(),
        };
        let places = vec![place("a", ""), place("a", "node:1"), place("b", ""), place("a", "node:1|in:2")];
        let file = open();
        let (model, ids) = (Arc::new(MemoryBackend::new()), IdSource::from_seed(1));
        Self { model, file, open, places, committed: Vec::new(), ids, count: 0, building: 0 }
    }

    fn payload(&mut self, len: u16, indexed: bool) -> Payload {
        self.count += 1;
        let text = |n: u32| Value::from(TEXTS[(n as usize) % TEXTS.len()]);
        match self.count % 5 {
            1 => return Encoded::encode(&text(self.count / 5)).unwrap().into(),
            2 => {
                let pair = Value::List(vec![text(self.count / 5), text(self.count / 7)]);
                return Encoded::encode(&pair).unwrap().into();
            }
            _ => {}
        }
        let mut data = self.count.to_le_bytes().to_vec();
        data.resize(usize::from(len), 7);
        // Some payloads are equal, so that shared content is shared.
        if len > 1_536 && len.is_multiple_of(2) {
            data.fill(1);
        }
        let codec = Codec::from_tag(u8::from(self.count.is_multiple_of(11)));
        let payload = Payload::new(data).with_codec(codec);
        if !indexed || !self.count.is_multiple_of(2) {
            return payload;
        }
        let mut index = ItemIndex::default();
        (index.id, index.kind) = (Some(format!("id-{}", self.count).into()), Some("ai".into()));
        index.text =
            self.count.is_multiple_of(3).then(|| format!("text ü {} ", self.count % 5).repeat(usize::from(len) / 9));
        index.input_tokens = Some(self.count);
        payload.with_index(index)
    }

    fn write(&mut self, spec: &WriteSpec) -> NewWrite {
        let value = match spec.kind {
            0 => WriteValue::Null,
            1 => WriteValue::Items((0..spec.len % 4).map(|part| self.payload(spec.len + part, true)).collect()),
            4 if spec.index >= 0 => match self.stored_list(usize::from(spec.len), usize::from(spec.len)) {
                Some((of, _)) => {
                    let positions: Vec<u64> = (0..u64::from(spec.len % 4)).map(|n| n * 3).collect();
                    let items =
                        positions.iter().map(|position| self.payload(spec.len + *position as u16, true)).collect();
                    let mut delta = ListDelta::new(of);
                    delta.removed = if spec.len.is_multiple_of(2) { vec![1..2, 4..9] } else { Vec::new() };
                    (delta.positions, delta.items) = (positions, items);
                    WriteValue::Delta(Box::new(delta))
                }
                None => WriteValue::Null,
            },
            _ => WriteValue::One(self.payload(spec.len, false)),
        };
        let channel = match spec.index {
            -1 => "__error__",
            -3 => "__interrupt__",
            _ => "w",
        };
        let mark = match spec.index {
            ..0 if value == WriteValue::Null => None,
            -1 => Some(WriteMark::Failed),
            -3 if spec.len.is_multiple_of(2) => {
                Some(WriteMark::WaitsUntil(Timestamp::from_micros(i64::from(spec.len))))
            }
            -3 => Some(WriteMark::Waits),
            _ => None,
        };
        NewWrite::new(spec.index, channel, value).with_mark(mark)
    }

    fn writes(&mut self, checkpoint: CheckpointId, task: u8, specs: &[WriteSpec]) -> NewWrites {
        let writes = specs.iter().map(|spec| self.write(spec)).collect();
        NewWrites::new(checkpoint, task_id(&checkpoint, task), format!("p{}", 9 - task)).with(writes)
    }

    /// Returns the base for a checkpoint on `at`.
    fn base(&self, at: &CheckpointRef) -> Base {
        let state = self.model.state(at).unwrap();
        let mut base = Base { tasks: state.checkpoint.tasks.len() as u32, ..Base::default() };
        for channel in &state.channels {
            base.versions.insert(Arc::clone(&channel.channel), channel.version);
            let mut positions = Vec::new();
            let visited = self.model.items(at, &channel.channel, ItemRange::All, &mut |row| {
                positions.push(row.position);
                Ok(())
            });
            visited.unwrap();
            base.ends.insert(Arc::clone(&channel.channel), positions.last().map_or(0, |position| position + 1));
            base.positions.insert(Arc::clone(&channel.channel), positions);
        }
        for write in self.model.writes(at).unwrap() {
            base.add_write(write.task, write.index, &write.value);
        }
        base
    }

    fn checkpoint(&mut self, parent: Option<Parent>, base: &mut Base, content: &Content) -> NewCheckpoint {
        self.count += 1;
        let now = moment(self.count);
        let after = self.places.iter().flat_map(|place| &place.ids).max().copied();
        let id = self.ids.checkpoint(now, i64::from(content.more), after.as_ref());
        let mut consumed = Vec::new();
        if let Some(Parent::Local(local)) = &parent {
            for (task, specs) in &content.consumed {
                let new = self.writes(*local, *task, specs);
                new.writes.iter().for_each(|write| base.add_write(new.task, write.index, &write.value));
                consumed.push(new);
            }
        }
        let (tasks_before, task) = (base.tasks, self.count);
        let by = (tasks_before > 0 && task.is_multiple_of(3)).then(|| task % tasks_before);
        let mut changes: Vec<Change> = Vec::new();
        for (at, spec) in &content.values {
            let value = match spec {
                ValueSpec::Empty => ChangeValue::Empty,
                ValueSpec::OfWrite(at) if !base.writes.is_empty() => {
                    ChangeValue::Value(Data::OfWrite(base.writes[at % base.writes.len()].clone()))
                }
                ValueSpec::OfWrite(_) => ChangeValue::Value(Data::New(self.payload(3, false))),
                ValueSpec::New(len) => ChangeValue::Value(Data::New(self.payload(*len, false))),
            };
            base.change(&mut changes, VALUES[*at], value, by);
        }
        for (at, specs) in &content.lists {
            let items = self.list(base, LISTS[*at], specs, by);
            base.change(&mut changes, LISTS[*at], ChangeValue::Items(items), by);
        }
        let kind = |n: u8| match n {
            0 => TaskKind::Push { index: 3 },
            _ => TaskKind::Pull { triggers: vec!["branch:to:node".into()] },
        };
        let tasks = (0..content.tasks).map(|n| TaskRecord::new(task_id(&id, n), "node", kind(n)));
        let mut seen: Vec<Seen> = content.seen.iter().map(|n| self.seen(*n)).collect();
        seen.dedup_by(|a, b| a.node == b.node);
        base.tasks = u32::from(content.tasks);
        base.writes.clear();
        base.taken.clear();
        let source = if matches!(parent, Some(Parent::Fork(_))) { Source::Fork } else { Source::Loop };
        let metadata = self.count.is_multiple_of(4).then(|| format!(r#"{{"n":{}}}"#, self.count));
        let (step, tasks) = (i64::from(self.count), tasks.collect());
        let around = parent.iter().filter_map(|parent| match parent {
            Parent::Local(id) => Some((Namespace::root(), *id)),
            Parent::Fork(_) => None,
        });
        let (parents, created_at) = (around.collect(), now);
        let mut checkpoint = NewCheckpoint::new(id, parent, step, source, created_at);
        (checkpoint.metadata, checkpoint.parents, checkpoint.tasks) = (metadata, parents, tasks);
        (checkpoint.consumed, checkpoint.changes, checkpoint.seen) = (consumed, changes, seen);
        checkpoint
    }

    /// Picks a list that is stored in the thread for which a batch is built, with the positions it holds.
    fn stored_list(&self, place: usize, at: usize) -> Option<(ListRef, Vec<u64>)> {
        let thread = &self.places[self.building].thread;
        let places: Vec<&Place> = self.places.iter().filter(|other| other.thread == *thread).collect();
        let place = places[place % places.len()];
        let point = place.point(*place.ids.get(at % place.ids.len().max(1))?);
        self.model.checkpoint(&point).unwrap()?;
        let mut positions = Vec::new();
        let channel = LISTS[at % LISTS.len()];
        let visited = self.model.items(&point, channel, ItemRange::All, &mut |row| {
            positions.push(row.position);
            Ok(())
        });
        visited.unwrap();
        let of = ListRef::new(point.namespace, point.checkpoint, channel);
        Some((of, positions))
    }

    fn seen(&self, n: u8) -> Seen {
        Seen::new(format!("node {n}"), vec![("x".into(), u64::from(self.count))])
    }

    fn list(&mut self, base: &mut Base, channel: &str, specs: &[ItemSpec], task: Option<u32>) -> Vec<ItemChange> {
        let mut positions = base.positions.entry(channel.into()).or_default().clone();
        // The last of the lists is a text.
        let first = if channel == LISTS[2] { TEXT_POSITION_MIN } else { 0 };
        let mut end = base.ends.get(channel).copied().unwrap_or(first).max(first);
        let mut items: Vec<ItemChange> = Vec::new();
        let shared = specs.iter().find_map(|spec| match spec {
            ItemSpec::Share(place, at) => self.stored_list(*place, *at),
            _ => None,
        });
        if let Some((of, found)) = shared {
            items.push(ItemChange::new(0, ItemOp::Reference(of), task));
            end = end.max(found.last().map_or(0, |position| position + 1));
            positions = found;
        }
        let mut held = positions.clone();
        let pick = |at: &usize| positions.get(at % positions.len().max(1)).copied();
        for spec in specs {
            if let ItemSpec::Cut(at, count) = spec
                && items.iter().all(|item| !matches!(item.op, ItemOp::Reference(_)))
                && let Some(position) = pick(at)
            {
                let end = position + u64::from(*count);
                held.retain(|held| !(position..end).contains(held));
                items.push(ItemChange::new(position, ItemOp::DeleteRange { end }, None));
            }
        }
        for spec in specs {
            let (position, op) = match spec {
                ItemSpec::Cut(..) | ItemSpec::Share(..) => continue,
                ItemSpec::Append(len) => (end, ItemOp::Put(Data::New(self.payload(*len, true)))),
                ItemSpec::Entry(key, len) => {
                    let position = MAP_POSITION_MIN + u64::from(*key) * 90_000_000_000;
                    (position, ItemOp::Put(Data::New(self.payload(*len, true))))
                }
                ItemSpec::AppendOfWrite(at) => {
                    let Some(write) = base.writes.get(at % base.writes.len().max(1)) else { continue };
                    (end, ItemOp::Put(Data::OfWrite(write.clone())))
                }
                ItemSpec::Replace(at, len) => {
                    let Some(position) = pick(at) else { continue };
                    (position, ItemOp::Put(Data::New(self.payload(*len, true))))
                }
                ItemSpec::Remove(at) => match pick(at) {
                    Some(position) if held.contains(&position) => (position, ItemOp::Delete),
                    _ => continue,
                },
            };
            let taken = |item: &ItemChange| item.position == position && item.op.is_of_position();
            if !items.iter().any(taken) {
                held.retain(|held| *held != position);
                if matches!(op, ItemOp::Put(_)) {
                    held.push(position);
                }
                end = end.max(position + 1);
                items.push(ItemChange::new(position, op, task));
            }
        }
        held.sort_unstable();
        base.positions.insert(channel.into(), held);
        base.ends.insert(channel.into(), end);
        items
    }

    /// Builds a batch on `parent`, expecting `head`.
    fn batch(&mut self, place: usize, head: Option<CheckpointId>, parent: Option<Parent>, content: &Content) -> Batch {
        self.building = place;
        let (thread, namespace) = (self.places[place].thread.clone(), self.places[place].namespace.clone());
        let mut base = match &parent {
            None => Base::default(),
            Some(Parent::Local(id)) => self.base(&self.places[place].point(*id)),
            Some(Parent::Fork(at)) => self.base(at),
        };
        let mut batch = Batch::new(thread, namespace, head);
        let mut parent = parent;
        for _ in 0..=content.more {
            let checkpoint = self.checkpoint(parent, &mut base, content);
            parent = Some(Parent::Local(checkpoint.id));
            self.places[place].ids.push(checkpoint.id);
            batch.checkpoints.push(checkpoint);
        }
        // The ids count as used only once they are stored.
        let left = self.places[place].ids.len() - batch.checkpoints.len();
        self.places[place].ids.truncate(left);
        batch
    }

    /// Returns where a fork to a new namespace goes: an empty place, or a new thread, if there is room.
    fn new_place(&mut self) -> Option<usize> {
        if let Some(empty) = self.places.iter().rposition(|place| place.ids.is_empty()) {
            return Some(empty);
        }
        if self.places.len() >= THREADS_MAX + 2 {
            return None;
        }
        let thread = ThreadId::new(format!("fork {}", self.places.len())).unwrap();
        self.places.push(Place { thread, namespace: Namespace::root(), ids: Vec::new() });
        Some(self.places.len() - 1)
    }

    /// Builds the batch of an operation; `None` if there is nothing to do it with.
    fn build(&mut self, op: &Op) -> Option<Batch> {
        let count = self.places.len();
        let pick = |place: &Place, at: usize| (!place.ids.is_empty()).then(|| place.ids[at % place.ids.len()]);
        match op {
            Op::Commit { place, content } => {
                let head = self.places[place % count].ids.last().copied();
                Some(self.batch(place % count, head, head.map(Parent::Local), content))
            }
            Op::Fork { place, from, content } => {
                let head = self.places[place % count].ids.last().copied();
                let from = pick(&self.places[place % count], *from)?;
                Some(self.batch(place % count, head, Some(Parent::Local(from)), content))
            }
            Op::ForkTo { from_place, from, content } => {
                let source = from_place % count;
                let at = self.places[source].point(pick(&self.places[source], *from)?);
                let target = self.new_place()?;
                Some(self.batch(target, None, Some(Parent::Fork(at)), content))
            }
            Op::Writes { place, at, task, writes, wake_at } => {
                let (place, head) = (place % count, self.places[place % count].ids.last().copied()?);
                let at = pick(&self.places[place], *at)?;
                self.building = place;
                let new = self.writes(at, *task, writes);
                let place = &self.places[place];
                let mut batch = Batch::new(place.thread.clone(), place.namespace.clone(), Some(head));
                // A task that waits until a time has a timer, or a check finds that it is missing. Of the new writes of
                // an index the last one replaces the others, and the stored one.
                let stored = self.model.writes(&place.point(at)).unwrap();
                let of_task = stored.iter().filter(|write| write.task == new.task);
                let marks = new.writes.iter().rev().map(|write| (write.index, write.mark));
                let mut marks = marks.chain(of_task.map(|write| (write.index, write.mark)));
                let wake_at = match marks.find(|(index, _)| *index == -3) {
                    Some((_, Some(WriteMark::WaitsUntil(until)))) => Some(Some(until)),
                    _ => wake_at.map(|wake_at| wake_at.map(|micros| Timestamp::from_micros(micros.into()))),
                };
                batch.timers.extend(wake_at.map(|wake_at| NewTimer::new(at, new.task, wake_at)));
                batch.writes.push(new);
                Some(batch)
            }
            Op::Stale { place, head, content } => {
                let place = place % count;
                let stale = head.and_then(|at| pick(&self.places[place], at));
                if stale == self.places[place].ids.last().copied() {
                    return None;
                }
                Some(self.batch(place, stale, stale.map(Parent::Local), content))
            }
            Op::Repeat { which, altered } => {
                let mut batch = self.committed.get(which % self.committed.len().max(1))?.clone();
                if let (Some(last), true) = (batch.checkpoints.last_mut(), altered) {
                    last.step += 1;
                }
                Some(batch)
            }
            Op::Prune { .. } | Op::PruneNamespaces { .. } | Op::Delete { .. } | Op::Reopen => None,
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        if matches!(op, Op::Reopen) {
            self.file = Arc::new(MemoryBackend::new());
            self.file = (self.open)();
        }
        if let Op::Delete { of } = op {
            return self.delete(of);
        }
        if let Op::Prune { place, from, count } = op {
            return prunes::prune(self, *place, *from, *count);
        }
        if let Op::PruneNamespaces { of, is_stale } = op {
            return prunes::prune_namespaces(self, of, *is_stale);
        }
        let Some(batch) = self.build(op) else { return Ok(()) };
        let (expected, found) = (self.model.commit(&batch), self.file.commit(&batch));
        prop_assert_eq!(kind(&expected), kind(&found), "model {:?}, file {:?}, {:?}", expected, found, batch);
        if let (Err(expected), Err(found)) = (&expected, &found) {
            prop_assert_eq!(expected.to_string(), found.to_string());
        }
        // A list that the batch refers to may have been pruned since, also with its namespace.
        let is_gone =
            matches!(expected, Err(StoreError::CheckpointPruned { .. } | StoreError::CheckpointNotFound { .. }));
        let is_pruned = is_gone && matches!(op, Op::Repeat { .. });
        let makes_sense =
            is_pruned || matches!(expected, Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Duplicate { .. }));
        prop_assert!(makes_sense, "the test built a bad batch: {:?}, {:?}", expected, batch);
        if expected.is_ok() && !matches!(op, Op::Repeat { .. }) {
            let place = self
                .places
                .iter_mut()
                .find(|place| place.thread == batch.thread && place.namespace == batch.namespace)
                .unwrap();
            place.ids.extend(batch.checkpoints.iter().map(|checkpoint| checkpoint.id));
            self.committed.push(batch);
        }
        Ok(())
    }

    /// Returns whether a kept checkpoint of a thread follows a pruned one.
    fn is_pruned(&self, thread: &ThreadId) -> bool {
        let places = self.places.iter().filter(|place| place.thread == *thread);
        let mut points = places.flat_map(|place| place.ids.iter().map(move |id| place.point(*id)));
        points.any(|point| {
            let parent = self.model.checkpoint(&point).unwrap().and_then(|record| record.parent);
            let parent = parent.map(|checkpoint| CheckpointRef { checkpoint, ..point.clone() });
            parent.is_some_and(|parent| self.model.checkpoint(&parent).unwrap().is_some_and(|record| record.pruned))
        })
    }

    fn delete(&mut self, of: &[usize]) -> Result<(), TestCaseError> {
        let threads: Vec<ThreadId> = of.iter().map(|at| self.places[at % self.places.len()].thread.clone()).collect();
        let (expected, found) = (self.model.delete_threads(&threads), self.file.delete_threads(&threads));
        prop_assert_eq!(expected.as_ref().map_err(ToString::to_string), found.as_ref().map_err(ToString::to_string));
        if expected.is_ok() {
            self.places.iter_mut().filter(|place| threads.contains(&place.thread)).for_each(|place| place.ids.clear());
            self.committed.retain(|batch| !threads.contains(&batch.thread));
        }
        Ok(())
    }

    /// Compares everything that changes with an operation; `whole` compares every checkpoint.
    fn compare(&self, whole: bool) -> Result<(), TestCaseError> {
        let (model, file) = (&*self.model, &*self.file);
        for place in &self.places {
            let (thread, namespace) = (&place.thread, &place.namespace);
            let head = model.head(thread, namespace).unwrap().map(plain);
            prop_assert_eq!(&head, &file.head(thread, namespace).unwrap().map(plain));
            prop_assert_eq!(head.map(|head| head.point.checkpoint), file.head_id(thread, namespace).unwrap());
            prop_assert_eq!(place.ids.last().copied(), file.head_id(thread, namespace).unwrap());
            prop_assert_eq!(model.namespaces(thread).unwrap(), file.namespaces(thread).unwrap());
            let before = place.ids.get(place.ids.len() / 2).copied();
            let queries = [(Some(namespace.clone()), None, 0), (Some(namespace.clone()), before, 3), (None, before, 5)];
            for (namespace, before, limit) in queries {
                let mut query = CheckpointQuery::new(thread.clone(), Namespace::root());
                (query.namespace, query.before, query.limit) = (namespace, before, limit);
                let (a, b) = (model.checkpoints(&query).unwrap(), file.checkpoints(&query).unwrap());
                same_shape(&a, &b)?;
            }
            if let Some(id) = before {
                let prefix = &id.to_string()[..12];
                let query = RecordQuery::Prefix { thread, prefix, limit: 4 };
                let find =
                    |backend: &dyn Log| -> Vec<_> { backend.records(&query).unwrap().into_iter().flatten().collect() };
                same_shape(&find(model), &find(file))?;
            }
            let from = if whole { 0 } else { place.ids.len().saturating_sub(3) };
            let some = place.ids.iter().take(if whole { 0 } else { 1 });
            for id in place.ids[from..].iter().chain(some) {
                self.compare_state(&place.point(*id))?;
            }
        }
        let threads = |backend: &dyn Log| {
            let threads = backend.threads(None, 100).unwrap().into_iter();
            let shown = threads.map(|t| (backend.thread_size(&t.id).unwrap(), t.id, t.created_at, plain(t.head)));
            shown.collect::<Vec<_>>()
        };
        prop_assert_eq!(threads(model), threads(file));
        let thread = &self.places[self.count as usize % self.places.len()].thread;
        searches::compare(model, file, thread, self.count.is_multiple_of(2))?;
        threads::compare(model, file, self.count.is_multiple_of(3))?;
        prop_assert_eq!(model.timers(None, 100).unwrap(), file.timers(None, 100).unwrap());
        Ok(())
    }

    fn compare_state(&self, at: &CheckpointRef) -> Result<(), TestCaseError> {
        let (a, b) = (self.model.state(at).unwrap(), self.file.state(at).unwrap());
        prop_assert_eq!(plain(a.checkpoint), plain(b.checkpoint));
        prop_assert_eq!(&a.channels, &b.channels, "channels at {:?}", at);
        prop_assert_eq!(&a.seen, &b.seen, "seen at {:?}", at);
        prop_assert_eq!(&a.updated, &b.updated, "updated at {:?}", at);
        for channel in &a.channels {
            let end = if channel.value == ChannelValue::Items { 3 } else { 0 };
            let len = |backend: &dyn Log| backend.list_len(at, &channel.channel).unwrap();
            prop_assert_eq!(len(&*self.model), len(&*self.file), "length of {} at {:?}", channel.channel, at);
            for range in [ItemRange::All, ItemRange::Tail(2), ItemRange::Positions(1, end + 2)] {
                let (a, b) = (items(&*self.model, at, channel, range), items(&*self.file, at, channel, range));
                prop_assert_eq!(a, b, "{:?} of {} at {:?}", range, channel.channel, at);
            }
        }
        prop_assert_eq!(self.model.writes(at).unwrap(), self.file.writes(at).unwrap(), "writes at {:?}", at);
        Ok(())
    }
}

/// Returns the items of a list: position, ordinal, task and content.
fn items(
    backend: &dyn Log,
    at: &CheckpointRef,
    channel: &annals::store::record::ChannelRecord,
    range: ItemRange,
) -> Vec<(u64, u64, Option<u32>, Payload)> {
    let mut found = Vec::new();
    let visited = backend.items(at, &channel.channel, range, &mut |row| {
        found.push((row.position, row.ordinal, row.task, row.payload.to_payload()));
        Ok(())
    });
    visited.unwrap();
    found
}

/// Returns moment number `n`, a millisecond after the one before.
fn moment(n: u32) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + i64::from(n) * 1_000)
}

/// Drops the numbers that a backend chooses.
fn plain(record: CheckpointRecord) -> CheckpointRecord {
    let mut record = record;
    (record.seq, record.branch) = (0, 0);
    record
}

/// Compares listings: the records, and what seq and branch say of them.
fn same_shape(a: &[CheckpointRecord], b: &[CheckpointRecord]) -> Result<(), TestCaseError> {
    let plain = |records: &[CheckpointRecord]| records.iter().cloned().map(plain).collect::<Vec<_>>();
    prop_assert_eq!(plain(a), plain(b));
    let order = |records: &[CheckpointRecord]| records.windows(2).map(|w| w[0].seq.cmp(&w[1].seq)).collect::<Vec<_>>();
    prop_assert_eq!(order(a), order(b), "seq");
    let branches = |records: &[CheckpointRecord]| {
        let first = |branch| records.iter().position(|record| record.branch == branch);
        records.iter().map(|record| first(record.branch)).collect::<Vec<_>>()
    };
    prop_assert_eq!(branches(a), branches(b), "branches");
    Ok(())
}

fn kind(outcome: &Result<(), StoreError>) -> &'static str {
    match outcome {
        Ok(()) => "ok",
        Err(StoreError::Conflict { .. }) => "conflict",
        Err(StoreError::Duplicate { .. }) => "duplicate",
        Err(StoreError::Invalid { .. }) => "invalid",
        Err(_) => "other",
    }
}

/// Does the operations to the model and to a backend that `open` opens, and compares after each.
fn follow(ops: &[Op], open: &mut dyn FnMut() -> Arc<dyn Log>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(open);
    let start: CheckedUpTo = "1-0-0-0-0-0000000000000000".parse().unwrap();
    let mut point = start.clone();
    for (done, op) in ops.iter().enumerate() {
        pair.apply(op)?;
        // A comparison reads everything at every checkpoint: doing so after each operation would take minutes.
        if done % 6 == 5 {
            pair.compare(false)?;
            let report = pair.file.check_since(&point).unwrap();
            prop_assert!(report.problems.is_empty(), "since {}: {:?}", point, report.problems);
            // A backend without points verifies everything.
            point = report.up_to.unwrap_or(point);
        }
    }
    pair.apply(&Op::Reopen)?;
    pair.compare(true)?;
    let reports = [pair.model.check().unwrap(), pair.file.check().unwrap(), pair.file.check_since(&start).unwrap()];
    for report in reports {
        prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        prop_assert_eq!(report.checkpoints, pair.places.iter().map(|place| place.ids.len() as u64).sum::<u64>());
    }
    // Copies read everything again: a share of the cases makes them.
    if pair.count.is_multiple_of(4) { copies::compare(&pair) } else { Ok(()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(8, 256) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_file_follows_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.db");
        let open = || SqliteBackend::open(&path, &OpenOptions::new()).unwrap();
        follow(&ops, &mut || Arc::new(open()))?;
    }
}
