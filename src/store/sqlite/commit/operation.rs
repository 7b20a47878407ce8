//! Rows of operations: written with the fields that they change, and read in pages.
//!
//! *Absent:* heads as commits change them ([`heads`](crate::store::sqlite::read::head)), and the rules of undo.

use super::caches::Caches;
use super::ids::Table;
use super::{batch, caches};
use crate::base::limits::PAGE_ROWS_MAX;
use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp};
use crate::store::error::StoreError;
use crate::store::operation::{
    BranchRecord, ExpectedNewest, NewOperation, OperationChange, OperationField, OperationKind, OperationQuery,
    OperationRecord, OperationTarget, OperationValue, TRASHED, sort_changes, trashed_until,
};
use crate::store::prune::is_pruned;
use crate::store::record::CheckpointRef;
use crate::store::sqlite::fault::{Fault, Res, corrupt};
use crate::store::sqlite::index::threads;
use crate::store::sqlite::keys::{Identity, Keys};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::read::head::{self, HEAD_KIND, id_of};
use crate::store::sqlite::read::record::is_pruned_seq;
use crate::store::sqlite::rows::checkpoint::point_of;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{Checked, KeyChecked, TableRow, branch, checkpoint, operation, operation_change};
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use parking_lot::Mutex;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// The kinds of the change of a field; that of a head is [`HEAD_KIND`].
const BRANCH_KIND: i64 = 1;
const CURRENT_KIND: i64 = 2;
const FACT_KIND: i64 = 3;

/// An operation that is to be written: a job of the writer role.
#[derive(Clone, Debug)]
pub(crate) struct OperationJob {
    pub(crate) operation: NewOperation,
    /// The number that it got.
    pub(crate) id: Arc<Mutex<u64>>,
}

/// Returns the number by which the file stands for a kind.
fn kind_column(kind: OperationKind) -> i64 {
    match kind {
        OperationKind::Rewind => 0,
        OperationKind::Switch => 1,
        OperationKind::NameBranch => 2,
        OperationKind::Facts => 3,
        OperationKind::Undo => 4,
        OperationKind::Redo => 5,
    }
}

/// Returns the kind for which a number stands.
pub(crate) fn kind_of(column: i64) -> Option<OperationKind> {
    OperationKind::ALL.into_iter().find(|known| kind_column(*known) == column)
}

/// Returns the target that a column holds.
pub(crate) fn target_of(column: ValueRef<'_>) -> Option<Option<OperationTarget>> {
    Some(match column {
        ValueRef::Null => None,
        ValueRef::Integer(id) => Some(OperationTarget::Operation(u64::try_from(id).ok()?)),
        ValueRef::Blob(id) => Some(OperationTarget::Commits(CheckpointId::from_bytes(id.try_into().ok()?))),
        _ => return None,
    })
}

/// Returns the kind and the key by which the file stands for a field.
fn field_columns(field: &OperationField) -> (i64, &str) {
    match field {
        OperationField::Head => (HEAD_KIND, ""),
        OperationField::Branch(name) => (BRANCH_KIND, name),
        OperationField::CurrentBranch => (CURRENT_KIND, ""),
        OperationField::Fact(name) => (FACT_KIND, name),
    }
}

/// Returns the field for which a kind and a key stand.
pub(crate) fn field_of(kind: i64, key: String) -> Option<OperationField> {
    match (kind, key.is_empty()) {
        (HEAD_KIND, true) => Some(OperationField::Head),
        (BRANCH_KIND, false) => Some(OperationField::Branch(key)),
        (CURRENT_KIND, true) => Some(OperationField::CurrentBranch),
        (FACT_KIND, false) => Some(OperationField::Fact(key)),
        _ => None,
    }
}

