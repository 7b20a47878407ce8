//! Checks a file: decodes every row and computes every checksum anew from the rows alone.

mod side;
pub(crate) mod since;
mod tables;
mod task_writes;

use super::fault::{Fault, Res, corrupt, damage};
use super::file::schema;
use super::keys::Keys;
use super::query::{FromColumns, Statements};
use super::read::items::ChannelRows;
use super::read::lineage::{self, INTERVAL};
use super::read::list_end::{self, EndOps, ListEnds};
use super::read::record::{Known, is_pruned_seq};
use super::rows::checksums::{ChangeChecksum, CheckpointChecksum, ItemChecksum, WriteChecksum, payload_hash};
use super::rows::pack::{
    DeletedRange, ValueColumn, pack_index_snapshot, pack_ranges, unpack_parents, unpack_ranges, unpack_reference,
};
use super::rows::payload::inline_value;
use super::rows::sealed;
use super::rows::source::of_source_column;
use super::sql;
use crate::base::ThreadId;
use crate::base::internal::hash::Checksum;
use crate::store::batch::Seen;
use crate::store::check::{CheckReport, CheckedUpTo, Finding, Invariant};
use crate::store::error::StoreError;
use crate::store::record::TaskRecord;
use crate::store::sqlite::read::payloads::Payloads;
use crate::store::sqlite::read::record::RunTask;
use crate::store::sqlite::rows::checkpoint::{RecordRow, step_of};
use crate::store::sqlite::rows::item::{DELETE, DELETE_ALL, DELETE_RANGE, PUT, REFERENCE, item_place, range_position};
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::version::{
    EMPTY, INDEX_SNAPSHOT, KeyContent, LIST, NO_CHANGES, SEEN, VALUE, VersionRow, seq_offset, version_place,
    versions_check,
};
use crate::store::sqlite::tables::{
    KeyChecked, StoredColumn, TableDescription, TableRow, item, thread, tombstone, version, write,
};
use crate::store::sqlite::view::ReadView;
use rusqlite::types::ValueRef;
use rusqlite::{Row, Rows};
use since::First;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A check under way.
pub(crate) struct Checker<'a> {
    pub(crate) view: ReadView<'a>,
    pub(crate) report: CheckReport,
    /// The invariant that is being verified: findings cite it.
    pub(crate) verifies: Invariant,
    /// The hashes of all payloads.
    pub(crate) payloads: HashMap<i64, Checksum>,
    /// The ends of the lists of the checkpoints before, branch by branch.
    pub(crate) ends: ListEnds,
    /// The rows with which the check begins.
    pub(crate) first: First,
    /// The checkpoints whose writes are verified, if the check does not begin with the first row.
    pub(crate) newer: BTreeSet<i64>,
}

/// A part of a check, and the invariant that it begins with.
type CheckPart<'a> = (Invariant, fn(&mut Checker<'a>) -> Res<()>);

