//! Checksums: the digests of a payload, and the chained checksums of checkpoints and of runs of writes.
//!
//! The order of the fields is specified in `docs/format.md`. The writer and `check` fill the same structures, one from
//! a batch and one from rows, so that both compute the same checksum.

use super::item::REFERENCE;
use crate::base::internal::hash::{Checksum, ChecksumBuilder, check64};
use crate::base::limits::COLLECTED_BYTES_MAX;
use crate::base::{CheckpointId, Namespace, PayloadRef, TaskId};
use crate::store::batch::{ListRef, Seen};
use crate::store::record::{TaskKind, TaskRecord};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::{cache, kv, kv_vector};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Takes the fields of a record one by one.
trait FieldVisitor {
    fn int(&mut self, field: i64);
    fn bytes(&mut self, field: &[u8]);

    fn maybe(&mut self, field: Option<&str>) {
        self.int(i64::from(field.is_some()));
        if let Some(field) = field {
            self.bytes(field.as_bytes());
        }
    }
}

impl FieldVisitor for ChecksumBuilder {
    fn int(&mut self, field: i64) {
        ChecksumBuilder::int(self, field);
    }

    fn bytes(&mut self, field: &[u8]) {
        ChecksumBuilder::bytes(self, field);
    }
}

impl FieldVisitor for Vec<u8> {
    fn int(&mut self, field: i64) {
        self.extend_from_slice(&field.to_le_bytes());
    }

    fn bytes(&mut self, field: &[u8]) {
        self.extend_from_slice(&(field.len() as u64).to_le_bytes());
        self.extend_from_slice(field);
    }

    fn maybe(&mut self, field: Option<&str>) {
        let mut head = [0; 16];
        let Some(field) = field else { return self.extend_from_slice(&head[..8]) };
        head[0] = 1;
        head[8..].copy_from_slice(&(field.len() as u64).to_le_bytes());
        self.extend_from_slice(&head);
        self.extend_from_slice(field.as_bytes());
    }
}

impl FieldVisitor for Xxh3 {
    fn int(&mut self, field: i64) {
        self.update(&field.to_le_bytes());
    }

    fn bytes(&mut self, field: &[u8]) {
        self.update(&(field.len() as u64).to_le_bytes());
        self.update(field);
    }
}

/// Both hashers, fed by one walk.
struct Both {
    check: Xxh3,
    hash: ChecksumBuilder,
}

impl FieldVisitor for Both {
    fn int(&mut self, field: i64) {
        FieldVisitor::int(&mut self.check, field);
        self.hash.int(field);
    }

    fn bytes(&mut self, field: &[u8]) {
        FieldVisitor::bytes(&mut self.check, field);
        self.hash.bytes(field);
    }
}

/// The two digests of a payload that is stored: one walk over its fields makes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// XXH3-64, of which the row of the payload holds a check; 0 in an encrypted file.
    pub(crate) check: i64,
    /// BLAKE3, by which checksums cover the payload.
    pub(crate) hash: Checksum,
}

impl Digests {
    /// Computes both digests. Small payloads are collected in `room` first, which is quicker than feeding the hashers
    /// field by field.
    pub(crate) fn of(keys: &Keys, payload: PayloadRef<'_>, room: &mut Vec<u8>) -> Self {
        // The check of a sealed payload is that of its sealed bytes.
        if keys.seal_content() {
            return Self { check: 0, hash: payload_hash(keys, &payload) };
        }
        if !is_collected(&payload) {
            let mut both = Both { check: Xxh3::new(), hash: keys.builder() };
            fields(&payload, &mut both);
            return Self { check: both.check.digest() as i64, hash: both.hash.finish() };
        }
        room.clear();
        fields(&payload, room);
        Self { check: check64(room) as i64, hash: keys.checksum(room) }
    }
}

/// Visits the fields in the order of docs/format.md.
fn fields(payload: &PayloadRef<'_>, out: &mut impl FieldVisitor) {
    out.int(i64::from(payload.codec.to_tag()));
    out.bytes(payload.data);
    out.int(i64::from(payload.index.is_some()));
    if let Some(index) = &payload.index {
        [index.id, index.kind, index.name, index.tool_calls, index.text].into_iter().for_each(|f| out.maybe(f));
        out.int(index.input_tokens.map_or(-1, i64::from));
        out.int(index.output_tokens.map_or(-1, i64::from));
    }
}

