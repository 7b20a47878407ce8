//! Reads records: checkpoints, state, writes, threads.

use super::items::ChannelRows;
use super::lineage;
use super::payloads::Payloads;
use super::{head, lease};
use crate::base::internal::hash::Checksum;
use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, RunId, TaskId, ThreadId, Timestamp};
use crate::store::batch::Seen;
use crate::store::error::StoreError;
use crate::store::log::{HeadParts, NamespaceRef};
use crate::store::prune::is_pruned;
use crate::store::record::{
    ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, ItemRow, StatePart, StateRecord, StoredHead,
    TaskRecord, ThreadRecord, ThreadSize, WriteRecord,
};
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checkpoint::{RecordRow, RunHolder, checkpoint_row};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::unpack_seen;
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::source::is_pruned_column;
use crate::store::sqlite::rows::task::{join_path, of_path_column, prepared, task_id};
use crate::store::sqlite::rows::version::{EMPTY, KeyContent, LIST, SEEN, VALUE, VersionRow, version_place};
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, TableRow, TaskColumn, checkpoint, high_water, namespace, thread, write};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::verify::succession::ListingEntry;
use crate::store::sqlite::view::ReadView;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, params};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A checkpoint that rows refer to.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) seq: i64,
    pub(crate) id: CheckpointId,
    pub(crate) branch: i64,
    pub(crate) ordinal: i64,
    pub(crate) checksum: Checksum,
    pub(crate) tasks: Vec<TaskRecord>,
    /// The checkpoint that holds the id of its run.
    pub(crate) run: Option<RunHolder>,
    pub(crate) pruned: bool,
}

impl Known {
    /// Refuses to build on a checkpoint that was pruned.
    pub(crate) fn must_be_kept(&self, thread: &ThreadId) -> Res<()> {
        if self.pruned { Err(is_pruned(thread, &self.id).into()) } else { Ok(()) }
    }
}

/// The task and the path of the run of writes that is being read.
pub(crate) type RunTask = Option<(TaskColumn, TaskId, Arc<str>)>;

/// Returns whether the checkpoint with a `seq` was pruned.
pub(crate) fn is_pruned_seq(conn: &Connection, seq: i64) -> Res<bool> {
    let source: Option<i64> = conn.first(sql::SOURCE_OF_SEQ, [seq])?;
    Ok(source.is_some_and(is_pruned_column))
}

/// Verifies that a row of `sql::record!` is of the thread and the namespace in which it was searched.
fn must_be_of((thread, namespace): (&ThreadId, &Namespace), row: &RecordRow<'_>) -> Res<()> {
    if (row.thread, row.path) == (thread.as_str(), namespace.as_str()) {
        return Ok(());
    }
    Err(corrupt(row.place(), "an index gives it in another thread or namespace"))
}

fn missing(at: &CheckpointRef) -> Fault {
    StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() }.into()
}

impl<'a> ReadView<'a> {
    pub(crate) fn namespace(self, thread: &ThreadId, namespace: &Namespace) -> Res<Option<i64>> {
        let found = self.conn.first(sql::NAMESPACE_BY_PATH, params![thread.as_str(), namespace.as_str()])?;
        if found.is_none() {
            neighbors::no_namespace(self.conn, thread, namespace)?;
            neighbors::no_hidden_namespace(self.conn, &self.names.counted)?;
        }
        Ok(found)
    }

    /// Decodes a verified row.
    pub(crate) fn record(self, row: &RecordRow<'_>) -> Res<CheckpointRecord> {
        let place = || row.place();
        let metadata = sealed::metadata(self.conn, self.keys, &row.id, row.metadata, &place)?;
        row.record(metadata, self.tasks(row.tasks, &place)?)
    }

    /// Reads the records of a query, those of pruned checkpoints included.
    pub(crate) fn records(self, sql: &str, params: impl Params) -> Res<Vec<CheckpointRecord>> {
        self.conn.read_all(sql, params, |row| self.record(&RecordRow::verified(row)?))
    }

    /// Returns the checkpoint with a `seq` to which a row refers.
    pub(crate) fn known(self, seq: i64) -> Res<Known> {
        let place = || format!("checkpoint {seq}");
        let known = checkpoint_row(self.conn, sql::RECORD_BY_SEQ, [seq], |row| {
            let (id, tasks) = (CheckpointId::from_bytes(row.id), self.tasks(row.tasks, &place)?);
            let (branch, ordinal) = row.at();
            let (run, pruned) = (row.run_holder(), row.is_pruned());
            Ok(Known { seq, id, branch, ordinal, checksum: row.sum, tasks, run, pruned })
        })?;
        known.ok_or_else(|| corrupt(place(), "a row refers to it, but it does not exist"))
    }

