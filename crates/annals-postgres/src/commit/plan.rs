//! Plans a batch: compares it with what is known of its threads, and makes the rows to write.
//!
//! A plan works on copies of the known threads, which are what is known after the commit. *Absent:* the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::base::{CheckpointId, Namespace, ThreadId};
use annals::store::batch::{Batch, ListRef, NewCheckpoint, NewWrites, WriteValue};
use annals::store::lease::LeaseRecord;
use annals::store::operation::{NewOperation, OperationChange, OperationField, OperationValue};
use annals::store::record::WriteRecord;
use annals::store::{CheckpointRef, StoreError, ThreadInfo};

use super::known::{FieldKey, KnownNamespace, KnownThread, KnownThreads, field_key};
use super::planned::{GroupsChange, NamespacePut, OperationInsert, PlannedRows, TaskWritePut, ThreadUpdate, TimerPut};
use crate::pack::{Packer, packed};
use crate::read::points::{KnownPoint, add_write, records_of};
use crate::read::state::not_found;
use crate::read::threads::status_number;
use crate::rows::{PgPlace, column_text};

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Unplanned {
    /// Something that the plan looks at was not read: a checkpoint of a namespace of a thread.
    Missing(ThreadId, Namespace, Option<CheckpointId>),
    /// The batch is refused.
    Refused(StoreError),
}

impl From<StoreError> for Unplanned {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

pub(crate) type Planned<T> = Result<T, Unplanned>;

/// A thread that a plan works on.
#[derive(Clone, Debug)]
pub(crate) struct WorkThread {
    pub(crate) known: KnownThread,
    /// True if the commit changes it; another one is locked alone.
    pub(crate) is_changed: bool,
    /// The namespaces that it changes.
    pub(crate) spaces: BTreeMap<Namespace, ()>,
    is_new: bool,
}

/// The members of a group: whether the lease of each is live, and until when its claim counts for the rate.
pub(crate) type GroupMembers = BTreeMap<String, Vec<(LeaseRecord, bool, Option<i64>)>>;

/// A plan in the making.
pub(crate) struct BatchPlan<'l> {
    loaded: &'l KnownThreads,
    pub(crate) threads: BTreeMap<ThreadId, WorkThread>,
    pub(crate) rows: PlannedRows,
    /// The present time of the server in microseconds, by which threads, checkpoints and operations are numbered.
    clock: i64,
    random: u64,
    /// The number of the operation, if there is one.
    pub(crate) operation: Option<u64>,
}

pub(crate) fn invalid<T>(field: &'static str, reason: String) -> Planned<T> {
    Err(Unplanned::Refused(StoreError::Invalid { field, reason }))
}

impl<'l> BatchPlan<'l> {
    pub(crate) fn begin(loaded: &'l KnownThreads, (clock, random): (i64, u64)) -> Self {
        Self { loaded, threads: BTreeMap::new(), rows: PlannedRows::default(), clock, random, operation: None }
    }

    /// Plans a batch with those that go along. `members` are those of the groups that its claim names.
    pub(crate) fn batch(&mut self, batch: &Batch, members: &GroupMembers) -> Planned<()> {
        let mut repeats = false;
        for part in batch.parts() {
            repeats |= self.holds_last(part)?;
        }
        let lease = match self.leased(batch, members) {
            // The batch was accepted before, when the lease was its own.
            Err(Unplanned::Refused(_)) if repeats => None,
            lease => lease?,
        };
        if batch.is_lease_alone() {
            if self.thread(&batch.thread)?.known.change == 0 {
                return Err(StoreError::ThreadNotFound { id: batch.thread.clone() }.into());
            }
        } else {
            // Writes on their own went in with the checkpoints, and may not fit any more.
            for part in batch.parts().filter(|part| !repeats || !part.checkpoints.is_empty()) {
                self.part(part)?;
            }
            if let Some(operation) = batch.operation.as_ref().filter(|_| !repeats) {
                self.operation(operation)?;
            }
        }
        if let Some(lease) = lease {
            self.set_lease(batch, lease)?;
        }
        self.finish()
    }

    /// Plans an operation without a batch.
    pub(crate) fn operate(&mut self, operation: &NewOperation) -> Planned<()> {
        self.operation(operation)?;
        self.finish()
    }

    /// Refuses a batch whose thread has changed since it was read.
    pub(crate) fn verify_change(&mut self, thread: &ThreadId, change: Option<i64>) -> Planned<()> {
        if let Some(change) = change
            && self.thread(thread)?.known.change != change
        {
            return Err(StoreError::FieldConflict { thread: thread.clone(), field: "the thread".to_owned() }.into());
        }
        Ok(())
    }

