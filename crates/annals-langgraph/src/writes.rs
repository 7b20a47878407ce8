//! Writes of tasks: their order, their values, and the buffer in which they wait for the put that follows.

use std::sync::Arc;

use annals::store::WriteRecord;
use annals::store::batch::{NewWrite, NewWrites, WriteRef, WriteValue};
use annals_base::CheckpointId;

use crate::change::Written;
use crate::place::{Tasks, task_text};
use crate::typed::{array_items, digest, is_list, item_payload, joined, payload, typed};
use crate::{PendingWrite, Result, SaverError, StoredValue, Typed};

/// The channels whose writes are replaced, with their indexes.
const SPECIAL: [(&str, i32); 4] = [("__error__", -1), ("__scheduled__", -2), ("__interrupt__", -3), ("__resume__", -4)];

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
            let special = SPECIAL.iter().find(|(name, _)| *name == channel);
            let index = special.map_or(i32::try_from(at).unwrap_or(i32::MAX), |(_, index)| *index);
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

/// Returns writes for a checkpoint of the log.
pub(crate) fn writes_of(writes: &[TaskWrites], checkpoint: CheckpointId, stored: &[WriteRecord]) -> Vec<NewWrites> {
    let mut tasks = Tasks::default();
    stored.iter().for_each(|record| tasks.add(record.task, &record.path));
    writes.iter().map(|writes| writes.of(checkpoint, &mut tasks)).collect()
}

/// Returns stored writes as writes of another checkpoint.
pub(crate) fn moved(records: Vec<WriteRecord>, checkpoint: CheckpointId) -> Vec<NewWrites> {
    let of = |record: WriteRecord| {
        let write = NewWrite::new(record.index, record.channel, record.value);
        NewWrites::new(checkpoint, record.task, record.path).with(vec![write])
    };
    records.into_iter().map(of).collect()
}

/// Adds the values that regular writes bring. Stored writes come first: the first write of an index stays.
pub(crate) fn written(stored: &[WriteRecord], new: &[NewWrites]) -> Result<Written> {
    let mut written = Written::default();
    let mut known = std::collections::HashSet::new();
    let of_stored = stored.iter().map(|record| (record.task, record.index, &record.value));
    let of_new = new.iter().flat_map(|of| of.writes.iter().map(|write| (of.task, write.index, &write.value)));
    for (task, index, value) in of_stored.chain(of_new).filter(|(_, index, _)| *index >= 0) {
        if !known.insert((task, index)) {
            continue;
        }
        match value {
            WriteValue::Null | WriteValue::Delta(_) => {}
            WriteValue::One(payload) => {
                let value = typed(payload.as_ref())?;
                written.ones.entry(digest(&value.tag, &value.bytes)).or_insert_with(|| WriteRef::new(task, index));
            }
            WriteValue::Items(items) => {
                for (part, payload) in (0..).zip(items) {
                    let value = typed(payload.as_ref())?;
                    let write = || WriteRef::new(task, index).with_part(part);
                    written.items.entry(digest(&value.tag, &value.bytes)).or_insert_with(write);
                }
            }
        }
    }
    Ok(written)
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
pub(crate) fn pending(records: Vec<WriteRecord>) -> Result<Vec<PendingWrite>> {
    let mut writes = records.into_iter().map(of_record).collect::<Result<Vec<_>>>()?;
    writes.sort_by(|a, b| (&a.path, &a.task, a.index).cmp(&(&b.path, &b.task, b.index)));
    Ok(writes)
}

fn of_record(record: WriteRecord) -> Result<PendingWrite> {
    let (task, path) = task_text(record.task, &record.path);
    let value = match &record.value {
        WriteValue::Null => Typed::new("null", Vec::new()),
        WriteValue::One(payload) => typed(payload.as_ref())?,
        WriteValue::Items(items) => {
            joined(StoredValue::Items(items.iter().map(|item| typed(item.as_ref())).collect::<Result<_>>()?))
        }
        WriteValue::Delta(_) => {
            let reason = format!("write {} of task {task} is told by a stored list", record.index);
            return Err(SaverError::Unsupported { feature: "reading a write of a graph of annals", reason });
        }
    };
    Ok(PendingWrite { task, path, index: record.index, channel: Arc::clone(&record.channel), value })
}
