//! Writes the changes of a checkpoint: values and items, stored once and hashed.

use super::batch::Tx;
use super::payloads::store;
use super::references;
use super::writes::write_ref;
use crate::base::internal::hash::Checksum;
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewCheckpoint, Payload, WriteRef};
use crate::store::sqlite::fault::{Res, invalid};
use crate::store::sqlite::index::threads;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::items::ChannelRows;
use crate::store::sqlite::read::list_end::{self, EndOps, NewestRow};
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::rows::checksums::{ChangeChecksum, Digests, ItemChecksum};
use crate::store::sqlite::rows::item::{DELETE, DELETE_ALL, DELETE_RANGE, PUT, REFERENCE, range_position};
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{DeletedRange, ValueColumn, pack_ranges, pack_reference};
use crate::store::sqlite::rows::task::task_column;
use crate::store::sqlite::rows::version::{EMPTY, KeyContent, LIST, VALUE, VersionRow};
use crate::store::sqlite::tables::{KeyChecked, StoredColumn, item};
use crate::store::sqlite::view::ReadView;
use rusqlite::types::ValueRef;
use std::sync::Arc;

/// A change whose values are resolved and hashed, but not stored.
pub(crate) struct Ready<'b> {
    change: &'b Change,
    value: Option<ReadyValue<'b>>,
    ranges: Vec<DeletedRange>,
    /// The list it references, the `seq` of its checkpoint, and the task that made the reference.
    reference: Option<(&'b ListRef, i64, Option<u32>)>,
    /// Puts and removes by position.
    items: Vec<(&'b ItemChange, Option<ReadyValue<'b>>)>,
    pub(crate) checksum: ChangeChecksum,
}

/// A value that is stored already, or will be.
pub(crate) enum ReadyValue<'b> {
    New(&'b Payload, Digests),
    Old(ValueColumn, Checksum),
}

impl ReadyValue<'_> {
    fn hash(&self) -> Checksum {
        match self {
            Self::New(_, digests) => digests.hash,
            Self::Old(_, hash) => *hash,
        }
    }
}

