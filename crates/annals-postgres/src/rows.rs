//! Rows of the server as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::base::{CheckpointId, Codec, ItemIndex, Namespace, Payload, RunId, ThreadId, Timestamp};
use annals::store::batch::Seen;
use annals::store::lease::{LeaseOwner, LeaseRecord};
use annals::store::record::{ChannelValue, CheckpointRecord, Source};
use annals::store::{CheckpointRef, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::corrupt;
use crate::pack::{Packer, Unpacker, packed};

/// The cells of a row, one after another.
pub(crate) struct Cells<'r> {
    row: &'r Row,
    at: usize,
}

impl<'r> Cells<'r> {
    pub(crate) fn of(row: &'r Row) -> Self {
        Self { row, at: 0 }
    }

    pub(crate) fn next<T: FromSql<'r>>(&mut self) -> Result<T, StoreError> {
        let at = self.at;
        self.at += 1;
        self.row.try_get(at).map_err(|error| corrupt(format!("column {at} of a row"), error.to_string()))
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        self.next::<i64>().map(i64::cast_unsigned)
    }

    pub(crate) fn checkpoint(&mut self) -> Result<CheckpointId, StoreError> {
        sixteen(self.next()?).map(CheckpointId::from_bytes)
    }

    pub(crate) fn optional_checkpoint(&mut self) -> Result<Option<CheckpointId>, StoreError> {
        self.next::<Option<&[u8]>>()?.map(|bytes| sixteen(bytes).map(CheckpointId::from_bytes)).transpose()
    }

    pub(crate) fn thread(&mut self) -> Result<ThreadId, StoreError> {
        Ok(ThreadId::new(self.next::<&str>()?)?)
    }

    pub(crate) fn namespace(&mut self) -> Result<Namespace, StoreError> {
        Ok(Namespace::new(self.next::<&str>()?)?)
    }

    pub(crate) fn place(&mut self) -> Result<PgPlace, StoreError> {
        Ok(PgPlace { thread: self.next()?, branch: self.next()?, ordinal: self.next()? })
    }

    /// Reads the five columns of a lease.
    pub(crate) fn lease(&mut self) -> Result<Option<LeaseRecord>, StoreError> {
        let (owner, process) = (self.next::<Option<&[u8]>>()?, self.next::<Option<&str>>()?);
        let (epoch, until) = (self.next::<Option<i64>>()?, self.next::<Option<i64>>()?);
        let recoveries = self.next::<Option<i64>>()?;
        let Some(owner) = owner else { return Ok(None) };
        let owner = LeaseOwner::from_stored(sixteen(owner)?, process.unwrap_or_default());
        let number = |number: Option<i64>| number.unwrap_or_default().cast_unsigned();
        let until = until.map(Timestamp::from_micros);
        Ok(Some(LeaseRecord::new(owner, number(epoch), until, number(recoveries))))
    }

    /// Reads the columns of a payload: codec, data, and those of the index. `None` for a deletion.
    pub(crate) fn payload(&mut self) -> Result<Option<Payload>, StoreError> {
        let (codec, data) = (self.next::<Option<i16>>()?, self.next::<Option<Vec<u8>>>()?);
        let mut index = ItemIndex::default();
        index.id = self.next::<Option<&str>>()?.map(Into::into);
        index.kind = self.next::<Option<&str>>()?.map(Into::into);
        index.name = self.next::<Option<&str>>()?.map(Into::into);
        index.tool_calls = self.next()?;
        index.text = self.next()?;
        let tokens = |tokens: Option<i64>| tokens.map(|tokens| tokens as u32);
        (index.input_tokens, index.output_tokens) = (tokens(self.next()?), tokens(self.next()?));
        let exact = self.next::<Option<&[u8]>>()?;
        let (Some(codec), Some(data)) = (codec, data) else { return Ok(None) };
        let payload = Payload::new(data).with_codec(Codec::from_tag(codec as u8));
        Ok(Some(match (codec & INDEXED != 0, exact) {
            (false, _) => payload,
            (true, None) => payload.with_index(index),
            (true, Some(exact)) => payload.with_index(Unpacker::new(exact, "item.exact").index()?),
        }))
    }
}

