//! One slice: some checkpoints of a branch that are pruned together.

use super::gone::GoneRows;
use super::{pruned_at, seq_at, sql};
use crate::limits::RECLAIM_COST_MAX;
use crate::store::counts::pruned_metadata;
use crate::store::prune::Pruned;
use crate::store::sqlite::commit::checkpoint::insert_versions;
use crate::store::sqlite::commit::replaced;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::lineage::{self, INTERVAL};
use crate::store::sqlite::read::list_end::positions;
use crate::store::sqlite::rows::checkpoint::RecordRow;
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::pack::{Unpack, ValueColumn, put_uint};
use crate::store::sqlite::rows::source::pruned_column;
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, KeyContent, NO_CHANGES, VersionRow};
use crate::store::sqlite::rows::{sealed, version};
use crate::store::sqlite::side::timer;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::tables::{TableRow, checkpoint, item, write};
use crate::store::sqlite::view::ReadView;
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use std::collections::{BTreeMap, BTreeSet};

/// Checkpoints of a branch that are pruned together, and what surrounds them.
pub(super) struct PruneSlice<'a> {
    pub(super) view: ReadView<'a>,
    pub(super) branch: i64,
    /// The ordinals of the first and the last checkpoint.
    pub(super) first: i64,
    pub(super) last: i64,
    /// The first ordinal of the pruned checkpoints directly before it, or `first`.
    pub(super) run: i64,
    /// The ordinal of the next checkpoint of the branch that is not pruned: its state decides what stays.
    pub(super) top: i64,
    /// True if no row of an older checkpoint lies below the run.
    pub(super) is_bottom: bool,
    /// The rows of `version` of its checkpoints and of the one after it, by ordinal, each by descending key.
    pub(super) rows: BTreeMap<i64, Vec<VersionRow>>,
}

impl<'a> PruneSlice<'a> {
    /// Finds the next checkpoints of a span that can be pruned, at most `limit`. `stays` names those that cannot.
    pub(super) fn next(
        view: ReadView<'a>,
        (branch, first, last): (i64, i64, i64),
        limit: i64,
        stays: &dyn Fn(i64) -> bool,
    ) -> Res<Option<Self>> {
        let conn = view.conn;
        let mut from = first;
        while from <= last && (stays(from) || pruned_at(conn, branch, from)?.is_some()) {
            from += 1;
        }
        if from > last {
            return Ok(None);
        }
        let mut rows = BTreeMap::new();
        let (mut to, mut cost) = (from, 0);
        let end = last.min(from.saturating_add(limit - 1));
        lineage::walk(view, branch, (from, end + 1), &mut |found| {
            rows.extend(found.first().map(|row| row.ordinal).map(|ordinal| (ordinal, found)));
            Ok(true)
        })?;
        for ordinal in from..=end {
            if ordinal > from
                && (cost > RECLAIM_COST_MAX || stays(ordinal) || pruned_at(conn, branch, ordinal)?.is_some())
            {
                break;
            }
            cost += rows.get(&ordinal).map_or(Ok(0), |rows| cost_of(rows))?;
            to = ordinal;
        }
        rows.retain(|ordinal, _| *ordinal <= to + 1);
        let run = run_begin(view, branch, from)?;
        let mut top = to + 1;
        // The last checkpoint of a branch is not pruned.
        while pruned_at(conn, branch, top)?.is_some() {
            top += 1;
        }
        debug_assert!(run <= from && from <= to && to <= end && to < top, "a slice lies between its run and its top");
        let is_bottom = run == 0 && lineage::branch(conn, branch)?.parent.is_none();
        Ok(Some(Self { view, branch, first: from, last: to, run, top, is_bottom, rows }))
    }

