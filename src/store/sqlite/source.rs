//! The column `source` of a checkpoint: its source, and the number of rows of writes that it consumed and stored.

use crate::store::record::Source;

/// Returns the number under which a source is stored.
pub(super) fn source_code(source: Source) -> i64 {
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
pub(super) fn source_column(source: Source, consumed: usize) -> i64 {
    source_code(source) | ((consumed as i64) << SOURCE_BITS)
}

/// Returns the code of the source that a column holds, and the number of rows of consumed writes.
pub(super) fn of_source_column(column: i64) -> (i64, i64) {
    (column & ((1 << SOURCE_BITS) - 1), column >> SOURCE_BITS)
}
