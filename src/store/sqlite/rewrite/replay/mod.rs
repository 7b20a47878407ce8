//! Writes the rows of a file anew: as the batches that they came from.
//!
//! Checkpoints are visited in the order of the log. Each is decoded to a batch and written as a new one is, so every
//! derived column is computed by the code that computes it for new rows; then the checksum that this gave is compared
//! with the stored one. A row that does not fit is noted. A pruned checkpoint is passed over ([`kept`]). *Absent:* the
//! tables beside the log.
//!
//! Invariant: a checkpoint is written only if its checksum, which covers that of its parent, is the stored one, or,
//! after a pruned one, fits the stored rows.

mod kept;
mod operations;
mod rows;
mod salvage;
mod scan;
mod sql;

pub(crate) use scan::scan;

use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::limits::LOST_MAX;
use crate::limits::{REPLAY_BYTES, WRITER_CACHE_MAX};
use crate::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemOp, ListRef, NewTimer, NewWrite, NewWrites, Parent, Payload,
    Seen, WriteRef, WriteValue,
};
use crate::store::error::StoreError;
use crate::store::mark::WriteMark;
use crate::store::operation::NewOperation;
use crate::store::record::{CheckpointRef, TaskRecord};
use crate::store::recovery::{Lost, LostKind, Recovery};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::commit::operation::OperationJob;
use crate::store::sqlite::commit::writes::write_ref;
use crate::store::sqlite::commit::{batch, operation};
use crate::store::sqlite::fault::{Fault, Res, corrupt, damage};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::list_reference;
use crate::store::sqlite::rows::item::{DELETE, DELETE_RANGE, PUT, REFERENCE, range_position};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{Unpack, unpack_ranges, unpack_reference, unpack_seen};
use crate::store::sqlite::rows::task::task_id;
use crate::store::sqlite::rows::version::{EMPTY, LIST, SEEN, VALUE, of_kind_column, version_of_column};
use crate::store::sqlite::side::timer::missing;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{
    OwnedColumns, StoredColumn, TableRow, checkpoint, decoded, item, thread, timer, version, write,
};
use kept::KeptRows;
use operations::OldOperation;
use rows::OldRows;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, params};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A replay under way.
pub(crate) struct LogReplay<'c> {
    rows: OldRows<'c>,
    kept: KeptRows<'c>,
    /// The new store, in a transaction.
    conn: &'c Connection,
    caches: Caches,
    /// The head of each namespace of the old file, as it was written.
    heads: HashMap<i64, Option<CheckpointId>>,
    /// The operations that are still to be written, in their order.
    operations: VecDeque<OldOperation>,
    /// The numbers of the operations that were written, by those in the old file.
    operation_ids: BTreeMap<i64, u64>,
    /// The checkpoints of which a run of writes is lost.
    lost_writes: HashSet<i64>,
    /// True if a thread without a row was deleted only if a row of `tombstone` says so.
    pub(crate) knows_deleted: bool,
    pub(crate) report: Recovery,
}

/// A decoded checkpoint.
struct Decoded {
    batch: Batch,
    tasks: Vec<TaskRecord>,
}

impl<'c> LogReplay<'c> {
    /// Begins a replay of the rows in `old` into `conn`. Both files have the keys.
    /// `whole` is the old file as readers see it, if it has pruned checkpoints.
    pub(crate) fn new(
        (old, whole): (&'c Connection, Option<&'c Connection>),
        conn: &'c Connection,
        keys: &Arc<Keys>,
    ) -> Res<Self> {
        Ok(Self {
            rows: OldRows::new(old, Arc::clone(keys))?,
            kept: KeptRows::new(whole, Arc::clone(keys)),
            conn,
            caches: Caches::new(Arc::clone(keys)),
            heads: HashMap::new(),
            operations: VecDeque::new(),
            operation_ids: BTreeMap::new(),
            lost_writes: HashSet::new(),
            knows_deleted: false,
            report: Recovery::default(),
        })
    }