    /// Prunes the checkpoints in the transaction that is open.
    pub(super) fn prune(&self) -> Res<Pruned> {
        let conn = self.view.conn;
        let gone = GoneRows::of(self)?;
        let mut seqs = BTreeMap::new();
        for ordinal in self.before()..=self.last {
            seqs.insert(ordinal, seq_at(conn, self.branch, ordinal)?);
        }
        conn.run(log_sql::HIGH_WATER_RAISE, [])?;
        conn.run(log_sql::ERASE_BEGIN, [])?;
        self.delete_items(&gone)?;
        self.delete_versions(&gone)?;
        let mut pruned = Pruned { checkpoints: (self.last - self.first + 1) as u64, ..Pruned::default() };
        for (ordinal, seq) in seqs.range(self.run..=self.last) {
            if !self.has_kept_child(*ordinal) {
                conn.run(write::Row::DELETE_UNDER, [seq])?;
            }
        }
        for id in self.erasable(&gone)? {
            pruned.values += 1;
            pruned.bytes += replaced::payload(conn, id)? as u64;
        }
        for (ordinal, seq) in seqs.range(self.before()..=self.last) {
            self.rewrite(*ordinal, *seq, gone.shared.get(ordinal))?;
        }
        conn.run(log_sql::ERASE_END, [])?;
        Ok(pruned)
    }

    /// Returns the ordinal of the pruned checkpoint directly before the slice, or its first one without that.
    fn before(&self) -> i64 {
        (self.first - 1).max(self.run)
    }

    /// Returns the expected report of the pruning.
    pub(super) fn estimate(&self) -> Res<Pruned> {
        let gone = GoneRows::of(self)?;
        let mut pruned = Pruned { checkpoints: (self.last - self.first + 1) as u64, ..Pruned::default() };
        for id in &gone.erasable {
            pruned.values += 1;
            // A payload that is missing or damaged has no bytes.
            let bytes = self.view.conn.first::<Option<i64>>(sql::PAYLOAD_BYTES, [id]);
            pruned.bytes += bytes.ok().flatten().flatten().unwrap_or(0) as u64;
        }
        Ok(pruned)
    }

    fn delete_items(&self, gone: &GoneRows) -> Res<()> {
        for (list, slot, ordinal) in gone.items.keys() {
            self.view.conn.run(item::Row::DELETE, [self.branch, *list, *slot, *ordinal])?;
        }
        Ok(())
    }

    /// Deletes rows of `version`. A checkpoint without any gets one that says so.
    fn delete_versions(&self, gone: &GoneRows) -> Res<()> {
        let conn = self.view.conn;
        for (ordinal, keys) in &gone.versions {
            let mut rows = match self.rows.get(ordinal) {
                Some(rows) => rows.clone(),
                None => lineage::rows_at(self.view, (self.branch, *ordinal))?,
            };
            rows.retain(|row| !keys.contains(&row.key));
            rows.iter_mut().for_each(|row| row.offset = 0);
            let seq = seq_at(conn, self.branch, *ordinal)?;
            conn.run(sql::VERSIONS_DELETE, [self.branch, *ordinal])?;
            insert_versions(conn, self.view.keys, seq, (self.branch, *ordinal), rows)?;
        }
        Ok(())
    }

    /// Returns the payloads that no row holds any more.
    fn erasable(&self, gone: &GoneRows) -> Res<Vec<i64>> {
        let mut erasable = Vec::with_capacity(gone.erasable.len());
        let mut shared: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (ordinal, id) in &gone.of_run {
            if !shared.contains_key(ordinal) {
                shared.insert(*ordinal, self.shared_at(*ordinal)?);
            }
            let is_shared = shared.get(ordinal).is_some_and(|shared| shared.contains(id));
            if !is_shared || !self.view.conn.one::<bool>(sql::IS_HELD, [self.branch, *ordinal, *id])? {
                erasable.push(*id);
            }
        }
        let of_run: BTreeSet<i64> = gone.of_run.iter().map(|(_, id)| *id).collect();
        erasable.extend(gone.erasable.difference(&of_run));
        Ok(erasable)
    }

    /// Returns the payloads that several rows of a pruned checkpoint held when it was pruned.
    fn shared_at(&self, ordinal: i64) -> Res<Vec<i64>> {
        let conn = self.view.conn;
        let seq = seq_at(conn, self.branch, ordinal)?;
        let (_, parents): (i64, Option<Vec<u8>>) = conn.one(sql::SOURCE_AND_PARENTS, [seq])?;
        let parents = parents.unwrap_or_default();
        let mut packed = Unpack(&parents);
        let mut shared = Vec::new();
        let _run = packed.id();
        while let Some(id) = packed.id() {
            shared.push(id);
        }
        Ok(shared)
    }

