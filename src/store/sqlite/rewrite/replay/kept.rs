//! Checkpoints that were kept when those before them were pruned.
//!
//! A pruned checkpoint has no content of which its checksum could be computed, so it is not written anew, and a kept
//! one after it begins a lineage, with its whole state, as one of a copy does. The checksums of the new file differ
//! from there on. So these checkpoints are verified where they are stored, by the checksum that covers the stored one
//! of the parent, and their state is read as any reader does, with the checks of its rows. *Absent:* a file whose
//! schema is damaged, which no reader opens.
//!
//! Invariant: a checkpoint after a pruned one is written only if its stored checksum and the checks of its rows verify.

use crate::base::{CheckpointId, Namespace, ThreadId};
use crate::store::batch::{Change, Seen};
use crate::store::log::batches::whole_changes;
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRef;
use crate::store::sqlite::check::since;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::rows::checkpoint::checkpoint_row;
use crate::store::sqlite::rows::source::is_pruned_column;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{TableRow, checkpoint};
use crate::store::sqlite::view::ReadView;
use rusqlite::Connection;
use std::collections::HashSet;
use std::sync::Arc;

/// The checkpoints of a file that were pruned, and those whose checksum is another one in the new file.
pub(super) struct KeptRows<'c> {
    /// The old file as readers see it; `None` if its schema is damaged.
    whole: Option<&'c Connection>,
    keys: Arc<Keys>,
    names: Names,
    pruned: HashSet<i64>,
    begun_anew: HashSet<i64>,
}

impl<'c> KeptRows<'c> {
    pub(super) fn new(whole: Option<&'c Connection>, keys: Arc<Keys>) -> Self {
        Self { whole, keys, names: Names::default(), pruned: HashSet::new(), begun_anew: HashSet::new() }
    }

    fn view(&self) -> Option<ReadView<'_>> {
        self.whole.map(|conn| ReadView { conn, names: &self.names, keys: &self.keys })
    }

    /// Returns whether a checkpoint was pruned, and notes it. A damaged row does not count as pruned.
    pub(super) fn is_pruned(&mut self, old: &checkpoint::Row<'_>) -> Res<bool> {
        if !is_pruned_column(old.source) {
            return Ok(false);
        }
        let Some(view) = self.view() else { return Ok(false) };
        let source = checkpoint_row(view.conn, engine_sql::RECORD_BY_SEQ, [old.seq], |row| Ok(row.source))?;
        let is_pruned = source == Some(old.source);
        if is_pruned {
            self.pruned.insert(old.seq);
        }
        Ok(is_pruned)
    }

    /// Returns whether the checkpoint with a `seq` was pruned.
    pub(super) fn was_pruned(&self, seq: i64) -> bool {
        self.pruned.contains(&seq)
    }

    /// Returns whether the parent of a checkpoint was pruned.
    pub(super) fn is_first(&self, old: &checkpoint::Row<'_>) -> bool {
        old.parent.is_some_and(|parent| self.pruned.contains(&parent))
    }

    /// Returns whether the checksum of a checkpoint is another one in the new file.
    pub(super) fn is_after_pruned(&self, old: &checkpoint::Row<'_>) -> bool {
        self.is_first(old) || old.parent.is_some_and(|parent| self.begun_anew.contains(&parent))
    }

    /// Notes that the checksum of a written checkpoint is another one in the new file.
    pub(super) fn note(&mut self, old: &checkpoint::Row<'_>) {
        self.begun_anew.insert(old.seq);
    }

    /// Verifies a checkpoint in the old file.
    pub(super) fn verify(&self, old: &checkpoint::Row<'_>) -> Res<()> {
        let view = self.view().ok_or_else(|| corrupt(old.place(), "a checkpoint before it was pruned"))?;
        match since::verifies(view, old.seq)? {
            true => Ok(()),
            false => Err(corrupt(old.place(), "its checksum does not match")),
        }
    }

    /// Returns the changes that make the state of a checkpoint of nothing, and the nodes that had run.
    pub(super) fn whole_state(
        &self,
        old: &checkpoint::Row<'_>,
        (thread, namespace): &(ThreadId, Namespace),
    ) -> Res<(Vec<Change>, Vec<Seen>)> {
        let missing = || corrupt(old.place(), "the state before it was pruned");
        let view = self.view().ok_or_else(missing)?;
        let at = CheckpointRef::new(thread.clone(), namespace.clone(), CheckpointId::from_bytes(old.id));
        let state = view.state(&at)?;
        let changes = whole_changes(&state, |channel| -> Res<_> {
            let mut items = Vec::new();
            view.items(&at, channel, ItemRange::All, &mut |row| {
                items.push((row.position, row.payload.to_payload()));
                Ok(())
            })?;
            Ok(items)
        })?;
        Ok((changes, state.seen))
    }
}
