//! The compact encodings of columns: numbers, tasks, seen versions, index snapshots, range deletes and inline values.
//!
//! Byte-exact in `docs/format.md`. Reading never panics: what does not fit is `None`, and the caller names the row.

use crate::base::{CheckpointId, Namespace, TaskId};
use crate::limits::INLINE_BYTES_MAX;
use crate::store::batch::Payload;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use std::sync::Arc;

/// Appends a number in LEB128: seven bits a byte, lowest first, the high bit set on all but the last.
pub(crate) fn put_uint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads packed bytes from the front.
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Unpack<'a> {
    /// Returns the next number.
    pub(crate) fn uint(&mut self) -> Option<u64> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            if shift == 63 && byte > 1 {
                return None;
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// Returns the next number as a row id.
    pub(crate) fn id(&mut self) -> Option<i64> {
        i64::try_from(self.uint()?).ok()
    }

    /// Returns the next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A prepared task with names as ids.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PackedTask {
    pub(crate) id: TaskId,
    pub(crate) node: i64,
    pub(crate) kind: PackedKind,
}

/// The reason that a packed task is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PackedKind {
    Pull(Vec<i64>),
    Push(u32),
}

/// Packs tasks: the count, all ids (so that SQL finds the id of a position), then names and kinds.
pub(crate) fn pack_tasks(tasks: &[PackedTask]) -> Vec<u8> {
    let mut out = Vec::with_capacity(3 + tasks.len() * 20);
    put_uint(&mut out, tasks.len() as u64);
    tasks.iter().for_each(|task| out.extend_from_slice(task.id.as_bytes()));
    for task in tasks {
        put_uint(&mut out, task.node as u64);
        match &task.kind {
            PackedKind::Pull(triggers) => {
                put_uint(&mut out, (triggers.len() as u64) << 1);
                triggers.iter().for_each(|&trigger| put_uint(&mut out, trigger as u64));
            }
            PackedKind::Push(index) => put_uint(&mut out, (u64::from(*index) << 1) | 1),
        }
    }
    debug_assert_eq!(unpack_tasks(&out).as_deref(), Some(tasks));
    out
}

/// Unpacks tasks.
pub(crate) fn unpack_tasks(bytes: &[u8]) -> Option<Vec<PackedTask>> {
    let mut rest = Unpack(bytes);
    let count = usize::try_from(rest.uint()?).ok()?;
    let ids = rest.take(count.checked_mul(16)?)?;
    let mut tasks = Vec::with_capacity(count);
    for id in ids.chunks_exact(16) {
        let node = rest.id()?;
        let head = rest.uint()?;
        let kind = if head & 1 == 1 {
            PackedKind::Push(u32::try_from(head >> 1).ok()?)
        } else {
            PackedKind::Pull((0..head >> 1).map(|_| rest.id()).collect::<Option<_>>()?)
        };
        tasks.push(PackedTask { id: TaskId::from_bytes(id.try_into().ok()?), node, kind });
    }
    rest.is_empty().then_some(tasks)
}

/// Packs the checkpoints of the parent graphs: of each its checkpoint and its path with the length before it.
pub(crate) fn pack_parents(parents: &[(Namespace, CheckpointId)]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (path, checkpoint) in parents {
        out.extend_from_slice(checkpoint.as_bytes());
        put_uint(&mut out, path.as_str().len() as u64);
        out.extend_from_slice(path.as_str().as_bytes());
    }
    debug_assert!(unpack_parents(Some(&out)).is_some_and(|back| *back == *parents));
    (!out.is_empty()).then_some(out)
}

/// Unpacks the checkpoints of the parent graphs.
pub(crate) fn unpack_parents(bytes: Option<&[u8]>) -> Option<Arc<[(Namespace, CheckpointId)]>> {
    let mut rest = Unpack(bytes.unwrap_or_default());
    let mut parents = Vec::new();
    while !rest.is_empty() {
        let checkpoint = CheckpointId::from_bytes(rest.take(16)?.try_into().ok()?);
        let length = usize::try_from(rest.uint()?).ok()?;
        let path = Namespace::new(std::str::from_utf8(rest.take(length)?).ok()?).ok()?;
        parents.push((path, checkpoint));
    }
    Some(parents.into())
}

