//! Writes the row of a checkpoint, and its rows of `version`, with their checks.

use super::batch::Tx;
use crate::base::internal::hash::Checksum;
use crate::store::batch::{NewCheckpoint, Parent};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::lineage::{self, INTERVAL};
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::rows::checkpoint::{RecordRow, RunHolder, StatedColumns};
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::{RowPlace, ValueColumn};
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, KeyContent, NO_CHANGES, SEEN, VersionRow};
use crate::store::sqlite::rows::{pack, version};
use crate::store::sqlite::tables::{self, TableRow, checkpoint};
use rusqlite::Connection;

impl Tx<'_> {
    /// Inserts the row of a checkpoint under a `seq`, with the column `source`, at (branch, ordinal). Returns the one
    /// that holds the id of its run.
    pub(crate) fn insert_checkpoint(
        &mut self,
        new: &NewCheckpoint,
        (seq, source): (i64, i64),
        parent: Option<&Known>,
        (branch, ordinal): (i64, i64),
        checksum: &Checksum,
    ) -> Res<Option<RunHolder>> {
        // The place of a parent in another namespace, as a reader sees it.
        let elsewhere = match &new.parent {
            Some(Parent::Fork(of)) => {
                let namespace = self.caches.namespace(self.conn, &of.thread, &of.namespace)?;
                Some(of).filter(|_| namespace != Some(self.namespace))
            }
            _ => None,
        };
        let tasks = self.pack_tasks(&new.tasks)?;
        let parents = pack::pack_parents(&new.parents);
        let stated = StatedColumns::of(&self.caches.keys, new)?;
        let row = checkpoint::Row {
            seq,
            namespace: self.namespace,
            parent: parent.map(|parent| parent.seq),
            branch,
            ordinal,
            source,
            parents: parents.as_deref(),
            tasks: tasks.as_deref(),
            sum: *checksum,
            ..stated.row()
        };
        let mut record = RecordRow {
            row,
            thread: self.batch.thread.as_str(),
            path: self.batch.namespace.as_str(),
            parent_id: parent.map(|parent| *parent.id.as_bytes()),
            parent_thread: elsewhere.map(|of| of.thread.as_str()),
            parent_path: elsewhere.map(|of| of.namespace.as_str()),
            parent_ordinal: parent.map(|parent| parent.ordinal),
            parent_branch: parent.map(|parent| parent.branch),
            run: new.run.as_ref().map(|run| *run.as_bytes()),
            created_at: new.created_at.as_micros(),
        };
        let of = parent.and_then(|parent| parent.run);
        if let Some((run, since)) = of.and_then(|of| of.columns(&record)) {
            (record.row.run, record.row.created_at) = (run, since);
        }
        record.insert(self.conn)?;
        Ok(record.run_holder())
    }

    /// Adds the rows of what nodes have seen to those of the checkpoint.
    pub(crate) fn put_seen(&mut self, branch: i64, ordinal: i64, checkpoint: &NewCheckpoint) -> Res<()> {
        for seen in &checkpoint.seen {
            let node = self.caches.intern(self.conn, Kind::Node, &seen.node)?;
            let mut pairs = Vec::with_capacity(seen.versions.len());
            for (channel, version) in &seen.versions {
                pairs.push((self.caches.intern(self.conn, Kind::Channel, channel)?, *version));
            }
            let value = KeyContent::Packed(pack::pack_seen(pairs));
            self.put_version(VersionRow::derived(SEEN, (branch, ordinal), node, value));
        }
        Ok(())
    }

    /// Writes the index snapshot: the place of the newest row of every key before `ordinal`.
    pub(crate) fn put_index_snapshot(&mut self, parent: &Known, branch: i64, ordinal: i64) -> Res<()> {
        debug_assert_eq!(ordinal % INTERVAL, 0);
        let scan = || -> Res<Vec<RowPlace>> {
            let newest = lineage::newest(self.caches.view(self.conn), parent.branch, parent.ordinal)?;
            Ok(newest.values().map(|row| (row.key, row.branch, row.ordinal)).collect())
        };
        let places = match self.caches.places.at(parent.branch, parent.ordinal) {
            Some(places) => {
                debug_assert_eq!(scan().ok().as_ref(), Some(&places), "the places that were retained");
                places
            }
            None => scan()?,
        };
        debug_assert!(places.iter().all(|(_, _, of)| *of < ordinal));
        self.caches.places.begin(branch, ordinal, &places);
        let value = KeyContent::Packed(pack::pack_index_snapshot(branch, ordinal, &places));
        self.put_version(VersionRow::derived(INDEX_SNAPSHOT, (branch, ordinal), 0, value));
        Ok(())
    }
}

/// Inserts the rows of `version` of a checkpoint. The one with the greatest key has the check of all, and leads to the
/// checkpoint.
pub(crate) fn insert_versions(
    conn: &Connection,
    keys: &Keys,
    seq: i64,
    (branch, ordinal): (i64, i64),
    mut rows: Vec<VersionRow>,
) -> Res<()> {
    if rows.is_empty() {
        let value = KeyContent::Channel(ValueColumn::Null);
        rows.push(VersionRow::derived(NO_CHANGES, (branch, ordinal), 0, value));
    }
    rows.sort_unstable_by_key(|row| row.key);
    let last = rows.len() - 1;
    rows[last].offset = version::seq_offset(seq, ordinal);
    let check = version::versions_check(keys, branch, ordinal, &rows);
    let mut insert = conn.prepare_cached(tables::version::Row::INSERT)?;
    let mut before = None;
    for (at, row) in rows.iter().enumerate() {
        let row = row.columns(Some(check).filter(|_| at == last));
        row.store_by(&mut insert, before.as_ref(), None)?;
        before = Some(row);
    }
    Ok(())
}
