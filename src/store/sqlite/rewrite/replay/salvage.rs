//! Writes the rows that a recovery can read and not verify as a whole to threads of their own.
//!
//! The checksum of a checkpoint covers its parent, so a lineage ends at its first damaged byte, and a lost page of
//! names ends all of them. The rows after that have checks of their own: those of items and of payloads, and that of
//! the versions of a checkpoint. Those that match are written to the thread `NAME (salvaged)`, checkpoint by
//! checkpoint, on top of the last verified one of their lineage, with metadata that says so. Payloads without a list
//! are appended to the list `salvaged` of their thread, or of the thread `unknown (salvaged)`. *Absent:* tasks, writes,
//! nodes and operations.
//!
//! Invariant: no row of a deleted thread is written.

use super::sql;
use super::{LogReplay, reason};
use crate::base::{CheckpointId, IdSource, Namespace, ThreadId, Timestamp};
use crate::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, Payload};
use crate::store::record::{CheckpointRef, Source};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::rows::item::{DELETE, DELETE_RANGE, PUT, range_position};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::unpack_ranges;
use crate::store::sqlite::rows::source::is_pruned_column;
use crate::store::sqlite::rows::version::{EMPTY, VALUE, VersionRow, versions_check};
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{KeyChecked, OwnedColumns, TableRow, item, version};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The metadata of a checkpoint whose content is not verified.
const METADATA: &str = r#"{"salvaged":"not verified: its rows match their checks, and its lineage is damaged"}"#;
/// The list of payloads whose own list is not known.
const LIST: &str = "salvaged";
/// Payloads without a list that are written at once.
const CHUNK: usize = 1_000;

/// A branch of the old file: its namespace, and the branch that it left with the last ordinal of that.
#[derive(Default)]
struct OldBranch {
    namespace: Option<i64>,
    parent: Option<(i64, i64)>,
}

/// The rows of a checkpoint that was not written anew.
#[derive(Default)]
struct LooseRows {
    /// The rows of `item`, each with whether its check matches.
    items: Vec<(OwnedColumns, bool)>,
    versions: Vec<VersionRow>,
    check: Option<i64>,
}

/// The last checkpoint of a lineage that was written.
struct SalvageBase {
    at: CheckpointRef,
    version: u64,
}

/// The knowledge about the old file.
struct Salvage {
    branches: HashMap<i64, OldBranch>,
    /// The timestamps of checkpoints, by branch and ordinal.
    created: HashMap<(i64, i64), i64>,
    pruned: HashSet<(i64, i64)>,
    /// The salvaged threads by the names of the threads, and the newest checkpoints of their namespaces.
    threads: HashMap<String, ThreadId>,
    heads: HashMap<(ThreadId, Namespace), CheckpointId>,
    /// The payloads of rows whose checks do not match.
    loose: BTreeSet<i64>,
    ids: IdSource,
    now: i64,
}