/// Writes an operation in the transaction that is open.
pub(crate) fn write(conn: &Connection, caches: &mut Caches, job: &OperationJob) -> Res<()> {
    caches::refresh(conn, caches)?;
    caches.heads.clear();
    let new = &job.operation;
    let mut namespaces = Vec::with_capacity(new.changes.len());
    for change in &new.changes {
        let not_found = || Fault::Store(StoreError::ThreadNotFound { id: change.thread.clone() });
        namespaces.push(caches.namespace(conn, &change.thread, &change.namespace)?.ok_or_else(not_found)?);
    }
    if let Some(id) = stored(conn, caches, new, namespaces[0])? {
        *job.id.lock() = id;
        return Ok(());
    }
    for (change, namespace) in new.changes.iter().zip(&namespaces) {
        compare(conn, caches, change, *namespace)?;
    }
    if let Some(expected) = &new.newest {
        compare_newest(conn, caches, expected)?;
    }
    let id = caches.ids.next(conn, Table::Operation)?;
    let seq: Option<i64> = conn.one(checkpoint::Row::GREATEST, [])?;
    let target = match new.target {
        None => Value::Null,
        Some(OperationTarget::Operation(id)) => Value::Integer(id as i64),
        Some(OperationTarget::Commits(id)) => Value::Blob(id.as_bytes().to_vec()),
    };
    let row = operation::Row {
        id,
        kind: kind_column(new.kind),
        seq: seq.unwrap_or(0),
        at: new.at.as_micros(),
        actor: new.actor.as_deref(),
        target: ValueRef::from(&target),
        changes: new.changes.len() as i64,
    };
    row.insert(conn, &caches.keys)?;
    for (change, namespace) in new.changes.iter().zip(&namespaces) {
        insert_change(conn, &caches.keys, change, *namespace, id)?;
    }
    *job.id.lock() = id as u64;
    // The status and the facts follow from the root namespace.
    let roots = new.changes.iter().zip(namespaces).filter(|(change, _)| change.namespace.is_root());
    for namespace in roots.map(|(_, namespace)| namespace).collect::<BTreeSet<i64>>() {
        if let Some((newest, _)) = head::newest(conn, namespace)? {
            threads::after_change(conn, caches, namespace, newest)?;
        }
    }
    Ok(())
}

/// Reads the content of the fact `trashed`.
fn end_in_trash(value: Option<OperationValue>) -> Option<Timestamp> {
    match value {
        Some(OperationValue::Text(until)) => trashed_until(&until),
        _ => None,
    }
}

/// Returns the number of the operation if it is stored already: a repeat after an unknown outcome writes nothing.
fn stored(conn: &Connection, caches: &Caches, new: &NewOperation, namespace: i64) -> Res<Option<u64>> {
    let Some(first) = new.changes.first() else { return Ok(None) };
    let (kind, key) = field_columns(&first.field);
    let read = |row: &Row<'_>| operation_change::Row::verified(&*caches.keys, row).map(|row| row.operation);
    let last = conn.read_first(sql::FIELD_CHANGE, params![namespace, kind, key], read)?;
    let view = caches.view(conn);
    let found = last.map(|last| view.operation(last)).transpose()?;
    Ok(found.filter(|found| new.is_stored_as(found)).map(|found| found.id))
}

/// Compares the present content of a field with the one that a change expects.
fn compare(conn: &Connection, caches: &Caches, change: &OperationChange, namespace: i64) -> Res<()> {
    let keys = &*caches.keys;
    if change.field == OperationField::Head {
        return Ok(change.compare(head::head(conn, keys, namespace)?.map(OperationValue::Checkpoint))?);
    }
    Ok(change.compare(caches.view(conn).field(namespace, &change.field)?)?)
}

/// Compares the newest operation of a thread with the one on which an operation rests.
fn compare_newest(conn: &Connection, caches: &mut Caches, expected: &ExpectedNewest) -> Res<()> {
    let root = caches.namespace(conn, &expected.thread, &Namespace::root())?;
    let root = root.ok_or_else(|| StoreError::ThreadNotFound { id: expected.thread.clone() })?;
    let operation: Option<i64> = conn.first(sql::OPERATIONS_OF, params![root, i64::MAX, 1])?;
    let checkpoint = head::newest(conn, root)?.map(|(_, id)| id);
    Ok(expected.compare(operation.map(|id| id as u64), checkpoint)?)
}

