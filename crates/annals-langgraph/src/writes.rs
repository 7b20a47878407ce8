//! Writes of tasks: their order, their values, and the buffer in which they wait for the put that follows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use annals::store::WriteMark;
use annals::store::batch::{NewWrite, NewWrites, Payload, WriteRef, WriteValue};
use annals::store::record::WriteRecord;
use annals_base::{CheckpointId, NULL_TASK};
use annals_runs::SpecialWrite;

use crate::change::{WritePlace, WrittenValues};
use crate::place::{Tasks, admits_anonymous, split_anonymous, task_text, with_anonymous};
use crate::typed::{anonymous, array_items, digest, is_anonymous, is_list, item_payload, joined, payload, typed};
use crate::{Result, SaverError, SaverWrite, StoredValue, Typed};

/// The channels of LangGraph whose writes are replaced.
const SPECIAL: [SpecialWrite; 4] =
    [SpecialWrite::Error, SpecialWrite::Scheduled, SpecialWrite::Interrupt, SpecialWrite::Resume];

/// The writes of one call, which wait to be stored.
#[derive(Clone, Debug)]
pub(crate) struct TaskWrites {
    pub(crate) namespace: String,
    /// The id of the checkpoint.
    pub(crate) checkpoint: String,
    task: String,
    path: String,
    writes: Vec<NewWrite>,
}

impl TaskWrites {
    /// Makes the writes of a task from its channels with their values: the position of a regular one is its index.
    pub(crate) fn new(
        namespace: &str,
        checkpoint: &str,
        task: &str,
        path: &str,
        writes: Vec<(String, Typed)>,
    ) -> Result<Self> {
        let indexed = writes.into_iter().enumerate().map(|(at, (channel, value))| {
            let special = SPECIAL.iter().find(|special| special.channel() == channel);
            let index = special.map_or(i32::try_from(at).unwrap_or(i32::MAX), |special| special.index());
            (index, channel.into(), value)
        });
        Self::indexed(namespace, checkpoint, task, path, indexed)
    }

    /// Makes the writes of a task from indexes, channels and values.
    pub(crate) fn indexed(
        namespace: &str,
        checkpoint: &str,
        task: &str,
        path: &str,
        writes: impl IntoIterator<Item = (i32, Arc<str>, Typed)>,
    ) -> Result<Self> {
        let mut new: Vec<NewWrite> = Vec::new();
        for (index, channel, value) in writes {
            let write = NewWrite::new(index, channel, write_value(&value)?);
            let mark = mark_of(&write);
            let write = write.with_mark(mark);
            // Two writes to one special channel have the same index: the last one counts.
            match new.iter_mut().find(|other| other.index == index) {
                Some(other) => *other = write,
                None => new.push(write),
            }
        }
        let (namespace, checkpoint) = (namespace.to_owned(), checkpoint.to_owned());
        Ok(Self { namespace, checkpoint, task: task.to_owned(), path: path.to_owned(), writes: new })
    }

    /// Returns the writes for a checkpoint of the log whose stored writes are of `tasks`.
    fn of(&self, checkpoint: CheckpointId, tasks: &mut Tasks) -> NewWrites {
        let (task, path) = tasks.place(&self.task, &self.path);
        NewWrites::new(checkpoint, task, path).with(self.writes.clone())
    }
}

/// Returns the mark of a write: LangGraph's interrupts all wait for a value.
fn mark_of(write: &NewWrite) -> Option<WriteMark> {
    match SpecialWrite::of_index(write.index).filter(|_| write.value != WriteValue::Null)? {
        SpecialWrite::Error => Some(WriteMark::Failed),
        SpecialWrite::Interrupt => Some(WriteMark::Waits),
        _ => None,
    }
}

/// Returns writes for a checkpoint of the log.
pub(crate) fn writes_of(writes: &[TaskWrites], checkpoint: CheckpointId, stored: &[WriteRecord]) -> Vec<NewWrites> {
    let mut tasks = Tasks::default();
    stored.iter().for_each(|record| tasks.add(record.task, &record.path));
    writes.iter().map(|writes| writes.of(checkpoint, &mut tasks)).collect()
}

