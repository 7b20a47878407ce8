//! The index of the checkpoints of a thread that do not stand in the log under their ids.
//!
//! The log orders the checkpoints of a namespace by their ids and stores each once. A checkpoint that does not fit (an
//! id below the newest, one that is put again or is not a UUID, a parent that is not below its child) is the head of a
//! namespace of its own. The namespace [`ASIDE`](crate::place::ASIDE) lists them, in the same commit, together with
//! the checkpoints that are deleted and not pruned.

use std::collections::BTreeMap;

use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, Payload};
use annals::store::log::{Log, LogExt};
use annals::store::{CheckpointRef, ItemRange, Source, Store, StoreError};
use annals_base::{CheckpointId, Codec, Encoded, Namespace, ThreadId, Value, decode_value};

use crate::Result;
use crate::place::ASIDE;

/// The list channel of the index.
const ENTRIES: &str = "entries";

/// The place of a checkpoint that is not in the log under its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// The log has it under its id: an earlier entry does not count any more.
    Nowhere,
    /// It is the head of a namespace of its own.
    Stored,
    /// It is deleted.
    Deleted,
    /// It is deleted, and was the parent of one that is kept.
    Pruned,
    /// It was not put yet; writes of its tasks wait in a namespace of its own.
    Awaited,
}

const KINDS: [Aside; 5] = [Aside::Nowhere, Aside::Stored, Aside::Deleted, Aside::Pruned, Aside::Awaited];

/// The index of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsideIndex {
    head: Option<CheckpointId>,
    version: u64,
    next_position: u64,
    /// By namespace and id: the position in the list, and where the checkpoint is.
    entries: BTreeMap<(String, String), (u64, Aside)>,
}

impl AsideIndex {
    /// Reads the index of a thread at the head of its namespace.
    pub(crate) fn read(backend: &dyn Log, thread: &ThreadId, head: CheckpointId) -> Result<Self> {
        let mut index = Self { head: Some(head), ..Self::default() };
        let at = CheckpointRef::new(thread.clone(), Namespace::new(ASIDE)?, head);
        let state = backend.state(&at)?;
        index.version = state.channels.iter().find(|c| *c.channel == *ENTRIES).map_or(0, |channel| channel.version);
        backend.items(&at, ENTRIES, ItemRange::All, &mut |row| {
            let misfit = || StoreError::Corrupt { place: at.to_string(), reason: "an entry is not valid".into() };
            let value = decode_value(Codec::MsgPack, row.payload.data)?;
            let Some([Value::Str(namespace), Value::Str(id), Value::Int(kind)]) = value.as_list() else {
                return Err(misfit());
            };
            let kind = usize::try_from(*kind).ok().and_then(|kind| KINDS.get(kind)).ok_or_else(misfit)?;
            index.entries.insert((namespace.clone(), id.clone()), (row.position, *kind));
            index.next_position = row.position + 1;
            Ok(())
        })?;
        Ok(index)
    }

    /// Returns whether the index is that of a head of its namespace.
    pub(crate) fn is_at(&self, head: Option<CheckpointId>) -> bool {
        self.head == head
    }

    /// Returns whether the thread has no such checkpoints.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns where a checkpoint is.
    pub(crate) fn find(&self, namespace: &str, id: &str) -> Aside {
        let key = (namespace.to_owned(), id.to_owned());
        self.entries.get(&key).map_or(Aside::Nowhere, |(_, aside)| *aside)
    }

    /// Returns the checkpoints that are stored aside, by namespace and id.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (&str, &str)> {
        let stored = self.entries.iter().filter(|(_, (_, aside))| *aside == Aside::Stored);
        stored.map(|((namespace, id), _)| (&**namespace, &**id))
    }

    /// Returns the batch that changes entries.
    pub(crate) fn change(
        &self,
        store: &Store,
        thread: &ThreadId,
        entries: impl IntoIterator<Item = (String, String, Aside)>,
    ) -> Result<Batch> {
        let id = store.mint_checkpoint(0, self.head.as_ref());
        let parent = self.head.map(Parent::Local);
        let mut checkpoint = NewCheckpoint::new(id, parent, 0, Source::Update, store.now());
        let mut next = self.next_position;
        let mut items = BTreeMap::new();
        for (namespace, id, aside) in entries {
            let kind = KINDS.iter().position(|kind| *kind == aside).unwrap_or_default() as i64;
            let value = Value::List(vec![namespace.as_str().into(), id.as_str().into(), Value::Int(kind)]);
            let payload = Payload::from(Encoded::encode(&value).map_err(StoreError::from)?);
            let position = self.entries.get(&(namespace, id)).map(|(position, _)| *position);
            let position = position.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            items.insert(position, ItemChange::new(position, ItemOp::Put(Data::New(payload)), None));
        }
        let items = ChangeValue::Items(items.into_values().collect());
        checkpoint.changes.push(Change::new(ENTRIES, self.version + 1, items));
        let mut batch = Batch::new(thread.clone(), Namespace::new(ASIDE)?, self.head);
        batch.checkpoints.push(checkpoint);
        Ok(batch)
    }
}