/// Added to the codec of an item with an index.
pub(crate) const INDEXED: i16 = 256;

pub(crate) fn sixteen(bytes: &[u8]) -> Result<[u8; 16], StoreError> {
    bytes.try_into().map_err(|_| corrupt("an id", format!("it has {} bytes and not 16", bytes.len())))
}

/// Returns a text as a column can have it: without NUL characters.
pub(crate) fn column_text(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text.to_owned() }
}

/// Where a checkpoint stands: the number of its thread, its branch, and its ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PgPlace {
    pub(crate) thread: i64,
    pub(crate) branch: i64,
    pub(crate) ordinal: i64,
}

/// The record of a checkpoint with what stands beside it in its row.
#[derive(Clone, Debug)]
pub(crate) struct PgRecord {
    pub(crate) record: CheckpointRecord,
    pub(crate) place: PgPlace,
    /// The number of its namespace.
    pub(crate) namespace: i64,
    pub(crate) checksum: [u8; 16],
}

/// The sources by their numbers.
pub(crate) const SOURCES: [Source; 4] = [Source::Input, Source::Loop, Source::Update, Source::Fork];

/// Reads the columns of a record, in the order of `record_columns!`.
pub(crate) fn record(cells: &mut Cells<'_>) -> Result<PgRecord, StoreError> {
    let (thread, namespace, place, number) = (cells.thread()?, cells.namespace()?, cells.place()?, cells.next()?);
    let (id, seq, parent) = (cells.checkpoint()?, cells.number()?, cells.optional_checkpoint()?);
    let forked_from = cells.next::<Option<&[u8]>>()?;
    let (step, source, created_at) = (cells.next()?, cells.next::<i16>()?, cells.next()?);
    let source = usize::try_from(source).ok().and_then(|source| SOURCES.get(source).copied());
    let source = source.ok_or_else(|| corrupt("checkpoint.source", "no source has this number"))?;
    let point = CheckpointRef::new(thread, namespace, id);
    let mut record = CheckpointRecord::new(point, seq, step, source, Timestamp::from_micros(created_at));
    record.parent = parent;
    record.forked_from = forked_from.map(|from| Unpacker::new(from, "checkpoint.forked_from").point()).transpose()?;
    (record.branch, record.ordinal) = (place.branch.cast_unsigned(), place.ordinal.cast_unsigned());
    record.run = cells.next::<Option<&[u8]>>()?.map(sixteen).transpose()?.map(RunId::from_bytes);
    (record.app_version, record.metadata) = (cells.next::<Option<&str>>()?.map(Into::into), cells.next()?);
    if let Some(exact) = cells.next::<Option<&[u8]>>()? {
        let mut exact = Unpacker::new(exact, "checkpoint.exact");
        record.app_version = exact.option(|from| from.text().map(Into::into))?;
        record.metadata = exact.option(|from| from.text().map(ToOwned::to_owned))?;
    }
    if let Some(parents) = cells.next::<Option<&[u8]>>()? {
        record.parents = Unpacker::new(parents, "checkpoint.parents").parents()?.into();
    }
    if let Some(tasks) = cells.next::<Option<&[u8]>>()? {
        record.tasks = Unpacker::new(tasks, "checkpoint.tasks").tasks()?;
    }
    record.pruned = cells.next()?;
    let checksum = sixteen(cells.next()?)?;
    Ok(PgRecord { record, place, namespace: number, checksum })
}

/// The kinds of the contents of a channel.
pub(crate) const EMPTY: i16 = 0;
pub(crate) const VALUE: i16 = 1;
pub(crate) const LIST: i16 = 2;

/// The bits of the kind in the first byte of a stored change; above them stands the length of the version.
const KIND_BITS: u32 = 2;