/// Verifies the whole file, or the rows of the log that are newer than a point.
pub(crate) fn check<'a>(view: ReadView<'a>, since: Option<&CheckedUpTo>) -> Res<CheckReport> {
    let mut checker = Checker::new(view, First::ALL);
    if since.is_none() {
        checker.integrity()?;
    }
    checker.verifies = Invariant::Schema;
    // It may have changed since the file was opened, and the rows of other tables mean nothing.
    let verified = schema::verify(view.conn);
    if checker.note(verified)?.is_none() {
        return Ok(checker.report);
    }
    checker.report.erasing = view.conn.one::<i64>(tombstone::Row::COUNT, [])? as u64;
    match since {
        Some(since) => checker.first = First::after(view.conn, since)?,
        None => {
            checker.report.threads = view.conn.one::<i64>(thread::Row::COUNT, [])? as u64;
        }
    }
    // Each part goes on after a damaged row; a damaged page ends only its part.
    let whole: [CheckPart<'a>; 16] = [
        (Invariant::Pages, Checker::indexes),
        (Invariant::Keys, Checker::keys),
        (Invariant::LogMark, Checker::log_mark),
        (Invariant::RowChecks, Checker::row_checks),
        (Invariant::ThreadTimes, Checker::thread_times),
        (Invariant::Blobs, Checker::blobs),
        (Invariant::Payloads, Checker::payloads),
        (Invariant::Branches, Checker::branches),
        (Invariant::Ids, Checker::ids),
        (Invariant::Rows, Checker::checkpoints),
        (Invariant::Writes, Checker::writes),
        (Invariant::Operations, Checker::operations),
        (Invariant::Entries, Checker::beside),
        (Invariant::SearchIndex, Checker::search),
        (Invariant::Threads, Checker::threads),
        (Invariant::Ownership, Checker::orphans),
    ];
    let newer: [CheckPart<'a>; 8] = [
        (Invariant::RowChecks, Checker::row_checks),
        (Invariant::Blobs, Checker::blobs),
        (Invariant::Payloads, Checker::payloads),
        (Invariant::Branches, Checker::branches),
        (Invariant::Ids, Checker::ids),
        (Invariant::Rows, Checker::new_checkpoints),
        (Invariant::Writes, Checker::new_writes),
        (Invariant::Ownership, Checker::new_orphans),
    ];
    let parts: &[CheckPart<'a>] = if since.is_none() { &whole } else { &newer };
    for &(invariant, part) in parts {
        checker.verifies = invariant;
        let done = part(&mut checker);
        checker.note(done)?;
    }
    if checker.report.problems.is_empty() {
        checker.report.up_to = Some(since::point(view.conn)?);
    }
    Ok(checker.report)
}

impl<'a> Checker<'a> {
    /// Begins a check with some rows.
    pub(crate) fn new(view: ReadView<'a>, first: First) -> Self {
        Self {
            view,
            report: CheckReport::default(),
            verifies: Invariant::Pages,
            payloads: HashMap::new(),
            ends: ListEnds::default(),
            first,
            newer: BTreeSet::new(),
        }
    }
}

impl Checker<'_> {
    /// Notes a problem of the file; any other error ends the check.
    pub(crate) fn note<T>(&mut self, result: Res<T>) -> Res<Option<T>> {
        match result {
            Ok(value) => return Ok(Some(value)),
            Err(Fault::Store(StoreError::Corrupt { place, reason })) => self.problem(place, reason),
            Err(Fault::Store(error @ StoreError::SchemaChanged { .. })) => self.problem("schema", error.to_string()),
            Err(Fault::Sql(error)) => match damage(&error) {
                // SQLite found it, while another invariant was verified.
                Some(StoreError::Corrupt { place, reason }) if error.sqlite_error_code().is_some() => {
                    self.report.note(Finding::new(Invariant::Pages, place, reason));
                }
                Some(StoreError::Corrupt { place, reason }) => self.problem(place, reason),
                _ => return Err(Fault::Sql(error)),
            },
            Err(fault) => return Err(fault),
        };
        Ok(None)
    }

    /// Notes that the invariant which is being verified does not hold.
    pub(crate) fn problem(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.report.note(Finding::new(self.verifies, place, reason));
    }

    fn integrity(&mut self) -> Res<()> {
        let lines: Vec<String> = self.view.conn.all(sql::INTEGRITY, [])?;
        lines.into_iter().filter(|line| line != "ok").for_each(|line| self.problem("the file", line));
        Ok(())
    }

    fn checkpoints(&mut self) -> Res<()> {
        let conn = self.view.conn;
        let mut statement = conn.prepare_cached(sql::CHECK_CHECKPOINTS)?;
        let mut versions = conn.prepare_cached(sql::CHECK_VERSIONS)?;
        let mut items = conn.prepare_cached(sql::CHECK_ITEMS)?;
        let mut rows = statement.query([First::ALL.checkpoint])?;
        let mut versions = Cursor::new(&version::TABLE, versions.query([])?)?;
        let mut items = Cursor::new(&item::TABLE, items.query([])?)?;
        while let Some(row) = rows.next()? {
            self.verifies = Invariant::Rows;
            let row = CheckedRow::of(row)?;
            let (seq, at) = (row.record.seq, row.record.at());
            let mut content = CheckpointContent::of(&row);
            let strays = versions.take(at, |row| content.version(self, row))?;
            self.strays("version", &strays);
            let strays = items.take(at, |row| content.item(self, row))?;
            self.strays("item", &strays);
            let ends = content.ends();
            let fits = self.checkpoint(&row, content);
            self.note_ends(at, ends);
            self.verified(seq, fits)?;
        }
        self.verifies = Invariant::Rows;
        let strays = versions.take((i64::MAX, i64::MAX), |_| Ok(()))?;
        self.strays("version", &strays);
        let strays = items.take((i64::MAX, i64::MAX), |_| Ok(()))?;
        self.strays("item", &strays);
        Ok(())
    }

    /// Notes the ends of the lists of a checkpoint, also after damage, so that it is reported once.
    pub(crate) fn note_ends(&mut self, at: (i64, i64), ends: Vec<(i64, ListEnd)>) {
        ends.into_iter().for_each(|(key, end)| self.ends.note(at.0, at.1, key, Some(end)));
    }

    /// Counts a checkpoint whose checksum fits its rows, and notes the problem of any other.
    pub(crate) fn verified(&mut self, seq: i64, fits: Res<bool>) -> Res<()> {
        let pruned = is_pruned_seq(self.view.conn, seq)?;
        match self.note(fits)? {
            Some(true) if pruned => self.report.pruned += 1,
            Some(true) => self.report.checkpoints += 1,
            Some(false) => self.problem(format!("checkpoint {seq}"), "its checksum does not match"),
            None => {}
        }
        Ok(())
    }

    fn strays(&mut self, table: &str, strays: &[(i64, i64)]) {
        for (branch, ordinal) in strays {
            self.problem(format!("{table} (branch {branch}, ordinal {ordinal})"), "it belongs to no checkpoint");
        }
    }

    /// Returns whether the checksum of a checkpoint fits its rows.
    pub(crate) fn checkpoint(&mut self, checked: &CheckedRow<'_>, content: CheckpointContent) -> Res<bool> {
        let row = &checked.record;
        let (seq, at, place) = (row.seq, row.at(), || row.place());
        if let Some(fault) = content.fault {
            return Err(fault);
        }
        self.verifies = Invariant::Parents;
        let parent = row.parent.map(|parent| self.view.known(parent)).transpose()?;
        if !checked.follows(parent.as_ref()) {
            return Err(corrupt(place(), "branch and ordinal do not follow from its parent"));
        }
        self.verifies = Invariant::References;
        if content.reference.iter().any(|(thread, of)| row.thread != thread.as_str() || *of >= seq) {
            return Err(corrupt(place(), "a list references one of another thread, or of a later checkpoint"));
        }
        // The state of a pruned parent is not stored; the checks of the rows cover the data derived from it.
        if !content.pruned && parent.as_ref().is_none_or(|parent| !parent.pruned) {
            self.verifies = Invariant::IndexSnapshots;
            self.snapshot(parent.as_ref(), at, content.snapshot.as_deref())?;
            self.verifies = Invariant::ListEnds;
            self.list_ends(parent.as_ref(), at, &content)?;
        }
        self.verifies = Invariant::RowChecks;
        content.verify_checks(self.view.keys, seq, at)?;
        if content.pruned {
            return Ok(true);
        }
        self.verifies = Invariant::Checkpoints;
        let (source, count) = of_source_column(row.source);
        let tasks = self.view.tasks(row.tasks, &place)?;
        let consumed = match (&parent, row.parent) {
            (Some(parent), Some(of)) => self.consumed(of, parent, seq)?,
            _ => Vec::new(),
        };
        if consumed.len() as i64 != count {
            return Err(corrupt(place(), "it consumed another number of writes"));
        }
        let wrong = |what: &str| corrupt(place(), format!("{what} does not match the format"));
        let checksum = CheckpointChecksum {
            thread: row.thread,
            namespace: row.path,
            id: &row.id,
            parent: parent.map(|parent| parent.checksum),
            step: step_of(row.step).ok_or_else(|| wrong("step"))?,
            source,
            created_at: row.created_at,
            run: row.run.as_ref().map(<[u8; 16]>::as_slice),
            metadata: sealed::metadata(self.view.conn, self.view.keys, &row.id, row.metadata, &place)?.as_deref(),
            parents: &unpack_parents(row.parents).ok_or_else(|| wrong("parents"))?,
            tasks: &tasks,
            consumed,
            changes: content.changes.iter().collect(),
            seen: content.seen.iter().collect(),
        }
        .finish(self.view.keys);
        Ok(checksum == row.sum)
    }

    /// Compares an index snapshot with the rows it is derived from.
    fn snapshot(&self, parent: Option<&Known>, at: (i64, i64), stored: Option<&[u8]>) -> Res<()> {
        let (branch, ordinal) = at;
        let due = parent.filter(|_| ordinal % INTERVAL == 0);
        let expected = match due {
            Some(parent) => {
                let newest = lineage::newest(self.view, parent.branch, parent.ordinal)?;
                let places: Vec<_> = newest.values().map(|row| (row.key, row.branch, row.ordinal)).collect();
                Some(pack_index_snapshot(branch, ordinal, &places))
            }
            None => None,
        };
        if expected.as_deref() == stored {
            return Ok(());
        }
        Err(corrupt(version_place(branch, ordinal, 0), "the index snapshot differs from the rows of its lineage"))
    }

    /// Compares the ends of the lists of a checkpoint with those that follow from its rows.
    fn list_ends(&mut self, parent: Option<&Known>, at: (i64, i64), content: &CheckpointContent) -> Res<()> {
        let view = self.view;
        for (key, channel, stored) in &content.lists {
            let Some(change) = content.changes.iter().find(|change| change.channel == *channel) else { continue };
            let list = view.names.find(view.conn, Kind::List, channel)?;
            let wrong = |reason: &str| corrupt(version_place(at.0, at.1, *key), reason);
            let list = list.ok_or_else(|| wrong("its channel is not interned as a list"))?;
            let before = match parent {
                Some(parent) => self.ends.at(view, (parent.branch, parent.ordinal), *key)?,
                None => None,
            };
            let of = content.referenced.get(channel).map(|(seq, of)| view.list_at(*seq, *of)).transpose()?;
            let reference = of.map(|of| of.unwrap_or_else(|| ChannelRows::empty(view, *key, list)));
            let ranges = change.items.iter().filter(|item| item.op == DELETE_RANGE);
            let ranges: Vec<DeletedRange> =
                ranges.map(|item| DeletedRange { first: item.position, end: item.end, task: item.task }).collect();
            let items = change.items.iter().filter(|item| matches!(item.op, PUT | DELETE));
            let items = items.map(|item| (item.position, item.op == PUT)).collect();
            let ops = EndOps { ranges: &ranges, reference: reference.as_ref(), items };
            let expected = list_end::after(view, before, at.0, *key, list, &ops)?;
            if expected != *stored {
                return Err(wrong("the end of the list differs from its items"));
            }
        }
        Ok(())
    }

    fn consumed(&mut self, of: i64, parent: &Known, child: i64) -> Res<Vec<WriteChecksum>> {
        let (conn, mut run) = (self.view.conn, None);
        conn.read_all(sql::CHECK_CONSUMED, [of, child], |row| {
            self.write_checksum(&parent.tasks, &write::Row::read(row, 0)?, &mut run)
        })
    }

    /// Returns a row of `write` as a checksum covers it.
    pub(crate) fn write_checksum(
        &mut self,
        tasks: &[TaskRecord],
        row: &write::Row<'_>,
        run: &mut RunTask,
    ) -> Res<WriteChecksum> {
        let (task, path) = self.view.task_of(tasks, row, run)?;
        let value = self.hash(row.value.0, &|| row.place())?;
        let channel = self.view.names.text(self.view.conn, Kind::Channel, row.channel)?;
        Ok(WriteChecksum { task, path, index: row.idx, part: row.part, channel, value, mark: row.mark })
    }

    /// Returns the hash of the content of a `value` column.
    fn hash(&mut self, column: ValueRef<'_>, place: &dyn Fn() -> String) -> Res<Option<Checksum>> {
        match ValueColumn::from_column(column) {
            Some(ValueColumn::Null) => Ok(None),
            Some(ValueColumn::Inline(inline)) => {
                let hash = payload_hash(self.view.keys, &inline_value(self.view.keys, inline.column(), place)?);
                self.report.values += 1;
                Ok(Some(hash))
            }
            Some(ValueColumn::Payload(id)) => match self.payloads.get(&id) {
                Some(hash) => Ok(Some(*hash)),
                None if id < self.first.payload => {
                    let mut payloads = Payloads::new(self.view)?;
                    let keys = self.view.keys;
                    let hash =
                        payloads.with(ValueColumn::Payload(id), place, |payload| Ok(payload_hash(keys, &payload)))?;
                    self.payloads.extend(hash.map(|hash| (id, hash)));
                    Ok(hash)
                }
                None => Err(corrupt(place(), format!("payload {id} is missing or damaged"))),
            },
            None => Err(corrupt(place(), "its value does not match the format")),
        }
    }
}

