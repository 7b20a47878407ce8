//! The checksum of a thread: a chain over its batches and operations.
//!
//! Backends compute checksums of their own rows, which differ between them. This one covers what the batches of a
//! thread hold, so that it is equal in every store that has the thread. *Absent:* the heads that a batch expects, which
//! follow from the batches before it, its chain and its lease.

use crate::base::internal::hash::{Checksum, ChecksumBuilder};
use crate::base::{CheckpointId, ListDelta, ListRef, Namespace, Payload, PayloadRef, WriteValue};
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent, Seen,
};
use crate::store::operation::{NewOperation, OperationChange, OperationTarget, OperationValue};
use crate::store::record::{TaskKind, TaskRecord};

/// The checksum of the batches and operations of a thread so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogChecksum(Checksum);

/// The fields of one link of the chain.
struct LinkFields(ChecksumBuilder);

impl LogChecksum {
    /// Returns the checksum of all links so far.
    pub(crate) fn value(&self) -> Checksum {
        self.0
    }

    fn link(&mut self, fill: impl FnOnce(&mut LinkFields)) {
        let mut fields = LinkFields(ChecksumBuilder::new());
        fields.0.bytes(&self.0);
        fill(&mut fields);
        self.0 = fields.0.finish();
    }

    /// Adds a batch of the thread.
    pub(crate) fn batch(&mut self, batch: &Batch) {
        let Batch { thread: _, namespace, expect: _, writes, timers, checkpoints, chain: _, then, operation, lease: _ } =
            batch;
        debug_assert!(then.is_empty() && operation.is_none(), "a thread is read back as single batches");
        self.link(|to| {
            to.text(namespace.as_str());
            to.list(writes, LinkFields::writes);
            to.list(timers, LinkFields::timer);
            to.list(checkpoints, LinkFields::checkpoint);
        });
    }

    /// Adds an operation of the thread.
    pub(crate) fn operation(&mut self, operation: &NewOperation) {
        let NewOperation { kind, at, actor, target, changes, newest: _ } = operation;
        self.link(|to| {
            to.text(kind.as_str());
            to.int(at.as_micros());
            to.maybe(actor.as_deref());
            match target {
                None => to.int(0),
                Some(OperationTarget::Operation(number)) => {
                    to.int(1);
                    to.int(*number as i64);
                }
                Some(OperationTarget::Commits(id)) => {
                    to.int(2);
                    to.id(id);
                }
            }
            to.list(changes, LinkFields::change_of_field);
        });
    }

    /// Adds what the thread ends with: the heads of its namespaces and its fields.
    pub(crate) fn end(&mut self, changes: &[OperationChange]) {
        self.link(|to| to.list(changes, LinkFields::change_of_field));
    }
}

impl LinkFields {
    fn int(&mut self, field: i64) {
        self.0.int(field);
    }

    fn text(&mut self, field: &str) {
        self.0.bytes(field.as_bytes());
    }

    fn maybe(&mut self, field: Option<&str>) {
        self.0.maybe(field.map(str::as_bytes));
    }

    fn id(&mut self, id: &CheckpointId) {
        self.0.bytes(id.as_bytes());
    }

    fn index(&mut self, index: Option<u32>) {
        self.0.int(index.map_or(-1, i64::from));
    }

    fn list<T>(&mut self, all: &[T], visit: impl Fn(&mut Self, &T)) {
        self.0.int(all.len() as i64);
        all.iter().for_each(|one| visit(self, one));
    }

    fn place(&mut self, (namespace, id): &(Namespace, CheckpointId)) {
        self.text(namespace.as_str());
        self.id(id);
    }

    fn payload(&mut self, payload: &Payload) {
        let PayloadRef { codec, data, index, .. } = payload.as_ref();
        self.int(codec.to_tag().into());
        self.0.bytes(data);
        self.int(index.is_some().into());
        if let Some(index) = index {
            [index.id, index.kind, index.name, index.tool_calls, index.text].into_iter().for_each(|f| self.maybe(f));
            self.index(index.input_tokens);
            self.index(index.output_tokens);
        }
    }

    fn writes(&mut self, writes: &NewWrites) {
        let NewWrites { checkpoint, task, path, writes } = writes;
        self.id(checkpoint);
        self.0.bytes(task.as_bytes());
        self.text(path);
        self.list(writes, |to, NewWrite { index, channel, value, mark }| {
            to.int((*index).into());
            to.text(channel);
            to.int(mark.is_some().into());
            mark.iter().for_each(|mark| to.int(mark.number()));
            to.value(value);
        });
    }

    fn value(&mut self, value: &WriteValue) {
        match value {
            WriteValue::Null => self.int(0),
            WriteValue::One(payload) => {
                self.int(1);
                self.payload(payload);
            }
            WriteValue::Items(items) => {
                self.int(2);
                self.list(items, Self::payload);
            }
            WriteValue::Delta(delta) => {
                self.int(3);
                let ListDelta { of, removed, positions, items, .. } = &**delta;
                self.list_ref(of);
                self.list(removed, |to, range| {
                    to.int(range.start as i64);
                    to.int(range.end as i64);
                });
                self.list(positions, |to, position| to.int(*position as i64));
                self.list(items, Self::payload);
            }
        }
    }

