//! Plans a checkpoint: its record, its changes, and what it brings of the writes of its parent's tasks.
//!
//! A value that a write brings along stands once: in the change that takes it over. The checksum covers the content as
//! the batch gives it, and the checksum of the parent, so that a repeated batch is known.

use std::collections::HashMap;
use std::sync::Arc;

use annals::base::{CheckpointId, Payload, TaskId};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, WriteRef};
use annals::store::record::{ChannelValue, CheckpointRecord, WriteRecord};
use annals::store::{CheckpointRef, StoreError};

use super::known::{KnownNamespace, KnownThread};
use super::plan::{BatchPlan, Planned, first_of, invalid};
use super::planned::{BranchInsert, CheckpointInsert, ItemInsert, RangeDeleteInsert};
use crate::checksum::CheckedContent;
use crate::limits::SNAPSHOT_INTERVAL;
use crate::pack::{Packer, packed};
use crate::read::points::{INLINE, KnownPoint, OF_CHANNEL, OF_ITEM, records_of};
use crate::rows::{EMPTY, LIST, PgContent, PgPlace, PgRecord, SOURCES, Skeleton, SkeletonChannel, VALUE};

/// A part of a write: task, index, and number.
type PartKey = (TaskId, i32, u32);

/// Where a part of a write stands in the changes: the channel by its number, and the position of an item.
type Taken = HashMap<PartKey, (u64, Option<i64>)>;

/// What a checkpoint puts into its row and beside it.
#[derive(Default)]
struct Contents {
    /// Channel, version, kind and content of each change.
    changes: Vec<(String, i64, i16, Vec<u8>)>,
    items: Vec<ItemInsert>,
    range_deletes: Vec<RangeDeleteInsert>,
    skeleton: Skeleton,
    taken: Taken,
}

/// The parent of a checkpoint, and the writes of its tasks.
struct ParentState {
    point: Option<Arc<KnownPoint>>,
    /// True if some were stored before the batch of the checkpoint.
    had_writes: bool,
}

impl ParentState {
    fn tasks(&self) -> usize {
        self.point.as_ref().map_or(0, |point| point.of.record.tasks.len())
    }

    fn verify_task(&self, field: &'static str, task: Option<u32>) -> Planned<()> {
        match task.filter(|task| *task as usize >= self.tasks()) {
            Some(task) => {
                invalid(field, format!("{task} is not an index into the {} tasks of the parent", self.tasks()))
            }
            None => Ok(()),
        }
    }

    fn write(&self, of: &WriteRef) -> Option<&WriteRecord> {
        let is_wanted = |write: &&WriteRecord| (write.task, write.index) == (of.task, of.index);
        self.point.as_ref()?.writes.iter().find(is_wanted)
    }

    /// Returns the content of a value: its own, or that of a write of a task of the parent.
    fn payload<'p>(&'p self, data: &'p Data) -> Planned<&'p Payload> {
        let of = match data {
            Data::New(payload) => return Ok(payload),
            Data::OfWrite(of) => of,
        };
        let reason = || format!("write {} of task {} has no part {} at the parent", of.index, of.task, of.part);
        let found = self.write(of).and_then(|write| write.value.payloads().get(of.part as usize));
        found.map_or_else(|| invalid("data.of_write", reason()), Ok)
    }
}

fn local(new: &NewCheckpoint) -> Option<CheckpointId> {
    if let Some(Parent::Local(id)) = &new.parent { Some(*id) } else { None }
}

