//! One batch inside a transaction: heads compared, ids checked, and the rows of its checkpoints.

use super::caches::{Caches, refresh};
use super::changes::Ready;
use super::checkpoint::insert_versions;
use super::ids::{Table, above};
use super::operation::{self, OperationJob};
use crate::base::internal::hash::Checksum;
use crate::base::{CheckpointId, ThreadId};
use crate::store::batch::{Batch, NewCheckpoint, Parent, WriteRef};
use crate::store::counts::ThreadCounts;
use crate::store::error::StoreError;
use crate::store::record::{TaskKind, TaskRecord};
use crate::store::sqlite::fault::{Fault, Res, corrupt, invalid};
use crate::store::sqlite::index::threads;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::head::{self};
use crate::store::sqlite::read::lineage::{self, INTERVAL};
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::rows::checksums::{CheckpointChecksum, WriteChecksum};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{self, PackedKind, PackedTask, ValueColumn};
use crate::store::sqlite::rows::source::{source_code, source_column};
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, VersionRow};
use crate::store::sqlite::seeded_map::SeededMap;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, TaskColumn, branch, checkpoint, namespace, thread};
use crate::store::sqlite::verify::neighbors::{self, find};
use rusqlite::{Connection, params};
use std::collections::HashSet;
use std::sync::Arc;

/// The batch being written.
pub(crate) struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) caches: &'a mut Caches,
    pub(crate) batch: &'a Batch,
    pub(crate) namespace: i64,
    /// The newest checkpoint of the namespace.
    newest: Option<(i64, CheckpointId)>,
    next_seq: i64,
    /// First seq of this batch: rows of checkpoints from here on are its own.
    first_seq: i64,
    /// The values of writes that this batch stored, so that what consumes them needs no read.
    pub(crate) written: SeededMap<(i64, WriteRef), (ValueColumn, Checksum)>,
    /// The tasks whose stored writes were read into `written`, with the checkpoint.
    pub(crate) read_tasks: HashSet<(i64, TaskColumn)>,
    /// The rows of `version` of the checkpoint being written.
    versions: Vec<VersionRow>,
    /// The tokens of the messages of the checkpoint being written; `None` if they are not known.
    pub(crate) tokens: Option<ThreadCounts>,
}

/// Writes a batch and those of `then` in the open transaction, without its lease. On an error the caller rolls back.
pub(crate) fn batch(conn: &Connection, caches: &mut Caches, batch: &Batch) -> Res<()> {
    if let Some(operation) = &batch.operation {
        let repeats = is_stored(conn, batch)?;
        parts(conn, caches, batch)?;
        let job = OperationJob { operation: operation.clone(), id: Arc::default() };
        return if repeats { Ok(()) } else { operation::write(conn, caches, &job) };
    }
    parts(conn, caches, batch)
}

fn parts(conn: &Connection, caches: &mut Caches, batch: &Batch) -> Res<()> {
    if batch.then.is_empty() {
        return part(conn, caches, batch);
    }
    let mut repeats = false;
    for part in batch.parts() {
        repeats = repeats || is_stored(conn, part)?;
    }
    // If they were written before, writes on their own went in with the checkpoints, and may not fit any more.
    let mut parts = batch.parts().filter(|part| !repeats || !part.checkpoints.is_empty());
    parts.try_for_each(|batch| part(conn, caches, batch))
}

/// Returns whether the last checkpoint of a batch is stored.
pub(crate) fn is_stored(conn: &Connection, part: &Batch) -> Res<bool> {
    let Some(last) = part.checkpoints.last() else { return Ok(false) };
    // Not through the caches: another connection may have erased the rows of their entries.
    let namespace: Option<i64> =
        conn.first(sql::NAMESPACE_BY_PATH, params![part.thread.as_str(), part.namespace.as_str()])?;
    Ok(namespace.map(|namespace| find(conn, namespace, &last.id)).transpose()?.flatten().is_some())
}

