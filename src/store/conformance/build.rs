//! Builders and readers with short names for the cases.

pub(super) use crate::base::{CheckpointId, Encoded, IdSource, Namespace, RunId, TaskId, ThreadId, Timestamp, Value};
pub(super) use crate::store::batch::{
    Batch, Change, ChangeValue, CommitChain, Data, Expect, ItemChange, ItemIndex, ItemOp, ListDelta, ListRef,
    NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent, Payload, Seen, WriteRef, WriteValue,
};
pub(super) use crate::store::error::StoreError;
pub(super) use crate::store::log::{Log, LogExt, LogPosition};
pub(super) use crate::store::operation::{
    ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationTarget,
    OperationValue,
};
pub(super) use crate::store::prune::{PruneSpan, Pruned};
pub(super) use crate::store::query::{CheckpointQuery, ItemRange};
pub(super) use crate::store::record::{
    ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, ListChangeOp, Source, StatePart, StateRecord,
    StoredListChange, TaskKind, TaskRecord, WriteRecord,
};
pub(super) use crate::store::search::{SearchHit, SearchOptions, SearchPage, SearchQuery};
pub(super) use std::sync::Arc;

/// Returns checkpoint id number `n`: a greater number gives a greater id.
pub(super) fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(moment(n), 0, None)
}

/// Returns timestamp number `n`, a millisecond after the one before.
pub(super) fn moment(n: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + i64::try_from(n).unwrap_or(0) * 1_000)
}

/// Returns task id number `n`: a greater number gives a greater id.
pub(super) fn task(n: u8) -> TaskId {
    TaskId::from_bytes([n; 16])
}

/// Returns a payload with these bytes and no index.
pub(super) fn bytes(data: impl AsRef<[u8]>) -> Payload {
    Payload::new(data.as_ref().to_vec())
}

/// Returns a payload with every field of the index set.
pub(super) fn message(id: &str, text: &str) -> Payload {
    let mut index = ItemIndex::default();
    (index.id, index.kind, index.name) = (Some(id.into()), Some("ai".into()), Some("Zoë".into()));
    index.tool_calls = Some(r#"["call-1","call-2"]"#.into());
    index.text = Some(text.into());
    (index.input_tokens, index.output_tokens) = (Some(0), Some(u32::MAX));
    bytes([0x80]).with_index(index)
}

/// Puts bytes at a position.
pub(super) fn put(position: u64, data: impl AsRef<[u8]>) -> ItemChange {
    put_payload(position, bytes(data))
}

/// Puts a payload at a position.
pub(super) fn put_payload(position: u64, payload: Payload) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(Data::New(payload)), None)
}

/// Puts the bytes of a write at a position.
pub(super) fn put_of(position: u64, task: TaskId, index: i32, part: u32) -> ItemChange {
    ItemChange::new(position, ItemOp::Put(Data::OfWrite(WriteRef { task, index, part })), None)
}

/// Frees a position.
pub(super) fn remove(position: u64) -> ItemChange {
    ItemChange::new(position, ItemOp::Delete, None)
}

/// Frees the positions from `position` up to `end`.
pub(super) fn delete_range(position: u64, end: u64) -> ItemChange {
    ItemChange::new(position, ItemOp::DeleteRange { end }, None)
}

/// Returns a write of one value.
pub(super) fn write(index: i32, channel: &str, data: impl AsRef<[u8]>) -> NewWrite {
    NewWrite::new(index, channel, WriteValue::One(bytes(data)))
}

/// Returns a write of a list.
pub(super) fn write_items(index: i32, channel: &str, items: &[&str]) -> NewWrite {
    NewWrite::new(index, channel, WriteValue::Items(items.iter().map(bytes).collect()))
}

/// Returns the writes of a task of checkpoint `n`.
pub(super) fn writes(n: u64, task: TaskId, path: &str, writes: Vec<NewWrite>) -> NewWrites {
    NewWrites::new(id(n), task, path).with(writes)
}

/// A checkpoint in the making.
pub(super) struct CheckpointDraft(pub(super) NewCheckpoint);

/// Starts checkpoint number `n`, from the empty state.
pub(super) fn begin(n: u64) -> CheckpointDraft {
    CheckpointDraft(NewCheckpoint::new(id(n), None, i64::try_from(n).unwrap_or(0) - 2, Source::Loop, moment(n)))
}

/// Starts checkpoint number `n` on number `parent`.
pub(super) fn on(n: u64, parent: u64) -> CheckpointDraft {
    begin(n).under(Some(Parent::Local(id(parent))))
}

/// Starts checkpoint number `n` on the one before it; the first one from the empty state.
pub(super) fn next(n: u64) -> CheckpointDraft {
    if n == 1 { begin(1) } else { on(n, n - 1) }
}

/// Starts checkpoint number `n` on a checkpoint of another thread.
pub(super) fn fork_of(n: u64, of: CheckpointRef) -> CheckpointDraft {
    let mut draft = begin(n).under(Some(Parent::Fork(of)));
    draft.0.source = Source::Fork;
    draft
}