    /// Returns a thread to work on.
    pub(crate) fn thread(&mut self, id: &ThreadId) -> Planned<&mut WorkThread> {
        if !self.threads.contains_key(id) {
            let missing = || Unplanned::Missing(id.clone(), Namespace::root(), None);
            let known = self.loaded.get(id).ok_or_else(missing)?.clone();
            let work = WorkThread { known, is_changed: false, spaces: BTreeMap::new(), is_new: false };
            self.threads.insert(id.clone(), work);
        }
        self.threads.get_mut(id).ok_or_else(|| Unplanned::Missing(id.clone(), Namespace::root(), None))
    }

    pub(crate) fn space(&mut self, thread: &ThreadId, namespace: &Namespace) -> Planned<Option<KnownNamespace>> {
        let work = self.thread(thread)?;
        let missing = || Unplanned::Missing(thread.clone(), namespace.clone(), None);
        work.known.spaces.get(namespace).cloned().ok_or_else(missing)
    }

    /// Returns a checkpoint, `None` if it is not stored.
    pub(crate) fn point(&mut self, at: &CheckpointRef) -> Planned<Option<Arc<KnownPoint>>> {
        let Some(space) = self.space(&at.thread, &at.namespace)? else { return Ok(None) };
        if at.checkpoint > space.newest {
            return Ok(None);
        }
        let work = self.thread(&at.thread)?;
        let missing = || Unplanned::Missing(at.thread.clone(), at.namespace.clone(), Some(at.checkpoint));
        work.known.points.get(&(at.namespace.clone(), at.checkpoint)).cloned().ok_or_else(missing)
    }

    /// Returns a checkpoint whose state is stored.
    pub(crate) fn kept(&mut self, at: &CheckpointRef) -> Planned<Arc<KnownPoint>> {
        let point = self.point(at)?.ok_or_else(|| not_found(at))?;
        if point.of.record.pruned {
            return Err(annals::store::backend::is_pruned(&at.thread, &at.checkpoint).into());
        }
        Ok(point)
    }

    fn holds_last(&mut self, part: &Batch) -> Planned<bool> {
        let Some(last) = part.checkpoints.last() else { return Ok(false) };
        Ok(self.point(&CheckpointRef::new(part.thread.clone(), part.namespace.clone(), last.id))?.is_some())
    }

    /// Compares the lease that a batch names with the stored one, and a claim with the limits of its groups. Returns
    /// the lease to be stored, if that changes.
    fn leased(&mut self, batch: &Batch, members: &GroupMembers) -> Planned<Option<LeaseRecord>> {
        let Some(new) = &batch.lease else { return Ok(None) };
        let stored = self.thread(&batch.thread)?.known.lease.clone();
        let changed = new.apply(&batch.thread, stored.as_ref())?;
        let is_claim = changed.as_ref().is_some_and(|lease| lease.is_claim(stored.as_ref()));
        if let Some((now, groups)) = new.entered().filter(|_| is_claim) {
            for group in groups {
                let members = members.get(&group.name).into_iter().flatten();
                let until = |until: Option<i64>| until.map(annals::base::Timestamp::from_micros);
                group.admit(now, members.map(|(lease, is_in, rated)| (*is_in && lease.is_live(now), until(*rated))))?;
            }
        }
        Ok(changed)
    }

    fn set_lease(&mut self, batch: &Batch, lease: LeaseRecord) -> Planned<()> {
        let work = self.thread(&batch.thread)?;
        let (is_claim, is_released) = (lease.is_claim(work.known.lease.as_ref()), lease.expires_at.is_none());
        let entered = batch.lease.as_ref().and_then(|new| new.entered()).filter(|_| is_claim && !is_released);
        (work.known.lease, work.is_changed) = (Some(lease), true);
        let thread = work.known.number;
        if is_released || is_claim {
            let entered = entered.into_iter().flat_map(|(now, groups)| groups.iter().map(move |group| (now, group)));
            let group = |(now, group): (_, &annals::store::lease::LeaseGroup)| {
                (group.name.clone(), group.rated_until(now).map(|until| until.as_micros()))
            };
            self.rows.groups.push(GroupsChange { thread, entered: entered.map(group).collect() });
        }
        Ok(())
    }