fn is_collected(payload: &PayloadRef<'_>) -> bool {
    let text = payload.index.and_then(|index| index.text).map_or(0, str::len);
    payload.data.len() + text <= COLLECTED_BYTES_MAX
}

/// Returns the XXH3-64 of the fields of a payload. Small payloads are collected in `room` first.
pub(crate) fn payload_check(payload: &PayloadRef<'_>, room: &mut Vec<u8>) -> i64 {
    if !is_collected(payload) {
        let mut check = Xxh3::new();
        fields(payload, &mut check);
        return check.digest() as i64;
    }
    room.clear();
    fields(payload, room);
    check64(room) as i64
}

/// Returns the BLAKE3 hash by which checksums cover a payload.
pub(crate) fn payload_hash(keys: &Keys, payload: &PayloadRef<'_>) -> Checksum {
    let mut checksum = keys.builder();
    fields(payload, &mut checksum);
    checksum.finish()
}

/// Returns the XXH3-64 check of an entry of the key-value memory.
pub(crate) fn kv_check(keys: &Keys, path: &str, row: &kv::Row<'_>) -> i64 {
    beside_check(keys, |check| {
        check.bytes(path.as_bytes());
        check.bytes(row.key.as_bytes());
        [row.created_at, row.updated_at].into_iter().for_each(|moment| check.int(moment));
        entry_fields(check, row.expires_at, (row.codec, row.data));
    })
}

/// Returns the XXH3-64 check of a vector of an entry with so many.
pub(crate) fn kv_vector_check(
    keys: &Keys,
    (path, key): (&str, &str),
    updated_at: i64,
    count: i64,
    vector: &kv_vector::Row<'_>,
) -> i64 {
    beside_check(keys, |check| {
        check.bytes(path.as_bytes());
        check.bytes(key.as_bytes());
        [updated_at, count, vector.position].into_iter().for_each(|number| check.int(number));
        check.bytes(vector.field.as_bytes());
        check.int(vector.dims);
        check.bytes(vector.data);
    })
}

/// Returns the XXH3-64 check of the lifetime of an entry.
pub(crate) fn kv_lifetime_check(keys: &Keys, path: &str, key: &str, lifetime: i64) -> i64 {
    beside_check(keys, |check| {
        check.bytes(path.as_bytes());
        check.bytes(key.as_bytes());
        check.int(lifetime);
    })
}

/// Returns the XXH3-64 check of an entry of the cache.
pub(crate) fn cache_check(keys: &Keys, row: &cache::Row<'_>) -> i64 {
    beside_check(keys, |check| {
        check.bytes(row.namespace);
        check.bytes(row.key.as_bytes());
        entry_fields(check, row.expires_at, (row.codec, row.data));
    })
}

/// Returns the XXH3-64 check of a timer.
pub(crate) fn timer_check(
    keys: &Keys,
    (thread, path): (&str, &str),
    checkpoint: &[u8],
    task: &[u8],
    wake_at: i64,
) -> i64 {
    beside_check(keys, |check| {
        check.bytes(thread.as_bytes());
        check.bytes(path.as_bytes());
        check.bytes(checkpoint);
        check.bytes(task);
        check.int(wake_at);
    })
}

/// Returns the check of a row beside the log: XXH3-64, or the first half of the checksum if that has a key.
fn beside_check(keys: &Keys, visit: impl FnOnce(&mut dyn FieldVisitor)) -> i64 {
    if keys.of_checksums().is_none() {
        let mut check = Xxh3::new();
        visit(&mut check);
        return check.digest() as i64;
    }
    let mut checksum = keys.builder();
    visit(&mut checksum);
    let mut half = [0; 8];
    half.copy_from_slice(&checksum.finish()[..8]);
    i64::from_le_bytes(half)
}

fn entry_fields(check: &mut dyn FieldVisitor, expires_at: Option<i64>, (codec, data): (i64, &[u8])) {
    check.int(i64::from(expires_at.is_some()));
    if let Some(moment) = expires_at {
        check.int(moment);
    }
    check.int(codec);
    check.bytes(data);
}