fn column(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

impl BatchPlan<'_> {
    /// Returns the parent of a checkpoint, which must be stored, with the writes that the checkpoint brings.
    fn parent_of(&mut self, part: &Batch, new: &NewCheckpoint) -> Planned<ParentState> {
        let own = |id| CheckpointRef::new(part.thread.clone(), part.namespace.clone(), id);
        let at = match &new.parent {
            None => return Ok(ParentState { point: None, had_writes: false }),
            Some(Parent::Local(id)) => Some(own(*id)).filter(|_| *id < new.id),
            Some(Parent::Fork(at)) => Some(at.clone()).filter(|at| *at != own(at.checkpoint)),
        };
        let missing = || invalid("checkpoint.parent", format!("the parent of {} is not stored below it", new.id));
        let Some(at) = at else { return missing() };
        let Some(stored) = self.point(&at)? else { return missing() };
        for writes in &new.consumed {
            if Some(writes.checkpoint) != local(new) {
                let reason = format!("{} is not the parent of {} in this namespace", writes.checkpoint, new.id);
                return invalid("consumed.checkpoint", reason);
            }
            self.verify_deltas(part, writes)?;
        }
        let point = match new.consumed.is_empty() {
            true => Arc::clone(&stored),
            false => self.merge_writes(&at, new.consumed.iter().flat_map(records_of))?,
        };
        Ok(ParentState { point: Some(point), had_writes: !stored.writes.is_empty() })
    }

    /// Returns the checksum that a checkpoint has or would have.
    pub(crate) fn checksum_of(&mut self, part: &Batch, new: &NewCheckpoint) -> Planned<[u8; 16]> {
        let parent = self.parent_of(part, new)?;
        let contents = self.contents(part, new, &parent, PgPlace { thread: 0, branch: 0, ordinal: 0 })?;
        Ok(checksum_of(part, &parent, new, &contents))
    }

    /// Adds a checkpoint.
    pub(crate) fn add(&mut self, part: &Batch, new: &NewCheckpoint) -> Planned<()> {
        let (thread, namespace) = (&part.thread, &part.namespace);
        let space = self.space(thread, namespace)?;
        if let Some(newest) = space.as_ref().map(|space| space.newest).filter(|newest| new.id <= *newest) {
            let at = CheckpointRef::new(thread.clone(), namespace.clone(), new.id);
            let (thread, namespace, id) = (thread.clone(), namespace.clone(), new.id);
            let stale = StoreError::StaleId { thread, namespace, id, newest };
            return Err(if self.point(&at)?.is_some() { StoreError::Duplicate { id }.into() } else { stale.into() });
        }
        let parent = self.parent_of(part, new)?;
        if let Some(point) = parent.point.as_ref().filter(|point| point.of.record.pruned) {
            let at = &point.of.record.point;
            return Err(annals::store::backend::is_pruned(&at.thread, &at.checkpoint).into());
        }
        let (number, before) = (self.new_number(), self.change(thread)?.known.seq);
        let seq = self.next_seq(before);
        let work = self.change(thread)?;
        if work.known.number == 0 {
            work.make(number, new.created_at.as_micros());
        }
        let known = &mut work.known;
        let space = space.unwrap_or_else(|| {
            known.namespaces += 1;
            KnownNamespace { number: known.namespaces, newest: new.id, head: None, stored: None }
        });
        let place = place_of(known, &space, new, &parent, seq);
        (known.seq, known.activity) = match namespace.is_root() {
            true => (seq, Some((seq, new.created_at.as_micros()))),
            false => (seq, known.activity),
        };
        let head = Some((new.id, place));
        known.spaces.insert(namespace.clone(), Some(KnownNamespace { newest: new.id, head, ..space }));
        work.spaces.insert(namespace.clone(), ());
        self.pass_timers(place.thread, space.number, new, &parent);
        let point = self.insert(part, new, (&parent, place, space.number, seq))?;
        let points = &mut self.change(thread)?.known.points;
        points.insert((namespace.clone(), new.id), Some(Arc::new(point)));
        Ok(())
    }

    /// Removes the timers of the parent: the checkpoint passes them. A timer comes with writes that are stored before.
    fn pass_timers(&mut self, thread: i64, namespace: i64, new: &NewCheckpoint, parent: &ParentState) {
        if let Some(id) = local(new).filter(|_| parent.had_writes) {
            self.rows.timers.retain(|timer| {
                (timer.thread, timer.namespace) != (thread, namespace) || timer.at.is_none_or(|(at, _)| at != id)
            });
            self.rows.passed.push((thread, namespace, id));
        }
    }

    /// Makes the rows of a checkpoint, and returns what is known of it.
    fn insert(
        &mut self,
        part: &Batch,
        new: &NewCheckpoint,
        (parent, place, namespace, seq): (&ParentState, PgPlace, i64, i64),
    ) -> Planned<KnownPoint> {
        let parent_place = parent.point.as_ref().map(|point| point.of.place);
        let begins = parent_place.is_none_or(|parent| (parent.thread, parent.branch) != (place.thread, place.branch));
        if begins {
            self.rows.branches.push(BranchInsert { first: place, namespace, parent: parent_place });
        }
        let contents = self.contents(part, new, parent, place)?;
        let checksum = checksum_of(part, parent, new, &contents);
        let Contents { changes, mut items, mut range_deletes, skeleton, taken } = contents;
        let at_interval = place.ordinal % SNAPSHOT_INTERVAL == 0 && place.ordinal > 0;
        let has_snapshot = begins && parent_place.is_some() || at_interval;
        let (consumed, consumed_items) = consumed(new, parent, &taken);
        let of = PgRecord { record: record(part, new, place, seq), place, namespace, checksum };
        self.rows.items.append(&mut items);
        self.rows.range_deletes.append(&mut range_deletes);
        self.rows.checkpoints.push(CheckpointInsert {
            consumed,
            consumed_items,
            snapshot: has_snapshot.then(|| skeleton.pack()),
            changes,
            ..insert_of(new, &of)?
        });
        Ok(KnownPoint { of: Arc::new(of), skeleton: Arc::new(skeleton), writes: Vec::new() })
    }

    /// Makes what a checkpoint puts.
    fn contents(
        &mut self,
        part: &Batch,
        new: &NewCheckpoint,
        parent: &ParentState,
        place: PgPlace,
    ) -> Planned<Contents> {
        let skeleton = parent.point.as_ref().map(|point| Skeleton::clone(&point.skeleton)).unwrap_or_default();
        let mut to = Contents { skeleton, ..Contents::default() };
        for (at, change) in (0..).zip(&new.changes) {
            let content = self.change_rows(part, change, (parent, place, at), &mut to)?;
            let kind = match content.value {
                ChannelValue::Empty => EMPTY,
                ChannelValue::Value(_) => VALUE,
                ChannelValue::Items => LIST,
            };
            let (version, task, depth) = (change.version, content.task, content.depth);
            to.changes.push((change.channel.to_string(), version.cast_signed(), kind, content.pack()));
            let channel = SkeletonChannel { version, kind, task, place, depth };
            to.skeleton.channels.insert(Arc::clone(&change.channel), channel);
        }
        to.skeleton.seen.extend(new.seen.iter().map(|seen| (Arc::clone(&seen.node), seen.clone())));
        Ok(to)
    }

    /// Makes the rows of a change, and returns its content.
    fn change_rows(
        &mut self,
        part: &Batch,
        change: &Change,
        (parent, place, at): (&ParentState, PgPlace, u64),
        to: &mut Contents,
    ) -> Planned<PgContent> {
        let Change { channel, version, value, task, .. } = change;
        parent.verify_task("change.task", *task)?;
        let before = parent.point.as_ref().and_then(|point| point.skeleton.channels.get(channel).cloned());
        if let Some(old) = before.as_ref().map(|before| before.version).filter(|old| version <= old) {
            return invalid("change.version", format!("{version} of channel {channel:?} is not above {old}"));
        }
        let content = |value, positions, depth| PgContent { task: *task, value, positions, depth };
        let was_list = before.as_ref().is_some_and(|before| before.kind == LIST);
        let ends_list = |to: &mut Contents| {
            if was_list {
                let (channel, first, last) = (channel.to_string(), 0, i64::MAX);
                let row = RangeDeleteInsert { place, channel, first, last, task: *task, reference: None };
                to.range_deletes.push(row);
            }
        };
        Ok(match value {
            ChangeValue::Empty => {
                ends_list(to);
                content(ChannelValue::Empty, 0..0, 0)
            }
            ChangeValue::Value(data) => {
                ends_list(to);
                let payload = parent.payload(data)?.clone();
                if let Data::OfWrite(of) = data {
                    to.taken.insert((of.task, of.index, of.part), (at, None));
                }
                content(ChannelValue::Value(payload), 0..0, 0)
            }
            ChangeValue::Items(items) => {
                let depth = before.filter(|before| before.kind == LIST).map_or(0, |before| before.depth);
                let (positions, depth) = self.list_rows(part, channel, items, (parent, place, at), depth, to)?;
                content(ChannelValue::Items, positions, depth)
            }
        })
    }

    /// Makes the rows of operations on a list. Returns the range of the positions, and the depth of its references.
    fn list_rows(
        &mut self,
        part: &Batch,
        channel: &str,
        items: &[ItemChange],
        (parent, place, at): (&ParentState, PgPlace, u64),
        mut depth: u64,
        to: &mut Contents,
    ) -> Planned<(std::ops::Range<u64>, u64)> {
        let mut written: Option<std::ops::Range<u64>> = None;
        let mut ranges: Vec<RangeDeleteInsert> = Vec::new();
        for ItemChange { position, op, task, .. } in items {
            parent.verify_task("item.task", *task)?;
            let (mut reference, range) = (
                None,
                match op {
                    ItemOp::DeleteRange { end } => *position..*end,
                    ItemOp::Reference(_) => 0..u64::MAX,
                    ItemOp::Put(_) | ItemOp::Delete => *position..position + 1,
                },
            );
            if let ItemOp::Reference(of) = op {
                depth = self.depth_of(part, of)? + 1;
                reference = Some(packed(|to| to.reference(of)));
            }
            if !op.is_of_position() {
                let (first, last) = (column(range.start), column(range.end - 1));
                depth = if first == 0 && last == i64::MAX && reference.is_none() { 0 } else { depth };
                match ranges.iter_mut().find(|other| other.first == first) {
                    Some(other) => other.last = other.last.max(last),
                    None => ranges.push(RangeDeleteInsert {
                        place,
                        channel: channel.to_owned(),
                        first,
                        last,
                        task: *task,
                        reference,
                    }),
                }
            }
            let all = written.get_or_insert(range.clone());
            *all = all.start.min(range.start)..all.end.max(range.end);
        }
        to.range_deletes.append(&mut ranges);
        for ItemChange { position, op, task, .. } in items {
            let payload = match op {
                ItemOp::Put(data) => {
                    if let Data::OfWrite(of) = data {
                        to.taken.insert((of.task, of.index, of.part), (at, Some(column(*position))));
                    }
                    Some(parent.payload(data)?.clone())
                }
                ItemOp::Delete => None,
                ItemOp::DeleteRange { .. } | ItemOp::Reference(_) => continue,
            };
            let (channel, position) = (channel.to_owned(), column(*position));
            to.items.push(ItemInsert { place, channel, position, task: *task, payload });
        }
        Ok((written.unwrap_or(0..0), depth))
    }
}

