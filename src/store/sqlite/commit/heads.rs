//! The heads that the writer retains. *Absent:* the decision which checkpoint is the head, made by `read::head`.

use crate::base::CheckpointId;
use crate::limits::WRITER_CACHE_MAX;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::read::head;
use rusqlite::Connection;

/// The newest checkpoints of namespaces that the writer retains, where they are the heads.
#[derive(Debug, Default)]
pub(crate) struct RetainedHeads(NumberMap<i64, RetainedHead>);

/// A head that the writer has stored.
#[derive(Debug)]
pub(crate) struct RetainedHead {
    seq: i64,
    id: CheckpointId,
    /// True if no task has stored writes at it.
    is_bare: bool,
}

impl RetainedHeads {
    /// Returns the newest checkpoint of a namespace, and its head.
    pub(crate) fn newest_and_head(
        &self,
        conn: &Connection,
        keys: &Keys,
        namespace: i64,
    ) -> Res<(Option<(i64, CheckpointId)>, Option<CheckpointId>)> {
        if let Some(&RetainedHead { seq: newest, id, .. }) = self.0.get(&namespace) {
            debug_assert_eq!(head::head(conn, keys, namespace).ok(), Some(Some(id)), "checkpoint {newest} is the head");
            return Ok((Some((newest, id)), Some(id)));
        }
        let newest = head::newest(conn, namespace)?;
        let head = newest.map(|newest| head::head_id(conn, keys, namespace, newest)).transpose()?.flatten();
        Ok((newest, head))
    }

    /// Retains the checkpoint that a batch has written last in a namespace: it ends a move of the head.
    pub(crate) fn retain(&mut self, namespace: i64, (seq, id): (i64, CheckpointId)) {
        self.0.insert(namespace, RetainedHead { seq, id, is_bare: true });
    }

    /// Notes that a batch stores writes of tasks in a namespace.
    pub(crate) fn note_writes(&mut self, namespace: i64) {
        if let Some(head) = self.0.get_mut(&namespace) {
            head.is_bare = false;
        }
    }

    /// Returns whether it is known that no task has stored writes at a checkpoint, which the caller is about to do.
    pub(crate) fn take_bare(&mut self, namespace: i64, id: &CheckpointId) -> bool {
        match self.0.get_mut(&namespace) {
            Some(head) if head.id == *id => std::mem::take(&mut head.is_bare),
            _ => false,
        }
    }

    /// Returns the head of a namespace if it is known that no task has stored writes at it.
    pub(crate) fn bare(&self, namespace: i64) -> Option<CheckpointId> {
        self.0.get(&namespace).filter(|head| head.is_bare).map(|head| head.id)
    }

    /// Forgets all heads if there are too many.
    pub(crate) fn bound(&mut self) {
        if self.0.len() > WRITER_CACHE_MAX {
            self.clear();
        }
    }

    /// Forgets all heads: an operation moves some.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