impl LogReplay<'_> {
    /// Notes a checkpoint that was written, with the versions that its channels have at most.
    pub(super) fn note_place(
        &self,
        (branch, ordinal, seq): (i64, i64, i64),
        at: &CheckpointRef,
        version: i64,
    ) -> Res<()> {
        let row =
            params![branch, ordinal, seq, at.thread.as_str(), at.namespace.as_str(), at.checkpoint.as_bytes(), version];
        self.rows.scratch().run(sql::PLACE_INSERT, row)?;
        Ok(())
    }

    /// Writes what can be read and was not written.
    pub(crate) fn salvage(&mut self) -> Res<()> {
        let mut salvage = self.old_file()?;
        let branches: Vec<i64> = readable(self.rows.conn, sql::BRANCHES)?;
        for branch in branches {
            self.branch(&mut salvage, branch)?;
        }
        self.payloads(&mut salvage)
    }

    fn old_file(&self) -> Res<Salvage> {
        let mut branches: HashMap<i64, OldBranch> = HashMap::new();
        let (mut created, mut pruned) = (HashMap::new(), HashSet::new());
        type Place = (i64, i64, i64, i64, i64);
        let places: Vec<Place> = readable(self.rows.conn, sql::CHECKPOINT_PLACES)?;
        for (branch, ordinal, namespace, at, source) in places {
            branches.entry(branch).or_default().namespace = Some(namespace);
            created.insert((branch, ordinal), at);
            if is_pruned_column(source) {
                pruned.insert((branch, ordinal));
            }
        }
        type Row = (i64, i64, Option<i64>, Option<i64>);
        let rows: Vec<Row> = readable(self.rows.conn, sql::BRANCH_ROWS)?;
        for (id, namespace, parent, upto) in rows {
            let branch = branches.entry(id).or_default();
            branch.namespace.get_or_insert(namespace);
            // A parent has a smaller id, so that a walk to the root ends.
            branch.parent = parent.zip(upto).filter(|(parent, _)| *parent < id);
        }
        let (threads, heads, loose) = Default::default();
        Ok(Salvage { branches, created, pruned, threads, heads, loose, ids: IdSource::from_seed(1), now: 0 })
    }

    /// Returns the name and the path of the thread of a namespace; `None` if it was deleted.
    fn owner(&self, namespace: Option<i64>, of: &str) -> Res<Option<(String, Namespace)>> {
        let unknown = |name: String| Ok(Some((name, Namespace::root())));
        let Some(id) = namespace else { return unknown(of.to_owned()) };
        match self.rows.namespace(id) {
            Ok(Some((thread, path))) => return Ok(Some((thread.as_str().to_owned(), path))),
            Ok(None) => {}
            Err(fault) => {
                reason(fault)?;
                return unknown(format!("namespace {id}"));
            }
        }
        let found = self.rows.conn.first::<(i64, String)>(sql::NAMESPACE, [id]);
        let Ok(Some((thread, path))) = found else { return unknown(format!("namespace {id}")) };
        if !self.knows_deleted || self.rows.is_of_deleted(id).unwrap_or(true) {
            return Ok(None);
        }
        Ok(Some((format!("thread {thread}"), Namespace::new(path).unwrap_or_else(|_| Namespace::root()))))
    }

    /// Returns the salvaged thread for a thread.
    fn salvaged_thread(&self, salvage: &mut Salvage, of: String) -> Res<Option<ThreadId>> {
        if let Some(found) = salvage.threads.get(&of) {
            return Ok(Some(found.clone()));
        }
        let names = (1..).map(|n: u32| match n {
            1 => format!("{of} (salvaged)"),
            n => format!("{of} (salvaged {n})"),
        });
        for name in names {
            // A name that is too long is cut off by none: its rows stay lost.
            let Ok(id) = ThreadId::new(&name) else { return Ok(None) };
            let has = |conn: &Connection| -> Res<bool> { conn.one(engine_sql::HAS_THREAD, [&name]) };
            if !has(self.conn)? && !has(self.rows.conn).unwrap_or(false) {
                salvage.threads.insert(of, id.clone());
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Writes the rows of a branch that were not written.
    fn branch(&mut self, salvage: &mut Salvage, branch: i64) -> Res<()> {
        let loose = self.loose_rows(salvage, branch)?;
        let is_lost = |ordinal: &i64| !salvage.pruned.contains(&(branch, *ordinal));
        if !loose.keys().any(is_lost) {
            return Ok(());
        }
        let namespace = salvage.branches.get(&branch).and_then(|branch| branch.namespace);
        let Some((name, path)) = self.owner(namespace, &format!("branch {branch}"))? else { return Ok(()) };
        let Some(thread) = self.salvaged_thread(salvage, name)? else { return Ok(()) };
        for (ordinal, rows) in loose {
            salvage.now = salvage.created.get(&(branch, ordinal)).copied().unwrap_or(salvage.now);
            let changes = self.loose_changes(salvage, branch, ordinal, rows)?;
            if changes.is_empty() {
                continue;
            }
            let base = self.base(salvage, branch, ordinal)?;
            self.write_loose(salvage, (&thread, &path), base, Some((branch, ordinal)), changes)?;
        }
        Ok(())
    }

    /// Reads the rows of a branch whose checkpoints were not written.
    fn loose_rows(&self, salvage: &mut Salvage, branch: i64) -> Res<BTreeMap<i64, LooseRows>> {
        let done: HashSet<i64> = self.rows.scratch().all(sql::PLACES_OF_BRANCH, [branch])?;
        let mut loose: BTreeMap<i64, LooseRows> = BTreeMap::new();
        let mut statement = self.rows.conn.prepare_cached(sql::ITEMS_OF_BRANCH)?;
        let mut rows = statement.query([branch])?;
        while let Ok(Some(row)) = rows.next() {
            let Ok((item, is_sound)) = item::Row::compared(&self.rows.keys, row) else { continue };
            match item.value.0 {
                _ if !done.contains(&item.ordinal) => {
                    let Ok(columns) = item::Row::owned(row) else { continue };
                    loose.entry(item.ordinal).or_default().items.push((columns, is_sound));
                }
                // A row that damage moved there.
                ValueRef::Integer(payload) if !is_sound => _ = salvage.loose.insert(payload),
                _ => {}
            }
        }
        let mut statement = self.rows.conn.prepare_cached(sql::VERSIONS_OF_BRANCH)?;
        let mut rows = statement.query([branch])?;
        while let Ok(Some(row)) = rows.next() {
            let Ok(row) = version::Row::read(row, 0) else { continue };
            if !done.contains(&row.ordinal)
                && let Ok(version) = VersionRow::of(&row)
            {
                let of = loose.entry(row.ordinal).or_default();
                of.versions.push(version);
                of.check = row.xxh3;
            }
        }
        Ok(loose)
    }

    /// Decodes the rows of a checkpoint whose checks match.
    fn loose_changes(&self, salvage: &mut Salvage, branch: i64, ordinal: i64, rows: LooseRows) -> Res<Vec<Change>> {
        let mut changes: BTreeMap<Arc<str>, ChangeValue> = BTreeMap::new();
        let check = versions_check(&self.rows.keys, branch, ordinal, &rows.versions);
        let is_verified = rows.check == Some(check);
        for row in rows.versions {
            // Without the check of the rows, the value is one that has a check itself.
            let value = row.value.column();
            let is_sound = is_verified || matches!((row.kind, value), (VALUE, ValueRef::Integer(_)));
            let change = match row.kind {
                VALUE if is_sound => self.loose_payload(value)?.map(|value| ChangeValue::Value(Data::New(value))),
                EMPTY if is_sound => Some(ChangeValue::Empty),
                _ => None,
            };
            let channel = self.loose_name(Kind::Channel, row.key)?;
            changes.extend(change.map(|change| (channel, change)));
        }
        for (columns, is_sound) in &rows.items {
            let item = item::Row::of(columns)?;
            let found = if *is_sound { self.loose_item(&item)? } else { None };
            match found {
                Some(found) => {
                    let channel = self.loose_name(Kind::List, item.channel)?;
                    let of = changes.entry(channel).or_insert_with(|| ChangeValue::Items(Vec::new()));
                    match of {
                        ChangeValue::Items(items) => items.extend(found),
                        other => *other = ChangeValue::Items(found),
                    }
                }
                None => {
                    if let ValueRef::Integer(payload) = item.value.0 {
                        salvage.loose.insert(payload);
                    }
                }
            }
        }
        Ok(changes.into_iter().map(|(channel, value)| Change { channel, version: 0, value, task: None }).collect())
    }

    /// Returns the changes of a list for which a row stands.
    fn loose_item(&self, item: &item::Row<'_>) -> Res<Option<Vec<ItemChange>>> {
        let change = |position, op| ItemChange { position, op, task: None };
        Ok(match (item.op, u64::try_from(item.slot)) {
            (PUT, Ok(position)) => {
                self.loose_payload(item.value.0)?.map(|value| vec![change(position, ItemOp::Put(Data::New(value)))])
            }
            (DELETE, Ok(position)) => Some(vec![change(position, ItemOp::Delete)]),
            (DELETE_RANGE, Err(_)) if item.slot == range_position(item.ordinal) => {
                let ranges = item.value.0.as_blob().ok().and_then(unpack_ranges).unwrap_or_default().into_iter();
                Some(ranges.map(|range| change(range.first, ItemOp::DeleteRange { end: range.end })).collect())
            }
            // The items of a referenced list are written where they were put.
            _ => Some(Vec::new()),
        })
    }

    fn loose_name(&self, kind: Kind, id: i64) -> Res<Arc<str>> {
        match self.rows.name(kind, id) {
            Ok(name) => Ok(name),
            Err(fault) => {
                reason(fault)?;
                Ok(format!("channel {id}").into())
            }
        }
    }

    /// Returns a value that matches its check.
    fn loose_payload(&self, value: ValueRef<'_>) -> Res<Option<Payload>> {
        let payload = match value {
            ValueRef::Integer(id) => self.rows.verified_payload(id).map(Some),
            other => self.rows.value(other),
        };
        match payload {
            Ok(payload) => Ok(payload),
            Err(fault) => reason(fault).map(|_| None),
        }
    }

    /// Returns the last checkpoint before an ordinal of a lineage that was written.
    fn base(&self, salvage: &Salvage, branch: i64, ordinal: i64) -> Res<Option<SalvageBase>> {
        let mut next = Some((branch, ordinal - 1));
        while let Some((branch, upto)) = next {
            type Place = (String, String, [u8; 16], i64);
            let place: Option<Place> = self.rows.scratch().first(sql::PLACE_BEFORE, [branch, upto])?;
            if let Some((thread, path, id, version)) = place
                && let (Ok(thread), Ok(path)) = (ThreadId::new(thread), Namespace::new(path))
            {
                let at = CheckpointRef::new(thread, path, CheckpointId::from_bytes(id));
                return self.base_at(at, version);
            }
            let parent = salvage.branches.get(&branch).and_then(|branch| branch.parent);
            next = parent.map(|(parent, end)| (parent, end.min(upto)));
        }
        Ok(None)
    }

    /// Returns a checkpoint with the greatest version of its channels.
    fn base_at(&self, at: CheckpointRef, version: i64) -> Res<Option<SalvageBase>> {
        if let Ok(version @ 1..) = u64::try_from(version) {
            return Ok(Some(SalvageBase { at, version }));
        }
        match self.caches.view(self.conn).state(&at) {
            Ok(state) => {
                let version = state.channels.iter().map(|channel| channel.version).max().unwrap_or_default();
                Ok(Some(SalvageBase { at, version }))
            }
            Err(fault) => reason(fault).map(|_| None),
        }
    }

    /// Writes a checkpoint of a salvaged thread. If its changes do not fit the state before them, those of each channel
    /// are tried alone.
    fn write_loose(
        &mut self,
        salvage: &mut Salvage,
        (thread, path): (&ThreadId, &Namespace),
        base: Option<SalvageBase>,
        place: Option<(i64, i64)>,
        mut changes: Vec<Change>,
    ) -> Res<bool> {
        let version = base.as_ref().map_or(0, |base| base.version) + 1;
        changes.iter_mut().for_each(|change| change.version = version);
        let key = (thread.clone(), path.clone());
        let head = salvage.heads.get(&key).copied();
        let now = Timestamp::from_micros(salvage.now);
        let id = salvage.ids.checkpoint(now, 0, head.as_ref());
        let parent = base.map(|base| match base.at.thread == *thread && base.at.namespace == *path {
            true => Parent::Local(base.at.checkpoint),
            false => Parent::Fork(base.at),
        });
        let step = place.map_or(0, |(_, ordinal)| ordinal);
        let new = |changes: Vec<Change>| {
            let mut new = NewCheckpoint::new(id, parent.clone(), step, Source::Update, now);
            (new.metadata, new.changes) = (Some(METADATA.to_owned()), changes);
            let mut batch = Batch::new(thread.clone(), path.clone(), head);
            batch.checkpoints.push(new);
            batch
        };
        let alone = changes.iter().map(|change| vec![change.clone()]).filter(|_| changes.len() > 1);
        let choices: Vec<Vec<Change>> = std::iter::once(changes.clone()).chain(alone).collect();
        for changes in choices {
            let count = changes.iter().map(count).sum::<u64>();
            let batch = new(changes);
            if batch.validate().is_ok() && self.attempt(&batch, |_| Ok(true))?.is_ok() {
                salvage.heads.insert(key, id);
                self.report.salvaged += count;
                if let Some((branch, ordinal)) = place {
                    let at = CheckpointRef::new(thread.clone(), path.clone(), id);
                    self.note_place((branch, ordinal, i64::MIN), &at, i64::try_from(version).unwrap_or(i64::MAX))?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the payloads whose lists are not known.
    fn payloads(&mut self, salvage: &mut Salvage) -> Res<()> {
        if self.rows.conn.one(sql::HAS_DELETED, []).unwrap_or(true) {
            return Ok(());
        }
        let mut found = std::mem::take(&mut salvage.loose);
        found.extend(readable::<i64>(self.rows.conn, sql::UNREFERENCED)?);
        if found.is_empty() {
            return Ok(());
        }
        let mut owners: HashMap<i64, i64> = HashMap::new();
        type Written = (i64, i64, Option<i64>);
        for (payload, checkpoint, child) in readable::<Written>(self.rows.conn, sql::WRITTEN_PAYLOADS)? {
            let consumer = checkpoint.wrapping_add(child.unwrap_or(0));
            let has = self.rows.scratch().one(sql::HAS_PLACE, [consumer])?;
            if has && !(child.is_none() && self.lost_writes.contains(&checkpoint)) {
                found.remove(&payload);
            } else if found.contains(&payload) {
                owners.insert(payload, checkpoint);
            }
        }
        let mut groups: BTreeMap<Option<i64>, Vec<i64>> = BTreeMap::new();
        for payload in found {
            let namespace = owners.get(&payload).and_then(|seq| self.rows.conn.one(sql::NAMESPACE_OF_SEQ, [seq]).ok());
            groups.entry(namespace).or_default().push(payload);
        }
        for (namespace, payloads) in groups {
            self.payloads_of(salvage, namespace, &payloads)?;
        }
        Ok(())
    }

    fn payloads_of(&mut self, salvage: &mut Salvage, namespace: Option<i64>, payloads: &[i64]) -> Res<()> {
        let Some((name, path)) = self.owner(namespace, "unknown")? else { return Ok(()) };
        let Some(thread) = self.salvaged_thread(salvage, name)? else { return Ok(()) };
        let mut position = 0;
        for chunk in payloads.chunks(CHUNK) {
            let mut items = Vec::new();
            for id in chunk {
                if let Some(payload) = self.loose_payload(ValueRef::Integer(*id))? {
                    items.push(ItemChange { position, op: ItemOp::Put(Data::New(payload)), task: None });
                    position += 1;
                }
            }
            if items.is_empty() {
                continue;
            }
            let change = Change { channel: LIST.into(), version: 0, value: ChangeValue::Items(items), task: None };
            let head = salvage.heads.get(&(thread.clone(), path.clone())).copied();
            let at = head.map(|head| CheckpointRef::new(thread.clone(), path.clone(), head));
            let base = at.map(|at| self.base_at(at, 0)).transpose()?.flatten();
            self.write_loose(salvage, (&thread, &path), base, None, vec![change])?;
        }
        Ok(())
    }
}

/// Returns the number of values that a change writes.
fn count(change: &Change) -> u64 {
    match &change.value {
        ChangeValue::Empty => 0,
        ChangeValue::Value(_) => 1,
        ChangeValue::Items(items) => items.iter().filter(|item| matches!(item.op, ItemOp::Put(_))).count() as u64,
    }
}

/// Reads the rows of a query that can be decoded, up to one that cannot be read.
fn readable<T: FromColumns>(conn: &Connection, query: &str) -> Res<Vec<T>> {
    let mut found = Vec::new();
    let read = conn.each(query, [], |row| {
        found.extend(T::read(row, 0).ok());
        Ok(())
    });
    if let Err(fault) = read {
        reason(fault)?;
    }
    Ok(found)
}