/// Returns where a checkpoint stands: on the branch of its parent, if that is the newest of the namespace.
fn place_of(
    known: &KnownThread,
    space: &KnownNamespace,
    new: &NewCheckpoint,
    parent: &ParentState,
    seq: i64,
) -> PgPlace {
    let Some(point) = &parent.point else { return first_of(known.number, seq, 0) };
    let ordinal = point.of.place.ordinal + 1;
    match local(new) {
        Some(id) if id == space.newest => PgPlace { ordinal, ..point.of.place },
        _ => first_of(known.number, seq, ordinal),
    }
}

fn record(part: &Batch, new: &NewCheckpoint, place: PgPlace, seq: i64) -> CheckpointRecord {
    let point = CheckpointRef::new(part.thread.clone(), part.namespace.clone(), new.id);
    let mut record = CheckpointRecord::new(point, seq.cast_unsigned(), new.step, new.source, new.created_at);
    record.parent = local(new);
    record.forked_from = if let Some(Parent::Fork(at)) = &new.parent { Some(at.clone()) } else { None };
    (record.branch, record.ordinal) = (place.branch.cast_unsigned(), place.ordinal.cast_unsigned());
    (record.run, record.metadata, record.tasks) = (new.run, new.metadata.clone(), new.tasks.clone());
    record.app_version.clone_from(&new.app_version);
    record.parents = Arc::clone(&new.parents);
    record
}