fn part(conn: &Connection, caches: &mut Caches, batch: &Batch) -> Res<()> {
    refresh(conn, caches)?;
    let place = caches.place(conn, &batch.thread, &batch.namespace)?;
    let mut namespace = place.map(|(namespace, _)| namespace);
    caches.thread = place.map_or(0, |(_, thread)| thread);
    let (newest, head) = match namespace {
        Some(namespace) => caches.heads.newest_and_head(conn, &caches.keys, namespace)?,
        None => (None, None),
    };
    if let (Some(namespace), Some(newest), Some(last)) = (namespace, newest, batch.checkpoints.last())
        && last.id <= newest.1
        && let Some(seq) = find(conn, namespace, &last.id)?
    {
        let mut tx = Tx::new(conn, caches, batch, namespace, None, seq);
        return tx.repeat();
    }
    check_expected_heads(conn, caches, batch, head)?;
    if let (Some(first), Some((_, newest))) = (batch.checkpoints.first(), newest)
        && first.id <= newest
    {
        if let Some(namespace) = namespace
            && find(conn, namespace, &first.id)?.is_some()
        {
            return Err(Fault::Store(StoreError::Duplicate { id: first.id }));
        }
        let (thread, namespace) = (batch.thread.clone(), batch.namespace.clone());
        return Err(Fault::Store(StoreError::StaleId { thread, namespace, id: first.id, newest }));
    }
    if namespace.is_none()
        && let Some(first) = batch.checkpoints.first()
    {
        if let Some(writes) = batch.writes.first() {
            return Err(not_found(&batch.thread, &writes.checkpoint));
        }
        namespace = Some(create_namespace(conn, caches, batch, first)?);
    }
    let Some(namespace) = namespace else {
        let id = batch.writes.first().map(|writes| writes.checkpoint).unwrap_or_default();
        return Err(not_found(&batch.thread, &id));
    };
    let next_seq = match caches.next_seq.take() {
        Some(next) => next,
        None => {
            let max: Option<i64> = conn.one(checkpoint::Row::GREATEST, [])?;
            above("checkpoint", max.unwrap_or(0))?.max(caches.ids.seq_after_deletions(conn)?)
        }
    };
    if next_seq.checked_add(batch.checkpoints.len() as i64).is_none() {
        return Err(corrupt(format!("checkpoint {}", next_seq - 1), "no id is above that of the row"));
    }
    let mut tx = Tx::new(conn, caches, batch, namespace, newest, next_seq);
    tx.run()?;
    debug_assert!(batch.checkpoints.is_empty() || tx.newest.map(|(_, id)| id) == batch.head_after());
    debug_assert_eq!(tx.next_seq, tx.first_seq + batch.checkpoints.len() as i64);
    let (next_seq, written) = (tx.next_seq, tx.newest);
    caches.next_seq = Some(next_seq);
    if let Some(head) = written.filter(|_| !batch.checkpoints.is_empty()) {
        caches.heads.retain(namespace, head);
    }
    match newest {
        _ if !batch.checkpoints.is_empty() => threads::after_checkpoints(conn, caches, next_seq - 1),
        Some((newest, _)) if batch.namespace.is_root() => threads::after_writes(conn, caches, newest, &batch.writes),
        _ => Ok(()),
    }
}

/// Compares the head of each namespace that the batch names with the head it expects.
fn check_expected_heads(conn: &Connection, caches: &mut Caches, batch: &Batch, head: Option<CheckpointId>) -> Res<()> {
    for expect in &batch.expect {
        let found = if expect.namespace == batch.namespace {
            head
        } else {
            let namespace = caches.namespace(conn, &batch.thread, &expect.namespace)?;
            namespace.map(|namespace| head::head(conn, &caches.keys, namespace)).transpose()?.flatten()
        };
        expect.compare(&batch.thread, found)?;
    }
    Ok(())
}