impl CheckpointDraft {
    pub(super) fn under(mut self, parent: Option<Parent>) -> Self {
        self.0.parent = parent;
        self
    }

    pub(super) fn change(mut self, channel: &str, version: u64, value: ChangeValue) -> Self {
        self.0.changes.push(Change::new(channel, version, value));
        self
    }

    pub(super) fn value(self, channel: &str, version: u64, data: impl AsRef<[u8]>) -> Self {
        self.change(channel, version, ChangeValue::Value(Data::New(bytes(data))))
    }

    pub(super) fn items(self, channel: &str, version: u64, items: Vec<ItemChange>) -> Self {
        self.change(channel, version, ChangeValue::Items(items))
    }

    /// Sets the channel to the bytes of a write of the parent.
    pub(super) fn value_of(self, channel: &str, version: u64, task: TaskId, index: i32) -> Self {
        self.change(channel, version, ChangeValue::Value(Data::OfWrite(WriteRef::new(task, index))))
    }

    /// Names the task of the parent that made the last change, and the items in it.
    pub(super) fn by(mut self, task: u32) -> Self {
        if let Some(change) = self.0.changes.last_mut() {
            change.task = Some(task);
            if let ChangeValue::Items(items) = &mut change.value {
                items.iter_mut().for_each(|item| item.task = Some(task));
            }
        }
        self
    }

    /// Makes a pull task for each node; their ids are `task(1)`, `task(2)`, ...
    pub(super) fn tasks(mut self, nodes: &[&str]) -> Self {
        let tasks = (1..).zip(nodes).map(|(n, node)| TaskRecord {
            id: task(n),
            name: (*node).into(),
            kind: TaskKind::Pull { triggers: vec![format!("trigger:of:{node}").into(), "input".into()] },
        });
        self.0.tasks = tasks.collect();
        self
    }

    pub(super) fn consumed(mut self, writes: NewWrites) -> Self {
        self.0.consumed.push(writes);
        self
    }

    pub(super) fn seen(mut self, node: &str, versions: &[(&str, u64)]) -> Self {
        let versions = versions.iter().map(|(channel, version)| (Arc::from(*channel), *version)).collect();
        self.0.seen.push(Seen::new(node, versions));
        self
    }

    /// Sets every field of the record that has a default.
    pub(super) fn in_full(mut self) -> Self {
        self.0.source = Source::Update;
        self.0.run = Some(RunId::from_bytes([9; 16]));
        self.0.metadata = Some(r#"{"why":"because, «ü»"}"#.into());
        self.0.parents = [(Namespace::root(), id(7)), (Namespace::new("outer:1").expect("is a path"), id(8))].into();
        self.0.tasks = vec![
            TaskRecord::new(task(1), "pulled", TaskKind::Pull { triggers: Vec::new() }),
            TaskRecord::new(task(2), "pushed", TaskKind::Push { index: 7 }),
        ];
        self
    }
}

/// A namespace of a thread on a backend: where a case writes and reads.
#[derive(Clone)]
pub(super) struct CasePlace<'b> {
    pub(super) backend: &'b dyn Log,
    pub(super) thread: ThreadId,
    pub(super) namespace: Namespace,
}

/// Returns the root namespace of a thread.
pub(super) fn root_of<'b>(backend: &'b dyn Log, thread: &str) -> CasePlace<'b> {
    let thread = ThreadId::new(thread).expect("the name of a thread");
    CasePlace { backend, thread, namespace: Namespace::root() }
}