    fn part(&mut self, part: &Batch) -> Planned<()> {
        if self.holds_last(part)? {
            return part.checkpoints.iter().try_for_each(|new| self.repeat(part, new));
        }
        for expect in &part.expect {
            let (expected, thread) = (expect.head, part.thread.clone());
            let found = self.space(&thread, &expect.namespace)?.and_then(|space| space.head).map(|(id, _)| id);
            if found != expected {
                let namespace = expect.namespace.clone();
                return Err(StoreError::Conflict { thread, namespace, expected, found }.into());
            }
        }
        part.writes.iter().try_for_each(|new| self.add_writes(part, new))?;
        for timer in &part.timers {
            let Some(space) = self.space(&part.thread, &part.namespace)? else { break };
            let thread = self.change(&part.thread)?.known.number;
            self.rows
                .timers
                .retain(|other| (other.thread, other.namespace, other.task) != (thread, space.number, timer.task));
            let at = timer.wake_at.map(|at| (timer.checkpoint, at.as_micros()));
            self.rows.timers.push(TimerPut { thread, namespace: space.number, task: timer.task, at });
        }
        part.checkpoints.iter().try_for_each(|new| self.add(part, new))
    }

    /// Returns a thread that the commit changes.
    pub(crate) fn change(&mut self, thread: &ThreadId) -> Planned<&mut WorkThread> {
        let work = self.thread(thread)?;
        work.is_changed = true;
        Ok(work)
    }

    /// Compares a checkpoint of a batch that is stored with the stored one.
    fn repeat(&mut self, part: &Batch, new: &NewCheckpoint) -> Planned<()> {
        let duplicate = || StoreError::Duplicate { id: new.id };
        let at = CheckpointRef::new(part.thread.clone(), part.namespace.clone(), new.id);
        let stored = self.point(&at)?.ok_or_else(duplicate)?;
        // A batch with a dangling reference was never accepted, so it differs from the stored one.
        match self.checksum_of(part, new) {
            Ok(checksum) if checksum == stored.of.checksum => Ok(()),
            Err(missing @ Unplanned::Missing(..)) => Err(missing),
            _ => Err(duplicate().into()),
        }
    }

    /// Returns a list that the batch references: how many references of it lie below one another.
    pub(crate) fn depth_of(&mut self, part: &Batch, of: &ListRef) -> Planned<u64> {
        let at = CheckpointRef::new(part.thread.clone(), of.namespace.clone(), of.checkpoint);
        let depth = self.kept(&at)?.skeleton.channels.get(&of.channel).map_or(0, |channel| channel.depth);
        let limit = annals::base::limits::LIST_REFERENCES_MAX;
        if depth >= limit as u64 {
            return invalid("list.of", format!("more than {limit} references in a row"));
        }
        Ok(depth)
    }

    pub(crate) fn verify_deltas(&mut self, part: &Batch, new: &NewWrites) -> Planned<()> {
        for write in &new.writes {
            if let WriteValue::Delta(delta) = &write.value {
                self.depth_of(part, &delta.of)?;
            }
        }
        Ok(())
    }

    /// Adds writes to those of a checkpoint.
    fn add_writes(&mut self, part: &Batch, new: &NewWrites) -> Planned<()> {
        let at = CheckpointRef::new(part.thread.clone(), part.namespace.clone(), new.checkpoint);
        if self.point(&at)?.is_none() {
            return invalid("writes.checkpoint", format!("{} is not stored in this namespace", new.checkpoint));
        }
        let place = self.kept(&at)?.of.place;
        self.verify_deltas(part, new)?;
        self.merge_writes(&at, records_of(new))?;
        let after = self.change(&part.thread)?.known.seq;
        for write in &new.writes {
            let is_same =
                |other: &TaskWritePut| (other.place, other.task, other.index) == (place, new.task, write.index);
            match self.rows.task_writes.iter().position(is_same) {
                Some(_) if write.index >= 0 => continue,
                Some(at) => _ = self.rows.task_writes.remove(at),
                None => {}
            }
            let value = packed(|to| {
                to.text(&new.path);
                to.write_value(&write.value, &mut |to, _, payload| to.payload(payload));
            });
            let (channel, mark) = (write.channel.to_string(), write.mark.map(|mark| mark.number()));
            self.rows.task_writes.push(TaskWritePut {
                place,
                task: new.task,
                index: write.index,
                after,
                channel,
                mark,
                value,
            });
        }
        Ok(())
    }

