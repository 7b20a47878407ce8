//! Rows of `version`: the newest row of a channel or node, its kinds and the check of the rows of a checkpoint.
//!
//! *Absent:* the lineage along which they are read.

use super::pack::ValueColumn;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::row_check::RowCheck;
use crate::store::sqlite::tables::{StoredColumn, version};
use rusqlite::types::ValueRef;

/// The newest row of a channel or node.
#[derive(Clone, Debug)]
pub(crate) struct VersionRow {
    pub(crate) branch: i64,
    pub(crate) ordinal: i64,
    pub(crate) key: i64,
    pub(crate) version: i64,
    pub(crate) kind: i64,
    pub(crate) task: Option<u32>,
    pub(crate) value: KeyContent,
    /// The number beside the kind: of the last row of a checkpoint its [`seq_offset`], else 0.
    pub(crate) offset: i64,
}

/// The content of the row of a key.
#[derive(Clone, Debug)]
pub(crate) enum KeyContent {
    /// Of a channel that is not a list.
    Channel(ValueColumn),
    /// Of a list, a node or an index snapshot: packed numbers.
    Packed(Vec<u8>),
}

pub(crate) const EMPTY: i64 = 0;
pub(crate) const VALUE: i64 = 1;
pub(crate) const LIST: i64 = 2;
pub(crate) const SEEN: i64 = 3;
pub(crate) const INDEX_SNAPSHOT: i64 = 4;
/// The kind of the only row of a checkpoint without changes.
pub(crate) const NO_CHANGES: i64 = 5;

/// The bits of the column `kind` that hold the kind.
pub(crate) const KIND_BITS: u32 = 4;

/// Returns the number by which a checkpoint is found at its ordinal: its `seq` minus the least one that it can have. It
/// is 0 in a file with one thread, and takes no byte of the row.
pub(crate) fn seq_offset(seq: i64, ordinal: i64) -> i64 {
    seq.wrapping_sub(ordinal).wrapping_sub(1)
}

/// Returns kind and offset that the column `kind` holds.
pub(crate) fn of_kind_column(column: i64) -> (i64, i64) {
    (column & ((1 << KIND_BITS) - 1), column >> KIND_BITS)
}

/// Returns the version of a row at an ordinal as its column holds it: most versions are close to the ordinal.
pub(crate) fn version_column(kind: i64, version: i64, ordinal: i64) -> i64 {
    if matches!(kind, EMPTY | VALUE | LIST) { version.wrapping_sub(ordinal) } else { 0 }
}

/// Returns the version that a column holds.
pub(crate) fn version_of_column(kind: i64, column: i64, ordinal: i64) -> i64 {
    if matches!(kind, EMPTY | VALUE | LIST) { column.wrapping_add(ordinal) } else { column }
}

impl KeyContent {
    /// Returns the content of the column.
    pub(crate) fn column(&self) -> ValueRef<'_> {
        match self {
            Self::Channel(value) => value.column(),
            Self::Packed(bytes) => ValueRef::Blob(bytes),
        }
    }
}

impl VersionRow {
    /// Returns a row without a version of its own and without a task.
    pub(crate) fn derived(kind: i64, (branch, ordinal): (i64, i64), key: i64, value: KeyContent) -> Self {
        Self { branch, ordinal, key, version: 0, kind, task: None, value, offset: 0 }
    }

    /// Decodes a row.
    pub(crate) fn of(row: &version::Row<'_>) -> Res<Self> {
        let &version::Row { branch, ordinal, key, task, value: StoredColumn(column), .. } = row;
        let (kind, offset) = of_kind_column(row.kind);
        let value = match kind {
            EMPTY | VALUE | NO_CHANGES => ValueColumn::from_column(column).map(KeyContent::Channel),
            LIST | SEEN | INDEX_SNAPSHOT => column.as_blob().ok().map(|bytes| KeyContent::Packed(bytes.to_vec())),
            _ => None,
        };
        let value = value
            .ok_or_else(|| corrupt(version_place(branch, ordinal, key), "kind and value do not match the format"))?;
        let version = version_of_column(kind, row.version, ordinal);
        Ok(Self { branch, ordinal, key, version, kind, task, value, offset })
    }

    /// Returns the row as it is stored, with a check.
    pub(crate) fn columns(&self, xxh3: Option<i64>) -> version::Row<'_> {
        version::Row {
            branch: self.branch,
            ordinal: self.ordinal,
            key: self.key,
            version: version_column(self.kind, self.version, self.ordinal),
            kind: self.kind_column(),
            task: self.task,
            value: StoredColumn(self.value.column()),
            xxh3,
        }
    }

    /// Returns the column `kind`.
    pub(crate) fn kind_column(&self) -> i64 {
        (self.offset << KIND_BITS) | self.kind
    }
}

/// Returns the check of the rows of a checkpoint, given by ascending key.
pub(crate) fn versions_check<'r>(
    keys: &Keys,
    branch: i64,
    ordinal: i64,
    rows: impl IntoIterator<Item = &'r VersionRow>,
) -> i64 {
    let mut check = RowCheck::of("version");
    check.int(branch).int(ordinal);
    for row in rows {
        check.int(row.key).int(version_column(row.kind, row.version, ordinal)).int(row.kind_column());
        check.maybe_int(row.task.map(i64::from)).value(row.value.column());
    }
    check.finish_keyed(keys)
}

/// Names a row of `version`.
pub(crate) fn version_place(branch: i64, ordinal: i64, key: i64) -> String {
    format!("version (branch {branch}, ordinal {ordinal}, key {key})")
}