pub(crate) fn not_found(thread: &ThreadId, id: &CheckpointId) -> Fault {
    Fault::Store(StoreError::CheckpointNotFound { thread: thread.clone(), id: id.to_string() })
}

fn create_namespace(conn: &Connection, caches: &mut Caches, batch: &Batch, first: &NewCheckpoint) -> Res<i64> {
    let thread = match neighbors::thread_number(conn, &batch.thread)? {
        Some(thread) => {
            neighbors::no_path(conn, thread, batch.namespace.as_str())?;
            thread
        }
        None => {
            let id = caches.ids.next(conn, Table::Thread)?;
            let (public_id, created_at) = (batch.thread.as_str(), first.created_at.as_micros());
            thread::Row { id, public_id, created_at }.insert(conn)?;
            id
        }
    };
    let id = caches.ids.next(conn, Table::Namespace)?;
    let path = batch.namespace.as_str();
    namespace::Row { id, thread, path }.insert(conn)?;
    caches.fresh = true;
    caches.thread = thread;
    caches.namespaces.insert((batch.thread.clone(), batch.namespace.clone()), (id, thread));
    Ok(id)
}

impl<'a> Tx<'a> {
    fn new(
        conn: &'a Connection,
        caches: &'a mut Caches,
        batch: &'a Batch,
        namespace: i64,
        newest: Option<(i64, CheckpointId)>,
        next_seq: i64,
    ) -> Self {
        Self {
            conn,
            caches,
            batch,
            namespace,
            newest,
            next_seq,
            first_seq: next_seq,
            written: SeededMap::default(),
            read_tasks: HashSet::new(),
            versions: Vec::new(),
            tokens: None,
        }
    }

    fn run(&mut self) -> Res<()> {
        let batch = self.batch;
        if !batch.writes.is_empty() {
            self.caches.heads.note_writes(self.namespace);
        }
        for writes in &batch.writes {
            let of = self.local(&writes.checkpoint)?;
            of.must_be_kept(&batch.thread)?;
            self.put_writes(&of, writes, None)?;
        }
        debug_assert!(batch.timers.is_empty() || batch.checkpoints.is_empty());
        batch.timers.iter().try_for_each(|timer| self.put_timer(timer))?;
        if let Some(NewCheckpoint { parent: Some(Parent::Local(passed)), .. }) = batch.checkpoints.first() {
            let passed = self.local(passed)?;
            self.drop_timers(passed.seq)?;
        }
        batch.checkpoints.iter().try_for_each(|checkpoint| self.put_checkpoint(checkpoint))
    }

    /// Compares a batch whose last checkpoint is stored with the stored checkpoints.
    fn repeat(&mut self) -> Res<()> {
        for checkpoint in &self.batch.checkpoints {
            let taken = || Fault::Store(StoreError::Duplicate { id: checkpoint.id });
            let seq = neighbors::must_find(self.conn, self.namespace, &checkpoint.id, taken)?;
            let stored = self.caches.known(self.conn, seq)?;
            stored.must_be_kept(&self.batch.thread)?;
            let parent = self.parent(checkpoint).map_err(|fault| fault.if_read(taken))?;
            let mut consumed = Vec::new();
            for writes in &checkpoint.consumed {
                let of = self.consumed_of(parent.as_ref(), &writes.checkpoint)?;
                consumed.extend(self.stored_writes(&of, writes, seq)?);
            }
            let ready = self.ready(parent.as_deref(), checkpoint).map_err(|fault| fault.if_read(taken))?;
            if self.checksum(checkpoint, parent.as_deref(), consumed, &ready) != stored.checksum {
                return Err(taken());
            }
        }
        Ok(())
    }

    /// Returns whether the checkpoint was stored by this batch, so that nothing else can refer to it yet.
    pub(crate) fn is_own(&self, of: &Known) -> bool {
        of.seq >= self.first_seq
    }