impl CasePlace<'_> {
    /// Returns another namespace of the same thread.
    pub(super) fn inside(&self, namespace: &str) -> Self {
        Self { namespace: Namespace::new(namespace).expect("a namespace"), ..self.clone() }
    }

    pub(super) fn point(&self, n: u64) -> CheckpointRef {
        self.point_of(id(n))
    }

    pub(super) fn point_of(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef { thread: self.thread.clone(), namespace: self.namespace.clone(), checkpoint }
    }

    /// Returns a batch that expects checkpoint number `head`.
    pub(super) fn batch(&self, head: Option<u64>, drafts: impl IntoIterator<Item = CheckpointDraft>) -> Batch {
        let mut batch = Batch::new(self.thread.clone(), self.namespace.clone(), head.map(id));
        batch.checkpoints = drafts.into_iter().map(|draft| draft.0).collect();
        batch
    }

    /// Returns a batch of pending writes only.
    pub(super) fn pending(&self, head: u64, writes: NewWrites) -> Batch {
        Batch { writes: vec![writes], ..self.batch(Some(head), []) }
    }

    /// Commits one checkpoint whose parent in this namespace is the head, which must succeed.
    pub(super) fn add(&self, draft: CheckpointDraft) {
        let local = if let Some(Parent::Local(parent)) = &draft.0.parent { Some(*parent) } else { None };
        let mut batch = self.batch(None, [draft]);
        batch.expect[0].head = local;
        commit(self.backend, &batch);
    }

    /// Commits one checkpoint on a head, which must succeed.
    pub(super) fn add_at(&self, head: Option<u64>, draft: CheckpointDraft) {
        commit(self.backend, &self.batch(head, [draft]));
    }

    pub(super) fn head(&self) -> Option<CheckpointId> {
        let head = self.backend.head(&self.thread, &self.namespace).expect("reads the head");
        let head_id = self.backend.head_id(&self.thread, &self.namespace).expect("reads the id of the head");
        let id = head.map(|record| record.point.checkpoint);
        assert_eq!(id, head_id, "head and head_id differ");
        let with_writes =
            self.backend.head_with_writes(&self.thread, &self.namespace).expect("reads the head with its writes");
        let at = |checkpoint| CheckpointRef::new(self.thread.clone(), self.namespace.clone(), checkpoint);
        let writes = id.map(|id| (id, self.backend.writes(&at(id)).expect("reads the writes of the head")));
        let with_writes = with_writes.map(|head| (head.checkpoint, head.writes));
        assert_eq!(with_writes, writes, "the head is read with its writes");
        id
    }

    /// Returns whether a checkpoint of the namespace continues its head.
    pub(super) fn is_continued(&self) -> bool {
        let head =
            self.backend.head_with_writes(&self.thread, &self.namespace).expect("reads the head with its writes");
        head.is_some_and(|head| head.is_continued)
    }

    pub(super) fn record(&self, n: u64) -> CheckpointRecord {
        let record = self.backend.checkpoint(&self.point(n)).expect("reads a checkpoint");
        record.unwrap_or_else(|| panic!("checkpoint {n} is not stored"))
    }

    /// Returns the content of a channel at checkpoint `n`, as text; `None` if it was never written.
    pub(super) fn text(&self, n: u64, channel: &str) -> Option<String> {
        self.channel(n, channel).map(|record| match record.value {
            ChannelValue::Empty => "(empty)".into(),
            ChannelValue::Value(payload) => String::from_utf8_lossy(&payload.data).into_owned(),
            ChannelValue::Items => "(items)".into(),
        })
    }

    pub(super) fn channel(&self, n: u64, channel: &str) -> Option<ChannelRecord> {
        let state = self.backend.state(&self.point(n)).expect("reads a state");
        state.channels.into_iter().find(|record| &*record.channel == channel)
    }

    /// Returns the items of the channel `list` at checkpoint `n`: `position=text`, in order.
    pub(super) fn list(&self, n: u64, range: ItemRange) -> String {
        let items = items(self.backend, &self.point(n), "list", range);
        let shown =
            items.iter().map(|(position, _, item)| format!("{position}={}", String::from_utf8_lossy(&item.data)));
        shown.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn writes(&self, n: u64) -> Vec<WriteRecord> {
        self.backend.writes(&self.point(n)).expect("reads writes")
    }
}

/// Reads items as (position, ordinal, payload).
pub(super) fn items(
    backend: &dyn Log,
    at: &CheckpointRef,
    channel: &str,
    range: ItemRange,
) -> Vec<(u64, u64, Payload)> {
    let mut found = Vec::new();
    let visited = backend.items(at, channel, range, &mut |row| {
        found.push((row.position, row.ordinal, row.payload.to_payload()));
        Ok(())
    });
    visited.expect("reads items");
    found
}

/// Commits a batch, which must succeed.
pub(super) fn commit(backend: &dyn Log, batch: &Batch) {
    if let Err(error) = backend.commit(batch) {
        panic!("a good batch was refused: {error}");
    }
}

/// Commits a batch, which must be refused because `namespace` moved from `expected` to `found`.
pub(super) fn conflicts(backend: &dyn Log, batch: &Batch, found: Option<u64>, expect: &Expect) {
    match backend.commit(batch) {
        Err(StoreError::Conflict { thread, namespace, expected, found: head }) => {
            assert_eq!(
                (&thread, &namespace, expected, head),
                (&batch.thread, &expect.namespace, expect.head, found.map(id)),
                "the conflict does not say what moved"
            );
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// Commits a batch, which must be refused as invalid because of `field`.
pub(super) fn refused_for(backend: &dyn Log, batch: &Batch, wanted: &str) {
    match backend.commit(batch) {
        Err(StoreError::Invalid { field, .. }) => assert_eq!(field, wanted, "another field was blamed"),
        other => panic!("expected a refusal for {wanted}, got {other:?}"),
    }
}

/// Returns the ids of some records.
pub(super) fn ids(records: &[CheckpointRecord]) -> Vec<CheckpointId> {
    records.iter().map(|record| record.point.checkpoint).collect()
}

/// Returns the ids with these numbers.
pub(super) fn id_list(numbers: impl IntoIterator<Item = u64>) -> Vec<CheckpointId> {
    numbers.into_iter().map(id).collect()
}

/// Checks that `check` finds nothing wrong.
pub(super) fn clean(backend: &dyn Log) {
    let report = backend.check().expect("the check runs");
    assert!(report.problems.is_empty(), "the check found: {:?}", report.problems);
}