/// A write as a checksum covers it.
#[derive(Clone, Debug)]
pub(crate) struct WriteChecksum {
    pub(crate) task: TaskId,
    pub(crate) path: Arc<str>,
    pub(crate) index: i64,
    pub(crate) part: i64,
    pub(crate) channel: Arc<str>,
    pub(crate) value: Option<Checksum>,
    /// The number of its mark, on the first row of a special write that has one.
    pub(crate) mark: Option<i64>,
}

/// A change as a checksum covers it.
#[derive(Clone, Debug)]
pub(crate) struct ChangeChecksum {
    pub(crate) channel: Arc<str>,
    pub(crate) version: i64,
    pub(crate) kind: i64,
    pub(crate) task: Option<u32>,
    pub(crate) value: Option<Checksum>,
    /// Deleted ranges in their order, then puts and removes by position.
    pub(crate) items: Vec<ItemChecksum>,
}

/// An item operation as a checksum covers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemChecksum {
    pub(crate) op: i64,
    pub(crate) position: u64,
    pub(crate) end: u64,
    pub(crate) task: Option<u32>,
    pub(crate) value: Option<Checksum>,
}

impl ItemChecksum {
    /// Makes the checksum of a copy-on-write reference.
    pub(crate) fn of_reference(keys: &Keys, of: &ListRef, task: Option<u32>) -> Self {
        let mut checksum = keys.builder();
        checksum.bytes(of.namespace.as_str().as_bytes()).bytes(of.checkpoint.as_bytes()).bytes(of.channel.as_bytes());
        Self { op: REFERENCE, position: 0, end: 0, task, value: Some(checksum.finish()) }
    }
}

/// The fields that the checksum of a checkpoint covers.
pub(crate) struct CheckpointChecksum<'a> {
    pub(crate) thread: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) id: &'a [u8; 16],
    pub(crate) parent: Option<Checksum>,
    pub(crate) step: i64,
    pub(crate) source: i64,
    pub(crate) created_at: i64,
    pub(crate) run: Option<&'a [u8]>,
    pub(crate) metadata: Option<&'a str>,
    pub(crate) parents: &'a [(Namespace, CheckpointId)],
    pub(crate) tasks: &'a [TaskRecord],
    pub(crate) consumed: Vec<WriteChecksum>,
    pub(crate) changes: Vec<&'a ChangeChecksum>,
    pub(crate) seen: Vec<&'a Seen>,
}

impl CheckpointChecksum<'_> {
    /// Returns the checksum. Lists whose order means nothing are brought into one order first.
    pub(crate) fn finish(mut self, keys: &Keys) -> Checksum {
        self.consumed.sort_by_key(|write| (write.task, write.index, write.part));
        self.changes.sort_by(|a, b| a.channel.cmp(&b.channel));
        self.seen.sort_by(|a, b| a.node.cmp(&b.node));
        let mut checksum = keys.builder();
        checksum.bytes(self.thread.as_bytes()).bytes(self.namespace.as_bytes()).bytes(self.id);
        checksum.maybe(self.parent.as_ref().map(<[u8; 16]>::as_slice));
        checksum.int(self.step).int(self.source).int(self.created_at);
        checksum.maybe(self.run).maybe(self.metadata.map(str::as_bytes));
        checksum.int(self.parents.len() as i64);
        self.parents.iter().for_each(|(path, id)| _ = checksum.bytes(path.as_str().as_bytes()).bytes(id.as_bytes()));
        checksum_tasks(&mut checksum, self.tasks);
        checksum.int(self.consumed.len() as i64);
        self.consumed.iter().for_each(|write| write.add_to_checksum(&mut checksum));
        checksum.int(self.changes.len() as i64);
        self.changes.iter().for_each(|change| change.add_to_checksum(&mut checksum));
        checksum.int(self.seen.len() as i64);
        for seen in &self.seen {
            checksum.bytes(seen.node.as_bytes()).int(seen.versions.len() as i64);
            for (channel, version) in &seen.versions {
                checksum.bytes(channel.as_bytes()).int(*version as i64);
            }
        }
        checksum.finish()
    }
}