/// Returns the row of a checkpoint without its changes.
fn insert_of(new: &NewCheckpoint, of: &PgRecord) -> Planned<CheckpointInsert> {
    let source = SOURCES.iter().position(|source| *source == new.source);
    let Some(source) = source else { return invalid("checkpoint.source", format!("{} is not known", new.source)) };
    let texts = [new.app_version.as_deref(), new.metadata.as_deref()];
    let has_nul = texts.iter().flatten().any(|text| text.contains('\0'));
    let column = |text: Option<&str>| text.map(crate::rows::column_text);
    Ok(CheckpointInsert {
        place: of.place,
        namespace: of.namespace,
        id: new.id,
        seq: of.record.seq.cast_signed(),
        parent: of.record.parent,
        forked_from: of.record.forked_from.as_ref().map(|from| packed(|to| to.point(from))),
        step: new.step,
        source: source as i64,
        created_at: new.created_at.as_micros(),
        run: new.run.map(|run| run.as_bytes().to_vec()),
        app_version: column(texts[0]),
        metadata: column(texts[1]),
        exact: has_nul.then(|| packed(|to| texts.iter().for_each(|text| to.optional_text(*text)))),
        parents: (!new.parents.is_empty()).then(|| packed(|to| to.parents(&new.parents))),
        tasks: (!new.tasks.is_empty()).then(|| packed(|to| to.tasks(&new.tasks))),
        checksum: of.checksum,
        seen: (!new.seen.is_empty()).then(|| packed(|to| to.seen(new.seen.iter()))),
        consumed: None,
        consumed_items: Vec::new(),
        snapshot: None,
        changes: Vec::new(),
    })
}

