//! The packed form of values that stand in one column: numbers of variable length, and bytes after their length.
//!
//! Invariant: bytes that [`Packer`] wrote are read by [`Unpacker`] in the same order; any others are an error, never a
//! panic. *Absent:* the meaning of the values.

use std::sync::Arc;

use annals::base::{
    CheckpointId, Codec, ItemIndex, ListDelta, ListRef, Namespace, Payload, TaskId, ThreadId, WriteValue,
};
use annals::store::batch::{NewWrite, NewWrites, Seen};
use annals::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationTarget, OperationValue,
};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{CheckpointRef, StoreError, WriteMark};

/// Writes values one after another.
#[derive(Default)]
pub(crate) struct Packer(pub(crate) Vec<u8>);

impl Packer {
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        self.option(text, Self::text);
    }

    pub(crate) fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| write(self, value));
    }

    pub(crate) fn checkpoint(&mut self, id: &CheckpointId) {
        self.0.extend_from_slice(id.as_bytes());
    }

    pub(crate) fn task(&mut self, task: Option<u32>) {
        self.number(task.map_or(0, |task| u64::from(task) + 1));
    }

    pub(crate) fn point(&mut self, point: &CheckpointRef) {
        self.text(point.thread.as_str());
        self.text(point.namespace.as_str());
        self.checkpoint(&point.checkpoint);
    }

    pub(crate) fn reference(&mut self, of: &ListRef) {
        self.text(of.namespace.as_str());
        self.checkpoint(&of.checkpoint);
        self.text(&of.channel);
    }

    pub(crate) fn index(&mut self, index: &ItemIndex) {
        self.optional_text(index.id.as_deref());
        self.optional_text(index.kind.as_deref());
        self.optional_text(index.name.as_deref());
        self.optional_text(index.tool_calls.as_deref());
        self.optional_text(index.text.as_deref());
        self.option(index.input_tokens, |to, tokens| to.number(tokens.into()));
        self.option(index.output_tokens, |to, tokens| to.number(tokens.into()));
    }

    pub(crate) fn payload(&mut self, payload: &Payload) {
        self.0.push(payload.codec.to_tag());
        self.option(payload.index.as_deref(), Self::index);
        self.bytes(&payload.data);
    }

    pub(crate) fn tasks(&mut self, tasks: &[TaskRecord]) {
        self.list(tasks, |to, task| {
            to.0.extend_from_slice(task.id.as_bytes());
            to.text(&task.name);
            match &task.kind {
                TaskKind::Pull { triggers } => {
                    to.0.push(0);
                    to.list(triggers, |to, trigger| to.text(trigger));
                }
                TaskKind::Push { index } => {
                    to.0.push(1);
                    to.number((*index).into());
                }
            }
        });
    }

    pub(crate) fn parents(&mut self, parents: &[(Namespace, CheckpointId)]) {
        self.list(parents, |to, (namespace, id)| {
            to.text(namespace.as_str());
            to.checkpoint(id);
        });
    }

    pub(crate) fn seen<'s>(&mut self, seen: impl ExactSizeIterator<Item = &'s Seen>) {
        self.number(seen.len() as u64);
        for Seen { node, versions, .. } in seen {
            self.text(node);
            self.list(versions, |to, (channel, version)| {
                to.text(channel);
                to.number(*version);
            });
        }
    }

    /// Writes the value of a write; `payload` writes each payload in it.
    pub(crate) fn write_value(&mut self, value: &WriteValue, payload: &mut dyn FnMut(&mut Self, u32, &Payload)) {
        match value {
            WriteValue::Null => self.0.push(0),
            WriteValue::One(one) => {
                self.0.push(1);
                payload(self, 0, one);
            }
            WriteValue::Items(items) => {
                self.0.push(2);
                self.number(items.len() as u64);
                (0..).zip(items).for_each(|(part, item)| payload(self, part, item));
            }
            WriteValue::Delta(delta) => {
                self.0.push(3);
                self.reference(&delta.of);
                self.list(&delta.removed, |to, range| {
                    to.number(range.start);
                    to.number(range.end);
                });
                self.list(&delta.positions, |to, position| to.number(*position));
                (0..).zip(&delta.items).for_each(|(part, item)| payload(self, part, item));
            }
        }
    }

    /// Writes the writes of tasks; `payload` writes the payload of a part of a write.
    pub(crate) fn writes(
        &mut self,
        all: &[NewWrites],
        payload: &mut dyn FnMut(&mut Self, (TaskId, i32, u32), &Payload),
    ) {
        self.list(all, |to, of| {
            to.checkpoint(&of.checkpoint);
            to.0.extend_from_slice(of.task.as_bytes());
            to.text(&of.path);
            to.list(&of.writes, |to, write| {
                to.signed(write.index.into());
                to.text(&write.channel);
                to.option(write.mark, |to, mark| to.signed(mark.number()));
                let mut each = |to: &mut Self, part, one: &Payload| payload(to, (of.task, write.index, part), one);
                to.write_value(&write.value, &mut each);
            });
        });
    }

    pub(crate) fn field(&mut self, field: &OperationField) -> Result<(), StoreError> {
        match field {
            OperationField::Head => self.0.push(0),
            OperationField::Branch(name) => {
                self.0.push(1);
                self.text(name);
            }
            OperationField::CurrentBranch => self.0.push(2),
            OperationField::Fact(name) => {
                self.0.push(3);
                self.text(name);
            }
            other => return Err(unknown("operation.change", format!("the field {other:?} is not known"))),
        }
        Ok(())
    }

    pub(crate) fn field_value(&mut self, value: Option<&OperationValue>) -> Result<(), StoreError> {
        match value {
            None => self.0.push(0),
            Some(OperationValue::Checkpoint(id)) => {
                self.0.push(1);
                self.checkpoint(id);
            }
            Some(OperationValue::Text(text)) => {
                self.0.push(2);
                self.text(text);
            }
            Some(other) => return Err(unknown("operation.change", format!("the value {other:?} is not known"))),
        }
        Ok(())
    }

    /// Writes an operation without its changes.
    pub(crate) fn operation(&mut self, new: &NewOperation) -> Result<(), StoreError> {
        let kind = OperationKind::ALL.iter().position(|kind| *kind == new.kind);
        let kind = kind.ok_or_else(|| unknown("operation.kind", format!("{} is not known", new.kind)))?;
        self.number(kind as u64);
        self.signed(new.at.as_micros());
        self.optional_text(new.actor.as_deref());
        match new.target {
            None => self.0.push(0),
            Some(OperationTarget::Operation(number)) => {
                self.0.push(1);
                self.number(number);
            }
            Some(OperationTarget::Commits(id)) => {
                self.0.push(2);
                self.checkpoint(&id);
            }
            Some(other) => return Err(unknown("operation.target", format!("{other:?} is not known"))),
        }
        Ok(())
    }
}