/// Packs pairs of numbers: the channels and versions a node has seen.
pub(crate) fn pack_seen(pairs: impl IntoIterator<Item = (i64, u64)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (channel, version) in pairs {
        put_uint(&mut out, channel as u64);
        put_uint(&mut out, version);
    }
    debug_assert!(unpack_seen(&out).is_some());
    out
}

/// Unpacks the channels and versions a node has seen.
pub(crate) fn unpack_seen(bytes: &[u8]) -> Option<Vec<(i64, u64)>> {
    let mut rest = Unpack(bytes);
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        pairs.push((rest.id()?, rest.uint()?));
    }
    Some(pairs)
}

/// The place of the newest row of a key: (key, branch, ordinal).
pub(crate) type RowPlace = (i64, i64, i64);

/// Packs the index snapshot of (branch, ordinal): per key, ascending, the distances of key, branch and ordinal.
pub(crate) fn pack_index_snapshot(branch: i64, ordinal: i64, places: &[RowPlace]) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.len() * 3);
    let mut last = 0;
    for &(key, of_branch, of_ordinal) in places {
        put_uint(&mut out, (key - last) as u64);
        put_uint(&mut out, (branch - of_branch) as u64);
        put_uint(&mut out, (ordinal - of_ordinal) as u64);
        last = key;
    }
    debug_assert_eq!(unpack_index_snapshot(branch, ordinal, &out).as_deref(), Some(places));
    out
}

/// Unpacks the index snapshot of (branch, ordinal).
pub(crate) fn unpack_index_snapshot(branch: i64, ordinal: i64, bytes: &[u8]) -> Option<Vec<RowPlace>> {
    let mut rest = Unpack(bytes);
    let mut places = Vec::new();
    let mut key = 0_i64;
    while !rest.is_empty() {
        key = key.checked_add(rest.id()?)?;
        places.push((key, branch.checked_sub(rest.id()?)?, ordinal.checked_sub(rest.id()?)?));
    }
    Some(places)
}

/// A range delete, and the task that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletedRange {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) task: Option<u32>,
}

/// Packs the ranges of one change, in their order.
pub(crate) fn pack_ranges(ranges: &[DeletedRange]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ranges.len() * 8);
    for range in ranges {
        put_uint(&mut out, range.first);
        put_uint(&mut out, range.end - range.first);
        put_uint(&mut out, range.task.map_or(0, |task| u64::from(task) + 1));
    }
    debug_assert_eq!(unpack_ranges(&out).as_deref(), Some(ranges));
    out
}

/// Unpacks the ranges of one change.
pub(crate) fn unpack_ranges(bytes: &[u8]) -> Option<Vec<DeletedRange>> {
    let mut rest = Unpack(bytes);
    let mut ranges = Vec::new();
    while !rest.is_empty() {
        let first = rest.uint()?;
        let end = first.checked_add(rest.uint()?)?;
        let task = match rest.uint()? {
            0 => None,
            n => Some(u32::try_from(n - 1).ok()?),
        };
        ranges.push(DeletedRange { first, end, task });
    }
    Some(ranges)
}

/// Packs a copy-on-write reference: the checkpoint and the channel of the referenced list.
pub(crate) fn pack_reference(seq: i64, channel: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    put_uint(&mut out, seq as u64);
    put_uint(&mut out, channel as u64);
    debug_assert_eq!(unpack_reference(&out), Some((seq, channel)));
    out
}

/// Unpacks a copy-on-write reference.
pub(crate) fn unpack_reference(bytes: &[u8]) -> Option<(i64, i64)> {
    let mut rest = Unpack(bytes);
    let reference = (rest.id()?, rest.id()?);
    rest.is_empty().then_some(reference)
}

/// The content of a `value` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueColumn {
    /// Nothing.
    Null,
    /// A row of `payload`.
    Payload(i64),
    /// The value itself.
    Inline(Inline),
}

/// A small MessagePack value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inline {
    len: u8,
    bytes: [u8; INLINE_BYTES_MAX],
}

impl Inline {
    /// Packs a payload that is small enough and plain.
    pub(crate) fn pack(payload: &Payload) -> Option<Self> {
        let fits = payload.codec == crate::base::Codec::MsgPack
            && payload.index.is_none()
            && payload.data.len() <= INLINE_BYTES_MAX;
        Self::from_column(&payload.data).filter(|_| fits)
    }

