//! Operations of the old file, written anew between the checkpoints that they followed.
//!
//! An operation refers to checkpoints by `seq`, which differ in the new file, so each is decoded and written as a new
//! one is. It is lost if its check does not match, or if a checkpoint that it names is.

use super::rows::OldRows;
use super::{reason, sql};
use crate::base::{CheckpointId, Timestamp};
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationTarget, OperationValue};
use crate::store::sqlite::commit::operation::{ChangeSide, field_of, kind_of, target_of, value_of};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::tables::{KeyChecked, OwnedColumns, TableRow, decoded, operation, operation_change};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;

/// An operation of the old file.
pub(super) struct OldOperation {
    pub(super) id: i64,
    /// The greatest `seq` of the old file when it was made.
    pub(super) seq: i64,
    /// The rows of the operation and of its changes.
    row: OwnedColumns,
    changes: Vec<OwnedColumns>,
}

/// The operations of a file in their order, and what could not be read, with the reason.
pub(super) type FoundOperations = (Vec<OldOperation>, Vec<(String, String)>);

/// Reads the operations of a file.
pub(super) fn read(conn: &Connection, keys: &Keys) -> Res<FoundOperations> {
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    let mut changes: BTreeMap<i64, Vec<OwnedColumns>> = BTreeMap::new();
    each(conn, sql::OPERATION_CHANGES, "operation_change", &mut lost, &mut |row| {
        let operation = operation_change::Row::verified(keys, row)?.operation;
        changes.entry(operation).or_default().push(operation_change::Row::owned(row)?);
        Ok(())
    })?;
    each(conn, sql::OPERATIONS, "operation", &mut lost, &mut |row| {
        let operation::Row { id, seq, .. } = operation::Row::verified(keys, row)?;
        let changes = changes.remove(&id).unwrap_or_default();
        found.push(OldOperation { id, seq, row: operation::Row::owned(row)?, changes });
        Ok(())
    })?;
    Ok((found, lost))
}

/// Visits the rows of a query, and notes those that cannot be decoded, and the damage that ends the reading.
fn each(
    conn: &Connection,
    query: &str,
    table: &str,
    lost: &mut Vec<(String, String)>,
    visit: &mut dyn FnMut(&Row<'_>) -> Res<()>,
) -> Res<()> {
    let read = conn.each(query, [], |row| {
        if let Err(fault) = visit(row) {
            lost.push((table.to_owned(), reason(fault)?));
        }
        Ok(())
    });
    if let Err(fault) = read {
        lost.push((format!("{table} (the rest)"), reason(fault)?));
    }
    Ok(())
}

impl OldOperation {
    /// Returns the operation as a new one, and the heads that it moves: namespaces of the old file with checkpoints.
    /// `new_ids` are the numbers of the operations that were written, and `head` returns the head of a namespace in
    /// place of a pruned checkpoint. `None` if its threads were deleted.
    #[expect(clippy::type_complexity, reason = "the heads are taken apart at once")]
    pub(super) fn decode(
        &self,
        rows: &OldRows<'_>,
        new_ids: &BTreeMap<i64, u64>,
        head: &dyn Fn(i64, i64) -> Option<Option<CheckpointId>>,
    ) -> Res<Option<(NewOperation, Vec<(i64, Option<CheckpointId>)>)>> {
        let wrong = |why: &str| corrupt(format!("operation {}", self.id), why);
        let row = operation::Row::of(&self.row)?;
        let kind = kind_of(row.kind).ok_or_else(|| wrong("its kind does not match the format"))?;
        let mut new = NewOperation::new(kind, Timestamp::from_micros(row.at));
        new.actor = row.actor.map(str::to_owned);
        new.target = match target_of(row.target).ok_or_else(|| wrong("its target does not match the format"))? {
            Some(OperationTarget::Operation(id)) => {
                let id = new_ids.get(&(id as i64)).ok_or_else(|| wrong("the operation that it is about is lost"))?;
                Some(OperationTarget::Operation(*id))
            }
            target => target,
        };
        let mut moved = Vec::new();
        for change in decoded::<operation_change::Row<'_>>(&self.changes)? {
            // The thread was deleted, and its rows are not reclaimed yet.
            let Some((thread, namespace)) = rows.namespace(change.namespace)? else { continue };
            let field = field_of(change.kind, change.key.to_owned()).ok_or_else(|| wrong("a field is not known"))?;
            let value = |side: ChangeSide| {
                value_of((rows.conn, &rows.keys), &change, &field, side, |seq| match rows.checkpoint(seq)? {
                    (of, id, _) if of == change.namespace => Ok(CheckpointId::from_bytes(id)),
                    _ => Err(wrong("it names a checkpoint of another namespace")),
                })
            };
            let (mut before, after) = (value(ChangeSide::Before)?, value(ChangeSide::After)?);
            if field == OperationField::Head
                && let ValueRef::Integer(seq) = change.before
                && let Some(head) = head(change.namespace, seq)
            {
                before = head.map(OperationValue::Checkpoint);
            }
            if field == OperationField::Head {
                let head = match after {
                    Some(OperationValue::Checkpoint(id)) => Some(id),
                    _ => None,
                };
                moved.push((change.namespace, head));
            }
            new.changes.push(OperationChange::new(thread, namespace, field, before, after));
        }
        Ok(if new.changes.is_empty() { None } else { Some((new, moved)) })
    }
}