/// Returns whether one of the regular writes of a checkpoint is not among the stored ones, as another one has its
/// index.
pub(crate) fn are_missing(writes: &[TaskWrites], checkpoint: &str, mut stored: Vec<WriteRecord>) -> Result<bool> {
    // A write that is told by a stored list is one of a graph of annals, and none of these.
    stored.retain(|record| !matches!(record.value, WriteValue::Delta(_)));
    let stored = pending(stored)?;
    for of in writes.iter().filter(|of| of.checkpoint == checkpoint) {
        for write in of.writes.iter().filter(|write| write.index >= 0) {
            let record = WriteRecord::new(NULL_TASK, "", write.index, Arc::clone(&write.channel), write.value.clone());
            let value = of_record(record)?.value;
            let found = stored.iter().find(|other| other.task == of.task && other.index == write.index);
            if found.is_none_or(|other| other.value != value) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns stored writes as writes of another checkpoint.
pub(crate) fn moved(records: Vec<WriteRecord>, checkpoint: CheckpointId) -> Vec<NewWrites> {
    let of = |record: WriteRecord| {
        let write = NewWrite::new(record.index, record.channel, record.value).with_mark(record.mark);
        NewWrites::new(checkpoint, record.task, record.path).with(vec![write])
    };
    records.into_iter().map(of).collect()
}

/// Returns the values that regular writes bring. Stored writes come first: the first write of an index stays.
pub(crate) fn written(stored: &[WriteRecord], new: &[NewWrites]) -> Result<WrittenValues> {
    let mut written = WrittenValues::default();
    let mut known = HashSet::new();
    for record in stored.iter().filter(|record| record.index >= 0) {
        known.insert((record.task, record.index));
        add(&mut written, WriteRef::new(record.task, record.index), &record.value)?;
    }
    for (at, of) in new.iter().enumerate() {
        for (number, write) in of.writes.iter().enumerate().filter(|(_, write)| write.index >= 0) {
            if !known.insert((of.task, write.index)) {
                continue;
            }
            let reference = WriteRef::new(of.task, write.index);
            add(&mut written, reference.clone(), &write.value)?;
            let WriteValue::Items(items) = &write.value else { continue };
            for (part, payload) in items.iter().enumerate().filter(|_| admits_anonymous(&of.path)) {
                if is_anonymous(payload.as_ref()) {
                    let value = typed(payload.as_ref())?;
                    let reference = reference.clone().with_part(u32::try_from(part).unwrap_or(u32::MAX));
                    written.anonymous.insert(digest(&value.tag, &value.bytes), (reference, (at, number, part)));
                }
            }
        }
    }
    Ok(written)
}

fn add(written: &mut WrittenValues, reference: WriteRef, value: &WriteValue) -> Result<()> {
    match value {
        WriteValue::Null | WriteValue::Delta(_) => {}
        WriteValue::One(payload) => {
            let value = typed(payload.as_ref())?;
            written.ones.entry(digest(&value.tag, &value.bytes)).or_insert(reference);
        }
        WriteValue::Items(items) => {
            for (part, payload) in (0..).zip(items) {
                let value = typed(payload.as_ref())?;
                let reference = || reference.clone().with_part(part);
                written.items.entry(digest(&value.tag, &value.bytes)).or_insert_with(reference);
            }
        }
    }
    Ok(())
}

/// Stores messages of new writes with the ids that they have in the checkpoint, and notes that they had none.
pub(crate) fn name(writes: &mut [NewWrites], named: Vec<(WritePlace, Payload)>) {
    let mut parts: BTreeMap<usize, Vec<(i32, u32)>> = BTreeMap::new();
    for ((at, number, part), payload) in named {
        let write = &mut writes[at].writes[number];
        if let WriteValue::Items(items) = &mut write.value {
            items[part] = payload;
            parts.entry(at).or_default().push((write.index, u32::try_from(part).unwrap_or(u32::MAX)));
        }
    }
    for (at, parts) in parts {
        if let Some(path) = with_anonymous(&writes[at].path, &parts) {
            writes[at].path = path.into();
        }
    }
}

fn write_value(value: &Typed) -> Result<WriteValue> {
    if value.tag == "null" && value.bytes.is_empty() {
        return Ok(WriteValue::Null);
    }
    match array_items(value).filter(|items| is_list(value, items)) {
        Some(items) => {
            let items = items.into_iter().map(|item| item_payload(&Typed::msgpack(item.to_vec())));
            Ok(WriteValue::Items(items.collect::<Result<_>>()?))
        }
        None => Ok(WriteValue::One(payload(value)?)),
    }
}

/// Returns stored writes in LangGraph's order: path, task, index.
pub(crate) fn pending(records: Vec<WriteRecord>) -> Result<Vec<SaverWrite>> {
    let mut writes = records.into_iter().map(of_record).collect::<Result<Vec<_>>>()?;
    writes.sort_by(|a, b| (&a.path, &a.task, a.index).cmp(&(&b.path, &b.task, b.index)));
    Ok(writes)
}

fn of_record(record: WriteRecord) -> Result<SaverWrite> {
    let (task, path) = task_text(record.task, &record.path);
    let value = match &record.value {
        WriteValue::Null => Typed::new("null", Vec::new()),
        WriteValue::One(payload) => typed(payload.as_ref())?,
        WriteValue::Items(items) => {
            let (_, parts) = split_anonymous(&record.path);
            let item = |(part, item): (u32, &Payload)| -> Result<Arc<Typed>> {
                let without_id = if parts.contains(&(record.index, part)) { anonymous(item.as_ref())? } else { None };
                Ok(Arc::new(without_id.map_or_else(|| typed(item.as_ref()), Ok)?))
            };
            joined(StoredValue::Items((0..).zip(items).map(item).collect::<Result<_>>()?))
        }
        WriteValue::Delta(_) => {
            let reason = format!("write {} of task {task} is told by a stored list", record.index);
            return Err(SaverError::Unsupported { feature: "reading a write of a graph of annals", reason });
        }
    };
    Ok(SaverWrite { task, path, index: record.index, channel: Arc::clone(&record.channel), value })
}