/// The changes and seen versions of a checkpoint, gathered from rows.
#[derive(Default)]
pub(crate) struct CheckpointContent {
    changes: Vec<ChangeChecksum>,
    seen: Vec<Seen>,
    snapshot: Option<Vec<u8>>,
    /// The rows of `version` by key, and the check on the last one.
    versions: Vec<VersionRow>,
    check: Option<i64>,
    /// The first row of `item` whose check does not match.
    unverified: Option<String>,
    /// The checkpoints whose lists its lists begin as, and their threads.
    reference: Vec<(ThreadId, i64)>,
    /// The channels: name and channel.
    keys: Vec<(i64, Arc<str>)>,
    /// The lists: name, channel and stored end.
    lists: Vec<(i64, Arc<str>, ListEnd)>,
    /// The `seq` and the channel of the list that a list references, by channel.
    referenced: HashMap<Arc<str>, (i64, i64)>,
    /// The first damage; the rows after it are read over.
    fault: Option<Fault>,
    /// True if it was pruned: it has the rows that later checkpoints show.
    pruned: bool,
}

impl CheckpointContent {
    /// Begins to gather the rows of a checkpoint.
    pub(crate) fn of(row: &CheckedRow<'_>) -> Self {
        Self { pruned: row.record.is_pruned(), ..Self::default() }
    }

