//! The state that a commit compares with its batch: threads at a number of changes, with namespaces and checkpoints.
//!
//! Invariant: all parts of a known thread were read at one number of changes, or follow from a commit of this process
//! at the next number. A commit that names the number is refused by the server if anything has changed since.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use annals::base::{CheckpointId, Namespace, ThreadId};
use annals::store::StoreError;
use annals::store::backend::sort_changes;
use annals::store::batch::{Batch, ChangeValue, ItemOp, NewWrites, Parent, WriteValue};
use annals::store::lease::LeaseRecord;
use annals::store::operation::{NewOperation, OperationChange, OperationRecord, OperationValue};
use tokio_postgres::Row;

use super::sql as commit_sql;
use crate::client::{Answers, Connections, Param, PgConnection, PgQuery, Together};
use crate::error::{PgFault, read_error};
use crate::limits::{KNOWN_BYTES_MAX, KNOWN_THREADS_MAX, KNOWN_WRITES_BYTES_MAX};
use crate::pack::{Packer, Unpacker};
use crate::read::points::{KnownPoint, WantedPoint, known_points, known_queries};
use crate::read::threads::{StoredFields, fields};
use crate::rows::{Cells, PgPlace, sixteen};

/// A checkpoint of a thread.
pub(crate) type PointKey = (Namespace, CheckpointId);

/// A field of a thread, packed with its namespace.
pub(crate) type FieldKey = (ThreadId, Vec<u8>);

/// A namespace with its newest checkpoint and its head.
#[derive(Clone, Debug)]
pub(crate) struct KnownNamespace {
    pub(crate) number: i64,
    pub(crate) newest: CheckpointId,
    pub(crate) head: Option<(CheckpointId, PgPlace)>,
    /// The stored column of the head; `None` for a namespace that is not stored.
    pub(crate) stored: Option<HeadColumn>,
}

/// The column of a namespace that says where its head is: the newest checkpoint up to this id, or `None`.
pub(crate) type HeadColumn = Option<[u8; 16]>;

/// The greatest id. As the column of a head it stands for the newest checkpoint of the namespace.
const GREATEST_ID: [u8; 16] = [0xff; 16];

impl KnownNamespace {
    /// Returns the column for the head.
    pub(crate) fn head_column(&self) -> HeadColumn {
        self.head.map(|(id, _)| if id == self.newest { GREATEST_ID } else { *id.as_bytes() })
    }
}

/// A thread at a number of changes; 0 if it is not stored.
#[derive(Clone, Debug)]
pub(crate) struct KnownThread {
    pub(crate) id: ThreadId,
    pub(crate) number: i64,
    pub(crate) change: i64,
    pub(crate) created_at: i64,
    pub(crate) seq: i64,
    pub(crate) operation: i64,
    pub(crate) namespaces: i64,
    pub(crate) fields: StoredFields,
    pub(crate) lease: Option<LeaseRecord>,
    /// The position and the timestamp of the newest checkpoint of the root namespace.
    pub(crate) activity: Option<(i64, i64)>,
    /// The namespaces that were looked for; `None` for one that does not exist.
    pub(crate) spaces: HashMap<Namespace, Option<KnownNamespace>>,
    /// The checkpoints that were looked for.
    pub(crate) points: HashMap<PointKey, Option<Arc<KnownPoint>>>,
    /// True if it was read and not changed since.
    pub(crate) is_fresh: bool,
    /// The bytes of the stored writes of its checkpoints, as they were when it was inserted.
    bytes: usize,
    /// Its place in the order of the last uses.
    used: u64,
}

impl KnownThread {
    pub(crate) fn missing(id: ThreadId) -> Self {
        Self {
            id,
            number: 0,
            change: 0,
            created_at: 0,
            seq: 0,
            operation: 0,
            namespaces: 0,
            fields: StoredFields::new(),
            lease: None,
            activity: None,
            spaces: HashMap::new(),
            points: HashMap::new(),
            is_fresh: false,
            bytes: 0,
            used: 0,
        }
    }

    /// Drops what the next commit hardly compares: all checkpoints but heads, and large writes of these.
    pub(crate) fn shrink(&mut self) {
        let heads: BTreeSet<PointKey> = self
            .spaces
            .iter()
            .filter_map(|(namespace, of)| Some((namespace.clone(), of.as_ref()?.head.as_ref()?.0)))
            .collect();
        let is_small = |point: &KnownPoint| bytes_of(point) <= KNOWN_WRITES_BYTES_MAX;
        self.points.retain(|key, point| heads.contains(key) && point.as_deref().is_some_and(is_small));
        self.spaces.retain(|_, of| of.is_some());
    }
}