    /// Notes writes of a checkpoint, and returns what is stored of all.
    pub(crate) fn merge_writes(
        &mut self,
        at: &CheckpointRef,
        new: impl Iterator<Item = WriteRecord>,
    ) -> Planned<Arc<KnownPoint>> {
        let mut point = self.kept(at)?;
        let of = Arc::make_mut(&mut point);
        let mut stored: BTreeMap<_, _> =
            std::mem::take(&mut of.writes).into_iter().map(|write| ((write.task, write.index), write)).collect();
        new.for_each(|write| add_write(&mut stored, write));
        of.writes = stored.into_values().collect();
        of.writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
        let key = (at.namespace.clone(), at.checkpoint);
        self.thread(&at.thread)?.known.points.insert(key, Some(Arc::clone(&point)));
        Ok(point)
    }

    fn operation(&mut self, new: &NewOperation) -> Planned<()> {
        new.validate()?;
        for OperationChange { thread, namespace, .. } in &new.changes {
            self.space(thread, namespace)?.ok_or_else(|| StoreError::ThreadNotFound { id: thread.clone() })?;
        }
        let first = &new.changes[0];
        let key: FieldKey = (first.thread.clone(), field_key(first)?);
        if let Some(stored) = self.loaded.operations.get(&key).filter(|stored| new.is_stored_as(stored)) {
            self.operation = Some(stored.id);
            return Ok(());
        }
        new.changes.iter().try_for_each(|change| self.compare(change))?;
        if let Some(expected) = &new.newest {
            let root = self.space(&expected.thread, &Namespace::root())?.map(|space| space.newest);
            let newest = self.thread(&expected.thread)?.known.operation;
            expected.compare((newest > 0).then(|| newest.cast_unsigned()), root)?;
        }
        let (mut number, mut seq) = (self.clock, 0);
        for change in &new.changes {
            let known = &self.thread(&change.thread)?.known;
            (number, seq) = (number.max(known.operation + 1), seq.max(known.seq));
        }
        let mut content = Packer::default();
        content.operation(new)?;
        let (mut changes, mut of_first) = (Vec::new(), 0);
        for (at, change) in new.changes.iter().enumerate() {
            let mut values = Packer::default();
            values.field_value(change.before.as_ref())?;
            values.field_value(change.after.as_ref())?;
            let thread = self.apply(change, number)?;
            of_first = if at == 0 { thread } else { of_first };
            changes.push((thread, field_key(change)?, values.0));
        }
        self.rows.operations.push(OperationInsert { thread: of_first, number, seq, content: content.0, changes });
        self.operation = Some(number.cast_unsigned());
        Ok(())
    }

    /// Compares the present content of a field with the one that a change expects.
    fn compare(&mut self, change: &OperationChange) -> Planned<()> {
        let (before, after) = (checkpoint_of(change.before.as_ref()), checkpoint_of(change.after.as_ref()));
        let at = |id: CheckpointId| CheckpointRef::new(change.thread.clone(), change.namespace.clone(), id);
        if let Some(at) = before.map(at) {
            self.point(&at)?.ok_or_else(|| not_found(&at))?;
        }
        after.map_or(Ok(()), |id| self.kept(&at(id)).map(|_| ()))?;
        let OperationChange { thread, namespace, field, .. } = change.clone();
        if field != OperationField::Head {
            let found = self.thread(&thread)?.known.fields.get(&field).cloned();
            let conflict = || StoreError::FieldConflict { thread, field: field.to_string() };
            return if found == change.before { Ok(()) } else { Err(conflict().into()) };
        }
        let found = self.space(&thread, &namespace)?.and_then(|space| space.head).map(|(id, _)| id);
        let conflict = || StoreError::Conflict { thread, namespace, expected: before, found };
        if found == before { Ok(()) } else { Err(conflict().into()) }
    }

    /// Makes the change of a field, and returns the number of the thread.
    fn apply(&mut self, change: &OperationChange, number: i64) -> Planned<i64> {
        let head = match checkpoint_of(change.after.as_ref()).filter(|_| change.field == OperationField::Head) {
            Some(id) => {
                let at = CheckpointRef::new(change.thread.clone(), change.namespace.clone(), id);
                Some((id, self.kept(&at)?.of.place))
            }
            None => None,
        };
        let work = self.change(&change.thread)?;
        work.known.operation = number;
        if change.field == OperationField::Head {
            work.spaces.insert(change.namespace.clone(), ());
            if let Some(Some(space)) = work.known.spaces.get_mut(&change.namespace) {
                space.head = head;
            }
        } else {
            match change.after.clone() {
                Some(value) => _ = work.known.fields.insert(change.field.clone(), value),
                None => _ = work.known.fields.remove(&change.field),
            }
        }
        Ok(work.known.number)
    }