/// Packs the writes that a checkpoint brings. A part that a change has taken over is stored there.
fn consumed(new: &NewCheckpoint, parent: &ParentState, taken: &Taken) -> (Option<Vec<u8>>, Vec<i64>) {
    if new.consumed.is_empty() {
        return (None, Vec::new());
    }
    let mut positions = Vec::new();
    let is_stored = |(task, index, part): PartKey, payload: &Payload| {
        let of = parent.write(&WriteRef::new(task, index).with_part(part));
        of.and_then(|write| write.value.payloads().get(part as usize)) == Some(payload)
    };
    let mut write = |to: &mut Packer, key: PartKey, payload: &Payload| match taken.get(&key) {
        Some((channel, position)) if is_stored(key, payload) => {
            to.0.push(if position.is_some() { OF_ITEM } else { OF_CHANNEL });
            to.number(*channel);
            if let Some(position) = position {
                to.number(position.cast_unsigned());
                positions.push(*position);
            }
        }
        _ => {
            to.0.push(INLINE);
            to.payload(payload);
        }
    };
    let bytes = packed(|to| to.writes(&new.consumed, &mut write));
    (Some(bytes), positions)
}

/// Returns the checksum of a checkpoint: of what it puts, and of the checksum of its parent.
fn checksum_of(part: &Batch, parent: &ParentState, new: &NewCheckpoint, contents: &Contents) -> [u8; 16] {
    let record = record(part, new, PgPlace { thread: 0, branch: 0, ordinal: 0 }, 0);
    let of = CheckedContent {
        parent: parent.point.as_ref().map(|point| point.of.checksum),
        record: &record,
        consumed: &new.consumed,
        seen: &new.seen,
        changes: contents
            .changes
            .iter()
            .map(|(channel, version, kind, content)| (&**channel, *version, *kind, &**content))
            .collect(),
        items: contents
            .items
            .iter()
            .map(|item| (&*item.channel, item.position, item.task, item.payload.as_ref()))
            .collect(),
        range_deletes: contents
            .range_deletes
            .iter()
            .map(|of| (&*of.channel, of.first, of.last, of.task, of.reference.as_deref()))
            .collect(),
    };
    of.checksum()
}
