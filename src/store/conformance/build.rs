//! Builders and readers with short names for the cases.
//!
//! A reader panics if a backend refuses it, so a case states what it finds. A refusal is shown as a short text.

pub(super) use crate::base::limits::*;
pub(super) use crate::base::{
    CheckpointId, Codec, Encoded, IdSource, Map, Namespace, RunId, TaskId, ThreadId, Timestamp, Value,
};
pub(super) use crate::limits::*;
pub(super) use crate::store::{
    ItemRange, Pruned, SearchOptions, SearchQuery, StatusKind, StoreError, ThreadCounts, ThreadInfo, ThreadQuery,
    WriteMark, backend::derived, batch::*, check::Invariant, counts::pruned_metadata, lease::*, log::*, operation::*,
    record::*, search::SearchHit, search::SearchPage, side_tables::*,
};
pub(super) use parking_lot::Mutex;
pub(super) use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
pub(super) use std::ops::{Range, RangeInclusive};
pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::time::Duration;

use std::fmt::Debug;
use std::sync::LazyLock;

/// The numbers of the first checkpoint ids.
static NUMBERS: LazyLock<HashMap<CheckpointId, u64>> = LazyLock::new(|| (0..2_000).map(|n| (id(n), n)).collect());

/// Returns checkpoint id number `n`: a greater number gives a greater id.
pub(super) fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(moment(n), 0, None)
}

/// Returns the number of a checkpoint id.
pub(super) fn number(id: CheckpointId) -> u64 {
    NUMBERS.get(&id).copied().unwrap_or(u64::MAX)
}

pub(super) fn numbers<'r>(records: impl IntoIterator<Item = &'r CheckpointRecord>) -> Vec<u64> {
    records.into_iter().map(|record| number(record.point.checkpoint)).collect()
}

/// Returns timestamp number `n`, a millisecond after the one before.
pub(super) fn moment(n: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + n.cast_signed() * 1_000)
}

/// Returns task id number `n`: a greater number gives a greater id.
pub(super) fn task(n: u8) -> TaskId {
    TaskId::from_bytes([n; 16])
}

/// Returns a payload with these bytes and no index.
pub(super) fn bytes(data: impl AsRef<[u8]>) -> Payload {
    Payload::new(data.as_ref().to_vec())
}

