//! Copy-on-write references of lists, and writes that hold the difference from a stored list.

use super::items::ChannelRows;
use crate::base::decode_bytes;
use crate::base::{CheckpointId, Encoded, Namespace, ThreadId, Value};
use crate::store::batch::{ListDelta, ListRef, Payload};
use crate::store::record::CheckpointRef;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::rows::checkpoint::checkpoint_row;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;

impl<'a> ReadView<'a> {
    /// Returns the list that the list of a channel references.
    pub(crate) fn list_reference(self, at: &CheckpointRef, channel: &str) -> Res<Option<ListRef>> {
        let (seq, ..) = self.place(at)?;
        let reference = self.list_of(seq, channel)?.map(|list| list.reference()).transpose()?.flatten();
        reference.map(|reference| self.list_ref(reference.seq, reference.channel).map(|(_, of)| of)).transpose()
    }

    /// Returns the list of a channel at a checkpoint; `None` if it is not a list there.
    pub(crate) fn list_of(self, seq: i64, channel: &str) -> Res<Option<ChannelRows<'a>>> {
        let Some((branch, ordinal)) = checkpoint_row(self.conn, sql::RECORD_BY_SEQ, [seq], |row| Ok(row.at()))? else {
            return Err(corrupt(format!("checkpoint {seq}"), "a list references it, but it does not exist"));
        };
        ChannelRows::read(self, branch, ordinal, channel)
    }

    /// Returns the list of a channel, given by the name of its items, at a checkpoint; `None` if it is not a list
    /// there.
    pub(crate) fn list_at(self, seq: i64, channel: i64) -> Res<Option<ChannelRows<'a>>> {
        let channel = self.names.text(self.conn, Kind::List, channel)?;
        self.list_of(seq, &channel)
    }

    /// Returns the thread of a list and its name.
    pub(crate) fn list_ref(self, seq: i64, channel: i64) -> Res<(ThreadId, ListRef)> {
        let missing = |reason: String| corrupt(format!("checkpoint {seq}"), reason);
        let found = checkpoint_row(self.conn, sql::RECORD_BY_SEQ, [seq], |row| {
            let thread = ThreadId::new(row.thread).map_err(|error| missing(error.to_string()))?;
            let namespace = Namespace::new(row.path).map_err(|error| missing(error.to_string()))?;
            let channel = self.names.text(self.conn, Kind::List, channel)?;
            Ok((thread, ListRef::new(namespace, CheckpointId::from_bytes(row.id), channel)))
        })?;
        found.ok_or_else(|| missing("a list references it, but it does not exist".into()))
    }
}

/// Returns the header of a delta: the base list, the removed ranges, and the positions of the items.
pub(crate) fn header(delta: &ListDelta) -> Payload {
    let number = |n: u64| Value::from(n);
    let removed = delta.removed.iter().flat_map(|range| [number(range.start), number(range.end)]);
    let header = Value::List(vec![
        Value::from(delta.of.namespace.as_str()),
        Value::Bytes(delta.of.checkpoint.as_bytes().to_vec()),
        Value::from(&*delta.of.channel),
        Value::List(removed.collect()),
        Value::List(delta.positions.iter().copied().map(number).collect()),
    ]);
    // Numbers and names always encode.
    let payload = Encoded::encode(&header).map(Payload::from).unwrap_or_default();
    debug_assert!(from_header(&payload).is_some_and(|back| back.of == delta.of && back.positions == delta.positions));
    payload
}

/// Decodes the header of a delta.
pub(crate) fn from_header(payload: &Payload) -> Option<ListDelta> {
    let header: Vec<Value> = decode_bytes(payload.codec, &payload.data).ok()?;
    let [namespace, Value::Bytes(id), channel, removed, positions] = header.as_slice() else { return None };
    let numbers = |list: &Value| {
        let number = |n: &Value| n.as_int().and_then(|n| u64::try_from(n).ok());
        list.as_list()?.iter().map(number).collect::<Option<Vec<u64>>>()
    };
    let removed = numbers(removed)?;
    let checkpoint = CheckpointId::from_bytes(id.as_slice().try_into().ok()?);
    let mut delta =
        ListDelta::new(ListRef::new(Namespace::new(namespace.as_str()?).ok()?, checkpoint, channel.as_str()?));
    delta.removed = removed.chunks(2).map(|pair| Some(*pair.first()?..*pair.get(1)?)).collect::<Option<_>>()?;
    delta.positions = numbers(positions)?;
    Some(delta)
}
