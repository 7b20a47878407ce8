//! The column `source` of a checkpoint: its source, the number of rows of writes that it consumed and stored, and
//! whether it was pruned.

use super::pack::Unpack;
use crate::store::record::Source;

/// Returns the number under which a source is stored.
pub(crate) fn source_code(source: Source) -> i64 {
    match source {
        Source::Input => 0,
        Source::Loop => 1,
        Source::Update => 2,
        Source::Fork => 3,
    }
}

/// The bits of the column `source` below the number of consumed writes.
const SOURCE_BITS: u32 = 2;

/// Returns the column `source` of a checkpoint that stores so many rows of consumed writes.
pub(crate) fn source_column(source: Source, consumed: usize) -> i64 {
    source_code(source) | ((consumed as i64) << SOURCE_BITS)
}

/// The column of a pruned checkpoint is less by this number: it is negative, and its lowest bits are the same.
const PRUNED_OFFSET: i64 = 1 << 31;

/// Returns the column of a checkpoint that is pruned, given the one that it had: a negative number.
pub(crate) fn pruned_column(column: i64) -> i64 {
    debug_assert!((0..PRUNED_OFFSET).contains(&column), "a checkpoint is pruned once");
    column - PRUNED_OFFSET
}

/// Returns whether a column says that its checkpoint was pruned.
pub(crate) fn is_pruned_column(column: i64) -> bool {
    column < 0
}

/// Returns the code of the source that a column holds, and the number of rows of consumed writes.
pub(crate) fn of_source_column(column: i64) -> (i64, i64) {
    let column = if is_pruned_column(column) { column.wrapping_add(PRUNED_OFFSET) } else { column };
    (column & ((1 << SOURCE_BITS) - 1), column >> SOURCE_BITS)
}

/// Returns the number of pruned checkpoints directly before a pruned one on its branch, at the time when it was pruned.
pub(crate) fn pruned_below(parents: Option<&[u8]>) -> i64 {
    parents.and_then(|bytes| Unpack(bytes).id()).unwrap_or(0)
}