/// Returns the bytes of a payload as text.
pub(super) fn text_of(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Returns a payload with every field of the index set.
pub(super) fn message(id: &str, text: &str) -> Payload {
    let mut index = ItemIndex::default();
    (index.id, index.kind, index.name) = (Some(id.into()), Some("ai".into()), Some("Zoë".into()));
    (index.tool_calls, index.text) = (Some(r#"["call-1","call-2"]"#.into()), Some(text.into()));
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

/// Returns the writes of task number `of` of checkpoint `n`.
pub(super) fn writes(n: u64, of: u8, writes: Vec<NewWrite>) -> NewWrites {
    NewWrites::new(id(n), task(of), "p").with(writes)
}

/// A checkpoint in the making.
pub(super) struct CheckpointDraft(pub(super) NewCheckpoint);

/// Starts checkpoint number `n`, from the empty state.
pub(super) fn begin(n: u64) -> CheckpointDraft {
    CheckpointDraft(NewCheckpoint::new(id(n), None, n.cast_signed() - 2, Source::Loop, moment(n)))
}

/// Starts checkpoint number `n` on number `parent`.
pub(super) fn on(n: u64, parent: u64) -> CheckpointDraft {
    let mut draft = begin(n);
    draft.0.parent = Some(Parent::Local(id(parent)));
    draft
}

/// Starts checkpoint number `n` on the one before it; the first one from the empty state.
pub(super) fn next(n: u64) -> CheckpointDraft {
    if n == 1 { begin(1) } else { on(n, n - 1) }
}

/// Starts checkpoint number `n` on a checkpoint of another thread.
pub(super) fn fork_of(n: u64, of: CheckpointRef) -> CheckpointDraft {
    let mut draft = begin(n);
    (draft.0.parent, draft.0.source) = (Some(Parent::Fork(of)), Source::Fork);
    draft
}

impl CheckpointDraft {
    pub(super) fn change(mut self, channel: &str, version: u64, value: ChangeValue) -> Self {
        self.0.changes.push(Change::new(channel, version, value));
        self
    }

    pub(super) fn value(self, channel: &str, version: u64, data: impl AsRef<[u8]>) -> Self {
        self.payload(channel, version, bytes(data))
    }

    pub(super) fn payload(self, channel: &str, version: u64, payload: Payload) -> Self {
        self.change(channel, version, ChangeValue::Value(Data::New(payload)))
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
        let kind = |node: &&str| TaskKind::Pull { triggers: vec![format!("trigger:of:{node}").into(), "input".into()] };
        let tasks = (1..).zip(nodes).map(|(n, node)| TaskRecord::new(task(n), *node, kind(node)));
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

    pub(super) fn metadata(mut self, text: impl Into<String>) -> Self {
        self.0.metadata = Some(text.into());
        self
    }

    /// Sets every field of the record that has a default.
    pub(super) fn in_full(mut self) -> Self {
        (self.0.source, self.0.run) = (Source::Update, Some(RunId::from_bytes([9; 16])));
        self.0.metadata = Some(r#"{"why":"because, «ü»"}"#.into());
        self.0.app_version = Some("1.2.0-ü".into());
        self.0.parents = [(Namespace::root(), id(7)), (Namespace::new("outer:1").expect("is a path"), id(8))].into();
        let pulled = TaskRecord::new(task(1), "pulled", TaskKind::Pull { triggers: Vec::new() });
        self.0.tasks = vec![pulled, TaskRecord::new(task(2), "pushed", TaskKind::Push { index: 7 })];
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

/// Returns the root namespaces of some threads.
pub(super) fn roots<'b, const N: usize>(backend: &'b dyn Log, threads: [&str; N]) -> [CasePlace<'b>; N] {
    threads.map(|thread| root_of(backend, thread))
}

impl CasePlace<'_> {
    /// Returns another namespace of the same thread.
    pub(super) fn inside(&self, namespace: &str) -> Self {
        Self { namespace: Namespace::new(namespace).expect("a namespace"), ..self.clone() }
    }

    pub(super) fn point(&self, n: u64) -> CheckpointRef {
        CheckpointRef::new(self.thread.clone(), self.namespace.clone(), id(n))
    }

    /// Returns the list of a channel at checkpoint `n`.
    pub(super) fn list_ref(&self, n: u64, channel: &str) -> ListRef {
        ListRef::new(self.namespace.clone(), id(n), channel)
    }

    /// Begins a list as the channel `list` at checkpoint `n`.
    pub(super) fn reference(&self, n: u64) -> ItemChange {
        ItemChange::new(0, ItemOp::Reference(self.list_ref(n, "list")), None)
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

    /// Commits one checkpoint on the present head, which must succeed.
    pub(super) fn add(&self, draft: CheckpointDraft) {
        self.add_all([draft]);
    }

    /// Commits checkpoints in one batch on the present head, which must succeed.
    pub(super) fn add_all(&self, drafts: impl IntoIterator<Item = CheckpointDraft>) {
        let mut batch = self.batch(None, drafts);
        batch.expect[0].head = self.backend.head_id(&self.thread, &self.namespace).expect("reads the id of the head");
        commit(self.backend, &batch);
    }

    /// Commits checkpoints without changes, each on the one before it, in one batch.
    pub(super) fn add_chain(&self, numbers: RangeInclusive<u64>) {
        self.add_all(numbers.map(next));
    }

    /// Commits writes of task number `of` of the head, which is checkpoint `n`.
    pub(super) fn write(&self, n: u64, of: u8, new: Vec<NewWrite>) {
        commit(self.backend, &self.pending(n, writes(n, of, new)));
    }

    /// Lets a task of checkpoint `n` wait, with a timer.
    pub(super) fn wait(&self, n: u64, mark: WriteMark, wake_at: u64) {
        let write = write(-3, "special", "a value").with_mark(Some(mark));
        let timers = vec![NewTimer::new(id(n), task(1), Some(moment(wake_at)))];
        commit(self.backend, &Batch { timers, ..self.pending(n, writes(n, 1, vec![write])) });
    }

    /// Returns the number of the head, which all reads of heads agree on.
    pub(super) fn head(&self) -> Option<u64> {
        let (backend, thread, namespace) = (self.backend, &self.thread, &self.namespace);
        let head = backend.head(thread, namespace).expect("reads the head").map(|record| record.point.checkpoint);
        assert_eq!(head, backend.head_id(thread, namespace).expect("reads the id of the head"));
        let with_writes = backend.head_with_writes(thread, namespace).expect("reads the head with its writes");
        let head = head.map(number);
        let writes = head.map(|head| (head, self.writes(head)));
        let lease = backend.lease(thread).expect("a lease is read").filter(|_| namespace.is_root() && head.is_some());
        let shown = with_writes.map(|head| (number(head.checkpoint), head.writes, head.lease));
        assert_eq!(shown, writes.map(|(head, writes)| (head, writes, lease)));
        head
    }

    pub(super) fn found(&self, n: u64) -> Option<CheckpointRecord> {
        self.backend.checkpoint(&self.point(n)).expect("reads a checkpoint")
    }

    pub(super) fn record(&self, n: u64) -> CheckpointRecord {
        self.found(n).unwrap_or_else(|| panic!("checkpoint {n} is not stored"))
    }

    pub(super) fn query(&self) -> CheckpointQuery {
        CheckpointQuery::new(self.thread.clone(), self.namespace.clone())
    }

    /// Returns the numbers of the checkpoints, the newest first.
    pub(super) fn stored(&self) -> Vec<u64> {
        page(self.backend, &self.query())
    }

    pub(super) fn state(&self, n: u64) -> StateRecord {
        self.backend.state(&self.point(n)).expect("reads a state")
    }

    pub(super) fn channel(&self, n: u64, channel: &str) -> Option<ChannelRecord> {
        self.state(n).channels.into_iter().find(|record| &*record.channel == channel)
    }

    /// Reads items as (position, ordinal, task, payload).
    pub(super) fn items(&self, n: u64, channel: &str, range: ItemRange) -> Vec<(u64, u64, Option<u32>, Payload)> {
        let of_row = |row: ItemRow<'_>| (row.position, row.ordinal, row.task, row.payload.to_payload());
        let at = self.point(n);
        seen(|found| self.backend.items(&at, channel, range, &mut |row| see(found, of_row(row)).map(drop)))
    }

    /// Returns items of the channel `list` at checkpoint `n`: `position=text`, in order.
    pub(super) fn range(&self, n: u64, range: ItemRange) -> String {
        let items = self.items(n, "list", range).into_iter();
        items.map(|(position, .., item)| format!("{position}={}", text_of(&item.data))).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn list(&self, n: u64) -> String {
        self.range(n, ItemRange::All)
    }

    pub(super) fn writes(&self, n: u64) -> Vec<WriteRecord> {
        self.backend.writes(&self.point(n)).expect("reads writes")
    }

    pub(super) fn namespaces(&self) -> Vec<String> {
        let found = self.backend.namespaces(&self.thread).expect("lists namespaces");
        found.iter().map(ToString::to_string).collect()
    }

    /// Deletes the thread.
    pub(super) fn delete(&self) {
        delete(self.backend, &[self]);
    }

    /// Prunes the checkpoints from one number to another, which lie beside one another on one branch.
    pub(super) fn prune(&self, first: u64, last: u64) -> Pruned {
        self.prune_spans(&[self.span(first, last)])
    }

    pub(super) fn prune_spans(&self, spans: &[PruneSpan]) -> Pruned {
        self.backend.prune(&self.thread, spans).expect("checkpoints are pruned")
    }

    pub(super) fn span(&self, first: u64, last: u64) -> PruneSpan {
        let (first, last) = (self.record(first), self.record(last));
        assert_eq!(first.branch, last.branch, "a span lies on one branch");
        PruneSpan::new(first.branch, first.ordinal, last.ordinal)
    }
}

/// Deletes threads, and hides them at once.
pub(super) fn delete(backend: &dyn Log, places: &[&CasePlace<'_>]) {
    let threads: Vec<ThreadId> = places.iter().map(|place| place.thread.clone()).collect();
    _ = backend.delete_threads(&threads).expect("threads are deleted");
}

/// Erases what deletions left.
pub(super) fn reclaim(backend: &dyn Log) {
    let erasure = backend.capabilities().file.map_or(Ok(Erasure::Erased), FileStore::reclaim);
    assert_eq!(erasure.expect("deleted threads are reclaimed"), Erasure::Erased, "no reader is in the way");
}

/// Deletes threads, and erases them.
pub(super) fn erase(backend: &dyn Log, places: &[&CasePlace<'_>]) {
    delete(backend, places);
    reclaim(backend);
}

/// Returns what a read shows its visitor, which [`see`] adds.
pub(super) fn seen<T, R>(read: impl FnOnce(&mut Vec<T>) -> Result<R, StoreError>) -> Vec<T> {
    let mut found = Vec::new();
    read(&mut found).expect("the read is made");
    found
}

/// Adds what a visitor is shown, and goes on.
pub(super) fn see<T>(found: &mut Vec<T>, shown: T) -> Result<bool, StoreError> {
    found.push(shown);
    Ok(true)
}

/// Returns the numbers of the checkpoints of a page.
pub(super) fn page(backend: &dyn Log, query: &CheckpointQuery) -> Vec<u64> {
    numbers(&backend.checkpoints(query).expect("lists checkpoints"))
}

/// Returns the ids of the threads, in their order.
pub(super) fn threads(backend: &dyn Log) -> Vec<String> {
    let found = backend.threads(None, 1_000).expect("threads are listed");
    found.iter().map(|thread| thread.id.to_string()).collect()
}

/// Commits a batch, which must succeed.
pub(super) fn commit(backend: &dyn Log, batch: &Batch) {
    if let Err(error) = backend.commit(batch) {
        panic!("a good batch was refused: {error}");
    }
}

/// Shows why a call was refused, in short.
pub(super) fn refusal<T: Debug>(result: Result<T, StoreError>) -> String {
    let at = |head: Option<CheckpointId>| head.map_or("none".into(), |id| number(id).to_string());
    match result {
        Ok(accepted) => format!("accepted: {accepted:?}"),
        Err(StoreError::Invalid { field, .. }) => field.into(),
        Err(StoreError::Conflict { thread, namespace, expected, found }) => {
            format!("{thread}/{namespace} is at {}, not {}", at(found), at(expected))
        }
        Err(StoreError::FieldConflict { thread, .. }) => format!("a field of {thread}"),
        Err(StoreError::Duplicate { id }) => format!("duplicate {}", number(id)),
        Err(StoreError::StaleId { id, newest, .. }) => format!("{} is below {}", number(id), number(newest)),
        Err(StoreError::CheckpointNotFound { .. }) => "not found".into(),
        Err(StoreError::CheckpointPruned { id, .. }) => format!("{} is pruned", number(id)),
        Err(StoreError::ThreadNotFound { id }) => format!("no thread {id}"),
        Err(StoreError::ForkedOff { thread, forks, more }) => format!("{thread} {forks:?} {more}"),
        Err(StoreError::Leased { .. }) => "leased".into(),
        Err(StoreError::LeaseLost { .. }) => "lost".into(),
        Err(StoreError::LeaseLimit { until, .. }) => {
            format!("limit {:?}", until.map(|until| (until.as_micros() - moment(0).as_micros()) / 1_000))
        }
        Err(StoreError::ReadOnly) => "of the visitor".into(),
        Err(StoreError::Sql { constraint, .. }) => format!("sql {constraint:?}"),
        Err(other) => format!("{other:?}"),
    }
}

/// Commits batches that must be refused, each with the text of the refusal.
pub(super) fn refuses<'t>(backend: &dyn Log, batches: impl IntoIterator<Item = (Batch, &'t str)>) {
    let each = |(n, (batch, text))| assert_eq!(refusal(backend.commit(&batch)), text, "batch {n}");
    batches.into_iter().enumerate().for_each(each);
}

/// Makes operations that must be refused, each with the text of the refusal.
pub(super) fn refuses_operations<'t>(backend: &dyn Log, all: impl IntoIterator<Item = (NewOperation, &'t str)>) {
    let each = |(n, (operation, text))| assert_eq!(refusal(backend.operate(&operation)), text, "operation {n}");
    all.into_iter().enumerate().for_each(each);
}

pub(super) fn moves(place: &CasePlace<'_>, before: Option<u64>, after: Option<u64>) -> OperationChange {
    OperationChange::head(place.thread.clone(), place.namespace.clone(), before.map(id), after.map(id))
}

pub(super) fn names(place: &CasePlace<'_>, name: &str, before: Option<u64>, after: Option<u64>) -> OperationChange {
    let [before, after] = [before, after].map(|n| n.map(|n| OperationValue::Checkpoint(id(n))));
    let (thread, field) = (place.thread.clone(), OperationField::Branch(name.into()));
    OperationChange::new(thread, place.namespace.clone(), field, before, after)
}

pub(super) fn fact(place: &CasePlace<'_>, name: &str, before: Option<&str>, after: Option<&str>) -> OperationChange {
    let [before, after] = [before, after].map(|text| text.map(|text| OperationValue::Text(text.into())));
    let (thread, field) = (place.thread.clone(), OperationField::Fact(name.into()));
    OperationChange::new(thread, place.namespace.clone(), field, before, after)
}

pub(super) fn operation(n: u64, changes: Vec<OperationChange>) -> NewOperation {
    let mut operation = NewOperation::new(OperationKind::Rewind, moment(n));
    operation.changes = changes;
    operation
}

pub(super) fn operate(backend: &dyn Log, n: u64, changes: Vec<OperationChange>) -> u64 {
    backend.operate(&operation(n, changes)).unwrap_or_else(|error| panic!("a good operation was refused: {error}"))
}

pub(super) struct Dice(pub(super) IdSource);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.random() % bound
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { of.get(self.below(of.len() as u64) as usize).cloned() }
    }
}

pub(super) fn owner(n: u8) -> LeaseOwner {
    LeaseOwner::new([n; 16])
}

/// Runs a part on each of several threads at once, and returns what each returned.
pub(super) fn at_once<T: Send>(threads: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(threads as usize);
    let part = &|n| {
        start.wait();
        run(n)
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|n| scope.spawn(move || part(n))).collect();
        parts.into_iter().map(|part| part.join().expect("the part of a thread ends")).collect()
    })
}

pub(super) fn followed(backend: &dyn Log) -> &dyn Follow {
    backend.follow().expect("the log can be followed")
}

pub(super) fn search_of(backend: &dyn Log) -> &dyn Searches {
    backend.searches().expect("texts can be searched")
}

/// Verifies that a check finds nothing wrong.
pub(super) fn clean(backend: &dyn Log) {
    let report = backend.check().expect("the check runs");
    assert!(report.problems.is_empty(), "the check found: {:?}", report.problems);
}