/// Returns the bytes of the stored writes of a checkpoint.
fn bytes_of(point: &KnownPoint) -> usize {
    let bytes = |value: &WriteValue| value.payloads().iter().map(|of| of.len()).sum::<usize>();
    point.writes.iter().map(|write| bytes(&write.value)).sum()
}

/// The threads, operations and checkpoints that plans of batches read.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) threads: BTreeMap<ThreadId, ThreadNeeds>,
    /// The fields whose newest operations are compared.
    pub(crate) fields: BTreeSet<FieldKey>,
}

#[derive(Debug, Default)]
pub(crate) struct ThreadNeeds {
    pub(crate) spaces: BTreeSet<Namespace>,
    pub(crate) points: BTreeSet<PointKey>,
}

impl Needs {
    pub(crate) fn thread(&mut self, thread: &ThreadId) -> &mut ThreadNeeds {
        let needs = self.threads.entry(thread.clone()).or_default();
        needs.spaces.insert(Namespace::root());
        needs
    }

    fn point(&mut self, thread: &ThreadId, namespace: &Namespace, id: CheckpointId) {
        let needs = self.thread(thread);
        needs.spaces.insert(namespace.clone());
        needs.points.insert((namespace.clone(), id));
    }

    /// Adds what the plan of a batch looks at.
    pub(crate) fn add_batch(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let own: BTreeSet<(&ThreadId, &Namespace, CheckpointId)> = batch
            .parts()
            .flat_map(|part| part.checkpoints.iter().map(move |new| (&part.thread, &part.namespace, new.id)))
            .collect();
        for part in batch.parts() {
            self.thread(&part.thread).spaces.insert(part.namespace.clone());
            for expect in &part.expect {
                self.thread(&part.thread).spaces.insert(expect.namespace.clone());
            }
            let mut points: Vec<(&ThreadId, &Namespace, CheckpointId)> = Vec::new();
            let lists = |new: &NewWrites| -> Vec<PointKey> {
                let deltas = new.writes.iter().filter_map(|write| match &write.value {
                    WriteValue::Delta(delta) => Some((delta.of.namespace.clone(), delta.of.checkpoint)),
                    _ => None,
                });
                deltas.collect()
            };
            let mut references: Vec<PointKey> = Vec::new();
            for new in &part.writes {
                points.push((&part.thread, &part.namespace, new.checkpoint));
                references.extend(lists(new));
            }
            for new in &part.checkpoints {
                match &new.parent {
                    Some(Parent::Local(id)) => points.push((&part.thread, &part.namespace, *id)),
                    Some(Parent::Fork(at)) => points.push((&at.thread, &at.namespace, at.checkpoint)),
                    None => {}
                }
                references.extend(new.consumed.iter().flat_map(lists));
                for change in &new.changes {
                    let ChangeValue::Items(items) = &change.value else { continue };
                    references.extend(items.iter().filter_map(|item| match &item.op {
                        ItemOp::Reference(of) => Some((of.namespace.clone(), of.checkpoint)),
                        _ => None,
                    }));
                }
            }
            points.extend(references.iter().map(|(namespace, id)| (&part.thread, namespace, *id)));
            let new = points.into_iter().filter(|point| !own.contains(point));
            let new: Vec<_> = new.map(|(thread, namespace, id)| (thread.clone(), namespace.clone(), id)).collect();
            new.iter().for_each(|(thread, namespace, id)| self.point(thread, namespace, *id));
        }
        batch.operation.as_ref().map_or(Ok(()), |operation| self.add_operation(operation, &own))
    }

    /// Adds what an operation compares.
    pub(crate) fn add_operation(
        &mut self,
        operation: &NewOperation,
        own: &BTreeSet<(&ThreadId, &Namespace, CheckpointId)>,
    ) -> Result<(), StoreError> {
        for OperationChange { thread, namespace, before, after, .. } in &operation.changes {
            self.thread(thread).spaces.insert(namespace.clone());
            for value in [before, after].into_iter().flatten() {
                if let OperationValue::Checkpoint(id) = value
                    && !own.contains(&(thread, namespace, *id))
                {
                    self.point(thread, namespace, *id);
                }
            }
        }
        if let Some(first) = operation.changes.first() {
            self.fields.insert((first.thread.clone(), field_key(first)?));
        }
        Ok(())
    }

    /// Returns whether a known thread has all that is needed.
    pub(crate) fn are_met(&self, known: &KnownThread) -> bool {
        let Some(needs) = self.threads.get(&known.id) else { return true };
        needs.spaces.iter().all(|space| known.spaces.contains_key(space))
            && needs.points.iter().all(|point| known.points.contains_key(point))
    }
}