    /// Writes all checkpoints with their writes, then the timers.
    pub(crate) fn run(&mut self) -> Res<()> {
        self.read_operations()?;
        let (mut from, mut ranges) = (0, Vec::new());
        loop {
            let page = self.page(from, &mut ranges)?;
            let is_end = ranges.iter().any(|(_, to, _)| to.is_none());
            for (from, to, why) in ranges.drain(..) {
                let to = to.map_or_else(|| "on".to_owned(), |to: i64| format!("to {}", to - 1));
                let place = format!("checkpoint (seq {from} {to})");
                self.lose(LostKind::Range, None, place, why)?;
            }
            let Some((last, _)) = page.last() else { break };
            let next = last.checked_add(1).filter(|_| !is_end);
            for (_, columns) in &page {
                let old = checkpoint::Row::of(columns)?;
                self.operations_before(old.seq)?;
                self.checkpoint(&old)?;
                if self.report.checkpoints.is_multiple_of(WRITER_CACHE_MAX as u64) {
                    self.caches.committed();
                }
            }
            let Some(next) = next else { break };
            from = next;
        }
        self.operations_before(i64::MAX)?;
        let namespaces: Vec<i64> = self.heads.keys().copied().collect();
        namespaces.into_iter().try_for_each(|namespace| self.timers(namespace))?;
        self.report.threads = self.conn.one::<i64>(thread::Row::COUNT, [])?.unsigned_abs();
        Ok(())
    }

    /// Reads some checkpoints, and notes the ranges that cannot be read.
    fn page(&self, from: i64, ranges: &mut Vec<(i64, Option<i64>, String)>) -> Res<Vec<(i64, OwnedColumns)>> {
        let mut found = Vec::new();
        let (done, mut bytes) = (std::cell::Cell::new(false), 0);
        let mut page = |from: i64, limit: usize| {
            if done.get() { Ok(Vec::new()) } else { self.rows.checkpoints(from, limit) }
        };
        let mut visit = |row: (i64, OwnedColumns)| {
            bytes += row.1.iter().map(bytes_of).sum::<usize>();
            found.push(row);
            done.set(found.len() >= WRITER_CACHE_MAX || bytes >= REPLAY_BYTES);
            Ok(())
        };
        scan(from, &mut page, &mut visit, &mut |from, to, why| {
            ranges.push((from, to, why));
            Ok(())
        })?;
        Ok(found)
    }

    fn lose(
        &mut self,
        kind: LostKind,
        at: Option<(Option<ThreadId>, CheckpointId)>,
        place: String,
        reason: String,
    ) -> Res<()> {
        self.report.lost_count += 1;
        if self.report.lost.len() < LOST_MAX {
            let (thread, checkpoint) = at.map_or((None, None), |(thread, id)| (thread, Some(id)));
            self.report.lost.push(Lost { kind, thread, checkpoint, place, reason });
        }
        Ok(())
    }