fn checksum_tasks(checksum: &mut ChecksumBuilder, tasks: &[TaskRecord]) {
    checksum.int(tasks.len() as i64);
    for task in tasks {
        checksum.bytes(task.id.as_bytes()).bytes(task.name.as_bytes());
        match &task.kind {
            TaskKind::Pull { triggers } => {
                checksum.int(0).int(triggers.len() as i64);
                triggers.iter().for_each(|trigger| _ = checksum.bytes(trigger.as_bytes()));
            }
            TaskKind::Push { index } => _ = checksum.int(1).int(i64::from(*index)),
        }
    }
}

fn task_or_none(task: Option<u32>) -> i64 {
    task.map_or(-1, i64::from)
}

impl WriteChecksum {
    fn add_to_checksum(&self, checksum: &mut ChecksumBuilder) {
        checksum.bytes(self.task.as_bytes()).bytes(self.path.as_bytes()).int(self.index).int(self.part);
        checksum.bytes(self.channel.as_bytes()).maybe(self.value.as_ref().map(<[u8; 16]>::as_slice));
    }
}

impl ChangeChecksum {
    fn add_to_checksum(&self, checksum: &mut ChecksumBuilder) {
        checksum.bytes(self.channel.as_bytes()).int(self.version).int(self.kind).int(task_or_none(self.task));
        checksum.maybe(self.value.as_ref().map(<[u8; 16]>::as_slice)).int(self.items.len() as i64);
        for item in &self.items {
            checksum.int(item.op).int(item.position as i64).int(item.end as i64).int(task_or_none(item.task));
            checksum.maybe(item.value.as_ref().map(<[u8; 16]>::as_slice));
        }
    }
}

/// Returns the checksum of a run of writes stored on its own, chained to the checkpoint whose task wrote.
pub(crate) fn writes_checksum(keys: &Keys, checkpoint: &Checksum, writes: &[WriteChecksum]) -> Checksum {
    let mut checksum = keys.builder();
    checksum.bytes(checkpoint).int(writes.len() as i64);
    writes.iter().for_each(|write| write.add_to_checksum(&mut checksum));
    // Behind the rows, whose number is known: few writes have a mark.
    writes.iter().filter_map(|write| write.mark).for_each(|mark| _ = checksum.int(mark));
    checksum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Codec;
    use crate::store::batch::{ItemIndex, Payload};

    /// The fields in the order of docs/format.md, each handed to the hash on its own.
    fn field_by_field(payload: &Payload) -> ChecksumBuilder {
        let mut checksum = ChecksumBuilder::new();
        checksum.int(i64::from(payload.codec.to_tag())).bytes(&payload.data).int(i64::from(payload.index.is_some()));
        if let Some(index) = payload.index.as_deref() {
            checksum
                .maybe(index.id.as_ref().map(|id| id.as_bytes()))
                .maybe(index.kind.as_ref().map(|kind| kind.as_bytes()));
            checksum.maybe(index.name.as_ref().map(|name| name.as_bytes()));
            checksum.maybe(index.tool_calls.as_ref().map(|calls| calls.as_bytes()));
            checksum.maybe(index.text.as_ref().map(|text| text.as_bytes()));
            checksum.int(index.input_tokens.map_or(-1, i64::from)).int(index.output_tokens.map_or(-1, i64::from));
        }
        checksum
    }

    #[test]
    fn one_walk_makes_the_same_digests_as_two() {
        let mut index = ItemIndex::default();
        (index.id, index.text, index.input_tokens) = (Some("i".into()), Some("t".into()), Some(3));
        for index in [None, Some(ItemIndex::default()), Some(index)] {
            for data in [vec![1, 2], vec![1; COLLECTED_BYTES_MAX + 1]] {
                let mut payload = Payload::new(data).with_codec(Codec::Foreign(9));
                payload.index = index.clone().map(Box::new);
                let checksum = field_by_field(&payload);
                let mut collected = Vec::new();
                fields(&payload.as_ref(), &mut collected);
                let digests = Digests::of(&Keys::default(), payload.as_ref(), &mut Vec::new());
                assert_eq!(digests.hash, checksum.finish());
                assert_eq!(digests.hash, payload_hash(&Keys::default(), &payload.as_ref()));
                assert_eq!(digests.check, check64(&collected) as i64);
                assert_eq!(digests.check, payload_check(&payload.as_ref(), &mut Vec::new()));
                assert_eq!(payload.as_ref().to_payload(), payload);
            }
        }
    }
}