impl<'a> Tx<'a> {
    /// Resolves and hashes the changes of a checkpoint. Nothing is written.
    pub(crate) fn ready<'b>(&mut self, parent: Option<&Known>, new: &'b NewCheckpoint) -> Res<Vec<Ready<'b>>> {
        new.changes.iter().map(|change| self.ready_change(parent, change)).collect()
    }

    fn ready_change<'b>(&mut self, parent: Option<&Known>, change: &'b Change) -> Res<Ready<'b>> {
        let mut ready = Ready {
            change,
            value: None,
            ranges: Vec::new(),
            reference: None,
            items: Vec::new(),
            checksum: ChangeChecksum {
                channel: Arc::clone(&change.channel),
                version: change.version as i64,
                kind: EMPTY,
                task: change.task,
                value: None,
                items: Vec::new(),
            },
        };
        match &change.value {
            ChangeValue::Empty => {}
            ChangeValue::Value(data) => {
                let value = self.ready_value(parent, data)?;
                ready.checksum.kind = VALUE;
                ready.checksum.value = Some(value.hash());
                ready.value = Some(value);
            }
            ChangeValue::Items(items) => {
                ready.checksum.kind = LIST;
                for item in items {
                    match &item.op {
                        ItemOp::DeleteRange { end } => {
                            ready.ranges.push(DeletedRange { first: item.position, end: *end, task: item.task });
                        }
                        ItemOp::Reference(of) => ready.reference = Some((of, references::find(self, of)?, item.task)),
                        ItemOp::Delete => ready.items.push((item, None)),
                        ItemOp::Put(data) => ready.items.push((item, Some(self.ready_value(parent, data)?))),
                    }
                }
                sort_items(&self.caches.keys, &mut ready)?;
            }
        }
        Ok(ready)
    }

    fn ready_value<'b>(&mut self, parent: Option<&Known>, data: &'b Data) -> Res<ReadyValue<'b>> {
        match data {
            Data::New(payload) => {
                Ok(ReadyValue::New(payload, Digests::of(&self.caches.keys, payload.as_ref(), &mut self.caches.room)))
            }
            Data::OfWrite(at) => {
                let none = || {
                    invalid(
                        "change.value",
                        format!("{at:?} does not refer to a write of a task of the parent with a value"),
                    )
                };
                let parent = parent.ok_or_else(none)?;
                let (stored, checksum) = match self.written.get(&(parent.seq, at.clone())) {
                    Some(found) => *found,
                    None => self.read_write(parent, at)?.ok_or_else(none)?,
                };
                Ok(ReadyValue::Old(stored, checksum))
            }
        }
    }

    /// Returns where the value of a stored write is, and its hash. The writes of the task are read at once.
    fn read_write(&mut self, parent: &Known, at: &WriteRef) -> Res<Option<(ValueColumn, Checksum)>> {
        let task = task_column(&at.task, &parent.tasks);
        if !self.read_tasks.insert((parent.seq, task)) {
            return Ok(None);
        }
        let view = ReadView { conn: self.conn, names: &self.caches.names, keys: &self.caches.keys };
        let written = &mut self.written;
        view.runs((parent.seq, &parent.checksum), &parent.tasks, Some(task), &mut |read| {
            let place = write_ref(at.task, read.write.index, read.write.part);
            written.extend(read.write.value.zip(place).map(|(hash, at)| ((parent.seq, at), (read.stored, hash))));
            Ok(())
        })?;
        Ok(self.written.get(&(parent.seq, at.clone())).copied())
    }

    /// Writes the rows of the changes.
    pub(crate) fn put_changes(
        &mut self,
        parent: Option<&Known>,
        branch: i64,
        ordinal: i64,
        changes: &[Ready<'_>],
    ) -> Res<()> {
        for ready in changes {
            let change = ready.change;
            let key = self.caches.intern(self.conn, Kind::Channel, &change.channel)?;
            let (version, kind) = (ready.checksum.version, ready.checksum.kind);
            if kind == LIST {
                let list = self.caches.intern(self.conn, Kind::List, &change.channel)?;
                let end = self.list_end(parent, branch, key, list, ready)?;
                let value = KeyContent::Packed(end.pack(branch, ordinal));
                self.put_version(VersionRow {
                    version,
                    task: change.task,
                    ..VersionRow::derived(kind, (branch, ordinal), key, value)
                });
                self.note_list(branch, ordinal, key, Some(end));
                self.put_items(branch, ordinal, list, ready)?;
                continue;
            }
            let value = match &ready.value {
                Some(value) => self.stored(value)?,
                None => ValueColumn::Null,
            };
            let value = KeyContent::Channel(value);
            self.put_version(VersionRow {
                version,
                task: change.task,
                ..VersionRow::derived(kind, (branch, ordinal), key, value)
            });
            if let Some(list) = self.caches.list(self.conn, &change.channel)? {
                if self.list_before(parent, key)?.and_then(|before| before.list).is_some_and(|end| end.end > 0) {
                    self.caches.note_user(self.conn, list)?;
                    self.put_list_op(branch, list, ordinal, DELETE_RANGE, None, &pack_ranges(&[DELETE_ALL]))?;
                }
                self.note_list(branch, ordinal, key, None);
            }
        }
        Ok(())
    }

    /// Returns the newest version row of a channel at the parent.
    fn list_before(&mut self, parent: Option<&Known>, key: i64) -> Res<Option<NewestRow>> {
        let Some(parent) = parent else { return Ok(None) };
        let view = ReadView { conn: self.conn, names: &self.caches.names, keys: &self.caches.keys };
        self.caches.lists.at(view, (parent.branch, parent.ordinal), key)
    }

    fn note_list(&mut self, branch: i64, ordinal: i64, key: i64, list: Option<ListEnd>) {
        self.caches.fresh = true;
        self.caches.lists.note(branch, ordinal, key, list);
    }

    /// Returns the end of a list after a change.
    fn list_end(
        &mut self,
        parent: Option<&Known>,
        branch: i64,
        key: i64,
        list: i64,
        ready: &Ready<'_>,
    ) -> Res<ListEnd> {
        let before = self.list_before(parent, key)?;
        let view = self.caches.view(self.conn);
        let reference = match ready.reference {
            Some((of, seq, _)) => Some(view.list_of(seq, &of.channel)?),
            None => None,
        };
        let reference = reference.map(|of| of.unwrap_or_else(|| ChannelRows::empty(view, key, list)));
        let ops = EndOps {
            ranges: &ready.ranges,
            reference: reference.as_ref(),
            items: ready.items.iter().map(|(item, value)| (item.position, value.is_some())).collect(),
        };
        list_end::after(view, before, branch, key, list, &ops)
    }

    fn put_items(&mut self, branch: i64, ordinal: i64, list: i64, ready: &Ready<'_>) -> Res<()> {
        if !ready.ranges.is_empty() {
            self.put_list_op(branch, list, ordinal, DELETE_RANGE, None, &pack_ranges(&ready.ranges))?;
        }
        if let Some((of, seq, task)) = ready.reference {
            let channel = self.caches.intern(self.conn, Kind::List, &of.channel)?;
            self.put_list_op(branch, list, ordinal, REFERENCE, task, &pack_reference(seq, channel))?;
        }
        for (item, value) in &ready.items {
            let (op, value) = match value {
                Some(value) => (PUT, self.stored(value)?),
                None => (DELETE, ValueColumn::Null),
            };
            self.put_item(branch, list, item.position as i64, ordinal, op, item.task, value.column())?;
            if op == PUT && self.batch.namespace.is_root() {
                self.count_tokens((branch, list, item.position as i64), ordinal, value)?;
            }
        }
        Ok(())
    }

    /// Adds the tokens of an item that was put to those of the checkpoint, if no older item of its position has any.
    fn count_tokens(&mut self, place: (i64, i64, i64), ordinal: i64, value: ValueColumn) -> Res<()> {
        match self.caches.unfollowed.tokens(value) {
            Some(Some(tokens)) => {
                if !threads::has_older_tokens(self.caches.view(self.conn), place, ordinal)?
                    && let Some(sum) = &mut self.tokens
                {
                    sum.add_usage(tokens);
                }
            }
            Some(None) => {}
            None => self.tokens = None,
        }
        Ok(())
    }

    /// Puts the row of the range deletes of an ordinal, or of its reference.
    fn put_list_op(&self, branch: i64, list: i64, ordinal: i64, op: i64, task: Option<u32>, packed: &[u8]) -> Res<()> {
        self.put_item(branch, list, range_position(ordinal), ordinal, op, task, ValueRef::Blob(packed))
    }

    fn put_item(
        &self,
        branch: i64,
        list: i64,
        position: i64,
        ordinal: i64,
        op: i64,
        task: Option<u32>,
        value: ValueRef<'_>,
    ) -> Res<()> {
        debug_assert!(position >= 0 || matches!(op, DELETE_RANGE | REFERENCE), "an item has a position of 0 or more");
        let row = item::Row { branch, channel: list, slot: position, ordinal, op, task, value: StoredColumn(value) };
        row.insert(self.conn, &self.caches.keys)
    }

    fn stored(&mut self, value: &ReadyValue<'_>) -> Res<ValueColumn> {
        match value {
            ReadyValue::Old(stored, _) => Ok(*stored),
            ReadyValue::New(payload, digests) => store(self.conn, self.caches, payload, digests.check),
        }
    }
}

fn sort_items(keys: &Keys, ready: &mut Ready<'_>) -> Res<()> {
    ready.items.sort_by_key(|(item, _)| item.position);
    if let Some(twice) = ready.items.windows(2).find(|pair| pair[0].0.position == pair[1].0.position) {
        return Err(invalid("change.items", format!("position {} changes twice", twice[0].0.position)));
    }
    debug_assert!(ready.reference.is_none() || ready.ranges.is_empty(), "a reference replaces the whole list");
    let ranges = ready.ranges.iter().map(|range| ItemChecksum {
        op: DELETE_RANGE,
        position: range.first,
        end: range.end,
        task: range.task,
        value: None,
    });
    let reference = ready.reference.map(|(of, _, task)| ItemChecksum::of_reference(keys, of, task));
    let items = ready.items.iter().map(|(item, value)| ItemChecksum {
        op: if value.is_some() { PUT } else { DELETE },
        position: item.position,
        end: 0,
        task: item.task,
        value: value.as_ref().map(ReadyValue::hash),
    });
    ready.checksum.items = ranges.chain(reference).chain(items).collect();
    Ok(())
}