/// Returns the packed field of a change.
pub(crate) fn field_key(change: &OperationChange) -> Result<Vec<u8>, StoreError> {
    let mut packer = Packer::default();
    packer.text(change.namespace.as_str());
    packer.field(&change.field)?;
    Ok(packer.0)
}

/// Known threads, of which those that were not used for long are forgotten.
#[derive(Debug, Default)]
pub(crate) struct KnownThreads {
    threads: HashMap<ThreadId, KnownThread>,
    /// The newest operation with a change of each field that was asked for.
    pub(crate) operations: HashMap<FieldKey, OperationRecord>,
    /// The threads by their last uses.
    uses: BTreeMap<u64, ThreadId>,
    bytes: usize,
}

impl KnownThreads {
    pub(crate) fn get(&self, id: &ThreadId) -> Option<&KnownThread> {
        self.threads.get(id)
    }

    /// Notes that a thread may have changed since it was read.
    pub(crate) fn age(&mut self, id: &ThreadId) {
        self.threads.get_mut(id).into_iter().for_each(|known| known.is_fresh = false);
    }

    /// Adds a thread, or replaces what was known of it.
    pub(crate) fn insert(&mut self, mut thread: KnownThread) {
        self.remove(&thread.id);
        thread.bytes = thread.points.values().flatten().map(|point| bytes_of(point)).sum();
        thread.used = self.uses.last_key_value().map_or(0, |(last, _)| last + 1);
        self.bytes += thread.bytes;
        self.uses.insert(thread.used, thread.id.clone());
        self.threads.insert(thread.id.clone(), thread);
    }

    fn remove(&mut self, id: &ThreadId) {
        if let Some(known) = self.threads.remove(id) {
            self.bytes -= known.bytes;
            self.uses.remove(&known.used);
        }
    }