    /// Returns a checkpoint by its position in the log; `None` also if its thread is deleted.
    pub(crate) fn by_seq(self, seq: i64) -> Res<Option<CheckpointRecord>> {
        Ok(self.records(sql::RECORD_BY_SEQ, [seq])?.pop())
    }

    /// Reads the head of a namespace, `None` if it was moved to the empty state. A namespace has a newest checkpoint
    /// from its first commit on. One that an index does not show is noticed: the newest checkpoint is the last one on
    /// the greatest branch. `read` is told whether the head was moved.
    fn head_row<T>(
        self,
        namespace: i64,
        of: (&ThreadId, &Namespace),
        read: impl Fn(&RecordRow<'_>, bool) -> Res<T>,
    ) -> Res<Option<T>> {
        let newest = |row: &RecordRow<'_>| {
            must_be_of(of, row)?;
            let moved = head::moved(self.conn, self.keys, namespace, row.seq)?;
            let head = if moved.is_none() { Some(read(row, false)?) } else { None };
            Ok((ListingEntry::of(row), head, moved.flatten()))
        };
        let Some((link, head, moved)) = checkpoint_row(self.conn, sql::RECORD_HEAD, [namespace], newest)? else {
            return Err(corrupt(format!("namespace {namespace}"), "its checkpoints are missing"));
        };
        link.must_be_last(self.conn, i64::MAX)?;
        let Some(seq) = moved else { return Ok(head) };
        let of_namespace =
            |row: &RecordRow<'_>| if row.namespace == namespace { read(row, true).map(Some) } else { Ok(None) };
        let head = checkpoint_row(self.conn, sql::RECORD_BY_SEQ, [seq], of_namespace)?.flatten();
        let missing =
            || corrupt(format!("checkpoint {seq}"), "a head was moved to it, but its namespace does not have it");
        head.map(Some).ok_or_else(missing)
    }

    /// Returns the head of a namespace.
    pub(crate) fn head(self, thread: &ThreadId, namespace: &Namespace) -> Res<Option<CheckpointRecord>> {
        match self.namespace(thread, namespace)? {
            Some(id) => self.head_row(id, (thread, namespace), |row, _| self.record(row)),
            None => Ok(None),
        }
    }