    fn checkpoint(&mut self, old: &checkpoint::Row<'_>) -> Res<()> {
        let id = CheckpointId::from_bytes(old.id);
        let of = match self.rows.namespace(old.namespace) {
            // The thread was deleted, and its rows are not reclaimed yet.
            Ok(None) if !self.knows_deleted || self.rows.is_of_deleted(old.namespace)? => return Ok(()),
            Ok(None) => {
                let place = format!("checkpoint {}", old.seq);
                return self.lose(LostKind::Checkpoint, Some((None, id)), place, "its thread is lost".into());
            }
            Ok(Some(of)) => of,
            Err(fault) => {
                let why = reason(fault)?;
                return self.lose(LostKind::Checkpoint, Some((None, id)), format!("checkpoint {}", old.seq), why);
            }
        };
        match self.kept.is_pruned(old) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(fault) => {
                let why = reason(fault)?;
                return self.lose(LostKind::Checkpoint, Some((Some(of.0), id)), format!("checkpoint {}", old.seq), why);
            }
        }
        let mut outcome = Err(String::new());
        // Values are shared with the writes that they came from. If the write is lost, the value is stored on its own.
        for is_shared in [true, false] {
            outcome = match self.decode(old, &of, is_shared) {
                Ok(decoded) => self.store(old, &decoded.batch)?.map(|()| decoded),
                Err(fault) => Err(reason(fault)?),
            };
            if outcome.is_ok() {
                break;
            }
        }
        match outcome {
            Ok(decoded) => {
                self.heads.insert(old.namespace, Some(id));
                self.report.checkpoints += 1;
                let at = CheckpointRef::new(of.0.clone(), of.1.clone(), id);
                self.note_place((old.branch, old.ordinal, old.seq), &at, 0)?;
                if self.kept.is_after_pruned(old) {
                    self.kept.note(old);
                }
                self.own_writes(old, &of, &decoded.tasks)
            }
            Err(why) => {
                let place = format!("checkpoint {}", old.seq);
                self.lose(LostKind::Checkpoint, Some((Some(of.0), id)), place, why)
            }
        }
    }

    /// Writes the batch of a checkpoint, unless this gives another checksum than the stored one.
    fn store(&mut self, old: &checkpoint::Row<'_>, batch: &Batch) -> Res<Result<(), String>> {
        if let Err(error) = batch.validate() {
            return Ok(Err(error.to_string()));
        }
        if self.kept.is_after_pruned(old) {
            return match self.kept.verify(old) {
                Ok(()) => self.attempt(batch, |_| Ok(true)),
                Err(fault) => Ok(Err(reason(fault)?)),
            };
        }
        self.attempt(batch, |conn| {
            let checksum: [u8; 16] = conn.one(sql::LAST_CHECKSUM, [])?;
            Ok(checksum == old.sum)
        })
    }

    /// Writes a batch, and undoes it unless the written rows verify.
    fn attempt(&mut self, batch: &Batch, verify: impl FnOnce(&Connection) -> Res<bool>) -> Res<Result<(), String>> {
        self.undone(|conn, caches| {
            batch::batch(conn, caches, batch)?;
            Ok(if verify(conn)? { Ok(()) } else { Err("its checksum does not match".to_owned()) })
        })
    }

    /// Writes rows, and undoes that unless it succeeds. Returns the reason that damaged rows give.
    fn undone<T>(
        &mut self,
        write: impl FnOnce(&Connection, &mut Caches) -> Res<Result<T, String>>,
    ) -> Res<Result<T, String>> {
        self.conn.run(engine_sql::SAVEPOINT, [])?;
        let outcome = match write(self.conn, &mut self.caches) {
            Ok(outcome) => outcome,
            Err(fault) => Err(reason(fault)?),
        };
        if outcome.is_err() {
            self.conn.run(engine_sql::ROLLBACK_TO, [])?;
            self.caches.rolled_back();
        }
        self.conn.run(engine_sql::RELEASE, [])?;
        Ok(outcome)
    }

    fn decode(&self, old: &checkpoint::Row<'_>, of: &(ThreadId, Namespace), is_shared: bool) -> Res<Decoded> {
        let wrong = |what: &str| corrupt(old.place(), format!("{what} does not match the format"));
        let (mut parent, mut consumed, mut shared) = (None, Vec::new(), HashMap::new());
        let is_first = self.kept.is_first(old);
        if let Some(seq) = old.parent.filter(|_| !is_first) {
            let (namespace, id, tasks) = self.rows.checkpoint(seq)?;
            let id = CheckpointId::from_bytes(id);
            parent = Some(if namespace == old.namespace {
                Parent::Local(id)
            } else {
                let (thread, path) = self.rows.namespace(namespace)?.ok_or_else(|| wrong("parent"))?;
                Parent::Fork(CheckpointRef::new(thread, path, id))
            });
            let rows = self.rows.writes(seq)?;
            let writes = decoded::<write::Row<'_>>(&rows)?;
            let own: Vec<_> = writes.iter().filter(|write| write.child == Some(old.seq)).collect();
            consumed = self.new_writes(id, &tasks, &own)?;
            if is_shared {
                shared = self.shared(&tasks, &writes, old.seq);
            }
        }
        let tasks = self.rows.tasks(old.tasks)?;
        let mut new = self.rows.begin_new(old, parent)?;
        new.tasks.clone_from(&tasks);
        new.consumed = consumed;
        if is_first {
            (new.changes, new.seen) = self.kept.whole_state(old, of)?;
        }
        let versions = if is_first { Vec::new() } else { self.rows.versions(old.branch, old.ordinal)? };
        for version in decoded::<version::Row<'_>>(&versions)? {
            let (kind, _) = of_kind_column(version.kind);
            match kind {
                EMPTY | VALUE | LIST => new.changes.push(self.change((kind, &version), &shared)?),
                SEEN => {
                    let packed = version.value.0.as_blob().ok();
                    let pairs = packed.and_then(unpack_seen).ok_or_else(|| wrong("seen"))?;
                    let versions = pairs.into_iter().map(|(id, of)| Ok((self.rows.name(Kind::Channel, id)?, of)));
                    let versions = versions.collect::<Res<_>>()?;
                    new.seen.push(Seen { node: self.rows.name(Kind::Node, version.key)?, versions });
                }
                // Index snapshots, and the row of a checkpoint without changes, follow from the others.
                _ => {}
            }
        }
        let mut batch = Batch::new(of.0.clone(), of.1.clone(), self.heads.get(&old.namespace).copied().flatten());
        batch.checkpoints.push(new);
        Ok(Decoded { batch, tasks })
    }

    /// Returns the places in which the writes of a checkpoint hold payloads, by the id of the payload.
    fn shared(&self, tasks: &[TaskRecord], writes: &[write::Row<'_>], child: i64) -> HashMap<i64, WriteRef> {
        let mut shared = HashMap::new();
        for write in writes {
            let is_stored = write.child.is_none() || write.child == Some(child);
            if let (ValueRef::Integer(payload), 0.., true) = (write.value.0, write.idx, is_stored)
                && let Some(task) = task_id(write.task, tasks)
                && let Some(place) = write_ref(task, write.idx, write.part)
            {
                shared.entry(payload).or_insert(place);
            }
        }
        shared
    }

    fn data(&self, column: StoredColumn<'_>, shared: &HashMap<i64, WriteRef>) -> Res<Data> {
        if let ValueRef::Integer(payload) = column.0
            && let Some(of) = shared.get(&payload)
        {
            return Ok(Data::OfWrite(of.clone()));
        }
        let payload = self.rows.value(column.0)?;
        payload.map(Data::New).ok_or_else(|| corrupt("a value", "it is NULL"))
    }

    fn change(&self, (kind, version): (i64, &version::Row<'_>), shared: &HashMap<i64, WriteRef>) -> Res<Change> {
        let channel = self.rows.name(Kind::Channel, version.key)?;
        let value = match kind {
            EMPTY => ChangeValue::Empty,
            VALUE => ChangeValue::Value(self.data(version.value, shared)?),
            _ => {
                let list = self.rows.list(&channel);
                let items = list.map(|list| self.rows.items(version.branch, version.ordinal, list)).transpose()?;
                let mut changes = Vec::new();
                for item in decoded::<item::Row<'_>>(&items.unwrap_or_default())? {
                    self.item(&item, shared, &mut changes)?;
                }
                ChangeValue::Items(changes)
            }
        };
        let number = u64::try_from(version_of_column(kind, version.version, version.ordinal))
            .map_err(|_| corrupt(version.place(), "its version does not match the format"))?;
        Ok(Change { channel, version: number, value, task: version.task })
    }

    fn item(&self, item: &item::Row<'_>, shared: &HashMap<i64, WriteRef>, out: &mut Vec<ItemChange>) -> Res<()> {
        let wrong = || corrupt(item.place(), "operation and value do not match the format");
        let packed = item.value.0.as_blob().ok();
        match (item.op, u64::try_from(item.slot)) {
            (PUT, Ok(position)) => {
                let op = ItemOp::Put(self.data(item.value, shared)?);
                out.push(ItemChange { position, op, task: item.task });
            }
            (DELETE, Ok(position)) => out.push(ItemChange { position, op: ItemOp::Delete, task: item.task }),
            (DELETE_RANGE, Err(_)) if item.slot == range_position(item.ordinal) => {
                for range in packed.and_then(unpack_ranges).ok_or_else(wrong)? {
                    let op = ItemOp::DeleteRange { end: range.end };
                    out.push(ItemChange { position: range.first, op, task: range.task });
                }
            }
            (REFERENCE, Err(_)) if item.slot == range_position(item.ordinal) => {
                let (seq, list) = packed.and_then(unpack_reference).ok_or_else(wrong)?;
                let (namespace, id, _) = self.rows.checkpoint(seq)?;
                let (_, path) = self.rows.namespace(namespace)?.ok_or_else(wrong)?;
                let channel = self.rows.name(Kind::List, list)?;
                let of = ListRef::new(path, CheckpointId::from_bytes(id), channel);
                out.push(ItemChange { position: 0, op: ItemOp::Reference(of), task: item.task });
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Decodes rows of `write`, task by task, in the order of the rows.
    fn new_writes(&self, of: CheckpointId, tasks: &[TaskRecord], rows: &[&write::Row<'_>]) -> Res<Vec<NewWrites>> {
        let mut found = Vec::new();
        for same_task in rows.chunk_by(|a, b| a.task == b.task) {
            let first = same_task[0];
            let place = || format!("write (task {})", first.task);
            let task = task_id(first.task, tasks).ok_or_else(|| corrupt(place(), "its task does not exist"))?;
            let mut writes = NewWrites::new(of, task, self.rows.path(tasks, first)?);
            for parts in same_task.chunk_by(|a, b| a.idx == b.idx) {
                let channel = self.rows.name(Kind::Channel, parts[0].channel)?;
                let wrong = || corrupt(parts[0].place(), "idx or mark does not match the format");
                let index = i32::try_from(parts[0].idx).map_err(|_| wrong())?;
                let mark = parts[0].mark.map(|number| WriteMark::of_number(number).ok_or_else(wrong)).transpose()?;
                writes.writes.push(NewWrite { index, channel, value: self.write_value(parts)?, mark });
            }
            found.push(writes);
        }
        Ok(found)
    }

    /// Decodes the value of a write from its parts.
    fn write_value(&self, parts: &[&write::Row<'_>]) -> Res<WriteValue> {
        let wrong = || corrupt(parts[0].place(), "its parts do not match the format");
        let items = |parts: &[&write::Row<'_>]| -> Res<Vec<Payload>> {
            parts.iter().map(|part| self.rows.value(part.value.0)?.ok_or_else(wrong)).collect()
        };
        match (parts, parts[0].part) {
            ([one], 0) => Ok(self.rows.value(one.value.0)?.map_or(WriteValue::Null, WriteValue::One)),
            ([empty], 1) if empty.value.0 == ValueRef::Null => Ok(WriteValue::Items(Vec::new())),
            (parts, 1) => Ok(WriteValue::Items(items(parts)?)),
            ([header, rest @ ..], -1) => {
                let header = self.rows.value(header.value.0)?.ok_or_else(wrong)?;
                let mut delta = list_reference::from_header(&header).ok_or_else(wrong)?;
                delta.items = items(rest)?;
                Ok(WriteValue::Delta(Box::new(delta)))
            }
            _ => Err(wrong()),
        }
    }

    /// Writes the runs of writes that were stored on their own.
    fn own_writes(&mut self, old: &checkpoint::Row<'_>, of: &(ThreadId, Namespace), tasks: &[TaskRecord]) -> Res<()> {
        let id = CheckpointId::from_bytes(old.id);
        let place = format!("write (checkpoint {})", old.seq);
        let rows = match self.rows.writes(old.seq) {
            Ok(rows) => rows,
            Err(fault) => {
                let why = reason(fault)?;
                self.lost_writes.insert(old.seq);
                return self.lose(LostKind::Writes, Some((Some(of.0.clone()), id)), place, why);
            }
        };
        let writes = decoded::<write::Row<'_>>(&rows)?;
        let own: Vec<_> = writes.iter().filter(|write| write.child.is_none()).collect();
        let mut rest = &own[..];
        while let Some(first) = rest.first() {
            let (run, checksum) = run(rest);
            rest = &rest[run.len()..];
            let outcome = match self.new_writes(id, tasks, run) {
                Ok(writes) => {
                    let mut batch = Batch::new(of.0.clone(), of.1.clone(), Some(id));
                    batch.writes = writes;
                    match batch.validate() {
                        Ok(()) => self.attempt(&batch, |conn| {
                            let row = params![of.0.as_str(), of.1.as_str(), old.id, first.idx, checksum];
                            conn.one(sql::RUN, row)
                        })?,
                        Err(error) => Err(error.to_string()),
                    }
                }
                Err(fault) => Err(reason(fault)?),
            };
            match outcome {
                Ok(()) => self.report.writes += 1,
                Err(why) => {
                    self.lost_writes.insert(old.seq);
                    let place = format!("write (checkpoint {}, task {}, idx {})", old.seq, first.task, first.idx);
                    self.lose(LostKind::Writes, Some((Some(of.0.clone()), id)), place, why)?;
                }
            }
        }
        Ok(())
    }

    fn read_operations(&mut self) -> Res<()> {
        let (found, lost) = operations::read(self.rows.conn, &self.rows.keys)?;
        self.operations = found.into();
        lost.into_iter().try_for_each(|(place, why)| self.lose(LostKind::Operation, None, place, why))
    }

    /// Writes the operations that were made before a checkpoint of the old file.
    fn operations_before(&mut self, seq: i64) -> Res<()> {
        while self.operations.front().is_some_and(|operation| operation.seq < seq)
            && let Some(old) = self.operations.pop_front()
        {
            let head = |namespace: i64, seq: i64| {
                if self.kept.was_pruned(seq) { self.heads.get(&namespace).copied() } else { None }
            };
            let outcome = match old.decode(&self.rows, &self.operation_ids, &head) {
                Ok(None) => continue,
                Ok(Some((new, moved))) => self.operation(new)?.map(|id| (id, moved)),
                Err(fault) => Err(reason(fault)?),
            };
            match outcome {
                Ok((id, moved)) => {
                    self.operation_ids.insert(old.id, id);
                    self.heads.extend(moved);
                    self.report.operations += 1;
                }
                Err(why) => self.lose(LostKind::Operation, None, format!("operation {}", old.id), why)?,
            }
        }
        Ok(())
    }

    /// Writes an operation, and undoes it if it contradicts the rows before it.
    fn operation(&mut self, operation: NewOperation) -> Res<Result<u64, String>> {
        if let Err(error) = operation.validate() {
            return Ok(Err(error.to_string()));
        }
        let job = OperationJob { operation, id: Arc::default() };
        self.undone(|conn, caches| {
            operation::write(conn, caches, &job)?;
            Ok(Ok(*job.id.lock()))
        })
    }

    /// Writes the timers of a namespace. A lost one that follows from the writes of its task is made anew.
    fn timers(&mut self, namespace: i64) -> Res<()> {
        let of = self.rows.namespace(namespace);
        let mut lost = Vec::new();
        match self.rows.timers(namespace) {
            Ok(timers) => {
                for timer in timers {
                    let (task, outcome) = match (timer, &of) {
                        (Ok(timer), Ok(Some(of))) => (Some(timer.task), self.timer(namespace, &timer, of)?),
                        (Ok(timer), _) => (Some(timer.task), Err("its checkpoint is not in its namespace".to_owned())),
                        (Err(why), _) => (None, Err(why)),
                    };
                    match outcome {
                        Ok(()) => self.report.timers += 1,
                        Err(why) => lost.push((task, why)),
                    }
                }
            }
            Err(fault) => lost.push((None, reason(fault)?)),
        }
        let made = match &of {
            Ok(Some((thread, path))) if path.is_root() => self.missing_timers(namespace, thread)?,
            _ => Vec::new(),
        };
        self.report.timers += made.len() as u64;
        // Without its task, a row counts as one of those that were made.
        let mut others = made.iter().filter(|task| !lost.iter().any(|(of, _)| *of == Some(**task))).count();
        for (task, why) in &lost {
            let is_made = match task {
                Some(task) => made.contains(task),
                None => others.checked_sub(1).inspect(|left| others = *left).is_some(),
            };
            if !is_made {
                self.lose(LostKind::Timer, None, format!("timer (namespace {namespace})"), why.clone())?;
            }
        }
        Ok(())
    }

    /// Writes a timer.
    fn timer(&mut self, namespace: i64, timer: &timer::Row, of: &(ThreadId, Namespace)) -> Res<Result<(), String>> {
        let id = match self.rows.checkpoint(timer.checkpoint) {
            Ok((found, id, _)) if found == namespace => CheckpointId::from_bytes(id),
            Ok(_) => return Ok(Err("its checkpoint is not in its namespace".to_owned())),
            Err(fault) => return Ok(Err(reason(fault)?)),
        };
        let mut batch = Batch::new(of.0.clone(), of.1.clone(), self.heads.get(&namespace).copied().flatten());
        let wake_at = Timestamp::from_micros(timer.wake_at);
        batch.timers.push(NewTimer::new(id, TaskId::from_bytes(timer.task), Some(wake_at)));
        self.attempt(&batch, |conn| {
            let row = params![timer.task, timer.xxh3];
            conn.one(sql::TIMER_VERIFIES, row)
        })
    }

    /// Writes the timers of the tasks that sleep at the head of a thread and have none. Returns the tasks.
    fn missing_timers(&mut self, namespace: i64, thread: &ThreadId) -> Res<Vec<[u8; 16]>> {
        let (view, path) = (self.caches.view(self.conn), Namespace::root());
        let missing = match view.namespace(thread, &path)? {
            Some(root) => missing(view, root, thread)?,
            None => Vec::new(),
        };
        let mut made = Vec::new();
        for timer in missing {
            let mut batch = Batch::new(thread.clone(), path.clone(), self.heads.get(&namespace).copied().flatten());
            made.push(*timer.task.as_bytes());
            batch.timers.push(timer);
            if let Err(why) = self.attempt(&batch, |_| Ok(true))? {
                return Err(corrupt(format!("timers of thread {thread:?}"), why));
            }
        }
        Ok(made)
    }
}

/// Returns the rows of the run that begins with the first row, and its checksum. A row without one is a run of its own,
/// which no checksum covers.
fn run<'r, 'w>(rows: &'r [&'w write::Row<'w>]) -> (&'r [&'w write::Row<'w>], Option<&'w [u8]>) {
    let first = rows[0];
    let sum = first.sum.as_blob().ok();
    let count = sum.and_then(|sum| Unpack(sum.get(16..)?).uint()).unwrap_or(1);
    let end = first.idx.saturating_add_unsigned(count);
    let is_in = |row: &&&write::Row<'_>| row.task == first.task && row.idx < end;
    let length = rows.iter().take_while(is_in).count().max(1);
    (&rows[..length], sum)
}

/// Returns the bytes of a column without a fixed size.
fn bytes_of(column: &Value) -> usize {
    match column {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => 0,
    }
}

/// Returns the text of an error that damaged rows cause; any other error ends the replay.
pub(crate) fn reason(fault: Fault) -> Res<String> {
    match fault {
        Fault::Store(error @ (StoreError::Write { .. } | StoreError::Read { .. } | StoreError::Busy { .. })) => {
            Err(error.into())
        }
        Fault::Store(error) => Ok(error.to_string()),
        Fault::Sql(error) => {
            let is_of_rows = damage(&error).is_some()
                || matches!(error, rusqlite::Error::QueryReturnedNoRows)
                || matches!(
                    error.sqlite_error_code(),
                    Some(
                        ErrorCode::ConstraintViolation
                            | ErrorCode::TypeMismatch
                            | ErrorCode::TooBig
                            | ErrorCode::Unknown
                    )
                );
            if is_of_rows { Ok(error.to_string()) } else { Err(error.into()) }
        }
    }
}
