//! The checksum of a checkpoint: BLAKE3 of what its rows hold, and of the checksum of its parent.
//!
//! A check computes it from the rows, and a commit from what it is about to write; a repeated batch is known by it.

use annals::base::Payload;
use annals::store::batch::{NewWrites, Seen};
use annals::store::record::CheckpointRecord;

use crate::pack::Packer;

/// What a checksum covers.
pub(crate) struct CheckedContent<'a> {
    /// The checksum of the parent.
    pub(crate) parent: Option<[u8; 16]>,
    /// The record; its place does not count.
    pub(crate) record: &'a CheckpointRecord,
    pub(crate) consumed: &'a [NewWrites],
    pub(crate) seen: &'a [Seen],
    /// Channel, version, kind and content.
    pub(crate) changes: Vec<(&'a str, i64, i16, &'a [u8])>,
    /// Channel, position, task and payload; `None` for a deletion.
    pub(crate) items: Vec<(&'a str, i64, Option<u32>, Option<&'a Payload>)>,
    /// Channel, first, last, task and reference.
    pub(crate) range_deletes: Vec<(&'a str, i64, i64, Option<u32>, Option<&'a [u8]>)>,
}

impl CheckedContent<'_> {
    /// Returns the checksum.
    pub(crate) fn checksum(mut self) -> [u8; 16] {
        let (mut to, record) = (Packer::default(), self.record);
        to.option(self.parent, |to, parent| to.bytes(&parent));
        to.checkpoint(&record.point.checkpoint);
        to.option(record.parent, |to, id| to.checkpoint(&id));
        to.option(record.forked_from.as_ref(), Packer::point);
        to.signed(record.step);
        to.text(record.source.as_str());
        to.signed(record.created_at.as_micros());
        to.option(record.run, |to, run| to.bytes(run.as_bytes()));
        to.optional_text(record.app_version.as_deref());
        to.optional_text(record.metadata.as_deref());
        to.parents(&record.parents);
        to.tasks(&record.tasks);
        to.writes(self.consumed, &mut |to, _, payload| to.payload(payload));
        to.seen(self.seen.iter());
        self.changes.sort_by_key(|change| change.0);
        to.list(&self.changes, |to, (channel, version, kind, content)| {
            to.text(channel);
            to.signed(*version);
            to.signed((*kind).into());
            to.bytes(content);
        });
        self.items.sort_by_key(|item| (item.0, item.1));
        to.list(&self.items, |to, (channel, position, task, payload)| {
            to.text(channel);
            to.signed(*position);
            to.task(*task);
            to.option(*payload, Packer::payload);
        });
        self.range_deletes.sort_by_key(|of| (of.0, of.1));
        to.list(&self.range_deletes, |to, (channel, first, last, task, reference)| {
            to.text(channel);
            to.signed(*first);
            to.signed(*last);
            to.task(*task);
            to.option(*reference, Packer::bytes);
        });
        let mut checksum = [0; 16];
        checksum.copy_from_slice(&blake3::hash(&to.0).as_bytes()[..16]);
        checksum
    }
}