    /// Replaces the row of a checkpoint by that of a pruned one.
    fn rewrite(&self, ordinal: i64, seq: i64, shared: Option<&BTreeSet<i64>>) -> Res<()> {
        let conn = self.view.conn;
        let read =
            |row: &Row<'_>| Ok((0..RecordRow::COLUMNS).map(|column| row.get(column)).collect::<Result<_, _>>()?);
        let columns: Option<Vec<Value>> = conn.read_first(log_sql::RECORD_BY_SEQ, [seq], read)?;
        let missing = || corrupt(format!("checkpoint {seq}"), "a row refers to it, but it does not exist");
        let columns = columns.ok_or_else(missing)?;
        let mut record = RecordRow::of(&columns)?;
        let (mut packed, usage);
        if ordinal >= self.first {
            packed = Vec::new();
            put_uint(&mut packed, (ordinal - self.run) as u64);
            shared.into_iter().flatten().for_each(|id| put_uint(&mut packed, *id as u64));
            usage = self.usage_of(&record)?;
            record.row.source = pruned_column(record.source);
            (record.row.parents, record.row.metadata) = (Some(&packed[..]), ValueRef::from(&usage));
            timer::delete_of(conn, record.namespace, seq)?;
        }
        if !self.has_kept_child(ordinal) {
            record.row.tasks = None;
        }
        conn.run(checkpoint::Row::DELETE, [seq])?;
        record.insert(conn)
    }

    /// Returns the metadata that a pruned checkpoint retains.
    fn usage_of(&self, row: &RecordRow<'_>) -> Res<Value> {
        let (conn, keys) = (self.view.conn, self.view.keys);
        let metadata = sealed::metadata(conn, keys, &row.id, row.metadata, &|| row.place())?;
        match pruned_metadata(metadata.as_deref()) {
            Some(usage) if keys.seal_content() => {
                Ok(Value::Blob(keys.seal(&keys.identity("metadata").bytes(&row.id), usage.as_bytes())?))
            }
            usage => Ok(usage.map_or(Value::Null, Value::Text)),
        }
    }

    /// Returns whether the next checkpoint of the branch is not pruned: it has consumed writes of the tasks of its
    /// parent, and its rows name them.
    pub(super) fn has_kept_child(&self, ordinal: i64) -> bool {
        ordinal + 1 == self.top
    }

    /// Returns whether a row of `version` of the branch stays, given the newest rows at the next kept checkpoint.
    pub(super) fn stays(&self, row: &VersionRow, newest: &BTreeMap<i64, VersionRow>) -> bool {
        match row.kind {
            NO_CHANGES => true,
            INDEX_SNAPSHOT => row.ordinal == self.top - self.top.rem_euclid(INTERVAL),
            _ => newest.get(&row.key).is_some_and(|new| (new.branch, new.ordinal) == (row.branch, row.ordinal)),
        }
    }
}

/// Returns the cost of a checkpoint: its rows, and the positions among which its items lie.
fn cost_of(rows: &[VersionRow]) -> Res<usize> {
    let mut cost = 8 + 2 * rows.len();
    for row in rows.iter().filter(|row| row.kind == version::LIST) {
        let end = ListEnd::of(row)?;
        let (first, last) = positions(&end);
        cost = cost
            .saturating_add(usize::try_from(last.saturating_sub(first)).unwrap_or(usize::MAX).min(RECLAIM_COST_MAX));
    }
    Ok(cost)
}

/// Returns the first ordinal of the pruned checkpoints directly before a checkpoint.
fn run_begin(view: ReadView<'_>, branch: i64, ordinal: i64) -> Res<i64> {
    let start = lineage::branch(view.conn, branch)?.upto.map_or(0, |upto| upto + 1);
    let mut run = ordinal;
    while run > start {
        match pruned_at(view.conn, branch, run - 1)? {
            Some(below) => run = (run - 1).saturating_sub(below.max(0)).max(start),
            None => break,
        }
    }
    Ok(run)
}

/// Returns the payload that a row of `version` holds.
pub(super) fn payload_of(row: &VersionRow) -> Option<i64> {
    match &row.value {
        KeyContent::Channel(ValueColumn::Payload(id)) => Some(*id),
        _ => None,
    }
}