    /// Returns the stored ends of its lists, by name.
    pub(crate) fn ends(&self) -> Vec<(i64, ListEnd)> {
        self.lists.iter().map(|(key, _, end)| (*key, *end)).collect()
    }

    /// Returns the channels that changed: name, channel and, of a list, the stored end.
    pub(crate) fn changed(&self) -> Vec<(i64, Arc<str>, Option<ListEnd>)> {
        let end = |key: i64| self.lists.iter().find(|(of, ..)| *of == key).map(|(.., end)| *end);
        self.keys.iter().map(|(key, channel)| (*key, Arc::clone(channel), end(*key))).collect()
    }

    pub(crate) fn version(&mut self, checker: &mut Checker<'_>, row: &Row<'_>) -> Res<()> {
        let added = version::Row::read(row, 0).and_then(|row| self.add_version(checker, &row));
        self.fault = self.fault.take().or(added.err());
        Ok(())
    }

    pub(crate) fn item(&mut self, checker: &mut Checker<'_>, row: &Row<'_>) -> Res<()> {
        let added = self.add_item(checker, row);
        self.fault = self.fault.take().or(added.err());
        Ok(())
    }

    fn add_version(&mut self, checker: &mut Checker<'_>, stored: &version::Row<'_>) -> Res<()> {
        self.check = stored.xxh3;
        let row = VersionRow::of(stored)?;
        let (at, key, kind) = ((row.branch, row.ordinal), row.key, row.kind);
        let place = || version_place(at.0, at.1, key);
        let wrong = || corrupt(place(), "kind and value do not match the format");
        let view = checker.view;
        // Only a change has a task that made it.
        if matches!(kind, INDEX_SNAPSHOT | SEEN | NO_CHANGES) && row.task.is_some() {
            return Err(wrong());
        }
        match (kind, &row.value) {
            (NO_CHANGES, KeyContent::Channel(ValueColumn::Null)) if key == 0 => {}
            (INDEX_SNAPSHOT, KeyContent::Packed(places)) if key == 0 => self.snapshot = Some(places.clone()),
            (SEEN, _) => self.seen.push(view.seen(&row)?),
            (EMPTY | VALUE | LIST, content) => {
                let channel = view.names.text(view.conn, Kind::Channel, key)?;
                self.keys.push((key, Arc::clone(&channel)));
                let value = match content {
                    KeyContent::Channel(value) => {
                        checker.ends.note(at.0, at.1, key, None);
                        checker.hash(value.column(), &place)?
                    }
                    KeyContent::Packed(_) => {
                        self.lists.push((key, Arc::clone(&channel), ListEnd::of(&row)?));
                        None
                    }
                };
                if value.is_some() != (kind == VALUE) {
                    return Err(wrong());
                }
                let (version, task) = (row.version, row.task);
                self.changes.push(ChangeChecksum { channel, version, kind, task, value, items: Vec::new() });
            }
            _ => return Err(wrong()),
        }
        self.versions.push(row);
        Ok(())
    }