    fn list_ref(&mut self, of: &ListRef) {
        self.text(of.namespace.as_str());
        self.id(&of.checkpoint);
        self.text(&of.channel);
    }

    fn timer(&mut self, NewTimer { checkpoint, task, wake_at }: &NewTimer) {
        self.id(checkpoint);
        self.0.bytes(task.as_bytes());
        self.list(wake_at.as_slice(), |to, at| to.int(at.as_micros()));
    }

    fn checkpoint(&mut self, new: &NewCheckpoint) {
        let NewCheckpoint {
            id,
            parent,
            step,
            source,
            created_at,
            run,
            app_version,
            metadata,
            parents,
            tasks,
            consumed,
            changes,
            seen,
        } = new;
        self.id(id);
        match parent {
            None => self.int(0),
            Some(Parent::Local(id)) => {
                self.int(1);
                self.id(id);
            }
            Some(Parent::Fork(of)) => {
                self.int(2);
                self.text(of.thread.as_str());
                self.text(of.namespace.as_str());
                self.id(&of.checkpoint);
            }
        }
        self.int(*step);
        self.text(source.as_str());
        self.int(created_at.as_micros());
        self.0.maybe(run.as_ref().map(|run| &run.as_bytes()[..]));
        self.maybe(app_version.as_deref());
        self.maybe(metadata.as_deref());
        self.list(parents, Self::place);
        self.list(tasks, Self::task);
        self.list(consumed, Self::writes);
        self.list(changes, Self::change);
        self.list(seen, |to, Seen { node, versions }| {
            to.text(node);
            to.list(versions, |to, (channel, version)| {
                to.text(channel);
                to.int(*version as i64);
            });
        });
    }

    fn task(&mut self, TaskRecord { id, name, kind }: &TaskRecord) {
        self.0.bytes(id.as_bytes());
        self.text(name);
        match kind {
            TaskKind::Pull { triggers } => {
                self.int(0);
                self.list(triggers, |to, trigger| to.text(trigger));
            }
            TaskKind::Push { index } => {
                self.int(1);
                self.int((*index).into());
            }
        }
    }

    fn change(&mut self, Change { channel, version, value, task }: &Change) {
        self.text(channel);
        self.int(*version as i64);
        self.index(*task);
        match value {
            ChangeValue::Empty => self.int(0),
            ChangeValue::Value(data) => {
                self.int(1);
                self.data(data);
            }
            ChangeValue::Items(items) => {
                self.int(2);
                self.list(items, Self::item);
            }
        }
    }

    fn item(&mut self, ItemChange { position, op, task }: &ItemChange) {
        self.int(*position as i64);
        self.index(*task);
        match op {
            ItemOp::Put(data) => {
                self.int(0);
                self.data(data);
            }
            ItemOp::Delete => self.int(1),
            ItemOp::DeleteRange { end } => {
                self.int(2);
                self.int(*end as i64);
            }
            ItemOp::Reference(of) => {
                self.int(3);
                self.list_ref(of);
            }
        }
    }

    fn data(&mut self, data: &Data) {
        match data {
            Data::New(payload) => {
                self.int(0);
                self.payload(payload);
            }
            Data::OfWrite(of) => {
                self.int(1);
                self.0.bytes(of.task.as_bytes());
                self.int(of.index.into());
                self.int(of.part.into());
            }
        }
    }

    fn change_of_field(&mut self, change: &OperationChange) {
        let OperationChange { thread: _, namespace, field, before, after } = change;
        self.text(namespace.as_str());
        self.text(&field.to_string());
        for value in [before, after] {
            match value {
                None => self.int(0),
                Some(OperationValue::Checkpoint(id)) => {
                    self.int(1);
                    self.id(id);
                }
                Some(OperationValue::Text(text)) => {
                    self.int(2);
                    self.text(text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ThreadId, Timestamp};
    use crate::store::record::Source;

    #[test]
    fn a_checksum_covers_content_and_order_and_not_the_thread() {
        let batch = |thread: &str, number: u8, step: i64| {
            let id = CheckpointId::from_bytes([number; 16]);
            let mut batch = Batch::new(ThreadId::new(thread).unwrap(), Namespace::root(), None);
            let mut new = NewCheckpoint::new(id, None, step, Source::Update, Timestamp::from_micros(7));
            let value = ChangeValue::Value(Data::New(Payload::new(vec![number])));
            new.changes.push(Change::new("x", 1, value));
            batch.checkpoints.push(new);
            batch
        };
        let of = |batches: &[Batch]| {
            let mut checksum = LogChecksum::default();
            batches.iter().for_each(|batch| checksum.batch(batch));
            checksum.value()
        };
        let two = of(&[batch("a", 1, 0), batch("a", 2, 1)]);
        assert_eq!(two, of(&[batch("b", 1, 0), batch("b", 2, 1)]));
        for other in [
            vec![batch("a", 2, 1), batch("a", 1, 0)],
            vec![batch("a", 1, 0), batch("a", 2, 2)],
            vec![batch("a", 1, 0), batch("a", 3, 1)],
            vec![batch("a", 1, 0)],
        ] {
            assert_ne!(two, of(&other), "{other:?}");
        }
    }
}