/// Packs one value.
pub(crate) fn packed(write: impl FnOnce(&mut Packer)) -> Vec<u8> {
    let mut packer = Packer::default();
    write(&mut packer);
    packer.0
}

fn unknown(field: &'static str, reason: String) -> StoreError {
    StoreError::Invalid { field, reason }
}

/// Reads values one after another.
pub(crate) struct Unpacker<'a> {
    rest: &'a [u8],
    place: &'static str,
}

type Unpacked<T> = Result<T, StoreError>;

impl<'a> Unpacker<'a> {
    /// Reads packed bytes; errors name the column.
    pub(crate) fn new(rest: &'a [u8], place: &'static str) -> Self {
        Self { rest, place }
    }

    pub(crate) fn damaged(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Corrupt { place: self.place.to_owned(), reason: reason.into() }
    }

    fn take(&mut self, count: usize) -> Unpacked<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.damaged("the value ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Unpacked<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn number(&mut self) -> Unpacked<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number is too long"))
    }

    pub(crate) fn signed(&mut self) -> Unpacked<i64> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn bytes(&mut self) -> Unpacked<&'a [u8]> {
        let count = self.number()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(crate) fn text(&mut self) -> Unpacked<&'a str> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("a text is not UTF-8"))
    }

    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Unpacked<T>) -> Unpacked<Option<T>> {
        if self.byte()? == 0 { Ok(None) } else { read(self).map(Some) }
    }

    fn optional_text(&mut self) -> Unpacked<Option<&'a str>> {
        self.option(Self::text)
    }

    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Unpacked<T>) -> Unpacked<Vec<T>> {
        let count = self.number()?;
        // Each value has a byte at least, so a count above the rest is damage and allocates nothing.
        if count > self.rest.len() as u64 {
            return Err(self.damaged("a list ends early"));
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub(crate) fn float(&mut self) -> Unpacked<f32> {
        let bytes = self.take(4)?;
        bytes.try_into().map(f32::from_le_bytes).map_err(|_| self.damaged("a number ends early"))
    }

    fn sixteen(&mut self) -> Unpacked<[u8; 16]> {
        let bytes = self.take(16)?;
        bytes.try_into().map_err(|_| self.damaged("an id ends early"))
    }

    pub(crate) fn checkpoint(&mut self) -> Unpacked<CheckpointId> {
        self.sixteen().map(CheckpointId::from_bytes)
    }

    pub(crate) fn task_id(&mut self) -> Unpacked<TaskId> {
        self.sixteen().map(TaskId::from_bytes)
    }

    pub(crate) fn task(&mut self) -> Unpacked<Option<u32>> {
        Ok(self.number()?.checked_sub(1).map(|task| task as u32))
    }

    pub(crate) fn namespace(&mut self) -> Unpacked<Namespace> {
        let text = self.text()?;
        Namespace::new(text).map_err(|error| self.damaged(error.to_string()))
    }

    pub(crate) fn point(&mut self) -> Unpacked<CheckpointRef> {
        let text = self.text()?;
        let thread = ThreadId::new(text).map_err(|error| self.damaged(error.to_string()))?;
        Ok(CheckpointRef::new(thread, self.namespace()?, self.checkpoint()?))
    }

    pub(crate) fn reference(&mut self) -> Unpacked<ListRef> {
        let (namespace, checkpoint) = (self.namespace()?, self.checkpoint()?);
        Ok(ListRef::new(namespace, checkpoint, self.text()?))
    }

    pub(crate) fn index(&mut self) -> Unpacked<ItemIndex> {
        let mut index = ItemIndex::default();
        index.id = self.optional_text()?.map(Into::into);
        index.kind = self.optional_text()?.map(Into::into);
        index.name = self.optional_text()?.map(Into::into);
        index.tool_calls = self.optional_text()?.map(Into::into);
        index.text = self.optional_text()?.map(Into::into);
        index.input_tokens = self.option(Self::number)?.map(|tokens| tokens as u32);
        index.output_tokens = self.option(Self::number)?.map(|tokens| tokens as u32);
        Ok(index)
    }

    pub(crate) fn payload(&mut self) -> Unpacked<Payload> {
        let codec = Codec::from_tag(self.byte()?);
        let index = self.option(Self::index)?;
        let payload = Payload::new(self.bytes()?.to_vec()).with_codec(codec);
        Ok(match index {
            Some(index) => payload.with_index(index),
            None => payload,
        })
    }

    pub(crate) fn tasks(&mut self) -> Unpacked<Vec<TaskRecord>> {
        self.list(|from| {
            let (id, name) = (from.task_id()?, from.text()?);
            let kind = match from.byte()? {
                0 => TaskKind::Pull { triggers: from.list(|from| from.text().map(Arc::from))? },
                _ => TaskKind::Push { index: from.number()? as u32 },
            };
            Ok(TaskRecord::new(id, name, kind))
        })
    }

    pub(crate) fn parents(&mut self) -> Unpacked<Vec<(Namespace, CheckpointId)>> {
        self.list(|from| Ok((from.namespace()?, from.checkpoint()?)))
    }

    pub(crate) fn seen(&mut self) -> Unpacked<Vec<Seen>> {
        self.list(|from| {
            let node = from.text()?;
            Ok(Seen::new(node, from.list(|from| Ok((Arc::from(from.text()?), from.number()?)))?))
        })
    }

    pub(crate) fn write_value(
        &mut self,
        payload: &mut dyn FnMut(&mut Self) -> Unpacked<Payload>,
    ) -> Unpacked<WriteValue> {
        Ok(match self.byte()? {
            0 => WriteValue::Null,
            1 => WriteValue::One(payload(self)?),
            2 => WriteValue::Items(self.list(payload)?),
            _ => {
                let mut delta = ListDelta::new(self.reference()?);
                delta.removed = self.list(|from| Ok(from.number()?..from.number()?))?;
                delta.positions = self.list(Self::number)?;
                delta.items = delta.positions.iter().map(|_| payload(self)).collect::<Unpacked<_>>()?;
                WriteValue::Delta(Box::new(delta))
            }
        })
    }

    pub(crate) fn mark(&mut self) -> Unpacked<Option<WriteMark>> {
        let number = self.option(Self::signed)?;
        number
            .map(|number| WriteMark::of_number(number).ok_or_else(|| self.damaged("no mark has this number")))
            .transpose()
    }

    pub(crate) fn writes(
        &mut self,
        payload: &mut dyn FnMut(&mut Self) -> Unpacked<Payload>,
    ) -> Unpacked<Vec<NewWrites>> {
        self.list(|from| {
            let (checkpoint, task, path) = (from.checkpoint()?, from.task_id()?, from.text()?);
            let writes = from.list(|from| {
                let (index, channel, mark) = (from.signed()? as i32, from.text()?, from.mark()?);
                Ok(NewWrite::new(index, channel, from.write_value(payload)?).with_mark(mark))
            })?;
            Ok(NewWrites::new(checkpoint, task, path).with(writes))
        })
    }

    pub(crate) fn field(&mut self) -> Unpacked<OperationField> {
        Ok(match self.byte()? {
            0 => OperationField::Head,
            1 => OperationField::Branch(self.text()?.to_owned()),
            2 => OperationField::CurrentBranch,
            _ => OperationField::Fact(self.text()?.to_owned()),
        })
    }

    pub(crate) fn field_value(&mut self) -> Unpacked<Option<OperationValue>> {
        Ok(match self.byte()? {
            0 => None,
            1 => Some(OperationValue::Checkpoint(self.checkpoint()?)),
            _ => Some(OperationValue::Text(self.text()?.to_owned())),
        })
    }

    /// Reads an operation without its changes.
    pub(crate) fn operation(&mut self) -> Unpacked<NewOperation> {
        let kind = usize::try_from(self.number()?).ok().and_then(|kind| OperationKind::ALL.get(kind).copied());
        let kind = kind.ok_or_else(|| self.damaged("no kind of operation has this number"))?;
        let mut new = NewOperation::new(kind, annals::base::Timestamp::from_micros(self.signed()?));
        new.actor = self.optional_text()?.map(ToOwned::to_owned);
        new.target = match self.byte()? {
            0 => None,
            1 => Some(OperationTarget::Operation(self.number()?)),
            _ => Some(OperationTarget::Commits(self.checkpoint()?)),
        };
        Ok(new)
    }

    /// Reads a change of a thread: the field with its namespace, then the values.
    pub(crate) fn change(thread: ThreadId, field: &'a [u8], content: &'a [u8]) -> Unpacked<OperationChange> {
        let (mut key, mut values) =
            (Self::new(field, "operation_change.field"), Self::new(content, "operation_change.content"));
        let (namespace, field) = (key.namespace()?, key.field()?);
        Ok(OperationChange::new(thread, namespace, field, values.field_value()?, values.field_value()?))
    }
}