fn insert_change(conn: &Connection, keys: &Keys, change: &OperationChange, namespace: i64, id: i64) -> Res<()> {
    let newest = head::newest(conn, namespace)?.map_or(0, |(seq, _)| seq);
    let column = |value: &Option<OperationValue>, side: ChangeSide| -> Res<Value> {
        Ok(match value {
            None => Value::Null,
            Some(OperationValue::Text(text)) if is_sealed(keys, &change.field) => {
                Value::Blob(keys.seal(&identity(keys, (namespace, &change.field), id, side), text.as_bytes())?)
            }
            Some(OperationValue::Text(text)) => Value::Text(text.clone()),
            Some(OperationValue::Checkpoint(id)) => {
                let missing = || batch::not_found(&change.thread, id);
                let seq = neighbors::must_find(conn, namespace, id, missing)?;
                if matches!(side, ChangeSide::After) && is_pruned_seq(conn, seq)? {
                    return Err(is_pruned(&change.thread, id).into());
                }
                Value::Integer(seq)
            }
        })
    };
    let (before, after) = (column(&change.before, ChangeSide::Before)?, column(&change.after, ChangeSide::After)?);
    let (kind, key) = field_columns(&change.field);
    let (before, after) = (ValueRef::from(&before), ValueRef::from(&after));
    operation_change::Row { namespace, kind, key, operation: id, newest, before, after }.insert(conn, keys)
}

/// The side of a change on which a value stands.
#[derive(Clone, Copy)]
pub(crate) enum ChangeSide {
    Before = 0,
    After = 1,
}

/// Facts are content, so an encrypted file seals them.
fn is_sealed(keys: &Keys, field: &OperationField) -> bool {
    matches!(field, OperationField::Fact(_)) && keys.seal_content()
}

/// Returns the identity of a sealed fact.
fn identity(keys: &Keys, (namespace, field): (i64, &OperationField), operation: i64, side: ChangeSide) -> Identity {
    let name = field_columns(field).1.as_bytes();
    keys.identity("fact").int(namespace).bytes(name).int(operation).int(side as i64)
}

/// Opens a sealed fact of an operation.
fn open_fact(
    conn: &Connection,
    keys: &Keys,
    of: (i64, &OperationField),
    (operation, side): (i64, ChangeSide),
    sealed: &[u8],
) -> Res<String> {
    let (mut plain, place) = (Vec::new(), || "operation_change".to_owned());
    keys.open(conn, &identity(keys, of, operation, side), sealed, &mut plain, &place)?;
    String::from_utf8(plain).map_err(|_| corrupt(place(), "a value does not match the format"))
}

/// Verifies that the numbers of a listing go down from below one: pages that do not might never end.
fn must_descend(above: i64, numbers: &[i64]) -> Res<()> {
    match std::iter::once(&above).chain(numbers).is_sorted_by(|one, next| one > next) {
        true => Ok(()),
        false => Err(corrupt(format!("the operations before {above}"), "the listing gives them out of order")),
    }
}

/// Decodes the content of a field before or after an operation; `id_of` reads the id of a checkpoint.
pub(crate) fn value_of(
    (conn, keys): (&Connection, &Keys),
    row: &operation_change::Row<'_>,
    field: &OperationField,
    side: ChangeSide,
    id_of: impl FnOnce(i64) -> Res<CheckpointId>,
) -> Res<Option<OperationValue>> {
    let wrong = || corrupt("operation_change", "a value does not match the format");
    let column = match side {
        ChangeSide::Before => row.before,
        ChangeSide::After => row.after,
    };
    match (field, column) {
        (_, ValueRef::Null) => Ok(None),
        (OperationField::Head | OperationField::Branch(_), ValueRef::Integer(seq)) => {
            id_of(seq).map(OperationValue::Checkpoint).map(Some)
        }
        (field, ValueRef::Blob(sealed)) if is_sealed(keys, field) => {
            let text = open_fact(conn, keys, (row.namespace, field), (row.operation, side), sealed)?;
            Ok(Some(OperationValue::Text(text)))
        }
        (OperationField::CurrentBranch | OperationField::Fact(_), ValueRef::Text(text)) if !is_sealed(keys, field) => {
            Ok(Some(OperationValue::Text(std::str::from_utf8(text).map_err(|_| wrong())?.to_owned())))
        }
        _ => Err(wrong()),
    }
}