    pub(crate) fn local(&mut self, id: &CheckpointId) -> Res<Arc<Known>> {
        let seq = match self.newest {
            Some((seq, newest)) if newest == *id => seq,
            _ => neighbors::must_find(self.conn, self.namespace, id, || not_found(&self.batch.thread, id))?,
        };
        self.caches.known(self.conn, seq)
    }

    fn parent(&mut self, checkpoint: &NewCheckpoint) -> Res<Option<Arc<Known>>> {
        match &checkpoint.parent {
            None => Ok(None),
            Some(Parent::Local(id)) => self.local(id).map(Some),
            Some(Parent::Fork(point)) => {
                let missing = || not_found(&point.thread, &point.checkpoint);
                let namespace =
                    self.caches.namespace(self.conn, &point.thread, &point.namespace)?.ok_or_else(missing)?;
                let seq = neighbors::must_find(self.conn, namespace, &point.checkpoint, missing)?;
                self.caches.known(self.conn, seq).map(Some)
            }
        }
    }

    /// Returns the checkpoint whose tasks made the consumed writes: the parent.
    fn consumed_of(&self, parent: Option<&Arc<Known>>, id: &CheckpointId) -> Res<Arc<Known>> {
        match parent {
            Some(parent) if parent.id == *id => Ok(Arc::clone(parent)),
            _ => Err(invalid("checkpoint.consumed", format!("{id} is not the parent"))),
        }
    }

    fn put_checkpoint(&mut self, checkpoint: &NewCheckpoint) -> Res<()> {
        let parent = self.parent(checkpoint)?;
        if let Some(parent) = &parent {
            let thread = match &checkpoint.parent {
                Some(Parent::Fork(point)) => &point.thread,
                _ => &self.batch.thread,
            };
            parent.must_be_kept(thread)?;
        }
        self.caches.fresh = true;
        let (branch, ordinal) = self.place(parent.as_deref())?;
        let seq = self.next_seq;
        debug_assert!(parent.as_ref().map_or(ordinal == 0, |parent| ordinal == parent.ordinal + 1 && parent.seq < seq));
        debug_assert!(
            self.newest.is_none_or(|(newest, id)| newest < seq && id < checkpoint.id),
            "ids ascend with the log"
        );
        let mut consumed = Vec::new();
        for writes in &checkpoint.consumed {
            let of = self.consumed_of(parent.as_ref(), &writes.checkpoint)?;
            consumed.extend(self.put_writes(&of, writes, Some(seq))?);
        }
        let ready = self.ready(parent.as_deref(), checkpoint)?;
        let source = source_column(checkpoint.source, consumed.len());
        let checksum = self.checksum(checkpoint, parent.as_deref(), consumed, &ready);
        if ordinal > 0
            && ordinal % INTERVAL == 0
            && let Some(parent) = parent.as_deref()
        {
            self.put_index_snapshot(parent, branch, ordinal)?;
        }
        self.tokens = Some(ThreadCounts::default());
        self.put_changes(parent.as_deref(), branch, ordinal, &ready)?;
        let usage = ThreadCounts::stated(checkpoint.metadata.as_deref()).or(self.tokens);
        if let Some(usage) = usage {
            self.caches.unfollowed.note_checkpoint(seq, self.namespace, usage);
        }
        self.put_seen(branch, ordinal, checkpoint)?;
        let rows = std::mem::take(&mut self.versions);
        self.caches.places.add((branch, ordinal), &rows);
        insert_versions(self.conn, &self.caches.keys, seq, (branch, ordinal), rows)?;
        let run = self.insert_checkpoint(checkpoint, (seq, source), parent.as_deref(), (branch, ordinal), &checksum)?;
        (self.newest, self.next_seq) = (Some((seq, checkpoint.id)), seq + 1);
        let tasks = checkpoint.tasks.clone();
        let known = Known { seq, id: checkpoint.id, branch, ordinal, checksum, tasks, run, pruned: false };
        self.caches.known.insert(seq, Arc::new(known));
        Ok(())
    }