    /// Returns the value of a column.
    pub(crate) fn from_column(column: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes.get_mut(..column.len())?.copy_from_slice(column);
        Some(Self { len: column.len() as u8, bytes })
    }

    /// Returns the bytes of the column.
    pub(crate) fn column(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl ValueColumn {
    /// Reads a column.
    pub(crate) fn from_column(column: ValueRef<'_>) -> Option<Self> {
        match column {
            ValueRef::Null => Some(Self::Null),
            ValueRef::Integer(id) => Some(Self::Payload(id)),
            ValueRef::Blob(bytes) => Inline::from_column(bytes).map(Self::Inline),
            _ => None,
        }
    }
}

impl ValueColumn {
    /// Returns the content of the column.
    pub(crate) fn column(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Payload(id) => ValueRef::Integer(*id),
            Self::Inline(inline) => ValueRef::Blob(inline.column()),
        }
    }
}

impl ToSql for ValueColumn {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.column()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_overlong_ones_are_refused() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_uint(&mut out, n);
            let mut rest = Unpack(&out);
            assert_eq!((rest.uint(), rest.is_empty()), (Some(n), true));
        }
        assert_eq!(Unpack(&[0xff; 10]).uint(), None, "above 2^64");
        assert_eq!(Unpack(&[0x80]).uint(), None, "cut short");
    }

    #[test]
    fn tasks_are_byte_exact() {
        let tasks = vec![
            PackedTask { id: TaskId::from_bytes([1; 16]), node: 5, kind: PackedKind::Pull(vec![2, 300]) },
            PackedTask { id: TaskId::from_bytes([2; 16]), node: 6, kind: PackedKind::Push(7) },
        ];
        let bytes = pack_tasks(&tasks);
        assert_eq!(bytes[0], 2);
        assert_eq!(bytes[33..], [5, 4, 2, 0xac, 2, 6, 15]);
        assert_eq!(unpack_tasks(&bytes).as_deref(), Some(tasks.as_slice()));
        for n in 0..bytes.len() {
            assert_eq!(unpack_tasks(&bytes[..n]), None, "cut at {n}");
        }
    }

    #[test]
    fn parents_are_byte_exact() {
        let ids = [CheckpointId::from_bytes([1; 16]), CheckpointId::from_bytes([2; 16])];
        let parents = [(Namespace::root(), ids[0]), (Namespace::new("a:1").unwrap(), ids[1])];
        let bytes = pack_parents(&parents).unwrap();
        assert_eq!((bytes[16], &bytes[33..]), (0, b"\x03a:1".as_slice()));
        assert_eq!(unpack_parents(Some(&bytes)).as_deref(), Some(parents.as_slice()));
        assert_eq!(pack_parents(&[]), None);
        assert_eq!(unpack_parents(None).as_deref(), Some([].as_slice()));
        for n in (1..bytes.len()).filter(|n| *n != 17) {
            assert_eq!(unpack_parents(Some(&bytes[..n])), None, "cut at {n}");
        }
    }

    #[test]
    fn index_snapshots_ranges_and_seen_round_trip() {
        let places = vec![(1, 3, 120), (2, 7, 127), (9, 1, 0)];
        assert_eq!(unpack_index_snapshot(7, 128, &pack_index_snapshot(7, 128, &places)), Some(places));
        let ranges = vec![
            DeletedRange { first: 3, end: 9, task: Some(0) },
            DeletedRange { first: 0, end: u64::MAX, task: None },
        ];
        assert_eq!(unpack_ranges(&pack_ranges(&ranges)), Some(ranges));
        assert_eq!(unpack_reference(&pack_reference(300, 2)), Some((300, 2)));
        assert_eq!((unpack_reference(&[1]), unpack_reference(&[1, 2, 3])), (None, None));
        assert_eq!(unpack_seen(&pack_seen([(4, 9), (5, 1_000)])), Some(vec![(4, 9), (5, 1_000)]));
    }

    #[test]
    fn a_small_value_is_stored_inline() {
        let inline = Inline::pack(&Payload::new(vec![0xc0])).unwrap();
        assert_eq!(inline.column(), [0xc0]);
        assert_eq!(Inline::from_column(inline.column()), Some(inline));
        assert!(Inline::pack(&Payload::new(vec![0; INLINE_BYTES_MAX + 1])).is_none());
        assert!(Inline::from_column(&[0; INLINE_BYTES_MAX + 1]).is_none());
    }
}