    /// Returns a number for a new thread: by time, and random at the end.
    pub(crate) fn new_number(&mut self) -> i64 {
        self.random = self.random.wrapping_add(1);
        (self.clock << 12) | (self.random & 0xfff).cast_signed()
    }

    /// Returns the position of the next checkpoint of a thread, after the one before.
    pub(crate) fn next_seq(&self, before: i64) -> i64 {
        self.clock.max(before + 1)
    }

    /// Makes the rows of the threads and namespaces that the plan changes.
    fn finish(&mut self) -> Planned<()> {
        for work in self.threads.values_mut() {
            let known = &mut work.known;
            if !work.is_changed {
                // A checkpoint of another thread that the batch builds on must not be deleted meanwhile.
                if known.change > 0 {
                    self.rows.threads.push((0, update_of(known, None)?));
                }
                continue;
            }
            if work.is_new {
                self.rows.new_threads.push((known.number, known.id.as_str().to_owned(), known.created_at));
            }
            self.rows.threads.push((0, update_of(known, Some(known.change))?));
            for namespace in work.spaces.keys() {
                let Some(Some(space)) = known.spaces.get_mut(namespace) else { continue };
                let head = space.head_column();
                if space.stored.replace(head) != Some(head) {
                    let (thread, path) = (known.number, namespace.as_str().to_owned());
                    self.rows.namespaces.push(NamespacePut { thread, number: space.number, path, head });
                }
            }
        }
        Ok(())
    }

    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads.values().all(|work| !work.is_changed)
    }
}

impl WorkThread {
    /// Gives a thread that is not stored its number.
    pub(crate) fn make(&mut self, number: i64, created_at: i64) {
        (self.known.number, self.known.created_at, self.is_new) = (number, created_at, true);
    }
}

fn checkpoint_of(value: Option<&OperationValue>) -> Option<CheckpointId> {
    if let Some(OperationValue::Checkpoint(id)) = value { Some(*id) } else { None }
}

/// Returns the row of a thread, with what listings read of its head.
fn update_of(known: &KnownThread, change: Option<i64>) -> Planned<ThreadUpdate> {
    let root = Namespace::root();
    let head = known.spaces.get(&root).and_then(|space| space.as_ref()?.head);
    let missing = |id| Unplanned::Missing(known.id.clone(), root.clone(), Some(id));
    let info = match (head, known.activity) {
        (Some((id, _)), Some((seq, updated_at))) if change.is_some() => {
            let head = known.points.get(&(root.clone(), id)).and_then(Option::as_ref).ok_or_else(|| missing(id))?;
            let fields = known.fields.clone().into_iter().collect();
            let updated_at = annals::base::Timestamp::from_micros(updated_at);
            let record = head.of.record.clone();
            Some(ThreadInfo::new(record, seq.cast_unsigned(), updated_at, fields, &head.writes)?)
        }
        _ => None,
    };
    let facts = info.as_ref().map(|info| &info.facts);
    Ok(ThreadUpdate {
        number: known.number,
        change,
        seq: known.seq,
        operation: known.operation,
        namespaces: known.namespaces,
        fields: pack_fields(known)?,
        lease: known.lease.clone(),
        activity: known.activity,
        status: info.as_ref().map(|info| status_number(info.status)),
        graph: info.as_ref().and_then(|info| info.graph.as_deref().map(column_text)),
        priority: info.as_ref().map(|info| info.priority.into()),
        archived: facts.is_some_and(|facts| facts.is_archived),
        paused: facts.is_some_and(|facts| facts.is_paused),
        trashed_until: facts.and_then(|facts| facts.trashed_until).map(|until| until.as_micros()),
    })
}

fn pack_fields(known: &KnownThread) -> Planned<Option<Vec<u8>>> {
    if known.fields.is_empty() {
        return Ok(None);
    }
    let mut packer = Packer::default();
    packer.number(known.fields.len() as u64);
    for (field, value) in &known.fields {
        packer.field(field)?;
        packer.field_value(Some(value))?;
    }
    Ok(Some(packer.0))
}

/// The place of a checkpoint that begins a branch.
pub(crate) fn first_of(thread: i64, seq: i64, ordinal: i64) -> PgPlace {
    PgPlace { thread, branch: seq, ordinal }
}