    /// Returns branch and ordinal of a child of `parent`. Only the child of the newest checkpoint stays on the branch.
    fn place(&mut self, parent: Option<&Known>) -> Res<(i64, i64)> {
        let Some(parent) = parent else {
            return Ok((self.insert_branch(None, 0, None)?, 0));
        };
        let beyond = || corrupt(format!("checkpoint {}", parent.seq), "no ordinal is above its own");
        let ordinal = parent.ordinal.checked_add(1).ok_or_else(beyond)?;
        if self.newest.is_some_and(|(seq, _)| seq == parent.seq) {
            return Ok((parent.branch, ordinal));
        }
        let depth = lineage::branch(self.conn, parent.branch)?.depth.checked_add(1).ok_or_else(beyond)?;
        let of: i64 = self.conn.one(sql::BRANCH_THREAD, [parent.branch])?;
        let fork = (of != self.caches.thread).then_some((of, parent.seq));
        Ok((self.insert_branch(Some((parent.branch, parent.ordinal)), depth, fork)?, ordinal))
    }

    /// Inserts a branch that leaves a parent at an ordinal; `fork` is the thread and the checkpoint of a parent
    /// elsewhere.
    fn insert_branch(&mut self, parent: Option<(i64, i64)>, depth: i64, fork: Option<(i64, i64)>) -> Res<i64> {
        let id = self.caches.ids.next(self.conn, Table::Branch)?;
        let (parent, upto) = parent.unzip();
        let (fork_thread, fork_checkpoint) = fork.unzip();
        let namespace = self.namespace;
        branch::Row { id, namespace, parent, upto, depth, fork_thread, fork_checkpoint }.insert(self.conn)?;
        Ok(id)
    }

    /// Adds a row of `version` to those of the checkpoint.
    pub(crate) fn put_version(&mut self, row: VersionRow) {
        debug_assert_eq!(row.key == 0, row.kind == INDEX_SNAPSHOT, "an index snapshot is not a version of a channel");
        self.versions.push(row);
    }

    pub(crate) fn pack_tasks(&mut self, tasks: &[TaskRecord]) -> Res<Option<Vec<u8>>> {
        if tasks.is_empty() {
            return Ok(None);
        }
        let mut packed = Vec::with_capacity(tasks.len());
        for task in tasks {
            let node = self.caches.intern(self.conn, Kind::Node, &task.name)?;
            let kind = match &task.kind {
                TaskKind::Push { index } => PackedKind::Push(*index),
                TaskKind::Pull { triggers } => {
                    let ids = triggers.iter().map(|trigger| self.caches.intern(self.conn, Kind::Channel, trigger));
                    PackedKind::Pull(ids.collect::<Res<_>>()?)
                }
            };
            packed.push(PackedTask { id: task.id, node, kind });
        }
        Ok(Some(pack::pack_tasks(&packed)))
    }

    fn checksum(
        &self,
        new: &NewCheckpoint,
        parent: Option<&Known>,
        consumed: Vec<WriteChecksum>,
        ready: &[Ready<'_>],
    ) -> Checksum {
        CheckpointChecksum {
            thread: self.batch.thread.as_str(),
            namespace: self.batch.namespace.as_str(),
            id: new.id.as_bytes(),
            parent: parent.map(|parent| parent.checksum),
            step: new.step,
            source: source_code(new.source),
            created_at: new.created_at.as_micros(),
            run: new.run.as_ref().map(|run| run.as_bytes().as_slice()),
            metadata: new.metadata.as_deref(),
            parents: &new.parents,
            tasks: &new.tasks,
            consumed,
            changes: ready.iter().map(|change| &change.checksum).collect(),
            seen: new.seen.iter().collect(),
        }
        .finish(&self.caches.keys)
    }
}