/// Returns the threads that were forked from the one with a number, the first fork first.
pub(crate) fn forks(conn: &Connection, number: i64) -> Res<Vec<(i64, ThreadId)>> {
    let mut seen = HashSet::new();
    let rows: Vec<(i64, String)> = conn.all(sql::FORKS_OF_THREAD, [number])?;
    let forks = rows.into_iter().filter(|(fork, _)| seen.insert(*fork));
    let decoded = forks.map(|(fork, id)| Ok((fork, ThreadId::new(id).map_err(|error| Fault::Store(error.into()))?)));
    decoded.collect()
}

impl ReadView<'_> {
    /// Returns the `seq` of the last checkpoint of each named branch of a namespace.
    pub(crate) fn named_branches(self, namespace: i64) -> Res<Vec<i64>> {
        let read = |row: &Row<'_>| {
            let row = operation_change::Row::verified(self.keys, row)?;
            Ok(row.after.as_i64().ok().filter(|_| row.kind == BRANCH_KIND))
        };
        Ok(self.conn.read_all(sql::FIELDS, [namespace], read)?.into_iter().flatten().collect())
    }

    /// Decodes the content of a field before or after an operation.
    fn value_of(
        self,
        row: &operation_change::Row<'_>,
        field: &OperationField,
        side: ChangeSide,
    ) -> Res<Option<OperationValue>> {
        value_of((self.conn, self.keys), row, field, side, |seq| id_of(self.conn, row.namespace, seq))
    }

    /// Returns a stored operation, which must exist.
    pub(crate) fn operation(self, id: i64) -> Res<OperationRecord> {
        let missing = || corrupt(format!("operation {id}"), "a change refers to it, but it does not exist");
        let read = |row: &Row<'_>| self.operation_row(&operation::Row::verified(self.keys, row)?);
        self.conn.read_first(operation::Row::BY_KEY, [id], read)?.ok_or_else(missing)
    }

    fn operation_row(self, row: &operation::Row<'_>) -> Res<OperationRecord> {
        let wrong = || corrupt(row.place(), "it does not match the format");
        Ok(OperationRecord {
            id: u64::try_from(row.id).map_err(|_| wrong())?,
            seq: u64::try_from(row.seq).map_err(|_| wrong())?,
            kind: kind_of(row.kind).ok_or_else(wrong)?,
            at: Timestamp::from_micros(row.at),
            actor: row.actor.map(str::to_owned),
            target: target_of(row.target).ok_or_else(wrong)?,
            changes: self.changes_of(row.id)?,
        })
    }

    fn changes_of(self, id: i64) -> Res<Vec<OperationChange>> {
        let mut changes = self.conn.read_all(sql::OPERATION_CHANGES, [id], |row| self.change(row))?;
        sort_changes(&mut changes);
        Ok(changes)
    }

    /// Decodes a row of `sql::OPERATION_CHANGES`.
    fn change(self, row: &Row<'_>) -> Res<OperationChange> {
        let wrong = || corrupt("operation_change", "a row does not match the format");
        let (thread, path): (Option<String>, Option<String>) = operation_change::Row::after(row)?;
        let row = &operation_change::Row::verified(self.keys, row)?;
        let field = field_of(row.kind, row.key.to_owned()).ok_or_else(wrong)?;
        let (Some(thread), Some(path)) = (thread, path) else {
            let place = format!("namespace {}", row.namespace);
            return Err(corrupt(place, "an operation refers to it, but it does not exist"));
        };
        Ok(OperationChange {
            thread: ThreadId::new(thread).map_err(|_| wrong())?,
            namespace: Namespace::new(path).map_err(|_| wrong())?,
            before: self.value_of(row, &field, ChangeSide::Before)?,
            after: self.value_of(row, &field, ChangeSide::After)?,
            field,
        })
    }

    /// Lists operations, newest first. Those whose threads were all deleted are passed over.
    pub(crate) fn operations(self, query: &OperationQuery) -> Res<Vec<OperationRecord>> {
        let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
        if let Some(thread) = &query.thread {
            let Some(namespace) = self.namespace(thread, &Namespace::root())? else { return Ok(Vec::new()) };
            let ids: Vec<i64> = self.conn.all(sql::OPERATIONS_OF, params![namespace, before, limit as i64])?;
            must_descend(before, &ids)?;
            return ids.into_iter().map(|id| self.operation(id)).collect();
        }
        let (mut found, mut above) = (Vec::new(), before);
        self.conn.each_while(sql::OPERATIONS, [before], |row| {
            let row = operation::Row::verified(self.keys, row)?;
            must_descend(above, &[row.id])?;
            above = row.id;
            let record = self.operation_row(&row)?;
            if !record.changes.is_empty() {
                found.push(record);
            }
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }

    /// Returns the present contents of the fields of a thread that operations set, but for heads.
    pub(crate) fn fields(self, thread: &ThreadId) -> Res<Vec<(OperationField, OperationValue)>> {
        let Some(namespace) = self.namespace(thread, &Namespace::root())? else { return Ok(Vec::new()) };
        let read = |row: &Row<'_>| {
            let row = operation_change::Row::verified(self.keys, row)?;
            let wrong = || corrupt("operation_change", "a row does not match the format");
            let field = field_of(row.kind, row.key.to_owned()).ok_or_else(wrong)?;
            Ok(self.value_of(&row, &field, ChangeSide::After)?.map(|value| (field, value)))
        };
        Ok(self.conn.read_all(sql::FIELDS, [namespace], read)?.into_iter().flatten().collect())
    }

    /// Returns the threads in the trash, each with the end of its time there. The cost is that of the changes of this
    /// fact.
    pub(crate) fn trash(self) -> Res<Vec<(ThreadId, Timestamp)>> {
        let rows = self.conn.read_all(sql::TRASH, [], |row| self.trash_row(row))?;
        Ok(rows.into_iter().filter_map(|(thread, until)| Some((thread, until?))).collect())
    }

    /// Returns the number of the newest operation, 0 without one.
    pub(crate) fn newest_operation(self) -> Res<i64> {
        Ok(self.conn.one::<Option<i64>>(operation::Row::GREATEST, [])?.unwrap_or(0))
    }

    /// Returns the threads that operations after one of a number put into the trash or took out of it, with the end of
    /// their time there. The cost is that of the changes by these operations.
    pub(crate) fn trash_since(self, operation: i64) -> Res<Vec<(ThreadId, Option<Timestamp>)>> {
        self.conn.read_all(sql::TRASH_SINCE, [operation], |row| self.trash_row(row))
    }

    /// Returns the end of the time of a thread in the trash; `None` if it is not there.
    pub(crate) fn trashed(self, thread: &ThreadId) -> Res<Option<Timestamp>> {
        let Some(namespace) = self.namespace(thread, &Namespace::root())? else { return Ok(None) };
        Ok(end_in_trash(self.field(namespace, &OperationField::Fact(TRASHED.to_owned()))?))
    }

    /// Returns the present content of a field of a namespace, as the last operation that changed it left it.
    fn field(self, namespace: i64, field: &OperationField) -> Res<Option<OperationValue>> {
        let (kind, key) = field_columns(field);
        let read =
            |row: &Row<'_>| self.value_of(&operation_change::Row::verified(self.keys, row)?, field, ChangeSide::After);
        Ok(self.conn.read_first(sql::FIELD_CHANGE, params![namespace, kind, key], read)?.flatten())
    }

    fn trash_row(self, row: &Row<'_>) -> Res<(ThreadId, Option<Timestamp>)> {
        let field = OperationField::Fact(TRASHED.to_owned());
        let wrong = |_| corrupt("operation_change", "a row does not match the format");
        let thread = ThreadId::new(operation_change::Row::after::<String>(row)?).map_err(wrong)?;
        let row = operation_change::Row::verified(self.keys, row)?;
        Ok((thread, end_in_trash(self.value_of(&row, &field, ChangeSide::After)?)))
    }

    /// Returns the branches of a namespace, the newest first. In the order of the ids each branch is one run, and later
    /// branches have greater numbers, so the last checkpoint of a branch is found by a search for the border of the
    /// run.
    pub(crate) fn branches(self, thread: &ThreadId, path: &Namespace) -> Res<Vec<BranchRecord>> {
        let Some(namespace) = self.namespace(thread, path)? else { return Ok(Vec::new()) };
        // Seventeen bytes of 0xff are above every id.
        let mut above = vec![0xff_u8; 17];
        self.conn.read_all(sql::BRANCHES, [namespace], |row| {
            let branch::Row { id: branch, parent, upto, .. } = branch::Row::verified(row)?;
            let tip = self.last_of_branch(namespace, branch, &above)?;
            above = tip.to_vec();
            let point = CheckpointRef::new(thread.clone(), path.clone(), CheckpointId::from_bytes(tip));
            let missing = || corrupt(format!("branch {branch}"), "its checkpoints are missing");
            let last = self.checkpoint(&point)?.filter(|last| last.branch as i64 == branch).ok_or_else(missing)?;
            let leaves = parent.zip(upto).map(|(parent, upto)| (parent as u64, upto as u64));
            Ok(BranchRecord { last, leaves })
        })
    }

    /// Returns the greatest id of a branch, all of whose checkpoints have ids below `above`.
    fn last_of_branch(self, namespace: i64, branch: i64, above: &[u8]) -> Res<[u8; 16]> {
        let below =
            |id: &[u8]| -> Res<Option<([u8; 16], i64)>> { self.conn.first(sql::ID_BELOW, params![namespace, id]) };
        let missing = || corrupt(format!("branch {branch}"), "its checkpoints are missing");
        let mut found = below(above)?;
        let mut low = 0_u128;
        loop {
            let (id, of) = found.ok_or_else(missing)?;
            if of <= branch {
                return if of == branch { Ok(id) } else { Err(missing()) };
            }
            // The id belongs to a later branch: search below it.
            let mut high = u128::from_be_bytes(id);
            let middle = low + (high - low) / 2;
            match below(&middle.to_be_bytes())? {
                Some((id, of)) if of > branch => high = u128::from_be_bytes(id).max(low + 1),
                Some((id, _)) => low = u128::from_be_bytes(id).max(low),
                None => low = middle,
            }
            if high <= low {
                return Err(missing());
            }
            found = below(&high.to_be_bytes())?;
        }
    }

    /// Returns the threads that were forked from a thread, the first fork first.
    pub(crate) fn forks(self, thread: &ThreadId) -> Res<Vec<ThreadId>> {
        let number: Option<i64> = self.conn.first(sql::THREAD_BY_ID, [thread.as_str()])?;
        let forks = number.map_or(Ok(Vec::new()), |number| forks(self.conn, number))?;
        Ok(forks.into_iter().map(|(_, fork)| fork).collect())
    }

    /// Returns the checkpoint of another thread at which the root namespace of a thread begins.
    pub(crate) fn forked_from(self, thread: &ThreadId) -> Res<Option<CheckpointRef>> {
        let Some(namespace) = self.namespace(thread, &Namespace::root())? else { return Ok(None) };
        type Place = (Option<[u8; 16]>, Option<String>, Option<String>);
        let Some(place) = self.conn.first::<Place>(sql::FORKED_FROM, [namespace])? else { return Ok(None) };
        let wrong = || corrupt(format!("namespace {namespace}"), "its fork does not match the format");
        let (Some(id), Some(of), Some(path)) = place else { return Err(wrong()) };
        point_of(&of, &path, id).map(Some).ok_or_else(wrong)
    }

    /// Verifies the rows of all operations.
    pub(crate) fn check_operation(self, row: &Row<'_>) -> Res<()> {
        let row = operation::Row::verified(self.keys, row)?;
        let record = self.operation_row(&row)?;
        if record.changes.len() as i64 > row.changes {
            return Err(corrupt(format!("operation {}", record.id), "it has more changes than it counts"));
        }
        Ok(())
    }
}