/// Returns a change as it is stored: a byte with the kind and the length of the version, the version with its highest
/// byte first and without leading zeros, and the content.
pub(crate) fn pack_change(version: i64, kind: i16, content: &[u8]) -> Vec<u8> {
    let bytes = version.to_be_bytes();
    let version = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut packed = Vec::with_capacity(1 + version.len() + content.len());
    packed.push(kind as u8 | (version.len() as u8) << KIND_BITS);
    packed.extend_from_slice(version);
    packed.extend_from_slice(content);
    packed
}

/// Reads the kind, the version and the content of a stored change.
pub(crate) fn unpack_change(stored: &[u8]) -> Result<(i16, i64, &[u8]), StoreError> {
    let damaged = |reason| corrupt("checkpoint.contents", reason);
    let (head, rest) = stored.split_first().ok_or_else(|| damaged("a change is empty"))?;
    let (kind, len) = (head & ((1 << KIND_BITS) - 1), usize::from(head >> KIND_BITS));
    let (version, content) = rest.split_at_checked(len).ok_or_else(|| damaged("a change ends early"))?;
    let mut bytes = [0; 8];
    let at = bytes.len().checked_sub(len).ok_or_else(|| damaged("a version has more than 8 bytes"))?;
    bytes[at..].copy_from_slice(version);
    Ok((kind.into(), i64::from_be_bytes(bytes), content))
}

/// The content of a change: the task, and a value, or the range of positions that a list changed at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PgContent {
    pub(crate) task: Option<u32>,
    pub(crate) value: ChannelValue,
    /// Ends at `u64::MAX` if the list was replaced.
    pub(crate) positions: std::ops::Range<u64>,
    /// How many references of the list lie below one another.
    pub(crate) depth: u64,
}

impl PgContent {
    pub(crate) fn pack(&self) -> Vec<u8> {
        packed(|to| {
            to.task(self.task);
            match &self.value {
                ChannelValue::Empty => {}
                ChannelValue::Value(payload) => to.payload(payload),
                ChannelValue::Items => {
                    to.number(self.positions.start);
                    to.number(self.positions.end);
                    to.number(self.depth);
                }
            }
        })
    }

    pub(crate) fn unpack(kind: i16, bytes: &[u8]) -> Result<Self, StoreError> {
        let mut from = Unpacker::new(bytes, "checkpoint.contents");
        let (task, mut positions, mut depth) = (from.task()?, 0..0, 0);
        let value = match kind {
            EMPTY => ChannelValue::Empty,
            VALUE => ChannelValue::Value(from.payload()?),
            _ => {
                (positions, depth) = (from.number()?..from.number()?, from.number()?);
                ChannelValue::Items
            }
        };
        Ok(Self { task, value, positions, depth })
    }
}

/// The changes of a checkpoint, as its row has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PgChanges {
    pub(crate) channels: Vec<String>,
    pub(crate) versions: Vec<i64>,
    pub(crate) kinds: Vec<i16>,
    pub(crate) contents: Vec<Vec<u8>>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) snapshot: Option<Skeleton>,
}

impl PgChanges {
    /// Reads the columns of changes, in the order of `change_columns!`.
    pub(crate) fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        let channels = cells.next::<Option<Vec<String>>>()?.unwrap_or_default();
        let stored = cells.next::<Option<Vec<&[u8]>>>()?.unwrap_or_default();
        if channels.len() != stored.len() {
            return Err(corrupt("checkpoint.channels", "the arrays of its changes differ in length"));
        }
        let mut changes = Self { channels, ..Self::default() };
        for stored in stored {
            let (kind, version, content) = unpack_change(stored)?;
            changes.versions.push(version);
            changes.kinds.push(kind);
            changes.contents.push(content.to_vec());
        }
        if let Some(seen) = cells.next::<Option<&[u8]>>()? {
            changes.seen = Unpacker::new(seen, "checkpoint.seen").seen()?;
        }
        changes.snapshot = cells.next::<Option<&[u8]>>()?.map(Skeleton::unpack).transpose()?;
        Ok(changes)
    }

    /// Visits the changes: channel, version, kind and packed content.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, u64, i16, &[u8])> {
        let parts = self.channels.iter().zip(&self.versions).zip(&self.kinds).zip(&self.contents);
        parts.map(|(((channel, version), kind), content)| (&**channel, version.cast_unsigned(), *kind, &**content))
    }

    pub(crate) fn content_of(&self, channel: &str) -> Option<(i16, &[u8])> {
        self.each().find(|(of, ..)| *of == channel).map(|(_, _, kind, content)| (kind, content))
    }
}