    /// Forgets the threads that were used least recently.
    pub(crate) fn forget_old(&mut self) {
        while self.threads.len() > KNOWN_THREADS_MAX || self.bytes > KNOWN_BYTES_MAX {
            let Some((_, id)) = self.uses.pop_first() else { break };
            self.remove(&id);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The threads that a load has read.
#[derive(Debug)]
pub(crate) struct LoadedThreads {
    pub(crate) threads: Vec<KnownThread>,
    pub(crate) operations: HashMap<FieldKey, OperationRecord>,
}

/// Reads threads with all that is needed of them, in one round trip: in a snapshot, or in an open transaction that has
/// locked their rows, of which a fault is returned as it is.
pub(crate) async fn load(
    lanes: &Connections,
    entered: Option<&PgConnection>,
    needs: &Needs,
    ids: &BTreeSet<ThreadId>,
) -> Result<Result<LoadedThreads, StoreError>, PgFault> {
    let texts = |texts: Vec<String>| Param::Texts(texts.into_iter().map(Some).collect());
    let spaces: Vec<(&ThreadId, &Namespace)> = needs
        .threads
        .iter()
        .filter(|(id, _)| ids.contains(*id))
        .flat_map(|(id, of)| of.spaces.iter().map(move |space| (id, space)))
        .collect();
    let root = Namespace::root();
    let mut wanted: Vec<WantedPoint<'_>> = ids.iter().map(|id| (id, &root, None)).collect();
    let points = needs.threads.iter().filter(|(id, _)| ids.contains(*id));
    wanted.extend(points.flat_map(|(id, of)| of.points.iter().map(move |(space, at)| (id, space, Some(at)))));
    let thread_ids = || texts(ids.iter().map(|id| id.as_str().to_owned()).collect());
    let mut queries = vec![
        PgQuery::new(commit_sql::KNOWN_THREADS, [thread_ids()]),
        PgQuery::new(
            commit_sql::KNOWN_NAMESPACES,
            [
                texts(spaces.iter().map(|(id, _)| id.as_str().to_owned()).collect()),
                texts(spaces.iter().map(|(_, space)| space.as_str().to_owned()).collect()),
            ],
        ),
    ];
    queries.extend(known_queries(&wanted));
    let fields: Vec<&FieldKey> = needs.fields.iter().filter(|(id, _)| ids.contains(id)).collect();
    if !fields.is_empty() {
        let keys = Param::Blobs(fields.iter().map(|(_, field)| Some(field.clone())).collect());
        let of = texts(fields.iter().map(|(id, _)| id.as_str().to_owned()).collect());
        queries.push(PgQuery::new(commit_sql::NEWEST_OPERATIONS, [of, keys]));
    }
    let answers = match entered {
        Some(of) => lanes.run(of, &queries, Together::Open).await?,
        None => match lanes.read(&queries, Together::Snapshot).await {
            Ok(answers) => answers,
            Err(fault) => return Ok(Err(read_error(fault))),
        },
    };
    Ok(loaded(answers, ids, (&spaces, &wanted, &fields)))
}

/// The keys of a load: namespaces, checkpoints, and fields of which there are operations.
type LoadKeys<'a, 'n> = (&'a [(&'n ThreadId, &'n Namespace)], &'a [WantedPoint<'n>], &'a [&'n FieldKey]);

fn loaded(
    mut answers: Answers,
    ids: &BTreeSet<ThreadId>,
    (spaces, wanted, fields): LoadKeys<'_, '_>,
) -> Result<LoadedThreads, StoreError> {
    let operations = if fields.is_empty() { Vec::new() } else { answers.pop().unwrap_or_default() };
    let operations = newest_operations(&operations, fields)?;
    let mut threads: HashMap<ThreadId, KnownThread> =
        ids.iter().map(|id| (id.clone(), KnownThread::missing(id.clone()))).collect();
    answers[0].iter().try_for_each(|row| read_thread(row, &mut threads))?;
    for (id, space) in spaces {
        threads.get_mut(*id).into_iter().for_each(|of| _ = of.spaces.insert((*space).clone(), None));
    }
    answers[1].iter().try_for_each(|row| read_namespace(row, &mut threads))?;
    let found = known_points(&answers.split_off(2), wanted.len())?;
    for ((id, space, at), point) in wanted.iter().zip(found) {
        let (Some(thread), point) = (threads.get_mut(*id), point.map(Arc::new)) else { continue };
        let at = at.copied().or(point.as_ref().map(|point| point.of.record.point.checkpoint));
        at.into_iter().for_each(|at| _ = thread.points.insert(((*space).clone(), at), point.clone()));
    }
    Ok(LoadedThreads { threads: threads.into_values().collect(), operations })
}

fn read_thread(row: &Row, threads: &mut HashMap<ThreadId, KnownThread>) -> Result<(), StoreError> {
    let mut cells = Cells::of(row);
    let id = cells.thread()?;
    let Some(of) = threads.get_mut(&id) else { return Ok(()) };
    (of.number, of.change, of.created_at) = (cells.next()?, cells.next()?, cells.next()?);
    (of.seq, of.operation, of.namespaces) = (cells.next()?, cells.next()?, cells.next()?);
    of.fields = fields(cells.next()?)?;
    of.activity = cells.next::<Option<i64>>()?.zip(cells.next::<Option<i64>>()?);
    of.lease = cells.lease()?;
    Ok(())
}

fn read_namespace(row: &Row, threads: &mut HashMap<ThreadId, KnownThread>) -> Result<(), StoreError> {
    let mut cells = Cells::of(row);
    let (id, space, number) = (cells.thread()?, cells.namespace()?, cells.next()?);
    let stored = Some(cells.next::<Option<&[u8]>>()?.map(sixteen).transpose()?);
    let newest = cells.checkpoint()?;
    let Some(of) = threads.get_mut(&id) else { return Ok(()) };
    let place = |branch, ordinal| PgPlace { thread: of.number, branch, ordinal };
    let head = cells.optional_checkpoint()?;
    let head_place = cells.next::<Option<i64>>()?.zip(cells.next::<Option<i64>>()?);
    let head = head.zip(head_place.map(|(branch, ordinal)| place(branch, ordinal)));
    of.spaces.insert(space, Some(KnownNamespace { number, newest, head, stored }));
    Ok(())
}

fn newest_operations(rows: &[Row], fields: &[&FieldKey]) -> Result<HashMap<FieldKey, OperationRecord>, StoreError> {
    let mut found: HashMap<FieldKey, OperationRecord> = HashMap::new();
    for row in rows {
        let mut cells = Cells::of(row);
        let key = fields[crate::read::points::place_of(&mut cells, fields.len())?];
        let (number, seq) = (cells.number()?, cells.number()?);
        let new = Unpacker::new(cells.next()?, "operation.content").operation()?;
        let change = Unpacker::change(cells.thread()?, cells.next()?, cells.next()?)?;
        let record = found.entry(key.clone()).or_insert_with(|| OperationRecord::new(number, seq, &new, Vec::new()));
        record.changes.push(change);
    }
    found.values_mut().for_each(|record| sort_changes(&mut record.changes));
    Ok(found)
}