    /// Returns the newest checkpoint of a namespace that a run with an idempotency key made.
    pub(crate) fn last_of_run(
        self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Res<Option<CheckpointRecord>> {
        match self.namespace(thread, namespace)? {
            Some(namespace) => {
                let found = self.records(sql::RECORD_OF_RUN, params![run.as_bytes(), namespace])?.pop();
                if found.is_none() {
                    neighbors::no_run(self.conn, run, namespace)?;
                }
                Ok(found)
            }
            None => Ok(None),
        }
    }

    /// Returns the id of the head of a namespace.
    pub(crate) fn head_id(self, thread: &ThreadId, namespace: &Namespace) -> Res<Option<CheckpointId>> {
        let Some(id) = self.namespace(thread, namespace)? else { return Ok(None) };
        self.head_row(id, (thread, namespace), |row, _| Ok(CheckpointId::from_bytes(row.id)))
    }

    /// Returns the id of the head of a namespace, with the writes of its tasks.
    pub(crate) fn head_with_writes(self, thread: &ThreadId, namespace: &Namespace) -> Res<Option<StoredHead>> {
        let Some(id) = self.namespace(thread, namespace)? else { return Ok(None) };
        let lease = if namespace.is_root() { lease::of_namespace(self, id)? } else { None };
        self.head_row(id, (thread, namespace), |row, is_moved| {
            let is_continued = is_moved && self.is_continued(id, row.at())?;
            let id = CheckpointId::from_bytes(row.id);
            // A head without tasks has nothing to run, and rarely writes: every run of a thread at rest reads one.
            let writes = self.writes_of(row, row.tasks.is_some())?;
            Ok(StoredHead::new(id, is_continued, writes).with_lease(lease.clone()))
        })
    }

    /// Returns the parts of a head that are wanted.
    pub(crate) fn stored_head(
        self,
        (thread, namespace): NamespaceRef<'_>,
        parts: HeadParts,
    ) -> Res<Option<StoredHead>> {
        if parts == HeadParts::RECORD {
            return Ok(self.head(thread, namespace)?.map(StoredHead::of));
        }
        if !parts.writes {
            let id = self.head_id(thread, namespace)?;
            return Ok(id.map(|id| StoredHead::new(id, false, Vec::new())));
        }
        let found = self.head_with_writes(thread, namespace)?;
        let record = if parts.record { self.head(thread, namespace)? } else { None };
        Ok(found.map(|head| StoredHead { record, ..head }))
    }

    /// Returns whether a checkpoint of its namespace continues the one at (branch, ordinal).
    pub(crate) fn is_continued(self, namespace: i64, (branch, ordinal): (i64, i64)) -> Res<bool> {
        self.conn.one(sql::IS_CONTINUED, [namespace, branch, ordinal])
    }

    /// Returns a checkpoint.
    pub(crate) fn checkpoint(self, at: &CheckpointRef) -> Res<Option<CheckpointRecord>> {
        match self.namespace(&at.thread, &at.namespace)? {
            Some(namespace) => {
                let found = self.records(sql::RECORD_AT, params![namespace, at.checkpoint.as_bytes()])?.pop();
                if found.is_none() {
                    neighbors::no_checkpoint(self.conn, namespace, at.checkpoint.as_bytes())?;
                }
                Ok(found)
            }
            None => Ok(None),
        }
    }

    /// Returns a checkpoint that must exist, and must not be pruned.
    fn must(self, at: &CheckpointRef) -> Res<CheckpointRecord> {
        self.must_row(at, |row| self.record(row))
    }

    /// Reads the row of a checkpoint that must exist.
    pub(crate) fn must_row<T>(self, at: &CheckpointRef, read: impl FnOnce(&RecordRow<'_>) -> Res<T>) -> Res<T> {
        let namespace = self.namespace(&at.thread, &at.namespace)?.ok_or_else(|| missing(at))?;
        let params = params![namespace, at.checkpoint.as_bytes()];
        let read = |row: &RecordRow<'_>| {
            must_be_of((&at.thread, &at.namespace), row)?;
            if row.is_pruned() { Err(is_pruned(&at.thread, &at.checkpoint).into()) } else { read(row) }
        };
        let Some(found) = checkpoint_row(self.conn, sql::RECORD_AT, params, read)? else {
            neighbors::no_checkpoint(self.conn, namespace, at.checkpoint.as_bytes())?;
            return Err(missing(at));
        };
        Ok(found)
    }

    /// Returns branch and ordinal of a checkpoint that must exist, whether it was pruned or not.
    pub(crate) fn lineage_of(self, at: &CheckpointRef) -> Res<(i64, i64)> {
        if !self.has_deletions()? {
            return self.place(at).map(|(_, branch, ordinal)| (branch, ordinal));
        }
        let record = self.checkpoint(at)?.ok_or_else(|| missing(at))?;
        Ok((record.branch as i64, record.ordinal as i64))
    }

    /// Returns seq, branch and ordinal of a checkpoint that must exist: all that most reads need of it.
    pub(crate) fn place(self, at: &CheckpointRef) -> Res<(i64, i64, i64)> {
        self.must_row(at, |row| Ok((row.seq, row.branch, row.ordinal)))
    }

    /// Returns the checkpoints whose id starts with `prefix`. If these are all, the entries beside their places are
    /// verified.
    pub(crate) fn by_prefix(self, thread: &ThreadId, prefix: &str, limit: usize) -> Res<Vec<CheckpointRecord>> {
        let Some((low, high)) = prefix_range(prefix) else { return Ok(Vec::new()) };
        let found = self.records(sql::RECORDS_BY_PREFIX, params![thread.as_str(), low, high, page(limit)])?;
        if (found.len() as i64) < page(limit) {
            let namespaces: Vec<i64> = self.conn.all(sql::NAMESPACES, [thread.as_str()])?;
            for namespace in &namespaces {
                neighbors::no_checkpoint(self.conn, *namespace, &low)?;
                neighbors::no_checkpoint(self.conn, *namespace, &high)?;
            }
            if namespaces.is_empty() {
                neighbors::of_thread(self.conn, thread.as_str())?;
            }
        }
        Ok(found)
    }

    /// Returns the `seq` of the newest checkpoint, 0 without one.
    pub(crate) fn last_seq(self) -> Res<u64> {
        let seq: Option<i64> = self.conn.one(checkpoint::Row::GREATEST, [])?;
        u64::try_from(seq.unwrap_or(0)).map_err(|_| corrupt("the log", "a checkpoint has a negative number"))
    }

    /// Returns the channels and nodes at a checkpoint.
    pub(crate) fn state(self, at: &CheckpointRef) -> Res<StateRecord> {
        Ok(self.state_and_lists(at)?.0)
    }

    /// Returns the channels and nodes at a checkpoint, and the version rows of its lists by channel.
    fn state_and_lists(self, at: &CheckpointRef) -> Res<(StateRecord, BTreeMap<Arc<str>, VersionRow>)> {
        let checkpoint = self.must(at)?;
        let (branch, ordinal) = (checkpoint.branch as i64, checkpoint.ordinal as i64);
        let mut lists = BTreeMap::new();
        let (channels, mut seen) = self.channels(branch, ordinal, &mut lists)?;
        let is_updated =
            |channel: &&ChannelRecord| channel.ordinal == checkpoint.ordinal && channel.value != ChannelValue::Empty;
        debug_assert!(channels.iter().all(|channel| channel.ordinal <= checkpoint.ordinal), "no channel is newer");
        let updated = channels.iter().filter(is_updated).map(|channel| Arc::clone(&channel.channel)).collect();
        seen.sort_by(|a, b| a.node.cmp(&b.node));
        Ok((StateRecord { checkpoint, channels, seen, updated }, lists))
    }

    /// Visits the record of a state, then its channels by name, each list with its items: all of them, or if there are
    /// names of whole lists, the last one of any other list.
    pub(crate) fn read_state(
        self,
        at: &CheckpointRef,
        whole: Option<&[&str]>,
        visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
    ) -> Res<()> {
        let (state, lists) = self.state_and_lists(at)?;
        visit(StatePart::Record(Cow::Borrowed(&state)))?;
        for channel in &state.channels {
            if visit(StatePart::Channel(channel))?
                && let Some(row) = lists.get(&channel.channel)
                && let Some(list) = ChannelRows::of_row(self, row, &channel.channel)?
            {
                let mut item = |row: ItemRow<'_>| visit(StatePart::Item(row)).map(|_| ());
                match whole.is_none_or(|whole| whole.contains(&&*channel.channel)) {
                    true => list.all(&mut item)?,
                    false => list.tail(1, &mut item)?,
                }
            }
        }
        Ok(())
    }

    /// Returns the channels at (branch, ordinal) by name, and the nodes in any order.
    fn channels(
        self,
        branch: i64,
        ordinal: i64,
        lists: &mut BTreeMap<Arc<str>, VersionRow>,
    ) -> Res<(Vec<ChannelRecord>, Vec<Seen>)> {
        let mut payloads = Payloads::new(self)?;
        let (mut channels, mut seen) = (Vec::new(), Vec::new());
        for row in lineage::newest(self, branch, ordinal)?.into_values() {
            if row.kind == SEEN {
                seen.push(self.seen(&row)?);
            } else {
                let channel = self.channel(&row, &mut payloads)?;
                if row.kind == LIST {
                    lists.insert(Arc::clone(&channel.channel), row);
                }
                channels.push(channel);
            }
        }
        channels.sort_by(|a, b| a.channel.cmp(&b.channel));
        Ok((channels, seen))
    }

    /// Returns the checkpoints of a lineage that have these ordinals.
    pub(crate) fn ancestors(self, at: &CheckpointRef, ordinals: &[u64]) -> Res<Vec<Option<CheckpointRecord>>> {
        let (branch, last) = self.lineage_of(at)?;
        let lowest = ordinals.iter().min().and_then(|lowest| i64::try_from(*lowest).ok()).unwrap_or(last);
        let lineage = lineage::spans(self.conn, branch, last, lowest)?;
        let find = |ordinal: &u64| {
            let Some(ordinal) = i64::try_from(*ordinal).ok().filter(|ordinal| *ordinal <= last) else {
                return Ok(None);
            };
            let span = lineage.iter().find(|span| (span.first..=span.last).contains(&ordinal));
            let place = || format!("checkpoint (branch {branch}, ordinal {ordinal} of its lineage)");
            let span = span.ok_or_else(|| corrupt(place(), "no branch of the lineage holds it"))?;
            let found = self.records(sql::RECORD_AT_PLACE, [span.branch, ordinal])?.pop();
            let is_there =
                |found: &CheckpointRecord| (found.branch, found.ordinal) == (span.branch as u64, ordinal as u64);
            found.filter(is_there).map(Some).ok_or_else(|| corrupt(place(), "it is missing"))
        };
        ordinals.iter().map(find).collect()
    }

    pub(crate) fn channel(self, row: &VersionRow, payloads: &mut Payloads<'_>) -> Res<ChannelRecord> {
        let place = || version_place(row.branch, row.ordinal, row.key);
        let wrong = || corrupt(place(), "kind and value do not match the format");
        let value = match (row.kind, &row.value) {
            (EMPTY, _) => ChannelValue::Empty,
            (LIST, _) => ChannelValue::Items,
            (VALUE, KeyContent::Channel(stored)) => {
                let stored = *stored;
                let payload = payloads.with(stored, &place, |payload| Ok(payload.to_payload()))?;
                ChannelValue::Value(payload.ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        };
        Ok(ChannelRecord {
            channel: self.names.text(self.conn, Kind::Channel, row.key)?,
            version: row.version as u64,
            value,
            ordinal: row.ordinal as u64,
            task: row.task,
        })
    }

    /// Returns the versions that a node has seen.
    pub(crate) fn seen(self, row: &VersionRow) -> Res<Seen> {
        let wrong = || corrupt(version_place(row.branch, row.ordinal, row.key), "its seen versions cannot be decoded");
        let KeyContent::Packed(bytes) = &row.value else { return Err(wrong()) };
        let mut versions = Vec::new();
        for (channel, version) in unpack_seen(bytes).ok_or_else(wrong)? {
            versions.push((self.names.text(self.conn, Kind::Channel, channel)?, version));
        }
        Ok(Seen { node: self.names.text(self.conn, Kind::Node, row.key)?, versions })
    }

    /// Returns task and path of a row of `write`: the rows of a run have those of its first one, which is noted.
    pub(crate) fn task_of(
        self,
        tasks: &[TaskRecord],
        row: &write::Row<'_>,
        run: &mut RunTask,
    ) -> Res<(TaskId, Arc<str>)> {
        if row.sum == ValueRef::Null {
            if row.path != ValueRef::Null {
                return Err(corrupt(row.place(), "it has a path and is not the first row of a run"));
            }
            if let Some((_, task, path)) = run.as_ref().filter(|(of, ..)| *of == row.task) {
                return Ok((*task, Arc::clone(path)));
            }
        }
        let wrong = || corrupt(row.place(), "its task is neither prepared nor named with its path");
        let task = task_id(row.task, tasks).ok_or_else(wrong)?;
        let path = match row.path {
            ValueRef::Null => prepared(row.task, tasks).ok_or_else(wrong)?.path(),
            ValueRef::Integer(column) => {
                let (name, number) = of_path_column(column);
                join_path(&self.names.text(self.conn, Kind::Path, name)?, number).into()
            }
            path => path.as_str().map_err(|_| wrong())?.into(),
        };
        *run = Some((row.task, task, Arc::clone(&path)));
        Ok((task, path))
    }

    /// Returns the writes of the tasks of a checkpoint.
    pub(crate) fn writes(self, at: &CheckpointRef) -> Res<Vec<WriteRecord>> {
        self.must_row(at, |row| self.writes_of(row, true))
    }

    /// Lists threads by id.
    pub(crate) fn threads(self, after: Option<&ThreadId>, limit: usize) -> Res<Vec<ThreadRecord>> {
        let limit = page(limit);
        let mut last = after.map_or("", ThreadId::as_str).to_owned();
        neighbors::of_thread(self.conn, &last)?;
        let mut threads: Vec<ThreadRecord> = Vec::new();
        loop {
            let (wanted, mut seen) = (limit - threads.len() as i64, 0);
            let mut statement = self.conn.prepare_cached(sql::THREADS)?;
            let mut rows = statement.query(params![last, wanted])?;
            while let Some(row) = rows.next()? {
                seen += 1;
                let thread::Row { id: thread, public_id, created_at } = thread::Row::verified(row)?;
                let root: Option<i64> = thread::Row::after(row)?;
                let wrong = || corrupt(format!("thread {thread}"), "it does not match the format");
                let id = ThreadId::new(public_id).map_err(|_| wrong())?;
                if *last >= *id.as_str() {
                    return Err(corrupt(format!("thread {thread}"), "the listing gives it out of order"));
                }
                last = id.as_str().to_owned();
                // A thread may have subgraphs alone.
                let Some(root) = root else {
                    neighbors::no_path(self.conn, thread, "")?;
                    continue;
                };
                let head =
                    self.head_row(root, (&id, &Namespace::root()), |row, _| self.record(row))?.ok_or_else(wrong)?;
                threads.push(ThreadRecord { id, created_at: Timestamp::from_micros(created_at), head });
            }
            // At the end of a listing, which reads all of them anyway.
            if seen < wanted && self.conn.one(sql::UNLISTED, [])? {
                return Err(corrupt("thread", "one is stored that the listing does not show"));
            }
            if seen < wanted || threads.len() as i64 >= limit {
                return Ok(threads);
            }
        }
    }

    /// Returns whether rows of the log were ever deleted, or pruned: without that nothing is asked for each row.
    pub(crate) fn has_deletions(self) -> Res<bool> {
        self.conn.one(high_water::Row::EXISTS, [])
    }

    /// Returns whether the checkpoint at (branch, ordinal) was pruned.
    pub(crate) fn is_pruned_at(self, branch: i64, ordinal: i64) -> Res<bool> {
        let source: Option<i64> = self.conn.first(sql::SOURCE_AT_PLACE, [branch, ordinal])?;
        Ok(source.is_some_and(is_pruned_column))
    }

    /// Counts the checkpoints and branches of a thread: those in the indexes, which must be those of its branches.
    /// Those that were pruned do not count.
    pub(crate) fn thread_size(self, thread: &ThreadId) -> Res<ThreadSize> {
        let size: Option<(i64, i64)> = self.conn.first(sql::THREAD_SIZE, [thread.as_str()])?;
        let Some((checkpoints, branches)) = size else { return Ok(ThreadSize::default()) };
        let (mut of_branches, mut counted) = (0_i64, 0_i64);
        for (branch, last) in self.conn.all::<(i64, Option<i64>), Vec<_>>(sql::THREAD_BRANCHES, [thread.as_str()])? {
            let upto = lineage::branch(self.conn, branch)?.upto;
            of_branches = of_branches.saturating_add(last.map_or(0, |last| last.saturating_sub(upto.unwrap_or(-1))));
            counted += 1;
        }
        if (of_branches, counted) != (checkpoints, branches) {
            return Err(corrupt(format!("thread {thread:?}"), "its checkpoints are not those of its branches"));
        }
        let pruned: i64 = match self.has_deletions()? {
            true => self.conn.one(sql::THREAD_PRUNED, [thread.as_str()])?,
            false => 0,
        };
        Ok(ThreadSize::new(checkpoints.saturating_sub(pruned) as u64, branches as u64))
    }

    /// Returns the namespaces of a thread.
    pub(crate) fn namespaces(self, thread: &ThreadId) -> Res<Vec<Namespace>> {
        let mut last = None;
        let namespaces = self.conn.read_all(sql::NAMESPACES, [thread.as_str()], |row| {
            let namespace::Row { id, path, .. } = namespace::Row::verified(row)?;
            last = Some(id);
            Namespace::new(path).map_err(|error| corrupt("namespace", error.to_string()))
        })?;
        neighbors::no_more_namespaces(self.conn, thread, last)?;
        neighbors::no_hidden_namespace(self.conn, &self.names.counted)?;
        Ok(namespaces)
    }
}

pub(crate) fn page(limit: usize) -> i64 {
    limit.min(PAGE_ROWS_MAX) as i64
}

/// Returns the least and the greatest id that start with `prefix`; hyphens are optional.
fn prefix_range(prefix: &str) -> Option<([u8; 16], [u8; 16])> {
    let digits: Option<Vec<u8>> =
        prefix.chars().filter(|&c| c != '-').map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    if digits.is_empty() || digits.len() > 32 {
        return None;
    }
    let (mut low, mut high) = ([0; 16], [0xff; 16]);
    for (at, digit) in digits.into_iter().enumerate() {
        let (shift, mask) = if at % 2 == 0 { (4, 0x0f) } else { (0, 0xf0) };
        low[at / 2] |= digit << shift;
        high[at / 2] = (high[at / 2] & mask) | (digit << shift);
    }
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::prefix_range;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let (low, high) = prefix_range("1F0-a").unwrap();
        assert_eq!((low[..2].to_vec(), high[..3].to_vec()), (vec![0x1f, 0x0a], vec![0x1f, 0x0a, 0xff]));
        assert_eq!(prefix_range("f").unwrap().0[0], 0xf0);
        let whole = "01234567-89ab-6def-8123-456789abcdef";
        assert_eq!(prefix_range(whole).unwrap().0, prefix_range(whole).unwrap().1);
        assert!(
            ["", "-", "x", "0123456789abcdef0123456789abcdef0"].iter().all(|prefix| prefix_range(prefix).is_none())
        );
    }
}