    /// Verifies the checks of the rows.
    fn verify_checks(&self, keys: &Keys, seq: i64, at: (i64, i64)) -> Res<()> {
        let last = self.versions.len().saturating_sub(1);
        let offset = |row: usize| if row == last { seq_offset(seq, at.1) } else { 0 };
        if let Some((_, row)) = self.versions.iter().enumerate().find(|(row, version)| version.offset != offset(*row)) {
            return Err(corrupt(version_place(at.0, at.1, row.key), "it does not lead to its checkpoint"));
        }
        let is_marked = self.versions.iter().any(|row| row.kind == NO_CHANGES);
        let versions = versions_check(keys, at.0, at.1, &self.versions);
        let place = match &self.unverified {
            Some(place) => place.clone(),
            None if self.check == Some(versions) && (!is_marked || self.versions.len() == 1) => return Ok(()),
            None => format!("version (branch {}, ordinal {})", at.0, at.1),
        };
        Err(corrupt(place, "the check does not match"))
    }

    fn add_item(&mut self, checker: &mut Checker<'_>, row: &Row<'_>) -> Res<()> {
        let (row, is_verified) = item::Row::compared(checker.view.keys, row)?;
        let item::Row { branch, channel, slot: position, ordinal, op, task, value: StoredColumn(column) } = row;
        let place = || item_place(branch, channel, position, ordinal);
        if !is_verified {
            self.unverified.get_or_insert_with(place);
        }
        let wrong = || corrupt(place(), "operation and value do not match the format");
        let (name, packed) = (checker.view.names.text(checker.view.conn, Kind::List, channel)?, column.as_blob().ok());
        if self.pruned {
            let value = if op == PUT { checker.hash(column, &place)? } else { None };
            return if value.is_some() == (op == PUT) { Ok(()) } else { Err(wrong()) };
        }
        let change = self.changes.iter_mut().find(|change| change.channel == name);
        let change = change.ok_or_else(|| corrupt(place(), "its channel has no version there"))?;
        if change.kind != LIST {
            // The range delete of everything follows from the change, and no checksum covers it.
            let derived = op == DELETE_RANGE
                && position == range_position(ordinal)
                && column == ValueRef::Blob(&pack_ranges(&[DELETE_ALL]));
            return if derived { Ok(()) } else { Err(wrong()) };
        }
        match op {
            DELETE_RANGE if position == range_position(ordinal) => {
                for DeletedRange { first, end, task } in packed.and_then(unpack_ranges).ok_or_else(wrong)? {
                    change.items.push(ItemChecksum { op, position: first, end, task, value: None });
                }
            }
            REFERENCE if position == range_position(ordinal) => {
                let (seq, list) = packed.and_then(unpack_reference).ok_or_else(wrong)?;
                let (thread, of) = checker.view.list_ref(seq, list)?;
                change.items.push(ItemChecksum::of_reference(checker.view.keys, &of, task));
                self.reference.push((thread, seq));
                self.referenced.insert(name, (seq, list));
            }
            PUT | DELETE if position >= 0 => {
                let value = checker.hash(column, &place)?;
                if value.is_some() != (op == PUT) {
                    return Err(wrong());
                }
                change.items.push(ItemChecksum { op, position: position as u64, end: 0, task, value });
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

/// Rows in the order of (branch, ordinal), read along with the checkpoints.
struct Cursor<'s> {
    table: &'static TableDescription,
    /// The columns of branch and ordinal.
    at: [usize; 2],
    rows: Rows<'s>,
    next: Option<(i64, i64)>,
}

impl<'s> Cursor<'s> {
    fn new(table: &'static TableDescription, rows: Rows<'s>) -> Res<Self> {
        let at = ["branch", "ordinal"].map(|name| table.position(name));
        let mut cursor = Self { table, at, rows, next: None };
        cursor.advance()?;
        Ok(cursor)
    }

    fn advance(&mut self) -> Res<()> {
        self.next = match self.rows.next()? {
            Some(row) => Some((row.get(self.at[0])?, row.get(self.at[1])?)),
            None => None,
        };
        Ok(())
    }

    /// Hands the rows of `at` to `each`; returns the places before it, which belong to no checkpoint.
    fn take(&mut self, at: (i64, i64), mut each: impl FnMut(&Row<'_>) -> Res<()>) -> Res<Vec<(i64, i64)>> {
        use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
        let mut strays = Vec::new();
        while let Some(next) = self.next.filter(|next| *next <= at) {
            if next < at {
                strays.push(next);
            } else if let Some(row) = self.rows.get() {
                each(row)?;
            } else {
                return Err(corrupt(self.table.name, "a row went away while it was read"));
            }
            self.advance()?;
        }
        Ok(strays)
    }
}

/// A row of `sql::CHECK_CHECKPOINTS`: a checkpoint, and the place that its branch leaves.
pub(crate) struct CheckedRow<'r> {
    record: RecordRow<'r>,
    left: (Option<i64>, Option<i64>),
}

impl<'r> CheckedRow<'r> {
    /// Reads a row, whose own check is verified with those of other tables.
    fn of(row: &'r Row<'_>) -> Res<Self> {
        Ok(Self { record: RecordRow::unverified(row)?, left: FromColumns::read(row, RecordRow::COLUMNS)? })
    }

    /// Returns whether the place is the one after the parent, on the branch of that or on one that leaves it there.
    fn follows(&self, parent: Option<&Known>) -> bool {
        let (branch, ordinal) = self.record.at();
        match parent {
            None => ordinal == 0 && self.left.0.is_none(),
            Some(parent) => {
                let forked = self.left == (Some(parent.branch), Some(parent.ordinal));
                parent.ordinal.checked_add(1) == Some(ordinal) && (parent.branch == branch || forked)
            }
        }
    }
}