/// The version of a channel without its value: where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SkeletonChannel {
    pub(crate) version: u64,
    pub(crate) kind: i16,
    pub(crate) task: Option<u32>,
    pub(crate) place: PgPlace,
    /// How many references of a list lie below one another.
    pub(crate) depth: u64,
}

/// A state without values: where each channel was written last, and the nodes that ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Skeleton {
    pub(crate) channels: BTreeMap<Arc<str>, SkeletonChannel>,
    pub(crate) seen: BTreeMap<Arc<str>, Seen>,
}

impl Skeleton {
    pub(crate) fn pack(&self) -> Vec<u8> {
        packed(|to: &mut Packer| {
            to.number(self.channels.len() as u64);
            for (channel, of) in &self.channels {
                to.text(channel);
                to.number(of.version);
                to.number(of.kind as u64);
                to.task(of.task);
                to.number(of.depth);
                [of.place.thread, of.place.branch, of.place.ordinal].into_iter().for_each(|part| to.signed(part));
            }
            to.seen(self.seen.values());
        })
    }

    pub(crate) fn unpack(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut from = Unpacker::new(bytes, "checkpoint.snapshot");
        let channels = from.list(|from| {
            let channel: Arc<str> = from.text()?.into();
            let (version, kind, task) = (from.number()?, from.number()? as i16, from.task()?);
            let depth = from.number()?;
            let place = PgPlace { thread: from.signed()?, branch: from.signed()?, ordinal: from.signed()? };
            Ok((channel, SkeletonChannel { version, kind, task, place, depth }))
        })?;
        let seen = from.seen()?.into_iter().map(|seen| (Arc::clone(&seen.node), seen)).collect();
        Ok(Self { channels: channels.into_iter().collect(), seen })
    }

    /// Adds the changes of the checkpoint at a place.
    pub(crate) fn apply(&mut self, place: PgPlace, changes: &PgChanges) -> Result<(), StoreError> {
        if let Some(snapshot) = &changes.snapshot {
            self.clone_from(snapshot);
            return Ok(());
        }
        for (channel, version, kind, content) in changes.each() {
            let (task, depth) = match kind {
                LIST => PgContent::unpack(kind, content).map(|content| (content.task, content.depth))?,
                _ => (Unpacker::new(content, "checkpoint.contents").task()?, 0),
            };
            self.channels.insert(channel.into(), SkeletonChannel { version, kind, task, place, depth });
        }
        self.seen.extend(changes.seen.iter().map(|seen| (Arc::clone(&seen.node), seen.clone())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_changes_are_read_back_and_damaged_ones_are_refused() {
        for version in [0, 1, 255, 256, i64::MAX, -1] {
            let packed = pack_change(version, LIST, b"abc");
            assert_eq!(unpack_change(&packed).unwrap(), (LIST, version, &b"abc"[..]));
        }
        assert_eq!(pack_change(7, VALUE, b"x"), [VALUE as u8 | 1 << KIND_BITS, 7, b'x']);
        for damaged in [&[][..], &[1 << KIND_BITS], &[9 << KIND_BITS, 1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            assert!(matches!(unpack_change(damaged), Err(StoreError::Corrupt { .. })), "{damaged:?}");
        }
    }
}
